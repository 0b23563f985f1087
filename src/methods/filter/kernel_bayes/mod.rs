//! Kernel Bayes' rule (Song, Zhu, Ren, *Kernel Bayesian inference with posterior regularization*).
//!
//! Training rows (y_i, x_i) of states and observations represent the likelihood. With features q of
//! states, q(y)ᵀq(y′) ≈ k(y, y′), the state of a filter is the vector m = Σ α_i q(y_i) of its
//! posterior. The prior weights of the next row are β = Q P m (A.1), with Q of the rows q(y_i) and
//! P = A⁻¹ Q₊ᵀQ A⁻¹, A = QᵀQ + TλI, Q₊ of the features of the next states. Features are exact to
//! rounding up to `exact` rows.
//!
//! - `kernel`: kernels, distances and the median distance.
//! - `cholesky`: pivoted incomplete Cholesky decompositions and features.
//! - `linear`, `solve`: products and the update of weights by an observation.
//! - `rows`: filters that hold the weights of single rows.
//! - `tensor`: filters by the rule `kbr` whose size does not depend on the number of rows.
//! - `preimage`: from weights to a state.
//! - `tuning`: bandwidths and λ by held-out rows.

pub mod cholesky;
pub mod kernel;
pub mod linear;
mod preimage;
mod rows;
pub mod solve;
mod tensor;
#[cfg(test)]
mod tests;
mod tuning;

use crate::error::{Error, Result};
use crate::evidence::state_space::StateSpace;
use crate::methods::filter::fit::{
    Claim, Estimates, Factor, Fit, FitInput, Numbers, SupervisionOf,
};
use crate::methods::filter::kernel_bayes::cholesky::{Features, Incomplete};
use crate::methods::filter::kernel_bayes::kernel::{Kernel, choose};
use crate::methods::filter::kernel_bayes::rows::Rows;
use crate::methods::filter::kernel_bayes::solve::Solver;
use crate::methods::filter::kernel_bayes::tensor::Tensor;
use crate::methods::filter::params::{KernelBayes, Rule};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// A sum of weights at most this size divides nothing.
const NO_WEIGHT: f64 = 1e-12;

/// The largest relative error of the system of the prior.
const RESIDUAL: f64 = 1e-8;

/// The constants of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Constants {
    state: Kernel,
    observation: Kernel,
    lambda: f64,
    delta: f64,
    /// The number of training rows with a successor, or of all rows of a static problem.
    rows: usize,
    state_residual: f64,
    observation_residual: f64,
    /// Whether the kernel matrix of the states is approximated.
    is_approximate: bool,
}

/// A filter by kernel Bayes' rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct KernelModel {
    params: KernelBayes,
    constants: Constants,
    /// Features of states.
    features: Features,
    /// P: r × r by columns. Empty for a static problem.
    step: Vec<f64>,
    body: Body,
}

/// What holds the likelihood.
#[derive(Debug, Clone, PartialEq)]
enum Body {
    /// Rows with weights.
    Rows(Rows),
    /// Moments of the rows.
    Tensor(Tensor),
}

/// The state of a filter between two rows.
#[derive(Debug, Clone)]
pub struct State {
    /// m; empty before the first row.
    mean: Vec<f64>,
}

/// Memory that is used again for every row.
#[derive(Debug, Default)]
pub struct Scratch {
    solver: Solver,
    tensor: tensor::Memory,
    vectors: [Vec<f64>; 8],
    /// The kernel matrix with the supervision of a single row.
    gram: Vec<f64>,
    /// The kernel matrix of the rows with positive weights.
    active: Vec<f64>,
}

/// A model as its parameters and factors.
#[derive(Serialize, Deserialize)]
struct Packed {
    params: KernelBayes,
    factors: Vec<Factor>,
}

impl From<KernelModel> for Packed {
    fn from(model: KernelModel) -> Packed {
        Packed {
            factors: model.factors(),
            params: model.params,
        }
    }
}

impl TryFrom<Packed> for KernelModel {
    type Error = Error;

    fn try_from(packed: Packed) -> Result<KernelModel> {
        of_factors(&packed.params, packed.factors)
    }
}

/// The rows of a fit: pairs of a state and its observation, and the next states.
struct Training {
    /// n × d_y.
    states: Vec<f64>,
    /// n × d_x.
    observations: Vec<f64>,
    /// n × d_y; empty for a static problem.
    next: Vec<f64>,
    n: usize,
}

