//! Diffusion distances, distortion over trials, and what the paper proves of random draws.

use crate::evidence::points::Points;
use crate::math::testing::{on_threads, says};
use crate::methods::heat_kernel::distortion::{self, distances};
use crate::methods::heat_kernel::eigen;
use crate::methods::heat_kernel::fit;
use crate::methods::heat_kernel::noise::SketchChange;
use crate::methods::heat_kernel::normalise::{self, Normalisation, Normalised};
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::{
    DiffusionMap, DistortionTrials, Epsilon, HeatSketch, OneOrMore, ReferenceDistance,
};
use crate::methods::heat_kernel::random;
use crate::methods::heat_kernel::sketch::{self, Distribution};
use crate::methods::heat_kernel::tests::{
    ALL, circle, full, kernel_of, klein_bottle, points_of, summary, torus,
};
use crate::methods::heat_kernel::trials::{DiffusionRows, TrialDistortion};

fn trials(against: ReferenceDistance, trials: usize, sample: usize) -> Option<DistortionTrials> {
    Some(DistortionTrials {
        against: OneOrMore::One(against),
        trials,
        sample,
        dimensions: Vec::new(),
        noise: None,
    })
}

fn dense_sketch(epsilon: f64, power: usize, dimension: usize) -> HeatSketch {
    HeatSketch {
        neighbours: ALL,
        epsilon: Epsilon::Given(epsilon),
        power: OneOrMore::One(power),
        ..HeatSketch::new(dimension)
    }
}

fn logs(found: &TrialDistortion) -> Vec<f64> {
    found.trials.iter().map(|trial| trial.log).collect()
}

// Algorithm 1 on 7 rows of numbers, of which two are equal, without the code of the kernel.
#[test]
fn equation_26_is_the_distance_of_rows_of_powers() {
    let line: [f64; 7] = [0.0, 0.3, 0.5, 0.3, 1.1, 1.2, 2.0];
    let n = line.len();
    let kernel = |i: usize, j: usize| (-(line[i] - line[j]).powi(2) / 0.4).exp();
    let q: Vec<f64> = (0..n).map(|i| (0..n).map(|j| kernel(i, j)).sum()).collect();
    let tilde = |i: usize, j: usize| kernel(i, j) / (q[i] * q[j]);
    let v: Vec<f64> = (0..n).map(|i| (0..n).map(|j| tilde(i, j)).sum()).collect();
    let a = |i: usize, j: usize| tilde(i, j) / (v[i] * v[j]).sqrt();
    let square = |i: usize, j: usize| (0..n).map(|l| a(i, l) * a(l, j)).sum::<f64>();
    let params = full(Normalisation::Symmetric, 0.4, 1);
    let points = Points::new(1, line.to_vec());
    let rows = DiffusionRows::of(&points, &params.kernel(), 1).unwrap();
    let pairs = random::pairs(n, usize::MAX, 0);
    let distance = |entry: &dyn Fn(usize, usize) -> f64, i: u32, j: u32| {
        let differences = (0..n).map(|l| entry(i as usize, l) - entry(j as usize, l));
        differences.map(|d| d * d).sum::<f64>().sqrt()
    };
    for (time, entry) in [(1.0, &a as &dyn Fn(usize, usize) -> f64), (2.0, &square)] {
        let found = rows.distances(time, &pairs);
        for ((i, j), found) in pairs.iter().zip(found) {
            let expected = distance(entry, *i, *j);
            assert!((found - expected).abs() < 1e-13, "{found} for {expected}");
        }
    }
}

// The values are those of the tests of Figure 1a with other draws. All eigenvalues of the first
// coordinates of a map are positive, so an embedding of all of them has no distortion.
#[test]
fn figure_1a_over_trials() {
    let points = circle(21, 900);
    let map = DiffusionMap {
        time: OneOrMore::One(8.0),
        distortion: trials(ReferenceDistance::Diffusion, 8, 300),
        ..full(Normalisation::Symmetric, 0.25, 2)
    };
    let sketch = HeatSketch {
        distortion: map.distortion.clone(),
        ..dense_sketch(0.25, 8, 2)
    };
    let map = fit::diffusion_map(&points, &map, 1).unwrap().model.trials;
    let sketch = fit::heat_sketch(&points, &sketch, 1).unwrap().model.trials;
    for (found, expected) in [(&map[0], 0.125), (&sketch[0], 3.50)] {
        let logs = logs(found);
        assert_eq!((found.points, logs.len()), (300, 8));
        let (mean, error) = summary(&logs);
        assert!((mean - found.mean()).abs() < 1e-12);
        let deviation = found.standard_deviation().unwrap();
        assert!((error * 8f64.sqrt() - deviation).abs() < 1e-12);
        assert!((mean - expected).abs() <= 5.0 * error, "{mean} ± {error}");
    }
}

