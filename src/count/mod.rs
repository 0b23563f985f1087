//! Batches of rows → integer transition counts, one sparse matrix a partition and lag (coherence §3.1).
//!
//! In: batches with the columns of a `Layout` in its order. Out: `Counted`. Each stream of batches has a `Worker`; where one
//! stream ends inside a trajectory and the next goes on with it, `add_up` sews the two together, so that each pair is counted once.
//! Streams are first taken to be ordered by (partition, trajectory, time) as most files are; a row that breaks the order stops
//! the count with `Stop::Unsorted`. The caller then counts again and lets the rows be gathered by trajectory in memory, or sorts them.

mod amounts;
mod connected;
mod deal;
mod finish;
mod follow;
mod gather;
mod groups;
pub(crate) mod ipc;
mod keys;
mod matrix;
mod point;
mod states;
mod tags;
mod tails;
mod tally;
mod time;
mod unit;
mod unite;
mod walk;
mod worker;

pub use connected::LeftOut;
pub use deal::Dealer;
#[cfg(test)]
use finish::finish;
pub use finish::{Sums, add_up};
pub use follow::{Followed, FollowedRow, Follower, Sink, StateNumbers, times};
pub(crate) use keys::Keys;
pub use matrix::Counts;
pub use point::{Point, Weighed};
pub use states::{StateColumns, StateTable, describe, escaped, key_text};
pub use tails::{Spans, Tails};
pub use time::{is_time, show as show_time};
pub use unit::{restore, sums_schema};
pub use unite::{Renamed, unite};
pub use walk::Step;
pub use worker::Worker;

use crate::error::Error;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, SchemaRef};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tags::Tag;

/// Sums of counts are kept in f64 after counting: exact up to here.
pub const LARGEST_TOTAL: u64 = 1 << 53;

/// The columns that counting reads, in the order in which batches must bring them: partition keys, then those of the evidence,
/// then the given partitions, then those that tell groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    #[serde(with = "ipc::fields")]
    pub partition: Vec<Field>,
    pub evidence: Evidence,
    /// Columns that name the set of a row's (source) state.
    #[serde(with = "ipc::fields")]
    pub given: Vec<Field>,
    /// Whether counts are to be told apart by group.
    pub grouping: Option<Grouping>,
    /// Sources and targets of pairs are states of one kind and have common ids, as those of trajectories always do; square methods, Markov
    /// tests and `connected` need it.
    pub one_label_set: bool,
    /// Keep the largest strongly connected set of every matrix alone; needs one label set.
    pub connected: bool,
}

/// What is resampled: rows that are equal in these columns stay together, and so does what falls into one of at most so many groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    pub most: usize,
    /// None for pairs of which every single transition stands for itself.
    #[serde(with = "ipc::fields")]
    pub by: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Evidence {
    /// Columns: trajectory keys, time, state, weight (unless each pair weighs one).
    Trajectories {
        #[serde(with = "ipc::fields")]
        trajectory: Vec<Field>,
        #[serde(with = "ipc::field")]
        time: Field,
        state: StateColumns,
        /// What the pairs that a row starts weigh.
        #[serde(with = "ipc::maybe_field")]
        weight: Option<Field>,
        lags: Vec<Step>,
        strided: bool,
        /// What the counts of each lag are divided by, once they are counted; empty where they stay whole.
        overlap: Vec<u64>,
    },
    /// Columns: source, target, measure (unless each row weighs one).
    Pairs {
        source: StateColumns,
        target: StateColumns,
        measure: Measure,
    },
}

