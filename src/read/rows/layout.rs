//! Which columns of the rows hold trajectory, time, state, weight and group.

use crate::evidence::lag::Step;
use crate::read::rows::states::StateColumns;
use crate::read::rows::tag::Tag;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The columns that counting reads, in the order in which batches must bring them: partition keys, then those of the evidence,
/// then the given partitions, then those that tell groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    pub evidence: Evidence,
    /// Columns that name the set of a row's (source) state.
    #[serde(with = "crate::read::rows::ipc::fields")]
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
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub by: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Evidence {
    /// Columns: trajectory keys, time, state, weight (unless each pair weighs one).
    Trajectories {
        #[serde(with = "crate::read::rows::ipc::fields")]
        trajectory: Vec<Field>,
        #[serde(with = "crate::read::rows::ipc::field")]
        time: Field,
        state: StateColumns,
        /// What the pairs that a row starts weigh.
        #[serde(with = "crate::read::rows::ipc::maybe_field")]
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
    Count(#[serde(with = "crate::read::rows::ipc::field")] Field),
    Weight(#[serde(with = "crate::read::rows::ipc::field")] Field),
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
        crate::read::rows::layout::schema(&self.fields())
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
    pub(crate) fn tag(&self) -> Tag {
        let grouping = self.grouping.as_ref().filter(|g| !g.by.is_empty());
        grouping.map_or(Tag::NONE, |g| Tag::for_groups(g.most))
    }
}

/// Columns by their number, because one may be there twice.
pub(crate) fn schema<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Arc<Schema> {
    let numbered = fields
        .into_iter()
        .enumerate()
        .map(|(at, field)| Field::new(at.to_string(), field.data_type().clone(), true));
    Arc::new(Schema::new(numbered.collect::<Vec<_>>()))
}
