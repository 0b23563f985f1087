//! Closed forms, invariances and the figures of the paper (*heat kernel*, Section 5).

use crate::error::Kind;
use crate::evidence::counts::Counts;
use crate::evidence::pass::Passes;
use crate::evidence::points::Points;
use crate::math::testing::{close, on_threads, says};
use crate::methods::columns::Axis;
use crate::methods::heat_kernel::chain::{self, Chain};
use crate::methods::heat_kernel::fit::{self, Embedded};
use crate::methods::heat_kernel::kernel::{Kernel, Reach};
use crate::methods::heat_kernel::neighbours::Distinct;
use crate::methods::heat_kernel::normalise::{self, Normalisation, Normalised};
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::{
    All, ChainKernel, Connected, DiffusionMap, Epsilon, HeatSketch, Neighbours, OneOrMore,
};
use crate::methods::heat_kernel::sketch::{self, Distribution};
use crate::methods::heat_kernel::warning::Warning;
use crate::methods::heat_kernel::{diffusion_map, distortion, eigen, kernel, random};
use crate::methods::spectral::truncated_svd;
use std::f64::consts::TAU;

mod trials;

const ALL: Option<Neighbours> = Some(Neighbours::All(All::All));

const NORMALISATIONS: [Normalisation; 3] = [
    Normalisation::Symmetric,
    Normalisation::Stochastic,
    Normalisation::Bistochastic,
];

fn uniform(seed: u64, i: usize) -> f64 {
    random::uniform(random::hash(seed, i as u64))
}

fn points_of<const D: usize>(n: usize, point: impl Fn(usize) -> [f64; D]) -> Points {
    Points::new(D, (0..n).flat_map(point).collect())
}

fn circle(seed: u64, n: usize) -> Points {
    points_of(n, |i| {
        let a = TAU * uniform(seed, i);
        [a.cos(), a.sin()]
    })
}

fn torus(seed: u64, n: usize) -> Points {
    let [first, second] = [1, 2].map(|s| random::hash(seed, s));
    points_of(n, |i| {
        let (u, v) = (TAU * uniform(first, i), TAU * uniform(second, i));
        [u.cos(), u.sin(), 3.5 * v.cos(), 3.5 * v.sin()]
    })
}

fn klein_bottle(seed: u64, n: usize) -> Points {
    let [first, second] = [1, 2].map(|s| random::hash(seed, s));
    points_of(n, |i| {
        let (u, v) = (TAU * uniform(first, i), TAU * uniform(second, i));
        let (r, h) = (10.0 + 5.0 * v.cos(), 5.0 * v.sin());
        let (s, c) = (u / 2.0).sin_cos();
        [r * u.cos(), r * u.sin(), h * c, h * s]
    })
}

fn outliers(seed: u64, n: usize) -> Points {
    let mut points = circle(seed, n - 2);
    points.coordinates.extend([0.0, 3.0, 3.0, 0.0]);
    points
}

/// λ_m of the circulant kernel of a regular n-gon.
fn circulant(n: usize, epsilon: f64, radius: f64) -> Vec<f64> {
    let entry = |j: usize| {
        let s = (TAU / 2.0 * j as f64 / n as f64).sin();
        (-4.0 * radius * radius * s * s / epsilon).exp()
    };
    let sum: f64 = (0..n).map(entry).sum();
    let value = |m: usize| {
        let term = |j: usize| entry(j) * (TAU * (j * m % n) as f64 / n as f64).cos();
        (0..n).map(term).sum::<f64>() / sum
    };
    (0..n).map(value).collect()
}

fn full(normalisation: Normalisation, epsilon: f64, dimension: usize) -> DiffusionMap {
    DiffusionMap {
        normalisation,
        neighbours: ALL,
        epsilon: Epsilon::Given(epsilon),
        ..DiffusionMap::new(dimension)
    }
}

fn nearest(neighbours: usize, dimension: usize) -> DiffusionMap {
    DiffusionMap {
        neighbours: Some(Neighbours::Nearest(neighbours)),
        ..DiffusionMap::new(dimension)
    }
}

fn refusal(points: &Points, params: &DiffusionMap) -> String {
    let fitted = fit::diffusion_map(points, params, 1);
    fitted.unwrap_err().to_string()
}

fn assert_values(found: &Embedded, mut expected: Vec<f64>, accuracy: f64) {
    expected.sort_by(|a, b| b.total_cmp(a));
    let values: Vec<f64> = found
        .model
        .spectrum
        .iter()
        .map(|level| level.value)
        .collect();
    close(&values, &expected[..values.len()], accuracy);
}

#[test]
fn regular_polygons_are_circulant() {
    for n in [60, 700] {
        let polygon = points_of(n, |i| {
            let a = TAU * i as f64 / n as f64;
            [a.cos(), a.sin()]
        });
        for normalisation in NORMALISATIONS {
            let found = fit::diffusion_map(&polygon, &full(normalisation, 0.25, 6), 1).unwrap();
            assert_values(&found, circulant(n, 0.25, 1.0), 1e-10);
            // A circle, which the first two coordinates are.
            let rows = found.rows_of(&polygon);
            let squares = rows.chunks(6).map(|row| row[0].powi(2) + row[1].powi(2));
            let squares: Vec<f64> = squares.collect();
            assert!(squares.iter().all(|s| (s / squares[0] - 1.0).abs() < 1e-6));
        }
        // The kernel of neighbours of a polygon is circulant, too.
        let sparse = DiffusionMap {
            radius: Some(0.97),
            neighbours: None,
            ..full(Normalisation::Bistochastic, 0.25, 2)
        };
        let found = fit::diffusion_map(&polygon, &sparse, 1).unwrap();
        assert!((found.model.spectrum[1].value - found.model.spectrum[2].value).abs() < 1e-7);
    }
}

