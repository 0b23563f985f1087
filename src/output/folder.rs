//! An output on a file system: the locks that a commit needs, and links for readers of plain paths.
//!
//! ```text
//! <output>/.lock                   held while the pointer is compared and replaced
//! <output>/versions/<run>/.lock    held by a run from before its first file until its promotion
//! <output>/current                 a link to versions/<run>, replaced by a rename
//! <output>/<table>                 a link to current/<table>, so all tables change at one instant
//! ```
//!
//! The pointer decides and the links follow it. If a process dies between the two, readers of plain
//! paths see the complete earlier result until the next run or `gyre clean` repairs the links.
//!
//! A version that the pointer does not name is in one of these states:
//!
//! | lock file | lock | state |
//! |---|---|---|
//! | exists | taken | alive: a run is writing it |
//! | exists | free | dead: its run has ended |
//! | missing, but `run.json` exists or the folder is empty | | dead |
//! | missing otherwise, or the name is not a run id | | foreign: kept |

use crate::error::{Error, InTheWay, Kind, Result};
use crate::output::layout::{CURRENT, LEDGER, RECORD, RUNS, VERSIONS, WORK, plan_of};
use crate::output::ledger::Object;
use crate::output::retention::Cleaning;
use crate::read::paths::current::{Current, check_size, is_run};
use crate::store::seal::sealed;
use jiff::Timestamp;
use rayon::prelude::*;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

const LOCK: &str = ".lock";
/// The link to the version in place.
const LINK: &str = "current";
const POINTER_DRAFT: &str = ".current.json";
const LINK_DRAFT: &str = ".link";

/// How long a run waits for the lock of its output, which is normally held for moments.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a run waits for the lock before it logs a warning.
const WARN_AFTER: Duration = Duration::from_secs(1);

/// How long a run waits for the lock to remove an output without a result.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A version that the pointer does not name.
pub(crate) struct Unnamed {
    /// The name of its folder, usually a run id.
    pub run: String,
    /// Whether it may be removed.
    pub state: State,
}

/// The state of a version that the pointer does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A run is or may be writing it.
    Alive,
    /// Its run has ended.
    Dead,
    /// No run made it.
    Foreign,
}

/// The folder of an output.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    /// How long to wait for its lock.
    pub patience: Duration,
}

impl Folder {
    /// The folder at `path`, with the default [`LOCK_TIMEOUT`].
    pub(crate) fn new(path: PathBuf) -> Folder {
        Folder {
            path,
            patience: LOCK_TIMEOUT,
        }
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn version(&self, run: &str) -> PathBuf {
        self.path.join(VERSIONS).join(run)
    }

    /// The error for an operation on this folder that failed: "... cannot be {what}".
    pub(crate) fn failed(
        &self,
        what: &str,
        e: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::store(format!("{} cannot be {what}", self.path.display()), e)
    }

    /// Waits for the lock of the output. Dropping the file releases it.
    ///
    /// # Errors
    /// [`Kind::Conflict`] after [`Folder::patience`].
    async fn lock(&self) -> Result<File> {
        let start = Instant::now();
        let mut is_logged = false;
        self.check_files(&[LOCK])?;
        loop {
            match self.try_lock() {
                Ok(Some(file)) => return Ok(file),
                Ok(None) => (),
                Err(e) => return Err(self.failed("locked", e)),
            }
            let (waited, path) = (start.elapsed(), self.path.join(LOCK));
            if waited >= self.patience {
                let what = format!(
                    "another process has held the lock {} for {:?}; run again when it has ended, or wait longer with --lock-timeout",
                    path.display(),
                    self.patience
                );
                return Err(Error::new(Kind::Conflict, what));
            }
            if !is_logged && waited >= WARN_AFTER {
                is_logged = true;
                tracing::warn!(
                    "waiting for {} for at most {:?}: another process holds its lock",
                    path.display(),
                    self.patience
                );
            }
            tokio::time::sleep(LOCK_PAUSE.min(self.patience - waited)).await;
        }
    }

    /// The lock of the output, if it is free.
    fn try_lock(&self) -> io::Result<Option<File>> {
        let path = self.path.join(LOCK);
        loop {
            match fs::create_dir_all(&self.path) {
                // Another run removed its folder between the two calls.
                Err(e)
                    if e.kind() == ErrorKind::AlreadyExists
                        && fs::metadata(&self.path).map_or(true, |found| found.is_dir()) =>
                {
                    continue;
                }
                made => made?,
            }
            let file = lock_options().create(true).write(true).open(&path);
            let file = match file {
                // The folder was just removed by `remove_if_empty`.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(Some(file)),
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
    }

    /// Reads `current.json`.
    fn pointer(&self) -> Result<Option<Current>> {
        let path = self.path.join(CURRENT);
        let shown = path.display().to_string();
        let found = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|e| self.failed("read", e))?,
        };
        self.check_files(&[CURRENT])?;
        check_size(found.len(), &shown)?;
        match fs::read(&path) {
            Ok(bytes) => Current::parse(&bytes, &shown).map(Some),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed("read", e)),
        }
    }

