//! Fits of counted triples.

use super::*;
use crate::methods::hmm::filtering::Filter;
use crate::methods::hmm::model::{UNSEEN, Warning};

fn counted(m: usize, n: usize, seed: u64) -> Triples {
    let world = random_hidden(m, n, 0.5, seed);
    windows(&sample(&world, 50, 200, seed))
}

// Leading blocks of the operators of a larger rank are those of a smaller rank.
#[test]
fn ranks_are_nested() {
    let triples = counted(4, 8, 1);
    for scaling in BOTH {
        let all = projection(scaling, 6, &triples);
        for rank in 1..=6 {
            let leading = all.model(rank).expect("a rank");
            let alone = projection(scaling, rank, &triples);
            let alone = alone.into_model(rank).expect("a rank");
            for word in words(8, 3) {
                let (a, b) = (leading.probability(&word), alone.probability(&word));
                assert_close(a, b, 1e-9);
            }
        }
    }
}

// Scaled operators: b_∞ = e₁ and Σ_x b_∞ᵀB_x = b_∞ᵀ, so predictions add up to 1. The first step is
// the share of each symbol in the middle of windows. Rank 1 is the independent model.
#[test]
fn scaled_operators_conserve_probability_at_every_rank() {
    let triples = counted(4, 8, 2);
    let projection = projection(Scaling::Cca, 8, &triples);
    let mut shares = [0.0; 8];
    for (_, middle, _, count) in triples.iter() {
        shares[middle as usize] += count / triples.total();
    }
    for rank in 1..=projection.rank {
        let model = projection.model(rank).expect("a rank");
        let sum = model.sum_of_operators();
        for (j, (last, sum)) in model.last.iter().zip(&sum).enumerate() {
            let unit = if j == 0 { 1.0 } else { 0.0 };
            assert_close(*last, unit, 0.0);
            assert_close(*sum, unit, 1e-12);
        }
        for length in 1..=3 {
            let all = words(8, length);
            let total: f64 = all.iter().map(|word| model.probability(word)).sum();
            assert_close(total, 1.0, 1e-12);
        }
        let size = rank * rank;
        for (x, share) in shares.iter().enumerate() {
            assert_close(model.operators[x * size], *share, 1e-14);
        }
    }
    let one = projection.model(1).expect("a rank");
    assert_close(one.probability(&[3, 5]), shares[3] * shares[5], 1e-15);
}

// Symbols 5, 6 and 7 are rare. The pooled model is that of the triples with one symbol in their
// place, times the share of each symbol in the pool.
#[test]
fn rare_symbols_share_one_operator() {
    let world = random_hidden(3, 6, 0.5, 4);
    let whole = windows(&sample(&world, 40, 100, 4));
    // Symbol 5 is split into three.
    let mut random = Pcg64::seed_from_u64(5);
    let mut split = |x: u32| match x {
        5 => 5 + random.random_range(0..3),
        _ => x,
    };
    let mut list = Vec::new();
    for (a, x, c, count) in whole.iter() {
        for _ in 0..count as usize {
            list.push((split(a), split(x), split(c), 1.0));
        }
    }
    let triples = Triples::new(1, 8, Triples::symbols_as_words(8), list);
    let largest = |symbols: std::ops::Range<u32>| {
        let at = |symbol: u32| {
            let of = |place: usize| {
                let all = triples.iter().map(|(a, x, c, count)| ([a, x, c], count));
                let own = all.filter(|(word, _)| word[place] == symbol);
                own.map(|(_, count)| count).sum::<f64>()
            };
            (0..3).map(of).fold(0.0, f64::max)
        };
        symbols.map(at).fold(0.0, f64::max)
    };
    let min_count = largest(5..8) as usize + 1;
    let params = SpectralHmm {
        min_count,
        ..SpectralHmm::new(3)
    };
    let pooled = project(&params, 3, &triples, &Passes::local(), 7).expect("a projection");
    let pooled = pooled.into_model(3).expect("a rank");
    assert!((0..5).all(|symbol| !pooled.is_pooled(symbol)));
    assert!((5..8).all(|symbol| pooled.is_pooled(symbol)));
    assert_eq!(pooled.n_classes(), 6);
    let one = projection(Scaling::Cca, 3, &whole)
        .into_model(3)
        .expect("a rank");
    let pool: f64 = pooled.unigram[5..].iter().sum();
    for word in words(8, 2) {
        let merged: Vec<u32> = word.iter().map(|&x| x.min(5)).collect();
        let shares = word.iter().filter(|x| **x >= 5);
        let share: f64 = shares.map(|&x| pooled.unigram[x as usize] / pool).product();
        let expected = one.probability(&merged) * share;
        assert_close(pooled.probability(&word), expected, 1e-10);
    }
    let filter = Filter::new(&pooled, 0.01, 1e-12);
    let next = filter.distribution(&filter.start());
    assert_close(next.iter().sum(), 1.0, 1e-12);
}

