//! Robust Perron cluster analysis, PCCA+: embeddings → soft memberships that are as crisp as the
//! embedding allows (Deuflhard & Weber 2005, Röblitz & Weber 2013), and with Schur vectors G-PCCA
//! (Reuter, Weber, Fackeldey, Röblitz & Garcia, *Generalized Markov state modeling method for
//! nonequilibrium biomolecular dynamics*, J. Chem. Theory Comput. 14, 2018).
//!
//! In: r coordinates per state (n × r, row-major) and n positive weights w. The constant function
//! is in the span of the columns. This is true for e = D_p^{-1/2} V with w = p and f = D_q^{-1/2} U
//! with w = q (σ₁ = 1), and for the Schur vectors of a transition matrix (`gpcca`). Out:
//! memberships χ = EA (n × r) that are not negative, with rows that sum to 1, and labels. The
//! crispness, the trace of S = D_c^{-1} χᵀDχ divided by r, has a local maximum. A crispness of 1
//! means disjoint sets, 1/r no sets at all.
//!
//! The start is the inner simplex algorithm: r states that are far from each other become the
//! corners of a simplex, and all states get their barycentric coordinates. `crispness` climbs from
//! there. Only a few extreme states can have memberships that become negative, so it climbs with
//! some of them. States to which the result gives a negative membership are added, until there are
//! none. The result is a maximum for all states, with few passes over them.
//!
//! *Both sides.* The rows of e followed by those of f, with the weights p/2 and q/2, give coherent
//! pairs, one column each.

use crate::math::matrix::{dot, first_largest};
use crate::math::{dense, sum};
use crate::methods::spectral::basis::{self, blocks};
use crate::methods::spectral::crispness;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use std::cmp::Ordering;

/// Rows per block in the search for the most negative memberships.
const BLOCK: usize = 4096;

/// The number of the lowest memberships of the blocks, per set, whose states join the climb.
const JOINING: usize = 8;

/// Memberships above minus this are zero up to rounding.
const FEASIBLE: f64 = 1e-10;

/// Memberships up to this are zero in the output.
const ZERO: f64 = 1e-13;

/// The largest number of climbs with more states; three to ten are usual.
const MAX_ROUNDS: usize = 200;

/// The largest number of random starts if a set vanished.
const OTHER_STARTS: usize = 20;

/// Memberships of PCCA+.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memberships {
    /// χ, n × r row-major; rows sum to 1. In noise a column may be 0: the set does not exist.
    pub membership: Vec<f64>,
    /// The set with the largest membership, the first one on ties.
    pub affiliation: Vec<u32>,
    /// trace(S) / r, from 1/r to 1.
    pub crispness: f64,
    /// Whether the memberships are a local maximum.
    pub converged: bool,
}

/// The crispest memberships in the span of the columns of `embedding` (n × `rank`, row-major). None
/// if the columns are dependent.
pub(crate) fn fit(embedding: &[f64], rank: usize, weights: &[f64]) -> Option<Memberships> {
    let n = weights.len();
    assert!(rank > 0, "a partition needs a set");
    assert_eq!(embedding.len(), n * rank, "one weight a state");
    let total = sum::terms(n, |j| weights[j]);
    let weights: Vec<f64> = weights.iter().map(|w| w / total).collect();
    let basis = with_constant(embedding, rank, &weights)?;
    let corners = inner_simplex(&basis, rank)?;
    let states = States {
        basis: &basis,
        rank,
    };

    let simplex = inverse_of(&basis, rank, &corners);
    let mut best = states.crispest(&corners, &simplex);
    // The trace may be largest where a set has vanished, mostly in noise. Then other starts may
    // keep all sets.
    let mut random = Pcg64::seed_from_u64(0);
    for _ in 0..OTHER_STARTS {
        if !best.has_empty_set(rank) {
            break;
        }
        let start: Vec<f64> = (0..rank * rank)
            .map(|_| random.random_range(-1.0..1.0))
            .collect();
        let other = states.crispest(&corners, &start);
        if !other.has_empty_set(rank) {
            best = other;
        }
    }
    let (membership, affiliation) = states.memberships(&best.a);
    Some(Memberships {
        membership,
        affiliation,
        crispness: crispness::trace(&best.a, rank) / rank as f64,
        converged: best.converged,
    })
}

/// The result of a climb.
struct Climbed {
    /// χ = XA.
    a: Vec<f64>,
    converged: bool,
}

impl Climbed {
    fn has_empty_set(&self, rank: usize) -> bool {
        self.a[..rank]
            .iter()
            .any(|weight| *weight <= crispness::EMPTY)
    }
}

