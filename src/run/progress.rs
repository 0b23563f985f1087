//! Callbacks for the progress of a run.

use crate::error::Result;
use crate::run::record::Record;

/// Receives the progress of a run. Any thread may call any method.
pub trait Progress: Send + Sync {
    /// A stage begins. `total` is the number of its units of work, if it is known.
    fn stage(&self, _name: &'static str, _total: Option<u64>) {}
    /// Units of work of the current stage are done.
    fn advance(&self, _units: u64) {}
    /// The record of the run so far. Called when the run begins and after every stage.
    fn recorded(&self, _record: &dyn Record) {}
    /// The commit begins. The run can no longer be stopped.
    ///
    /// # Errors
    /// If the run was stopped before.
    fn promoting(&self) -> Result<()> {
        Ok(())
    }
}

/// Ignores all progress.
pub struct Silent;

impl Progress for Silent {}
