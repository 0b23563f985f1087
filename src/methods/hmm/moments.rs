//! Triples → classes of symbols, their probabilities and the matrix of pairs.
//!
//! The matrix of pairs has past words and future words. The future word of a pair is the middle
//! symbol and the first L − 1 symbols of the future word of the triple, so pairs and triples come
//! from the same windows.

use crate::error::{Error, Result};
use crate::evidence::counts::csr::Values;
use crate::evidence::counts::shards::Shards;
use crate::evidence::symbols::triples::Triples;
use crate::math::scale::times_power;
use hashbrown::HashMap;
use rayon::prelude::*;
use std::borrow::Cow;

/// Non-zeros per shard of the matrix of pairs.
const SHARD_NNZ: usize = 1 << 18;

/// No row of the matrix of pairs.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// The classes of symbols: a symbol of its own, or the pool of rare symbols.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Classes {
    /// The number of classes.
    pub n: usize,
    /// The class of each symbol.
    pub class_of: Vec<u32>,
    /// The share of each symbol in its class.
    pub share: Vec<f64>,
    /// The class of pooled symbols, the last one.
    pub pool: Option<u32>,
    /// The share of each symbol among all positions of all windows.
    pub unigram: Vec<f64>,
}

/// The share of each symbol among all positions of all windows.
pub(crate) fn unigram(triples: &Triples) -> Vec<f64> {
    shares(&positions(triples).1)
}

fn shares(counts: &[f64]) -> Vec<f64> {
    let total: f64 = counts.iter().sum();
    counts.iter().map(|count| count / total).collect()
}

/// The number of windows of each symbol at the first and the last position and in the middle, and
/// its total number at all positions.
fn positions(triples: &Triples) -> (Vec<[f64; 3]>, Vec<f64>) {
    let n = triples.n_symbols;
    let block = triples.block;
    let (mut ends, mut all) = (vec![[0.0; 3]; n], vec![0.0; n]);
    let mut of_word = vec![[0.0; 2]; triples.n_words()];
    for (e, &(middle, first)) in triples.edges.iter().enumerate() {
        let mut sum = 0.0;
        for (last, count) in triples.of_edge(e) {
            of_word[last as usize][1] += count;
            sum += count;
        }
        of_word[first as usize][0] += sum;
        ends[middle as usize][1] += sum;
        all[middle as usize] += sum;
    }
    for (word, [first, last]) in triples.words.chunks_exact(block).zip(of_word) {
        ends[word[0] as usize][0] += first;
        ends[word[block - 1] as usize][2] += last;
        for &symbol in word {
            all[symbol as usize] += first + last;
        }
    }
    (ends, all)
}

impl Classes {
    /// Pools the symbols that are counted less than `min_count` times at the first, the middle and
    /// the last position of windows. Weights are those of the input.
    pub(crate) fn new(triples: &Triples, min_count: usize) -> Classes {
        let n = triples.n_symbols;
        let (ends, all) = positions(triples);
        let unigram = shares(&all);
        let is_rare = |symbol: usize| {
            let most = ends[symbol].iter().copied().fold(0.0, f64::max);
            min_count > 1 && times_power(most, triples.exponent) < min_count as f64
        };
        let rare: Vec<usize> = (0..n).filter(|&symbol| is_rare(symbol)).collect();
        let mut classes = Classes {
            n,
            class_of: (0..n as u32).collect(),
            share: vec![1.0; n],
            pool: None,
            unigram,
        };
        // One rare symbol is a class of its own.
        if rare.len() < 2 {
            return classes;
        }
        let pool = (n - rare.len()) as u32;
        let mass: f64 = rare.iter().map(|&symbol| all[symbol]).sum();
        let mass = if mass > 0.0 { mass } else { 1.0 };
        let mut next = 0;
        let mut rare = rare.into_iter().peekable();
        for (symbol, count) in all.iter().enumerate() {
            if rare.next_if_eq(&symbol).is_some() {
                classes.class_of[symbol] = pool;
                classes.share[symbol] = count / mass;
            } else {
                classes.class_of[symbol] = next;
                next += 1;
            }
        }
        classes.n = pool as usize + 1;
        classes.pool = Some(pool);
        classes
    }

