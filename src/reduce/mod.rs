//! Evidence + a method with its parameters + a seed → a fit that remembers how it was made.
//!
//! One file a method, one file an idea they share:
//! - `dbmr`: direct Bayesian model reduction, a partition of the sources by likelihood; `alternate` is the algorithm of the paper,
//!   `seeding`, `polish` and `regroup` the one that goes further;
//! - `svd`: coherent pairs by truncated singular value decomposition, with `kmeans`, or with `soft` memberships: `seba` or `pcca`, whose
//!   `crispness` is climbed by a search of its own, both on a weighted `basis`;
//! - `schur`: leading Schur vectors of a square problem, of which `soft` makes sets as well; `spectral` puts such fits together;
//! - `cocluster`: a partition of either side by mutual information of their `joint` table; `metastable`: one partition for both;
//! - `model`: any partition of the sources → the low-rank model Λ = λΓ;
//! - `coherence`: counts and a model → metrics and bounds;
//! - `certificates`: what can be proved about a fit → whether its numbers keep to it;
//! - `bootstrap`: a fit and resamples of its counts → intervals and stability, by the `spread` of numbers;
//! - `criteria`: fits of several ranks → what compares them, and the rank that a rule picks; `crossval` scores fits by what was held out;
//! - `agreement`: how far two labelings of the same states agree; `succession`: which sets of one go on in the other; `changes`: both,
//!   for two results;
//! - `markov`: square counts and a partition → the chain of the sets, its timescales and powers;
//! - `assign`: a model and the counts of new rows → sets, points, memberships and log-likelihoods of their states; `known` is what the
//!   written tables of the model say for that.
//!
//! Everything here is pure: no I/O, no clock, no environment. A fit depends on the evidence, the parameters and the seed alone,
//! not on threads or shards. Not converging is data, not an error.

pub mod agreement;
pub mod alternate;
pub mod assign;
pub mod basis;
pub mod bootstrap;
pub mod certificates;
pub mod changes;
pub mod cocluster;
pub mod coherence;
pub mod crispness;
pub mod criteria;
pub mod crossval;
pub mod dbmr;
pub mod joint;
pub mod kmeans;
pub mod known;
pub mod markov;
pub mod metastable;
pub mod model;
pub mod pcca;
pub mod polish;
pub mod regroup;
pub mod renumber;
pub mod schur;
pub mod seba;
pub mod seeding;
pub mod settle;
pub mod soft;
mod spectral;
pub mod spread;
pub mod succession;
pub mod svd;

use crate::error::{Error, Result};
use crate::resample::Resampled;
use crate::runner::Runner;
use crate::shard::Shards;
use crate::words::counted;
use model::{Model, Spectrum};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One arm a method, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Method {
    /// Counts: `dbmr`.
    Dbmr(dbmr::Params),
    /// Counts: `svd`.
    Svd(svd::Params),
    /// Counts: `cocluster`.
    Cocluster(cocluster::Params),
    /// Counts of a square problem: `metastable`.
    Metastable {
        params: cocluster::Params,
        /// The target that every source is, if it is one.
        target_of_source: Vec<Option<u32>>,
    },
    /// Counts of a square problem: `schur` and `pcca`.
    Gpcca {
        params: schur::Params,
        /// The source that every target is.
        source_of_target: Vec<u32>,
    },
    /// Counts: scores a partition of the sources that the input brought.
    Given {
        /// A latent state below `rank` for every source.
        affiliation: Vec<u32>,
        rank: usize,
    },
}

impl Method {
    /// The method for the states that a resample still has.
    fn for_resample(&self, resampled: &Resampled) -> Result<Method> {
        let place =
            |states: &[u32], whole: u32| states.binary_search(&whole).ok().map(|at| at as u32);
        Ok(match self {
            Method::Given { affiliation, rank } => {
                let kept = resampled.sources.iter().map(|&j| affiliation[j as usize]);
                Method::Given {
                    affiliation: kept.collect(),
                    rank: *rank,
                }
            }
            Method::Metastable {
                params,
                target_of_source,
            } => {
                let targets = resampled.sources.iter();
                let targets =
                    targets.map(|&j| place(&resampled.targets, target_of_source[j as usize]?));
                Method::Metastable {
                    params: params.clone(),
                    target_of_source: targets.collect(),
                }
            }
            Method::Gpcca {
                params,
                source_of_target,
            } => {
                let sources = resampled.targets.iter();
                let sources =
                    sources.map(|&i| place(&resampled.sources, source_of_target[i as usize]));
                let sources: Option<Vec<u32>> = sources.collect();
                let without = || Error::input("a state is left in the resample as a target only");
                Method::Gpcca {
                    params: params.clone(),
                    source_of_target: sources.ok_or_else(without)?,
                }
            }
            Method::Dbmr(_) | Method::Svd(_) | Method::Cocluster(_) => self.clone(),
        })
    }
}

