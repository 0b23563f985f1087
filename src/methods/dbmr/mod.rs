//! Direct Bayesian model reduction: counts → a partition of the sources into r latent states
//! (coherence, Algorithm 2).
//!
//! In: N, m targets × n sources, and a rank r. Out: for every source j its latent state γ(j) in
//! 0..r. Of all restarts the one with the largest relaxed likelihood (14) is kept: ℓ̂ = Σ_ij N_ij
//! log λ_{i γ(j)} with λ_ik = C_ik / C_·k and C_ik = Σ_{γ(j)=k} N_ij (15). In terms of the cluster
//! sums C, ℓ̂ = Σ_ik C_ik log C_ik − Σ_k C_·k log C_·k.
//!
//! In the paper a restart begins with independent uniform states and alternates between γ and λ
//! (`alternate`). With `polish`, exact moves of single sources replace the alternation
//! (`local_search`), states are split and merged (`split_merge`), and restarts begin with sources
//! that are far apart (`seeding`). This reaches larger ℓ̂ with fewer restarts. If there are many
//! sources, the restarts run on a sample of them, and the best one continues on all sources.

pub(crate) mod alternate;
pub(crate) mod block_search;
pub mod entropy;
pub(crate) mod estimator;
pub(crate) mod local_search;
pub mod matrix_columns;
pub mod moves;
pub mod nearest;
pub mod params;
pub(crate) mod scan;
pub(crate) mod seeding;
pub(crate) mod split_merge;

use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::math::seed::restart_seed;
use crate::methods::dbmr::block_search::BlockSearch;
use crate::methods::dbmr::local_search::{Search, Sweeps, empty_search};
use crate::methods::dbmr::matrix_columns::Columns;
use crate::methods::dbmr::moves::{Clusters, NONE};
use crate::methods::dbmr::params::{Dbmr, Init, Partition};
use crate::methods::fit::Restart;
use crate::methods::spectral::svd;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Rounds of split and merge that fail in a row before a restart ends: on all sources, and on a
/// sample, where the best partition is only the start of the search on all sources.
const PATIENCE: usize = 4;
const SAMPLE_PATIENCE: usize = 1;

/// If `AGREE` restarts have reached the best result, the remaining restarts are skipped.
const AGREE: usize = 3;

/// Restarts between two comparisons of their results after the first `AGREE`, for any number of
/// threads.
const AT_ONCE: usize = 4;

/// The tolerance on a sample.
const SAMPLE_TOLERANCE: f64 = 1e-3;

/// Non-zeros from which the local search moves blocks of sources, one pass per block. With fewer it
/// moves one source at a time, which ends with a slightly larger ℓ̂.
const MANY_NONZEROS: usize = 1 << 22;

/// Fits `params.restarts` affiliations and keeps the best.
pub(crate) fn fit(passes: &Passes<'_>, shards: &Shards, params: &Dbmr, seed: u64) -> Partition {
    if params.init != Init::Svd {
        return fit_from(passes, shards, params, None, seed);
    }
    let pairs = svd::Svd::new(params.rank);
    let embedding = svd::embedding(passes, shards, &pairs, seed);
    passes.step("cluster");
    let [sources, _] = svd::clusters(&embedding, shards, &pairs, seed);
    passes.step("partition");
    fit_from(passes, shards, params, Some(&sources.affiliation), seed)
}

/// [`fit`] from a given partition of the sources, which `Init::Svd` needs.
fn fit_from(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Dbmr,
    start: Option<&[u32]>,
    seed: u64,
) -> Partition {
    assert!(params.rank > 0, "a partition needs a latent state");
    assert!(params.restarts > 0, "a fit needs a restart");
    assert_eq!(
        start.is_some(),
        params.init == Init::Svd,
        "a partition to begin with and nothing else to begin with"
    );
    if params.polish {
        return search_moves(passes, shards, params, start, seed);
    }
    alternate::fit(passes, shards, params, start, seed)
}

