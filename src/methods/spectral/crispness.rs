//! The crispest memberships in a span of functions: a convex function climbs from vertex to vertex
//! of a polytope.
//!
//! In: coordinates x_l (w × r, row-major) of some states in a basis whose first function is 1 and
//! which is orthonormal in a weighted inner product, and a matrix A (r × r) with memberships χ = xA
//! that are not negative. Every row of χ sums to 1 because A·1 is the first unit vector. Out: an A
//! with the same properties at which Σ_i ‖A_i‖² / A_0i has a local maximum. With the overlaps S =
//! D_c^{-1} χᵀDχ of the sets, this is the trace of S: Röblitz & Weber, *Fuzzy spectral clustering
//! by PCCA+*, Adv. Data Anal. Classif. 7, 2013, (16).
//!
//! The sum is convex in A, because ‖v‖²/v₀ is, and all constraints are linear. So its maximum is at
//! a vertex, where as many constraints are active as there are unknowns. From any A, the gradient
//! projected on the face of A leads upwards to the next constraint, because a convex function that
//! grows along a line does not stop growing. Then one more constraint is active. At a vertex, the
//! constraint with the most negative multiplier is dropped; if there is none, the search ends. This
//! needs no step length, no tolerance, and no derivative-free search over (r − 1)² unknowns.

use crate::math::matrix::{dot, norm};

/// A projected gradient whose length relative to the unprojected one is below this is rounding, and
/// so are multipliers relative to it.
const FLAT: f64 = 1e-10;

/// If a unit step changes a membership by less than this, its constraint is parallel to the step.
const PARALLEL: f64 = 1e-11;

/// Steps of length zero after which constraints are chosen by their number, which avoids cycles
/// (Bland's rule).
const STUCK: usize = 20;

/// A set with a smaller weight is empty.
pub(crate) const EMPTY: f64 = 1e-12;

/// Σ_i ‖A_i‖² / A_0i. A column without weight adds nothing.
pub(crate) fn trace(a: &[f64], rank: usize) -> f64 {
    (0..rank).map(|i| column_square(a, rank, i).1).sum()
}

/// A_0i and ‖A_i‖² / A_0i.
fn column_square(a: &[f64], rank: usize, i: usize) -> (f64, f64) {
    let square: f64 = a.iter().skip(i).step_by(rank).map(|x| x * x).sum();
    let weight = a[i];
    let is_empty = weight <= EMPTY;
    (weight, if is_empty { 0.0 } else { square / weight })
}

/// Climbs from `a`. Returns whether it reached a local maximum within `max_steps`.
pub(crate) fn climb(rows: &[f64], rank: usize, a: &mut [f64], max_steps: usize) -> bool {
    assert!(a.len() == rank * rank && rows.len().is_multiple_of(rank));
    let unknowns = rank * rank;
    let mut face = Face::new(unknowns);
    // A·1 is fixed.
    for j in 0..rank {
        let mut normal = vec![0.0; unknowns];
        normal[j * rank..][..rank].fill(1.0);
        face.add(None, &normal);
    }
    let mut still = 0;
    for _ in 0..max_steps {
        let gradient = gradient(a, rank);
        let size = norm(&gradient);
        let by_number = still > STUCK;
        let mut way = face.project(&gradient);
        if norm(&way) <= FLAT * size {
            if let Some(wrong) = face.wrong(&gradient, FLAT * size, by_number) {
                face.remove(wrong);
                way = face.project(&gradient);
            } else if face.normals.len() == unknowns {
                return true;
            } else {
                // The gradient on the face is zero: the function is convex, so any direction leads
                // up.
                way = face.any();
            }
        }
        let length = norm(&way);
        way.iter_mut().for_each(|x| *x /= length);
        let Some((condition, distance)) = face.blocked(rows, rank, a, &way, by_number) else {
            return false;
        };
        still = if distance > 0.0 { 0 } else { still + 1 };
        for (a, way) in a.iter_mut().zip(&way) {
            *a += distance * way;
        }
        face.add(Some(condition), &normal(rows, rank, condition));
    }
    false
}

/// The derivative of `trace` by every entry of A.
fn gradient(a: &[f64], rank: usize) -> Vec<f64> {
    let mut gradient = vec![0.0; rank * rank];
    for i in 0..rank {
        let (weight, ratio) = column_square(a, rank, i);
        if weight > EMPTY {
            for j in 0..rank {
                gradient[j * rank + i] = 2.0 * a[j * rank + i] / weight;
            }
            gradient[i] -= ratio / weight;
        }
    }
    gradient
}

/// The derivative of membership i at state l, for constraint l r + i.
fn normal(rows: &[f64], rank: usize, condition: usize) -> Vec<f64> {
    let (l, i) = (condition / rank, condition % rank);
    let mut normal = vec![0.0; rank * rank];
    for (j, x) in rows[l * rank..][..rank].iter().enumerate() {
        normal[j * rank + i] = *x;
    }
    normal
}

