//! The update of weights by an observation.
//!
//! With prior weights β, the kernel matrix K of the observations and M = E K E:
//! - `pkbr` and `kregbayes` ((8), (11)): w = E (M + δI)⁻¹ E k_x with E = diag(√β⁺), which is
//!   (K + δΛ⁺)⁻¹ k_x on β > 0.
//! - `kbr`: w = DK((DK)² + δI)⁻¹ D k_x with D = diag β, which is E Re[(M + i√δ J)⁻¹ E k_x] with
//!   E = diag(√|β|) and J = diag(sign β), as (JM)((JM)² + δ)⁻¹J = Re[(M + i√δ J)⁻¹].
//!
//! Both systems are M plus a diagonal. Their condition is that of M + δI and M + √δI; the squares
//! of the printed formula do not occur. M is decomposed by pivoted incomplete Cholesky until the
//! trace of the error is a small share of the diagonal, and the decomposition is the preconditioner
//! of an iteration with M itself: conjugate gradients for the first system, and for the second one
//! iterative refinement, which contracts by that share. So the solutions have the accuracy of the
//! iteration, not of the decomposition. If the decomposition needs a large rank, the system is
//! solved by a dense factorisation.

use crate::math::matrix::add_triangle;
use crate::methods::filter::kernel_bayes::cholesky::Incomplete;
use crate::methods::filter::kernel_bayes::linear::{Lower, add_columns, dot, products};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::solvers::Solve;
use faer::{Accum, Mat, MatRef, Par, c64};
use std::fmt;

/// The trace of the error of the preconditioner of refinement, as a share of √δ: each step
/// contracts by that share.
const DEPTH: f64 = 0.05;

/// The same for conjugate gradients, as a share of δ. Their steps cost less than a larger rank.
const GRADIENT_DEPTH: f64 = 0.5;

/// The largest rank of the preconditioner, as a share of the order.
const RANKS: f64 = 0.35;

/// Orders up to this are always factorised.
const SMALL: usize = 48;

/// An iteration ends if a correction is at most this share of the solution.
const TOLERANCE: f64 = 1e-12;

/// An iteration whose last correction is above this share has failed.
const FAILED: f64 = 1e-8;

/// The largest number of steps of an iteration.
const STEPS: usize = 40;

/// What determines the two systems.
#[derive(Debug, Clone, Copy)]
pub(super) struct System<'a> {
    /// The matrix K.
    pub(super) k: Lower<'a>,
    /// The diagonal of E.
    pub(super) e: &'a [f64],
    /// δ.
    pub(super) delta: f64,
    /// The right side.
    pub(super) v: &'a [f64],
}

/// Memory of the solvers.
#[derive(Debug, Default)]
pub(super) struct Solver {
    decomposition: Incomplete,
    small: Small,
    vectors: [Vec<f64>; 10],
    /// The share of the last correction of the last system.
    pub(super) error: f64,
}

/// The Cholesky factor of a positive definite matrix.
pub(super) struct Small {
    factor: Mat<f64>,
    stack: Option<MemBuffer>,
}

impl Default for Small {
    fn default() -> Small {
        Small {
            factor: Mat::new(),
            stack: None,
        }
    }
}

impl fmt::Debug for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Small")
            .field("k", &self.factor.nrows())
            .finish_non_exhaustive()
    }
}

impl Small {
    /// Factorises the matrix with this lower triangle. False if it is not positive definite.
    pub(super) fn factorise(&mut self, k: usize, entry: impl Fn(usize, usize) -> f64) -> bool {
        self.reserve(k);
        for j in 0..k {
            for i in j..k {
                self.factor[(i, j)] = entry(i, j);
            }
        }
        self.in_place()
    }

    /// Factorises the matrix whose lower triangle `fill` writes. False if it is not positive
    /// definite.
    pub(super) fn factorise_with(&mut self, k: usize, fill: impl FnOnce(&mut Mat<f64>)) -> bool {
        self.reserve(k);
        fill(&mut self.factor);
        self.in_place()
    }

    /// The decomposition of a new matrix begins with its memory.
    fn reserve(&mut self, k: usize) {
        if self.factor.nrows() != k {
            self.factor = Mat::zeros(k, k);
            let factor =
                llt::factor::cholesky_in_place_scratch::<f64>(k, Par::Seq, Default::default());
            let solve = llt::solve::solve_in_place_scratch::<f64>(k, 1, Par::Seq);
            self.stack = Some(MemBuffer::new(factor.or(solve)));
        }
    }

    fn in_place(&mut self) -> bool {
        let Some(stack) = &mut self.stack else {
            return true;
        };
        llt::factor::cholesky_in_place(
            self.factor.as_mut(),
            Default::default(),
            Par::Seq,
            MemStack::new(stack),
            Default::default(),
        )
        .is_ok()
    }

