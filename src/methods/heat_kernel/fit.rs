//! Fits of diffusion maps and heat sketches to points.
//!
//! In: points, parameters and a seed. Out: a row of coordinates for every input row, what is known
//! of the kernel and of the embedding, and a model that embeds new rows.
//!
//! The result does not depend on the order of the rows or on threads.

use crate::error::Result;
use crate::evidence::pass::Passes;
use crate::evidence::points::{PointSize, Points};
use crate::math::dense::NEGLIGIBLE;
use crate::methods::estimator::Estimator;
use crate::methods::heat_kernel::diffusion_map::{self, Level};
use crate::methods::heat_kernel::distortion::{self, Distortion};
use crate::methods::heat_kernel::extension::Extension;
use crate::methods::heat_kernel::kernel::Quality;
use crate::methods::heat_kernel::neighbours::Distinct;
use crate::methods::heat_kernel::noise;
use crate::methods::heat_kernel::normalise::{Factors, Normalisation, Normalised};
use crate::methods::heat_kernel::params::{DiffusionMap, HeatSketch};
use crate::methods::heat_kernel::prepare::{Prepared, prepare, used};
use crate::methods::heat_kernel::random;
use crate::methods::heat_kernel::sketch::{self, Energy, Snapshot};
use crate::methods::heat_kernel::thinned::{PAIRS, ends};
use crate::methods::heat_kernel::trials::{self, TrialDistortion, TrialRows};
use crate::methods::heat_kernel::warning::Warning;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Effective neighbours below which eigenvalues are far from those of the Laplace operator.
const FEW_NEIGHBOURS: f64 = 6.0;

/// Rows of the fit that are embedded again as new rows.
const REPRODUCED: usize = 256;

/// An embedding of points, without its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeatModel {
    /// Coordinates per time or power.
    pub dimension: usize,
    /// The times of a diffusion map, or the powers of a sketch. A row has `dimension` coordinates
    /// for each of them, one after another.
    pub times: Vec<f64>,
    /// What embeds new rows.
    pub extension: Extension,
    /// ε and the quality of the kernel.
    pub quality: Quality,
    /// Landmarks, if the kernel is that of landmarks.
    pub landmarks: Option<usize>,
    /// The eigenvalues of a diffusion map, the first of which is 1.
    pub spectrum: Vec<Level>,
    /// The energies of a sketch.
    pub energies: Vec<Energy>,
    /// The distortion of each time or power against the distances of the points.
    pub distortion: Vec<Option<Distortion>>,
    /// The distortion over trials, if the parameters ask for it.
    pub trials: Vec<TrialDistortion>,
    /// What certificates claim.
    pub checked: Checked,
    /// Products of the kernel with one vector for the eigenvectors.
    pub products: usize,
    /// What a user should know.
    pub warnings: Vec<Warning>,
}

/// Numbers of a fit that are checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The largest error of a row sum.
    pub row_error: f64,
    /// The largest error of a row sum that the parameters allow.
    pub delta: f64,
    /// ‖B‖_F², of a diffusion map.
    pub square_sum: Option<f64>,
    /// Whether the eigenvectors have converged.
    pub converged: bool,
    /// The largest difference between rows of the fit and the same rows as new rows, and a bound of
    /// the magnitudes that are summed up to a coordinate, in units of the largest coordinate. None
    /// if landmarks embed all rows.
    pub reproduction: Option<[f64; 2]>,
}

impl HeatModel {
    /// Coordinates of a row.
    pub fn columns(&self) -> usize {
        self.extension.columns
    }

    /// Embeds new rows (n × d, row-major). Returns n × columns; NaN for rows without a neighbour.
    /// For many blocks of rows, keep an embedder of `extension`.
    pub fn embed(&self, rows: &[f64]) -> Vec<f64> {
        self.extension.embedder().embed(rows)
    }
}

/// A model and the rows that it was fitted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    /// The model.
    pub model: HeatModel,
    /// One row of coordinates per input row; NaN for rows that are not in the largest component.
    /// None if landmarks embed all rows.
    pub rows: Option<Vec<f64>>,
}

