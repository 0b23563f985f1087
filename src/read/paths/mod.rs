//! Paths of tables: globs, lakehouse folders, outputs, and the files that a path refers to.

pub mod current;
pub mod glob;
pub mod lakehouse;
pub(crate) mod overlap;
pub mod places;
