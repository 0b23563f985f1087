//! The exact moments of a known hidden Markov model, its spectral models of low rank, and the bound
//! of their distances (Kulesza, Rao, Singh, *Low-rank spectral learning*, (4), (5) and Theorem 1).
//!
//! O = QR with orthonormal columns of Q, so P₂₁ = OTD_πOᵀ = Q(RTD_πRᵀ)Qᵀ, and all numbers follow
//! from m × m matrices, however many symbols there are.

use crate::assess::certificates::Certificate;
use crate::math::dense;
use crate::math::matrix::{dot, product};
use crate::methods::hmm::given::GivenProbabilities;
use crate::methods::hmm::model::{Hidden, HmmModel};

/// Singular values below this share of the largest one are zero.
const CUT: f64 = 1e-12;

/// The largest relative error by rounding of a short sum.
const ROUNDING: f64 = 1e-10;

/// The smallest number of states of Theorem 1.
const STATES: usize = 4;

/// The moments of a known model.
pub(crate) struct ExactMoments {
    /// The model with all of its symbols.
    reference: GivenProbabilities,
    /// R: m × m.
    root: Vec<f64>,
    /// The singular values of P₂₁, descending, with the left and right vectors of RTD_πRᵀ.
    values: Vec<f64>,
    left: Vec<f64>,
    right: Vec<f64>,
    /// The singular values of O, descending: m values.
    of_emission: Vec<f64>,
    /// The singular values of T, descending: m values.
    of_transition: Vec<f64>,
}

impl ExactMoments {
    pub(crate) fn new(reference: &GivenProbabilities) -> ExactMoments {
        let reference = reference.whole();
        let hidden = &reference.hidden;
        let m = hidden.states();
        // With fewer symbols than states, rows of zeros change no singular value.
        let mut emission = hidden.emission.clone();
        emission.resize(emission.len().max(m * m), 0.0);
        let (of_emission, vectors) = dense::right_svd(&emission, m);
        // R = ΣVᵀ.
        let root = (0..m * m).map(|at| of_emission[at / m] * vectors[at % m * m + at / m]);
        let root: Vec<f64> = root.collect();
        let (of_transition, ..) = dense::square_svd(&hidden.transition, m);
        let core = product(
            &product(&root, &scaled(hidden), m),
            &transposed(&root, m),
            m,
        );
        let (values, left, right) = dense::square_svd(&core, m);
        ExactMoments {
            root,
            values,
            left,
            right,
            of_emission,
            of_transition,
            reference,
        }
    }

    fn states(&self) -> usize {
        self.reference.hidden.states()
    }

    /// The number of singular values of P₂₁ that are not zero.
    pub(crate) fn rank(&self) -> usize {
        rank(&self.values)
    }

    /// The model with all of its symbols.
    pub(crate) fn reference(&self) -> &GivenProbabilities {
        &self.reference
    }

    /// σ_min(O).
    fn smallest(&self) -> f64 {
        self.of_emission.last().copied().unwrap_or(0.0)
    }

    /// The right side of (11): √m (σ_min⁻¹(O) √m)^{t+3} σ_{k+1}. None if O has no full rank.
    pub(crate) fn bound(&self, k: usize, length: usize) -> Option<f64> {
        let m = self.states();
        let omitted = self.values.get(k).copied().unwrap_or(0.0);
        let root = (m as f64).sqrt();
        let bound = root * (root / self.smallest()).powi(length as i32 + 3) * omitted;
        (rank(&self.of_emission) == m && bound.is_finite()).then_some(bound)
    }

