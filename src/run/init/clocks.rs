//! Texts and whole numbers → times, and what a pipeline needs to read them: a type of the key
//! `types`, or an expression of SQL.

use crate::read::formats::column_type::ColumnType;
use crate::run::init::names::{Role, fit};
use arrow::array::{AsArray, StringArray};
use arrow::datatypes::TimestampMicrosecondType;

/// Dates, those with the year first before others. A day and a month may be either way round.
const DATES: [&str; 13] = [
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d.%m.%y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%m/%d/%y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d/%b/%Y",
    "%b %d, %Y",
];

/// Times of a day after a date; the first one is none.
const CLOCKS: [&str; 9] = [
    "",
    " %H:%M:%S%.f",
    "T%H:%M:%S%.f",
    " %H:%M",
    "T%H:%M",
    " %I:%M:%S %p",
    " %I:%M %p",
    ", %H:%M",
    ":%H:%M:%S",
];

/// Time zones after a time of a day, and the zone that the pipeline must name for them.
const ZONES: [(&str, Option<&str>); 7] = [
    ("", None),
    ("Z", Some("UTC")),
    (" UTC", Some("UTC")),
    (" GMT", Some("UTC")),
    ("%z", None),
    ("%:z", None),
    (" %z", None),
];

/// Microseconds of the years from 1800 to 2200: fewer digits of a year make no time.
const YEARS: std::ops::Range<f64> = -5.365e15..7.258e15;

/// Seconds since 1970 of the years from 1980 to 2100.
const SECONDS: std::ops::Range<f64> = 3.15e8..4.1e9;

/// The longest text that may be a time.
const LONGEST: usize = 40;

/// How the times of a column are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimeReading {
    /// With this type in the key `types`.
    Type(ColumnType),
    /// With this function of SQL, which has the column in place of `{}`.
    Function(String),
}

/// The times that the values of a column are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundTimes {
    pub reading: TimeReading,
    /// A comment about the values.
    pub note: &'static str,
    /// Whether they are dates or timestamps.
    pub is_clock: bool,
    /// Microseconds since 1970 of dates and timestamps, or whole numbers, in the order of the
    /// values.
    pub numbers: Vec<f64>,
}

/// The times that texts are, if all texts have one format. Of a day and a month that may be either
/// way round, the way counts in which the times are nearer to each other.
pub(crate) fn of_texts(values: &[String]) -> Option<FoundTimes> {
    if let Some(months) = of_months(values) {
        return Some(months);
    }
    let first = values.first()?;
    if first.len() > LONGEST || !first.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut found: Vec<(f64, FoundTimes)> = Vec::new();
    for of in formats() {
        let fits = parsed(&of, &values[..1]).and_then(|_| parsed(&of, values));
        if let Some(microseconds) = fits {
            let low = microseconds.iter().copied().fold(f64::INFINITY, f64::min);
            let high = microseconds.iter().copied().fold(low, f64::max);
            let times = FoundTimes {
                reading: TimeReading::Type(of),
                note: "texts that are times",
                is_clock: true,
                numbers: microseconds,
            };
            found.push((high - low, times));
        }
    }
    let is_certain = found.len() == 1;
    let (_, mut times) = found.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    if !is_certain {
        times.note = "texts that are times; their day and month may be the other way round";
    }
    Some(times)
}

/// Texts of a year and a month, such as 2026-09, which are no dates.
fn of_months(values: &[String]) -> Option<FoundTimes> {
    let is_month = |text: &String| {
        let parts = text.split_once('-');
        parts.is_some_and(|(year, month)| year.len() == 4 && month.len() == 2)
    };
    if values.is_empty() || !values.iter().all(is_month) {
        return None;
    }
    let days: Vec<String> = values.iter().map(|text| format!("{text}-01")).collect();
    let of = ColumnType::Time {
        format: "%Y-%m-%d".into(),
        zone: None,
    };
    let year_and_month = "CAST(left({}, 4) AS BIGINT) * 12 + CAST(right({}, 2) AS BIGINT)";
    // Days say which texts are months, and the months are counted.
    parsed(&of, &days)?;
    let months = values.iter().map(|text| {
        let number = |part: &str| part.parse::<f64>().unwrap_or(f64::NAN);
        text.split_once('-')
            .map_or(f64::NAN, |(y, m)| 12.0 * number(y) + number(m))
    });
    Some(FoundTimes {
        reading: TimeReading::Function(year_and_month.into()),
        note: "counted in months",
        is_clock: false,
        numbers: months.collect(),
    })
}

/// The most digits after the point of times in numbers.
const DIGITS: u32 = 6;

/// Times in numbers that are not whole.
#[derive(Debug, PartialEq)]
pub(crate) struct FloatTimes {
    /// The function of SQL that makes timestamps or whole numbers of them.
    pub function: String,
    /// Whether they are seconds since 1970. Others are in the unit of their last digit.
    pub is_clock: bool,
    /// The values of the function, in the order of the numbers: microseconds, or whole numbers.
    pub numbers: Vec<f64>,
}

