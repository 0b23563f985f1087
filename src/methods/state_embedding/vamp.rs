//! Held-out VAMP-2 scores (Wu and Noé, J. Nonlinear Sci. 30, 2020), which choose rank, bandwidth
//! and tolerance.
//!
//! In: left and right functions of an embedding, and the sums over pairs that it was not fitted to.
//! Out: the sum of squared canonical correlations of the two sets of functions on those pairs. The
//! constant counts 1, and a score is at most the rank.

use crate::error::{Error, Result};
use crate::methods::state_embedding::embedding::{Embedding, Functions, RightMeasure};
use crate::methods::state_embedding::grams::{GramSums, Grams};
use crate::methods::state_embedding::whitening::project;
use faer::{Mat, MatRef, Side};
use std::borrow::Borrow;

/// Variances below this share of the largest one are no direction.
const NEGLIGIBLE: f64 = 1e-10;

/// Scores of embeddings of some ranks by cross-validation: for each rank, the score on each fold of
/// an embedding that is fitted to the other folds. `metric` and `tolerance` are those of
/// [`Functions::new`]. A rank above the number of functions is cut to it. Folds without pairs are
/// skipped.
///
/// # Errors
/// If fewer than two folds have pairs.
pub(crate) fn held_out(
    folds: &[impl Borrow<GramSums>],
    lag: usize,
    metric: Option<&[f64]>,
    tolerance: f64,
    ranks: &[usize],
) -> Result<Vec<Vec<f64>>> {
    let folds = folds.iter().map(Borrow::borrow);
    let folds: Vec<&GramSums> = folds.filter(|f| f.pairs(lag) > 0).collect();
    let [first, rest @ ..] = &folds[..] else {
        return Err(too_few_folds());
    };
    if rest.is_empty() {
        return Err(too_few_folds());
    }
    let mut all = (*first).clone();
    for fold in rest {
        all.merge(fold);
    }
    let mut scores = vec![Vec::new(); ranks.len()];
    for fold in folds {
        all.subtract(fold);
        let (train, test) = (all.means(lag)?, fold.means(lag)?);
        all.merge(fold);
        let functions = Functions::new(&train, RightMeasure::Ends, metric, tolerance);
        for (scores, &rank) in scores.iter_mut().zip(ranks) {
            let rank = rank.min(functions.available());
            scores.push(score(&functions.embed(rank)?, rank, &test));
        }
    }
    Ok(scores)
}

/// The mean score of `rank` functions that tell nothing of each other, beyond that of the constant,
/// on folds with these numbers of pairs, (Σ w)² / Σ w² with weights. There are (r − 1)² sample
/// correlations, whose squares have the mean 1/n if pairs are independent.
pub(crate) fn chance(rank: usize, pairs: &[f64]) -> f64 {
    let squares = ((rank - 1) * (rank - 1)) as f64;
    let pairs: Vec<f64> = pairs.iter().copied().filter(|n| *n > 0.0).collect();
    pairs.iter().map(|n| squares / n).sum::<f64>() / pairs.len().max(1) as f64
}

fn too_few_folds() -> Error {
    Error::input("held-out scores need pairs of points in at least two groups of trajectories")
}

/// The score of the leading `rank` functions on held-out pairs.
pub(crate) fn score(embedding: &Embedding, rank: usize, held_out: &Grams) -> f64 {
    let m = held_out.features;
    let columns = embedding.left.len() / m;
    assert!(rank <= columns, "{columns} functions, not {rank}");
    let leading = |a: &[f64]| Mat::from_fn(m, rank, |i, k| a[i * columns + k]);
    let (left, right) = (leading(&embedding.left), leading(&embedding.right));
    let a = inverse_root(project(&left, &held_out.starts, &left).as_ref());
    let b = inverse_root(project(&right, &held_out.ends, &right).as_ref());
    let operator = a * project(&left, &held_out.cross, &right) * b.transpose();
    operator.squared_norm_l2()
}

/// A^{-1/2} of a symmetric matrix, on the directions that have a length.
fn inverse_root(a: MatRef<f64>) -> Mat<f64> {
    let n = a.nrows();
    // Functions are scaled to length 1 first: those of small singular values are short.
    let length: Vec<f64> = (0..n).map(|i| a[(i, i)].max(0.0).sqrt()).collect();
    let inverse = |x: f64| if x > 0.0 { 1.0 / x } else { 0.0 };
    let scaled = Mat::from_fn(n, n, |i, j| {
        (a[(i, j)] + a[(j, i)]) / 2.0 * inverse(length[i]) * inverse(length[j])
    });
    let eigen = scaled.self_adjoint_eigen(Side::Lower);
    let eigen = eigen.expect("the entries of a symmetric eigenproblem are finite");
    let (u, values) = (eigen.U(), eigen.S().column_vector());
    let largest = values[n - 1];
    // Any W with W A Wᵀ = I will do: the score does not see rotations.
    Mat::from_fn(n, n, |k, i| {
        let value = values[k];
        if value > NEGLIGIBLE * largest {
            u[(i, k)] / value.sqrt() * inverse(length[i])
        } else {
            0.0
        }
    })
}
