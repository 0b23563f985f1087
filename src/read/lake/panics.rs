//! Readers panic on some damaged bytes. Here that becomes a value, and who prints panics is told that this one is none of a person's business.

use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is being read.
static READING: AtomicUsize = AtomicUsize::new(0);

/// Whether a panic on any thread now may be that of a reader: it is caught, and an error says what file is damaged.
pub fn panics_are_caught() -> bool {
    READING.load(Ordering::Relaxed) > 0
}

/// Says for as long as it lives that something is being read, also by tasks that the engine starts.
pub(crate) struct Reading(());

impl Reading {
    pub fn new() -> Reading {
        READING.fetch_add(1, Ordering::Relaxed);
        Reading(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a reader gives; none where it panics.
pub(crate) async fn caught<T>(read: impl Future<Output = T>) -> Option<T> {
    let _reading = Reading::new();
    AssertUnwindSafe(read).catch_unwind().await.ok()
}
