//! The table `bootstrap`: one row per number of a fit.

use crate::assess::bootstrap::{Number, ResampledNumbers};
use crate::assess::fit_of_model::FitOfModel;
use crate::assess::interval::Spread;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

/// A number of a fit.
struct Row<'a> {
    fit: &'a str,
    /// All numbers of the fit.
    of: &'a ResampledNumbers,
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

/// The rows of fits with these names.
fn rows<'a>(fits: impl Iterator<Item = (&'a str, &'a ResampledNumbers)>) -> Vec<Row<'a>> {
    let rows =
        fits.flat_map(|(fit, of)| of.numbers.iter().map(move |number| Row { fit, of, number }));
    rows.collect()
}

/// The columns that all kinds of evidence have.
fn columns<'a, M: 'a>(
    rows: impl Fn(&'a M) -> Vec<Row<'a>> + Copy + Send + Sync + 'a,
) -> Columns<'a, M, Row<'a>> {
    Columns::of(rows)
        .key("fit", |r| r.fit)
        .key("metric", |r| r.number.metric.as_ref())
        // The index of a singular value or of a set, from 0.
        .column("index", |r| r.number.index.map(|at| at as u32))
        // The number of the fit to all transitions, pairs or windows.
        .column("value", |r| r.number.value)
        .each(SPREAD, |part, r| r.number.spread.as_ref().map(part))
        // Resamples that could be fitted.
        .column("resamples", |r| r.of.resamples as u32)
}

/// One row per number of each fit of a model that is resampled.
pub(crate) fn of_fits<'a, M: 'a, T: 'a>(
    fits: fn(&'a M) -> &'a [FitOfModel<T>],
) -> TableColumns<'a, M> {
    let of_fits = move |model: &'a M| {
        let fits = FitOfModel::by_name(fits(model)).into_iter();
        rows(fits.filter_map(|fit| Some((fit.name.as_str(), fit.bootstrap.as_ref()?))))
    };
    columns(of_fits)
        .column("groups", |row| row.of.groups as u32)
        .finish()
}

pub(crate) fn bootstrap<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let of_fits = |model: &'a FittedModel| {
        let fits = by_name(run, &model.bootstraps).into_iter();
        rows(fits.map(|(columns, bootstrap)| (columns.name.as_str(), &bootstrap.of)))
    };
    columns(of_fits).finish()
}
