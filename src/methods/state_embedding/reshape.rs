//! Reshaped kernel mean embeddings (Sun, Duan, Gong and Wang, NeurIPS 2019, Algorithm 1).
//!
//! In: P̂ = E h(x)h(y)ᵀ over pairs, in features whose products are the kernel, and a rank. Out: the
//! best approximation of P̂ of that rank. The norm of the product of the two Hilbert spaces is the
//! Frobenius norm of the matrix.

use faer::{Mat, MatRef, Side};

/// A kernel mean embedding in an orthonormal basis of the Hilbert space.
#[derive(Debug, Clone)]
pub struct MeanEmbedding {
    /// P̂ in that basis.
    pub matrix: Mat<f64>,
}

impl MeanEmbedding {
    /// The plain embedding, from E h(x)h(y)ᵀ and the kernel in terms of the features (both M × M,
    /// row-major).
    pub fn plain(cross: &[f64], metric: &[f64]) -> MeanEmbedding {
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
        }
    }

    /// The best approximation of a rank.
    pub fn reshaped(&self, rank: usize) -> MeanEmbedding {
        let svd = self.matrix.thin_svd();
        let svd = svd.expect("the entries of a singular value problem are finite");
        let (u, s, v) = (svd.U(), svd.S().column_vector(), svd.V());
        let rank = rank.min(s.nrows());
        let scaled = Mat::from_fn(u.nrows(), rank, |i, k| u[(i, k)] * s[k]);
        MeanEmbedding {
            matrix: scaled * v.subcols(0, rank).transpose(),
        }
    }

    /// The distance of two embeddings in the product of the Hilbert spaces.
    pub fn distance(&self, other: &MeanEmbedding) -> f64 {
        (&self.matrix - &other.matrix).norm_l2()
    }
}
