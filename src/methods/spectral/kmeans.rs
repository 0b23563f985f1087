//! Weighted k-means: k-means++ seeding and Lloyd's iterations, the best of many restarts.
//!
//! In: n points of dimension d (row-major) and n positive weights. Out: a cluster for every point,
//! with a small inertia Σ_j w_j ‖x_j − c_γ(j)‖². The result depends on the seed alone. If there are
//! fewer distinct points than clusters, the remaining clusters stay empty.
//!
//! Every iteration assigns every point to its nearest centre, but computes few distances. When a
//! point was last compared with all centres, its own centre was nearer than any other by a margin.
//! After that, the margin shrank by at most the movement of its own centre and of any other one
//! (Hamerly, SIAM Data Mining 2010). As long as the margin is positive, the point stays. Points are
//! kept in groups of [`LANES`], the unit of margins and of distances.
//!
//! The sums of the clusters are integers and so exact: a point that moves is subtracted from one
//! sum and added to another, and neither the order nor the number of moves matters. A term is
//! rounded to 2⁻⁶¹ of the sum of all magnitudes.

use crate::math::matrix::first_largest;
use crate::math::seed::restart_seed;
use crate::math::sum;
use crate::methods::fit::Restart;
use multiversion::multiversion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// Points per group, whose distances are computed together.
const LANES: usize = 8;

/// Groups per partial sum of costs. It decides the rounding, so it is constant.
const BLOCK: usize = 512;

/// Points whose squared distance to a centre is below this fraction of the largest squared norm do
/// not become a centre: singular vectors of equal states differ by rounding.
const SAME: f64 = 1e-20;

/// The share of the lengths in a margin that is subtracted for rounding in f32 and in the
/// distances.
const SLACK: f64 = 1e-6;

/// The cluster of a point that has not been compared.
const NONE: u32 = u32::MAX;

/// The parameters of k-means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KMeans {
    /// The number of clusters, k.
    pub clusters: usize,
    /// Independent seedings, of which the best is kept.
    pub restarts: usize,
    /// The number of iterations after which a restart is stopped.
    pub max_iterations: usize,
}

/// Clusters of points.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clustering {
    /// The cluster of every point in the best restart.
    pub affiliation: Vec<u32>,
    /// All restarts, in order.
    pub restarts: Vec<Restart>,
    /// The restart with the smallest inertia, the first one on ties.
    pub best: usize,
}

/// Clusters `points` (n × `dimension`, row-major).
pub(crate) fn fit(
    points: &[f64],
    dimension: usize,
    weights: &[f64],
    params: &KMeans,
    seed: u64,
) -> Clustering {
    assert!(params.clusters > 0, "a clustering needs a cluster");
    assert!(params.restarts > 0, "a fit needs a restart");
    assert_eq!(
        points.len(),
        weights.len() * dimension,
        "one weight a point of {dimension} coordinates"
    );
    let data = Data::new(points, dimension, weights);
    let ended: Vec<(Restart, Vec<u32>)> = (0..params.restarts)
        .into_par_iter()
        .map(|t| data.restart(params, restart_seed(seed, t)))
        .collect();
    let best = first_largest(ended.iter().map(|(restart, _)| -restart.objective));
    let (restarts, mut affiliations): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
    Clustering {
        affiliation: std::mem::take(&mut affiliations[best]),
        restarts,
        best,
    }
}

/// One number for each point of a group.
type Lanes<T> = [T; LANES];

struct Data {
    n: usize,
    dimension: usize,
    /// Coordinate x of the points of group g is at `g d + x`. The last group is filled with points
    /// of weight zero.
    points: Vec<Lanes<f64>>,
    weights: Vec<Lanes<f64>>,
    /// Squared distances up to this are 0.
    same: f64,
    /// w_j x_j and w_j, times these, are integers whose sums do not overflow.
    moment_scale: f64,
    weight_scale: f64,
}