/// What a method eats. Points, pairs of points and ordered sequences join the counts when a method needs them.
#[derive(Debug, Clone, Copy)]
pub enum Evidence<'a> {
    Counts(&'a Shards),
}

/// A low-rank model of rank r over n sources and m targets, and how it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// r, empty latent states included.
    pub rank: usize,
    /// E and e = D_p^{-1/2} V: n states.
    pub sources: Side,
    /// F and f = D_q^{-1/2} U: m states.
    pub targets: Side,
    /// λ.
    pub latent: Latent,
    /// Pr[Y ∈ F_l | X ∈ E_k], r × r row-major (k, l); 0 where E_k is empty.
    pub coarse: Vec<f64>,
    /// Σ of N over E_k and F_l, r × r row-major (k, l); exact for integer counts.
    pub coarse_counts: Vec<f64>,
    /// r values, descending: σ(P̃) of an SVD fit, σ(Λ̃) of all others.
    pub spectrum: Vec<Singular>,
    /// Of singular or Schur vectors: what the residuals are at most; none where the decomposition stopped before it converged.
    pub largest_residual: Option<f64>,
    /// Of DBMR, of co-clustering, or of the k-means of the sources; none for a given partition and for SEBA and PCCA+.
    pub restarts: Vec<Restart>,
    /// The restart that was kept; 0 if there was none.
    pub best_restart: usize,
    pub metrics: coherence::Metrics,
    /// Of the best restart. SVD and Schur: products of the matrix or its transpose with a vector. Given: 0.
    pub iterations: usize,
    /// Whether the restart that was kept, and the decomposition, stopped by themselves.
    pub converged: bool,
    pub seed: u64,
    /// The objective after every iteration of the best restart, where the method records it.
    pub trace: Vec<f64>,
}

/// What a fit says about the states of one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The set of every state, −1 for none.
    pub affiliation: Vec<i32>,
    /// One row of r coordinates a state, row-major.
    pub embedding: Vec<f64>,
    /// One row of r memberships a state, row-major, where the method is soft.
    pub membership: Option<Vec<f64>>,
}

/// λ without its zeros: latent state k holds `targets[offsets[k]..offsets[k + 1]]`, ascending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latent {
    pub offsets: Vec<usize>,
    pub targets: Vec<u32>,
    pub probability: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Singular {
    pub value: f64,
    /// max(‖P̃v − σu‖, ‖P̃ᵀu − σv‖) of the vectors of an SVD fit; how far T x leaves the span of the Schur vectors up to x.
    pub residual: Option<f64>,
    /// Real and imaginary part of the eigenvalue of T at this place, of a fit by Schur vectors.
    pub eigenvalue: Option<[f64; 2]>,
}

/// How one restart went, whatever it minimised or maximised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    pub seed: u64,
    /// How it began: an `Init` of DBMR, or for co-clustering `dbmr`, `gpcca` or `random`; none for k-means, which always begins with k-means++.
    pub init: Option<Cow<'static, str>>,
    /// Sources that it went over: all, or the sample that many sources are first searched on.
    pub sources: usize,
    pub iterations: usize,
    /// DBMR: columns for which the scores of all r states were added up.
    pub evaluations: Option<u64>,
    /// DBMR: ℓ̂, co-clustering: mutual information, the more the better. k-means: inertia, the less the better.
    pub objective: f64,
    pub empty_states: usize,
    pub converged: bool,
}

