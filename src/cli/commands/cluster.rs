//! The commands `gyre scheduler`, `gyre executor` and `gyre cluster up`, which run until they are
//! stopped.

use crate::cli::args::{Executor, Scheduler, Up};
use crate::cli::terminal::{Done, Terminal, built, leave, start};
use crate::cluster::ballista::up;
use crate::cluster::ballista::{executor, scheduler};
use crate::error::Result;
use crate::memory;
use crate::read::lake::Resources;
use std::io::Read;
use std::num::NonZeroUsize;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;

/// Runs `gyre scheduler`. Prints the address that it listens on.
///
/// # Errors
/// As [`scheduler::serve`].
pub(super) fn scheduler(args: &Scheduler, terminal: &dyn Terminal) -> Result<Done> {
    let ready = |address: &_| terminal.print(&format!("{address}"));
    let stopped = stopped(terminal, args.with_parent);
    on_runtime(scheduler::serve(&args.listen, ready, stopped))
}

/// Runs `gyre executor`. Prints its name.
///
/// # Errors
/// As [`executor::run`].
pub(super) fn executor(args: &Executor, terminal: &dyn Terminal) -> Result<Done> {
    let vcores = args.vcores.map_or_else(cores, NonZeroUsize::get);
    let folder = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let bound = args.memory.map(|memory| memory.0 as usize);
    let runtime = start(vcores, bound, &folder)?;
    let resources = Resources {
        threads: vcores,
        // The program takes the rest of the bound, and concurrent tasks share this part.
        memory_bytes: bound.map(|bytes| (bytes - memory::least(vcores)) / vcores),
    };
    let ready = |name: &str| terminal.print(&format!("{name} asks {} for tasks", args.scheduler));
    let stopped = stopped(terminal, args.with_parent);
    let ended = runtime.block_on(executor::run(
        &args.scheduler,
        vcores,
        resources,
        &folder,
        ready,
        stopped,
    ));
    leave(runtime);
    ended.map(|()| Done::Well)
}

/// Runs `gyre cluster up`. Prints the address of the scheduler when all executors are ready.
///
/// # Errors
/// As [`up::up`].
pub(super) fn up(args: &Up, terminal: &dyn Terminal) -> Result<Done> {
    let executors = args.executors.get();
    let plan = up::ClusterPlan {
        port: args.port,
        executors,
        vcores: args
            .vcores
            .map_or((cores() / executors).max(1), NonZeroUsize::get),
        memory_bytes: args.memory.map(|memory| memory.0),
        logging: match LevelFilter::current() {
            LevelFilter::OFF | LevelFilter::ERROR => Some("--quiet"),
            LevelFilter::WARN => None,
            LevelFilter::INFO => Some("-v"),
            _ => Some("-vv"),
        },
    };
    let ready = |address: &_| terminal.print(&format!("{address}"));
    on_runtime(up::up(&plan, ready, terminal.stopped()))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn on_runtime(running: impl Future<Output = Result<()>>) -> Result<Done> {
    let runtime = built(&mut Builder::new_multi_thread())?;
    let ended = runtime.block_on(running);
    leave(runtime);
    ended.map(|()| Done::Well)
}

/// Waits for the signal that stops a process, or for the end of its parent.
async fn stopped(terminal: &dyn Terminal, with_parent: bool) {
    let (gone, orphaned) = oneshot::channel::<()>();
    if with_parent {
        // The parent never writes here. The system closes the pipe when the parent ends, even if it
        // is killed.
        std::thread::spawn(move || {
            let mut nothing = [0; 64];
            let mut input = std::io::stdin();
            while matches!(input.read(&mut nothing), Ok(1..)) {}
            drop(gone);
        });
        tokio::select! {
            () = terminal.stopped() => (),
            _ = orphaned => (),
        }
    } else {
        terminal.stopped().await;
    }
}
