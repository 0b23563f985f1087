//! What gyre has made below `work`: a record per folder, written before the folder.
//!
//! ```text
//! <output>/work/<plan>.made    "gyre made the folder work/<plan>"
//! <output>/work/<plan>/        checkpoints, parts and answers of the plan
//! ```
//!
//! A folder without its record was not made by gyre and is never removed. The record is
//! written again before each object, because another run of the plan may have removed both.

use crate::error::{Error, Result, is_in_the_way};
use crate::output::layout::{MADE, WORK, plan_of};
use crate::output::place::{FolderContent, Output};
use crate::output::retention;
use jiff::{SignedDuration, Timestamp};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::sync::Arc;

/// The work folder of a plan, and its record.
#[derive(Clone)]
pub(crate) struct WorkFolder {
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
    record: Path,
    text: String,
}

/// The folders below `work` that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    /// Plans whose folders may be removed, and their bytes.
    pub plans: Vec<(String, u64)>,
    /// Entries without a record.
    pub foreign: Vec<String>,
}

impl WorkFolder {
    /// Writes an object in the folder, after the record of the folder.
    pub(crate) async fn put(&self, object: &Path, bytes: PutPayload) -> object_store::Result<()> {
        let record = self.text.clone().into_bytes();
        self.store.put(&self.record, record.into()).await?;
        self.store.put(object, bytes).await.map(drop)
    }

    /// Whether the folder has a record.
    async fn is_recorded(&self) -> object_store::Result<bool> {
        match self.store.get(&self.record).await {
            Ok(found) if found.meta.size != self.text.len() as u64 => Ok(false),
            Ok(found) => Ok(found.bytes().await? == self.text),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) if is_in_the_way(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Output {
    /// The work folder of a plan. Nothing is created before something is written.
    pub(crate) fn work_folder(&self, plan: &str) -> WorkFolder {
        WorkFolder {
            store: Arc::clone(&self.store),
            path: self.at(&[WORK, plan]),
            record: self.at(&[WORK, &format!("{plan}{MADE}")]),
            text: format!("gyre made the folder {WORK}/{plan}\n"),
        }
    }

    /// The work folders that are at least `older_than` old, or those of a plan that is `done`.
    pub(crate) async fn stale_work(
        &self,
        done: Option<&str>,
        older_than: SignedDuration,
    ) -> Result<Stale> {
        let mut all = self.folders_in(WORK).await?;
        let mut stale = Stale::default();
        let recorded: Vec<String> = all.keys().filter_map(|name| plan_of(name)).collect();
        let mut made = Vec::new();
        for plan in recorded {
            let work = self.work_folder(&plan);
            let is_recorded = work.is_recorded().await;
            if !is_recorded.map_err(|e| self.failed(&work.record, "read", e))? {
                continue;
            }
            let mut found = all.remove(&format!("{plan}{MADE}")).unwrap_or_default();
            // A link of this name is listed too, and stays.
            if self.is_own_folder(&plan)
                && let Some(FolderContent { bytes, newest }) = all.remove(&plan)
            {
                found.bytes += bytes;
                found.newest = found.newest.max(newest);
            }
            made.push((plan, found));
        }
        stale.foreign = all.into_keys().collect();
        let now = if made.iter().all(|(plan, _)| done == Some(plan)) {
            Timestamp::MIN
        } else {
            self.now().await?
        };
        made.retain(|(plan, found)| {
            done == Some(plan) || now.duration_since(found.newest) >= older_than
        });
        let plans = made.into_iter().map(|(plan, found)| (plan, found.bytes));
        stale.plans = plans.collect();
        Ok(stale)
    }

    /// Whether the folder of a plan is no link.
    fn is_own_folder(&self, plan: &str) -> bool {
        let folder = self.folder.as_ref();
        folder.is_none_or(|folder| !folder.path().join(WORK).join(plan).is_symlink())
    }

    /// Removes the work folder of a plan, and then its record.
    pub(crate) async fn remove_work(&self, plan: &str) -> Result<()> {
        self.remove(WORK, plan).await?;
        let record = self.work_folder(plan).record;
        self.delete(&record, "removed").await?;
        if let Some(folder) = &self.folder {
            folder.remove_partial(WORK, &format!("{plan}{MADE}"));
            folder.remove_if_empty_place(WORK);
        }
        Ok(())
    }

    /// Removes the work of a finished plan, and that of other plans that no run has touched for a
    /// day.
    pub async fn remove_checkpoints(&self, plan: &str) {
        let forget = async {
            let stale = self.stale_work(Some(plan), retention::DAY);
            for (name, _) in stale.await?.plans {
                self.remove_work(&name).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(e) = forget.await {
            tracing::warn!("{}; `gyre clean` will remove it", e.full());
        }
    }
}
