//! Input files → tables → SQL → streams of batches. No other part of gyre reads the lake.
//!
//! A [`Lake`] is a DataFusion session with the tables of the pipeline and the table functions of
//! gyre. A query gives one stream of batches per thread. Each stream has files in their order, so
//! rows that are in order need no sorting.

pub(crate) mod damaged;
pub(crate) mod declared;
pub mod errors;
pub(crate) mod exact;
pub mod files;
pub mod fingerprint;
pub(crate) mod frozen;
pub mod in_order;
pub(crate) mod merge;
pub(crate) mod misfits;
pub(crate) mod nulled;
pub(crate) mod pages;
pub mod panics;
pub(crate) mod precision;
pub(crate) mod provider;
pub(crate) mod pruned;
pub mod reopen;
pub(crate) mod rounding;
pub(crate) mod spill;
pub mod statistics;
pub mod subset;
pub(crate) mod tables;
pub(crate) mod whole;
pub(crate) mod widened;

use crate::error::{Error, Kind, Result, escaped};
use crate::read::camera::Track;
use crate::read::double_gyre::DoubleGyre;
use crate::read::generated;
use crate::read::hmm_world::Model;
use crate::read::kernel_toy;
use crate::read::lake;
use crate::read::lake::errors::{READING, failed};
use crate::read::lake::files::{LakeTable, Query, TableSource, ident_reference};
use crate::read::lake::frozen::ListedFiles;
use crate::read::lake::pages::PageLimit;
use crate::read::lake::panics::{Reading, catch_panic};
use crate::read::lake::rounding::{numbered, rounding};
use crate::read::lake::spill::SpillFolder;
use crate::read::layers::Layers;
use crate::read::linear_gaussian;
use crate::read::paths::places;
use crate::read::rows::layout::Layout;
use crate::read::rows::stop::Stop;
use crate::read::sql::checked_integers;
use crate::read::sql::checked_integers::CheckedIntegers;
use crate::read::sql::defaults;
use crate::read::sql::floats::OneFloat;
use crate::read::sql::local_times::LocalTimes;
use crate::read::sql::messages;
use crate::read::sql::moments;
use crate::read::sql::statement;
use crate::read::sql::unbounded::Unbounded;
use crate::read::sql::values;
use crate::read::wells::Wells;
use crate::store::Stores;
use crate::store::local::LocalFiles;
use crate::store::parquet::StoredFile;
use arrow::array::RecordBatch;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, ParamValues, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{LogicalPlan, col};
use datafusion::optimizer::Analyzer;
use datafusion::physical_plan::{
    ExecutionPlan, SendableRecordBatchStream, execute_stream_partitioned,
};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use parquet::arrow::async_reader::AsyncFileReader;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What a process may use of its machine.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// Number of threads.
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

/// The SQL of a query, which the pipeline has or a file of its own.
///
/// # Errors
/// [`Kind::Spec`] if the file cannot be read.
pub fn query_text(query: &Query) -> Result<String> {
    match query {
        Query::Sql(sql) => Ok(sql.clone()),
        Query::File(path) => std::fs::read_to_string(path).map_err(|e| {
            Error::with_source(Kind::Spec, format!("SQL file {path} cannot be read"), e)
        }),
    }
}

/// A session with the tables of a pipeline.
pub struct Lake {
    pub(crate) context: SessionContext,
    /// The tables as they were listed.
    pub tables: Vec<LakeTable>,
    /// The stores of the tables and of the output.
    pub stores: Stores,
    /// The threads that its queries use.
    pub threads: usize,
    listed: ListedFiles,
    /// Bytes per stream for rows that are gathered by trajectory, because they are not in order.
    pub(crate) gathered_bytes: usize,
    _spill: Option<SpillFolder>,
}

/// Bytes of stack for every thread that plans or runs SQL: more than the longest accepted statement
/// needs, and as much as main threads have.
pub const STACK_BYTES: usize = 8 << 20;

