//! Reads the points of a run in this process.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::checkpoints;
use crate::evidence::pass::packed::pack;
use crate::output::tables::points::PointsModel;
use crate::read::points::Found;
use crate::read::points::survey::{Surveyor, survey};
use crate::run::points::grams::{PartitionSums, SumRequest, sum};
use crate::run::points::kernels;
use crate::run::points::rows;
use crate::run::points::site::{PointJob, PointSite, PointsTable};
use crate::run::points::surveyed::Surveyed;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;

/// The site that reads and fits in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalPoints;

impl PointSite for LocalPoints {
    fn survey<'a>(&'a self, job: &'a PointJob<'_>) -> BoxFuture<'a, Result<(Surveyor, Found)>> {
        Box::pin(async move { survey(job.lake, job.frame.clone(), &job.plan.layout).await })
    }

    fn sum<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        _: &'a Surveyed,
        request: SumRequest,
    ) -> BoxFuture<'a, Result<Vec<PartitionSums>>> {
        Box::pin(async move {
            // The sums of a run are named by what is summed: bandwidths are compared first.
            let name = format!("sums/{}", blake3::hash(&pack(&request)?).to_hex());
            let work = Arc::clone(job.checkpoint);
            let (find, of) = (Arc::clone(&work), name.clone());
            let found = blocking(move || checkpoints::find(find.as_ref(), &of)).await?;
            if let Some(sums) = found {
                return Ok(sums);
            }
            let start = Instant::now();
            let (lake, frame) = (job.lake, job.frame.clone());
            let sums = sum(lake, frame, &job.plan.layout, None, Arc::new(request)).await?;
            let took = start.elapsed();
            blocking(move || {
                checkpoints::keep(work.as_ref(), &name, took, &sums);
                sums
            })
            .await
        })
    }

    fn fit_kernels<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
    ) -> BoxFuture<'a, Result<Vec<Result<PointsModel>>>> {
        Box::pin(kernels::fit(job, surveyed))
    }

    fn write_rows<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
        table: PointsTable<'a>,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(rows::write(job, surveyed, table))
    }
}

/// Runs a long computation on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, "a computation panicked", e))
}
