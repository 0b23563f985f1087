//! Cross-validation: scores of a fit on trajectories that it has not seen.
//!
//! In: the counts of all folds but one, a fit to them, and the counts of the fold that was held
//! out. Out: two scores of the fit.
//!
//! *Held-out log-likelihood*: Σ_ij N_ij log Λ_ij / S over the held-out counts, with Λ = λΓ of the
//! training counts, in nats per transition. A target that a set has not reached in training would
//! make it −∞. So λ_k has the marginal distribution q of the targets as a prior worth one
//! transition: λ_ik = (C_ik + q_i) / (C_·k + 1). Transitions from a source or to a target that the
//! training counts do not have are left out, and their share is reported. They do not depend on the
//! fit, so the scores of all ranks and methods have the same terms and can be compared. The score
//! does not rise with the rank by construction: a set that was split for no reason has two worse
//! estimates of one distribution.
//!
//! *VAMP-2* (Wu and Noé, *Variational approach for learning Markov processes from time series
//! data*, 2020, (33)): let ψ and φ be the singular functions of sources and targets of the training
//! fit, which are its embeddings e and f (r functions each, with the constant one). With the
//! covariances of the held-out transitions C₀₀ = E[ψ(X)ψ(X)ᵀ], C₀₁ = E[ψ(X)φ(Y)ᵀ], C₁₁ =
//! E[φ(Y)φ(Y)ᵀ], the score is ‖C₀₀^{-1/2} C₀₁ C₁₁^{-1/2}‖²_F, between 0 and r. Functions are 0 at
//! states that training has not seen. deeptime's `vamp_score` gives the same for indicator
//! functions of the states. The score is the sum of squared correlations between two spaces of
//! functions and cannot fall if both grow: for the nested functions of the SVD it rises with the
//! rank by construction.

use crate::assess::resampling::{Folds, each_fold};
use crate::error::{Kind, Result};
use crate::evidence::counts::Counts;
use crate::evidence::counts::groups::{Groups, Resampled};
use crate::evidence::counts::products::Multiply;
use crate::evidence::pass::Passes;
use crate::math::seed::restart_seed;
use crate::math::{dense, sum};
use crate::methods::low_rank::factors::of_partition;
use crate::methods::low_rank::model::LowRank;
use crate::methods::{self, Method};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A mean over folds and its standard error: the standard deviation between folds divided by the
/// square root of their number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The mean over folds.
    pub mean: f64,
    /// The standard error of the mean.
    pub error: f64,
}

impl Score {
    /// The mean and its standard error. None for fewer than two folds.
    pub(crate) fn of(folds: &[f64]) -> Option<Score> {
        let n = folds.len() as f64;
        let mean = folds.iter().sum::<f64>() / n;
        let squares = folds.iter().map(|f| (f - mean) * (f - mean));
        let variance = squares.sum::<f64>() / (n - 1.0);
        let error = (variance / n).sqrt();
        (folds.len() > 1).then_some(Score { mean, error })
    }
}

/// The scores over all folds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The number of folds.
    pub folds: usize,
    /// Nats per transition.
    pub log_likelihood: Score,
    /// From 0 to r.
    pub vamp_2: Score,
    /// The share of held-out transitions that the likelihood leaves out, a mean over folds.
    pub unseen: f64,
}

/// The scores of one fold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fold {
    /// Nats per transition.
    pub log_likelihood: f64,
    /// From 0 to r.
    pub vamp_2: f64,
    /// The share of held-out transitions that the likelihood leaves out.
    pub unseen: f64,
}

impl Validation {
    /// None for fewer than two folds, which have no standard error, or if a fold has no score.
    pub(crate) fn of(folds: &[Option<Fold>]) -> Option<Validation> {
        let folds: Vec<Fold> = folds.iter().copied().collect::<Option<_>>()?;
        let score = |part: fn(&Fold) -> f64| {
            let parts: Vec<f64> = folds.iter().map(part).collect();
            Score::of(&parts)
        };
        Some(Validation {
            folds: folds.len(),
            log_likelihood: score(|f| f.log_likelihood)?,
            vamp_2: score(|f| f.vamp_2)?,
            unseen: score(|f| f.unseen)?.mean,
        })
    }
}

