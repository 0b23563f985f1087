//! `[[fit]]` entries → planned fits, one per rank.

use crate::assess::ranks::Rule;
use crate::methods::Method;
use crate::methods::estimator::Ranked;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::Validation;
use serde::{Deserialize, Serialize};

/// One fit of every partition and lag, at one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedFit<M = Method> {
    /// The prefix of its column names: `<name>_r<rank>` if the pipeline lists several ranks.
    pub name: String,
    /// The method; at the largest candidate if a rule picks the rank.
    pub method: M,
    /// Where the rank comes from.
    pub ranks: Ranks,
}

/// Where the rank of a fit comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ranks {
    /// It is the only rank, or the method has none.
    One,
    /// One of several ranks of the `[[fit]]` of this name, each a separate fit.
    OneOf(String),
    /// A rule picks one of the candidates for every partition and lag.
    Auto {
        /// The rule.
        rule: Rule,
        /// The candidates in ascending order.
        candidates: Vec<usize>,
    },
}

impl<M: Ranked> PlannedFit<M> {
    /// The name of its `[[fit]]`.
    pub(crate) fn family(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// The rank as text.
    pub(crate) fn rank_text(&self) -> String {
        if let Ranks::Auto { rule, candidates } = &self.ranks {
            let ranks: Vec<_> = candidates.iter().map(usize::to_string).collect();
            return format!("rank one of {} by {}", ranks.join(" "), rule.name());
        }
        let rank = self.method.rank();
        rank.map_or_else(String::new, |rank| format!("rank {rank}"))
    }
}

/// Resamples and folds of trajectories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedValidation {
    /// The number of bootstrap resamples; 0 for none.
    pub bootstrap: usize,
    /// The number of folds of a cross-validation; 0 for none.
    pub folds: usize,
    /// The confidence level of the intervals.
    pub confidence: f64,
    /// The maximum number of groups of trajectories.
    pub groups: usize,
}

impl PlannedValidation {
    /// That of a pipeline. Without `[validation]` nothing is resampled.
    pub(crate) fn of(keys: Option<&Validation>) -> PlannedValidation {
        PlannedValidation {
            bootstrap: keys.map_or(0, |keys| keys.bootstrap),
            folds: keys.map_or(0, |keys| keys.folds),
            confidence: keys.map_or(0.0, |keys| keys.confidence),
            groups: keys.map_or_else(Validation::groups, |keys| keys.groups),
        }
    }

    /// The resamples as text, if there are some.
    pub(crate) fn resamples_text(&self) -> Option<String> {
        let (n, percent) = (self.bootstrap, 100.0 * self.confidence);
        (n > 0).then(|| format!("{n} bootstrap resamples, intervals at {percent} %"))
    }

    /// What is resampled, and in how many groups, as text.
    pub(crate) fn trust_text(&self) -> Option<String> {
        let (resamples, groups) = (self.resamples_text()?, self.groups);
        Some(format!(
            "{resamples}; trajectories in at most {groups} groups"
        ))
    }
}

/// The fits of some entries, one per rank.
pub(crate) fn planned<M: Ranked>(entries: &[FitEntry<M>]) -> Vec<PlannedFit<M>> {
    let mut fits = Vec::new();
    for fit in entries {
        for (rank, name) in fit.expanded() {
            let ranks = match (fit.rule, fit.ranks.as_slice()) {
                (Some(rule), candidates) => {
                    let mut candidates = candidates.to_vec();
                    candidates.sort_unstable();
                    Ranks::Auto { rule, candidates }
                }
                (None, [_, _, ..]) => Ranks::OneOf(fit.name.clone()),
                (None, _) => Ranks::One,
            };
            fits.push(PlannedFit {
                name,
                method: rank.map_or_else(|| fit.method.clone(), |rank| fit.method.at(rank)),
                ranks,
            });
        }
    }
    fits
}
