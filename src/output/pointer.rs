//! A run that replaces a result, and the result that it found.

use crate::error::Result;
use crate::read::paths::current::Current;
use object_store::UpdateVersion;
use std::collections::BTreeMap;
use std::fs::File;

/// A run that intends to replace the result it found.
pub struct Begun {
    /// The run id: start time, plan, and a unique suffix.
    pub run: String,
    pub(crate) seen: Option<Seen>,
    /// Whether all tables of the found result exist.
    pub(crate) is_whole: bool,
}

/// The pointer, and the object version for a conditional put.
#[derive(Clone, PartialEq)]
pub(crate) struct Seen {
    pub current: Current,
    pub(crate) version: UpdateVersion,
}

/// A version that is being written, with the lock of its run if the output is a folder.
pub struct Claim {
    pub(crate) run: String,
    pub(crate) _lock: Option<File>,
}

impl Claim {
    pub(crate) fn new(run: &str, _lock: Option<File>) -> Claim {
        let run = run.to_string();
        Claim { run, _lock }
    }
}

/// What a run has written.
pub struct Promotion<'a, R> {
    /// The kind of the evidence.
    pub kind: &'static str,
    /// Hash of everything the tables were made from.
    pub plan: &'a str,
    /// Whether every model was fitted.
    pub complete: bool,
    /// Rows per table.
    pub tables: &'a BTreeMap<&'static str, u64>,
    /// How many earlier versions to keep.
    pub keep: usize,
    /// The record of the run.
    pub record: &'a R,
    /// Called when promotion begins: from there on the run cannot be stopped.
    pub begins: &'a (dyn Fn() -> Result<()> + Sync),
}

impl Begun {
    /// The result that the run will replace, if its tables are complete.
    pub(crate) fn earlier(&self) -> Option<&Current> {
        let seen = self.seen.as_ref().filter(|_| self.is_whole);
        seen.map(|seen| &seen.current)
    }

    pub(crate) fn seen(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| seen.current.run.as_str())
    }
}
