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
use crate::read::generated::{World, all, append, integers, normals, numbers, random};
use arrow::array::{ArrayRef, Float64Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::f64::consts::PI;
use std::ops::Range;
use std::sync::Arc;

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

/// The number of the column of images.
const IMAGE: usize = 8;

fn pixel() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, false))
}

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    scene: u64,
    /// Rows of the three trajectories.
    rows: [usize; 3],
    size: usize,
    seed: u64,
    /// Whether images are read. Otherwise their lists are empty.
    with_images: bool,
}

pub(crate) struct Walk {
    theta: f64,
    radius: f64,
    random: Pcg64,
    scene: Scene,
}

impl World for Track {
    type Walk = Walk;

    const NAME: &'static str = "camera";

    const ARGUMENTS: &'static [&'static str] =
        &["scene", "train", "test", "size", "circle", "seed"];

    fn columns() -> Vec<(&'static str, DataType)> {
        let integers = ["scene", "trajectory", "time"].map(|name| (name, DataType::Int64));
        let numbers = ["x", "y", "r", "theta"].map(|name| (name, DataType::Float64));
        let columns = integers.into_iter().chain(numbers);
        let lists = [
            ("split", DataType::Utf8),
            ("image", DataType::List(pixel())),
        ];
        columns.chain(lists).collect()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
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
        Ok(track)
    }

    fn pieces(&self) -> usize {
        self.rows.len()
    }

    fn length(&self, trajectory: usize) -> usize {
        self.rows[trajectory]
    }

    fn batch(&self) -> usize {
        (BATCH_PIXELS / (self.size * self.size)).max(1)
    }

    fn projected(&self, columns: Option<&Vec<usize>>) -> Track {
        Track {
            with_images: columns.is_none_or(|columns| columns.contains(&IMAGE)),
            ..self.clone()
        }
    }

    fn start(&self, trajectory: usize) -> Walk {
        // Scenes have different tracks.
        let seed = self.seed ^ seed::mixed(self.scene);
        let mut random = random(seed, trajectory);
        let share: f64 = random.random();
        Walk {
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

    async fn rows(&self, walk: &mut Walk, trajectory: usize, times: Range<usize>) -> Vec<ArrayRef> {
        let (split, least, most) = SPLITS[trajectory];
        let (rows, length) = (times.len(), self.rows[trajectory]);
        let mut columns: [Vec<f64>; 4] = Default::default();
        let mut images = Vec::new();
        for _ in 0..rows {
            let at = direction(walk.theta);
            let [x, y] = at.map(|side| walk.radius * side);
            append(&mut columns, [x, y, walk.radius, walk.theta]);
            if self.with_images {
                images.extend(walk.scene.image(walk.radius, at, self.size));
            }
            let [turn, step] = normals(&mut walk.random);
            walk.theta += if trajectory == 2 {
                2.0 * PI / length as f64
            } else {
                STEP + NOISE * turn
            };
            walk.radius = (walk.radius + step).clamp(least, most);
        }
        let mut arrays = vec![
            all(self.scene as usize, rows),
            all(trajectory, rows),
            integers(times),
        ];
        arrays.extend(numbers(columns));
        arrays.push(Arc::new(StringArray::from(vec![split; rows])));
        let lengths = std::iter::repeat_n(images.len() / rows, rows);
        arrays.push(Arc::new(ListArray::new(
            pixel(),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(Float64Array::from(images)),
            None,
        )));
        arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    #[tokio::test]
    async fn rows_follow_the_documented_track_in_all_partitions() {
        let sql = "SELECT trajectory, time, x, y, r, theta, \
                   CASE split WHEN 'train' THEN 0 WHEN 'test' THEN 1 ELSE 2 END \
                   FROM camera(1, 3000, 500, 4) ORDER BY trajectory, time";
        let rows = floats::<Track>(sql, 1).await;
        assert_eq!(rows, floats::<Track>(sql, 3).await);
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
        let rows = floats::<Track>(sql, 2).await;
        assert_eq!(rows[0], vec![81.0; 10]);
        let other = floats::<Track>(&sql.replace("5, 3", "6, 3"), 1).await;
        assert_eq!(rows[2][..5], other[2][..5]);
        assert!(rows[2].iter().any(|value| *value != rows[2][0]));
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<Track>(
            "
            -1 => scene must be an integer, 0 or more
            0, 0 => train must be a positive integer, not 0
            0, 1, 1, 1001 => size must be at most 1000, not 1001
            ",
        )
        .await;
    }
}
