//! Sparse eigenbasis approximation: embeddings → sparse vectors that span nearly the same space,
//! one per set (Froyland, Rock & Sakellariou, *Sparse eigenbasis approximation: multiple feature
//! extraction across spatiotemporal scales with application to coherent set identification*,
//! Commun. Nonlinear Sci. Numer. Simul. 77, 2019, Algorithm 3.1).
//!
//! In: r coordinates e per state (n × r, row-major) and n positive weights w, such as e =
//! D_p^{-1/2} V with w = p, whose columns are orthonormal functions of the states in ⟨x, y⟩ = Σ_j
//! w_j x_j y_j. Out: memberships, one column per set, most of them zero, and a label for every
//! state.
//!
//! The columns of e are rotated, Z = eRᵀ, and all values shrink towards zero by μ, so that small
//! ones vanish: S = soft(Z). The rotation maximises Σ_k ‖S_k‖, with norms of ⟨·, ·⟩. Given R, the
//! best unit vector for ⟨s, Z_k⟩ − μ‖s‖₁ is S_k / ‖S_k‖. Given these, the best R is the polar
//! factor of ⟨S_k / ‖S_k‖, e_l⟩. The two steps alternate, and the sum never falls.
//!
//! The sum has several local maxima. The paper starts from R = I. There a constant column beside
//! antisymmetric ones is a saddle that the iteration would not leave, so the paper adds noise to
//! such a column. This implementation starts from r states that are far apart, one per set (Damle,
//! Minden & Ying, *Simple, direct and efficient multi-way spectral clustering*, Inf. Inference 8,
//! 2019). It needs no noise and fewer iterations, and where the two starts ended apart, it ended
//! higher.
//!
//! *Weights.* The paper has boxes of one size. In this implementation ⟨·, ·⟩ and ‖·‖₁ both have the
//! weights w, so all states have the same threshold: the membership of a state does not depend on
//! its weight, only its influence on the rotation does. The paper's threshold of 0.99/√n on unit
//! vectors of n entries is μ = 0.99 times the value of the constant function of norm one.
//!
//! *Both sides.* The rows of e followed by those of f, with the weights p/2 and q/2, are
//! orthonormal too. Then column k of the result is a coherent pair, and no matching is needed.

use crate::math::matrix::dot;
use crate::math::{dense, matching, sum};
use crate::methods::spectral::basis::{self, blocks};
use rayon::prelude::*;

/// A state whose row has a new part below this, relative to the row, does not start another set.
const DEPENDENT: f64 = 1e-10;

/// μ relative to the constant function of norm one, as in the paper: below 1, so that no column can
/// vanish.
const SPARSITY: f64 = 0.99;

/// The iteration stops if no entry of the rotation changes by more than this.
const TOLERANCE: f64 = 1e-12;

const MAX_ITERATIONS: usize = 5_000;

/// Memberships of SEBA.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sparse {
    /// The positive part of S, with columns scaled to a largest value of 1, n × r row-major. A row
    /// whose sum is above 1 is divided by it. A row of zeros is in no set.
    pub membership: Vec<f64>,
    /// The column with the largest value, the first one on ties. For a state in no set, the column
    /// with the largest value before the shrinkage.
    pub affiliation: Vec<u32>,
    /// Σ_k ‖S_k‖ after every iteration.
    pub trace: Vec<f64>,
    /// Whether the rotation met its tolerance.
    pub converged: bool,
}

/// Sparse vectors for `embedding` (n × `rank`, row-major).
pub(crate) fn fit(embedding: &[f64], rank: usize, weights: &[f64]) -> Sparse {
    sparse(embedding, rank, weights, SPARSITY)
}

fn sparse(embedding: &[f64], rank: usize, weights: &[f64], sparsity: f64) -> Sparse {
    assert!(rank > 0, "a basis has a vector");
    assert_eq!(
        embedding.len(),
        weights.len() * rank,
        "one weight a state of {rank} coordinates"
    );
    let basis = basis::orthonormal(embedding, rank, weights);
    let states = States::new(&basis, rank, weights, sparsity);
    let (rotation, trace, converged) = states.turned(first_rotation(&basis, rank, weights));
    let (membership, affiliation) = states.sets(rotation).memberships(&basis);
    Sparse {
        membership,
        affiliation,
        trace,
        converged,
    }
}

