//! Products of sparse counts with dense blocks.

use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::kernel::{Conserved, Kernel};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The pass diag(scale) · N · x, by [`Csr::multiply`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Multiply<'a> {
    /// Columns of the matrix × `width`, row-major.
    pub x: Cow<'a, [f64]>,
    /// Columns of `x`.
    pub width: usize,
    /// One number per row; empty for N · x.
    pub scale: Cow<'a, [f64]>,
}

impl Kernel for Multiply<'_> {
    type Shard = Csr;
    type Cell = f64;

    const NAME: &'static str = "multiply";

    fn width(&self) -> usize {
        self.width
    }

    fn apply(&self, shard: &Csr, rows: &mut [f64]) {
        shard.multiply(&self.x, self.width, rows);
        if self.scale.is_empty() {
            return;
        }
        for (row, out) in shard.rows().zip(rows.chunks_exact_mut(self.width)) {
            let scale = self.scale[row];
            for out in out {
                *out *= scale;
            }
        }
    }

    /// 1ᵀNx is the column sums times x.
    fn conserved(&self, totals: &Totals, rows: &[f64]) -> Conserved {
        let scale = |row: usize| self.scale.get(row).copied().unwrap_or(1.0);
        for k in 0..self.width {
            let found = rows.chunks_exact(self.width).enumerate();
            let found = found.map(|(row, out)| out[k] / scale(row)).sum();
            let terms = || {
                let x = self.x.chunks_exact(self.width).zip(totals.columns);
                x.map(|(x, total)| x[k] * total)
            };
            let magnitude = terms().map(f64::abs).sum();
            let what = format_args!("the sum of column {k}");
            totals.agree(found, terms().sum(), magnitude, what)?;
        }
        Ok(())
    }
}
