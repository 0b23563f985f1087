//! Inner products ⟨x, y⟩ = Σ_j w_j x_j y_j of coordinates as functions on weighted states, and
//! orthonormal bases.
//!
//! In: r coordinates per state (n × r, row-major) and n positive weights. Sums over states have a
//! fixed order for any number of threads.

use crate::math::dense;
use crate::math::matrix::dot;
use rayon::prelude::*;

/// Rows per partial sum. It decides the rounding, so it is constant.
const BLOCK: usize = 4096;

/// A direction whose squared length relative to the longest one is below this is rounding.
const DEPENDENT: f64 = 1e-14;

/// The sum over states of the terms that `add(row, weight, sums)` adds to `len` numbers.
pub(crate) fn blocks(
    rows: &[f64],
    rank: usize,
    weights: &[f64],
    len: usize,
    add: impl Fn(&[f64], f64, &mut [f64]) + Sync,
) -> Vec<f64> {
    let parts: Vec<Vec<f64>> = rows
        .par_chunks(BLOCK * rank)
        .zip(weights.par_chunks(BLOCK))
        .map(|(rows, weights)| {
            let mut sums = vec![0.0; len];
            for (row, weight) in rows.chunks_exact(rank).zip(weights) {
                add(row, *weight, &mut sums);
            }
            sums
        })
        .collect();
    let mut sums = vec![0.0; len];
    for part in parts {
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum += part;
        }
    }
    sums
}

/// The closest orthonormal columns: E G^{-1/2} (n × r) with the Gram matrix G. If columns are
/// dependent, the result spans fewer dimensions.
pub(crate) fn orthonormal(rows: &[f64], rank: usize, weights: &[f64]) -> Vec<f64> {
    // G^{-1/2} is symmetric, so its rows serve as its columns.
    multiply(rows, &inverse_root(rows, rank, weights), rank)
}

/// G^{-1/2} (r × r) for the Gram matrix G of the columns, on the dimensions that they span.
pub(crate) fn inverse_root(rows: &[f64], rank: usize, weights: &[f64]) -> Vec<f64> {
    let gram = blocks(rows, rank, weights, rank * rank, |row, weight, gram| {
        for (gram, x) in gram.chunks_exact_mut(rank).zip(row) {
            for (gram, y) in gram.iter_mut().zip(row) {
                *gram += weight * x * y;
            }
        }
    });
    let (values, vectors) = dense::symmetric_eigen(&gram, rank);
    let least = DEPENDENT * values[rank - 1];
    (0..rank * rank)
        .map(|at| {
            let (a, b) = (&vectors[at / rank * rank..], &vectors[at % rank * rank..]);
            let terms = values.iter().zip(a.iter().zip(b));
            let terms = terms.filter(|(value, _)| **value > least);
            terms.map(|(value, (a, b))| a * b / value.sqrt()).sum()
        })
        .collect()
}

/// Every row x becomes Bx, for `b` = B (r × r, row-major).
pub(crate) fn multiply(rows: &[f64], b: &[f64], rank: usize) -> Vec<f64> {
    let mut out = vec![0.0; rows.len()];
    out.par_chunks_mut(rank)
        .zip(rows.par_chunks(rank))
        .for_each(|(out, row)| {
            for (out, b) in out.iter_mut().zip(b.chunks_exact(rank)) {
                *out = dot(b, row);
            }
        });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Columns (1, 1) and (0, 2) with weights (½, ½): G = [[1, 1], [1, 2]].
    #[test]
    fn orthonormal_by_hand() {
        let rows = [1.0, 0.0, 1.0, 2.0];
        let basis = orthonormal(&rows, 2, &[0.5, 0.5]);
        let inner = |a: usize, b: usize| 0.5 * (basis[a] * basis[b] + basis[2 + a] * basis[2 + b]);
        for (a, b) in [(0, 0), (0, 1), (1, 1)] {
            assert!((inner(a, b) - f64::from(a == b)).abs() < 1e-14);
        }
    }

    #[test]
    fn a_dependent_column_is_no_dimension() {
        let rows: Vec<f64> = (0..10).flat_map(|j| [1.0, f64::from(j), 2.0]).collect();
        let basis = orthonormal(&rows, 3, &[0.1; 10]);
        let trace = blocks(&basis, 3, &[0.1; 10], 1, |row, weight, sum| {
            sum[0] += weight * dot(row, row);
        });
        assert!((trace[0] - 2.0).abs() < 1e-12);
    }
}
