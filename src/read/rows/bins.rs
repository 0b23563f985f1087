//! Coordinates → box numbers (coherence, appendix A: Ulam boxes).
//!
//! In: one real coordinate. Out: the number of the half-open box `[left, right)` that contains it,
//! or `None` outside all boxes. A coordinate that is not finite has no box. The borders are those
//! that the tables show: the doubles nearest to the decimals of the pipeline.

use crate::read::rows::decimal::{Sequence, ShortSequence};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one coordinate is cut into boxes of equal width. Give exactly one of `step` and `boxes`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bin", extend("oneOf" = [{ "required": ["step"] }, { "required": ["boxes"] }]))]
pub(crate) struct BinText {
    /// Width of a box, in the unit of the column.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub step: Option<f64>,
    /// Number of boxes between the bounds or in one period.
    #[schemars(range(min = 1))]
    pub boxes: Option<u32>,
    /// Lowest and highest value: the highest one belongs to the last box.
    pub bounds: Option<[f64; 2]>,
    /// What happens to values outside the bounds; they are dropped unless this says otherwise.
    pub outside: Option<Outside>,
    /// One period `[low, high]`, such as [-180, 180]: low and high are the same point.
    pub periodic: Option<[f64; 2]>,
    /// A border between boxes, for boxes without bounds; 0 unless given.
    pub origin: Option<f64>,
}

/// What happens to a coordinate outside the bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outside {
    /// The row has no state.
    #[default]
    Drop,
    /// The row goes to the nearest box.
    Clip,
    /// The run fails.
    Error,
}

/// A checked way to number the boxes of one coordinate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binning {
    /// Box k is [origin + k·step, origin + (k + 1)·step), for every integer k.
    Open {
        /// A border between boxes.
        origin: f64,
        /// Width of a box.
        step: f64,
    },
    /// Boxes 0..boxes of equal width from low to high; high itself is in the last one.
    Bounded {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
        /// Number of boxes.
        boxes: u32,
        /// What happens to values outside the bounds.
        outside: Outside,
    },
    /// Boxes 0..boxes of equal width on the circle that joins high to low.
    Periodic {
        /// Start of the period.
        low: f64,
        /// End of the period.
        high: f64,
        /// Number of boxes per period.
        boxes: u32,
    },
}

impl Binning {
    /// Checks the keys of a `bin` table.
    ///
    /// # Errors
    /// The key at fault (or "") and what it must be.
    pub(crate) fn new(text: &BinText) -> Result<Binning, (&'static str, String)> {
        let &BinText {
            step,
            boxes,
            bounds,
            outside,
            periodic,
            origin,
        } = text;
        if step.is_some() == boxes.is_some() {
            return Err(("", "needs exactly one of `step` and `boxes`".into()));
        }
        if let Some(step) = step
            && !(step > 0.0 && step.is_finite())
        {
            return Err(("step", format!("must be above zero and finite, not {step}")));
        }
        if boxes == Some(0) {
            return Err(("boxes", "must be at least 1, not 0".into()));
        }
        if let (Some(_), Some(_)) = (periodic, bounds) {
            return Err((
                "bounds",
                "does not go with `periodic`, which has no bounds".into(),
            ));
        }
        if bounds.is_none() && outside.is_some() {
            return Err(("outside", "only makes sense with `bounds`".into()));
        }
        if origin.is_some() && (bounds.is_some() || periodic.is_some() || step.is_none()) {
            return Err((
                "origin",
                "only makes sense with `step` and without `bounds` or `periodic`, which say where boxes start"
                    .into(),
            ));
        }
        if let Some(range) = bounds {
            let boxes = box_count("bounds", range, step, boxes)?;
            return Ok(Binning::Bounded {
                low: range[0],
                high: range[1],
                boxes,
                outside: outside.unwrap_or_default(),
            });
        }
        if let Some(range) = periodic {
            let boxes = box_count("periodic", range, step, boxes)?;
            return Ok(Binning::Periodic {
                low: range[0],
                high: range[1],
                boxes,
            });
        }
        let Some(step) = step else {
            return Err(("boxes", "needs `bounds` or `periodic` beside it".into()));
        };
        let origin = origin.unwrap_or(0.0);
        if !origin.is_finite() {
            return Err(("origin", format!("must be finite, not {origin}")));
        }
        Ok(Binning::Open { origin, step })
    }

