//! Removes versions that nobody needs: those beyond the ones to keep, and those that dead runs have left.
//!
//! What the pointer names is never touched, and a version that it does not name may be one that a run is writing. In a folder such a
//! run holds a lock; elsewhere it has written something of late. A version is named before its run ends and never again once its name
//! is gone, so what was found dead stays dead. What no run has made is left alone, by its name and, in a folder, by what it holds; nothing
//! is removed through a link. Records of runs stay.

use crate::error::{Error, Kind, Result};
use crate::output::folder::{State, Unnamed, is_own, is_run};
use crate::output::layout::{RUNS, VERSIONS, WORK};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::retention::Cleaning;
use crate::read::paths::current::Current;
use jiff::Timestamp;
use std::fmt;
use std::fmt::{Display, Formatter};

/// What was cleaned, and what was not.
#[derive(Debug, PartialEq, Eq)]
pub struct Cleaned {
    pub removed: Vec<Removed>,
    /// Plans whose finished work is no more, and its bytes.
    pub work: Vec<(String, u64)>,
    /// Files that are no more, and their bytes: counts that no result names, and drafts of a run that was killed while it wrote them.
    pub files: Vec<(String, u64)>,
    /// Folders of rows that SQL of dead processes was sorting on this machine, and their bytes.
    pub spilled: Vec<(String, u64)>,
    /// Versions that a run may be writing.
    pub left: Vec<String>,
    /// What is among the versions and was made by no run.
    pub foreign: Vec<String>,
    keep: usize,
    dry_run: bool,
}

/// A version that is no more.
#[derive(Debug, PartialEq, Eq)]
pub struct Removed {
    pub run: String,
    pub bytes: u64,
    /// It was a result once; else it is what a dead run has left.
    pub was_kept: bool,
}

impl Output {
    /// Removes versions that nobody needs, and work that nobody goes on with.
    pub async fn clean(&self, asked: &Cleaning) -> Result<Cleaned> {
        let mut cleaned = self.clean_versions(asked).await?;
        if let Some(folder) = self.folder.as_ref().filter(|_| !asked.dry_run) {
            folder.sweep().await?;
        }
        for (plan, bytes) in self.stale_work(None, asked.older_than).await? {
            if !asked.dry_run {
                self.remove(WORK, &plan).await?;
            }
            cleaned.work.push((plan, bytes));
        }
        if let Some(folder) = &self.folder {
            let drafts = folder.drafts(&[crate::output::ledger::store::LEDGER, RUNS], asked);
            let drafts = drafts.map_err(|e| folder.failed("cleaned", e))?;
            cleaned.files.extend(drafts);
        }
        Ok(cleaned)
    }

