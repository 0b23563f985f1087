//! Assigns new states to the sets of a model: the counts of new rows → a set, a point and a
//! log-likelihood per state (coherence (16), Algorithm 1).
//!
//! In: new counts N (m' targets × n' sources), the indices of their states in the model, and the
//! fit ([`Known`]): γ, e, log λ and, if its points are vectors of a decomposition, the share of
//! each target in them. Out: [`Assigned`].
//!
//! A source that the model has keeps its set, its point and its memberships. A new source gets the
//! set k with the largest s_k(j) = Σ_i N_ij log λ_ik, the lowest k on ties. A set that gives one of
//! its targets the probability 0 is ruled out. The point of a new source is
//!
//! - if the fit decomposed P̃: e_j = Σ_i P_ij f_i / σ. From P̃ᵀu = σv with e = D_p^{-1/2} v, f =
//!   D_q^{-1/2} u and P̃ = D_q^{-1/2} P D_p^{1/2}, the weights p_j cancel, so a state of the model
//!   would get its own point;
//! - for Schur vectors TX = XS: x_j = (Σ_i P_ij x_i) S^{-1}, which also gives a state of the model
//!   its own point;
//! - if the fit decomposed Λ̃: the point of its set, which all sources of the set share.
//!
//! The memberships of a new source are those of its point, by the map that gave the memberships of
//! the model (`soft::Map`).
//!
//! Transitions to targets that the model does not have say nothing about sets. They are counted
//! separately and left out of N.

use crate::evidence::counts::csr::Csr;
use crate::math::matrix::first_largest;
use crate::methods::low_rank::known::{Known, Soft};
use rayon::prelude::*;

/// A source of the new rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// −1 if every set is ruled out, or if the model has none of its targets.
    pub affiliation: i32,
    /// Σ_i N_ij log λ_ik for its set k, over the targets with λ_ik > 0. None without a set.
    pub log_likelihood: Option<f64>,
    /// Σ_i N_ij over the targets with λ_ik = 0.
    pub impossible: f64,
    /// s_k(j) minus the largest score of another set. It is negative if the new counts prefer the
    /// other set. None if there is no other set, or if all are ruled out.
    pub lead: Option<f64>,
}

/// The sources of the new rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assigned {
    /// r. Other models of the fit may have another rank.
    pub rank: usize,
    /// n' sources.
    pub states: Vec<State>,
    /// e, n' × r row-major.
    pub embedding: Vec<f64>,
    /// Whether a source has a row of e, and of memberships.
    pub has_point: Vec<bool>,
    /// n' × r row-major, if the fit is soft.
    pub membership: Option<Vec<f64>>,
}

/// Assigns every source. `sources` and `targets` have the indices of the new states in the model.
pub(crate) fn assign(
    known: &Known,
    counts: &[Csr],
    sources: &[Option<u32>],
    targets: &[Option<u32>],
) -> Assigned {
    let rank = known.rank;
    let mut states = vec![
        State {
            affiliation: -1,
            log_likelihood: None,
            impossible: 0.0,
            lead: None,
        };
        sources.len()
    ];
    let mut embedding = vec![0.0; sources.len() * rank];
    let mut has_point = vec![false; sources.len()];
    let mut point_of_set = vec![None; rank];
    for (j, &k) in known.affiliation.iter().enumerate() {
        if let Ok(k) = usize::try_from(k) {
            point_of_set[k].get_or_insert(j);
        }
    }
    let rows = counts.iter().flat_map(|shard| {
        (0..shard.n_rows()).map(move |l| Row {
            shard,
            l,
            own: sources[shard.first_row + l].map(|at| at as usize),
        })
    });
    let rows: Vec<Row> = rows.collect();
    assert_eq!(rows.len(), sources.len(), "one row of counts a source");
    rows.par_iter()
        .zip(&mut states)
        .zip(embedding.par_chunks_mut(rank))
        .zip(&mut has_point)
        .for_each_init(
            || vec![0.0; rank],
            |scores, (((row, state), point), has_point)| {
                let (seen, set) = row.set(known, targets, scores);
                if let Some(k) = set {
                    *state = score(k, scores, row.entries(targets), &known.log_latent);
                }
                *has_point = match (row.own, &known.projection) {
                    (None, Some(projection)) => row.project(projection, targets, seen, point),
                    (own, _) => {
                        let from = own.or(set.and_then(|k| point_of_set[k]));
                        if let Some(at) = from {
                            point.copy_from_slice(&known.embedding[at * rank..(at + 1) * rank]);
                        }
                        from.is_some()
                    }
                };
            },
        );
    let soft = known.soft.as_ref();
    Assigned {
        rank,
        states,
        membership: soft.map(|soft| soft.memberships(sources, &embedding, &has_point, rank)),
        embedding,
        has_point,
    }
}

