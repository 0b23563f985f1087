//! What a kind of evidence says of the assignment of new rows.

use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::result::{ModelKey, Written};
use crate::output::tables::table::Table;
use crate::plan::assignment::{Assignment, NewRows};
use crate::read::lake::Lake;
use crate::run::kind::{DroppedRows, EvidenceKind};
use crate::run::progress::Progress;
use crate::run::record::{Head, ModelEntry};
use crate::run::sets::are_alike;
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// Options of an assignment.
#[derive(Debug, Clone, Copy)]
pub struct AssignOptions {
    /// Run even if the output is up to date.
    pub force: bool,
    /// Transitions added to every set, distributed over the targets like all transitions.
    pub smoothing: f64,
}

/// A kind of evidence whose new rows can be assigned to a model.
pub(crate) trait Assigns: EvidenceKind {
    /// The roles of the columns of new rows.
    type NewRows: NewRows;
    /// What the record says of the new rows of a model, and how the summary prints it.
    type Assigned: Serialize + Display + Clone + Send + Sync + 'static;

    /// The tables of rows that an assignment writes.
    const TABLES: &'static [&'static str];

    /// Checks that the new rows have the columns of the model.
    ///
    /// # Errors
    /// If they do not.
    fn check_columns(rows: &Self::NewRows, model: &Model<'_>) -> impl Future<Output = Result<()>>;

    /// Reads the model, assigns the rows and writes their tables.
    ///
    /// # Errors
    /// If the rows or the model cannot be read, or a table cannot be written.
    fn assign(
        run: &mut Assigning<'_, Self>,
    ) -> impl Future<Output = Result<AssignedRows<Self::Assigned>>>;
}

/// An assignment, the tables that it reads and its query.
pub(crate) struct PlannedAssignment<K: Assigns> {
    /// What the assignment will do.
    pub assignment: Arc<Assignment<K::NewRows>>,
    /// The tables that the query reads.
    pub lake: Lake,
    /// The query, with the columns of the layout.
    pub frame: DataFrame,
}

/// The model of an assignment.
pub(crate) struct Model<'a> {
    /// Its result.
    pub written: Written<'a>,
    /// Its location.
    pub at: &'a str,
}

/// An assignment that goes on: what its stages may use.
pub(crate) struct Assigning<'a, K: Assigns> {
    /// What the assignment does.
    pub planned: &'a PlannedAssignment<K>,
    pub model: &'a Model<'a>,
    /// The output of the assignment.
    pub output: &'a Output,
    /// The run.
    pub begun: &'a Begun,
    /// The options of the assignment.
    pub options: &'a AssignOptions,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
    /// What all records have.
    pub head: &'a mut Head,
}

impl<K: Assigns> Assigning<'_, K> {
    /// The error of a query without rows.
    pub(crate) fn no_rows(&self) -> Error {
        let section = self.planned.assignment.section;
        Error::input(format!("the SQL of [{section}] gives no rows"))
    }
}

/// What an assignment has written and found.
pub(crate) struct AssignedRows<R> {
    /// The number of rows that were read.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub dropped: DroppedRows,
    /// By lag, the number of pairs, or of rows that follow another one. None if it is not known.
    pub pairs: Option<Vec<u64>>,
    /// Rows by table.
    pub tables: BTreeMap<&'static str, u64>,
    /// What a user should know of the rows.
    pub warnings: Vec<String>,
    /// One entry per partition and lag of the model that has new rows.
    pub models: Vec<ModelEntry<R>>,
    /// Partitions and lags of the rows that the model does not have.
    pub lacking: Vec<String>,
}

/// The records of the partitions with new rows, and the places of those beyond the number `known`
/// of partitions that the model has. `partitions` has one array per partition column.
pub(crate) fn by_partition<T, R>(
    written: &Written<'_>,
    (known, partitions): (usize, &[ArrayRef]),
    rows: &BTreeMap<u32, T>,
    record: impl Fn(u32, &T) -> R,
) -> (Vec<ModelEntry<R>>, Vec<String>) {
    let (mut models, mut lacking) = (Vec::new(), Vec::new());
    for (&partition, of_rows) in rows {
        let key = ModelKey::at(partitions, None, partition as usize);
        if partition as usize >= known {
            lacking.push(written.place(&key));
            continue;
        }
        models.push(ModelEntry {
            partition: written.partition_of(&key),
            lag: None,
            model: record(partition, of_rows),
        });
    }
    (models, lacking)
}

/// An error unless the model at `at` was made from rows of the kind of the pipeline.
pub(crate) fn check_kind(ours: &str, theirs: &str, at: &str) -> Result<()> {
    if ours == theirs {
        return Ok(());
    }
    Err(Error::spec(format!(
        "the pipeline has {ours}, but the model at {at} was made from {theirs}"
    )))
}

/// An error unless columns of the pipeline are those of the model at `at`.
pub(crate) fn check_alike(what: &str, ours: &[Field], theirs: &[Field], at: &str) -> Result<()> {
    if are_alike(ours, theirs) {
        return Ok(());
    }
    Err(Error::spec(format!(
        "the columns of {what} are {} in the pipeline, but {} in the model at {at}; name and cast them alike",
        listed(ours),
        listed(theirs)
    )))
}

/// Columns as text: `word` Utf8, `year` Int64.
fn listed(fields: &[Field]) -> String {
    let shown = fields
        .iter()
        .map(|f| format!("`{}` {}", f.name(), f.data_type()));
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_string(),
        some => some,
    }
}

/// An error unless the model has all lags of the pipeline.
pub(crate) async fn check_lags(asked: &[Lag], written: &Written<'_>, at: &str) -> Result<()> {
    let models = written.models(Table::Fits).await?;
    let mut lags: Vec<String> = models.into_iter().filter_map(|m| m.key.lag).collect();
    lags.sort_by(|a, b| Lag::texts_by_length(a, b));
    lags.dedup();
    let mut asked = asked.iter().map(Lag::to_string);
    if let Some(missing) = asked.find(|lag| !lags.contains(lag)) {
        let lags = lags.join(", ");
        return Err(Error::spec(format!(
            "the pipeline asks for lag {missing}, but the model at {at} has lag {lags}"
        )));
    }
    Ok(())
}
