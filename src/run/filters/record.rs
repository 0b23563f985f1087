//! The record of a run of filters, and the summary that `gyre run` prints.

use crate::error::{counted, escaped};
use crate::output::number::grouped;
use crate::output::tables::filters::{FiltersModel, FittedFilter};
use crate::run::filters::rows::PartitionRows;
use crate::run::record::{CheckRecord, Head, record};
use crate::run::summary;
use crate::run::summary::SHOWN;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of a run of filters.
#[derive(Debug, Clone, Serialize)]
pub struct FiltersRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// Training rows that the next row of their sequence follows, of all partitions; all training
    /// rows of a static problem.
    pub transitions: u64,
    /// Bytes per output table.
    pub table_bytes: BTreeMap<&'static str, u64>,
    /// The checks that were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckRecord>,
    /// One entry per partition.
    pub models: Vec<FiltersModelRecord>,
    /// Partitions without training rows, which have no model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<String>,
    /// Fits of a run that did not end.
    #[serde(skip_serializing_if = "is_zero")]
    pub resumed: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

record!(FiltersRecord);

impl FiltersRecord {
    /// Begins the record of a run.
    pub(crate) fn new(head: Head) -> FiltersRecord {
        FiltersRecord {
            head,
            transitions: 0,
            table_bytes: BTreeMap::new(),
            checks: Vec::new(),
            models: Vec::new(),
            empty: Vec::new(),
            resumed: 0,
        }
    }

    /// Rows and bytes of all tables.
    pub(crate) fn written(&self) -> (u64, u64) {
        let (rows, bytes) = (self.head.tables.values(), self.table_bytes.values());
        (rows.sum(), bytes.sum())
    }
}

/// The filters of one partition.
#[derive(Debug, Clone, Serialize)]
pub struct FiltersModelRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// Training rows with a state and an observation.
    pub training_rows: u64,
    /// Rows that were filtered.
    pub rows: u64,
    /// Filtered rows without an observation.
    pub missing: u64,
    /// Trajectories that were filtered; rows, for a static problem.
    pub trajectories: u64,
    /// One entry per fit.
    pub fits: Vec<FilterRecord>,
}

/// One filter.
#[derive(Debug, Clone, Serialize)]
pub struct FilterRecord {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: String,
    /// The form of kernel Bayes' rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Training rows that the next row of their sequence follows; all of them without time.
    pub transitions: usize,
    /// The bandwidth of the states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bandwidth: Option<f64>,
    /// The bandwidth of the observations.
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
    /// The same of the decoded states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mse_decoded: Option<f64>,
    /// Test rows.
    pub test_rows: u64,
    /// The mean log score of a row with an observation, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_log_score: Option<f64>,
    /// Rows with an observation that did not change the estimate.
    pub not_updated: u64,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

impl FiltersModelRecord {
    /// The record of the filters of a partition with these values of the partition columns.
    pub(crate) fn of(
        values: BTreeMap<String, String>,
        model: &FiltersModel,
        training_rows: u64,
        rows: PartitionRows,
    ) -> FiltersModelRecord {
        FiltersModelRecord {
            partition: values,
            training_rows,
            rows: rows.rows,
            missing: rows.missing,
            trajectories: rows.trajectories,
            fits: model.fits.iter().map(FilterRecord::of).collect(),
        }
    }
}

impl FilterRecord {
    fn of(fit: &FittedFilter) -> FilterRecord {
        let (numbers, scores) = (&fit.numbers, &fit.scores);
        FilterRecord {
            name: fit.name.clone(),
            method: fit.method.clone(),
            rule: fit.rule.clone(),
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
            warnings: fit.warnings.clone(),
        }
    }
}

/// The summary of a run of filters.
pub struct FiltersSummary<'a> {
    /// The record of the run.
    pub record: &'a FiltersRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for FiltersSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let FiltersSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        writeln!(
            f,
            "{}: {} in {}",
            head.pipeline,
            counted(grouped(record.transitions as f64), "transition"),
            counted(grouped(head.rows_read as f64), "row")
        )?;
        for (reason, rows) in &head.rows_dropped {
            writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
        }
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            self::model(f, model)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        if !record.empty.is_empty() {
            let n = record.empty.len();
            let shown = record.empty.iter().take(SHOWN);
            let shown: Vec<&str> = shown.map(String::as_str).collect();
            writeln!(
                f,
                "\nwithout training rows: {} ({})",
                counted(n, "partition"),
                shown.join("; ")
            )?;
        }
        if record.resumed > 0 {
            let fits = counted(record.resumed, "fit");
            writeln!(f, "\ntaken from a run that did not end: {fits}")?;
        }
        summary::checks(f, &record.checks)?;
        let stages = ["read", "fit", "rows", "write", "check"];
        summary::end(f, head, models.len(), &stages, output)
    }
}

/// The values of partition columns, at the start of the lines of a model.
pub(crate) fn partition(f: &mut Formatter<'_>, values: &BTreeMap<String, String>) -> Result {
    let parts = values.iter();
    let parts = parts.map(|(name, value)| escaped(&format!("{name} {value}")));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        return Ok(());
    }
    write!(f, "{}: ", parts.join(", "))
}

/// Writes the lines of one model.
fn model(f: &mut Formatter<'_>, model: &FiltersModelRecord) -> Result {
    partition(f, &model.partition)?;
    write!(
        f,
        "fitted to {}; filtered {}",
        counted(grouped(model.training_rows as f64), "row"),
        counted(grouped(model.rows as f64), "row")
    )?;
    if model.missing > 0 {
        let missing = counted(grouped(model.missing as f64), "row");
        write!(f, ", {missing} without an observation")?;
    }
    writeln!(f)?;
    model.fits.iter().try_for_each(|own| fit(f, own))
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
    for warning in &fit.warnings {
        writeln!(f, "    warning: {}", escaped(warning))?;
    }
    Ok(())
}
