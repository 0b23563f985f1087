//! Drives the stages: count → shard and fit → write → check → promote, each partition and lag a model of its own.

use crate::checks;
use crate::count::{Counted, Counts, describe, escaped, key_text};
use crate::error::{Error, Kind, Result};
use crate::increment::{self, Counting};
use crate::journal::Journal;
use crate::lineage::{self, Kept};
use crate::manifest::{BootstrapRecord, Deviation, Failure, ModelRecord, Resumed, RunRecord};
use crate::markov;
use crate::memory;
use crate::model::{fit_model, nothing_connected};
use crate::plan::{Increments, Plan};
use crate::read::Lake;
use crate::reduce::certificates;
use crate::runner;
use crate::write::{self, Begun, Current, Model, Names, Output, Promotion, Work};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hears how a run goes on. All calls may come from any thread.
pub trait Progress: Send + Sync {
    /// A stage begins; `total` units of work are ahead if it is known.
    fn stage(&self, _name: &'static str, _total: Option<u64>) {}
    /// Units of work of the present stage are done.
    fn advance(&self, _units: u64) {}
    /// The record of the run so far: when it begins and after every stage.
    fn recorded(&self, _record: &RunRecord) {}
    /// The result is being put in place: too late to stop.
    fn promoting(&self) {}
}

/// Hears nothing.
pub struct Silent;

impl Progress for Silent {}

/// How a run ended.
pub enum Outcome {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place; some partitions may have failed.
    Done(Box<RunRecord>),
}

/// Finished work is written so often: a run that dies loses about so much, a run that takes less writes nothing, and no store is asked more
/// than once in that time but for pieces that took as long.
pub const KEEP_EVERY: Duration = Duration::from_secs(1);

/// Counts are large beside what counting takes: they are worth keeping if it took so many times as long.
const COUNTING: u32 = 5;

/// What a run is told beside its plan.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For the record: results do not depend on it.
    pub threads: usize,
    /// Run even if the output is up to date, and do all work anew.
    pub force: bool,
    /// Count all rows anew, whatever the ledger says, and run even if the output is up to date.
    pub full_refresh: bool,
    /// How often finished work is kept for the next run: [`KEEP_EVERY`], unless a test is in a hurry.
    pub keep_every: Duration,
}

/// Runs a plan: `frame` is its query. A run that fails leaves the output as it was.
pub fn run<'a>(
    plan: Arc<Plan>,
    lake: &'a Lake,
    frame: DataFrame,
    output: &'a Output,
    options: &'a Options,
    progress: Arc<dyn Progress>,
) -> BoxFuture<'a, Result<Outcome>> {
    // Boxed, as are the futures of `plan` and `open`: one that is not is compiled again in every program that polls it.
    Box::pin(async move {
        let outcome = drive(plan, lake, frame, output, options, progress).await;
        if outcome.is_err() {
            output.abandon().await;
        }
        outcome
    })
}

