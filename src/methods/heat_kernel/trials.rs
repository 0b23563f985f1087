//! The distortion of an embedding over trials (*heat kernel*, Section 5, (32)).
//!
//! In: points, a method and a number of trials. Out: ln L of each trial, for each time or power,
//! number of coordinates and distance.
//!
//! A trial draws some of the points, fits the method to them and compares distances of rows with
//! Euclidean ones, or with the diffusion distance (26):
//!
//! d(x_i, x_j)² = Σ_q λ_q²ᵗ (φ_q(i) − φ_q(j))² = ‖a_i − a_j‖²
//!
//! over all eigenpairs of A, where a_i is a row of Aᵗ and φ is scaled as the rows of the embedding
//! are. The points of a trial, and the random numbers of a point, depend on the seed and on the
//! trial alone: all methods with one seed have the same ones.

use crate::error::Result;
use crate::evidence::points::{PointSize, Points};
use crate::math::dense;
use crate::math::krylov::entries_of;
use crate::methods::heat_kernel::diffusion_map::power;
use crate::methods::heat_kernel::distortion::{self, distances};
use crate::methods::heat_kernel::noise::{NoisySketch, SketchChange};
use crate::methods::heat_kernel::normalise::Normalised;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::{DistortionTrials, KernelParams, ReferenceDistance};
use crate::methods::heat_kernel::prepare::prepare;
use crate::methods::heat_kernel::random;
use crate::methods::heat_kernel::thinned::thin;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Columns of a product with the kernel.
const WIDTH: usize = 16;

/// The distortion of some leading coordinates over trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialDistortion {
    /// The time of a diffusion map, or the power of a sketch.
    pub time: f64,
    /// The number of leading coordinates.
    pub dimension: usize,
    /// What their distances are compared with.
    pub against: ReferenceDistance,
    /// The largest number of points of a trial.
    pub points: usize,
    /// The trials in their order, but those whose points or rows are all equal.
    pub trials: Vec<TrialValues>,
}

/// What a trial finds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrialValues {
    /// ln L. Infinite if the embedding has equal points.
    pub log: f64,
    /// The largest difference of squared distances, as a share of the largest squared diffusion
    /// distance. None for Euclidean distances, whose unit is another one.
    pub error: Option<f64>,
    /// The change of the sketch by noise of the points.
    pub change: Option<SketchChange>,
}

impl TrialDistortion {
    fn key(&self) -> (f64, usize, ReferenceDistance) {
        (self.time, self.dimension, self.against)
    }

    /// The mean of ln L.
    pub(crate) fn mean(&self) -> f64 {
        let logs = self.trials.iter().map(|trial| trial.log);
        logs.sum::<f64>() / self.trials.len() as f64
    }

    /// The standard deviation of ln L. None for one trial.
    pub(crate) fn standard_deviation(&self) -> Option<f64> {
        let (mean, n) = (self.mean(), self.trials.len());
        let squares = self.trials.iter().map(|trial| (trial.log - mean).powi(2));
        let deviation = (squares.sum::<f64>() / (n.max(2) - 1) as f64).sqrt();
        (n > 1 && deviation.is_finite()).then_some(deviation)
    }

    /// The mean error of squared distances.
    pub(crate) fn error(&self) -> Option<f64> {
        self.mean_of(|trial| trial.error)
    }

    /// The mean of a part of the change by noise.
    pub(crate) fn change(&self, part: fn(SketchChange) -> f64) -> Option<f64> {
        self.mean_of(|trial| trial.change.map(part))
    }

    /// The mean of a value that all trials have.
    fn mean_of(&self, value: impl Fn(&TrialValues) -> Option<f64>) -> Option<f64> {
        let sum: f64 = self.trials.iter().map(value).sum::<Option<f64>>()?;
        (!self.trials.is_empty()).then(|| sum / self.trials.len() as f64)
    }
}

