//! Kulesza, Rao, Singh, *Low-rank spectral learning*, AISTATS 2014, with exact moments.

use super::*;
use crate::math::dense;
use crate::methods::hmm::model::Warning;
use crate::methods::hmm::moments::Pairs;

// (7) to (10): the matrices of pairs of Figures 1 to 4.
#[test]
fn pairs_of_the_examples_are_those_of_the_paper() {
    let (e, d) = (0.1, 0.2);
    let third = 1.0 / 3.0;
    let cases = [
        (two_states(0.5), vec![0.0, 0.5, 0.5, 0.0]),
        (two_states(e), vec![0.0, e, 1.0 - e, 0.0]),
        (
            three_states(e, d),
            vec![0.0, e, 0.0, 1.0 - e - d, 0.0, 0.0, 0.0, 0.0, d],
        ),
        (
            cycle(e),
            vec![
                0.0,
                (1.0 - e) * third,
                e * third,
                third,
                (1.0 - e) * third,
                0.0,
                0.0,
                e * third,
                0.0,
            ],
        ),
    ];
    for (world, expected) in cases {
        let n = world.symbols();
        let triples = exact_triples(&world, 1);
        let mut pairs = vec![0.0; n * n];
        for (first, middle, _, weight) in triples.iter() {
            pairs[middle as usize * n + first as usize] += weight;
        }
        for (a, b) in pairs.iter().zip(expected) {
            assert_close(*a, b, 1e-15);
        }
    }
}

// (7): σ₁ = σ₂ = ½, so the first singular vector is arbitrary. Rank 2 is exact.
#[test]
fn example_7_has_equal_singular_values() {
    let world = two_states(0.5);
    let projection = projection(Scaling::None, 2, &exact_triples(&world, 1));
    assert_close(projection.spectrum[0], 0.5, 1e-15);
    assert_close(projection.spectrum[1], 0.5, 1e-15);
    let warnings = projection.warnings(1);
    assert!(matches!(
        warnings[..],
        [Warning::EqualValues { rank: 1, .. }]
    ));
    assert_eq!(projection.warnings(2), []);
    let model = projection.model(2).expect("a rank");
    for t in 1..8 {
        assert!(variational_distance(&model, &world, t) < 1e-13);
    }
    // The equal values are visible if the largest rank is the one that cuts.
    let cut = super::projection(Scaling::None, 1, &exact_triples(&world, 1));
    assert_eq!(cut.warnings(1).len(), 1);
}

// (7) with a little noise: the first singular vector is a unit vector, B₁ = B₂ = 0, and the L1
// variational distance of rank 1 is 1 for all t.
#[test]
fn example_7_with_a_little_noise_predicts_nothing() {
    for noise in [1e-3, 1e-5] {
        let world = two_states(0.5 - noise);
        let projection = projection(Scaling::None, 1, &exact_triples(&world, 1));
        let left = projection.left(1);
        // Rounding turns vectors by the inverse of the difference of the values, 2 · noise.
        let rounding = 1e-15 / noise;
        assert_close(left[0], 0.0, rounding);
        assert_close(left[1].abs(), 1.0, 1e-12);
        let model = projection.model(1).expect("a rank");
        assert!(model.operators.iter().all(|b| b.abs() < rounding));
        for t in 1..8 {
            assert_close(
                variational_distance(&model, &world, t),
                1.0,
                10.0 * rounding,
            );
        }
    }
}

// (8): σ = (1 − ε, ε). With rank 1, B₁ = B₂ = 0, and the L1 variational distance is 1 for all t.
#[test]
fn example_8_needs_a_small_singular_value() {
    for epsilon in [0.4, 0.1, 1e-3, 1e-6] {
        let world = two_states(epsilon);
        let projection = projection(Scaling::None, 2, &exact_triples(&world, 1));
        assert_close(projection.spectrum[0], 1.0 - epsilon, 1e-14);
        assert_close(projection.spectrum[1], epsilon, 1e-14);
        let one = projection.model(1).expect("a rank");
        assert!(one.operators.iter().all(|b| b.abs() < 1e-12));
        let two = projection.model(2).expect("a rank");
        for t in 1..8 {
            assert_close(variational_distance(&one, &world, t), 1.0, 1e-11);
            assert!(variational_distance(&two, &world, t) < 1e-11 / epsilon.sqrt());
        }
    }
}

