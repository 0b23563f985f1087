//! The table function `double_gyre`: the trajectories of Example 23 of the coherence paper,
//! computed while they are read.
//!
//! ```sql
//! -- The example as printed: 204 800 trajectories.
//! SELECT trajectory, time, x, y FROM double_gyre()
//! -- Finer boxes, noise 1/256.
//! SELECT * FROM double_gyre(512, 256, 100)
//! -- Another seed, half the noise.
//! SELECT * FROM double_gyre(64, 32, 100, 7, 40, 0.01, 1.0 / 64)
//! ```
//!
//! `double_gyre(nx, ny, per_box, seed, duration, step, noise)` takes constants. Trailing arguments
//! may be omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `nx`, `ny` | 64, 32 | boxes along [0, 2] and [0, 1] |
//! | `per_box` | 100 | uniform random starting points per box |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//! | `duration` | 40 | whole time units, each one period of the flow |
//! | `step` | 0.01 | step of the Runge–Kutta method, 1 over an integer |
//! | `noise` | 1/`ny` | ρ: uniform in [−ρ, ρ] per coordinate, reflected at the border; 0 for none |
//!
//! The result has two rows per trajectory, ordered by (trajectory, time): `trajectory` BIGINT from
//! 0, row by row of boxes; `time` BIGINT, 0 or `duration`; `x` DOUBLE in [0, 2) and `y` DOUBLE in
//! [0, 1). Partitions are ranges of trajectories in ascending order.

pub mod flow;

use crate::read::arguments::Arguments;
use crate::read::double_gyre::flow::{Boxes, HEIGHT, WIDTH};
use crate::read::generated::{World, integers, numbers, plane};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use std::ops::Range;

/// Trajectories with two rows each that are computed together.
const TOGETHER: usize = 2048;

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
pub(crate) struct DoubleGyre {
    boxes: Boxes,
    seed: u64,
    duration: i64,
    /// Runge–Kutta steps per time unit.
    steps: usize,
    noise: f64,
    /// Whether the query reads x or y. If not, the flow is not computed.
    with_places: bool,
}

impl World for DoubleGyre {
    type Walk = ();

    const NAME: &'static str = "double_gyre";

