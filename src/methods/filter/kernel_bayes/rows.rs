//! Filters that hold the weights of single rows.

use crate::evidence::observations::Supervision;
use crate::methods::filter::expression::Expression;
use crate::methods::filter::fit::Estimates;
use crate::methods::filter::kernel_bayes::base::{Base, Constants, NO_WEIGHT, State};
use crate::methods::filter::kernel_bayes::cholesky::Features;
use crate::methods::filter::kernel_bayes::kernel::{Kernel, squares};
use crate::methods::filter::kernel_bayes::linear::{Lower, add_columns, products};
use crate::methods::filter::kernel_bayes::nearest::{decoded, nearest, supervise};
use crate::methods::filter::kernel_bayes::objective::{Objective, StateGram, regularised, signed};
use crate::methods::filter::kernel_bayes::preimage::{Weighted, emit};
use crate::methods::filter::kernel_bayes::solve::{Small, Solver, System};
use crate::methods::filter::params::{self, Rule};
use std::f64::consts::TAU;

/// Weights of a system whose last correction is a larger share are not used.
const LARGEST_ERROR: f64 = 1e-6;

/// A sum of kernel values below this has lost digits.
const UNDERFLOW: f64 = 1e-290;

/// Memory that is used again for every row.
#[derive(Debug, Default)]
pub(super) struct Memory {
    solver: Solver,
    vectors: [Vec<f64>; 3],
    /// The kernel matrix with the supervision of a single row.
    gram: Vec<f64>,
    /// The kernel matrix of the rows with positive weights.
    active: Vec<f64>,
    /// The factor of the system of an objective.
    of_objective: Small,
}

/// Training rows, and rows of supervision after them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rows {
    /// The number of training rows.
    pub(super) n: usize,
    /// all × d_y.
    pub(super) states: Vec<f64>,
    /// all × d_x.
    pub(super) observations: Vec<f64>,
    /// The prior weights of a static problem; else empty.
    pub(super) prior: Vec<f64>,
    /// The places of the training rows among those of the fit, if they are some of them.
    pub(super) kept: Vec<usize>,
    /// States of which the nearest to a prediction supervises a row: m × d_y; else empty.
    pub(super) supervised: Vec<f64>,
    /// That prediction, as functions of the estimate before. Empty: the prediction of the filter.
    pub(super) next: Vec<Expression>,
    /// Features of the states by columns: all × r.
    features: Vec<f64>,
    /// The kernel matrix of the observations: all × all.
    gram: Vec<f64>,
    all: usize,
}

