//! Columns of numbers → the nearest doubles, and whether another type holds every value of a
//! column.
//!
//! Coordinates and weights are doubles: a value between two doubles becomes the nearest one, and
//! one warning per column says so. Keys and times are never rounded.

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, GenericListArray, OffsetSizeTrait,
    RecordBatch, StructArray,
};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// All integers up to this magnitude are doubles.
pub(crate) const EXACT_INTEGER: u64 = 1 << 53;

/// Decimals with at most this number of digits remain different as doubles.
const EXACT_DIGITS: u8 = 15;

/// A column of numbers as the nearest doubles. `name` is that of the column.
///
/// # Errors
/// A column that is not numeric.
pub(crate) fn doubles(column: &ArrayRef, name: &str) -> Result<Float64Array, ArrowError> {
    warn_if_rounded(column, name, &DataType::Float64)?;
    let doubles = cast(column, &DataType::Float64)?;
    Ok(doubles.as_primitive::<Float64Type>().clone())
}

/// A column of a query in the type in which it is read. Only coordinates are read as doubles that
/// may be rounded.
///
/// # Errors
/// A column that cannot be converted.
pub(crate) fn typed(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    if field.data_type().is_floating() {
        warn_if_rounded(column, field.name(), field.data_type())?;
    }
    cast(column, field.data_type())
}

/// The columns of a batch in the types in which they are read.
///
/// # Errors
/// A column that cannot be converted.
pub(crate) fn typed_columns<'a>(
    batch: &RecordBatch,
    fields: impl IntoIterator<Item = &'a Field>,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let columns = batch.columns().iter().zip(fields);
    columns
        .map(|(column, field)| typed(column, field))
        .collect()
}

/// Warns once per column if a value becomes another one when the column is converted.
///
/// # Errors
/// A column that cannot be converted.
pub(crate) fn warn_if_rounded(
    column: &ArrayRef,
    name: &str,
    to: &DataType,
) -> Result<(), ArrowError> {
    if let Some(row) = first_changed(column, to)? {
        warn_of_rounding(name, &array_value_to_string(column, row)?);
    }
    Ok(())
}

/// Warns that the value of a column becomes the nearest double, once per column.
pub(crate) fn warn_of_rounding(name: &str, value: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.insert(name.to_string()) {
        let column = name.escape_debug();
        tracing::warn!(
            "column `{column}` holds numbers that are no doubles, such as {value}: coordinates and weights become the nearest double"
        );
    }
}

/// Whether a type holds all values of another one.
pub(crate) fn holds(to: &DataType, from: &DataType) -> bool {
    use DataType::{
        Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Dictionary, Duration,
        FixedSizeList, Float16, Float32, Float64, Int8, Int16, LargeList, List, Struct, Timestamp,
        UInt8, UInt16,
    };
    match (from, to) {
        (Dictionary(_, value), _) => holds(to, value),
        (Int8 | UInt8, Float16) | (Int8 | UInt8 | Int16 | UInt16, Float32) => true,
        (_, Float16 | Float32) if from.is_integer() => false,
        (_, Float64) if from.is_integer() => from.primitive_width().is_some_and(|bytes| bytes < 8),
        (
            Decimal32(digits, _)
            | Decimal64(digits, _)
            | Decimal128(digits, _)
            | Decimal256(digits, _),
            Float64,
        ) => *digits <= EXACT_DIGITS,
        (Timestamp(one, _), Timestamp(other, _)) | (Duration(one), Duration(other)) => one == other,
        (Date32 | Date64, Timestamp(..)) => false,
        (
            List(one) | LargeList(one) | FixedSizeList(one, _),
            List(other) | LargeList(other) | FixedSizeList(other, _),
        ) => holds(other.data_type(), one.data_type()),
        (Struct(fields), Struct(others)) => fields
            .iter()
            .zip(others.iter())
            .all(|(one, other)| holds(other.data_type(), one.data_type())),
        _ => true,
    }
}

/// The first row whose value another type does not hold. Decimals are compared by their digits: the
/// double 0.1 stands for the decimal 0.1.
///
/// # Errors
/// Types that cannot be converted.
pub(crate) fn first_changed(column: &ArrayRef, to: &DataType) -> Result<Option<usize>, ArrowError> {
    let from = column.data_type();
    if holds(to, from) {
        return Ok(None);
    }
    match (from, to) {
        (DataType::Int64, DataType::Float64)
            if column
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .all(|n| n.unsigned_abs() <= EXACT_INTEGER) =>
        {
            Ok(None)
        }
        (
            DataType::List(_),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
        ) => in_lists(column.as_list::<i32>(), item.data_type()),
        (
            DataType::LargeList(_),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
        ) => in_lists(column.as_list::<i64>(), item.data_type()),
        (
            DataType::FixedSizeList(..),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
        ) => in_equal_lists(column.as_fixed_size_list(), item.data_type()),
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let objects: &StructArray = column.as_struct();
            let mut first: Option<usize> = None;
            for (part, field) in objects.columns().iter().zip(fields) {
                let found = first_changed(part, field.data_type())?;
                first = first.into_iter().chain(found).min();
            }
            Ok(first)
        }
        (DataType::Dictionary(_, value), _) => first_changed(&cast(column, value)?, to),
        (decimal, DataType::Float64) if !decimal.is_integer() => in_decimals(column),
        _ => in_values(column, to),
    }
}

