//! Embeddings of new rows (the Nyström extension), from the points that a kernel was fitted to.
//!
//! In: the points with their weights and normalisation, and one row of features F per point. Out:
//! Σ_j A(x, j) w_j F_j for every new row x. With F = λᵗ⁻¹φ it is a diffusion map, with F = Y_{p−1}
//! it is a sketch. The rows of the points themselves come back to rounding: entries of a sparse
//! kernel are rounded as in the fit, and of equally distant neighbours the same ones are taken.
//! Points that are not in the largest component have weight zero: rows whose neighbours are among
//! them alone have no embedding.
//!
//! - Symmetric: A(x, j) = K(x, j) / ((q(x) q_j)^α (v(x) v_j)^{1/2}) with q(x) = Σ_j K(x, j) w_j and
//!   v(x) = q(x)^{-α} Σ_j K(x, j) w_j q_j^{-α}. Stochastic: the same times √(V/v(x)).
//! - Bistochastic: A(x, j) = K(x, j) / (d(x) d_j) with d(x) = Σ_j K(x, j) w_j / d_j.
//!
//! A row that is far from all points of a full kernel has a kernel that underflows. So K is divided
//! by its largest entry c, and the result is multiplied by c^{(1−α)/2}, which is 1 for α = 1.

use crate::methods::heat_kernel::exponential;
use crate::methods::heat_kernel::kernel::{Kernel, Reach, SMALLEST};
use crate::methods::heat_kernel::neighbours::{is_within, square_of};
use crate::methods::heat_kernel::normalise::{self, Factors, Normalisation};
use crate::methods::heat_kernel::tree::{LANES, Near, Tree};
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Entries of a full kernel below e⁻⁴⁵ of the largest are left out: they change no digit.
const NEGLIGIBLE: f64 = 45.0;

/// Rows per unit of parallel work.
const ROWS: usize = 256;

/// Columns of sums that are computed together.
const COLUMNS: usize = 4;

/// What the embedding of new rows needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    /// Coordinates per point, d.
    pub dimension: usize,
    /// Points of the kernel, m × d, row-major, in the order of a kd-tree.
    pub coordinates: Vec<f64>,
    /// w; 0 for points that are not embedded.
    pub weights: Vec<f64>,
    /// ε.
    pub epsilon: f64,
    /// Which entries of the kernel are kept.
    pub reach: Reach,
    /// For k nearest points, the farthest of each.
    pub farthest: Vec<Near>,
    /// How the kernel is normalised.
    pub normalisation: Normalisation,
    /// α.
    pub alpha: f64,
    /// q, or d of a bistochastic kernel; 1 for points of weight zero.
    pub q: Vec<f64>,
    /// v; 1 for points of weight zero.
    pub v: Vec<f64>,
    /// Columns of F.
    pub columns: usize,
    /// F, m × columns, row-major.
    pub features: Vec<f64>,
}

/// The rows of the points that are kept, among `other` for all others.
fn spread(rows: &[f64], width: usize, keep: &[bool], other: f64) -> Vec<f64> {
    let mut out = vec![other; keep.len() * width];
    let kept = (0..keep.len()).filter(|&i| keep[i]);
    for (i, row) in kept.zip(rows.chunks_exact(width.max(1))) {
        out[i * width..][..width].copy_from_slice(row);
    }
    out
}

