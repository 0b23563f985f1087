//! Filters against numbers that are worked by hand or with numpy, and against each other.

use crate::error::Result;
use crate::evidence::observations::Observations;
use crate::math::testing::says;
use crate::methods::FilterMethod;
use crate::methods::filter::expression::{Binary, Expression, Unary};
use crate::methods::filter::fit::{Dynamics, Estimates, FitInput};
use crate::methods::filter::model::{FilterFit, FilterModel};
use crate::methods::filter::params::{Ekf, Kalman, MatrixRows, Noise, Ukf};

fn rows(n: usize, values: &[f64]) -> Option<MatrixRows> {
    Some(values.chunks(n).map(<[f64]>::to_vec).collect())
}

/// Rows that nothing is fitted to.
fn no_rows(n: usize, d: usize) -> Observations {
    Observations::new(n, d)
}

fn fit_to(
    method: &FilterMethod,
    rows: &Observations,
    dynamics: Option<&Dynamics>,
) -> Result<FilterFit> {
    let input = FitInput {
        rows,
        is_static: false,
        prior: None,
        supervision: None,
        dynamics,
    };
    method.fit(&input, 0)
}

fn fit(method: &FilterMethod, rows: &Observations, dynamics: Option<&Dynamics>) -> FilterModel {
    fit_to(method, rows, dynamics).unwrap().model
}

#[track_caller]
fn assert_claims(fitted: &FilterFit) {
    let mut claims = fitted.claims.iter();
    let hold = claims.all(|claim| claim.value <= claim.bound);
    assert!(hold, "{:?}", fitted.claims);
}

fn run(model: &FilterModel, observations: &[f64]) -> Estimates {
    let mut out = Estimates::new(model.widths().0);
    let (mut state, mut scratch) = (model.start(), model.scratch());
    model.push(&mut state, &mut scratch, observations, &|_| None, &mut out);
    out
}

fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let is_equal = (a - b).abs() <= tolerance * (1.0 + b.abs()) || a.is_nan() && b.is_nan();
        assert!(is_equal, "{i}: {a} {b}");
    }
}

fn assert_same(a: &Estimates, b: &Estimates, tolerance: f64) {
    assert_close(&a.mean, &b.mean, tolerance);
    assert_close(&a.variance, &b.variance, tolerance);
    assert_close(&a.decoded, &b.decoded, tolerance);
    assert_close(&a.log_score, &b.log_score, tolerance);
    assert_eq!(a.was_updated, b.was_updated);
}

/// Numbers between −1 and 1.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn scalar(a: f64, q: f64, r: f64, p0: f64) -> FilterMethod {
    FilterMethod::Kalman(Kalman {
        f: rows(1, &[a]),
        h: rows(1, &[1.0]),
        q: rows(1, &[q]),
        r: rows(1, &[r]),
        x0: Some(vec![0.0]),
        p0: rows(1, &[p0]),
        ..Kalman::default()
    })
}

/// Position and velocity; the position is observed.
fn moving() -> Kalman {
    Kalman {
        f: rows(2, &[1.0, 1.0, 0.0, 1.0]),
        h: rows(2, &[1.0, 0.0]),
        q: rows(2, &[0.01 / 3.0, 0.005, 0.005, 0.01]),
        r: rows(1, &[0.25]),
        x0: Some(vec![0.0, 1.0]),
        p0: rows(2, &[1.0, 0.2, 0.2, 2.0]),
        ..Kalman::default()
    }
}

/// A diagonal matrix by rows.
fn diagonal_of(values: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0; values.len() * values.len()];
    let places = all.iter_mut().step_by(values.len() + 1);
    places.zip(values).for_each(|(at, value)| *at = *value);
    all
}

fn diagonal(params: &Kalman) -> Kalman {
    Kalman {
        noise: Noise::Diagonal,
        ..params.clone()
    }
}

const POSITIONS: [f64; 6] = [0.3, 1.1, 2.5, f64::NAN, 4.2, 4.9];

/// Σ a_i x_i.
fn linear(row: &[f64]) -> Expression {
    let terms = row.iter().enumerate().map(|(i, a)| {
        let (a, x) = (Expression::number(*a), Expression::coordinate(i));
        Expression::binary(Binary::Multiply, a, x)
    });
    terms
        .reduce(|a, b| Expression::binary(Binary::Add, a, b))
        .unwrap()
}

fn linear_functions(params: &Kalman) -> Dynamics {
    let of = |rows: &Option<MatrixRows>| rows.iter().flatten().map(|row| linear(row)).collect();
    Dynamics {
        f: of(&params.f),
        h: of(&params.h),
        estimate: Vec::new(),
    }
}

fn texts(count: usize) -> Vec<String> {
    vec![String::new(); count]
}

/// A system whose covariances are fitted.
fn ekf(f: usize, h: usize) -> Ekf {
    Ekf {
        f: texts(f),
        h: texts(h),
        state: None,
        estimate: None,
        q: None,
        r: None,
        x0: None,
        p0: None,
    }
}

fn extended_of(params: &Kalman) -> Ekf {
    let [f, h] = [&params.f, &params.h].map(|rows| rows.as_ref().unwrap().len());
    Ekf {
        q: params.q.clone(),
        r: params.r.clone(),
        x0: params.x0.clone(),
        p0: params.p0.clone(),
        ..ekf(f, h)
    }
}

fn ekf_of(params: &Kalman) -> FilterMethod {
    FilterMethod::Ekf(extended_of(params))
}

/// The unscented filter of the same system.
fn unscented(of: Ekf, [alpha, beta, kappa]: [f64; 3]) -> FilterMethod {
    FilterMethod::Ukf(Ukf {
        f: of.f,
        h: of.h,
        state: of.state,
        estimate: of.estimate,
        q: of.q,
        r: of.r,
        x0: of.x0,
        p0: of.p0,
        alpha,
        beta,
        kappa,
    })
}

fn ukf_of(params: &Kalman, spread: [f64; 3]) -> FilterMethod {
    unscented(extended_of(params), spread)
}

/// Filters that agree on a linear system.
fn filters_of(params: &Kalman) -> [FilterMethod; 4] {
    [
        FilterMethod::Kalman(params.clone()),
        ekf_of(params),
        ukf_of(params, [1.0, 2.0, 0.0]),
        ukf_of(params, [1e-3, 2.0, 0.0]),
    ]
}

