//! Transition counts: sparse matrices, shards, groups and connected sets.

pub mod connected;
pub mod csr;
pub mod groups;
pub mod matrix;
pub mod products;
pub mod set_sums;
pub mod shards;
pub mod totals;

use crate::evidence::counts::csr::Values;
use crate::evidence::counts::groups::Resampled;
use crate::evidence::counts::shards::Shards;
use std::borrow::Cow;

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

/// Non-zeros per shard of counts that are made by [`Counts::from_iter`].
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
    /// # Panics
    /// If a state is out of range, a source or a target has no count, or a pair has a total of 2³²
    /// or more.
    pub fn from_iter(
        n_sources: usize,
        n_targets: usize,
        triples: impl IntoIterator<Item = (u32, u32, u64)>,
    ) -> Self {
        let mut sums = std::collections::BTreeMap::new();
        for (source, target, count) in triples {
            *sums.entry((source, target)).or_insert(0) += count;
        }
        sums.retain(|_, count| *count > 0);
        let (sources, targets): (Vec<u32>, Vec<u32>) = sums.keys().copied().unzip();
        for (side, states, n) in [
            ("source", &sources, n_sources),
            ("target", &targets, n_targets),
        ] {
            let mut occurs = vec![false; n];
            states
                .iter()
                .for_each(|&state| occurs[state as usize] = true);
            let missing = occurs.iter().position(|occurs| !occurs);
            assert_eq!(missing, None, "every {side} needs a count");
        }
        let counts = sums.values().map(|&count| {
            assert!(
                count <= u64::from(u32::MAX),
                "a pair is counted 2^32 times or more"
            );
            count as f64
        });
        let values = Values::of_integers(counts.collect());
        Counts {
            shards: Cow::Owned(Shards::new(
                n_sources, n_targets, &sources, &targets, values, SHARD_NNZ,
            )),
            target_of_source: Vec::new(),
            source_of_target: Vec::new(),
            given: Vec::new(),
        }
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
    pub fn of_resample<'b>(&self, resampled: &'b Resampled) -> Counts<'b> {
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
