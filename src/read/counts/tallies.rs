//! The tallies of one task: one per partition and lag.

use crate::read::counts::tally::Tally;
use crate::read::counts::words::Words;
use crate::read::rows::stop::Stop;
use crate::read::rows::tag::Tag;
use crate::read::rows::time_rules::TimeCounts;

/// Pairs by `partition × n_lags + lag`: the count of each pair, or every pair with its weight.
pub(crate) struct Tallies {
    pub(crate) by_slot: Vec<Tally>,
    pub(crate) weights: Vec<Vec<(u64, f64)>>,
    /// Number of counted pairs, without those that have weights.
    pub(crate) accepted: u128,
    /// What the keys of time changed.
    pub(crate) time: TimeCounts,
    /// The tag that states carry; in a pair only the target keeps it.
    pub(crate) tag: Tag,
    /// The words that sources and targets of windows are.
    pub(crate) words: Option<Words>,
}

impl Tallies {
    pub(crate) fn new(tag: Tag, words: Option<Words>) -> Tallies {
        Tallies {
            by_slot: Vec::new(),
            weights: Vec::new(),
            accepted: 0,
            time: TimeCounts::default(),
            tag,
            words,
        }
    }

    /// A stop if words of symbols do not fit the bits of an id.
    pub(crate) fn check_words(&self) -> Result<(), Stop> {
        match &self.words {
            Some(words) if words.is_full => Err(Stop::WideWords),
            _ => Ok(()),
        }
    }

    /// The tallies of a partition, one per lag, and the total number of counted pairs.
    #[inline(always)]
    pub(crate) fn of(&mut self, partition: u32, n_lags: usize) -> (&mut [Tally], &mut u128) {
        let own = slots(&mut self.by_slot, partition, n_lags);
        (own, &mut self.accepted)
    }

    /// The weights of the pairs of a partition, one list per lag.
    pub(crate) fn weights_of(&mut self, partition: u32, n_lags: usize) -> &mut [Vec<(u64, f64)>] {
        slots(&mut self.weights, partition, n_lags)
    }
}

/// The slots of a partition, which are created if missing.
#[inline(always)]
pub(crate) fn slots<T: Default>(all: &mut Vec<T>, partition: u32, n_lags: usize) -> &mut [T] {
    let first = partition as usize * n_lags;
    if all.len() < first + n_lags {
        all.resize_with(first + n_lags, T::default);
    }
    &mut all[first..][..n_lags]
}
