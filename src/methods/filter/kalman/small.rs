//! Products and decompositions of small row-major matrices, in memory of the caller.
//!
//! Sums are added in a fixed order. A symmetric result has equal bits on both sides of its diagonal.

/// Sums that [`dot`] adds side by side.
const LANES: usize = 4;

/// Σ a_i b_i.
#[inline]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    if a.len() <= 2 * LANES {
        return a.iter().zip(b).map(|(a, b)| a * b).sum();
    }
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    let mut sums = [0.0; LANES];
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// out = A x + c for A with rows of the length of x.
#[inline]
pub(super) fn affine(a: &[f64], x: &[f64], c: &[f64], out: &mut [f64]) {
    let rows = a.chunks_exact(x.len());
    for ((out, row), c) in out.iter_mut().zip(rows).zip(c) {
        *out = dot(row, x) + c;
    }
}

/// out = A B for A of `k` columns and B of `m` columns.
#[inline]
pub(super) fn product(a: &[f64], k: usize, b: &[f64], m: usize, out: &mut [f64]) {
    for (out, row) in out.chunks_exact_mut(m).zip(a.chunks_exact(k)) {
        out.fill(0.0);
        for (a, b) in row.iter().zip(b.chunks_exact(m)) {
            for (out, b) in out.iter_mut().zip(b) {
                *out += a * b;
            }
        }
    }
}

/// out += A Bᵀ, if the result is symmetric, for A and B of `n` rows of `k` numbers.
#[inline]
pub(super) fn add_symmetric_product(a: &[f64], b: &[f64], k: usize, n: usize, out: &mut [f64]) {
    for i in 0..n {
        for j in i..n {
            let sum = out[i * n + j] + dot(&a[i * k..][..k], &b[j * k..][..k]);
            out[i * n + j] = sum;
            out[j * n + i] = sum;
        }
    }
}

/// Copies the upper triangle to the lower one.
pub(super) fn mirror(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..i {
            a[i * n + j] = a[j * n + i];
        }
    }
}

/// The lower triangle L with L Lᵀ = A, in place of A. False if A is not positive definite.
pub(super) fn cholesky(a: &mut [f64], n: usize) -> bool {
    for j in 0..n {
        let (above, below) = a.split_at_mut(j * n);
        let row = &mut below[..n];
        for k in 0..j {
            let other = &above[k * n..][..=k];
            row[k] = (row[k] - dot(&other[..k], &row[..k])) / other[k];
        }
        let pivot = row[j] - dot(&row[..j], &row[..j]);
        if !(pivot > 0.0 && pivot.is_finite()) {
            return false;
        }
        row[j] = pivot.sqrt();
        row[j + 1..].fill(0.0);
    }
    true
}

/// A pivot of at most this share of its diagonal element is treated as 0.
const ROUNDING: f64 = 1e-14;

/// A pivot below minus this share of its diagonal element is negative, not a rounding error.
const INDEFINITE: f64 = 1e-10;

/// The lower triangle L with L Lᵀ = A for A ≥ 0, in place of A. A column whose pivot is 0 but for
/// rounding errors is 0. False if a pivot is negative.
pub(super) fn semidefinite_cholesky(a: &mut [f64], n: usize) -> bool {
    for j in 0..n {
        let diagonal = a[j * n + j];
        let pivot = diagonal - dot(&a[j * n..][..j], &a[j * n..][..j]);
        if !(pivot >= -INDEFINITE * diagonal.abs() && pivot.is_finite()) {
            return false;
        }
        let is_zero = pivot <= ROUNDING * diagonal;
        let root = if is_zero { 0.0 } else { pivot.sqrt() };
        a[j * n + j] = root;
        for i in j + 1..n {
            a[j * n + i] = 0.0;
            let rest = a[i * n + j] - dot(&a[i * n..][..j], &a[j * n..][..j]);
            a[i * n + j] = if root > 0.0 { rest / root } else { 0.0 };
        }
    }
    true
}