impl Rows {
    pub(super) fn new(
        constants: &Constants,
        features: &Features,
        n: usize,
        states: Vec<f64>,
        observations: Vec<f64>,
        prior: Vec<f64>,
        kept: Vec<usize>,
    ) -> Rows {
        let kernel = Kernel {
            width: observations.len() * constants.state.width / states.len().max(1),
            ..constants.observation
        };
        Rows {
            features: features.columns(&constants.state, &states),
            gram: kernel.gram(&observations),
            all: states.len() / constants.state.width.max(1),
            n,
            states,
            observations,
            prior,
            kept,
            supervised: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Whether all rows have the same prior.
    pub(super) fn is_static(&self) -> bool {
        !self.prior.is_empty()
    }

    /// Whether there are no rows of supervision.
    pub(super) fn has_training_only(&self) -> bool {
        self.n == self.all && self.supervised.is_empty()
    }

    /// Filters the next row of a sequence. `x` is its observation, if it has one.
    pub(super) fn filter(
        &self,
        base: &Base,
        state: &mut State,
        memory: &mut Memory,
        x: Option<&[f64]>,
        supervision: Option<&Supervision>,
        out: &mut Estimates,
    ) {
        let is_static = self.is_static();
        let begins = state.mean.is_empty() && !is_static;
        let mut beta = std::mem::take(&mut memory.vectors[0]);
        self.prior_weights(base, state, &mut memory.vectors[1], &mut beta);
        let pair = x.filter(|_| !begins && !self.supervised.is_empty());
        let pair = pair.map(|x| self.nearest_pair(base, state, &beta, x));
        let supervision = pair.as_ref().or(supervision);
        let mut updated = None;
        let mut log_score = f64::NAN;
        if let Some(x) = x {
            let mut kernel = std::mem::take(&mut memory.vectors[2]);
            log_score = self.values(base, &beta, x, &mut kernel);
            memory.vectors[2] = kernel;
            updated = if begins {
                self.first(base, memory)
            } else {
                self.weights(base, memory, &beta, x, supervision)
            };
        }
        let positive = beta.iter().filter(|b| **b > 0.0).count() as f64 / self.n as f64;
        out.positive_share
            .push(if begins { f64::NAN } else { positive });
        out.log_score.push(log_score);
        out.was_updated.push(updated.is_some());
        if base.params.objective {
            let weights = updated.as_deref().filter(|_| !begins);
            let found = weights.zip(x).and_then(|(weights, x)| {
                self.objective(base, memory, &beta, x, weights, supervision)
            });
            out.push_objective(found.map(|own| [own.value, own.excess, own.distance]));
        }
        let kernel = &base.constants.state;
        let decode = base.params.decode;
        match &updated {
            Some(weights) => {
                let (own, extra) = weights.split_at(weights.len().min(self.all));
                let width = kernel.width;
                let states = &self.states[..own.len() * width];
                let of_extra = supervision.map_or(&[][..], |s| &s.states[..extra.len() * width]);
                let parts = [Weighted::new(own, states), Weighted::new(extra, of_extra)];
                emit(&parts, kernel, decode, out);
                self.carry(base, &parts, state);
            }
            None if beta.iter().sum::<f64>().abs() > NO_WEIGHT => {
                let states = &self.states[..self.n * kernel.width];
                let parts = [Weighted::new(&beta, states)];
                emit(&parts, kernel, decode, out);
                self.carry(base, &parts, state);
            }
            // There is no prediction, so the state stays.
            None => {
                let mut weights = state.mean.clone();
                base.features.solve_transposed(&mut weights);
                let parts = [Weighted::new(&weights, &base.features.points)];
                emit(&parts, kernel, decode, out);
            }
        }
        if is_static {
            state.mean.clear();
        }
        if !self.next.is_empty() {
            state.decoded.clear();
            let before = out.decoded.len() - kernel.width;
            state.decoded.extend_from_slice(&out.decoded[before..]);
        }
        memory.vectors[0] = beta;
    }

    /// The prior weights β of the next row. `c` is memory.
    fn prior_weights(&self, base: &Base, state: &State, c: &mut Vec<f64>, beta: &mut Vec<f64>) {
        beta.clear();
        if !self.prior.is_empty() {
            beta.extend_from_slice(&self.prior);
        } else if state.mean.is_empty() {
            beta.resize(self.n, 1.0 / self.n as f64);
        } else {
            base.prior_features(&state.mean, c);
            beta.resize(self.n, 0.0);
            for (column, c) in self.features.chunks_exact(self.all).zip(c.iter()) {
                add_columns(&column[..self.n], &[*c], beta);
            }
        }
    }

    /// The weights of all rows after an observation. None if it changes nothing.
    pub(super) fn update(
        &self,
        base: &Base,
        memory: &mut Memory,
        beta: &[f64],
        x: &[f64],
    ) -> Option<Vec<f64>> {
        let mut kernel = std::mem::take(&mut memory.vectors[2]);
        self.values(base, beta, x, &mut kernel);
        memory.vectors[2] = kernel;
        self.weights(base, memory, beta, x, None)
    }

    /// The kernel of an observation with all rows, and the log score of the observation by the
    /// positive weights.
    fn values(&self, base: &Base, beta: &[f64], x: &[f64], out: &mut Vec<f64>) -> f64 {
        let kernel = &base.constants.observation;
        out.resize(self.all, 0.0);
        squares(&self.observations, x, out);
        let exponent = kernel.exponent();
        let mut nearest = f64::INFINITY;
        for (square, b) in out.iter().zip(beta) {
            if *b > 0.0 {
                nearest = nearest.min(*square);
            }
        }
        let is_far = kernel.form == params::Kernel::Rbf && exponent * nearest < UNDERFLOW.ln();
        let shift = if is_far { nearest } else { 0.0 };
        let mut shifted = f64::NAN;
        if is_far {
            let own = out.iter().zip(beta).filter(|(_, b)| **b > 0.0);
            shifted = own.map(|(s, b)| b * (exponent * (s - shift)).exp()).sum();
        }
        kernel.of_squares(out);
        let positive = beta.iter().filter(|b| **b > 0.0);
        let total: f64 = positive.sum();
        if total <= 0.0 {
            return f64::NAN;
        }
        let sum = if is_far {
            shifted
        } else {
            let own = out.iter().zip(beta).filter(|(_, b)| **b > 0.0);
            own.map(|(k, b)| k * b).sum()
        };
        let score = (sum / total).ln();
        match kernel.form {
            params::Kernel::Delta => score,
            params::Kernel::Rbf => {
                let h = kernel.bandwidth;
                let volume = 0.5 * x.len() as f64 * (TAU * h * h).ln();
                let shift = if is_far { exponent * shift } else { 0.0 };
                score + shift - volume
            }
        }
    }

    /// α(1) = (K + nλ)⁻¹ k_x, the posterior without a prior. The values of the kernel are in
    /// `memory`.
    fn first(&self, base: &Base, memory: &mut Memory) -> Option<Vec<f64>> {
        let system = System {
            k: Lower {
                rows: &self.gram,
                stride: self.all,
                n: self.n,
            },
            e: &vec![1.0; self.n],
            delta: self.n as f64 * base.constants.lambda,
            v: &memory.vectors[2][..self.n],
        };
        let mut weights = Vec::new();
        memory.solver.positive(system, &mut weights);
        sound(weights, memory.solver.error)
    }

    /// The weights of all rows, by the rule. The values of the kernel are in `memory`.
    fn weights(
        &self,
        base: &Base,
        memory: &mut Memory,
        beta: &[f64],
        x: &[f64],
        supervision: Option<&Supervision>,
    ) -> Option<Vec<f64>> {
        let takes_nearest = !self.supervised.is_empty();
        let supervision = supervision.filter(|_| base.params.rule == Rule::Kregbayes);
        // The pair of the nearest state has a closed form, and needs no row of the matrix.
        let supervision = supervision.filter(|_| !takes_nearest);
        let extra = supervision.map_or(0, |s| s.states.len() / base.constants.state.width);
        let all = self.all + extra;
        let is_kbr = base.params.rule == Rule::Kbr;
        let mut e = roots(beta, is_kbr);
        if e.iter().all(|e| *e == 0.0) {
            return None;
        }
        e.resize(all, base.params.mu.sqrt());
        let Memory {
            solver,
            vectors,
            gram,
            active,
            ..
        } = memory;
        let values = &mut vectors[2];
        let bordered = self.bordered_system(base, e, x, supervision, values, gram);
        let system = bordered.system();
        let mut weights = Vec::new();
        if is_kbr {
            solver.indefinite(system, &signs(beta), &mut weights);
        } else {
            weights.resize(all, 0.0);
            solve_active(system, solver, active, &mut weights);
        }
        for (w, e) in weights.iter_mut().zip(&bordered.e) {
            *w *= e;
        }
        if takes_nearest {
            supervise(&base.params, base.constants.delta, values, &mut weights);
        }
        sound(weights, solver.error)
    }

    /// The supervised pair of a row with the prior weights β and the observation x.
    fn nearest_pair(&self, base: &Base, state: &State, beta: &[f64], x: &[f64]) -> Supervision {
        let (kernel, decode) = (&base.constants.state, base.params.decode);
        let next = self.next.iter().map(|f| f.eval(&state.decoded));
        let mut predicted: Vec<f64> = next.collect();
        // A function may be undefined at a state.
        if predicted.is_empty() || predicted.iter().any(|y| !y.is_finite()) {
            let prior = Weighted::new(beta, &self.states[..self.n * kernel.width]);
            predicted = decoded(prior, kernel, decode);
        }
        Supervision {
            states: nearest(&self.supervised, &predicted).to_vec(),
            observations: x.to_vec(),
        }
    }

    /// The objective of the weights of a row with the observation x. The values of the kernel are
    /// in `memory`.
    fn objective(
        &self,
        base: &Base,
        memory: &mut Memory,
        beta: &[f64],
        x: &[f64],
        weights: &[f64],
        supervision: Option<&Supervision>,
    ) -> Option<Objective> {
        let supervision = supervision.filter(|_| base.params.rule == Rule::Kregbayes);
        let extra = supervision.map_or(0, |s| s.states.len() / base.constants.state.width);
        let all = self.all + extra;
        if weights.len() != all {
            return None;
        }
        let is_kbr = base.params.rule == Rule::Kbr;
        let mut e = roots(beta, is_kbr);
        e.resize(all, base.params.mu.sqrt());
        let (values, gram) = (&mut memory.vectors[2], &mut memory.gram);
        let bordered = self.bordered_system(base, e, x, supervision, values, gram);
        let system = bordered.system();
        let states = self.state_gram(base, supervision, extra);
        if is_kbr {
            return Some(signed(system, &signs(beta), &states));
        }
        regularised(system, &states, weights, &mut memory.of_objective)
    }

    /// The kernel matrix of the states, those of the supervision of a single row in its last rows.
    fn state_gram(
        &self,
        base: &Base,
        supervision: Option<&Supervision>,
        extra: usize,
    ) -> StateGram {
        let (kernel, width) = (&base.constants.state, base.constants.state.width);
        let (rank, all) = (base.features.rank, self.all + extra);
        let mut supervised = self.states[self.n * width..].to_vec();
        let mut features = vec![0.0; all * rank];
        let of_rows = self.features.chunks_exact(self.all);
        for (to, from) in features.chunks_exact_mut(all).zip(of_rows) {
            to[..self.all].copy_from_slice(from);
        }
        if let Some(points) = supervision {
            supervised.extend_from_slice(&points.states);
            let own = base.features.columns(kernel, &points.states);
            let own = own.chunks_exact(extra.max(1));
            for (to, from) in features.chunks_exact_mut(all).zip(own) {
                to[self.all..].copy_from_slice(from);
            }
        }
        let s = all - self.n;
        let mut rest = vec![0.0; s * s];
        for (t, (row, state)) in rest
            .chunks_exact_mut(s.max(1))
            .zip(supervised.chunks_exact(width))
            .enumerate()
        {
            kernel.column(&supervised, state, row);
            for column in features.chunks_exact(all) {
                let own = &column[self.n..];
                row.iter_mut()
                    .zip(own)
                    .for_each(|(rest, q)| *rest -= own[t] * q);
            }
        }
        StateGram {
            features,
            supervised: s,
            rest,
        }
    }

    /// The system of an observation with the diagonal `e` of all rows. `values` are those of the
    /// kernel with the rows of the fit; those with the supervision of a single row are added.
    fn bordered_system<'a>(
        &'a self,
        base: &Base,
        e: Vec<f64>,
        x: &[f64],
        supervision: Option<&Supervision>,
        values: &mut Vec<f64>,
        gram: &'a mut Vec<f64>,
    ) -> Bordered<'a> {
        values.truncate(self.all);
        let mut rows = &self.gram[..];
        if let Some(points) = supervision {
            let extra = e.len() - self.all;
            self.bordered(base, points, extra, gram);
            let mut of_extra = vec![0.0; extra];
            base.constants
                .observation
                .column(&points.observations, x, &mut of_extra);
            values.extend_from_slice(&of_extra);
            rows = gram;
        }
        let right = values.iter().zip(&e).map(|(k, e)| k * e).collect();
        Bordered {
            rows,
            delta: base.constants.delta,
            e,
            right,
        }
    }

