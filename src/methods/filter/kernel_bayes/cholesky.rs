//! Pivoted incomplete Cholesky decompositions K ≈ LLᵀ, and features of new points.
//!
//! The pivot is the row with the largest error of the diagonal, the first one of equal rows. The
//! trace of the error K − LLᵀ, which is positive semidefinite, is known at every step.

use crate::math::matrix::first_largest;
use crate::methods::filter::kernel_bayes::kernel::Kernel;
use crate::methods::filter::kernel_bayes::linear::{add_columns, dot};
use serde::{Deserialize, Serialize};

/// A pivot at most this share of the largest entry of the diagonal is a rounding error.
const NEGLIGIBLE: f64 = 1e-15;

/// A decomposition of a matrix of order n.
#[derive(Debug, Clone, Default)]
pub(super) struct Incomplete {
    /// The rank, r.
    pub(super) rank: usize,
    /// L by columns: n × r.
    pub(super) columns: Vec<f64>,
    /// The rows of the pivots, in order.
    pub(super) pivots: Vec<usize>,
    /// The trace of the error.
    pub(super) residual: f64,
    /// The diagonal of the error.
    diagonal: Vec<f64>,
    /// Entries of one row of L.
    row: Vec<f64>,
}

impl Incomplete {
    /// Decomposes a matrix until the trace of the error is at most `enough` or the rank is `cap`.
    ///
    /// `diagonal` is that of the matrix, and `column` computes a column of it.
    pub(super) fn decompose(
        &mut self,
        diagonal: impl Iterator<Item = f64>,
        mut column: impl FnMut(usize, &mut [f64]),
        enough: f64,
        cap: usize,
    ) {
        self.diagonal.clear();
        self.diagonal.extend(diagonal);
        let n = self.diagonal.len();
        let largest = self.diagonal.iter().copied().fold(0.0, f64::max);
        self.pivots.clear();
        self.columns.clear();
        self.rank = 0;
        loop {
            self.residual = self.diagonal.iter().sum();
            let pivot = first_largest(self.diagonal.iter().copied());
            let is_done = n == 0 || self.rank == cap.min(n) || self.residual <= enough;
            if is_done || self.diagonal[pivot] <= NEGLIGIBLE * largest {
                return;
            }
            self.row.clear();
            let entries = self.columns.iter().skip(pivot).step_by(n);
            self.row.extend(entries.map(|l| -l));
            let start = self.columns.len();
            self.columns.resize(start + n, 0.0);
            let (before, new) = self.columns.split_at_mut(start);
            column(pivot, new);
            add_columns(before, &self.row, new);
            let root = self.diagonal[pivot].sqrt();
            let scale = 1.0 / root;
            for (l, d) in new.iter_mut().zip(&mut self.diagonal) {
                *l *= scale;
                *d = (*d - *l * *l).max(0.0);
            }
            // The rows of earlier pivots are exact.
            for &earlier in &self.pivots {
                new[earlier] = 0.0;
            }
            new[pivot] = root;
            self.diagonal[pivot] = 0.0;
            self.pivots.push(pivot);
            self.rank += 1;
        }
    }

    /// The rows of the pivots: r × r, lower triangular, row-major.
    fn pivot_rows(&self) -> Vec<f64> {
        let n = self.diagonal.len();
        let entry = |row: usize, k: usize| {
            if k <= row {
                self.columns[k * n + self.pivots[row]]
            } else {
                0.0
            }
        };
        let all = (0..self.rank * self.rank).map(|at| entry(at / self.rank, at % self.rank));
        all.collect()
    }
}

/// The features of points: r(x) = L⁻¹ k(P, x) for pivots P, so that k(x, y) ≈ r(x)ᵀr(y), exact if
/// one of the points is a pivot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Features {
    /// The pivots: r × width.
    pub(super) points: Vec<f64>,
    /// L at the pivots: r × r, lower triangular, row-major.
    pub(super) factor: Vec<f64>,
    /// r.
    pub(super) rank: usize,
}

impl Features {
    /// The features of the pivots of a decomposition of the kernel of `points`.
    pub(super) fn new(decomposition: &Incomplete, points: &[f64], width: usize) -> Features {
        let rows = decomposition.pivots.iter();
        let rows = rows.flat_map(|at| points[at * width..][..width].iter().copied());
        Features {
            points: rows.collect(),
            factor: decomposition.pivot_rows(),
            rank: decomposition.rank,
        }
    }

