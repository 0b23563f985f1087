//! The progress of a run, as callbacks.

use crate::run::record::RunRecord;

/// Hears how a run goes on. All calls may come from any thread.
pub trait Progress: Send + Sync {
    /// A stage begins; `total` units of work are ahead if it is known.
    fn stage(&self, _name: &'static str, _total: Option<u64>) {}
    /// Units of work of the present stage are done.
    fn advance(&self, _units: u64) {}
    /// The record of the run so far: when it begins and after every stage.
    fn recorded(&self, _record: &RunRecord) {}
    /// The result is being put in place: too late to stop.
    fn promoting(&self) {}
}

/// Hears nothing.
pub struct Silent;

impl Progress for Silent {}
