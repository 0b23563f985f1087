//! Points of trajectories → blocks of rows with the pairs at each lag.

use crate::math::seed::mixed;
use crate::read::counts::lagged::Walker;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::points::{PointBatch, Receiver};
use crate::read::rows::stop::Stop;

/// Rows after which a block is given away.
const BLOCK_ROWS: usize = 8192;

/// Rows per piece of a trajectory.
const PIECE_ROWS: u64 = 128;

/// Rows of one partition, and the pairs among them.
#[derive(Debug, Default)]
pub(crate) struct PairBlock {
    /// The number of the partition.
    pub(crate) partition: u32,
    /// n × d, row-major, divided by the scale.
    pub(crate) rows: Vec<f64>,
    /// n weights, if rows have weights.
    pub(crate) weights: Option<Vec<f64>>,
    /// n hashes of the keys of the rows.
    pub(crate) hashes: Vec<u64>,
    /// n hashes of the trajectories of the rows.
    pub(crate) trajectories: Vec<u64>,
    /// n hashes of the pieces of trajectories: rows that follow each other.
    pub(crate) pieces: Vec<u64>,
    /// For each lag, the first and the second row of each pair. A row may be in several blocks, a
    /// pair is in one.
    pub(crate) pairs: Vec<Vec<(u32, u32)>>,
    /// The leading rows that are the last ones of the block before.
    pub(crate) repeated: usize,
}

/// Takes blocks.
pub(crate) trait BlockReceiver: Send + 'static {
    /// Takes the next block, which may have no pairs.
    fn push(&mut self, block: PairBlock) -> Result<(), Stop>;
}

/// Makes blocks of the points of trajectories.
pub(crate) struct Blocks<R> {
    divisors: Vec<f64>,
    walker: Walker<u32>,
    block: PairBlock,
    has_block: bool,
    /// The row of its trajectory that comes next.
    position: u64,
    /// Takes the blocks.
    pub(crate) receiver: R,
}

impl<R: BlockReceiver> Blocks<R> {
    /// Blocks of points whose coordinates are divided by `divisors`.
    pub(crate) fn new(layout: &PointLayout, divisors: &[f64], receiver: R) -> Blocks<R> {
        let walker = match &layout.roles {
            PointRoles::Pairs {
                lags,
                strided,
                rules,
            } => Walker::new(lags, *strided).with(rules),
            PointRoles::Rows => Walker::new(&[], false),
        };
        Blocks {
            divisors: divisors.to_vec(),
            block: PairBlock {
                pairs: vec![Vec::new(); walker.n_lags()],
                ..PairBlock::default()
            },
            walker,
            has_block: false,
            position: 0,
            receiver,
        }
    }

    /// Gives the block away, and begins one with the rows that may still start a pair.
    fn flush(&mut self, keep: bool) -> Result<(), Stop> {
        if !self.has_block {
            return Ok(());
        }
        let n = self.block.hashes.len();
        let first = if keep {
            self.walker
                .points()
                .iter()
                .min()
                .map_or(n, |&row| row as usize)
        } else {
            n
        };
        let d = self.divisors.len();
        let next = PairBlock {
            partition: self.block.partition,
            rows: self.block.rows[first * d..].to_vec(),
            weights: self.block.weights.as_ref().map(|w| w[first..].to_vec()),
            hashes: self.block.hashes[first..].to_vec(),
            trajectories: self.block.trajectories[first..].to_vec(),
            pieces: self.block.pieces[first..].to_vec(),
            pairs: vec![Vec::new(); self.block.pairs.len()],
            repeated: n - first,
        };
        let shifted = self
            .walker
            .clone()
            .map(|row| row.wrapping_sub(first as u32));
        self.walker = shifted;
        self.has_block = first < n;
        self.receiver.push(std::mem::replace(&mut self.block, next))
    }

    /// Adds the pairs that are known only when the trajectory ends.
    fn end(&mut self) {
        let pairs = &mut self.block.pairs;
        self.walker
            .emit_rest(&mut |lag: usize, x: u32, y: u32| pairs[lag].push((x, y)));
    }

