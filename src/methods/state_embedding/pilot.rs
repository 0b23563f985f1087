//! A pilot pass over a sample of points: the bandwidth, and the features that span the others.
//!
//! In one or two dimensions most of many random features are linear combinations of a few. A
//! pivoted Cholesky factorisation of their Gram matrix on a sample finds these few, and only their
//! products are summed over all points. The kernel of all features stays: if h = T h_kept on the
//! sample, then hᵀh = h_keptᵀ (TᵀT) h_kept.

use crate::error::{Error, Result};
use crate::evidence::points::Points;
use crate::math::matrix::add_triangle;
use crate::methods::state_embedding::box_gram::box_gram;
use crate::methods::state_embedding::features::Features;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// Points whose pairwise distances give the bandwidth.
const DISTANCES: usize = 1000;

/// Points per matrix product.
const CHUNK: usize = 4096;

/// The least tolerance: rounded features differ from others by this much of their variance.
const NEGLIGIBLE: f64 = 1e-12;

/// Features that span all features on a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Selection {
    /// The indices of the features, ascending, with the constant as the first.
    pub kept: Vec<usize>,
    /// The kernel K(x, y) = h(x)ᵀ S h(y) of all random features in terms of the kept ones, such
    /// that K(x, x) is about 1: S, row-major.
    pub metric: Vec<f64>,
}

/// The median distance of two points, from at most 1,000 points at equal steps through the rows.
///
/// # Errors
/// If all points are equal.
pub(crate) fn median_distance(points: &Points) -> Result<f64> {
    let count = points.n().min(DISTANCES);
    let sample: Vec<&[f64]> = (0..count)
        .map(|i| points.row(i * points.n() / count))
        .collect();
    let mut squares = Vec::with_capacity(count * count / 2);
    for (i, a) in sample.iter().enumerate() {
        for b in &sample[..i] {
            let square: f64 = a.iter().zip(*b).map(|(a, b)| (a - b) * (a - b)).sum();
            // Repeated points say nothing about the scale.
            if square > 0.0 {
                squares.push(square);
            }
        }
    }
    if squares.is_empty() {
        return Err(Error::input(
            "there are no two distinct points, so there is no bandwidth",
        ));
    }
    let middle = squares.len() / 2;
    let (_, median, _) = squares.select_nth_unstable_by(middle, f64::total_cmp);
    Ok(median.sqrt())
}

/// Selects features by a sample of points (n × d, row-major).
///
/// The variance of every other feature that the kept ones do not explain is at most `tolerance`
/// times the largest variance of a feature. With a box, the points of the box count as much as the
/// sample: the Lebesgue norm needs features that span the others there, too.
pub(crate) fn select(
    features: &Features,
    rows: &[f64],
    bounds: Option<&[[f64; 2]]>,
    tolerance: f64,
) -> Selection {
    let m = features.count();
    let mut gram = gram(features, rows);
    if let Some(bounds) = bounds {
        let over_box = box_gram(features, bounds);
        for j in 0..m {
            for i in j..m {
                gram[(i, j)] = (gram[(i, j)] + over_box[i * m + j] / over_box[0]) / 2.0;
            }
        }
    }
    let mut rest: Vec<f64> = (0..m).map(|l| gram[(l, l)]).collect();
    // Column p of the factor, of all features.
    let mut factor: Vec<Vec<f64>> = Vec::new();
    let mut pivots: Vec<usize> = Vec::new();
    let mut limit = 0.0;
    let mut pivot = 0;
    loop {
        let root = rest[pivot].sqrt();
        // Column by column, which are contiguous.
        let mut known = vec![0.0; m];
        for column in &factor {
            let scale = column[pivot];
            let own = known.iter_mut().zip(column);
            own.for_each(|(known, c)| *known += c * scale);
        }
        let entry = |l: usize| gram[(l.max(pivot), l.min(pivot))];
        let column: Vec<f64> = (0..m).map(|l| (entry(l) - known[l]) / root).collect();
        for (rest, c) in rest.iter_mut().zip(&column) {
            *rest -= c * c;
        }
        factor.push(column);
        pivots.push(pivot);
        for &p in &pivots {
            rest[p] = 0.0;
        }
        let largest = rest.iter().copied().fold(0.0, f64::max);
        if pivots.len() == 1 {
            // Without the constant, the rest is the variance.
            limit = tolerance.max(NEGLIGIBLE) * largest;
        }
        if largest <= limit || pivots.len() == m {
            break;
        }
        pivot = rest.iter().position(|r| *r == largest).unwrap_or_default();
    }
    in_order(&factor, &pivots, m)
}

