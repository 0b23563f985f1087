//! Images of a room with a table and a chair.
//!
//! Lengths are in metres. The floor is the plane z = 0, and the four walls are planes at ±13 m.
//! Results are bitwise identical on every machine: only additions, multiplications, divisions and
//! square roots occur, in a fixed order.

/// Distance of the walls from the centre.
const WALL: f64 = 13.0;

/// Height of the camera.
const HEIGHT: f64 = 5.0;

/// Height of the point above the centre that the camera looks at.
const FOCUS: f64 = 0.8;

/// Half the width of the image at a distance of 1.
const HALF_WIDTH: f64 = 0.7;

/// Samples along a side of a pixel.
const SAMPLES: usize = 2;

/// Brightness of the floor and of the walls at +x, −x, +y and −y.
const FLOOR: f64 = 0.25;
const WALLS: [[f64; 2]; 2] = [[0.1, 0.75], [0.45, 0.3]];

/// Share of the brightness of a side of a box along x, y and z. Sides that look along a positive
/// axis are brighter than their opposites.
const SIDES: [f64; 3] = [0.7, 0.85, 1.0];
const SHADOW: f64 = 0.8;

/// A box with sides along the axes.
struct Solid {
    low: [f64; 3],
    high: [f64; 3],
    brightness: f64,
}

/// A table and a chair.
pub(super) struct Scene {
    solids: Vec<Solid>,
}

impl Scene {
    /// A scene by its number. Scenes differ in the places of both pieces of furniture.
    pub(super) fn new(number: u64) -> Scene {
        let mut scene = Scene { solids: Vec::new() };
        let table = [
            -0.8 + 0.3 * (number % 3) as f64,
            0.3 * (number / 3 % 3) as f64,
        ];
        scene.add(table, [1.5, 1.0], [1.4, 1.6], 0.85);
        scene.add_legs(table, [1.35, 0.85], 0.12, 1.4, 0.45);
        let chair = [1.6, -0.5 * (1 + number % 2) as f64];
        scene.add(chair, [0.6, 0.6], [0.8, 0.95], 0.65);
        scene.add_legs(chair, [0.5, 0.5], 0.08, 0.8, 0.3);
        scene.add([chair[0] + 0.52, chair[1]], [0.08, 0.6], [0.95, 2.0], 0.55);
        scene
    }

    /// Adds a box around a vertical axis, with half its widths.
    fn add(&mut self, centre: [f64; 2], half: [f64; 2], height: [f64; 2], brightness: f64) {
        self.solids.push(Solid {
            low: [centre[0] - half[0], centre[1] - half[1], height[0]],
            high: [centre[0] + half[0], centre[1] + half[1], height[1]],
            brightness,
        });
    }

    /// Adds four legs at the given distances from a centre.
    fn add_legs(&mut self, centre: [f64; 2], at: [f64; 2], half: f64, top: f64, brightness: f64) {
        for (x, y) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)] {
            let leg = [centre[0] + x * at[0], centre[1] + y * at[1]];
            self.add(leg, [half, half], [0.0, top], brightness);
        }
    }

    /// The image of `size` × `size` pixels, row by row from the top, with values from 0 to 1. The
    /// camera is at a `radius` from the centre in the `direction` (cos θ, sin θ) and looks at the
    /// focus.
    pub(super) fn image(&self, radius: f64, direction: [f64; 2], size: usize) -> Vec<f64> {
        let camera = Camera::new(radius, direction);
        let side = size * SAMPLES;
        let mut samples = Vec::with_capacity(side * side);
        // The place of a sample in the image, from −1 to 1.
        let place = |at: usize| (2 * at + 1) as f64 / side as f64 - 1.0;
        for row in 0..side {
            for column in 0..side {
                samples.push(camera.empty_room(camera.ray(place(column), place(row))));
            }
        }
        for solid in &self.solids {
            let (columns, rows) = camera.window(solid, side);
            for row in rows {
                for column in columns.clone() {
                    let ray = camera.ray(place(column), place(row));
                    let sample = &mut samples[row * side + column];
                    if let Some(hit) = camera.hit(solid, ray)
                        && hit.distance < sample.distance
                    {
                        *sample = hit;
                    }
                }
            }
        }
        let pixel = |at: usize| {
            let (row, column) = (at / size * SAMPLES, at % size * SAMPLES);
            let rows = row..row + SAMPLES;
            let parts = rows.map(|row| {
                let line = &samples[row * side + column..][..SAMPLES];
                line.iter().map(|sample| sample.brightness).sum::<f64>()
            });
            parts.sum::<f64>() / (SAMPLES * SAMPLES) as f64
        };
        (0..size * size).map(pixel).collect()
    }
}

/// What a ray meets first.
#[derive(Clone, Copy)]
struct Hit {
    /// In lengths of the ray.
    distance: f64,
    brightness: f64,
}

/// A camera that looks at the focus.
struct Camera {
    at: [f64; 3],
    /// Unit vectors forward, to the right and upward in the image.
    forward: [f64; 3],
    right: [f64; 3],
    up: [f64; 3],
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

impl Camera {
    fn new(radius: f64, [cos, sin]: [f64; 2]) -> Camera {
        let fall = FOCUS - HEIGHT;
        let length = (radius * radius + fall * fall).sqrt();
        let (level, fall) = (radius / length, fall / length);
        Camera {
            at: [radius * cos, radius * sin, HEIGHT],
            forward: [-level * cos, -level * sin, fall],
            right: [-sin, cos, 0.0],
            up: [fall * cos, fall * sin, level],
        }
    }