/// The map that gives the memberships of a fit, for any coordinates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    /// B such that the columns of EB are orthonormal, r × r and symmetric.
    root: Vec<f64>,
    sets: Sets,
}

impl Map {
    /// The map from `embedding` to `membership` (both n × `rank`, row-major), computed again as in
    /// `fit`. Its sets have the numbers of their columns.
    pub(crate) fn of(embedding: &[f64], membership: &[f64], rank: usize, weights: &[f64]) -> Map {
        let root = basis::inverse_root(embedding, rank, weights);
        let basis = basis::multiply(embedding, &root, rank);
        let states = States::new(&basis, rank, weights, SPARSITY);
        let (rotation, ..) = states.turned(first_rotation(&basis, rank, weights));
        let own = states.sets(rotation);
        let mut gain = vec![0.0; rank * rank];
        let (found, _) = own.memberships(&basis);
        let both = membership.chunks_exact(rank).zip(found.chunks_exact(rank));
        for ((named, found), weight) in both.zip(weights) {
            for (gain, x) in gain.chunks_exact_mut(rank).zip(named) {
                let pairs = gain.iter_mut().zip(found);
                pairs.for_each(|(gain, y)| *gain += weight * x * y);
            }
        }
        let names = matching::maximise(&gain, rank);
        let turn = |&k: &usize| &own.turns[k * rank..][..rank];
        let sets = Sets {
            turns: names.iter().flat_map(turn).copied().collect(),
            largest: names.iter().map(|&k| own.largest[k]).collect(),
            mu: own.mu,
        };
        Map { root, sets }
    }

    /// The memberships of one state, from its coordinates.
    pub(crate) fn apply(&self, point: &[f64], out: &mut [f64]) {
        let lines = self.root.chunks_exact(point.len());
        let row: Vec<f64> = lines.map(|line| dot(line, point)).collect();
        self.sets.place(&row, out);
    }
}

/// The result of the iteration.
#[derive(Debug, Clone, PartialEq)]
struct Sets {
    /// One row per set, r × r.
    turns: Vec<f64>,
    /// The largest value of each set. If the input has fewer than r independent columns, a set may
    /// have no value above μ.
    largest: Vec<f64>,
    mu: f64,
}

impl Sets {
    /// The memberships of a row of the basis; returns its label.
    fn place(&self, row: &[f64], out: &mut [f64]) -> u32 {
        let (mut best, mut label) = (f64::NEG_INFINITY, 0);
        let turns = self.turns.chunks_exact(row.len());
        for (k, (turn, largest)) in turns.zip(&self.largest).enumerate() {
            out[k] = 0.0;
            if *largest <= 0.0 {
                continue;
            }
            let value = (dot(row, turn) - self.mu) / largest;
            out[k] = value.max(0.0);
            if value > best {
                (best, label) = (value, k as u32);
            }
        }
        let sum: f64 = out.iter().sum();
        out.iter_mut().for_each(|x| *x /= sum.max(1.0));
        label
    }

    /// Memberships and labels of all states.
    fn memberships(&self, basis: &[f64]) -> (Vec<f64>, Vec<u32>) {
        let rank = self.largest.len();
        let mut membership = vec![0.0; basis.len()];
        let rows = membership.par_chunks_mut(rank).zip(basis.par_chunks(rank));
        let affiliation = rows.map(|(out, row)| self.place(row, out)).collect();
        (membership, affiliation)
    }
}

