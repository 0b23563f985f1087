//! The leading part of the real Schur decomposition of a small dense matrix, A Q = Q T, with the
//! eigenvalues of largest magnitude or real part first.
//!
//! In: A, n × n row-major, and the number of vectors. Out: the first columns of the orthogonal Q,
//! the leading block of T, and the eigenvalues. The first k columns of Q span the invariant
//! subspace of the k leading eigenvalues unless k splits a complex pair. This holds for any
//! multiplicities and Jordan blocks.
//!
//! Eigenvectors of an eigenvalue decomposition are used in order, as long as each is well separated
//! from the span of those before. Reflections move their span to the front, which leaves a smaller
//! matrix, whose eigenvectors are next. A single eigenvector is always accurate to rounding, so
//! nearly parallel eigenvectors cost no accuracy.

use crate::math::dense;
use crate::math::matrix::{dot, identity, norm};
use faer::Mat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The least share of an eigenvector outside the span of those before it. Its inverse bounds the
/// loss of accuracy.
const APART: f64 = 1e-2;

/// The largest residual of an accepted eigenvector, relative to the norm of A.
const INVARIANT: f64 = 1e-12;

/// Magnitudes or real parts that differ by at most this share are equal. Among equal magnitudes the
/// larger real part comes first, and among equal real parts the larger magnitude.
const EQUAL: f64 = 1e-9;

/// Which eigenvalues lead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// Those of largest magnitude: sets that last, and cycles.
    #[default]
    Magnitude,
    /// Those of largest real part: sets that last.
    Real,
}

impl Which {
    /// The name of the order in pipeline files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Which::Magnitude => "magnitude",
            Which::Real => "real",
        }
    }
}

/// The leading part of a Schur decomposition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schur {
    /// n × count, row-major, with orthonormal columns.
    pub vectors: Vec<f64>,
    /// count × count, row-major: upper triangular except for the blocks of complex pairs.
    pub form: Vec<f64>,
    /// Real and imaginary parts. A complex pair is adjacent, the positive imaginary part first.
    pub values: Vec<[f64; 2]>,
}

/// The leading `count` Schur vectors of `a`. If a pair would not fit at the end, the next real
/// eigenvalue is used instead; it exists, because `n − count` must be even.
///
/// # Panics
/// If `a` is not n × n, if `count` exceeds n, or if `n − count` is odd.
pub(crate) fn leading(a: &[f64], n: usize, count: usize, by: Which) -> Schur {
    assert!(a.len() == n * n && count <= n);
    assert!((n - count).is_multiple_of(2), "complex pairs stay whole");
    let mut t = a.to_vec();
    let mut q = identity(n);
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        deflate(&mut t, &mut q, count, by, &mut values);
    }
    Schur {
        vectors: leading_columns(&q, n, count),
        form: leading_columns(&t[..count * n], n, count),
        values,
    }
}

fn leading_columns(a: &[f64], n: usize, count: usize) -> Vec<f64> {
    a.chunks_exact(n.max(1))
        .flat_map(|row| &row[..count])
        .copied()
        .collect()
}

