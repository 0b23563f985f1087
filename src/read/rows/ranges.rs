//! Ranges of equal keys in sorted batches.

use crate::error::Result;
use crate::read::rows::keys::Keys;
use crate::read::rows::states::nan_rows;
use crate::read::rows::stop::{Dropped, Stop, bug};
use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::{and_not, filter, is_not_null, partition, take_arrays};
use std::ops::Range;

/// Ranges of consecutive rows that are equal in all given columns.
pub(crate) fn ranges(columns: &[ArrayRef], rows: usize) -> Result<Vec<Range<usize>>> {
    if columns.is_empty() {
        return Ok(std::iter::once(0..rows).collect());
    }
    Ok(partition(columns).map_err(bug)?.ranges())
}

/// The partition of each of these ranges of rows, by the keys of its first row.
pub(crate) fn partition_ids(
    partitions: &mut Option<Keys>,
    columns: &[ArrayRef],
    ranges: &[Range<usize>],
) -> Result<Vec<u32>> {
    let Some(keys) = partitions else {
        return Ok(vec![0; ranges.len()]);
    };
    let mut ids = Vec::with_capacity(ranges.len());
    keys.intern(&first_rows(columns, ranges)?, &mut ids)?;
    Ok(ids)
}

/// The partition of every row, from the partition of each range.
pub(crate) fn spread(ranges: &[Range<usize>], partitions: &[u32]) -> Vec<u32> {
    ranges
        .iter()
        .zip(partitions)
        .flat_map(|(range, &partition)| std::iter::repeat_n(partition, range.len()))
        .collect()
}

/// Removes the rows in which one of the first `n` columns is null or NaN. `kind` names a column in
/// the reasons of `dropped`.
pub(crate) fn drop_null_rows(
    columns: &mut [ArrayRef],
    n: usize,
    kind: impl Fn(usize) -> &'static str,
    dropped: &mut Dropped,
) -> Result<(), Stop> {
    for at in 0..n {
        let column = &columns[at];
        let nulls = column.null_count();
        let nan = if column.data_type().is_floating() {
            Some(nan_rows(column)?).filter(|nan| nan.true_count() > 0)
        } else {
            None
        };
        let mut keep: BooleanArray = match (nulls, &nan) {
            (0, None) => continue,
            _ => is_not_null(column).map_err(bug)?,
        };
        if nulls > 0 {
            dropped.add(format!("null {}", kind(at)), nulls as u64);
        }
        if let Some(nan) = nan {
            dropped.add(format!("NaN {}", kind(at)), nan.true_count() as u64);
            keep = and_not(&keep, &nan).map_err(bug)?;
        }
        for column in columns.iter_mut() {
            *column = filter(column, &keep).map_err(bug)?;
        }
    }
    Ok(())
}

/// The first row of each range.
pub(crate) fn first_rows(columns: &[ArrayRef], ranges: &[Range<usize>]) -> Result<Vec<ArrayRef>> {
    let starts = UInt32Array::from_iter_values(ranges.iter().map(|r| r.start as u32));
    take_arrays(columns, &starts, None).map_err(bug)
}
