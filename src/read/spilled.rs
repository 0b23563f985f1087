//! Rows that SQL sorts on disk, where its memory is bounded.
//!
//! The engine removes them with the last of its tasks. Those of a run that is stopped may still be computing when the program ends, so their
//! folder goes with the lake.

use crate::error::{Error, Kind, Result};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use std::sync::Arc;
use tempfile::TempDir;

/// Lets SQL hold `bytes`; what is more is in the folder, for as long as that lives.
pub fn bound(engine: RuntimeEnvBuilder, bytes: usize) -> Result<(RuntimeEnvBuilder, TempDir)> {
    let folder = tempfile::Builder::new().prefix("gyre-").tempdir();
    let folder = folder.map_err(|e| {
        let place = std::env::temp_dir();
        let what = format!(
            "{} cannot hold rows that are sorted on disk; let TMPDIR name another folder",
            place.display()
        );
        Error::with_source(Kind::Resources, what, e)
    })?;
    let engine = engine
        .with_memory_pool(Arc::new(FairSpillPool::new(bytes)))
        .with_temp_file_path(folder.path());
    Ok((engine, folder))
}
