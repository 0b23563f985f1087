//! Drives a run over points: survey → fit → write → promote.

pub mod assign;
pub mod compare;
pub(crate) mod confusion;
pub(crate) mod densities;
pub mod embeddings;
pub mod grams;
pub(crate) mod kernels;
mod known;
pub mod local;
pub mod record;
pub(crate) mod rows;
pub mod site;
pub mod surveyed;

use crate::error::{Error, Kind, Result, counted};
use crate::output;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::points::{DENSITIES, POINTS, PointsModel, columns};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::pipeline::keys::PointRows;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::read::points::coordinates::LargeValue;
use crate::read::points::layout::{PointRoles, Scale};
use crate::read::rows::states::describe;
use crate::run::checks::{Candidate, verdict};
use crate::run::failures::Failures;
use crate::run::options::Options;
use crate::run::points::record::{PointFitRecord, PointsModelRecord, PointsRecord};
use crate::run::points::rows::RowTable;
use crate::run::points::site::{PointJob, PointSite, PointsTable};
use crate::run::points::surveyed::{Surveyed, survey};
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use crate::run::summary::SHOWN;
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The least distance of the quartiles of a coordinate that is divided by its standard deviation:
/// squares of smaller distances lose digits.
const SMALLEST_SPREAD: f64 = 1e-100;

/// A plan over points, the tables that it reads and its query.
pub struct PlannedPoints {
    /// What the run will do.
    pub plan: Arc<PointsPlan>,
    /// The tables that the query reads.
    pub lake: Lake,
    /// The query, with the columns of the layout.
    pub frame: DataFrame,
}

/// How a run over points ended.
pub enum PointsOutcome {
    /// The output already holds what this run would write.
    NothingToDo,
    /// The tables are in place.
    Done(Box<PointsRecord>),
}

impl PlannedPoints {
    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    pub fn output(&self) -> Result<Output> {
        Output::open(&self.plan.job.output, &self.plan.job.stores)
    }

    /// Checks that the output can take the result.
    ///
    /// # Errors
    /// If the output cannot be written, or holds the result of another job (unless `force`).
    pub async fn check_places(&self, output: &Output, force: bool) -> Result<()> {
        output.check(&[POINTS, DENSITIES])?;
        if !force {
            output.check_job(&self.plan.job.name).await?;
        }
        Ok(())
    }

    /// Runs the plan. A run that fails leaves the output as it was.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting or writing.
    pub fn run<'a>(
        &'a self,
        output: &'a Output,
        options: &'a Options,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<PointsOutcome>> {
        Box::pin(async move {
            self.check_places(output, options.force).await?;
            let plan = &self.plan;
            let begun = output.begin(&plan.job.hash).await?;
            let is_done = |c: &Current| c.plan == plan.job.hash && c.complete;
            if !options.repeats_work() && begun.earlier().is_some_and(is_done) {
                // A run that died right after its commit left its checkpoints behind.
                output.remove_checkpoints(&plan.job.hash).await;
                return Ok(PointsOutcome::NothingToDo);
            }
            let threads = self.lake.threads;
            let head = Head::begin(
                &begun.run,
                &plan.job.name,
                &plan.job.hash,
                threads,
                &plan.job.tables,
            );
            let mut record = PointsRecord {
                head,
                points: 0,
                table_bytes: BTreeMap::new(),
                checks: Vec::new(),
                warnings: Vec::new(),
                models: Vec::new(),
                resumed: 0,
            };
            progress.recorded(&record);
            let work = output
                .work(&plan.job.hash, options.repeats_work(), options.keep_every)
                .await;
            let job = PointJob {
                plan,
                lake: &self.lake,
                frame: &self.frame,
                output,
                checkpoint: &Arc::new(work),
                progress: &progress,
            };
            match drive(&job, options.sites.points.as_ref(), &begun, &mut record).await {
                Ok(()) => Ok(PointsOutcome::Done(Box::new(record))),
                Err(e) => {
                    output.abandon().await;
                    record.head.failed(&e);
                    progress.recorded(&record);
                    output.keep_failed(&begun.run, &record).await;
                    Err(e)
                }
            }
        })
    }
}

