//! How a run goes on, stage by stage: its record as it grows, one event a stage in the log, and whoever listens.

use crate::manifest::{RunRecord, peak_memory_bytes};
use crate::run::Progress;
use std::time::Instant;

/// The record of a run as it grows, and who hears of it.
pub struct Journal<'a> {
    pub record: RunRecord,
    pub progress: &'a dyn Progress,
    clock: Instant,
}

impl<'a> Journal<'a> {
    pub fn new(record: RunRecord, progress: &'a dyn Progress) -> Journal<'a> {
        tracing::info!(
            run = record.id,
            pipeline = record.pipeline,
            plan = record.plan,
            gyre = record.gyre,
            "run begins"
        );
        progress.recorded(&record);
        let clock = Instant::now();
        Journal {
            record,
            progress,
            clock,
        }
    }

    /// A stage is done: one event in the log. `rows` are those that it read, counted (non-zeros) or wrote, or the checks it made.
    pub fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
        let (record, seconds) = (&mut self.record, self.clock.elapsed().as_secs_f64());
        record.seconds.insert(stage, seconds);
        record.peak_memory_bytes = peak_memory_bytes();
        record.finished = jiff::Timestamp::now().to_string();
        tracing::info!(
            run = record.id,
            stage,
            seconds,
            rows,
            bytes,
            peak_memory_bytes = record.peak_memory_bytes,
            "stage done"
        );
        self.progress.recorded(record);
        self.clock = Instant::now();
    }
}
