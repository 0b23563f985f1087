//! What the Krylov methods for symmetric and for other operators share.

use rand::RngExt;
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// A panel of random numbers: n × width, row-major.
pub(super) fn random_panel(n: usize, width: usize, random: &mut Pcg64) -> Vec<f64> {
    (0..n * width)
        .map(|_| random.random_range(-1.0..1.0))
        .collect()
}

/// C S (`width × count`, row-major) for vectors S of V (`k × count`, row-major). Each of the k
/// `columns` continues after k entries with a column of C, the components of its image along F.
pub(super) fn coupling(columns: &[Vec<f64>], width: usize, s: &[f64], count: usize) -> Vec<f64> {
    let k = columns.len();
    let mut out = vec![0.0; width * count];
    for (column, s) in columns.iter().zip(s.chunks_exact(count)) {
        for (out, c) in out.chunks_exact_mut(count).zip(column.iter().skip(k)) {
            for (out, s) in out.iter_mut().zip(s) {
                *out += c * s;
            }
        }
    }
    out
}

/// The length of column `at` of a matrix with `count` columns, row-major.
pub(super) fn column_length(a: &[f64], count: usize, at: usize) -> f64 {
    let squares = a.iter().skip(at).step_by(count).map(|c| c * c);
    squares.sum::<f64>().sqrt()
}

/// The first `count` columns of panels as one row-major matrix.
pub(crate) fn unpanel(panels: &[Vec<f64>], width: usize, count: usize) -> Vec<f64> {
    let n = panels[0].len() / width;
    let mut out = vec![0.0; n * count];
    out.par_chunks_mut(count).enumerate().for_each(|(i, row)| {
        for (p, row) in row.chunks_mut(width).enumerate() {
            row.copy_from_slice(&panels[p][i * width..][..row.len()]);
        }
    });
    out
}

/// The entries (n × n, row-major) of an operator, by its products with panels of unit vectors.
pub(crate) fn entries_of(
    n: usize,
    width: usize,
    mut apply: impl FnMut(&[f64], &mut [f64]),
) -> Vec<f64> {
    let mut entries = vec![0.0; n * n];
    let (mut unit, mut product) = (vec![0.0; n * width], vec![0.0; n * width]);
    for first in (0..n).step_by(width) {
        let columns = width.min(n - first);
        unit.fill(0.0);
        (0..columns).for_each(|c| unit[(first + c) * width + c] = 1.0);
        apply(&unit, &mut product);
        for (row, product) in entries.chunks_exact_mut(n).zip(product.chunks_exact(width)) {
            row[first..first + columns].copy_from_slice(&product[..columns]);
        }
    }
    entries
}