#[test]
fn torus_grids_are_products_of_circulants() {
    let (n, m) = (24, 36);
    let grid = points_of(n * m, |i| {
        let (u, v) = (
            TAU * (i / m) as f64 / n as f64,
            TAU * (i % m) as f64 / m as f64,
        );
        [u.cos(), u.sin(), 2.0 * v.cos(), 2.0 * v.sin()]
    });
    let (small, large) = (circulant(n, 0.5, 1.0), circulant(m, 0.5, 2.0));
    let all = small.iter().flat_map(|a| large.iter().map(move |b| a * b));
    let found = fit::diffusion_map(&grid, &full(Normalisation::Symmetric, 0.5, 12), 1).unwrap();
    assert_values(&found, all.collect(), 1e-10);
}

#[test]
fn two_blocks_have_a_closed_form() {
    // Two points of weights a and b are blocks of copies.
    let (a, b, c) = (3.0, 2.0, (-1.0f64).exp());
    for alpha in [0.0, 0.5, 1.0] {
        let (q1, q2) = (a + b * c, a * c + b);
        let power = |q: f64| q.powf(-alpha);
        let (k11, k22, k12) = (power(q1 * q1), power(q2 * q2), c * power(q1 * q2));
        let (v1, v2) = (a * k11 + b * k12, a * k12 + b * k22);
        let expected = a * k11 / v1 + b * k22 / v2 - 1.0;
        let params = DiffusionMap {
            alpha,
            ..full(Normalisation::Symmetric, 1.0, 4)
        };
        let weighted = Points::new(1, vec![0.0, 1.0]).with_weights(vec![a, b]);
        let copies = Points::new(1, vec![1.0, 0.0, 0.0, 1.0, 0.0]);
        for points in [&weighted, &copies] {
            let found = fit::diffusion_map(points, &params, 1).unwrap();
            assert_eq!(found.model.spectrum.len(), 2);
            assert!((found.model.spectrum[1].value - expected).abs() < 1e-14);
        }
        // The eigenvector of all copies has length λ for time 1.
        let found = fit::diffusion_map(&copies, &params, 1).unwrap();
        let squares = found.rows_of(&copies).iter().map(|x| x * x).sum::<f64>();
        let length = squares.sqrt();
        assert!((length - expected.abs()).abs() < 1e-14);
    }
}

fn kernel_of(points: &Points, epsilon: f64) -> Kernel {
    Kernel::dense(Distinct::new(points), epsilon)
}

#[test]
fn damped_scaling_takes_few_products() {
    for (points, epsilon, most) in [
        (circle(1, 300), 0.25, 25),
        (torus(1, 500), 0.3, 30),
        (klein_bottle(1, 500), 2.0, 40),
    ] {
        let kernel = kernel_of(&points, epsilon);
        let factors = normalise::factors(&kernel, Normalisation::Bistochastic, 1.0, 1e-8);
        assert!(factors.products <= most, "{} products", factors.products);
        assert!(factors.row_error <= 1e-8);
        let operator = Normalised::new(&kernel, &factors);
        let ones = vec![1.0; operator.n()];
        let mut sums = ones.clone();
        operator.apply(&ones, 1, &mut sums);
        assert!(sums.iter().all(|s| (s - 1.0).abs() <= 1.1e-8));
    }
}

#[test]
fn sketches_have_the_moments_of_the_diffusion_distance() {
    let kernel = kernel_of(&circle(3, 20), 0.5);
    let (power, columns) = (3, 40_000);
    let names: Vec<u64> = (0..20).collect();
    for normalisation in [Normalisation::Symmetric, Normalisation::Bistochastic] {
        let factors = normalise::factors(&kernel, normalisation, 1.0, 1e-10);
        let operator = Normalised::new(&kernel, &factors);
        // Rows of Aᵖ without the leading eigenvector.
        let pairs = eigen::leading(&operator, 20, 0.0, 1);
        let entry = |i: usize, j: usize| -> f64 {
            let term = |k: usize| {
                let vectors = pairs.vectors[i * 20 + k] * pairs.vectors[j * 20 + k];
                pairs.values[k].powi(power as i32) * vectors
            };
            (1..20).map(term).sum()
        };
        for distribution in [Distribution::Gaussian, Distribution::Bernoulli] {
            let found = sketch::sweep(&operator, &names, &[power], columns, distribution, 5);
            for (x, y) in [(0, 1), (0, 10), (7, 13)] {
                let row = |i: usize| &found[0].rows[i * columns..][..columns];
                let terms = row(x).iter().zip(row(y));
                let squares: Vec<f64> = terms
                    .map(|(a, b)| (a - b).powi(2) * columns as f64)
                    .collect();
                let mean = squares.iter().sum::<f64>() / columns as f64;
                let spread = squares.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
                let spread = spread / columns as f64;
                let delta: Vec<f64> = (0..20).map(|j| entry(x, j) - entry(y, j)).collect();
                let square: f64 = delta.iter().map(|d| d * d).sum();
                let fourth: f64 = delta.iter().map(|d| d.powi(4)).sum();
                let expected = match distribution {
                    Distribution::Gaussian => 2.0 * square * square,
                    Distribution::Bernoulli => 2.0 * (square * square - fourth),
                };
                let error = (expected / columns as f64).sqrt();
                assert!((mean - square).abs() < 5.0 * error, "{mean} for {square}");
                assert!(
                    (spread / expected - 1.0).abs() < 0.1,
                    "{spread} for {expected}"
                );
            }
        }
    }
}

