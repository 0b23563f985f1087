//! Random sketches of powers of a normalised kernel (*heat kernel*, Algorithms 4 and 5): Y =
//! k^{-1/2} Bᵖ G.
//!
//! In: an operator B, a name for each of its rows, the powers and the number of columns k. Out: Y
//! for each power. E‖Y_x − Y_y‖² is the squared diffusion distance.
//!
//! G is drawn by counter from the seed, the name of the row and the column, so the order of rows
//! does not matter. Its columns are made orthogonal to the leading eigenvector: the distances do
//! not depend on it, and at large powers it would be all that is left. All powers are snapshots of
//! one sweep of products.

use crate::math::sum;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::random;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Powers up to which the energy is compared with that of other draws.
const CHECKED_POWER: usize = 8;

/// Columns of the other draws.
const OTHER_COLUMNS: usize = 8;

/// A difference of energies that comes by chance with a probability below 4e⁻³² is an error.
const UNLIKELY: f64 = 32.0;

/// The largest number of columns of a product.
pub(crate) const WIDTH: usize = 16;

/// Products between two projections. Rounding brings back the leading eigenvector.
const PROJECTED: usize = 16;

/// The distribution of the entries of G.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Standard normal numbers (Algorithm 4).
    #[default]
    Gaussian,
    /// −1 or 1 with equal probability (Algorithm 5).
    Bernoulli,
}

/// One power of a sketch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    /// p.
    pub power: usize,
    /// k^{-1/2} Bᵖ G, n × k, row-major.
    pub rows: Vec<f64>,
}

/// The energy of a sketch, Σ‖y‖², beside an estimate from other draws.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// p.
    pub power: usize,
    /// Σ‖y‖², which estimates ‖Bᵖ‖²_F without the leading eigenvector.
    pub sketch: f64,
    /// The same from other draws (Hutchinson's estimate).
    pub other: f64,
    /// The largest difference of the two by chance, see [`spread`].
    pub spread: f64,
}

/// The sketches of ascending `powers`.
///
/// # Panics
/// If the powers do not ascend.
pub(crate) fn sweep(
    operator: &dyn Operator,
    names: &[u64],
    powers: &[usize],
    columns: usize,
    distribution: Distribution,
    seed: u64,
) -> Vec<Snapshot> {
    assert!(powers.is_sorted_by(|a, b| a < b), "powers ascend");
    let n = operator.n();
    let mut snapshots: Vec<Snapshot> = powers
        .iter()
        .map(|&power| Snapshot {
            power,
            rows: vec![0.0; n * columns],
        })
        .collect();
    let leading = operator.leading();
    let mut first = 0;
    while first < columns {
        let own = (columns - first).min(WIDTH);
        let width = own.next_power_of_two();
        let mut now = draw(names, first, width, distribution, seed);
        project(&leading, width, &mut now);
        let mut next = vec![0.0; now.len()];
        let mut power = 0;
        for snapshot in &mut snapshots {
            while power < snapshot.power {
                operator.apply(&now, width, &mut next);
                std::mem::swap(&mut now, &mut next);
                power += 1;
                if power.is_multiple_of(PROJECTED) {
                    project(&leading, width, &mut now);
                }
            }
            let rows = snapshot.rows.par_chunks_exact_mut(columns);
            let scale = 1.0 / (columns as f64).sqrt();
            rows.zip(now.par_chunks_exact(width))
                .for_each(|(out, row)| {
                    let out = &mut out[first..first + own];
                    out.iter_mut()
                        .zip(row)
                        .for_each(|(out, x)| *out = scale * x);
                });
        }
        first += own;
    }
    snapshots
}