async fn drive(
    plan: Arc<Plan>,
    lake: &Lake,
    frame: DataFrame,
    output: &Output,
    options: &Options,
    progress: Arc<dyn Progress>,
) -> Result<Outcome> {
    let begun = output.begin(&plan.hash).await?;
    let is_done = |c: &Current| c.plan == plan.hash && c.complete;
    let again = options.force || options.full_refresh;
    if !again && begun.earlier().is_some_and(is_done) {
        // A run that died after its result was in place has left it.
        output.forget_work(&plan.hash).await;
        return Ok(Outcome::NothingToDo);
    }
    let mut journal = Journal::new(
        RunRecord::new(&plan, &begun.run, options.threads),
        progress.as_ref(),
    );

    let work = output.work(&plan.hash, again, options.keep_every);
    let work = Arc::new(work.await);
    progress.stage("count", None);
    let start = Instant::now();
    let kept = counted_before(&plan, &work).await?;
    let is_counted = kept.is_some();
    let hear = Arc::clone(&progress);
    let Counting {
        counted,
        ledger,
        record: increment,
    } = match kept {
        Some(counting) => counting,
        None => {
            let earlier = begun.earlier().filter(|_| !options.full_refresh);
            let hear = Arc::new(move |rows| hear.advance(rows as u64));
            increment::count(&plan, lake, frame, output, earlier, hear).await?
        }
    };
    let counting = start.elapsed();
    // Where files are counted one by one, what was counted is in the objects of the ledger.
    let is_worth_it = !is_counted && ledger.is_none() && counting >= COUNTING * options.keep_every;
    journal.record.increment = increment;
    journal.record.head.rows_read = counted.rows;
    journal.record.head.rows_dropped = counted.dropped.0.clone();
    journal.done("count", counted.rows, journal.record.head.input_bytes);
    check_not_empty(&counted)?;
    memory::give_back();

    let fitted = {
        let (plan, progress) = (Arc::clone(&plan), Arc::clone(&progress));
        let work = Arc::clone(&work);
        tokio::task::spawn_blocking(move || {
            if is_worth_it {
                runner::keep(work.as_ref(), COUNTED, counting, &counted);
            }
            fit_all(&plan, counted, &work, progress.as_ref())
        })
    };
    let mut fitted = fitted
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "fitting died", e))??;
    fitted.keep_names(&plan, output, begun.earlier()).await?;
    if plan.markov {
        let plan = Arc::clone(&plan);
        let tested = tokio::task::spawn_blocking(move || {
            test_markov(&plan, &mut fitted.models, &mut fitted.records);
            fitted
        });
        fitted = (tested.await).map_err(|e| Error::with_source(Kind::Bug, "a test died", e))?;
    }
    memory::give_back();
    let record = &mut journal.record;
    record.transitions = fitted.models.iter().map(|m| m.total).sum();
    record.labels = std::mem::take(&mut fitted.labels);
    record.models = std::mem::take(&mut fitted.records);
    record.gone = std::mem::take(&mut fitted.gone);
    record.head.failures.clone_from(&fitted.failures);
    let nonzeros = record.models.iter().map(|m| m.nonzeros as u64).sum();
    journal.done("fit", nonzeros, 0);

    let fits = || journal.record.models.iter().flat_map(|model| &model.fits);
    let resumed = (work.taken() > 0).then(|| Resumed {
        counted: is_counted,
        fits: fits().filter(|fit| fit.resumed).count(),
        of: fits().count(),
        pieces: work.taken(),
    });
    journal.record.resumed = resumed;
    stage(output, &begun, &fitted, &mut journal).await?;
    if let Some(ledger) = &ledger {
        output.put_ledger(&begun.run, ledger).await?;
    }
    if !plan.checks.is_empty() {
        checks::gate(&plan, lake, output, &fitted.names, &mut journal).await?;
    }
    let promotion = Promotion {
        plan: &plan.hash,
        complete: fitted.failures.is_empty(),
        tables: &journal.record.head.tables,
        keep: plan.keep,
        record: &journal.record,
    };
    progress.promoting();
    output.promote(&begun, &promotion).await?;
    output.forget_work(&plan.hash).await;
    let (rows, bytes) = journal.record.written();
    journal.done("promote", rows, bytes);
    Ok(Outcome::Done(Box::new(journal.record)))
}

/// The name of the counts among the work of a plan.
const COUNTED: &str = "counted";

/// The counts that an earlier run has kept. Those of a plan that counts by files are in its ledger's objects.
async fn counted_before(plan: &Plan, work: &Arc<Work>) -> Result<Option<Counting>> {
    if matches!(plan.increments, Increments::Of { .. }) {
        return Ok(None);
    }
    let work = Arc::clone(work);
    let found = tokio::task::spawn_blocking(move || runner::find(work.as_ref(), COUNTED));
    let found = found
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "reading the counts died", e))?;
    Ok(found.map(|counted| Counting {
        counted,
        ledger: None,
        record: None,
    }))
}

/// Checks the fits, writes the tables where nobody sees them yet, and checks those.
async fn stage(
    output: &Output,
    begun: &Begun,
    fitted: &Fitted,
    journal: &mut Journal<'_>,
) -> Result<()> {
    journal.progress.stage("write", None);
    check_certificates(fitted)?;
    let written = write::stage(output, begun, &fitted.names, &fitted.models, fitted.again).await?;
    for &table in written.keys() {
        let bytes = output.staged_bytes(&begun.run, table).await?;
        journal.record.table_bytes.insert(table, bytes);
    }
    journal.record.head.tables = written;
    let (rows, bytes) = journal.record.written();
    journal.done("write", rows, bytes);
    Ok(())
}

