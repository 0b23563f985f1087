//! Drives the stages of a run: read → fit → rows → write → check → promote.
//!
//! Each partition and lag has its own model. The stages of all kinds of evidence are in this file,
//! [`kind`] has what a kind says at each of them, and each kind has a folder.

pub mod assign;
pub mod batches;
pub(crate) mod checks;
pub mod compare;
pub mod counting;
pub mod counts;
pub(crate) mod empty;
pub mod failures;
pub mod init;
pub mod inputs;
pub(crate) mod journal;
pub mod kind;
pub(crate) mod near_misses;
pub mod observations;
pub mod options;
pub mod planned;
pub mod points;
pub mod progress;
pub mod record;
pub(crate) mod run_record;
pub mod sets;
pub(crate) mod summary;
pub mod symbols;
pub mod trajectories;
pub mod workers;

#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::memory::give_back;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::plan::kind::KindPlan;
use crate::read::lake::Lake;
use crate::read::lake::nulled::Nulled;
use crate::read::lake::rounding::numbered;
use crate::read::paths::current::Current;
use crate::run::journal::Journal;
use crate::run::kind::{EvidenceKind, Running, Written};
use crate::run::options::Options;
use crate::run::progress::{Progress, Silent};
use crate::run::record::Ended;
use crate::run::run_record::RunRecord;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A plan, the tables that it reads and its query.
pub struct Planned<K: EvidenceKind> {
    /// What the run will do.
    pub plan: Arc<K::Plan>,
    /// The tables that the query reads.
    pub lake: Lake,
    /// The query, with the columns of the layout.
    pub frame: DataFrame,
}

/// How a run ended.
pub enum Outcome<K: EvidenceKind> {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place; some partitions may have failed.
    Done(Box<RunRecord<K>>),
}

impl<K: EvidenceKind> Planned<K> {
    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    pub fn output(&self) -> Result<Output> {
        let job = self.plan.job();
        Output::open(&job.output, &job.stores)
    }

    /// Checks that the output can take the result, and what else the run reads. Writes nothing.
    ///
    /// # Errors
    /// If the output cannot be written, holds the result of another job (unless `force`), or the
    /// pipeline names something that is not there.
    pub(crate) async fn check_places(&self, output: &Output, force: bool) -> Result<()> {
        let schemas = self.plan.schemas();
        let tables: Vec<&str> = schemas.iter().map(|(name, _)| *name).collect();
        output.check(&tables)?;
        if !force {
            output.check_job(&self.plan.job().name).await?;
        }
        K::check(&self.plan).await
    }

    /// Runs the plan in this process. A run that fails leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting, checking or writing.
    pub async fn run(&self) -> Result<Outcome<K>> {
        let output = self.output()?;
        self.run_with(&output, &Options::default(), Arc::new(Silent))
            .await
    }

    /// Runs the plan with options, and reports its progress.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting, checking or writing.
    pub fn run_with<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<Outcome<K>>> {
        // A boxed future is compiled once, not again in every crate that polls it.
        Box::pin(async move {
            let job = self.plan.job();
            self.check_places(output, options.force).await?;
            let begun = output.begin(&job.hash).await?;
            let is_done = |c: &Current| c.plan == job.hash && c.complete;
            if !options.repeats_work() && begun.earlier().is_some_and(is_done) {
                // A run that died right after its commit left its checkpoints behind.
                output.remove_checkpoints(&job.hash).await;
                return Ok(Outcome::NothingToDo);
            }
            let record = RunRecord::new(job, &begun.run, self.lake.threads);
            let mut journal = Journal::new(record, progress.as_ref());
            match self
                .drive(output, &begun, options, &progress, &mut journal)
                .await
            {
                Ok(()) => Ok(Outcome::Done(Box::new(journal.record))),
                Err(e) => {
                    output.abandon().await;
                    journal.failed(&e);
                    output.keep_failed(&begun.run, &journal.record).await;
                    Err(e)
                }
            }
        })
    }

    /// Counts the values that become null in the columns that the run reads. `known` are those of
    /// the evidence, if its ledger has them.
    async fn nulled(&self, known: Option<Nulled>) -> Result<Nulled> {
        let mut frames = Vec::new();
        if known.is_none() {
            frames.push(self.frame.clone());
        }
        let (job, copied) = (self.plan.job(), self.plan.copied());
        if self.lake.makes_nulls() && !copied.is_empty() {
            let frame = self.lake.query(&job.sql, &job.parameters).await?;
            let names = copied.iter().map(|field| field.name().as_str());
            frames.push(numbered(frame, names, "the rows")?);
        }
        let mut nulled = self.lake.nulled(&frames, None).await?;
        for (table, columns) in known.unwrap_or_default() {
            nulled.entry(table).or_default().extend(columns);
        }
        Ok(nulled)
    }

    async fn drive(
        &self,
        output: &Output,
        begun: &Begun,
        options: &Options,
        progress: &Arc<dyn Progress>,
        journal: &mut Journal<'_, K>,
    ) -> Result<()> {
        let job = self.plan.job();
        let work = output.work(&job.hash, options.repeats_work(), options.keep_every);
        let run = Running {
            plan: &self.plan,
            lake: &self.lake,
            frame: &self.frame,
            output,
            begun,
            options,
            work: &Arc::new(work.await),
            progress,
            dealt: OnceCell::new(),
        };
        progress.stage(K::READ, None);
        let mut read = K::read(&run).await?;
        let found = &mut read.found;
        let (steps, pairs) = (self.plan.time_steps(), found.pairs.as_deref());
        let near = near_misses::warnings(&self.lake, &self.frame, steps, found.rows, pairs).await?;
        found.warnings.extend(near);
        let increment = read.found.increment.as_mut();
        let known = increment.and_then(|increment| increment.nulled.take());
        journal.record.head.values_nulled = self.nulled(known).await?;
        journal.read(read.found);

        progress.stage("fit", None);
        let mut fitted = K::fit(&run, read.evidence).await?;
        give_back();
        journal.fitted(&mut fitted)?;
        empty::warn(&run, &mut journal.record.empty).await?;
        let record = &mut journal.record;
        record
            .warnings
            .extend(empty::warn_of_gaps(&run, record.empty.len()));
        K::check_certificates(&run, &fitted)?;

        output.claim_version(begun).await?;
        let mut written = Written::default();
        if self.plan.rows_text().is_some() {
            progress.stage("rows", None);
            written = K::rows(&run, &mut fitted).await?;
            journal.staged("rows", &run, &written.tables).await?;
        }

        progress.stage("write", None);
        let tables = K::stage(&run, &fitted).await?;
        let models = 0..fitted.models.len();
        let models = models.map(|at| K::record(&run, &fitted, &written, at));
        journal.record.models = models.collect();
        journal.record.facts = fitted.facts.clone();
        journal.dropped(written.dropped);
        journal.staged("write", &run, &tables).await?;
        if let Some(ledger) = &read.ledger {
            output.put_ledger(&begun.run, ledger).await?;
        }

        let mut tables = tables;
        tables.extend(written.tables);
        checks::check(&run, &tables, journal).await?;
        journal.record.head.outcome = Ended::Done;
        let promotion = Promotion {
            kind: K::NAME,
            plan: &job.hash,
            complete: journal.record.head.failures.is_empty(),
            tables: &journal.record.head.tables,
            keep: job.keep,
            record: &journal.record,
            begins: &|| progress.promoting(),
        };
        output.promote(begun, &promotion).await?;
        output.remove_checkpoints(&job.hash).await;
        let (rows, bytes) = journal.record.written();
        journal.done("promote", rows, bytes);
        Ok(())
    }
}
