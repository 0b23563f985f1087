//! Counted windows of symbols: past word, middle symbol, future word.

use crate::math::sum;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The sizes on which the memory of a fit depends: exact numbers or upper bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TripleSize {
    /// The number of symbols, n.
    pub symbols: u64,
    /// The number of words; the number of symbols for a block of 1.
    pub words: u64,
    /// The number of different pairs of a past word and a middle symbol.
    pub edges: u64,
    /// The number of different triples.
    pub triples: u64,
    /// Symbols of all training rows.
    pub rows: u64,
}

/// Counted triples of one partition.
///
/// A window is `2 * block + 1` symbols in a row: a past word of `block` symbols, a middle symbol
/// and a future word of `block` symbols.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Triples {
    /// Symbols per word, L.
    pub block: usize,
    /// The number of symbols, n.
    pub n_symbols: usize,
    /// The symbols of word w are `words[w * block..][..block]`. With a block of 1, word w is symbol
    /// w.
    pub words: Vec<u32>,
    /// The different pairs (middle symbol, past word), ascending.
    pub edges: Vec<(u32, u32)>,
    /// The triples of edge e are `offsets[e]..offsets[e + 1]`.
    pub offsets: Vec<usize>,
    /// The future word of every triple, ascending within an edge.
    pub last: Vec<u32>,
    /// The count or the weight of every triple, positive, times 2^-`exponent`.
    pub counts: Vec<f64>,
    /// (Σ w)² / Σ w² over the windows, if they have weights.
    pub effective: Option<f64>,
    /// log₂ of the unit of the counts, so that the scale of weights changes no bit of a fit. 0 for
    /// counts.
    pub exponent: i32,
}

impl Triples {
    /// Triples from a list of (past word, middle symbol, future word, count) in any order. Counts
    /// of equal triples add up in the order of the list. Triples without a count are left out.
    ///
    /// # Panics
    /// If a word or a symbol is out of range.
    pub fn new(
        block: usize,
        n_symbols: usize,
        words: Vec<u32>,
        mut triples: Vec<(u32, u32, u32, f64)>,
    ) -> Triples {
        assert!(
            block > 0 && words.len().is_multiple_of(block),
            "words are whole blocks of symbols"
        );
        let n_words = words.len() / block;
        assert!(
            words.iter().all(|&symbol| (symbol as usize) < n_symbols),
            "a word has an unknown symbol"
        );
        triples.retain(|triple| triple.3 > 0.0);
        // The sort is stable, so equal triples keep their order.
        triples.par_sort_by_key(|&(first, middle, last, _)| (middle, first, last));
        let mut sorted = Triples {
            block,
            n_symbols,
            words,
            offsets: vec![0],
            ..Triples::default()
        };
        for (first, middle, last, count) in triples {
            assert!(
                (middle as usize) < n_symbols
                    && (first as usize) < n_words
                    && (last as usize) < n_words,
                "a triple has an unknown symbol or word"
            );
            sorted.push(first, middle, last, count);
        }
        sorted
    }

    /// Adds a triple that comes after all others, or is equal to the last one.
    fn push(&mut self, first: u32, middle: u32, last: u32, count: f64) {
        if self.edges.last() != Some(&(middle, first)) {
            self.edges.push((middle, first));
            self.offsets.push(self.last.len());
        } else if self.last.last() == Some(&last) {
            if let Some(sum) = self.counts.last_mut() {
                *sum += count;
            }
            return;
        }
        self.last.push(last);
        self.counts.push(count);
        if let Some(end) = self.offsets.last_mut() {
            *end = self.last.len();
        }
    }

    /// The words of a block of 1: every symbol.
    pub fn symbols_as_words(n_symbols: usize) -> Vec<u32> {
        (0..n_symbols as u32).collect()
    }

    /// The number of words.
    pub(crate) fn n_words(&self) -> usize {
        self.words.len() / self.block.max(1)
    }

    /// The symbols of a word.
    pub(crate) fn word(&self, word: u32) -> &[u32] {
        &self.words[word as usize * self.block..][..self.block]
    }

    /// The number of different triples.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether there is no triple.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// The sum of all counts, N.
    pub(crate) fn total(&self) -> f64 {
        sum::terms(self.counts.len(), |at| self.counts[at])
    }

    /// The triples of an edge: future words and counts.
    pub(crate) fn of_edge(&self, edge: usize) -> impl Iterator<Item = (u32, f64)> {
        let span = self.offsets[edge]..self.offsets[edge + 1];
        let words = self.last[span.clone()].iter().copied();
        words.zip(self.counts[span].iter().copied())
    }

    /// The count of an edge.
    pub(crate) fn edge_count(&self, edge: usize) -> f64 {
        self.counts[self.offsets[edge]..self.offsets[edge + 1]]
            .iter()
            .sum()
    }

    /// Every triple in order: past word, middle symbol, future word, count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, u32, f64)> {
        self.edges
            .iter()
            .enumerate()
            .flat_map(|(e, &(middle, first))| {
                self.of_edge(e)
                    .map(move |(last, count)| (first, middle, last, count))
            })
    }

    /// Whether all counts are integers, so that their sums are exact below 2⁵³.
    pub(crate) fn is_integral(&self) -> bool {
        self.counts.par_iter().all(|count| count.fract() == 0.0)
    }

    /// The sizes of these triples. `rows` is the number of symbols of all training rows.
    pub(crate) fn size(&self, rows: u64) -> TripleSize {
        TripleSize {
            symbols: self.n_symbols as u64,
            words: self.n_words() as u64,
            edges: self.edges.len() as u64,
            triples: self.len() as u64,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Windows of 0 1 0 1 1: (0 1 0), (1 0 1), (0 1 1), with (0 1 0) twice.
    #[test]
    fn triples_are_sorted_and_added_up() {
        let list = vec![
            (0, 1, 1, 1.0),
            (0, 1, 0, 1.0),
            (1, 0, 1, 1.0),
            (0, 1, 0, 1.0),
            (1, 1, 1, 0.0),
        ];
        let triples = Triples::new(1, 2, Triples::symbols_as_words(2), list);
        assert_eq!(triples.edges, [(0, 1), (1, 0)]);
        assert_eq!(triples.offsets, [0, 1, 3]);
        assert_eq!((triples.len(), triples.total()), (3, 4.0));
        assert_eq!(triples.edge_count(1), 3.0);
        let sorted = [(1, 0, 1, 1.0), (0, 1, 0, 2.0), (0, 1, 1, 1.0)];
        assert_eq!(triples.iter().collect::<Vec<_>>(), sorted);
        assert!(triples.is_integral() && !triples.is_empty());
        assert_eq!(triples.size(5).edges, 2);
    }

    #[test]
    fn words_are_blocks_of_symbols() {
        let words = vec![0, 1, 1, 0];
        let triples = Triples::new(2, 2, words, vec![(0, 1, 1, 0.5)]);
        assert_eq!((triples.n_words(), triples.word(1)), (2, &[1, 0][..]));
        assert!(!triples.is_integral());
    }
}
