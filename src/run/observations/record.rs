//! The record of a run of filters, and the summary that `gyre run` prints.

use crate::error::counted;
use crate::output::number::grouped;
use crate::output::tables::observations::{FilterOfModel, ObservationsModel};
use crate::plan::observations::ObservationsPlan;
use crate::run::kind;
use crate::run::observations::fit::FitTime;
use crate::run::observations::rows::RowsWritten;
use crate::run::summary::warnings;
use crate::run::trajectories::GapCounts;
use arrow::datatypes::Field;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// What the record says of the training rows.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    /// Training rows that the next row of their sequence follows, of all partitions; all training
    /// rows of a static problem.
    pub transitions: u64,
    /// Rows with a number of the observation, if no row has a state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
}

impl kind::Facts for Facts {
    const COUNTED: &'static str = "transition";
    const UNIT: &'static str = "training row";

    fn sum(&self) -> f64 {
        self.measured.unwrap_or(self.transitions) as f64
    }

    fn evidence(&self) -> String {
        let what = self.measured.map_or(Self::COUNTED, |_| "measured row");
        counted(grouped(self.sum()), what)
    }
}

/// The filters of one partition.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ObservationsModelRecord {
    /// Training rows with a state and an observation.
    pub training_rows: u64,
    /// Rows that were filtered.
    pub rows: u64,
    /// Filtered rows of which a number of the observation is missing.
    pub missing: u64,
    /// Those of them with other numbers, by the names of the missing ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing_numbers: BTreeMap<String, u64>,
    /// How filters came over gaps, if they go on through them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapCounts>,
    /// Trajectories that were filtered; rows, for a static problem.
    pub trajectories: u64,
    /// The columns of the state, if rows have one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// The columns of the observation.
    pub observation: Vec<String>,
    /// One entry per fit.
    pub fits: Vec<FilterRecord>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct FilterRecord {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: String,
    /// The form of kernel Bayes' rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The names of the numbers of the state, if no row has a state; else empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// Training rows that the next row of their sequence follows; all of them without time.
    pub transitions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bandwidth: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observation_bandwidth: Option<f64>,
    /// The regularisation of the prior.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// The regularisation of the posterior.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// The mean squared error of the means of training rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_mse: Option<f64>,
    /// The mean squared error of the means of test rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mse: Option<f64>,
    /// The mean squared error of the decoded states of test rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mse_decoded: Option<f64>,
    pub test_rows: u64,
    /// The mean log score of a row with an observation, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_log_score: Option<f64>,
    /// Rows with an observation that did not change the estimate.
    pub not_updated: u64,
    /// The mean objective of the rows, and the largest share above a minimum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_excess: Option<f64>,
    /// The mean distance of posteriors from supervision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervision_distance: Option<f64>,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
    /// Whether an earlier run had finished it. `seconds` is then the time to read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// The time of the fit, with the choice of its constants.
    pub seconds: f64,
    /// The time to filter the rows: the sum over threads, and over the tasks of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_seconds: Option<f64>,
    /// The same per filtered row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_seconds: Option<f64>,
}

impl ObservationsModelRecord {
    /// The record of the filters of a partition. `written` is None if no row was filtered, and
    /// `times` are those of the fits.
    pub(crate) fn of(
        model: &ObservationsModel,
        plan: &ObservationsPlan,
        training_rows: u64,
        written: Option<&RowsWritten>,
        times: &[FitTime],
    ) -> ObservationsModelRecord {
        let partition = model.partition as u32;
        let rows = written.and_then(|written| written.rows.get(&partition));
        let rows = rows.cloned().unwrap_or_default();
        let fits = model.fits.iter().zip(times).enumerate();
        let fits = fits.map(|(at, (fit, time))| {
            let filtering = written.and_then(|written| written.seconds.of(partition, at));
            FilterRecord::of(fit, *time, filtering, rows.rows)
        });
        ObservationsModelRecord {
            training_rows,
            rows: rows.rows,
            missing: rows.missing.rows(),
            missing_numbers: rows.missing.by_name(&plan.layout.observation),
            gaps: plan.layout.bridges().then_some(rows.gaps),
            trajectories: rows.trajectories,
            state: names(&plan.layout.state),
            observation: names(&plan.layout.observation),
            fits: fits.collect(),
        }
    }
}

fn names(fields: &[Field]) -> Vec<String> {
    fields.iter().map(|field| field.name().clone()).collect()
}