/// The active constraints. The columns of N = QR are their normals.
struct Face {
    unknowns: usize,
    /// The numbers of the constraints; none for those that are always active.
    normals: Vec<Option<usize>>,
    /// Columns of Q.
    q: Vec<Vec<f64>>,
    /// Columns of R, without the zeros below the diagonal.
    r: Vec<Vec<f64>>,
}

impl Face {
    fn new(unknowns: usize) -> Face {
        Face {
            unknowns,
            normals: Vec::new(),
            q: Vec::new(),
            r: Vec::new(),
        }
    }

    /// Gram–Schmidt, twice because one pass leaves rounding: the remainder of `v`, and its
    /// coefficients.
    fn split(&self, v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut rest = v.to_vec();
        let mut along = vec![0.0; self.q.len()];
        for _ in 0..2 {
            for (along, q) in along.iter_mut().zip(&self.q) {
                let part = dot(q, &rest);
                *along += part;
                rest.iter_mut().zip(q).for_each(|(x, q)| *x -= part * q);
            }
        }
        (rest, along)
    }

    fn project(&self, v: &[f64]) -> Vec<f64> {
        self.split(v).0
    }

    /// The unit vector with the longest projection on the face, projected.
    fn any(&self) -> Vec<f64> {
        let ways = (0..self.unknowns).map(|at| {
            let mut unit = vec![0.0; self.unknowns];
            unit[at] = 1.0;
            self.project(&unit)
        });
        ways.reduce(|a, b| if norm(&b) > norm(&a) { b } else { a })
            .unwrap_or_default()
    }

    fn add(&mut self, condition: Option<usize>, normal: &[f64]) {
        let (mut rest, mut along) = self.split(normal);
        let length = norm(&rest);
        rest.iter_mut().for_each(|x| *x /= length);
        along.push(length);
        self.normals.push(condition);
        self.q.push(rest);
        self.r.push(along);
    }

    /// Drops a constraint. Rotations of neighbouring columns of Q make R triangular again.
    fn remove(&mut self, place: usize) {
        self.normals.remove(place);
        self.r.remove(place);
        for at in place..self.r.len() {
            let (x, y) = (self.r[at][at], self.r[at][at + 1]);
            let length = x.hypot(y);
            let (cos, sin) = (x / length, y / length);
            let turn = |x: &mut f64, y: &mut f64| {
                (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
            };
            for column in &mut self.r[at..] {
                let (upper, lower) = column.split_at_mut(at + 1);
                turn(&mut upper[at], &mut lower[0]);
            }
            self.r[at].truncate(at + 1);
            let (upper, lower) = self.q.split_at_mut(at + 1);
            for (x, y) in upper[at].iter_mut().zip(&mut lower[0]) {
                turn(x, y);
            }
        }
        self.q.pop();
    }

    /// A constraint without which the function would grow: N μ = gradient, and μ is positive. The
    /// one with the largest μ, or the one with the lowest number.
    fn wrong(&self, gradient: &[f64], least: f64, by_number: bool) -> Option<usize> {
        let (_, mut mu) = self.split(gradient);
        for place in (0..mu.len()).rev() {
            mu[place] /= self.r[place][place];
            let value = mu[place];
            for (mu, r) in mu.iter_mut().zip(&self.r[place][..place]) {
                *mu -= value * r;
            }
        }
        let wrong = (0..mu.len()).filter(|&p| self.normals[p].is_some() && mu[p] > least);
        wrong.reduce(|a, b| {
            let is_better = if by_number {
                self.normals[b] < self.normals[a]
            } else {
                mu[b] > mu[a]
            };
            if is_better { b } else { a }
        })
    }

    /// The first constraint on the way from `a`, and its distance. Of several, the one that is
    /// crossed most steeply, or the one with the lowest number.
    fn blocked(
        &self,
        rows: &[f64],
        rank: usize,
        a: &[f64],
        way: &[f64],
        by_number: bool,
    ) -> Option<(usize, f64)> {
        let mut first: Option<(usize, f64, f64)> = None;
        let mut value = vec![0.0; rank];
        let mut rate = vec![0.0; rank];
        for (l, row) in rows.chunks_exact(rank).enumerate() {
            value.fill(0.0);
            rate.fill(0.0);
            let lines = a.chunks_exact(rank).zip(way.chunks_exact(rank));
            for (x, (a, way)) in row.iter().zip(lines) {
                for i in 0..rank {
                    value[i] += x * a[i];
                    rate[i] += x * way[i];
                }
            }
            for i in 0..rank {
                let steepness = -rate[i] / norm(row);
                if steepness <= PARALLEL || self.normals.contains(&Some(l * rank + i)) {
                    continue;
                }
                let distance = value[i].max(0.0) / -rate[i];
                let is_first = first.is_none_or(|(_, nearest, steepest)| {
                    let is_tie = distance == nearest && !by_number && steepness > steepest;
                    distance < nearest || is_tie
                });
                if is_first {
                    first = Some((l * rank + i, distance, steepness));
                }
            }
        }
        first.map(|(condition, distance, _)| (condition, distance))
    }
}