impl Data {
    fn new(points: &[f64], dimension: usize, weights: &[f64]) -> Data {
        let n = weights.len();
        let point = |j: usize| &points[j * dimension..][..dimension];
        let groups = n.div_ceil(LANES);
        let mut lanes = vec![[0.0; LANES]; groups * dimension];
        lanes
            .par_chunks_mut(dimension)
            .zip(points.par_chunks(LANES * dimension))
            .for_each(|(lanes, points)| {
                for (l, point) in points.chunks_exact(dimension).enumerate() {
                    for (lanes, x) in lanes.iter_mut().zip(point) {
                        lanes[l] = *x;
                    }
                }
            });
        let mut weight_lanes = vec![[0.0; LANES]; groups];
        weight_lanes.as_flattened_mut()[..n].copy_from_slice(weights);
        let norm = |j: usize| point(j).iter().map(|x| x * x).sum::<f64>();
        let largest = (0..n).into_par_iter().map(norm).reduce(|| 0.0, f64::max);
        let magnitude = |j: usize| point(j).iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        Data {
            n,
            dimension,
            points: lanes,
            weights: weight_lanes,
            same: SAME * largest,
            moment_scale: integer_scale(sum::terms(n, |j| weights[j] * magnitude(j))),
            weight_scale: integer_scale(sum::terms(n, |j| weights[j])),
        }
    }

    fn copy_point(&self, j: usize, center: &mut [f64]) {
        let lanes = &self.points[j / LANES * self.dimension..];
        for (c, lanes) in center.iter_mut().zip(lanes) {
            *c = lanes[j % LANES];
        }
    }

    fn restart(&self, params: &KMeans, seed: u64) -> (Restart, Vec<u32>) {
        let (d, clusters) = (self.dimension, params.clusters);
        let mut centers = self.seed_centers(clusters, &mut Pcg64::seed_from_u64(seed));
        let mut labels = vec![[NONE; LANES]; self.weights.len()];
        let mut margins = vec![[f32::NEG_INFINITY; LANES]; self.weights.len()];
        let mut used = vec![0.0; clusters];
        let mut sums = Sums::new(clusters, d);
        let mut iterations = 0;
        let converged = loop {
            let change = self.assign(&centers, &used, &mut labels, &mut margins);
            let stopped = !change.moved;
            sums = sums + change;
            if stopped || iterations == params.max_iterations {
                break stopped;
            }
            iterations += 1;
            let before = centers.clone();
            let unit = self.weight_scale / self.moment_scale;
            for (k, mean) in centers.chunks_exact_mut(d).enumerate() {
                if sums.masses[k] > 0 {
                    for (c, moment) in mean.iter_mut().zip(&sums.moments[k * d..]) {
                        *c = *moment as f64 / sums.masses[k] as f64 * unit;
                    }
                }
            }
            // A centre without points restarts at the point with the largest cost. The inertia
            // falls, so the loop ends.
            for k in (0..clusters).filter(|&k| sums.masses[k] == 0) {
                if let Some(j) = self.costliest(&centers) {
                    self.copy_point(j, &mut centers[k * d..][..d]);
                }
            }
            if !use_margins(&before, &centers, d, &mut used) {
                margins.as_flattened_mut().fill(f32::NEG_INFINITY);
                used.fill(0.0);
            }
        };
        let restart = Restart {
            seed,
            init: None,
            sources: self.n,
            iterations,
            evaluations: None,
            objective: self.inertia(&centers),
            empty_states: sums.masses.iter().filter(|&&m| m == 0).count(),
            converged,
        };
        let mut affiliation: Vec<u32> = labels.into_flattened();
        affiliation.truncate(self.n);
        (restart, affiliation)
    }

    /// k-means++: every next centre is a point drawn with probability ∝ w_j min_c ‖x_j − c‖². If no
    /// distinct point is left, the centre is at infinity, where it is nearest to no point.
    fn seed_centers(&self, clusters: usize, rng: &mut Pcg64) -> Vec<f64> {
        let mut centers = vec![f64::INFINITY; clusters * self.dimension];
        let mut cost = self.weights.clone();
        let mut nearest = vec![[f64::INFINITY; LANES]; self.weights.len()];
        let mut costs: Vec<f64> = cost.par_chunks(BLOCK).map(total).collect();
        for center in centers.chunks_exact_mut(self.dimension) {
            let all: f64 = costs.iter().sum();
            if all <= 0.0 {
                break;
            }
            self.copy_point(draw(&costs, &cost, rng.random::<f64>() * all), center);
            let center = &*center;
            costs = nearest
                .par_chunks_mut(BLOCK)
                .zip(cost.par_chunks_mut(BLOCK))
                .zip(self.points.par_chunks(BLOCK * self.dimension))
                .zip(self.weights.par_chunks(BLOCK))
                .map(|(((nearest, cost), points), weights)| {
                    approach(points, weights, center, self.same, nearest, cost);
                    total(cost)
                })
                .collect();
        }
        centers
    }

