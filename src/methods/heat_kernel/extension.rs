//! Embeddings of new rows (the Nyström extension), from the points that a kernel was fitted to.
//!
//! In: the points with their weights and normalisation, and one row of features F per point. Out:
//! Σ_j A(x, j) w_j F_j for every new row x. With F = λᵗ⁻¹φ it is a diffusion map, with F = Y_{p−1}
//! it is a sketch. The rows of the points themselves come back to rounding, apart from ties among
//! neighbours.
//!
//! - Symmetric: A(x, j) = K(x, j) / ((q(x) q_j)^α (v(x) v_j)^{1/2}) with q(x) = Σ_j K(x, j) w_j and
//!   v(x) = q(x)^{-α} Σ_j K(x, j) w_j q_j^{-α}. Stochastic: the same times √(V/v(x)).
//! - Bistochastic: A(x, j) = K(x, j) / (d(x) d_j) with d(x) = Σ_j K(x, j) w_j / d_j.
//!
//! A row that is far from all points of a full kernel has a kernel that underflows. So K is divided
//! by its largest entry c, and the result is multiplied by c^{(1−α)/2}, which is 1 for α = 1.

use crate::methods::heat_kernel::exponential;
use crate::methods::heat_kernel::kernel::{Kernel, Reach};
use crate::methods::heat_kernel::normalise::{Factors, Normalisation};
use crate::methods::heat_kernel::tree::{LANES, Near, Tree};
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

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
    /// w.
    pub weights: Vec<f64>,
    /// ε.
    pub epsilon: f64,
    /// Which entries of the kernel are kept.
    pub reach: Reach,
    /// For k nearest points, the squared distance of the farthest of each.
    pub farthest: Vec<f64>,
    /// q, v and α, or d.
    pub factors: Factors,
    /// Columns of F.
    pub columns: usize,
    /// F, m × columns, row-major.
    pub features: Vec<f64>,
}

impl Extension {
    /// The extension of a kernel.
    ///
    /// # Panics
    /// Unless there is one row of features per point.
    pub fn new(kernel: &Kernel, factors: &Factors, features: Vec<f64>, columns: usize) -> Self {
        assert_eq!(features.len(), kernel.n() * columns, "one row per point");
        Extension {
            dimension: kernel.points.dimension,
            coordinates: kernel.points.coordinates.clone(),
            weights: kernel.points.weights.clone(),
            epsilon: kernel.epsilon,
            reach: kernel.reach,
            farthest: kernel.farthest.clone(),
            factors: factors.clone(),
            columns,
            features,
        }
    }

    /// The same, prepared for many rows.
    pub fn embedder(&self) -> Embedder<'_> {
        let (d, m) = (self.dimension, self.weights.len());
        let bistochastic = self.factors.normalisation == Normalisation::Bistochastic;
        let own = if bistochastic { 1 } else { 2 };
        let columns = (own + self.columns).next_multiple_of(COLUMNS);
        let groups = m.div_ceil(LANES);
        let mut points = vec![[f64::INFINITY; LANES]; groups * d];
        let mut sums = vec![[0.0; LANES]; groups * columns];
        let (scale, alpha) = (self.factors.scale(), self.factors.alpha);
        for (i, point) in self.coordinates.chunks_exact(d).enumerate() {
            for (c, x) in point.iter().enumerate() {
                points[i / LANES * d + c][i % LANES] = *x;
            }
            let (w, q) = (self.weights[i], self.factors.q[i]);
            let row = if bistochastic {
                vec![w / q]
            } else {
                vec![w, w * q.powf(-alpha)]
            };
            let features = &self.features[i * self.columns..][..self.columns];
            let row = row
                .into_iter()
                .chain(features.iter().map(|f| w * scale[i] * f));
            for (c, x) in row.enumerate() {
                sums[i / LANES * columns + c][i % LANES] = x;
            }
        }
        let tree = (self.reach != Reach::All).then(|| Tree::new(&self.coordinates, d));
        Embedder {
            model: self,
            points,
            columns,
            sums,
            total: self.factors.total(&self.weights),
            largest: match &tree {
                Some(tree) if !self.farthest.is_empty() => tree.largest(&self.farthest),
                _ => Vec::new(),
            },
            tree,
        }
    }
}

