//! Bandwidths and λ: given, by median distances, or by training rows that are held out.
//!
//! Candidates are fitted to the first rows of training data and filter the last ones, whose states
//! are known. The candidate with the smallest squared error of the means is chosen; of equal ones,
//! that with the largest log score. Rows of a split `test` are never used.

use crate::error::{Error, Result};
use crate::evidence::observations::Observations;
use crate::methods::filter::fit::{Estimates, FitInput, Tuned};
use crate::methods::filter::kernel_bayes::build::{Training, Values, model_of};
use crate::methods::filter::kernel_bayes::kernel::median_distance;
use crate::methods::filter::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, Kernel, KernelBayes, LAMBDAS, Regularisation, Rule,
};
use rayon::prelude::*;

/// The largest number of rows that candidates are fitted to and scored by.
const ROWS: usize = 1250;

/// One row of this number is held out.
const SHARE: usize = 5;

/// Fewer rows choose nothing.
const FEWEST: usize = 20;

/// λ if there are too few rows to choose it.
const LAMBDA: f64 = 1e-3;

/// What was chosen, and from which candidates.
pub(super) struct Chosen {
    pub(super) values: Values,
    pub(super) tuning: Vec<Tuned>,
    pub(super) warnings: Vec<String>,
}

/// The candidates: bandwidths times each factor, with each λ.
struct Grid {
    state: f64,
    observation: f64,
    factors: &'static [f64],
    lambdas: Vec<f64>,
}

/// Chooses the constants.
///
/// # Errors
/// If a median distance is wanted, and all states or all observations are equal.
pub(super) fn choose_constants(
    params: &KernelBayes,
    input: &FitInput<'_>,
    training: &Training,
    seed: u64,
) -> Result<Chosen> {
    let grid = Grid::new(params, input.rows, training, seed)?;
    let mut chosen = Chosen {
        values: grid.default(),
        tuning: Vec::new(),
        warnings: Vec::new(),
    };
    let candidates = grid.candidates();
    if candidates.len() == 1 {
        return Ok(chosen);
    }
    let Some((fitted, held_out)) = split(input.rows, input.is_static) else {
        chosen.warnings.push(format!(
            "there are fewer than {FEWEST} training rows to choose bandwidths and lambda by; give both as numbers"
        ));
        return Ok(chosen);
    };
    let rule = match params.rule {
        // Supervision is of the rows that are filtered.
        Rule::Kregbayes => Rule::Pkbr,
        rule => rule,
    };
    let params = KernelBayes {
        rule,
        objective: false,
        ..params.clone()
    };
    let own = Training::new(&fitted, input.is_static);
    let mut tuning: Vec<Tuned> = candidates
        .par_iter()
        .map(|&values| score(&params, input, &own, &fitted, &held_out, values, seed))
        .collect::<Result<_>>()?;
    let best = best_of(&tuning);
    tuning[best].is_chosen = true;
    chosen.values = candidates[best];
    chosen.tuning = tuning;
    Ok(chosen)
}

impl Grid {
    fn new(
        params: &KernelBayes,
        rows: &Observations,
        training: &Training,
        seed: u64,
    ) -> Result<Grid> {
        let median = |points: &[f64], width: usize, what: &str| {
            let found = median_distance(points, width, seed);
            found.ok_or_else(|| {
                Error::input(format!(
                    "all {what}s of the training rows are equal, so they have no median distance; give `bandwidth` numbers, or leave the {what} out"
                ))
            })
        };
        let (state, observation, factors) = match (params.kernel, params.bandwidth) {
            (Kernel::Delta, _) => (1.0, 1.0, &[1.0][..]),
            (Kernel::Rbf, Bandwidth::Values(own)) => (own.state, own.observation, &[1.0][..]),
            (Kernel::Rbf, Bandwidth::Rule(rule)) => {
                let observations = &training.observations;
                (
                    median(&training.states, rows.state_width, "state")?,
                    median(observations, rows.observation_width, "observation")?,
                    match rule {
                        BandwidthRule::Median => &[1.0][..],
                        BandwidthRule::HeldOut => &BANDWIDTH_FACTORS[..],
                    },
                )
            }
        };
        Ok(Grid {
            state,
            observation,
            factors,
            lambdas: match params.lambda {
                Regularisation::Value(lambda) => vec![lambda],
                Regularisation::Rule(_) => LAMBDAS.to_vec(),
            },
        })
    }

    fn values(&self, factor: f64, lambda: f64) -> Values {
        Values {
            state: factor * self.state,
            observation: factor * self.observation,
            lambda,
        }
    }

