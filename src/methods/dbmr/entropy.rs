//! x log x of sums of counts, with tables for small integers.

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
pub struct Entropy {
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

impl Entropy {
    /// For sums of columns of these counts.
    pub fn new(shards: &Shards) -> Entropy {
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
    pub fn of(&self, x: f64) -> f64 {
        if x < self.table.len() as f64 && (x == 0.0 || self.is_integral()) {
            self.table[x as usize]
        } else {
            x * x.ln()
        }
    }

    /// f(x + 1) − f(x).
    #[inline(always)]
    pub fn step(&self, x: f64) -> f64 {
        match self.steps.get(x as usize) {
            Some(&step) if self.is_integral() => step,
            _ => self.rise(x, 1.0),
        }
    }

    /// f(c) and f(c + v) of c = 0, 1, … as far as the table has both.
    #[inline(always)]
    pub fn shifted(&self, v: u32) -> (&'static [f64], &'static [f64]) {
        let n = self.table.len().saturating_sub(v as usize);
        (&self.table[..n], &self.table[self.table.len() - n..])
    }

    /// f(x + v) − f(x).
    #[inline(always)]
    pub fn rise(&self, x: f64, v: f64) -> f64 {
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
