//! Tracks the free parts of a scratch file: best fit, in whole pages.

use std::collections::{BTreeMap, BTreeSet};

/// All sizes are rounded up to this many bytes.
pub(crate) const PAGE: usize = 4096;

/// Free parts of a file, by start and by length in bytes. No two of them touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
}

impl Ranges {
    /// No free parts.
    pub(crate) const fn new() -> Ranges {
        Ranges {
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
        }
    }

    /// Takes `len` bytes, a multiple of [`PAGE`], from the smallest free part that is large enough.
    /// Returns the first byte.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let &(found, start) = self.by_len.range((len, 0)..).next()?;
        self.remove(start, found);
        if found > len {
            self.insert(start + len, found - len);
        }
        Some(start)
    }

    /// Takes `more` bytes from `start` on if they are free. Returns whether they were.
    pub(crate) fn take_at(&mut self, start: usize, more: usize) -> bool {
        match self.by_start.get(&start) {
            Some(&found) if found >= more => {
                self.remove(start, found);
                if found > more {
                    self.insert(start + more, found - more);
                }
                true
            }
            _ => false,
        }
    }

    /// Frees a taken part and merges it with free neighbours.
    pub(crate) fn give(&mut self, mut start: usize, mut len: usize) {
        if let Some((&before, &own)) = self.by_start.range(..start).next_back()
            && before + own == start
        {
            self.remove(before, own);
            (start, len) = (before, own + len);
        }
        if let Some(&own) = self.by_start.get(&(start + len)) {
            self.remove(start + len, own);
            len += own;
        }
        self.insert(start, len);
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn remove(&mut self, start: usize, len: usize) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_best_fit_is_taken_and_neighbours_merge() {
        let mut free = Ranges::new();
        free.give(0, 3 * PAGE);
        free.give(5 * PAGE, PAGE);
        assert_eq!(free.take(PAGE), Some(5 * PAGE));
        assert_eq!(free.take(2 * PAGE), Some(0));
        assert_eq!(free.take(2 * PAGE), None);
        free.give(0, 2 * PAGE);
        assert_eq!(free.take(3 * PAGE), Some(0));
        free.give(7 * PAGE, 2 * PAGE);
        assert!(!free.take_at(6 * PAGE, PAGE));
        assert!(free.take_at(7 * PAGE, PAGE));
        assert_eq!(free.take(PAGE), Some(8 * PAGE));
    }

    proptest! {
        /// No page is lent twice, and after all were returned everything is free again.
        #[test]
        fn no_page_is_lent_twice(steps in prop::collection::vec((1usize..9, any::<prop::sample::Index>(), any::<bool>()), 1..200)) {
            const PAGES: usize = 64;
            let mut free = Ranges::new();
            free.give(0, PAGES * PAGE);
            let mut lent = [false; PAGES];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (pages, which, is_back) in steps {
                if is_back && !held.is_empty() {
                    let (start, pages) = held.swap_remove(which.index(held.len()));
                    lent[start..start + pages].fill(false);
                    free.give(start * PAGE, pages * PAGE);
                } else if let Some(at) = free.take(pages * PAGE) {
                    let start = at / PAGE;
                    prop_assert!(lent[start..start + pages].iter().all(|lent| !lent));
                    lent[start..start + pages].fill(true);
                    held.push((start, pages));
                }
            }
            for (start, pages) in held {
                free.give(start * PAGE, pages * PAGE);
            }
            prop_assert_eq!(free.take(PAGES * PAGE), Some(0));
        }
    }
}
