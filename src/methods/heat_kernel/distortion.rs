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

/// The distances of pairs of `rows` (n × width).
pub(crate) fn distances(rows: &[f64], width: usize, pairs: &[(u32, u32)]) -> Vec<f64> {
    let row = |i: u32| &rows[i as usize * width..][..width];
    let distance = |&(i, j): &(u32, u32)| squared_distance(row(i), row(j)).sqrt();
    pairs.par_iter().map(distance).collect()
}

/// The ratio of two distances of a pair. None if the points are equal, or the rows not finite.
fn ratio((image, original): (&f64, &f64)) -> Option<f64> {
    (*original > 0.0 && image.is_finite()).then(|| image / original)
}

/// ln L of distances in an embedding against those of the points. None if all points or all of the
/// embedding are equal.
pub(crate) fn log(images: &[f64], originals: &[f64]) -> Option<f64> {
    let ratios = images.iter().zip(originals).filter_map(ratio);
    let widest = |(least, most): (f64, f64), ratio: f64| (least.min(ratio), most.max(ratio));
    let (least, most) = ratios.fold((f64::INFINITY, 0.0), widest);
    (most > 0.0).then(|| (most / least).ln())
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
    let pairs = random::pairs(n, most, seed);
    let images = distances(embedding, k, &pairs);
    let originals = distances(reference, d, &pairs);
    let mut ratios: Vec<f64> = images.iter().zip(&originals).filter_map(ratio).collect();
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
        let pairs = random::pairs(3, 100, 0);
        let [images, originals] = [&[0.0, 3.0, 4.0], &line].map(|own| distances(own, 1, &pairs));
        assert_eq!(log(&images, &originals), Some(found.log));
        assert_eq!(log(&images, &[0.0; 3]), None);
        assert_eq!(log(&[0.0; 3], &originals), None);
        assert_eq!(of(&[1.0, 2.0], 1, &[0.0, 0.0], 1, 100, 0), None);
        assert_eq!(of(&[0.0, 0.0], 1, &[1.0, 2.0], 1, 100, 0), None);
    }
}
