//! The Kalman filter, the extended and the unscented one.
//!
//! Kalman, *A new approach to linear filtering and prediction problems*, 1960; Wan, van der Merwe,
//! *The unscented Kalman filter for nonlinear estimation*, 2000. States follow y⁺ = f(y) + v,
//! observations x = h(y) + w, with v ~ N(0, Q) and w ~ N(0, R). The state of the first row of a
//! sequence is N(x0, P0) before its observation: no step comes before it.
//!
//! - `model`: the matrices and functions of a system.
//! - `fit`: given matrices and least squares → a model.
//! - `least_squares`: regressions with the covariance of their residuals.
//! - `step`: prediction and update, row by row.
//! - `root`: covariances by their roots.
//! - `unscented`: distributions through functions, by sigma points.
//! - `small`: products and decompositions of small matrices.

mod fit;
mod least_squares;
mod model;
mod root;
mod small;
mod step;
#[cfg(test)]
mod tests;
mod unscented;

pub(crate) use fit::fit;
pub use model::KalmanModel;
pub(crate) use model::of_factors;
pub use step::{Scratch, State};
