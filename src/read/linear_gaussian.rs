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
use crate::read::generated::{Generated, World, normals, random};
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;
use rand_pcg::Pcg64;
use std::sync::{Arc, LazyLock};

/// Registers `linear_gaussian(…)` with a session.
pub fn register(ctx: &SessionContext) {
    ctx.register_udtf("linear_gaussian", Arc::new(Function));
}

const ARGUMENTS: [&str; 6] = ["trajectories", "rows", "a", "q", "r", "seed"];

/// Rows per batch.
const BATCH: usize = 8192;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let integers = ["trajectory", "time"].map(|name| (name, DataType::Int64));
    let numbers = ["state", "observation", "exact_mean", "exact_variance"];
    let numbers = numbers.map(|name| (name, DataType::Float64));
    let columns = integers.into_iter().chain(numbers);
    let fields = columns.map(|(name, kind)| Field::new(name, kind, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
});

#[derive(Debug)]
struct Function;

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let arguments = Arguments::new("linear_gaussian", &ARGUMENTS, args.exprs())?;
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
        Ok(Arc::new(Generated(system)))
    }
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
    trajectory: usize,
    /// The time of the next row.
    time: usize,
    state: f64,
    /// Mean and variance of the state given the observations of earlier rows.
    mean: f64,
    variance: f64,
    random: Pcg64,
}

impl World for System {
    type Walk = Walk;

    fn schema() -> &'static SchemaRef {
        &SCHEMA
    }

    fn trajectories(&self) -> usize {
        self.trajectories
    }

    fn start(&self, trajectory: usize) -> Walk {
        let mut random = random(self.seed, trajectory);
        let variance = self.q / (1.0 - self.a * self.a);
        let [first, _] = normals(&mut random);
        Walk {
            trajectory,
            time: 0,
            state: variance.sqrt() * first,
            mean: 0.0,
            variance,
            random,
        }
    }

    fn next(&self, walk: &mut Walk) -> Result<Option<RecordBatch>> {
        let end = self.rows.min(walk.time + BATCH);
        let times = walk.time as i64..end as i64;
        let rows = end - walk.time;
        if rows == 0 {
            return Ok(None);
        }
        walk.time = end;
        let mut columns: [Vec<f64>; 4] = Default::default();
        for _ in 0..rows {
            let [noise, drift] = normals(&mut walk.random);
            let observation = walk.state + self.r.sqrt() * noise;
            let gain = walk.variance / (walk.variance + self.r);
            let mean = walk.mean + gain * (observation - walk.mean);
            let variance = gain * self.r;
            for (column, value) in columns
                .iter_mut()
                .zip([walk.state, observation, mean, variance])
            {
                column.push(value);
            }
            walk.state = self.a * walk.state + self.q.sqrt() * drift;
            walk.mean = self.a * mean;
            walk.variance = self.a * self.a * variance + self.q;
        }
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![walk.trajectory as i64; rows])),
            Arc::new(Int64Array::from_iter_values(times)),
        ];
        let numbers = columns.map(|column| Arc::new(Float64Array::from(column)) as ArrayRef);
        arrays.extend(numbers);
        Ok(Some(RecordBatch::try_new(SCHEMA.clone(), arrays)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, message};

    #[tokio::test]
    async fn rows_have_the_documented_moments_in_all_partitions() {
        let sql = "SELECT time, state, observation, exact_mean, exact_variance \
                   FROM linear_gaussian(3, 20000) ORDER BY trajectory, time";
        let rows = floats(register, sql, 1).await;
        assert_eq!(rows, floats(register, sql, 3).await);
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
        for (call, expected) in [
            (
                "linear_gaussian(1, 1, 1.0)",
                "a must be between -1 and 1, not 1",
            ),
            ("linear_gaussian(1, 1, 0.5, 0)", "q must be positive, not 0"),
            (
                "linear_gaussian(1, 1, 0.5, 1, -1)",
                "r must be positive, not -1",
            ),
            (
                "linear_gaussian(1, 0)",
                "rows must be a positive integer, not 0",
            ),
        ] {
            let error = message(register, call).await;
            assert!(
                error.contains(&format!("linear_gaussian: {expected}")),
                "{error}"
            );
        }
    }
}
