//! Bandwidths and λ: given, by median distances, or by training rows that are held out.
//!
//! Candidates are fitted to the first rows of training data and filter the last ones, whose states
//! are known. The candidate with the smallest squared error of the means is chosen; of equal ones,
//! that with the largest log score. If it is at an end of the candidates, others beyond this end are
//! compared, too. Rows of a split `test` are never used.

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

/// How often candidates are added beyond an end.
const EXTENSIONS: usize = 4;

/// The factor between a bandwidth at an end and the next one beyond it.
const BANDWIDTH_STEP: f64 = 2.0;

/// The factor between λ at an end and the next one beyond it.
const LAMBDA_STEP: f64 = 10.0;

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
    /// Ascending. A single one is given, and no other is compared.
    factors: Vec<f64>,
    /// Descending. A single one is given, and no other is compared.
    lambdas: Vec<f64>,
}

/// The place of a candidate in the grid.
#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    factor: f64,
    lambda: f64,
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
    let mut grid = Grid::new(params, input.rows, training, seed)?;
    let mut chosen = Chosen {
        values: grid.default(),
        tuning: Vec::new(),
        warnings: Vec::new(),
    };
    if grid.candidates().len() == 1 {
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
    let scored = |candidates: Vec<Candidate>, grid: &Grid| -> Result<Vec<(Candidate, Tuned)>> {
        let scored = candidates.into_par_iter().map(|one| {
            let values = grid.values(one);
            let tuned = score(&params, input, &own, &fitted, &held_out, values, seed)?;
            Ok((one, tuned))
        });
        scored.collect()
    };
    let mut compared = scored(grid.candidates(), &grid)?;
    let mut best = best_of(&compared);
    for _ in 0..EXTENSIONS {
        if !grid.extend(&compared, best) {
            break;
        }
        let known = |one: &Candidate| compared.iter().any(|(other, _)| other == one);
        let more = grid.candidates().into_iter().filter(|one| !known(one));
        compared.extend(scored(more.collect(), &grid)?);
        compared.sort_by(|(a, _), (b, _)| {
            let by_lambda = b.lambda.total_cmp(&a.lambda);
            a.factor.total_cmp(&b.factor).then(by_lambda)
        });
        best = best_of(&compared);
    }
    compared[best].1.is_chosen = true;
    chosen.values = grid.values(compared[best].0);
    chosen.tuning = compared.into_iter().map(|(_, tuned)| tuned).collect();
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
            (Kernel::Delta, _) => (1.0, 1.0, vec![1.0]),
            (Kernel::Rbf, Bandwidth::Values(own)) => (own.state, own.observation, vec![1.0]),
            (Kernel::Rbf, Bandwidth::Rule(rule)) => {
                let observations = &training.observations;
                (
                    median(&training.states, rows.state_width, "state")?,
                    median(observations, rows.observation_width, "observation")?,
                    match rule {
                        BandwidthRule::Median => vec![1.0],
                        BandwidthRule::HeldOut => BANDWIDTH_FACTORS.to_vec(),
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

    fn values(&self, candidate: Candidate) -> Values {
        let Candidate { factor, lambda } = candidate;
        Values {
            state: factor * self.state,
            observation: factor * self.observation,
            lambda,
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let factors = self.factors.iter();
        let candidates = factors.flat_map(|&factor| {
            let lambdas = self.lambdas.iter();
            lambdas.map(move |&lambda| Candidate { factor, lambda })
        });
        candidates.collect()
    }

    /// Adds a factor or a λ beyond each end at which the best candidate is, if its error is below
    /// that of the candidate beside it. Says whether there is one.
    fn extend(&mut self, compared: &[(Candidate, Tuned)], best: usize) -> bool {
        let (at, leader) = &compared[best];
        let is_better = |beside: Candidate| {
            let found = compared.iter().find(|(other, _)| *other == beside);
            found.is_some_and(|(_, other)| leader.mse < other.mse || other.mse.is_nan())
        };
        let factor = beyond(&self.factors, at.factor, BANDWIDTH_STEP).filter(|(beside, _)| {
            is_better(Candidate {
                factor: *beside,
                ..*at
            })
        });
        let lambda = beyond(&self.lambdas, at.lambda, LAMBDA_STEP).filter(|(beside, _)| {
            is_better(Candidate {
                lambda: *beside,
                ..*at
            })
        });
        if let Some((_, next)) = factor {
            self.factors.push(next);
            self.factors.sort_by(f64::total_cmp);
        }
        if let Some((_, next)) = lambda {
            self.lambdas.push(next);
            self.lambdas.sort_by(|a, b| b.total_cmp(a));
        }
        factor.is_some() || lambda.is_some()
    }

    /// The only candidate, or what is used if no rows can choose one.
    fn default(&self) -> Values {
        let factor = if self.factors.len() > 1 { 0.5 } else { 1.0 };
        let lambda = match self.lambdas[..] {
            [lambda] => lambda,
            _ => LAMBDA,
        };
        self.values(Candidate { factor, lambda })
    }
}

/// The value beside `value` and the next one beyond it, if `value` is the first or the last of
/// several sorted values.
fn beyond(sorted: &[f64], value: f64, step: f64) -> Option<(f64, f64)> {
    let beside = match sorted {
        [first, beside, ..] if *first == value => *beside,
        [.., beside, last] if *last == value => *beside,
        _ => return None,
    };
    let next = if beside < value {
        value * step
    } else {
        value / step
    };
    Some((beside, next))
}

/// The candidate with the smallest error; of equal ones, that with the largest log score.
fn best_of(compared: &[(Candidate, Tuned)]) -> usize {
    let mut best = 0;
    for (at, (_, one)) in compared.iter().enumerate() {
        let leader = &compared[best].1;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            state: 2.0,
            observation: 3.0,
            factors: vec![0.5, 1.0],
            lambdas: vec![0.1, 0.01],
        }
    }

    /// Candidates of a grid with an error that is smallest at a factor and a λ.
    fn compared(grid: &Grid, least: [f64; 2]) -> Vec<(Candidate, Tuned)> {
        let error = |one: &Candidate| {
            (one.factor / least[0]).log2().powi(2) + (one.lambda / least[1]).log10().powi(2)
        };
        let tuned = |one: Candidate| {
            let values = grid.values(one);
            let tuned = Tuned {
                state_bandwidth: values.state,
                observation_bandwidth: values.observation,
                lambda: values.lambda,
                mse: error(&one),
                mean_log_score: 0.0,
                is_chosen: false,
            };
            (one, tuned)
        };
        grid.candidates().into_iter().map(tuned).collect()
    }

    #[test]
    fn candidates_are_added_beyond_the_ends_at_which_the_best_is() {
        // The smallest error is at a factor of 2 and λ = .01, then of 4 at most.
        let mut own = grid();
        let scored = compared(&own, [2.0, 0.01]);
        assert!(own.extend(&scored, best_of(&scored)));
        assert_eq!(own.factors, [0.5, 1.0, 2.0]);
        assert_eq!(own.lambdas, [0.1, 0.01, 0.01 / 10.0]);
        let scored = compared(&own, [2.0, 0.01]);
        let (best, _) = scored[best_of(&scored)];
        assert_eq!([best.factor, best.lambda], [2.0, 0.01]);
        assert!(own.extend(&scored, best_of(&scored)));
        // λ has values at both sides now.
        assert_eq!((own.factors.len(), own.lambdas.len()), (4, 3));
        let scored = compared(&own, [2.0, 0.01]);
        assert!(!own.extend(&scored, best_of(&scored)));
    }

    #[test]
    fn given_constants_and_equal_errors_add_no_candidate() {
        let mut own = grid();
        own.factors = vec![1.0];
        let mut scored = compared(&own, [2.0, 10.0]);
        for (_, tuned) in &mut scored {
            tuned.mse = 1.0;
        }
        assert!(!own.extend(&scored, best_of(&scored)));
        let scored = compared(&own, [2.0, 10.0]);
        assert!(own.extend(&scored, best_of(&scored)));
        assert_eq!(
            (own.factors, own.lambdas),
            (vec![1.0], vec![1.0, 0.1, 0.01])
        );
    }
}
