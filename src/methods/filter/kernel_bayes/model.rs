//! A fitted filter: its factors, and how it filters rows.

use crate::error::{Error, Kind, Result, counted};
use crate::methods::filter::expression::Expression;
use crate::methods::filter::fit::{Estimates, Factor, Numbers, SupervisionOf};
use crate::methods::filter::kernel_bayes::base::{Base, Constants, State, factor_of, required};
use crate::methods::filter::kernel_bayes::cholesky::Features;
use crate::methods::filter::kernel_bayes::kernel::Kernel;
use crate::methods::filter::kernel_bayes::rows::{self, Rows};
use crate::methods::filter::kernel_bayes::tensor::{self, Tensor};
use crate::methods::filter::params::{KernelBayes, Rule};
use serde::{Deserialize, Serialize};

/// The factor of the states of which the nearest to a prediction supervises a row.
const SUPERVISED: &str = "supervised_states";

/// A filter by kernel Bayes' rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct KernelModel {
    pub(super) base: Base,
    pub(super) body: Body,
}

/// What holds the likelihood.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    /// Rows with weights.
    Rows(Rows),
    /// Moments of the rows.
    Tensor(Tensor),
}

/// Memory that is used again for every row.
#[derive(Debug, Default)]
pub struct Scratch {
    rows: rows::Memory,
    tensor: tensor::Memory,
}

/// A model as its parameters and factors.
#[derive(Serialize, Deserialize)]
struct Packed {
    /// As JSON, because packed bytes do not say which form a value has.
    params: String,
    factors: Vec<Factor>,
    /// The prediction whose nearest state is used, if it is not that of the filter.
    next: Vec<Expression>,
}

impl From<KernelModel> for Packed {
    fn from(model: KernelModel) -> Packed {
        Packed {
            next: model.next().to_vec(),
            factors: model.factors(),
            params: serde_json::to_string(&model.base.params).unwrap_or_default(),
        }
    }
}

impl TryFrom<Packed> for KernelModel {
    type Error = Error;

    fn try_from(packed: Packed) -> Result<KernelModel> {
        let params = serde_json::from_str(&packed.params).map_err(|e| {
            Error::with_source(Kind::Bug, "the parameters of a model cannot be read", e)
        })?;
        of_factors(&params, packed.factors)?.predicting(packed.next)
    }
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
        mu,
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
    let is_size = |x: f64| (1.0..1e12).contains(&x);
    let fits = is_size(rows)
        && rank > 0
        && features.factor.len() == rank * rank
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
    check_nearest(params, &factors)?;
    let body = if let Some(tensor) = Tensor::of_factors(&mut factors, rank, pivots.width)? {
        if step.is_empty() {
            return Err(broken());
        }
        constants.observation.width = tensor.observation_width();
        Body::Tensor(tensor)
    } else {
        // A number that is no size becomes 0, or more than all rows.
        let rows = rows_of_factors(&mut factors, &mut constants, &features, n as usize)?;
        // Only this rule has rows of supervision after the training rows, or states of supervision
        // in their place. Only a filter of independent rows has no step from one row to the next.
        let fits = |rows: &Rows| {
            (params.rule == Rule::Kregbayes || rows.has_training_only())
                && params.takes_nearest() != rows.supervised.is_empty()
                && rows.is_static() == step.is_empty()
        };
        Body::Rows(rows.filter(fits).ok_or_else(broken)?)
    };
    // Text of numbers may lose the last bit.
    let params = KernelBayes {
        mu,
        ..params.clone()
    };
    let base = Base {
        params,
        constants,
        features,
        step,
    };
    Ok(KernelModel { base, body })
}

/// Checks that the model has states of supervision if the parameters want the nearest one.
fn check_nearest(params: &KernelBayes, factors: &[Factor]) -> Result<()> {
    let is_there = factors.iter().any(|factor| factor.name == SUPERVISED);
    if params.takes_nearest() == is_there {
        return Ok(());
    }
    Err(Error::input(format!(
        "`supervision.nearest` is {} in the pipeline, but {is_there} in the model",
        !is_there
    )))
}

