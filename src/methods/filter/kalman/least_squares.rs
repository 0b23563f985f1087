//! Regressions with the covariance of their residuals, in passes over pairs of rows.

use crate::math::dense::symmetric_eigen;
use crate::methods::filter::kalman::model::Affine;
use crate::methods::filter::kalman::small;

/// A direction whose share of the variance is below this one is not determined by the rows.
const UNDETERMINED: f64 = 1e-12;

/// A linear function by least squares.
#[derive(Debug)]
pub(super) struct Regression {
    /// m × n, with an intercept of 0 if there is none.
    pub(super) affine: Affine,
    /// Fitted numbers per output: independent inputs, and the intercept.
    pub(super) used: usize,
    /// Whether the rows do not determine the matrix. It is the one of the least norm.
    pub(super) is_undetermined: bool,
    /// The largest [`Residuals::correlation`] by rounding.
    pub(super) rounding: f64,
}

/// Σ (input − its mean)(input − its mean)ᵀ, and what solves with it.
struct Normal {
    n: usize,
    /// The pseudo-inverse, n × n.
    inverse: Vec<f64>,
    rank: usize,
    /// The largest eigenvalue of the scaled matrix over the least one that is kept.
    condition: f64,
}

impl Normal {
    fn new(gram: &[f64], n: usize) -> Normal {
        // Scaled to a diagonal of ones, so that units do not matter.
        let scale: Vec<f64> = (0..n)
            .map(|i| {
                let square = gram[i * (n + 1)];
                if square > 0.0 {
                    1.0 / square.sqrt()
                } else {
                    0.0
                }
            })
            .collect();
        let scaled: Vec<f64> = (0..n * n)
            .map(|at| gram[at] * scale[at / n] * scale[at % n])
            .collect();
        let (values, vectors) = symmetric_eigen(&scaled, n);
        let largest = values.last().copied().unwrap_or(0.0);
        let least = UNDETERMINED * largest;
        let smallest = values.iter().copied().find(|value| *value > least);
        let mut inverse = vec![0.0; n * n];
        for (k, value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > least)
        {
            for i in 0..n {
                for j in i..n {
                    inverse[i * n + j] += vectors[i * n + k] * vectors[j * n + k] / value;
                }
            }
        }
        small::mirror(&mut inverse, n);
        for (at, inverse) in inverse.iter_mut().enumerate() {
            *inverse *= scale[at / n] * scale[at % n];
        }
        Normal {
            n,
            inverse,
            rank: values.iter().filter(|value| **value > least).count(),
            condition: smallest.map_or(1.0, |smallest| largest / smallest),
        }
    }

    /// matrix += products · inverse, for m × n products.
    fn add_solution(&self, products: &[f64], matrix: &mut [f64]) {
        let n = self.n;
        for (matrix, products) in matrix.chunks_exact_mut(n).zip(products.chunks_exact(n)) {
            for (matrix, column) in matrix.iter_mut().zip(self.inverse.chunks_exact(n)) {
                *matrix += small::dot(products, column);
            }
        }
    }
}

/// The matrix A and the intercept c with the least Σ |output − A input − c|², for inputs of `n` and
/// outputs of `m` numbers.
pub(super) fn regress<'a, I: Iterator<Item = [&'a [f64]; 2]>>(
    pairs: impl Fn() -> I,
    n: usize,
    m: usize,
    has_intercept: bool,
) -> Regression {
    let (mut inputs, mut outputs) = (vec![0.0; n], vec![0.0; m]);
    if has_intercept {
        let mut count = 0.0;
        for [input, output] in pairs() {
            add(&mut inputs, input);
            add(&mut outputs, output);
            count += 1.0;
        }
        inputs.iter_mut().for_each(|sum| *sum /= count);
        outputs.iter_mut().for_each(|sum| *sum /= count);
    }
    let mut gram = vec![0.0; n * n];
    let mut matrix = vec![0.0; m * n];
    let mut products = vec![0.0; m * n];
    let (mut input_part, mut rest) = (vec![0.0; n], vec![0.0; m]);
    for [input, output] in pairs() {
        subtract(input, &inputs, &mut input_part);
        subtract(output, &outputs, &mut rest);
        add_outer(&input_part, &input_part, &mut gram);
        add_outer(&rest, &input_part, &mut products);
    }
    let normal = Normal::new(&gram, n);
    normal.add_solution(&products, &mut matrix);
    // One refinement: the normal equations square the condition number.
    products.fill(0.0);
    for [input, output] in pairs() {
        subtract(input, &inputs, &mut input_part);
        for (i, rest) in rest.iter_mut().enumerate() {
            *rest = output[i] - outputs[i] - small::dot(&matrix[i * n..][..n], &input_part);
        }
        add_outer(&rest, &input_part, &mut products);
    }
    normal.add_solution(&products, &mut matrix);
    let rows = matrix.chunks_exact(n).zip(&outputs);
    let intercept: Vec<f64> = rows
        .map(|(row, output)| output - small::dot(row, &inputs))
        .collect();
    Regression {
        rounding: rounding(pairs(), n, &normal, &matrix, &intercept),
        affine: Affine { matrix, intercept },
        used: normal.rank + usize::from(has_intercept),
        is_undetermined: normal.rank < n,
    }
}

