//! Drives a run over sequences: count → fit → rows → write → check → promote.
//!
//! Windows are counted as pairs are, with increments. The rows are read again to filter them, and
//! for fits that choose a rank, hold rows out or run the Baum–Welch algorithm.

pub mod assign;
pub mod compare;
pub(crate) mod fit;
mod held_out;
pub(crate) mod known;
pub mod record;
pub(crate) mod rows;
pub(crate) mod scoring;
pub mod site;
mod training;

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::checkpoints;
use crate::methods::hmm::project::Projection;
use crate::output;
use crate::output::checkpoint::Checkpoint;
use crate::output::ledger::Ledger;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::sequences::{PREDICTIONS, SequenceTables, SequencesModel, TRAJECTORIES};
use crate::plan::increments::Increments;
use crate::plan::sequences::{HeldOut, SequencesPlan};
use crate::read::counts::counted::Counted;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::read::sequences::SequenceInput;
use crate::run::checks::{Candidate, verdict};
use crate::run::increment::Counting;
use crate::run::model::partition_key;
use crate::run::options::Options;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use crate::run::sequences::fit::{Evidence, evidence};
use crate::run::sequences::record::{SequencesModelRecord, SequencesRecord};
use crate::run::sequences::rows::{RowFit, RowModel, RowTables, RowsWritten};
use crate::run::sequences::site::SequenceJob;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Counts are checkpointed if counting took at least this many times
/// [`Options::keep_every`].
const COUNTING: u32 = 5;

/// The name of the counts among the checkpoints of a plan.
const COUNTED: &str = "counted";

/// A plan over sequences, the tables that it reads and its query.
pub struct PlannedSequences {
    /// What the run will do.
    pub plan: Arc<SequencesPlan>,
    /// The tables that the query reads.
    pub lake: Lake,
    /// The query, with the columns of the layout.
    pub frame: DataFrame,
}

/// How a run over sequences ended.
pub enum SequencesOutcome {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place.
    Done(Box<SequencesRecord>),
}

/// Decompositions by partition, or why there is none.
type Projections = BTreeMap<usize, Result<Vec<Projection>>>;

/// The parts of a run that all stages use.
struct Job<'a> {
    planned: &'a PlannedSequences,
    output: &'a Output,
    begun: &'a Begun,
    options: &'a Options,
    work: Arc<Checkpoint>,
    progress: &'a Arc<dyn Progress>,
}

