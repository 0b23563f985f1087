//! Soft sets: embeddings → sets with memberships on both sides, by sparse vectors (`seba`) or by
//! Perron cluster analysis (`pcca`).
//!
//! In: coordinates of the sources (n × r) and of the targets (m × r), row-major. Out: a set and r
//! memberships for each of them. The rows of e followed by those of f, with the weights p/2 and
//! q/2, have orthonormal columns as e and f do. Column k of the result is then a coherent pair, and
//! no matching is needed. In a square problem a target is a source and has its sets.

use crate::error::{Error, Result};
use crate::evidence::counts::shards::Shards;
use crate::math::dense;
use crate::methods::spectral::{basis, pcca, seba, svd};

/// A direction of coordinates whose squared length relative to the longest one is below this is
/// ignored.
const DEPENDENT: f64 = 1e-12;

/// Soft sets of both sides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Soft {
    /// The sets of the sources.
    pub sources: Members,
    /// The sets of the targets.
    pub targets: Members,
    /// Only of PCCA+, from 1/r to 1.
    pub crispness: Option<f64>,
    /// Whether the iteration converged.
    pub converged: bool,
}

/// The sets of one side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Members {
    /// The set of every state.
    pub affiliation: Vec<u32>,
    /// States × r, row-major.
    pub membership: Vec<f64>,
}

/// Pairs from singular vectors, by SEBA or PCCA+.
pub(crate) fn pairs(
    embedding: &svd::Embedding,
    shards: &Shards,
    params: &svd::Svd,
) -> Result<Soft> {
    let rank = params.rank;
    let both = [&embedding.sources[..], &embedding.targets].concat();
    let weights = [&shards.source_total[..], &shards.target_total].concat();
    let (mut sources, crispness, converged) = match params.clusters {
        svd::Clusters::Seba => {
            let sets = seba::fit(&both, rank, &weights);
            (
                Members {
                    affiliation: sets.affiliation,
                    membership: sets.membership,
                },
                None,
                sets.converged,
            )
        }
        _ => perron(&both, rank, &weights)?,
    };
    let targets = Members {
        affiliation: sources.affiliation.split_off(shards.n_sources),
        membership: sources.membership.split_off(shards.n_sources * rank),
    };
    Ok(Soft {
        sources,
        targets,
        crispness,
        converged,
    })
}

/// Sets of the states of a square problem from `embedding` (n × r) by PCCA+: target i is source
/// `source_of_target[i]`.
pub(crate) fn square(
    embedding: &[f64],
    rank: usize,
    weights: &[f64],
    source_of_target: &[u32],
) -> Result<Soft> {
    let (sources, crispness, converged) = perron(embedding, rank, weights)?;
    let of = source_of_target.iter().map(|&j| j as usize);
    let targets = Members {
        affiliation: of.clone().map(|j| sources.affiliation[j]).collect(),
        membership: of
            .flat_map(|j| &sources.membership[j * rank..][..rank])
            .copied()
            .collect(),
    };
    Ok(Soft {
        sources,
        targets,
        crispness,
        converged,
    })
}

fn perron(e: &[f64], rank: usize, weights: &[f64]) -> Result<(Members, Option<f64>, bool)> {
    let Some(sets) = pcca::fit(e, rank, weights) else {
        return Err(Error::input(format!(
            "rank {rank}: the embedding has fewer than {rank} independent columns, so there are no {rank} sets; take a smaller rank"
        )));
    };
    let members = Members {
        affiliation: sets.affiliation,
        membership: sets.membership,
    };
    Ok((members, Some(sets.crispness), sets.converged))
}

/// The map from the coordinates of a state to its memberships.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Map {
    /// χ = (1, e) A of PCCA+, (r + 1) × r row-major. The first row is for the constant, which may
    /// not be in the span of e (see `pcca`).
    Linear(Vec<f64>),
    /// The map of SEBA.
    Sparse(seba::Map),
}