/// Opens a session in which the tables can be queried by name.
///
/// # Errors
/// If a table has no files, its files do not fit together, or a store fails.
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
    let remote_stores = tables::remote_stores(paths.map(String::as_str));
    let mut lake = empty(resources, stores, remote_stores)?;
    for source in sources {
        let table = tables::register(&lake.context, source, stores, &lake.listed).await;
        let table = table.map_err(|e| e.at(format!("table `{}`", source.name)))?;
        lake.tables.push(table);
    }
    Ok(lake)
}

/// A session without tables, for tables of `remote_stores` remote stores.
fn empty(resources: &Resources, stores: &Stores, remote_stores: usize) -> Result<Lake> {
    let mut config = SessionConfig::new()
        .with_target_partitions(resources.threads)
        .with_batch_size(16_384)
        // Scattering rows over threads would lose their order.
        .with_round_robin_repartition(false)
        .with_information_schema(true)
        // Integer overflow is an error, that of an absolute value included.
        .with_enable_ansi_mode(true);
    let options = config.options_mut();
    options.execution.parquet.schema_force_view_types = false;
    // A limit would also cut off rows that a window function looks ahead to.
    options.optimizer.enable_window_limits = false;
    // Numbers of rows are upper bounds, so a filter of which nothing is known keeps all rows.
    options.optimizer.default_filter_selectivity = 100;
    // It panics for floating groups.
    options.optimizer.enable_topk_aggregation = false;
    // The cache of footers knows path, size and time only, and would confuse files of two buckets.
    let mut runtime = RuntimeEnvBuilder::new();
    if remote_stores > 1 {
        runtime = runtime.with_metadata_cache_limit(0);
    }
    let mut folder = None;
    if let Some(bytes) = resources.memory_bytes {
        let (bounded, made) = spill::bound(runtime, bytes)?;
        (runtime, folder) = (bounded, Some(made));
    }
    let runtime = runtime
        .build_arc()
        .map_err(|e| failed("the query engine cannot start", e))?;
    let local = ObjectStoreUrl::local_filesystem();
    let listed = ListedFiles::default();
    let files = listed.of(local.as_str(), Arc::new(LocalFiles::default()));
    runtime.register_object_store(local.as_ref(), files);
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features();
    if let Some(bytes) = resources.memory_bytes {
        let limit = PageLimit::new(bytes, resources.threads);
        state = state.with_physical_optimizer_rule(Arc::new(limit));
    }
    let context = SessionContext::new_with_state(state.build());
    context.add_analyzer_rule(Arc::new(CheckedIntegers));
    context.add_analyzer_rule(Arc::new(OneFloat));
    context.add_analyzer_rule(Arc::new(LocalTimes));
    context.add_optimizer_rule(Arc::new(Unbounded));
    generated::register::<Track>(&context);
    generated::register::<DoubleGyre>(&context);
    generated::register::<Model>(&context);
    kernel_toy::register(&context);
    linear_gaussian::register(&context);
    generated::register::<Wells>(&context);
    generated::register::<Layers>(&context);
    let room = |bytes: usize| bytes / 2 / resources.threads.max(1);
    Ok(Lake {
        context,
        tables: Vec::new(),
        stores: stores.clone(),
        threads: resources.threads,
        listed,
        gathered_bytes: resources.memory_bytes.map_or(usize::MAX, room),
        _spill: folder,
    })
}

impl Lake {
    /// Plans the query of `[transitions]`.
    ///
    /// # Errors
    /// [`Kind::Spec`] if the SQL is wrong.
    pub async fn query(
        &self,
        sql: &str,
        parameters: &BTreeMap<String, ScalarValue>,
    ) -> Result<DataFrame> {
        self.query_of("transitions", sql, parameters).await
    }

