//! Errors of transition densities and of kernel mean embeddings (Sun, Duan, Gong and Wang, NeurIPS
//! 2019, Theorems 1 and 3), from pairs that a fit has not seen.
//!
//! In: sums of products of features by fold of trajectories, and a sample of pairs. Out: the error
//! of p̂ in L²(π) × L², relative to the norm of p, in three parts that add up, and that of the mean
//! embedding in the product of the Hilbert spaces.
//!
//! The square of the error is ‖p̂‖² − 2⟨p̂, p⟩ + ‖p‖². With ⟨p̂, p⟩ = E p̂(Y | X) over new pairs
//! and Πp, the projection of p on the functions of the features, it is the sum of
//! - ‖p̂‖² − ⟨p̂, p⟩, the noise of the pairs,
//! - ‖Πp‖² − ⟨p̂, p⟩, what the rank leaves out,
//! - ‖p‖² − ‖Πp‖², what the features cannot express.
//!
//! A fit to all folds but one has an expectation over the pairs of that fold without bias, both
//! with its rank and with all of its functions, whose mean is ‖Πp‖². Resamples would show the
//! first part alone: each of them has the bias of the other two.
//!
//! The third part needs finer functions of y than the features. With P_x the projection in x and
//! its kernel K_x, ‖P_x p‖² = E K_x(X, X′) δ(Y − Y′) over independent pairs. A kernel of the fourth
//! order that gets narrower takes the place of δ for as long as the standard error is small. What
//! no function of x expresses is not seen. For densities relative to the ends of pairs there is no
//! such measure, and the third part is not known.

use crate::error::Result;
use crate::math::matrix::row_major;
use crate::methods::state_embedding::embedding::Functions;
use crate::methods::state_embedding::grams::{GramSums, Grams};
use crate::methods::state_embedding::model::{Basis, combine, functions};
use crate::methods::state_embedding::params::{Norm, StateEmbedding};
use crate::methods::state_embedding::reshape::MeanEmbedding;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::f64::consts::TAU;
use std::ops::Range;

/// An error of p̂ above this share of its norm is worth a warning.
const LARGE: f64 = 0.2;

/// Widths of the narrow kernel: the squares are those of the bandwidth, divided by 1, 2, 4, ….
const WIDTHS: usize = 13;

/// A width is used if the standard error of the third part is at most this share of ‖p‖²,
const RESOLVED: f64 = 0.01;

/// or at most this share, if the part has grown by more than its standard error.
const GROWING: f64 = 0.05;

/// Most pairs whose products are compared.
const MOST_PAIRS: usize = 4000;

/// Most multiplications of these products.
const MOST_PRODUCTS: usize = 4_000_000_000;

/// Pairs that a thread compares with all others at a time.
const BLOCK: usize = 64;

/// Pairs of points, divided by the scale.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PairSample {
    /// First points: n × d, row-major.
    pub starts: Vec<f64>,
    /// Second points: n × d, row-major.
    pub ends: Vec<f64>,
    /// One weight per pair.
    pub weights: Vec<f64>,
    /// The fold of each pair. Pairs of one fold may follow each other.
    pub folds: Vec<u32>,
}

/// Errors of a fit, relative to the norm of what it estimates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct DensityError {
    /// ‖p̂ − p‖ / ‖p‖ in L²(π) × L².
    pub error: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The part by the noise of the pairs. The squares of the parts add up to that of the error.
    pub of_pairs: f64,
    /// The part by the rank.
    pub of_rank: f64,
    /// The part by the features. None if it is not known.
    pub of_features: Option<f64>,
    /// The width of the kernel by which the part of the features was measured.
    pub resolution: Option<f64>,
    /// The error of the plain mean embedding.
    pub kme: f64,
    /// The error of the mean embedding of the rank.
    pub kme_reshaped: f64,
    /// λ̄ of Theorem 1, for a kernel with K(x, x) = 1.
    pub largest_eigenvalue: f64,
    /// κ, the condition number of Theorem 2: σ₁/σ_r.
    pub condition_number: f64,
    /// The largest Φ(x)ᵀC⁻¹Φ(x) of the sampled starts, a lower bound of L_max of Theorem 2.
    pub largest_leverage: f64,
}

