//! Low-rank models: any partition of the sources → the model Λ = λΓ, its metrics and bounds, and
//! sets for new rows.

pub mod assign;
pub(crate) mod columns;
pub(crate) mod factors;
pub(crate) mod known;
pub mod metrics;
pub mod model;
mod renumber;
pub mod score;

use crate::error::{Error, Result, counted};
use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::methods::low_rank::factors::{Factors, Spectrum, of_partition};
use crate::methods::low_rank::model::{LowRank, SideStates, Singular};
use crate::methods::low_rank::score::{Missed, Scoring, score};

/// The model of a partition of the sources. `target_sets` gives the sets of the targets, and the
/// embeddings are singular vectors of Λ̃.
pub(crate) fn projection(
    passes: &Passes<'_>,
    shards: &Shards,
    affiliation: Vec<u32>,
    rank: usize,
    target_sets: impl Fn(&Factors) -> Vec<i32>,
) -> LowRank {
    passes.step("score");
    let factors = of_partition(passes, shards, affiliation, rank);
    let target_sets = target_sets(&factors);
    let spectrum = factors.spectrum(shards);
    assemble(passes, shards, factors, target_sets, spectrum)
}

/// The sets F of the targets by (11).
pub(crate) fn most_probable(factors: &Factors) -> Vec<i32> {
    factors
        .target_sets()
        .into_iter()
        .map(|l| l as i32)
        .collect()
}

/// Scores the factors. `spectrum` has the embeddings and σ(Λ̃).
pub(crate) fn assemble(
    passes: &Passes<'_>,
    shards: &Shards,
    factors: Factors,
    target_sets: Vec<i32>,
    spectrum: Spectrum,
) -> LowRank {
    let coarse_counts = factors.coarse_counts(&target_sets);
    let values = &spectrum.values;
    LowRank {
        rank: factors.rank,
        metrics: score(
            passes,
            shards,
            &factors,
            &target_sets,
            &coarse_counts,
            values,
        ),
        latent: factors.latent(),
        coarse: factors.coarse(&coarse_counts),
        coarse_counts,
        spectrum: values.iter().copied().map(Singular::value).collect(),
        largest_residual: None,
        sources: SideStates {
            affiliation: factors.affiliation.iter().map(|&k| k as i32).collect(),
            embedding: spectrum.source_embedding,
            membership: None,
        },
        targets: SideStates {
            affiliation: target_sets,
            embedding: spectrum.target_embedding,
            membership: None,
        },
    }
}

/// Renumbers latent states by decreasing weight.
pub(crate) fn canonical(affiliation: &[u32], rank: usize, shards: &Shards) -> Vec<u32> {
    let names = names(affiliation, rank, shards);
    affiliation.iter().map(|&k| names[k as usize]).collect()
}

/// The numbers of latent states by decreasing weight, ties by their first source, empty ones last.
pub(crate) fn names(affiliation: &[u32], rank: usize, shards: &Shards) -> Vec<u32> {
    let mut weight = vec![0.0; rank];
    let mut first = vec![usize::MAX; rank];
    for (j, &k) in affiliation.iter().enumerate() {
        weight[k as usize] += shards.source_total[j];
        first[k as usize] = first[k as usize].min(j);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.sort_by(|&a, &b| {
        weight[b]
            .total_cmp(&weight[a])
            .then(first[a].cmp(&first[b]))
    });
    let mut names = vec![0; rank];
    for (new, &old) in order.iter().enumerate() {
        names[old] = new as u32;
    }
    names
}

/// Refuses a rank that is 0 or larger than the matrix allows.
pub(crate) fn check_rank(rank: usize, shards: &Shards) -> Result<()> {
    let (n, m) = (shards.n_sources, shards.n_targets);
    if rank == 0 {
        return Err(Error::input("rank 0 leaves no latent state"));
    }
    if rank > n.min(m) {
        return Err(Error::input(format!(
            "rank {rank} is larger than the number of states ({}, {})",
            counted(n, "source"),
            counted(m, "target")
        )));
    }
    Ok(())
}

/// The kernels of the passes that score a model.
pub(crate) fn kernels() -> Vec<Entry> {
    vec![
        Entry::of::<Gather<'static>>(),
        Entry::of::<Missed<'static>>(),
        Entry::of::<Scoring<'static>>(),
    ]
}