impl Training {
    fn new(rows: &StateSpace, is_static: bool) -> Training {
        if is_static {
            return Training {
                states: rows.states.clone(),
                observations: rows.observations.clone(),
                next: Vec::new(),
                n: rows.len(),
            };
        }
        let mut training = Training {
            states: Vec::new(),
            observations: Vec::new(),
            next: Vec::new(),
            n: 0,
        };
        for s in 0..rows.n_sequences() {
            let range = rows.offsets[s]..rows.offsets[s + 1];
            for row in range.start..range.end.saturating_sub(1) {
                training.states.extend_from_slice(rows.state(row));
                training
                    .observations
                    .extend_from_slice(rows.observation(row));
                training.next.extend_from_slice(rows.state(row + 1));
                training.n += 1;
            }
        }
        training
    }
}

/// Fits the model.
///
/// # Errors
/// If there are no training rows, or all states or all observations are equal and a bandwidth is
/// wanted.
pub(crate) fn fit(
    params: &KernelBayes,
    input: &FitInput<'_>,
    seed: u64,
) -> Result<Fit<KernelModel>> {
    let training = Training::new(input.rows, input.is_static);
    if training.n == 0 {
        return Err(Error::input("there are no training rows"));
    }
    let chosen = tuning::choose_constants(params, input, &training, seed)?;
    let mut fit = model_of(params, input, &training, chosen.values, seed)?;
    fit.tuning = chosen.tuning;
    fit.warnings.extend(chosen.warnings);
    Ok(fit)
}

/// Bandwidths and λ.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Values {
    state: f64,
    observation: f64,
    lambda: f64,
}

/// The decomposition of the kernel matrix of points, to rounding if there are at most `exact`.
fn decomposed(
    kernel: &Kernel,
    points: &[f64],
    n: usize,
    limits: Option<(f64, usize)>,
) -> Incomplete {
    let (enough, cap) = match limits {
        Some((tolerance, rank)) => (tolerance * n as f64, rank),
        None => (0.0, n),
    };
    let column = |at: usize, out: &mut [f64]| {
        kernel.column(points, &points[at * kernel.width..][..kernel.width], out);
    };
    let mut decomposition = Incomplete::default();
    decomposition.decompose((0..n).map(|_| 1.0), column, enough, cap);
    decomposition
}

