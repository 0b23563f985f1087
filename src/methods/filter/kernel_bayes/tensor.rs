//! Filters by the rule `kbr` whose size and cost do not depend on the number of training rows.
//!
//! With features q of states and r of observations, the prior weights are β_i = q_iᵀc. So
//! S = Σ β_i r_i r_iᵀ and all sums over the weights w_i = β_i r_iᵀz, z = S(S² + δI)⁻¹ r(x), are
//! linear in c. Their coefficients are moments of the rows: Σ q_a r rᵀ, Σ q_a r, Σ q_a y r,
//! Σ q_a y² r and Σ q_a q_b r. They are added over the rows once. Here y is a state less the mean
//! of the states, because moments of numbers far from zero lose the digits of the variance.

use crate::error::{Error, Result};
use crate::methods::filter::fit::{Estimates, Factor};
use crate::methods::filter::kernel_bayes::base::{
    Base, NO_WEIGHT, State, factor_of, positive_solve, required,
};
use crate::methods::filter::kernel_bayes::cholesky::Features;
use crate::methods::filter::kernel_bayes::linear::{add_columns, dot, products};
use crate::methods::filter::kernel_bayes::preimage::{Weighted, emit, preimage, push};
use crate::methods::filter::kernel_bayes::solve::{Small, gram, square};
use crate::methods::filter::params::{self, Decode};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use rayon::prelude::*;
use std::f64::consts::TAU;
use std::ops::Range;

/// Rows whose moments are added at once.
const BLOCK: usize = 64;

/// Parts of the rows that are added in order. The number is fixed because it determines the
/// rounding.
const PARTS: usize = 8;

/// The smallest share of the prior weights that an observation has, in a log score. Features have
/// an error of about the tolerance of their decomposition.
const SMALLEST_SHARE: f64 = 1e-12;

/// Moments of the training rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    /// Features of observations.
    features: Features,
    /// r_y rows of the moments: the lower triangle of Σ q_a r rᵀ by rows, then vectors of r_x
    /// numbers: Σ q_a r, Σ q_a y r and Σ q_a y² r per number of the state, Σ q_a q_b r for every b.
    moments: Vec<f64>,
    /// (RᵀR + nλI)⁻¹: r_x × r_x, for the posterior of a first row.
    first: Vec<f64>,
    /// The same vectors of r_x numbers, without q_a: of a first row.
    sums: Vec<f64>,
    /// The mean of the features of the states.
    mean: Vec<f64>,
    /// QᵀQ: r_y × r_y.
    covariance: Vec<f64>,
    /// What y is relative to: the mean of the states, a number per coordinate.
    origin: Vec<f64>,
}

/// Memory of a step.
#[derive(Debug, Default)]
pub(super) struct Memory {
    c: Vec<f64>,
    /// The sum of the rows of the moments with the weights c.
    combined: Vec<f64>,
    squared: Squared,
    /// r(x).
    features: Vec<f64>,
    z: Vec<f64>,
    /// The products of z with the vectors of the moments.
    sums: Vec<f64>,
}

/// Memory for S and the factor of S² + δI.
#[derive(Debug)]
struct Squared {
    whole: Mat<f64>,
    small: Small,
}

impl Default for Squared {
    fn default() -> Squared {
        Squared {
            whole: Mat::new(),
            small: Small::default(),
        }
    }
}

/// The training rows of a tensor.
#[derive(Clone, Copy)]
pub(super) struct TensorRows<'a> {
    /// The number of rows.
    pub(super) n: usize,
    /// Features of the states by columns: n × r_y.
    pub(super) q: &'a [f64],
    /// Features of the observations by columns: n × r_x.
    pub(super) r: &'a [f64],
    /// n × width.
    pub(super) states: &'a [f64],
    /// Numbers per state.
    pub(super) width: usize,
}

/// Numbers of a triangle of order r.
fn triangle(r: usize) -> usize {
    r * (r + 1) / 2
}

