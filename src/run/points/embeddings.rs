//! Fits state embeddings to the pairs of a query.

use crate::error::{Error, Result};
use crate::evidence::points::{Pairs, Points};
use crate::methods::PointMethod;
use crate::methods::state_embedding::clusters::{Clusters, cluster};
use crate::methods::state_embedding::embedding::{RightMeasure, embed};
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::grams::GramSums;
use crate::methods::state_embedding::model::{Basis, StateEmbeddingModel, fit_means};
use crate::methods::state_embedding::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, Norm, StateEmbedding,
};
use crate::methods::state_embedding::pilot::{median_distance, select};
use crate::methods::state_embedding::vamp;
use crate::output::tables::points::{EmbeddedStates, PointFit, PointModel, PointsModel};
use crate::plan::fits::PlannedFit;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::pairs::Blocks;
use crate::read::points::read;
use crate::run::points::Surveyed;
use crate::run::points::grams::{PairSample, PartitionSums, Summing, Wanted};
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// Folds of the held-out scores.
const FOLDS: usize = 5;

/// Most random features of the fits that compare bandwidths.
const COMPARED_FEATURES: usize = 256;

/// A fit and its parameters.
struct Planned<'a> {
    fit: &'a PlannedFit<PointMethod>,
    params: &'a StateEmbedding,
}

/// What decides the features of a fit.
#[derive(Clone, Copy, PartialEq)]
struct BasisKey {
    features: usize,
    tolerance: f64,
    bandwidth: Bandwidth,
}

impl BasisKey {
    fn of(params: &StateEmbedding) -> BasisKey {
        BasisKey {
            features: params.features,
            tolerance: params.tolerance,
            bandwidth: params.bandwidth,
        }
    }
}

/// The bandwidths that were compared, with the mean held-out score of each.
pub(crate) type Scores = Vec<(f64, f64)>;

