//! The columns of a count matrix, with access by index.

use crate::evidence::counts::csr::{Csr, Values};
use crate::evidence::counts::shards::Shards;
use crate::memory;
use crate::methods::dbmr::entropy::Entropy;
use std::ops::Range;

/// Columns between two checks of the memory limit.
const UNSEEN: usize = 256;

/// One column of N.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'a> {
    pub(super) csr: &'a Csr,
    pub(super) start: usize,
    pub(super) end: usize,
    /// N_·j.
    pub total: f64,
}

impl<'a> Column<'a> {
    /// Local row `l` of `csr`, a source.
    #[inline(always)]
    pub(crate) fn of(csr: &'a Csr, l: usize) -> Column<'a> {
        let span = csr.span(l);
        let total = match &csr.values {
            // Sums of integers are exact in any order, and faster without one.
            Values::Small(v) => v[span.clone()].iter().map(|&v| u64::from(v)).sum::<u64>() as f64,
            Values::Count(v) => v[span.clone()].iter().map(|&v| u64::from(v)).sum::<u64>() as f64,
            Values::Real(v) => v[span.clone()].iter().sum(),
        };
        Column {
            csr,
            start: span.start,
            end: span.end,
            total,
        }
    }

    /// The non-zeros in the arrays of the shard.
    #[inline(always)]
    pub(crate) fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The targets of all non-zeros, ascending.
    pub(crate) fn targets(&self) -> &'a [u32] {
        &self.csr.columns[self.span()]
    }

    /// Target and count of every non-zero, ascending.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let (csr, span) = (self.csr, self.span());
        span.map(|e| (csr.columns[e] as usize, csr.values.get(e)))
    }
}

/// The columns of a count matrix, with access by index.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    /// The matrix.
    pub shards: &'a Shards,
    /// The shard of every source, n values.
    shard: Vec<u32>,
    /// x log x of sums of these columns.
    pub entropy: Entropy,
}

impl<'a> Columns<'a> {
    /// The columns of a matrix.
    pub(crate) fn new(shards: &'a Shards) -> Columns<'a> {
        let numbered = shards.by_source.iter().enumerate();
        Columns {
            shard: numbered
                .flat_map(|(s, csr)| std::iter::repeat_n(s as u32, csr.n_rows()))
                .collect(),
            entropy: Entropy::new(shards),
            shards,
        }
    }

    /// The column of source j.
    #[inline(always)]
    pub(crate) fn get(&self, j: usize) -> Column<'a> {
        let csr = &self.shards.by_source[self.shard[j] as usize];
        let span = csr.span(j - csr.first_row);
        // A search is no pass. Most searches go through the columns in order.
        if span.start == 0 || j.is_multiple_of(UNSEEN) {
            memory::wait_for_room();
        }
        Column {
            csr,
            start: span.start,
            end: span.end,
            total: self.shards.source_total[j],
        }
    }
}
