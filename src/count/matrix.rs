//! Sorted pairs of one partition and lag → a count matrix over the states that occur in it.

use super::tally::unpack;
use hashbrown::HashMap;

/// Exact counts, or sums of weights.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Counts(Vec<u64>),
    Weights(Vec<f64>),
}

/// The counts of one partition and lag as a coordinate list sorted by (source, target), over dense numbers of the states that
/// have counts: sources and targets are numbered apart (coherence §3.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    pub partition: usize,
    pub lag: usize,
    /// The state id of each source and of each target, ascending.
    pub source_states: Vec<u32>,
    pub target_states: Vec<u32>,
    /// One entry a non-zero.
    pub sources: Vec<u32>,
    pub targets: Vec<u32>,
    pub values: Values,
    /// For each given partition, the label of each source; `None` where some source has no label, named by its state id.
    pub given: Vec<Result<Vec<u32>, u32>>,
}

impl Counts {
    pub fn new(partition: usize, lag: usize, pairs: &[u64], values: Values) -> Counts {
        let mut sources = Vec::with_capacity(pairs.len());
        let mut source_states: Vec<u32> = Vec::new();
        for &pair in pairs {
            let (source, _) = unpack(pair);
            if source_states.last() != Some(&source) {
                source_states.push(source);
            }
            sources.push(source_states.len() as u32 - 1);
        }
        let (target_states, targets) = dense(pairs.iter().map(|&p| unpack(p).1));
        Counts {
            partition,
            lag,
            source_states,
            target_states,
            sources,
            targets,
            values,
            given: Vec::new(),
        }
    }

    pub fn nnz(&self) -> usize {
        self.sources.len()
    }
}

/// The distinct ids in ascending order, and the place of each id among them.
fn dense(ids: impl Iterator<Item = u32> + Clone) -> (Vec<u32>, Vec<u32>) {
    let (n, top) = ids
        .clone()
        .fold((0usize, 0u32), |(n, top), id| (n + 1, top.max(id)));
    if top as usize <= 4 * n + 1024 {
        // A table of all ids is small beside the pairs.
        let mut place = vec![u32::MAX; top as usize + 1];
        ids.clone().for_each(|id| place[id as usize] = 0);
        let mut distinct = Vec::new();
        for (id, place) in place.iter_mut().enumerate().filter(|(_, p)| **p == 0) {
            *place = distinct.len() as u32;
            distinct.push(id as u32);
        }
        let places = ids.map(|id| place[id as usize]).collect();
        return (distinct, places);
    }
    let mut distinct: Vec<u32> = ids.clone().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let place: HashMap<u32, u32> = distinct
        .iter()
        .enumerate()
        .map(|(at, &id)| (id, at as u32))
        .collect();
    let places = ids.map(|id| place[&id]).collect();
    (distinct, places)
}

#[cfg(test)]
mod tests {
    use super::super::tally::pack;
    use super::*;

    #[test]
    fn states_without_counts_get_no_number() {
        // Sources 3 and 9; targets 5, 7 and one that is too large for a table.
        for far in [8, 4_000_000_000] {
            let pairs = [pack(3, 5), pack(3, far), pack(9, 5), pack(9, 7)];
            let c = Counts::new(0, 0, &pairs, Values::Counts(vec![1, 2, 3, 4]));
            assert_eq!((c.source_states, c.sources), (vec![3, 9], vec![0, 0, 1, 1]));
            assert_eq!(
                (c.target_states, c.targets),
                (vec![5, 7, far], vec![0, 2, 0, 1])
            );
        }
    }
}
