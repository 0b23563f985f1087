//! The values of a column → the period of angles, in degrees or in radians.

use crate::run::init::columns::SurveyColumn;
use crate::run::init::names::{Role, fit};
use std::f64::consts::{PI, TAU};

/// Fewer values do not show a range.
const LEAST: usize = 20;

/// The ranges of angles, the smaller ones first.
const RANGES: [[f64; 2]; 4] = [[-PI, PI], [0.0, TAU], [-180.0, 180.0], [0.0, 360.0]];

/// The range of a column of angles: both ends are the same angle. A name that says so, such as
/// `phi`, needs values in half of the range. Other columns need values near both ends of a range
/// around 0; those from 0 on are mostly no angles.
pub(crate) fn period(column: &SurveyColumn) -> Option<[f64; 2]> {
    let sorted = column.sorted();
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let is_named = fit(&column.name, Role::Angle) > 0;
    let holds = |[begin, end]: &[f64; 2]| {
        let width = end - begin;
        let is_within = low >= begin - 1e-6 * width && high <= end + 1e-6 * width;
        let is_full = low <= begin + 0.03 * width && high >= end - 0.03 * width;
        let is_half = high - low >= 0.5 * width;
        is_within && (is_named && is_half || *begin < 0.0 && is_full)
    };
    RANGES
        .into_iter()
        .find(holds)
        .filter(|_| sorted.len() >= LEAST)
}

/// Whether a range of angles is one of radians.
pub(crate) fn is_radians([low, high]: [f64; 2]) -> bool {
    high - low < 7.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::columns::ValueKind;
    use crate::run::init::survey::tests::column;

    #[test]
    fn angles_fill_their_range() {
        let of = |name: &str, low: f64, high: f64| {
            let step = (high - low) / 99.0;
            let values: Vec<f64> = (0..100).map(|k| low + step * f64::from(k)).collect();
            period(&column(name, ValueKind::Float, &values))
        };
        assert_eq!(of("a", -179.0, 178.5), Some([-180.0, 180.0]));
        assert_eq!(of("a", -3.1, 3.13), Some([-PI, PI]));
        // Without a name, half of a range or one from 0 on may be anything.
        assert_eq!(of("a", -179.0, 20.0), None);
        assert_eq!(of("a", 0.0, 359.0), None);
        assert_eq!(of("phi", -170.0, 20.0), Some([-180.0, 180.0]));
        assert_eq!(of("heading", 0.0, 359.0), Some([0.0, 360.0]));
        assert_eq!(of("theta_rad", 0.1, 6.2), Some([0.0, TAU]));
        assert_eq!(of("phi", -30.0, 20.0), None);
    }
}
