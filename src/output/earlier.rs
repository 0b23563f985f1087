//! Earlier results that an output keeps.

use crate::error::{Error, Kind, Result};
use crate::output::layout::{RECORD, VERSIONS};
use crate::output::place::Output;
use crate::read::paths::current::{Current, strange_table};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What the record of a run says about its version.
#[derive(Deserialize)]
struct Recorded {
    kind: Option<String>,
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
    pub(crate) async fn kept(&self, current: &Current, run: &str) -> Result<Current> {
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
        if let Some(table) = strange_table(&record.tables) {
            return Err(Error::input(format!(
                "{} names the table {table:?}, which no run of gyre writes",
                self.show(&path)
            )));
        }
        Ok(Current {
            run: run.to_string(),
            folder: format!("{VERSIONS}/{run}"),
            kind: record.kind,
            plan: record.plan,
            complete: record.failures.is_empty(),
            tables: record.tables,
            ..current.clone()
        })
    }

    /// Makes an earlier version that is kept the result again, by the rules of a commit. The
    /// version that it replaces becomes the newest of the earlier ones, so a restoration can be
    /// undone. Returns whether anything changed.
    ///
    /// # Errors
    /// If there is no result, if the run is not among the versions that are kept, if its version
    /// has lost tables, or if another process replaced the result meanwhile.
    pub async fn restore(&self, run: &str) -> Result<bool> {
        let Some(seen) = self.repair().await? else {
            let what = format!("{} holds no result of gyre", self.shown());
            return Err(Error::input(what));
        };
        let restored = self.kept(&seen.current, run).await?;
        if restored.run == seen.current.run {
            return Ok(false);
        }
        if let Some(what) = self.damage(&restored).await? {
            return Err(Error::input(format!("{what}, so it cannot be restored")));
        }
        let expected = seen.current.run.clone();
        let next = |found: Option<&Current>| {
            let found = found.filter(|found| found.run == expected && found.names(run));
            let Some(found) = found else {
                let message = format!(
                    "another run replaced the result of {} meanwhile; nothing was changed, \
                     restore again",
                    self.shown()
                );
                return Err(Error::new(Kind::Conflict, message));
            };
            let others = found.earlier.iter().filter(|earlier| *earlier != run);
            let earlier = [&found.run].into_iter().chain(others).cloned().collect();
            let next = Current {
                earlier,
                ..restored.clone()
            };
            Ok((next, ()))
        };
        self.swap(Some(seen), &|| Ok(()), next).await?;
        Ok(true)
    }

    /// The file of an object, if the output is a folder.
    #[cfg(feature = "report")]
    pub(crate) fn local(&self, path: &object_store::path::Path) -> Option<std::path::PathBuf> {
        let folder = self.folder.as_ref()?.path();
        let inside = self.inside(path);
        Some(folder.join(inside))
    }
}
