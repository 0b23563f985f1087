//! Builds the low-rank model of a partition of the targets: projections, names of sets, metrics.

pub mod assign;
pub mod known;
pub mod metrics;
pub mod model;
pub mod renumber;

use crate::error::counted;
use crate::error::{Error, Result};
use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::methods::fit::{Fit, How, LowRank, Side, Singular};
use crate::methods::low_rank::metrics::{Missed, Scoring};
use crate::methods::low_rank::model::{Model, Spectrum};

/// The fit of a partition of the sources and the targets' sets for its model: embeddings from Λ̃.
pub(crate) fn projection(
    passes: &Passes<'_>,
    shards: &Shards,
    affiliation: Vec<u32>,
    rank: usize,
    target_sets: impl Fn(&Model) -> Vec<i32>,
    seed: u64,
) -> Fit {
    passes.step("score");
    let model = crate::methods::low_rank::model::of_partition(passes, shards, affiliation, rank);
    let target_sets = target_sets(&model);
    let spectrum = model.spectrum(shards);
    assemble(passes, shards, model, target_sets, spectrum, seed)
}

/// F by (11), where a partition of the sources is all there is.
pub(crate) fn most_probable(model: &Model) -> Vec<i32> {
    model.target_sets().into_iter().map(|l| l as i32).collect()
}

pub(crate) fn assemble(
    passes: &Passes<'_>,
    shards: &Shards,
    model: Model,
    target_sets: Vec<i32>,
    spectrum: Spectrum,
    seed: u64,
) -> Fit {
    let coarse_counts = model.coarse_counts(&target_sets);
    let coarse = model.coarse(&coarse_counts);
    let metrics = crate::methods::low_rank::metrics::metrics(
        passes,
        shards,
        &model,
        &target_sets,
        &coarse_counts,
        &spectrum.values,
    );
    Fit {
        how: How {
            seed,
            restarts: Vec::new(),
            best_restart: 0,
            iterations: 0,
            converged: true,
            trace: Vec::new(),
        },
        model: LowRank {
            rank: model.rank,
            sources: Side {
                affiliation: model.affiliation.iter().map(|&k| k as i32).collect(),
                embedding: spectrum.source_embedding,
                membership: None,
            },
            targets: Side {
                affiliation: target_sets,
                embedding: spectrum.target_embedding,
                membership: None,
            },
            latent: model.latent(),
            coarse,
            coarse_counts,
            spectrum: spectrum
                .values
                .into_iter()
                .map(|value| Singular {
                    value,
                    residual: None,
                    eigenvalue: None,
                })
                .collect(),
            largest_residual: None,
        },
        metrics,
    }
}

/// Renumbers latent states (`names`).
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

/// Refuses a rank that the matrix does not have.
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
