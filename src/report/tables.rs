//! The tables of one version of a result, as lazy queries.
//!
//! In: an [`Output`] and the id of a run. Out: [`LazyFrame`]s over its Parquet files. Polars reads
//! local files in place. Tables in an object store are copied to a temporary folder when they are
//! scanned for the first time.

use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::read::paths::current::Current;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use polars::prelude::{HiveOptions, LazyFrame, PlRefPath, PolarsError, ScanArgsParquet};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

/// The tables of one version of a result.
pub struct Tables {
    /// The version.
    pub current: Current,
    /// The output as the user wrote it.
    pub shown: String,
    files: BTreeMap<String, PathBuf>,
    /// Removed with the value.
    _copies: Option<TempDir>,
}

impl Tables {
    /// Opens the result in place, or the version of an earlier run that is kept.
    ///
    /// # Errors
    /// If there is no result, if the run is not one of those kept, or if the store fails.
    pub async fn open(output: &Output, run: Option<&str>) -> Result<Tables> {
        let current = output.current().await?.ok_or_else(|| {
            let what = format!("{} holds no result of gyre", output.shown());
            Error::input(what)
        })?;
        let current = match run {
            None => current,
            Some(run) => output.kept(&current, run).await?,
        };
        Tables::of(output, current).await
    }

    /// Opens the tables of a version.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn of(output: &Output, current: Current) -> Result<Tables> {
        let names = current.tables.keys().cloned().collect::<Vec<_>>();
        let mut files = BTreeMap::new();
        let mut copies = None;
        for name in names {
            let path = output.table(&current, &name);
            let file = match output.local(&path) {
                Some(file) => file,
                None => {
                    let folder = match &mut copies {
                        Some(folder) => folder,
                        none => none.insert(tempfile::tempdir().map_err(|e| {
                            let what = "no temporary folder can be made for the tables";
                            Error::with_source(Kind::Resources, what, e)
                        })?),
                    };
                    let file = folder.path().join(format!("{name}.parquet"));
                    copy(output, &path, &file).await?;
                    file
                }
            };
            files.insert(name, file);
        }
        Ok(Tables {
            shown: output.shown().to_string(),
            current,
            files,
            _copies: copies,
        })
    }

    /// The names of the tables, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether there is a table of this name.
    pub fn has(&self, table: &str) -> bool {
        self.files.contains_key(table)
    }

    /// The number of rows of a table; 0 if there is no such table.
    pub fn rows(&self, table: &str) -> u64 {
        self.current.tables.get(table).copied().unwrap_or_default()
    }

    /// A table as a lazy query.
    ///
    /// # Errors
    /// If the result has no such table.
    pub fn scan(&self, table: &str) -> Result<LazyFrame> {
        let file = self.files.get(table).ok_or_else(|| {
            let known = self.names().collect::<Vec<_>>().join(", ");
            let shown = &self.shown;
            Error::spec(format!("{shown} has no table `{table}`; it has {known}"))
        })?;
        let path = PlRefPath::from(file.to_string_lossy().as_ref());
        // `*` and `[` in the name of a folder are no pattern.
        let args = ScanArgsParquet {
            glob: false,
            // Nor is `a=b` in it a partition.
            hive_options: HiveOptions {
                enabled: Some(false),
                ..HiveOptions::default()
            },
            // Minimum and maximum leave NaN out.
            use_statistics: false,
            ..ScanArgsParquet::default()
        };
        LazyFrame::scan_parquet(path, args).map_err(|e| failed(&self.shown, table, e))
    }
}

/// The error of a query over a table.
pub fn failed(shown: &str, table: &str, e: PolarsError) -> Error {
    let what = format!("the table `{table}` of {shown} cannot be read");
    Error::with_source(Kind::Input, what, e)
}

async fn copy(output: &Output, from: &object_store::path::Path, to: &PathBuf) -> Result<()> {
    let unread = |e: object_store::Error| {
        let what = format!("{} cannot be read", output.show(from));
        Error::with_source(Kind::Store, what, e)
    };
    let unwritten = |e: std::io::Error| {
        let what = format!("{} cannot be copied to a temporary file", output.show(from));
        Error::with_source(Kind::Resources, what, e)
    };
    let mut file = std::fs::File::create(to).map_err(unwritten)?;
    let found = output.store.get(from).await.map_err(unread)?;
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.try_next().await.map_err(unread)? {
        file.write_all(&piece).map_err(unwritten)?;
    }
    file.flush().map_err(unwritten)
}
