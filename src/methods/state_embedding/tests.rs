//! Reproductions of closed forms and of the paper's figures.

use crate::error::Result;
use crate::evidence::points::{Pairs, Points};
use crate::math::matrix::first_largest;
use crate::methods::state_embedding::candidates::candidates;
use crate::methods::state_embedding::clusters::{cluster, misclassification};
use crate::methods::state_embedding::embedding::{Functions, RightMeasure};
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::grams::{GramSums, Grams};
use crate::methods::state_embedding::model::{Basis, StateEmbeddingModel, Warning, fit_means};
use crate::methods::state_embedding::params::{Bandwidth, BandwidthRule, Norm, StateEmbedding};
use crate::methods::state_embedding::pilot::{median_distance, select};
use crate::methods::state_embedding::reshape::MeanEmbedding;
use crate::methods::state_embedding::vamp;
use crate::methods::state_embedding::whitening::project;
use faer::Mat;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// Points per block.
const BLOCK: usize = 4096;

/// Fits the embedding of the first lag of sums.
fn fit(sums: &GramSums, basis: &Basis, params: &StateEmbedding) -> Result<StateEmbeddingModel> {
    fit_means(&sums.means(0)?, basis, params)
}

/// The largest deviation from I of the Gram matrix of the left singular functions on pairs that the
/// model was not fitted to. It is of the size of √(J/n) for n held-out pairs.
fn gram_error(model: &StateEmbeddingModel, held_out: &Grams) -> f64 {
    let m = model.features.count();
    let unit = Mat::from_fn(m, model.rank, |i, k| {
        let sigma = model.singular_values[k];
        let c = model.left[i * model.rank + k];
        if sigma > 0.0 { c / sigma } else { 0.0 }
    });
    let gram = project(&unit, &held_out.starts, &unit);
    (gram - Mat::<f64>::identity(model.rank, model.rank)).norm_max()
}

/// The position of the basis with the largest held-out VAMP-2 score. `folds` has the sums of every
/// fold for every basis.
///
/// # Errors
/// If fewer than two folds have pairs.
fn choose(
    bases: &[Basis],
    folds: &[Vec<GramSums>],
    lag: usize,
    params: &StateEmbedding,
) -> Result<usize> {
    assert_eq!(bases.len(), folds.len(), "sums for every basis");
    if bases.len() == 1 {
        return Ok(0);
    }
    let mut scores = Vec::new();
    for (basis, folds) in bases.iter().zip(folds) {
        let (metric, ranks) = (basis.metric.as_deref(), [params.rank]);
        let of_basis = vamp::held_out(folds, lag, metric, params.tolerance, &ranks)?;
        scores.extend(of_basis);
    }
    Ok(first_largest(scores.iter().map(|own| own.iter().sum())))
}

fn normal(random: &mut Pcg64) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Sums over the pairs of a trajectory, block by block.
fn sums(features: &Features, points: &Points, lag: usize) -> GramSums {
    let mut sums = GramSums::new(features.count(), 1, None);
    let mut values = Vec::new();
    for start in (0..points.n() - lag).step_by(BLOCK) {
        let end = (start + BLOCK + lag).min(points.n());
        let d = points.dimension;
        features.evaluate_rounded(&points.coordinates[start * d..end * d], &mut values);
        let pairs: Vec<(u32, u32)> = (0..end - start - lag)
            .map(|i| (i as u32, (i + lag) as u32))
            .collect();
        sums.add(&values, None, &[&pairs]);
    }
    sums
}

fn basis(
    points: &Points,
    count: usize,
    bandwidth: f64,
    bounds: Option<Vec<[f64; 2]>>,
    seed: u64,
) -> Basis {
    let features = Features::random(count, points.dimension, bandwidth, seed);
    let sample = points.n().min(10_000) * points.dimension;
    let sample = &points.coordinates[..sample];
    let selection = select(&features, sample, bounds.as_deref(), 1e-6);
    Basis {
        features: features.select(&selection.kept),
        metric: Some(selection.metric),
        bandwidth,
        bounds,
    }
}