    /// The columns of x ← their solutions.
    pub(super) fn solve_columns(&mut self, x: &mut Mat<f64>) {
        let (k, columns) = (self.factor.nrows(), x.ncols());
        let scratch = llt::solve::solve_in_place_scratch::<f64>(k, columns, Par::Seq);
        let mut memory = MemBuffer::new(scratch);
        let stack = MemStack::new(&mut memory);
        llt::solve::solve_in_place(self.factor.as_ref(), x.as_mut(), Par::Seq, stack);
    }

    /// x ← the solution for x.
    pub(super) fn solve(&mut self, x: &mut [f64]) {
        let Some(stack) = &mut self.stack else {
            return;
        };
        let x = faer::ColMut::from_slice_mut(&mut x[..self.factor.nrows()]);
        llt::solve::solve_in_place(
            self.factor.as_ref(),
            x.as_mat_mut(),
            Par::Seq,
            MemStack::new(stack),
        );
    }
}

impl Solver {
    /// Solves (EKE + δI) x = v. x is 0 if δ is below the rounding errors of the matrix.
    pub(super) fn positive(&mut self, system: System<'_>, x: &mut Vec<f64>) {
        let System { k, e, delta, v } = system;
        let n = k.n;
        x.clear();
        x.resize(n, 0.0);
        self.error = 0.0;
        if v.iter().all(|v| *v == 0.0) {
            return;
        }
        if n > SMALL && self.decompose(k, e, GRADIENT_DEPTH * delta) && self.gradients(system, x) {
            return;
        }
        // The iteration is tried again with its own dense factor as the preconditioner, which
        // measures the error.
        let is_definite = self.small.factorise(n, |i, j| {
            let diagonal = if i == j { delta } else { 0.0 };
            e[i] * k.rows[i * k.stride + j] * e[j] + diagonal
        });
        if !is_definite {
            self.error = f64::INFINITY;
            return;
        }
        x.copy_from_slice(v);
        self.small.solve(x);
        let [t, r, ..] = &mut self.vectors;
        system.residual(x, t, r);
        self.small.solve(r);
        for (x, r) in x.iter_mut().zip(r.iter()) {
            *x += r;
        }
        self.error = length(r) / length(x).max(f64::MIN_POSITIVE);
    }

    /// Decomposes EKE. False if the rank is too large.
    fn decompose(&mut self, k: Lower<'_>, e: &[f64], enough: f64) -> bool {
        let cap = (k.n as f64 * RANKS) as usize;
        let column = |j: usize, out: &mut [f64]| {
            k.column(j, out);
            let own = e[j];
            for (out, e) in out.iter_mut().zip(e) {
                *out *= own * e;
            }
        };
        let diagonal = (0..k.n).map(|i| e[i] * e[i] * k.rows[i * k.stride + i]);
        self.decomposition.decompose(diagonal, column, enough, cap);
        self.decomposition.residual <= enough
    }

    /// Preconditioned conjugate gradients.
    fn gradients(&mut self, system: System<'_>, x: &mut [f64]) -> bool {
        let System { k, delta, v, .. } = system;
        let (l, rank) = (&self.decomposition.columns, self.decomposition.rank);
        self.small.reserve(rank);
        gram(l, k.n, None, &mut self.small.factor);
        for at in 0..rank {
            self.small.factor[(at, at)] += delta;
        }
        if !self.small.in_place() {
            return false;
        }
        let small = &mut self.small;
        let [t, r, z, p, q, along, ..] = &mut self.vectors;
        along.resize(rank, 0.0);
        // P⁻¹r = (r − L(δ + LᵀL)⁻¹Lᵀr)/δ.
        let mut precondition = |r: &[f64], z: &mut Vec<f64>| {
            products(l, r, along);
            small.solve(along);
            along.iter_mut().for_each(|a| *a = -*a);
            z.clear();
            z.extend_from_slice(r);
            add_columns(l, along, z);
            z.iter_mut().for_each(|z| *z /= delta);
        };
        precondition(v, z);
        x.copy_from_slice(z);
        system.residual(x, t, r);
        precondition(r, z);
        p.clone_from(z);
        let mut rz = dot(r, z);
        let mut best = f64::INFINITY;
        for _ in 0..STEPS {
            self.error = length(z) / length(x);
            // An iteration that no longer improves has reached the accuracy of the products.
            if self.error <= TOLERANCE || (self.error <= FAILED && self.error > 0.5 * best) {
                return true;
            }
            best = best.min(self.error);
            system.multiply(p, t, q);
            for (q, p) in q.iter_mut().zip(p.iter()) {
                *q = delta.mul_add(*p, *q);
            }
            let step = rz / dot(p, q);
            if !step.is_finite() {
                return false;
            }
            for (x, p) in x.iter_mut().zip(p.iter()) {
                *x = step.mul_add(*p, *x);
            }
            for (r, q) in r.iter_mut().zip(q.iter()) {
                *r = (-step).mul_add(*q, *r);
            }
            precondition(r, z);
            let next = dot(r, z);
            let along = next / rz;
            rz = next;
            for (p, z) in p.iter_mut().zip(z.iter()) {
                *p = along.mul_add(*p, *z);
            }
        }
        self.error <= FAILED
    }

