//! Rounds of tasks: requests to other machines, and their answers.

use crate::cluster::nodes::{Nodes, Task};
use crate::cluster::task::work::{PlanSite, Work};
use crate::error::{Error, Result};
use crate::evidence::pass::packed::unpack;
use crate::run::progress::Progress;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Instant;

/// Requests the tasks of one plan.
pub(super) struct Requests<'a> {
    pub(super) site: PlanSite,
    pub(super) nodes: Arc<dyn Nodes>,
    pub(super) progress: &'a dyn Progress,
}

impl Requests<'_> {
    /// The answers to the tasks of a round, or the first error.
    pub(super) async fn all<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<Work>,
    ) -> Result<Vec<T>> {
        self.round(stage, work).await?.into_iter().collect()
    }

    /// The answers to the tasks of a round.
    pub(super) async fn round<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<Work>,
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
    pub(super) fn tasks(&self, work: &[Work]) -> Result<Vec<Task>> {
        work.iter().map(|work| self.site.task(work)).collect()
    }
}
