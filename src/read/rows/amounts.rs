//! Columns of counts or weights → the amount that each row contributes.

use crate::error::Error;
use crate::read::counts::counted::LARGEST_TOTAL;
use crate::read::rows::doubles::doubles;
use crate::read::rows::stop::{Dropped, Stop, bug};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{cast, min};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};

/// The sum of the weights of a model is below 2 to this power. Log-likelihoods may be a thousand
/// times as large, and f64 ends at 2^1024.
pub(crate) const LARGEST_SUM: i32 = 1010;

/// The sum of the weights of a model is at most 2 to this power times the smallest weight, so that
/// f64 does not round products of their shares to 0.
pub(crate) const WIDEST: i32 = 256;

/// Counts of rows; 0 for rows that do not count. `place` describes a row for messages.
///
/// # Errors
/// A negative count.
pub(crate) fn counts(
    column: &ArrayRef,
    name: &str,
    place: impl Fn(usize) -> String,
    dropped: &mut Dropped,
) -> Result<Vec<u64>, Stop> {
    if let Ok(signed) = cast(column, &DataType::Int64)
        && let signed = signed.as_primitive::<Int64Type>()
        && min(signed).is_some_and(|least| least < 0)
        && let Some((at, n)) = negative(signed)
    {
        return Err(Stop::Failed(Error::input(format!(
            "`{name}` = {n} for {} is negative; counts are 0 or more",
            place(at)
        ))));
    }
    let counts = cast(column, &DataType::UInt64).map_err(bug)?;
    let counts = counts.as_primitive::<UInt64Type>();
    dropped.add("null count", counts.null_count() as u64);
    // Partitions with totals beyond 2^53 are refused later; how far beyond does not matter.
    let bounded = |n: u64| n.min(LARGEST_TOTAL + 1);
    let counts: Vec<u64> = if counts.null_count() == 0 {
        counts.values().iter().map(|&n| bounded(n)).collect()
    } else {
        counts.iter().map(|n| bounded(n.unwrap_or(0))).collect()
    };
    dropped.add(
        "count of zero",
        counts.iter().filter(|&&n| n == 0).count() as u64 - column.null_count() as u64,
    );
    Ok(counts)
}

/// The first negative value and its row.
fn negative(column: &Int64Array) -> Option<(usize, i64)> {
    let values = column.iter().enumerate();
    let mut values = values.filter_map(|(at, n)| Some((at, n?)));
    values.find(|&(_, n)| n < 0)
}

/// Weights of rows; 0 for rows that do not count. `place` describes a row for messages.
///
/// # Errors
/// A negative or infinite weight.
pub(crate) fn weights(
    column: &ArrayRef,
    name: &str,
    place: impl Fn(usize) -> String,
    dropped: &mut Dropped,
) -> Result<Vec<f64>, Stop> {
    let given = doubles(column, name).map_err(bug)?;
    let mut weights = Vec::with_capacity(given.len());
    for (at, weight) in given.iter().enumerate() {
        let (weight, reason) = match weight {
            None => (0.0, Some("null weight")),
            Some(w) if w.is_nan() => (0.0, Some("NaN weight")),
            Some(w) if w < 0.0 || w.is_infinite() => {
                return Err(Stop::Failed(Error::input(format!(
                    "`{name}` = {w} for {} is not a weight; weights are finite and 0 or more",
                    place(at)
                ))));
            }
            Some(0.0) => (0.0, Some("weight of zero")),
            Some(w) => (w, None),
        };
        if let Some(reason) = reason {
            dropped.add(reason, 1);
        }
        weights.push(weight);
    }
    Ok(weights)
}
