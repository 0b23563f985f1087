//! The models of all lags → Markov tests of the sets of each fit: implied timescales and
//! Chapman-Kolmogorov tests.
//!
//! The sets of a fit belong to its lag τ. The tests count the transitions between the same sets at
//! every lag kτ of the run. They need all models of a partition and run after the fits.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::markov::{ChapmanKolmogorov, Markov, coarse_counts, timescales};
use crate::evidence::counts::totals::Totals;
use crate::evidence::lag::Lag;
use crate::evidence::pass::Passes;
use crate::evidence::pass::kernel::Sharded;
use crate::methods::fit::Fit;
use crate::output::tables::fitted_model::FittedModel;
use rayon::prelude::*;

/// Tests every fit of every model. Models are ordered by partition, and their sources and targets
/// have common state ids. `lags` has the lags of the run. It is empty for pairs, whose lag is 1.
pub(crate) fn test(models: &mut [FittedModel], lags: &[Lag]) {
    let tested: Vec<Vec<Markov>> = models
        .par_iter()
        .map(|model| {
            let others = |other: &&FittedModel| other.counts.partition == model.counts.partition;
            let others: Vec<(u64, &FittedModel)> = models
                .iter()
                .filter(others)
                .filter_map(|other| {
                    let (own, longer) = (lags.get(model.counts.lag)?, lags.get(other.counts.lag)?);
                    Some((longer.in_steps_of(own).filter(|&k| k > 1)?, other))
                })
                .collect();
            let lag = lags.get(model.counts.lag).map_or(1.0, Lag::number);
            let fits = model.fits.iter().enumerate();
            let of_fit = |(at, fit)| of_fit(model, fit, model.bootstraps.get(at), lag, &others);
            fits.map(of_fit).collect()
        })
        .collect();
    for (model, tested) in models.iter_mut().zip(tested) {
        model.markov = tested;
    }
}

fn of_fit(
    model: &FittedModel,
    fit: &Fit,
    bootstrap: Option<&Bootstrap>,
    lag: f64,
    others: &[(u64, &FittedModel)],
) -> Markov {
    let low_rank = &fit.model;
    let rank = low_rank.rank;
    let counts = |at: &FittedModel| {
        let (states, sets) = (&model.counts.source_states, &low_rank.sources.affiliation);
        let sources = sets_of(&at.counts.source_states, states, sets);
        let targets = sets_of(&at.counts.target_states, states, sets);
        coarse_counts(
            &Passes::local(),
            Sharded {
                shards: &at.counts.by_source,
                totals: Totals::UNKNOWN,
            },
            &sources,
            &targets,
            rank,
        )
    };
    let own = counts(model);
    let mut comparisons: Vec<ChapmanKolmogorov> = others
        .iter()
        .map(|&(steps, other)| ChapmanKolmogorov::new(steps, &own, &counts(other), rank))
        .collect();
    comparisons.sort_by_key(|c| c.steps);
    let timescales = timescales(&own, rank, lag);
    let interval = |at| bootstrap.and_then(|b| b.timescales.get(at).copied());
    Markov {
        intervals: (0..timescales.len())
            .map(|at| interval(at).unwrap_or_default())
            .collect(),
        timescales,
        comparisons,
    }
}

/// The sets of the states `ids`, given the sets of `states`; −1 for a state that is not in
/// `states`. Both lists ascend.
fn sets_of(ids: &[u32], states: &[u32], sets: &[i32]) -> Vec<i32> {
    let mut at = 0;
    ids.iter()
        .map(|id| {
            while states.get(at).is_some_and(|state| state < id) {
                at += 1;
            }
            let found = states.get(at) == Some(id);
            if found { sets[at] } else { -1 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_were_not_fitted_have_no_set() {
        assert_eq!(
            sets_of(&[1, 3, 4, 9], &[0, 1, 4], &[5, 6, 7]),
            [6, -1, 7, -1]
        );
    }
}
