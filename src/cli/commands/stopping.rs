//! Work of a command that a signal can stop, and how it ends.

use crate::cli::terminal::{Done, Terminal};
use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::output::place::Output;
use crate::read::lake::{STACK_BYTES, spill};
use crate::run::planned::Finished;
use futures::future::{AbortHandle, Abortable};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Does work that writes to an output, until it ends or a signal stops it, after which the output
/// is abandoned.
///
/// The work is done on a thread of its own, because it computes for long between two waits. What a
/// stopped thread still computes ends with the process.
pub(super) async fn until_stopped<T: Send + 'static, F: Future<Output = Result<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
    terminal: &dyn Terminal,
    output: &Output,
) -> Result<T> {
    let (handle, registration) = AbortHandle::new_pair();
    let (sender, mut ended) = oneshot::channel();
    let runtime = Handle::current();
    let thread = std::thread::Builder::new()
        .name("run".into())
        .stack_size(STACK_BYTES);
    thread
        .spawn(move || {
            let done = runtime.block_on(Abortable::new(work(), registration));
            // Nothing waits for work that was stopped.
            sender.send(done).ok();
        })
        .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
    let ending = async {
        tokio::select! {
            biased;
            () = terminal.stopped() => {
                let what = "stopped; the output is as it was before";
                Err(Error::new(Kind::Cancelled, what))
            }
            e = memory::exceeded() => Err(e),
            done = &mut ended => Ok(done),
        }
    };
    let done = match ending.await {
        Ok(done) => done,
        // The result is being promoted.
        Err(_) if !terminal.stop() => ended.await,
        Err(e) => {
            handle.abort();
            terminal.finish();
            output.stop().await;
            spill::remove_all();
            return Err(e);
        }
    };
    terminal.finish();
    if let Ok(Ok(outcome)) = done {
        return outcome;
    }
    // Only a panic ends the thread without an outcome.
    output.abandon().await;
    Err(Error::bug("the run panicked"))
}

/// Waits for a future that writes nothing, or for a stop signal.
pub(super) async fn stoppable<T>(
    reading: impl Future<Output = Result<T>>,
    terminal: &dyn Terminal,
) -> Result<T> {
    tokio::select! {
        // Polled before the first step of the run, which may be a long one.
        biased;
        () = terminal.stopped() => Err(Error::new(Kind::Cancelled, "stopped")),
        e = memory::exceeded() => Err(e),
        outcome = reading => outcome,
    }
}

/// Prints the summary of a run or an assignment that wrote a result.
pub(super) fn finish(finished: &Finished, terminal: &dyn Terminal) -> Done {
    terminal.say(&finished.summary);
    if finished.has_failures {
        Done::Partly
    } else {
        Done::Well
    }
}