    /// Creates the folder of a version, with a lock that marks its run as alive while the file is
    /// open.
    pub(crate) async fn claim(&self, run: &str) -> Result<File> {
        // A version without a lock counts as dead, so the output stays locked between the next two
        // steps.
        self.check_no_links(&[VERSIONS])?;
        let _locked = self.lock().await?;
        let claim = || {
            fs::create_dir_all(self.version(run))?;
            let file = File::create_new(self.version(run).join(LOCK))?;
            file.lock()?;
            Ok(file)
        };
        claim().map_err(|e: io::Error| self.failed("written to", e))
    }

    /// The pointer, and the versions that it does not name. Both are read under the lock: no run is
    /// promoted and none begins to write in between.
    pub(crate) async fn unnamed(&self) -> Result<(Option<Current>, Vec<Unnamed>)> {
        if !self.path.exists() {
            return Ok((None, Vec::new()));
        }
        let _locked = self.lock().await?;
        let pointer = self.pointer()?;
        let mut unnamed = Vec::new();
        for run in self.versions().map_err(|e| self.failed("listed", e))? {
            if !pointer.as_ref().is_some_and(|p| p.names(&run)) {
                let state = self.state(&run);
                unnamed.push(Unnamed { run, state });
            }
        }
        Ok((pointer, unnamed))
    }

    fn versions(&self) -> io::Result<Vec<String>> {
        let found = self.folders_in(VERSIONS)?.into_iter();
        let mut names: Vec<String> = found.map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }

    /// A run creates a folder with its id, and in it a lock file or, when all is written, its
    /// record.
    fn state(&self, run: &str) -> State {
        let folder = self.version(run);
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        if !is_folder || !is_run(run) {
            return State::Foreign;
        }
        match lock_options().read(true).open(folder.join(LOCK)) {
            Ok(file) => match file.try_lock() {
                Ok(()) => State::Dead,
                // If the lock cannot be queried, the run counts as alive.
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => State::Alive,
            },
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let is_empty =
                    || fs::read_dir(&folder).is_ok_and(|mut found| found.next().is_none());
                if folder.join(RECORD).is_file() || is_empty() {
                    State::Dead
                } else {
                    State::Foreign
                }
            }
            Err(_) => State::Alive,
        }
    }

    /// Fails if one of these files and folders of the output is a link or the like: what a link
    /// leads to does not belong to this output.
    pub(crate) fn check_no_links(&self, places: &[&str]) -> Result<()> {
        self.check_places(places, InTheWay::at)
    }

    /// Fails if one of these files of the output is a folder, a link or the like.
    fn check_files(&self, files: &[&str]) -> Result<()> {
        self.check_places(files, InTheWay::of_file)
    }

    fn check_places(&self, places: &[&str], found: fn(&Path) -> Option<InTheWay>) -> Result<()> {
        let mut places = places.iter().map(|place| self.path.join(place));
        match places.find_map(|path| found(&path)) {
            Some(e) => Err(Error::spec(e.to_string())),
            None => Ok(()),
        }
    }

    /// Flushes every file of a version to disk, so that the pointer is not on disk before them.
    pub(crate) fn sync(&self, run: &str) -> Result<()> {
        fn collect(path: PathBuf, paths: &mut Vec<PathBuf>) -> io::Result<()> {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                match entry.metadata()? {
                    found if found.is_dir() => collect(entry.path(), paths)?,
                    // An empty file is stored in its folder alone.
                    found if found.len() == 0 => (),
                    _ => paths.push(entry.path()),
                }
            }
            paths.push(path);
            Ok(())
        }
        let mut paths = vec![self.path.join(VERSIONS)];
        let synced = collect(self.version(run), &mut paths);
        // In parallel, because the system groups these writes.
        let synced = synced.and_then(|()| paths.par_iter().try_for_each(|path| sync(path)));
        synced.map_err(|e| self.failed("written to", e))
    }

    /// Replaces the pointer by the result of `next`, and updates the links. After an error the
    /// pointer is unchanged. `begins` is called when the lock is held.
    pub(crate) async fn swap<T>(
        &self,
        begins: &(dyn Fn() -> Result<()> + Sync),
        next: impl FnOnce(Option<&Current>) -> Result<(Current, T)>,
    ) -> Result<T> {
        let _locked = self.lock().await?;
        begins()?;
        let earlier = self.pointer()?;
        let (current, more) = next(earlier.as_ref())?;
        self.check_room(&current)?;
        let bytes = sealed(&current)?;
        let put = || {
            let (draft, pointer) = (self.path.join(POINTER_DRAFT), self.path.join(CURRENT));
            // A link of this name is removed, and not followed.
            fs::remove_file(&draft).ok();
            File::create_new(&draft)?.write_all(&bytes)?;
            sync(&draft)?;
            fs::rename(draft, pointer)
        };
        put().map_err(|e: io::Error| self.failed("written to", e))?;
        sync(&self.path).ok();
        self.link(&current);
        Ok(more)
    }

    /// Updates the links if they do not match the pointer.
    pub(crate) async fn repair(&self) -> Result<()> {
        let Some(current) = self.pointer()? else {
            return Ok(());
        };
        if self.is_linked(&current) {
            return Ok(());
        }
        let _locked = self.lock().await?;
        if let Some(current) = self.pointer()? {
            self.link(&current);
        }
        Ok(())
    }

    fn is_linked(&self, current: &Current) -> bool {
        let goes = |name: &str, to: &Path| {
            fs::read_link(self.path.join(name)).is_ok_and(|found| found == to)
        };
        let mut tables = current.tables.keys();
        goes(LINK, Path::new(&current.folder))
            && tables.all(|table| goes(table, &Path::new(LINK).join(table)))
    }

    /// Creates the links for a pointer that is already in place. A failure is logged, and the next
    /// run repairs it.
    fn link(&self, current: &Current) {
        let link = || {
            for table in current.tables.keys() {
                self.point(table, &Path::new(LINK).join(table))?;
            }
            self.point(LINK, Path::new(&current.folder))?;
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let name = entry.file_name();
                let is_table = current.tables.keys().any(|table| name == OsStr::new(table));
                if name != LINK && !is_table && is_own_link(&entry.path()) {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        let names = current.tables.keys().map(String::as_str);
        let linked = match self.links_have_room(names, |_| false) {
            Ok(()) => link().map_err(|e: io::Error| e.to_string()),
            Err(e) => Err(e.full()),
        };
        if let Err(e) = linked {
            tracing::warn!(
                "the links in {} cannot be made ({e}); the tables are in {}",
                self.path.display(),
                self.path.join(&current.folder).display()
            );
        }
    }

    /// Points the link `name` to a path in this folder, atomically.
    fn point(&self, name: &str, to: &Path) -> io::Result<()> {
        let (link, draft) = (self.path.join(name), self.path.join(LINK_DRAFT));
        if fs::read_link(&link).is_ok_and(|found| found == to) {
            return Ok(());
        }
        fs::remove_file(&draft).ok();
        symlink(to, &draft)?;
        fs::rename(draft, link)
    }

    /// Fails if something else is where a link must go.
    fn check_room(&self, current: &Current) -> Result<()> {
        let names = current.tables.keys().map(String::as_str);
        // An empty folder may be removed.
        self.links_have_room(names, |path| fs::remove_dir(path).is_ok())
    }

    /// As `check_room`; `is_empty` says whether an entry may be replaced.
    fn links_have_room<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        is_empty: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        for name in names.chain([LINK]) {
            let path = self.path.join(name);
            let is_there = fs::symlink_metadata(&path).is_ok();
            if is_there && !is_own_link(&path) && !is_empty(&path) {
                return Err(Error::spec(format!(
                    "{} is where gyre must create a link; move it away, or name another output",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Whether the folder exists.
    pub(crate) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Fails if this folder cannot be written, or if something is where the link of a table must
    /// go. Changes nothing.
    pub(crate) fn check(&self, tables: &[&str]) -> Result<()> {
        let unusable = |path: &Path, why: &str| {
            let (shown, path) = (self.path.display(), path.display());
            Err(Error::spec(format!(
                "the output {shown} cannot be written: {path} {why}; name another output"
            )))
        };
        let mut there = self.path.as_path();
        loop {
            match fs::metadata(there) {
                Ok(found) if found.is_dir() => break,
                Ok(_) => return unusable(there, "is not a folder"),
                Err(_) if fs::symlink_metadata(there).is_ok_and(|found| found.is_symlink()) => {
                    return unusable(there, "is a link that leads nowhere");
                }
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => (),
                Err(e) => return unusable(there, &format!("cannot be entered ({e})")),
            }
            match there.parent() {
                Some(parent) => there = parent,
                None => break,
            }
        }
        if let Some(why) = unwritable(there) {
            return unusable(there, &why);
        }
        self.check_files(&[LOCK, CURRENT])?;
        // A link of such a name is removed, and not followed.
        self.check_places(&[POINTER_DRAFT, LINK_DRAFT], InTheWay::folder)?;
        for place in [VERSIONS, RUNS, WORK, LEDGER] {
            let path = self.path.join(place);
            self.check_no_links(&[place])?;
            if path.exists() && !path.is_dir() {
                return unusable(&path, "is not a folder");
            }
        }
        self.links_have_room(tables.iter().copied(), |path| {
            let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
            is_folder && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
        })
    }

    /// The folders in one such as `versions`, and when an entry of each last changed.
    pub(crate) fn folders_in(&self, place: &str) -> io::Result<Vec<(String, Timestamp)>> {
        let named = |entry: fs::DirEntry| {
            // The entry may have been removed meanwhile.
            let changed = entry.metadata().ok().and_then(|found| changed(&found));
            entry.file_name().into_string().ok().zip(changed)
        };
        Ok(self.entries(place)?.into_iter().filter_map(named).collect())
    }

    /// What a folder such as `versions` holds; nothing if there is none.
    fn entries(&self, place: &str) -> io::Result<Vec<fs::DirEntry>> {
        match fs::read_dir(self.path.join(place)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries?.collect(),
        }
    }

    /// Removes partial records and partial objects of the ledger, which killed processes leave, and
    /// an empty folder of work. They are called `name#1`, and the store does not list them. Returns
    /// their paths and bytes.
    pub(crate) fn drafts(&self, asked: &Cleaning) -> io::Result<Vec<(String, u64)>> {
        let mut drafts = Vec::new();
        let is_record = |name: &str| name.strip_suffix(".json").is_some_and(is_run);
        type IsOurs<'a> = &'a dyn Fn(&str) -> bool;
        let is_made = |name: &str| plan_of(name).is_some();
        let places: [(&str, IsOurs<'_>); 3] = [
            (LEDGER, &Object::is_name),
            (RUNS, &is_record),
            (WORK, &is_made),
        ];
        for (place, is_ours) in places {
            for entry in self.entries(place)? {
                let name = entry.file_name().to_string_lossy().into_owned();
                let (whole, number) = name.rsplit_once('#').unwrap_or_default();
                let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
                if !is_number || !is_ours(whole) {
                    continue;
                }
                // A draft that is missing now was completed.
                let Ok(found) = entry.metadata() else {
                    continue;
                };
                let age = changed(&found).map(|at| Timestamp::now().duration_since(at));
                if !found.is_file() || age.is_none_or(|age| age < asked.older_than) {
                    continue;
                }
                if !asked.dry_run {
                    gone(fs::remove_file(entry.path()))?;
                }
                drafts.push((format!("{place}/{name}"), found.len()));
            }
        }
        if !asked.dry_run {
            self.remove_if_empty_place(WORK);
        }
        drafts.sort();
        Ok(drafts)
    }

    /// Removes a folder in one such as `versions`. Links in it are removed, and never what they
    /// lead to. If a link or a file has its name, that stays.
    pub(crate) fn remove(&self, place: &str, name: &str) -> Result<()> {
        self.check_no_links(&[place])?;
        let folder = self.path.join(place).join(name);
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        let mut parts = Path::new(name).components();
        let is_name = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
        if !is_folder || !is_name {
            return Ok(());
        }
        let removed = remove_all(&folder);
        removed.map_err(|e| Error::store(format!("{} cannot be removed", folder.display()), e))
    }

    /// Removes partial files of a place, `name#1`, which killed processes leave. A place that is a
    /// link stays as it is.
    pub(crate) fn remove_partial(&self, place: &str, name: &str) {
        let place = self.path.join(place);
        let is_link = fs::symlink_metadata(&place).is_ok_and(|found| found.is_symlink());
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        for entry in entries.filter(|_| !is_link) {
            let file = entry.file_name();
            let number = file
                .to_str()
                .and_then(|file| file.strip_prefix(name)?.strip_prefix('#'));
            let is_partial = number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
            if is_partial && entry.file_type().is_ok_and(|found| found.is_file()) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// Removes the folder of all versions or of all work, if it is empty.
    pub(crate) fn remove_if_empty_place(&self, place: &str) {
        fs::remove_dir(self.path.join(place)).ok();
    }

    /// Removes drafts of dead processes that only a holder of the lock may write.
    pub(crate) async fn sweep(&self) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        let locked = self.lock().await?;
        for draft in [POINTER_DRAFT, LINK_DRAFT] {
            fs::remove_file(self.path.join(draft)).ok();
        }
        drop(locked);
        self.remove_if_empty_place(WORK);
        Ok(())
    }

    /// Marks a version as promoted by removing its lock file.
    pub(crate) fn release(&self, run: &str) {
        fs::remove_file(self.version(run).join(LOCK)).ok();
    }

    /// Removes an output without a result. If another process holds the lock, the output is in use
    /// and stays.
    pub(crate) async fn remove_if_empty(&self) {
        let hurried = Folder {
            patience: REMOVAL_TIMEOUT.min(self.patience),
            ..self.clone()
        };
        let Ok(_locked) = hurried.lock().await else {
            return;
        };
        if !self.path.join(CURRENT).exists() && fs::remove_dir(self.path.join(VERSIONS)).is_ok() {
            if cfg!(unix) {
                fs::remove_file(self.path.join(LOCK)).ok();
            }
            fs::remove_dir(&self.path).ok();
        }
    }
}

/// When a file or an entry of a folder last changed, if the system says so.
fn changed(found: &fs::Metadata) -> Option<Timestamp> {
    Timestamp::try_from(found.modified().ok()?).ok()
}

/// A removal of what may be gone already.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes a folder of this process or of a dead one. [`LOCK`] and [`RECORD`] identify the folder
/// of a run, so they go last, and an interrupted removal can be resumed.
fn remove_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry?;
        if [LOCK, RECORD].iter().any(|last| entry.file_name() == *last) {
            continue;
        }
        // The type of a link is that of the link.
        if entry.file_type()?.is_dir() {
            gone(fs::remove_dir_all(entry.path()))?
        } else {
            gone(fs::remove_file(entry.path()))?
        }
    }
    gone(fs::remove_dir_all(folder))
}

/// Whether a path is a link as gyre makes it: `current` to a version, or a table to
/// `current/<table>`.
fn is_own_link(path: &Path) -> bool {
    let (Ok(to), Some(name)) = (fs::read_link(path), path.file_name()) else {
        return false;
    };
    if name == LINK {
        return to.parent() == Some(Path::new(VERSIONS));
    }
    to == Path::new(LINK).join(name)
}

/// Flushes a file, or the entries of a folder, to disk.
fn sync(path: &Path) -> io::Result<()> {
    // Other systems cannot flush a file that is open for reading.
    if cfg!(unix) {
        File::open(path)?.sync_all()
    } else {
        Ok(())
    }
}

/// Opens a lock file, but neither through a link nor waiting for the other end of a pipe.
fn lock_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    options
}

/// Whether an open file is still the one at a path: the last holder of its lock may have removed
/// it.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let there = fs::metadata(path).map(place).ok();
        there.is_some() && there == file.metadata().map(place).ok()
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

/// Why no file can be created in an existing folder, if the system says so.
#[cfg(unix)]
fn unwritable(folder: &Path) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path ends with a zero byte, and the call reads nothing else.
    if unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        return match io::Error::last_os_error() {
            e if e.kind() == ErrorKind::ReadOnlyFilesystem => {
                Some("is on a read-only file system".into())
            }
            e if e.kind() == ErrorKind::PermissionDenied => {
                Some("is not writable by this user".into())
            }
            _ => None,
        };
    }
    // Root may write anywhere, but not into system file systems such as `/proc`.
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call fills the structure, which holds only numbers.
        let place = unsafe {
            let mut place: libc::statfs = std::mem::zeroed();
            match libc::statfs(path.as_ptr(), &mut place) {
                0 => place,
                _ => return None,
            }
        };
        if [libc::PROC_SUPER_MAGIC, libc::SYSFS_MAGIC].contains(&place.f_type) {
            return Some("is a system file system, which holds no files".into());
        }
    }
    None
}

#[cfg(not(unix))]
fn unwritable(_: &Path) -> Option<String> {
    None
}

#[cfg(unix)]
fn symlink(to: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::output::place::Output;
    use crate::output::pointer::{Begun, Promotion};
    use crate::output::retention::{Cleaning, DAY};
    use crate::store::Stores;
    use jiff::SignedDuration;
    use std::collections::BTreeMap;

    fn open(folder: &Path) -> Output {
        Output::open(&folder.display().to_string(), &Stores::default()).expect("an output")
    }

    #[test]
    fn partial_files_of_one_name_are_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(place.path().to_path_buf());
        let work = place.path().join(WORK);
        fs::create_dir(&work).expect("a folder");
        for name in ["p.made", "p.made#7", "p.made#x", "p.made#", "q.made#1"] {
            fs::write(work.join(name), "").expect("a file");
        }
        fs::create_dir(work.join("p.made#8")).expect("a folder");
        folder.remove_partial(WORK, "p.made");
        let left = fs::read_dir(&work).expect("a folder").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["p.made", "p.made#8", "p.made#x", "q.made#1"]);
    }

    fn cleaning(keep: usize, older_than: SignedDuration, dry_run: bool) -> Cleaning {
        Cleaning {
            keep,
            older_than,
            dry_run,
        }
    }

    async fn begin(output: &Output) -> Begun {
        output.begin("a-plan-of-its-own").await.expect("a folder")
    }

    /// Writes one table, which holds the id of the run, and promotes it.
    async fn promote(output: &Output, begun: &Begun) -> Result<()> {
        let table = output.staged(&begun.run, "sources");
        let put = output.put(&table, begun.run.clone().into_bytes());
        put.await.expect("a file");
        let promotion = Promotion {
            kind: "counts",
            plan: "a-plan-of-its-own",
            complete: true,
            tables: &BTreeMap::from([("sources", 1)]),
            keep: 1,
            record: &begun.run,
            begins: &|| Ok(()),
        };
        output.promote(begun, &promotion).await
    }

    fn table(folder: &Path) -> String {
        fs::read_to_string(folder.join("sources/part-0.parquet")).expect("a table")
    }

    #[tokio::test]
    async fn the_first_of_two_runs_wins() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("out");
        // The slower run detects the conflict when it starts to write, or after it has written.
        for has_written in [false, true] {
            let (one, other) = (open(&folder), open(&folder));
            let (first, second) = (begin(&one).await, begin(&other).await);
            assert_ne!(first.run, second.run);
            if has_written {
                other.claim_version(&second).await.expect("room");
            }
            one.claim_version(&first).await.expect("room");
            promote(&one, &first).await.expect("the result");
            let late = if has_written {
                promote(&other, &second).await
            } else {
                other.claim_version(&second).await
            };
            let e = late.expect_err("it is late");
            assert_eq!(e.kind(), Kind::Conflict, "{}", e.full());
            other.abandon().await;
            assert_eq!(table(&folder), first.run);
            assert!(!folder.join("versions").join(&second.run).exists());
            // Afterwards the same process can promote again.
            let third = begin(&other).await;
            assert_eq!(third.earlier().map(|c| &c.run), Some(&first.run));
            other.claim_version(&third).await.expect("room");
            promote(&other, &third).await.expect("the result");
            assert_eq!(table(&folder), third.run);
        }
    }

    #[tokio::test]
    async fn a_version_is_alive_while_its_run_is() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("out");
        let (one, other) = (open(&folder), open(&folder));
        let begun = begin(&one).await;
        one.claim_version(&begun).await.expect("room");
        let asked = cleaning(1, DAY, false);
        let cleaned = other.clean(&asked).await.expect("a folder");
        assert_eq!(cleaned.left, std::slice::from_ref(&begun.run));
        assert_eq!(cleaned.removed, []);
        // A run that ended silently is dead at any age.
        drop(one);
        let cleaned = other.clean(&asked).await.expect("a folder");
        assert_eq!(cleaned.removed.len(), 1);
        assert_eq!(cleaned.removed[0].run, begun.run);
        assert!(!folder.join("versions").join(&begun.run).exists());
    }

    #[tokio::test]
    async fn waiting_for_a_lock_times_out() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("out");
        let mut output = open(&folder);
        let begun = begin(&output).await;
        fs::create_dir(&folder).expect("a folder");
        let held = File::create(folder.join(LOCK)).expect("a lock");
        held.lock().expect("it is free");
        output.set_lock_timeout(Duration::ZERO);
        let e = output.claim_version(&begun).await.expect_err("it is held");
        assert_eq!(e.kind(), Kind::Conflict, "{}", e.full());
        let message = "out/.lock for 0ns; run again when it has ended";
        assert!(e.full().contains(message));
        let cleaned = output.clean(&cleaning(1, DAY, true)).await;
        cleaned.expect_err("it is held");
        // A cancelled wait leaves no version, and others may wait meanwhile.
        output.set_lock_timeout(LOCK_TIMEOUT);
        let waiting = output.claim_version(&begun);
        let stopped = tokio::time::timeout(3 * LOCK_PAUSE, waiting).await;
        assert!(stopped.is_err() && !folder.join(VERSIONS).exists());
        let (waiting, _) = tokio::join!(output.claim_version(&begun), async {
            tokio::task::yield_now().await;
            drop(held);
        });
        waiting.expect("it is free");
    }

    #[tokio::test]
    async fn foreign_entries_are_kept() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("out");
        let output = open(&folder);
        let run = |n: u32| format!("20260301T020000Z-0123abcd-{n:08x}");
        let versions = folder.join(VERSIONS);
        // Made by runs, by name and lock or record.
        let (dead, sealed, empty) = (run(1), run(2), run(3));
        // A folder with a foreign name, one without lock and record, a link, and a file.
        let (mine, unsealed, link, file) = ("mine".to_string(), run(4), run(5), run(6));
        for name in [&dead, &sealed, &empty, &mine, &unsealed] {
            fs::create_dir_all(versions.join(name)).expect("a folder");
        }
        let seals = [LOCK, RECORD, LOCK, "x"];
        for (name, seal) in [&dead, &sealed, &mine, &unsealed].into_iter().zip(seals) {
            fs::write(versions.join(name).join(seal), "").expect("a file");
        }
        let outside = temporary.path().join("outside");
        fs::create_dir(&outside).expect("a folder");
        fs::write(outside.join(LOCK), "").expect("a file");
        symlink(&outside, &versions.join(&link)).expect("a link");
        fs::write(versions.join(&file), "").expect("a file");
        let asked = cleaning(0, SignedDuration::ZERO, false);
        let cleaned = output.clean(&asked).await.expect("a folder");
        let removed: Vec<&String> = cleaned.removed.iter().map(|gone| &gone.run).collect();
        assert_eq!(removed, [&dead, &sealed, &empty]);
        assert_eq!(cleaned.foreign, [unsealed, link, file, mine.clone()]);
        let text = cleaned.to_string();
        let message = "left alone mine: not made by a run";
        assert!(text.contains(message), "{text}");
        for left in &cleaned.foreign {
            assert!(versions.join(left).exists(), "{left}");
        }
        assert!(outside.join(LOCK).exists());

        // Nothing is removed through a link.
        let moved = temporary.path().join("moved");
        fs::create_dir_all(versions.join(&dead)).expect("a folder");
        fs::rename(&versions, &moved).expect("a folder");
        symlink(&moved, &versions).expect("a link");
        let e = output.clean(&asked).await.expect_err("a link");
        assert_eq!(e.kind(), Kind::Spec);
        let (full, message) = (
            e.full(),
            "is a link, and no result is read, written or removed",
        );
        assert!(full.contains(message), "{full}");
        assert!(moved.join(&dead).exists());
    }

    #[test]
    fn abandoned_runs_leave_nothing() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("out");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let output = open(&folder);
                        let run = async {
                            let begun = begin(&output).await;
                            output.claim_version(&begun).await.expect("room");
                            output.abandon().await;
                        };
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build();
                        runtime.expect("a thread").block_on(run);
                    }
                });
            }
        });
        assert!(!folder.exists());
    }
}
