//! The counts of one partition and lag → a model: its fits, resamples, ranks and certificates.

use crate::assess::bootstrap::{self, Bootstrap, BootstrapParams};
use crate::assess::markov::{Chain, Markov};
use crate::assess::thin_sets::thin_sets;
use crate::assess::{certificates, kernels};
use crate::error::{Error, Result, escaped};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::groups::Groups;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::counts::shards::{Shards, totals};
use crate::evidence::counts::{Counts, Size};
use crate::evidence::lag::Lag;
use crate::evidence::pass::Passes;
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::executor::{Executor, Local};
use crate::evidence::pass::steps::Steps;
use crate::math::scale::{exponent, times_power};
use crate::memory::wait_for_room;
use crate::methods::estimator::States;
use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::methods::heat_kernel::params::ChainKernel;
use crate::methods::low_rank::model::LowRank;
use crate::methods::{self, ChainMethod, Method};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::plan::fits::PlannedFit;
use crate::plan::pipeline::TimeKeys;
use crate::read::counts::counted::{Counted, LARGEST_TOTAL};
use crate::read::rows::amounts::{LARGEST_SUM, WIDEST};
use crate::read::rows::layout::Layout;
use crate::read::rows::states::key_text;
use crate::run::counts::kind::CountsKind;
use crate::run::counts::ranks::{self, FittedCandidate, RankEvidence};
use crate::run::counts::record::{
    BootstrapRecord, Deviation, DroppedStates, EmbeddingRecord, FitRecord, FitTimings, ModelRecord,
    Timings,
};
use crate::run::failures::{no_evidence, reasons};
use crate::run::kind::Fitted;
use crate::run::progress::Progress;
use crate::{error, memory};
use std::collections::BTreeMap;
use std::time::Instant;

/// A model and how it was fitted, or the place of a failed model (see [`place`]) and its error.
pub(crate) type ModelResult = Result<(FittedModel, Timings), (String, Error)>;

/// Non-zeros per shard: few enough to share a model evenly between two threads, enough to keep the
/// overhead of a pass small.
fn shard_nnz(nnz: usize) -> usize {
    (nnz / (8 * rayon::current_num_threads())).clamp(1 << 14, 1 << 20)
}

/// An error if the sum of the weights of a model is too large for f64.
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
        "the weights `{name}` add up to more than 2^{LARGEST_SUM}, which is too large for log-likelihoods in f64; scale them down in the SQL, for example `{name} / 1e100`, which changes no set and no probability"
    )))
}

/// An error if the weights of a model differ too much to be fitted.
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
        "the weights `{name}` of one pair add up to {least:e}, those of all pairs to {sum:e}: the ratio is above 2^{WIDEST}, which is too large for a fit; leave out rows with tiny weights in the SQL"
    )))
}

/// The size of a count matrix, on which the memory of a fit depends.
pub(crate) fn size(counts: &CountMatrix) -> Size {
    Size {
        sources: counts.source_states.len() as u64,
        targets: counts.target_states.len() as u64,
        nonzeros: counts.nnz() as u64,
    }
}

/// Checks that the rows of a run have transitions. Of each matrix, `matrices` has the number of
/// non-zeros and the sum of the weights that were left out.
///
/// # Errors
/// If there is no row or no transition.
pub(crate) fn check_not_empty(
    counted: &Counted,
    matrices: &[(u64, f64)],
    times: &TimeKeys,
) -> Result<()> {
    if counted.rows == 0 {
        return Err(Error::input("the SQL of [transitions] gives no rows"));
    }
    if matrices.iter().all(|(nonzeros, _)| *nonzeros == 0) {
        if matrices.iter().any(|(_, left_out)| *left_out > 0.0) {
            return Err(nothing_connected());
        }
        let reasons = reasons(&counted.dropped.0);
        return Err(Error::input(format!(
            "no transition was found in {}{reasons}; check the lag against the times of a trajectory{}",
            error::counted(counted.rows, "row"),
            times.hint()
        )));
    }
    Ok(())
}

