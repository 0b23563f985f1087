//! Where filters are fitted and rows are filtered: in this process, or on other machines.

use crate::error::{Error, Kind, Result};
use crate::methods::filter::model::{FilterFit, FilterModel};
use crate::output::checkpoint::Checkpoint;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::tables::filters::{ESTIMATES, POSTERIORS, TRAJECTORIES};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::filters::FiltersPlan;
use crate::plan::pipeline::keys::FilteredRows;
use crate::read::lake::Lake;
use crate::read::state_space::{StateSpaceInput, Widths};
use crate::run::filters::fit::{FittedPartition, Fitting, Unit};
use crate::run::filters::points::FitPoints;
use crate::run::filters::rows;
use crate::run::filters::rows::{RowTables, RowsWritten, Target};
use crate::run::filters::scoring::RowFilter;
use crate::run::progress::Progress;
use arrow::array::ArrayRef;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The input of a run of filters.
pub struct FilterJob<'a> {
    /// The plan of the run.
    pub plan: &'a Arc<FiltersPlan>,
    /// The open tables of the pipeline.
    pub lake: &'a Lake,
    /// The query of the plan.
    pub frame: &'a DataFrame,
    /// The output of the run.
    pub output: &'a Output,
    /// The run.
    pub begun: &'a Begun,
    /// Finished work of this run and of earlier runs of the same plan.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
    /// Whether the rows must be sorted, as far as earlier passes know.
    pub(crate) sort: &'a AtomicBool,
}

/// The fitted filters, and what filtering rows needs beside them.
pub struct Filters<'a> {
    /// The partitions, one array per partition column.
    pub(crate) partitions: &'a [ArrayRef],
    /// Numbers per state and per observation.
    pub(crate) widths: (usize, usize),
    /// By partition and fit. None if a partition has no model.
    pub(crate) models: Vec<Option<Vec<&'a FilterModel>>>,
    /// The columns of the ids of the training rows, by partition.
    pub(crate) ids: Vec<&'a [ArrayRef]>,
    /// Supervision of single steps, by fit.
    pub(crate) points: &'a [FitPoints],
}

impl<'a> Filters<'a> {
    /// The filters of a run.
    ///
    /// # Errors
    /// If there is no filter, which is a bug.
    pub(crate) fn new(fitting: &'a Fitting, fitted: &'a [FittedPartition]) -> Result<Filters<'a>> {
        let training = &fitting.training;
        let widths = super::fit::widths(fitted);
        let mut models: Vec<Option<Vec<&FilterModel>>> = Vec::new();
        models.resize_with(training.partitions.len(), || None);
        for own in fitted {
            let filters = own.fits.iter().map(|fit: &FilterFit| &fit.model);
            models[own.partition] = Some(filters.collect());
        }
        Ok(Filters {
            partitions: &training.found.partitions,
            widths: widths.ok_or_else(|| Error::bug("there is no model"))?,
            models,
            ids: training.partitions.iter().map(|own| &own.ids[..]).collect(),
            points: &fitting.points,
        })
    }

    /// The tables of rows of a plan. `run` has the partition columns.
    pub(crate) fn tables(&self, plan: &FiltersPlan, run: &RunSchema) -> RowTables<'a> {
        let names = plan.table_names();
        let schema = |table: &'static str| {
            let is_written = names.contains(&table);
            is_written.then(|| plan.schema(table, run, self.widths.0).0)
        };
        let points = self.points;
        let filters = |own: &Vec<&'a FilterModel>| {
            let own = own.iter().zip(points);
            let own = own.map(|(model, points)| RowFilter {
                model,
                steps: points.steps.as_ref(),
            });
            own.collect()
        };
        let models = self.models.iter().map(|own| own.as_ref().map(filters));
        let ids = || self.ids.iter().map(|own| own.to_vec()).collect();
        RowTables {
            trajectories: schema(TRAJECTORIES),
            estimates: schema(ESTIMATES),
            posteriors: schema(POSTERIORS).map(|schema| (schema, ids())),
            fits: plan.fit_columns(),
            models: models.collect(),
            held_out: plan.filtered() == FilteredRows::HeldOut,
        }
    }

    /// The rows to filter.
    pub(crate) fn input<'i>(
        &'i self,
        plan: &'i FiltersPlan,
        lake: &'i Lake,
        frame: &'i DataFrame,
        sort: &'i AtomicBool,
    ) -> StateSpaceInput<'i> {
        StateSpaceInput {
            lake,
            frame,
            layout: &plan.layout,
            partitions: self.partitions,
            widths: Widths {
                state: Some(self.widths.0),
                observation: Some(self.widths.1),
            },
            sort,
        }
    }
}

/// Fits filters and filters rows. Every site gives the same results, to the last byte.
pub trait FilterSite: Send + Sync {
    /// Fits filters, in the order of `units`.
    ///
    /// # Errors
    /// If the store of the output fails.
    fn fit<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        fitting: &'a Arc<Fitting>,
        units: &'a [Unit],
    ) -> BoxFuture<'a, Result<Vec<Result<FilterFit>>>>;

    /// Filters the rows and writes their tables.
    ///
    /// # Errors
    /// If the rows cannot be read or written.
    fn rows<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        run: &'a RunSchema,
        filters: &'a Filters<'_>,
    ) -> BoxFuture<'a, Result<RowsWritten>>;
}

/// Does all work in this process.
pub struct LocalFilters;

impl FilterSite for LocalFilters {
    fn fit<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        fitting: &'a Arc<Fitting>,
        units: &'a [Unit],
    ) -> BoxFuture<'a, Result<Vec<Result<FilterFit>>>> {
        Box::pin(async move {
            let (fitting, units) = (Arc::clone(fitting), units.to_vec());
            let (work, progress) = (Arc::clone(job.checkpoint), Arc::clone(job.progress));
            let fit = move || fitting.fit(&units, &work, progress.as_ref());
            let fitted = tokio::task::spawn_blocking(fit).await;
            fitted.map_err(|e| Error::with_source(Kind::Bug, "a fit panicked", e))
        })
    }

    fn rows<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        run: &'a RunSchema,
        filters: &'a Filters<'_>,
    ) -> BoxFuture<'a, Result<RowsWritten>> {
        Box::pin(async move {
            let tables = filters.tables(job.plan, run);
            let input = filters.input(job.plan, job.lake, job.frame, job.sort);
            let target = Target {
                output: job.output,
                begun: job.begun,
            };
            let progress = job.progress;
            rows::write(input, &tables, target, &|n| progress.advance(n)).await
        })
    }
}
