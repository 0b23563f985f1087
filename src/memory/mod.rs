//! Keeps the whole process within a bound.
//!
//! Every large allocation is made by [`Bounded`]. Those that the bound leaves room for are plain memory, as without a bound; the others
//! are parts of a scratch file that is mapped into memory. When the process comes near its bound, the pages of the file leave it and come
//! back one by one as they are used. So whatever grows with the data, counts, shards, resamples, states and gathered rows alike, can be
//! larger than memory, no stage knows of it, and no result depends on it.
//!
//! On Linux alone: elsewhere pages of a mapped file do not leave a process on demand.

pub mod allocator;
#[cfg(target_os = "linux")]
pub mod code;
pub mod machine;
pub mod ranges;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub mod watch;

use crate::error::{Error, Kind, Result};
use crate::memory::machine::all;
use crate::words::counted;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What the program takes for itself: its code, its threads, and all that is small.
const OWN: usize = 96 << 20;

/// What each thread reads, decodes and writes at a time.
const OF_A_THREAD: usize = 32 << 20;

/// Pages of the scratch file that are in use want room too: half of what is left, and so much where there is more.
const RESIDENT: usize = 128 << 20;

/// What each thread may touch before somebody looks: on a machine that many want, the watching thread waits its turn like all others.
const TOUCHED_UNSEEN: usize = 28 << 20;

/// The least bound that a program with so many threads can work in, in bytes.
pub const fn least(threads: usize) -> usize {
    OWN + threads * OF_A_THREAD
}

/// The memory of a machine that does not tell it.
const UNKNOWN: u64 = 4 << 30;

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bound that the process keeps within, in bytes, if there is one.
pub fn limit() -> Option<usize> {
    Some(LIMIT.load(Ordering::Relaxed)).filter(|&bytes| bytes < usize::MAX)
}

/// The bound of this process in bytes, or else all memory that it could have.
pub fn limit_or_all() -> usize {
    limit().unwrap_or_else(|| all().unwrap_or(UNKNOWN) as usize)
}

/// Keeps the process within `bytes` from now on. `folder` holds the scratch file.
///
/// # Errors
/// If that is too little for `threads` threads, or if the folder cannot hold such a file.
pub fn bound(bytes: usize, threads: usize, folder: &Path) -> Result<()> {
    let least = least(threads);
    if bytes < least {
        return Err(Error::spec(format!(
            "--memory {} is too little: the program and {} take {} before there is any data; give more, or take fewer --threads",
            shown(bytes),
            counted(threads, "thread"),
            shown(least)
        )));
    }
    #[cfg(target_os = "linux")]
    {
        allocator::start(folder)?;
        let resident = ((bytes - least) / 2).min(RESIDENT);
        let unseen = (threads * TOUCHED_UNSEEN).min(bytes / 4);
        watch::start(bytes, unseen.max(resident / 2))?;
        allocator::set_most_plain(bytes - least - resident);
    }
    LIMIT.store(bytes, Ordering::Relaxed);
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
    Ok(())
}

/// Looks at the process now, on a thread that is about to touch much memory: near the bound it waits until other pages have left. That takes a
/// microsecond or two, and nothing where memory is not bounded. As with allocations, which look too, no result depends on it.
pub fn look() {
    #[cfg(target_os = "linux")]
    watch::look();
}

/// Bytes of a page.
#[cfg(target_os = "linux")]
fn page() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Bytes that the process had when it could not be kept within its bound, and the news of it.
static EXCEEDED: (AtomicUsize, Notify) = (AtomicUsize::new(0), Notify::const_new());

/// Bytes that the system has refused, if it has.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// How many wait to hear that memory has run out.
static HEARING: AtomicUsize = AtomicUsize::new(0);

/// Ends the process, without taking memory, where the system refuses so many bytes.
static END: OnceLock<fn(usize) -> !> = OnceLock::new();

/// How long a run has to stop in order when memory is refused.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Says what ends the process where the system refuses memory: it is told the bytes, and must take none. Without it the process aborts.
pub fn when_refused(end: fn(usize) -> !) {
    END.set(end).ok();
}

/// The system has refused memory to the calling thread, which does not come back where [`when_refused`] was said.
fn refused(bytes: usize) {
    let Some(end) = END.get() else { return };
    REFUSED.store(bytes.max(1), Ordering::Relaxed);
    // Small allocations may still find room: the run is stopped as by a signal, unless it is this thread that would do so.
    if HEARING.load(Ordering::Relaxed) > 0 {
        EXCEEDED.1.notify_one();
        std::thread::sleep(LAST_WORDS);
    }
    end(bytes)
}

/// Ends when the process cannot be kept within its bound, or the system refuses it memory, which may never be.
pub async fn exceeded() -> Error {
    struct Hearing;
    impl Drop for Hearing {
        fn drop(&mut self) {
            HEARING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    HEARING.fetch_add(1, Ordering::Relaxed);
    let hearing = Hearing;
    EXCEEDED.1.notified().await;
    drop(hearing);
    let refused = REFUSED.load(Ordering::Relaxed);
    if refused > 0 {
        let what = format!(
            "the system refuses {} of memory more; let --memory keep the run within what there is, or give it more",
            shown(refused)
        );
        return Error::new(Kind::Resources, what);
    }
    let in_use = EXCEEDED.0.load(Ordering::Relaxed);
    let (in_use, enough) = (shown(in_use), shown(in_use + in_use / 4));
    let what = format!(
        "--memory is too little: {in_use} are in use that cannot wait on disk; give at least {enough}"
    );
    Error::new(Kind::Resources, what)
}

/// Bytes of the scratch file, which never shrinks; nothing where memory is not bounded.
pub fn scratch_bytes() -> Option<u64> {
    allocator::scratch_len().map(|len| len as u64)
}

/// Gives the system what has been freed: glibc keeps it, scattered as it is, and later stages would add to it. After counting 37 M
/// non-zeros the peak of the whole run is 27 % lower.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer and may be called from any thread at any time; memory in use stays as it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes as `--memory` takes them.
pub fn shown(bytes: usize) -> String {
    format!("{}MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_holds_no_program_is_refused_with_the_least() {
        let e = bound(100_000_000, 4, Path::new("unused")).expect_err("too little");
        assert_eq!(e.kind(), Kind::Spec);
        assert_eq!(
            e.to_string(),
            "--memory 100MB is too little: the program and 4 threads take 235MB before there is any data; give more, or take fewer --threads"
        );
    }
}
