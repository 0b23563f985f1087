//! The filters of a run, and what filtering rows needs beside them.

use crate::error::{Error, Result};
use crate::methods::filter::model::FilterModel;
use crate::output::tables::observations::{ESTIMATES, POSTERIORS, TRAJECTORIES};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::kind::KindPlan;
use crate::plan::observations::ObservationsPlan;
use crate::plan::pipeline::keys::FilteredRows;
use crate::read::lake::Lake;
use crate::read::observations::{ObservationInput, Widths};
use crate::run::observations::fit::{FittedPartition, Fitting};
use crate::run::observations::fit_rows::FitRows;
use crate::run::observations::rows::RowTables;
use crate::run::observations::scoring::RowFilter;
use arrow::array::ArrayRef;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// The fitted filters, and what filtering rows needs beside them.
#[derive(Serialize)]
pub(crate) struct Filters<'a> {
    /// The partitions, one array per partition column.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub(crate) partitions: &'a [ArrayRef],
    /// Numbers per state and per observation.
    pub(crate) widths: (usize, usize),
    /// By partition and fit. None if a partition has no model.
    pub(crate) models: Vec<Option<Vec<&'a FilterModel>>>,
    /// The columns of the ids of the training rows, by partition.
    pub(crate) ids: Vec<Ids<'a>>,
    /// Supervision of single steps, by fit. Each machine reads it.
    #[serde(skip)]
    pub(crate) points: &'a [FitRows],
}

/// The columns of the ids of the training rows of one partition.
#[derive(Serialize)]
pub(crate) struct Ids<'a>(
    #[serde(with = "crate::read::rows::ipc::arrays")] pub(crate) &'a [ArrayRef],
);

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
            let filters = own.fits.iter().map(|own| &own.fit.model);
            models[own.partition] = Some(filters.collect());
        }
        Ok(Filters {
            partitions: &training.found.partitions,
            widths: widths.ok_or_else(|| Error::bug("there is no model"))?,
            models,
            ids: training
                .partitions
                .iter()
                .map(|own| Ids(&own.ids))
                .collect(),
            points: &fitting.points,
        })
    }

    /// The tables of rows of a plan. `run` has the partition columns.
    pub(crate) fn tables(&self, plan: &ObservationsPlan, run: &RunSchema) -> RowTables<'a> {
        let tables = plan.schemas();
        let schema = |table: &'static str| {
            let is_written = tables.iter().any(|(name, _)| *name == table);
            is_written.then(|| plan.schema(table, run, self.widths.0))
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
        let ids = || self.ids.iter().map(|own| own.0.to_vec()).collect();
        RowTables {
            trajectories: schema(TRAJECTORIES),
            estimates: schema(ESTIMATES),
            posteriors: schema(POSTERIORS).map(|schema| (schema, ids())),
            fits: plan.fit_columns(),
            errors: plan.errors,
            models: models.collect(),
            held_out: plan.filtered() == FilteredRows::HeldOut,
        }
    }

    /// The rows to filter.
    pub(crate) fn input<'i>(
        &'i self,
        plan: &'i ObservationsPlan,
        lake: &'i Lake,
        frame: &'i DataFrame,
        sort: &'i AtomicBool,
    ) -> ObservationInput<'i> {
        ObservationInput {
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