impl Soft {
    fn memberships(
        &self,
        sources: &[Option<u32>],
        embedding: &[f64],
        has_point: &[bool],
        rank: usize,
    ) -> Vec<f64> {
        let mut membership = vec![0.0; embedding.len()];
        membership
            .par_chunks_mut(rank)
            .zip(embedding.par_chunks(rank))
            .zip(sources)
            .zip(has_point)
            .for_each(|(((out, point), own), has_point)| match own {
                Some(at) => out.copy_from_slice(&self.membership[*at as usize * rank..][..rank]),
                None if *has_point => self.map.apply(point, out),
                None => (),
            });
        membership
    }
}

/// Σ_i N_ij over the targets that the model does not have, for every source.
pub(crate) fn unseen(counts: &[Csr], targets: &[Option<u32>]) -> Vec<f64> {
    let of_row = |shard: &Csr, l: usize| {
        let entries = shard
            .span(l)
            .filter(|&e| targets[shard.columns[e] as usize].is_none());
        entries.map(|e| shard.values.get(e)).sum()
    };
    let rows = counts
        .iter()
        .flat_map(|shard| (0..shard.n_rows()).map(move |l| of_row(shard, l)));
    rows.collect()
}

/// The counts of one source.
struct Row<'a> {
    shard: &'a Csr,
    l: usize,
    /// The index of its state in the model.
    own: Option<usize>,
}

impl Row<'_> {
    /// The number of counts of targets of the model, and the set, if there is one. Sets the scores.
    fn set(
        &self,
        known: &Known,
        targets: &[Option<u32>],
        scores: &mut [f64],
    ) -> (f64, Option<usize>) {
        scores.fill(0.0);
        let mut seen = 0.0;
        for (i, n) in self.entries(targets) {
            seen += n;
            for (s, log) in scores.iter_mut().zip(&known.log_latent[i * known.rank..]) {
                *s += n * log;
            }
        }
        let set = match self.own {
            Some(at) => usize::try_from(known.affiliation[at]).ok(),
            None if seen > 0.0 => best(scores),
            None => None,
        };
        (seen, set)
    }

    /// Sets the point by the shares of targets. False if the model has none of the targets.
    fn project(
        &self,
        projection: &[f64],
        targets: &[Option<u32>],
        seen: f64,
        point: &mut [f64],
    ) -> bool {
        if seen > 0.0 {
            let rank = point.len();
            for (i, n) in self.entries(targets) {
                for (x, f) in point.iter_mut().zip(&projection[i * rank..]) {
                    *x += n * f;
                }
            }
            point.iter_mut().for_each(|x| *x /= seen);
        }
        seen > 0.0
    }

    /// Indices among the targets of the model, and counts.
    fn entries(&self, targets: &[Option<u32>]) -> impl Iterator<Item = (usize, f64)> {
        self.shard.span(self.l).filter_map(move |e| {
            let place = targets[self.shard.columns[e] as usize]?;
            Some((place as usize, self.shard.values.get(e)))
        })
    }
}

/// The first of the largest scores, if one is finite.
fn best(scores: &[f64]) -> Option<usize> {
    let best = first_largest(scores.iter().copied());
    (scores[best] > f64::NEG_INFINITY).then_some(best)
}

