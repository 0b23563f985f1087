//! The double gyre, Example 23 of the coherence paper: points in; the points that they reach, and
//! noisy observations of both, out.
//!
//! Stream function ψ = A sin(πf) sin(πy) with f = x + a(t)·x·(x − 2) and a(t) = δ sin(ωt), A = δ =
//! 1/4, ω = 2π, on [0, 2] × [0, 1]; ẋ = −∂ψ/∂y and ẏ = ∂ψ/∂x, with period 1 in time. Coordinates
//! are two slices of S values, `x` and `y`, so that the loops over points vectorise. Results are
//! bitwise identical on every instruction set: only additions, multiplications and bit operations
//! occur, in a fixed order and without fused multiply-add.

use crate::math::portable::{flip, nearest_integer, sin_pi};
use multiversion::multiversion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::f64::consts::PI;
use std::ops::Range;

/// Upper end of x. The domain is [0, WIDTH] × [0, HEIGHT].
pub(crate) const WIDTH: f64 = 2.0;
/// Upper end of y.
pub(crate) const HEIGHT: f64 = 1.0;

/// A.
const STRENGTH: f64 = 0.25;
/// δ.
const PERTURBATION: f64 = 0.25;

/// Points that are advanced together: six arrays of this length fit the first-level cache.
const BLOCK: usize = 256;

/// Advances every point `(x[i], y[i])` from time `start` by `steps` steps of length `step` with the
/// classical Runge–Kutta method of order 4. Sequential: points are independent, so a caller may
/// split them over threads.
///
/// # Panics
/// If `x` and `y` differ in length.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn advance(x: &mut [f64], y: &mut [f64], start: f64, step: f64, steps: usize) {
    assert_eq!(x.len(), y.len(), "one y for every x");
    // The rates omit their common factor πA/2, so the step lengths include it.
    let h = step * (0.5 * PI * STRENGTH);
    for (x, y) in x.chunks_mut(BLOCK).zip(y.chunks_mut(BLOCK)) {
        let mut block = Block {
            n: x.len(),
            x,
            y,
            at_x: [0.0; BLOCK],
            at_y: [0.0; BLOCK],
            sum_x: [0.0; BLOCK],
            sum_y: [0.0; BLOCK],
        };
        for k in 0..steps {
            let t = start + k as f64 * step;
            let middle = perturbation(t + 0.5 * step);
            block.first(perturbation(t), 0.5 * h);
            block.next(middle, 0.5 * h);
            block.next(middle, h);
            block.last(perturbation(t + step), h / 6.0);
        }
    }
}

/// Points and, per point, the place of the next rate and the weighted sum of the rates so far. Each
/// stage of a step is its own loop: its iterations are short, so a processor overlaps several and
/// hides latency.
struct Block<'a> {
    n: usize,
    x: &'a mut [f64],
    y: &'a mut [f64],
    at_x: [f64; BLOCK],
    at_y: [f64; BLOCK],
    sum_x: [f64; BLOCK],
    sum_y: [f64; BLOCK],
}

impl Block<'_> {
    #[inline(always)]
    fn first(&mut self, a: f64, ahead: f64) {
        for i in 0..self.n {
            let (u, v) = rate(a, self.x[i], self.y[i]);
            self.sum_x[i] = u;
            self.sum_y[i] = v;
            self.at_x[i] = self.x[i] + ahead * u;
            self.at_y[i] = self.y[i] + ahead * v;
        }
    }

    #[inline(always)]
    fn next(&mut self, a: f64, ahead: f64) {
        for i in 0..self.n {
            let (u, v) = rate(a, self.at_x[i], self.at_y[i]);
            self.sum_x[i] += 2.0 * u;
            self.sum_y[i] += 2.0 * v;
            self.at_x[i] = self.x[i] + ahead * u;
            self.at_y[i] = self.y[i] + ahead * v;
        }
    }

    #[inline(always)]
    fn last(&mut self, a: f64, weight: f64) {
        for i in 0..self.n {
            let (u, v) = rate(a, self.at_x[i], self.at_y[i]);
            self.x[i] += weight * (self.sum_x[i] + u);
            self.y[i] += weight * (self.sum_y[i] + v);
        }
    }
}

/// a(t) = δ sin(2πt).
fn perturbation(t: f64) -> f64 {
    let (turn, odd) = nearest_integer(2.0 * t);
    flip(PERTURBATION * sin_pi(turn), odd)
}

