//! The tables `latent` and `coarse`: one row per non-zero of λ, and one per pair of sets.

use crate::methods::fit::Fit;
use crate::output::tables::columns::{Columns, TableColumns, by_name, of_run_fits};
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

fn entries<'a>(run: &'a RunSchema, model: &'a FittedModel, rows: Range<usize>) -> Vec<Entry<'a>> {
    let mut entries = Vec::with_capacity(rows.len());
    let mut first = 0;
    for (columns, fit) in by_name(run, &model.fits) {
        let latent = &fit.model.latent;
        for (k, ends) in latent.offsets.windows(2).enumerate() {
            let start = rows.start.clamp(first + ends[0], first + ends[1]) - first;
            let end = rows.end.clamp(first + start, first + ends[1]) - first;
            entries.extend((start..end).map(|at| Entry {
                fit: &columns.name,
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
    let pairs = |Fit { model, .. }: &'a Fit| {
        let pairs = 0..model.rank * model.rank;
        pairs.map(move |at| (model, at))
    };
    of_run_fits(run, |model: &FittedModel| &model.fits, pairs)
        // The set k of the sources.
        .key("latent", |(_, (model, at))| (at / model.rank) as i32)
        // The set l of the targets.
        .key("target_set", |(_, (model, at))| (at % model.rank) as i32)
        // The transitions from E_k to F_l.
        .amount(run, "count", |&(_, (model, at))| model.coarse_counts[at])
        // Pr[Y ∈ F_l | X ∈ E_k].
        .column("probability", |&(_, (model, at))| model.coarse[at])
        .finish()
}
