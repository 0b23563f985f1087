//! Passes of one model on several machines. The evidence is cut into units once, and a task of a
//! pass applies the kernel to one unit.
//!
//! The kernels are those of a run on one machine, and each output row belongs to one unit, so
//! nothing is merged and no sum depends on the units. Data that the units of a pass share, such as
//! a factor of states × rank, is one object, which each process reads once.

use crate::assess;
use crate::error::{Error, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::counts::shards::Shards;
use crate::evidence::kind::{self, EvidenceKind};
use crate::evidence::pass::packed::{pack, unpack};
use crate::evidence::pass::registry::Entry;
use crate::methods;
use crate::output::parts::Piece;
use crate::plan::counts::CountsPlan;
use crate::run::counting::tasks::{CountsGroup, read_counts};
use crate::run::counts::model;
use crate::run::workers::cache::{self, Name};
use crate::run::workers::executor::{TaskExecutor, blocking};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The smallest and the largest number of non-zeros of a unit: enough to be worth a task, and not
/// too many for one.
const SMALLEST_UNIT: u64 = 1 << 16;
const LARGEST_UNIT: u64 = 1 << 24;

/// Number of shards per unit, so that units have about equal sizes.
const SHARDS_PER_UNIT: u64 = 8;

/// Evidence in units, in the store of the output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// A `CountMatrix` without its matrix, and the outline of the shards.
    pub outline: Piece,
    /// The units of each side of the evidence.
    pub sides: Vec<Vec<Unit>>,
}

/// Neighbouring shards of one side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Unit {
    /// Their indices.
    pub shards: Range<usize>,
    /// The shards.
    pub entries: Piece,
}

/// A pass over one unit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnitPass {
    /// The shards.
    pub unit: Piece,
    /// The name of the kernel.
    pub name: String,
    /// The kernel.
    pub kernel: Piece,
    /// The output rows of the unit, or no bytes if the kernel does not read them.
    pub rows: Piece,
}

/// Units per side of a matrix: one per task slot, unless they would be too small or too large.
fn n_units(nonzeros: u64, slots: u64) -> u64 {
    let worth = slots.min(nonzeros.div_ceil(SMALLEST_UNIT));
    worth.max(nonzeros.div_ceil(LARGEST_UNIT)).max(1)
}

impl TaskExecutor<CountsPlan> {
    /// Cuts the only matrix of a group into units for `slots` tasks at once.
    ///
    /// # Errors
    /// If the counts cannot be read or fitted, or the units cannot be stored.
    pub(crate) async fn cut(&self, group: CountsGroup, slots: u64) -> Result<Cut> {
        let pieces = group.counts.first();
        let pieces = pieces.ok_or_else(|| Error::bug("there is nothing to cut"))?;
        let bytes = self.pieces(pieces).await?;
        let plan = Arc::clone(&self.plan);
        let made = blocking(move || {
            let mut counts: CountMatrix = read_counts(&bytes[0], &bytes[1])?;
            drop(bytes);
            counts.relabel(&group.labels);
            let n = n_units(counts.nnz() as u64, slots);
            let most = (counts.nnz() as u64).div_ceil(n * SHARDS_PER_UNIT);
            let shards = model::shards(&plan.layout, &mut counts)?.split(most as usize);
            counts.by_source = Vec::new();
            let mut pieces = vec![vec![pack(&(&counts, shards.outline()))?]];
            let mut units = Vec::new();
            for side in shards.sides() {
                let own = kind::units(side, n);
                for unit in &own {
                    pieces.push(vec![side.pack(unit.clone())?]);
                }
                units.push(own);
            }
            Ok((pieces, units))
        });
        let (parts, units) = made.await?;
        // One part per unit, so that units are read and dropped separately.
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            pieces.extend(self.put(part).await?);
        }
        let mut pieces = pieces.into_iter();
        let none = || Error::bug("a piece is not there");
        let mut next = || pieces.next().ok_or_else(none);
        let outline = next()?;
        let mut stored = |units: Vec<Range<usize>>| {
            let units = units.into_iter().map(|shards| {
                let entries = next()?;
                Ok(Unit { shards, entries })
            });
            units.collect::<Result<Vec<_>>>()
        };
        let sides = units.into_iter().map(&mut stored);
        Ok(Cut {
            outline,
            sides: sides.collect::<Result<_>>()?,
        })
    }

    /// The output rows of a pass over one unit, packed.
    ///
    /// # Errors
    /// If the kernel is unknown, or a piece cannot be read.
    pub(crate) async fn pass(&self, pass: UnitPass) -> Result<Vec<u8>> {
        let kernels = methods::kernels().into_iter().chain(assess::kernels());
        let mut kernels = kernels.filter(|entry| entry.name == pass.name);
        match kernels.next() {
            Some(entry) => self.apply(entry, &pass).await,
            None => Err(Error::bug(format!("there is no kernel `{}`", pass.name))),
        }
    }

    async fn apply(&self, entry: Entry, pass: &UnitPass) -> Result<Vec<u8>> {
        let name = |of: &'static str, piece: &Piece| -> Name { (of, piece.checksum()) };
        let read = async |piece: &Piece| self.output.piece(&self.plan.job.hash, piece).await;
        let unit = async {
            let bytes = read(&pass.unit).await?;
            blocking(move || (entry.unit)(&bytes)).await
        };
        let kernel = async {
            let bytes = read(&pass.kernel).await?;
            blocking(move || (entry.kernel)(&bytes)).await
        };
        // A unit takes less than twice its packed size in memory.
        let units = cache::of_units();
        let unit = units.get(name("unit", &pass.unit), 2 * pass.unit.len(), unit);
        let unit = unit.await?;
        let kernels = cache::of_kernels();
        let kernel = kernels.get(name(entry.name, &pass.kernel), pass.kernel.len(), kernel);
        let kernel = kernel.await?;
        let rows = read(&pass.rows).await?;
        blocking(move || (entry.apply)(&kernel, &unit, &rows)).await
    }
}

/// Unpacks the outline of a [`Cut`].
///
/// # Errors
/// If the bytes are no outline, which is a bug.
pub(crate) fn outline(bytes: &[u8]) -> Result<(CountMatrix, Shards)> {
    unpack(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_unit_per_slot_unless_units_would_be_too_small_or_too_large() {
        assert_eq!(n_units(10 << 20, 3), 3);
        assert_eq!(n_units(10 << 20, 1000), 160);
        assert_eq!(n_units(1 << 30, 3), 64);
        assert_eq!((n_units(10, 3), n_units(0, 3)), (1, 1));
    }
}
