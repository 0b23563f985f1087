//! Kernels by name, for machines that receive them as bytes.

use crate::error::{Error, Result};
use crate::evidence::pass::executor::apply;
use crate::evidence::pass::kernel::{Kernel, Shard};
use crate::evidence::pass::packed::{pack, unpack};
use std::any::Any;
use std::sync::Arc;

/// An unpacked kernel, or the unpacked shards of a unit.
pub(crate) type Unpacked = Arc<dyn Any + Send + Sync>;

/// A kernel without its type.
#[derive(Clone, Copy)]
pub struct Entry {
    /// [`Kernel::NAME`].
    pub name: &'static str,
    /// Unpacks a kernel.
    pub kernel: fn(&[u8]) -> Result<Unpacked>,
    /// Unpacks the shards of a unit.
    pub unit: fn(&[u8]) -> Result<Unpacked>,
    /// Applies the kernel to a unit with its packed rows. Returns the packed rows.
    pub apply: fn(kernel: &Unpacked, unit: &Unpacked, rows: &[u8]) -> Result<Vec<u8>>,
}

impl Entry {
    /// The entry of a kernel.
    pub(crate) fn of<K: Kernel + Send + 'static>() -> Entry {
        Entry {
            name: K::NAME,
            kernel: |bytes| Ok(Arc::new(unpack::<K>(bytes)?)),
            unit: |bytes| Ok(Arc::new(unpack::<Vec<K::Shard>>(bytes)?)),
            apply: apply_packed::<K>,
        }
    }
}

fn apply_packed<K: Kernel + Send + 'static>(
    kernel: &Unpacked,
    unit: &Unpacked,
    rows: &[u8],
) -> Result<Vec<u8>> {
    let other = || Error::bug(format!("a kernel or a unit is not of `{}`", K::NAME));
    let kernel: &K = kernel.downcast_ref().ok_or_else(other)?;
    let unit: &Vec<K::Shard> = unit.downcast_ref().ok_or_else(other)?;
    let cells = unit.iter().map(|shard| shard.rows().len()).sum::<usize>() * kernel.width();
    let mut rows: Vec<K::Cell> = if K::IN_PLACE {
        unpack(rows)?
    } else {
        vec![K::Cell::default(); cells]
    };
    if rows.len() != cells {
        let what = format!("a unit of {cells} cells was given {}", rows.len());
        return Err(Error::bug(what));
    }
    apply(unit, kernel, &mut rows);
    pack(&rows)
}
