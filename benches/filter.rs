//! Filters: `filter/kalman`, `filter/kernel-dense` and `filter/kernel-tensors`.

use criterion::{Criterion, criterion_group, criterion_main};
use gyre::evidence::observations::Observations;
use gyre::methods::FilterMethod;
use gyre::methods::filter::model::{Estimates, FilterModel, FitInput};
use gyre::methods::filter::params::{
    Bandwidth, Bandwidths, Kalman, KernelBayes, Regularisation, Rule,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Rows per call of a filter.
const BATCH: usize = 8192;

/// One sequence of the toy of the paper: a point on a circle, whose radius has eight waves.
fn toy(rows: usize) -> Observations {
    let mut random = Pcg64::seed_from_u64(1);
    // Uniform noise of variance .04.
    let mut noise = move || 0.2 * 3f64.sqrt() * random.random_range(-1.0..1.0);
    let (mut states, mut observations, mut angle) = (Vec::new(), Vec::new(), 0f64);
    for _ in 0..rows {
        let radius = 1.0 + (8.0 * angle).sin();
        states.extend([angle.cos(), angle.sin()]);
        observations.extend([
            radius * angle.cos() + noise(),
            radius * angle.sin() + noise(),
        ]);
        angle += 0.4 + noise();
    }
    let mut all = Observations::new(2, 2);
    all.push(&states, &observations);
    all
}

/// Two points that move on lines, of which the positions are observed.
fn moving() -> FilterMethod {
    let diagonal = |n: usize, value: f64| -> Vec<Vec<f64>> {
        let row = |i: usize| (0..n).map(|j| if i == j { value } else { 0.0 }).collect();
        (0..n).map(row).collect()
    };
    let mut steps = diagonal(4, 1.0);
    (steps[0][1], steps[2][3]) = (1.0, 1.0);
    FilterMethod::Kalman(Kalman {
        f: Some(steps),
        h: Some(vec![vec![1.0, 0.0, 0.0, 0.0], vec![0.0, 0.0, 1.0, 0.0]]),
        q: Some(diagonal(4, 0.01)),
        r: Some(diagonal(2, 0.25)),
        x0: Some(vec![0.0; 4]),
        p0: Some(diagonal(4, 1.0)),
        ..Kalman::default()
    })
}

fn kernel_bayes(rule: Rule) -> FilterMethod {
    let (state, observation) = (0.35, 0.25);
    FilterMethod::KernelBayes(KernelBayes {
        bandwidth: Bandwidth::Values(Bandwidths { state, observation }),
        lambda: Regularisation::Value(1e-3),
        rank_state: 30,
        rank_observation: 100,
        ..KernelBayes::new(rule)
    })
}

fn fit(method: &FilterMethod, rows: &Observations) -> FilterModel {
    let input = FitInput {
        rows,
        is_static: false,
        prior: None,
        supervision: None,
        dynamics: None,
    };
    method.fit(&input, 0).expect("a model").model
}

/// Filters one sequence. The sum of the log scores.
fn run(model: &FilterModel, observations: &[f64]) -> f64 {
    let (states, width) = model.widths();
    let (mut state, mut scratch) = (model.start(), model.scratch());
    let mut sum = 0.0;
    for batch in observations.chunks(BATCH * width) {
        let mut out = Estimates::new(states);
        model.push(&mut state, &mut scratch, batch, &|_| None, &mut out);
        sum += out
            .log_score
            .iter()
            .filter(|score| score.is_finite())
            .sum::<f64>();
    }
    sum
}

fn filter(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter");
    group.sample_size(10);
    let kalman = fit(&moving(), &Observations::new(4, 2));
    let whole = toy(1_000_000);
    group.bench_function("kalman/1e6-rows-4-states", |b| {
        b.iter(|| run(&kalman, &whole.observations))
    });
    let (short, new) = (toy(1_001), toy(20).observations);
    for rule in [Rule::Kbr, Rule::Pkbr] {
        let method = kernel_bayes(rule);
        let name = rule.name();
        group.bench_function(format!("kernel-dense/fit-1000-rows-{name}"), |b| {
            b.iter(|| fit(&method, &short))
        });
        let model = fit(&method, &short);
        group.bench_function(format!("kernel-dense/filter-20-rows-of-1000-{name}"), |b| {
            b.iter(|| run(&model, &new))
        });
    }
    let (method, long) = (kernel_bayes(Rule::Kbr), toy(100_001));
    group.bench_function("kernel-tensors/fit-1e5-rows", |b| {
        b.iter(|| fit(&method, &long))
    });
    let model = fit(&method, &long);
    let new = toy(1_000).observations;
    group.bench_function("kernel-tensors/filter-1000-rows", |b| {
        b.iter(|| run(&model, &new))
    });
    group.finish();
}

criterion_group!(benches, filter);
criterion_main!(benches);