/// The search with exact moves. The restarts run on a sample of the sources, and the best continues
/// on all sources. If there are few sources, the sample is all of them. The sample is in memory: it
/// has about one non-zero per target, and the sums of the targets are in memory as well.
fn search_moves(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Dbmr,
    start: Option<&[u32]>,
    seed: u64,
) -> Partition {
    let sources = match start {
        Some(_) if shards.nnz() < MANY_NONZEROS => None,
        _ => seeding::sample(shards, params.rank),
    };
    let Some(sources) = sources else {
        let on_all = Dbmr {
            tolerance: Some(0.0),
            ..params.clone()
        };
        let shards = resident(passes, shards);
        let columns = Columns::new(&shards);
        return search_restarts(passes, &columns, &on_all, start, PATIENCE, seed);
    };
    let on_sample = Dbmr {
        tolerance: Some(params.tolerance().max(SAMPLE_TOLERANCE)),
        ..params.clone()
    };
    let sample = seeding::restrict(passes, shards, &sources);
    let start: Option<Vec<u32>> =
        start.map(|states| sources.iter().map(|&j| states[j as usize]).collect());
    let mut partition = search_restarts(
        passes,
        &Columns::new(&sample),
        &on_sample,
        start.as_deref(),
        SAMPLE_PATIENCE,
        seed,
    );
    let mut states = vec![NONE; shards.n_sources];
    for (&j, &k) in sources.iter().zip(&partition.affiliation) {
        states[j as usize] = k;
    }
    let best = &mut partition.restarts[partition.best];
    let all;
    (all, partition.affiliation, partition.trace) = local_optimum(
        passes,
        shards,
        params,
        params.tolerance(),
        states,
        best.seed,
    );
    let evaluations = best.evaluations.unwrap_or(0) + all.evaluations.unwrap_or(0);
    *best = Restart {
        evaluations: Some(evaluations),
        ..all
    };
    partition
}

/// The matrix with all its entries in this process.
fn resident<'a>(passes: &Passes<'_>, shards: &'a Shards) -> Cow<'a, Shards> {
    if !shards.is_outline() {
        return Cow::Borrowed(shards);
    }
    let all: Vec<u32> = (0..shards.n_sources as u32).collect();
    Cow::Owned(seeding::restrict(passes, shards, &all))
}

/// Runs the local search from states of some or all sources. It moves single sources, or blocks of
/// sources if there are many counts.
fn local_optimum(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Dbmr,
    tolerance: f64,
    states: Vec<u32>,
    seed: u64,
) -> (Restart, Vec<u32>, Vec<f64>) {
    let mut trace = Vec::new();
    if shards.nnz() >= MANY_NONZEROS {
        let mut search = BlockSearch::new(passes, shards, params.rank, states);
        let converged = search.run(params.max_iterations, tolerance, &mut trace);
        let end = End {
            clusters: &search.clusters,
            sources: shards.n_sources,
            scores: search.scores,
            log_likelihood: search.log_likelihood(),
            converged,
        };
        let restart = record(end, params, seed, &mut trace);
        return (restart, search.states, trace);
    }
    let shards = resident(passes, shards);
    let columns = Columns::new(&shards);
    let members: Vec<u32> = (0..shards.n_sources as u32).collect();
    let mut search = empty_search(&columns, &members, params.rank);
    search.fill(states);
    search.insert();
    let converged = search.run(params.max_iterations, tolerance, &mut trace);
    let restart = record(End::of(&search, converged), params, seed, &mut trace);
    (restart, search.states, trace)
}

/// The local optimum near `start`, a partition that is nearly right. There is one restart and no
/// split and merge.
pub(crate) fn fit_near(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Dbmr,
    start: &[u32],
    seed: u64,
) -> Partition {
    let params = Dbmr {
        init: Init::Svd,
        restarts: 1,
        ..params.clone()
    };
    if !params.polish {
        return alternate::fit(passes, shards, &params, Some(start), seed);
    }
    let tolerance = match seeding::sample(shards, params.rank) {
        Some(_) => params.tolerance(),
        None => 0.0,
    };
    let (restart, affiliation, trace) =
        local_optimum(passes, shards, &params, tolerance, start.to_vec(), seed);
    Partition {
        affiliation,
        restarts: vec![restart],
        best: 0,
        trace,
    }
}

