//! Coordinates → box numbers (coherence, appendix A: Ulam boxes).
//!
//! In: one real coordinate. Out: the number of the half-open box `[left, right)` that contains it,
//! or `None` outside all boxes. A coordinate that is not finite has no box.

use crate::read::rows::decimal::Sequence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one coordinate is cut into boxes of equal width. Give exactly one of `step` and `boxes`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bin", extend("oneOf" = [{ "required": ["step"] }, { "required": ["boxes"] }]))]
pub struct BinText {
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

/// 2^63, the first value too large for an i64. It is exact in f64; the largest i64 is not.
const TWO_TO_63: f64 = (1u64 << 63) as f64;

impl Binning {
    /// Checks the keys of a `bin` table.
    ///
    /// # Errors
    /// The key at fault (or "") and what it must be.
    pub fn new(text: &BinText) -> Result<Binning, (&'static str, String)> {
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

    /// The box of `x`. `None` if x is not finite, if it is outside bounds that do not clip, or,
    /// without bounds, if the number does not fit an i64.
    #[inline]
    pub fn index(&self, x: f64) -> Option<i64> {
        if !x.is_finite() {
            return None;
        }
        match *self {
            Binning::Open { origin, step } => {
                let k = ((x - origin) / step).floor();
                (-TWO_TO_63..TWO_TO_63).contains(&k).then_some(k as i64)
            }
            Binning::Bounded {
                low,
                high,
                boxes,
                outside,
            } => {
                if (low..=high).contains(&x) {
                    Some(within(x - low, high - low, boxes))
                } else if outside == Outside::Clip {
                    Some(if x < low { 0 } else { i64::from(boxes) - 1 })
                } else {
                    None
                }
            }
            Binning::Periodic { low, high, boxes } => {
                let (offset, range) = (x - low, high - low);
                if (low..high).contains(&x) {
                    // Not wrapped: just below `high`, rounding may give an offset of a whole
                    // period, which still belongs to the last box.
                    Some(within(offset, range, boxes))
                } else {
                    offset
                        .is_finite()
                        .then(|| within(offset.rem_euclid(range), range, boxes))
                }
            }
        }
    }

    /// The centre of box `index`, in the unit of the column.
    pub fn center(&self, index: i64) -> f64 {
        self.grid().center(index)
    }

    /// The places of the boxes.
    pub fn grid(&self) -> Grid<'_> {
        let borders = match *self {
            Binning::Open { origin, step } => Sequence::by_step(origin, step),
            Binning::Bounded {
                low, high, boxes, ..
            }
            | Binning::Periodic { low, high, boxes } => Sequence::between(low, high, boxes),
        };
        Grid {
            binning: self,
            borders,
        }
    }
}

/// Centres and borders of boxes, in the unit of the column. They are the doubles nearest to their
/// decimal values, without the rounding of double arithmetic.
pub struct Grid<'a> {
    binning: &'a Binning,
    /// None if the borders have too many digits.
    borders: Option<Sequence>,
}

impl Grid<'_> {
    /// The centre of box `index`.
    pub fn center(&self, index: i64) -> f64 {
        let halves = 2 * i128::from(index) + 1;
        // A written centre identifies its box.
        let exact = self
            .exact(halves)
            .filter(|&x| self.binning.index(x) == Some(index));
        exact.unwrap_or_else(|| self.rounded(halves))
    }

    /// The lower border of box `index`, which belongs to the box.
    pub fn low(&self, index: i64) -> f64 {
        self.border(i128::from(index))
    }

    /// The upper border of box `index`, which is the lower border of the next box.
    pub fn high(&self, index: i64) -> f64 {
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
        match *self.binning {
            Binning::Open { origin, step } => origin + steps * step,
            Binning::Bounded {
                low, high, boxes, ..
            }
            | Binning::Periodic { low, high, boxes } => {
                low + steps * (high - low) / f64::from(boxes)
            }
        }
    }
}

/// The box of an offset in [0, range]. Multiplying before dividing keeps borders exact, such as 0.3
/// for ten boxes in [0, 1]. The minimum assigns the upper bound, and offsets rounded up to it, to
/// the last box.
#[inline]
fn within(offset: f64, range: f64, boxes: u32) -> i64 {
    // The operands are not negative, so the conversion rounds down.
    let k = (offset * f64::from(boxes) / range) as i64;
    k.min(i64::from(boxes) - 1)
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
        // Borders are exact to the precision of x − low, here 1.4e-14.
        assert_eq!(lat.index(-1.5e-14), Some(179));
        // Ten boxes in [0, 1]: tenths are exact borders although they are not binary fractions.
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
        let lon = Binning::Periodic {
            low: -180.0,
            high: 180.0,
            boxes: 720,
        };
        for x in [-180.0, 180.0, 540.0, -540.0] {
            assert_eq!(lon.index(x), Some(0), "{x}");
        }
        assert_eq!(lon.index(180f64.next_down()), Some(719));
        assert_eq!(lon.index((-180f64).next_down()), Some(719));
        assert_eq!(lon.index(190.0), lon.index(-170.0));
        // A value just below zero: its wrapped value rounds to a whole period.
        let unit = Binning::Periodic {
            low: 0.0,
            high: 1.0,
            boxes: 10,
        };
        assert_eq!(unit.index(-1e-20), Some(9));
        assert!(lon.index(1e300).is_some_and(|k| (0..720).contains(&k)));
        assert!(lon.index(f64::MAX).is_some_and(|k| (0..720).contains(&k)));
    }

    #[test]
    fn unbounded_boxes_have_negative_numbers_and_never_overflow() {
        let depth = Binning::Open {
            origin: 5.0,
            step: 10.0,
        };
        assert_eq!(depth.index(5.0), Some(0));
        assert_eq!(depth.index(5f64.next_down()), Some(-1));
        assert_eq!(depth.index(-5.0), Some(-1));
        assert_eq!(depth.index(15.0), Some(1));
        let fine = Binning::Open {
            origin: 0.0,
            step: 1.0,
        };
        assert_eq!(fine.index(-TWO_TO_63), Some(i64::MIN));
        assert_eq!(fine.index(TWO_TO_63), None);
        assert_eq!(fine.index(f64::MAX), None);
        let tiny = Binning::Open {
            origin: 0.0,
            step: 1e-300,
        };
        assert_eq!(tiny.index(1e300), None);
    }

    #[test]
    fn coordinates_that_are_not_finite_have_no_box() {
        for binning in [
            Binning::Open {
                origin: 0.0,
                step: 1.0,
            },
            bounded(0.0, 1.0, 2, Outside::Clip),
            Binning::Periodic {
                low: 0.0,
                high: 1.0,
                boxes: 2,
            },
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
        let depth = Binning::Open {
            origin: 5.0,
            step: 10.0,
        };
        assert_eq!(depth.center(-1), 0.0);
        for k in [0, 1, 180, 359] {
            assert_eq!(lat.index(lat.center(k)), Some(k));
        }
    }

    #[test]
    fn centers_and_borders_have_no_rounding_noise() {
        let tenths = Binning::Periodic {
            low: -180.0,
            high: 180.0,
            boxes: 3600,
        };
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
        let open = Binning::Open {
            origin: 0.05,
            step: 0.1,
        };
        let grid = open.grid();
        assert_eq!(
            [grid.low(-4), grid.center(-4), grid.high(-4)],
            [-0.35, -0.3, -0.25]
        );
        // More digits than the exact arithmetic holds.
        let tiny = Binning::Open {
            origin: 0.0,
            step: 1e-300,
        };
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
}
