//! Looks at the process all the time, and lets pages of the scratch file leave it when it comes near its bound.

use super::{EXCEEDED, allocator, give_back};
use crate::error::{Error, Kind, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A look costs some microseconds: the less room there is, the sooner the next one.
const SOONEST: Duration = Duration::from_micros(250);
const LATEST: Duration = Duration::from_millis(5);

/// Memory is touched at some gigabytes a second by each thread: so many bytes in a microsecond by all of them.
const TOUCHED: usize = 16 << 10;

/// So much of the scratch file may be in use at any time.
const AT_ONCE: usize = 16 << 20;

/// How long more than the bound is found before it is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// What allocations are freed for good so often at most: that visits all that is free.
const TRIMMED: Duration = Duration::from_millis(100);

static WATCH: OnceLock<Watch> = OnceLock::new();

struct Watch {
    statm: File,
    bound: usize,
    /// More than that is near the bound.
    near: usize,
    /// What was left when pages had gone and that was not little enough.
    least: AtomicUsize,
}

/// `slack` may be touched until the next look.
pub fn start(bound: usize, slack: usize) -> Result<()> {
    let no_look =
        |e| Error::with_source(Kind::Resources, "the memory in use cannot be looked at", e);
    let statm = File::open("/proc/self/statm").map_err(no_look)?;
    let watch = Watch {
        statm,
        bound,
        near: bound - slack,
        least: AtomicUsize::new(0),
    };
    let watch = WATCH.get_or_init(|| watch);
    let cannot = |e: io::Error| Error::with_source(Kind::Resources, "cannot start a thread", e);
    let named = |name: &str| thread::Builder::new().name(name.into());
    // On a thread of its own, because nobody would look meanwhile.
    let trims = named("trim").spawn(|| {
        loop {
            thread::park();
            give_back();
            thread::sleep(TRIMMED);
        }
    });
    let trims = trims.map_err(cannot)?.thread().clone();
    let watching = named("memory").spawn(move || watch.go_on(&trims));
    watching.map_err(cannot)?;
    Ok(())
}

/// Looks now, on the thread that is about to touch more of the scratch file.
pub fn look() {
    if let Some(watch) = WATCH.get() {
        watch.look();
    }
}

impl Watch {
    /// Keeps the process within its bound. Bytes in use after that.
    fn look(&self) -> usize {
        let found = in_use(&self.statm);
        if found <= self.near {
            self.least.store(0, Ordering::Relaxed);
            return found;
        }
        // Where little is left for pages, those that have come back are used before they go again.
        let some = self.least.load(Ordering::Relaxed) + AT_ONCE;
        if found <= some.min(self.bound) {
            return found;
        }
        let enough = self.near.max(some) - AT_ONCE;
        allocator::release(|| in_use(&self.statm) < enough);
        let left = in_use(&self.statm);
        self.least.store(left, Ordering::Relaxed);
        left
    }

    fn go_on(&self, trims: &Thread) {
        let mut exceeded: Option<Instant> = None;
        loop {
            let in_use = self.look();
            if in_use > self.near {
                trims.unpark();
            }
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

/// Bytes of memory that the process has, pages of files among them.
fn in_use(statm: &File) -> usize {
    let mut text = [0; 64];
    let read = statm.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or(0) * page as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_seen() {
        let statm = File::open("/proc/self/statm").expect("a look");
        let before = in_use(&statm);
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = in_use(&statm);
        assert!(
            before > 1 << 20 && after > 60 << 20,
            "{before} {after} {}",
            touched.len()
        );
    }
}
