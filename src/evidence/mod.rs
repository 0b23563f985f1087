//! What methods are fitted to, and parallel passes over it.

pub mod counts;
pub mod kind;
pub mod lag;
pub mod pass;
pub mod points;
pub mod resample;
pub mod sequences;
pub mod state_space;
pub mod triples;
