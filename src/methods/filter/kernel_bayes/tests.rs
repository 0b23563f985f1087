//! Closed forms of kernel Bayes' rule. Equations are those of Song, Zhu, Ren, *Kernel Bayesian
//! inference with posterior regularization*.

use crate::evidence::observations::{Observations, Prior, Supervision};
use crate::evidence::pass::packed::{pack, unpack};
use crate::math::seed;
use crate::math::testing::{close, on_threads, says};
use crate::methods::filter::expression::{Binary, Expression, Unary};
use crate::methods::filter::fit::{Dynamics, Estimates, Factor, FitInput};
use crate::methods::filter::kernel_bayes::{KernelModel, fit, of_factors};
use crate::methods::filter::params::{
    Bandwidth, Bandwidths, Decode, Kernel as Form, KernelBayes, Regularisation, Rule,
    SupervisionRows,
};
use faer::Mat;
use faer::linalg::solvers::Solve;

/// Parameters with numbers for all constants.
fn params(rule: Rule, [state, observation]: [f64; 2], lambda: f64, delta: f64) -> KernelBayes {
    KernelBayes {
        bandwidth: Bandwidth::Values(Bandwidths { state, observation }),
        lambda: Regularisation::Value(lambda),
        delta: Some(delta),
        decode: Decode::Mean,
        ..KernelBayes::new(rule)
    }
}

fn input<'a>(rows: &'a Observations, prior: Option<&'a Prior>) -> FitInput<'a> {
    FitInput {
        rows,
        is_static: prior.is_some(),
        prior,
        supervision: None,
        dynamics: None,
    }
}

/// Independent rows of one number each.
fn independent(rows: &[(f64, f64)]) -> Observations {
    let mut all = Observations::new(1, 1);
    rows.iter().for_each(|(y, x)| all.push(&[*y], &[*x]));
    all
}

fn fitted(params: &KernelBayes, input: &FitInput<'_>) -> KernelModel {
    fit(params, input, 7).expect("a model").model
}

fn filtered(model: &KernelModel, observations: &[f64]) -> Estimates {
    let mut out = Estimates::new(model.widths().0);
    let (mut state, mut scratch) = (model.start(), model.scratch());
    model.push(&mut state, &mut scratch, observations, &|_| None, &mut out);
    out
}

/// Numbers between 0 and 1.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut at = 0;
    move || {
        at += 1;
        (seed::mixed(seed ^ seed::mixed(at)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Numbers of a normal distribution.
fn normal(seed: u64) -> impl FnMut() -> f64 {
    let mut uniform = random(seed);
    move || {
        let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * uniform()).cos()
    }
}

/// y' = a y + noise of variance q, x = y + noise of variance r.
fn linear(n: usize, [a, q, r]: [f64; 3], seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut noise = normal(seed);
    let mut y = noise() * (q / (1.0 - a * a)).sqrt();
    let (mut states, mut observations) = (Vec::new(), Vec::new());
    for _ in 0..n {
        states.push(y);
        observations.push(y + r.sqrt() * noise());
        y = a * y + q.sqrt() * noise();
    }
    (states, observations)
}

fn trained(n: usize, seed: u64) -> Observations {
    let (states, observations) = linear(n, [0.9, 0.25, 0.5], seed);
    let mut rows = Observations::new(1, 1);
    rows.push(&states, &observations);
    rows
}

// Rows (y, x): N_xy = [[2, 1], [1, 3]] for x = 0, 1 and y = 0, 1. Prior (.3, .7), n λ = .7.
#[test]
fn delta_kernels_give_bayes_rule() {
    let counts = [(0.0, 0.0, 2), (1.0, 0.0, 1), (0.0, 1.0, 1), (1.0, 1.0, 3)];
    let rows = counts.iter().flat_map(|&(y, x, n)| vec![(y, x); n]);
    let rows = independent(&rows.collect::<Vec<_>>());
    let prior = Prior {
        states: vec![0.0, 1.0],
        weights: vec![0.3, 0.7],
    };
    let delta = 0.05;
    for rule in [Rule::Kbr, Rule::Pkbr] {
        let params = KernelBayes {
            kernel: Form::Delta,
            ..params(rule, [1.0, 1.0], 0.1, delta)
        };
        let model = fitted(&params, &input(&rows, Some(&prior)));
        for x in [0.0, 1.0] {
            let of = |y: f64| {
                let own = counts.iter().filter(|c| c.0 == y);
                let total: usize = own.clone().map(|c| c.2).sum();
                let here: usize = own.filter(|c| c.1 == x).map(|c| c.2).sum();
                let share = if y == 0.0 { 0.3 } else { 0.7 };
                share * here as f64 / (total as f64 + 0.7)
            };
            let q = of(0.0) + of(1.0);
            let f = match rule {
                Rule::Kbr => q / (q * q + delta),
                _ => 1.0 / (q + delta),
            };
            let weights = model.posterior_weights(&[x]);
            let mass = |y: f64| -> f64 {
                let own = rows.states.iter().zip(&weights).filter(|(s, _)| **s == y);
                own.map(|(_, w)| w).sum()
            };
            close(&[mass(0.0), mass(1.0)], &[of(0.0) * f, of(1.0) * f], 1e-14);
            let found = filtered(&model, &[x]);
            close(&found.mean, &[of(1.0) / q], 1e-14);
            let mass = 0.3 * 3.0 / 3.7 + 0.7 * 4.0 / 4.7;
            close(&found.log_score, &[(q / mass).ln()], 1e-13);
        }
    }
}

// The chain of the counted transitions and the symbols of the rows with a successor.
#[test]
fn delta_kernels_without_regularisation_are_the_forward_algorithm() {
    let mut uniform = random(3);
    let transition = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]];
    let emission = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]];
    let mut draw = |p: &[f64]| {
        let mut left = uniform();
        p.iter().position(|p| {
            left -= p;
            left < 0.0
        })
    };
    let (mut y, mut states, mut observations) = (0, Vec::new(), Vec::new());
    for _ in 0..400 {
        states.push(y as f64);
        observations.push(draw(&emission[y]).unwrap_or(1) as f64);
        y = draw(&transition[y]).unwrap_or(2);
    }
    let mut rows = Observations::new(1, 1);
    rows.push(&states, &observations);
    let (mut t, mut o, mut start) = ([[0.0; 3]; 3], [[0.0; 2]; 3], [0.0; 3]);
    for at in 0..399 {
        let [y, next, x] = [states[at], states[at + 1], observations[at]].map(|n| n as usize);
        t[y][next] += 1.0;
        o[y][x] += 1.0;
        start[y] += 1.0;
    }
    for rule in [Rule::Kbr, Rule::Pkbr] {
        let small = 1e-6;
        let delta = if rule == Rule::Kbr {
            small * small
        } else {
            small
        };
        let params = KernelBayes {
            kernel: Form::Delta,
            ..params(rule, [1.0, 1.0], small, delta)
        };
        let model = fitted(&params, &input(&rows, None));
        let seen: Vec<f64> = (0..40)
            .map(|at| f64::from(u8::from(at % 3 == 0 || at % 7 == 2)))
            .collect();
        let found = filtered(&model, &seen);
        let mut p = start.map(|n| n / 399.0);
        for (at, x) in seen.iter().enumerate() {
            if at > 0 {
                let row = |y: usize| -> f64 { (0..3).map(|z| p[z] * t[z][y] / start[z]).sum() };
                p = [row(0), row(1), row(2)];
            }
            let joint: [f64; 3] = std::array::from_fn(|y| p[y] * o[y][*x as usize] / start[y]);
            let total: f64 = joint.iter().sum();
            p = joint.map(|j| j / total);
            let exact = p[1] + 2.0 * p[2];
            let found = [found.mean[at], found.log_score[at]];
            close(&found, &[exact, total.ln()], 2e-5);
        }
    }
}

