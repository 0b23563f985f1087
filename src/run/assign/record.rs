//! The record of an assignment, and the summary that `gyre assign` prints.

use crate::error::{counted, escaped};
use crate::output::number::grouped;
use crate::run::assign::kind::Assigns;
use crate::run::record::{Head, ModelEntry};
use crate::run::summary;
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of an assignment.
#[derive(Serialize)]
#[serde(bound = "")]
pub(crate) struct AssignRecord<K: Assigns> {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// The kind of the evidence.
    pub kind: &'static str,
    /// The output with the models.
    pub model: String,
    /// The run that made the models.
    pub model_run: String,
    /// [`AssignOptions::smoothing`](crate::run::assign::kind::AssignOptions::smoothing), in
    /// transitions.
    pub smoothing: f64,
    /// What a user should know of the rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry per partition and lag of the model that has new rows.
    pub models: Vec<ModelEntry<K::Assigned>>,
}

/// The summary of an assignment.
pub(crate) struct AssignSummary<'a, K: Assigns> {
    /// The record of the assignment.
    pub record: &'a AssignRecord<K>,
    /// The location of its tables.
    pub output: &'a str,
}

impl<K: Assigns> Display for AssignSummary<'_, K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let AssignSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        let rows = counted(grouped(head.rows_read as f64), "row");
        let name = &head.pipeline;
        writeln!(f, "{name}: {rows}, assigned by the model {}", record.model)?;
        summary::dropped(f, head)?;
        for warning in &record.warnings {
            writeln!(f, "  warning: {}", escaped(warning))?;
        }
        let at = format!("{output}/runs/{}.json", head.id);
        summary::entries(f, models, "more", &at)?;
        let stages = ["read model", "count", "assign", "score", "write"];
        summary::end(f, head, models.len(), &stages, output)
    }
}
