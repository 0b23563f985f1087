//! Leading Schur vectors of an operator B, given by its products with blocks of vectors and one
//! known eigenvector.
//!
//! In: B as a function on *panels* (`n × width`, row-major, see `dense`), a unit eigenvector, the
//! number of further vectors and the tolerance. Out: orthonormal vectors, orthogonal to the given
//! one. Together with it they span invariant subspaces of B for the eigenvalues of largest
//! magnitude or real part. These eigenvalues are returned too.
//!
//! Block Krylov–Schur (Stewart, SIAM J. Matrix Anal. Appl. 23, 2002): B V = V H + F C, with an
//! orthonormal basis V and one panel F to which B has not been applied yet. A restart replaces V by
//! its leading Schur vectors and keeps F. All vectors are orthogonal to the given eigenvector, so
//! the iteration sees the eigenvalues of the quotient, which are all others of B. A dense method is
//! used in small dimensions.
//!
//! *Multiplicity.* From blocks of b random vectors, a Krylov space finds min(b, geometric
//! multiplicity) copies of an eigenvalue. Copies beyond `width` may be missed.

use crate::math::dense;
use crate::math::krylov::{column_length, coupling, random_panel, unpanel};
use crate::math::matrix::norm;
use crate::math::schur::{self, Which, reflect};
use rand_pcg::Pcg64;

/// Parameters of [`leading`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// Wanted Schur vectors besides the given one.
    pub wanted: usize,
    /// Vectors per panel: 2, 4 or 8.
    pub width: usize,
    /// The iteration stops when, for every wanted q, the part of B q outside the span of the
    /// vectors up to q has at most this length.
    pub residual: f64,
    /// The iteration stops after this many products of B with one vector, converged or not.
    pub max_products: usize,
    /// The order of the eigenvalues.
    pub by: Which,
}

/// The result of [`leading`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leading {
    /// n × wanted, row-major.
    pub vectors: Vec<f64>,
    /// Real and imaginary parts in leading order. Complex pairs are adjacent, the positive
    /// imaginary part first. If the last value has a positive imaginary part, its conjugate was
    /// beyond the wanted number.
    pub values: Vec<[f64; 2]>,
    /// Length of the part of B q outside the span of the given vector and those up to q.
    pub residuals: Vec<f64>,
    /// Products of B with one vector.
    pub products: usize,
    /// Number of restarts.
    pub restarts: usize,
    /// Whether every residual is within the tolerance.
    pub converged: bool,
}

/// The number of vectors that survive a restart, and the basis size that triggers one.
fn dimensions(wanted: usize, width: usize) -> (usize, usize) {
    let kept = (wanted + 18).next_multiple_of(width);
    let largest = kept + 12 * width + wanted / 2;
    (kept, largest.next_multiple_of(width))
}