fn score(
    k: usize,
    scores: &[f64],
    entries: impl Iterator<Item = (usize, f64)>,
    log_latent: &[f64],
) -> State {
    let rank = scores.len();
    let (mut log_likelihood, mut impossible) = (0.0, 0.0);
    for (i, n) in entries {
        let log = log_latent[i * rank + k];
        if log > f64::NEG_INFINITY {
            log_likelihood += n * log;
        } else {
            impossible += n;
        }
    }
    let others = scores.iter().enumerate().filter(|(l, _)| *l != k);
    let other = others.map(|(_, &s)| s).max_by(f64::total_cmp);
    State {
        affiliation: k as i32,
        log_likelihood: Some(log_likelihood),
        impossible,
        lead: other.map(|s| scores[k] - s).filter(|lead| !lead.is_nan()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::Counts;
    use crate::evidence::counts::csr::Values;
    use crate::evidence::counts::shards::{Shards, dense};
    use crate::evidence::pass::Passes;
    use crate::math::seed::restart_seed;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::low_rank::known::{FitTables, log_latent};
    use crate::methods::low_rank::model::{Latent, LowRank};
    use crate::methods::spectral::gpcca::Gpcca;
    use crate::methods::spectral::svd::{Clusters, Svd};
    use crate::methods::{Method, fit};

    /// One row of counts per source: (target, count).
    fn csr(rows: &[&[(u32, u32)]]) -> Csr {
        let entries = || rows.iter().flat_map(|row| row.iter());
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, row| {
            *end += row.len();
            Some(*end)
        }));
        Csr {
            first_row: 0,
            offsets,
            columns: entries().map(|(i, _)| *i).collect(),
            values: Values::Count(entries().map(|(_, n)| *n).collect()),
        }
    }

    /// Three blocks of four states. Each state mostly stays in its block and sometimes goes to the
    /// next; `seed` varies the counts.
    fn noisy(seed: u64) -> Shards {
        let count = |j: usize, i: usize| {
            let noise = (restart_seed(seed, 12 * j + i + 1) >> 40) as u32;
            f64::from(match (i / 4 + 3 - j / 4) % 3 {
                0 => 60 + noise % 23,
                1 => 10 + noise % 7,
                _ => 1 + noise % 3,
            })
        };
        let column = |j| (0..12).map(|i| count(j, i)).collect();
        dense(&(0..12).map(column).collect::<Vec<_>>(), false, 64)
    }

    fn known(shards: &Shards, model: &LowRank) -> Known {
        let tables = FitTables {
            sources: model.sources.clone(),
            targets: &model.targets,
            latent: model.latent.clone(),
            spectrum: &model.spectrum,
            crispness: model.metrics.crispness,
            weights: &model.metrics.weights,
            source_total: &shards.source_total,
            target_total: &shards.target_total,
            total: shards.total,
        };
        Known::new(tables, 0.0)
    }

    // λ = [ 1/2 0   ]   Source 0: 2 ln ½ + ln ½ against −∞. Source 1: 3 ln ½ against 3 ln ¾.
    //     [ 1/2 3/4 ]   Source 2: each set rules out one target. Source 3: the model does not
    //     [ 0   1/4 ]   have its target. Source 4 is in set 1 of the model.
    #[test]
    fn scores_by_hand() {
        let latent = Latent {
            offsets: vec![0, 2, 4],
            targets: vec![0, 1, 1, 2],
            probability: vec![0.5, 0.5, 0.75, 0.25],
        };
        let q = [0.25, 0.625, 0.125];
        let mut known = Known {
            rank: 2,
            affiliation: vec![0, 1],
            embedding: vec![1.0, 2.0, 1.0, -2.0],
            log_latent: log_latent(&latent, &[2.0, 2.0], &q, 0.0),
            projection: None,
            soft: None,
        };
        let counts = [csr(&[
            &[(0, 2), (1, 1)],
            &[(1, 3), (3, 5)],
            &[(0, 1), (2, 1)],
            &[(3, 7)],
            &[(0, 1), (1, 4)],
        ])];
        let targets = [Some(0), Some(1), Some(2), None];
        let sources = [None, None, None, None, Some(1)];
        let got = assign(&known, &counts, &sources, &targets);
        let (half, most) = (0.5f64.ln(), 0.75f64.ln());
        let state = |affiliation, log_likelihood, impossible, lead| State {
            affiliation,
            log_likelihood,
            impossible,
            lead,
        };
        let none = state(-1, None, 0.0, None);
        let lead = 3.0 * most - 3.0 * half;
        let first = state(0, Some(2.0 * half + half), 0.0, Some(f64::INFINITY));
        let second = state(1, Some(3.0 * most), 0.0, Some(lead));
        let last = state(1, Some(4.0 * most), 1.0, Some(f64::NEG_INFINITY));
        assert_eq!(got.states, [first, second, none, none, last]);
        assert_eq!(got.has_point, [true, true, false, false, true]);
        assert_eq!(got.embedding[..4], [1.0, 2.0, 1.0, -2.0]);
        assert_eq!(unseen(&counts, &targets), [0.0, 5.0, 0.0, 7.0, 0.0]);

        // With a = 2: λ_0 = (1 + ½, 0 + ½) / 4 and λ_2 = (0 + ¼, ½ + ¼) / 4, so source 2 has 3/8 ·
        // 1/16 against 1/8 · 3/16: a tie.
        known.log_latent = log_latent(&latent, &[2.0, 2.0], &q, 2.0);
        let smooth = assign(&known, &counts, &sources, &targets);
        assert_eq!(smooth.states[2].affiliation, 0);
        assert!(smooth.states[2].lead.is_some_and(|lead| lead.abs() < 1e-15));
        assert_eq!(smooth.states[3], none);
        // An empty set has no transitions to smooth.
        let empty = log_latent(&latent, &[2.0, 0.0], &q, 2.0);
        assert_eq!(empty[1], f64::NEG_INFINITY);
    }

    /// The states of a model, assigned as new states, get their own sets and points.
    #[test]
    fn the_states_of_a_model_get_back_what_it_says_of_them() {
        let soft = |clusters| {
            let svd = Svd::new(3);
            Method::Svd(Svd { clusters, ..svd })
        };
        for seed in 0..4 {
            let shards = noisy(seed);
            for method in [
                Method::Dbmr(Dbmr::new(3)),
                soft(Clusters::KMeans),
                soft(Clusters::Seba),
                soft(Clusters::Pcca),
                Method::Gpcca(Gpcca::new(3)),
            ] {
                let counts = Counts::of(&shards).with_targets((0..12).map(Some).collect());
                let fit = fit(&Passes::local(), &method, &counts, 3).expect("a fit");
                let model = &fit.model;
                let known = known(&shards, model);
                let targets: Vec<Option<u32>> = (0..12).map(Some).collect();
                let got = assign(&known, &shards.by_source, &[None; 12], &targets);
                assert!(got.has_point.iter().all(|&has| has));
                let close = |found: &[f64], expected: &[f64], what: &str| {
                    assert_eq!(found.len(), expected.len());
                    for (x, y) in found.iter().zip(expected) {
                        assert!((x - y).abs() < 1e-8, "{what} of {method:?}: {x} {y}");
                    }
                };
                close(&got.embedding, &model.sources.embedding, "point");
                assert_eq!(got.membership.is_some(), model.sources.membership.is_some());
                if let (Some(found), Some(expected)) = (&got.membership, &model.sources.membership)
                {
                    close(found, expected, "memberships");
                }
                if matches!(method, Method::Dbmr(_)) {
                    let sets = got.states.iter().map(|s| s.affiliation);
                    assert!(sets.eq(model.sources.affiliation.iter().copied()));
                    let sum: f64 = got.states.iter().filter_map(|s| s.log_likelihood).sum();
                    assert!((sum / model.metrics.log_likelihood - 1.0).abs() < 1e-12);
                    let ahead = |s: &State| s.lead > Some(0.0) && s.impossible == 0.0;
                    assert!(got.states.iter().all(ahead));
                }
            }
        }
    }
}