#[test]
fn energies_agree_with_other_draws() {
    let sketch = HeatSketch {
        power: OneOrMore::More(vec![1, 2, 8, 16]),
        neighbours: Some(Neighbours::Nearest(20)),
        ..HeatSketch::new(16)
    };
    let found = fit::heat_sketch(&torus(4, 2000), &sketch, 1).unwrap();
    assert_eq!(found.model.energies.len(), 3);
    for energy in &found.model.energies {
        let difference = (energy.sketch - energy.other).abs();
        assert!(difference < 0.5 * energy.spread, "{energy:?}");
        assert!(energy.spread < 4.0 * energy.sketch + 60.0, "{energy:?}");
    }
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let size = a.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / size
}

#[test]
fn rows_of_the_points_come_back() {
    let mut points = torus(5, 400);
    points.weights = Some((0..400).map(|i| 0.5 + uniform(9, i)).collect());
    for normalisation in NORMALISATIONS {
        let alphas: &[f64] = match normalisation {
            Normalisation::Bistochastic => &[1.0],
            _ => &[1.0, 0.5, 0.0],
        };
        for &alpha in alphas {
            for reach in 0..4 {
                let map = DiffusionMap {
                    alpha,
                    time: OneOrMore::More(vec![1.0, 3.5]),
                    neighbours: [ALL, None, Some(Neighbours::Nearest(30)), None][reach],
                    radius: [None, Some(3.0), None, None][reach],
                    landmarks: [None, None, None, Some(150)][reach],
                    ..full(normalisation, 2.0, 3)
                };
                let power = OneOrMore::More(vec![1, 2, 5]);
                let sketch = HeatSketch {
                    power,
                    normalisation,
                    alpha,
                    delta: map.delta,
                    epsilon: map.epsilon,
                    neighbours: map.neighbours,
                    radius: map.radius,
                    landmarks: map.landmarks,
                    ..HeatSketch::new(4)
                };
                for found in [
                    fit::diffusion_map(&points, &map, 1).unwrap(),
                    fit::heat_sketch(&points, &sketch, 1).unwrap(),
                ] {
                    let again = found.model.embed(&points.coordinates);
                    let error = largest_difference(&found.rows_of(&points), &again);
                    assert!(
                        error < 1e-12,
                        "{normalisation:?} {alpha} {reach}: {error:e}"
                    );
                    assert!(found.rows_of(&points).iter().all(|x| x.is_finite()));
                }
            }
        }
    }
}

// A grid has ties: of 9 neighbours, 8 are the nearest and one is any of 16 others.
#[test]
fn rows_of_a_grid_come_back() {
    let grid = points_of(400, |i| [(i / 20) as f64, (i % 20) as f64]);
    let map = nearest(9, 3);
    let found = fit::diffusion_map(&grid, &map, 1).unwrap();
    let error = largest_difference(&found.rows_of(&grid), &found.model.embed(&grid.coordinates));
    assert!(error < 1e-12, "{error:e}");
}

// A row has an embedding where the points around it have one.
#[test]
fn rows_of_points_that_are_left_out_have_no_embedding() {
    let near = circle(6, 300);
    let mut points = near.clone();
    // A fifth of the points, far away.
    let far = (0..60).flat_map(|i| [50.0 + uniform(3, i), uniform(4, i)]);
    points.coordinates.extend(far);
    for reach in 0..4 {
        let sketch = HeatSketch {
            epsilon: Epsilon::Given(0.25),
            neighbours: [ALL, Some(Neighbours::Nearest(10)), None, None][reach],
            radius: [None, None, Some(1.0), None][reach],
            landmarks: [None, None, None, Some(200)][reach],
            ..HeatSketch::new(4)
        };
        let found = fit::heat_sketch(&points, &sketch, 1).unwrap();
        let again = found.model.embed(&points.coordinates);
        let rows = found.rows_of(&points);
        assert!(rows[..1200].iter().all(|x| x.is_finite()), "{reach}");
        assert!(rows[1200..].iter().all(|x| x.is_nan()), "{reach}");
        let error = largest_difference(&rows[..1200], &again[..1200]);
        assert!(error < 1e-12, "{reach}: {error:e}");
        assert!(again[1200..].iter().all(|x| x.is_nan()), "{reach}");
        let new = found.model.embed(&[1.01, 0.01, 50.5, 0.5]);
        assert!(new[0].is_finite() && new[4].is_nan(), "{reach}: {new:?}");
    }
}

