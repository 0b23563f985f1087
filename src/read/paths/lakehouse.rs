//! Folders whose Parquet files must not be read directly: Delta, Iceberg and Hudi tables, whose
//! files may hold deleted rows, and outputs of gyre, which also hold earlier results.

use crate::error;
use crate::error::{Error, Result};
use crate::read::paths::current::{Current, LARGEST};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most objects of a folder `metadata` to inspect. Those of an Iceberg table are among the first.
const MAX_METADATA_OBJECTS: usize = 1000;

/// The kind of a marked folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FolderMark {
    /// A Delta Lake table.
    Delta,
    /// An Apache Iceberg table.
    Iceberg,
    /// An Apache Hudi table.
    Hudi,
    /// Possibly an output of gyre.
    Output,
}

impl FolderMark {
    fn name(self) -> &'static str {
        match self {
            FolderMark::Delta => "Delta",
            FolderMark::Iceberg => "Iceberg",
            FolderMark::Hudi => "Hudi",
            FolderMark::Output => "gyre",
        }
    }

    /// A command that exports a table to plain Parquet.
    fn export(self, table: &str) -> String {
        let table = table.replace('\'', "''");
        let (extension, scan) = match self {
            FolderMark::Delta => ("delta", "delta_scan"),
            FolderMark::Iceberg => ("iceberg", "iceberg_scan"),
            // DuckDB has no Hudi reader.
            _ => {
                return format!("spark.read.format('hudi').load('{table}').write.parquet('table')");
            }
        };
        format!(
            "duckdb -c \"INSTALL {extension}; LOAD {extension}; COPY (FROM {scan}('{table}')) TO 'table.parquet'\""
        )
    }
}

/// Marked folders and their kinds.
#[derive(Debug, Default)]
pub(crate) struct Marks(BTreeSet<(Path, FolderMark)>);

impl Marks {
    /// Records what a file or folder reveals about the folders above it.
    pub(crate) fn record(&mut self, path: &Path) {
        let parts: Vec<_> = path.parts().collect();
        let folder = |n: usize| Path::from_iter(parts[..n].iter().cloned());
        for (at, part) in parts.iter().enumerate() {
            let kind = match part.as_ref() {
                "_delta_log" => FolderMark::Delta,
                ".hoodie" => FolderMark::Hudi,
                "metadata" if parts.get(at + 1).is_some_and(|p| is_iceberg(p.as_ref())) => {
                    FolderMark::Iceberg
                }
                "current.json" if at + 1 == parts.len() => FolderMark::Output,
                _ => continue,
            };
            self.0.insert((folder(at), kind));
        }
    }

    /// The marked folders that contain a file.
    pub(crate) fn of(&self, file: &Path) -> impl Iterator<Item = &(Path, FolderMark)> {
        self.0
            .iter()
            .filter(|(folder, _)| file.prefix_matches(folder))
    }

    /// The marks at and above a folder, found by probing for each. A folder that cannot be accessed
    /// has none.
    pub(crate) async fn above(
        store: &Arc<dyn ObjectStore>,
        folder: &Path,
    ) -> Result<Marks, StoreError> {
        let parts: Vec<_> = folder.parts().collect();
        let folders = (0..=parts.len()).map(|n| Path::from_iter(parts[..n].iter().cloned()));
        let mut probes = Vec::new();
        for folder in folders {
            for place in ["_delta_log", ".hoodie", "metadata", "current.json"] {
                probes.push(probe(store, folder.clone().join(place)));
            }
        }
        let seen: Vec<Option<Path>> = stream::iter(probes).buffered(16).try_collect().await?;
        let mut marks = Marks::default();
        seen.iter().flatten().for_each(|path| marks.record(path));
        Ok(marks)
    }
}

/// Probes one place for the first object that marks a folder.
pub(crate) async fn probe(
    store: &Arc<dyn ObjectStore>,
    place: Path,
) -> Result<Option<Path>, StoreError> {
    let probed = async {
        match place.filename() {
            Some("current.json") => store.head(&place).await.map(|meta| Some(meta.location)),
            Some("metadata") => {
                let mut listed = store.list(Some(&place)).take(MAX_METADATA_OBJECTS);
                while let Some(meta) = listed.try_next().await? {
                    if meta.location.filename().is_some_and(is_iceberg) {
                        return Ok(Some(meta.location));
                    }
                }
                Ok(None)
            }
            _ => {
                let first = store.list(Some(&place)).try_next().await?;
                Ok(first.map(|meta| meta.location))
            }
        }
    };
    match probed.await {
        Err(e) if is_closed(&e) => Ok(None),
        probed => probed,
    }
}