impl Tensor {
    /// The moments of training rows. `features` are those of observations, and RᵀR + `ridge` I is
    /// the matrix of the posterior of a first row.
    ///
    /// # Errors
    /// If that matrix is singular.
    pub(super) fn new(rows: TensorRows<'_>, features: Features, ridge: f64) -> Result<Tensor> {
        let TensorRows { n, q, r, .. } = rows;
        let (r_y, r_x) = (q.len() / n, features.rank);
        let mut origin = vec![0.0; rows.width];
        for y in rows.states.chunks_exact(rows.width.max(1)).take(n) {
            let sums = origin.iter_mut().zip(y);
            sums.for_each(|(mean, y)| *mean += y / n as f64);
        }
        let (sums, moments) = rows.moments(r_x, &origin);
        let mut a = Mat::zeros(r_x, r_x);
        gram(r, n, None, &mut a);
        for at in 0..r_x {
            a[(at, at)] += ridge;
        }
        let inverse = positive_solve(&a, &Mat::identity(r_x, r_x))?;
        let mut covariance = Mat::zeros(r_y, r_y);
        gram(q, n, None, &mut covariance);
        let entry = |at: usize| (at / r_y, at % r_y);
        let covariance: Vec<f64> = (0..r_y * r_y)
            .map(entry)
            .map(|(i, j)| covariance[(i.max(j), i.min(j))])
            .collect();
        let mean = q
            .chunks_exact(n)
            .map(|column| column.iter().sum::<f64>() / n as f64);
        Ok(Tensor {
            features,
            sums,
            moments,
            first: (0..r_x * r_x)
                .map(|at| inverse[(at % r_x, at / r_x)])
                .collect(),
            mean: mean.collect(),
            covariance,
            origin,
        })
    }

    pub(super) fn observation_rank(&self) -> usize {
        self.features.rank
    }

    pub(super) fn observation_width(&self) -> usize {
        self.features.points.len() / self.features.rank.max(1)
    }

    pub(super) fn factors(&self, observation_width: usize) -> Vec<Factor> {
        let r = self.features.rank;
        let factor = Factor::new;
        vec![
            factor(
                "observation_pivots",
                observation_width,
                &self.features.points,
            ),
            factor("observation_factor", r, &self.features.factor),
            factor("moments", self.length(), &self.moments),
            factor("first", r, &self.first),
            factor("first_sums", r, &self.sums),
            factor("mean", 1, &self.mean),
            factor("covariance", self.mean.len(), &self.covariance),
            factor("origin", self.origin.len(), &self.origin),
        ]
    }

    /// The tensor of these factors. None if the model has none.
    pub(super) fn of_factors(
        factors: &mut Vec<Factor>,
        r_y: usize,
        width: usize,
    ) -> Result<Option<Tensor>> {
        let Some(moments) = factor_of(factors, "moments") else {
            return Ok(None);
        };
        let pivots = required(factors, "observation_pivots")?;
        let factor = required(factors, "observation_factor")?;
        let tensor = Tensor {
            features: Features {
                rank: factor.width,
                points: pivots.values,
                factor: factor.values,
            },
            moments: moments.values,
            first: required(factors, "first")?.values,
            sums: required(factors, "first_sums")?.values,
            mean: required(factors, "mean")?.values,
            covariance: required(factors, "covariance")?.values,
            // Moments of earlier versions are relative to zero.
            origin: factor_of(factors, "origin").map_or_else(|| vec![0.0; width], |own| own.values),
        };
        let r = tensor.features.rank;
        let is_sound = tensor.features.factor.len() == r * r
            && tensor.features.points.len() == r * pivots.width
            && tensor.mean.len() == r_y
            && tensor.origin.len() == width
            && tensor.covariance.len() == r_y * r_y
            && moments.width == tensor.length()
            && tensor.moments.len() == r_y * tensor.length()
            && tensor.first.len() == r * r
            && tensor.sums.len() == tensor.length() - triangle(r);
        if is_sound {
            return Ok(Some(tensor));
        }
        Err(Error::input(
            "the moments of the model do not fit its features",
        ))
    }

    /// Numbers per row of the moments.
    fn length(&self) -> usize {
        let r_x = self.features.rank;
        triangle(r_x) + r_x * (1 + 2 * self.origin.len() + self.mean.len())
    }

    /// Filters the next row of a sequence. `x` is its observation, if it has one.
    pub(super) fn filter(
        &self,
        base: &Base,
        state: &mut State,
        memory: &mut Memory,
        x: Option<&[f64]>,
        out: &mut Estimates,
    ) {
        let begins = state.mean.is_empty();
        // The sum of the prior weights: Σ q_iᵀc.
        let mut total = base.constants.rows as f64;
        if !begins {
            base.prior_features(&state.mean, &mut memory.c);
            total *= dot(&self.mean, &memory.c);
        }
        let (log_score, is_updated) = match x {
            Some(x) => self.update(base, memory, begins, total, x),
            None => (f64::NAN, false),
        };
        out.positive_share.push(f64::NAN);
        out.log_score.push(log_score);
        out.was_updated.push(is_updated);
        if !is_updated {
            let c = (!begins).then_some(&memory.c[..]);
            return self.predict(base, state, c, total, out);
        }
        let d = self.origin.len();
        let sum = memory.sums[0];
        out.weight_sum.push(sum);
        let (mean, rest) = memory.sums[1..].split_at_mut(d);
        let (square, features) = rest.split_at_mut(d);
        push(mean, square, sum, &self.origin, out);
        self.decode(base, features, sum, mean, out);
        carry(base, features, sum, state);
    }

