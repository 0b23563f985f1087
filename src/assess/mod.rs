//! Judges fits: certificates, bootstrap, ranks, Markov tests, and changes between runs.

pub(crate) mod agreement;
pub mod bootstrap;
pub mod certificates;
pub mod changes;
pub mod crossval;
pub(crate) mod density_errors;
pub(crate) mod embedding_bootstrap;
pub(crate) mod embeddings;
pub mod filters;
pub(crate) mod fit_of_model;
pub mod hmm;
pub(crate) mod hmm_bound;
pub(crate) mod hmm_distances;
pub mod interval;
pub(crate) mod kernels;
pub mod markov;
pub mod match_sets;
pub mod ranks;
pub mod resampling;
pub mod set_tracking;
pub(crate) mod subspaces;
#[cfg(test)]
mod tests;
pub(crate) mod thin_sets;

use crate::assess::markov::OfSets;
use crate::evidence::pass::registry::Entry;

/// The kernels of the passes of this room, for machines that receive them as bytes.
pub(crate) fn kernels() -> Vec<Entry> {
    vec![Entry::of::<OfSets<'static>>()]
}
