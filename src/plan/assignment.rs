//! Pipeline → [`Assignment`]: how `gyre assign` reads new rows. The fits are those of a written
//! model.
//!
//! Only the keys for tables, SQL, columns, bins, lags and `partition_by` matter. `connected` is
//! ignored, because new rows need not form a connected chain. Each pair that `window` admits counts
//! 1, because a common divisor of the counts changes neither sets nor coordinates nor means.

use crate::error::{Error, Result, counted};
use crate::evidence::lag::Lag;
use crate::output::tables::run_schema::LagColumn;
use crate::plan::filters;
use crate::plan::filters::PlannedFilter;
use crate::plan::pipeline::keys::FilteredRows;
use crate::plan::pipeline::{Input, Pipeline};
use crate::plan::points::layout;
use crate::plan::rows::{PlannedQuery, Rows, hash, lag_column, query, rows};
use crate::plan::sequences;
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::read::points::layout::{PointLayout, Scale};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::state_space;
use crate::read::state_space::layout::StateSpaceLayout;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// What an assignment will do, without the model.
pub struct Assignment {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    pub output: String,
    /// The number of earlier results that the output keeps.
    pub keep: usize,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The roles of the columns of the query.
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, by length.
    pub lags: Vec<Lag>,
    /// Depends only on the rows, the meaning of their columns and the version of gyre.
    pub hash: String,
}

impl Assignment {
    /// The lags as the column `lag` of the output tables.
    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }
}

/// What an assignment of points will do, without the model.
pub struct PointAssignment {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    pub output: String,
    /// The number of earlier results that the output keeps.
    pub keep: usize,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The roles of the columns of the query. Weights and the scale are those of the model.
    pub layout: Arc<PointLayout>,
    /// The lags by length; empty for rows without time.
    pub lags: Vec<Lag>,
    /// Depends only on the rows, the meaning of their columns and the version of gyre.
    pub hash: String,
}

impl PointAssignment {
    /// The lags as the column `lag` of the output tables.
    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }
}

/// What an assignment of sequences will do, without the model.
pub struct SequenceAssignment {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    pub output: String,
    /// The number of earlier results that the output keeps.
    pub keep: usize,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The roles of the columns of the query, without weights.
    pub layout: Arc<Layout>,
    /// Whether the table `predictions` has the distribution of the next symbol.
    pub distribution: bool,
    /// Depends only on the rows, the meaning of their columns and the version of gyre.
    pub hash: String,
}

/// What the filtering of new rows will do, without the model.
pub struct FilterAssignment {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    pub output: String,
    /// The number of earlier results that the output keeps.
    pub keep: usize,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The roles of the columns of the query. There may be no state.
    pub layout: Arc<StateSpaceLayout>,
    /// The fits with their methods and functions; those of the model have the same names.
    pub fits: Vec<PlannedFilter>,
    /// Whether training rows are left out.
    pub held_out: bool,
    /// Depends only on the rows, the meaning of their columns and the version of gyre.
    pub hash: String,
}

impl FilterAssignment {
    /// Checks the columns of the rows against the lengths of the states and observations of the
    /// model at `at`. The lengths of lists are checked when they are read.
    ///
    /// # Errors
    /// If the lengths differ.
    pub fn check_widths(&self, state: usize, observation: usize, at: &str) -> Result<()> {
        let of = [
            ("state", &self.layout.state, state),
            ("observation", &self.layout.observation, observation),
        ];
        for (role, fields, wanted) in of {
            let own = filters::width(fields).filter(|_| !fields.is_empty());
            if let Some(own) = own.filter(|own| *own != wanted) {
                return Err(Error::spec(format!(
                    "`sequences.{role}` has {}, but the model at {at} was fitted to {wanted}",
                    counted(own, "number")
                )));
            }
        }
        Ok(())
    }
}

