//! Kernels of points, their matrices, and the median distance.

use crate::math::seed::mixed;
use crate::methods::filter::params;
use crate::methods::heat_kernel::exponential;
use multiversion::multiversion;
use rayon::prelude::*;

/// Points of which the median distance is taken.
const MEDIAN_POINTS: usize = 2000;

/// Multiplications for a median distance. It bounds the number of points that are long.
const MEDIAN_WORK: usize = 10_000_000_000;

/// Numbers that are added side by side.
const LANES: usize = 8;

/// Numbers of the points of a unit of parallel work, which stay in the cache.
const BLOCK_NUMBERS: usize = 1 << 16;

/// A kernel of points of one width. k(x, x) = 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kernel {
    /// Its form.
    pub(super) form: params::Kernel,
    /// h of exp(−d²/(2 h²)).
    pub(super) bandwidth: f64,
    /// Numbers per point.
    pub(super) width: usize,
}

impl Kernel {
    /// −1/(2 h²).
    pub(super) fn exponent(&self) -> f64 {
        -0.5 / (self.bandwidth * self.bandwidth)
    }

    /// Squared distances become values of the kernel.
    pub(super) fn of_squares(&self, squares: &mut [f64]) {
        match self.form {
            params::Kernel::Rbf => exponential::scaled(squares, self.exponent()),
            params::Kernel::Delta => {
                for square in squares {
                    *square = f64::from(u8::from(*square == 0.0));
                }
            }
        }
    }

    /// k(p, x) for every point p.
    pub(super) fn column(&self, points: &[f64], x: &[f64], out: &mut [f64]) {
        squares(points, x, out);
        self.of_squares(out);
    }

    /// The kernel of all pairs: n × n, row-major, symmetric.
    pub(super) fn gram(&self, points: &[f64]) -> Vec<f64> {
        let n = points.len() / self.width.max(1);
        let mut all = vec![0.0; n * n];
        let block_points = (BLOCK_NUMBERS / self.width.max(1)).clamp(8, 64) / 8 * 8;
        all.par_chunks_mut((block_points * n).max(1))
            .enumerate()
            .for_each(|(block, rows)| {
                let first = block * block_points;
                let count = rows.len() / n;
                let mut column = vec![0.0; count];
                let own = &points[first * self.width..][..count * self.width];
                for j in 0..first + count {
                    squares(own, &points[j * self.width..][..self.width], &mut column);
                    for (row, square) in rows.chunks_exact_mut(n).zip(&column) {
                        row[j] = *square;
                    }
                }
                for (at, row) in rows.chunks_exact_mut(n).enumerate() {
                    self.of_squares(&mut row[..=first + at]);
                }
            });
        for i in 0..n {
            for j in 0..i {
                all[j * n + i] = all[i * n + j];
            }
        }
        all
    }
}

