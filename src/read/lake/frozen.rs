//! Stores that serve exactly the listed versions of files: a file that was replaced or deleted
//! since is an error.
//!
//! The store itself compares the tag that it gave each file when it was listed. Stores that give no
//! tag are trusted, and so are weak tags, which web servers do not compare. Files on disk are
//! checked after reading, because ranges of them are read without a conditional request.

use crate::store::forward::forward;
use crate::store::location;
use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore,
    ObjectStoreExt, Result, coalesce_ranges,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Number of recently read files to remember, as candidates if one is damaged: a few per thread.
const MAX_LATEST: usize = 64;

/// The files of all tables. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListedFiles(Arc<Files>);

#[derive(Debug, Default)]
struct Files {
    /// Tags by store and path.
    tags: RwLock<HashMap<String, HashMap<Path, String>>>,
    /// Store and path of the most recently read files.
    latest: Mutex<VecDeque<(String, Path)>>,
    /// Text files that are read in one part, because a row was found to continue past the end of a
    /// part.
    whole: Mutex<HashSet<Path>>,
}

impl ListedFiles {
    /// Records a file as it was listed; `root` is the URL of its store.
    pub(crate) fn note(&self, root: &str, meta: &ObjectMeta) {
        let tag = meta.e_tag.iter().find(|tag| !tag.starts_with("W/"));
        let Some(tag) = tag else { return };
        let mut stores = self.0.tags.write().unwrap_or_else(PoisonError::into_inner);
        let files = stores.entry(root.to_string()).or_default();
        files.insert(meta.location.clone(), tag.clone());
    }

    fn tag(&self, root: &str, file: &Path) -> Option<String> {
        let stores = self.0.tags.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(root)?.get(file).cloned()
    }

    fn is_read(&self, root: &str, file: &Path) {
        let mut latest = self.0.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|(store, path)| (store.as_str(), path) != (root, file));
        latest.push_front((root.to_string(), file.clone()));
        latest.truncate(MAX_LATEST);
    }

    /// Store and path of the files of which ranges were read most recently, latest first.
    pub(crate) fn latest(&self) -> Vec<(String, Path)> {
        let latest = self.0.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.iter().cloned().collect()
    }

    /// Makes later reads treat the file as one part.
    pub(crate) fn read_whole(&self, file: &Path) {
        self.whole().insert(file.clone());
    }

    fn whole(&self) -> MutexGuard<'_, HashSet<Path>> {
        self.0.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is read in one part.
    pub(crate) fn is_whole(&self, file: &Path) -> bool {
        self.whole().contains(file)
    }

    /// Number of files that are read in one part.
    pub(crate) fn n_whole(&self) -> usize {
        self.whole().len()
    }

    /// Wraps a store so that reads return the listed versions only.
    pub(crate) fn of(&self, root: &str, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(ListedStore {
            inner,
            root: root.to_string(),
            listed: self.clone(),
        })
    }
}

#[derive(Debug)]
struct ListedStore {
    inner: Arc<dyn ObjectStore>,
    root: String,
    listed: ListedFiles,
}

impl std::fmt::Display for ListedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl ListedStore {
    /// The error for a listed file that has changed or vanished; other errors stay as they are.
    fn changed(&self, file: &Path, e: Error) -> Error {
        let what = match &e {
            Error::Precondition { .. } => "replaced",
            Error::NotFound { .. } => "deleted",
            _ => return e,
        };
        Error::Precondition {
            path: location::location(self.root.trim_end_matches('/'), file),
            source: format!("was {what} while the run was reading").into(),
        }
    }
}

#[async_trait]
impl ObjectStore for ListedStore {
    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        let Some(tag) = self.listed.tag(&self.root, location) else {
            return self.inner.get_opts(location, options).await;
        };
        options.if_match.get_or_insert(tag);
        self.inner
            .get_opts(location, options)
            .await
            .map_err(|e| self.changed(location, e))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.listed.is_read(&self.root, location);
        if !self.root.starts_with("file:") {
            let get = |range| self.get_range(location, range);
            return coalesce_ranges(ranges, get, OBJECT_STORE_COALESCE_DEFAULT).await;
        }
        let got = self.inner.get_ranges(location, ranges).await;
        if let Some(tag) = self.listed.tag(&self.root, location) {
            let now = self
                .inner
                .head(location)
                .await
                .map_err(|e| self.changed(location, e))?;
            if now.e_tag != Some(tag) {
                let (path, source) = (location.to_string(), "".into());
                return Err(self.changed(location, Error::Precondition { path, source }));
            }
        }
        got
    }

    forward!(inner: put_opts, put_multipart_opts, delete_stream, list, list_with_offset, list_with_delimiter, copy_opts);
}
