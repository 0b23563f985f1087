//! The spill folder of SQL, for sorts that exceed the memory limit.
//!
//! The engine removes spill files with the last of its tasks. Tasks of a cancelled run may still be
//! computing when the program ends, so the folder is removed with the lake, or by [`remove_all`] if
//! the run itself is still computing. A killed process leaves its folder behind. The folder holds a
//! lock file; later runs remove folders whose lock is free.

use crate::error::{Error, Kind, Result};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};
use tempfile::TempDir;

const PREFIX: &str = "gyre-sql-";
const LOCK: &str = ".lock";

/// A spill folder, which is removed when this value is dropped.
pub(crate) struct SpillFolder {
    folder: TempDir,
    _lock: File,
    _opened: Opened,
}

/// Limits the memory of SQL to `bytes` and makes it spill to a new folder, which lives as long as
/// the returned value.
///
/// # Errors
/// [`Kind::Resources`] if the folder cannot be created.
pub(crate) fn bound(
    engine: RuntimeEnvBuilder,
    bytes: usize,
) -> Result<(RuntimeEnvBuilder, SpillFolder)> {
    let place = std::env::temp_dir();
    sweep(&place, false);
    let made = SpillFolder::new(&place).map_err(|e| {
        let what = format!(
            "{} cannot hold rows that SQL sorts on disk; set TMPDIR to another folder",
            place.display()
        );
        Error::with_source(Kind::Resources, what, e)
    })?;
    let engine = engine
        .with_memory_pool(Arc::new(FairSpillPool::new(bytes)))
        .with_temp_file_path(made.folder.path());
    Ok((engine, made))
}

/// The spill folders of this process.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the spill folders of this process, which ends.
pub(crate) fn remove_all() {
    for folder in OPEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain(..)
    {
        fs::remove_dir_all(folder).ok();
    }
}

/// A folder among those of the process.
struct Opened(PathBuf);

impl Opened {
    fn new(folder: &Path) -> Opened {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(folder.to_path_buf());
        Opened(folder.to_path_buf())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|folder| *folder != self.0);
    }
}

impl SpillFolder {
    fn new(place: &Path) -> io::Result<SpillFolder> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            let path = folder.path().join(LOCK);
            let lock = File::create_new(&path)?;
            lock.lock()?;
            // Another process may have removed the folder before it was locked.
            if path.exists() {
                return Ok(SpillFolder {
                    _opened: Opened::new(folder.path()),
                    folder,
                    _lock: lock,
                });
            }
        }
    }
}

/// Removes the spill folders of dead processes, or only lists them if `is_dry_run`. Returns their
/// paths and sizes in bytes. Folders that cannot be opened or removed may belong to other users and
/// are left alone.
pub(crate) fn sweep(place: &Path, is_dry_run: bool) -> Vec<(String, u64)> {
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
    fn only_folders_of_dead_processes_are_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let alive = SpillFolder::new(place.path()).expect("a folder");
        let dead = SpillFolder::new(place.path()).expect("a folder");
        // What a killed process leaves behind.
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
