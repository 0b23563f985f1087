//! Passes of one model on several machines: its matrix is cut into units once, and a task of a pass applies the kernel to one of them.
//!
//! A kernel is the very one of a run on one machine, and a row is made in one unit alone, so nothing is merged and no sum depends on how the
//! matrix was cut. What the units of a pass share, such as a factor of states × rank, is one object, which each process reads once.

use super::cache::{self, Name};
use super::counting::read_counts;
use super::fitting::Group;
use super::{Bench, blocking, pack, unpack};
use crate::count::Counts;
use crate::error::{Error, Result};
use crate::math::csr::{Csr, Multiply};
use crate::math::kl::{Assign, Gather, Spread};
use crate::math::look::{Look, Pick};
use crate::model;
use crate::reduce::coherence::{Missed, Scoring};
use crate::reduce::markov::OfSets;
use crate::runner::{Kernel, Local, Runner};
use crate::shard::Shards;
use crate::write::Piece;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Units that each side of a matrix is cut into, unless they would be too small to be worth a task, or too large for one.
const UNITS: usize = 16;
const SMALLEST: usize = 1 << 16;
const LARGEST: usize = 1 << 24;

/// A matrix in units.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cut {
    /// `Counts` without a matrix, and the outline of the shards.
    pub outline: Piece,
    pub by_source: Vec<Unit>,
    pub by_target: Vec<Unit>,
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
pub struct Pass {
    pub unit: Piece,
    /// The name of the kernel, and the kernel.
    pub name: String,
    pub kernel: Piece,
    /// The unit's own rows, where they are changed in place; else no bytes.
    pub rows: Piece,
}

impl Bench {
    /// Cuts the only matrix of a group.
    pub async fn cut(&self, group: Group) -> Result<Cut> {
        let pieces = group.counts.first();
        let pieces = pieces.ok_or_else(|| Error::bug("there is nothing to cut"))?;
        let bytes = self.pieces(pieces).await?;
        let made = blocking(move || {
            let mut counts: Counts = read_counts(&bytes[0], &bytes[1])?;
            drop(bytes);
            counts.relabel(&group.labels);
            let shards = model::shards(&mut counts)?.split(most(counts.nnz()));
            counts.by_source = Vec::new();
            let sides = [&shards.by_source, &shards.by_target];
            let units = sides.map(|side| units(side, most(shards.nnz())));
            let mut pieces = vec![vec![pack(&(&counts, shards.outline()))?]];
            for (side, units) in sides.iter().zip(&units) {
                for unit in units {
                    pieces.push(vec![pack(&&side[unit.clone()])?]);
                }
            }
            Ok((pieces, units))
        });
        let (parts, [by_source, by_target]) = made.await?;
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
        let mut named = |units: Vec<Range<usize>>| {
            let units = units.into_iter().map(|shards| {
                let entries = next()?;
                Ok(Unit { shards, entries })
            });
            units.collect::<Result<_>>()
        };
        Ok(Cut {
            outline,
            by_source: named(by_source)?,
            by_target: named(by_target)?,
        })
    }

    /// The rows that a pass makes of one unit.
    pub async fn pass(&self, pass: Pass) -> Result<Vec<u8>> {
        match pass.name.as_str() {
            Multiply::NAME => self.apply::<Multiply>(&pass).await,
            Gather::NAME => self.apply::<Gather>(&pass).await,
            Assign::NAME => self.apply::<Assign>(&pass).await,
            Spread::NAME => self.apply::<Spread>(&pass).await,
            Look::NAME => self.apply::<Look>(&pass).await,
            Pick::NAME => self.apply::<Pick>(&pass).await,
            Missed::NAME => self.apply::<Missed>(&pass).await,
            Scoring::NAME => self.apply::<Scoring>(&pass).await,
            OfSets::NAME => self.apply::<OfSets>(&pass).await,
            other => Err(Error::bug(format!("there is no kernel `{other}`"))),
        }
    }

    async fn apply<K: Kernel + Send + 'static>(&self, pass: &Pass) -> Result<Vec<u8>> {
        let name = |of: &'static str, piece: &Piece| -> Name { (of, piece.checksum()) };
        let read = async |piece: &Piece| self.output.piece(&self.plan.hash, piece).await;
        let unit = async {
            let bytes = read(&pass.unit).await?;
            blocking(move || unpack::<Vec<Csr>>(&bytes)).await
        };
        let kernel = async {
            let bytes = read(&pass.kernel).await?;
            blocking(move || unpack::<K>(&bytes)).await
        };
        // Column indices take somewhat less in bytes than in memory.
        let units = cache::of_units();
        let unit = units.get(name("unit", &pass.unit), 2 * pass.unit.len(), unit);
        let unit: Arc<Vec<Csr>> = unit.await?;
        let kernels = cache::of_kernels();
        let kernel = kernels.get(name(K::NAME, &pass.kernel), pass.kernel.len(), kernel);
        let kernel: Arc<K> = kernel.await?;
        let rows = read(&pass.rows).await?;
        blocking(move || {
            let n_rows: usize = unit.iter().map(Csr::n_rows).sum();
            let n = n_rows * kernel.width();
            let mut rows: Vec<K::Cell> = match K::IN_PLACE {
                true => unpack(&rows)?,
                false => vec![K::Cell::default(); n],
            };
            if rows.len() != n {
                let what = format!("a unit of {n} cells was given {}", rows.len());
                return Err(Error::bug(what));
            }
            Local.rows(&unit, kernel.as_ref(), &mut rows);
            pack(&rows)
        })
        .await
    }
}

/// Units that a side of a matrix is cut into, or a few more, since no row is cut.
pub fn n_units(nonzeros: u64) -> u64 {
    nonzeros.div_ceil(most(nonzeros as usize) as u64)
}

/// Non-zeros of a unit.
fn most(nnz: usize) -> usize {
    nnz.div_ceil(UNITS).clamp(SMALLEST, LARGEST)
}

/// Neighbours together, until they have so many non-zeros.
fn units(shards: &[Csr], most: usize) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    let mut size = 0;
    for (at, shard) in shards.iter().enumerate() {
        match units.last_mut().filter(|_| size + shard.nnz() <= most) {
            Some(unit) => unit.end = at + 1,
            None => {
                units.push(at..at + 1);
                size = 0;
            }
        }
        size += shard.nnz();
    }
    units
}

/// The outline that a [`Cut`] tells of.
pub fn outline(bytes: &[u8]) -> Result<(Counts, Shards)> {
    unpack(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::csr::Values;

    #[test]
    fn neighbours_are_one_unit_up_to_a_size() {
        let shard = |nnz: usize| Csr {
            first_row: 0,
            offsets: vec![0, nnz],
            columns: vec![0; nnz],
            values: Values::Small(vec![1; nnz]),
        };
        let sizes = [2, 3, 9, 1, 1, 4];
        let shards: Vec<Csr> = sizes.into_iter().map(shard).collect();
        assert_eq!(units(&shards, 5), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(units(&shards, 100), vec![Range { start: 0, end: 6 }]);
        assert_eq!(units(&[], 5), Vec::<Range<usize>>::new());
        assert_eq!(
            (most(10), most(16 << 20), most(1 << 40)),
            (SMALLEST, 1 << 20, LARGEST)
        );
    }
}
