//! Hidden Markov models: `hmm/project`, `hmm/filter` and `hmm/iterations`.

use criterion::{Criterion, criterion_group, criterion_main};
use gyre::evidence::pass::Passes;
use gyre::evidence::symbols::Symbols;
use gyre::evidence::symbols::triples::Triples;
use gyre::methods::hmm::baum_welch::{climb, random_start};
use gyre::methods::hmm::filtering::Filter;
use gyre::methods::hmm::params::SpectralHmm;
use gyre::methods::hmm::project::project;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Sequences of a chain of groups of symbols: a group stays with probability 0.9, and a symbol is
/// of its group with probability 0.7.
fn grouped(n: usize, groups: usize, sequences: usize, length: usize) -> Symbols {
    let mut random = Pcg64::seed_from_u64(1);
    let size = n / groups;
    let mut all = Symbols::new(n);
    for _ in 0..sequences {
        let mut group = random.random_range(0..groups);
        let mut symbols = Vec::with_capacity(length);
        for _ in 0..length {
            if random.random::<f64>() > 0.9 {
                group = (group + 1) % groups;
            }
            let own = random.random::<f64>() < 0.7;
            let of = if own {
                group
            } else {
                random.random_range(0..groups)
            };
            symbols.push((of * size + random.random_range(0..size)) as u32);
        }
        all.push(&symbols);
    }
    all
}

fn counted(sequences: &Symbols) -> Triples {
    let windows = sequences.iter().flat_map(|symbols| symbols.windows(3));
    let list = windows.map(|w| (w[0], w[1], w[2], 1.0)).collect();
    let n = sequences.n_symbols;
    Triples::new(1, n, Triples::symbols_as_words(n), list)
}

fn hmm(c: &mut Criterion) {
    let mut group = c.benchmark_group("hmm");
    group.sample_size(10);
    let sequences = grouped(1000, 20, 1000, 1000);
    let triples = counted(&sequences);
    let params = SpectralHmm::new(20);
    let fit = || project(&params, 20, &triples, &Passes::local(), 1).expect("operators");
    group.bench_function("project/1000-symbols-rank-20", |b| b.iter(fit));
    let model = fit().into_model(20).expect("a model");
    let filter = Filter::new(&model, params.unigram, params.floor);
    group.bench_function("filter/1e6-rows-rank-20", |b| {
        b.iter(|| filter.total(&sequences))
    });
    let sequences = grouped(50, 5, 100, 300);
    let start = random_start(6, &[0.02; 50], 1);
    group.bench_function("iterations/10-of-30000-symbols-6-states", |b| {
        b.iter(|| climb(start.clone(), &sequences, 10, 0.0))
    });
    group.finish();
}

criterion_group!(benches, hmm);
criterion_main!(benches);
