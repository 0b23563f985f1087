//! The types of the key `types`, and conversions to them.
//!
//! A conversion changes no value: what does not fit exactly is an error. In: a column of any type.
//! Out: the same values in the type of the pipeline, or the first value that does not fit.

use crate::read::formats::text::value_kind;
use crate::read::rows::doubles::{first_changed, is_whole_double};
use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The type that a pipeline gives a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ColumnType {
    /// Text, as it is written.
    Text,
    /// Whole numbers of 64 bits.
    Integer,
    /// Doubles.
    Number,
    /// Times that are written in a format of `strftime`.
    Time {
        /// The format.
        format: String,
        /// The zone whose clocks show the times. Without one, times are local.
        zone: Option<String>,
    },
}

/// The end of messages about values of another type.
pub(crate) const AS_TYPES: &str = ", as `types` requires";

/// A value that does not have the type of its column.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The index of its row.
    pub row: usize,
    /// The value.
    pub value: String,
    /// What it is not.
    pub what: String,
}

impl Misfit {
    /// The message, which names the column.
    pub(crate) fn message(&self, column: &str) -> String {
        let Misfit { value, what, .. } = self;
        format!("column `{column}` holds `{value}`, which {what}{AS_TYPES}")
    }
}

impl ColumnType {
    /// The type of a column of this type that has the type `from` in its files.
    pub(crate) fn of(&self, from: &DataType) -> DataType {
        match self {
            ColumnType::Text if from.is_string() => from.clone(),
            other => other.data_type(),
        }
    }

