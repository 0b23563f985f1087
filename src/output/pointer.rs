//! A run that replaces a result, and the result that it found.

use crate::read::paths::current::Current;
use object_store::UpdateVersion;
use std::collections::BTreeMap;
use std::fs::File;

/// A run that means to replace what it has found.
pub struct Begun {
    /// The id of the run: when it began, the plan, and something that no other run has.
    pub run: String,
    pub(crate) seen: Option<Seen>,
    /// Whether the tables of the result that was found are all there.
    pub(crate) is_whole: bool,
}

/// The pointer, and how a conditional put names it.
#[derive(Clone, PartialEq)]
pub(crate) struct Seen {
    pub current: Current,
    pub(crate) version: UpdateVersion,
}

/// A version that is being written. Where the output is a folder, the lock of its run.
pub(crate) struct Claim {
    pub(crate) run: String,
    pub(crate) _lock: Option<File>,
}

/// What a run has written.
pub struct Promotion<'a, R> {
    /// Hash of what the tables were made from.
    pub plan: &'a str,
    pub complete: bool,
    /// Rows of each table.
    pub tables: &'a BTreeMap<&'static str, u64>,
    /// How many earlier versions to keep.
    pub keep: usize,
    /// The record of the run.
    pub record: &'a R,
    /// Called when the result begins to be put in place: from there on it is too late to stop.
    pub begins: &'a (dyn Fn() + Sync),
}

impl Begun {
    /// The result that the run will replace.
    pub fn earlier(&self) -> Option<&Current> {
        let seen = self.seen.as_ref().filter(|_| self.is_whole);
        seen.map(|seen| &seen.current)
    }

    pub(crate) fn seen(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| seen.current.run.as_str())
    }
}
