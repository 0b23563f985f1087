//! A fitted state embedding: all that is needed to embed new points.

use crate::error::{Error, Result};
use crate::evidence::pass::Passes;
use crate::evidence::points::PointSize;
use crate::methods::estimator::Estimator;
use crate::methods::state_embedding::box_gram::box_gram;
use crate::methods::state_embedding::embedding::{Embedding, Functions, RightMeasure};
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::grams::Grams;
use crate::methods::state_embedding::params::{Norm, StateEmbedding};
use serde::{Deserialize, Serialize};

/// Rows of a block whose features are computed at once, with those that wait for the end of a pair.
const BLOCK_ROWS: u64 = 2 * 8192;

/// A fit with fewer pairs per function than this follows noise.
const PAIRS_PER_FUNCTION: u64 = 10;

/// Kept random features, and what they were selected with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// The features that were summed over, the constant first.
    pub features: Features,
    /// The kernel in terms of these features ([`Selection::metric`]). Without it, the kernel is the
    /// product of the features.
    ///
    /// [`Selection::metric`]: crate::methods::state_embedding::pilot::Selection::metric
    pub metric: Option<Vec<f64>>,
    /// The bandwidth of the kernel, s.
    pub bandwidth: f64,
    /// The lower and the upper bound of every coordinate. Only `norm = "lebesgue"` needs them.
    pub bounds: Option<Vec<[f64; 2]>>,
}

/// A state embedding of `rank` dimensions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateEmbeddingModel {
    /// The dimension of the embedding, r.
    pub rank: usize,
    /// M features, the constant first.
    pub features: Features,
    /// Coefficients of Ψ: M × r, row-major.
    pub left: Vec<f64>,
    /// Coefficients of the right functions: M × r, row-major.
    pub right: Vec<f64>,
    /// All singular values, descending.
    pub singular_values: Vec<f64>,
    /// The numbers of orthonormal functions of x and of y, J and J₁.
    pub kept: [usize; 2],
    /// The number of pairs.
    pub pairs: u64,
    /// The sum of the weights of the pairs.
    pub mass: f64,
    /// The bandwidth of the kernel, s.
    pub bandwidth: f64,
    /// The measure of the right functions.
    pub norm: Norm,
    /// The box of `norm = "lebesgue"`.
    pub bounds: Option<Vec<[f64; 2]>>,
    /// √(J/n) for n = (Σ w)² / Σ w²: singular values of this size are noise, if pairs are
    /// independent.
    pub noise: f64,
    /// [`Functions::constant`].
    pub constant: Option<f64>,
    /// [`Functions::rounding`].
    pub rounding: f64,
    /// What makes the fit doubtful.
    pub warnings: Vec<Warning>,
}

/// What makes a fit doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Warning {
    /// There are fewer than ten pairs per orthonormal function.
    ManyFunctions {
        /// The larger of J and J₁.
        kept: usize,
        /// The number of pairs.
        pairs: u64,
    },
    /// The rank cuts between two nearly equal singular values, so the last direction is arbitrary.
    SmallGap {
        /// σ_r.
        last: f64,
        /// σ_{r+1}.
        next: f64,
    },
    /// The last singular value is below the noise level.
    BelowNoise {
        /// σ_r.
        last: f64,
        /// √(J/n).
        noise: f64,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::ManyFunctions { kept, pairs } => write!(
                f,
                "{kept} independent features are many for {pairs} pairs; increase `tolerance` or \
                 `bandwidth`"
            ),
            Warning::SmallGap { last, next } => write!(
                f,
                "`rank` cuts between the singular values {last:.6} and {next:.6}; the last \
                 dimension is arbitrary"
            ),
            Warning::BelowNoise { last, noise } => write!(
                f,
                "the last singular value, {last:.3e}, is below the noise level {noise:.3e}; \
                 decrease `rank`"
            ),
        }
    }
}

impl Estimator for StateEmbedding {
    /// Means over pairs, and the features that were summed over.
    type Evidence<'a> = (&'a Grams, &'a Basis);
    type Size = PointSize;
    type Model = StateEmbeddingModel;

    fn bytes(&self, size: PointSize, threads: u64) -> u64 {
        let m = self.features as u64 + 1;
        let sums = StateEmbedding::sum_bytes(self.features, size.lags);
        // A block of features and three products per thread.
        let per_thread = BLOCK_ROWS * (m + size.dimension) * 8 + 3 * m * m * 8;
        // Means, whitened sums and the workspace of their decompositions.
        let decompositions = 10 * m * m * 8;
        sums + threads * per_thread + decompositions
    }

    /// Without random numbers.
    fn fit(
        &self,
        _: &Passes<'_>,
        &(means, basis): &(&Grams, &Basis),
        _: u64,
    ) -> Result<StateEmbeddingModel> {
        fit_means(means, basis, self)
    }
}

