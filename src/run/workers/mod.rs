//! Work on other machines: tasks, the machines that do them, and rounds of tasks.
//!
//! `nodes` are the machines, `work` packs a task, `task` does it, `requests` makes rounds of tasks,
//! `slices` cuts the input for them, and `merge` brings sorted rows of several tasks together. What
//! the tasks of a kind of evidence do is in its folder.

pub(crate) mod cache;
pub(crate) mod executor;
pub(crate) mod merge;
pub mod nodes;
pub mod reading;
pub mod requests;
pub mod slices;
pub mod task;
pub(crate) mod work;

use crate::run::workers::nodes::Nodes;
use std::sync::Arc;

/// The largest number of non-zeros of a model that one executor fits alone: 7 GB at 25 bytes per
/// non-zero.
pub const SPLIT: u64 = 1 << 28;

/// Where the work of a run is done.
#[derive(Clone)]
pub enum Workers {
    /// In this process.
    Local,
    /// On other machines.
    Remote {
        /// The machines.
        nodes: Arc<dyn Nodes>,
        /// The passes of a model with more non-zeros are spread over all machines; [`SPLIT`] by
        /// default.
        split: u64,
    },
}