    /// The direction of the ray to a place of the image: −1 to 1 from left to right and from top to
    /// bottom.
    fn ray(&self, across: f64, down: f64) -> [f64; 3] {
        let (across, down) = (HALF_WIDTH * across, HALF_WIDTH * down);
        std::array::from_fn(|k| self.forward[k] + across * self.right[k] - down * self.up[k])
    }

    /// The floor or the wall that a ray meets.
    fn empty_room(&self, ray: [f64; 3]) -> Hit {
        let mut hit = Hit {
            distance: f64::INFINITY,
            brightness: 0.0,
        };
        if ray[2] < 0.0 {
            hit.distance = -self.at[2] / ray[2];
            hit.brightness = FLOOR;
        }
        for (k, walls) in WALLS.iter().enumerate() {
            let is_negative = ray[k] < 0.0;
            let wall = if is_negative { -WALL } else { WALL };
            let distance = (wall - self.at[k]) / ray[k];
            if distance < hit.distance {
                let brightness = walls[usize::from(is_negative)];
                hit = Hit {
                    distance,
                    brightness,
                };
            }
        }
        hit
    }

    /// Where a ray enters a box.
    fn hit(&self, solid: &Solid, ray: [f64; 3]) -> Option<Hit> {
        let (mut enters, mut leaves, mut side) = (0.0, f64::INFINITY, 3);
        for (k, along) in ray.into_iter().enumerate() {
            let to = |bound: f64| (bound - self.at[k]) / along;
            let (low, high) = (to(solid.low[k]), to(solid.high[k]));
            let (near, far) = if along < 0.0 {
                (high, low)
            } else {
                (low, high)
            };
            if near > enters {
                (enters, side) = (near, k);
            }
            if far < leaves {
                leaves = far;
            }
        }
        // A camera inside a box sees nothing of it.
        if side == 3 || enters > leaves {
            return None;
        }
        let is_dark = side < 2 && ray[side] > 0.0;
        let shadow = if is_dark { SHADOW } else { 1.0 };
        Some(Hit {
            distance: enters,
            brightness: solid.brightness * SIDES[side] * shadow,
        })
    }

    /// The columns and rows of samples among which a box can be, of `side` each.
    fn window(
        &self,
        solid: &Solid,
        side: usize,
    ) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let mut bounds = [[f64::INFINITY, f64::NEG_INFINITY]; 2];
        for corner in 0..8 {
            let corner: [f64; 3] = std::array::from_fn(|k| {
                let bounds = [solid.low[k], solid.high[k]];
                bounds[corner >> k & 1] - self.at[k]
            });
            let depth = dot(corner, self.forward);
            if depth < 0.01 {
                return (0..side, 0..side);
            }
            let scale = 1.0 / (HALF_WIDTH * depth);
            let places = [dot(corner, self.right), -dot(corner, self.up)];
            for (bound, place) in bounds.iter_mut().zip(places) {
                bound[0] = bound[0].min(place * scale);
                bound[1] = bound[1].max(place * scale);
            }
        }
        let [columns, rows] = bounds.map(|[low, high]| {
            let of = |place: f64| (place + 1.0) / 2.0 * side as f64;
            // One more sample on each side absorbs rounding.
            let first = (of(low) - 1.0).clamp(0.0, side as f64) as usize;
            let end = (of(high) + 2.0).clamp(0.0, side as f64) as usize;
            first..end.max(first)
        });
        (columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::portable::direction;

    // The windows of the boxes leave out no sample that a ray meets.
    #[test]
    fn windows_contain_every_sample_of_their_box() {
        let scene = Scene::new(1);
        for (radius, angle) in [(0.0, 0.3), (0.5, 1.0), (2.0, 2.0), (6.0, 4.0), (10.0, 5.5)] {
            let camera = Camera::new(radius, direction(angle));
            let side = 40;
            for solid in &scene.solids {
                let (columns, rows) = camera.window(solid, side);
                for at in 0..side * side {
                    let (row, column) = (at / side, at % side);
                    let place = |at: usize| (2 * at + 1) as f64 / side as f64 - 1.0;
                    let hit = camera.hit(solid, camera.ray(place(column), place(row)));
                    let is_inside = columns.contains(&column) && rows.contains(&row);
                    assert!(is_inside || hit.is_none(), "{radius} {row} {column}");
                }
            }
        }
    }

    #[test]
    fn images_show_what_is_in_the_room() {
        let scene = Scene::new(0);
        let of = |radius: f64, angle: f64| scene.image(radius, direction(angle), 20);
        let first = of(6.0, 0.0);
        assert_eq!(first.len(), 400);
        assert!(first.iter().all(|value| (0.0..=1.0).contains(value)));
        // From +x the camera looks at the wall at −x. From above it sees the table alone.
        assert_eq!(first[0], WALLS[0][1]);
        assert_eq!(of(0.0, 0.0)[210], 0.85);
        // A full turn changes nothing but rounding, and half a turn much.
        let far = |a: &[f64], b: &[f64]| {
            let gaps = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
            gaps.sum::<f64>()
        };
        let turned = of(6.0, 2.0 * std::f64::consts::PI);
        assert!(far(&first, &turned) < 0.5, "{}", far(&first, &turned));
        assert!(far(&first, &of(6.0, 3.0)) > 5.0);
        assert!(far(&first, &of(6.1, 0.0)) < far(&first, &of(7.0, 0.0)));
        assert!(far(&first, &Scene::new(1).image(6.0, [1.0, 0.0], 20)) > 0.1);
    }
}