impl Extension {
    /// The extension of a kernel.
    ///
    /// # Panics
    /// Unless there is one row of features per point.
    pub(crate) fn new(
        kernel: &Kernel,
        factors: &Factors,
        features: Vec<f64>,
        columns: usize,
    ) -> Self {
        assert_eq!(features.len(), kernel.n() * columns, "one row per point");
        let (points, weights) = (&kernel.points, &kernel.points.weights);
        let (coordinates, farthest, weights, q, v, features) = match &kernel.whole {
            None => (
                points.coordinates.clone(),
                kernel.farthest.clone(),
                weights.clone(),
                factors.q.clone(),
                factors.v.clone(),
                features,
            ),
            Some(whole) => {
                let spread =
                    |values: &[f64], width, other| spread(values, width, &whole.keep, other);
                (
                    whole.coordinates.clone(),
                    whole.farthest.clone(),
                    spread(weights, 1, 0.0),
                    spread(&factors.q, 1, 1.0),
                    spread(&factors.v, 1, 1.0),
                    spread(&features, columns, 0.0),
                )
            }
        };
        Extension {
            dimension: points.dimension,
            coordinates,
            weights,
            epsilon: kernel.epsilon,
            reach: kernel.reach,
            farthest,
            normalisation: factors.normalisation,
            alpha: factors.alpha,
            q,
            v,
            columns,
            features,
        }
    }

    /// The same, prepared for many rows.
    pub(crate) fn embedder(&self) -> Embedder<'_> {
        Embedder::new(Cow::Borrowed(self))
    }

    /// The same, prepared for many rows.
    pub(crate) fn into_embedder(self) -> Embedder<'static> {
        Embedder::new(Cow::Owned(self))
    }
}

/// An [`Extension`] in the form that its sums need.
#[derive(Debug)]
pub(crate) struct Embedder<'a> {
    model: Cow<'a, Extension>,
    /// Coordinate c of the points of group g is at `g d + c`.
    points: Vec<[f64; LANES]>,
    /// Columns of `sums`.
    columns: usize,
    /// What is summed for q(x), v(x) and F, or for d(x) and F: number c of group g is at `g columns
    /// + c`.
    sums: Vec<[f64; LANES]>,
    /// V.
    total: f64,
    /// Whether some points have weight zero.
    is_partial: bool,
    /// The tree of a sparse kernel.
    tree: Option<Tree>,
    /// For every node of the tree the largest squared distance in `farthest`.
    largest: Vec<f64>,
}

/// The buffers of a thread.
#[derive(Default)]
struct Scratch {
    kernel: Vec<[f64; LANES]>,
    groups: Vec<u32>,
    sums: Vec<f64>,
    leaves: Vec<u32>,
    near: Vec<Near>,
    sorted: Vec<f64>,
}

impl<'a> Embedder<'a> {
    fn new(model: Cow<'a, Extension>) -> Embedder<'a> {
        let (d, m) = (model.dimension, model.weights.len());
        let bistochastic = model.normalisation == Normalisation::Bistochastic;
        let own = if bistochastic { 1 } else { 2 };
        let columns = (own + model.columns).next_multiple_of(COLUMNS);
        let groups = m.div_ceil(LANES);
        let mut points = vec![[f64::INFINITY; LANES]; groups * d];
        let mut sums = vec![[0.0; LANES]; groups * columns];
        for (i, point) in model.coordinates.chunks_exact(d).enumerate() {
            for (c, x) in point.iter().enumerate() {
                points[i / LANES * d + c][i % LANES] = *x;
            }
            let (w, q, v) = (model.weights[i], model.q[i], model.v[i]);
            let scale = normalise::scale(model.normalisation, model.alpha, q, v);
            let row = if bistochastic {
                vec![w / q]
            } else {
                vec![w, w * q.powf(-model.alpha)]
            };
            let features = &model.features[i * model.columns..][..model.columns];
            let row = row
                .into_iter()
                .chain(features.iter().map(|f| w * scale * f));
            for (c, x) in row.enumerate() {
                sums[i / LANES * columns + c][i % LANES] = x;
            }
        }
        let tree = (model.reach != Reach::All).then(|| Tree::new(&model.coordinates, d));
        Embedder {
            points,
            columns,
            sums,
            total: model.v.iter().zip(&model.weights).map(|(v, w)| v * w).sum(),
            is_partial: model.weights.contains(&0.0),
            largest: match &tree {
                Some(tree) if !model.farthest.is_empty() => {
                    let squares: Vec<f64> = model.farthest.iter().map(|near| near.0).collect();
                    tree.largest(&squares)
                }
                _ => Vec::new(),
            },
            tree,
            model,
        }
    }
}

impl Embedder<'_> {
    /// Embeds rows (n × d, row-major). Returns n × columns; NaN for rows without a neighbour. A row
    /// does not depend on the other rows.
    ///
    /// # Panics
    /// If the rows are not whole points.
    pub(crate) fn embed(&self, rows: &[f64]) -> Vec<f64> {
        let (d, columns) = (self.model.dimension, self.model.columns);
        assert!(rows.len().is_multiple_of(d), "rows of {d} coordinates");
        let mut out = vec![f64::NAN; rows.len() / d * columns];
        out.par_chunks_mut(ROWS * columns.max(1))
            .zip(rows.par_chunks(ROWS * d))
            .for_each_init(Scratch::default, |scratch, (out, rows)| {
                for (out, x) in out.chunks_exact_mut(columns).zip(rows.chunks_exact(d)) {
                    self.embed_row(x, scratch, out);
                }
            });
        out
    }

