//! The counts of one partition and lag → a model: all of its fits, resamples, ranks and certificates.

use crate::count::{Counted, Counts, LARGEST_TOTAL, escaped, key_text};
use crate::error::{Error, Result};
use crate::manifest::{DroppedStates, FitRecord, FitTold, ModelRecord, Told};
use crate::plan::{Plan, PlannedFit, PlannedMethod, Size};
use crate::ranks::{self, Ground, Tried};
use crate::reduce::bootstrap;
use crate::reduce::markov::Chain;
use crate::reduce::{self, Evidence, Fit, Method, certificates};
use crate::run::Progress;
use crate::runner::{Kept as Keeping, Local, Memory, Runner, Timed};
use crate::shard::Shards;
use crate::spec::Lag;
use crate::write::{self, Model, Names};
use std::collections::BTreeMap;
use std::time::Instant;

/// Non-zeros of a shard: small enough that two threads share a model evenly, large enough that a pass is not all overhead.
fn shard_nnz(nnz: usize) -> usize {
    (nnz / (8 * rayon::current_num_threads())).clamp(1 << 14, 1 << 20)
}

/// Takes the matrix out of the counts for the time of the fits.
pub(crate) fn shards(counts: &mut Counts) -> Result<Shards> {
    if counts.total > u128::from(LARGEST_TOTAL) {
        return Err(Error::input(format!(
            "the counts add up to more than {LARGEST_TOTAL}, the largest total that stays exact; scale them down"
        )));
    }
    let (nnz, by_source) = (counts.nnz(), std::mem::take(&mut counts.by_source));
    let n_targets = counts.target_states.len();
    Ok(Shards::from_sources(n_targets, by_source, shard_nnz(nnz)))
}

/// Fits a model to the counts of one partition and lag, and says how it went. `memory` may know pieces of it.
pub fn fit_model(
    plan: &Plan,
    names: &Names,
    mut counts: Counts,
    memory: &dyn Memory,
    progress: &dyn Progress,
) -> Result<(Model, Told)> {
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
    let shards = shards(&mut counts)?;
    let shard_seconds = start.elapsed().as_secs_f64();
    let from = (counts, &shards);
    let (model, told) = fit_shards(&Local, plan, names, from, memory, progress)?;
    let told = Told {
        shard_seconds,
        ..told
    };
    Ok((model.with(shards), told))
}

