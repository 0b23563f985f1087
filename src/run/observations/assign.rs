//! Filters new rows with a written model.
//!
//! The fits are those of the model. Rows are read once. Memory holds the model, a few batches and
//! one encoded row group per table.

use crate::error::{Error, Result, counted};
use crate::output::number::grouped;
use crate::output::tables::observations::{
    ESTIMATES, TRAJECTORIES, estimates_schema, trajectories_schema,
};
use crate::plan::job::check_names;
use crate::plan::observations::{NewObservations, row_columns, run_schema};
use crate::read::observations::layout::ObservationLayout;
use crate::read::observations::{ObservationInput, Widths};
use crate::run::assign::kind::{
    AssignedRows, Assigning, Assigns, Model, by_partition, check_alike,
};
use crate::run::observations::kind::ObservationsKind;
use crate::run::observations::record::missing;
use crate::run::observations::rows::{RowTables, RowsWritten};
use crate::run::observations::scoring::RowFilter;
use crate::run::observations::{fit_rows, known, rows};
use crate::run::trajectories::{GapCounts, Target};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The new rows of one partition.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AssignedObservations {
    /// Rows that were filtered.
    pub rows: u64,
    /// Rows of which a number of the observation is missing.
    pub missing: u64,
    /// Those of them with other numbers, by the names of the missing ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing_numbers: BTreeMap<String, u64>,
    /// How filters came over gaps, if they go on through them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapCounts>,
    /// Trajectories that were filtered; rows, for a static problem.
    pub trajectories: u64,
    /// One entry per fit.
    pub fits: Vec<EstimatedFitRecord>,
}

/// The new rows of one fit.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EstimatedFitRecord {
    /// The name of the fit.
    pub name: String,
    /// The mean squared error of the means of rows with a known state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    /// The mean log score of a row with an observation, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_log_score: Option<f64>,
    /// Rows with an observation that did not change the estimate.
    pub not_updated: u64,
    /// The time to filter the rows: the sum over threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_seconds: Option<f64>,
}

impl Assigns for ObservationsKind {
    type NewRows = NewObservations;
    type Assigned = AssignedObservations;

