//! What the pipeline file says of its fits → fits with checked parameters, ranks apart.

use crate::assess::ranks::Rule;
use crate::math::schur::By;
use crate::methods::cocluster;
use crate::methods::dbmr::params;
use crate::methods::spectral::gpcca;
use crate::methods::spectral::svd;
use crate::plan::pipeline::Spec;
use crate::plan::pipeline::fits;
use serde::{Deserialize, Serialize};

/// One fit of every partition and lag, ranks apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedFit {
    /// First part of its column names: `<name>_r<rank>` where the pipeline asks for several ranks.
    pub name: String,
    /// At the largest rank, where one is to be picked.
    pub method: PlannedMethod,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PlannedMethod {
    Dbmr(params::Params),
    Svd(svd::Params),
    Cocluster(cocluster::Params),
    /// One set of states on both sides.
    Metastable(cocluster::Params),
    /// One set of states on both sides.
    Gpcca(gpcca::Params),
    /// Scores the partition in the column at this place of `Layout::given`.
    Given(usize),
}

impl PlannedFit {
    pub fn method_name(&self) -> &'static str {
        match self.method {
            PlannedMethod::Dbmr(_) => "dbmr",
            PlannedMethod::Svd(_) => "svd",
            PlannedMethod::Cocluster(_) => "cocluster",
            PlannedMethod::Metastable(_) => "metastable",
            PlannedMethod::Gpcca(_) => "gpcca",
            PlannedMethod::Given(_) => "given",
        }
    }

    /// Nothing for a given partition, whose sets are counted.
    pub fn rank(&self) -> Option<usize> {
        match &self.method {
            PlannedMethod::Dbmr(p) => Some(p.rank),
            PlannedMethod::Svd(p) => Some(p.rank),
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => Some(p.rank),
            PlannedMethod::Gpcca(p) => Some(p.rank),
            PlannedMethod::Given(_) => None,
        }
    }

    /// The name that the pipeline file has for it.
    pub fn family(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// Whether sources and targets are states of one kind to it.
    pub(crate) fn is_square(&self) -> bool {
        matches!(
            self.method,
            PlannedMethod::Metastable(_) | PlannedMethod::Gpcca(_)
        )
    }

    /// Whether it gives memberships beside labels.
    pub(crate) fn is_soft(&self) -> bool {
        match &self.method {
            PlannedMethod::Svd(p) => p.clusters != svd::Clusters::KMeans,
            PlannedMethod::Gpcca(_) => true,
            _ => false,
        }
    }
}

impl PlannedMethod {
    pub(crate) fn with_rank(&self, rank: usize) -> PlannedMethod {
        let mut method = self.clone();
        match &mut method {
            PlannedMethod::Dbmr(p) => p.rank = rank,
            PlannedMethod::Svd(p) => p.rank = rank,
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => p.rank = rank,
            PlannedMethod::Gpcca(p) => p.rank = rank,
            PlannedMethod::Given(_) => (),
        }
        method
    }
}

pub(crate) fn fits(spec: &Spec) -> Vec<PlannedFit> {
    let mut fits = Vec::new();
    let mut given = 0;
    for fit in &spec.fits {
        for (rank, name) in fit.expanded() {
            let method = match (&fit.method, rank) {
                (fits::Method::Dbmr(p), Some(rank)) => PlannedMethod::Dbmr(params::Params {
                    rank,
                    init: match p.init {
                        fits::Init::Random => params::Init::Random,
                        fits::Init::Kl => params::Init::Kl,
                        fits::Init::Svd => params::Init::Svd,
                    },
                    polish: p.polish,
                    restarts: p.restarts,
                    max_iterations: p.max_iterations,
                    tolerance: p.tolerance(),
                }),
                (fits::Method::Svd(p), Some(rank)) => {
                    let (restarts, max_iterations, tolerance) =
                        (p.restarts, p.max_iterations, p.tolerance);
                    PlannedMethod::Svd(svd::Params {
                        clusters: match p.clusters {
                            fits::Clusters::KMeans => svd::Clusters::KMeans,
                            fits::Clusters::Seba => svd::Clusters::Seba,
                            fits::Clusters::Pcca => svd::Clusters::Pcca,
                        },
                        restarts,
                        max_iterations,
                        tolerance,
                        ..svd::Params::new(rank)
                    })
                }
                (fits::Method::Cocluster(p), Some(rank)) => {
                    PlannedMethod::Cocluster(cocluster::Params {
                        rank,
                        restarts: p.restarts,
                        max_iterations: p.max_iterations,
                    })
                }
                (fits::Method::Metastable(p), Some(rank)) => {
                    PlannedMethod::Metastable(cocluster::Params {
                        rank,
                        restarts: p.restarts,
                        max_iterations: p.max_iterations,
                    })
                }
                (fits::Method::Gpcca(p), Some(rank)) => PlannedMethod::Gpcca(gpcca::Params {
                    tolerance: p.tolerance,
                    by: match p.which {
                        fits::Which::Magnitude => By::Magnitude,
                        fits::Which::Real => By::Real,
                    },
                    ..gpcca::Params::new(rank)
                }),
                _ => {
                    given += 1;
                    PlannedMethod::Given(given - 1)
                }
            };
            let ranks = match (fit.rule, fit.ranks()) {
                (Some(rule), candidates) => {
                    let mut candidates = candidates.to_vec();
                    candidates.sort_unstable();
                    Ranks::Auto {
                        rule: self::rule(rule),
                        candidates,
                    }
                }
                (None, [_, _, ..]) => Ranks::OneOf(fit.name.clone()),
                (None, _) => Ranks::One,
            };
            fits.push(PlannedFit {
                name,
                method,
                ranks,
            });
        }
    }
    fits
}

fn rule(rule: fits::Rule) -> Rule {
    match rule {
        fits::Rule::Gap => Rule::Gap,
        fits::Rule::Aic => Rule::Aic,
        fits::Rule::Bic => Rule::Bic,
        fits::Rule::HeldOut => Rule::HeldOut,
        fits::Rule::Vamp2 => Rule::Vamp2,
    }
}
