//! Sorted counts of one partition and lag → a count matrix over the states that occur in it.

use crate::evidence::counts::csr::{Csr, Values};
use crate::evidence::counts::groups::Groups;
use crate::memory;
use hashbrown::HashMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// Some rows of a count matrix: ascending sources, each with its targets by state id.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MatrixRows {
    /// State ids, each once.
    pub sources: Vec<u32>,
    /// Source k has the entries `offsets[k]..offsets[k + 1]`.
    pub offsets: Vec<usize>,
    /// State ids of targets, ascending in each row.
    pub columns: Vec<u32>,
    /// The value of every entry.
    pub values: Values,
    /// Σ of the counts, or 0 for weights.
    pub total: u128,
}

impl MatrixRows {
    /// The last source, if there is one.
    pub(crate) fn last_source(&self) -> Option<u32> {
        self.sources.last().copied()
    }

    /// Source, target and count of every entry, for integer counts.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.sources
            .iter()
            .enumerate()
            .flat_map(move |(at, &source)| {
                let row = self.offsets[at]..self.offsets[at + 1];
                row.map(move |at| (source, self.columns[at], self.values.get(at) as u64))
            })
    }

    /// Appends an entry without a value, which the caller keeps.
    #[inline(always)]
    pub(crate) fn begin(&mut self, source: u32, target: u32) {
        if self.last_source() != Some(source) {
            self.sources.push(source);
            self.offsets.push(self.columns.len());
        }
        self.columns.push(target);
    }

    /// Adds a count to the last entry, or to a new one if it is for another pair.
    #[inline(always)]
    pub(crate) fn add(&mut self, source: u32, target: u32, count: u64, counts: &mut Vec<u64>) {
        self.total += u128::from(count);
        let is_same = self.last_source() == Some(source) && self.columns.last() == Some(&target);
        match counts.last_mut().filter(|_| is_same) {
            // A total that exceeds u64 is an error before the sum is used.
            Some(sum) => *sum = sum.saturating_add(count),
            None => {
                self.begin(source, target);
                counts.push(count);
            }
        }
    }

    /// Adds the counts of all entries, in as few bytes as they need.
    pub(crate) fn with_counts(mut self, counts: &[u64]) -> MatrixRows {
        self.values = match counts.iter().max() {
            Some(0..=0xff) | None => Values::Small(counts.iter().map(|&n| n as u8).collect()),
            Some(0..=0xffff_ffff) => Values::Count(counts.iter().map(|&n| n as u32).collect()),
            Some(_) => Values::Real(counts.iter().map(|&n| n as f64).collect()),
        };
        self.close()
    }

    /// Adds the weights of all entries.
    pub(crate) fn with_weights(self, weights: Vec<f64>) -> MatrixRows {
        self.with_values(Values::Real(weights))
    }

    /// Adds the values of all entries.
    pub(crate) fn with_values(mut self, values: Values) -> MatrixRows {
        self.values = values;
        self.close()
    }

    fn close(mut self) -> MatrixRows {
        self.offsets.push(self.columns.len());
        self.columns.shrink_to_fit();
        self
    }
}

/// The counts of one partition and lag over the states that have counts. Sources and targets are
/// numbered separately, without gaps (coherence §3.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountMatrix {
    /// Number of the partition.
    pub partition: usize,
    /// Index of the lag.
    pub lag: usize,
    /// The ID of each source state, ascending.
    pub source_states: Vec<u32>,
    /// The ID of each target state, ascending.
    pub target_states: Vec<u32>,
    /// Row j holds N_·j, the targets of source j. Counts from 2³² on are `Real`, as weights are.
    pub by_source: Vec<Csr>,
    /// Σ of the counts, or 0 for weights.
    pub total: u128,
    /// (Σ w)² / Σ w² over the windows of sequences with weights: the number of equal weights
    /// with as much noise.
    pub effective: Option<f64>,
    /// log₂ of the unit in which weights are fitted, so that their scale changes no result. 0 for
    /// counts.
    pub exponent: i32,
    /// For each given partition, the label of each source, or the ID of a source without a label.
    pub given: Vec<Result<Vec<u32>, u32>>,
    /// The same counts per resample group, if the plan needs them.
    pub groups: Option<Groups>,
    /// What was removed, if only the largest connected set is kept.
    pub left_out: Option<LeftOut>,
}

impl CountMatrix {
    /// Σ of the counts that were read, also outside of the largest connected set. 0 for weights.
    pub(crate) fn accepted(&self) -> u128 {
        self.total + self.left_out.as_ref().map_or(0, |left_out| left_out.total)
    }

