//! Pairs of state ids → sorted counts. Pairs are packed into one u64, source above target, so that counting is sorting.

use crate::error::{Error, Result};
use rayon::prelude::*;

/// Pairs that are sorted and counted together while they stream in: 64 MiB of them.
const PENDING: usize = 8 << 20;
/// Units of parallel work when sorted runs are merged.
const RANGES: usize = 64;

pub fn pack(source: u32, target: u32) -> u64 {
    u64::from(source) << 32 | u64::from(target)
}

pub fn unpack(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// Sorted distinct pairs and how often each occurred.
#[derive(Debug, Default, Clone)]
struct Run {
    pairs: Vec<u64>,
    counts: Vec<u32>,
}

/// Counts pairs that each weigh one, in bounded pieces.
#[derive(Debug, Default)]
pub struct Tally {
    pending: Vec<u64>,
    runs: Vec<Run>,
}

impl Tally {
    #[inline(always)]
    pub fn add(&mut self, pair: u64) {
        if self.pending.len() >= PENDING {
            self.count_pending();
        }
        self.pending.push(pair);
    }

    fn count_pending(&mut self) {
        self.pending.sort_unstable();
        let distinct = self.pending.chunk_by(|a, b| a == b);
        let (mut pairs, mut counts) = (Vec::new(), Vec::new());
        for same in distinct {
            pairs.push(same[0]);
            counts.push(same.len() as u32);
        }
        pairs.shrink_to_fit();
        counts.shrink_to_fit();
        self.runs.push(Run { pairs, counts });
        self.pending.clear();
    }

    /// Gives every state another number. A numbering that keeps the order (`ascending`) leaves runs sorted.
    pub fn renumber(
        &mut self,
        source: impl Fn(u32) -> u32 + Sync,
        target: impl Fn(u32) -> u32 + Sync,
    ) {
        let renumber = |pair: &mut u64| {
            let (s, t) = unpack(*pair);
            *pair = pack(source(s), target(t));
        };
        self.pending.iter_mut().for_each(renumber);
        self.runs.par_iter_mut().for_each(|run| {
            run.pairs.iter_mut().for_each(renumber);
            let mut both: Vec<(u64, u32)> = run
                .pairs
                .iter()
                .copied()
                .zip(run.counts.iter().copied())
                .collect();
            both.sort_unstable();
            (run.pairs, run.counts) = both.into_iter().unzip();
        });
    }

    pub fn append(&mut self, mut other: Tally) {
        if !other.pending.is_empty() && self.pending.len() + other.pending.len() > PENDING {
            other.count_pending();
        }
        self.pending.append(&mut other.pending);
        self.runs.append(&mut other.runs);
    }

    /// All distinct pairs in ascending order with their counts.
    pub fn finish(mut self) -> (Vec<u64>, Vec<u64>) {
        if !self.pending.is_empty() {
            self.count_pending();
        }
        self.pending = Vec::new();
        let mut runs = self.runs;
        if runs.len() == 1 {
            let Run { pairs, counts } = runs.swap_remove(0);
            return (pairs, counts.into_iter().map(u64::from).collect());
        }
        let borders = borders(&runs);
        let merged: Vec<(Vec<u64>, Vec<u64>)> = borders
            .par_windows(2)
            .map(|w| merge(&runs, w[0], w[1]))
            .collect();
        drop(runs);
        let total = merged.iter().map(|(pairs, _)| pairs.len()).sum();
        let (mut pairs, mut counts) = (Vec::with_capacity(total), Vec::with_capacity(total));
        for (p, c) in merged {
            pairs.extend_from_slice(&p);
            counts.extend_from_slice(&c);
        }
        (pairs, counts)
    }
}

/// Pairs at which the runs are cut into ranges of about equal length: quantiles of an even sample.
fn borders(runs: &[Run]) -> Vec<u64> {
    let mut sample: Vec<u64> = runs
        .iter()
        .flat_map(|r| {
            r.pairs
                .iter()
                .step_by(1 + r.pairs.len() / (8 * RANGES))
                .copied()
        })
        .collect();
    sample.sort_unstable();
    let mut borders = vec![0];
    borders.extend((1..RANGES).filter_map(|k| sample.get(k * sample.len() / RANGES).copied()));
    borders.push(u64::MAX);
    borders.dedup();
    borders
}

/// Merges what the runs hold in `from..to` (no pair is u64::MAX, because no id is u32::MAX).
fn merge(runs: &[Run], from: u64, to: u64) -> (Vec<u64>, Vec<u64>) {
    let mut both: Vec<(u64, u32)> = Vec::new();
    for run in runs {
        let range =
            run.pairs.partition_point(|&p| p < from)..run.pairs.partition_point(|&p| p < to);
        both.extend(
            run.pairs[range.clone()]
                .iter()
                .copied()
                .zip(run.counts[range].iter().copied()),
        );
    }
    // A stable sort finds the ascending runs and merges them.
    both.sort_by_key(|&(pair, _)| pair);
    let (mut pairs, mut counts) = (
        Vec::with_capacity(both.len()),
        Vec::with_capacity(both.len()),
    );
    for same in both.chunk_by(|a, b| a.0 == b.0) {
        pairs.push(same[0].0);
        counts.push(same.iter().map(|&(_, c)| u64::from(c)).sum());
    }
    (pairs, counts)
}

/// Sums given counts of pairs exactly.
pub fn sum_counts(mut entries: Vec<(u64, u64)>) -> Result<(Vec<u64>, Vec<u64>)> {
    entries.par_sort_unstable();
    let (mut pairs, mut counts) = (Vec::new(), Vec::new());
    for same in entries.chunk_by(|a, b| a.0 == b.0) {
        let sum = same
            .iter()
            .try_fold(0u64, |sum, &(_, c)| sum.checked_add(c));
        pairs.push(same[0].0);
        counts.push(sum.ok_or_else(|| {
            Error::input("the counts of one transition add up to more than a 64-bit integer holds")
        })?);
    }
    Ok((pairs, counts))
}

/// Sums given weights of pairs. Sorting the weights first makes the sum independent of the order of rows, and compensation
/// (Neumaier) keeps its error at the last digit.
pub fn sum_weights(mut entries: Vec<(u64, f64)>) -> (Vec<u64>, Vec<f64>) {
    entries.par_sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut pairs, mut weights) = (Vec::new(), Vec::new());
    for same in entries.chunk_by(|a, b| a.0 == b.0) {
        pairs.push(same[0].0);
        weights.push(compensated(same.iter().map(|&(_, w)| w)));
    }
    (pairs, weights)
}

