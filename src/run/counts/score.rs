//! Scores trajectories with the fits of a model: a set and a log-likelihood per trajectory and fit.
//!
//! The log-likelihood is Σ w log (λΓ)_yx over the pairs (x, y) of a trajectory at a lag, with their
//! weights w and (λΓ)_yx = λ_{y,γ(x)}. Memory is proportional to the numbers of trajectories and
//! states.

use crate::methods::low_rank::assign::Assigned;
use crate::methods::low_rank::known::Known;
use crate::output::tables::assigned::{TrajectoryFit, TrajectoryRows};
use crate::read::counts::follow::{Followed, FollowedRow, Sink};
use crate::read::counts::weighted::Weighed;
use crate::run::counts::known::KnownModel;
use hashbrown::HashMap;
use std::sync::Arc;

/// The states of one partition and lag: those of the model, and new ones.
pub(crate) struct Lookup {
    /// State number → its row in `sets`.
    sources: HashMap<u32, u32>,
    /// State number → its index among the targets of the model.
    targets: HashMap<u32, u32>,
    /// The set of every source in every fit, −1 for none. Sources × fits, row-major.
    sets: Vec<i32>,
    fits: Vec<Known>,
}

impl Lookup {
    /// The states of a model and the new source states. `states` are the numbers of the sources of
    /// the new rows; `assigned` has one entry per fit, with one row per entry of `states`.
    pub(crate) fn new(model: KnownModel, states: &[u32], assigned: &[Assigned]) -> Lookup {
        let (mut sources, fits) = (model.sources, model.fits);
        let mut sets = Vec::with_capacity((sources.len() + states.len()) * fits.len());
        for j in 0..sources.len() {
            sets.extend(fits.iter().map(|fit| fit.affiliation[j]));
        }
        for (j, &state) in states.iter().enumerate() {
            let next = sources.len() as u32;
            if *sources.entry(state).or_insert(next) == next {
                sets.extend(assigned.iter().map(|fit| fit.states[j].affiliation));
            }
        }
        Lookup {
            sources,
            targets: model.targets,
            sets,
            fits,
        }
    }

    /// The sets of a source, one per fit. None for an unknown source.
    fn sets(&self, source: u32) -> Option<&[i32]> {
        let row = *self.sources.get(&source)? as usize;
        Some(&self.sets[row * self.fits.len()..][..self.fits.len()])
    }
}

/// Adds up the scores of trajectories, pair by pair.
pub(crate) struct Scorer {
    /// Index: partition × lags + lag. None if the model does not have the partition and lag.
    lookups: Arc<Vec<Option<Lookup>>>,
    n_lags: usize,
    n_fits: usize,
    /// Index: trajectory × lags + lag. Trajectories after the last one with a pair are missing.
    transitions: Vec<f64>,
    /// One entry per fit for each entry of `transitions`, row-major.
    fits: Vec<TrajectoryFit>,
}

impl Scorer {
    /// A scorer without any pair.
    pub(crate) fn new(lookups: &Arc<Vec<Option<Lookup>>>, n_lags: usize, n_fits: usize) -> Scorer {
        Scorer {
            lookups: Arc::clone(lookups),
            n_lags,
            n_fits,
            transitions: Vec::new(),
            fits: Vec::new(),
        }
    }

    fn lookup(&self, partition: u32, lag: usize) -> Option<&Lookup> {
        let at = partition as usize * self.n_lags + lag;
        self.lookups.get(at)?.as_ref()
    }
}

impl Sink for Scorer {
    fn pair(
        &mut self,
        trajectory: usize,
        partition: u32,
        lag: usize,
        source: Weighed,
        target: u32,
    ) {
        let at = trajectory * self.n_lags + lag;
        if at >= self.transitions.len() {
            let n = (trajectory + 1) * self.n_lags;
            self.transitions.resize(n, 0.0);
            self.fits.resize(n * self.n_fits, TrajectoryFit::default());
        }
        let slot = partition as usize * self.n_lags + lag;
        let Some(Some(lookup)) = self.lookups.get(slot) else {
            return;
        };
        let weight = source.weight;
        self.transitions[at] += weight;
        let target = lookup.targets.get(&target).map(|&i| i as usize);
        let sets = lookup.sets(source.state);
        let scores = &mut self.fits[at * self.n_fits..][..self.n_fits];
        for (f, (score, fit)) in scores.iter_mut().zip(&lookup.fits).enumerate() {
            let set = sets.and_then(|sets| usize::try_from(sets[f]).ok());
            let (Some(i), Some(k)) = (target, set) else {
                score.left_out += weight;
                continue;
            };
            match fit.log_latent[i * fit.rank + k] {
                f64::NEG_INFINITY => score.impossible += weight,
                log => {
                    score.log_likelihood += weight * log;
                    score.scored += weight;
                }
            }
        }
    }
}

/// The trajectories of a partition and their scores at one lag. Sums are divided by `overlap`.
/// Empty if the model does not have the partition and lag.
pub(crate) fn rows(
    followed: &Followed<Scorer>,
    partition: usize,
    lag: usize,
    overlap: u64,
) -> TrajectoryRows {
    let scorer = &followed.sink;
    let Some(lookup) = scorer.lookup(partition as u32, lag) else {
        return TrajectoryRows::default();
    };
    let first = followed
        .rows
        .partition_point(|row| (row.partition as usize) < partition);
    let end = followed
        .rows
        .partition_point(|row| row.partition as usize <= partition);
    let ends: Vec<FollowedRow> = followed.rows[first..end].to_vec();
    let slot = |row: &FollowedRow| row.trajectory * scorer.n_lags + lag;
    let by = overlap as f64;
    let of_fit = |f: usize| {
        let row = |row: &FollowedRow| {
            let sums = scorer.fits.get(slot(row) * scorer.n_fits + f);
            let sums = sums.copied().unwrap_or_default();
            TrajectoryFit {
                affiliation: lookup.sets(row.number).map_or(-1, |sets| sets[f]),
                log_likelihood: sums.log_likelihood / by,
                scored: sums.scored / by,
                left_out: sums.left_out / by,
                impossible: sums.impossible / by,
            }
        };
        ends.iter().map(row).collect()
    };
    let transitions = |row| scorer.transitions.get(slot(row)).map_or(0.0, |n| n / by);
    TrajectoryRows {
        transitions: ends.iter().map(transitions).collect(),
        fits: (0..scorer.n_fits).map(of_fit).collect(),
        ends,
    }
}
