//! Parameters of DBMR, and the partition that it finds.

use crate::methods::estimator::defaults;
use crate::methods::fit::Restart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The beginning of a start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Init {
    /// Independent uniform affiliations.
    Random,
    /// Sets that grow around states far apart in Kullback-Leibler divergence.
    #[default]
    Kl,
    /// The sets of the truncated singular value decomposition.
    Svd,
}

impl Init {
    /// As it is written in pipelines and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Init::Random => "random",
            Init::Kl => "kl",
            Init::Svd => "svd",
        }
    }
}

/// Direct Bayesian model reduction: the low-rank chain with the largest relaxed likelihood of
/// several starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dbmr {
    /// The number of latent states, or a list of numbers to fit one by one.
    pub rank: usize,
    /// The number of independent starts, of which the best is kept. With `polish`, the remaining
    /// starts are skipped after four have found the best result.
    #[serde(default = "Dbmr::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// The sets with which a start begins.
    #[serde(default)]
    pub init: Init,
    /// Move single states while that increases the likelihood, and split and merge sets. With `init
    /// = "random"` and `polish = false` this is the algorithm of the paper [*Coherent set
    /// identification via direct low rank maximum likelihood
    /// estimation*](https://arxiv.org/abs/2308.07663).
    #[serde(default = "Dbmr::polish")]
    pub polish: bool,
    /// The number of sweeps after which a start that has not converged is stopped.
    #[serde(default = "Dbmr::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
    /// A start has converged if a sweep increases the likelihood by at most this share. With 0, a
    /// start runs until no affiliation changes; this is the default without `polish`. With `polish`
    /// the default is 0.001, which matters only if the starts run on a sample of many states.
    #[schemars(range(min = 0))]
    pub tolerance: Option<f64>,
}

impl Dbmr {
    /// Algorithm 2 as the paper runs it.
    pub fn plain(rank: usize) -> Self {
        Dbmr {
            init: Init::Random,
            polish: false,
            restarts: 100,
            ..Dbmr::new(rank)
        }
    }

    /// The tolerance, or its default.
    pub(crate) fn tolerance(&self) -> f64 {
        let default = if self.polish { 1e-3 } else { 0.0 };
        self.tolerance.unwrap_or(default)
    }
}

defaults! { pub Dbmr(rank: usize) {
    restarts: usize = 10,
    polish: bool = true,
    max_iterations: usize = 1000,
} init tolerance }

/// The partition of the best restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Partition {
    /// γ(j) of the best restart, n values.
    pub affiliation: Vec<u32>,
    /// All restarts, in order.
    pub restarts: Vec<Restart>,
    /// The restart with the largest ℓ̂, the first one on ties.
    pub best: usize,
    /// ℓ̂ of the best restart after each of its iterations.
    pub trace: Vec<f64>,
}
