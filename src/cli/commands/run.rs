//! `gyre run`: a pipeline from its inputs to its result.

use crate::cli::args::Run;
use crate::cli::commands::opening::with_inputs;
use crate::cli::commands::stopping::{finish, stoppable, until_stopped};
use crate::cli::openlineage::Planned;
use crate::cli::terminal::{Done, Terminal};
use crate::cli::watch::Watch;
use crate::error::Result;
use crate::plan::pipeline::Pipeline;
use crate::run::options::Options;
use std::sync::Arc;

#[cfg(feature = "report")]
use crate::report::draw_in_place;

#[cfg(feature = "cluster")]
use crate::cluster::ballista::client::Cluster;
#[cfg(feature = "cluster")]
use crate::output::place::Output;
#[cfg(feature = "cluster")]
use crate::plan::job::PlannedJob;
#[cfg(feature = "cluster")]
use crate::read::paths::current::Current;
#[cfg(feature = "cluster")]
use crate::run::workers::{SPLIT, Workers};

/// Runs a pipeline, and writes its metrics and lineage events.
///
/// # Errors
/// That of the run, or else the failure to write the reports.
pub(super) fn run(mut args: Run, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    args.pipeline.set.extend(args.tables.set());
    let watch = Arc::new(Watch::new(&args, Arc::clone(terminal))?);
    watch.end(run_pipeline(&args, &watch))
}

fn run_pipeline(args: &Run, watch: &Arc<Watch>) -> Result<Done> {
    let terminal = watch.terminal.as_ref();
    let pipeline = Pipeline::from_file_with(&args.pipeline.path, &args.pipeline.set)?;
    watch.set_pipeline(&pipeline.job.name);
    with_inputs(pipeline, &args.pipeline, &watch.terminal, async |inputs| {
        let run = stoppable(inputs.plan_any(args.pipeline.seed), terminal).await?;
        let job = run.job();
        watch.set_plan(Planned {
            job: job.clone(),
            schemas: run.schemas(),
        });
        let mut output = run.output()?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        #[cfg(feature = "report")]
        if args.report {
            output.set_companion(Arc::new(crate::cli::commands::report::Beside));
        }
        #[cfg_attr(not(feature = "cluster"), allow(unused_mut))]
        let mut options = Options {
            force: args.force,
            full_refresh: args.full_refresh,
            ..Options::default()
        };
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, job, &output, terminal).await?;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &cluster {
            options.workers = Workers::Remote {
                nodes: cluster.clone(),
                split: args.split.unwrap_or(SPLIT),
            };
        }
        let output = Arc::new(output);
        let (to, progress) = (Arc::clone(&output), Arc::clone(watch));
        let work = move || async move { run.run(&to, &options, progress).await };
        let ended = until_stopped(work, terminal, &output).await;
        // A run that was stopped could not write its own record.
        if let (Err(e), Some(mut record)) = (&ended, watch.record()) {
            record.head_mut().failed(e);
            output
                .keep_failed(&record.head().id, &record.to_json())
                .await;
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        match ended? {
            None => {
                let in_place = match args.metrics {
                    Some(_) => output.last_record().await?,
                    None => None,
                };
                watch.set_nothing_to_do(in_place);
                terminal.say("Nothing to do.");
                #[cfg(feature = "report")]
                if args.report
                    && let Some(page) = draw_in_place(&output).await?
                {
                    terminal.say(&format!("report: {page}"));
                }
                Ok(Done::Skipped(args.skip_code))
            }
            Some(finished) => Ok(finish(&finished, terminal)),
        }
    })
}

/// Connects to the cluster of a run, unless there is nothing to do.
#[cfg(feature = "cluster")]
async fn cluster(
    args: &Run,
    job: &PlannedJob,
    output: &Output,
    terminal: &dyn Terminal,
) -> Result<Option<Arc<Cluster>>> {
    let Some(address) = &args.cluster else {
        return Ok(None);
    };
    let is_done = |c: Current| c.plan == job.hash && c.complete;
    let reuse_nothing = args.force || args.full_refresh;
    if !reuse_nothing && output.intact().await?.is_some_and(is_done) {
        return Ok(None);
    }
    let connecting = Cluster::connect(address, &job.output, &job.hash, &job.stores);
    let cluster = stoppable(connecting, terminal).await?;
    if reuse_nothing {
        cluster.forget().await?;
    }
    Ok(Some(Arc::new(cluster)))
}
