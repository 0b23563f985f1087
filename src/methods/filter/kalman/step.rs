//! Prediction and update, row by row.
//!
//! Two forms of the update give the same numbers up to rounding:
//! - Joseph's: K = PHᵀ(HPHᵀ + R)⁻¹, P ← (I − KH)P(I − KH)ᵀ + KRKᵀ. For few numbers per observation.
//! - the information form, for more numbers than coordinates and for a diagonal R: with P = LLᵀ and
//!   H̃ = R^(−1/2)H, P ← L(I + LᵀH̃ᵀH̃L)⁻¹Lᵀ. It costs O(dn²) and has no d × d matrix.
//!
//! The covariances of a linear system do not depend on the observations, and after some rows they
//! repeat with equal bits. The filter keeps the last few and uses them again.

use crate::methods::filter::expression::Expression;
use crate::methods::filter::fit::{Dynamics, Estimates};
use crate::methods::filter::kalman::model::{KalmanModel, Noise, System};
use crate::methods::filter::kalman::small;
use crate::methods::filter::kalman::unscented::Sigma;

/// Covariances that are kept. In the long run they repeat every one or two rows.
const KEPT: usize = 4;

/// The distribution of the state after a row: N(x, P).
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    x: Vec<f64>,
    p: Vec<f64>,
    /// Whether a row came before.
    is_started: bool,
}

impl State {
    /// P: n × n.
    pub(super) fn covariance(&self) -> &[f64] {
        &self.p
    }
}

/// What an update does with any observation, given the covariance before.
#[derive(Debug, Clone)]
struct Gain {
    /// Whether it is that of the first row, which no prediction comes before.
    is_first: bool,
    /// P after the row before.
    before: Vec<f64>,
    /// P after the prediction.
    prior: Vec<f64>,
    /// P after the update.
    after: Vec<f64>,
    /// Whether the covariances before and after the prediction are those of a row.
    is_known: bool,
    /// Whether the rest is computed.
    has_update: bool,
    /// Whether there is an update: the covariance of the observation is positive definite.
    is_defined: bool,
    /// ln |HPHᵀ + R|.
    log_determinant: f64,
    /// Joseph's form: K, n × d. Else empty.
    k: Vec<f64>,
    /// Joseph's form: the Cholesky triangle of HPHᵀ + R, d × d. Else empty.
    triangle: Vec<f64>,
}

/// R^(−1/2) for the information form.
#[derive(Debug)]
enum Whitening {
    /// d values.
    Diagonal(Vec<f64>),
    /// The Cholesky triangle of R, d × d.
    Full(Vec<f64>),
}

impl Whitening {
    /// Multiplies `m` columns of d rows from the left.
    fn whiten(&self, d: usize, values: &mut [f64], m: usize) {
        match self {
            Whitening::Diagonal(scale) => {
                for (row, scale) in values.chunks_exact_mut(m).zip(scale) {
                    row.iter_mut().for_each(|value| *value *= scale);
                }
            }
            Whitening::Full(triangle) if m == 1 => small::forward(triangle, d, values),
            Whitening::Full(triangle) => small::forward_rows(triangle, d, values, m),
        }
    }
}

/// Memory that is used again for every row.
#[derive(Debug)]
pub struct Scratch {
    gains: Vec<Gain>,
    /// The gain that is replaced next.
    oldest: usize,
    /// The information form, and ln |R|.
    whitening: Option<(Whitening, f64)>,
    sigma: Option<Sigma>,
    /// x after the prediction.
    x: Vec<f64>,
    /// The Jacobian of f, n × n.
    f: Vec<f64>,
    /// H or the Jacobian of h, d × n; whitened in the information form.
    h: Vec<f64>,
    /// H̃ᵀH̃, n × n. Only in the information form.
    information: Vec<f64>,
    /// The observation minus its prediction: d values.
    innovation: Vec<f64>,
    /// The whitened innovation: d values.
    white: Vec<f64>,
    /// Three n × n matrices.
    square: [Vec<f64>; 3],
    /// Two d × n matrices.
    tall: [Vec<f64>; 2],
    /// Values of functions at sigma points, and n differences per point.
    values: Vec<f64>,
    differences: Vec<f64>,
    /// The Jacobian of one estimated column: n values.
    slopes: Vec<f64>,
    estimate: Vec<f64>,
}

