//! Sums of floating-point numbers and of their squares without rounding, so that their order does
//! not matter.
//!
//! A sum is one integer with 2,200 bits: bit 0 has the value 2⁻¹⁰⁷⁴, the smallest positive f64
//! (Kulisch and Miranker 1986). It is kept in limbs of 32 bits with room for carries. A sum of
//! squares has twice the bits.

use crate::math::scale::times_power;
use serde::{Deserialize, Serialize};

/// Bits per limb.
const BITS: usize = 32;

/// Bits below 1 of a sum.
const BELOW: usize = 1074;

/// Limbs of a sum: 1,024 bits above 1, and 96 for carries and the sign.
const LIMBS: usize = (BELOW + 1024 + 96) / BITS + 1;

/// Limbs of a sum of squares.
const SQUARE_LIMBS: usize = (2 * BELOW + 2048 + 96) / BITS + 1;

/// Terms after which carries are moved. A limb grows by less than 2³³ per term.
const TERMS: u32 = 1 << 28;

/// An exact sum of finite numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExactSum(Limbs);

/// An integer as a sum of limbs times powers of 2³².
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Limbs {
    limbs: Vec<i64>,
    /// Terms since carries were moved.
    terms: u32,
}

/// The mantissa m and the exponent e ≥ 0 of |x| = m 2^(e − 1074).
fn parts(x: f64) -> (u64, usize) {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as usize;
    let fraction = bits & ((1 << 52) - 1);
    // Subnormal numbers have no hidden bit and the exponent of the smallest normal ones.
    match exponent {
        0 => (fraction, 0),
        e => (fraction | 1 << 52, e - 1),
    }
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum(Limbs::new(LIMBS))
    }
}

impl ExactSum {
    /// Adds a finite number.
    pub(crate) fn add(&mut self, x: f64) {
        let (mantissa, shift) = parts(x);
        let wide = u128::from(mantissa) << (shift % BITS);
        let first = shift / BITS;
        for (at, limb) in self.0.limbs[first..first + 3].iter_mut().enumerate() {
            let part = (wide >> (at * BITS)) as u32;
            *limb += if x < 0.0 {
                -i64::from(part)
            } else {
                i64::from(part)
            };
        }
        self.0.count_term();
    }

    /// Adds all terms of another sum.
    pub(crate) fn merge(&mut self, other: ExactSum) {
        self.0.merge(other.0);
    }

    /// Bytes on the heap.
    pub(crate) fn size(&self) -> usize {
        self.0.limbs.capacity() * size_of::<i64>()
    }

    /// The f64 that is nearest to the sum. So the sum of terms times a power of two is this number
    /// times the power, to the last bit.
    pub(crate) fn value(&self) -> f64 {
        let (is_negative, digits) = self.0.digits();
        let (mantissa, exponent) = leading(&digits).unwrap_or_default();
        let magnitude = times_power(mantissa, exponent - BELOW as i32);
        if is_negative { -magnitude } else { magnitude }
    }
}

/// The number, the exact sum and the exact sum of squares of finite numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExactMoments {
    n: u64,
    sum: ExactSum,
    squares: Limbs,
}

impl Default for ExactMoments {
    fn default() -> Self {
        ExactMoments {
            n: 0,
            sum: ExactSum::default(),
            squares: Limbs::new(SQUARE_LIMBS),
        }
    }
}

impl ExactMoments {
    /// Adds a finite number.
    pub(crate) fn add(&mut self, x: f64) {
        self.n += 1;
        self.sum.add(x);
        let (mantissa, shift) = parts(x);
        let square = u128::from(mantissa) * u128::from(mantissa);
        let (first, shift) = (2 * shift / BITS, 2 * shift % BITS);
        // The square has up to 106 bits, and up to 137 after the shift.
        let (low, high) = (square << shift, (square >> 64) >> (64 - shift));
        let limbs = &mut self.squares.limbs[first..first + 5];
        for (at, limb) in limbs[..4].iter_mut().enumerate() {
            *limb += i64::from((low >> (at * BITS)) as u32);
        }
        limbs[4] += high as i64;
        self.squares.count_term();
    }

    /// Adds all terms of other moments.
    pub(crate) fn merge(&mut self, other: ExactMoments) {
        self.n += other.n;
        self.sum.merge(other.sum);
        self.squares.merge(other.squares);
    }

