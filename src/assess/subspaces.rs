//! How much two embeddings of the same points span the same functions.
//!
//! In: two embeddings of n points. Out: the canonical correlations of their coordinates (Hotelling,
//! Biometrika 28, 1936), which are the cosines of the principal angles between the spans of the
//! centred columns. They depend neither on rotations nor on scales of an embedding.

use crate::math::dense::{square_svd, symmetric_eigen};
use crate::math::sum;

/// Directions with less than this share of the largest variance are left out: a constant coordinate
/// spans nothing.
const NEGLIGIBLE: f64 = 1e-12;

/// The canonical correlations of two embeddings (n × `widths`, row-major), descending. There are
/// none for a constant embedding.
///
/// # Panics
/// If the embeddings are not of the same number of points.
pub(crate) fn correlations(a: &[f64], b: &[f64], widths: [usize; 2]) -> Vec<f64> {
    let [a, b] = [whitened(a, widths[0]), whitened(b, widths[1])];
    let n = a.rows.len() / a.width.max(1);
    if a.width == 0 || b.width == 0 {
        return Vec::new();
    }
    assert_eq!(n, b.rows.len() / b.width, "one row per point");
    // The larger of both as a square, so that the other is filled with zeros.
    let size = a.width.max(b.width);
    let mut cross = vec![0.0; size * size];
    for (k, l) in (0..a.width).flat_map(|k| (0..b.width).map(move |l| (k, l))) {
        cross[k * size + l] = sum::terms(n, |i| a.rows[i * a.width + k] * b.rows[i * b.width + l]);
    }
    let (values, ..) = square_svd(&cross, size);
    let values = values.into_iter().take(a.width.min(b.width));
    values.map(|value| value.min(1.0)).collect()
}

/// Orthonormal columns.
struct Whitened {
    width: usize,
    rows: Vec<f64>,
}

/// An orthonormal basis of the span of the centred columns.
fn whitened(rows: &[f64], width: usize) -> Whitened {
    let none = Whitened {
        width: 0,
        rows: Vec::new(),
    };
    if width == 0 || rows.is_empty() {
        return none;
    }
    let n = rows.len() / width;
    let column = |k: usize| sum::terms(n, |i| rows[i * width + k]) / n as f64;
    let means: Vec<f64> = (0..width).map(column).collect();
    let mut centred: Vec<f64> = rows.to_vec();
    for row in centred.chunks_exact_mut(width) {
        row.iter_mut().zip(&means).for_each(|(x, mean)| *x -= mean);
    }
    // Coordinates may have very different sizes, such as those of λᵗ. A coordinate that differs
    // from its mean by rounding alone is constant.
    let sizes: Vec<f64> = (0..width)
        .map(|k| sum::terms(n, |i| centred[i * width + k].powi(2)).sqrt())
        .collect();
    let is_constant = |k: usize| sizes[k] <= 1e-10 * means[k].abs() * (n as f64).sqrt();
    for row in centred.chunks_exact_mut(width) {
        for (k, x) in row.iter_mut().enumerate() {
            *x = if is_constant(k) || sizes[k] == 0.0 {
                0.0
            } else {
                *x / sizes[k]
            };
        }
    }
    let mut gram = vec![0.0; width * width];
    for k in 0..width {
        for l in 0..=k {
            let product = sum::terms(n, |i| centred[i * width + k] * centred[i * width + l]);
            (gram[k * width + l], gram[l * width + k]) = (product, product);
        }
    }
    let (values, vectors) = symmetric_eigen(&gram, width);
    let largest = values.last().copied().unwrap_or(0.0);
    let kept: Vec<usize> = (0..width)
        .filter(|&k| values[k] > NEGLIGIBLE * largest && values[k] > 0.0)
        .collect();
    let row = |row: &[f64]| -> Vec<f64> {
        let coordinate = |&k: &usize| {
            let terms = row
                .iter()
                .enumerate()
                .map(|(l, x)| x * vectors[l * width + k]);
            terms.sum::<f64>() / values[k].sqrt()
        };
        kept.iter().map(coordinate).collect()
    };
    Whitened {
        width: kept.len(),
        rows: centred.chunks_exact(width).flat_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_cosines_of_angles() {
        // Columns (1, −1, 0, 0)/√2, (0, 0, 1, −1)/√2 and (1, 1, −1, −1)/2 are orthonormal.
        let s = 0.5f64.sqrt();
        let (u, v, w) = ([s, -s, 0.0, 0.0], [0.0, 0.0, s, -s], [0.5, 0.5, -0.5, -0.5]);
        // The span of u and a constant, and that of u and 0.6 v + 0.8 w, turned and shifted.
        let a: Vec<f64> = (0..4).flat_map(|i| [7.0, 3.0 * u[i] + 1.0]).collect();
        let mixed = |i: usize| 0.6 * v[i] + 0.8 * w[i];
        let b: Vec<f64> = (0..4)
            .flat_map(|i| [u[i] + mixed(i), 2.0 * u[i] - mixed(i) + 5.0])
            .collect();
        let c: Vec<f64> = (0..4).flat_map(|i| [v[i], u[i]]).collect();
        let found = correlations(&a, &b, [2, 2]);
        assert_eq!(found.len(), 1);
        assert!((found[0] - 1.0).abs() < 1e-12, "{found:?}");
        let found = correlations(&b, &c, [2, 2]);
        assert!(
            (found[0] - 1.0).abs() < 1e-12 && (found[1] - 0.6).abs() < 1e-12,
            "{found:?}"
        );
        assert!(correlations(&[1.0, 1.0], &[1.0, 2.0], [1, 1]).is_empty());
    }
}
