//! Work for other machines: tasks, and who runs them.
//!
//! A task is what any process of this version of gyre can do alone, given its bytes and the stores that they name. It may be done twice, or
//! by two at once, and comes to the same bytes each time: so whoever runs tasks may ask again for what got lost.

use crate::error::Result;
use futures::future::BoxFuture;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub bytes: Vec<u8>,
}

impl Task {
    /// What the task is called: the hash of its bytes.
    pub fn id(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }
}

/// Runs tasks.
pub trait Nodes: Send + Sync {
    /// How many tasks can run at once.
    fn slots(&self) -> usize;

    /// What the tasks come to, in their order; an error of a task is its own and does not stop the others. `stage` is a word for logs;
    /// `heard` hears whenever tasks are done, and how many.
    ///
    /// # Errors
    /// If the tasks cannot be run: nobody does them, or their answers cannot be read.
    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        heard: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>>;

    /// Hears that the answers to some tasks are used up: they may go, and a task of the same bytes is done again.
    ///
    /// # Errors
    /// If they cannot be removed.
    fn forget<'a>(&'a self, _tasks: &'a [Task]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
