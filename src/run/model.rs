//! The counts of one partition and lag → a model: all of its fits, resamples, ranks and certificates.

use crate::assess::bootstrap;
use crate::assess::certificates;
use crate::assess::markov::Chain;
use crate::error::{Error, Result};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::lag::Lag;
use crate::evidence::pass::Passes;
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::executor::{Executor, Local};
use crate::evidence::pass::steps::Steps;
use crate::math::scale::{exponent, times_power};
use crate::methods;
use crate::methods::Method;
use crate::methods::estimator::States;
use crate::methods::fit::{Fit, Model};
use crate::methods::low_rank::model::LowRank;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::Plan;
use crate::plan::fits::PlannedFit;
use crate::read::counts::counted::{Counted, LARGEST_TOTAL};
use crate::read::rows::layout::Layout;
use crate::read::rows::states::{escaped, key_text};
use crate::run::progress::Progress;
use crate::run::ranks;
use crate::run::ranks::{Ground, Tried};
use crate::run::record::{DroppedStates, FitRecord, FitTimings, ModelRecord, Timings};
use std::collections::BTreeMap;
use std::time::Instant;

/// A model, or its place and why there is none.
pub(crate) type Ended = Result<(FittedModel, ModelRecord), (String, Error)>;

/// Non-zeros of a shard: small enough that two threads share a model evenly, large enough that a pass is not all overhead.
fn shard_nnz(nnz: usize) -> usize {
    (nnz / (8 * rayon::current_num_threads())).clamp(1 << 14, 1 << 20)
}

/// Totals of weights are below 2 to this: log-likelihoods are up to a thousand times as large, and f64 ends at 2^1024.
const LARGEST_SUM: i32 = 1010;

/// Weights of one model have a sum of at most 2 to this times the smallest: products of shares of it stay above what f64 rounds to 0.
const WIDEST: i32 = 256;

/// An error where the weights of a model add up to more than f64 holds.
pub(crate) fn check_sum(layout: &Layout, counts: &CountMatrix) -> Result<()> {
    let Some(weight) = layout.evidence.weight() else {
        return Ok(());
    };
    let sum: f64 = counts.values().sum();
    if sum < times_power(1.0, LARGEST_SUM) {
        return Ok(());
    }
    let name = weight.name();
    Err(Error::input(format!(
        "the weights `{name}` add up to more than 2^{LARGEST_SUM}, and f64 has no room for their log-likelihood; scale them down in the SQL, for example `{name} / 1e100`, which changes no set and no probability"
    )))
}

/// An error where weights of a model are too far apart to be fitted.
fn check_range(layout: &Layout, counts: &CountMatrix) -> Result<()> {
    let Some(weight) = layout.evidence.weight() else {
        return Ok(());
    };
    let sum: f64 = counts.values().sum();
    let least = counts.values().fold(f64::INFINITY, f64::min);
    if exponent(sum) - exponent(least) <= WIDEST {
        return Ok(());
    }
    let name = weight.name();
    Err(Error::input(format!(
        "the weights `{name}` of one pair add up to {least:e}, those of all to {sum:e}: more than 2^{WIDEST} times as much, which is too far apart to be fitted; leave out in the SQL what weighs next to nothing"
    )))
}

/// Checks that there are transitions. `matrices` has the non-zeros of each matrix, and the transitions
/// that were left out of it.
///
/// # Errors
/// If there is no row or no transition.
pub(crate) fn check_not_empty(counted: &Counted, matrices: Vec<(u64, f64)>) -> Result<()> {
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
            crate::error::counted(counted.rows, "row")
        )));
    }
    Ok(())
}

/// Takes the matrix out of the counts for the time of the fits, weights in their unit.
pub(crate) fn shards(layout: &Layout, counts: &mut CountMatrix) -> Result<Shards> {
    if counts.total > u128::from(LARGEST_TOTAL) {
        return Err(Error::input(format!(
            "the counts add up to more than {LARGEST_TOTAL}, the largest total that stays exact; scale them down"
        )));
    }
    check_sum(layout, counts)?;
    check_range(layout, counts)?;
    let (nnz, mut by_source) = (counts.nnz(), std::mem::take(&mut counts.by_source));
    let exponent = counts.exponent;
    if exponent != 0 {
        scale_rows(&mut by_source, -exponent);
        if let Some(groups) = &mut counts.groups {
            groups.scale(-exponent);
        }
    }
    let n_targets = counts.target_states.len();
    let shards = Shards::from_sources(n_targets, by_source, shard_nnz(nnz));
    Ok(Shards { exponent, ..shards })
}

fn scale_rows(shards: &mut [Csr], n: i32) {
    for shard in shards {
        crate::memory::wait_for_room();
        shard.values = shard.values.scaled(n);
    }
}

