//! Counts → shards: the count matrix of one partition and lag, cut into shards of about equal
//! numbers of non-zeros.
//!
//! The matrix is stored twice, by source and by target, with u32 indices. In each product and each
//! sum, exactly one shard owns an output row and adds its terms in ascending order. So no result
//! depends on the number of shards.

use crate::evidence::counts::csr::{Csr, Value, Values};
use crate::evidence::counts::totals::Totals;
use crate::evidence::kind::{EvidenceKind, Side};
use crate::evidence::pass::kernel::Sharded;
use crate::math::sum;
use crate::memory;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The counts N of one partition and lag (m targets × n sources), ready for passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shards {
    /// n.
    pub n_sources: usize,
    /// m.
    pub n_targets: usize,
    /// Row j holds N_·j, the targets of source j.
    pub by_source: Vec<Csr>,
    /// Row i holds N_i·, the sources of target i.
    pub by_target: Vec<Csr>,
    /// N_·j, n values; exact for integer counts.
    pub source_total: Vec<f64>,
    /// N_i·, m values; exact for integer counts.
    pub target_total: Vec<f64>,
    /// S = Σ N_ij.
    pub total: f64,
    /// A lower bound of all N_ij > 0: 1 for integers.
    pub smallest: f64,
    /// The unit of weights is 2 to this power.
    pub exponent: i32,
}

impl Shards {
    /// Shards of at most about `shard_nnz` non-zeros, from a coordinate list that is sorted by
    /// (source, target) without repeats. Every source `0..n_sources` and every target
    /// `0..n_targets` must occur: states without counts are removed before (coherence §3.1).
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
            "one source, target and value per non-zero"
        );
        let mut offsets = vec![0; n_sources + 1];
        for &j in sources {
            offsets[j as usize + 1] += 1;
        }
        for j in 0..n_sources {
            offsets[j + 1] += offsets[j];
        }
        let by_source = cut(0, &offsets, targets, &values, shard_nnz);
        Shards::from_sources(n_targets, by_source, shard_nnz)
    }

    /// Shards from the rows of sources, which are not cut. Shards by target get about `shard_nnz`
    /// non-zeros. Every source and every target `0..n_targets` must have counts.
    pub(crate) fn from_sources(n_targets: usize, by_source: Vec<Csr>, shard_nnz: usize) -> Shards {
        let n_sources = by_source.last().map_or(0, |shard| shard.rows().end);
        let by_target = transposed(n_targets, &by_source, shard_nnz);
        let source_total = row_totals(&by_source, n_sources);
        let target_total = row_totals(&by_target, n_targets);
        let total = sum(&source_total);
        let smallest = by_source.par_iter().map(|shard| match &shard.values {
            Values::Real(values) => values.iter().copied().fold(f64::INFINITY, f64::min),
            _ => 1.0,
        });
        let smallest = smallest.reduce(|| f64::INFINITY, f64::min);
        Shards {
            n_sources,
            n_targets,
            by_source,
            by_target,
            source_total,
            target_total,
            total,
            smallest,
            exponent: 0,
        }
    }

    /// Whether the entries are on other machines.
    pub(crate) fn is_outline(&self) -> bool {
        self.by_source.iter().any(Csr::is_outline)
    }

    /// The rows of the sources.
    pub(crate) fn sources(&self) -> Sharded<'_, Csr> {
        self.sharded(&self.by_source, &self.source_total, &self.target_total)
    }

    /// The rows of the targets.
    pub(crate) fn targets(&self) -> Sharded<'_, Csr> {
        self.sharded(&self.by_target, &self.target_total, &self.source_total)
    }

    fn sharded<'a>(
        &self,
        shards: &'a [Csr],
        rows: &'a [f64],
        columns: &'a [f64],
    ) -> Sharded<'a, Csr> {
        let are_exact = self.is_integral();
        let totals = Totals {
            rows,
            columns,
            are_exact,
        };
        Sharded { shards, totals }
    }

    /// The number of non-zeros.
    pub(crate) fn nnz(&self) -> usize {
        self.by_source.iter().map(Csr::nnz).sum()
    }

    /// Whether all counts are integers, so that their sums in f64 are exact (below 2⁵³).
    pub(crate) fn is_integral(&self) -> bool {
        self.by_source
            .iter()
            .all(|s| !matches!(s.values, Values::Real(_)))
    }
}

