//! State embeddings (Sun, Duan, Gong and Wang, NeurIPS 2019, Algorithm 2).
//!
//! In: means of products of M features over pairs (x, y) of points one lag apart. Out: the singular
//! values σ of the transition kernel, and coefficients of the left and right functions: Ψ(x) =
//! leftᵀh(x) in rank dimensions, and p̂(y | x) = Ψ(x)ᵀ rightᵀh(y).
//!
//! The left functions are orthonormal for the distribution of x. The right ones are orthonormal for
//! one of two measures:
//! - the distribution of y: σ are canonical correlations, σ₁ = 1, and p̂ is a density relative to
//!   that distribution;
//! - the volume of a box, as in the paper: p̂ is a density, and distances of Ψ are diffusion
//!   distances (3). σ have units of length^(−d/2).

use crate::error::{Error, Result};
use crate::math::matrix::row_major;
use crate::methods::state_embedding::grams::Grams;
use crate::methods::state_embedding::whitening::{Whitening, project};
use faer::{Mat, MatRef};

/// The measure in which right functions are orthonormal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RightMeasure<'a> {
    /// The distribution of the ends of pairs.
    Ends,
    /// A measure by the Gram matrix of the features in it (M × M, row-major).
    Gram(&'a [f64]),
}

/// Singular functions as combinations of features.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Embedding {
    /// All singular values, descending.
    pub singular_values: Vec<f64>,
    /// Coefficients of Ψ: features × rank, row-major.
    pub left: Vec<f64>,
    /// Coefficients of the right functions: features × rank, row-major.
    pub right: Vec<f64>,
    /// The numbers of orthonormal functions of x and of y, J and J₁.
    pub kept: [usize; 2],
}

/// All singular functions of the transition kernel in the span of the features.
#[derive(Debug, Clone)]
pub(crate) struct Functions {
    start: Whitening,
    end: Whitening,
    singular_values: Vec<f64>,
    /// Singular vectors in the orthonormal bases, as columns.
    u: Mat<f64>,
    v: Mat<f64>,
    constant: Option<f64>,
    rounding: f64,
}

impl Functions {
    /// `metric` and `tolerance` are those of [`Whitening::new`].
    pub(crate) fn new(
        means: &Grams,
        measure: RightMeasure<'_>,
        metric: Option<&[f64]>,
        tolerance: f64,
    ) -> Functions {
        let of_end = match measure {
            RightMeasure::Ends => &means.ends,
            RightMeasure::Gram(gram) => gram,
        };
        let (start, end) = rayon::join(
            || Whitening::new(&means.starts, metric, tolerance),
            || Whitening::new(of_end, metric, tolerance),
        );
        let operator = project(&start.basis, &means.cross, &end.basis);
        let (mut constant, rounding) = (None, rounding(means, [&start, &end], tolerance));
        let (singular_values, u, v) = match measure {
            // The constants are singular functions with σ = 1, and both bases start with them.
            RightMeasure::Ends => {
                let (rows, columns) = (start.kept() - 1, end.kept() - 1);
                let row: f64 = (0..=columns).map(|j| operator[(0, j)].abs()).sum();
                let column: f64 = (0..=rows).map(|i| operator[(i, 0)].abs()).sum();
                constant = Some(row.max(column));
                let (mut values, u, v) = svd(operator.submatrix(1, 1, rows, columns));
                values.insert(0, 1.0);
                (values, with_constant(&u), with_constant(&v))
            }
            RightMeasure::Gram(_) => svd(operator.as_ref()),
        };
        Functions {
            start,
            end,
            singular_values,
            u,
            v,
            constant,
            rounding,
        }
    }

    /// Σ_j |P̂_1j| or Σ_i |P̂_i1|, the larger one, for the constants as the first functions of x
    /// and of y. It is 1, because they are singular functions. None unless both bases have it.
    pub(crate) fn constant(&self) -> Option<f64> {
        self.constant
    }

    /// The largest error of a singular value by rounding.
    pub(crate) fn rounding(&self) -> f64 {
        self.rounding
    }

    /// The number of singular functions, the smaller of J and J₁.
    pub(crate) fn available(&self) -> usize {
        self.singular_values.len()
    }

    /// The orthonormal functions of x and of y as combinations of features: M × J and M × J₁.
    pub(crate) fn bases(&self) -> [MatRef<'_, f64>; 2] {
        [self.start.basis.as_ref(), self.end.basis.as_ref()]
    }

    /// All singular values, descending.
    pub(crate) fn singular_values(&self) -> &[f64] {
        &self.singular_values
    }

    /// Embeds states in `rank` dimensions.
    ///
    /// # Errors
    /// If the rank is 0 or above the number of singular functions.
    pub(crate) fn embed(&self, rank: usize) -> Result<Embedding> {
        if rank == 0 {
            return Err(Error::input("rank 0 leaves no dimension"));
        }
        if rank > self.available() {
            return Err(Error::input(format!(
                "`rank` is {rank}, but the features of the points have only {} independent \
                 directions; decrease `rank`, `tolerance` or `bandwidth`",
                self.available()
            )));
        }
        let mut left = &self.start.basis * self.u.subcols(0, rank);
        let mut right = &self.end.basis * self.v.subcols(0, rank);
        for k in 0..rank {
            // The largest coefficient of a left function is positive, so that signs are unique.
            let larger = |a: f64, b: &f64| if b.abs() > a.abs() { *b } else { a };
            let largest = left.col(k).iter().fold(0.0, larger);
            let sign = if largest < 0.0 { -1.0 } else { 1.0 };
            for i in 0..left.nrows() {
                left[(i, k)] *= sign * self.singular_values[k];
                right[(i, k)] *= sign;
            }
        }
        Ok(Embedding {
            singular_values: self.singular_values.clone(),
            left: row_major(left.as_ref()),
            right: row_major(right.as_ref()),
            kept: [self.start.kept(), self.end.kept()],
        })
    }
}

/// A bound of the error of P̂ = BᵀPB by rounding. An error e of the entries of a Gram matrix of M
/// features changes it by at most M e ‖B‖², and the decomposition of the matrix by about M ε over
/// the share of the least variance.
fn rounding(means: &Grams, bases: [&Whitening; 2], tolerance: f64) -> f64 {
    let m = means.features as f64;
    let entry = (m + 10.0) * f64::EPSILON;
    let squares = bases.map(|own| own.basis.squared_norm_l2());
    m * entry * (squares[0] + squares[1]) + 8.0 * m * f64::EPSILON / tolerance
}

/// Singular values, descending, and vectors (columns).
pub(crate) fn svd(a: MatRef<f64>) -> (Vec<f64>, Mat<f64>, Mat<f64>) {
    if a.nrows() == 0 || a.ncols() == 0 {
        return (
            Vec::new(),
            Mat::zeros(a.nrows(), 0),
            Mat::zeros(a.ncols(), 0),
        );
    }
    let svd = a.thin_svd();
    let svd = svd.expect("the entries of a singular value problem are finite");
    (
        svd.S().column_vector().iter().copied().collect(),
        svd.U().to_owned(),
        svd.V().to_owned(),
    )
}

/// Vectors behind a first coordinate that is one vector of its own.
fn with_constant(vectors: &Mat<f64>) -> Mat<f64> {
    Mat::from_fn(vectors.nrows() + 1, vectors.ncols() + 1, |i, j| {
        match (i, j) {
            (0, 0) => 1.0,
            (0, _) | (_, 0) => 0.0,
            _ => vectors[(i - 1, j - 1)],
        }
    })
}
