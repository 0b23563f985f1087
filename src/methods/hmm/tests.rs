//! Tests against the examples and theorems of Kulesza, Rao, Singh, *Low-rank spectral learning*,
//! and against the forward algorithm.

use crate::evidence::pass::Passes;
use crate::evidence::sequences::Sequences;
use crate::evidence::triples::Triples;
use crate::math::dense;
use crate::methods::hmm::baum_welch::{climb, random_start, recovered_hidden, refine};
use crate::methods::hmm::filter::{Filter, Scores};
use crate::methods::hmm::model::{Hidden, HmmModel, UNSEEN, Warning, dot};
use crate::methods::hmm::params::{Refine, Scaling, SpectralHmm};
use crate::methods::hmm::project::{Projection, project, stationarity_gap};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const PLAIN: Scaling = Scaling::None;

fn params(scaling: Scaling) -> SpectralHmm {
    SpectralHmm {
        scaling,
        ..SpectralHmm::new(1)
    }
}

fn fit(triples: &Triples, scaling: Scaling, rank: usize) -> Projection {
    project(&params(scaling), rank, triples, &Passes::local(), 1).expect("a projection")
}

/// A list of (past, middle, future, weight) with a block of 1.
fn triples(n: usize, list: &[(u32, u32, u32, f64)]) -> Triples {
    Triples::new(1, n, Triples::symbols_as_words(n), list.to_vec())
}

