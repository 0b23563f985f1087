//! Records the stages of a run and reports its progress.

use crate::read::counts::counted::Counted;
use crate::run::progress::Progress;
use crate::run::record::{IncrementRecord, RunRecord};

/// The record of a run that is in progress, and the receiver of its progress.
pub struct Journal<'a> {
    /// The record so far.
    pub record: RunRecord,
    /// Receives the record after every stage.
    pub progress: &'a dyn Progress,
}

impl<'a> Journal<'a> {
    /// Logs and reports that a run begins.
    pub fn new(record: RunRecord, progress: &'a dyn Progress) -> Journal<'a> {
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

    /// Records what was counted, and that the stage `count` is done.
    pub fn counted(&mut self, counted: &Counted, increment: Option<IncrementRecord>) {
        self.record.increment = increment;
        self.record.head.rows_read = counted.rows;
        self.record.head.rows_dropped = counted.dropped.0.clone();
        self.done("count", counted.rows, self.record.head.input_bytes);
    }

    /// Records that a stage is done, see `Head::done`.
    pub fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
        self.record.head.done(stage, rows, bytes);
        self.progress.recorded(&self.record);
    }
}
