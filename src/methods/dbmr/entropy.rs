//! x log x of sums of counts, with tables for small integers.

use crate::evidence::counts::csr::Value;
use crate::evidence::counts::shards::Shards;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Sums of integer counts below this have tabulated entropies.
const KEPT: usize = 4096;

/// f(c) and f(c + 1) − f(c) of c = 0, 1, …
static ENTROPIES: LazyLock<[Vec<f64>; 2]> = LazyLock::new(|| {
    let term = |c: usize| c as f64 * (c.max(1) as f64).ln();
    [
        (0..KEPT).map(term).collect(),
        (0..KEPT).map(|c| term(c + 1) - term(c)).collect(),
    ]
});

/// x log x, with a table for small integers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(from = "Sums", into = "Sums")]
pub(crate) struct Entropy {
    /// f(c) of c = 0, 1, …; only of 0 if the counts are not integers.
    table: &'static [f64],
    /// f(c + 1) − f(c) of the same c.
    steps: &'static [f64],
    /// Whether all sums are integers that f32 represents exactly.
    pub(super) fits_f32: bool,
}

/// The kind of sums to which an [`Entropy`] is applied.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Sums {
    are_integral: bool,
    fit_f32: bool,
}

impl From<Sums> for Entropy {
    fn from(sums: Sums) -> Entropy {
        let [table, steps] = &*ENTROPIES;
        let n = if sums.are_integral { KEPT } else { 1 };
        Entropy {
            table: &table[..n],
            steps: &steps[..n],
            fits_f32: sums.fit_f32,
        }
    }
}

impl From<Entropy> for Sums {
    fn from(entropy: Entropy) -> Sums {
        Sums {
            are_integral: entropy.is_integral(),
            fit_f32: entropy.fits_f32,
        }
    }
}

/// A count.
pub(crate) trait Amount: Value {
    /// Whether f(c + 1) − f(c) is the rise of this count.
    fn is_one(self) -> bool;
    /// The count as an integer, if it is one.
    fn integer(self) -> u32;
}

impl Amount for u8 {
    #[inline(always)]
    fn is_one(self) -> bool {
        self == 1
    }
    #[inline(always)]
    fn integer(self) -> u32 {
        u32::from(self)
    }
}

impl Amount for u32 {
    #[inline(always)]
    fn is_one(self) -> bool {
        self == 1
    }
    #[inline(always)]
    fn integer(self) -> u32 {
        self
    }
}

impl Amount for f64 {
    #[inline(always)]
    fn is_one(self) -> bool {
        false
    }
    #[inline(always)]
    fn integer(self) -> u32 {
        self as u32
    }
}

/// A sum of counts: an integer, or a weight.
pub(crate) trait Sum: Copy + Default + PartialEq + std::ops::AddAssign {
    /// A count as a sum.
    fn of(v: impl Amount) -> Self;
    /// f(x + y) − f(x) − f(y).
    fn joined(self, y: Self, entropy: &Entropy) -> f64;
}

impl Sum for u32 {
    #[inline(always)]
    fn of(v: impl Amount) -> u32 {
        v.integer()
    }
    #[inline(always)]
    fn joined(self, y: u32, entropy: &Entropy) -> f64 {
        match entropy.table.get((self + y) as usize) {
            Some(f) => f - entropy.table[self as usize] - entropy.table[y as usize],
            None => f64::from(self).joined(f64::from(y), entropy),
        }
    }
}

impl Sum for f64 {
    #[inline(always)]
    fn of(v: impl Amount) -> f64 {
        v.f64()
    }
    #[inline(always)]
    fn joined(self, y: f64, entropy: &Entropy) -> f64 {
        if self > 0.0 {
            entropy.rise(self, y) - entropy.of(y)
        } else {
            0.0
        }
    }
}

impl Entropy {
    /// For sums of columns of these counts.
    pub(crate) fn new(shards: &Shards) -> Entropy {
        let largest = shards.target_total.iter().fold(0.0, |a: f64, &b| a.max(b));
        let are_integral = shards.is_integral();
        Entropy::from(Sums {
            are_integral,
            fit_f32: are_integral && largest < 1.0 / f64::from(f32::EPSILON),
        })
    }

    fn is_integral(&self) -> bool {
        self.table.len() > 1
    }

    /// f(x), 0 for x = 0.
    #[inline(always)]
    pub(crate) fn of(&self, x: f64) -> f64 {
        if x < self.table.len() as f64 && (x == 0.0 || self.is_integral()) {
            self.table[x as usize]
        } else {
            x * x.ln()
        }
    }

    /// f(high) − f(low).
    #[inline(always)]
    pub(crate) fn between(&self, low: u32, high: u32) -> f64 {
        match self.table.get(high as usize) {
            Some(f) => f - self.table[low as usize],
            None => self.rise(f64::from(low), f64::from(high - low)),
        }
    }

    /// f(c + 1) − f(c).
    #[inline(always)]
    pub(crate) fn step(&self, c: u32) -> f64 {
        match self.steps.get(c as usize) {
            Some(step) => *step,
            None => self.rise(f64::from(c), 1.0),
        }
    }

    /// f(c) and f(c + v) of c = 0, 1, … as far as the table has both.
    #[inline(always)]
    pub(crate) fn shifted(&self, v: u32) -> (&'static [f64], &'static [f64]) {
        let n = self.table.len().saturating_sub(v as usize);
        (&self.table[..n], &self.table[self.table.len() - n..])
    }

    /// f(x + v) − f(x).
    #[inline(always)]
    pub(crate) fn rise(&self, x: f64, v: f64) -> f64 {
        if x + v < self.table.len() as f64 && self.is_integral() {
            self.table[(x + v) as usize] - self.table[x as usize]
        } else if x > 0.0 {
            // The difference of two large numbers would lose digits.
            x * (v / x).ln_1p() + v * (x + v).ln()
        } else {
            self.of(v)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_agree_with_weights_within_the_table_and_beyond() {
        let entropy = Entropy::from(Sums {
            are_integral: true,
            fit_f32: true,
        });
        let last = KEPT as u32 - 1;
        for low in [0, 1, 7, last - 1, last, last + 1, 1_000_000] {
            for rise in [1, 2, 300] {
                let (x, y) = (f64::from(low), f64::from(rise));
                let f = |x: f64| if x > 0.0 { x * x.ln() } else { 0.0 };
                let unit = 1e-15 * f(x + y).max(1.0);
                let expected = f(x + y) - f(x);
                assert!((entropy.between(low, low + rise) - expected).abs() <= unit);
                let expected = f(x + 1.0) - f(x);
                assert!((entropy.step(low) - expected).abs() <= unit);
                let expected = f(x + y) - f(x) - f(y);
                assert!((low.joined(rise, &entropy) - expected).abs() <= unit);
                assert!((x.joined(y, &entropy) - expected).abs() <= unit);
            }
        }
    }
}
