//! Where a run counts and fits: in this process, or on other machines.

use crate::error::Result;
use crate::output::Fetch;
use crate::output::checkpoint::Checkpoint;
use crate::output::ledger::Ledger;
use crate::output::place::Output;
use crate::plan::counts::CountsPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::run::fitted::Fitted;
use crate::run::journal::Journal;
use crate::run::progress::Progress;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// What a site counts and fits.
pub struct Job<'a> {
    /// The plan of the run.
    pub plan: &'a Arc<CountsPlan>,
    /// The open tables of the pipeline.
    pub lake: &'a Lake,
    /// The query of the plan.
    pub frame: DataFrame,
    /// The output, which holds the ledger.
    pub output: &'a Output,
    /// Finished work of this run and of earlier runs of the same plan.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// How often finished work is checkpointed.
    pub keep_every: Duration,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
    /// The current result. None if all rows must be counted anew.
    pub earlier: Option<&'a Current>,
}

/// The fits of a job.
pub struct Fits<'a> {
    pub(crate) fitted: Fitted,
    /// The files that were counted, if the plan counts new files only.
    pub(crate) ledger: Option<Ledger>,
    /// Reads the matrices of the models, if they are not in this process.
    pub(crate) matrices: Option<Box<dyn Fetch + 'a>>,
}

/// Counts the rows of a plan and fits all partitions and lags.
///
/// Every site gives the same fits, to the last byte.
pub trait Site: Send + Sync {
    /// Counts and fits a job and records the stage `count` in the journal.
    ///
    /// # Errors
    /// If the rows cannot be read or counted, or no model can be fitted.
    fn fit<'s, 'a: 's>(
        &'s self,
        job: Job<'a>,
        journal: &'s mut Journal<'_>,
    ) -> BoxFuture<'s, Result<Fits<'a>>>;
}