/// The rotation nearest to r rows of the basis, times √w. The first row is the longest. Each of the
/// others has the longest part orthogonal to those before.
fn first_rotation(basis: &[f64], rank: usize, weights: &[f64]) -> Vec<f64> {
    let mut rows = vec![0.0; rank * rank];
    let mut directions: Vec<Vec<f64>> = Vec::new();
    let mut rests: Vec<f64> = basis
        .par_chunks(rank)
        .zip(weights)
        .map(|(row, weight)| weight * row.iter().map(|x| x * x).sum::<f64>())
        .collect();
    for out in rows.chunks_exact_mut(rank) {
        let farthest = rests.par_iter().enumerate().reduce_with(|a, b| {
            let order = a.1.total_cmp(b.1).then(b.0.cmp(&a.0));
            if order.is_lt() { b } else { a }
        });
        let Some((j, _)) = farthest else { break };
        let row = &basis[j * rank..][..rank];
        for (out, x) in out.iter_mut().zip(row) {
            *out = x * weights[j].sqrt();
        }
        let mut direction = row.to_vec();
        // Twice, because the first pass leaves rounding.
        for _ in 0..2 {
            for before in &directions {
                let along = dot(&direction, before);
                for (x, y) in direction.iter_mut().zip(before) {
                    *x -= along * y;
                }
            }
        }
        let length = dot(&direction, &direction).sqrt();
        if length <= DEPENDENT * dot(row, row).sqrt() {
            break;
        }
        direction.iter_mut().for_each(|x| *x /= length);
        rests
            .par_iter_mut()
            .zip(basis.par_chunks(rank))
            .zip(weights)
            .for_each(|((rest, row), weight)| *rest -= weight * dot(row, &direction).powi(2));
        directions.push(direction);
    }
    polar(&rows, rank)
}

/// UWᵀ for the singular value decomposition UΣWᵀ of an `n × n` matrix.
fn polar(a: &[f64], n: usize) -> Vec<f64> {
    let (_, left, right) = dense::square_svd(a, n);
    let row = |at: usize| at * n..at * n + n;
    (0..n * n)
        .map(|at| dot(&left[row(at / n)], &right[row(at % n)]))
        .collect()
}

struct States<'a> {
    /// n × r, orthonormal.
    basis: &'a [f64],
    rank: usize,
    weights: &'a [f64],
    mu: f64,
}

/// The result of one rotation.
struct Pass {
    /// ‖S_k‖.
    norms: Vec<f64>,
    /// ⟨S_k, e_l⟩, r × r row-major (k, l).
    cross: Vec<f64>,
}

impl Pass {
    /// The polar factor of ⟨S_k / ‖S_k‖, e_l⟩.
    fn rotation(mut self) -> Vec<f64> {
        let rank = self.norms.len();
        for (row, norm) in self.cross.chunks_exact_mut(rank).zip(&self.norms) {
            let scale = if *norm > 0.0 { 1.0 / norm } else { 0.0 };
            row.iter_mut().for_each(|x| *x *= scale);
        }
        polar(&self.cross, rank)
    }
}

