//! Coherent pairs as a method: the truncated SVD, and sets from its vectors.

use crate::error::Result;
use crate::evidence::counts::products::Multiply;
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::methods::columns::StateColumn;
use crate::methods::estimator::{Estimator, Fault, Parameters, at_least_one, ranked, tolerance};
use crate::methods::fit::{Fit, How};
use crate::methods::low_rank::columns::{SETS, SOFT_SETS};
use crate::methods::low_rank::factors::{Spectrum, of_partition};
use crate::methods::low_rank::model::Singular;
use crate::methods::low_rank::{assemble, canonical, check_rank};
use crate::methods::spectral::softened::{panels, softened};
use crate::methods::spectral::svd::{self, Clusters, Svd};
use crate::methods::spectral::{soft, truncated_svd};

impl Parameters for Svd {
    const NAME: &'static str = "svd";

    fn check(&self) -> std::result::Result<(), Fault> {
        at_least_one(&[
            ("restarts", self.restarts),
            ("max_iterations", self.max_iterations),
        ])?;
        tolerance("tolerance", self.tolerance)
    }

    ranked!();

    fn describe(&self, rank: &str) -> String {
        match self.clusters {
            Clusters::KMeans => {
                format!(
                    "truncated SVD and k-means, {rank}, {} restarts",
                    self.restarts
                )
            }
            Clusters::Seba => format!("truncated SVD and SEBA, {rank}"),
            Clusters::Pcca => format!("truncated SVD and PCCA+, {rank}"),
        }
    }
}

impl Estimator for Svd {
    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn kernels() -> Vec<Entry> {
        vec![Entry::of::<Multiply<'static>>()]
    }

    fn columns(&self) -> &'static [StateColumn] {
        match self.clusters {
            Clusters::KMeans => SETS,
            Clusters::Seba | Clusters::Pcca => SOFT_SETS,
        }
    }

    fn bytes(&self, size: Size, _: u64) -> u64 {
        panels(size, self.rank)
    }

    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        check_rank(self.rank, &counts.shards)?;
        pairs(passes, &counts.shards, self, seed)
    }
}

/// The fit of Algorithm 1, or with soft sets. E is scored like any partition; the spectrum and the
/// embeddings are those of P̃.
fn pairs(passes: &Passes<'_>, shards: &Shards, params: &Svd, seed: u64) -> Result<Fit> {
    let embedding = svd::embedding(passes, shards, params, seed);
    passes.step("cluster");
    let mut how = How::direct(seed);
    let mut model = if params.clusters == Clusters::KMeans {
        let [sources, targets] = svd::clusters(&embedding, shards, params, seed);
        let affiliation = canonical(&sources.affiliation, params.rank, shards);
        passes.step("score");
        let factors = of_partition(passes, shards, affiliation, params.rank);
        let target_sets = svd::match_targets(&factors, &targets.affiliation);
        let spectrum = Spectrum {
            values: factors.singular_values(shards),
            source_embedding: embedding.sources,
            target_embedding: embedding.targets,
        };
        how.converged = [&sources, &targets]
            .iter()
            .all(|side| side.restarts[side.best].converged);
        how.best_restart = sources.best;
        how.restarts = sources.restarts;
        assemble(passes, shards, factors, target_sets, spectrum)
    } else {
        let sets = soft::pairs(&embedding, shards, params)?;
        how.converged = sets.converged;
        let (e, f) = (embedding.sources, embedding.targets);
        softened(passes, shards, params.rank, sets, e, f)
    };
    let triplets = &embedding.triplets;
    model.metrics.coherence_p = Some(triplets.values.iter().sum());
    model.spectrum = triplets
        .values
        .iter()
        .zip(&triplets.residuals)
        .map(|(&value, &residual)| Singular {
            value,
            residual: Some(residual),
            eigenvalue: None,
        })
        .collect();
    model.largest_residual =
        (triplets.converged).then(|| truncated_svd::largest_residual(params.tolerance));
    how.iterations = triplets.products;
    how.converged &= triplets.converged;
    Ok(Fit { how, model })
}
