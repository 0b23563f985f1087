//! Reads the lake: paths and formats → tables → SQL → rows → counts.

pub mod counts;
pub mod double_gyre;
pub mod formats;
pub mod lake;
pub mod paths;
pub mod rows;
pub mod sql;
