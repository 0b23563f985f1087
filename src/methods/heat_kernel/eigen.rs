//! Leading eigenpairs of a normalised kernel.
//!
//! In: an operator B with ‖B‖ = 1. Out: its leading eigenpairs with residuals.
//!
//! Kernels of many points have eigenvalues very close to 1, so a Krylov space of B must be large.
//! A few steps of block Lanczos give a lower bound of the wanted eigenvalues. Then block Lanczos is
//! applied to T_m(ℓ(B)) / T_m(ℓ(1)), where T_m is a Chebyshev polynomial and ℓ maps the unwanted
//! interval [−1, b] to [−1, 1]. The products with B are the same in number, but only every m-th
//! vector must be stored and orthogonalised. A Rayleigh–Ritz step with B ends it.

use crate::math::krylov::{entries_of, unpanel};
use crate::math::matrix::{flip, signs};
use crate::math::{dense, lanczos};
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::spectral::truncated_svd::distances;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// The largest ‖Bu − λu‖ of a pair that has converged.
pub(crate) const LARGEST_RESIDUAL: f64 = 1e-3;

/// Columns of a block.
const WIDTH: usize = 4;

/// Block products of the first estimate.
const FIRST_STEPS: usize = 40;

/// Numbers in the basis of the Krylov space, about 340 MB.
const ROOM: usize = 85 << 19;

/// The number of products with one vector after which the iteration stops.
const MAX_PRODUCTS: usize = 400_000;

/// An upper bound of the vectors of length `n` that [`leading`] keeps for `count` pairs.
pub(crate) fn vectors(n: usize, count: usize) -> usize {
    let basis = lanczos::largest_dimension(count, WIDTH, ROOM / n.max(1));
    // The Ritz vectors and their images, and the blocks of the filter and of a product.
    basis + 4 * count.next_multiple_of(WIDTH) + 8 * WIDTH
}

/// Leading eigenpairs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pairs {
    /// λ, descending.
    pub values: Vec<f64>,
    /// n × r, row-major, orthonormal columns. In each column the first entry of largest magnitude
    /// is positive.
    pub vectors: Vec<f64>,
    /// Bu, n × r, row-major.
    pub images: Vec<f64>,
    /// ‖Bu − λu‖ of each pair.
    pub residuals: Vec<f64>,
    /// Products of B with one vector.
    pub products: usize,
    /// Whether every pair passed the test.
    pub converged: bool,
}

/// The `count` leading eigenpairs. `tolerance` bounds the residuals of the filtered operator, whose
/// eigenvalues are well apart.
///
/// # Panics
/// If there are more pairs than dimensions.
pub(crate) fn leading(operator: &dyn Operator, count: usize, tolerance: f64, seed: u64) -> Pairs {
    let n = operator.n();
    assert!(1 <= count && count <= n, "an operator has at most n pairs");
    if n <= (100 + 8 * count).max(lanczos::smallest_dimension(count, WIDTH)) {
        return whole(operator, count);
    }
    let mut random = Pcg64::seed_from_u64(seed);
    let start = operator.leading();
    let mut products = 0;
    let mut options = lanczos::Options {
        wanted: count,
        width: WIDTH,
        residual: tolerance,
        max_products: FIRST_STEPS.max(count.div_ceil(WIDTH) + 2) * WIDTH,
        room: ROOM,
    };
    let apply = |x: &[f64], out: &mut [f64]| {
        products += WIDTH;
        operator.apply(x, WIDTH, out);
    };
    let ritz = lanczos::leading(apply, &start, &options, &mut random);
    let (mut pairs, [mut panels, mut images]) = rayleigh_ritz(operator, ritz.panels, count);
    let mut converged = ritz.converged;
    if !converged {
        drop([panels, images]);
        // The last wanted value is closer to 1 than the gap. The factors are those that took the
        // least time for 10⁵ points of a torus.
        let gap = (1.0 - pairs.values[count - 1]).clamp(1e-12, 0.5);
        let filter = Filter::new(1.0 - 1.5 * gap, (3.0 / (3.0 * gap).sqrt()).ceil() as usize);
        let mut buffers = [vec![0.0; n * WIDTH], vec![0.0; n * WIDTH]];
        let apply = |x: &[f64], out: &mut [f64]| {
            products += WIDTH * filter.degree;
            filter.apply(operator, x, &mut buffers, out);
        };
        options.max_products = MAX_PRODUCTS / filter.degree;
        let ritz = lanczos::leading(apply, &start, &options, &mut random);
        converged = ritz.converged;
        (pairs, [panels, images]) = rayleigh_ritz(operator, ritz.panels, count);
    }
    // The test of the filtered operator says little if `tolerance` is large.
    converged &= pairs.residuals.iter().all(|r| *r <= LARGEST_RESIDUAL);
    for (panel, image) in panels.iter_mut().zip(&mut images) {
        let signs = signs(n, WIDTH, |i, k| panel[i * WIDTH + k]);
        flip(panel, &signs);
        flip(image, &signs);
    }
    Pairs {
        vectors: unpanel(&panels, WIDTH, count),
        images: unpanel(&images, WIDTH, count),
        products: products + 2 * count,
        converged,
        ..pairs
    }
}

