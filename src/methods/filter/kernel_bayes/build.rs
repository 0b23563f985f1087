//! Training rows and constants → a filter.

use crate::error::Result;
use crate::evidence::state_space::StateSpace;
use crate::methods::filter::fit::{Claim, Fit, FitInput};
use crate::methods::filter::kernel_bayes::base::{Base, Constants, positive_solve};
use crate::methods::filter::kernel_bayes::cholesky::{Features, Incomplete};
use crate::methods::filter::kernel_bayes::kernel::{Kernel, choose};
use crate::methods::filter::kernel_bayes::linear;
use crate::methods::filter::kernel_bayes::model::{Body, KernelModel};
use crate::methods::filter::kernel_bayes::rows::Rows;
use crate::methods::filter::kernel_bayes::solve;
use crate::methods::filter::kernel_bayes::tensor::Tensor;
use crate::methods::filter::params::{KernelBayes, Rule};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// The relative error of the system of the prior by rounding, per unknown.
const RESIDUAL: f64 = 64.0 * f64::EPSILON;

/// The rows of a fit: pairs of a state and its observation, and the next states.
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
    pub(super) fn new(rows: &StateSpace, is_static: bool) -> Training {
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

/// The model with these constants.
pub(super) fn model_of(
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
        bound: RESIDUAL * (r + 1) as f64,
    });
    Ok(Fit {
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

/// ‖AX − B‖/(‖A‖‖X‖ + ‖B‖) for a symmetric matrix with this lower triangle: what rounding makes of
/// a stable solution, for any condition of A.
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