    /// The point with the largest w_j min_c ‖x_j − c‖², the first one on ties. None if every point
    /// is a centre.
    fn costliest(&self, centers: &[f64]) -> Option<usize> {
        let costs = self.points.par_chunks(self.dimension).zip(&self.weights);
        let (cost, j) = costs
            .enumerate()
            .map(|(g, (points, weights))| {
                let (_, nearest, _) = compare(points, centers, self.dimension);
                let mut largest = (0.0, usize::MAX);
                for (l, (nearest, weight)) in nearest.iter().zip(weights).enumerate() {
                    if *nearest > self.same && weight * nearest > largest.0 {
                        largest = (weight * nearest, g * LANES + l);
                    }
                }
                largest
            })
            .reduce(
                || (0.0, usize::MAX),
                |a, b| match a.0.total_cmp(&b.0) {
                    std::cmp::Ordering::Less => b,
                    std::cmp::Ordering::Greater => a,
                    std::cmp::Ordering::Equal => (a.0, a.1.min(b.1)),
                },
            );
        (cost > 0.0).then_some(j)
    }

    /// Σ_j w_j min_c ‖x_j − c‖².
    fn inertia(&self, centers: &[f64]) -> f64 {
        let parts: Vec<f64> = self
            .points
            .par_chunks(BLOCK * self.dimension)
            .zip(self.weights.par_chunks(BLOCK))
            .map(|(points, weights)| inertia_block(points, weights, centers, self.dimension))
            .collect();
        parts.iter().sum()
    }

    /// Assigns every point to its nearest centre, the lowest one on ties. Returns the change of the
    /// sums.
    fn assign(
        &self,
        centers: &[f64],
        used: &[f64],
        labels: &mut [Lanes<u32>],
        margins: &mut [Lanes<f32>],
    ) -> Sums {
        let clusters = used.len();
        labels
            .par_chunks_mut(BLOCK)
            .zip(margins.par_chunks_mut(BLOCK))
            .zip(self.points.par_chunks(BLOCK * self.dimension))
            .zip(self.weights.par_chunks(BLOCK))
            .fold(
                || Sums::new(clusters, self.dimension),
                |mut change, (((labels, margins), points), weights)| {
                    let block = Block {
                        points,
                        weights,
                        scales: (self.moment_scale, self.weight_scale),
                    };
                    assign_block(&block, centers, used, labels, margins, &mut change);
                    change
                },
            )
            .reduce(|| Sums::new(clusters, self.dimension), |a, b| a + b)
    }
}

/// The largest power of two by which terms with this sum of magnitudes become integers whose sums
/// do not overflow.
fn integer_scale(sum: f64) -> f64 {
    let scale = (2f64.powi(61) / sum).min(f64::MAX);
    f64::from_bits(scale.to_bits() & f64::INFINITY.to_bits())
}

/// Integer sums over the points of every cluster, or changes of them.
struct Sums {
    /// Σ w_j x_j, clusters × d.
    moments: Vec<i64>,
    /// Σ w_j.
    masses: Vec<i64>,
    /// Whether the last step moved a point.
    moved: bool,
}

impl Sums {
    fn new(clusters: usize, dimension: usize) -> Sums {
        Sums {
            moments: vec![0; clusters * dimension],
            masses: vec![0; clusters],
            moved: false,
        }
    }
}

impl std::ops::Add for Sums {
    type Output = Sums;