    /// The standard deviation √(Σ(x − mean)² / n), to a few units in the last place. None if all
    /// numbers are equal.
    pub(crate) fn deviation(&self) -> Option<f64> {
        // n² times the variance is n Σx² − (Σx)².
        let n = [self.n as u32, (self.n >> BITS) as u32];
        let (_, sum) = self.sum.0.digits();
        let (_, squares) = self.squares.digits();
        let difference = less(product(&squares, &n), &product(&sum, &sum));
        let (mantissa, exponent) = leading(&difference)?;
        // An even power of two has a root.
        let exponent = exponent - 2 * BELOW as i32;
        let odd = exponent.rem_euclid(2);
        let root = times_power(mantissa, odd).sqrt() / self.n as f64;
        Some(times_power(root, (exponent - odd) / 2).max(f64::from_bits(1)))
    }

    /// (Σx)² / Σx², to a few units in the last place: the number of equal weights with as much
    /// noise as these. A power of two as a factor of all numbers changes no bit. None if all
    /// numbers are 0.
    pub(crate) fn effective(&self) -> Option<f64> {
        let (_, sum) = self.sum.0.digits();
        let (_, squares) = self.squares.digits();
        let (squares, of_squares) = leading(&squares)?;
        let (sum, of_sum) = leading(&product(&sum, &sum)).unwrap_or((0.0, of_squares));
        Some(times_power(sum / squares, of_sum - of_squares))
    }
}

/// The number m · 2^e of some digits, with m rounded: m and e. None for 0.
fn leading(digits: &[u32]) -> Option<(f64, i32)> {
    let top = digits.iter().rposition(|&digit| digit > 0)?;
    let lowest = top.saturating_sub(3);
    let of_top = digits[lowest..=top].iter().rev();
    let of_top = of_top.fold(0u128, |all, &digit| all << BITS | u128::from(digit));
    // The upper 64 bits, and whether others follow, decide about the rounding.
    let normal = of_top << of_top.leading_zeros();
    let has_rest = normal << 64 != 0 || digits[..lowest].iter().any(|&digit| digit > 0);
    let mantissa = (normal >> 64) as u64 | u64::from(has_rest);
    let bits = (top * BITS) as i32 + digits[top].ilog2() as i32 + 1;
    Some((mantissa as f64, bits - 64))
}

/// a · b for integers as digits of base 2³², the lowest first.
fn product(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut digits = vec![0; a.len() + b.len()];
    for (at, &x) in a.iter().enumerate() {
        let mut carry = 0;
        for (digit, &y) in digits[at..].iter_mut().zip(b.iter().chain(&[0])) {
            let sum = u64::from(*digit) + u64::from(x) * u64::from(y) + carry;
            (*digit, carry) = (sum as u32, sum >> BITS);
        }
    }
    digits
}

/// a − b for a ≥ b.
fn less(mut a: Vec<u32>, b: &[u32]) -> Vec<u32> {
    a.resize(a.len().max(b.len()), 0);
    let mut borrow = false;
    for (digit, &y) in a.iter_mut().zip(b.iter().chain(std::iter::repeat(&0))) {
        let (rest, first) = digit.overflowing_sub(y);
        let (rest, second) = rest.overflowing_sub(u32::from(borrow));
        (*digit, borrow) = (rest, first || second);
    }
    a
}

impl Limbs {
    fn new(limbs: usize) -> Limbs {
        Limbs {
            limbs: vec![0; limbs],
            terms: 0,
        }
    }

    fn count_term(&mut self) {
        self.terms += 1;
        if self.terms == TERMS {
            self.carry();
        }
    }

