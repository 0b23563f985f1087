//! Chooses the bandwidths of features by held-out scores.
//!
//! A pass over the rows sums the features of all bandwidths that are compared. If the best is at an
//! end of them, the next pass goes on beyond it.

use crate::error::Result;
use crate::evidence::points::Points;
use crate::math::matrix::first_largest;
use crate::methods::state_embedding::candidates::candidates;
use crate::methods::state_embedding::grams::GramSums;
use crate::methods::state_embedding::model::Basis;
use crate::methods::state_embedding::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, COMPARED_FEATURES, StateEmbedding,
};
use crate::methods::state_embedding::vamp;
use crate::run::failures::Failures;
use crate::run::kind::Running;
use crate::run::points::first_pass::FirstPass;
use crate::run::points::grams::{PartitionSums, Parts, SumRequest, Wanted};
use crate::run::points::kind::PointsKind;
use crate::run::points::sums;
use std::borrow::Cow;

/// Most passes over the rows that compare bandwidths.
const PASSES: usize = 6;

/// The factor between a bandwidth at an end and the next one beyond it.
const STEP: f64 = 2.0;

/// The parameters of features that fits share.
pub(super) struct FeatureKey {
    /// With a box in the units of the scaled coordinates.
    pub(super) params: StateEmbedding,
    /// The largest rank of the fits.
    pub(super) rank: usize,
}

/// A bandwidth that was compared.
#[derive(Debug, Clone)]
pub(super) struct ComparedBandwidth {
    pub(super) bandwidth: f64,
    /// The mean held-out score over all lags and folds, by which a bandwidth is chosen.
    pub(super) score: f64,
    /// The mean over the folds of each lag. None without pairs at the lag.
    pub(super) by_lag: Vec<Option<f64>>,
}

/// The bandwidths that were compared, in ascending order.
pub(super) type Scores = Vec<ComparedBandwidth>;

/// The points of one partition, and what is summed over their pairs.
pub(super) struct Sampled {
    pub(super) sample: Points,
    /// The least and the largest value of each coordinate, divided by the scale.
    pub(super) range: Vec<[f64; 2]>,
    /// By the keys of the fits. Empty if the partition cannot be fitted.
    pub(super) bases: Vec<Basis>,
    pub(super) scores: Vec<Scores>,
}

impl Sampled {
    /// The features to choose from. A single point has no pairs, so any features will do.
    fn candidates(&self, params: &StateEmbedding, seed: u64) -> Result<Vec<Basis>> {
        if self.sample.n() > 1 {
            return candidates(&self.sample, &self.range, params, seed);
        }
        let any = StateEmbedding {
            bandwidth: Bandwidth::Value(1.0),
            ..params.clone()
        };
        let one = candidates(&self.sample, &self.range, &any, seed)?;
        let n = match params.bandwidth {
            Bandwidth::Rule(BandwidthRule::HeldOut) => BANDWIDTH_FACTORS.len(),
            _ => 1,
        };
        Ok(one.into_iter().cycle().take(n).collect())
    }
}

/// The search for the bandwidth of a key in a partition.
struct Search {
    scores: Scores,
    /// What the next pass compares with `scores`. None if the search has ended.
    next: Option<Bandwidth>,
}

impl Search {
    fn new() -> Search {
        Search {
            scores: Vec::new(),
            next: Some(Bandwidth::Rule(BandwidthRule::HeldOut)),
        }
    }

    /// The position of the largest score, the first one on ties.
    fn best(&self) -> usize {
        first_largest(self.scores.iter().map(|of| of.score))
    }

    /// Adds scores. The search goes on if the best bandwidth is at an end, and is better than the
    /// one beside it.
    fn add(&mut self, more: Scores) {
        self.scores.extend(more);
        self.scores
            .sort_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
        let (at, last) = (self.best(), self.scores.len() - 1);
        let best = &self.scores[at];
        let next = if at == last {
            best.bandwidth * STEP
        } else if at == 0 && best.score > self.scores[1].score {
            best.bandwidth / STEP
        } else {
            f64::NAN
        };
        self.next = next.is_normal().then_some(Bandwidth::Value(next));
    }
}

