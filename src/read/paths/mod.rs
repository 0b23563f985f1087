//! Paths of tables: globs, lakehouse folders, and the files that a path means.

pub mod current;
pub mod glob;
pub mod lakehouse;
pub mod overlap;
pub mod places;