#[test]
fn landmarks_of_all_points_are_the_points() {
    let points = circle(6, 200);
    let whole = full(Normalisation::Symmetric, 0.25, 3);
    let landmarks = DiffusionMap {
        landmarks: Some(199),
        neighbours: None,
        ..whole.clone()
    };
    let [whole, landmarks] =
        [whole, landmarks].map(|params| fit::diffusion_map(&points, &params, 1).unwrap());
    assert_eq!(landmarks.model.landmarks, Some(199));
    // Up to the signs of the columns.
    let sizes = |rows: &[f64]| rows.iter().map(|x| x.abs()).collect::<Vec<f64>>();
    let [whole, landmarks] = [whole, landmarks].map(|found| sizes(&found.rows_of(&points)));
    let error = largest_difference(&whole, &landmarks);
    assert!(error < 0.05, "{error}");
}

#[test]
fn rows_far_away_are_finite() {
    let found = fit::diffusion_map(&circle(7, 100), &full(Normalisation::Symmetric, 0.1, 2), 1);
    let rows = found.unwrap().model.embed(&[1e3, 0.0, 0.5, 0.5]);
    assert!(rows.iter().all(|x| x.is_finite()));
    let sparse = DiffusionMap {
        radius: Some(1.0),
        ..DiffusionMap::new(2)
    };
    let found = fit::diffusion_map(&circle(7, 100), &sparse, 1).unwrap();
    assert!(found.model.embed(&[1e3, 0.0]).iter().all(|x| x.is_nan()));
}

#[test]
fn threads_and_the_order_of_rows_change_no_bit() {
    let mut points = torus(8, 3000);
    points.coordinates.extend_from_within(..400);
    let n = points.n();
    let order: Vec<usize> = (0..n).map(|i| i * 1009 % n).collect();
    let shuffled = Points::new(4, points.rows(&order));
    let run = |points: &Points, threads| {
        on_threads(threads, || {
            let map = nearest(20, 3);
            let sketch = HeatSketch {
                landmarks: Some(300),
                normalisation: Normalisation::Bistochastic,
                ..HeatSketch::new(3)
            };
            [
                fit::diffusion_map(points, &map, 1).unwrap(),
                fit::heat_sketch(points, &sketch, 1).unwrap(),
            ]
        })
    };
    let [one, many, other] = [run(&points, 1), run(&points, 5), run(&shuffled, 2)];
    for ((one, many), other) in one.iter().zip(&many).zip(&other) {
        assert!(one == many);
        assert!(one.model == other.model);
        for (at, &i) in order.iter().enumerate() {
            assert_eq!(
                one.rows_of(&points)[i * 3..][..3],
                other.rows_of(&shuffled)[at * 3..][..3]
            );
        }
    }
}

/// Mean log distortion and its standard error for a diffusion map, and for sketches with Gaussian
/// numbers, against the diffusion distance; with symmetric and with bistochastic kernels.
fn figure(
    cloud: impl Fn(u64) -> Points,
    epsilon: f64,
    power: usize,
    dimensions: &[usize],
    trials: u64,
    normalisation: Normalisation,
) -> Vec<[(f64, f64); 2]> {
    let mut logs = vec![[Vec::new(), Vec::new()]; dimensions.len()];
    for trial in 0..trials {
        let kernel = kernel_of(&cloud(100 + trial), epsilon);
        let n = kernel.n();
        let factors = normalise::factors(&kernel, normalisation, 1.0, 1e-8);
        let operator = Normalised::new(&kernel, &factors);
        let pairs = eigen::leading(&operator, n, 0.0, 1);
        let scaled: Vec<f64> = (pairs.vectors.chunks(n))
            .flat_map(|row| row.iter().zip(&pairs.values))
            .map(|(u, value)| u * value.powi(power as i32))
            .collect();
        let names: Vec<u64> = (0..n as u64).collect();
        for (logs, &k) in logs.iter_mut().zip(dimensions) {
            let map: Vec<f64> = (scaled.chunks(n))
                .flat_map(|row| &row[1..=k])
                .copied()
                .collect();
            let sketch = sketch::sweep(
                &operator,
                &names,
                &[power],
                k,
                Distribution::Gaussian,
                trial,
            );
            for (logs, rows) in logs.iter_mut().zip([&map, &sketch[0].rows]) {
                logs.push(
                    distortion::of(rows, k, &scaled, n, usize::MAX, 0)
                        .unwrap()
                        .log,
                );
            }
        }
    }
    logs.iter().map(|[a, b]| [summary(a), summary(b)]).collect()
}

/// The means of maps and sketches are those of the paper.
fn assert_means(found: &[[(f64, f64); 2]], expected: &[[f64; 2]]) {
    assert_eq!(found.len(), expected.len());
    let pairs = found.as_flattened().iter().zip(expected.as_flattened());
    for ((mean, error), expected) in pairs {
        let is_near = (mean - expected).abs() <= 5.0 * error;
        assert!(is_near, "{mean} ± {error} for {expected}");
    }
}

#[test]
fn figure_1a_circle() {
    let cloud = |seed| circle(seed, 300);
    let found = figure(cloud, 0.25, 8, &[2], 8, Normalisation::Symmetric);
    assert_means(&found, &[[0.125, 3.50]]);
}

