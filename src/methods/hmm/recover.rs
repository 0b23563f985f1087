//! Operators → transition and emission probabilities.
//!
//! With exact moments and k = m, B_x = H T D_x H⁻¹ for an invertible H. So S = Σ_x B_x = HTH⁻¹, and
//! C_x = B_xS⁻¹ = F D_x F⁻¹ with F = HT: the eigenvectors of any combination of the C_x are the
//! columns of F up to lengths, and the diagonals of F⁻¹C_xF are the emission probabilities
//! (Anandkumar, Hsu, Kakade, *A method of moments for mixture models and hidden Markov models*,
//! 2012). The lengths follow from b_∞ᵀF = 1ᵀ, then T = F⁻¹SF and π = F⁻¹Sb₁.

use crate::math::dense;
use crate::math::matrix::{dot, product, row_major};
use crate::math::seed::restart_seed;
use crate::methods::hmm::model::{Hidden, HmmModel};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// Random combinations that are tried.
const DRAWS: usize = 20;

/// Singular values of S below this share of the largest one are zero.
const CUT: f64 = 1e-10;

/// The largest condition number of the eigenvectors.
const CONDITION: f64 = 1e10;

/// Classes by which combinations are compared, the most frequent ones.
const COMPARED: usize = 4096;

/// Recovered probabilities, as they come out of the operators.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recovered {
    /// Probabilities, which may be negative if the moments are not exact. Columns add up to about
    /// 1.
    pub raw: Hidden,
    /// Σ of the magnitudes of negative emission probabilities and of |column sum − 1|.
    pub violation: f64,
}

/// Recovers transition and emission probabilities from a spectral model. None if S or all
/// eigenvectors are singular.
pub(crate) fn recover(model: &HmmModel, seed: u64) -> Option<Recovered> {
    let k = model.rank;
    let sum = model.sum_of_operators();
    let inverse = pseudo_inverse(&sum, k)?;
    let n = model.n_classes();
    let Eigenvectors {
        violation,
        vectors,
        inverse: inverse_vectors,
    } = best_eigenvectors(model, &inverse, seed)?;
    let right = product(&inverse, &vectors, k);
    let rows: Vec<Vec<f64>> = (0..n as u32)
        .into_par_iter()
        .map(|class| diagonal(&inverse_vectors, model.operator(class), &right, k))
        .collect();
    let mut emission = Vec::with_capacity(model.n_symbols * k);
    for (&class, &share) in model.class_of.iter().zip(&model.share) {
        emission.extend(rows[class as usize].iter().map(|o| o * share));
    }
    // F = R diag(lengths) with b_∞ᵀF = 1ᵀ.
    let lengths: Vec<f64> = (0..k)
        .map(|j| {
            let column: Vec<f64> = (0..k).map(|i| vectors[i * k + j]).collect();
            1.0 / dot(&model.last, &column)
        })
        .collect();
    let turned = product(&inverse_vectors, &product(&sum, &vectors, k), k);
    let transition = (0..k * k)
        .map(|at| turned[at] / lengths[at / k] * lengths[at % k])
        .collect();
    let after: Vec<f64> = sum
        .chunks_exact(k)
        .map(|row| dot(row, &model.initial))
        .collect();
    let initial = inverse_vectors.chunks_exact(k).zip(&lengths);
    let initial = initial
        .map(|(row, length)| dot(row, &after) / length)
        .collect();
    let raw = Hidden {
        initial,
        transition,
        emission,
    };
    let numbers = raw.initial.iter().chain(&raw.transition);
    let are_finite = numbers.chain(&raw.emission).all(|x| x.is_finite());
    are_finite.then_some(Recovered { raw, violation })
}

/// The eigenvectors of a combination of the C_x.
struct Eigenvectors {
    /// Σ of the magnitudes of negative emission probabilities and, with all classes, of
    /// |column sum − 1|.
    violation: f64,
    /// R: k × k, row-major, with an eigenvector per column.
    vectors: Vec<f64>,
    /// R⁻¹.
    inverse: Vec<f64>,
}