/// The times of numbers; NaN stands for null.
pub(crate) fn of_floats(numbers: &[f64]) -> Option<FloatTimes> {
    let known = || numbers.iter().copied().filter(|x| !x.is_nan());
    known().next()?;
    let rounded = |factor: f64| numbers.iter().map(|x| (factor * x).round()).collect();
    if known().all(|x| SECONDS.contains(&x)) {
        return Some(FloatTimes {
            function: "to_timestamp_micros(CAST(round(1000000 * {}) AS BIGINT))".into(),
            is_clock: true,
            numbers: rounded(1e6),
        });
    }
    let is_exact = |factor: &f64| {
        let error = |x: f64| ((factor * x).round() / factor - x).abs();
        known().all(|x| error(x) <= 1e-9 * x.abs().max(1e-3))
    };
    let mut factors = (0..=DIGITS).map(|digits| f64::from(10u32.pow(digits)));
    let last = f64::from(10u32.pow(DIGITS));
    let factor = factors.find(is_exact).unwrap_or(last);
    // Larger numbers are no exact integers in doubles.
    let largest = known().map(f64::abs).fold(0.0, f64::max);
    let function = match factor {
        1.0 => "CAST({} AS BIGINT)".to_string(),
        _ => format!("CAST(round({factor} * {{}}) AS BIGINT)"),
    };
    (largest * factor < 9e15).then(|| FloatTimes {
        function,
        is_clock: false,
        numbers: rounded(factor),
    })
}

fn formats() -> impl Iterator<Item = ColumnType> {
    let pairs = DATES
        .iter()
        .flat_map(|date| CLOCKS.iter().map(move |clock| [date, clock]));
    // Versions such as 1.2.24 are no days.
    let pairs = pairs.filter(|[date, clock]| !date.ends_with("%y") || !clock.is_empty());
    pairs.flat_map(|[date, clock]| {
        let zones = ZONES.iter();
        let zones = zones.filter(move |(text, _)| text.is_empty() || !clock.is_empty());
        zones.map(move |(text, zone)| ColumnType::Time {
            format: format!("{date}{clock}{text}"),
            zone: zone.map(Into::into),
        })
    })
}

/// Microseconds of texts, if all have the format and a year of four digits.
fn parsed(of: &ColumnType, values: &[String]) -> Option<Vec<f64>> {
    let times = of.of_texts(&StringArray::from_iter_values(values)).ok()?;
    let times = times.as_primitive_opt::<TimestampMicrosecondType>()?;
    let times: Vec<f64> = times.values().iter().map(|t| *t as f64).collect();
    times.iter().all(|t| YEARS.contains(t)).then_some(times)
}

/// The function of SQL that reads values of a format, if they are seconds or texts of ISO 8601.
pub(crate) fn function(format: &str) -> Option<String> {
    if format == "%s" {
        return Some("to_timestamp_seconds({})".into());
    }
    let is_common = format.starts_with("%Y-%m-%d") && format.contains("%H:%M:%S%.f");
    let has_zone = !format.ends_with("%.f") && !format.ends_with('Z');
    (is_common && !has_zone).then(|| "to_timestamp_micros({})".into())
}

