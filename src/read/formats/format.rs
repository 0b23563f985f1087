//! Formats and compressions of files, and the endings of names that stand for them.

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Parquet,
    Csv,
    Json,
    Arrow,
}

impl Format {
    pub const ALL: [Format; 4] = [Format::Parquet, Format::Csv, Format::Json, Format::Arrow];

    /// As a pipeline writes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Arrow => "arrow",
        }
    }

    /// What the ending of a name says, before that of a compression.
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
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// A name without the ending of its compression, and what that says.
    pub fn of_name(name: &str) -> (&str, Compression) {
        let packed = [(".gz", Compression::Gzip), (".zst", Compression::Zstd)];
        let by_ending = |(ending, how): (&str, _)| Some((name.strip_suffix(ending)?, how));
        let found = packed.into_iter().find_map(by_ending);
        found.unwrap_or((name, Compression::None))
    }

    /// What the name of a file that is compressed so ends in.
    pub fn ending(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }
}
