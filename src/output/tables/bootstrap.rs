//! Bootstraps → the rows of the table `bootstrap`: a row for each number of each fit.

use crate::assess::bootstrap::Number;
use crate::assess::interval::Spread;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{ArrayRef, Float64Array, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

type Part = (&'static str, fn(&Spread) -> f64);

const SPREAD: [Part; 4] = [
    ("mean", |s| s.mean),
    ("standard_error", |s| s.standard_error),
    ("low", |s| s.low),
    ("high", |s| s.high),
];

/// The columns after `fit` and `metric`.
pub(crate) fn fields() -> Vec<Field> {
    let number = |name| Field::new(name, DataType::Float64, true);
    let mut fields = vec![Field::new("index", DataType::UInt32, true), number("value")];
    fields.extend(SPREAD.map(|(name, _)| number(name)));
    fields.push(Field::new("resamples", DataType::UInt32, false));
    fields
}

pub(crate) fn columns(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let mut fits: Vec<_> = names.fits.iter().zip(&model.bootstraps).collect();
    fits.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let (mut of_fit, mut resamples) = (Vec::new(), Vec::new());
    let mut numbers: Vec<&Number> = Vec::new();
    for (columns, bootstrap) in fits {
        let n = bootstrap.numbers.len();
        of_fit.extend(std::iter::repeat_n(columns.name.as_str(), n));
        resamples.extend(std::iter::repeat_n(bootstrap.resamples as u32, n));
        numbers.extend(&bootstrap.numbers);
    }
    let metrics: Vec<&str> = numbers.iter().map(|number| number.metric).collect();
    let indices = numbers
        .iter()
        .map(|number| number.index.map(|at| at as u32));
    let values = numbers.iter().map(|number| number.value);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(of_fit)),
        Arc::new(StringArray::from(metrics)),
        Arc::new(indices.collect::<UInt32Array>()),
        Arc::new(values.collect::<Float64Array>()),
    ];
    for (_, part) in SPREAD {
        let parts = numbers
            .iter()
            .map(|number| number.spread.as_ref().map(part));
        columns.push(Arc::new(parts.collect::<Float64Array>()));
    }
    columns.push(Arc::new(UInt32Array::from(resamples)));
    columns
}
