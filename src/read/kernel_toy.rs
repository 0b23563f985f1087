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
use crate::read::generated::{Generated, World, normals, random};
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;
use rand_pcg::Pcg64;
use std::f64::consts::PI;
use std::sync::{Arc, LazyLock};

/// Registers `kernel_toy(…)` with a session.
pub fn register(ctx: &SessionContext) {
    ctx.register_udtf("kernel_toy", Arc::new(Function));
}

const ARGUMENTS: [&str; 4] = ["train", "test", "seed", "worlds"];

/// Rows per batch.
const BATCH: usize = 8192;

/// Angle per step.
const STEP: f64 = 0.4;

/// Standard deviation of both kinds of noise.
const NOISE: f64 = 0.2;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let integers = ["world", "trajectory", "time"].map(|name| (name, DataType::Int64));
    let numbers = ["theta", "cos_theta", "sin_theta", "x", "y"];
    let numbers = numbers.map(|name| (name, DataType::Float64));
    let columns = integers.into_iter().chain(numbers);
    let columns = columns.chain([("split", DataType::Utf8)]);
    let fields = columns.map(|(name, kind)| Field::new(name, kind, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
});

#[derive(Debug)]
struct Function;

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let arguments = Arguments::new("kernel_toy", &ARGUMENTS, args.exprs())?;
        let worlds = arguments.whole(3, 1, 1)? as usize;
        if worlds > (i64::MAX / 2) as usize {
            return plan_err!("kernel_toy: worlds must be less than 2^62");
        }
        Ok(Arc::new(Generated(Toy {
            train: arguments.whole(0, 1000, 1)? as usize,
            test: arguments.whole(1, 200, 1)? as usize,
            seed: arguments.whole(2, 0, 0)? as u64,
            worlds,
        })))
    }
}

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
struct Toy {
    train: usize,
    test: usize,
    seed: u64,
    worlds: usize,
}

struct Walk {
    trajectory: usize,
    /// The time of the next row.
    time: usize,
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

    fn schema() -> &'static SchemaRef {
        &SCHEMA
    }

    fn trajectories(&self) -> usize {
        2 * self.worlds
    }

    fn start(&self, trajectory: usize) -> Walk {
        Walk {
            trajectory,
            time: 0,
            theta: 0.0,
            random: random(self.seed, trajectory),
        }
    }

    fn next(&self, walk: &mut Walk) -> Result<Option<RecordBatch>> {
        let (length, split) = if walk.trajectory.is_multiple_of(2) {
            (self.train, "train")
        } else {
            (self.test, "test")
        };
        let end = length.min(walk.time + BATCH);
        let times = walk.time as i64..end as i64;
        let rows = end - walk.time;
        if rows == 0 {
            return Ok(None);
        }
        walk.time = end;
        let mut columns: [Vec<f64>; 5] = Default::default();
        for _ in 0..rows {
            let [cos, sin] = direction(walk.theta);
            let [x, y] = observed(walk.theta);
            let [first, second] = normals(&mut walk.random);
            let values = [walk.theta, cos, sin, x + NOISE * first, y + NOISE * second];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
            let [turn, _] = normals(&mut walk.random);
            walk.theta = (walk.theta + STEP + NOISE * turn).rem_euclid(2.0 * PI);
        }
        let all = |value: usize| Arc::new(Int64Array::from(vec![value as i64; rows])) as ArrayRef;
        let mut arrays = vec![all(walk.trajectory / 2), all(walk.trajectory)];
        arrays.push(Arc::new(Int64Array::from_iter_values(times)));
        let numbers = columns.map(|column| Arc::new(Float64Array::from(column)) as ArrayRef);
        arrays.extend(numbers);
        arrays.push(Arc::new(StringArray::from(vec![split; rows])));
        Ok(Some(RecordBatch::try_new(SCHEMA.clone(), arrays)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, message};

    #[tokio::test]
    async fn rows_follow_the_documented_dynamics_in_all_partitions() {
        let sql = "SELECT world, trajectory, time, theta, cos_theta, sin_theta, x, y, \
                   CASE split WHEN 'train' THEN 1.0 ELSE 0.0 END \
                   FROM kernel_toy(9000, 50, 3, 2) ORDER BY trajectory, time";
        let rows = floats(register, sql, 1).await;
        assert_eq!(rows, floats(register, sql, 3).await);
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
        for (call, expected) in [
            ("kernel_toy(0)", "train must be a positive integer, not 0"),
            (
                "kernel_toy(1, 1, 1, 1, 1)",
                "at most 4 arguments are possible",
            ),
            ("kernel_toy(1, 1, -1)", "seed must be an integer, 0 or more"),
        ] {
            let error = message(register, call).await;
            assert!(
                error.contains(&format!("kernel_toy: {expected}")),
                "{error}"
            );
        }
    }
}