impl PlannedSequences {
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
    /// If a stage fails: reading, counting, fitting, checking or writing.
    pub fn run<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<SequencesOutcome>> {
        Box::pin(async move {
            self.check_places(output, options.force).await?;
            let plan = &self.plan;
            let begun = output.begin(&plan.job.hash).await?;
            let is_done = |c: &Current| c.plan == plan.job.hash && c.complete;
            if !options.repeats_work() && begun.earlier().is_some_and(is_done) {
                // A run that died right after its commit left its checkpoints behind.
                output.remove_checkpoints(&plan.job.hash).await;
                return Ok(SequencesOutcome::NothingToDo);
            }
            let threads = self.lake.threads;
            let head = Head::begin(
                &begun.run,
                &plan.job.name,
                &plan.job.hash,
                threads,
                &plan.job.tables,
            );
            let mut record = SequencesRecord::new(head);
            progress.recorded(&record);
            let work = output
                .work(&plan.job.hash, options.repeats_work(), options.keep_every)
                .await;
            let job = Job {
                planned: self,
                output,
                begun: &begun,
                options,
                work: Arc::new(work),
                progress: &progress,
            };
            match job.drive(&mut record).await {
                Ok(()) => Ok(SequencesOutcome::Done(Box::new(record))),
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
    async fn drive(&self, record: &mut SequencesRecord) -> Result<()> {
        let PlannedSequences { plan, lake, frame } = self.planned;
        self.progress.stage("count", None);
        let (counted, made, ledger) = self.count(record).await?;
        let rows = counted.rows;
        let bytes = record.head.input_bytes;
        self.done(record, "count", rows, bytes);

        self.progress.stage("fit", None);
        let (of, work) = (Arc::clone(plan), Arc::clone(&self.work));
        let found = blocking(move || {
            let mut found = evidence(&of, counted)?;
            let failures = fit::project_all(&of, &mut found, rows, made, &work)?;
            Ok::<_, Error>((found, failures))
        });
        let (found, mut failures) = found.await??;
        let n_empty = found.empty.len();
        if found.partitions.is_empty() {
            return failures.finish(0, n_empty, &mut record.head.failures);
        }
        let found = Arc::new(found);
        record.empty = found.empty.iter().map(|&at| found.place(at)).collect();
        for place in &record.empty {
            tracing::warn!(place, "no window of rows was counted, so there is no model");
        }
        let symbols = found.symbols.clone();
        let input = SequenceInput {
            lake,
            frame,
            layout: &plan.layout,
            symbols: &symbols,
            sort: &AtomicBool::new(false),
        };
        let training = fit::read_training(plan, &found, input).await?.map(Arc::new);
        let choices = fit::choose(
            plan,
            Arc::clone(&found),
            training.clone(),
            input,
            &self.work,
        );
        let choices = choices.await?;
        let (of, work) = (Arc::clone(plan), Arc::clone(&self.work));
        let fitted = blocking(move || {
            let Ok(mut found) = Arc::try_unwrap(found) else {
                return Err(Error::bug("the counts are in use"));
            };
            let training = training.as_ref().map(|all| &all[..]);
            let fail = &mut failures;
            let models = fit::finish(&of, &mut found, training, choices, &work, fail)?;
            Ok((found, models, failures))
        });
        let (found, mut models, failures) = fitted.await??;
        failures.finish(models.len(), n_empty, &mut record.head.failures)?;
        crate::memory::give_back();
        record.resumed = self.work.taken();
        record.windows = models.iter().map(SequencesModel::n_windows).sum();
        self.done(record, "fit", models.len() as u64, 0);

        self.progress.stage("rows", None);
        self.output.claim_version(self.begun).await?;
        let written = self.rows(&found, &models, input).await?;
        self.score(&mut models, &written);
        let short: u64 = written.rows.values().map(|rows| rows.short).sum();
        if short > 0 {
            let window = 2 * plan.rows().block + 1;
            let reason = format!("sequence of fewer than {window} rows");
            record.head.rows_dropped.insert(reason.into(), short);
        }
        let n = written.tables.values().sum();
        self.done(record, "rows", n, 0);

        self.progress.stage("write", None);
        let fits = plan.fit_columns();
        let tables = SequenceTables {
            run: &found.run,
            block: plan.rows().block,
            fits: &fits,
        };
        let wanted = plan.model_tables();
        let (output, begun) = (self.output, self.begun);
        let mut all = output::stage_sequences(output, begun, &tables, &wanted, &models).await?;
        all.extend(written.tables.clone());
        for &table in all.keys() {
            let bytes = self.output.staged_bytes(&self.begun.run, table).await?;
            record.table_bytes.insert(table, bytes);
        }
        record.head.tables = all;
        let of_models = models.iter();
        let of_models = of_models.map(|model| {
            let values = partition_key(&found.run, model.partition);
            SequencesModelRecord::of(values, model, &written)
        });
        record.models = of_models.collect();
        let (rows, bytes) = record.written();
        self.done(record, "write", rows, bytes);
        if let Some(ledger) = &ledger {
            self.output.put_ledger(&self.begun.run, ledger).await?;
        }
        if !plan.job.checks.is_empty() {
            self.check(&found.run, record).await?;
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
    fn done(&self, record: &mut SequencesRecord, stage: &'static str, rows: u64, bytes: u64) {
        record.head.done(stage, rows, bytes);
        self.progress.recorded(record);
    }

    /// Counts the windows, or takes the counts of a run that did not end.
    async fn count(
        &self,
        record: &mut SequencesRecord,
    ) -> Result<(Counted, Projections, Option<Ledger>)> {
        let PlannedSequences { plan, lake, frame } = self.planned;
        let start = Instant::now();
        let has_ledger = matches!(plan.increments, Increments::Of { .. });
        let work = Arc::clone(&self.work);
        let kept = blocking(move || {
            // The ledger holds the counts of a plan that counts new files only.
            (!has_ledger)
                .then(|| checkpoints::find(work.as_ref(), COUNTED))
                .flatten()
        });
        let kept: Option<Counted> = kept.await?;
        let is_kept = kept.is_some();
        let mut projections = BTreeMap::new();
        let Counting {
            counted,
            ledger,
            record: increment,
        } = match kept {
            Some(counted) => Counting {
                counted,
                ledger: None,
                record: None,
            },
            None => {
                let job = SequenceJob {
                    plan,
                    lake,
                    frame,
                    output: self.output,
                    checkpoint: &self.work,
                    progress: self.progress,
                    earlier: self.begun.earlier().filter(|_| !self.options.full_refresh),
                };
                let counts = self.options.sites.sequences.count(&job).await?;
                projections = counts.projections;
                counts.counting
            }
        };
        record.increment = increment;
        record.head.rows_read = counted.rows;
        record.head.rows_dropped = fit::dropped(&counted.dropped);
        let took = start.elapsed();
        let is_worth_keeping =
            !is_kept && ledger.is_none() && took >= COUNTING * self.options.keep_every;
        if !is_worth_keeping {
            return Ok((counted, projections, ledger));
        }
        let work = Arc::clone(&self.work);
        let counted = blocking(move || {
            checkpoints::keep(work.as_ref(), COUNTED, took, &counted);
            counted
        });
        Ok((counted.await?, projections, ledger))
    }

    /// Filters all rows and writes their tables.
    async fn rows(
        &self,
        found: &Evidence,
        models: &[SequencesModel],
        input: SequenceInput<'_>,
    ) -> Result<RowsWritten> {
        let plan = &self.planned.plan;
        let numbers: Vec<Vec<u32>> = models
            .iter()
            .map(|model| found.numbers(&model.symbols))
            .collect();
        let mut of_rows: Vec<Option<RowModel<'_>>> = Vec::new();
        of_rows.resize_with(found.n_partitions, || None);
        for (model, numbers) in models.iter().zip(&numbers) {
            let fits = model.fits.iter().zip(&plan.fits).map(|(fit, planned)| {
                let own = planned.method.hmm();
                RowFit {
                    model: &fit.model,
                    unigram: own.unigram,
                    floor: own.floor,
                }
            });
            of_rows[model.partition] = Some(RowModel {
                numbers,
                fits: fits.collect(),
            });
        }
        let fits = plan.fit_columns();
        let schema = |table: &str| plan.schema(table, &found.run).0;
        let tables = RowTables {
            trajectories: schema(TRAJECTORIES),
            predictions: plan.predictions.then(|| schema(PREDICTIONS)),
            fits: &fits,
            models: of_rows,
            output: self.output,
            begun: self.begun,
        };
        rows::write(input, &tables, &|n| self.progress.advance(n)).await
    }

    /// Adds to the fits what filtering all rows found.
    fn score(&self, models: &mut [SequencesModel], written: &RowsWritten) {
        let plan = &self.planned.plan;
        for model in models {
            for (at, fit) in model.fits.iter_mut().enumerate() {
                let Some(of_rows) = written.of_fits.get(&(model.partition as u32, at)) else {
                    continue;
                };
                let (sum, n) = of_rows.train;
                if n > 0 && fit.train.is_none() {
                    fit.train = Some(sum / n as f64);
                }
                if plan.held_out == HeldOut::Split {
                    fit.held_out = of_rows.test.score(0);
                }
                let rows = of_rows.rows as f64;
                let all = rows * fit.model.n_classes() as f64;
                if rows > 0.0 {
                    fit.diagnostics.negative_share = Some(of_rows.negatives as f64 / all);
                    fit.diagnostics.negative_mass = Some(of_rows.negative_mass / rows);
                }
                fit.diagnostics.resets = Some(of_rows.resets);
            }
        }
    }

    /// Makes the checks of the plan over the staged tables.
    ///
    /// # Errors
    /// If a check with `on = "fail"` fails or a check cannot be made.
    async fn check(&self, run: &RunSchema, record: &mut SequencesRecord) -> Result<()> {
        let PlannedSequences { plan, lake, .. } = self.planned;
        self.progress.stage("check", None);
        let tables = record.head.tables.keys();
        let tables: Vec<(&'static str, SchemaRef)> = tables
            .map(|&table| (table, plan.schema(table, run).0))
            .collect();
        let of_models = record.models.iter();
        let candidate = Candidate {
            lake,
            output: self.output,
            head: &record.head,
            lags: Vec::new(),
            models: of_models.map(|model| (&model.partition, None)).collect(),
            transitions: record.windows,
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

/// Runs a long computation on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, "a computation panicked", e))
}
