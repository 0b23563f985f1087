//! Filters new rows with a written model. Drives the stages: read model → write → promote.
//!
//! The pipeline names the new rows, the roles of their columns, and the functions and options of
//! the filters; all fitted numbers are those of the model. Rows are read once. Memory holds the
//! models, a few batches and one encoded row group per table.

use crate::error::{Error, Result, counted};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::result::{ModelKey, Written};
use crate::output::tables::filters::{
    ESTIMATES, TRAJECTORIES, estimates_schema, trajectories_schema,
};
use crate::output::tables::table::Table;
use crate::plan::assignment::FilterAssignment;
use crate::plan::filters::{row_columns, run_schema};
use crate::plan::job::check_names;
use crate::read::paths::current::Current;
use crate::read::state_space::{StateSpaceInput, Widths};
use crate::run::assign::{check_alike, check_kind};
use crate::run::filters::rows::{RowTables, RowsWritten, Target};
use crate::run::filters::scoring::RowFilter;
use crate::run::filters::{known, points, rows};
use crate::run::inputs::PlannedFilterAssignment;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use crate::run::summary;
use crate::run::summary::SHOWN;
use crate::run::summary::place;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How an assignment ended.
pub enum FilterAssignOutcome {
    /// The output already holds what this one would write.
    NothingToDo,
    /// The tables are in place; the model may lack some partitions.
    Done(Box<FilterAssignRecord>),
}

/// `runs/<id>.json` of an assignment of states and observations.
#[derive(Debug, Clone, Serialize)]
pub struct FilterAssignRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// The output with the models.
    pub model: String,
    /// The run that made the models.
    pub model_run: String,
    /// One entry per partition of the model that has new rows.
    pub models: Vec<EstimatedRecord>,
}

/// The new rows of one partition.
#[derive(Debug, Clone, Serialize)]
pub struct EstimatedRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// Rows that were filtered.
    pub rows: u64,
    /// Rows without an observation.
    pub missing: u64,
    /// Trajectories that were filtered; rows, for a static problem.
    pub trajectories: u64,
    /// One entry per fit.
    pub fits: Vec<EstimatedFitRecord>,
}

/// The new rows of one fit.
#[derive(Debug, Clone, Serialize)]
pub struct EstimatedFitRecord {
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
}

impl PlannedFilterAssignment {
    /// Filters the rows with the model at an output. An assignment that fails leaves `output` as it
    /// was. With `force`, it runs even if the output is up to date.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    pub fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        force: bool,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<FilterAssignOutcome>> {
        Box::pin(assign(self, model, output, force, progress))
    }
}

async fn assign(
    planned: &PlannedFilterAssignment,
    model: &Output,
    output: &Output,
    force: bool,
    progress: Arc<dyn Progress>,
) -> Result<FilterAssignOutcome> {
    let plan = &planned.assignment;
    let at = model.shown();
    let Some(written) = Written::open(model).await? else {
        let what = format!("there is no finished result at {at}; run its pipeline first");
        return Err(Error::input(what));
    };
    check_kind("observations", &written, at)?;
    let (ours, theirs) = (&plan.layout.partition, &written.partition);
    check_alike("partition_by", ours, theirs, at)?;
    let is_static = !written.current.tables.contains_key(TRAJECTORIES);
    if is_static != plan.layout.is_static() {
        let kind = |is_static| if is_static { "`id`" } else { "`time`" };
        return Err(Error::spec(format!(
            "the pipeline has rows with {}, but the model at {at} was made from rows with {}",
            kind(plan.layout.is_static()),
            kind(is_static)
        )));
    }
    let hash = hash(plan, &written);
    output.check(&[TRAJECTORIES, ESTIMATES])?;
    if !force {
        output.check_job(&plan.name).await?;
    }
    let begun = output.begin(&hash).await?;
    let current = begun.earlier();
    if current.is_some_and(|c| c.tables.contains_key(Table::Fits.name())) {
        return Err(Error::spec(format!(
            "{} holds the models of a run, which the filtered rows would replace; name another folder with --output",
            output.shown()
        )));
    }
    if !force && current.is_some_and(|c| c.plan == hash && c.complete) {
        return Ok(FilterAssignOutcome::NothingToDo);
    }
    let threads = planned.lake.threads;
    let mut record = FilterAssignRecord {
        head: Head::begin(&begun.run, &plan.name, &hash, threads, &plan.tables),
        model: at.to_string(),
        model_run: written.current.run.clone(),
        models: Vec::new(),
    };
    match drive(planned, &written, output, &begun, &progress, &mut record).await {
        Ok(()) => Ok(FilterAssignOutcome::Done(Box::new(record))),
        Err(e) => {
            output.abandon().await;
            record.head.failed(&e);
            output.keep_failed(&begun.run, &record).await;
            Err(e)
        }
    }
}