impl DensityError {
    /// A sentence if the densities err by much.
    pub(crate) fn warning(&self, norm: Norm) -> Option<String> {
        let features = self.of_features.unwrap_or_default();
        if norm == Norm::Lebesgue && self.of_features.is_none() {
            return Some(
                "the densities have an error that is not known: the pairs are too few to tell what \
                 the features cannot express"
                    .into(),
            );
        }
        if self.error <= LARGE {
            return None;
        }
        let advice = if features >= self.of_rank.max(self.of_pairs) {
            "most of it is what the features cannot express; decrease `bandwidth` or `tolerance`, or \
             increase `features`"
        } else if self.of_rank >= self.of_pairs {
            "most of it is what the rank leaves out; increase `rank`"
        } else {
            "most of it is noise; add pairs, or increase `tolerance` or `bandwidth`"
        };
        Some(format!(
            "the densities err by about {:.0} % of their norm; {advice}",
            100.0 * self.error
        ))
    }
}

/// What the embedding of all folds but one gives on that fold.
struct FoldScore {
    /// The sum of the weights of its pairs, times that of the others. An error of the sums of one
    /// fold then has no part in the means over folds, up to squares: it is in the fits to the
    /// others as often as in the scores.
    weight: f64,
    /// ‖p̂‖², E p̂ and E Π̂p over the pairs of the fold.
    density: [f64; 3],
    /// ‖P̂ − P‖² of the plain and the reshaped mean embedding, and ‖P‖².
    kme: [f64; 3],
}

/// Estimates the errors of the embedding of a lag. `means` are those of all pairs. None unless two
/// folds have pairs.
///
/// # Errors
/// If the sums are of other features.
pub(crate) fn estimate(
    folds: &[impl Borrow<GramSums>],
    lag: usize,
    means: &Grams,
    basis: &Basis,
    params: &StateEmbedding,
    sample: &PairSample,
) -> Result<Option<DensityError>> {
    let Some(metric) = &basis.metric else {
        return Ok(None);
    };
    let root = MeanEmbedding::plain(&means.cross, metric);
    let scores = fold_scores(folds, lag, basis, params, &root)?;
    if scores.len() < 2 {
        return Ok(None);
    }
    let mean = |value: &dyn Fn(&FoldScore) -> f64| {
        let weights = sum(scores.iter().map(|own| own.weight));
        sum(scores.iter().map(|own| own.weight * value(own))) / weights
    };
    let [pairs, rank, energy] = [
        mean(&|own| own.density[0] - own.density[1]),
        mean(&|own| own.density[2] - own.density[1]),
        mean(&|own| own.density[2]),
    ];
    let of_fold = |own: &FoldScore| own.density[0] - 2.0 * own.density[1] + own.density[2];
    let spread = fold_error(&scores, &of_fold);
    let (all, _) = functions(means, basis, params)?;
    let whitened = Whitened::new(basis, all.bases(), sample);
    let features = match params.norm {
        Norm::Lebesgue => whitened.missed(basis, sample, energy),
        Norm::Density => None,
    };
    let [missed, missed_error] = features.map_or([0.0; 2], |own| [own.value, own.error]);
    let norm = (energy + missed).max(f64::MIN_POSITIVE);
    let root_of = |square: f64| (square / norm).max(0.0).sqrt();
    let error = root_of(pairs + rank + missed);
    let variance = spread.hypot(missed_error) / norm;
    let kme = |at: usize| {
        let square = mean(&|own| own.kme[at]) / mean(&|own| own.kme[2]);
        square.max(0.0).sqrt()
    };
    let values = all.singular_values();
    let last = values[params.rank.min(values.len()) - 1];
    Ok(Some(DensityError {
        error,
        // d√e = de / 2√e, and √de where e is smaller than its error.
        standard_error: variance / (2.0 * error).max(variance.sqrt()).max(f64::MIN_POSITIVE),
        of_pairs: root_of(pairs),
        of_rank: root_of(rank),
        of_features: features.map(|own| root_of(own.value)),
        resolution: features.map(|own| own.width),
        kme: kme(0),
        kme_reshaped: kme(1),
        largest_eigenvalue: root.largest_eigenvalue(&means.starts, &means.ends),
        condition_number: values[0] / last,
        largest_leverage: whitened.largest_leverage(),
    }))
}