/// An error if the counts or weights of a model add up to more than f64 can hold.
fn check_total(layout: &Layout, counts: &CountMatrix) -> Result<()> {
    if counts.total > u128::from(LARGEST_TOTAL) {
        return Err(Error::input(format!(
            "the counts add up to more than {LARGEST_TOTAL}, the largest total that stays exact; scale them down"
        )));
    }
    check_sum(layout, counts)
}

/// An error if the counts or weights of a model are too large, or too different, to be fitted.
pub(crate) fn check_counts(layout: &Layout, counts: &CountMatrix) -> Result<()> {
    check_total(layout, counts)?;
    check_range(layout, counts)
}

/// Moves the matrix out of the counts and cuts it into shards, with weights in their unit
/// ([`Shards::exponent`]). [`FittedModel::with`] moves it back.
pub(crate) fn shards(layout: &Layout, counts: &mut CountMatrix) -> Result<Shards> {
    check_counts(layout, counts)?;
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
        wait_for_room();
        shard.values = shard.values.scaled(n);
    }
}

/// Fits a model to the counts of one partition and lag. Pieces of work that `checkpoints` holds are
/// not repeated.
///
/// # Errors
/// If there is no transition, the memory does not suffice, or a fit fails.
pub(crate) fn fit_model(
    plan: &CountsPlan,
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
        return Err(no_evidence(
            plan.job.empty,
            "there is no transition at this lag",
        ));
    }
    if !plan.has_fits() {
        check_total(&plan.layout, &counts)?;
        return Ok((FittedModel::counted(counts), Timings::default()));
    }
    let threads = rayon::current_num_threads();
    plan.check_memory(size(&counts), threads, memory::limit())?;
    let start = Instant::now();
    let shards = shards(&plan.layout, &mut counts)?;
    let shard_seconds = start.elapsed().as_secs_f64();
    let (model, timings) = fit_shards(&Local, plan, names, counts, &shards, checkpoints, progress)?;
    let timings = Timings {
        shard_seconds,
        ..timings
    };
    Ok((model.with(shards), timings))
}

/// Fits a model to counts whose matrix is in `shards`. The shards may be an outline if `executor`
/// makes the passes on other machines. The model has no matrix: see [`FittedModel::with`].
pub(crate) fn fit_shards(
    executor: &dyn Executor,
    plan: &CountsPlan,
    names: &RunSchema,
    mut counts: CountMatrix,
    shards: &Shards,
    checkpoints: &dyn Checkpoints,
    progress: &dyn Progress,
) -> Result<(FittedModel, Timings)> {
    let place = place(names, &counts);
    let evidence = evidence(plan, names, &counts, shards);
    let stages = Stages {
        executor,
        plan,
        place: &place,
        folder: format!("{}-{}", counts.partition, counts.lag),
        evidence: &evidence,
        checkpoints,
        progress,
    };
    let check = |method: &Method| check_evidence(plan, names, &counts, &evidence, method);
    let mut fitted = stages.fit_all(check)?;
    let (embeddings, embedding_timings) = stages.embed_all();
    let (start, groups) = (Instant::now(), counts.groups.take());
    let bootstraps = stages.resample(&counts, groups.as_ref(), &fitted);
    let bootstrap_seconds = (!bootstraps.is_empty()).then(|| start.elapsed().as_secs_f64());
    for (candidate, bootstrap) in fitted.iter_mut().zip(bootstraps) {
        candidate.bootstrap = Some(bootstrap);
    }
    let start = Instant::now();
    let rank_evidence = RankEvidence {
        counts: &evidence,
        shard_nnz: shard_nnz(shards.nnz()),
        groups: groups.as_ref(),
        seed: stages.seed("ranks"),
    };
    let mut ranks = ranks::compare(&stages.passes(), plan, &rank_evidence, &fitted)?;
    let ranks_seconds = (!ranks.is_empty()).then(|| start.elapsed().as_secs_f64());
    let mut model = FittedModel {
        embeddings,
        ..FittedModel::bare(counts)
    };
    let (mut fit_timings, mut methods) = (Vec::new(), Vec::new());
    for chosen in ranks::choose(plan, fitted, &mut ranks)? {
        methods.push(chosen.method);
        model.fits.push(chosen.fit);
        fit_timings.push(chosen.timings);
        model.bootstraps.extend(chosen.bootstrap);
    }
    model.ranks = ranks;
    certify(&mut model, &methods, shards);
    let timings = Timings {
        shard_seconds: 0.0,
        bootstrap_seconds,
        ranks_seconds,
        fits: fit_timings,
        embeddings: embedding_timings,
    };
    Ok((model, timings))
}

