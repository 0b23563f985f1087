//! Execution plans of tables whose rows are computed while they are read, trajectory by trajectory.

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// The columns of trajectories in a plane, ordered by trajectory and time.
pub(crate) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("trajectory", DataType::Int64, false),
        Field::new("time", DataType::Int64, false),
        Field::new("x", DataType::Float64, false),
        Field::new("y", DataType::Float64, false),
    ]))
});

/// A plan with one partition per thread. `part` makes the partition of a range of the
/// `trajectories`. The rows are ordered by the columns `trajectory` and `time` of the `schema`.
pub(crate) fn scan(
    state: &dyn Session,
    schema: &SchemaRef,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
    trajectories: usize,
    part: impl Fn(Range<usize>) -> Arc<dyn PartitionStream>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let parts = state.config().target_partitions().clamp(1, trajectories);
    // In u128 because the product may exceed usize.
    let cut = |part: usize| (trajectories as u128 * part as u128 / parts as u128) as usize;
    let partitions = (0..parts).map(|at| part(cut(at)..cut(at + 1))).collect();
    let projected = match projection {
        Some(columns) => Arc::new(schema.project(columns)?),
        None => schema.clone(),
    };
    let keys = ["trajectory", "time"].into_iter().map_while(|name| {
        let column = Column::new_with_schema(name, &projected).ok()?;
        let ascending = SortOptions::new(false, false);
        Some(PhysicalSortExpr::new(Arc::new(column), ascending))
    });
    Ok(Arc::new(StreamingTableExec::try_new(
        schema.clone(),
        partitions,
        projection,
        LexOrdering::new(keys),
        false,
        limit,
    )?))
}
