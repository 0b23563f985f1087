//! Exact scaling by powers of two.

/// 2^`n`, for −1022 ≤ n ≤ 1023.
fn power(n: i32) -> f64 {
    f64::from_bits(((1023 + n) as u64) << 52)
}

/// x · 2^n, rounded once, and only if f64 cannot hold the exact result.
pub(crate) fn times_power(mut x: f64, mut n: i32) -> f64 {
    // Intermediate steps keep 53 bits in reserve, so that only the last one can round a subnormal
    // result.
    let down = power(-1022) * power(53);
    for _ in 0..2 {
        if n > 1023 {
            x *= power(1023);
            n -= 1023;
        } else if n < -1022 {
            x *= down;
            n += 1022 - 53;
        }
    }
    x * power(n.clamp(-1022, 1023))
}

/// The e with 2^e ≤ x < 2^(e + 1), for a finite x above 0.
pub(crate) fn exponent(x: f64) -> i32 {
    let of_normal = |x: f64| ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    if x < f64::MIN_POSITIVE {
        of_normal(x * power(54)) - 54
    } else {
        of_normal(x)
    }
}

/// The e for which 2^e is nearest to x, for a finite x above 0.
pub(crate) fn nearest(x: f64) -> i32 {
    let e = exponent(x);
    e + i32::from(times_power(x, -e) >= std::f64::consts::SQRT_2)
}

/// The e for which 2^e is nearest to the sum of finite values, each at least 0, divided by `n`; 0
/// if all are 0. The sum may exceed the range of f64.
pub(crate) fn nearest_to_mean(values: impl Iterator<Item = f64> + Clone, n: u64) -> i32 {
    let largest = values.clone().fold(0.0, f64::max);
    if largest == 0.0 || n == 0 {
        return 0;
    }
    let top = exponent(largest);
    let sum: f64 = values.map(|x| times_power(x, -top)).sum();
    top + nearest(sum / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_range_are_scaled() {
        let least = f64::from_bits(1);
        assert_eq!(times_power(least, 1074), 1.0);
        assert_eq!(times_power(1.0, -1074), least);
        assert_eq!(times_power(least, 2097), power(1023));
        assert_eq!(times_power(power(1023), -2097), least);
        assert_eq!(times_power(f64::MAX, -1024), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(times_power(1.0, 1024), f64::INFINITY);
        assert_eq!(times_power(1.0, -3000), 0.0);
        assert_eq!(times_power(0.0, 3000), 0.0);
        assert_eq!((exponent(least), exponent(f64::MAX)), (-1074, 1023));
        assert_eq!((nearest(1.0), nearest(1.4), nearest(1.5)), (0, 0, 1));
        assert_eq!(nearest_to_mean([f64::MAX; 3].into_iter(), 3), 1024);
        assert_eq!(nearest_to_mean([0.0].into_iter(), 1), 0);
    }

    proptest! {
        #[test]
        fn scaling_goes_and_comes_back(x in 1.0f64..2.0, n in -1022i32..=1023, m in -1022i32..=1023) {
            let scaled = times_power(x, n);
            prop_assert_eq!(exponent(scaled), n);
            prop_assert_eq!(times_power(scaled, m - n).to_bits(), times_power(x, m).to_bits());
            prop_assert_eq!(nearest(scaled), n + nearest(x));
        }

        /// Subnormal numbers are multiples of 2^-1074.
        #[test]
        fn results_are_rounded_once(digits in 1u64..1 << 53, cut in 1u32..60) {
            let (whole, half) = (digits >> cut, 1u64 << (cut - 1));
            let rest = digits & ((1u64 << cut) - 1);
            let up = rest > half || rest == half && whole % 2 == 1;
            let scaled = times_power(digits as f64, -1074 - cut as i32);
            prop_assert_eq!(scaled.to_bits(), whole + u64::from(up));
        }
    }
}
