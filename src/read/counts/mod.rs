//! Batches of rows → integer transition counts, one sparse matrix a partition and lag (coherence §3.1).
//!
//! In: batches with the columns of a `Layout` in its order. Out: `Counted`. Each stream of batches has a `Worker`; where one
//! stream ends inside a trajectory and the next goes on with it, `add_up` sews the two together, so that each pair is counted once.
//! Streams are first taken to be ordered by (partition, trajectory, time) as most files are; a row that breaks the order stops
//! the count with `Stop::Unsorted`. The caller then counts again and lets the rows be gathered by trajectory in memory, or sorts them.

pub mod carry;
pub mod counted;
pub mod follow;
pub mod lagged;
pub mod merge;
pub mod ordered;
pub mod renumber;
pub mod resample_groups;
pub mod stream;
pub mod sums;
pub mod tallies;
pub mod tally;
pub mod unordered;
pub mod weighted;
