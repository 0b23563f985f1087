//! Fits state embeddings to the pairs of a query.

use crate::assess::crossval::Score;
use crate::assess::density_errors::{DensityError, PairSample, estimate};
use crate::assess::embedding_bootstrap::{Resampling, bootstrap};
use crate::assess::embeddings::of_embedding;
use crate::assess::ranks::by_vamp_2;
use crate::error::{Error, Result, counted};
use crate::evidence::points::{Pairs, PointSize, Points};
use crate::memory;
use crate::methods::PointMethod;
use crate::methods::estimator::Parameters;
use crate::methods::state_embedding::clusters::{Clusters, cluster};
use crate::methods::state_embedding::grams::{GramSums, Grams};
use crate::methods::state_embedding::model::{Basis, StateEmbeddingModel, fit_means, functions};
use crate::methods::state_embedding::params::StateEmbedding;
use crate::methods::state_embedding::reshape::MeanEmbedding;
use crate::methods::state_embedding::vamp;
use crate::output::tables::points::{EmbeddedStates, PointFit, PointModel, PointsModel, RankScore};
use crate::plan::fits::{PlannedFit, Ranks};
use crate::plan::memory::Lack;
use crate::plan::pipeline::keys::Empty;
use crate::plan::points::PointsPlan;
use crate::plan::points_memory::GROUP_BYTES;
use crate::read::points::survey;
use crate::run::failures::{Failures, no_evidence};
use crate::run::kind::Running;
use crate::run::points::bandwidths::{FeatureKey, Sampled, choose_bandwidths, sum};
use crate::run::points::confusion::compare;
use crate::run::points::first_pass::FirstPass;
use crate::run::points::grams::PartitionSums;
use crate::run::points::kind::PointsKind;
use crate::run::points::rows::keys_of;
use crate::run::record::EmptyRecord;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The least number of groups that resamples draw from, if there are as many trajectories.
const LEAST_GROUPS: u64 = 10;

/// A fit and its parameters.
struct Planned<'a> {
    fit: &'a PlannedFit<PointMethod>,
    params: &'a StateEmbedding,
}

/// The parameters that decide the features of a fit.
fn of_features(params: &StateEmbedding) -> StateEmbedding {
    StateEmbedding {
        features: params.features,
        tolerance: params.tolerance,
        bandwidth: params.bandwidth,
        norm: params.norm,
        bounds: params.bounds.clone(),
        ..StateEmbedding::new(1)
    }
}

/// Fits all state embeddings of a plan to every partition and lag. Also returns the partitions and
/// lags without a pair, which have no model.
pub(super) async fn fit(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    failures: &mut Failures,
) -> Result<(Vec<PointsModel>, Vec<EmptyRecord>)> {
    let plan = run.plan;
    let planned: Vec<Planned<'_>> = plan
        .fits
        .iter()
        .filter_map(|fit| match &fit.method {
            PointMethod::StateEmbedding(params) => Some(Planned { fit, params }),
            _ => None,
        })
        .collect();
    let (keys, ranks) = keys(&planned);
    let divisors = &first_pass.known.divisors;
    let scaled = keys.iter().zip(&ranks).map(|(key, &rank)| {
        let params = scaled_box(key, divisors)?;
        Ok(FeatureKey { params, rank })
    });
    let scaled: Vec<FeatureKey> = scaled.collect::<Result<_>>()?;
    check_boxes(run, first_pass, &planned).await?;
    let mut sampled = sampled(first_pass);
    choose_bandwidths(run, first_pass, &mut sampled, &scaled, failures).await?;
    let bases: Vec<Vec<Basis>> = sampled.iter().map(|own| own.bases.clone()).collect();
    let fitting = Fitting {
        plan,
        first_pass,
        planned: &planned,
        keys: &keys,
    };
    fitting.check_memory(&bases)?;
    let sums = sum(run, first_pass, &bases, fitting.parts(&bases)?).await?;
    let (mut models, empty) = fitting.models(&sampled, &sums, failures)?;
    compare(run, first_pass, &mut models).await?;
    Ok((models, empty))
}

