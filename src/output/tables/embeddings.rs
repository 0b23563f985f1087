//! The table `embeddings`: one row per embedding of states and time or power.

use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::methods::heat_kernel::sketch::Energy;
use crate::output::tables::columns::{Columns, TableColumns};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::{EmbeddingColumns, RunSchema};

/// Pairs each embedding of a run with that of a model, ordered by the name of the fit.
pub(crate) fn by_name<'a>(
    run: &'a RunSchema,
    model: &'a FittedModel,
) -> Vec<(&'a EmbeddingColumns, &'a ChainEmbedding)> {
    let mut fits: Vec<_> = run.embeddings.iter().zip(&model.embeddings).collect();
    fits.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    fits
}

pub(crate) fn embeddings<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, model).into_iter();
        fits.flat_map(|(columns, own)| {
            let times = own.times.iter();
            times.map(move |time| (columns, own, *time))
        })
        .collect()
    };
    Columns::of(rows)
        .key("fit", |(columns, ..)| columns.name.as_str())
        // The time of a diffusion map, or the power of a sketch.
        .key("time", |&(.., time)| time)
        .column("method", |(columns, ..)| columns.method)
        // Coordinates that are not zeros for all states.
        .column("dimension", |(_, own, _)| own.dimension as u32)
        // Products of the kernel with one vector.
        .column("products", |(_, own, _)| own.products as u64)
        // Σ‖y‖² of a sketch, and the same from other draws, up to power 8.
        .column("energy", |&(_, own, time)| Some(energy(own, time)?.sketch))
        .column("other_energy", |&(_, own, time)| {
            Some(energy(own, time)?.other)
        })
        .column("warnings", |(_, own, _)| {
            own.warnings
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        })
        .finish()
}

fn energy(own: &ChainEmbedding, time: f64) -> Option<&Energy> {
    own.energies
        .iter()
        .find(|energy| energy.power as f64 == time)
}