/// Six rows, and the kernel of their observations with bandwidth 0.8.
fn six() -> (Observations, Mat<f64>, impl Fn(f64) -> Mat<f64>) {
    let rows = [
        (0.1, 0.3),
        (0.9, 1.2),
        (1.4, 0.8),
        (-0.5, -0.2),
        (0.4, 0.9),
        (1.1, 1.9),
    ];
    let xs = rows.map(|row| row.1);
    let k = |a: f64, b: f64| (-(a - b) * (a - b) / (2.0 * 0.8 * 0.8)).exp();
    let gram = Mat::from_fn(6, 6, |i, j| k(xs[i], xs[j]));
    let column = move |x: f64| Mat::from_fn(6, 1, |i, _| k(xs[i], x));
    (independent(&rows), gram, column)
}

/// β = (G + nλ)⁻¹ G̃α̃, Proposition 1.
fn printed_prior(rows: &Observations, prior: &Prior, h: f64, lambda: f64) -> Mat<f64> {
    let n = rows.len();
    let k = |a: f64, b: f64| (-(a - b) * (a - b) / (2.0 * h * h)).exp();
    let g = Mat::from_fn(n, n, |i, j| {
        let own = if i == j { n as f64 * lambda } else { 0.0 };
        k(rows.states[i], rows.states[j]) + own
    });
    let right = Mat::from_fn(n, 1, |i, _| {
        let terms = prior.states.iter().zip(&prior.weights);
        terms.map(|(y, w)| w * k(rows.states[i], *y)).sum()
    });
    g.partial_piv_lu().solve(&right)
}

fn prior() -> Prior {
    Prior {
        states: vec![0.0, 0.8, 1.5],
        weights: vec![0.5, 0.3, 0.2],
    }
}

#[test]
fn weights_are_those_of_the_printed_formulas() {
    let (rows, k, column) = six();
    let (lambda, delta) = (0.005, 0.03);
    let prior = prior();
    let beta = printed_prior(&rows, &prior, 0.4, lambda);
    assert!((0..6).any(|i| beta[(i, 0)] < 0.0));
    for x in [0.2, 1.0, 2.5] {
        let kx = column(x);
        // DK((DK)² + δI)⁻¹Dk.
        let dk = Mat::from_fn(6, 6, |i, j| beta[(i, 0)] * k[(i, j)]);
        let mut squared = &dk * &dk;
        (0..6).for_each(|i| squared[(i, i)] += delta);
        let right = Mat::from_fn(6, 1, |i, _| beta[(i, 0)] * kx[(i, 0)]);
        let kbr = &dk * squared.partial_piv_lu().solve(&right);
        // (8): (K + δΛ⁺)⁻¹k on β > 0, which is kernel ridge regression with sample weights.
        let own: Vec<usize> = (0..6).filter(|i| beta[(*i, 0)] > 0.0).collect();
        let system = Mat::from_fn(own.len(), own.len(), |i, j| {
            let own_noise = || delta / beta[(own[i], 0)];
            k[(own[i], own[j])] + if i == j { own_noise() } else { 0.0 }
        });
        let right = Mat::from_fn(own.len(), 1, |i, _| kx[(own[i], 0)]);
        let solved = system.partial_piv_lu().solve(&right);
        let mut pkbr = vec![0.0; 6];
        let places = own.iter().enumerate();
        places.for_each(|(at, i)| pkbr[*i] = solved[(at, 0)]);
        let kbr: Vec<f64> = (0..6).map(|i| kbr[(i, 0)]).collect();
        for (rule, expected) in [(Rule::Kbr, kbr), (Rule::Pkbr, pkbr)] {
            let params = params(rule, [0.4, 0.8], lambda, delta);
            let model = fitted(&params, &input(&rows, Some(&prior)));
            close(&model.posterior_weights(&[x]), &expected, 1e-11);
            let found = filtered(&model, &[x]);
            let sum: f64 = expected.iter().sum();
            let mean: f64 = expected.iter().zip(&rows.states).map(|(w, y)| w * y).sum();
            close(&found.weight_sum, &[sum], 1e-11);
            close(&found.mean, &[mean / sum], 1e-11);
        }
    }
}