/// The eigenvectors with the smallest violation, of some random combinations. `inverse` is S⁻¹.
fn best_eigenvectors(model: &HmmModel, inverse: &[f64], seed: u64) -> Option<Eigenvectors> {
    let (k, n) = (model.rank, model.n_classes());
    // The most frequent classes, whose predictions from b₁ are largest.
    let mut compared: Vec<(u32, f64)> = (0..n as u32)
        .map(|class| (class, prediction(model, class)))
        .collect();
    compared.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    compared.truncate(COMPARED);
    let mut best: Option<Eigenvectors> = None;
    for draw in 0..DRAWS {
        let mut random = Pcg64::seed_from_u64(restart_seed(seed, draw));
        let mut combination = vec![0.0; k * k];
        for operator in model.operators.chunks_exact(k * k) {
            let weight = normal(&mut random);
            let pairs = combination.iter_mut().zip(operator);
            pairs.for_each(|(c, b)| *c += weight * b);
        }
        let (_, vectors) = dense::real_eigen(&product(&combination, inverse, k), k);
        let vectors = row_major(vectors.as_ref());
        let Some(inverse_vectors) = invert(&vectors, k) else {
            continue;
        };
        let right = product(inverse, &vectors, k);
        let rows: Vec<Vec<f64>> = compared
            .par_iter()
            .map(|&(class, _)| diagonal(&inverse_vectors, model.operator(class), &right, k))
            .collect();
        let mut violation = 0.0;
        let mut sums = vec![0.0; k];
        for row in rows {
            for (sum, o) in sums.iter_mut().zip(row) {
                violation += f64::max(-o, 0.0);
                *sum += o;
            }
        }
        if compared.len() == n {
            violation += sums.iter().map(|sum| (sum - 1.0).abs()).sum::<f64>();
        }
        let is_better = best.as_ref().is_none_or(|best| violation < best.violation);
        if violation.is_finite() && is_better {
            best = Some(Eigenvectors {
                violation,
                vectors,
                inverse: inverse_vectors,
            });
        }
    }
    best
}

/// b_∞ᵀB_x b₁.
fn prediction(model: &HmmModel, class: u32) -> f64 {
    let rows = model.operator(class).chunks_exact(model.rank);
    let terms = rows.zip(&model.last);
    terms
        .map(|(row, last)| last * dot(row, &model.initial))
        .sum()
}

/// The diagonal of LBR for k × k row-major matrices.
fn diagonal(left: &[f64], b: &[f64], right: &[f64], k: usize) -> Vec<f64> {
    let mut diagonal = vec![0.0; k];
    let mut row = vec![0.0; k];
    for (a, b) in b.chunks_exact(k).enumerate() {
        // Row a of BR.
        row.fill(0.0);
        for (b, right) in b.iter().zip(right.chunks_exact(k)) {
            row.iter_mut().zip(right).for_each(|(x, r)| *x += b * r);
        }
        for (j, (out, x)) in diagonal.iter_mut().zip(&row).enumerate() {
            *out += left[j * k + a] * x;
        }
    }
    diagonal
}

/// A standard normal number (Box and Muller).
fn normal(random: &mut Pcg64) -> f64 {
    let (u, v): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The pseudo-inverse. None for the zero matrix.
fn pseudo_inverse(a: &[f64], k: usize) -> Option<Vec<f64>> {
    let (values, left, right) = finite_svd(a, k)?;
    let kept = values
        .iter()
        .filter(|v| **v > CUT * values[0] && **v > 0.0)
        .count();
    if kept == 0 {
        return None;
    }
    Some(inverse_of(&values[..kept], &left, &right, k))
}

/// The inverse. None if the matrix is ill-conditioned.
fn invert(a: &[f64], k: usize) -> Option<Vec<f64>> {
    let (values, left, right) = finite_svd(a, k)?;
    let is_regular = values[k - 1] * CONDITION > values[0];
    is_regular.then(|| inverse_of(&values, &left, &right, k))
}

fn finite_svd(a: &[f64], k: usize) -> Option<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    let is_finite = a.iter().all(|x| x.is_finite());
    is_finite.then(|| dense::square_svd(a, k))
}

fn inverse_of(values: &[f64], left: &[f64], right: &[f64], k: usize) -> Vec<f64> {
    let entry = |i: usize, j: usize| {
        let terms = values.iter().enumerate();
        terms
            .map(|(l, v)| right[i * k + l] * left[j * k + l] / v)
            .sum()
    };
    (0..k * k).map(|at| entry(at / k, at % k)).collect()
}
