//! Kernel Bayes' rule.

use crate::error::Result;
use crate::methods::filter::fit::{Estimates, Factor, Fit, FitInput, Numbers, SupervisionOf};
use crate::methods::filter::params::KernelBayes;
use serde::{Deserialize, Serialize};

/// Weighted training rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelModel {}

/// The state of a filter between two rows.
#[derive(Debug, Clone)]
pub struct State {}

/// Memory that is used again for every row.
#[derive(Debug)]
pub struct Scratch {}

/// Fits the model.
pub(crate) fn fit(_: &KernelBayes, _: &FitInput<'_>, _: u64) -> Result<Fit<KernelModel>> {
    todo!()
}

/// The model with these factors.
pub(crate) fn of_factors(_: &KernelBayes, _: Vec<Factor>) -> Result<KernelModel> {
    todo!()
}

impl KernelModel {
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
        _supervision: &SupervisionOf<'_>,
        _out: &mut Estimates,
    ) {
        todo!()
    }

    pub(crate) fn posterior_weights(&self, _observation: &[f64]) -> Vec<f64> {
        todo!()
    }
}