/// Fits a model to the counts of one partition and lag, and says how it went. `checkpoints` may have pieces of it.
pub fn fit_model(
    plan: &Plan,
    names: &RunSchema,
    mut counts: CountMatrix,
    checkpoints: &dyn Checkpoints,
    progress: &dyn Progress,
) -> Result<(FittedModel, Timings)> {
    if counts.nnz() == 0 {
        let left_out = counts.left_out.as_ref();
        if left_out.is_some_and(|l| l.transitions > 0.0) {
            return Err(nothing_connected());
        }
        return Err(Error::input("it has no transition at this lag"));
    }
    let size = Size {
        sources: counts.source_states.len() as u64,
        targets: counts.target_states.len() as u64,
        nonzeros: counts.nnz() as u64,
    };
    plan.check_memory(size, rayon::current_num_threads(), crate::memory::limit())?;
    let start = Instant::now();
    let shards = shards(&plan.layout, &mut counts)?;
    let shard_seconds = start.elapsed().as_secs_f64();
    let from = (counts, &shards);
    let (model, told) = fit_shards(&Local, plan, names, from, checkpoints, progress)?;
    let told = Timings {
        shard_seconds,
        ..told
    };
    Ok((model.with(shards), told))
}

/// The same with the matrix in shards, which may be an outline for a passes that has the passes done elsewhere. The model is without them:
/// [`FittedModel::with`].
pub(crate) fn fit_shards(
    executor: &dyn Executor,
    plan: &Plan,
    names: &RunSchema,
    (mut counts, shards): (CountMatrix, &Shards),
    checkpoints: &dyn Checkpoints,
    progress: &dyn Progress,
) -> Result<(FittedModel, Timings)> {
    let place = place(names, &counts);
    let whole = format!("{}-{}", counts.partition, counts.lag);
    let mut tried = Vec::new();
    let candidates = plan.candidates(shards.n_sources, shards.n_targets)?;
    let evidence = evidence(plan, names, &counts, shards);
    for (n, (at, candidate)) in candidates.iter().enumerate() {
        let method = &candidate.method;
        check_evidence(plan, names, &counts, &evidence, method)?;
        let (start, steps) = (Instant::now(), Steps::default());
        let seed = seed(plan.seed, &place, &candidate.name);
        let name = format!("fit-{n}");
        let is_known = checkpoints.has(&format!("{whole}/{name}"));
        let fit = Passes::at(executor)
            .resuming(checkpoints, whole.clone())
            .timed(&steps)
            .try_piece(&name, |passes| {
                methods::fit(passes, method, &evidence, seed)
            })
            .map_err(|e| e.at(format!("fit `{}`", candidate.name)))?;
        let seconds = start.elapsed().as_secs_f64();
        let steps = steps.seconds().into_iter();
        let told = FitTimings {
            resumed: is_known,
            seconds,
            steps: steps.map(|(step, s)| (step.into(), s)).collect(),
            choice: None,
        };
        tried.push(Tried {
            planned: *at,
            method: method.clone(),
            seed,
            fit,
            told,
            bootstrap: None,
        });
        if candidates.get(n + 1).is_none_or(|next| next.0 != *at) {
            progress.advance(1);
        }
    }
    let passes = Passes::at(executor).resuming(checkpoints, whole);
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
            let params = bootstrap::BootstrapParams {
                resamples: validation.bootstrap,
                confidence: validation.confidence,
                chain: plan.markov.then_some(chain),
                shard_nnz: shard_nnz(shards.nnz()),
            };
            let fits: Vec<_> = tried.iter().map(|t| (&t.method, &t.fit)).collect();
            let seed = seed(plan.seed, &place, "bootstrap");
            let heard = || progress.advance(1);
            bootstrap::bootstrap(&passes, groups, &evidence, &fits, &params, seed, &heard)
        }
        _ => Vec::new(),
    };
    let bootstrap_seconds = (!bootstraps.is_empty()).then(|| start.elapsed().as_secs_f64());
    for (tried, bootstrap) in tried.iter_mut().zip(bootstraps) {
        tried.bootstrap = Some(bootstrap);
    }
    let start = Instant::now();
    let ground = Ground {
        counts: &evidence,
        shard_nnz: shard_nnz(shards.nnz()),
        groups: groups.as_ref(),
        seed: seed(plan.seed, &place, "ranks"),
    };
    let mut ranks = ranks::compare(&passes, plan, &ground, &tried)?;
    let ranks_seconds = (!ranks.is_empty()).then(|| start.elapsed().as_secs_f64());
    let (mut fits, mut told, mut bootstraps) = (Vec::new(), Vec::new(), Vec::new());
    let mut methods = Vec::new();
    for kept in ranks::pick(plan, tried, &mut ranks)? {
        methods.push(kept.method);
        fits.push(kept.fit);
        told.push(kept.told);
        bootstraps.extend(kept.bootstrap);
    }
    let start = Instant::now();
    let models: Vec<&LowRank> = (fits.iter())
        .map(|fit| {
            let Model::LowRank(model) = &fit.model;
            model
        })
        .collect();
    let mut certificates = certificates::of(shards, &models);
    if shards.exponent != 0 {
        let scale = |x: &mut f64| *x = times_power(*x, shards.exponent);
        for (fit, method) in fits.iter_mut().zip(&methods) {
            scale::fit(fit, method, scale);
        }
        certificates
            .iter_mut()
            .for_each(|of_fit| scale::certificates(of_fit, scale));
        bootstraps
            .iter_mut()
            .for_each(|bootstrap| scale::bootstrap(bootstrap, scale));
        for row in &mut ranks {
            scale(&mut row.criteria.log_likelihood);
        }
    }
    tracing::debug!(seconds = start.elapsed().as_secs_f64(), "certificates");
    let told = Timings {
        shard_seconds: 0.0,
        bootstrap_seconds,
        ranks_seconds,
        fits: told,
    };
    let model = FittedModel {
        counts,
        nonzeros: 0,
        fits,
        certificates,
        bootstraps,
        ranks,
        tracked_sets: Vec::new(),
        markov: Vec::new(),
        source_total: Vec::new(),
        target_total: Vec::new(),
        total: 0.0,
    };
    Ok((model, told))
}

