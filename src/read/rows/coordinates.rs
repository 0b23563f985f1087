//! Columns of coordinates → rows of f64.

use crate::error::Error;
use crate::read::rows::doubles::{doubles, warn_if_rounded};
use crate::read::rows::stop::{Dropped, Stop, bug};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// What coordinates are divided by before anything else happens to them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Nothing.
    #[default]
    None,
    /// The standard deviation of each coordinate over all rows of all partitions.
    Standard,
    /// A number for some columns.
    By(BTreeMap<String, f64>),
}

/// The largest magnitude of a number in the unit of the scale, 2⁴⁸⁰. Sums of squares of up to 2⁶³
/// such numbers are in the range of f64.
pub(crate) const LARGEST: f64 = f64::from_bits((1023 + 480) << 52);

/// The coordinates of the rows of a batch.
pub(crate) struct Coordinates {
    /// n × d, row-major, as the columns have them. Nulls are NaN.
    pub(crate) values: Vec<f64>,
    /// Why each row has no coordinates, if it has none.
    pub(crate) faults: Vec<Option<Fault>>,
}

/// Why a row has no coordinates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fault {
    /// What is wrong.
    pub(crate) kind: FaultKind,
    /// The place of the column.
    pub(crate) column: usize,
    /// The number; NaN for a null.
    pub(crate) value: f64,
}

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Null,
    Nan,
    Infinite,
    Large,
}

impl FaultKind {
    /// The adjective for a number with this fault.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FaultKind::Null => "null",
            FaultKind::Nan => "NaN",
            FaultKind::Infinite => "infinite",
            FaultKind::Large => "too large",
        }
    }

    fn of(value: f64, limit: f64) -> Option<FaultKind> {
        match value {
            x if x.abs() <= limit => None,
            x if x.is_nan() => Some(FaultKind::Nan),
            x if x.is_infinite() => Some(FaultKind::Infinite),
            _ => Some(FaultKind::Large),
        }
    }
}

/// A number that is too large, or far from all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LargeValue {
    /// The number.
    pub(crate) value: f64,
    /// Its column.
    pub(crate) column: String,
    /// The key of its row.
    pub(crate) key: String,
}

impl LargeValue {
    /// Keeps the larger one of two values, the one with the first key if they are equal.
    pub(crate) fn keep(largest: &mut Option<LargeValue>, other: LargeValue) {
        let is_larger = |own: &LargeValue| {
            let by_size = own.value.abs().total_cmp(&other.value.abs());
            by_size.then_with(|| other.key.cmp(&own.key)).is_ge()
        };
        if !largest.as_ref().is_some_and(is_larger) {
            *largest = Some(other);
        }
    }
}

/// Values at more than this multiple of the distance of the quartiles are far.
const FAR: f64 = 1e6;

/// Where most values of a column are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Middle {
    median: f64,
    /// The values between which half of the rows are.
    pub(crate) quartiles: [f64; 2],
}

impl Middle {
    /// The middle of some values. None if half of them are equal, so that nothing is far.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Middle> {
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let quartiles = [values[last / 4], values[last - last / 4]];
        (quartiles[0] < quartiles[1]).then(|| Middle {
            median: values[last / 2],
            quartiles,
        })
    }

    /// Whether a value is far from the middle.
    pub(crate) fn is_far(&self, value: f64) -> bool {
        let [low, high] = self.quartiles;
        // Differences of values near the end of the range may exceed it.
        (value / FAR - self.median / FAR).abs() > high - low
    }

    /// What is said of a value that is far.
    pub(crate) fn said_of(&self, value: &LargeValue) -> String {
        let [low, high] = self.quartiles;
        format!(
            "{value}, which is large against the others: half of the rows are from {low:e} to {high:e}"
        )
    }
}

impl Display for LargeValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let LargeValue { value, column, key } = self;
        write!(f, "`{column}` of row {key} is {value:e}")
    }
}

/// Reads coordinates of columns of numbers or of one column of lists. `dimension` is that of
/// earlier rows, if there are any; `limit` is the largest magnitude of the numbers of a column;
/// `place` describes a row for messages.
///
/// # Errors
/// Lists of different lengths.
pub(crate) fn coordinates(
    fields: &[Field],
    columns: &[ArrayRef],
    dimension: &mut Option<usize>,
    limit: impl Fn(usize) -> f64,
    place: impl Fn(usize) -> String,
) -> Result<Coordinates, Stop> {
    if let [field] = fields
        && field.data_type().is_nested()
    {
        return lists(field, &columns[0], dimension, limit(0), place);
    }
    let (n, d) = (columns[0].len(), columns.len());
    *dimension = Some(d);
    let mut values = vec![0.0; n * d];
    let mut faults = vec![None; n];
    for (k, column) in columns.iter().enumerate() {
        let column = doubles(column, fields[k].name()).map_err(bug)?;
        let limit = limit(k);
        let fault = |kind, value| Fault {
            kind,
            column: k,
            value,
        };
        for (row, &value) in column.values().iter().enumerate() {
            values[row * d + k] = value;
            if let Some(kind) = FaultKind::of(value, limit) {
                faults[row].get_or_insert(fault(kind, value));
            }
        }
        if column.null_count() > 0 {
            for row in (0..n).filter(|&row| column.is_null(row)) {
                values[row * d + k] = f64::NAN;
                faults[row] = Some(fault(FaultKind::Null, f64::NAN));
            }
        }
    }
    Ok(Coordinates { values, faults })
}

