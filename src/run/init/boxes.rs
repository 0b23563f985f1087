//! The values of coordinates → boxes of a round width.

use crate::run::init::angles::period;
use crate::run::init::columns::SurveyColumn;
use crate::run::init::roles::{Order, coordinates, degrees};
use crate::run::init::survey::Survey;

/// The boxes of a coordinate.
#[derive(Debug, Clone, PartialEq)]
pub struct Boxes {
    /// The column.
    pub column: String,
    /// The lowest and the highest border.
    pub bounds: [f64; 2],
    /// The number of boxes.
    pub boxes: usize,
    /// Whether both borders are the same place.
    pub is_periodic: bool,
    /// Sampled values outside the bounds.
    pub outside: usize,
}

/// Rows per box that are aimed at.
const ROWS_PER_BOX: f64 = 50.0;

/// The columns of at most two coordinates. Angles come first: one of them alone is half of a place.
pub(crate) fn box_columns<'a>(survey: &'a Survey, order: &Order) -> Vec<&'a SurveyColumn> {
    let mut columns = coordinates(survey, Some(order));
    if !survey.given.coordinates.is_empty() {
        return columns;
    }
    if degrees(survey).is_none() {
        // The sort is stable: other columns keep their order.
        columns.sort_by_key(|column| period(column).is_none());
    }
    columns.truncate(2);
    columns
}

/// Boxes of at most two coordinates.
pub(crate) fn boxes(survey: &Survey, order: &Order) -> Vec<Boxes> {
    let columns = box_columns(survey, order);
    let rows = survey
        .all_rows
        .map_or(survey.rows as f64, |rows| rows as f64);
    let all = (rows / ROWS_PER_BOX).max(4.0);
    let per_side = all
        .powf(1.0 / columns.len().max(1) as f64)
        .clamp(2.0, 100.0);
    let longitude = degrees(survey).map(|[longitude, _]| &longitude.name);
    let pole_to_pole = degrees(survey).map(|[_, latitude]| &latitude.name);
    columns
        .iter()
        .filter_map(|column| {
            let sorted = column.sorted();
            let period = match Some(&column.name) {
                name if name == longitude => longitudes(&sorted),
                name if name == pole_to_pole => None,
                _ => period(column),
            };
            match period {
                Some(period) => Some(around(column, period, per_side)),
                None => within(column, &sorted, per_side),
            }
        })
        .collect()
}

/// The range of longitudes that go most of the way around the globe.
fn longitudes(sorted: &[f64]) -> Option<[f64; 2]> {
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let range = if low < 0.0 {
        [-180.0, 180.0]
    } else {
        [0.0, 360.0]
    };
    (high - low >= 300.0).then_some(range)
}

/// Boxes around a circle, of a round number of degrees.
fn around(column: &SurveyColumn, bounds: [f64; 2], per_side: f64) -> Boxes {
    let widths = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 90.0];
    let width = widths.into_iter().find(|width| 360.0 / width <= per_side);
    Boxes {
        column: column.name.clone(),
        bounds,
        boxes: (360.0 / width.unwrap_or(90.0)) as usize,
        is_periodic: true,
        outside: 0,
    }
}

/// Boxes of a round width over the values. Values that are far from all others are left outside.
fn within(column: &SurveyColumn, sorted: &[f64], per_side: f64) -> Option<Boxes> {
    let quantile = |share: f64| {
        sorted
            .get((share * (sorted.len() - 1) as f64) as usize)
            .copied()
    };
    let (mut low, mut high) = (*sorted.first()?, *sorted.last()?);
    let (inner_low, inner_high) = (quantile(0.001)?, quantile(0.999)?);
    let inner = inner_high - inner_low;
    if inner > 0.0 && inner_low - low > inner {
        low = inner_low;
    }
    if inner > 0.0 && high - inner_high > inner {
        high = inner_high;
    }
    if high <= low {
        return None;
    }
    let width = round_width((high - low) / per_side);
    let (first, mut last) = ((low / width).floor(), (high / width).ceil());
    if last - first < 2.0 {
        last = first + 2.0;
    }
    // Whole numbers of tenths and the like divide exactly, their products do not.
    let border = |n: f64| {
        if width < 1.0 {
            n / (1.0 / width).round()
        } else {
            n * width
        }
    };
    let bounds = [border(first), border(last)];
    let outside = sorted.iter().filter(|x| **x < bounds[0] || **x > bounds[1]);
    Some(Boxes {
        column: column.name.clone(),
        bounds,
        boxes: (last - first) as usize,
        is_periodic: false,
        outside: outside.count(),
    })
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `width`.
fn round_width(width: f64) -> f64 {
    let power = width.log10().floor();
    let scale = |x: f64| {
        if power < 0.0 {
            x / 10f64.powf(-power)
        } else {
            x * 10f64.powf(power)
        }
    };
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(scale);
    round
        .into_iter()
        .find(|w| *w >= width * (1.0 - 1e-9))
        .unwrap_or(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::columns::ValueKind;
    use crate::run::init::roles::order;
    use crate::run::init::survey::tests::{column, survey};

    #[test]
    fn widths_are_round() {
        let widths = [0.7, 1.0, 13.0, 0.011].map(round_width);
        assert_eq!(widths, [1.0, 1.0, 20.0, 0.02]);
    }

    #[test]
    fn angles_come_first_and_have_periods() {
        let angle = |factor: f64| -> Vec<f64> {
            let turns = (0..400).map(|k| factor * f64::from(k));
            turns.map(|turn| 360.0 * (turn % 1.0) - 180.0).collect()
        };
        let time: Vec<f64> = (0..400).map(f64::from).collect();
        let energy: Vec<f64> = time.iter().map(|k| (0.3 * k).sin()).collect();
        let half_time: Vec<f64> = time.iter().map(|k| 0.5 * k).collect();
        let table = survey(vec![
            column("frame", ValueKind::Integer, &time),
            column("time_ps", ValueKind::Float, &half_time),
            column("energy", ValueKind::Float, &energy),
            column("phi", ValueKind::Float, &angle(0.137)),
            column("psi", ValueKind::Float, &angle(0.291)),
        ]);
        let order = order(&table).expect("an order");
        let found = boxes(&table, &order);
        let names: Vec<&str> = found.iter().map(|boxes| boxes.column.as_str()).collect();
        assert_eq!(names, ["phi", "psi"]);
        assert!(found.iter().all(|boxes| boxes.is_periodic));
        // 400 rows, 50 per box: 8 boxes, so at most 2.8 per side; four is the smallest number.
        assert_eq!((found[0].bounds, found[0].boxes), ([-180.0, 180.0], 4));
    }

    #[test]
    fn values_far_from_all_others_are_outside() {
        let mut values: Vec<f64> = (0..2000).map(|i| f64::from(i) / 2000.0).collect();
        values.push(1e9);
        let column = column("x", ValueKind::Float, &values);
        let found = within(&column, &column.sorted(), 10.0).expect("boxes");
        assert_eq!(
            (found.bounds, found.boxes, found.outside),
            ([0.0, 1.0], 10, 1)
        );
    }
}