impl Embedded {
    /// The rows of the points of the fit, embedded by the landmarks if there are some.
    pub fn rows_of(&self, points: &Points) -> Cow<'_, [f64]> {
        match &self.rows {
            Some(rows) => Cow::Borrowed(rows),
            None => Cow::Owned(self.model.embed(&points.coordinates)),
        }
    }
}

impl Estimator for DiffusionMap {
    type Evidence<'a> = Points;
    type Size = PointSize;
    type Model = Embedded;

    fn bytes(&self, size: PointSize, threads: u64) -> u64 {
        let dimension = self.dimension as u64;
        let columns = dimension * self.time.all().len() as u64;
        // The basis of a block Lanczos iteration between two restarts.
        let vectors = 8 * (dimension + 1) + 16;
        let own = self.kernel().bytes(size, vectors, columns, threads);
        own + trials::bytes(self.distortion.as_ref(), size, columns, threads)
    }

    fn fit(&self, _: &Passes<'_>, points: &Points, seed: u64) -> Result<Embedded> {
        diffusion_map(points, self, seed)
    }
}

impl Estimator for HeatSketch {
    type Evidence<'a> = Points;
    type Size = PointSize;
    type Model = Embedded;

    fn bytes(&self, size: PointSize, threads: u64) -> u64 {
        let dimension = self.dimension as u64;
        let columns = dimension * self.power.all().len() as u64;
        let own = self
            .kernel()
            .bytes(size, 3 * dimension + 16, columns, threads);
        own + trials::bytes(self.distortion.as_ref(), size, columns, threads)
    }

    fn fit(&self, _: &Passes<'_>, points: &Points, seed: u64) -> Result<Embedded> {
        heat_sketch(points, self, seed)
    }
}

/// Fits a diffusion map, and measures its distortion over trials if the parameters ask for it.
///
/// # Errors
/// If the points have no such kernel ([`prepare`]), or those of a trial have none.
pub(crate) fn diffusion_map(points: &Points, params: &DiffusionMap, seed: u64) -> Result<Embedded> {
    let mut embedded = map_of(points, params, seed)?;
    let Some(trials) = &params.distortion else {
        return Ok(embedded);
    };
    let fit = |sample: &Points, seed| {
        let found = map_of(sample, params, seed)?;
        Ok(TrialRows {
            rows: found.rows_of(sample).into_owned(),
            dimension: found.model.dimension,
            is_sketch: false,
            noisy: Vec::new(),
        })
    };
    let (kernel, times) = (params.kernel(), &embedded.model.times);
    embedded.model.trials = trials::of(points, trials, &kernel, times, seed, fit)?;
    Ok(embedded)
}

/// Fits a sketch, and measures its distortion over trials if the parameters ask for it.
///
/// # Errors
/// If the points have no such kernel ([`prepare`]), or those of a trial have none.
pub(crate) fn heat_sketch(points: &Points, params: &HeatSketch, seed: u64) -> Result<Embedded> {
    let mut embedded = sketch_of(points, params, seed)?;
    let Some(trials) = &params.distortion else {
        return Ok(embedded);
    };
    let fit = |sample: &Points, seed| {
        let found = sketch_of(sample, params, seed)?;
        let noise = trials
            .noise
            .map(|size| noise::of(sample, params, size, seed));
        Ok(TrialRows {
            rows: found.rows_of(sample).into_owned(),
            dimension: found.model.dimension,
            is_sketch: true,
            noisy: noise.transpose()?.flatten().unwrap_or_default(),
        })
    };
    let (kernel, times) = (params.kernel(), &embedded.model.times);
    embedded.model.trials = trials::of(points, trials, &kernel, times, seed, fit)?;
    Ok(embedded)
}

