//! The table `bootstrap`: one row per number of a fit.

use crate::assess::bootstrap::{Bootstrap, Number, ResampledNumbers};
use crate::assess::fit_of_model::FitOfModel;
use crate::assess::interval::Spread;
use crate::output::tables::columns;
use crate::output::tables::columns::{Columns, TableColumns, of_run_fits};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

/// All numbers of a fit, and one of them.
type Row<'a> = (&'a ResampledNumbers, &'a Number);

/// The columns of a spread.
pub(crate) const SPREAD: [(&str, fn(&Spread) -> f64); 4] = [
    ("mean", |s| s.mean),
    ("standard_error", |s| s.standard_error),
    // The ends of the percentile interval.
    ("low", |s| s.low),
    ("high", |s| s.high),
];

fn rows(of: &ResampledNumbers) -> impl Iterator<Item = Row<'_>> {
    of.numbers.iter().map(move |number| (of, number))
}

/// The columns that all kinds of evidence have.
fn with_numbers<'a, M, F: Sync + 'a>(
    fits: Columns<'a, M, (F, Row<'a>)>,
) -> Columns<'a, M, (F, Row<'a>)> {
    fits.key("metric", |(_, (_, number))| number.metric.as_ref())
        // The index of a singular value or of a set, from 0.
        .part("index", |(_, (_, number))| number.index, |at| at as u32)
        // The number of the fit to all transitions, pairs or windows.
        .column("value", |(_, (_, number))| number.value)
        .each(SPREAD, |part, (_, (_, number))| {
            number.spread.as_ref().map(part)
        })
        // Resamples that could be fitted.
        .column("resamples", |(_, (of, _))| of.resamples as u32)
}

/// One row per number of each fit of a model that is resampled.
pub(crate) fn of_fits<'a, M: 'a, T: Sync + 'a>(
    fits: fn(&'a M) -> &'a [FitOfModel<T>],
) -> TableColumns<'a, M> {
    let numbers = |fit: &'a FitOfModel<T>| fit.bootstrap.iter().flat_map(rows);
    with_numbers(columns::of_fits(fits, numbers))
        .column("groups", |(_, (of, _))| of.groups as u32)
        .finish()
}

pub(crate) fn bootstrap<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let numbers = |bootstrap: &'a Bootstrap| rows(&bootstrap.of);
    let fits = of_run_fits(run, |model: &FittedModel| &model.bootstraps, numbers);
    with_numbers(fits).finish()
}
