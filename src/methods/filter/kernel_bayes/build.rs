//! Training rows and constants → a filter.

use crate::error::Result;
use crate::evidence::observations::Observations;
use crate::methods::filter::fit::{Claim, FitInput, TunedFit};
use crate::methods::filter::kernel_bayes::base::{Base, Constants, positive_solve};
use crate::methods::filter::kernel_bayes::cholesky::{Features, Incomplete};
use crate::methods::filter::kernel_bayes::kernel::{Kernel, choose};
use crate::methods::filter::kernel_bayes::model::{Body, KernelModel};
use crate::methods::filter::kernel_bayes::rows::Rows;
use crate::methods::filter::kernel_bayes::tensor::{Tensor, TensorRows};
use crate::methods::filter::kernel_bayes::{linear, solve};
use crate::methods::filter::params::{KernelBayes, Rule};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// The largest relative residual of a system of the prior that rounding explains, per unknown.
const RESIDUAL: f64 = 64.0 * f64::EPSILON;

/// The rows of a fit: pairs of a state and its observation, and the next states.
#[derive(Default)]
pub(super) struct Training {
    /// n × d_y.
    pub(super) states: Vec<f64>,
    /// n × d_x.
    pub(super) observations: Vec<f64>,
    /// n × d_y; empty for a static problem.
    next: Vec<f64>,
    pub(super) n: usize,
}