/// For every fold, fits every candidate (a method and its seed) to the counts of the other folds,
/// and scores it with the fold. There are no more folds than groups. None for a candidate that
/// cannot be fitted to some fold because too few states are left.
pub(crate) fn validate(
    passes: &Passes<'_>,
    whole: &Counts<'_>,
    groups: &Groups,
    folds: Folds,
    candidates: &[(&Method, u64)],
) -> Result<Vec<Option<Validation>>> {
    let mut scores = vec![Vec::new(); candidates.len()];
    let mut validate = |fold: usize, train: &Resampled, test: &Resampled| {
        let counts = whole.of_resample(train);
        for (at, ((method, seed), scores)) in candidates.iter().zip(&mut scores).enumerate() {
            // Far from the numbers of restarts, so that no fold repeats the draws of the fit to all
            // counts.
            let seed = restart_seed(*seed, usize::MAX - fold);
            scores.push(passes.try_piece(
                &format!("fold-{fold}-{at}"),
                |passes| match methods::fit(passes, method, &counts, seed) {
                    Ok(fit) => {
                        let model = &fit.model;
                        Ok(score(passes, train, test, model))
                    }
                    Err(e) if e.kind() == Kind::Input => Ok(None),
                    Err(e) => Err(e.at(format!("fold {fold}"))),
                },
            )?);
        }
        Ok(())
    };
    each_fold(groups, folds, &mut validate)?;
    Ok(scores.iter().map(|scores| Validation::of(scores)).collect())
}

/// The index of a state that training does not have.
const UNSEEN: u32 = u32::MAX;

/// Scores a model of `train` with the counts of `test`. Their states are those of the same whole.
/// None if `train` has no state of these transitions.
pub(crate) fn score(
    passes: &Passes<'_>,
    train: &Resampled,
    test: &Resampled,
    model: &LowRank,
) -> Option<Fold> {
    let states = TestStates {
        sources: indices(&train.sources, &test.sources),
        targets: indices(&train.targets, &test.targets),
    };
    let (log_likelihood, unseen) = held_out(passes, train, test, model, &states)?;
    Some(Fold {
        log_likelihood,
        vamp_2: vamp_2(passes, test, model, &states),
        unseen,
    })
}

/// For every test state its index in training, or [`UNSEEN`].
struct TestStates {
    sources: Vec<u32>,
    targets: Vec<u32>,
}

/// For every one of `wanted` its index in `held`, or [`UNSEEN`]; both ascend.
fn indices(held: &[u32], wanted: &[u32]) -> Vec<u32> {
    let index = |state| held.binary_search(state).map_or(UNSEEN, |at| at as u32);
    wanted.par_iter().map(index).collect()
}

/// The log-likelihood per transition that can be scored, and the share of the others.
fn held_out(
    passes: &Passes<'_>,
    train: &Resampled,
    test: &Resampled,
    model: &LowRank,
    states: &TestStates,
) -> Option<(f64, f64)> {
    let TestStates { sources, targets } = states;
    // Beside the sets there is one column for sources without a set, whose targets follow q, and
    // one for sources that training does not have.
    let (rank, none, new) = (model.rank, model.rank as u32, model.rank as u32 + 1);
    let set = |j: usize| u32::try_from(model.sources.affiliation[j]).unwrap_or(none);
    let trained = (0..train.shards.n_sources).map(set).collect();
    let trained = of_partition(passes, &train.shards, trained, rank + 1);
    let tested = sources.iter().map(|&place| match place {
        UNSEEN => new,
        place => set(place as usize),
    });
    let tested = of_partition(passes, &test.shards, tested.collect(), rank + 2);

    let row = |i: usize| &tested.counts[i * (rank + 2)..][..rank + 2];
    let total = |i: usize| match targets[i] {
        UNSEEN => 0.0,
        _ => row(i)[..=rank].iter().sum(),
    };
    let score = |i: usize| {
        let UNSEEN = targets[i] else {
            let i_trained = targets[i] as usize;
            let q = train.shards.target_total[i_trained] / train.shards.total;
            let counts = row(i)[..=rank]
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0.0);
            let terms = counts.map(|(k, n)| {
                let probability = if k == rank {
                    q
                } else {
                    let count = trained.counts[i_trained * (rank + 1) + k];
                    (count + q) / (trained.totals[k] + 1.0)
                };
                n * probability.ln()
            });
            return terms.sum();
        };
        0.0
    };
    let seen = sum::terms(targets.len(), total);
    let log_likelihood = sum::terms(targets.len(), score) / seen;
    (seen > 0.0).then(|| (log_likelihood, (1.0 - seen / test.shards.total).max(0.0)))
}

