//! Memory that is a file: its pages can leave the process at any time and come back when they are read.

use crate::memory::ranges::{PAGE, Ranges};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The file grows by so much at once.
const STEP: usize = 64 << 20;

/// The file leaves in so many parts.
const PARTS: usize = 8;

/// A file without a name in a folder for scratch, mapped into memory. The system removes it with the process, however that ends.
pub struct Scratch {
    file: File,
    first: NonNull<u8>,
    /// Bytes that the file could have: as many as were free on its disk.
    most: usize,
    used: Mutex<Used>,
    /// What `used.len` is, for those who must not wait while the file grows.
    len: AtomicUsize,
    /// The part that leaves next.
    next: AtomicUsize,
}

// SAFETY: the mapping lives as long as the process, and each part of it belongs to who has taken it.
unsafe impl Send for Scratch {}
unsafe impl Sync for Scratch {}

struct Used {
    free: Ranges,
    /// Bytes that the file has on disk.
    len: usize,
}

impl Scratch {
    /// Fails where the folder is no place for it: not there, not writable, in memory itself, or on a file system that cannot set room apart.
    pub fn new(folder: &Path) -> io::Result<Scratch> {
        let file = tempfile::tempfile_in(folder)?;
        // SAFETY: the call fills the structure, which holds nothing but numbers.
        let place = unsafe {
            let mut place: libc::statfs = std::mem::zeroed();
            match libc::fstatfs(file.as_raw_fd(), &mut place) {
                0 => place,
                _ => return Err(io::Error::last_os_error()),
            }
        };
        if [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&place.f_type) {
            return Err(io::Error::other("it is in memory itself"));
        }
        let most = (place.f_bavail as usize).saturating_mul(place.f_bsize as usize) / PAGE * PAGE;
        let most = most.max(PAGE);
        // SAFETY: a new mapping at a place that the system chooses. What lies beyond the end of the file is touched by nobody.
        let first = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_SHARED | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), most, access, kind, file.as_raw_fd(), 0)
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mapped nowhere"))?;
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

    /// Sets room apart on disk, so that no write to the mapping ever finds the disk full.
    fn grow(&self, used: &mut Used, len: usize) -> io::Result<()> {
        let add = |more: usize| {
            if more > self.most - used.len {
                return Err(io::ErrorKind::StorageFull.into());
            }
            // SAFETY: a call on a file that is open.
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

    /// Memory for `len` bytes at a page of its own, with anything in it; nothing where the disk is full.
    pub fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let len = len.next_multiple_of(PAGE);
        let mut used = self.used();
        let at = match used.free.take(len) {
            Some(at) => at,
            None => {
                self.grow(&mut used, len).ok()?;
                used.free.take(len)?
            }
        };
        // SAFETY: it is within the mapping.
        Some(unsafe { self.first.add(at) })
    }

    /// Whether `len` bytes that were taken could be made `new_len` where they are.
    pub fn resize(&self, at: NonNull<u8>, len: usize, new_len: usize) -> bool {
        let (len, new_len) = (len.next_multiple_of(PAGE), new_len.next_multiple_of(PAGE));
        let start = self.place(at);
        let mut used = self.used();
        if new_len < len {
            used.free.give(start + new_len, len - new_len);
        }
        new_len <= len || used.free.take_at(start + len, new_len - len)
    }

    pub fn give(&self, at: NonNull<u8>, len: usize) {
        let start = self.place(at);
        self.used().free.give(start, len.next_multiple_of(PAGE));
    }

    pub fn holds(&self, at: *const u8) -> bool {
        (at as usize).wrapping_sub(self.first.as_ptr() as usize) < self.most
    }

    fn place(&self, at: NonNull<u8>) -> usize {
        at.as_ptr() as usize - self.first.as_ptr() as usize
    }

    /// Bytes on disk.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Lets pages leave the process, part after part, until it is `enough` or none is left. They stay with the system, which writes them to
    /// disk when it wants their memory; those that are used come back at once. The next time begins where this one ended, so that of data
    /// that passes go through again and again a part stays. Parts are few, because others go on touching pages meanwhile.
    pub fn release(&self, mut enough: impl FnMut() -> bool) {
        let len = self.len();
        let part = (len / PARTS).next_multiple_of(PAGE).max(PAGE);
        for _ in 0..PARTS {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % PARTS * part;
            let part = part.min(len.saturating_sub(at));
            // SAFETY: it is within the file, and pages of a shared mapping of a file come back with what was written to them.
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
    fn what_was_written_comes_back_after_its_pages_have_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = Scratch::new(folder.path()).expect("scratch");
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            0
        );
        let len = 3 * PAGE - 7;
        let [a, b] = [1u8, 2].map(|x| {
            let at = scratch.take(len).expect("room");
            // SAFETY: so many bytes were taken.
            unsafe { at.as_ptr().write_bytes(x, len) };
            at
        });
        scratch.release(|| false);
        // SAFETY: both are taken and written.
        unsafe {
            assert!(
                std::slice::from_raw_parts(a.as_ptr(), len)
                    .iter()
                    .all(|&x| x == 1)
            );
            assert!(
                std::slice::from_raw_parts(b.as_ptr(), len)
                    .iter()
                    .all(|&x| x == 2)
            );
        }
        assert!(!scratch.resize(a, len, 4 * PAGE), "`b` follows");
        scratch.give(b, len);
        assert!(scratch.resize(a, len, 6 * PAGE));
        assert!(scratch.resize(a, 6 * PAGE, PAGE));
        assert_eq!(scratch.take(5 * PAGE), Some(unsafe { a.add(PAGE) }));
        assert!(
            scratch.holds(a.as_ptr())
                && !scratch.holds(folder.path().as_os_str().as_encoded_bytes().as_ptr())
        );
    }

    #[test]
    fn a_folder_in_memory_is_no_scratch() {
        let Err(e) = Scratch::new(Path::new("/dev/shm")) else {
            panic!("taken");
        };
        assert!(
            e.to_string().contains("in memory") || e.kind() == io::ErrorKind::NotFound,
            "{e}"
        );
    }
}
