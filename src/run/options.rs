//! Options of a run over any kind of rows.

use crate::output::checkpoint::KEEP_EVERY;
use crate::run::filters::site::{FilterSite, LocalFilters};
use crate::run::local::Local;
use crate::run::points::local::LocalPoints;
use crate::run::points::site::PointSite;
use crate::run::sequences::site::{LocalSequences, SequenceSite};
use crate::run::site::Site;
use std::sync::Arc;
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
    pub sites: Sites,
}

/// Where the work of a run is done, by the kind of its rows.
#[derive(Clone)]
pub struct Sites {
    /// Where states are counted and fitted.
    pub states: Arc<dyn Site>,
    /// Where points are read.
    pub points: Arc<dyn PointSite>,
    /// Where windows of symbols are counted.
    pub sequences: Arc<dyn SequenceSite>,
    /// Where filters are fitted and rows are filtered.
    pub filters: Arc<dyn FilterSite>,
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
            sites: Sites::default(),
        }
    }
}

impl Default for Sites {
    /// This process.
    fn default() -> Sites {
        Sites {
            states: Arc::new(Local),
            points: Arc::new(LocalPoints),
            sequences: Arc::new(LocalSequences),
            filters: Arc::new(LocalFilters),
        }
    }
}
