//! The result of counting.

use crate::evidence::counts::matrix::CountMatrix;
use crate::read::rows::states::StateTable;
use crate::read::rows::stop::Dropped;
use arrow::array::ArrayRef;
use serde::{Deserialize, Serialize};

/// Sums of counts are kept in f64 after counting: exact up to here.
pub const LARGEST_TOTAL: u64 = 1 << 53;

/// All transition counts of a run.
#[derive(Serialize, Deserialize)]
pub struct Counted {
    /// The partition keys of partition 0, 1, … as columns, ascending; no columns without `partition_by`, and then one partition.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub partitions: Vec<ArrayRef>,
    pub n_partitions: usize,
    pub sources: StateTable,
    pub targets: StateTable,
    /// One matrix a partition and lag, ordered by partition, then lag; empty ones included.
    pub counts: Vec<CountMatrix>,
    /// For each given partition, its labels in ascending order: label k is set k.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub labels: Vec<ArrayRef>,
    pub rows: u64,
    pub dropped: Dropped,
}
