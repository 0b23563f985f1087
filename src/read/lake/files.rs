//! Tables of a lake: where their files are and how they are written.

use crate::read::formats::csv::Dialect;
use crate::read::formats::format::Format;
use crate::words::Word;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::TableReference;
use serde::{Deserialize, Serialize};
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Query {
    /// The statement itself.
    Sql(String),
    /// The path of a file that holds it.
    File(String),
}

/// One input file as it was listed: enough to see that it has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    pub location: String,
    pub size_bytes: u64,
    pub modified: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// blake3 of its bytes, where the pipeline asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl InputFile {
    /// What tells it from another file of its name: its content where that is known, else what the store says of it.
    pub fn fingerprint(&self) -> InputFile {
        let mut print = self.clone();
        if print.content.is_some() {
            (print.modified, print.e_tag) = (String::new(), None);
        }
        print
    }
}

/// A table as it was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    from = "crate::read::lake::files::Packed",
    into = "crate::read::lake::files::Packed"
)]
pub struct Table {
    pub name: String,
    pub format: Word,
    /// How its files are written, where they are text.
    pub dialect: Dialect,
    /// The URL of the store that its files are in.
    pub root: String,
    /// In the order of their locations.
    pub files: Vec<InputFile>,
    /// Of each file the values of `partition_columns`.
    pub folders: Vec<Vec<Option<String>>>,
    pub schema: SchemaRef,
    /// Hive partition columns, also in `schema`.
    pub partition_columns: Vec<String>,
}

impl Table {
    /// The same table with some of its files alone.
    pub fn of_files(&self, files: Range<usize>) -> Option<Table> {
        Some(Table {
            files: self.files.get(files.clone())?.to_vec(),
            folders: self.folders.get(files)?.to_vec(),
            ..self.clone()
        })
    }
}

/// Where a table lies and how it is written, as the pipeline says.
pub struct TableSource<'a> {
    pub name: &'a str,
    pub paths: &'a [String],
    pub format: Format,
    pub dialect: Dialect,
}

impl<'a> TableSource<'a> {
    /// A table of Parquet files.
    pub fn of_parquet(name: &'a str, paths: &'a [String]) -> Self {
        TableSource {
            name,
            paths,
            format: Format::Parquet,
            dialect: Dialect::default(),
        }
    }
}

/// A table as bytes that do not say what they are.
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
}

impl From<Table> for Packed {
    fn from(table: Table) -> Packed {
        let file = |f: InputFile| (f.location, f.size_bytes, f.modified, f.e_tag);
        let columns = table.schema.fields().iter();
        Packed {
            name: table.name,
            format: table.format.to_string(),
            dialect: table.dialect,
            root: table.root,
            folders: table.folders,
            files: table.files.into_iter().map(file).collect(),
            columns: columns.map(|field| field.as_ref().clone()).collect(),
            partition_columns: table.partition_columns,
        }
    }
}

/// A table name that keeps its case.
pub(crate) fn ident_reference(name: &str) -> TableReference {
    TableReference::bare(name.to_string())
}
