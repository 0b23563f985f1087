//! Prediction and update, row by row.
//!
//! Covariances are kept by their roots, P = UᵀU ([`root`]), in array form. Orthogonal steps from
//! the left make triangles of
//!
//! ```text
//! prediction      update
//! ┌ U Fᵀ    ┐     ┌ R^(1/2) 0 ┐  →  ┌ Lᵀ   Cᵀ ┐
//! └ Q^(1/2) ┘     └ U Hᵀ    U ┘     └ 0    U⁺ ┘
//! ```
//!
//! which are the root after the prediction, and at once that of the covariance of the observation,
//! HPHᵀ + R = LLᵀ, the gain CL⁻¹ and the root after the update. For more numbers per observation
//! than coordinates and for a diagonal R the observation is divided by R^(1/2), so R is 1. If there
//! are more numbers than coordinates, H is ZT with ZᵀZ = 1, and the observation Zᵀz with matrix T
//! tells the same of the state. This costs O(dn²) and has no d × d matrix.
//!
//! The covariances of a linear system do not depend on the observations, and after some rows they
//! repeat with equal bits. The filter keeps the last few and uses them again.
//!
//! If some numbers of an observation are missing, the filter of the others takes its place for the
//! row: H or h has the rows of the numbers that are there, and R their rows and columns. It has the
//! same states, so it is not another distribution but that of the numbers that are there.

use crate::methods::filter::expression::Expression;
use crate::methods::filter::fit::{Dynamics, Estimates};
use crate::methods::filter::kalman::model::{KalmanModel, Noise, System};
use crate::methods::filter::kalman::root::{self, Covariance, Factored};
use crate::methods::filter::kalman::small;
use crate::methods::filter::kalman::unscented::Sigma;

/// Covariances that are kept. In the long run they repeat every one or two rows.
const KEPT: usize = 4;

/// Filters of a part of the numbers of an observation that are kept, if these are few.
const PARTS: usize = 16;

/// Numbers of R in all parts that are kept, unless one part has more.
const PART_NUMBERS: usize = 1 << 16;

/// The distribution of the state after a row: N(x, P).
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    x: Vec<f64>,
    p: Covariance,
    /// Whether a row came before.
    is_started: bool,
}

impl State {
    /// P: n × n.
    pub(super) fn covariance(&self) -> Vec<f64> {
        self.p.product()
    }
}

/// What an update does with any observation, given the covariance before.
#[derive(Debug, Clone)]
struct Gain {
    /// Whether it is that of the first row, which no prediction comes before.
    is_first: bool,
    /// The root of P after the row before.
    before: Vec<f64>,
    /// P after the prediction.
    prior: Covariance,
    /// P after the update.
    after: Covariance,
    /// Whether the covariances before and after the prediction are those of a row.
    is_known: bool,
    /// Whether the rest is computed.
    has_update: bool,
    /// Whether there is an update: the covariance of the observation is positive definite.
    is_defined: bool,
    /// ln |HPHᵀ + R|.
    log_determinant: f64,
    /// Cᵀ: m × n, for m numbers per observation after it is reduced.
    cross: Vec<f64>,
    /// Lᵀ: m × m, upper.
    noise: Vec<f64>,
    /// L: m × m, lower.
    triangle: Vec<f64>,
}