// (11): rows of supervision have the noise δ/μ.
#[test]
fn supervision_is_rows_with_a_weight_of_their_own() {
    let (rows, k, column) = six();
    let (lambda, delta, mu) = (0.02, 0.03, 0.4);
    let prior = prior();
    let beta = printed_prior(&rows, &prior, 0.6, lambda);
    let params = KernelBayes {
        mu,
        ..params(Rule::Kregbayes, [0.6, 0.8], lambda, delta)
    };
    let supervision = Supervision {
        states: vec![3.0],
        observations: vec![1.0],
    };
    let mut own: Vec<usize> = (0..6).filter(|i| beta[(*i, 0)] > 0.0).collect();
    own.push(6);
    let of_supervision = column(1.0);
    let entry = |i: usize, j: usize| match (i, j) {
        (6, 6) => 1.0,
        (6, j) => of_supervision[(j, 0)],
        (i, 6) => of_supervision[(i, 0)],
        (i, j) => k[(i, j)],
    };
    let system = Mat::from_fn(own.len(), own.len(), |i, j| {
        let weight = if own[i] == 6 { mu } else { beta[(own[i], 0)] };
        entry(own[i], own[j]) + if i == j { delta / weight } else { 0.0 }
    });
    let kx = column(1.3);
    let at_supervision = (-0.3f64 * 0.3 / (2.0 * 0.8 * 0.8)).exp();
    let right = Mat::from_fn(own.len(), 1, |i, _| match own[i] {
        6 => at_supervision,
        i => kx[(i, 0)],
    });
    let weights = system.partial_piv_lu().solve(&right);
    let sum: f64 = (0..own.len()).map(|i| weights[(i, 0)]).sum();
    let state = |i: usize| if i == 6 { 3.0 } else { rows.states[i] };
    let terms = own.iter().enumerate();
    let mean: f64 = terms.map(|(at, i)| weights[(at, 0)] * state(*i)).sum();
    // At every step, or at this step.
    let supervised = FitInput {
        supervision: Some(&supervision),
        ..input(&rows, Some(&prior))
    };
    let every = fitted(&params, &supervised);
    let single = fitted(&params, &input(&rows, Some(&prior)));
    let mut out = Estimates::new(1);
    let (mut start, mut scratch) = (single.start(), single.scratch());
    let at = |_| Some(&supervision);
    single.push(&mut start, &mut scratch, &[1.3], &at, &mut out);
    for found in [filtered(&every, &[1.3]), out] {
        close(&found.weight_sum, &[sum], 1e-11);
        close(&found.mean, &[mean / sum], 1e-11);
    }
}

/// Σ b_i ‖ψ(y_i) − ΨCk_i‖² + δ‖ΨC‖², and the first sum, for the kernel matrices G and K.
fn objectives_of(g: &Mat<f64>, k: &Mat<f64>, b: &[f64], c: &Mat<f64>, delta: f64) -> [f64; 2] {
    let n = b.len();
    let rest = Mat::<f64>::identity(n, n) - c * k;
    let (errors, norm) = (rest.transpose() * g * &rest, c.transpose() * g * c * k);
    let loss: f64 = (0..n).map(|i| b[i] * errors[(i, i)]).sum();
    let norm: f64 = (0..n).map(|i| norm[(i, i)]).sum();
    [loss + delta * norm, loss]
}

const MU: f64 = 0.4;

/// (5), (7) and (10) of `six` with supervision, by their definitions.
fn defined_objectives(supervision: &Supervision, [lambda, delta]: [f64; 2]) -> [(Rule, f64); 3] {
    let (rows, k, column) = six();
    let beta = printed_prior(&rows, &prior(), 0.4, lambda);
    let mut states = rows.states.clone();
    states.extend(&supervision.states);
    let g = |n: usize| {
        let square = |i: usize, j: usize| (states[i] - states[j]).powi(2);
        Mat::from_fn(n, n, |i, j| (-square(i, j) / (2.0 * 0.4 * 0.4)).exp())
    };
    let [a, b] = [0, 1].map(|at| supervision.observations[at]);
    let columns = [column(a), column(b)];
    let whole = Mat::from_fn(8, 8, |i, j| match (i.min(j), i.max(j)) {
        (i, j) if j < 6 => k[(i, j)],
        (i, j) if i < 6 => columns[j - 6][(i, 0)],
        (i, j) if i == j => 1.0,
        _ => (-(a - b) * (a - b) / (2.0 * 0.8 * 0.8)).exp(),
    });
    let inverse = |a: Mat<f64>| {
        let one = Mat::<f64>::identity(a.nrows(), a.nrows());
        a.partial_piv_lu().solve(&one)
    };
    let signed: Vec<f64> = (0..6).map(|i| beta[(i, 0)]).collect();
    assert!(signed.iter().any(|b| *b < 0.0));
    // Rows without a positive weight have the weight 1e-300.
    let mut positive: Vec<f64> = signed.iter().map(|b| b.max(1e-300)).collect();
    let least = |b: &[f64]| {
        let n = b.len();
        let noise = |i: usize, j: usize| if i == j { delta / b[i] } else { 0.0 };
        let k = Mat::from_fn(n, n, |i, j| whole[(i, j)]);
        let c = inverse(Mat::from_fn(n, n, |i, j| whole[(i, j)] + noise(i, j)));
        objectives_of(&g(n), &k, b, &c, delta)[0]
    };
    let pkbr = least(&positive);
    positive.extend([MU, MU]);
    let kregbayes = least(&positive);
    let dk = Mat::from_fn(6, 6, |i, j| signed[i] * k[(i, j)]);
    let mut squared = &dk * &dk;
    (0..6).for_each(|i| squared[(i, i)] += delta);
    let d = Mat::from_fn(6, 6, |i, j| if i == j { signed[i] } else { 0.0 });
    let c = &dk * inverse(squared) * d;
    let kbr = objectives_of(&g(6), &k, &signed, &c, 0.0)[1];
    [
        (Rule::Kbr, kbr),
        (Rule::Pkbr, pkbr),
        (Rule::Kregbayes, kregbayes),
    ]
}

