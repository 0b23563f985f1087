//! Formats and compressions of files, and their file name extensions.

use schemars::JsonSchema;
use serde::Serialize;

/// The format of the files of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// CSV; `.tsv` files are separated by tabs.
    Csv,
    /// JSON, one object per row.
    Json,
    /// Arrow IPC, with a footer or as a stream.
    Arrow,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::Parquet, Format::Csv, Format::Json, Format::Arrow];

    /// The name in a pipeline.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Arrow => "arrow",
        }
    }

    /// Whether values are parsed from text.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Format::Csv | Format::Json)
    }

    /// The format that the extension of a file name implies, before that of a compression.
    pub(crate) fn of_name(name: &str) -> Option<Format> {
        let name = name.rsplit('/').next()?;
        let (name, _) = Compression::of_name(name);
        match name.rsplit_once('.')?.1 {
            "parquet" => Some(Format::Parquet),
            "csv" | "tsv" => Some(Format::Csv),
            "json" | "ndjson" | "jsonl" => Some(Format::Json),
            "arrow" | "feather" | "ipc" => Some(Format::Arrow),
            _ => None,
        }
    }
}

/// How a file is compressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not compressed.
    None,
    /// Gzip (`.gz`).
    Gzip,
    /// Zstandard (`.zst`).
    Zstd,
}

impl Compression {
    /// Splits the extension of a compression from a file name.
    pub(crate) fn of_name(name: &str) -> (&str, Compression) {
        let packed = [(".gz", Compression::Gzip), (".zst", Compression::Zstd)];
        let by_ending = |(ending, how): (&str, _)| Some((name.strip_suffix(ending)?, how));
        packed
            .into_iter()
            .find_map(by_ending)
            .unwrap_or((name, Compression::None))
    }

    /// The file name extension of the compression.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }
}
