//! What noise of the points does to a sketch (*heat kernel*, Proposition 3.4).
//!
//! In: points, a sketch and the size of the noise. Out: Y = k^{-1/2} Aᵖ G and Z = k^{-1/2} Bᵖ G
//! with the same G, where A is the kernel of the points and B that of the points with noise.
//!
//! For the eigenvalues μ of Aᵖ − Bᵖ, Σ‖y_i − z_i‖² is distributed as Σ μ_i² χ_i²(k)/k: its mean is
//! ‖Aᵖ − Bᵖ‖_F² and its variance 2 Σ μ⁴/k. The paper prints the variance 2 ‖Aᵖ − Bᵖ‖_F²/k, which is
//! an upper bound because no |μ| is above 1. All powers are without their leading eigenvectors, as
//! those of sketches are.

use crate::error::Result;
use crate::evidence::points::Points;
use crate::math::dense;
use crate::math::krylov::entries_of;
use crate::methods::heat_kernel::normalise::Normalised;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::HeatSketch;
use crate::methods::heat_kernel::prepare::prepare;
use crate::methods::heat_kernel::random;
use crate::methods::heat_kernel::sketch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Columns of a product with the kernel.
const WIDTH: usize = 16;

/// A bound that is exceeded with a probability of at most e⁻ˣ = 1/20.
const UNLIKELY: f64 = 2.995_732_273_553_991;

/// How much a sketch changes, in units of ‖Aᵖ‖_F².
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SketchChange {
    /// Σ‖y_i − z_i‖².
    pub found: f64,
    /// Its expected value, ‖Aᵖ − Bᵖ‖_F².
    pub expected: f64,
    /// What it exceeds with a probability of at most 1/20.
    pub bound: f64,
}

/// Two sketches with the same random numbers, at one power.
pub(crate) struct NoisySketch {
    /// Columns of a sketch.
    columns: usize,
    /// Y − Z, n × columns.
    difference: Vec<f64>,
    /// ‖Aᵖ‖_F².
    size: f64,
    /// Σ μ², Σ μ⁴ and max μ² of Aᵖ − Bᵖ.
    pub square: f64,
    pub fourth: f64,
    pub largest: f64,
}

impl NoisySketch {
    /// The change of a sketch of `k` columns, which are the first ones.
    pub(crate) fn change(&self, k: usize) -> SketchChange {
        let rows = self.difference.chunks_exact(self.columns);
        let squares: f64 = rows.flat_map(|row| &row[..k]).map(|x| x * x).sum();
        let of_k = self.columns as f64 / k as f64;
        let unit = UNLIKELY / k as f64;
        // Laurent and Massart, Ann. Statist. 28, 2000, Lemma 1.
        let above = 2.0 * (self.fourth * unit).sqrt() + 2.0 * self.largest * unit;
        SketchChange {
            found: squares * of_k / self.size,
            expected: self.square / self.size,
            bound: (self.square + above) / self.size,
        }
    }
}

/// The sketches of points with and without noise of the standard deviation `noise` in every
/// coordinate, by power. None if the kernel has no row of its own for each point.
///
/// # Errors
/// If the points with noise have no kernel.
pub(crate) fn of(
    points: &Points,
    params: &HeatSketch,
    noise: f64,
    seed: u64,
) -> Result<Option<Vec<NoisySketch>>> {
    let names: Vec<u64> = (0..points.n())
        .map(|i| random::of_point(points.row(i)))
        .collect();
    let exact = KernelPowers::of(points, params, &names, seed)?;
    let noisy = with_noise(points, &names, noise, seed);
    let noisy = KernelPowers::of(&noisy, params, &names, seed)?;
    let (Some(exact), Some(noisy)) = (exact, noisy) else {
        return Ok(None);
    };
    let powers = params.power.all().into_iter().enumerate();
    let of_power = |(at, power): (usize, usize)| {
        let minus =
            |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
        let entries = minus(&exact.entries(power), &noisy.entries(power));
        let (values, _) = dense::symmetric_eigen(&entries, points.n());
        let squares = || values.iter().map(|mu| mu * mu);
        let without_first = exact.values[1..].iter();
        NoisySketch {
            columns: params.dimension,
            difference: minus(&exact.sketches[at], &noisy.sketches[at]),
            size: without_first.map(|l| l.powi(2 * power as i32)).sum(),
            square: squares().sum(),
            fourth: squares().map(|s| s * s).sum(),
            largest: squares().fold(0.0, f64::max),
        }
    };
    Ok(Some(powers.map(of_power).collect()))
}

