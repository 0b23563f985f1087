//! Orthonormal functions from features.
//!
//! In: the Gram matrix G = ∫ h hᵀ dμ of M features, the first of which is the constant 1. Out: a
//! basis B (M × J) such that the functions Bᵀh are orthonormal in L²(μ). The first function is
//! constant. The others are principal components of the centred features, cut where their variance
//! is at most a tolerance times the largest one. G is never inverted.

use faer::linalg::solvers::Llt;
use faer::{Mat, MatRef, Side};

/// Orthonormal functions as combinations of features.
#[derive(Debug, Clone)]
pub(crate) struct Whitening {
    /// B, features × functions.
    pub basis: Mat<f64>,
}

impl Whitening {
    /// Whitens features by their Gram matrix (M × M, row-major). `metric` is the kernel in terms of
    /// these features (M × M, row-major); without it, it is the product of the features.
    pub(crate) fn new(gram: &[f64], metric: Option<&[f64]>, tolerance: f64) -> Whitening {
        let m = gram.len().isqrt();
        let mass = gram[0];
        let mean: Vec<f64> = gram[..m].iter().map(|g| g / mass).collect();
        let centred = Mat::from_fn(m - 1, m - 1, |i, j| {
            gram[(i + 1) * m + j + 1] / mass - mean[i + 1] * mean[j + 1]
        });
        // With S = RRᵀ, the kernel is the product of the features Rᵀh.
        let root = metric.map(|metric| root_of(metric, m));
        let mut covariance = centred;
        if let Some(root) = &root {
            covariance = root.transpose() * &covariance * root;
        }
        let (variances, vectors) = descending_eigen(covariance.as_ref());
        let largest = variances.first().copied().unwrap_or_default();
        // A variance at the level of the rounding of features has no direction.
        let limit = (tolerance * largest).max(1e-13);
        let kept = variances.iter().take_while(|v| **v > limit).count();
        let mut functions = vectors.subcols(0, kept).to_owned();
        if let Some(root) = &root {
            functions = root * &functions;
        }
        let mut basis = Mat::zeros(m, kept + 1);
        basis[(0, 0)] = 1.0 / mass.sqrt();
        for j in 0..kept {
            let scale = 1.0 / (variances[j] * mass).sqrt();
            let mut constant = 0.0;
            for i in 1..m {
                let entry = functions[(i - 1, j)] * scale;
                basis[(i, j + 1)] = entry;
                constant -= entry * mean[i];
            }
            basis[(0, j + 1)] = constant;
        }
        Whitening { basis }
    }

    /// The number of functions with the constant, J.
    pub(crate) fn kept(&self) -> usize {
        self.basis.ncols()
    }
}

/// R with RRᵀ = S for the features without the constant.
fn root_of(metric: &[f64], m: usize) -> Mat<f64> {
    let metric = Mat::from_fn(m - 1, m - 1, |i, j| metric[(i + 1) * m + j + 1]);
    let factor = Llt::new(metric.as_ref(), Side::Lower);
    factor
        .expect("the kernel of features that include the kept ones is definite")
        .L()
        .to_owned()
}

/// Eigenvalues, descending, and eigenvectors (columns) of a symmetric matrix.
fn descending_eigen(a: MatRef<f64>) -> (Vec<f64>, Mat<f64>) {
    let n = a.nrows();
    if n == 0 {
        return (Vec::new(), Mat::new());
    }
    let symmetric = Mat::from_fn(n, n, |i, j| (a[(i, j)] + a[(j, i)]) / 2.0);
    let eigen = symmetric.self_adjoint_eigen(Side::Lower);
    let eigen = eigen.expect("the entries of a symmetric eigenproblem are finite");
    let values = eigen.S().column_vector().iter().rev().copied().collect();
    (values, eigen.U().reverse_cols().to_owned())
}

/// AᵀXB for a row-major X.
pub(crate) fn project(a: &Mat<f64>, x: &[f64], b: &Mat<f64>) -> Mat<f64> {
    let x = MatRef::from_row_major_slice(x, a.nrows(), b.nrows());
    a.transpose() * (x * b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitened_features_are_orthonormal_and_start_with_the_constant() {
        // Three points with weights; the features are 1, x and 2x + 1, which adds nothing.
        let (points, weights) = ([-1.0, 0.5, 2.0], [0.2, 0.5, 0.3]);
        let h = |x: f64| [1.0, x, 2.0 * x + 1.0];
        let mut gram = vec![0.0; 9];
        for (x, w) in points.iter().zip(weights) {
            for (at, gram) in gram.iter_mut().enumerate() {
                *gram += w * h(*x)[at / 3] * h(*x)[at % 3];
            }
        }
        let metric = [1.0, 0.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.5, 1.0];
        for metric in [None, Some(&metric[..])] {
            let whitening = Whitening::new(&gram, metric, 1e-9);
            assert_eq!(whitening.kept(), 2);
            let identity = project(&whitening.basis, &gram, &whitening.basis);
            for i in 0..2 {
                for j in 0..2 {
                    let exact = if i == j { 1.0 } else { 0.0 };
                    assert!((identity[(i, j)] - exact).abs() < 1e-12);
                }
            }
            assert_eq!(whitening.basis[(1, 0)], 0.0);
        }
    }
}
