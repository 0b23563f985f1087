//! What the parts of a filter share: constants, features of states, and the prior of the next row.

use crate::error::{Error, Result};
use crate::methods::filter::fit::Factor;
use crate::methods::filter::kernel_bayes::cholesky::Features;
use crate::methods::filter::kernel_bayes::kernel::Kernel;
use crate::methods::filter::kernel_bayes::linear;
use crate::methods::filter::params::KernelBayes;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::{Mat, Par};

/// A sum of weights at most this size divides nothing.
pub(super) const NO_WEIGHT: f64 = 1e-12;

/// The constants of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Constants {
    pub(super) state: Kernel,
    pub(super) observation: Kernel,
    pub(super) lambda: f64,
    pub(super) delta: f64,
    /// The number of training rows with a successor, or of all rows of a static problem.
    pub(super) rows: usize,
    pub(super) state_residual: f64,
    pub(super) observation_residual: f64,
    /// Whether the kernel matrix of the states is approximated.
    pub(super) is_approximate: bool,
}

/// What the filters by rows and by moments share.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Base {
    pub(super) params: KernelBayes,
    pub(super) constants: Constants,
    /// Features of states.
    pub(super) features: Features,
    /// P: r × r by columns. Empty for a static problem.
    pub(super) step: Vec<f64>,
}

impl Base {
    /// c with β = Q c, for the posterior m of the row before.
    pub(super) fn prior_features(&self, mean: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.resize(self.features.rank, 0.0);
        linear::add_columns(&self.step, mean, out);
    }
}

/// The state of a filter between two rows.
#[derive(Debug, Clone)]
pub struct State {
    /// m; empty before the first row.
    pub(super) mean: Vec<f64>,
    /// The decoded state, if the next prediction is a function of it.
    pub(super) decoded: Vec<f64>,
}

/// The solution X of AX = B for a positive definite matrix with this lower triangle.
pub(super) fn positive_solve(a: &Mat<f64>, b: &Mat<f64>) -> Result<Mat<f64>> {
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

/// Takes the factor with a name, if there is one.
pub(super) fn factor_of(factors: &mut Vec<Factor>, name: &str) -> Option<Factor> {
    let at = factors.iter().position(|factor| factor.name == name)?;
    Some(factors.swap_remove(at))
}

/// Takes the factor with a name.
pub(super) fn required(factors: &mut Vec<Factor>, name: &str) -> Result<Factor> {
    factor_of(factors, name)
        .ok_or_else(|| Error::input(format!("the model has no factor `{name}`")))
}
