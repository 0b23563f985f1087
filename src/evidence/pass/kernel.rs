//! What a pass does with one shard, as a value: it can be sent to where the shard is.

use crate::evidence::counts::csr::Csr;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// A plain function of a shard and of vectors that all shards share, which makes the output rows that the shard owns.
pub trait Kernel: Serialize + DeserializeOwned + Sync {
    /// What output rows are made of.
    type Cell: Clone + Default + Send + Serialize + DeserializeOwned;

    /// What the kernel is called where it is sent to. No two have one name.
    const NAME: &'static str;

    /// Whether it changes the rows that it is given; if not, it sets every cell and never reads one.
    const IN_PLACE: bool = false;

    /// Cells of a row.
    fn width(&self) -> usize;

    /// Makes the shard's own rows, `n_rows × width` and row-major.
    fn apply(&self, shard: &Csr, rows: &mut [Self::Cell]);

    /// Whether all rows of a pass can be what it came to, as far as the totals of the matrix tell.
    ///
    /// # Errors
    /// What is not conserved.
    fn conserved(&self, totals: &Totals, rows: &[Self::Cell]) -> Conserved;
}

/// Row and column sums of the matrix of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Totals<'a> {
    pub rows: &'a [f64],
    pub columns: &'a [f64],
    /// Whether all of them are integers, so that sums of them are exact.
    pub are_exact: bool,
}

/// Nothing, or what is not conserved.
pub type Conserved = Result<(), String>;

/// Sums of as many terms as a matrix has may differ by such a share of the sum of their magnitudes, in whatever order they were added.
const ROUNDING: f64 = 1e-9;

impl Totals<'_> {
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

/// Fails where a cell is none that the kernel makes.
pub fn each<T>(rows: &[T], is_one: impl Fn(&T) -> bool) -> Conserved {
    match rows.iter().position(|cell| !is_one(cell)) {
        None => Ok(()),
        Some(at) => Err(format!("cell {at} is no result")),
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
