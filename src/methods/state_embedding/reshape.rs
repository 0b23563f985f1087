//! Reshaped kernel mean embeddings (Sun, Duan, Gong and Wang, NeurIPS 2019, Algorithm 1).
//!
//! In: P̂ = E h(x)h(y)ᵀ over pairs, in features whose products are the kernel, and a rank. Out: the
//! best approximation of P̂ of that rank. The norm of the product of the two Hilbert spaces is the
//! Frobenius norm of the matrix.

use crate::math::matrix::row_major;
use crate::methods::state_embedding::embedding::svd;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};
use serde::{Deserialize, Serialize};

/// A kernel mean embedding in an orthonormal basis of the Hilbert space.
#[derive(Debug, Clone)]
pub(crate) struct MeanEmbedding {
    /// P̂ in that basis.
    pub matrix: Mat<f64>,
    /// R: the functions of the basis are Rᵀh for features h.
    root: Mat<f64>,
}

/// The plain and the reshaped embedding as functions of pairs: μ(x, y) = E K(X, x) K(Y, y).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JointDensity {
    /// M, the number of features.
    features: usize,
    /// r.
    rank: usize,
    /// W with μ(x, y) = h(x)ᵀWh(y): M × M, row-major.
    plain: Vec<f64>,
    /// A and B with μ_r(x, y) = (Aᵀh(x))ᵀ(Bᵀh(y)): M × r, row-major.
    reshaped: [Vec<f64>; 2],
}

impl JointDensity {
    /// μ and μ_r of pairs of points, from their features (n × M, row-major).
    pub(crate) fn values(&self, from: &[f64], to: &[f64]) -> [Vec<f64>; 2] {
        let (m, r) = (self.features, self.rank);
        let n = from.len() / m;
        let rows = |a| MatRef::from_row_major_slice(a, n, m);
        let (x, y) = (rows(from), rows(to));
        let mut half = Mat::zeros(n, m);
        let plain = MatRef::from_row_major_slice(&self.plain, m, m);
        matmul(half.as_mut(), Accum::Replace, x, plain, 1.0, Par::Seq);
        let [mut left, mut right] = [Mat::zeros(n, r), Mat::zeros(n, r)];
        for (out, h, own) in [(&mut left, x, 0), (&mut right, y, 1)] {
            let factor = MatRef::from_row_major_slice(&self.reshaped[own], m, r);
            matmul(out.as_mut(), Accum::Replace, h, factor, 1.0, Par::Seq);
        }
        let dots = |a: MatRef<f64>, b: MatRef<f64>| {
            let dot = |i| (0..a.ncols()).map(|k| a[(i, k)] * b[(i, k)]).sum();
            (0..n).map(dot).collect()
        };
        [dots(half.as_ref(), y), dots(left.as_ref(), right.as_ref())]
    }
}

impl MeanEmbedding {
    /// The plain embedding, from E h(x)h(y)ᵀ and the kernel in terms of the features (both M × M,
    /// row-major).
    pub(crate) fn plain(cross: &[f64], metric: &[f64]) -> MeanEmbedding {
        let m = cross.len().isqrt();
        // The kernel has no part of its own for the constant, so it may be singular.
        let metric = Mat::from_fn(m, m, |i, j| metric[i * m + j]);
        let eigen = metric.self_adjoint_eigen(Side::Lower);
        let eigen = eigen.expect("the entries of a symmetric eigenproblem are finite");
        let (vectors, values) = (eigen.U(), eigen.S().column_vector());
        let root = Mat::from_fn(m, m, |i, k| vectors[(i, k)] * values[k].max(0.0).sqrt());
        let cross = MatRef::from_row_major_slice(cross, m, m);
        MeanEmbedding {
            matrix: root.transpose() * cross * &root,
            root,
        }
    }

    /// The embedding and its best approximation of a rank, as functions of pairs.
    pub(crate) fn joint_density(&self, rank: usize) -> JointDensity {
        let (s, u, v) = svd(self.matrix.as_ref());
        let rank = rank.min(s.len());
        let scaled = Mat::from_fn(u.nrows(), rank, |i, k| u[(i, k)] * s[k]);
        let plain = &self.root * &self.matrix * self.root.transpose();
        let factors = [&self.root * scaled, &self.root * v.subcols(0, rank)];
        JointDensity {
            features: plain.nrows(),
            rank,
            plain: row_major(plain.as_ref()),
            reshaped: factors.map(|factor| row_major(factor.as_ref())),
        }
    }

    /// The embedding of other pairs in the same basis, from their E h(x)h(y)ᵀ (M × M, row-major).
    pub(crate) fn of(&self, cross: &[f64]) -> MeanEmbedding {
        MeanEmbedding {
            matrix: self.in_basis(cross),
            root: self.root.clone(),
        }
    }

    /// Rᵀ G R for a matrix of features (M × M, row-major).
    fn in_basis(&self, gram: &[f64]) -> Mat<f64> {
        let m = self.root.nrows();
        let gram = MatRef::from_row_major_slice(gram, m, m);
        self.root.transpose() * gram * &self.root
    }

    /// The product of two embeddings in the product of the Hilbert spaces.
    pub(crate) fn product(&self, other: &MeanEmbedding) -> f64 {
        let own = self.matrix.col_iter().zip(other.matrix.col_iter());
        own.map(|(a, b)| a.transpose() * b).sum()
    }

    /// λ̄ of Theorem 1 from E h(x)h(x)ᵀ and E h(y)h(y)ᵀ (both M × M, row-major), for a kernel with
    /// K(x, x) = 1: the largest eigenvalue of both in the basis.
    pub(crate) fn largest_eigenvalue(&self, starts: &[f64], ends: &[f64]) -> f64 {
        let largest = |gram| {
            let gram = self.in_basis(gram);
            let values = gram.self_adjoint_eigenvalues(Side::Lower);
            let values = values.expect("the entries of a symmetric eigenproblem are finite");
            values.into_iter().fold(0.0, f64::max)
        };
        largest(starts).max(largest(ends))
    }

    /// The best approximation of a rank.
    pub(crate) fn reshaped(&self, rank: usize) -> MeanEmbedding {
        let (s, u, v) = svd(self.matrix.as_ref());
        let rank = rank.min(s.len());
        let scaled = Mat::from_fn(u.nrows(), rank, |i, k| u[(i, k)] * s[k]);
        MeanEmbedding {
            matrix: scaled * v.subcols(0, rank).transpose(),
            root: self.root.clone(),
        }
    }

    /// The distance of two embeddings in the product of the Hilbert spaces.
    #[cfg(test)]
    pub(crate) fn distance(&self, other: &MeanEmbedding) -> f64 {
        (&self.matrix - &other.matrix).norm_l2()
    }
}
