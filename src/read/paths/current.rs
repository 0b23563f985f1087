//! `current.json` of an output: which result is in place.

use crate::error::{Error, Kind, Result};
use crate::store::seal::unsealed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of what `current.json` holds.
pub(crate) const SCHEMA: u32 = 2;

/// What `current.json` says of the result that is in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    pub schema: u32,
    pub run: String,
    /// Where its tables are below the output. Before versions (schema 1) that was the output itself.
    #[serde(default)]
    pub folder: String,
    /// Hash of the plan and its inputs; a run with the same hash has nothing to do.
    pub plan: String,
    /// Whether every partition is in the tables.
    pub complete: bool,
    /// Rows of each table.
    pub tables: BTreeMap<String, u64>,
    /// The runs whose versions are kept, newest first.
    #[serde(default)]
    pub earlier: Vec<String>,
}

impl Current {
    /// Reads a pointer; `shown` says where it is.
    pub(crate) fn parse(bytes: &[u8], shown: &str) -> Result<Current> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        if let Ok(Version { schema }) = serde_json::from_slice(bytes)
            && schema > SCHEMA
        {
            return Err(Error::input(format!(
                "{shown} was written by a newer gyre (its schema is {schema}, this one knows {SCHEMA})"
            )));
        }
        let current: Current = unsealed(bytes).map_err(|e| {
            let message =
                format!("{shown} does not name a result of gyre; restore it or remove it");
            Error::with_source(Kind::Input, message, e)
        })?;
        // What is removed goes by these names.
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

    /// Whether the version of a run is in place or kept.
    pub fn names(&self, run: &str) -> bool {
        self.run == run || self.earlier.iter().any(|kept| kept == run)
    }
}
