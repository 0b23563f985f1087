//! Tests of all files of this folder together, with the worlds that they share.

mod baum_welch;
mod counted;
mod filter;
mod lemmas;
mod paper;

use crate::evidence::pass::Passes;
use crate::evidence::symbols::Symbols;
use crate::evidence::symbols::triples::Triples;
use crate::math::dense;
use crate::math::matrix::dot;
use crate::methods::hmm::model::{Hidden, HmmModel};
use crate::methods::hmm::params::{Scaling, SpectralHmm};
use crate::methods::hmm::project::{Projection, project};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A model from its start, the rows of T and the rows of O.
fn hidden(initial: &[f64], transition: &[&[f64]], emission: &[&[f64]]) -> Hidden {
    Hidden {
        initial: initial.to_vec(),
        transition: transition.concat(),
        emission: emission.concat(),
    }
}

/// Random columns that add up to 1, with `own` more on the diagonal.
fn random_columns(rows: usize, columns: usize, own: f64, random: &mut Pcg64) -> Vec<f64> {
    let mut entries = vec![0.0; rows * columns];
    for j in 0..columns {
        let drawn: Vec<f64> = (0..rows).map(|_| -random.random::<f64>().ln()).collect();
        let sum: f64 = drawn.iter().sum();
        for (i, x) in drawn.iter().enumerate() {
            let unit = if i == j { 1.0 } else { 0.0 };
            entries[i * columns + j] = (1.0 - own) * x / sum + own * unit;
        }
    }
    entries
}

/// A random model of m states and n symbols, which starts from its stationary distribution. With
/// `own` = 0, columns are uniform on the simplex.
fn random_hidden(m: usize, n: usize, own: f64, seed: u64) -> Hidden {
    let mut random = Pcg64::seed_from_u64(seed);
    let transition = random_columns(m, m, own, &mut random);
    let emission = random_columns(n, m, own, &mut random);
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

/// A_x v of a hidden Markov model: the chain shows a symbol, then goes on.
fn step(hidden: &Hidden, symbol: u32, state: &[f64]) -> Vec<f64> {
    let m = hidden.states();
    let row = &hidden.emission[symbol as usize * m..][..m];
    let joint: Vec<f64> = state.iter().zip(row).map(|(a, o)| a * o).collect();
    let rows = hidden.transition.chunks_exact(m);
    rows.map(|row| dot(row, &joint)).collect()
}

/// A_{x_t} … A_{x_1} π of a hidden Markov model.
fn belief(hidden: &Hidden, symbols: &[u32]) -> Vec<f64> {
    let start = hidden.initial.clone();
    let symbols = symbols.iter();
    symbols.fold(start, |state, &symbol| step(hidden, symbol, &state))
}

/// Pr(x₁, …, x_t) of a hidden Markov model, from the sum over all states (1).
fn exact(hidden: &Hidden, symbols: &[u32]) -> f64 {
    belief(hidden, symbols).iter().sum()
}

/// All words of `length` symbols, the last symbol changes first.
fn words(n: usize, length: usize) -> Vec<Vec<u32>> {
    (0..n.pow(length as u32))
        .map(|word| {
            let digit = |at: usize| word / n.pow((length - 1 - at) as u32) % n;
            (0..length).map(|at| digit(at) as u32).collect()
        })
        .collect()
}

/// The exact probabilities of all windows as weights of triples.
fn exact_triples(hidden: &Hidden, block: usize) -> Triples {
    let n = hidden.symbols();
    let id = |word: &[u32]| word.iter().fold(0, |id, x| id * n as u32 + x);
    let windows = words(n, 2 * block + 1);
    let list = windows.iter().map(|w| {
        let (first, last) = (id(&w[..block]), id(&w[block + 1..]));
        (first, w[block], last, exact(hidden, w))
    });
    Triples::new(block, n, words(n, block).concat(), list.collect())
}

/// Sequences of a hidden Markov model.
fn sample(hidden: &Hidden, n_sequences: usize, length: usize, seed: u64) -> Symbols {
    let (m, n) = (hidden.states(), hidden.symbols());
    let mut random = Pcg64::seed_from_u64(seed);
    let mut draw = |weight: &dyn Fn(usize) -> f64, n: usize| {
        let mut left = random.random::<f64>();
        (0..n - 1)
            .find(|&i| {
                left -= weight(i);
                left < 0.0
            })
            .unwrap_or(n - 1)
    };
    let mut sequences = Symbols::new(n);
    for _ in 0..n_sequences {
        let mut state = draw(&|i| hidden.initial[i], m);
        let mut symbols = Vec::with_capacity(length);
        for _ in 0..length {
            symbols.push(draw(&|x| hidden.emission[x * m + state], n) as u32);
            state = draw(&|i| hidden.transition[i * m + state], m);
        }
        sequences.push(&symbols);
    }
    sequences
}

/// The windows of all sequences with a block of 1.
fn windows(sequences: &Symbols) -> Triples {
    let lists = sequences.iter().flat_map(|symbols| symbols.windows(3));
    let list = lists.map(|w| (w[0], w[1], w[2], 1.0)).collect();
    let n = sequences.n_symbols;
    Triples::new(1, n, Triples::symbols_as_words(n), list)
}

fn params(scaling: Scaling) -> SpectralHmm {
    SpectralHmm {
        scaling,
        ..SpectralHmm::new(1)
    }
}

fn projection(scaling: Scaling, rank: usize, triples: &Triples) -> Projection {
    project(&params(scaling), rank, triples, &Passes::local(), 7).expect("a projection")
}

/// The model of a rank, fitted to all windows of a block as exact weights.
fn fitted(scaling: Scaling, rank: usize, hidden: &Hidden, block: usize) -> HmmModel {
    let triples = exact_triples(hidden, block);
    let projection = projection(scaling, rank, &triples);
    projection.model(rank).expect("a rank")
}

/// Σ |P̂r(x₁, …, x_t) − Pr(x₁, …, x_t)| over all words of t symbols (2).
fn variational_distance(model: &HmmModel, hidden: &Hidden, t: usize) -> f64 {
    let all = words(hidden.symbols(), t);
    let gaps = all
        .iter()
        .map(|word| (model.probability(word) - exact(hidden, word)).abs());
    gaps.sum()
}

/// O⁺ = (OᵀO)⁻¹Oᵀ of an n × m matrix: m × n.
fn left_inverse(emission: &[f64], m: usize) -> Vec<f64> {
    let n = emission.len() / m;
    let (values, left, right) = dense::square_svd(&gram(emission, m), m);
    let mut inverse = vec![0.0; m * n];
    for i in 0..m {
        for (x, row) in emission.chunks_exact(m).enumerate() {
            inverse[i * n + x] = (0..m)
                .map(|l| {
                    let along: f64 = (0..m).map(|j| left[j * m + l] * row[j]).sum();
                    right[i * m + l] * along / values[l]
                })
                .sum();
        }
    }
    inverse
}

/// σ_min(O) of an n × m matrix with n ≥ m.
fn smallest_value(emission: &[f64], m: usize) -> f64 {
    dense::square_svd(&gram(emission, m), m).0[m - 1].sqrt()
}

/// OᵀO of an n × m matrix.
fn gram(emission: &[f64], m: usize) -> Vec<f64> {
    let mut gram = vec![0.0; m * m];
    for row in emission.chunks_exact(m) {
        for i in 0..m {
            for j in 0..m {
                gram[i * m + j] += row[i] * row[j];
            }
        }
    }
    gram
}

/// Asserts that two numbers differ by at most `tolerance`.
#[track_caller]
fn assert_close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a:e} {b:e}");
}