/// An Ornstein–Uhlenbeck process of unit variance with correlation ρ between successive points.
fn ornstein_uhlenbeck(n: usize, rho: f64, seed: u64) -> Points {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut x = normal(&mut random);
    let mut step = || {
        let before = x;
        x = rho * x + (1.0 - rho * rho).sqrt() * normal(&mut random);
        before
    };
    Points::new(1, (0..n).map(|_| step()).collect())
}

#[test]
fn ornstein_uhlenbeck_in_the_density_norm_has_powers_and_hermite_functions() {
    let rho: f64 = 0.7;
    let points = ornstein_uhlenbeck(300_000, rho, 1);
    let mut params = StateEmbedding::new(4);
    for bandwidth in [0.5, 1.0] {
        let basis = basis(&points, 500, bandwidth, None, 2);
        assert!(basis.features.count() < 100, "{}", basis.features.count());
        params.tolerance = 1e-4;
        let model = fit(&sums(&basis.features, &points, 1), &basis, &params).unwrap();
        assert_eq!(model.singular_values[0], 1.0);
        for (k, sigma) in model.singular_values[..4].iter().enumerate() {
            let exact = rho.powi(k as i32);
            assert!((sigma - exact).abs() < 0.012, "{k}: {sigma} {exact}");
        }
        assert!(model.warnings.is_empty(), "{:?}", model.warnings);
        // Ψ₁ = ±ρ x, Ψ₂ = ±ρ² (x² − 1)/√2.
        for x in [-1.5, -0.4, 0.0, 0.9, 1.8f64] {
            let psi = model.embed(&[x]);
            assert!((psi[0] - 1.0).abs() < 1e-9);
            assert!((psi[1].abs() - rho * x.abs()).abs() < 0.05, "{psi:?}");
            let second = rho * rho * (x * x - 1.0) / 2f64.sqrt();
            assert!((psi[2].abs() - second.abs()).abs() < 0.06, "{psi:?}");
        }
        // The transition density relative to the density of y.
        let (x, y) = (0.5f64, 0.8f64);
        let variance = 1.0 - rho * rho;
        let exact =
            (-(y - rho * x).powi(2) / (2.0 * variance) + y * y / 2.0).exp() / variance.sqrt();
        let density = model.densities(&[x], &[y])[0];
        assert!((density - exact).abs() < 0.15 * exact, "{density} {exact}");

        // Functions are orthonormal on other points.
        let others = ornstein_uhlenbeck(50_000, rho, 77);
        let held_out = sums(&basis.features, &others, 1).means(0).unwrap();
        let error = gram_error(&model, &held_out);
        assert!(error < 0.1, "{error}");
    }
}

#[test]
fn ornstein_uhlenbeck_in_the_lebesgue_norm_has_its_closed_form() {
    let rho: f64 = 0.8;
    let points = ornstein_uhlenbeck(300_000, rho, 3);
    let mut params = StateEmbedding::new(3);
    params.norm = Norm::Lebesgue;
    let basis = basis(&points, 500, 0.5, Some(vec![[-6.0, 6.0]]), 4);
    let model = fit(&sums(&basis.features, &points, 1), &basis, &params).unwrap();
    let s2 = 1.0 - rho * rho;
    let (a, b) = (0.25, rho * rho / (4.0 * s2));
    let big = a + b + (a * a + 2.0 * a * b).sqrt();
    for (k, sigma) in model.singular_values[..4].iter().enumerate() {
        let square = (4.0 * std::f64::consts::PI * s2).powf(-0.5)
            * (2.0 * a / big).sqrt()
            * (b / big).powi(k as i32);
        let exact = square.sqrt();
        assert!((sigma / exact - 1.0).abs() < 0.03, "{k}: {sigma} {exact}");
    }
}

/// The Euler chain of dX = −V′(X) dt + √2 dB on a grid, exactly.
struct GridChain {
    x: Vec<f64>,
    stationary: Vec<f64>,
    /// Cumulative rows of the transition matrix of one lag time.
    cumulative: Vec<f64>,
    transition: Mat<f64>,
}

