//! The result of counting.

use crate::evidence::counts::matrix::CountMatrix;
use crate::read::rows::layout::Layout;
use crate::read::rows::states::StateTable;
use crate::read::rows::stop::Dropped;
use crate::read::rows::time_rules::TimeCounts;
use arrow::array::ArrayRef;
use serde::{Deserialize, Serialize};

/// Largest total of integer counts. Sums are kept in f64 after counting, which is exact up to this
/// value.
pub(crate) const LARGEST_TOTAL: u64 = 1 << 53;

/// All transition counts of a run.
#[derive(Serialize, Deserialize)]
pub struct Counted {
    /// Partition keys of partition 0, 1, … as columns, ascending. Empty without `partition_by`;
    /// then there is one partition.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub partitions: Vec<ArrayRef>,
    /// Number of partitions, at least 1.
    pub n_partitions: usize,
    /// All source states.
    pub sources: StateTable,
    /// All target states.
    pub targets: StateTable,
    /// One matrix per partition and lag, ordered by partition, then lag, including empty ones.
    pub counts: Vec<CountMatrix>,
    /// For each given partition, its labels in ascending order. The index of a label is the number
    /// of its set.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub labels: Vec<ArrayRef>,
    /// Rows that were read.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub dropped: Dropped,
    /// What the keys of time changed.
    pub time: TimeCounts,
}

impl Counted {
    /// The number of pairs or windows by lag, see [`pairs_by_lag`].
    pub(crate) fn pairs(&self, layout: &Layout) -> Option<Vec<u64>> {
        let counts = self.counts.iter();
        pairs_by_lag(layout, counts.map(|counts| (counts.lag, counts.accepted())))
    }
}

/// The number of pairs or windows by lag, from the lags and sums of matrices. None for weights,
/// whose sums do not tell it.
pub(crate) fn pairs_by_lag(
    layout: &Layout,
    sums: impl Iterator<Item = (usize, u128)>,
) -> Option<Vec<u64>> {
    if layout.is_weighted() {
        return None;
    }
    let mut pairs = vec![0u64; layout.n_lags()];
    for (lag, sum) in sums {
        pairs[lag] = pairs[lag].saturating_add(u64::try_from(sum).unwrap_or(u64::MAX));
    }
    Some(pairs)
}
