//! Assigns new rows to a written model. Drives the stages: read model → … → write → promote.
//!
//! The pipeline names the new rows and the roles of their columns
//! ([`Assignment`](crate::plan::assignment::Assignment)); the fits are those of the model. What a
//! kind of evidence does with new rows is in its folder.

pub mod kind;
pub(crate) mod record;

use crate::error::{Error, Result, counted};
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::result::{Written, kind_of};
use crate::plan::assignment::NewRows;
use crate::read::paths::current::Current;
use crate::run::assign::kind::{
    AssignOptions, Assigning, Assigns, Model, PlannedAssignment, check_kind,
};
use crate::run::assign::record::AssignRecord;
use crate::run::near_misses::warnings;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use futures::future::LocalBoxFuture;
use std::sync::Arc;

impl<K: Assigns> PlannedAssignment<K> {
    /// Assigns the rows to the model at an output. None if the output already holds what the
    /// assignment would write. An assignment that fails leaves `output` as it was.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    pub(crate) fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        options: &'a AssignOptions,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<Option<Box<AssignRecord<K>>>>> {
        Box::pin(async move {
            let (plan, at) = (&self.assignment, model.shown());
            let Some(written) = Written::open(model).await? else {
                let what = format!("there is no finished result at {at}; run its pipeline first");
                return Err(Error::input(what));
            };
            check_kind(K::NAME, &written.kind, at)?;
            let model = Model { written, at };
            K::check_columns(&plan.rows, &model).await?;
            let hash = hash(K::NAME, &plan.hash, &model.written.current, options);
            output.check(K::TABLES)?;
            if !options.force {
                output.check_job(&plan.name).await?;
            }
            let begun = output.begin(&hash).await?;
            let current = begun.earlier();
            if current.is_some_and(|c| kind_of(c).is_some()) {
                return Err(Error::spec(format!(
                    "{} holds the models of a run, which the assigned rows would replace; name another folder with --output",
                    output.shown()
                )));
            }
            if !options.force && current.is_some_and(|c| c.plan == hash && c.complete) {
                return Ok(None);
            }
            let threads = self.lake.threads;
            let head = Head::begin(&begun.run, &plan.name, &hash, threads, &plan.tables);
            let mut record = AssignRecord {
                head,
                kind: K::NAME,
                model: at.to_string(),
                model_run: model.written.current.run.clone(),
                smoothing: options.smoothing,
                warnings: Vec::new(),
                models: Vec::new(),
            };
            let drive = self.drive(&model, output, &begun, options, &progress, &mut record);
            match drive.await {
                Ok(()) => Ok(Some(Box::new(record))),
                Err(e) => {
                    output.abandon().await;
                    record.head.failed(&e);
                    output.keep_failed(&begun.run, &record).await;
                    Err(e)
                }
            }
        })
    }

    async fn drive(
        &self,
        model: &Model<'_>,
        output: &Output,
        begun: &Begun,
        options: &AssignOptions,
        progress: &Arc<dyn Progress>,
        record: &mut AssignRecord<K>,
    ) -> Result<()> {
        let at = model.at;
        let mut run = Assigning {
            planned: self,
            model,
            output,
            begun,
            options,
            progress,
            head: &mut record.head,
        };
        let mut assigned = K::assign(&mut run).await?;
        if assigned.rows == 0 {
            return Err(run.no_rows());
        }
        if assigned.models.is_empty() {
            return Err(Error::input(format!(
                "none of the {} belongs to a partition that the model at {at} has",
                counted(assigned.rows, "row")
            )));
        }
        let (steps, pairs) = (self.assignment.rows.time_steps(), assigned.pairs.as_deref());
        let near = warnings(&self.lake, &self.frame, steps, assigned.rows, pairs).await?;
        assigned.warnings.extend(near);
        let head = &mut record.head;
        head.values_nulled = self
            .lake
            .nulled(std::slice::from_ref(&self.frame), None)
            .await?;
        (head.rows_read, head.rows_dropped) = (assigned.rows, assigned.dropped);
        head.tables = assigned.tables;
        head.done("write", head.tables.values().sum(), head.input_bytes);
        for place in assigned.lacking {
            head.lacks(place, at);
        }
        head.outcome = Ended::Done;
        (record.models, record.warnings) = (assigned.models, assigned.warnings);
        let promotion = Promotion {
            kind: K::NAME,
            plan: &record.head.plan,
            complete: record.head.failures.is_empty(),
            tables: &record.head.tables,
            keep: self.assignment.keep,
            record: &*record,
            begins: &|| progress.promoting(),
        };
        output.promote(begun, &promotion).await
    }
}

/// The hash of an assignment. It depends on the plan (which has the version of gyre), the run that
/// made the model and the smoothing.
fn hash(kind: &str, plan: &str, model: &Current, options: &AssignOptions) -> String {
    let mut hasher = blake3::Hasher::new();
    // Runs of one plan may name sets differently, so the run is hashed too.
    for part in ["assign", kind, plan, &model.plan, &model.run] {
        hasher.update(part.as_bytes());
    }
    hasher.update(&[u8::from(model.complete)]);
    hasher.update(&options.smoothing.to_le_bytes());
    hasher.finalize().to_hex()[..32].to_string()
}
