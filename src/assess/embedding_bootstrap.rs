//! The bootstrap of state embeddings: how much would singular values vary if other trajectories had
//! been observed?
//!
//! In: exact sums of products of features by group of trajectories. Out: for every singular value
//! of the embedding, and for the sum of their squares, mean, standard error and percentile interval
//! over resamples of the groups. Features and bandwidth stay those of the fit. Sums are integers,
//! so those of a resample are the sums of its groups, without rounding and in any order.

use crate::assess::bootstrap::{Number, ResampledNumbers};
use crate::assess::interval::Spread;
use crate::assess::resampling::{Draws, each_resample};
use crate::evidence::pass::Passes;
use crate::evidence::resample::Resample;
use crate::methods::state_embedding::grams::{GramSums, Grams};
use crate::methods::state_embedding::model::{Basis, functions};
use crate::methods::state_embedding::params::StateEmbedding;
use std::borrow::Borrow;

/// How many resamples there are, and how they are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resampling {
    /// B.
    pub resamples: usize,
    /// The probability with which an interval should contain the true value.
    pub confidence: f64,
    /// The seed of the draws.
    pub seed: u64,
}

/// The sums of groups at a lag.
struct Groups<'a, S> {
    sums: &'a [S],
    lag: usize,
}

impl<S: Borrow<GramSums> + Sync> Resample for Groups<'_, S> {
    type Sample = Option<Grams>;

    fn n_groups(&self) -> usize {
        self.sums.len()
    }

    fn resample(&self, weights: &[u32], _: usize) -> Option<Grams> {
        let mut all = self.sums.first()?.borrow().like();
        let drawn = self.sums.iter().zip(weights).filter(|(_, w)| **w > 0);
        for (sums, weight) in drawn {
            all.merge_times(sums.borrow(), *weight);
        }
        all.means(self.lag).ok()
    }
}

/// Resamples an embedding with these singular values, which has the rank of `params`. `groups` has
/// the sums of every group with pairs at the lag.
pub(crate) fn bootstrap<S: Borrow<GramSums> + Sync>(
    groups: &[S],
    lag: usize,
    basis: &Basis,
    params: &StateEmbedding,
    singular_values: &[f64],
    resampling: Resampling,
) -> ResampledNumbers {
    let rank = params.rank;
    let sums = Groups { sums: groups, lag };
    let draws = Draws {
        resamples: resampling.resamples,
        entries: 0,
        seed: resampling.seed,
    };
    let refit = |_: &Passes<'_>, means: Option<Grams>, _: u64| -> Option<Vec<f64>> {
        let (functions, _) = functions(&means?, basis, params).ok()?;
        let values = functions.singular_values();
        (values.len() >= rank).then(|| values[..rank].to_vec())
    };
    let mut resamples: Vec<Vec<f64>> = Vec::new();
    let mut add = |values: Option<Vec<f64>>| resamples.extend(values);
    each_resample(&Passes::local(), &sums, draws, &refit, &|| (), &mut add);
    let spread = |value: &dyn Fn(&[f64]) -> f64| {
        let values = resamples.iter().map(|values| value(values));
        Spread::of(values, resampling.confidence)
    };
    let mut numbers: Vec<Number> = (0..rank)
        .map(|k| Number {
            metric: "singular_value".into(),
            index: Some(k),
            value: singular_values.get(k).copied(),
            spread: spread(&|values| values[k]),
        })
        .collect();
    let squares = |values: &[f64]| values[..rank].iter().map(|s| s * s).sum();
    numbers.push(Number {
        metric: "vamp_2".into(),
        index: None,
        value: Some(squares(singular_values)),
        spread: spread(&squares),
    });
    ResampledNumbers {
        resamples: resamples.len(),
        groups: groups.len(),
        numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::state_embedding::features::Features;

    /// A chain of two states ±1 that are one coordinate of a point. The feature cos(ωx + b) takes
    /// two values, so the embedding has one function beside the constant.
    fn basis() -> Basis {
        let features = Features::new(1, &[0.0, 1.0], &[0.0, 0.5]);
        Basis {
            features,
            metric: None,
            bandwidth: 1.0,
            bounds: None,
        }
    }

    /// `counts` are the numbers of pairs between both states, row-major.
    fn group(basis: &Basis, counts: [usize; 4]) -> GramSums {
        let mut values = Vec::new();
        basis.features.evaluate_rounded(&[-1.0, 1.0], &mut values);
        let pairs: Vec<(u32, u32)> = (0..4)
            .flat_map(|at| vec![(at as u32 / 2, at as u32 % 2); counts[at]])
            .collect();
        let mut sums = GramSums::new(2, 1, None);
        sums.add(&values, None, &[&pairs]);
        sums
    }

    // [ 9 1 ; 1 9 ] has σ = .8, [ 8 2 ; 2 8 ] has σ = .6, and both together have .7. They are a
    // quarter, a quarter and a half of the resamples.
    #[test]
    fn a_resample_has_the_singular_values_of_its_pairs() {
        let basis = basis();
        let groups = [group(&basis, [9, 1, 1, 9]), group(&basis, [8, 2, 2, 8])];
        let params = StateEmbedding::new(2);
        let resampling = Resampling {
            resamples: 400,
            confidence: 0.9,
            seed: 3,
        };
        let found = bootstrap(&groups, 0, &basis, &params, &[1.0, 0.7], resampling);
        assert_eq!((found.resamples, found.groups), (400, 2));
        let spread = |at: usize| found.numbers[at].spread.expect("two resamples");
        assert!((spread(0).mean - 1.0).abs() < 1e-9 && spread(0).standard_error < 1e-9);
        let second = spread(1);
        assert!((second.low - 0.6).abs() < 1e-6 && (second.high - 0.8).abs() < 1e-6);
        assert!((second.mean - 0.7).abs() < 0.01, "{second:?}");
        // √(.1²/2)
        assert!((second.standard_error - 0.0707).abs() < 0.006, "{second:?}");
        assert_eq!(found.numbers[2].value, Some(1.0 + 0.7 * 0.7));
        assert!((spread(2).high - 1.64).abs() < 1e-5);

        let alone = bootstrap(&groups[..1], 0, &basis, &params, &[1.0, 0.8], resampling);
        assert_eq!((alone.resamples, alone.groups), (0, 1));
        assert!(alone.numbers.iter().all(|number| number.spread.is_none()));
    }
}