/// The parameters of the features of all fits, and the largest rank of the fits with these
/// features. Fits that share features share their sums.
fn keys(planned: &[Planned<'_>]) -> (Vec<StateEmbedding>, Vec<usize>) {
    let (mut keys, mut ranks) = (Vec::new(), Vec::new());
    for fit in planned {
        let key = of_features(fit.params);
        match keys.iter().position(|other| *other == key) {
            Some(at) => ranks[at] = fit.params.rank.max(ranks[at]),
            None => {
                keys.push(key);
                ranks.push(fit.params.rank);
            }
        }
    }
    (keys, ranks)
}

/// The sampled points of each partition, without features.
fn sampled(first_pass: &FirstPass) -> Vec<Sampled> {
    let samples = first_pass.samples().into_iter().zip(&first_pass.partitions);
    let sampled = samples.map(|(sample, survey)| {
        let ends = survey.ends.low.iter().zip(&survey.ends.high);
        let ends = ends.zip(&first_pass.known.divisors);
        // A partition without pairs has no model, and any features will do.
        let (sample, range) = if survey.used == 0 {
            let d = survey.ends.low.len();
            (Points::new(d, vec![0.0; d]), vec![[0.0; 2]; d])
        } else {
            let range = ends.map(|((low, high), s)| [low / s, high / s]);
            (sample, range.collect())
        };
        Sampled {
            sample,
            range,
            bases: Vec::new(),
            scores: Vec::new(),
        }
    });
    sampled.collect()
}

/// What the models of all partitions and lags have in common.
struct Fitting<'a> {
    plan: &'a PointsPlan,
    first_pass: &'a FirstPass,
    planned: &'a [Planned<'a>],
    keys: &'a [StateEmbedding],
}

