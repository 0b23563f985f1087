//! Normalisations of a kernel (*heat kernel*, Algorithms 1 and 2).
//!
//! In: a kernel K of points with weights w, which count as copies of a point. Out: a symmetric
//! matrix A_ij = s_i K_ij s_j of which Σ_j A_ij w_j u_j = u_i for a positive vector u, and the
//! operator B = √W A √W, which has the same eigenvalues as A on all copies.
//!
//! - *Symmetric* (Algorithm 1): q = row sums of K, K̃ = D_q^{-α} K D_q^{-α}, v = row sums of K̃,
//!   s = q^{-α} v^{-1/2}, u = √v.
//! - *Stochastic*: the row-stochastic D_v^{-1} K̃ is similar to A; its rows of an embedding are
//!   those of A times √(V/v) with V = Σ w v.
//! - *Bistochastic* (Algorithm 2): s = 1/d with d = K(1/d), u = 1. The paper's step converges
//!   slowly where embeddings are interesting. The damped step d ← √(d ∘ K(1/d)) has the same limit.

use crate::methods::heat_kernel::kernel::Kernel;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::spectral::truncated_svd;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Steps of the bistochastic scaling after which it stops.
const MAX_STEPS: usize = 10_000;

/// How a kernel is normalised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Normalisation {
    /// Symmetric, with row sums that are 1 in the limit of many points.
    #[default]
    Symmetric,
    /// Row sums of 1: the transition matrix of a Markov chain.
    Stochastic,
    /// Symmetric with row sums of 1, by Sinkhorn's scaling.
    Bistochastic,
}

impl Normalisation {
    /// The normalisation with a name.
    pub(crate) fn of_name(name: &str) -> Option<Normalisation> {
        let all = [
            Normalisation::Symmetric,
            Normalisation::Stochastic,
            Normalisation::Bistochastic,
        ];
        all.into_iter().find(|own| own.name() == name)
    }

    /// As it is written in pipelines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Normalisation::Symmetric => "symmetric",
            Normalisation::Stochastic => "stochastic",
            Normalisation::Bistochastic => "bistochastic",
        }
    }
}

/// The factors of a normalised kernel, one number per point in each vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Factors {
    /// Which normalisation.
    pub normalisation: Normalisation,
    /// α; 0 for bistochastic kernels.
    pub alpha: f64,
    /// q, row sums of K; d for bistochastic kernels.
    pub q: Vec<f64>,
    /// v, row sums of K̃; ones for bistochastic kernels.
    pub v: Vec<f64>,
    /// K(1/d) of a bistochastic kernel, which is d up to `row_error`; else empty.
    pub sums: Vec<f64>,
    /// The largest error of a row sum of A, Σ_j A_ij w_j u_j = u_i, relative to u_i.
    pub row_error: f64,
    /// Products with K that the bistochastic scaling took.
    pub products: usize,
}

impl Factors {
    /// s, with A_ij = s_i K_ij s_j.
    pub(crate) fn scale(&self) -> Vec<f64> {
        let pairs = self.q.iter().zip(&self.v);
        let scale = pairs.map(|(q, v)| scale(self.normalisation, self.alpha, *q, *v));
        scale.collect()
    }

    /// V = Σ w v.
    pub(crate) fn total(&self, weights: &[f64]) -> f64 {
        self.v.iter().zip(weights).map(|(v, w)| v * w).sum()
    }

    /// What the rows of an embedding are multiplied with: 1, √(V/v) or, for a bistochastic kernel,
    /// what makes the sum of a row 1, as it is for a new row.
    pub(crate) fn row_scale(&self, weights: &[f64]) -> Vec<f64> {
        match self.normalisation {
            Normalisation::Symmetric => vec![1.0; self.v.len()],
            Normalisation::Stochastic => {
                let total = self.total(weights);
                self.v.iter().map(|v| (total / v).sqrt()).collect()
            }
            Normalisation::Bistochastic => {
                let pairs = self.q.iter().zip(&self.sums);
                pairs.map(|(d, sum)| d / sum).collect()
            }
        }
    }
}