fn lists(
    field: &Field,
    column: &ArrayRef,
    dimension: &mut Option<usize>,
    limit: f64,
    place: impl Fn(usize) -> String,
) -> Result<Coordinates, Stop> {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let of_doubles = DataType::LargeList(item);
    warn_if_rounded(column, field.name(), &of_doubles).map_err(bug)?;
    let column = cast(column, &of_doubles).map_err(bug)?;
    let lists = column.as_list::<i64>();
    let numbers: &Float64Array = lists.values().as_primitive::<Float64Type>();
    let n = lists.len();
    let first = (0..n).find(|&row| lists.is_valid(row));
    if let Some(row) = first {
        dimension.get_or_insert(lists.value_length(row) as usize);
    }
    let d = dimension.unwrap_or(0);
    let (mut values, mut faults) = (vec![0.0; n * d], vec![None; n]);
    for row in 0..n {
        let out = &mut values[row * d..][..d];
        let fault = |kind, value| Fault {
            kind,
            column: 0,
            value,
        };
        if lists.is_null(row) {
            out.fill(f64::NAN);
            faults[row] = Some(fault(FaultKind::Null, f64::NAN));
            continue;
        }
        let start = lists.value_offsets()[row] as usize;
        let length = lists.value_length(row) as usize;
        if d != length {
            let name = field.name();
            return Err(Stop::Failed(Error::input(format!(
                "column `{name}` has lists of different lengths: {d} numbers in the first row and {length} for {}; all rows need lists of one length",
                place(row)
            ))));
        }
        let own = start..start + length;
        out.copy_from_slice(&numbers.values()[own.clone()]);
        let mut has_null = false;
        if numbers.null_count() > 0 {
            for (out, at) in out.iter_mut().zip(own) {
                if numbers.is_null(at) {
                    (*out, has_null) = (f64::NAN, true);
                }
            }
        }
        faults[row] = if has_null {
            Some(fault(FaultKind::Null, f64::NAN))
        } else {
            out.iter()
                .find_map(|&x| Some(fault(FaultKind::of(x, limit)?, x)))
        };
    }
    Ok(Coordinates { values, faults })
}

/// Removes the rows with a fault and counts them by reason. Returns the indices of the others.
pub(crate) fn sound(faults: &[Option<Fault>], dropped: &mut Dropped) -> Vec<u32> {
    let mut kept = Vec::with_capacity(faults.len());
    for (row, fault) in faults.iter().enumerate() {
        match fault {
            Some(fault) => dropped.add(format!("{} coordinate", fault.kind.name()), 1),
            None => kept.push(row as u32),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_far_from_most_others() {
        let middle = |values: &[f64]| Middle::of(values.to_vec());
        let around = middle(&[3.0, -1.0, 0.0, 1.0, 2.0, 1e20, 0.5, 1.5]).expect("a middle");
        assert_eq!(around.quartiles, [0.0, 3.0]);
        assert!(around.is_far(1e20) && around.is_far(-1.7e308) && !around.is_far(1e6));
        let wide = middle(&[-1e150, 1e150, -1.7e308, 1.7e308]).expect("a middle");
        assert!(!wide.is_far(1.7e308));
        let mut equal = [0.0; 8];
        equal[3] = 1e9;
        assert_eq!(middle(&equal), None);
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn the_largest_value_is_kept_in_any_order() {
        let value = |value: f64, key: &str| LargeValue {
            value,
            column: "x".into(),
            key: key.into(),
        };
        let all = [value(1e200, "b"), value(-1e300, "c"), value(1e300, "a")];
        let kept = |order: [usize; 3]| {
            let mut largest = None;
            for at in order {
                LargeValue::keep(&mut largest, all[at].clone());
            }
            largest
        };
        assert_eq!(kept([0, 1, 2]), Some(value(1e300, "a")));
        assert_eq!(kept([2, 1, 0]), kept([1, 2, 0]));
    }
}
