//! What the columns of a run's tables depend on: partitions, lags, states and fits.

use crate::evidence::lag::Lag;
use crate::methods::columns::StateColumn;
use crate::output::tables::table::Table;
use crate::read::rows::states::{StateColumns, StateTable};
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use std::sync::Arc;

/// The lag column: whole numbers as integers, other lags as texts. If a lag is a time, a second
/// column has its seconds. Pairs have no lag.
#[derive(Debug, Clone, PartialEq)]
pub enum LagColumn {
    /// Pairs have no lag.
    None,
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers or times.
    Texts(Vec<Lag>),
}

impl LagColumn {
    /// The lag with index `at` as a text.
    pub(crate) fn text(&self, at: usize) -> Option<String> {
        match self {
            LagColumn::None => None,
            LagColumn::Integers(lags) => Some(lags[at].to_string()),
            LagColumn::Texts(lags) => Some(lags[at].to_string()),
        }
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        match self {
            LagColumn::None => Vec::new(),
            LagColumn::Integers(_) => vec![Field::new("lag", DataType::Int64, false)],
            LagColumn::Texts(lags) => {
                let mut fields = vec![Field::new("lag", DataType::Utf8, false)];
                if self.has_seconds() {
                    let is_any_none = lags.iter().any(|lag| lag.seconds().is_none());
                    fields.push(Field::new(LAG_SECONDS, DataType::Float64, is_any_none));
                }
                fields
            }
        }
    }

    /// The number of models per partition.
    pub(crate) fn n_lags(&self) -> usize {
        match self {
            LagColumn::None => 1,
            LagColumn::Integers(lags) => lags.len(),
            LagColumn::Texts(lags) => lags.len(),
        }
    }

    /// The lag column of a table that has one row per lag.
    pub(crate) fn table(&self) -> Vec<ArrayRef> {
        match self {
            LagColumn::None => Vec::new(),
            LagColumn::Integers(lags) => vec![Arc::new(Int64Array::from(lags.clone()))],
            LagColumn::Texts(lags) => {
                let texts = lags.iter().map(Lag::to_string);
                let mut columns: Vec<ArrayRef> =
                    vec![Arc::new(StringArray::from_iter_values(texts))];
                if self.has_seconds() {
                    let seconds = lags.iter().map(Lag::seconds);
                    columns.push(Arc::new(seconds.collect::<Float64Array>()));
                }
                columns
            }
        }
    }

    pub(crate) fn has_seconds(&self) -> bool {
        matches!(self, LagColumn::Texts(lags) if lags.iter().any(|lag| lag.seconds().is_some()))
    }

    /// The columns of `n` rows that all have the lag with index `at`.
    ///
    /// # Errors
    /// If there is no such lag, which is a bug.
    pub(crate) fn columns(&self, at: usize, n: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        take_arrays(&self.table(), &UInt32Array::from(vec![at as u32; n]), None)
    }
}

/// The column after `lag` if lags are times.
pub(crate) const LAG_SECONDS: &str = "lag_seconds";

/// The type of a list of `width` numbers.
pub(crate) fn vector(width: usize) -> DataType {
    DataType::FixedSizeList(item(DataType::Float64), width as i32)
}

/// The values of a list, none of which is null.
pub(crate) fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, false))
}

