//! The model Λ = λΓ of rank r: sets of sources and targets, points of states, λ and its metrics.

use crate::methods::low_rank::metrics::{METRICS, Metrics, WEIGHT};
use crate::methods::metric::Metric;
use serde::{Deserialize, Serialize};

/// A low-rank model of rank r over n sources and m targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LowRank {
    /// r, empty latent states included.
    pub rank: usize,
    /// The numbers of the model.
    pub metrics: Metrics,
    /// E and e = D_p^{-1/2} V: n states.
    pub sources: SideStates,
    /// F and f = D_q^{-1/2} U: m states.
    pub targets: SideStates,
    /// λ.
    pub latent: Latent,
    /// Pr[Y ∈ F_l | X ∈ E_k], r × r row-major (k, l); 0 where E_k is empty.
    pub coarse: Vec<f64>,
    /// Σ of N over E_k and F_l, r × r row-major (k, l); exact for integer counts.
    pub coarse_counts: Vec<f64>,
    /// r values, descending: σ(P̃) of an SVD fit, σ(Λ̃) of all others.
    pub spectrum: Vec<Singular>,
    /// An upper bound of the residuals of singular or Schur vectors; none if the decomposition
    /// stopped before it converged.
    pub largest_residual: Option<f64>,
}

/// The states of one side of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideStates {
    /// The set of every state, −1 for none.
    pub affiliation: Vec<i32>,
    /// One row of r coordinates per state, row-major.
    pub embedding: Vec<f64>,
    /// One row of r memberships per state, row-major, if the method is soft.
    pub membership: Option<Vec<f64>>,
}

/// λ without its zeros: latent state k holds `targets[offsets[k]..offsets[k + 1]]`, ascending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latent {
    /// r + 1 values.
    pub offsets: Vec<usize>,
    /// The targets of all entries.
    pub targets: Vec<u32>,
    /// λ_ik of all entries.
    pub probability: Vec<f64>,
}

/// A singular value of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Singular {
    /// σ.
    pub value: f64,
    /// SVD: max(‖P̃v − σu‖, ‖P̃ᵀu − σv‖). Schur vectors: the distance of T x from the span of the
    /// Schur vectors up to x.
    pub residual: Option<f64>,
    /// Schur vectors: real and imaginary part of the eigenvalue of T with this index.
    pub eigenvalue: Option<[f64; 2]>,
}

impl LowRank {
    /// All numbers of the model.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let metric = |name, index, value| Metric { name, index, value };
        let metrics = METRICS.map(|(name, of)| metric(name, None, of(&self.metrics)));
        let coherence_p = self.metrics.coherence_p.into_iter();
        let coherence_p = coherence_p.map(|value| metric("coherence_p", None, value));
        let values = self.spectrum.iter().enumerate();
        let values = values.map(|(at, s)| metric("singular_value", Some(at), s.value));
        let weights = self.metrics.weights.iter().enumerate();
        let weights = weights.map(|(k, &weight)| metric(WEIGHT, Some(k), weight));
        let metrics = metrics.into_iter().chain(coherence_p);
        metrics.chain(values).chain(weights).collect()
    }

    /// Applies `scale` to all numbers that are proportional to the counts.
    pub(crate) fn scale_counts(&mut self, mut scale: impl FnMut(&mut f64)) {
        self.coarse_counts.iter_mut().for_each(&mut scale);
        scale(&mut self.metrics.log_likelihood);
        scale(&mut self.metrics.reference_log_likelihood);
        scale(&mut self.metrics.latent_log_likelihood);
    }
}

impl Singular {
    /// A singular value of Λ̃, which has no residual.
    pub(crate) fn value(value: f64) -> Singular {
        Singular {
            value,
            residual: None,
            eigenvalue: None,
        }
    }
}