    /// The kernel matrix with the supervision of a single row in its last rows.
    fn bordered(&self, base: &Base, points: &Supervision, extra: usize, gram: &mut Vec<f64>) {
        let all = self.all + extra;
        if gram.len() != all * all {
            gram.clear();
            gram.resize(all * all, 0.0);
            for (row, own) in self.gram.chunks_exact(self.all.max(1)).enumerate() {
                gram[row * all..][..self.all].copy_from_slice(own);
            }
        }
        let kernel = &base.constants.observation;
        for (at, x) in points
            .observations
            .chunks_exact(kernel.width.max(1))
            .enumerate()
        {
            let row = &mut gram[(self.all + at) * all..][..all];
            kernel.column(&self.observations, x, &mut row[..self.all]);
            kernel.column(&points.observations, x, &mut row[self.all..]);
        }
    }

    /// m of weighted states.
    fn carry(&self, base: &Base, parts: &[Weighted<'_>], state: &mut State) {
        let rank = base.features.rank;
        state.mean.clear();
        state.mean.resize(rank, 0.0);
        let own = parts[0].weights;
        for (column, mean) in self.features.chunks_exact(self.all).zip(&mut state.mean) {
            let mut one = [0.0];
            products(&column[..own.len()], own, &mut one);
            *mean = one[0];
        }
        let width = base.constants.state.width;
        let mut features = vec![0.0; rank];
        for part in &parts[1..] {
            for (y, w) in part.states.chunks_exact(width).zip(part.weights) {
                base.features.of(&base.constants.state, y, &mut features);
                for (mean, q) in state.mean.iter_mut().zip(&features) {
                    *mean += w * q;
                }
            }
        }
        if base.params.normalise {
            let parts = parts.iter().flat_map(|part| part.weights);
            let sum: f64 = parts.sum();
            if sum.abs() > NO_WEIGHT {
                state.mean.iter_mut().for_each(|mean| *mean /= sum);
            }
        }
    }
}

/// The system of a row, with the supervision of that row in its last rows.
struct Bordered<'a> {
    /// The kernel matrix.
    rows: &'a [f64],
    delta: f64,
    /// The diagonal of E.
    e: Vec<f64>,
    /// E times the values of the kernel.
    right: Vec<f64>,
}