/// What all restarts on all sources of a matrix share.
struct Restarts<'a> {
    columns: &'a Columns<'a>,
    /// All sources.
    members: Vec<u32>,
    params: &'a Dbmr,
    /// The partition that every restart begins with, if one is given.
    start: Option<&'a [u32]>,
    /// Rounds of split and merge that fail in a row before a restart ends.
    patience: usize,
    seed: u64,
}

/// A restart after its local search, before split and merge.
struct LocalOptimum<'a> {
    seed: u64,
    rng: Pcg64,
    search: Search<'a>,
    trace: Vec<f64>,
    converged: bool,
}

/// A restart, its states, and the value of ℓ̂ after each iteration.
type Ended = (Restart, Vec<u32>, Vec<f64>);

impl Restarts<'_> {
    /// Local search of one restart.
    fn optimum(&self, index: usize) -> LocalOptimum<'_> {
        let params = self.params;
        let seed = restart_seed(self.seed, index);
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut search = empty_search(self.columns, &self.members, params.rank);
        match (params.init, self.start) {
            (_, Some(start)) => search.fill(start.to_vec()),
            (Init::Kl, None) => search.grow_apart(&mut rng),
            _ => search.fill(seeding::random(self.members.len(), params.rank, &mut rng)),
        }
        let mut trace = Vec::new();
        let converged = search.run(params.max_iterations, params.tolerance(), &mut trace);
        LocalOptimum {
            seed,
            rng,
            search,
            trace,
            converged,
        }
    }

    /// Split and merge from a local optimum, unless it is a repeat.
    fn improve(&self, mut own: LocalOptimum, is_repeat: bool) -> Ended {
        let (search, trace) = (&mut own.search, &mut own.trace);
        if own.converged && !is_repeat {
            let rng = &mut own.rng;
            own.converged =
                split_merge::split_and_merge(search, self.params, self.patience, rng, trace);
        }
        let end = End::of(search, own.converged);
        let restart = record(end, self.params, own.seed, trace);
        (restart, own.search.states, own.trace)
    }

    /// Runs some restarts in parallel. `seen` are the local optima of earlier restarts. Returns the
    /// new local optima, and the restarts.
    fn run(&self, restarts: Range<usize>, seen: &[Vec<u32>]) -> (Vec<Vec<u32>>, Vec<Ended>) {
        let optima: Vec<_> = restarts
            .into_par_iter()
            .map(|index| self.optimum(index))
            .collect();
        let mut new: Vec<Vec<u32>> = Vec::new();
        let are_repeats: Vec<bool> = optima
            .iter()
            .map(|own| {
                let states = &own.search.states;
                let is_same =
                    |other: &Vec<u32>| split_merge::is_same(states, other, self.params.rank);
                let is_repeat = self.start.is_none() && seen.iter().chain(&new).any(is_same);
                if !is_repeat {
                    new.push(states.clone());
                }
                is_repeat
            })
            .collect();
        let ended = optima
            .into_par_iter()
            .zip(are_repeats)
            .map(|(own, is_repeat)| self.improve(own, is_repeat))
            .collect();
        (new, ended)
    }
}

