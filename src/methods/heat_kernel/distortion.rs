//! How much an embedding distorts distances (*heat kernel*, Section 5, (32)): L is the largest
//! ratio ‖f(x) − f(y)‖ / d(x, y) over the smallest.

use crate::methods::heat_kernel::random;
use crate::methods::heat_kernel::tree::squared_distance;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The quantiles of the ratio that are reported, in percent.
pub(crate) const QUANTILES: [u8; 5] = [0, 5, 50, 95, 100];

/// The distortion of an embedding on some pairs of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distortion {
    /// The number of pairs.
    pub pairs: usize,
    /// ln L. Infinite if the embedding has equal points.
    pub log: f64,
    /// The [`QUANTILES`] of the ratio.
    pub quantiles: [f64; 5],
}

/// The distortion of `embedding` (n × k) against Euclidean distances of `reference` (n × d), on all
/// pairs or on `most` random ones. None if all points of the reference or of the embedding are
/// equal. Rows that are not finite are left out.
pub(crate) fn of(
    embedding: &[f64],
    k: usize,
    reference: &[f64],
    d: usize,
    most: usize,
    seed: u64,
) -> Option<Distortion> {
    let n = reference.len() / d;
    assert_eq!(embedding.len(), n * k, "one row per point");
    let ratio = |(i, j): (u32, u32)| {
        let distance = |rows: &[f64], width: usize| {
            let row = |i: u32| &rows[i as usize * width..][..width];
            squared_distance(row(i), row(j)).sqrt()
        };
        let (image, original) = (distance(embedding, k), distance(reference, d));
        (original > 0.0 && image.is_finite()).then(|| image / original)
    };
    let pairs = random::pairs(n, most, seed);
    let mut ratios: Vec<f64> = pairs.into_par_iter().filter_map(ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    // All of 0 are no embedding.
    ratios.last().filter(|last| **last > 0.0)?;
    let last = ratios.len() - 1;
    let quantile = |q: u8| ratios[(last * usize::from(q) + 50) / 100];
    Some(Distortion {
        pairs: ratios.len(),
        log: (ratios[last] / ratios[0]).ln(),
        quantiles: QUANTILES.map(quantile),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretched_line_has_the_distortion_of_its_longest_step() {
        let line = [0.0, 1.0, 2.0];
        let found = of(&[0.0, 3.0, 4.0], 1, &line, 1, 100, 0).unwrap();
        assert_eq!((found.pairs, found.log), (3, 3f64.ln()));
        assert_eq!(found.quantiles, [1.0, 1.0, 2.0, 3.0, 3.0]);
        let twice = of(&[0.0, 2.0, 4.0], 1, &line, 1, 100, 0).unwrap();
        assert_eq!(twice.log, 0.0);
        assert_eq!(of(&[1.0, 2.0], 1, &[0.0, 0.0], 1, 100, 0), None);
        assert_eq!(of(&[0.0, 0.0], 1, &[1.0, 2.0], 1, 100, 0), None);
    }
}