impl KalmanModel {
    /// The state before the first row of a sequence.
    pub(crate) fn start(&self) -> State {
        State {
            x: self.x0.clone(),
            p: self.p0.clone(),
            is_started: false,
        }
    }

    /// Memory for [`push`](KalmanModel::push).
    pub(crate) fn scratch(&self) -> Scratch {
        let (n, d) = (self.n, self.d);
        let whitening = self.whitening();
        let is_joseph = whitening.is_none();
        let d_joseph = if is_joseph { d } else { 0 };
        let (kept, points) = match self.system {
            System::Linear { .. } => (KEPT, 0),
            System::Extended(_) => (1, 0),
            System::Unscented(..) => (1, 2 * n + 1),
        };
        let gain = Gain {
            is_first: false,
            before: vec![0.0; n * n],
            prior: vec![0.0; n * n],
            after: vec![0.0; n * n],
            is_known: false,
            has_update: false,
            is_defined: false,
            log_determinant: 0.0,
            k: vec![0.0; n * d_joseph],
            triangle: vec![0.0; d_joseph * d_joseph],
        };
        let mut scratch = Scratch {
            gains: vec![gain; kept],
            oldest: 0,
            whitening,
            sigma: match self.system {
                System::Unscented(_, spread) => Some(Sigma::new(n, spread)),
                _ => None,
            },
            x: vec![0.0; n],
            f: vec![0.0; n * n],
            h: vec![0.0; d * n],
            information: vec![0.0; n * n],
            innovation: vec![0.0; d],
            white: vec![0.0; d],
            square: std::array::from_fn(|_| vec![0.0; n * n]),
            tall: std::array::from_fn(|_| vec![0.0; n * d_joseph]),
            values: vec![0.0; points * n.max(d).max(self.columns)],
            differences: vec![0.0; points * n],
            slopes: vec![0.0; n],
            estimate: vec![0.0; self.columns],
        };
        if let System::Linear { h, .. } = &self.system {
            scratch.h.copy_from_slice(&h.matrix);
            scratch.whiten(n, d);
        }
        scratch
    }

    /// R^(−1/2) and ln |R|. None for Joseph's form.
    fn whitening(&self) -> Option<(Whitening, f64)> {
        match (&self.r, &self.system) {
            (Noise::Diagonal(r), _) => {
                let scale = r.iter().map(|r| 1.0 / r.sqrt()).collect();
                let log = r.iter().map(|r| r.ln()).sum();
                Some((Whitening::Diagonal(scale), log))
            }
            (_, System::Unscented(..)) => None,
            (Noise::Full(r), _) => {
                let mut triangle = r.clone();
                let is_wide = self.d > self.n && small::cholesky(&mut triangle, self.d);
                is_wide.then(|| {
                    let log = small::log_determinant(&triangle, self.d);
                    (Whitening::Full(triangle), log)
                })
            }
        }
    }

    /// Filters the next rows of a sequence, and adds their estimates to `out`. `observations` is
    /// n × d, row-major; a row with a number that is not finite has no observation.
    ///
    /// A row of which the prediction is not finite starts the filter anew at N(x0, P0).
    pub(crate) fn push(
        &self,
        state: &mut State,
        scratch: &mut Scratch,
        observations: &[f64],
        out: &mut Estimates,
    ) {
        let rows = observations.len() / self.d;
        for column in [&mut out.mean, &mut out.variance, &mut out.decoded] {
            column.reserve(rows * self.columns);
        }
        for observation in observations.chunks_exact(self.d) {
            let log_score = self.step(state, scratch, observation);
            out.was_updated.push(log_score.is_some());
            out.log_score.push(log_score.unwrap_or(f64::NAN));
            self.estimate(state, scratch, out);
        }
    }

