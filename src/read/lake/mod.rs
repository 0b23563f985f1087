//! Opens inputs: files → tables → SQL → batches. Nothing else in gyre reads the lake.
//!
//! `places` finds the files that a path means: `beside` says which folder a relative one begins in, `glob` matches patterns, `lakehouse`
//! knows folders that are more than their files, and `overlap` keeps input and output apart. `tables` says what the columns of the files
//! are, `provider` hands them to the engine; `scanned` tells which of them a query reads, `listed` sees to it that they are read as they
//! were found, and `damaged` says which one cannot be. `named` reads what is not Parquet by the names of columns: `bytes` of a file become
//! rows in `csv`, `json` and `arrow_ipc`; `text` is what the first two share, and `fault` says what is wrong where. `caught` are panics
//! of readers, `spilled` rows that are sorted on disk. `again` is for other machines, which get a list of what was found. `statement`
//! makes sure that the engine drops nothing of the SQL, `exact` that integers do not wrap around, and `plainly` says in words of SQL what
//! the engine says in its own.
//!
//! A `Lake` is a DataFusion session with the pipeline's tables and gyre's table functions. A query gives streams of batches, one a
//! thread and in the order of the files, so that rows that lie in order need no sorting.

pub mod damaged;
pub mod errors;
pub mod files;
pub mod fingerprint;
pub mod frozen;
pub mod panics;
pub mod provider;
pub mod pruned;
pub mod reopen;
pub mod spill;
pub mod statistics;
pub mod subset;
pub mod tables;

use crate::error::{Error, Kind, Result};
use crate::read::counts::carry::{Spans, Tails};
use crate::read::counts::counted::Counted;
use crate::read::counts::follow::{Followed, Follower, Sink};
use crate::read::counts::merge::Sums;
use crate::read::counts::stream::Worker;
use crate::read::counts::weighted::{Point, Weighed};
use crate::read::lake::errors::{READING, failed};
use crate::read::lake::files::{Table, TableSource, ident_reference};
use crate::read::lake::frozen::Listed;
use crate::read::lake::panics::{Reading, caught};
use crate::read::lake::spill::Spilled;
use crate::read::rows::layout::{Evidence, Layout};
use crate::read::rows::stop::{Mode, Order, Stop};
use crate::store::Stores;
use crate::store::local::LocalFiles;
use crate::store::parquet::StoredFile;
use arrow::array::RecordBatch;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ParamValues, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{col, ident};
use datafusion::physical_plan::{
    ExecutionPlan, SendableRecordBatchStream, execute_stream_partitioned,
};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use parquet::arrow::async_reader::AsyncFileReader;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run may use of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    pub threads: usize,
    /// Bytes that SQL may hold before it spills to disk. `None` is no bound.
    pub memory_bytes: Option<usize>,
}

impl Default for Resources {
    /// All cores, without a bound on memory.
    fn default() -> Resources {
        Resources {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: None,
        }
    }
}

/// The SQL of a query that is written in the pipeline or in a file of its own.
pub fn query_text(query: &crate::read::lake::files::Query) -> Result<String> {
    match query {
        crate::read::lake::files::Query::Sql(sql) => Ok(sql.clone()),
        crate::read::lake::files::Query::File(path) => std::fs::read_to_string(path).map_err(|e| {
            Error::with_source(Kind::Spec, format!("SQL file {path} cannot be read"), e)
        }),
    }
}

pub struct Lake {
    pub(crate) context: SessionContext,
    pub tables: Vec<Table>,
    /// Where the tables came from, and where results go.
    pub stores: Stores,
    /// The threads that its queries use.
    pub threads: usize,
    listed: Listed,
    /// Memory for the unordered rows of each stream.
    gathered_bytes: usize,
    _spilled: Option<Spilled>,
}

/// The stack of every thread that plans or runs SQL: the longest statement that is taken needs less. Main threads have as much.
pub const STACK_BYTES: usize = 8 << 20;

/// Opens a session in which the tables can be queried by name.
pub fn open<'a>(
    sources: &'a [TableSource<'_>],
    resources: &'a Resources,
    stores: &'a Stores,
) -> LocalBoxFuture<'a, Result<Lake>> {
    Box::pin(opened(sources, resources, stores))
}

