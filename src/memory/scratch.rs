//! Memory backed by a file: its pages can be released at any time and return when they are used.

use crate::memory::ranges::{PAGE, Ranges};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The file grows by at least this many bytes.
const STEP: usize = 64 << 20;

/// The file is released in this many parts.
const PARTS: usize = 8;

/// An unnamed file in a scratch folder, mapped into memory. The system removes it when the process
/// ends, however that happens.
pub struct Scratch {
    file: File,
    first: NonNull<u8>,
    /// The maximum size of the file in bytes: the free space of its disk at the start.
    most: usize,
    used: Mutex<Used>,
    /// A copy of `used.len` for readers that must not wait while the file grows.
    len: AtomicUsize,
    /// The part that is released next.
    next: AtomicUsize,
}

// SAFETY: the mapping lives as long as the process, and each part belongs to the allocation that
// took it.
unsafe impl Send for Scratch {}
unsafe impl Sync for Scratch {}

struct Used {
    free: Ranges,
    /// Bytes that the file has on disk.
    len: usize,
}

impl Scratch {
    /// Creates the file.
    ///
    /// # Errors
    /// If the folder is missing, not writable or in memory, or if its file system cannot reserve
    /// space.
    pub(crate) fn new(folder: &Path) -> io::Result<Scratch> {
        let file = tempfile::tempfile_in(folder)?;
        // SAFETY: the call fills the structure, which holds only numbers.
        let place = unsafe {
            let mut place: libc::statfs = std::mem::zeroed();
            match libc::fstatfs(file.as_raw_fd(), &mut place) {
                0 => place,
                _ => return Err(io::Error::last_os_error()),
            }
        };
        if [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&place.f_type) {
            return Err(io::Error::other("its file system is in memory"));
        }
        let most = (place.f_bavail as usize).saturating_mul(place.f_bsize as usize) / PAGE * PAGE;
        let most = most.max(PAGE);
        // SAFETY: a new mapping at an address that the system chooses. Nothing touches it beyond
        // the end of the file.
        let first = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_SHARED | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), most, access, kind, file.as_raw_fd(), 0)
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first =
            NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        let scratch = Scratch {
            file,
            first,
            most,
            used: Mutex::new(Used {
                free: Ranges::new(),
                len: 0,
            }),
            len: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        };
        scratch.grow(&mut scratch.used(), PAGE)?;
        Ok(scratch)
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space on disk, so that a write to the mapping never finds the disk full.
    fn grow(&self, used: &mut Used, len: usize) -> io::Result<()> {
        let add = |more: usize| {
            if more > self.most - used.len {
                return Err(io::ErrorKind::StorageFull.into());
            }
            // SAFETY: a call on an open file.
            match unsafe {
                libc::posix_fallocate(self.file.as_raw_fd(), used.len as i64, more as i64)
            } {
                0 => Ok(more),
                e => Err(io::Error::from_raw_os_error(e)),
            }
        };
        let more = add(len.max(STEP)).or_else(|_| add(len))?;
        used.free.give(used.len, more);
        used.len += more;
        self.len.store(used.len, Ordering::Relaxed);
        Ok(())
    }

    /// Takes uninitialised memory for `len` bytes, aligned to a page; `None` if the disk is full.
    pub(crate) fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let len = len.next_multiple_of(PAGE);
        let mut used = self.used();
        let at = match used.free.take(len) {
            Some(at) => at,
            None => {
                self.grow(&mut used, len).ok()?;
                used.free.take(len)?
            }
        };
        // SAFETY: the offset is within the mapping.
        Some(unsafe { self.first.add(at) })
    }

    /// Resizes `len` taken bytes to `new_len` in place. Returns whether that was possible.
    pub(crate) fn resize(&self, at: NonNull<u8>, len: usize, new_len: usize) -> bool {
        let (len, new_len) = (len.next_multiple_of(PAGE), new_len.next_multiple_of(PAGE));
        let start = self.place(at);
        let mut used = self.used();
        if new_len < len {
            used.free.give(start + new_len, len - new_len);
        }
        new_len <= len || used.free.take_at(start + len, new_len - len)
    }

    /// Returns `len` bytes that were taken.
    pub(crate) fn give(&self, at: NonNull<u8>, len: usize) {
        let start = self.place(at);
        self.used().free.give(start, len.next_multiple_of(PAGE));
    }

    /// Whether an address lies in the mapping.
    pub(crate) fn holds(&self, at: *const u8) -> bool {
        (at as usize).wrapping_sub(self.first.as_ptr() as usize) < self.most
    }

    fn place(&self, at: NonNull<u8>) -> usize {
        at.as_ptr() as usize - self.first.as_ptr() as usize
    }

    /// Bytes on disk.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a length on disk, not of a collection"
    )]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Releases pages from the process, part by part, until `enough` returns true or all parts are
    /// released. The system keeps released pages until it needs their memory, and used ones return
    /// at once. The next call starts where this one ended, so a part of the data stays resident
    /// across repeated passes. There are few parts, because other threads go on touching pages
    /// meanwhile.
    pub(crate) fn release(&self, mut enough: impl FnMut() -> bool) {
        let len = self.len();
        let part = (len / PARTS).next_multiple_of(PAGE).max(PAGE);
        for _ in 0..PARTS {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % PARTS * part;
            let part = part.min(len.saturating_sub(at));
            // SAFETY: the range is within the file, and released pages of a shared file mapping
            // return with their content.
            unsafe {
                libc::madvise(
                    self.first.add(at).as_ptr().cast(),
                    part,
                    libc::MADV_DONTNEED,
                )
            };
            if enough() {
                return;
            }
        }
    }
}

/// `ramfs` in statfs(2).
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_keep_their_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = Scratch::new(folder.path()).expect("scratch");
        let entries = std::fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(entries.count(), 0);
        let len = 3 * PAGE - 7;
        let [a, b] = [1u8, 2].map(|x| {
            let at = scratch.take(len).expect("room");
            // SAFETY: this many bytes were taken.
            unsafe { at.as_ptr().write_bytes(x, len) };
            at
        });
        scratch.release(|| false);
        // SAFETY: both are taken and written.
        let bytes = |at: NonNull<u8>| unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
        assert!(bytes(a).iter().all(|&x| x == 1));
        assert!(bytes(b).iter().all(|&x| x == 2));
        assert!(!scratch.resize(a, len, 4 * PAGE), "`b` follows");
        scratch.give(b, len);
        assert!(scratch.resize(a, len, 6 * PAGE));
        assert!(scratch.resize(a, 6 * PAGE, PAGE));
        assert_eq!(scratch.take(5 * PAGE), Some(unsafe { a.add(PAGE) }));
        assert!(scratch.holds(a.as_ptr()));
        assert!(!scratch.holds(folder.path().as_os_str().as_encoded_bytes().as_ptr()));
    }

    #[test]
    fn a_folder_in_memory_is_refused() {
        let e = Scratch::new(Path::new("/dev/shm")).err().expect("refused");
        let is_missing = e.kind() == io::ErrorKind::NotFound;
        assert!(is_missing || e.to_string().contains("in memory"), "{e}");
    }
}