/// Whether the store has nothing at the place, or denies access.
fn is_closed(e: &StoreError) -> bool {
    use StoreError::*;
    let is_kind = matches!(
        e,
        NotFound { .. }
            | PermissionDenied { .. }
            | Unauthenticated { .. }
            | NotSupported { .. }
            | NotImplemented { .. }
            | InvalidPath { .. }
    );
    is_kind || error::is_denied(e)
}

/// Iceberg metadata files: `v3.metadata.json`, `00003-<uuid>.metadata.json`.
fn is_iceberg(name: &str) -> bool {
    let version = name
        .strip_suffix(".metadata.json")
        .or_else(|| name.strip_suffix(".gz.metadata.json"));
    let version = version.map(|version| version.strip_prefix('v').unwrap_or(version));
    version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// The error for a path that reads a table of another format. `table` and `path` are shown in the
/// message; `is_at`: the path is the table, is inside it, or (`None`) matches files of it.
pub(crate) fn refused(kind: FolderMark, table: &str, path: &str, is_at: Option<bool>) -> Error {
    let what = match is_at {
        Some(true) => format!("{path} is"),
        Some(false) => format!("{path} lies in {table},"),
        None => format!("{path} reads {table},"),
    };
    let (name, export) = (kind.name(), kind.export(table));
    let article = if kind == FolderMark::Iceberg {
        "an"
    } else {
        "a"
    };
    Error::spec(format!(
        "{what} {article} {name} table, whose files may hold deleted rows; export it and read the export, or name its files one by one: {export}"
    ))
}

/// The current result of an output; `None` if `current.json` belongs to another program.
pub(crate) async fn output(
    store: &Arc<dyn ObjectStore>,
    folder: &Path,
) -> Result<Option<Current>, StoreError> {
    let got = match store.get(&folder.clone().join("current.json")).await {
        Ok(got) if got.meta.size > LARGEST => return Ok(None),
        Ok(got) => got.bytes().await?,
        Err(e) if is_closed(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(Current::parse(&got, "current.json").ok())
}

/// The error for a path that is a whole output instead of one of its tables. `shown` is the output.
pub(crate) fn whole_output(path: &str, shown: &str, is_at: bool, current: &Current) -> Error {
    let what = if is_at {
        format!("{path} is an output of gyre")
    } else {
        format!("{path} reads the output {shown} of gyre")
    };
    let shown = shown.trim_end_matches('/');
    let tables = current.tables.keys().map(|name| format!("{shown}/{name}"));
    Error::spec(format!(
        "{what}, which also holds earlier results; name one of its tables: {}",
        tables.collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_files_identify_tables() {
        let cases = [
            ("t/_delta_log/0.json", Some(("t", FolderMark::Delta))),
            ("t/_delta_log", Some(("t", FolderMark::Delta))),
            ("_delta_log/0.json", Some(("", FolderMark::Delta))),
            ("t/.hoodie/hoodie.properties", Some(("t", FolderMark::Hudi))),
            (
                "a/t/metadata/v1.metadata.json",
                Some(("a/t", FolderMark::Iceberg)),
            ),
            (
                "t/metadata/00001-9c12d441.metadata.json",
                Some(("t", FolderMark::Iceberg)),
            ),
            (
                "t/metadata/00001-9c.gz.metadata.json",
                Some(("t", FolderMark::Iceberg)),
            ),
            ("t/metadata/notes.json", None),
            ("t/metadata/table.metadata.json", None),
            ("t/metadata", None),
            ("out/current.json", Some(("out", FolderMark::Output))),
            ("t/a.parquet", None),
        ];
        for (path, expected) in cases {
            let mut marks = Marks::default();
            marks.record(&path.into());
            let expected = expected.map(|(folder, kind)| (Path::from(folder), kind));
            assert_eq!(marks.0.into_iter().next(), expected, "{path}");
        }
    }

    #[test]
    fn the_export_command_quotes_the_name_of_the_table() {
        let refusal = refused(FolderMark::Delta, "/lake/it's", "lake/it's", Some(true)).to_string();
        let line = "duckdb -c \"INSTALL delta; LOAD delta; COPY (FROM delta_scan('/lake/it''s')) TO 'table.parquet'\"";
        assert!(refusal.ends_with(line), "{refusal}");
    }
}