/// The times that whole numbers are, if the name of their column says that they are times: seconds
/// since 1970, parts of them, or dates such as 20260901.
pub(crate) fn of_integers(name: &str, values: &[String]) -> Option<FoundTimes> {
    if fit(name, Role::Time) == 0 {
        return None;
    }
    let digits = values.first()?.len();
    let date = match digits {
        8 => Some("%Y%m%d"),
        12 => Some("%Y%m%d%H%M"),
        14 => Some("%Y%m%d%H%M%S"),
        _ => None,
    };
    let is_alike = values.iter().all(|value| value.len() == digits);
    if let Some(format) = date.filter(|_| is_alike) {
        let of = ColumnType::Time {
            format: format.into(),
            zone: None,
        };
        if let Some(microseconds) = parsed(&of, values) {
            return Some(FoundTimes {
                reading: TimeReading::Type(of),
                note: "whole numbers whose digits are times",
                is_clock: true,
                numbers: microseconds,
            });
        }
    }
    let numbers = values.iter().map(|value| value.parse::<f64>().ok());
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    let seconds = ColumnType::Time {
        format: "%s".into(),
        zone: None,
    };
    let units = [
        (1.0, TimeReading::Type(seconds), "seconds since 1970"),
        (
            1e3,
            TimeReading::Function("to_timestamp_millis({})".into()),
            "milliseconds since 1970",
        ),
        (
            1e6,
            TimeReading::Function("to_timestamp_micros({})".into()),
            "microseconds since 1970",
        ),
        (
            1e9,
            TimeReading::Function("to_timestamp_micros({} / 1000)".into()),
            "nanoseconds since 1970, in whole microseconds",
        ),
    ];
    let fits = |per_second: f64| numbers.iter().all(|n| SECONDS.contains(&(n / per_second)));
    let (per_second, reading, note) = units.into_iter().find(|(unit, ..)| fits(*unit))?;
    // Divisions by whole numbers are exact where products with their inverse are not.
    let microseconds = numbers.iter().map(|n| {
        if per_second > 1e6 {
            (n / (per_second / 1e6)).floor()
        } else {
            n * (1e6 / per_second)
        }
    });
    Some(FoundTimes {
        reading,
        note,
        is_clock: true,
        numbers: microseconds.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Option<(String, Option<String>, f64)> {
        let values: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let times = of_texts(&values)?;
        match times.reading {
            TimeReading::Type(ColumnType::Time { format, zone }) => {
                Some((format, zone, times.numbers[0] / 1e6))
            }
            other => panic!("{other:?}"),
        }
    }

    /// 1 September 2026, 10:00 UTC, is 1,788,256,800 s after 1970.
    #[test]
    fn texts_of_one_format_are_times() {
        let ten = 1_788_256_800.0;
        for (text, format, zone) in [
            ("2026-09-01 10:00:00", "%Y-%m-%d %H:%M:%S%.f", None),
            (
                "2026-09-01T10:00:00.000Z",
                "%Y-%m-%dT%H:%M:%S%.fZ",
                Some("UTC"),
            ),
            ("01.09.2026 10:00", "%d.%m.%Y %H:%M", None),
            ("09/13/2026 10:00:00 AM", "%m/%d/%Y %I:%M:%S %p", None),
            ("13/09/2026 10:00", "%d/%m/%Y %H:%M", None),
            ("13 Sep 2026 10:00", "%d %b %Y %H:%M", None),
            ("01/Sep/2026:10:00:00 +0000", "%d/%b/%Y:%H:%M:%S %z", None),
            ("2026-09-01T12:00:00+02:00", "%Y-%m-%dT%H:%M:%S%.f%:z", None),
        ] {
            let day = if text.contains("13") {
                12.0 * 86_400.0
            } else {
                0.0
            };
            let expected = (format.to_string(), zone.map(String::from), ten + day);
            assert_eq!(of(&[text]), Some(expected), "{text}");
        }
        for none in [
            "word",
            "12",
            "10:00",
            "3.5",
            "1-2-3",
            "1.2.24",
            "2026-13-41",
        ] {
            assert_eq!(of(&[none]), None, "{none}");
        }
        assert_eq!(of(&["2026-09-01", "soon"]), None);
    }

    #[test]
    fn days_and_months_are_those_of_near_times() {
        let found = |values: &[&str]| of(values).map(|(format, ..)| format);
        // Three days in a row, or the same day of three months.
        let days = found(&["01/09/2026", "02/09/2026", "03/09/2026"]);
        assert_eq!(days.as_deref(), Some("%d/%m/%Y"));
        let days = found(&["09/01/2026", "09/02/2026", "09/03/2026"]);
        assert_eq!(days.as_deref(), Some("%m/%d/%Y"));
    }

    #[test]
    fn whole_numbers_since_1970_are_times() {
        let of = |name: &str, value: &str| {
            let times = of_integers(name, &[value.to_string()])?;
            Some((times.note, times.numbers[0]))
        };
        let ten = 1_788_256_800e6;
        assert_eq!(of("epoch", "1788256800"), Some(("seconds since 1970", ten)));
        let milli = of("timestamp_ms", "1788256800500");
        assert_eq!(milli, Some(("milliseconds since 1970", ten + 5e5)));
        let nano = of("time", "1788256800000001500");
        assert_eq!(nano.map(|(_, t)| t), Some(ten + 1.0));
        let digits = "whole numbers whose digits are times";
        assert_eq!(of("date", "20260901"), Some((digits, ten - 36_000e6)));
        assert_eq!(of("step", "120"), None);
        assert_eq!(of("user", "1788256800"), None);
    }

    #[test]
    fn months_are_counted() {
        let months = ["2026-11", "2027-01"].map(String::from);
        let found = of_texts(&months).expect("times");
        assert!(!found.is_clock);
        assert_eq!(found.numbers, [24_323.0, 24_325.0]);
        assert!(of_texts(&["2026-13".to_string()]).is_none());
    }

    #[test]
    fn other_numbers_are_times_in_the_unit_of_their_last_digit() {
        let function = |numbers: &[f64]| of_floats(numbers).map(|found| found.function);
        let steps = of_floats(&[0.0, 0.02, 0.04, f64::NAN]).expect("times");
        assert_eq!(steps.function, "CAST(round(100 * {}) AS BIGINT)");
        assert!(!steps.is_clock);
        assert_eq!(steps.numbers[..3], [0.0, 2.0, 4.0]);
        assert_eq!(function(&[1.0, 3.0]).as_deref(), Some("CAST({} AS BIGINT)"));
        // No digit is the last one: millionths.
        let third = function(&[1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(
            third.as_deref(),
            Some("CAST(round(1000000 * {}) AS BIGINT)")
        );
        let clock = of_floats(&[1_788_256_800.5]).expect("times");
        assert!(clock.is_clock);
        assert_eq!(clock.numbers, [1_788_256_800.5e6]);
        assert_eq!(function(&[f64::INFINITY]), None);
        assert_eq!(function(&[f64::NAN]), None);
    }
}
