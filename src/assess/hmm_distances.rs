//! The L1 variational distance of a hidden Markov model from a known one, Σ |P̂r(x₁, …, x_t) −
//! Pr(x₁, …, x_t)| over all sequences of t symbols (Kulesza, Rao, Singh, *Low-rank spectral
//! learning*, (2)).
//!
//! While there are few sequences, the sum is over all of them. For longer ones it is estimated:
//! Σ |P̂ − P| = ΣP̂ − ΣP + 2 Σ (P − P̂)⁺, of which ΣP̂ = b_∞ᵀ(Σ_x B_x)ᵗb₁ and ΣP = 1 are known. The
//! last sum is the mean of (P − P̂)⁺/Q over sequences that are drawn from Q, a mixture of P and of
//! the uniform distribution, so that sequences with P = 0 > P̂ are drawn, too.
//!
//! The symbols that no row shows are one symbol more, which P̂ never shows.

use crate::math::matrix::dot;
use crate::math::seed::restart_seed;
use crate::methods::hmm::given::{GivenHmm, GivenProbabilities};
use crate::methods::hmm::model::HmmModel;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The largest number of sequences of a sum.
const SEQUENCES: usize = 1_000_000;

/// The share of the uniform distribution among drawn sequences.
const UNIFORM: f64 = 0.1;

/// The distance at one length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distance {
    /// The number of symbols of a sequence, t.
    pub length: usize,
    /// Σ |P̂ − P|.
    pub distance: f64,
    /// The standard error, if sequences were drawn.
    pub error: Option<f64>,
    /// The number of drawn sequences; 0 for a sum over all sequences.
    pub samples: u64,
}

/// Which distances are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistanceLengths {
    /// The largest length.
    pub longest: usize,
    /// Sequences that are drawn.
    pub samples: usize,
    /// The seed of the drawn sequences.
    pub seed: u64,
}

/// The largest length of which all sequences of `n` symbols are summed up, at most `longest`.
pub(crate) fn exact_length(n: usize, longest: usize) -> usize {
    let all = |t: usize| n.checked_pow(t as u32).filter(|all| *all <= SEQUENCES);
    (1..=longest).take_while(|&t| all(t).is_some()).count()
}

/// The bytes of the sequences of `n` symbols that are drawn: a list of one number per length.
pub(crate) fn drawn_bytes(keys: &GivenHmm, n: usize) -> u64 {
    match keys.length - exact_length(n, keys.length) {
        0 => 0,
        drawn => keys.samples as u64 * (size_of::<Vec<f64>>() + 8 * drawn) as u64,
    }
}

/// The distances of a model at the lengths 1, 2, …, `longest`. Symbol x of the model is symbol x of
/// the reference.
pub(crate) fn distances(
    model: &HmmModel,
    reference: &GivenProbabilities,
    lengths: DistanceLengths,
) -> Vec<Distance> {
    let sides = Sides::new(model, reference);
    let exact = exact_length(model.n_symbols, lengths.longest);
    let sums = sides.sums(exact).into_iter().zip(1..);
    let sums = sums.map(|(distance, length)| Distance {
        length,
        distance,
        error: None,
        samples: 0,
    });
    let mut all: Vec<Distance> = sums.collect();
    if exact < lengths.longest {
        all.extend(sides.estimates(exact, lengths));
    }
    all
}

/// A model and a reference.
struct Sides<'a> {
    model: &'a HmmModel,
    reference: &'a GivenProbabilities,
    /// b_∞ᵀB_x of each symbol: n × k.
    rows: Vec<f64>,
    /// Emission probabilities of all symbols that no row shows: m values.
    others: Vec<f64>,
}

