//! What a pipeline file says of its rows → what an assignment will do with them: the fits are those of a written model.
//!
//! Of the keys only tables, SQL, columns, bins, lags and `partition_by` count. New rows need not lead everywhere, so `connected` drops
//! none of them, and every pair that `window` lets through counts one: to divide all counts of a lag would change no set, point or mean.

use crate::error::Result;
use crate::evidence::lag::Lag;
use crate::output::tables::run_schema::LagColumn;
use crate::plan::pipeline::Pipeline;
use crate::plan::rows::{Rows, hash, lag_column, rows};
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::read::rows::layout::{Layout, RowRoles};
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// What an assignment will do, but for the model.
pub struct Assignment {
    pub name: String,
    pub output: String,
    /// How many earlier results the output keeps.
    pub keep: usize,
    pub tables: Vec<Table>,
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, which is that of their length.
    pub lags: Vec<Lag>,
    /// Changes with the rows, what their columns mean and the version of gyre, and with nothing else.
    pub hash: String,
}

impl Assignment {
    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }
}

/// Resolves the rows of a pipeline whose query text is `sql` against the tables of a lake. Also returns the query, ready to run.
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
    let asked = &pipeline.transitions;
    let used = (&asked.parameters, &asked.partition_by, &asked.input);
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
