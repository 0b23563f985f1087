//! Covariances by their roots: P = UᵀU for an upper triangle U with a diagonal of at least 0.
//!
//! A sum of covariances AᵀA + BᵀB has the root of the rows of A above those of B, so neither
//! prediction nor update subtracts covariances. A number of P that is lost next to 10¹⁶ is still
//! there in U: next to 10⁸.
//!
//! Reflections act on rows of very different length, which are all needed: each column takes the
//! row with its largest number first (Cox, Higham, *Stability of Householder QR factorization for
//! weighted least squares problems*, 1998).

use crate::math::dense::symmetric_eigen;
use crate::methods::filter::kalman::small;

/// A covariance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Covariance {
    /// U: n × n. Row k is also the step to the k-th sigma point.
    pub(super) root: Vec<f64>,
    /// The diagonal of UᵀU: n values.
    pub(super) variance: Vec<f64>,
}

impl Covariance {
    pub(super) fn zero(n: usize) -> Covariance {
        Covariance {
            root: vec![0.0; n * n],
            variance: vec![0.0; n],
        }
    }

    pub(super) fn copy_from(&mut self, other: &Covariance) {
        self.root.copy_from_slice(&other.root);
        self.variance.copy_from_slice(&other.variance);
    }

    /// Computes the variances of the root.
    pub(super) fn measure(&mut self) {
        let n = self.variance.len();
        self.variance.fill(0.0);
        for (k, row) in self.root.chunks_exact(n).enumerate() {
            for (variance, u) in self.variance[k..].iter_mut().zip(&row[k..]) {
                *variance += u * u;
            }
        }
    }

    /// P, n × n.
    pub(super) fn product(&self) -> Vec<f64> {
        product(&self.root, self.variance.len())
    }
}

/// UᵀU for U of rows of `n` numbers.
pub(super) fn product(u: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    for row in u.chunks_exact(n) {
        for i in 0..n {
            for j in i..n {
                out[i * n + j] += row[i] * row[j];
            }
        }
    }
    small::mirror(&mut out, n);
    out
}

/// The upper triangle U with UᵀU = AᵀA and a diagonal of at least 0, for A of rows of `m` numbers.
/// A is overwritten. `sums`: m numbers. A number that is not finite stays one.
pub(super) fn triangle(a: &mut [f64], m: usize, sums: &mut [f64], out: &mut [f64]) {
    // The compiler unrolls loops of a known length: two thirds of the time for n = 2.
    match m {
        1 => reflect(a, 1, sums, out),
        2 => reflect(a, 2, sums, out),
        3 => reflect(a, 3, sums, out),
        4 => reflect(a, 4, sums, out),
        _ => reflect(a, m, sums, out),
    }
}

#[inline(always)]
fn reflect(a: &mut [f64], m: usize, sums: &mut [f64], out: &mut [f64]) {
    let mut rest = a;
    for (k, row) in out.chunks_exact_mut(m).enumerate() {
        let (mut square, mut largest, mut pivot) = (0.0, 0.0, 0);
        for (i, other) in rest.chunks_exact(m).enumerate() {
            let x = other[k];
            square += x * x;
            if x.abs() > largest {
                (largest, pivot) = (x.abs(), i);
            }
        }
        if square == 0.0 || square.is_nan() {
            row.fill(square);
            continue;
        }
        let (first, others) = rest.split_at_mut(m);
        if pivot > 0 {
            first[k..].swap_with_slice(&mut others[(pivot - 1) * m..][k..m]);
        }
        let norm = square.sqrt();
        let x = first[k];
        let signed = norm.copysign(x);
        let (row, sums, first) = (&mut row[..], &mut sums[k + 1..m], &first[k + 1..m]);
        for (sum, first) in sums.iter_mut().zip(first) {
            *sum = x * first;
        }
        for other in others.chunks_exact(m) {
            let x = other[k];
            // Rows of a triangle below its diagonal.
            if x != 0.0 {
                for (sum, other) in sums.iter_mut().zip(&other[k + 1..]) {
                    *sum += x * other;
                }
            }
        }
        row[..k].fill(0.0);
        row[k] = norm;
        let scale = 1.0 / (norm * (norm + x.abs()));
        let pairs = row[k + 1..].iter_mut().zip(first);
        for (sum, (out, first)) in sums.iter_mut().zip(pairs) {
            *out = *sum / norm;
            *sum = (*sum + signed * first) * scale;
        }
        for other in others.chunks_exact_mut(m) {
            let x = other[k];
            if x != 0.0 {
                for (other, sum) in other[k + 1..].iter_mut().zip(sums.iter()) {
                    *other -= x * sum;
                }
            }
        }
        rest = others;
    }
}

