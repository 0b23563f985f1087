//! What the Krylov methods for symmetric and for other operators share.

use rand::RngExt;
use rand_pcg::Pcg64;

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
