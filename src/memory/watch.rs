//! Looks at the process, and lets pages of the scratch file and of the program leave it when it comes near its bound. Whoever is about to touch
//! much looks, and waits while pages leave; a thread of its own looks all the time for those who do not.

use crate::error::{Error, Kind, Result};
use crate::memory::allocator;
use crate::memory::code::Code;
use crate::memory::{EXCEEDED, give_back};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{io, thread};

/// A look costs some microseconds: the less room there is, the sooner the next one.
const SOONEST: Duration = Duration::from_micros(250);
const LATEST: Duration = Duration::from_millis(5);

/// Memory is touched at some gigabytes a second by each thread: so many bytes in a microsecond by all of them.
const TOUCHED: usize = 16 << 10;

/// So much leaves at once.
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
    /// Held while pages leave: those who look meanwhile wait, so that nobody touches memory faster than it goes. Looks are taken in the
    /// allocator too, so nothing is allocated by who holds it.
    leaving: Mutex<()>,
    /// Lets code leave and trims allocations: on a thread of its own, because nobody who waits for room needs that to end.
    trims: Thread,
}

/// Bytes of memory that the process has.
#[derive(Debug, Clone, Copy)]
struct InUse {
    all: usize,
    /// Those that are no pages of files, and so cannot leave.
    plain: usize,
}

/// `slack` may be touched until the next look.
pub fn start(bound: usize, slack: usize) -> Result<()> {
    let no_look =
        |e| Error::with_source(Kind::Resources, "the memory in use cannot be looked at", e);
    let statm = File::open("/proc/self/statm").map_err(no_look)?;
    let cannot = |e: io::Error| Error::with_source(Kind::Resources, "cannot start a thread", e);
    let named = |name: &str| thread::Builder::new().name(name.into());
    let code = Code::of_program();
    let trims = named("trim").spawn(move || {
        loop {
            thread::park();
            code.release();
            give_back();
            thread::sleep(TRIMMED);
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
    let watching = named("memory").spawn(|| watch.go_on());
    watching.map_err(cannot)?;
    Ok(())
}

/// Looks now, on the thread that is about to touch more.
pub fn look() {
    if let Some(watch) = WATCH.get() {
        watch.look();
    }
}

impl Watch {
    /// Keeps the process within its bound. What is in use after that.
    fn look(&self) -> InUse {
        let found = in_use(&self.statm);
        if found.all <= self.most(found) {
            return found;
        }
        let _leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let found = in_use(&self.statm);
        let most = self.most(found);
        if found.all > most {
            self.trims.unpark();
            allocator::release(|| in_use(&self.statm).all < most - AT_ONCE);
        }
        in_use(&self.statm)
    }

    /// What may be in use before pages leave: where plain memory leaves little for them, those that have come back are used before they go again.
    fn most(&self, found: InUse) -> usize {
        (found.plain + 2 * AT_ONCE).clamp(self.near, self.bound)
    }

    fn go_on(&self) {
        let mut exceeded: Option<Instant> = None;
        loop {
            let in_use = self.look().all;
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
    let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
    let mut pages = text.split(' ').map(|pages| pages.parse().unwrap_or(0));
    let (all, of_files) = (pages.nth(1).unwrap_or(0), pages.next().unwrap_or(0));
    InUse {
        all: all * crate::memory::page(),
        plain: all.saturating_sub(of_files) * crate::memory::page(),
    }
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
            before.plain > 0 && before.all > before.plain + (1 << 20),
            "{before:?}"
        );
        assert!(after.plain > 60 << 20, "{after:?} {}", touched.len());
    }
}
