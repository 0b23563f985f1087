//! Weighted points → k clusters: k-means++ seeding and Lloyd's iterations, the best of many restarts.
//!
//! In: n points of dimension d (row-major) and n positive weights. Out: a cluster for every point that makes the inertia
//! Σ_j w_j ‖x_j − c_γ(j)‖² small. Points are visited in fixed blocks whose sums are added in order, so the result depends on the seed
//! alone. Where there are fewer distinct points than clusters, the clusters left over stay empty.

use crate::math::sum;
use multiversion::multiversion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// Points whose sums are added one after another: fixed, because it decides the rounding.
const BLOCK: usize = 4096;

/// Centres whose distances are computed side by side.
const LANES: usize = 8;

/// Points nearer to a centre than this fraction of the largest norm, squared, do not become a centre of their own: singular
/// vectors of equal states differ by rounding.
const SAME: f64 = 1e-20;

#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Clusters k.
    pub clusters: usize,
    /// Independent seedings; the best is kept.
    pub restarts: usize,
    pub max_iterations: usize,
}

/// How one restart went.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// `fit` with this seed and a single restart repeats it.
    pub seed: u64,
    pub iterations: usize,
    /// Σ_j w_j ‖x_j − c_γ(j)‖² at the end.
    pub inertia: f64,
    /// Clusters without points at the end.
    pub empty: usize,
    /// Whether it stopped by itself, before `max_iterations`.
    pub converged: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Clustering {
    /// The cluster of every point in the best restart.
    pub affiliation: Vec<u32>,
    pub restarts: Vec<Restart>,
    /// The restart with the smallest inertia, the first such on ties.
    pub best: usize,
}

/// Clusters `points` (n × `dimension`, row-major).
pub fn fit(
    points: &[f64],
    dimension: usize,
    weights: &[f64],
    params: &Params,
    seed: u64,
) -> Clustering {
    assert!(params.clusters > 0, "a clustering needs a cluster");
    assert!(params.restarts > 0, "a fit needs a restart");
    assert_eq!(
        points.len(),
        weights.len() * dimension,
        "one weight a point of {dimension} coordinates"
    );
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    let largest = points
        .par_chunks(dimension)
        .map(norm)
        .reduce(|| 0.0, f64::max);
    let data = Data {
        points,
        dimension,
        weights,
        same: SAME * largest,
    };
    let mut ended: Vec<(Restart, Vec<u32>)> = (0..params.restarts)
        .into_par_iter()
        .map(|t| data.restart(params, super::restart_seed(seed, t)))
        .collect();
    let mut best = 0;
    for (t, (restart, _)) in ended.iter().enumerate() {
        if restart.inertia < ended[best].0.inertia {
            best = t;
        }
    }
    Clustering {
        affiliation: std::mem::take(&mut ended[best].1),
        restarts: ended.into_iter().map(|(restart, _)| restart).collect(),
        best,
    }
}

struct Data<'a> {
    points: &'a [f64],
    dimension: usize,
    weights: &'a [f64],
    /// Squared distances up to this are 0.
    same: f64,
}

/// Sums over one block of points.
struct Part {
    /// Σ w_j x_j of every cluster, then Σ w_j of every cluster.
    sums: Vec<f64>,
    inertia: f64,
    moved: bool,
}