    /// Gives the last block away.
    pub(crate) fn finish(mut self) -> Result<R, Stop> {
        self.end();
        self.flush(false)?;
        Ok(self.receiver)
    }
}

impl<R: BlockReceiver> Receiver for Blocks<R> {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        for (at, run) in batch.trajectories.iter().enumerate() {
            let continues = at == 0 && batch.continues;
            if !continues {
                self.end();
                self.walker.restart();
                self.position = 0;
            }
            let partition = batch.partition_of(run.start);
            if self.has_block && self.block.partition != partition {
                self.flush(false)?;
            }
            // A long trajectory is cut into blocks too.
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + BLOCK_ROWS);
                let first = self.block.hashes.len() as u32;
                self.block.partition = partition;
                self.has_block = true;
                for row in start..end {
                    let point = &batch.coordinates[row * d..][..d];
                    let scaled = point.iter().zip(&self.divisors).map(|(x, s)| x / s);
                    self.block.rows.extend(scaled);
                }
                if let Some(weights) = &batch.weights {
                    let own = self.block.weights.get_or_insert_default();
                    own.extend_from_slice(&weights[start..end]);
                }
                self.block
                    .hashes
                    .extend_from_slice(&batch.hashes[start..end]);
                let trajectories = &batch.trajectory_hashes[start..end];
                self.block.trajectories.extend_from_slice(trajectories);
                for hash in trajectories {
                    self.block
                        .pieces
                        .push(mixed(hash ^ (self.position / PIECE_ROWS)));
                    self.position += 1;
                }
                let places: Vec<u32> = (first..first + (end - start) as u32).collect();
                let pairs = &mut self.block.pairs;
                let walked = self.walker.push(
                    &batch.times[start..end],
                    &places,
                    true,
                    |lag: usize, x: u32, y: u32| {
                        pairs[lag].push((x, y));
                    },
                );
                // The reader has checked the order.
                walked.map_err(|_| Stop::Unsorted)?;
                start = end;
                if self.block.hashes.len() >= BLOCK_ROWS {
                    self.flush(true)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::read::rows::coordinates::Scale;
    use crate::read::rows::time_rules::TimeRules;
    use arrow::datatypes::{DataType, Field};
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Collected {
        /// By lag: the first coordinates of both rows of each pair.
        pairs: Vec<Vec<(i64, i64)>>,
        largest: usize,
    }

    impl BlockReceiver for Collected {
        fn push(&mut self, block: PairBlock) -> Result<(), Stop> {
            self.largest = self.largest.max(block.hashes.len());
            self.pairs.resize(block.pairs.len(), Vec::new());
            for (all, pairs) in self.pairs.iter_mut().zip(&block.pairs) {
                let row = |at: u32| (2.0 * block.rows[at as usize]) as i64;
                all.extend(pairs.iter().map(|&(x, y)| (row(x), row(y))));
            }
            Ok(())
        }
    }

    /// Rows of trajectories with these lengths, whose times have gaps, in batches of some size. The
    /// coordinate of a row is its number.
    fn collected(lengths: &[usize], lags: &[Step], rules: TimeRules, batch: usize) -> Collected {
        let field = |name| Field::new(name, DataType::Int64, false);
        let layout = PointLayout {
            partition: Vec::new(),
            key: vec![field("id"), field("t")],
            roles: PointRoles::Pairs {
                lags: lags.to_vec(),
                strided: false,
                rules,
            },
            coordinates: vec![field("x")],
            scale: Scale::None,
            weight: None,
            given: Vec::new(),
        };
        let ids: Vec<u64> = (0..lengths.len())
            .flat_map(|id| std::iter::repeat_n(id as u64, lengths[id]))
            .collect();
        let mut blocks = Blocks::new(&layout, &[2.0], Collected::default());
        for first in (0..ids.len()).step_by(batch) {
            let rows = first..ids.len().min(first + batch);
            let own = &ids[rows.clone()];
            let mut trajectories = Vec::new();
            for (at, run) in own.chunk_by(|a, b| a == b).scan(0, |at, run| {
                *at += run.len();
                Some((*at - run.len(), run))
            }) {
                trajectories.push(at..at + run.len());
            }
            let points = PointBatch {
                partition: Vec::new(),
                key: Vec::new(),
                partitions: vec![(0..own.len(), 0)],
                trajectories,
                hashes: rows.clone().map(|row| row as u64).collect(),
                trajectory_hashes: own.to_vec(),
                times: rows.clone().map(time).collect(),
                dimension: 1,
                coordinates: rows.clone().map(|row| row as f64).collect(),
                weights: None,
                given: Vec::new(),
                continues: first > 0 && ids[first - 1] == ids[first],
            };
            blocks.push(&layout, &points).expect("ordered rows");
        }
        blocks.finish().expect("ordered rows")
    }

    /// Every tenth time is missing.
    fn time(row: usize) -> i64 {
        (row + row / 9) as i64
    }

    #[test]
    fn pairs_of_any_lag_are_found_once_in_any_batches() {
        let lengths = [3, 1, 30_000, 7, 9_000];
        let lags = [Step::Ticks(1), Step::Rows(4), Step::Ticks(10_000)];
        let mut ends = vec![0];
        lengths
            .iter()
            .for_each(|n| ends.push(ends[ends.len() - 1] + n));
        let same = |a: usize, b: usize| {
            ends.iter()
                .filter(|end| **end > a)
                .eq(ends.iter().filter(|end| **end > b))
        };
        let all = ends[ends.len() - 1];
        let by_time: std::collections::BTreeMap<i64, usize> =
            (0..all).map(|row| (time(row), row)).collect();
        let expected = |lag: &Step| -> BTreeSet<(i64, i64)> {
            (0..all)
                .filter_map(|row| {
                    let to = match *lag {
                        Step::Rows(n) => Some(row + n).filter(|to| *to < all),
                        Step::Ticks(ticks) => by_time.get(&(time(row) + ticks)).copied(),
                    };
                    to.filter(|to| same(row, *to))
                        .map(|to| (row as i64, to as i64))
                })
                .collect()
        };
        for batch in [1000, 16_384, 1 << 30] {
            let found = collected(&lengths, &lags, TimeRules::default(), batch);
            for (pairs, lag) in found.pairs.iter().zip(&lags) {
                let distinct: BTreeSet<_> = pairs.iter().copied().collect();
                assert_eq!(distinct.len(), pairs.len());
                assert!(distinct == expected(lag), "{lag:?} in batches of {batch}");
            }
            assert!(found.largest < 40_000, "{}", found.largest);
        }
    }

    #[test]
    fn the_nearest_row_is_found_once_in_any_batches() {
        let lengths = [20_000, 5, 9_000];
        let lags = [Step::Ticks(11), Step::Ticks(10_001)];
        let rules = TimeRules {
            tolerance: Some(1),
            ..TimeRules::default()
        };
        // A missing time is between two others, of which the earlier one is as near.
        let mut expected = vec![BTreeSet::new(), BTreeSet::new()];
        let mut first = 0;
        for length in lengths {
            let own = first..first + length;
            let by_time: std::collections::BTreeMap<i64, usize> =
                own.clone().map(|row| (time(row), row)).collect();
            for (pairs, ticks) in expected.iter_mut().zip([11, 10_001]) {
                let near = |row: usize| {
                    let wanted = time(row) + ticks;
                    let mut times = [wanted, wanted - 1, wanted + 1].into_iter();
                    times.find_map(|time| by_time.get(&time))
                };
                let found = own.clone().filter_map(|row| Some((row, *near(row)?)));
                pairs.extend(found.map(|(row, to)| (row as i64, to as i64)));
            }
            first = own.end;
        }
        for batch in [700, 16_384, 1 << 30] {
            let found = collected(&lengths, &lags, rules.clone(), batch);
            for (pairs, expected) in found.pairs.iter().zip(&expected) {
                let distinct: BTreeSet<_> = pairs.iter().copied().collect();
                assert_eq!(distinct.len(), pairs.len());
                assert!(distinct == *expected, "in batches of {batch}");
            }
        }
    }
}
