//! Tasks: the bytes of a task → the bytes of its answer.
//!
//! A task names its output, where the plan and the results of other tasks are parts. Large results
//! go there too, and the answer names them. The pipeline has the options of stores; credentials and
//! endpoints come from the environment of the process. A task depends on the plan and on the pieces
//! that it names, never on the clock or on threads, so its answer is the same each time, except for
//! the times in records.

use crate::error::{Error, Result};
use crate::evidence::pass::packed::unpack;
use crate::memory;
use crate::output::place::Output;
use crate::read::lake::Resources;
use crate::run::Planned;
use crate::run::kind::EvidenceKind;
use crate::run::workers::executor::TaskExecutor;
use crate::run::workers::slices::{Split, Width};
use crate::run::workers::work::{FORMAT, PlanSite};
use crate::store::Stores;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Instant;

/// A kind of evidence whose work other machines can do.
pub trait Tasks: EvidenceKind {
    /// The work of a task.
    type Work: Serialize + DeserializeOwned + Send + Sync;

    /// The name of the work in logs.
    fn name(work: &Self::Work) -> &'static str;

    /// Does the work. The answer is packed.
    ///
    /// # Errors
    /// If the work fails.
    fn perform(place: TaskPlace, work: Self::Work) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// The tasks that read files, and the rounds.
    ///
    /// # Errors
    /// Why one task reads all of them.
    fn width(planned: &Planned<Self>) -> Result<Width, String>;

    /// When models are split: those of more than `split` non-zeros. None if they never are.
    ///
    /// # Errors
    /// If other machines do not take such a plan.
    fn split(
        _planned: &Planned<Self>,
        _split: u64,
    ) -> impl Future<Output = Result<Option<Split>>> + Send {
        async { Ok(None) }
    }
}

/// The plan of a task, and where the task is done.
pub struct TaskPlace {
    plan: Bytes,
    site: PlanSite,
    output: Output,
    stores: Stores,
    resources: Resources,
}

impl TaskPlace {
    /// The executor of a task with a plan of this type.
    ///
    /// # Errors
    /// If the plan is of another type.
    pub(crate) fn executor<P: DeserializeOwned>(self) -> Result<TaskExecutor<P>> {
        Ok(TaskExecutor {
            plan: Arc::new(unpack(&self.plan)?),
            hash: self.site.plan,
            output: self.output,
            stores: self.stores,
            resources: self.resources,
        })
    }
}

/// A task that is unpacked, but for its work.
pub struct Received {
    /// The name of the kind whose work it is.
    pub(crate) kind: String,
    site: PlanSite,
    work: Vec<u8>,
}

/// Unpacks a task.
///
/// # Errors
/// If another version of gyre has made it.
pub(crate) fn receive(task: &[u8]) -> Result<Received> {
    let Some(rest) = task.strip_prefix(FORMAT) else {
        let own = env!("CARGO_PKG_VERSION");
        let what = format!("this is not a task of gyre {own}; run one version on all machines");
        return Err(Error::spec(what));
    };
    let (site, kind, work) = unpack(rest)?;
    Ok(Received { kind, site, work })
}

/// Does a task of a kind with the resources of this process.
pub(crate) fn perform<K: Tasks>(
    task: Received,
    resources: Resources,
) -> BoxFuture<'static, Result<Vec<u8>>> {
    Box::pin(async move {
        let Received { site, work, .. } = task;
        let work: K::Work = unpack(&work)?;
        let stores = site.options.stores()?;
        let output = Output::open(&site.output, &stores)?;
        let plan = output.piece(&site.plan, &site.bytes).await?;
        let (start, name, hash) = (Instant::now(), K::name(&work), site.plan.clone());
        let place = TaskPlace {
            plan,
            site,
            output,
            stores,
            resources,
        };
        let answer = K::perform(place, work).await;
        // A pass uses little memory, and the next one follows at once.
        if name != "pass" {
            memory::give_back();
        }
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(work = name, plan = hash, seconds, "task done");
        answer
    })
}
