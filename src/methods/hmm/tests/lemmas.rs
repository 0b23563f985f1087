//! Section 4 of Kulesza, Rao, Singh, *Low-rank spectral learning*, with exact moments: (4), (12),
//! the lemmas behind Theorem 1, and what they say about transition matrices of low rank and about
//! starts that are not stationary (section 5).

use super::*;
use crate::math::dense;

/// M = O⁺UUᵀO of Lemma 1 as two factors, from the U of a projection.
struct LowRank {
    /// UᵀO: k × m.
    down: Vec<f64>,
    /// O⁺U: m × k.
    up: Vec<f64>,
}

impl LowRank {
    fn new(world: &Hidden, projection: &Projection, k: usize) -> LowRank {
        let (m, n) = (world.states(), world.symbols());
        let left = projection.left(k);
        let inverse = left_inverse(&world.emission, m);
        let mut low = LowRank {
            down: vec![0.0; k * m],
            up: vec![0.0; m * k],
        };
        for l in 0..k {
            for i in 0..m {
                let along = |x: usize| left[x * k + l] * world.emission[x * m + i];
                low.down[l * m + i] = (0..n).map(along).sum();
                let back = |x: usize| inverse[i * n + x] * left[x * k + l];
                low.up[i * k + l] = (0..n).map(back).sum();
            }
        }
        low
    }

    /// M v.
    fn apply(&self, state: &[f64]) -> Vec<f64> {
        multiply(&self.up, &multiply(&self.down, state))
    }
}

/// A matrix, row-major, times a vector.
fn multiply(matrix: &[f64], v: &[f64]) -> Vec<f64> {
    let rows = matrix.chunks_exact(v.len());
    rows.map(|row| dot(row, v)).collect()
}

