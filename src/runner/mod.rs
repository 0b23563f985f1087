//! Says where a pass runs. A pass is a kernel, a plain function on slices, called once per shard with the output rows that
//! the shard owns. No two shards share an output row, so nothing is merged and no sum depends on how many shards there are.

mod local;
mod timed;

pub use local::Local;
pub use timed::Timed;

use crate::math::csr::Csr;

pub trait Runner: Sync {
    /// Hears that a step of a fit begins.
    fn step(&self, _name: &'static str) {}

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
