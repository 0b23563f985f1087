//! Clusters of embedded states (Sun, Duan, Gong and Wang, NeurIPS 2019, Algorithm 3 and Theorem 4).
//!
//! In: Ψ of weighted points. Out: a partition with small Σ_k Σ_{x ∈ Ω_k} w ‖Ψ(x) − s_k‖², by
//! k-means, with what is known about it.

use crate::evidence::points::Pairs;
use crate::math::matching;
use crate::methods::spectral::kmeans::{self, KMeans};
use serde::{Deserialize, Serialize};

/// The number of iterations after which a start of k-means is stopped.
const MAX_ITERATIONS: usize = 300;

/// A partition of embedded points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Clusters {
    /// Coordinates per centre, r.
    pub rank: usize,
    /// The cluster of every point.
    pub affiliation: Vec<u32>,
    /// One entry per cluster with a positive weight, in descending order of weight.
    pub centroids: Vec<Centroid>,
    /// Σ w ‖Ψ(x) − s‖² / Σ w, objective (4).
    pub objective: f64,
    /// Whether the best start of k-means converged.
    pub converged: bool,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Centroid {
    /// s_k, in r dimensions.
    pub center: Vec<f64>,
    /// The share of the weights.
    pub weight: f64,
    /// The point that is nearest to the centre, the first one on ties.
    pub nearest: usize,
    /// The number of points.
    pub points: u64,
    /// The share of the weight of pairs from the cluster that end outside it. None without pairs.
    pub exit: Option<f64>,
    /// The number of pairs from the cluster.
    pub pairs: u64,
}

/// The statement of Theorem 4 with estimates in place of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Separation {
    /// Δ₁: the least distance of two centres, times the root of the weight of one of them.
    pub delta_1: f64,
    /// Δ₂: the root of the objective.
    pub delta_2: f64,
    /// Whether Δ₁ > 4 Δ₂, so that the theorem holds.
    pub is_separated: bool,
    /// 16 Δ₂²/Δ₁², the bound on the misclassification of many points.
    pub bound: f64,
}

/// Clusters points by their embeddings (n × rank, row-major). Points without weights weigh 1.
pub(crate) fn cluster(
    embedded: &[f64],
    rank: usize,
    weights: Option<&[f64]>,
    clusters: usize,
    restarts: usize,
    seed: u64,
) -> Clusters {
    let n = embedded.len() / rank;
    let ones;
    let weights = match weights {
        Some(weights) => weights,
        None => {
            ones = vec![1.0; n];
            &ones
        }
    };
    let params = KMeans {
        clusters,
        restarts,
        max_iterations: MAX_ITERATIONS,
    };
    let found = kmeans::fit(embedded, rank, weights, &params, seed);
    let (mut masses, mut moments) = (vec![0.0; clusters], vec![0.0; clusters * rank]);
    let mut sizes = vec![0; clusters];
    for ((point, k), w) in embedded
        .chunks_exact(rank)
        .zip(&found.affiliation)
        .zip(weights)
    {
        let k = *k as usize;
        masses[k] += w;
        sizes[k] += 1;
        for (moment, x) in moments[k * rank..].iter_mut().zip(point) {
            *moment += w * x;
        }
    }
    let order = by_mass(&found.affiliation, &masses);
    let mut number = vec![0; clusters];
    for (new, &old) in order.iter().enumerate() {
        number[old] = new as u32;
    }
    let total: f64 = masses.iter().sum();
    let centroids = order.iter().map(|&k| Centroid {
        center: moments[k * rank..][..rank]
            .iter()
            .map(|x| x / masses[k])
            .collect(),
        weight: masses[k] / total,
        nearest: 0,
        points: sizes[k],
        exit: None,
        pairs: 0,
    });
    let mut result = Clusters {
        rank,
        affiliation: found
            .affiliation
            .iter()
            .map(|&k| number[k as usize])
            .collect(),
        centroids: centroids.collect(),
        objective: 0.0,
        converged: found.restarts[found.best].converged,
    };
    let mut least = vec![f64::INFINITY; order.len()];
    for (i, point) in embedded.chunks_exact(rank).enumerate() {
        let k = result.affiliation[i] as usize;
        let cost = square_distance(point, &result.centroids[k].center);
        result.objective += weights[i] * cost / total;
        if cost < least[k] {
            least[k] = cost;
            result.centroids[k].nearest = i;
        }
    }
    result
}

/// Clusters with a positive mass, in descending order.
fn by_mass(affiliation: &[u32], masses: &[f64]) -> Vec<usize> {
    // Equal masses are in the order of their first points, which k-means does not give.
    let mut order: Vec<usize> = Vec::new();
    for &k in affiliation {
        if !order.contains(&(k as usize)) {
            order.push(k as usize);
        }
    }
    order.retain(|&k| masses[k] > 0.0);
    order.sort_by(|&a, &b| masses[b].total_cmp(&masses[a]));
    order
}

