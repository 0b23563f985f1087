//! Fits of soft sets, and the memory of decompositions.

use crate::evidence::counts::Size;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::low_rank::factors::{Spectrum, of_partition};
use crate::methods::low_rank::model::LowRank;
use crate::methods::low_rank::{assemble, names};
use crate::methods::spectral::soft;

/// Columns of a panel, and panels of either side that a product accesses.
const PANEL: u64 = 4 * 2;

/// Bytes of the panels of a decomposition.
pub(crate) fn panels(size: Size, rank: usize) -> u64 {
    let states = size.targets.saturating_add(size.sources);
    states.saturating_mul(8 * (PANEL + rank as u64))
}

/// The model of soft sets. Their labels are scored like any partition.
pub(crate) fn softened(
    passes: &Passes<'_>,
    shards: &Shards,
    rank: usize,
    mut sets: soft::Soft,
    source_embedding: Vec<f64>,
    target_embedding: Vec<f64>,
) -> LowRank {
    let names = names(&sets.sources.affiliation, rank, shards);
    sets.sources.rename(&names);
    sets.targets.rename(&names);
    passes.step("score");
    let factors = of_partition(passes, shards, sets.sources.affiliation, rank);
    let target_sets = sets.targets.affiliation.iter().map(|&l| l as i32).collect();
    let spectrum = Spectrum {
        values: factors.singular_values(shards),
        source_embedding,
        target_embedding,
    };
    let mut model = assemble(passes, shards, factors, target_sets, spectrum);
    model.sources.membership = Some(sets.sources.membership);
    model.targets.membership = Some(sets.targets.membership);
    model.metrics.crispness = sets.crispness;
    model
}
