//! Removes versions that are no longer needed: those beyond the number to keep, and those of dead
//! runs.
//!
//! Versions that the pointer names are never removed. A version that the pointer does not name may
//! be in use by a run that is writing it: in a folder such a run holds a lock, and in an object
//! store it has written something recently. A version is named before its run ends and is never
//! named again after it was dropped, so a dead version stays dead.
//!
//! Only what gyre has made is removed. Versions are recognised by name and, in a folder, by
//! content; work folders by their records (`made`); objects of the ledger by names
//! that are hashes. Nothing is removed through a symbolic link. Run records are kept.

use crate::error::{Error, Kind, Result, counted};
use crate::output::folder::{State, Unnamed};
use crate::output::layout::{LEDGER, RUNS, VERSIONS, WORK};
use crate::output::made::Stale;
use crate::output::number::grouped;
use crate::output::place::{FolderContent, Output};
use crate::output::retention::Cleaning;
use crate::read::paths::current::{Current, is_run, is_unique_suffix};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};

/// What was removed and what was kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Versions that were removed.
    pub removed: Vec<Removed>,
    /// Plans whose checkpoints were removed, and their bytes.
    pub work: Vec<(String, u64)>,
    /// Files that were removed, and their bytes: counts that no result names, and drafts of a
    /// killed run.
    pub files: Vec<(String, u64)>,
    /// Sort folders of dead processes on this machine, and their bytes.
    pub spilled: Vec<(String, u64)>,
    /// Versions that a run may be writing.
    pub left: Vec<String>,
    /// Entries among the versions that no run made.
    pub foreign: Vec<String>,
    keep: usize,
    dry_run: bool,
}

/// A version that was removed.
#[derive(Debug, PartialEq, Eq)]
pub struct Removed {
    /// The run id of the version.
    pub run: String,
    /// The size of its objects in bytes.
    pub bytes: u64,
    /// True for an earlier result; false for the version of a dead run.
    pub was_kept: bool,
}

impl Output {
    /// Removes unneeded versions, stale checkpoints and partial files.
    ///
    /// # Errors
    /// If the store cannot list or remove, or if the lock of a folder stays taken.
    pub async fn clean(&self, asked: &Cleaning) -> Result<Cleaned> {
        let mut cleaned = self.clean_versions(asked).await?;
        if let Some(folder) = self.folder.as_ref().filter(|_| !asked.dry_run) {
            folder.sweep().await?;
        }
        let Stale { plans, foreign } = self.stale_work(None, asked.older_than).await?;
        for (plan, bytes) in plans {
            if !asked.dry_run {
                self.remove_work(&plan).await?;
            }
            cleaned.work.push((plan, bytes));
        }
        let foreign = foreign.into_iter().map(|name| format!("{WORK}/{name}"));
        cleaned.foreign.extend(foreign);
        if let Some(folder) = &self.folder {
            let drafts = folder.drafts(asked);
            let drafts = drafts.map_err(|e| folder.failed("cleaned", e))?;
            cleaned.files.extend(drafts);
        }
        Ok(cleaned)
    }

    /// Removes unneeded versions and the objects that only they name.
    pub(crate) async fn clean_versions(&self, asked: &Cleaning) -> Result<Cleaned> {
        if let Some(folder) = &self.folder {
            folder.check_no_links(&[VERSIONS, WORK, LEDGER, RUNS])?;
        }
        if !asked.dry_run {
            self.repair().await?;
        }
        // List before reading the pointer: a version that is promoted in between is then named.
        let sizes = self.folders_in(VERSIONS).await?;
        let (pointer, unnamed) = match &self.folder {
            Some(folder) => folder.unnamed().await?,
            None => self.unnamed_objects(&sizes, asked).await?,
        };
        let kept = pointer.as_ref().map_or(&[][..], |p| &p.earlier);
        let dropped = kept.get(asked.keep..).unwrap_or_default().to_vec();
        let of = |state: State| {
            let found = unnamed.iter().filter(move |version| version.state == state);
            found.map(|version| version.run.clone())
        };
        if !asked.dry_run && !dropped.is_empty() {
            // A version loses its name before it is removed.
            self.drop_names(&dropped).await?;
        }
        let gone = dropped.iter().cloned().map(|run| (run, true));
        let dead = of(State::Dead).map(|run| (run, false));
        let mut removed = Vec::new();
        for (run, was_kept) in gone.chain(dead) {
            if !asked.dry_run {
                self.remove(VERSIONS, &run).await?;
            }
            let bytes = sizes.get(&run).map_or(0, |found| found.bytes);
            removed.push(Removed {
                run,
                bytes,
                was_kept,
            });
        }
        Ok(Cleaned {
            removed,
            work: Vec::new(),
            files: self.clean_objects(asked, &dropped).await?,
            spilled: Vec::new(),
            left: of(State::Alive).collect(),
            foreign: of(State::Foreign).collect(),
            keep: asked.keep,
            dry_run: asked.dry_run,
        })
    }
}

