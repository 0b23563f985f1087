//! gyre turns the trajectories and transition counts of a data lake into low-rank Markov models.

pub mod cli;
pub mod count;
pub mod double_gyre;
pub mod error;
pub mod manifest;
pub mod math;
pub mod plan;
pub mod read;
pub mod reduce;
pub mod run;
pub mod runner;
pub mod shard;
pub mod spec;
pub mod summary;
pub mod write;
