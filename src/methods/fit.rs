//! A fit: how it was made, and its model.

use crate::methods::low_rank::model::LowRank;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A model and how it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// How the fit was made.
    pub how: How,
    /// The sets of sources and targets, and the matrix Λ.
    pub model: LowRank,
}

/// How a fit was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct How {
    /// The seed of the fit.
    pub seed: u64,
    /// Restarts of DBMR, of co-clustering, or of the k-means of the sources. Empty for a given
    /// partition, SEBA and PCCA+.
    pub restarts: Vec<Restart>,
    /// The index of the restart that was kept; 0 if there was none.
    pub best_restart: usize,
    /// Iterations of the best restart. SVD and Schur vectors: products of the matrix or its
    /// transpose with a vector. Given partition: 0.
    pub iterations: usize,
    /// Whether the best restart, and the decomposition, met their tolerance.
    pub converged: bool,
    /// The objective after every iteration of the best restart, if the method records it.
    pub trace: Vec<f64>,
}

impl How {
    /// A fit without restarts and iterations.
    pub(crate) fn direct(seed: u64) -> How {
        How {
            seed,
            restarts: Vec::new(),
            best_restart: 0,
            iterations: 0,
            converged: true,
            trace: Vec::new(),
        }
    }
}

/// One restart of a method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// The seed of the restart.
    pub seed: u64,
    /// The name of an `Init` of DBMR. For co-clustering `dbmr`, `gpcca` or `random`. None for
    /// k-means, which always begins with k-means++.
    pub init: Option<Cow<'static, str>>,
    /// The sources of the restart: all, or those of the sample that is searched first.
    pub sources: usize,
    /// Iterations until the restart stopped.
    pub iterations: usize,
    /// DBMR: the columns for which the scores of all r sets were summed.
    pub evaluations: Option<u64>,
    /// DBMR maximises ℓ̂, co-clustering maximises mutual information, k-means minimises inertia.
    pub objective: f64,
    /// Sets without a source, or clusters without points.
    pub empty_states: usize,
    /// Whether the restart met its tolerance.
    pub converged: bool,
}