/// What a row of pairs weighs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Measure {
    One,
    Count(#[serde(with = "ipc::field")] Field),
    Weight(#[serde(with = "ipc::field")] Field),
}

impl Evidence {
    /// The column of weights, where pairs have them.
    pub fn weight(&self) -> Option<&Field> {
        match self {
            Evidence::Trajectories { weight, .. } => weight.as_ref(),
            Evidence::Pairs { measure, .. } => match measure {
                Measure::Weight(field) => Some(field),
                Measure::One | Measure::Count(_) => None,
            },
        }
    }

    /// What the counts of a lag are divided by; 1 where they stay whole.
    pub fn overlap(&self, lag: usize) -> u64 {
        match self {
            Evidence::Trajectories { overlap, .. } => overlap.get(lag).copied().unwrap_or(1),
            Evidence::Pairs { .. } => 1,
        }
    }
}

impl Layout {
    /// Every column in order.
    pub fn fields(&self) -> Vec<Field> {
        let state = |s: &StateColumns| {
            let bins = s
                .bins
                .iter()
                .map(|(name, _)| Field::new(name, DataType::Float64, true));
            s.keys.iter().cloned().chain(bins).collect::<Vec<_>>()
        };
        let mut fields = self.partition.clone();
        match &self.evidence {
            Evidence::Trajectories {
                trajectory,
                time,
                state: s,
                weight,
                ..
            } => {
                fields.extend(trajectory.iter().cloned());
                fields.push(time.clone());
                fields.extend(state(s));
                fields.extend(weight.clone());
            }
            Evidence::Pairs {
                source,
                target,
                measure,
            } => {
                fields.extend(state(source));
                fields.extend(state(target));
                if let Measure::Count(field) | Measure::Weight(field) = measure {
                    fields.push(field.clone());
                }
            }
        }
        fields.extend(self.given.iter().cloned());
        fields.extend(self.grouping.iter().flat_map(|g| g.by.iter().cloned()));
        fields
    }

    /// The columns as a query of them brings them: by number, because one may be asked for twice.
    pub fn numbered(&self) -> SchemaRef {
        tails::schema(&self.fields())
    }

    /// How many leading columns order the rows: partition keys, trajectory keys and time.
    pub fn n_order(&self) -> usize {
        match &self.evidence {
            Evidence::Trajectories { trajectory, .. } => {
                self.partition.len() + trajectory.len() + 1
            }
            Evidence::Pairs { .. } => 0,
        }
    }

    /// Number of matrices a partition has.
    pub fn n_lags(&self) -> usize {
        match &self.evidence {
            Evidence::Trajectories { lags, .. } => lags.len(),
            Evidence::Pairs { .. } => 1,
        }
    }

    /// Whether counts are real numbers.
    pub fn is_weighted(&self) -> bool {
        let is_divided =
            matches!(&self.evidence, Evidence::Trajectories { overlap, .. } if !overlap.is_empty());
        self.evidence.weight().is_some() || is_divided
    }

    /// How states carry the group of their rows.
    fn tag(&self) -> Tag {
        let grouping = self.grouping.as_ref().filter(|g| !g.by.is_empty());
        grouping.map_or(Tag::NONE, |g| Tag::for_groups(g.most))
    }
}

/// Rows that could not be an end of a transition, or weigh nothing, by reason.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped(pub BTreeMap<Cow<'static, str>, u64>);

impl Dropped {
    pub(crate) fn add(&mut self, reason: impl Into<Cow<'static, str>>, rows: u64) {
        if rows > 0 {
            *self.0.entry(reason.into()).or_default() += rows;
        }
    }

    /// Takes back rows that were added for a reason.
    fn subtract(&mut self, reason: &str, rows: u64) {
        if let Some(all) = self.0.get_mut(reason) {
            *all -= rows;
        }
        self.0.retain(|_, rows| *rows > 0);
    }
}

/// Why a count stopped.
#[derive(Debug)]
pub enum Stop {
    /// Rows are not ordered by (partition, trajectory, time): gather or sort them and count again.
    Unsorted,
    /// There are more rows than may be gathered: sort them and count again.
    TooManyRows,
    /// Integer states are no small ids: look them up and count again.
    WideStates,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

/// How to read the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub order: Order,
    /// Integer states are taken as ids.
    pub direct: bool,
}

/// What is known of the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They seem to be ordered by (partition, trajectory, time), each stream for itself.
    Assumed,
    /// They may come in any order: each stream holds up to so many bytes of them until its end.
    Any { bytes: usize },
    /// The rows of all streams are ordered, by sorting.
    Sorted,
}

/// All transition counts of a run.
#[derive(Serialize, Deserialize)]
pub struct Counted {
    /// The partition keys of partition 0, 1, … as columns, ascending; no columns without `partition_by`, and then one partition.
    #[serde(with = "ipc::arrays")]
    pub partitions: Vec<ArrayRef>,
    pub n_partitions: usize,
    pub sources: StateTable,
    pub targets: StateTable,
    /// One matrix a partition and lag, ordered by partition, then lag; empty ones included.
    pub counts: Vec<Counts>,
    /// For each given partition, its labels in ascending order: label k is set k.
    #[serde(with = "ipc::arrays")]
    pub labels: Vec<ArrayRef>,
    pub rows: u64,
    pub dropped: Dropped,
}
