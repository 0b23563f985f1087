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
pub struct Rows {
    /// State ids, each once.
    pub sources: Vec<u32>,
    /// Source k has the entries `offsets[k]..offsets[k + 1]`.
    pub offsets: Vec<usize>,
    /// State ids of targets, ascending in each row.
    pub columns: Vec<u32>,
    pub values: Values,
    /// Σ of the counts; 0 where they are weights.
    pub total: u128,
}

impl Rows {
    pub fn last_source(&self) -> Option<u32> {
        self.sources.last().copied()
    }

    /// (source, target, count) in order, of counts that are integers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.sources
            .iter()
            .enumerate()
            .flat_map(move |(at, &source)| {
                let row = self.offsets[at]..self.offsets[at + 1];
                row.map(move |at| (source, self.columns[at], self.values.get(at) as u64))
            })
    }

    /// Appends an entry, whose value goes to a list of the caller.
    #[inline(always)]
    pub fn begin(&mut self, source: u32, target: u32) {
        if self.last_source() != Some(source) {
            self.sources.push(source);
            self.offsets.push(self.columns.len());
        }
        self.columns.push(target);
    }

    /// Adds a count to the last entry, or to a new one if it is for another pair.
    #[inline(always)]
    pub fn add(&mut self, source: u32, target: u32, count: u64, counts: &mut Vec<u64>) {
        self.total += u128::from(count);
        let is_same = self.last_source() == Some(source) && self.columns.last() == Some(&target);
        match counts.last_mut().filter(|_| is_same) {
            // A total that no u64 holds is refused before it is used.
            Some(sum) => *sum = sum.saturating_add(count),
            None => {
                self.begin(source, target);
                counts.push(count);
            }
        }
    }

    pub fn with_counts(mut self, counts: &[u64]) -> Rows {
        self.values = match counts.iter().max() {
            Some(0..=0xff) | None => Values::Small(counts.iter().map(|&n| n as u8).collect()),
            Some(0..=0xffff_ffff) => Values::Count(counts.iter().map(|&n| n as u32).collect()),
            Some(_) => Values::Real(counts.iter().map(|&n| n as f64).collect()),
        };
        self.close()
    }

    pub fn with_weights(self, weights: Vec<f64>) -> Rows {
        self.with_values(Values::Real(weights))
    }

    pub fn with_values(mut self, values: Values) -> Rows {
        self.values = values;
        self.close()
    }

    fn close(mut self) -> Rows {
        self.offsets.push(self.columns.len());
        self.columns.shrink_to_fit();
        self
    }
}

/// The counts of one partition and lag over dense numbers of the states that have counts: sources and targets are numbered
/// apart (coherence §3.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountMatrix {
    pub partition: usize,
    pub lag: usize,
    /// The state id of each source and of each target, ascending.
    pub source_states: Vec<u32>,
    pub target_states: Vec<u32>,
    /// Row j holds N_·j: the targets of source j. CountMatrix of one pair above 2³² are kept as `Real`, as weights are.
    pub by_source: Vec<Csr>,
    /// Σ of the counts; 0 where they are weights.
    pub total: u128,
    /// What a transition weighs, as a power of two: weights are fitted in this unit, so that their scale changes no result. 0 for counts.
    pub exponent: i32,
    /// For each given partition, the label of each source; `None` where some source has no label, named by its state id.
    pub given: Vec<Result<Vec<u32>, u32>>,
    /// The same counts told apart by group, where that is asked for.
    pub groups: Option<Groups>,
    /// What was taken out, where one connected set was to be kept.
    pub left_out: Option<LeftOut>,
}

impl CountMatrix {
    pub fn new(partition: usize, lag: usize, pieces: Vec<Rows>) -> CountMatrix {
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
            exponent: 0,
            given: Vec::new(),
            groups: None,
            left_out: None,
        }
    }

    /// Divides every count: they become weights.
    pub fn divide(&mut self, by: u64) {
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

    pub fn nnz(&self) -> usize {
        self.by_source.iter().map(Csr::nnz).sum()
    }

    /// Every count or weight, in the order of sources and targets.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone {
        let shards = self.by_source.iter();
        shards.flat_map(|shard| (0..shard.nnz()).map(move |e| shard.values.get(e)))
    }
}

/// State id → its place among the ids that occur.
enum Places {
    /// All up to the largest one occur.
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

/// The distinct ids in ascending order, and the place of each among them.
fn dense(ids: &[&[u32]]) -> (Vec<u32>, Places) {
    let n: usize = ids.iter().map(|ids| ids.len()).sum();
    let top = ids.par_iter().filter_map(|ids| {
        memory::wait_for_room();
        ids.iter().max()
    });
    let top = top.max().map_or(0, |&top| top as usize);
    if top <= 4 * n + 1024 {
        // A table of all ids is small beside the pairs.
        let occurs: Vec<AtomicBool> = (0..=top).map(|_| AtomicBool::new(false)).collect();
        ids.par_iter().for_each(|ids| {
            memory::wait_for_room();
            for &id in *ids {
                // Most ids have been seen, and reading shares the cache line where writing would not.
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

/// What was taken out of counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Strongly connected sets, that which was kept included.
    pub components: usize,
    pub states: usize,
    /// Σ of the counts or weights.
    pub transitions: f64,
    /// The same, exactly; 0 for weights.
    pub total: u128,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::counts::tally::{Tally, pack};

    #[test]
    fn states_without_counts_get_no_number() {
        // Sources 3 and 9; targets 5, 7 and one that is too large for a table.
        for far in [8, 4_000_000_000] {
            let mut tally = Tally::default();
            for (pair, n) in [
                (pack(9, 7), 4),
                (pack(3, 5), 1),
                (pack(3, far), 2),
                (pack(9, 5), 3),
            ] {
                tally.add_count(pair, n);
            }
            let c = CountMatrix::new(0, 0, Tally::finish(vec![tally]));
            assert_eq!(
                (c.source_states, c.target_states),
                (vec![3, 9], vec![5, 7, far])
            );
            let shard = &c.by_source[0];
            assert_eq!(
                (&shard.offsets[..], &shard.columns[..]),
                (&[0, 2, 4][..], &[0, 2, 0, 1][..])
            );
            assert_eq!(shard.values, Values::Small(vec![1, 2, 3, 4]));
            assert_eq!(c.total, 10);
        }
    }

    #[test]
    fn large_counts_take_more_room() {
        let count = |n: u64| Rows::default().with_counts(&[n]).values;
        assert_eq!(count(255), Values::Small(vec![255]));
        assert_eq!(count(256), Values::Count(vec![256]));
        assert_eq!(count(1 << 32), Values::Real(vec![4294967296.0]));
    }
}