    /// Plans the query of a section of the pipeline. Errors name the section.
    ///
    /// # Errors
    /// [`Kind::Spec`] if the SQL is wrong.
    pub(crate) async fn query_of(
        &self,
        section: &str,
        sql: &str,
        parameters: &BTreeMap<String, ScalarValue>,
    ) -> Result<DataFrame> {
        let of = format!("[{section}]");
        lake::sql(&self.context, &of, sql, parameters).await
    }

    /// A separate session with the tables and functions of this one, to which other tables can be
    /// added.
    ///
    /// # Errors
    /// If a table cannot be registered.
    pub(crate) async fn fork(&self) -> Result<SessionContext> {
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

    /// Selects the columns of a layout, in its order. Column `i` is named `i`.
    ///
    /// # Errors
    /// If the query lacks a column, or a coordinate of boxes has several precisions.
    pub(crate) fn select(&self, frame: DataFrame, layout: &Layout) -> Result<DataFrame> {
        let fields = layout.fields();
        // One column may have two roles, such as a state and a given partition.
        let names = fields.iter().map(|field| field.name().as_str());
        let frame = numbered(frame, names, "[transitions]")?;
        widened::check(frame.logical_plan(), &layout.bins())?;
        rounding(frame, &layout.numbers())
    }

    /// Describes the files that a query reads of each table, and the plans of DataFusion.
    ///
    /// # Errors
    /// If the query cannot be planned.
    pub(crate) async fn explain(&self, frame: DataFrame) -> Result<String> {
        let logical = frame
            .clone()
            .into_optimized_plan()
            .map_err(|e| failed("the query cannot be optimised", e))?;
        let physical = self.physical(frame).await?;
        let files = pruned::show(&self.tables, &physical);
        let mut steps = String::new();
        logical_steps(&logical, 0, &mut steps)
            .map_err(|e| failed("the query cannot be shown", e))?;
        steps += "\nPhysical plan\n";
        physical_steps(physical.as_ref(), 0, &mut steps);
        Ok(format!("Files\n{files}\nLogical plan\n{steps}"))
    }

    async fn physical(&self, frame: DataFrame) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = frame
            .create_physical_plan()
            .await
            .map_err(|e| failed("the query cannot be planned", e))?;
        // Streams must not steal files from each other: every stream keeps the order of its files.
        let ordered = plan.transform_down(|node| {
            Ok(match node.with_preserve_order(true) {
                Some(ordered) => Transformed::yes(ordered),
                None => Transformed::no(node),
            })
        });
        ordered
            .data()
            .map_err(|e| failed("the query cannot be planned", e))
    }

    /// The rows in the order of some of their columns: partition, trajectory, time.
    ///
    /// # Errors
    /// If the sort cannot be planned.
    pub(crate) fn sorted(
        frame: DataFrame,
        columns: impl IntoIterator<Item = usize>,
    ) -> Result<DataFrame> {
        let order = columns
            .into_iter()
            .map(|at| col(format!("\"{at}\"")).sort(true, true))
            .collect();
        frame
            .sort(order)
            .map_err(|e| failed("rows cannot be sorted", e))
    }

