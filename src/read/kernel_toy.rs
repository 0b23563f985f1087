//! The table function `kernel_toy`: a point that walks around a circle, observed on a curve that
//! oscillates around it, computed while it is read.
//!
//! ```sql
//! -- The experiment of the paper: 1,000 training rows and 200 test rows.
//! SELECT trajectory, time, cos_theta, sin_theta, x, y, split FROM kernel_toy()
//! -- Five worlds with 300 training rows and 50 test rows each.
//! SELECT * FROM kernel_toy(300, 50, 0, 5)
//! ```
//!
//! `kernel_toy(train, test, seed, worlds)` takes constants. Trailing arguments may be omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `train` | 1000 | rows of the training trajectory of a world |
//! | `test` | 200 | rows of the test trajectory of a world |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//! | `worlds` | 1 | independent worlds |
//!
//! The dynamics are θ_{t+1} = θ_t + 0.4 + ξ_t mod 2π and (x, y) = (1 + sin 8θ)(cos θ, sin θ) + ζ_t
//! with normal noise of variance 0.04 (Song, Zhu and Ren, NIPS 2016, equation (12)). Every
//! trajectory begins at θ = 0.
//!
//! World w has the training trajectory 2w and the test trajectory 2w + 1. The result is ordered by
//! (trajectory, time): `world`, `trajectory` and `time` are BIGINT from 0; `theta` in [0, 2π),
//! `cos_theta`, `sin_theta`, `x` and `y` are DOUBLE; `split` is 'train' or 'test'.

use crate::math::portable::direction;
use crate::read::arguments::Arguments;
use crate::read::generated::{self, World, all, append, integers, normals, numbers, random};
use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;
use rand_pcg::Pcg64;
use std::f64::consts::PI;
use std::ops::Range;
use std::sync::Arc;

/// Registers `kernel_toy(…)` with a session.
pub fn register(ctx: &SessionContext) {
    generated::register::<Toy>(ctx);
}

/// Angle per step.
const STEP: f64 = 0.4;

/// Standard deviation of both kinds of noise.
const NOISE: f64 = 0.2;

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
struct Toy {
    train: usize,
    test: usize,
    seed: u64,
    worlds: usize,
}

struct Walk {
    theta: f64,
    random: Pcg64,
}

/// (1 + sin 8θ)(cos θ, sin θ), the place of an observation without noise.
fn observed(theta: f64) -> [f64; 2] {
    let [_, wave] = direction(8.0 * theta);
    direction(theta).map(|side| (1.0 + wave) * side)
}

impl World for Toy {
    type Walk = Walk;

    const NAME: &'static str = "kernel_toy";

    const ARGUMENTS: &'static [&'static str] = &["train", "test", "seed", "worlds"];

    fn columns() -> Vec<(&'static str, DataType)> {
        let integers = ["world", "trajectory", "time"].map(|name| (name, DataType::Int64));
        let numbers = ["theta", "cos_theta", "sin_theta", "x", "y"];
        let numbers = numbers.map(|name| (name, DataType::Float64));
        let columns = integers.into_iter().chain(numbers);
        columns.chain([("split", DataType::Utf8)]).collect()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let worlds = arguments.whole(3, 1, 1)? as usize;
        if worlds > (i64::MAX / 2) as usize {
            return plan_err!("kernel_toy: worlds must be less than 2^62");
        }
        Ok(Toy {
            train: arguments.whole(0, 1000, 1)? as usize,
            test: arguments.whole(1, 200, 1)? as usize,
            seed: arguments.whole(2, 0, 0)? as u64,
            worlds,
        })
    }

    fn pieces(&self) -> usize {
        2 * self.worlds
    }

    fn length(&self, trajectory: usize) -> usize {
        [self.train, self.test][trajectory % 2]
    }

    fn start(&self, trajectory: usize) -> Walk {
        Walk {
            theta: 0.0,
            random: random(self.seed, trajectory),
        }
    }

    async fn rows(&self, walk: &mut Walk, trajectory: usize, times: Range<usize>) -> Vec<ArrayRef> {
        let rows = times.len();
        let mut columns: [Vec<f64>; 5] = Default::default();
        for _ in 0..rows {
            let [cos, sin] = direction(walk.theta);
            let [x, y] = observed(walk.theta);
            let [first, second] = normals(&mut walk.random);
            let values = [walk.theta, cos, sin, x + NOISE * first, y + NOISE * second];
            append(&mut columns, values);
            let [turn, _] = normals(&mut walk.random);
            walk.theta = (walk.theta + STEP + NOISE * turn).rem_euclid(2.0 * PI);
        }
        let mut arrays = vec![
            all(trajectory / 2, rows),
            all(trajectory, rows),
            integers(times),
        ];
        arrays.extend(numbers(columns));
        let split = ["train", "test"][trajectory % 2];
        arrays.push(Arc::new(StringArray::from(vec![split; rows])));
        arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    #[tokio::test]
    async fn rows_follow_the_documented_dynamics_in_all_partitions() {
        let sql = "SELECT world, trajectory, time, theta, cos_theta, sin_theta, x, y, \
                   CASE split WHEN 'train' THEN 1.0 ELSE 0.0 END \
                   FROM kernel_toy(9000, 50, 3, 2) ORDER BY trajectory, time";
        let rows = floats::<Toy>(sql, 1).await;
        assert_eq!(rows, floats::<Toy>(sql, 3).await);
        assert_eq!(rows[0].len(), 2 * 9050);
        let [mut turns, mut noise, mut steps] = [0.0; 3];
        for at in 0..rows[0].len() {
            let (theta, time) = (rows[3][at], rows[2][at]);
            assert_eq!(rows[0][at], (rows[1][at] / 2.0).floor());
            assert_eq!(rows[8][at], 1.0 - rows[1][at] % 2.0);
            assert!((0.0..2.0 * PI).contains(&theta) && (time > 0.0 || theta == 0.0));
            assert!((rows[4][at] - theta.cos()).abs() < 1e-14);
            assert!((rows[5][at] - theta.sin()).abs() < 1e-14);
            let radius = 1.0 + (8.0 * theta).sin();
            noise += (rows[6][at] - radius * theta.cos()).powi(2);
            noise += (rows[7][at] - radius * theta.sin()).powi(2);
            if time > 0.0 {
                let turn = (theta - rows[3][at - 1] - STEP + PI).rem_euclid(2.0 * PI) - PI;
                turns += turn * turn;
                steps += 1.0;
            }
        }
        let noise = noise / (2.0 * rows[0].len() as f64);
        assert!((noise - 0.04).abs() < 0.0015, "{noise}");
        assert!((turns / steps - 0.04).abs() < 0.002, "{}", turns / steps);
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<Toy>(
            "
            0 => train must be a positive integer, not 0
            1, 1, 1, 1, 1 => at most 4 arguments are possible
            1, 1, -1 => seed must be an integer, 0 or more
            ",
        )
        .await;
    }
}
