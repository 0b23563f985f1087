//! Tasks: the bytes of a task → the bytes of its answer.
//!
//! A task names its output, where the plan and the results of other tasks are parts. Large results
//! go there too, and the answer names them. The pipeline has the options of stores; credentials and
//! endpoints come from the environment of the process. A task depends on the plan and on the pieces
//! that it names, never on the clock or on threads, so its answer is the same each time, except for
//! the times in records.
//!
//! `counting`, `filters`, `fitting`, `passing`, `points` and `sequences` do the work; `rounds`
//! decides which tasks there are.

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
use crate::plan::counts::CountsPlan;
use crate::read::lake::Resources;
use crate::store::Stores;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
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
        let (start, name, hash) = (Instant::now(), work.name(), site.plan.clone());
        let at = Place {
            plan,
            site,
            output,
            stores,
            resources,
        };
        let answer = match work {
            Work::Counting(work) => at.executor()?.counting(work).await,
            Work::Fit { groups, labels } => pack(&at.executor()?.fit(groups, labels).await?),
            Work::Cut { group, slots } => pack(&at.executor()?.cut(group, slots).await?),
            Work::Pass(pass) => at.executor::<CountsPlan>()?.pass(pass).await,
            Work::Points(work) => at.executor()?.points(work).await,
            Work::Sequences(work) => at.executor()?.sequences(work).await,
            Work::Filters(work) => at.executor()?.filters(work).await,
        };
        // A pass uses little memory, and the next one follows at once.
        if name != "pass" {
            crate::memory::give_back();
        }
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(work = name, plan = hash, seconds, "task done");
        answer
    })
}

/// The plan of a task, and where it is done.
struct Place {
    plan: Bytes,
    site: PlanSite,
    output: Output,
    stores: Stores,
    resources: Resources,
}

impl Place {
    fn executor<P: DeserializeOwned>(self) -> Result<TaskExecutor<P>> {
        Ok(TaskExecutor {
            plan: Arc::new(unpack(&self.plan)?),
            hash: self.site.plan,
            output: self.output,
            stores: self.stores,
            resources: self.resources,
        })
    }
}

fn read(task: &[u8]) -> Result<(PlanSite, Work)> {
    let Some(rest) = task.strip_prefix(FORMAT) else {
        let own = env!("CARGO_PKG_VERSION");
        let what = format!("this is not a task of gyre {own}; run one version on all machines");
        return Err(Error::spec(what));
    };
    unpack(rest)
}