/// The estimates of a Kalman filter of n coordinates and d numbers per observation.
fn kalman(params: Kalman, [n, d]: [usize; 2], observations: &[f64]) -> Estimates {
    let model = fit(&FilterMethod::Kalman(params), &no_rows(n, d), None);
    run(&model, observations)
}

#[test]
fn the_variance_of_a_scalar_system_tends_to_the_fixed_point_of_riccati() {
    let model = fit(&scalar(0.9, 0.25, 0.5, 3.0), &no_rows(1, 1), None);
    let out = run(&model, &[0.1; 200]);
    assert!((out.variance[199] - 0.233886241186).abs() < 1e-12);
}

#[test]
fn two_steps_of_a_scalar_system_are_those_by_hand() {
    let model = fit(&scalar(0.5, 1.0, 2.0, 2.0), &no_rows(1, 1), None);
    // First row: S = 2 + 2, K = 1/2. Second row: x⁻ = 0.5, P⁻ = 1/4 + 1, S = 13/4, K = 5/13.
    let out = run(&model, &[2.0, 3.0]);
    assert_close(&out.mean, &[1.0, 0.5 + 5.0 / 13.0 * 2.5], 1e-15);
    assert_close(&out.variance, &[1.0, 1.25 * 8.0 / 13.0], 1e-15);
    let log = |s: f64, v: f64| -0.5 * ((std::f64::consts::TAU * s).ln() + v * v / s);
    assert_close(&out.log_score, &[log(4.0, 2.0), log(3.25, 2.5)], 1e-15);
    assert_eq!(out.decoded, out.mean);
    assert!(out.weight_sum.is_empty() && out.positive_share.is_empty());
}

/// The estimates of the rows before and after a gap of `steps` missing rows.
fn run_over_gap(model: &FilterModel, before: &[f64], steps: u64, after: &[f64]) -> Estimates {
    let mut out = Estimates::new(model.widths().0);
    let (mut state, mut scratch) = (model.start(), model.scratch());
    model.push(&mut state, &mut scratch, before, &|_| None, &mut out);
    model.predict(&mut state, &mut scratch, steps);
    model.push(&mut state, &mut scratch, after, &|_| None, &mut out);
    out
}

#[test]
fn a_gap_of_three_steps_of_a_scalar_system_is_that_by_hand() {
    let model = fit(&scalar(0.5, 1.0, 2.0, 2.0), &no_rows(1, 1), None);
    let out = run_over_gap(&model, &[2.0], 2, &[1.125]);
    // First row: x = 1, P = 1. Missing rows: x = 1/2, P = 5/4; x = 1/4, P = 21/16. Last row:
    // x⁻ = 1/8, P⁻ = 85/64, S = 213/64, K = 85/213.
    assert_close(&out.mean, &[1.0, 0.125 + 85.0 / 213.0], 1e-15);
    assert_close(&out.variance, &[1.0, 85.0 / 64.0 * 128.0 / 213.0], 1e-15);
    assert_eq!(out.was_updated, [true, true]);
}

#[test]
fn a_gap_has_the_bits_of_rows_without_an_observation() {
    for method in filters_of(&moving()) {
        let dynamics = linear_functions(&moving());
        let model = fit(&method, &no_rows(2, 1), Some(&dynamics));
        let gap = run_over_gap(&model, &[0.3, 1.1], 3, &[5.2, 6.4]);
        let missing = f64::NAN;
        let all = run(&model, &[0.3, 1.1, missing, missing, missing, 5.2, 6.4]);
        let kept = [0, 1, 5, 6];
        for (row, at) in kept.into_iter().enumerate() {
            assert_eq!(gap.mean[2 * row..][..2], all.mean[2 * at..][..2]);
            assert_eq!(gap.variance[2 * row..][..2], all.variance[2 * at..][..2]);
            assert_eq!(gap.log_score[row], all.log_score[at]);
        }
        assert_eq!(gap.log_score.len(), 4);
    }
}

#[test]
fn a_moving_point_is_filtered_as_by_numpy() {
    let out = kalman(moving(), [2, 1], &POSITIONS);
    #[rustfmt::skip]
    let expected = [
        [0.24, 1.048, 0.2, 1.968, -1.0665103088617776],
        [1.1187899786780384, 0.8967030916844351, 0.22501332622601256, 0.3579964019189765, -1.384415526705522],
        [2.4022168806818986, 1.1173757716839354, 0.199545035717417, 0.11103182015656099, -1.1207344383933124],
        [3.519592652365834, 1.1173757716839354, 0.5416393159760365, 0.12103182015656098, f64::NAN],
        [4.279402765982114, 1.0043290362254333, 0.20457179420070049, 0.038950746854507806, -1.1478482219839534],
        [5.053196301509411, 0.9377637323340096, 0.1501931162415409, 0.030107324919499977, -0.8024758190781358],
    ];
    for (row, expected) in expected.iter().enumerate() {
        assert_close(&out.mean[2 * row..][..2], &expected[..2], 1e-12);
        assert_close(&out.variance[2 * row..][..2], &expected[2..4], 1e-12);
        assert_close(&out.log_score[row..=row], &expected[4..], 1e-12);
    }
    assert_eq!(out.was_updated, [true, true, true, false, true, true]);
}

#[test]
fn filters_of_linear_functions_are_kalman_filters() {
    let params = moving();
    let functions = linear_functions(&params);
    let expected = kalman(params.clone(), [2, 1], &POSITIONS);
    let extended = fit(&ekf_of(&params), &no_rows(2, 1), Some(&functions));
    assert_same(&run(&extended, &POSITIONS), &expected, 1e-12);
    for (spread, tolerance) in [
        ([1.0, 2.0, 0.0], 1e-12),
        ([0.5, 2.0, 1.0], 1e-12),
        ([1e-3, 2.0, 0.0], 1e-9),
    ] {
        let unscented = fit(&ukf_of(&params, spread), &no_rows(2, 1), Some(&functions));
        assert_same(&run(&unscented, &POSITIONS), &expected, tolerance);
    }
}

