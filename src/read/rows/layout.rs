//! Which columns of the rows hold trajectory, time, state, weight and group.

use crate::evidence::lag::Step;
pub(crate) use crate::read::rows::numbered::schema;
use crate::read::rows::states::StateColumns;
use crate::read::rows::tag::Tag;
use crate::read::rows::ties::Resolver;
use crate::read::rows::time_rules::{OpenPairs, TimeRules, TimeSteps};
use arrow::datatypes::{Field, SchemaRef};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::slice;

/// The columns that counting reads, in the order of the columns of a batch: partition keys, the
/// columns of the evidence, the given partitions, the columns that identify groups, the second
/// column of time.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Partition keys.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    /// The columns that pairs are made of.
    pub evidence: RowRoles,
    /// Columns that name the set of the row's source state.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub given: Vec<Field>,
    /// How counts are split by group, if they are.
    pub grouping: Option<Grouping>,
    /// Sources and targets of pairs are states of one kind with common ids. Always true for
    /// trajectories. Square methods, Markov tests and `connected` need it.
    pub one_label_set: bool,
    /// Keep only the largest strongly connected set of every matrix; needs one label set.
    pub connected: bool,
    /// How the times of trajectories are read.
    pub(crate) rules: TimeRules,
}

/// Rules are shown if there are some: ledgers keep a hash of this text, and layouts without rules
/// have the text that they had before there were rules.
impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Layout");
        shown
            .field("partition", &self.partition)
            .field("evidence", &self.evidence)
            .field("given", &self.given)
            .field("grouping", &self.grouping)
            .field("one_label_set", &self.one_label_set)
            .field("connected", &self.connected);
        if !self.rules.is_default() {
            shown.field("rules", &self.rules);
        }
        shown.finish()
    }
}

/// What is resampled: rows that are equal in the columns `by` stay together, and there are at most
/// `most` groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    /// Most groups.
    pub most: usize,
    /// Empty for pairs whose transitions are resampled one by one.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub by: Vec<Field>,
}

/// The columns that pairs are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RowRoles {
    /// Columns: trajectory keys, time, state, weight (if there is one).
    Trajectories {
        /// The trajectory keys; empty if each partition is one trajectory.
        #[serde(with = "crate::read::rows::ipc::fields")]
        trajectory: Vec<Field>,
        /// The time of a row.
        #[serde(with = "crate::read::rows::ipc::field")]
        time: Field,
        /// The state of a row.
        state: StateColumns,
        /// The weight of the pairs that a row starts; without it each pair counts 1.
        #[serde(with = "crate::read::rows::ipc::maybe_field")]
        weight: Option<Field>,
        /// The lags, one matrix per partition each.
        lags: Vec<Step>,
        /// Whether pairs start only at multiples of each lag.
        strided: bool,
        /// Divisor of the counts of each lag, applied after counting; empty for plain counts.
        overlap: Vec<u64>,
    },
    /// Columns: trajectory keys, time, symbol, weight (if there is one), split (if there is one).
    ///
    /// A window is `2 * block + 1` rows of a trajectory, each of which follows the one before it:
    /// `block` symbols of the past, one symbol, and `block` symbols of the future.
    Windows {
        /// The trajectory keys; empty if each partition is one trajectory.
        #[serde(with = "crate::read::rows::ipc::fields")]
        trajectory: Vec<Field>,
        /// The time of a row.
        #[serde(with = "crate::read::rows::ipc::field")]
        time: Field,
        /// The symbol of a row.
        symbol: StateColumns,
        /// The weight of the windows that a row starts; without it each window counts 1.
        #[serde(with = "crate::read::rows::ipc::maybe_field")]
        weight: Option<Field>,
        /// If there is such a column, only its rows `'train'` are counted.
        #[serde(with = "crate::read::rows::ipc::maybe_field")]
        split: Option<Field>,
        /// The step from a row to the row that follows it.
        step: Step,
        /// Symbols of the past and of the future.
        block: usize,
        /// Count only the window that starts with the first row of a trajectory.
        first: bool,
    },
    /// Columns: source, target, measure (unless each row counts 1).
    Pairs {
        /// The state at the start of a pair.
        source: StateColumns,
        /// The state at the end of a pair.
        target: StateColumns,
        /// How much a row counts.
        measure: Measure,
    },
}

/// How much a row of pairs counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Measure {
    /// Each row counts 1.
    One,
    /// A column of counts ≥ 0.
    Count(#[serde(with = "crate::read::rows::ipc::field")] Field),
    /// A column of finite weights ≥ 0.
    Weight(#[serde(with = "crate::read::rows::ipc::field")] Field),
}

/// The columns of rows that belong to trajectories.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrajectoryRows<'a> {
    /// The trajectory keys; empty if each partition is one trajectory.
    pub trajectory: &'a [Field],
    /// The time of a row.
    pub time: &'a Field,
    /// The state or the symbol of a row.
    pub state: &'a StateColumns,
    /// The weight of a row.
    pub weight: Option<&'a Field>,
    /// Whether a row is counted.
    pub split: Option<&'a Field>,
}