impl GridChain {
    /// A chain with 2^`doublings` steps of length `dt` per lag time.
    fn new(
        slope: impl Fn(f64) -> f64,
        range: [f64; 2],
        points: usize,
        dt: f64,
        steps: usize,
    ) -> Self {
        let h = (range[1] - range[0]) / (points - 1) as f64;
        let x: Vec<f64> = (0..points).map(|i| range[0] + h * i as f64).collect();
        let normalise = |p: Mat<f64>| {
            let sums: Vec<f64> = (0..points).map(|i| p.row(i).iter().sum()).collect();
            Mat::from_fn(points, points, |i, j| p[(i, j)] / sums[i])
        };
        let one = normalise(Mat::from_fn(points, points, |i, j| {
            let mean = x[i] - slope(x[i]) * dt;
            (-(x[j] - mean).powi(2) / (4.0 * dt)).exp()
        }));
        let (mut power, mut transition, mut left) = (one, None::<Mat<f64>>, steps);
        while left > 0 {
            if left % 2 == 1 {
                transition = Some(transition.map_or(power.clone(), |t| &t * &power));
            }
            power = &power * &power;
            left /= 2;
        }
        let transition = normalise(transition.expect("a step"));
        let mut limit = transition.clone();
        for _ in 0..14 {
            limit = normalise(&limit * &limit);
        }
        let mut cumulative = Vec::new();
        for i in 0..points {
            let mut sum = 0.0;
            cumulative.extend(transition.row(i).iter().map(|p| {
                sum += p;
                sum
            }));
        }
        GridChain {
            stationary: limit.row(0).iter().copied().collect(),
            x,
            cumulative,
            transition,
        }
    }

    fn start(&self, random: &mut Pcg64) -> usize {
        let mut u = random.random::<f64>();
        let mut after = |p: &f64| {
            u -= p;
            u < 0.0
        };
        self.stationary.iter().position(&mut after).unwrap_or(0)
    }

    fn step(&self, i: usize, random: &mut Pcg64) -> usize {
        let n = self.x.len();
        let u = random.random::<f64>();
        self.cumulative[i * n..][..n]
            .partition_point(|c| *c < u)
            .min(n - 1)
    }
}

/// Figure 2: two independent double wells, V = 5(x² − 1)² + x/4 + 4(y² − 1)² − 0.15 y. The
/// metastable sets are the quadrants.
fn double_wells(steps: usize, n: usize, seed: u64) -> Points {
    let well = |slope: fn(f64) -> f64| GridChain::new(slope, [-2.0, 2.0], 161, 1e-3, steps);
    let wells = [
        well(|x| 20.0 * x * (x * x - 1.0) + 0.25),
        well(|y| 16.0 * y * (y * y - 1.0) - 0.15),
    ];
    let mut random = Pcg64::seed_from_u64(seed);
    let mut at = [wells[0].start(&mut random), wells[1].start(&mut random)];
    let mut coordinates = Vec::with_capacity(2 * n);
    for _ in 0..n {
        for (at, well) in at.iter_mut().zip(&wells) {
            *at = well.step(*at, &mut random);
            coordinates.push(well.x[*at] + 0.025 * (random.random::<f64>() - 0.5));
        }
    }
    Points::new(2, coordinates)
}