/// Eigenvalues of a covariance below this share of the largest are rounding, and count as zero.
const NEGLIGIBLE: f64 = 1e-10;

fn vamp_2(passes: &Passes<'_>, test: &Resampled, model: &LowRank, states: &TestStates) -> f64 {
    let (shards, rank) = (&test.shards, model.rank);
    let functions = |places: &[u32], embedding: &[f64]| {
        let mut values = vec![0.0; places.len() * rank];
        let rows = values.par_chunks_mut(rank).zip(places);
        rows.filter(|(_, place)| **place != UNSEEN)
            .for_each(|(row, &place)| {
                row.copy_from_slice(&embedding[place as usize * rank..][..rank])
            });
        values
    };
    let psi = functions(&states.sources, &model.sources.embedding);
    let phi = functions(&states.targets, &model.targets.embedding);
    let weighted = |values: &[f64], totals: &[f64]| {
        let mut values = values.to_vec();
        let rows = values.par_chunks_mut(rank).zip(totals);
        rows.for_each(|(row, total)| row.iter_mut().for_each(|x| *x *= total / shards.total));
        values
    };
    let mut image = vec![0.0; psi.len()];
    let kernel = Multiply {
        x: Cow::from(&phi),
        width: rank,
        scale: Cow::default(),
    };
    passes.rows(shards.sources(), &kernel, &mut image);
    image.par_iter_mut().for_each(|x| *x /= shards.total);
    let c00 = gram(&psi, &weighted(&psi, &shards.source_total), rank);
    let c11 = gram(&phi, &weighted(&phi, &shards.target_total), rank);
    let c01 = gram(&psi, &image, rank);
    let (left, right) = (whitening(&c00, rank), whitening(&c11, rank));
    let mut squares = 0.0;
    for a in left.chunks_exact(rank) {
        for b in right.chunks_exact(rank) {
            let correlation: f64 = (0..rank * rank)
                .map(|at| a[at / rank] * c01[at] * b[at % rank])
                .sum();
            squares += correlation * correlation;
        }
    }
    squares
}

/// Rows per block of [`gram`]. It decides the rounding, so it is constant.
const BLOCK: usize = 4096;

/// AᵀB of two tall matrices of `width` columns. Blocks are added in order.
fn gram(a: &[f64], b: &[f64], width: usize) -> Vec<f64> {
    let blocks = a.par_chunks(BLOCK * width).zip(b.par_chunks(BLOCK * width));
    let parts: Vec<Vec<f64>> = blocks
        .map(|(a, b)| {
            let mut part = vec![0.0; width * width];
            for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
                for (row, a) in part.chunks_exact_mut(width).zip(a) {
                    row.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
                }
            }
            part
        })
        .collect();
    let mut sum = vec![0.0; width * width];
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    sum
}

