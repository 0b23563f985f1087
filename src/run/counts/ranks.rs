//! Fits of one model at several ranks → the rows of the `ranks` table, and the fits that are kept.
//!
//! All ranks and methods of a model share the singular values of P̃, up to one beyond the largest
//! rank of a sweep. They also share the folds, whose counts are weighted sums of the counts of
//! groups.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::ranks::{Criteria, RankRow};
use crate::assess::resampling::Folds;
use crate::assess::{crossval, ranks};
use crate::error::{Error, Result};
use crate::evidence::counts::Counts;
use crate::evidence::counts::groups::Groups;
use crate::evidence::pass::Passes;
use crate::methods::Method;
use crate::methods::fit::Fit;
use crate::methods::spectral::truncated_svd::{self, Options};
use crate::plan::counts::{CountsPlan, is_compared};
use crate::plan::fits::Ranks;
use crate::run::counts::record::{ChoiceRecord, FitTimings};

/// Relative accuracy of the singular values that ranks are compared by. Three digits of a gap are
/// enough, and singular values close to noise take many products.
const ACCURACY: f64 = 1e-6;

/// A fit of one rank, before one rank per planned fit is chosen.
pub(crate) struct FittedCandidate {
    /// Its index in `CountsPlan::fits`.
    pub planned: usize,
    /// The method, with the rank of the candidate.
    pub method: Method,
    /// The seed of the fit.
    pub seed: u64,
    pub fit: Fit,
    /// How the fit was made.
    pub timings: FitTimings,
    /// The bootstrap, if the pipeline asks for resamples.
    pub bootstrap: Option<Bootstrap>,
}

/// The counts on which ranks are compared.
pub(crate) struct RankEvidence<'a> {
    /// All counts of the model.
    pub counts: &'a Counts<'a>,
    /// Non-zeros per shard of a fold.
    pub shard_nnz: usize,
    /// The same counts by group, if the pipeline asks for folds.
    pub groups: Option<&'a Groups>,
    /// The seed of the folds and of the singular values.
    pub seed: u64,
}

/// One row per fit that is compared, ordered by the name of its `[[fit]]` and its rank.
///
/// # Errors
/// If a fold cannot be fitted.
pub(crate) fn compare(
    passes: &Passes<'_>,
    plan: &CountsPlan,
    evidence: &RankEvidence<'_>,
    candidates: &[FittedCandidate],
) -> Result<Vec<RankRow>> {
    let compared: Vec<&FittedCandidate> = candidates
        .iter()
        .filter(|c| is_compared(plan, &plan.fits[c.planned]))
        .collect();
    let shards = &*evidence.counts.shards;
    let swept = compared
        .iter()
        .filter(|c| plan.fits[c.planned].ranks != Ranks::One);
    let largest = swept.map(|c| c.fit.model.rank).max();
    let spectrum = largest.map_or_else(Vec::new, |largest| {
        let options = Options {
            rank: (largest + 1).min(shards.n_sources).min(shards.n_targets),
            tolerance: ACCURACY,
            max_products: 100_000,
            seed: evidence.seed,
        };
        passes.piece("spectrum", |passes| {
            truncated_svd::leading(passes, shards, &options).values
        })
    });
    let validations = match evidence.groups {
        Some(groups) if plan.folds() > 0 => {
            let candidates: Vec<_> = compared.iter().map(|c| (&c.method, c.seed)).collect();
            let folds = Folds {
                n: plan.folds(),
                entries: evidence.shard_nnz,
                seed: evidence.seed,
            };
            crossval::validate(passes, evidence.counts, groups, folds, &candidates)?
        }
        _ => vec![None; compared.len()],
    };
    let rows = compared.iter().zip(validations);
    let mut rows: Vec<RankRow> = rows
        .map(|(candidate, validation)| RankRow {
            fit: plan.fits[candidate.planned].family().to_string(),
            criteria: Criteria {
                validation,
                stability: candidate.bootstrap.as_ref().and_then(stability),
                ..Criteria::new(&candidate.fit.model, &spectrum, shards)
            },
            reason: None,
        })
        .collect();
    rows.sort_by(|a, b| (&a.fit, a.criteria.rank).cmp(&(&b.fit, b.criteria.rank)));
    Ok(rows)
}

/// The mean adjusted Rand index between the source partitions of two resamples.
fn stability(bootstrap: &Bootstrap) -> Option<f64> {
    let mut numbers = bootstrap.of.numbers.iter();
    let between = numbers.find(|number| number.metric == "adjusted_rand_between")?;
    Some(between.spread?.mean)
}

/// Chooses one candidate per planned fit, in the order of the plan. The row of a candidate that was
/// chosen by a rule gets the reason. `candidates` have the order of the plan.
///
/// # Errors
/// If the rule of a fit can compare no ranks.
pub(crate) fn choose(
    plan: &CountsPlan,
    candidates: Vec<FittedCandidate>,
    rows: &mut [RankRow],
) -> Result<Vec<FittedCandidate>> {
    let mut kept = Vec::with_capacity(plan.fits.len());
    let mut candidates = candidates.into_iter().peekable();
    for (at, planned) in plan.fits.iter().enumerate() {
        let mut own = Vec::new();
        while let Some(next) = candidates.next_if(|c| c.planned == at) {
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
                let Some((place, reason)) = ranks::choose(*rule, &criteria) else {
                    return Err(Error::input(format!(
                        "no rank can be chosen by `{}`: folds need at least two groups of trajectories, each with enough states for the smallest rank",
                        rule.name()
                    ))
                    .at(format!("fit `{name}`")));
                };
                rows[from + place].reason = Some(reason.clone());
                own[place].timings.choice = Some(ChoiceRecord {
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
