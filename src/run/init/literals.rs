//! Values as TOML and SQL write them, and as comments show them.

use crate::error::is_hidden;
use std::fmt::Write;

/// A text as a value or key of TOML.
pub(crate) fn toml(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_hidden(c) => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A number as a value of TOML, whose integers have 64 bits.
pub(crate) fn number(x: f64) -> String {
    if x.abs() < 1e15 {
        format!("{x}")
    } else {
        format!("{x:e}")
    }
}

/// A number for a comment, without its rounding error.
pub(crate) fn short(x: f64) -> String {
    number(format!("{x:.8e}").parse().unwrap_or(x))
}

/// A name in SQL, in quotes if it needs them.
pub(crate) fn sql(name: &str) -> String {
    let mut chars = name.chars();
    let is_plain = chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // Two words of SQL have no underscore: a name of one word may be a keyword.
    if is_plain && (name.contains('_') || name.len() <= 1) {
        return name.into();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A time in units of an integer column or in microseconds, as a value of TOML. None if it is no
/// duration of one unit.
pub(crate) fn length(time: f64, is_clock: bool) -> Option<String> {
    if is_clock {
        duration(time).map(|text| toml(&text))
    } else {
        Some(time.to_string())
    }
}

/// A time in units of an integer column or in microseconds, as text.
pub(crate) fn shown(time: f64, is_clock: bool) -> String {
    if is_clock {
        duration(time).unwrap_or_else(|| format!("{time} µs"))
    } else {
        time.to_string()
    }
}

/// Microseconds as a duration of one unit, if that is exact.
fn duration(microseconds: f64) -> Option<String> {
    let units = [
        (86_400_000_000.0, "d"),
        (3_600_000_000.0, "h"),
        (60_000_000.0, "min"),
        (1_000_000.0, "s"),
        (1_000.0, "ms"),
    ];
    let is_exact = |(unit, _): &(f64, &str)| microseconds >= *unit && microseconds % unit == 0.0;
    let (unit, name) = units.into_iter().find(is_exact)?;
    Some(format!("{}{name}", microseconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_have_no_rounding_errors() {
        assert_eq!(short((30.4 - 29.6) / 4.0), "0.2");
        assert_eq!(short(12.345), "12.345");
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(
            toml("a \"b\"\\\n\u{7f}\u{202e}"),
            r#""a \"b\"\\\n\u007f\u202e""#
        );
        assert_eq!(sql("traj_id"), "traj_id");
        assert_eq!(sql("order"), "\"order\"");
        assert_eq!(sql("Id \"x\""), "\"Id \"\"x\"\"\"");
    }

    #[test]
    fn durations_have_one_unit() {
        let of = |seconds: f64| duration(seconds * 1e6);
        assert_eq!(of(36_000.0).as_deref(), Some("10h"));
        assert_eq!(of(86_400.0).as_deref(), Some("1d"));
        assert_eq!(of(90.0).as_deref(), Some("90s"));
        assert_eq!(of(0.25).as_deref(), Some("250ms"));
        assert_eq!(of(1e-6), None);
    }
}