const BOTH: [Scaling; 2] = [Scaling::None, Scaling::Cca];

const IDENTITY_2: [&[f64]; 2] = [&[1.0, 0.0], &[0.0, 1.0]];
const IDENTITY_3: [&[f64]; 3] = [&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0]];
const SWAP: [&[f64]; 2] = [&[0.0, 1.0], &[1.0, 0.0]];

/// Figure 2 of *Low-rank spectral learning*, and Figure 1 with ε = ½.
fn two_states(epsilon: f64) -> Hidden {
    hidden(&[1.0 - epsilon, epsilon], &SWAP, &IDENTITY_2)
}

/// Figure 3.
fn three_states(epsilon: f64, delta: f64) -> Hidden {
    let transition: [&[f64]; 3] = [&[0.0, 1.0, 0.0], &[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]];
    let initial = [1.0 - epsilon - delta, epsilon, delta];
    hidden(&initial, &transition, &IDENTITY_3)
}

/// Figure 4: the states 1, 2, 3 follow each other. State 3 shows symbol 2, and symbol 3 with
/// probability ε.
fn cycle(epsilon: f64) -> Hidden {
    let third = 1.0 / 3.0;
    let transition: [&[f64]; 3] = [&[0.0, 0.0, 1.0], &[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]];
    let emission: [&[f64]; 3] = [
        &[1.0, 0.0, 0.0],
        &[0.0, 1.0, 1.0 - epsilon],
        &[0.0, 0.0, epsilon],
    ];
    hidden(&[third, third, third], &transition, &emission)
}

/// [`cycle`] beside a dummy state, which shows symbol 4 with probability δ for ever.
fn cycle_with_dummy(epsilon: f64, delta: f64) -> Hidden {
    let share = (1.0 - delta) / 3.0;
    let transition: [&[f64]; 4] = [
        &[0.0, 0.0, 1.0, 0.0],
        &[1.0, 0.0, 0.0, 0.0],
        &[0.0, 1.0, 0.0, 0.0],
        &[0.0, 0.0, 0.0, 1.0],
    ];
    let emission: [&[f64]; 4] = [
        &[1.0, 0.0, 0.0, 0.0],
        &[0.0, 1.0, 1.0 - epsilon, 0.0],
        &[0.0, 0.0, epsilon, 0.0],
        &[0.0, 0.0, 0.0, 1.0],
    ];
    hidden(&[share, share, share, delta], &transition, &emission)
}
