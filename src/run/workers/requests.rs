//! Rounds of tasks: requests to other machines, and their answers.

use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack};
use crate::output::parts::Piece;
use crate::plan::kind::KindPlan;
use crate::run::kind::Running;
use crate::run::progress::Progress;
use crate::run::workers::nodes::{Nodes, Task};
use crate::run::workers::reading::Slice;
use crate::run::workers::slices::{Dealt, by_lot, lots, slices};
use crate::run::workers::task::Tasks;
use crate::run::workers::work::{FORMAT, PlanSite};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// Requests the tasks of one plan.
pub(crate) struct Requests<'a, K: Tasks> {
    pub(crate) site: PlanSite,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) progress: &'a dyn Progress,
    kind: PhantomData<K>,
}

impl<'a, K: Tasks> Requests<'a, K> {
    pub(crate) fn new(
        site: PlanSite,
        nodes: &Arc<dyn Nodes>,
        progress: &'a dyn Progress,
    ) -> Requests<'a, K> {
        Requests {
            site,
            nodes: Arc::clone(nodes),
            progress,
            kind: PhantomData,
        }
    }

    /// Stores the plan of a run for its tasks.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn of(run: &Running<'a, K>, nodes: &Arc<dyn Nodes>) -> Result<Self> {
        let job = run.plan.job();
        let site = PlanSite::of(&job.hash, &job.stores, run.plan.as_ref(), run.output).await?;
        Ok(Requests::new(site, nodes, run.progress.as_ref()))
    }

    /// The answers to the tasks of a round, or the first error.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<K::Work>,
    ) -> Result<Vec<T>> {
        self.round(stage, work).await?.into_iter().collect()
    }

    /// The answers to the tasks of a round.
    pub(crate) async fn round<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<K::Work>,
    ) -> Result<Vec<Result<T>>> {
        let tasks = self.tasks(&work)?;
        let n = tasks.len();
        // Tasks name their data and hold none of it, so even the largest is small.
        let task_bytes = tasks.iter().map(|task| task.bytes.len()).max();
        tracing::info!(stage, tasks = n, task_bytes, "a round begins");
        self.progress.stage(stage, Some(n as u64));
        let advance = |n: usize| self.progress.advance(n as u64);
        let start = Instant::now();
        let answers = self.nodes.run(stage, tasks, &advance).await?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(stage, tasks = n, seconds, "a round ends");
        if answers.len() != n {
            let what = format!("{n} tasks have {} answers", answers.len());
            return Err(Error::bug(what));
        }
        let answers = answers.into_iter();
        Ok(answers.map(|answer| unpack(&answer?)).collect())
    }

    /// The tasks of some work.
    pub(crate) fn tasks(&self, work: &[K::Work]) -> Result<Vec<Task>> {
        let task = |work| {
            let mut bytes = FORMAT.to_vec();
            bytes.extend(pack(&(&self.site, K::NAME, pack(work)?))?);
            Ok(Task { bytes })
        };
        work.iter().map(task).collect()
    }
}

impl<K: Tasks> Running<'_, K> {
    /// The rows of the run, dealt into lots of whole trajectories by the first call. `deal` is the
    /// work of a task that deals some files, or all of them.
    ///
    /// # Errors
    /// If a task fails.
    pub(crate) async fn deal(
        &self,
        nodes: &Arc<dyn Nodes>,
        deal: impl Fn(Option<Slice>, usize) -> K::Work,
    ) -> Result<&Dealt> {
        let dealt = async {
            let requests = Requests::of(self, nodes).await?;
            let tables = &self.plan.job().tables;
            let slices = slices(tables, self.frame).unwrap_or_else(|why| {
                tracing::info!("one task reads all rows, because {why}");
                Vec::new()
            });
            let n = lots(tables, &slices);
            let files = if slices.is_empty() {
                vec![None]
            } else {
                slices.into_iter().map(Some).collect()
            };
            let work = files.into_iter().map(|files| deal(files, n));
            let lots: Vec<Vec<Piece>> = requests.all("deal", work.collect()).await?;
            Ok::<_, Error>(Dealt {
                site: requests.site,
                lots: by_lot(lots),
            })
        };
        self.dealt.get_or_try_init(|| dealt).await
    }

    /// The answers of one task per lot.
    ///
    /// # Errors
    /// If a task fails.
    pub(crate) async fn of_lots<T: DeserializeOwned>(
        &self,
        nodes: &Arc<dyn Nodes>,
        deal: impl Fn(Option<Slice>, usize) -> K::Work,
        stage: &'static str,
        work: impl Fn(Vec<Piece>) -> K::Work,
    ) -> Result<Vec<T>> {
        let Dealt { site, lots } = self.deal(nodes, deal).await?;
        let work = lots.iter().map(|lot| work(lot.clone()));
        let requests: Requests<'_, K> = Requests::new(site.clone(), nodes, self.progress.as_ref());
        requests.all(stage, work.collect()).await
    }
}
