//! The tables of one version of a result, as lazy queries.
//!
//! In: an [`Output`] and the id of a run. Out: [`LazyFrame`]s over its Parquet files. Polars reads
//! local files in place. Tables in an object store are copied to a temporary folder when they are
//! scanned for the first time.

use crate::error::{Error, Kind, Result};
use crate::output::files::damaged;
use crate::output::marks::{FileMark, FileMarks};
use crate::output::place::Output;
use crate::read::paths::current::Current;
use arrow::datatypes::{DataType, Field};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use polars::prelude::{HiveOptions, LazyFrame, PlRefPath, PolarsError, ScanArgsParquet};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

/// The tables of one version of a result.
pub(crate) struct Tables {
    /// The version.
    pub current: Current,
    /// The output as the user wrote it.
    pub shown: String,
    files: BTreeMap<String, TableFile>,
    /// Removed with the value.
    _copies: Option<TempDir>,
}

/// The file of a table on this machine.
struct TableFile {
    path: PathBuf,
    /// The same file as the user would write it.
    shown: String,
    /// What was written to it, and whether that has been compared. `None` for a version whose run
    /// has not ended.
    mark: Option<(FileMark, OnceLock<()>)>,
}

impl Tables {
    /// Opens the result in place, or the version of an earlier run that is kept.
    ///
    /// # Errors
    /// If there is no result, if the run is not one of those kept, or if the store fails.
    pub(crate) async fn open(output: &Output, run: Option<&str>) -> Result<Tables> {
        let Some(mut current) = output.current().await? else {
            let what = format!("{} holds no result of gyre", output.shown());
            return Err(Error::input(what));
        };
        if let Some(run) = run {
            current = output.kept(&current, run).await?;
            if let Some(what) = output.damage(&current).await? {
                return Err(Error::input(what));
            }
        }
        Tables::of(output, current).await
    }

    /// Opens the tables of a version that has been the result.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn of(output: &Output, current: Current) -> Result<Tables> {
        let marks = output.file_marks(&current.run).await?;
        Tables::marked(output, current, Some(marks)).await
    }

    /// Opens the tables of a version whose run has not ended.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn staged(output: &Output, current: Current) -> Result<Tables> {
        Tables::marked(output, current, None).await
    }

    async fn marked(output: &Output, current: Current, marks: Option<FileMarks>) -> Result<Tables> {
        let names = current.tables.keys().cloned().collect::<Vec<_>>();
        let mut files = BTreeMap::new();
        let mut copies = None;
        for (at, name) in names.into_iter().enumerate() {
            let path = output.table(&current, &name);
            let shown = output.show(&path);
            let mark = match &marks {
                None => None,
                Some(marks) => {
                    let mark = marks.table(&name).cloned();
                    Some((mark.ok_or_else(|| damaged(&shown))?, OnceLock::new()))
                }
            };
            let path = match output.local(&path) {
                Some(file) => file,
                None => {
                    let folder = match &mut copies {
                        Some(folder) => folder,
                        none => none.insert(tempfile::tempdir().map_err(|e| {
                            let what = "no temporary folder can be made for the tables";
                            Error::with_source(Kind::Resources, what, e)
                        })?),
                    };
                    // The name of a table does not choose a file on this machine.
                    let file = folder.path().join(format!("{at}.parquet"));
                    copy(output, &path, &file).await?;
                    file
                }
            };
            files.insert(name, TableFile { path, shown, mark });
        }
        Ok(Tables {
            shown: output.shown().to_string(),
            current,
            files,
            _copies: copies,
        })
    }

    /// The names of the tables, in alphabetical order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether there is a table of this name.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.files.contains_key(table)
    }

    /// The number of rows of a table; 0 if there is no such table.
    pub(crate) fn rows(&self, table: &str) -> u64 {
        self.current.tables.get(table).copied().unwrap_or_default()
    }

    /// A table as a lazy query.
    ///
    /// # Errors
    /// If the result has no such table, or its bytes are not those that were written.
    pub(crate) fn scan(&self, table: &str) -> Result<LazyFrame> {
        let file = self.files.get(table).ok_or_else(|| {
            let known = self.names().collect::<Vec<_>>().join(", ");
            let shown = &self.shown;
            Error::spec(format!("{shown} has no table `{table}`; it has {known}"))
        })?;
        file.verify()?;
        let path = PlRefPath::from(file.path.to_string_lossy().as_ref());
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

impl TableFile {
    fn unread(&self, e: std::io::Error) -> Error {
        Error::store(format!("{} cannot be read", self.shown), e)
    }

    /// Compares the file with its hash, once.
    fn verify(&self) -> Result<()> {
        let Some((mark, is_verified)) = &self.mark else {
            return Ok(());
        };
        if is_verified.get().is_some() {
            return Ok(());
        }
        let hash = || {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(File::open(&self.path)?)?;
            Ok(FileMark::new(hasher.count(), &hasher))
        };
        let found = hash().map_err(|e| self.unread(e))?;
        if !mark.is(&found) {
            return Err(damaged(&self.shown));
        }
        self.check(mark.blake3.is_none())?;
        is_verified.get_or_init(|| ());
        Ok(())
    }

    /// Checks that the file is what a run of gyre can write: Polars panics for lists of no numbers,
    /// and does not compare the checksums of `pages`.
    fn check(&self, pages: bool) -> Result<()> {
        let wrong =
            |e: ParquetError| Error::with_source(Kind::Input, damaged(&self.shown).full(), e);
        let file = File::open(&self.path).map_err(|e| self.unread(e))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(wrong)?;
        let of_nothing = |field: &&Arc<Field>| matches!(field.data_type(), DataType::FixedSizeList(_, width) if *width < 1);
        if let Some(field) = reader.schema().fields().iter().find(of_nothing) {
            let what = format!("the lists of its column `{}` have no numbers", field.name());
            let damaged = damaged(&self.shown).full();
            return Err(Error::input(format!("{damaged}: {what}")));
        }
        if pages {
            for batch in reader.build().map_err(wrong)? {
                batch.map_err(|e| wrong(e.into()))?;
            }
        }
        Ok(())
    }
}

/// The error of a query over a table.
pub(crate) fn failed(shown: &str, table: &str, e: PolarsError) -> Error {
    let what = format!("the table `{table}` of {shown} cannot be read");
    Error::with_source(Kind::Input, what, e)
}

async fn copy(output: &Output, from: &object_store::path::Path, to: &PathBuf) -> Result<()> {
    let unread = |e: object_store::Error| output.failed(from, "read", e);
    let unwritten = |e: std::io::Error| {
        let what = format!("{} cannot be copied to a temporary file", output.show(from));
        Error::with_source(Kind::Resources, what, e)
    };
    let mut file = File::create_new(to).map_err(unwritten)?;
    let found = output.store.get(from).await.map_err(unread)?;
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.try_next().await.map_err(unread)? {
        file.write_all(&piece).map_err(unwritten)?;
    }
    file.flush().map_err(unwritten)
}
