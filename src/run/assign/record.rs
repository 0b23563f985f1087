//! The record of an assignment, and the summary that `gyre assign` prints.

use crate::error::{counted, escaped};
use crate::output::number::grouped;
use crate::run::record::Head;
use crate::run::summary;
use crate::run::summary::SHOWN;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of an assignment.
#[derive(Debug, Clone, Serialize)]
pub struct AssignRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// The output with the models.
    pub model: String,
    /// The run that made the models.
    pub model_run: String,
    /// [`AssignOptions::smoothing`](super::AssignOptions::smoothing), in transitions.
    pub smoothing: f64,
    /// One entry per partition and lag.
    pub models: Vec<AssignedRecord>,
}

/// The new rows of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct AssignedRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// The lag, unless the rows are pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// The number of sources in the new rows.
    pub sources: usize,
    /// Sources that the model does not have.
    pub new_sources: usize,
    /// The number of targets in the new rows.
    pub targets: usize,
    /// Targets that the model does not have.
    pub unseen_targets: usize,
    /// Transitions to targets that the model does not have.
    pub unseen_transitions: f64,
    /// The sum of the counts.
    pub transitions: f64,
    /// The number of trajectories. None for pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectories: Option<usize>,
    /// One entry per fit of the model.
    pub fits: Vec<AssignedFitRecord>,
}

/// What one fit says of the new rows.
#[derive(Debug, Clone, Serialize)]
pub struct AssignedFitRecord {
    /// The name of the fit.
    pub name: String,
    /// Sources without a set.
    pub without_set: usize,
    /// The log-likelihood of the scored transitions, in nats.
    pub log_likelihood: f64,
    /// Scored transitions: those from a source with a set to a target that this set can reach.
    pub scored: f64,
    /// Transitions with probability 0 in the model.
    pub impossible: f64,
}

/// The summary of an assignment.
pub struct AssignSummary<'a> {
    /// The record of the assignment.
    pub record: &'a AssignRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for AssignSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let AssignSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        let transitions: f64 = models.iter().map(|m| m.transitions).sum();
        let by = format!(", assigned by the model {}", record.model);
        let evidence = counted(grouped(transitions), "transition");
        summary::begin(f, head, &evidence, &by)?;
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            self::model(f, model)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        let stages = ["read model", "count", "assign", "score", "write"];
        summary::end(f, head, models.len(), &stages, output)
    }
}

/// Writes the lines of one model.
fn model(f: &mut Formatter<'_>, model: &AssignedRecord) -> Result {
    let partition = model.partition.iter();
    let mut parts: Vec<String> = partition
        .map(|(k, v)| escaped(&format!("{k} {v}")))
        .collect();
    parts.extend(model.lag.iter().map(|lag| format!("lag {lag}")));
    if !parts.is_empty() {
        write!(f, "{}: ", parts.join(", "))?;
    }
    let number = |n: usize| grouped(n as f64);
    write!(
        f,
        "{}, {} ({} new), {} ({} unseen",
        counted(grouped(model.transitions), "transition"),
        counted(number(model.sources), "source"),
        number(model.new_sources),
        counted(number(model.targets), "target"),
        number(model.unseen_targets)
    )?;
    if model.unseen_targets > 0 {
        let share = 100.0 * model.unseen_transitions / model.transitions;
        let unseen = counted(grouped(model.unseen_transitions), "transition");
        write!(f, " with {unseen}, {share:.2} %")?;
    }
    write!(f, ")")?;
    if let Some(n) = model.trajectories {
        write!(f, ", {}", counted(number(n), "trajectory"))?;
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
