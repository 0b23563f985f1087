//! Drives the stages: count → shard and fit → write → check → promote, each partition and lag a model of its own.

pub mod assign;
pub mod checks;
pub mod compare;
pub mod fitted;
pub mod increment;
pub mod journal;
pub mod markov;
pub mod model;
pub mod progress;
pub mod ranks;
pub mod record;
pub mod sets;
pub mod summary;

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::{Rounds, Stored};
use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::Counts;
use crate::output::Fetch;
use crate::output::checkpoint::Checkpoint;
use crate::output::ledger::Ledger;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::model::Model;
use crate::output::tables::names::Table;
use crate::plan::pipeline::keys::{Empty, NamesFrom};
use crate::plan::{Increments, Plan};
use crate::read::counts::counted::Counted;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::run::fitted::Fitted;
use crate::run::increment::Counting;
use crate::run::journal::Journal;
use crate::run::model::{fit_model, names, nothing_connected, place};
use crate::run::progress::Progress;
use crate::run::record::{Deviation, Ended, Failure, ModelRecord, Resumed, RunRecord};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// So many non-zeros take 7 GB where they are fitted, at the 25 bytes that the README tells.
pub const SPLIT: u64 = 1 << 28;

/// What a run is told beside its plan.
#[derive(Clone)]
pub struct Options {
    /// For the record: results do not depend on it.
    pub threads: usize,
    /// Run even if the output is up to date, and do all work anew.
    pub force: bool,
    /// Count all rows anew, whatever the ledger says, and run even if the output is up to date.
    pub full_refresh: bool,
    /// How often finished work is kept for the next run: [`KEEP_EVERY`], unless a test is in a hurry.
    pub keep_every: Duration,
    /// Who counts and fits; this process alone without.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// A model with more non-zeros than that has its passes done by all of them: [`SPLIT`], unless there is a reason.
    pub split: u64,
}

