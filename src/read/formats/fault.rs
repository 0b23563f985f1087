//! What is wrong with a file, and where.

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use std::fmt;

/// Why a file cannot be read, and in which line, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The line, if known.
    pub line: Option<u64>,
    /// The message, without the place.
    pub what: String,
}

impl Fault {
    /// A fault without a line.
    pub(crate) fn new(what: impl Into<String>) -> Fault {
        let what = what.into();
        Fault { line: None, what }
    }

    /// A fault in a line.
    pub(crate) fn at(line: u64, what: impl Into<String>) -> Fault {
        Fault {
            line: Some(line),
            what: what.into(),
        }
    }

    /// Moves the place into the message: the file, and the line if known.
    pub(crate) fn of(self, file: &str) -> Fault {
        let what = match self.line {
            Some(line) => format!("{file}, line {line}: {}", self.what),
            None => format!("{file}: {}", self.what),
        };
        Fault { line: None, what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Fault {}

impl From<ArrowError> for Fault {
    fn from(e: ArrowError) -> Fault {
        Fault::new(plain(&e.to_string()))
    }
}

impl From<Fault> for DataFusionError {
    fn from(fault: Fault) -> DataFusionError {
        DataFusionError::External(Box::new(fault))
    }
}

/// The message of an engine without the names of its layers.
pub(crate) fn plain(text: &str) -> &str {
    const LAYERS: [&str; 27] = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Schema error: ",
        "SQL error: ",
        "Optimizer rule ",
        "Invalid or Unsupported Configuration: ",
        "Arrow error: ",
        "Arrow: ",
        "Parquet argument error: ",
        "Parquet error: ",
        "External error: ",
        "External: ",
        "Object Store error: ",
        "ObjectStore error: ",
        "IO error: ",
        "Io error: ",
        "Execution error: ",
        "Parser error: ",
        "Csv error: ",
        "Json error: ",
        "Ipc error: ",
        "Cast error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Internal error: ",
        "General error: ",
        "EOF: ",
    ];
    let mut text = text;
    while let Some(rest) = LAYERS.iter().find_map(|layer| text.strip_prefix(layer)) {
        text = rest;
    }
    text
}