async fn opened(
    sources: &[TableSource<'_>],
    resources: &Resources,
    stores: &Stores,
) -> Result<Lake> {
    let paths = sources.iter().flat_map(|source| source.paths);
    let remote_stores = crate::read::lake::tables::remote_stores(paths.map(String::as_str));
    let mut lake = empty(resources, stores, remote_stores)?;
    for source in sources {
        let table =
            crate::read::lake::tables::register(&lake.context, source, stores, &lake.listed)
                .await?;
        lake.tables.push(table);
    }
    Ok(lake)
}

/// A session without tables, which will have those of so many remote stores.
fn empty(resources: &Resources, stores: &Stores, remote_stores: usize) -> Result<Lake> {
    let mut config = SessionConfig::new()
        .with_target_partitions(resources.threads)
        .with_batch_size(16_384)
        // Scattering rows over threads would lose their order.
        .with_round_robin_repartition(false)
        .with_information_schema(true)
        // What cannot be had of an integer, its absolute value among them, is an error.
        .with_enable_ansi_mode(true);
    config
        .options_mut()
        .execution
        .parquet
        .schema_force_view_types = false;
    // Footers would be kept by path, size and time alone: files of two buckets could be taken for each other.
    let mut runtime = RuntimeEnvBuilder::new();
    if remote_stores > 1 {
        runtime = runtime.with_metadata_cache_limit(0);
    }
    let mut folder = None;
    if let Some(bytes) = resources.memory_bytes {
        let (bounded, made) = crate::read::lake::spill::bound(runtime, bytes)?;
        (runtime, folder) = (bounded, Some(made));
    }
    let runtime = runtime
        .build_arc()
        .map_err(|e| failed("the query engine cannot start", e))?;
    let local = ObjectStoreUrl::local_filesystem();
    let listed = Listed::default();
    let files = listed.of(local.as_str(), Arc::new(LocalFiles::default()));
    runtime.register_object_store(local.as_ref(), files);
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.add_analyzer_rule(Arc::new(crate::read::sql::checked_integers::Exact));
    crate::read::double_gyre::register(&context);
    let room = |bytes: usize| bytes / 2 / resources.threads.max(1);
    Ok(Lake {
        context,
        tables: Vec::new(),
        stores: stores.clone(),
        threads: resources.threads,
        listed,
        gathered_bytes: resources.memory_bytes.map_or(usize::MAX, room),
        _spilled: folder,
    })
}

impl Lake {
    /// Plans the pipeline's query.
    pub async fn query(
        &self,
        sql: &str,
        parameters: &BTreeMap<String, ScalarValue>,
    ) -> Result<DataFrame> {
        crate::read::lake::sql(&self.context, "[transitions]", sql, parameters).await
    }

    /// A session of its own with the tables and functions of this one, in which more tables can be named.
    pub async fn fork(&self) -> Result<SessionContext> {
        let state = SessionStateBuilder::new_from_existing(self.context.state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .with_config(self.context.copied_config())
            .build();
        let session = SessionContext::new_with_state(state);
        for table in &self.tables {
            let name = || ident_reference(&table.name);
            let found = self.context.table_provider(name()).await;
            let named = found.and_then(|table| session.register_table(name(), table));
            named.map_err(|e| failed(&format!("table `{}` cannot be named", table.name), e))?;
        }
        Ok(session)
    }

    /// The columns of a layout, in its order, from a query.
    pub fn select(&self, frame: DataFrame, layout: &Layout) -> Result<DataFrame> {
        let columns: Vec<_> = layout.fields().iter().map(|f| ident(f.name())).collect();
        // A column may be asked for twice, as when it is both a state and a given partition.
        let columns = columns
            .into_iter()
            .enumerate()
            .map(|(at, c)| c.alias(format!("{at}")));
        frame
            .select(columns)
            .map_err(|e| failed("the columns of [transitions] cannot be selected", e))
    }

    /// The files that the counting query reads of each table, and DataFusion's plan of it, as text.
    pub async fn explain(&self, frame: DataFrame) -> Result<String> {
        let logical = frame
            .clone()
            .into_optimized_plan()
            .map_err(|e| failed("the query cannot be optimised", e))?;
        let physical = self.physical(frame).await?;
        let files = crate::read::lake::pruned::show(&self.tables, &physical);
        let physical = datafusion::physical_plan::displayable(physical.as_ref())
            .indent(false)
            .to_string();
        Ok(format!(
            "Files\n{files}\nLogical plan\n{}\n\nPhysical plan\n{physical}",
            logical.display_indent()
        ))
    }

    pub(crate) async fn physical(&self, frame: DataFrame) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = frame
            .create_physical_plan()
            .await
            .map_err(|e| failed("the query cannot be planned", e))?;
        // Streams must not take files from each other: the rows of a stream are counted in the order of the files.
        let ordered = plan.transform_down(|node| {
            Ok(match node.with_preserve_order(true) {
                Some(ordered) => Transformed::yes(ordered),
                None => Transformed::no(node),
            })
        });
        Ok(ordered
            .map_err(|e| failed("the query cannot be planned", e))?
            .data)
    }

    /// Counts the transitions in the rows of a query that has the columns of `layout`. `progress` hears how many rows have come.
    pub async fn count(
        &self,
        frame: DataFrame,
        layout: &Arc<Layout>,
        progress: Arc<dyn Fn(usize) + Send + Sync>,
    ) -> Result<Counted> {
        let (sums, _) = self.sums(frame, layout, None, progress).await?;
        let layout = Arc::clone(layout);
        let counted = tokio::task::spawn_blocking(move || sums.counted(&layout)).await;
        counted.map_err(|e| Error::with_source(Kind::Bug, "adding up the counts died", e))?
    }

    /// The same, to be added to the counts of other rows. `carried`: rows of the same trajectories that come before those of the query, none
    /// or more. What they make among themselves is not counted again; the ends of all trajectories are returned, to be carried on.
    pub async fn sums(
        &self,
        frame: DataFrame,
        layout: &Arc<Layout>,
        carried: Option<&RecordBatch>,
        progress: Arc<dyn Fn(usize) + Send + Sync>,
    ) -> Result<(Sums, Option<Tails>)> {
        let is_trajectories = matches!(layout.evidence, Evidence::Trajectories { .. });
        if layout.evidence.weight().is_some() && is_trajectories {
            return self
                .sums_of::<Weighed>(frame, layout, carried, progress)
                .await;
        }
        self.sums_of::<u32>(frame, layout, carried, progress).await
    }

    async fn sums_of<P: Point>(
        &self,
        frame: DataFrame,
        layout: &Arc<Layout>,
        carried: Option<&RecordBatch>,
        progress: Arc<dyn Fn(usize) + Send + Sync>,
    ) -> Result<(Sums, Option<Tails>)> {
        let mut mode = Mode {
            order: Order::Assumed,
            direct: true,
        };
        let mut frame = frame;
        if let Some(rows) = carried.filter(|rows| rows.num_rows() > 0) {
            let failed = |e| failed("rows cannot be put to those of an earlier run", e);
            let fields = layout.fields();
            let typed = fields.iter().enumerate().map(|(at, field)| {
                let name = at.to_string();
                datafusion::logical_expr::cast(ident(&name), field.data_type().clone()).alias(name)
            });
            let earlier = self.context.read_batch(rows.clone()).map_err(failed)?;
            let typed = frame.select(typed.collect::<Vec<_>>()).map_err(failed)?;
            frame = typed.union(earlier).map_err(failed)?;
            mode.order = Order::Any {
                bytes: self.gathered_bytes,
            };
        }
        loop {
            match self
                .count_once::<P>(frame.clone(), layout, mode, carried, &progress)
                .await
            {
                Ok(counted) => return Ok(counted),
                Err(Stop::Failed(e)) => return Err(e),
                Err(Stop::Unsorted) if mode.order == Order::Assumed => {
                    tracing::info!("rows are not ordered by trajectory and time: gathering them");
                    let bytes = self.gathered_bytes;
                    mode.order = Order::Any { bytes };
                }
                Err(Stop::TooManyRows) if mode.order != Order::Sorted => {
                    tracing::info!("there are more rows than memory may hold: sorting them");
                    mode.order = Order::Sorted;
                }
                Err(Stop::WideStates) if mode.direct => mode.direct = false,
                Err(stop) => return Err(Error::bug(format!("counting stopped twice: {stop:?}"))),
            }
        }
    }

    /// Follows the trajectories of a query that has the columns of `layout`, in the order of the files if that is one of trajectories,
    /// else sorted. `start` makes what follows them.
    pub async fn follow<S: Sink + 'static>(
        &self,
        frame: DataFrame,
        layout: &Layout,
        start: impl Fn() -> Result<Follower<S>>,
    ) -> Result<Followed<S>> {
        let follow = async |frame: DataFrame| loop {
            let n_whole = self.listed.n_whole();
            let followed = self.follow_once(frame.clone(), start()?).await;
            if !self.is_to_be_read_again(&followed, n_whole) {
                return followed;
            }
        };
        match follow(frame.clone()).await {
            Err(Stop::Unsorted) => {
                tracing::info!("trajectories do not come one after another: sorting them");
                let sorted = sorted(frame, layout)?;
                match follow(sorted).await {
                    Ok(followed) => Ok(followed),
                    Err(Stop::Failed(e)) => Err(e),
                    Err(stop) => Err(Error::bug(format!("sorted rows stopped: {stop:?}"))),
                }
            }
            Ok(followed) => Ok(followed),
            Err(Stop::Failed(e)) => Err(e),
            Err(stop) => Err(Error::bug(format!("following rows stopped: {stop:?}"))),
        }
    }

    async fn follow_once<S: Sink + 'static>(
        &self,
        frame: DataFrame,
        mut follower: Follower<S>,
    ) -> Result<Followed<S>, Stop> {
        let _reading = Reading::new();
        let plan = self.physical(frame).await?;
        let streams = execute_stream_partitioned(plan, self.context.task_ctx())
            .map_err(|e| failed("the query cannot start", e))?;
        // A task of its own, so that a stop is heard while it computes; dropping the set ends it.
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move {
            for mut stream in streams {
                while let Some(batch) = next(&mut stream).await? {
                    follower.push(&batch)?;
                }
            }
            Ok::<_, Stop>(follower.finish()?)
        });
        match task.join_next().await {
            Some(Ok(Err(stop))) => Err(self.named(stop).await),
            Some(Ok(followed)) => followed,
            Some(Err(e)) => {
                Err(Error::with_source(Kind::Bug, "following trajectories died", e).into())
            }
            None => Err(Error::bug("no trajectories were followed").into()),
        }
    }

    async fn count_once<P: Point>(
        &self,
        frame: DataFrame,
        layout: &Arc<Layout>,
        mode: Mode,
        carried: Option<&RecordBatch>,
        progress: &Arc<dyn Fn(usize) + Send + Sync>,
    ) -> Result<(Sums, Option<Tails>), Stop> {
        let frame = match mode.order {
            Order::Sorted => sorted(frame, layout)?,
            _ => frame,
        };
        let (of_streams, progress) = (Arc::clone(layout), Arc::clone(progress));
        let has_tails = carried.is_some();
        let counted = self.each_stream(frame, move |at| {
            let worker = Worker::<P>::new(&of_streams, mode, at == 0)?;
            let tails = has_tails.then(|| Tails::new(&of_streams)).transpose()?;
            let progress = Arc::clone(&progress);
            let push =
                move |batch: &RecordBatch, (worker, tails): &mut (Worker<P>, Option<Tails>)| {
                    worker.push(batch)?;
                    tails.as_mut().map_or(Ok(()), |tails| tails.push(batch))?;
                    progress(batch.num_rows());
                    Ok(())
                };
            Ok(((worker, tails), push))
        });
        let (workers, tails): (Vec<_>, Vec<_>) = counted.await?.into_iter().unzip();
        let mut minus = Vec::new();
        if let Some(rows) = carried.filter(|rows| rows.num_rows() > 0) {
            let order = Order::Any { bytes: usize::MAX };
            let mut worker = Worker::<P>::new(layout, Mode { order, ..mode }, true)?;
            worker.push(rows)?;
            minus.push(worker);
        }
        let layout = Arc::clone(layout);
        let finished = tokio::task::spawn_blocking(move || {
            let mut all: Option<Tails> = has_tails.then(|| Tails::new(&layout)).transpose()?;
            if let Some(all) = &mut all {
                let mut tails = tails.into_iter().flatten();
                tails.try_for_each(|tails| all.absorb(tails))?;
            }
            Ok((
                crate::read::counts::merge::add_up(&layout, mode, workers, minus)?,
                all,
            ))
        });
        let finished = finished.await;
        finished.map_err(|e| Error::with_source(Kind::Bug, "adding up the counts died", e))?
    }

    /// When the trajectories in the rows of a query begin and end.
    pub async fn spans(&self, frame: DataFrame, layout: &Arc<Layout>) -> Result<Spans> {
        let columns: Vec<_> = (0..layout.n_order())
            .map(|at| ident(at.to_string()))
            .collect();
        let frame = frame
            .select(columns)
            .map_err(|e| failed("the columns of trajectories cannot be selected", e))?;
        let of_streams = Arc::clone(layout);
        let each = self.each_stream(frame, move |_| {
            let push = |batch: &RecordBatch, spans: &mut Spans| spans.push(batch);
            Ok((Spans::new(&of_streams)?, push))
        });
        let each = each.await.map_err(|stop| match stop {
            Stop::Failed(e) => e,
            stop => Error::bug(format!("reading times stopped: {stop:?}")),
        })?;
        let mut all = Spans::new(layout)?;
        for spans in each {
            all.absorb(&spans)?;
        }
        Ok(all)
    }

    /// Runs a query: `start` makes of the number of a stream what hears its batches, which is returned by stream.
    pub(crate) async fn each_stream<T: Send + 'static, P>(
        &self,
        frame: DataFrame,
        start: impl Fn(usize) -> Result<(T, P), Stop> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stop>
    where
        P: FnMut(&RecordBatch, &mut T) -> Result<(), Stop> + Send + 'static,
    {
        loop {
            let n_whole = self.listed.n_whole();
            let heard = self.each_stream_once(frame.clone(), start.clone()).await;
            if !self.is_to_be_read_again(&heard, n_whole) {
                return heard;
            }
        }
    }

    /// Whether reading failed since a row goes on over the end of a part of its file, which is in one part the next time. `n_whole` files
    /// were so before. A row that is wrong for another reason is found in its file again, and its line is known then.
    fn is_to_be_read_again<T>(&self, done: &Result<T, Stop>, n_whole: usize) -> bool {
        let again = matches!(done, Err(Stop::Failed(_))) && self.listed.n_whole() > n_whole;
        if again {
            tracing::info!(
                "a row may go on over the end of a part of its file: reading it in one part"
            );
        }
        again
    }

    pub(crate) async fn each_stream_once<T: Send + 'static, P>(
        &self,
        frame: DataFrame,
        start: impl Fn(usize) -> Result<(T, P), Stop> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stop>
    where
        P: FnMut(&RecordBatch, &mut T) -> Result<(), Stop> + Send + 'static,
    {
        let _reading = Reading::new();
        let plan = self.physical(frame).await?;
        let streams = execute_stream_partitioned(plan, self.context.task_ctx())
            .map_err(|e| failed("the query cannot start", e))?;
        let mut tasks = tokio::task::JoinSet::new();
        for (at, mut stream) in streams.into_iter().enumerate() {
            let start = start.clone();
            tasks.spawn(async move {
                let (mut hearer, mut push) = start(at)?;
                while let Some(batch) = next(&mut stream).await? {
                    push(&batch, &mut hearer)?;
                }
                Ok::<_, Stop>((at, hearer))
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            // The first failure drops the other tasks.
            let done =
                done.map_err(|e| Error::with_source(Kind::Bug, "a counting task died", e))?;
            match done {
                Ok(one) => all.push(one),
                Err(stop) => {
                    tasks.abort_all();
                    return Err(self.named(stop).await);
                }
            }
        }
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, hearer)| hearer).collect())
    }

    /// The same stop; where a file could not be read, with its name.
    async fn named(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Failed(e)
                if e.kind() == Kind::Input
                    && e.to_string().starts_with(READING)
                    // What the SQL computes is no fault of a file.
                    && !e.to_string().contains(crate::read::sql::checked_integers::OVERFLOW) =>
            {
                let damaged = crate::read::lake::damaged::find(&self.context, &self.listed).await;
                let named = damaged.map(|what| Error::input(format!("{READING}: {what}")));
                Stop::Failed(named.unwrap_or(e))
            }
            stop => stop,
        }
    }

    /// Rows of each file of Parquet, as its footer says; nothing where that is not known without reading the file.
    pub async fn rows_of(&self, table: &str, locations: &[String]) -> Vec<Option<u64>> {
        let is_parquet = |t: &Table| t.name == table && t.format == "parquet";
        if !self.tables.iter().any(is_parquet) {
            return vec![None; locations.len()];
        }
        let rows = async |location: &String| {
            let of_table = self.tables.iter().find(|t| t.name == table)?;
            let root = ObjectStoreUrl::parse(&of_table.root).ok()?;
            let store = self.context.runtime_env().object_store(&root).ok()?;
            let path = crate::read::paths::places::path_at(&root, location)?;
            let mut file = StoredFile { store, path };
            let footer = file.get_metadata(None).await.ok()?;
            Some(footer.file_metadata().num_rows() as u64)
        };
        let rows = futures::stream::iter(locations).map(rows).buffered(16);
        rows.collect().await
    }
}

