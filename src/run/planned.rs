//! A planned run, or a planned assignment, of any kind of rows.

use crate::error::Result;
use crate::output::place::Output;
use crate::plan::job::KindPlan;
use crate::plan::pipeline::Pipeline;
use crate::plan::show::{Shown, shown};
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::run::assign::record::AssignSummary;
use crate::run::assign::{AssignOptions, AssignOutcome};
use crate::run::filters::assign::{FilterAssignOutcome, FilterAssignSummary};
use crate::run::filters::record::FiltersSummary;
use crate::run::filters::{FiltersOutcome, PlannedFilters};
use crate::run::inputs::{
    Inputs, PlannedAssignment, PlannedFilterAssignment, PlannedPointAssignment, PlannedRun,
    PlannedSequenceAssignment,
};
use crate::run::options::Options;
use crate::run::points::assign::{PointAssignOutcome, PointAssignSummary};
use crate::run::points::record::PointsSummary;
use crate::run::points::{PlannedPoints, PointsOutcome};
use crate::run::progress::Progress;
use crate::run::record::{Failure, Head};
use crate::run::sequences::assign::{SequenceAssignOutcome, SequenceAssignSummary};
use crate::run::sequences::record::SequencesSummary;
use crate::run::sequences::{PlannedSequences, SequencesOutcome};
use crate::run::summary::Summary;
use crate::run::{Outcome, check_places};
use crate::store::Stores;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use futures::future::LocalBoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// A planned run.
pub enum AnyRun {
    /// Over states, or pairs of states.
    States(PlannedRun),
    /// Over points, or pairs of points.
    Points(PlannedPoints),
    /// Over sequences of symbols.
    Sequences(PlannedSequences),
    /// Over states and observations.
    Filters(PlannedFilters),
}

/// The same expression for a run over any kind of rows.
macro_rules! each {
    ($run:expr, $planned:ident => $what:expr) => {
        match $run {
            AnyRun::States($planned) => $what,
            AnyRun::Points($planned) => $what,
            AnyRun::Sequences($planned) => $what,
            AnyRun::Filters($planned) => $what,
        }
    };
}

/// What all plans have.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The SQL of the rows.
    pub sql: &'a str,
    /// The values of the `$name`s in the SQL.
    pub parameters: &'a BTreeMap<String, ScalarValue>,
    /// The folder or URL of the output.
    pub output: &'a str,
    /// The stores of the output.
    pub stores: &'a Stores,
    /// The input tables and their files.
    pub tables: &'a [Table],
    /// The hash of the plan.
    pub hash: &'a str,
    /// The number of checks.
    pub checks: usize,
}

/// A run or an assignment whose tables are in place.
pub struct Finished {
    /// What the program prints.
    pub summary: String,
    /// Whether a partition failed.
    pub has_failures: bool,
}

impl Finished {
    fn new(summary: &impl Display, head: &Head) -> Finished {
        let failures: &[Failure] = &head.failures;
        Finished {
            summary: summary.to_string(),
            has_failures: !failures.is_empty(),
        }
    }
}

impl Inputs {
    /// Plans a run over the rows of the pipeline; `seed` replaces that of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub fn plan_any(self, seed: Option<u64>) -> LocalBoxFuture<'static, Result<AnyRun>> {
        Box::pin(async move {
            let input = &self.pipeline.transitions.input;
            if input.is_points() {
                return self.plan_points(seed).await.map(AnyRun::Points);
            }
            if input.is_sequences() {
                return self.plan_sequences(seed).await.map(AnyRun::Sequences);
            }
            if input.is_state_space() {
                return self.plan_filters(seed).await.map(AnyRun::Filters);
            }
            self.plan_with(seed).await.map(AnyRun::States)
        })
    }

    /// Plans an assignment of the rows of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub fn plan_any_assignment(self) -> LocalBoxFuture<'static, Result<AnyAssignment>> {
        Box::pin(async move {
            let input = &self.pipeline.transitions.input;
            if input.is_points() {
                let planned = self.plan_point_assignment().await;
                return planned.map(AnyAssignment::Points);
            }
            if input.is_sequences() {
                let planned = self.plan_sequence_assignment().await;
                return planned.map(AnyAssignment::Sequences);
            }
            if input.is_state_space() {
                let planned = self.plan_filter_assignment().await;
                return planned.map(AnyAssignment::Filters);
            }
            self.plan_assignment().await.map(AnyAssignment::States)
        })
    }
}

