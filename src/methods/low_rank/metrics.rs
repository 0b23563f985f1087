//! The numbers that compare the low-rank matrix Λ with the transition matrix P.
//!
//! Polzin, Klebanov, Nüsken, Koltai, *Coherent set identification via direct low rank maximum
//! likelihood estimation* ("coherence"): objective (2), likelihood (14), Definitions 2 and 15,
//! Corollaries 12 and 19, Theorem 17.

use serde::{Deserialize, Serialize};

/// How well a model approximates the transition matrix. Logarithms are natural.
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
    /// κ⁽²⁾ = ½ min_j B_q(P_j) (1 − α_j) (Theorem 17); −∞ if Λ_ij > 0 = P_ij for some i and j.
    pub kappa_2: f64,
    /// κ = max(κ⁽¹⁾, κ⁽²⁾).
    pub kappa: f64,
    /// Right side of (33): κ⁻¹ Σ_j p_j KL(P_j‖Λ_j) ≥ ‖P̃ − Λ̃‖²_F.
    pub bound: f64,
    /// ℓ̂(λ,Γ) as Σ_ik C_ik log λ_ik with C_ik = Σ_{γ(j)=k} N_ij: `log_likelihood` from other
    /// terms.
    pub latent_log_likelihood: f64,
    /// σ(Λ̃), r values, descending.
    pub singular_values: Vec<f64>,
    /// C_r(Λ) = Σ_{k≤r} σ_k(Λ̃) (Definition 2).
    pub coherence: f64,
    /// Right side of (34), a lower bound of C_r(Λ).
    pub coherence_lower_bound: f64,
    /// C_r(P) = Σ_{k≤r} σ_k(P̃), if the method computes it.
    pub coherence_p: Option<f64>,
    /// Objective (2): Σ_k Pr[Y ∈ F_k | X ∈ E_k].
    pub objective: f64,
    /// I(E; F), the mutual information of the sets of X and Y, nats.
    pub mutual_information: f64,
    /// I(X; Y), nats: an upper bound of I(E; F).
    pub reference_information: f64,
    /// trace(D_c⁻¹ χᵀDχ) / r of the memberships χ of PCCA+.
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

/// The name of a metric, and the metric.
pub(crate) type NamedMetric = (&'static str, fn(&Metrics) -> f64);

/// The metrics that every model has, in the order of the table `fits` (coherence §4-7).
pub(crate) const METRICS: [NamedMetric; 16] = [
    ("log_likelihood", |m| m.log_likelihood),
    ("reference_log_likelihood", |m| m.reference_log_likelihood),
    ("kullback_leibler", |m| m.kullback_leibler),
    ("frobenius_p", |m| m.frobenius_p),
    ("frobenius_lambda", |m| m.frobenius_lambda),
    ("frobenius_error", |m| m.frobenius_error),
    ("kappa", |m| m.kappa),
    ("kappa_1", |m| m.kappa_1),
    ("kappa_2", |m| m.kappa_2),
    ("bound", |m| m.bound),
    ("coherence", |m| m.coherence),
    ("coherence_lower_bound", |m| m.coherence_lower_bound),
    ("objective", |m| m.objective),
    ("mutual_information", |m| m.mutual_information),
    ("reference_information", |m| m.reference_information),
    ("lambda_p_residual", |m| m.lambda_p_residual),
];

/// The name of w_k, the only metric with one number per set.
pub(crate) const WEIGHT: &str = "weight";