/// Sorts the pivots and computes the kernel in terms of them.
fn in_order(factor: &[Vec<f64>], pivots: &[usize], m: usize) -> Selection {
    let rank = pivots.len();
    let mut order: Vec<usize> = (0..rank).collect();
    order.sort_unstable_by_key(|&p| pivots[p]);
    // T solves T L_kept = L for the rows of the factor L.
    let combinations = Mat::from_fn(m, rank, |l, p| factor[p][l]);
    let mut t = combinations.transpose().to_owned();
    let kept = Mat::from_fn(rank, rank, |p, q| factor[q][pivots[p]]);
    faer::linalg::triangular_solve::solve_upper_triangular_in_place(
        kept.transpose(),
        t.as_mut(),
        Par::Seq,
    );
    // The constant is no feature of the kernel.
    let t = t.subcols(1, m - 1);
    let products = t * t.transpose();
    let scale = 2.0 / (m as f64 - 1.0).max(1.0);
    Selection {
        kept: order.iter().map(|&p| pivots[p]).collect(),
        metric: (0..rank * rank)
            .map(|at| scale * products[(order[at / rank], order[at % rank])])
            .collect(),
    }
}

/// The lower triangle of the mean of h hᵀ over some points.
fn gram(features: &Features, rows: &[f64]) -> Mat<f64> {
    let m = features.count();
    let n = rows.len() / features.dimension();
    assert!(n > 0, "a sample has a point");
    let mut sum = Mat::<f64>::zeros(m, m);
    let mut values = Vec::new();
    for rows in rows.chunks(CHUNK * features.dimension()) {
        features.evaluate_rounded(rows, &mut values);
        let h = MatRef::from_row_major_slice(&values, values.len() / m, m);
        add_triangle(&mut sum, Accum::Add, h, h, 1.0 / n as f64);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_features_span_many_in_one_dimension() {
        let rows: Vec<f64> = (0..5000)
            .map(|i| (f64::from(i) * 0.754_877_666).fract() * 2.0 - 1.0)
            .collect();
        let features = Features::random(400, 1, 0.3, 1);
        let selection = select(&features, &rows, None, 1e-6);
        let few = features.select(&selection.kept);
        assert!((10..40).contains(&few.count()), "{}", few.count());
        assert_eq!(selection.kept[0], 0);
        assert!(selection.kept.is_sorted());

        // The kernel of all features, from the kept ones.
        let (m, k) = (features.count(), few.count());
        let points = [0.1, -0.35, 0.8];
        let (all, kept) = (features.evaluate(&points), few.evaluate(&points));
        for i in 0..3 {
            for j in 0..3 {
                let (a, b) = (&all[i * m + 1..][..m - 1], &all[j * m + 1..][..m - 1]);
                let exact: f64 = 2.0 / 400.0 * a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let mut kernel = 0.0;
                for p in 0..k {
                    for q in 0..k {
                        kernel += kept[i * k + p] * selection.metric[p * k + q] * kept[j * k + q];
                    }
                }
                assert!((kernel - exact).abs() < 1e-3, "{kernel} {exact}");
            }
        }
    }

    #[test]
    fn the_median_distance_ignores_repeated_points() {
        let points = Points::new(1, vec![0.0, 0.0, 0.0, 0.0, 3.0]);
        assert_eq!(median_distance(&points).unwrap(), 3.0);
        assert!(median_distance(&Points::new(1, vec![2.0; 7])).is_err());
    }
}