fn fold_scores(
    folds: &[impl Borrow<GramSums>],
    lag: usize,
    basis: &Basis,
    params: &StateEmbedding,
    root: &MeanEmbedding,
) -> Result<Vec<FoldScore>> {
    let folds = folds.iter().map(Borrow::borrow);
    let folds: Vec<&GramSums> = folds.filter(|fold| fold.pairs(lag) > 0).collect();
    let Some((first, rest)) = folds.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut all = (*first).clone();
    rest.iter().for_each(|fold| all.merge(fold));
    let mut scores = Vec::new();
    for fold in folds {
        all.subtract(fold);
        let (train, test) = (all.means(lag)?, fold.means(lag)?);
        all.merge(fold);
        let (functions, _) = functions(&train, basis, params)?;
        let mass = train.mass + test.mass;
        let weight = train.mass / mass * (test.mass / mass);
        let (train, own) = (root.of(&train.cross), root.of(&test.cross));
        let reshaped = train.reshaped(params.rank);
        let norm = train.product(&own);
        scores.push(FoldScore {
            weight,
            density: density_score(&functions, params.rank, &test)?,
            kme: [
                train.product(&train) - norm,
                reshaped.product(&reshaped) - 2.0 * reshaped.product(&own) + norm,
                norm,
            ],
        });
    }
    Ok(scores)
}

/// ‖p̂‖² on the pairs of the fit, and E p̂ over other pairs, with the rank and with all functions.
fn density_score(functions: &Functions, rank: usize, test: &Grams) -> Result<[f64; 3]> {
    let (m, n) = (test.features, functions.available());
    let all = functions.embed(n)?;
    let rows = |a: &[f64]| MatRef::from_row_major_slice(a, m, n).to_owned();
    let (left, right) = (rows(&all.left), rows(&all.right));
    let product = MatRef::from_row_major_slice(&test.cross, m, m) * right;
    let of = |k: usize| sum((0..m).map(|i| left[(i, k)] * product[(i, k)]));
    let expected: Vec<f64> = (0..n).map(of).collect();
    let kept = rank.min(n);
    Ok([
        sum(all.singular_values[..kept].iter().map(|s| s * s)),
        sum(expected[..kept].iter().copied()),
        sum(expected.iter().copied()),
    ])
}

/// Adds numbers in their order.
fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.sum()
}

/// The standard error of the mean of a number of each fold.
fn fold_error(scores: &[FoldScore], value: &dyn Fn(&FoldScore) -> f64) -> f64 {
    let weights = sum(scores.iter().map(|own| own.weight));
    let mean = sum(scores.iter().map(|own| own.weight * value(own))) / weights;
    let square = |own: &FoldScore| (own.weight / weights * (value(own) - mean)).powi(2);
    let n = scores.len() as f64;
    (sum(scores.iter().map(square)) * n / (n - 1.0)).sqrt()
}

/// Orthonormal functions of the pairs of a sample.
struct Whitened {
    /// Of first points: n × J, row-major.
    left: (Vec<f64>, usize),
    /// Of second points: n × J₁, row-major.
    right: (Vec<f64>, usize),
    /// The pairs, n.
    pairs: usize,
    /// The weights of the pairs, as shares of the largest one.
    weights: Vec<f64>,
}