/// All eigenpairs by a dense method, of which the leading ones are kept.
fn whole(operator: &dyn Operator, count: usize) -> Pairs {
    let n = operator.n();
    let entries = entries_of(n, 8, |x, out| operator.apply(x, 8, out));
    let (values, mut vectors) = dense::leading_eigen(&entries, n, count);
    let signs = signs(n, count, |i, k| vectors[i * count + k]);
    flip(&mut vectors, &signs);
    let mut images = vec![0.0; n * count];
    let mut squares = vec![0.0; count];
    for (i, row) in entries.chunks_exact(n).enumerate() {
        for (c, square) in squares.iter_mut().enumerate() {
            let product: f64 = (row.iter().zip(vectors.iter().skip(c).step_by(count)))
                .map(|(a, u)| a * u)
                .sum();
            images[i * count + c] = product;
            *square += (product - values[c] * vectors[i * count + c]).powi(2);
        }
    }
    Pairs {
        values,
        vectors,
        images,
        residuals: squares.into_iter().map(f64::sqrt).collect(),
        products: n,
        converged: true,
    }
}

/// The Ritz pairs of B on the span of some panels, and the panels of the
/// Ritz vectors and of their images.
fn rayleigh_ritz(
    operator: &dyn Operator,
    mut panels: Vec<Vec<f64>>,
    count: usize,
) -> (Pairs, [Vec<Vec<f64>>; 2]) {
    let k = panels.len() * WIDTH;
    let mut h = vec![0.0; k * k];
    let mut images = Vec::with_capacity(panels.len());
    for (p, panel) in panels.iter().enumerate() {
        let mut image = vec![0.0; panel.len()];
        operator.apply(panel, WIDTH, &mut image);
        let column = dense::project(&panels, WIDTH, &image);
        for (row, column) in h.chunks_exact_mut(k).zip(column.chunks_exact(WIDTH)) {
            row[p * WIDTH..][..WIDTH].copy_from_slice(column);
        }
        images.push(image);
    }
    for i in 0..k {
        for j in 0..i {
            let mean = (h[i * k + j] + h[j * k + i]) / 2.0;
            (h[i * k + j], h[j * k + i]) = (mean, mean);
        }
    }
    let (mut values, vectors) = dense::leading_eigen(&h, k, k);
    dense::rotate(&mut panels, WIDTH, &vectors, k);
    dense::rotate(&mut images, WIDTH, &vectors, k);
    let mut residuals = Vec::with_capacity(k);
    for ((image, panel), values) in images.iter().zip(&panels).zip(values.chunks(WIDTH)) {
        residuals.extend(distances(image, panel, values));
    }
    values.truncate(count);
    residuals.truncate(count);
    let pairs = Pairs {
        values,
        vectors: Vec::new(),
        images: Vec::new(),
        residuals,
        products: 0,
        converged: true,
    };
    (pairs, [panels, images])
}

