//! The tables of a run of filters. `trajectories`, `estimates` and `posteriors` are written row by
//! row.

use crate::assess::fit_of_model::FitOfModel;
use crate::methods::filter::model::{Factor, Numbers, Tuned};
use crate::output::tables::certificates;
use crate::output::tables::columns::{Columns, Placed, TableColumns, of_fits, own_rows};
use crate::output::tables::run_schema::{
    RunSchema, nullable, optional, required, vector, with_prefix,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The names of the tables of a run of filters, in the order in which they are written.
/// `trajectories`, `estimates` and `posteriors` follow them.
pub(crate) const TABLES: [&str; 4] = ["fits", "tuning", FACTORS, "certificates"];

/// The tables that no later command reads, so that a run may leave them out.
pub(crate) const OPTIONAL: [&str; 2] = ["tuning", "certificates"];

/// The table with one row per row of a matrix of a model.
pub(crate) const FACTORS: &str = "factors";

/// The table with one row per fit and number of a row in its trajectory.
pub(crate) const ERRORS: &str = "errors";

/// The table with one row per trajectory.
pub(crate) const TRAJECTORIES: &str = "trajectories";

/// The table with one row per row of the input that is filtered.
pub(crate) const ESTIMATES: &str = "estimates";

/// The table with one row per row of a static problem and training row with a weight.
pub(crate) const POSTERIORS: &str = "posteriors";

/// The filters of one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ObservationsModel {
    /// The index of the partition.
    pub partition: usize,
    /// In the order of the plan.
    pub fits: Vec<FilterOfModel>,
}

/// What is known of a filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FittedFilter {
    /// The form of kernel Bayes' rule.
    pub rule: Option<String>,
    /// The names of the numbers of the state, if no row has a state; else empty.
    pub state: Vec<String>,
    /// The numbers of the model.
    pub numbers: Numbers,
    /// The matrices of the model.
    pub factors: Vec<Factor>,
    /// The bandwidths and constants that were compared.
    pub tuning: Vec<Tuned>,
    /// The scores of the rows that were filtered.
    pub scores: FilterScores,
    /// Errors by step, if they are written.
    pub errors: Vec<StepErrors>,
}

/// Squared errors of the test rows with the same number in their trajectories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepErrors {
    /// Rows with a known state.
    pub rows: u64,
    /// The sum of the squared errors of the means.
    pub squares: f64,
    /// The same of the decoded states.
    pub squares_decoded: f64,
}

impl StepErrors {
    pub(crate) fn add(&mut self, other: &StepErrors) {
        self.rows += other.rows;
        self.squares += other.squares;
        self.squares_decoded += other.squares_decoded;
    }

    /// The mean of a sum over the rows.
    fn mean(&self, sum: f64) -> Option<f64> {
        (self.rows > 0).then(|| sum / self.rows as f64)
    }
}

/// A fit of a filter.
pub(crate) type FilterOfModel = FitOfModel<FittedFilter>;

/// The scores of the rows that a filter filtered. A squared error is the squared distance between
/// an estimate and the known state: the sum over their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FilterScores {
    /// The mean squared error of the means of training rows. None if no training row was filtered.
    pub train_mse: Option<f64>,
    /// The same of the decoded states.
    pub train_mse_decoded: Option<f64>,
    /// The mean squared error of the means of test rows with a known state.
    pub test_mse: Option<f64>,
    /// The same of the decoded states.
    pub test_mse_decoded: Option<f64>,
    /// The number of test rows.
    pub test_rows: u64,
    /// The mean log score of the rows with an observation: of the test rows, if there are some,
    /// else of all filtered rows.
    pub mean_log_score: Option<f64>,
    /// The number of filtered rows with an observation that did not change the estimate.
    pub not_updated: u64,
    /// The mean objective of the same rows as `mean_log_score`, of those that have one.
    pub objective: Option<f64>,
    /// The largest share of an objective that is above its minimum, of all filtered rows.
    pub objective_excess: Option<f64>,
    /// The mean distance of posteriors from supervision, of the same rows as `objective`.
    pub supervision_distance: Option<f64>,
}