/// Fits `method` to the evidence.
///
/// Latent states are numbered by decreasing weight w_k = Σ_{γ(j)=k} p_j, ties by their first source, empty ones last; a given
/// partition keeps its numbers.
pub fn fit<R: Runner>(runner: &R, method: &Method, evidence: Evidence, seed: u64) -> Result<Fit> {
    let Evidence::Counts(shards) = evidence;
    match method {
        Method::Dbmr(params) => {
            check_rank(params.rank, shards)?;
            runner.step("partition");
            let partition = dbmr::fit(runner, shards, params, seed);
            let affiliation = canonical(&partition.affiliation, params.rank, shards);
            let best = &partition.restarts[partition.best];
            let (iterations, converged) = (best.iterations, best.converged);
            let mut fit = projection(
                runner,
                shards,
                affiliation,
                params.rank,
                most_probable,
                seed,
            );
            (fit.iterations, fit.converged) = (iterations, converged);
            fit.best_restart = partition.best;
            fit.trace = partition.trace;
            fit.restarts = partition.restarts.into_iter().map(Restart::from).collect();
            Ok(fit)
        }
        Method::Svd(params) => {
            check_rank(params.rank, shards)?;
            spectral::pairs(runner, shards, params, seed)
        }
        Method::Cocluster(params) => {
            check_rank(params.rank, shards)?;
            runner.step("partition");
            let found = cocluster::fit(runner, shards, params, seed);
            let affiliation = canonical(&found.sources, params.rank, shards);
            let targets = |model: &Model| svd::match_targets(model, &found.targets);
            let fit = projection(runner, shards, affiliation, params.rank, targets, seed);
            Ok(partitioned(fit, found))
        }
        Method::Metastable {
            params,
            target_of_source,
        } => {
            check_rank(params.rank, shards)?;
            runner.step("partition");
            let found = metastable::fit(runner, shards, target_of_source, params, seed);
            let names = names(&found.sources, params.rank, shards);
            let name = |k: &u32| names[*k as usize];
            let affiliation = found.sources.iter().map(name).collect();
            let targets = |_: &Model| found.targets.iter().map(|k| name(k) as i32).collect();
            let fit = projection(runner, shards, affiliation, params.rank, targets, seed);
            Ok(partitioned(fit, found))
        }
        Method::Gpcca {
            params,
            source_of_target,
        } => {
            check_rank(params.rank, shards)?;
            spectral::cycles(runner, shards, params, source_of_target, seed)
        }
        // A given partition may have more sets than there are states here: those are empty.
        Method::Given { affiliation, rank } => {
            assert!(
                affiliation.iter().all(|&k| (k as usize) < *rank),
                "a latent state must be below the rank"
            );
            let affiliation = affiliation.clone();
            Ok(projection(
                runner,
                shards,
                affiliation,
                *rank,
                most_probable,
                seed,
            ))
        }
    }
}

fn check_rank(rank: usize, shards: &Shards) -> Result<()> {
    let (n, m) = (shards.n_sources, shards.n_targets);
    if rank == 0 {
        return Err(Error::input("rank 0 leaves no latent state"));
    }
    if rank > n.min(m) {
        return Err(Error::input(format!(
            "rank {rank} is larger than the number of states ({}, {})",
            counted(n, "source"),
            counted(m, "target")
        )));
    }
    Ok(())
}

/// The fit of a partition of the sources and the targets' sets for its model: embeddings from Λ̃.
fn projection<R: Runner>(
    runner: &R,
    shards: &Shards,
    affiliation: Vec<u32>,
    rank: usize,
    target_sets: impl Fn(&Model) -> Vec<i32>,
    seed: u64,
) -> Fit {
    runner.step("score");
    let model = model::of_partition(runner, shards, affiliation, rank);
    let target_sets = target_sets(&model);
    let spectrum = model.spectrum(shards);
    assemble(runner, shards, model, target_sets, spectrum, seed)
}

/// F by (11), where a partition of the sources is all there is.
fn most_probable(model: &Model) -> Vec<i32> {
    model.target_sets().into_iter().map(|l| l as i32).collect()
}

/// How the partitions of a fit were found.
fn partitioned(mut fit: Fit, found: cocluster::Partitions) -> Fit {
    let best = &found.restarts[found.best];
    (fit.iterations, fit.converged) = (best.iterations, best.converged);
    fit.best_restart = found.best;
    fit.trace = found.trace;
    let sources = fit.sources.affiliation.len();
    fit.restarts = found
        .restarts
        .into_iter()
        .map(|r| Restart::of_partitions(r, sources))
        .collect();
    fit
}