fn map_of(points: &Points, params: &DiffusionMap, seed: u64) -> Result<Embedded> {
    let points = &*used(points, &params.kernel(), seed);
    let prepared = prepare(points, &params.kernel(), seed)?;
    let operator = Normalised::new(&prepared.kernel, &prepared.factors);
    let epsilon = Some(prepared.kernel.epsilon);
    let map = diffusion_map::of(&operator, params.dimension, epsilon, params.tolerance, seed);
    let dimension = map.spectrum.len() - 1;
    let times = params.time.all();
    // λᵗ⁻¹, with λᵗ as `power` has it. An eigenvalue that is rounding has no direction.
    let factor = |t: f64, value: f64| match diffusion_map::power(value, t) {
        whole if whole != 0.0 && value.abs() > NEGLIGIBLE => whole / value,
        _ => 0.0,
    };
    let values = || map.spectrum[1..].iter().map(|level| level.value);
    let factors: Vec<f64> = (times.iter())
        .flat_map(|&t| values().map(move |value| factor(t, value)))
        .collect();
    // The rows are images of what new rows are made of, so that they come back to rounding even if
    // the eigenvectors are less accurate.
    let (rows, before) = (
        times_of(&map.images, &factors, dimension),
        times_of(&map.vectors, &factors, dimension),
    );
    let not_converged = |warning: &Warning| matches!(warning, Warning::NotConverged { .. });
    let parts = Parts {
        dimension,
        square_sum: Some(operator.square_sum()),
        converged: !map.warnings.iter().any(not_converged),
        delta: params.delta,
        by_landmarks: params.landmarks.is_some(),
        spectrum: map.spectrum,
        energies: Vec::new(),
        products: map.products,
        warnings: map.warnings,
        times,
    };
    Ok(finish(points, prepared, rows, before, parts, seed))
}

/// The columns of `vectors` times the factors of every time, beside each other.
fn times_of(vectors: &[f64], factors: &[f64], dimension: usize) -> Vec<f64> {
    let mut out = vec![0.0; vectors.len() / dimension * factors.len()];
    out.par_chunks_exact_mut(factors.len())
        .zip(vectors.par_chunks_exact(dimension))
        .for_each(|(out, row)| {
            for (out, factors) in out
                .chunks_exact_mut(dimension)
                .zip(factors.chunks_exact(dimension))
            {
                for ((out, x), factor) in out.iter_mut().zip(row).zip(factors) {
                    *out = x * factor;
                }
            }
        });
    out
}

fn sketch_of(points: &Points, params: &HeatSketch, seed: u64) -> Result<Embedded> {
    let points = &*used(points, &params.kernel(), seed);
    let prepared = prepare(points, &params.kernel(), seed)?;
    let operator = Normalised::new(&prepared.kernel, &prepared.factors);
    let coordinates = prepared
        .kernel
        .points
        .coordinates
        .par_chunks_exact(points.dimension);
    let names: Vec<u64> = coordinates.map(random::of_point).collect();
    let powers = params.power.all();
    // Powers one less are what new rows need.
    let mut swept: Vec<usize> = powers.iter().flat_map(|p| [p - 1, *p]).collect();
    swept.dedup();
    let (columns, distribution) = (params.dimension, params.distribution);
    let snapshots = sketch::sweep(&operator, &names, &swept, columns, distribution, seed);
    let at = |power: usize| snapshots.iter().filter(move |s| s.power == power);
    let wanted: Vec<&Snapshot> = powers.iter().flat_map(|p| at(*p)).collect();
    let before: Vec<&Snapshot> = powers.iter().flat_map(|p| at(p - 1)).collect();
    let norm = 1.0 + prepared.factors.row_error;
    let energies = sketch::energies(
        &operator,
        norm,
        &names,
        &wanted,
        columns,
        distribution,
        seed,
    );
    let (rows, before) = (
        sketch::joined(&wanted, columns),
        sketch::joined(&before, columns),
    );
    drop(snapshots);
    let parts = Parts {
        dimension: columns,
        times: powers.iter().map(|p| *p as f64).collect(),
        square_sum: None,
        converged: true,
        delta: params.delta,
        by_landmarks: params.landmarks.is_some(),
        spectrum: Vec::new(),
        energies,
        products: 0,
        warnings: Vec::new(),
    };
    Ok(finish(points, prepared, rows, before, parts, seed))
}

/// What the methods differ in.
struct Parts {
    dimension: usize,
    times: Vec<f64>,
    spectrum: Vec<Level>,
    square_sum: Option<f64>,
    converged: bool,
    delta: f64,
    /// Whether all rows are embedded as new rows.
    by_landmarks: bool,
    energies: Vec<Energy>,
    products: usize,
    warnings: Vec<Warning>,
}