#[test]
fn embeddings_of_full_rank_have_no_distortion() {
    let map = DiffusionMap {
        time: OneOrMore::More(vec![1.0, 3.0]),
        distortion: trials(ReferenceDistance::Diffusion, 2, 30),
        ..full(Normalisation::Bistochastic, 0.5, 29)
    };
    let found = fit::diffusion_map(&circle(22, 60), &map, 1).unwrap();
    assert_eq!(found.model.trials.len(), 2);
    for of in &found.model.trials {
        // The leading eigenvector, which the map leaves out, is constant up to `delta`.
        assert!(logs(of).iter().all(|log| *log < 1e-5), "{of:?}");
        assert!(of.error().unwrap() < 1e-6, "{of:?}");
    }
}

#[test]
fn fits_with_one_seed_share_points_and_draws() {
    let points = torus(23, 300);
    let both = Some(DistortionTrials {
        against: OneOrMore::More(vec![
            ReferenceDistance::Euclidean,
            ReferenceDistance::Diffusion,
        ]),
        trials: 3,
        sample: 80,
        dimensions: vec![4],
        noise: None,
    });
    let [narrow, wide] = [4, 9].map(|dimension| {
        let params = HeatSketch {
            distortion: both.clone(),
            ..dense_sketch(2.0, 3, dimension)
        };
        fit::heat_sketch(&points, &params, 5).unwrap().model.trials
    });
    assert_eq!(narrow.len(), 2);
    for (narrow, wide) in narrow.iter().zip(&wide) {
        assert_eq!((narrow.points, narrow.trials.len()), (80, 3));
        for (a, b) in narrow.trials.iter().zip(&wide.trials) {
            assert!((a.log - b.log).abs() < 1e-9, "{a:?} {b:?}");
            let difference = a.error.unwrap_or(0.0) - b.error.unwrap_or(0.0);
            assert!(difference.abs() < 1e-9, "{a:?} {b:?}");
        }
        assert_ne!(narrow.trials[0], narrow.trials[1]);
    }
}

#[test]
fn trials_do_not_depend_on_threads_or_the_order_of_rows() {
    let points = torus(24, 200);
    let order: Vec<usize> = (0..200).map(|i| i * 77 % 200).collect();
    let shuffled = Points::new(4, points.rows(&order));
    let params = HeatSketch {
        distortion: trials(ReferenceDistance::Diffusion, 4, 60),
        ..dense_sketch(2.0, 3, 3)
    };
    let run = |points: &Points, threads| {
        let fit = || fit::heat_sketch(points, &params, 1).unwrap();
        on_threads(threads, fit).model.trials
    };
    let expected = run(&points, 1);
    assert_eq!(expected, run(&points, 5));
    assert_eq!(expected, run(&shuffled, 2));
}

#[test]
fn a_trial_without_a_kernel_is_named() {
    let points = points_of(40, |i| [(i * i) as f64]);
    let params = DiffusionMap {
        distortion: trials(ReferenceDistance::Euclidean, 5, 3),
        ..full(Normalisation::Symmetric, 4.0, 1)
    };
    let error = fit::diffusion_map(&points, &params, 1).unwrap_err();
    says(error.to_string(), "trial 1 of `distortion`");
}

