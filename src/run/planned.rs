//! A planned run, or a planned assignment, of any kind of evidence.

use crate::error::{Error, Result};
use crate::output::place::Output;
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, Shown};
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::content::{COUNTS, OBSERVATIONS, SYMBOLS};
use crate::plan::show::shown;
use crate::read::lake::{Lake, Resources};
use crate::run::assign::kind::{AssignOptions, Assigns, PlannedAssignment};
use crate::run::assign::record::AssignSummary;
use crate::run::compare::{Compares, Pair, compare};
use crate::run::counts::kind::CountsKind;
use crate::run::inputs::Inputs;
use crate::run::observations::kind::ObservationsKind;
use crate::run::options::Options;
use crate::run::points::kind::PointsKind;
use crate::run::progress::Progress;
use crate::run::summary::Summary;
use crate::run::symbols::kind::SymbolsKind;
use crate::run::workers::slices::Spread;
use crate::run::workers::task::{Received, Tasks, perform, receive};
use crate::run::{Outcome, Planned};
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use futures::future::{BoxFuture, LocalBoxFuture};
use serde_json::Value;
use std::sync::Arc;

/// A planned run over any kind of evidence.
pub trait AnyRun: Send + Sync {
    /// What the run reads and where it writes.
    fn job(&self) -> &PlannedJob;

    /// The number of fits per model.
    fn n_fits(&self) -> usize;

    /// The tables of the result, with their columns.
    fn schemas(&self) -> Vec<(&'static str, SchemaRef)>;

    /// The tables that the query reads.
    fn lake(&self) -> &Lake;

    /// The query.
    fn frame(&self) -> &DataFrame;

    /// The plan.
    fn plan(&self) -> Shown;

    /// What a second pass over the input does. None if there is none.
    fn rows_text(&self) -> Option<String>;

    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    fn output(&self) -> Result<Output>;

    /// Checks that the output can take the result. Writes nothing.
    ///
    /// # Errors
    /// As [`Planned::check_places`].
    fn check_places<'a>(&'a self, output: &'a Output, force: bool) -> BoxFuture<'a, Result<()>>;

    /// The memory that the run needs. The JSON is null if nothing says how many rows there are.
    ///
    /// # Errors
    /// If the statistics of the files cannot be read.
    fn needs(&self) -> BoxFuture<'_, Result<Shown>>;

    /// How the work would be spread over other machines.
    ///
    /// # Errors
    /// If other machines do not take such a plan.
    fn spread(&self, split: u64) -> BoxFuture<'_, Result<Spread>>;

    /// Runs the plan. None if the output already holds what the run would write. A run that fails
    /// leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting, checking or writing.
    fn run<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<Option<Finished>>>;
}

impl<K: Tasks> AnyRun for Planned<K> {
    fn job(&self) -> &PlannedJob {
        self.plan.job()
    }

    fn n_fits(&self) -> usize {
        self.plan.n_fits()
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        self.plan.schemas()
    }

    fn lake(&self) -> &Lake {
        &self.lake
    }

    fn frame(&self) -> &DataFrame {
        &self.frame
    }

    fn plan(&self) -> Shown {
        shown(self.plan.as_ref())
    }

    fn rows_text(&self) -> Option<String> {
        self.plan.rows_text()
    }

    fn output(&self) -> Result<Output> {
        Planned::output(self)
    }

    fn check_places<'a>(&'a self, output: &'a Output, force: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(Planned::check_places(self, output, force))
    }

    fn needs(&self) -> BoxFuture<'_, Result<Shown>> {
        Box::pin(async move {
            let needs = self.plan.memory(&self.lake, self.frame.clone()).await?;
            Ok(needs.unwrap_or_else(|| Shown {
                text: format!(
                    "  memory grows with rows, and nothing says {}",
                    K::Plan::UNKNOWN
                ),
                json: Value::Null,
            }))
        })
    }

    fn spread(&self, split: u64) -> BoxFuture<'_, Result<Spread>> {
        Box::pin(async move {
            let split = K::split(self, split).await?;
            let width = K::width(self);
            Ok(Spread { width, split })
        })
    }

    fn run<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<Option<Finished>>> {
        Box::pin(async move {
            let record = match self.run_with(output, options, progress).await? {
                Outcome::NothingToDo => return Ok(None),
                Outcome::Done(record) => record,
            };
            let (record, output) = (&*record, &*self.plan.job().output);
            Ok(Some(Finished {
                summary: Summary { record, output }.to_string(),
                has_failures: !record.head.failures.is_empty(),
            }))
        })
    }
}

/// A kind of evidence, as the registry has it.
pub trait AnyKind: Sync {
    /// The name of the kind in results and in tasks.
    fn name(&self) -> &'static str;

    /// Plans a run; `seed` replaces that of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    fn plan(
        &self,
        inputs: Inputs,
        seed: Option<u64>,
    ) -> LocalBoxFuture<'static, Result<Box<dyn AnyRun>>>;

    /// Plans the assignment of new rows to a model.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    fn plan_assignment(
        &self,
        inputs: Inputs,
    ) -> LocalBoxFuture<'static, Result<Box<dyn AnyAssignment>>>;

    /// Compares the results at two outputs.
    ///
    /// # Errors
    /// As [`compare`].
    fn compare<'a>(
        &'a self,
        a: &'a str,
        b: &'a str,
        fits: &'a [Pair],
        lags: Option<&'a Pair>,
    ) -> LocalBoxFuture<'a, Result<Shown>>;

    /// Does a task with the resources of this process.
    fn perform(&self, task: Received, resources: Resources) -> BoxFuture<'static, Result<Vec<u8>>>;
}