impl RowRoles {
    /// The columns of trajectories. None for pairs.
    pub(crate) fn trajectories(&self) -> Option<TrajectoryRows<'_>> {
        match self {
            RowRoles::Trajectories {
                trajectory,
                time,
                state,
                weight,
                ..
            } => Some(TrajectoryRows {
                trajectory,
                time,
                state,
                weight: weight.as_ref(),
                split: None,
            }),
            RowRoles::Windows {
                trajectory,
                time,
                symbol,
                weight,
                split,
                ..
            } => Some(TrajectoryRows {
                trajectory,
                time,
                state: symbol,
                weight: weight.as_ref(),
                split: split.as_ref(),
            }),
            RowRoles::Pairs { .. } => None,
        }
    }

    /// The columns of the sources and of the targets of what is counted.
    pub(crate) fn states(&self) -> (Cow<'_, StateColumns>, Cow<'_, StateColumns>) {
        match self {
            RowRoles::Trajectories { state, .. } => (Cow::Borrowed(state), Cow::Borrowed(state)),
            RowRoles::Pairs { source, target, .. } => {
                (Cow::Borrowed(source), Cow::Borrowed(target))
            }
            RowRoles::Windows { symbol, block, .. } => (
                Cow::Owned(symbol.word(0..block + 1)),
                Cow::Owned(symbol.word(block + 1..2 * block + 1)),
            ),
        }
    }

    /// The column of weights, if pairs have weights.
    pub(crate) fn weight(&self) -> Option<&Field> {
        match self {
            RowRoles::Trajectories { weight, .. } | RowRoles::Windows { weight, .. } => {
                weight.as_ref()
            }
            RowRoles::Pairs { measure, .. } => match measure {
                Measure::Weight(field) => Some(field),
                Measure::One | Measure::Count(_) => None,
            },
        }
    }

    /// Divisor of the counts of a lag; 1 for plain counts.
    pub(crate) fn overlap(&self, lag: usize) -> u64 {
        match self {
            RowRoles::Trajectories { overlap, .. } => overlap.get(lag).copied().unwrap_or(1),
            RowRoles::Windows { .. } | RowRoles::Pairs { .. } => 1,
        }
    }
}