    /// The counts in some rows, in ascending order of sources.
    pub(crate) fn new(partition: usize, lag: usize, pieces: Vec<MatrixRows>) -> CountMatrix {
        let total = pieces.iter().map(|rows| rows.total).sum();
        let columns: Vec<&[u32]> = pieces.iter().map(|rows| &rows.columns[..]).collect();
        let (target_states, places) = dense(&columns);
        let mut source_states =
            Vec::with_capacity(pieces.iter().map(|rows| rows.sources.len()).sum());
        let mut by_source = Vec::with_capacity(pieces.len());
        for rows in pieces.into_iter().filter(|rows| !rows.sources.is_empty()) {
            by_source.push(Csr {
                first_row: source_states.len(),
                offsets: rows.offsets,
                columns: rows.columns,
                values: rows.values,
            });
            source_states.extend_from_slice(&rows.sources);
        }
        if !matches!(places, Places::Same) {
            by_source.par_iter_mut().for_each(|shard| {
                memory::wait_for_room();
                shard.columns.iter_mut().for_each(|id| *id = places.of(*id));
            });
        }
        CountMatrix {
            partition,
            lag,
            source_states,
            target_states,
            by_source,
            total,
            effective: None,
            exponent: 0,
            given: Vec::new(),
            groups: None,
            left_out: None,
        }
    }

    /// Divides every count. The counts become weights.
    pub(crate) fn divide(&mut self, by: u64) {
        let by = by as f64;
        for shard in &mut self.by_source {
            memory::wait_for_room();
            shard.values = shard.values.divided(by);
        }
        if let Some(groups) = &mut self.groups {
            groups.divide(by);
        }
        self.total = 0;
        if let Some(left_out) = &mut self.left_out {
            left_out.transitions /= by;
            left_out.total = 0;
        }
    }

    /// The number of non-zeros.
    pub fn nnz(&self) -> usize {
        self.by_source.iter().map(Csr::nnz).sum()
    }

    /// Every count or weight, in the order of sources and targets.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        let shards = self.by_source.iter();
        shards.flat_map(|shard| (0..shard.nnz()).map(move |e| shard.values.get(e)))
    }
}

/// State ID → its index among the IDs that occur.
enum Places {
    /// All IDs up to the largest one occur.
    Same,
    Table(Vec<u32>),
    Map(HashMap<u32, u32>),
}

impl Places {
    fn of(&self, id: u32) -> u32 {
        match self {
            Places::Same => id,
            Places::Table(table) => table[id as usize],
            Places::Map(map) => map[&id],
        }
    }
}

/// The distinct IDs in ascending order, and the index of each.
fn dense(ids: &[&[u32]]) -> (Vec<u32>, Places) {
    let n: usize = ids.iter().map(|ids| ids.len()).sum();
    let top = ids.par_iter().filter_map(|ids| {
        memory::wait_for_room();
        ids.iter().max()
    });
    let top = top.max().map_or(0, |&top| top as usize);
    if top <= 4 * n + 1024 {
        // A table of all IDs is small compared with the pairs.
        let occurs: Vec<AtomicBool> = (0..=top).map(|_| AtomicBool::new(false)).collect();
        ids.par_iter().for_each(|ids| {
            memory::wait_for_room();
            for &id in *ids {
                // Most IDs were seen before, and a read leaves the cache line shared.
                if !occurs[id as usize].load(Ordering::Relaxed) {
                    occurs[id as usize].store(true, Ordering::Relaxed);
                }
            }
        });
        let mut distinct = Vec::new();
        let mut table = vec![u32::MAX; if n == 0 { 0 } else { top + 1 }];
        for (id, place) in table.iter_mut().enumerate() {
            if occurs[id].load(Ordering::Relaxed) {
                *place = distinct.len() as u32;
                distinct.push(id as u32);
            }
        }
        let places = if distinct.len() == table.len() {
            Places::Same
        } else {
            Places::Table(table)
        };
        return (distinct, places);
    }
    let mut distinct: Vec<u32> = ids.concat();
    distinct.par_sort_unstable();
    distinct.dedup();
    let places = distinct
        .iter()
        .enumerate()
        .map(|(at, &id)| (id, at as u32))
        .collect();
    (distinct, Places::Map(places))
}

/// What was removed from counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of strongly connected sets, including the kept one.
    pub components: usize,
    /// Number of removed states.
    pub states: usize,
    /// Σ of the removed counts or weights.
    pub transitions: f64,
    /// `transitions` as an integer; 0 for weights.
    pub total: u128,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::counts::tally::{Tally, pack};

    #[test]
    fn states_without_counts_get_no_number() {
        // Sources 3 and 9; targets 5, 7 and an ID that is too large for a table.
        for far in [8, 4_000_000_000] {
            let mut tally = Tally::default();
            for (source, target, n) in [(9, 7, 4), (3, 5, 1), (3, far, 2), (9, 5, 3)] {
                tally.add_count(pack(source, target), n);
            }
            let c = CountMatrix::new(0, 0, Tally::finish(vec![tally]));
            assert_eq!(c.source_states, [3, 9]);
            assert_eq!(c.target_states, [5, 7, far]);
            let shard = &c.by_source[0];
            assert_eq!(shard.offsets, [0, 2, 4]);
            assert_eq!(shard.columns, [0, 2, 0, 1]);
            assert_eq!(shard.values, Values::Small(vec![1, 2, 3, 4]));
            assert_eq!(c.total, 10);
        }
    }

    #[test]
    fn large_counts_take_more_bytes() {
        let count = |n: u64| MatrixRows::default().with_counts(&[n]).values;
        assert_eq!(count(255), Values::Small(vec![255]));
        assert_eq!(count(256), Values::Count(vec![256]));
        assert_eq!(count(1 << 32), Values::Real(vec![4294967296.0]));
    }
}