/// s of a point with q (or d) and v.
pub(crate) fn scale(normalisation: Normalisation, alpha: f64, q: f64, v: f64) -> f64 {
    match normalisation {
        Normalisation::Bistochastic => 1.0 / q,
        _ => 1.0 / (q.powf(alpha) * v.sqrt()),
    }
}

/// The factors of a kernel. `delta` is the error of row sums at which bistochastic scaling stops.
pub(crate) fn factors(
    kernel: &Kernel,
    normalisation: Normalisation,
    alpha: f64,
    delta: f64,
) -> Factors {
    if normalisation == Normalisation::Bistochastic {
        return bistochastic(kernel, delta);
    }
    let n = kernel.n();
    let q = kernel.sums(&vec![1.0; n]);
    let inverse: Vec<f64> = q.iter().map(|q| q.powf(-alpha)).collect();
    let mut v = kernel.sums(&inverse);
    v.iter_mut().zip(&inverse).for_each(|(v, q)| *v *= q);
    Factors {
        normalisation,
        alpha,
        q,
        v,
        sums: Vec::new(),
        row_error: 0.0,
        products: 2,
    }
}

fn bistochastic(kernel: &Kernel, delta: f64) -> Factors {
    let n = kernel.n();
    let sums = kernel.sums(&vec![1.0; n]);
    let mut d: Vec<f64> = sums.iter().map(|s| s.sqrt()).collect();
    let mut products = 1;
    loop {
        let inverse: Vec<f64> = d.iter().map(|d| 1.0 / d).collect();
        let sums = kernel.sums(&inverse);
        products += 1;
        let errors = sums.iter().zip(&d).map(|(s, d)| (s / d - 1.0).abs());
        let row_error = errors.fold(0.0, f64::max);
        if row_error <= delta || products >= MAX_STEPS {
            return Factors {
                normalisation: Normalisation::Bistochastic,
                alpha: 0.0,
                q: d,
                v: vec![1.0; n],
                sums,
                row_error,
                products,
            };
        }
        d.iter_mut()
            .zip(&sums)
            .for_each(|(d, s)| *d = (*d * s).sqrt());
    }
}

/// B = W^{1/2} A W^{1/2}.
#[derive(Debug)]
pub(crate) struct Normalised<'a> {
    kernel: &'a Kernel,
    /// √w s.
    scale: Vec<f64>,
    leading: Vec<f64>,
}

impl<'a> Normalised<'a> {
    /// The operator of a kernel.
    pub(crate) fn new(kernel: &'a Kernel, factors: &Factors) -> Self {
        let weights = &kernel.points.weights;
        let scale = factors.scale();
        let total = factors.total(weights);
        let leading = factors.v.iter().zip(weights);
        Normalised {
            kernel,
            scale: scale
                .iter()
                .zip(weights)
                .map(|(s, w)| s * w.sqrt())
                .collect(),
            leading: leading.map(|(v, w)| (v * w / total).sqrt()).collect(),
        }
    }
}

impl Normalised<'_> {
    /// ‖B‖_F².
    pub(crate) fn square_sum(&self) -> f64 {
        self.kernel.square_sum(&self.scale)
    }
}

impl Operator for Normalised<'_> {
    fn n(&self) -> usize {
        self.kernel.n()
    }

    fn apply(&self, x: &[f64], width: usize, out: &mut [f64]) {
        let mut scaled = vec![0.0; x.len()];
        truncated_svd::scale(x, &self.scale, width, &mut scaled);
        self.kernel.multiply(&scaled, width, out);
        let rows = 4096;
        out.par_chunks_mut(rows * width)
            .zip(self.scale.par_chunks(rows))
            .for_each(|(out, scale)| {
                for (out, scale) in out.chunks_exact_mut(width).zip(scale) {
                    out.iter_mut().for_each(|out| *out *= scale);
                }
            });
    }

    fn leading(&self) -> Vec<f64> {
        self.leading.clone()
    }
}
