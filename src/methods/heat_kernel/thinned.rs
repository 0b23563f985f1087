//! Some of many points: the distinct ones with the smallest hashes, each with the weight of its
//! copies. Landmarks and distortions need no others, so the points of a fit with landmarks are
//! never in memory together.

use crate::evidence::points::Points;
use crate::methods::heat_kernel::random;
use std::collections::BTreeMap;

/// Points of the sample per landmark.
pub(crate) const SAMPLED: usize = 10;

/// Pairs of points on which the distortion is measured.
pub(crate) const PAIRS: usize = 125_000;

/// The number of points with about `most` pairs.
pub(crate) fn ends(most: usize) -> usize {
    ((2 * most) as f64).sqrt().ceil() as usize
}

/// The number of distinct points that a fit with this number of landmarks uses: candidates for
/// landmarks, and ends of the pairs whose distortion is measured.
pub(crate) fn points_of_landmarks(count: usize) -> usize {
    (SAMPLED * count).max(ends(PAIRS))
}

/// Distinct points with the smallest hashes, and the weight of all points.
#[derive(Debug, Clone)]
pub(crate) struct Thinned {
    dimension: usize,
    most: usize,
    seed: u64,
    kept: BTreeMap<u64, (Vec<f64>, f64)>,
    total: f64,
    /// Whether some point is not kept.
    is_partial: bool,
}

impl Thinned {
    /// No points of `dimension` coordinates yet, and room for `most` distinct ones.
    pub(crate) fn new(dimension: usize, most: usize, seed: u64) -> Thinned {
        Thinned {
            dimension,
            most: most.max(1),
            seed,
            kept: BTreeMap::new(),
            total: 0.0,
            is_partial: false,
        }
    }

    /// Takes a point. Weights are summed in the order of the calls. A point of weight 0 is left
    /// out.
    pub(crate) fn push(&mut self, row: &[f64], weight: f64) {
        if weight == 0.0 {
            return;
        }
        self.total += weight;
        let hash = random::hash(self.seed, random::of_point(row));
        if let Some((_, own)) = self.kept.get_mut(&hash) {
            *own += weight;
            return;
        }
        if self.kept.len() == self.most {
            self.is_partial = true;
            if self
                .kept
                .last_key_value()
                .is_some_and(|(last, _)| hash > *last)
            {
                return;
            }
            self.kept.pop_last();
        }
        self.kept.insert(hash, (row.to_vec(), weight));
    }

    /// The `most` points with the smallest hashes. Their weights add up to that of all points.
    pub(crate) fn points(&self, most: usize) -> Points {
        let kept = || self.kept.values().take(most);
        let is_partial = self.is_partial || self.kept.len() > most;
        let scale = if is_partial {
            self.total / kept().map(|(_, weight)| weight).sum::<f64>()
        } else {
            1.0
        };
        Points {
            dimension: self.dimension,
            coordinates: kept().flat_map(|(row, _)| row).copied().collect(),
            weights: Some(kept().map(|(_, weight)| weight * scale).collect()),
        }
    }
}

/// The `most` distinct points with the smallest hashes, with the weights of all.
pub(crate) fn thin(points: &Points, most: usize, seed: u64) -> Points {
    let mut thinned = Thinned::new(points.dimension, most, seed);
    for i in 0..points.n() {
        thinned.push(points.row(i), points.weight(i));
    }
    thinned.points(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stand_for_many_in_any_order() {
        let row = |k: usize| [(k % 40) as f64, (k % 7) as f64];
        let of = |order: &mut dyn Iterator<Item = usize>, most| {
            let mut thinned = Thinned::new(2, most, 3);
            order.for_each(|k| thinned.push(&row(k), if k == 5 { 0.0 } else { 1.0 }));
            thinned
        };
        // 280 rows are distinct, one of which has weight 0; each of the others comes twice.
        let all = of(&mut (0..560).map(|k| k % 280), 1000).points(1000);
        assert_eq!(all.n(), 279);
        let weights = all.weights.as_ref();
        assert!(weights.is_some_and(|w| w.iter().all(|w| *w == 2.0)));
        let some = of(&mut (0..560).map(|k| k % 280), 20);
        let back = of(&mut (0..560).rev().map(|k| k % 280), 20);
        assert_eq!(some.points(20), back.points(20));
        let (ten, of_all) = (some.points(10), thin(&all, 10, 3));
        assert_eq!((ten.n(), &ten.coordinates), (10, &of_all.coordinates));
        let sum: f64 = ten.weights.iter().flatten().sum();
        assert!((sum - 558.0).abs() < 1e-9, "{sum}");
        // Points that are few enough stay as they are.
        assert_eq!(thin(&ten, 10, 3), ten);
    }
}
