//! Parameters of DBMR, and the partition that it finds.

use crate::methods::fit;
use serde::{Deserialize, Serialize};

/// How a restart begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Init {
    /// Independent uniform affiliations, as in the paper.
    Random,
    /// States grown around columns that are far apart (`seeding`).
    Kl,
    /// The partition of the sources by their singular vectors (`svd`): all restarts begin alike.
    Svd,
}

impl Init {
    /// As it is written in pipelines and tables.
    pub fn name(self) -> &'static str {
        match self {
            Init::Random => "random",
            Init::Kl => "kl",
            Init::Svd => "svd",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Latent states r.
    pub rank: usize,
    pub init: Init,
    /// Exact single moves (`polish`) in place of the alternating algorithm, and `regroup`. A partition they leave is a fixed point of it.
    pub polish: bool,
    /// Independent beginnings; the best is kept. With `polish` no more are made once four have found it.
    pub restarts: usize,
    pub max_iterations: usize,
    /// A restart stops when ℓ̂ grows by no more than this fraction of |ℓ̂|; 0: when it stops growing. With `polish` that goes for sources so many that a
    /// sample was searched first: on fewer it always goes on until no move gains.
    pub tolerance: f64,
}

impl Params {
    /// The search to take unless there is a reason.
    pub fn new(rank: usize) -> Self {
        Params {
            rank,
            init: Init::Kl,
            polish: true,
            restarts: 10,
            max_iterations: 1000,
            tolerance: 1e-3,
        }
    }

    /// Algorithm 2 as the paper runs it.
    pub fn plain(rank: usize) -> Self {
        Params {
            init: Init::Random,
            polish: false,
            restarts: 100,
            tolerance: 0.0,
            ..Params::new(rank)
        }
    }
}

/// How one restart went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// `fit` with this seed and a single restart repeats it.
    pub seed: u64,
    pub init: Init,
    /// Sources that it was fitted to: all, or a sample (`seeding`) where it was not the best there.
    pub sources: usize,
    /// Updates of γ, with the last that changed nothing; with `polish` sweeps over all of these sources.
    pub iterations: usize,
    /// Scores of a column that were added up, in columns with r scores each.
    pub evaluations: u64,
    /// ℓ̂ of its sources at the end, in nats.
    pub log_likelihood: f64,
    /// Latent states without sources at the end.
    pub empty_states: usize,
    /// Whether it stopped by itself, before `max_iterations`.
    pub converged: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// γ(j) of the best restart, n values.
    pub affiliation: Vec<u32>,
    pub restarts: Vec<Restart>,
    /// The restart with the largest ℓ̂, the first such on ties.
    pub best: usize,
    /// ℓ̂ of the best restart after each of its iterations.
    pub trace: Vec<f64>,
}

impl From<Restart> for fit::Restart {
    fn from(restart: Restart) -> Self {
        fit::Restart {
            seed: restart.seed,
            init: Some(restart.init.name().into()),
            sources: restart.sources,
            iterations: restart.iterations,
            evaluations: Some(restart.evaluations),
            objective: restart.log_likelihood,
            empty_states: restart.empty_states,
            converged: restart.converged,
        }
    }
}