/// The model with these constants.
fn model_of(
    params: &KernelBayes,
    input: &FitInput<'_>,
    training: &Training,
    values: Values,
    seed: u64,
) -> Result<Fit<KernelModel>> {
    let n = training.n;
    let (state_width, observation_width) = (input.rows.state_width, input.rows.observation_width);
    let state = Kernel {
        form: params.kernel,
        bandwidth: values.state,
        width: state_width,
    };
    let observation = Kernel {
        form: params.kernel,
        bandwidth: values.observation,
        width: observation_width,
    };
    let is_approximate = n > params.exact;
    let limits = is_approximate.then_some((params.tolerance, params.rank_state));
    let decomposition = decomposed(&state, &training.states, n, limits);
    let features = Features::new(&decomposition, &training.states, state_width);
    let mut warnings = Vec::new();
    let mut claims = Vec::new();
    let state_residual = decomposition.residual / n as f64;
    let mut approximated = |name: &str, key: &str, share: f64| {
        if share <= params.tolerance {
            claims.push(Claim {
                name: format!("{name}_trace_residual"),
                value: share,
                bound: params.tolerance,
            });
        } else {
            warnings.push(format!(
                "the kernel matrix of the {name}s is approximated with a trace error of {share:.1e}, more than the tolerance {:.1e}; raise `{key}`",
                params.tolerance
            ));
        }
    };
    if is_approximate {
        approximated("state", "rank_state", state_residual);
    }
    let mut constants = Constants {
        state,
        observation,
        lambda: values.lambda,
        delta: params.delta_of(values.lambda),
        rows: n,
        state_residual,
        observation_residual: 0.0,
        is_approximate,
    };
    // Features of all rows, by columns.
    let q = &decomposition.columns;
    let r = features.rank;
    let regularised = |q: &[f64], n: usize| {
        let mut a = Mat::zeros(r, r);
        solve::gram(q, n, None, &mut a);
        for at in 0..r {
            a[(at, at)] += n as f64 * values.lambda;
        }
        a
    };
    let uses_tensor = is_approximate && !input.is_static && params.rule == Rule::Kbr;
    let kept = if is_approximate && !uses_tensor {
        choose(n, params.landmarks, seed)
    } else {
        (0..n).collect()
    };
    let mut residual = 0.0f64;
    let mut solved = |a: &Mat<f64>, b: Mat<f64>| -> Result<Mat<f64>> {
        let x = positive_solve(a, &b)?;
        residual = residual.max(relative_residual(a, &x, &b));
        Ok(x)
    };
    // C A⁻¹ is the transpose of A⁻¹ Cᵀ.
    let of_all = regularised(q, n);
    let mut step = Vec::new();
    let own: Vec<f64>;
    let own_a;
    let (kept_q, kept_a) = if kept.len() == n {
        (q, &of_all)
    } else {
        let columns = q.chunks_exact(n);
        own = columns
            .flat_map(|column| kept.iter().map(|&at| column[at]))
            .collect();
        own_a = regularised(&own, kept.len());
        (&own, &own_a)
    };
    if !input.is_static {
        let next = features.columns(&state, &training.next);
        let mut c = Mat::zeros(r, r);
        matmul(
            c.as_mut(),
            Accum::Replace,
            MatRef::from_column_major_slice(q, n, r).transpose(),
            MatRef::from_column_major_slice(&next, n, r),
            1.0,
            Par::Seq,
        );
        let right = solved(&of_all, c)?;
        let right = right.transpose().to_owned();
        let p = solved(kept_a, right)?;
        step = (0..r * r).map(|at| p[(at % r, at / r)]).collect();
    }
    let body = if uses_tensor {
        let limits = Some((params.tolerance, params.rank_observation));
        let of_observations = decomposed(&observation, &training.observations, n, limits);
        constants.observation_residual = of_observations.residual / n as f64;
        approximated(
            "observation",
            "rank_observation",
            constants.observation_residual,
        );
        let features = Features::new(&of_observations, &training.observations, observation_width);
        let first = n as f64 * values.lambda;
        let columns = (&q[..], &of_observations.columns[..]);
        Body::Tensor(Tensor::new(
            columns,
            &training.states,
            (n, state_width),
            features,
            first,
        )?)
    } else {
        let pick = |values: &[f64], width: usize| -> Vec<f64> {
            let rows = kept.iter();
            rows.flat_map(|&at| &values[at * width..][..width])
                .copied()
                .collect()
        };
        let mut states = pick(&training.states, state_width);
        let mut observations = pick(&training.observations, observation_width);
        if let Some(supervision) = input.supervision.filter(|_| params.rule == Rule::Kregbayes) {
            states.extend_from_slice(&supervision.states);
            observations.extend_from_slice(&supervision.observations);
        }
        let prior = if input.is_static {
            let mean = match input.prior {
                Some(prior) => mean_features(&features, &state, &prior.states, &prior.weights),
                None => q
                    .chunks_exact(n)
                    .map(|c| c.iter().sum::<f64>() / n as f64)
                    .collect(),
            };
            let mean = Mat::from_fn(r, 1, |at, _| mean[at]);
            let c = solved(kept_a, mean)?;
            let c: Vec<f64> = (0..r).map(|at| c[(at, 0)]).collect();
            let mut beta = vec![0.0; kept.len()];
            linear::add_columns(kept_q, &c, &mut beta);
            beta
        } else {
            Vec::new()
        };
        Body::Rows(Rows::new(
            &constants,
            &features,
            kept.len(),
            states,
            observations,
            prior,
            if kept.len() < n { kept } else { Vec::new() },
        ))
    };
    claims.push(Claim {
        name: "prior_residual".into(),
        value: residual,
        bound: RESIDUAL,
    });
    Ok(Fit {
        model: KernelModel {
            params: params.clone(),
            constants,
            features,
            step,
            body,
        },
        tuning: Vec::new(),
        claims,
        warnings,
    })
}

/// Σ w_j q(y_j).
fn mean_features(
    features: &Features,
    kernel: &Kernel,
    states: &[f64],
    weights: &[f64],
) -> Vec<f64> {
    let columns = features.columns(kernel, states);
    let mut mean = vec![0.0; features.rank];
    linear::products(&columns, weights, &mut mean);
    mean
}