/// Rows w of r numbers with w C wᵀ = 1, orthogonal in C: one per eigenvector of C that is not
/// negligible.
fn whitening(c: &[f64], rank: usize) -> Vec<f64> {
    let (values, vectors) = dense::symmetric_eigen(c, rank);
    let enough = NEGLIGIBLE * values.last().copied().unwrap_or(0.0);
    let kept = (0..rank).filter(|&l| values[l] > enough);
    kept.flat_map(|l| (0..rank).map(move |k| (k, l)))
        .map(|(k, l)| vectors[k * rank + l] / values[l].sqrt())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::of_entries;
    use crate::evidence::pass::Passes;
    use crate::methods::given::fit_of;

    /// Counts of (source, target, count), over the states that have counts, ascending.
    fn resampled(counts: &[(u32, u32, u32)]) -> Resampled {
        let states = |of: fn(&(u32, u32, u32)) -> u32| {
            let mut states: Vec<u32> = counts.iter().map(of).collect();
            states.sort_unstable();
            states.dedup();
            states
        };
        let (sources, targets) = (states(|c| c.0), states(|c| c.1));
        let place = |states: &[u32], state| states.binary_search(&state).expect("a state") as u32;
        let entries = counts
            .iter()
            .map(|&(j, i, n)| (place(&sources, j), place(&targets, i), n));
        let shards = of_entries(sources.len(), targets.len(), entries, 2);
        Resampled {
            shards,
            sources,
            targets,
        }
    }

    // Training (targets × sources) [ 3 1 0 ]  γ = (0, 0, 1)  C = [ 4 0 ]  q = (0.4, 0.6).
    //                              [ 1 3 2 ]                     [ 4 2 ]
    // Held out [ 2 0 1 2 ]   Source 3 and target 2 are not in training.
    //          [ 0 1 4 0 ]
    //          [ 0 4 0 0 ]
    fn world() -> (Resampled, Resampled, LowRank) {
        let train = resampled(&[(0, 0, 3), (0, 1, 1), (1, 0, 1), (1, 1, 3), (2, 1, 2)]);
        let (early, late) = (
            [(0, 0, 2), (1, 1, 1), (1, 2, 4)],
            [(2, 0, 1), (2, 1, 4), (3, 0, 2)],
        );
        let test = resampled(&[early, late].concat());
        let model = fit_of(&train.shards, vec![0, 0, 1], 2).model;
        (train, test, model)
    }

    fn scored(train: &Resampled, test: &Resampled, model: &LowRank) -> Option<Fold> {
        score(&Passes::local(), train, test, model)
    }

    #[test]
    fn held_out_likelihood_by_hand() {
        let (train, test, model) = world();
        let fold = scored(&train, &test, &model).expect("transitions that are known");
        // λ_00 = 4.4/9, λ_10 = 4.6/9, λ_01 = 0.4/3, λ_11 = 2.6/3, for 8 of 14 transitions.
        let expected = 2.0 * (4.4f64 / 9.0).ln()
            + (4.6f64 / 9.0).ln()
            + (0.4f64 / 3.0).ln()
            + 4.0 * (2.6f64 / 3.0).ln();
        assert!((fold.log_likelihood - expected / 8.0).abs() < 1e-15);
        assert!((fold.unseen - 6.0 / 14.0).abs() < 1e-15);
    }

    // The functions are those that are constant on E₀ and E₁, and all functions of the two known
    // targets. In the bases of indicators C₀₁ = T/S with T = [2 1; 1 4], C₀₀ = diag(7, 5)/S and C₁₁
    // = diag(5, 5)/S, so the score is 4/35 + 1/35 + 1/25 + 16/25.
    #[test]
    fn vamp_2_by_hand() {
        let (train, test, model) = world();
        let fold = scored(&train, &test, &model).expect("transitions that are known");
        assert!((fold.vamp_2 - (5.0 / 35.0 + 17.0 / 25.0)).abs() < 1e-14);
        // On its own counts the score of a fit is Σ σ²(Λ̃).
        let own = scored(&train, &train, &model).expect("its own transitions");
        let squares: f64 = model.spectrum.iter().map(|s| s.value * s.value).sum();
        assert!((own.vamp_2 - squares).abs() < 1e-14);
        assert_eq!(own.unseen, 0.0);
    }

    // C₀₀ of a fit with an empty set is singular.
    #[test]
    fn an_empty_set_adds_nothing() {
        let (train, test, model) = world();
        let wide = fit_of(&train.shards, vec![0, 0, 1], 3).model;
        let fold = |model| scored(&train, &test, model).expect("known transitions");
        assert!((fold(&wide).vamp_2 - fold(&model).vamp_2).abs() < 1e-12);
        assert_eq!(fold(&wide).log_likelihood, fold(&model).log_likelihood);
    }

    #[test]
    fn transitions_that_are_all_new_have_no_score() {
        let (train, _, model) = world();
        let test = resampled(&[(0, 2, 1), (3, 0, 1)]);
        assert_eq!(scored(&train, &test, &model), None);
    }

    #[test]
    fn errors_are_those_of_a_mean() {
        let fold = |x| {
            Some(Fold {
                log_likelihood: x,
                vamp_2: 2.0 * x,
                unseen: 0.0,
            })
        };
        // Mean 2, variance (1 + 0 + 1) / 2.
        let three = Validation::of(&[fold(1.0), fold(2.0), fold(3.0)]).expect("three folds");
        let error = (1.0f64 / 3.0).sqrt();
        assert_eq!(three.log_likelihood, Score { mean: 2.0, error });
        assert_eq!(three.vamp_2.mean, 4.0);
        assert_eq!(Validation::of(&[fold(1.0), None]), None);
        assert_eq!(Validation::of(&[fold(1.0)]), None);
    }
}
