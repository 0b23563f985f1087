//! Principal angles between two subspaces of weighted functions (Björck and Golub, Math. Comp. 27,
//! 1973).
//!
//! In: two bases as columns over the same n points (n × r_a and n × r_b, row-major), and a weight
//! for each point, which defines the inner product ⟨f, g⟩ = Σ w f g. Out: min(dim A, dim B) angles
//! in radians, ascending. A basis may be linearly dependent.

use crate::math::dense::{square_svd, symmetric_eigen};
use crate::math::matrix::dot;
use crate::math::sum;

/// Directions whose squared length is below this share of the longest one's are rounding errors.
const NEGLIGIBLE: f64 = 1e-13;

/// A basis that is orthonormal in the weighted inner product, already scaled by the square roots of
/// the weights.
struct Basis {
    vectors: Vec<f64>,
    dimension: usize,
}

/// The angles in radians, ascending, between the spans of the columns of `a` (n × `rank_a`) and
/// `b` (n × `rank_b`), both row-major, for n = `weights.len()`.
///
/// # Panics
/// If a basis does not have one row per weight.
pub(crate) fn principal_angles(
    a: Vec<f64>,
    rank_a: usize,
    b: Vec<f64>,
    rank_b: usize,
    weights: &[f64],
) -> Vec<f64> {
    let n = weights.len();
    assert!(
        a.len() == n * rank_a && b.len() == n * rank_b,
        "a basis has a row for every point"
    );
    let (a, b) = (Basis::of(a, rank_a, weights), Basis::of(b, rank_b, weights));
    let (small, large) = if a.dimension <= b.dimension {
        (a, b)
    } else {
        (b, a)
    };
    let (r, s) = (small.dimension, large.dimension);
    if r == 0 {
        return Vec::new();
    }
    // C = SᵀL, r × s, padded with zeros to s × s. Its singular values are the cosines.
    let mut cosines = vec![0.0; s * s];
    cosines[..r * s].copy_from_slice(&products(&small, &large));
    let (values, _, right) = square_svd(&cosines, s);
    // The cosine does not resolve small angles. Take the sine from the part of a principal vector y
    // = Lz outside the other space, y − S(Cz).
    let angle = |k: usize| {
        let z: Vec<f64> = (0..s).map(|j| right[j * s + k]).collect();
        let image: Vec<f64> = (0..r)
            .map(|i| (0..s).map(|j| cosines[i * s + j] * z[j]).sum())
            .collect();
        let outside = sum::terms(n, |p| {
            let y = dot(&large.vectors[p * s..][..s], &z);
            let inside = dot(&small.vectors[p * r..][..r], &image);
            (y - inside) * (y - inside)
        });
        outside.sqrt().atan2(values[k])
    };
    (0..r).map(angle).collect()
}

/// AᵀB, row-major.
fn products(a: &Basis, b: &Basis) -> Vec<f64> {
    let (r, s) = (a.dimension, b.dimension);
    let n = a.vectors.len().checked_div(r).unwrap_or(0);
    let cells = (0..r * s).map(|at| {
        let (i, j) = (at / s, at % s);
        sum::terms(n, |p| a.vectors[p * r + i] * b.vectors[p * s + j])
    });
    cells.collect()
}

impl Basis {
    fn of(mut columns: Vec<f64>, rank: usize, weights: &[f64]) -> Basis {
        for (at, x) in columns.iter_mut().enumerate() {
            *x *= weights[at / rank].sqrt();
        }
        let basis = Basis {
            vectors: columns,
            dimension: rank,
        };
        // The first pass leaves a well conditioned basis; the second makes it orthonormal up to
        // rounding.
        basis.orthonormal().orthonormal()
    }

    /// A V D^{-1/2} for AᵀA = V D Vᵀ, without negligible directions.
    fn orthonormal(mut self) -> Basis {
        let r = self.dimension;
        if r == 0 {
            return self;
        }
        let (values, vectors) = symmetric_eigen(&products(&self, &self), r);
        let longest = values.last().copied().unwrap_or(0.0);
        let kept: Vec<usize> = (0..r)
            .filter(|&k| values[k] > NEGLIGIBLE * longest && values[k] > 0.0)
            .collect();
        // In place: a new row is no longer than the old one.
        let n = self.vectors.len() / r;
        let mut row = vec![0.0; r];
        for p in 0..n {
            row.copy_from_slice(&self.vectors[p * r..][..r]);
            for (at, &k) in kept.iter().enumerate() {
                let along: f64 = (0..r).map(|i| row[i] * vectors[i * r + k]).sum();
                self.vectors[p * kept.len() + at] = along / values[k].sqrt();
            }
        }
        self.vectors.truncate(n * kept.len());
        self.dimension = kept.len();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_6};

    // The x–y plane of R³ against the plane of x and (0, cos 30°, sin 30°): they share x, and the
    // other directions enclose 30°.
    #[test]
    fn two_planes_that_share_a_line() {
        let a = || vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let (c, s) = (FRAC_PI_6.cos(), FRAC_PI_6.sin());
        // Columns (x + v) and v, with x = (1, 0, 0) and v = (0, c, s).
        let b = vec![1.0, 0.0, c, c, s, s];
        let angles = principal_angles(a(), 2, b, 2, &[1.0; 3]);
        assert!(angles[0].abs() < 1e-15, "{angles:?}");
        assert!((angles[1] - FRAC_PI_6).abs() < 1e-15);
        // A line against a plane that contains it, and against an orthogonal plane.
        assert!(principal_angles(a(), 2, vec![1.0, 1.0, 0.0], 1, &[1.0; 3])[0] < 1e-15);
        let up = principal_angles(vec![0.0, 0.0, 2.0], 1, a(), 2, &[1.0; 3]);
        assert!((up[0] - FRAC_PI_2).abs() < 1e-15 && up.len() == 1);
    }

    // scipy.linalg.subspace_angles of diag(√w) A and diag(√w) B, reversed.
    #[test]
    fn weights_and_a_dependent_column_against_scipy() {
        let a = vec![1.0, 2.0, 3.0, 1.0, 0.0, 1.0, 1.0, -1.0, 0.0, 1.0, 0.5, 1.5];
        let b = vec![1.0, 0.0, 2.0, 1.0, 0.5, -1.0, 3.0, 1.0];
        let weights = [1.0, 2.0, 3.0, 4.0];
        // Columns of A: the third is the sum of the others.
        let angles = principal_angles(a, 3, b, 2, &weights);
        assert_eq!(angles.len(), 2);
        for (angle, expected) in angles.iter().zip([0.2572313619822597, 0.9294489857107099]) {
            assert!((angle - expected).abs() < 1e-14, "{angles:?}");
        }
    }

    #[test]
    fn small_angles_are_small() {
        let a = || vec![1.0, 0.0, 0.0];
        let tilted = vec![1.0, 1e-12, 0.0];
        let angle = principal_angles(a(), 1, tilted, 1, &[1.0; 3])[0];
        assert!((angle - 1e-12).abs() < 1e-26, "{angle}");
        assert!(principal_angles(vec![0.0; 3], 1, a(), 1, &[1.0; 3]).is_empty());
        assert!(principal_angles(vec![], 2, vec![], 3, &[]).is_empty());
    }
}