// By hand: P⁺ = PR/(P + R), which is R for a large P.
#[test]
fn a_diffuse_first_state_keeps_its_variance() {
    for (p0, r) in [(1e4, 1e-2), (1e8, 1e-8), (1e12, 1e-6), (1e16, 1.0)] {
        let FilterMethod::Kalman(params) = scalar(1.0, 0.5, r, p0) else {
            unreachable!("a Kalman filter");
        };
        let functions = linear_functions(&params);
        let (mut x, mut p, mut expected) = (0.0, p0, Vec::new());
        for (row, z) in [1.0, 2.0, 3.0].into_iter().enumerate() {
            p += if row > 0 { 0.5 } else { 0.0 };
            x += p / (p + r) * (z - x);
            p = p / (p + r) * r;
            expected.extend([x, p]);
        }
        for method in filters_of(&params) {
            let model = fit(&method, &no_rows(1, 1), Some(&functions));
            let out = run(&model, &[1.0, 2.0, 3.0]);
            let found = out.mean.iter().zip(&out.variance);
            let found: Vec<f64> = found.flat_map(|(x, p)| [*x, *p]).collect();
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error < 1e-6 * expected, "{p0} {r}: {found} {expected}");
            }
        }
    }
}

/// One number per observation of two coordinates.
fn inclined(p0: f64) -> Kalman {
    Kalman {
        f: rows(2, &[1.0, 0.5, 0.0, 0.9]),
        h: rows(2, &[1.0, 0.3]),
        q: rows(2, &[0.1, 0.02, 0.02, 0.05]),
        r: rows(1, &[1.0]),
        x0: Some(vec![0.0; 2]),
        p0: rows(2, &[p0, 0.0, 0.0, p0]),
        ..Kalman::default()
    }
}

// The first, second and sixth row: means, variances and log score. Worked with Python's `Fraction`
// from the numbers above, by x ← x + K(z − Hx) and P ← P − KHP, rounded at the end.
#[test]
fn a_diffuse_first_state_of_two_coordinates_is_that_of_exact_fractions() {
    let observations = [0.7, -0.4, 1.3, 0.2, -1.1, 0.9];
    #[rustfmt::skip]
    let table = [
        (1e0, [
            [0.33492822966507174, 0.10047846889952153, 0.5215311004784688, 0.9569377990430622, -1.4047454465758076],
            [0.05209584101406098, -0.14247899529451197, 0.38359607791603423, 0.6619786197476181, -1.427841138985523],
            [0.21199430174427628, 0.0018594218339596906, 0.3668720987788084, 0.16980204101552557, -1.647041685463774],
        ]),
        (1e8, [
            [0.6422018289706254, 0.19266054869118762, 8256881.575624939, 91743119.34180625, -10.172367760136243],
            [0.23191487349806117, -2.1063827158400987, 0.5419737368882925, 7.676775890636328, -9.331167566766032],
            [0.16708729806423794, -0.0791736635658881, 0.40469568395663824, 0.23562359137394207, -1.8858557112036871],
        ]),
        (1e16, [
            [0.6422018348623852, 0.19266055045871555, 825688073394496.2, 9174311926605504.0, -19.382708125277563],
            [0.23191489361702103, -2.1063829787234014, 0.5419737437754639, 7.676776822091435, -18.54150784475848],
            [0.16708729678092088, -0.07917366559270109, 0.40469568482155877, 0.2356235930032427, -1.8858557181005646],
        ]),
    ];
    for (p0, expected) in table {
        let params = inclined(p0);
        let functions = linear_functions(&params);
        // Functions have rounding errors at points, next to 10⁸α, which the weights 1/α² increase.
        for (method, tolerance) in [
            (FilterMethod::Kalman(params.clone()), 1e-12),
            (FilterMethod::Kalman(diagonal(&params)), 1e-12),
            (ekf_of(&params), 1e-12),
            (ukf_of(&params, [1.0, 2.0, 0.0]), 1e-7),
            (ukf_of(&params, [1e-3, 2.0, 0.0]), 5e-5),
        ] {
            let model = fit(&method, &no_rows(2, 1), Some(&functions));
            let out = run(&model, &observations);
            for (row, expected) in [0, 1, 5].into_iter().zip(&expected) {
                assert_close(&out.mean[2 * row..][..2], &expected[..2], tolerance);
                // Variances come from differences across the center, without these weights.
                let (variance, tight) = (&out.variance[2 * row..][..2], tolerance.min(1e-9));
                assert_close(variance, &expected[2..4], tight);
                assert_close(&out.log_score[row..=row], &expected[4..], tolerance);
            }
        }
    }
}

// By hand: S = P0 + R = 2, K = P0 / 2, and P0² = 2 P0. The sum of both numbers has no noise, so
// the update leaves no variance, and the next row begins with Q = P0.
#[test]
fn singular_covariances_are_filtered() {
    let (equal, opposite) = ([1.0, 1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0]);
    let identity = [1.0, 0.0, 0.0, 1.0];
    let params = Kalman {
        f: rows(2, &identity),
        h: rows(2, &identity),
        q: rows(2, &equal),
        r: rows(2, &opposite),
        x0: Some(vec![0.0; 2]),
        p0: rows(2, &equal),
        ..Kalman::default()
    };
    let functions = linear_functions(&params);
    let log = |away: [f64; 2]| {
        let distance = (away[0] * away[0] + away[1] * away[1]) / 2.0;
        -0.5 * (2.0 * std::f64::consts::TAU.ln() + 4f64.ln() + distance)
    };
    for method in filters_of(&params) {
        let model = fit(&method, &no_rows(2, 2), Some(&functions));
        let out = run(&model, &[1.0, 3.0, 5.0, 2.0]);
        assert_close(&out.mean, &[2.0, 2.0, 3.5, 3.5], 1e-9);
        assert_close(&out.variance, &[0.0; 4], 1e-12);
        assert_close(&out.log_score, &[log([1.0, 3.0]), log([3.0, 0.0])], 1e-9);
    }
    // Without Q nothing is left to learn, and R alone is singular.
    let still = Kalman {
        q: rows(2, &[0.0; 4]),
        ..params
    };
    let out = kalman(still, [2, 2], &[1.0, 3.0, 5.0, 2.0]);
    assert_close(&out.mean, &[2.0; 4], 1e-14);
    assert_eq!(out.was_updated, [true, false]);
}