/// Squared distances of points to x.
pub(super) fn squares(points: &[f64], x: &[f64], out: &mut [f64]) {
    match x {
        [x] => squares_of_one(points, *x, out),
        [x, y] => squares_of_two(points, [*x, *y], out),
        _ if x.len() < 2 * LANES => squares_of_few(points, x, out),
        _ => squares_of_many(points, x, out),
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn squares_of_one(points: &[f64], x: f64, out: &mut [f64]) {
    for (out, y) in out.iter_mut().zip(points) {
        *out = (x - y) * (x - y);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn squares_of_two(points: &[f64], x: [f64; 2], out: &mut [f64]) {
    for (out, y) in out.iter_mut().zip(points.as_chunks::<2>().0) {
        let (a, b) = (x[0] - y[0], x[1] - y[1]);
        *out = a * a + b * b;
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn squares_of_few(points: &[f64], x: &[f64], out: &mut [f64]) {
    for (out, y) in out.iter_mut().zip(points.chunks_exact(x.len())) {
        *out = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum();
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn squares_of_many(points: &[f64], x: &[f64], out: &mut [f64]) {
    let d = x.len();
    let (x_lanes, x_rest) = x.as_chunks::<LANES>();
    let mut fours = points.chunks_exact(4 * d);
    let mut outs = out.chunks_exact_mut(4);
    for (group, out) in (&mut fours).zip(&mut outs) {
        let rows: [&[f64]; 4] = std::array::from_fn(|r| &group[r * d..][..d]);
        let lanes: [&[[f64; LANES]]; 4] = std::array::from_fn(|r| rows[r].as_chunks().0);
        let mut sums = [[0.0; LANES]; 4];
        for (at, x) in x_lanes.iter().enumerate() {
            for r in 0..4 {
                let y = &lanes[r][at];
                for lane in 0..LANES {
                    let off = x[lane] - y[lane];
                    sums[r][lane] = off.mul_add(off, sums[r][lane]);
                }
            }
        }
        for (r, out) in out.iter_mut().enumerate() {
            let rest = rows[r].as_chunks::<LANES>().1;
            *out = ended(&sums[r], x_rest, rest);
        }
    }
    let rows = fours.remainder().chunks_exact(d);
    for (row, out) in rows.zip(outs.into_remainder()) {
        let (lanes, rest) = row.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for (x, y) in x_lanes.iter().zip(lanes) {
            for lane in 0..LANES {
                let off = x[lane] - y[lane];
                sums[lane] = off.mul_add(off, sums[lane]);
            }
        }
        *out = ended(&sums, x_rest, rest);
    }
}

/// The sum of the lanes and of the squares of the last numbers.
#[inline(always)]
fn ended(sums: &[f64; LANES], x: &[f64], y: &[f64]) -> f64 {
    let [a, b, c, d, e, f, g, h] = sums;
    let mut sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
    for (x, y) in x.iter().zip(y) {
        sum = (x - y).mul_add(x - y, sum);
    }
    sum
}

/// `count` of `n` indices, ascending, drawn by the seed. All of them if there are no more.
pub(super) fn choose(n: usize, count: usize, seed: u64) -> Vec<usize> {
    if n <= count {
        return (0..n).collect();
    }
    let mut keys: Vec<(u64, usize)> = (0..n)
        .map(|at| (mixed(seed ^ mixed(at as u64 + 1)), at))
        .collect();
    keys.select_nth_unstable(count - 1);
    let mut chosen: Vec<usize> = keys[..count].iter().map(|(_, at)| *at).collect();
    chosen.sort_unstable();
    chosen
}

/// The median of the positive distances of points. None if all points are equal.
pub(super) fn median_distance(points: &[f64], width: usize, seed: u64) -> Option<f64> {
    let n = points.len() / width.max(1);
    let few = ((2 * MEDIAN_WORK / width.max(1)) as f64).sqrt() as usize;
    let chosen = choose(n, MEDIAN_POINTS.min(few), seed);
    let rows: Vec<&[f64]> = chosen
        .iter()
        .map(|at| &points[at * width..][..width])
        .collect();
    let sample: Vec<f64> = rows.concat();
    let mut all: Vec<f64> = (1..rows.len())
        .into_par_iter()
        .flat_map_iter(|at| {
            let mut row = vec![0.0; at];
            squares(&sample[..at * width], rows[at], &mut row);
            row.into_iter().filter(|square| *square > 0.0)
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let middle = all.len() / 2;
    let is_odd = all.len() % 2 == 1;
    let (below, upper, _) = all.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = upper.sqrt();
    if is_odd {
        return Some(upper);
    }
    let lower = below.iter().copied().fold(0.0, f64::max).sqrt();
    Some(0.5 * (lower + upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_do_not_depend_on_their_neighbours() {
        for width in [1, 2, 3, 15, 16, 17, 100] {
            let points: Vec<f64> = (0..7 * width).map(|at| (at as f64).sin()).collect();
            let x: Vec<f64> = (0..width).map(|at| (at as f64).cos()).collect();
            let mut all = vec![0.0; 7];
            squares(&points, &x, &mut all);
            for (row, square) in points.chunks_exact(width).zip(&all) {
                let mut one = [0.0];
                squares(row, &x, &mut one);
                assert_eq!(one[0], *square);
                let exact: f64 = row.iter().zip(&x).map(|(a, b)| (a - b) * (a - b)).sum();
                assert!((exact - square).abs() < 1e-14 * exact);
            }
        }
    }

    #[test]
    fn the_median_is_that_of_positive_distances() {
        // Distances 1, 2, 3 and 1, 2, 1 and a zero.
        let points = [0.0, 1.0, 2.0, 3.0, 3.0];
        assert_eq!(median_distance(&points, 1, 1), Some(2.0));
        assert_eq!(median_distance(&[4.0; 9], 3, 1), None);
        assert_eq!(choose(5, 9, 1), [0, 1, 2, 3, 4]);
        let some = choose(1000, 10, 7);
        assert!(some.len() == 10 && some.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn a_gram_matrix_has_ones_and_is_symmetric() {
        let points: Vec<f64> = (0..300).map(|at| (at as f64 * 0.7).sin()).collect();
        let kernel = Kernel {
            form: params::Kernel::Rbf,
            bandwidth: 0.5,
            width: 3,
        };
        let gram = kernel.gram(&points);
        let mut column = vec![0.0; 100];
        for j in 0..100 {
            kernel.column(&points, &points[3 * j..3 * j + 3], &mut column);
            assert_eq!(gram[j * 100 + j], 1.0);
            for i in 0..100 {
                assert_eq!(gram[i * 100 + j], gram[j * 100 + i]);
                assert!((gram[i * 100 + j] - column[i]).abs() < 1e-15);
            }
        }
    }
}