    /// Runs a query with one task per stream. `start` makes the receiver of a stream from the
    /// number of the stream, and the function that gives it a batch. Returns the receivers by
    /// stream.
    ///
    /// # Errors
    /// The first error of a stream, a receiver or `start`.
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
            let done = self.each_stream_once(frame.clone(), start.clone()).await;
            if !self.must_read_again(&done, n_whole) {
                return done;
            }
        }
    }

    async fn each_stream_once<T: Send + 'static, P>(
        &self,
        frame: DataFrame,
        start: impl Fn(usize) -> Result<(T, P), Stop> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stop>
    where
        P: FnMut(&RecordBatch, &mut T) -> Result<(), Stop> + Send + 'static,
    {
        let _reading = Reading::new();
        let mut tasks = JoinSet::new();
        for (at, mut stream) in self.streams(frame).await?.into_iter().enumerate() {
            let start = start.clone();
            tasks.spawn(async move {
                let (mut receiver, mut push) = start(at)?;
                while let Some(batch) = next(&mut stream).await? {
                    push(&batch, &mut receiver)?;
                }
                Ok::<_, Stop>((at, receiver))
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let died = |e| Error::with_source(Kind::Bug, "a reading task died", e);
            match done.map_err(died)? {
                Ok(one) => all.push(one),
                Err(stop) => {
                    tasks.abort_all();
                    return Err(self.with_file_name(stop).await);
                }
            }
        }
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, receiver)| receiver).collect())
    }

    /// Runs a query and gives all batches to one receiver, in the order of the files. `start` makes
    /// the receiver, `push` gives it a batch and `finish` makes the result of it.
    ///
    /// # Errors
    /// The first error of a stream, `start`, `push` or `finish`.
    pub(crate) async fn one_stream<T: Send + 'static, R: Send + 'static>(
        &self,
        frame: DataFrame,
        start: impl Fn() -> Result<T>,
        push: fn(&mut T, &RecordBatch) -> Result<(), Stop>,
        finish: fn(T) -> Result<R>,
    ) -> Result<R, Stop> {
        loop {
            let n_whole = self.listed.n_whole();
            let done = self
                .one_stream_once(frame.clone(), start()?, push, finish)
                .await;
            if !self.must_read_again(&done, n_whole) {
                return done;
            }
        }
    }

    async fn one_stream_once<T: Send + 'static, R: Send + 'static>(
        &self,
        frame: DataFrame,
        mut receiver: T,
        push: fn(&mut T, &RecordBatch) -> Result<(), Stop>,
        finish: fn(T) -> Result<R>,
    ) -> Result<R, Stop> {
        let _reading = Reading::new();
        let streams = self.streams(frame).await?;
        // In a task, so that a signal stops the run during `push`. Dropping the set ends the task.
        let mut task = JoinSet::new();
        task.spawn(async move {
            for mut stream in streams {
                while let Some(batch) = next(&mut stream).await? {
                    push(&mut receiver, &batch)?;
                }
            }
            Ok::<_, Stop>(finish(receiver)?)
        });
        match task.join_next().await {
            Some(Ok(Err(stop))) => Err(self.with_file_name(stop).await),
            Some(Ok(done)) => done,
            Some(Err(e)) => Err(Error::with_source(Kind::Bug, "a reading task died", e).into()),
            None => Err(Error::bug("a query has no reading task").into()),
        }
    }

    async fn streams(&self, frame: DataFrame) -> Result<Vec<SendableRecordBatchStream>> {
        let plan = self.physical(frame).await?;
        let streams = execute_stream_partitioned(plan, self.context.task_ctx());
        streams.map_err(|e| failed("the query cannot start", e))
    }

    /// Whether reading failed because a row continues past the end of a part of its file. The next
    /// attempt reads that file in one part; before this attempt `n_whole` files were read so. If
    /// the row is wrong for another reason, the next attempt fails too and knows its line.
    fn must_read_again<T>(&self, done: &Result<T, Stop>, n_whole: usize) -> bool {
        matches!(done, Err(Stop::Failed(_))) && self.reads_another_whole_file(n_whole)
    }

    /// Whether the next attempt reads a file in one part that was read in several parts.
    fn reads_another_whole_file(&self, n_whole: usize) -> bool {
        let again = self.listed.n_whole() > n_whole;
        if again {
            tracing::info!(
                "a row may continue past the end of a part of its file: reading the file in one part"
            );
        }
        again
    }

    /// The same stop. If a file could not be read, the error gets its name.
    async fn with_file_name(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Failed(e) if misfits::is_unplaced(&e.to_string()) => {
                let placed = self.first_misfit().await;
                let placed = placed.map(|what| Error::input(format!("{READING}: {what}")));
                Stop::Failed(placed.unwrap_or(e))
            }
            Stop::Failed(e)
                if e.kind() == Kind::Input
                    && e.to_string().starts_with(READING)
                    // An overflow in the SQL is not the fault of a file.
                    && !e.to_string().contains(checked_integers::OVERFLOW) =>
            {
                let damaged = damaged::find(&self.context, &self.listed).await;
                let named = damaged.map(|what| Error::input(format!("{READING}: {what}")));
                Stop::Failed(named.unwrap_or(e))
            }
            stop => stop,
        }
    }

    /// The number of rows of each Parquet file, from its footer. `None` for other formats, and if
    /// the footer cannot be read.
    pub(crate) async fn rows_of(&self, table: &str, locations: &[String]) -> Vec<Option<u64>> {
        let is_parquet = |t: &LakeTable| t.name == table && t.format == "parquet";
        if !self.tables.iter().any(is_parquet) {
            return vec![None; locations.len()];
        }
        let rows = async |location: &String| {
            let of_table = self.tables.iter().find(|t| t.name == table)?;
            let root = ObjectStoreUrl::parse(&of_table.root).ok()?;
            let store = self.context.runtime_env().object_store(&root).ok()?;
            let path = places::path_at(&root, location)?;
            let mut file = StoredFile::new(store, path);
            let footer = file.get_metadata(None).await.ok()?;
            Some(footer.file_metadata().num_rows() as u64)
        };
        let rows = futures::stream::iter(locations).map(rows).buffered(16);
        rows.collect().await
    }
}

