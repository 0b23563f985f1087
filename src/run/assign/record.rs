//! The record of an assignment, and the text a person reads after it.

use crate::error::counted;
use crate::output::number::grouped;
use crate::read::rows::states::escaped;
use crate::run::record::Head;
use crate::run::summary;
use crate::run::summary::SHOWN;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of an assignment.
#[derive(Debug, Clone, Serialize)]
pub struct AssignRecord {
    #[serde(flatten)]
    pub head: Head,
    /// The output whose models were used, and the run that made them.
    pub model: String,
    pub model_run: String,
    pub smoothing: f64,
    pub models: Vec<AssignedRecord>,
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
        let (head, models) = (&record.head, &record.models);
        let transitions: f64 = models.iter().map(|m| m.transitions).sum();
        let by = format!(", assigned by the model {}", record.model);
        summary::begin(f, head, transitions, &by)?;
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

fn model(f: &mut Formatter<'_>, model: &AssignedRecord) -> Result {
    let partition = model.partition.iter();
    let mut parts: Vec<String> = partition
        .map(|(k, v)| format!("{k} {}", escaped(v)))
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
