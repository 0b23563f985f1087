//! The time between the two ends of a pair: ticks of an integer clock, rows, or a duration.

use jiff::{Span, SpanRelativeTo};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A lag τ, above zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lag {
    /// A difference in an integer time column.
    Ticks(i64),
    /// A number of rows in the time order of a trajectory.
    Steps(u64),
    /// A difference in a date or timestamp column.
    Duration {
        /// Its length.
        nanoseconds: i64,
    },
}

/// Units in which a duration is shown, the largest first, in nanoseconds.
const UNITS: [(&str, i64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const FORMS: &str =
    "a duration such as \"5d\", \"36h\" or \"15min\", steps such as \"3 steps\", or a whole number";

impl Lag {
    /// Parses "3 steps" or a duration. The error says what the text must be.
    fn parse(text: &str) -> Result<Lag, String> {
        let text = text.trim();
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [number, "step" | "steps"] = words[..] {
            return match number.parse() {
                Ok(0) | Err(_) => Err(format!(
                    "must be a whole number of steps, at least 1, not {text:?}"
                )),
                Ok(steps) => Ok(Lag::Steps(steps)),
            };
        }
        let span: Span = text
            .parse()
            .map_err(|_| format!("must be {FORMS}, not {text:?}"))?;
        if span.get_years() != 0 || span.get_months() != 0 {
            return Err(format!(
                "must not count in months or years, whose length varies; write days instead of {text:?}"
            ));
        }
        let nanoseconds = span
            .to_duration(SpanRelativeTo::days_are_24_hours())
            .ok()
            .and_then(|d| i64::try_from(d.as_nanos()).ok())
            .ok_or_else(|| format!("must be shorter than 292 years, not {text:?}"))?;
        if nanoseconds <= 0 {
            return Err(format!("must be above zero, not {text:?}"));
        }
        Ok(Lag::Duration { nanoseconds })
    }

    /// The text of a lag in tables and records, from any text that an earlier version wrote.
    pub(crate) fn canonical(text: &str) -> String {
        Lag::parse(text).map_or_else(|_| text.to_string(), |lag| lag.to_string())
    }

    /// Orders lags by length; those of one kind stand together.
    pub(crate) fn by_length(&self, other: &Lag) -> Ordering {
        let place = |lag: &Lag| match *lag {
            Lag::Ticks(n) => (0, n as u64),
            Lag::Steps(n) => (1, n),
            Lag::Duration { nanoseconds } => (2, nanoseconds as u64),
        };
        place(self).cmp(&place(other))
    }

    /// Orders texts of lags from a table by length; what is no lag is ordered as text, after those
    /// that are.
    pub(crate) fn texts_by_length(a: &str, b: &str) -> Ordering {
        let read = |text: &str| match text.parse() {
            Ok(ticks) => Lag::ticks(ticks).ok(),
            Err(_) => Lag::parse(text).ok(),
        };
        match (read(a), read(b)) {
            (Some(one), Some(other)) => one.by_length(&other),
            (one, other) => one.is_none().cmp(&other.is_none()),
        }
        .then_with(|| a.cmp(b))
    }

    /// Its length where it is a time.
    pub(crate) fn seconds(&self) -> Option<f64> {
        matches!(self, Lag::Duration { .. }).then(|| self.number())
    }

    fn ticks(ticks: i64) -> Result<Lag, String> {
        if ticks <= 0 {
            return Err(format!("must be above zero, not {ticks}"));
        }
        Ok(Lag::Ticks(ticks))
    }

    /// How many times the other one this is, if that is a whole number and both are of one kind.
    pub(crate) fn in_steps_of(&self, other: &Lag) -> Option<u64> {
        let (whole, part) = match (self, other) {
            (Lag::Ticks(a), Lag::Ticks(b)) => (*a as u64, *b as u64),
            (Lag::Steps(a), Lag::Steps(b)) => (*a, *b),
            (Lag::Duration { nanoseconds: a }, Lag::Duration { nanoseconds: b }) => {
                (*a as u64, *b as u64)
            }
            _ => return None,
        };
        whole.is_multiple_of(part).then_some(whole / part)
    }

    /// Whether this is shorter than the other one, if both are of one kind.
    pub(crate) fn is_shorter_than(&self, other: &Lag) -> bool {
        let is_one_kind = std::mem::discriminant(self) == std::mem::discriminant(other);
        is_one_kind && self.by_length(other) == Ordering::Less
    }

    /// Whether twice this is the other one or more, if both are of one kind.
    pub(crate) fn is_half_or_more_of(&self, other: &Lag) -> bool {
        match (self, other) {
            (Lag::Ticks(a), Lag::Ticks(b))
            | (Lag::Duration { nanoseconds: a }, Lag::Duration { nanoseconds: b }) => {
                2 * i128::from(*a) >= i128::from(*b)
            }
            _ => false,
        }
    }

    /// The lag as a number: ticks, steps, or seconds of a duration.
    pub fn number(&self) -> f64 {
        match self {
            Lag::Ticks(n) => *n as f64,
            Lag::Steps(n) => *n as f64,
            Lag::Duration { nanoseconds } => *nanoseconds as f64 / 1e9,
        }
    }
}

/// Each lag has one text. A duration is written in the largest unit that gives a whole number.
impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lag::Ticks(n) => write!(f, "{n}"),
            Lag::Steps(1) => f.write_str("1 step"),
            Lag::Steps(n) => write!(f, "{n} steps"),
            Lag::Duration { nanoseconds } => {
                let whole = |(_, unit): &&(&str, i64)| nanoseconds % unit == 0;
                let (name, unit) = UNITS.iter().find(whole).unwrap_or(&("ns", 1));
                write!(f, "{}{name}", nanoseconds / unit)
            }
        }
    }
}