    fn embed_row(&self, x: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        scratch.sums.clear();
        scratch.sums.resize(self.columns, 0.0);
        let smallest = match &self.tree {
            None => {
                let smallest = self.full(x, scratch);
                if self.is_partial && !self.is_connected(scratch) {
                    return;
                }
                self.add_up(scratch);
                smallest
            }
            Some(tree) => {
                self.sparse(tree, x, scratch);
                0.0
            }
        };
        let model = &self.model;
        let sums = &scratch.sums;
        let (scale, own) = if model.normalisation == Normalisation::Bistochastic {
            (1.0 / sums[0], 1)
        } else {
            let q = sums[0].powf(model.alpha);
            let v = sums[1] / q;
            let largest = (-smallest / model.epsilon * (1.0 - model.alpha) / 2.0).exp();
            if model.normalisation == Normalisation::Stochastic {
                (self.total.sqrt() / (q * v), 2)
            } else {
                (largest / (q * v.sqrt()), 2)
            }
        };
        if sums[0] > 0.0 {
            for (out, sum) in out.iter_mut().zip(&sums[own..]) {
                *out = scale * sum;
            }
        }
    }

    /// The entries of a full kernel divided by the largest, and the groups that are not
    /// negligible. Returns the smallest squared distance.
    fn full(&self, x: &[f64], scratch: &mut Scratch) -> f64 {
        entries(
            &self.points,
            x,
            self.model.epsilon,
            &mut scratch.kernel,
            &mut scratch.groups,
        )
    }

    /// Whether a point with a positive weight has an entry that connects.
    fn is_connected(&self, scratch: &Scratch) -> bool {
        let mut points = scratch.groups.iter().flat_map(|&group| {
            let weights = self.model.weights.iter().skip(group as usize * LANES);
            weights.zip(&scratch.kernel[group as usize])
        });
        points.any(|(weight, entry)| *weight > 0.0 && *entry >= SMALLEST)
    }

    /// Adds up the columns over the groups.
    fn add_up(&self, scratch: &mut Scratch) {
        add_up(
            &self.sums,
            self.columns,
            &scratch.kernel,
            &scratch.groups,
            &mut scratch.sums,
        );
    }

