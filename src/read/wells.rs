//! The table function `wells`: a diffusion in a potential with four wells, computed while it is
//! read.
//!
//! ```sql
//! -- 100 trajectories of 1,001 rows, one time unit apart.
//! SELECT trajectory, time, x, y FROM wells()
//! -- 20 trajectories of 5,001 rows, a tenth of a time unit apart.
//! SELECT * FROM wells(20, 5000, 0.1)
//! ```
//!
//! `wells(trajectories, steps, interval, seed, step)` takes constants. Trailing arguments may be
//! omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `trajectories` | 100 | independent trajectories |
//! | `steps` | 1000 | rows of a trajectory after the first one |
//! | `interval` | 1 | time between two rows |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//! | `step` | 0.001 | step of the integration; it divides the interval |
//!
//! The process is dX = −∇V(X) dt + √2 dB with V(x, y) = 5 (x² − 1)² + x/4 + 4 (y² − 1)² − 3y/20
//! (Sun, Duan, Gong and Wang, NeurIPS 2019, Figure 2). The coordinates are independent, and the
//! wells are the quadrants. The integration is the Euler–Maruyama scheme with normal increments of
//! variance 2 step (Kloeden and Platen 1992, §10.2). At an interval of 1 and the default step, the
//! four leading eigenvalues are 1, .9444, .8863 and .8370; those of the process are 1, .9446, .8868
//! and .8377. A trajectory starts at a random corner (±1, ±1) and is observed after five time
//! units.
//!
//! The result is ordered by (trajectory, time): `trajectory` and `time` BIGINT from 0, `x` and `y`
//! DOUBLE.

use crate::math::portable::normals;
use crate::read::arguments::Arguments;
use crate::read::generated::{World, all, integers, numbers, plane, random};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use rand::Rng;
use rand_pcg::Pcg64;
use std::ops::Range;

/// Time before the first row of a trajectory.
const BURN_IN: f64 = 5.0;

/// Largest stable step: the drift is steep far from the wells.
const MAX_STEP: f64 = 0.01;

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
pub(crate) struct Wells {
    trajectories: usize,
    rows: usize,
    seed: u64,
    step: f64,
    /// Steps of the integration between two rows.
    steps_per_row: usize,
}

/// The state of a trajectory and its random numbers.
pub(crate) struct Walk {
    x: f64,
    y: f64,
    random: Pcg64,
    step: f64,
    /// √(2 step).
    jump: f64,
}

impl Walk {
    /// The start of a trajectory of a call with a seed and a step of the integration.
    pub(crate) fn new(seed: u64, step: f64, trajectory: usize) -> Walk {
        let mut random = random(seed, trajectory);
        let bits = random.next_u64();
        let side = |bit: u64| if bits >> bit & 1 == 1 { 1.0 } else { -1.0 };
        let mut walk = Walk {
            x: side(0),
            y: side(1),
            random,
            step,
            jump: (2.0 * step).sqrt(),
        };
        walk.advance((BURN_IN / step).round() as usize);
        walk
    }

    /// x and y.
    pub(crate) fn position(&self) -> [f64; 2] {
        [self.x, self.y]
    }

    /// Integrates some steps.
    pub(crate) fn advance(&mut self, steps: usize) {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        for _ in 0..steps {
            let mut uniform = || (self.random.next_u64() >> 11) as f64 * UNIT;
            let [x_normal, y_normal] = normals([uniform(), uniform()]);
            let (x, y) = (self.x, self.y);
            let dx = -(20.0 * x * (x * x - 1.0) + 0.25) * self.step;
            let dy = -(16.0 * y * (y * y - 1.0) - 0.15) * self.step;
            self.x = x + dx + self.jump * x_normal;
            self.y = y + dy + self.jump * y_normal;
        }
    }
}

impl World for Wells {
    type Walk = Walk;

    const NAME: &'static str = "wells";