#[test]
fn figure_2_metastable_sets_are_the_quadrants() {
    for (steps, exact) in [(100, None), (1000, Some([1.0, 0.9444, 0.8863, 0.8370]))] {
        let points = double_wells(steps, 150_000, 5);
        let median = median_distance(&points).unwrap();
        let basis = basis(&points, 300, 0.25 * median, None, 6);
        let params = StateEmbedding::new(4);
        let model = fit(&sums(&basis.features, &points, 1), &basis, &params).unwrap();
        for (sigma, exact) in model.singular_values.iter().zip(exact.iter().flatten()) {
            assert!((sigma - exact).abs() < 0.01, "{sigma} {exact}");
        }
        let sample = &points.coordinates[..40_000];
        let embedded = model.embed(sample);
        let mut clusters = cluster(&embedded, 4, None, 4, 5, 7);
        let quadrant = |p: &[f64]| u32::from(p[0] > 0.0) + 2 * u32::from(p[1] > 0.0);
        let sets: Vec<u32> = sample.chunks_exact(2).map(quadrant).collect();
        let rate = misclassification(&sets, &clusters.affiliation, None);
        assert!(rate < 0.02, "{rate}");
        assert_eq!(clusters.assign(&embedded), clusters.affiliation);
        let pairs = Pairs::lagged(Points::new(2, sample.to_vec()), 1);
        let affiliation = clusters.affiliation.clone();
        clusters.set_exits(&pairs, &affiliation);
        for centroid in &clusters.centroids {
            let exit = centroid.exit.expect("pairs from every cluster");
            assert!((0.005..0.12).contains(&exit), "{exit}");
        }
        let separation = clusters.separation().expect("several clusters");
        assert!(separation.is_separated && rate < separation.bound);
    }
}

/// Figure 1: the quadruple well of Prinz et al. (J. Chem. Phys. 134, 2011).
#[test]
fn figure_1_reshaping_divides_the_error_and_keeps_its_rate() {
    let slope = |x: f64| {
        let bump = |a: f64, c: f64| (x - c) * (-a * (x - c) * (x - c)).exp();
        4.0 * (8.0 * x.powi(7)
            - 128.0 * bump(80.0, 0.0)
            - 32.0 * bump(80.0, 0.5)
            - 40.0 * bump(40.0, -0.5))
    };
    let chain = GridChain::new(slope, [-1.6, 1.6], 400, 1e-3, 100);
    let all = Features::random(1000, 1, 0.035, 9);
    let mut random = Pcg64::seed_from_u64(10);
    let sample: Vec<f64> = (0..6000)
        .map(|_| chain.x[chain.start(&mut random)])
        .collect();
    let selection = select(&all, &sample, None, 1e-6);
    let features = all.select(&selection.kept);
    let m = features.count();
    // The exact E h(x)h(y)ᵀ.
    let mut values = Vec::new();
    features.evaluate_rounded(&chain.x, &mut values);
    let h = Mat::from_fn(chain.x.len(), m, |i, l| values[i * m + l]);
    let joint = Mat::from_fn(chain.x.len(), chain.x.len(), |i, j| {
        chain.stationary[i] * chain.transition[(i, j)]
    });
    let product = h.transpose() * joint * &h;
    let exact: Vec<f64> = (0..m * m).map(|at| product[(at / m, at % m)]).collect();
    let exact = MeanEmbedding::plain(&exact, &selection.metric);

    let (mut plain, mut reshaped) = (Vec::new(), Vec::new());
    for (trials, n) in [(16, 1000), (8, 10_000), (4, 100_000)] {
        let (mut a, mut b) = (0.0, 0.0);
        for _ in 0..trials {
            let mut at = chain.start(&mut random);
            let mut counts: Vec<(u32, u32)> = Vec::with_capacity(n);
            for _ in 0..n {
                let to = chain.step(at, &mut random);
                counts.push((at as u32, to as u32));
                at = to;
            }
            let mut sums = GramSums::new(m, 1, None);
            sums.add(&values, None, &[&counts]);
            let embedding = MeanEmbedding::plain(&sums.means(0).unwrap().cross, &selection.metric);
            a += embedding.distance(&exact) / trials as f64;
            b += embedding.reshaped(4).distance(&exact) / trials as f64;
        }
        plain.push(a);
        reshaped.push(b);
    }
    for errors in [&plain, &reshaped] {
        let slope = (errors[2] / errors[0]).log10() / 2.0;
        assert!((slope + 0.5).abs() < 0.06, "{slope}");
    }
    for (plain, reshaped) in plain.iter().zip(&reshaped) {
        assert!(plain / reshaped > 1.2, "{plain} {reshaped}");
    }
}

