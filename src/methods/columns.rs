//! Columns of models as plain values, which the output turns into tables.

use crate::methods::low_rank::model::LowRank;
use std::fmt::Display;

/// The two sides of a transition matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// The columns of P.
    Sources,
    /// The rows of P.
    Targets,
}

/// A column with one value per state.
#[derive(Clone, Copy)]
pub struct StateColumn {
    /// The name without that of the fit.
    pub name: &'static str,
    /// The values, one per state.
    pub values: Values,
}

/// The values of a column, borrowed from a model of the method that has the column.
#[derive(Clone, Copy)]
pub enum Values {
    /// The index of a set, −1 for none.
    Sets(fn(&LowRank, Axis) -> Option<&[i32]>),
    /// One row of numbers per state.
    Rows(fn(&LowRank, Axis) -> Option<StateRows<'_>>),
}

/// One row of numbers per state.
#[derive(Clone, Copy)]
pub struct StateRows<'a> {
    /// Row-major.
    pub values: &'a [f64],
    /// Numbers per row.
    pub width: usize,
}

impl<'a> StateRows<'a> {
    /// The row of a state.
    pub(crate) fn row(self, state: usize) -> &'a [f64] {
        &self.values[state * self.width..][..self.width]
    }
}

/// What the names of the columns of each time or power end with: nothing if there is only one.
pub(crate) fn parts<T: Display>(letter: &str, times: &[T]) -> Vec<String> {
    match times {
        [_] => vec![String::new()],
        _ => times.iter().map(|t| format!("_{letter}{t}")).collect(),
    }
}
