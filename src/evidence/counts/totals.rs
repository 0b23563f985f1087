//! Row and column sums of a count matrix, which the result of every pass must agree with.

use crate::evidence::pass::kernel::{Conserved, each};
use std::fmt::Display;

/// Row and column sums of the matrix of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals<'a> {
    /// The sum of each row.
    pub rows: &'a [f64],
    /// The sum of each column.
    pub columns: &'a [f64],
    /// Whether all of them are integers, so that sums of them are exact.
    pub are_exact: bool,
}

/// Two sums of the terms of a matrix in different orders differ at most by this share of the sum of
/// their magnitudes.
const ROUNDING: f64 = 1e-9;

impl Totals<'_> {
    /// For passes in this process, which are not checked.
    pub(crate) const UNKNOWN: Totals<'static> = Totals {
        rows: &[],
        columns: &[],
        are_exact: false,
    };

    /// Checks that two sums of the same terms agree. `magnitude` is the sum of the magnitudes of
    /// the terms.
    ///
    /// # Errors
    /// Both sums, if they do not agree.
    pub(crate) fn agree(
        &self,
        found: f64,
        expected: f64,
        magnitude: f64,
        what: impl Display,
    ) -> Conserved {
        // False for NaN.
        let is_close = (found - expected).abs() <= ROUNDING * magnitude;
        (is_close || found == expected)
            .then_some(())
            .ok_or_else(|| format!("{what} is {found:?} in place of {expected:?}"))
    }

    /// Checks that each row of sums of counts adds up to the row sum of the matrix.
    ///
    /// # Errors
    /// The first row that does not.
    pub(crate) fn are_sums(&self, rows: &[f64], width: usize) -> Conserved {
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
    fn sums_that_differ_by_more_than_rounding_are_errors() {
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
        let checked = exact.are_sums(&sums, 2);
        assert_eq!(checked, Err("cell 2 is not a valid result".into()));
        let checked = exact.are_sums(&[1.0, 3.0], 2);
        assert_eq!(
            checked,
            Err("the sum of row 0 is 4.0 in place of 3.0".into())
        );
        let wrong = totals.are_sums(&[1.0, 2.0, 0.1, 0.2001], 2);
        assert!(wrong.is_err());
        let nan = totals.agree(f64::NAN, 1.0, 1e300, "it");
        assert_eq!(nan, Err("it is NaN in place of 1.0".into()));
        assert_eq!(each(&[1, 2], |&x| x < 3), Ok(()));
        assert_eq!(
            each(&[1, 3], |&x| x < 3),
            Err("cell 1 is not a valid result".into())
        );
    }
}
