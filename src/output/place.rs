//! The location of a pipeline's tables: a store, a path in it, and the paths below.
//!
//! ```text
//! <output>/current.json                            the pointer: which version is the result
//! <output>/versions/<run>/<table>/part-0.parquet   next to an empty _SUCCESS
//! <output>/versions/<run>/run.json                 the run record and other JSON
//! <output>/versions/<run>/files.json               size and hash of each file of the version
//! <output>/ledger/<kind>-<checksum>.parquet        objects of the ledgers of all versions
//! <output>/runs/<run>.json                         the same record, which outlives its version
//! <output>/work/<plan>/                            checkpoints of unfinished runs and of executors
//! <output>/work/<plan>.made                        the record that gyre has made this folder
//! ```
//!
//! `commit` describes how a version becomes the result, `folder` what a file system adds, and
//! `checkpoint` how finished work is kept.

use crate::error::{Error, Kind, Result};
use crate::output::folder::Folder;
use crate::output::in_flight::Writes;
use crate::output::layout::{PART, RUNS, VERSIONS, unique};
use crate::output::marks::FileMark;
use crate::output::pointer::Claim;
use crate::read::paths::current::Current;
use crate::store::Stores;
use crate::store::no_links::NoLinks;
use crate::store::seal::json;
use crate::store::secrets::hide;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest record or other JSON of a run that is read, in bytes.
pub(crate) const LARGEST_RECORD: u64 = 256 << 20;

/// The content of a folder of an output.
pub(crate) struct FolderContent {
    pub bytes: u64,
    /// When an object in it was last written.
    pub newest: Timestamp,
}

impl Default for FolderContent {
    fn default() -> FolderContent {
        FolderContent {
            bytes: 0,
            newest: Timestamp::MIN,
        }
    }
}

/// Where the tables of a pipeline go.
pub struct Output {
    /// The store that holds the tables.
    pub store: Arc<dyn ObjectStore>,
    root: Path,
    shown: String,
    /// The folder itself, if the output is on a file system.
    pub(crate) folder: Option<Folder>,
    /// The version that is being written through this value.
    claim: Mutex<Option<Claim>>,
    /// Whether the latest run may be the result, or its failure has a record.
    pub(crate) is_recorded: tokio::sync::Mutex<bool>,
    pub(crate) writes: Writes,
    /// Writes files beside the tables of a version before it becomes the result.
    pub(crate) companion: Option<Arc<dyn Companion>>,
    /// What this process has written to the files of versions.
    marks: Mutex<BTreeMap<Path, FileMark>>,
}

/// Writes a file beside the tables of a version, under the same commit.
#[async_trait]
pub(crate) trait Companion: Send + Sync {
    /// Writes the file of the version `staged`, which will replace the result of the run `before`.
    ///
    /// # Errors
    /// If the file cannot be written: the version does not become the result.
    async fn write(&self, output: &Output, staged: &Current, before: Option<&str>) -> Result<()>;
}

impl Output {
    /// Sets what is written beside the tables of every version.
    #[cfg(feature = "report")]
    pub(crate) fn set_companion(&mut self, companion: Arc<dyn Companion>) {
        self.companion = Some(companion);
    }

    /// Opens a folder or URL. Nothing is created before something is written.
    ///
    /// # Errors
    /// If the location is not valid or its store cannot be set up.
    pub fn open(location: &str, stores: &Stores) -> Result<Output> {
        let (place, writes) = (stores.open(location)?, Writes::default());
        let store: Arc<dyn ObjectStore> = match place.folder {
            Some(_) => Arc::new(NoLinks::new(place.store, place.path.clone())),
            None => place.store,
        };
        Ok(Output {
            shown: location.to_string(),
            folder: place.folder.map(Folder::new),
            writes: writes.clone(),
            ..Output::in_store(writes.of(store), place.path)
        })
    }

    /// Sets how long to wait for another process that holds the lock of a folder. The default is
    /// [`LOCK_TIMEOUT`](super::folder::LOCK_TIMEOUT).
    pub(crate) fn set_lock_timeout(&mut self, timeout: Duration) {
        if let Some(folder) = &mut self.folder {
            folder.patience = timeout;
        }
    }

