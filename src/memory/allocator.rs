//! The allocator of a memory-bounded program: the system allocator, and a scratch file for large
//! allocations beyond the bound.

#[cfg(target_os = "linux")]
use crate::error::{Error, Kind, Result};
use crate::memory::ranges;
#[cfg(target_os = "linux")]
use crate::memory::scratch::Scratch;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An allocation of at least this many bytes is large.
const LARGE: usize = 64 << 10;

/// From this many bytes on, an allocation asks for huge pages.
#[cfg(target_os = "linux")]
const HUGE: usize = 1 << 20;

/// Bytes of large allocations in plain memory.
static PLAIN: AtomicUsize = AtomicUsize::new(0);

/// The maximum of `PLAIN`, as long as the scratch file has room.
static MAX_PLAIN: AtomicUsize = AtomicUsize::new(usize::MAX);

#[cfg(target_os = "linux")]
static SCRATCH: std::sync::OnceLock<Scratch> = std::sync::OnceLock::new();

/// Creates the scratch file in a folder.
#[cfg(target_os = "linux")]
pub(crate) fn start(folder: &std::path::Path) -> Result<()> {
    let scratch = Scratch::new(folder).map_err(|e| {
        let what = format!(
            "{} cannot hold the scratch file of --memory; set TMPDIR to a folder on a disk",
            folder.display()
        );
        Error::with_source(Kind::Resources, what, e)
    })?;
    let twice = |_| Error::bug("memory was bounded twice");
    SCRATCH.set(scratch).map_err(twice)
}

#[cfg(target_os = "linux")]
pub(crate) fn set_max_plain(bytes: usize) {
    MAX_PLAIN.store(bytes, Ordering::Relaxed);
}

/// Releases pages of the scratch file from the process until `enough` returns true.
#[cfg(target_os = "linux")]
pub(crate) fn release(enough: impl FnMut() -> bool) {
    if let Some(scratch) = SCRATCH.get() {
        scratch.release(enough);
    }
}

/// Bytes of the scratch file; `None` without a bound.
pub(crate) fn scratch_len() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return SCRATCH.get().map(Scratch::len);
    #[cfg(not(target_os = "linux"))]
    None
}

/// The global allocator of the program; see the module [`memory`](crate::memory).
pub struct Bounded;

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Reserves room for a large allocation in plain memory. Returns false if there is none.
fn takes_room(bytes: usize) -> bool {
    let before = PLAIN.fetch_add(bytes, Ordering::Relaxed);
    let has_room = before.saturating_add(bytes) <= MAX_PLAIN.load(Ordering::Relaxed);
    if !has_room {
        PLAIN.fetch_sub(bytes, Ordering::Relaxed);
    }
    has_room
}

/// Takes memory from the scratch file.
fn in_scratch(layout: Layout) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    if layout.align() <= ranges::PAGE {
        let at = SCRATCH.get()?.take(layout.size());
        // Code of others fills it at once.
        crate::memory::wait_for_room_of(layout.size());
        return at;
    }
    let _ = layout;
    None
}

/// Bytes that are written between two checks of the bound.
const PIECE: usize = 4 << 20;

/// Writes `bytes` bytes in pieces: calls `write` with the start and length of each piece.
fn in_pieces(bytes: usize, write: impl Fn(usize, usize)) {
    for start in (0..bytes).step_by(PIECE) {
        crate::memory::wait_for_room();
        write(start, PIECE.min(bytes - start));
    }
}

/// Takes a large allocation from the scratch file if plain memory has no room for it. Otherwise
/// returns `None` with the room in plain memory reserved.
fn beyond_bound(layout: Layout) -> Option<NonNull<u8>> {
    if takes_room(layout.size()) {
        return None;
    }
    let at = in_scratch(layout);
    if at.is_none() {
        // The disk is full: use plain memory, which the system may refuse.
        PLAIN.fetch_add(layout.size(), Ordering::Relaxed);
    }
    at
}

/// The scratch file, if `at` lies in it.
#[cfg(target_os = "linux")]
fn scratch_of(at: *const u8) -> Option<&'static Scratch> {
    SCRATCH.get().filter(|scratch| scratch.holds(at))
}

/// Passes a pointer on, and ends the process if the system gave none, unless gyre is embedded.
fn checked(at: *mut u8, bytes: usize) -> *mut u8 {
    if at.is_null() {
        crate::memory::refused(bytes);
    } else {
        #[cfg(target_os = "linux")]
        ask_for_huge_pages(at, bytes);
    }
    at
}

/// The first touch of a huge page takes much less time than that of as many small pages, and random
/// reads miss the address cache less often. Not under a bound, where each page counts.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(at: *mut u8, bytes: usize) {
    if bytes < HUGE || MAX_PLAIN.load(Ordering::Relaxed) < usize::MAX {
        return;
    }
    // All pages of the allocation: a mapping whose parts differ cannot grow in place.
    let start = at.map_addr(|at| at & !(ranges::PAGE - 1));
    let len = (at.addr() + bytes).next_multiple_of(ranges::PAGE) - start.addr();
    // SAFETY: the pages belong to the process, and the advice does not change what they hold.
    unsafe { libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE) };
}

