//! Random numbers by counter: a number depends on the seed and on what it is for, not on the order
//! in which numbers are drawn.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The finaliser of SplitMix64.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A hash of two numbers.
pub(crate) fn hash(a: u64, b: u64) -> u64 {
    mixed(mixed(a.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// A hash of the coordinates of a point, which names the point in random draws.
pub(crate) fn of_point(point: &[f64]) -> u64 {
    point.iter().fold(0, |h, x| hash(h, (x + 0.0).to_bits()))
}

/// A uniform number in (0, 1).
pub(crate) fn uniform(key: u64) -> f64 {
    ((mixed(key) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// A standard normal number, by the method of Box and Muller.
pub(crate) fn normal(key: u64) -> f64 {
    let (radius, angle) = (uniform(hash(key, 1)), uniform(hash(key, 2)));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// −1 or 1.
pub(crate) fn sign(key: u64) -> f64 {
    if mixed(key) >> 63 == 0 { 1.0 } else { -1.0 }
}

/// Pairs of different numbers below `n`: all of them if there are at most `most`, else `most`
/// random ones.
pub(crate) fn pairs(n: usize, most: usize, seed: u64) -> Vec<(u32, u32)> {
    if n * n.saturating_sub(1) / 2 <= most {
        let row = |i: u32| (0..i).map(move |j| (i, j));
        return (0..n as u32).flat_map(row).collect();
    }
    let mut random = Pcg64::seed_from_u64(seed);
    let mut pair = || {
        let i = random.random_range(0..n as u32);
        let j = random.random_range(0..n as u32 - 1);
        (i, j + u32::from(j >= i))
    };
    (0..most).map(|_| pair()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_normal_numbers() {
        let n = 100_000u64;
        let moment = |p| (0..n).map(|i| normal(hash(7, i)).powi(p)).sum::<f64>() / n as f64;
        for (p, expected) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
            assert!((moment(p) - expected).abs() < 0.1, "moment {p}");
        }
        let signs: f64 = (0..n).map(|i| sign(hash(7, i))).sum();
        assert!(signs.abs() < 5.0 * (n as f64).sqrt());
    }

    #[test]
    fn pairs_differ() {
        assert_eq!(pairs(4, 10, 0).len(), 6);
        assert!(pairs(50, 100, 0).iter().all(|(i, j)| i != j));
    }
}
