//! What methods are fitted to, and parallel passes over it.

pub mod counts;
pub(crate) mod kind;
pub mod lag;
pub mod pass;
pub mod points;
pub(crate) mod resample;
pub mod sequences;
pub mod state_space;
pub mod triples;
