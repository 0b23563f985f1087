//! `[[fit]]` entries → planned fits, one per rank.

use crate::assess::ranks::Rule;
use crate::methods::{ChainMethod, Method, PointMethod, SequenceMethod};
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::fits::FitEntry;
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

impl PlannedFit<PointMethod> {
    /// The rank as text.
    pub(crate) fn point_rank_text(&self) -> String {
        rank_text(&self.ranks, self.method.rank())
    }
}

impl PlannedFit<SequenceMethod> {
    /// The name of its `[[fit]]`.
    pub fn entry(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// The rank as text.
    pub(crate) fn sequence_rank_text(&self) -> String {
        rank_text(&self.ranks, self.method.rank())
    }
}

impl PlannedFit {
    /// The name of its `[[fit]]`.
    pub fn family(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// The rank as text.
    pub(crate) fn rank_text(&self) -> String {
        rank_text(&self.ranks, self.method.rank())
    }
}

fn rank_text(ranks: &Ranks, rank: Option<usize>) -> String {
    match (ranks, rank) {
        (Ranks::Auto { rule, candidates }, _) => {
            let ranks: Vec<_> = candidates.iter().map(usize::to_string).collect();
            format!("rank one of {} by {}", ranks.join(" "), rule.name())
        }
        (_, rank) => rank.map_or_else(String::new, |rank| format!("rank {rank}")),
    }
}

/// The fits of a pipeline, one per rank.
pub(crate) fn fits(pipeline: &Pipeline) -> Vec<PlannedFit> {
    expand(&pipeline.fits, Method::at)
}

/// The fits of a pipeline to points, one per rank.
pub(crate) fn point_fits(pipeline: &Pipeline) -> Vec<PlannedFit<PointMethod>> {
    expand(&pipeline.point_fits, PointMethod::at)
}

/// The fits of a pipeline to sequences, one per rank.
pub(crate) fn sequence_fits(pipeline: &Pipeline) -> Vec<PlannedFit<SequenceMethod>> {
    expand(&pipeline.sequence_fits, SequenceMethod::at)
}

/// The embeddings of states of a pipeline.
pub(crate) fn embeddings(pipeline: &Pipeline) -> Vec<PlannedFit<ChainMethod>> {
    expand(&pipeline.embeddings, ChainMethod::at)
}

fn expand<M: Clone>(entries: &[FitEntry<M>], at: fn(&M, usize) -> M) -> Vec<PlannedFit<M>> {
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
                method: rank.map_or_else(|| fit.method.clone(), |rank| at(&fit.method, rank)),
                ranks,
            });
        }
    }
    fits
}