impl FittedModel {
    /// The model with the matrix that it was fitted to.
    pub(crate) fn with(mut self, shards: Shards) -> FittedModel {
        self.nonzeros = shards.nnz();
        self.counts.by_source = shards.by_source;
        self.source_total = shards.source_total;
        self.target_total = shards.target_total;
        self.total = shards.total;
        if shards.exponent != 0 {
            scale_rows(&mut self.counts.by_source, shards.exponent);
            let totals = self.source_total.iter_mut().chain(&mut self.target_total);
            for total in totals.chain([&mut self.total]) {
                *total = times_power(*total, shards.exponent);
            }
        }
        self
    }
}

/// What of a model is proportional to its counts, to be brought back from the unit of the weights to what was given.
mod scale {
    use crate::assess::bootstrap::Bootstrap;
    use crate::assess::certificates::Certificate;
    use crate::methods::Method;
    use crate::methods::fit::{Fit, Model};

    pub fn fit(fit: &mut Fit, method: &Method, mut scale: impl FnMut(&mut f64)) {
        let Model::LowRank(model) = &mut fit.model;
        model.scale_counts(&mut scale);
        // What other methods maximise or minimise is of probabilities.
        if method.objective_scales() {
            let objectives = fit
                .how
                .restarts
                .iter_mut()
                .map(|restart| &mut restart.objective);
            objectives.chain(&mut fit.how.trace).for_each(scale);
        }
    }

    pub fn certificates(certificates: &mut [Certificate], mut scale: impl FnMut(&mut f64)) {
        let of_counts =
            |c: &&mut Certificate| matches!(c.name.as_ref(), "likelihood" | "reference");
        for certificate in certificates.iter_mut().filter(of_counts) {
            scale(&mut certificate.left);
            scale(&mut certificate.right);
            scale(&mut certificate.tolerance);
        }
    }

    pub fn bootstrap(bootstrap: &mut Bootstrap, mut scale: impl FnMut(&mut f64)) {
        for number in &mut bootstrap.numbers {
            if !number.metric.ends_with("log_likelihood") {
                continue;
            }
            number.value.iter_mut().for_each(&mut scale);
            if let Some(spread) = &mut number.spread {
                scale(&mut spread.mean);
                scale(&mut spread.standard_error);
                scale(&mut spread.low);
                scale(&mut spread.high);
            }
        }
    }
}

/// Everything that the columns of the tables are made from. `labels`: how many each given partition has.
pub(crate) fn names(plan: &Plan, counted: &Counted, labels: &[usize]) -> RunSchema {
    RunSchema {
        partition: plan.layout.partition.clone(),
        partitions: counted.partitions.clone(),
        lag: plan.lag_column(),
        sources: counted.sources.clone(),
        targets: counted.targets.clone(),
        is_weighted: plan.layout.is_weighted(),
        fits: plan.fit_columns(labels),
        tables: plan.tables(),
    }
}

/// A partition and lag in words: `airline=FR, lag 5d`.
pub(crate) fn place(names: &RunSchema, counts: &CountMatrix) -> String {
    place_of(names, counts.partition, counts.lag)
}

/// The same by number.
pub(crate) fn place_of(names: &RunSchema, partition: usize, lag: usize) -> String {
    let mut parts: Vec<String> = partition_key(names, partition)
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escaped(&value)))
        .collect();
    if let Some(lag) = names.lag.text(lag) {
        parts.push(format!("lag {lag}"));
    }
    parts.join(", ")
}