    fn add(mut self, step: Sums) -> Sums {
        for (sum, step) in self.moments.iter_mut().zip(step.moments) {
            *sum += step;
        }
        for (sum, step) in self.masses.iter_mut().zip(step.masses) {
            *sum += step;
        }
        self.moved |= step.moved;
        self
    }
}

/// Adds to `used` the decrease of the margin of every cluster by a step of the centres: the
/// movement of its own centre plus the largest movement of another one. False if a centre came from
/// infinity.
fn use_margins(before: &[f64], after: &[f64], dimension: usize, used: &mut [f64]) -> bool {
    let ways: Vec<f64> = before
        .chunks_exact(dimension)
        .zip(after.chunks_exact(dimension))
        .map(|(a, b)| {
            let steps = a.iter().zip(b).filter(|(a, b)| a != b);
            steps.map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
        })
        .collect();
    let (mut longest, mut second, mut who) = (0.0, 0.0, 0);
    for (k, &way) in ways.iter().enumerate() {
        if way > longest {
            (second, longest, who) = (longest, way, k);
        } else if way > second {
            second = way;
        }
    }
    for (k, (used, way)) in used.iter_mut().zip(&ways).enumerate() {
        *used += way + if k == who { second } else { longest };
    }
    longest.is_finite()
}

/// Σ over some groups, lane by lane.
fn total(cost: &[Lanes<f64>]) -> f64 {
    let mut sums = [0.0; LANES];
    for cost in cost {
        for (sum, cost) in sums.iter_mut().zip(cost) {
            *sum += cost;
        }
    }
    sums.iter().sum()
}

/// Squared distances of the points of a group to a centre.
#[inline(always)]
fn distances(points: &[Lanes<f64>], center: &[f64]) -> Lanes<f64> {
    let mut distances = [0.0; LANES];
    for (x, c) in points.iter().zip(center) {
        for (distance, x) in distances.iter_mut().zip(x) {
            *distance += (x - c) * (x - c);
        }
    }
    distances
}

/// The nearest centre of every point of a group, the lowest one on ties, and the two smallest
/// squared distances.
#[inline(always)]
fn compare(
    points: &[Lanes<f64>],
    centers: &[f64],
    dimension: usize,
) -> (Lanes<u32>, Lanes<f64>, Lanes<f64>) {
    let mut label = [0u64; LANES];
    let (mut first, mut second) = ([f64::INFINITY; LANES], [f64::INFINITY; LANES]);
    for (k, center) in centers.chunks_exact(dimension).enumerate() {
        let distances = distances(points, center);
        for l in 0..LANES {
            let is_first = distances[l] < first[l];
            let other = if is_first { first[l] } else { distances[l] };
            label[l] = if is_first { k as u64 } else { label[l] };
            first[l] = if is_first { distances[l] } else { first[l] };
            second[l] = if other < second[l] { other } else { second[l] };
        }
    }
    (label.map(|k| k as u32), first, second)
}