impl<'a> States<'a> {
    fn new(basis: &'a [f64], rank: usize, weights: &'a [f64], sparsity: f64) -> States<'a> {
        let total = sum::terms(weights.len(), |j| weights[j]);
        States {
            basis,
            rank,
            weights,
            mu: sparsity / total.sqrt(),
        }
    }

    /// The rotation at the end of the iteration, Σ_k ‖S_k‖ after each step, and whether the
    /// iteration converged.
    fn turned(&self, mut rotation: Vec<f64>) -> (Vec<f64>, Vec<f64>, bool) {
        let mut trace = Vec::new();
        let mut converged = false;
        while !converged && trace.len() < MAX_ITERATIONS {
            let pass = self.pass(&rotation);
            trace.push(pass.norms.iter().sum());
            let next = pass.rotation();
            let change = next.iter().zip(&rotation).map(|(a, b)| (a - b).abs());
            converged = change.fold(0.0, f64::max) <= TOLERANCE;
            rotation = next;
        }
        (rotation, trace, converged)
    }

    /// The value of column k at a state, shrunk by μ.
    #[inline(always)]
    fn value(&self, row: &[f64], turn: &[f64]) -> f64 {
        let z = dot(row, turn);
        if z.abs() > self.mu {
            z - self.mu.copysign(z)
        } else {
            0.0
        }
    }

    fn pass(&self, rotation: &[f64]) -> Pass {
        let rank = self.rank;
        let add = |row: &[f64], weight: f64, sums: &mut [f64]| {
            let (cross, squares) = sums.split_at_mut(rank * rank);
            let turns = rotation.chunks_exact(rank);
            for ((turn, cross), square) in turns.zip(cross.chunks_exact_mut(rank)).zip(squares) {
                let value = self.value(row, turn);
                if value != 0.0 {
                    *square += weight * value * value;
                    for (cross, e) in cross.iter_mut().zip(row) {
                        *cross += weight * value * e;
                    }
                }
            }
        };
        let mut cross = blocks(self.basis, rank, self.weights, rank * (rank + 1), add);
        let norms = cross.split_off(rank * rank).into_iter().map(|s| s.sqrt());
        Pass {
            norms: norms.collect(),
            cross,
        }
    }

    /// The sets of a rotation.
    fn sets(&self, mut rotation: Vec<f64>) -> Sets {
        let rank = self.rank;
        let sums = blocks(self.basis, rank, self.weights, rank, |row, weight, sums| {
            for (sum, turn) in sums.iter_mut().zip(rotation.chunks_exact(rank)) {
                *sum += weight * self.value(row, turn);
            }
        });
        // Columns point to where most of their weight is.
        for (turn, _) in rotation
            .chunks_exact_mut(rank)
            .zip(&sums)
            .filter(|(_, sum)| **sum < 0.0)
        {
            turn.iter_mut().for_each(|x| *x = -*x);
        }
        let turns = rotation.chunks_exact(rank);
        let largest = turns.map(|turn| {
            let values = self
                .basis
                .par_chunks(rank)
                .map(|row| dot(row, turn) - self.mu);
            values.reduce(|| f64::NEG_INFINITY, f64::max)
        });
        Sets {
            largest: largest.collect(),
            turns: rotation,
            mu: self.mu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::seed::restart_seed;
    use crate::math::testing::{close, on_threads};
    use proptest::prelude::*;

    // Sets {0, 1} and {2} of weight ½ each: e = (1, 1), (1, 1), (1, −1), a saddle of the iteration.
    // The indicators of norm one are √2 and z = (1 ± 1)/√2, so R = [[1, 1], [1, −1]]/√2; soft(√2) =
    // √2 − 0.99 and Σ ‖S_k‖ = 2 (√2 − 0.99) √½.
    #[test]
    fn two_sets_by_hand() {
        let e = [1.0, 1.0, 1.0, 1.0, 1.0, -1.0];
        let fit = fit(&e, 2, &[0.25, 0.25, 0.5]);
        assert!(fit.converged);
        let expected = if fit.affiliation[0] == 0 {
            [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
        } else {
            [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
        };
        close(&fit.membership, &expected, 1e-12);
        let own = fit.affiliation[0];
        assert_eq!(fit.affiliation, [own, own, 1 - own]);
        let all = 2.0 * (2f64.sqrt() - 0.99) * 0.5f64.sqrt();
        close(&fit.trace[fit.trace.len() - 1..], &[all], 1e-12);
    }

    // A state of no set: rows (√2, 0), (0, √2) of weight 2/5 and (½, ½), half of the larger value,
    // of weight 1/5, so that ⟨e₁, e₁⟩ = 4/5 + 1/20 and ⟨e₁, e₂⟩ = 1/20. By symmetry the rotation is
    // the one of G^{-1/2}: the eigenvalues of G are 9/10 and 8/10.
    #[test]
    fn a_state_between_the_sets() {
        let root = 2f64.sqrt();
        let e = [root, 0.0, 0.0, root, 0.5, 0.5];
        let fit = fit(&e, 2, &[0.4, 0.4, 0.2]);
        let (plus, minus) = (1.0 / 0.9f64.sqrt(), 1.0 / 0.8f64.sqrt());
        let own = (plus + minus) / root - 0.99;
        // z at the other set's state and between.
        let other = (plus - minus) / root;
        let between = plus / 2.0;
        assert!(other.abs() < 0.99 && between < 0.99 && own > 0.0);
        close(&fit.membership[4..], &[0.0, 0.0], 0.0);
        // With a lower threshold it is in both sets.
        let fit = sparse(&e, 2, &[0.4, 0.4, 0.2], 0.2);
        let half = (between - 0.2) / ((plus + minus) / root - 0.2);
        close(&fit.membership[4..], &[half.min(0.5), half.min(0.5)], 1e-12);
    }

    #[test]
    fn weights_are_repeated_states() {
        // A state of weight 2 counts like two equal states. The scale of all weights and of the
        // input does not matter.
        let (e, _) = blobs(40, 3, 5);
        let weights = vec![1.0; 40];
        let mut twice = e.clone();
        twice.extend_from_slice(&e[..3]);
        let mut heavy = weights.clone();
        heavy[0] = 2.0;
        let a = fit(&twice, 3, &[1.0; 41]);
        let b = fit(&e, 3, &heavy);
        close(&by_label(&a)[..120], &by_label(&b), 1e-9);
        let scaled: Vec<f64> = e.iter().map(|x| 7.0 * x).collect();
        let light: Vec<f64> = heavy.iter().map(|w| 0.01 * w).collect();
        close(&by_label(&fit(&scaled, 3, &light)), &by_label(&b), 1e-9);
    }

    /// Memberships with columns in the order in which labels appear.
    fn by_label(fit: &Sparse) -> Vec<f64> {
        let mut order: Vec<u32> = Vec::new();
        for label in &fit.affiliation {
            if !order.contains(label) {
                order.push(*label);
            }
        }
        let rows = fit.membership.chunks(order.len());
        rows.flat_map(|row| order.iter().map(|&k| row[k as usize]))
            .collect()
    }

    /// n states near one of `rank` corners of a skewed frame, and the corner of each.
    fn blobs(n: usize, rank: usize, seed: u64) -> (Vec<f64>, Vec<usize>) {
        let noise = |at: usize| (restart_seed(seed, at + 1) >> 11) as f64 / (1u64 << 53) as f64;
        let own: Vec<usize> = (0..n).map(|j| j * rank / n).collect();
        let e = (0..n * rank).map(|at| {
            let (k, l) = (own[at / rank], at % rank);
            let corner = noise(k * rank + l) - 0.5 + if k == l { 1.5 } else { 0.0 };
            corner + 0.05 * (noise(1000 + at) - 0.5)
        });
        (e.collect(), own)
    }

    #[test]
    fn blurred_corners_are_found() {
        for rank in [2, 5, 8] {
            let (e, own) = blobs(300, rank, 3);
            let fit = fit(&e, rank, &[1.0; 300]);
            assert!(fit.converged, "{rank}: {}", fit.trace.len());
            let label = |k: usize| fit.affiliation[(k * 300).div_ceil(rank)];
            for (own, found) in own.iter().zip(&fit.affiliation) {
                assert_eq!(*found, label(*own), "{rank}");
            }
        }
    }

    #[test]
    fn a_dependent_column_leaves_an_empty_set() {
        let e: Vec<f64> = (0..30).map(|at| f64::from(at / 15 * 2) - 0.5).collect();
        let fit = fit(&e, 3, &[1.0; 10]);
        assert!(fit.membership.iter().all(|s| s.is_finite()));
        assert!(fit.affiliation.iter().all(|k| *k < 3));
    }

    #[test]
    fn threads_change_no_bit() {
        let (e, _) = blobs(10_000, 4, 9);
        let weights: Vec<f64> = (0..10_000).map(|j| 1.0 + f64::from(j % 7)).collect();
        let run = |threads| on_threads(threads, || fit(&e, 4, &weights));
        assert_eq!(run(1), run(5));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_objective_never_falls_and_rows_are_shares(
            rank in 1usize..5,
            seed: u64,
            n in 6usize..40,
        ) {
            let draw = |at: usize| (restart_seed(seed, at + 1) >> 11) as f64 / (1u64 << 53) as f64;
            let e: Vec<f64> = (0..n * rank).map(|at| draw(at) - 0.3).collect();
            let weights: Vec<f64> = (0..n).map(|j| 0.1 + draw(5000 + j)).collect();
            let fit = fit(&e, rank, &weights);
            for pair in fit.trace.windows(2) {
                prop_assert!(pair[1] >= pair[0] - 1e-12, "{:?}", fit.trace);
            }
            for row in fit.membership.chunks(rank) {
                prop_assert!(row.iter().all(|x| *x >= 0.0) && row.iter().sum::<f64>() <= 1.0 + 1e-15);
            }
        }
    }
}