/// The rows of these factors, of which `n` are training rows. Sets the width of observations. None
/// if the factors do not fit each other.
fn rows_of_factors(
    factors: &mut Vec<Factor>,
    constants: &mut Constants,
    features: &Features,
    n: usize,
) -> Result<Option<Rows>> {
    let states = required(factors, "states")?;
    let observations = required(factors, "observations")?;
    constants.observation.width = observations.width;
    let width = constants.state.width;
    let all = states.values.len() / width.max(1);
    let prior = factor_of(factors, "prior").map_or_else(Vec::new, |prior| prior.values);
    let kept = factor_of(factors, "landmarks").map_or_else(Vec::new, |kept| kept.values);
    let kept: Vec<usize> = kept.iter().map(|at| *at as usize).collect();
    let supervised = factor_of(factors, SUPERVISED);
    let supervised_fit = supervised.as_ref().is_none_or(|own| {
        own.width == width && own.values.len().is_multiple_of(width.max(1)) && n == all
    });
    let fits = n > 0
        && supervised_fit
        && states.width == width
        && (kept.is_empty() || kept.len() == n)
        && kept.iter().all(|at| *at < constants.rows)
        && n <= all
        && observations.values.len() == all * observations.width
        && (prior.is_empty() || prior.len() == n);
    Ok(fits.then(|| {
        let mut rows = Rows::new(
            constants,
            features,
            n,
            states.values,
            observations.values,
            prior,
            kept,
        );
        rows.supervised = supervised.map_or_else(Vec::new, |own| own.values);
        rows
    }))
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
        } = self.base.constants;
        let approximate = self.base.constants.is_approximate;
        let (tensor, landmarks) = match &self.body {
            Body::Tensor(tensor) => (Some(tensor.observation_rank()), None),
            Body::Rows(own) => (None, (own.n < rows).then_some(own.n)),
        };
        Numbers {
            transitions: rows,
            state_bandwidth: Some(state.bandwidth),
            observation_bandwidth: Some(observation.bandwidth),
            lambda: Some(lambda),
            delta: Some(delta),
            mu: (self.base.params.rule == Rule::Kregbayes).then_some(self.base.params.mu),
            state_rank: approximate.then_some(self.base.features.rank),
            observation_rank: tensor,
            state_trace_residual: approximate.then_some(self.base.constants.state_residual),
            observation_trace_residual: tensor.map(|_| self.base.constants.observation_residual),
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
        } = self.base.constants;
        let factor = Factor::new;
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
            self.base.params.mu,
        ];
        let rank = self.base.features.rank;
        let mut all = vec![
            factor("constants", constants.len(), &constants),
            factor("state_pivots", state.width, &self.base.features.points),
            factor("state_factor", rank, &self.base.features.factor),
        ];
        if !self.base.step.is_empty() {
            all.push(factor("step", rank, &self.base.step));
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
                if !own.supervised.is_empty() {
                    all.push(factor(SUPERVISED, state.width, &own.supervised));
                }
            }
            Body::Tensor(tensor) => all.extend(tensor.factors(observation.width)),
        }
        all
    }

    /// The prediction whose nearest state is used. Empty: that of the filter.
    fn next(&self) -> &[Expression] {
        match &self.body {
            Body::Rows(own) => &own.next,
            Body::Tensor(_) => &[],
        }
    }

    /// The model with this prediction, whose nearest state is used.
    ///
    /// # Errors
    /// If it is not one expression per number of a state.
    pub(crate) fn predicting(mut self, next: Vec<Expression>) -> Result<KernelModel> {
        let width = self.base.constants.state.width;
        if !next.is_empty() && next.len() != width {
            return Err(Error::input(format!(
                "`supervision.f` has {} for a state of {}; write one per number",
                counted(next.len(), "expression"),
                counted(width, "number")
            )));
        }
        if let Body::Rows(own) = &mut self.body {
            own.next = next;
        }
        Ok(self)
    }

    pub(crate) fn widths(&self) -> (usize, usize) {
        (
            self.base.constants.state.width,
            self.base.constants.observation.width,
        )
    }

    pub(crate) fn start(&self) -> State {
        State {
            mean: Vec::new(),
            decoded: Vec::new(),
        }
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
        let rows = observations.chunks_exact(self.base.constants.observation.width.max(1));
        for (row, x) in rows.enumerate() {
            let x = x.iter().all(|x| x.is_finite()).then_some(x);
            match &self.body {
                Body::Rows(own) => {
                    own.filter(
                        &self.base,
                        state,
                        &mut scratch.rows,
                        x,
                        supervision(row),
                        out,
                    );
                }
                Body::Tensor(own) => {
                    own.filter(&self.base, state, &mut scratch.tensor, x, out);
                    // Moments do not say what single rows are.
                    if self.base.params.objective {
                        out.push_objective(None);
                    }
                }
            }
        }
    }

    /// The weights of the training rows of one row of a static problem.
    pub(crate) fn posterior_weights(&self, observation: &[f64]) -> Vec<f64> {
        let Body::Rows(own) = &self.body else {
            return Vec::new();
        };
        let mut memory = rows::Memory::default();
        let mut weights = own.prior.clone();
        if observation.iter().all(|x| x.is_finite()) {
            let updated = own.update(&self.base, &mut memory, &own.prior, observation);
            if let Some(updated) = updated {
                weights = updated;
            }
        }
        // Rows of supervision have no id.
        weights.truncate(own.n);
        if own.kept.is_empty() {
            return weights;
        }
        let mut all = vec![0.0; self.base.constants.rows];
        for (at, weight) in own.kept.iter().zip(weights) {
            all[*at] = weight;
        }
        all
    }
}