/// ‖p‖² − ‖Πp‖², with its standard error and the width of the kernel.
#[derive(Debug, Clone, Copy)]
struct Missed {
    value: f64,
    error: f64,
    width: f64,
}

/// Sums over the pairs j that a pair i is compared with: the sum of their weights, and that of each
/// width.
#[derive(Clone, Copy, Default)]
struct RowSums {
    weight: f64,
    values: [f64; WIDTHS],
}

impl Whitened {
    fn new(basis: &Basis, bases: [MatRef<'_, f64>; 2], sample: &PairSample) -> Whitened {
        let d = basis.features.dimension();
        let functions = bases[0].ncols() + bases[1].ncols();
        let most = (MOST_PRODUCTS / functions.max(1)).isqrt().min(MOST_PAIRS);
        let pairs = sample.weights.len().min(most);
        let of = |coefficients: MatRef<'_, f64>, points: &[f64]| {
            let width = coefficients.ncols();
            let rows = row_major(coefficients);
            let values = combine(&basis.features, &rows, width, &points[..pairs * d]);
            // Points that are too far for the features have no part in a sum.
            let known = values.into_iter().map(|x| if x.is_nan() { 0.0 } else { x });
            (known.collect::<Vec<f64>>(), width)
        };
        let weights = &sample.weights[..pairs];
        let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        Whitened {
            left: of(bases[0], &sample.starts),
            right: of(bases[1], &sample.ends),
            pairs,
            weights: weights.iter().map(|w| w / largest).collect(),
        }
    }

    fn largest_leverage(&self) -> f64 {
        let rows = self.left.0.chunks_exact(self.left.1.max(1));
        let squares = rows.map(|row| sum(row.iter().map(|u| u * u)));
        squares.fold(0.0, f64::max)
    }

    /// The part of ‖p‖² that no functions of y express. None if the pairs are too few for it.
    fn missed(&self, basis: &Basis, sample: &PairSample, energy: f64) -> Option<Missed> {
        let n = self.pairs;
        let starts: Vec<usize> = (0..n).step_by(BLOCK).collect();
        let rows: Vec<Vec<RowSums>> = starts
            .into_par_iter()
            .map(|start| self.rows(start..(start + BLOCK).min(n), basis, sample))
            .collect();
        let rows: Vec<RowSums> = rows.into_iter().flatten().collect();
        let shares = rows.iter().zip(&self.weights);
        let shares: Vec<f64> = shares.map(|(row, weight)| row.weight * weight).collect();
        let total = sum(shares.iter().copied());
        let mut found = None;
        let mut width = basis.bandwidth;
        for at in 0..WIDTHS {
            let value = sum((0..n).map(|i| self.weights[i] * rows[i].values[at])) / total;
            let deviation = |i: usize| {
                let own = self.weights[i] * rows[i].values[at] - shares[i] * value;
                own * own
            };
            // Each pair is in a sum as the first and as the second.
            let error = 2.0 * sum((0..n).map(deviation)).sqrt() / total;
            let is_larger = |before: Missed| value > before.value + error;
            let most = if found.is_none_or(is_larger) {
                GROWING
            } else {
                RESOLVED
            };
            // False for NaN, too.
            let is_resolved = error <= most * (energy + value);
            if !is_resolved {
                break;
            }
            found = Some(Missed {
                value,
                error,
                width,
            });
            width /= 2f64.sqrt();
        }
        found
    }