/// Resolves the rows of a pipeline of filters with the query text `sql` against the tables of a
/// lake.
///
/// Also returns the query as a data frame with the columns of the layout.
pub async fn filter_assignment(
    pipeline: &Pipeline,
    sql: &str,
    lake: &Lake,
) -> Result<(FilterAssignment, DataFrame)> {
    let PlannedQuery {
        sql,
        frame,
        columns,
        partition,
        ..
    } = query(pipeline, sql, lake).await?;
    let layout = filters::layout(pipeline, &columns, partition)?;
    let frame = state_space::layout::select(frame, &layout)?;
    let mut fits = Vec::with_capacity(pipeline.filter_fits.len());
    for entry in &pipeline.filter_fits {
        fits.push(filters::filter(entry, pipeline, &layout, lake).await?);
    }
    let keys = &pipeline.transitions;
    let rows = pipeline.output.rows.filtered(layout.split.is_some());
    let held_out = match rows {
        Some(FilteredRows::None) => layout.split.is_some(),
        rows => rows == Some(FilteredRows::HeldOut),
    };
    let used = (
        &keys.parameters,
        &keys.partition_by,
        &keys.input,
        &pipeline.filter_fits,
        held_out,
    );
    let assignment = FilterAssignment {
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        tables: lake.tables.clone(),
        layout: Arc::new(layout),
        fits,
        held_out,
        hash: hash(&used, &sql, &lake.tables)?,
    };
    Ok((assignment, frame))
}

/// Resolves the sequences of a pipeline with the query text `sql` against the tables of a lake.
///
/// Also returns the query as a data frame with the columns of the layout.
pub async fn sequence_assignment(
    pipeline: &Pipeline,
    sql: &str,
    lake: &Lake,
) -> Result<(SequenceAssignment, DataFrame)> {
    let PlannedQuery {
        sql,
        frame,
        columns,
        partition,
        ..
    } = query(pipeline, sql, lake).await?;
    let mut pipeline = pipeline.clone();
    if let Input::Sequences { weight, .. } = &mut pipeline.transitions.input {
        *weight = None;
    }
    let layout = sequences::layout(&pipeline, &columns, partition)?;
    let frame = lake.select(frame, &layout)?;
    let keys = &pipeline.transitions;
    let distribution = pipeline.output.distribution;
    let used = (
        &keys.parameters,
        &keys.partition_by,
        &keys.input,
        distribution,
    );
    let assignment = SequenceAssignment {
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        tables: lake.tables.clone(),
        layout: Arc::new(layout),
        distribution,
        hash: hash(&used, &sql, &lake.tables)?,
    };
    Ok((assignment, frame))
}

/// Resolves the points of a pipeline with the query text `sql` against the tables of a lake.
///
/// Also returns the query as a data frame with the columns of the layout.
pub async fn point_assignment(
    pipeline: &Pipeline,
    sql: &str,
    lake: &Lake,
) -> Result<(PointAssignment, DataFrame)> {
    let PlannedQuery {
        sql,
        frame,
        columns,
        partition,
        ..
    } = query(pipeline, sql, lake).await?;
    let mut pipeline = pipeline.clone();
    if let Input::PointPairs { weight, scale, .. } | Input::Points { weight, scale, .. } =
        &mut pipeline.transitions.input
    {
        // The divisors are those of the model.
        (*weight, *scale) = (None, Scale::Standard);
    }
    let (layout, lags) = layout(&pipeline, &columns, partition)?;
    let frame = crate::read::points::select(frame, &layout)?;
    let keys = &pipeline.transitions;
    let used = (&keys.parameters, &keys.partition_by, &keys.input);
    let assignment = PointAssignment {
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        tables: lake.tables.clone(),
        layout: Arc::new(layout),
        lags,
        hash: hash(&used, &sql, &lake.tables)?,
    };
    Ok((assignment, frame))
}

/// Resolves the rows of a pipeline with the query text `sql` against the tables of a lake.
///
/// Also returns the query as a data frame.
pub async fn assignment(
    pipeline: &Pipeline,
    sql: &str,
    lake: &Lake,
) -> Result<(Assignment, DataFrame)> {
    let Rows {
        sql,
        frame,
        partition,
        mut evidence,
        lags,
        ..
    } = rows(pipeline, sql, lake).await?;
    if let RowRoles::Trajectories { overlap, .. } = &mut evidence {
        overlap.clear();
    }
    let layout = Layout {
        partition,
        evidence,
        given: Vec::new(),
        grouping: None,
        one_label_set: false,
        connected: false,
    };
    let keys = &pipeline.transitions;
    let used = (&keys.parameters, &keys.partition_by, &keys.input);
    let frame = lake.select(frame, &layout)?;
    let assignment = Assignment {
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        tables: lake.tables.clone(),
        layout: Arc::new(layout),
        lags,
        hash: hash(&used, &sql, &lake.tables)?,
    };
    Ok((assignment, frame))
}
