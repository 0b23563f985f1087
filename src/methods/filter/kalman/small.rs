//! Products and decompositions of small row-major matrices, in memory of the caller.
//!
//! Sums are added in a fixed order.

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

/// out = U Aᵀ for an upper triangle U of n × n and A of rows of `n` numbers. Rows of `out` have
/// `width` numbers, of which the first are written.
#[inline]
pub(super) fn upper_product(u: &[f64], a: &[f64], n: usize, out: &mut [f64], width: usize) {
    let rows = out.chunks_exact_mut(width).zip(u.chunks_exact(n));
    for (k, (out, u)) in rows.enumerate() {
        for (out, a) in out.iter_mut().zip(a.chunks_exact(n)) {
            *out = dot(&a[k..], &u[k..]);
        }
    }
}

/// The transpose of a matrix of `n` columns.
pub(super) fn transpose(a: &[f64], n: usize, out: &mut [f64]) {
    let rows = a.len() / n;
    for (i, row) in a.chunks_exact(n).enumerate() {
        for (j, a) in row.iter().enumerate() {
            out[j * rows + i] = *a;
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
        for (at, b) in [1.0, 0.0, 2.0, 1.0, 3.0, -1.0].iter().enumerate() {
            let back: f64 = (0..3).map(|k| l[at / 2 * 3 + k] * x[2 * k + at % 2]).sum();
            assert!((back - b).abs() < 1e-14);
        }
        // |A| = 4 · 21 − 2 · 9 + 1 · 1.
        assert!((log_determinant(&l, 3) - 67f64.ln()).abs() < 1e-14);
        assert!(!cholesky(&mut [1.0, 2.0, 2.0, 4.0], 2));
    }

    #[test]
    fn a_product_with_a_triangle_skips_its_zeros() {
        let (u, a) = ([1.0, 2.0, 0.0, 3.0], [1.0, 1.0, 5.0, 7.0, 2.0, 0.0]);
        let mut out = [9.0; 8];
        upper_product(&u, &a, 2, &mut out, 4);
        assert_eq!(out, [3.0, 19.0, 2.0, 9.0, 3.0, 21.0, 0.0, 9.0]);
    }
}
