//! The tables `timescales` and `chapman_kolmogorov`, with `markov = true`.

use crate::assess::markov::Timescale;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

struct TimescaleRow<'a> {
    fit: &'a str,
    index: usize,
    timescale: &'a Timescale,
    interval: [Option<f64>; 2],
}

/// One row per eigenvalue of a fit. Times have the unit of the lag.
pub(crate) fn timescales<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.markov).into_iter();
        fits.flat_map(|(columns, markov)| {
            let timescales = markov.timescales.iter().zip(&markov.intervals).enumerate();
            timescales.map(|(index, (timescale, &interval))| TimescaleRow {
                fit: &columns.name,
                index,
                timescale,
                interval,
            })
        })
        .collect()
    };
    Columns::of(rows)
        .key("fit", |r| r.fit)
        .key("index", |r| r.index as u32)
        .column("eigenvalue_real", |r| r.timescale.re)
        .column("eigenvalue_imaginary", |r| r.timescale.im)
        // Null if the eigenvalue never decays.
        .column("timescale", |r| r.timescale.timescale)
        // The ends of its percentile interval.
        .column("low", |r| r.interval[0])
        .column("high", |r| r.interval[1])
        .finish()
}

/// One row per number of steps and pair of sets of a fit.
pub(crate) fn chapman_kolmogorov<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.markov).into_iter();
        let comparisons = fits.flat_map(|(columns, markov)| {
            let comparisons = markov.comparisons.iter();
            comparisons.map(|c| (columns.name.as_str(), c, c.predicted.len().isqrt()))
        });
        comparisons
            .flat_map(|(fit, c, rank)| (0..rank * rank).map(move |at| (fit, c, at, rank)))
            .collect()
    };
    Columns::of(rows)
        .key("fit", |&(fit, ..)| fit)
        // k lags.
        .key("steps", |(_, c, ..)| c.steps)
        .key("from_set", |&(.., at, rank)| (at / rank) as i32)
        .key("to_set", |&(.., at, rank)| (at % rank) as i32)
        // The probability by the power k of the transition matrix at one lag.
        .column("predicted", |&(_, c, at, _)| c.predicted[at])
        // The probability by the counts at k lags.
        .column("estimated", |&(_, c, at, _)| c.estimated[at])
        .finish()
}