    /// The type of the values after a conversion.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            ColumnType::Text => DataType::Utf8,
            ColumnType::Integer => DataType::Int64,
            ColumnType::Number => DataType::Float64,
            ColumnType::Time { format, zone } => {
                let zone = zone.as_deref().or(has_offset(format).then_some("UTC"));
                DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
            }
        }
    }

    /// Whether values of a type can be converted.
    pub(crate) fn takes(&self, from: &DataType) -> bool {
        let is_number = from.is_numeric();
        match self {
            ColumnType::Text => {
                let is_time = from.is_temporal();
                is_number || is_time || from.is_string() || *from == DataType::Boolean
            }
            ColumnType::Integer | ColumnType::Number => is_number || from.is_string(),
            ColumnType::Time { .. } => {
                from.is_string() || from.is_integer() || self.takes_times(from)
            }
        }
    }

    /// Whether times of a type are converted. Local times become times of the clocks of `zone`, and
    /// times with a zone are not made local.
    fn takes_times(&self, from: &DataType) -> bool {
        let ColumnType::Time { format, zone } = self else {
            return false;
        };
        match from {
            DataType::Timestamp(_, Some(_)) => zone.is_some() || has_offset(format),
            _ => is_local(from) && (zone.is_some() || !has_offset(format)),
        }
    }

    /// Why values of a type are not converted, and what to do.
    pub(crate) fn refusal(&self, from: &DataType) -> String {
        let is_zoned = matches!(from, DataType::Timestamp(_, Some(_)));
        match self {
            ColumnType::Time { .. } if is_zoned => {
                "times with a time zone, and the key has none; add `zone` to the key".into()
            }
            ColumnType::Time { .. } if is_local(from) => {
                "times without a time zone, and the key has a format with one; add the `zone` of their clocks to the key".into()
            }
            _ => format!(
                "{}, which gyre does not convert; leave the key out, and convert the column in the SQL",
                value_kind(from)
            ),
        }
    }

    /// The values in this type.
    ///
    /// # Errors
    /// The first value that does not fit.
    pub(crate) fn converted(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let of = column.data_type();
        if self.of(of) == *of {
            return Ok(Arc::clone(column));
        }
        if *of == DataType::Null {
            return Ok(arrow::array::new_null_array(
                &self.data_type(),
                column.len(),
            ));
        }
        match self {
            ColumnType::Integer if of.is_integer() => self.cast(column),
            ColumnType::Integer if of.is_floating() => self.whole(column),
            ColumnType::Number if of.is_floating() => self.cast(column),
            ColumnType::Number if of.is_integer() => self.doubles(column),
            ColumnType::Time { .. } if of.is_temporal() => self.of_times(column),
            _ => self.of_texts(self.texts(column)?.as_string()),
        }
    }

    /// The value of a row, which does not fit.
    pub(crate) fn misfit(&self, column: &dyn Array, row: usize) -> Misfit {
        let shown = array_value_to_string(column, row).unwrap_or_default();
        self.unlike(row, &shown)
    }

    fn unlike(&self, row: usize, value: &str) -> Misfit {
        let what = match self {
            ColumnType::Text => "is no text".into(),
            ColumnType::Integer => "is no whole number of 64 bits".into(),
            ColumnType::Number => "is no number that a double holds".into(),
            ColumnType::Time { format, .. } => format!("is no time of the form `{format}`"),
        };
        Misfit {
            row,
            value: value.to_string(),
            what,
        }
    }

    /// A cast of the engine, which makes null of what does not fit.
    fn cast(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let converted = cast_with_options(column, &self.data_type(), &options);
        let converted = converted.map_err(|e| self.failed(&e))?;
        if converted.null_count() == column.null_count() {
            return Ok(converted);
        }
        let is_lost = |row: &usize| column.is_valid(*row) && converted.is_null(*row);
        match (0..column.len()).find(is_lost) {
            Some(row) => Err(self.misfit(column, row)),
            None => Ok(converted),
        }
    }

    fn failed(&self, e: &ArrowError) -> Misfit {
        self.unlike(0, &e.to_string())
    }

    fn texts(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        cast(column, &DataType::Utf8).map_err(|e| self.failed(&e))
    }

    /// Floating-point numbers as integers.
    fn whole(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let doubles = cast(column, &DataType::Float64).map_err(|e| self.failed(&e))?;
        let doubles: &Float64Array = doubles.as_primitive::<Float64Type>();
        let mut whole = Int64Array::builder(doubles.len());
        for (row, x) in doubles.iter().enumerate() {
            let is_whole = |x: &f64| x.trunc() == *x && (MIN..-MIN).contains(x);
            match x {
                Some(x) if is_whole(&x) => whole.append_value(x as i64),
                Some(_) => return Err(self.misfit(column, row)),
                None => whole.append_null(),
            }
        }
        Ok(Arc::new(whole.finish()))
    }

    /// Integers as doubles.
    fn doubles(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let integers = match cast(column, &DataType::Int64) {
            Ok(integers) if integers.null_count() == column.null_count() => integers,
            // Some are beyond 64 bits with a sign.
            _ => return self.of_texts(self.texts(column)?.as_string()),
        };
        let integers: &Int64Array = integers.as_primitive::<Int64Type>();
        let is_exact = |n: i64| (n as f64) as i128 == i128::from(n);
        let mut rows = integers.iter().enumerate();
        if let Some((row, _)) = rows.find(|(_, n)| n.is_some_and(|n| !is_exact(n))) {
            return Err(self.misfit(column, row));
        }
        Ok(Arc::new(integers.unary::<_, Float64Type>(|n| n as f64)))
    }

    /// Texts in this type.
    ///
    /// # Errors
    /// The first text that does not fit.
    pub(crate) fn of_texts(&self, texts: &StringArray) -> Result<ArrayRef, Misfit> {
        let wrong = |row: usize| self.unlike(row, texts.value(row));
        match self {
            ColumnType::Text => Ok(Arc::new(texts.clone())),
            ColumnType::Integer => {
                let mut values = Int64Array::builder(texts.len());
                for (row, text) in texts.iter().enumerate() {
                    let value = text.map(integer);
                    values.append_option(value.map(|n| n.ok_or_else(|| wrong(row))).transpose()?);
                }
                Ok(Arc::new(values.finish()))
            }
            ColumnType::Number => {
                let mut values = Float64Array::builder(texts.len());
                for (row, text) in texts.iter().enumerate() {
                    let value = text.map(double);
                    values.append_option(value.map(|x| x.ok_or_else(|| wrong(row))).transpose()?);
                }
                Ok(Arc::new(values.finish()))
            }
            ColumnType::Time { format, .. } => self.times(texts, format),
        }
    }

    fn times(&self, texts: &StringArray, format: &str) -> Result<ArrayRef, Misfit> {
        let has_offset = has_offset(format);
        let mut values = TimestampMicrosecondArray::builder(texts.len());
        for (row, text) in texts.iter().enumerate() {
            let time = text.map(|text| microseconds(format, text.trim_ascii(), has_offset));
            let wrong = || self.unlike(row, texts.value(row));
            values.append_option(time.map(|t| t.ok_or_else(wrong)).transpose()?);
        }
        let (local, of) = (values.finish(), self.data_type());
        match &of {
            DataType::Timestamp(_, Some(zone)) if has_offset => {
                Ok(Arc::new(local.with_timezone(Arc::clone(zone))))
            }
            _ => {
                let local: ArrayRef = Arc::new(local);
                self.in_zone(&local, texts)
            }
        }
    }

    /// Times in microseconds in this type. Local times are those of the clocks of its zone. `shown`
    /// are the values for messages.
    fn in_zone(&self, times: &ArrayRef, shown: &dyn Array) -> Result<ArrayRef, Misfit> {
        let of = self.data_type();
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let there = cast_with_options(times, &of, &options).map_err(|e| self.failed(&e))?;
        let is_lost = |row: &usize| times.is_valid(*row) && there.is_null(*row);
        let Some(row) = (0..times.len()).find(is_lost) else {
            return Ok(there);
        };
        let zone = match &of {
            DataType::Timestamp(_, Some(zone)) => zone.as_ref(),
            _ => "UTC",
        };
        Err(Misfit {
            what: format!("is a local time that clocks in {zone} skip or show twice"),
            ..self.misfit(shown, row)
        })
    }

    /// Times of any unit in this type.
    fn of_times(&self, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let zone = match column.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let exact = DataType::Timestamp(TimeUnit::Microsecond, zone);
        let changed = first_changed(column, &exact).map_err(|e| self.failed(&e))?;
        if let Some(row) = changed {
            return Err(Misfit {
                what: "is no time in whole microseconds".into(),
                ..self.misfit(column, row)
            });
        }
        let times = cast(column, &exact).map_err(|e| self.failed(&e))?;
        self.in_zone(&times, column)
    }

    /// Checks the format and the zone of a time.
    ///
    /// # Errors
    /// The key at fault, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let ColumnType::Time { format, zone } = self else {
            return Ok(());
        };
        let moment = DateTime::constant(2021, 11, 23, 13, 45, 56, 0);
        let shown = moment
            .to_zoned(TimeZone::UTC)
            .ok()
            .and_then(|moment| jiff::fmt::strtime::format(format, &moment).ok());
        let again = shown.and_then(|text| microseconds(format, &text, has_offset(format)));
        if again.is_none() {
            let what = format!(
                "must be a format such as \"%d.%m.%Y %H:%M\", with a year, a month and a day, not {format:?}"
            );
            return Err(("timestamp", what));
        }
        match zone {
            Some(zone) if zone.parse::<Tz>().is_err() => {
                let what = format!(
                    "must be a time zone such as \"Europe/Berlin\" or \"+01:00\", not {zone:?}"
                );
                Err(("zone", what))
            }
            _ => Ok(()),
        }
    }
}