    /// The features of x.
    pub(super) fn of(&self, kernel: &Kernel, x: &[f64], out: &mut [f64]) {
        kernel.column(&self.points, x, out);
        self.solve(out);
    }

    /// x ← L⁻¹x.
    pub(super) fn solve(&self, x: &mut [f64]) {
        for i in 0..self.rank {
            let row = &self.factor[i * self.rank..][..=i];
            x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
        }
    }

    /// x ← L⁻ᵀx.
    pub(super) fn solve_transposed(&self, x: &mut [f64]) {
        for i in (0..self.rank).rev() {
            let row = &self.factor[i * self.rank..][..=i];
            x[i] /= row[i];
            let (before, own) = x.split_at_mut(i);
            for (x, l) in before.iter_mut().zip(row) {
                *x -= l * own[0];
            }
        }
    }

    /// The features of many points by columns: n × r.
    pub(super) fn columns(&self, kernel: &Kernel, points: &[f64]) -> Vec<f64> {
        let n = points.len() / kernel.width.max(1);
        let mut columns = vec![0.0; n * self.rank];
        for k in 0..self.rank {
            let (before, rest) = columns.split_at_mut(k * n);
            let own = &mut rest[..n];
            let pivot = &self.points[k * kernel.width..][..kernel.width];
            kernel.column(points, pivot, own);
            let row = &self.factor[k * self.rank..][..=k];
            let factors: Vec<f64> = row[..k].iter().map(|l| -l).collect();
            add_columns(before, &factors, own);
            let scale = 1.0 / row[k];
            own.iter_mut().for_each(|x| *x *= scale);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::filter::params;

    fn wave(n: usize) -> Vec<f64> {
        (0..2 * n).map(|at| (at as f64 * 0.37).sin()).collect()
    }

    fn kernel(bandwidth: f64) -> Kernel {
        Kernel {
            form: params::Kernel::Rbf,
            bandwidth,
            width: 2,
        }
    }

    fn decomposed(kernel: &Kernel, points: &[f64], enough: f64, cap: usize) -> Incomplete {
        let n = points.len() / 2;
        let mut out = Incomplete::default();
        let column = |at: usize, out: &mut [f64]| {
            kernel.column(points, &points[2 * at..2 * at + 2], out);
        };
        out.decompose((0..n).map(|_| 1.0), column, enough, cap);
        out
    }

    #[test]
    fn the_trace_of_the_error_is_known() {
        let (n, kernel) = (60, kernel(0.3));
        let points = wave(n);
        let gram = kernel.gram(&points);
        for cap in [1, 5, 20, 60] {
            let some = decomposed(&kernel, &points, 0.0, cap);
            let product = |i: usize, j: usize| -> f64 {
                let terms =
                    (0..some.rank).map(|k| some.columns[k * n + i] * some.columns[k * n + j]);
                terms.sum()
            };
            let trace: f64 = (0..n).map(|i| gram[i * n + i] - product(i, i)).sum();
            assert!((trace - some.residual).abs() < 1e-12);
            for j in &some.pivots {
                assert!((0..n).all(|i| (gram[i * n + j] - product(i, *j)).abs() < 1e-13));
            }
        }
        assert!(decomposed(&kernel, &points, 0.1, 60).residual <= 0.1);
    }

    #[test]
    fn features_of_training_points_are_rows_of_the_decomposition() {
        let (n, kernel) = (60, kernel(0.3));
        let points = wave(n);
        let some = decomposed(&kernel, &points, 1e-6, 60);
        let features = Features::new(&some, &points, 2);
        let columns = features.columns(&kernel, &points);
        let mut row = vec![0.0; features.rank];
        for i in 0..n {
            features.of(&kernel, &points[2 * i..2 * i + 2], &mut row);
            for (k, x) in row.iter().enumerate() {
                assert!((x - some.columns[k * n + i]).abs() < 1e-9);
                assert!((columns[k * n + i] - some.columns[k * n + i]).abs() < 1e-9);
            }
        }
        let mut x: Vec<f64> = (0..features.rank).map(|k| k as f64).collect();
        features.solve_transposed(&mut x);
        // Lᵀx is what it was.
        for k in 0..features.rank {
            let terms = (k..features.rank).map(|i| features.factor[i * features.rank + k] * x[i]);
            assert!((terms.sum::<f64>() - k as f64).abs() < 1e-8);
        }
    }

    #[test]
    fn equal_points_have_rank_one() {
        let some = decomposed(&kernel(1.0), &[0.5; 20], 0.0, 10);
        assert!(some.rank == 1 && some.residual == 0.0);
    }
}