/// Takes an observation into the root U of a state. `seen` is U Hᵀ, n × m, and is overwritten;
/// `noise` is the root of R, m × m, and becomes that of HPHᵀ + R, Lᵀ; `cross` becomes Cᵀ, m × n,
/// of the gain CL⁻¹.
///
/// Rotations from the last row of U to the first keep it a triangle (Carlson, *Fast triangular
/// formulation of the square root filter*, 1973).
pub(super) fn observe(noise: &mut [f64], seen: &mut [f64], u: &mut [f64], cross: &mut [f64]) {
    let m = noise.len().isqrt();
    let n = u.len().isqrt();
    cross.fill(0.0);
    let rows = noise.chunks_exact_mut(m).zip(cross.chunks_exact_mut(n));
    for (j, (noise, cross)) in rows.enumerate() {
        let states = seen.chunks_exact_mut(m).zip(u.chunks_exact_mut(n));
        for (k, (seen, u)) in states.enumerate().rev() {
            let (own, y) = (noise[j], seen[j]);
            let length = (own * own + y * y).sqrt();
            if y == 0.0 || length == 0.0 {
                continue;
            }
            let inverse = 1.0 / length;
            let (cosine, sine) = (own * inverse, y * inverse);
            noise[j] = length;
            rotate(&mut noise[j + 1..], &mut seen[j + 1..], cosine, sine);
            rotate(&mut cross[k..], &mut u[k..], cosine, sine);
        }
    }
}

/// Rotates two rows.
#[inline]
fn rotate(a: &mut [f64], b: &mut [f64], cosine: f64, sine: f64) {
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (cosine * *a + sine * *b, cosine * *b - sine * *a);
    }
}

/// A pivot of at most this share of its variance is treated as 0.
const ROUNDING: f64 = 1e-14;

/// A pivot below minus this share of its variance is negative, not a rounding error.
const INDEFINITE: f64 = 1e-10;

/// The root of a covariance. One that rounding errors made indefinite loses its negative part.
pub(super) fn of(p: &[f64], n: usize) -> Vec<f64> {
    let mut lower = p.to_vec();
    if small::cholesky(&mut lower, n) {
        let mut root = vec![0.0; n * n];
        small::transpose(&lower, n, &mut root);
        return root;
    }
    if !small::are_finite(p) {
        return vec![f64::NAN; n * n];
    }
    let mut rows = semidefinite(p, n).unwrap_or_else(|| {
        let (values, vectors) = symmetric_eigen(p, n);
        let row = |k: usize| {
            let length = values[k].max(0.0).sqrt();
            let vectors = &vectors;
            (0..n).map(move |i| length * vectors[i * n + k])
        };
        (0..n).flat_map(row).collect()
    });
    let mut root = vec![0.0; n * n];
    triangle(&mut rows, n, &mut vec![0.0; n], &mut root);
    root
}

