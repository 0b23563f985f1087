//! The table function `camera`: images of a room from a camera that circles around its centre,
//! rendered while they are read.
//!
//! ```sql
//! -- 300 training rows and 200 test rows with images of 100 × 100 pixels.
//! SELECT trajectory, time, x, y, image, split FROM camera(0) WHERE split <> 'circle'
//! -- A small version: scene 2, 200 training rows, 50 test rows, 16 × 16 pixels.
//! SELECT * FROM camera(2, 200, 50, 16)
//! ```
//!
//! `camera(scene, train, test, size, circle, seed)` takes constants. Trailing arguments may be
//! omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `scene` | 0 | number of the scene; scenes differ in the places of a table and a chair |
//! | `train` | 300 | rows of the training trajectory |
//! | `test` | 200 | rows of the test trajectory |
//! | `size` | 100 | pixels along a side of an image |
//! | `circle` | 32 | images from equally spaced places at a distance of 6 m from the centre |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows everywhere |
//!
//! The camera is 5 m above the floor and looks at a point 0.8 m above the centre. It moves as in
//! the camera experiment of Song, Zhu and Ren (NIPS 2016): θ_{t+1} = θ_t + 0.2 + N(0, 4e-4). Its
//! distance r from the centre is a random walk with steps N(0, 1), cut to \[0, 10\] m in training
//! rows and to \[5, 7\] m in test rows. Both trajectories begin at r = 6 and a random angle.
//!
//! Trajectory 0 is for training, 1 for tests, and 2 has the rows of `circle`. The result is ordered
//! by (trajectory, time): `scene`, `trajectory` and `time` are BIGINT from 0; the place of the
//! camera `x` = r cos θ and `y` = r sin θ, and `r`, are DOUBLE in metres; `theta` DOUBLE grows
//! without bound; `split` is 'train', 'test' or 'circle'; `image` is a list of `size`² DOUBLE from
//! 0 (black) to 1 (white), row by row from the top.

mod render;

use crate::math::portable::direction;
use crate::math::seed;
use crate::read::arguments::Arguments;
use crate::read::camera::render::Scene;
use crate::read::generated::{Generated, World, normals, random};
use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;
use rand::RngExt;
use rand_pcg::Pcg64;
use std::f64::consts::PI;
use std::sync::{Arc, LazyLock};

/// Registers `camera(…)` with a session.
pub(crate) fn register(ctx: &SessionContext) {
    ctx.register_udtf("camera", Arc::new(Function));
}

const ARGUMENTS: [&str; 6] = ["scene", "train", "test", "size", "circle", "seed"];

/// Most pixels along a side of an image.
const MAX_SIZE: usize = 1000;

/// Pixels per batch, unless one image has more.
const BATCH_PIXELS: usize = 200_000;

/// Angle per step, and the standard deviation of its noise.
const STEP: f64 = 0.2;
const NOISE: f64 = 0.02;

/// The distance from the centre of both first rows and of the circle.
const MIDDLE: f64 = 6.0;

/// The names of the trajectories and the least and the largest distance from the centre.
const SPLITS: [(&str, f64, f64); 3] = [
    ("train", 0.0, 10.0),
    ("test", 5.0, 7.0),
    ("circle", MIDDLE, MIDDLE),
];

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let integers = ["scene", "trajectory", "time"].map(|name| (name, DataType::Int64));
    let numbers = ["x", "y", "r", "theta"].map(|name| (name, DataType::Float64));
    let pixel = Arc::new(Field::new_list_field(DataType::Float64, false));
    let columns = integers.into_iter().chain(numbers);
    let columns = columns.chain([("split", DataType::Utf8), ("image", DataType::List(pixel))]);
    let fields = columns.map(|(name, kind)| Field::new(name, kind, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
});

#[derive(Debug)]
struct Function;

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let arguments = Arguments::new("camera", &ARGUMENTS, args.exprs())?;
        let track = Track {
            scene: arguments.whole(0, 0, 0)? as u64,
            rows: [
                arguments.whole(1, 300, 1)? as usize,
                arguments.whole(2, 200, 1)? as usize,
                arguments.whole(4, 32, 0)? as usize,
            ],
            size: arguments.whole(3, 100, 1)? as usize,
            seed: arguments.whole(5, 0, 0)? as u64,
            with_images: true,
        };
        if track.size > MAX_SIZE {
            return plan_err!(
                "camera: size must be at most {MAX_SIZE}, not {}",
                track.size
            );
        }
        Ok(Arc::new(Generated(track)))
    }
}

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
struct Track {
    scene: u64,
    /// Rows of the three trajectories.
    rows: [usize; 3],
    size: usize,
    seed: u64,
    /// Whether images are read. Otherwise their lists are empty.
    with_images: bool,
}

struct Walk {
    trajectory: usize,
    /// The time of the next row.
    time: usize,
    theta: f64,
    radius: f64,
    random: Pcg64,
    scene: Scene,
}

impl World for Track {
    type Walk = Walk;