#[test]
fn figure_2a_torus() {
    let cloud = |seed| torus(seed, 500);
    let found = figure(cloud, 0.3, 10, &[4, 8], 6, Normalisation::Symmetric);
    assert_means(&found, &[[5.05, 3.96], [3.33, 2.19]]);
    assert!(found.iter().all(|[map, sketch]| sketch.0 < map.0));
    let found = figure(cloud, 0.3, 10, &[4, 8], 6, Normalisation::Bistochastic);
    assert_means(&[[found[0][0], found[1][0]]], &[[5.96, 3.74]]);
}

#[test]
fn figure_2b_klein_bottle() {
    let cloud = |seed| klein_bottle(seed, 500);
    let found = figure(cloud, 2.0, 4, &[20], 5, Normalisation::Symmetric);
    assert_means(&found, &[[4.06, 1.36]]);
}

#[test]
fn figure_3a_outliers() {
    let cloud = |seed| outliers(seed, 200);
    let found = figure(cloud, 0.5, 4, &[2, 4], 12, Normalisation::Symmetric);
    assert_means(&found, &[[8.56, 3.53], [0.114, 1.43]]);
}

/// Mean log distortion and its standard error against Euclidean distances, for a diffusion map and
/// for a sketch, at the powers 2, 4, …, 2^`last`.
fn multiscale(
    cloud: impl Fn(u64) -> Points,
    epsilon: f64,
    k: usize,
    last: u32,
    trials: u64,
) -> Vec<[(f64, f64); 2]> {
    let powers: Vec<usize> = (1..=last).map(|q| 1 << q).collect();
    let mut logs = vec![[Vec::new(), Vec::new()]; powers.len()];
    for trial in 0..trials {
        let points = cloud(100 + trial);
        let kernel = kernel_of(&points, epsilon);
        let factors = normalise::factors(&kernel, Normalisation::Symmetric, 1.0, 1e-8);
        let operator = Normalised::new(&kernel, &factors);
        let pairs = eigen::leading(&operator, k + 1, 1e-10, 1);
        let names: Vec<u64> = (0..kernel.n() as u64).collect();
        let gaussian = Distribution::Gaussian;
        let sketches = sketch::sweep(&operator, &names, &powers, k, gaussian, trial);
        for (logs, sketch) in logs.iter_mut().zip(&sketches) {
            let scaled = |row: &[f64]| -> Vec<f64> {
                let pairs = row.iter().zip(&pairs.values).skip(1);
                pairs
                    .map(|(u, value)| u * value.powi(sketch.power as i32))
                    .collect()
            };
            let map: Vec<f64> = pairs.vectors.chunks(k + 1).flat_map(scaled).collect();
            for (logs, rows) in logs.iter_mut().zip([&map, &sketch.rows]) {
                let (reference, d) = (&kernel.points.coordinates, points.dimension);
                let found = distortion::of(rows, k, reference, d, usize::MAX, 0);
                logs.push(found.unwrap().log);
            }
        }
    }
    logs.iter().map(|[a, b]| [summary(a), summary(b)]).collect()
}

/// The mean and its standard error.
fn summary(logs: &[f64]) -> (f64, f64) {
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let squares = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0) / n).sqrt())
}

// The expected means are those of 40 trials, whose standard deviation is .4. The paper has no
// numbers, but these orders: sketches are nearly as bad as maps at low powers, better at 16 and 32,
// and worse at large ones.
#[test]
fn figure_6a_scales_of_the_torus() {
    let found = multiscale(|seed| torus(seed, 500), 0.3, 8, 10, 6);
    for (at, expected) in [(0, [4.63, 4.52]), (3, [4.55, 3.69]), (4, [4.52, 3.78])] {
        let means = found[at].map(|(mean, _)| mean);
        close(&means, &expected, 5.0 * 0.4 / 6f64.sqrt());
    }
    for [map, sketch] in &found[3..5] {
        assert!(sketch.0 < map.0 - 0.4, "{sketch:?} {map:?}");
    }
    for [map, sketch] in &found[8..] {
        assert!(sketch.0 > map.0 && sketch.0 > found[4][1].0 + 2.0);
    }
}

// Two coordinates are enough for a circle, so that the map is better at every scale.
#[test]
fn figure_6b_scales_of_the_circle() {
    let found = multiscale(|seed| circle(seed, 300), 0.25, 2, 8, 8);
    for [map, sketch] in found {
        assert!(map.0 < sketch.0, "{map:?} {sketch:?}");
    }
}