/// An error where the result of a plan could never be put in place, or its sets have their names from what is no output. Nothing is
/// written.
pub async fn check_places(plan: &Plan, output: &Output, force: bool) -> Result<()> {
    let tables: Vec<&str> = plan.tables().into_iter().map(Table::name).collect();
    output.check(&tables)?;
    if !force {
        output.check_job(&plan.name).await?;
    }
    if let NamesFrom::Output(location) = &plan.names {
        let from = Output::open(location, &plan.stores)?;
        let found = from.current().await.map_err(|e| e.at("`names.from`"))?;
        if !found.is_some_and(|found| found.tables.contains_key(Table::Fits.name())) {
            return Err(crate::run::sets::no_output(location));
        }
    }
    Ok(())
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
        check_places(&plan, output, options.force).await?;
        let begun = output.begin(&plan.hash).await?;
        let is_done = |c: &Current| c.plan == plan.hash && c.complete;
        let again = options.force || options.full_refresh;
        if !again && begun.earlier().is_some_and(is_done) {
            // A run that died after its result was in place has left it.
            output.remove_checkpoints(&plan.hash).await;
            return Ok(Outcome::NothingToDo);
        }
        let record = RunRecord::new(&plan, &begun.run, options.threads);
        let mut journal = Journal::new(record, progress.as_ref());
        let to = (output, &begun);
        match drive(plan, lake, frame, to, options, &progress, &mut journal).await {
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

async fn drive(
    plan: Arc<Plan>,
    lake: &Lake,
    frame: DataFrame,
    (output, begun): (&Output, &Begun),
    options: &Options,
    progress: &Arc<dyn Progress>,
    journal: &mut Journal<'_>,
) -> Result<()> {
    let again = options.force || options.full_refresh;
    let work = output.work(&plan.hash, again, options.keep_every);
    let work = Arc::new(work.await);
    progress.stage("count", None);
    let (mut fitted, ledger, afar) = match &options.nodes {
        Some(nodes) => {
            let nodes = Arc::clone(nodes);
            let (nodes, work) = ((nodes, options.split), Arc::clone(&work));
            let rounds = Rounds::begin(&plan, output, nodes, work, progress.as_ref()).await?;
            let (fitted, matrices) = afar(&plan, &rounds, &frame, journal).await?;
            (fitted, None, Some(matrices))
        }
        None => {
            let earlier = begun.earlier().filter(|_| !options.full_refresh);
            let from = (lake, frame, earlier);
            let here = here(&plan, from, output, &work, options, journal, progress);
            let (fitted, ledger) = here.await?;
            (fitted, ledger, None)
        }
    };
    fitted.keep_names(&plan, output, begun.earlier()).await?;
    fitted.tell_empty(output, begun.earlier()).await?;
    if plan.markov {
        let plan = Arc::clone(&plan);
        let tested = tokio::task::spawn_blocking(move || {
            test_markov(&plan, &mut fitted.models, &mut fitted.records);
            fitted
        });
        fitted = (tested.await).map_err(|e| Error::with_source(Kind::Bug, "a test died", e))?;
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

    let fits = || journal.record.models.iter().flat_map(|model| &model.fits);
    let resumed = (work.taken() > 0).then(|| Resumed {
        counted: fitted.is_counted,
        fits: fits().filter(|fit| fit.resumed).count(),
        of: fits().count(),
        pieces: work.taken(),
    });
    journal.record.resumed = resumed;
    let afar = afar.as_ref().map(|afar| afar as &dyn Fetch);
    stage(output, begun, &fitted, afar, journal).await?;
    if let Some(ledger) = &ledger {
        output.put_ledger(&begun.run, ledger).await?;
    }
    if !plan.checks.is_empty() {
        crate::run::checks::gate(&plan, lake, output, &fitted.names, journal).await?;
    }
    journal.record.head.outcome = Ended::Done;
    let promotion = Promotion {
        plan: &plan.hash,
        complete: fitted.failures.is_empty(),
        tables: &journal.record.head.tables,
        keep: plan.keep,
        record: &journal.record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await?;
    output.remove_checkpoints(&plan.hash).await;
    let (rows, bytes) = journal.record.written();
    journal.done("promote", rows, bytes);
    Ok(())
}

/// Counts and fits in this process.
async fn here(
    plan: &Arc<Plan>,
    (lake, frame, earlier): (&Lake, DataFrame, Option<&Current>),
    output: &Output,
    work: &Arc<Checkpoint>,
    options: &Options,
    journal: &mut Journal<'_>,
    progress: &Arc<dyn Progress>,
) -> Result<(Fitted, Option<Ledger>)> {
    let start = Instant::now();
    let kept = counted_before(plan, work).await?;
    let is_counted = kept.is_some();
    let Counting {
        counted,
        ledger,
        record: increment,
    } = match kept {
        Some(counting) => counting,
        None => {
            let hear = Arc::clone(progress);
            let hear = Arc::new(move |rows| hear.advance(rows as u64));
            crate::run::increment::count(plan, lake, frame, output, earlier, hear).await?
        }
    };
    let counting = start.elapsed();
    // Where files are counted one by one, what was counted is in the objects of the ledger.
    let is_worth_it = !is_counted && ledger.is_none() && counting >= COUNTING * options.keep_every;
    let of = |counts: &Counts| {
        let left_out = counts.left_out.as_ref();
        (counts.nnz() as u64, left_out.map_or(0.0, |l| l.transitions))
    };
    let matrices = counted.counts.iter().map(of).collect();
    journal.counted(&counted, increment);
    check_not_empty(&counted, matrices)?;
    crate::memory::give_back();
    let (plan, work, progress) = (Arc::clone(plan), Arc::clone(work), Arc::clone(progress));
    let fitted = tokio::task::spawn_blocking(move || {
        if is_worth_it {
            crate::evidence::pass::resume::keep(work.as_ref(), COUNTED, counting, &counted);
        }
        let mut failures = Vec::new();
        let fitted = fit_all(&plan, counted, &work, progress.as_ref(), &mut failures);
        (fitted, failures)
    });
    let fitted = fitted.await;
    let (fitted, failures) =
        fitted.map_err(|e| Error::with_source(Kind::Bug, "fitting died", e))?;
    journal.record.head.failures = failures;
    let mut fitted = fitted?;
    fitted.is_counted = is_counted;
    Ok((fitted, ledger))
}

/// Counts and fits on other machines.
async fn afar<'a>(
    plan: &Plan,
    rounds: &Rounds<'a>,
    frame: &DataFrame,
    journal: &mut Journal<'_>,
) -> Result<(Fitted, Stored<'a>)> {
    crate::cluster::rounds::check(plan)?;
    let mut gathered = rounds.count(frame).await?;
    journal.counted(&gathered.counted, gathered.record.take());
    let matrices = gathered.units.iter().map(|unit| &unit.matrix);
    let matrices = matrices.map(|m| (m.nonzeros, m.left_out)).collect();
    check_not_empty(&gathered.counted, matrices)?;
    let mut empty = Vec::new();
    if plan.empty == Empty::Skip {
        gathered.units.retain(|unit| {
            let (partition, lag) = (unit.partition, unit.matrix.lag as usize);
            let is_empty = unit.matrix.nonzeros == 0;
            empty.extend(is_empty.then_some((partition, lag)));
            !is_empty
        });
    }
    let counted = &gathered.counted;
    let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
    let names = names(plan, counted, &labels);
    let results = rounds.fit(&gathered, &names).await?;
    let labels = std::mem::take(&mut gathered.counted.labels);
    let matrices = rounds.matrices(gathered, &results);
    let failures = &mut journal.record.head.failures;
    let mut fitted = Fitted::of(plan, names, &labels, results, empty, failures)?;
    if plan.markov {
        // The sets of a model are tested on the counts of others.
        for (at, model) in fitted.models.iter_mut().enumerate() {
            model.counts.by_source = matrices.counts(at).await?.by_source;
        }
    }
    Ok((fitted, matrices))
}

/// The name of the counts among the work of a plan.
const COUNTED: &str = "counted";

/// The counts that an earlier run has kept. Those of a plan that counts by files are in its ledger's objects.
async fn counted_before(plan: &Plan, work: &Arc<Checkpoint>) -> Result<Option<Counting>> {
    if matches!(plan.increments, Increments::Of { .. }) {
        return Ok(None);
    }
    let work = Arc::clone(work);
    let found = tokio::task::spawn_blocking(move || {
        crate::evidence::pass::resume::find(work.as_ref(), COUNTED)
    });
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
    afar: Option<&dyn Fetch>,
    journal: &mut Journal<'_>,
) -> Result<()> {
    journal.progress.stage("write", None);
    check_certificates(fitted)?;
    let (names, models) = (&fitted.names, &fitted.models);
    let written = crate::output::stage(output, begun, names, models, afar, fitted.again).await?;
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
            crate::assess::certificates::check(&columns.name, list).map_err(|e| {
                match place(&fitted.names, &model.counts) {
                    place if place.is_empty() => e,
                    place => e.at(place),
                }
            })?;
        }
    }
    Ok(())
}

/// `matrices`: of each its non-zeros, and the transitions that were left out of it.
fn check_not_empty(counted: &Counted, matrices: Vec<(u64, f64)>) -> Result<()> {
    if counted.rows == 0 {
        return Err(Error::input("the SQL of [transitions] gives no rows"));
    }
    if matrices.iter().all(|(nonzeros, _)| *nonzeros == 0) {
        if matrices.iter().any(|(_, left_out)| *left_out > 0.0) {
            return Err(nothing_connected());
        }
        let reasons = counted
            .dropped
            .0
            .iter()
            .map(|(reason, rows)| format!(", {rows} dropped for {reason}"))
            .collect::<String>();
        return Err(Error::input(format!(
            "no transition was found in {}{reasons}; check the lag against the times of a trajectory",
            crate::words::counted(counted.rows, "row")
        )));
    }
    Ok(())
}

/// Fits every partition and lag.
fn fit_all(
    plan: &Plan,
    mut counted: Counted,
    work: &Checkpoint,
    progress: &dyn Progress,
    failures: &mut Vec<Failure>,
) -> Result<Fitted> {
    let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
    let names = names(plan, &counted, &labels);
    let mut counts = std::mem::take(&mut counted.counts);
    let mut empty = Vec::new();
    if plan.empty == Empty::Skip {
        counts.retain(|counts| {
            let is_empty = counts.nnz() == 0;
            empty.extend(is_empty.then_some((counts.partition, counts.lag)));
            !is_empty
        });
    }
    let units = counts.len() * (plan.fits.len() + plan.resamples());
    progress.stage("fit", Some(units as u64));
    let results = counts.into_par_iter().map(|counts| {
        let place = place(&names, &counts);
        let fitted = fit_model(plan, &names, counts, work, progress);
        let (model, told) = fitted.map_err(|e| (place, e))?;
        let record = crate::run::model::record(plan, &names, &model, told);
        Ok((model, record))
    });
    let results = results.collect();
    Fitted::of(plan, names, &counted.labels, results, empty, failures)
}

/// Tests the sets of all fits, for the tables and the records.
fn test_markov(plan: &Plan, models: &mut [Model], records: &mut [ModelRecord]) {
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
    use crate::plan::pipeline::Spec;
    use crate::plan::plan;
    use crate::read::lake::Resources;
    use crate::read::lake::files::TableSource;
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
        let lake = crate::read::lake::open(&sources, &resources, &Default::default())
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
        let mut fitted = fit_all(&plan, counted, &work, &Silent, &mut Vec::new()).expect("fits");

        let begun = output.begin(&plan.hash).await.expect("a store");
        let journal = |begun: &Begun| Journal::new(RunRecord::new(&plan, &begun.run, 1), &Silent);
        let mut first = journal(&begun);
        let staged = stage(&output, &begun, &fitted, None, &mut first).await;
        staged.expect("every certificate holds");
        let promotion = Promotion {
            plan: &plan.hash,
            complete: true,
            tables: &first.record.head.tables,
            keep: 2,
            record: &first.record,
            begins: &|| (),
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