#[test]
fn objectives_of_rows_are_those_of_their_functions() {
    let supervision = Supervision {
        states: vec![3.0, 0.2],
        observations: vec![1.0, 0.5],
    };
    let (rows, prior, constants) = (six().0, prior(), [0.005, 0.03]);
    let alone = input(&rows, Some(&prior));
    let supervised = FitInput {
        supervision: Some(&supervision),
        ..alone
    };
    let xs = [1.3, 0.2, f64::NAN];
    for (rule, expected) in defined_objectives(&supervision, constants) {
        let params = KernelBayes {
            mu: MU,
            objective: true,
            ..params(rule, [0.4, 0.8], constants[0], constants[1])
        };
        // At every step, or at this step.
        let every = filtered(&fitted(&params, &supervised), &xs);
        let single = fitted(&params, &alone);
        let mut out = Estimates::new(1);
        let (mut start, mut scratch) = (single.start(), single.scratch());
        let at = |_| Some(&supervision);
        single.push(&mut start, &mut scratch, &xs, &at, &mut out);
        for found in [every, out] {
            close(&found.objective[..2], &[expected; 2], 1e-11);
            assert!(found.objective.len() == 3 && found.objective[2].is_nan());
            let excess = found.objective_excess[..2].iter();
            assert_eq!(
                excess.filter(|own| own.is_nan()).count() == 2,
                rule == Rule::Kbr
            );
            let excess = found.objective_excess.iter().filter(|own| !own.is_nan());
            assert!(excess.copied().fold(0.0, f64::max) < 1e-12);
            let mut distances = found.supervision_distance[..2].iter();
            assert!(distances.all(|own| own.is_nan() == (rule != Rule::Kregbayes)));
        }
    }
    let params = params(Rule::Pkbr, [0.4, 0.8], constants[0], constants[1]);
    assert!(filtered(&fitted(&params, &alone), &xs).objective.is_empty());
}

// The first row of a sequence has no prior. A filter by moments has no single rows.
#[test]
fn rows_without_prior_weights_have_no_objective() {
    let rows = trained(60, 5);
    for (rule, exact, known) in [(Rule::Pkbr, 60, 2), (Rule::Kbr, 60, 2), (Rule::Kbr, 40, 0)] {
        let params = KernelBayes {
            exact,
            objective: true,
            ..params(rule, [0.5, 0.5], 1e-3, 2e-3)
        };
        let found = filtered(&fitted(&params, &input(&rows, None)), &[0.3, 0.1, -0.2]);
        assert!(found.objective[0].is_nan() && found.objective.len() == 3);
        let own = found.objective.iter().filter(|value| value.is_finite());
        assert_eq!(own.count(), known, "{rule:?} {exact}");
    }
}

#[test]
fn equal_weights_are_the_conditional_embedding() {
    let (rows, k, column) = six();
    // Far states have the prior weights (1/6)/(1 + 6λ).
    let apart = Observations {
        states: (0..6).map(|i| 100.0 * f64::from(i)).collect(),
        ..rows
    };
    let prior = Prior {
        states: apart.states.clone(),
        weights: vec![1.0 / 6.0; 6],
    };
    let (lambda, delta) = (0.05, 0.02);
    let c = (1.0 / 6.0) / (1.0 + 6.0 * lambda);
    let params = params(Rule::Pkbr, [1.0, 0.8], lambda, delta);
    for prior in [Some(&prior), None] {
        let mut of = input(&apart, prior);
        of.is_static = true;
        let model = fitted(&params, &of);
        let mut system = k.clone();
        (0..6).for_each(|i| system[(i, i)] += delta / c);
        let expected = system.partial_piv_lu().solve(&column(0.7));
        let expected: Vec<f64> = (0..6).map(|i| expected[(i, 0)]).collect();
        close(&model.posterior_weights(&[0.7]), &expected, 1e-12);
    }
}

#[test]
fn doubled_rows_with_half_the_weight_change_nothing() {
    let (rows, ..) = six();
    let mut doubled = rows.clone();
    for row in 0..6 {
        doubled.push(rows.state(row), rows.observation(row));
    }
    for rule in [Rule::Kbr, Rule::Pkbr] {
        let params = params(rule, [0.6, 0.8], 0.02, 0.03);
        let (one, two) = (
            fitted(&params, &input(&rows, Some(&prior()))),
            fitted(&params, &input(&doubled, Some(&prior()))),
        );
        let (w, both) = (one.posterior_weights(&[1.0]), two.posterior_weights(&[1.0]));
        let sums: Vec<f64> = (0..6).map(|i| both[i] + both[i + 6]).collect();
        close(&sums, &w, 1e-10);
        close(&both[..6], &both[6..], 1e-10);
    }
}

#[test]
fn equal_observations_leave_the_prior() {
    let rows = independent(&[(0.0, 5.0), (10.0, 5.0), (20.0, 5.0)]);
    let prior = Prior {
        states: vec![0.0, 10.0, 20.0],
        weights: vec![0.2, 0.5, 0.3],
    };
    let (lambda, delta) = (1e-9, 0.25);
    let params = params(Rule::Pkbr, [0.1, 1.0], lambda, delta);
    let model = fitted(&params, &input(&rows, Some(&prior)));
    let expected = [0.2, 0.5, 0.3].map(|b| b / (1.0 + delta));
    close(&model.posterior_weights(&[5.0]), &expected, 1e-8);
    let found = filtered(&model, &[5.0]);
    close(&found.mean, &[11.0], 1e-6);
    close(&found.variance, &[49.0], 1e-5);
    // No bandwidth can be chosen by distances.
    let chosen = KernelBayes {
        bandwidth: KernelBayes::new(Rule::Pkbr).bandwidth,
        ..params
    };
    let error = fit(&chosen, &input(&rows, Some(&prior)), 1).expect_err("no distances");
    let what = "all observations of the training rows are equal";
    assert!(error.to_string().starts_with(what), "{error}");
}

/// The Gaussian kernel of two lists of numbers.
fn gaussian(a: &[f64], b: &[f64], h: f64) -> Mat<f64> {
    let k = |a: f64, b: f64| (-(a - b) * (a - b) / (2.0 * h * h)).exp();
    Mat::from_fn(a.len(), b.len(), |i, j| k(a[i], b[j]))
}

/// A + diag(e).
fn with_diagonal(a: &Mat<f64>, e: impl Fn(usize) -> f64) -> Mat<f64> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| {
        a[(i, j)] + if i == j { e(i) } else { 0.0 }
    })
}

