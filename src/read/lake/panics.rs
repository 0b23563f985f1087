//! Turns reader panics on damaged bytes into `None`, and silences the panic hook for them.

use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of reads in progress.
static READING: AtomicUsize = AtomicUsize::new(0);

/// Whether a panic on any thread may come from a reader. It is then caught, and an error names the
/// damaged file.
pub fn panics_are_caught() -> bool {
    READING.load(Ordering::Relaxed) > 0
}

/// Marks a read in progress until it is dropped, including the engine's own tasks.
pub(crate) struct Reading(());

impl Reading {
    /// Starts a read.
    pub(crate) fn new() -> Reading {
        READING.fetch_add(1, Ordering::Relaxed);
        Reading(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of `read`, or `None` if it panics.
pub(crate) async fn catch_panic<T>(read: impl Future<Output = T>) -> Option<T> {
    let _reading = Reading::new();
    AssertUnwindSafe(read).catch_unwind().await.ok()
}