    /// Moves the state to the next row. The log score of its observation, if there is an update.
    fn step(&self, state: &mut State, scratch: &mut Scratch, observation: &[f64]) -> Option<f64> {
        let at = self.predict(state, scratch);
        state.is_started = true;
        if !(small::are_finite(&scratch.x) && small::are_finite(&scratch.gains[at].prior)) {
            state.x.copy_from_slice(&self.x0);
            state.p.copy_from_slice(&self.p0);
            return None;
        }
        state.x.copy_from_slice(&scratch.x);
        state.p.copy_from_slice(&scratch.gains[at].prior);
        if !small::are_finite(observation) {
            return None;
        }
        let log_score = self.update(scratch, at, observation)?;
        if !(log_score.is_finite() && small::are_finite(&scratch.x)) {
            return None;
        }
        state.x.copy_from_slice(&scratch.x);
        state.p.copy_from_slice(&scratch.gains[at].after);
        Some(log_score)
    }

    /// Writes x and P before the observation of the next row to the scratch memory. The index of
    /// the gain with this P.
    fn predict(&self, state: &State, scratch: &mut Scratch) -> usize {
        let n = self.n;
        let is_first = !state.is_started;
        let is_kept = |gain: &Gain| {
            gain.is_known && gain.is_first == is_first && small::are_same(&gain.before, &state.p)
        };
        match &self.system {
            System::Linear { f, .. } if !is_first => {
                small::affine(&f.matrix, &state.x, &f.intercept, &mut scratch.x);
            }
            _ => scratch.x.copy_from_slice(&state.x),
        }
        let is_linear = matches!(self.system, System::Linear { .. });
        if is_linear && let Some(at) = scratch.gains.iter().position(is_kept) {
            return at;
        }
        let at = scratch.oldest;
        scratch.oldest = (at + 1) % scratch.gains.len();
        let gain = &mut scratch.gains[at];
        gain.is_known = true;
        gain.is_first = is_first;
        gain.has_update = false;
        gain.before.copy_from_slice(&state.p);
        gain.prior.copy_from_slice(&state.p);
        if is_first {
            return at;
        }
        match &self.system {
            System::Linear { f, .. } => {
                self.propagate(&f.matrix, gain, &mut scratch.square[0]);
            }
            System::Extended(functions) => {
                jacobian(&functions.f, &state.x, &mut scratch.f, &mut scratch.x);
                self.propagate(&scratch.f, gain, &mut scratch.square[0]);
            }
            System::Unscented(functions, _) => {
                let Some(sigma) = &mut scratch.sigma else {
                    unreachable!("a filter has its points")
                };
                let (values, x) = (&mut scratch.values[..sigma.len() * n], &mut scratch.x);
                sigma.place(&state.x, &mut gain.prior);
                sigma.values(&functions.f, values);
                sigma.mean(values, n, x);
                gain.prior.copy_from_slice(&self.q);
                sigma.add_covariance(values, n, values, n, &mut gain.prior);
                small::mirror(&mut gain.prior, n);
            }
        }
        at
    }

    /// P ← F P Fᵀ + Q.
    fn propagate(&self, f: &[f64], gain: &mut Gain, product: &mut [f64]) {
        let n = self.n;
        small::product(f, n, &gain.before, n, product);
        gain.prior.copy_from_slice(&self.q);
        small::add_symmetric_product(product, f, n, n, &mut gain.prior);
    }

