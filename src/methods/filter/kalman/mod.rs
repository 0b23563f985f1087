//! Kalman filters.

use crate::error::Result;
use crate::methods::FilterMethod;
use crate::methods::filter::model::{Dynamics, Estimates, Factor, FilterFit, FitInput, Numbers};
use serde::{Deserialize, Serialize};

/// A Gaussian distribution of the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KalmanModel {}

/// The state of a filter between two rows.
#[derive(Debug, Clone)]
pub struct State {}

/// Memory that is used again for every row.
#[derive(Debug)]
pub struct Scratch {}

/// Fits the model.
pub(crate) fn fit(_: &FilterMethod, _: &FitInput<'_>) -> Result<FilterFit> {
    todo!()
}

/// The model with these factors.
pub(crate) fn of_factors(
    _: &FilterMethod,
    _: Vec<Factor>,
    _: Option<&Dynamics>,
) -> Result<KalmanModel> {
    todo!()
}

impl KalmanModel {
    pub(crate) fn numbers(&self) -> Numbers {
        todo!()
    }

    pub(crate) fn factors(&self) -> Vec<Factor> {
        todo!()
    }

    pub(crate) fn widths(&self) -> (usize, usize) {
        todo!()
    }

    pub(crate) fn start(&self) -> State {
        todo!()
    }

    pub(crate) fn scratch(&self) -> Scratch {
        todo!()
    }

    pub(crate) fn push(
        &self,
        _state: &mut State,
        _scratch: &mut Scratch,
        _observations: &[f64],
        _out: &mut Estimates,
    ) {
        todo!()
    }
}
