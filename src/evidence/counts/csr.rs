//! Compressed sparse rows: a shard of a count matrix, and its products with blocks of vectors.

use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::kernel::Shard;
use crate::math::scale::times_power;
use multiversion::multiversion;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The values of a shard: exact counts in as few bytes as they need, because memory bandwidth
/// limits passes, or weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Counts below 256.
    Small(Vec<u8>),
    /// Counts below 2³².
    Count(Vec<u32>),
    /// Weights, or counts from 2³² on.
    Real(Vec<f64>),
}

/// A number type of a count matrix. Kernels are compiled once for each.
pub(crate) trait Value: Copy + Send + Sync + 'static {
    /// The value as an f64, exactly.
    fn f64(self) -> f64;
    /// The nearest number to `x`.
    fn from_f64(x: f64) -> Self;
}

macro_rules! value {
    ($($type:ty),*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn from_f64(x: f64) -> $type {
                x as $type
            }
        }
    )*};
}

value!(u8, u32, f64);

impl Default for Values {
    fn default() -> Values {
        Values::Small(Vec::new())
    }
}

impl Values {
    /// Integers in as few bytes as they need.
    pub(crate) fn of_integers(counts: Vec<f64>) -> Values {
        let top = counts.iter().copied().fold(0.0, f64::max);
        if top <= f64::from(u8::MAX) {
            Values::Small(counts.iter().map(|&n| n as u8).collect())
        } else if top <= f64::from(u32::MAX) {
            Values::Count(counts.iter().map(|&n| n as u32).collect())
        } else {
            Values::Real(counts)
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::Small(v) => v.len(),
            Values::Count(v) => v.len(),
            Values::Real(v) => v.len(),
        }
    }

    /// The value at an index.
    pub(crate) fn get(&self, at: usize) -> f64 {
        match self {
            Values::Small(v) => v[at].f64(),
            Values::Count(v) => v[at].f64(),
            Values::Real(v) => v[at],
        }
    }
}

impl Values {
    /// Every value divided by the same number.
    pub(crate) fn divided(&self, by: f64) -> Values {
        Values::Real((0..self.len()).map(|e| self.get(e) / by).collect())
    }

    /// Every value multiplied by 2^`n`.
    pub(crate) fn scaled(&self, n: i32) -> Values {
        let values = (0..self.len()).map(|e| times_power(self.get(e), n));
        Values::Real(values.collect())
    }

    /// The values at some indices, in their order.
    pub(crate) fn at(&self, entries: &[usize]) -> Values {
        match self {
            Values::Small(v) => Values::Small(entries.iter().map(|&e| v[e]).collect()),
            Values::Count(v) => Values::Count(entries.iter().map(|&e| v[e]).collect()),
            Values::Real(v) => Values::Real(entries.iter().map(|&e| v[e]).collect()),
        }
    }
}

/// Calls `$body` with `$values` bound to the slice of values in its type, so that the inner loop of
/// a kernel has no branch on the type.
#[macro_export]
macro_rules! with_values {
    ($csr:expr, $values:ident => $body:expr) => {
        match &$csr.values {
            $crate::evidence::counts::csr::Values::Small($values) => $body,
            $crate::evidence::counts::csr::Values::Count($values) => $body,
            $crate::evidence::counts::csr::Values::Real($values) => $body,
        }
    };
}

/// Rows of a sparse matrix, from `first_row` on. Row `first_row + l` has the entries
/// `offsets[l]..offsets[l + 1]` of `columns` and `values`, by ascending column; `offsets[0] = 0`.
/// Every stored value is positive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Csr {
    /// The index of the first row in the whole matrix.
    pub first_row: usize,
    /// n + 1 offsets for n rows.
    pub offsets: Vec<usize>,
    /// The column of every entry.
    pub columns: Vec<u32>,
    /// The value of every entry.
    pub values: Values,
}

impl Shard for Csr {
    type Totals<'a> = Totals<'a>;

    fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.n_rows()
    }

    fn entries(&self) -> usize {
        self.nnz()
    }
}

