//! Sums of counts per set: the counts of each row in each set of its columns.

use crate::evidence::counts::csr::{Csr, Value, Values};
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::kernel::{Conserved, Kernel};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Computes C_ik = Σ_{γ(j)=k} N_ij for the targets in `csr` (rows of targets), in ascending order
/// of j. `sums` is rows × rank, row-major.
pub(crate) fn gather(csr: &Csr, affiliation: &[u32], rank: usize, sums: &mut [f64]) {
    /// The counts of a set are added to `C` partial sums in turn, because consecutive additions to
    /// one sum in memory wait for each other. Weights need one sum, so that their order is fixed.
    fn rows<V: Value, const C: usize>(
        csr: &Csr,
        values: &[V],
        affiliation: &[u32],
        rank: usize,
        sums: &mut [f64],
    ) {
        let mut parts = vec![[0.0; C]; rank];
        for (l, row) in sums.chunks_exact_mut(rank).enumerate() {
            parts.fill([0.0; C]);
            let span = csr.span(l);
            let (sources, rest) = csr.columns[span.clone()].as_chunks::<C>();
            let (counts, rest_counts) = values[span].as_chunks::<C>();
            for (j, v) in sources.iter().zip(counts) {
                for c in 0..C {
                    parts[affiliation[j[c] as usize] as usize][c] += v[c].f64();
                }
            }
            for (&j, &v) in rest.iter().zip(rest_counts) {
                parts[affiliation[j as usize] as usize][0] += v.f64();
            }
            for (sum, parts) in row.iter_mut().zip(&parts) {
                *sum = parts.iter().sum();
            }
        }
    }
    match &csr.values {
        Values::Small(values) => rows::<_, 4>(csr, values, affiliation, rank, sums),
        Values::Count(values) => rows::<_, 4>(csr, values, affiliation, rank, sums),
        Values::Real(values) => rows::<_, 1>(csr, values, affiliation, rank, sums),
    }
}

/// The update of λ (15): C_ik, one row per target.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gather<'a> {
    /// γ(j), n values.
    pub affiliation: Cow<'a, [u32]>,
    /// Number of sets.
    pub rank: usize,
}

impl Kernel for Gather<'_> {
    type Shard = Csr;
    type Cell = f64;

    const NAME: &'static str = "gather";

    fn width(&self) -> usize {
        self.rank
    }

    fn apply(&self, shard: &Csr, rows: &mut [f64]) {
        gather(shard, &self.affiliation, self.rank, rows);
    }

    fn conserved(&self, totals: &Totals, rows: &[f64]) -> Conserved {
        totals.are_sums(rows, self.rank)
    }
}
