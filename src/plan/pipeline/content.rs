//! What a pipeline file says, as types.

use crate::evidence::lag::Lag;
use crate::methods::{ChainMethod, FilterMethod, PointMethod, SymbolMethod};
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks::Checks;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{
    Densities, Duplicates, Empty, InputTable, Job, Naming, OutputTables, Validation, Window,
};
use crate::read::lake::files::Query;
use crate::read::rows::bins::Binning;
use crate::read::rows::coordinates::Scale;
use crate::store::parameter::Store;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A pipeline with consistent keys. Columns, files and SQL are not checked yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pipeline {
    /// The file that it was read from. Relative paths are looked up beside this file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The section `[job]`.
    pub job: Job,
    /// Not serialized: its values may be secret, and no result depends on them.
    #[serde(skip)]
    pub store: Store,
    /// `[tables]`: the input tables by their names in the SQL.
    pub tables: BTreeMap<String, InputTable>,
    /// The section `[transitions]`, `[points]` or `[sequences]`.
    pub transitions: Transitions,
    /// The section `[names]`.
    pub names: Naming,
    /// The fits to counts, in the order of the file. Empty if the rows are points.
    pub fits: Vec<FitEntry>,
    /// The embeddings of states by their counts, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub embeddings: Vec<FitEntry<ChainMethod>>,
    /// The fits to points, in the order of the file. Empty if the rows have states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub point_fits: Vec<FitEntry<PointMethod>>,
    /// The fits to sequences, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sequence_fits: Vec<FitEntry<SymbolMethod>>,
    /// The filters, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_fits: Vec<FitEntry<FilterMethod>>,
    /// The section `[validation]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// The section `[output]`.
    #[serde(skip_serializing_if = "OutputTables::is_empty")]
    pub output: OutputTables,
    /// The section `[densities]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub densities: Option<Densities>,
    /// `[checks]` and all `[[check]]`.
    #[serde(skip_serializing_if = "Checks::is_empty")]
    pub checks: Checks,
}

/// The query and the meaning of its columns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transitions {
    /// The SQL, or the file that contains it.
    pub query: Query,
    /// The values of the `$name`s in the query.
    pub parameters: BTreeMap<String, Argument>,
    /// The partition columns; may be empty.
    pub partition_by: Vec<String>,
    /// Keep only the largest strongly connected set of states.
    pub connected: bool,
    /// What happens to a model without transitions.
    #[serde(skip_serializing_if = "Empty::is_skip")]
    pub empty: Empty,
    /// The meaning of a row.
    pub input: Input,
}

/// How the times of trajectories are read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeKeys {
    /// The column that orders the rows of a trajectory at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// What happens to several rows of a trajectory at one time.
    #[serde(skip_serializing_if = "Duplicates::is_error")]
    pub duplicates: Duplicates,
    /// The longest time between a row and the next one of its trajectory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gap: Option<Lag>,
    /// How far from the time that a lag or an interval asks for a row may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Lag>,
}

impl TimeKeys {
    /// What else to check if no row is followed by another one, as the end of a message.
    pub(crate) fn hint(&self) -> String {
        let gap = self.max_gap.as_ref().map(|gap| {
            format!(", and `max_gap` = {gap} against the times between rows that follow each other")
        });
        gap.unwrap_or_default()
    }

    /// Whether no key is written.
    pub(crate) fn is_default(&self) -> bool {
        *self == TimeKeys::default()
    }
}