impl<'a> Sides<'a> {
    fn new(model: &'a HmmModel, reference: &'a GivenProbabilities) -> Sides<'a> {
        let k = model.rank;
        let mut rows = vec![0.0; model.n_symbols * k];
        for (x, out) in rows.chunks_exact_mut(k).enumerate() {
            let operator = model.operator(model.class_of[x]);
            for (row, last) in operator.chunks_exact(k).zip(&model.last) {
                let scale = last * model.share[x];
                out.iter_mut()
                    .zip(row)
                    .for_each(|(out, b)| *out += scale * b);
            }
        }
        Sides {
            model,
            reference,
            rows,
            others: reference.rest(),
        }
    }

    /// Emission probabilities of a symbol.
    fn emission(&self, x: usize) -> &[f64] {
        let m = self.reference.hidden.states();
        self.reference
            .hidden
            .emission
            .get(x * m..(x + 1) * m)
            .unwrap_or(&self.others)
    }

    /// B_x a.
    fn step(&self, x: usize, a: &[f64]) -> Vec<f64> {
        let share = self.model.share[x];
        let rows = self
            .model
            .operator(self.model.class_of[x])
            .chunks_exact(self.model.rank);
        rows.map(|row| share * dot(row, a)).collect()
    }

    /// A_x b = T (o_x ∘ b).
    fn move_on(&self, x: usize, b: &[f64]) -> Vec<f64> {
        let shown: Vec<f64> = b.iter().zip(self.emission(x)).map(|(b, o)| b * o).collect();
        let rows = self.reference.hidden.transition.chunks_exact(b.len());
        rows.map(|row| dot(row, &shown)).collect()
    }

    /// Σ |P̂ − P| over all sequences of 1, 2, …, `longest` symbols.
    fn sums(&self, longest: usize) -> Vec<f64> {
        if longest == 0 {
            return Vec::new();
        }
        let (a, b) = (&self.model.initial, &self.reference.hidden.initial);
        let first = (0..self.model.n_symbols).into_par_iter().map(|x| {
            let mut sums = vec![0.0; longest];
            self.add(x, 0, (a, b), &mut sums);
            sums
        });
        let mut sums = self.shown_by_reference(longest);
        for own in first.collect::<Vec<_>>() {
            sums.iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
        }
        sums
    }

    /// Adds |P̂ − P| of the sequence that ends with `x`, and of those that it begins.
    fn add(&self, x: usize, level: usize, (a, b): (&[f64], &[f64]), sums: &mut [f64]) {
        let predicted = dot(&self.rows[x * a.len()..][..a.len()], a);
        sums[level] += (predicted - dot(self.emission(x), b)).abs();
        if level + 1 == sums.len() {
            return;
        }
        let (a, b) = (self.step(x, a), self.move_on(x, b));
        for next in 0..self.model.n_symbols {
            self.add(next, level + 1, (&a, &b), sums);
        }
    }

    /// By length, the probability that a sequence of the reference has a symbol that no row shows.
    fn shown_by_reference(&self, longest: usize) -> Vec<f64> {
        let m = self.reference.hidden.states();
        let mut known = vec![0.0; m];
        for row in self.reference.hidden.emission.chunks_exact(m) {
            known.iter_mut().zip(row).for_each(|(sum, o)| *sum += o);
        }
        let (mut state, mut sum) = (self.reference.hidden.initial.clone(), 0.0);
        let of_length = (0..longest).map(|_| {
            sum += dot(&self.others, &state);
            let shown: Vec<f64> = state.iter().zip(&known).map(|(b, o)| b * o).collect();
            let rows = self.reference.hidden.transition.chunks_exact(m);
            state = rows.map(|row| dot(row, &shown)).collect();
            sum
        });
        of_length.collect()
    }

    /// ΣP̂ over all sequences of 1, 2, …, `longest` symbols.
    fn totals(&self, longest: usize) -> Vec<f64> {
        let k = self.model.rank;
        let sum = self.model.sum_of_operators();
        let mut state = self.model.initial.clone();
        let of_length = (0..longest).map(|_| {
            state = sum.chunks_exact(k).map(|row| dot(row, &state)).collect();
            dot(&self.model.last, &state)
        });
        of_length.collect()
    }

    /// Estimates at the lengths beyond `exact`.
    fn estimates(&self, exact: usize, lengths: DistanceLengths) -> Vec<Distance> {
        let DistanceLengths {
            longest,
            samples,
            seed,
        } = lengths;
        let walk = Walk::new(self);
        let drawn = (0..samples).into_par_iter();
        let drawn: Vec<Vec<f64>> = drawn
            .map(|sample| {
                let mut random = Pcg64::seed_from_u64(restart_seed(seed, sample));
                self.terms(exact, &walk.draw(longest, &mut random))
            })
            .collect();
        let totals = self.totals(longest);
        let n = samples as f64;
        let of_length = |length: usize| {
            let terms = || drawn.iter().map(|own| own[length - 1 - exact]);
            let mean = terms().sum::<f64>() / n;
            let squares: f64 = terms().map(|term| (term - mean).powi(2)).sum();
            Distance {
                length,
                distance: totals[length - 1] - 1.0 + 2.0 * mean,
                error: Some(2.0 * (squares / (n - 1.0) / n).sqrt()),
                samples: samples as u64,
            }
        };
        (exact + 1..=longest).map(of_length).collect()
    }

    /// (P − P̂)⁺/Q of every beginning of a sequence of more than `exact` symbols. P, P̂ and the
    /// uniform distribution are divided by Q at every step, so that none becomes too small.
    fn terms(&self, exact: usize, symbols: &[usize]) -> Vec<f64> {
        let n = self.model.n_symbols;
        let all = self.alphabet() as f64;
        let (mut a, mut b) = (
            self.model.initial.clone(),
            self.reference.hidden.initial.clone(),
        );
        let mut uniform = 1.0;
        let mut terms = Vec::with_capacity(symbols.len() - exact);
        for (at, &x) in symbols.iter().enumerate() {
            let p = dot(self.emission(x), &b);
            // Predictions end with the first symbol that no row shows.
            let predicted = if x < n {
                dot(&self.rows[x * a.len()..][..a.len()], &a)
            } else {
                0.0
            };
            uniform /= all;
            let q = (1.0 - UNIFORM) * p + UNIFORM * uniform;
            if at >= exact {
                terms.push(f64::max(p - predicted, 0.0) / q);
            }
            b = self.move_on(x, &b);
            a = if x < n {
                self.step(x, &a)
            } else {
                vec![0.0; a.len()]
            };
            uniform /= q;
            a.iter_mut().chain(&mut b).for_each(|x| *x /= q);
        }
        terms
    }

    /// The number of symbols; those that no row shows are one.
    fn alphabet(&self) -> usize {
        let is_shown = self.others.iter().any(|o| *o > 0.0);
        self.model.n_symbols + usize::from(is_shown)
    }
}

