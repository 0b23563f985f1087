//! Sums of products of features, in this process or on other machines.

use crate::error::Result;
use crate::evidence::pass::checkpoints;
use crate::evidence::pass::packed::pack;
use crate::run::kind::Running;
use crate::run::points::first_pass::FirstPass;
use crate::run::points::grams::{PartitionSums, SumRequest};
use crate::run::points::kind::PointsKind;
use crate::run::points::{grams, rounds};
use crate::run::workers::Workers;
use crate::run::workers::executor::blocking;
use std::sync::Arc;
use std::time::Instant;

/// Sums products of features over the pairs of each partition. The sums of a run are named by what
/// is summed: bandwidths are compared first.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn sum(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    request: SumRequest,
) -> Result<Vec<PartitionSums>> {
    if let Workers::Remote { nodes, .. } = &run.options.workers {
        return rounds::sum(run, nodes, &first_pass.known, &request).await;
    }
    let name = format!("sums/{}", blake3::hash(&pack(&request)?).to_hex());
    let work = Arc::clone(run.work);
    let (find, of) = (Arc::clone(&work), name.clone());
    let found = blocking(move || Ok(checkpoints::find(find.as_ref(), &of))).await?;
    if let Some(sums) = found {
        return Ok(sums);
    }
    let start = Instant::now();
    let (lake, frame) = (run.lake, run.frame.clone());
    let sums = grams::sum(lake, frame, &run.plan.layout, None, Arc::new(request)).await?;
    let took = start.elapsed();
    blocking(move || {
        checkpoints::keep(work.as_ref(), &name, took, &sums);
        Ok(sums)
    })
    .await
}
