//! Assigns new points to a written model: embeddings and clusters.
//!
//! The scale and the fits are those of the model. Rows are read once. Memory holds the model, a few
//! batches and one encoded row group.

use crate::error::{Error, Result, counted, escaped};
use crate::output::number::grouped;
use crate::output::result::ModelKey;
use crate::output::tables::points::{POINTS, schema_of};
use crate::plan::job::check_names;
use crate::plan::points::NewPoints;
use crate::plan::rows::lag_column;
use crate::run::assign::kind::{
    AssignedRows, Assigning, Assigns, Model, check_alike, check_kind, check_lags,
};
use crate::run::points::kind::PointsKind;
use crate::run::points::known;
use crate::run::points::rows::{RowCounts, RowInput, RowTable, copy};
use crate::run::record::ModelEntry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The new rows of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AssignedPoints {
    /// The number of points.
    pub points: u64,
    /// By fit, the points that are connected to no point with an embedding.
    pub without_embedding: BTreeMap<String, u64>,
}

impl Assigns for PointsKind {
    type NewRows = NewPoints;
    type Assigned = AssignedPoints;

    const TABLES: &'static [&'static str] = &[POINTS];

    async fn check_columns(rows: &NewPoints, model: &Model<'_>) -> Result<()> {
        check_columns(rows, model).await?;
        check_lags(&rows.lags, &model.written, model.at).await
    }

    async fn assign(run: &mut Assigning<'_, Self>) -> Result<AssignedRows<AssignedPoints>> {
        let (planned, progress) = (run.planned, run.progress);
        let rows = &planned.assignment.rows;
        let Model { written, at } = run.model;
        progress.stage("read model", None);
        let lags = lag_column(&rows.lags);
        let models = known::read(written, lags.clone()).await;
        let models = models.map_err(|e| e.at(format!("model {at}")))?;
        run.head.done("read model", 0, 0);
        let schema = schema_of(&rows.layout.partition, Vec::new(), lags);
        let mut table = RowTable::new(&schema, &rows.layout, models, None);
        check_names(&[(POINTS, Arc::clone(&table.schema))])?;

        progress.stage("write", None);
        run.output.claim_version(run.begun).await?;
        let input = RowInput {
            lake: &planned.lake,
            frame: &planned.frame,
            layout: &rows.layout,
            partitions: None,
            sorted: false,
            output: run.output,
            begun: run.begun,
        };
        let (n, found) = copy(&input, &mut table).await?;
        let warning = table.large.as_ref().map(|large| {
            format!("{large}, which is too large for the model; rows like it have no embedding")
        });
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        let (mut assigned, mut lacking) = (Vec::new(), Vec::new());
        for ((partition, lag), counts) in &table.counts {
            let key = ModelKey {
                lag: rows.lags.get(*lag).map(ToString::to_string),
                ..ModelKey::at(&found.partitions, None, *partition as usize)
            };
            let Some(model) = of_counts(counts, &table.fit_names()) else {
                lacking.push(written.place(&key));
                continue;
            };
            let values = written.partition_of(&key).into_iter();
            let values = values.map(|(name, value)| (name, escaped(&value)));
            assigned.push(ModelEntry {
                partition: values.collect(),
                lag: key.lag,
                model,
            });
        }
        Ok(AssignedRows {
            rows: found.rows,
            dropped: found.dropped.0.clone(),
            pairs: None,
            tables: BTreeMap::from([(POINTS, n)]),
            warnings: warning.into_iter().collect(),
            models: assigned,
            lacking,
        })
    }
}

/// The record of the rows of a partition and lag. None if there is no model.
fn of_counts(counts: &RowCounts, fits: &[&str]) -> Option<AssignedPoints> {
    let embedded = counts.embedded.as_ref()?.iter();
    let without = embedded.map(|embedded| counts.rows - embedded);
    Some(AssignedPoints {
        points: counts.rows,
        without_embedding: fits
            .iter()
            .map(|name| name.to_string())
            .zip(without)
            .collect(),
    })
}

/// An error unless the model was made from points whose partition columns and coordinates have the
/// same names.
async fn check_columns(rows: &NewPoints, model: &Model<'_>) -> Result<()> {
    let Model { written, at } = model;
    let kind = |has_lag| ["points without time", "trajectories"][usize::from(has_lag)];
    let ours = kind(!rows.lags.is_empty());
    check_kind(ours, kind(written.lag.is_some()), at)?;
    let (ours, theirs) = (&rows.layout.partition, &written.partition);
    check_alike("partition_by", ours, theirs, at)?;
    let (ours, theirs) = (
        rows.layout.coordinate_names(),
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

impl Display for AssignedPoints {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", counted(grouped(self.points as f64), "point"))?;
        for (fit, n) in self.without_embedding.iter().filter(|(_, n)| **n > 0) {
            let n = counted(grouped(*n as f64), "point");
            writeln!(f, "  {fit}  {n} without embedding")?;
        }
        Ok(())
    }
}
