//! Adds up the time of filters.

use crate::read::observations::ObservationBatch;
use crate::run::observations::scoring::Scored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time of filters by partition and fit: the sum over threads and tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FilterSeconds(BTreeMap<(u32, usize), f64>);

impl FilterSeconds {
    /// Adds the time of the tasks of a batch.
    pub(crate) fn add(&mut self, batch: &ObservationBatch, scored: &[Scored]) {
        for task in scored {
            let partition = batch.trajectories[task.trajectories.start].partition;
            for (fit, seconds) in task.seconds.iter().enumerate() {
                *self.0.entry((partition, fit)).or_default() += seconds;
            }
        }
    }

    /// Adds the time of other rows.
    pub(crate) fn add_all(&mut self, others: &FilterSeconds) {
        for (&key, seconds) in &others.0 {
            *self.0.entry(key).or_default() += seconds;
        }
    }

    /// The time of a fit of a partition. None if it filtered no row.
    pub(crate) fn of(&self, partition: u32, fit: usize) -> Option<f64> {
        self.0.get(&(partition, fit)).copied()
    }
}