/// The columns as an orthonormal basis X whose first function is 1. This is in the span unless more
/// than r singular values are 1. Then the r vectors of them may not span it, and it replaces the
/// most similar function.
fn with_constant(e: &[f64], rank: usize, weights: &[f64]) -> Option<Vec<f64>> {
    let orthonormal = basis::orthonormal(e, rank, weights);
    let ones = blocks(&orthonormal, rank, weights, rank, |row, weight, sums| {
        sums.iter_mut().zip(row).for_each(|(s, x)| *s += weight * x);
    });
    let length = dot(&ones, &ones).sqrt();
    let squares = blocks(&orthonormal, rank, weights, 1, |row, weight, sum| {
        sum[0] += weight * dot(row, row);
    });
    if squares[0] < rank as f64 - 0.5 {
        return None;
    }
    // A reflection H = I − 2wwᵀ maps the coordinates of 1 to a multiple of the first unit vector.
    // Its other columns are orthogonal to 1, even if 1 is not in the span.
    let sign = 1f64.copysign(ones[0]);
    let mut w = ones.clone();
    w[0] += sign * length.max(f64::MIN_POSITIVE);
    let scale = dot(&w, &w).sqrt();
    w.iter_mut().for_each(|x| *x /= scale);
    // The columns of H, with the sign that makes the first function 1 and not −1, are the rows by
    // which those of the basis are multiplied.
    let h: Vec<f64> = (0..rank * rank)
        .map(|at| {
            let (j, i) = (at / rank, at % rank);
            let entry = f64::from(i == j) - 2.0 * w[i] * w[j];
            if j == 0 { -sign * entry } else { entry }
        })
        .collect();
    let mut x = basis::multiply(&orthonormal, &h, rank);
    x.par_chunks_mut(rank).for_each(|row| row[0] = 1.0);
    Some(x)
}

/// r states: the one farthest from the origin, then always the one farthest from the plane through
/// those before, the first one on ties.
fn inner_simplex(x: &[f64], rank: usize) -> Option<Vec<usize>> {
    let farthest = |distances: &[f64]| {
        let all = distances.par_iter().enumerate();
        all.reduce_with(|a, b| {
            let order = a.1.total_cmp(b.1).then(b.0.cmp(&a.0));
            if order == Ordering::Less { b } else { a }
        })
        .map(|(l, _)| l)
    };
    let mut distances: Vec<f64> = x.par_chunks(rank).map(|row| dot(row, row)).collect();
    let first = farthest(&distances)?;
    let mut corners = vec![first];
    let origin = x[first * rank..][..rank].to_vec();
    let from_origin = |l: usize| -> Vec<f64> {
        let row = &x[l * rank..][..rank];
        row.iter().zip(&origin).map(|(x, o)| x - o).collect()
    };
    distances
        .par_iter_mut()
        .enumerate()
        .for_each(|(l, distance)| {
            let row = from_origin(l);
            *distance = dot(&row, &row);
        });
    let mut directions: Vec<Vec<f64>> = Vec::new();
    while corners.len() < rank {
        let next = farthest(&distances)?;
        let row = from_origin(next);
        let mut direction = row.clone();
        for _ in 0..2 {
            for before in &directions {
                let along = dot(&direction, before);
                direction
                    .iter_mut()
                    .zip(before)
                    .for_each(|(x, y)| *x -= along * y);
            }
        }
        let length = dot(&direction, &direction).sqrt();
        if length <= 1e-9 * dot(&row, &row).sqrt() {
            return None;
        }
        direction.iter_mut().for_each(|x| *x /= length);
        distances
            .par_iter_mut()
            .enumerate()
            .for_each(|(l, distance)| *distance -= dot(&from_origin(l), &direction).powi(2));
        directions.push(direction);
        corners.push(next);
    }
    Some(corners)
}

/// The inverse of the rows of the corners.
fn inverse_of(x: &[f64], rank: usize, corners: &[usize]) -> Vec<f64> {
    let rows: Vec<f64> = corners
        .iter()
        .flat_map(|&l| &x[l * rank..][..rank])
        .copied()
        .collect();
    let (values, left, right) = dense::square_svd(&rows, rank);
    (0..rank * rank)
        .map(|at| {
            let (u, w) = (&left[at % rank * rank..], &right[at / rank * rank..]);
            let terms = values.iter().zip(w.iter().zip(u));
            terms.map(|(value, (w, u))| w * u / value).sum()
        })
        .collect()
}

/// A membership, its state and its set.
type Low = (f64, usize, usize);

struct States<'a> {
    /// X, n × r; the first column is 1.
    basis: &'a [f64],
    rank: usize,
}

