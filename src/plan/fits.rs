//! What the pipeline file says of its fits → fits with checked parameters, ranks apart.

use crate::assess::ranks::Rule;
use crate::methods::Method;
use crate::plan::pipeline::Pipeline;
use serde::{Deserialize, Serialize};

/// One fit of every partition and lag, ranks apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedFit {
    /// First part of its column names: `<name>_r<rank>` where the pipeline asks for several ranks.
    pub name: String,
    /// At the largest rank, where one is to be picked.
    pub method: Method,
    pub ranks: Ranks,
}

/// How the rank of a fit came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ranks {
    /// It is the only one, or it has none.
    One,
    /// One of several of the pipeline's fit of this name, each a fit of its own.
    OneOf(String),
    /// A rule picks it among these, which ascend, for every partition and lag.
    Auto { rule: Rule, candidates: Vec<usize> },
}

impl PlannedFit {
    /// The name that the pipeline file has for it.
    pub fn family(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// The rank in words.
    pub(crate) fn rank_text(&self) -> String {
        match (&self.ranks, self.method.rank()) {
            (Ranks::Auto { rule, candidates }, _) => {
                let ranks: Vec<_> = candidates.iter().map(usize::to_string).collect();
                format!("rank one of {} by {}", ranks.join(" "), rule.name())
            }
            (_, rank) => rank.map_or_else(String::new, |rank| format!("rank {rank}")),
        }
    }
}

/// The fits of a pipeline, one per rank.
pub(crate) fn fits(pipeline: &Pipeline) -> Vec<PlannedFit> {
    let mut fits = Vec::new();
    for fit in &pipeline.fits {
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
