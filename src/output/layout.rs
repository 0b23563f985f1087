//! Names of files and folders below an output.

use crate::error::{Error, Kind, Result};
use rand::TryRng;
use rand::rngs::SysRng;

/// Name of the pointer to the version that is the result.
pub(crate) const CURRENT: &str = "current.json";

/// Folder of the versions.
pub(crate) const VERSIONS: &str = "versions";

/// Folder of the run records.
pub(crate) const RUNS: &str = "runs";

/// Name of the record inside a version.
pub(crate) const RECORD: &str = "run.json";

/// Name of the only file of a table.
pub(crate) const PART: &str = "part-0.parquet";

/// Empty marker of a complete table.
pub(crate) const SUCCESS: &str = "_SUCCESS";

/// Eight random hexadecimal digits.
pub(crate) fn unique() -> Result<String> {
    let mut unique = [0; 4];
    SysRng.try_fill_bytes(&mut unique).map_err(|e| {
        Error::with_source(Kind::Resources, "the system provides no random numbers", e)
    })?;
    Ok(format!("{:08x}", u32::from_be_bytes(unique)))
}

/// Folder of the objects of the ledgers.
pub(crate) const LEDGER: &str = "ledger";

/// Folder of the checkpoints.
pub(crate) const WORK: &str = "work";

/// Version of the names and columns of the tables, in the metadata of every file.
pub(crate) const SCHEMA_VERSION: &str = "1";

/// How the record of a folder of work ends, after the plan.
pub(crate) const MADE: &str = ".made";

/// The plan whose record has this name.
pub(crate) fn plan_of(name: &str) -> Option<String> {
    let plan = name.strip_suffix(MADE)?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (!plan.is_empty() && plan.bytes().all(is_plain)).then(|| plan.to_string())
}
