//! The fitted model of one partition and lag, as the tables need it.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::certificates::Certificate;
use crate::assess::markov::Markov;
use crate::assess::ranks::RankRow;
use crate::assess::set_tracking::TrackedSets;
use crate::evidence::counts::matrix::CountMatrix;
use crate::methods::fit::Fit;
use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::output::tables::columns::Placed;
use serde::{Deserialize, Serialize};

/// The fits of one partition and lag. Serialized, they have neither tracked sets nor Markov
/// tests, which depend on other models.
#[derive(Serialize, Deserialize)]
pub struct FittedModel {
    /// Without the matrix if it is fetched later.
    pub counts: CountMatrix,
    /// Pairs of states with a transition.
    pub nonzeros: usize,
    /// One per entry of `RunSchema::fits`, in the same order.
    pub fits: Vec<Fit>,
    /// One per entry of `RunSchema::embeddings`, in the same order.
    pub embeddings: Vec<ChainEmbedding>,
    /// Per fit, ordered by the name of the certificate.
    pub certificates: Vec<Vec<Certificate>>,
    /// Per fit, if the pipeline asks for resamples.
    pub bootstraps: Vec<Bootstrap>,
    /// Ordered by fit and rank.
    pub ranks: Vec<RankRow>,
    /// Per fit.
    #[serde(skip)]
    pub tracked_sets: Vec<TrackedSets>,
    /// Per fit, if the pipeline asks for Markov tests.
    #[serde(skip)]
    pub markov: Vec<Markov>,
    /// N_·j, N_i· and S (coherence §3.1).
    pub source_total: Vec<f64>,
    /// N_i·.
    pub target_total: Vec<f64>,
    /// S.
    pub total: f64,
}

impl Placed for FittedModel {
    fn place(&self) -> (usize, usize) {
        (self.counts.partition, self.counts.lag)
    }
}

impl FittedModel {
    /// Counts without fits.
    pub(crate) fn bare(counts: CountMatrix) -> FittedModel {
        FittedModel {
            nonzeros: counts.nnz(),
            counts,
            fits: Vec::new(),
            embeddings: Vec::new(),
            certificates: Vec::new(),
            bootstraps: Vec::new(),
            ranks: Vec::new(),
            tracked_sets: Vec::new(),
            markov: Vec::new(),
            source_total: Vec::new(),
            target_total: Vec::new(),
            total: 0.0,
        }
    }
}