async fn drive(
    job: &PointJob<'_>,
    site: &dyn PointSite,
    begun: &Begun,
    record: &mut PointsRecord,
) -> Result<()> {
    let PointJob {
        plan,
        output,
        progress,
        ..
    } = job;
    progress.stage("survey", None);
    let (surveyor, found) = site.survey(job).await?;
    let surveyed = survey(&plan.layout, surveyor, found)?;
    record.head.rows_read = surveyed.found.rows;
    record.head.rows_dropped = surveyed.found.dropped.0.clone();
    let points = surveyed.partitions.iter().map(|survey| survey.rows);
    record.points = points.sum();
    record.warnings = far_values(job, &surveyed).await?;
    let bytes = record.head.input_bytes;
    done(progress, record, "survey", surveyed.found.rows, bytes);

    progress.stage("fit", None);
    // A far value may be why a fit fails, and a certificate does not know the rows.
    let far = record.warnings.first().cloned();
    let because = |e: Error| match &far {
        Some(far) if matches!(e.kind(), Kind::Input | Kind::Check) => e.at(far),
        _ => e,
    };
    let mut failures = Failures::default();
    let (models, empty) = match plan.layout.roles {
        PointRoles::Pairs { .. } => embeddings::fit(job, site, &surveyed, &mut failures)
            .await
            .map_err(because)?,
        PointRoles::Rows => {
            let fitted = site.fit_kernels(job, &surveyed).await.map_err(because)?;
            let mut models = Vec::new();
            for (partition, model) in fitted.into_iter().enumerate() {
                let place = surveyed.known.place(plan, partition, 0);
                models.extend(failures.take(place, model.map_err(because))?);
            }
            (models, 0)
        }
    };
    failures.finish(models.len(), empty, &mut record.head.failures)?;
    record.resumed = job.checkpoint.taken();
    done(progress, record, "fit", models.len() as u64, 0);
    for model in &models {
        for fit in &model.fits {
            let warnings = fit.warnings();
            crate::assess::certificates::check(&fit.name, &fit.certificates())
                .map_err(|e| match warnings.first() {
                    Some(warning) => e.at(warning),
                    None => e,
                })
                .map_err(|e| e.at(surveyed.known.place(plan, model.partition, model.lag)))
                .map_err(because)?;
        }
    }

    progress.stage("write", None);
    let run = plan.run_schema(surveyed.found.partitions.clone());
    let mut tables =
        output::stage_points(output, begun, &run, &plan.model_tables(), &models).await?;
    let largest_hash = match plan.rows {
        PointRows::Sample(most) => rows::largest_hash(job, &surveyed, most).await?,
        PointRows::All | PointRows::None => None,
    };
    if let Some(written) = densities::write(job, &surveyed.known, begun, &run, &models).await? {
        tables.insert(DENSITIES, written);
    }
    if plan.rows != PointRows::None {
        let table = PointsTable {
            begun,
            run: &run,
            models: &models,
            largest_hash,
        };
        let written = site.write_rows(job, &surveyed, table).await?;
        tables.insert(POINTS, written);
    }
    for &table in tables.keys() {
        let bytes = output.staged_bytes(&begun.run, table).await?;
        record.table_bytes.insert(table, bytes);
    }
    record.head.tables = tables;
    record.models = models
        .iter()
        .map(|model| of_model(&surveyed, plan, model))
        .collect();
    let (rows, bytes) = written(record);
    done(progress, record, "write", rows, bytes);
    if !plan.job.checks.is_empty() {
        check(job, &run, &models, record).await?;
    }
    record.head.outcome = Ended::Done;
    let promotion = Promotion {
        plan: &plan.job.hash,
        complete: record.head.failures.is_empty(),
        tables: &record.head.tables,
        keep: plan.job.keep,
        record: &*record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await?;
    output.remove_checkpoints(&plan.job.hash).await;
    let (rows, bytes) = written(record);
    done(progress, record, "promote", rows, bytes);
    Ok(())
}

/// Names the values that are too large, or far from those of the other rows.
///
/// # Errors
/// If such a value makes the scale of a coordinate.
async fn far_values(job: &PointJob<'_>, surveyed: &Surveyed) -> Result<Vec<String>> {
    let layout = &job.plan.layout;
    let mut warnings = Vec::new();
    if let Some(large) = &surveyed.found.large {
        warnings.push(format!(
            "{large}, which is too large: its square exceeds the range of numbers; rows like it are left out"
        ));
    }
    let far = surveyed.far();
    if !far.is_empty() {
        let hashes = far.iter().map(|far| far.hash).collect();
        let keys = rows::keys_of(job, &hashes).await?;
        let mut named = BTreeSet::new();
        // One warning per row is enough.
        for far in far.into_iter().filter(|far| named.insert(far.hash)) {
            let names = &layout.coordinates;
            let column = names.get(far.coordinate).unwrap_or(&names[0]);
            let value = LargeValue {
                value: far.value,
                column: column.name().clone(),
                key: keys.get(&far.hash).cloned().unwrap_or_default(),
            };
            let what = far.middle.said_of(&value);
            let [low, high] = far.middle.quartiles;
            let divisor = surveyed.known.divisors[far.coordinate];
            if layout.scale == Scale::Standard && (high / divisor - low / divisor) < SMALLEST_SPREAD
            {
                return Err(Error::input(format!(
                    "{what}; with `scale = \"standard\"` nothing else would be left of the coordinate; leave such rows out"
                )));
            }
            warnings.push(format!("{what}; leave such rows out if they are no data"));
        }
    }
    if warnings.len() > SHOWN {
        let more = warnings.len() - SHOWN;
        warnings.truncate(SHOWN);
        warnings.push(format!("{} more are large", counted(more, "value")));
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok(warnings)
}

/// Records that a stage is done.
fn done(
    progress: &Arc<dyn Progress>,
    record: &mut PointsRecord,
    stage: &'static str,
    rows: u64,
    bytes: u64,
) {
    record.head.done(stage, rows, bytes);
    progress.recorded(record);
}

/// Rows and bytes of all tables.
fn written(record: &PointsRecord) -> (u64, u64) {
    let (rows, bytes) = (record.head.tables.values(), record.table_bytes.values());
    (rows.sum(), bytes.sum())
}

/// Makes the checks of the plan over the staged tables.
///
/// # Errors
/// If a check with `on = "fail"` fails or a check cannot be made.
async fn check(
    job: &PointJob<'_>,
    run: &RunSchema,
    models: &[PointsModel],
    record: &mut PointsRecord,
) -> Result<()> {
    let plan = job.plan;
    job.progress.stage("check", None);
    let mut tables: Vec<(&'static str, SchemaRef)> = Vec::new();
    for &table in record.head.tables.keys() {
        let schema = match table {
            POINTS => RowTable::new(run, &plan.layout, models, None).schema,
            DENSITIES => densities::schema(plan, run, models),
            table => columns(table).schema(run).0,
        };
        tables.push((table, schema));
    }
    let of_models = record.models.iter();
    let candidate = Candidate {
        lake: job.lake,
        output: job.output,
        head: &record.head,
        lags: plan.lags.iter().map(ToString::to_string).collect(),
        models: of_models.map(|m| (&m.partition, m.lag.as_ref())).collect(),
        transitions: 0.0,
        tables,
    };
    let mut outcomes = Vec::new();
    let checked = candidate.check(&plan.job.checks, &mut outcomes).await;
    // The record of a failed run has the checks that were made.
    record.checks = outcomes;
    checked?;
    done(
        job.progress,
        record,
        "check",
        plan.job.checks.len() as u64,
        0,
    );
    verdict(&record.checks)
}

fn of_model(surveyed: &Surveyed, plan: &PointsPlan, model: &PointsModel) -> PointsModelRecord {
    let columns = plan.layout.partition.iter().zip(&surveyed.found.partitions);
    let value = |keys: &ArrayRef| describe(std::slice::from_ref(keys), model.partition);
    PointsModelRecord {
        partition: columns
            .map(|(field, keys)| (field.name().clone(), value(keys)))
            .collect(),
        lag: plan.lags.get(model.lag).map(ToString::to_string),
        points: model.rows,
        dimension: model.divisors.len(),
        fits: model.fits.iter().map(PointFitRecord::of).collect(),
    }
}