/// Moves some of the eigenvectors of the block of T after the `values` so far to the front of the
/// block. There will be `count` values.
fn deflate(t: &mut [f64], q: &mut [f64], count: usize, by: Which, values: &mut Vec<[f64; 2]>) {
    let (n, first) = (t.len().isqrt(), values.len());
    let rest = n - first;
    let block: Vec<f64> = t[first * n..]
        .chunks_exact(n)
        .flat_map(|row| &row[first..])
        .copied()
        .collect();
    let eigen = Eigen::of(&block, rest);
    let mut reflections: Vec<Vec<f64>> = Vec::new();
    for (at, is_pair) in eigen.order(by) {
        let width = if is_pair { 2 } else { 1 };
        if first + reflections.len() + width > count {
            continue;
        }
        let before = reflections.len();
        let mut vectors: Vec<Vec<f64>> = (at..at + width).map(|c| eigen.vector(c)).collect();
        if !are_invariant(&block, eigen.values[at], &vectors) {
            if before > 0 {
                break;
            }
            vectors = smallest_singular(&block, eigen.values[at], width);
        }
        for mut v in vectors {
            for (done, reflection) in reflections.iter().enumerate() {
                reflect(reflection, &mut v[done..]);
            }
            let tail = &v[reflections.len()..];
            if before > 0 && norm(tail) < APART * norm(&v) {
                reflections.truncate(before);
                break;
            }
            reflections.push(reflection(tail));
        }
        if reflections.len() == before {
            break;
        }
        let [re, im] = eigen.values[at];
        values.extend([[re, im], [re, -im]].iter().take(width));
        if values.len() == count {
            break;
        }
    }
    for (done, v) in reflections.iter().enumerate() {
        let at = first + done;
        for row in t.chunks_exact_mut(n).chain(q.chunks_exact_mut(n)) {
            reflect(v, &mut row[at..]);
        }
        for column in 0..n {
            let mut entries: Vec<f64> = (at..n).map(|i| t[i * n + column]).collect();
            reflect(v, &mut entries);
            for (i, entry) in (at..n).zip(entries) {
                t[i * n + column] = entry;
            }
        }
    }
    let end = values.len();
    for row in t[end * n..].chunks_exact_mut(n) {
        row[first..end].fill(0.0);
    }
}

/// Whether `vectors` are an invariant vector x or, for a pair, two independent vectors x and y with
/// A x = re x − im y. The vectors of a multiple eigenvalue may be zero.
fn are_invariant(a: &[f64], [re, im]: [f64; 2], vectors: &[Vec<f64>]) -> bool {
    let n = vectors[0].len();
    let image = |x: &[f64]| -> Vec<f64> { a.chunks_exact(n).map(|row| dot(row, x)).collect() };
    let least = INVARIANT * (norm(a) + f64::MIN_POSITIVE);
    let is_near = |x: &[f64], y: Option<&[f64]>| {
        let off: Vec<f64> = (image(x).iter().enumerate())
            .map(|(i, ax)| ax - re * x[i] + y.map_or(0.0, |y| im * y[i]))
            .collect();
        norm(&off) <= least * norm(x) && norm(x) > 0.0
    };
    match vectors {
        [x, y] => {
            let inner = dot(x, y);
            let back: Vec<f64> = x.iter().map(|x| -x).collect();
            let is_pair =
                |x: &[f64], y: &[f64], back: &[f64]| is_near(x, Some(y)) && is_near(y, Some(back));
            let apart = (1.0 - APART * APART).sqrt() * norm(x) * norm(y);
            // The sign of y is not known.
            let opposite: Vec<f64> = y.iter().map(|y| -y).collect();
            inner.abs() < apart && (is_pair(x, y, &back) || is_pair(x, &opposite, &back))
        }
        _ => is_near(&vectors[0], None),
    }
}

/// The singular vectors of A − re, or for a pair of (A − re)² + im², with the smallest singular
/// values. They are accurate to rounding for any multiplicity.
fn smallest_singular(a: &[f64], [re, im]: [f64; 2], width: usize) -> Vec<Vec<f64>> {
    let n = a.len().isqrt();
    let shifted: Vec<f64> = (a.iter().enumerate())
        .map(|(at, a)| a - if at / n == at % n { re } else { 0.0 })
        .collect();
    let matrix = if width == 1 {
        shifted
    } else {
        let squared = (0..n * n).map(|at| {
            let row = &shifted[at / n * n..][..n];
            let product: f64 = (0..n).map(|k| row[k] * shifted[k * n + at % n]).sum();
            product + if at / n == at % n { im * im } else { 0.0 }
        });
        squared.collect()
    };
    let (_, _, right) = dense::square_svd(&matrix, n);
    let column = |c: usize| (0..n).map(|i| right[i * n + c]).collect();
    (n - width..n).map(column).collect()
}