/// A polynomial that is 1 at 1, increases above b, and is small on [−1, b].
struct Filter {
    /// ℓ(λ) = slope λ + shift.
    slope: f64,
    shift: f64,
    degree: usize,
    /// T_i(ℓ(1)) / T_{i+1}(ℓ(1)).
    ratios: Vec<f64>,
}

impl Filter {
    fn new(b: f64, degree: usize) -> Filter {
        let (slope, shift) = (2.0 / (b + 1.0), (1.0 - b) / (b + 1.0));
        let at_one = slope + shift;
        let mut ratios = vec![1.0 / at_one];
        while ratios.len() < degree {
            let last = ratios[ratios.len() - 1];
            ratios.push(1.0 / (2.0 * at_one - last));
        }
        Filter {
            slope,
            shift,
            degree,
            ratios,
        }
    }

    /// With p_i = T_i(ℓ(B)) / T_i(ℓ(1)) and r_i = T_{i-1}(ℓ(1)) / T_i(ℓ(1)): p_{i+1} = 2 r_{i+1}
    /// ℓ(B) p_i − r_{i+1} r_i p_{i−1}.
    fn apply(
        &self,
        operator: &dyn Operator,
        x: &[f64],
        buffers: &mut [Vec<f64>; 2],
        out: &mut [f64],
    ) {
        let [now, before] = buffers;
        operator.apply(x, WIDTH, out);
        now.copy_from_slice(x);
        combine(out, now, before, self.factors(self.ratios[0], 0.0));
        // `out` is p_1 and `now` is p_0.
        for i in 1..self.degree {
            std::mem::swap(now, before);
            now.copy_from_slice(out);
            operator.apply(now, WIDTH, out);
            let back = -self.ratios[i] * self.ratios[i - 1];
            combine(out, now, before, self.factors(2.0 * self.ratios[i], back));
        }
    }

    /// Those of `factor` · ℓ(B) p + `before` · (the polynomial before p).
    fn factors(&self, factor: f64, before: f64) -> Factors {
        Factors {
            out: factor * self.slope,
            now: factor * self.shift,
            before,
        }
    }
}

/// The factors of a linear combination of three vectors.
struct Factors {
    out: f64,
    now: f64,
    before: f64,
}

/// out = a · out + b · now + c · before, for the factors a, b and c.
fn combine(out: &mut [f64], now: &[f64], before: &[f64], factors: Factors) {
    let block = 1 << 14;
    let (a, b, c) = (factors.out, factors.now, factors.before);
    out.par_chunks_mut(block)
        .zip(now.par_chunks(block))
        .zip(before.par_chunks(block))
        .for_each(|((out, now), before)| {
            for ((out, now), before) in out.iter_mut().zip(now).zip(before) {
                *out = a * *out + b * now + c * before;
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Diagonal(Vec<f64>);

    impl Operator for Diagonal {
        fn n(&self) -> usize {
            self.0.len()
        }

        fn apply(&self, x: &[f64], width: usize, out: &mut [f64]) {
            for (at, (out, x)) in out.iter_mut().zip(x).enumerate() {
                *out = self.0[at / width] * x;
            }
        }

        fn leading(&self) -> Vec<f64> {
            let mut first = vec![0.0; self.n()];
            first[0] = 1.0;
            first
        }
    }

    #[test]
    fn values_close_to_one_are_found() {
        let mut values: Vec<f64> = (0..3000).map(|i| (-1e-5 * f64::from(i)).exp()).collect();
        values[2999] = -0.9;
        let found = leading(&Diagonal(values.clone()), 6, 1e-8, 1);
        assert!(found.converged);
        for (found, exact) in found.values.iter().zip(&values) {
            assert!((found - exact).abs() < 1e-12, "{found} for {exact}");
        }
        assert!(found.residuals.iter().all(|r| *r < 1e-8));
        let small = leading(&Diagonal(values[..100].to_vec()), 3, 1e-8, 1);
        assert!((small.values[2] - values[2]).abs() < 1e-14);
    }
}
