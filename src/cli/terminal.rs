//! What a command needs of the terminal, and the runtime that it starts.

use crate::error::{Error, Kind, Result, counted};
use crate::memory;
use crate::memory::machine;
use crate::read::lake;
use crate::read::lake::panics::Reading;
use crate::run::progress::Progress;
use futures::future::BoxFuture;
use std::path::Path;
use tokio::runtime::{Builder, Runtime};

/// The terminal of a command: prints its results, shows its progress and receives stop signals.
pub trait Terminal: Progress {
    /// Prints a requested result.
    ///
    /// # Errors
    /// If stdout cannot be written.
    fn print(&self, text: &str) -> Result<()>;
    /// Prints rows for another program. They are exact, unless stdout is a terminal.
    ///
    /// # Errors
    /// If stdout cannot be written.
    fn print_rows(&self, rows: &str) -> Result<()>;
    /// Prints how a successful command ended. A failure to print is only logged, because the work
    /// is done.
    fn say(&self, text: &str);
    /// Completes when a signal stops the command, as long as it can be stopped.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    /// Stops the command: its result will not be promoted. False if that has begun.
    fn stop(&self) -> bool;
    /// Ends the display of progress, because text may follow.
    fn finish(&self);
}

/// How a command that did not fail ended.
pub enum Done {
    /// All work was done.
    Well,
    /// Some partitions failed and the others were written.
    Partly,
    /// There was nothing to do; the program ends with this exit code.
    Skipped(u8),
}

impl Done {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Done::Well => 0,
            Done::Partly => 1,
            Done::Skipped(code) => *code,
        }
    }
}

/// Ends a command without waiting for its threads, which end with the process.
///
/// The runtime is not shut down: its threads would end while glibc detaches them, and
/// `pthread_detach` reads a thread that has ended after it may have been unmapped.
pub(crate) fn leave(runtime: Runtime) {
    std::mem::forget(runtime);
}

/// A runtime without threads of its own, for a command that mostly waits.
///
/// # Errors
/// If the system has no room for it.
pub(crate) fn runtime_without_threads() -> Result<Runtime> {
    built(&mut Builder::new_current_thread())
}

/// A runtime of one thread, for a command that may block.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn runtime_of_one_thread() -> Result<Runtime> {
    built(Builder::new_multi_thread().worker_threads(1))
}

pub(crate) fn built(builder: &mut Builder) -> Result<Runtime> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))
}

/// Bytes of stack for every thread that computes.
const COMPUTING_STACK_BYTES: usize = 2 << 20;

/// Starts the threads of a computing process and sets its memory bound.
pub(crate) fn start(threads: usize, bound: Option<usize>, folder: &Path) -> Result<Runtime> {
    match bound {
        Some(bytes) => memory::bound(bytes, threads, folder)?,
        None => memory::use_freed_again(),
    }
    let no_threads = |e: &dyn std::fmt::Display| {
        let threads = counted(threads, "thread");
        let what = format!("cannot start {threads}: {e}; use fewer --threads");
        Error::new(Kind::Resources, what)
    };
    // A thread that starts and finds no room for the stack of its signals aborts the process.
    let stacks = threads.saturating_mul(COMPUTING_STACK_BYTES + lake::STACK_BYTES);
    if !machine::has_address_space(stacks) {
        let why = "the address space has no room for their stacks";
        return Err(no_threads(&why));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(COMPUTING_STACK_BYTES)
        .build_global()
        .map_err(|e| no_threads(&e))?;
    let build = || {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(threads).enable_all();
        runtime.thread_stack_size(lake::STACK_BYTES).build()
    };
    // tokio panics if the system cannot start its threads.
    let _caught = Reading::new();
    match std::panic::catch_unwind(build) {
        Ok(built) => built.map_err(|e| no_threads(&e)),
        Err(_) => Err(no_threads(&"the system has no room for them")),
    }
}
