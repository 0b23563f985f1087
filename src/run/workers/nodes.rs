//! Work for other machines: tasks, and the machines that do them.
//!
//! Any process of this version of gyre can do a task, given its bytes and the stores that they
//! name. Tasks are idempotent and deterministic, so a lost task may be done again.

use crate::error::Result;
use futures::future::BoxFuture;

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What `perform` reads.
    pub bytes: Vec<u8>,
}

impl Task {
    /// The hash of the bytes.
    pub fn id(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }
}

/// Runs tasks.
pub trait Nodes: Send + Sync {
    /// Number of tasks that can run at once.
    fn slots(&self) -> usize;

    /// Runs tasks and returns their answers in the order of the tasks. An error of one task does
    /// not stop the others. `stage` names the tasks in logs. Calls `advance` with the number of
    /// tasks whenever some are done.
    ///
    /// # Errors
    /// If no machine does the tasks, or their answers cannot be read.
    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        advance: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>>;

    /// Removes the answers to some tasks, which are no longer needed. A task of the same bytes is
    /// done again.
    ///
    /// # Errors
    /// If the answers cannot be removed.
    fn forget<'a>(&'a self, _tasks: &'a [Task]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
