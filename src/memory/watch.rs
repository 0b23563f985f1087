//! Looks at the process all the time, and lets pages of the scratch file leave it when it comes near its bound.

use super::{EXCEEDED, allocator, give_back};
use crate::error::{Error, Kind, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often. Fresh memory is touched at some gigabytes a second: tens of megabytes in that time.
const EVERY: Duration = Duration::from_millis(5);

/// Looks in a row that find more than the bound before it is given up.
const PATIENCE: u32 = 20;

/// `resident` is what pages of the scratch file should have of the bound: half of it may be touched until the next look.
pub fn start(bytes: usize, resident: usize) -> Result<()> {
    let no_look =
        |e| Error::with_source(Kind::Resources, "the memory in use cannot be looked at", e);
    let statm = File::open("/proc/self/statm").map_err(no_look)?;
    let watching = std::thread::Builder::new().name("memory".into());
    let watching = watching.spawn(move || watch(&statm, bytes, resident));
    watching.map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
    Ok(())
}

fn watch(statm: &File, bytes: usize, resident: usize) {
    let (mut too_many, mut given_back) = (0, Instant::now());
    loop {
        std::thread::sleep(EVERY);
        let mut in_use = in_use(statm);
        if in_use > bytes - resident / 2 {
            allocator::release(|| self::in_use(statm) < bytes - resident / 4 * 3);
            in_use = self::in_use(statm);
            // That visits all that is free, and nobody looks meanwhile.
            if in_use > bytes - resident / 2 && given_back.elapsed() > 20 * EVERY {
                give_back();
                given_back = Instant::now();
                in_use = self::in_use(statm);
            }
        }
        too_many = if in_use > bytes { too_many + 1 } else { 0 };
        if too_many == PATIENCE {
            EXCEEDED.0.store(in_use, Ordering::Relaxed);
            EXCEEDED.1.notify_one();
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
        let touched = vec![1u8; 64 << 20];
        let after = in_use(&statm);
        assert!(
            before > 1 << 20 && after > 60 << 20,
            "{before} {after} {}",
            touched.len()
        );
    }
}