fn assemble<R: Runner>(
    runner: &R,
    shards: &Shards,
    model: Model,
    target_sets: Vec<i32>,
    spectrum: Spectrum,
    seed: u64,
) -> Fit {
    let coarse_counts = model.coarse_counts(&target_sets);
    let coarse = model.coarse(&coarse_counts);
    let metrics = coherence::metrics(
        runner,
        shards,
        &model,
        &target_sets,
        &coarse_counts,
        &spectrum.values,
    );
    Fit {
        rank: model.rank,
        latent: model.latent(),
        sources: Side {
            affiliation: model.affiliation.iter().map(|&k| k as i32).collect(),
            embedding: spectrum.source_embedding,
            membership: None,
        },
        targets: Side {
            affiliation: target_sets,
            embedding: spectrum.target_embedding,
            membership: None,
        },
        coarse,
        coarse_counts,
        spectrum: spectrum
            .values
            .into_iter()
            .map(|value| Singular {
                value,
                residual: None,
                eigenvalue: None,
            })
            .collect(),
        largest_residual: None,
        restarts: Vec::new(),
        best_restart: 0,
        metrics,
        iterations: 0,
        converged: true,
        seed,
        trace: Vec::new(),
    }
}

/// Renumbers latent states (`names`).
fn canonical(affiliation: &[u32], rank: usize, shards: &Shards) -> Vec<u32> {
    let names = names(affiliation, rank, shards);
    affiliation.iter().map(|&k| names[k as usize]).collect()
}

