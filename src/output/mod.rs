//! Fits → lake: builds the output tables, stages them, checks them and promotes them. Only this
//! module writes below the output.
//!
//! Code map: `place` is the output itself, `staging` writes the tables of models, `commit` turns a
//! version into the result, `folder` adds what a file system needs for that, `files` lists the
//! files of a version, `clean` removes old versions, `checkpoint` keeps finished work for the next
//! run, `made` records the folders of work, `parts` passes data between tasks, `in_flight` tracks
//! unfinished writes.

pub mod checkpoint;
pub mod clean;
pub mod commit;
pub mod earlier;
pub mod files;
pub mod folder;
pub(crate) mod in_flight;
pub(crate) mod layout;
pub mod ledger;
pub mod made;
pub mod marks;
pub(crate) mod number;
pub(crate) mod pages;
pub mod parquet;
pub mod parts;
pub mod place;
pub mod pointer;
pub mod result;
pub mod retention;
pub(crate) mod row_writer;
pub(crate) mod slices;
pub mod staging;
pub mod tables;
#[cfg(feature = "cluster")]
pub mod task_answers;

#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Answers;
#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Attempt;
