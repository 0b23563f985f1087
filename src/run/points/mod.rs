//! Drives a run over points: survey → fit → write → promote.

pub mod embeddings;
mod grams;
mod kernels;
pub mod record;
mod rows;

use crate::error::{Error, Kind, Result};
use crate::evidence::points::Points;
use crate::output;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::tables::points::{POINTS, PointsModel, schema_of};
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::points::survey::{Survey, Surveyor};
use crate::read::points::{Found, read};
use crate::read::rows::states::{describe, escaped};
use crate::run::points::record::{PointFitRecord, PointsModelRecord, PointsRecord};
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use arrow::array::ArrayRef;
use datafusion::dataframe::DataFrame;
use futures::future::LocalBoxFuture;
use std::sync::Arc;

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

/// What the first pass found.
pub(crate) struct Surveyed {
    /// By partition.
    pub(crate) partitions: Vec<Survey>,
    /// What each coordinate is divided by.
    pub(crate) divisors: Vec<f64>,
    found: Found,
}

impl Surveyed {
    /// A sample of the points of each partition, divided by the scale.
    pub(crate) fn samples(&self) -> Vec<Points> {
        let d = self.divisors.len();
        let sample = |survey: &Survey| {
            let (mut rows, weights) = survey.sample.rows();
            for row in rows.chunks_exact_mut(d) {
                row.iter_mut()
                    .zip(&self.divisors)
                    .for_each(|(x, s)| *x /= s);
            }
            Points {
                dimension: d,
                coordinates: rows,
                weights: Some(weights),
            }
        };
        self.partitions.iter().map(sample).collect()
    }

    /// The partition and the lag of a model, for messages.
    pub(crate) fn place(&self, plan: &PointsPlan, partition: usize, lag: usize) -> String {
        let columns = plan.layout.partition.iter().zip(&self.found.partitions);
        let mut parts: Vec<String> = columns
            .map(|(field, keys)| {
                let key = describe(std::slice::from_ref(keys), partition);
                format!("{}={}", field.name(), escaped(&key))
            })
            .collect();
        parts.extend(plan.lags.get(lag).map(|lag| format!("lag {lag}")));
        if parts.is_empty() {
            return "the model".into();
        }
        parts.join(", ")
    }
}

impl PlannedPoints {
    /// Opens the output of the plan.
    ///
    /// # Errors
    /// If the location is not a path or a URL, or its store cannot be opened.
    pub fn output(&self) -> Result<Output> {
        Output::open(&self.plan.output, &self.plan.stores)
    }

    /// Checks that the output can take the result.
    ///
    /// # Errors
    /// If the output cannot be written, or holds the result of another job (unless `force`).
    pub async fn check_places(&self, output: &Output, force: bool) -> Result<()> {
        output.check(&[POINTS])?;
        if !force {
            output.check_job(&self.plan.name).await?;
        }
        Ok(())
    }

    /// Runs the plan. A run that fails leaves the output as it was. `force` runs even if the output
    /// is up to date.
    ///
    /// # Errors
    /// If a stage fails: reading, fitting or writing.
    pub fn run<'a>(
        &'a self,
        output: &'a Output,
        force: bool,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<PointsOutcome>> {
        Box::pin(async move {
            self.check_places(output, force).await?;
            let plan = &self.plan;
            let begun = output.begin(&plan.hash).await?;
            let is_done = |c: &Current| c.plan == plan.hash && c.complete;
            if !force && begun.earlier().is_some_and(is_done) {
                return Ok(PointsOutcome::NothingToDo);
            }
            let threads = self.lake.threads;
            let head = Head::begin(&begun.run, &plan.name, &plan.hash, threads, &plan.tables);
            let mut record = PointsRecord {
                head,
                models: Vec::new(),
            };
            match drive(self, output, &begun, &progress, &mut record).await {
                Ok(()) => Ok(PointsOutcome::Done(Box::new(record))),
                Err(e) => {
                    output.abandon().await;
                    record.head.failed(&e);
                    output.keep_failed(&begun.run, &record).await;
                    Err(e)
                }
            }
        })
    }
}

