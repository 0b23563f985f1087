//! What the plan of a run over one kind of evidence says of itself.

use crate::error::Result;
use crate::evidence::lag::Lag;
use crate::plan::job::PlannedJob;
use crate::plan::pipeline::{Pipeline, TimeKeys};
use crate::plan::rows::{PlannedQuery, query};
use crate::read::lake::Lake;
use crate::read::rows::time_rules::TimeSteps;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Display;

/// A part of a plan as text and as JSON.
pub struct Shown {
    /// As text.
    pub text: String,
    /// As JSON.
    pub json: Value,
}

impl Shown {
    /// A part that has both forms.
    pub(crate) fn of(part: &(impl Display + Serialize)) -> Shown {
        Shown {
            text: part.to_string(),
            json: json!(part),
        }
    }
}

/// A line of the text of a plan: its label and what it says.
pub(crate) type Line = (&'static str, String);

/// What the text of a plan says beside the frame.
#[derive(Default)]
pub struct PlanLines {
    /// What the run reads of a row and counts.
    pub evidence: Vec<Line>,
    /// What the run fits to that, and what it does with the fits.
    pub fits: Vec<Line>,
}

/// The plan of a run over one kind of evidence: its job, and what the kind adds. The serialized
/// part travels to other machines.
pub trait KindPlan: Sized + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Of what the memory of a run depends on, what nothing may say before the rows are read.
    const UNKNOWN: &'static str;

    /// Resolves a pipeline and its query against the tables of a lake. `job` has no checks and no
    /// hash yet. Also gives the query as a data frame with the columns of the layout.
    ///
    /// # Errors
    /// If the keys of the pipeline do not fit the columns.
    fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        job: PlannedJob,
        lake: &Lake,
    ) -> impl Future<Output = Result<(Self, DataFrame)>>;

    /// What all plans have.
    fn job(&self) -> &PlannedJob;

    /// The same, to be finished.
    fn job_mut(&mut self) -> &mut PlannedJob;

    /// The lags by length; empty if there are none.
    fn lags(&self) -> &[Lag] {
        &[]
    }

    /// How the times of trajectories are read, as written.
    fn times(&self) -> TimeKeys {
        TimeKeys::default()
    }

    /// The times after which rows make pairs or follow each other. None if they need no times.
    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        None
    }

    /// The number of fits per model.
    fn n_fits(&self) -> usize;

    /// The tables of the result in the order in which they are written, with their columns. Lists
    /// whose length depends on the rows have one entry here.
    fn schemas(&self) -> Vec<(&'static str, SchemaRef)>;

    /// The lines of the text of the plan.
    fn lines(&self) -> PlanLines {
        PlanLines::default()
    }

    /// The keys of the JSON of the plan beside those that all plans have.
    fn own_json(&self) -> Value {
        json!({})
    }

    /// What a second pass over the input does. None if there is none.
    fn rows_text(&self) -> Option<String> {
        None
    }

    /// The columns of the SQL that this pass reads for its table beside those of the evidence.
    fn copied(&self) -> &[Field] {
        &[]
    }

    /// Bounds of the memory of a run. None if nothing says how many rows there are.
    ///
    /// # Errors
    /// If the statistics of the files cannot be read.
    fn memory(
        &self,
        _lake: &Lake,
        _frame: DataFrame,
    ) -> impl Future<Output = Result<Option<Shown>>> + Send {
        async { Ok(None) }
    }
}

/// The functions of a [`KindPlan`] with a field `job`.
macro_rules! with_job {
    () => {
        fn job(&self) -> &PlannedJob {
            &self.job
        }

        fn job_mut(&mut self) -> &mut PlannedJob {
            &mut self.job
        }
    };
}
pub(crate) use with_job;

/// Plans a run over the rows of one kind; `seed` replaces that of the pipeline. The second value is
/// the query `sql` with the columns of the layout.
///
/// # Errors
/// If the SQL or the keys of the pipeline do not fit the tables, a table would have two columns of
/// one name, or the SQL of a check cannot be planned.
pub async fn plan<P: KindPlan>(
    pipeline: &Pipeline,
    sql: &str,
    seed: Option<u64>,
    lake: &Lake,
) -> Result<(P, DataFrame)> {
    let query = query(pipeline, sql, lake).await?;
    let job = PlannedJob::new(pipeline, &query, seed, lake);
    let (mut plan, frame) = P::resolve(pipeline, query, job, lake).await?;
    let tables = plan.schemas();
    plan.job_mut().finish(pipeline, lake, &tables).await?;
    Ok((plan, frame))
}