    const ARGUMENTS: &'static [&'static str] =
        &["trajectories", "steps", "interval", "seed", "step"];

    fn columns() -> Vec<(&'static str, DataType)> {
        plane()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let trajectories = arguments.whole(0, 100, 1)? as usize;
        let rows = arguments.whole(1, 1000, 1)? as usize + 1;
        let interval = arguments.real(2, 1.0)?;
        let seed = arguments.whole(3, 0, 0)? as u64;
        let step = arguments.real(4, 0.001)?;
        if !(step > 0.0 && step <= MAX_STEP) {
            return plan_err!("wells: step must be positive and at most {MAX_STEP}, not {step}");
        }
        let per_row = (interval / step).round();
        if !((1.0..=1e9).contains(&per_row) && (per_row * step / interval - 1.0).abs() < 1e-9) {
            return plan_err!(
                "wells: interval must be a multiple of the step {step}, not {interval}"
            );
        }
        Ok(Wells {
            trajectories,
            rows,
            seed,
            step,
            steps_per_row: per_row as usize,
        })
    }

    fn pieces(&self) -> usize {
        self.trajectories
    }

    fn length(&self, _trajectory: usize) -> usize {
        self.rows
    }

    // A query can be cancelled between batches.
    fn batch(&self) -> usize {
        ((1 << 20) / self.steps_per_row).clamp(1, 8192)
    }

    fn start(&self, trajectory: usize) -> Walk {
        Walk::new(self.seed, self.step, trajectory)
    }

    async fn rows(&self, walk: &mut Walk, trajectory: usize, times: Range<usize>) -> Vec<ArrayRef> {
        let [mut x, mut y] = [vec![], vec![]];
        for time in times.clone() {
            if time > 0 {
                walk.advance(self.steps_per_row);
            }
            x.push(walk.x);
            y.push(walk.y);
        }
        let mut columns = vec![all(trajectory, times.len()), integers(times)];
        columns.extend(numbers([x, y]));
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    async fn x_of(sql: &str, partitions: usize) -> Vec<f64> {
        floats::<Wells>(sql, partitions).await.swap_remove(0)
    }

    #[tokio::test]
    async fn partitions_change_no_row_and_seeds_change_all() {
        let sql = "SELECT x FROM wells(5, 20, 0.1) ORDER BY trajectory, time";
        let rows = x_of(sql, 1).await;
        assert_eq!(rows.len(), 105);
        assert_eq!(rows, x_of(sql, 3).await);
        let other = x_of(
            "SELECT x FROM wells(5, 20, 0.1, 1) ORDER BY trajectory, time",
            1,
        )
        .await;
        assert!(rows.iter().zip(&other).all(|(a, b)| a != b));
    }

    // A step of .01 adds √.02 times a normal number, whose square and fourth power have the means 1
    // and 3. Their standard errors are .01 and .07 for 20,000 steps.
    #[tokio::test]
    async fn increments_are_normal() {
        let rows = x_of(
            "SELECT x FROM wells(1, 20000, 0.01, 3, 0.01) ORDER BY time",
            1,
        )
        .await;
        let (mut mean, mut square, mut fourth) = (0.0, 0.0, 0.0);
        for pair in rows.windows(2) {
            let drift = -(20.0 * pair[0] * (pair[0] * pair[0] - 1.0) + 0.25) * 0.01;
            let normal = (pair[1] - pair[0] - drift) / 0.02f64.sqrt();
            mean += normal / 2e4;
            square += normal.powi(2) / 2e4;
            fourth += normal.powi(4) / 2e4;
        }
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((square - 1.0).abs() < 0.04, "{square}");
        assert!((fourth - 3.0).abs() < 0.3, "{fourth}");
    }

    // ∫ x² e^{−V} dx / ∫ e^{−V} dx for V = 5 (x² − 1)² + x/4, by sums over a grid.
    #[tokio::test]
    async fn the_second_moment_is_that_of_the_potential() {
        let rows = x_of("SELECT x FROM wells(40, 500, 0.5)", 2).await;
        let mean = rows.iter().map(|x| x * x).sum::<f64>() / rows.len() as f64;
        let v = |x: f64| 5.0 * (x * x - 1.0).powi(2) + x / 4.0;
        let grid = (-3000..3000).map(|k| f64::from(k) / 1000.0);
        let (mut all, mut squares) = (0.0, 0.0);
        for x in grid {
            let density = (-v(x)).exp();
            all += density;
            squares += x * x * density;
        }
        assert!(
            (mean - squares / all).abs() < 0.01,
            "{mean} {}",
            squares / all
        );
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<Wells>(
            "
            0 => trajectories must be a positive integer, not 0
            1, 1, 0.0015 => interval must be a multiple of the step 0.001, not 0.0015
            1, 1, 1, 0, 0.5 => step must be positive and at most 0.01, not 0.5
            1, 2, 3, 4, 5, 6 => at most 5 arguments are possible
            ",
        )
        .await;
    }
}
