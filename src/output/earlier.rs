//! Earlier results that an output keeps.

use crate::error::{Error, Result};
use crate::output::layout::{RECORD, VERSIONS};
use crate::output::place::Output;
use crate::read::paths::current::Current;
use object_store::path::Path;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the record of a run says about its version.
#[derive(Deserialize)]
struct Recorded {
    plan: String,
    tables: BTreeMap<String, u64>,
    #[serde(default)]
    failures: Vec<serde_json::Value>,
}

impl Output {
    /// The pointer to a version that `current` keeps: the current one, or an earlier one.
    ///
    /// # Errors
    /// If the run is none of them, or its version has no record.
    pub async fn kept(&self, current: &Current, run: &str) -> Result<Current> {
        if run == current.run {
            return Ok(current.clone());
        }
        if !current.names(run) {
            let kept = match &current.earlier[..] {
                [] => "none".to_string(),
                earlier => earlier.join(", "),
            };
            return Err(Error::spec(format!(
                "{} keeps no version `{run}`; the earlier versions that it keeps: {kept}",
                self.shown()
            )));
        }
        let path = self.version_file(run, RECORD);
        let record: Option<Recorded> = self.get_json(&path).await?;
        let record = record.ok_or_else(|| {
            let what = format!("the version `{run}` has no record {}", self.show(&path));
            Error::input(what)
        })?;
        Ok(Current {
            run: run.to_string(),
            folder: format!("{VERSIONS}/{run}"),
            plan: record.plan,
            complete: record.failures.is_empty(),
            tables: record.tables,
            ..current.clone()
        })
    }

    /// The file of an object, if the output is a folder.
    pub fn local(&self, path: &Path) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?.path();
        let inside = self.inside(path);
        Some(folder.join(inside))
    }
}
