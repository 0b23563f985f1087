//! Passes on the threads of this process.

use crate::evidence::counts::csr::Csr;
use crate::evidence::pass::Runner;
use crate::evidence::pass::kernel::Kernel;
use crate::memory;
use rayon::prelude::*;

/// Runs every pass on rayon's current pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Runner for Local {
    fn rows<K: Kernel>(&self, shards: &[Csr], kernel: &K, out: &mut [K::Cell]) {
        let width = kernel.width();
        let mut rest = out;
        let mut work = Vec::with_capacity(shards.len());
        for shard in shards {
            let (own, later) = rest.split_at_mut(shard.n_rows() * width);
            work.push((shard, own));
            rest = later;
        }
        assert!(rest.is_empty(), "the shards must cover every output row");
        work.into_par_iter().for_each(|(shard, own)| {
            memory::look();
            kernel.apply(shard, own);
        });
    }
}
