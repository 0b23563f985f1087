//! Distributions through functions, by Merwe's scaled sigma points.
//!
//! The points and weights are those of filterpy's `MerweScaledSigmaPoints`, in its order. The
//! weight of the central point may be −10⁶, so covariances are not summed with the weights. With
//! the odd and the even part of the values at the points beside the central one,
//! a_k = (f(x + s_k) − f(x − s_k)) / 2 and b_k = (f(x + s_k) + f(x − s_k)) / 2 − f(x), with the
//! scale c = α²(n + κ) and with m = Σ b_k / c, which the mean is away from f(x), the same sum is
//!
//! Σ a_k a_kᵀ / c + Σ b_k b_kᵀ / c + (β − α²) m mᵀ.
//!
//! The last two parts are Σ u_k u_kᵀ / c for u_k = b_k − t Σ b, 1 − nt = √(1 + n(β − α²) / c). So
//! the covariance has a root, except for α²κ + nβ < 0, where one direction has a negative weight.

use crate::methods::filter::expression::Expression;
use crate::methods::filter::kalman::model::Spread;
use crate::methods::filter::kalman::root;

/// Weights and points for n coordinates.
#[derive(Debug)]
pub(super) struct Sigma {
    n: usize,
    /// The square of the distance of points: n + λ = α²(n + κ).
    scale: f64,
    /// t.
    shift: f64,
    /// Minus the weight of Σ b (Σ b)ᵀ if it is negative, else 0.
    negative: f64,
    /// (2n + 1) × n.
    points: Vec<f64>,
}

impl Sigma {
    pub(super) fn new(n: usize, spread: Spread) -> Sigma {
        let Spread { alpha, beta, kappa } = spread;
        let points = n as f64;
        let scale = alpha * alpha * (points + kappa);
        // 1 + n(β − α²) / c, with no difference of large numbers.
        let even = (alpha * alpha * kappa + points * beta) / scale;
        Sigma {
            n,
            scale,
            shift: (1.0 - even.max(0.0).sqrt()) / points,
            negative: (-even).max(0.0) / (points * scale),
            points: vec![0.0; (2 * n + 1) * n],
        }
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        2 * self.n + 1
    }

    /// Places the points of N(x, UᵀU).
    pub(super) fn place(&mut self, x: &[f64], root: &[f64]) {
        let n = self.n;
        let distance = self.scale.sqrt();
        self.points[..n].copy_from_slice(x);
        let (above, below) = self.points[n..].split_at_mut(n * n);
        for k in 0..n {
            for i in 0..n {
                let step = distance * root[k * n + i];
                above[k * n + i] = x[i] + step;
                below[k * n + i] = x[i] - step;
            }
        }
    }

    /// The values of functions at all points: points × functions.
    pub(super) fn values(&self, functions: &[Expression], out: &mut [f64]) {
        let points = self.points.chunks_exact(self.n);
        for (out, point) in out.chunks_exact_mut(functions.len()).zip(points) {
            for (out, function) in out.iter_mut().zip(functions) {
                *out = function.eval(point);
            }
        }
    }

    /// The mean of `m` values per point. `values` become Σ b and, from the second row on, 2n rows A
    /// of which the covariance is AᵀA, without its negative part.
    pub(super) fn spread(&self, values: &mut [f64], m: usize, mean: &mut [f64]) {
        let length = 1.0 / self.scale.sqrt();
        let (first, rest) = values.split_at_mut(m);
        let (above, below) = rest.split_at_mut(self.n * m);
        mean.copy_from_slice(first);
        for (above, below) in above.chunks_exact_mut(m).zip(below.chunks_exact_mut(m)) {
            let pairs = above.iter_mut().zip(below).zip(mean.iter());
            for ((above, below), first) in pairs {
                let (odd, even) = (*above - *below, (*above - first) + (*below - first));
                (*above, *below) = (0.5 * odd * length, 0.5 * even);
            }
        }
        first.fill(0.0);
        for even in below.chunks_exact(m) {
            for (sum, even) in first.iter_mut().zip(even) {
                *sum += even;
            }
        }
        for (mean, sum) in mean.iter_mut().zip(first.iter()) {
            *mean += sum / self.scale;
        }
        for even in below.chunks_exact_mut(m) {
            for (even, sum) in even.iter_mut().zip(first.iter()) {
                *even = (*even - self.shift * sum) * length;
            }
        }
    }

    /// The variance of one of `m` values per point after [`spread`](Sigma::spread).
    pub(super) fn variance(&self, values: &[f64], m: usize, index: usize) -> f64 {
        let squares = values.chunks_exact(m).map(|row| row[index] * row[index]);
        let mut squares = squares;
        let sum = squares.next().unwrap_or(0.0);
        squares.sum::<f64>() - self.negative * sum
    }

    /// Whether one direction of covariances has a negative weight.
    pub(super) fn has_negative_part(&self) -> bool {
        self.negative > 0.0
    }

    /// Subtracts the negative part for Σ b of the first numbers of the rows of a root. This
    /// difference may cancel, as the sum with weights does.
    pub(super) fn subtract_negative_part(&self, sum: &[f64], root: &mut [f64], width: usize) {
        if !self.has_negative_part() {
            return;
        }
        let mut product = root::product(root, width);
        for (out, u) in product.chunks_exact_mut(width).zip(sum) {
            for (out, v) in out.iter_mut().zip(sum) {
                *out -= self.negative * u * v;
            }
        }
        root.copy_from_slice(&root::of(&product, width));
    }

    /// The odd parts of the points themselves, as a root. Rounding moves a point, so this is not
    /// the root that the points were placed by.
    pub(super) fn steps(&self, root: &mut [f64]) {
        let length = 0.5 / self.scale.sqrt();
        let (above, below) = self.points[self.n..].split_at(root.len());
        for (root, (above, below)) in root.iter_mut().zip(above.iter().zip(below)) {
            *root = (above - below) * length;
        }
    }
}