/// Converts there and back.
fn in_values(column: &ArrayRef, to: &DataType) -> Result<Option<usize>, ArrowError> {
    let lossy = CastOptions {
        safe: true,
        ..Default::default()
    };
    let there = cast_with_options(column, to, &lossy)?;
    let back = cast_with_options(&there, column.data_type(), &lossy)?;
    let differ = distinct(&back, column)?;
    Ok(differ.values().set_indices().next())
}

fn in_decimals(column: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    for row in (0..column.len()).filter(|&row| column.is_valid(row)) {
        let text = array_value_to_string(column, row)?;
        if !is_double(&text) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

fn in_lists<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    item: &DataType,
) -> Result<Option<usize>, ArrowError> {
    let ends = lists.value_offsets();
    let (start, end) = match (ends.first(), ends.last()) {
        (Some(start), Some(end)) => (start.as_usize(), end.as_usize()),
        _ => return Ok(None),
    };
    let values = lists.values().slice(start, end - start);
    let found = first_changed(&values, item)?;
    // The list that holds the value is the last one that starts before or at it.
    Ok(found.map(|at| ends[1..].partition_point(|end| end.as_usize() <= start + at)))
}

fn in_equal_lists(
    lists: &FixedSizeListArray,
    item: &DataType,
) -> Result<Option<usize>, ArrowError> {
    let each = lists.value_length().max(1) as usize;
    Ok(first_changed(lists.values(), item)?.map(|at| at / each))
}

/// Whether the double nearest to a decimal text stands for it: it is equal, or has the same digits.
pub(crate) fn is_double(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return is_whole_double(whole);
    }
    let digits = whole.len() + fraction.len();
    digits <= usize::from(EXACT_DIGITS)
        || text
            .parse::<f64>()
            .is_ok_and(|x| x.to_string() == format!("{whole}.{fraction}"))
}

/// Whether a whole number is a double.
pub(crate) fn is_whole_double(digits: &str) -> bool {
    if digits.trim_start_matches('-').len() <= usize::from(EXACT_DIGITS) {
        return true;
    }
    let nearest = digits.parse::<f64>();
    // The exact digits of a double, which are zeros after the shortest ones in plain formatting.
    nearest.is_ok_and(|x| format!("{x:.0}") == digits.trim_start_matches('+'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Decimal128Array, Int64Array, ListArray, TimestampMicrosecondArray,
        TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::TimeUnit;

    #[test]
    fn the_first_value_that_a_type_does_not_hold_is_found() {
        let double = &DataType::Float64;
        let ns = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let us = DataType::Timestamp(TimeUnit::Microsecond, None);
        let list = DataType::List(Arc::new(Field::new("item", DataType::Float64, true)));
        let decimals = |values: Vec<i128>, scale| -> ArrayRef {
            let values = Decimal128Array::from(values).with_precision_and_scale(38, scale);
            Arc::new(values.expect("few digits"))
        };
        let integers =
            |values: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let lists = |lists: Vec<Option<Vec<i64>>>| -> ArrayRef {
            let lists = lists.into_iter();
            let lists = lists.map(|list| list.map(|l| l.into_iter().map(Some).collect::<Vec<_>>()));
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
        };
        let cases: [(ArrayRef, &DataType, Option<usize>); 13] = [
            (
                integers(vec![Some(1 << 53), Some(-(1 << 53)), Some(i64::MIN)]),
                double,
                None,
            ),
            (
                integers(vec![None, Some(1), Some((1 << 53) + 1)]),
                double,
                Some(2),
            ),
            // The cast back saturates.
            (integers(vec![Some(i64::MAX)]), double, Some(0)),
            (
                Arc::new(UInt64Array::from(vec![1 << 63, u64::MAX])),
                double,
                Some(1),
            ),
            (decimals(vec![1, 3, 123_456_789], 6), double, None),
            (
                decimals(vec![1, 123_456_789_012_345_678_901], 18),
                double,
                Some(1),
            ),
            (decimals(vec![1 << 60, (1 << 60) + 1], 0), double, Some(1)),
            (
                lists(vec![Some(vec![1, 2]), None, Some(vec![3, (1 << 53) + 1])]),
                &list,
                Some(2),
            ),
            (lists(vec![Some(vec![1, 2]), Some(vec![])]), &list, None),
            (
                lists(vec![Some(vec![1]), Some(vec![(1 << 53) + 1])]).slice(1, 1),
                &list,
                Some(0),
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![
                    0,
                    32_503_680_000_000_000,
                ])),
                &ns,
                Some(1),
            ),
            (
                Arc::new(TimestampNanosecondArray::from(vec![1000, 1001])),
                &us,
                Some(1),
            ),
            (
                Arc::new(TimestampNanosecondArray::from(vec![1000, -2000])),
                &us,
                None,
            ),
        ];
        for (column, to, right) in cases {
            let found = first_changed(&column, to).expect("a cast");
            assert_eq!(found, right, "{column:?} as {to}");
        }
    }

    #[test]
    fn doubles_stand_for_the_texts_that_they_read_as() {
        let doubles = [
            "0.1",
            "-12.50",
            "9007199254740992",
            "18446744073709551616",
            "-1152921504606846976",
            "0",
        ];
        for text in doubles {
            assert!(is_double(text), "{text}");
        }
        let others = [
            "9007199254740993",
            "9007199254740993.5",
            "0.12345678901234567890",
            "18446744073709551617",
        ];
        for text in others {
            assert!(!is_double(text), "{text}");
        }
    }
}