// (9): with rank 2, the distance is δ if ε > δ. If δ > ε, the dummy state masks the alternating
// ones, and it is 1 − δ. Rank 3 is exact.
#[test]
fn example_9_has_a_dummy_state_that_masks_others() {
    for (epsilon, delta) in [(0.1, 0.01), (0.01, 0.1), (1e-3, 1e-2), (0.2, 0.1)] {
        let world = three_states(epsilon, delta);
        let projection = projection(Scaling::None, 3, &exact_triples(&world, 1));
        let mut sigma = [1.0 - epsilon - delta, epsilon, delta];
        sigma.sort_by(|a, b| b.total_cmp(a));
        for (a, b) in projection.spectrum.iter().zip(sigma) {
            assert_close(*a, b, 1e-14);
        }
        let two = projection.model(2).expect("a rank");
        let three = projection.model(3).expect("a rank");
        let masked = if epsilon > delta { delta } else { 1.0 - delta };
        for t in 2..7 {
            assert_close(variational_distance(&two, &world, t), masked, 1e-10);
            assert!(variational_distance(&three, &world, t) < 1e-10);
        }
    }
}

// §3.1: the examples are well-behaved with a stationary start. The dummy state of (9) is then
// omitted, and the distance is δ.
#[test]
fn example_9_is_good_with_a_stationary_start() {
    let delta = 0.1;
    let world = three_states(0.5 * (1.0 - delta), delta);
    let model = fitted(Scaling::None, 2, &world, 1);
    for t in 1..7 {
        assert_close(variational_distance(&model, &world, t), delta, 1e-12);
    }
}

// (10): σ₃ → 0 as ε → 0, and rank 2 gives distances of 4/3, 8/3, 4, 16/3 at t = 4, 5, 6, 8. Rank 3
// is exact.
#[test]
fn example_10_has_a_badly_conditioned_observation_matrix() {
    let world = cycle(1e-5);
    let model = fitted(Scaling::None, 2, &world, 1);
    for (t, distance) in [(4, 4.0), (5, 8.0), (6, 12.0), (8, 16.0)] {
        assert_close(
            variational_distance(&model, &world, t),
            distance / 3.0,
            2e-3,
        );
    }
    let world = cycle(0.01);
    let model = fitted(Scaling::None, 3, &world, 1);
    for t in 1..7 {
        assert!(variational_distance(&model, &world, t) < 1e-9);
    }
}

// §3.2, (10) with a dummy state: the model of rank 3 that ignores the dummy state has a distance of
// δ at every t. It is not found: σ₃ = δ is larger than σ₄, the value that the cycle needs, and the
// model of rank 3 is as wrong as that of rank 2 in (10).
#[test]
fn example_10_with_a_dummy_state_has_a_good_model_that_is_not_found() {
    let (epsilon, delta) = (1e-3, 0.05);
    let world = cycle_with_dummy(epsilon, delta);
    let third = (1.0 - delta) / 3.0;
    let mut good = cycle(epsilon);
    good.initial = vec![third; 3];
    good.emission.extend([0.0; 3]);
    let good = good.model(vec![0.25; 4]);
    let projection = projection(Scaling::None, 4, &exact_triples(&world, 1));
    assert_close(projection.spectrum[2], delta, 1e-12);
    assert_close(projection.spectrum[3], 3.16983e-7, 1e-11);
    let found = projection.model(3).expect("a rank");
    // From a model with numpy of the same formulas.
    let expected = [(4, 1.267_931_12), (5, 2.534_593_03), (6, 3.800_617_49)];
    for (t, distance) in expected {
        assert_close(variational_distance(&good, &world, t), delta, 1e-12);
        assert_close(variational_distance(&found, &world, t), distance, 1e-6);
    }
    // The first three steps, from which the model is made, hide the error.
    for t in 1..4 {
        assert!(variational_distance(&found, &world, t) < 2e-3);
    }
    let world = cycle_with_dummy(0.01, delta);
    let four = fitted(Scaling::None, 4, &world, 1);
    for t in 1..6 {
        assert!(variational_distance(&four, &world, t) < 1e-9);
    }
}

// Longer pasts and futures repair (10): σ₃ grows from 3.4e-5 to .327 at ε = .01.
#[test]
fn blocks_repair_example_10() {
    let world = cycle(0.01);
    let one = projection(Scaling::None, 3, &exact_triples(&world, 1));
    let two = projection(Scaling::None, 3, &exact_triples(&world, 2));
    assert_close(one.spectrum[2], 3.4e-5, 1e-6);
    assert_close(two.spectrum[2], 0.327, 1e-3);
    for scaling in BOTH {
        let model = fitted(scaling, 3, &world, 2);
        for t in 1..7 {
            assert!(variational_distance(&model, &world, t) < 1e-12);
        }
    }
}