/// Updates the squared distance to the nearest centre by a new centre. It is 0 for points that are
/// equal up to rounding.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn approach(
    points: &[Lanes<f64>],
    weights: &[Lanes<f64>],
    center: &[f64],
    same: f64,
    nearest: &mut [Lanes<f64>],
    cost: &mut [Lanes<f64>],
) {
    let points = points.chunks_exact(center.len()).zip(weights);
    for ((points, weights), (nearest, cost)) in points.zip(nearest.iter_mut().zip(cost)) {
        let distances = distances(points, center);
        for l in 0..LANES {
            let distance = if distances[l] > same {
                distances[l]
            } else {
                0.0
            };
            nearest[l] = if distance < nearest[l] {
                distance
            } else {
                nearest[l]
            };
            cost[l] = weights[l] * nearest[l];
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn inertia_block(
    points: &[Lanes<f64>],
    weights: &[Lanes<f64>],
    centers: &[f64],
    dimension: usize,
) -> f64 {
    let mut sums = [0.0; LANES];
    for (points, weights) in points.chunks_exact(dimension).zip(weights) {
        let (_, nearest, _) = compare(points, centers, dimension);
        for l in 0..LANES {
            sums[l] += weights[l] * nearest[l];
        }
    }
    sums.iter().sum()
}

/// Some groups of points.
struct Block<'a> {
    points: &'a [Lanes<f64>],
    weights: &'a [Lanes<f64>],
    /// The scales of moments and of masses.
    scales: (f64, f64),
}

/// `assign` for some groups, added to `change`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn assign_block(
    block: &Block,
    centers: &[f64],
    used: &[f64],
    labels: &mut [Lanes<u32>],
    margins: &mut [Lanes<f32>],
    change: &mut Sums,
) {
    let d = centers.len() / used.len();
    let needed: Vec<f32> = used.iter().map(|u| (u * (1.0 + SLACK)) as f32).collect();
    let points = block.points.chunks_exact(d).zip(block.weights);
    for ((points, weights), (labels, margins)) in points.zip(labels.iter_mut().zip(margins)) {
        let mut stay = true;
        for l in 0..LANES {
            // The margin of a point without a cluster is below every limit.
            let needed = needed.get(labels[l] as usize).unwrap_or(&0.0);
            stay &= margins[l] > *needed;
        }
        if stay {
            continue;
        }
        let (nearest, first, second) = compare(points, centers, d);
        for l in 0..LANES {
            let (to, from) = (nearest[l] as usize, labels[l] as usize);
            let margin =
                (second[l].sqrt() + used[to]) * (1.0 - SLACK) - first[l].sqrt() * (1.0 + SLACK);
            margins[l] = margin as f32;
            if to == from {
                continue;
            }
            labels[l] = nearest[l];
            for (x, points) in points.iter().enumerate() {
                let moment = (weights[l] * points[l] * block.scales.0) as i64;
                change.moments[to * d + x] += moment;
                if from < used.len() {
                    change.moments[from * d + x] -= moment;
                }
            }
            let mass = (weights[l] * block.scales.1).ceil() as i64;
            // The points that fill a group have no weight and are not counted.
            change.moved |= mass > 0;
            change.masses[to] += mass;
            if from < used.len() {
                change.masses[from] -= mass;
            }
        }
    }
}

/// The first point at which the running sum of `cost` passes `threshold`, or the last positive one
/// if rounding keeps the sum below. `costs` are the totals of its blocks.
fn draw(costs: &[f64], cost: &[Lanes<f64>], threshold: f64) -> usize {
    let mut running = 0.0;
    let mut last = 0;
    for (b, (all, block)) in costs.iter().zip(cost.chunks(BLOCK)).enumerate() {
        if running + all <= threshold && costs[b + 1..].iter().any(|c| *c > 0.0) {
            running += all;
            continue;
        }
        for (j, &cost) in block.as_flattened().iter().enumerate() {
            if cost > 0.0 {
                running += cost;
                last = b * BLOCK * LANES + j;
                if running > threshold {
                    return last;
                }
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::on_threads;

    fn params(clusters: usize) -> KMeans {
        KMeans {
            clusters,
            restarts: 4,
            max_iterations: 100,
        }
    }

    #[test]
    fn three_heaps_on_a_line() {
        // Means 0.1, 10 and 20.5 weigh 2, 1 and 4, so the inertia is 2·0.01 + 0 + (1·0.75² +
        // 3·0.25²).
        let points = [0.0, 20.25, 10.0, 0.2, 21.25];
        let fit = fit(&points, 1, &[1.0, 3.0, 1.0, 1.0, 1.0], &params(3), 7);
        let g = &fit.affiliation;
        assert!(g[0] == g[3] && g[1] == g[4] && g[0] != g[1] && g[0] != g[2] && g[1] != g[2]);
        let best = &fit.restarts[fit.best];
        assert!((best.objective - 0.77).abs() < 1e-12, "{}", best.objective);
        assert!(best.converged && best.empty_states == 0);
    }

    /// Lloyd's iterations with all distances and new sums in every step: affiliation, iterations
    /// and inertia.
    fn plain(
        points: &[f64],
        d: usize,
        weights: &[f64],
        centers: &mut [f64],
    ) -> (Vec<u32>, usize, f64) {
        let mut labels = vec![NONE; weights.len()];
        for iterations in 0.. {
            let (mut moved, mut inertia) = (false, 0.0);
            let mut sums = vec![vec![0.0; d + 1]; centers.len() / d];
            for ((point, weight), label) in points.chunks(d).zip(weights).zip(&mut labels) {
                let squares = centers
                    .chunks(d)
                    .map(|c| -> f64 { point.iter().zip(c).map(|(x, c)| (x - c) * (x - c)).sum() });
                let (k, square) = squares
                    .enumerate()
                    .min_by(|a, b| a.1.total_cmp(&b.1))
                    .expect("a centre");
                moved |= *label != k as u32;
                *label = k as u32;
                inertia += weight * square;
                for (sum, x) in sums[k].iter_mut().zip(point.iter().chain(&[1.0])) {
                    *sum += weight * x;
                }
            }
            if !moved {
                return (labels, iterations, inertia);
            }
            for (center, sums) in centers.chunks_mut(d).zip(sums) {
                for (c, sum) in center.iter_mut().zip(&sums) {
                    *c = sum / sums[d];
                }
            }
        }
        unreachable!("the loop ends where nothing moves")
    }

    #[test]
    fn margins_change_no_affiliation() {
        let (n, d) = (5003, 3);
        let points: Vec<f64> = (0..n * d)
            .map(|i| ((i * i) as f64 * 0.37).sin() + (i / d % 7) as f64 * 0.4)
            .collect();
        let weights: Vec<f64> = (0..n).map(|i| 1.0 / (1.0 + i as f64)).collect();
        for clusters in [1, 2, 9, 17] {
            let data = Data::new(&points, d, &weights);
            let (fast, affiliation) = data.restart(&params(clusters), 5);
            let mut centers = data.seed_centers(clusters, &mut Pcg64::seed_from_u64(5));
            let (labels, iterations, inertia) = plain(&points, d, &weights, &mut centers);
            assert_eq!(affiliation, labels);
            assert_eq!((fast.iterations, fast.empty_states), (iterations, 0));
            assert!((fast.objective - inertia).abs() < 1e-12 * inertia);
        }
    }

    #[test]
    fn a_reported_seed_repeats_its_restart() {
        let points: Vec<f64> = (0..200).map(|i| (i as f64 * 1.7).sin()).collect();
        let many = fit(&points, 2, &[1.0; 100], &params(5), 3);
        let one = KMeans {
            restarts: 1,
            ..params(5)
        };
        let again = fit(&points, 2, &[1.0; 100], &one, many.restarts[many.best].seed);
        assert_eq!(again.affiliation, many.affiliation);
        assert_eq!(again.restarts[0], many.restarts[many.best]);
    }

    #[test]
    fn fewer_distinct_points_than_clusters() {
        // Two distinct points, one of them up to rounding: two clusters have points, two stay
        // empty.
        let points = [1.0, 1.0 + 1e-15, 1.0, -3.0, -3.0];
        let fit = fit(&points, 1, &[1.0; 5], &params(4), 0);
        let mut restarts = fit.restarts.iter();
        assert!(restarts.all(|r| r.converged && r.empty_states == 2));
        assert_eq!(fit.affiliation[0], fit.affiliation[1]);
        assert_ne!(fit.affiliation[0], fit.affiliation[3]);
        // All points are at the origin.
        let zero = super::fit(&[0.0; 3], 1, &[1.0; 3], &params(2), 0);
        assert_eq!(zero.affiliation, [0, 0, 0]);
        assert_eq!(zero.restarts[0].empty_states, 1);
    }

    #[test]
    fn an_emptied_centre_takes_the_costliest_point() {
        let data = Data::new(&[0.0, 1.0, 5.0], 1, &[1.0, 1.0, 0.1]);
        assert_eq!(data.costliest(&[0.0, f64::INFINITY]), Some(2));
        assert_eq!(data.costliest(&[0.0, 1.0, 5.0]), None);
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let points: Vec<f64> = (0..30_000).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
        let weights: Vec<f64> = (0..10_000).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let run = |threads| on_threads(threads, || fit(&points, 3, &weights, &params(6), 11));
        assert_eq!(run(1), run(5));
    }
}
