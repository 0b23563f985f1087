//! The table `bootstrap`: one row per number of a fit.

use crate::assess::bootstrap::{Bootstrap, Number};
use crate::assess::interval::Spread;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

struct Row<'a> {
    fit: &'a str,
    bootstrap: &'a Bootstrap,
    number: &'a Number,
}

/// The columns of a spread.
pub(crate) const SPREAD: [(&str, fn(&Spread) -> f64); 4] = [
    ("mean", |s| s.mean),
    ("standard_error", |s| s.standard_error),
    // The ends of the percentile interval.
    ("low", |s| s.low),
    ("high", |s| s.high),
];

pub(crate) fn bootstrap<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.bootstraps).into_iter();
        fits.flat_map(|(columns, bootstrap)| {
            bootstrap.numbers.iter().map(|number| Row {
                fit: &columns.name,
                bootstrap,
                number,
            })
        })
        .collect()
    };
    Columns::of(rows)
        .key("fit", |r| r.fit)
        .key("metric", |r| r.number.metric.as_ref())
        // The index of a singular value or of a set, from 0.
        .column("index", |r| r.number.index.map(|at| at as u32))
        // The number of the fit to all transitions.
        .column("value", |r| r.number.value)
        .each(SPREAD, |part, r| r.number.spread.as_ref().map(part))
        // Resamples that could be fitted.
        .column("resamples", |r| r.bootstrap.resamples as u32)
        .finish()
}