/// The solution X of AX = B for a positive definite matrix with this lower triangle.
fn positive_solve(a: &Mat<f64>, b: &Mat<f64>) -> Result<Mat<f64>> {
    let (n, k) = (a.nrows(), b.ncols());
    let (mut factor, mut x) = (a.clone(), b.clone());
    let scratch = llt::factor::cholesky_in_place_scratch::<f64>(n, Par::Seq, Default::default());
    let scratch = scratch.or(llt::solve::solve_in_place_scratch::<f64>(n, k, Par::Seq));
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let factorised = llt::factor::cholesky_in_place(
        factor.as_mut(),
        Default::default(),
        Par::Seq,
        stack,
        Default::default(),
    );
    factorised.map_err(|_| {
        Error::input("λ is too small: the kernel matrix of the states is singular; raise `lambda`")
    })?;
    let stack = MemStack::new(&mut memory);
    llt::solve::solve_in_place(factor.as_ref(), x.as_mut(), Par::Seq, stack);
    Ok(x)
}

/// ‖AX − B‖/‖B‖ for a symmetric matrix with this lower triangle.
fn relative_residual(a: &Mat<f64>, x: &Mat<f64>, b: &Mat<f64>) -> f64 {
    let n = a.nrows();
    let whole = Mat::from_fn(n, n, |i, j| a[(i.max(j), i.min(j))]);
    let mut rest = b.clone();
    matmul(
        rest.as_mut(),
        Accum::Add,
        whole.as_ref(),
        x.as_ref(),
        -1.0,
        Par::Seq,
    );
    let size = b.norm_l2();
    if size > 0.0 {
        rest.norm_l2() / size
    } else {
        0.0
    }
}

/// The value of the only row and column of a factor.
fn factor_of(factors: &mut Vec<Factor>, name: &str) -> Option<Factor> {
    let at = factors.iter().position(|factor| factor.name == name)?;
    Some(factors.swap_remove(at))
}

/// The factor with a name.
fn required(factors: &mut Vec<Factor>, name: &str) -> Result<Factor> {
    factor_of(factors, name)
        .ok_or_else(|| Error::input(format!("the model has no factor `{name}`")))
}

/// The model with these factors.
///
/// # Errors
/// If a factor is missing or has another shape.
pub(crate) fn of_factors(params: &KernelBayes, mut factors: Vec<Factor>) -> Result<KernelModel> {
    let broken = || Error::input("the factors of the model do not fit each other");
    let constants = required(&mut factors, "constants")?.values;
    let [
        state,
        observation,
        lambda,
        delta,
        rows,
        state_residual,
        observation_residual,
        is_approximate,
        n,
    ] = constants[..]
    else {
        return Err(broken());
    };
    let pivots = required(&mut factors, "state_pivots")?;
    let factor = required(&mut factors, "state_factor")?;
    let rank = factor.width;
    let features = Features {
        points: pivots.values,
        factor: factor.values,
        rank,
    };
    let step = factor_of(&mut factors, "step").map_or_else(Vec::new, |step| step.values);
    let kernel = |bandwidth: f64, width: usize| Kernel {
        form: params.kernel,
        bandwidth,
        width,
    };
    let fits = features.factor.len() == rank * rank
        && features.points.len() == rank * pivots.width
        && (step.is_empty() || step.len() == rank * rank);
    if !fits {
        return Err(broken());
    }
    let mut constants = Constants {
        state: kernel(state, pivots.width),
        observation: kernel(observation, 0),
        lambda,
        delta,
        rows: rows as usize,
        state_residual,
        observation_residual,
        is_approximate: is_approximate != 0.0,
    };
    let body = if let Some(tensor) = Tensor::of_factors(&mut factors, rank, pivots.width)? {
        constants.observation.width = tensor.observation_width();
        Body::Tensor(tensor)
    } else {
        let states = required(&mut factors, "states")?;
        let observations = required(&mut factors, "observations")?;
        constants.observation.width = observations.width;
        let all = states.values.len() / pivots.width.max(1);
        let n = n as usize;
        let prior = factor_of(&mut factors, "prior").map_or_else(Vec::new, |prior| prior.values);
        let kept = factor_of(&mut factors, "landmarks").map_or_else(Vec::new, |kept| kept.values);
        let kept: Vec<usize> = kept.iter().map(|at| *at as usize).collect();
        let fits = states.width == pivots.width
            && (kept.is_empty() || kept.len() == n)
            && kept.iter().all(|at| *at < constants.rows)
            && n <= all
            && observations.values.len() == all * observations.width
            && (prior.is_empty() || prior.len() == n);
        if !fits {
            return Err(broken());
        }
        Body::Rows(Rows::new(
            &constants,
            &features,
            n,
            states.values,
            observations.values,
            prior,
            kept,
        ))
    };
    Ok(KernelModel {
        params: params.clone(),
        constants,
        features,
        step,
        body,
    })
}

