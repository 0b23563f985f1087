//! Drives a run of filters: training rows → fit → filter rows → write → check → promote.
//!
//! - `points` reads the rows of supervision and of priors.
//! - `fit` fits the filters of every partition.
//! - `scoring` filters batches of rows, `rows` writes their tables.
//! - `assign` filters new rows with a written model, which `known` reads.
//! - `compare` compares two results.

pub mod assign;
pub mod compare;
pub mod fit;
pub(crate) mod known;
pub(crate) mod points;
pub mod record;
pub mod rows;
pub(crate) mod scoring;
pub mod site;

use crate::error::{Error, Result};
use crate::evidence::state_space::StateSpace;
use crate::output;
use crate::output::checkpoint::Checkpoint;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::filters::{FilterScores, FiltersModel};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::filters::FiltersPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::read::state_space::training::training;
use crate::read::state_space::{StateSpaceInput, Widths};
use crate::run::checks::{Candidate, verdict};
use crate::run::failures::Failures;
use crate::run::filters::fit::{FittedPartition, Fitting};
use crate::run::filters::record::{FiltersModelRecord, FiltersRecord};
use crate::run::filters::rows::RowsWritten;
use crate::run::filters::site::{FilterJob, FilterSite, Filters};
use crate::run::model::partition_key;
use crate::run::options::Options;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A plan of filters, the tables that it reads and its query.
pub struct PlannedFilters {
    /// What the run will do.
    pub plan: Arc<FiltersPlan>,
    /// The tables that the query reads.
    pub lake: Lake,
    /// The query, with the columns of the layout.
    pub frame: DataFrame,
}

/// How a run of filters ended.
pub enum FiltersOutcome {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place.
    Done(Box<FiltersRecord>),
}

/// The parts of a run that all stages use.
struct Job<'a> {
    planned: &'a PlannedFilters,
    output: &'a Output,
    begun: &'a Begun,
    work: Arc<Checkpoint>,
    progress: &'a Arc<dyn Progress>,
    site: &'a dyn FilterSite,
}

impl PlannedFilters {
    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    pub fn output(&self) -> Result<Output> {
        Output::open(&self.plan.job.output, &self.plan.job.stores)
    }

    /// Checks that the output can take the result.
    ///
    /// # Errors
    /// If the output cannot be written, or holds the result of another job (unless `force`).
    pub async fn check_places(&self, output: &Output, force: bool) -> Result<()> {
        output.check(&self.plan.table_names())?;
        if !force {
            output.check_job(&self.plan.job.name).await?;
        }
        Ok(())
    }

    /// Runs the plan. A run that fails leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting, filtering, checking or writing.
    pub fn run<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<FiltersOutcome>> {
        Box::pin(async move {
            self.check_places(output, options.force).await?;
            let plan = &self.plan.job;
            let begun = output.begin(&plan.hash).await?;
            let is_done = |c: &Current| c.plan == plan.hash && c.complete;
            if !options.repeats_work() && begun.earlier().is_some_and(is_done) {
                // A run that died right after its commit left its checkpoints behind.
                output.remove_checkpoints(&plan.hash).await;
                return Ok(FiltersOutcome::NothingToDo);
            }
            let threads = self.lake.threads;
            let head = Head::begin(&begun.run, &plan.name, &plan.hash, threads, &plan.tables);
            let mut record = FiltersRecord::new(head);
            progress.recorded(&record);
            let work = output
                .work(&plan.hash, options.repeats_work(), options.keep_every)
                .await;
            let job = Job {
                planned: self,
                output,
                begun: &begun,
                work: Arc::new(work),
                progress: &progress,
                site: options.sites.filters.as_ref(),
            };
            match job.drive(&mut record).await {
                Ok(()) => Ok(FiltersOutcome::Done(Box::new(record))),
                Err(e) => {
                    output.abandon().await;
                    record.head.failed(&e);
                    progress.recorded(&record);
                    output.keep_failed(&begun.run, &record).await;
                    Err(e)
                }
            }
        })
    }
}