/// (ẋ, ẏ) / (πA/2). In ẋ = −πA sin(πf) cos(πy) and ẏ = πA cos(πf) sin(πy) f′ each product of a sine
/// and a cosine is the sum or the difference of sin π(f + y) and sin π(f − y), so two sines replace
/// four functions. Removing the integer parts of f and y before the addition keeps the border
/// exactly invariant, because f or y is an integer there.
#[inline(always)]
fn rate(a: f64, x: f64, y: f64) -> (f64, f64) {
    let f = x + a * (x * (x - 2.0));
    let slope = 1.0 + 2.0 * a * (x - 1.0);
    let (f, f_odd) = nearest_integer(f);
    let (y, y_odd) = nearest_integer(y);
    let plus = sin_pi(f + y);
    let minus = sin_pi(f - y);
    let odd = f_odd ^ y_odd;
    (
        flip(-(plus + minus), odd),
        flip(slope * (plus - minus), odd),
    )
}

/// The point of [0, hi) that `z` reaches if it is reflected at 0 and `hi`; exactly `hi` becomes the
/// next smaller number. `z` is in [−hi, 2·hi].
pub(crate) fn reflect(z: f64, hi: f64) -> f64 {
    let z = z.abs();
    let z = if z > hi { 2.0 * hi - z } else { z };
    z.min(hi.next_down())
}

/// The coordinate `z` of [0, hi] as observed: moved by a uniform number from [−noise, noise], noise
/// ≤ hi, and reflected at the border. `draw` is uniform on [0, 1).
pub(crate) fn observe(z: f64, draw: f64, noise: f64, hi: f64) -> f64 {
    reflect(z + noise * (2.0 * draw - 1.0), hi)
}

/// `nx` × `ny` equal boxes, each the start of `per_box` trajectories. Trajectory s starts in box s
/// / per_box; box b is in column b mod nx and row b / nx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boxes {
    /// Boxes along x.
    pub nx: usize,
    /// Boxes along y.
    pub ny: usize,
    /// Trajectories per box.
    pub per_box: usize,
}

impl Boxes {
    /// S, the number of trajectories.
    pub(crate) fn trajectories(&self) -> usize {
        self.nx * self.ny * self.per_box
    }

    /// The start (x, y) of a trajectory: the point of its box at the fractions `across` and `up`,
    /// both in [0, 1).
    pub(crate) fn start(&self, trajectory: usize, across: f64, up: f64) -> (f64, f64) {
        let number = trajectory / self.per_box;
        (
            place(number % self.nx, across, WIDTH, self.nx),
            place(number / self.nx, up, HEIGHT, self.ny),
        )
    }
}

/// The point at `fraction` of cell `i` of `n` equal cells of [0, length). The minimum prevents
/// rounding into the next cell.
fn place(i: usize, fraction: f64, length: f64, n: usize) -> f64 {
    let edge = length * (i + 1) as f64 / n as f64;
    (length * (i as f64 + fraction) / n as f64).min(edge.next_down())
}

/// Random numbers per trajectory.
const DRAWS: usize = 6;