pub(crate) fn partition_key(names: &RunSchema, partition: usize) -> BTreeMap<String, String> {
    let columns = names.partition.iter().zip(&names.partitions);
    let key = columns.map(|(field, column)| {
        let value = key_text(std::slice::from_ref(column), partition);
        (field.name().clone(), value)
    });
    key.collect()
}

/// The counts as methods see them.
fn evidence<'a>(
    plan: &Plan,
    names: &RunSchema,
    counts: &CountMatrix,
    shards: &'a Shards,
) -> Counts<'a> {
    let mut evidence = Counts::of(shards);
    let of_one_kind = |fit: &PlannedFit| fit.method.needs().states != States::Apart;
    if plan.fits.iter().any(of_one_kind) {
        let targets = places(&counts.source_states, &counts.target_states);
        evidence = evidence.with_targets(targets.collect());
    }
    for (fit, columns) in plan.fits.iter().zip(&names.fits) {
        let given = fit.method.needs().given;
        let sets = given.and_then(|column| Some((column, &counts.given[plan.given(column)?])));
        if let Some((column, Ok(sets))) = sets {
            evidence = evidence.with_given(column, sets.clone(), columns.rank);
        }
    }
    evidence
}

/// An error where the states of the counts are not as a method needs them.
fn check_evidence(
    plan: &Plan,
    names: &RunSchema,
    counts: &CountMatrix,
    evidence: &Counts<'_>,
    method: &Method,
) -> Result<()> {
    let needs = method.needs();
    let open = evidence.source_of_target.iter().position(Option::is_none);
    if let (States::Closed, Some(target)) = (needs.states, open) {
        return Err(Error::input(format!(
            "method \"{}\" wants to know where every target state goes, but no transition starts in state {}; leave out what ends there in the SQL, or take method \"metastable\", \"cocluster\" or \"svd\"",
            method.name(),
            names.targets.describe(counts.target_states[target])
        )));
    }
    let given = needs.given.and_then(|column| plan.given(column));
    if let Some((at, Err(state))) = given.map(|at| (at, &counts.given[at])) {
        let (column, state) = (plan.layout.given[at].name(), names.sources.describe(*state));
        return Err(Error::input(format!(
            "the given partition `{column}` has no set for state {state}; give every source state one"
        )));
    }
    Ok(())
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

/// The record of a model.
pub fn record(plan: &Plan, names: &RunSchema, model: &FittedModel, told: Timings) -> ModelRecord {
    let counts = &model.counts;
    let fits = plan.fits.iter().zip(&model.fits).zip(&model.certificates);
    let fits = fits.zip(told.fits);
    let of_fit =
        |(((planned, fit), certificates), told): (((&PlannedFit, &Fit), &Vec<_>), FitTimings)| {
            let certified = certificates::certified(certificates);
            fit_record(planned, fit, certified, told)
        };
    ModelRecord {
        partition: partition_key(names, counts.partition),
        lag: names.lag.text(counts.lag),
        sources: counts.source_states.len(),
        targets: counts.target_states.len(),
        nonzeros: model.nonzeros,
        transitions: model.total,
        dropped: counts.left_out.as_ref().map(|left_out| DroppedStates {
            components: left_out.components,
            states: left_out.states,
            transitions: left_out.transitions,
        }),
        shard_seconds: told.shard_seconds,
        bootstrap_seconds: told.bootstrap_seconds,
        ranks_seconds: told.ranks_seconds,
        fits: fits.map(of_fit).collect(),
    }
}

fn fit_record(planned: &PlannedFit, fit: &Fit, certified: bool, told: FitTimings) -> FitRecord {
    let Model::LowRank(model) = &fit.model;
    let metrics = &model.metrics;
    FitRecord {
        name: planned.name.clone(),
        method: planned.method.name(),
        rank: model.rank,
        seed: fit.how.seed,
        converged: fit.how.converged,
        certified,
        iterations: fit.how.iterations,
        restarts: fit.how.restarts.len(),
        empty_states: metrics.empty_states,
        log_likelihood: metrics.log_likelihood,
        reference_log_likelihood: metrics.reference_log_likelihood,
        coherence: metrics.coherence,
        objective: metrics.objective,
        singular_values: model.spectrum.iter().map(|s| s.value).collect(),
        source_sizes: metrics.source_sizes.clone(),
        timescales: None,
        timescale_intervals: None,
        chapman_kolmogorov: None,
        resumed: told.resumed,
        seconds: told.seconds,
        steps: told.steps,
        bootstrap: None,
        choice: told.choice,
        lineage: None,
    }
}

pub(crate) fn nothing_connected() -> Error {
    Error::input(
        "no state can be reached from where it leads to, so `connected = true` leaves nothing; longer trajectories, or boxes or states that are visited more than once, would",
    )
}