impl Data<'_> {
    fn point(&self, j: usize) -> &[f64] {
        &self.points[j * self.dimension..][..self.dimension]
    }

    /// Squared distance, 0 for points that are the same up to rounding.
    fn distance(&self, j: usize, center: &[f64]) -> f64 {
        let terms = self.point(j).iter().zip(center);
        let distance: f64 = terms.map(|(x, c)| (x - c) * (x - c)).sum();
        if distance > self.same { distance } else { 0.0 }
    }

    fn restart(&self, params: &Params, seed: u64) -> (Restart, Vec<u32>) {
        let n = self.weights.len();
        let mut centers = self.seed_centers(params.clusters, &mut Pcg64::seed_from_u64(seed));
        let mut affiliation = vec![u32::MAX; n];
        let mut iterations = 0;
        loop {
            let part = self.assign(&centers, &mut affiliation);
            let (sums, weights) = part.sums.split_at(params.clusters * self.dimension);
            let stopped = !part.moved;
            if stopped || iterations == params.max_iterations {
                let restart = Restart {
                    seed,
                    iterations,
                    inertia: part.inertia,
                    empty: weights.iter().filter(|&&w| w == 0.0).count(),
                    converged: stopped,
                };
                return (restart, affiliation);
            }
            iterations += 1;
            let means = centers.chunks_exact_mut(self.dimension);
            let sums = sums.chunks_exact(self.dimension).zip(weights);
            for (mean, (sum, &weight)) in means.zip(sums).filter(|(_, (_, w))| **w > 0.0) {
                for (c, sum) in mean.iter_mut().zip(sum) {
                    *c = sum / weight;
                }
            }
            // A centre that lost its points restarts at the point that costs most: the inertia falls, so the loop ends.
            for k in (0..params.clusters).filter(|&k| weights[k] == 0.0) {
                if let Some(j) = self.costliest(&centers) {
                    centers[k * self.dimension..][..self.dimension].copy_from_slice(self.point(j));
                }
            }
        }
    }

    /// k-means++: every next centre is a point drawn with probability ∝ w_j min_c ‖x_j − c‖². Centres that no distinct point is
    /// left for are at infinity, where they win no point.
    fn seed_centers(&self, clusters: usize, rng: &mut Pcg64) -> Vec<f64> {
        let n = self.weights.len();
        let mut centers = vec![f64::INFINITY; clusters * self.dimension];
        let mut cost: Vec<f64> = self.weights.to_vec();
        let mut nearest = vec![f64::INFINITY; n];
        for k in 0..clusters {
            let total = sum::terms(n, |j| cost[j]);
            if total <= 0.0 {
                break;
            }
            let chosen = draw(&cost, rng.random::<f64>() * total);
            let center = &mut centers[k * self.dimension..][..self.dimension];
            center.copy_from_slice(self.point(chosen));
            let center = &*center;
            let points = nearest.par_iter_mut().zip(&mut cost).enumerate();
            points.with_min_len(BLOCK).for_each(|(j, (nearest, cost))| {
                *nearest = nearest.min(self.distance(j, center));
                *cost = self.weights[j] * *nearest;
            });
        }
        centers
    }

    /// The point with the largest w_j min_c ‖x_j − c‖², the first on ties; none if every point is a centre.
    fn costliest(&self, centers: &[f64]) -> Option<usize> {
        let cost = |j: usize| {
            let distances = centers
                .chunks_exact(self.dimension)
                .map(|c| self.distance(j, c));
            self.weights[j] * distances.fold(f64::INFINITY, f64::min)
        };
        let costs = (0..self.weights.len()).into_par_iter().with_min_len(BLOCK);
        let (cost, j) = costs.map(|j| (cost(j), j)).reduce(
            || (0.0, usize::MAX),
            |a, b| match a.0.total_cmp(&b.0) {
                std::cmp::Ordering::Less => b,
                std::cmp::Ordering::Greater => a,
                std::cmp::Ordering::Equal => (a.0, a.1.min(b.1)),
            },
        );
        (cost > 0.0).then_some(j)
    }

    /// Moves every point to its nearest centre, the lowest on ties, and adds up the clusters.
    fn assign(&self, centers: &[f64], affiliation: &mut [u32]) -> Part {
        let (d, clusters) = (self.dimension, centers.len() / self.dimension);
        // Lanes of centres, padded with centres at infinity: the loop over them vectorises and changes the order of no sum.
        let mut lanes = vec![[f64::INFINITY; LANES]; clusters.div_ceil(LANES) * d];
        for (at, &c) in centers.iter().enumerate() {
            let k = at / d;
            lanes[k / LANES * d + at % d][k % LANES] = c;
        }
        let parts: Vec<Part> = affiliation
            .par_chunks_mut(BLOCK)
            .enumerate()
            .map(|(b, block)| {
                let points = &self.points[b * BLOCK * d..][..block.len() * d];
                let weights = &self.weights[b * BLOCK..][..block.len()];
                assign_block(points, weights, d, clusters, &lanes, block)
            })
            .collect();
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap_or(Part {
            sums: vec![0.0; clusters * (d + 1)],
            inertia: 0.0,
            moved: false,
        });
        for part in parts {
            for (total, sum) in whole.sums.iter_mut().zip(part.sums) {
                *total += sum;
            }
            whole.inertia += part.inertia;
            whole.moved |= part.moved;
        }
        whole
    }
}

