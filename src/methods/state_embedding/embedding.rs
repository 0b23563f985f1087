//! State embeddings (Sun, Duan, Gong and Wang, NeurIPS 2019, Algorithm 2).
//!
//! In: means of products of M features over pairs (x, y) of points one lag apart. Out: the singular
//! values σ of the transition kernel, and coefficients of the left and right functions: Ψ(x) =
//! leftᵀh(x) in rank dimensions, and p̂(y | x) = Ψ(x)ᵀ rightᵀh(y).
//!
//! The left functions are orthonormal for the distribution of x. The right ones are orthonormal for
//! one of two measures:
//! - the distribution of y: σ are canonical correlations, σ₁ = 1, and p̂ is a density relative to that
//!   distribution;
//! - the volume of a box, as in the paper: p̂ is a density, and distances of Ψ are diffusion distances
//!   (3). σ have units of length^(−d/2).

use crate::error::{Error, Result};
use crate::methods::state_embedding::features::{Features, cosine};
use crate::methods::state_embedding::grams::Grams;
use crate::methods::state_embedding::whitening::{Whitening, project};
use faer::{Mat, MatRef};

/// The measure in which right functions are orthonormal.
#[derive(Debug, Clone, Copy)]
pub enum RightMeasure<'a> {
    /// The distribution of the ends of pairs.
    Ends,
    /// A measure by the Gram matrix of the features in it (M × M, row-major).
    Gram(&'a [f64]),
}

/// Singular functions as combinations of features.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// All singular values, descending.
    pub singular_values: Vec<f64>,
    /// Coefficients of Ψ: features × rank, row-major.
    pub left: Vec<f64>,
    /// Coefficients of the right functions: features × rank, row-major.
    pub right: Vec<f64>,
    /// The numbers of orthonormal functions of x and of y, J and J₁.
    pub kept: [usize; 2],
}

/// Embeds states in `rank` dimensions. `metric` and `tolerance` are those of [`Whitening::new`].
///
/// # Errors
/// If the rank is above the number of orthonormal functions.
pub fn embed(
    means: &Grams,
    measure: RightMeasure<'_>,
    metric: Option<&[f64]>,
    rank: usize,
    tolerance: f64,
) -> Result<Embedding> {
    let start = Whitening::new(&means.starts, metric, tolerance);
    let end = match measure {
        RightMeasure::Ends => Whitening::new(&means.ends, metric, tolerance),
        RightMeasure::Gram(gram) => Whitening::new(gram, metric, tolerance),
    };
    let kept = [start.kept(), end.kept()];
    let available = kept[0].min(kept[1]);
    if rank > available {
        return Err(Error::input(format!(
            "`rank` is {rank}, but the features of the points have only {available} independent \
             directions; decrease `rank`, `tolerance` or `bandwidth`"
        )));
    }
    let operator = project(&start.basis, &means.cross, &end.basis);
    let (values, u, v) = match measure {
        // The constants are singular functions with σ = 1, and both bases start with them.
        RightMeasure::Ends => {
            let (mut values, u, v) = svd(operator.submatrix(1, 1, kept[0] - 1, kept[1] - 1));
            values.insert(0, 1.0);
            (values, with_constant(&u), with_constant(&v))
        }
        RightMeasure::Gram(_) => svd(operator.as_ref()),
    };
    let mut left = &start.basis * u.subcols(0, rank);
    let mut right = &end.basis * v.subcols(0, rank);
    for k in 0..rank {
        // The largest coefficient of a left function is positive, so that signs are unique.
        let largest = left
            .col(k)
            .iter()
            .fold(0.0f64, |a, b| if b.abs() > a.abs() { *b } else { a });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        for i in 0..means.features {
            left[(i, k)] *= sign * values[k];
            right[(i, k)] *= sign;
        }
    }
    Ok(Embedding {
        singular_values: values,
        left: row_major(&left),
        right: row_major(&right),
        kept,
    })
}

/// Singular values, descending, and vectors (columns).
fn svd(a: MatRef<f64>) -> (Vec<f64>, Mat<f64>, Mat<f64>) {
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

fn row_major(a: &Mat<f64>) -> Vec<f64> {
    (0..a.nrows() * a.ncols())
        .map(|at| a[(at / a.ncols(), at % a.ncols())])
        .collect()
}

/// ∫ h hᵀ dy over a box with a lower and an upper bound per coordinate: M × M, row-major.
///
/// A product of two cosines is half the sum of the cosines of the difference and of the sum of the
/// phases. The integral of cos(aᵀy + b) is cos(aᵀm + b) Π L_k sinc(a_k L_k/2), for a box with centre
/// m and lengths L.
pub fn box_gram(features: &Features, bounds: &[[f64; 2]]) -> Vec<f64> {
    assert_eq!(bounds.len(), features.dimension(), "bounds per coordinate");
    let m = features.count();
    let frequencies: Vec<Vec<f64>> = (0..m).map(|l| features.frequency(l)).collect();
    let integral = |i: usize, j: usize, sign: f64| {
        let mut phase = features.phase(i) + sign * features.phase(j);
        let mut volume = 1.0;
        for ((a, b), [low, high]) in frequencies[i].iter().zip(&frequencies[j]).zip(bounds) {
            let (a, length) = (a + sign * b, high - low);
            let half = a * length / 2.0;
            phase += a * (low + high) / 2.0;
            // sin(z)/z
            let sinc = if half == 0.0 { 1.0 } else { half.sin() / half };
            volume *= length * sinc;
        }
        volume * cosine(phase)
    };
    let mut gram = vec![0.0; m * m];
    for i in 0..m {
        for j in 0..=i {
            let entry = (integral(i, j, -1.0) + integral(i, j, 1.0)) / 2.0;
            gram[i * m + j] = entry;
            gram[j * m + i] = entry;
        }
    }
    gram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gram_matrix_of_a_box_is_its_integral() {
        let features = Features::random(5, 2, 0.6, 1);
        let bounds = [[-1.0, 2.0], [0.5, 1.5]];
        let gram = box_gram(&features, &bounds);
        assert!((gram[0] - 3.0).abs() < 1e-14);
        let steps = 400;
        let mut sum = vec![0.0; 36];
        for i in 0..steps * steps {
            let at = |k: usize, i: usize| {
                let [low, high] = bounds[k];
                low + (high - low) * (i as f64 + 0.5) / steps as f64
            };
            let h = features.evaluate(&[at(0, i / steps), at(1, i % steps)]);
            for (at, sum) in sum.iter_mut().enumerate() {
                *sum += 3.0 / (steps * steps) as f64 * h[at / 6] * h[at % 6];
            }
        }
        for (gram, sum) in gram.iter().zip(&sum) {
            assert!((gram - sum).abs() < 1e-3, "{gram} {sum}");
        }
    }
}