// Appendix A.1 as it is printed, with a point of supervision at every row for kRegBayes: α(1) =
// (K + TλI)⁻¹k, then β = (G + TλI)⁻¹G₊(G + TλI)⁻¹(Gα + G̃α̃) and (13), or (14) to (16).
#[test]
fn equations_13_to_16_are_the_filter_of_the_appendix() {
    let (y, x) = linear(8, [0.9, 0.25, 0.5], 31);
    let (h, hx, lambda, delta, mu) = (0.8, 0.9, 0.02, 0.03, 0.4);
    let n = 7;
    let point = Supervision {
        states: vec![0.4],
        observations: vec![0.7],
    };
    let g = gaussian(&y[..n], &y[..n], h);
    let ridge = with_diagonal(&g, |_| n as f64 * lambda).partial_piv_lu();
    let next = gaussian(&y[..n], &y[1..], h);
    let to_point = gaussian(&y[..n], &point.states, h);
    let observations = [0.2, -0.3, 0.9, 0.5];
    for rule in [Rule::Kbr, Rule::Pkbr, Rule::Kregbayes] {
        let mut all = x[..n].to_vec();
        if rule == Rule::Kregbayes {
            all.extend(&point.observations);
        }
        let k = gaussian(&all, &all, hx);
        let (mut sums, mut means) = (Vec::new(), Vec::new());
        // α and α̃ of the row before.
        let mut before: Option<(Mat<f64>, f64)> = None;
        for seen in observations {
            let kx = gaussian(&all, &[seen], hx);
            let (alpha, extra) = match before {
                None => {
                    let k = Mat::from_fn(n, n, |i, j| k[(i, j)]);
                    let kx = Mat::from_fn(n, 1, |i, _| kx[(i, 0)]);
                    let ridge = with_diagonal(&k, |_| n as f64 * lambda);
                    (ridge.partial_piv_lu().solve(&kx), 0.0)
                }
                Some((alpha, extra)) => {
                    let mut right = &g * &alpha;
                    (0..n).for_each(|i| right[(i, 0)] += to_point[(i, 0)] * extra);
                    let moved = &next * ridge.solve(&right);
                    let beta = ridge.solve(&moved);
                    let weight = |i: usize| if i < n { beta[(i, 0)] } else { mu };
                    if rule == Rule::Kbr {
                        let dk = Mat::from_fn(n, n, |i, j| weight(i) * k[(i, j)]);
                        let right = Mat::from_fn(n, 1, |i, _| weight(i) * kx[(i, 0)]);
                        let squared = with_diagonal(&(&dk * &dk), |_| delta);
                        (&dk * squared.partial_piv_lu().solve(&right), 0.0)
                    } else {
                        let own = (0..all.len()).filter(|&i| weight(i) > 0.0);
                        let own: Vec<usize> = own.collect();
                        let part = Mat::from_fn(own.len(), own.len(), |i, j| k[(own[i], own[j])]);
                        let noisy = with_diagonal(&part, |i| delta / weight(own[i]));
                        let right = Mat::from_fn(own.len(), 1, |i, _| kx[(own[i], 0)]);
                        let solved = noisy.partial_piv_lu().solve(&right);
                        let mut gamma = Mat::zeros(n + 1, 1);
                        let places = own.iter().enumerate();
                        places.for_each(|(at, i)| gamma[(*i, 0)] = solved[(at, 0)]);
                        let alpha = Mat::from_fn(n, 1, |i, _| gamma[(i, 0)]);
                        (alpha, gamma[(n, 0)])
                    }
                }
            };
            let own = |i: usize| alpha[(i, 0)];
            let sum = (0..n).map(own).sum::<f64>() + extra;
            let mean = (0..n).map(|i| own(i) * y[i]).sum::<f64>() + extra * point.states[0];
            sums.push(sum);
            means.push(mean / sum);
            before = Some((alpha, extra));
        }
        let mut rows = Observations::new(1, 1);
        rows.push(&y, &x);
        let params = KernelBayes {
            mu,
            normalise: false,
            ..params(rule, [h, hx], lambda, delta)
        };
        let input = FitInput {
            supervision: (rule == Rule::Kregbayes).then_some(&point),
            ..input(&rows, None)
        };
        let found = filtered(&fitted(&params, &input), &observations);
        close(&found.weight_sum, &sums, 1e-9);
        close(&found.mean, &means, 1e-8);
    }
}

/// Rows with a gap of observations.
fn observations(n: usize) -> Vec<f64> {
    let (_, mut x) = linear(n, [0.9, 0.25, 0.5], 77);
    x[3] = f64::NAN;
    x[9] = f64::NAN;
    x[10] = f64::NAN;
    x
}

#[test]
fn estimates_do_not_depend_on_pieces_threads_or_a_written_model() {
    let rows = trained(90, 1);
    let x = observations(30);
    let small = |rule| KernelBayes {
        exact: 40,
        rank_state: 12,
        rank_observation: 12,
        landmarks: 30,
        decode: Decode::Preimage,
        ..params(rule, [0.5, 0.7], 0.01, 0.02)
    };
    let exact = |rule| KernelBayes {
        exact: 2000,
        ..small(rule)
    };
    for params in [
        small(Rule::Kbr),
        small(Rule::Pkbr),
        exact(Rule::Kbr),
        exact(Rule::Pkbr),
    ] {
        let model = fitted(&params, &input(&rows, None));
        let whole = filtered(&model, &x);
        assert!(!whole.was_updated[3] && whole.was_updated[4]);
        assert!(whole.log_score[3].is_nan() && whole.mean.iter().all(|m| m.is_finite()));
        let again = on_threads(3, || fitted(&params, &input(&rows, None)));
        assert_eq!(again, model);
        let read = of_factors(&params, model.factors()).expect("a model");
        assert_eq!(read, model);
        let mut pieces = Estimates::new(1);
        let (mut state, mut scratch) = (read.start(), read.scratch());
        for piece in x.chunks(7) {
            read.push(&mut state, &mut scratch, piece, &|_| None, &mut pieces);
        }
        let bits = |own: &[f64]| own.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for (a, b) in [
            (&whole.mean, &pieces.mean),
            (&whole.variance, &pieces.variance),
            (&whole.decoded, &pieces.decoded),
            (&whole.log_score, &pieces.log_score),
            (&whole.weight_sum, &pieces.weight_sum),
        ] {
            assert_eq!(bits(a), bits(b));
        }
    }
}

