//! The table function `layers`: a wide layer of a network that sees a hidden diffusion, computed
//! while it is read.
//!
//! ```sql
//! -- 47,936 rows of 512 numbers in 130 trajectories.
//! SELECT trajectory, time, layer FROM layers()
//! -- 2,000 rows of 64 numbers in 10 trajectories.
//! SELECT * FROM layers(10, 2000, 64)
//! ```
//!
//! `layers(trajectories, rows, width, seed)` takes constants. Trailing arguments may be omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `trajectories` | 130 | independent trajectories |
//! | `rows` | 47936 | rows of all trajectories, whose lengths differ by at most one |
//! | `width` | 512 | numbers per row |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//!
//! The defaults have the shape of the data of Sun, Duan, Gong and Wang, NeurIPS 2019, section 5.2:
//! the last hidden layer of a network that plays a game. The game is not here. Its place takes the
//! diffusion z of the table function `wells`, a fifth of a time unit per row, and unit j of the
//! layer is max(0, aⱼᵀz + bⱼ + e/5) with standard normal a, b and e. The weights a and b depend on
//! the seed and j, and e on the row, too. So the layer has `width` numbers, and all that lasts are
//! the two of z.
//!
//! The result is ordered by (trajectory, time): `trajectory` and `time` BIGINT from 0, `x` and `y`
//! DOUBLE, which are z, and `layer`, a list of DOUBLE.

use crate::read::arguments::Arguments;
use crate::read::generated::{World, all, integers, normals, numbers, plane, random};
use crate::read::wells::Walk as Hidden;
use arrow::array::{ArrayRef, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use rand_pcg::Pcg64;
use std::ops::Range;
use std::sync::Arc;

/// Time of the diffusion between two rows, in steps of the integration.
const STEPS_PER_ROW: usize = 200;

/// Step of the integration.
const STEP: f64 = 0.001;

/// Standard deviation of the noise of a unit.
const NOISE: f64 = 0.2;

/// Most numbers of a row.
const MAX_WIDTH: usize = 1 << 16;

/// Most numbers of a batch.
const BATCH_NUMBERS: usize = 1 << 18;

/// The number of the column of lists.
const LAYER: usize = 4;

fn unit() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, false))
}

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    trajectories: usize,
    rows: usize,
    seed: u64,
    /// a and b of each unit.
    weights: Arc<Vec<[f64; 3]>>,
    /// Whether lists are read. Otherwise they are empty.
    with_layers: bool,
}

/// The state of a trajectory, and the random numbers of its noise.
pub(crate) struct Walk {
    hidden: Hidden,
    noise: Pcg64,
}

impl World for Layers {
    type Walk = Walk;

    const NAME: &'static str = "layers";