impl FilterRecord {
    /// `filtering` is the time to filter `rows` rows, in seconds.
    fn of(fit: &FilterOfModel, time: FitTime, filtering: Option<f64>, rows: u64) -> FilterRecord {
        let (numbers, scores) = (&fit.model.numbers, &fit.model.scores);
        FilterRecord {
            name: fit.name.clone(),
            method: fit.method.clone(),
            rule: fit.model.rule.clone(),
            state: fit.model.state.clone(),
            transitions: numbers.transitions,
            state_bandwidth: numbers.state_bandwidth,
            observation_bandwidth: numbers.observation_bandwidth,
            lambda: numbers.lambda,
            delta: numbers.delta,
            train_mse: scores.train_mse,
            test_mse: scores.test_mse,
            test_mse_decoded: scores.test_mse_decoded,
            test_rows: scores.test_rows,
            mean_log_score: scores.mean_log_score,
            not_updated: scores.not_updated,
            objective: scores.objective,
            objective_excess: scores.objective_excess,
            supervision_distance: scores.supervision_distance,
            warnings: fit.warnings.clone(),
            resumed: time.resumed,
            seconds: time.seconds,
            filter_seconds: filtering,
            row_seconds: filtering.filter(|_| rows > 0).map(|own| own / rows as f64),
        }
    }
}

impl Display for ObservationsModelRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // Without known states, nothing is fitted.
        if self.fits.iter().any(|own| own.state.is_empty()) {
            let rows = counted(grouped(self.training_rows as f64), "row");
            write!(f, "fitted to {rows}; ")?;
        }
        write!(f, "filtered {}", counted(grouped(self.rows as f64), "row"))?;
        missing(f, self.missing, &self.missing_numbers)?;
        writeln!(f)?;
        if let Some(gaps) = &self.gaps {
            gaps.write(f)?;
        }
        let partial: u64 = self.missing_numbers.values().sum();
        for own in &self.fits {
            fit(f, own)?;
            if own.rule.is_some() && partial > 0 {
                let rows = counted(grouped(partial as f64), "row");
                writeln!(
                    f,
                    "    predicted through {rows} with a part of an observation: kernels compare whole ones"
                )?;
            }
        }
        Ok(())
    }
}

/// At most this number of forms of an observation is named.
const SHOWN: usize = 6;

/// Writes how many rows lack which numbers of their observation. `numbers` has the rows that have
/// others.
pub(super) fn missing(f: &mut Formatter<'_>, all: u64, numbers: &BTreeMap<String, u64>) -> Result {
    if all == 0 {
        return Ok(());
    }
    let rows = counted(grouped(all as f64), "row");
    if numbers.is_empty() {
        return write!(f, ", {rows} without an observation");
    }
    write!(f, ", {rows} without a whole observation (")?;
    let partial: u64 = numbers.values().sum();
    let mut shown: Vec<(&str, u64)> = numbers
        .iter()
        .map(|(n, rows)| (n.as_str(), *rows))
        .collect();
    // The most frequent ones, in the order of their names if they are equally so.
    shown.sort_by_key(|(_, rows)| Reverse(*rows));
    let rest: u64 = shown.iter().skip(SHOWN).map(|(_, rows)| rows).sum();
    shown.truncate(SHOWN);
    let mut parts: Vec<String> = shown
        .into_iter()
        .map(|(names, rows)| format!("{} without {names}", grouped(rows as f64)))
        .collect();
    if rest > 0 {
        parts.push(format!("{} without other numbers", grouped(rest as f64)));
    }
    if all > partial {
        parts.push(format!(
            "{} without any number",
            grouped((all - partial) as f64)
        ));
    }
    write!(f, "{})", parts.join(", "))
}

/// Writes the lines of one filter.
fn fit(f: &mut Formatter<'_>, fit: &FilterRecord) -> Result {
    let method = fit.rule.as_ref().unwrap_or(&fit.method);
    write!(f, "  {}  {method}", fit.name)?;
    if let Some(mse) = fit.test_mse {
        write!(f, ", test MSE {mse:.5}")?;
        if let Some(decoded) = fit.test_mse_decoded {
            write!(f, " (decoded {decoded:.5})")?;
        }
    } else if let Some(mse) = fit.train_mse {
        write!(f, ", MSE {mse:.5} of training rows")?;
    }
    if let Some(mean) = fit.mean_log_score {
        write!(f, ", log score {mean:.4} per row")?;
    }
    writeln!(f)?;
    if let (Some(state), Some(observation), Some(lambda), Some(delta)) = (
        fit.state_bandwidth,
        fit.observation_bandwidth,
        fit.lambda,
        fit.delta,
    ) {
        writeln!(
            f,
            "    {}; bandwidths {state:.4} and {observation:.4}, λ {lambda}, δ {delta}",
            counted(grouped(fit.transitions as f64), "training row")
        )?;
    }
    if fit.not_updated > 0 {
        let rows = counted(grouped(fit.not_updated as f64), "observation");
        writeln!(f, "    {rows} did not change the estimate")?;
    }
    if let Some(objective) = fit.objective {
        write!(f, "    objective {objective:.5}")?;
        if let Some(excess) = fit.objective_excess {
            write!(f, ", a share of {excess:.1e} above its minimum")?;
        }
        writeln!(f)?;
    }
    write!(f, "    seconds: fit {:.2}", fit.seconds)?;
    if let (Some(all), Some(row)) = (fit.filter_seconds, fit.row_seconds) {
        write!(f, ", rows {all:.2}, {row:.1e} per row")?;
    }
    writeln!(f)?;
    warnings(f, &fit.warnings)
}