/// A factor with rows left out, repeated or of another width, or with a number of no use.
#[test]
fn edited_factors_are_refused_or_filter_without_a_panic() {
    let rows = trained(30, 1);
    let supervision = Supervision {
        states: vec![0.5],
        observations: vec![0.4],
    };
    for (rule, takes_nearest) in [
        (Rule::Kbr, false),
        (Rule::Pkbr, false),
        (Rule::Kregbayes, false),
        (Rule::Kregbayes, true),
    ] {
        for exact in [2000, 10] {
            let mut params = KernelBayes {
                exact,
                rank_state: 6,
                rank_observation: 6,
                landmarks: 10,
                ..params(rule, [0.5, 0.7], 0.01, 0.02)
            };
            if takes_nearest {
                params = by_nearest(params);
            }
            let mut input = input(&rows, None);
            input.supervision = Some(&supervision).filter(|_| rule == Rule::Kregbayes);
            let factors = fitted(&params, &input).factors();
            for at in 0..factors.len() {
                let edits: [&dyn Fn(&mut Factor); 6] = [
                    &|f| f.values.truncate(f.width * (f.values.len() / f.width / 2)),
                    &|f| f.values.clear(),
                    &|f| f.values.extend_from_within(..f.width),
                    &|f| f.values.extend_from_within(..),
                    &|f| f.width += 1,
                    &|f| f.values.iter_mut().for_each(|x| *x = 1e300),
                ];
                for edit in edits {
                    let mut edited = factors.clone();
                    edit(&mut edited[at]);
                    if let Ok(model) = of_factors(&params, edited) {
                        filtered(&model, &observations(12));
                    }
                }
            }
        }
    }
}

#[test]
fn moments_give_the_estimates_of_all_rows() {
    let rows = trained(300, 2);
    let x = observations(40);
    let dense = params(Rule::Kbr, [0.6, 0.8], 0.01, 4e-4);
    let tensor = KernelBayes {
        exact: 10,
        rank_state: 60,
        rank_observation: 60,
        tolerance: 1e-13,
        ..dense.clone()
    };
    let fit = fit(&tensor, &input(&rows, None), 1).expect("a model");
    assert!(fit.warnings.is_empty(), "{:?}", fit.warnings);
    let numbers = fit.model.numbers();
    assert!(numbers.state_rank.is_some_and(|r| r < 60) && numbers.observation_rank.is_some());
    let residual = numbers.state_trace_residual;
    assert!(residual.is_some_and(|share| share <= 1e-13));
    let (a, b) = (
        filtered(&fitted(&dense, &input(&rows, None)), &x),
        filtered(&fit.model, &x),
    );
    for at in 0..40 {
        // After a gap, the predictions are represented in another way.
        let tolerance = if a.was_updated[at] { 1e-6 } else { 1e-2 };
        close(&a.mean[at..=at], &b.mean[at..=at], tolerance);
        assert_eq!(a.was_updated[at], b.was_updated[at]);
    }
    // Coarse ranks are warned of.
    let coarse = KernelBayes {
        rank_state: 3,
        tolerance: 1e-6,
        ..tensor
    };
    let fit = self::fit(&coarse, &input(&rows, None), 1).expect("a model");
    says(fit.warnings.concat(), "raise `rank_state`");
}

/// States far from zero, such as unix times, keep the digits of their variance.
#[test]
fn an_offset_of_the_states_changes_no_variance() {
    const OFFSET: f64 = (1u64 << 30) as f64;
    // Differences of these states are exact at the offset.
    const UNIT: f64 = (1u64 << 20) as f64;
    let (states, observed) = linear(200, [0.9, 0.25, 0.5], 2);
    let x = observations(30);
    let exact = params(Rule::Kbr, [0.6, 0.8], 0.01, 4e-4);
    let by_moments = KernelBayes {
        exact: 10,
        rank_state: 40,
        rank_observation: 40,
        ..exact.clone()
    };
    for params in [exact, by_moments] {
        let of = |offset: f64| {
            let mut rows = Observations::new(1, 1);
            let shifted = states.iter().map(|y| (y * UNIT).round() / UNIT + offset);
            rows.push(&shifted.collect::<Vec<_>>(), &observed);
            filtered(&fitted(&params, &input(&rows, None)), &x)
        };
        let (plain, moved) = (of(0.0), of(OFFSET));
        close(&moved.variance, &plain.variance, 1e-6);
        let means: Vec<f64> = moved.mean.iter().map(|mean| mean - OFFSET).collect();
        close(&means, &plain.mean, 1e-5);
        // Negative weights may give a variance of 0.
        assert!(plain.variance.iter().any(|variance| *variance > 0.01));
    }
}

#[test]
fn all_rows_as_landmarks_are_the_whole_model() {
    let rows = trained(200, 3);
    let x = observations(40);
    let dense = params(Rule::Pkbr, [0.6, 0.8], 0.01, 0.02);
    let landmarks = KernelBayes {
        exact: 10,
        rank_state: 80,
        tolerance: 1e-13,
        landmarks: 200,
        ..dense.clone()
    };
    let (a, b) = (
        filtered(&fitted(&dense, &input(&rows, None)), &x),
        filtered(&fitted(&landmarks, &input(&rows, None)), &x),
    );
    close(&a.mean, &b.mean, 1e-6);
    let fewer = KernelBayes {
        landmarks: 120,
        ..landmarks
    };
    let fewer = fitted(&fewer, &input(&rows, None));
    assert_eq!(fewer.numbers().landmarks, Some(120));
    let c = filtered(&fewer, &x);
    let far = a.mean.iter().zip(&c.mean).map(|(a, c)| (a - c).abs());
    assert!(far.fold(0.0, f64::max) < 0.6);
}

// The stationary variance of a Kalman filter with a = .9, q = .25, r = .5 is .233886241186, by its
// Riccati equation.
#[test]
fn the_error_on_a_linear_system_is_near_that_of_the_kalman_filter() {
    let rows = trained(1500, 4);
    let (states, x) = linear(4000, [0.9, 0.25, 0.5], 5);
    let params = params(Rule::Pkbr, [0.35, 0.5], 1e-3, 2e-3);
    let found = filtered(&fitted(&params, &input(&rows, None)), &x[..1500]);
    let pairs = found.mean.iter().zip(&states);
    let squares = pairs.map(|(a, b)| (a - b) * (a - b));
    let mse = squares.sum::<f64>() / 1500.0;
    assert!(mse < 1.2 * 0.233886241186, "{mse}");
    assert!(mse > 0.9 * 0.233886241186, "{mse}");
}