impl<K: Tasks + Assigns + Compares> AnyKind for K {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn plan(
        &self,
        inputs: Inputs,
        seed: Option<u64>,
    ) -> LocalBoxFuture<'static, Result<Box<dyn AnyRun>>> {
        Box::pin(async move {
            let planned: Planned<K> = inputs.plan_as(seed).await?;
            Ok(Box::new(planned) as Box<dyn AnyRun>)
        })
    }

    fn plan_assignment(
        &self,
        inputs: Inputs,
    ) -> LocalBoxFuture<'static, Result<Box<dyn AnyAssignment>>> {
        Box::pin(async move {
            let planned: PlannedAssignment<K> = inputs.plan_assignment().await?;
            Ok(Box::new(planned) as Box<dyn AnyAssignment>)
        })
    }

    fn compare<'a>(
        &'a self,
        a: &'a str,
        b: &'a str,
        fits: &'a [Pair],
        lags: Option<&'a Pair>,
    ) -> LocalBoxFuture<'a, Result<Shown>> {
        Box::pin(async move { Ok(Shown::of(&compare::<K>(a, b, fits, lags).await?)) })
    }

    fn perform(&self, task: Received, resources: Resources) -> BoxFuture<'static, Result<Vec<u8>>> {
        perform::<K>(task, resources)
    }
}

/// The kinds of evidence. A new one is a line here.
pub fn kinds() -> [&'static dyn AnyKind; 4] {
    [&CountsKind, &PointsKind, &SymbolsKind, &ObservationsKind]
}

/// The kind of evidence of this name.
///
/// # Errors
/// If there is none.
pub(crate) fn kind_named(
    kinds: &[&'static dyn AnyKind],
    name: &str,
) -> Result<&'static dyn AnyKind> {
    let kind = kinds.iter().find(|kind| kind.name() == name).copied();
    kind.ok_or_else(|| Error::spec(format!("there is no kind of evidence `{name}`")))
}

/// Does a task of one of the kinds with the resources of this process. The future gives the answer.
pub fn perform_task(
    kinds: &[&'static dyn AnyKind],
    task: &[u8],
    resources: &Resources,
) -> BoxFuture<'static, Result<Vec<u8>>> {
    let received = receive(task);
    let kind = received.and_then(|task| Ok((kind_named(kinds, &task.kind)?, task)));
    let resources = *resources;
    Box::pin(async move {
        let (kind, task) = kind?;
        kind.perform(task, resources).await
    })
}

/// A run or an assignment whose tables are in place.
pub struct Finished {
    /// What the program prints.
    pub summary: String,
    /// Whether a partition failed.
    pub has_failures: bool,
}

impl Inputs {
    /// Plans a run over the rows of the pipeline; `seed` replaces that of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub fn plan_any(self, seed: Option<u64>) -> LocalBoxFuture<'static, Result<Box<dyn AnyRun>>> {
        match self.kind() {
            Ok(kind) => kind.plan(self, seed),
            Err(e) => Box::pin(async { Err(e) }),
        }
    }

    /// Plans an assignment of the rows of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub(crate) fn plan_any_assignment(
        self,
    ) -> LocalBoxFuture<'static, Result<Box<dyn AnyAssignment>>> {
        match self.kind() {
            Ok(kind) => kind.plan_assignment(self),
            Err(e) => Box::pin(async { Err(e) }),
        }
    }

    /// The kind of the rows of the pipeline.
    fn kind(&self) -> Result<&'static dyn AnyKind> {
        let of_rows = self.pipeline.transitions.input.kind();
        let kind = kinds().into_iter().find(|kind| kind.name() == of_rows);
        kind.ok_or_else(|| Error::bug("no kind takes the rows of the pipeline"))
    }
}

/// A planned assignment of new rows of any kind to a written model.
pub trait AnyAssignment: Send + Sync {
    /// The tables that the query reads.
    fn lake(&self) -> &Lake;

    /// The folder or URL of the output.
    fn place(&self) -> &str;

    /// Assigns the rows. None if the output already holds what the assignment would write. An
    /// assignment that fails leaves `output` as it was.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        options: &'a AssignOptions,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<Option<Finished>>>;
}

impl<K: Assigns> AnyAssignment for PlannedAssignment<K> {
    fn lake(&self) -> &Lake {
        &self.lake
    }

    fn place(&self) -> &str {
        &self.assignment.output
    }

    fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        options: &'a AssignOptions,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<Option<Finished>>> {
        Box::pin(async move {
            let assigned = PlannedAssignment::assign(self, model, output, options, progress);
            let Some(record) = assigned.await? else {
                return Ok(None);
            };
            let (record, output) = (&*record, output.shown());
            Ok(Some(Finished {
                summary: AssignSummary { record, output }.to_string(),
                has_failures: !record.head.failures.is_empty(),
            }))
        })
    }
}

/// What the rows of a pipeline have instead of transitions between states, if anything.
pub(crate) fn without_transitions(pipeline: &Pipeline) -> Option<&'static str> {
    match pipeline.transitions.input.kind() {
        COUNTS => None,
        SYMBOLS => Some("sequences"),
        OBSERVATIONS => Some("states and observations"),
        kind => Some(kind),
    }
}