// By hand for f = x², N(0, 1) and four coordinates: the points are ±√3 e_k, the central weight of
// covariances is −1/3 and the others are 1/6, so the mean is 1 and the covariance 3 − 11ᵀ + Q.
#[test]
fn a_negative_weight_is_subtracted() {
    let square = |i: usize| {
        let x = || Expression::coordinate(i);
        Expression::binary(Binary::Multiply, x(), x())
    };
    let functions = Dynamics {
        f: (0..4).map(square).collect(),
        h: vec![Expression::coordinate(0)],
        estimate: Vec::new(),
    };
    let diagonal = |value: f64| rows(4, &diagonal_of(&[value; 4]));
    for (q, variance) in [(2.0, 4.0), (0.0, 2.25)] {
        let params = Kalman {
            f: diagonal(1.0),
            h: rows(4, &[1.0, 0.0, 0.0, 0.0]),
            q: diagonal(q),
            r: rows(1, &[0.5]),
            x0: Some(vec![0.0; 4]),
            p0: diagonal(1.0),
            ..Kalman::default()
        };
        let method = ukf_of(&params, [1.0, 0.0, -1.0]);
        let model = fit(&method, &no_rows(4, 1), Some(&functions));
        let out = run(&model, &[f64::NAN, f64::NAN]);
        assert_close(&out.mean[4..], &[1.0; 4], 1e-14);
        // Without Q the eigenvalue −1 of 3 − 11ᵀ is lost: 3 − 3/4 11ᵀ is left.
        assert_close(&out.variance[4..], &[variance; 4], 1e-12);
        let out = run(&model, &[f64::NAN, 2.0]);
        let gain = variance / (variance + 0.5);
        assert_close(&out.mean[4..5], &[1.0 + gain], 1e-12);
        assert_close(&out.variance[4..5], &[gain * 0.5], 1e-12);
    }
}

#[test]
fn covariances_of_states_far_from_zero_hold_their_certificate() {
    let mut random = noise(2);
    let mut far = Observations::new(3, 2);
    for _ in 0..3 {
        let states: Vec<f64> = (0..60).map(|_| 1e9 + random()).collect();
        let near = states.chunks(3).map(|state| state[0]);
        let seen: Vec<f64> = near.flat_map(|x| [x + random(), x + random()]).collect();
        far.push(&states, &seen);
    }
    let row = |i: usize, a: f64| {
        let mut row = [0.0; 3];
        row[i] = a;
        linear(&row)
    };
    for decay in [0.9, 1.0] {
        let functions = Dynamics {
            f: (0..3).map(|i| row(i, decay)).collect(),
            h: vec![row(0, 1.0), Expression::unary(Unary::Sin, row(0, 1.0))],
            estimate: Vec::new(),
        };
        let params = Kalman {
            f: rows(3, &[0.0; 9]),
            h: rows(3, &[0.0; 6]),
            ..Kalman::default()
        };
        for method in [ekf_of(&params), ukf_of(&params, [1e-3, 2.0, 0.0])] {
            let fitted = fit_to(&method, &far, Some(&functions)).unwrap();
            assert_claims(&fitted);
        }
    }
}

#[test]
fn a_diagonal_noise_gives_the_same_filter_in_both_forms() {
    // For a full R of d > n and for a diagonal R, observations are divided by R^(1/2).
    let mut random = noise(5);
    let starts = [(2.0, 1e-10), (1e16, 1e-7)];
    for ((p0, tolerance), d) in starts.into_iter().flat_map(|at| [1, 2, 5].map(|d| (at, d))) {
        let h: Vec<f64> = (0..2 * d).map(|_| random()).collect();
        let variances: Vec<f64> = (0..d).map(|_| 1.5 + random()).collect();
        let full = Kalman {
            h: rows(2, &h),
            r: rows(d, &diagonal_of(&variances)),
            p0: rows(2, &[p0, 0.2, 0.2, p0]),
            ..moving()
        };
        let observations: Vec<f64> = (0..40 * d).map(|_| 3.0 * random()).collect();
        let run = |params: Kalman| kalman(params, [2, d], &observations);
        assert_same(&run(diagonal(&full)), &run(full), tolerance);
    }
}