#[test]
fn an_observation_far_from_all_rows_is_predicted_through() {
    let rows = trained(100, 6);
    let params = params(Rule::Pkbr, [0.5, 0.7], 0.01, 0.02);
    let model = fitted(&params, &input(&rows, None));
    let found = filtered(&model, &[0.1, 1e6, 0.2]);
    assert_eq!(found.was_updated, [true, false, true]);
    assert!(found.log_score[1] < -1e9 && found.log_score[1].is_finite());
    assert!(found.mean.iter().all(|mean| mean.abs() < 3.0));
}

#[test]
fn constants_are_chosen_by_training_rows() {
    let rows = trained(150, 8);
    let fit = fit(&KernelBayes::new(Rule::Pkbr), &input(&rows, None), 1).expect("a model");
    assert_eq!(fit.tuning.len(), 9);
    let chosen: Vec<_> = fit.tuning.iter().filter(|one| one.is_chosen).collect();
    let errors = fit.tuning.iter().map(|one| one.mse);
    let least = errors.fold(f64::INFINITY, f64::min);
    assert!(chosen.len() == 1 && chosen[0].mse == least);
    let numbers = fit.model.numbers();
    assert_eq!(numbers.lambda, Some(chosen[0].lambda));
    assert_eq!(numbers.state_bandwidth, Some(chosen[0].state_bandwidth));
    assert_eq!(numbers.delta, Some(2.0 * chosen[0].lambda));
}

/// States of a path on a plane, and images of them of seven numbers.
fn plane(n: usize, seed: u64) -> Observations {
    let mut noise = normal(seed);
    let (mut states, mut images) = (Vec::new(), Vec::new());
    for at in 0..n {
        let radius = 6.0 + noise();
        let (x, y) = (0.2 * at as f64).sin_cos();
        let state = [radius * y, radius * x];
        states.extend(state);
        images.extend((1..8).map(|k| {
            let turn = 0.7 * f64::from(k);
            (0.4 * (state[0] * turn.cos() + state[1] * turn.sin()) + turn).cos()
        }));
    }
    let mut rows = Observations::new(2, 7);
    rows.push(&states, &images);
    rows
}

/// The same parameters with the nearest state.
fn by_nearest(params: KernelBayes) -> KernelBayes {
    KernelBayes {
        supervision: Some(SupervisionRows {
            sql: "SELECT".into(),
            nearest: true,
            f: None,
        }),
        ..params
    }
}

// Training rows (0, 0), (10, 100) and the state 20 after them: kernels of states and of
// observations are 1 for equal rows, else 0 to rounding. With c = 1/(1 + 2λ) = .8, β = (0, .64)
// after the observation 0. The prediction is 10, so ỹ = 9. At x = 101, k = exp(−½) is that of the
// second row, w₀ = k/(1 + δ/β) and s = k w₀. The last observation resembles no row, so
// γ = 1/(1 + δ/μ).
#[test]
fn the_nearest_state_supervises_the_observation_of_the_row() {
    let mut rows = Observations::new(1, 1);
    rows.push(&[0.0, 10.0, 20.0], &[0.0, 100.0, 200.0]);
    let (delta, mu) = (0.16, 0.32);
    let params = by_nearest(KernelBayes {
        mu,
        ..params(Rule::Kregbayes, [1.0, 1.0], 0.125, delta)
    });
    let table = Supervision {
        states: vec![-3.0, 9.0, 11.5, 30.0],
        observations: Vec::new(),
    };
    let supervised = FitInput {
        supervision: Some(&table),
        ..input(&rows, None)
    };
    let model = fitted(&params, &supervised);
    let k = (-0.5f64).exp();
    let w = k / (1.0 + delta / 0.64);
    let s = k * w;
    let share = (1.0 - s) / (1.0 - s + 0.5);
    let (own, sum) = ((1.0 - share) * w, (1.0 - share) * w + share);
    for (last, own, share) in [(101.0, own, share), (5000.0, 0.0, 1.0 / 1.5)] {
        let found = filtered(&model, &[0.0, last]);
        let mean = (10.0 * own + 9.0 * share) / (own + share);
        close(&found.mean, &[0.0, mean], 1e-12);
        close(&found.weight_sum[1..], &[own + share], 1e-12);
        assert_eq!(found.was_updated, [true, true]);
    }
    assert!(sum < 1.0 && (share - 0.585302).abs() < 1e-6, "{share}");
    // By a function of the estimate 0, the prediction is −2.9, so ỹ = −3. A function that has no
    // value there leaves the prediction of the filter.
    let before = || Expression::coordinate(0);
    let shifted = Expression::binary(Binary::Add, before(), Expression::number(-2.9));
    for (f, nearest) in [
        (shifted, -3.0),
        (Expression::unary(Unary::Ln, before()), 9.0),
    ] {
        let dynamics = Dynamics {
            f: vec![f],
            ..Dynamics::default()
        };
        let by_function = FitInput {
            dynamics: Some(&dynamics),
            ..supervised
        };
        let model = fitted(&params, &by_function);
        let mean = (10.0 * own + nearest * share) / sum;
        close(&filtered(&model, &[0.0, 101.0]).mean[1..], &[mean], 1e-12);
        let sent: KernelModel = unpack(&pack(&model).expect("bytes")).expect("a model");
        assert_eq!(sent, model);
        let factors = of_factors(&params, model.factors()).expect("a model");
        assert_eq!(factors.predicting(dynamics.f).expect("a model"), model);
    }
    let two = model.clone().predicting(vec![before(), before()]);
    let message = "`supervision.f` has 2 expressions for a state of 1 number";
    says(two.expect_err("a state has one number"), message);
    // Without an observation, the prediction stays.
    let found = filtered(&model, &[0.0, f64::NAN]);
    close(&found.mean[1..], &[10.0], 1e-12);
    assert_eq!(found.was_updated, [true, false]);
}