/// Rows A with AᵀA = P for P ≥ 0: Cholesky's, by the largest pivot against its variance. None if
/// a pivot is negative.
fn semidefinite(p: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut rest = p.to_vec();
    let mut rows: Vec<f64> = Vec::new();
    let share = |rest: &[f64], i: usize| match p[i * (n + 1)] {
        0.0 => 0.0,
        variance => rest[i * (n + 1)] / variance.abs(),
    };
    loop {
        let shares = || (0..n).map(|i| share(&rest, i));
        if shares().any(|share| share < -INDEFINITE) {
            return None;
        }
        let largest = shares().fold(0.0, f64::max);
        if largest <= ROUNDING || rows.len() == n * n {
            break;
        }
        let pivot = shares().position(|share| share == largest)?;
        let length = rest[pivot * (n + 1)].sqrt();
        let row: Vec<f64> = (0..n).map(|j| rest[pivot * n + j] / length).collect();
        for i in 0..n {
            for j in 0..n {
                rest[i * n + j] -= row[i] * row[j];
            }
        }
        for j in 0..n {
            (rest[pivot * n + j], rest[j * n + pivot]) = (0.0, 0.0);
        }
        rows.extend(row);
    }
    // What a variance of 0 has beside it is no covariance.
    let is_rounding = (0..n).all(|i| {
        (0..n).all(|j| {
            let size = (p[i * (n + 1)] * p[j * (n + 1)]).abs().sqrt();
            rest[i * n + j].abs() <= INDEFINITE.sqrt() * size
        })
    });
    is_rounding.then_some(rows)
}

/// A matrix of d × n, d > n, as ZT with ZᵀZ = 1.
#[derive(Debug)]
pub(super) struct Factored {
    /// Zᵀ: n × d.
    pub(super) z: Vec<f64>,
    /// T: n × n, upper.
    pub(super) t: Vec<f64>,
    /// Reflections: n × d, their scales and signs.
    reflections: Vec<f64>,
    scales: Vec<[f64; 2]>,
}

impl Factored {
    pub(super) fn new(d: usize, n: usize) -> Factored {
        Factored {
            z: vec![0.0; n * d],
            t: vec![0.0; n * n],
            reflections: vec![0.0; n * d],
            scales: vec![[0.0; 2]; n],
        }
    }