impl Clusters {
    /// The cluster with the nearest centre for embedded points (n × rank, row-major), the first one
    /// on ties.
    pub(crate) fn assign(&self, embedded: &[f64]) -> Vec<u32> {
        let centers = self.centroids.iter().map(|centroid| &centroid.center[..]);
        let points = embedded.chunks_exact(self.rank);
        points
            .map(|point| nearest(centers.clone(), point))
            .collect()
    }

    /// [`Clusters::assign`], and none for points without an embedding, which is NaN.
    pub(crate) fn assign_known(&self, embedded: &[f64]) -> Vec<Option<u32>> {
        let points = embedded.chunks_exact(self.rank);
        let is_known = points.map(|point| !point[0].is_nan());
        let all = self.assign(embedded).into_iter().zip(is_known);
        all.map(|(k, is_known)| is_known.then_some(k)).collect()
    }

    /// Sets the exit probabilities from pairs of points, given the cluster of every point.
    pub(crate) fn set_exits(&mut self, pairs: &Pairs, affiliation: &[u32]) {
        let mut sums = vec![[0.0; 2]; self.centroids.len()];
        for centroid in &mut self.centroids {
            centroid.pairs = 0;
        }
        for &(from, to) in &pairs.pairs {
            let k = affiliation[from as usize];
            let weight = pairs.points.weight(from as usize);
            self.centroids[k as usize].pairs += 1;
            sums[k as usize][0] += weight;
            if affiliation[to as usize] != k {
                sums[k as usize][1] += weight;
            }
        }
        for (centroid, [all, left]) in self.centroids.iter_mut().zip(sums) {
            centroid.exit = (all > 0.0).then(|| left / all);
        }
    }

    /// The statement of Theorem 4. None for fewer than two clusters.
    pub(crate) fn separation(&self) -> Option<Separation> {
        let mut least = f64::INFINITY;
        for (k, a) in self.centroids.iter().enumerate() {
            for b in self.centroids[..k].iter() {
                let weight = a.weight.min(b.weight);
                least = least.min(weight * square_distance(&a.center, &b.center));
            }
        }
        let (delta_1, delta_2) = (least.sqrt(), self.objective.sqrt());
        least.is_finite().then(|| Separation {
            delta_1,
            delta_2,
            is_separated: delta_1 > 4.0 * delta_2,
            bound: 16.0 * self.objective / least,
        })
    }
}

/// The index of the centre that is nearest to an embedded point, the first one on ties.
pub(crate) fn nearest<'a>(centers: impl Iterator<Item = &'a [f64]>, point: &[f64]) -> u32 {
    let mut best = (0, f64::INFINITY);
    for (k, center) in (0..).zip(centers) {
        let cost = square_distance(point, center);
        if cost < best.1 {
            best = (k, cost);
        }
    }
    best.0
}

/// The distance of an embedded point to the nearest centre.
pub(crate) fn nearest_distance<'a>(centers: impl Iterator<Item = &'a [f64]>, point: &[f64]) -> f64 {
    let squares = centers.map(|center| square_distance(point, center));
    squares.fold(f64::INFINITY, f64::min).sqrt()
}

/// Known sets against clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Confusion {
    /// The names of the sets.
    pub sets: Vec<String>,
    /// The weight of the points of each set in each cluster: sets × clusters, row-major.
    pub shared: Vec<f64>,
    /// The cluster that each set is matched with. None if there are fewer clusters.
    pub matched: Vec<Option<usize>>,
    /// The misclassification rate M: Σ_j of the share of set j outside its cluster, for the
    /// matching of sets and clusters where that is least. It is between 0 and the number of sets.
    pub rate: f64,
}

impl Confusion {
    /// Matches sets with clusters. `shared` is sets × clusters, row-major.
    pub(crate) fn new(sets: Vec<String>, shared: Vec<f64>) -> Confusion {
        let n = sets.len();
        let clusters = shared.len() / n.max(1);
        let m = n.max(clusters);
        let mut shares = vec![0.0; m * m];
        let (mut present, mut correct) = (0.0, 0.0);
        for (row, shares) in shared
            .chunks_exact(clusters.max(1))
            .zip(shares.chunks_exact_mut(m.max(1)))
        {
            let total: f64 = row.iter().sum();
            if total > 0.0 {
                present += 1.0;
                let of_set = shares.iter_mut().zip(row);
                of_set.for_each(|(share, weight)| *share = weight / total);
            }
        }
        let permutation = matching::maximise(&shares, m);
        for (i, j) in permutation.iter().enumerate().take(n) {
            correct += shares[i * m + j];
        }
        let matched = permutation.into_iter().take(n);
        Confusion {
            matched: matched.map(|j| (j < clusters).then_some(j)).collect(),
            rate: present - correct,
            sets,
            shared,
        }
    }

