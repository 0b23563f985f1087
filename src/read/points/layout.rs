//! Which columns of the rows hold the key, the coordinates and the weight of a point.

use crate::evidence::lag::Step;
use crate::read::rows::coordinates::LARGEST;
use crate::read::rows::coordinates::Scale;
use crate::read::rows::layout;
use crate::read::rows::ties::Resolver;
use crate::read::rows::time_rules::{TimeRules, TimeSteps};
use arrow::datatypes::{Field, SchemaRef};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The columns that are read of points, in the order of the columns of a batch: partition keys, the
/// key of a row, coordinates, weight, known sets, the second column of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PointLayout {
    /// Partition keys.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    /// The columns that identify a row: trajectory keys and the time, or the `id` columns.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub key: Vec<Field>,
    /// How rows become evidence.
    pub roles: PointRoles,
    /// Columns of numbers, or a single column of lists.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub coordinates: Vec<Field>,
    /// What the coordinates are divided by.
    pub scale: Scale,
    /// The weight of a row, or of the pairs that it starts.
    #[serde(with = "crate::read::rows::ipc::maybe_field")]
    pub weight: Option<Field>,
    /// Columns with known sets of the rows.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub given: Vec<Field>,
}

/// How rows become evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum PointRoles {
    /// Rows of trajectories become pairs of points. The last column of the key is the time.
    Pairs {
        /// The lags, one model per partition each.
        lags: Vec<Step>,
        /// Whether pairs start only at multiples of each lag.
        strided: bool,
        /// How the times are read. A trajectory has one row per time.
        rules: TimeRules,
    },
    /// Rows without time.
    Rows,
}

impl PointLayout {
    /// The columns of a trajectory, or of a row without time: rows that are equal in them belong
    /// together.
    pub(crate) fn dealt_by(&self) -> Range<usize> {
        match self.roles {
            PointRoles::Pairs { .. } => 0..self.n_order() - 1,
            PointRoles::Rows => 0..self.n_order(),
        }
    }

    /// Every column, in order.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let leading = self.partition.iter().chain(&self.key);
        let fields = leading.chain(&self.coordinates).chain(&self.weight);
        let order = self.rules().and_then(|rules| rules.order.as_ref());
        fields.chain(&self.given).chain(order).cloned().collect()
    }

    /// How the times are read, if rows have times.
    pub(crate) fn rules(&self) -> Option<&TimeRules> {
        match &self.roles {
            PointRoles::Pairs { rules, .. } => Some(rules),
            PointRoles::Rows => None,
        }
    }

    /// The times after which rows make pairs. None for rows without time.
    pub(crate) fn time_steps(&self) -> Option<TimeSteps<'_>> {
        let PointRoles::Pairs {
            lags,
            strided,
            rules,
        } = &self.roles
        else {
            return None;
        };
        Some(TimeSteps {
            fields: self.partition.iter().chain(&self.key).cloned().collect(),
            steps: lags,
            only_next: false,
            may_be_near: !strided,
            rules,
        })
    }

    /// The layout of rows whose ties are resolved: the column that orders them is gone.
    pub(crate) fn resolved(&self) -> PointLayout {
        let mut layout = self.clone();
        if let PointRoles::Pairs { rules, .. } = &mut layout.roles {
            *rules = rules.resolved();
        }
        layout
    }

    /// What leaves out the rows that do not count, if several rows may have one time.
    pub(crate) fn resolver(&self, is_sorted: bool) -> Option<Resolver> {
        let n_partition = self.partition.len();
        let rules = self.rules()?;
        Resolver::new(self.fields(), n_partition, self.n_order(), rules, is_sorted)
    }

    /// The columns of a query for this layout, named by position.
    pub(crate) fn numbered(&self) -> SchemaRef {
        layout::schema(&self.fields())
    }

    /// The number of leading columns that order the rows: partition keys and the key of a row.
    pub(crate) fn n_order(&self) -> usize {
        self.partition.len() + self.key.len()
    }

    /// The number of lags; 1 for rows without time.
    pub(crate) fn n_lags(&self) -> usize {
        match &self.roles {
            PointRoles::Pairs { lags, .. } => lags.len(),
            PointRoles::Rows => 1,
        }
    }

    /// The names of the columns of the coordinates.
    pub(crate) fn coordinate_names(&self) -> Vec<String> {
        let names = self.coordinates.iter().map(|field| field.name().clone());
        names.collect()
    }

    /// The largest magnitude of a coordinate of a column. With `scale = "standard"` it is not known
    /// before all rows are read.
    pub(crate) fn limit(&self, column: usize) -> f64 {
        let name = self.coordinates.get(column).map(|field| field.name());
        match &self.scale {
            Scale::None => LARGEST,
            Scale::Standard => f64::MAX,
            Scale::By(divisors) => {
                let own = name.and_then(|name| divisors.get(name)).copied();
                (own.unwrap_or(1.0).abs() * LARGEST).min(f64::MAX)
            }
        }
    }

    /// Whether the coordinates are one column of lists.
    pub(crate) fn is_list(&self) -> bool {
        self.coordinates.len() == 1 && self.coordinates[0].data_type().is_nested()
    }
}