/// The points with normal numbers added, which depend on the seed and on the point.
fn with_noise(points: &Points, names: &[u64], noise: f64, seed: u64) -> Points {
    let seed = random::hash(seed, u64::from_le_bytes(*b"of noise"));
    let coordinates = names.iter().enumerate().flat_map(|(i, name)| {
        let key = random::hash(seed, *name);
        let row = (0..).zip(points.row(i));
        row.map(move |(c, x)| x + noise * random::normal(random::hash(key, c)))
    });
    Points {
        dimension: points.dimension,
        coordinates: coordinates.collect(),
        weights: points.weights.clone(),
    }
}

/// The eigenpairs of a kernel and its sketches, in the order of the points.
struct KernelPowers {
    /// λ, descending.
    values: Vec<f64>,
    /// u, n × n.
    vectors: Vec<f64>,
    /// Y by power, n × columns.
    sketches: Vec<Vec<f64>>,
}

impl KernelPowers {
    fn of(
        points: &Points,
        params: &HeatSketch,
        names: &[u64],
        seed: u64,
    ) -> Result<Option<KernelPowers>> {
        let prepared = prepare(points, &params.kernel(), seed)?;
        let operator = Normalised::new(&prepared.kernel, &prepared.factors);
        let (n, columns) = (points.n(), params.dimension);
        let places = prepared.kernel.points.place.iter();
        let place: Option<Vec<usize>> = places.map(|place| place.map(|p| p as usize)).collect();
        let Some(place) = place.filter(|_| operator.n() == n) else {
            return Ok(None);
        };
        let mut named = vec![0; n];
        (place.iter().zip(names)).for_each(|(place, name)| named[*place] = *name);
        let (powers, distribution) = (params.power.all(), params.distribution);
        let found = sketch::sweep(&operator, &named, &powers, columns, distribution, seed);
        let entries = entries_of(n, WIDTH, |x, out| operator.apply(x, WIDTH, out));
        let (values, vectors) = dense::leading_eigen(&entries, n, n);
        let in_order = |rows: &[f64], width: usize| -> Vec<f64> {
            let rows = place.iter().flat_map(|p| &rows[p * width..][..width]);
            rows.copied().collect()
        };
        Ok(Some(KernelPowers {
            values,
            vectors: in_order(&vectors, n),
            sketches: found.iter().map(|of| in_order(&of.rows, columns)).collect(),
        }))
    }

    /// The entries of a power without the leading eigenvector, n × n.
    fn entries(&self, power: usize) -> Vec<f64> {
        let n = self.values.len();
        let factors: Vec<f64> = (self.values.iter().enumerate())
            .map(|(q, value)| {
                if q == 0 {
                    0.0
                } else {
                    value.powi(power as i32)
                }
            })
            .collect();
        let mut out = vec![0.0; n * n];
        out.par_chunks_exact_mut(n)
            .zip(self.vectors.par_chunks_exact(n))
            .for_each(|(out, row)| {
                let row: Vec<f64> = row.iter().zip(&factors).map(|(u, f)| u * f).collect();
                for (out, other) in out.iter_mut().zip(self.vectors.chunks_exact(n)) {
                    *out = row.iter().zip(other).map(|(a, b)| a * b).sum();
                }
            });
        out
    }
}