    fn merge(&mut self, mut other: Limbs) {
        self.carry();
        other.carry();
        for (limb, more) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += more;
        }
        self.terms = 1;
    }

    /// Moves carries, so that all limbs but the last are from 0 to 2³² − 1.
    fn carry(&mut self) {
        let mut carry = 0;
        let last = self.limbs.len() - 1;
        for limb in &mut self.limbs[..last] {
            let sum = *limb + carry;
            carry = sum >> BITS;
            *limb = sum & ((1 << BITS) - 1);
        }
        self.limbs[last] += carry;
        self.terms = 0;
    }

    /// Whether the integer is negative, and the digits of its magnitude, the lowest first.
    fn digits(&self) -> (bool, Vec<u32>) {
        let mut all = self.clone();
        all.carry();
        let is_negative = all.limbs.last().is_some_and(|&limb| limb < 0);
        if is_negative {
            all.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            all.carry();
        }
        // 96 spare bits hold the carries of 2⁶⁴ terms, so that the last limb is one digit, too.
        let digits = all.limbs.iter().map(|&limb| limb as u32).collect();
        (is_negative, digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(terms: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        terms.iter().for_each(|&x| sum.add(x));
        sum.value()
    }

    #[test]
    fn nothing_is_rounded() {
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[5e-324, 5e-324]), 1e-323);
        assert_eq!(sum(&[-0.5, 0.25]), -0.25);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
        assert_eq!(sum(&[-3.0, 1e-30]), -3.0);
        // Halves of the last digit go to the even number, and up with anything more.
        let half = f64::EPSILON / 2.0;
        assert_eq!(sum(&[1.0, half]), 1.0);
        assert_eq!(sum(&[1.0, half, 5e-324]), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[1.0, 3.0 * half]), 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }

    #[test]
    fn a_power_of_two_changes_no_digit() {
        let terms: Vec<f64> = (1..200).map(|n| 1.0 / f64::from(n)).collect();
        for power in [-900, -31, 1, 17, 64, 900] {
            let unit = 2f64.powi(power);
            let scaled: Vec<f64> = terms.iter().map(|x| x * unit).collect();
            assert_eq!(sum(&scaled), sum(&terms) * unit);
        }
    }

    #[test]
    fn order_and_parts_do_not_matter() {
        let terms: Vec<f64> = (0..1000)
            .map(|n| f64::from(n - 400).powi(3) * 10f64.powi(n % 17 - 8))
            .collect();
        let (mut a, mut b) = (ExactSum::default(), ExactSum::default());
        terms[..300].iter().for_each(|&x| a.add(x));
        terms[300..].iter().rev().for_each(|&x| b.add(x));
        b.merge(a);
        assert_eq!(b.value(), sum(&terms));
    }

    fn deviation(terms: &[f64]) -> Option<f64> {
        let mut moments = ExactMoments::default();
        terms.iter().for_each(|&x| moments.add(x));
        moments.deviation()
    }

    #[test]
    fn deviations_of_equal_and_of_extreme_numbers() {
        assert_eq!(deviation(&[]), None);
        assert_eq!(deviation(&[0.1; 7]), None);
        assert_eq!(deviation(&[-0.0, 0.0]), None);
        assert_eq!(deviation(&[1.0, 3.0]), Some(1.0));
        assert_eq!(deviation(&[f64::MAX, -f64::MAX]), Some(f64::MAX));
        // Half of the smallest number, and the smallest number.
        assert_eq!(deviation(&[0.0, 5e-324]), Some(5e-324));
        assert_eq!(deviation(&[5e-324, -5e-324]), Some(5e-324));
        assert_eq!(deviation(&[1.0, 1f64.next_up()]), Some(f64::EPSILON / 2.0));
    }

    #[test]
    fn equal_weights_count_one_by_one_and_powers_of_two_change_nothing() {
        let effective = |weights: &[f64]| {
            let mut moments = ExactMoments::default();
            weights.iter().for_each(|&w| moments.add(w));
            moments.effective()
        };
        assert_eq!(effective(&[0.0, 0.0]), None);
        for (weights, expected) in [
            (&[0.1; 7][..], 7.0),
            (&[5e-324; 3], 3.0),
            (&[f64::MAX; 5], 5.0),
            (&[1.0, 0.0, 3.0], 1.6),
        ] {
            let found = effective(weights).unwrap_or_default();
            assert!((found / expected - 1.0).abs() < 1e-15, "{found}");
        }
        let weights = [0.3, 0.07, 1.9, 0.1];
        let whole = effective(&weights);
        for power in [-900, -3, 1, 900] {
            assert_eq!(effective(&weights.map(|w| times_power(w, power))), whole);
        }
    }

    proptest! {
        /// Integers k from 0 to 2²⁰ at an offset and in a unit have the deviation of the integers,
        /// which is computed in integers.
        #[test]
        fn an_offset_does_not_change_a_deviation(
            terms in proptest::collection::vec(0i64..1 << 20, 2..40),
            cut in 0usize..40,
            offset in -(1i64 << 52)..1 << 52,
            unit in -1074i32..960,
        ) {
            let n = terms.len() as i128;
            let sum: i128 = terms.iter().map(|&k| i128::from(k)).sum();
            let squares: i128 = terms.iter().map(|&k| i128::from(k).pow(2)).sum();
            let expected = ((n * squares - sum * sum) as f64).sqrt() / n as f64;
            let scaled = terms.iter().map(|&k| times_power((k + offset) as f64, unit));
            let scaled: Vec<f64> = scaled.collect();
            let (first, second) = scaled.split_at(cut.min(terms.len()));
            let (mut all, mut part) = (ExactMoments::default(), ExactMoments::default());
            first.iter().for_each(|&x| all.add(x));
            second.iter().rev().for_each(|&x| part.add(x));
            part.merge(all);
            let found = part.deviation().unwrap_or(0.0);
            // In the unit of the numbers, subnormal results have few digits.
            let rounded = times_power(expected, unit);
            let error = (found - rounded).abs();
            prop_assert!(
                error <= 4.0 * f64::EPSILON * rounded + f64::from_bits(1),
                "{} instead of {}", found, rounded
            );
            prop_assert_eq!(part.deviation(), deviation(&scaled));
        }
    }
}