/// The embedding of the points of a trial.
pub(crate) struct TrialRows {
    /// `dimension` coordinates for each time, one after another in each row; NaN for points that
    /// have no embedding.
    pub rows: Vec<f64>,
    /// Coordinates per time.
    pub dimension: usize,
    /// Whether the first k columns are, but for a factor, an embedding of dimension k with the
    /// same expected distances.
    pub is_sketch: bool,
    /// The sketches with and without noise, by power. Empty without noise.
    pub noisy: Vec<NoisySketch>,
}

impl TrialRows {
    /// The first `k` columns from `first`, scaled as an embedding of this dimension.
    fn leading(&self, first: usize, k: usize, columns: usize) -> Vec<f64> {
        let scale = if self.is_sketch {
            (self.dimension as f64 / k as f64).sqrt()
        } else {
            1.0
        };
        let rows = self.rows.chunks_exact(columns);
        let rows = rows.flat_map(|row| &row[first..][..k]);
        rows.map(|x| x * scale).collect()
    }
}

/// The eigenvectors of a kernel of points, which diffusion distances are made of.
pub(crate) struct DiffusionRows {
    values: Vec<f64>,
    /// φ of every point, n × values, row-major; NaN for points that are not in the kernel.
    vectors: Vec<f64>,
}

impl DiffusionRows {
    /// All eigenvectors of the kernel of some points.
    ///
    /// # Errors
    /// If the points have no kernel.
    pub(crate) fn of(points: &Points, params: &KernelParams, seed: u64) -> Result<DiffusionRows> {
        let prepared = prepare(points, params, seed)?;
        let operator = Normalised::new(&prepared.kernel, &prepared.factors);
        let m = operator.n();
        let entries = entries_of(m, WIDTH, |x, out| operator.apply(x, WIDTH, out));
        let (values, vectors) = dense::leading_eigen(&entries, m, m);
        let distinct = &prepared.kernel.points;
        let scale = prepared.factors.row_scale(&distinct.weights);
        let mut out = vec![f64::NAN; points.n() * m];
        for (out, place) in out.chunks_exact_mut(m).zip(&distinct.place) {
            let Some(place) = place.map(|place| place as usize) else {
                continue;
            };
            let scale = scale[place] / distinct.weights[place].sqrt();
            let own = &vectors[place * m..][..m];
            out.iter_mut()
                .zip(own)
                .for_each(|(out, u)| *out = u * scale);
        }
        Ok(DiffusionRows {
            values,
            vectors: out,
        })
    }

    /// The diffusion distances (26) of pairs of points at a time.
    pub(crate) fn distances(&self, time: f64, pairs: &[(u32, u32)]) -> Vec<f64> {
        let m = self.values.len();
        let factors: Vec<f64> = self
            .values
            .iter()
            .map(|value| power(*value, time))
            .collect();
        let rows = self.vectors.par_chunks_exact(m);
        let scaled = rows.flat_map_iter(|row| row.iter().zip(&factors).map(|(u, f)| u * f));
        distances(&scaled.collect::<Vec<f64>>(), m, pairs)
    }
}

/// An upper bound of the bytes of the trials beside those of a fit to as many points.
pub(crate) fn bytes(
    trials: Option<&DistortionTrials>,
    size: PointSize,
    columns: u64,
    threads: u64,
) -> u64 {
    let Some(trials) = trials else {
        return 0;
    };
    let n = size.points.min(trials.sample as u64);
    // The kernel of the fit and that of the distances, its entries and the work of the
    // eigenproblem, φ and its powers, and the lists of pairs and of distances.
    // Noise takes two more kernels, their eigenvectors and a difference.
    let squares = if trials.noise.is_some() { 40 } else { 20 };
    let numbers = squares * n * n + n * (size.dimension * 8 + columns * 8);
    let at_once = threads.min(trials.trials as u64);
    at_once * numbers * 8
}

