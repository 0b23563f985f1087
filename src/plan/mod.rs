//! Pipeline + file listings + schemas → a plan: all that a run will do, resolved and checked.
//!
//! A plan can be printed, compared by its hash, and run. [`job`] has the part that the plans of all
//! kinds of evidence share, and each kind has a file of its own. An [`assignment::Assignment`] is
//! the same for `gyre assign`. Nothing is computed here.

pub(crate) mod assignment;
pub mod checks;
pub mod counts;
pub mod evidence;
pub mod fits;
pub mod increments;
pub mod job;
pub mod kind;
pub(crate) mod left_out;
pub mod memory;
pub mod observations;
pub(crate) mod observations_given;
pub mod observations_memory;
pub(crate) mod parameters;
pub mod pipeline;
pub(crate) mod points;
pub(crate) mod points_memory;
pub(crate) mod relative;
pub(crate) mod rows;
pub(crate) mod serialized;
pub(crate) mod show;
pub mod symbols;
pub(crate) mod symbols_given;
pub(crate) mod symbols_memory;
