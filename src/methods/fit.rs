//! A fit: how it was made, its metrics and its model.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A model, how it was made, and how good it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub how: How,
    pub metrics: Metrics,
    pub model: LowRank,
}

/// How a fit was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct How {
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

/// A low-rank model of rank r over n sources and m targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LowRank {
    /// r, empty latent states included.
    pub rank: usize,
    /// E and e = D_p^{-1/2} V: n states.
    pub sources: Side,
    /// F and f = D_q^{-1/2} U: m states.
    pub targets: Side,
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

/// What a fit says about the states of one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The set of every state, −1 for none.
    pub affiliation: Vec<i32>,
    /// One row of r coordinates a state, row-major.
    pub embedding: Vec<f64>,
    /// One row of r memberships a state, row-major, where the method is soft.
    pub membership: Option<Vec<f64>>,
}

/// λ without its zeros: latent state k holds `targets[offsets[k]..offsets[k + 1]]`, ascending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latent {
    pub offsets: Vec<usize>,
    pub targets: Vec<u32>,
    pub probability: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Singular {
    pub value: f64,
    /// max(‖P̃v − σu‖, ‖P̃ᵀu − σv‖) of the vectors of an SVD fit; how far T x leaves the span of the Schur vectors up to x.
    pub residual: Option<f64>,
    /// Real and imaginary part of the eigenvalue of T at this place, of a fit by Schur vectors.
    pub eigenvalue: Option<[f64; 2]>,
}

/// How one restart went, whatever it minimised or maximised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    pub seed: u64,
    /// How it began: an `Init` of DBMR, or for co-clustering `dbmr`, `gpcca` or `random`; none for k-means, which always begins with k-means++.
    pub init: Option<Cow<'static, str>>,
    /// Sources that it went over: all, or the sample that many sources are first searched on.
    pub sources: usize,
    pub iterations: usize,
    /// DBMR: columns for which the scores of all r states were added up.
    pub evaluations: Option<u64>,
    /// DBMR: ℓ̂, co-clustering: mutual information, the more the better. k-means: inertia, the less the better.
    pub objective: f64,
    pub empty_states: usize,
    pub converged: bool,
}

/// What a model keeps of the full transition matrix. Logarithms are natural.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// ℓ̂(λ,Γ) = Σ_ij N_ij log Λ_ij (14).
    pub log_likelihood: f64,
    /// ℓ̂(P,Id) = Σ_ij N_ij log P_ij, the largest likelihood any model reaches.
    pub reference_log_likelihood: f64,
    /// Σ_j p_j KL(P_j‖Λ_j), the difference of the two likelihoods for every count.
    pub kullback_leibler: f64,
    /// ‖P̃‖²_F.
    pub frobenius_p: f64,
    /// ‖Λ̃‖²_F.
    pub frobenius_lambda: f64,
    /// ‖P̃ − Λ̃‖²_F, which equals ‖P̃‖²_F − ‖Λ̃‖²_F (Corollary 12) but is summed term by term.
    pub frobenius_error: f64,
    /// κ⁽¹⁾ = ½ min_j B_q(P_j − Λ_j) (Theorem 17), above 0 and at most ½.
    pub kappa_1: f64,
    /// κ⁽²⁾ = ½ min_j B_q(P_j) (1 − α_j) (Theorem 17); −∞ when Λ has mass where a column of P has none.
    pub kappa_2: f64,
    /// κ = max(κ⁽¹⁾, κ⁽²⁾).
    pub kappa: f64,
    /// Right side of (33): κ⁻¹ Σ_j p_j KL(P_j‖Λ_j) ≥ ‖P̃ − Λ̃‖²_F.
    pub bound: f64,
    /// ℓ̂(λ,Γ) once more, as Σ_ik C_ik log λ_ik with C_ik = Σ_{γ(j)=k} N_ij: the same number from other terms.
    pub latent_log_likelihood: f64,
    /// σ(Λ̃), r values, descending.
    pub singular_values: Vec<f64>,
    /// C_r(Λ) = Σ_{k≤r} σ_k(Λ̃) (Definition 2).
    pub coherence: f64,
    /// Right side of (34), a lower bound of C_r(Λ).
    pub coherence_lower_bound: f64,
    /// C_r(P) = Σ_{k≤r} σ_k(P̃), set by the fits that compute them.
    pub coherence_p: Option<f64>,
    /// Objective (2): Σ_k Pr[Y ∈ F_k | X ∈ E_k].
    pub objective: f64,
    /// I(E; F), what the set of X says about that of Y, in nats.
    pub mutual_information: f64,
    /// I(X; Y), in nats, which no sets exceed.
    pub reference_information: f64,
    /// trace(D_c⁻¹ χᵀDχ) / r of memberships χ, set by the fits that have them.
    pub crispness: Option<f64>,
    /// max_i |(Λp)_i − q_i|: rounding, since Λp = q (Theorem 10).
    pub lambda_p_residual: f64,
    /// Latent states without a source.
    pub empty_states: usize,
    /// Sources in E_k, r values.
    pub source_sizes: Vec<usize>,
    /// Targets in F_k, r values.
    pub target_sizes: Vec<usize>,
    /// w_k = Pr[X ∈ E_k], r values.
    pub weights: Vec<f64>,
}

/// A number that every fit has, and its name.
pub type Metric = (&'static str, fn(&Fit) -> f64);

/// The metrics that every fit has, in the order of the table `fits` (coherence §4-7).
pub const METRICS: [Metric; 16] = [
    ("log_likelihood", |f| f.metrics.log_likelihood),
    ("reference_log_likelihood", |f| {
        f.metrics.reference_log_likelihood
    }),
    ("kullback_leibler", |f| f.metrics.kullback_leibler),
    ("frobenius_p", |f| f.metrics.frobenius_p),
    ("frobenius_lambda", |f| f.metrics.frobenius_lambda),
    ("frobenius_error", |f| f.metrics.frobenius_error),
    ("kappa", |f| f.metrics.kappa),
    ("kappa_1", |f| f.metrics.kappa_1),
    ("kappa_2", |f| f.metrics.kappa_2),
    ("bound", |f| f.metrics.bound),
    ("coherence", |f| f.metrics.coherence),
    ("coherence_lower_bound", |f| f.metrics.coherence_lower_bound),
    ("objective", |f| f.metrics.objective),
    ("mutual_information", |f| f.metrics.mutual_information),
    ("reference_information", |f| f.metrics.reference_information),
    ("lambda_p_residual", |f| f.metrics.lambda_p_residual),
];