/// What the columns of a fit depend on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FilterColumns {
    /// The name of the fit.
    pub name: String,
    /// Whether rows have weights of training rows.
    pub has_weights: bool,
    /// The columns of objectives.
    pub objectives: &'static [&'static str],
    /// The names of the numbers of its state, if no row has a state; else empty.
    pub state: Vec<String>,
}

impl FilterColumns {
    /// Numbers per state. A state of the rows has `width`.
    pub(crate) fn width(&self, width: usize) -> usize {
        if self.state.is_empty() {
            width
        } else {
            self.state.len()
        }
    }
}

/// Which columns the table `fits` has beside those of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct OwnColumns {
    /// Whether a fit has objectives of rows.
    pub objectives: bool,
    /// Whether the numbers of states have names of the fits, because no row has a state.
    pub state: bool,
}

/// The columns of a row of the input in the tables of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterRowColumns<'a> {
    /// The columns that identify a trajectory, or a row without time.
    pub key: &'a [Field],
    /// The time of a row.
    pub time: Option<&'a Field>,
    /// The column with `train`, `test` or null.
    pub split: Option<&'a Field>,
    /// Whether states of rows can be known.
    pub has_state: bool,
}

/// The column of the table `estimates` with the known states.
pub(crate) const KNOWN_STATE: &str = "known_state";

impl FilterRowColumns<'_> {
    /// The columns of a row: key, time, split.
    fn of_row(&self) -> Vec<Field> {
        let mut fields: Vec<Field> = self.key.iter().chain(self.time).map(required).collect();
        fields.extend(self.split.map(nullable));
        fields
    }
}

/// The schema of the table `estimates`: partition, trajectory and time or `id`, split,
/// `known_state` (null for rows without one) if the input has a state, and for each fit:
/// - `<fit>_mean`: the mean of the state, in the order of its columns; without such columns, in
///   that of the names of the fit.
/// - `<fit>_variance`: the variances of its numbers.
/// - `<fit>_decoded`: the state by `decode`.
/// - `<fit>_log_score`: the natural logarithm of the density of the observation, given the rows
///   before it. Null for a row without an observation.
/// - `<fit>_weight_sum`: the sum of the weights of the training rows. Only for `kernel_bayes`.
/// - `<fit>_positive_share`: the share of the prior weights that are positive. Only for
///   `kernel_bayes`.
/// - `<fit>_objective`, `<fit>_objective_excess`, `<fit>_supervision_distance`: with `objective`.
/// - `<fit>_was_updated`: whether the observation changed the estimate.
pub(crate) fn estimates_schema(
    run: &RunSchema,
    rows: FilterRowColumns<'_>,
    width: usize,
    fits: &[FilterColumns],
) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(rows.of_row());
    if rows.has_state {
        fields.push(optional(KNOWN_STATE, vector(width)));
    }
    for fit in fits {
        let name = &fit.name;
        let state = vector(fit.width(width));
        for what in ["mean", "variance", "decoded"] {
            fields.push(optional(format!("{name}_{what}"), state.clone()));
        }
        let numbers = ["log_score", "weight_sum", "positive_share"];
        let numbers = &numbers[..if fit.has_weights { 3 } else { 1 }];
        for what in numbers.iter().chain(fit.objectives) {
            fields.push(optional(format!("{name}_{what}"), DataType::Float64));
        }
        fields.push(optional(format!("{name}_was_updated"), DataType::Boolean));
    }
    Arc::new(Schema::new(fields))
}

