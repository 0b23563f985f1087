//! Names of files and folders below an output.

use crate::error::{Error, Kind, Result};
use rand::TryRng;
use rand::rngs::SysRng;

pub(crate) const CURRENT: &str = "current.json";

pub(crate) const VERSIONS: &str = "versions";

pub(crate) const RUNS: &str = "runs";

pub(crate) const RECORD: &str = "run.json";

pub(crate) const PART: &str = "part-0.parquet";

pub(crate) const SUCCESS: &str = "_SUCCESS";

/// Something that nobody else has.
pub(crate) fn unique() -> Result<String> {
    let mut unique = [0; 4];
    SysRng.try_fill_bytes(&mut unique).map_err(|e| {
        Error::with_source(Kind::Resources, "the system gives no random numbers", e)
    })?;
    Ok(format!("{:08x}", u32::from_be_bytes(unique)))
}

pub(crate) const WORK: &str = "work";

/// Version of the tables' names and columns, in the metadata of every file.
pub const SCHEMA_VERSION: &str = "1";
