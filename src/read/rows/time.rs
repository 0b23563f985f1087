//! Time columns ↔ order-preserving i64 ticks.

use crate::error::{Error, Kind};
use crate::read::rows::states;
use crate::read::rows::stop::{Dropped, Stop};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Whether a column of this type can order the rows of a trajectory.
pub(crate) fn is_time(data_type: &DataType) -> bool {
    use DataType::*;
    is_whole(data_type)
        || matches!(
            data_type,
            Float32 | Float64 | Timestamp(..) | Date32 | Date64
        )
}

/// Whether the values of a type are whole numbers. Files with and without a sign make decimals
/// without fraction.
pub(crate) fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal128(_, 0))
}

/// Replaces NaN times by null, so that these rows are dropped with a reason, like other rows
/// without a time.
pub(crate) fn without_nan(times: &ArrayRef, dropped: &mut Dropped) -> Result<ArrayRef, Stop> {
    if !times.data_type().is_floating() {
        return Ok(Arc::clone(times));
    }
    let floats = cast(times, &DataType::Float64).map_err(unreadable)?;
    let floats = floats.as_primitive::<Float64Type>();
    let nan = floats.iter().flatten().filter(|t| t.is_nan()).count();
    dropped.add("NaN time", nan as u64);
    Ok(Arc::new(
        floats
            .iter()
            .map(|t| t.filter(|t| !t.is_nan()))
            .collect::<Float64Array>(),
    ))
}

/// Times of the column `name` without nulls as ticks: units of the column, or for floats an integer
/// that sorts like them.
///
/// # Errors
/// A time that does not fit an i64.
pub(crate) fn ticks(times: &ArrayRef, name: &str) -> Result<ScalarBuffer<i64>, Stop> {
    if times.data_type().is_floating() {
        let floats = cast(times, &DataType::Float64).map_err(unreadable)?;
        return Ok(floats
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|&t| ordered(t))
            .collect());
    }
    let ticks = match times.data_type() {
        DataType::Date32 => cast(
            &cast(times, &DataType::Int32).map_err(unreadable)?,
            &DataType::Int64,
        ),
        _ => cast(times, &DataType::Int64),
    }
    .map_err(unreadable)?;
    let nulls = ticks.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(row) = nulls.and_then(|nulls| nulls.iter().position(|is_valid| !is_valid)) {
        let time = std::slice::from_ref(times);
        let time = states::describe(time, row);
        return Err(Stop::Failed(Error::input(format!(
            "the time column `{name}` holds {time}, and times have at most 64 bits with a sign: up to 9223372036854775807; subtract a constant from it in the SQL"
        ))));
    }
    Ok(ticks.as_primitive::<Int64Type>().values().clone())
}

/// The bits of a float, mapped so that integers compare like the floats (IEEE 754 total order; −0
/// becomes 0).
fn ordered(t: f64) -> i64 {
    let bits = (t + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The float of a tick: the inverse of `ordered`.
fn float(tick: i64) -> f64 {
    f64::from_bits((tick ^ (((tick >> 63) as u64) >> 1) as i64) as u64)
}

/// Ticks as a column of times.
pub(crate) fn column(ticks: &[i64], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    if data_type.is_floating() {
        let floats = ticks.iter().map(|&tick| float(tick));
        let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(floats));
        return cast(&floats, data_type);
    }
    let ticks: ArrayRef = Arc::new(Int64Array::from(ticks.to_vec()));
    match data_type {
        DataType::Date32 => cast(&cast(&ticks, &DataType::Int32)?, data_type),
        _ => cast(&ticks, data_type),
    }
}

/// A tick as the column would show it.
pub(crate) fn show(tick: i64, data_type: &DataType) -> String {
    if data_type.is_floating() {
        return float(tick).to_string();
    }
    column(&[tick], data_type)
        .map_or_else(|_| tick.to_string(), |array| states::describe(&[array], 0))
}

fn unreadable(e: arrow::error::ArrowError) -> Stop {
    Stop::Failed(Error::with_source(
        Kind::Input,
        "the time column cannot be read",
        e,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, TimestampSecondArray};

    #[test]
    fn float_ticks_keep_the_order_and_round_trip() {
        let times = [
            f64::NEG_INFINITY,
            -1.5,
            -1e-300,
            0.0,
            1e-300,
            2.5,
            f64::INFINITY,
        ];
        let ticks = ticks(
            &(Arc::new(Float64Array::from(times.to_vec())) as ArrayRef),
            "t",
        )
        .unwrap();
        assert!(ticks.is_sorted());
        assert_eq!(
            ticks
                .iter()
                .map(|&t| show(t, &DataType::Float64))
                .collect::<Vec<_>>(),
            times.map(|t| t.to_string())
        );
        let column = column(&ticks, &DataType::Float64).unwrap();
        assert_eq!(column.as_primitive::<Float64Type>().values()[..], times);
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn dates_and_timestamps_are_formatted_as_such() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![1]));
        assert_eq!(
            show(ticks(&days, "t").unwrap()[0], days.data_type()),
            "1970-01-02"
        );
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![86_400]));
        assert_eq!(
            show(ticks(&seconds, "t").unwrap()[0], seconds.data_type()),
            "1970-01-02T00:00:00"
        );
        for times in [&days, &seconds] {
            let ticks = ticks(times, "t").unwrap();
            assert_eq!(&column(&ticks, times.data_type()).unwrap(), times);
        }
    }
}