impl AnyRun {
    /// What all plans have.
    pub fn facts(&self) -> Facts<'_> {
        macro_rules! facts {
            ($plan:expr) => {
                Facts {
                    sql: &$plan.sql,
                    parameters: &$plan.parameters,
                    output: &$plan.output,
                    stores: &$plan.stores,
                    tables: &$plan.tables,
                    hash: &$plan.hash,
                    checks: $plan.checks.len(),
                }
            };
        }
        match self {
            AnyRun::States(run) => facts!(run.plan.job),
            AnyRun::Points(run) => facts!(run.plan.job),
            AnyRun::Sequences(run) => facts!(run.plan.job),
            AnyRun::Filters(run) => facts!(run.plan.job),
        }
    }

    /// The number of fits per model.
    pub fn n_fits(&self) -> usize {
        each!(self, run => run.plan.n_fits())
    }

    /// The tables of the result, with their columns.
    pub fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        each!(self, run => run.plan.schemas())
    }

    /// The tables that the query reads.
    pub fn lake(&self) -> &Lake {
        each!(self, run => &run.lake)
    }

    /// The query.
    pub fn frame(&self) -> &DataFrame {
        each!(self, run => &run.frame)
    }

    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    pub fn output(&self) -> Result<Output> {
        each!(self, run => run.output())
    }

    /// Checks that the output can take the result. Writes nothing.
    ///
    /// # Errors
    /// If the output cannot be written, or holds the result of another job (unless `force`).
    pub async fn check_places(&self, output: &Output, force: bool) -> Result<()> {
        match self {
            AnyRun::States(run) => check_places(&run.plan, output, force).await,
            AnyRun::Points(run) => run.check_places(output, force).await,
            AnyRun::Sequences(run) => run.check_places(output, force).await,
            AnyRun::Filters(run) => run.check_places(output, force).await,
        }
    }

    /// The plan.
    pub fn plan(&self) -> Shown {
        each!(self, run => shown(run.plan.as_ref()))
    }

    /// What the tables of rows will have. None if there is no such table.
    pub fn rows_text(&self) -> Option<String> {
        each!(self, run => run.plan.rows_text())
    }

    /// The memory that the run needs. The JSON is null if nothing says how many rows there are.
    ///
    /// # Errors
    /// If the statistics of the files cannot be read.
    pub async fn needs(&self) -> Result<Shown> {
        let (lake, frame) = (self.lake(), self.frame().clone());
        let shown = each!(self, run => run.plan.memory(lake, frame).await?);
        let unknown = each!(self, run => unknown(run.plan.as_ref()));
        Ok(shown.unwrap_or_else(|| Shown {
            text: format!("  memory grows with rows, and nothing says {unknown}"),
            json: Value::Null,
        }))
    }

    /// Runs the plan. None if the output already holds what the run would write. A run that fails
    /// leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, counting, fitting, checking or writing.
    pub async fn run(
        &self,
        output: &Output,
        options: &Options,
        progress: Arc<dyn Progress>,
    ) -> Result<Option<Finished>> {
        let place = self.facts().output;
        Ok(match self {
            AnyRun::States(run) => match run.run_with(output, options, progress).await? {
                Outcome::NothingToDo => None,
                Outcome::Done(record) => {
                    let (record, output) = (&*record, place);
                    Some(Finished::new(&Summary { record, output }, &record.head))
                }
            },
            AnyRun::Points(run) => match run.run(output, options, progress).await? {
                PointsOutcome::NothingToDo => None,
                PointsOutcome::Done(record) => {
                    let (record, output) = (&*record, place);
                    Some(Finished::new(
                        &PointsSummary { record, output },
                        &record.head,
                    ))
                }
            },
            AnyRun::Filters(run) => match run.run(output, options, progress).await? {
                FiltersOutcome::NothingToDo => None,
                FiltersOutcome::Done(record) => {
                    let (record, output) = (&*record, place);
                    Some(Finished::new(
                        &FiltersSummary { record, output },
                        &record.head,
                    ))
                }
            },
            AnyRun::Sequences(run) => match run.run(output, options, progress).await? {
                SequencesOutcome::NothingToDo => None,
                SequencesOutcome::Done(record) => {
                    let (record, output) = (&*record, place);
                    Some(Finished::new(
                        &SequencesSummary { record, output },
                        &record.head,
                    ))
                }
            },
        })
    }
}

