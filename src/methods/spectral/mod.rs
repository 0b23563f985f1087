//! Fits whose embedding is vectors of a decomposition: singular vectors, whose clusters are hard or soft, and Schur vectors.

pub mod basis;
pub mod crispness;
pub mod gpcca;
pub mod kmeans;
pub mod pcca;
pub mod seba;
pub mod soft;
pub mod svd;
pub mod truncated_svd;

use crate::error::Result;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::fit::{Fit, Singular};
use crate::methods::low_rank::model;
use crate::methods::low_rank::model::Spectrum;
use crate::methods::low_rank::{assemble, canonical, names};

/// The fit of Algorithm 1, or with sets that are soft: E is scored like any partition, the spectrum and the embeddings are those of P̃.
pub(crate) fn pairs(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &svd::Params,
    seed: u64,
) -> Result<Fit> {
    let embedding = svd::embedding(passes, shards, params, seed);
    passes.step("cluster");
    let mut fit = if params.clusters == svd::Clusters::KMeans {
        let [sources, targets] = svd::clusters(&embedding, shards, params, seed);
        let affiliation = canonical(&sources.affiliation, params.rank, shards);
        passes.step("score");
        let model = model::of_partition(passes, shards, affiliation, params.rank);
        let target_sets = svd::match_targets(&model, &targets.affiliation);
        let spectrum = Spectrum {
            values: model.singular_values(shards),
            source_embedding: embedding.sources,
            target_embedding: embedding.targets,
        };
        let mut fit = assemble(passes, shards, model, target_sets, spectrum, seed);
        fit.converged = [&sources, &targets]
            .iter()
            .all(|side| side.restarts[side.best].converged);
        fit.best_restart = sources.best;
        let restarts = sources.restarts.into_iter();
        fit.restarts = restarts.map(|r| r.record(shards.n_sources)).collect();
        fit
    } else {
        let sets = soft::pairs(&embedding, shards, params)?;
        let (e, f) = (embedding.sources, embedding.targets);
        softened(passes, shards, params.rank, sets, e, f, seed)
    };
    let triplets = &embedding.triplets;
    fit.metrics.coherence_p = Some(triplets.values.iter().sum());
    fit.spectrum = triplets
        .values
        .iter()
        .zip(&triplets.residuals)
        .map(|(&value, &residual)| Singular {
            value,
            residual: Some(residual),
            eigenvalue: None,
        })
        .collect();
    fit.largest_residual =
        (triplets.converged).then(|| truncated_svd::largest_residual(params.tolerance));
    fit.iterations = triplets.products;
    fit.converged &= triplets.converged;
    Ok(fit)
}

/// The fit of G-PCCA: memberships in the span of Schur vectors, which are the embedding, the same for a state on both sides.
pub(crate) fn cycles(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &gpcca::Params,
    source_of_target: &[u32],
    seed: u64,
) -> Result<Fit> {
    let (rank, weights) = (params.rank, &shards.source_total);
    passes.step("decompose");
    let found = gpcca::leading(passes, shards, source_of_target, weights, params, seed)?;
    passes.step("cluster");
    let sets = soft::square(&found.embedding, rank, weights, source_of_target)?;
    let of_target = source_of_target
        .iter()
        .flat_map(|&j| &found.embedding[j as usize * rank..][..rank])
        .copied()
        .collect();
    let e = found.embedding;
    let mut fit = softened(passes, shards, rank, sets, e, of_target, seed);
    let vectors = found.eigenvalues.iter().zip(&found.residuals);
    for (singular, (&eigenvalue, &residual)) in fit.spectrum.iter_mut().zip(vectors) {
        singular.eigenvalue = Some(eigenvalue);
        singular.residual = Some(residual);
    }
    fit.largest_residual = found.converged.then_some(params.tolerance);
    fit.iterations = found.products;
    fit.converged &= found.converged;
    Ok(fit)
}

/// The fit of soft sets, whose labels are scored like any partition.
fn softened(
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
    fit.sources.membership = Some(sets.sources.membership);
    fit.targets.membership = Some(sets.targets.membership);
    fit.metrics.crispness = sets.crispness;
    fit.converged = sets.converged;
    fit
}