/// R^(−1/2), if observations are divided by R^(1/2).
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
    /// R^(−1/2), and ln |R|.
    whitening: Option<(Whitening, f64)>,
    /// H after whitening, for more numbers per observation than coordinates.
    factored: Option<Factored>,
    sigma: Option<Sigma>,
    /// P0.
    first: Covariance,
    /// The root of Q, n × n.
    q: Vec<f64>,
    /// The root of R after whitening and reduction, m × m.
    r: Vec<f64>,
    /// x after the prediction.
    x: Vec<f64>,
    /// The Jacobian of f, n × n.
    f: Vec<f64>,
    /// H or the Jacobian of h, d × n, whitened.
    h: Vec<f64>,
    /// The observation minus its prediction: d values.
    innovation: Vec<f64>,
    /// The whitened innovation: d values. Then the reduced one: m values.
    white: Vec<f64>,
    reduced: Vec<f64>,
    /// Rows of which the triangle is a root, and sums per column.
    rows: Vec<f64>,
    sums: Vec<f64>,
    /// U Hᵀ: n × m.
    seen: Vec<f64>,
    /// Values of functions at sigma points.
    values: Vec<f64>,
    /// The Jacobian of one estimated column: n values.
    slopes: Vec<f64>,
    estimate: Vec<f64>,
    /// Filters of the numbers that are there if others are missing, the last ones.
    parts: Vec<Part>,
    /// The part that is replaced next.
    oldest_part: usize,
}

/// The filter of some numbers of an observation.
#[derive(Debug)]
struct Part {
    /// The numbers that are there, ascending.
    present: Vec<usize>,
    model: KalmanModel,
    scratch: Scratch,
    /// These numbers of a row.
    observation: Vec<f64>,
}

impl KalmanModel {
    /// The state before the first row of a sequence.
    pub(crate) fn start(&self) -> State {
        State {
            x: self.x0.clone(),
            // The first row has the P0 of the scratch memory.
            p: Covariance::zero(self.n),
            is_started: false,
        }
    }

    /// Memory for [`push`](KalmanModel::push).
    pub(crate) fn scratch(&self) -> Scratch {
        let (n, d) = (self.n, self.d);
        let whitening = self.whitening();
        let factored = (whitening.is_some() && d > n).then(|| Factored::new(d, n));
        let m = if factored.is_some() { n } else { d };
        let r = match &self.r {
            Noise::Full(r) if whitening.is_none() => root::of(r, d),
            _ => (0..m * m).map(|at| f64::from(at % (m + 1) == 0)).collect(),
        };
        let (kept, points) = match self.system {
            System::Linear { .. } => (KEPT, 0),
            System::Extended(_) => (1, 0),
            System::Unscented(..) => (1, 2 * n + 1),
        };
        let gain = Gain {
            is_first: false,
            before: vec![0.0; n * n],
            prior: Covariance::zero(n),
            after: Covariance::zero(n),
            is_known: false,
            has_update: false,
            is_defined: false,
            log_determinant: 0.0,
            cross: vec![0.0; m * n],
            noise: vec![0.0; m * m],
            triangle: vec![0.0; m * m],
        };
        let mut first = Covariance::zero(n);
        first.root = root::of(&self.p0, n);
        first.measure();
        let even = if points > 0 { n } else { 0 };
        let mut scratch = Scratch {
            gains: vec![gain; kept],
            oldest: 0,
            whitening,
            factored,
            sigma: match self.system {
                System::Unscented(_, spread) => Some(Sigma::new(n, spread)),
                _ => None,
            },
            first,
            q: root::of(&self.q, n),
            r,
            x: vec![0.0; n],
            f: vec![0.0; n * n],
            h: vec![0.0; d * n],
            innovation: vec![0.0; d],
            white: vec![0.0; d],
            reduced: vec![0.0; m],
            rows: vec![0.0; ((2 * n + even) * n).max((even + m) * m)],
            sums: vec![0.0; n.max(m)],
            seen: vec![0.0; n * m],
            values: vec![0.0; points * n.max(d).max(self.columns)],
            slopes: vec![0.0; n],
            estimate: vec![0.0; self.columns],
            parts: Vec::new(),
            oldest_part: 0,
        };
        if let System::Linear { h, .. } = &self.system {
            scratch.h.copy_from_slice(&h.matrix);
            scratch.whiten(n, d);
        }
        scratch
    }