fn compensated(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for x in terms {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() {
            (sum - next) + x
        } else {
            (x - next) + sum
        };
        sum = next;
    }
    sum + lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn many_runs_count_as_one() {
        let pairs = |seed: u64| {
            (0..5000u64).map(move |k| {
                pack(
                    ((k * 7919 + seed) % 97) as u32,
                    ((k * k + seed) % 31) as u32,
                )
            })
        };
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        let mut whole = Tally::default();
        for seed in 0..4 {
            let mut tally = Tally::default();
            for pair in pairs(seed) {
                tally.add(pair);
                *expected.entry(pair).or_default() += 1;
            }
            if seed != 2 {
                tally.count_pending();
            }
            whole.append(tally);
        }
        let (got, counts) = whole.finish();
        assert_eq!(
            got.into_iter().zip(counts).collect::<Vec<_>>(),
            expected.into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn renumbering_keeps_the_counts() {
        let mut tally = Tally::default();
        [(0, 1), (1, 0), (0, 1), (2, 2)]
            .iter()
            .for_each(|&(s, t)| tally.add(pack(s, t)));
        tally.count_pending();
        tally.renumber(|s| 2 - s, |t| t + 10);
        let (pairs, counts) = tally.finish();
        assert_eq!(
            pairs.into_iter().map(unpack).collect::<Vec<_>>(),
            [(0, 12), (1, 10), (2, 11)]
        );
        assert_eq!(counts, [1, 1, 2]);
    }

    #[test]
    fn weights_do_not_depend_on_the_order_of_rows() {
        let rows = [(1, 1e16), (1, 1.0), (1, -0.0), (1, 1.0), (2, 0.1)];
        let mut turned = rows;
        turned.reverse();
        let (pairs, weights) = sum_weights(rows.to_vec());
        assert_eq!(
            (pairs, weights.clone()),
            (vec![1, 2], vec![1e16 + 2.0, 0.1])
        );
        assert_eq!(sum_weights(turned.to_vec()).1, weights);
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        assert!(sum_counts(vec![(1, u64::MAX), (1, 1)]).is_err());
        assert_eq!(
            sum_counts(vec![(2, 5), (1, 1), (2, 6)]).unwrap(),
            (vec![1, 2], vec![1, 11])
        );
    }
}
