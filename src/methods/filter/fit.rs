//! What filters have in common: what they are fitted to, what a fit says, and estimates.

use crate::evidence::observations::{Observations, Prior, Supervision};
use crate::methods::filter::expression::Expression;
use serde::{Deserialize, Serialize};

/// The functions of a nonlinear system, from the SQL of the pipeline. A filter by kernel Bayes'
/// rule may have `f` alone, which predicts the state whose nearest one supervises a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dynamics {
    /// The next state, one expression of the coordinates per coordinate.
    pub f: Vec<Expression>,
    /// The observation, one expression of the coordinates per number.
    pub h: Vec<Expression>,
    /// The columns of the state, if the coordinates are others; else empty.
    pub estimate: Vec<Expression>,
}

/// What a filter is fitted to.
#[derive(Debug, Clone, Copy)]
pub struct FitInput<'a> {
    /// The training rows.
    pub rows: &'a Observations,
    /// Whether rows are independent: there is one row per sequence, and no transition.
    pub is_static: bool,
    /// The prior of every row of a static problem. None: the training rows with equal weights.
    pub prior: Option<&'a Prior>,
    /// Supervision that is used at every step. Without observations, it is the states of which the
    /// nearest to a prediction is used.
    pub supervision: Option<&'a Supervision>,
    /// The functions of a nonlinear system, or of a prediction.
    pub dynamics: Option<&'a Dynamics>,
}

/// A model, and what its fit found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedFit<M> {
    /// The model.
    pub model: M,
    /// The bandwidths and constants that were compared.
    pub tuning: Vec<Tuned>,
    /// The claims that certificates check.
    pub claims: Vec<Claim>,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

impl<M> TunedFit<M> {
    /// The same with another form of the model.
    pub(crate) fn map<N>(self, form: impl FnOnce(M) -> N) -> TunedFit<N> {
        TunedFit {
            model: form(self.model),
            tuning: self.tuning,
            claims: self.claims,
            warnings: self.warnings,
        }
    }
}

/// A candidate of bandwidths and λ, with its scores on training rows that were held out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The bandwidth of the states.
    pub state_bandwidth: f64,
    /// The bandwidth of the observations.
    pub observation_bandwidth: f64,
    /// The regularisation of the prior.
    pub lambda: f64,
    /// The mean squared error of the means of the states.
    pub mse: f64,
    /// The mean log score of an observation; NaN if there is none.
    pub mean_log_score: f64,
    /// Whether the fit has these values.
    pub is_chosen: bool,
}

/// The claim that a number of a fit is at most a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The name of the certificate.
    pub name: String,
    /// The number.
    pub value: f64,
    /// The bound.
    pub bound: f64,
}

impl Claim {
    /// The claim that `value` is at most `bound`.
    pub(crate) fn new(name: impl Into<String>, value: f64, bound: f64) -> Claim {
        let name = name.into();
        Claim { name, value, bound }
    }
}

/// What the table `fits` says of a filter. None if the method has no such number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Training rows that the next row of their sequence follows; all of them without time.
    pub transitions: usize,
    /// The bandwidth of the states.
    pub state_bandwidth: Option<f64>,
    /// The bandwidth of the observations.
    pub observation_bandwidth: Option<f64>,
    /// The regularisation of the prior.
    pub lambda: Option<f64>,
    /// The regularisation of the posterior.
    pub delta: Option<f64>,
    /// The weight of supervision.
    pub mu: Option<f64>,
    /// The rank of the kernel matrix of the states, if it is approximated.
    pub state_rank: Option<usize>,
    /// The rank of the kernel matrix of the observations, if it is approximated.
    pub observation_rank: Option<usize>,
    /// The trace of the error of the kernel matrix of the states, as a share of its trace.
    pub state_trace_residual: Option<f64>,
    /// The trace of the error of the kernel matrix of the observations, as a share of its trace.
    pub observation_trace_residual: Option<f64>,
    /// The training rows whose weights are computed, if they are fewer than all.
    pub landmarks: Option<usize>,
}

/// A part of a model: a matrix by rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// The name of the matrix.
    pub name: String,
    /// Numbers per row, at least 1.
    pub width: usize,
    /// Row-major.
    pub values: Vec<f64>,
}

impl Factor {
    /// A matrix with `width` numbers per row.
    pub(crate) fn new(name: &str, width: usize, values: &[f64]) -> Factor {
        Factor {
            name: name.into(),
            width,
            values: values.to_vec(),
        }
    }
}

/// Estimates of the states of rows, in the order of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimates {
    /// Numbers per state, d_y.
    pub width: usize,
    /// n × d_y, row-major.
    pub mean: Vec<f64>,
    /// n × d_y, not negative.
    pub variance: Vec<f64>,
    /// n × d_y.
    pub decoded: Vec<f64>,
    /// ln p(x_t | x_1, …, x_{t−1}); NaN for a row without an observation.
    pub log_score: Vec<f64>,
    /// The sum of the weights; empty for Kalman filters.
    pub weight_sum: Vec<f64>,
    /// The share of the prior weights that are positive; empty for Kalman filters.
    pub positive_share: Vec<f64>,
    /// The objective of the weights; empty unless the parameters ask for it, as the next two.
    pub objective: Vec<f64>,
    /// The share of the objective that is above its minimum.
    pub objective_excess: Vec<f64>,
    /// The distance of the posterior from supervision.
    pub supervision_distance: Vec<f64>,
    /// Whether the observation changed the estimate.
    pub was_updated: Vec<bool>,
}

impl Estimates {
    /// No row yet.
    pub fn new(width: usize) -> Estimates {
        Estimates {
            width,
            ..Estimates::default()
        }
    }

    /// Adds the objective of a row, its excess and the distance from supervision.
    pub(crate) fn push_objective(&mut self, found: Option<[f64; 3]>) {
        let [objective, excess, distance] = found.unwrap_or([f64::NAN; 3]);
        self.objective.push(objective);
        self.objective_excess.push(excess);
        self.supervision_distance.push(distance);
    }
}

/// Supervision of single rows: from the index of a row to its points.
pub type SupervisionOf<'a> = dyn Fn(usize) -> Option<&'a Supervision> + 'a;
