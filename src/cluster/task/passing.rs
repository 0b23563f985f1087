//! Passes of one model on several machines: its matrix is cut into units once, and a task of a pass applies the kernel to one of them.
//!
//! A kernel is the very one of a run on one machine, and a row is made in one unit alone, so nothing is merged and no sum depends on how the
//! matrix was cut. What the units of a pass share, such as a factor of states × rank, is one object, which each process reads once.

use crate::assess;
use crate::cluster::task::cache::Name;
use crate::cluster::task::counting::read_counts;
use crate::cluster::task::executor::{TaskExecutor, blocking};
use crate::cluster::task::fitting::Group;
use crate::error::{Error, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::counts::shards::Shards;
use crate::evidence::kind::{self, EvidenceKind};
use crate::evidence::pass::packed::{pack, unpack};
use crate::evidence::pass::registry::Entry;
use crate::methods;
use crate::output::parts::Piece;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Non-zeros of a unit: enough to be worth a task, and not too many for one.
const SMALLEST: u64 = 1 << 16;
const LARGEST: u64 = 1 << 24;

/// Shards of a unit, so that units are of about one size.
const SHARDS: u64 = 8;

/// A matrix in units.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cut {
    /// `CountMatrix` without a matrix, and the outline of the shards.
    pub outline: Piece,
    /// The units of each side of the evidence.
    pub sides: Vec<Vec<Unit>>,
}

/// Some neighbours among the shards of one side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unit {
    /// Their places.
    pub shards: Range<usize>,
    /// The shards themselves.
    pub entries: Piece,
}

/// What a pass does to one unit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnitPass {
    pub unit: Piece,
    /// The name of the kernel, and the kernel.
    pub name: String,
    pub kernel: Piece,
    /// The unit's own rows, where they are changed in place; else no bytes.
    pub rows: Piece,
}

/// Units per side of a matrix: one per task slot, unless they would be too small or too large.
fn n_units(nonzeros: u64, slots: u64) -> u64 {
    let worth = slots.min(nonzeros.div_ceil(SMALLEST));
    worth.max(nonzeros.div_ceil(LARGEST)).max(1)
}

impl TaskExecutor {
    /// Cuts the only matrix of a group into units for so many tasks at once.
    pub async fn cut(&self, group: Group, slots: u64) -> Result<Cut> {
        let pieces = group.counts.first();
        let pieces = pieces.ok_or_else(|| Error::bug("there is nothing to cut"))?;
        let bytes = self.pieces(pieces).await?;
        let plan = Arc::clone(&self.plan);
        let made = blocking(move || {
            let mut counts: CountMatrix = read_counts(&bytes[0], &bytes[1])?;
            drop(bytes);
            counts.relabel(&group.labels);
            let n = n_units(counts.nnz() as u64, slots);
            let most = (counts.nnz() as u64).div_ceil(n * SHARDS);
            let shards = crate::run::model::shards(&plan.layout, &mut counts)?.split(most as usize);
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
        // A part for each, so that they are read and dropped by themselves.
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            pieces.extend(self.put(part).await?);
        }
        let mut pieces = pieces.into_iter();
        let mut next = || {
            pieces
                .next()
                .ok_or_else(|| Error::bug("a piece is not there"))
        };
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

    /// The rows that a pass makes of one unit.
    pub async fn pass(&self, pass: UnitPass) -> Result<Vec<u8>> {
        let kernels = methods::kernels().into_iter().chain(assess::kernels());
        let mut kernels = kernels.filter(|entry| entry.name == pass.name);
        match kernels.next() {
            Some(entry) => self.apply(entry, &pass).await,
            None => Err(Error::bug(format!("there is no kernel `{}`", pass.name))),
        }
    }

    async fn apply(&self, entry: Entry, pass: &UnitPass) -> Result<Vec<u8>> {
        let name = |of: &'static str, piece: &Piece| -> Name { (of, piece.checksum()) };
        let read = async |piece: &Piece| self.output.piece(&self.plan.hash, piece).await;
        let unit = async {
            let bytes = read(&pass.unit).await?;
            blocking(move || (entry.unit)(&bytes)).await
        };
        let kernel = async {
            let bytes = read(&pass.kernel).await?;
            blocking(move || (entry.kernel)(&bytes)).await
        };
        // Column indices take somewhat less in bytes than in memory.
        let units = crate::cluster::task::cache::of_units();
        let unit = units.get(name("unit", &pass.unit), 2 * pass.unit.len(), unit);
        let unit = unit.await?;
        let kernels = crate::cluster::task::cache::of_kernels();
        let kernel = kernels.get(name(entry.name, &pass.kernel), pass.kernel.len(), kernel);
        let kernel = kernel.await?;
        let rows = read(&pass.rows).await?;
        blocking(move || (entry.apply)(&kernel, &unit, &rows)).await
    }
}

/// The outline that a [`Cut`] tells of.
pub fn outline(bytes: &[u8]) -> Result<(CountMatrix, Shards)> {
    unpack(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_unit_for_each_slot_unless_it_is_too_small_or_too_large() {
        assert_eq!(n_units(10 << 20, 3), 3);
        assert_eq!(n_units(10 << 20, 1000), 160);
        assert_eq!(n_units(1 << 30, 3), 64);
        assert_eq!((n_units(10, 3), n_units(0, 3)), (1, 1));
    }
}