    fn candidates(&self) -> Vec<Values> {
        let factors = self.factors.iter();
        factors
            .flat_map(|&factor| self.lambdas.iter().map(move |&lambda| (factor, lambda)))
            .map(|(factor, lambda)| self.values(factor, lambda))
            .collect()
    }

    /// The only candidate, or what is used if no rows can choose one.
    fn default(&self) -> Values {
        let factor = if self.factors.len() > 1 { 0.5 } else { 1.0 };
        let lambda = match self.lambdas[..] {
            [lambda] => lambda,
            _ => LAMBDA,
        };
        self.values(factor, lambda)
    }
}

/// The candidate with the smallest error; of equal ones, that with the largest log score.
fn best_of(tuning: &[Tuned]) -> usize {
    let mut best = 0;
    for (at, one) in tuning.iter().enumerate() {
        let leader = &tuning[best];
        let is_better = one.mse < leader.mse
            || (one.mse == leader.mse && one.mean_log_score > leader.mean_log_score)
            || leader.mse.is_nan();
        if is_better && !one.mse.is_nan() {
            best = at;
        }
    }
    best
}

/// The rows that candidates are fitted to, and those that score them: the last fifth of the
/// sequences, or of each sequence if there are few. None if there are too few rows.
fn split(rows: &Observations, is_static: bool) -> Option<(Observations, Observations)> {
    let mut fitted = Observations::new(rows.state_width, rows.observation_width);
    let mut held_out = fitted.clone();
    let n = rows.len();
    if n < FEWEST {
        return None;
    }
    let copy = |to: &mut Observations, from: usize, until: usize| {
        if from < until {
            to.push(
                &rows.states[from * rows.state_width..until * rows.state_width],
                &rows.observations[from * rows.observation_width..until * rows.observation_width],
            );
        }
    };
    // The last rows, if there are more than the candidates need.
    let first_row = n.saturating_sub(ROWS);
    let sequences: Vec<(usize, usize)> = rows
        .offsets
        .windows(2)
        .map(|pair| (pair[0].max(first_row), pair[1]))
        .filter(|(start, end)| start < end)
        .collect();
    if sequences.len() >= SHARE {
        // Rows of the last sequences, a fifth of all.
        let enough = (n - first_row) / SHARE;
        let mut last = 0;
        let mut from = sequences.len();
        while from > 1 && last < enough {
            from -= 1;
            last += sequences[from].1 - sequences[from].0;
        }
        for (at, &(start, end)) in sequences.iter().enumerate() {
            copy(
                if at < from {
                    &mut fitted
                } else {
                    &mut held_out
                },
                start,
                end,
            );
        }
    } else {
        for (start, end) in sequences {
            let middle = end - (end - start) / SHARE;
            copy(&mut fitted, start, middle);
            copy(&mut held_out, middle, end);
        }
    }
    let can_fit = if is_static {
        !fitted.is_empty()
    } else {
        fitted.n_transitions() > 1
    };
    (can_fit && !held_out.is_empty()).then_some((fitted, held_out))
}

/// The scores of a candidate.
fn score(
    params: &KernelBayes,
    input: &FitInput<'_>,
    training: &Training,
    fitted: &Observations,
    held_out: &Observations,
    values: Values,
    seed: u64,
) -> Result<Tuned> {
    let input = FitInput {
        rows: fitted,
        supervision: None,
        ..*input
    };
    let model = model_of(params, &input, training, values, seed)?.model;
    let mut out = Estimates::new(fitted.state_width);
    let mut scratch = model.scratch();
    for s in 0..held_out.n_sequences() {
        let (start, end) = (held_out.offsets[s], held_out.offsets[s + 1]);
        let d = held_out.observation_width;
        let mut state = model.start();
        let own = &held_out.observations[start * d..end * d];
        model.push(&mut state, &mut scratch, own, &|_| None, &mut out);
    }
    let squares = out.mean.iter().zip(&held_out.states);
    let sum: f64 = squares.map(|(a, b)| (a - b) * (a - b)).sum();
    let scores = out.log_score.iter().filter(|score| score.is_finite());
    let (total, n) = scores.fold((0.0, 0), |(sum, n), score| (sum + score, n + 1));
    Ok(Tuned {
        state_bandwidth: values.state,
        observation_bandwidth: values.observation,
        lambda: values.lambda,
        mse: sum / held_out.len().max(1) as f64,
        mean_log_score: if n > 0 {
            total / f64::from(n)
        } else {
            f64::NAN
        },
        is_chosen: false,
    })
}
