//! Row and column sums of a matrix of counts, which the result of every pass must agree with.

use crate::evidence::pass::kernel::{Conserved, each};
use std::fmt::Display;

/// Row and column sums of the matrix of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Totals<'a> {
    pub rows: &'a [f64],
    pub columns: &'a [f64],
    /// Whether all of them are integers, so that sums of them are exact.
    pub are_exact: bool,
}

/// Sums of as many terms as a matrix has may differ by such a share of the sum of their magnitudes, in whatever order they were added.
const ROUNDING: f64 = 1e-9;

impl Totals<'_> {
    /// For passes in this process, which are not checked.
    pub const UNKNOWN: Totals<'static> = Totals {
        rows: &[],
        columns: &[],
        are_exact: false,
    };

    /// Fails where two ways to add up the same do not agree. `magnitude`: the sum of the magnitudes of what was added.
    pub fn agree(
        &self,
        found: f64,
        expected: f64,
        magnitude: f64,
        what: impl Display,
    ) -> Conserved {
        // Not so for NaN.
        let is_close = (found - expected).abs() <= ROUNDING * magnitude;
        (is_close || found == expected)
            .then_some(())
            .ok_or_else(|| format!("{what} is {found:?} in place of {expected:?}"))
    }

    /// Fails where a row of sums of counts does not add up to what there is.
    pub fn are_sums(&self, rows: &[f64], width: usize) -> Conserved {
        each(rows, |&sum| {
            sum >= 0.0 && (!self.are_exact || sum.fract() == 0.0)
        })?;
        for (row, (sums, &total)) in rows.chunks_exact(width).zip(self.rows).enumerate() {
            let sum: f64 = sums.iter().sum();
            let slack = if self.are_exact { 0.0 } else { total };
            self.agree(sum, total, slack, format_args!("the sum of row {row}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_differ_by_more_than_rounding_are_told() {
        let totals = Totals {
            rows: &[3.0, 0.3],
            columns: &[3.3],
            are_exact: false,
        };
        let sums = [1.0, 2.0, 0.1, 0.2];
        assert_eq!(totals.are_sums(&sums, 2), Ok(()));
        let exact = Totals {
            are_exact: true,
            ..totals
        };
        // Sums of integers are integers, and equal.
        let told = exact.are_sums(&sums, 2);
        assert_eq!(told, Err("cell 2 is no result".into()));
        let told = exact.are_sums(&[1.0, 3.0], 2);
        assert_eq!(told, Err("the sum of row 0 is 4.0 in place of 3.0".into()));
        let wrong = totals.are_sums(&[1.0, 2.0, 0.1, 0.2001], 2);
        assert!(wrong.is_err());
        let nan = totals.agree(f64::NAN, 1.0, 1e300, "it");
        assert_eq!(nan, Err("it is NaN in place of 1.0".into()));
        assert_eq!(each(&[1, 2], |&x| x < 3), Ok(()));
        assert_eq!(each(&[1, 3], |&x| x < 3), Err("cell 1 is no result".into()));
    }
}