impl Layout {
    /// Every column, in order.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let mut fields = self.partition.clone();
        if let Some(rows) = self.evidence.trajectories() {
            fields.extend(rows.trajectory.iter().cloned());
            fields.push(rows.time.clone());
            fields.extend(rows.state.input_fields());
            fields.extend(rows.weight.cloned());
            fields.extend(rows.split.cloned());
        }
        if let RowRoles::Pairs {
            source,
            target,
            measure,
        } = &self.evidence
        {
            fields.extend(source.input_fields());
            fields.extend(target.input_fields());
            if let Measure::Count(field) | Measure::Weight(field) = measure {
                fields.push(field.clone());
            }
        }
        fields.extend(self.given.iter().cloned());
        fields.extend(self.grouping.iter().flat_map(|g| g.by.iter().cloned()));
        fields.extend(self.rules.order.clone());
        fields
    }

    /// The positions and names of the coordinates that are cut into boxes.
    pub(crate) fn bins(&self) -> Vec<(usize, &str)> {
        let Some(rows) = self.evidence.trajectories() else {
            return Vec::new();
        };
        let keys = rows.trajectory.len() + 1 + rows.state.keys.len();
        let bins = rows.state.bins.iter().enumerate();
        let start = self.partition.len() + keys;
        bins.map(|(at, bin)| (start + at, bin.name.as_str()))
            .collect()
    }

    /// The positions of coordinates and weights, which are rounded to doubles.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        let mut at = self.partition.len();
        let mut numbers = Vec::new();
        let of_state = |at: &mut usize, state: &StateColumns, numbers: &mut Vec<usize>| {
            numbers.extend(*at + state.keys.len()..*at + state.len());
            *at += state.len();
        };
        if let Some(rows) = self.evidence.trajectories() {
            at += rows.trajectory.len() + 1;
            of_state(&mut at, rows.state, &mut numbers);
        }
        if let RowRoles::Pairs { source, target, .. } = &self.evidence {
            of_state(&mut at, source, &mut numbers);
            of_state(&mut at, target, &mut numbers);
        }
        numbers.extend(self.evidence.weight().map(|_| at));
        numbers
    }

    /// The columns of a query for this layout, named by position because a column may be requested
    /// twice.
    pub(crate) fn numbered(&self) -> SchemaRef {
        schema(&self.fields())
    }

    /// Number of leading columns that order the rows: partition keys, trajectory keys and time. 0
    /// for pairs.
    pub(crate) fn n_order(&self) -> usize {
        let rows = self.evidence.trajectories();
        rows.map_or(0, |rows| self.partition.len() + rows.trajectory.len() + 1)
    }

    /// The times after which rows make pairs or windows. None for pairs.
    pub(crate) fn time_steps(&self) -> Option<TimeSteps<'_>> {
        let (steps, only_next, may_be_near) = match &self.evidence {
            RowRoles::Trajectories {
                lags,
                strided,
                overlap,
                ..
            } => (lags.as_slice(), false, !strided && overlap.is_empty()),
            RowRoles::Windows { step, .. } => (slice::from_ref(step), true, true),
            RowRoles::Pairs { .. } => return None,
        };
        let mut fields = self.fields();
        fields.truncate(self.n_order());
        Some(TimeSteps {
            fields,
            steps,
            only_next,
            may_be_near,
            rules: &self.rules,
        })
    }

    /// The layout of rows whose ties are resolved: the column that orders them is gone.
    pub(crate) fn resolved(&self) -> Layout {
        Layout {
            rules: self.rules.resolved(),
            ..self.clone()
        }
    }

    /// The same layout for pairs that a later row may change, or for other pairs.
    pub(crate) fn with_open_pairs(&self, open_pairs: OpenPairs) -> Layout {
        Layout {
            rules: self.rules.with_open_pairs(open_pairs),
            ..self.clone()
        }
    }

    /// Whether a later row may change pairs of earlier rows.
    pub(crate) fn has_open_pairs(&self) -> bool {
        let is_of_pairs = matches!(self.evidence, RowRoles::Trajectories { .. });
        is_of_pairs && self.rules.tolerance.is_some()
    }

    /// What leaves out the rows that do not count, if several rows may have one time.
    pub(crate) fn resolver(&self, is_sorted: bool) -> Option<Resolver> {
        let n_partition = self.partition.len();
        Resolver::new(
            self.fields(),
            n_partition,
            self.n_order(),
            &self.rules,
            is_sorted,
        )
    }

    /// The places of the columns that order the rows: partition, trajectory and time, then the
    /// second column of time, if there is one.
    pub(crate) fn order_columns(&self) -> Vec<usize> {
        self.rules
            .order_columns(self.n_order(), self.fields().len())
    }

    /// Number of matrices per partition.
    pub(crate) fn n_lags(&self) -> usize {
        match &self.evidence {
            RowRoles::Trajectories { lags, .. } => lags.len(),
            RowRoles::Windows { .. } | RowRoles::Pairs { .. } => 1,
        }
    }

    /// Whether counts are real numbers.
    pub(crate) fn is_weighted(&self) -> bool {
        let is_divided =
            matches!(&self.evidence, RowRoles::Trajectories { overlap, .. } if !overlap.is_empty());
        self.evidence.weight().is_some() || is_divided
    }

    /// How states carry the group of their rows.
    pub(crate) fn tag(&self) -> Tag {
        self.grouping
            .as_ref()
            .filter(|g| !g.by.is_empty())
            .map_or(Tag::NONE, |g| Tag::for_groups(g.most))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow::datatypes::DataType;

    pub(crate) fn field(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, true)
    }

    pub(crate) fn states(name: &str, data_type: DataType) -> StateColumns {
        StateColumns {
            keys: vec![field(name, data_type)],
            bins: Vec::new(),
        }
    }

    /// A layout of one partition with the given evidence alone.
    pub(crate) fn bare(evidence: RowRoles) -> Layout {
        Layout {
            partition: Vec::new(),
            evidence,
            given: Vec::new(),
            grouping: None,
            one_label_set: false,
            connected: false,
            rules: TimeRules::default(),
        }
    }

    /// Columns: partition `p`, trajectory `id`, time `t`, state `s`; the other two are integers.
    pub(crate) fn trajectories(partition: DataType, state: DataType, lags: &[Step]) -> Layout {
        let evidence = RowRoles::Trajectories {
            trajectory: vec![field("id", DataType::Int64)],
            time: field("t", DataType::Int64),
            state: states("s", state),
            weight: None,
            lags: lags.to_vec(),
            strided: false,
            overlap: Vec::new(),
        };
        Layout {
            partition: vec![field("p", partition)],
            ..bare(evidence)
        }
    }

    /// Groups of whole trajectories.
    pub(crate) fn grouped(layout: Layout, most: usize) -> Layout {
        let by = vec![field("id", DataType::Int64)];
        let grouping = Some(Grouping { most, by });
        Layout { grouping, ..layout }
    }
}