    /// Updates the weights by an observation: their sums are in `memory`. `total` is the sum of the
    /// prior weights. Returns the log score of the observation, and whether the sums can be used.
    fn update(
        &self,
        base: &Base,
        memory: &mut Memory,
        begins: bool,
        total: f64,
        x: &[f64],
    ) -> (f64, bool) {
        let r = self.features.rank;
        let Memory {
            c,
            combined,
            squared,
            features,
            z,
            sums,
        } = memory;
        let vectors = if begins {
            &self.sums
        } else {
            combined.clear();
            combined.resize(self.length(), 0.0);
            add_columns(&self.moments, c, combined);
            &combined[triangle(r)..]
        };
        features.resize(r, 0.0);
        self.features.of(&base.constants.observation, x, features);
        let share = dot(&vectors[..r], features) / total;
        let log_score = self.log_score(base, share, x.len());
        z.resize(r, 0.0);
        let is_solved = if begins {
            products(&self.first, features, z);
            true
        } else {
            squared.solve(&combined[..triangle(r)], base.constants.delta, features, z)
        };
        sums.resize(vectors.len() / r.max(1), 0.0);
        products(vectors, z, sums);
        let sum = sums[0];
        (
            log_score,
            is_solved && sum.is_finite() && sum.abs() > NO_WEIGHT,
        )
    }

    /// The estimates of a row by its prior weights: those of `c`, which a first row does not have.
    /// `total` is their sum.
    fn predict(
        &self,
        base: &Base,
        state: &mut State,
        c: Option<&[f64]>,
        total: f64,
        out: &mut Estimates,
    ) {
        let has_weight = total.abs() > NO_WEIGHT;
        let features = match c {
            None => self.mean.clone(),
            Some(c) if has_weight => {
                let mut predicted = vec![0.0; self.mean.len()];
                add_columns(&self.covariance, c, &mut predicted);
                predicted.iter_mut().for_each(|m| *m /= total);
                predicted
            }
            // There is no prediction, so the state stays.
            Some(_) => state.mean.clone(),
        };
        let mut weights = features.clone();
        base.features.solve_transposed(&mut weights);
        let parts = [Weighted::new(&weights, &base.features.points)];
        emit(&parts, &base.constants.state, base.params.decode, out);
        let scale = if c.is_none() || base.params.normalise || !has_weight {
            1.0
        } else {
            total
        };
        state.mean.clear();
        state.mean.extend(features.iter().map(|m| m * scale));
    }

    fn log_score(&self, base: &Base, share: f64, width: usize) -> f64 {
        let score = share.max(SMALLEST_SHARE).ln();
        match base.constants.observation.form {
            params::Kernel::Delta => score,
            params::Kernel::Rbf => {
                let h = base.constants.observation.bandwidth;
                score - 0.5 * width as f64 * (TAU * h * h).ln()
            }
        }
    }

    fn decode(&self, base: &Base, features: &[f64], sum: f64, mean: &[f64], out: &mut Estimates) {
        if base.params.decode == Decode::Mean {
            out.decoded.extend_from_slice(mean);
            return;
        }
        // Weights of the pivots with the same features.
        let mut weights: Vec<f64> = features.iter().map(|m| m / sum).collect();
        base.features.solve_transposed(&mut weights);
        let parts = [Weighted::new(&weights, &base.features.points)];
        let found = preimage(&parts, &base.constants.state, mean.to_vec());
        out.decoded.extend(found);
    }
}

/// The next m.
fn carry(base: &Base, features: &[f64], sum: f64, state: &mut State) {
    state.mean.clear();
    let divisor = if base.params.normalise && sum.abs() > NO_WEIGHT {
        sum
    } else {
        1.0
    };
    state.mean.extend(features.iter().map(|m| m / divisor));
}

