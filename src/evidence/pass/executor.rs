//! Where passes run.

use crate::error::{Error, Result};
use crate::evidence::pass::kernel::{Conserved, Kernel, Shard, Sharded};
use crate::evidence::pass::packed::{pack, unpack};
use crate::memory;
use rayon::prelude::*;
use std::ops::Range;

/// Runs passes and pieces of work.
pub(crate) trait Executor: Sync {
    /// Applies a kernel to every shard.
    fn run(&self, pass: &mut dyn Pass);

    /// The number of pieces of work that are worth running at a time.
    fn concurrency(&self) -> usize {
        rayon::current_num_threads()
    }

    /// Calls `work` with every number below `times`, at the same time. Each call may run passes.
    fn times(&self, times: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..times).into_par_iter().for_each(work);
    }
}

/// A kernel, the shards that it is applied to, and its output rows, without their types.
pub(crate) trait Pass {
    /// [`Kernel::NAME`].
    fn name(&self) -> &'static str;

    /// The address of the shards, which tells the sides of a matrix apart.
    fn shards(&self) -> *const ();

    /// Applies the kernel to every shard, on rayon's current pool.
    fn apply(&mut self);

    /// Applies the kernel to the shards of a `Vec` in place of its own.
    #[cfg(test)]
    fn apply_to(&mut self, shards: &dyn std::any::Any);

    /// The kernel, packed.
    ///
    /// # Errors
    /// If it cannot be packed, which is a bug.
    fn kernel(&self) -> Result<Vec<u8>>;

    /// Some output rows as they are now, packed; no bytes if the kernel does not read them.
    ///
    /// # Errors
    /// If they cannot be packed, which is a bug.
    fn given(&self, rows: Range<usize>) -> Result<Vec<u8>>;

    /// Takes all output rows, in parts that other machines have computed, if they are conserved.
    ///
    /// # Errors
    /// If the parts are not packed rows of this pass, which is a bug.
    fn accept(&mut self, parts: Vec<(Range<usize>, Vec<u8>)>) -> Result<Conserved>;
}

/// A pass with its types.
pub(crate) struct TypedPass<'a, 's, K: Kernel> {
    pub(crate) kernel: &'a K,
    pub(crate) over: Sharded<'s, K::Shard>,
    pub(crate) out: &'a mut [K::Cell],
}

impl<K: Kernel> Pass for TypedPass<'_, '_, K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn shards(&self) -> *const () {
        self.over.shards.as_ptr().cast()
    }

    fn apply(&mut self) {
        apply(self.over.shards, self.kernel, self.out);
    }

    #[cfg(test)]
    fn apply_to(&mut self, shards: &dyn std::any::Any) {
        let shards: &Vec<K::Shard> = shards.downcast_ref().expect("shards of the kernel");
        apply(shards, self.kernel, self.out);
    }

    fn kernel(&self) -> Result<Vec<u8>> {
        pack(self.kernel)
    }

    fn given(&self, rows: Range<usize>) -> Result<Vec<u8>> {
        let width = self.kernel.width();
        if K::IN_PLACE {
            pack(&&self.out[rows.start * width..rows.end * width])
        } else {
            Ok(Vec::new())
        }
    }

    fn accept(&mut self, parts: Vec<(Range<usize>, Vec<u8>)>) -> Result<Conserved> {
        let mut all: Vec<K::Cell> = Vec::with_capacity(self.out.len());
        for (rows, bytes) in parts {
            let own: Vec<K::Cell> = unpack(&bytes)?;
            let (found, cells) = (own.len(), rows.len() * self.kernel.width());
            if found != cells {
                let what = format!("a unit of {cells} cells has {found} results");
                return Err(Error::bug(what));
            }
            all.extend(own);
        }
        let conserved = self.kernel.conserved(&self.over.totals, &all);
        if conserved.is_ok() {
            self.out.clone_from_slice(&all);
        }
        Ok(conserved)
    }
}

/// Applies a kernel to shards that cover all rows of `out`, on rayon's current pool.
pub(crate) fn apply<K: Kernel>(shards: &[K::Shard], kernel: &K, out: &mut [K::Cell]) {
    let width = kernel.width();
    let mut rest = out;
    let mut work = Vec::with_capacity(shards.len());
    for shard in shards {
        let (own, later) = rest.split_at_mut(shard.rows().len() * width);
        work.push((shard, own));
        rest = later;
    }
    assert!(rest.is_empty(), "the shards must cover every output row");
    work.into_par_iter().for_each(|(shard, own)| {
        memory::wait_for_room();
        kernel.apply(shard, own);
    });
}

/// The shards in order, for a loop that is no pass. The loop stays within the memory bound.
pub(crate) fn each_shard<S: Shard>(shards: &[S]) -> impl Iterator<Item = &S> {
    shards.iter().inspect(|_| memory::wait_for_room())
}

/// The threads of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Local;

impl Executor for Local {
    fn run(&self, pass: &mut dyn Pass) {
        pass.apply();
    }
}