/// The distortion over trials, by time, dimension and distance. `fit` embeds points with a seed.
///
/// # Errors
/// If the points of a trial cannot be embedded.
pub(crate) fn of(
    points: &Points,
    trials: &DistortionTrials,
    kernel: &KernelParams,
    times: &[f64],
    seed: u64,
    fit: impl Fn(&Points, u64) -> Result<TrialRows> + Sync,
) -> Result<Vec<TrialDistortion>> {
    let of_trial = |trial: usize| {
        let seed = random::hash(seed, trial as u64);
        let sample = thin(points, trials.sample, seed);
        let found = fit(&sample, seed).and_then(|embedded| {
            let reference = TrialReference::new(&sample, trials, kernel, seed)?;
            Ok(reference.with(&embedded, times))
        });
        found.map_err(|e| e.at(format!("trial {trial} of `distortion`")))
    };
    let found = (1..=trials.trials).into_par_iter().map(of_trial);
    // The error is that of the first trial that has one.
    let found = found.collect::<Vec<Result<Vec<TrialDistortion>>>>();
    let found = found.into_iter().collect::<Result<Vec<_>>>()?;
    let mut all: Vec<TrialDistortion> = Vec::new();
    for next in found.into_iter().flatten() {
        match all.iter_mut().find(|own| own.key() == next.key()) {
            Some(own) => {
                own.points = own.points.max(next.points);
                own.trials.extend(next.trials);
            }
            None => all.push(next),
        }
    }
    Ok(all)
}

/// What the embeddings of a trial are compared with.
struct TrialReference<'a> {
    trials: &'a DistortionTrials,
    points: usize,
    pairs: Vec<(u32, u32)>,
    euclidean: Vec<f64>,
    diffusion: Option<DiffusionRows>,
}

impl<'a> TrialReference<'a> {
    fn new(
        sample: &Points,
        trials: &'a DistortionTrials,
        kernel: &KernelParams,
        seed: u64,
    ) -> Result<Self> {
        let pairs = random::pairs(sample.n(), usize::MAX, seed);
        let is_diffusion = trials.against.all().contains(&ReferenceDistance::Diffusion);
        let diffusion = is_diffusion.then(|| DiffusionRows::of(sample, kernel, seed));
        Ok(TrialReference {
            trials,
            points: sample.n(),
            euclidean: distances(&sample.coordinates, sample.dimension, &pairs),
            pairs,
            diffusion: diffusion.transpose()?,
        })
    }

    /// The distortion of an embedding, with one trial per entry.
    fn with(&self, embedded: &TrialRows, times: &[f64]) -> Vec<TrialDistortion> {
        let columns = embedded.dimension * times.len();
        let dimensions = match &self.trials.dimensions[..] {
            [] => &[usize::MAX][..],
            own => own,
        };
        // A map of few points has fewer coordinates than its parameters ask for.
        let dimensions = dimensions.iter().map(|k| *k.min(&embedded.dimension));
        let mut dimensions: Vec<usize> = dimensions.collect();
        dimensions.dedup();
        let mut out = Vec::new();
        for (at, &time) in times.iter().enumerate() {
            let diffusion = self.diffusion.as_ref();
            let diffusion = diffusion.map(|own| own.distances(time, &self.pairs));
            for &k in &dimensions {
                let rows = embedded.leading(at * embedded.dimension, k, columns);
                let images = distances(&rows, k, &self.pairs);
                for against in self.trials.against.all() {
                    let (originals, is_diffusion) = match (against, &diffusion) {
                        (ReferenceDistance::Diffusion, Some(own)) => (own, true),
                        _ => (&self.euclidean, false),
                    };
                    let trial = distortion::log(&images, originals).map(|log| TrialValues {
                        log,
                        error: is_diffusion.then(|| largest_error(&images, originals)),
                        change: embedded.noisy.get(at).map(|own| own.change(k)),
                    });
                    out.push(TrialDistortion {
                        time,
                        dimension: k,
                        against,
                        points: self.points,
                        trials: trial.into_iter().collect(),
                    });
                }
            }
        }
        out
    }
}

/// The largest difference of squared distances, as a share of the largest square of `originals`.
fn largest_error(images: &[f64], originals: &[f64]) -> f64 {
    let differences = images
        .iter()
        .zip(originals)
        .map(|(y, d)| (y * y - d * d).abs());
    let largest = originals.iter().fold(0.0f64, |m, d| m.max(d * d));
    differences.fold(0.0, f64::max) / largest
}
