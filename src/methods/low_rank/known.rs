//! A fit as its tables have it → the data that assigns new states.
//!
//! In: γ, e and memberships of the sources, f and memberships of the targets, λ, σ and counts, as
//! written. Out: [`Known`]. The maps that give a new state its point and its memberships are not
//! written, but computed again.

use crate::math::dense;
use crate::methods::low_rank::model::{Latent, SideStates, Singular};
use crate::methods::spectral::{seba, soft};
use rayon::prelude::*;

/// Singular values up to this are rounding. Their vectors are not used.
const NEGLIGIBLE: f64 = 1e-13;

/// A fit of n sources and m targets, for new states.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    /// r.
    pub rank: usize,
    /// γ, −1 for none: n values.
    pub affiliation: Vec<i32>,
    /// e, n × r row-major.
    pub embedding: Vec<f64>,
    /// log λ_ik, m × r row-major; −∞ if λ_ik is 0.
    pub log_latent: Vec<f64>,
    /// The share of a target in the point of a source, m × r row-major: f_ik / σ_k or x_i S^{-1}.
    /// None if the fit decomposed Λ̃.
    pub projection: Option<Vec<f64>>,
    /// The memberships, if the fit is soft.
    pub soft: Option<Soft>,
}

/// The memberships of a soft fit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Soft {
    /// The memberships of the sources, n × r row-major.
    pub membership: Vec<f64>,
    /// The map from points to memberships.
    pub map: soft::Map,
}

/// A fit as its tables have it.
pub(crate) struct FitTables<'a> {
    /// The columns of the table `sources`.
    pub sources: SideStates,
    /// The columns of the table `targets`.
    pub targets: &'a SideStates,
    /// The table `latent`.
    pub latent: Latent,
    /// The table `spectrum`.
    pub spectrum: &'a [Singular],
    /// Only of PCCA+.
    pub crispness: Option<f64>,
    /// w_k, r values.
    pub weights: &'a [f64],
    /// N_·j, N_i· and S.
    pub source_total: &'a [f64],
    /// N_i·.
    pub target_total: &'a [f64],
    /// S.
    pub total: f64,
}

impl Known {
    /// `smoothing` is the number of transitions that every set gets in addition ([`log_latent`]).
    pub(crate) fn new(tables: FitTables<'_>, smoothing: f64) -> Known {
        let rank = tables.weights.len();
        let set_total: Vec<f64> = tables.weights.iter().map(|w| w * tables.total).collect();
        let q: Vec<f64> = tables
            .target_total
            .iter()
            .map(|n| n / tables.total)
            .collect();
        let SideStates {
            affiliation,
            embedding,
            membership,
        } = tables.sources;
        let of_targets = &tables.targets.embedding;
        // Only vectors have residuals, and only Schur vectors have eigenvalues.
        let first = tables.spectrum.first();
        let projection = match first.and_then(|s| Some((s.residual?, s.eigenvalue))) {
            None => None,
            Some((_, None)) => Some(projection(of_targets, tables.spectrum)),
            Some((_, Some(_))) => Some(schur_projection(
                of_targets,
                &embedding,
                &affiliation,
                tables.source_total,
                &tables.latent,
            )),
        };
        let soft = membership.zip(tables.targets.membership.as_ref());
        let soft = soft.map(|(membership, targets)| {
            // Both sides at once, as in the fit.
            let points = [&embedding[..], of_targets].concat();
            let members = [&membership[..], targets].concat();
            let weights = [tables.source_total, tables.target_total].concat();
            let map = match tables.crispness {
                Some(_) => soft::Map::linear(&points, &members, rank, &weights),
                None => soft::Map::Sparse(seba::Map::of(&points, &members, rank, &weights)),
            };
            Soft { membership, map }
        });
        Known {
            rank,
            log_latent: log_latent(&tables.latent, &set_total, &q, smoothing),
            affiliation,
            embedding,
            projection,
            soft,
        }
    }
}

