//! Arithmetic sequences of decimal numbers, whose terms are the nearest doubles.
//!
//! The numbers of a pipeline file are decimal: a step of 0.1 is one tenth, which no double is. In
//! double arithmetic, a multiple of it may be 1.5500000000000114 instead of 1.55.

use crate::math::scale::times_power;

/// Largest integer up to which all integers are doubles.
const EXACT: u128 = 1 << 53;

/// The numbers (`first` + k · `difference`) / `scale` for all integers k.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sequence {
    first: i128,
    difference: i128,
    /// Above zero.
    scale: i128,
}

impl Sequence {
    /// The numbers first + k · step. `None` if they have too many digits.
    pub(crate) fn by_step(first: f64, step: f64) -> Option<Sequence> {
        let (first, difference, scale) = common(first, step)?;
        Some(Sequence {
            first,
            difference,
            scale,
        })
    }

    /// The numbers first + k · (last − first) / n. `None` if they have too many digits.
    pub(crate) fn between(first: f64, last: f64, n: u32) -> Option<Sequence> {
        let (first, last, scale) = common(first, last)?;
        let n = i128::from(n);
        Some(Sequence {
            first: first.checked_mul(n)?,
            difference: last.checked_sub(first)?,
            scale: scale.checked_mul(n)?,
        })
    }

    /// The number for k = `halves` / 2, as the nearest double. `None` if it has too many digits.
    pub(crate) fn at_half(&self, halves: i128) -> Option<f64> {
        let first = self.first.checked_mul(2)?;
        let sum = first.checked_add(self.difference.checked_mul(halves)?)?;
        Some(quotient(sum, self.scale.checked_mul(2)?))
    }

    /// The same numbers for whole k, without integers of 128 bits. `None` if they are too large.
    pub(crate) fn short(&self) -> Option<ShortSequence> {
        let exact = |x: i128| (x.unsigned_abs() < EXACT).then_some(x as f64);
        Some(ShortSequence {
            first: exact(self.first)?,
            difference: exact(self.difference)?,
            scale: exact(self.scale)?,
        })
    }
}

/// A [`Sequence`] whose integers are doubles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortSequence {
    first: f64,
    difference: f64,
    scale: f64,
}

impl ShortSequence {
    /// The number for a whole k, as the nearest double. `None` if it has too many digits.
    #[inline]
    pub(crate) fn at(&self, k: f64) -> Option<f64> {
        let rest = self.difference * k;
        // Both operations are exact, and the division is rounded once.
        let is_exact = self.first.abs() + rest.abs() < EXACT as f64;
        is_exact.then(|| (self.first + rest) / self.scale)
    }
}

/// Two finite numbers as integers over a common power of ten.
fn common(a: f64, b: f64) -> Option<(i128, i128, i128)> {
    let ((a, of_a), (b, of_b)) = (decimal(a)?, decimal(b)?);
    let least = of_a.min(of_b).min(0);
    let power = |exponent: i32| 10i128.checked_pow(u32::try_from(exponent).ok()?);
    let scaled = |digits: i128, of: i32| digits.checked_mul(power(of - least)?);
    Some((scaled(a, of_a)?, scaled(b, of_b)?, power(-least)?))
}

/// The shortest decimal that reads as `x`: integer and exponent of ten.
fn decimal(x: f64) -> Option<(i128, i32)> {
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e')?;
    let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let digits = digits.replace('.', "").parse().ok()?;
    Some((digits, exponent.parse::<i32>().ok()? - decimals as i32))
}

/// The double nearest to a quotient with a positive divisor.
fn quotient(dividend: i128, divisor: i128) -> f64 {
    let (top, bottom) = (dividend.unsigned_abs(), divisor.unsigned_abs());
    let magnitude = if top.max(bottom) <= EXACT {
        // One division of exact operands is rounded once.
        top as f64 / bottom as f64
    } else {
        long_quotient(top, bottom)
    };
    if dividend < 0 { -magnitude } else { magnitude }
}

/// The double nearest to a quotient with a divisor below 2¹²⁷, by long division.
fn long_quotient(top: u128, bottom: u128) -> f64 {
    let (mut digits, mut rest) = (top / bottom, top % bottom);
    let mut exponent = 0;
    // More bits than a double holds.
    while rest > 0 && digits >> 64 == 0 {
        let shift = rest.leading_zeros().min(digits.leading_zeros());
        rest <<= shift;
        digits = (digits << shift) | (rest / bottom);
        rest %= bottom;
        exponent -= shift as i32;
    }
    // A rest decides between two doubles as a lowest bit does.
    times_power((digits | u128::from(rest > 0)) as f64, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_the_doubles_that_their_decimals_read_as() {
        let tenths = Sequence::by_step(0.05, 0.1).expect("few digits");
        for k in -2000..2000i128 {
            // 0.05 + k/10 in hundredths, by text.
            let expected = format!("{}e-2", 5 + 10 * k);
            assert_eq!(tenths.at_half(2 * k), expected.parse().ok(), "{k}");
            let expected = format!("{}e-2", 10 + 10 * k);
            assert_eq!(tenths.at_half(2 * k + 1), expected.parse().ok(), "{k}");
        }
        let between = Sequence::between(-180.0, 180.0, 3600).expect("few digits");
        assert_eq!(between.at_half(2 * 1801 + 1), Some(0.15));
        assert_eq!(between.at_half(7200), Some(180.0));
        let thirds = Sequence::between(0.0, 1.0, 3).expect("few digits");
        assert_eq!(thirds.at_half(2), Some(1.0 / 3.0));
    }

    #[test]
    fn many_digits_are_divided_digit_by_digit() {
        let long = Sequence::between(0.123456789012345, 9.876543210987654, 7).expect("digits");
        assert_eq!(long.at_half(0), Some(0.123456789012345));
        assert_eq!(long.at_half(14), Some(9.876543210987654));
        let middle = long.at_half(7).expect("a number");
        assert!((middle - 4.999_999_999_999_999).abs() < 1e-14, "{middle}");
        assert_eq!(Sequence::by_step(0.0, 1e-300), None);
        assert_eq!(Sequence::by_step(1e300, 1.0), None);
        for (top, bottom) in [(1u128, 3u128), (10, 7), (1 << 90, 3), (1, 10u128.pow(37))] {
            let found = long_quotient(top, bottom);
            let near = top as f64 / bottom as f64;
            assert!((found / near - 1.0).abs() <= f64::EPSILON, "{found}");
        }
        let tenths = long_quotient(10u128.pow(30) + 1, 10u128.pow(31));
        assert_eq!(tenths, 0.1);
        // Half of a last digit is rounded to even, and a little more is not.
        let half = (1u128 << 53) + 1;
        assert_eq!(long_quotient(half << 60, 1 << 60), (1u64 << 53) as f64);
        let more = long_quotient((half << 60) + 1, 1 << 60);
        assert_eq!(more, (1u64 << 53) as f64 + 2.0);
        let wide = Sequence::by_step(0.0, 1e30).expect("few digits");
        assert_eq!(wide.at_half(i128::from(i64::MAX)), None);
    }
}
