//! Assigns new points to a written model: embeddings and clusters. Drives the stages: read model →
//! write → promote.
//!
//! The pipeline names the new rows and the roles of their columns; the scale and the fits are those
//! of the model. Rows are read once. Memory holds the model, a few batches and one encoded row
//! group.

use crate::error::{Error, Result, counted, escaped};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::result::Written;
use crate::output::tables::points::{POINTS, schema_of};
use crate::output::tables::table::Table;
use crate::plan::assignment::PointAssignment;
use crate::plan::job::check_names;
use crate::read::paths::current::Current;
use crate::read::points::Found;
use crate::read::rows::states::describe;
use crate::run::assign::{check_alike, check_kind, check_lags};
use crate::run::inputs::PlannedPointAssignment;
use crate::run::points::known;
use crate::run::points::rows::{RowCounts, RowInput, RowTable, copy};
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use crate::run::summary;
use crate::run::summary::SHOWN;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// How an assignment ended.
pub enum PointAssignOutcome {
    /// The output already holds what this one would write.
    NothingToDo,
    /// The table is in place; the model may lack some partitions.
    Done(Box<PointAssignRecord>),
}

/// `runs/<id>.json` of an assignment of points.
#[derive(Debug, Clone, Serialize)]
pub struct PointAssignRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// The output with the models.
    pub model: String,
    /// The run that made the models.
    pub model_run: String,
    /// What a user should know of the rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry per partition and lag of the model that has new rows.
    pub models: Vec<AssignedPointsRecord>,
}

/// The new rows of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct AssignedPointsRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// The lag, unless rows have no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// The number of points.
    pub points: u64,
    /// By fit, the points that are connected to no point with an embedding.
    pub without_embedding: BTreeMap<String, u64>,
}

impl PlannedPointAssignment {
    /// Assigns the points to the model at an output. An assignment that fails leaves `output` as it
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
    ) -> LocalBoxFuture<'a, Result<PointAssignOutcome>> {
        Box::pin(assign(self, model, output, force, progress))
    }
}

