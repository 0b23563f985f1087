//! The record of an assignment, and the text a person reads after it.

use crate::manifest::Failure;
use crate::read::InputFile;
use crate::summary::{SHOWN, grouped};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of an assignment.
#[derive(Debug, Clone, Serialize)]
pub struct AssignRecord {
    pub schema: u32,
    pub id: String,
    pub gyre: &'static str,
    pub pipeline: String,
    pub plan: String,
    /// The output whose models were used, and the run that made them.
    pub model: String,
    pub model_run: String,
    pub smoothing: f64,
    pub threads: usize,
    pub started: String,
    pub finished: String,
    pub seconds: BTreeMap<&'static str, f64>,
    pub peak_memory_bytes: Option<u64>,
    /// Input files by table.
    pub inputs: BTreeMap<String, Vec<InputFile>>,
    pub rows_read: u64,
    /// Rows that could not be an end of a transition, by reason.
    pub rows_dropped: BTreeMap<Cow<'static, str>, u64>,
    pub models: Vec<AssignedRecord>,
    pub failures: Vec<Failure>,
    /// Rows of each table.
    pub tables: BTreeMap<&'static str, u64>,
}

/// The new rows of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct AssignedRecord {
    pub partition: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    pub sources: usize,
    /// Sources that the model has not.
    pub new_sources: usize,
    pub targets: usize,
    /// Targets that the model has not, and the transitions to them.
    pub unseen_targets: usize,
    pub unseen_transitions: f64,
    pub transitions: f64,
    /// Nothing where the rows are pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectories: Option<usize>,
    pub fits: Vec<AssignedFitRecord>,
}

#[derive(Debug, Clone, Serialize)]
pub struct AssignedFitRecord {
    pub name: String,
    /// Sources without a set.
    pub without_set: usize,
    /// Over the transitions that are scored: those from a source with a set to a target that its set can reach.
    pub log_likelihood: f64,
    pub scored: f64,
    /// Transitions to which the model gives the probability 0.
    pub impossible: f64,
}

/// The text of a record whose tables are under `output`.
pub struct AssignSummary<'a> {
    pub record: &'a AssignRecord,
    pub output: &'a str,
}

impl Display for AssignSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let AssignSummary { record, output } = self;
        let transitions: f64 = record.models.iter().map(|m| m.transitions).sum();
        writeln!(
            f,
            "{}: {} transitions in {} rows, assigned by the model {}",
            record.pipeline,
            grouped(transitions),
            grouped(record.rows_read as f64),
            record.model
        )?;
        for (reason, rows) in &record.rows_dropped {
            writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
        }
        for model in record.models.iter().take(SHOWN) {
            writeln!(f)?;
            self::model(f, model)?;
        }
        if record.models.len() > SHOWN {
            let more = record.models.len() - SHOWN;
            writeln!(
                f,
                "\n… and {more} more, see {output}/runs/{}.json",
                record.id
            )?;
        }
        if !record.failures.is_empty() {
            let n = record.failures.len();
            writeln!(f, "\n{n} of {} failed:", n + record.models.len())?;
            for failure in record.failures.iter().take(SHOWN) {
                writeln!(f, "  {}: {}", failure.partition, failure.message)?;
            }
            if n > SHOWN {
                writeln!(
                    f,
                    "  … and {} more, see {output}/runs/{}.json",
                    n - SHOWN,
                    record.id
                )?;
            }
        }
        let stages = ["read model", "count", "assign", "score", "write"];
        let stages = stages.iter().filter_map(|stage| {
            let seconds = record.seconds.get(stage)?;
            Some(format!("{stage} {seconds:.2}"))
        });
        write!(f, "\nseconds: {}", stages.collect::<Vec<_>>().join(", "))?;
        if let Some(bytes) = record.peak_memory_bytes {
            write!(f, "; peak memory {} MB", bytes / 1_000_000)?;
        }
        let tables: Vec<&str> = record.tables.keys().copied().collect();
        write!(f, "\nwritten: {output} ({})", tables.join(", "))
    }
}

fn model(f: &mut Formatter<'_>, model: &AssignedRecord) -> Result {
    let partition = model.partition.iter();
    let mut parts: Vec<String> = partition.map(|(k, v)| format!("{k} {v}")).collect();
    parts.extend(model.lag.iter().map(|lag| format!("lag {lag}")));
    if !parts.is_empty() {
        write!(f, "{}: ", parts.join(", "))?;
    }
    let number = |n: usize| grouped(n as f64);
    write!(
        f,
        "{} transitions, {} sources ({} new), {} targets ({} unseen",
        grouped(model.transitions),
        number(model.sources),
        number(model.new_sources),
        number(model.targets),
        number(model.unseen_targets)
    )?;
    if model.unseen_targets > 0 {
        let share = 100.0 * model.unseen_transitions / model.transitions;
        let unseen = grouped(model.unseen_transitions);
        write!(f, " with {unseen} transitions, {share:.2} %")?;
    }
    write!(f, ")")?;
    if let Some(n) = model.trajectories {
        write!(f, ", {} trajectories", number(n))?;
    }
    let names = model.fits.iter().map(|fit| fit.name.chars().count());
    let width = names.max().unwrap_or(0).max(3);
    writeln!(
        f,
        "\n  {:width$}  {:>14}  {:>13}  {:>10}  {:>19}",
        "fit", "log-likelihood", "a transition", "impossible", "sources without set"
    )?;
    for fit in &model.fits {
        let mean = match fit.scored {
            0.0 => "none".to_string(),
            scored => format!("{:.4} nats", fit.log_likelihood / scored),
        };
        writeln!(
            f,
            "  {:width$}  {:>14.1}  {mean:>13}  {:>10}  {:>19}",
            fit.name,
            fit.log_likelihood,
            grouped(fit.impossible),
            number(fit.without_set)
        )?;
    }
    Ok(())
}
