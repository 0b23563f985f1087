//! Recovery of transition and emission probabilities, and the Baum–Welch algorithm.

use super::*;
use crate::math::testing::says;
use crate::methods::hmm::baum_welch::{Refined, climb, random_start, recovered_hidden, refine};
use crate::methods::hmm::filtering::Filter;
use crate::methods::hmm::model::{UNSEEN, Warning};

/// Sequences of different lengths, one of which is longer than a block of the forward pass, with
/// missing observations.
fn ragged(world: &Hidden) -> Symbols {
    let mut sequences = Symbols::new(world.symbols());
    for (length, seed) in [(1, 1), (2, 2), (9_001, 3), (0, 4), (50, 5)] {
        let mut symbols = sample(world, 1, length, seed).symbols;
        if let Some(symbol) = symbols.get_mut(20) {
            *symbol = UNSEEN;
        }
        sequences.push(&symbols);
    }
    sequences
}

/// One iteration by Rabiner (1989), (37) to (40), step by step: the log-likelihood and the new
/// parameters. Unseen symbols are missing observations.
fn iteration_by_hand(hidden: &Hidden, sequences: &Symbols) -> (f64, Hidden) {
    let (m, n) = (hidden.states(), hidden.symbols());
    let t = |to: usize, from: usize| hidden.transition[to * m + from];
    let o = |x: u32, j: usize| match x {
        UNSEEN => 1.0,
        _ => hidden.emission[x as usize * m + j],
    };
    let mut log_likelihood = 0.0;
    let mut initial = vec![0.0; m];
    let mut pairs = vec![0.0; m * m];
    let mut emission = vec![0.0; n * m];
    for symbols in sequences.iter().filter(|symbols| !symbols.is_empty()) {
        let mut alphas: Vec<Vec<f64>> = Vec::new();
        let mut scales = Vec::new();
        let mut predicted = hidden.initial.clone();
        for &x in symbols {
            let joint: Vec<f64> = (0..m).map(|j| predicted[j] * o(x, j)).collect();
            let scale: f64 = joint.iter().sum();
            log_likelihood += scale.ln();
            let alpha: Vec<f64> = joint.iter().map(|a| a / scale).collect();
            predicted = (0..m)
                .map(|i| (0..m).map(|j| t(i, j) * alpha[j]).sum())
                .collect();
            alphas.push(alpha);
            scales.push(scale);
        }
        let mut beta = vec![1.0; m];
        for at in (0..symbols.len()).rev() {
            let x = symbols[at];
            for j in 0..m {
                let posterior = alphas[at][j] * beta[j];
                if at == 0 {
                    initial[j] += posterior;
                }
                if x != UNSEEN {
                    emission[x as usize * m + j] += posterior;
                }
            }
            let message: Vec<f64> = (0..m).map(|j| o(x, j) * beta[j] / scales[at]).collect();
            if at > 0 {
                for i in 0..m {
                    for j in 0..m {
                        pairs[i * m + j] += alphas[at - 1][j] * t(i, j) * message[i];
                    }
                }
            }
            beta = (0..m)
                .map(|j| (0..m).map(|i| t(i, j) * message[i]).sum())
                .collect();
        }
    }
    let normalise = |entries: &mut [f64], columns: usize| {
        for j in 0..columns {
            let sum: f64 = entries.iter().skip(j).step_by(columns).sum();
            let column = entries.iter_mut().skip(j).step_by(columns);
            column.for_each(|x| *x /= sum);
        }
    };
    normalise(&mut initial, 1);
    normalise(&mut pairs, m);
    normalise(&mut emission, m);
    let next = Hidden {
        initial,
        transition: pairs,
        emission,
    };
    (log_likelihood, next)
}

#[test]
fn iterations_and_log_likelihoods_are_those_of_rabiner() {
    for (m, n) in [(1, 3), (2, 3), (5, 7), (9, 10)] {
        let world = random_hidden(m, n, 0.4, 50 + m as u64);
        let sequences = ragged(&world);
        let start = random_hidden(m, n, 0.2, 60);
        let (log_likelihood, expected) = iteration_by_hand(&start, &sequences);
        let scale = log_likelihood.abs();
        let own = start.log_likelihood(&sequences);
        assert_close(own, log_likelihood, 1e-12 * scale);
        let climb = climb(start, &sequences, 1, 0.0);
        assert_close(climb.trace[0], log_likelihood, 1e-12 * scale);
        let after = expected.log_likelihood(&sequences);
        assert_close(climb.trace[1], after, 1e-11 * scale);
        let lists = [
            (&climb.hidden.initial, &expected.initial),
            (&climb.hidden.transition, &expected.transition),
            (&climb.hidden.emission, &expected.emission),
        ];
        for (own, expected) in lists {
            for (a, b) in own.iter().zip(expected) {
                assert_close(*a, *b, 1e-11);
            }
        }
    }
}