/// All words of some length, the last symbol fastest.
fn words(n: usize, length: usize) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        let longer = |word: &Vec<u32>| -> Vec<Vec<u32>> {
            let symbols = 0..n as u32;
            symbols.map(|x| [&word[..], &[x]].concat()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Pr(x₁, …, x_t) = 1ᵀA_{x_t} … A_{x_1}π (1).
fn probability(hidden: &Hidden, symbols: &[u32]) -> f64 {
    let m = hidden.states();
    let mut state = hidden.initial.clone();
    for &x in symbols {
        let row = &hidden.emission[x as usize * m..][..m];
        let seen: Vec<f64> = row.iter().zip(&state).map(|(o, s)| o * s).collect();
        let rows = hidden.transition.chunks_exact(m);
        state = rows.map(|row| dot(row, &seen)).collect();
    }
    state.iter().sum()
}

/// The exact moments of the first windows of a hidden Markov model (4).
fn moments(hidden: &Hidden, block: usize) -> Triples {
    let n = hidden.symbols();
    let all = words(n, block);
    let mut list = Vec::new();
    for (a, past) in all.iter().enumerate() {
        for x in 0..n as u32 {
            for (c, future) in all.iter().enumerate() {
                let window = [&past[..], &[x], &future[..]].concat();
                list.push((a as u32, x, c as u32, probability(hidden, &window)));
            }
        }
    }
    Triples::new(block, n, all.concat(), list)
}

/// The L1 variational distance of t symbols (2).
fn distance(model: &HmmModel, hidden: &Hidden, t: usize) -> f64 {
    let all = words(hidden.symbols(), t);
    let gap = |word: &Vec<u32>| (model.probability(word) - probability(hidden, word)).abs();
    all.iter().map(gap).sum()
}

fn columns(random: &mut Pcg64, rows: usize, columns: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..rows * columns)
        .map(|_| -(1.0 - random.random::<f64>()).ln())
        .collect();
    for j in 0..columns {
        let sum: f64 = (0..rows).map(|i| values[i * columns + j]).sum();
        (0..rows).for_each(|i| values[i * columns + j] /= sum);
    }
    values
}

/// A random hidden Markov model that starts from its stationary distribution.
fn stationary(m: usize, n: usize, stay: f64, seed: u64) -> Hidden {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut transition = columns(&mut random, m, m);
    for (at, t) in transition.iter_mut().enumerate() {
        *t = (1.0 - stay) * *t + if at / m == at % m { stay } else { 0.0 };
    }
    let emission = columns(&mut random, n, m);
    let mut initial = vec![1.0 / m as f64; m];
    for _ in 0..10_000 {
        initial = transition
            .chunks_exact(m)
            .map(|row| dot(row, &initial))
            .collect();
    }
    Hidden {
        initial,
        transition,
        emission,
    }
}

/// An index with given probabilities.
fn draw(random: &mut Pcg64, probabilities: impl Iterator<Item = f64>) -> usize {
    let mut left: f64 = random.random();
    let mut last = 0;
    for (at, p) in probabilities.enumerate() {
        last = at;
        left -= p;
        if left < 0.0 {
            break;
        }
    }
    last
}

fn sample(hidden: &Hidden, sequences: usize, length: usize, seed: u64) -> Sequences {
    let (m, n) = (hidden.states(), hidden.symbols());
    let mut random = Pcg64::seed_from_u64(seed);
    let mut all = Sequences::new(n);
    for _ in 0..sequences {
        let mut state = draw(&mut random, hidden.initial.iter().copied());
        let mut symbols = Vec::with_capacity(length);
        for _ in 0..length {
            let emission = (0..n).map(|x| hidden.emission[x * m + state]);
            symbols.push(draw(&mut random, emission) as u32);
            let next = (0..m).map(|i| hidden.transition[i * m + state]);
            state = draw(&mut random, next);
        }
        all.push(&symbols);
    }
    all
}

fn counted(sequences: &Sequences) -> Triples {
    let windows = sequences.iter().flat_map(|symbols| symbols.windows(3));
    let list: Vec<_> = windows.map(|w| (w[0], w[1], w[2], 1.0)).collect();
    triples(sequences.n_symbols, &list)
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

// The paper, Figure 1 and (7): 1 2 1 2 … and 2 1 2 1 …, each with probability ½.
#[test]
fn alternating_symbols_have_rank_two() {
    let alternating = triples(2, &[(0, 1, 0, 0.5), (1, 0, 1, 0.5)]);
    for scaling in [PLAIN, Scaling::Cca] {
        let projection = fit(&alternating, scaling, 2);
        let first = if scaling == PLAIN { 0.5 } else { 1.0 };
        assert!(close(projection.spectrum[0], first, 1e-15));
        assert!(close(projection.spectrum[1], first, 1e-15));
        let model = projection.model(2).expect("a model");
        assert!(close(model.probability(&[0, 1, 0, 1, 0]), 0.5, 1e-14));
        assert!(close(model.probability(&[0, 1, 1]), 0.0, 1e-14));
        let warnings = projection.warnings(1);
        assert!(matches!(
            warnings[..],
            [Warning::EqualValues { rank: 1, .. }]
        ));
        assert!(projection.warnings(2).is_empty());
    }
}

// Figure 2 and (8): σ = (1 − ε, ε). Rank one predicts 0 for every sequence.
#[test]
fn a_small_singular_value_may_matter() {
    let e = 0.01;
    let biased = triples(2, &[(0, 1, 0, 1.0 - e), (1, 0, 1, e)]);
    let hidden = Hidden {
        initial: vec![1.0 - e, e],
        transition: vec![0.0, 1.0, 1.0, 0.0],
        emission: vec![1.0, 0.0, 0.0, 1.0],
    };
    let projection = fit(&biased, PLAIN, 2);
    assert!(close(projection.spectrum[0], 1.0 - e, 1e-15));
    assert!(close(projection.spectrum[1], e, 1e-15));
    let (one, two) = (projection.model(1).unwrap(), projection.model(2).unwrap());
    for t in 1..8 {
        assert!(close(distance(&one, &hidden, t), 1.0, 1e-14));
        assert!(close(distance(&two, &hidden, t), 0.0, 1e-13));
    }
}

// Figure 3 and (9): the error of rank two is δ if ε > δ, and 1 − δ if δ > ε.
#[test]
fn a_dummy_state_may_mask_a_pattern() {
    for (e, d) in [(0.1, 0.03), (0.03, 0.1)] {
        let list = [(0, 1, 0, 1.0 - e - d), (1, 0, 1, e), (2, 2, 2, d)];
        let masked = triples(3, &list);
        let hidden = Hidden {
            initial: vec![1.0 - e - d, e, d],
            transition: vec![0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            emission: vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        };
        let projection = fit(&masked, PLAIN, 3);
        let two = projection.model(2).unwrap();
        let expected = if e > d { d } else { 1.0 - d };
        for t in 2..7 {
            assert!(close(distance(&two, &hidden, t), expected, 1e-13));
            let three = projection.model(3).unwrap();
            assert!(close(distance(&three, &hidden, t), 0.0, 1e-13));
        }
    }
}

/// Figure 4: 1 2 2 1 2 2 …, and the second 2 is a 3 with probability ε.
fn repeating(e: f64) -> Hidden {
    Hidden {
        initial: vec![1.0 / 3.0; 3],
        transition: vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        emission: vec![1.0, 0.0, 0.0, 0.0, 1.0, 1.0 - e, 0.0, 0.0, e],
    }
}

// (10): L1 = 4/3, 8/3, 4, 16/3 at t = 4, 5, 6, 8 as ε → 0.
#[test]
fn similar_states_need_the_third_direction() {
    let hidden = repeating(1e-5);
    let projection = fit(&moments(&hidden, 1), PLAIN, 3);
    let two = projection.model(2).unwrap();
    for (t, expected) in [(4, 4.0 / 3.0), (5, 8.0 / 3.0), (6, 4.0), (8, 16.0 / 3.0)] {
        let found = distance(&two, &hidden, t);
        assert!(close(found, expected, 1e-3), "{t}: {found}");
    }
    let hidden = repeating(0.01);
    let projection = fit(&moments(&hidden, 1), PLAIN, 3);
    assert!(close(projection.spectrum[2], 3.4e-5, 1e-6));
    let three = projection.model(3).unwrap();
    for t in 1..6 {
        assert!(distance(&three, &hidden, t) < 1e-9);
    }
}

// Two consecutive observations distinguish the states of Figure 4 (§5).
#[test]
fn blocks_distinguish_similar_states() {
    let hidden = repeating(0.01);
    for scaling in [PLAIN, Scaling::Cca] {
        let projection = fit(&moments(&hidden, 2), scaling, 3);
        if scaling == PLAIN {
            assert!(close(projection.spectrum[2], 0.327, 1e-3));
        }
        let model = projection.model(3).unwrap();
        for t in 1..6 {
            assert!(distance(&model, &hidden, t) < 1e-12);
        }
    }
    assert_eq!(fit(&moments(&hidden, 2), PLAIN, 9).rank, 3);
}

// (6) is exact if k = m and the moments are exact (Hsu, Kakade, Zhang, Lemma 3).
#[test]
fn full_rank_is_exact() {
    for seed in 0..5 {
        let hidden = stationary(3, 5, 0.4, seed);
        for scaling in [PLAIN, Scaling::Cca] {
            let projection = fit(&moments(&hidden, 1), scaling, 3);
            let model = projection.model(3).unwrap();
            for word in words(5, 4) {
                let (a, b) = (model.probability(&word), probability(&hidden, &word));
                assert!(close(a, b, 1e-13), "{a} {b}");
            }
            let diagnostics = projection.diagnostics(3);
            assert!(diagnostics.normalisation_gap < 1e-12 && diagnostics.initial_gap < 1e-12);
            assert!(diagnostics.omitted < 1e-14 && projection.drift < 1e-12);
            // The filter is the forward algorithm.
            let sequences = sample(&hidden, 3, 50, seed);
            let filter = Filter::new(&model, 0.0, 1e-300);
            for symbols in sequences.iter() {
                let mut scores = Scores::default();
                filter.push(&mut filter.start(), symbols, &mut scores);
                let mut before = 1.0;
                for t in 0..20 {
                    let joint = probability(&hidden, &symbols[..=t]);
                    let expected = (joint / before).ln();
                    assert!(close(scores.log_likelihood[t], expected, 1e-12));
                    before = joint;
                }
            }
            let total = filter.total(&sequences).log_likelihood;
            assert!(close(total, hidden.log_likelihood(&sequences), 1e-9));
        }
    }
}

// Lemma 1: b_∞ᵀB_{x_t} … b₁ = 1ᵀÂ_{x_t} … π̂ with Â_x = MA_x, π̂ = Mπ and M = O⁺UUᵀO.
// Theorem 1: the distance is at most √m (σ_min⁻¹(O) √m)^{t+3} σ_{k+1}.
#[test]
fn lemma_1_and_theorem_1_hold() {
    for seed in 0..6 {
        let m = 4;
        // As many symbols as states: O is square, and O⁺ its inverse.
        let hidden = stationary(m, m, 0.3, 100 + seed);
        let triples = moments(&hidden, 1);
        let projection = fit(&triples, PLAIN, m);
        let mut pairs = vec![0.0; m * m];
        for (first, middle, _, weight) in triples.iter() {
            pairs[middle as usize * m + first as usize] += weight;
        }
        let (_, left, _) = dense::square_svd(&pairs, m);
        let (values, o_left, o_right) = dense::square_svd(&hidden.emission, m);
        let multiply = |a: &[f64], b: &[f64]| -> Vec<f64> {
            let entry = |at: usize| (0..m).map(|l| a[at / m * m + l] * b[l * m + at % m]).sum();
            (0..m * m).map(entry).collect()
        };
        let inverse = |at: usize| {
            let terms =
                (0..m).map(|l| o_right[at / m * m + l] * o_left[at % m * m + l] / values[l]);
            terms.sum::<f64>()
        };
        let inverse: Vec<f64> = (0..m * m).map(inverse).collect();
        for k in 1..=m {
            let along = |at: usize| {
                (0..k)
                    .map(|l| left[at / m * m + l] * left[at % m * m + l])
                    .sum()
            };
            let projector: Vec<f64> = (0..m * m).map(along).collect();
            let low = multiply(&inverse, &multiply(&projector, &hidden.emission));
            let model = projection.model(k).unwrap();
            for word in words(m, 3) {
                let apply = |matrix: &[f64], state: &[f64]| -> Vec<f64> {
                    matrix.chunks_exact(m).map(|row| dot(row, state)).collect()
                };
                let mut state = apply(&low, &hidden.initial);
                for &x in &word {
                    let row = &hidden.emission[x as usize * m..][..m];
                    let seen: Vec<f64> = row.iter().zip(&state).map(|(o, s)| o * s).collect();
                    state = apply(&low, &apply(&hidden.transition, &seen));
                }
                let expected: f64 = state.iter().sum();
                let found = model.probability(&word);
                assert!(
                    close(found, expected, 1e-9 / values[m - 1]),
                    "{found} {expected}"
                );
            }
            let root = (m as f64).sqrt();
            for t in 1..4 {
                let bound = root * (root / values[m - 1]).powi(t + 3);
                let bound = bound * projection.diagnostics(k).omitted;
                assert!(distance(&model, &hidden, t as usize) <= bound + 1e-9);
            }
        }
    }
}

// b_∞ᵀ = P₁ᵀ(UᵀP₂₁)⁺ = 1ᵀU, as 1ᵀP₂₁ = P₁ᵀ and P₂₁(UᵀP₂₁)⁺ = U.
#[test]
fn both_forms_of_the_last_vector_agree() {
    let sequences = sample(&stationary(4, 9, 0.5, 3), 20, 100, 4);
    for scaling in [PLAIN, Scaling::Cca] {
        let projection = fit(&counted(&sequences), scaling, 5);
        let checked = &projection.checked;
        assert!(checked.last.iter().all(|[a, b]| close(*a, *b, 1e-9)));
        assert_eq!(checked.totals, [1960.0, 1960.0]);
        assert!(
            checked.sum[0] <= 1e-12 * checked.sum[1],
            "{:?}",
            checked.sum
        );
        assert!(checked.first_step < 1e-13 && checked.is_integral);
    }
}

// Scaled operators: b_∞ = e₁, Σ_x b_∞ᵀB_x = b_∞ᵀ and b_∞ᵀB_xe₁ = Pr(x₂ = x) at every rank, also
// if a symbol is never followed by another one.
#[test]
fn scaled_operators_are_normalised_at_every_rank() {
    let mut sequences = sample(&stationary(4, 9, 0.5, 5), 30, 40, 6);
    sequences.n_symbols = 11;
    sequences.push(&[3, 4, 9]);
    sequences.push(&[10, 4, 3]);
    let triples = counted(&sequences);
    let projection = fit(&triples, Scaling::Cca, 6);
    let total = triples.total();
    let mut shares = [0.0; 11];
    triples
        .iter()
        .for_each(|t| shares[t.1 as usize] += t.3 / total);
    for rank in 1..=6 {
        let model = projection.model(rank).unwrap();
        assert_eq!(model.last[0], 1.0);
        assert!(model.last[1..].iter().all(|b| *b == 0.0));
        let sum = model.sum_of_operators();
        assert!(close(sum[0], 1.0, 1e-13));
        assert!(
            sum[1..rank].iter().all(|b| close(*b, 0.0, 1e-11)),
            "{sum:?}"
        );
        assert!(close(model.initial[0], 1.0, 1e-13));
        for x in 0..11 {
            assert!(close(model.operator(x)[0], shares[x as usize], 1e-14));
        }
        let filter = Filter::new(&model, 0.0, 1e-12);
        let distribution = filter.distribution(&filter.start());
        assert!(close(distribution.iter().sum(), 1.0, 1e-12));
    }
    // Rank 1 is the independent model.
    let one = projection.model(1).unwrap();
    let expected = shares[3] * shares[4] * shares[3];
    assert!(close(one.probability(&[3, 4, 3]), expected, 1e-15));
}

#[test]
fn ranks_nest() {
    let sequences = sample(&stationary(4, 9, 0.5, 7), 30, 60, 8);
    let triples = counted(&sequences);
    for scaling in [PLAIN, Scaling::Cca] {
        let all = fit(&triples, scaling, 6);
        for rank in [1, 3, 5] {
            let (own, cut) = (fit(&triples, scaling, rank), all.model(rank).unwrap());
            assert!(close(own.spectrum[rank], all.spectrum[rank], 1e-12));
            let own = own.into_model(rank).unwrap();
            for word in words(9, 3) {
                let (a, b) = (own.probability(&word), cut.probability(&word));
                assert!(close(a, b, 1e-9), "{a} {b}");
            }
        }
        let error = all.model(7).unwrap_err().to_string();
        let expected = "rank 7 is above the numerical rank 6 of the matrix of pairs";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn one_symbol_has_rank_one() {
    let projection = fit(&triples(1, &[(0, 0, 0, 8.0)]), Scaling::Cca, 4);
    assert_eq!(projection.warnings(4), [Warning::OneSymbol { rank: 4 }]);
    let model = projection.model(4).unwrap();
    assert_eq!(model.rank, 1);
    assert!(close(model.probability(&[0, 0]), 1.0, 1e-15));
    let none = project(&params(PLAIN), 2, &triples(2, &[]), &Passes::local(), 1);
    assert!(none.is_err());
}

// Two symbols that are always one another's equals: pooled, they have one operator and the sum of
// their predictions.
#[test]
fn pooled_symbols_share_an_operator() {
    let sequences = sample(&stationary(3, 12, 0.5, 9), 20, 60, 10);
    let triples = counted(&sequences);
    let pooled = SpectralHmm {
        min_count: 90,
        ..params(Scaling::Cca)
    };
    let projection = project(&pooled, 2, &triples, &Passes::local(), 1).unwrap();
    let model = projection.model(2).unwrap();
    let pool = model.pool.expect("a pool");
    let members: Vec<u32> = (0..12).filter(|&x| model.is_pooled(x)).collect();
    assert!(members.len() >= 2 && model.n_classes() == 13 - members.len());
    let shares: f64 = members.iter().map(|&x| model.share[x as usize]).sum();
    assert!(close(shares, 1.0, 1e-14));
    assert!(members.iter().all(|&x| model.class_of[x as usize] == pool));
    let all: f64 = (0..12).map(|x| model.probability(&[x])).sum();
    assert!(close(all, 1.0, 1e-12));
}

#[test]
fn bytes_do_not_depend_on_threads() {
    let sequences = sample(&stationary(4, 30, 0.6, 11), 40, 200, 12);
    let triples = counted(&sequences);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let projection = fit(&triples, Scaling::Cca, 5);
            let model = projection.model(5).unwrap();
            let scores = Filter::new(&model, 0.01, 1e-12).scores(&sequences);
            let em = SpectralHmm {
                n_iter: 5,
                ..params(Scaling::Cca)
            };
            let refined = refine(&em, &projection, 4, &sequences, 1).unwrap();
            let fits = (&model, scores, &refined.model, &refined.trace);
            postcard::to_stdvec(&fits).unwrap()
        })
    };
    assert!(run(1) == run(3));
}

// What the filter leaves out makes no difference.
#[test]
fn the_filter_equals_all_predictions() {
    let mut hidden = stationary(5, 40, 0.8, 13);
    // Symbols of very different frequency.
    for x in 0..40 {
        let scale = 0.8_f64.powi(x);
        (0..5).for_each(|j| hidden.emission[x as usize * 5 + j] *= scale);
    }
    for j in 0..5 {
        let sum: f64 = (0..40).map(|x| hidden.emission[x * 5 + j]).sum();
        (0..40).for_each(|x| hidden.emission[x * 5 + j] /= sum);
    }
    let train = sample(&hidden, 10, 200, 14);
    let test = sample(&hidden, 4, 200, 15);
    let mut negatives = 0;
    for (scaling, rank, min_count) in [(PLAIN, 3, 1), (Scaling::Cca, 4, 1), (Scaling::Cca, 6, 6)] {
        let params = SpectralHmm {
            min_count,
            ..params(scaling)
        };
        let triples = counted(&train);
        let projection = project(&params, rank, &triples, &Passes::local(), 1).unwrap();
        let model = projection.model(rank).unwrap();
        let (unigram, floor) = (0.01, 1e-6);
        let filter = Filter::new(&model, unigram, floor)
            .with_next()
            .with_states();
        for symbols in test.iter() {
            let mut state = filter.start();
            for &x in symbols {
                let before = filter.distribution(&state);
                assert!(close(before.iter().sum(), 1.0, 1e-9));
                let raw: Vec<f64> = (0..model.n_classes() as u32)
                    .map(|class| {
                        let rows = model.operator(class).chunks_exact(rank);
                        let terms = rows.zip(&model.last);
                        terms.map(|(row, last)| last * dot(row, &state.state)).sum()
                    })
                    .collect();
                let mut scores = Scores::default();
                filter.push(&mut state, &[x], &mut scores);
                let expected = raw.iter().filter(|p| **p < 0.0).count() as u64;
                assert_eq!(scores.negatives, expected);
                negatives += expected;
                let found = scores.log_likelihood[0].exp();
                assert!(close(found, before[x as usize].max(floor), 1e-12));
                let after = filter.distribution(&state);
                let best = after.iter().copied().fold(0.0, f64::max);
                assert!(close(scores.next_probability[0], best, 1e-12));
                assert!(close(after[scores.next[0] as usize], best, 1e-12));
                assert_eq!(scores.states, state.state);
            }
        }
    }
    assert!(negatives > 0);
}

// Figure 1: after 1, a second 1 is impossible. An unseen symbol has the probability of the floor.
#[test]
fn impossible_and_unseen_symbols_reset_the_state() {
    let alternating = triples(2, &[(0, 1, 0, 0.5), (1, 0, 1, 0.5)]);
    let model = fit(&alternating, Scaling::Cca, 2).into_model(2).unwrap();
    let filter = Filter::new(&model, 0.0, 1e-6).with_next();
    let mut scores = Scores::default();
    let symbols = [0, 1, 1, UNSEEN, 1, 0];
    filter.push(&mut filter.start(), &symbols, &mut scores);
    assert_eq!(scores.was_reset, [false, false, true, true, false, false]);
    assert_eq!((scores.unseen, &scores.next[..2]), (1, &[1, 0][..]));
    assert_eq!(scores.next[4..], [0, 1]);
    assert!(close(scores.log_likelihood[0], 0.5_f64.ln(), 1e-12));
    assert!(close(scores.log_likelihood[1], 0.0, 1e-5));
    assert!(close(scores.log_likelihood[2], 1e-6_f64.ln(), 1e-5));
    assert_eq!(scores.log_likelihood[3], 1e-6_f64.ln());
    assert!(close(scores.log_likelihood[4], 0.5_f64.ln(), 1e-12));
    // The state between two pieces of a sequence is all that the filter remembers.
    let mut pieces = Scores::default();
    let mut state = filter.start();
    for piece in symbols.chunks(2) {
        filter.push(&mut state, piece, &mut pieces);
    }
    assert_eq!(pieces, scores);
}

// With exact moments and k = m, T, O and π come back up to the order of the states.
#[test]
fn hidden_states_are_recovered() {
    for (seed, block) in [(21, 1), (22, 1), (23, 2)] {
        let hidden = stationary(3, 4, 0.3, seed);
        for scaling in [PLAIN, Scaling::Cca] {
            let model = fit(&moments(&hidden, block), scaling, 3)
                .into_model(3)
                .unwrap();
            let found = recovered_hidden(&model, 1).expect("a recovery");
            let order: Vec<usize> = (0..3)
                .map(|j| {
                    let gap = |i: &usize| -> f64 {
                        let rows = 0..4;
                        let gaps = rows.map(|x| {
                            (hidden.emission[x * 3 + i] - found.emission[x * 3 + j]).abs()
                        });
                        gaps.sum()
                    };
                    (0..3).min_by(|a, b| gap(a).total_cmp(&gap(b))).unwrap()
                })
                .collect();
            for j in 0..3 {
                assert!(close(found.initial[j], hidden.initial[order[j]], 1e-8));
                for x in 0..4 {
                    let expected = hidden.emission[x * 3 + order[j]];
                    assert!(close(found.emission[x * 3 + j], expected, 1e-8));
                }
                for i in 0..3 {
                    let expected = hidden.transition[order[i] * 3 + order[j]];
                    assert!(close(found.transition[i * 3 + j], expected, 1e-8));
                }
            }
        }
    }
}

// The scaled forward pass gives ln Pr(x₁, …, x_T), in blocks too, and an unseen symbol is a
// missing observation.
#[test]
fn the_log_likelihood_is_that_of_the_forward_algorithm() {
    let hidden = stationary(5, 6, 0.3, 31);
    let mut sequences = sample(&hidden, 2, 30, 32);
    let naive: f64 = sequences.iter().map(|s| probability(&hidden, s).ln()).sum();
    assert!(close(hidden.log_likelihood(&sequences), naive, 1e-10));
    sequences = Sequences::new(6);
    sequences.push(&[0, UNSEEN, 2]);
    let joint: f64 = (0..6).map(|x| probability(&hidden, &[0, x, 2])).sum();
    assert!(close(hidden.log_likelihood(&sequences), joint.ln(), 1e-12));
    // A long sequence is processed in blocks: the same expected counts, so the same next step.
    let long = sample(&hidden, 1, 10_000, 33);
    let found = climb(random_start(5, &[1.0 / 6.0; 6], 2), &long, 3, 0.0);
    assert!(found.trace.windows(2).all(|pair| pair[1] > pair[0]));
}

/// One iteration by the textbook, without scaling.
fn textbook(hidden: &Hidden, sequences: &Sequences) -> Hidden {
    let (m, n) = (hidden.states(), hidden.symbols());
    let (mut initial, mut pairs, mut emission) = (vec![0.0; m], vec![0.0; m * m], vec![0.0; n * m]);
    for symbols in sequences.iter() {
        let o = |t: usize, j: usize| hidden.emission[symbols[t] as usize * m + j];
        let mut alpha = vec![hidden.initial.clone()];
        (0..m).for_each(|j| alpha[0][j] *= o(0, j));
        for t in 1..symbols.len() {
            let rows = hidden.transition.chunks_exact(m).enumerate();
            let next = rows
                .map(|(i, row)| o(t, i) * dot(row, &alpha[t - 1]))
                .collect();
            alpha.push(next);
        }
        let all: f64 = alpha[symbols.len() - 1].iter().sum();
        let mut beta = vec![1.0; m];
        for t in (0..symbols.len()).rev() {
            for j in 0..m {
                let gamma = alpha[t][j] * beta[j] / all;
                emission[symbols[t] as usize * m + j] += gamma;
                if t == 0 {
                    initial[j] += gamma;
                }
            }
            if t > 0 {
                let seen: Vec<f64> = (0..m).map(|i| o(t, i) * beta[i]).collect();
                for at in 0..m * m {
                    let (to, from) = (at / m, at % m);
                    pairs[at] += alpha[t - 1][from] * hidden.transition[at] * seen[to] / all;
                }
                let before =
                    |j: usize| (0..m).map(|i| hidden.transition[i * m + j] * seen[i]).sum();
                beta = (0..m).map(before).collect();
            }
        }
    }
    let normalised = |mut values: Vec<f64>, columns: usize| {
        for j in 0..columns {
            let sum: f64 = values.iter().skip(j).step_by(columns).sum();
            values
                .iter_mut()
                .skip(j)
                .step_by(columns)
                .for_each(|x| *x /= sum);
        }
        values
    };
    Hidden {
        initial: normalised(initial, 1),
        transition: normalised(pairs, m),
        emission: normalised(emission, m),
    }
}

#[test]
fn an_iteration_is_that_of_the_textbook() {
    for m in [1, 2, 3, 6, 9] {
        let sequences = sample(&stationary(3, 5, 0.5, 41), 6, 40, 42);
        let start = random_start(m, &[0.2; 5], 43);
        let found = climb(start.clone(), &sequences, 1, 0.0).hidden;
        let expected = textbook(&start, &sequences);
        let lists = [
            (&found.initial, &expected.initial),
            (&found.transition, &expected.transition),
            (&found.emission, &expected.emission),
        ];
        for (a, b) in lists {
            assert!(a.iter().zip(b).all(|(a, b)| close(*a, *b, 1e-10)), "{m}");
        }
    }
}

// An iteration never lowers the likelihood. From the spectral seed it beats five random starts.
#[test]
fn refinement_climbs_from_the_spectral_seed() {
    let hidden = stationary(4, 12, 0.7, 51);
    let (train, test) = (sample(&hidden, 60, 100, 52), sample(&hidden, 60, 100, 53));
    let params = SpectralHmm {
        refine: Refine::Em,
        ..params(Scaling::Cca)
    };
    let projection = fit(&counted(&train), Scaling::Cca, 4);
    let refined = refine(&params, &projection, 4, &train, 1).unwrap();
    let falls = refined.trace.windows(2).map(|pair| pair[0] - pair[1]);
    assert!(falls.fold(0.0, f64::max) < 1e-8);
    let score = |hidden: &Hidden| hidden.log_likelihood(&test) / test.symbols.len() as f64;
    let own = score(refined.model.hidden.as_ref().unwrap());
    let unigram = vec![1.0 / 12.0; 12];
    let random = (0..5).map(|seed| climb(random_start(4, &unigram, 60 + seed), &train, 100, 1e-2));
    let best = random
        .max_by(|a, b| a.trace.last().unwrap().total_cmp(b.trace.last().unwrap()))
        .unwrap();
    assert!(
        own >= score(&best.hidden) - 2e-3,
        "{own} {}",
        score(&best.hidden)
    );
    // The operators of the result are those of its hidden states.
    let filter = Filter::new(&refined.model, 0.0, 1e-300);
    let mean = filter.total(&test).mean();
    assert!(close(mean, own, 1e-12));
}

// Full rank: the error of counted moments falls as N^{-1/2}. Below, it stays on a plateau.
#[test]
fn errors_fall_with_the_number_of_windows_at_full_rank_only() {
    let hidden = stationary(3, 4, 0.7, 61);
    let error = |rank: usize, length: usize| {
        let distances = (0..4).map(|seed| {
            let sequences = sample(&hidden, 1, length, 70 + seed);
            let projection = fit(&counted(&sequences), PLAIN, rank);
            distance(&projection.model(rank).unwrap(), &hidden, 3)
        });
        distances.sum::<f64>() / 4.0
    };
    let (few, many) = (error(3, 4_000), error(3, 256_000));
    let rate = few / many;
    assert!((3.0..24.0).contains(&rate), "{few} {many}");
    let (few, many) = (error(1, 4_000), error(1, 256_000));
    assert!(few / many < 1.6, "{few} {many}");
}

#[test]
fn a_start_far_from_the_average_is_told() {
    assert!(close(
        stationarity_gap(&[3.0, 1.0], &[2.0, 2.0]),
        0.5,
        1e-15
    ));
    let biased = triples(2, &[(0, 1, 1, 3.0), (1, 1, 0, 1.0)]);
    assert!(close(fit(&biased, PLAIN, 1).drift, 1.0, 1e-15));
}