    /// Factors `a`.
    pub(super) fn factor(&mut self, a: &[f64], n: usize) {
        let d = a.len() / n;
        small::transpose(a, n, &mut self.reflections);
        self.t.fill(0.0);
        for k in 0..n {
            let (own, others) = self.reflections[k * d..].split_at_mut(d);
            let own = &mut own[k..];
            let norm = small::dot(own, own).sqrt();
            let signed = norm.copysign(own[0]);
            let row = &mut self.t[k * n..][..n];
            if norm == 0.0 || norm.is_nan() {
                // T has this row as it is.
                row[k] = norm;
                self.scales[k] = [0.0, 1.0];
                for (t, other) in row[k + 1..].iter_mut().zip(others.chunks_exact(d)) {
                    *t = other[k];
                }
                continue;
            }
            row[k] = norm;
            let scale = 1.0 / (norm * (norm + own[0].abs()));
            self.scales[k] = [scale, -1f64.copysign(own[0])];
            let sums = row[k + 1..].iter_mut().zip(others.chunks_exact(d));
            for (t, other) in sums {
                *t = small::dot(own, &other[k..]);
            }
            own[0] += signed;
            let sums = row[k + 1..].iter_mut().zip(others.chunks_exact_mut(d));
            for (t, other) in sums {
                let factor = (*t + signed * other[k]) * scale;
                *t /= norm;
                for (other, own) in other[k..].iter_mut().zip(own.iter()) {
                    *other -= factor * own;
                }
            }
        }
        self.z.fill(0.0);
        for (k, z) in self.z.chunks_exact_mut(d).enumerate() {
            z[k] = self.scales[k][1];
            for l in (0..=k).rev() {
                let own = &self.reflections[l * d + l..(l + 1) * d];
                let factor = small::dot(own, &z[l..]) * self.scales[l][0];
                for (z, own) in z[l..].iter_mut().zip(own) {
                    *z -= factor * own;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::close;

    fn triangle_of(rows: &[f64], m: usize) -> Vec<f64> {
        let mut out = vec![f64::NAN; m * m];
        triangle(&mut rows.to_vec(), m, &mut vec![0.0; m], &mut out);
        out
    }

    #[test]
    fn a_triangle_is_that_of_cholesky() {
        // Columns (2, −1, 2) and (1, 1, 0): squares 9 and 2, product 1.
        let found = triangle_of(&[2.0, 1.0, -1.0, 1.0, 2.0, 0.0], 2);
        let expected = [3.0, 1.0 / 3.0, 0.0, (17.0f64 / 9.0).sqrt()];
        close(&found, &expected, 1e-15);
        // Fewer rows than columns, and a column of zeros.
        assert_eq!(triangle_of(&[0.0, -3.0], 2), [0.0, 0.0, 0.0, 3.0]);
        assert_eq!(triangle_of(&[0.0; 6], 2), [0.0; 4]);
        assert!(triangle_of(&[1.0, f64::NAN, 1.0, 1.0], 2)[3].is_nan());
    }

    #[test]
    fn short_rows_stay_next_to_long_ones() {
        // Of 10¹⁶(1, 1)(1, 1)ᵀ and (0, 3)(0, 3)ᵀ: U = (10⁸, 10⁸; 0, 3).
        let expected = [1e8, 1e8, 0.0, 3.0];
        close(&triangle_of(&[0.0, 3.0, 1e8, 1e8], 2), &expected, 1e-15);
        close(&triangle_of(&[1e8, 1e8, 0.0, 3.0], 2), &expected, 1e-15);
    }

    #[test]
    fn an_observation_leaves_its_own_variance() {
        // By hand: P = 10¹⁶, R = 1, H = (1, 0). P⁺ = diag(1, 10¹⁶) but for 10⁻¹⁶.
        let (mut noise, mut seen) = ([1.0], [1e8, 0.0]);
        let (mut u, mut cross) = ([1e8, 0.0, 0.0, 1e8], [9.0; 2]);
        observe(&mut noise, &mut seen, &mut u, &mut cross);
        close(&noise, &[1e8], 1e-7);
        close(&u, &[1.0, 0.0, 0.0, 1e8], 1e-15);
        close(&cross, &[1e8, 0.0], 1e-7);
    }

    #[test]
    fn roots_of_singular_covariances_are_theirs() {
        let zero = [0.0, 0.0, 0.0, 0.0, 4.0, 2.0, 0.0, 2.0, 1.0];
        let root = of(&zero, 3);
        close(&root, &[0.0, 0.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0], 1e-15);
        // Small numbers next to large ones.
        let mixed = [1e16, 0.0, 0.0, 0.0, 4.0, 2.0, 0.0, 2.0, 1.0];
        close(&product(&of(&mixed, 3), 3)[4..6], &[4.0, 2.0], 1e-14);
        // Eigenvalues 3 and −1: the negative one is lost.
        let indefinite = product(&of(&[1.0, 2.0, 2.0, 1.0], 2), 2);
        close(&indefinite, &[1.5; 4], 1e-14);
        assert!(of(&[f64::NAN; 4], 2)[0].is_nan());
    }

    #[test]
    fn a_factored_matrix_is_the_product_of_its_factors() {
        // The second column is 0, the third is not in the span of the first.
        let a = [
            -2.0, 0.0, 1.0, 1.0, 0.0, 3.0, 2.0, 0.0, -1.0, 0.0, 0.0, 5.0, 4.0, 0.0, 0.0,
        ];
        let mut factored = Factored::new(5, 3);
        factored.factor(&a, 3);
        let (z, t) = (&factored.z, &factored.t);
        for row in 0..5 {
            for column in 0..3 {
                let sum: f64 = (0..3).map(|k| z[k * 5 + row] * t[k * 3 + column]).sum();
                assert!((sum - a[row * 3 + column]).abs() < 1e-14);
            }
        }
        for k in 0..3 {
            for l in 0..3 {
                let sum = small::dot(&z[k * 5..][..5], &z[l * 5..][..5]);
                assert!((sum - f64::from(k == l)).abs() < 1e-15 * 4.0);
            }
        }
    }
}
