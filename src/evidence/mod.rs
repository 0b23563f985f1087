//! What methods are fitted to, and parallel passes over it.

pub mod counts;
pub(crate) mod kind;
pub mod lag;
pub mod observations;
pub mod pass;
pub mod points;
pub(crate) mod resample;
pub mod symbols;
