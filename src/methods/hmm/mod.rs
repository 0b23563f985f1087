//! Spectral hidden Markov models from counted triples of symbols.
//!
//! Kulesza, Rao, Singh, *Low-rank spectral learning*, AISTATS 2014. In: triples of symbols
//! ([`Triples`](crate::evidence::symbols::triples::Triples)). Out: observable operators
//! ([`model::HmmModel`]), which filter and score sequences ([`filtering::Filter`]).
//!
//! - `params`: the keys of a fit.
//! - `given`: models that the input has.
//! - `moments`: triples → classes of symbols and the matrix of pairs.
//! - `project`: its decomposition, and the operators of all ranks.
//! - `recover`: operators → transition and emission probabilities.
//! - `baum_welch`: the Baum–Welch algorithm from this seed.
//! - `filter`: next-symbol probabilities, states and log-likelihoods of sequences.

pub mod baum_welch;
pub mod filtering;
pub mod given;
pub mod model;
pub mod moments;
pub mod params;
pub mod project;
pub(crate) mod recover;
#[cfg(test)]
mod tests;