/// A certificate that does not hold stops the run: some number of its fit is wrong.
fn check_certificates(fitted: &Fitted) -> Result<()> {
    for model in &fitted.models {
        for (columns, list) in fitted.names.fits.iter().zip(&model.certificates) {
            certificates::check(&columns.name, list).map_err(|e| {
                match place(&fitted.names, &model.counts) {
                    place if place.is_empty() => e,
                    place => e.at(place),
                }
            })?;
        }
    }
    Ok(())
}

fn check_not_empty(counted: &Counted) -> Result<()> {
    if counted.rows == 0 {
        return Err(Error::input("the SQL of [transitions] gives no rows"));
    }
    if counted.counts.iter().all(|c| c.nnz() == 0) {
        let left_out = |c: &Counts| c.left_out.as_ref().is_some_and(|l| l.transitions > 0.0);
        if counted.counts.iter().any(left_out) {
            return Err(nothing_connected());
        }
        let reasons = counted
            .dropped
            .0
            .iter()
            .map(|(reason, rows)| format!(", {rows} dropped for {reason}"))
            .collect::<String>();
        return Err(Error::input(format!(
            "no transition was found in {} rows{reasons}; check the lag against the times of a trajectory",
            counted.rows
        )));
    }
    Ok(())
}

struct Fitted {
    names: Names,
    models: Vec<Model>,
    records: Vec<ModelRecord>,
    failures: Vec<Failure>,
    labels: BTreeMap<String, Vec<String>>,
    /// The run that made the output is run again.
    again: bool,
    /// Models of the earlier result that are no more.
    gone: Vec<String>,
}

impl Fitted {
    /// Gives the sets the names that they have in the earlier result.
    async fn keep_names(
        &mut self,
        plan: &Plan,
        output: &Output,
        replaced: Option<&Current>,
    ) -> Result<()> {
        let is_whole = self.failures.is_empty();
        let (names, models) = (&self.names, &mut self.models);
        let Kept { again, gone } =
            lineage::keep(plan, output, replaced, names, models, is_whole).await?;
        // A model that failed is told of already.
        let failed = |place: &String| self.failures.iter().any(|f| f.partition == *place);
        self.gone = gone.into_iter().filter(|place| !failed(place)).collect();
        self.again = again;
        let confidence = plan.validation.as_ref().map_or(0.0, |v| v.confidence);
        for (record, model) in self.records.iter_mut().zip(&self.models) {
            for (record, bootstrap) in record.fits.iter_mut().zip(&model.bootstraps) {
                record.bootstrap = Some(BootstrapRecord::new(bootstrap, confidence));
            }
            let fits = record.fits.iter_mut().zip(&model.fits);
            for ((record, fit), lineage) in fits.zip(&model.lineage) {
                record.source_sizes.clone_from(&fit.metrics.source_sizes);
                let is_news = lineage.changes.is_some() && !again;
                record.lineage = is_news.then(|| lineage.clone());
            }
        }
        Ok(())
    }
}

/// Fits every partition and lag. One that fails is told by its key and the others go on; if all fail, so does the run.
fn fit_all(plan: &Plan, counted: Counted, work: &Work, progress: &dyn Progress) -> Result<Fitted> {
    let Counted {
        partitions,
        sources,
        targets,
        counts,
        labels,
        ..
    } = counted;
    let label_counts: Vec<usize> = labels.iter().map(|l| l.len()).collect();
    let names = Names {
        partition: plan.layout.partition.clone(),
        partitions,
        lag: plan.lag_column(),
        sources,
        targets,
        is_weighted: plan.layout.is_weighted(),
        fits: plan.fit_columns(&label_counts),
        tables: plan.tables(),
    };
    let units = counts.len() * (plan.fits.len() + plan.resamples());
    progress.stage("fit", Some(units as u64));
    let several = counts.len() > 1;
    let results: Vec<_> = counts
        .into_par_iter()
        .map(|counts| {
            let place = place(&names, &counts);
            fit_model(plan, &names, counts, work, progress).map_err(|e| (place, e))
        })
        .collect();
    let (mut models, mut records, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for result in results {
        match result {
            Ok((model, record)) => {
                models.push(model);
                records.push(record);
            }
            Err((place, e)) => {
                tracing::error!(partition = place, "{}", e.full());
                failures.push(Failure {
                    partition: place.clone(),
                    message: e.full(),
                });
                first.get_or_insert(if several { e.at(place) } else { e });
            }
        }
    }
    if models.is_empty() {
        return Err(first.unwrap_or_else(|| Error::bug("there was nothing to fit")));
    }
    let labels = plan
        .layout
        .given
        .iter()
        .zip(&labels)
        .map(|(field, labels)| {
            let labels = (0..labels.len())
                .map(|at| describe(std::slice::from_ref(labels), at))
                .collect();
            (field.name().clone(), labels)
        });
    Ok(Fitted {
        labels: labels.collect(),
        names,
        models,
        records,
        failures,
        again: false,
        gone: Vec::new(),
    })
}

/// Tests the sets of all fits, for the tables and the records.
fn test_markov(plan: &Plan, models: &mut [Model], records: &mut [ModelRecord]) {
    markov::test(models, &plan.lags);
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

/// A partition and lag in words: `airline=FR, lag 5d`.
pub(crate) fn place(names: &Names, counts: &Counts) -> String {
    let mut parts: Vec<String> = partition_key(names, counts)
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escaped(&value)))
        .collect();
    if let Some(lag) = names.lag.text(counts.lag) {
        parts.push(format!("lag {lag}"));
    }
    parts.join(", ")
}