// The probability of a sequence by the operators A_x = T diag(O_x) (1), by the forward algorithm
// and by the filter.
#[test]
fn hidden_models_are_operators() {
    let world = random_hidden(3, 4, 0.4, 70);
    let mut sequences = Symbols::new(4);
    sequences.push(&[0, 3, 2, 2, 1, 0]);
    let model = world.model(vec![0.25; 4]);
    let expected = exact(&world, sequences.get(0));
    assert_close(model.probability(sequences.get(0)), expected, 1e-16);
    assert_close(world.log_likelihood(&sequences), expected.ln(), 1e-13);
    let filter = Filter::new(&model, 0.0, 1e-12);
    assert_close(
        filter.total(&sequences).log_likelihood,
        expected.ln(),
        1e-13,
    );
}

// A weight counts as often as its sequence is repeated, and its scale changes no bit.
#[test]
fn weights_are_repetitions_in_any_unit() {
    let world = random_hidden(3, 5, 0.4, 75);
    let once = sample(&world, 20, 40, 76);
    let weighted = |unit: f64| {
        let mut all = Symbols::new(5);
        for (s, symbols) in once.iter().enumerate() {
            all.push_weighted(symbols, Some((1 + s % 3) as f64 * unit));
        }
        all.in_own_unit()
    };
    let mut repeated = Symbols::new(5);
    for (s, symbols) in once.iter().enumerate() {
        (0..1 + s % 3).for_each(|_| repeated.push(symbols));
    }
    let params = SpectralHmm {
        tol: 6e-5,
        ..SpectralHmm::new(3)
    };
    let projection = projection(Scaling::Cca, 3, &windows(&repeated));
    let fit = |sequences: &Symbols| refine(&params, &projection, 3, sequences, 1).expect("a fit");
    let (own, other) = (fit(&weighted(1.0)), fit(&repeated));
    assert_eq!(own.trace.len(), other.trace.len());
    assert!(own.converged && own.trace.len() > 3, "{:?}", own.trace);
    let hidden = |refined: &Refined| refined.model.hidden.clone().expect("hidden states");
    let (a, b) = (hidden(&own), hidden(&other));
    for (a, b) in [
        (&a.initial, &b.initial),
        (&a.transition, &b.transition),
        (&a.emission, &b.emission),
    ] {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12));
    }
    for power in [-1020, -3, 1, 1000] {
        let unit = 2f64.powi(power);
        let scaled = fit(&weighted(unit));
        assert_eq!(scaled.model, own.model);
        let trace = own.trace.iter().map(|l| l * unit);
        assert!(scaled.trace.iter().copied().eq(trace), "2^{power}");
    }
}

#[test]
fn the_likelihood_never_falls() {
    for seed in 0..4 {
        let world = random_hidden(4, 12, 0.3, 80 + seed);
        let sequences = sample(&world, 30, 80, seed);
        let projection = projection(Scaling::Cca, 4, &windows(&sequences));
        let params = SpectralHmm {
            tol: 0.0,
            n_iter: 60,
            ..SpectralHmm::new(4)
        };
        let refined = refine(&params, &projection, 4, &sequences, seed).expect("a fit");
        let starts = random_start(4, &refined.model.unigram, seed);
        let random = climb(starts, &sequences, 60, 0.0);
        for trace in [&refined.trace, &random.trace] {
            for pair in trace.windows(2) {
                assert!(pair[1] >= pair[0] - 1e-9 * pair[0].abs(), "{pair:?}");
            }
        }
        let hidden = refined.model.hidden.as_ref().expect("a refined model");
        let last = *refined.trace.last().expect("a trace");
        assert_close(hidden.log_likelihood(&sequences), last, 1e-9 * last.abs());
    }
}