/// The unit vector w for which x ↦ x − 2 w wᵀx maps v to a multiple of the first unit vector.
fn reflection(v: &[f64]) -> Vec<f64> {
    let mut w = v.to_vec();
    w[0] += norm(v).copysign(v[0]);
    let length = norm(&w);
    // For v = 0, use the first unit vector.
    if length > 0.0 {
        w.iter_mut().for_each(|x| *x /= length);
    } else {
        w[0] = 1.0;
    }
    w
}

/// x ← x − 2 w wᵀx.
pub(super) fn reflect(w: &[f64], x: &mut [f64]) {
    let twice = 2.0 * dot(w, x);
    for (x, w) in x.iter_mut().zip(w) {
        *x -= twice * w;
    }
}

struct Eigen {
    /// The first of a pair has the positive imaginary part.
    values: Vec<[f64; 2]>,
    /// The columns are eigenvectors; for a pair the real and the imaginary part, up to a sign.
    vectors: Mat<f64>,
}

impl Eigen {
    fn of(a: &[f64], n: usize) -> Eigen {
        let (mut values, vectors) = dense::real_eigen(a, n);
        let mut at = 0;
        while at < n {
            at += if values[at][1] != 0.0 {
                values[at][1] = values[at][1].abs();
                2
            } else {
                1
            };
        }
        Eigen { values, vectors }
    }

    fn vector(&self, column: usize) -> Vec<f64> {
        self.vectors.col(column).iter().copied().collect()
    }