/// The numbers of latent states by decreasing weight, ties by their first source, empty ones last.
fn names(affiliation: &[u32], rank: usize, shards: &Shards) -> Vec<u32> {
    let mut weight = vec![0.0; rank];
    let mut first = vec![usize::MAX; rank];
    for (j, &k) in affiliation.iter().enumerate() {
        weight[k as usize] += shards.source_total[j];
        first[k as usize] = first[k as usize].min(j);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.sort_by(|&a, &b| {
        weight[b]
            .total_cmp(&weight[a])
            .then(first[a].cmp(&first[b]))
    });
    let mut names = vec![0; rank];
    for (new, &old) in order.iter().enumerate() {
        names[old] = new as u32;
    }
    names
}

/// The seed of a restart: that of the fit for the first, mixed with the index (the finaliser of SplitMix64) for the others.
pub(crate) fn restart_seed(seed: u64, index: usize) -> u64 {
    let mut x = index as u64;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ x ^ (x >> 31)
}

impl From<dbmr::Restart> for Restart {
    fn from(restart: dbmr::Restart) -> Self {
        Restart {
            seed: restart.seed,
            init: Some(restart.init.name().into()),
            sources: restart.sources,
            iterations: restart.iterations,
            evaluations: Some(restart.evaluations),
            objective: restart.log_likelihood,
            empty_states: restart.empty_states,
            converged: restart.converged,
        }
    }
}

impl Restart {
    fn of_partitions(restart: cocluster::Restart, sources: usize) -> Self {
        Restart {
            seed: restart.seed,
            init: Some(restart.init),
            sources,
            iterations: restart.iterations,
            evaluations: None,
            objective: restart.mutual_information,
            empty_states: restart.empty_sets,
            converged: restart.converged,
        }
    }

    fn of_kmeans(restart: kmeans::Restart, sources: usize) -> Self {
        Restart {
            seed: restart.seed,
            init: None,
            sources,
            evaluations: None,
            iterations: restart.iterations,
            objective: restart.inertia,
            empty_states: restart.empty,
            converged: restart.converged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::math::csr::Values;
    use crate::runner::Local;

    /// `n` sources and `m` targets with counts where a hash of (j, i) says so, and on the diagonal.
    fn world(n: u32, m: u32, shard_nnz: usize) -> Shards {
        let (mut sources, mut targets, mut values) = (vec![], vec![], vec![]);
        for j in 0..n {
            for i in 0..m {
                let hash = restart_seed(7, (j * m + i) as usize) >> 32;
                let close = j % 4 == i % 4;
                if j % m == i || i % n == j || hash % 16 < if close { 8 } else { 1 } {
                    sources.push(j);
                    targets.push(i);
                    values.push(1 + (hash / 16 % 9) as u32);
                }
            }
        }
        let (n, m) = (n as usize, m as usize);
        Shards::new(n, m, &sources, &targets, Values::Count(values), shard_nnz)
    }

    fn methods(n: usize) -> Vec<Method> {
        let svd = |clusters| svd::Params {
            clusters,
            ..svd::Params::new(4)
        };
        vec![
            Method::Dbmr(dbmr::Params::new(4)),
            Method::Svd(svd(svd::Clusters::KMeans)),
            Method::Svd(svd(svd::Clusters::Seba)),
            Method::Svd(svd(svd::Clusters::Pcca)),
            Method::Cocluster(cocluster::Params::new(4)),
            // The world has more sources than targets: 70 of 90 states are on both sides.
            Method::Metastable {
                params: cocluster::Params::new(4),
                target_of_source: (0..n as u32).map(|j| (j < 70).then_some(j)).collect(),
            },
            Method::Gpcca {
                params: schur::Params::new(4),
                source_of_target: (0..70).collect(),
            },
            Method::Given {
                affiliation: (0..n as u32).map(|j| j % 4).collect(),
                rank: 4,
            },
        ]
    }

    #[test]
    fn too_many_latent_states() {
        let shards = world(3, 4, 100);
        for rank in [0, 4] {
            let method = Method::Svd(svd::Params::new(rank));
            let error = fit(&Local, &method, Evidence::Counts(&shards), 0).unwrap_err();
            assert_eq!(error.kind(), Kind::Input);
            let expected = match rank {
                0 => "rank 0 leaves no latent state",
                _ => "rank 4 is larger than the number of states (3 sources, 4 targets)",
            };
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_given_partition_may_have_more_sets_than_there_are_states() {
        let shards = world(3, 2, 100);
        let few = |affiliation: Vec<u32>, rank| {
            let method = Method::Given { affiliation, rank };
            fit(&Local, &method, Evidence::Counts(&shards), 0).expect("a fit")
        };
        let (all, own) = (few(vec![1, 4, 4], 6), few(vec![0, 1, 1], 2));
        assert_eq!(all.metrics.empty_states, 4);
        assert_eq!(all.metrics.log_likelihood, own.metrics.log_likelihood);
        assert!((all.metrics.coherence - own.metrics.coherence).abs() < 1e-14);
        assert!(
            all.sources
                .embedding
                .iter()
                .chain(&all.targets.embedding)
                .all(|x| x.is_finite())
        );
    }

    // Weights 3, 3 and 5 of the sets {0}, {1} and {2, 3}, and an empty one.
    #[test]
    fn heavy_sets_come_first() {
        let values = Values::Count(vec![3, 3, 1, 4]);
        let shards = Shards::new(4, 4, &[0, 1, 2, 3], &[0, 1, 2, 3], values, 9);
        assert_eq!(canonical(&[3, 2, 1, 1], 4, &shards), [1, 2, 0, 0]);
        assert_eq!(canonical(&[0, 3, 2, 2], 4, &shards), [1, 2, 0, 0]);
    }

    #[test]
    fn one_state_is_a_world() {
        let shards = Shards::new(1, 1, &[0], &[0], Values::Count(vec![2]), 1);
        let soft = |clusters| svd::Params {
            clusters,
            ..svd::Params::new(1)
        };
        for method in [
            Method::Dbmr(dbmr::Params::new(1)),
            Method::Svd(soft(svd::Clusters::KMeans)),
            Method::Svd(soft(svd::Clusters::Seba)),
            Method::Svd(soft(svd::Clusters::Pcca)),
            Method::Cocluster(cocluster::Params::new(1)),
            Method::Metastable {
                params: cocluster::Params::new(1),
                target_of_source: vec![Some(0)],
            },
            Method::Gpcca {
                params: schur::Params::new(1),
                source_of_target: vec![0],
            },
        ] {
            let fit = fit(&Local, &method, Evidence::Counts(&shards), 0).expect("rank 1");
            assert_eq!((fit.coarse, fit.metrics.kappa), (vec![1.0], 0.5));
            assert!((fit.spectrum[0].value - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn neither_threads_nor_shards_change_a_bit() {
        let pool = |n| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .build()
                .expect("a pool")
        };
        let (one, five) = (pool(1), pool(5));
        for method in methods(90) {
            let run = |pool: &rayon::ThreadPool, shard_nnz| {
                let shards = world(90, 70, shard_nnz);
                pool.install(|| fit(&Local, &method, Evidence::Counts(&shards), 3).expect("rank 4"))
            };
            let whole = run(&one, usize::MAX);
            assert_eq!(whole, run(&five, 200));
            assert_eq!(whole, run(&five, usize::MAX));
            assert!(whole.metrics.frobenius_error <= whole.metrics.bound);
        }
    }

    #[test]
    fn fits_agree_on_what_they_claim() {
        let shards = world(90, 70, 500);
        for method in methods(90) {
            let fit = fit(&Local, &method, Evidence::Counts(&shards), 3).expect("rank 4");
            assert_eq!(fit.coarse_counts.iter().sum::<f64>(), shards.total);
            assert!(
                fit.coarse
                    .chunks(4)
                    .all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-15)
            );
            assert!((fit.latent.probability.iter().sum::<f64>() - 4.0).abs() < 1e-12);
            let metrics = &fit.metrics;
            if let Some(last) = fit.trace.last() {
                let best = &fit.restarts[fit.best_restart];
                let objective = match method {
                    Method::Dbmr(_) => metrics.log_likelihood,
                    _ => metrics.mutual_information,
                };
                assert!((best.objective - objective).abs() < 1e-8);
                assert_eq!(*last, best.objective);
            }
            assert!(metrics.mutual_information > 0.0);
            assert!(metrics.mutual_information < metrics.reference_information);
            for side in [&fit.sources, &fit.targets] {
                let rows = side.membership.iter().flat_map(|m| m.chunks(4));
                for (row, &set) in rows.zip(&side.affiliation) {
                    let sum: f64 = row.iter().sum();
                    assert!(row.iter().all(|x| *x >= 0.0 && *x <= row[set as usize]));
                    let whole = sum > 1.0 - 1e-12 || metrics.crispness.is_none();
                    assert!(sum < 1.0 + 1e-12 && whole, "{row:?}");
                }
            }
            if let Some(coherence_p) = fit.metrics.coherence_p {
                // Proposition 13, summed.
                assert!(fit.metrics.coherence <= coherence_p + 1e-10);
            }
            let weights = &fit.metrics.weights;
            let given = matches!(method, Method::Given { .. });
            assert!(given || weights.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn names_of_sources_do_not_matter() {
        // Source j becomes 89 − j: a given partition keeps every metric and its sets.
        let shards = world(90, 70, 500);
        let mut entries: Vec<(u32, u32, u32)> = Vec::new();
        for shard in &shards.by_source {
            for l in 0..shard.n_rows() {
                for e in shard.span(l) {
                    let j = 89 - (shard.first_row + l) as u32;
                    entries.push((j, shard.columns[e], shard.values.get(e) as u32));
                }
            }
        }
        entries.sort_unstable();
        let reversed = Shards::new(
            90,
            70,
            &entries.iter().map(|e| e.0).collect::<Vec<_>>(),
            &entries.iter().map(|e| e.1).collect::<Vec<_>>(),
            Values::Count(entries.iter().map(|e| e.2).collect()),
            500,
        );
        let given = |flip: bool| Method::Given {
            affiliation: (0..90).map(|j| if flip { 89 - j } else { j } % 4).collect(),
            rank: 4,
        };
        let here = fit(&Local, &given(false), Evidence::Counts(&shards), 0).expect("rank 4");
        let there = fit(&Local, &given(true), Evidence::Counts(&reversed), 0).expect("rank 4");
        assert_eq!(here.latent, there.latent);
        assert_eq!(here.coarse, there.coarse);
        let (a, b) = (&here.metrics, &there.metrics);
        assert_eq!((a.kappa_1, a.kappa_2), (b.kappa_1, b.kappa_2));
        assert!((a.log_likelihood - b.log_likelihood).abs() < 1e-9);
        assert!((a.frobenius_error - b.frobenius_error).abs() < 1e-12);
    }
}