/// An [`Extension`] in the form that its sums need.
#[derive(Debug)]
pub struct Embedder<'a> {
    model: &'a Extension,
    /// Coordinate c of the points of group g is at `g d + c`.
    points: Vec<[f64; LANES]>,
    /// Columns of `sums`.
    columns: usize,
    /// What is summed for q(x), v(x) and F, or for d(x) and F: number c of group g is at `g columns
    /// + c`.
    sums: Vec<[f64; LANES]>,
    /// V.
    total: f64,
    /// The tree of a sparse kernel.
    tree: Option<Tree>,
    /// For every node of the tree the largest of `farthest`.
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

impl Embedder<'_> {
    /// Columns of the embedding.
    pub fn columns(&self) -> usize {
        self.model.columns
    }

    /// Embeds rows (n × d, row-major). Returns n × columns; NaN for rows without a neighbour. A row
    /// does not depend on the other rows.
    ///
    /// # Panics
    /// If the rows are not whole points.
    pub fn embed(&self, rows: &[f64]) -> Vec<f64> {
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
                self.add_up(scratch);
                smallest
            }
            Some(tree) => {
                self.sparse(tree, x, scratch);
                0.0
            }
        };
        let factors = &self.model.factors;
        let sums = &scratch.sums;
        let (scale, own) = if factors.normalisation == Normalisation::Bistochastic {
            (1.0 / sums[0], 1)
        } else {
            let q = sums[0].powf(factors.alpha);
            let v = sums[1] / q;
            let largest = (-smallest / self.model.epsilon * (1.0 - factors.alpha) / 2.0).exp();
            if factors.normalisation == Normalisation::Stochastic {
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
        let model = self.model;
        match model.reach {
            Reach::All => {}
            Reach::Radius(radius) => {
                let bound = radius * radius;
                tree.leaves_within([x, x], bound, &[], &mut scratch.leaves);
                tree.gather(&scratch.leaves, x, bound, &mut scratch.near);
            }
            Reach::Neighbours(k) => {
                let bound = self.reach_of(tree, x, k, scratch);
                tree.leaves_within([x, x], bound, &self.largest, &mut scratch.leaves);
                let top = self.largest.first().copied().unwrap_or(0.0).max(bound);
                tree.gather(&scratch.leaves, x, top, &mut scratch.near);
                let farthest = &model.farthest;
                scratch
                    .near
                    .retain(|near| near.0 <= bound.max(farthest[near.1 as usize]));
            }
        }
        scratch.sorted.clear();
        scratch
            .sorted
            .extend(scratch.near.iter().map(|near| near.0));
        exponential::scaled(&mut scratch.sorted, -1.0 / model.epsilon);
        for (entry, (_, j)) in scratch.sorted.iter().zip(&scratch.near) {
            // As it was stored in the fit.
            let entry = f64::from(*entry as f32);
            let j = *j as usize;
            let group = &self.sums[j / LANES * self.columns..][..self.columns];
            for (sum, column) in scratch.sums.iter_mut().zip(group) {
                *sum += entry * column[j % LANES];
            }
        }
    }

    /// The squared distance of the k-th nearest point that is not x.
    fn reach_of(&self, tree: &Tree, x: &[f64], k: usize, scratch: &mut Scratch) -> f64 {
        let mut bound = self.model.epsilon * 4.0;
        loop {
            tree.leaves_within([x, x], bound, &[], &mut scratch.leaves);
            tree.gather(&scratch.leaves, x, bound, &mut scratch.near);
            scratch.sorted.clear();
            let others = scratch.near.iter().map(|near| near.0).filter(|s| *s > 0.0);
            scratch.sorted.extend(others);
            if scratch.sorted.len() >= k {
                return *scratch
                    .sorted
                    .select_nth_unstable_by(k - 1, f64::total_cmp)
                    .1;
            }
            if scratch.near.len() == tree.n() {
                return bound;
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