/// Appends the steps of a plan, one per line.
fn logical_steps(plan: &LogicalPlan, depth: usize, to: &mut String) -> Result<(), DataFusionError> {
    *to += &format!(
        "{}{}\n",
        "  ".repeat(depth),
        escaped(&plan.display().to_string())
    );
    plan.apply_subqueries(|plan| {
        logical_steps(plan, depth + 1, to)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut inputs = plan.inputs().into_iter();
    inputs.try_for_each(|plan| logical_steps(plan, depth + 1, to))
}

/// As [`logical_steps`], of a physical plan.
fn physical_steps(plan: &dyn ExecutionPlan, depth: usize, to: &mut String) {
    let shown = datafusion::physical_plan::displayable(plan)
        .one_line()
        .to_string();
    *to += &format!("{}{}\n", "  ".repeat(depth), escaped(shown.trim_end()));
    for input in plan.children() {
        physical_steps(input.as_ref(), depth + 1, to);
    }
}

/// The next batch of a stream. Readers, above all that of Arrow files, panic on some damaged bytes.
async fn next(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
    match catch_panic(stream.next()).await {
        Some(batch) => batch.transpose().map_err(|e| failed(READING, e)),
        None => Err(Error::input(format!(
            "{READING}: a file is damaged, or the SQL hit a fault of the query engine; run with -v to see what it said"
        ))),
    }
}

/// Plans a statement that only reads. `of` names the query in errors.
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
    let plan = |e: DataFusionError| wrong(messages::of_plan(&e, &state, &table_names(context)));
    let mut statement = statement::parse(sql, &state).map_err(wrong)?;
    values::replace(&mut statement, parameters);
    let planned = state.statement_to_plan(statement).await.map_err(plan)?;
    options.verify_plan(&planned).map_err(plan)?;
    let planned = moments::with_zones(planned, parameters);
    let planned = planned.map_err(plan)?.map_err(wrong)?;
    let frame = DataFrame::new(state.clone(), planned);
    // Also without parameters: this step finds a `$name` without a value.
    let named = parameters
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    let frame = frame.with_param_values(ParamValues::Map(named));
    let (state, planned) = frame.map_err(plan)?.into_parts();
    let planned = moments::in_local_time(planned);
    let planned = planned.map_err(plan)?.map_err(wrong)?;
    // Before it, a column has the type of its first branch.
    let coerced = Analyzer::new().execute_and_check(planned, state.config_options(), |_, _| {});
    let coerced = coerced.map_err(plan)?;
    match defaults::changed_default(&coerced).map_err(plan)? {
        Some(what) => Err(wrong(what)),
        None => Ok(DataFrame::new(state, coerced)),
    }
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
