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

pub mod cocluster;
pub mod dbmr;
pub mod fit;
pub mod low_rank;
pub mod spectral;

use crate::error::{Error, Result};
use crate::evidence::Evidence;
use crate::evidence::counts::groups::Resampled;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::fit::{Fit, Restart};
use crate::methods::low_rank::model::Model;
use crate::methods::low_rank::{canonical, most_probable, names, projection};
use crate::words::counted;

/// One arm a method, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Method {
    /// Counts: `dbmr`.
    Dbmr(crate::methods::dbmr::params::Params),
    /// Counts: `svd`.
    Svd(crate::methods::spectral::svd::Params),
    /// Counts: `cocluster`.
    Cocluster(crate::methods::cocluster::Params),
    /// Counts of a square problem: `metastable`.
    Metastable {
        params: crate::methods::cocluster::Params,
        /// The target that every source is, if it is one.
        target_of_source: Vec<Option<u32>>,
    },
    /// Counts of a square problem: `schur` and `pcca`.
    Gpcca {
        params: crate::methods::spectral::gpcca::Params,
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
    pub(crate) fn for_resample(&self, resampled: &Resampled) -> Result<Method> {
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

/// Fits `method` to the evidence.
///
/// Latent states are numbered by decreasing weight w_k = Σ_{γ(j)=k} p_j, ties by their first source, empty ones last; a given
/// partition keeps its numbers.
pub fn fit(passes: &Passes<'_>, method: &Method, evidence: Evidence, seed: u64) -> Result<Fit> {
    let Evidence::Counts(shards) = evidence;
    match method {
        Method::Dbmr(params) => {
            check_rank(params.rank, shards)?;
            passes.step("partition");
            let partition = crate::methods::dbmr::fit(passes, shards, params, seed);
            let affiliation = canonical(&partition.affiliation, params.rank, shards);
            let best = &partition.restarts[partition.best];
            let (iterations, converged) = (best.iterations, best.converged);
            let mut fit = projection(
                passes,
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
            crate::methods::spectral::pairs(passes, shards, params, seed)
        }
        Method::Cocluster(params) => {
            check_rank(params.rank, shards)?;
            passes.step("partition");
            let found = crate::methods::cocluster::fit(passes, shards, params, seed);
            let affiliation = canonical(&found.sources, params.rank, shards);
            let targets =
                |model: &Model| crate::methods::spectral::svd::match_targets(model, &found.targets);
            let fit = projection(passes, shards, affiliation, params.rank, targets, seed);
            Ok(partitioned(fit, found))
        }
        Method::Metastable {
            params,
            target_of_source,
        } => {
            check_rank(params.rank, shards)?;
            passes.step("partition");
            let found = crate::methods::cocluster::metastable::fit(
                passes,
                shards,
                target_of_source,
                params,
                seed,
            );
            let names = names(&found.sources, params.rank, shards);
            let name = |k: &u32| names[*k as usize];
            let affiliation = found.sources.iter().map(name).collect();
            let targets = |_: &Model| found.targets.iter().map(|k| name(k) as i32).collect();
            let fit = projection(passes, shards, affiliation, params.rank, targets, seed);
            Ok(partitioned(fit, found))
        }
        Method::Gpcca {
            params,
            source_of_target,
        } => {
            check_rank(params.rank, shards)?;
            crate::methods::spectral::cycles(passes, shards, params, source_of_target, seed)
        }
        // A given partition may have more sets than there are states here: those are empty.
        Method::Given { affiliation, rank } => {
            assert!(
                affiliation.iter().all(|&k| (k as usize) < *rank),
                "a latent state must be below the rank"
            );
            let affiliation = affiliation.clone();
            Ok(projection(
                passes,
                shards,
                affiliation,
                *rank,
                most_probable,
                seed,
            ))
        }
    }
}

pub(crate) fn check_rank(rank: usize, shards: &Shards) -> Result<()> {
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

/// How the partitions of a fit were found.
fn partitioned(mut fit: Fit, found: crate::methods::cocluster::Partitions) -> Fit {
    let best = &found.restarts[found.best];
    (fit.iterations, fit.converged) = (best.iterations, best.converged);
    fit.best_restart = found.best;
    fit.trace = found.trace;
    let sources = fit.sources.affiliation.len();
    fit.restarts = found
        .restarts
        .into_iter()
        .map(|r| r.record(sources))
        .collect();
    fit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::evidence::counts::csr::Values;
    use crate::evidence::pass::Passes;
    use crate::math::seed::restart_seed;

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
        let svd = |clusters| crate::methods::spectral::svd::Params {
            clusters,
            ..crate::methods::spectral::svd::Params::new(4)
        };
        vec![
            Method::Dbmr(crate::methods::dbmr::params::Params::new(4)),
            Method::Svd(svd(crate::methods::spectral::svd::Clusters::KMeans)),
            Method::Svd(svd(crate::methods::spectral::svd::Clusters::Seba)),
            Method::Svd(svd(crate::methods::spectral::svd::Clusters::Pcca)),
            Method::Cocluster(crate::methods::cocluster::Params::new(4)),
            // The world has more sources than targets: 70 of 90 states are on both sides.
            Method::Metastable {
                params: crate::methods::cocluster::Params::new(4),
                target_of_source: (0..n as u32).map(|j| (j < 70).then_some(j)).collect(),
            },
            Method::Gpcca {
                params: crate::methods::spectral::gpcca::Params::new(4),
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
            let method = Method::Svd(crate::methods::spectral::svd::Params::new(rank));
            let error = fit(&Passes::local(), &method, Evidence::Counts(&shards), 0).unwrap_err();
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
            fit(&Passes::local(), &method, Evidence::Counts(&shards), 0).expect("a fit")
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
        let soft = |clusters| crate::methods::spectral::svd::Params {
            clusters,
            ..crate::methods::spectral::svd::Params::new(1)
        };
        for method in [
            Method::Dbmr(crate::methods::dbmr::params::Params::new(1)),
            Method::Svd(soft(crate::methods::spectral::svd::Clusters::KMeans)),
            Method::Svd(soft(crate::methods::spectral::svd::Clusters::Seba)),
            Method::Svd(soft(crate::methods::spectral::svd::Clusters::Pcca)),
            Method::Cocluster(crate::methods::cocluster::Params::new(1)),
            Method::Metastable {
                params: crate::methods::cocluster::Params::new(1),
                target_of_source: vec![Some(0)],
            },
            Method::Gpcca {
                params: crate::methods::spectral::gpcca::Params::new(1),
                source_of_target: vec![0],
            },
        ] {
            let fit = fit(&Passes::local(), &method, Evidence::Counts(&shards), 0).expect("rank 1");
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
                pool.install(|| {
                    fit(&Passes::local(), &method, Evidence::Counts(&shards), 3).expect("rank 4")
                })
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
            let fit = fit(&Passes::local(), &method, Evidence::Counts(&shards), 3).expect("rank 4");
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
        let here = fit(
            &Passes::local(),
            &given(false),
            Evidence::Counts(&shards),
            0,
        )
        .expect("rank 4");
        let there = fit(
            &Passes::local(),
            &given(true),
            Evidence::Counts(&reversed),
            0,
        )
        .expect("rank 4");
        assert_eq!(here.latent, there.latent);
        assert_eq!(here.coarse, there.coarse);
        let (a, b) = (&here.metrics, &there.metrics);
        assert_eq!((a.kappa_1, a.kappa_2), (b.kappa_1, b.kappa_2));
        assert!((a.log_likelihood - b.log_likelihood).abs() < 1e-9);
        assert!((a.frobenius_error - b.frobenius_error).abs() < 1e-12);
    }
}