/// The model, and the rows of all points. `rows` and `before` belong to √w φ at the wanted power
/// and at one less, n × columns.
fn finish(
    points: &Points,
    prepared: Prepared,
    mut rows: Vec<f64>,
    mut before: Vec<f64>,
    parts: Parts,
    seed: u64,
) -> Embedded {
    let Prepared {
        kernel,
        factors,
        quality,
        mut warnings,
        landmarks,
    } = prepared;
    let columns = parts.dimension * parts.times.len();
    let weights = &kernel.points.weights;
    let scale = factors.row_scale(weights);
    divide(&mut rows, columns, |i| scale[i] / weights[i].sqrt());
    divide(&mut before, columns, |i| 1.0 / weights[i].sqrt());
    let distinct = quality.points as f64;
    let is_wide = quality.effective_neighbours > distinct / 3.0;
    if is_wide || diffusion_map::is_wide(&parts.spectrum) {
        warnings.push(Warning::WideBandwidth {
            epsilon: quality.epsilon,
            first: parts.spectrum.get(1).map(|level| level.value),
            neighbours: quality.effective_neighbours,
            points: distinct,
        });
    }
    if quality.effective_neighbours < FEW_NEIGHBOURS {
        warnings.push(Warning::NarrowBandwidth {
            epsilon: quality.epsilon,
            neighbours: quality.effective_neighbours,
        });
    }
    warnings.extend(parts.warnings);
    warnings.extend(vanished(&rows, parts.dimension, &parts.times));
    let magnitude = magnitude(&before, columns, &factors, weights);
    let extension = Extension::new(&kernel, &factors, before, columns);
    let rows =
        (!parts.by_landmarks).then(|| of_input(points, &kernel.points, &rows, columns, &extension));
    let again = rows.as_ref();
    let reproduction =
        again.map(|rows| reproduction(points, rows, columns, &extension, magnitude, seed));
    let checked = Checked {
        row_error: factors.row_error,
        delta: parts.delta,
        square_sum: parts.square_sum,
        converged: parts.converged,
        reproduction,
    };
    let pairs = Pairs::of(points, if columns == 0 { 0 } else { PAIRS }, seed);
    let embedded: Vec<f64> = match &rows {
        Some(rows) => {
            let of = |i: &usize| &rows[i * columns..][..columns];
            pairs.rows.iter().flat_map(of).copied().collect()
        }
        None => extension.embedder().embed(&pairs.reference),
    };
    let distortion = (0..parts.times.len())
        .map(|t| pairs.distortion(&embedded, columns, t * parts.dimension, parts.dimension))
        .collect();
    let model = HeatModel {
        dimension: parts.dimension,
        times: parts.times,
        extension,
        quality,
        landmarks,
        spectrum: parts.spectrum,
        energies: parts.energies,
        distortion,
        trials: Vec::new(),
        checked,
        products: parts.products,
        warnings,
    };
    Embedded { model, rows }
}

fn divide(rows: &mut [f64], columns: usize, scale: impl Fn(usize) -> f64 + Sync) {
    rows.par_chunks_exact_mut(columns.max(1))
        .enumerate()
        .for_each(|(i, row)| {
            let scale = scale(i);
            row.iter_mut().for_each(|x| *x *= scale);
        });
}

/// The rows in the order of the input. Rows of weight zero are embedded as new rows.
fn of_input(
    points: &Points,
    distinct: &Distinct,
    rows: &[f64],
    columns: usize,
    extension: &Extension,
) -> Vec<f64> {
    let mut out = vec![f64::NAN; points.n() * columns];
    out.par_chunks_exact_mut(columns.max(1))
        .zip(&distinct.place)
        .for_each(|(out, place)| {
            if let Some(place) = place {
                out.copy_from_slice(&rows[*place as usize * columns..][..columns]);
            }
        });
    let weightless: Vec<usize> = (0..points.n())
        .filter(|&i| points.weight(i) == 0.0)
        .collect();
    if !weightless.is_empty() {
        let new = extension.embedder().embed(&points.rows(&weightless));
        for (i, row) in weightless.into_iter().zip(new.chunks_exact(columns)) {
            out[i * columns..][..columns].copy_from_slice(row);
        }
    }
    out
}