impl KernelModel {
    pub(crate) fn numbers(&self) -> Numbers {
        let Constants {
            state,
            observation,
            lambda,
            delta,
            rows,
            ..
        } = self.constants;
        let approximate = self.constants.is_approximate;
        let tensor = match &self.body {
            Body::Tensor(tensor) => Some(tensor.observation_rank()),
            Body::Rows(_) => None,
        };
        let landmarks = match &self.body {
            Body::Rows(own) => (own.n < rows).then_some(own.n),
            Body::Tensor(_) => None,
        };
        Numbers {
            training_rows: rows,
            state_bandwidth: Some(state.bandwidth),
            observation_bandwidth: Some(observation.bandwidth),
            lambda: Some(lambda),
            delta: Some(delta),
            mu: (self.params.rule == Rule::Kregbayes).then_some(self.params.mu),
            state_rank: approximate.then_some(self.features.rank),
            observation_rank: tensor,
            state_trace_residual: approximate.then_some(self.constants.state_residual),
            observation_trace_residual: tensor.map(|_| self.constants.observation_residual),
            landmarks,
        }
    }

    pub(crate) fn factors(&self) -> Vec<Factor> {
        let Constants {
            state,
            observation,
            lambda,
            delta,
            rows,
            state_residual,
            observation_residual,
            is_approximate,
        } = self.constants;
        let factor = |name: &str, width: usize, values: &[f64]| Factor {
            name: name.into(),
            width,
            values: values.to_vec(),
        };
        let n = match &self.body {
            Body::Rows(own) => own.n,
            Body::Tensor(_) => 0,
        };
        let constants = [
            state.bandwidth,
            observation.bandwidth,
            lambda,
            delta,
            rows as f64,
            state_residual,
            observation_residual,
            f64::from(u8::from(is_approximate)),
            n as f64,
        ];
        let rank = self.features.rank;
        let mut all = vec![
            factor("constants", constants.len(), &constants),
            factor("state_pivots", state.width, &self.features.points),
            factor("state_factor", rank, &self.features.factor),
        ];
        if !self.step.is_empty() {
            all.push(factor("step", rank, &self.step));
        }
        match &self.body {
            Body::Rows(own) => {
                all.push(factor("states", state.width, &own.states));
                all.push(factor("observations", observation.width, &own.observations));
                if !own.prior.is_empty() {
                    all.push(factor("prior", 1, &own.prior));
                }
                if !own.kept.is_empty() {
                    let kept: Vec<f64> = own.kept.iter().map(|at| *at as f64).collect();
                    all.push(factor("landmarks", 1, &kept));
                }
            }
            Body::Tensor(tensor) => all.extend(tensor.factors(observation.width)),
        }
        all
    }

    pub(crate) fn widths(&self) -> (usize, usize) {
        (self.constants.state.width, self.constants.observation.width)
    }

    pub(crate) fn start(&self) -> State {
        State { mean: Vec::new() }
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    /// Filters rows of a sequence.
    pub(crate) fn push(
        &self,
        state: &mut State,
        scratch: &mut Scratch,
        observations: &[f64],
        supervision: &SupervisionOf<'_>,
        out: &mut Estimates,
    ) {
        let rows = observations.chunks_exact(self.constants.observation.width.max(1));
        for (row, x) in rows.enumerate() {
            let x = x.iter().all(|x| x.is_finite()).then_some(x);
            match &self.body {
                Body::Rows(own) => own.filter(self, state, scratch, x, supervision(row), out),
                Body::Tensor(own) => own.filter(self, state, scratch, x, out),
            }
        }
    }

    /// The weights of the training rows of one row of a static problem.
    pub(crate) fn posterior_weights(&self, observation: &[f64]) -> Vec<f64> {
        let Body::Rows(own) = &self.body else {
            return Vec::new();
        };
        let mut scratch = self.scratch();
        let mut weights = own.prior.clone();
        if observation.iter().all(|x| x.is_finite()) {
            let updated = own.update(self, &mut scratch, &own.prior, observation, None);
            if let Some(updated) = updated {
                weights = updated;
            }
        }
        // Rows of supervision have no id.
        weights.truncate(own.n);
        if own.kept.is_empty() {
            return weights;
        }
        let mut all = vec![0.0; self.constants.rows];
        for (at, weight) in own.kept.iter().zip(weights) {
            all[*at] = weight;
        }
        all
    }

    /// c with β = Q c, for the posterior m of the row before.
    fn prior_features(&self, mean: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.resize(self.features.rank, 0.0);
        linear::add_columns(&self.step, mean, out);
    }
}