impl Map {
    /// A by weighted least squares from coordinates and memberships (both n × `rank`, row-major),
    /// the shortest if several fit equally.
    pub(crate) fn linear(
        embedding: &[f64],
        membership: &[f64],
        rank: usize,
        weights: &[f64],
    ) -> Map {
        let (known, width) = (rank + 1, 2 * rank + 1);
        let rows = embedding
            .chunks_exact(rank)
            .zip(membership.chunks_exact(rank));
        let rows: Vec<f64> = rows.flat_map(|(e, m)| [&[1.0], e, m].concat()).collect();
        let sums = basis::blocks(&rows, width, weights, known * width, |row, weight, sums| {
            for (sums, x) in sums.chunks_exact_mut(width).zip(row) {
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(s, y)| *s += weight * x * y);
            }
        });
        let sums = sums.chunks_exact(width);
        let gram: Vec<f64> = sums
            .clone()
            .flat_map(|row| &row[..known])
            .copied()
            .collect();
        let cross: Vec<&[f64]> = sums.map(|row| &row[known..]).collect();
        let (values, vectors) = dense::symmetric_eigen(&gram, known);
        let least = DEPENDENT * values[known - 1];
        let mut a = vec![0.0; known * rank];
        for (v, value) in values.iter().enumerate().filter(|(_, v)| **v > least) {
            let vector = || vectors[v..].iter().step_by(known);
            for (k, cross_k) in (0..rank).map(|k| (k, cross.iter().map(move |row| row[k]))) {
                let along = vector().zip(cross_k).map(|(v, c)| v * c).sum::<f64>() / value;
                let column = a[k..].iter_mut().step_by(rank);
                column.zip(vector()).for_each(|(a, v)| *a += along * v);
            }
        }
        Map::Linear(a)
    }

    /// The memberships of one state. A point outside the simplex of PCCA+ would have negative
    /// memberships. They are set to 0, and the others are divided by their sum.
    pub(crate) fn apply(&self, point: &[f64], out: &mut [f64]) {
        let a = match self {
            Map::Sparse(map) => return map.apply(point, out),
            Map::Linear(a) => a,
        };
        let (constant, lines) = a.split_at(out.len());
        out.copy_from_slice(constant);
        for (x, line) in point.iter().zip(lines.chunks_exact(out.len())) {
            out.iter_mut().zip(line).for_each(|(out, a)| *out += x * a);
        }
        out.iter_mut().for_each(|x| *x = x.max(0.0));
        let sum: f64 = out.iter().sum();
        out.iter_mut().for_each(|x| *x /= sum);
    }
}

impl Members {
    /// Set k becomes set `names[k]`.
    pub(crate) fn rename(&mut self, names: &[u32]) {
        self.affiliation
            .iter_mut()
            .for_each(|k| *k = names[*k as usize]);
        let mut renamed = vec![0.0; names.len()];
        for row in self.membership.chunks_exact_mut(names.len()) {
            for (x, &name) in row.iter().zip(names) {
                renamed[name as usize] = *x;
            }
            row.copy_from_slice(&renamed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One set keeps both its states and one state is in both sets: χ = (1, 0), (½, ½), (0, 1) at e
    // = (1, −1), (1, 0), (1, 1).
    #[test]
    fn memberships_of_new_points_by_hand() {
        let points = [1.0, -1.0, 1.0, 0.0, 1.0, 1.0];
        let members = [1.0, 0.0, 0.5, 0.5, 0.0, 1.0];
        let map = Map::linear(&points, &members, 2, &[0.2, 0.3, 0.5]);
        let mut out = [0.0; 2];
        for (x, expected) in [(0.5, [0.25, 0.75]), (-1.0, [1.0, 0.0]), (3.0, [0.0, 1.0])] {
            map.apply(&[1.0, x], &mut out);
            assert!((out[0] - expected[0]).abs() < 1e-14, "{out:?}");
            assert!((out[1] - expected[1]).abs() < 1e-14, "{out:?}");
        }
    }
}