    fn schema() -> &'static SchemaRef {
        &SCHEMA
    }

    fn trajectories(&self) -> usize {
        self.rows.len()
    }

    fn projected(&self, columns: Option<&Vec<usize>>) -> Track {
        let image = SCHEMA.fields().len() - 1;
        Track {
            with_images: columns.is_none_or(|columns| columns.contains(&image)),
            ..self.clone()
        }
    }

    fn start(&self, trajectory: usize) -> Walk {
        // Scenes have different tracks.
        let seed = self.seed ^ seed::mixed(self.scene);
        let mut random = random(seed, trajectory);
        let share: f64 = random.random();
        Walk {
            trajectory,
            time: 0,
            theta: if trajectory == 2 {
                0.0
            } else {
                2.0 * PI * share
            },
            radius: MIDDLE,
            random,
            scene: Scene::new(self.scene),
        }
    }

    fn next(&self, walk: &mut Walk) -> Result<Option<RecordBatch>> {
        let (split, least, most) = SPLITS[walk.trajectory];
        let length = self.rows[walk.trajectory];
        let pixels = self.size * self.size;
        let end = length.min(walk.time + (BATCH_PIXELS / pixels).max(1));
        let times = walk.time as i64..end as i64;
        let rows = end - walk.time;
        if rows == 0 {
            return Ok(None);
        }
        walk.time = end;
        let mut columns: [Vec<f64>; 4] = Default::default();
        let mut images = Vec::new();
        for _ in 0..rows {
            let at = direction(walk.theta);
            let [x, y] = at.map(|side| walk.radius * side);
            for (column, value) in columns.iter_mut().zip([x, y, walk.radius, walk.theta]) {
                column.push(value);
            }
            if self.with_images {
                images.extend(walk.scene.image(walk.radius, at, self.size));
            }
            let [turn, step] = normals(&mut walk.random);
            walk.theta += if walk.trajectory == 2 {
                2.0 * PI / length as f64
            } else {
                STEP + NOISE * turn
            };
            walk.radius = (walk.radius + step).clamp(least, most);
        }
        let all = |value: i64| Arc::new(Int64Array::from(vec![value; rows])) as ArrayRef;
        let mut arrays = vec![all(self.scene as i64), all(walk.trajectory as i64)];
        arrays.push(Arc::new(Int64Array::from_iter_values(times)));
        arrays.extend(columns.map(|column| Arc::new(Float64Array::from(column)) as ArrayRef));
        arrays.push(Arc::new(StringArray::from(vec![split; rows])));
        let lengths = std::iter::repeat_n(images.len() / rows, rows);
        arrays.push(Arc::new(ListArray::new(
            Arc::new(Field::new_list_field(DataType::Float64, false)),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(Float64Array::from(images)),
            None,
        )));
        Ok(Some(RecordBatch::try_new(SCHEMA.clone(), arrays)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, message};

    #[tokio::test]
    async fn rows_follow_the_documented_track_in_all_partitions() {
        let sql = "SELECT trajectory, time, x, y, r, theta, \
                   CASE split WHEN 'train' THEN 0 WHEN 'test' THEN 1 ELSE 2 END \
                   FROM camera(1, 3000, 500, 4) ORDER BY trajectory, time";
        let rows = floats(register, sql, 1).await;
        assert_eq!(rows, floats(register, sql, 3).await);
        assert_eq!(rows[0].len(), 3532);
        assert_eq!(rows[0], rows[6]);
        let mut turns = 0.0;
        for at in 0..rows[0].len() {
            let (kind, r, theta) = (rows[0][at], rows[4][at], rows[5][at]);
            let (_, least, most) = SPLITS[kind as usize];
            assert!((least..=most).contains(&r));
            assert!((rows[2][at] - r * theta.cos()).abs() < 1e-11);
            assert!((rows[3][at] - r * theta.sin()).abs() < 1e-11);
            if kind == 0.0 && rows[1][at] > 0.0 {
                turns += (theta - rows[5][at - 1] - STEP).powi(2) / 2999.0;
            }
        }
        assert!((turns / 4e-4 - 1.0).abs() < 0.1, "{turns}");
    }

    // Lists are as long as an image, and the image of a row does not depend on the batch.
    #[tokio::test]
    async fn images_are_lists_of_pixels() {
        let sql = "SELECT CAST(cardinality(image) AS BIGINT), image[1], image[40] \
                   FROM camera(0, 5, 3, 9, 2) ORDER BY trajectory, time";
        let rows = floats(register, sql, 2).await;
        assert_eq!(rows[0], vec![81.0; 10]);
        let other = floats(register, &sql.replace("5, 3", "6, 3"), 1).await;
        assert_eq!(rows[2][..5], other[2][..5]);
        assert!(rows[2].iter().any(|value| *value != rows[2][0]));
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        for (call, expected) in [
            ("camera(-1)", "scene must be an integer, 0 or more"),
            ("camera(0, 0)", "train must be a positive integer, not 0"),
            (
                "camera(0, 1, 1, 1001)",
                "size must be at most 1000, not 1001",
            ),
        ] {
            let error = message(register, call).await;
            assert!(error.contains(&format!("camera: {expected}")), "{error}");
        }
    }
}