    const TABLES: &'static [&'static str] = &[TRAJECTORIES, ESTIMATES];

    async fn check_columns(rows: &NewObservations, model: &Model<'_>) -> Result<()> {
        let Model { written, at } = model;
        let (ours, theirs) = (&rows.layout.partition, &written.partition);
        check_alike("partition_by", ours, theirs, at)?;
        let is_static = !written.current.tables.contains_key(TRAJECTORIES);
        if is_static != rows.layout.is_static() {
            let kind = |is_static| if is_static { "`id`" } else { "`time`" };
            return Err(Error::spec(format!(
                "the pipeline has rows with {}, but the model at {at} was made from rows with {}",
                kind(rows.layout.is_static()),
                kind(is_static)
            )));
        }
        Ok(())
    }

    async fn assign(run: &mut Assigning<'_, Self>) -> Result<AssignedRows<AssignedObservations>> {
        let (planned, progress) = (run.planned, run.progress);
        let (new, lake) = (&planned.assignment.rows, &planned.lake);
        let Model { written, at } = run.model;
        progress.stage("read model", None);
        let known = known::read(written, &new.fits).await;
        let known = known.map_err(|e| e.at(format!("model {at}")))?;
        let first = known.models.iter().flatten().next();
        let Some((state, observation)) = first.map(|model| model.widths()) else {
            return Err(Error::input(format!("the model at {at} has no fits")));
        };
        new.check_widths(state, observation, at)?;
        known.check_states(state, at)?;
        let widths = Widths {
            state: Some(state),
            observation: Some(observation),
        };
        let mut supervision = Vec::with_capacity(known.fits.len());
        for &fit in &known.fits {
            let fit = &new.fits[fit];
            supervision.push(fit_rows::read(lake, fit, &known.partitions, widths).await?);
        }
        run.head.done("read model", 0, 0);
        let schema = run_schema(&new.layout, Vec::new());
        let (columns, fits) = (row_columns(&new.layout), &known.columns);
        let is_static = new.layout.is_static();
        let trajectories = (!is_static).then(|| trajectories_schema(&schema, columns, fits));
        let estimates = estimates_schema(&schema, columns, state, fits);
        let of_trajectories = trajectories.iter().cloned();
        let tables = of_trajectories.map(|schema| (TRAJECTORIES, schema));
        let tables = tables.chain([(ESTIMATES, Arc::clone(&estimates))]);
        check_names(&tables.collect::<Vec<_>>())?;

        progress.stage("write", None);
        run.output.claim_version(run.begun).await?;
        let models = known.models.iter().map(|own| {
            let filters = own.iter().zip(&supervision);
            let filters = filters.map(|(model, points)| RowFilter {
                model,
                steps: points.steps.as_ref(),
            });
            Some(filters.collect())
        });
        let tables = RowTables {
            trajectories,
            estimates: Some(estimates),
            posteriors: None,
            fits: fits.clone(),
            errors: false,
            models: models.collect(),
            held_out: new.held_out,
        };
        let input = ObservationInput {
            lake,
            frame: &planned.frame,
            layout: &new.layout,
            partitions: &known.partitions,
            widths,
            sort: &AtomicBool::new(false),
        };
        let (output, begun) = (run.output, run.begun);
        let target = Target { output, begun };
        let found = rows::write(input, &tables, target, &|n| progress.advance(n)).await?;
        let partitions = (known.models.len(), &found.found.partitions[..]);
        let record =
            |partition, _: &_| AssignedObservations::of(partition, &new.layout, &known, &found);
        let (models, lacking) = by_partition(written, partitions, &found.rows, record);
        if new.held_out && found.found.rows > 0 && found.rows.is_empty() {
            let rows = counted(found.found.rows, "row");
            return Err(Error::input(format!(
                "the {rows} have the split of training rows, which are not assigned; set \
                 `output.rows = \"all\"`, or leave `split` out"
            )));
        }
        Ok(AssignedRows {
            rows: found.found.rows,
            dropped: found.found.dropped.0.clone(),
            pairs: Some(vec![found.found.followers]),
            tables: found.tables,
            warnings: Vec::new(),
            models,
            lacking,
        })
    }
}

impl AssignedObservations {
    fn of(
        partition: u32,
        layout: &ObservationLayout,
        known: &known::KnownFilters,
        found: &RowsWritten,
    ) -> Self {
        let rows = found.rows.get(&partition).cloned().unwrap_or_default();
        let fits = known
            .columns
            .iter()
            .enumerate()
            .filter_map(|(fit, columns)| {
                let own = found.of_fits.get(&(partition, fit))?;
                Some(EstimatedFitRecord {
                    name: columns.name.clone(),
                    mse: own.mse(),
                    mean_log_score: own.mean_log_score(),
                    not_updated: own.scores(false).not_updated,
                    filter_seconds: found.seconds.of(partition, fit),
                })
            });
        AssignedObservations {
            rows: rows.rows,
            missing: rows.missing.rows(),
            missing_numbers: rows.missing.by_name(&layout.observation),
            gaps: layout.bridges().then_some(rows.gaps),
            trajectories: rows.trajectories,
            fits: fits.collect(),
        }
    }
}

impl Display for AssignedObservations {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(grouped(self.rows as f64), "row"))?;
        missing(f, self.missing, &self.missing_numbers)?;
        writeln!(f)?;
        if let Some(gaps) = &self.gaps {
            gaps.write(f)?;
        }
        for fit in &self.fits {
            write!(f, "  {}", fit.name)?;
            if let Some(mse) = fit.mse {
                write!(f, "  MSE {mse:.5}")?;
            }
            if let Some(mean) = fit.mean_log_score {
                write!(f, "  log score {mean:.4} per row")?;
            }
            writeln!(f)?;
            if fit.not_updated > 0 {
                let rows = counted(grouped(fit.not_updated as f64), "observation");
                writeln!(f, "    {rows} did not change the estimate")?;
            }
        }
        Ok(())
    }
}
