//! Products of vectors and symmetric matrices with a fixed order of summation.
//!
//! Fused multiply-adds give the same bits on every machine. The loops are compiled for targets that
//! have them.

use multiversion::multiversion;

/// Numbers that are added side by side.
const LANES: usize = 8;

#[inline(always)]
fn total(lanes: &[f64; LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn product(a: &[f64], b: &[f64]) -> f64 {
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let (b_lanes, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [[0.0; LANES]; 2];
    let (a_pairs, a_last) = a_lanes.as_chunks::<2>();
    let (b_pairs, b_last) = b_lanes.as_chunks::<2>();
    for (a, b) in a_pairs.iter().zip(b_pairs) {
        for half in 0..2 {
            for lane in 0..LANES {
                sums[half][lane] = a[half][lane].mul_add(b[half][lane], sums[half][lane]);
            }
        }
    }
    for (a, b) in a_last.iter().zip(b_last) {
        for lane in 0..LANES {
            sums[0][lane] = a[lane].mul_add(b[lane], sums[0][lane]);
        }
    }
    let mut sum = total(&sums[0]) + total(&sums[1]);
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum = a.mul_add(*b, sum);
    }
    sum
}

/// aᵀb.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    product(a, b)
}

/// out ← out + Σ_k factors[k] · columns[k], for columns of the length of `out` one after another.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub(super) fn add_columns(columns: &[f64], factors: &[f64], out: &mut [f64]) {
    let n = out.len();
    if n == 0 {
        return;
    }
    let (fours, rest) = factors.as_chunks::<4>();
    for (group, f) in columns.chunks_exact(4 * n).zip(fours) {
        let (a, others) = group.split_at(n);
        let (b, others) = others.split_at(n);
        let (c, d) = others.split_at(n);
        for ((((o, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *o = f[3].mul_add(*d, f[2].mul_add(*c, f[1].mul_add(*b, f[0].mul_add(*a, *o))));
        }
    }
    for (column, f) in columns[fours.len() * 4 * n..].chunks_exact(n).zip(rest) {
        for (o, a) in out.iter_mut().zip(column) {
            *o = f.mul_add(*a, *o);
        }
    }
}

/// The products of `x` with columns of its length.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub(super) fn products(columns: &[f64], x: &[f64], out: &mut [f64]) {
    for (column, out) in columns.chunks_exact(x.len().max(1)).zip(out) {
        *out = product(column, x);
    }
}

/// A symmetric matrix of which the lower triangle is stored: row i starts at i · stride.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lower<'a> {
    /// The rows.
    pub(super) rows: &'a [f64],
    /// The distance of two rows.
    pub(super) stride: usize,
    /// The order of the matrix.
    pub(super) n: usize,
}

impl Lower<'_> {
    /// The entry (i, j).
    pub(super) fn at(&self, i: usize, j: usize) -> f64 {
        self.rows[i.max(j) * self.stride + i.min(j)]
    }

    /// The column j.
    pub(super) fn column(&self, j: usize, out: &mut [f64]) {
        out[..=j].copy_from_slice(&self.rows[j * self.stride..][..=j]);
        let below = self.rows.iter().skip((j + 1) * self.stride + j);
        for (out, x) in out[j + 1..].iter_mut().zip(below.step_by(self.stride)) {
            *out = *x;
        }
    }

    /// out ← Mx, for `K` vectors at once.
    pub(super) fn multiply<const K: usize>(&self, x: [&[f64]; K], out: [&mut [f64]; K]) {
        multiply_lower(self.rows, self.stride, x, out);
    }
}

/// Rows that are read together.
const ROWS: usize = 4;

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn multiply_lower<const K: usize>(
    matrix: &[f64],
    stride: usize,
    x: [&[f64]; K],
    mut out: [&mut [f64]; K],
) {
    let n = x[0].len();
    for out in &mut out {
        out.fill(0.0);
    }
    let mut first = 0;
    while first < n {
        let count = ROWS.min(n - first);
        // A block of full height reads the columns before it once, in both roles.
        let wide = if count == ROWS {
            first / LANES * LANES
        } else {
            0
        };
        let row = |at: usize| &matrix[(first + at) * stride..][..=first + at];
        if wide > 0 {
            let rows: [&[[f64; LANES]]; ROWS] =
                std::array::from_fn(|at| row(at)[..wide].as_chunks::<LANES>().0);
            for k in 0..K {
                let own: [f64; ROWS] = std::array::from_fn(|at| x[k][first + at]);
                let chunks = x[k][..wide].as_chunks::<LANES>().0;
                let outs = out[k][..wide].as_chunks_mut::<LANES>().0;
                let mut sums = [[0.0; LANES]; ROWS];
                for at in 0..chunks.len().min(outs.len()) {
                    for lane in 0..LANES {
                        let mut o = outs[at][lane];
                        for r in 0..ROWS {
                            let m = rows[r][at][lane];
                            sums[r][lane] = m.mul_add(chunks[at][lane], sums[r][lane]);
                            o = m.mul_add(own[r], o);
                        }
                        outs[at][lane] = o;
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    out[k][first + r] += total(sums);
                }
            }
        }
        for at in 0..count {
            let i = first + at;
            let row = row(at);
            for k in 0..K {
                let mut sum = 0.0;
                for j in wide..i {
                    sum = row[j].mul_add(x[k][j], sum);
                    out[k][j] = row[j].mul_add(x[k][i], out[k][j]);
                }
                out[k][i] += row[i].mul_add(x[k][i], sum);
            }
        }
        first += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::seed::restart_seed;

    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        let number = |at| (restart_seed(seed, at + 1) >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..n).map(number).collect()
    }

    #[test]
    fn products_are_those_of_plain_loops() {
        for n in [1, 3, 4, 7, 8, 9, 31, 64, 77] {
            let stride = n + 3;
            let rows = numbers(n * stride, 1);
            let matrix = Lower {
                rows: &rows,
                stride,
                n,
            };
            let (x, y) = (numbers(n, 2), numbers(n, 3));
            let (mut mx, mut my) = (vec![9.0; n], vec![9.0; n]);
            matrix.multiply([&x, &y], [&mut mx, &mut my]);
            let mut column = vec![0.0; n];
            for i in 0..n {
                matrix.column(i, &mut column);
                let by = |x: &[f64]| (0..n).map(|j| matrix.at(i, j) * x[j]).sum::<f64>();
                assert!((by(&x) - mx[i]).abs() < 1e-13 && (by(&y) - my[i]).abs() < 1e-13);
                assert!((0..n).all(|j| column[j] == matrix.at(j, i)));
            }
            let factors = numbers(6, 4);
            let columns = numbers(6 * n, 5);
            let mut sum = x.clone();
            add_columns(&columns, &factors, &mut sum);
            let mut along = vec![0.0; 6];
            products(&columns, &x, &mut along);
            for (i, sum) in sum.iter().enumerate() {
                let terms = (0..6).map(|k| columns[k * n + i] * factors[k]);
                assert!((x[i] + terms.sum::<f64>() - sum).abs() < 1e-14);
            }
            for (k, along) in along.iter().enumerate() {
                let terms = (0..n).map(|i| columns[k * n + i] * x[i]);
                assert!((terms.sum::<f64>() - along).abs() < 1e-13);
            }
        }
    }
}