impl EvidenceKind for Shards {
    /// The rows of the sources and those of the targets.
    fn sides(&self) -> Vec<&dyn Side> {
        vec![&self.by_source, &self.by_target]
    }

    fn split(mut self, shard_nnz: usize) -> Shards {
        for side in [&mut self.by_source, &mut self.by_target] {
            let split = |shard: Csr| {
                if shard.nnz() <= shard_nnz {
                    return vec![shard];
                }
                let (first, offsets) = (shard.first_row, &shard.offsets);
                cut(first, offsets, &shard.columns, &shard.values, shard_nnz)
            };
            *side = std::mem::take(side).into_iter().flat_map(split).collect();
        }
        self
    }

    /// Row lengths, kinds of values, and totals.
    fn outline(&self) -> Shards {
        let outline = |shards: &[Csr]| shards.iter().map(Csr::outline).collect();
        Shards {
            by_source: outline(&self.by_source),
            by_target: outline(&self.by_target),
            source_total: self.source_total.clone(),
            target_total: self.target_total.clone(),
            ..*self
        }
    }
}

/// The smallest number of non-zeros of a range of targets that is built by one thread.
const SMALLEST_RANGE: usize = 1 << 14;

/// The largest number of non-zeros of a range under a memory bound, because writes go to random
/// places of the range.
const LARGEST_BOUNDED_RANGE: usize = 2 << 20;

/// Non-zeros that are written between two checks of the memory in use. Each may touch another page.
const UNCHECKED: usize = 1 << 11;

/// The rows of targets, from the rows of sources. Ranges of targets are built in parallel, each by
/// a counting sort over the sources in ascending order.
fn transposed(n_targets: usize, by_source: &[Csr], shard_nnz: usize) -> Vec<Csr> {
    let count = |shards: &[Csr]| {
        let mut counts = vec![0u32; n_targets];
        for shard in shards {
            memory::wait_for_room();
            for &i in &shard.columns {
                counts[i as usize] += 1;
            }
        }
        counts
    };
    let threads = rayon::current_num_threads();
    let counts = by_source
        .par_chunks(by_source.len().div_ceil(threads).max(1))
        .map(count)
        .reduce_with(|mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        })
        .unwrap_or_default();
    let nnz: usize = by_source.iter().map(Csr::nnz).sum();
    let most = memory::limit().map_or(usize::MAX, |_| LARGEST_BOUNDED_RANGE);
    let enough = nnz.div_ceil(2 * threads).clamp(SMALLEST_RANGE, most);
    let (mut ranges, mut first, mut size) = (Vec::new(), 0, 0);
    for (i, &n) in counts.iter().enumerate() {
        assert!(n > 0, "target {i} has no counts");
        size += n as usize;
        if size >= enough || i + 1 == n_targets {
            ranges.push(first..i + 1);
            (first, size) = (i + 1, 0);
        }
    }
    let is = |kind: fn(&Values) -> bool| by_source.iter().all(|shard| kind(&shard.values));
    let are_small = is(|values| matches!(values, Values::Small(_)));
    let are_real = !is(|values| !matches!(values, Values::Real(_)));
    let shards: Vec<Vec<Csr>> = ranges
        .into_par_iter()
        .map(|range| {
            let mut offsets = Vec::with_capacity(range.len() + 1);
            offsets.push(0);
            let mut end = 0;
            for &n in &counts[range.clone()] {
                end += n as usize;
                offsets.push(end);
            }
            let mut columns = vec![0; end];
            let values = if are_small {
                Values::Small(fill(by_source, range.clone(), &offsets, &mut columns))
            } else if are_real {
                Values::Real(fill(by_source, range.clone(), &offsets, &mut columns))
            } else {
                Values::Count(fill(by_source, range.clone(), &offsets, &mut columns))
            };
            cut(range.start, &offsets, &columns, &values, shard_nnz)
        })
        .collect();
    shards.into_iter().flatten().collect()
}