impl Csr {
    /// The number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The indices of the rows in the whole matrix.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.n_rows()
    }

    /// The number of non-zeros.
    pub(crate) fn nnz(&self) -> usize {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// The rows without their entries: only the number of entries and the type of values remain.
    pub(crate) fn outline(&self) -> Csr {
        Csr {
            first_row: self.first_row,
            offsets: self.offsets.clone(),
            columns: Vec::new(),
            values: match self.values {
                Values::Small(_) => Values::Small(Vec::new()),
                Values::Count(_) => Values::Count(Vec::new()),
                Values::Real(_) => Values::Real(Vec::new()),
            },
        }
    }

    /// Whether the entries are on other machines.
    pub(crate) fn is_outline(&self) -> bool {
        self.columns.len() < self.nnz()
    }

    /// The entries of local row `l` in `columns` and `values`.
    #[inline(always)]
    pub(crate) fn span(&self, l: usize) -> Range<usize> {
        self.offsets[l]..self.offsets[l + 1]
    }

    /// A local row as a matrix with one row.
    pub(crate) fn row(&self, l: usize) -> Csr {
        let span = self.span(l);
        Csr {
            first_row: 0,
            offsets: vec![0, span.len()],
            columns: self.columns[span.clone()].to_vec(),
            values: self.values.at(&span.collect::<Vec<_>>()),
        }
    }

    /// The local rows that are kept, as rows from `first_row` on, without the columns for which
    /// `number` has no new number. New numbers ascend as the old ones do. Also returns the indices
    /// of the remaining entries.
    pub(crate) fn part(
        &self,
        first_row: usize,
        keep: impl Fn(usize) -> bool,
        number: impl Fn(u32) -> Option<u32>,
    ) -> (Csr, Vec<usize>) {
        let (mut offsets, mut columns, mut entries) = (vec![0], Vec::new(), Vec::new());
        for l in (0..self.n_rows()).filter(|&l| keep(l)) {
            for e in self.span(l) {
                if let Some(column) = number(self.columns[e]) {
                    columns.push(column);
                    entries.push(e);
                }
            }
            offsets.push(columns.len());
        }
        let part = Csr {
            first_row,
            offsets,
            columns,
            values: self.values.at(&entries),
        };
        (part, entries)
    }

    /// out (`n_rows × width`, row-major) = rows of this shard · x (columns × `width`, row-major).
    ///
    /// An output number is the sum of two sums: that of the terms at even entries of the row, and
    /// that of the terms at odd entries, each in ascending column order. Rounding thus depends on
    /// the row alone. The product is the fastest if `x` starts on a cache line.
    pub(crate) fn multiply(&self, x: &[f64], width: usize, out: &mut [f64]) {
        assert_eq!(out.len(), self.n_rows() * width, "one output row per row");
        with_values!(self, values => multiply(self, values, x, width, out));
    }
}

/// Size of `x` in bytes from which most reads miss the caches of a core, so that prefetching pays.
const FAR: usize = 8 << 20;

/// Number of non-zeros between a prefetch and its use.
const AHEAD: usize = 96;

/// Cuts the width into strips that the compiler unrolls, so that the sums of a row stay in
/// registers.
fn multiply<V: Value>(csr: &Csr, values: &[V], x: &[f64], width: usize, out: &mut [f64]) {
    let is_far = size_of_val(x) > FAR;
    let mut at = 0;
    while at < width {
        at += match width - at {
            0 => unreachable!("the loop ends at the width"),
            1 => strip::<1, V>(csr, values, x, width, at, out),
            2 if width == 2 && is_far => whole::<2, true, V>(csr, values, x, out),
            2 if width == 2 => whole::<2, false, V>(csr, values, x, out),
            2 => strip::<2, V>(csr, values, x, width, at, out),
            3 => strip::<3, V>(csr, values, x, width, at, out),
            4 if width == 4 && is_far => whole::<4, true, V>(csr, values, x, out),
            4 if width == 4 => whole::<4, false, V>(csr, values, x, out),
            4 | 5 => strip::<4, V>(csr, values, x, width, at, out),
            6 | 7 => strip::<6, V>(csr, values, x, width, at, out),
            8 | 9 => strip::<8, V>(csr, values, x, width, at, out),
            10 | 11 => strip::<10, V>(csr, values, x, width, at, out),
            12..16 => strip::<12, V>(csr, values, x, width, at, out),
            _ => strip::<16, V>(csr, values, x, width, at, out),
        };
    }
}

/// Computes columns `at .. at + W` of the product. Returns `W`.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx2+bmi2",
    "x86_64+avx2+bmi2"
))]
fn strip<const W: usize, V: Value>(
    csr: &Csr,
    values: &[V],
    x: &[f64],
    width: usize,
    at: usize,
    out: &mut [f64],
) -> usize {
    for (ends, out) in csr.offsets.windows(2).zip(out.chunks_exact_mut(width)) {
        let span = ends[0]..ends[1];
        let sums = row(&csr.columns[span.clone()], &values[span], |column| {
            let x = x[column as usize * width + at..].first_chunk::<W>();
            x.expect("a row of x is wider than its last strip")
        });
        out[at..at + W].copy_from_slice(&sums);
    }
    W
}

