//! What a command needs of the terminal, and the runtime that it starts.

use crate::error::{Error, Kind, Result};
use crate::run::progress::Progress;
use crate::words::counted;
use futures::future::BoxFuture;
use std::path::Path;
use tokio::runtime::Runtime;

/// Who has typed the command: reads its results, watches it and may stop it.
pub trait Terminal: Progress {
    /// Writes a result that was asked for.
    fn print(&self, text: &str) -> Result<()>;
    /// Says how a command ended that has done what it was asked for: that this cannot be read makes nothing undone.
    fn say(&self, text: &str);
    /// Waits for the signal that stops a command, as long as it can be stopped.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    /// No more progress comes: there may be text next.
    fn finish(&self);
}

/// How a command that did not fail ended.
pub enum Done {
    Well,
    /// Some partitions failed and the others were written.
    Partly,
    /// There was nothing to do, which ends with this exit code.
    Skipped(u8),
}

impl Done {
    pub fn exit_code(&self) -> u8 {
        match self {
            Done::Well => 0,
            Done::Partly => 1,
            Done::Skipped(code) => *code,
        }
    }
}

/// Starts the threads of a process that computes, and keeps it within its bound.
pub(crate) fn start(threads: usize, bound: Option<usize>, folder: &Path) -> Result<Runtime> {
    if let Some(bytes) = bound {
        crate::memory::bound(bytes, threads, folder)?;
    }
    let no_threads = |e: &dyn std::fmt::Display| {
        Error::new(
            Kind::Resources,
            format!(
                "cannot start {}: {e}; take fewer --threads",
                counted(threads, "thread")
            ),
        )
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|e| no_threads(&e))?;
    let build = || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime
            .worker_threads(threads)
            .thread_stack_size(crate::read::lake::STACK_BYTES);
        runtime.enable_all().build()
    };
    // It panics where the system has no thread for it.
    let _caught = crate::read::lake::panics::Reading::new();
    match std::panic::catch_unwind(build) {
        Ok(built) => built.map_err(|e| no_threads(&e)),
        Err(_) => Err(no_threads(&"the system has no room for them")),
    }
}
