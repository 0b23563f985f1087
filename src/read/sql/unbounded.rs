//! Filters from which the engine derives no bounds of columns.
//!
//! The engine takes the smallest and the largest value of a column that a filter keeps from the
//! inverse of its expressions: `CAST(t AS DATE) = d` would leave only midnight of `t`. Casts and
//! arithmetic have no exact inverse. So queries failed, and rows that seemed to have one value were
//! not sorted. Filters with such expressions get a condition that is true, and from which nothing
//! can be derived. Files are still skipped by the other conditions.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Adds the condition. It must be the last rule, because others make and merge filters.
#[derive(Debug)]
pub(crate) struct Unbounded;

impl OptimizerRule for Unbounded {
    fn name(&self) -> &str {
        "unbounded"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        mut plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &mut plan else {
            return Ok(Transformed::no(plan));
        };
        if !needs_condition(&filter.predicate)? {
            return Ok(Transformed::no(plan));
        }
        // With the columns of the filter, it goes wherever the other conditions go.
        let mut columns: Vec<_> = filter.predicate.column_refs().into_iter().collect();
        columns.sort();
        let columns = columns.into_iter().cloned().map(Expr::Column).collect();
        let always = ScalarUDF::from(Always::default()).call(columns);
        filter.predicate = std::mem::take(&mut filter.predicate).and(always);
        Ok(Transformed::yes(plan))
    }
}

/// Whether a predicate has an expression without an exact inverse, and not yet the condition.
fn needs_condition(predicate: &Expr) -> Result<bool> {
    let (mut is_inexact, mut has_condition) = (false, false);
    predicate.apply(|expr| {
        match expr {
            Expr::Cast(_) | Expr::TryCast(_) | Expr::Negative(_) => is_inexact = true,
            Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                use Operator::{Divide, Minus, Modulo, Multiply, Plus};
                is_inexact |= matches!(op, Plus | Minus | Multiply | Divide | Modulo);
            }
            Expr::ScalarFunction(call) => has_condition |= call.func.inner().is::<Always>(),
            _ => (),
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_inexact && !has_condition && !predicate.column_refs().is_empty())
}

/// A function of any columns that is true.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Always {
    signature: Signature,
}

impl Default for Always {
    fn default() -> Always {
        Always {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Always {
    fn name(&self) -> &str {
        "always"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::from(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, TimestampSecondArray,
    };
    use arrow::compute::concat_batches;
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
    use std::sync::Arc;

    /// Every second value of a day is later than the next, so a sort that is left out is seen.
    #[tokio::test]
    async fn filters_with_casts_and_arithmetic_keep_what_they_are_true_for() {
        let n = 96;
        let at = |row: i64| if row % 2 == 0 { row + 1 } else { row - 1 };
        let hours = || (0..n).map(|row| 1_711_756_800 + 1800 * at(row));
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "t",
                Arc::new(TimestampSecondArray::from_iter_values(hours())),
            ),
            ("i", Arc::new(Int64Array::from_iter_values((0..n).map(at)))),
            (
                "x",
                Arc::new(Float64Array::from_iter_values(
                    (0..n).map(|row| at(row) as f64 / 4.0),
                )),
            ),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let session = SessionConfig::new().with_target_partitions(1);
        let context = SessionContext::new_with_config(session);
        context.add_optimizer_rule(Arc::new(Unbounded));
        let path = path.to_str().unwrap();
        let options = ParquetReadOptions::default;
        context
            .register_parquet("rows", path, options())
            .await
            .unwrap();
        for (condition, by, keeps) in [
            ("t >= CAST(t AS DATE)", "t", (|_| true) as fn(i64) -> bool),
            ("CAST(t AS DATE) <= t", "t", |_| true),
            ("t > CAST(t AS DATE) AND i < 50", "t", |i| {
                i % 48 != 0 && i < 50
            }),
            ("CAST(t AS DATE) = DATE '2024-03-31'", "t", |i| i >= 48),
            (
                "CAST(t AS DATE) = DATE '2024-03-31' AND t > TIMESTAMP '2024-03-31 01:00:00'",
                "t",
                |i| i > 50,
            ),
            ("CAST(x AS BIGINT) = 3", "x", |i| (12..16).contains(&i)),
            ("CAST(x AS BIGINT) = 3 AND x > 3.2", "x", |i| {
                (13..16).contains(&i)
            }),
            ("i / 2 = 3", "i", |i| i == 6 || i == 7),
            ("i / 2 = 3 AND i > 6", "i", |i| i == 7),
            (
                "t + INTERVAL '1 month' = TIMESTAMP '2024-04-30 00:30:00'",
                "t",
                |i| i == 1 || i == 49,
            ),
        ] {
            let sql = format!("SELECT i FROM rows WHERE {condition} ORDER BY {by}");
            let found = context.sql(&sql).await.unwrap().collect().await;
            let found = found.unwrap_or_else(|e| panic!("{condition}: {e}"));
            let schema = Arc::clone(found[0].schema_ref());
            let all = concat_batches(&schema, &found).unwrap();
            let found: Vec<i64> = all.column(0).as_primitive::<Int64Type>().values().to_vec();
            let expected: Vec<i64> = (0..n).filter(|i| keeps(*i)).collect();
            assert_eq!(found, expected, "{condition}");
        }
    }
}