/// Returns the values of the targets in `range`, and writes their sources into `columns`.
fn fill<V: Value + Default>(
    by_source: &[Csr],
    range: Range<usize>,
    offsets: &[usize],
    columns: &mut [u32],
) -> Vec<V> {
    let mut next = offsets.to_vec();
    let mut out = vec![V::default(); columns.len()];
    for shard in by_source {
        memory::wait_for_room();
        let mut unchecked = 0;
        crate::with_values!(shard, values => {
            for (l, j) in shard.rows().enumerate() {
                let span = shard.span(l);
                if unchecked >= UNCHECKED {
                    memory::wait_for_room();
                    unchecked = 0;
                }
                let row = &shard.columns[span.clone()];
                let low = row.partition_point(|&i| (i as usize) < range.start);
                let own = row[low..].iter().zip(&values[span.start + low..]);
                for (&i, &v) in own.take_while(|(i, _)| (**i as usize) < range.end) {
                    unchecked += 1;
                    let at = &mut next[i as usize - range.start];
                    columns[*at] = j as u32;
                    out[*at] = V::from_f64(v.f64());
                    *at += 1;
                }
            }
        });
    }
    out
}

/// Cuts rows into shards of about `shard_nnz` non-zeros, between rows. The first row has number
/// `first`.
fn cut(
    first: usize,
    offsets: &[usize],
    columns: &[u32],
    values: &Values,
    shard_nnz: usize,
) -> Vec<Csr> {
    let n = offsets.len() - 1;
    let mut shards = Vec::new();
    let mut first_row = 0;
    while first_row < n {
        let start = offsets[first_row];
        let mut end_row = first_row + 1;
        while end_row < n && offsets[end_row + 1] - start <= shard_nnz {
            end_row += 1;
        }
        let end = offsets[end_row];
        memory::wait_for_room();
        shards.push(Csr {
            first_row: first + first_row,
            offsets: offsets[first_row..=end_row]
                .iter()
                .map(|o| o - start)
                .collect(),
            columns: columns[start..end].to_vec(),
            values: match values {
                Values::Small(v) => Values::Small(v[start..end].to_vec()),
                Values::Count(v) if v[start..end].iter().all(|&n| n <= 255) => {
                    Values::Small(v[start..end].iter().map(|&n| n as u8).collect())
                }
                Values::Count(v) => Values::Count(v[start..end].to_vec()),
                Values::Real(v) => Values::Real(v[start..end].to_vec()),
            },
        });
        first_row = end_row;
    }
    shards
}

/// The totals N_·j, N_i· and S of a matrix, without its shards. They are equal to those of
/// [`Shards`], to the last bit.
pub(crate) fn totals(n_targets: usize, by_source: &[Csr]) -> (Vec<f64>, Vec<f64>, f64) {
    let n_sources = by_source.last().map_or(0, |shard| shard.rows().end);
    let source_total = row_totals(by_source, n_sources);
    let target_total = column_totals(by_source, n_targets);
    let total = sum(&source_total);
    (source_total, target_total, total)
}

fn sum(totals: &[f64]) -> f64 {
    sum::terms(totals.len(), |j| totals[j])
}

fn column_totals(shards: &[Csr], n: usize) -> Vec<f64> {
    let of = |shards: &[Csr]| {
        let mut totals = vec![0.0; n];
        for shard in shards {
            memory::wait_for_room();
            crate::with_values!(shard, values => {
                for (&i, value) in shard.columns.iter().zip(values) {
                    totals[i as usize] += value.f64();
                }
            });
        }
        totals
    };
    // Sums of integers are exact in any order.
    let is_integral = !shards.iter().any(|s| matches!(s.values, Values::Real(_)));
    let parts = if is_integral {
        rayon::current_num_threads()
    } else {
        1
    };
    let parts = shards
        .par_chunks(shards.len().div_ceil(parts).max(1))
        .map(of);
    let added = parts.reduce_with(|mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    });
    added.unwrap_or_else(|| vec![0.0; n])
}

fn row_totals(shards: &[Csr], n: usize) -> Vec<f64> {
    let totals: Vec<f64> = shards
        .par_iter()
        .inspect(|_| memory::wait_for_room())
        .flat_map_iter(|s| (0..s.n_rows()).map(|l| s.span(l).map(|e| s.values.get(e)).sum::<f64>()))
        .collect();
    assert_eq!(totals.len(), n);
    totals
}

