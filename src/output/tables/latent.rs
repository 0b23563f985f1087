//! The tables `latent` and `coarse`: one row per non-zero of λ, and one per pair of sets.

use crate::methods::low_rank::model::LowRank;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use std::ops::Range;

/// λ_ik > 0.
struct Entry<'a> {
    fit: &'a str,
    latent: i32,
    state: u32,
    probability: f64,
}

pub(crate) fn latent<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let len = |model: &'a FittedModel| {
        let fits = model.fits.iter();
        fits.map(|fit| fit.model.latent.targets.len()).sum()
    };
    Columns::in_pieces(len, |model, rows| entries(run, model, rows))
        .key("fit", |e| e.fit)
        // The set k.
        .key("latent", |e| e.latent)
        // The target i.
        .state(&run.targets, &run.targets.fields(), |e| e.state)
        .into_keys()
        // λ_ik.
        .column("probability", |e| e.probability)
        .finish()
}

/// The low-rank models of the fits, ordered by the name of the fit.
fn low_rank<'a>(
    run: &'a RunSchema,
    model: &'a FittedModel,
) -> impl Iterator<Item = (&'a str, &'a LowRank)> {
    let fits = by_name(run, &model.fits).into_iter();
    fits.map(|(columns, fit)| (columns.name.as_str(), &fit.model))
}

fn entries<'a>(run: &'a RunSchema, model: &'a FittedModel, rows: Range<usize>) -> Vec<Entry<'a>> {
    let mut entries = Vec::with_capacity(rows.len());
    let mut first = 0;
    for (fit, LowRank { latent, .. }) in low_rank(run, model) {
        for (k, ends) in latent.offsets.windows(2).enumerate() {
            let start = rows.start.clamp(first + ends[0], first + ends[1]) - first;
            let end = rows.end.clamp(first + start, first + ends[1]) - first;
            entries.extend((start..end).map(|at| Entry {
                fit,
                latent: k as i32,
                state: model.counts.target_states[latent.targets[at] as usize],
                probability: latent.probability[at],
            }));
        }
        first += latent.targets.len();
    }
    entries
}

pub(crate) fn coarse<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let models = low_rank(run, model);
        models
            .flat_map(|(fit, model)| (0..model.rank * model.rank).map(move |at| (fit, model, at)))
            .collect()
    };
    Columns::of(rows)
        .key("fit", |(fit, ..)| *fit)
        // The set k of the sources.
        .key("latent", |(_, model, at)| (at / model.rank) as i32)
        // The set l of the targets.
        .key("target_set", |(_, model, at)| (at % model.rank) as i32)
        // The transitions from E_k to F_l.
        .amount(run, "count", |&(_, model, at)| model.coarse_counts[at])
        // Pr[Y ∈ F_l | X ∈ E_k].
        .column("probability", |&(_, model, at)| model.coarse[at])
        .finish()
}