    /// The sums of some pairs over all pairs of other folds.
    fn rows(&self, own: Range<usize>, basis: &Basis, sample: &PairSample) -> Vec<RowSums> {
        let (n, d) = (self.pairs, basis.features.dimension());
        let products = |(values, width): &(Vec<f64>, usize)| {
            let all = MatRef::from_row_major_slice(values, n, *width);
            let block = all.subrows(own.start, own.len());
            let mut out = Mat::zeros(own.len(), n);
            let seq = Par::Seq;
            matmul(
                out.as_mut(),
                Accum::Replace,
                block,
                all.transpose(),
                1.0,
                seq,
            );
            out
        };
        let (left, right) = (products(&self.left), products(&self.right));
        let factors = factors(basis.bandwidth, d);
        let point = |i: usize| &sample.ends[i * d..][..d];
        let mut rows = vec![RowSums::default(); own.len()];
        for (at, (i, row)) in own.zip(&mut rows).enumerate() {
            for j in (0..n).filter(|j| sample.folds[*j] != sample.folds[i]) {
                let weight = self.weights[j];
                row.weight += weight;
                let (k_x, k_y) = (weight * left[(at, j)], right[(at, j)]);
                let differences = point(i).iter().zip(point(j));
                let square: f64 = differences.map(|(a, b)| (a - b) * (a - b)).sum();
                // exp(−d²/2v) for v = 2s², s², s²/2, …
                let mut wide = (-square / (4.0 * basis.bandwidth * basis.bandwidth)).exp();
                for (value, [narrow_factor, wide_factor]) in row.values.iter_mut().zip(&factors) {
                    let narrow = wide * wide;
                    let kernel = narrow_factor * narrow - wide_factor * wide;
                    *value += k_x * (kernel - k_y);
                    wide = narrow;
                }
            }
        }
        rows
    }
}

