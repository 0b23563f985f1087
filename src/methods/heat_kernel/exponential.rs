//! The exponential function, in a form that the compiler vectorises.

use multiversion::multiversion;

/// 3/2 · 2⁵²: adding it rounds a small number to an integer, in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// ln 2 as a sum: the first part has few digits, so that its multiples are exact.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// 1/k! for k = 13 … 2.
const TAYLOR: [f64; 12] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
];

/// exp(x) for x ≤ 0, with a relative error below 1e-15; 0 below −708.
///
/// Fused multiply-adds give the same bits on every machine. The loop around this function must be
/// compiled for a target that has them, or they are slow.
#[inline(always)]
pub(crate) fn of_negative(x: f64) -> f64 {
    let bounded = x.max(-708.0);
    let shifted = bounded.mul_add(std::f64::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], bounded));
    let mut sum = TAYLOR[0];
    for c in &TAYLOR[1..] {
        sum = sum.mul_add(r, *c);
    }
    let value = (sum * r).mul_add(r, r) + 1.0;
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    if x < -708.0 { 0.0 } else { value * power }
}

/// x ← exp(factor · x) for every number, where factor · x ≤ 0.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub(crate) fn scaled(numbers: &mut [f64], factor: f64) {
    for x in numbers {
        *x = of_negative(*x * factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_below_1e_15() {
        let exact: Vec<f64> = (0..700_000).map(|i| -f64::from(i) / 1000.3).collect();
        let mut found = exact.clone();
        scaled(&mut found, 1.0);
        for (x, found) in exact.iter().zip(found) {
            assert!((found / x.exp() - 1.0).abs() < 1e-15, "{x}");
        }
        assert_eq!([0.0, -800.0].map(of_negative), [1.0, 0.0]);
    }
}