/// ‖a − b‖₂.
fn gap(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

/// B_{x_t} … B_{x_1} b₁ of a model.
fn state(model: &HmmModel, word: &[u32]) -> Vec<f64> {
    let start = model.initial.clone();
    let symbols = word.iter();
    symbols.fold(start, |state, &x| multiply(model.operator(x), &state))
}

/// The left sides of Lemmas 2 and 3 for words of t symbols.
///
/// With exact moments, Â_x…π̂ = O⁺U B_x…b₁ by (12), so Lemma 3 is about the states of the model.
fn sums_of_lemmas(world: &Hidden, projection: &Projection, k: usize, t: usize) -> [f64; 2] {
    let low = LowRank::new(world, projection, k);
    let model = projection.model(k).expect("a rank");
    let mut sums = [0.0; 2];
    for word in words(world.symbols(), t) {
        let after = belief(world, &word);
        sums[0] += gap(&low.apply(&after), &after);
        sums[1] += gap(&multiply(&low.up, &state(&model, &word)), &after);
    }
    sums
}

/// The right sides of Lemmas 2 and 3, from c = √m/σ_min(O) and σ_{k+1}.
fn bounds_of_lemmas(world: &Hidden, omitted: f64, t: usize) -> [f64; 2] {
    let m = world.states();
    let c = (m as f64).sqrt() / smallest_value(&world.emission, m);
    let powers = (2..=t as i32 + 2).map(|r| c.powi(r));
    [c * c * omitted, omitted * powers.sum::<f64>()]
}

/// Four states with five symbols, and a start that is stationary. Pr(y₂ = i, y₁ = j) has equal sums
/// of rows and columns: .30, .25, .25, .20.
fn four_states() -> Hidden {
    let joint = [
        [0.14, 0.04, 0.03, 0.09],
        [0.08, 0.11, 0.05, 0.01],
        [0.03, 0.08, 0.10, 0.04],
        [0.05, 0.02, 0.07, 0.06],
    ];
    let initial = [0.30, 0.25, 0.25, 0.20];
    let rows = joint.iter();
    let transition = rows.flat_map(|row| row.iter().zip(initial).map(|(p, start)| p / start));
    Hidden {
        initial: initial.to_vec(),
        transition: transition.collect(),
        emission: EMISSION.concat(),
    }
}

const EMISSION: [[f64; 4]; 5] = [
    [0.70, 0.10, 0.10, 0.05],
    [0.10, 0.60, 0.10, 0.05],
    [0.05, 0.10, 0.60, 0.10],
    [0.05, 0.10, 0.10, 0.70],
    [0.10, 0.10, 0.10, 0.10],
];

/// A ring of m states that are seen as they are. The next state is the following one, or with
/// probability `jump` any. σ = (1, 1 − jump, …)/m, and the first singular vector is constant.
fn ring(m: usize, jump: f64) -> Hidden {
    let mut world = Hidden {
        initial: vec![1.0 / m as f64; m],
        transition: vec![jump / m as f64; m * m],
        emission: vec![0.0; m * m],
    };
    for j in 0..m {
        world.transition[(j + 1) % m * m + j] += 1.0 - jump;
        world.emission[j * m + j] = 1.0;
    }
    world
}

// (4): [P_3x1] = O A_x T D_π Oᵀ, and so P₂₁ = Σ over the last symbol = O T D_π Oᵀ.
#[test]
fn equation_4_moments_follow_from_the_matrices() {
    for mut world in [random_hidden(3, 5, 0.2, 60), four_states()] {
        let (m, n) = (world.states(), world.symbols());
        world.initial[0] += 0.5;
        world.initial.iter_mut().for_each(|p| *p /= 1.5);
        let triples = exact_triples(&world, 1);
        assert_close(triples.total(), 1.0, 1e-14);
        for (first, x, last, weight) in triples.iter() {
            // T D_π Oᵀ of the first symbol, then O A_x.
            let seen = &world.emission[first as usize * m..][..m];
            let joint: Vec<f64> = world.initial.iter().zip(seen).map(|(p, o)| p * o).collect();
            let before = multiply(&world.transition, &joint);
            let row = &world.emission[last as usize * m..][..m];
            let expected = dot(row, &step(&world, x, &before));
            assert_close(weight, expected, 1e-15);
        }
        assert_eq!(triples.iter().count(), n * n * n);
    }
}

// (12): B_{x_t} … B_{x_1} b₁ = UᵀO A_{x_t} Â_{x_{t−1}} … Â_{x_1} π̂, for any start.
#[test]
fn equation_12_states_are_those_of_the_low_rank_operators() {
    for seed in 0..4 {
        let mut world = random_hidden(4, 5, 0.4, 40 + seed);
        if seed % 2 == 0 {
            world.initial = vec![0.1, 0.2, 0.3, 0.4];
        }
        let projection = projection(Scaling::None, 4, &exact_triples(&world, 1));
        for k in 1..=4 {
            let low = LowRank::new(&world, &projection, k);
            let model = projection.model(k).expect("a rank");
            for word in words(5, 3) {
                let mut after = low.apply(&world.initial);
                for &x in &word[..2] {
                    after = low.apply(&step(&world, x, &after));
                }
                let expected = multiply(&low.down, &step(&world, word[2], &after));
                for (a, b) in state(&model, &word).iter().zip(expected) {
                    assert_close(*a, b, 1e-8);
                }
            }
        }
    }
}

// Lemmas 2 and 3 for random worlds with a stationary start, at every rank and up to four steps.
// t = 0 is the base case of Lemma 3, ‖π̂ − π‖₂ ≤ c σ_{k+1} (42), and stricter than the lemma.
#[test]
fn lemmas_2_and_3_bound_the_states() {
    for seed in 0..8 {
        let m = 4 + seed as usize % 2;
        let world = random_hidden(m, m + 1, 0.3 * (seed % 4) as f64, 100 + seed);
        let projection = projection(Scaling::None, m, &exact_triples(&world, 1));
        for k in 1..m.min(projection.rank + 1) {
            let omitted = projection.diagnostics(k).omitted;
            for t in 0..=4 {
                let found = sums_of_lemmas(&world, &projection, k, t);
                let most = bounds_of_lemmas(&world, omitted, t);
                if t > 0 {
                    assert!(found[0] <= most[0] * (1.0 + 1e-9), "{found:?} {most:?}");
                }
                assert!(found[1] <= most[1] * (1.0 + 1e-9), "{found:?} {most:?}");
            }
            let start = sums_of_lemmas(&world, &projection, k, 0)[1];
            let c = (m as f64).sqrt() / smallest_value(&world.emission, m);
            assert!(start <= c * omitted * (1.0 + 1e-9), "{start} {omitted}");
        }
    }
}

// (27) to (31): Σ ‖D_π⁻¹ D_{x_t} A_{x_{t−1}} … A_{x_1} π‖₁ = m, as the chain stays stationary. (32)
// to (35): ‖MTD_π − TD_π‖₂ ≤ σ_min⁻²(O) ‖UUᵀP₂₁ − P₂₁‖₂, which is σ_min⁻²(O) σ_{k+1}.
#[test]
fn equations_25_to_35_are_the_two_factors_of_lemma_2() {
    for world in [four_states(), random_hidden(4, 4, 0.3, 70)] {
        let (m, n) = (world.states(), world.symbols());
        for t in 1..=4 {
            let mut sum = 0.0;
            for word in words(n, t) {
                let before = belief(&world, &word[..t - 1]);
                let row = &world.emission[word[t - 1] as usize * m..][..m];
                let terms = row.iter().zip(before).zip(&world.initial);
                sum += terms.map(|((o, b), p)| o * b / p).sum::<f64>();
            }
            assert_close(sum, m as f64, 1e-11);
        }
        let projection = projection(Scaling::None, m, &exact_triples(&world, 1));
        let smallest = smallest_value(&world.emission, m);
        for k in 1..m {
            let low = LowRank::new(&world, &projection, k);
            // The columns of MTD_π − TD_π.
            let mut lost = vec![0.0; m * m];
            for j in 0..m {
                let moved = |i: usize| world.transition[i * m + j] * world.initial[j];
                let moved: Vec<f64> = (0..m).map(moved).collect();
                for (i, (a, b)) in low.apply(&moved).iter().zip(&moved).enumerate() {
                    lost[i * m + j] = a - b;
                }
            }
            let norm = dense::square_svd(&lost, m).0[0];
            let most = projection.spectrum[k] / (smallest * smallest);
            assert!(norm > 0.0 && norm <= most * (1.0 + 1e-9), "{norm} {most}");
        }
    }
}

// The shares of the bounds that the left sides of Lemmas 2 and 3 take. Lemma 2 stays at a quarter
// for all t. Lemma 3 falls with t, because its bound grows by c = 4.03 per step.
#[test]
fn lemmas_2_and_3_have_these_ratios_in_a_world_of_four_states() {
    let world = four_states();
    let projection = projection(Scaling::None, 4, &exact_triples(&world, 1));
    // From numpy, by M A_x and not by the states of the model: k, then t = 1, …, 4.
    let lemma_2 = [
        [0.265_305, 0.273_745, 0.274_082, 0.274_106],
        [0.217_254, 0.223_043, 0.223_135, 0.223_136],
        [0.229_692, 0.230_332, 0.230_332, 0.230_332],
    ];
    let lemma_3 = [
        [0.052_742_7, 0.015_222_8, 0.004_149_53, 0.001_113_81],
        [0.043_165_7, 0.012_370_0, 0.003_479_15, 0.000_949_468],
        [0.045_604_7, 0.013_020_3, 0.003_618_32, 0.000_979_987],
    ];
    for (k, expected) in (1..4).zip(lemma_2.iter().zip(lemma_3)) {
        let omitted = projection.spectrum[k];
        for (t, (two, three)) in (1..5).zip(expected.0.iter().zip(expected.1)) {
            let found = sums_of_lemmas(&world, &projection, k, t);
            let most = bounds_of_lemmas(&world, omitted, t);
            assert_close(found[0] / most[0], *two, 1e-6);
            assert_close(found[1] / most[1], three, 1e-7);
        }
    }
}

// (60) to (63): the distance is at most √m times the sum of Lemma 3, and Theorem 1 rounds the sum
// of powers up. As σ_min(O) > √m/n, the bound grows more slowly than the number of sequences.
#[test]
fn equations_60_to_63_lead_from_lemma_3_to_theorem_1() {
    let world = four_states();
    let projection = projection(Scaling::None, 4, &exact_triples(&world, 1));
    let smallest = smallest_value(&world.emission, 4);
    assert_close(smallest, 0.496_486, 1e-6);
    assert!(smallest > 2.0 / 5.0);
    let mut largest: f64 = 0.0;
    for k in 1..4 {
        let omitted = projection.spectrum[k];
        let model = projection.model(k).expect("a rank");
        let theorem = |t: i32| 2.0 * (2.0 / smallest).powi(t + 3) * omitted;
        for t in 1..=4 {
            let distance = variational_distance(&model, &world, t);
            let sum = sums_of_lemmas(&world, &projection, k, t)[1];
            let bound = bounds_of_lemmas(&world, omitted, t)[1];
            let steps = [distance, 2.0 * sum, 2.0 * bound, theorem(t as i32)];
            assert!(steps.is_sorted(), "{steps:?}");
            assert!(theorem(t as i32 + 1) < 5.0 * theorem(t as i32));
            largest = largest.max(distance / theorem(t as i32));
        }
    }
    // From numpy: rank 1 at t = 2.
    assert_close(largest, 0.002_12, 1e-5);
}

// The ring with rank 1: M averages over all states, so (M − I)T D_π has columns of the length
// (1 − jump)√(1 − 1/m)/m. The sum of Lemma 2 is (1 − jump)√(1 − 1/m), and its bound is 1 − jump:
// for many states the lemma cannot be improved.
//
// Predictions of Lemma 3 are m^{−t} times the constant. A word of t symbols with f following ones
// has the probability p = q^f r^{t−1−f}/m with r = jump/m and q = 1 − jump + r.
#[test]
fn lemma_2_is_nearly_attained_by_a_ring() {
    for (m, jump, lengths) in [(4, 0.2, 1..5), (4, 0.5, 1..5), (16, 0.5, 1..3)] {
        let world = ring(m, jump);
        let projection = projection(Scaling::None, 1, &exact_triples(&world, 1));
        let n = m as f64;
        assert_close(projection.spectrum[0], 1.0 / n, 1e-12);
        assert_close(projection.spectrum[1], (1.0 - jump) / n, 1e-12);
        let (r, q) = (jump / n, 1.0 - jump + jump / n);
        for t in lengths {
            let found = sums_of_lemmas(&world, &projection, 1, t);
            let most = bounds_of_lemmas(&world, projection.spectrum[1], t);
            assert_close(most[0], 1.0 - jump, 1e-12);
            assert_close(found[0] / most[0], (1.0 - 1.0 / n).sqrt(), 1e-10);
            let mut sum = 0.0;
            let mut choices = 1.0;
            for f in 0..t {
                let others = (t - 1 - f) as i32;
                let p = q.powi(f as i32) * r.powi(others) / n;
                let mean = n.powi(-(t as i32) - 1);
                let square = (n - 1.0) * (mean - p * r).powi(2) + (mean - p * q).powi(2);
                sum += n * choices * (n - 1.0).powi(others) * square.sqrt();
                choices *= (t - 1 - f) as f64 / (f + 1) as f64;
            }
            assert_close(found[1], sum, 1e-10);
        }
    }
}

// Lemma 2 needs a stationary start. In (8) with rank 1, the second step of almost all sequences
// leads to the state that M removes: 1 − ε, and the bound would be 2ε.
#[test]
fn lemma_2_needs_a_stationary_start() {
    for epsilon in [0.1, 1e-3] {
        let world = two_states(epsilon);
        let projection = projection(Scaling::None, 1, &exact_triples(&world, 1));
        let omitted = projection.spectrum[1];
        assert_close(
            bounds_of_lemmas(&world, omitted, 2)[0],
            2.0 * epsilon,
            1e-12,
        );
        let first = sums_of_lemmas(&world, &projection, 1, 1)[0];
        let second = sums_of_lemmas(&world, &projection, 1, 2)[0];
        assert_close(first, epsilon, 1e-12);
        assert_close(second, 1.0 - epsilon, 1e-12);
    }
}

/// Four states with a transition matrix of rank 2, T = RS. Its stationary start is R(34, 35)/69.
fn rank_two() -> Hidden {
    let to: [[f64; 2]; 4] = [[0.4, 0.1], [0.3, 0.2], [0.2, 0.2], [0.1, 0.5]];
    let from = [[0.9, 0.8, 0.2, 0.1], [0.1, 0.2, 0.8, 0.9]];
    let entry = |i: usize, j: usize| to[i][0] * from[0][j] + to[i][1] * from[1][j];
    let start = to.iter().map(|row| (row[0] * 34.0 + row[1] * 35.0) / 69.0);
    Hidden {
        initial: start.collect(),
        transition: (0..16).map(|at| entry(at / 4, at % 4)).collect(),
        emission: EMISSION.concat(),
    }
}

// §4 (Siddiqi et al. 2010): zeros of the spectrum of P₂₁ that come from T can be left out. A larger
// rank is an error that names the numerical rank, which is that of T.
#[test]
fn a_transition_matrix_of_low_rank_needs_no_more_rank() {
    let world = rank_two();
    for scaling in BOTH {
        let projection = projection(scaling, 4, &exact_triples(&world, 1));
        assert_eq!(projection.rank, 2);
        assert!(projection.spectrum[2] < 1e-13, "{:?}", projection.spectrum);
        let model = projection.model(2).expect("a rank");
        for t in 1..=5 {
            assert!(variational_distance(&model, &world, t) < 1e-12);
        }
        let error = projection.model(3).expect_err("a rank that is too large");
        let message = "rank 3 is above the numerical rank 2";
        assert!(error.full().contains(message), "{}", error.full());
    }
    // One value less is an error of Theorem 1.
    let one = fitted(Scaling::None, 1, &world, 1);
    assert_close(variational_distance(&one, &world, 3), 0.177_030, 1e-6);
}

// The same matrices with a start outside the range of T: M removes a part of π, so the predictions
// of rank 2 are wrong although all omitted values are 0. A start in the range, R(1, 0), is enough.
#[test]
fn a_transition_matrix_of_low_rank_needs_a_start_in_its_range() {
    let mut world = rank_two();
    world.initial = vec![0.7, 0.1, 0.1, 0.1];
    let plain = fitted(Scaling::None, 2, &world, 1);
    let scaled = fitted(Scaling::Cca, 2, &world, 1);
    for (t, distance) in (1..5).zip([0.357_579, 0.358_242, 0.358_266, 0.358_267]) {
        assert_close(variational_distance(&plain, &world, t), 0.363_913, 1e-6);
        assert_close(variational_distance(&scaled, &world, t), distance, 1e-6);
    }
    world.initial = vec![0.4, 0.3, 0.2, 0.1];
    for scaling in BOTH {
        let model = fitted(scaling, 2, &world, 1);
        assert!(variational_distance(&model, &world, 4) < 1e-12);
    }
}

/// The world of which the windows at all of the first `steps` positions are counted alike: it
/// starts from the mean of π, Tπ, T²π, ….
fn at_all_steps(world: &Hidden, steps: usize) -> Hidden {
    let m = world.states();
    let (mut now, mut mean) = (world.initial.clone(), vec![0.0; m]);
    for _ in 0..steps {
        for (mean, p) in mean.iter_mut().zip(&now) {
            *mean += p / steps as f64;
        }
        now = multiply(&world.transition, &now);
    }
    Hidden {
        initial: mean,
        ..world.clone()
    }
}

// §5: moments of all steps in place of the first three. The world is (9) with states that mix and
// symbols that are wrong at 2 % of the rows; δ = .01 masks ε = .001, so rank 2 of the first steps
// loses the state that every second row is in. Two steps are nearly enough, and the distance tends
// to that of the stationary start as 1/steps.
#[test]
fn section_5_moments_of_all_steps_repair_a_start_that_is_not_stationary() {
    let transition: [&[f64]; 3] = [
        &[0.05, 0.949, 0.05],
        &[0.949, 0.05, 0.05],
        &[0.001, 0.001, 0.9],
    ];
    let emission: [&[f64]; 3] = [
        &[0.98, 0.01, 0.01],
        &[0.01, 0.98, 0.01],
        &[0.01, 0.01, 0.98],
    ];
    let world = hidden(&[0.989, 0.001, 0.01], &transition, &emission);
    // From numpy: steps, the distances at t = 2 and t = 5, and the drift of the windows.
    let expected = [
        (1, [1.055_379, 1.047_614, 0.183_83]),
        (2, [0.011_227, 0.014_019, 0.009_30]),
        (10, [0.011_195, 0.013_988, 0.006_35]),
        (1000, [0.011_127, 0.013_920, 0.000_10]),
    ];
    for (steps, [two, five, drift]) in expected {
        let world = at_all_steps(&world, steps);
        let projection = projection(Scaling::None, 2, &exact_triples(&world, 1));
        let model = projection.model(2).expect("a rank");
        assert_close(variational_distance(&model, &world, 2), two, 1e-6);
        assert_close(variational_distance(&model, &world, 5), five, 1e-6);
        assert_close(projection.drift, drift, 1e-5);
        // Σ (p_s − p_{s+2}) has four terms that are left.
        assert!(projection.drift <= 4.0 / steps as f64);
    }
}

// §5 and its footnote: the moments need no mixing. States of (9) alternate for ever, and an even
// number of steps has a start that is stationary exactly, with a distance of δ for 1 − δ. The drift
// compares the first and the third symbol, so it does not show a period of two.
#[test]
fn section_5_needs_no_mixing() {
    let (epsilon, delta) = (1e-3, 1e-2);
    let world = three_states(epsilon, delta);
    for (steps, distance) in [(1, 1.0 - delta), (2, delta), (3, delta), (100, delta)] {
        let world = at_all_steps(&world, steps);
        let projection = projection(Scaling::None, 2, &exact_triples(&world, 1));
        let model = projection.model(2).expect("a rank");
        for t in 2..6 {
            assert_close(variational_distance(&model, &world, t), distance, 1e-10);
        }
        assert_close(projection.drift, 0.0, 1e-14);
    }
}
