//! The output as a whole: staging, promotion, the pointer to the current result, the run records.
//!
//! Tables lie in `<output>/<table>/part-0.parquet` beside an empty `_SUCCESS`. A run writes to `<output>/.staging/<run>/`, then writes
//! down there that all of it is to be promoted, takes the `_SUCCESS`es away, moves each file over the one it replaces, writes
//! `current.json`, and puts the `_SUCCESS`es back. The next run goes on where one died in the middle of that.

use super::Table;
use crate::error::{Error, Kind, Result};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const STAGING: &str = ".staging";
const CURRENT: &str = "current.json";
const PART: &str = "part-0.parquet";
const SUCCESS: &str = "_SUCCESS";

/// Where the tables of a pipeline go.
pub struct Output {
    pub store: Arc<dyn ObjectStore>,
    root: Path,
    shown: String,
    /// The folder itself, where the output is one.
    folder: Option<PathBuf>,
}

/// What `current.json` says of the result that is in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    pub schema: u32,
    pub run: String,
    /// Hash of the plan and its inputs; a run with the same hash has nothing to do.
    pub plan: String,
    /// Whether every partition is in the tables.
    pub complete: bool,
    /// Rows of each table.
    pub tables: BTreeMap<String, u64>,
}

impl Output {
    /// Opens a folder or URL. Nothing is created before something is written.
    pub fn open(location: &str) -> Result<Output> {
        let wrong = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::with_source(
                Kind::Spec,
                format!("output {location} is no folder or supported URL"),
                e,
            )
        };
        if let Some((scheme, _)) = location
            .split_once("://")
            .filter(|(scheme, _)| *scheme != "file")
        {
            let url = location
                .parse()
                .map_err(|e: url::ParseError| wrong(e.into()))?;
            let (store, root) = object_store::parse_url(&url).map_err(|e| {
                Error::with_source(
                    Kind::Spec,
                    format!("output {location}: this build cannot write to `{scheme}` locations"),
                    e,
                )
            })?;
            return Ok(Output {
                store: store.into(),
                root,
                shown: location.to_string(),
                folder: None,
            });
        }
        let folder = std::path::absolute(location.trim_start_matches("file://"))
            .map_err(|e| wrong(e.into()))?;
        let root = Path::from_absolute_path(&folder).map_err(|e| wrong(e.into()))?;
        let store = object_store::local::LocalFileSystem::new().with_automatic_cleanup(true);
        Ok(Output {
            store: Arc::new(store),
            root,
            shown: location.to_string(),
            folder: Some(folder),
        })
    }

    /// An output in any store, for tests and embedders.
    pub fn in_store(store: Arc<dyn ObjectStore>, root: Path) -> Output {
        let shown = root.to_string();
        Output {
            store,
            root,
            shown,
            folder: None,
        }
    }

    pub(super) fn at(&self, parts: &[&str]) -> Path {
        parts
            .iter()
            .fold(self.root.clone(), |path, part| path.join(*part))
    }

    pub fn staged(&self, run: &str, table: &str) -> Path {
        self.at(&[STAGING, run, table, PART])
    }

    /// The file of a table that is in place.
    pub fn table(&self, table: &str) -> Path {
        self.at(&[table, PART])
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

    fn failed(&self, path: &Path, what: &str, e: object_store::Error) -> Error {
        Error::with_source(
            Kind::Store,
            format!("{} cannot be {what}", self.show(path)),
            e,
        )
    }

    /// The result in place, if there is one and its tables are whole.
    pub async fn current(&self) -> Result<Option<Current>> {
        let Some(current) = self.pointer(&self.at(&[CURRENT])).await? else {
            return Ok(None);
        };
        for table in current.tables.keys() {
            for file in [PART, SUCCESS] {
                match self.store.head(&self.at(&[table, file])).await {
                    Ok(_) => (),
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    Err(e) => return Err(self.failed(&self.at(&[table, file]), "read", e)),
                }
            }
        }
        Ok(Some(current))
    }

    /// A `current.json`, if there is a whole one.
    async fn pointer(&self, path: &Path) -> Result<Option<Current>> {
        let bytes = self.bytes(path).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// What a file holds, if there is one.
    pub(super) async fn bytes(&self, path: &Path) -> Result<Option<Bytes>> {
        match self.store.get(path).await {
            Ok(found) => {
                let bytes = found.bytes().await;
                bytes.map(Some).map_err(|e| self.failed(path, "read", e))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, "read", e)),
        }
    }

    /// Puts the staged tables in the place of the old ones.
    ///
    /// From the first step to the last some `_SUCCESS` is missing, so a promotion that was cut short is never taken for a result.
    pub async fn promote(&self, current: &Current) -> Result<()> {
        self.put(&self.at(&[STAGING, CURRENT]), json(current)?)
            .await?;
        self.replace(current).await
    }

    /// Ends a promotion that was cut short, so that neither result is lost: of the old one only some tables may be left.
    pub async fn recover(&self) -> Result<()> {
        if let Some(current) = self.pointer(&self.at(&[STAGING, CURRENT])).await? {
            self.replace(&current).await?;
            self.clear_staging().await?;
        }
        Ok(())
    }

    /// Moves every staged table over the one in place, as far as that is still to be done.
    async fn replace(&self, current: &Current) -> Result<()> {
        let tables: Vec<&str> = current.tables.keys().map(String::as_str).collect();
        // An earlier run may have written tables that this one does not.
        let all = Table::ALL.into_iter().map(Table::name);
        let gone: Vec<&str> = all.filter(|table| !tables.contains(table)).collect();
        for table in tables.iter().chain(&gone) {
            self.delete(&self.at(&[table, SUCCESS])).await?;
        }
        for table in &tables {
            let (from, to) = (self.staged(&current.run, table), self.table(table));
            match self.store.head(&from).await {
                Ok(_) => {
                    let renamed = self.store.rename(&from, &to).await;
                    renamed.map_err(|e| self.failed(&to, "put in place", e))?;
                }
                // It was moved before.
                Err(object_store::Error::NotFound { .. }) => (),
                Err(e) => return Err(self.failed(&from, "read", e)),
            }
        }
        self.put(&self.at(&[CURRENT]), json(current)?).await?;
        for table in &gone {
            self.delete(&self.at(&[table, PART])).await?;
        }
        for table in &tables {
            self.put(&self.at(&[table, SUCCESS]), Vec::new()).await?;
        }
        Ok(())
    }

    /// Writes the record of a run beside the tables.
    pub async fn record(&self, run: &str, record: &impl Serialize) -> Result<()> {
        self.put(&self.at(&["runs", &format!("{run}.json")]), json(record)?)
            .await
    }

    /// Removes everything that is staged, of this run or of one that died.
    pub async fn clear_staging(&self) -> Result<()> {
        // What is taken away must not be promoted any more.
        self.delete(&self.at(&[STAGING, CURRENT])).await?;
        let staging = self.at(&[STAGING]);
        let staged: Vec<_> = self
            .store
            .list(Some(&staging))
            .try_collect()
            .await
            .map_err(|e| self.failed(&staging, "listed", e))?;
        for meta in staged {
            self.delete(&meta.location).await?;
        }
        if let Some(folder) = &self.folder {
            // Half-written files have no name in the store, and empty folders are none of its business.
            std::fs::remove_dir_all(folder.join(STAGING)).ok();
            std::fs::remove_dir(folder).ok();
        }
        Ok(())
    }

    pub(super) async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        self.store
            .put(path, PutPayload::from(bytes))
            .await
            .map_err(|e| self.failed(path, "written", e))
            .map(|_| ())
    }

    async fn delete(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed(path, "removed", e)),
        }
    }
}

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::with_source(Kind::Bug, "a record cannot be written as JSON", e))?;
    bytes.push(b'\n');
    Ok(bytes)
}
