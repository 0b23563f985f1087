//! Distributions through functions, by Merwe's scaled sigma points.
//!
//! The points and weights are those of filterpy's `MerweScaledSigmaPoints`, in its order.

use crate::math::dense::symmetric_eigen;
use crate::methods::filter::expression::Expression;
use crate::methods::filter::kalman::model::Spread;
use crate::methods::filter::kalman::small;

/// Weights and points for n coordinates.
#[derive(Debug)]
pub(super) struct Sigma {
    n: usize,
    /// The distance of points: n + λ = α²(n + κ).
    scale: f64,
    /// The weight of the central point in means, and in covariances.
    central: [f64; 2],
    /// The weight of every other point.
    other: f64,
    /// (2n + 1) × n.
    points: Vec<f64>,
    /// The square root of a covariance, n × n.
    root: Vec<f64>,
}

impl Sigma {
    pub(super) fn new(n: usize, spread: Spread) -> Sigma {
        let Spread { alpha, beta, kappa } = spread;
        let scale = alpha * alpha * (n as f64 + kappa);
        let central = (scale - n as f64) / scale;
        Sigma {
            n,
            scale,
            central: [central, central + 1.0 - alpha * alpha + beta],
            other: 0.5 / scale,
            points: vec![0.0; (2 * n + 1) * n],
            root: vec![0.0; n * n],
        }
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        2 * self.n + 1
    }

    /// Places the points of N(x, P). A covariance that rounding errors made indefinite loses its
    /// negative part.
    pub(super) fn place(&mut self, x: &[f64], p: &mut [f64]) {
        let n = self.n;
        self.keep_semidefinite(p);
        let distance = self.scale.sqrt();
        self.points[..n].copy_from_slice(x);
        let (above, below) = self.points[n..].split_at_mut(n * n);
        for k in 0..n {
            for i in 0..n {
                let step = distance * self.root[i * n + k];
                above[k * n + i] = x[i] + step;
                below[k * n + i] = x[i] - step;
            }
        }
    }

    /// Sets negative eigenvalues of a covariance to 0 if there are any.
    pub(super) fn keep_semidefinite(&mut self, p: &mut [f64]) {
        self.root.copy_from_slice(p);
        if !small::semidefinite_cholesky(&mut self.root, self.n) && small::are_finite(p) {
            without_negative_part(p, self.n);
            self.root.copy_from_slice(p);
            small::semidefinite_cholesky(&mut self.root, self.n);
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

    /// The mean of `m` values per point. `values` become their differences from the mean.
    pub(super) fn mean(&self, values: &mut [f64], m: usize, mean: &mut [f64]) {
        // Differences from the central point: its weight may be −10⁶, and weights add up to 1.
        let (first, rest) = values.split_at_mut(m);
        mean.fill(0.0);
        for value in rest.chunks_exact(m) {
            for ((mean, value), first) in mean.iter_mut().zip(value).zip(first.iter()) {
                *mean += value - first;
            }
        }
        for (mean, first) in mean.iter_mut().zip(first.iter()) {
            *mean = first + self.other * *mean;
        }
        for value in values.chunks_exact_mut(m) {
            for (value, mean) in value.iter_mut().zip(mean.iter()) {
                *value -= mean;
            }
        }
    }

    /// out += Σ_i w_i u_i v_iᵀ of `m` and `l` differences per point.
    pub(super) fn add_covariance(&self, u: &[f64], m: usize, v: &[f64], l: usize, out: &mut [f64]) {
        let rows = u.chunks_exact(m).zip(v.chunks_exact(l));
        for (point, (u, v)) in rows.enumerate() {
            let weight = if point == 0 {
                self.central[1]
            } else {
                self.other
            };
            for (out, u) in out.chunks_exact_mut(l).zip(u) {
                let factor = weight * u;
                for (out, v) in out.iter_mut().zip(v) {
                    *out += factor * v;
                }
            }
        }
    }

    /// The variance of one of `m` differences per point.
    pub(super) fn variance(&self, values: &[f64], m: usize, index: usize) -> f64 {
        let others = values[m..]
            .chunks_exact(m)
            .map(|value| value[index] * value[index]);
        self.central[1] * values[index] * values[index] + self.other * others.sum::<f64>()
    }

    /// The differences of the points from the mean `x` that they were placed at.
    pub(super) fn differences(&self, x: &[f64], out: &mut [f64]) {
        let points = self.points.chunks_exact(self.n);
        for (out, point) in out.chunks_exact_mut(self.n).zip(points) {
            for ((out, point), x) in out.iter_mut().zip(point).zip(x) {
                *out = point - x;
            }
        }
    }
}

/// Replaces negative eigenvalues by 0.
fn without_negative_part(p: &mut [f64], n: usize) {
    let (values, vectors) = symmetric_eigen(p, n);
    p.fill(0.0);
    for (k, value) in values.iter().enumerate() {
        if *value > 0.0 {
            for i in 0..n {
                for j in i..n {
                    p[i * n + j] += value * vectors[i * n + k] * vectors[j * n + k];
                }
            }
        }
    }
    small::mirror(p, n);
}
