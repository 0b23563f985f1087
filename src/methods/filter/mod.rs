//! Filters: training rows with known states and observations → a model that estimates the states
//! of rows of which only the observations are known.
//!
//! - `params`: the keys of the methods.
//! - `fit`: what filters are fitted to, what a fit says, and estimates.
//! - `model`: a fitted filter, its numbers, and how it filters rows.
//! - `kernel_bayes`: kernel Bayes' rule, thresholded and with posterior regularisation (Song, Zhu,
//!   Ren, *Kernel Bayesian inference with posterior regularization*).
//! - `kalman`: the Kalman filter, the extended and the unscented one.
//! - `expression`: functions of the state that a pipeline file writes as SQL.

pub mod expression;
pub mod fit;
pub mod kalman;
pub mod kernel_bayes;
pub mod model;
pub mod params;