/// Six uniform numbers from [0, 1) per trajectory: two for the start, two for its noise and two for
/// the noise of the end. Trajectory s uses the numbers 6s .. 6s + 6 of the one sequence of `seed`.
/// The generator can jump there, so the numbers do not depend on how trajectories are split into
/// ranges.
pub(crate) fn draws(seed: u64, trajectories: Range<usize>) -> Vec<[f64; DRAWS]> {
    let mut random = Pcg64::seed_from_u64(seed);
    random.advance(DRAWS as u128 * trajectories.start as u128);
    trajectories
        .map(|_| std::array::from_fn(|_| random.random()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same method, written directly from the definition with the sines of the standard
    /// library.
    fn reference(x: &mut [f64], y: &mut [f64], start: f64, h: f64, steps: usize) {
        let rate = |t: f64, [x, y]: [f64; 2]| {
            let e = 0.25 * (2.0 * PI * t).sin();
            let f = e * x * x + (1.0 - 2.0 * e) * x;
            let slope = 2.0 * e * x + 1.0 - 2.0 * e;
            [
                -PI * 0.25 * (PI * f).sin() * (PI * y).cos(),
                PI * 0.25 * (PI * f).cos() * (PI * y).sin() * slope,
            ]
        };
        let ahead = |p: [f64; 2], h: f64, k: [f64; 2]| [p[0] + h * k[0], p[1] + h * k[1]];
        for (x, y) in x.iter_mut().zip(y) {
            for k in 0..steps {
                let (t, p) = (start + k as f64 * h, [*x, *y]);
                let k1 = rate(t, p);
                let k2 = rate(t + h / 2.0, ahead(p, h / 2.0, k1));
                let k3 = rate(t + h / 2.0, ahead(p, h / 2.0, k2));
                let k4 = rate(t + h, ahead(p, h, k3));
                *x += h / 6.0 * (k1[0] + 2.0 * k2[0] + 2.0 * k3[0] + k4[0]);
                *y += h / 6.0 * (k1[1] + 2.0 * k2[1] + 2.0 * k3[1] + k4[1]);
            }
        }
    }

    /// Random points of the domain; 600 points fill two blocks and part of a third.
    fn points(n: usize) -> (Vec<f64>, Vec<f64>) {
        draws(7, 0..n)
            .iter()
            .map(|d| (WIDTH * d[0], HEIGHT * d[1]))
            .unzip()
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        a.iter()
            .zip(b)
            .fold(0.0, |d, (a, b)| f64::max(d, (a - b).abs()))
    }

    #[test]
    fn agrees_with_the_plain_integrator() {
        for start in [0.0, 0.3] {
            let (mut x, mut y) = points(600);
            let (mut u, mut v) = (x.clone(), y.clone());
            advance(&mut x, &mut y, start, 0.01, 100);
            reference(&mut u, &mut v, start, 0.01, 100);
            assert!(distance(&x, &u) < 1e-12 && distance(&y, &v) < 1e-12);
        }
    }

    #[test]
    fn halving_the_step_divides_the_error_by_sixteen() {
        let run = |steps: usize| {
            let (mut x, mut y) = points(50);
            advance(&mut x, &mut y, 0.0, 1.0 / steps as f64, steps);
            [x, y].concat()
        };
        let exact = run(1600);
        let ratio = distance(&run(25), &exact) / distance(&run(50), &exact);
        assert!(
            (13.0..19.0).contains(&ratio),
            "the errors' ratio is {ratio}"
        );
    }

    #[test]
    fn the_border_is_invariant_and_its_corners_are_fixed() {
        let corners = [(0.0, 0.0), (2.0, 0.0), (0.0, 1.0), (2.0, 1.0)];
        let (mut x, mut y): (Vec<f64>, Vec<f64>) = corners.into_iter().unzip();
        for k in 1..100 {
            let s = f64::from(k) / 100.0;
            x.extend([2.0 * s, 2.0 * s, 0.0, 2.0]);
            y.extend([0.0, 1.0, s, s]);
        }
        let (x0, y0) = (x.clone(), y.clone());
        advance(&mut x, &mut y, 0.0, 0.01, 1000);
        assert!(x.iter().all(|x| (0.0..=WIDTH).contains(x)));
        assert!(y.iter().all(|y| (0.0..=HEIGHT).contains(y)));
        for i in 0..x.len() {
            assert!(!(x0[i] == 0.0 || x0[i] == WIDTH) || x[i] == x0[i]);
            assert!(!(y0[i] == 0.0 || y0[i] == HEIGHT) || y[i] == y0[i]);
        }
    }

    #[test]
    fn without_perturbation_the_stream_function_would_be_conserved() {
        // The perturbation vanishes at t = 0 and t = 1/2: there f = x, and (ẋ, ẏ) is orthogonal to
        // ∇ψ.
        for (x, y) in [(0.3, 0.2), (1.6, 0.7), (1.1, 0.95)] {
            for a in [perturbation(0.0), perturbation(0.5)] {
                let (u, v) = rate(a, x, y);
                let (sin_x, cos_x) = (PI * x).sin_cos();
                let (sin_y, cos_y) = (PI * y).sin_cos();
                assert!((u * cos_x * sin_y + v * sin_x * cos_y).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn points_do_not_depend_on_their_neighbours() {
        let (mut x, mut y) = points(600);
        let (mut one_x, mut one_y) = ([x[300]], [y[300]]);
        advance(&mut x, &mut y, 0.0, 0.01, 4000);
        advance(&mut one_x, &mut one_y, 0.0, 0.01, 4000);
        assert_eq!((x[300], y[300]), (one_x[0], one_y[0]));
    }

    #[test]
    fn reflected_points_are_inside() {
        assert_eq!(reflect(-0.25, 1.0), 0.25);
        assert_eq!(reflect(1.25, 1.0), 0.75);
        assert_eq!(reflect(0.5, 2.0), 0.5);
        assert_eq!(reflect(2.0, 2.0), 2.0_f64.next_down());
        assert_eq!(observe(0.0, 0.25, 0.5, 1.0), 0.25);
    }

    #[test]
    fn every_box_holds_its_points() {
        let boxes = Boxes {
            nx: 7,
            ny: 3,
            per_box: 5,
        };
        let mut held = vec![0; 21];
        for (s, d) in draws(1, 0..boxes.trajectories()).iter().enumerate() {
            let (x, y) = boxes.start(s, d[0], d[1]);
            held[(x / WIDTH * 7.0) as usize + 7 * (y * 3.0) as usize] += 1;
        }
        assert_eq!(held, [5; 21]);
        // The largest fraction below 1 would round up to the edge of the box.
        let (x, y) = boxes.start(104, 1.0_f64.next_down(), 1.0_f64.next_down());
        assert_eq!((x, y), (WIDTH.next_down(), HEIGHT.next_down()));
    }

    #[test]
    fn draws_do_not_depend_on_the_range() {
        let all = draws(3, 0..100);
        assert_eq!(all[40..], draws(3, 40..100));
        assert_ne!(all, draws(4, 0..100));
        assert!(all.as_flattened().iter().all(|u| (0.0..1.0).contains(u)));
    }
}
