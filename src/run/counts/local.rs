//! Counts and fits in this process.

use crate::error::Result;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints;
use crate::memory;
use crate::output::checkpoint::Checkpoint;
use crate::output::ledger::Ledger;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::plan::increments::Increments;
use crate::plan::memory::Lack;
use crate::plan::pipeline::keys::Empty;
use crate::read::counts::counted::Counted;
use crate::run::counting::increment::{self, Counting};
use crate::run::counts::fitted::collect;
use crate::run::counts::kind::CountsKind;
use crate::run::counts::model::{check_not_empty, fit_model, names, place, size};
use crate::run::kind::{Fitted, Found, Running};
use crate::run::progress::Progress;
use crate::run::record::{Resumed, TimeRecord};
use crate::run::workers::executor::blocking_as;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts are checkpointed if counting took at least this many times
/// `Options::keep_every`: they are large, so that writing them takes long.
pub(crate) const COUNTING: u32 = 5;

/// Counts in this process.
pub struct CountedHere {
    counted: Counted,
    /// Whether they come from the checkpoint of an earlier run.
    is_resumed: bool,
    /// The time that counting took, if the counts are worth a checkpoint.
    to_keep: Option<Duration>,
}

/// Counts the rows, or takes the counts of a run that did not end.
pub(super) async fn count(
    run: &Running<'_, CountsKind>,
) -> Result<(CountedHere, Found<CountsKind>, Option<Ledger>)> {
    let plan = run.plan;
    let start = Instant::now();
    let kept = counts_of_checkpoint(&plan.increments, run.work).await?;
    let is_resumed = kept.is_some();
    let Counting {
        counted,
        ledger,
        record,
    } = match kept {
        Some(counting) => counting,
        None => increment::count(run, &plan.layout, &plan.increments).await?,
    };
    let took = start.elapsed();
    let found = Found {
        rows: counted.rows,
        dropped: counted.dropped.0.clone(),
        time: TimeRecord::new(&plan.layout.rules, counted.time),
        increment: record,
        pairs: counted.pairs(&plan.layout),
        ..Found::default()
    };
    // If a ledger is kept, its objects hold the counts.
    let is_worth_keeping =
        !is_resumed && ledger.is_none() && took >= COUNTING * run.options.keep_every;
    let counted = CountedHere {
        counted,
        is_resumed,
        to_keep: is_worth_keeping.then_some(took),
    };
    Ok((counted, found, ledger))
}

/// Fits every partition and lag in this process.
pub(super) async fn fit(
    run: &Running<'_, CountsKind>,
    of: CountedHere,
) -> Result<Fitted<CountsKind>> {
    let size = |counts: &CountMatrix| {
        let left_out = counts.left_out.as_ref();
        (counts.nnz() as u64, left_out.map_or(0.0, |l| l.transitions))
    };
    let counted = of.counted;
    let matrices: Vec<(u64, f64)> = counted.counts.iter().map(size).collect();
    check_not_empty(&counted, &matrices, &run.plan.times)?;
    memory::give_back();
    let (plan, work) = (Arc::clone(run.plan), Arc::clone(run.work));
    let progress = Arc::clone(run.progress);
    let fitted = blocking_as("fitting", move || {
        if let Some(took) = of.to_keep {
            checkpoints::keep(work.as_ref(), COUNTED, took, &counted);
        }
        fit_all(&plan, counted, &work, progress.as_ref())
    });
    let mut fitted = fitted.await?;
    fitted.resumed = Resumed::pieces(run.work, of.is_resumed);
    Ok(fitted)
}

/// The name of the counts among the checkpoints of a plan.
pub(crate) const COUNTED: &str = "counted";

/// The counts that an earlier run checkpointed. None if the plan counts new files only, because
/// the ledger holds those counts.
pub(crate) async fn counts_of_checkpoint(
    increments: &Increments,
    work: &Arc<Checkpoint>,
) -> Result<Option<Counting>> {
    if matches!(increments, Increments::Of { .. }) {
        return Ok(None);
    }
    let work = Arc::clone(work);
    let find = move || Ok(checkpoints::find(work.as_ref(), COUNTED));
    let found = blocking_as("reading the counts", find).await?;
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
    let (threads, limit) = (rayon::current_num_threads(), memory::limit());
    let lack = |counts: &CountMatrix| {
        let lack = plan.lacking(size(counts), threads, limit)?;
        Some(match place(names, counts) {
            place if place.is_empty() => lack,
            place => lack.at(place),
        })
    };
    let lacks: Option<Vec<Lack>> = counts.iter().map(lack).collect();
    Lack::none(lacks.into_iter().flatten())
}

/// Fits every partition and lag.
pub(crate) fn fit_all(
    plan: &CountsPlan,
    mut counted: Counted,
    work: &Checkpoint,
    progress: &dyn Progress,
) -> Result<Fitted<CountsKind>> {
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
        fit_model(plan, &names, counts, work, progress).map_err(|e| (place, e))
    });
    let results = results.collect();
    collect(plan, names, &counted.labels, results, empty)
}
