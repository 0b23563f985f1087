//! Random Fourier features (Rahimi and Recht, NIPS 2007) of a Gaussian kernel.
//!
//! In: points of dimension d. Out: h_l(x) = cos(ω_lᵀx + b_l), with ω_l ~ N(0, s⁻²I) for a bandwidth
//! s and b_l uniform in [0, 2π). Feature 0 is the constant 1, with ω = 0 and b = 0. The mean of 2
//! h_l(x) h_l(y) over l > 0 approximates exp(−‖x − y‖²/2s²).
//!
//! The value of a feature at a point depends on nothing else: neither on the block of the point nor
//! on the processor. Its phase is a chain of fused multiply-adds over the coordinates, and the
//! cosine is a polynomial.

use crate::math::seed::restart_seed;
use multiversion::multiversion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::f64::consts::{FRAC_1_PI, PI, TAU};

/// Features that are evaluated together.
const LANES: usize = 8;

/// Points that are evaluated together: with [`LANES`], the sums fit into the vector registers.
const ROWS: usize = 6;

/// Points per pass over the frequencies, a multiple of [`ROWS`]. Their coordinates stay in the
/// cache.
const TILE: usize = 96;

/// Bytes of frequencies that stay in the cache.
const CACHE_BYTES: usize = 256 * 1024;

/// The spacing of rounded features.
pub(crate) const QUANTUM: f64 = 1.0 / (1u64 << 20) as f64;

/// Adding and subtracting this rounds to a multiple of [`QUANTUM`].
const TO_QUANTUM: f64 = 1.5 * (1u64 << 52) as f64 * QUANTUM;

/// Adding and subtracting this rounds to an integer, whose lowest bit is that of the sum.
const TO_INTEGER: f64 = 1.5 * (1u64 << 52) as f64;

/// π = `PI` + `PI_REST`, to twice the precision.
const PI_REST: f64 = 1.224_646_799_147_353_2e-16;

/// (−1)ᵏ/(2k)! for k = 11 … 1. The next term of the series is below 1e−20 up to π/2.
const COSINE: [f64; 11] = [
    -1.0 / 1_124_000_727_777_607_680_000.0,
    1.0 / 2_432_902_008_176_640_000.0,
    -1.0 / 6_402_373_705_728_000.0,
    1.0 / 20_922_789_888_000.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 479_001_600.0,
    -1.0 / 3_628_800.0,
    1.0 / 40_320.0,
    -1.0 / 720.0,
    1.0 / 24.0,
    -1.0 / 2.0,
];

/// Features of points, the constant first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Features {
    dimension: usize,
    count: usize,
    /// Coordinate k of the frequencies of group g is at `g d + k`. The last group is filled with
    /// zeros.
    frequencies: Vec<[f64; LANES]>,
    phases: Vec<[f64; LANES]>,
}

impl Features {
    /// `count` random features of a Gaussian kernel with a bandwidth, and the constant before them.
    /// A random feature depends on its index and on the seed alone.
    pub(crate) fn random(count: usize, dimension: usize, bandwidth: f64, seed: u64) -> Features {
        let mut frequencies = vec![0.0; dimension];
        let mut phases = vec![0.0];
        for l in 0..count {
            let mut random = Pcg64::seed_from_u64(restart_seed(seed, l + 1));
            phases.push(TAU * random.random::<f64>());
            let end = frequencies.len() + dimension;
            while frequencies.len() < end {
                // Box–Muller transform; 1 − u is never 0.
                let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt() / bandwidth;
                let angle = TAU * random.random::<f64>();
                frequencies.push(radius * cosine(angle));
                if frequencies.len() < end {
                    frequencies.push(radius * cosine(angle - PI / 2.0));
                }
            }
        }
        Features::new(dimension, &frequencies, &phases)
    }