/// The leading Schur vectors of B, where `apply(x, out)` sets out = Bx on panels and `known` is a
/// unit vector v with Bv = v.
///
/// # Panics
/// If `wanted` is not below n, or if `width` is odd.
pub(crate) fn leading(
    mut apply: impl FnMut(&[f64], &mut [f64]),
    known: &[f64],
    options: &Options,
    random: &mut Pcg64,
) -> Leading {
    let n = known.len();
    let (wanted, width) = (options.wanted, options.width);
    assert!(wanted < n && width.is_multiple_of(2));
    let (kept, largest) = dimensions(wanted, width);
    if n < 4 * largest {
        return leading_dense(apply, known, options);
    }

    let mut panel = vec![0.0; n * width];
    for (row, v) in panel.chunks_exact_mut(width).zip(known) {
        row[0] = *v;
    }
    let mut first = random_panel(n, width, random);
    let mut basis = vec![panel];
    dense::orthonormalise(&basis, 0..1, width, &mut first, random);
    basis.push(first);
    // Columns of H and C down to their last non-zero entry; column j belongs to vector j of V.
    let mut columns: Vec<Vec<f64>> = Vec::new();
    let (mut products, mut restarts, mut next_check) = (0, 0, 0);
    loop {
        let mut next = vec![0.0; n * width];
        apply(&basis[basis.len() - 1], &mut next);
        products += width;
        let split = dense::orthonormalise(&basis, 0..basis.len(), width, &mut next, random);
        for j in 0..width {
            let along = split.along.iter().skip(width * width + j).step_by(width);
            let rest = split.rest.iter().skip(j).step_by(width);
            columns.push(along.chain(rest).copied().collect());
        }
        basis.push(next);

        let k = columns.len();
        let is_last = products >= options.max_products;
        if k < kept || !(k >= largest || is_last || k >= next_check) {
            continue;
        }
        next_check = k + k / 4;
        let h: Vec<f64> = (0..k * k)
            .map(|at| columns[at % k].get(at / k).copied().unwrap_or(0.0))
            .collect();
        let schur = schur::leading(&h, k, kept, options.by);
        let coupling = coupling(&columns, width, &schur.vectors, kept);
        let residuals: Vec<f64> = (0..wanted)
            .map(|i| column_length(&coupling, kept, i))
            .collect();
        let converged = residuals.iter().all(|r| *r <= options.residual);
        if !(converged || is_last || k >= largest) {
            continue;
        }

        let last = basis.len() - 1;
        dense::rotate(&mut basis[1..last], width, &schur.vectors, kept);
        if converged || is_last {
            return Leading {
                vectors: unpanel(&basis[1..], width, wanted),
                values: schur.values[..wanted].to_vec(),
                residuals,
                products,
                restarts,
                converged,
            };
        }
        basis.drain(1 + kept / width..last);
        restarts += 1;
        next_check = 0;
        columns = (0..kept)
            .map(|j| {
                let within = schur.form.iter().skip(j).step_by(kept);
                let out = coupling.iter().skip(j).step_by(kept);
                within.chain(out).copied().collect()
            })
            .collect();
    }
}