/// Shards of a dense matrix given by columns, `columns[j][i]` = N_ij.
#[cfg(test)]
pub(crate) fn dense(columns: &[Vec<f64>], real: bool, shard_nnz: usize) -> Shards {
    let (mut sources, mut targets, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (j, column) in columns.iter().enumerate() {
        for (i, &v) in column.iter().enumerate().filter(|(_, v)| **v > 0.0) {
            sources.push(j as u32);
            targets.push(i as u32);
            values.push(v);
        }
    }
    let values = if real {
        Values::Real(values)
    } else {
        Values::Count(values.iter().map(|&v| v as u32).collect())
    };
    let (n, m) = (columns.len(), columns[0].len());
    Shards::new(n, m, &sources, &targets, values, shard_nnz)
}

/// Shards of integer counts, each given as (source, target, count).
#[cfg(test)]
pub(crate) fn of_entries(
    n: usize,
    m: usize,
    entries: impl IntoIterator<Item = (u32, u32, u32)>,
    shard_nnz: usize,
) -> Shards {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_unstable();
    let of = |f: fn(&(u32, u32, u32)) -> u32| entries.iter().map(f).collect::<Vec<u32>>();
    let values = Values::Count(of(|e| e.2));
    Shards::new(n, m, &of(|e| e.0), &of(|e| e.1), values, shard_nnz)
}

/// Shards of a matrix of targets × sources.
#[cfg(test)]
pub(crate) fn of_rows(rows: &[Vec<f64>], real: bool, shard_nnz: usize) -> Shards {
    let column = |j| rows.iter().map(|row| row[j]).collect();
    let columns: Vec<Vec<f64>> = (0..rows[0].len()).map(column).collect();
    dense(&columns, real, shard_nnz)
}

#[cfg(test)]
mod tests {
    use super::*;

    // N (targets × sources) = [ 2 0 1 ]
    //                         [ 3 5 0 ]
    fn small(shard_nnz: usize) -> Shards {
        of_rows(
            &[vec![2.0, 0.0, 1.0], vec![3.0, 5.0, 0.0]],
            false,
            shard_nnz,
        )
    }

    #[test]
    fn both_sides_have_the_same_counts() {
        let s = small(100);
        assert_eq!(s.source_total, [5.0, 5.0, 1.0]);
        assert_eq!(s.target_total, [3.0, 8.0]);
        assert_eq!(s.total, 11.0);
        assert_eq!(s.by_target[0].columns, [0, 2, 0, 1]);
        assert_eq!(s.by_target[0].values, Values::Small(vec![2, 1, 3, 5]));
    }

    #[test]
    fn totals_need_no_shards() {
        let check = |s: &Shards| {
            let (sources, targets, total) = totals(s.n_targets, &s.by_source);
            let bits = |sums: &[f64]| sums.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&sources), bits(&s.source_total));
            assert_eq!(bits(&targets), bits(&s.target_total));
            assert_eq!(total.to_bits(), s.total.to_bits());
        };
        check(&small(1));
        // 0.1 + 0.2 + 0.3 = 0.6000000000000001, and 0.3 + 0.2 + 0.1 = 0.6.
        let columns = [vec![0.1, 0.3], vec![0.2, 0.2], vec![0.3, 0.1]];
        check(&dense(&columns, true, 1));
        let (_, targets, _) = totals(2, &dense(&columns, true, 1).by_source);
        assert_eq!(targets, [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]);
    }

    #[test]
    fn small_shards_cut_between_rows_only() {
        let s = small(2);
        let rows: Vec<_> = s.by_source.iter().map(Csr::rows).collect();
        assert_eq!(rows, [0..1, 1..3]);
        let split = small(100).split(2);
        assert_eq!(split.by_source, s.by_source);
        assert_eq!(split.by_target, s.by_target);
        assert_eq!((s.source_total, s.total), (small(100).source_total, 11.0));
    }

    #[test]
    fn an_outline_has_all_but_the_entries() {
        let s = small(2);
        let outline = s.outline();
        assert!(outline.is_outline() && !s.is_outline());
        assert_eq!((outline.nnz(), outline.smallest), (4, 1.0));
        assert_eq!(outline.by_target[0].offsets, s.by_target[0].offsets);
        let mut others = outline.by_target.iter();
        assert!(others.all(|shard| shard.columns.is_empty()));
        let real = of_rows(&[vec![0.2, 0.0, 0.1], vec![0.3, 0.5, 0.0]], true, 2).outline();
        assert_eq!((real.is_integral(), real.smallest), (false, 0.1));
    }
}