/// The certificates of the fits of a model, and all its numbers in the unit of the input.
fn certify(model: &mut FittedModel, methods: &[Method], shards: &Shards) {
    let start = Instant::now();
    let models: Vec<&LowRank> = model.fits.iter().map(|fit| &fit.model).collect();
    model.certificates = certificates::of(shards, &models);
    if shards.exponent != 0 {
        let scale = |x: &mut f64| *x = times_power(*x, shards.exponent);
        for (fit, method) in model.fits.iter_mut().zip(methods) {
            scale::fit(fit, method, scale);
        }
        for of_fit in &mut model.certificates {
            scale::certificates(of_fit, scale);
        }
        for bootstrap in &mut model.bootstraps {
            scale::bootstrap(bootstrap, scale);
        }
        for row in &mut model.ranks {
            scale(&mut row.criteria.log_likelihood);
        }
    }
    tracing::debug!(seconds = start.elapsed().as_secs_f64(), "certificates");
}

/// What the stages of fitting one model have in common.
struct Stages<'a> {
    executor: &'a dyn Executor,
    plan: &'a CountsPlan,
    /// The partition and lag, see [`place`].
    place: &'a str,
    /// Where the checkpoints of the model are.
    folder: String,
    evidence: &'a Counts<'a>,
    checkpoints: &'a dyn Checkpoints,
    progress: &'a dyn Progress,
}

