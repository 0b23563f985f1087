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
