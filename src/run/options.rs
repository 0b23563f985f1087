//! Options of a run over any kind of evidence.

use crate::output::checkpoint::KEEP_EVERY;
use crate::run::workers::Workers;
use std::time::Duration;

/// Options of a run. No option but `force` and `full_refresh` changes what a run does.
#[derive(Clone)]
pub struct Options {
    /// Run even if the output is up to date, and do all work anew.
    pub force: bool,
    /// Count all rows anew, without the ledger, and run even if the output is up to date.
    pub full_refresh: bool,
    /// How often finished work is checkpointed.
    pub keep_every: Duration,
    /// Where the work is done.
    pub workers: Workers,
}

impl Options {
    /// Whether the run repeats work that is already finished.
    pub(crate) fn repeats_work(&self) -> bool {
        self.force || self.full_refresh
    }
}

impl Default for Options {
    /// Reuse finished work, checkpoint once per [`KEEP_EVERY`], do all work in this process.
    fn default() -> Options {
        Options {
            force: false,
            full_refresh: false,
            keep_every: KEEP_EVERY,
            workers: Workers::Local,
        }
    }
}