/// Restarts on all sources, in parallel. A restart whose local optimum an earlier restart has
/// reached skips split and merge, which rarely finds more the second time. Restarts from one
/// `start` differ in split and merge only, so none of them skips it.
fn search_restarts(
    passes: &Passes<'_>,
    columns: &Columns,
    params: &Dbmr,
    start: Option<&[u32]>,
    patience: usize,
    seed: u64,
) -> Partition {
    let restarts = Restarts {
        columns,
        members: (0..columns.shards.n_sources as u32).collect(),
        params,
        start,
        patience,
        seed,
    };
    let (mut ended, mut best) = (Vec::with_capacity(params.restarts), 0);
    // The local optima so far.
    let mut seen: Vec<Vec<u32>> = Vec::new();
    while ended.len() < params.restarts {
        let first = ended.len();
        let next = first + if first == 0 { AGREE } else { AT_ONCE };
        let at_once = first..params.restarts.min(next);
        let name = format!("restarts-{first}");
        let (new, more) = passes.piece(&name, |_| restarts.run(at_once, &seen));
        seen.extend(new);
        ended.extend(more);
        let log_likelihood = |(restart, ..): &Ended| restart.objective;
        for t in first..ended.len() {
            if log_likelihood(&ended[t]) > log_likelihood(&ended[best]) {
                best = t;
            }
        }
        let largest = log_likelihood(&ended[best]);
        let is_best = |end: &&_| largest - log_likelihood(end) <= 1e-9 * largest.abs();
        if ended.iter().filter(is_best).count() >= AGREE {
            break;
        }
    }
    let (_, states, trace) = &mut ended[best];
    Partition {
        affiliation: std::mem::take(states),
        trace: std::mem::take(trace),
        restarts: ended.into_iter().map(|(restart, ..)| restart).collect(),
        best,
    }
}

/// The result of a search.
struct End<'a> {
    clusters: &'a Clusters,
    sources: usize,
    /// Scores of one state for one column that were computed.
    scores: u64,
    /// Summed from C.
    log_likelihood: f64,
    converged: bool,
}