/// The next rows of a stream. Readers, that of Arrow files above all, panic on some damaged bytes.
async fn next(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
    match caught(stream.next()).await {
        Some(batch) => batch.transpose().map_err(|e| failed(READING, e)),
        None => Err(Error::input(format!(
            "{READING}: a file is damaged, or the SQL hit a fault of the query engine; run with -v to see what it said"
        ))),
    }
}

/// Plans a statement that reads and does nothing else; `of` says whose it is.
pub(crate) async fn sql(
    context: &SessionContext,
    of: &str,
    sql: &str,
    parameters: &BTreeMap<String, ScalarValue>,
) -> Result<DataFrame> {
    let options = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let state = context.state();
    let wrong = |what: String| Error::spec(format!("the SQL of {of} cannot be planned: {what}"));
    let plan = |e: DataFusionError| {
        wrong(crate::read::sql::messages::of_plan(
            &e,
            &state,
            &table_names(context),
        ))
    };
    let statement = crate::read::sql::statement::parse(sql, &state).map_err(wrong)?;
    let planned = state.statement_to_plan(statement).await.map_err(plan)?;
    options.verify_plan(&planned).map_err(plan)?;
    let frame = DataFrame::new(state.clone(), planned);
    // Also where there are none: a `$name` without a value is found here.
    let values = parameters
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    frame
        .with_param_values(ParamValues::Map(values))
        .map_err(plan)
}

/// The tables that SQL may name.
fn table_names(context: &SessionContext) -> Vec<String> {
    let catalogs = context.catalog_names().into_iter();
    let catalogs = catalogs.filter_map(|name| context.catalog(&name));
    let schemas = catalogs.flat_map(|catalog| {
        let names = catalog.schema_names().into_iter();
        let own = names.filter(|name| name != "information_schema");
        own.filter_map(move |name| catalog.schema(&name))
            .collect::<Vec<_>>()
    });
    let mut tables: Vec<String> = schemas.flat_map(|schema| schema.table_names()).collect();
    tables.sort();
    tables
}

/// Rows by (partition, trajectory, time).
fn sorted(frame: DataFrame, layout: &Layout) -> Result<DataFrame> {
    let order = (0..layout.n_order())
        .map(|at| col(format!("\"{at}\"")).sort(true, true))
        .collect();
    frame
        .sort(order)
        .map_err(|e| failed("rows cannot be sorted", e))
}