    /// The spectral model of a rank from these moments (5), with plain operators.
    pub(crate) fn model(&self, k: usize) -> HmmModel {
        let hidden = &self.reference.hidden;
        let m = self.states();
        let column = |of: &[f64], l: usize| -> Vec<f64> { (0..m).map(|i| of[i * m + l]).collect() };
        // UᵀO: k × m, and the columns of TD_πOᵀ(UᵀP₂₁)⁺: m × k.
        let left: Vec<f64> = (0..k).flat_map(|l| column(&self.left, l)).collect();
        let future = product(&left, &self.root, m);
        let pairs = scaled(hidden);
        let past: Vec<Vec<f64>> = (0..k)
            .map(|l| {
                let seen = by_columns(&self.root, &column(&self.right, l));
                let rows = pairs.chunks_exact(m);
                rows.map(|row| dot(row, &seen) / self.values[l]).collect()
            })
            .collect();
        let first = hidden.initial.clone();
        let seen = |v: &[f64]| -> Vec<f64> { future.chunks_exact(m).map(|u| dot(u, v)).collect() };
        // P₁ᵀ(UᵀP₂₁)⁺.
        let of_start: Vec<f64> = self
            .root
            .chunks_exact(m)
            .map(|row| dot(row, &first))
            .collect();
        let last = (0..k).map(|l| dot(&of_start, &column(&self.right, l)) / self.values[l]);
        let moved = product(&future, &hidden.transition, m);
        let n = hidden.symbols();
        let mut operators = Vec::with_capacity(n * k * k);
        for shown in hidden.emission.chunks_exact(m) {
            for to in moved.chunks_exact(m) {
                for from in &past {
                    let terms = to.iter().zip(shown).zip(from);
                    operators.push(terms.map(|((t, o), w)| t * o * w).sum::<f64>());
                }
            }
        }
        HmmModel {
            rank: k,
            n_symbols: n,
            operators,
            initial: seen(&first),
            last: last.collect(),
            unigram: vec![1.0 / n as f64; n],
            class_of: (0..n as u32).collect(),
            share: vec![1.0; n],
            pool: None,
            hidden: None,
        }
    }

    /// The bound (11) of the `distances` of models of these moments, and its conditions: π > 0,
    /// rank O = m and Tπ = π, with m ≥ 4. Besides, rank T = m, which full ranks need, and the
    /// remark σ_min(O) > √m/n, with which the bound grows more slowly than the number of
    /// sequences. A condition that does not hold is no claim, and without the conditions the bound
    /// is none.
    pub(crate) fn certificates(&self, distances: &[MomentDistance]) -> Vec<Certificate> {
        let hidden = &self.reference.hidden;
        let (m, n) = (self.states(), hidden.symbols());
        let least = hidden.initial.iter().copied().fold(1.0, f64::min);
        let rows = hidden.transition.chunks_exact(m).zip(&hidden.initial);
        let gap = rows.map(|(row, p)| (dot(row, &hidden.initial) - p).abs());
        let gap: f64 = gap.sum();
        let ranks = [rank(&self.of_emission), rank(&self.of_transition)];
        let wanted = m as f64;
        let equal = |name, rank: usize| Certificate::equal(name, rank as f64, wanted, 0.0);
        let root = wanted.sqrt() / n as f64;
        let conditions = [
            Certificate::at_most("positive_start", CUT, least, 0.0),
            equal("rank_of_emission", ranks[0]),
            Certificate::at_most("stationary_start", gap, 0.0, ROUNDING),
        ];
        let are_met = m >= STATES && conditions.iter().all(|c| c.holds == Some(true));
        let others = [
            equal("rank_of_transition", ranks[1]),
            Certificate::at_most("separated_states", root, self.smallest(), 0.0),
        ];
        let claims = conditions.into_iter().chain(others);
        let claims = claims.map(|claim| {
            let holds = claim.holds == Some(true);
            claim.if_made(holds)
        });
        let mut all: Vec<Certificate> = claims.collect();
        // Full rank omits nothing.
        let low = distances.iter().filter(|own| own.rank < self.rank());
        let bounded = low.filter_map(|own| {
            let bound = self.bound(own.rank, own.length)?;
            // An operator is as large as 1/σ_k, and an entry of it has that error.
            let amplified = ROUNDING / self.values[own.rank - 1].min(1.0);
            let claim = Certificate::at_most("theorem_1", own.distance, bound, amplified);
            Some(claim.if_made(are_met))
        });
        // The claim with the least room.
        all.extend(bounded.min_by(|a, b| {
            let room = |c: &Certificate| (c.slack() + c.tolerance) / (c.right + c.tolerance);
            room(a).total_cmp(&room(b))
        }));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// The distance of a model of low rank at one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MomentDistance {
    /// The rank of the model, k.
    pub rank: usize,
    /// The number of symbols of a sequence, t.
    pub length: usize,
    /// Σ |P̂ − P|.
    pub distance: f64,
}

/// TD_π: m × m.
fn scaled(hidden: &Hidden) -> Vec<f64> {
    let m = hidden.states();
    let entries = hidden.transition.iter().enumerate();
    entries.map(|(at, t)| t * hidden.initial[at % m]).collect()
}

fn transposed(a: &[f64], m: usize) -> Vec<f64> {
    (0..m * m).map(|at| a[at % m * m + at / m]).collect()
}

/// Aᵀv of an m × m matrix.
fn by_columns(a: &[f64], v: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; v.len()];
    for (row, v) in a.chunks_exact(v.len()).zip(v) {
        out.iter_mut().zip(row).for_each(|(out, a)| *out += a * v);
    }
    out
}