    /// The indices of the eigenvalues, leading first, and whether each is the first of a pair.
    fn order(&self, by: Which) -> Vec<(usize, bool)> {
        let mut order = Vec::new();
        let mut at = 0;
        while at < self.values.len() {
            let is_pair = self.values[at][1] != 0.0;
            order.push((at, is_pair));
            at += if is_pair { 2 } else { 1 };
        }
        let magnitude = |at: usize| self.values[at][0].hypot(self.values[at][1]);
        let real = |at: usize| self.values[at][0];
        let (first, then): (&dyn Fn(usize) -> f64, &dyn Fn(usize) -> f64) = match by {
            Which::Magnitude => (&magnitude, &real),
            Which::Real => (&real, &magnitude),
        };
        order.sort_by(|a, b| first(b.0).total_cmp(&first(a.0)));
        let mut start = 0;
        while start < order.len() {
            let largest = first(order[start].0);
            let least = largest - EQUAL * largest.abs();
            let equal = order[start..].iter();
            let end = start + equal.take_while(|(at, _)| first(*at) >= least).count();
            order[start..end].sort_by(|a, b| then(b.0).total_cmp(&then(a.0)));
            start = end.max(start + 1);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The largest entries of QᵀQ − I and AQ − QT, and of T below its blocks.
    fn errors(a: &[f64], n: usize, schur: &Schur) -> [f64; 3] {
        let count = schur.values.len();
        let q = |i: usize, k: usize| schur.vectors[i * count + k];
        let t = |k: usize, l: usize| schur.form[k * count + l];
        let mut errors = [0.0f64; 3];
        for k in 0..count {
            for l in 0..count {
                let inner: f64 = (0..n).map(|i| q(i, k) * q(i, l)).sum();
                errors[0] = errors[0].max((inner - f64::from(k == l)).abs());
                let is_pair = k == l + 1 && schur.values[l][1] > 0.0;
                if k > l && !is_pair {
                    errors[2] = errors[2].max(t(k, l).abs());
                }
            }
            for i in 0..n {
                let aq: f64 = (0..n).map(|j| a[i * n + j] * q(j, k)).sum();
                let qt: f64 = (0..count).map(|l| q(i, l) * t(l, k)).sum();
                errors[1] = errors[1].max((aq - qt).abs());
            }
        }
        errors
    }

    fn assert_values(found: &[[f64; 2]], expected: &[[f64; 2]], tolerance: f64) {
        for (f, e) in found.iter().zip(expected) {
            let off = (f[0] - e[0]).abs().max((f[1] - e[1]).abs());
            assert!(off <= tolerance, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn a_pair_is_larger_than_a_real_value() {
        // Blocks (0.3), a rotation by 90° times 0.8, and (−0.5), with couplings above: values
        // ±0.8i, −0.5, 0.3.
        #[rustfmt::skip]
        let a = [
            0.3, 0.2,  0.1,  0.4,
            0.0, 0.0, -0.8,  0.3,
            0.0, 0.8,  0.0,  0.7,
            0.0, 0.0,  0.0, -0.5,
        ];
        let four = leading(&a, 4, 4, Which::Magnitude);
        let expected = [[0.0, 0.8], [0.0, -0.8], [-0.5, 0.0], [0.3, 0.0]];
        assert_values(&four.values, &expected, 1e-14);
        assert!(errors(&a, 4, &four).iter().all(|e| *e < 1e-14));
        assert_eq!(leading(&a, 4, 2, Which::Magnitude).values, four.values[..2]);
    }

    #[test]
    fn a_jordan_block_and_equal_magnitudes() {
        // 0.9 three times with one eigenvector, and 1, −1.
        #[rustfmt::skip]
        let a = [
            0.9, 1.0, 0.0, 0.0,  0.0,
            0.0, 0.9, 1.0, 0.0,  0.0,
            0.0, 0.0, 0.9, 0.5,  0.0,
            0.0, 0.0, 0.0, 0.0,  1.0,
            0.0, 0.0, 0.0, 1.0,  0.0,
        ];
        let schur = leading(&a, 5, 5, Which::Magnitude);
        assert_values(&schur.values[..2], &[[1.0, 0.0], [-1.0, 0.0]], 1e-13);
        // A perturbation moves a triple eigenvalue by its cube root, but not the invariant
        // subspace.
        assert!(errors(&a, 5, &schur).iter().all(|e| *e < 1e-13));
        assert!((schur.values[2..].iter().map(|v| v[0]).sum::<f64>() - 2.7).abs() < 1e-13);
    }

    #[test]
    fn a_double_value_with_one_vector() {
        // 1 twice, and −1. The second 1 has no eigenvector, and a decomposition may return zero for
        // the first.
        let a = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -0.4, 0.0, 1.0];
        for count in [1, 3] {
            let schur = leading(&a, 3, count, Which::Magnitude);
            assert!(errors(&a, 3, &schur).iter().all(|e| *e < 1e-14));
            assert_values(&schur.values, &[[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], 1e-7);
        }
    }

    #[test]
    fn permutations_and_constants_end() {
        for n in [1, 2, 3, 4, 7, 16, 33] {
            let shift: Vec<f64> = (0..n * n)
                .map(|at| f64::from((at / n + 1) % n == at % n))
                .collect();
            let schur = leading(&shift, n, n, Which::Magnitude);
            assert!(errors(&shift, n, &schur).iter().all(|e| *e < 1e-13));
            assert!((schur.values[0][0] - 1.0).abs() < 1e-13);
            let mean = vec![1.0 / n as f64; n * n];
            let schur = leading(&mean, n, n, Which::Magnitude);
            assert!(errors(&mean, n, &schur).iter().all(|e| *e < 1e-13));
            let zero = vec![0.0; n * n];
            let found = errors(&zero, n, &leading(&zero, n, n, Which::Magnitude));
            assert!(found.iter().all(|e| *e == 0.0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_schur_relation_holds(
            (n, a) in (1usize..14).prop_flat_map(|n| {
                let entry = prop_oneof![2 => Just(0.0), 1 => -1.0..1.0f64, 1 => Just(1.0)];
                (Just(n), prop::collection::vec(entry, n * n))
            }),
            fewer in 0usize..4,
        ) {
            let count = n - (2 * fewer).min(n / 2 * 2);
            let schur = leading(&a, n, count, Which::Magnitude);
            let errors = errors(&a, n, &schur);
            prop_assert!(errors.iter().all(|e| *e < 1e-11), "{errors:?}");
            let size = |v: &[f64; 2]| v[0].hypot(v[1]);
            let ordered = schur.values[..count.saturating_sub(1)].windows(2);
            for pair in ordered {
                // Values of one Jordan block differ by a root of the rounding error.
                prop_assert!(size(&pair[0]) >= size(&pair[1]) - 1e-3, "{:?}", schur.values);
            }
        }
    }
}