/// Runs the stages of an assignment.
async fn drive(
    planned: &PlannedFilterAssignment,
    written: &Written<'_>,
    output: &Output,
    begun: &Begun,
    progress: &Arc<dyn Progress>,
    record: &mut FilterAssignRecord,
) -> Result<()> {
    let PlannedFilterAssignment {
        assignment: plan,
        lake,
        frame,
    } = planned;
    let at = record.model.clone();
    progress.stage("read model", None);
    let known = known::read(written, &plan.fits).await;
    let known = known.map_err(|e| e.at(format!("model {at}")))?;
    let first = known.models.iter().flatten().next();
    let Some((state, observation)) = first.map(|model| model.widths()) else {
        return Err(Error::input(format!("the model at {at} has no fits")));
    };
    plan.check_widths(state, observation, &at)?;
    let widths = Widths {
        state: Some(state),
        observation: Some(observation),
    };
    let mut supervision = Vec::with_capacity(known.fits.len());
    for &fit in &known.fits {
        let fit = &plan.fits[fit];
        supervision.push(points::read(lake, fit, &known.partitions, widths).await?);
    }
    record.head.done("read model", 0, 0);
    let run = run_schema(&plan.layout, Vec::new());
    let (columns, fits) = (row_columns(&plan.layout), &known.columns);
    let is_static = plan.layout.is_static();
    let trajectories = (!is_static).then(|| trajectories_schema(&run, columns, fits));
    let estimates = estimates_schema(&run, columns, state, fits);
    let of_trajectories = trajectories.iter().cloned();
    let tables = of_trajectories.map(|schema| (TRAJECTORIES, schema));
    let tables = tables.chain([(ESTIMATES, Arc::clone(&estimates))]);
    check_names(&tables.collect::<Vec<_>>())?;

    progress.stage("write", None);
    output.claim_version(begun).await?;
    let models = known.models.iter().map(|own| {
        let filters = own
            .iter()
            .zip(&supervision)
            .map(|(model, points)| RowFilter {
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
        models: models.collect(),
        held_out: plan.held_out,
    };
    let input = StateSpaceInput {
        lake,
        frame,
        layout: &plan.layout,
        partitions: &known.partitions,
        widths,
        sort: &AtomicBool::new(false),
    };
    let target = Target { output, begun };
    let found = rows::write(input, &tables, target, &|n| progress.advance(n)).await?;
    if found.found.rows == 0 {
        return Err(Error::input("the SQL of [sequences] gives no rows"));
    }
    record.head.rows_read = found.found.rows;
    record.head.rows_dropped = found.found.dropped.0.clone();
    let n: u64 = found.tables.values().sum();
    record.head.tables.clone_from(&found.tables);
    record.head.done("write", n, record.head.input_bytes);
    models_of(written, &known, &found, record);
    if record.models.is_empty() {
        return Err(Error::input(format!(
            "the model at {at} has none of the partitions of the {}",
            counted(found.found.rows, "row")
        )));
    }
    record.head.outcome = Ended::Done;
    let promotion = Promotion {
        kind: "observations",
        plan: &record.head.plan,
        complete: record.head.failures.is_empty(),
        tables: &record.head.tables,
        keep: plan.keep,
        record: &*record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await
}

/// Records the filtered rows of every partition.
fn models_of(
    written: &Written<'_>,
    known: &known::KnownFilters,
    found: &RowsWritten,
    record: &mut FilterAssignRecord,
) {
    for (&partition, of_rows) in &found.rows {
        let key = ModelKey::at(&found.found.partitions, None, partition as usize);
        if partition as usize >= known.models.len() {
            let model = record.model.clone();
            record.head.lacks(written.place(&key), &model);
            continue;
        }
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
                })
            });
        record.models.push(EstimatedRecord {
            partition: written.partition_of(&key),
            rows: of_rows.rows,
            missing: of_rows.missing,
            trajectories: of_rows.trajectories,
            fits: fits.collect(),
        });
    }
}

/// The hash of an assignment. It depends on the plan (which has the version of gyre) and the run
/// that made the model.
fn hash(plan: &FilterAssignment, written: &Written<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    let Current { run, plan: of, .. } = &written.current;
    for part in ["assign filters", &plan.hash, of, run] {
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_string()
}

/// The summary of an assignment of states and observations.
pub struct FilterAssignSummary<'a> {
    /// The record of the assignment.
    pub record: &'a FilterAssignRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for FilterAssignSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let FilterAssignSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        writeln!(
            f,
            "{}: {}, filtered by the model {}",
            head.pipeline,
            counted(grouped(head.rows_read as f64), "row"),
            record.model
        )?;
        for (reason, rows) in &head.rows_dropped {
            writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
        }
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            model.write(f)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        summary::end(f, head, models.len(), &["read model", "write"], output)
    }
}

impl EstimatedRecord {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&place(&self.partition, None))?;
        write!(f, "{}", counted(grouped(self.rows as f64), "row"))?;
        if self.missing > 0 {
            let missing = counted(grouped(self.missing as f64), "row");
            write!(f, ", {missing} without an observation")?;
        }
        writeln!(f)?;
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