async fn drive(
    planned: &PlannedPoints,
    output: &Output,
    begun: &Begun,
    progress: &Arc<dyn Progress>,
    record: &mut PointsRecord,
) -> Result<()> {
    let PlannedPoints { plan, lake, frame } = planned;
    progress.stage("survey", None);
    let start = || Ok(Surveyor::default());
    let (surveyor, found) = read(lake, frame.clone(), &plan.layout, start).await?;
    let surveyed = survey(&plan.layout, surveyor, found)?;
    record.head.rows_read = surveyed.found.rows;
    record.head.rows_dropped = surveyed.found.dropped.0.clone();
    record
        .head
        .done("survey", surveyed.found.rows, record.head.input_bytes);

    progress.stage("fit", None);
    let models = match plan.layout.roles {
        PointRoles::Pairs { .. } => embeddings::fit(plan, lake, frame, &surveyed).await?,
        PointRoles::Rows => kernels::fit(plan, lake, frame, &surveyed).await?,
    };
    record.head.done("fit", models.len() as u64, 0);
    for model in &models {
        for fit in &model.fits {
            crate::assess::certificates::check(&fit.name, &fit.certificates())
                .map_err(|e| e.at(surveyed.place(plan, model.partition, model.lag)))?;
        }
    }

    progress.stage("write", None);
    let run = schema_of(
        &plan.layout.partition,
        surveyed.found.partitions.clone(),
        plan.lag_column(),
    );
    let mut tables = output::stage_points(output, begun, &run, &models).await?;
    let written = rows::write(planned, output, begun, &run, &surveyed, &models).await?;
    tables.insert(POINTS, written);
    record.head.tables = tables;
    record.models = models
        .iter()
        .map(|model| of_model(&surveyed, plan, model))
        .collect();
    record
        .head
        .done("write", record.head.tables.values().sum(), 0);
    record.head.outcome = Ended::Done;
    let promotion = Promotion {
        plan: &plan.hash,
        complete: true,
        tables: &record.head.tables,
        keep: plan.keep,
        record: &*record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await
}

/// Checks that there are points and that they vary.
fn survey(layout: &PointLayout, surveyor: Surveyor, found: Found) -> Result<Surveyed> {
    let section = match layout.roles {
        PointRoles::Pairs { .. } => "transitions",
        PointRoles::Rows => "points",
    };
    if found.rows == 0 {
        return Err(Error::input(format!(
            "the SQL of [{section}] gives no rows"
        )));
    }
    let Some(dimension) = found.dimension.filter(|_| !surveyor.partitions.is_empty()) else {
        let dropped = found.dropped.0.iter();
        let reasons: String = dropped
            .map(|(reason, rows)| format!(", {rows} dropped for {reason}"))
            .collect();
        return Err(Error::input(format!(
            "no row of {} is a point{reasons}",
            crate::error::counted(found.rows, "row")
        )));
    };
    if dimension == 0 {
        return Err(Error::input("the lists of coordinates are empty"));
    }
    let constant = |k: usize| {
        let name = match &layout.coordinates[..] {
            [list] if layout.is_list() => format!("number {k} of the lists in `{}`", list.name()),
            columns => format!("coordinate `{}`", columns[k].name()),
        };
        Error::new(
            Kind::Input,
            format!(
                "{name} has the same value in all rows; leave it out of `{section}.coordinates`"
            ),
        )
    };
    if let Some(k) = surveyor.constant() {
        return Err(constant(k));
    }
    let divisors = surveyor.divisors(layout, dimension).map_err(constant)?;
    Ok(Surveyed {
        partitions: surveyor.partitions,
        divisors,
        found,
    })
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