impl<'a> End<'a> {
    fn of(search: &'a Search, converged: bool) -> End<'a> {
        End {
            clusters: &search.clusters,
            sources: search.members.len(),
            scores: search.scores,
            log_likelihood: search.log_likelihood(),
            converged,
        }
    }
}

fn record(end: End, params: &Dbmr, seed: u64, trace: &mut [f64]) -> Restart {
    if let Some(last) = trace.last_mut() {
        *last = end.log_likelihood;
    }
    Restart {
        seed,
        init: Some(params.init.name().into()),
        sources: end.sources,
        iterations: trace.len(),
        evaluations: Some(end.scores.div_ceil(params.rank as u64)),
        objective: end.log_likelihood,
        empty_states: end.clusters.empty(),
        converged: end.converged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense as shards;
    use crate::evidence::pass::Passes;
    use crate::math::testing::on_threads;
    use proptest::prelude::*;
    use rand::RngExt;

    fn params(rank: usize, restarts: usize) -> Dbmr {
        Dbmr {
            restarts,
            ..Dbmr::plain(rank)
        }
    }

    fn local(shards: &Shards, params: &Dbmr, seed: u64) -> Partition {
        fit(&Passes::local(), shards, params, seed)
    }

    /// Algorithm 2 as the paper writes it: affiliation and ℓ̂ after every iteration.
    fn plain(columns: &[Vec<f64>], rank: usize, seed: u64) -> (Vec<u32>, Vec<f64>) {
        let (n, m) = (columns.len(), columns[0].len());
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut gamma: Vec<u32> = (0..n).map(|_| rng.random_range(0..rank as u32)).collect();
        let update = |gamma: &[u32]| {
            let mut c = vec![vec![0.0; rank]; m];
            let mut total = vec![0.0; rank];
            for (column, &k) in columns.iter().zip(gamma) {
                for i in 0..m {
                    c[i][k as usize] += column[i];
                }
                total[k as usize] += column.iter().sum::<f64>();
            }
            let x_log_x = |x: &f64| if *x > 0.0 { x * x.ln() } else { 0.0 };
            let rows: f64 = c.iter().map(|r| r.iter().map(x_log_x).sum::<f64>()).sum();
            let log_likelihood = rows - total.iter().map(x_log_x).sum::<f64>();
            (c, total, log_likelihood)
        };
        let (mut c, mut total, mut log_likelihood) = update(&gamma);
        let mut trace = Vec::new();
        loop {
            let best = |column: &Vec<f64>, present: u32| {
                let mut best = (present, f64::NEG_INFINITY);
                for k in 0..rank {
                    let score: f64 = (0..m)
                        .filter(|&i| column[i] > 0.0)
                        .map(|i| column[i] * (c[i][k] / total[k]).ln())
                        .sum();
                    if score > best.1 {
                        best = (k as u32, score);
                    }
                }
                best.0
            };
            let next: Vec<u32> = columns
                .iter()
                .zip(&gamma)
                .map(|(x, &k)| best(x, k))
                .collect();
            let before = (log_likelihood, std::mem::replace(&mut gamma, next));
            (c, total, log_likelihood) = update(&gamma);
            trace.push(log_likelihood);
            if before.1 == gamma || log_likelihood <= before.0 {
                return (gamma, trace);
            }
        }
    }

    fn check_against_plain(columns: &[Vec<f64>], rank: usize, seed: u64, real: bool) {
        let s = shards(columns, real, 20);
        let fit = local(&s, &params(rank, 3), seed);
        for (t, restart) in fit.restarts.iter().enumerate() {
            let (gamma, trace) = plain(columns, rank, restart.seed);
            assert_eq!(restart.iterations, trace.len());
            assert_eq!(
                restart.objective.to_bits(),
                trace[trace.len() - 1].to_bits()
            );
            let used = (0..rank as u32).filter(|k| gamma.contains(k)).count();
            assert_eq!(restart.empty_states, rank - used);
            assert!(restart.converged);
            if t == fit.best {
                assert_eq!((&fit.affiliation, &fit.trace), (&gamma, &trace));
            }
        }
        // The two sums of ℓ̂ cancel, so its rounding error is that of S.
        for pair in fit.trace.windows(2) {
            assert!(pair[1] >= pair[0] - 1e-12 * s.total, "{:?}", fit.trace);
        }
    }

    /// Random sparse columns in which every target occurs.
    fn columns(real: bool) -> impl Strategy<Value = Vec<Vec<f64>>> {
        let value = if real {
            prop_oneof![0.1..9.0f64, (-40.0..40.0f64).prop_map(|e| 10f64.powf(e))].boxed()
        } else {
            prop_oneof![9 => 1..9u32, 1 => 1..=u32::MAX]
                .prop_map(f64::from)
                .boxed()
        };
        (1..14usize, 1..14usize).prop_flat_map(move |(n, m)| {
            let entry = prop_oneof![2 => Just(0.0), 1 => value.clone()];
            let dense = prop::collection::vec(prop::collection::vec(entry, m), n);
            dense.prop_map(move |mut columns| {
                for x in 0..n.max(m) {
                    let v = &mut columns[x % n][x % m];
                    *v = v.max(1.0);
                }
                columns
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_give_the_plain_algorithm(c in columns(false), rank in 1..12usize, seed: u64) {
            check_against_plain(&c, rank, seed, false);
        }

        #[test]
        fn weights_give_the_plain_algorithm(c in columns(true), rank in 1..12usize, seed: u64) {
            check_against_plain(&c, rank, seed, true);
        }
    }

    /// `n` columns of three kinds. A column of kind g has about `weight` counts of 1 to 4, most of
    /// them on the targets i ≡ g (mod 3).
    fn grouped(n: usize, m: usize, weight: usize) -> Vec<Vec<f64>> {
        let mut rng = Pcg64::seed_from_u64(7);
        let mut columns = vec![vec![0.0; m]; n];
        for x in 0..n * weight {
            let (j, i) = (x % n, rng.random_range(0..m));
            let i = if rng.random_range(0..4) == 0 {
                i
            } else {
                i / 3 * 3 + j % 3
            };
            columns[j][i % m] += f64::from(rng.random_range(1..5));
        }
        // Every target must occur.
        for i in 0..m {
            columns[i % n][i] += 1.0;
        }
        columns
    }

    fn scaled(columns: &[Vec<f64>], factor: f64) -> Vec<Vec<f64>> {
        let scale = |column: &Vec<f64>| column.iter().map(|v| v * factor).collect();
        columns.iter().map(scale).collect()
    }

    #[test]
    fn long_columns_and_many_ranks_give_the_plain_algorithm() {
        let columns = grouped(120, 600, 200);
        for rank in [2, 8, 9, 17, 25, 40] {
            check_against_plain(&columns, rank, 3, false);
            check_against_plain(&scaled(&columns, 0.3), rank, 3, true);
        }
    }

    #[test]
    fn margins_hide_no_move() {
        // There are enough columns that late sweeps, in which few columns move, score only some of
        // them. In sparse columns, states reach targets that they did not have before.
        for (m, weight, rank) in [(60, 20, 5), (60, 20, 12), (200, 4, 12)] {
            let columns = grouped(1500, m, weight);
            for seed in 0..3 {
                check_against_plain(&columns, rank, seed, false);
            }
        }
    }

    #[test]
    fn threads_and_shards_change_no_bit() {
        for real in [false, true] {
            let columns = scaled(&grouped(60, 60, 20), if real { 0.3 } else { 1.0 });
            let run = |threads, shard_nnz| {
                let s = shards(&columns, real, shard_nnz);
                on_threads(threads, || local(&s, &params(4, 13), 5))
            };
            let one = run(1, 1 << 20);
            for (threads, shard_nnz) in [(1, 30), (5, 1 << 20), (5, 30), (5, 300)] {
                assert_eq!(one, run(threads, shard_nnz));
            }
            let alone = local(
                &shards(&columns, real, 100),
                &params(4, 1),
                one.restarts[one.best].seed,
            );
            assert_eq!(alone.affiliation, one.affiliation);
        }
    }

    #[test]
    fn threads_and_shards_change_no_bit_of_a_polished_fit() {
        // 90 sources are searched directly, 700 through a sample.
        for (n, real, init) in [
            (90, false, Init::Kl),
            (90, true, Init::Random),
            (90, false, Init::Svd),
            (700, false, Init::Kl),
            (700, true, Init::Kl),
        ] {
            let columns = scaled(&grouped(n, 60, 20), if real { 0.3 } else { 1.0 });
            let params = Dbmr {
                init,
                restarts: 6,
                ..Dbmr::new(4)
            };
            let run = |threads, shard_nnz| {
                let s = shards(&columns, real, shard_nnz);
                on_threads(threads, || local(&s, &params, 5))
            };
            let one = run(1, 1 << 20);
            assert_eq!(one, run(5, 100));
            let best = &one.restarts[one.best];
            assert_eq!((best.sources, best.init.as_deref()), (n, Some(init.name())));
            assert_eq!(one.trace.last(), Some(&best.objective));
            assert_eq!(
                one.restarts[(one.best + 1) % one.restarts.len()].sources < n,
                n == 700
            );
            let alone = Dbmr {
                restarts: 1,
                ..params.clone()
            };
            let s = shards(&columns, real, 100);
            if init != Init::Svd {
                let alone = local(&s, &alone, best.seed);
                assert_eq!(alone.affiliation, one.affiliation);
            }
            // No restart of the plain algorithm is better, and its next iteration changes nothing.
            let plain = local(&s, &self::params(4, 10), 5);
            assert!(best.objective >= plain.restarts[plain.best].objective - 1e-6);
            let after = Dbmr {
                init: Init::Svd,
                max_iterations: 1,
                ..self::params(4, 1)
            };
            let after = fit_from(&Passes::local(), &s, &after, Some(&one.affiliation), 0);
            if n == 90 {
                assert_eq!(after.affiliation, one.affiliation);
            }
            assert!((after.restarts[0].objective - best.objective) < 1e-3 * s.total);
        }
    }

    #[test]
    fn the_plain_algorithm_begins_where_it_is_told() {
        let s = shards(&grouped(60, 60, 20), false, 50);
        for init in [Init::Kl, Init::Svd] {
            let params = Dbmr {
                init,
                ..params(4, 3)
            };
            let f = local(&s, &params, 5);
            assert!(f.restarts.iter().all(|r| r.converged));
            let named = |r: &Restart| r.init.as_deref() == Some(init.name());
            assert!(f.restarts.iter().all(named));
            assert!(f.restarts.iter().all(|r| r.evaluations >= Some(60)));
        }
    }

    #[test]
    fn polzin_example_20_without_perturbation() {
        // Blocks of 25, 25 and 50 states: 8 inside the first two, 2 between them, 5 inside the
        // third (coherence §7).
        let block = |x: usize| if x < 50 { x / 25 } else { 2 };
        let count = [[8.0, 2.0, 0.0], [2.0, 8.0, 0.0], [0.0, 0.0, 5.0]];
        let columns: Vec<Vec<f64>> = (0..100)
            .map(|j| (0..100).map(|i| count[block(i)][block(j)]).collect())
            .collect();
        let s = shards(&columns, false, 1 << 20);
        let three = local(&s, &params(3, 100), 0);
        let best = &three.restarts[three.best];
        assert!((best.objective + 95_391.27).abs() < 0.01);
        assert_eq!(best.empty_states, 0);
        for j in 0..100 {
            let same = (0..100).filter(|&l| three.affiliation[l] == three.affiliation[j]);
            assert!(same.eq((0..100).filter(|&l| block(l) == block(j))));
        }
        // Restarts that leave a state empty have rank 2, and its optimum bounds their ℓ̂.
        let empty: Vec<_> = three
            .restarts
            .iter()
            .filter(|r| r.empty_states == 1)
            .collect();
        assert!(!empty.is_empty() && empty.iter().all(|r| r.objective < -97_800.5));
        let two = local(&s, &params(2, 20), 0);
        assert!((two.restarts[two.best].objective + 97_800.6).abs() < 0.1);
    }

    #[test]
    fn one_state_takes_all() {
        // N_i· = (3, 1): ℓ̂ = 3 log ¾ + log ¼.
        let s = shards(&[vec![1.0, 1.0], vec![2.0, 0.0]], false, 10);
        let f = local(&s, &params(1, 2), 0);
        assert_eq!(f.affiliation, [0, 0]);
        assert_eq!((f.best, f.trace.len()), (0, 1));
        let by_hand = 3.0 * 0.75f64.ln() + 0.25f64.ln();
        assert!((f.restarts[0].objective - by_hand).abs() < 1e-12);
    }

    #[test]
    fn proportional_columns_meet_in_the_lowest_state() {
        // λ is (1, 2)/3 for any columns of a state: every score ties, and one state ends with all
        // columns.
        let columns: Vec<Vec<f64>> = (1..30)
            .map(|s| vec![f64::from(s), f64::from(2 * s)])
            .collect();
        let f = local(&shards(&columns, false, 10), &params(3, 4), 1);
        for r in &f.restarts {
            assert_eq!((r.empty_states, r.converged), (2, true));
        }
        assert_eq!(f.best, 0);
        assert!(f.affiliation.iter().all(|&k| k == f.affiliation[0]));
    }

    #[test]
    fn as_many_states_as_sources_and_identical_columns() {
        let columns = grouped(12, 12, 4);
        let doubled = [columns.clone(), columns].concat();
        let f = local(&shards(&doubled, false, 20), &params(24, 5), 2);
        assert_eq!(f.affiliation[..12], f.affiliation[12..]);
        assert!(f.restarts[f.best].empty_states >= 12);
    }

    #[test]
    fn a_limit_of_iterations_and_a_tolerance_end_a_restart_early() {
        let s = shards(&grouped(60, 60, 20), false, 50);
        let full = local(&s, &params(4, 1), 5);
        assert!(full.trace.len() > 3, "{:?}", full.trace);
        let limited = |max_iterations, tolerance| {
            let params = Dbmr {
                max_iterations,
                tolerance: Some(tolerance),
                ..params(4, 1)
            };
            local(&s, &params, 5)
        };
        let two = limited(2, 0.0);
        assert_eq!(two.trace, full.trace[..2]);
        assert!(!two.restarts[0].converged);
        let none = limited(0, 0.0);
        assert_eq!((none.trace.len(), none.restarts[0].converged), (0, false));
        let coarse = limited(300, 1.0);
        assert_eq!(
            (coarse.trace.len(), coarse.restarts[0].converged),
            (1, true)
        );
    }
}