/// Some rows, which do not depend on the order of the rows: those with the smallest hashes.
fn sample(points: &Points, count: usize, seed: u64) -> Vec<usize> {
    let n = points.n();
    let key = |i: usize| (random::hash(seed, random::of_point(points.row(i))), i);
    let mut keys: Vec<(u64, usize)> = (0..n).into_par_iter().map(key).collect();
    if n > count && count > 0 {
        keys.select_nth_unstable(count);
        keys.truncate(count);
    }
    keys.sort_unstable();
    keys.into_iter().map(|(_, i)| i).collect()
}

/// A warning for the first time at which all coordinates are 0. The rows (n × columns) have
/// `dimension` columns per time.
pub(crate) fn vanished(rows: &[f64], dimension: usize, times: &[f64]) -> Option<Warning> {
    let columns = dimension * times.len();
    let is_zero = |at: &usize| {
        let own = rows.chunks_exact(columns.max(1));
        let mut own = own.flat_map(|row| &row[at * dimension..][..dimension]);
        own.all(|x| x.abs() < f64::MIN_POSITIVE)
    };
    let first = (0..times.len()).filter(|_| dimension > 0).find(is_zero)?;
    Some(Warning::Vanished { time: times[first] })
}

/// A bound of Σ_j A_ij w_j |F_j| over the columns of F (n × columns) and all rows, times what rows
/// are multiplied with. It follows from Σ_j A_ij w_j √v_j = √v_i.
fn magnitude(features: &[f64], columns: usize, factors: &Factors, weights: &[f64]) -> f64 {
    let roots = factors.v.iter().map(|v| v.sqrt());
    let rows = features.chunks_exact(columns.max(1)).zip(roots.clone());
    let shares = rows.map(|(row, root)| row.iter().fold(0.0, |m: f64, x| m.max(x.abs())) / root);
    let largest = match factors.normalisation {
        Normalisation::Stochastic => factors.total(weights).sqrt(),
        _ => roots.fold(0.0, f64::max),
    };
    largest * shares.fold(0.0, f64::max)
}

/// The largest difference between some rows of the fit and the same rows as new rows, and
/// `magnitude`, in units of the largest coordinate. Infinite if only one of the two is there.
fn reproduction(
    points: &Points,
    rows: &[f64],
    columns: usize,
    extension: &Extension,
    magnitude: f64,
    seed: u64,
) -> [f64; 2] {
    let sample = sample(points, REPRODUCED, seed);
    let again = extension.embedder().embed(&points.rows(&sample));
    let own = sample.iter().flat_map(|i| &rows[i * columns..][..columns]);
    let (mut largest, mut size) = (0.0f64, f64::MIN_POSITIVE);
    for (own, again) in own.zip(&again) {
        if own.is_nan() != again.is_nan() {
            return [f64::INFINITY, 0.0];
        }
        largest = largest.max((own - again).abs());
        size = size.max(own.abs());
    }
    [largest / size, magnitude / size]
}

/// Pairs of rows on which distortions are measured.
struct Pairs {
    rows: Vec<usize>,
    reference: Vec<f64>,
    dimension: usize,
    most: usize,
    seed: u64,
}

impl Pairs {
    /// The pairs of about √(2 `most`) rows.
    fn of(points: &Points, most: usize, seed: u64) -> Pairs {
        let rows = sample(points, ends(most), seed);
        Pairs {
            reference: points.rows(&rows),
            dimension: points.dimension,
            rows,
            most,
            seed,
        }
    }

    /// The distortion of the columns from `first` of the embedded rows of the pairs.
    fn distortion(
        &self,
        embedded: &[f64],
        columns: usize,
        first: usize,
        dimension: usize,
    ) -> Option<Distortion> {
        let own = embedded.chunks_exact(columns.max(1));
        let own = own.flat_map(|row| &row[first..][..dimension]);
        let embedding: Vec<f64> = own.copied().collect();
        let (reference, most) = (&self.reference, self.most);
        distortion::of(
            &embedding,
            dimension,
            reference,
            self.dimension,
            most,
            self.seed,
        )
    }
}
