//! Pipeline → [`Assignment`]: how `gyre assign` reads new rows. The fits are those of a written
//! model.
//!
//! Only the keys for tables, SQL, columns, bins, lags and `partition_by` matter.

use crate::error::Result;
use crate::plan::pipeline::Pipeline;
use crate::plan::rows::{PlannedQuery, hash};
use crate::read::lake::Lake;
use crate::read::lake::files::LakeTable;
use crate::read::rows::time_rules::TimeSteps;
use datafusion::dataframe::DataFrame;
use serde::Serialize;

/// The roles of the columns of new rows of one kind.
pub(crate) trait NewRows: Sized + Send + Sync + 'static {
    /// Resolves the new rows of a pipeline and its query against the tables of a lake. Also gives
    /// the query as a data frame with the columns of the layout.
    ///
    /// # Errors
    /// If the keys of the pipeline do not fit the columns.
    fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        lake: &Lake,
    ) -> impl Future<Output = Result<(Assignment<Self>, DataFrame)>>;

    /// The times after which rows make pairs or follow each other. None if they need no times.
    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        None
    }
}

/// What an assignment will do, without the model. `R` has the roles of the columns of the rows.
pub(crate) struct Assignment<R> {
    /// The name of the job.
    pub name: String,
    /// The section of the pipeline file that describes the rows.
    pub section: &'static str,
    /// The folder or URL of the output.
    pub output: String,
    /// The number of earlier results that the output keeps.
    pub keep: usize,
    /// The input tables and their files.
    pub tables: Vec<LakeTable>,
    /// Depends only on the rows, the meaning of their columns and the version of gyre.
    pub hash: String,
    /// The roles of the columns of the query.
    pub rows: R,
}

impl<R> Assignment<R> {
    /// An assignment of the rows of a query with this text. Beside the keys of all kinds, the
    /// result depends on `used`.
    ///
    /// # Errors
    /// If the keys cannot be hashed, which is a bug.
    pub(crate) fn new(
        pipeline: &Pipeline,
        sql: &str,
        lake: &Lake,
        used: &impl Serialize,
        rows: R,
    ) -> Result<Assignment<R>> {
        let keys = &pipeline.transitions;
        let used = (&keys.parameters, &keys.partition_by, &keys.input, used);
        Ok(Assignment {
            name: pipeline.job.name.clone(),
            section: keys.input.section(),
            output: pipeline.job.output.clone(),
            keep: pipeline.job.keep as usize,
            tables: lake.tables.clone(),
            hash: hash(&used, sql, &lake.tables)?,
            rows,
        })
    }
}
