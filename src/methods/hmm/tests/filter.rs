//! Filters: next-symbol probabilities, resets and the most likely symbol.

use super::*;
use crate::methods::hmm::filtering::{Filter, Scores};
use crate::methods::hmm::model::UNSEEN;

// With k = m and exact moments, the filter is the forward algorithm (Rabiner 1989).
#[test]
fn filter_is_the_forward_algorithm() {
    for scaling in BOTH {
        for seed in 0..3 {
            let world = random_hidden(3, 5, 0.5, 30 + seed);
            let model = fitted(scaling, 3, &world, 1);
            let filter = Filter::new(&model, 0.0, 1e-15).with_next().with_states();
            let sequences = sample(&world, 3, 40, seed);
            for symbols in sequences.iter() {
                let (mut state, mut scores) = (filter.start(), Scores::default());
                filter.push(&mut state, symbols, &mut scores);
                assert_eq!(scores.states.len(), 3 * symbols.len());
                assert_eq!(scores.states[3 * 39..], state.state);
                let mut before = 1.0;
                for t in 0..symbols.len() {
                    let now = exact(&world, &symbols[..=t]);
                    let expected = (now / before).ln();
                    assert_close(scores.log_likelihood[t], expected, 1e-12);
                    let next = (0..5).map(|x| {
                        let mut longer = symbols[..=t].to_vec();
                        longer.push(x);
                        exact(&world, &longer) / now
                    });
                    let next: Vec<f64> = next.collect();
                    let best = (0..5).max_by(|&a, &b| next[a].total_cmp(&next[b]));
                    let best = best.expect("a symbol");
                    assert_eq!(scores.next[t] as usize, best);
                    assert_close(scores.next_probability[t], next[best], 1e-12);
                    before = now;
                }
                let score = filter.score(symbols);
                let sum: f64 = scores.log_likelihood.iter().sum();
                assert_close(score.log_likelihood, sum, 1e-12);
                assert!(!scores.was_reset.contains(&true));
            }
        }
    }
}

// The result does not depend on where a sequence is cut into pieces.
#[test]
fn pieces_of_a_sequence_give_the_scores_of_the_whole() {
    let world = random_hidden(3, 20, 0.3, 33);
    let sequences = sample(&world, 20, 50, 33);
    let model = projection(Scaling::Cca, 6, &windows(&sequences));
    let model = model.into_model(6).expect("a rank");
    let filter = Filter::new(&model, 0.01, 1e-12).with_next();
    for symbols in sequences.iter() {
        let (mut whole, mut parts) = (Scores::default(), Scores::default());
        filter.push(&mut filter.start(), symbols, &mut whole);
        let mut state = filter.start();
        for piece in symbols.chunks(7) {
            filter.push(&mut state, piece, &mut parts);
        }
        assert_eq!(whole, parts);
    }
}

// Predictions by bounds equal those of all classes: clipped, divided by their sum and mixed.
#[test]
fn bounds_do_not_change_predictions() {
    let world = random_hidden(4, 60, 0.0, 34);
    let sequences = sample(&world, 10, 60, 34);
    for scaling in BOTH {
        let model = projection(scaling, 12, &windows(&sequences));
        let model = model.into_model(12).expect("a rank");
        let (unigram, floor) = (0.05, 1e-9);
        let filter = Filter::new(&model, unigram, floor).with_next();
        let mut negatives = 0;
        for symbols in sequences.iter() {
            let mut state = filter.start();
            let mut b = state.state.clone();
            for &x in symbols {
                let raw: Vec<f64> = (0..60)
                    .map(|x| {
                        let rows = model.operator(x).chunks_exact(12).zip(&model.last);
                        rows.map(|(row, last)| last * dot(row, &b)).sum()
                    })
                    .collect();
                let clipped = raw.iter().map(|r: &f64| r.max(floor));
                let sum: f64 = clipped.clone().sum();
                let mixed = clipped.zip(&model.unigram);
                let mixed = mixed.map(|(r, u)| (1.0 - unigram) * r / sum + unigram * u);
                let mixed: Vec<f64> = mixed.collect();
                negatives += raw.iter().filter(|r| **r < 0.0).count() as u64;
                let distribution = filter.distribution(&state);
                for (a, b) in distribution.iter().zip(&mixed) {
                    assert_close(*a, *b, 1e-12);
                }
                let mut scores = Scores::default();
                filter.push(&mut state, &[x], &mut scores);
                assert_close(scores.log_likelihood[0], mixed[x as usize].ln(), 1e-10);
                b.clone_from(&state.state);
                let after = filter.distribution(&state);
                let best = after.iter().copied().fold(0.0, f64::max);
                assert_close(scores.next_probability[0], best, 1e-12);
                assert_close(after[scores.next[0] as usize], best, 1e-12);
            }
        }
        let total = filter.total(&sequences);
        assert_eq!(total.negatives, negatives);
        assert!(negatives > 0);
        let share = total.negative_share(60);
        assert_close(share, negatives as f64 / 36_000.0, 1e-15);
    }
}