/// The factors of exp(−d²/2v) and exp(−d²/4v) in 2φ_v − φ_{2v}, which has no second moment, for
/// each v.
fn factors(bandwidth: f64, d: usize) -> [[f64; 2]; WIDTHS] {
    let mut variance = bandwidth * bandwidth;
    [(); WIDTHS].map(|()| {
        let density = |v: f64| (TAU * v).powf(-(d as f64) / 2.0);
        let own = [2.0 * density(variance), density(2.0 * variance)];
        variance /= 2.0;
        own
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::points::Points;
    use crate::methods::state_embedding::candidates::candidates;
    use crate::methods::state_embedding::model::fit_means;
    use crate::methods::state_embedding::params::Bandwidth;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const FOLDS: usize = 5;

    /// Correlation between successive points of the Ornstein–Uhlenbeck process of unit variance.
    const RHO: f64 = 0.9;

    fn normal(random: &mut Pcg64) -> f64 {
        let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
        radius * (TAU * random.random::<f64>()).cos()
    }

    /// Independent pairs of the process.
    fn pairs(n: usize, seed: u64) -> Vec<[f64; 2]> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut pair = || {
            let x = normal(&mut random);
            [x, RHO * x + (1.0 - RHO * RHO).sqrt() * normal(&mut random)]
        };
        (0..n).map(|_| pair()).collect()
    }

    fn sums(basis: &Basis, pairs: &[[f64; 2]]) -> GramSums {
        let mut values = Vec::new();
        basis
            .features
            .evaluate_rounded(pairs.as_flattened(), &mut values);
        let places: Vec<(u32, u32)> = (0..pairs.len() as u32)
            .map(|i| (2 * i, 2 * i + 1))
            .collect();
        let mut sums = GramSums::new(basis.features.count(), 1, None);
        sums.add(&values, None, &[&places]);
        sums
    }

    struct Estimated {
        found: DensityError,
        /// ‖p̂ − p‖/‖p‖ by a sum over a grid.
        exact: f64,
        means: Grams,
        basis: Basis,
    }

    fn params(rank: usize, bandwidth: f64, norm: Norm) -> StateEmbedding {
        StateEmbedding {
            features: 150,
            bandwidth: Bandwidth::Value(bandwidth),
            norm,
            bounds: (norm == Norm::Lebesgue).then(|| vec![[-6.0, 6.0]]),
            ..StateEmbedding::new(rank)
        }
    }

    fn estimated(params: &StateEmbedding, n: usize, seed: u64) -> Estimated {
        let all = pairs(n, seed);
        let some = &all.as_flattened()[..(2 * n).min(10_000)];
        let points = Points::new(1, some.to_vec());
        let basis = candidates(&points, &[[-6.0, 6.0]], params, 1)
            .unwrap()
            .remove(0);
        let folds: Vec<GramSums> = all.chunks(n / FOLDS).map(|own| sums(&basis, own)).collect();
        let mut total = folds[0].clone();
        folds[1..].iter().for_each(|fold| total.merge(fold));
        let means = total.means(0).unwrap();
        let sampled = all.iter().enumerate().step_by((n / 2000).max(1));
        let sample = PairSample {
            starts: sampled.clone().map(|(_, pair)| pair[0]).collect(),
            ends: sampled.clone().map(|(_, pair)| pair[1]).collect(),
            weights: sampled.clone().map(|_| 1.0).collect(),
            folds: sampled.map(|(i, _)| (i * FOLDS / n) as u32).collect(),
        };
        let found = estimate(&folds, 0, &means, &basis, params, &sample);
        let model = fit_means(&means, &basis, params).unwrap();
        let gauss = |x: f64, v: f64| (-x * x / (2.0 * v)).exp() / (TAU * v).sqrt();
        let (mut error, mut norm) = (0.0, 0.0);
        let grid: Vec<f64> = (-80..=80).map(|i| f64::from(i) / 20.0).collect();
        for x in &grid {
            let estimates = model.densities(&vec![*x; grid.len()], &grid);
            for (y, estimate) in grid.iter().zip(estimates) {
                let mut exact = gauss(y - RHO * x, 1.0 - RHO * RHO);
                let mut weight = gauss(*x, 1.0);
                if params.norm == Norm::Density {
                    exact /= gauss(*y, 1.0);
                    weight *= gauss(*y, 1.0);
                }
                error += weight * (estimate - exact).powi(2);
                norm += weight * exact * exact;
            }
        }
        Estimated {
            found: found.unwrap().expect("five folds"),
            exact: (error / norm).sqrt(),
            means,
            basis,
        }
    }

    fn check(own: &Estimated) {
        let DensityError {
            error,
            standard_error,
            ..
        } = own.found;
        let tolerance = 3.0 * standard_error + 0.1 * own.exact;
        let shown = format!("{:?} {}", own.found, own.exact);
        assert!((error - own.exact).abs() < tolerance, "{shown}");
        assert!(standard_error < 0.15, "{shown}");
        let features = own.found.of_features.unwrap_or_default();
        let squares = own.found.of_pairs.powi(2) + own.found.of_rank.powi(2) + features.powi(2);
        // Parts below 0 are written as 0.
        let more = squares.sqrt() - error;
        assert!(more > -1e-9 && more < 0.1, "{shown}");
    }

    // Theorem 3: each of the three causes of an error, and the advice against it. Features of
    // bandwidth 2 cannot express a density of the width √(1 − ρ²) = .44, a rank of 2 leaves out
    // functions with a share of .51² of the squares of σ, and 800 pairs are few for the functions
    // of width .3. Features of x that are too smooth are not seen: a tenth of the error may be.
    #[test]
    fn theorem_3_errors_of_densities_are_those_of_the_known_process() {
        let smooth = estimated(&params(4, 2.0, Norm::Lebesgue), 20_000, 2);
        check(&smooth);
        let advice = |own: &Estimated| own.found.warning(Norm::Lebesgue).unwrap_or_default();
        assert!(
            advice(&smooth).contains("decrease `bandwidth`"),
            "{:?}",
            smooth.found
        );

        let low = estimated(&params(2, 0.5, Norm::Lebesgue), 20_000, 3);
        check(&low);
        assert!(advice(&low).contains("increase `rank`"), "{:?}", low.found);

        let few = estimated(&params(12, 0.3, Norm::Lebesgue), 800, 4);
        check(&few);
        assert!(advice(&few).contains("add pairs"), "{:?}", few.found);

        let good = estimated(&params(12, 0.5, Norm::Lebesgue), 40_000, 5);
        check(&good);
        assert!(good.found.warning(Norm::Lebesgue).is_none());
    }

    // ‖ρ‖² = Σ ρ²ᵏ = 1/(1 − ρ²), so a rank of 3 leaves out ρ⁶: the error is ρ³ = .729.
    #[test]
    fn errors_of_ratios_are_those_of_the_rank() {
        let own = estimated(&params(3, 0.7, Norm::Density), 20_000, 6);
        assert_eq!(own.found.of_features, None);
        let error = own.found.error;
        assert!((error - RHO.powi(3)).abs() < 0.1, "{error}");
    }

    // Theorem 1. The error of the plain embedding is √((1 − ‖μ‖²)/n), because K(x, x) = 1.
    #[test]
    fn theorem_1_errors_of_mean_embeddings() {
        let n = 2000;
        let own = estimated(&params(4, 0.5, Norm::Density), n, 7);
        let metric = own.basis.metric.as_deref().unwrap();
        let exact = sums(&own.basis, &pairs(50_000, 8)).means(0).unwrap();
        let exact = MeanEmbedding::plain(&exact.cross, metric);
        let norm = exact.product(&exact).sqrt();
        // Each fold is left out.
        let of_folds = n as f64 * (1.0 - 1.0 / FOLDS as f64);
        let plain = ((1.0 - norm * norm) / of_folds).sqrt() / norm;
        assert!(
            (own.found.kme / plain - 1.0).abs() < 0.2,
            "{} {plain}",
            own.found.kme
        );
        let fit = exact.of(&own.means.cross);
        let found = fit.distance(&exact) / norm;
        assert!((0.6..1.6).contains(&(own.found.kme / found)), "{found}");
        // λ̄ is the largest eigenvalue of E K(X, ·) ⊗ K(X, ·). For standard normal X it is √(2a/A),
        // with a = 1/4, b = 1/(2s²) = 2 and A = a + b + √(a² + 2ab). 150 random features have it
        // with a standard deviation of .05, 16 draws of them in the mean with .0125.
        let all = pairs(n, 9);
        let points = Points::new(1, all.as_flattened().to_vec());
        let lambdas = (1..=16).map(|seed| {
            let params = params(4, 0.5, Norm::Density);
            let basis = candidates(&points, &[[-6.0, 6.0]], &params, seed).unwrap();
            let means = sums(&basis[0], &all).means(0).unwrap();
            let metric = basis[0].metric.as_deref().unwrap();
            let plain = MeanEmbedding::plain(&means.cross, metric);
            plain.largest_eigenvalue(&means.starts, &means.ends)
        });
        let lambda = lambdas.sum::<f64>() / 16.0;
        assert!((lambda - 0.39).abs() < 0.05, "{lambda}");
        let own_lambda = own.found.largest_eigenvalue;
        assert!((own_lambda - 0.39).abs() < 0.2, "{own_lambda}");
        // σ₄ = ρ³, and the leverage is at least its mean, the number of functions.
        let condition = own.found.condition_number;
        assert!((condition * RHO.powi(3) - 1.0).abs() < 0.1, "{condition}");
        assert!(own.found.largest_leverage > 8.0, "{:?}", own.found);
    }

    #[test]
    fn one_fold_gives_no_error() {
        let params = params(2, 1.0, Norm::Density);
        let all = pairs(100, 1);
        let points = Points::new(1, all.as_flattened().to_vec());
        let basis = candidates(&points, &[[-6.0, 6.0]], &params, 1)
            .unwrap()
            .remove(0);
        let own = sums(&basis, &all);
        let means = own.means(0).unwrap();
        let empty = own.like();
        let found = estimate(
            &[own, empty],
            0,
            &means,
            &basis,
            &params,
            &PairSample::default(),
        );
        assert_eq!(found.unwrap(), None);
    }
}