#[test]
fn a_reduced_observation_tells_the_same_for_correlated_noise() {
    // The third observation is the sum of the others and noise, so d > n; the same system with one
    // more coordinate that is never observed and never moves has d = n and is not reduced.
    let h = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let r = [1.0, 0.3, 0.2, 0.3, 0.5, 0.1, 0.2, 0.1, 0.8];
    let params = Kalman {
        h: rows(2, &h),
        r: rows(3, &r),
        ..moving()
    };
    let mut random = noise(9);
    let observations: Vec<f64> = (0..60).map(|_| random()).collect();
    let narrow = kalman(params, [2, 3], &observations);
    let padded = Kalman {
        f: rows(3, &[1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]),
        h: rows(3, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
        q: rows(
            3,
            &[0.01 / 3.0, 0.005, 0.0, 0.005, 0.01, 0.0, 0.0, 0.0, 0.0],
        ),
        r: rows(3, &r),
        x0: Some(vec![0.0, 1.0, 0.0]),
        p0: rows(3, &[1.0, 0.2, 0.0, 0.2, 2.0, 0.0, 0.0, 0.0, 0.0]),
        ..Kalman::default()
    };
    let wide = kalman(padded, [3, 3], &observations);
    for (narrow, wide) in [
        (&narrow.mean, &wide.mean),
        (&narrow.variance, &wide.variance),
    ] {
        let own: Vec<f64> = wide.chunks(3).flat_map(|row| row[..2].to_vec()).collect();
        assert_close(narrow, &own, 1e-12);
    }
    assert_close(&narrow.log_score, &wide.log_score, 1e-12);
}

#[test]
fn pieces_of_a_sequence_give_the_same_bits() {
    let params = moving();
    let functions = linear_functions(&params);
    let mut random = noise(3);
    let mut observations: Vec<f64> = (0..300).map(|_| random()).collect();
    (0..300)
        .step_by(37)
        .for_each(|row| observations[row] = f64::NAN);
    for method in [
        FilterMethod::Kalman(params.clone()),
        ekf_of(&params),
        ukf_of(&params, [1.0, 2.0, 0.0]),
    ] {
        let model = fit(&method, &no_rows(2, 1), Some(&functions));
        let whole = run(&model, &observations);
        let mut pieces = Estimates::new(2);
        let mut state = model.start();
        // Scratch memory that another sequence has used.
        let mut scratch = model.scratch();
        model.push(
            &mut model.start(),
            &mut scratch,
            &[4.0, 5.0],
            &|_| None,
            &mut Estimates::new(2),
        );
        for piece in observations.chunks(7) {
            model.push(&mut state, &mut scratch, piece, &|_| None, &mut pieces);
        }
        let bits = |out: &Estimates| -> Vec<u64> {
            let all = [&out.mean, &out.variance, &out.decoded, &out.log_score];
            all.into_iter()
                .flatten()
                .map(|value| value.to_bits())
                .collect()
        };
        assert_eq!(bits(&whole), bits(&pieces), "{}", method.name());
    }
}

#[test]
fn a_model_is_that_of_its_factors() {
    let params = moving();
    let functions = linear_functions(&params);
    for method in [
        FilterMethod::Kalman(params.clone()),
        FilterMethod::Kalman(diagonal(&params)),
        ekf_of(&params),
        ukf_of(&params, [0.5, 2.0, 1.0]),
    ] {
        let model = fit(&method, &no_rows(2, 1), Some(&functions));
        let factors = model.factors();
        for factor in &factors {
            assert_eq!(factor.values.len() % factor.width, 0, "{}", factor.name);
        }
        let back = FilterModel::of_factors(&method, factors.clone(), Some(&functions)).unwrap();
        assert_eq!(back, model);
        let without: Vec<_> = factors
            .into_iter()
            .filter(|factor| factor.name != "Q")
            .collect();
        let error = FilterModel::of_factors(&method, without, Some(&functions)).unwrap_err();
        assert!(error.to_string().contains("`Q`"), "{error}");
    }
    let method = ekf_of(&params);
    let factors = fit(&method, &no_rows(2, 1), Some(&functions)).factors();
    let error = FilterModel::of_factors(&method, factors, None).unwrap_err();
    says(error, "other than `f` and `h`");
}

/// Sequences of a stable linear system with noise.
fn world(sequences: usize, length: usize, has_noise: bool) -> Observations {
    let mut all = Observations::new(2, 3);
    let mut random = noise(1);
    for _ in 0..sequences {
        let (mut states, mut observations) = (Vec::new(), Vec::new());
        let (mut a, mut b) = (2.0 * random(), 2.0 * random());
        for _ in 0..length {
            let mut random = || if has_noise { random() } else { 0.0 };
            states.extend([a, b]);
            observations.extend([
                a + 2.0 * b + 5.0 + 0.1 * random(),
                b - 1.0 + 0.2 * random(),
                a + 0.3 * random(),
            ]);
            (a, b) = (
                0.9 * a + 0.2 * b + 0.5 + 0.3 * random(),
                -0.1 * a + 0.8 * b + 0.1 * random(),
            );
        }
        all.push(&states, &observations);
    }
    all
}

fn factor(model: &FilterModel, name: &str) -> Vec<f64> {
    let all = model.factors();
    all.into_iter()
        .find(|factor| factor.name == name)
        .unwrap()
        .values
}

#[test]
fn matrices_without_noise_are_found() {
    let world = world(6, 20, false);
    let fitted = fit_to(&FilterMethod::Kalman(Kalman::default()), &world, None).unwrap();
    let close = |name: &str, expected: &[f64]| {
        assert_close(&factor(&fitted.model, name), expected, 1e-12);
    };
    close("F", &[0.9, 0.2, -0.1, 0.8]);
    close("F_intercept", &[0.5, 0.0]);
    close("H", &[1.0, 2.0, 0.0, 1.0, 1.0, 0.0]);
    close("H_intercept", &[5.0, -1.0, 0.0]);
    close("Q", &[0.0; 4]);
    // R is 0 but for its floor.
    let r = factor(&fitted.model, "R");
    assert!(r[0] > 0.0 && r[0] < 1e-7);
    assert!(fitted.warnings[0].contains("`R` of 120 training rows is singular"));
    assert_claims(&fitted);
}

#[test]
fn fitted_matrices_are_those_of_least_squares() {
    let world = world(40, 100, true);
    let fitted = fit_to(&FilterMethod::Kalman(Kalman::default()), &world, None).unwrap();
    assert!(fitted.warnings.is_empty());
    assert_eq!(fitted.model.numbers().transitions, 40 * 99);
    assert_close(&factor(&fitted.model, "F"), &[0.9, 0.2, -0.1, 0.8], 0.02);
    // The variance of a uniform number between −c and c is c²/3.
    assert_close(
        &factor(&fitted.model, "Q"),
        &[0.03, 0.0, 0.0, 0.01 / 3.0],
        2e-3,
    );
    let r = factor(&fitted.model, "R");
    assert_close(&[r[0], r[4], r[8]], &[0.01 / 3.0, 0.04 / 3.0, 0.03], 2e-3);
    let names: Vec<&str> = fitted
        .claims
        .iter()
        .map(|claim| claim.name.as_str())
        .collect();
    let expected = [
        "least_squares_f",
        "least_squares_h",
        "covariance_asymmetry",
        "covariance_negative_part",
    ];
    assert_eq!(names, expected);
    assert_claims(&fitted);
    // x0 and P0 are the moments of all training states.
    let mean = world.states.chunks(2).map(|row| row[0]).sum::<f64>() / 4000.0;
    let square: f64 = world
        .states
        .chunks(2)
        .map(|row| (row[0] - mean).powi(2))
        .sum();
    assert_close(&factor(&fitted.model, "x0")[..1], &[mean], 1e-12);
    assert_close(&factor(&fitted.model, "P0")[..1], &[square / 3999.0], 1e-12);
    let params = diagonal(&Kalman::default());
    let diagonal = fit(&FilterMethod::Kalman(params), &world, None);
    assert_close(&factor(&diagonal, "R_diagonal"), &[r[0], r[4], r[8]], 1e-12);
    // Without an intercept, and with a given F.
    let params = Kalman {
        f: rows(2, &[0.9, 0.2, -0.1, 0.8]),
        intercept: false,
        ..Kalman::default()
    };
    let given = fit(&FilterMethod::Kalman(params), &world, None);
    assert_eq!(factor(&given, "F_intercept"), [0.0; 2]);
    assert_eq!(factor(&given, "H_intercept"), [0.0; 3]);
    // The mean of the residuals of F is the intercept of the world, .5.
    assert_close(&factor(&given, "Q")[..1], &[0.25 + 0.03], 0.01);
}

#[test]
fn transitions_do_not_cross_sequences() {
    let long = world(1, 60, false);
    let mut cut = Observations::new(2, 3);
    // Two runs of the same system in reverse order: a pair across them would break the fit.
    cut.push(&long.states[60..], &long.observations[90..]);
    cut.push(&long.states[..60], &long.observations[..90]);
    let model = fit(&FilterMethod::Kalman(Kalman::default()), &cut, None);
    assert_close(&factor(&model, "F"), &[0.9, 0.2, -0.1, 0.8], 1e-8);
}

#[test]
fn wide_observations_have_diagonal_noise() {
    let mut random = noise(2);
    let d = 2000;
    let loading: Vec<f64> = (0..d).map(|_| random()).collect();
    let mut world = Observations::new(1, d);
    let (mut states, mut observations, mut y) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..60 {
        states.push(y);
        // Every tenth number is constant.
        observations.extend((0..d).map(|j| match j % 10 {
            0 => 1.0,
            _ => loading[j] * y + 3.0 * random(),
        }));
        y = 0.9 * y + random();
    }
    world.push(&states, &observations);
    let method = FilterMethod::Kalman(diagonal(&Kalman::default()));
    let model = fit(&method, &world, None);
    let out = run(&model, &world.observations);
    let pairs = out.mean.iter().zip(&states);
    let error: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
    assert!(error / 60.0 < 0.05, "{error}");
    assert!(out.log_score.iter().all(|score| score.is_finite()));
    let full = FilterMethod::Kalman(Kalman::default());
    let error = fit_to(&full, &world, None).unwrap_err();
    says(&error, "2000 numbers");
    says(&error, "`noise = \"diagonal\"`");
    // One number stands for all variances.
    let params = Kalman {
        r: rows(1, &[3.0]),
        ..diagonal(&Kalman::default())
    };
    let model = fit(&FilterMethod::Kalman(params), &world, None);
    assert_eq!(factor(&model, "R_diagonal"), vec![3.0; d]);
}

/// A point on a circle with a wave: θ⁺ = θ + 0.4, seen through (1 + sin 8θ)(cos θ, sin θ).
fn circle() -> Dynamics {
    let theta = || Expression::coordinate(0);
    let number = Expression::number;
    let wave = || {
        let angle = Expression::binary(Binary::Multiply, number(8.0), theta());
        let sine = Expression::unary(Unary::Sin, angle);
        Expression::binary(Binary::Add, number(1.0), sine)
    };
    let times = |a, b| Expression::binary(Binary::Multiply, a, b);
    let (cosine, sine) = (
        || Expression::unary(Unary::Cos, theta()),
        || Expression::unary(Unary::Sin, theta()),
    );
    Dynamics {
        f: vec![Expression::binary(Binary::Add, theta(), number(0.4))],
        h: vec![times(wave(), cosine()), times(wave(), sine())],
        estimate: vec![cosine(), sine()],
    }
}

fn circle_of(is_unscented: bool) -> FilterMethod {
    let system = Ekf {
        state: Some(texts(1)),
        estimate: Some(texts(2)),
        q: rows(1, &[0.04]),
        r: rows(2, &[0.04, 0.0, 0.0, 0.04]),
        x0: Some(vec![0.1]),
        p0: rows(1, &[0.5]),
        ..ekf(1, 2)
    };
    if is_unscented {
        unscented(system, [1.0, 2.0, 0.0])
    } else {
        FilterMethod::Ekf(system)
    }
}

#[test]
fn own_coordinates_are_mapped_to_the_columns_of_the_state() {
    for is_unscented in [false, true] {
        let model = fit(&circle_of(is_unscented), &no_rows(2, 2), Some(&circle()));
        assert_eq!(model.widths(), (2, 2));
        let out = run(&model, &[f64::NAN, f64::NAN, 0.9, 0.3]);
        let (c, s) = (0.1f64.cos(), 0.1f64.sin());
        if is_unscented {
            // Points at θ and θ ± √.5 with weights 0, ½, ½; β = 2 adds the central point.
            let (near, far) = ((0.1 + 0.5f64.sqrt()).cos(), (0.1 - 0.5f64.sqrt()).cos());
            let mean = 0.5 * (near + far);
            let spread = 0.5 * ((near - mean).powi(2) + (far - mean).powi(2));
            assert_close(&out.mean[..1], &[mean], 1e-14);
            assert_close(
                &out.variance[..1],
                &[spread + 2.0 * (c - mean).powi(2)],
                1e-14,
            );
        } else {
            assert_close(&out.mean[..2], &[c, s], 1e-15);
            assert_close(&out.variance[..2], &[0.5 * s * s, 0.5 * c * c], 1e-14);
        }
        assert_eq!(out.was_updated, [false, true]);
        assert!(out.log_score[0].is_nan() && out.log_score[1].is_finite());
    }
}

#[test]
fn the_noise_of_a_nonlinear_system_is_that_of_its_residuals() {
    let mut world = Observations::new(1, 1);
    world.push(&[1.0, 2.0, 2.5], &[1.5, 4.0, 6.0]);
    let x = Expression::coordinate(0);
    let functions = Dynamics {
        f: vec![Expression::binary(
            Binary::Add,
            x.clone(),
            Expression::number(0.5),
        )],
        h: vec![Expression::binary(Binary::Multiply, x.clone(), x)],
        estimate: Vec::new(),
    };
    let method = FilterMethod::Ekf(ekf(1, 1));
    let model = fit(&method, &world, Some(&functions));
    // Residuals of f: .5, 0. Of h: .5, 0, −.25.
    assert_close(&factor(&model, "Q"), &[0.125], 1e-15);
    assert_close(&factor(&model, "R"), &[0.3125 / 3.0], 1e-15);
    assert_close(&factor(&model, "x0"), &[5.5 / 3.0], 1e-15);
}

#[test]
fn a_prediction_that_is_not_a_number_starts_the_filter_anew() {
    let x = Expression::coordinate(0);
    let one = Expression::number(1.0);
    let functions = Dynamics {
        // √(x − 1).
        f: vec![Expression::unary(
            Unary::Sqrt,
            Expression::binary(Binary::Subtract, x.clone(), one),
        )],
        h: vec![x],
        estimate: Vec::new(),
    };
    let method = FilterMethod::Ekf(Ekf {
        q: rows(1, &[0.01]),
        r: rows(1, &[0.01]),
        x0: Some(vec![1.5]),
        p0: rows(1, &[0.01]),
        ..ekf(1, 1)
    });
    let model = fit(&method, &no_rows(1, 1), Some(&functions));
    let out = run(&model, &[1.5, 0.7, 0.7, 1.0]);
    assert_eq!(out.was_updated, [true, true, false, true]);
    assert_eq!(out.mean[2], 1.5);
    assert!(out.mean.iter().all(|mean| mean.is_finite()));
}

#[test]
fn an_observation_without_a_distribution_is_predicted_through() {
    // P0 = Q = R = 0: the innovation has no covariance.
    let model = fit(&scalar(0.5, 0.0, 0.0, 0.0), &no_rows(1, 1), None);
    let out = run(&model, &[2.0, 3.0]);
    assert_eq!(out.was_updated, [false, false]);
    assert_eq!(out.mean, [0.0, 0.0]);
    let infinite = run(
        &fit(&scalar(0.5, 1.0, 1.0, 1.0), &no_rows(1, 1), None),
        &[f64::INFINITY],
    );
    assert_eq!(infinite.was_updated, [false]);
}

#[test]
fn what_is_wrong_with_a_system_is_named() {
    let why = |change: fn(&mut Kalman), world: &Observations| {
        let mut params = Kalman::default();
        change(&mut params);
        fit_to(&FilterMethod::Kalman(params), world, None)
            .unwrap_err()
            .to_string()
    };
    let world = world(2, 30, true);
    let f = why(|p| p.f = rows(3, &[0.0; 6]), &world);
    let what = "`F` must have 2 rows of 2 numbers, but row 1 has 3 numbers";
    assert_eq!(f, what);
    let h = why(|p| p.h = rows(2, &[0.0; 4]), &world);
    assert_eq!(h, "`H` must have 3 rows of 2 numbers, but it has 2 rows");
    let q = why(|p| p.q = rows(2, &[1.0, 0.5, 0.4, 1.0]), &world);
    says(&q, "`Q` is a covariance and must be symmetric");
    says(&q, "0.5");
    let p0 = why(|p| p.p0 = rows(2, &[1.0, 2.0, 2.0, 1.0]), &world);
    let what = "`P0` is a covariance and must have no negative eigenvalue";
    says(p0, what);
    let r = why(|p| p.r = rows(3, &[f64::NAN; 9]), &world);
    assert!(r.contains("`R`") && r.contains("not finite"), "{r}");
    let x0 = why(|p| p.x0 = Some(vec![0.0]), &world);
    assert!(x0.contains("`x0` must have 2 finite numbers"), "{x0}");
    let zero = |p: &mut Kalman| (p.noise, p.r) = (Noise::Diagonal, rows(1, &[0.0]));
    says(why(zero, &world), "must be above 0");
    let mut few = Observations::new(2, 3);
    few.push(&world.states[..6], &world.observations[..9]);
    let what = "`F`: 2 rows that another row follows, at least 4 are needed";
    says(why(|_| (), &few), what);
    let mut equal = Observations::new(2, 3);
    equal.push(&world.states, &vec![1.0; 180]);
    says(why(|_| (), &equal), "all observations are equal");
    let mut functions = circle();
    functions.h.pop();
    let h = fit_to(&circle_of(false), &no_rows(2, 2), Some(&functions)).unwrap_err();
    says(h, "`h` must have one expression per number");
    let undefined = Dynamics {
        f: vec![Expression::unary(Unary::Ln, Expression::coordinate(0)); 2],
        h: vec![Expression::coordinate(0); 3],
        estimate: Vec::new(),
    };
    let method = FilterMethod::Ekf(ekf(2, 3));
    let undefined = fit_to(&method, &world, Some(&undefined)).unwrap_err();
    says(undefined, "expression 1 of `f` is not a finite number");
}

#[test]
fn dependent_columns_of_the_state_are_a_warning() {
    let world = world(4, 50, true);
    let mut doubled = Observations::new(3, 3);
    for sequence in world.offsets.windows(2) {
        let states: Vec<f64> = (sequence[0]..sequence[1])
            .map(|row| world.state(row))
            .flat_map(|state| [state[0], state[1], 2.0 * state[0]])
            .collect();
        let (from, to) = (3 * sequence[0], 3 * sequence[1]);
        doubled.push(&states, &world.observations[from..to]);
    }
    let fitted = fit_to(&FilterMethod::Kalman(Kalman::default()), &doubled, None).unwrap();
    says(&fitted.warnings[0], "depend on each other");
    let single = fit(&FilterMethod::Kalman(Kalman::default()), &world, None);
    let (doubled, single) = (
        run(&fitted.model, &world.observations),
        run(&single, &world.observations),
    );
    let own: Vec<f64> = doubled
        .mean
        .chunks(3)
        .flat_map(|row| row[..2].to_vec())
        .collect();
    assert_close(&own, &single.mean, 1e-6);
}

/// A random walk that two sensors show.
fn two_sensors() -> Kalman {
    Kalman {
        f: rows(1, &[1.0]),
        h: rows(1, &[1.0, 1.0]),
        q: rows(1, &[0.5]),
        r: rows(2, &[1.0, 0.0, 0.0, 1.0]),
        x0: Some(vec![0.0]),
        p0: rows(1, &[1.0]),
        ..Kalman::default()
    }
}

// With information 1/P + (number of sensors): P is 1/3, 5/11, 21/43, 85/256, 85/256 + 1/2 and
// 341/597 after the rows.
#[test]
fn a_missing_sensor_leaves_the_other_one() {
    const NONE: f64 = f64::NAN;
    let observations = [
        1.0, 1.2, 2.0, NONE, NONE, 3.1, 4.0, 4.2, NONE, NONE, 6.0, NONE,
    ];
    let params = two_sensors();
    let functions = linear_functions(&params);
    let variances = [1.0 / 3.0, 5.0 / 11.0, 21.0 / 43.0, 85.0 / 256.0];
    let mut means = vec![11.0 / 15.0, 72.0 / 55.0];
    means.push(means[1] + variances[2] * (3.1 - means[1]));
    means.push((86.0 * means[2] + 85.0 * 8.2) / 256.0);
    means.push(means[3]);
    means.push(means[3] + 341.0 / 597.0 * (6.0 - means[3]));
    assert_close(&means, &[0.733, 1.309, 2.184, 3.456, 3.456, 4.909], 2e-4);
    // ln N(z; m, S). In the first row S = (2, 1; 1, 2) and z − m = (1, 1.2).
    let tau = std::f64::consts::TAU;
    let one = |gap: f64, s: f64| -0.5 * ((tau * s).ln() + gap * gap / s);
    let first = -0.5 * (2.0 * tau.ln() + 3f64.ln() + (2.0 - 2.4 + 2.88) / 3.0);
    let scores = [first, one(19.0 / 15.0, 11.0 / 6.0)];
    for method in filters_of(&params) {
        let out = run(
            &fit(&method, &no_rows(1, 2), Some(&functions)),
            &observations,
        );
        assert_close(&out.mean, &means, 1e-9);
        assert_close(&out.variance[..4], &variances, 1e-9);
        assert_close(&out.variance[4..], &[213.0 / 256.0, 341.0 / 597.0], 1e-9);
        assert_close(&out.log_score[..2], &scores, 1e-9);
        assert!(out.log_score[4].is_nan());
        assert_eq!(out.was_updated, [true, true, true, true, false, true]);
    }
}

/// The filter of some numbers of an observation of three.
fn with_numbers(params: &Kalman, present: &[usize]) -> Kalman {
    let chosen = |matrix: &Option<MatrixRows>| {
        let rows = matrix.as_ref().unwrap();
        present.iter().map(|&at| rows[at].clone()).collect()
    };
    let r: MatrixRows = chosen(&params.r);
    let r = r
        .iter()
        .map(|row| present.iter().map(|&at| row[at]).collect())
        .collect();
    Kalman {
        h: Some(chosen(&params.h)),
        r: Some(r),
        ..params.clone()
    }
}

// For correlated noise: the density of the numbers that are there has their rows and columns of R.
#[test]
fn an_observation_without_some_numbers_is_one_of_the_others() {
    let wide = Kalman {
        h: rows(2, &[1.0, 0.0, 1.0, 1.0, 0.5, -2.0]),
        r: rows(3, &[0.5, 0.1, 0.2, 0.1, 0.4, -0.1, 0.2, -0.1, 0.9]),
        ..moving()
    };
    let mut random = noise(5);
    let observations: Vec<f64> = (0..60).map(|_| 3.0 * random()).collect();
    let parts: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]];
    for present in parts {
        let part = with_numbers(&wide, present);
        let missing = |at: usize, x: f64| {
            if present.contains(&(at % 3)) {
                x
            } else {
                f64::NAN
            }
        };
        let holes = observations.iter().enumerate();
        let holes: Vec<f64> = holes.map(|(at, x)| missing(at, *x)).collect();
        let there: Vec<f64> = holes.iter().copied().filter(|x| x.is_finite()).collect();
        let methods = filters_of(&wide).into_iter().zip(filters_of(&part));
        for (whole, part_method) in methods {
            let functions = [&wide, &part].map(linear_functions);
            let whole = fit(&whole, &no_rows(2, 3), Some(&functions[0]));
            let of_part = no_rows(2, present.len());
            let own = fit(&part_method, &of_part, Some(&functions[1]));
            assert_same(&run(&whole, &holes), &run(&own, &there), 0.0);
        }
        let r = wide.r.as_ref().unwrap();
        let variances = [r[0][0], r[1][1], r[2][2]];
        let wide = Kalman {
            r: rows(3, &diagonal_of(&variances)),
            ..diagonal(&wide)
        };
        let found = kalman(wide.clone(), [2, 3], &holes);
        let expected = kalman(with_numbers(&wide, present), [2, present.len()], &there);
        assert_same(&found, &expected, 0.0);
    }
}

