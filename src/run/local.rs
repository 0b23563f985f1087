//! Counts and fits in this process.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::Size;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints;
use crate::output::checkpoint::Checkpoint;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::plan::increments::Increments;
use crate::plan::memory::Lack;
use crate::plan::pipeline::keys::Empty;
use crate::read::counts::counted::Counted;
use crate::run::fitted::Fitted;
use crate::run::increment;
use crate::run::increment::{CountRequest, Counting};
use crate::run::journal::Journal;
use crate::run::model;
use crate::run::model::{MatrixSize, check_not_empty, fit_model, names, place};
use crate::run::progress::Progress;
use crate::run::record::Failure;
use crate::run::site::{Fits, Job, Site};
use futures::future::BoxFuture;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::Instant;

/// Counts are checkpointed if counting took at least this many times [`Job::keep_every`]. Writing
/// them takes long because they are large.
const COUNTING: u32 = 5;

/// The site that counts and fits in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Site for Local {
    fn fit<'s, 'a: 's>(
        &'s self,
        job: Job<'a>,
        journal: &'s mut Journal<'_>,
    ) -> BoxFuture<'s, Result<Fits<'a>>> {
        Box::pin(count_and_fit(job, journal))
    }
}

async fn count_and_fit<'a>(job: Job<'a>, journal: &mut Journal<'_>) -> Result<Fits<'a>> {
    let Job {
        plan,
        lake,
        frame,
        output,
        checkpoint: work,
        keep_every,
        progress,
        earlier,
    } = job;
    let start = Instant::now();
    let kept = counts_of_checkpoint(plan, work).await?;
    let has_resumed_counts = kept.is_some();
    let Counting {
        counted,
        ledger,
        record,
    } = match kept {
        Some(counting) => counting,
        None => {
            let progress = Arc::clone(progress);
            let advance = Arc::new(move |rows| progress.advance(rows as u64));
            let request = CountRequest {
                layout: &plan.layout,
                increments: &plan.increments,
                tables: &plan.job.tables,
            };
            increment::count(request, lake, frame, output, earlier, advance).await?
        }
    };
    let counting = start.elapsed();
    // If a ledger is kept, its objects hold the counts.
    let is_worth_keeping =
        !has_resumed_counts && ledger.is_none() && counting >= COUNTING * keep_every;
    let size = |counts: &CountMatrix| MatrixSize {
        nonzeros: counts.nnz() as u64,
        left_out: counts.left_out.as_ref().map_or(0.0, |l| l.transitions),
    };
    let matrices: Vec<MatrixSize> = counted.counts.iter().map(size).collect();
    journal.counted(&counted, record);
    check_not_empty(&counted, &matrices)?;
    crate::memory::give_back();
    let (plan, work, progress) = (Arc::clone(plan), Arc::clone(work), Arc::clone(progress));
    let (fitted, failures) = tokio::task::spawn_blocking(move || {
        if is_worth_keeping {
            checkpoints::keep(work.as_ref(), COUNTED, counting, &counted);
        }
        let mut failures = Vec::new();
        let fitted = fit_all(&plan, counted, &work, progress.as_ref(), &mut failures);
        (fitted, failures)
    })
    .await
    .map_err(|e| Error::with_source(Kind::Bug, "fitting panicked", e))?;
    journal.record.head.failures = failures;
    let mut fitted = fitted?;
    fitted.has_resumed_counts = has_resumed_counts;
    Ok(Fits {
        fitted,
        ledger,
        matrices: None,
    })
}

/// The name of the counts among the checkpoints of a plan.
const COUNTED: &str = "counted";

/// The counts that an earlier run checkpointed. None if the plan counts new files only, because
/// the ledger holds those counts.
async fn counts_of_checkpoint(
    plan: &CountsPlan,
    work: &Arc<Checkpoint>,
) -> Result<Option<Counting>> {
    if matches!(plan.increments, Increments::Of { .. }) {
        return Ok(None);
    }
    let work = Arc::clone(work);
    let found = tokio::task::spawn_blocking(move || checkpoints::find(work.as_ref(), COUNTED))
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "reading the counts panicked", e))?;
    Ok(found.map(|counted| Counting {
        counted,
        ledger: None,
        record: None,
    }))
}

/// Checks that a model fits into memory. Beside it, those that do not fail alone.
///
/// # Errors
/// If no model does: the largest need.
fn check_memory(plan: &CountsPlan, names: &RunSchema, counts: &[CountMatrix]) -> Result<()> {
    let (threads, limit) = (rayon::current_num_threads(), crate::memory::limit());
    let lack = |counts: &CountMatrix| {
        let size = Size {
            sources: counts.source_states.len() as u64,
            targets: counts.target_states.len() as u64,
            nonzeros: counts.nnz() as u64,
        };
        let lack = plan.lacking(size, threads, limit)?;
        Some(match place(names, counts) {
            place if place.is_empty() => lack,
            place => lack.at(place),
        })
    };
    let lacks: Option<Vec<Lack>> = counts.iter().map(lack).collect();
    Lack::none(lacks.into_iter().flatten())
}

/// Fits every partition and lag. Adds the models that failed to `failures`.
pub(crate) fn fit_all(
    plan: &CountsPlan,
    mut counted: Counted,
    work: &Checkpoint,
    progress: &dyn Progress,
    failures: &mut Vec<Failure>,
) -> Result<Fitted> {
    let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
    let names = names(plan, &counted, &labels);
    let mut counts = std::mem::take(&mut counted.counts);
    let mut empty = Vec::new();
    if plan.job.empty == Empty::Skip {
        counts.retain(|counts| {
            let is_empty = counts.nnz() == 0;
            empty.extend(is_empty.then_some((counts.partition, counts.lag)));
            !is_empty
        });
    }
    check_memory(plan, &names, &counts)?;
    let units = counts.len() * (plan.fits.len() + plan.embeddings.len() + plan.resamples());
    progress.stage("fit", Some(units as u64));
    let results = counts.into_par_iter().map(|counts| {
        let place = place(&names, &counts);
        let fitted = fit_model(plan, &names, counts, work, progress);
        let (model, timings) = fitted.map_err(|e| (place, e))?;
        let record = model::record(plan, &names, &model, timings);
        Ok((model, record))
    });
    let results = results.collect();
    Fitted::new(plan, names, &counted.labels, results, empty, failures)
}
