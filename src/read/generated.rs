//! Execution plans of tables whose rows are computed while they are read, trajectory by trajectory.

use crate::math::portable;
use crate::math::seed::mixed;
use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream;
use futures::stream::StreamExt;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fmt::Debug;
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

/// A world with trajectories whose rows follow from the constants of a call.
pub(crate) trait World: Clone + Debug + Send + Sync + 'static {
    /// Where the rows of one trajectory continue.
    type Walk: Send;

    /// The columns. The rows are ordered by `trajectory` and `time`.
    fn schema() -> &'static SchemaRef;

    /// The number of trajectories.
    fn trajectories(&self) -> usize;

    /// The world for a scan of some of the columns, `None` for all.
    fn projected(&self, _columns: Option<&Vec<usize>>) -> Self {
        self.clone()
    }

    /// The start of a trajectory.
    fn start(&self, trajectory: usize) -> Self::Walk;

    /// The next rows of a trajectory, `None` after the last.
    fn next(&self, walk: &mut Self::Walk) -> Result<Option<RecordBatch>>;
}

/// The table of a world.
#[derive(Debug)]
pub(crate) struct Generated<W>(pub(crate) W);

#[async_trait]
impl<W: World> TableProvider for Generated<W> {
    fn schema(&self) -> SchemaRef {
        W::schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let world = self.0.projected(projection);
        scan(
            state,
            W::schema(),
            projection,
            limit,
            world.trajectories(),
            |trajectories| {
                Arc::new(Part {
                    world: world.clone(),
                    trajectories,
                })
            },
        )
    }
}

/// The rows of a range of trajectories, computed batch by batch on demand.
#[derive(Debug)]
struct Part<W> {
    world: W,
    trajectories: Range<usize>,
}

/// The next rows of a part.
struct Position<W: World> {
    world: W,
    trajectories: Range<usize>,
    walk: Option<W::Walk>,
}

impl<W: World> Position<W> {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.walk.is_none() {
                let trajectory = self.trajectories.next();
                self.walk = trajectory.map(|trajectory| self.world.start(trajectory));
            }
            let Some(walk) = &mut self.walk else {
                return Ok(None);
            };
            match self.world.next(walk)? {
                None => self.walk = None,
                some => return Ok(some),
            }
        }
    }
}

impl<W: World> PartitionStream for Part<W> {
    fn schema(&self) -> &SchemaRef {
        W::schema()
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let start = Position {
            world: self.world.clone(),
            trajectories: self.trajectories.clone(),
            walk: None,
        };
        let batches = stream::unfold(start, |mut position| async {
            // Other tasks of the runtime can run between batches.
            tokio::task::yield_now().await;
            let batch = position.next().transpose();
            batch.map(|batch| (batch, position))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            W::schema().clone(),
            batches.boxed(),
        ))
    }
}

/// The random numbers of a trajectory of a call with a seed.
pub(crate) fn random(seed: u64, trajectory: usize) -> Pcg64 {
    Pcg64::seed_from_u64(mixed(seed ^ mixed(trajectory as u64 + 1)))
}

/// Two independent standard normal numbers.
pub(crate) fn normals(random: &mut Pcg64) -> [f64; 2] {
    let first = random.random();
    portable::normals([first, random.random()])
}

#[cfg(test)]
pub(crate) mod tests {
    use arrow::array::{AsArray, RecordBatch};
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, Float64Type};
    use datafusion::prelude::{SessionConfig, SessionContext};

    fn session(register: fn(&SessionContext), partitions: usize) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let ctx = SessionContext::new_with_config(config);
        register(&ctx);
        ctx
    }

    /// The columns of a query over a table function, as numbers.
    pub(crate) async fn floats(
        register: fn(&SessionContext),
        sql: &str,
        partitions: usize,
    ) -> Vec<Vec<f64>> {
        let ctx = session(register, partitions);
        let batches = ctx.sql(sql).await.expect("a query").collect().await;
        let batches = batches.expect("rows");
        let columns = batches.first().map_or(0, RecordBatch::num_columns);
        let column = |at: usize| {
            let values = batches.iter().flat_map(|batch| {
                let numbers = cast(batch.column(at), &DataType::Float64).expect("numbers");
                numbers.as_primitive::<Float64Type>().values().to_vec()
            });
            values.collect()
        };
        (0..columns).map(column).collect()
    }

    /// The error of a call.
    pub(crate) async fn message(register: fn(&SessionContext), call: &str) -> String {
        let ctx = session(register, 1);
        let planned = ctx.sql(&format!("SELECT * FROM {call}")).await;
        planned.expect_err(call).to_string()
    }
}