    /// The places of the boxes.
    pub(crate) fn grid(&self) -> Grid {
        let borders = match *self {
            Binning::Open { origin, step } => Sequence::by_step(origin, step),
            Binning::Bounded {
                low, high, boxes, ..
            }
            | Binning::Periodic { low, high, boxes } => Sequence::between(low, high, boxes),
        };
        Grid {
            binning: self.clone(),
            borders,
        }
    }
}

/// How exactly a column holds its values. A border is rounded like them, so that 0.1 in a Float32
/// column is on the border 0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// Float16.
    Half,
    /// Float32.
    Single,
    /// Float64, and all other types, which are read as Float64.
    Double,
}

impl Precision {
    /// The precision of a column.
    pub(crate) fn of(data_type: &DataType) -> Precision {
        match data_type {
            DataType::Float16 => Precision::Half,
            DataType::Float32 => Precision::Single,
            _ => Precision::Double,
        }
    }

    /// The type of a column of this precision.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Precision::Half => DataType::Float16,
            Precision::Single => DataType::Float32,
            Precision::Double => DataType::Float64,
        }
    }

    /// The nearest value of this precision.
    #[inline]
    fn rounded(self, x: f64) -> f64 {
        match self {
            Precision::Half => <Float16Type as ArrowPrimitiveType>::Native::from_f64(x).into(),
            Precision::Single => f64::from(x as f32),
            Precision::Double => x,
        }
    }

    /// The largest error of rounding, relative to the value; and the largest one of small values.
    fn errors(self) -> [f64; 2] {
        match self {
            Precision::Half => [2f64.powi(-11), 2f64.powi(-25)],
            Precision::Single => [2f64.powi(-24), 2f64.powi(-150)],
            Precision::Double => [UNIT, f64::from_bits(1)],
        }
    }
}

/// The largest relative error of one operation on doubles.
const UNIT: f64 = f64::EPSILON / 2.0;

/// Centres and borders of boxes, in the unit of the column. They are the doubles nearest to their
/// decimal values, without the rounding of double arithmetic.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    binning: Binning,
    /// None if the borders have too many digits.
    borders: Option<Sequence>,
}

impl Grid {
    /// The box of a double; see [`Locator::index`].
    pub(crate) fn index(&self, x: f64) -> Option<i64> {
        self.locator(Precision::Double).index(x)
    }

    /// Finds the boxes of the values of a column.
    pub(crate) fn locator(&self, precision: Precision) -> Locator<'_> {
        let (start, end, first, count) = match self.binning {
            Binning::Open { origin, .. } => (origin, origin, i64::MIN, u64::MAX),
            Binning::Bounded {
                low, high, boxes, ..
            }
            | Binning::Periodic { low, high, boxes } => (low, high, 0, u64::from(boxes)),
        };
        let per_unit = match self.binning {
            Binning::Open { step, .. } => 1.0 / step,
            Binning::Bounded { .. } | Binning::Periodic { .. } => count as f64 / (end - start),
        };
        // Relative errors of the numbers of the pipeline, of each operation, and of the border; the
        // last ones of the border alone. Twice the sum leaves room for terms of second order.
        let [relative, least] = precision.errors();
        let farthest = start.abs() + end.abs();
        let is_range = start < end;
        let of_range = if is_range {
            farthest / (end - start)
        } else {
            0.0
        };
        Locator {
            grid: self,
            precision,
            start,
            per_unit,
            first,
            count,
            borders: self.borders.as_ref().and_then(Sequence::short),
            bounds: [precision.rounded(start), precision.rounded(end)],
            tolerance: [
                2.0 * (UNIT * (4.0 + of_range) + relative),
                2.0 * ((2.0 * UNIT + relative) * farthest + least) * per_unit,
            ],
        }
    }

    /// The centre of box `index`.
    pub(crate) fn center(&self, index: i64) -> f64 {
        let halves = 2 * i128::from(index) + 1;
        // A written centre identifies its box, also if the box has few doubles.
        let is_in_box = |&x: &f64| self.index(x) == Some(index);
        let exact = self.exact(halves).filter(is_in_box);
        let center = exact.or_else(|| Some(self.rounded(halves)).filter(is_in_box));
        center.unwrap_or_else(|| self.low(index))
    }

    /// The lower border of box `index`, which belongs to the box.
    pub(crate) fn low(&self, index: i64) -> f64 {
        self.border(i128::from(index))
    }

    /// The upper border of box `index`, which is the lower border of the next box.
    pub(crate) fn high(&self, index: i64) -> f64 {
        self.border(i128::from(index) + 1)
    }

    fn border(&self, number: i128) -> f64 {
        self.exact(2 * number)
            .unwrap_or_else(|| self.rounded(2 * number))
    }

    fn exact(&self, halves: i128) -> Option<f64> {
        self.borders.as_ref()?.at_half(halves)
    }

    fn rounded(&self, halves: i128) -> f64 {
        let steps = halves as f64 * 0.5;
        match self.binning {
            Binning::Open { origin, step } => origin + steps * step,
            Binning::Bounded {
                low, high, boxes, ..
            }
            | Binning::Periodic { low, high, boxes } => {
                if steps == f64::from(boxes) {
                    return high;
                }
                low + steps * (high - low) / f64::from(boxes)
            }
        }
    }
}