// Lemma 1: b_∞ᵀB_x…b₁ = 1ᵀÂ_x…π̂ with Â_x = MA_x, π̂ = Mπ and M = O⁺UUᵀO, for any start.
#[test]
fn lemma_1_holds_at_every_rank() {
    let (m, n) = (4, 5);
    for seed in 0..5 {
        let mut world = random_hidden(m, n, 0.4, seed);
        if seed % 2 == 0 {
            world.initial = vec![0.4, 0.3, 0.2, 0.1];
        }
        let triples = exact_triples(&world, 1);
        let projection = projection(Scaling::None, m, &triples);
        let (_, left) = pairs_svd(&triples);
        let inverse = left_inverse(&world.emission, m);
        for k in 1..=m {
            // UUᵀO, then M.
            let mut projected = vec![0.0; n * m];
            for l in 0..k {
                for j in 0..m {
                    let along: f64 = (0..n)
                        .map(|i| left[i * n + l] * world.emission[i * m + j])
                        .sum();
                    for i in 0..n {
                        projected[i * m + j] += left[i * n + l] * along;
                    }
                }
            }
            let by_m = |v: &[f64]| -> Vec<f64> {
                let rows = projected.chunks_exact(m);
                let seen: Vec<f64> = rows.map(|row| dot(row, v)).collect();
                inverse.chunks_exact(n).map(|row| dot(row, &seen)).collect()
            };
            let model = projection.model(k).expect("a rank");
            for word in words(n, 3) {
                let mut state = by_m(&world.initial);
                for &x in &word {
                    state = by_m(&step(&world, x, &state));
                }
                let expected: f64 = state.iter().sum();
                assert_close(model.probability(&word), expected, 1e-8);
            }
        }
    }
}

// Theorem 1: with a stationary start, the distance is at most √m (√m/σ_min(O))^{t+3} σ_{k+1}.
#[test]
fn theorem_1_bounds_the_distance() {
    for seed in 0..12 {
        let m = 4 + seed as usize % 2;
        let n = m + 1;
        let own = 0.3 * (seed % 4) as f64;
        let world = random_hidden(m, n, own, 100 + seed);
        let smallest = smallest_value(&world.emission, m);
        let triples = exact_triples(&world, 1);
        let projection = projection(Scaling::None, m, &triples);
        let (values, _) = pairs_svd(&triples);
        let below = m.min(projection.rank + 1);
        for (k, omitted) in values.iter().enumerate().take(below).skip(1) {
            assert_close(projection.diagnostics(k).omitted, *omitted, 1e-10);
            let model = projection.model(k).expect("a rank");
            for t in 1..=4 {
                let root = (m as f64).sqrt();
                let bound = root * (root / smallest).powi(t + 3) * omitted;
                let distance = variational_distance(&model, &world, t as usize);
                assert!(distance <= bound * (1.0 + 1e-9), "{distance} {bound}");
            }
        }
    }
}

// Hsu et al. in §2: with k = m and exact moments, predictions are exact. The same for scaled
// operators and for blocks.
#[test]
fn full_rank_is_exact() {
    for scaling in BOTH {
        for seed in 0..4 {
            let world = random_hidden(3, 4, 0.6, 20 + seed);
            for block in [1, 2] {
                let model = fitted(scaling, 3, &world, block);
                for word in words(4, 4) {
                    assert_close(model.probability(&word), exact(&world, &word), 1e-13);
                }
            }
        }
    }
}

// (5): P₁ᵀ(UᵀP₂₁)⁺ is Uᵀ1 at every rank, as the left singular vectors span P₂₁(UᵀP₂₁)⁺ = U.
#[test]
fn final_vector_is_the_sum_of_left_vectors() {
    let world = random_hidden(4, 6, 0.3, 3);
    let triples = exact_triples(&world, 1);
    let (_, left) = pairs_svd(&triples);
    let projection = projection(Scaling::None, 4, &triples);
    assert_eq!(projection.rank, 4);
    for [past, future] in &projection.checked.last {
        assert_close(*past, *future, 1e-8);
    }
    let model = projection.model(4).expect("a rank");
    for (l, last) in model.last.iter().enumerate() {
        let sum: f64 = (0..6).map(|i| left[i * 6 + l]).sum();
        assert_close(last.abs(), sum.abs(), 1e-8);
    }
}

/// Singular values and left singular vectors of P₂₁, which is n × n.
fn pairs_svd(triples: &Triples) -> (Vec<f64>, Vec<f64>) {
    let n = triples.n_symbols;
    let pairs = Pairs::new(triples).expect("pairs");
    assert_eq!(pairs.shards.n_sources, n);
    let mut dense = vec![0.0; n * n];
    for (first, middle, _, weight) in triples.iter() {
        dense[middle as usize * n + first as usize] += weight;
    }
    let (values, left, _) = dense::square_svd(&dense, n);
    (values, left)
}
