//! Fits of one model at several ranks → the rows of the `ranks` table, and the fits that are kept.
//!
//! All ranks and methods of a model share one spectrum of P̃, up to one value beyond the largest of several ranks, and the same folds,
//! whose counts are weighted sums of what was counted once.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::ranks::{Criteria, RankRow};
use crate::error::{Error, Result};
use crate::evidence::counts::Counts;
use crate::evidence::counts::groups::Groups;
use crate::evidence::pass::Passes;
use crate::methods::Method;
use crate::methods::fit::{Fit, Model};
use crate::methods::low_rank::model::LowRank;
use crate::plan::fits::Ranks;
use crate::plan::{Plan, is_compared};
use crate::run::record::{ChoiceRecord, FitTimings};

/// Wanted relative accuracy of the singular values that ranks are compared by: gaps are looked at in three digits, and values inside of
/// noise take many products.
const ACCURACY: f64 = 1e-6;

/// A fit that may be kept.
pub struct Tried {
    /// Its place in `Plan::fits`.
    pub planned: usize,
    pub method: Method,
    pub seed: u64,
    pub fit: Fit,
    pub told: FitTimings,
    /// Where resamples are asked for.
    pub bootstrap: Option<Bootstrap>,
}

/// The counts that ranks are compared on.
pub struct Ground<'a> {
    pub counts: &'a Counts<'a>,
    /// Non-zeros of a shard of a fold.
    pub shard_nnz: usize,
    /// The same counts by group, where folds are wanted.
    pub groups: Option<&'a Groups>,
    /// Of the folds and the spectrum.
    pub seed: u64,
}

impl Tried {
    fn low_rank(&self) -> &LowRank {
        let Model::LowRank(model) = &self.fit.model;
        model
    }
}

/// One row for every fit that is compared, by the pipeline's name and rank.
pub fn compare(
    passes: &Passes<'_>,
    plan: &Plan,
    ground: &Ground<'_>,
    tried: &[Tried],
) -> Result<Vec<RankRow>> {
    let compared: Vec<&Tried> = tried
        .iter()
        .filter(|t| is_compared(plan, &plan.fits[t.planned]))
        .collect();
    let shards = &*ground.counts.shards;
    let swept = compared
        .iter()
        .filter(|t| plan.fits[t.planned].ranks != Ranks::One);
    let largest = swept.map(|t| t.low_rank().rank).max();
    let spectrum = largest.map_or_else(Vec::new, |largest| {
        let options = crate::methods::spectral::truncated_svd::Options {
            rank: (largest + 1).min(shards.n_sources).min(shards.n_targets),
            tolerance: ACCURACY,
            max_products: 100_000,
            seed: ground.seed,
        };
        passes.piece("spectrum", |passes| {
            crate::methods::spectral::truncated_svd::leading(passes, shards, &options).values
        })
    });
    let validations = match ground.groups {
        Some(groups) if plan.folds() > 0 => {
            let candidates: Vec<_> = compared.iter().map(|t| (&t.method, t.seed)).collect();
            let folds = (plan.folds(), ground.seed);
            crate::assess::crossval::validate(
                passes,
                ground.counts,
                groups,
                folds,
                ground.shard_nnz,
                &candidates,
            )?
        }
        _ => vec![None; compared.len()],
    };
    let rows = compared.iter().zip(validations);
    let mut rows: Vec<RankRow> = rows
        .map(|(tried, validation)| RankRow {
            fit: plan.fits[tried.planned].family().to_string(),
            criteria: Criteria {
                validation,
                stability: tried.bootstrap.as_ref().and_then(stability),
                ..Criteria::new(tried.low_rank(), &spectrum, shards)
            },
            reason: None,
        })
        .collect();
    rows.sort_by(|a, b| (&a.fit, a.criteria.rank).cmp(&(&b.fit, b.criteria.rank)));
    Ok(rows)
}

/// The mean adjusted Rand index between the partitions of the sources by two resamples.
fn stability(bootstrap: &Bootstrap) -> Option<f64> {
    let mut numbers = bootstrap.numbers.iter();
    let between = numbers.find(|number| number.metric == "adjusted_rand_between")?;
    Some(between.spread?.mean)
}

/// Keeps one of the tried for every planned fit, in the order of the plan, and says in its row why.
pub fn pick(plan: &Plan, tried: Vec<Tried>, rows: &mut [RankRow]) -> Result<Vec<Tried>> {
    let mut kept = Vec::with_capacity(plan.fits.len());
    let mut tried = tried.into_iter().peekable();
    for (at, planned) in plan.fits.iter().enumerate() {
        let mut own = Vec::new();
        while let Some(next) = tried.next_if(|t| t.planned == at) {
            own.push(next);
        }
        let chosen = match &planned.ranks {
            Ranks::Auto { rule, .. } => {
                let name = &planned.name;
                let from = rows.partition_point(|row| row.fit < *name);
                let criteria: Vec<Criteria> = own
                    .iter()
                    .zip(&rows[from..])
                    .map(|(_, row)| row.criteria.clone())
                    .collect();
                let Some((place, reason)) = crate::assess::ranks::choose(*rule, &criteria) else {
                    return Err(Error::input(format!(
                        "no rank can be picked by `{}`: folds need at least two groups of trajectories, and enough states in each for the smallest rank",
                        rule.name()
                    ))
                    .at(format!("fit `{name}`")));
                };
                rows[from + place].reason = Some(reason.clone());
                own[place].told.choice = Some(ChoiceRecord {
                    rule: rule.name().into(),
                    ranks: criteria.iter().map(|c| c.rank).collect(),
                    reason,
                });
                place
            }
            _ => 0,
        };
        if chosen < own.len() {
            kept.push(own.swap_remove(chosen));
        }
    }
    Ok(kept)
}