    /// The triples of classes.
    pub(crate) fn triples<'a>(&self, triples: &'a Triples) -> Cow<'a, Triples> {
        if self.pool.is_none() {
            return Cow::Borrowed(triples);
        }
        let class = |symbol: u32| self.class_of[symbol as usize];
        let block = triples.block;
        let (words, word_of) = if block == 1 {
            (Triples::symbols_as_words(self.n), self.class_of.clone())
        } else {
            let mut ids: HashMap<Vec<u32>, u32> = HashMap::new();
            let mut words = Vec::new();
            let mut word_of = Vec::with_capacity(triples.n_words());
            for word in triples.words.chunks_exact(block) {
                let word: Vec<u32> = word.iter().map(|&symbol| class(symbol)).collect();
                let next = ids.len() as u32;
                let id = *ids.entry(word).or_insert_with_key(|word| {
                    words.extend_from_slice(word);
                    next
                });
                word_of.push(id);
            }
            (words, word_of)
        };
        let word = |word: u32| word_of[word as usize];
        let renamed = triples.iter();
        let renamed = renamed.map(|(a, x, c, count)| (word(a), class(x), word(c), count));
        Cow::Owned(Triples::new(block, self.n, words, renamed.collect()))
    }
}

/// The matrix of pairs, and which word is which row and column.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// Its sources are future words and its targets past words, which is P₂₁ᵀ · N.
    pub shards: Shards,
    /// The row of each word of the triples among the future words; [`NO_ROW`] if the word is never
    /// the future of a pair.
    pub future_of: Vec<u32>,
    /// The row of each word of the triples among the past words; [`NO_ROW`] if the word is never a
    /// past.
    pub past_of: Vec<u32>,
}

impl Pairs {
    /// The pairs of some triples.
    ///
    /// # Errors
    /// If there is no triple.
    pub(crate) fn new(triples: &Triples) -> Result<Pairs> {
        if triples.is_empty() {
            return Err(Error::input("there is no window of symbols to fit"));
        }
        let mut past_of = vec![NO_ROW; triples.n_words()];
        for &(_, first) in &triples.edges {
            past_of[first as usize] = 0;
        }
        let n_pasts = number(&mut past_of);
        let past = |first: u32| past_of[first as usize];
        let mut futures = Vec::with_capacity(triples.edges.len());
        let mut pasts = Vec::with_capacity(triples.edges.len());
        let mut counts = Vec::with_capacity(triples.edges.len());
        let (future_of, n_futures) = if triples.block == 1 {
            let mut future_of = vec![NO_ROW; triples.n_words()];
            for &(middle, _) in &triples.edges {
                future_of[middle as usize] = 0;
            }
            let n_futures = number(&mut future_of);
            for (e, &(middle, first)) in triples.edges.iter().enumerate() {
                futures.push(future_of[middle as usize]);
                pasts.push(past(first));
                counts.push(triples.edge_count(e));
            }
            (future_of, n_futures)
        } else {
            let prefixes = Prefixes::new(triples);
            let mut list = Vec::with_capacity(triples.len());
            for (e, &(middle, first)) in triples.edges.iter().enumerate() {
                for (last, count) in triples.of_edge(e) {
                    list.push((middle, prefixes.of[last as usize], past(first), count));
                }
            }
            // The sort is stable, so the order of a sum is fixed.
            list.par_sort_by_key(|&(middle, prefix, past, _)| (middle, prefix, past));
            let mut row_of: HashMap<(u32, u32), u32> = HashMap::new();
            for (middle, prefix, past, count) in list {
                let next = row_of.len() as u32;
                let future = *row_of.entry((middle, prefix)).or_insert(next);
                if futures.last() == Some(&future) && pasts.last() == Some(&past) {
                    if let Some(sum) = counts.last_mut() {
                        *sum += count;
                    }
                    continue;
                }
                futures.push(future);
                pasts.push(past);
                counts.push(count);
            }
            let row = |word: &[u32]| {
                let prefix = prefixes.ids.get(&word[1..])?;
                row_of.get(&(word[0], *prefix)).copied()
            };
            let words = triples.words.chunks_exact(triples.block);
            let future_of = words.map(|word| row(word).unwrap_or(NO_ROW)).collect();
            (future_of, row_of.len())
        };
        let values = if counts.par_iter().all(|count: &f64| count.fract() == 0.0) {
            Values::of_integers(counts)
        } else {
            Values::Real(counts)
        };
        let shards = Shards::new(n_futures, n_pasts, &futures, &pasts, values, SHARD_NNZ);
        Ok(Pairs {
            shards,
            future_of,
            past_of,
        })
    }
}