/// Finds the boxes of values of one precision. The quotient of a value and the width of a box is
/// rounded, so a value next to a border is compared with the border.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locator<'a> {
    grid: &'a Grid,
    precision: Precision,
    /// The borders, if they have few digits.
    borders: Option<ShortSequence>,
    /// The lower border of box 0.
    start: f64,
    /// Boxes per unit of the column.
    per_unit: f64,
    /// The first number of a box, and how many boxes there are.
    first: i64,
    count: u64,
    /// Bounds or period, rounded like the values.
    bounds: [f64; 2],
    /// The error of a position p is at most the first number times |p|, plus the second.
    tolerance: [f64; 2],
}

impl Locator<'_> {
    /// The box of `x`: the border below it, or equal to it, is the lower border of the box. The
    /// upper bound belongs to the last box. `None` if x is not finite, if it is outside bounds that
    /// do not clip, or, without bounds, if the number does not fit an i64.
    #[inline]
    pub(crate) fn index(&self, x: f64) -> Option<i64> {
        let position = (x - self.start) * self.per_unit;
        // The number of the box, but for values next to a border.
        let k = position as i64 - i64::from(position < 0.0);
        let from_middle = (position - k as f64 - 0.5).abs();
        // False for NaN.
        let is_inside = from_middle < 0.5 - self.error(position);
        if is_inside && (k.wrapping_sub(self.first) as u64) < self.count {
            Some(k)
        } else {
            self.compared(x, position, is_inside.then_some(k))
        }
    }

    /// The error of a position.
    #[inline]
    fn error(&self, position: f64) -> f64 {
        self.tolerance[0] * position.abs() + self.tolerance[1]
    }

    /// The box of a value that may be next to a border or outside the bounds. `inside` is the
    /// number of the box in the continued grid if the value is not next to a border.
    #[inline(never)]
    fn compared(&self, x: f64, position: f64, inside: Option<i64>) -> Option<i64> {
        if !x.is_finite() {
            return None;
        }
        let number = inside.or_else(|| self.beside_border(x, position));
        let [low, high] = self.bounds;
        let last = self.count as i64 - 1;
        let within_bounds = || match number {
            Some(number) => number.clamp(0, last),
            None => self.last_border(x, position, [0, last.into()]) as i64,
        };
        match self.grid.binning {
            Binning::Open { .. } => number.or_else(|| {
                // One more number at each end shows that a number does not fit.
                let all = [i128::from(i64::MIN) - 1, i128::from(i64::MAX) + 1];
                i64::try_from(self.last_border(x, position, all)).ok()
            }),
            Binning::Bounded { outside, .. } => {
                if (low..=high).contains(&x) {
                    Some(within_bounds())
                } else if outside == Outside::Clip {
                    Some(if x < low { 0 } else { last })
                } else {
                    None
                }
            }
            Binning::Periodic {
                low: start,
                high: end,
                ..
            } => {
                if (low..high).contains(&x) {
                    return Some(within_bounds());
                }
                if let Some(number) = number {
                    // The borders continue in all periods: 359.7 is a border if −0.3 is one.
                    return Some(number.rem_euclid(last + 1));
                }
                // A period has fewer values than boxes there.
                let range = end - start;
                let offset = (x % range - start % range).rem_euclid(range);
                let found =
                    self.last_border(start + offset, offset * self.per_unit, [0, last.into()]);
                Some(found as i64)
            }
        }
    }

    /// The box above or below the nearest border. None if other borders are as near as the error.
    fn beside_border(&self, x: f64, position: f64) -> Option<i64> {
        // False for NaN.
        let is_clear = self.error(position) < 0.25;
        is_clear.then(|| {
            let nearest = (position + 0.5f64.copysign(position)) as i64;
            let short = self.borders.and_then(|borders| borders.at(nearest as f64));
            let border = short.unwrap_or_else(|| self.grid.border(nearest.into()));
            nearest - i64::from(x < self.precision.rounded(border))
        })
    }

    /// The last of some numbers whose border is at most `x`; the first number if there is none.
    fn last_border(&self, x: f64, position: f64, [first, last]: [i128; 2]) -> i128 {
        let is_at_most = |number: i128| self.precision.rounded(self.grid.border(number)) <= x;
        let nearest = (position as i128).clamp(first, last);
        // The distance doubles until the wanted border is between two numbers.
        let (mut below, mut above, mut distance) = (first, last + 1, 1);
        if is_at_most(nearest) {
            below = nearest;
            while below + distance <= last && is_at_most(below + distance) {
                (below, distance) = (below + distance, 2 * distance);
            }
            above = above.min(below + distance);
        } else {
            above = nearest;
            while above - distance > first && !is_at_most(above - distance) {
                (above, distance) = (above - distance, 2 * distance);
            }
            below = below.max(above - distance);
        }
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if is_at_most(middle) {
                below = middle;
            } else {
                above = middle;
            }
        }
        below
    }
}

