//! Where the points of a run are read: in this process, or on other machines.

use crate::error::Result;
use crate::output::checkpoint::Checkpoint;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::tables::points::PointsModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::Found;
use crate::read::points::survey::Surveyor;
use crate::run::points::grams::{PartitionSums, SumRequest};
use crate::run::points::surveyed::Surveyed;
use crate::run::progress::Progress;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;

/// The input of a run over points.
pub struct PointJob<'a> {
    /// The plan of the run.
    pub plan: &'a Arc<PointsPlan>,
    /// The open tables of the pipeline.
    pub lake: &'a Lake,
    /// The query of the plan.
    pub frame: &'a DataFrame,
    /// The output of the run.
    pub output: &'a Output,
    /// Finished work of this run and of earlier runs of the same plan.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
}

/// The table `points` of a run, which is written last.
pub struct PointsTable<'a> {
    /// The run.
    pub begun: &'a Begun,
    /// The partition and lag columns.
    pub run: &'a RunSchema,
    /// The fits, by partition and lag.
    pub models: &'a [PointsModel],
    /// Rows whose key has a larger hash are left out.
    pub largest_hash: Option<u64>,
}

/// Reads the points of a run, once per method. Every site gives the same results, to the last byte.
pub trait PointSite: Send + Sync {
    /// Finds out how many points there are and where they are.
    ///
    /// # Errors
    /// If the rows cannot be read.
    fn survey<'a>(&'a self, job: &'a PointJob<'_>) -> BoxFuture<'a, Result<(Surveyor, Found)>>;

    /// Sums products of features over the pairs of each partition.
    ///
    /// # Errors
    /// If the rows cannot be read.
    fn sum<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
        request: SumRequest,
    ) -> BoxFuture<'a, Result<Vec<PartitionSums>>>;

    /// Fits the diffusion maps and sketches of each partition, in their order.
    ///
    /// # Errors
    /// If the rows cannot be read.
    fn fit_kernels<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
    ) -> BoxFuture<'a, Result<Vec<Result<PointsModel>>>>;

    /// Writes the table `points` to staging, and returns its number of rows.
    ///
    /// # Errors
    /// If the rows cannot be read or written.
    fn write_rows<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
        table: PointsTable<'a>,
    ) -> BoxFuture<'a, Result<u64>>;
}
