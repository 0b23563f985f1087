//! Coherent pairs by truncated singular value decomposition (coherence, Algorithm 1).
//!
//! In: N, m targets × n sources, and a rank r. Out: the r leading singular triplets of P̃, the
//! embeddings e = D_p^{-1/2} V (n × r) and f = D_q^{-1/2} U (m × r), the partition E of the sources
//! by k-means of e, and F of the targets by k-means of f, matched to E so that objective (2), Σ_k
//! Pr[Y ∈ F_k | X ∈ E_k], is largest.
//!
//! The paper clusters the rows of V and U. If p is uniform, that equals clustering the rows of e.
//! Otherwise a row of V is √p_j times the point that describes state j, so rare states would be
//! close to the origin. In e, states with equal behaviour are equal points, and the weight p_j is
//! where the relaxed problem (7) has it: in the inner product ⟨·,·⟩_p of functions of the sources.
//! The same holds for the targets with q.
//!
//! `soft` makes pairs from the embeddings without k-means.

use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::math::matching;
use crate::methods::estimator::defaults;
use crate::methods::low_rank::factors::Factors;
use crate::methods::spectral::kmeans;
use crate::methods::spectral::truncated_svd::{self, Triplets};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets from singular vectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Clusters {
    /// k-means: every state is in one set.
    #[default]
    KMeans,
    /// Sparse vectors (SEBA): memberships that may overlap or leave a state without a set.
    Seba,
    /// Robust Perron cluster analysis (PCCA+): memberships that add up to 1 and are as crisp as
    /// possible.
    Pcca,
}

impl Clusters {
    /// As it is written in pipelines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clusters::KMeans => "kmeans",
            Clusters::Seba => "seba",
            Clusters::Pcca => "pcca",
        }
    }
}

/// The largest number of products of P̃ or its transpose with a vector.
const MAX_PRODUCTS: usize = 100_000;

/// Coherent pairs from the truncated singular value decomposition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Svd {
    /// The number of coherent pairs, or a list of numbers to fit one by one.
    pub rank: usize,
    /// The method that makes sets from the singular vectors.
    #[serde(default)]
    pub clusters: Clusters,
    /// The number of independent starts of k-means, of which the best is kept. Only with `clusters
    /// = "kmeans"`.
    #[serde(default = "Svd::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// The relative accuracy of the singular values.
    #[serde(default = "Svd::tolerance")]
    #[schemars(range(min = 0))]
    pub tolerance: f64,
    /// The number of iterations after which a start of k-means is stopped. Only with `clusters =
    /// "kmeans"`.
    #[serde(default = "Svd::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

defaults! { pub Svd(rank: usize) {
    restarts: usize = 20,
    tolerance: f64 = 1e-10,
    max_iterations: usize = 300,
} clusters }

/// The singular vectors of P̃ as points.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Embedding {
    /// Without the vectors, which became the embeddings.
    pub triplets: Triplets,
    /// e, n × r row-major.
    pub sources: Vec<f64>,
    /// f, m × r row-major.
    pub targets: Vec<f64>,
}

/// Decomposes P̃.
pub(crate) fn embedding(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Svd,
    seed: u64,
) -> Embedding {
    let options = truncated_svd::Options {
        rank: params.rank,
        tolerance: params.tolerance,
        max_products: MAX_PRODUCTS,
        seed,
    };
    passes.step("decompose");
    let mut triplets = truncated_svd::leading(passes, shards, &options);
    let [right, left] = [&mut triplets.right, &mut triplets.left].map(std::mem::take);
    Embedding {
        sources: embed(right, &shards.source_total, shards.total),
        targets: embed(left, &shards.target_total, shards.total),
        triplets,
    }
}

/// k-means of each side with its own labels, the sources first.
pub(crate) fn clusters(
    embedding: &Embedding,
    shards: &Shards,
    params: &Svd,
    seed: u64,
) -> [kmeans::Clustering; 2] {
    let clusters = kmeans::KMeans {
        clusters: params.rank,
        restarts: params.restarts,
        max_iterations: params.max_iterations,
    };
    let sides = [
        (&embedding.sources, &shards.source_total),
        (&embedding.targets, &shards.target_total),
    ];
    sides.map(|(points, totals)| {
        let weights: Vec<f64> = totals.iter().map(|t| t / shards.total).collect();
        kmeans::fit(points, params.rank, &weights, &clusters, seed)
    })
}

/// Rows of singular vectors divided by the square root of their state's probability.
fn embed(mut rows: Vec<f64>, totals: &[f64], total: f64) -> Vec<f64> {
    let rank = rows.len() / totals.len();
    rows.par_chunks_mut(rank)
        .zip(totals)
        .for_each(|(row, state)| {
            let scale = (total / state).sqrt();
            row.iter_mut().for_each(|x| *x *= scale);
        });
    rows
}

/// Renames the target clusters so that objective (2) is largest for the partition of the sources.
pub(crate) fn match_targets(factors: &Factors, clusters: &[u32]) -> Vec<i32> {
    let unmatched: Vec<i32> = clusters.iter().map(|&l| l as i32).collect();
    let coarse = factors.coarse(&factors.coarse_counts(&unmatched));
    let partner = matching::maximise(&coarse, factors.rank);
    let mut name = vec![0; factors.rank];
    for (k, &l) in partner.iter().enumerate() {
        name[l] = k as i32;
    }
    clusters.iter().map(|&l| name[l as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense;
    use crate::evidence::pass::Passes;
    use crate::methods::low_rank::factors::of_partition;

    // N (targets × sources) = [ 0 9 9 1 ]   Sources {0, 3} go to targets {1, 2},
    //                         [ 4 0 1 5 ]   and sources {1, 2} to target 0.
    //                         [ 5 1 0 4 ]
    #[test]
    fn pairs_meet() {
        let columns = [[0, 4, 5], [9, 0, 1], [9, 1, 0], [1, 5, 4]];
        let columns = columns.map(|column| column.map(f64::from).to_vec());
        let shards = dense(&columns, false, 4);
        let params = Svd::new(2);
        let embedding = embedding(&Passes::local(), &shards, &params, 5);
        let [sources, targets] = clusters(&embedding, &shards, &params, 5);
        let e = &sources.affiliation;
        assert!(e[0] == e[3] && e[1] == e[2] && e[0] != e[1]);
        // e and f are orthonormal in ⟨·,·⟩_p and ⟨·,·⟩_q.
        let inner = |x: &[f64], totals: &[f64], a: usize, b: usize| -> f64 {
            let rows = x.chunks(2).zip(totals);
            rows.map(|(x, t)| x[a] * x[b] * t / shards.total).sum()
        };
        for (a, b) in [(0, 0), (0, 1), (1, 1)] {
            let delta = if a == b { 1.0 } else { 0.0 };
            let e = inner(&embedding.sources, &shards.source_total, a, b);
            let f = inner(&embedding.targets, &shards.target_total, a, b);
            assert!((e - delta).abs() < 1e-12 && (f - delta).abs() < 1e-12);
        }
        // Matching gives the sets of targets the names of their sources, for any names by k-means.
        let given = vec![0, 1, 1, 0];
        let model = of_partition(&Passes::local(), &shards, given, 2);
        assert_eq!(match_targets(&model, &targets.affiliation), [1, 0, 0]);
        let other: Vec<u32> = targets.affiliation.iter().map(|k| 1 - k).collect();
        assert_eq!(match_targets(&model, &other), [1, 0, 0]);
    }
}