/// The number of boxes in a range: as given, or the range divided by `step`.
fn box_count(
    key: &'static str,
    [low, high]: [f64; 2],
    step: Option<f64>,
    boxes: Option<u32>,
) -> Result<u32, (&'static str, String)> {
    let range = high - low;
    if range <= 0.0 || !(range * f64::from(u32::MAX)).is_finite() {
        return Err((
            key,
            format!("must be [low, high] with low below high and both finite, not [{low}, {high}]"),
        ));
    }
    if let Some(boxes) = boxes {
        return Ok(boxes);
    }
    let Some(step) = step else {
        return Err(("", "needs exactly one of `step` and `boxes`".into()));
    };
    let ratio = range / step;
    let whole = ratio.round();
    if whole < 1.0 || (ratio - whole).abs() > 1e-9 * whole {
        return Err((
            "step",
            format!("must divide the range from {low} to {high} into whole boxes, not {step}"),
        ));
    }
    if whole > f64::from(u32::MAX) {
        return Err((
            "step",
            format!("makes {whole} boxes, more than {}", u32::MAX),
        ));
    }
    Ok(whole as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2^63, the first value too large for an i64. It is exact in f64; the largest i64 is not.
    const TWO_TO_63: f64 = (1u64 << 63) as f64;

    impl Binning {
        fn index(&self, x: f64) -> Option<i64> {
            self.grid().index(x)
        }

        fn center(&self, index: i64) -> f64 {
            self.grid().center(index)
        }
    }

    fn open(origin: f64, step: f64) -> Binning {
        Binning::Open { origin, step }
    }

    fn periodic(low: f64, high: f64, boxes: u32) -> Binning {
        Binning::Periodic { low, high, boxes }
    }

    fn bounded(low: f64, high: f64, boxes: u32, outside: Outside) -> Binning {
        Binning::Bounded {
            low,
            high,
            boxes,
            outside,
        }
    }

    #[test]
    fn a_border_belongs_to_the_box_on_its_right() {
        let lat = bounded(-90.0, 90.0, 360, Outside::Drop);
        assert_eq!(lat.index(-90.0), Some(0));
        assert_eq!(lat.index(-89.5), Some(1));
        assert_eq!(lat.index((-89.5f64).next_down()), Some(0));
        assert_eq!(lat.index(0.0), Some(180));
        assert_eq!(lat.index(-1e-300), Some(179));
        // Tenths are borders although they are not binary fractions.
        let tenths = bounded(0.0, 1.0, 10, Outside::Drop);
        for k in 0..10 {
            assert_eq!(tenths.index(k as f64 / 10.0), Some(k));
        }
    }

    #[test]
    fn the_upper_bound_is_in_the_last_box_and_larger_values_are_outside() {
        let lat = bounded(-90.0, 90.0, 360, Outside::Drop);
        assert_eq!(lat.index(90.0), Some(359));
        assert_eq!(lat.index(90f64.next_down()), Some(359));
        assert_eq!(lat.index(90f64.next_up()), None);
        assert_eq!(lat.index((-90f64).next_down()), None);
        let clipped = bounded(-90.0, 90.0, 360, Outside::Clip);
        assert_eq!(clipped.index(1e300), Some(359));
        assert_eq!(clipped.index(-1e300), Some(0));
        assert_eq!(
            bounded(-90.0, 90.0, 360, Outside::Error).index(91.0),
            None,
            "the reader turns this into the error"
        );
    }

    #[test]
    fn the_ends_of_a_period_are_one_point() {
        let lon = periodic(-180.0, 180.0, 720);
        for x in [-180.0, 180.0, 540.0, -540.0] {
            assert_eq!(lon.index(x), Some(0), "{x}");
        }
        assert_eq!(lon.index(180f64.next_down()), Some(719));
        assert_eq!(lon.index((-180f64).next_down()), Some(719));
        assert_eq!(lon.index(190.0), lon.index(-170.0));
        // A value just below zero: its wrapped value rounds to a whole period.
        let unit = periodic(0.0, 1.0, 10);
        assert_eq!(unit.index(-1e-20), Some(9));
        assert!(lon.index(1e300).is_some_and(|k| (0..720).contains(&k)));
        assert!(lon.index(f64::MAX).is_some_and(|k| (0..720).contains(&k)));
    }

    #[test]
    fn unbounded_boxes_have_negative_numbers_and_never_overflow() {
        let depth = open(5.0, 10.0);
        assert_eq!(depth.index(5.0), Some(0));
        assert_eq!(depth.index(5f64.next_down()), Some(-1));
        assert_eq!(depth.index(-5.0), Some(-1));
        assert_eq!(depth.index(15.0), Some(1));
        let fine = open(0.0, 1.0);
        // 513 borders are the double −2^63, and the last of them is the lower border of a box with
        // values.
        assert_eq!(fine.index(-TWO_TO_63), Some(i64::MIN + 512));
        assert_eq!(fine.index(TWO_TO_63.next_down()), Some(i64::MAX - 512));
        assert_eq!(fine.index(TWO_TO_63), None);
        assert_eq!(fine.index(f64::MAX), None);
        let tiny = open(0.0, 1e-300);
        assert_eq!(tiny.index(1e300), None);
    }

    #[test]
    fn coordinates_that_are_not_finite_have_no_box() {
        for binning in [
            open(0.0, 1.0),
            bounded(0.0, 1.0, 2, Outside::Clip),
            periodic(0.0, 1.0, 2),
        ] {
            for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(binning.index(x), None);
            }
        }
    }

    #[test]
    fn centers_are_in_the_middle_of_their_boxes() {
        let lat = bounded(-90.0, 90.0, 360, Outside::Drop);
        assert_eq!(lat.center(0), -89.75);
        let depth = open(5.0, 10.0);
        assert_eq!(depth.center(-1), 0.0);
        for k in [0, 1, 180, 359] {
            assert_eq!(lat.index(lat.center(k)), Some(k));
        }
    }

    #[test]
    fn centers_and_borders_have_no_rounding_noise() {
        let tenths = periodic(-180.0, 180.0, 3600);
        let grid = tenths.grid();
        let index = tenths.index(1.55).expect("a box");
        assert_eq!(
            [grid.low(index), grid.center(index), grid.high(index)],
            [1.5, 1.55, 1.6]
        );
        for k in 0..3600 {
            assert_eq!(tenths.index(grid.center(k)), Some(k));
            assert_eq!(grid.low(k), (k as f64 - 1800.0) / 10.0);
            assert_eq!(grid.high(k), grid.low(k + 1));
        }
        let shifted = open(0.05, 0.1);
        let grid = shifted.grid();
        assert_eq!(
            [grid.low(-4), grid.center(-4), grid.high(-4)],
            [-0.35, -0.3, -0.25]
        );
        // More digits than the exact arithmetic holds.
        let tiny = open(0.0, 1e-300);
        assert_eq!(tiny.center(1), 1.5e-300);
        assert_eq!(tiny.grid().low(3), 3e-300);
    }

    #[test]
    fn a_step_must_divide_its_range() {
        let text = |step, range| BinText {
            step: Some(step),
            periodic: Some(range),
            ..BinText::default()
        };
        let boxes = |text| match Binning::new(&text) {
            Ok(Binning::Periodic { boxes, .. }) => Some(boxes),
            _ => None,
        };
        assert_eq!(boxes(text(0.1, [-180.0, 180.0])), Some(3600));
        assert_eq!(boxes(text(0.7, [-180.0, 180.0])), None);
        assert_eq!(boxes(text(720.0, [-180.0, 180.0])), None);
        assert_eq!(boxes(text(1e-9, [-180.0, 180.0])), None);
        assert_eq!(boxes(text(1.0, [180.0, -180.0])), None);
    }

    /// Grids of short decimals, as people write them, and of any doubles.
    fn binnings() -> impl Strategy<Value = Binning> {
        let decimal = |most: i64| {
            (-most..=most, 0i32..5).prop_map(|(digits, places)| {
                let text = format!("{digits}e-{places}");
                text.parse::<f64>().expect("a number")
            })
        };
        let width = (1i64..5000, 0i32..5).prop_map(|(digits, places)| {
            let text = format!("{digits}e-{places}");
            text.parse::<f64>().expect("a number")
        });
        let (starts, widths) = (
            prop_oneof![decimal(100_000), -1e12..1e12, -1e-3..1e-3],
            prop_oneof![width, 1e-9..1e9],
        );
        (starts, widths, 1u32..5000, 0..3).prop_map(|(start, width, boxes, kind)| match kind {
            0 => open(start, width),
            1 => bounded(
                start,
                (start + width).max(start.next_up()),
                boxes,
                Outside::Drop,
            ),
            _ => periodic(start, (start + width).max(start.next_up()), boxes),
        })
    }

    proptest! {
        /// The tables show the borders of the box that a value is counted in. Values on borders,
        /// next to them and between them, in columns of each precision.
        #[test]
        fn a_value_is_between_the_borders_of_its_box(
            binning in binnings(),
            number in -3000i64..8000,
            place in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
            ulps in -2i64..=2,
        ) {
            let grid = binning.grid();
            let (low, high) = (grid.low(number), grid.high(number));
            for (precision, ulp) in [
                (Precision::Double, f64::EPSILON),
                (Precision::Single, f64::from(f32::EPSILON)),
                (Precision::Half, 2f64.powi(-10)),
            ] {
                let rounded = |x: f64| precision.rounded(x);
                let middle = rounded(low + place * (high - low));
                let x = rounded(middle + middle.abs() * ulp * ulps as f64);
                if !x.is_finite() {
                    continue;
                }
                let found = grid.locator(precision).index(x);
                let (first, last) = match binning {
                    Binning::Open { .. } => (f64::NEG_INFINITY, f64::INFINITY),
                    Binning::Bounded { low, high, .. } | Binning::Periodic { low, high, .. } => {
                        (rounded(low), rounded(high))
                    }
                };
                let is_periodic = matches!(binning, Binning::Periodic { .. });
                if !(first..=last).contains(&x) || is_periodic && x == last {
                    prop_assert_eq!(found.is_some(), is_periodic, "{} {:?}", x, precision);
                    continue;
                }
                let Some(index) = found else {
                    return Err(TestCaseError::fail(format!("{x} has no box")));
                };
                let (low, high) = (rounded(grid.low(index)), rounded(grid.high(index)));
                let is_last = x == last && high == last;
                prop_assert!(
                    low <= x && (x < high || is_last),
                    "{} is not in [{}, {}), box {}, {:?}", x, low, high, index, precision
                );
                // A centre identifies its box.
                prop_assert_eq!(grid.index(grid.center(index)), Some(index));
            }
        }
    }

    #[test]
    fn values_on_decimal_borders_are_in_the_boxes_above_them() {
        let text = |step, bounds, periodic, origin| BinText {
            step: Some(step),
            bounds,
            periodic,
            origin,
            ..BinText::default()
        };
        let circle = Some([-180.0, 180.0]);
        let cases = [
            (text(0.1, None, None, None), -900i64..900, 1, 0),
            (
                text(0.1, Some([-90.0, 90.0]), None, None),
                -900..900,
                1,
                -900,
            ),
            (text(0.1, None, circle, None), -1800..1800, 1, -1800),
            // One period further.
            (text(0.1, None, circle, None), 1800..5400, 1, 1800),
            (text(0.1, None, circle, None), -5400..-1800, 1, -5400),
            (text(0.3, None, None, Some(0.1)), -300..300, 3, 1),
        ];
        for (text, numbers, tenths_per_box, first) in cases {
            let grid = Binning::new(&text).expect("boxes").grid();
            for tenths in numbers {
                let x: f64 = format!("{tenths}e-1").parse().expect("a number");
                let expected = (tenths - first).div_euclid(tenths_per_box);
                for precision in [Precision::Double, Precision::Single] {
                    let x = precision.rounded(x);
                    let found = grid.locator(precision).index(x);
                    assert_eq!(found, Some(expected), "{x} {precision:?} {text:?}");
                }
            }
        }
    }
}
