//! How a version becomes the result, on every store and next to concurrent runs.
//!
//! When a run begins, it notes the pointer `current.json`. It writes its tables into a version of
//! its own, which no reader sees, and checks them. Then it replaces the pointer on condition that
//! the pointer is still the one it noted: with a conditional put, or under a lock if the output is
//! a folder. Nothing is visible before this step and nothing is required after it. Of two
//! concurrent runs the first one wins. The other reports a conflict and removes its version, as
//! does a run that fails or is stopped. [`clean`](super::clean) removes the versions of runs that
//! died.
//!
//! The answer to a put can be lost although the put succeeded. After a failed put the run therefore
//! reads the pointer again, and if that does not settle the question it keeps its version. No two
//! pointers are equal, because run ids are unique, so a condition that failed once fails for ever.

use crate::error::{Error, Kind, Result};
use crate::output::files::incomplete;
use crate::output::layout::{CURRENT, RECORD, SUCCESS, VERSIONS, unique};
use crate::output::place::Output;
use crate::output::pointer::{Begun, Claim, Promotion, Seen};
use crate::output::retention::{Cleaning, DAY};
use crate::read::paths::current::{Current, SCHEMA, check_size};
use crate::store::seal::sealed;
use crate::store::secrets::hide;
use object_store::{ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::Serialize;
use std::time::Duration;

/// A failed run waits at most this long for its record to be written.
const PATIENCE: Duration = Duration::from_secs(10);

impl Output {
    /// The result in place, if there is one.
    ///
    /// # Errors
    /// [`Kind::Input`] if one of its files is missing or has another size than was written.
    pub async fn current(&self) -> Result<Option<Current>> {
        let Some(Seen { current, .. }) = self.pointer().await? else {
            return Ok(None);
        };
        match self.damage(&current).await? {
            Some(what) => Err(incomplete(&what)),
            None => Ok(Some(current)),
        }
    }

    /// As [`Output::current`], but `None` for a damaged result, which a run makes anew.
    pub(crate) async fn intact(&self) -> Result<Option<Current>> {
        let Some(Seen { current, .. }) = self.pointer().await? else {
            return Ok(None);
        };
        Ok(self.damage(&current).await?.is_none().then_some(current))
    }

    /// The record of the run that made the result in place, as JSON, if both exist.
    pub async fn last_record(&self) -> Result<Option<serde_json::Value>> {
        match self.intact().await? {
            Some(current) => self.get_json(&self.run_record(&current.run)).await,
            None => Ok(None),
        }
    }

    /// Checks that the result in place, if any, has a record of the same job name.
    ///
    /// # Errors
    /// If the result belongs to another job: replacing it is probably a mistake.
    pub(crate) async fn check_job(&self, name: &str) -> Result<()> {
        let Some(seen) = self.pointer().await? else {
            return Ok(());
        };
        let record = self.get_json(&self.run_record(&seen.current.run)).await;
        let record: Option<serde_json::Value> = match record {
            // The run writes a new one.
            Err(e) if e.kind() == Kind::Input => {
                tracing::warn!("the job of the result is not known: {}", e.full());
                None
            }
            record => record?,
        };
        match record.as_ref().and_then(|own| own["pipeline"].as_str()) {
            // Secrets are hidden in the record, so compare the hidden name.
            Some(other) if other != hide(name) => Err(Error::spec(format!(
                "{} holds the result of the job `{other}`, which the job `{name}` would replace; name another output, or replace it with --force",
                self.shown()
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) async fn pointer(&self) -> Result<Option<Seen>> {
        if self.folder.as_ref().is_some_and(|folder| !folder.exists()) {
            return Ok(None);
        }
        let path = self.at(&[CURRENT]);
        let failed = |e| self.failed(&path, "read", e);
        let found = match self.store.get(&path).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed)?,
        };
        check_size(found.meta.size, &self.show(&path))?;
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        let bytes = found.bytes().await.map_err(failed)?;
        let current = Current::parse(&bytes, &self.show(&path))?;
        Ok(Some(Seen { current, version }))
    }

    /// Notes the result in place for a run of a plan, and repairs what a dead run left undone after
    /// it replaced the pointer.
    pub async fn begin(&self, plan: &str) -> Result<Begun> {
        let seen = self.repair().await?;
        let damage = match &seen {
            Some(seen) => self.damage(&seen.current).await?,
            None => None,
        };
        if let Some(what) = &damage {
            tracing::warn!("{what}, so the result is made anew");
        }
        let is_whole = seen.is_some() && damage.is_none();
        self.set_recorded(false).await;
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let run = format!("{now}-{}-{}", plan.get(..8).unwrap_or(plan), unique()?);
        if seen.is_none() && self.folder.is_none() {
            // A stop during the probe then removes its object.
            *self.claim() = Some(Claim::new(&run, None));
            let probed = self.probe(&run).await;
            *self.claim() = None;
            probed?;
        }
        Ok(Begun {
            run,
            seen,
            is_whole,
        })
    }

    /// Finishes what a run that died after it replaced the pointer left undone: links and record.
    /// Returns the pointer.
    pub(crate) async fn repair(&self) -> Result<Option<Seen>> {
        if let Some(folder) = &self.folder {
            folder.repair().await?;
        }
        let seen = self.pointer().await?;
        if let Some(Seen { current, .. }) = &seen {
            let record = self.run_record(&current.run);
            match self.store.head(&record).await {
                Err(object_store::Error::NotFound { .. }) => self.keep_record(&current.run).await?,
                Err(e) => return Err(self.failed(&record, "read", e)),
                Ok(_) => (),
            }
        }
        Ok(seen)
    }

    /// Finds out whether a store honours the conditions of a put, before anything depends on it.
    /// Some stores reject conditions, others ignore them.
    async fn probe(&self, run: &str) -> Result<()> {
        let path = self.version_file(run, "probe");
        let put = async |mode: PutMode, bytes: &'static [u8]| {
            let payload = PutPayload::from_static(bytes);
            self.store.put_opts(&path, payload, mode.into()).await
        };
        let honours = async || {
            let first = UpdateVersion::from(put(PutMode::Create, b"1").await?);
            let second = put(PutMode::Create, b"2").await;
            let changed = put(PutMode::Update(first.clone()), b"3").await;
            let stale = put(PutMode::Update(first), b"4").await;
            let is_honoured = [&second, &stale]
                .iter()
                .all(|put| put.as_ref().err().is_some_and(is_refused));
            changed.map(|_| is_honoured)
        };
        let honours = honours().await;
        self.store.delete(&path).await.ok();
        let unusable = format!(
            "the store of {} does not support conditional puts, so concurrent runs could overwrite each other; write to a folder, or enable conditional puts",
            self.shown()
        );
        match honours {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::spec(unusable)),
            Err(e) if is_unsupported(&e) => Err(Error::with_source(Kind::Spec, unusable, e)),
            // A put needs nothing but the bucket to exist.
            Err(e @ object_store::Error::NotFound { .. }) => {
                let message = format!(
                    "there is no bucket for {}; make it, or name another output",
                    self.shown()
                );
                Err(Error::with_source(Kind::Spec, message, e))
            }
            Err(e) => Err(self.failed(&path, "written", e)),
        }
    }

    /// Creates the version of a run, unless another run was quicker.
    pub async fn claim_version(&self, begun: &Begun) -> Result<()> {
        let now = self.pointer().await?.map(|seen| seen.current.run);
        if now.as_deref() != begun.seen() {
            return Err(self.overtaken(now.as_deref()));
        }
        let versions = self.at(&[VERSIONS]);
        let began = self.writes.begin(&versions).await;
        let _writing = began.map_err(|e| self.failed(&versions, "written", e))?;
        let lock = match &self.folder {
            Some(folder) => Some(folder.claim(&begun.run).await?),
            None => None,
        };
        *self.claim() = Some(Claim::new(&begun.run, lock));
        Ok(())
    }

    fn overtaken(&self, by: Option<&str>) -> Error {
        let what = match by {
            Some(run) => format!("another run ({run}) has put its result in place"),
            None => "the result has been removed".to_string(),
        };
        let message = format!(
            "{what} at {} since this one began; nothing was changed, run again",
            self.shown()
        );
        Error::new(Kind::Conflict, message)
    }

    /// Makes the version of a run the result. Its tables are written and checked already. If
    /// another run was quicker, the version is removed.
    pub async fn promote(
        &self,
        begun: &Begun,
        promotion: &Promotion<'_, impl Serialize>,
    ) -> Result<()> {
        let tables = promotion.tables;
        let current = Current {
            schema: SCHEMA,
            run: begun.run.clone(),
            folder: format!("{VERSIONS}/{}", begun.run),
            kind: Some(promotion.kind.to_string()),
            plan: promotion.plan.to_string(),
            complete: promotion.complete,
            tables: tables.iter().map(|(t, n)| (t.to_string(), *n)).collect(),
            earlier: Vec::new(),
        };
        for table in current.tables.keys() {
            let success = self.at(&[VERSIONS, &begun.run, table, SUCCESS]);
            self.put(&success, Vec::new()).await?;
        }
        self.put_record(&self.version_file(&begun.run, RECORD), promotion.record)
            .await?;
        if let Some(companion) = &self.companion {
            companion.write(self, &current, begun.seen()).await?;
        }
        self.put_marks(&begun.run).await?;
        // `clean` may have taken the version for dead.
        if let Some(what) = self.damage(&current).await? {
            let what = format!("files that were written are lost: {what}; run again");
            return Err(Error::new(Kind::Conflict, what));
        }
        if let Some(folder) = &self.folder {
            folder.sync(&begun.run)?;
        }
        let next = |found: Option<&Current>| {
            let found_run = found.map(|found| found.run.as_str());
            if found_run != begun.seen() {
                return Err(self.overtaken(found_run));
            }
            let mut next = current.clone();
            let earlier = found.map_or(&[][..], |found| &found.earlier);
            let runs = found.map(|found| &found.run).into_iter().chain(earlier);
            next.earlier = runs.cloned().collect();
            let mut dropped = Vec::new();
            if found.is_some() && !begun.is_whole {
                dropped.push(next.earlier.remove(0));
            }
            dropped.extend(next.earlier.drain(promotion.keep.min(next.earlier.len())..));
            Ok((next, dropped))
        };
        let dropped = self
            .swap(begun.seen.clone(), promotion.begins, next)
            .await?;
        // The result is in place: the next run repairs what fails from here on.
        if let Some(folder) = &self.folder {
            folder.release(&begun.run);
        }
        *self.claim() = None;
        if let Err(e) = self.finish(&begun.run, &dropped, promotion.keep).await {
            tracing::warn!("the result is in place, but {}", e.full());
        }
        Ok(())
    }

    /// Finishes the version that is in place: record and clean-up.
    async fn finish(&self, run: &str, dropped: &[String], keep: usize) -> Result<()> {
        self.keep_record(run).await?;
        for run in dropped {
            self.remove(VERSIONS, run).await?;
        }
        let asked = Cleaning {
            keep,
            older_than: DAY,
            dry_run: false,
        };
        self.clean_versions(&asked).await.map(|_| ())
    }

    /// Copies the record of a version to where it outlives the version.
    async fn keep_record(&self, run: &str) -> Result<()> {
        let to = self.run_record(run);
        match self.store.copy(&self.version_file(run, RECORD), &to).await {
            // A record may be lost, and its result is not.
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(e) => Err(self.failed(&to, "written", e)),
        }
    }

    /// Writes the record of a failed run next to the others, once. The result in place is not
    /// touched.
    pub async fn keep_failed(&self, run: &str, record: &impl Serialize) {
        let mut is_recorded = self.is_recorded.lock().await;
        if *is_recorded {
            return;
        }
        let path = self.run_record(run);
        let put = tokio::time::timeout(PATIENCE, self.put_record(&path, record)).await;
        // A run that is stopped while it writes its own record does not get here.
        *is_recorded = true;
        // If the output cannot be written, the error of the run says so already.
        match put {
            Ok(Ok(())) => (),
            Ok(Err(e)) => tracing::info!("the run has no record: {}", e.full()),
            Err(_) => tracing::info!("the run has no record: its output does not answer"),
        }
    }

    /// Replaces the pointer `seen` by the result of `next`. If the pointer has changed meanwhile,
    /// `next` decides again.
    pub(crate) async fn swap<T>(
        &self,
        seen: Option<Seen>,
        begins: &(dyn Fn() -> Result<()> + Sync),
        next: impl FnMut(Option<&Current>) -> Result<(Current, T)>,
    ) -> Result<T> {
        // A run that may be the result has a record already.
        self.set_recorded(true).await;
        if let Some(folder) = &self.folder {
            let swapped = folder.swap(begins, next).await;
            self.set_recorded(swapped.is_ok()).await;
            return swapped;
        }
        if let Err(e) = begins() {
            self.set_recorded(false).await;
            return Err(e);
        }
        // While the outcome of the put is unknown, nothing may remove the version that it names,
        // not even a stop.
        let claim = self.claim().take();
        match self.swap_object(seen, next).await {
            Ok(swapped) => Ok(swapped),
            Err(failure) => {
                if !failure.may_be_done {
                    *self.claim() = claim;
                    self.set_recorded(false).await;
                }
                Err(failure.error)
            }
        }
    }

    async fn set_recorded(&self, is_recorded: bool) {
        *self.is_recorded.lock().await = is_recorded;
    }

    async fn swap_object<T>(
        &self,
        mut seen: Option<Seen>,
        mut next: impl FnMut(Option<&Current>) -> Result<(Current, T)>,
    ) -> Result<T, NotSwapped> {
        let path = self.at(&[CURRENT]);
        loop {
            let (current, more) = next(seen.as_ref().map(|seen| &seen.current))?;
            let mode = match &seen {
                None => PutMode::Create,
                Some(seen) => PutMode::Update(seen.version.clone()),
            };
            let payload = PutPayload::from(sealed(&current)?);
            let Err(e) = self.store.put_opts(&path, payload, mode.into()).await else {
                return Ok(more);
            };
            let is_refused = is_refused(&e);
            let known = is_refused || is_unsupported(&e);
            let error = self.failed(&path, "replaced", e);
            let names_it = |seen: &Seen| seen.current.names(&current.run);
            let is_new = !seen.as_ref().is_some_and(names_it);
            let is_done = |now: &Seen| now.current == current || is_new && names_it(now);
            match self.pointer().await {
                // The put succeeded and its answer was lost.
                Ok(Some(now)) if is_done(&now) => return Ok(more),
                Ok(now) if is_refused && now != seen => seen = now,
                now => {
                    let may_be_done = now.is_err() || !known;
                    return Err(NotSwapped { error, may_be_done });
                }
            }
        }
    }

    /// Ends all writes to versions, although a thread of the run may still compute, and removes the
    /// claimed version.
    pub(crate) async fn stop(&self) {
        self.writes.close(self.at(&[VERSIONS])).await;
        self.abandon().await;
    }

    /// Removes the claimed version of a run that failed.
    pub async fn abandon(&self) {
        // A write in flight would recreate what is removed here.
        let _none = self.writes.none().await;
        let Some(claim) = self.claim().take() else {
            return;
        };
        // An output that cannot be written often cannot be cleaned either; the first error matters
        // more.
        if let Err(e) = self.remove(VERSIONS, &claim.run).await {
            tracing::warn!("{}; `gyre clean` will remove it", e.full());
        }
        if let Some(folder) = &self.folder {
            folder.remove_if_empty().await;
        }
    }
}

/// Why the pointer was not replaced, as far as is known.
struct NotSwapped {
    error: Error,
    /// The put may have succeeded, or may still succeed.
    may_be_done: bool,
}

impl From<Error> for NotSwapped {
    fn from(error: Error) -> NotSwapped {
        NotSwapped {
            error,
            may_be_done: false,
        }
    }
}

/// Whether a put was refused because of its condition.
fn is_refused(e: &object_store::Error) -> bool {
    use object_store::Error::{AlreadyExists, Precondition};
    matches!(e, AlreadyExists { .. } | Precondition { .. })
}

/// Whether a store does not support a request.
fn is_unsupported(e: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};
    matches!(e, NotImplemented { .. } | NotSupported { .. })
}