/// The same with the matrix in shards, which may be an outline for a runner that has the passes done elsewhere. The model is without them:
/// [`Model::with`].
pub(crate) fn fit_shards<R: Runner>(
    passes: &R,
    plan: &Plan,
    names: &Names,
    (mut counts, shards): (Counts, &Shards),
    memory: &dyn Memory,
    progress: &dyn Progress,
) -> Result<(Model, Told)> {
    let place = place(names, &counts);
    let whole = format!("{}-{}", counts.partition, counts.lag);
    let mut tried = Vec::new();
    let candidates = plan.candidates(shards.n_sources, shards.n_targets)?;
    for (n, (at, candidate)) in candidates.iter().enumerate() {
        let columns = &names.fits[*at];
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
        let (start, runner) = (Instant::now(), Timed::new(passes));
        let seed = seed(plan.seed, &place, &candidate.name);
        let name = format!("fit-{n}");
        let is_known = memory.has(&format!("{whole}/{name}"));
        let fit = Keeping::new(&runner, memory, whole.clone())
            .try_piece(&name, |runner| {
                reduce::fit(runner, &method, Evidence::Counts(shards), seed)
            })
            .map_err(|e| e.at(format!("fit `{}`", candidate.name)))?;
        let seconds = start.elapsed().as_secs_f64();
        let steps = runner.seconds().into_iter();
        let told = FitTold {
            resumed: is_known,
            seconds,
            steps: steps.map(|(step, s)| (step.into(), s)).collect(),
            choice: None,
        };
        tried.push(Tried {
            planned: *at,
            method,
            seed,
            fit,
            told,
            bootstrap: None,
        });
        if candidates.get(n + 1).is_none_or(|next| next.0 != *at) {
            progress.advance(1);
        }
    }
    let runner = Keeping::new(passes, memory, whole);
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
            bootstrap::bootstrap(&runner, groups, shards, &fits, &params, seed, &heard)
        }
        _ => Vec::new(),
    };
    let bootstrap_seconds = (!bootstraps.is_empty()).then(|| start.elapsed().as_secs_f64());
    for (tried, bootstrap) in tried.iter_mut().zip(bootstraps) {
        tried.bootstrap = Some(bootstrap);
    }
    let start = Instant::now();
    let ground = Ground {
        shards,
        shard_nnz: shard_nnz(shards.nnz()),
        groups: groups.as_ref(),
        seed: seed(plan.seed, &place, "ranks"),
    };
    let mut ranks = ranks::compare(&runner, plan, &ground, &tried)?;
    let ranks_seconds = (!ranks.is_empty()).then(|| start.elapsed().as_secs_f64());
    let (mut fits, mut told, mut bootstraps) = (Vec::new(), Vec::new(), Vec::new());
    for kept in ranks::pick(plan, tried, &mut ranks)? {
        fits.push(kept.fit);
        told.push(kept.told);
        bootstraps.extend(kept.bootstrap);
    }
    let start = Instant::now();
    let certificates = certificates::of(shards, &fits);
    tracing::debug!(seconds = start.elapsed().as_secs_f64(), "certificates");
    let told = Told {
        shard_seconds: 0.0,
        bootstrap_seconds,
        ranks_seconds,
        fits: told,
    };
    let model = Model {
        counts,
        nonzeros: 0,
        fits,
        certificates,
        bootstraps,
        ranks,
        lineage: Vec::new(),
        markov: Vec::new(),
        source_total: Vec::new(),
        target_total: Vec::new(),
        total: 0.0,
    };
    Ok((model, told))
}

impl Model {
    /// The model with the matrix that it was fitted to.
    pub(crate) fn with(mut self, shards: Shards) -> Model {
        self.nonzeros = shards.nnz();
        self.counts.by_source = shards.by_source;
        self.source_total = shards.source_total;
        self.target_total = shards.target_total;
        self.total = shards.total;
        self
    }
}

/// Everything that the columns of the tables are made from. `labels`: how many each given partition has.
pub(crate) fn names(plan: &Plan, counted: &Counted, labels: &[usize]) -> Names {
    Names {
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
pub(crate) fn place(names: &Names, counts: &Counts) -> String {
    place_of(names, counts.partition, counts.lag)
}

/// The same by number.
pub(crate) fn place_of(names: &Names, partition: usize, lag: usize) -> String {
    let mut parts: Vec<String> = partition_key(names, partition)
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escaped(&value)))
        .collect();
    if let Some(lag) = names.lag.text(lag) {
        parts.push(format!("lag {lag}"));
    }
    parts.join(", ")
}

pub(crate) fn partition_key(names: &Names, partition: usize) -> BTreeMap<String, String> {
    let columns = names.partition.iter().zip(&names.partitions);
    let key = columns.map(|(field, column)| {
        let value = key_text(std::slice::from_ref(column), partition);
        (field.name().clone(), value)
    });
    key.collect()
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

/// The record of a model.
pub fn record(plan: &Plan, names: &Names, model: &Model, told: Told) -> ModelRecord {
    let counts = &model.counts;
    let fits = plan.fits.iter().zip(&model.fits).zip(&model.certificates);
    let fits = fits.zip(told.fits);
    let of_fit =
        |(((planned, fit), certificates), told): (((&PlannedFit, &Fit), &Vec<_>), FitTold)| {
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

fn fit_record(planned: &PlannedFit, fit: &Fit, certified: bool, told: FitTold) -> FitRecord {
    FitRecord {
        name: planned.name.clone(),
        method: planned.method_name(),
        rank: fit.rank,
        seed: fit.seed,
        converged: fit.converged,
        certified,
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
