//! Records the stages of a run and reports its progress.

use crate::error::{Error, Result};
use crate::output::staging::StagedTables;
use crate::run::kind::{DroppedRows, EvidenceKind, Fitted, Found, Running};
use crate::run::progress::Progress;
use crate::run::run_record::RunRecord;

/// The record of a run that is in progress, and the receiver of its progress.
pub(crate) struct Journal<'a, K: EvidenceKind> {
    /// The record so far.
    pub record: RunRecord<K>,
    /// Receives the record after every stage.
    pub progress: &'a dyn Progress,
}

impl<'a, K: EvidenceKind> Journal<'a, K> {
    /// Logs and reports that a run begins.
    pub(crate) fn new(record: RunRecord<K>, progress: &'a dyn Progress) -> Journal<'a, K> {
        let head = &record.head;
        tracing::info!(
            run = head.id,
            pipeline = head.pipeline,
            plan = head.plan,
            gyre = head.gyre,
            "run begins"
        );
        progress.recorded(&record);
        Journal { record, progress }
    }

    /// Records what was read.
    pub(crate) fn read(&mut self, found: Found<K>) {
        let record = &mut self.record;
        record.increment = found.increment;
        record.facts = found.facts;
        record.warnings = found.warnings;
        record.head.rows_read = found.rows;
        record.head.rows_dropped = found.dropped;
        record.head.time = found.time;
        self.done(K::READ, found.rows, self.record.head.input_bytes);
    }

    /// Records what was fitted.
    ///
    /// # Errors
    /// If there is no model: the error of the first one that could not be fitted.
    pub(crate) fn fitted(&mut self, fitted: &mut Fitted<K>) -> Result<()> {
        let record = &mut self.record;
        let (models, empty) = (fitted.models.len(), fitted.empty.len());
        let failures = std::mem::take(&mut fitted.failures);
        failures.finish(models, empty, &mut record.head.failures)?;
        record.empty = std::mem::take(&mut fitted.empty);
        record.gone = std::mem::take(&mut fitted.gone);
        record.resumed = fitted.resumed.take();
        self.done("fit", models as u64, 0);
        Ok(())
    }

    /// Records rows that a second pass dropped.
    pub(crate) fn dropped(&mut self, dropped: DroppedRows) {
        self.record.head.rows_dropped.extend(dropped);
    }

    /// Records tables that a stage has written.
    ///
    /// # Errors
    /// If the size of a table cannot be read.
    pub(crate) async fn staged(
        &mut self,
        stage: &'static str,
        run: &Running<'_, K>,
        tables: &StagedTables,
    ) -> Result<()> {
        let (mut rows, mut bytes) = (0, 0);
        for (&name, table) in tables {
            let size = run.output.staged_bytes(&run.begun.run, name).await?;
            self.record.table_bytes.insert(name, size);
            self.record.head.tables.insert(name, table.rows);
            (rows, bytes) = (rows + table.rows, bytes + size);
        }
        self.done(stage, rows, bytes);
        Ok(())
    }

    /// Records that a stage is done, see `Head::done`.
    pub(crate) fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
        self.record.head.done(stage, rows, bytes);
        self.progress.recorded(&self.record);
    }

    /// Records the error that ended the run.
    pub(crate) fn failed(&mut self, e: &Error) {
        self.record.head.failed(e);
        self.progress.recorded(&self.record);
    }
}