    /// An output in any store, for tests and embedders. Writes are not tracked: a caller that drops
    /// a write has to make sure that it ends.
    pub fn in_store(store: Arc<dyn ObjectStore>, root: Path) -> Output {
        let shown = root.to_string();
        Output {
            store,
            root,
            shown,
            folder: None,
            claim: Mutex::default(),
            is_recorded: tokio::sync::Mutex::default(),
            writes: Writes::default(),
            companion: None,
            marks: Mutex::default(),
        }
    }

    /// The same place, for reading only: it has no claim and no lock.
    pub(crate) fn for_reading(&self) -> Output {
        Output {
            shown: self.shown.clone(),
            ..Output::in_store(Arc::clone(&self.store), self.root.clone())
        }
    }

    pub(crate) fn at(&self, parts: &[&str]) -> Path {
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.fold(self.root.clone(), |path, part| path.join(*part))
    }

    /// The folder of a version.
    pub fn version(&self, run: &str) -> Path {
        self.at(&[VERSIONS, run])
    }

    /// The path of a table file that a run writes.
    pub fn staged(&self, run: &str, table: &str) -> Path {
        self.at(&[VERSIONS, run, table, PART])
    }

    /// Size in bytes of a table that a run has written.
    pub(crate) async fn staged_bytes(&self, run: &str, table: &str) -> Result<u64> {
        let path = self.staged(run, table);
        let found = self.store.head(&path).await;
        Ok(found.map_err(|e| self.failed(&path, "read back", e))?.size)
    }

    /// The path of a file next to the tables of a version, such as `ledger.json`.
    pub(crate) fn version_file(&self, run: &str, name: &str) -> Path {
        self.at(&[VERSIONS, run, name])
    }

    /// The path of a table file of a result.
    pub fn table(&self, result: &Current, table: &str) -> Path {
        self.staged(&result.run, table)
    }

    /// Fails if these tables could never be written to this output, as far as can be seen without
    /// writing.
    pub(crate) fn check(&self, tables: &[&str]) -> Result<()> {
        self.folder
            .as_ref()
            .map_or(Ok(()), |folder| folder.check(tables))
    }

    /// The output as the user wrote it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// A path as the user would write it.
    pub fn show(&self, path: &Path) -> String {
        format!("{}/{}", self.shown.trim_end_matches('/'), self.inside(path))
    }