// More forms of an observation than a filter keeps, in any order.
#[test]
fn rows_do_not_depend_on_the_numbers_that_earlier_rows_lacked() {
    let d = 6;
    let params = Kalman {
        h: rows(
            2,
            &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.0, 0.5, -1.0, 0.0, 3.0],
        ),
        r: rows(d, &diagonal_of(&[0.5, 0.4, 0.3, 0.2, 0.6, 0.7])),
        ..moving()
    };
    let model = fit(&FilterMethod::Kalman(params), &no_rows(2, d), None);
    let mut random = noise(9);
    let mut observations = Vec::new();
    for row in 0..300usize {
        let bits = row * 37 % 64;
        observations.extend((0..d).map(|at| {
            if (bits >> at) & 1 == 1 {
                f64::NAN
            } else {
                random()
            }
        }));
    }
    let whole = run(&model, &observations);
    let (mut state, mut out) = (model.start(), Estimates::new(2));
    for row in observations.chunks_exact(d) {
        model.push(&mut state, &mut model.scratch(), row, &|_| None, &mut out);
    }
    assert_same(&whole, &out, 0.0);
    assert!(whole.mean.iter().all(|x| x.is_finite()));
}

#[test]
fn a_given_system_needs_no_state_of_rows() {
    let params = Kalman {
        h: rows(2, &[1.0, 0.0, 1.0, 1.0]),
        r: rows(2, &[0.25, 0.0, 0.0, 1.0]),
        state: Some(vec!["place".into(), "speed".into()]),
        ..moving()
    };
    let functions = linear_functions(&params);
    let observations = [0.3, 1.4, 1.1, 1.9, 2.5, 3.2];
    let methods = filters_of(&params);
    for method in &methods {
        let with = fit(method, &no_rows(2, 2), Some(&functions));
        let without = fit(method, &no_rows(0, 2), Some(&functions));
        assert_eq!(without.widths(), (2, 2));
        assert_eq!(run(&with, &observations), run(&without, &observations));
        // Lists that no row has do not say how long they are.
        assert_eq!(fit(method, &no_rows(0, 0), Some(&functions)), without);
        let back = FilterModel::of_factors(method, without.factors(), Some(&functions));
        assert_eq!(back.unwrap(), without);
    }
    // Coordinates with names of their own, without the columns that they are estimates of.
    let own = FilterMethod::Ekf(Ekf {
        state: Some(vec!["place".into(), "speed".into()]),
        ..extended_of(&params)
    });
    let own = fit(&own, &no_rows(0, 2), Some(&functions));
    let expected = fit(&methods[1], &no_rows(0, 2), Some(&functions));
    assert_eq!(run(&own, &observations), run(&expected, &observations));
    // Other matrices than the observations, and none.
    let error = fit_to(&methods[0], &no_rows(0, 3), None).unwrap_err();
    says(
        error,
        "`H` must have 3 rows of 2 numbers, but it has 2 rows",
    );
    let bare = FilterMethod::Kalman(Kalman::default());
    let error = fit_to(&bare, &no_rows(0, 1), None).unwrap_err();
    says(error, "no row has a state, and there is no `F`");
    let bare = FilterMethod::Kalman(Kalman {
        q: None,
        ..params.clone()
    });
    let error = fit_to(&bare, &no_rows(0, 2), None).unwrap_err();
    says(error, "there are too few training rows to fit `Q`");
}