// (8) with k = 2 says that symbols alternate. A repeated symbol has probability 0: it gets the
// floor and its share of the distribution of all symbols, and the state is reset.
#[test]
fn impossible_symbols_reset_the_state() {
    let model = fitted(Scaling::Cca, 2, &two_states(0.25), 1);
    let (unigram, floor) = (0.1, 1e-9);
    let filter = Filter::new(&model, unigram, floor).with_next();
    let (mut state, mut scores) = (filter.start(), Scores::default());
    filter.push(&mut state, &[0, 0, 0, 1], &mut scores);
    assert_eq!(scores.was_reset, [false, true, false, false]);
    // The shares of all positions of 0 1 0 and 1 0 1 are (½ + ε′, ½ − ε′) with ε′ = 1/12.
    let of_zero = 7.0 / 12.0;
    assert_close(model.unigram[0], of_zero, 1e-15);
    let lost: f64 = (1.0 - unigram) * floor / (1.0 + floor) + unigram * of_zero;
    let alternates: f64 = 1.0 - unigram + unigram * (1.0 - of_zero);
    let first: f64 = (1.0 - unigram) * 0.75 + unigram * of_zero;
    let expected = [first.ln(), lost.ln(), first.ln(), alternates.ln()];
    for (a, b) in scores.log_likelihood.iter().zip(expected) {
        assert_close(*a, b, 1e-8);
    }
    // After a reset, the most likely symbol is the most likely first one.
    assert_eq!(scores.next, [1, 0, 1, 0]);
}

#[test]
fn unseen_symbols_are_scored_by_the_floor_and_reset_the_state() {
    let model = fitted(Scaling::Cca, 2, &random_hidden(2, 3, 0.5, 40), 1);
    let filter = Filter::new(&model, 0.01, 1e-6).with_states();
    let (mut state, mut scores) = (filter.start(), Scores::default());
    filter.push(&mut state, &[2, UNSEEN, 2], &mut scores);
    assert_close(scores.log_likelihood[1], 1e-6_f64.ln(), 0.0);
    assert_close(scores.log_likelihood[2], scores.log_likelihood[0], 0.0);
    assert_eq!(scores.was_reset, [false, true, false]);
    assert_eq!(scores.unseen, 1);
    assert_eq!(scores.states[2..4], filter.start().state);
    let score = filter.score(&[2, UNSEEN, 2]);
    assert_eq!((score.rows, score.unseen, score.resets), (3, 1, 1));
}

// Two states, three symbols, and the symbols 0, ?, 2. After symbol 0 the state is
// T(1/4, 1/20) / (3/10) = (2/3, 1/3), a step without a row makes it T(2/3, 1/3) = (7/12, 5/12), and
// it shows symbol 2 with 7/12 · 1/5 + 5/12 · 7/10 = 49/120.
#[test]
fn a_missing_symbol_is_summed_over() {
    let world = hidden(
        &[0.5, 0.5],
        &[&[0.75, 0.25], &[0.25, 0.75]],
        &[&[0.5, 0.1], &[0.3, 0.2], &[0.2, 0.7]],
    );
    let model = world.model(vec![1.0 / 3.0; 3]);
    let filter = Filter::new(&model, 0.0, 1e-12);
    let (mut state, mut scores) = (filter.start(), Scores::default());
    filter.push(&mut state, &[0], &mut scores);
    assert!(!filter.predict(&mut state, 1));
    assert_close(state.state[0], 7.0 / 12.0, 1e-14);
    filter.push(&mut state, &[2], &mut scores);
    assert_close(scores.log_likelihood[0], 0.3f64.ln(), 1e-14);
    assert_close(scores.log_likelihood[1], (49.0f64 / 120.0).ln(), 1e-14);
    let all = |x: u32| exact(&world, &[0, x, 2]);
    let summed = (all(0) + all(1) + all(2)) / 0.3;
    assert_close(scores.log_likelihood[1], summed.ln(), 1e-13);
}