// SAFETY: memory comes from the system allocator or from a part of the scratch file that is not
// lent twice, aligned to pages. The address tells which of the two to return it to.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size())
            && let Some(at) = beyond_bound(layout)
        {
            return at.as_ptr();
        }
        // SAFETY: guaranteed by the caller.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size())
            && let Some(at) = beyond_bound(layout)
        {
            in_pieces(layout.size(), |start, len| {
                // SAFETY: this many bytes were taken.
                unsafe { at.as_ptr().add(start).write_bytes(0, len) }
            });
            return at.as_ptr();
        }
        // SAFETY: guaranteed by the caller.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_large(layout.size()) {
            #[cfg(target_os = "linux")]
            if let (Some(scratch), Some(at)) = (scratch_of(at), NonNull::new(at)) {
                return scratch.give(at, layout.size());
            }
            PLAIN.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: guaranteed by the caller; the memory is not from the scratch file.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (was_large, is_large) = (is_large(layout.size()), is_large(size));
        if !was_large && !is_large {
            // SAFETY: guaranteed by the caller; small allocations come from the system.
            return checked(unsafe { System.realloc(at, layout, size) }, size);
        }
        #[cfg(target_os = "linux")]
        if was_large && let (Some(scratch), Some(own)) = (scratch_of(at), NonNull::new(at)) {
            if is_large && scratch.resize(own, layout.size(), size) {
                return at;
            }
            // SAFETY: guaranteed by the caller.
            return unsafe { self.moved(at, layout, size) };
        }
        if is_large {
            let more = size.saturating_sub(if was_large { layout.size() } else { 0 });
            if !takes_room(more) {
                // SAFETY: guaranteed by the caller.
                return unsafe { self.moved(at, layout, size) };
            }
        }
        // Room was reserved for growth; return the room that a shrink frees.
        let less = match (was_large, is_large) {
            (true, true) => layout.size().saturating_sub(size),
            (true, false) => layout.size(),
            _ => 0,
        };
        PLAIN.fetch_sub(less, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller; the memory is not from the scratch file.
        checked(unsafe { System.realloc(at, layout, size) }, size)
    }
}

impl Bounded {
    /// Moves an allocation to wherever there is room.
    ///
    /// # Safety
    /// As for `realloc`.
    unsafe fn moved(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller of `realloc` may ask for this size; old and new memory do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                in_pieces(layout.size().min(size), |start, len| {
                    new.add(start).copy_from_nonoverlapping(at.add(start), len);
                });
                self.dealloc(at, layout);
            }
            new
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks keep their bytes when they are allocated, resized and freed, in memory and in the
    /// scratch file, and the accounting of plain memory stays right.
    fn check(steps: &[(usize, usize, bool)]) -> Result<(), TestCaseError> {
        let bytes =
            |size: usize, align: usize| Layout::from_size_align(size, align).expect("sizes");
        let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for (n, &(size, which, is_freed)) in steps.iter().enumerate() {
            let mark = n as u8 | 1;
            // SAFETY: every block is freed once with its own layout, and used within it.
            unsafe {
                match blocks.len() {
                    0..4 => {
                        let layout = bytes(size, 8 << (which % 4));
                        let at = if is_freed {
                            Bounded.alloc_zeroed(layout)
                        } else {
                            Bounded.alloc(layout)
                        };
                        let slice = std::slice::from_raw_parts_mut(at, size);
                        prop_assert!(!is_freed || slice.iter().all(|&x| x == 0));
                        prop_assert!(at.addr().is_multiple_of(layout.align()));
                        slice.fill(mark);
                        blocks.push((at, layout, mark));
                    }
                    len => {
                        let (at, layout, mark) = blocks.swap_remove(which % len);
                        let slice = std::slice::from_raw_parts(at, layout.size());
                        prop_assert!(slice.iter().all(|&x| x == mark));
                        if is_freed {
                            Bounded.dealloc(at, layout);
                            continue;
                        }
                        let at = Bounded.realloc(at, layout, size);
                        let slice = std::slice::from_raw_parts_mut(at, size);
                        prop_assert!(slice[..size.min(layout.size())].iter().all(|&x| x == mark));
                        slice.fill(mark);
                        blocks.push((at, bytes(size, layout.align()), mark));
                    }
                }
            }
            if n % 5 == 0 {
                release(|| n % 2 == 0);
            }
        }
        for (at, layout, _) in blocks {
            // SAFETY: as above.
            unsafe { Bounded.dealloc(at, layout) };
        }
        Ok(())
    }

    /// The tests run under another global allocator, so only the blocks of this test are counted.
    #[test]
    fn blocks_keep_their_bytes_in_memory_and_in_scratch() {
        let folder = tempfile::tempdir().expect("a folder");
        let sizes = (1usize..6 * LARGE, 0usize..64, any::<bool>());
        let steps = prop::collection::vec(sizes, 1..80);
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        start(folder.path()).expect("scratch");
        for most in [usize::MAX, 5 * LARGE, 0] {
            set_max_plain(most);
            let checked = runner.run(&steps, |steps| check(&steps));
            checked.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(PLAIN.load(Ordering::Relaxed), 0);
        }
        set_max_plain(usize::MAX);
        assert!(scratch_len().is_some_and(|len| len > 0));
    }
}