pub(crate) fn partition_key(names: &Names, counts: &Counts) -> BTreeMap<String, String> {
    let columns = names.partition.iter().zip(&names.partitions);
    columns
        .map(|(f, c)| {
            (
                f.name().clone(),
                key_text(std::slice::from_ref(c), counts.partition),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::read::{self, Resources, TableSource};
    use crate::spec::Spec;

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

    /// No pipeline makes a fit that is wrong, so the wrong number is put between fitting and writing.
    #[tokio::test]
    async fn a_certificate_that_does_not_hold_leaves_the_old_output() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows: String = (0..60)
            .map(|t| format!("{t},{}\n", t / 7 % 2 * 2 + t * t % 3 % 2))
            .collect();
        std::fs::write(folder.path().join("rows.csv"), format!("t,s\n{rows}")).expect("rows");
        let text = PIPELINE.replace("FOLDER", &folder.path().display().to_string());
        let spec = Spec::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
        let resources = Resources {
            threads: 1,
            memory_bytes: None,
        };
        let sources = spec.tables.iter().map(|(n, t)| TableSource::new(n, t));
        let sources: Vec<_> = sources.collect();
        let lake = read::open(&sources, &resources, &Default::default())
            .await
            .expect("a lake");
        let (plan, frame) = plan(&spec, "SELECT * FROM rows", None, &lake)
            .await
            .expect("a plan");
        let counted = lake.count(frame, &plan.layout, Arc::new(|_| ()));
        let store = Arc::new(object_store::memory::InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let work = output.work(&plan.hash, false, KEEP_EVERY).await;
        let counted = counted.await.expect("counts");
        let mut fitted = fit_all(&plan, counted, &work, &Silent).expect("fits");

        let begun = output.begin(&plan.hash).await.expect("a store");
        let journal = |begun: &Begun| Journal::new(RunRecord::new(&plan, &begun.run, 1), &Silent);
        let mut first = journal(&begun);
        let staged = stage(&output, &begun, &fitted, &mut first).await;
        staged.expect("every certificate holds");
        let promotion = Promotion {
            plan: &plan.hash,
            complete: true,
            tables: &first.record.head.tables,
            keep: 2,
            record: &first.record,
        };
        let promoted = output.promote(&begun, &promotion).await;
        promoted.expect("a store");
        let before = output.current().await.expect("a result");
        assert_eq!(before.as_ref().map(|c| &c.run), Some(&begun.run));

        let broken = fitted.models[1].certificates[0].iter_mut();
        broken
            .filter(|c| c.name == "pythagoras")
            .for_each(|c| c.holds = Some(false));
        let begun = output.begin(&plan.hash).await.expect("a store");
        let error = stage(&output, &begun, &fitted, &mut journal(&begun))
            .await
            .expect_err("a certificate is broken");
        assert_eq!(error.kind(), Kind::Check);
        let message = error.to_string();
        let begin = "lag 2: fit `dbmr`: the certificate `pythagoras` does not hold: ";
        assert!(message.starts_with(begin), "{message}");
        assert_eq!(output.current().await.expect("a result"), before);
    }
}
