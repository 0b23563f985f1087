//! CountMatrix and fits in this process.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints;
use crate::output::checkpoint::Checkpoint;
use crate::plan::pipeline::keys::Empty;
use crate::plan::{Increments, Plan};
use crate::read::counts::counted::Counted;
use crate::run::fitted::Fitted;
use crate::run::increment;
use crate::run::increment::Counting;
use crate::run::journal::Journal;
use crate::run::model;
use crate::run::model::check_not_empty;
use crate::run::model::{fit_model, names, place};
use crate::run::progress::Progress;
use crate::run::record::Failure;
use crate::run::site::{Fits, Job, Site};
use futures::future::BoxFuture;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::Instant;

/// CountMatrix are large beside what counting takes: they are worth keeping if it took so many times as long.
const COUNTING: u32 = 5;

/// This process.
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
    let kept = counted_before(plan, work).await?;
    let is_counted = kept.is_some();
    let Counting {
        counted,
        ledger,
        record,
    } = match kept {
        Some(counting) => counting,
        None => {
            let hear = Arc::clone(progress);
            let hear = Arc::new(move |rows| hear.advance(rows as u64));
            increment::count(plan, lake, frame, output, earlier, hear).await?
        }
    };
    let counting = start.elapsed();
    // Where files are counted one by one, what was counted is in the objects of the ledger.
    let is_worth_it = !is_counted && ledger.is_none() && counting >= COUNTING * keep_every;
    let of = |counts: &CountMatrix| {
        let left_out = counts.left_out.as_ref();
        (counts.nnz() as u64, left_out.map_or(0.0, |l| l.transitions))
    };
    let matrices = counted.counts.iter().map(of).collect();
    journal.counted(&counted, record);
    check_not_empty(&counted, matrices)?;
    crate::memory::give_back();
    let (plan, work, progress) = (Arc::clone(plan), Arc::clone(work), Arc::clone(progress));
    let fitted = tokio::task::spawn_blocking(move || {
        if is_worth_it {
            checkpoints::keep(work.as_ref(), COUNTED, counting, &counted);
        }
        let mut failures = Vec::new();
        let fitted = fit_all(&plan, counted, &work, progress.as_ref(), &mut failures);
        (fitted, failures)
    });
    let fitted = fitted.await;
    let (fitted, failures) =
        fitted.map_err(|e| Error::with_source(Kind::Bug, "fitting died", e))?;
    journal.record.head.failures = failures;
    let mut fitted = fitted?;
    fitted.is_counted = is_counted;
    Ok(Fits {
        fitted,
        ledger,
        matrices: None,
    })
}

/// The name of the counts among the work of a plan.
const COUNTED: &str = "counted";

/// The counts that an earlier run has kept. Those of a plan that counts by files are in its ledger's objects.
async fn counted_before(plan: &Plan, work: &Arc<Checkpoint>) -> Result<Option<Counting>> {
    if matches!(plan.increments, Increments::Of { .. }) {
        return Ok(None);
    }
    let work = Arc::clone(work);
    let found = tokio::task::spawn_blocking(move || checkpoints::find(work.as_ref(), COUNTED));
    let found = found
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "reading the counts died", e))?;
    Ok(found.map(|counted| Counting {
        counted,
        ledger: None,
        record: None,
    }))
}

/// Fits every partition and lag.
pub(crate) fn fit_all(
    plan: &Plan,
    mut counted: Counted,
    work: &Checkpoint,
    progress: &dyn Progress,
    failures: &mut Vec<Failure>,
) -> Result<Fitted> {
    let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
    let names = names(plan, &counted, &labels);
    let mut counts = std::mem::take(&mut counted.counts);
    let mut empty = Vec::new();
    if plan.empty == Empty::Skip {
        counts.retain(|counts| {
            let is_empty = counts.nnz() == 0;
            empty.extend(is_empty.then_some((counts.partition, counts.lag)));
            !is_empty
        });
    }
    let units = counts.len() * (plan.fits.len() + plan.resamples());
    progress.stage("fit", Some(units as u64));
    let results = counts.into_par_iter().map(|counts| {
        let place = place(&names, &counts);
        let fitted = fit_model(plan, &names, counts, work, progress);
        let (model, told) = fitted.map_err(|e| (place, e))?;
        let record = model::record(plan, &names, &model, told);
        Ok((model, record))
    });
    let results = results.collect();
    Fitted::of(plan, names, &counted.labels, results, empty, failures)
}