    /// The sums over the neighbours in a sparse kernel.
    fn sparse(&self, tree: &Tree, x: &[f64], scratch: &mut Scratch) {
        let model = &self.model;
        match model.reach {
            Reach::All => {}
            Reach::Radius(radius) => {
                let bound = square_of(radius);
                tree.leaves_within([x, x], bound, &[], &mut scratch.leaves);
                tree.gather(&scratch.leaves, x, bound, &mut scratch.near);
            }
            Reach::Neighbours(k) => {
                let last = self.last_of(tree, x, k, scratch);
                tree.leaves_within([x, x], last.0, &self.largest, &mut scratch.leaves);
                let top = self.largest.first().copied().unwrap_or(0.0).max(last.0);
                tree.gather(&scratch.leaves, x, top, &mut scratch.near);
                // A row that is no point comes after all points.
                let own = scratch.near.iter().find(|near| near.0 == 0.0);
                let own = own.map_or(u32::MAX, |near| near.1);
                scratch.near.retain(|near| {
                    let of_point = model.farthest[near.1 as usize];
                    is_within(*near, last) || is_within((near.0, own), of_point)
                });
            }
        }
        scratch.sorted.clear();
        scratch
            .sorted
            .extend(scratch.near.iter().map(|near| near.0));
        exponential::scaled(&mut scratch.sorted, -1.0 / model.epsilon);
        for (entry, (_, j)) in scratch.sorted.iter().zip(&scratch.near) {
            if *entry < SMALLEST {
                continue;
            }
            // As it was stored in the fit.
            let entry = f64::from(*entry as f32);
            let j = *j as usize;
            let group = &self.sums[j / LANES * self.columns..][..self.columns];
            for (sum, column) in scratch.sums.iter_mut().zip(group) {
                *sum += entry * column[j % LANES];
            }
        }
    }

    /// The k-th nearest point that is not x.
    fn last_of(&self, tree: &Tree, x: &[f64], k: usize, scratch: &mut Scratch) -> Near {
        let by = |a: &Near, b: &Near| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let mut bound = self.model.epsilon * 4.0;
        loop {
            tree.leaves_within([x, x], bound, &[], &mut scratch.leaves);
            tree.gather(&scratch.leaves, x, bound, &mut scratch.near);
            let is_all = scratch.near.len() == tree.n();
            scratch.near.retain(|near| near.0 > 0.0);
            if scratch.near.len() >= k {
                return *scratch.near.select_nth_unstable_by(k - 1, by).1;
            }
            if is_all {
                return (bound, u32::MAX);
            }
            bound *= 4.0;
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn entries(
    points: &[[f64; LANES]],
    x: &[f64],
    epsilon: f64,
    kernel: &mut Vec<[f64; LANES]>,
    groups: &mut Vec<u32>,
) -> f64 {
    kernel.clear();
    let mut least = [f64::INFINITY; LANES];
    for group in points.chunks_exact(x.len()) {
        let mut squares = [0.0; LANES];
        for (coordinates, x) in group.iter().zip(x) {
            for (square, y) in squares.iter_mut().zip(coordinates) {
                *square += (y - x) * (y - x);
            }
        }
        for (least, square) in least.iter_mut().zip(&squares) {
            *least = if *square < *least { *square } else { *least };
        }
        kernel.push(squares);
    }
    let smallest = least.into_iter().fold(f64::INFINITY, f64::min);
    let bound = smallest + NEGLIGIBLE * epsilon;
    let factor = -1.0 / epsilon;
    groups.clear();
    for (group, squares) in kernel.iter_mut().enumerate() {
        let mut is_near = false;
        for square in &*squares {
            is_near |= *square <= bound;
        }
        if is_near {
            groups.push(group as u32);
            for square in squares {
                *square = exponential::of_negative((*square - smallest) * factor);
            }
        }
    }
    smallest
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn add_up(
    sums: &[[f64; LANES]],
    columns: usize,
    kernel: &[[f64; LANES]],
    groups: &[u32],
    out: &mut [f64],
) {
    for (first, out) in (0..columns)
        .step_by(COLUMNS)
        .zip(out.as_chunks_mut::<COLUMNS>().0)
    {
        let mut totals = [[0.0; LANES]; COLUMNS];
        for &group in groups {
            let entries = &kernel[group as usize];
            let start = group as usize * columns + first;
            let factors: &[[f64; LANES]; COLUMNS] = sums[start..start + COLUMNS]
                .try_into()
                .expect("a block of columns");
            for (totals, factors) in totals.iter_mut().zip(factors) {
                for ((total, entry), factor) in totals.iter_mut().zip(entries).zip(factors) {
                    *total = entry.mul_add(*factor, *total);
                }
            }
        }
        for (out, totals) in out.iter_mut().zip(&totals) {
            *out = totals.iter().sum();
        }
    }
}