    /// Features with frequencies (M × d, row-major) and M phases.
    ///
    /// # Panics
    /// Unless the first feature is the constant 1.
    pub(crate) fn new(dimension: usize, frequencies: &[f64], phases: &[f64]) -> Features {
        let count = phases.len();
        assert_eq!(
            frequencies.len(),
            count * dimension,
            "a frequency per phase"
        );
        let first = &frequencies[..dimension];
        assert!(
            phases[0] == 0.0 && first.iter().all(|w| *w == 0.0),
            "feature 0 is the constant"
        );
        let groups = count.div_ceil(LANES);
        let mut features = Features {
            dimension,
            count,
            frequencies: vec![[0.0; LANES]; groups * dimension],
            phases: vec![[0.0; LANES]; groups],
        };
        features.phases.as_flattened_mut()[..count].copy_from_slice(phases);
        for (l, frequency) in frequencies.chunks_exact(dimension).enumerate() {
            let group = &mut features.frequencies[l / LANES * dimension..];
            for (lanes, w) in group.iter_mut().zip(frequency) {
                lanes[l % LANES] = *w;
            }
        }
        features
    }

    /// The features with these indices, which start with the constant.
    pub(crate) fn select(&self, kept: &[usize]) -> Features {
        let frequencies: Vec<f64> = kept.iter().flat_map(|&l| self.frequency(l)).collect();
        let phases: Vec<f64> = kept.iter().map(|&l| self.phase(l)).collect();
        Features::new(self.dimension, &frequencies, &phases)
    }

    /// The number of features with the constant, M.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Coordinates per point, d.
    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// ω_l.
    pub(crate) fn frequency(&self, l: usize) -> Vec<f64> {
        let group = &self.frequencies[l / LANES * self.dimension..][..self.dimension];
        group.iter().map(|lanes| lanes[l % LANES]).collect()
    }

    /// b_l.
    pub(crate) fn phase(&self, l: usize) -> f64 {
        self.phases[l / LANES][l % LANES]
    }

    /// The largest magnitude of the frequencies of each coordinate.
    pub(crate) fn reach(&self) -> Vec<f64> {
        let mut reach = vec![0.0; self.dimension];
        for group in self.frequencies.chunks_exact(self.dimension) {
            for (reach, lanes) in reach.iter_mut().zip(group) {
                *reach = lanes.iter().fold(*reach, |m: f64, w| m.max(w.abs()));
            }
        }
        reach
    }

    /// Whether a point is so far from 0 that rounding decides its features. `reach` is that of
    /// these features.
    pub(crate) fn is_too_far(reach: &[f64], point: &[f64]) -> bool {
        let terms = reach.iter().zip(point).map(|(w, x)| w * x.abs());
        let phase: f64 = terms.sum();
        phase.is_nan() || phase > FARTHEST
    }

    /// The features of some points (n × d, row-major): n × M, row-major.
    pub(crate) fn evaluate(&self, rows: &[f64]) -> Vec<f64> {
        let mut values = vec![0.0; rows.len() / self.dimension * self.count];
        self.fill(rows, false, &mut values);
        values
    }

    /// [`Features::evaluate`], rounded to multiples of [`QUANTUM`] and written to `values`.
    pub(crate) fn evaluate_rounded(&self, rows: &[f64], values: &mut Vec<f64>) {
        values.clear();
        values.resize(rows.len() / self.dimension * self.count, 0.0);
        self.fill(rows, true, values);
    }

    fn fill(&self, rows: &[f64], rounded: bool, values: &mut [f64]) {
        let d = self.dimension;
        assert!(rows.len().is_multiple_of(d), "rows of {d} coordinates");
        // Frequencies that fit into the cache are read for every few rows, so that values are
        // written one row after another.
        let is_small = size_of_val(&self.frequencies[..]) <= CACHE_BYTES;
        let tile = if is_small { ROWS } else { TILE };
        let tiles = rows.chunks(tile * d);
        for (rows, values) in tiles.zip(values.chunks_mut(tile * self.count)) {
            fill_tile(self, rows, values);
            if rounded {
                round_to_quantum(values);
            }
        }
    }
}