/// The schema of the table `trajectories`: partition, trajectory, split, the number of filtered
/// rows and of those of which a number of the observation is missing, and for each fit the sum and
/// the mean of the log scores, the number of rows with an observation that did not change the
/// estimate, and the mean squared errors of the means and of the decoded states, over the rows
/// whose state is known. A trajectory has one row per value of the split.
pub(crate) fn trajectories_schema(
    run: &RunSchema,
    rows: FilterRowColumns<'_>,
    fits: &[FilterColumns],
) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(rows.key.iter().map(required));
    fields.extend(rows.split.map(nullable));
    fields.push(Field::new("rows", DataType::UInt64, false));
    fields.push(Field::new("missing", DataType::UInt64, false));
    for fit in fits {
        let name = &fit.name;
        for (what, data_type) in [
            ("log_score", DataType::Float64),
            ("mean_log_score", DataType::Float64),
            ("not_updated", DataType::UInt64),
            ("mse", DataType::Float64),
            ("mse_decoded", DataType::Float64),
        ] {
            fields.push(optional(format!("{name}_{what}"), data_type));
        }
    }
    Arc::new(Schema::new(fields))
}

/// The schema of the table `posteriors`: partition, `id` columns of a row, fit, `id` columns of a
/// training row with the prefix `training_`, and its weight. Weights that are 0 have no row.
pub(crate) fn posteriors_schema(run: &RunSchema, rows: FilterRowColumns<'_>) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(rows.key.iter().map(required));
    fields.push(Field::new("fit", DataType::Utf8, false));
    let training: Vec<Field> = rows.key.iter().map(required).collect();
    fields.extend(with_prefix(&training, "training"));
    fields.push(Field::new("weight", DataType::Float64, false));
    Arc::new(Schema::new(fields))
}

impl ObservationsModel {
    fn fits(&self) -> &[FilterOfModel] {
        &self.fits
    }
}

impl Placed for ObservationsModel {
    fn place(&self) -> (usize, usize) {
        (self.partition, 0)
    }
}

/// The columns of a table.
pub(crate) fn columns<'a>(table: &str, own: OwnColumns) -> TableColumns<'a, ObservationsModel> {
    match table {
        "fits" => fits(own),
        "tuning" => tuning(),
        FACTORS => factors(),
        ERRORS => errors(),
        _ => certificates::of_fits(ObservationsModel::fits),
    }
}

fn size(of: usize) -> u64 {
    of as u64
}

/// A number that is not NaN.
fn known(number: f64) -> Option<f64> {
    Some(number).filter(|number| !number.is_nan())
}

/// One row per fit.
fn fits<'a>(own: OwnColumns) -> TableColumns<'a, ObservationsModel> {
    let numbers = |fit: &'a FilterOfModel| [(&fit.model.numbers, &fit.model.scores)];
    let columns = of_fits(ObservationsModel::fits, numbers)
        .column("method", |(fit, _)| fit.method.as_str())
        // The form of kernel Bayes' rule.
        .column("rule", |(fit, _)| fit.model.rule.as_deref());
    let columns = if own.state {
        // The names of the numbers of the estimates, in their order.
        columns.column("state", |(fit, _)| fit.model.state.clone())
    } else {
        columns
    };
    let columns = columns
        // Training rows that the next row of their sequence follows; all of them without time.
        .column("transitions", |(_, (n, _))| n.transitions as u64)
        // In the units of the columns.
        .column("state_bandwidth", |(_, (n, _))| {
            n.state_bandwidth.and_then(known)
        })
        .column("observation_bandwidth", |(_, (n, _))| {
            n.observation_bandwidth.and_then(known)
        })
        // The regularisation of the prior and of the posterior, and the weight of supervision.
        .column("lambda", |(_, (n, _))| n.lambda)
        .column("delta", |(_, (n, _))| n.delta)
        .column("mu", |(_, (n, _))| n.mu)
        // The ranks of kernel matrices that are approximated, and the traces of their errors as
        // shares of their traces.
        .part("state_rank", |(_, (n, _))| n.state_rank, size)
        .part("observation_rank", |(_, (n, _))| n.observation_rank, size)
        .column("state_trace_residual", |(_, (n, _))| n.state_trace_residual)
        .column("observation_trace_residual", |(_, (n, _))| {
            n.observation_trace_residual
        })
        // Training rows whose weights are computed, if they are not all.
        .part("landmarks", |(_, (n, _))| n.landmarks, size)
        // Mean squared errors of the means and of the decoded states.
        .column("train_mse", |(_, (_, s))| s.train_mse)
        .column("train_mse_decoded", |(_, (_, s))| s.train_mse_decoded)
        .column("test_mse", |(_, (_, s))| s.test_mse)
        .column("test_mse_decoded", |(_, (_, s))| s.test_mse_decoded)
        .column("test_rows", |(_, (_, s))| s.test_rows)
        // In nats per row with an observation.
        .column("mean_log_score", |(_, (_, s))| s.mean_log_score)
        // Rows with an observation that did not change the estimate.
        .column("not_updated", |(_, (_, s))| s.not_updated);
    let columns = if own.objectives {
        columns
            .column("objective", |(_, (_, s))| s.objective)
            .column("objective_excess", |(_, (_, s))| s.objective_excess)
            .column("supervision_distance", |(_, (_, s))| s.supervision_distance)
    } else {
        columns
    };
    columns
        .column("warnings", |(fit, _)| fit.warnings.clone())
        .finish()
}

