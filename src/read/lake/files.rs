//! Tables of a lake: their files, and how these are written.

use crate::read::formats::dialect::Dialect;
use crate::read::formats::format::Format;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::TableReference;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// The SQL of a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Query {
    /// The statement itself.
    Sql(String),
    /// The path of a file that holds it.
    File(String),
}

/// One input file as it was listed, with enough to detect that it has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// URL or path of the file.
    pub location: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change (RFC 3339).
    pub modified: String,
    /// The tag that the store gave to this version of the file, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// blake3 hash of the content, if the pipeline asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl InputFile {
    /// What identifies this version of the file: its content hash if known, else size, time and
    /// tag.
    pub(crate) fn fingerprint(&self) -> InputFile {
        let mut print = self.clone();
        if print.content.is_some() {
            (print.modified, print.e_tag) = (String::new(), None);
        }
        print
    }
}

/// A table as it was listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    from = "crate::read::lake::files::Packed",
    into = "crate::read::lake::files::Packed"
)]
pub struct LakeTable {
    /// Name in SQL.
    pub name: String,
    /// Format of the files, as [`Format::name`](crate::read::formats::format::Format::name).
    pub format: Cow<'static, str>,
    /// How text files are written.
    pub dialect: Dialect,
    /// The URL of the store that holds the files.
    pub root: String,
    /// The files, ordered by location.
    pub files: Vec<InputFile>,
    /// The values of `partition_columns`, per file.
    pub folders: Vec<Vec<Option<String>>>,
    /// All columns.
    pub schema: SchemaRef,
    /// Columns with one value per file, which `schema` includes: of Hive folders, and the path.
    pub partition_columns: Vec<String>,
    /// The columns of the files, if the pipeline gives some of them other types or nulls.
    pub(crate) stored: Option<SchemaRef>,
    /// The columns that files hold in several types, to which the keys apply in the type of each.
    pub(crate) by_file: BTreeSet<String>,
}

impl LakeTable {
    /// The same table with the files at these indices; `None` if the range is out of bounds.
    pub(crate) fn of_files(&self, files: Range<usize>) -> Option<LakeTable> {
        Some(LakeTable {
            files: self.files.get(files.clone())?.to_vec(),
            folders: self.folders.get(files)?.to_vec(),
            ..self.clone()
        })
    }
}

/// The paths and the format of a table, as the pipeline writes them.
pub struct TableSource<'a> {
    /// Name in SQL.
    pub name: &'a str,
    /// Paths, URLs or globs.
    pub paths: &'a [String],
    /// Format of the files.
    pub format: Format,
    /// How text files are written.
    pub dialect: Dialect,
    /// The column with the path of the file of each row, if the pipeline asks for one.
    pub filename: Option<&'a str>,
}

impl<'a> TableSource<'a> {
    /// A table of Parquet files.
    pub fn of_parquet(name: &'a str, paths: &'a [String]) -> Self {
        TableSource {
            name,
            paths,
            format: Format::Parquet,
            dialect: Dialect::default(),
            filename: None,
        }
    }
}

/// A table in the form in which it is serialized to executors.
#[derive(Serialize, Deserialize)]
pub(crate) struct Packed {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) dialect: Dialect,
    pub(crate) root: String,
    pub(crate) files: Vec<(String, u64, String, Option<String>)>,
    pub(crate) folders: Vec<Vec<Option<String>>>,
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub(crate) columns: Vec<Field>,
    pub(crate) partition_columns: Vec<String>,
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub(crate) stored: Vec<Field>,
    pub(crate) by_file: BTreeSet<String>,
}

impl From<LakeTable> for Packed {
    fn from(table: LakeTable) -> Packed {
        let file = |f: InputFile| (f.location, f.size_bytes, f.modified, f.e_tag);
        let plain = |schema: &SchemaRef| {
            let fields = schema.fields().iter();
            fields.map(|field| field.as_ref().clone()).collect()
        };
        Packed {
            name: table.name,
            format: table.format.to_string(),
            dialect: table.dialect,
            root: table.root,
            folders: table.folders,
            files: table.files.into_iter().map(file).collect(),
            columns: plain(&table.schema),
            partition_columns: table.partition_columns,
            stored: table.stored.as_ref().map(plain).unwrap_or_default(),
            by_file: table.by_file,
        }
    }
}

/// A table name that keeps its case.
pub(crate) fn ident_reference(name: &str) -> TableReference {
    TableReference::bare(name.to_string())
}
