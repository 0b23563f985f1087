//! Watches the memory of the process and releases pages of the scratch file near its bound. A
//! thread that is about to touch much memory checks first and waits while pages are released; a
//! watching thread checks regularly on behalf of all others.

use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::memory::{EXCEEDED, allocator, give_back};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{io, thread};

/// A check takes some microseconds. The less room is left, the sooner the next one.
const SOONEST: Duration = Duration::from_micros(250);
const LATEST: Duration = Duration::from_millis(5);

/// Bytes that all threads together may touch per microsecond: some gigabytes per second and thread.
const TOUCHED: usize = 16 << 10;

/// Bytes that are released at a time.
const RELEASED_AT_ONCE: usize = 16 << 20;

/// How long the bound may be exceeded before the run is stopped.
const PATIENCE: Duration = Duration::from_millis(100);

/// Minimum interval between trims, because a trim visits all free memory.
const TRIM_PAUSE: Duration = Duration::from_millis(100);

static WATCH: OnceLock<Watch> = OnceLock::new();

struct Watch {
    statm: File,
    bound: usize,
    /// Above this many bytes the process is near its bound.
    near: usize,
    /// Held while pages are released. Other threads wait for it, so that memory is not touched
    /// faster than it is released. The allocator checks too, so a holder must not allocate.
    leaving: Mutex<()>,
    /// The thread that trims allocations; no waiting thread depends on its end.
    trims: Thread,
}

/// Bytes of memory that the process uses.
#[derive(Debug, Clone, Copy)]
struct InUse {
    all: usize,
    /// Pages that do not belong to files and so cannot be released.
    plain: usize,
}

/// Starts watching. `slack` bytes may be touched until the next check.
pub(crate) fn start(bound: usize, slack: usize) -> Result<()> {
    let unreadable = |e| Error::with_source(Kind::Resources, "the memory in use cannot be read", e);
    let statm = File::open("/proc/self/statm").map_err(unreadable)?;
    let cannot = |e: io::Error| Error::with_source(Kind::Resources, "cannot start a thread", e);
    let named = |name: &str| thread::Builder::new().name(name.into());
    let trims = named("trim").spawn(move || {
        loop {
            thread::park();
            give_back();
            thread::sleep(TRIM_PAUSE);
        }
    });
    let watch = Watch {
        statm,
        bound,
        near: bound - slack,
        leaving: Mutex::new(()),
        trims: trims.map_err(cannot)?.thread().clone(),
    };
    let watch = WATCH.get_or_init(|| watch);
    let watching = named("memory").spawn(|| watch.watch());
    watching.map_err(cannot)?;
    Ok(())
}

/// Checks the memory in use on the calling thread, which is about to touch `wanted` bytes.
pub(crate) fn wait_for_room(wanted: usize) {
    if let Some(watch) = WATCH.get() {
        watch.wait_for_room(wanted);
    }
}

impl Watch {
    /// Keeps the process, with `wanted` more bytes, within its bound as far as pages can be
    /// released, and returns what is in use afterwards.
    fn wait_for_room(&self, wanted: usize) -> InUse {
        let limit = |found| self.limit(found).min(self.bound.saturating_sub(wanted));
        let found = in_use(&self.statm);
        if found.all <= limit(found) {
            return found;
        }
        let _leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let found = in_use(&self.statm);
        let limit = limit(found);
        if found.all > limit {
            self.trims.unpark();
            allocator::release(|| in_use(&self.statm).all < limit.saturating_sub(RELEASED_AT_ONCE));
        }
        in_use(&self.statm)
    }

    /// The memory that may be in use before pages are released. If plain memory leaves little room,
    /// pages that have returned are used before they go again.
    fn limit(&self, found: InUse) -> usize {
        (found.plain + 2 * RELEASED_AT_ONCE).clamp(self.near, self.bound)
    }

    fn watch(&self) {
        let mut exceeded: Option<Instant> = None;
        loop {
            let in_use = self.wait_for_room(0).all;
            match exceeded {
                Some(since) if in_use > self.bound && since.elapsed() > PATIENCE => {
                    EXCEEDED.0.store(in_use, Ordering::Relaxed);
                    EXCEEDED.1.notify_one();
                }
                _ if in_use <= self.bound => exceeded = None,
                _ => exceeded = exceeded.or_else(|| Some(Instant::now())),
            }
            let room = self.near.saturating_sub(in_use) / TOUCHED;
            thread::sleep(Duration::from_micros(room as u64).clamp(SOONEST, LATEST));
        }
    }
}

fn in_use(statm: &File) -> InUse {
    let mut text = [0; 96];
    let read = statm.read_at(&mut text, 0).unwrap_or(0);
    let mut pages = std::str::from_utf8(&text[..read])
        .unwrap_or_default()
        .split(' ')
        .map(|pages| pages.parse().unwrap_or(0));
    let (all, of_files) = (pages.nth(1).unwrap_or(0), pages.next().unwrap_or(0));
    InUse {
        all: all * memory::page(),
        plain: all.saturating_sub(of_files) * memory::page(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_measured() {
        let statm = File::open("/proc/self/statm").expect("the memory of the process");
        let before = in_use(&statm);
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = in_use(&statm);
        let least = before.plain + (1 << 20);
        assert!(before.plain > 0 && before.all > least, "{before:?}");
        assert!(after.plain > 60 << 20, "{after:?} {}", touched.len());
    }
}
