//! Counts → shards: the count matrix of one partition and lag, cut into units of work of about equal numbers of non-zeros.
//!
//! The matrix is kept twice, by source and by target, in u32 indices. Each product and each sum then has exactly one shard that
//! owns an output row and adds its terms in ascending order, which makes every result independent of the number of shards.

use crate::math::csr::{Csr, Value, Values};
use rayon::prelude::*;

/// The counts N of one partition and lag (m targets × n sources), ready for passes.
#[derive(Debug, Clone, PartialEq)]
pub struct Shards {
    pub n_sources: usize,
    pub n_targets: usize,
    /// Row j holds N_·j: the targets of source j.
    pub by_source: Vec<Csr>,
    /// Row i holds N_i·: the sources of target i.
    pub by_target: Vec<Csr>,
    /// N_·j, n values; exact for integer counts.
    pub source_total: Vec<f64>,
    /// N_i·, m values; exact for integer counts.
    pub target_total: Vec<f64>,
    /// S = Σ N_ij.
    pub total: f64,
}

impl Shards {
    /// Builds shards of at most about `shard_nnz` non-zeros from a coordinate list sorted by (source, target) without repeats.
    /// Every source `0..n_sources` and every target `0..n_targets` must occur: empty states are removed before (coherence §3.1).
    pub fn new(
        n_sources: usize,
        n_targets: usize,
        sources: &[u32],
        targets: &[u32],
        values: Values,
        shard_nnz: usize,
    ) -> Shards {
        assert!(
            sources.len() == targets.len() && sources.len() == values.len(),
            "one source, target and value a non-zero"
        );
        let by_source = cut(
            n_sources,
            &offsets(n_sources, sources),
            targets,
            &values,
            shard_nnz,
        );

        // A counting sort by target keeps the sources ascending inside each target.
        let target_offsets = offsets(n_targets, targets);
        let mut next = target_offsets.clone();
        let mut columns = vec![0u32; sources.len()];
        let by_target_values = match &values {
            Values::Count(v) => {
                Values::Count(transpose(&mut next, sources, targets, v, &mut columns))
            }
            Values::Real(v) => {
                Values::Real(transpose(&mut next, sources, targets, v, &mut columns))
            }
        };
        let by_target = cut(
            n_targets,
            &target_offsets,
            &columns,
            &by_target_values,
            shard_nnz,
        );

        let source_total = row_totals(&by_source, n_sources);
        let target_total = row_totals(&by_target, n_targets);
        let total = crate::math::sum::terms(n_sources, |j| source_total[j]);
        Shards {
            n_sources,
            n_targets,
            by_source,
            by_target,
            source_total,
            target_total,
            total,
        }
    }

    pub fn nnz(&self) -> usize {
        self.by_source.iter().map(Csr::nnz).sum()
    }

    /// Whether all counts are integers, so that sums of them in f64 are exact in any order (below 2⁵³).
    pub fn is_integral(&self) -> bool {
        self.by_source
            .iter()
            .all(|s| matches!(s.values, Values::Count(_)))
    }
}

/// Row starts of entries whose row ids are `ids` (`n + 1` offsets).
fn offsets(n: usize, ids: &[u32]) -> Vec<usize> {
    let mut offsets = vec![0usize; n + 1];
    for &i in ids {
        offsets[i as usize + 1] += 1;
    }
    for i in 0..n {
        assert!(offsets[i + 1] > 0, "state {i} has no counts");
        offsets[i + 1] += offsets[i];
    }
    offsets
}

fn transpose<V: Value + Default>(
    next: &mut [usize],
    sources: &[u32],
    targets: &[u32],
    values: &[V],
    columns: &mut [u32],
) -> Vec<V> {
    let mut out = vec![V::default(); values.len()];
    for ((&j, &i), &v) in sources.iter().zip(targets).zip(values) {
        let at = &mut next[i as usize];
        columns[*at] = j;
        out[*at] = v;
        *at += 1;
    }
    out
}

/// Cuts rows into shards of about `shard_nnz` non-zeros, never splitting a row.
fn cut(
    n: usize,
    offsets: &[usize],
    columns: &[u32],
    values: &Values,
    shard_nnz: usize,
) -> Vec<Csr> {
    let mut shards = Vec::new();
    let mut first_row = 0;
    while first_row < n {
        let start = offsets[first_row];
        let mut end_row = first_row + 1;
        while end_row < n && offsets[end_row + 1] - start <= shard_nnz {
            end_row += 1;
        }
        let end = offsets[end_row];
        shards.push(Csr {
            first_row,
            offsets: offsets[first_row..=end_row]
                .iter()
                .map(|o| o - start)
                .collect(),
            columns: columns[start..end].to_vec(),
            values: match values {
                Values::Count(v) => Values::Count(v[start..end].to_vec()),
                Values::Real(v) => Values::Real(v[start..end].to_vec()),
            },
        });
        first_row = end_row;
    }
    shards
}

fn row_totals(shards: &[Csr], n: usize) -> Vec<f64> {
    let totals: Vec<f64> = shards
        .par_iter()
        .flat_map_iter(|s| (0..s.n_rows()).map(|l| s.span(l).map(|e| s.values.get(e)).sum::<f64>()))
        .collect();
    assert_eq!(totals.len(), n);
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    // N (targets × sources) = [ 2 0 1 ]
    //                         [ 3 5 0 ]
    fn small(shard_nnz: usize) -> Shards {
        Shards::new(
            3,
            2,
            &[0, 0, 1, 2],
            &[0, 1, 1, 0],
            Values::Count(vec![2, 3, 5, 1]),
            shard_nnz,
        )
    }

    #[test]
    fn both_sides_hold_the_same_counts() {
        let s = small(100);
        assert_eq!(s.source_total, [5.0, 5.0, 1.0]);
        assert_eq!(s.target_total, [3.0, 8.0]);
        assert_eq!(s.total, 11.0);
        assert_eq!(s.by_target[0].columns, [0, 2, 0, 1]);
        assert_eq!(s.by_target[0].values, Values::Count(vec![2, 1, 3, 5]));
    }

    #[test]
    fn small_shards_cut_between_rows_only() {
        let s = small(2);
        let rows: Vec<_> = s.by_source.iter().map(Csr::rows).collect();
        assert_eq!(rows, [0..1, 1..3]);
        assert_eq!((s.source_total, s.total), (small(100).source_total, 11.0));
    }
}
