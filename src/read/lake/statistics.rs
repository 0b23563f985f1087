//! What file statistics tell about the rows of a query before they are read.

use crate::error::Result;
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::lake::files::LakeTable;
use crate::read::rows::layout::{Layout, RowRoles};
use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::dataframe::DataFrame;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Lake {
    /// Upper bounds from file statistics for the rows of a query that has the columns of `layout`.
    ///
    /// # Errors
    /// A query that cannot be planned.
    pub(crate) async fn bounds(&self, frame: DataFrame, layout: &Layout) -> Result<Bounds> {
        let known = self.statistics(frame).await?;
        let (first, sides) = match &layout.evidence {
            RowRoles::Trajectories { state, .. } => (layout.n_order(), vec![state]),
            RowRoles::Windows { symbol, .. } => (layout.n_order(), vec![symbol]),
            RowRoles::Pairs { source, target, .. } => {
                (layout.partition.len(), vec![source, target])
            }
        };
        let (mut first, mut states) = (first, Some(0));
        for side in sides {
            let keys = first..first + side.keys.len();
            first += side.len();
            // Every combination of several keys may occur.
            let mut of_side = keys.map(|at| integers(known.column_statistics.get(at)?));
            let of_side = of_side.try_fold(1u64, |all, n| Some(all.saturating_mul(n?)));
            states = match (states, of_side) {
                (Some(states), Some(own)) if side.bins.is_empty() => Some(own.max(states)),
                _ => None,
            };
        }
        let mut partitions = layout.partition.iter().enumerate().map(|(at, field)| {
            self.folders(field.name())
                .or_else(|| integers(known.column_statistics.get(at)?))
        });
        Ok(Bounds {
            rows: known.num_rows.get_value().map(|&rows| rows as u64),
            states,
            partitions: partitions.try_fold(1u64, |all, n| Some(all.saturating_mul(n?))),
        })
    }

    /// An upper bound of the number of rows of a query. None if file statistics do not give one.
    ///
    /// # Errors
    /// A query that cannot be planned.
    pub(crate) async fn most_rows(&self, frame: DataFrame) -> Result<Option<u64>> {
        let known = self.statistics(frame).await?;
        Ok(known.num_rows.get_value().map(|&rows| rows as u64))
    }

    async fn statistics(&self, frame: DataFrame) -> Result<Arc<Statistics>> {
        let plan = self.physical(frame).await?;
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        known.map_err(|e| failed("the statistics of the query cannot be computed", e))
    }

    /// Number of distinct values of a Hive folder column; `None` if there is no such column.
    fn folders(&self, column: &str) -> Option<u64> {
        let at = |table: &LakeTable| {
            table
                .partition_columns
                .iter()
                .position(|name| name == column)
        };
        let (table, at) = (self.tables.iter()).find_map(|table| Some((table, at(table)?)))?;
        // Rows with a null partition have no model.
        let values = table
            .folders
            .iter()
            .filter_map(|values| values[at].as_ref());
        Some(values.collect::<BTreeSet<_>>().len() as u64)
    }
}

/// Number of integers from the minimum to the maximum of a column, inclusive.
fn integers(column: &ColumnStatistics) -> Option<u64> {
    let integer = |value: &Precision<ScalarValue>| {
        let value = value.get_value()?;
        let value = value.data_type().is_integer().then_some(value)?;
        match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(value)) => value,
            _ => None,
        }
    };
    let (low, high) = (integer(&column.min_value)?, integer(&column.max_value)?);
    high.abs_diff(low).checked_add(1)
}

/// Upper bounds known before any row is read; `None` if statistics do not give one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bounds {
    /// Number of rows.
    pub rows: Option<u64>,
    /// Number of integers between the smallest and the largest state.
    pub states: Option<u64>,
    /// Number of partitions: distinct folder values, or integers between the smallest and the
    /// largest key.
    pub partitions: Option<u64>,
}
