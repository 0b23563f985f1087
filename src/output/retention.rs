//! Which results and leftovers `gyre clean` and a run remove.

use jiff::SignedDuration;

/// The minimum age of leftovers where nothing else shows that their run is dead.
pub const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What to clean.
#[derive(Debug, Clone, Copy)]
pub struct Cleaning {
    /// How many earlier versions to keep.
    pub keep: usize,
    /// Without locks, a version that the pointer does not name is removed when its newest object
    /// has this age. The same holds for checkpoints.
    pub older_than: SignedDuration,
    /// Report without removing anything.
    pub dry_run: bool,
}
