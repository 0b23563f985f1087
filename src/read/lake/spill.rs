//! Rows that SQL sorts on disk, where its memory is bounded.
//!
//! The engine removes them with the last of its tasks. Those of a run that is stopped may still be computing when the program ends, so their
//! folder goes with the lake. A process that is killed leaves it: a lock in it says whether its process is alive, and the next one removes
//! those of dead ones.

use crate::error::{Error, Kind, Result};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use tempfile::TempDir;

const PREFIX: &str = "gyre-sql-";
const LOCK: &str = ".lock";

/// A folder for rows, which goes with this value.
pub struct Spilled {
    folder: TempDir,
    _lock: File,
}

/// Lets SQL hold `bytes`; what is more is in the folder, for as long as that lives.
pub fn bound(engine: RuntimeEnvBuilder, bytes: usize) -> Result<(RuntimeEnvBuilder, Spilled)> {
    let place = std::env::temp_dir();
    sweep(&place, false);
    let made = Spilled::new(&place).map_err(|e| {
        let what = format!(
            "{} is not writable, so SQL cannot sort rows on disk; set TMPDIR to another folder",
            place.display()
        );
        Error::with_source(Kind::Resources, what, e)
    })?;
    let engine = engine
        .with_memory_pool(Arc::new(FairSpillPool::new(bytes)))
        .with_temp_file_path(made.folder.path());
    Ok((engine, made))
}

impl Spilled {
    fn new(place: &Path) -> io::Result<Spilled> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            let path = folder.path().join(LOCK);
            let lock = File::create_new(&path)?;
            lock.lock()?;
            // Another process may have found it before it was locked.
            if path.exists() {
                return Ok(Spilled {
                    folder,
                    _lock: lock,
                });
            }
        }
    }
}

/// Removes the folders of dead processes, or only shows them; returns them and their bytes. What cannot be looked at or removed is left:
/// it may be that of another user.
pub fn sweep(place: &Path, is_dry_run: bool) -> Vec<(String, u64)> {
    let mut swept = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|found| found.is_dir());
        let name = entry.file_name();
        if !is_folder || !name.to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue;
        }
        let bytes = bytes(&path);
        if is_dry_run || fs::remove_dir_all(&path).is_ok() {
            swept.push((path.display().to_string(), bytes));
        }
    }
    swept.sort();
    swept
}

fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_alone_are_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let alive = Spilled::new(place.path()).expect("a folder");
        let dead = Spilled::new(place.path()).expect("a folder");
        // As a process that is killed leaves it.
        let path = dead.folder.keep();
        drop(dead._lock);
        fs::create_dir(path.join("datafusion")).expect("a folder");
        fs::write(path.join("datafusion/rows"), "1234").expect("a file");
        for other in ["gyre-sql-mine", "gyre-executor-1", "other"] {
            fs::create_dir(place.path().join(other)).expect("a folder");
        }
        let found = vec![(path.display().to_string(), 4)];
        for is_dry_run in [true, false] {
            assert_eq!(sweep(place.path(), is_dry_run), found);
            assert_eq!(path.exists(), is_dry_run);
        }
        assert!(sweep(place.path(), false).is_empty());
        assert!(alive.folder.path().exists());
        let left = fs::read_dir(place.path()).expect("a folder").count();
        assert_eq!(left, 4);
    }
}