/// A planned assignment of new rows to a written model.
pub enum AnyAssignment {
    /// Of states.
    States(PlannedAssignment),
    /// Of points.
    Points(PlannedPointAssignment),
    /// Of sequences of symbols.
    Sequences(PlannedSequenceAssignment),
    /// Of states and observations.
    Filters(PlannedFilterAssignment),
}

impl AnyAssignment {
    /// The stores of the lake, and the folder or URL of the output.
    pub fn place(&self) -> (&Stores, &str) {
        match self {
            AnyAssignment::States(own) => (&own.lake.stores, &own.assignment.output),
            AnyAssignment::Points(own) => (&own.lake.stores, &own.assignment.output),
            AnyAssignment::Sequences(own) => (&own.lake.stores, &own.assignment.output),
            AnyAssignment::Filters(own) => (&own.lake.stores, &own.assignment.output),
        }
    }

    /// Assigns the rows. None if the output already holds what the assignment would write. An
    /// assignment that fails leaves `output` as it was.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    pub async fn assign(
        &self,
        model: &Output,
        output: &Output,
        options: &AssignOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<Option<Finished>> {
        let (force, place) = (options.force, output.shown());
        Ok(match self {
            AnyAssignment::States(own) => {
                match own.assign(model, output, options, progress).await? {
                    AssignOutcome::NothingToDo => None,
                    AssignOutcome::Done(record) => {
                        let (record, output) = (&record, place);
                        Some(Finished::new(
                            &AssignSummary { record, output },
                            &record.head,
                        ))
                    }
                }
            }
            AnyAssignment::Points(own) => match own.assign(model, output, force, progress).await? {
                PointAssignOutcome::NothingToDo => None,
                PointAssignOutcome::Done(record) => {
                    let (record, output) = (&*record, place);
                    Some(Finished::new(
                        &PointAssignSummary { record, output },
                        &record.head,
                    ))
                }
            },
            AnyAssignment::Filters(own) => {
                match own.assign(model, output, force, progress).await? {
                    FilterAssignOutcome::NothingToDo => None,
                    FilterAssignOutcome::Done(record) => {
                        let (record, output) = (&*record, place);
                        Some(Finished::new(
                            &FilterAssignSummary { record, output },
                            &record.head,
                        ))
                    }
                }
            }
            AnyAssignment::Sequences(own) => {
                match own.assign(model, output, force, progress).await? {
                    SequenceAssignOutcome::NothingToDo => None,
                    SequenceAssignOutcome::Done(record) => {
                        let (record, output) = (&*record, place);
                        Some(Finished::new(
                            &SequenceAssignSummary { record, output },
                            &record.head,
                        ))
                    }
                }
            }
        })
    }
}

fn unknown<P: KindPlan>(_: &P) -> &'static str {
    P::UNKNOWN
}

/// What the rows of a pipeline have instead of transitions between states, if anything.
pub fn without_transitions(pipeline: &Pipeline) -> Option<&'static str> {
    let input = &pipeline.transitions.input;
    if input.is_points() {
        return Some("points");
    }
    if input.is_state_space() {
        return Some("states and observations");
    }
    input.is_sequences().then_some("sequences")
}
