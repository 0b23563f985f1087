//! What is known of the rows of a query before they are read.

use super::{Lake, failed};
use crate::count::{Evidence, Layout};
use crate::error::Result;
use crate::plan::Bounds;
use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

impl Lake {
    /// What the statistics of files say of the rows of a query that has the columns of `layout`.
    pub async fn bounds(&self, frame: DataFrame, layout: &Layout) -> Result<Bounds> {
        let plan = self.physical(frame).await?;
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        let known = known.map_err(|e| failed("the query has no statistics", e))?;
        let (first, sides) = match &layout.evidence {
            Evidence::Trajectories { state, .. } => (layout.n_order(), vec![state]),
            Evidence::Pairs { source, target, .. } => {
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
        Ok(Bounds {
            rows: known.num_rows.get_value().map(|&rows| rows as u64),
            states,
        })
    }
}

/// Integers between the smallest and the largest of a column, both among them.
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