// The paper has no numbers: both kinds of draws "perform similarly", and signs are a little better
// with the bistochastic kernel. Means of many draws are 1.40 ± .10 and 1.25 ± .07 for 20
// coordinates of the Klein bottle, with either normalisation.
#[test]
fn figure_5a_signs_in_place_of_normal_numbers() {
    let points = klein_bottle(25, 500);
    let kernel = kernel_of(&points, 2.0);
    let (names, k): (Vec<u64>, usize) = ((0..500).collect(), 20);
    let pairs = random::pairs(500, usize::MAX, 0);
    for normalisation in [Normalisation::Symmetric, Normalisation::Bistochastic] {
        let factors = normalise::factors(&kernel, normalisation, 1.0, 1e-8);
        let operator = Normalised::new(&kernel, &factors);
        let params = full(normalisation, 2.0, 1).kernel();
        let in_order = Points::new(4, kernel.points.coordinates.clone());
        let rows = DiffusionRows::of(&in_order, &params, 1).unwrap();
        let originals = rows.distances(4.0, &pairs);
        let [normal, signs] = [Distribution::Gaussian, Distribution::Bernoulli].map(|of| {
            let log = |seed| {
                let found = sketch::sweep(&operator, &names, &[4], k, of, seed);
                let images = distances(&found[0].rows, k, &pairs);
                distortion::log(&images, &originals).unwrap()
            };
            summary(&(0..8).map(log).collect::<Vec<f64>>())
        });
        for ((mean, error), expected) in [(normal, 1.40), (signs, 1.25)] {
            let within = 5.0 * error + 0.1;
            assert!((mean - expected).abs() < within, "{mean} ± {error}");
        }
        assert!(signs.0 < normal.0 + 0.1, "{signs:?} {normal:?}");
    }
}

/// Aᵖ without its leading eigenvector, in the order of the points, and sketches of it whose draws
/// are named by the index of a point.
struct ExactPowers {
    entries: Vec<f64>,
    sketches: Vec<Vec<f64>>,
}

impl ExactPowers {
    fn of(points: &Points, epsilon: f64, power: usize, columns: usize, draws: u64) -> ExactPowers {
        let (kernel, n) = (kernel_of(points, epsilon), points.n());
        let factors = normalise::factors(&kernel, Normalisation::Symmetric, 1.0, 1e-8);
        let operator = Normalised::new(&kernel, &factors);
        assert_eq!(operator.n(), n);
        let place: Vec<usize> = (kernel.points.place.iter())
            .map(|place| place.expect("a connected kernel") as usize)
            .collect();
        let mut names = vec![0; n];
        (0..n).for_each(|i| names[place[i]] = i as u64);
        let pairs = eigen::leading(&operator, n, 0.0, 1);
        let entry = |at: usize| -> f64 {
            let [i, j] = [at / n, at % n].map(|i| place[i]);
            let term = |q: usize| {
                let vectors = pairs.vectors[i * n + q] * pairs.vectors[j * n + q];
                pairs.values[q].powi(power as i32) * vectors
            };
            (1..n).map(term).sum()
        };
        let sketch = |seed| {
            let gaussian = Distribution::Gaussian;
            let found = sketch::sweep(&operator, &names, &[power], columns, gaussian, seed);
            let rows = place.iter();
            let rows = rows.flat_map(|p| &found[0].rows[p * columns..][..columns]);
            rows.copied().collect()
        };
        ExactPowers {
            entries: (0..n * n).map(entry).collect(),
            sketches: (0..draws).map(sketch).collect(),
        }
    }
}

fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum()
}