impl Training {
    pub(super) fn new(rows: &Observations, is_static: bool) -> Training {
        if is_static {
            return Training {
                states: rows.states.clone(),
                observations: rows.observations.clone(),
                next: Vec::new(),
                n: rows.len(),
            };
        }
        let mut training = Training::default();
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

/// Bandwidths and λ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Values {
    pub(super) state: f64,
    pub(super) observation: f64,
    pub(super) lambda: f64,
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

/// The constants of a filter, and the decomposition of the kernel matrix of the states.
fn decomposed_states(
    params: &KernelBayes,
    rows: &Observations,
    training: &Training,
    values: Values,
) -> (Constants, Incomplete) {
    let n = training.n;
    let kernel = |bandwidth: f64, width: usize| Kernel {
        form: params.kernel,
        bandwidth,
        width,
    };
    let state = kernel(values.state, rows.state_width);
    let is_approximate = n > params.exact;
    let limits = is_approximate.then_some((params.tolerance, params.rank_state));
    let decomposition = decomposed(&state, &training.states, n, limits);
    let constants = Constants {
        state,
        observation: kernel(values.observation, rows.observation_width),
        lambda: values.lambda,
        delta: params.delta_of(values.lambda),
        rows: n,
        state_residual: decomposition.residual / n as f64,
        observation_residual: 0.0,
        is_approximate,
    };
    (constants, decomposition)
}

/// The model with these constants.
///
/// # Errors
/// If λ is too small for the kernel matrix of the states.
pub(super) fn model_of(
    params: &KernelBayes,
    input: &FitInput<'_>,
    training: &Training,
    values: Values,
    seed: u64,
) -> Result<TunedFit<KernelModel>> {
    let (n, is_static) = (training.n, input.is_static);
    let (mut constants, decomposition) = decomposed_states(params, input.rows, training, values);
    let Constants {
        state,
        observation,
        is_approximate,
        ..
    } = constants;
    let features = Features::new(&decomposition, &training.states, state.width);
    let mut accuracy = Accuracy {
        tolerance: params.tolerance,
        claims: Vec::new(),
        warnings: Vec::new(),
    };
    if is_approximate {
        accuracy.approximated("state", "rank_state", constants.state_residual);
    }
    let uses_tensor = is_approximate && !is_static && params.rule == Rule::Kbr;
    let kept = if is_approximate && !uses_tensor {
        choose(n, params.landmarks, seed)
    } else {
        (0..n).collect()
    };
    let q = &decomposition.columns[..];
    let mut prior = Prior::new(q, features.rank, n, &kept, values.lambda);
    let (mut step, mut weights) = (Vec::new(), Vec::new());
    if is_static {
        weights = prior.weights(&prior_mean(input, &state, &features, q))?;
    } else {
        step = prior.step(&features.columns(&state, &training.next))?;
    }
    let body = if uses_tensor {
        let tensor = tensor_of(params, training, &mut constants, q)?;
        let residual = constants.observation_residual;
        accuracy.approximated("observation", "rank_observation", residual);
        Body::Tensor(tensor)
    } else {
        let mut states = picked(&training.states, state.width, &kept);
        let mut observations = picked(&training.observations, observation.width, &kept);
        let supervised = supervise(params, input, &mut states, &mut observations);
        let mut rows = Rows::new(
            &constants,
            &features,
            kept.len(),
            states,
            observations,
            weights,
            if kept.len() < n { kept } else { Vec::new() },
        );
        rows.supervised = supervised;
        Body::Rows(rows)
    };
    let bound = RESIDUAL * (features.rank + 1) as f64;
    let claim = Claim::new("prior_residual", prior.residual, bound);
    accuracy.claims.push(claim);
    Ok(TunedFit {
        model: KernelModel {
            base: Base {
                params: params.clone(),
                constants,
                features,
                step,
            },
            body,
        },
        tuning: Vec::new(),
        claims: accuracy.claims,
        warnings: accuracy.warnings,
    })
}

/// Adds the rows of supervision to training rows, or returns the states of which the nearest to a
/// prediction is used.
fn supervise(
    params: &KernelBayes,
    input: &FitInput<'_>,
    states: &mut Vec<f64>,
    observations: &mut Vec<f64>,
) -> Vec<f64> {
    match input.supervision {
        Some(own) if params.rule == Rule::Kregbayes => {
            if params.takes_nearest() {
                return own.states.clone();
            }
            states.extend_from_slice(&own.states);
            observations.extend_from_slice(&own.observations);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Rows of `width` numbers at these places.
fn picked(values: &[f64], width: usize, places: &[usize]) -> Vec<f64> {
    let rows = places.iter().map(|&at| &values[at * width..][..width]);
    rows.flatten().copied().collect()
}

/// How exact the approximations of a fit are.
struct Accuracy {
    /// The largest share of a trace that an approximation may miss.
    tolerance: f64,
    claims: Vec<Claim>,
    warnings: Vec<String>,
}

impl Accuracy {
    /// Notes the trace error of a kernel matrix as a share of the trace. `key` is that of the
    /// parameter that bounds the rank.
    fn approximated(&mut self, name: &str, key: &str, share: f64) {
        if share <= self.tolerance {
            let name = format!("{name}_trace_residual");
            self.claims.push(Claim::new(name, share, self.tolerance));
        } else {
            self.warnings.push(format!(
                "the kernel matrix of the {name}s is approximated with a trace error of {share:.1e}, more than the tolerance {:.1e}; raise `{key}`",
                self.tolerance
            ));
        }
    }
}

/// The moments of the training rows, with the features `q` of their states by columns. Sets the
/// trace error of the observations.
fn tensor_of(
    params: &KernelBayes,
    training: &Training,
    constants: &mut Constants,
    q: &[f64],
) -> Result<Tensor> {
    let (n, observation) = (training.n, constants.observation);
    let limits = Some((params.tolerance, params.rank_observation));
    let decomposition = decomposed(&observation, &training.observations, n, limits);
    constants.observation_residual = decomposition.residual / n as f64;
    let features = Features::new(&decomposition, &training.observations, observation.width);
    let rows = TensorRows {
        n,
        q,
        r: &decomposition.columns,
        states: &training.states,
        width: constants.state.width,
    };
    Tensor::new(rows, features, n as f64 * constants.lambda)
}

/// The systems of the prior weights. Their matrices are A = QᵀQ + mλI, for features Q of m rows.
struct Prior<'a> {
    /// Features of all rows by columns: n × r.
    q: &'a [f64],
    n: usize,
    rank: usize,
    /// The lower triangle of A of all rows.
    all: Mat<f64>,
    /// Features of the kept rows by columns, and A of them; None if all rows are kept.
    kept: Option<(Vec<f64>, Mat<f64>)>,
    n_kept: usize,
    /// The largest relative residual of a solution.
    residual: f64,
}

impl<'a> Prior<'a> {
    fn new(q: &'a [f64], rank: usize, n: usize, kept: &[usize], lambda: f64) -> Prior<'a> {
        let regularised = |q: &[f64], n: usize| {
            let mut a = Mat::zeros(rank, rank);
            solve::gram(q, n, None, &mut a);
            for at in 0..rank {
                a[(at, at)] += n as f64 * lambda;
            }
            a
        };
        let of_kept = (kept.len() < n).then(|| {
            let columns = q.chunks_exact(n);
            let own: Vec<f64> = columns
                .flat_map(|column| kept.iter().map(|&at| column[at]))
                .collect();
            let a = regularised(&own, kept.len());
            (own, a)
        });
        Prior {
            q,
            n,
            rank,
            all: regularised(q, n),
            kept: of_kept,
            n_kept: kept.len(),
            residual: 0.0,
        }
    }

    /// P by columns, for the features of the next states by columns: n × r.
    fn step(&mut self, next: &[f64]) -> Result<Vec<f64>> {
        let (n, r) = (self.n, self.rank);
        let mut c = Mat::zeros(r, r);
        matmul(
            c.as_mut(),
            Accum::Replace,
            MatRef::from_column_major_slice(self.q, n, r).transpose(),
            MatRef::from_column_major_slice(next, n, r),
            1.0,
            Par::Seq,
        );
        // C A⁻¹ is the transpose of A⁻¹ Cᵀ.
        let right = solved(&self.all, c, &mut self.residual)?;
        let right = right.transpose().to_owned();
        let kept_a = self.kept.as_ref().map_or(&self.all, |(_, a)| a);
        let p = solved(kept_a, right, &mut self.residual)?;
        Ok((0..r * r).map(|at| p[(at % r, at / r)]).collect())
    }

    /// The prior weights of the kept rows of a static problem, for the mean of the features of the
    /// prior.
    fn weights(&mut self, mean: &[f64]) -> Result<Vec<f64>> {
        let mean = Mat::from_fn(self.rank, 1, |at, _| mean[at]);
        let (q, a) = match &self.kept {
            None => (self.q, &self.all),
            Some((q, a)) => (&q[..], a),
        };
        let c = solved(a, mean, &mut self.residual)?;
        let c: Vec<f64> = (0..self.rank).map(|at| c[(at, 0)]).collect();
        let mut beta = vec![0.0; self.n_kept];
        linear::add_columns(q, &c, &mut beta);
        Ok(beta)
    }
}

/// The solution of AX = B. `largest` becomes the largest relative residual so far.
fn solved(a: &Mat<f64>, b: Mat<f64>, largest: &mut f64) -> Result<Mat<f64>> {
    let x = positive_solve(a, &b)?;
    *largest = largest.max(relative_residual(a, &x, &b));
    Ok(x)
}

/// The mean of the features of the prior of a static problem, Σ w_j q(y_j). Without a prior, it is
/// the mean of `q`, the features of the training rows by columns.
fn prior_mean(input: &FitInput<'_>, kernel: &Kernel, features: &Features, q: &[f64]) -> Vec<f64> {
    let Some(prior) = input.prior else {
        let n = input.rows.len();
        let columns = q.chunks_exact(n);
        return columns
            .map(|column| column.iter().sum::<f64>() / n as f64)
            .collect();
    };
    let columns = features.columns(kernel, &prior.states);
    let mut mean = vec![0.0; features.rank];
    linear::products(&columns, &prior.weights, &mut mean);
    mean
}

/// ‖AX − B‖/(‖A‖‖X‖ + ‖B‖) for a symmetric matrix with this lower triangle. For a stable solution
/// this is a rounding error, for any condition of A.
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
    let size = whole.norm_l2() * x.norm_l2() + b.norm_l2();
    if size > 0.0 {
        rest.norm_l2() / size
    } else {
        0.0
    }
}
