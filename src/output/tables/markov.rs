//! Markov tests → the tables `timescales` and `chapman_kolmogorov`.

use crate::assess::markov::Comparison;
use crate::output::tables::columns::{beside, text};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{ArrayRef, Float64Array, Int32Array, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

/// The columns of `timescales` after the keys `fit` and `index`.
pub(crate) fn timescale_fields() -> [Field; 5] {
    let number = |name, nullable| Field::new(name, DataType::Float64, nullable);
    [
        number("eigenvalue_real", false),
        number("eigenvalue_imaginary", false),
        number("timescale", true),
        number("low", true),
        number("high", true),
    ]
}

/// The columns of `chapman_kolmogorov` after its keys.
pub(crate) fn comparison_fields() -> [Field; 2] {
    ["predicted", "estimated"].map(|name| Field::new(name, DataType::Float64, true))
}

pub(crate) fn timescales(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = beside(names, &model.markov);
    let rows = || {
        fits.iter().flat_map(|(columns, markov)| {
            let timescales = markov.timescales.iter().zip(&markov.intervals);
            let timescales = timescales.enumerate();
            timescales.map(move |(at, (t, interval))| (*columns, at, interval, t))
        })
    };
    let end = |at: usize| -> ArrayRef {
        let ends = rows().map(|(_, _, interval, _)| interval[at]);
        Arc::new(ends.collect::<Float64Array>())
    };
    vec![
        text(rows().map(|(columns, ..)| columns.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(_, at, ..)| at as u32),
        )),
        Arc::new(Float64Array::from_iter_values(rows().map(|(.., t)| t.re))),
        Arc::new(Float64Array::from_iter_values(rows().map(|(.., t)| t.im))),
        Arc::new(rows().map(|(.., t)| t.timescale).collect::<Float64Array>()),
        end(0),
        end(1),
    ]
}

/// The rows of `chapman_kolmogorov`: those of one comparison in the order of its matrices.
pub(crate) fn comparisons(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = beside(names, &model.markov);
    let rows = || {
        fits.iter().flat_map(|(columns, markov)| {
            markov.comparisons.iter().flat_map(move |c: &Comparison| {
                (0..c.predicted.len()).map(move |at| (*columns, c, at))
            })
        })
    };
    let sets = |get: fn(usize, usize) -> usize| -> ArrayRef {
        let places = rows().map(|(_, c, at)| get(at, c.predicted.len().isqrt()) as i32);
        Arc::new(Int32Array::from_iter_values(places))
    };
    vec![
        text(rows().map(|(columns, ..)| columns.name.as_str())),
        Arc::new(UInt64Array::from_iter_values(
            rows().map(|(_, c, _)| c.steps),
        )),
        sets(|at, rank| at / rank),
        sets(|at, rank| at % rank),
        Arc::new(
            rows()
                .map(|(_, c, at)| c.predicted[at])
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows()
                .map(|(_, c, at)| c.estimated[at])
                .collect::<Float64Array>(),
        ),
    ]
}
