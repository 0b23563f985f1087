//! Keeps the whole process within a memory bound.
//!
//! Every large allocation goes through [`Bounded`](allocator::Bounded). Allocations within the
//! bound use plain memory; the others are parts of a scratch file that is mapped into memory. When
//! the process comes near its bound, pages of that file are released, and they return one by one
//! when they are used again. Counts, shards, resamples, states and gathered rows can therefore
//! exceed memory. Results do not depend on the bound.
//!
//! This works on Linux only: other systems do not release pages of a mapped file on demand.

pub mod allocator;
pub(crate) mod machine;
pub(crate) mod ranges;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub(crate) mod watch;

use crate::error::{Error, Kind, Result, counted};
use crate::memory::machine::all;
use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes for the program itself: code, threads and small allocations.
const OWN: usize = 96 << 20;

/// Bytes that each thread reads, decodes and writes at a time.
const PER_THREAD: usize = 32 << 20;

/// Upper limit in bytes for the used pages of the scratch file, which get half of what is left.
const RESIDENT: usize = 128 << 20;

/// Bytes that each thread may touch before the next check: on a busy machine the watching thread is
/// scheduled late.
const TOUCHED_BETWEEN_CHECKS: usize = 28 << 20;

/// The smallest bound in bytes for this number of threads.
pub(crate) const fn least(threads: usize) -> usize {
    OWN + threads * PER_THREAD
}

/// Memory in bytes that is assumed if the system does not report it.
const UNKNOWN: u64 = 4 << 30;

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The memory bound of the process in bytes, if there is one.
pub(crate) fn limit() -> Option<usize> {
    Some(LIMIT.load(Ordering::Relaxed)).filter(|&bytes| bytes < usize::MAX)
}

/// The memory bound of the process in bytes, or else all memory that is available to it.
pub(crate) fn limit_or_all() -> usize {
    limit().unwrap_or_else(|| all().unwrap_or(UNKNOWN) as usize)
}

/// Keeps the process within `bytes` from now on. `folder` holds the scratch file.
///
/// # Errors
/// If `bytes` is too small for `threads` threads, or if the folder cannot hold the scratch file.
pub(crate) fn bound(bytes: usize, threads: usize, folder: &Path) -> Result<()> {
    let least = least(threads);
    if bytes < least {
        return Err(Error::spec(format!(
            "--memory {} is too small: the program and {} need {} before any data is read; increase it, or use fewer --threads",
            shown(bytes),
            counted(threads, "thread"),
            shown(least)
        )));
    }
    #[cfg(target_os = "linux")]
    {
        allocator::start(folder)?;
        let resident = ((bytes - least) / 2).min(RESIDENT);
        let touched = (threads * TOUCHED_BETWEEN_CHECKS).min(bytes / 4);
        watch::start(bytes, touched.max(resident / 2))?;
        allocator::set_max_plain(bytes - least - resident);
    }
    LIMIT.store(bytes, Ordering::Relaxed);
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
    Ok(())
}

/// Checks the memory in use on a thread that is about to touch much memory. Near the bound, the
/// call blocks until other pages have been released. It takes one or two microseconds, and nothing
/// without a bound. Results do not depend on it.
pub(crate) fn wait_for_room() {
    wait_for_room_of(0);
}

/// [`wait_for_room`] on a thread that is about to touch `bytes` bytes without another check.
pub(crate) fn wait_for_room_of(bytes: usize) {
    #[cfg(target_os = "linux")]
    watch::wait_for_room(bytes);
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

/// Counts the bytes that a loop touches, and checks the memory in use after every few megabytes.
#[derive(Debug, Default)]
pub(crate) struct Touched(Cell<usize>);

impl Touched {
    /// Bytes that are touched between two checks.
    const BETWEEN: usize = 4 << 20;

    /// Counts `bytes` bytes that are touched next.
    pub(crate) fn add(&self, bytes: usize) {
        let all = self.0.get().saturating_add(bytes);
        let is_due = all >= Touched::BETWEEN;
        if is_due {
            wait_for_room();
        }
        self.0.set(if is_due { 0 } else { all });
    }
}

/// Bytes per page.
#[cfg(target_os = "linux")]
fn page() -> usize {
    // SAFETY: the call only returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Bytes in use when the process could not be kept within its bound, and the notification of that.
static EXCEEDED: (AtomicUsize, Notify) = (AtomicUsize::new(0), Notify::const_new());

/// Bytes that the system refused, or 0.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Number of tasks that wait for memory to run out.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Ends the process without allocating, after the system refused this many bytes.
static END: OnceLock<fn(usize) -> !> = OnceLock::new();

/// How long a run may take to stop in order when memory is refused.
const TIME_TO_STOP: Duration = Duration::from_secs(2);

/// Sets the function that ends the process when the system refuses memory. It receives the number
/// of bytes and must not allocate. Without it the process aborts.
pub fn when_refused(end: fn(usize) -> !) {
    END.set(end).ok();
}

/// Handles a refused allocation. It does not return if [`when_refused`] was called.
fn refused(bytes: usize) {
    let Some(end) = END.get() else { return };
    REFUSED.store(bytes.max(1), Ordering::Relaxed);
    // Small allocations may still succeed: stop the run as a signal would, unless this thread is
    // the one that would stop it.
    if WAITING.load(Ordering::Relaxed) > 0 {
        EXCEEDED.1.notify_one();
        std::thread::sleep(TIME_TO_STOP);
    }
    end(bytes)
}

/// Completes when the process cannot be kept within its bound or the system refuses memory, which
/// may never happen.
pub(crate) async fn exceeded() -> Error {
    struct Waiting;
    impl Drop for Waiting {
        fn drop(&mut self) {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    WAITING.fetch_add(1, Ordering::Relaxed);
    let waiting = Waiting;
    EXCEEDED.1.notified().await;
    drop(waiting);
    let refused = REFUSED.load(Ordering::Relaxed);
    if refused > 0 {
        let what = format!(
            "the system refuses {} more memory; set --memory below the available memory, or provide more",
            shown(refused)
        );
        return Error::new(Kind::Resources, what);
    }
    let in_use = EXCEEDED.0.load(Ordering::Relaxed);
    let (in_use, enough) = (shown(in_use), shown(in_use + in_use / 4));
    let what = format!(
        "--memory is too small: {in_use} are in use that cannot be moved to disk; give at least {enough}"
    );
    Error::new(Kind::Resources, what)
}

/// Bytes of the scratch file, which never shrinks; `None` without a bound.
pub(crate) fn scratch_bytes() -> Option<u64> {
    allocator::scratch_len().map(|len| len as u64)
}

/// Returns freed memory to the system. glibc keeps it in scattered pieces, and later stages would
/// add to it: after counting 37 million non-zeros this lowers the peak of the whole run by 27 %.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer and may be called from any thread at any time; memory in use is
    // unaffected.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets a process without a bound use freed memory again. By default glibc returns the dictionary
/// of each row group to the system when it is freed, and the next one is faulted in page by page.
pub(crate) fn use_freed_again() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer and may be called at any time.
    unsafe {
        // Larger allocations are few, and would leave holes.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 2 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
    }
}

/// Formats bytes as `--memory` accepts them.
pub(crate) fn shown(bytes: usize) -> String {
    format!("{}MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_too_small_bound_is_refused_with_the_minimum() {
        let e = bound(100_000_000, 4, Path::new("unused")).expect_err("too little");
        assert_eq!(e.kind(), Kind::Spec);
        assert_eq!(
            e.to_string(),
            "--memory 100MB is too small: the program and 4 threads need 235MB before any data is read; increase it, or use fewer --threads"
        );
    }
}
