//! Loops over resamples and over folds, for any evidence that is kept per group.

use crate::error::Result;
use crate::evidence::pass::Passes;
use crate::evidence::resample::{self, Resample, draw, train_and_test};
use crate::math::seed::restart_seed;
use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many resamples are drawn, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws {
    /// B.
    pub resamples: usize,
    /// Entries per shard of a resample.
    pub entries: usize,
    /// The seed of the draws.
    pub seed: u64,
}

/// Calls `refit` with bootstrap resamples and their seeds, each as a piece of work of its own, and
/// hands the results to `add` in order. `done` is called after each resample.
///
/// Resamples run in parallel, one per thread, and no more of them are in memory.
pub(crate) fn each_resample<G: Resample, T: Serialize + DeserializeOwned + Send>(
    passes: &Passes<'_>,
    groups: &G,
    draws: Draws,
    refit: &(dyn Fn(&Passes<'_>, G::Sample, u64) -> T + Sync),
    done: &(dyn Fn() + Sync),
    add: &mut dyn FnMut(T),
) {
    // Every resample of a single group is a copy of that group.
    let n = if groups.n_groups() < 2 {
        0
    } else {
        draws.resamples
    };
    for first in (0..n).step_by(rayon::current_num_threads()) {
        let at_once = first..n.min(first + rayon::current_num_threads());
        let refitted = at_once.into_par_iter().map(|b| {
            let refitted = passes.piece(&format!("resample-{b}"), |passes| {
                let seed = restart_seed(draws.seed, b);
                let weights = draw(groups.n_groups(), seed);
                refit(passes, groups.resample(&weights, draws.entries), seed)
            });
            done();
            refitted
        });
        refitted.collect::<Vec<_>>().into_iter().for_each(&mut *add);
    }
}

/// How many folds there are, and how groups are dealt to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folds {
    /// The number of folds, if there are as many groups.
    pub n: usize,
    /// Entries per shard of the evidence of a fold.
    pub entries: usize,
    /// The seed of the folds.
    pub seed: u64,
}

/// Takes the number of a fold, the evidence without it and the evidence of it.
type Validate<'a, G> =
    dyn FnMut(usize, &<G as Resample>::Sample, &<G as Resample>::Sample) -> Result<()> + 'a;

/// Calls `validate` for every fold with its number, the evidence without it and the evidence of it.
/// There are no more folds than groups.
///
/// # Errors
/// The first of `validate`.
pub(crate) fn each_fold<G: Resample>(
    groups: &G,
    folds: Folds,
    validate: &mut Validate<'_, G>,
) -> Result<()> {
    let n_folds = folds.n.min(groups.n_groups());
    let fold_of = resample::folds(groups.n_groups(), n_folds, folds.seed);
    for fold in 0..n_folds {
        let (train, test) = train_and_test(&fold_of, fold as u32);
        let train = groups.resample(&train, folds.entries);
        let test = groups.resample(&test, folds.entries);
        validate(fold, &train, &test)?;
    }
    Ok(())
}