/// x ← L⁻¹ x for a lower triangle of n × n.
#[inline]
pub(super) fn forward(l: &[f64], n: usize, x: &mut [f64]) {
    for i in 0..n {
        let row = &l[i * n..][..=i];
        x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
    }
}

/// B ← L⁻¹ B for a lower triangle of n × n and n rows of `m` numbers.
pub(super) fn forward_rows(l: &[f64], n: usize, b: &mut [f64], m: usize) {
    for i in 0..n {
        let (above, row) = b.split_at_mut(i * m);
        let row = &mut row[..m];
        for (k, other) in above.chunks_exact(m).enumerate() {
            let factor = l[i * n + k];
            for (x, y) in row.iter_mut().zip(other) {
                *x -= factor * y;
            }
        }
        let diagonal = l[i * n + i];
        row.iter_mut().for_each(|x| *x /= diagonal);
    }
}

/// B ← L⁻ᵀ B for a lower triangle of n × n and n rows of `m` numbers.
pub(super) fn backward_rows(l: &[f64], n: usize, b: &mut [f64], m: usize) {
    for i in (0..n).rev() {
        let (row, below) = b[i * m..].split_at_mut(m);
        for (k, other) in below.chunks_exact(m).take(n - 1 - i).enumerate() {
            let factor = l[(i + 1 + k) * n + i];
            for (x, y) in row.iter_mut().zip(other) {
                *x -= factor * y;
            }
        }
        let diagonal = l[i * n + i];
        row.iter_mut().for_each(|x| *x /= diagonal);
    }
}

/// ln |L Lᵀ| of a lower triangle.
pub(super) fn log_determinant(l: &[f64], n: usize) -> f64 {
    2.0 * (0..n).map(|i| l[i * n + i].ln()).sum::<f64>()
}

/// Whether all numbers are finite.
pub(super) fn are_finite(x: &[f64]) -> bool {
    x.iter().all(|x| x.is_finite())
}

/// Whether all numbers have the same bits.
#[inline]
pub(super) fn are_same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f64; 9] = [4.0, 2.0, 1.0, 2.0, 5.0, 3.0, 1.0, 3.0, 6.0];

    #[test]
    fn triangles_solve_a_system() {
        let mut l = A;
        assert!(cholesky(&mut l, 3));
        let mut x = [1.0, 0.0, 2.0, 1.0, 3.0, -1.0];
        forward_rows(&l, 3, &mut x, 2);
        backward_rows(&l, 3, &mut x, 2);
        let mut back = [0.0; 6];
        product(&A, 3, &x, 2, &mut back);
        for (back, b) in back.iter().zip([1.0, 0.0, 2.0, 1.0, 3.0, -1.0]) {
            assert!((back - b).abs() < 1e-14);
        }
        // |A| = 4 · 21 − 2 · 9 + 1 · 1.
        assert!((log_determinant(&l, 3) - 67f64.ln()).abs() < 1e-14);
        let mut same = A;
        assert!(semidefinite_cholesky(&mut same, 3));
        for (a, b) in same.iter().zip(l) {
            assert!((a - b).abs() < 1e-15);
        }
    }

    #[test]
    fn a_singular_matrix_has_a_semidefinite_triangle_alone() {
        let singular = [1.0, 2.0, 2.0, 4.0];
        assert!(!cholesky(&mut singular.clone(), 2));
        let mut l = singular;
        assert!(semidefinite_cholesky(&mut l, 2));
        assert_eq!(l, [1.0, 0.0, 2.0, 0.0]);
        assert!(!semidefinite_cholesky(&mut [1.0, 2.0, 2.0, 3.0], 2));
    }

    #[test]
    fn a_symmetric_product_has_equal_halves() {
        let a = [1.0, 2.0, 3.0, 4.0];
        let mut out = [1.0, 0.0, 0.0, 1.0];
        add_symmetric_product(&a, &a, 2, 2, &mut out);
        assert_eq!(out, [6.0, 11.0, 11.0, 26.0]);
    }
}
