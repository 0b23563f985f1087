//! Transition counts: sparse matrices, shards, groups and connected sets.

pub mod connected;
pub mod csr;
pub mod groups;
pub mod matrix;
pub mod products;
pub mod set_sums;
pub mod shards;
pub mod totals;
