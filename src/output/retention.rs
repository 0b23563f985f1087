//! Which results and leftovers `gyre clean` and a run remove.

use jiff::SignedDuration;

/// How old what a run has left must be, where nothing tells that the run is dead.
pub const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What to clean.
#[derive(Debug, Clone, Copy)]
pub struct Cleaning {
    /// How many earlier versions to keep.
    pub keep: usize,
    /// Versions without a name go if nothing in them is younger, where there are no locks. So does the work of a plan, which has none.
    pub older_than: SignedDuration,
    /// Remove nothing.
    pub dry_run: bool,
}
