//! Transition counts: sparse matrices, shards, groups and connected sets.

pub(crate) mod connected;
pub mod csr;
pub mod groups;
pub mod matrix;
pub mod products;
pub(crate) mod set_sums;
pub mod shards;
pub mod totals;

use crate::error::{Error, Result};
use crate::evidence::counts::csr::Values;
use crate::evidence::counts::groups::Resampled;
use crate::evidence::counts::shards::Shards;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// States and non-zeros of one model: exact numbers or upper bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Number of source states.
    pub sources: u64,
    /// Number of target states.
    pub targets: u64,
    /// Number of non-zeros.
    pub nonzeros: u64,
}

impl Size {
    /// Bytes of a dense factor of `states` rows and `rank` columns, in rows of whole cache lines.
    pub(crate) fn factor(&self, states: u64, rank: usize) -> u64 {
        states.saturating_mul((rank as u64).next_multiple_of(8) * 8)
    }
}

/// Non-zeros per shard of counts that are made by [`Counts::from_triples`].
const SHARD_NNZ: usize = 1 << 18;

/// Transition counts of one partition and lag as methods see them: the matrix, and what is known of
/// its states.
#[derive(Debug, Clone)]
pub struct Counts<'a> {
    /// The matrix.
    pub shards: Cow<'a, Shards>,
    /// The target that is the same state as each source, if there is one: n values, or empty if
    /// sources and targets are not states of one kind.
    pub target_of_source: Vec<Option<u32>>,
    /// The source that is the same state as each target, if there is one: m values, or empty.
    pub source_of_target: Vec<Option<u32>>,
    /// Partitions of the sources that the input has.
    pub given: Vec<Given>,
}

/// A partition of the sources that the input has.
#[derive(Debug, Clone)]
pub struct Given {
    /// Its column.
    pub name: String,
    /// The set of every source: n values below `rank`.
    pub sets: Vec<u32>,
    /// The number of sets.
    pub rank: usize,
}

impl Counts<'static> {
    /// Counts of `n_sources` sources and `n_targets` targets from triples of source, target and
    /// count. Triples of one pair add up. Sources and targets are states apart.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if a state is out of range, a source or a target
    /// has no count, or a pair has a total of 2³² or more.
    pub fn from_triples(
        n_sources: usize,
        n_targets: usize,
        triples: impl IntoIterator<Item = (u32, u32, u64)>,
    ) -> Result<Self> {
        let mut sums = BTreeMap::<_, u64>::new();
        for (source, target, count) in triples {
            let sum = sums.entry((source, target)).or_default();
            *sum = sum.saturating_add(count);
        }
        sums.retain(|_, count| *count > 0);
        let (sources, targets): (Vec<u32>, Vec<u32>) = sums.keys().copied().unzip();
        all_occur("source", &sources, n_sources)?;
        all_occur("target", &targets, n_targets)?;
        if let Some(((j, i), count)) = sums.iter().find(|(_, n)| **n > u64::from(u32::MAX)) {
            return Err(Error::input(format!(
                "source {j} and target {i} have a count of {count}, and 2^32 is too large; divide all counts by one number"
            )));
        }
        let values = Values::of_integers(sums.values().map(|&count| count as f64).collect());
        Ok(Counts {
            shards: Cow::Owned(Shards::new(
                n_sources, n_targets, &sources, &targets, values, SHARD_NNZ,
            )),
            target_of_source: Vec::new(),
            source_of_target: Vec::new(),
            given: Vec::new(),
        })
    }
}

/// An error unless `states` holds the numbers below `n`, and no others.
fn all_occur(side: &str, states: &[u32], n: usize) -> Result<()> {
    let mut occurs = vec![false; n];
    for &state in states {
        let Some(occurs) = occurs.get_mut(state as usize) else {
            return Err(Error::input(format!(
                "{side} {state} is out of range: there are {n} {side}s, numbered from 0"
            )));
        };
        *occurs = true;
    }
    match occurs.iter().position(|occurs| !occurs) {
        Some(missing) => Err(Error::input(format!(
            "{side} {missing} has no count; number the {side}s that have counts from 0"
        ))),
        None => Ok(()),
    }
}

impl<'a> Counts<'a> {
    /// Counts of states apart, without given partitions.
    pub fn of(shards: &'a Shards) -> Self {
        Counts {
            shards: Cow::Borrowed(shards),
            target_of_source: Vec::new(),
            source_of_target: Vec::new(),
            given: Vec::new(),
        }
    }

    /// The same with a given partition of the sources into `rank` sets.
    pub fn with_given(mut self, name: &str, sets: Vec<u32>, rank: usize) -> Self {
        self.given.push(Given {
            name: name.into(),
            sets,
            rank,
        });
        self
    }

    /// The same with states of one kind: source j is target `target_of_source[j]`, if it is one.
    pub fn with_targets(mut self, target_of_source: Vec<Option<u32>>) -> Self {
        let mut source_of_target = vec![None; self.shards.n_targets];
        for (j, target) in (0..).zip(&target_of_source) {
            if let Some(target) = target {
                source_of_target[*target as usize] = Some(j);
            }
        }
        (self.target_of_source, self.source_of_target) = (target_of_source, source_of_target);
        self
    }

    /// The counts of a resample, with what is known of its states.
    pub(crate) fn of_resample<'b>(&self, resampled: &'b Resampled) -> Counts<'b> {
        let (sources, targets) = (&resampled.sources, &resampled.targets);
        let place =
            |states: &[u32], whole: u32| states.binary_search(&whole).ok().map(|at| at as u32);
        let mapped = |own: &[u32], others: &[u32], map: &[Option<u32>]| {
            if map.is_empty() {
                return Vec::new();
            }
            let states = own.iter();
            states
                .map(|&state| place(others, map[state as usize]?))
                .collect()
        };
        Counts {
            shards: Cow::Borrowed(&resampled.shards),
            target_of_source: mapped(sources, targets, &self.target_of_source),
            source_of_target: mapped(targets, sources, &self.source_of_target),
            given: (self.given.iter())
                .map(|given| Given {
                    sets: sources.iter().map(|&j| given.sets[j as usize]).collect(),
                    ..given.clone()
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_that_are_no_counts_are_refused() {
        let most = u64::from(u32::MAX);
        for (triples, message) in [
            (
                vec![(0, 0, 1), (2, 1, 1)],
                "source 2 is out of range: there are 2 sources",
            ),
            (
                vec![(0, 0, 1), (1, 2, 1)],
                "target 2 is out of range: there are 2 targets",
            ),
            (vec![(0, 0, 1), (0, 1, 1)], "source 1 has no count"),
            (
                vec![(0, 0, 1), (1, 0, 1), (1, 1, 0)],
                "target 1 has no count",
            ),
            (
                vec![(0, 0, most), (0, 0, 1), (1, 1, 1)],
                "source 0 and target 0 have a count of 4294967296",
            ),
            (
                vec![(0, 0, 1), (1, 1, u64::MAX), (1, 1, 1)],
                "source 1 and target 1 have a count of 18446744073709551615",
            ),
        ] {
            let error = Counts::from_triples(2, 2, triples).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let counts = Counts::from_triples(2, 2, [(0, 0, most - 1), (1, 1, 1), (0, 0, 1)]);
        assert_eq!(counts.expect("counts").shards.total, most as f64 + 1.0);
    }
}