    /// Updates x in the scratch memory, and writes P after the observation to the gain. The log
    /// score. None if the covariance of the observation is not positive definite.
    fn update(&self, scratch: &mut Scratch, at: usize, observation: &[f64]) -> Option<f64> {
        let (n, d) = (self.n, self.d);
        let Scratch {
            x, h, innovation, ..
        } = &mut *scratch;
        match &self.system {
            System::Linear { h, .. } => {
                small::affine(&h.matrix, x, &h.intercept, innovation);
            }
            System::Extended(functions) => {
                jacobian(&functions.h, x, h, innovation);
                scratch.whiten(n, d);
            }
            System::Unscented(functions, _) => {
                return self.update_unscented(functions, scratch, at, observation);
            }
        }
        for (innovation, observed) in scratch.innovation.iter_mut().zip(observation) {
            *innovation = observed - *innovation;
        }
        if !scratch.gains[at].has_update {
            self.gain(scratch, at);
        }
        scratch.gains[at]
            .is_defined
            .then(|| self.correct(scratch, at))
    }

    /// Writes K, ln |HPHᵀ + R| and P after the update to a gain.
    fn gain(&self, scratch: &mut Scratch, at: usize) {
        let gain = &mut scratch.gains[at];
        gain.has_update = true;
        gain.is_defined = match (&scratch.whitening, &self.r) {
            (Some((_, log)), _) => {
                self.information(gain, &scratch.information, *log, &mut scratch.square)
            }
            (None, Noise::Full(r)) => {
                self.joseph(gain, &scratch.h, r, &mut scratch.square, &mut scratch.tall)
            }
            (None, Noise::Diagonal(_)) => unreachable!("a diagonal R has the information form"),
        };
    }

    fn joseph(
        &self,
        gain: &mut Gain,
        h: &[f64],
        r: &[f64],
        square: &mut [Vec<f64>; 3],
        tall: &mut [Vec<f64>; 2],
    ) -> bool {
        let (n, d) = (self.n, self.d);
        let [transposed, kr] = tall;
        let [rest, product, _] = square;
        small::product(h, n, &gain.prior, n, transposed);
        gain.triangle.copy_from_slice(r);
        small::add_symmetric_product(transposed, h, n, d, &mut gain.triangle);
        if !small::cholesky(&mut gain.triangle, d) {
            return false;
        }
        gain.log_determinant = small::log_determinant(&gain.triangle, d);
        small::forward_rows(&gain.triangle, d, transposed, n);
        small::backward_rows(&gain.triangle, d, transposed, n);
        transpose(transposed, n, &mut gain.k);
        // I − KH.
        small::product(&gain.k, d, h, n, rest);
        for (at, rest) in rest.iter_mut().enumerate() {
            *rest = f64::from(at % (n + 1) == 0) - *rest;
        }
        small::product(rest, n, &gain.prior, n, product);
        small::product(&gain.k, d, r, d, kr);
        gain.after.fill(0.0);
        small::add_symmetric_product(product, rest, n, n, &mut gain.after);
        small::add_symmetric_product(kr, &gain.k, d, n, &mut gain.after);
        true
    }

    fn information(
        &self,
        gain: &mut Gain,
        information: &[f64],
        log_determinant: f64,
        square: &mut [Vec<f64>; 3],
    ) -> bool {
        let n = self.n;
        let [triangle, transposed, inner] = square;
        triangle.copy_from_slice(&gain.prior);
        if !small::semidefinite_cholesky(triangle, n) {
            return false;
        }
        transpose(triangle, n, transposed);
        // I + LᵀH̃ᵀH̃L.
        small::product(transposed, n, information, n, triangle);
        inner.fill(0.0);
        inner.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        small::add_symmetric_product(triangle, transposed, n, n, inner);
        if !small::cholesky(inner, n) {
            return false;
        }
        gain.log_determinant = log_determinant + small::log_determinant(inner, n);
        small::forward_rows(inner, n, transposed, n);
        transpose(transposed, n, triangle);
        gain.after.fill(0.0);
        small::add_symmetric_product(triangle, triangle, n, n, &mut gain.after);
        true
    }