/// The least integer of 64 bits.
const MIN: f64 = i64::MIN as f64;

/// Whether values are times or dates without a time zone.
fn is_local(of: &DataType) -> bool {
    use DataType::{Date32, Date64, Timestamp};
    matches!(of, Timestamp(_, None) | Date32 | Date64)
}

/// Whether a format says how far its times are from UTC.
fn has_offset(format: &str) -> bool {
    let mut directives = format.split('%').skip(1);
    let mut found = false;
    while let Some(directive) = directives.next() {
        if directive.is_empty() {
            // `%%` is a percent sign.
            directives.next();
            continue;
        }
        let name =
            directive.trim_start_matches(|c: char| ":-_0^#".contains(c) || c.is_ascii_digit());
        found |= name.starts_with(['z', 's', 'Q']);
    }
    found
}

/// Microseconds since 1970 of a time: of its clock, or of UTC if the format has an offset.
fn microseconds(format: &str, text: &str, has_offset: bool) -> Option<i64> {
    let parsed = BrokenDownTime::parse(format, text).ok()?;
    let nanoseconds = if has_offset {
        parsed.to_timestamp().ok()?.as_nanosecond()
    } else {
        let local = parsed.to_datetime().ok()?;
        local
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_nanosecond()
    };
    // A finer time would become another one.
    (nanoseconds % 1000 == 0).then(|| i64::try_from(nanoseconds / 1000).ok())?
}