/// The meaning of a row of the query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// A point of a trajectory. Its state is the `state` columns, then the boxes of the `bins`
    /// columns.
    Trajectories {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        /// The column that orders a trajectory.
        time: String,
        /// How the times are read.
        #[serde(skip_serializing_if = "TimeKeys::is_default")]
        times: TimeKeys,
        /// The state columns; may be empty if there are bins.
        state: Vec<String>,
        /// In the order of the file.
        bins: Vec<(String, Binning)>,
        /// The column of real weights; without it, each pair counts 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// At least one, all different; not both ticks and durations.
        lags: Vec<Lag>,
        /// Which points start a pair.
        window: Window,
        /// The time between rows, if counts are divided by the lag.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<Lag>,
    },
    /// A point of a trajectory, which has coordinates in place of a state.
    PointPairs {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        /// The column that orders a trajectory.
        time: String,
        /// How the times are read.
        #[serde(skip_serializing_if = "TimeKeys::is_default")]
        times: TimeKeys,
        /// Columns of numbers, or a single column of lists.
        coordinates: Vec<String>,
        /// What the coordinates are divided by.
        scale: Scale,
        /// The column of real weights of the pairs that a row starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// At least one, all different; not both ticks and durations.
        lags: Vec<Lag>,
        /// Which points start a pair.
        window: Window,
    },
    /// A point without time.
    Points {
        /// The columns that identify a row.
        id: Vec<String>,
        /// Columns of numbers, or a single column of lists.
        coordinates: Vec<String>,
        /// What the coordinates are divided by.
        scale: Scale,
        /// The column of real weights.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
    },
    /// A row of a trajectory that shows a symbol: the `symbol` columns, then the boxes of the
    /// `bins` columns.
    // The names in hashes of plans are those of older versions.
    #[serde(rename = "sequences")]
    Symbols {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        /// The column that orders a trajectory.
        time: String,
        /// How the times are read.
        #[serde(skip_serializing_if = "TimeKeys::is_default")]
        times: TimeKeys,
        /// The time between rows that follow each other. If None, each row follows the previous row
        /// of its trajectory, however much later it is.
        interval: Option<Lag>,
        /// The symbol columns; may be empty if there are bins.
        symbol: Vec<String>,
        /// In the order of the file.
        bins: Vec<(String, Binning)>,
        /// The column of real weights of the windows that a row starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// The column that divides the rows into `train`, `test` and others.
        #[serde(skip_serializing_if = "Option::is_none")]
        split: Option<String>,
    },
    /// A row with an observation, and perhaps with a known state.
    #[serde(rename = "statespace")]
    Observations {
        /// The columns that identify a row.
        key: RowKey,
        /// Columns of numbers, or a single column of lists. Empty for `gyre assign` alone.
        state: Vec<String>,
        /// Columns of numbers, or a single column of lists.
        observation: Vec<String>,
        /// The column that divides the rows into `train`, `test` and others.
        #[serde(skip_serializing_if = "Option::is_none")]
        split: Option<String>,
    },
    /// A pair of states.
    Pairs {
        /// The columns of the source state.
        source: Vec<String>,
        /// The columns of the target state.
        target: Vec<String>,
        /// How much a row counts.
        measure: PairMeasure,
    },
}

/// The columns that identify a row with an observation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKey {
    /// Rows of trajectories.
    Trajectories {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        /// The column that orders a trajectory.
        time: String,
        /// How the times are read.
        #[serde(skip_serializing_if = "TimeKeys::is_default")]
        times: TimeKeys,
        /// The time between rows that follow each other. If None, each row follows the previous row
        /// of its trajectory, however much later it is.
        interval: Option<Lag>,
    },
    /// Rows without time.
    Rows {
        /// The columns that identify a row.
        id: Vec<String>,
    },
}

/// The kinds of evidence, as [`Input::kind`] names them.
pub(crate) const COUNTS: &str = "counts";
/// Points, and pairs of them.
pub(crate) const POINTS: &str = "points";
/// Symbols of sequences.
pub(crate) const SYMBOLS: &str = "symbols";
/// Observations, and states of training rows.
pub(crate) const OBSERVATIONS: &str = "observations";

impl Input {
    /// The kind of evidence that the rows are.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Input::Trajectories { .. } | Input::Pairs { .. } => COUNTS,
            Input::PointPairs { .. } | Input::Points { .. } => POINTS,
            Input::Symbols { .. } => SYMBOLS,
            Input::Observations { .. } => OBSERVATIONS,
        }
    }

    /// The section of the file that describes the rows.
    pub(crate) fn section(&self) -> &'static str {
        match self {
            Input::Points { .. } => "points",
            Input::Symbols { .. } | Input::Observations { .. } => "sequences",
            _ => "transitions",
        }
    }
}

/// How much a row counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PairMeasure {
    /// Each row counts 1.
    Ones,
    /// The integer column with the number of pairs.
    Count(String),
    /// The column of real weights.
    Weight(String),
}
