//! The values of coordinates → boxes of a round width.

use crate::run::init::roles::{Order, coordinates, degrees};
use crate::run::init::survey::{Survey, SurveyColumn};

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

/// Boxes of at most two coordinates.
pub(crate) fn boxes(survey: &Survey, order: &Order) -> Vec<Boxes> {
    let taken: Vec<&str> = order.columns().map(String::as_str).collect();
    let mut columns = coordinates(survey, &taken);
    columns.truncate(2);
    let rows = survey
        .all_rows
        .map_or(survey.rows as f64, |rows| rows as f64);
    let all = (rows / ROWS_PER_BOX).max(4.0);
    let per_side = all
        .powf(1.0 / columns.len().max(1) as f64)
        .clamp(2.0, 100.0);
    let is_longitude = |column: &SurveyColumn| {
        degrees(survey).is_some_and(|[longitude, _]| longitude.name == column.name)
    };
    columns
        .iter()
        .filter_map(|column| {
            let sorted = column.sorted();
            if is_longitude(column) {
                return around(column, &sorted, per_side);
            }
            within(column, &sorted, per_side)
        })
        .collect()
}

/// Boxes around the globe, if the longitudes go most of the way.
fn around(column: &SurveyColumn, sorted: &[f64], per_side: f64) -> Option<Boxes> {
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    if high - low < 300.0 {
        return within(column, sorted, per_side);
    }
    let widths = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 90.0];
    let width = widths.into_iter().find(|width| 360.0 / width <= per_side);
    let bounds = if low < 0.0 {
        [-180.0, 180.0]
    } else {
        [0.0, 360.0]
    };
    Some(Boxes {
        column: column.name.clone(),
        bounds,
        boxes: (360.0 / width.unwrap_or(90.0)) as usize,
        is_periodic: true,
        outside: 0,
    })
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
    use crate::run::init::survey::ValueKind;
    use crate::run::init::survey::tests::column;

    #[test]
    fn widths_are_round() {
        let widths = [0.7, 1.0, 13.0, 0.011].map(round_width);
        assert_eq!(widths, [1.0, 1.0, 20.0, 0.02]);
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
