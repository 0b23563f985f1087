//! What passes on other machines ask of a kind of evidence.

use crate::error::Result;
use crate::evidence::pass::kernel::Shard;
use crate::evidence::pass::packed::pack;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;

/// A kind of evidence, in shards. A matrix of counts is the first kind.
///
/// Evidence that is kept per group of trajectories is another type of the same kind, which
/// implements [`Resample`](crate::evidence::resample::Resample).
pub(crate) trait EvidenceKind: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The lists of shards that passes run over, such as the rows and the columns of a matrix.
    fn sides(&self) -> Vec<&dyn Side>;

    /// The evidence with every shard of more than about `entries` entries cut into smaller ones.
    fn split(self, entries: usize) -> Self;

    /// The evidence without the entries of the shards: what a fit needs if all passes run on other
    /// machines, which have the entries.
    fn outline(&self) -> Self;
}

/// All shards of one side of the evidence, without their type.
pub(crate) trait Side: Sync {
    /// The number of shards.
    fn n_shards(&self) -> usize;

    /// The number of entries of a shard.
    fn entries(&self, shard: usize) -> usize;

    /// The output rows of neighbouring shards.
    fn rows(&self, shards: Range<usize>) -> Range<usize>;

    /// The address of the first shard, by which a pass names its side.
    fn address(&self) -> *const ();

    /// Neighbouring shards, packed.
    ///
    /// # Errors
    /// If they cannot be packed, which is a bug.
    fn pack(&self, shards: Range<usize>) -> Result<Vec<u8>>;
}

impl<S: Shard> Side for Vec<S> {
    fn n_shards(&self) -> usize {
        self.len()
    }

    fn entries(&self, shard: usize) -> usize {
        self[shard].entries()
    }

    fn rows(&self, shards: Range<usize>) -> Range<usize> {
        let shards = &self[shards];
        let first = shards.first().map_or(0, |shard| shard.rows().start);
        first..shards.last().map_or(first, |shard| shard.rows().end)
    }

    fn address(&self) -> *const () {
        self.as_ptr().cast()
    }

    fn pack(&self, shards: Range<usize>) -> Result<Vec<u8>> {
        pack(&&self[shards])
    }
}

/// Neighbouring shards together, in at most `n` units of about equal numbers of entries.
pub(crate) fn units(side: &dyn Side, n: u64) -> Vec<Range<usize>> {
    let sizes: Vec<usize> = (0..side.n_shards()).map(|at| side.entries(at)).collect();
    let all: usize = sizes.iter().sum();
    let mut units: Vec<Range<usize>> = Vec::new();
    let (mut before, mut last) = (0, None);
    for (at, size) in sizes.into_iter().enumerate() {
        // The middle of a shard decides about its unit.
        let middle = 2 * before + size;
        let unit = middle as u64 * n / (2 * all as u64).max(1);
        match units.last_mut() {
            Some(own) if last == Some(unit) => own.end = at + 1,
            _ => units.push(at..at + 1),
        }
        (before, last) = (before + size, Some(unit));
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::csr::{Csr, Values};

    #[test]
    fn neighbours_are_units_of_about_one_size() {
        let shard = |nnz: usize| Csr {
            first_row: 0,
            offsets: vec![0, nnz],
            columns: vec![0; nnz],
            values: Values::Small(vec![1; nnz]),
        };
        let sizes = [2, 3, 9, 1, 1, 4];
        let shards: Vec<Csr> = sizes.into_iter().map(shard).collect();
        // The middles of 20: 1, 3.5, 9.5, 14.5, 15.5, 18.
        assert_eq!(units(&shards, 2), [0..3, 3..6]);
        assert_eq!(units(&shards, 4), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(units(&shards, 1), vec![Range { start: 0, end: 6 }]);
        assert_eq!(units(&Vec::<Csr>::new(), 5), Vec::<Range<usize>>::new());
    }
}