/// A bound of [`Residuals::correlation`] for a solution of the normal equations. The products are
/// sums of terms |r_i| |y_j|, where r_i itself is a difference of the terms of A y + c and x_i. One
/// refinement squares the relative error of the solution, which is that of the condition.
fn rounding<'a>(
    pairs: impl Iterator<Item = [&'a [f64]; 2]>,
    n: usize,
    normal: &Normal,
    matrix: &[f64],
    intercept: &[f64],
) -> f64 {
    let mut squares = vec![[0.0; 2]; intercept.len()];
    let mut count = 0.0;
    for [input, output] in pairs {
        let rows = matrix.chunks_exact(n).zip(intercept);
        for (((row, c), x), squares) in rows.zip(output).zip(&mut squares) {
            let terms = row.iter().zip(input).map(|(a, y)| (a * y).abs());
            let magnitude = x.abs() + c.abs() + terms.sum::<f64>();
            squares[0] += magnitude * magnitude;
            squares[1] += x * x;
        }
        count += 1.0;
    }
    let shares = squares.iter().filter(|[_, own]| *own > 0.0);
    let magnitude = shares.map(|[all, own]| (all / own).sqrt());
    let sums = (count + n as f64 + 64.0) * f64::EPSILON;
    let solution = (64.0 * n as f64 * f64::EPSILON * normal.condition).powi(2);
    // A direction that is left out keeps its correlation.
    let left_out = if normal.rank < n {
        (n as f64 * UNDETERMINED).sqrt()
    } else {
        0.0
    };
    left_out + (sums + solution) * magnitude.fold(1.0, f64::max)
}

/// The residuals of a function.
#[derive(Debug)]
pub(super) struct Residuals {
    /// Σ r rᵀ over the degrees of freedom: m × m, or m variances.
    pub(super) covariance: Vec<f64>,
    /// max |Σ r_i y_j| / √(Σ x_i² Σ y_j²) over inputs y and outputs x: 0 for least squares but for
    /// rounding.
    pub(super) correlation: f64,
}

/// The residuals of outputs of `m` numbers. `residual` writes that of a pair. `used` is the number
/// of fitted numbers per output.
pub(super) fn residuals<'a, I: Iterator<Item = [&'a [f64]; 2]>>(
    pairs: impl Fn() -> I,
    [n, m]: [usize; 2],
    is_diagonal: bool,
    used: usize,
    mut residual: impl FnMut(&[f64], &[f64], &mut [f64]),
) -> Residuals {
    let mut covariance = vec![0.0; if is_diagonal { m } else { m * m }];
    let (mut inputs, mut outputs) = (vec![0.0; n], vec![0.0; m]);
    let mut products = vec![0.0; m * n];
    let mut rest = vec![0.0; m];
    let mut count = 0usize;
    for [input, output] in pairs() {
        residual(input, output, &mut rest);
        if is_diagonal {
            for (sum, rest) in covariance.iter_mut().zip(&rest) {
                *sum += rest * rest;
            }
        } else {
            for i in 0..m {
                let factor = rest[i];
                for (sum, rest) in covariance[i * m + i..][..m - i].iter_mut().zip(&rest[i..]) {
                    *sum += factor * rest;
                }
            }
        }
        add_outer(&rest, input, &mut products);
        for (sum, input) in inputs.iter_mut().zip(input) {
            *sum += input * input;
        }
        for (sum, output) in outputs.iter_mut().zip(output) {
            *sum += output * output;
        }
        count += 1;
    }
    let mut correlation = 0f64;
    for (row, own) in products.chunks_exact(n).zip(&outputs) {
        for (product, square) in row.iter().zip(&inputs) {
            let size = (own * square).sqrt();
            if size > 0.0 {
                correlation = correlation.max((product / size).abs());
            }
        }
    }
    if !is_diagonal {
        small::mirror(&mut covariance, m);
    }
    let freedom = count.saturating_sub(used).max(1) as f64;
    covariance.iter_mut().for_each(|sum| *sum /= freedom);
    Residuals {
        covariance,
        correlation,
    }
}

/// The mean of rows of `n` numbers, and their covariance over the number of rows minus 1.
pub(super) fn moments(rows: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let count = (rows.len() / n) as f64;
    let mut mean = vec![0.0; n];
    for row in rows.chunks_exact(n) {
        add(&mut mean, row);
    }
    mean.iter_mut().for_each(|sum| *sum /= count);
    let mut covariance = vec![0.0; n * n];
    let mut part = vec![0.0; n];
    for row in rows.chunks_exact(n) {
        subtract(row, &mean, &mut part);
        add_outer(&part, &part, &mut covariance);
    }
    covariance.iter_mut().for_each(|sum| *sum /= count - 1.0);
    small::mirror(&mut covariance, n);
    (mean, covariance)
}

/// The variance of each of the `n` numbers of rows, over the number of rows.
pub(super) fn variances(rows: &[f64], n: usize) -> Vec<f64> {
    let count = (rows.len() / n).max(1) as f64;
    let mut mean = vec![0.0; n];
    for row in rows.chunks_exact(n) {
        add(&mut mean, row);
    }
    mean.iter_mut().for_each(|sum| *sum /= count);
    let mut variance = vec![0.0; n];
    for row in rows.chunks_exact(n) {
        for ((sum, value), mean) in variance.iter_mut().zip(row).zip(&mean) {
            *sum += (value - mean) * (value - mean);
        }
    }
    variance.iter_mut().for_each(|sum| *sum /= count);
    variance
}

fn add(sums: &mut [f64], values: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

fn subtract(values: &[f64], means: &[f64], out: &mut [f64]) {
    for ((out, value), mean) in out.iter_mut().zip(values).zip(means) {
        *out = value - mean;
    }
}

/// out += a bᵀ.
fn add_outer(a: &[f64], b: &[f64], out: &mut [f64]) {
    for (out, a) in out.chunks_exact_mut(b.len()).zip(a) {
        for (out, b) in out.iter_mut().zip(b) {
            *out += a * b;
        }
    }
}
