//! A fitted filter: its numbers, its factors, and how it filters the rows of a sequence.

use crate::error::Result;
use crate::methods::FilterMethod;
use crate::methods::filter::kalman::{self, KalmanModel};
use crate::methods::filter::kernel_bayes::{self, KernelModel};
use serde::{Deserialize, Serialize};

pub use crate::methods::filter::fit::{
    Claim, Dynamics, Estimates, Factor, FitInput, Numbers, SupervisionOf, Tuned, TunedFit,
};

/// A filter, and what its fit found.
pub(crate) type FilterFit = TunedFit<FilterModel>;

/// A fitted filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FilterModel {
    /// Weighted training rows.
    KernelBayes(Box<KernelModel>),
    /// A Gaussian distribution of the state.
    Kalman(Box<KalmanModel>),
}

/// The state of a filter between two rows of a sequence.
#[derive(Debug, Clone)]
pub enum FilterState {
    /// That of [`FilterModel::KernelBayes`].
    KernelBayes(kernel_bayes::State),
    /// That of [`FilterModel::Kalman`].
    Kalman(kalman::State),
}

/// Memory that [`FilterModel::push`] uses again for every row.
#[derive(Debug)]
pub enum Scratch {
    /// That of [`FilterModel::KernelBayes`].
    KernelBayes(Box<kernel_bayes::Scratch>),
    /// That of [`FilterModel::Kalman`].
    Kalman(Box<kalman::Scratch>),
}

impl FilterMethod {
    /// The columns of objectives of a row, among [`OBJECTIVES`](super::params::OBJECTIVES).
    pub(crate) fn objectives(&self) -> &'static [&'static str] {
        match self {
            FilterMethod::KernelBayes(own) => own.objectives(),
            FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => &[],
        }
    }

    /// Fits the method. The fit depends on the input, the parameters and the seed alone.
    ///
    /// # Errors
    /// If the training rows have no such fit.
    pub fn fit(&self, input: &FitInput<'_>, seed: u64) -> Result<FilterFit> {
        match self {
            FilterMethod::KernelBayes(own) => Ok(kernel_bayes::fit(own, input, seed)?
                .map(|model| FilterModel::KernelBayes(Box::new(model)))),
            FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => {
                Ok(kalman::fit(self, input)?.map(|model| FilterModel::Kalman(Box::new(model))))
            }
        }
    }
}

impl FilterModel {
    /// What the table `fits` says.
    pub(crate) fn numbers(&self) -> Numbers {
        match self {
            FilterModel::KernelBayes(model) => model.numbers(),
            FilterModel::Kalman(model) => model.numbers(),
        }
    }

    /// The whole model as matrices.
    pub(crate) fn factors(&self) -> Vec<Factor> {
        match self {
            FilterModel::KernelBayes(model) => model.factors(),
            FilterModel::Kalman(model) => model.factors(),
        }
    }

    /// The model with these [`factors`](FilterModel::factors), bit by bit.
    ///
    /// # Errors
    /// If a matrix is missing or has another shape.
    pub(crate) fn of_factors(
        method: &FilterMethod,
        factors: Vec<Factor>,
        dynamics: Option<&Dynamics>,
    ) -> Result<FilterModel> {
        match method {
            FilterMethod::KernelBayes(own) => {
                let next = dynamics.map_or_else(Vec::new, |own| own.f.clone());
                let model = kernel_bayes::of_factors(own, factors)?.predicting(next)?;
                Ok(FilterModel::KernelBayes(Box::new(model)))
            }
            FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => {
                kalman::of_factors(method, factors, dynamics)
                    .map(|model| FilterModel::Kalman(Box::new(model)))
            }
        }
    }

    /// Numbers per state, and per observation.
    pub fn widths(&self) -> (usize, usize) {
        match self {
            FilterModel::KernelBayes(model) => model.widths(),
            FilterModel::Kalman(model) => model.widths(),
        }
    }

    /// The state before the first row of a sequence.
    pub fn start(&self) -> FilterState {
        match self {
            FilterModel::KernelBayes(model) => FilterState::KernelBayes(model.start()),
            FilterModel::Kalman(model) => FilterState::Kalman(model.start()),
        }
    }

    /// Memory for [`push`](FilterModel::push).
    pub fn scratch(&self) -> Scratch {
        match self {
            FilterModel::KernelBayes(model) => Scratch::KernelBayes(Box::new(model.scratch())),
            FilterModel::Kalman(model) => Scratch::Kalman(Box::new(model.scratch())),
        }
    }

    /// Whether the filter takes an observation with NaN where a number is missing. A Kalman filter
    /// is updated by the numbers that are there, kernels compare whole observations.
    pub(crate) fn takes(&self, observation: &[f64]) -> bool {
        let mut numbers = observation.iter().map(|x| x.is_finite());
        match self {
            FilterModel::KernelBayes(_) => !observation.is_empty() && numbers.all(|is| is),
            FilterModel::Kalman(_) => numbers.any(|is| is),
        }
    }

    /// Filters the next rows of a sequence, and adds their estimates to `out`.
    ///
    /// `observations` is n × d_x, row-major, with NaN for numbers that are missing. The state of a
    /// row whose observation the filter does not [take](FilterModel::takes) is predicted.
    /// `supervision` gives the points of single rows of `observations`.
    ///
    /// # Panics
    /// If the state or the scratch memory is that of another model.
    pub fn push(
        &self,
        state: &mut FilterState,
        scratch: &mut Scratch,
        observations: &[f64],
        supervision: &SupervisionOf<'_>,
        out: &mut Estimates,
    ) {
        match (self, state, scratch) {
            (
                FilterModel::KernelBayes(model),
                FilterState::KernelBayes(state),
                Scratch::KernelBayes(scratch),
            ) => model.push(state, scratch, observations, supervision, out),
            (FilterModel::Kalman(model), FilterState::Kalman(state), Scratch::Kalman(scratch)) => {
                model.push(state, scratch, observations, out);
            }
            _ => unreachable!("the state and the scratch memory are those of the model"),
        }
    }

    /// Goes on by a number of steps without a row. The state is that after as many rows without
    /// an observation, to the last bit.
    ///
    /// # Panics
    /// If the state or the scratch memory is that of another model.
    pub(crate) fn predict(&self, state: &mut FilterState, scratch: &mut Scratch, steps: u64) {
        let (width, d) = self.widths();
        let missing = vec![f64::NAN; d];
        for _ in 0..steps {
            let mut unused = Estimates::new(width);
            self.push(state, scratch, &missing, &|_| None, &mut unused);
        }
    }

    /// The weights of the training rows after the observation of one row of a static problem, and
    /// nothing for other models. For rows without an observation, the weights of the prior.
    pub(crate) fn posterior_weights(&self, observation: &[f64]) -> Vec<f64> {
        match self {
            FilterModel::KernelBayes(model) => model.posterior_weights(observation),
            FilterModel::Kalman(_) => Vec::new(),
        }
    }
}