#[test]
fn one_symbol_gives_rank_1_and_a_warning() {
    let mut sequences = Symbols::new(1);
    sequences.push(&[0; 20]);
    for scaling in BOTH {
        let projection = projection(scaling, 3, &windows(&sequences));
        assert_eq!(projection.warnings(3), [Warning::OneSymbol { rank: 3 }]);
        let model = projection.model(3).expect("a rank");
        assert_eq!(model.rank, 1);
        assert_close(model.probability(&[0, 0, 0]), 1.0, 1e-14);
        let filter = Filter::new(&model, 0.01, 1e-12);
        assert_close(filter.score(&[0; 5]).log_likelihood, 0.0, 1e-14);
    }
}

#[test]
fn a_rank_above_the_numerical_rank_is_an_error_that_names_it() {
    let world = random_hidden(3, 6, 0.5, 6);
    for scaling in BOTH {
        let projection = projection(scaling, 5, &exact_triples(&world, 1));
        assert_eq!(projection.rank, 3);
        assert!(projection.model(3).is_ok());
        let e = projection.model(4).expect_err("a rank that is too large");
        let message = "rank 4 is above the numerical rank 3 of the matrix of pairs";
        assert!(e.full().contains(message), "{}", e.full());
    }
    let none = project(
        &params(Scaling::Cca),
        2,
        &Triples::new(1, 2, vec![0, 1], Vec::new()),
        &Passes::local(),
        7,
    );
    assert!(none.is_err());
}

// Counts of independent symbols: singular values are about 1/√N. A process with memory has larger
// ones.
#[test]
fn diagnostics_show_noise_and_drift() {
    let half: [&[f64]; 2] = [&[0.5], &[0.5]];
    let coin = hidden(&[1.0], &[&[1.0]], &half);
    let projection = projection(Scaling::Cca, 2, &windows(&sample(&coin, 10, 1002, 8)));
    let found = projection.diagnostics(1);
    assert_eq!(found.noise, 0.01);
    assert!(found.omitted < 4.0 * found.noise, "{}", found.omitted);
    // (8): the first symbols of windows have the shares (1 − ε, ε), and the last ones as well.
    let world = two_states(0.1);
    let still = super::projection(Scaling::None, 2, &exact_triples(&world, 1));
    assert_close(still.drift, 0.0, 1e-15);
    let one = vec![(0, 1, 2, 3.0), (0, 1, 0, 1.0)];
    let triples = Triples::new(1, 3, vec![0, 1, 2], one);
    let moving = super::projection(Scaling::None, 1, &triples);
    // |1 − ¼| + |0 − ¾|.
    assert_close(moving.drift, 1.5, 1e-15);
}

// The sums of projections, the climb and the filter have a fixed order.
#[test]
fn threads_do_not_change_bytes() {
    use crate::math::testing::on_threads;
    use crate::methods::hmm::baum_welch::refine;
    let world = random_hidden(4, 30, 0.3, 9);
    let sequences = sample(&world, 200, 60, 9);
    let triples = windows(&sequences);
    let run = |threads: usize| {
        on_threads(threads, || {
            let projection = projection(Scaling::Cca, 4, &triples);
            let refined = refine(&SpectralHmm::new(4), &projection, 4, &sequences, 3);
            let refined = refined.expect("a fit");
            let scores = Filter::new(&refined.model, 0.01, 1e-12).scores(&sequences);
            (projection, refined, scores)
        })
    };
    let one = run(1);
    assert_eq!(one, run(3));
    assert!(one.2.iter().all(|score| score.log_likelihood < 0.0));
}

// Symbols 2 and 3 never follow anything, and symbol 1 is never a past: windows 0 0 1 and 2 0 1.
#[test]
fn symbols_at_one_place_of_windows_have_no_operator_of_their_own() {
    let list = vec![(0, 0, 1, 5.0), (2, 0, 1, 3.0), (0, 0, 0, 4.0)];
    let triples = Triples::new(1, 4, Triples::symbols_as_words(4), list);
    for scaling in BOTH {
        let model = projection(scaling, 1, &triples)
            .into_model(1)
            .expect("a rank");
        assert!(model.operators[1..].iter().all(|b| *b == 0.0));
        let filter = Filter::new(&model, 0.01, 1e-12);
        let score = filter.score(&[0, 1, 3, UNSEEN, 0]);
        assert!(score.log_likelihood.is_finite());
        assert_eq!((score.unseen, score.resets), (1, 3));
    }
}
