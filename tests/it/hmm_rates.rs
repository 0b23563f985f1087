//! How the error of a spectral hidden Markov model falls with the number of windows.

use crate::needs::is_slow;
use gyre::evidence::pass::Passes;
use gyre::evidence::symbols::triples::Triples;
use gyre::methods::hmm::model::{Hidden, HmmModel};
use gyre::methods::hmm::params::{Scaling, SpectralHmm};
use gyre::methods::hmm::project::project;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const SYMBOLS: u32 = 5;

/// Three states that follow each other mostly. T is symmetric up to its order, so the start is
/// uniform.
fn world() -> Hidden {
    let third = 1.0 / 3.0;
    Hidden {
        initial: vec![third; 3],
        transition: vec![0.7, 0.1, 0.2, 0.2, 0.7, 0.1, 0.1, 0.2, 0.7],
        emission: [
            [0.6, 0.1, 0.1],
            [0.1, 0.5, 0.1],
            [0.1, 0.1, 0.4],
            [0.1, 0.2, 0.3],
            [0.1, 0.1, 0.1],
        ]
        .concat(),
    }
}

fn words(length: u32) -> impl Iterator<Item = Vec<u32>> {
    (0..SYMBOLS.pow(length)).map(move |word| {
        let digits = (0..length).map(|at| word / SYMBOLS.pow(at) % SYMBOLS);
        digits.collect()
    })
}

fn triples(weight: impl Fn(usize) -> f64) -> Triples {
    let list = words(3).enumerate();
    let list = list.map(|(at, w)| (w[0], w[1], w[2], weight(at))).collect();
    let n = SYMBOLS as usize;
    Triples::new(1, n, Triples::symbols_as_words(n), list)
}

fn model(scaling: Scaling, rank: usize, triples: &Triples) -> HmmModel {
    let params = SpectralHmm {
        scaling,
        ..SpectralHmm::new(rank)
    };
    let projection = project(&params, rank, triples, &Passes::local(), 1);
    let projection = projection.expect("a projection");
    projection.into_model(rank).expect("a rank")
}

/// The mean L1 variational distance at t = 4 of models of `n` independent windows, over 20 samples.
fn mean_distance(scaling: Scaling, rank: usize, n: usize) -> f64 {
    let exact = world().model(vec![0.2; SYMBOLS as usize]);
    let probabilities: Vec<f64> = words(3).map(|word| exact.probability(&word)).collect();
    let ends: Vec<f64> = probabilities
        .iter()
        .scan(0.0, |sum, p| {
            *sum += p;
            Some(*sum)
        })
        .collect();
    let samples = 20;
    let mut total = 0.0;
    for seed in 0..samples {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut counts = vec![0.0; ends.len()];
        for _ in 0..n {
            let drawn = random.random::<f64>();
            let at = ends.partition_point(|end| *end <= drawn);
            counts[at.min(ends.len() - 1)] += 1.0;
        }
        let fitted = model(scaling, rank, &triples(|at| counts[at]));
        let gaps = words(4).map(|word| fitted.probability(&word) - exact.probability(&word));
        total += gaps.map(f64::abs).sum::<f64>();
    }
    total / samples as f64
}

// With k = m, the error of counted moments falls as N^{-1/2}. With k < m it has a plateau, the
// error of the rank with exact moments.
#[test]
fn errors_fall_with_the_root_of_the_number_of_windows_down_to_the_error_of_the_rank() {
    if !is_slow() {
        return;
    }
    let exact = world().model(vec![0.2; SYMBOLS as usize]);
    let probabilities: Vec<f64> = words(3).map(|word| exact.probability(&word)).collect();
    let moments = triples(|at| probabilities[at]);
    for scaling in [Scaling::None, Scaling::Cca] {
        let [few, some, many] =
            [100_000, 1_000_000, 10_000_000].map(|n| mean_distance(scaling, 3, n));
        for ratio in [few / some, some / many] {
            assert!((2.4..4.2).contains(&ratio), "{few} {some} {many}");
        }
        let low = model(scaling, 2, &moments);
        let gaps = words(4).map(|word| low.probability(&word) - exact.probability(&word));
        let plateau: f64 = gaps.map(f64::abs).sum();
        let many = mean_distance(scaling, 2, 10_000_000);
        assert!(plateau > 10.0 * mean_distance(scaling, 3, 10_000_000));
        assert!((many / plateau - 1.0).abs() < 0.05, "{many} {plateau}");
    }
}
