//! The table function `linear_gaussian`: trajectories of a linear system with normal noise and the
//! exact means of its states given the observations so far, computed while they are read.
//!
//! ```sql
//! -- 100 trajectories of 100 rows.
//! SELECT trajectory, time, state, observation FROM linear_gaussian()
//! -- One trajectory of 10,000 rows with more noise in the observations, seed 7.
//! SELECT * FROM linear_gaussian(1, 10000, 0.9, 0.25, 2.0, 7)
//! ```
//!
//! `linear_gaussian(trajectories, rows, a, q, r, seed)` takes constants. Trailing arguments may be
//! omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `trajectories` | 100 | independent trajectories |
//! | `rows` | 100 | rows per trajectory |
//! | `a` | 0.9 | factor of the state, between −1 and 1 |
//! | `q` | 0.25 | variance of the noise of the state |
//! | `r` | 0.5 | variance of the noise of an observation |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//!
//! The system is s_{t+1} = a s_t + ξ_t and o_t = s_t + ζ_t. The first state is drawn from the
//! stationary distribution, which has the variance q / (1 − a²). `exact_mean` and `exact_variance`
//! are the mean and the variance of the state given all observations up to its row (Kalman 1960).
//! The variance tends to a fixed point, .233886241186 for the default arguments.
//!
//! The result is ordered by (trajectory, time): `trajectory` and `time` are BIGINT from 0; `state`,
//! `observation`, `exact_mean` and `exact_variance` are DOUBLE.

use crate::read::arguments::Arguments;
use crate::read::generated::{self, World, all, append, integers, normals, numbers, random};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;
use rand_pcg::Pcg64;
use std::ops::Range;

/// Registers `linear_gaussian(…)` with a session.
pub fn register(ctx: &SessionContext) {
    generated::register::<System>(ctx);
}

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
struct System {
    trajectories: usize,
    rows: usize,
    a: f64,
    q: f64,
    r: f64,
    seed: u64,
}

struct Walk {
    state: f64,
    /// Mean and variance of the state given the observations of earlier rows.
    mean: f64,
    variance: f64,
    random: Pcg64,
}

impl World for System {
    type Walk = Walk;

    const NAME: &'static str = "linear_gaussian";

    const ARGUMENTS: &'static [&'static str] = &["trajectories", "rows", "a", "q", "r", "seed"];

    fn columns() -> Vec<(&'static str, DataType)> {
        let integers = ["trajectory", "time"].map(|name| (name, DataType::Int64));
        let numbers = ["state", "observation", "exact_mean", "exact_variance"];
        let numbers = numbers.map(|name| (name, DataType::Float64));
        integers.into_iter().chain(numbers).collect()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let system = System {
            trajectories: arguments.whole(0, 100, 1)? as usize,
            rows: arguments.whole(1, 100, 1)? as usize,
            a: arguments.real(2, 0.9)?,
            q: arguments.real(3, 0.25)?,
            r: arguments.real(4, 0.5)?,
            seed: arguments.whole(5, 0, 0)? as u64,
        };
        let System { a, q, r, .. } = system;
        if a.is_nan() || a.abs() >= 1.0 {
            return plan_err!("linear_gaussian: a must be between -1 and 1, not {a}");
        }
        for (name, variance) in [("q", q), ("r", r)] {
            if !(variance > 0.0 && variance.is_finite()) {
                return plan_err!("linear_gaussian: {name} must be positive, not {variance}");
            }
        }
        Ok(system)
    }

    fn pieces(&self) -> usize {
        self.trajectories
    }

    fn length(&self, _trajectory: usize) -> usize {
        self.rows
    }

    fn start(&self, trajectory: usize) -> Walk {
        let mut random = random(self.seed, trajectory);
        let variance = self.q / (1.0 - self.a * self.a);
        let [first, _] = normals(&mut random);
        Walk {
            state: variance.sqrt() * first,
            mean: 0.0,
            variance,
            random,
        }
    }

    async fn rows(&self, walk: &mut Walk, trajectory: usize, times: Range<usize>) -> Vec<ArrayRef> {
        let mut columns: [Vec<f64>; 4] = Default::default();
        for _ in times.clone() {
            let [noise, drift] = normals(&mut walk.random);
            let observation = walk.state + self.r.sqrt() * noise;
            let gain = walk.variance / (walk.variance + self.r);
            let mean = walk.mean + gain * (observation - walk.mean);
            let variance = gain * self.r;
            append(&mut columns, [walk.state, observation, mean, variance]);
            walk.state = self.a * walk.state + self.q.sqrt() * drift;
            walk.mean = self.a * mean;
            walk.variance = self.a * self.a * variance + self.q;
        }
        let mut arrays = vec![all(trajectory, times.len()), integers(times)];
        arrays.extend(numbers(columns));
        arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    #[tokio::test]
    async fn rows_have_the_documented_moments_in_all_partitions() {
        let sql = "SELECT time, state, observation, exact_mean, exact_variance \
                   FROM linear_gaussian(3, 20000) ORDER BY trajectory, time";
        let rows = floats::<System>(sql, 1).await;
        assert_eq!(rows, floats::<System>(sql, 3).await);
        let n = rows[0].len();
        assert_eq!(n, 60000);
        let mean = |of: &dyn Fn(usize) -> f64| (0..n).map(of).sum::<f64>() / n as f64;
        let variance = mean(&|at| rows[1][at].powi(2));
        assert!((variance - 0.25 / 0.19).abs() < 0.08, "{variance}");
        let noise = mean(&|at| (rows[2][at] - rows[1][at]).powi(2));
        assert!((noise - 0.5).abs() < 0.015, "{noise}");
        // The fixed point of the Riccati equation, and the error that it predicts.
        assert!((rows[4][n - 1] - 0.233_886_241_186).abs() < 1e-12);
        let error = mean(&|at| (rows[3][at] - rows[1][at]).powi(2));
        assert!((error - 0.2339).abs() < 0.01, "{error}");
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<System>(
            "
            1, 1, 1.0 => a must be between -1 and 1, not 1
            1, 1, 0.5, 0 => q must be positive, not 0
            1, 1, 0.5, 1, -1 => r must be positive, not -1
            1, 0 => rows must be a positive integer, not 0
            ",
        )
        .await;
    }
}
