//! Kernel Bayes' rule (Song, Zhu, Ren, *Kernel Bayesian inference with posterior regularization*).
//!
//! Training rows (y_i, x_i) of states and observations represent the likelihood. With features q of
//! states, q(y)ᵀq(y′) ≈ k(y, y′), the state of a filter is the vector m = Σ α_i q(y_i) of its
//! posterior. The prior weights of the next row are β = Q P m (A.1), with Q of the rows q(y_i) and
//! P = A⁻¹ Q₊ᵀQ A⁻¹, A = QᵀQ + TλI, Q₊ of the features of the next states. Features are exact to
//! rounding up to `exact` rows.
//!
//! - `base`, `model`, `build`: a filter, and how it is made of training rows.
//! - `kernel`: kernels, distances and the median distance.
//! - `cholesky`: pivoted incomplete Cholesky decompositions and features.
//! - `linear`, `solve`: products and the update of weights by an observation.
//! - `objective`: the objectives whose minima the posteriors are.
//! - `rows`: filters that hold the weights of single rows.
//! - `nearest`: supervision by the state that is nearest to the prediction.
//! - `tensor`: filters by the rule `kbr` whose size does not depend on the number of rows.
//! - `preimage`: from weights to a state.
//! - `tuning`: bandwidths and λ by held-out rows.

mod base;
mod build;
mod cholesky;
mod kernel;
mod linear;
mod model;
mod nearest;
mod objective;
mod preimage;
mod rows;
mod solve;
mod tensor;
#[cfg(test)]
mod tests;
mod tuning;

use crate::error::{Error, Result};
use crate::methods::filter::fit::{FitInput, TunedFit};
use crate::methods::filter::kernel_bayes::build::{Training, model_of};
use crate::methods::filter::params::KernelBayes;

pub use crate::methods::filter::kernel_bayes::base::State;
pub(crate) use crate::methods::filter::kernel_bayes::model::of_factors;
pub use crate::methods::filter::kernel_bayes::model::{KernelModel, Scratch};

/// Fits the model.
///
/// # Errors
/// If there are no training rows, or all states or all observations are equal and a bandwidth is
/// wanted.
pub(crate) fn fit(
    params: &KernelBayes,
    input: &FitInput<'_>,
    seed: u64,
) -> Result<TunedFit<KernelModel>> {
    let training = Training::new(input.rows, input.is_static);
    if training.n == 0 {
        return Err(Error::input("there are no training rows"));
    }
    let chosen = tuning::choose_constants(params, input, &training, seed)?;
    let mut fit = model_of(params, input, &training, chosen.values, seed)?;
    if let Some(own) = input.dynamics {
        fit.model = fit.model.predicting(own.f.clone())?;
    }
    fit.tuning = chosen.tuning;
    fit.warnings.extend(chosen.warnings);
    Ok(fit)
}