/// `lanes[g d + x][l]` is coordinate x of centre `g LANES + l`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn assign_block(
    points: &[f64],
    weights: &[f64],
    dimension: usize,
    clusters: usize,
    lanes: &[[f64; LANES]],
    affiliation: &mut [u32],
) -> Part {
    let mut part = Part {
        sums: vec![0.0; clusters * (dimension + 1)],
        inertia: 0.0,
        moved: false,
    };
    let (sums, masses) = part.sums.split_at_mut(clusters * dimension);
    let points = points.chunks_exact(dimension).zip(weights);
    for ((point, &weight), own) in points.zip(affiliation) {
        let (mut nearest, mut shortest) = (0, f64::INFINITY);
        for (group, centers) in lanes.chunks_exact(dimension).enumerate() {
            let mut distances = [0.0; LANES];
            for (x, centers) in point.iter().zip(centers) {
                for (distance, c) in distances.iter_mut().zip(centers) {
                    *distance += (x - c) * (x - c);
                }
            }
            for (l, &distance) in distances.iter().enumerate() {
                if distance < shortest {
                    (nearest, shortest) = (group * LANES + l, distance);
                }
            }
        }
        part.moved |= *own != nearest as u32;
        *own = nearest as u32;
        part.inertia += weight * shortest;
        for (sum, x) in sums[nearest * dimension..][..dimension]
            .iter_mut()
            .zip(point)
        {
            *sum += weight * x;
        }
        masses[nearest] += weight;
    }
    part
}

/// The first index where the running sum of `cost` passes `threshold`, and the last positive one if rounding keeps it below.
fn draw(cost: &[f64], threshold: f64) -> usize {
    let mut running = 0.0;
    let mut last = 0;
    for (j, &cost) in cost.iter().enumerate() {
        if cost > 0.0 {
            running += cost;
            last = j;
            if running > threshold {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(clusters: usize) -> Params {
        Params {
            clusters,
            restarts: 4,
            max_iterations: 100,
        }
    }

    #[test]
    fn three_heaps_on_a_line() {
        // Means 0.1, 10 and 20.5 weigh 2, 1 and 4, so the inertia is 2·0.01 + 0 + (1·0.75² + 3·0.25²).
        let points = [0.0, 20.25, 10.0, 0.2, 21.25];
        let fit = fit(&points, 1, &[1.0, 3.0, 1.0, 1.0, 1.0], &params(3), 7);
        let g = &fit.affiliation;
        assert!(g[0] == g[3] && g[1] == g[4] && g[0] != g[1] && g[0] != g[2] && g[1] != g[2]);
        let best = &fit.restarts[fit.best];
        assert!((best.inertia - 0.77).abs() < 1e-12, "{}", best.inertia);
        assert!(best.converged && best.empty == 0);
    }

    #[test]
    fn a_reported_seed_repeats_its_restart() {
        let points: Vec<f64> = (0..200).map(|i| (i as f64 * 1.7).sin()).collect();
        let many = fit(&points, 2, &[1.0; 100], &params(5), 3);
        let one = Params {
            restarts: 1,
            ..params(5)
        };
        let again = fit(&points, 2, &[1.0; 100], &one, many.restarts[many.best].seed);
        assert_eq!(again.affiliation, many.affiliation);
        assert_eq!(again.restarts[0], many.restarts[many.best]);
    }

    #[test]
    fn fewer_distinct_points_than_clusters() {
        // Two places, one of them only up to rounding: two clusters have points, two stay empty.
        let points = [1.0, 1.0 + 1e-15, 1.0, -3.0, -3.0];
        let fit = fit(&points, 1, &[1.0; 5], &params(4), 0);
        assert!(fit.restarts.iter().all(|r| r.converged && r.empty == 2));
        assert_eq!(fit.affiliation[0], fit.affiliation[1]);
        assert_ne!(fit.affiliation[0], fit.affiliation[3]);
        // All points at the origin: the smallest world of all.
        let zero = super::fit(&[0.0; 3], 1, &[1.0; 3], &params(2), 0);
        assert_eq!(zero.affiliation, [0, 0, 0]);
        assert_eq!(zero.restarts[0].empty, 1);
    }

    #[test]
    fn an_emptied_centre_takes_the_costliest_point() {
        let data = Data {
            points: &[0.0, 1.0, 5.0],
            dimension: 1,
            weights: &[1.0, 1.0, 0.1],
            same: 0.0,
        };
        assert_eq!(data.costliest(&[0.0, f64::INFINITY]), Some(2));
        assert_eq!(data.costliest(&[0.0, 1.0, 5.0]), None);
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let points: Vec<f64> = (0..30_000).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
        let weights: Vec<f64> = (0..10_000).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().expect("a pool");
            pool.install(|| fit(&points, 3, &weights, &params(6), 11))
        };
        assert_eq!(run(1), run(5));
    }
}