/// The first L − 1 symbols of every word.
struct Prefixes<'a> {
    /// The prefix of each word.
    of: Vec<u32>,
    /// Prefixes by their symbols.
    ids: HashMap<&'a [u32], u32>,
}

impl<'a> Prefixes<'a> {
    fn new(triples: &'a Triples) -> Self {
        let mut ids: HashMap<&[u32], u32> = HashMap::new();
        let words = triples.words.chunks_exact(triples.block);
        let of = words.map(|word| {
            let next = ids.len() as u32;
            *ids.entry(&word[..triples.block - 1]).or_insert(next)
        });
        Prefixes {
            of: of.collect(),
            ids,
        }
    }
}

/// Numbers the entries that are not [`NO_ROW`] in their order.
fn number(rows: &mut [u32]) -> usize {
    let mut next = 0;
    for row in rows.iter_mut().filter(|row| **row != NO_ROW) {
        *row = next;
        next += 1;
    }
    next as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(symbols: &[u32], n: usize) -> Triples {
        let list = symbols.windows(3).map(|w| (w[0], w[1], w[2], 1.0));
        Triples::new(1, n, Triples::symbols_as_words(n), list.collect())
    }

    // 0 1 0 2 0 1 3: windows 010 102 020 201 013. Symbol 3 is never a middle symbol.
    #[test]
    fn pairs_are_past_and_middle() {
        let triples = windows(&[0, 1, 0, 2, 0, 1, 3], 4);
        let pairs = Pairs::new(&triples).expect("pairs");
        assert_eq!(pairs.past_of, [0, 1, 2, NO_ROW]);
        assert_eq!(pairs.future_of, [0, 1, 2, NO_ROW]);
        assert_eq!(pairs.shards.source_total, [2.0, 2.0, 1.0]);
        assert_eq!(pairs.shards.target_total, [3.0, 1.0, 1.0]);
        assert!(Pairs::new(&Triples::default()).is_err());
    }

    // Positions of 0 1 0 2 0 1 3: 0 is first, middle, last in 3, 2, 2 windows; 1 in 1, 2, 1; 2 in
    // 1, 1, 1; 3 in 0, 0, 1. With a count of 2, the symbols 2 and 3 are pooled.
    #[test]
    fn rare_symbols_share_a_class() {
        let triples = windows(&[0, 1, 0, 2, 0, 1, 3], 4);
        let classes = Classes::new(&triples, 2);
        assert_eq!((classes.n, classes.pool), (3, Some(2)));
        assert_eq!(classes.class_of, [0, 1, 2, 2]);
        assert_eq!(classes.share, [1.0, 1.0, 0.75, 0.25]);
        let expected = [7.0, 4.0, 3.0, 1.0].map(|count| count / 15.0);
        assert_eq!(classes.unigram, expected);
        let pooled = classes.triples(&triples);
        assert_eq!((pooled.n_symbols, pooled.total()), (3, 5.0));
        assert_eq!(pooled.edges, [(0, 1), (0, 2), (1, 0), (2, 0)]);
        assert_eq!(Classes::new(&triples, 1).pool, None);
    }

    // 0 1 1 0 1 1 0: past, middle and future of two: 01|1|01, 11|0|11, 10|1|10. The future words of
    // the pairs are 10, 01, 11.
    #[test]
    fn future_words_of_pairs_begin_in_the_middle() {
        let symbols = [0, 1, 1, 0, 1, 1, 0];
        let words = vec![0, 1, 1, 1, 1, 0];
        let id = |w: &[u32]| match w {
            [0, 1] => 0,
            [1, 1] => 1,
            _ => 2,
        };
        let list = symbols.windows(5);
        let list = list.map(|w| (id(&w[..2]), w[2], id(&w[3..]), 1.0));
        let triples = Triples::new(2, 2, words, list.collect());
        let pairs = Pairs::new(&triples).expect("pairs");
        // Rows in the order of (middle, prefix): 01, 10, 11.
        assert_eq!(pairs.future_of, [0, 2, 1]);
        assert_eq!(pairs.past_of, [0, 1, 2]);
        assert_eq!(pairs.shards.nnz(), 3);
        let pooled = Classes::new(&triples, 100).triples(&triples).into_owned();
        assert_eq!((pooled.n_symbols, pooled.n_words()), (1, 1));
        assert_eq!(Pairs::new(&pooled).expect("pairs").future_of, [0]);
    }
}