/// Chooses the bandwidth of each key and partition, one for all lags, and makes the features. A
/// partition that fails has no features.
pub(super) async fn choose_bandwidths(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    sampled: &mut [Sampled],
    keys: &[FeatureKey],
    failures: &mut Failures,
) -> Result<()> {
    let rule = Bandwidth::Rule(BandwidthRule::HeldOut);
    let is_compared = |key: &&FeatureKey| key.params.bandwidth == rule;
    let comparison = Comparison {
        run,
        first_pass,
        sampled,
        compared: keys.iter().filter(is_compared).collect(),
    };
    let searches = comparison.searches(failures).await?;
    for (partition, (own, searches)) in sampled.iter_mut().zip(searches).enumerate() {
        let Some(searches) = searches else { continue };
        let mut searches = searches.into_iter();
        let made = keys.iter().map(|key| {
            let search = is_compared(&key).then(|| searches.next()).flatten();
            let Some(search) = search else {
                return Ok((own.candidates(&key.params, run.plan.job.seed)?, Vec::new()));
            };
            let fixed = StateEmbedding {
                bandwidth: Bandwidth::Value(search.scores[search.best()].bandwidth),
                ..key.params.clone()
            };
            Ok((own.candidates(&fixed, run.plan.job.seed)?, search.scores))
        });
        let made = made.collect::<Result<Vec<_>>>();
        let made = failures.take(place(run, first_pass, partition), made)?;
        for (bases, scores) in made.into_iter().flatten() {
            own.bases.extend(bases);
            own.scores.push(scores);
        }
    }
    Ok(())
}

/// The name of a partition. It has one bandwidth for all lags.
fn place(run: &Running<'_, PointsKind>, first_pass: &FirstPass, partition: usize) -> String {
    first_pass.known.place(run.plan, partition, usize::MAX)
}

/// What the passes that compare bandwidths have in common.
struct Comparison<'a> {
    run: &'a Running<'a, PointsKind>,
    first_pass: &'a FirstPass,
    sampled: &'a [Sampled],
    /// The keys whose bandwidths are compared.
    compared: Vec<&'a FeatureKey>,
}

impl Comparison<'_> {
    /// The searches by partition and compared key. None if the partition has failed.
    async fn searches(&self, failures: &mut Failures) -> Result<Vec<Option<Vec<Search>>>> {
        let mut searches: Vec<Option<Vec<Search>>> = Vec::new();
        for partition in 0..self.sampled.len() {
            let checked = self.first_pass.known.check(partition);
            let checked = self.take(partition, checked, failures)?;
            let new = || self.compared.iter().map(|_| Search::new()).collect();
            searches.push(checked.map(|()| new()));
        }
        for _ in 0..PASSES {
            let mut bases: Vec<Vec<Basis>> = Vec::new();
            for (partition, searches) in searches.iter_mut().enumerate() {
                let made = searches.as_deref().map(|own| self.bases(partition, own));
                let made = self.take(partition, made.transpose(), failures)?.flatten();
                if made.is_none() {
                    *searches = None;
                }
                bases.push(made.unwrap_or_default());
            }
            if bases.iter().all(Vec::is_empty) {
                break;
            }
            let parts = (1, self.run.plan.validation.folds);
            let sums = sum(self.run, self.first_pass, &bases, parts).await?;
            for (partition, searches) in searches.iter_mut().enumerate() {
                let Some(own) = searches else { continue };
                let added = self.add(own, &bases[partition], &sums[partition]);
                if self.take(partition, added, failures)?.is_none() {
                    *searches = None;
                }
            }
        }
        Ok(searches)
    }

    fn take<T>(
        &self,
        partition: usize,
        made: Result<T>,
        failures: &mut Failures,
    ) -> Result<Option<T>> {
        failures.take(place(self.run, self.first_pass, partition), made)
    }

    /// The features of the searches of a partition that have not ended, one search after the other.
    fn bases(&self, partition: usize, searches: &[Search]) -> Result<Vec<Basis>> {
        let mut bases = Vec::new();
        for (key, search) in self.compared.iter().zip(searches) {
            let Some(bandwidth) = search.next else {
                continue;
            };
            // Few features tell bandwidths apart, and their sums are needed for every fold.
            let few = StateEmbedding {
                features: key.params.features.min(COMPARED_FEATURES),
                bandwidth,
                ..key.params.clone()
            };
            bases.extend(self.sampled[partition].candidates(&few, self.run.plan.job.seed)?);
        }
        Ok(bases)
    }

    /// Adds the scores of these features to the searches that have not ended.
    fn add(&self, searches: &mut [Search], bases: &[Basis], sums: &PartitionSums) -> Result<()> {
        let mut first = 0;
        for (key, search) in self.compared.iter().zip(searches) {
            let n = match search.next {
                None => continue,
                Some(Bandwidth::Value(_)) => 1,
                Some(Bandwidth::Rule(_)) => BANDWIDTH_FACTORS.len(),
            };
            let own = first..first + n;
            let scored = own.map(|at| {
                let lags = self.run.plan.layout.n_lags();
                compared(&bases[at], &sums.folds(at), lags, key)
            });
            search.add(scored.collect::<Result<_>>()?);
            first += n;
        }
        Ok(())
    }
}