/// Columns `first .. first + width` of G.
fn draw(
    names: &[u64],
    first: usize,
    width: usize,
    distribution: Distribution,
    seed: u64,
) -> Vec<f64> {
    let mut out = vec![0.0; names.len() * width];
    out.par_chunks_exact_mut(width)
        .zip(names)
        .for_each(|(row, name)| {
            for (column, x) in (first as u64..).zip(row) {
                let key = random::hash(random::hash(seed, *name), column);
                *x = match distribution {
                    Distribution::Gaussian => random::normal(key),
                    Distribution::Bernoulli => random::sign(key),
                };
            }
        });
    out
}

/// Makes columns orthogonal to a unit vector.
fn project(unit: &[f64], width: usize, x: &mut [f64]) {
    let along: Vec<f64> = (0..width)
        .map(|c| sum::terms(unit.len(), |i| unit[i] * x[i * width + c]))
        .collect();
    x.par_chunks_exact_mut(width)
        .zip(unit)
        .for_each(|(row, unit)| {
            row.iter_mut()
                .zip(&along)
                .for_each(|(x, along)| *x -= unit * along);
        });
}

/// The rows of all snapshots, one power after another in each row.
pub(crate) fn joined(snapshots: &[&Snapshot], columns: usize) -> Vec<f64> {
    let all = snapshots.len() * columns;
    let mut out = vec![0.0; snapshots.iter().map(|s| s.rows.len()).sum()];
    out.par_chunks_exact_mut(all)
        .enumerate()
        .for_each(|(i, out)| {
            for (out, snapshot) in out.chunks_exact_mut(columns).zip(snapshots) {
                out.copy_from_slice(&snapshot.rows[i * columns..][..columns]);
            }
        });
    out
}

/// The energies of the powers of at most [`CHECKED_POWER`], beside those of other draws. `norm` is
/// a bound of ‖B‖.
pub(crate) fn energies(
    operator: &dyn Operator,
    norm: f64,
    names: &[u64],
    snapshots: &[&Snapshot],
    columns: usize,
    distribution: Distribution,
    seed: u64,
) -> Vec<Energy> {
    let checked: Vec<usize> = (snapshots.iter().map(|s| s.power))
        .filter(|power| *power <= CHECKED_POWER)
        .collect();
    let other_seed = random::hash(seed, u64::from_le_bytes(*b"energies"));
    let others = sweep(
        operator,
        names,
        &checked,
        OTHER_COLUMNS,
        distribution,
        other_seed,
    );
    others
        .iter()
        .zip(snapshots)
        .map(|(other, snapshot)| {
            let own = sum::terms(snapshot.rows.len(), |at| snapshot.rows[at].powi(2));
            let other = sum::terms(other.rows.len(), |at| other.rows[at].powi(2));
            let largest = norm.powi(2 * snapshot.power as i32);
            Energy {
                power: snapshot.power,
                sketch: own,
                other,
                spread: spread([(own, columns), (other, OTHER_COLUMNS)], largest),
            }
        })
        .collect()
}

/// The largest difference of two estimates of E = tr B²ᵖ, each from some columns, but for a
/// probability of 4e⁻ˣ with x = [`UNLIKELY`].
///
/// An estimate from k columns is Σ λ_i χ²_k/k over the eigenvalues of B²ᵖ, which are at most
/// `largest`: L. It differs from E by at most 2√(L E x/k) + 2 L x/k (Laurent and Massart, Ann.
/// Statist. 28, 2000, Lemma 1, with Σ λ² ≤ L E). So E itself is at most (√(L x/k) + √(estimate + L
/// x/k))².
fn spread(estimates: [(f64, usize); 2], largest: f64) -> f64 {
    let unit = |columns: usize| largest * UNLIKELY / columns as f64;
    let bounds = estimates.map(|(estimate, columns)| {
        let unit = unit(columns);
        (unit.sqrt() + (estimate + unit).sqrt()).powi(2)
    });
    let energy = bounds[0].min(bounds[1]);
    let off = |(_, columns)| 2.0 * (energy * unit(columns)).sqrt() + 2.0 * unit(columns);
    estimates.map(off).iter().sum()
}
