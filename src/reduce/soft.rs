//! Embeddings → sets with soft memberships, the same on both sides: by sparse vectors (`seba`) or by Perron cluster analysis (`pcca`).
//!
//! In: coordinates of the sources (n × r) and of the targets (m × r), row-major. Out: a set and r memberships for each of them. Rows of e
//! and below them those of f, with the weights p/2 and q/2, have orthonormal columns as e and f do. Column k of what is made of them is then a
//! coherent pair, and nothing is left to match. In a square problem a target is a source, and has its sets.

use super::{pcca, seba, svd};
use crate::error::{Error, Result};
use crate::shard::Shards;

#[derive(Debug, Clone, PartialEq)]
pub struct Soft {
    pub sources: Members,
    pub targets: Members,
    /// Of PCCA+, from 1/r to 1.
    pub crispness: Option<f64>,
    pub converged: bool,
}

/// The sets of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct Members {
    pub affiliation: Vec<u32>,
    /// States × r, row-major.
    pub membership: Vec<f64>,
}

/// Pairs from singular vectors, by SEBA or PCCA+.
pub fn pairs(embedding: &svd::Embedding, shards: &Shards, params: &svd::Params) -> Result<Soft> {
    let rank = params.rank;
    let both = [&embedding.sources[..], &embedding.targets].concat();
    let weights = [&shards.source_total[..], &shards.target_total].concat();
    let (all, crispness, converged) = match params.clusters {
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
    let Members {
        affiliation: mut sources,
        membership: mut source_membership,
    } = all;
    let targets = Members {
        affiliation: sources.split_off(shards.n_sources),
        membership: source_membership.split_off(shards.n_sources * rank),
    };
    Ok(Soft {
        sources: Members {
            affiliation: sources,
            membership: source_membership,
        },
        targets,
        crispness,
        converged,
    })
}

/// Sets of the states of a square problem from `embedding` (n × r) by PCCA+: target i is source `source_of_target[i]`.
pub fn square(
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

impl Members {
    /// Set k becomes set `names[k]`.
    pub fn rename(&mut self, names: &[u32]) {
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
