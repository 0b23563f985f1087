//! Adds up the objectives of filtered rows.

use crate::methods::filter::model::Estimates;
use serde::{Deserialize, Serialize};

/// Sums over the objectives of rows.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Objectives {
    /// Rows with an objective.
    rows: u64,
    sum: f64,
    /// The largest share above a minimum.
    pub(crate) excess: Option<f64>,
    /// Rows with a distance from supervision.
    supervised: u64,
    distance: f64,
}

impl Objectives {
    /// Adds a row. `at` is its place in the estimates, which may have no objectives.
    pub(crate) fn add_row(&mut self, found: &Estimates, at: usize) {
        let of = |values: &[f64]| values.get(at).copied().filter(|value| !value.is_nan());
        if let Some(objective) = of(&found.objective) {
            self.rows += 1;
            self.sum += objective;
        }
        self.raise(of(&found.objective_excess));
        if let Some(distance) = of(&found.supervision_distance) {
            self.supervised += 1;
            self.distance += distance;
        }
    }

    fn raise(&mut self, excess: Option<f64>) {
        let both = [self.excess, excess].into_iter().flatten();
        self.excess = both.reduce(f64::max);
    }

    /// Adds other rows.
    pub(crate) fn add(&mut self, other: &Objectives) {
        self.rows += other.rows;
        self.sum += other.sum;
        self.raise(other.excess);
        self.supervised += other.supervised;
        self.distance += other.distance;
    }

    /// The mean objective.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }

    /// The mean distance from supervision.
    pub(crate) fn mean_distance(&self) -> Option<f64> {
        (self.supervised > 0).then(|| self.distance / self.supervised as f64)
    }
}
