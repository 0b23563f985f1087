//! Drives the stages: count → shard and fit → write → check → promote, each partition and lag a model of its own.

use crate::checks;
use crate::count::{Counted, Counts, LARGEST_TOTAL, describe, escaped, key_text};
use crate::error::{Error, Kind, Result};
use crate::increment::{self, Counting};
use crate::journal::Journal;
use crate::lineage::{self, Kept};
use crate::manifest::{
    BootstrapRecord, Deviation, DroppedStates, Failure, FitRecord, ModelRecord, Resumed, RunRecord,
};
use crate::markov;
use crate::memory;
use crate::plan::{Increments, Plan, PlannedMethod, Size};
use crate::ranks::{self, Ground, Tried};
use crate::read::Lake;
use crate::reduce::bootstrap;
use crate::reduce::markov::Chain;
use crate::reduce::{self, Evidence, Fit, Method, certificates};
use crate::runner::{self, Kept as Keeping, Local, Runner, Timed};
use crate::shard::Shards;
use crate::spec::Lag;
use crate::write::{self, Begun, Current, Model, Names, Output, Promotion, Work};
use datafusion::dataframe::DataFrame;
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
pub async fn run(
    plan: Arc<Plan>,
    lake: &Lake,
    frame: DataFrame,
    output: &Output,
    options: &Options,
    progress: Arc<dyn Progress>,
) -> Result<Outcome> {
    let outcome = drive(plan, lake, frame, output, options, progress).await;
    if outcome.is_err() {
        output.abandon().await;
    }
    outcome
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

fn nothing_connected() -> Error {
    Error::input(
        "no state can be reached from where it leads to, so `connected = true` leaves nothing; longer trajectories, or boxes or states that are visited more than once, would",
    )
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

/// Non-zeros of a shard: small enough that two threads share a model evenly, large enough that a pass is not all overhead.
fn shard_nnz(nnz: usize) -> usize {
    (nnz / (8 * rayon::current_num_threads())).clamp(1 << 14, 1 << 20)
}

/// Takes the matrix out of the counts for the time of the fits.
fn shards(counts: &mut Counts) -> Result<Shards> {
    if counts.total > u128::from(LARGEST_TOTAL) {
        return Err(Error::input(format!(
            "the counts add up to more than {LARGEST_TOTAL}, the largest total that stays exact; scale them down"
        )));
    }
    let (nnz, by_source) = (counts.nnz(), std::mem::take(&mut counts.by_source));
    let n_targets = counts.target_states.len();
    Ok(Shards::from_sources(n_targets, by_source, shard_nnz(nnz)))
}

fn fit_model(
    plan: &Plan,
    names: &Names,
    mut counts: Counts,
    work: &Work,
    progress: &dyn Progress,
) -> Result<(Model, ModelRecord)> {
    if counts.nnz() == 0 {
        let left_out = counts.left_out.as_ref();
        if left_out.is_some_and(|l| l.transitions > 0.0) {
            return Err(nothing_connected());
        }
        return Err(Error::input("it has no transition at this lag"));
    }
    let place = place(names, &counts);
    let size = Size {
        sources: counts.source_states.len() as u64,
        targets: counts.target_states.len() as u64,
        nonzeros: counts.nnz() as u64,
    };
    plan.check_memory(size, rayon::current_num_threads(), memory::limit())?;
    let start = Instant::now();
    let shards = shards(&mut counts)?;
    let shard_seconds = start.elapsed().as_secs_f64();
    let whole = format!("{}-{}", counts.partition, counts.lag);
    let mut tried = Vec::new();
    let candidates = plan.candidates(shards.n_sources, shards.n_targets)?;
    for (n, (at, candidate)) in candidates.iter().enumerate() {
        let (planned, columns) = (&plan.fits[*at], &names.fits[*at]);
        let method = match &candidate.method {
            PlannedMethod::Dbmr(params) => Method::Dbmr(params.clone()),
            PlannedMethod::Svd(params) => Method::Svd(params.clone()),
            PlannedMethod::Cocluster(params) => Method::Cocluster(params.clone()),
            PlannedMethod::Metastable(params) => Method::Metastable {
                params: params.clone(),
                target_of_source: places(&counts.source_states, &counts.target_states).collect(),
            },
            PlannedMethod::Gpcca(params) => Method::Gpcca {
                params: params.clone(),
                source_of_target: source_of_target(names, &counts)?,
            },
            PlannedMethod::Given(at) => {
                let affiliation = counts.given[*at].clone().map_err(|state| {
                    let (column, state) = (plan.layout.given[*at].name(), names.sources.describe(state));
                    Error::input(format!("the given partition `{column}` has no set for state {state}; give every source state one"))
                })?;
                Method::Given {
                    affiliation,
                    rank: columns.rank,
                }
            }
        };
        let (start, runner) = (Instant::now(), Timed::new(&Local));
        let seed = seed(plan.seed, &place, &candidate.name);
        let name = format!("fit-{n}");
        let is_known = work.has(&format!("{whole}/{name}"));
        let fit = Keeping::new(&runner, work, whole.clone())
            .try_piece(&name, |runner| {
                reduce::fit(runner, &method, Evidence::Counts(&shards), seed)
            })
            .map_err(|e| e.at(format!("fit `{}`", candidate.name)))?;
        let mut record = fit_record(
            &planned.name,
            planned.method_name(),
            &fit,
            start.elapsed().as_secs_f64(),
            runner.seconds(),
        );
        record.resumed = is_known;
        tried.push(Tried {
            planned: *at,
            method,
            seed,
            fit,
            record,
            bootstrap: None,
        });
        if candidates.get(n + 1).is_none_or(|next| next.0 != *at) {
            progress.advance(1);
        }
    }
    let runner = Keeping::new(&Local, work, whole);
    let (start, groups) = (Instant::now(), counts.groups.take());
    let bootstraps = match (&plan.validation, &groups) {
        (Some(validation), Some(groups)) if validation.bootstrap > 0 => {
            let lag = plan.lags.get(counts.lag).map_or(1.0, Lag::number);
            let source_of_target = match plan.markov {
                true => places(&counts.target_states, &counts.source_states).collect(),
                false => Vec::new(),
            };
            let chain = Chain {
                source_of_target: &source_of_target,
                lag,
            };
            let params = bootstrap::Params {
                resamples: validation.bootstrap,
                confidence: validation.confidence,
                metrics: &write::METRICS,
                chain: plan.markov.then_some(chain),
                shard_nnz: shard_nnz(shards.nnz()),
            };
            let fits: Vec<_> = tried.iter().map(|t| (&t.method, &t.fit)).collect();
            let seed = seed(plan.seed, &place, "bootstrap");
            let heard = || progress.advance(1);
            bootstrap::bootstrap(&runner, groups, &shards, &fits, &params, seed, &heard)
        }
        _ => Vec::new(),
    };
    let bootstrap_seconds = (!bootstraps.is_empty()).then(|| start.elapsed().as_secs_f64());
    for (tried, bootstrap) in tried.iter_mut().zip(bootstraps) {
        tried.bootstrap = Some(bootstrap);
    }
    let start = Instant::now();
    let ground = Ground {
        shards: &shards,
        shard_nnz: shard_nnz(shards.nnz()),
        groups: groups.as_ref(),
        seed: seed(plan.seed, &place, "ranks"),
    };
    let mut ranks = ranks::compare(&runner, plan, &ground, &tried)?;
    let ranks_seconds = (!ranks.is_empty()).then(|| start.elapsed().as_secs_f64());
    let (mut fits, mut records, mut bootstraps) = (Vec::new(), Vec::new(), Vec::new());
    for kept in ranks::pick(plan, tried, &mut ranks)? {
        fits.push(kept.fit);
        records.push(kept.record);
        bootstraps.extend(kept.bootstrap);
    }
    let start = Instant::now();
    let certificates = certificates::of(&shards, &fits);
    tracing::debug!(seconds = start.elapsed().as_secs_f64(), "certificates");
    for (record, certificates) in records.iter_mut().zip(&certificates) {
        record.certified = certificates::certified(certificates);
    }
    let record = ModelRecord {
        partition: partition_key(names, &counts),
        lag: names.lag.text(counts.lag),
        sources: shards.n_sources,
        targets: shards.n_targets,
        nonzeros: shards.nnz(),
        transitions: shards.total,
        dropped: counts.left_out.as_ref().map(|left_out| DroppedStates {
            components: left_out.components,
            states: left_out.states,
            transitions: left_out.transitions,
        }),
        shard_seconds,
        bootstrap_seconds,
        ranks_seconds,
        fits: records,
    };
    let Shards {
        by_source,
        source_total,
        target_total,
        total,
        ..
    } = shards;
    counts.by_source = by_source;
    Ok((
        Model {
            counts,
            fits,
            certificates,
            bootstraps,
            ranks,
            lineage: Vec::new(),
            markov: Vec::new(),
            source_total,
            target_total,
            total,
        },
        record,
    ))
}

/// The source that every target is, for methods that follow a state further.
fn source_of_target(names: &Names, counts: &Counts) -> Result<Vec<u32>> {
    let targets = &counts.target_states;
    let known = targets.iter().zip(places(targets, &counts.source_states)).map(|(&state, place)| {
        place.ok_or_else(|| {
            Error::input(format!(
                "method \"gpcca\" wants to know where every target state goes, but no transition starts in state {}; leave out what ends there in the SQL, or take method \"metastable\", \"cocluster\" or \"svd\"",
                names.targets.describe(state)
            ))
        })
    });
    known.collect()
}

/// The place of each state of one side among those of the other, where both have one label set; both ascend.
fn places(own: &[u32], others: &[u32]) -> impl Iterator<Item = Option<u32>> {
    let place = |id| others.binary_search(id).ok().map(|at| at as u32);
    own.iter().map(place)
}

/// The seed of a fit: it depends on the partition's key and the fit's name, not on what else is fitted.
fn seed(seed: u64, place: &str, fit: &str) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&(place.len() as u64).to_le_bytes());
    hasher.update(place.as_bytes());
    hasher.update(fit.as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn fit_record(
    name: &str,
    method: &'static str,
    fit: &Fit,
    seconds: f64,
    steps: BTreeMap<&'static str, f64>,
) -> FitRecord {
    FitRecord {
        name: name.to_string(),
        method,
        rank: fit.rank,
        seed: fit.seed,
        converged: fit.converged,
        // Known once all fits of the model are.
        certified: false,
        iterations: fit.iterations,
        restarts: fit.restarts.len(),
        empty_states: fit.metrics.empty_states,
        log_likelihood: fit.metrics.log_likelihood,
        reference_log_likelihood: fit.metrics.reference_log_likelihood,
        coherence: fit.metrics.coherence,
        objective: fit.metrics.objective,
        singular_values: fit.spectrum.iter().map(|s| s.value).collect(),
        source_sizes: fit.metrics.source_sizes.clone(),
        timescales: None,
        timescale_intervals: None,
        chapman_kolmogorov: None,
        resumed: false,
        seconds,
        steps,
        bootstrap: None,
        choice: None,
        lineage: None,
    }
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