/// Rounds values of a magnitude of at most 1 to multiples of [`QUANTUM`].
pub(crate) fn round_to_quantum(values: &mut [f64]) {
    for value in values {
        *value = (*value + TO_QUANTUM) - TO_QUANTUM;
    }
}

/// The largest |t| for which the argument of [`near_cosine`] is reduced exactly.
const NEAR: f64 = (1u64 << 30) as f64;

/// The largest phase that is known to [`QUANTUM`]: the rounding of a larger one is more.
const FARTHEST: f64 = QUANTUM * (1u64 << 52) as f64;

/// cos(t) with an error below 1e−15, for every finite t.
#[inline(always)]
pub(crate) fn cosine(t: f64) -> f64 {
    if t.abs() <= NEAR {
        near_cosine(t)
    } else {
        libm::cos(t)
    }
}

/// cos(t) with an error below 1e−15, for |t| ≤ [`NEAR`].
#[inline(always)]
fn near_cosine(t: f64) -> f64 {
    // t = kπ + r with |r| ≤ π/2.
    let shifted = t.mul_add(FRAC_1_PI, TO_INTEGER);
    let k = TO_INTEGER - shifted;
    let r = k.mul_add(PI_REST, k.mul_add(PI, t));
    let square = r * r;
    let mut sum = 0.0f64;
    for coefficient in COSINE {
        sum = sum.mul_add(square, coefficient);
    }
    let value = sum.mul_add(square, 1.0);
    f64::from_bits(value.to_bits() ^ (shifted.to_bits() << 63))
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn fill_tile(features: &Features, rows: &[f64], values: &mut [f64]) {
    let (d, count) = (features.dimension, features.count);
    let n = rows.len() / d;
    for (g, phases) in features.phases.iter().enumerate() {
        let frequencies = &features.frequencies[g * d..][..d];
        let width = LANES.min(count - g * LANES);
        let mut i = 0;
        while i < n {
            let point = |r: usize| &rows[(i + r) * d..][..d];
            if i + ROWS <= n {
                let rows: [&[f64]; ROWS] = std::array::from_fn(point);
                for (r, cosines) in cosines(frequencies, phases, rows).iter().enumerate() {
                    let at = (i + r) * count + g * LANES;
                    values[at..at + width].copy_from_slice(&cosines[..width]);
                }
                i += ROWS;
            } else {
                let [cosines] = cosines(frequencies, phases, [point(0)]);
                let at = i * count + g * LANES;
                values[at..at + width].copy_from_slice(&cosines[..width]);
                i += 1;
            }
        }
    }
}

/// A group of features of some points.
#[inline(always)]
fn cosines<const R: usize>(
    frequencies: &[[f64; LANES]],
    phases: &[f64; LANES],
    rows: [&[f64]; R],
) -> [[f64; LANES]; R] {
    let mut sums = [*phases; R];
    for (k, frequency) in frequencies.iter().enumerate() {
        for r in 0..R {
            let x = rows[r][k];
            for l in 0..LANES {
                sums[r][l] = x.mul_add(frequency[l], sums[r][l]);
            }
        }
    }
    // The sign bit says that a phase is larger than NEAR or NaN. Comparisons of floats would move
    // the sums out of the registers.
    let mut far = [0u64; LANES];
    for sums in &sums {
        for (far, sum) in far.iter_mut().zip(sums) {
            *far |= NEAR.to_bits().wrapping_sub(sum.abs().to_bits());
        }
    }
    if far.iter().fold(0, |all, far| all | far) >> 63 != 0 {
        return far_cosines(sums);
    }
    for sums in &mut sums {
        for sum in sums {
            *sum = near_cosine(*sum);
        }
    }
    sums
}

/// The cosines of sums some of which are large. Few points are so far away that their features
/// take this long. A phase beyond the range of f64 has the mean of all features.
#[cold]
#[inline(never)]
fn far_cosines<const R: usize>(mut sums: [[f64; LANES]; R]) -> [[f64; LANES]; R] {
    for sum in sums.as_flattened_mut() {
        *sum = if sum.is_finite() { cosine(*sum) } else { 0.0 };
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cosine_is_accurate() {
        let mut random = Pcg64::seed_from_u64(1);
        let mut worst: f64 = 0.0;
        for power in 0..8 {
            for _ in 0..2000 {
                let t = (random.random::<f64>() - 0.5) * 10f64.powi(power);
                worst = worst.max((cosine(t) - t.cos()).abs());
            }
        }
        assert!(worst < 4e-16, "{worst:e}");
        assert_eq!(cosine(0.0), 1.0);
    }

    #[test]
    fn the_cosine_of_a_large_number_is_exact() {
        // By 1,200 digits of π.
        let exact = [
            (1e9, 0.837_887_181_363_902_3),
            (2f64.powi(40), -0.914_004_071_991_557),
            (1e17, -0.885_557_328_297_630_7),
            (1e22, 0.523_214_785_395_139),
            (9.969_209_968_386_869e36, 0.233_608_229_289_842_55),
            (f64::MAX, -0.999_987_689_426_56),
        ];
        for (t, cos) in exact {
            assert!((cosine(t) - cos).abs() < 1e-15, "{t:e}: {}", cosine(t));
            assert_eq!(cosine(-t), cosine(t));
        }
        // Near and far points in one tile.
        let features = Features::random(20, 1, 1.0, 4);
        let rows: Vec<f64> = (0..13)
            .map(|i| if i == 7 { 1e18 } else { f64::from(i) })
            .collect();
        let values = features.evaluate(&rows);
        assert!(values.iter().all(|h| h.abs() <= 1.0));
        for (row, values) in rows.iter().zip(values.chunks(features.count())) {
            assert_eq!(features.evaluate(&[*row]), values);
        }
        let reach = features.reach();
        assert!(Features::is_too_far(&reach, &[1e18]) && !Features::is_too_far(&reach, &[1e6]));
    }

    #[test]
    fn a_feature_depends_on_its_index_only_and_a_value_on_its_row_only() {
        for d in [1, 2, 7] {
            let many = Features::random(37, d, 0.5, 3);
            let few = Features::random(9, d, 0.5, 3);
            for l in 0..10 {
                assert_eq!(many.frequency(l), few.frequency(l));
                assert_eq!(many.phase(l), few.phase(l));
            }
            let rows: Vec<f64> = (0..201 * d).map(|i| (i as f64 * 0.37).sin()).collect();
            let all = many.evaluate(&rows);
            for i in [0, 5, 95, 96, 200] {
                let one = many.evaluate(&rows[i * d..][..d]);
                assert_eq!(one, all[i * 38..][..38]);
                assert_eq!(one[0], 1.0);
                let phase: f64 = many.phase(20)
                    + (many.frequency(20).iter())
                        .zip(&rows[i * d..])
                        .map(|(w, x)| w * x)
                        .sum::<f64>();
                assert!((one[20] - phase.cos()).abs() < 1e-13);
            }
            let mut rounded = Vec::new();
            many.evaluate_rounded(&rows, &mut rounded);
            for (rounded, value) in rounded.iter().zip(&all) {
                assert_eq!((rounded / QUANTUM).fract(), 0.0);
                assert!((rounded - value).abs() <= QUANTUM / 2.0);
            }
            let kept = many.select(&[0, 20, 3]);
            assert_eq!(kept.evaluate(&rows[..d])[1], all[20]);
        }
    }

    #[test]
    fn products_of_features_approximate_the_kernel() {
        let features = Features::random(20_000, 2, 0.7, 5);
        let values = features.evaluate(&[0.1, 0.4, 0.5, -0.2]);
        let (x, y) = values.split_at(features.count());
        let product: f64 = x[1..].iter().zip(&y[1..]).map(|(a, b)| a * b).sum();
        let exact = (-(0.16f64 + 0.36) / (2.0 * 0.49)).exp();
        assert!((product * 2.0 / 20_000.0 - exact).abs() < 0.02);
    }
}
