//! Fits of soft sets, and the memory of decompositions.

use crate::evidence::counts::Size;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::fit::Fit;
use crate::methods::low_rank::model;
use crate::methods::low_rank::model::Spectrum;
use crate::methods::low_rank::{assemble, names};
use crate::methods::spectral::soft;

/// Columns of a panel, and panels of either side that a product accesses.
const PANEL: u64 = 4 * 2;

/// Bytes of the panels of a decomposition.
pub(crate) fn panels(size: Size, rank: usize) -> u64 {
    let states = size.targets.saturating_add(size.sources);
    states.saturating_mul(8 * (PANEL + rank as u64))
}

/// The fit of soft sets, whose labels are scored like any partition.
pub(crate) fn softened(
    passes: &Passes<'_>,
    shards: &Shards,
    rank: usize,
    mut sets: soft::Soft,
    source_embedding: Vec<f64>,
    target_embedding: Vec<f64>,
    seed: u64,
) -> Fit {
    let names = names(&sets.sources.affiliation, rank, shards);
    sets.sources.rename(&names);
    sets.targets.rename(&names);
    passes.step("score");
    let model = model::of_partition(passes, shards, sets.sources.affiliation, rank);
    let target_sets = sets.targets.affiliation.iter().map(|&l| l as i32).collect();
    let spectrum = Spectrum {
        values: model.singular_values(shards),
        source_embedding,
        target_embedding,
    };
    let mut fit = assemble(passes, shards, model, target_sets, spectrum, seed);
    fit.model.sources.membership = Some(sets.sources.membership);
    fit.model.targets.membership = Some(sets.targets.membership);
    fit.metrics.crispness = sets.crispness;
    fit.how.converged = sets.converged;
    fit
}
