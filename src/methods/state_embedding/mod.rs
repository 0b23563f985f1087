//! State embeddings of Markov processes in continuous space (Sun, Duan, Gong and Wang, "Learning
//! low-dimensional state embeddings and metastable clusters from time series data", NeurIPS 2019).
//!
//! The stages of a fit, each one file:
//! - `params`: the keys of the method.
//! - `features`: points → random Fourier features.
//! - `pilot`: a sample of points → the bandwidth and the few features that span the others.
//! - `candidates`: the parameters and a sample → the features to sum, one set per bandwidth.
//! - `grams`: features of pairs of points → exact sums of their products. This is the only stage
//!   that reads all points.
//! - `whitening`: sums → orthonormal functions.
//! - `embedding`: orthonormal functions → singular functions of the transition kernel (Algorithm
//!   2).
//! - `box_gram`: the products of features in the volume of a box, for the Lebesgue norm.
//! - `model`: the result of a fit, which embeds new points.
//! - `vamp`: held-out scores, which choose the rank and the bandwidth.
//! - `clusters`: k-means of embedded points (Algorithm 3).
//! - `reshape`: kernel mean embeddings of low rank (Algorithm 1).

pub(crate) mod box_gram;
pub(crate) mod candidates;
pub mod clusters;
pub(crate) mod embedding;
pub mod features;
pub(crate) mod grams;
pub mod model;
pub(crate) mod params;
pub(crate) mod pilot;
pub(crate) mod reshape;
pub(crate) mod vamp;
pub(crate) mod whitening;

#[cfg(test)]
mod tests;
