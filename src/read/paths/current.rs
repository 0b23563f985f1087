//! `current.json` of an output, which names the current result.

use crate::error::{Error, Kind, Result};
use crate::store::seal::unsealed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Schema version of `current.json`.
pub(crate) const SCHEMA: u32 = 2;

/// The content of `current.json`: the current result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    /// Schema version of the file.
    pub schema: u32,
    /// Id of the run.
    pub run: String,
    /// The folder of its tables, relative to the output. Empty in schema 1, which kept the tables
    /// in the output itself.
    #[serde(default)]
    pub folder: String,
    /// Hash of the plan and its inputs. A run with the same hash has nothing to do.
    pub plan: String,
    /// Whether the tables contain every partition.
    pub complete: bool,
    /// Number of rows per table.
    pub tables: BTreeMap<String, u64>,
    /// Runs whose versions are kept, newest first.
    #[serde(default)]
    pub earlier: Vec<String>,
}

impl Current {
    /// Parses the file; `shown` is its location for messages.
    pub(crate) fn parse(bytes: &[u8], shown: &str) -> Result<Current> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        if let Ok(Version { schema }) = serde_json::from_slice(bytes)
            && schema > SCHEMA
        {
            return Err(Error::input(format!(
                "{shown} was written by a newer gyre (its schema is {schema}, this version reads up to {SCHEMA})"
            )));
        }
        let current: Current = unsealed(bytes).map_err(|e| {
            let message =
                format!("{shown} does not name a result of gyre; restore it or remove it");
            Error::with_source(Kind::Input, message, e)
        })?;
        // Run ids become paths of files to delete, so they must be plain names.
        let is_plain = |run: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !run.is_empty() && run.bytes().all(plain)
        };
        for run in current.earlier.iter().chain([&current.run]) {
            if !is_plain(run) {
                return Err(Error::input(format!("{shown} names the run {run:?}")));
            }
        }
        Ok(current)
    }

    /// Whether the version of a run is current or kept.
    pub fn names(&self, run: &str) -> bool {
        self.run == run || self.earlier.iter().any(|kept| kept == run)
    }
}
