//! Sums of floating-point numbers without rounding, so that their order does not matter.
//!
//! A sum is one integer with 2,200 bits: bit 0 has the value 2⁻¹⁰⁷⁴, the smallest positive f64
//! (Kulisch and Miranker 1986). It is kept in limbs of 32 bits with room for carries.

use serde::{Deserialize, Serialize};

/// Bits per limb.
const BITS: usize = 32;

/// Limbs: 1,074 bits below 1, 1,024 above, and 96 for carries and the sign.
const LIMBS: usize = (1074 + 1024 + 96) / BITS + 1;

/// Terms after which carries are moved. A limb grows by less than 2³³ per term.
const TERMS: u32 = 1 << 28;

/// An exact sum of finite numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExactSum {
    limbs: Vec<i64>,
    /// Terms since carries were moved.
    terms: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum {
            limbs: vec![0; LIMBS],
            terms: 0,
        }
    }
}

impl ExactSum {
    /// Adds a finite number.
    pub fn add(&mut self, x: f64) {
        let bits = x.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        // Subnormal numbers have no hidden bit and the exponent of the smallest normal ones.
        let (mantissa, shift) = match exponent {
            0 => (fraction, 0),
            e => (fraction | 1 << 52, e - 1),
        };
        let wide = u128::from(mantissa) << (shift % BITS);
        let first = shift / BITS;
        for (at, limb) in self.limbs[first..first + 3].iter_mut().enumerate() {
            let part = (wide >> (at * BITS)) as u32;
            *limb += if x < 0.0 {
                -i64::from(part)
            } else {
                i64::from(part)
            };
        }
        self.terms += 1;
        if self.terms == TERMS {
            self.carry();
        }
    }

    /// Adds all terms of another sum.
    pub fn merge(&mut self, mut other: ExactSum) {
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
        let last = LIMBS - 1;
        for limb in &mut self.limbs[..last] {
            let sum = *limb + carry;
            carry = sum >> BITS;
            *limb = sum & ((1 << BITS) - 1);
        }
        self.limbs[last] += carry;
        self.terms = 0;
    }

    /// The sum, rounded. The error is below 2⁻⁵² of the sum.
    pub fn value(&self) -> f64 {
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.limbs[LIMBS - 1] < 0;
        if negative {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            sum.carry();
        }
        // From the smallest limb upwards, because the smallest may be subnormal.
        let magnitude = sum
            .limbs
            .iter()
            .enumerate()
            .fold(0.0, |total, (at, &limb)| {
                total + times_power_of_two(limb as f64, (at * BITS) as i32 - 1074)
            });
        if negative { -magnitude } else { magnitude }
    }
}

/// x · 2ⁿ for |x| < 2³³, also if 2ⁿ is no normal number.
fn times_power_of_two(x: f64, n: i32) -> f64 {
    let half = n / 2;
    x * 2f64.powi(half) * 2f64.powi(n - half)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