impl Output {
    /// The pointer of an object store, and the versions that it does not name.
    async fn unnamed_objects(
        &self,
        versions: &BTreeMap<String, FolderContent>,
        asked: &Cleaning,
    ) -> Result<(Option<Current>, Vec<Unnamed>)> {
        let pointer = self.pointer().await?.map(|seen| seen.current);
        let is_named = |run: &str| pointer.as_ref().is_some_and(|p| p.names(run));
        let unnamed = versions.iter().filter(|(run, _)| !is_named(run));
        let now = match unnamed.clone().next() {
            Some(_) => self.now().await?,
            None => Timestamp::MIN,
        };
        let unnamed = unnamed.map(|(run, found)| {
            let age = now.duration_since(found.newest);
            // `Output::now` also puts an object here.
            let is_ours = is_run(run) || run.strip_prefix("clock-").is_some_and(is_unique_suffix);
            let state = match is_ours {
                false => State::Foreign,
                true if age < asked.older_than => State::Alive,
                true => State::Dead,
            };
            let run = run.clone();
            Unnamed { run, state }
        });
        let unnamed = unnamed.collect();
        Ok((pointer, unnamed))
    }

    /// Removes versions from the pointer.
    async fn drop_names(&self, dropped: &[String]) -> Result<()> {
        let seen = self.pointer().await?;
        let shorter = |found: Option<&Current>| match found {
            Some(found) => {
                let mut next = found.clone();
                next.earlier.retain(|run| !dropped.contains(run));
                Ok((next, ()))
            }
            None => Err(Error::new(
                Kind::Conflict,
                "the result was removed meanwhile",
            )),
        };
        self.swap(seen, &|| Ok(()), shorter).await
    }
}

impl Display for Cleaned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = if self.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let mut lines = Vec::new();
        let mut bytes = 0;
        let mut removed = |name: &str, what: &str, own: u64| {
            bytes += own;
            let own = grouped(own as f64);
            lines.push(format!("{verb} {name}: {what}, {own} bytes"));
        };
        let kept = format!("beyond job.keep = {}", self.keep);
        for version in &self.removed {
            let what = if version.was_kept {
                &kept
            } else {
                "left by an interrupted run"
            };
            removed(&version.run, what, version.bytes);
        }
        for (plan, bytes) in &self.work {
            let what = "checkpoints of interrupted runs";
            removed(&format!("{WORK}/{plan}"), what, *bytes);
        }
        for (file, bytes) in &self.files {
            let what = if file.contains('#') {
                "partial file of a killed run"
            } else {
                "no result needs it"
            };
            removed(file, what, *bytes);
        }
        for (folder, bytes) in &self.spilled {
            removed(folder, "sort files of a dead process", *bytes);
        }
        for name in &self.foreign {
            lines.push(format!("left alone {name}: not made by a run"));
        }
        for run in &self.left {
            lines.push(format!("left alone {run}: a run may be writing it"));
        }
        let numbers = [
            (self.removed.len(), "version"),
            (self.work.len(), "work folder"),
            (self.files.len(), "file"),
            (self.spilled.len(), "temporary folder"),
        ];
        let some = numbers.into_iter().filter(|(n, _)| *n > 0);
        let what: Vec<String> = some.map(|(n, one)| counted(n, one)).collect();
        lines.push(if what.is_empty() {
            "Nothing to clean.".to_string()
        } else {
            let (what, bytes) = (join_words(&what), grouped(bytes as f64));
            format!("{verb} {what}, {bytes} bytes")
        });
        write!(f, "{}", lines.join("\n"))
    }
}

/// Formats as `a`, `a and b`, or `a, b and c`.
fn join_words(what: &[String]) -> String {
    match what {
        [first @ .., before, last] => [first, &[format!("{before} and {last}")]]
            .concat()
            .join(", "),
        one => one.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::retention::DAY;
    use jiff::SignedDuration;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    /// An object store has no locks, so only the age counts.
    #[tokio::test]
    async fn versions_that_may_be_alive_are_kept() {
        let store = Arc::new(InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let run = "20260301T020000Z-0123abcd-00000001";
        let table = output.staged(run, "sources");
        let foreign = output.staged("mine", "sources");
        store.put(&foreign, "12".into()).await.expect("a store");
        store.put(&table, "1234".into()).await.expect("a store");
        let mut asked = Cleaning {
            keep: 2,
            older_than: DAY,
            dry_run: false,
        };
        let cleaned = output.clean(&asked).await.expect("a store");
        let mine = "left alone mine: not made by a run\n";
        let said = format!("{mine}left alone {run}: a run may be writing it\nNothing to clean.");
        assert_eq!(cleaned.to_string(), said);
        asked.older_than = SignedDuration::ZERO;
        asked.dry_run = true;
        let cleaned = output.clean(&asked).await.expect("a store");
        let said = format!(
            "would remove {run}: left by an interrupted run, 4 bytes\n{mine}would remove 1 version, 4 bytes"
        );
        assert_eq!(cleaned.to_string(), said);
        store.head(&table).await.expect("it is still there");
        asked.dry_run = false;
        output.clean(&asked).await.expect("a store");
        store.head(&table).await.expect_err("it is gone");
        store.head(&foreign).await.expect("it is still there");
    }
}
