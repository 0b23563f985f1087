//! Sums with a fixed order, so that the last digit does not depend on threads or shards.

use rayon::prelude::*;
use std::ops::Range;

/// Terms that are added one after another into a block sum. The number is fixed because it
/// determines the rounding.
pub(crate) const BLOCK: usize = 4096;

/// Σ over `0..n`, where `block(range)` adds up a range from left to right. Blocks run in parallel
/// and are added in order.
pub(crate) fn blocks(n: usize, block: impl Fn(Range<usize>) -> f64 + Sync) -> f64 {
    let parts: Vec<f64> = (0..n.div_ceil(BLOCK))
        .into_par_iter()
        .map(|b| block(b * BLOCK..((b + 1) * BLOCK).min(n)))
        .collect();
    parts.iter().sum()
}

/// Σ term(i) over `0..n`.
pub(crate) fn terms(n: usize, term: impl Fn(usize) -> f64 + Sync) -> f64 {
    blocks(n, |range| range.map(&term).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::on_threads;

    #[test]
    fn the_last_digit_does_not_depend_on_threads() {
        let term = |i: usize| 1.0 / (1.0 + i as f64).sqrt();
        let [one, many] = [1, 5].map(|n| on_threads(n, || terms(100_000, term)));
        assert_eq!(one.to_bits(), many.to_bits());
        assert_eq!(terms(0, term), 0.0);
    }
}