/// `leading` by a dense decomposition. The reflection I − 2wwᵀ maps the known vector to the first
/// unit vector. It maps B to a matrix whose first row and column can be dropped.
fn leading_dense(
    mut apply: impl FnMut(&[f64], &mut [f64]),
    known: &[f64],
    options: &Options,
) -> Leading {
    let (n, wanted, width) = (known.len(), options.wanted, options.width);
    let mut w = known.to_vec();
    w[0] += 1f64.copysign(known[0]);
    let length = norm(&w);
    w.iter_mut().for_each(|x| *x /= length);
    // Columns 1.. of the reflected matrix, without its row 0.
    let mut rest = vec![0.0; (n - 1) * (n - 1)];
    let mut panel = vec![0.0; n * width];
    let mut product = vec![0.0; n * width];
    for first in (1..n).step_by(width) {
        let count = width.min(n - first);
        panel.fill(0.0);
        for j in 0..count {
            let mut unit = vec![0.0; n];
            unit[first + j] = 1.0;
            reflect(&w, &mut unit);
            for (row, x) in panel.chunks_exact_mut(width).zip(unit) {
                row[j] = x;
            }
        }
        apply(&panel, &mut product);
        for j in 0..count {
            let mut column: Vec<f64> = product.iter().skip(j).step_by(width).copied().collect();
            reflect(&w, &mut column);
            for (row, x) in rest.chunks_exact_mut(n - 1).zip(&column[1..]) {
                row[first - 1 + j] = *x;
            }
        }
    }
    // One or two more than wanted, so that the last wanted vector is in order.
    let more = if (n - 1 - wanted).is_multiple_of(2) {
        2
    } else {
        1
    };
    let count = (wanted + more).min(n - 1);
    let schur = schur::leading(&rest, n - 1, count, options.by);
    let mut vectors = vec![0.0; n * wanted];
    for k in 0..wanted {
        let q = schur.vectors.iter().skip(k).step_by(count).copied();
        let mut column: Vec<f64> = std::iter::once(0.0).chain(q).collect();
        reflect(&w, &mut column);
        for (row, x) in vectors.chunks_exact_mut(wanted).zip(column) {
            row[k] = x;
        }
    }
    Leading {
        vectors,
        values: schur.values[..wanted].to_vec(),
        residuals: vec![0.0; wanted],
        products: n - 1,
        restarts: 0,
        converged: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::matrix::dot;
    use rand::SeedableRng;

    /// Runs `leading` for a sparse matrix of (row, column, value). Also returns the largest entry
    /// of BQ − Q(QᵀBQ), where Q includes the known vector.
    fn check(
        n: usize,
        entries: &[(usize, usize, f64)],
        known: &[f64],
        wanted: usize,
        width: usize,
    ) -> (Leading, f64) {
        let apply = |x: &[f64], out: &mut [f64], width: usize| {
            out.fill(0.0);
            for &(i, j, value) in entries {
                for c in 0..width {
                    out[i * width + c] += value * x[j * width + c];
                }
            }
        };
        let options = Options {
            wanted,
            width,
            residual: 1e-10,
            max_products: 20_000,
            by: Which::Magnitude,
        };
        let mut random = Pcg64::seed_from_u64(3);
        let found = leading(|x, out| apply(x, out, width), known, &options, &mut random);
        let column = |k| found.vectors.iter().skip(k).step_by(wanted);
        let q: Vec<Vec<f64>> = std::iter::once(known.to_vec())
            .chain((0..wanted).map(|k| column(k).copied().collect()))
            .collect();
        let mut off = 0.0f64;
        for (k, x) in q.iter().enumerate() {
            for (l, y) in q.iter().enumerate() {
                assert!((dot(x, y) - f64::from(k == l)).abs() < 1e-12);
            }
            let mut bx = vec![0.0; n];
            apply(x, &mut bx, 1);
            for y in &q {
                let along = dot(&bx, y);
                bx.iter_mut().zip(y).for_each(|(b, y)| *b -= along * y);
            }
            off = bx.iter().fold(off, |a, b| a.max(b.abs()));
        }
        (found, off)
    }

    /// A walk on a ring of n states that moves on with probability `on` and stays otherwise. Its
    /// eigenvalues are 1 − on + on e^{2πik/n}.
    fn ring(n: usize, on: f64) -> Vec<(usize, usize, f64)> {
        (0..n)
            .flat_map(|i| [(i, i, 1.0 - on), (i, (i + 1) % n, on)])
            .collect()
    }

    #[track_caller]
    fn assert_near(value: [f64; 2], expected: [f64; 2]) {
        let distance = (value[0] - expected[0]).hypot(value[1] - expected[1]);
        assert!(distance < 1e-8, "{value:?} is not {expected:?}");
    }

    #[test]
    fn pairs_of_a_ring() {
        for n in [5, 40] {
            let known = vec![1.0 / (n as f64).sqrt(); n];
            let (found, off) = check(n, &ring(n, 0.5), &known, 4, 4);
            assert!(found.converged && off < 1e-12, "{n}: {off}");
            for (k, value) in found.values.iter().enumerate() {
                let angle = std::f64::consts::PI * (1 + k / 2) as f64 / n as f64;
                let im = if k % 2 == 0 {
                    angle.sin()
                } else {
                    -angle.sin()
                };
                assert_near(*value, [angle.cos() * angle.cos(), angle.cos() * im]);
            }
        }
    }

    #[test]
    fn pairs_of_a_large_operator() {
        // 1, then pairs of magnitude 0.95ᵏ with rotating angles, and couplings above: the
        // eigenvectors are not orthogonal.
        let n = 1001;
        let mut entries = vec![(0, 0, 1.0)];
        let value = |k: usize| {
            let (size, angle) = (0.95f64.powi(k as i32), 1.0 + 0.7 * k as f64);
            [size * angle.cos(), size * angle.sin().abs()]
        };
        for k in 1..=500 {
            let (at, [re, im]) = (2 * k - 1, value(k));
            entries.extend([
                (at, at, re),
                (at, at + 1, im),
                (at + 1, at, -im),
                (at + 1, at + 1, re),
            ]);
            entries.extend(
                (1..6)
                    .map(|step| (at, (at + 2 * step * step).min(n - 1), 0.03))
                    .filter(|e| e.1 > at + 1),
            );
        }
        let mut known = vec![0.0; n];
        known[0] = 1.0;
        for width in [2, 4, 8] {
            let (found, off) = check(n, &entries, &known, 8, width);
            assert!(found.converged && found.restarts > 0 && off < 1e-9, "{off}");
            for (k, found) in found.values.iter().enumerate() {
                let [re, im] = value(1 + k / 2);
                assert_near(*found, [re, if k % 2 == 0 { im } else { -im }]);
            }
        }
    }

    #[test]
    fn a_very_non_normal_operator() {
        // A birth–death walk with drift on 400 states: similar to a symmetric matrix, by a very
        // uneven scaling.
        let n = 400;
        let mut entries = Vec::new();
        for i in 0..n {
            let (up, down) = (
                if i + 1 < n { 0.3 } else { 0.0 },
                if i > 0 { 0.28 } else { 0.0 },
            );
            entries.push((i, i, 1.0 - up - down));
            if up > 0.0 {
                entries.push((i, i + 1, up));
            }
            if down > 0.0 {
                entries.push((i, i - 1, down));
            }
        }
        let known = vec![1.0 / (n as f64).sqrt(); n];
        let (found, off) = check(n, &entries, &known, 6, 4);
        assert!(found.converged && off < 1e-9, "{off}");
        // 1 − 0.58 + 2 √(0.3 · 0.28) cos(kπ/n) for a walk that stays at an end with the probability
        // of the missing step.
        for (k, value) in found.values.iter().enumerate() {
            let angle = std::f64::consts::PI * (k + 1) as f64 / n as f64;
            let expected = 0.42 + 2.0 * 0.084f64.sqrt() * angle.cos();
            assert!((value[0] - expected).abs() < 1e-7, "{value:?} {expected}");
        }
    }

    #[test]
    fn equal_values_of_a_reducible_operator() {
        // Three separate walks of 300 states that mix within a few steps: the eigenvalue 1 three
        // times.
        let n = 300;
        let mut entries = Vec::new();
        for at in 0..3 * n {
            let (part, i) = (at / n * n, at % n);
            entries.extend([7 * i + 3, i + 1, 11 * i].map(|j| (at, part + j % n, 1.0 / 3.0)));
        }
        let known = vec![1.0 / 900f64.sqrt(); 900];
        let (found, off) = check(900, &entries, &known, 3, 4);
        assert!(found.converged && off < 1e-9);
        assert_near(found.values[0], [1.0, 0.0]);
        assert_near(found.values[1], [1.0, 0.0]);
        assert!(found.values[2][0] < 0.99);
    }

    #[test]
    fn the_product_limit_stops_it_unconverged() {
        let n = 3000;
        let known = vec![1.0 / (n as f64).sqrt(); n];
        let entries = ring(n, 0.5);
        let options = Options {
            wanted: 4,
            width: 4,
            residual: 1e-12,
            max_products: 60,
            by: Which::Magnitude,
        };
        let apply = |x: &[f64], out: &mut [f64]| {
            out.fill(0.0);
            for &(i, j, v) in &entries {
                for c in 0..4 {
                    out[i * 4 + c] += v * x[j * 4 + c];
                }
            }
        };
        let found = leading(apply, &known, &options, &mut Pcg64::seed_from_u64(1));
        assert!(!found.converged && found.products == 60);
        assert_eq!(found.vectors.len(), n * 4);
    }
}