/// One row per candidate of a fit whose bandwidth or λ is chosen by held-out training rows.
fn tuning<'a>() -> TableColumns<'a, ObservationsModel> {
    of_fits(ObservationsModel::fits, |fit| {
        fit.model.tuning.iter().enumerate()
    })
    .key("candidate", |&(_, (at, _))| at as u32)
    .column("state_bandwidth", |(_, (_, of))| known(of.state_bandwidth))
    .column("observation_bandwidth", |(_, (_, of))| {
        known(of.observation_bandwidth)
    })
    .column("lambda", |(_, (_, of))| of.lambda)
    // The mean squared error of the means of training rows that were held out.
    .column("mse", |(_, (_, of))| known(of.mse))
    .column("mean_log_score", |(_, (_, of))| known(of.mean_log_score))
    .column("is_chosen", |(_, (_, of))| of.is_chosen)
    .finish()
}

/// The errors of a step, and of all steps so far.
struct StepRow {
    step: usize,
    own: StepErrors,
    so_far: StepErrors,
}

/// The rows of the errors of a fit.
fn steps(errors: &[StepErrors]) -> impl Iterator<Item = StepRow> {
    let mut so_far = StepErrors::default();
    errors.iter().enumerate().map(move |(step, own)| {
        so_far.add(own);
        StepRow {
            step,
            own: *own,
            so_far,
        }
    })
}

/// One row per fit and number of a test row in its trajectory.
fn errors<'a>() -> TableColumns<'a, ObservationsModel> {
    of_fits(ObservationsModel::fits, |fit: &'a FilterOfModel| {
        steps(&fit.model.errors)
    })
    .key("step", |(_, row)| row.step as u32)
    // Mean squared errors of the means and of the decoded states.
    .column("mse", |(_, row)| row.own.mean(row.own.squares))
    .column("mse_decoded", |(_, row)| {
        row.own.mean(row.own.squares_decoded)
    })
    // The same over the rows of this step and of those before it.
    .column("running_mse", |(_, row)| {
        row.so_far.mean(row.so_far.squares)
    })
    .column("running_mse_decoded", |(_, row)| {
        row.so_far.mean(row.so_far.squares_decoded)
    })
    // Rows of this step with a known state.
    .column("rows", |(_, row)| row.own.rows)
    .finish()
}

/// A row of a matrix of a model.
struct FactorRow<'a> {
    fit: &'a str,
    factor: &'a str,
    i: usize,
    values: &'a [f64],
}

/// The number of rows of a matrix.
fn height(factor: &Factor) -> usize {
    factor.values.len() / factor.width.max(1)
}

/// The matrices of a model, by fit and name.
fn matrices(model: &ObservationsModel) -> Vec<(&str, &Factor)> {
    let mut all = Vec::new();
    for fit in FilterOfModel::by_name(&model.fits) {
        let mut own: Vec<&Factor> = fit.model.factors.iter().collect();
        own.sort_by_key(|factor| factor.name.as_str());
        all.extend(own.into_iter().map(|factor| (fit.name.as_str(), factor)));
    }
    all
}