impl Job<'_> {
    async fn drive(&self, record: &mut FiltersRecord) -> Result<()> {
        let PlannedFilters { plan, lake, frame } = self.planned;
        let sort = AtomicBool::new(false);
        let input = StateSpaceInput {
            lake,
            frame,
            layout: &plan.layout,
            partitions: &[],
            widths: Widths::default(),
            sort: &sort,
        };
        self.progress.stage("read", None);
        let training = training(input).await?;
        let found = &training.found;
        if found.rows == 0 {
            return Err(Error::input("the SQL of [sequences] gives no rows"));
        }
        let partitions = found.partitions.clone();
        let run = plan.run_schema(partitions.clone());
        record.head.rows_read = found.rows;
        record.head.rows_dropped = found.dropped.0.clone();
        let count = |rows: &StateSpace| {
            if plan.layout.is_static() {
                rows.len()
            } else {
                rows.n_transitions()
            }
        };
        let counts = training
            .partitions
            .iter()
            .map(|own| count(&own.rows) as u64);
        record.transitions = counts.sum();
        let mut points = Vec::with_capacity(plan.fits.len());
        for fit in &plan.fits {
            points.push(points::read(lake, fit, &partitions, training.widths).await?);
        }
        let (rows, bytes) = (found.rows, record.head.input_bytes);
        self.done(record, "read", rows, bytes);

        let job = FilterJob {
            plan,
            lake,
            frame,
            output: self.output,
            begun: self.begun,
            checkpoint: &self.work,
            progress: self.progress,
            sort: &sort,
        };
        let fitting = Arc::new(Fitting {
            plan: Arc::clone(plan),
            training,
            points,
            run,
        });
        let (run, training) = (&fitting.run, &fitting.training);
        let mut failures = Failures::default();
        let (units, empty) = fitting.units(&mut failures)?;
        let fits = self.site.fit(&job, &fitting, &units).await?;
        let fitted = fit::by_partition(run, &units, fits, &mut failures)?;
        failures.finish(fitted.len(), empty.len(), &mut record.head.failures)?;
        record.empty = empty.iter().map(|&at| fit::place_in(run, at)).collect();
        for place in &record.empty {
            tracing::warn!(place, "there are no training rows, so there is no model");
        }
        record.resumed = self.work.taken();
        crate::memory::give_back();
        self.done(record, "fit", fitted.len() as u64, 0);

        self.progress.stage("rows", None);
        self.output.claim_version(self.begun).await?;
        let filters = Filters::new(&fitting, &fitted)?;
        let state = filters.widths.0;
        let written = self.site.rows(&job, run, &filters).await?;
        let n = written.tables.values().sum();
        self.done(record, "rows", n, 0);

        self.progress.stage("write", None);
        let training_rows: Vec<u64> = fitted
            .iter()
            .map(|own| training.partitions[own.partition].rows.len() as u64)
            .collect();
        let models = fitted.into_iter().map(|own| self.model(own, &written));
        let models: Vec<FiltersModel> = models.collect();
        let wanted = self.planned.plan.model_tables();
        let (output, begun) = (self.output, self.begun);
        let mut all = output::stage_filters(output, begun, run, &wanted, &models).await?;
        all.extend(written.tables.clone());
        for &table in all.keys() {
            let bytes = self.output.staged_bytes(&self.begun.run, table).await?;
            record.table_bytes.insert(table, bytes);
        }
        record.head.tables = all;
        let of_models = models.iter().zip(training_rows).map(|(model, n)| {
            let values = partition_key(run, model.partition);
            let rows = written.rows.get(&(model.partition as u32));
            FiltersModelRecord::of(values, model, n, rows.copied().unwrap_or_default())
        });
        record.models = of_models.collect();
        let (rows, bytes) = record.written();
        self.done(record, "write", rows, bytes);
        if !plan.job.checks.is_empty() {
            self.check(run, state, record).await?;
        }
        record.head.outcome = Ended::Done;
        let promotion = Promotion {
            plan: &plan.job.hash,
            complete: record.head.failures.is_empty(),
            tables: &record.head.tables,
            keep: plan.job.keep,
            record: &*record,
            begins: &|| self.progress.promoting(),
        };
        self.output.promote(self.begun, &promotion).await?;
        self.output.remove_checkpoints(&plan.job.hash).await;
        let (rows, bytes) = record.written();
        self.done(record, "promote", rows, bytes);
        Ok(())
    }

    /// Records that a stage is done.
    fn done(&self, record: &mut FiltersRecord, stage: &'static str, rows: u64, bytes: u64) {
        record.head.done(stage, rows, bytes);
        self.progress.recorded(record);
    }

    /// The filters of a partition with the scores of the rows that they filtered.
    fn model(&self, own: FittedPartition, written: &RowsWritten) -> FiltersModel {
        let plan = &self.planned.plan;
        let scores = own.fits.iter().enumerate().map(|(at, fit)| {
            let sums = written.of_fits.get(&(own.partition as u32, at));
            let Some(sums) = sums else {
                return (FilterScores::default(), None);
            };
            let numbers = fit.model.numbers();
            let warning = sums.never_updated().map(|rows| {
                let rows = crate::error::counted(rows, "filtered row");
                match (numbers.state_bandwidth, numbers.observation_bandwidth, numbers.lambda) {
                    (Some(state), Some(observation), Some(lambda)) => format!(
                        "no observation of {rows} changed the estimate: the observations are far from all training rows, or no prior weight is positive; the bandwidths are {state} of the state and {observation} of the observation, and lambda is {lambda}"
                    ),
                    _ => format!("no observation of {rows} changed the estimate"),
                }
            });
            (sums.scores(plan.layout.split.is_some()), warning)
        });
        let scores = scores.collect();
        fit::model(plan, own, scores)
    }

    /// Makes the checks of the plan over the staged tables. A state has `width` numbers.
    ///
    /// # Errors
    /// If a check with `on = "fail"` fails or a check cannot be made.
    async fn check(&self, run: &RunSchema, width: usize, record: &mut FiltersRecord) -> Result<()> {
        let PlannedFilters { plan, lake, .. } = self.planned;
        self.progress.stage("check", None);
        let tables = record.head.tables.keys();
        let tables: Vec<(&'static str, SchemaRef)> = tables
            .map(|&table| (table, plan.schema(table, run, width).0))
            .collect();
        let of_models = record.models.iter();
        let candidate = Candidate {
            lake,
            output: self.output,
            head: &record.head,
            lags: Vec::new(),
            models: of_models.map(|model| (&model.partition, None)).collect(),
            transitions: record.transitions as f64,
            tables,
        };
        let mut outcomes = Vec::new();
        let checked = candidate.check(&plan.job.checks, &mut outcomes).await;
        // The record of a failed run has the checks that were made.
        record.checks = outcomes;
        checked?;
        self.done(record, "check", plan.job.checks.len() as u64, 0);
        verdict(&record.checks)
    }
}