// Models of windows of one and of two symbols per side: the state is that of single symbols.
#[test]
fn several_missing_symbols_are_summed_over_by_spectral_models() {
    for (scaling, block) in [(BOTH[0], 1), (BOTH[1], 1), (BOTH[0], 2), (BOTH[1], 2)] {
        let world = random_hidden(3, 4, 0.5, 41);
        let model = fitted(scaling, 3, &world, block);
        let filter = Filter::new(&model, 0.0, 1e-15);
        for steps in 1..4 {
            let (mut state, mut scores) = (filter.start(), Scores::default());
            filter.push(&mut state, &[1, 3], &mut scores);
            assert!(!filter.predict(&mut state, steps as u64));
            filter.push(&mut state, &[2, 0], &mut scores);
            let sum = |after: &[u32]| -> f64 {
                let words = words(4, steps).into_iter();
                let all = words.map(|word| [&[1, 3][..], &word, after].concat());
                all.map(|word| exact(&world, &word)).sum()
            };
            let expected = (sum(&[2]) / sum(&[])).ln();
            assert_close(scores.log_likelihood[2], expected, 1e-9);
            let expected = (sum(&[2, 0]) / sum(&[2])).ln();
            assert_close(scores.log_likelihood[3], expected, 1e-9);
            assert_eq!(scores.log_likelihood.len(), 4);
        }
    }
}

// At a rank below that of the world the operators add up to no stochastic matrix: the state is
// divided by its own normaliser.
#[test]
fn a_step_without_a_row_is_normalised() {
    let world = random_hidden(3, 4, 0.5, 43);
    let model = fitted(Scaling::None, 2, &world, 1);
    let filter = Filter::new(&model, 0.0, 1e-15);
    let (mut state, mut scores) = (filter.start(), Scores::default());
    filter.push(&mut state, &[1], &mut scores);
    assert!(!filter.predict(&mut state, 1));
    let state = state.state;
    assert_close(dot(&model.last, &state), 1.0, 1e-14);
    let of = |x: u32| {
        let b = model.initial.clone();
        let after = |x: u32, b: &[f64]| -> Vec<f64> {
            let rows = model.operator(model.class_of[x as usize]).chunks_exact(2);
            rows.map(|row| dot(row, b)).collect()
        };
        after(x, &after(1, &b))
    };
    let sums: Vec<f64> = (0..2).map(|i| (0..4).map(|x| of(x)[i]).sum()).collect();
    let normaliser = dot(&model.last, &sums);
    for (own, sum) in state.iter().zip(&sums) {
        assert_close(*own, sum / normaliser, 1e-12);
    }
}

#[test]
fn a_step_that_leaves_no_probability_starts_the_filter_again() {
    let model = HmmModel {
        rank: 1,
        n_symbols: 2,
        operators: vec![0.5, -0.5],
        initial: vec![1.0],
        last: vec![1.0],
        unigram: vec![0.5, 0.5],
        class_of: vec![0, 1],
        share: vec![1.0, 1.0],
        pool: None,
        hidden: None,
    };
    let filter = Filter::new(&model, 0.01, 1e-12);
    let mut state = filter.start();
    filter.push(&mut state, &[0], &mut Scores::default());
    let before = state.clone();
    assert!(!filter.predict(&mut state, 0));
    assert_eq!(state, before);
    assert!(filter.predict(&mut state, 3));
    assert_eq!(state, filter.start());
}
