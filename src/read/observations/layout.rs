//! Which columns of the rows hold the key, the state, the observation and the split of a row.

use crate::error::Result;
use crate::evidence::lag::Step;
use crate::read::lake::rounding::selected;
use crate::read::rows::layout;
use crate::read::rows::ties::Resolver;
use crate::read::rows::time_rules::{TimeRules, TimeSteps};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::slice;

/// The columns that are read of states and observations, in the order of the columns of a batch:
/// partition keys, the key of a row, state, observation, split, the second column of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ObservationLayout {
    /// Partition keys.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    /// The columns that identify a row.
    pub key: ObservationKey,
    /// The state: columns of numbers, or a single column of lists. Empty if no state is known.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub state: Vec<Field>,
    /// The observation: columns of numbers, or a single column of lists.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub observation: Vec<Field>,
    /// The column with `train`, `test` or null.
    #[serde(with = "crate::read::rows::ipc::maybe_field")]
    pub split: Option<Field>,
}

/// The columns that identify a row within its partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum ObservationKey {
    /// Rows of trajectories, which are filtered in the order of time.
    Trajectories {
        /// The trajectory keys; empty if each partition is one trajectory.
        #[serde(with = "crate::read::rows::ipc::fields")]
        trajectory: Vec<Field>,
        /// The time of a row.
        #[serde(with = "crate::read::rows::ipc::field")]
        time: Field,
        /// The step from a row to the row that follows it.
        step: Step,
        /// How the times are read.
        rules: Box<TimeRules>,
    },
    /// Independent rows.
    Rows {
        /// The columns that identify a row.
        #[serde(with = "crate::read::rows::ipc::fields")]
        id: Vec<Field>,
    },
}

impl ObservationLayout {
    /// The columns of a trajectory, or of a row without time: rows that are equal in them belong
    /// together.
    pub(crate) fn dealt_by(&self) -> Range<usize> {
        match self.key {
            ObservationKey::Trajectories { .. } => 0..self.n_order() - 1,
            ObservationKey::Rows { .. } => 0..self.n_order(),
        }
    }

    /// Every column, in order.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let leading = self.partition.iter().chain(self.key_fields());
        let fields = leading.chain(&self.state).chain(&self.observation);
        let order = self.rules().and_then(|rules| rules.order.as_ref());
        fields.chain(&self.split).chain(order).cloned().collect()
    }

    /// How the times are read, if rows have times.
    pub(crate) fn rules(&self) -> Option<&TimeRules> {
        match &self.key {
            ObservationKey::Trajectories { rules, .. } => Some(rules),
            ObservationKey::Rows { .. } => None,
        }
    }

    /// The time after which a row follows another one. None for rows without time.
    pub(crate) fn time_steps(&self) -> Option<TimeSteps<'_>> {
        let ObservationKey::Trajectories { step, rules, .. } = &self.key else {
            return None;
        };
        let fields = self.partition.iter().chain(self.key_fields());
        Some(TimeSteps {
            fields: fields.cloned().collect(),
            steps: slice::from_ref(step),
            only_next: true,
            may_be_near: true,
            rules,
        })
    }

    /// Whether filters go on through gaps between rows.
    pub(crate) fn bridges(&self) -> bool {
        match &self.key {
            ObservationKey::Trajectories { step, rules, .. } => rules.bridges(*step),
            ObservationKey::Rows { .. } => false,
        }
    }

    /// The layout of rows whose ties are resolved: the column that orders them is gone.
    pub(crate) fn resolved(&self) -> ObservationLayout {
        let mut layout = self.clone();
        if let ObservationKey::Trajectories { rules, .. } = &mut layout.key {
            **rules = rules.resolved();
        }
        layout
    }

    /// What leaves out the rows that do not count, if several rows may have one time.
    pub(crate) fn resolver(&self, is_sorted: bool) -> Option<Resolver> {
        let n_partition = self.partition.len();
        let rules = self.rules()?;
        Resolver::new(self.fields(), n_partition, self.n_order(), rules, is_sorted)
    }

    /// The places of the columns that order the rows: partition keys and the key of a row, then the
    /// second column of time, if there is one.
    pub(crate) fn order_columns(&self) -> Vec<usize> {
        let n = self.n_order();
        let rules = self.rules();
        rules.map_or((0..n).collect(), |rules| {
            rules.order_columns(n, self.fields().len())
        })
    }

    /// The columns of the key: trajectory keys and the time, or the `id` columns.
    pub(crate) fn key_fields(&self) -> impl Iterator<Item = &Field> {
        let (keys, time) = match &self.key {
            ObservationKey::Trajectories {
                trajectory, time, ..
            } => (trajectory, Some(time)),
            ObservationKey::Rows { id } => (id, None),
        };
        keys.iter().chain(time)
    }

    /// The columns of a query for this layout, named by position.
    pub(crate) fn numbered(&self) -> SchemaRef {
        layout::schema(&self.fields())
    }

    /// The number of leading columns that order the rows: partition keys and the key of a row.
    pub(crate) fn n_order(&self) -> usize {
        self.partition.len() + self.key_fields().count()
    }

    /// Whether rows are independent.
    pub(crate) fn is_static(&self) -> bool {
        matches!(self.key, ObservationKey::Rows { .. })
    }
}

/// Whether the numbers are one column of lists.
pub(crate) fn is_list(fields: &[Field]) -> bool {
    matches!(fields, [field] if field.data_type().is_nested())
}

/// Selects the columns of a layout, in its order. Column `i` is named `i`.
///
/// # Errors
/// If the query lacks a column.
pub(crate) fn select(frame: DataFrame, layout: &ObservationLayout) -> Result<DataFrame> {
    let start = layout.n_order();
    let numbers = start..start + layout.state.len() + layout.observation.len();
    selected(frame, &layout.fields(), numbers, "[sequences]")
}