/// The number of singular values that are not zero.
fn rank(values: &[f64]) -> usize {
    let largest = values.first().copied().unwrap_or(0.0);
    values
        .iter()
        .filter(|value| **value > CUT * largest)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::hmm_distances::{DistanceLengths, distances};

    fn known(initial: &[f64], transition: &[f64], emission: &[f64]) -> ExactMoments {
        ExactMoments::new(&GivenProbabilities {
            hidden: Hidden {
                initial: initial.to_vec(),
                transition: transition.to_vec(),
                emission: emission.to_vec(),
            },
            others: Vec::new(),
        })
    }

    /// The distances of the model of a rank at the lengths 1, 2, …
    fn distances_of(moments: &ExactMoments, rank: usize, longest: usize) -> Vec<f64> {
        let lengths = DistanceLengths {
            longest,
            samples: 2,
            seed: 0,
        };
        let found = distances(&moments.model(rank), moments.reference(), lengths);
        found.iter().map(|own| own.distance).collect()
    }

    #[track_caller]
    fn assert_close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a:e} {b:e}");
    }

    /// Figure 2 of the paper.
    fn two_states(epsilon: f64) -> ExactMoments {
        let swap = [0.0, 1.0, 1.0, 0.0];
        known(&[1.0 - epsilon, epsilon], &swap, &[1.0, 0.0, 0.0, 1.0])
    }

    // (8): σ = (1 − ε, ε). The distance is 1 at rank 1, and 0 at rank 2.
    #[test]
    fn example_8_needs_a_small_singular_value() {
        let moments = two_states(0.1);
        assert_close(moments.values[0], 0.9, 1e-15);
        assert_close(moments.values[1], 0.1, 1e-15);
        assert_eq!(moments.rank(), 2);
        for (one, two) in distances_of(&moments, 1, 6)
            .into_iter()
            .zip(distances_of(&moments, 2, 6))
        {
            assert_close(one, 1.0, 1e-14);
            assert_close(two, 0.0, 1e-14);
        }
        // The start is not stationary, and there are two states: the bound √2 √2⁴ · 0.1 is none.
        assert_close(
            moments.bound(1, 1).expect("a bound"),
            0.1 * 2f64.powf(2.5),
            1e-14,
        );
        assert_eq!(moments.bound(2, 1), Some(0.0));
        let far = MomentDistance {
            rank: 1,
            length: 1,
            distance: 1.0,
        };
        let claims = moments.certificates(&[far]);
        let holds = |name: &str| claims.iter().find(|c| c.name == name).map(|c| c.holds);
        assert_eq!(holds("theorem_1"), Some(None));
        assert_eq!(holds("stationary_start"), Some(None));
        assert_eq!(holds("positive_start"), Some(Some(true)));
        // √2/2 < 1.
        assert_eq!(holds("separated_states"), Some(Some(true)));
    }

    // (9) with ε = .1: rank 2 leaves out the dummy state of δ = .01, but keeps it if δ = .2.
    #[test]
    fn example_9_has_a_dummy_state_that_masks_others() {
        let transition = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let unit = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        for (delta, expected) in [(0.01, 0.01), (0.2, 0.8)] {
            let moments = known(&[0.9 - delta, 0.1, delta], &transition, &unit);
            for distance in &distances_of(&moments, 2, 6)[1..] {
                assert_close(*distance, expected, 1e-13);
            }
            assert!(distances_of(&moments, 3, 6).iter().all(|own| *own < 1e-13));
        }
    }

    // (10): rank 2 gives 4/3 and 8/3 at t = 4 and 5 as ε → 0, and rank 3 is exact.
    #[test]
    fn example_10_has_a_badly_conditioned_observation_matrix() {
        let cycle = |epsilon: f64| {
            let transition = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
            let emission = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0 - epsilon, 0.0, 0.0, epsilon];
            known(&[1.0 / 3.0; 3], &transition, &emission)
        };
        let two = distances_of(&cycle(1e-5), 2, 5);
        assert_close(two[3], 4.0 / 3.0, 2e-3);
        assert_close(two[4], 8.0 / 3.0, 2e-3);
        assert!(
            distances_of(&cycle(0.01), 3, 5)
                .iter()
                .all(|own| *own < 1e-9)
        );
    }

    /// Four states that stay with probability .775 and show their own symbol with probability .85.
    fn four_states(initial: &[f64]) -> ExactMoments {
        let mixed = |own: f64| -> Vec<f64> {
            let entry = |at: usize| {
                if at / 4 == at % 4 {
                    own
                } else {
                    (1.0 - own) / 3.0
                }
            };
            (0..16).map(entry).collect()
        };
        known(initial, &mixed(0.775), &mixed(0.85))
    }

    // T = .7 I + .075 J and O = .8 I + .05 J have the eigenvalues 1 and .7, 1 and .8. So P₂₁ has
    // the singular values 1/4 and .8² · .7/4 = .112 three times. Rank 1 is the independent model,
    // off by 0 at t = 1 and by 4 · ¾ σ₂ + 12 · ¼ σ₂ = 6 σ₂ at t = 2. The bounds are 2 · 2.5⁴ σ₂
    // and more.
    #[test]
    fn theorem_1_bounds_the_distance() {
        let moments = four_states(&[0.25; 4]);
        assert_close(moments.values[0], 0.25, 1e-15);
        for value in &moments.values[1..] {
            assert_close(*value, 0.112, 1e-15);
        }
        let one = distances_of(&moments, 1, 2);
        assert_close(one[0], 0.0, 1e-14);
        assert_close(one[1], 6.0 * 0.112, 1e-14);
        let bound = |length| moments.bound(1, length).expect("a bound");
        assert_close(bound(1), 2.0 * 2.5f64.powi(4) * 0.112, 1e-11);
        assert_close(bound(2), 2.0 * 2.5f64.powi(5) * 0.112, 1e-11);
        let ranks = (1..=4).flat_map(|rank| {
            let found = distances_of(&moments, rank, 4).into_iter().zip(1..);
            found.map(move |(distance, length)| MomentDistance {
                rank,
                length,
                distance,
            })
        });
        let mut found: Vec<MomentDistance> = ranks.collect();
        let claims = moments.certificates(&found);
        let names: Vec<&str> = claims.iter().map(|c| &*c.name).collect();
        let expected = [
            "positive_start",
            "rank_of_emission",
            "rank_of_transition",
            "separated_states",
            "stationary_start",
            "theorem_1",
        ];
        assert_eq!(names, expected);
        assert!(claims.iter().all(|c| c.holds == Some(true)), "{claims:?}");
        // A distance above the bound breaks the claim.
        found[0].distance = 2.0 * bound(1);
        let broken = moments.certificates(&found);
        assert_eq!(broken[5].holds, Some(false));
    }

    #[test]
    fn theorem_1_needs_a_stationary_start_and_distinct_states() {
        let far = MomentDistance {
            rank: 1,
            length: 1,
            distance: 1e9,
        };
        let holds = |moments: &ExactMoments| -> Vec<Option<bool>> {
            moments
                .certificates(&[far])
                .iter()
                .map(|c| c.holds)
                .collect()
        };
        let yes = Some(true);
        let other_start = four_states(&[0.4, 0.2, 0.2, 0.2]);
        assert_eq!(holds(&other_start), [yes, yes, yes, yes, None, None]);
        // Two states show the same symbols, so there is no bound.
        let emission = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
        let uniform = [0.25; 16];
        let alike = known(&[0.25; 4], &uniform, &emission);
        assert_eq!(alike.bound(1, 1), None);
        assert_eq!(holds(&alike), [yes, None, None, None, yes]);
    }
}
