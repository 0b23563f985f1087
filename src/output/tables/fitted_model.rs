//! The fitted model of one partition and lag, as the tables need it.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::certificates::Certificate;
use crate::assess::lineage::Lineage;
use crate::assess::markov::Markov;
use crate::assess::ranks::RankRow;
use crate::evidence::counts::matrix::Counts;
use crate::methods::fit::Fit;
use serde::{Deserialize, Serialize};

/// The fits of one partition and lag. As bytes they have no lineage and no test, which come of what other models say.
#[derive(Serialize, Deserialize)]
pub struct FittedModel {
    /// Without its matrix, where that is to be fetched.
    pub counts: Counts,
    pub nonzeros: usize,
    /// Beside `RunSchema::fits`.
    pub fits: Vec<Fit>,
    /// Of each fit, by name.
    pub certificates: Vec<Vec<Certificate>>,
    /// What resamples say of each, where that is asked for.
    pub bootstraps: Vec<Bootstrap>,
    /// By fit and rank.
    pub ranks: Vec<RankRow>,
    /// Beside `fits`.
    #[serde(skip)]
    pub lineage: Vec<Lineage>,
    /// Beside the fits, where that is asked for.
    #[serde(skip)]
    pub markov: Vec<Markov>,
    /// N_·j, N_i· and S (coherence §3.1).
    pub source_total: Vec<f64>,
    pub target_total: Vec<f64>,
    pub total: f64,
}

impl FittedModel {
    /// Counts alone.
    pub(crate) fn bare(counts: Counts) -> FittedModel {
        FittedModel {
            nonzeros: counts.nnz(),
            counts,
            fits: Vec::new(),
            certificates: Vec::new(),
            bootstraps: Vec::new(),
            ranks: Vec::new(),
            lineage: Vec::new(),
            markov: Vec::new(),
            source_total: Vec::new(),
            target_total: Vec::new(),
            total: 0.0,
        }
    }
}