impl Fitting<'_> {
    /// Checks that the sums and decompositions of the features fit into memory.
    fn check_memory(&self, bases: &[Vec<Basis>]) -> Result<()> {
        let (plan, first_pass) = (self.plan, self.first_pass);
        let limit = memory::limit();
        let mut lacks = Vec::new();
        for (partition, (survey, bases)) in first_pass.partitions.iter().zip(bases).enumerate() {
            let size = PointSize {
                points: survey.rows,
                dimension: first_pass.known.divisors.len() as u64,
                lags: plan.layout.n_lags() as u64,
            };
            for Planned { fit, params } in self.planned {
                let key = of_features(params);
                let own = self
                    .keys
                    .iter()
                    .zip(bases)
                    .find(|(other, _)| **other == key);
                let Some((_, basis)) = own else { continue };
                let method = PointMethod::StateEmbedding(StateEmbedding {
                    features: basis.features.count(),
                    ..(*params).clone()
                });
                let threads = rayon::current_num_threads();
                let lack = plan.lacking(&fit.name, &method, size, 0, threads, limit);
                lacks.extend(lack.map(|lack| lack.at(first_pass.known.place(plan, partition, 0))));
            }
        }
        Lack::none(lacks)
    }

    /// The groups of trajectories and the folds whose sums are kept apart.
    fn parts(&self, bases: &[Vec<Basis>]) -> Result<(usize, usize)> {
        let validation = &self.plan.validation;
        let is_auto = |planned: &Planned<'_>| matches!(planned.fit.ranks, Ranks::Auto { .. });
        let has_densities = self.plan.densities.is_some();
        let folds = if has_densities || self.planned.iter().any(is_auto) {
            validation.folds
        } else {
            1
        };
        let groups = if validation.bootstrap > 0 {
            groups(validation.groups, bases, self.plan.layout.n_lags())?
        } else {
            1
        };
        Ok((groups, folds))
    }

    /// The models of all partitions and lags, and the partitions and lags without a pair.
    fn models(
        &self,
        sampled: &[Sampled],
        sums: &[PartitionSums],
        failures: &mut Failures,
    ) -> Result<(Vec<PointsModel>, Vec<EmptyRecord>)> {
        let (plan, known) = (self.plan, &self.first_pass.known);
        let n_lags = plan.layout.n_lags();
        let (mut models, mut empty) = (Vec::new(), Vec::new());
        for (partition, sums) in sums.iter().enumerate() {
            let own = &sampled[partition];
            if own.bases.is_empty() {
                continue;
            }
            for lag in 0..n_lags {
                let place = known.place(plan, partition, lag);
                if sums.pairs(lag) == 0 && plan.job.empty == Empty::Skip {
                    empty.push(EmptyRecord {
                        partition: place,
                        had_model: false,
                        key: known.key(plan, partition, lag),
                    });
                    continue;
                }
                let model = self.model(partition, lag, own, sums);
                models.extend(failures.take(place, model)?);
            }
        }
        if models.is_empty() && failures.is_empty() {
            let is_only = n_lags * sampled.len() == 1;
            let error = no_pairs(Empty::Skip, plan);
            return Err(if is_only {
                error.at(known.place(plan, 0, 0))
            } else {
                error
            });
        }
        Ok((models, empty))
    }

    /// Fits all state embeddings to one partition and lag.
    fn model(
        &self,
        partition: usize,
        lag: usize,
        own: &Sampled,
        sums: &PartitionSums,
    ) -> Result<PointsModel> {
        let (plan, first_pass) = (self.plan, self.first_pass);
        if sums.pairs(lag) == 0 {
            return Err(no_pairs(plan.job.empty, plan));
        }
        let (validation, place) = (
            &plan.validation,
            first_pass.known.place(plan, partition, lag),
        );
        let pairs = sums.sample(lag);
        let mut fits = Vec::new();
        for Planned { fit, params } in self.planned {
            let at = self.keys.iter().position(|key| *key == of_features(params));
            let at = at.ok_or_else(|| Error::bug("a fit has no features"))?;
            let basis = &own.bases[at];
            let within = |e: Error| e.at(format!("fit `{}`", fit.name));
            let total = sums.total(at).ok_or_else(|| no_pairs(Empty::Skip, plan));
            let means = total.and_then(|sums| sums.means(lag)).map_err(within)?;
            let (chosen, ranks) = match &fit.ranks {
                Ranks::Auto { candidates, .. } => {
                    let folds = sums.folds(at);
                    let found = choose_rank(&folds, &means, lag, basis, params, candidates);
                    found.map_err(within)?
                }
                _ => (params.rank, Vec::new()),
            };
            let params = &params.at(chosen);
            let model = fit_means(&means, basis, params).map_err(within)?;
            let bootstrap = (validation.bootstrap > 0).then(|| {
                let resampling = Resampling {
                    resamples: validation.bootstrap,
                    confidence: validation.confidence,
                    seed: plan.job.seed,
                };
                let (groups, values) = (sums.groups(at, lag), &model.singular_values);
                bootstrap(&groups, lag, basis, params, values, resampling)
            });
            let joint_density = plan.densities.as_ref().and(basis.metric.as_ref());
            let joint_density = joint_density.map(|metric| {
                MeanEmbedding::plain(&means.cross, metric).joint_density(params.rank)
            });
            let clusters = params
                .clusters
                .map(|k| clusters(&model, &own.sample, &pairs, k, params, plan.job.seed));
            let clusters = clusters.transpose().map_err(within)?;
            let density_error = plan.densities.as_ref().map(|_| {
                let folds = sums.folds(at);
                estimate(&folds, lag, &means, basis, params, &pairs)
            });
            let density_error = density_error.transpose().map_err(within)?.flatten();
            let mut compared = own.scores[at].iter();
            let held_out = compared
                .find(|of| of.bandwidth == model.bandwidth)
                .and_then(|of| of.by_lag[lag]);
            let warnings = warnings(&model, density_error.as_ref());
            for warning in &warnings {
                tracing::warn!(fit = fit.name, place, "{warning}");
            }
            let certificates = of_embedding(&model);
            fits.push(PointFit {
                name: fit.name.clone(),
                method: fit.method.name().to_string(),
                model: PointModel::StateEmbedding(Box::new(EmbeddedStates {
                    nearest: clusters.as_ref().map(|c| nearest(c, &own.sample)),
                    clusters,
                    has_distances: params.distances,
                    scores: own.scores[at]
                        .iter()
                        .map(|of| (of.bandwidth, of.score))
                        .collect(),
                    held_out,
                    ranks,
                    joint_density,
                    density_error,
                    confusion: None,
                    model,
                })),
                bootstrap,
                certificates,
                warnings,
            });
        }
        Ok(PointsModel {
            partition,
            lag,
            rows: first_pass.partitions[partition].rows,
            coordinates: plan.layout.coordinate_names(),
            divisors: first_pass.known.divisors.clone(),
            fits,
        })
    }
}

