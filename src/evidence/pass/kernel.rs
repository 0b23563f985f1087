//! Kernels: what a pass does with one shard, as a value that can be sent to where the shard is.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;

/// A part of some evidence that owns a range of output rows.
pub(crate) trait Shard: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Sums over all shards of one side, which the rows of a pass must agree with.
    type Totals<'a>: Copy + Sync;

    /// The output rows that the shard owns.
    fn rows(&self) -> Range<usize>;

    /// The number of entries, to which the time of a pass is proportional.
    fn entries(&self) -> usize;
}

/// All shards of one side of the evidence, in ascending order of their rows.
#[derive(Debug)]
pub(crate) struct Sharded<'a, S: Shard> {
    /// The shards.
    pub shards: &'a [S],
    /// Sums over all of them.
    pub totals: S::Totals<'a>,
}

impl<S: Shard> Clone for Sharded<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Shard> Copy for Sharded<'_, S> {}

/// A plain function of a shard and of vectors that all shards share. It computes the output rows
/// that the shard owns.
pub(crate) trait Kernel: Serialize + DeserializeOwned + Sync {
    /// The evidence that the kernel reads.
    type Shard: Shard;

    /// The type of a cell of an output row.
    type Cell: Clone + Default + Send + Serialize + DeserializeOwned;

    /// The name under which other machines know the kernel. It is unique.
    const NAME: &'static str;

    /// Whether the kernel changes the rows that it is given. If not, it sets every cell and reads
    /// none.
    const IN_PLACE: bool = false;

    /// Cells per row.
    fn width(&self) -> usize {
        1
    }

    /// Computes the shard's own rows, `n_rows × width` and row-major.
    fn apply(&self, shard: &Self::Shard, rows: &mut [Self::Cell]);

    /// Checks the rows of a whole pass against the totals of the evidence.
    ///
    /// # Errors
    /// What is not conserved.
    fn conserved(
        &self,
        totals: &<Self::Shard as Shard>::Totals<'_>,
        rows: &[Self::Cell],
    ) -> Conserved;
}

/// Nothing, or what is not conserved.
pub(crate) type Conserved = Result<(), String>;

/// Checks every cell.
///
/// # Errors
/// The index of the first cell that is not valid.
pub(crate) fn each<T>(rows: &[T], is_valid: impl Fn(&T) -> bool) -> Conserved {
    match rows.iter().position(|cell| !is_valid(cell)) {
        None => Ok(()),
        Some(at) => Err(format!("cell {at} is not a valid result")),
    }
}
