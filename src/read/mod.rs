//! Reads the lake: paths and formats → tables → SQL → rows → counts or points.

pub(crate) mod arguments;
pub(crate) mod camera;
pub mod counts;
pub mod double_gyre;
pub mod formats;
pub(crate) mod generated;
pub(crate) mod hmm_world;
pub mod kernel_toy;
pub mod lake;
pub(crate) mod layers;
pub mod linear_gaussian;
pub mod observations;
pub mod paths;
pub mod points;
pub mod rows;
pub(crate) mod sql;
pub mod symbols;
pub(crate) mod wells;