    /// R^(−1/2) and ln |R|. None if R may be singular, or is as narrow as the state.
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
    /// n × d, row-major. Of a row with numbers that are not finite, the others are its observation.
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
            let log_score = if is_partial(observation) {
                self.step_of_part(state, scratch, observation)
            } else {
                self.step(state, scratch, observation)
            };
            out.was_updated.push(log_score.is_some());
            out.log_score.push(log_score.unwrap_or(f64::NAN));
            self.estimate(state, scratch, out);
        }
    }

    /// As [`step`](KalmanModel::step), by the numbers of the observation that are finite.
    fn step_of_part(
        &self,
        state: &mut State,
        scratch: &mut Scratch,
        observation: &[f64],
    ) -> Option<f64> {
        let finite = || (0..self.d).filter(|&at| observation[at].is_finite());
        let is_known = |part: &Part| part.present.iter().copied().eq(finite());
        let at = match scratch.parts.iter().position(is_known) {
            Some(at) => at,
            None => {
                let part = self.part(finite().collect());
                let most = (PART_NUMBERS / (self.d * self.d)).clamp(1, PARTS);
                if scratch.parts.len() < most {
                    scratch.parts.push(part);
                    scratch.parts.len() - 1
                } else {
                    let at = scratch.oldest_part;
                    scratch.oldest_part = (at + 1) % most;
                    scratch.parts[at] = part;
                    at
                }
            }
        };
        let part = &mut scratch.parts[at];
        for (own, &place) in part.observation.iter_mut().zip(&part.present) {
            *own = observation[place];
        }
        part.model.step(state, &mut part.scratch, &part.observation)
    }

    /// The filter of the numbers `present` of an observation.
    fn part(&self, present: Vec<usize>) -> Part {
        let model = self.of_part(&present);
        Part {
            scratch: model.scratch(),
            model,
            observation: vec![0.0; present.len()],
            present,
        }
    }

    /// Moves the state to the next row. The log score of its observation, if there is an update.
    fn step(&self, state: &mut State, scratch: &mut Scratch, observation: &[f64]) -> Option<f64> {
        let at = self.predict(state, scratch);
        state.is_started = true;
        let prior = &scratch.gains[at].prior;
        // A root is finite if its variances are.
        if !(small::are_finite(&scratch.x) && small::are_finite(&prior.variance)) {
            state.x.copy_from_slice(&self.x0);
            state.p.copy_from(&scratch.first);
            return None;
        }
        state.x.copy_from_slice(&scratch.x);
        state.p.copy_from(prior);
        if !small::are_finite(observation) {
            return None;
        }
        let log_score = self.update(scratch, at, observation)?;
        if !(log_score.is_finite() && small::are_finite(&scratch.x)) {
            return None;
        }
        state.x.copy_from_slice(&scratch.x);
        state.p.copy_from(&scratch.gains[at].after);
        Some(log_score)
    }

    /// Writes x and P before the observation of the next row to the scratch memory. The index of
    /// the gain with this P.
    fn predict(&self, state: &State, scratch: &mut Scratch) -> usize {
        let n = self.n;
        let is_first = !state.is_started;
        let is_kept = |gain: &Gain| {
            gain.is_known
                && gain.is_first == is_first
                && (is_first || small::are_same(&gain.before, &state.p.root))
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
        gain.before.copy_from_slice(&state.p.root);
        if is_first {
            gain.prior.copy_from(&scratch.first);
            return at;
        }
        let even = match &self.system {
            System::Linear { f, .. } => {
                small::upper_product(&state.p.root, &f.matrix, n, &mut scratch.rows[..n * n], n);
                0
            }
            System::Extended(functions) => {
                jacobian(&functions.f, &state.x, &mut scratch.f, &mut scratch.x);
                small::upper_product(&state.p.root, &scratch.f, n, &mut scratch.rows[..n * n], n);
                0
            }
            System::Unscented(functions, _) => {
                let Some(sigma) = &mut scratch.sigma else {
                    unreachable!("a filter has its points")
                };
                let values = &mut scratch.values[..sigma.len() * n];
                sigma.place(&state.x, &state.p.root);
                sigma.values(&functions.f, values);
                sigma.spread(values, n, &mut scratch.x);
                scratch.rows[..2 * n * n].copy_from_slice(&values[n..]);
                n
            }
        };
        let rows = &mut scratch.rows[..(2 * n + even) * n];
        rows[(n + even) * n..].copy_from_slice(&scratch.q);
        root::triangle(rows, n, &mut scratch.sums, &mut gain.prior.root);
        if let Some(sigma) = &scratch.sigma {
            sigma.subtract_negative_part(&scratch.values[..n], &mut gain.prior.root, n);
        }
        gain.prior.measure();
        at
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

    /// Writes the update to a gain, for a linear observation.
    fn gain(&self, scratch: &mut Scratch, at: usize) {
        let gain = &mut scratch.gains[at];
        let h = match &scratch.factored {
            Some(factored) => &factored.t,
            None => &scratch.h,
        };
        let m = scratch.reduced.len();
        small::upper_product(&gain.prior.root, h, self.n, &mut scratch.seen, m);
        gain.noise.copy_from_slice(&scratch.r);
        gain.after.root.copy_from_slice(&gain.prior.root);
        gain.observe(&mut scratch.seen);
        let log_determinant = scratch.whitening.as_ref().map_or(0.0, |(_, log)| *log);
        gain.finish(log_determinant);
    }

    /// Adds the gain times the innovation to x. The log score.
    fn correct(&self, scratch: &mut Scratch, at: usize) -> f64 {
        let n = self.n;
        let gain = &scratch.gains[at];
        let (white, reduced) = (&mut scratch.white, &mut scratch.reduced);
        white.copy_from_slice(&scratch.innovation);
        if let Some((whitening, _)) = &scratch.whitening {
            whitening.whiten(self.d, white, 1);
        }
        // Of the squares of the white innovation, those that say nothing of the state.
        let rest = if let Some(factored) = &scratch.factored {
            for (reduced, z) in reduced.iter_mut().zip(factored.z.chunks_exact(self.d)) {
                *reduced = small::dot(z, white);
            }
            (small::dot(white, white) - small::dot(reduced, reduced)).max(0.0)
        } else {
            reduced.copy_from_slice(white);
            0.0
        };
        small::forward(&gain.triangle, reduced.len(), reduced);
        for (reduced, row) in reduced.iter().zip(gain.cross.chunks_exact(n)) {
            for (x, cross) in scratch.x.iter_mut().zip(row) {
                *x += reduced * cross;
            }
        }
        let distance = rest + small::dot(reduced, reduced);
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
            r,
            x,
            innovation,
            rows,
            sums,
            seen,
            values,
            ..
        } = &mut *scratch
        else {
            unreachable!("a filter has its points")
        };
        let gain = &mut gains[at];
        let values = &mut values[..sigma.len() * d];
        sigma.place(x, &gain.prior.root);
        sigma.values(&functions.h, values);
        sigma.spread(values, d, innovation);
        for (innovation, observed) in innovation.iter_mut().zip(observation) {
            *innovation = observed - *innovation;
        }
        // The even parts of the points themselves are 0, so those of h are noise.
        let (odd, even) = values[d..].split_at(n * d);
        let rows = &mut rows[..(n + d) * d];
        rows[..n * d].copy_from_slice(even);
        rows[n * d..].copy_from_slice(r);
        root::triangle(rows, d, sums, &mut gain.noise);
        seen.copy_from_slice(odd);
        sigma.steps(&mut gain.after.root);
        gain.observe(seen);
        if sigma.has_negative_part() {
            let width = d + n;
            let mut joint = vec![0.0; width * width];
            let own = gain.noise.chunks_exact(d).zip(gain.cross.chunks_exact(n));
            for (joint, (noise, cross)) in joint.chunks_exact_mut(width).zip(own) {
                joint[..d].copy_from_slice(noise);
                joint[d..].copy_from_slice(cross);
            }
            let own = gain.after.root.chunks_exact(n);
            for (joint, root) in joint[d * width..].chunks_exact_mut(width).zip(own) {
                joint[d..].copy_from_slice(root);
            }
            sigma.subtract_negative_part(&values[..d], &mut joint, width);
            let own = gain.noise.chunks_exact_mut(d);
            let own = own.zip(gain.cross.chunks_exact_mut(n));
            for (joint, (noise, cross)) in joint.chunks_exact(width).zip(own) {
                noise.copy_from_slice(&joint[..d]);
                cross.copy_from_slice(&joint[d..]);
            }
            let own = gain.after.root.chunks_exact_mut(n);
            for (joint, root) in joint[d * width..].chunks_exact(width).zip(own) {
                root.copy_from_slice(&joint[d..]);
            }
        }
        gain.finish(0.0);
        gain.is_defined.then(|| self.correct(scratch, at))
    }

    /// Adds mean and variance of the columns of the state.
    fn estimate(&self, state: &State, scratch: &mut Scratch, out: &mut Estimates) {
        let n = self.n;
        match &self.system {
            System::Extended(functions) if !functions.estimate.is_empty() => {
                let slopes = &mut scratch.slopes;
                for function in &functions.estimate {
                    let mean = function.gradient(&state.x, slopes);
                    out.mean.push(mean);
                    out.decoded.push(mean);
                    let rows = state.p.root.chunks_exact(n);
                    let products = rows.map(|row| small::dot(row, slopes));
                    out.variance.push(products.map(|y| y * y).sum());
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
                sigma.place(&state.x, &state.p.root);
                sigma.values(&functions.estimate, values);
                sigma.spread(values, m, estimate);
                out.mean.extend_from_slice(estimate);
                out.decoded.extend_from_slice(estimate);
                out.variance
                    .extend((0..m).map(|i| sigma.variance(values, m, i).max(0.0)));
            }
            _ => {
                out.mean.extend_from_slice(&state.x);
                out.decoded.extend_from_slice(&state.x);
                out.variance.extend_from_slice(&state.p.variance);
            }
        }
    }
}

/// Whether some numbers of an observation are missing and others are there.
fn is_partial(observation: &[f64]) -> bool {
    let missing = observation.iter().filter(|x| !x.is_finite()).count();
    missing > 0 && missing < observation.len()
}

impl Gain {
    /// Takes an observation into the root, which is that before it.
    fn observe(&mut self, seen: &mut [f64]) {
        let after = &mut self.after.root;
        root::observe(&mut self.noise, seen, after, &mut self.cross);
    }

    /// Computes what follows from the roots.
    fn finish(&mut self, log_determinant: f64) {
        let m = self.noise.len().isqrt();
        self.has_update = true;
        small::transpose(&self.noise, m, &mut self.triangle);
        // A diagonal element that is rounding of its row of L: the observation has no density.
        let smallest = f64::EPSILON * (m + self.after.variance.len()) as f64;
        self.is_defined = self.triangle.chunks_exact(m).enumerate().all(|(i, row)| {
            let variance = small::dot(row, row);
            row[i] > smallest * variance.sqrt() && variance.is_finite()
        });
        self.after.measure();
        self.log_determinant = log_determinant + small::log_determinant(&self.triangle, m);
    }
}

impl Scratch {
    /// Whitens H and reduces it.
    fn whiten(&mut self, n: usize, d: usize) {
        if let Some((whitening, _)) = &self.whitening {
            whitening.whiten(d, &mut self.h, n);
        }
        if let Some(factored) = &mut self.factored {
            factored.factor(&self.h, n);
        }
    }
}

/// Values and derivatives of functions at a state.
fn jacobian(functions: &[Expression], x: &[f64], slopes: &mut [f64], values: &mut [f64]) {
    let rows = slopes.chunks_exact_mut(x.len());
    for ((function, slopes), value) in functions.iter().zip(rows).zip(values) {
        *value = function.gradient(x, slopes);
    }
}