// As above. With the supervised row, A = K + δΛ† is [1.25 k; k 1.5] and the kernel matrix G of the
// states 10 and 9 is [1 k; k 1], so the minimum of (10) is
// δ tr(G A⁻¹) = δ (2.75 − 2k²)/(1.875 − k²). At the last observation, k = 0 in A. The weights of
// both forms of (11) attain the minimum.
#[test]
fn song2016_10_is_least_with_the_nearest_state() {
    let mut rows = Observations::new(1, 1);
    rows.push(&[0.0, 10.0, 20.0], &[0.0, 100.0, 200.0]);
    let (delta, mu) = (0.16, 0.32);
    let plain = KernelBayes {
        mu,
        objective: true,
        ..params(Rule::Kregbayes, [1.0, 1.0], 0.125, delta)
    };
    let table = Supervision {
        states: vec![-3.0, 9.0, 11.5, 30.0],
        observations: Vec::new(),
    };
    let supervised = FitInput {
        supervision: Some(&table),
        ..input(&rows, None)
    };
    let by_table = fitted(&by_nearest(plain.clone()), &supervised);
    let by_row = fitted(&plain, &input(&rows, None));
    let k = (-0.5f64).exp();
    let w = k / 1.25;
    let share = (1.0 - k * w) / (1.5 - k * w);
    let [own, rest] = [(1.0 - share) * w, share - 1.0];
    let near = own * own + rest * rest + 2.0 * own * rest * k;
    for (last, trace, square) in [
        (101.0, (2.75 - 2.0 * k * k) / (1.875 - k * k), near),
        (5000.0, 0.8 + 1.0 / 1.5, 1.0 / 9.0),
    ] {
        let pair = Supervision {
            states: vec![9.0],
            observations: vec![last],
        };
        let mut given = Estimates::new(1);
        let (mut state, mut scratch) = (by_row.start(), by_row.scratch());
        for x in [0.0, last] {
            let at = |_| Some(&pair).filter(|_| x > 0.0);
            by_row.push(&mut state, &mut scratch, &[x], &at, &mut given);
        }
        for found in [filtered(&by_table, &[0.0, last]), given] {
            assert!(found.objective[0].is_nan() && found.objective_excess[0].is_nan());
            close(&found.objective[1..], &[delta * trace], 1e-12);
            close(&found.supervision_distance[1..], &[square.sqrt()], 1e-12);
            let excess = found.objective_excess[1];
            assert!(excess.abs() < 1e-12, "{excess:e}");
        }
    }
}

// (11), solved with the row of supervision at the end of the kernel matrix.
#[test]
fn the_nearest_state_is_supervision_of_the_row_itself() {
    let rows = plane(60, 11);
    let tested = plane(25, 12);
    for (decode, mu) in [
        (Decode::Preimage, 1e-5),
        (Decode::Mean, 1e-5),
        (Decode::Preimage, 0.01),
    ] {
        let plain = KernelBayes {
            mu,
            decode,
            ..params(Rule::Kregbayes, [3.0, 1.5], 1e-6, 5e-7)
        };
        let circle = (0..200).flat_map(|k| {
            let (x, y) = (f64::from(k) * std::f64::consts::TAU / 200.0).sin_cos();
            [6.0 * y, 6.0 * x]
        });
        let table = Supervision {
            states: circle.collect(),
            observations: Vec::new(),
        };
        let supervised = FitInput {
            supervision: Some(&table),
            ..input(&rows, None)
        };
        let found = filtered(
            &fitted(&by_nearest(plain.clone()), &supervised),
            &tested.observations,
        );
        let model = fitted(&plain, &input(&rows, None));
        let (mut state, mut scratch) = (model.start(), model.scratch());
        let mut expected = Estimates::new(2);
        for x in tested.observations.chunks_exact(7) {
            // A row without an observation is its prediction.
            let mut prediction = Estimates::new(2);
            let unseen = [f64::NAN; 7];
            let mut copy = state.clone();
            model.push(&mut copy, &mut scratch, &unseen, &|_| None, &mut prediction);
            let far = |own: &&[f64]| -> f64 {
                let pairs = own.iter().zip(&prediction.decoded);
                pairs.map(|(a, b)| (a - b) * (a - b)).sum()
            };
            let states = table.states.chunks_exact(2);
            let nearest = states.min_by(|a, b| far(a).total_cmp(&far(b)));
            let pair = Supervision {
                states: nearest.expect("a state").to_vec(),
                observations: x.to_vec(),
            };
            let at = |_| Some(&pair);
            model.push(&mut state, &mut scratch, x, &at, &mut expected);
        }
        close(&found.mean, &expected.mean, 1e-6);
        close(&found.decoded, &expected.decoded, 1e-6);
        close(&found.weight_sum, &expected.weight_sum, 1e-7);
        // The table changes the estimates.
        let without = filtered(&model, &tested.observations);
        let gaps = found.mean.iter().zip(&without.mean);
        assert!(gaps.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) > 0.01);
    }
}

#[test]
fn a_written_model_has_the_states_of_supervision() {
    let (rows, tested) = (plane(40, 13), plane(15, 14));
    let table = Supervision {
        states: vec![6.0, 0.0, 0.0, 6.0, -6.0, 0.0, 0.0, -6.0],
        observations: Vec::new(),
    };
    let supervised = FitInput {
        supervision: Some(&table),
        ..input(&rows, None)
    };
    let plain = params(Rule::Kregbayes, [3.0, 1.5], 1e-4, 1e-4);
    for exact in [2000, 10] {
        let params = by_nearest(KernelBayes {
            exact,
            ..plain.clone()
        });
        let model = fitted(&params, &supervised);
        let read = of_factors(&params, model.factors()).expect("a model");
        assert_eq!(read, model);
        let (a, b) = (&tested.observations[..49], &tested.observations[49..]);
        let mut pieces = Estimates::new(2);
        let (mut state, mut scratch) = (read.start(), read.scratch());
        for piece in [a, b] {
            read.push(&mut state, &mut scratch, piece, &|_| None, &mut pieces);
        }
        assert_eq!(filtered(&model, &tested.observations).mean, pieces.mean);
        let error = of_factors(&plain, model.factors()).expect_err("another form");
        says(
            error,
            "`supervision.nearest` is false in the pipeline, but true",
        );
        let mut edited = model.factors();
        let own = edited.iter_mut().find(|f| f.name == "supervised_states");
        own.expect("the states").values.clear();
        says(
            of_factors(&params, edited).expect_err("no states"),
            "do not fit each other",
        );
    }
}