// Twenty iterations from the spectral seed, against five random starts with 100 iterations each.
#[test]
fn the_spectral_seed_beats_random_starts_held_out() {
    let world = random_hidden(6, 20, 0.85, 90);
    let sequences = sample(&world, 100, 200, 91);
    let held_out = sample(&world, 100, 100, 92);
    let projection = projection(Scaling::Cca, 6, &windows(&sequences));
    let params = SpectralHmm {
        n_iter: 20,
        ..SpectralHmm::new(6)
    };
    let refined = refine(&params, &projection, 6, &sequences, 1).expect("a fit");
    assert!(!refined.warnings.contains(&Warning::NotRecovered));
    let own = refined.model.hidden.as_ref().expect("a refined model");
    let own = own.log_likelihood(&held_out);
    let random = (0..5).map(|seed| {
        let start = random_start(6, &refined.model.unigram, seed);
        climb(start, &sequences, 100, 1e-7)
            .hidden
            .log_likelihood(&held_out)
    });
    let best = random.fold(f64::NEG_INFINITY, f64::max);
    assert!(own >= best, "{own} {best}");
    // No model is better than the truth by more than chance.
    assert!(own < world.log_likelihood(&held_out) + 20.0);
}

// Anandkumar, Hsu, Kakade 2012: with exact moments and k = m, T, O and π are recovered up to the
// order of the states.
#[test]
fn hidden_states_are_recovered_from_exact_moments() {
    for scaling in BOTH {
        for seed in 0..4 {
            let world = random_hidden(3, 5, 0.5, 95 + seed);
            let model = fitted(scaling, 3, &world, 1);
            let found = recovered_hidden(&model, seed).expect("hidden states");
            let column = |j: usize, of: &Hidden| -> Vec<f64> {
                of.emission.iter().copied().skip(j).step_by(3).collect()
            };
            let order: Vec<usize> = (0..3)
                .map(|j| {
                    let own = column(j, &world);
                    let gap = |i: &usize| -> f64 {
                        let other = column(*i, &found);
                        own.iter().zip(other).map(|(a, b)| (a - b).abs()).sum()
                    };
                    let best = (0..3).min_by(|a, b| gap(a).total_cmp(&gap(b)));
                    let best = best.expect("a state");
                    assert!(gap(&best) < 1e-8, "{}", gap(&best));
                    best
                })
                .collect();
            for i in 0..3 {
                assert_close(found.initial[order[i]], world.initial[i], 1e-8);
                for j in 0..3 {
                    let own = world.transition[i * 3 + j];
                    let other = found.transition[order[i] * 3 + order[j]];
                    assert_close(own, other, 1e-8);
                }
            }
        }
    }
}

// Pooled symbols: their recovered emission probabilities are those of the pool times their shares.
#[test]
fn recovery_divides_the_pool() {
    let world = random_hidden(2, 3, 0.6, 99);
    let whole = exact_triples(&world, 1);
    let halves = |x: u32| if x == 2 { vec![2, 3] } else { vec![x] };
    let mut list = Vec::new();
    for (a, x, c, weight) in whole.iter() {
        for (a, x, c) in halves(a)
            .into_iter()
            .flat_map(|a| halves(x).into_iter().map(move |x| (a, x)))
            .flat_map(|(a, x)| halves(c).into_iter().map(move |c| (a, x, c)))
        {
            let split = [a, x, c].iter().filter(|x| **x >= 2).count();
            list.push((a, x, c, 1e3 * weight * 0.5_f64.powi(split as i32)));
        }
    }
    let triples = Triples::new(1, 4, Triples::symbols_as_words(4), list);
    let rare: Vec<f64> = whole
        .iter()
        .filter(|(_, x, _, _)| *x == 2)
        .map(|(_, _, _, weight)| weight)
        .collect();
    // Above the count of one half, below those of symbols 0 and 1.
    let min_count = (1e3 * 0.5 * rare.iter().sum::<f64>()).ceil() as usize + 1;
    let params = SpectralHmm {
        min_count,
        ..SpectralHmm::new(2)
    };
    let projection = project(&params, 2, &triples, &Passes::local(), 7).expect("a projection");
    let model = projection.into_model(2).expect("a rank");
    assert_eq!(model.n_classes(), 3);
    let found = recovered_hidden(&model, 1).expect("hidden states");
    for j in 0..2 {
        assert_close(found.emission[4 + j], found.emission[6 + j], 1e-9);
        let sum: f64 = (0..4).map(|x| found.emission[x * 2 + j]).sum();
        assert_close(sum, 1.0, 1e-12);
    }
}

#[test]
fn more_hidden_states_than_the_largest_number_are_an_error() {
    let world = random_hidden(130, 140, 0.9, 7);
    let sequences = sample(&world, 100, 300, 8);
    let projection = projection(Scaling::Cca, 129, &windows(&sequences));
    let e = refine(&SpectralHmm::new(129), &projection, 129, &sequences, 1);
    let e = e.expect_err("too many states");
    says(e.full(), "at most 128 hidden states, not 129");
}
