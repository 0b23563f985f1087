//! The tables `timescales` and `chapman_kolmogorov`, with `markov = true`.

use crate::assess::markov::Markov;
use crate::output::tables::columns::{TableColumns, of_run_fits};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

/// One row per eigenvalue of a fit. Times have the unit of the lag.
pub(crate) fn timescales<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let timescales = |of: &'a Markov| of.timescales.iter().zip(&of.intervals).enumerate();
    of_run_fits(run, |model: &FittedModel| &model.markov, timescales)
        .key("index", |&(_, (index, _))| index as u32)
        .column("eigenvalue_real", |(_, (_, (own, _)))| own.re)
        .column("eigenvalue_imaginary", |(_, (_, (own, _)))| own.im)
        // Null if the eigenvalue never decays.
        .column("timescale", |(_, (_, (own, _)))| own.timescale)
        // The ends of its percentile interval.
        .column("low", |(_, (_, (_, interval)))| interval[0])
        .column("high", |(_, (_, (_, interval)))| interval[1])
        .finish()
}

/// One row per number of steps and pair of sets of a fit.
pub(crate) fn chapman_kolmogorov<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let pairs = |markov: &'a Markov| {
        markov.comparisons.iter().flat_map(|c| {
            let rank = c.predicted.len().isqrt();
            (0..rank * rank).map(move |at| (c, at, rank))
        })
    };
    of_run_fits(run, |model: &FittedModel| &model.markov, pairs)
        // k lags.
        .key("steps", |(_, (c, ..))| c.steps)
        .key("from_set", |&(_, (_, at, rank))| (at / rank) as i32)
        .key("to_set", |&(_, (_, at, rank))| (at % rank) as i32)
        // The probability by the power k of the transition matrix at one lag.
        .column("predicted", |&(_, (c, at, _))| c.predicted[at])
        // The probability by the counts at k lags.
        .column("estimated", |&(_, (c, at, _))| c.estimated[at])
        .finish()
}
