//! Small dense matrices, row-major, and their entries.

use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatRef, Par};
use rayon::prelude::*;

/// The index of the largest value, the first one on ties. 0 for no values.
pub(crate) fn first_largest(values: impl IntoIterator<Item = f64>) -> usize {
    let all = values.into_iter().enumerate();
    let largest = all.reduce(|a, b| if b.1 > a.1 { b } else { a });
    largest.map_or(0, |(at, _)| at)
}

/// Σ aᵢ bᵢ from left to right.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// ‖v‖.
pub(crate) fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

/// The identity: n × n.
pub(crate) fn identity(n: usize) -> Vec<f64> {
    (0..n * n)
        .map(|at| if at / n == at % n { 1.0 } else { 0.0 })
        .collect()
}

/// ab, for `a` of `K × n` and `b` of `n × n`.
pub(crate) fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; a.len()];
    accumulate(&mut out, a, b, n);
    out
}

/// out += ab, for `a` of `K × n` and `b` of `n × n`.
pub(crate) fn accumulate(out: &mut [f64], a: &[f64], b: &[f64], n: usize) {
    for (out, a) in out.chunks_exact_mut(n).zip(a.chunks_exact(n)) {
        for (a, b) in a.iter().zip(b.chunks_exact(n)) {
            for (out, b) in out.iter_mut().zip(b) {
                *out += a * b;
            }
        }
    }
}

/// The entries of a matrix.
pub(crate) fn row_major(a: MatRef<'_, f64>) -> Vec<f64> {
    let columns = a.ncols();
    (0..a.nrows() * columns)
        .map(|at| a[(at / columns, at % columns)])
        .collect()
}

/// Adds the lower triangle of aᵀb, times a factor.
pub(crate) fn add_triangle(
    sum: &mut Mat<f64>,
    accumulate: Accum,
    a: MatRef<'_, f64>,
    b: MatRef<'_, f64>,
    factor: f64,
) {
    triangular::matmul(
        sum.as_mut(),
        BlockStructure::TriangularLower,
        accumulate,
        a.transpose(),
        BlockStructure::Rectangular,
        b,
        BlockStructure::Rectangular,
        factor,
        Par::Seq,
    );
}

/// For every column the sign of its first entry of largest magnitude, up to a relative difference
/// of 10⁻⁶: if many entries are equal in theory, rounding must not choose among them.
pub(crate) fn signs(
    rows: usize,
    columns: usize,
    entry: impl Fn(usize, usize) -> f64 + Sync,
) -> Vec<f64> {
    (0..columns)
        .into_par_iter()
        .map(|k| {
            let entries = || (0..rows).map(|i| entry(i, k));
            let largest = entries().fold(0.0, |a: f64, x| a.max(x.abs()));
            let first = entries().find(|x| x.abs() >= (1.0 - 1e-6) * largest);
            if first.is_some_and(|x| x < 0.0) {
                -1.0
            } else {
                1.0
            }
        })
        .collect()
}

/// Multiplies every column by its sign.
pub(crate) fn flip(rows: &mut [f64], signs: &[f64]) {
    rows.par_chunks_exact_mut(signs.len()).for_each(|row| {
        row.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
    });
}
