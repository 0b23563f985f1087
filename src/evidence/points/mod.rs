//! Points of a Euclidean space, and pairs of points one lag time apart.

use serde::{Deserialize, Serialize};

/// The sizes on which the memory of a fit depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointSize {
    /// The number of points, n.
    pub points: u64,
    /// Coordinates per point, d.
    pub dimension: u64,
    /// The number of lags.
    pub lags: u64,
}

/// Weighted points, all of one dimension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Points {
    /// Coordinates per point, d.
    pub dimension: usize,
    /// n × d, row-major and finite.
    pub coordinates: Vec<f64>,
    /// One weight per point, finite and not negative. Without weights, every point weighs 1.
    pub weights: Option<Vec<f64>>,
}

impl Points {
    /// Points that all weigh 1.
    ///
    /// # Panics
    /// If the coordinates are not whole points.
    pub fn new(dimension: usize, coordinates: Vec<f64>) -> Points {
        assert!(
            dimension > 0 && coordinates.len().is_multiple_of(dimension),
            "{} coordinates are not points of dimension {dimension}",
            coordinates.len()
        );
        Points {
            dimension,
            coordinates,
            weights: None,
        }
    }

    /// The same points with weights.
    ///
    /// # Panics
    /// Unless there is one weight per point.
    pub fn with_weights(self, weights: Vec<f64>) -> Points {
        assert_eq!(weights.len(), self.n(), "one weight per point");
        Points {
            weights: Some(weights),
            ..self
        }
    }

    /// The number of points, n.
    pub(crate) fn n(&self) -> usize {
        self.coordinates.len() / self.dimension.max(1)
    }

    /// The coordinates of a point.
    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.coordinates[i * self.dimension..][..self.dimension]
    }

    /// The coordinates of some points, row-major.
    pub(crate) fn rows(&self, points: &[usize]) -> Vec<f64> {
        let rows = points.iter().flat_map(|&i| self.row(i));
        rows.copied().collect()
    }

    /// The weight of a point.
    pub(crate) fn weight(&self, i: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights[i])
    }
}

/// Pairs of points: the second point of a pair is one lag time after the first.
///
/// Every point is stored once, although it may be the start of one pair and the end of another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pairs {
    /// The points. The weight of a pair is the weight of its start.
    pub points: Points,
    /// The start and the end of every pair, as positions in `points`.
    pub pairs: Vec<(u32, u32)>,
}

impl Pairs {
    /// The pairs of one trajectory whose rows have equal time steps.
    #[cfg(test)]
    pub(crate) fn lagged(points: Points, lag: usize) -> Pairs {
        let starts = points.n().saturating_sub(lag);
        let pairs = (0..starts).map(|i| (i as u32, (i + lag) as u32)).collect();
        Pairs { points, pairs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_has_a_pair_per_row_with_a_successor() {
        let points = Points::new(2, (0..8).map(f64::from).collect());
        assert_eq!((points.n(), points.row(1)), (4, &[2.0, 3.0][..]));
        assert_eq!(points.weight(3), 1.0);
        let pairs = Pairs::lagged(points.clone(), 3);
        assert_eq!(pairs.pairs, [(0, 3)]);
        assert!(Pairs::lagged(points.clone(), 4).pairs.is_empty());
        let weighted = points.with_weights(vec![1.0, 2.0, 0.5, 0.0]);
        assert_eq!(weighted.weight(2), 0.5);
        assert_eq!(Points::default().n(), 0);
    }
}
