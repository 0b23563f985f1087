//! Symbols of trajectories in the order of time, for methods that read every row.

pub mod triples;

use crate::math::scale;
use serde::{Deserialize, Serialize};

/// Sequences of symbols. A sequence is a run of rows of one trajectory in which each row follows
/// the one before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Symbols {
    /// The number of symbols, n.
    pub n_symbols: usize,
    /// The symbols of all sequences, one sequence after another. A symbol that a model does not
    /// have is `u32::MAX`.
    pub symbols: Vec<u32>,
    /// Sequence s is `offsets[s]..offsets[s + 1]`; the first offset is 0.
    pub offsets: Vec<usize>,
    /// One positive weight per sequence, times 2^-`exponent`. Empty if each sequence weighs 1.
    pub weights: Vec<f64>,
    /// log₂ of the unit of the weights. 0 without weights.
    pub exponent: i32,
}

impl Symbols {
    /// No sequence yet.
    pub fn new(n_symbols: usize) -> Symbols {
        Symbols {
            n_symbols,
            symbols: Vec::new(),
            offsets: vec![0],
            weights: Vec::new(),
            exponent: 0,
        }
    }

    /// The number of sequences.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The symbols of a sequence.
    pub(crate) fn get(&self, sequence: usize) -> &[u32] {
        &self.symbols[self.offsets[sequence]..self.offsets[sequence + 1]]
    }

    /// Every sequence in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|s| self.get(s))
    }

    /// Adds a sequence.
    pub fn push(&mut self, symbols: &[u32]) {
        self.symbols.extend_from_slice(symbols);
        self.offsets.push(self.symbols.len());
    }

    /// Adds a sequence, perhaps with a weight. All sequences have weights, or none has.
    pub(crate) fn push_weighted(&mut self, symbols: &[u32], weight: Option<f64>) {
        self.push(symbols);
        self.weights.extend(weight);
    }

    /// The weight of a sequence, in the unit of the weights.
    pub(crate) fn weight(&self, sequence: usize) -> f64 {
        self.weights.get(sequence).copied().unwrap_or(1.0)
    }

    /// Σ weight · symbols, in the unit of the weights.
    pub(crate) fn weighted_symbols(&self) -> f64 {
        let of = |s: usize| self.weight(s) * (self.offsets[s + 1] - self.offsets[s]) as f64;
        (0..self.len()).map(of).sum()
    }

    /// The same sequences with weights in the power of two that is nearest to their mean, so that
    /// their scale changes no bit of a fit.
    pub(crate) fn in_own_unit(mut self) -> Symbols {
        let n = self.weights.len() as u64;
        let exponent = scale::nearest_to_mean(self.weights.iter().copied(), n);
        let all = self.weights.iter_mut();
        all.for_each(|weight| *weight = scale::times_power(*weight, -exponent));
        self.exponent += exponent;
        self
    }

    /// Neighbouring sequences together, in at most `n` parts of about equal numbers of symbols.
    pub(crate) fn parts(&self, n: usize) -> Vec<std::ops::Range<usize>> {
        let enough = self.symbols.len().div_ceil(n.max(1)).max(1);
        let (mut parts, mut first) = (Vec::new(), 0);
        for s in 0..self.len() {
            if self.offsets[s + 1] - self.offsets[first] >= enough || s + 1 == self.len() {
                parts.push(first..s + 1);
                first = s + 1;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_about_equal_numbers_of_symbols() {
        let mut sequences = Symbols::new(3);
        for symbols in [&[0, 1][..], &[2], &[], &[1, 1, 1], &[0]] {
            sequences.push(symbols);
        }
        assert_eq!((sequences.len(), sequences.get(3)), (5, &[1, 1, 1][..]));
        assert_eq!(sequences.parts(2), [0..4, 4..5]);
        assert_eq!(
            sequences.parts(1),
            vec![std::ops::Range { start: 0, end: 5 }]
        );
        assert_eq!(
            Symbols::new(3).parts(4),
            Vec::<std::ops::Range<usize>>::new()
        );
    }
}
