//! Tables whose rows are computed while they are read, trajectory by trajectory.

use crate::math::portable;
use crate::math::seed::mixed;
use crate::read::arguments::Arguments;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionContext;
use futures::stream;
use futures::stream::StreamExt;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A world with trajectories whose rows follow from the constants of a call of a table function.
pub(crate) trait World: Clone + Debug + Send + Sync + 'static {
    /// Where the rows of one piece continue.
    type Walk: Send;

    /// The name of the table function.
    const NAME: &'static str;

    /// The names of its arguments.
    const ARGUMENTS: &'static [&'static str];

    /// The columns, which have no nulls. The rows are ordered by `trajectory` and `time`.
    fn columns() -> Vec<(&'static str, DataType)>;

    /// The world of a call.
    ///
    /// # Errors
    /// If an argument is not valid.
    fn new(arguments: &Arguments<'_>) -> Result<Self>;

    /// The number of pieces: trajectories, or ranges of trajectories that are computed together.
    fn pieces(&self) -> usize;

    /// The number of times of a piece.
    fn length(&self, piece: usize) -> usize;

    /// The most times per batch.
    fn batch(&self) -> usize {
        8192
    }

    /// The world for a scan of some of the columns, `None` for all.
    fn projected(&self, _columns: Option<&Vec<usize>>) -> Self {
        self.clone()
    }

    /// The start of a piece.
    fn start(&self, piece: usize) -> Self::Walk;

    /// The columns of the rows of a piece at the next `times`.
    fn rows(
        &self,
        walk: &mut Self::Walk,
        piece: usize,
        times: Range<usize>,
    ) -> impl Future<Output = Vec<ArrayRef>> + Send;
}

/// Registers the table function of a world with a session.
pub(crate) fn register<W: World>(ctx: &SessionContext) {
    ctx.register_udtf(W::NAME, Arc::new(Function::<W>(PhantomData)));
}

#[derive(Debug)]
struct Function<W>(PhantomData<W>);

impl<W: World> TableFunctionImpl for Function<W> {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let fields = W::columns().into_iter();
        let fields = fields.map(|(name, kind)| Field::new(name, kind, false));
        Ok(Arc::new(Generated {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            world: W::new(&Arguments::new(W::NAME, W::ARGUMENTS, args.exprs())?)?,
        }))
    }
}

/// The table of a world.
#[derive(Debug)]
struct Generated<W> {
    schema: SchemaRef,
    world: W,
}

#[async_trait]
impl<W: World> TableProvider for Generated<W> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// A plan with at most one partition per thread, each of a range of pieces.
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (schema, world) = (&self.schema, self.world.projected(projection));
        let pieces = world.pieces();
        let parts = state.config().target_partitions().clamp(1, pieces);
        // In u128 because the product may exceed usize.
        let cut = |part: usize| (pieces as u128 * part as u128 / parts as u128) as usize;
        let partitions = (0..parts).map(|at| {
            Arc::new(Part {
                schema: schema.clone(),
                world: world.clone(),
                pieces: cut(at)..cut(at + 1),
            }) as Arc<dyn PartitionStream>
        });
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
            partitions.collect(),
            projection,
            LexOrdering::new(keys),
            false,
            limit,
        )?))
    }
}

/// The rows of a range of pieces, computed batch by batch on demand.
#[derive(Debug)]
struct Part<W> {
    schema: SchemaRef,
    world: W,
    pieces: Range<usize>,
}

/// The next rows of a part.
struct Position<W: World> {
    schema: SchemaRef,
    world: W,
    pieces: Range<usize>,
    /// A piece and its next time.
    current: Option<(usize, usize, W::Walk)>,
}

impl<W: World> Position<W> {
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            let (piece, time, walk) = match &mut self.current {
                Some(current) => current,
                None => {
                    let piece = self.pieces.next()?;
                    self.current.insert((piece, 0, self.world.start(piece)))
                }
            };
            let end = (*time + self.world.batch()).min(self.world.length(*piece));
            if *time == end {
                self.current = None;
                continue;
            }
            let columns = self.world.rows(walk, *piece, *time..end).await;
            *time = end;
            let batch = RecordBatch::try_new(self.schema.clone(), columns);
            return Some(batch.map_err(Into::into));
        }
    }
}

impl<W: World> PartitionStream for Part<W> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let start = Position {
            schema: self.schema.clone(),
            world: self.world.clone(),
            pieces: self.pieces.clone(),
            current: None,
        };
        let batches = stream::unfold(start, |mut position| async move {
            // Other tasks of the runtime can run between batches.
            tokio::task::yield_now().await;
            let batch = position.next().await;
            batch.map(|batch| (batch, position))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            self.schema.clone(),
            batches.boxed(),
        ))
    }
}

/// The columns of trajectories in a plane.
pub(crate) fn plane() -> Vec<(&'static str, DataType)> {
    let integers = ["trajectory", "time"].map(|name| (name, DataType::Int64));
    let numbers = ["x", "y"].map(|name| (name, DataType::Float64));
    integers.into_iter().chain(numbers).collect()
}

/// A column of integers.
pub(crate) fn integers(values: impl IntoIterator<Item = usize>) -> ArrayRef {
    let values = values.into_iter().map(|value| value as i64);
    Arc::new(Int64Array::from_iter_values(values))
}

/// A column of one integer.
pub(crate) fn all(value: usize, rows: usize) -> ArrayRef {
    integers(std::iter::repeat_n(value, rows))
}

/// Columns of numbers.
pub(crate) fn numbers<const N: usize>(columns: [Vec<f64>; N]) -> [ArrayRef; N] {
    columns.map(|column| Arc::new(Float64Array::from(column)) as ArrayRef)
}

/// Appends one number to every column.
pub(crate) fn append<const N: usize>(columns: &mut [Vec<f64>; N], values: [f64; N]) {
    for (column, value) in columns.iter_mut().zip(values) {
        column.push(value);
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
    use super::*;
    use crate::math::testing::cases;
    use arrow::array::AsArray;
    use arrow::compute::cast;
    use arrow::datatypes::Float64Type;
    use datafusion::prelude::SessionConfig;

    pub(crate) fn session<W: World>(partitions: usize) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let ctx = SessionContext::new_with_config(config);
        register::<W>(&ctx);
        ctx
    }

    /// The columns of a query over a table function, as numbers.
    pub(crate) async fn floats<W: World>(sql: &str, partitions: usize) -> Vec<Vec<f64>> {
        let ctx = session::<W>(partitions);
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

    /// Checks the starts of the messages of calls that are not valid: `arguments => message`.
    pub(crate) async fn refuses<W: World>(calls: &str) {
        for (arguments, expected) in cases(calls) {
            let sql = format!("SELECT * FROM {}({arguments})", W::NAME);
            let error = session::<W>(1).sql(&sql).await.expect_err(&sql).to_string();
            let expected = format!("Error during planning: {}: {expected}", W::NAME);
            assert!(error.starts_with(&expected), "{sql}: {error}");
        }
    }
}