/// Draws sequences of the reference and of the uniform distribution.
struct Walk {
    /// Sums of π.
    start: Vec<f64>,
    /// Sums of each column of T.
    next: Vec<Vec<f64>>,
    /// Sums of each column of O.
    shown: Vec<Vec<f64>>,
    /// The number of symbols.
    alphabet: usize,
}

impl Walk {
    fn new(sides: &Sides<'_>) -> Walk {
        let hidden = &sides.reference.hidden;
        let m = hidden.states();
        let alphabet = sides.alphabet();
        let shown = (0..m).map(|j| sums((0..alphabet).map(|x| sides.emission(x)[j])));
        let next = (0..m).map(|j| sums((0..m).map(|i| hidden.transition[i * m + j])));
        Walk {
            start: sums(hidden.initial.iter().copied()),
            next: next.collect(),
            shown: shown.collect(),
            alphabet,
        }
    }

    fn draw(&self, length: usize, random: &mut Pcg64) -> Vec<usize> {
        if random.random::<f64>() < UNIFORM {
            return (0..length)
                .map(|_| random.random_range(0..self.alphabet))
                .collect();
        }
        let mut state = pick(&self.start, random);
        let symbols = (0..length).map(|_| {
            let symbol = pick(&self.shown[state], random);
            state = pick(&self.next[state], random);
            symbol
        });
        symbols.collect()
    }
}

/// Sums of the first entries.
fn sums(entries: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |x| {
        sum += x;
        sum
    };
    entries.map(add).collect()
}

