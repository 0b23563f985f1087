//! Callbacks for the progress of a run.

use crate::run::points::record::PointsRecord;
use crate::run::record::RunRecord;
use crate::run::sequences::record::SequencesRecord;

/// Receives the progress of a run. Any thread may call any method.
pub trait Progress: Send + Sync {
    /// A stage begins. `total` is the number of its units of work, if it is known.
    fn stage(&self, _name: &'static str, _total: Option<u64>) {}
    /// Units of work of the current stage are done.
    fn advance(&self, _units: u64) {}
    /// The record of the run so far. Called when the run begins and after every stage.
    fn recorded(&self, _record: &RunRecord) {}
    /// The same for a run over points.
    fn recorded_points(&self, _record: &PointsRecord) {}
    /// The same for a run over sequences.
    fn recorded_sequences(&self, _record: &SequencesRecord) {}
    /// The commit begins. The run can no longer be stopped.
    fn promoting(&self) {}
}

/// Ignores all progress.
pub struct Silent;

impl Progress for Silent {}
