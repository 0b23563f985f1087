//! Where the tables of a pipeline go: a store, a place in it, and the paths below.
//!
//! ```text
//! <output>/current.json                                  the pointer: which version is the result
//! <output>/versions/<run>/<table>/part-0.parquet         beside an empty _SUCCESS
//! <output>/versions/<run>/run.json                       the record of the run, and other JSON beside the tables
//! <output>/ledger/<kind>-<checksum>.parquet              what ledger.json beside the tables names, shared by versions
//! <output>/runs/<run>.json                               the same record, which outlives its version
//! <output>/work/<plan>/                                  what a run has finished before its end, and its executors
//! ```
//!
//! How a version becomes the result is told in `commit`; what a file system has besides, in `folder`; how work is kept, in `work`.

use crate::error::{Error, Kind, Result};
use crate::output::folder::Folder;
use crate::output::in_flight::Writes;
use crate::output::layout::{PART, VERSIONS, unique};
use crate::output::pointer::Claim;
use crate::read::paths::current::Current;
use crate::store::Stores;
use crate::store::seal::json;
use crate::store::secrets::hide;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is in a folder of an output.
pub(crate) struct Inside {
    pub bytes: u64,
    /// When something in it was last written.
    pub newest: Timestamp,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside {
            bytes: 0,
            newest: Timestamp::MIN,
        }
    }
}

/// Where the tables of a pipeline go.
pub struct Output {
    pub store: Arc<dyn ObjectStore>,
    root: Path,
    shown: String,
    /// The folder itself, where the output is one.
    pub(crate) folder: Option<Folder>,
    /// The version that is being written through this value.
    claim: Mutex<Option<Claim>>,
    /// The run that began last may be the result, or its failure has a record.
    pub(crate) is_recorded: AtomicBool,
    pub(crate) writes: Writes,
}

impl Output {
    /// Opens a folder or URL. Nothing is created before something is written.
    pub fn open(location: &str, stores: &Stores) -> Result<Output> {
        let (place, writes) = (stores.open(location)?, Writes::default());
        Ok(Output {
            store: writes.of(place.store),
            root: place.path,
            shown: location.to_string(),
            folder: place.folder.map(Folder::new),
            claim: Mutex::default(),
            is_recorded: AtomicBool::default(),
            writes,
        })
    }

