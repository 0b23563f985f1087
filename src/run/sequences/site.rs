//! Where a run over sequences counts windows and decomposes them: in this process, or on other
//! machines.

use crate::error::Result;
use crate::methods::hmm::project::Projection;
use crate::output::checkpoint::Checkpoint;
use crate::output::place::Output;
use crate::plan::sequences::SequencesPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::run::increment;
use crate::run::increment::{CountRequest, Counting};
use crate::run::progress::Progress;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a site counts.
pub struct SequenceJob<'a> {
    /// The plan of the run.
    pub plan: &'a Arc<SequencesPlan>,
    /// The open tables of the pipeline.
    pub lake: &'a Lake,
    /// The query of the plan.
    pub frame: &'a DataFrame,
    /// The output, which holds the ledger.
    pub output: &'a Output,
    /// Finished work of this run and of earlier runs of the same plan.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
    /// The current result. None if all rows must be counted anew.
    pub earlier: Option<&'a Current>,
}

/// The counts of a job.
pub struct SequenceCounts {
    /// The counts of all partitions.
    pub counting: Counting,
    /// The decompositions that the site has made, or why it could not, by partition, in the order
    /// of [`project_partition`](super::fit::project_partition).
    pub projections: BTreeMap<usize, Result<Vec<Projection>>>,
}

/// Counts the windows of a plan. Every site gives the same counts, to the last byte.
pub trait SequenceSite: Send + Sync {
    /// Counts the windows, and decomposes them if other machines can.
    ///
    /// # Errors
    /// If the rows cannot be read or counted, or a decomposition fails.
    fn count<'a>(&'a self, job: &'a SequenceJob<'_>) -> BoxFuture<'a, Result<SequenceCounts>>;
}

/// The site that counts in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalSequences;

impl SequenceSite for LocalSequences {
    fn count<'a>(&'a self, job: &'a SequenceJob<'_>) -> BoxFuture<'a, Result<SequenceCounts>> {
        Box::pin(async move {
            let progress = Arc::clone(job.progress);
            let advance = Arc::new(move |rows| progress.advance(rows as u64));
            let request = CountRequest {
                layout: &job.plan.layout,
                increments: &job.plan.increments,
                tables: &job.plan.job.tables,
            };
            let (frame, output) = (job.frame.clone(), job.output);
            let counting =
                increment::count(request, job.lake, frame, output, job.earlier, advance).await?;
            Ok(SequenceCounts {
                counting,
                projections: BTreeMap::new(),
            })
        })
    }
}
