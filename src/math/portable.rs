//! Functions with the same bits on every machine: they use only additions, multiplications,
//! divisions, square roots and bit operations, in a fixed order and without fused multiply-add.

use std::f64::consts::{LN_2, PI, SQRT_2};

/// (v − n, bits whose lowest is the parity of n) for the integer n nearest to v, |v| < 2⁵¹. Adding
/// 1.5·2⁵² rounds to an integer and leaves it in the low bits of the sum. Unlike
/// `f64::round_ties_even` this needs only additions.
#[inline(always)]
pub(crate) fn nearest_integer(v: f64) -> (f64, u64) {
    const SHIFT: f64 = 1.5 * (1u64 << 52) as f64;
    let shifted = v + SHIFT;
    (v - (shifted - SHIFT), shifted.to_bits())
}

/// `v`, negated if the lowest bit of `odd` is set.
#[inline(always)]
pub(crate) fn flip(v: f64, odd: u64) -> f64 {
    f64::from_bits(v.to_bits() ^ (odd << 63))
}

/// sin(πs) for |s| ≤ 1, as s (1 − s²) q(s²) with the minimax polynomial q of degree 9 (relative
/// error 8·10⁻¹⁸ before rounding). The factors keep the zeros at 0 and ±1 exact and the function
/// exactly odd.
#[inline(always)]
pub(crate) fn sin_pi(s: f64) -> f64 {
    let w = s * s;
    let v = w * w;
    // Separate even and odd powers: two short chains of dependent operations overlap.
    let mut even = 2.2312641987892747e-8;
    even = even * v + 2.114247524882107e-5;
    even = even * v + 6.925270696029536e-3;
    even = even * v + 0.5240439134170197;
    even = even * v + PI;
    let mut odd = -4.787606438479325e-10;
    odd = odd * v - 7.726585070917055e-7;
    odd = odd * v - 4.4516019660172134e-4;
    odd = odd * v - 7.522061590179514e-2;
    odd = odd * v - 2.0261201264601723;
    s * (1.0 - w) * (even + w * odd)
}

/// cos(πs) for |s| < 2⁵¹.
pub(crate) fn cos_pi(s: f64) -> f64 {
    let (rest, odd) = nearest_integer(s);
    flip(sin_pi(0.5 - rest.abs()), odd)
}

/// (cos x, sin x) for an angle in radians, |x| < 2⁵⁰.
pub(crate) fn direction(x: f64) -> [f64; 2] {
    let s = x / PI;
    let (rest, odd) = nearest_integer(s);
    [cos_pi(s), flip(sin_pi(rest), odd)]
}

/// ln x for a positive normal number, correct to 2 ulp of the larger of 1 and the result, and to a
/// few ulp of the result next to 1. It has no branches, so that loops over it are vectorised.
#[inline(always)]
pub(crate) fn ln(x: f64) -> f64 {
    const ONE: u64 = 1.0f64.to_bits();
    /// The smallest mantissa that is halved: the one after √2.
    const HALVED: u64 = SQRT_2.to_bits() + 1 - ONE;
    const WHOLE: f64 = (1u64 << 52) as f64;
    // x = 2^k m with √½ < m ≤ √2. The sum carries into the exponent if the mantissa is halved.
    let biased = (x.to_bits() + ((1 << 52) - HALVED)) >> 52;
    let mantissa = f64::from_bits(x.to_bits() + ONE - (biased << 52));
    let exponent = f64::from_bits(WHOLE.to_bits() | biased) - (WHOLE + 1023.0);
    // ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …) with |s| < .172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let w = s * s;
    let mut series = 0.0;
    for k in (0..12).rev() {
        series = series * w + 1.0 / f64::from(2 * k + 1);
    }
    exponent * LN_2 + 2.0 * s * series
}

/// Two independent standard normal numbers from two uniform numbers of [0, 1) (Box–Muller).
pub(crate) fn normals(uniform: [f64; 2]) -> [f64; 2] {
    let radius = (-2.0 * ln(1.0 - uniform[0])).sqrt();
    let [cos, sin] = direction(2.0 * PI * uniform[1]);
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_are_correct_to_an_ulp_of_one() {
        for k in -4000..=4000 {
            let s = f64::from(k) / 4000.0;
            // π·s in working precision is off by up to an ulp, so the check avoids values near ±1.
            let exact = if s.abs() > 0.5 {
                (PI * (1.0 - s.abs())).sin().copysign(s)
            } else {
                (PI * s).sin()
            };
            let error = (sin_pi(s) - exact).abs();
            assert!(error <= 5e-16, "sin {s}π is off by {error:e}");
        }
        assert_eq!((sin_pi(1.0), sin_pi(-1.0), sin_pi(0.0)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn nearest_integers_are_exact() {
        for (v, n) in [
            (0.0, 0),
            (0.49, 0),
            (0.51, 1),
            (1.75, 2),
            (-0.6, -1),
            (-2.0, -2),
            (7.3, 7),
        ] {
            let (rest, odd) = nearest_integer(v);
            assert_eq!((rest, odd & 1), (v - f64::from(n), (n & 1) as u64), "{v}");
        }
    }

    #[test]
    fn logarithms_next_to_one_keep_their_digits() {
        assert_eq!(ln(1.0), 0.0);
        for k in 1..2000 {
            let u = f64::from(k) * 2f64.powi(-k / 40);
            for x in [1.0 + u * 1e-4, 1.0 - u * 1e-5] {
                let exact = x.ln();
                let error = (ln(x) - exact).abs();
                assert!(error <= 1e-15 * exact.abs(), "ln {x} is off by {error:e}");
            }
        }
    }

    #[test]
    fn directions_and_logarithms_agree_with_the_standard_library() {
        for k in -4000..4000 {
            let x = f64::from(k) * 0.01;
            let [cos, sin] = direction(x);
            let error = f64::max((cos - x.cos()).abs(), (sin - x.sin()).abs());
            assert!(error < 2e-15 * x.abs().max(1.0), "{x}: {error:e}");
            let x = (f64::from(k) * 0.1).exp();
            let error = (ln(x) - x.ln()).abs();
            assert!(error <= 4e-16 * x.ln().abs().max(1.0), "{x}: {error:e}");
        }
        assert_eq!((ln(1.0), cos_pi(0.0), cos_pi(0.5)), (0.0, 1.0, 0.0));
    }

    // The mean of the square and of the fourth power are 1 and 3.
    #[test]
    fn normal_numbers_have_the_moments_of_the_distribution() {
        let n = 400;
        let (mut squares, mut fourths) = (0.0, 0.0);
        for u in 0..n {
            for v in 0..n {
                let middle = |k: i32| (f64::from(k) + 0.5) / f64::from(n);
                let [a, b] = normals([middle(u), middle(v)]);
                squares += a * a + b * b;
                fourths += a.powi(4) + b.powi(4);
            }
        }
        let all = 2.0 * f64::from(n * n);
        assert!((squares / all - 1.0).abs() < 0.002, "{}", squares / all);
        assert!((fourths / all - 3.0).abs() < 0.03, "{}", fourths / all);
    }
}