/// Fits the embedding of one lag to means over pairs.
///
/// # Errors
/// If there are no pairs, or fewer independent features than the rank.
pub(crate) fn fit_means(
    means: &Grams,
    basis: &Basis,
    params: &StateEmbedding,
) -> Result<StateEmbeddingModel> {
    let (functions, bounds) = functions(means, basis, params)?;
    let embedding = functions.embed(params.rank)?;
    let noise = (embedding.kept[0].max(embedding.kept[1]) as f64 / means.effective).sqrt();
    Ok(StateEmbeddingModel {
        rank: params.rank,
        features: basis.features.clone(),
        warnings: warnings(&embedding, means.pairs, noise, params),
        left: embedding.left,
        right: embedding.right,
        singular_values: embedding.singular_values,
        kept: embedding.kept,
        pairs: means.pairs,
        mass: means.mass,
        bandwidth: basis.bandwidth,
        norm: params.norm,
        bounds,
        noise,
        constant: functions.constant(),
        rounding: functions.rounding(),
    })
}

/// All singular functions, and the box of `norm = "lebesgue"`.
///
/// # Errors
/// If the sums are of other features.
pub(crate) fn functions(
    means: &Grams,
    basis: &Basis,
    params: &StateEmbedding,
) -> Result<(Functions, Option<Vec<[f64; 2]>>)> {
    if basis.features.count() != means.features {
        return Err(Error::bug("sums of other features"));
    }
    let (gram, bounds) = match params.norm {
        Norm::Density => (None, None),
        Norm::Lebesgue => {
            let bounds = basis.bounds.as_ref();
            let bounds = bounds.ok_or_else(|| Error::bug("the Lebesgue norm needs a box"))?;
            (
                Some(box_gram(&basis.features, bounds)),
                Some(bounds.clone()),
            )
        }
    };
    let measure = gram
        .as_deref()
        .map_or(RightMeasure::Ends, RightMeasure::Gram);
    let metric = basis.metric.as_deref();
    let functions = Functions::new(means, measure, metric, params.tolerance);
    Ok((functions, bounds))
}

fn warnings(
    embedding: &Embedding,
    pairs: u64,
    noise: f64,
    params: &StateEmbedding,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let kept = embedding.kept[0].max(embedding.kept[1]);
    if kept as u64 * PAIRS_PER_FUNCTION > pairs {
        warnings.push(Warning::ManyFunctions { kept, pairs });
    }
    let values = &embedding.singular_values;
    let last = values[params.rank - 1];
    if let Some(&next) = values.get(params.rank)
        && last - next < 1e-6 * values[0]
    {
        warnings.push(Warning::SmallGap { last, next });
    }
    // The noise level has no unit, like the singular values of the density norm.
    if params.norm == Norm::Density && last < noise {
        warnings.push(Warning::BelowNoise { last, noise });
    }
    warnings
}

/// Functions of some points (n × d, row-major) that have coefficients (M × rank, row-major) in some
/// features: n × rank, row-major. NaN for points that are too far for the features.
pub(crate) fn combine(
    features: &Features,
    coefficients: &[f64],
    rank: usize,
    rows: &[f64],
) -> Vec<f64> {
    let values = features.evaluate(rows);
    let n = rows.len() / features.dimension();
    let mut out = vec![0.0; n * rank];
    let values = values.chunks_exact(features.count());
    let reach = features.reach();
    let points = rows.chunks_exact(features.dimension());
    for ((h, point), out) in values.zip(points).zip(out.chunks_exact_mut(rank)) {
        if Features::is_too_far(&reach, point) {
            out.fill(f64::NAN);
            continue;
        }
        for (h, coefficients) in h.iter().zip(coefficients.chunks_exact(rank)) {
            for (out, c) in out.iter_mut().zip(coefficients) {
                *out += h * c;
            }
        }
    }
    out
}

impl StateEmbeddingModel {
    /// Ψ of some points (n × d, row-major): n × r, row-major. A row depends on its point alone. NaN
    /// for points that are too far for the features.
    pub(crate) fn embed(&self, rows: &[f64]) -> Vec<f64> {
        combine(&self.features, &self.left, self.rank, rows)
    }

    /// Right functions of some points (n × d, row-major): n × r, row-major.
    pub(crate) fn right_functions(&self, rows: &[f64]) -> Vec<f64> {
        combine(&self.features, &self.right, self.rank, rows)
    }

    /// p̂(y | x) of pairs of points (each n × d, row-major), relative to the measure of the right
    /// functions.
    pub(crate) fn densities(&self, from: &[f64], to: &[f64]) -> Vec<f64> {
        let (left, right) = (self.embed(from), self.right_functions(to));
        let pairs = left
            .chunks_exact(self.rank)
            .zip(right.chunks_exact(self.rank));
        pairs
            .map(|(x, y)| x.iter().zip(y).map(|(a, b)| a * b).sum())
            .collect()
    }
}
