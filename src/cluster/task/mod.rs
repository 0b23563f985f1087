//! Tasks: the bytes of a task → the bytes of its answer.
//!
//! A task names its output, where the plan and the results of other tasks are parts. Large results
//! go there too, and the answer names them. The pipeline has the options of stores; credentials and
//! endpoints come from the environment of the process. A task depends on the plan and on the pieces
//! that it names, never on the clock or on threads, so its answer is the same each time, except for
//! the times in records.
//!
//! `counting`, `filters`, `fitting`, `passing`, `points` and `sequences` do the work; `rounds` decides which
//! tasks there are.

pub mod cache;
pub mod counting;
pub mod executor;
pub mod filters;
pub mod fitting;
pub mod passing;
pub mod points;
pub mod reading;
pub mod sequences;
pub mod work;

use crate::cluster::task::executor::TaskExecutor;
use crate::cluster::task::work::{FORMAT, PlanSite, Work};
use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack};
use crate::output::place::Output;
use crate::plan::Plan;
use crate::plan::filters::FiltersPlan;
use crate::plan::points::PointsPlan;
use crate::plan::sequences::SequencesPlan;
use crate::read::lake::Resources;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;

/// Does a task with the resources of this process. The future gives the answer.
pub fn perform(task: &[u8], resources: &Resources) -> BoxFuture<'static, Result<Vec<u8>>> {
    let task = read(task);
    let resources = *resources;
    Box::pin(async move {
        let (site, work) = task?;
        let stores = site.options.stores()?;
        let output = Output::open(&site.output, &stores)?;
        let plan = output.piece(&site.plan, &site.bytes).await?;
        let (start, name) = (Instant::now(), work.name());
        let work = match work {
            Work::Points(work) => {
                let executor = TaskExecutor::<PointsPlan> {
                    plan: Arc::new(unpack(&plan)?),
                    hash: site.plan,
                    output,
                    stores,
                    resources,
                };
                let answer = executor.points(work).await;
                return done(&executor.hash, name, start, answer);
            }
            Work::Sequences(work) => {
                let executor = TaskExecutor::<SequencesPlan> {
                    plan: Arc::new(unpack(&plan)?),
                    hash: site.plan,
                    output,
                    stores,
                    resources,
                };
                let answer = executor.sequences(work).await;
                return done(&executor.hash, name, start, answer);
            }
            Work::Filters(work) => {
                let executor = TaskExecutor::<FiltersPlan> {
                    plan: Arc::new(unpack(&plan)?),
                    hash: site.plan,
                    output,
                    stores,
                    resources,
                };
                let answer = executor.filters(work).await;
                return done(&executor.hash, name, start, answer);
            }
            work => work,
        };
        let executor = TaskExecutor::<Plan> {
            plan: Arc::new(unpack(&plan)?),
            hash: site.plan,
            output,
            stores,
            resources,
        };
        let answer = match work {
            Work::Deal { files, lots } => pack(&executor.deal(files, lots).await?),
            Work::Sum { rows, lots } => pack(&executor.sum(rows, lots).await?),
            Work::Add { sums, direct } => pack(&executor.add(&sums, direct).await?),
            Work::Count { sums, direct } => pack(&executor.count(&sums, direct).await?),
            Work::CountAll => pack(&executor.count_all().await?),
            Work::Fit { groups, labels } => pack(&executor.fit(groups, labels).await?),
            Work::Cut { group, slots } => pack(&executor.cut(group, slots).await?),
            Work::Pass(pass) => executor.pass(pass).await,
            Work::Points(_) | Work::Sequences(_) | Work::Filters(_) => {
                Err(Error::bug("a task has the plan of another kind of run"))
            }
        };
        done(&executor.hash, name, start, answer)
    })
}

fn done(
    plan: &str,
    work: &'static str,
    start: Instant,
    answer: Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    // A pass uses little memory, and the next one follows at once.
    if work != "pass" {
        crate::memory::give_back();
    }
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!(work, plan, seconds, "task done");
    answer
}

fn read(task: &[u8]) -> Result<(PlanSite, Work)> {
    let Some(rest) = task.strip_prefix(FORMAT) else {
        let own = env!("CARGO_PKG_VERSION");
        let what = format!("this is not a task of gyre {own}; run one version on all machines");
        return Err(Error::spec(what));
    };
    unpack(rest)
}