impl Squared {
    /// z ← S(S² + δI)⁻¹x for S with this lower triangle. False if that fails.
    fn solve(&mut self, lower: &[f64], delta: f64, x: &[f64], z: &mut [f64]) -> bool {
        let Squared { whole, small } = self;
        let r = x.len();
        if whole.nrows() != r {
            *whole = Mat::zeros(r, r);
        }
        // A view by value keeps the shape in registers.
        let mut view = whole.as_mut();
        let mut at = 0;
        for i in 0..r {
            for j in 0..=i {
                view[(i, j)] = lower[at];
                view[(j, i)] = lower[at];
                at += 1;
            }
        }
        let is_positive = small.factorise_with(r, |factor| {
            square(whole, factor);
            for at in 0..r {
                factor[(at, at)] += delta;
            }
        });
        if !is_positive {
            return false;
        }
        let mut y = x.to_vec();
        small.solve(&mut y);
        let rows = whole.col_iter();
        for (z, column) in z.iter_mut().zip(rows) {
            *z = column.iter().zip(&y).map(|(s, y)| s * y).sum();
        }
        true
    }
}

impl TensorRows<'_> {
    /// The sums of a first row and the moments, with r_x features per observation.
    fn moments(&self, r_x: usize, origin: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (n, r_y) = (self.n, self.q.len() / self.n);
        let length = triangle(r_x) + r_x * (1 + 2 * self.width + r_y);
        // Row 0 has the weights 1, and gives the sums of a first row.
        let part_rows = n.div_ceil(PARTS).next_multiple_of(BLOCK);
        let parts: Vec<Vec<f64>> = (0..n.div_ceil(part_rows))
            .into_par_iter()
            .map(|part| {
                let mut sum = vec![0.0; (1 + r_y) * length];
                let mut memory = [Vec::new(), Vec::new()];
                let end = n.min((part + 1) * part_rows);
                for start in (part * part_rows..end).step_by(BLOCK) {
                    let block = start..end.min(start + BLOCK);
                    self.add_block(block, r_x, origin, &mut memory, &mut sum);
                }
                sum
            })
            .collect();
        let mut all = vec![0.0; (1 + r_y) * length];
        for part in &parts {
            for (all, x) in all.iter_mut().zip(part) {
                *all += x;
            }
        }
        let moments = all[length..].to_vec();
        (all[triangle(r_x)..length].to_vec(), moments)
    }

    /// Adds the moments of some rows to (1 + r_y) × length sums.
    fn add_block(
        &self,
        block: Range<usize>,
        r_x: usize,
        origin: &[f64],
        [weights, values]: &mut [Vec<f64>; 2],
        sum: &mut [f64],
    ) {
        let TensorRows {
            n,
            q,
            r,
            states,
            width,
        } = *self;
        let (count, r_y) = (block.len(), q.len() / n);
        let length = sum.len() / (1 + r_y);
        // The weights of the sums, and the values that are added, by rows.
        weights.clear();
        weights.resize(count * (1 + r_y), 1.0);
        for a in 0..r_y {
            let column = &q[a * n..][block.clone()];
            for (row, q) in column.iter().enumerate() {
                weights[row * (1 + r_y) + 1 + a] = *q;
            }
        }
        // Every number is written below.
        values.resize(count * length, 0.0);
        let (mut of_row, mut y) = (vec![0.0; r_x], vec![0.0; width]);
        for (at, row) in block.clone().enumerate() {
            for (k, x) in of_row.iter_mut().enumerate() {
                *x = r[k * n + row];
            }
            let values = &mut values[at * length..][..length];
            let (products, vectors) = values.split_at_mut(triangle(r_x));
            let mut start = 0;
            for i in 0..r_x {
                let own = of_row[i];
                for (out, x) in products[start..=start + i].iter_mut().zip(&of_row) {
                    *out = own * x;
                }
                start += i + 1;
            }
            let mut vectors = vectors.chunks_exact_mut(r_x.max(1));
            let mut fill = |factor: f64| {
                if let Some(out) = vectors.next() {
                    for (out, x) in out.iter_mut().zip(&of_row) {
                        *out = factor * x;
                    }
                }
            };
            fill(1.0);
            let state = states[row * width..].iter().zip(origin);
            for (y, (x, origin)) in y.iter_mut().zip(state) {
                *y = x - origin;
            }
            y.iter().for_each(|y| fill(*y));
            y.iter().for_each(|y| fill(y * y));
            (0..r_y).for_each(|b| fill(q[b * n + row]));
        }
        // sum (length × (1 + r_y) by columns) += valuesᵀ weights.
        matmul(
            MatMut::from_column_major_slice_mut(sum, length, 1 + r_y),
            Accum::Add,
            MatRef::from_column_major_slice(values, length, count),
            MatRef::from_column_major_slice(weights, 1 + r_y, count).transpose(),
            1.0,
            Par::Seq,
        );
    }
}