impl Stages<'_> {
    fn seed(&self, name: &str) -> u64 {
        seed(self.plan.job.seed, self.place, name)
    }

    fn passes(&self) -> Passes<'_> {
        Passes::at(self.executor).resuming(self.checkpoints, self.folder.clone())
    }

    /// Does a piece of work that has the name `name` among the checkpoints.
    fn timed<T>(&self, name: &str, work: impl FnOnce(&Passes<'_>) -> T) -> (T, FitTimings) {
        let (start, steps) = (Instant::now(), Steps::default());
        let resumed = self.checkpoints.has(&format!("{}/{name}", self.folder));
        let done = work(&self.passes().timed(&steps));
        let seconds = start.elapsed().as_secs_f64();
        let steps = steps.seconds().into_iter();
        let timings = FitTimings {
            resumed,
            seconds,
            steps: steps.map(|(step, s)| (step.into(), s)).collect(),
            choice: None,
        };
        (done, timings)
    }

    /// Fits all candidates. `check` refuses methods that the states do not suit.
    fn fit_all(&self, check: impl Fn(&Method) -> Result<()>) -> Result<Vec<FittedCandidate>> {
        let mut fitted = Vec::new();
        let shards = &self.evidence.shards;
        let candidates = self.plan.candidates(shards.n_sources, shards.n_targets)?;
        for (n, (at, candidate)) in candidates.iter().enumerate() {
            let method = &candidate.method;
            check(method)?;
            let (name, seed) = (format!("fit-{n}"), self.seed(&candidate.name));
            let (fit, timings) = self.timed(&name, |passes| {
                passes.try_piece(&name, |passes| {
                    methods::fit(passes, method, self.evidence, seed)
                })
            });
            fitted.push(FittedCandidate {
                planned: *at,
                method: method.clone(),
                seed,
                fit: fit.map_err(|e| e.at(format!("fit `{}`", candidate.name)))?,
                timings,
                bootstrap: None,
            });
            if candidates.get(n + 1).is_none_or(|next| next.0 != *at) {
                self.progress.advance(1);
            }
        }
        Ok(fitted)
    }

    /// Makes all embeddings.
    fn embed_all(&self) -> (Vec<ChainEmbedding>, Vec<FitTimings>) {
        let each = self.plan.embeddings.iter().enumerate().map(|(n, planned)| {
            let (name, seed) = (format!("embedding-{n}"), self.seed(&planned.name));
            let embedded = self.timed(&name, |passes| {
                passes.piece(&name, |passes| {
                    planned.method.embed(passes, self.evidence, seed)
                })
            });
            self.progress.advance(1);
            embedded
        });
        each.unzip()
    }

    /// Fits all candidates to resamples of the groups. Empty if the plan asks for none.
    fn resample(
        &self,
        counts: &CountMatrix,
        groups: Option<&Groups>,
        fitted: &[FittedCandidate],
    ) -> Vec<Bootstrap> {
        let (plan, evidence) = (self.plan, self.evidence);
        let (Some(validation), Some(groups)) = (&plan.validation, groups) else {
            return Vec::new();
        };
        if validation.bootstrap == 0 {
            return Vec::new();
        }
        let source_of_target = if plan.markov {
            places(&counts.target_states, &counts.source_states).collect()
        } else {
            Vec::new()
        };
        let chain = Chain {
            source_of_target: &source_of_target,
            lag: plan.lags.get(counts.lag).map_or(1.0, Lag::number),
        };
        let params = BootstrapParams {
            resamples: validation.bootstrap,
            confidence: validation.confidence,
            chain: plan.markov.then_some(chain),
            shard_nnz: shard_nnz(evidence.shards.nnz()),
        };
        let fits: Vec<_> = fitted.iter().map(|c| (&c.method, &c.fit)).collect();
        let (passes, seed) = (self.passes(), self.seed("bootstrap"));
        let advance = || self.progress.advance(1);
        bootstrap::bootstrap(&passes, groups, evidence, &fits, &params, seed, &advance)
    }
}

impl FittedModel {
    /// Counts and their totals, if the plan fits nothing.
    fn counted(counts: CountMatrix) -> FittedModel {
        let (source_total, target_total, total) =
            totals(counts.target_states.len(), &counts.by_source);
        FittedModel {
            source_total,
            target_total,
            total,
            ..FittedModel::bare(counts)
        }
    }

    /// The model with the matrix that it was fitted to, in the unit of the input.
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

/// Scales the numbers of a model that are proportional to its counts, from the unit of the weights
/// back to the unit of the input.
mod scale {
    use crate::assess::bootstrap::Bootstrap;
    use crate::assess::certificates::Certificate;
    use crate::methods::Method;
    use crate::methods::fit::Fit;

    pub(super) fn fit(fit: &mut Fit, method: &Method, mut scale: impl FnMut(&mut f64)) {
        let model = &mut fit.model;
        model.scale_counts(&mut scale);
        // The objectives of the other methods depend on probabilities alone.
        if method.objective_scales() {
            let objectives = fit
                .how
                .restarts
                .iter_mut()
                .map(|restart| &mut restart.objective);
            objectives.chain(&mut fit.how.trace).for_each(scale);
        }
    }

    pub(super) fn certificates(certificates: &mut [Certificate], mut scale: impl FnMut(&mut f64)) {
        let of_counts =
            |c: &&mut Certificate| matches!(c.name.as_ref(), "likelihood" | "reference");
        for certificate in certificates.iter_mut().filter(of_counts) {
            scale(&mut certificate.left);
            scale(&mut certificate.right);
            scale(&mut certificate.tolerance);
        }
    }