async fn assign(
    planned: &PlannedPointAssignment,
    model: &Output,
    output: &Output,
    force: bool,
    progress: Arc<dyn Progress>,
) -> Result<PointAssignOutcome> {
    let plan = &planned.assignment;
    let at = model.shown();
    let Some(written) = Written::open(model).await? else {
        let what = format!("there is no finished result at {at}; run its pipeline first");
        return Err(Error::input(what));
    };
    check_columns(plan, &written, at).await?;
    check_lags(&plan.lags, &written, at).await?;
    let hash = hash(plan, &written);
    output.check(&[POINTS])?;
    if !force {
        output.check_job(&plan.name).await?;
    }
    let begun = output.begin(&hash).await?;
    let current = begun.earlier();
    if current.is_some_and(|c| c.tables.contains_key(Table::Fits.name())) {
        return Err(Error::spec(format!(
            "{} holds the models of a run, which the assigned points would replace; name another folder with --output",
            output.shown()
        )));
    }
    if !force && current.is_some_and(|c| c.plan == hash && c.complete) {
        return Ok(PointAssignOutcome::NothingToDo);
    }
    let threads = planned.lake.threads;
    let mut record = PointAssignRecord {
        head: Head::begin(&begun.run, &plan.name, &hash, threads, &plan.tables),
        model: at.to_string(),
        model_run: written.current.run.clone(),
        warnings: Vec::new(),
        models: Vec::new(),
    };
    match drive(planned, &written, output, &begun, &progress, &mut record).await {
        Ok(()) => Ok(PointAssignOutcome::Done(Box::new(record))),
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
    planned: &PlannedPointAssignment,
    written: &Written<'_>,
    output: &Output,
    begun: &Begun,
    progress: &Arc<dyn Progress>,
    record: &mut PointAssignRecord,
) -> Result<()> {
    let PlannedPointAssignment {
        assignment: plan,
        lake,
        frame,
    } = planned;
    let at = record.model.clone();
    progress.stage("read model", None);
    let models = known::read(written, plan.lag_column()).await;
    let models = models.map_err(|e| e.at(format!("model {at}")))?;
    record.head.done("read model", 0, 0);
    let run = schema_of(&plan.layout.partition, Vec::new(), plan.lag_column());
    let mut table = RowTable::new(&run, &plan.layout, &models, None);
    check_names(&[(POINTS, Arc::clone(&table.schema))])?;

    progress.stage("write", None);
    output.claim_version(begun).await?;
    let input = RowInput {
        lake,
        frame,
        layout: &plan.layout,
        partitions: None,
        sorted: false,
        output,
        begun,
    };
    let (rows, found) = copy(&input, &mut table).await?;
    if found.rows == 0 {
        return Err(Error::input("the SQL of the pipeline gives no rows"));
    }
    if table
        .counts
        .values()
        .all(|counts| counts.embedded.is_none())
    {
        return Err(Error::input(format!(
            "the model at {at} has none of the partitions and lags of the {}",
            counted(found.rows, "row")
        )));
    }
    if let Some(large) = &table.large {
        let warning =
            format!("{large}, which is too large for the model; rows like it have no embedding");
        tracing::warn!("{warning}");
        record.warnings.push(warning);
    }
    record.head.rows_read = found.rows;
    record.head.rows_dropped = found.dropped.0.clone();
    record.head.tables = BTreeMap::from([(POINTS, rows)]);
    record.head.done("write", rows, record.head.input_bytes);
    for ((partition, lag), counts) in &table.counts {
        let place = place(plan, &found, *partition, *lag);
        match of_counts(&place, counts, &table.fit_names()) {
            Some(of_model) => record.models.push(of_model),
            None => record.head.lacks(place.to_string(), &at),
        }
    }
    record.head.outcome = Ended::Done;
    let promotion = Promotion {
        kind: "points",
        plan: &record.head.plan,
        complete: record.head.failures.is_empty(),
        tables: &record.head.tables,
        keep: plan.keep,
        record: &*record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await
}

/// A partition and a lag.
struct Place {
    partition: BTreeMap<String, String>,
    lag: Option<String>,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let columns = self.partition.iter();
        let columns = columns.map(|(name, value)| escaped(&format!("{name}={value}")));
        let lag = self.lag.iter().map(|lag| format!("lag {lag}"));
        let parts: Vec<String> = columns.chain(lag).collect();
        f.write_str(&parts.join(", "))
    }
}

fn place(plan: &PointAssignment, found: &Found, partition: u32, lag: usize) -> Place {
    let columns = plan.layout.partition.iter().zip(&found.partitions);
    let columns = columns.map(|(field, keys)| {
        let value = describe(std::slice::from_ref(keys), partition as usize);
        (field.name().clone(), value)
    });
    Place {
        partition: columns.collect(),
        lag: plan.lags.get(lag).map(ToString::to_string),
    }
}

/// The record of the rows of a partition and lag. None if there is no model.
fn of_counts(place: &Place, counts: &RowCounts, fits: &[&str]) -> Option<AssignedPointsRecord> {
    let embedded = counts.embedded.as_ref()?.iter();
    let without = embedded.map(|embedded| counts.rows - embedded);
    Some(AssignedPointsRecord {
        partition: place.partition.clone(),
        lag: place.lag.clone(),
        points: counts.rows,
        without_embedding: fits
            .iter()
            .map(|name| name.to_string())
            .zip(without)
            .collect(),
    })
}

/// The hash of an assignment. It depends on the plan (which has the version of gyre) and the run
/// that made the model.
fn hash(plan: &PointAssignment, written: &Written<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    let Current { run, plan: of, .. } = &written.current;
    for part in ["assign points", &plan.hash, of, run] {
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_string()
}

/// An error unless the model was made from points whose partition columns and coordinates have the
/// same names.
async fn check_columns(plan: &PointAssignment, written: &Written<'_>, at: &str) -> Result<()> {
    check_kind("points", written, at)?;
    if written.lag.is_some() == plan.lags.is_empty() {
        let (ours, theirs) = if plan.lags.is_empty() {
            ("points without time", "trajectories")
        } else {
            ("trajectories", "points without time")
        };
        return Err(Error::spec(format!(
            "the pipeline has {ours}, but the model at {at} was made from {theirs}"
        )));
    }
    let (ours, theirs) = (&plan.layout.partition, &written.partition);
    check_alike("partition_by", ours, theirs, at)?;
    let (ours, theirs) = (
        plan.layout.coordinate_names(),
        known::coordinates(written).await?,
    );
    if ours != theirs {
        let listed = |names: &[String]| format!("`{}`", names.join("`, `"));
        return Err(Error::spec(format!(
            "the coordinates are {} in the pipeline, but {} in the model at {at}; name them alike and in the same order",
            listed(&ours),
            listed(&theirs)
        )));
    }
    Ok(())
}

/// The summary of an assignment of points.
pub struct PointAssignSummary<'a> {
    /// The record of the assignment.
    pub record: &'a PointAssignRecord,
    /// The location of its table.
    pub output: &'a str,
}

impl Display for PointAssignSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PointAssignSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        let dropped: u64 = head.rows_dropped.values().sum();
        writeln!(
            f,
            "{}: {} from {}, assigned by the model {}",
            head.pipeline,
            counted(grouped(head.tables[POINTS] as f64), "point"),
            counted(grouped(head.rows_read as f64), "row"),
            record.model
        )?;
        if dropped > 0 {
            for (reason, rows) in &head.rows_dropped {
                writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
            }
        }
        for warning in &record.warnings {
            writeln!(f, "  warning: {}", escaped(warning))?;
        }
        for model in models.iter().take(SHOWN) {
            let place = Place {
                partition: model.partition.clone(),
                lag: model.lag.clone(),
            };
            let place = place.to_string();
            let points = counted(grouped(model.points as f64), "point");
            match place.as_str() {
                "" => writeln!(f, "\n{points}")?,
                place => writeln!(f, "\n{place}: {points}")?,
            }
            let without = model.without_embedding.iter().filter(|(_, n)| **n > 0);
            for (fit, n) in without {
                let n = counted(grouped(*n as f64), "point");
                writeln!(f, "  {fit}  {n} without embedding")?;
            }
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        summary::end(f, head, models.len(), &["read model", "write"], output)
    }
}