    /// The number of clusters.
    pub(crate) fn clusters(&self) -> usize {
        self.shared.len() / self.sets.len().max(1)
    }
}

/// The misclassification rate of points with known sets, see [`Confusion::rate`].
#[cfg(test)]
pub(crate) fn misclassification(sets: &[u32], clusters: &[u32], weights: Option<&[f64]>) -> f64 {
    let count = |labels: &[u32]| labels.iter().max().map_or(0, |k| *k as usize + 1);
    let (n, m) = (count(sets), count(clusters));
    let mut shared = vec![0.0; n * m];
    for (i, (set, cluster)) in sets.iter().zip(clusters).enumerate() {
        shared[*set as usize * m + *cluster as usize] += weights.map_or(1.0, |w| w[i]);
    }
    Confusion::new((0..n).map(|set| set.to_string()).collect(), shared).rate
}

fn square_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::points::Points;

    #[test]
    fn two_groups_of_points_are_two_clusters() {
        // Weights 1, 1, 2 around 0 and 1, 3 around 10.
        let embedded = [-1.0, 10.0, 0.0, 0.5, 11.0];
        let weights = [1.0, 1.0, 1.0, 2.0, 3.0];
        let mut clusters = cluster(&embedded, 1, Some(&weights), 2, 5, 0);
        assert_eq!(clusters.affiliation, [0, 1, 0, 0, 1]);
        let [a, b] = &clusters.centroids[..] else {
            panic!("two clusters");
        };
        assert_eq!((a.center[0], a.weight, a.nearest), (0.0, 0.5, 2));
        assert_eq!((b.center[0], b.weight, b.nearest), (10.75, 0.5, 4));
        // 1 + 2/4 around 0, (9 + 3)/16 around 10.75.
        assert!((clusters.objective - 2.25 / 8.0).abs() < 1e-14);
        let separation = clusters.separation().expect("two clusters");
        assert!(separation.is_separated);
        assert!((separation.delta_1 - 10.75 / 2f64.sqrt()).abs() < 1e-12);
        let bound = 16.0 * 2.25 / 8.0 / (10.75 * 10.75 / 2.0);
        assert!((separation.bound - bound).abs() < 1e-12);
        assert_eq!(clusters.assign(&[5.0, 6.0]), [0, 1]);
        let centers = || [&a.center[..], &b.center[..]].into_iter();
        assert_eq!(nearest_distance(centers(), &[5.0]), 5.0);
        assert_eq!(nearest_distance(centers(), &[6.0]), 4.75);

        let points = Points::new(1, vec![0.0; 5]).with_weights(weights.to_vec());
        let pairs = vec![(0, 1), (2, 3), (3, 0), (1, 4)];
        let affiliation = clusters.affiliation.clone();
        clusters.set_exits(&Pairs { points, pairs }, &affiliation);
        assert_eq!(clusters.centroids[0].exit, Some(0.25));
        assert_eq!(clusters.centroids[1].exit, Some(0.0));
        let sizes = clusters.centroids.iter().map(|c| [c.points, c.pairs]);
        assert_eq!(sizes.collect::<Vec<_>>(), [[3, 3], [2, 1]]);
        assert!(cluster(&embedded, 1, None, 1, 1, 0).separation().is_none());
    }

    #[test]
    fn misclassification_is_least_over_matchings() {
        let sets = [0, 0, 0, 0, 1, 1];
        assert_eq!(misclassification(&sets, &[1, 1, 1, 1, 0, 0], None), 0.0);
        assert_eq!(misclassification(&sets, &[1, 1, 1, 0, 0, 0], None), 0.25);
        assert_eq!(misclassification(&sets, &[0; 6], None), 1.0);
        let weights = [1.0, 1.0, 1.0, 5.0, 1.0, 1.0];
        let weighted = misclassification(&sets, &[1, 1, 1, 0, 0, 0], Some(&weights));
        assert_eq!(weighted, 0.625);
        // Two clusters for three sets: the set that is matched with none counts 1.
        let sets = ["a", "b", "c"].map(String::from).to_vec();
        let confusion = Confusion::new(sets, vec![1.0, 3.0, 9.0, 1.0, 1.0, 1.0]);
        assert_eq!(confusion.matched, [Some(1), Some(0), None]);
        assert!((confusion.rate - 1.35).abs() < 1e-15);
        assert_eq!(confusion.clusters(), 2);
    }
}