    /// Solves (EKE + i√δ J) x = v and stores the real part of x. `signs` is the diagonal of J.
    pub(super) fn indefinite(&mut self, system: System<'_>, signs: &[f64], x: &mut Vec<f64>) {
        let System { k, e, delta, v } = system;
        let s = delta.sqrt();
        x.clear();
        x.resize(k.n, 0.0);
        self.error = 0.0;
        if v.iter().all(|v| *v == 0.0) {
            return;
        }
        if k.n > SMALL && self.decompose(k, e, DEPTH * s) && self.refine(system, signs, s, x) {
            return;
        }
        self.factorised(system, signs, s, x);
    }

    /// Iterative refinement with the preconditioner P = LLᵀ + isJ.
    fn refine(&mut self, system: System<'_>, signs: &[f64], s: f64, x: &mut [f64]) -> bool {
        let System { k, e, v, .. } = system;
        let n = k.n;
        let decomposition = &self.decomposition;
        let Some(inner) = inner_system(decomposition, signs, s, &mut self.small) else {
            return false;
        };
        let [tr, ti, rr, ri, zr, zi, ar, ai, xi, b] = &mut self.vectors;
        for a in [&mut *ar, &mut *ai, &mut *b] {
            a.clear();
            a.resize(decomposition.rank, 0.0);
        }
        xi.clear();
        xi.resize(n, 0.0);
        let mut preconditioner = Preconditioner {
            l: &decomposition.columns,
            signs,
            s,
            inner: &inner,
            small: &mut self.small,
            along: [ar, ai],
            b,
        };
        ri.clear();
        ri.resize(n, 0.0);
        preconditioner.apply([v, ri], [zr, zi]);
        x.copy_from_slice(zr);
        xi.copy_from_slice(zi);
        let mut best = f64::INFINITY;
        for _ in 0..STEPS {
            // r = v − Mx − isJx.
            for (t, x) in [(&mut *tr, &*x), (&mut *ti, &xi[..])] {
                t.clear();
                t.extend(x.iter().zip(e).map(|(x, e)| x * e));
            }
            for r in [&mut *rr, &mut *ri] {
                r.resize(n, 0.0);
            }
            k.multiply([tr, ti], [rr, ri]);
            for at in 0..n {
                let turned = s * signs[at];
                rr[at] = v[at] - e[at] * rr[at] + turned * xi[at];
                ri[at] = -e[at] * ri[at] - turned * x[at];
            }
            preconditioner.apply([rr, ri], [zr, zi]);
            for at in 0..n {
                x[at] += zr[at];
                xi[at] += zi[at];
            }
            self.error = length(zr).hypot(length(zi)) / length(x).hypot(length(xi));
            if self.error <= TOLERANCE || (self.error <= FAILED && self.error > 0.5 * best) {
                return true;
            }
            if !self.error.is_finite() {
                return false;
            }
            best = best.min(self.error);
        }
        self.error <= FAILED
    }

    /// By a dense factorisation, and one step of refinement that measures the error.
    fn factorised(&mut self, system: System<'_>, signs: &[f64], s: f64, x: &mut [f64]) {
        let System { k, e, v, .. } = system;
        let n = k.n;
        let matrix = Mat::from_fn(n, n, |i, j| {
            let own = if i == j { s * signs[i] } else { 0.0 };
            c64::new(e[i] * k.at(i, j) * e[j], own)
        });
        let factors = matrix.partial_piv_lu();
        let right = Mat::from_fn(n, 1, |i, _| c64::new(v[i], 0.0));
        let first = factors.solve(&right);
        let rest = &right - &matrix * &first;
        let second = factors.solve(&rest);
        for (at, x) in x.iter_mut().enumerate() {
            *x = first[(at, 0)].re + second[(at, 0)].re;
        }
        self.error = second.norm_l2() / first.norm_l2().max(f64::MIN_POSITIVE);
    }
}