    /// Adds the gain times the innovation to x. The log score.
    fn correct(&self, scratch: &mut Scratch, at: usize) -> f64 {
        let (n, d) = (self.n, self.d);
        let gain = &scratch.gains[at];
        let white = &mut scratch.white;
        white.copy_from_slice(&scratch.innovation);
        let distance = if let Some((whitening, _)) = &scratch.whitening {
            whitening.whiten(d, white, 1);
            let [sum, step, _] = &mut scratch.square;
            let (sum, step) = (&mut sum[..n], &mut step[..n]);
            sum.fill(0.0);
            for (white, row) in white.iter().zip(scratch.h.chunks_exact(n)) {
                for (sum, h) in sum.iter_mut().zip(row) {
                    *sum += white * h;
                }
            }
            for (step, row) in step.iter_mut().zip(gain.after.chunks_exact(n)) {
                *step = small::dot(row, sum);
            }
            for (x, step) in scratch.x.iter_mut().zip(step.iter()) {
                *x += step;
            }
            (small::dot(white, white) - small::dot(sum, step)).max(0.0)
        } else {
            for (x, row) in scratch.x.iter_mut().zip(gain.k.chunks_exact(d)) {
                *x += small::dot(row, &scratch.innovation);
            }
            small::forward(&gain.triangle, d, white);
            small::dot(white, white)
        };
        self.log_density(gain.log_determinant, distance)
    }

    /// ln N(x; m, S) from ln |S| and (x − m)ᵀS⁻¹(x − m).
    fn log_density(&self, log_determinant: f64, distance: f64) -> f64 {
        let constant = self.d as f64 * std::f64::consts::TAU.ln();
        -0.5 * (constant + log_determinant + distance)
    }

    fn update_unscented(
        &self,
        functions: &Dynamics,
        scratch: &mut Scratch,
        at: usize,
        observation: &[f64],
    ) -> Option<f64> {
        let (n, d) = (self.n, self.d);
        let Scratch {
            gains,
            sigma: Some(sigma),
            x,
            innovation,
            white,
            tall: [cross, rk],
            values,
            differences,
            ..
        } = scratch
        else {
            unreachable!("a filter has its points")
        };
        let gain = &mut gains[at];
        let Noise::Full(r) = &self.r else {
            unreachable!("R is d × d")
        };
        let values = &mut values[..sigma.len() * d];
        gain.after.copy_from_slice(&gain.prior);
        sigma.place(x, &mut gain.after);
        sigma.values(&functions.h, values);
        sigma.mean(values, d, innovation);
        sigma.differences(x, differences);
        gain.triangle.copy_from_slice(r);
        sigma.add_covariance(values, d, values, d, &mut gain.triangle);
        small::mirror(&mut gain.triangle, d);
        cross.fill(0.0);
        sigma.add_covariance(values, d, differences, n, cross);
        if !small::cholesky(&mut gain.triangle, d) {
            return None;
        }
        for (innovation, observed) in innovation.iter_mut().zip(observation) {
            *innovation = observed - *innovation;
        }
        white.copy_from_slice(innovation);
        small::forward(&gain.triangle, d, white);
        small::forward_rows(&gain.triangle, d, cross, n);
        for (white, row) in white.iter().zip(cross.chunks_exact(n)) {
            for (x, cross) in x.iter_mut().zip(row) {
                *x += white * cross;
            }
        }
        // Kᵀ, then P ← Σ w (δx − K δy)(δx − K δy)ᵀ + KRKᵀ. P − K S Kᵀ would cancel if P is large
        // against R.
        small::backward_rows(&gain.triangle, d, cross, n);
        let points = differences.chunks_exact_mut(n).zip(values.chunks_exact(d));
        for (difference, value) in points {
            for (value, row) in value.iter().zip(cross.chunks_exact(n)) {
                for (difference, k) in difference.iter_mut().zip(row) {
                    *difference -= value * k;
                }
            }
        }
        gain.after.fill(0.0);
        sigma.add_covariance(differences, n, differences, n, &mut gain.after);
        small::product(r, d, cross, n, rk);
        for (k, rk) in cross.chunks_exact(n).zip(rk.chunks_exact(n)) {
            for (after, k) in gain.after.chunks_exact_mut(n).zip(k) {
                for (after, rk) in after.iter_mut().zip(rk) {
                    *after += k * rk;
                }
            }
        }
        small::mirror(&mut gain.after, n);
        sigma.keep_semidefinite(&mut gain.after);
        let log_determinant = small::log_determinant(&gain.triangle, d);
        Some(self.log_density(log_determinant, small::dot(white, white)))
    }