/// What makes a fit and its densities doubtful.
fn warnings(model: &StateEmbeddingModel, error: Option<&DensityError>) -> Vec<String> {
    let of_fit = model.warnings.iter().map(ToString::to_string);
    let of_densities = error.and_then(|error| error.warning(model.norm));
    of_fit.chain(of_densities).collect()
}

fn no_pairs(empty: Empty, plan: &PointsPlan) -> Error {
    let what = format!(
        "there are no pairs of points at this lag; check the lag against the times of a trajectory{}",
        plan.times.hint()
    );
    no_evidence(empty, &what)
}

/// Checks that the boxes of the fits hold all points that are in a pair: functions that are
/// orthonormal in a box can be of any size outside it.
async fn check_boxes(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    planned: &[Planned<'_>],
) -> Result<()> {
    let names = run.plan.layout.coordinate_names();
    for Planned { fit, params } in planned {
        for survey in first_pass
            .partitions
            .iter()
            .filter(|survey| survey.used > 0)
        {
            for (k, [low, high]) in params.bounds.iter().flatten().enumerate() {
                let ends = &survey.ends;
                let (value, hash) = if ends.low[k] < *low {
                    (ends.low[k], ends.hashes[0][k])
                } else if ends.high[k] > *high {
                    (ends.high[k], ends.hashes[1][k])
                } else {
                    continue;
                };
                let keys = keys_of(run, &BTreeSet::from([hash])).await?;
                let key = keys.get(&hash).map_or("", String::as_str);
                let name = names.get(k).unwrap_or(&names[0]);
                return Err(Error::input(format!(
                    "fit `{}`: `box` is from {low} to {high} in `{name}`, but row {key} has {value}; widen the box, or leave such rows out",
                    fit.name
                )));
            }
        }
    }
    Ok(())
}

/// The parameters with the box in the units of the scaled coordinates.
fn scaled_box(params: &StateEmbedding, divisors: &[f64]) -> Result<StateEmbedding> {
    let scaled = params.bounds.as_ref().map(|bounds| {
        if bounds.len() != divisors.len() {
            return Err(Error::spec(format!(
                "`box` has {}, but points have {}",
                counted(bounds.len(), "interval"),
                counted(divisors.len(), "coordinate")
            )));
        }
        let bounds = bounds.iter().zip(divisors);
        Ok(bounds.map(|([low, high], s)| [low / s, high / s]).collect())
    });
    Ok(StateEmbedding {
        bounds: scaled.transpose()?,
        ..params.clone()
    })
}

/// The number of groups of trajectories whose sums fit into memory, `most` at most.
fn groups(most: usize, bases: &[Vec<Basis>], lags: usize) -> Result<usize> {
    let bases = bases.iter().flatten();
    let bytes = bases.map(|basis| GramSums::bytes(basis.features.count(), lags));
    let bytes = bytes.sum::<u64>().max(1);
    let fit = GROUP_BYTES / bytes;
    if fit < LEAST_GROUPS.min(most as u64) {
        return Err(Error::spec(format!(
            "`validation.bootstrap` keeps {} MB of sums per group of trajectories, and {} groups do \
             not fit into {} MB; decrease `features`, or increase `tolerance`",
            bytes >> 20,
            LEAST_GROUPS.min(most as u64),
            GROUP_BYTES >> 20
        )));
    }
    Ok(most.min(fit as usize))
}

/// The rank that held-out VAMP-2 scores choose among the candidates, and the scores.
fn choose_rank(
    folds: &[Cow<'_, GramSums>],
    means: &Grams,
    lag: usize,
    basis: &Basis,
    params: &StateEmbedding,
    candidates: &[usize],
) -> Result<(usize, Vec<RankScore>)> {
    let (functions, _) = functions(means, basis, params)?;
    let available = functions.available();
    let ranks = candidates.iter().copied().filter(|r| *r <= available);
    let ranks: Vec<usize> = ranks.collect();
    if ranks.is_empty() {
        return Err(Error::input(format!(
            "the features of the points have only {available} independent directions, and all \
             `ranks` are larger; decrease `ranks`, `tolerance` or `bandwidth`"
        )));
    }
    let metric = basis.metric.as_deref();
    let by_fold = vamp::held_out(folds, lag, metric, params.tolerance, &ranks)?;
    let scores: Vec<Score> = by_fold
        .iter()
        .filter_map(|scores| Score::of(scores))
        .collect();
    let pairs: Vec<f64> = folds.iter().map(|fold| fold.effective(lag)).collect();
    let chances = ranks.iter().map(|&rank| vamp::chance(rank, &pairs));
    let chances: Vec<f64> = chances.collect();
    let above_chance = scores.iter().zip(&chances).map(|(score, chance)| Score {
        mean: score.mean - chance,
        ..*score
    });
    let chosen = by_vamp_2(&ranks, &above_chance.collect::<Vec<_>>());
    let (at, why) = chosen.ok_or_else(|| Error::bug("ranks have no scores"))?;
    let compared = ranks.iter().zip(scores).zip(chances);
    let compared = compared.map(|((&rank, score), chance)| RankScore {
        rank,
        score,
        chance,
        folds: by_fold[0].len(),
        reason: (rank == ranks[at]).then(|| why.clone()),
    });
    Ok((ranks[at], compared.collect()))
}

/// Clusters a sample of points by their embeddings.
///
/// # Errors
/// If there are fewer points than clusters.
fn clusters(
    model: &StateEmbeddingModel,
    sample: &Points,
    pairs: &PairSample,
    k: usize,
    params: &StateEmbedding,
    seed: u64,
) -> Result<Clusters> {
    let rank = model.rank;
    let embedded = model.embed(&sample.coordinates);
    // Points that are too far for the features have no embedding.
    let is_known = |point: &[f64]| !point[0].is_nan();
    let rows = embedded.chunks_exact(rank).enumerate();
    let known: Vec<usize> = rows.filter(|(_, p)| is_known(p)).map(|(i, _)| i).collect();
    if k > known.len() {
        return Err(Error::input(format!(
            "`clusters` is {k}, but there are only {} to cluster, of which at most {} are used; decrease `clusters`",
            counted(known.len(), "row"),
            survey::SAMPLE_ROWS
        )));
    }
    let own = known.iter().flat_map(|i| &embedded[i * rank..][..rank]);
    let embedded: Vec<f64> = own.copied().collect();
    let weights: Vec<f64> = known.iter().map(|&i| sample.weight(i)).collect();
    let mut clusters = cluster(&embedded, rank, Some(&weights), k, params.restarts, seed);
    for centroid in &mut clusters.centroids {
        centroid.nearest = known[centroid.nearest];
    }
    // Both ends of a pair follow each other.
    let (d, weights) = (sample.dimension, &pairs.weights);
    let both = pairs.starts.chunks_exact(d).zip(pairs.ends.chunks_exact(d));
    let ends: Vec<f64> = both.flat_map(|(x, y)| [x, y]).flatten().copied().collect();
    let affiliation = clusters.assign_known(&model.embed(&ends));
    let points = Points {
        dimension: d,
        coordinates: ends,
        weights: Some(weights.iter().flat_map(|&w| [w, w]).collect()),
    };
    let both = |at: &u32| {
        let own = &affiliation[2 * *at as usize..][..2];
        own.iter().all(Option::is_some)
    };
    let pairs = (0..weights.len() as u32).filter(both);
    let pairs = Pairs {
        points,
        pairs: pairs.map(|at| (2 * at, 2 * at + 1)).collect(),
    };
    let affiliation: Vec<u32> = affiliation
        .into_iter()
        .map(Option::unwrap_or_default)
        .collect();
    clusters.set_exits(&pairs, &affiliation);
    Ok(clusters)
}

/// The coordinates of the sampled row that is nearest to each centroid.
fn nearest(clusters: &Clusters, sample: &Points) -> Vec<Vec<f64>> {
    let centroids = clusters.centroids.iter();
    centroids.map(|c| sample.row(c.nearest).to_vec()).collect()
}