impl States<'_> {
    /// For every set the smallest values of Σ_j X_lj A_ji over `j`, one per block of states.
    fn lowest(&self, a: &[f64], coordinates: std::ops::Range<usize>) -> Vec<Low> {
        let rank = self.rank;
        let parts: Vec<Vec<Low>> = self
            .basis
            .par_chunks(BLOCK * rank)
            .enumerate()
            .map(|(block, rows)| {
                let mut lowest: Vec<Low> = (0..rank).map(|i| (f64::INFINITY, 0, i)).collect();
                let mut values = vec![0.0; rank];
                for (l, row) in rows.chunks_exact(rank).enumerate() {
                    values.fill(0.0);
                    for j in coordinates.clone() {
                        let line = &a[j * rank..][..rank];
                        values
                            .iter_mut()
                            .zip(line)
                            .for_each(|(v, a)| *v += row[j] * a);
                    }
                    for (low, value) in lowest.iter_mut().zip(&values) {
                        if *value < low.0 {
                            (low.0, low.1) = (*value, block * BLOCK + l);
                        }
                    }
                }
                lowest
            })
            .collect();
        parts.into_iter().flatten().collect()
    }

    /// Computes the first row and the first column of A so that no membership is negative, each is
    /// 0 at some state, and they sum to 1. Also returns the states with a 0.
    fn filled(&self, a: &[f64]) -> (Vec<f64>, Vec<Low>) {
        let rank = self.rank;
        let mut a = a.to_vec();
        for line in a.chunks_exact_mut(rank).skip(1) {
            line[0] = -line[1..].iter().sum::<f64>();
        }
        let lowest = self.lowest(&a, 1..rank);
        for (i, weight) in a[..rank].iter_mut().enumerate() {
            let own = lowest.iter().filter(|low| low.2 == i);
            *weight = -own.fold(f64::INFINITY, |least, low| least.min(low.0));
        }
        // All memberships of a single set are 1, although the minimum over no terms is not 0.
        let sum: f64 = a[..rank].iter().sum();
        if rank == 1 || sum <= 0.0 {
            a.fill(0.0);
            a[..rank].fill(1.0 / rank as f64);
        } else {
            a.iter_mut().for_each(|x| *x /= sum);
        }
        (a, lowest)
    }

    fn below_zero(&self, a: &[f64]) -> Vec<Low> {
        let mut below = self.lowest(a, 0..self.rank);
        below.retain(|low| low.0 < -FEASIBLE);
        below
    }

    /// Adds the states of the lowest values of every set.
    fn join(&self, chosen: &mut Vec<usize>, mut lowest: Vec<Low>) {
        lowest.sort_by(|a, b| a.2.cmp(&b.2).then(a.0.total_cmp(&b.0)).then(a.1.cmp(&b.1)));
        for of_set in lowest.chunk_by(|a, b| a.2 == b.2) {
            chosen.extend(of_set.iter().take(JOINING).map(|low| low.1));
        }
        chosen.sort_unstable();
        chosen.dedup();
    }

    fn climb(&self, chosen: &[usize], a: &mut [f64]) -> bool {
        let rank = self.rank;
        let rows = chosen.iter().flat_map(|&l| &self.basis[l * rank..][..rank]);
        let rows: Vec<f64> = rows.copied().collect();
        crispness::climb(&rows, rank, a, 200 + 20 * rank * rank)
    }

    /// Climbs from `start`, filled, with the states `chosen` and the states that become negative.
    fn crispest(&self, chosen: &[usize], start: &[f64]) -> Climbed {
        let rank = self.rank;
        let mut chosen = chosen.to_vec();
        let (mut a, lowest) = self.filled(start);
        self.join(&mut chosen, lowest);
        for _ in 0..MAX_ROUNDS {
            let mut higher = a.clone();
            let is_maximum = self.climb(&chosen, &mut higher);
            let below = self.below_zero(&higher);
            let (feasible, _) = self.filled(&higher);
            if below.is_empty() {
                return Climbed {
                    a: feasible,
                    converged: is_maximum,
                };
            }
            if crispness::trace(&feasible, rank) > crispness::trace(&a, rank) {
                a = feasible;
            }
            self.join(&mut chosen, below);
        }
        Climbed {
            a,
            converged: false,
        }
    }

    /// χ without rounding errors, and labels.
    fn memberships(&self, a: &[f64]) -> (Vec<f64>, Vec<u32>) {
        let rank = self.rank;
        let mut membership = vec![0.0; self.basis.len()];
        let mut affiliation = vec![0; self.basis.len() / rank];
        membership
            .par_chunks_mut(rank)
            .zip(self.basis.par_chunks(rank))
            .zip(&mut affiliation)
            .for_each(|((out, row), label)| {
                for (x, line) in row.iter().zip(a.chunks_exact(rank)) {
                    out.iter_mut().zip(line).for_each(|(out, a)| *out += x * a);
                }
                out.iter_mut()
                    .for_each(|x| *x = if *x <= ZERO { 0.0 } else { *x });
                let sum: f64 = out.iter().sum();
                out.iter_mut().for_each(|x| *x /= sum);
                *label = first_largest(out.iter().copied()) as u32;
            });
        (membership, affiliation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::seed::restart_seed;
    use crate::math::testing::on_threads;
    use crate::methods::spectral::crispness;
    use crate::methods::spectral::crispness::EMPTY;
    use proptest::prelude::*;

    fn draw(seed: u64, at: usize) -> f64 {
        (restart_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), at + 1) >> 11) as f64
            / (1u64 << 53) as f64
    }

    /// n states with memberships of `rank` sets, most of them close to one, times a fixed matrix.
    fn blurred(n: usize, rank: usize, seed: u64) -> Vec<f64> {
        let mut e = Vec::with_capacity(n * rank);
        for l in 0..n {
            let mut shares: Vec<f64> = (0..rank)
                .map(|i| draw(seed, l * rank + i).powi(3) + f64::from(l % rank == i))
                .collect();
            let sum: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|s| *s /= sum);
            for j in 0..rank {
                let mixed = shares.iter().enumerate();
                let entry = |i: usize| draw(seed + 1, i * rank + j) + f64::from(i == j);
                e.push(mixed.map(|(i, s)| s * entry(i)).sum());
            }
        }
        e
    }

    // Values −1, −1, 1, 2 of the second function with weights ¼: χ₂ = (x + 1)/3 = 0, 0, ⅔, 1 are
    // the only two sets. D_c = (7, 5)/12; ⟨χ₁, χ₁⟩ = (1 + 1 + 1/9)/4 = 19/36, ⟨χ₂, χ₂⟩ = (4/9 +
    // 1)/4 = 13/36: trace = 19/21 + 13/15.
    #[test]
    fn two_sets_by_hand() {
        let e = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 2.0];
        let fit = fit(&e, 2, &[1.0; 4]).expect("independent columns");
        assert!(fit.converged);
        let trace = 19.0 / 21.0 + 13.0 / 15.0;
        assert!((fit.crispness - trace / 2.0).abs() < 1e-14);
        let two = fit.affiliation[3] as usize;
        for (row, expected) in fit.membership.chunks(2).zip([0.0, 0.0, 2.0 / 3.0, 1.0]) {
            assert!(
                (row[two] - expected).abs() < 1e-14
                    && (row[1 - two] + expected - 1.0).abs() < 1e-14
            );
        }
        let (one, two) = (1 - two as u32, two as u32);
        assert_eq!(fit.affiliation, [one, one, two, two]);
    }

    // Three groups of equal rows are three corners: the sets are disjoint for any basis and any
    // weights.
    #[test]
    fn disjoint_sets_are_found_exactly() {
        let corners = [[0.3, 1.0, -2.0], [0.3, 0.0, 1.0], [0.3, -4.0, 0.5]];
        let e: Vec<f64> = (0..30).flat_map(|l| corners[l / 3 % 3]).collect();
        let weights: Vec<f64> = (0..30).map(|l| 1.0 + f64::from(l % 4)).collect();
        let fit = fit(&e, 3, &weights).expect("independent columns");
        assert!(fit.converged && (fit.crispness - 1.0).abs() < 1e-12);
        for (l, row) in fit.membership.chunks(3).enumerate() {
            let own = fit.affiliation[l / 3 % 3 * 3];
            assert_eq!(fit.affiliation[l], own);
            assert!((row[own as usize] - 1.0).abs() < 1e-12);
        }
    }

    // Four singular values are 1 and their vectors are functions of four groups. Two of them are
    // given, orthogonal to 1 except for one half.
    #[test]
    fn a_constant_that_is_not_in_the_span() {
        let half = 0.5f64.sqrt();
        let e: Vec<f64> = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
            .iter()
            .flat_map(|[x, y]| [half * (1.0 + x), *y])
            .collect();
        let fit = fit(&e, 2, &[1.0; 4]).expect("independent columns");
        // The other function is y.
        assert!((fit.crispness - 1.0).abs() < 1e-14);
        assert_eq!(fit.affiliation[0], fit.affiliation[2]);
        assert_ne!(fit.affiliation[0], fit.affiliation[1]);
    }

    #[test]
    fn one_set_and_too_few_functions() {
        let fit_one = fit(&[2.0; 5], 1, &[1.0; 5]).expect("a constant");
        assert_eq!(
            (fit_one.crispness, &fit_one.membership),
            (1.0, &vec![1.0; 5])
        );
        let twice: Vec<f64> = (0..8).flat_map(|l| [1.0, f64::from(l), 3.0]).collect();
        assert_eq!(fit(&twice, 3, &[1.0; 8]), None);
    }

    #[test]
    fn a_basis_does_not_matter() {
        // The memberships are those of the span, and so equal in another basis of it.
        let e = blurred(500, 4, 3);
        let turned: Vec<f64> = e
            .chunks(4)
            .flat_map(|x| [x[1] - x[3], 2.0 * x[0], x[2] + x[0], x[3] + 0.1 * x[1]])
            .collect();
        let weights: Vec<f64> = (0..500).map(|l| 0.2 + draw(8, l)).collect();
        let (a, b) = (
            fit(&e, 4, &weights).unwrap(),
            fit(&turned, 4, &weights).unwrap(),
        );
        assert!(a.converged && (a.crispness - b.crispness).abs() < 1e-10);
        assert_eq!(a.affiliation, b.affiliation);
        for (a, b) in a.membership.iter().zip(&b.membership) {
            assert!((a - b).abs() < 1e-9);
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let e = blurred(20_000, 5, 1);
        let run = |threads| on_threads(threads, || fit(&e, 5, &vec![1.0; 20_000]));
        let one = run(1);
        assert_eq!(one, run(5));
        assert!(one.is_some_and(|fit| fit.converged));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_way_leads_up(rank in 2usize..6, n in 12usize..80, seed: u64) {
            let e = blurred(n, rank, seed >> 1);
            let weights: Vec<f64> = (0..n).map(|l| 0.1 + draw(seed, 9_000 + l)).collect();
            let fit = fit(&e, rank, &weights).expect("independent columns");
            prop_assert!(fit.converged);
            prop_assert!(fit.crispness <= 1.0 + 1e-12);
            for row in fit.membership.chunks(rank) {
                prop_assert!(row.iter().all(|x| *x >= 0.0) && (row.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            }
            // trace(S) from the memberships, of these and of others nearby.
            let trace = |chi: &[f64]| -> f64 {
                (0..rank)
                    .map(|i| {
                        let own = chi.iter().skip(i).step_by(rank).zip(&weights);
                        let (one, two) = own.fold((0.0, 0.0), |(one, two), (x, w)| (one + w * x, two + w * x * x));
                        // A set that has vanished adds nothing.
                        if one > EMPTY { two / one } else { 0.0 }
                    })
                    .sum()
            };
            let reached = trace(&fit.membership);
            prop_assert!((reached / rank as f64 - fit.crispness).abs() < 1e-9);
            let basis = with_constant(&e, rank, &weights.iter().map(|w| w / weights.iter().sum::<f64>()).collect::<Vec<_>>()).expect("a basis");
            let states = States { basis: &basis, rank };
            for other in 0..20 {
                let random: Vec<f64> = (0..rank * rank).map(|at| draw(seed, 20_000 + other * 100 + at) - 0.5).collect();
                let (a, _) = states.filled(&random);
                let moved: Vec<f64> = fit
                    .membership
                    .chunks(rank)
                    .zip(basis.chunks(rank))
                    .flat_map(|(chi, x)| {
                        let a = &a;
                        (0..rank).map(move |i| {
                            let other: f64 = (0..rank).map(|j| x[j] * a[j * rank + i]).sum();
                            chi[i] + 1e-5 * (other - chi[i])
                        })
                    })
                    .collect();
                prop_assert!(trace(&moved) <= reached + 1e-9);
            }
        }
    }

    #[test]
    fn random_starts_end_no_higher() {
        for (seed, rank) in [(1, 3), (2, 5), (3, 7), (4, 8)] {
            let (e, weights) = (blurred(300, rank, seed), [1.0 / 300.0; 300]);
            let fit = fit(&e, rank, &weights).expect("independent columns");
            let basis = with_constant(&e, rank, &weights).expect("a basis");
            let states = States {
                basis: &basis,
                rank,
            };
            let all: Vec<usize> = (0..300).collect();
            for start in 0..8 {
                let random: Vec<f64> = (0..rank * rank)
                    .map(|at| draw(100 * seed + start, at) - 0.5)
                    .collect();
                let (mut a, _) = states.filled(&random);
                assert!(states.climb(&all, &mut a));
                assert!(crispness::trace(&a, rank) / rank as f64 <= fit.crispness + 1e-10);
            }
        }
    }
}
