//! How a run goes on, stage by stage: its record as it grows, and whoever listens.

use crate::read::counts::counted::Counted;
use crate::run::progress::Progress;
use crate::run::record::{IncrementRecord, RunRecord};

/// The record of a run as it grows, and who hears of it.
pub struct Journal<'a> {
    pub record: RunRecord,
    pub progress: &'a dyn Progress,
}

impl<'a> Journal<'a> {
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

    /// Rows are counted.
    pub fn counted(&mut self, counted: &Counted, increment: Option<IncrementRecord>) {
        self.record.increment = increment;
        self.record.head.rows_read = counted.rows;
        self.record.head.rows_dropped = counted.dropped.0.clone();
        self.done("count", counted.rows, self.record.head.input_bytes);
    }

    /// A stage is done (`Head::done`).
    pub fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
        self.record.head.done(stage, rows, bytes);
        self.progress.recorded(&self.record);
    }
}