    /// Removes versions that nobody needs.
    pub(crate) async fn clean_versions(&self, asked: &Cleaning) -> Result<Cleaned> {
        if let Some(folder) = &self.folder {
            folder.check_no_links(&[VERSIONS, WORK, crate::output::ledger::store::LEDGER, RUNS])?;
        }
        if !asked.dry_run {
            self.mend().await?;
        }
        // Listed before the pointer is read: what becomes the result in between is named.
        let sizes = self.inside(VERSIONS).await?;
        let (pointer, unnamed) = match &self.folder {
            Some(folder) => folder.unnamed().await?,
            None => {
                let pointer = self.pointer().await?.map(|seen| seen.current);
                let is_named = |run: &str| pointer.as_ref().is_some_and(|p| p.names(run));
                let unnamed = sizes.iter().filter(|(run, _)| !is_named(run));
                let now = match unnamed.clone().next() {
                    Some(_) => self.now().await?,
                    None => Timestamp::MIN,
                };
                let unnamed = unnamed.map(|(run, found)| {
                    let age = now.duration_since(found.newest);
                    // Who asks for the time puts an object here too.
                    let is_ours = is_run(run) || run.strip_prefix("clock-").is_some_and(is_own);
                    let state = match is_ours {
                        false => State::Foreign,
                        true if age < asked.older_than => State::Alive,
                        true => State::Dead,
                    };
                    let run = run.clone();
                    Unnamed { run, state }
                });
                let unnamed = unnamed.collect();
                (pointer, unnamed)
            }
        };
        let kept = pointer.as_ref().map_or(&[][..], |p| &p.earlier);
        let dropped = kept.get(asked.keep..).unwrap_or_default().to_vec();
        let of = |state: State| {
            let found = unnamed.iter().filter(move |version| version.state == state);
            found.map(|version| version.run.clone())
        };
        if !asked.dry_run && !dropped.is_empty() {
            // Nothing is removed while it has a name.
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
            self.swap(seen, &|| (), shorter).await?;
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

impl Display for Cleaned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = if self.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let mut lines = Vec::new();
        for Removed {
            run,
            bytes,
            was_kept,
        } in &self.removed
        {
            let what = match was_kept {
                true => format!("earlier than the {} to keep", self.keep),
                false => "left by a run that did not end".to_string(),
            };
            lines.push(format!(
                "{verb} {run}: {what}, {} bytes",
                grouped(*bytes as f64)
            ));
        }
        for (plan, bytes) in &self.work {
            let bytes = grouped(*bytes as f64);
            lines.push(format!(
                "{verb} {WORK}/{plan}: what runs that did not end had finished, {bytes} bytes"
            ));
        }
        for (file, bytes) in &self.files {
            let what = match file.contains('#') {
                true => "left by a run that was killed while it wrote it",
                false => "no result needs it",
            };
            let bytes = grouped(*bytes as f64);
            lines.push(format!("{verb} {file}: {what}, {bytes} bytes"));
        }
        for (folder, bytes) in &self.spilled {
            let bytes = grouped(*bytes as f64);
            lines.push(format!(
                "{verb} {folder}: rows that a process which is dead was sorting, {bytes} bytes"
            ));
        }
        for name in &self.foreign {
            lines.push(format!("left alone {name}: no run has made it"));
        }
        for run in &self.left {
            lines.push(format!("left alone {run}: a run may be writing it"));
        }
        let count = |n: usize, one: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {one}s")),
        };
        let versions = count(self.removed.len(), "version");
        let work = count(self.work.len(), "work folder");
        let spilled = count(self.spilled.len(), "temporary folder");
        let what = [versions, work, count(self.files.len(), "file"), spilled];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let bytes = self.removed.iter().map(|removed| removed.bytes);
        let more = self.work.iter().chain(&self.files).chain(&self.spilled);
        let more = more.map(|(_, bytes)| *bytes);
        let bytes: u64 = bytes.chain(more).sum();
        lines.push(match what.is_empty() {
            true => "Nothing to clean.".to_string(),
            false => {
                let (what, bytes) = (listed(&what), grouped(bytes as f64));
                format!("{verb} {what}, {bytes} bytes")
            }
        });
        write!(f, "{}", lines.join("\n"))
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(what: &[String]) -> String {
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

    /// A store has no locks: age alone tells.
    #[tokio::test]
    async fn what_may_be_alive_is_left_alone() {
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
        let mine = "left alone mine: no run has made it\n";
        let said = format!("{mine}left alone {run}: a run may be writing it\nNothing to clean.");
        assert_eq!(cleaned.to_string(), said);
        asked.older_than = SignedDuration::ZERO;
        asked.dry_run = true;
        let cleaned = output.clean(&asked).await.expect("a store");
        let said = format!(
            "would remove {run}: left by a run that did not end, 4 bytes\n{mine}would remove 1 version, 4 bytes"
        );
        assert_eq!(cleaned.to_string(), said);
        store.head(&table).await.expect("it is still there");
        asked.dry_run = false;
        output.clean(&asked).await.expect("a store");
        store.head(&table).await.expect_err("it is gone");
        store.head(&foreign).await.expect("it is still there");
    }
}