#[test]
fn indicators_of_a_finite_chain_give_the_decomposition_of_its_counts() {
    // Counts of 5 × 5 transitions.
    let n = 5;
    let count = |i: usize, j: usize| 1 + (7 * i * i + 3 * j + i * j) % 11;
    let pairs: Vec<(u32, u32)> = (0..n * n)
        .flat_map(|at| vec![(1 + (at / n) as u32, 1 + (at % n) as u32); count(at / n, at % n)])
        .map(|(i, j)| (i - 1, j - 1))
        .collect();
    // The constant, and the indicator of each state.
    let mut values = vec![0.0; n * (n + 1)];
    for i in 0..n {
        values[i * (n + 1)] = 1.0;
        values[i * (n + 1) + i + 1] = 1.0;
    }
    let mut sums = GramSums::new(n + 1, 1, None);
    sums.add(&values, None, &[&pairs]);
    let means = sums.means(0).unwrap();
    let functions = Functions::new(&means, RightMeasure::Ends, None, 1e-10);
    let embedding = functions.embed(5).unwrap();
    assert_eq!(embedding.kept, [5, 5]);

    let p = |i: usize| (0..n).map(|j| count(i, j)).sum::<usize>() as f64;
    let q = |j: usize| (0..n).map(|i| count(i, j)).sum::<usize>() as f64;
    let matrix = Mat::from_fn(n, n, |i, j| count(i, j) as f64 / (p(i) * q(j)).sqrt());
    let svd = matrix.thin_svd().unwrap();
    for (k, sigma) in svd.S().column_vector().iter().enumerate() {
        assert!((sigma - embedding.singular_values[k]).abs() < 1e-13);
        // Ψ_k(i) = σ_k U_ik/√p_i, up to a sign.
        let total: f64 = (0..n).map(p).sum();
        for i in 0..n {
            let psi = embedding.left[k] + embedding.left[(i + 1) * 5 + k];
            let exact = sigma * svd.U()[(i, k)] / (p(i) / total).sqrt();
            assert!((psi.abs() - exact.abs()).abs() < 1e-11, "{psi} {exact}");
        }
    }
    let error = functions.embed(6).unwrap_err();
    assert!(error.to_string().contains("6") && error.to_string().contains("only 5"));
}

/// Sums of the folds of a process, each from its own trajectory.
fn folds(basis: &Basis, rho: f64, n: usize) -> Vec<GramSums> {
    let fold = |seed| sums(&basis.features, &ornstein_uhlenbeck(n, rho, seed), 1);
    (20..24).map(fold).collect()
}

#[test]
fn held_out_scores_are_the_sums_of_squares_of_the_true_values() {
    let rho: f64 = 0.6;
    let basis = basis(&ornstein_uhlenbeck(20_000, rho, 8), 300, 0.7, None, 9);
    let folds = folds(&basis, rho, 50_000);
    let metric = basis.metric.as_deref();
    let scores = vamp::held_out(&folds, 0, metric, 1e-4, &[1, 2, 3, 99]).unwrap();
    for (rank, scores) in (1..).zip(&scores[..3]) {
        let exact: f64 = (0..rank).map(|k| rho.powi(2 * k)).sum();
        let mean = scores.iter().sum::<f64>() / 4.0;
        assert!((mean - exact).abs() < 0.01, "{rank}: {mean} {exact}");
    }
    // White noise scores what chance gives.
    let white = self::folds(&basis, 0.0, 2000);
    let by_chance = vamp::held_out(&white, 0, metric, 1e-4, &[4]).unwrap();
    let mean = by_chance[0].iter().sum::<f64>() / 4.0 - 1.0;
    let chance = vamp::chance(4, &[1999.0; 4]);
    assert_eq!(chance, 9.0 / 1999.0);
    assert!((mean / chance - 1.0).abs() < 0.6, "{mean} {chance}");
    // A rank above the number of functions is cut to it.
    let most = 1.0 / (1.0 - rho * rho) + 0.05;
    assert!(scores[3].iter().all(|s| *s < most));
}