/// The whole number that a text is.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    if let Ok(n) = text.parse() {
        return Some(n);
    }
    // A decimal without a fraction, as numbers of a fixed scale are shown.
    let (whole, fraction) = text.split_once('.')?;
    let is_zero = !fraction.is_empty() && fraction.bytes().all(|b| b == b'0');
    is_zero.then(|| whole.parse().ok())?
}

/// The double that a text is, or the nearest one of a text with a fraction.
pub(crate) fn double(text: &str) -> Option<f64> {
    let text = text.trim_ascii();
    let x: f64 = text.parse().ok()?;
    let digits = text.trim_start_matches(['-', '+']);
    let is_whole = digits.bytes().all(|b| b.is_ascii_digit());
    (!is_whole || is_whole_double(text.trim_start_matches('+'))).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Float32Array, StringViewArray, UInt64Array};
    use arrow::datatypes::TimestampMicrosecondType;

    fn time(format: &str, zone: Option<&str>) -> ColumnType {
        ColumnType::Time {
            format: format.into(),
            zone: zone.map(Into::into),
        }
    }

    fn texts(texts: &[&str]) -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(texts))
    }

    #[test]
    fn conversions_change_no_value() {
        let whole = ColumnType::Integer
            .converted(&texts(&["007", "-3", "2.0"]))
            .expect("integers");
        assert_eq!(whole.as_primitive::<Int64Type>().values(), &[7, -3, 2]);
        let whole: ArrayRef = Arc::new(Float32Array::from(vec![Some(2.0), None, Some(-1.0)]));
        let whole = ColumnType::Integer.converted(&whole).expect("integers");
        let expected = [Some(2), None, Some(-1)];
        assert!(whole.as_primitive::<Int64Type>().iter().eq(expected));
        let numbers = ColumnType::Number
            .converted(&texts(&["1.5", "3", "1e3"]))
            .expect("numbers");
        assert_eq!(
            numbers.as_primitive::<Float64Type>().values(),
            &[1.5, 3.0, 1000.0]
        );
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![7, 1 << 60]));
        let as_text = ColumnType::Text.converted(&integers).expect("texts");
        assert_eq!(as_text.as_string::<i32>().value(1), "1152921504606846976");
        let doubles = ColumnType::Number.converted(&integers).expect("numbers");
        assert_eq!(
            doubles.as_primitive::<Float64Type>().value(1),
            2f64.powi(60)
        );
    }

    #[test]
    fn the_first_value_that_does_not_fit_is_named() {
        let integers = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
        let halves: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1.5, f64::NAN]));
        let beyond: ArrayRef = Arc::new(Float64Array::from(vec![9_223_372_036_854_775_808.0]));
        for (to, column, row, value) in [
            (ColumnType::Integer, texts(&["1", "x", "y"]), 1, "x"),
            (ColumnType::Integer, texts(&["1", "1.5"]), 1, "1.5"),
            (ColumnType::Integer, halves, 1, "1.5"),
            (ColumnType::Integer, beyond, 0, "9.223372036854776e18"),
            (ColumnType::Integer, large, 1, "18446744073709551615"),
            (ColumnType::Number, texts(&["1,5"]), 0, "1,5"),
            // 2⁵³ + 1 is no double.
            (
                ColumnType::Number,
                texts(&["9007199254740993"]),
                0,
                "9007199254740993",
            ),
            (
                ColumnType::Number,
                integers(vec![0, (1 << 53) + 1]),
                1,
                "9007199254740993",
            ),
            (
                time("%d.%m.%Y", None),
                texts(&["31.12.2024", "31.02.2024"]),
                1,
                "31.02.2024",
            ),
        ] {
            let misfit = to.converted(&column).expect_err("no such value");
            assert_eq!((misfit.row, misfit.value.as_str()), (row, value), "{to:?}");
        }
        let of = [DataType::Boolean, DataType::Date32];
        assert!(
            of.iter()
                .all(|of| !ColumnType::Integer.takes(of) && ColumnType::Text.takes(of))
        );
        let is: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        let is = ColumnType::Text.converted(&is).expect("a text");
        assert_eq!(is.as_string::<i32>().value(0), "true");
    }

    #[test]
    fn times_are_those_of_the_clocks_of_a_zone() {
        let at = |to: &ColumnType, text: &str| {
            let times = to.converted(&texts(&[text]))?;
            Ok::<_, Misfit>(times.as_primitive::<TimestampMicrosecondType>().value(0) / 1_000_000)
        };
        let local = time("%d.%m.%Y %H:%M", None);
        // 1 July 2024, 12:00 UTC.
        assert_eq!(at(&local, "01.07.2024 12:00"), Ok(1_719_835_200));
        assert_eq!(
            local.data_type(),
            DataType::Timestamp(TimeUnit::Microsecond, None)
        );
        let berlin = time("%d.%m.%Y %H:%M", Some("Europe/Berlin"));
        // Two hours before UTC in summer.
        assert_eq!(at(&berlin, "01.07.2024 12:00"), Ok(1_719_835_200 - 7200));
        // 31 March 2024: clocks go from 2:00 to 3:00. 27 October: 2:30 comes twice.
        for skipped in ["31.03.2024 02:30", "27.10.2024 02:30"] {
            let misfit = at(&berlin, skipped).expect_err("no one time");
            assert!(misfit.what.contains("skip or show twice"), "{misfit:?}");
        }
        let offset = time("%Y-%m-%dT%H:%M:%S%z", None);
        assert_eq!(at(&offset, "2024-07-01T14:00:00+0200"), Ok(1_719_835_200));
        let of = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert_eq!(offset.data_type(), of);
    }

    /// Times of files become those of the type: local times are those of the clocks of the zone,
    /// and others keep their instant.
    #[test]
    fn times_of_other_units_and_zones_are_converted() {
        use arrow::array::{Date32Array, TimestampNanosecondArray, TimestampSecondArray};
        let berlin = time("%d.%m.%Y %H:%M", Some("Europe/Berlin"));
        // 1 July 2024, 12:00.
        let noon = 1_719_835_200;
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(noon), None]));
        let zoned = |zone: &str| -> ArrayRef {
            let times = TimestampNanosecondArray::from(vec![Some(noon * 1_000_000_000), None]);
            Arc::new(times.with_timezone(zone))
        };
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(19_905), None]));
        for (to, column, expected) in [
            (time("%Y-%m-%d", None), &seconds, noon),
            (berlin.clone(), &seconds, noon - 7200),
            (berlin.clone(), &zoned("UTC"), noon),
            (berlin.clone(), &zoned("+05:00"), noon),
            (time("%Y-%m-%dT%H:%M%z", None), &zoned("+05:00"), noon),
            // Midnight in summer.
            (berlin.clone(), &days, noon - 43_200 - 7200),
            (time("%d.%m.%Y", None), &days, noon - 43_200),
        ] {
            assert!(to.takes(column.data_type()));
            let times = to.converted(column).expect("times");
            assert_eq!(*times.data_type(), to.data_type());
            let times = times.as_primitive::<TimestampMicrosecondType>();
            let found: Vec<Option<i64>> = times.iter().collect();
            assert_eq!(
                found,
                [Some(expected * 1_000_000), None],
                "{to:?} {column:?}"
            );
        }
        let fine: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1000, 1001]));
        let misfit = berlin.converted(&fine).expect_err("no microseconds");
        assert_eq!((misfit.row, misfit.what.contains("whole micro")), (1, true));
        // 31 March 2024, 02:30, which clocks skip.
        let skipped: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1_711_852_200]));
        let misfit = berlin.converted(&skipped).expect_err("no such time");
        assert_eq!(
            (misfit.row, misfit.value.as_str()),
            (1, "2024-03-31T02:30:00")
        );
        let local = time("%d.%m.%Y", None);
        let offset = time("%Y-%m-%dT%H:%M%z", None);
        for (to, of, what) in [
            (&local, zoned("UTC"), "add `zone` to the key"),
            (&offset, seconds, "add the `zone` of their clocks"),
        ] {
            assert!(!to.takes(of.data_type()));
            assert!(to.refusal(of.data_type()).contains(what));
        }
    }

    #[test]
    fn formats_and_zones_are_checked() {
        for (format, zone, key) in [
            ("%d.%m.%Y", None, None),
            ("%Y-%m-%d %H:%M:%S%.f", Some("Europe/Berlin"), None),
            ("%s", None, None),
            ("%H:%M", None, Some("timestamp")),
            ("day", None, Some("timestamp")),
            ("%d.%m.%Y", Some("Europe/Berlln"), Some("zone")),
        ] {
            let found = time(format, zone).check().err().map(|(key, _)| key);
            assert_eq!(found, key, "{format}");
        }
    }
}