/// Fits all state embeddings of a plan to every partition and lag.
pub(super) async fn fit(
    plan: &PointsPlan,
    lake: &Lake,
    frame: &DataFrame,
    surveyed: &Surveyed,
) -> Result<Vec<PointsModel>> {
    let planned: Vec<Planned<'_>> = plan
        .fits
        .iter()
        .filter_map(|fit| match &fit.method {
            PointMethod::StateEmbedding(params) => Some(Planned { fit, params }),
            _ => None,
        })
        .collect();
    let mut keys: Vec<BasisKey> = Vec::new();
    for fit in &planned {
        let key = BasisKey::of(fit.params);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let samples: Vec<Points> = surveyed.samples();
    // By partition, then by key: the bandwidth of each lag.
    let n_lags = plan.layout.n_lags();
    let mut bandwidths: Vec<Vec<(f64, Scores)>> = Vec::new();
    let mut candidates: Vec<Vec<Vec<f64>>> = Vec::new();
    for sample in &samples {
        let median = median_distance(sample);
        let of_key = |key: &BasisKey| match key.bandwidth {
            Bandwidth::Value(s) => Ok(vec![s]),
            Bandwidth::Rule(BandwidthRule::Median) => Ok(vec![median_of(&median)?]),
            Bandwidth::Rule(BandwidthRule::HeldOut) => {
                let median = median_of(&median)?;
                Ok(BANDWIDTH_FACTORS.map(|factor| factor * median).to_vec())
            }
        };
        candidates.push(keys.iter().map(of_key).collect::<Result<_>>()?);
    }
    let is_compared = candidates.iter().flatten().any(|c| c.len() > 1);
    if is_compared {
        let bases = |partition: usize| {
            let mut bases = Vec::new();
            for (key, candidates) in keys.iter().zip(&candidates[partition]) {
                for &s in candidates.iter().filter(|_| candidates.len() > 1) {
                    let features = key.features.min(COMPARED_FEATURES);
                    bases.push(basis(
                        &samples[partition],
                        features,
                        s,
                        key.tolerance,
                        plan.seed,
                    ));
                }
            }
            bases
        };
        let bases: Vec<Vec<Basis>> = (0..samples.len()).map(bases).collect();
        let sums = sum(plan, lake, frame, surveyed, &bases, FOLDS).await?;
        let largest_rank = |key: &BasisKey| {
            let own = planned
                .iter()
                .filter(|fit| BasisKey::of(fit.params) == *key);
            own.map(|fit| fit.params.rank).max().unwrap_or(1)
        };
        for (partition, candidates) in candidates.iter().enumerate() {
            let mut next = 0;
            let mut chosen = Vec::new();
            for (key, candidates) in keys.iter().zip(candidates) {
                if let [only] = candidates[..] {
                    chosen.push((only, Vec::new()));
                    continue;
                }
                let own = next..next + candidates.len();
                next = own.end;
                let rank = largest_rank(key);
                let scores: Vec<Vec<f64>> = own
                    .map(|at| {
                        let (sums, basis) = (&sums[partition].sums[at], &bases[partition][at]);
                        held_out(sums, n_lags, basis, rank, key.tolerance)
                    })
                    .collect();
                let best = vamp::best(&scores).unwrap_or(0);
                let means = scores.iter().zip(candidates);
                let means = means.map(|(scores, &s)| {
                    (s, scores.iter().sum::<f64>() / scores.len().max(1) as f64)
                });
                chosen.push((candidates[best], means.collect()));
            }
            bandwidths.push(chosen);
        }
    } else {
        for candidates in &candidates {
            bandwidths.push(candidates.iter().map(|c| (c[0], Vec::new())).collect());
        }
    }
    let bases: Vec<Vec<Basis>> = samples
        .iter()
        .zip(&bandwidths)
        .map(|(sample, bandwidths)| {
            let own = keys.iter().zip(bandwidths);
            own.map(|(key, (s, _))| basis(sample, key.features, *s, key.tolerance, plan.seed))
                .collect()
        })
        .collect();
    let sums = sum(plan, lake, frame, surveyed, &bases, 1).await?;
    let mut models = Vec::new();
    for (partition, sums) in sums.iter().enumerate() {
        for lag in 0..n_lags {
            let mut fits = Vec::new();
            for Planned { fit, params } in &planned {
                let at = keys.iter().position(|key| *key == BasisKey::of(params));
                let at = at.ok_or_else(|| Error::bug("a fit has no features"))?;
                let mut basis = bases[partition][at].clone();
                basis.bounds = box_of(params, surveyed, partition, basis.bandwidth)?;
                let place = surveyed.place(plan, partition, lag);
                let within = |e: Error| e.at(format!("fit `{}`", fit.name)).at(&place);
                let of_lag = sums.sums.get(at).and_then(|folds| folds.first());
                let means = of_lag
                    .ok_or_else(|| Error::input("there is no pair of points at this lag"))
                    .and_then(|sums| sums.means(lag));
                let model = means.and_then(|means| fit_means(&means, &basis, params));
                let model = model.map_err(within)?;
                let clusters = params.clusters.map(|k| {
                    clusters(
                        &model,
                        &samples[partition],
                        &sums.samples[lag],
                        k,
                        params,
                        plan.seed,
                    )
                });
                for warning in &model.warnings {
                    tracing::warn!(fit = fit.name, place, "{warning}");
                }
                fits.push(PointFit {
                    name: fit.name.clone(),
                    method: fit.method.name(),
                    model: PointModel::StateEmbedding(Box::new(EmbeddedStates {
                        nearest: clusters.as_ref().map(|c| nearest(c, &samples[partition])),
                        clusters,
                        scores: bandwidths[partition][at].1.clone(),
                        model,
                    })),
                });
            }
            models.push(PointsModel {
                partition,
                lag,
                rows: surveyed.partitions[partition].rows,
                divisors: surveyed.divisors.clone(),
                fits,
            });
        }
    }
    Ok(models)
}

fn median_of(median: &Result<f64>) -> Result<f64> {
    match median {
        Ok(median) => Ok(*median),
        Err(e) => Err(Error::input(e.to_string())),
    }
}

/// The features of a bandwidth that span the others on a sample.
fn basis(sample: &Points, features: usize, bandwidth: f64, tolerance: f64, seed: u64) -> Basis {
    let all = Features::random(features, sample.dimension, bandwidth, seed);
    // Finer than the cut of the whitening, so that the selection changes no result that it keeps.
    let selection = select(&all, &sample.coordinates, tolerance * 1e-2);
    Basis {
        features: all.select(&selection.kept),
        metric: Some(selection.metric),
        bandwidth,
        bounds: None,
    }
}

/// The box of the Lebesgue norm: that of the parameters in the units of the input, or the range of
/// the points and three bandwidths on each side.
fn box_of(
    params: &StateEmbedding,
    surveyed: &Surveyed,
    partition: usize,
    bandwidth: f64,
) -> Result<Option<Vec<[f64; 2]>>> {
    if params.norm != Norm::Lebesgue {
        return Ok(None);
    }
    let (survey, divisors) = (&surveyed.partitions[partition], &surveyed.divisors);
    let margin = 3.0 * bandwidth;
    let Some(bounds) = &params.bounds else {
        let ranges = survey.low.iter().zip(&survey.high).zip(divisors);
        let bounds = ranges.map(|((low, high), s)| [low / s - margin, high / s + margin]);
        return Ok(Some(bounds.collect()));
    };
    if bounds.len() != divisors.len() {
        let message = format!(
            "`box` has {} intervals, but points have {} coordinates",
            bounds.len(),
            divisors.len()
        );
        return Err(Error::spec(message));
    }
    let bounds = bounds.iter().zip(divisors);
    Ok(Some(bounds.map(|(b, s)| [b[0] / s, b[1] / s]).collect()))
}

/// Reads the pairs and sums products of features, by partition.
async fn sum(
    plan: &PointsPlan,
    lake: &Lake,
    frame: &DataFrame,
    surveyed: &Surveyed,
    bases: &[Vec<Basis>],
    folds: usize,
) -> Result<Vec<PartitionSums>> {
    let wanted = surveyed
        .partitions
        .iter()
        .zip(bases)
        .map(|(survey, bases)| Wanted {
            bases: bases.iter().map(|basis| basis.features.clone()).collect(),
            // A partition without a weight has no pair either.
            largest_weight: if survey.largest_weight > 0.0 {
                survey.largest_weight
            } else {
                1.0
            },
            whole_trajectories: survey.trajectories >= folds as u64,
        });
    let wanted = Arc::new(wanted.collect::<Vec<_>>());
    let n_lags = plan.layout.n_lags();
    let start = || {
        let summing = Summing::new(&wanted, n_lags, folds);
        Ok(Blocks::new(&plan.layout, &surveyed.divisors, summing))
    };
    let (blocks, _) = read(lake, frame.clone(), &plan.layout, start).await?;
    let summing = blocks
        .finish()
        .map_err(|stop| stop.into_error("summing pairs"))?;
    let summed = tokio::task::spawn_blocking(move || summing.finish()).await;
    summed.map_err(|e| Error::with_source(crate::error::Kind::Bug, "summing pairs panicked", e))
}

/// The held-out scores of all lags and folds.
fn held_out(
    folds: &[GramSums],
    lags: usize,
    basis: &Basis,
    rank: usize,
    tolerance: f64,
) -> Vec<f64> {
    let mut scores = Vec::new();
    for fold in folds {
        let mut train = folds[0].clone();
        folds[1..].iter().for_each(|other| train.merge(other));
        train.subtract(fold);
        for lag in 0..lags {
            let score = || -> Result<f64> {
                let (train, test) = (train.means(lag)?, fold.means(lag)?);
                let metric = basis.metric.as_deref();
                let found = embed(&train, RightMeasure::Ends, metric, rank, tolerance)?;
                Ok(vamp::score(&found, rank, &test))
            };
            // A fold without pairs, or a kernel of too low a rank, has no score.
            scores.push(score().unwrap_or(0.0));
        }
    }
    scores
}

/// Clusters a sample of points by their embeddings.
fn clusters(
    model: &StateEmbeddingModel,
    sample: &Points,
    pairs: &PairSample,
    k: usize,
    params: &StateEmbedding,
    seed: u64,
) -> Clusters {
    let embedded = model.embed(&sample.coordinates);
    let weights = sample.weights.as_deref();
    let mut clusters = cluster(&embedded, model.rank, weights, k, params.restarts, seed);
    let (x, y, weights) = pairs.pairs();
    let n = weights.len() as u32;
    let both = [x, y].concat();
    let affiliation = clusters.assign(&model.embed(&both));
    let points = Points {
        dimension: sample.dimension,
        coordinates: both,
        weights: Some([weights.clone(), weights].concat()),
    };
    let pairs = Pairs {
        points,
        pairs: (0..n).map(|at| (at, n + at)).collect(),
    };
    clusters.set_exits(&pairs, &affiliation);
    clusters
}

/// The coordinates of the sampled row that is nearest to each centroid.
fn nearest(clusters: &Clusters, sample: &Points) -> Vec<Vec<f64>> {
    let centroids = clusters.centroids.iter();
    centroids.map(|c| sample.row(c.nearest).to_vec()).collect()
}