#[test]
fn a_fit_on_few_pairs_warns() {
    let points = ornstein_uhlenbeck(60, 0.5, 5);
    let basis = basis(&points, 100, 0.2, None, 1);
    let sums = sums(&basis.features, &points, 1);
    let model = fit(&sums, &basis, &StateEmbedding::new(2)).unwrap();
    let warning = model.warnings.first().expect("a warning");
    let is_expected = matches!(warning, Warning::ManyFunctions { pairs: 59, .. });
    assert!(is_expected, "{warning}");
    let mut params = StateEmbedding::new(2);
    params.rank = 1000;
    let error = fit(&sums, &basis, &params).unwrap_err().to_string();
    assert!(error.contains("1000"), "{error}");
}

#[test]
fn blocks_and_threads_do_not_change_a_bit() {
    let points = double_wells(100, 20_000, 1);
    let features = Features::random(63, 2, 0.5, 2);
    let whole = sums(&features, &points, 3);
    // Trajectories in blocks of other sizes, in reverse, on several threads.
    let block = |start: usize, size: usize| {
        let end = (start + size + 3).min(points.n());
        let mut values = Vec::new();
        features.evaluate_rounded(&points.coordinates[2 * start..2 * end], &mut values);
        let pairs: Vec<(u32, u32)> = (0..(end - start).saturating_sub(3) as u32)
            .rev()
            .map(|i| (i, i + 3))
            .collect();
        let mut sums = GramSums::new(features.count(), 1, None);
        sums.add(&values, None, &[&pairs]);
        sums
    };
    let starts: Vec<usize> = (0..points.n()).step_by(777).rev().collect();
    let parts: Vec<GramSums> = starts.par_iter().map(|&s| block(s, 777)).collect();
    let mut merged = GramSums::new(features.count(), 1, None);
    parts.iter().for_each(|part| merged.merge(part));
    assert_eq!(merged, whole);
}

#[test]
fn the_bandwidth_is_chosen_by_held_out_scores() {
    // Wells are narrow against the distance of two points, so the median oversmooths.
    let points = double_wells(100, 60_000, 4);
    let (sample, _) = points.coordinates.split_at(20_000);
    let sample = Points::new(2, sample.to_vec());
    let mut params = StateEmbedding::new(4);
    params.features = 200;
    let bases = candidates(&sample, &[[-2.0, 2.0]; 2], &params, 3).unwrap();
    assert_eq!(bases.len(), 4);
    assert_eq!(bases[0].bandwidth * 8.0, bases[3].bandwidth);
    assert!(bases.iter().all(|b| b.bounds.is_none()));
    let parts = points.coordinates.chunks(30_000);
    let parts: Vec<Points> = parts.map(|part| Points::new(2, part.to_vec())).collect();
    let fold = |basis: &Basis| parts.iter().map(|p| sums(&basis.features, p, 1)).collect();
    let folds: Vec<Vec<GramSums>> = bases.iter().map(fold).collect();
    let best = choose(&bases, &folds, 0, &params).unwrap();
    assert!(best < 3, "{best}");

    params.norm = Norm::Lebesgue;
    params.bandwidth = Bandwidth::Value(0.5);
    let bases = candidates(&sample, &[[-2.0, 2.0], [0.0, 1.0]], &params, 3).unwrap();
    assert_eq!(bases[0].bounds, Some(vec![[-3.5, 3.5], [-1.5, 2.5]]));
    params.bandwidth = Bandwidth::Rule(BandwidthRule::Median);
    params.bounds = Some(vec![[-3.0, 3.0]; 2]);
    let bases = candidates(&sample, &[[-2.0, 2.0]; 2], &params, 3).unwrap();
    assert_eq!((bases.len(), &bases[0].bounds), (1, &params.bounds));
    params.bounds = Some(vec![[-3.0, 3.0]]);
    let error = candidates(&sample, &[[-2.0, 2.0]; 2], &params, 3).unwrap_err();
    let what = "`box` has bounds for 1 coordinate, but the points have 2";
    assert_eq!(error.to_string(), what);
    assert!(vamp::held_out(&folds[0][..1], 0, None, 1e-4, &[1]).is_err());
}