/// Factorises S² + s²I for S = LᵀJL. Returns S by columns, or None if the matrix is not positive
/// definite.
fn inner_system(
    decomposition: &Incomplete,
    signs: &[f64],
    s: f64,
    small: &mut Small,
) -> Option<Vec<f64>> {
    let rank = decomposition.rank;
    let mut inner = Mat::zeros(rank, rank);
    gram(&decomposition.columns, signs.len(), Some(signs), &mut inner);
    for j in 0..rank {
        for i in 0..j {
            inner[(i, j)] = inner[(j, i)];
        }
    }
    small.reserve(rank);
    square(&inner, &mut small.factor);
    for at in 0..rank {
        small.factor[(at, at)] += s * s;
    }
    let entry = |at| inner[(at % rank, at / rank)];
    small
        .in_place()
        .then(|| (0..rank * rank).map(entry).collect())
}

/// The inverse of P = LLᵀ + isJ.
struct Preconditioner<'a> {
    /// L by columns.
    l: &'a [f64],
    /// The diagonal of J.
    signs: &'a [f64],
    s: f64,
    /// S = LᵀJL by columns.
    inner: &'a [f64],
    /// The factor of S² + s²I.
    small: &'a mut Small,
    /// Memory for the real and the imaginary part of (S² + s²I)⁻¹LᵀJr.
    along: [&'a mut Vec<f64>; 2],
    /// Memory for one part of (s + iS) times that vector.
    b: &'a mut Vec<f64>,
}

impl Preconditioner<'_> {
    /// z ← P⁻¹r, both as real and imaginary parts.
    ///
    /// P⁻¹r = −(i/s) J [r + iL(s − iS)⁻¹LᵀJr], and (s − iS)⁻¹ = (s + iS)(s² + S²)⁻¹.
    fn apply(&mut self, r: [&[f64]; 2], z: [&mut Vec<f64>; 2]) {
        let Preconditioner {
            l, signs, s, inner, ..
        } = *self;
        let (small, b) = (&mut *self.small, &mut *self.b);
        let ([rr, ri], [zr, zi], [ar, ai]) = (r, z, &mut self.along);
        for (r, z, a) in [(rr, &mut *zr, &mut *ar), (ri, &mut *zi, &mut *ai)] {
            z.clear();
            z.extend(r.iter().zip(signs).map(|(r, j)| r * j));
            products(l, z, a);
            small.solve(a);
        }
        // i(s + iS)(a_r + i a_i) = (−S a_r − s a_i) + i(s a_r − S a_i).
        b.fill(0.0);
        add_columns(inner, ar, b);
        for (b, a) in b.iter_mut().zip(ai.iter()) {
            *b = -*b - s * a;
        }
        zr.copy_from_slice(rr);
        add_columns(l, b, zr);
        b.fill(0.0);
        add_columns(inner, ai, b);
        for (b, a) in b.iter_mut().zip(ar.iter()) {
            *b = s * a - *b;
        }
        zi.copy_from_slice(ri);
        add_columns(l, b, zi);
        // −(i/s)(z_r + i z_i) = (z_i − i z_r)/s.
        for ((r, i), j) in zr.iter_mut().zip(zi.iter_mut()).zip(signs) {
            (*r, *i) = (j * *i / s, -j * *r / s);
        }
    }
}

impl System<'_> {
    /// out ← EKEx.
    fn multiply(&self, x: &[f64], t: &mut Vec<f64>, out: &mut Vec<f64>) {
        t.clear();
        t.extend(x.iter().zip(self.e).map(|(x, e)| x * e));
        out.resize(self.k.n, 0.0);
        self.k.multiply([t], [out]);
        for (out, e) in out.iter_mut().zip(self.e) {
            *out *= e;
        }
    }

    /// r ← v − (EKE + δ)x.
    pub(super) fn residual(&self, x: &[f64], t: &mut Vec<f64>, r: &mut Vec<f64>) {
        self.multiply(x, t, r);
        for ((r, v), x) in r.iter_mut().zip(self.v).zip(x) {
            *r = v - *r - self.delta * x;
        }
    }
}

fn length(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

/// The lower triangle of LᵀJL, for L of n rows by columns, and J = I by default.
pub(super) fn gram(l: &[f64], n: usize, signs: Option<&[f64]>, out: &mut Mat<f64>) {
    let rank = out.nrows();
    let left = MatRef::from_column_major_slice(&l[..n * rank], n, rank);
    let signed: Vec<f64>;
    let right = match signs {
        None => left,
        Some(signs) => {
            let all = l.iter().zip(signs.iter().cycle());
            signed = all.map(|(l, j)| l * j).collect();
            MatRef::from_column_major_slice(&signed, n, rank)
        }
    };
    add_triangle(out, Accum::Replace, left, right, 1.0);
}

/// The lower triangle of S² of a symmetric matrix S.
pub(super) fn square(s: &Mat<f64>, out: &mut Mat<f64>) {
    add_triangle(out, Accum::Replace, s.transpose(), s.as_ref(), 1.0);
}
