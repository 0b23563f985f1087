//! Judges fits: certificates, bootstrap, ranks, Markov tests, and changes between runs.

pub mod agreement;
pub mod bootstrap;
pub mod certificates;
pub mod changes;
pub mod crossval;
pub mod interval;
pub mod lineage;
pub mod markov;
pub mod ranks;
pub mod succession;
