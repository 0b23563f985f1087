//! Counts and fits a run on other machines.

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::Rounds;
use crate::cluster::rounds::counting::CountRounds;
use crate::cluster::rounds::filters::RemoteFilters;
use crate::cluster::rounds::points::RemotePoints;
use crate::cluster::rounds::sequences::RemoteSequences;
use crate::error::Result;
use crate::output::Fetch;
use crate::plan::pipeline::keys::Empty;
use crate::run::fitted::Fitted;
use crate::run::journal::Journal;
use crate::run::model::{MatrixSize, check_not_empty, names};
use crate::run::options::Sites;
use crate::run::site::{Fits, Job, Site};
use futures::future::BoxFuture;
use std::sync::Arc;

/// The largest number of non-zeros of a model that one executor fits alone: 7 GB at 25 bytes per
/// non-zero.
pub const SPLIT: u64 = 1 << 28;

/// Runs a plan on other machines.
pub struct Remote {
    /// The machines.
    pub nodes: Arc<dyn Nodes>,
    /// The passes of a model with more non-zeros are spread over all machines; [`SPLIT`] by
    /// default.
    pub split: u64,
}

/// Sites of one run on other machines. Models of more than `split` non-zeros are fitted in passes.
pub fn sites(nodes: Arc<dyn Nodes>, split: u64) -> Sites {
    Sites {
        filters: Arc::new(RemoteFilters::new(Arc::clone(&nodes))),
        points: Arc::new(RemotePoints::new(Arc::clone(&nodes))),
        sequences: Arc::new(RemoteSequences::new(Arc::clone(&nodes))),
        states: Arc::new(Remote { nodes, split }),
    }
}

impl Site for Remote {
    fn fit<'s, 'a: 's>(
        &'s self,
        job: Job<'a>,
        journal: &'s mut Journal<'_>,
    ) -> BoxFuture<'s, Result<Fits<'a>>> {
        Box::pin(self.count_and_fit(job, journal))
    }
}

impl Remote {
    async fn count_and_fit<'a>(&self, job: Job<'a>, journal: &mut Journal<'_>) -> Result<Fits<'a>> {
        let Job {
            plan,
            frame,
            output,
            checkpoint,
            progress,
            ..
        } = job;
        let nodes = Arc::clone(&self.nodes);
        let checkpoints = Arc::clone(checkpoint);
        let progress = progress.as_ref();
        let counting = CountRounds::begin(plan.counting(), output, Arc::clone(&nodes), progress);
        let mut remote = counting.await?.count(&frame).await?;
        let rounds = Rounds::begin(plan, output, nodes, self.split, checkpoints, progress).await?;
        journal.counted(&remote.counted, remote.record.take());
        let matrices = remote.units.iter().map(|unit| &unit.matrix);
        let matrices: Vec<MatrixSize> = matrices
            .map(|m| MatrixSize {
                nonzeros: m.nonzeros,
                left_out: m.left_out,
            })
            .collect();
        check_not_empty(&remote.counted, &matrices)?;
        let mut empty = Vec::new();
        if plan.job.empty == Empty::Skip {
            remote.units.retain(|unit| {
                let (partition, lag) = (unit.partition, unit.matrix.lag as usize);
                let is_empty = unit.matrix.nonzeros == 0;
                empty.extend(is_empty.then_some((partition, lag)));
                !is_empty
            });
        }
        let counted = &remote.counted;
        let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
        let names = names(plan, counted, &labels);
        let results = rounds.fit(&remote, &names).await?;
        let labels = std::mem::take(&mut remote.counted.labels);
        let matrices = rounds.matrices(remote, &results);
        let failures = &mut journal.record.head.failures;
        let mut fitted = Fitted::new(plan, names, &labels, results, empty, failures)?;
        if plan.markov {
            // The sets of a model are tested on the counts of others.
            for (at, model) in fitted.models.iter_mut().enumerate() {
                model.counts.by_source = matrices.counts(at).await?.by_source;
            }
        }
        Ok(Fits {
            fitted,
            ledger: None,
            matrices: Some(Box::new(matrices)),
        })
    }
}