    const ARGUMENTS: &'static [&'static str] = &["trajectories", "rows", "width", "seed"];

    fn columns() -> Vec<(&'static str, DataType)> {
        let layer = ("layer", DataType::List(unit()));
        plane().into_iter().chain([layer]).collect()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let trajectories = arguments.whole(0, 130, 1)? as usize;
        let rows = arguments.whole(1, 47_936, 1)? as usize;
        let width = arguments.whole(2, 512, 1)? as usize;
        let seed = arguments.whole(3, 0, 0)? as u64;
        if rows < trajectories {
            return plan_err!("layers: rows must be at least {trajectories}, not {rows}");
        }
        if width > MAX_WIDTH {
            return plan_err!("layers: width must be at most {MAX_WIDTH}, not {width}");
        }
        let mut weights = random(seed, usize::MAX - 1);
        let unit = |_| {
            let [a, b] = normals(&mut weights);
            let [c, _] = normals(&mut weights);
            [a, b, c]
        };
        Ok(Layers {
            trajectories,
            rows,
            seed,
            weights: Arc::new((0..width).map(unit).collect()),
            with_layers: true,
        })
    }

    fn pieces(&self) -> usize {
        self.trajectories
    }

    fn length(&self, trajectory: usize) -> usize {
        let longer = self.rows % self.trajectories;
        self.rows / self.trajectories + usize::from(trajectory < longer)
    }

    fn batch(&self) -> usize {
        (BATCH_NUMBERS / self.weights.len()).clamp(1, 4096)
    }

    fn projected(&self, columns: Option<&Vec<usize>>) -> Layers {
        Layers {
            with_layers: columns.is_none_or(|columns| columns.contains(&LAYER)),
            ..self.clone()
        }
    }

    fn start(&self, trajectory: usize) -> Walk {
        Walk {
            hidden: Hidden::new(self.seed, STEP, trajectory),
            noise: random(!self.seed, trajectory),
        }
    }

    async fn rows(&self, walk: &mut Walk, trajectory: usize, times: Range<usize>) -> Vec<ArrayRef> {
        let rows = times.len();
        let ([mut x, mut y], mut layers) = ([vec![], vec![]], Vec::new());
        for time in times.clone() {
            if time > 0 {
                walk.hidden.advance(STEPS_PER_ROW);
            }
            let at = walk.hidden.position();
            x.push(at[0]);
            y.push(at[1]);
            if !self.with_layers {
                continue;
            }
            for two in self.weights.chunks(2) {
                let noise = normals(&mut walk.noise);
                for ([a, b, c], e) in two.iter().zip(noise) {
                    layers.push((a * at[0] + b * at[1] + c + NOISE * e).max(0.0));
                }
            }
        }
        let mut columns = vec![all(trajectory, rows), integers(times)];
        columns.extend(numbers([x, y]));
        let lengths = std::iter::repeat_n(layers.len() / rows, rows);
        columns.push(Arc::new(ListArray::new(
            unit(),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(Float64Array::from(layers)),
            None,
        )));
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    // Section 5.2: 47,936 rows in 130 trajectories.
    #[tokio::test]
    async fn the_defaults_have_the_shape_of_the_paper() {
        let sql =
            "SELECT count(*), count(DISTINCT trajectory), max(time) FROM layers(130, 47936, 1)";
        let found = floats::<Layers>(sql, 2).await;
        assert_eq!(found, [[47_936.0], [130.0], [368.0]]);
        let world = Layers::new(&Arguments::new("layers", Layers::ARGUMENTS, &[]).unwrap());
        assert_eq!(world.unwrap().weights.len(), 512);
    }

    // Two rows of one state differ by noise alone. A unit of weights (a, b, c) has the mean
    // ax + by + c where it is far above 0.
    #[tokio::test]
    async fn units_are_rectified_sums_with_noise() {
        let sql = "SELECT x, y, layer[1], layer[2], layer[3] FROM layers(5, 500, 3, 7) \
                   ORDER BY trajectory, time";
        let rows = floats::<Layers>(sql, 1).await;
        assert_eq!(rows, floats::<Layers>(sql, 3).await);
        let mut weights = random(7, usize::MAX - 1);
        for unit in &rows[2..] {
            let [a, b] = normals(&mut weights);
            let c = normals(&mut weights)[0];
            let (mut squares, mut n) = (0.0, 0.0);
            for at in 0..500 {
                let sum = a * rows[0][at] + b * rows[1][at] + c;
                assert!(unit[at] >= 0.0 && (unit[at] - sum.max(0.0)).abs() < 1.2);
                if sum > 1.0 {
                    squares += (unit[at] - sum).powi(2);
                    n += 1.0;
                }
            }
            assert!(
                n < 20.0 || (squares / n / 0.04 - 1.0f64).abs() < 0.9,
                "{squares} {n}"
            );
        }
        // Without the lists, the states are the same.
        let states = floats::<Layers>("SELECT x, y FROM layers(5, 500, 3, 7)", 1).await;
        assert_eq!(states, rows[..2]);
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<Layers>(
            "
            0 => trajectories must be a positive integer, not 0
            9, 8 => rows must be at least 9, not 8
            9, 9, 65537 => width must be at most 65536, not 65537
            ",
        )
        .await;
    }
}
