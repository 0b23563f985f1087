//! Drives the stages of a run: count → fit → write → check → promote.
//!
//! Each partition and lag has its own model.

pub mod assign;
pub mod checks;
pub mod compare;
pub(crate) mod failures;
pub mod filters;
pub mod fitted;
pub mod increment;
pub mod init;
pub mod inputs;
pub mod journal;
pub mod local;
pub mod markov;
pub mod model;
pub mod options;
pub mod planned;
pub mod points;
pub mod progress;
pub mod ranks;
pub mod record;
pub mod rows;
pub mod sequences;
pub mod sets;
pub mod site;
pub mod summary;

use crate::error::{Error, Kind, Result};
use crate::output::Fetch;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::table::Table;
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::read::paths::current::Current;
use crate::run::fitted::Fitted;
use crate::run::inputs::PlannedRun;
use crate::run::journal::Journal;
use crate::run::model::at_place;
use crate::run::options::Options;
use crate::run::progress::{Progress, Silent};
use crate::run::record::{Deviation, Ended, ModelRecord, Resumed, RunRecord};
use crate::run::site::{Fits, Job};
use futures::future::BoxFuture;
use std::sync::Arc;

/// How a run ended.
pub enum Outcome {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place; some partitions may have failed.
    Done(Box<RunRecord>),
}

/// Checks that the output can take the result of a plan, and that `names.from` is an output of
/// gyre. Writes nothing.
///
/// # Errors
/// If the output cannot be written, holds the result of another job (unless `force`), or
/// `names.from` holds no result with fits.
pub async fn check_places(plan: &CountsPlan, output: &Output, force: bool) -> Result<()> {
    let tables: Vec<&str> = plan.tables().into_iter().map(Table::name).collect();
    output.check(&tables)?;
    if !force {
        output.check_job(&plan.job.name).await?;
    }
    if let NamesFrom::Output(location) = &plan.names {
        let from = Output::open(location, &plan.job.stores)?;
        let found = from.current().await.map_err(|e| e.at("`names.from`"))?;
        crate::run::sets::check_named(location, found.as_ref())?;
    }
    Ok(())
}

impl PlannedRun {
    /// Runs the plan in this process. A run that fails leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, counting, fitting, checking or writing.
    pub async fn run(&self) -> Result<Outcome> {
        let output = self.output()?;
        self.run_with(&output, &Options::default(), Arc::new(Silent))
            .await
    }

    /// Runs the plan with options, and reports its progress.
    ///
    /// # Errors
    /// If a stage fails: reading, counting, fitting, checking or writing.
    pub fn run_with<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        // A boxed future is compiled once, not again in every crate that polls it.
        Box::pin(async move {
            let plan = &self.plan;
            check_places(plan, output, options.force).await?;
            let begun = output.begin(&plan.job.hash).await?;
            let is_done = |c: &Current| c.plan == plan.job.hash && c.complete;
            if !options.repeats_work() && begun.earlier().is_some_and(is_done) {
                // A run that died right after its commit left its checkpoints behind.
                output.remove_checkpoints(&plan.job.hash).await;
                return Ok(Outcome::NothingToDo);
            }
            let record = RunRecord::new(plan, &begun.run, self.lake.threads);
            let mut journal = Journal::new(record, progress.as_ref());
            match drive(self, output, &begun, options, &progress, &mut journal).await {
                Ok(()) => Ok(Outcome::Done(Box::new(journal.record))),
                Err(e) => {
                    output.abandon().await;
                    journal.record.head.failed(&e);
                    output.keep_failed(&begun.run, &journal.record).await;
                    Err(e)
                }
            }
        })
    }
}