impl Bordered<'_> {
    fn system(&self) -> System<'_> {
        System {
            k: Lower {
                rows: self.rows,
                stride: self.e.len(),
                n: self.e.len(),
            },
            e: &self.e,
            delta: self.delta,
            v: &self.right,
        }
    }
}

/// E by prior weights: √|β| for the rule `kbr`, else √β⁺.
fn roots(beta: &[f64], is_kbr: bool) -> Vec<f64> {
    let root = |b: &f64| {
        if is_kbr {
            b.abs().sqrt()
        } else {
            b.max(0.0).sqrt()
        }
    };
    beta.iter().map(root).collect()
}

/// The signs of prior weights, that of 0 positive.
fn signs(beta: &[f64]) -> Vec<f64> {
    let sign = |b: &f64| if *b < 0.0 { -1.0 } else { 1.0 };
    beta.iter().map(sign).collect()
}

/// Solves the positive definite system of the rows with an entry of E that is not 0. The other rows
/// have no part in it.
fn solve_active(system: System<'_>, solver: &mut Solver, active: &mut Vec<f64>, x: &mut [f64]) {
    let System { k, e, .. } = system;
    let chosen: Vec<usize> = (0..k.n).filter(|&at| e[at] > 0.0).collect();
    let n = chosen.len();
    active.resize(n * n, 0.0);
    for (at, &i) in chosen.iter().enumerate() {
        let row = &k.rows[i * k.stride..][..=i];
        let own = active[at * n..][..=at].iter_mut();
        own.zip(&chosen).for_each(|(out, &j)| *out = row[j]);
    }
    let pick = |x: &[f64]| -> Vec<f64> { chosen.iter().map(|&at| x[at]).collect() };
    let own = System {
        k: Lower {
            rows: active,
            stride: n,
            n,
        },
        e: &pick(e),
        v: &pick(system.v),
        ..system
    };
    let mut solution = Vec::new();
    solver.positive(own, &mut solution);
    for (&at, own) in chosen.iter().zip(&solution) {
        x[at] = *own;
    }
}

/// Weights that may be used.
fn sound(weights: Vec<f64>, error: f64) -> Option<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    (sum.is_finite() && sum.abs() > NO_WEIGHT && error <= LARGEST_ERROR).then_some(weights)
}