#[test]
fn separate_parts_are_counted() {
    let mut points = circle(10, 300);
    let far = circle(11, 150).coordinates.into_iter().map(|x| x + 50.0);
    points.coordinates.extend(far);
    let params = nearest(10, 2);
    let found = fit::diffusion_map(&points, &params, 1).unwrap();
    let expected = Warning::Components {
        components: 2,
        isolated: 0,
        kept: 300,
        dropped: 150,
    };
    assert!(found.model.warnings.contains(&expected));
    assert!(found.rows_of(&points)[..600].iter().all(|x| x.is_finite()));
    assert!(found.rows_of(&points)[600..].iter().all(|x| x.is_nan()));
    let required = DiffusionMap {
        connected: Connected::Required,
        ..params
    };
    let error = fit::diffusion_map(&points, &required, 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert!(error.to_string().contains("2 components"), "{error}");
}

#[test]
fn a_bandwidth_that_is_too_small_is_an_error() {
    let line = Points::new(1, vec![0.0, 1.0, 2.0, 5.0, 6.0]);
    let params = full(Normalisation::Symmetric, 0.01, 1);
    let error = refusal(&line, &params);
    says(&error, "5 components");
    says(&error, "an epsilon of at least 9 connects it");
    let params = full(Normalisation::Symmetric, 9.0, 1);
    fit::diffusion_map(&line, &params, 1).unwrap();
}

#[test]
fn the_largest_of_many_parts_is_embedded() {
    // Four clusters in 20 dimensions, the last of which is a little larger.
    let n = 420;
    let x = |i: usize| {
        let (row, k) = (i / 20, i % 20);
        let centre = if (row / 100).min(3) == k { 1000.0 } else { 0.0 };
        centre + uniform(3, i)
    };
    let points = Points::new(20, (0..n * 20).map(x).collect());
    let params = DiffusionMap::new(2);
    let found = fit::diffusion_map(&points, &params, 1).unwrap();
    let rows = found.rows_of(&points);
    assert!(rows[..600].iter().all(|x| x.is_nan()));
    assert!(rows[600..].iter().all(|x| x.is_finite()));
    let warnings: Vec<String> = found.model.warnings.iter().map(|w| w.to_string()).collect();
    assert!(warnings[0].contains("4 components"), "{warnings:?}");
    let required = DiffusionMap {
        connected: Connected::Required,
        ..params
    };
    let error = fit::diffusion_map(&points, &required, 1).unwrap_err();
    let error = error.to_string();
    // The advice holds.
    let (_, least) = error.split_once("an epsilon of at least ").expect("advice");
    let least: f64 = least.split(' ').next().unwrap().parse().unwrap();
    assert!(error.contains("`neighbours = \"all\"` and"), "{error}");
    let advised = DiffusionMap {
        neighbours: ALL,
        epsilon: Epsilon::Given(least),
        ..required
    };
    fit::diffusion_map(&points, &advised, 1).unwrap();
}

#[test]
fn distances_that_underflow_are_refused() {
    let points = Points::new(1, (0..40).map(|i| 1e-200 * f64::from(i)).collect());
    for neighbours in [ALL, Some(Neighbours::Nearest(5))] {
        let params = DiffusionMap {
            neighbours,
            ..DiffusionMap::new(1)
        };
        let error = fit::diffusion_map(&points, &params, 1).unwrap_err();
        assert!(error.to_string().contains("is too small"), "{error}");
    }
}

#[test]
fn landmarks_that_do_not_reach_each_other_are_warned_of() {
    let params = |epsilon| DiffusionMap {
        landmarks: Some(60),
        epsilon: Epsilon::Given(epsilon),
        ..DiffusionMap::new(2)
    };
    let of = |epsilon| {
        fit::diffusion_map(&circle(12, 3000), &params(epsilon), 1)
            .unwrap()
            .model
    };
    let is_narrow = |w: &Warning| matches!(w, Warning::NarrowBandwidth { .. });
    // Landmarks are about .1 apart, and 50 points are nearest to each.
    let narrow = of(0.002);
    assert!(narrow.quality.effective_neighbours < 3.0);
    let warnings = &narrow.warnings;
    assert!(warnings.iter().any(is_narrow), "{warnings:?}");
    let wide = of(0.2);
    assert!((6.0..12.0).contains(&wide.quality.effective_neighbours));
    assert!(!wide.warnings.iter().any(is_narrow));
    assert!((wide.spectrum[1].laplace.unwrap() - 1.0).abs() < 0.1);
}

// A kernel that does not tell points apart has eigenvalues of 0, whose directions mean nothing.
#[test]
fn an_eigenvalue_of_zero_has_no_coordinate() {
    let params = DiffusionMap {
        time: OneOrMore::More(vec![0.0, 0.5, 1.0]),
        ..full(Normalisation::Stochastic, 1e20, 2)
    };
    let points = Points::new(1, vec![0.0, 1.0, 4.0, 1.0]);
    let found = fit::diffusion_map(&points, &params, 1).unwrap();
    assert!(found.rows_of(&points).iter().all(|x| *x == 0.0));
    assert!(found.model.embed(&[2.0]).iter().all(|x| *x == 0.0));
}

#[test]
fn coordinates_that_vanish_are_warned_of() {
    let is_zero = |w: &&Warning| matches!(w, Warning::Vanished { time: 1e9 });
    let map = DiffusionMap {
        time: OneOrMore::More(vec![1.0, 1e9]),
        ..full(Normalisation::Symmetric, 0.25, 2)
    };
    let found = fit::diffusion_map(&circle(13, 60), &map, 1).unwrap().model;
    assert_eq!(found.warnings.iter().filter(is_zero).count(), 1);
    assert!(found.distortion[0].is_some() && found.distortion[1].is_none());
    let counts = ring(20).with_targets((0..20).map(Some).collect());
    let of_chain = DiffusionMap {
        time: OneOrMore::One(1e9),
        ..DiffusionMap::new(2)
    };
    let of_chain = of_chain.of_chain(ChainKernel::Symmetrised).unwrap();
    let found = chain::diffusion_map(&Passes::local(), &counts, &of_chain, 1);
    assert_eq!(found.warnings.iter().filter(is_zero).count(), 1);
}

#[test]
fn the_least_bandwidth_is_that_of_the_stored_pairs() {
    // 25,000 points on a line, which is too many for a full kernel, with a gap in the middle.
    let line = (0..25_000).map(|i| f64::from(i) + if i < 12_500 { 0.0 } else { 2.0 });
    let line = Points::new(1, line.collect());
    let params = DiffusionMap {
        neighbours: Some(Neighbours::Nearest(8)),
        epsilon: Epsilon::Given(0.01),
        ..DiffusionMap::new(1)
    };
    let error = refusal(&line, &params);
    assert!(error.contains("25000 components"), "{error}");
    let end = "an epsilon of at least 9 connects it";
    assert!(error.ends_with(end), "{error}");
    let few = DiffusionMap {
        neighbours: Some(Neighbours::Nearest(1)),
        ..params
    };
    let error = refusal(&line, &few);
    assert!(error.ends_with("set more neighbours"), "{error}");
}

#[test]
fn a_bandwidth_that_is_too_large_is_a_warning() {
    let params = full(Normalisation::Symmetric, 1e4, 1);
    let found = fit::diffusion_map(&circle(12, 100), &params, 1).unwrap();
    let is_wide =
        |w: &Warning| matches!(w, Warning::WideBandwidth { first: Some(f), .. } if *f < 0.01);
    assert!(found.model.warnings.iter().any(is_wide));
}

#[test]
fn a_cut_between_equal_values_is_a_warning() {
    let square = Points::new(2, vec![0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    let is_cut = |w: &Warning| matches!(w, Warning::EqualAtCut { dimension: 1, .. });
    let found = fit::diffusion_map(&square, &full(Normalisation::Symmetric, 1.0, 1), 1).unwrap();
    assert!(found.model.warnings.iter().any(is_cut));
    let found = fit::diffusion_map(&square, &full(Normalisation::Symmetric, 1.0, 2), 1).unwrap();
    assert!(!found.model.warnings.iter().any(is_cut));
}

#[test]
fn points_without_a_kernel_are_errors() {
    let params = full(Normalisation::Symmetric, 1.0, 1);
    let error = |points: &Points| refusal(points, &params);
    assert!(error(&Points::new(1, vec![3.0])).contains("found 1 distinct point"));
    assert!(error(&Points::new(2, vec![1.0, 3.0, 1.0, 3.0])).contains("all 2 points are equal"));
    assert!(error(&Points::new(1, vec![])).contains("no points"));
    // A coordinate that is the same in all rows changes no distance.
    let rows = |d: usize, coordinates: &[f64]| {
        let points = Points::new(d, coordinates.to_vec());
        let found = fit::diffusion_map(&points, &params, 1).unwrap();
        found.rows_of(&points).to_vec()
    };
    assert_eq!(rows(2, &[0.0, 3.0, 1.0, 3.0]), rows(1, &[0.0, 1.0]));
}

#[test]
fn many_points_in_many_dimensions_need_landmarks() {
    let n = 200_001;
    let row = |i: usize| (0..9).map(move |c| f64::from(i as u32) * if c == 0 { 1.0 } else { 0.1 });
    let points = Points::new(9, (0..n).flat_map(row).collect());
    let error = refusal(&points, &DiffusionMap::new(2));
    says(error, "up to 200000 points; set `landmarks`");
}

#[test]
fn automatic_bandwidths_see_the_dimension() {
    for (points, dimension) in [(circle(13, 600), 1.0), (torus(13, 900), 2.0)] {
        let (epsilon, found) = kernel::steepest(&Distinct::new(&points));
        assert!((found - dimension).abs() < 0.5, "{found} at {epsilon}");
    }
    let params = DiffusionMap::new(2);
    let found = fit::diffusion_map(&torus(14, 2000), &params, 1).unwrap();
    let quality = &found.model.quality;
    assert!(quality.reason.contains("neighbour 64"));
    assert!(
        (10.0..60.0).contains(&quality.effective_neighbours),
        "{quality:?}"
    );
    assert!(quality.cut > 0.0 && quality.cut < 0.2, "{quality:?}");
    assert_eq!(found.model.extension.reach, Reach::Neighbours(64));
}

/// Counts of a ring of n states that stay with 2 and step to either side with 1.
fn ring(n: u32) -> Counts<'static> {
    let triples = (0..n).flat_map(|j| [(j, j, 2), (j, (j + 1) % n, 1), (j, (j + n - 1) % n, 1)]);
    Counts::from_triples(n as usize, n as usize, triples).unwrap()
}

#[test]
fn a_chain_is_a_kernel() {
    let (passes, n) = (Passes::local(), 400);
    let counts = ring(n).with_targets((0..n).map(Some).collect());
    let params = DiffusionMap::new(4).of_chain(ChainKernel::Symmetrised);
    let map = chain::diffusion_map(&passes, &counts, &params.unwrap(), 1);
    assert_eq!(map.targets.as_ref(), Some(&map.sources));
    let rows = map.sources;
    for (level, m) in map.spectrum.iter().zip([0.0, 1.0, 1.0, 2.0, 2.0]) {
        let expected = 0.5 + 0.5 * (TAU * m / f64::from(n)).cos();
        assert!((level.value - expected).abs() < 1e-12);
        assert!(level.residual < 1e-6);
    }
    // Rows have unit mean square times λ².
    let squares: f64 = rows.chunks(4).map(|row| row[0] * row[0]).sum();
    let value = map.spectrum[1].value;
    assert!((squares / f64::from(n) - value * value).abs() < 1e-9);
}

#[test]
fn the_kernel_of_any_counts_has_their_singular_values() {
    let passes = Passes::local();
    let count = |j: u32, i: u32| (random::hash(u64::from(j), u64::from(i)) % 9).saturating_sub(3);
    let triples =
        (0..40).flat_map(|j| (0..30).map(move |i| (j, i, count(j, i) + u64::from(i == j % 30))));
    let counts = Counts::from_triples(40, 30, triples).unwrap();
    let params = DiffusionMap::new(5).of_chain(ChainKernel::TwoSteps);
    let map = chain::diffusion_map(&passes, &counts, &params.unwrap(), 1);
    assert_eq!(map.targets, None);
    let options = truncated_svd::Options {
        rank: 6,
        tolerance: 1e-10,
        max_products: 100_000,
        seed: 1,
    };
    let exact = truncated_svd::leading(&passes, &counts.shards, &options);
    for (level, value) in map.spectrum.iter().zip(exact.values) {
        assert!((level.value - value * value).abs() < 1e-12);
    }
    let sketch = HeatSketch {
        power: OneOrMore::More(vec![1, 4]),
        ..HeatSketch::new(6)
    };
    let params = sketch.of_chain(ChainKernel::TwoSteps).unwrap();
    let found = chain::heat_sketch(&passes, &counts, &params, 1);
    assert_eq!((found.times.len(), found.energies.len()), (2, 2));
    assert_eq!(found.sources.len(), 40 * 6 * 2);
}

#[test]
fn states_that_are_only_targets_are_part_of_the_chain() {
    // Source 0 → 0 and 1, source 1 → 2, where target 2 is no source.
    let triples = [(0, 0, 2), (0, 1, 3), (1, 2, 4)];
    let counts = Counts::from_triples(2, 3, triples)
        .unwrap()
        .with_targets(vec![Some(0), Some(1)]);
    let passes = Passes::local();
    let chain = Chain::new(&passes, &counts, ChainKernel::Symmetrised);
    let n = [[4.0, 3.0, 0.0], [3.0, 0.0, 4.0], [0.0, 4.0, 0.0]];
    let totals = n.map(|row| row.iter().sum::<f64>());
    let mut identity = [0.0; 9];
    identity.iter_mut().step_by(4).for_each(|x| *x = 1.0);
    // A block has 4 columns, of which the last is zero.
    let wide: Vec<f64> = identity
        .chunks(3)
        .flat_map(|r| [r[0], r[1], r[2], 0.0])
        .collect();
    let mut out = vec![0.0; 12];
    chain.apply(&wide, 4, &mut out);
    for (i, row) in n.iter().enumerate() {
        for (j, entry) in row.iter().enumerate() {
            let expected = entry / (totals[i] * totals[j]).sqrt();
            assert!((out[i * 4 + j] - expected).abs() < 1e-15);
        }
    }
    let map = diffusion_map::of(&chain, 1, None, 1e-8, 1);
    assert!((map.spectrum[0].value - 1.0).abs() < 1e-14);
}

// Two blocks of n states. A state of the first has a transitions to each of its block and c to each
// of the other: λ₁ = (a − c) / (a + c), and all other eigenvalues are 0.
#[test]
fn two_blocks_of_a_chain_have_a_closed_form() {
    let (passes, n, a, c) = (Passes::local(), 30, 5, 1);
    let count = |j: u32, i: u32| if (j < n) == (i < n) { a } else { c };
    let triples = (0..2 * n).flat_map(|j| (0..2 * n).map(move |i| (j, i, count(j, i))));
    let counts = Counts::from_triples(60, 60, triples)
        .unwrap()
        .with_targets((0..60).map(Some).collect());
    let expected = 4.0 / 6.0;
    for (kernel, lambda) in [
        (ChainKernel::Symmetrised, expected),
        (ChainKernel::TwoSteps, expected * expected),
    ] {
        let params = DiffusionMap {
            time: OneOrMore::More(vec![0.0, 1.0, 2.0]),
            ..DiffusionMap::new(2)
        };
        let params = params.of_chain(kernel).unwrap();
        let map = chain::diffusion_map(&passes, &counts, &params, 1);
        let values: Vec<f64> = map.spectrum.iter().map(|level| level.value).collect();
        for (found, exact) in values.iter().zip([1.0, lambda, 0.0]) {
            assert!((found - exact).abs() < 1e-12, "{values:?}");
        }
        // √(ΣD/D) u is ±1 on the two blocks.
        for j in 0..60 {
            let sign = map.row(Axis::Sources, 0, j).unwrap()[0];
            assert!((sign.abs() - 1.0).abs() < 1e-12);
            assert_eq!(sign > 0.0, (j < 30) == (map.sources[0] > 0.0));
            for (part, factor) in [(1, lambda), (2, lambda * lambda)] {
                let x = map.row(Axis::Sources, part, j).unwrap()[0];
                assert!((x - sign * factor).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn keys_of_points_are_refused_for_chains() {
    let params = DiffusionMap {
        landmarks: Some(10),
        ..DiffusionMap::new(2)
    };
    let (key, _) = params.of_chain(ChainKernel::TwoSteps).unwrap_err();
    assert_eq!(key, "landmarks");
}