/// One row per row of a matrix of a model.
fn factors<'a>() -> TableColumns<'a, ObservationsModel> {
    let len = |model: &ObservationsModel| {
        let fits = model.fits.iter().flat_map(|fit| &fit.model.factors);
        fits.map(height).sum()
    };
    fn entries(model: &ObservationsModel, rows: Range<usize>) -> Vec<FactorRow<'_>> {
        let mut entries = Vec::with_capacity(rows.len());
        let mut first = 0;
        for (fit, factor) in matrices(model) {
            let n = height(factor);
            let own = own_rows(&rows, first, n);
            first += n;
            entries.extend(own.map(|i| FactorRow {
                fit,
                factor: &factor.name,
                i,
                values: &factor.values[i * factor.width..][..factor.width],
            }));
        }
        entries
    }
    Columns::in_pieces(len, entries)
        .key("fit", |row: &FactorRow<'_>| row.fit)
        .key("factor", |row| row.factor)
        .key("i", |row| row.i as u32)
        .column("values", |row| row.values.to_vec())
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::output::tables::run_schema::LagColumn;
    use arrow::array::{ArrayRef, Int32Array, RecordBatch};
    use arrow::util::pretty::pretty_format_batches;

    fn run() -> RunSchema {
        let years: ArrayRef = Arc::new(Int32Array::from(vec![2001, 2002]));
        let year = Field::new("year", DataType::Int32, true);
        RunSchema::of_models(&[year], vec![years], LagColumn::None)
    }

    fn fitted(name: &str, factors: &[(&str, usize, Vec<f64>)]) -> FilterOfModel {
        let factor = |(name, width, values): &(&str, usize, Vec<f64>)| Factor {
            name: name.to_string(),
            width: *width,
            values: values.clone(),
        };
        let model = FittedFilter {
            rule: Some("pkbr".into()),
            state: Vec::new(),
            numbers: Numbers {
                transitions: 3,
                state_bandwidth: Some(f64::NAN),
                lambda: Some(0.5),
                ..Numbers::default()
            },
            factors: factors.iter().map(factor).collect(),
            tuning: vec![Tuned {
                state_bandwidth: 1.0,
                observation_bandwidth: 2.0,
                lambda: 0.5,
                mse: 0.25,
                mean_log_score: f64::NAN,
                is_chosen: true,
            }],
            scores: FilterScores::default(),
            errors: vec![
                StepErrors {
                    rows: 2,
                    squares: 3.0,
                    squares_decoded: 1.0,
                },
                StepErrors::default(),
                StepErrors {
                    rows: 1,
                    squares: 0.0,
                    squares_decoded: 2.0,
                },
            ],
        };
        FilterOfModel {
            name: name.into(),
            method: "kernel_bayes".into(),
            model,
            certificates: Vec::new(),
            bootstrap: None,
            warnings: Vec::new(),
        }
    }

    fn model() -> ObservationsModel {
        let first = [
            ("states", 2, vec![1.0, 2.0, 3.0, 4.0]),
            ("mean", 1, vec![5.0]),
        ];
        ObservationsModel {
            partition: 1,
            fits: vec![fitted("b", &first), fitted("a", &[("F", 1, vec![6.0])])],
        }
    }

    #[test]
    fn factors_are_ordered_by_fit_and_name_in_pieces_of_any_size() {
        let (run, model) = (run(), model());
        let table = columns(FACTORS, OwnColumns::default());
        assert_eq!(table.len(&model), 4);
        let rows = |piece| table.batch(&run, FACTORS, &[(&model, piece)]);
        let whole = rows(0..4).expect("rows");
        let expected = "\
+------+-----+--------+---+------------+
| year | fit | factor | i | values     |
+------+-----+--------+---+------------+
| 2002 | a   | F      | 0 | [6.0]      |
| 2002 | b   | mean   | 0 | [5.0]      |
| 2002 | b   | states | 0 | [1.0, 2.0] |
| 2002 | b   | states | 1 | [3.0, 4.0] |
+------+-----+--------+---+------------+";
        let shown = pretty_format_batches(&[whole]).expect("text").to_string();
        assert_eq!(shown, expected);
        let pieces = [0..1, 1..3, 3..4].map(rows);
        let pieces: Vec<RecordBatch> = pieces.into_iter().collect::<Result<_>>().expect("rows");
        let shown = pretty_format_batches(&pieces).expect("text").to_string();
        assert_eq!(shown, expected);
    }

    /// The running error is over all rows so far, so a step with few rows counts little.
    #[test]
    fn errors_are_means_of_steps_and_of_all_rows_so_far() {
        let model = ObservationsModel {
            partition: 0,
            fits: vec![fitted("a", &[])],
        };
        let rows = columns(ERRORS, OwnColumns::default()).batch(&run(), ERRORS, &[(&model, 0..3)]);
        let expected = "\
+------+-----+------+-----+-------------+-------------+---------------------+------+
| year | fit | step | mse | mse_decoded | running_mse | running_mse_decoded | rows |
+------+-----+------+-----+-------------+-------------+---------------------+------+
| 2001 | a   | 0    | 1.5 | 0.5         | 1.5         | 0.5                 | 2    |
| 2001 | a   | 1    |     |             | 1.5         | 0.5                 | 0    |
| 2001 | a   | 2    | 0.0 | 2.0         | 1.0         | 1.0                 | 1    |
+------+-----+------+-----+-------------+-------------+---------------------+------+";
        let shown = pretty_format_batches(&[rows.expect("rows")]).expect("text");
        assert_eq!(shown.to_string(), expected);
    }

    #[test]
    fn numbers_that_are_not_known_are_null() {
        let (run, model) = (run(), model());
        let rows =
            |table| columns(table, OwnColumns::default()).batch(&run, table, &[(&model, 0..2)]);
        let fits = rows("fits").expect("rows");
        for (column, nulls) in [
            ("state_bandwidth", 2),
            ("lambda", 0),
            ("test_mse", 2),
            ("transitions", 0),
            ("not_updated", 0),
        ] {
            let column = fits.column_by_name(column).expect("a column");
            assert_eq!(column.null_count(), nulls);
        }
        let tuning = rows("tuning").expect("rows");
        let score = tuning.column_by_name("mean_log_score").expect("a column");
        assert_eq!(score.null_count(), 2);
    }

    #[test]
    fn rows_have_the_columns_of_their_fits() {
        let run = run();
        let key = [Field::new("ship", DataType::Utf8, true)];
        let (time, split) = (
            Field::new("t", DataType::Int64, true),
            Field::new("part", DataType::Utf8, true),
        );
        let rows = FilterRowColumns {
            key: &key,
            time: Some(&time),
            split: Some(&split),
            has_state: true,
        };
        let columns = |name: &str, has_weights| FilterColumns {
            name: name.into(),
            has_weights,
            objectives: if has_weights { &["objective"] } else { &[] },
            state: Vec::new(),
        };
        let fits = [columns("kb", true), columns("kf", false)];
        let names = |schema: SchemaRef| {
            let names = schema.fields().iter().map(|field| field.name().clone());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names(estimates_schema(&run, rows, 2, &fits)),
            "year ship t part known_state kb_mean kb_variance kb_decoded kb_log_score kb_weight_sum kb_positive_share kb_objective kb_was_updated kf_mean kf_variance kf_decoded kf_log_score kf_was_updated"
        );
        assert_eq!(
            names(trajectories_schema(&run, rows, &fits[1..])),
            "year ship part rows missing kf_log_score kf_mean_log_score kf_not_updated kf_mse kf_mse_decoded"
        );
        let rows = FilterRowColumns {
            time: None,
            has_state: false,
            ..rows
        };
        assert_eq!(
            names(estimates_schema(&run, rows, 2, &fits[1..])),
            "year ship part kf_mean kf_variance kf_decoded kf_log_score kf_was_updated"
        );
        assert_eq!(
            names(posteriors_schema(&run, rows)),
            "year ship fit training_ship weight"
        );
    }
}