async fn drive(
    planned: &PlannedRun,
    output: &Output,
    begun: &Begun,
    options: &Options,
    progress: &Arc<dyn Progress>,
    journal: &mut Journal<'_>,
) -> Result<()> {
    let (plan, lake) = (&planned.plan, &planned.lake);
    let work = output.work(&plan.job.hash, options.repeats_work(), options.keep_every);
    let work = Arc::new(work.await);
    progress.stage("count", None);
    let job = Job {
        plan,
        lake,
        frame: planned.frame.clone(),
        output,
        checkpoint: &work,
        keep_every: options.keep_every,
        progress,
        earlier: begun.earlier().filter(|_| !options.full_refresh),
    };
    let Fits {
        mut fitted,
        ledger,
        matrices,
    } = options.sites.states.fit(job, journal).await?;
    fitted.keep_names(plan, output, begun.earlier()).await?;
    fitted.warn_of_empty(output, begun.earlier()).await?;
    if plan.markov {
        let plan = Arc::clone(plan);
        fitted = tokio::task::spawn_blocking(move || {
            test_markov(&plan, &mut fitted.models, &mut fitted.records);
            fitted
        })
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "the Markov tests panicked", e))?;
    }
    crate::memory::give_back();
    let record = &mut journal.record;
    record.transitions = fitted.models.iter().map(|m| m.total).sum();
    record.labels = std::mem::take(&mut fitted.labels);
    record.models = std::mem::take(&mut fitted.records);
    record.gone = std::mem::take(&mut fitted.gone);
    record.empty = std::mem::take(&mut fitted.empty);
    let nonzeros = record.models.iter().map(|m| m.nonzeros as u64).sum();
    journal.done("fit", nonzeros, 0);

    let fits = || {
        let models = journal.record.models.iter();
        models.flat_map(|model| {
            let fits = model.fits.iter().map(|fit| fit.resumed);
            fits.chain(model.embeddings.iter().map(|fit| fit.resumed))
        })
    };
    let resumed = (work.taken() > 0).then(|| Resumed {
        counted: fitted.has_resumed_counts,
        fits: fits().filter(|is_resumed| *is_resumed).count(),
        of: fits().count(),
        pieces: work.taken(),
    });
    journal.record.resumed = resumed;
    stage(output, begun, &fitted, matrices.as_deref(), journal).await?;
    if plan.rows.is_some() {
        progress.stage("rows", None);
        let (run, table) = (&begun.run, Table::Rows.name());
        let rows = rows::write(plan, lake, output, run, &fitted, progress.as_ref()).await?;
        let bytes = output.staged_bytes(run, table).await?;
        journal.record.head.tables.insert(table, rows);
        journal.record.table_bytes.insert(table, bytes);
        journal.done("rows", rows, bytes);
    }
    if let Some(ledger) = &ledger {
        output.put_ledger(&begun.run, ledger).await?;
    }
    if !plan.job.checks.is_empty() {
        crate::run::checks::gate(plan, lake, output, &fitted.names, journal).await?;
    }
    journal.record.head.outcome = Ended::Done;
    let promotion = Promotion {
        plan: &plan.job.hash,
        complete: fitted.failures.is_empty(),
        tables: &journal.record.head.tables,
        keep: plan.job.keep,
        record: &journal.record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await?;
    output.remove_checkpoints(&plan.job.hash).await;
    let (rows, bytes) = journal.record.written();
    journal.done("promote", rows, bytes);
    Ok(())
}

/// Checks the certificates and writes the tables to staging, where readers do not see them.
async fn stage(
    output: &Output,
    begun: &Begun,
    fitted: &Fitted,
    matrices: Option<&dyn Fetch>,
    journal: &mut Journal<'_>,
) -> Result<()> {
    journal.progress.stage("write", None);
    check_certificates(fitted)?;
    let (names, models) = (&fitted.names, &fitted.models);
    let written =
        crate::output::stage(output, begun, names, models, matrices, fitted.reuse_sets).await?;
    for &table in written.keys() {
        let bytes = output.staged_bytes(&begun.run, table).await?;
        journal.record.table_bytes.insert(table, bytes);
    }
    journal.record.head.tables = written;
    let (rows, bytes) = journal.record.written();
    journal.done("write", rows, bytes);
    Ok(())
}

/// An error if a certificate does not hold, because then a number of the fit is wrong.
fn check_certificates(fitted: &Fitted) -> Result<()> {
    for model in &fitted.models {
        let fits = fitted.names.fits.iter().zip(&model.certificates);
        let fits = fits.map(|(columns, list)| (&columns.name, list.clone()));
        let embeddings = fitted.names.embeddings.iter().zip(&model.embeddings);
        let embeddings =
            embeddings.map(|(columns, own)| (&columns.name, crate::assess::kernels::of_chain(own)));
        for (name, list) in fits.chain(embeddings) {
            crate::assess::certificates::check(name, &list)
                .map_err(|e| at_place(e, &fitted.names, &model.counts))?;
        }
    }
    Ok(())
}