    /// How long to wait for another process that holds the lock of a folder: [`LOCK_TIMEOUT`](super::LOCK_TIMEOUT) unless it is said.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        if let Some(folder) = &mut self.folder {
            folder.patience = timeout;
        }
    }

    /// An output in any store, for tests and embedders. Who drops a write to it has to see to it that it ends.
    pub fn in_store(store: Arc<dyn ObjectStore>, root: Path) -> Output {
        let shown = root.to_string();
        Output {
            store,
            root,
            shown,
            folder: None,
            claim: Mutex::default(),
            is_recorded: AtomicBool::default(),
            writes: Writes::default(),
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

    /// The file of a table that a run writes.
    pub fn staged(&self, run: &str, table: &str) -> Path {
        self.at(&[VERSIONS, run, table, PART])
    }

    /// Bytes of a table that a run has written.
    pub async fn staged_bytes(&self, run: &str, table: &str) -> Result<u64> {
        let path = self.staged(run, table);
        let found = self.store.head(&path).await;
        Ok(found.map_err(|e| self.failed(&path, "read back", e))?.size)
    }

    /// A file of a version beside its tables: `name` is such as `ledger.json`.
    pub fn beside(&self, run: &str, name: &str) -> Path {
        self.at(&[VERSIONS, run, name])
    }

    /// The file of a table of a result.
    pub fn table(&self, result: &Current, table: &str) -> Path {
        let folder = result.folder.split('/');
        let parts: Vec<&str> = folder.chain([table, PART]).collect();
        self.at(&parts)
    }

    /// An error where these tables could never be put in place here, as far as that shows without writing.
    pub fn check(&self, tables: &[&str]) -> Result<()> {
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
        let inside = path
            .as_ref()
            .strip_prefix(self.root.as_ref())
            .unwrap_or(path.as_ref());
        format!(
            "{}/{}",
            self.shown.trim_end_matches('/'),
            inside.trim_start_matches('/')
        )
    }

    pub(crate) fn failed(&self, path: &Path, what: &str, e: object_store::Error) -> Error {
        Error::store(format!("{} cannot be {what}", self.show(path)), e)
    }

    /// What time it is where the output is: the age of what is there is told by that clock, and the one of this machine may be another
    /// or have jumped. A store says it of an object that was put just now.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        if self.folder.is_some() {
            return Ok(Timestamp::now());
        }
        // Where removing it fails, it is taken for a version that a dead run has left.
        let path = self.beside(&format!("clock-{}", unique()?), "now");
        self.put(&path, Vec::new()).await?;
        let found = self.store.head(&path).await;
        self.store.delete(&path).await.ok();
        let found = found.map_err(|e| self.failed(&path, "read back", e))?;
        let seconds = Timestamp::from_second(found.last_modified.timestamp());
        Ok(seconds.unwrap_or(Timestamp::MIN))
    }

    /// Writes a JSON object, over any that is there.
    pub async fn put_json(&self, path: &Path, value: &impl Serialize) -> Result<()> {
        self.put(path, json(value)?).await
    }

    /// Writes the record of a run, which people read and nothing goes on from: without secrets.
    pub async fn put_record(&self, path: &Path, record: &impl Serialize) -> Result<()> {
        let record = json(record)?;
        let record = hide(&String::from_utf8_lossy(&record)).into_owned();
        self.put(path, record.into_bytes()).await
    }

    /// Reads a JSON object; nothing where there is none.
    pub async fn get_json<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let bytes = match self.store.get(path).await {
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        };
        match bytes {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| {
                let message = format!("{} cannot be understood", self.show(path));
                Error::with_source(Kind::Input, message, e)
            }),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, "read", e)),
        }
    }

    pub(crate) async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        let put = self.store.put(path, PutPayload::from(bytes)).await;
        put.map_err(|e| self.failed(path, "written", e)).map(|_| ())
    }

    /// All objects below a path.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>> {
        let listed = self.store.list(Some(path)).try_collect().await;
        listed.map_err(|e| self.failed(path, "listed", e))
    }

    /// What folders there are in one such as `versions`.
    pub(crate) async fn inside(&self, place: &str) -> Result<BTreeMap<String, Inside>> {
        let mut found: BTreeMap<String, Inside> = BTreeMap::new();
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
            // Files that a dead process was writing are not listed.
            let entries = folder.inside(place);
            for (name, changed) in entries.map_err(|e| folder.failed("listed", e))? {
                let folder = found.entry(name).or_default();
                folder.newest = folder.newest.max(changed);
            }
        }
        Ok(found)
    }

    /// Removes a folder in one such as `versions`, and everything in it.
    pub(crate) async fn remove(&self, place: &str, name: &str) -> Result<()> {
        let path = self.at(&[place, name]);
        if let Some(folder) = &self.folder {
            return folder.remove(place, name);
        }
        let found = self.list(&path).await?.into_iter();
        let found = stream::iter(found.map(|meta| Ok(meta.location))).boxed();
        let gone = self.store.delete_stream(found);
        let gone = gone.filter(|one| {
            let is_failure = !matches!(one, Ok(_) | Err(object_store::Error::NotFound { .. }));
            std::future::ready(is_failure)
        });
        let failures: Vec<_> = gone.collect().await;
        match failures.into_iter().next() {
            Some(Err(e)) => Err(self.failed(&path, "removed", e)),
            _ => Ok(()),
        }
    }

    pub(crate) fn claim(&self) -> MutexGuard<'_, Option<Claim>> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