/// The held-out scores of features.
fn compared(
    basis: &Basis,
    folds: &[Cow<'_, GramSums>],
    lags: usize,
    key: &FeatureKey,
) -> Result<ComparedBandwidth> {
    let mut scores = Vec::new();
    let mut by_lag = vec![None; lags];
    for (lag, mean) in by_lag.iter_mut().enumerate() {
        if folds.iter().all(|fold| fold.pairs(lag) == 0) {
            continue;
        }
        let (metric, tolerance) = (basis.metric.as_deref(), key.params.tolerance);
        let of_lag = vamp::held_out(folds, lag, metric, tolerance, &[key.rank])?;
        let first = scores.len();
        scores.extend(of_lag.into_iter().flatten());
        let own = &scores[first..];
        *mean = (!own.is_empty()).then(|| mean_of(own));
    }
    Ok(ComparedBandwidth {
        bandwidth: basis.bandwidth,
        score: mean_of(&scores),
        by_lag,
    })
}

/// The mean, 0 of nothing.
fn mean_of(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

/// Sums products of features over pairs, by partition.
pub(super) async fn sum(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    bases: &[Vec<Basis>],
    (groups, folds): (usize, usize),
) -> Result<Vec<PartitionSums>> {
    let wanted = first_pass
        .partitions
        .iter()
        .zip(bases)
        .map(|(survey, bases)| Wanted {
            bases: bases.iter().map(|basis| basis.features.clone()).collect(),
            largest: survey
                .weights
                .as_ref()
                .and_then(|own| own.unit().map(|_| own.largest)),
            parts: Parts::new(groups, folds, survey),
        });
    let request = SumRequest {
        divisors: first_pass.known.divisors.clone(),
        partitions: wanted.collect(),
    };
    sums::sum(run, first_pass, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bandwidths that a search compares if the score of a bandwidth is this.
    fn searched(score: impl Fn(f64) -> f64) -> (Vec<f64>, f64) {
        let mut search = Search::new();
        for _ in 0..PASSES {
            let bandwidths = match search.next {
                None => break,
                Some(Bandwidth::Rule(_)) => BANDWIDTH_FACTORS.to_vec(),
                Some(Bandwidth::Value(s)) => vec![s],
            };
            let of = |bandwidth: f64| ComparedBandwidth {
                bandwidth,
                score: score(bandwidth),
                by_lag: Vec::new(),
            };
            search.add(bandwidths.into_iter().map(of).collect());
        }
        let best = search.scores[search.best()].bandwidth;
        (search.scores.iter().map(|of| of.bandwidth).collect(), best)
    }

    #[test]
    fn a_search_goes_on_beyond_its_ends() {
        let near = |best: f64| move |s: f64| -(s / best).ln().abs();
        let grid = BANDWIDTH_FACTORS;
        let beyond = |more: &[f64]| {
            let mut all = [&grid[..], more].concat();
            all.sort_by(f64::total_cmp);
            all
        };
        assert_eq!(searched(near(0.5)), (grid.to_vec(), 0.5));
        assert_eq!(searched(near(2.0)), (beyond(&[2.0, 4.0]), 2.0));
        assert_eq!(searched(near(1.0)), (beyond(&[2.0]), 1.0));
        assert_eq!(searched(near(0.125)), (beyond(&[0.0625]), 0.125));
        let small = [0.0625, 0.03125, 0.015625];
        assert_eq!(searched(near(0.03)), (beyond(&small), 0.03125));
        // A search ends after some passes, and does not go on between equal scores.
        let large = [2.0, 4.0, 8.0, 16.0, 32.0];
        assert_eq!(searched(|s| s), (beyond(&large), 32.0));
        assert_eq!(searched(|_| 1.0), (grid.to_vec(), 0.125));
        assert_eq!(searched(|_| f64::NAN), (grid.to_vec(), 0.125));
    }
}