/// log λ (m × r) from its entries.
///
/// With `smoothing` a > 0 it is the logarithm of (C_·k λ_ik + a q_i) / (C_·k + a), the mean of a
/// Dirichlet posterior: every set gets a more transitions, distributed over the targets like all
/// transitions. Empty sets stay ruled out.
pub(crate) fn log_latent(
    latent: &Latent,
    set_total: &[f64],
    target_probability: &[f64],
    smoothing: f64,
) -> Vec<f64> {
    let rank = set_total.len();
    let mut table = vec![0.0; target_probability.len() * rank];
    for (k, ends) in latent.offsets.windows(2).enumerate() {
        let own = ends[0]..ends[1];
        for (&i, &probability) in latent.targets[own.clone()]
            .iter()
            .zip(&latent.probability[own])
        {
            table[i as usize * rank + k] = probability;
        }
    }
    table
        .par_chunks_mut(rank)
        .zip(target_probability)
        .for_each(|(row, q)| {
            for (x, &total) in row.iter_mut().zip(set_total) {
                let smooth = smoothing > 0.0 && total > 0.0;
                let probability = if smooth {
                    (total * *x + smoothing * q) / (total + smoothing)
                } else {
                    *x
                };
                *x = probability.ln();
            }
        });
    table
}

/// f_ik / σ_k; 0 if σ_k is 0.
fn projection(targets: &[f64], spectrum: &[Singular]) -> Vec<f64> {
    let rows = targets.chunks_exact(spectrum.len());
    let divided = rows.flat_map(|row| {
        let pairs = row.iter().zip(spectrum);
        pairs.map(|(x, s)| {
            if s.value > NEGLIGIBLE {
                x / s.value
            } else {
                0.0
            }
        })
    });
    divided.collect()
}

/// x_i S^{-1} for Schur vectors X of targets (m × r) and of sources (n × r, with sets γ and weights
/// p). The mean of TX = XS over the sources of a set is Σ_i λ_ik x_i = x̄_k S, and these r
/// equations give S^{-1} without the counts.
fn schur_projection(
    targets: &[f64],
    sources: &[f64],
    affiliation: &[i32],
    weights: &[f64],
    latent: &Latent,
) -> Vec<f64> {
    let rank = latent.offsets.len() - 1;
    let mut after = vec![0.0; rank * rank];
    for (row, ends) in after.chunks_exact_mut(rank).zip(latent.offsets.windows(2)) {
        for at in ends[0]..ends[1] {
            let x = &targets[latent.targets[at] as usize * rank..][..rank];
            let probability = latent.probability[at];
            row.iter_mut()
                .zip(x)
                .for_each(|(m, x)| *m += probability * x);
        }
    }
    let (mut before, mut total) = (vec![0.0; rank * rank], vec![0.0; rank]);
    for ((x, &k), p) in sources.chunks_exact(rank).zip(affiliation).zip(weights) {
        if let Ok(k) = usize::try_from(k) {
            let row = before[k * rank..][..rank].iter_mut();
            row.zip(x).for_each(|(b, x)| *b += p * x);
            total[k] += p;
        }
    }
    for (row, total) in before.chunks_exact_mut(rank).zip(&total) {
        let scale = if *total > 0.0 { 1.0 / total } else { 0.0 };
        row.iter_mut().for_each(|b| *b *= scale);
    }
    // S^{-1} from (x̄ S) S^{-1} = x̄, the shortest solution if a set is empty.
    let (values, left, right) = dense::square_svd(&after, rank);
    let mut inverse = vec![0.0; rank * rank];
    for (v, value) in values.iter().enumerate() {
        if *value <= NEGLIGIBLE * values[0] {
            continue;
        }
        for l in 0..rank {
            let along: f64 = (0..rank)
                .map(|k| left[k * rank + v] * before[k * rank + l])
                .sum();
            for a in 0..rank {
                inverse[a * rank + l] += right[a * rank + v] * along / value;
            }
        }
    }
    let mut out = vec![0.0; targets.len()];
    out.par_chunks_mut(rank)
        .zip(targets.par_chunks(rank))
        .for_each(|(out, x)| {
            for (x, line) in x.iter().zip(inverse.chunks_exact(rank)) {
                out.iter_mut().zip(line).for_each(|(out, s)| *out += x * s);
            }
        });
    out
}