    pub(super) fn bootstrap(bootstrap: &mut Bootstrap, mut scale: impl FnMut(&mut f64)) {
        for number in &mut bootstrap.of.numbers {
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

/// The schema of the tables of a run. `labels` is the number of labels of each given partition.
pub(crate) fn names(plan: &CountsPlan, counted: &Counted, labels: &[usize]) -> RunSchema {
    let states = [counted.sources.clone(), counted.targets.clone()];
    plan.run_schema(counted.partitions.clone(), states, labels)
}

/// A partition and lag as text: `airline=FR, lag 5d`. Empty for pairs without partitions.
pub(crate) fn place(names: &RunSchema, counts: &CountMatrix) -> String {
    place_of(names, counts.partition, counts.lag)
}

/// An error with the place of the model in front, if the model has one.
pub(crate) fn at_place(e: Error, names: &RunSchema, counts: &CountMatrix) -> Error {
    match place(names, counts) {
        place if place.is_empty() => e,
        place => e.at(place),
    }
}

/// The place of a partition, for messages and seeds.
pub(crate) fn partition_place(run: &RunSchema, partition: usize) -> String {
    match place_of(run, partition, 0) {
        place if place.is_empty() => "the model".into(),
        place => place,
    }
}

/// Like [`place`], for the index of a partition and that of a lag.
pub(crate) fn place_of(names: &RunSchema, partition: usize, lag: usize) -> String {
    let mut parts: Vec<String> = partition_key(names, partition)
        .into_iter()
        .map(|(name, value)| escaped(&format!("{name}={value}")))
        .collect();
    if let Some(lag) = names.lag.text(lag) {
        parts.push(format!("lag {lag}"));
    }
    parts.join(", ")
}

/// The value of each partition column, by its name.
pub(crate) fn partition_key(names: &RunSchema, partition: usize) -> BTreeMap<String, String> {
    let columns = names.partition.iter().zip(&names.partitions);
    let key = columns.map(|(field, column)| {
        let value = key_text(std::slice::from_ref(column), partition);
        (field.name().clone(), value)
    });
    key.collect()
}

/// The evidence that methods are fitted to.
fn evidence<'a>(
    plan: &CountsPlan,
    names: &RunSchema,
    counts: &CountMatrix,
    shards: &'a Shards,
) -> Counts<'a> {
    let mut evidence = Counts::of(shards);
    let has_common_states = |fit: &PlannedFit| fit.method.needs().states != States::Apart;
    let is_symmetrised =
        |fit: &PlannedFit<ChainMethod>| fit.method.kernel() == ChainKernel::Symmetrised;
    if plan.fits.iter().any(has_common_states) || plan.embeddings.iter().any(is_symmetrised) {
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

/// An error if the states of the counts do not fit the needs of a method.
fn check_evidence(
    plan: &CountsPlan,
    names: &RunSchema,
    counts: &CountMatrix,
    evidence: &Counts<'_>,
    method: &Method,
) -> Result<()> {
    let needs = method.needs();
    let open = evidence.source_of_target.iter().position(Option::is_none);
    if let (States::Closed, Some(target)) = (needs.states, open) {
        return Err(Error::input(format!(
            "method \"{}\" needs transitions from every target state, but no transition starts in state {}; leave out the transitions to this state in the SQL, or use method \"metastable\", \"cocluster\" or \"svd\"",
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

/// For each of `own`, its index in `others`, if it is there. Both lists ascend.
fn places(own: &[u32], others: &[u32]) -> impl Iterator<Item = Option<u32>> {
    let place = |id| others.binary_search(id).ok().map(|at| at as u32);
    own.iter().map(place)
}

/// The seed of a fit. It depends on the seed of the run, the place of the model and the name of the
/// fit alone, so that other models and fits do not change it.
pub(crate) fn seed(seed: u64, place: &str, fit: &str) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&(place.len() as u64).to_le_bytes());
    hasher.update(place.as_bytes());
    hasher.update(fit.as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// The record of model number `at`.
pub(crate) fn record(plan: &CountsPlan, fitted: &Fitted<CountsKind>, at: usize) -> ModelRecord {
    let (model, timings) = (&fitted.models[at], &fitted.shared.timings[at]);
    let (counts, reuse_sets) = (&model.counts, fitted.shared.reuse_sets);
    let fits = timings.fits.iter().enumerate();
    let fits = fits.map(|(at, timings)| fit_record(plan, model, at, timings.clone(), reuse_sets));
    let embeddings = plan.embeddings.iter().zip(&model.embeddings);
    let embeddings = embeddings
        .zip(&timings.embeddings)
        .map(|((planned, own), timings)| embedding_record(planned, own, timings.clone()));
    ModelRecord {
        sources: counts.source_states.len(),
        targets: counts.target_states.len(),
        nonzeros: model.nonzeros,
        transitions: model.total,
        dropped: counts.left_out.as_ref().map(|left_out| DroppedStates {
            components: left_out.components,
            states: left_out.states,
            transitions: left_out.transitions,
        }),
        shard_seconds: timings.shard_seconds,
        bootstrap_seconds: timings.bootstrap_seconds,
        ranks_seconds: timings.ranks_seconds,
        fits: fits.collect(),
        embeddings: embeddings.collect(),
    }
}

fn embedding_record(
    planned: &PlannedFit<ChainMethod>,
    own: &ChainEmbedding,
    timings: FitTimings,
) -> EmbeddingRecord {
    EmbeddingRecord {
        name: planned.name.clone(),
        method: planned.method.name(),
        certified: certificates::certified(&kernels::of_chain(own)),
        eigenvalues: own.spectrum.iter().map(|level| level.value).collect(),
        products: own.products,
        warnings: own.warnings.iter().map(ToString::to_string).collect(),
        resumed: timings.resumed,
        seconds: timings.seconds,
        steps: timings.steps,
    }
}

/// The record of fit number `at` of a model.
fn fit_record(
    plan: &CountsPlan,
    of: &FittedModel,
    at: usize,
    timings: FitTimings,
    reuse_sets: bool,
) -> FitRecord {
    let (planned, fit) = (&plan.fits[at], &of.fits[at]);
    let (model, metrics) = (&fit.model, &fit.model.metrics);
    let markov = of.markov.get(at);
    let timescales = markov.map(|markov| {
        let timescales = markov.timescales.iter().zip(&markov.intervals);
        timescales
            .filter_map(|(t, interval)| Some((t.timescale?, *interval)))
            .unzip()
    });
    let (timescales, intervals): (Option<Vec<f64>>, Option<Vec<_>>) = timescales.unzip();
    let deviation = markov.and_then(Markov::deviation);
    let confidence = plan.validation.as_ref().map_or(0.0, |v| v.confidence);
    let bootstrap = of.bootstraps.get(at);
    let tracked = of.tracked_sets.get(at);
    let lineage = tracked.filter(|own| own.changes.is_some() && !reuse_sets);
    FitRecord {
        name: planned.name.clone(),
        method: planned.method.name(),
        rank: model.rank,
        seed: fit.how.seed,
        converged: fit.how.converged,
        certified: certificates::certified(&of.certificates[at]),
        iterations: fit.how.iterations,
        restarts: fit.how.restarts.len(),
        empty_states: metrics.empty_states,
        log_likelihood: metrics.log_likelihood,
        reference_log_likelihood: metrics.reference_log_likelihood,
        coherence: metrics.coherence,
        objective: metrics.objective,
        singular_values: model.spectrum.iter().map(|s| s.value).collect(),
        source_sizes: metrics.source_sizes.clone(),
        thin_sets: thin_sets(&metrics.weights),
        timescales,
        timescale_intervals: intervals.filter(|_| plan.resamples() > 0),
        chapman_kolmogorov: deviation.map(|(steps, largest)| Deviation { steps, largest }),
        resumed: timings.resumed,
        seconds: timings.seconds,
        steps: timings.steps,
        bootstrap: bootstrap.map(|own| BootstrapRecord::new(&own.of, confidence)),
        choice: timings.choice,
        lineage: lineage.cloned(),
    }
}

/// The error if no two states are strongly connected.
pub(crate) fn nothing_connected() -> Error {
    Error::input(
        "no chain of transitions returns to its first state, so `connected = true` leaves nothing; use longer trajectories, larger boxes or fewer states",
    )
}