/// An index with the probability of its entry. Entries of 0 are never picked.
fn pick(sums: &[f64], random: &mut Pcg64) -> usize {
    let all = sums.last().copied().unwrap_or(0.0);
    let at = random.random::<f64>() * all;
    let last = sums.partition_point(|sum| *sum < all);
    sums.partition_point(|sum| *sum <= at).min(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::hmm::model::Hidden;

    /// Independent rows: one state that shows the symbols with these probabilities.
    fn independent(shares: &[f64]) -> Hidden {
        Hidden {
            initial: vec![1.0],
            transition: vec![1.0],
            emission: shares.to_vec(),
        }
    }

    fn known(hidden: Hidden) -> GivenProbabilities {
        GivenProbabilities {
            hidden,
            others: Vec::new(),
        }
    }

    fn lengths(longest: usize) -> DistanceLengths {
        DistanceLengths {
            longest,
            samples: 4000,
            seed: 5,
        }
    }

    #[track_caller]
    fn assert_near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-13, "{a} {b}");
    }

    // P = (1/2, 1/2) and P̂ = (3/4, 1/4): 1/4 + 1/4, then 5/16 + 2 · 1/16 + 3/16.
    #[test]
    fn distances_are_sums_over_all_sequences() {
        let model = independent(&[0.75, 0.25]).model(vec![0.5; 2]);
        let reference = known(independent(&[0.5, 0.5]));
        let found = distances(&model, &reference, lengths(2));
        assert_near(found[0].distance, 0.5);
        assert_near(found[1].distance, 0.625);
        assert!(
            found
                .iter()
                .all(|own| own.error.is_none() && own.samples == 0)
        );
        assert_eq!(
            found.iter().map(|own| own.length).collect::<Vec<_>>(),
            [1, 2]
        );
        let itself = independent(&[0.5, 0.5]).model(vec![0.5; 2]);
        let found = distances(&itself, &reference, lengths(5));
        assert!(found.iter().all(|own| own.distance < 1e-15));
    }

    // P = (1/2, 1/4) and 1/4 for other symbols, P̂ = (2/3, 1/3): 1/6 + 1/12 + 1/4; for two symbols
    // 7/36 + 2 · 7/72 + 7/144, and 1 − 9/16 for other symbols.
    #[test]
    fn symbols_that_no_row_shows_are_never_predicted() {
        let model = independent(&[2.0 / 3.0, 1.0 / 3.0]).model(vec![0.5; 2]);
        let reference = GivenProbabilities {
            hidden: independent(&[0.5, 0.25]),
            others: vec![0.125, 0.125],
        };
        let found = distances(&model, &reference, lengths(2));
        assert_near(found[0].distance, 0.5);
        assert_near(found[1].distance, 0.875);
        let sides = Sides::new(&model, &reference);
        assert_estimated(&sides, &found);
    }

    /// Asserts that estimates are within four standard errors of sums.
    #[track_caller]
    fn assert_estimated(sides: &Sides<'_>, sums: &[Distance]) {
        let estimates = sides.estimates(0, lengths(sums.len()));
        for (found, sum) in estimates.iter().zip(sums) {
            let error = found.error.expect("an error");
            assert!(error > 0.0 && error < 0.1, "{error}");
            let off = (found.distance - sum.distance).abs();
            assert!(off < 4.0 * error, "{off} {error}");
            assert_eq!((found.length, found.samples), (sum.length, 4000));
        }
        // The same seed draws the same sequences, with any number of threads.
        assert_eq!(estimates, sides.estimates(0, lengths(sums.len())));
    }

    /// Two states that follow each other. `noise` is the share of the other symbol.
    fn swap(start: f64, noise: f64) -> Hidden {
        Hidden {
            initial: vec![1.0 - start, start],
            transition: vec![0.0, 1.0, 1.0, 0.0],
            emission: vec![1.0 - noise, noise, noise, 1.0 - noise],
        }
    }

    #[test]
    fn drawn_sequences_estimate_the_sums() {
        let model = swap(0.4, 0.2).model(vec![0.5; 2]);
        let reference = known(swap(0.1, 0.1));
        let sums = distances(&model, &reference, lengths(6));
        assert_estimated(&Sides::new(&model, &reference), &sums);
        // A model that predicts what the reference never shows, and negative probabilities.
        let mut model = swap(0.4, 0.2).model(vec![0.5; 2]);
        model.initial = vec![1.2, -0.2];
        let reference = known(swap(0.1, 0.0));
        let sums = distances(&model, &reference, lengths(6));
        assert_estimated(&Sides::new(&model, &reference), &sums);
    }

    #[test]
    fn sequences_are_drawn_where_they_are_too_many() {
        assert_eq!(exact_length(30, 9), 4);
        assert_eq!(exact_length(10, 9), 6);
        assert_eq!(exact_length(1, 9), 9);
        assert_eq!(exact_length(2_000_000, 9), 0);
        let sound = r#"{"transition": {"sql": "a"}, "emission": {"sql": "b"}}"#;
        let mut keys: GivenHmm = serde_json::from_str(sound).expect("keys");
        (keys.length, keys.samples) = (9, 1000);
        for (n, lengths) in [(30, 5), (10, 3), (usize::MAX, 9)] {
            assert_eq!(drawn_bytes(&keys, n), 1000 * (24 + 8 * lengths));
        }
        assert_eq!(drawn_bytes(&keys, 1), 0);
        keys.length = 0;
        assert_eq!(drawn_bytes(&keys, 30), 0);
        let shares = vec![1.0 / 1200.0; 1200];
        let model = independent(&shares).model(shares.clone());
        let found = distances(&model, &known(independent(&shares)), lengths(3));
        let samples: Vec<u64> = found.iter().map(|own| own.samples).collect();
        assert_eq!(samples, [0, 4000, 4000]);
        assert!(found.iter().all(|own| own.distance.abs() < 1e-12));
    }
}