/// A column of this type that may have nulls.
pub(crate) fn optional(name: impl Into<String>, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// A column of the input that may have nulls.
pub(crate) fn nullable(field: &Field) -> Field {
    optional(field.name(), field.data_type().clone())
}

/// A column of the input that has no nulls.
pub(crate) fn required(field: &Field) -> Field {
    Field::new(field.name(), field.data_type().clone(), false)
}

/// What the columns of a fit depend on.
#[derive(Clone)]
pub struct FitColumns {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: &'static str,
    /// The largest rank that a model may have. Rows of a smaller rank end with zeros, which change
    /// no distance between embeddings.
    pub rank: usize,
    /// The columns of the fit in the tables of states.
    pub columns: &'static [StateColumn],
}

/// What the columns of an embedding of states depend on.
#[derive(Clone)]
pub struct EmbeddingColumns {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: &'static str,
    /// What the names of its columns end with, for each time or power.
    pub parts: Vec<String>,
    /// Coordinates per time or power. Rows with fewer end with zeros.
    pub dimension: usize,
}

impl EmbeddingColumns {
    /// The name of the column of a time or power. `side` is empty, or names the end of a pair.
    pub(crate) fn column(&self, part: usize, side: &str) -> String {
        format!("{}{}_{side}embedding", self.name, self.parts[part])
    }
}

/// Everything that the schemas of a run's tables depend on.
pub struct RunSchema {
    /// The key columns of a partition.
    pub partition: Vec<Field>,
    /// The key columns of the partitions, one row per partition.
    pub partitions: Vec<ArrayRef>,
    /// The lags of the run.
    pub lag: LagColumn,
    /// The source states of the run.
    pub sources: StateTable,
    /// The target states of the run.
    pub targets: StateTable,
    /// Whether the counts are weights.
    pub is_weighted: bool,
    /// In the order of the pipeline file.
    pub fits: Vec<FitColumns>,
    /// The embeddings of states, in the order of the pipeline file.
    pub embeddings: Vec<EmbeddingColumns>,
    /// Whether the states have the column `<fit>_stability`.
    pub has_stability: bool,
    /// The tables that are written.
    pub tables: Vec<Table>,
    /// The columns of the input in the table `rows`, except those of the partition.
    pub rows: Vec<Field>,
}

impl RunSchema {
    /// Whether the input has pairs, not trajectories.
    pub(crate) fn is_of_pairs(&self) -> bool {
        self.lag == LagColumn::None
    }

    pub(crate) fn count_type(&self) -> DataType {
        if self.is_weighted {
            DataType::Float64
        } else {
            DataType::UInt64
        }
    }

    /// The columns that begin every table: partition keys and lag.
    pub(crate) fn leading(&self) -> Vec<Field> {
        let partition = self.partition.iter().map(required);
        partition.chain(self.lag.fields()).collect()
    }

    /// Key columns of sources and targets for a table that has both. If a name is the same on both
    /// sides, all names begin with `source_` or `target_`.
    pub(crate) fn pair_fields(&self) -> (Vec<Field>, Vec<Field>) {
        pair_fields(self.sources.fields(), self.targets.fields())
    }
}

/// Columns whose names begin with `<prefix>_`.
pub(crate) fn with_prefix(fields: &[Field], prefix: &str) -> Vec<Field> {
    let fields = fields.iter();
    fields
        .map(|f| f.clone().with_name(format!("{prefix}_{}", f.name())))
        .collect()
}

/// Key columns of sources and targets side by side.
pub(crate) fn pair_fields(sources: Vec<Field>, targets: Vec<Field>) -> (Vec<Field>, Vec<Field>) {
    let is_of_targets = |source: &Field| targets.iter().any(|t| source.name() == t.name());
    if !sources.iter().any(is_of_targets) {
        return (sources, targets);
    }
    (
        with_prefix(&sources, "source"),
        with_prefix(&targets, "target"),
    )
}

impl RunSchema {
    /// The columns of a partition and a lag, without states, sets and fits.
    pub(crate) fn of_models(
        partition: &[Field],
        partitions: Vec<ArrayRef>,
        lag: LagColumn,
    ) -> RunSchema {
        let none = StateTable::empty(&StateColumns {
            keys: Vec::new(),
            bins: Vec::new(),
        });
        RunSchema {
            partition: partition.to_vec(),
            partitions,
            lag,
            sources: none.clone(),
            targets: none,
            is_weighted: false,
            fits: Vec::new(),
            embeddings: Vec::new(),
            rows: Vec::new(),
            has_stability: false,
            tables: Vec::new(),
        }
    }
}
