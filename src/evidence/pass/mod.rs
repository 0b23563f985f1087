//! Says where a pass runs, and whether a piece of work must be done at all. A pass is a [`Kernel`], a plain function on slices, called once
//! per shard with the output rows that the shard owns. No two shards share an output row, so nothing is merged and no sum depends on how
//! many shards there are. A piece is anything that can be done alone and is worth to be kept: a fit, a restart, a resample.

pub mod kernel;
pub mod local;
pub mod resume;
pub mod timed;

use crate::evidence::counts::csr::Csr;
use crate::evidence::pass::kernel::Kernel;
use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;

pub trait Runner: Sync {
    /// Hears that a step of a fit begins.
    fn step(&self, _name: &'static str) {}

    /// Applies a kernel to every shard with the shard's own rows of `out` (`n × width`, row-major).
    /// The shards cover all rows of `out` in ascending order.
    fn rows<K: Kernel>(&self, shards: &[Csr], kernel: &K, out: &mut [K::Cell]);

    /// How many pieces it pays to do side by side.
    fn side_by_side(&self) -> usize {
        rayon::current_num_threads()
    }

    /// Does `work` so many times, side by side. Each of them may have passes.
    fn times<T: Send>(&self, times: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        (0..times).into_par_iter().map(|_| work()).collect()
    }

    /// What `work` comes to, unless it is known from a run before. It must depend on nothing but what all runs of a plan have in common,
    /// and do nothing but return. Among the pieces of this runner none has the same name; `work` gets a runner for pieces of its own.
    fn try_piece<T: Serialize + DeserializeOwned, E>(
        &self,
        _name: &str,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        work(self)
    }

    /// The same for what cannot fail.
    fn piece<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl FnOnce(&Self) -> T,
    ) -> T {
        let Ok(done) = self.try_piece(name, |runner| Ok::<_, Infallible>(work(runner)));
        done
    }
}