    const ARGUMENTS: &'static [&'static str] =
        &["nx", "ny", "per_box", "seed", "duration", "step", "noise"];

    fn columns() -> Vec<(&'static str, DataType)> {
        plane()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let boxes = Boxes {
            nx: arguments.whole(0, 64, 1)? as usize,
            ny: arguments.whole(1, 32, 1)? as usize,
            per_box: arguments.whole(2, 100, 1)? as usize,
        };
        // Trajectory numbers are BIGINT.
        let trajectories = [boxes.ny, boxes.per_box]
            .into_iter()
            .try_fold(boxes.nx, usize::checked_mul);
        if trajectories.is_none_or(|s| i64::try_from(s).is_err()) {
            return plan_err!("double_gyre: nx times ny times per_box must be less than 2^63");
        }
        let seed = arguments.whole(3, 0, 0)? as u64;
        let duration = arguments.whole(4, 40, 1)?;
        let step = arguments.real(5, 0.01)?;
        let steps = (1.0 / step).round();
        if !((1.0..=1e9).contains(&steps) && (steps * step - 1.0).abs() < 1e-9) {
            return plan_err!(
                "double_gyre: step must be 1 over a whole number, such as 0.01, not {step}"
            );
        }
        let noise = arguments.real(6, 1.0 / boxes.ny as f64)?;
        if !(0.0..=HEIGHT).contains(&noise) {
            return plan_err!("double_gyre: noise must be from 0 to {HEIGHT}, not {noise}");
        }
        Ok(DoubleGyre {
            boxes,
            seed,
            duration,
            steps: steps as usize,
            noise,
            with_places: true,
        })
    }

    fn pieces(&self) -> usize {
        self.boxes.trajectories().div_ceil(TOGETHER)
    }

    fn length(&self, _piece: usize) -> usize {
        2
    }

    fn projected(&self, columns: Option<&Vec<usize>>) -> Self {
        DoubleGyre {
            with_places: columns.is_none_or(|columns| columns.iter().any(|&c| c >= 2)),
            ..self.clone()
        }
    }

    fn start(&self, _piece: usize) {}

    /// Both rows of every trajectory of a piece. Yields after each time unit, a few milliseconds,
    /// so that a query can be cancelled and other tasks of the runtime can run.
    async fn rows(&self, _walk: &mut (), piece: usize, _times: Range<usize>) -> Vec<ArrayRef> {
        let first = piece * TOGETHER;
        let last = self.boxes.trajectories().min(first + TOGETHER);
        let trajectories = first..last;
        let draws = flow::draws(self.seed, trajectories.clone());
        let (x0, y0): (Vec<f64>, Vec<f64>) = trajectories
            .clone()
            .zip(&draws)
            .map(|(s, d)| self.boxes.start(s, d[0], d[1]))
            .unzip();
        let (mut x1, mut y1) = (x0.clone(), y0.clone());
        if self.with_places {
            for unit in 0..self.duration {
                let step = 1.0 / self.steps as f64;
                flow::advance(&mut x1, &mut y1, unit as f64, step, self.steps);
                tokio::task::yield_now().await;
            }
        }

        let observed = |start: &[f64], end: &[f64], first_draw: usize, hi: f64| {
            let ends = start.iter().zip(end).zip(&draws);
            let places = ends.flat_map(|((&start, &end), d)| {
                [
                    flow::observe(start, d[first_draw], self.noise, hi),
                    flow::observe(end, d[first_draw + 2], self.noise, hi),
                ]
            });
            places.collect()
        };
        let x = observed(&x0, &x1, 2, WIDTH);
        let y = observed(&y0, &y1, 3, HEIGHT);
        let times = trajectories
            .clone()
            .flat_map(|_| [0, self.duration as usize]);
        let mut columns = vec![
            integers(trajectories.flat_map(|trajectory| [trajectory; 2])),
            integers(times),
        ];
        columns.extend(numbers([x, y]));
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses, session};
    use datafusion::physical_plan::displayable;

    type Row = (i64, i64, f64, f64);

    async fn rows(partitions: usize, call: &str) -> Vec<Row> {
        let sql = format!("SELECT * FROM {call} ORDER BY trajectory, time");
        let columns = floats::<DoubleGyre>(&sql, partitions).await;
        let row = |at: usize| {
            let [s, t, x, y] = std::array::from_fn(|column| columns[column][at]);
            (s as i64, t as i64, x, y)
        };
        (0..columns[0].len()).map(row).collect()
    }

    #[tokio::test]
    async fn rows_do_not_depend_on_partitions() {
        // 9000 trajectories.
        let call = "double_gyre(30, 15, 20, 5, 2)";
        let one = rows(1, call).await;
        assert_eq!(one.len(), 18_000);
        for (k, row) in one.iter().enumerate() {
            assert_eq!((row.0, row.1), (k as i64 / 2, 2 * (k as i64 % 2)));
            assert!((0.0..2.0).contains(&row.2) && (0.0..1.0).contains(&row.3));
        }
        assert_eq!(one, rows(7, call).await);
        assert_ne!(one, rows(1, "double_gyre(30, 15, 20, 6, 2)").await);
    }

    #[tokio::test]
    async fn without_noise_trajectories_start_in_their_boxes() {
        let mut held = vec![0; 12 * 5];
        for (s, _, x, y) in rows(2, "double_gyre(12, 5, 3, 0, 1, 0.1, 0)")
            .await
            .into_iter()
            .step_by(2)
        {
            let number = (x * 6.0) as usize + 12 * (y * 5.0) as usize;
            assert_eq!(number, s as usize / 3);
            held[number] += 1;
        }
        assert_eq!(held, [3; 60]);
    }

    #[tokio::test]
    async fn noise_moves_both_ends_by_at_most_its_size() {
        let still = rows(1, "double_gyre(8, 4, 10, 1, 1, 0.1, 0)").await;
        let noisy = rows(1, "double_gyre(8, 4, 10, 1, 1, 0.1, 1.0 / 16)").await;
        for (a, b) in still.iter().zip(&noisy) {
            let (dx, dy) = ((a.2 - b.2).abs(), (a.3 - b.3).abs());
            assert!(dx > 0.0 && dy > 0.0 && dx <= 0.0625 && dy <= 0.0625);
        }
    }

    #[tokio::test]
    async fn omitted_arguments_have_their_defaults() {
        let defaults = Arguments::new(DoubleGyre::NAME, DoubleGyre::ARGUMENTS, &[]);
        let defaults = DoubleGyre::new(&defaults.unwrap()).unwrap();
        assert_eq!(defaults.boxes.trajectories(), 204_800);
        assert_eq!((defaults.steps, defaults.duration), (100, 40));
        assert_eq!(defaults.noise, 1.0 / 32.0);
        assert_eq!(
            rows(1, "double_gyre(4, 2, 3, 0, 1, 0.01, 0.5)").await,
            rows(1, "double_gyre(2 + 2, 2.0, 3, 0, 1)").await
        );
    }

    #[tokio::test]
    async fn refusals_name_the_argument() {
        refuses::<DoubleGyre>(
            "
            -3 => nx must be a positive integer, not -3
            4, 0 => ny must be a positive integer, not 0
            4, 2, 1.5 => per_box must be a positive integer, not 1.5
            4, 2, 1, -1 => seed must be an integer, 0 or more, not -1
            4, 2, 1, 0, NULL => duration must be a positive integer, not NULL
            4, 2, 1, 0, 'long' => duration must be a positive integer, not long
            4, 2, 1, 0, 40, 0.03 => step must be 1 over a whole number, such as 0.01, not 0.03
            4, 2, 1, 0, 40, 0 => step must be 1 over a whole number, such as 0.01, not 0
            4, 2, 1, 0, 40, 0.1, -0.5 => noise must be from 0 to 1, not -0.5
            random() => nx must be a constant, not random()
            3037000500, 3037000500 => nx times ny times per_box must be less than 2^63
            1, 1, 1, 1, 1, 1, 1, 1 => at most 7 arguments are possible (nx, ny, per_box, seed, duration, step, noise), not 8
            ",
        )
        .await;
    }

    #[tokio::test]
    async fn the_declared_order_saves_the_sort() {
        let sql = "SELECT time, x, trajectory FROM double_gyre(4, 2, 5) ORDER BY trajectory, time";
        let ctx = session::<DoubleGyre>(3);
        let plan = ctx.sql(sql).await.unwrap().create_physical_plan().await;
        let plan = displayable(plan.unwrap().as_ref())
            .indent(false)
            .to_string();
        assert!(!plan.contains("SortExec"), "{plan}");
    }

    #[tokio::test]
    async fn counting_rows_does_not_compute_the_flow() {
        // 10⁹ time units would take years.
        let sql = "SELECT count(*) FROM double_gyre(4, 2, 5, 0, 1000000000)";
        assert_eq!(floats::<DoubleGyre>(sql, 2).await, [[80.0]]);
    }
}