    /// A path relative to the output.
    pub(crate) fn inside<'p>(&self, path: &'p Path) -> &'p str {
        path.as_ref()
            .strip_prefix(self.root.as_ref())
            .unwrap_or(path.as_ref())
            .trim_start_matches('/')
    }

    pub(crate) fn failed(&self, path: &Path, what: &str, e: object_store::Error) -> Error {
        Error::store(format!("{} cannot be {what}", self.show(path)), e)
    }

    /// The time by the clock of the output. The age of objects is measured with it, because the
    /// clock of this machine may differ or jump. A store reports it as the modification time of an
    /// object that was just put.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        if self.folder.is_some() {
            return Ok(Timestamp::now());
        }
        // If the removal fails, `clean` later takes the object for a dead version.
        let path = self.version_file(&format!("clock-{}", unique()?), "now");
        self.put(&path, Vec::new()).await?;
        let found = self.store.head(&path).await;
        self.store.delete(&path).await.ok();
        let found = found.map_err(|e| self.failed(&path, "read back", e))?;
        let seconds = Timestamp::from_second(found.last_modified.timestamp());
        Ok(seconds.unwrap_or(Timestamp::MIN))
    }

    /// Writes a run record without secrets. Records are for people; nothing reads them back to
    /// resume.
    pub(crate) async fn put_record(&self, path: &Path, record: &impl Serialize) -> Result<()> {
        let record = json(record)?;
        let record = hide(&String::from_utf8_lossy(&record)).into_owned();
        self.put(path, record.into_bytes()).await
    }

    /// Reads a JSON object, or `None` if it does not exist.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let Some(bytes) = self.bytes(path, LARGEST_RECORD).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            let message = format!("{} is damaged: it cannot be parsed", self.show(path));
            Error::with_source(Kind::Input, message, e)
        })
    }

    /// The bytes of a file of at most `most` bytes, if it exists.
    ///
    /// # Errors
    /// [`Kind::Input`] for a larger file, which is not read.
    pub(crate) async fn bytes(&self, path: &Path, most: u64) -> Result<Option<Bytes>> {
        let found = match self.store.get(path).await {
            Ok(found) if found.meta.size > most => {
                let (shown, size) = (self.show(path), found.meta.size);
                return Err(Error::input(format!(
                    "{shown} is damaged: it has {size} bytes, and gyre writes at most {most}"
                )));
            }
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        };
        match found {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, "read", e)),
        }
    }

    /// Writes an object and replaces any existing one. A file of a version is listed with its size
    /// and hash when the version becomes the result.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        if path.prefix_matches(&self.at(&[VERSIONS])) {
            self.mark(path, FileMark::of(&bytes));
        }
        self.store
            .put(path, PutPayload::from(bytes))
            .await
            .map_err(|e| self.failed(path, "written", e))
            .map(|_| ())
    }

    /// Removes an object, unless it is gone already. If it cannot, the error says that the object
    /// cannot be `what`.
    pub(crate) async fn delete(&self, path: &Path, what: &str) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed(path, what, e)),
        }
    }

    /// The path of the record of a run, which outlives its version.
    pub(crate) fn run_record(&self, run: &str) -> Path {
        self.at(&[RUNS, &format!("{run}.json")])
    }

    /// All objects below a path.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>> {
        let listed = self.store.list(Some(path)).try_collect().await;
        listed.map_err(|e| self.failed(path, "listed", e))
    }

    /// The folders in one such as `versions`, by name.
    pub(crate) async fn folders_in(&self, place: &str) -> Result<BTreeMap<String, FolderContent>> {
        let mut found: BTreeMap<String, FolderContent> = BTreeMap::new();
        let path = self.at(&[place]);
        for meta in self.list(&path).await? {
            let mut inside = meta.location.prefix_match(&path).into_iter().flatten();
            let Some(name) = inside.next() else { continue };
            let written = Timestamp::from_second(meta.last_modified.timestamp());
            let folder = found.entry(name.as_ref().to_string()).or_default();
            folder.bytes += meta.size;
            folder.newest = written.unwrap_or(Timestamp::MAX).max(folder.newest);
        }
        if let Some(folder) = &self.folder {
            // The store does not list partial files of dead processes.
            let entries = folder.folders_in(place);
            for (name, changed) in entries.map_err(|e| folder.failed("listed", e))? {
                let folder = found.entry(name).or_default();
                folder.newest = folder.newest.max(changed);
            }
        }
        Ok(found)
    }

    /// Removes a folder in one such as `versions`, with its content. Callers know that gyre has
    /// made it. Nothing else in gyre removes folders with content.
    pub(crate) async fn remove(&self, place: &str, name: &str) -> Result<()> {
        let path = self.at(&[place, name]);
        if let Some(folder) = &self.folder {
            return folder.remove(place, name);
        }
        let found = self.list(&path).await?.into_iter();
        let found = stream::iter(found.map(|meta| Ok(meta.location))).boxed();
        let gone = self.store.delete_stream(found).filter(|one| {
            let is_failure = !matches!(one, Ok(_) | Err(object_store::Error::NotFound { .. }));
            std::future::ready(is_failure)
        });
        let failures: Vec<_> = gone.collect().await;
        match failures.into_iter().next() {
            Some(Err(e)) => Err(self.failed(&path, "removed", e)),
            _ => Ok(()),
        }
    }

    pub(crate) fn marks(&self) -> MutexGuard<'_, BTreeMap<Path, FileMark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn claim(&self) -> MutexGuard<'_, Option<Claim>> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