/// Computes the product for an `x` of exactly `W` columns, which saves one check per non-zero.
/// Returns `W`.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx2+bmi2",
    "x86_64+avx2+bmi2"
))]
fn whole<const W: usize, const IS_FAR: bool, V: Value>(
    csr: &Csr,
    values: &[V],
    x: &[f64],
    out: &mut [f64],
) -> usize {
    let x = x.as_chunks::<W>().0;
    let ends = csr.offsets.windows(2);
    for (ends, out) in ends.zip(out.as_chunks_mut::<W>().0) {
        let span = ends[0]..ends[1];
        if IS_FAR {
            let ahead = span.start + AHEAD..span.end + AHEAD;
            for &column in csr.columns.get(ahead).unwrap_or_default() {
                prefetch(x.as_ptr().wrapping_add(column as usize));
            }
        }
        *out = row(&csr.columns[span.clone()], &values[span], |column| {
            &x[column as usize]
        });
    }
    W
}

/// The sums of one row; `x(column)` is a row of the dense matrix. Two independent sums hide the
/// latency of an addition.
#[inline(always)]
fn row<'a, const W: usize, V: Value>(
    columns: &[u32],
    values: &[V],
    x: impl Fn(u32) -> &'a [f64; W],
) -> [f64; W] {
    let (mut even, mut odd) = ([0.0; W], [0.0; W]);
    let (pairs, last) = columns.as_chunks::<2>();
    let (value_pairs, last_value) = values.as_chunks::<2>();
    for (columns, values) in pairs.iter().zip(value_pairs) {
        add(&mut even, values[0], x(columns[0]));
        add(&mut odd, values[1], x(columns[1]));
    }
    for (&column, &value) in last.iter().zip(last_value) {
        add(&mut even, value, x(column));
    }
    std::array::from_fn(|k| even[k] + odd[k])
}

#[inline(always)]
fn add<const W: usize, V: Value>(sums: &mut [f64; W], value: V, x: &[f64; W]) {
    let value = value.f64();
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum += value * x;
    }
}

/// Prefetches the cache line of an address that will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect and never faults, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::products::Multiply;
    use crate::evidence::pass::kernel::Kernel;
    use std::borrow::Cow;

    fn small(values: Values) -> Csr {
        Csr {
            first_row: 0,
            offsets: vec![0, 2, 4],
            columns: vec![0, 2, 0, 1],
            values,
        }
    }

    // [ 2 0 1 ]   [ 1 ]   [ 5 ]             [ 10 ]
    // [ 3 5 0 ] · [ 2 ] = [ 13 ], scaled by [  2 ]: [ 50 ], [ 26 ].
    //             [ 3 ]
    #[test]
    fn a_product_that_lost_an_entry_is_not_conserved() {
        let csr = small(Values::Small(vec![2, 1, 3, 5]));
        let kernel = Multiply {
            x: Cow::from(vec![1.0, 2.0, 3.0]),
            width: 1,
            scale: Cow::from(vec![10.0, 2.0]),
        };
        let totals = Totals {
            rows: &[3.0, 8.0],
            columns: &[5.0, 5.0, 1.0],
            are_exact: true,
        };
        let mut out = [f64::NAN; 2];
        kernel.apply(&csr, &mut out);
        assert_eq!(out, [50.0, 26.0]);
        assert_eq!(kernel.conserved(&totals, &out), Ok(()));
        let message = kernel.conserved(&totals, &[50.0, 20.0]);
        assert_eq!(
            message.expect_err("five are lost"),
            "the sum of column 0 is 15.0 in place of 18.0"
        );
        let outline = csr.outline();
        assert!(outline.is_outline() && !csr.is_outline());
        assert_eq!((outline.nnz(), outline.rows()), (4, 0..2));
    }

    // [ 2 0 1 ]   [ 1  10 ]   [  5  50 ]
    // [ 3 5 0 ] · [ 2  20 ] = [ 13 130 ], with further columns 100, 1000, … of x alike.
    #[test]
    fn every_width_gives_the_product() {
        for values in [
            Values::Small(vec![2, 1, 3, 5]),
            Values::Count(vec![2, 1, 3, 5]),
            Values::Real(vec![2.0, 1.0, 3.0, 5.0]),
        ] {
            let csr = small(values);
            for width in 1..40 {
                let scale = |k: usize| 10f64.powi((k % 20) as i32);
                let x: Vec<f64> = (0..3 * width)
                    .map(|at| (at / width + 1) as f64 * scale(at % width))
                    .collect();
                let mut out = vec![f64::NAN; 2 * width];
                csr.multiply(&x, width, &mut out);
                for k in 0..width {
                    assert_eq!(out[k], 5.0 * scale(k));
                    assert_eq!(out[width + k], 13.0 * scale(k));
                }
            }
        }
    }
}