// With the same draws, Σ‖y_i − z_i‖² is Σ μ² χ²(k)/k for the eigenvalues μ of Aᵖ − Bᵖ. So its mean
// is ‖Aᵖ − Bᵖ‖_F² and its variance 2 Σ μ⁴/k, where the paper prints 2 ‖Aᵖ − Bᵖ‖_F²/k: an upper
// bound, because no |μ| is above 1. Above the mean by 2 √(Σ μ⁴ x/k) + 2 max μ² x/k it is with a
// probability of at most e⁻ˣ (Laurent and Massart, Lemma 1).
#[test]
fn proposition_3_4_noise_of_the_points() {
    let (n, power, k, draws) = (40, 4, 8, 400);
    let points = circle(26, n);
    let noisy = |size: f64| {
        let noise = |at| size * random::normal(random::hash(27, at as u64));
        let coordinates = points.coordinates.iter().enumerate();
        Points::new(2, coordinates.map(|(at, x)| x + noise(at)).collect())
    };
    let exact = ExactPowers::of(&points, 0.5, power, k, draws);
    let mut norms = Vec::new();
    for size in [0.05, 0.025] {
        let other = ExactPowers::of(&noisy(size), 0.5, power, k, draws);
        let entries = exact.entries.iter().zip(&other.entries);
        let difference: Vec<f64> = entries.map(|(a, b)| a - b).collect();
        let norm = square_sum(difference.iter().copied());
        let product = |at: usize| -> f64 {
            let (i, j) = (at / n, at % n);
            let terms = (0..n).map(|l| difference[i * n + l] * difference[l * n + j]);
            terms.sum()
        };
        let fourth = square_sum((0..n * n).map(product));
        let changes = exact.sketches.iter().zip(&other.sketches);
        let changes: Vec<f64> = changes
            .map(|(y, z)| square_sum(y.iter().zip(z).map(|(y, z)| y - z)))
            .collect();
        let (mean, error) = summary(&changes);
        assert!((mean - norm).abs() < 5.0 * error, "{mean} for {norm}");
        let (variance, expected) = (error * error * draws as f64, 2.0 * fourth / k as f64);
        let ratio = variance / expected;
        assert!((ratio - 1.0).abs() < 0.4, "{variance} for {expected}");
        assert!(expected < 2.0 * norm / k as f64);
        // max μ² is at most √Σ μ⁴.
        let x = 3.0;
        let above = 2.0 * (fourth * x / k as f64).sqrt() + 2.0 * fourth.sqrt() * x / k as f64;
        let far = changes.iter().filter(|c| **c > norm + above).count();
        let share = far as f64 / draws as f64;
        assert!(share <= (-x).exp(), "{share}");
        norms.push(norm);
    }
    // Small noise changes the kernel in proportion.
    let ratio = norms[0] / norms[1];
    assert!((3.0..5.0).contains(&ratio), "{norms:?}");
}

// The change of each trial against its own mean and its own bound.
#[test]
fn proposition_3_4_over_trials() {
    let count = 200;
    let params = HeatSketch {
        distortion: Some(DistortionTrials {
            dimensions: vec![4, 16],
            noise: Some(0.05),
            ..trials(ReferenceDistance::Euclidean, count, 30).unwrap()
        }),
        ..dense_sketch(0.5, 4, 16)
    };
    let found = fit::heat_sketch(&circle(29, 60), &params, 1).unwrap();
    let mut deviations = Vec::new();
    for of in &found.model.trials {
        let changes = of.trials.iter().filter_map(|trial| trial.change);
        let changes: Vec<SketchChange> = changes.collect();
        assert_eq!(changes.len(), count);
        assert!(changes.iter().all(|own| own.expected < 0.1), "{changes:?}");
        let ratios: Vec<f64> = changes.iter().map(|own| own.found / own.expected).collect();
        let (mean, error) = summary(&ratios);
        assert!((mean - 1.0).abs() < 5.0 * error, "{mean} ± {error}");
        let above = changes.iter().filter(|own| own.found > own.bound).count();
        assert!(above <= count / 20, "{above}");
        let expected = of.change(|own| own.expected).unwrap();
        assert!(expected > 0.0 && expected < of.change(|own| own.bound).unwrap());
        deviations.push(error);
    }
    // The variance is 2 Σ μ⁴/k.
    let ratio = deviations[0] / deviations[1];
    assert!((ratio - 2.0).abs() < 0.9, "{deviations:?}");
}

// E sup |‖y_i − y_j‖² − d²| falls like k^{-1/2}. Many draws have slopes of
// −.50 ± .03.
#[test]
fn theorem_3_3_rate_in_the_number_of_columns() {
    let dimensions = vec![16, 64, 256];
    let params = HeatSketch {
        normalisation: Normalisation::Bistochastic,
        distortion: Some(DistortionTrials {
            dimensions: dimensions.clone(),
            ..trials(ReferenceDistance::Diffusion, 40, 60).unwrap()
        }),
        ..dense_sketch(0.25, 4, 256)
    };
    let found = fit::heat_sketch(&circle(28, 60), &params, 1).unwrap();
    let points = found.model.trials.iter().map(|of| {
        let error = of.error().expect("a diffusion distance");
        ((of.dimension as f64).ln(), error.ln())
    });
    let points: Vec<(f64, f64)> = points.collect();
    assert_eq!(points.len(), dimensions.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / 3.0;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let covariance: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let variance: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = covariance / variance;
    assert!((slope + 0.5).abs() < 0.12, "slope {slope}: {points:?}");
}
