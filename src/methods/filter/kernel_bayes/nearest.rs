//! Supervision by the state of a table that is nearest to the prediction (Song, Zhu, Ren, section
//! 5, camera).
//!
//! The prediction is that of the filter, or a function of the estimate before, which is the rule of
//! the paper. The supervised pair of a row is (x, ỹ): its own observation x, and the state ỹ. With
//! A = K + δ diag(1/β⁺), (11) is
//!
//! ```text
//! ⎡ A    k_x     ⎤ ⎡w⎤   ⎡k_x⎤
//! ⎣ k_xᵀ 1 + δ/μ ⎦ ⎣γ⎦ = ⎣ 1 ⎦
//! ```
//!
//! because k(x, x) = 1. Elimination gives w = (1 − γ) w₀ with the weights w₀ = A⁻¹k_x of `pkbr`,
//! (8), and γ = (1 − s)/(1 − s + δ/μ) with s = k_xᵀw₀. So the cost of a row is that of `pkbr`, and
//! one distance per state of the table. 1 − s is the variance of a Gaussian process with the noise
//! δ/β⁺ at x: the less training rows explain an observation, the larger is the weight of ỹ.

use crate::methods::filter::fit::Estimates;
use crate::methods::filter::kernel_bayes::kernel::{Kernel, squares};
use crate::methods::filter::kernel_bayes::linear::dot;
use crate::methods::filter::kernel_bayes::preimage::{Weighted, emit};
use crate::methods::filter::params::{Decode, KernelBayes};

/// The state that prior weights decode to.
pub(super) fn decoded(prior: Weighted<'_>, kernel: &Kernel, decode: Decode) -> Vec<f64> {
    let mut predicted = Estimates::new(kernel.width);
    emit(&[prior], kernel, decode, &mut predicted);
    predicted.decoded
}

/// The state of `table` that is nearest to a prediction. Of several, the first one.
pub(super) fn nearest<'a>(table: &'a [f64], predicted: &[f64]) -> &'a [f64] {
    let width = predicted.len().max(1);
    let mut distances = vec![0.0; table.len() / width];
    squares(table, predicted, &mut distances);
    let places = distances.iter().enumerate();
    let least = places.min_by(|(_, a), (_, b)| a.total_cmp(b));
    least.map_or(&[][..], |(at, _)| &table[at * width..][..width])
}

/// Adds the weight γ of the supervised state to the weights of the training rows, which become
/// (1 − γ) w₀. `values` are the kernel of the observation with the training rows.
pub(super) fn supervise(params: &KernelBayes, delta: f64, values: &[f64], weights: &mut Vec<f64>) {
    // Rounding can lift s above 1.
    let unexplained = (1.0 - dot(values, weights)).max(0.0);
    let share = unexplained / (unexplained + delta / params.mu);
    weights.iter_mut().for_each(|w| *w *= 1.0 - share);
    weights.push(share);
}