impl Serialize for Lag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Lag::Ticks(n) if serializer.is_human_readable() => serializer.serialize_i64(*n),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Lag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            // Such bytes do not say of what type they are: all lags are texts.
            let text = String::deserialize(deserializer)?;
            let lag = text.parse().map_or_else(|_| Lag::parse(&text), Lag::ticks);
            return lag.map_err(de::Error::custom);
        }
        struct LagVisitor;
        impl Visitor<'_> for LagVisitor {
            type Value = Lag;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORMS)
            }
            fn visit_i64<E: de::Error>(self, ticks: i64) -> Result<Lag, E> {
                Lag::ticks(ticks).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Lag, E> {
                Lag::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(LagVisitor)
    }
}

impl JsonSchema for Lag {
    fn schema_name() -> Cow<'static, str> {
        "Lag".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A difference of an integer time column, a duration on dates and timestamps, or rows in time order.",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }],
            "examples": ["5d", "36h", "1h30m", "250ms", "3 steps", 10]
        })
    }
}

/// A lag in the terms of the time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The two times differ by exactly this many units of the time column.
    Ticks(i64),
    /// The two rows are this many rows apart in time order.
    Rows(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn check(text: &str, expected: Result<(i64, &str), &str>) {
        let found = Lag::parse(text);
        match (&found, expected) {
            (Ok(lag @ Lag::Duration { nanoseconds }), Ok((n, shown))) => {
                assert_eq!((*nanoseconds, lag.to_string().as_str()), (n, shown));
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            _ => panic!("{text:?}: {found:?}"),
        }
    }

    #[test]
    fn durations_are_read_to_the_nanosecond() {
        check("5d", Ok((5 * 86_400 * SECOND, "5d")));
        check("36h", Ok((36 * 3600 * SECOND, "36h")));
        check("15min", Ok((900 * SECOND, "15min")));
        check("90s", Ok((90 * SECOND, "90s")));
        check("250ms", Ok((SECOND / 4, "250ms")));
        check("1h30m", Ok((5400 * SECOND, "90min")));
        check(" 2 weeks", Ok((14 * 86_400 * SECOND, "14d")));
    }

    #[test]
    fn a_lag_has_one_text_however_it_is_written() {
        for (texts, expected) in [
            (&["5d", "5 days", "P5D", "120h", "7200 min"][..], "5d"),
            (&["1h", "PT1H", "60min", "3600s", "1 hour"], "1h"),
            (&["24h", "1d", "1440min"], "1d"),
            (&["36h", "1d 12h", "PT36H"], "36h"),
            (&["90min", "1h30m", "PT1H30M"], "90min"),
            (&["2 weeks", "14d"], "14d"),
            (&["250ms", "0.25s"], "250ms"),
            (&["1us", "1000ns", "1µs"], "1us"),
            (&["1ns"], "1ns"),
        ] {
            for text in texts {
                assert_eq!(Lag::canonical(text), expected, "{text}");
                // What is shown is read as the same lag.
                assert_eq!(Lag::parse(expected), Lag::parse(text), "{text}");
            }
        }
        for text in ["3 steps", "40", "no lag"] {
            assert_eq!(Lag::canonical(text), text);
        }
    }

    #[test]
    fn lags_are_ordered_by_length() {
        let mut texts = [
            "6h", "1d", "10 steps", "1h", "90min", "2", "10", "9 steps", "?",
        ];
        texts.sort_by(|a, b| Lag::texts_by_length(a, b));
        let expected = [
            "2", "10", "9 steps", "10 steps", "1h", "90min", "6h", "1d", "?",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn what_is_no_fixed_time_is_refused() {
        check("1mo", Err("months or years"));
        check("1 year", Err("months or years"));
        check("0s", Err("above zero"));
        check("-5d", Err("above zero"));
        check("5 d ago", Err("above zero"));
        check("10", Err("such as \"5d\""));
        check("5x", Err("such as \"5d\""));
        check("", Err("such as \"5d\""));
        check("400000d", Err("shorter than 292 years"));
        check("0 steps", Err("at least 1"));
        check("1.5 steps", Err("at least 1"));
        check("-1 steps", Err("at least 1"));
    }

    #[test]
    fn steps_and_ticks_show_as_written() {
        assert_eq!(Lag::parse("3 steps"), Ok(Lag::Steps(3)));
        assert_eq!(Lag::Steps(1).to_string(), "1 step");
        assert_eq!(Lag::ticks(10).map(|l| l.to_string()), Ok("10".into()));
        assert!(Lag::ticks(0).is_err());
    }

    #[test]
    fn one_day_is_the_same_lag_as_twenty_four_hours() {
        let lag = |t| Lag::parse(t).expect("a lag");
        assert_eq!(lag("1d"), lag("24h"));
        assert_ne!(lag("1d"), lag("1 step"));
        assert_eq!(lag("90min").seconds(), Some(5400.0));
        assert_eq!(lag("3 steps").seconds(), None);
    }
}