/// Makes the Markov tests of all fits and adds them to the models and the records.
fn test_markov(plan: &CountsPlan, models: &mut [FittedModel], records: &mut [ModelRecord]) {
    crate::run::markov::test(models, &plan.lags);
    for (model, record) in models.iter().zip(records) {
        for (markov, record) in model.markov.iter().zip(&mut record.fits) {
            let timescales = markov.timescales.iter().zip(&markov.intervals);
            let timescales = timescales.filter_map(|(t, interval)| Some((t.timescale?, *interval)));
            let (timescales, intervals) = timescales.unzip();
            record.timescales = Some(timescales);
            record.timescale_intervals = (plan.resamples() > 0).then_some(intervals);
            let deviation = markov.deviation();
            record.chapman_kolmogorov =
                deviation.map(|(steps, largest)| Deviation { steps, largest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::checkpoint::KEEP_EVERY;
    use crate::plan::pipeline::Pipeline;
    use crate::read::counts;
    use crate::run::local::fit_all;
    use crate::run::progress::Silent;

    const PIPELINE: &str = r#"
[job]
name = "small"
output = "unused"

[tables.rows]
path = "FOLDER/rows.csv"

[transitions]
sql = "SELECT * FROM rows"
time = "t"
state = "s"
lag = [1, 2]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#;

    /// No pipeline gives a wrong fit, so the test changes a certificate between fitting and
    /// writing.
    #[tokio::test]
    async fn a_certificate_that_does_not_hold_leaves_the_old_output() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows: String = (0..60)
            .map(|t| format!("{t},{}\n", t / 7 % 2 * 2 + t * t % 3 % 2))
            .collect();
        std::fs::write(folder.path().join("rows.csv"), format!("t,s\n{rows}")).expect("rows");
        let text = PIPELINE.replace("FOLDER", &folder.path().display().to_string());
        let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
        let inputs = pipeline.open().await.expect("a lake");
        let PlannedRun { plan, lake, frame } = inputs.plan().await.expect("a plan");
        let counted = counts::count(&lake, frame, &plan.layout, Arc::new(|_| ()));
        let store = Arc::new(object_store::memory::InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let work = output.work(&plan.job.hash, false, KEEP_EVERY).await;
        let counted = counted.await.expect("counts");
        let mut fitted = fit_all(&plan, counted, &work, &Silent, &mut Vec::new()).expect("fits");

        let begun = output.begin(&plan.job.hash).await.expect("a store");
        let journal = |begun: &Begun| Journal::new(RunRecord::new(&plan, &begun.run, 1), &Silent);
        let mut first = journal(&begun);
        let staged = stage(&output, &begun, &fitted, None, &mut first).await;
        staged.expect("every certificate holds");
        let promotion = Promotion {
            plan: &plan.job.hash,
            complete: true,
            tables: &first.record.head.tables,
            keep: 2,
            record: &first.record,
            begins: &|| Ok(()),
        };
        let promoted = output.promote(&begun, &promotion).await;
        promoted.expect("a store");
        let before = output.current().await.expect("a result");
        assert_eq!(before.as_ref().map(|c| &c.run), Some(&begun.run));

        let broken = fitted.models[1].certificates[0].iter_mut();
        broken
            .filter(|c| c.name == "pythagoras")
            .for_each(|c| c.holds = Some(false));
        let begun = output.begin(&plan.job.hash).await.expect("a store");
        let error = stage(&output, &begun, &fitted, None, &mut journal(&begun))
            .await
            .expect_err("a certificate is broken");
        assert_eq!(error.kind(), Kind::Check);
        let message = error.to_string();
        let begin = "lag 2: fit `dbmr`: the certificate `pythagoras` does not hold: ";
        assert!(message.starts_with(begin), "{message}");
        assert_eq!(output.current().await.expect("a result"), before);
    }
}
