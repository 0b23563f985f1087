//! Says where a pass runs. A pass is a kernel, a plain function on slices, called once per shard with the output rows that
//! the shard owns. No two shards share an output row, so nothing is merged and no sum depends on how many shards there are.

mod local;

pub use local::Local;

use crate::math::csr::Csr;

pub trait Runner: Sync {
    /// Calls `kernel(shard, rows)` for every shard, where `rows` are the shard's own rows of `out` (`n × width`, row-major).
    /// The shards cover all rows of `out` in ascending order.
    fn rows<T: Send>(
        &self,
        shards: &[Csr],
        width: usize,
        out: &mut [T],
        kernel: impl Fn(&Csr, &mut [T]) + Sync,
    );
}