    /// Adds mean and variance of the columns of the state.
    fn estimate(&self, state: &mut State, scratch: &mut Scratch, out: &mut Estimates) {
        let n = self.n;
        let variance = |p: &[f64], at: usize| p[at * (n + 1)].max(0.0);
        match &self.system {
            System::Extended(functions) if !functions.estimate.is_empty() => {
                let Scratch {
                    slopes,
                    square: [product, ..],
                    ..
                } = scratch;
                for function in &functions.estimate {
                    let mean = function.gradient(&state.x, slopes);
                    let product = &mut product[..n];
                    for (product, row) in product.iter_mut().zip(state.p.chunks_exact(n)) {
                        *product = small::dot(row, slopes);
                    }
                    out.mean.push(mean);
                    out.decoded.push(mean);
                    out.variance.push(small::dot(slopes, product).max(0.0));
                }
            }
            System::Unscented(functions, _) if !functions.estimate.is_empty() => {
                let Scratch {
                    sigma,
                    values,
                    estimate,
                    ..
                } = scratch;
                let Some(sigma) = sigma else {
                    unreachable!("a filter has its points")
                };
                let m = self.columns;
                let values = &mut values[..sigma.len() * m];
                sigma.place(&state.x, &mut state.p);
                sigma.values(&functions.estimate, values);
                sigma.mean(values, m, estimate);
                out.mean.extend_from_slice(estimate);
                out.decoded.extend_from_slice(estimate);
                out.variance
                    .extend((0..m).map(|i| sigma.variance(values, m, i).max(0.0)));
            }
            _ => {
                out.mean.extend_from_slice(&state.x);
                out.decoded.extend_from_slice(&state.x);
                out.variance.extend((0..n).map(|i| variance(&state.p, i)));
            }
        }
    }
}

impl Scratch {
    /// Whitens H and multiplies it by its transpose, in the information form.
    fn whiten(&mut self, n: usize, d: usize) {
        let Some((whitening, _)) = &self.whitening else {
            return;
        };
        whitening.whiten(d, &mut self.h, n);
        self.information.fill(0.0);
        for row in self.h.chunks_exact(n) {
            for i in 0..n {
                for j in i..n {
                    self.information[i * n + j] += row[i] * row[j];
                }
            }
        }
        small::mirror(&mut self.information, n);
    }
}

/// Values and derivatives of functions at a state.
fn jacobian(functions: &[Expression], x: &[f64], slopes: &mut [f64], values: &mut [f64]) {
    let rows = slopes.chunks_exact_mut(x.len());
    for ((function, slopes), value) in functions.iter().zip(rows).zip(values) {
        *value = function.gradient(x, slopes);
    }
}

/// The transpose of a matrix of `n` columns.
fn transpose(a: &[f64], n: usize, out: &mut [f64]) {
    let rows = a.len() / n;
    for (i, row) in a.chunks_exact(n).enumerate() {
        for (j, a) in row.iter().enumerate() {
            out[j * rows + i] = *a;
        }
    }
}
