//! The input of a run, cut into slices of files that tasks read.

use crate::output::parts::Piece;
use crate::plan::job::PlannedJob;
use crate::read::lake::files::LakeTable;
use crate::read::lake::subset::{self, FilePart};
use crate::run::workers::reading::Slice;
use crate::run::workers::work::PlanSite;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use std::ops::{Range, RangeInclusive};

/// Number of slices of the input, unless one would be larger than [`SLICE_BYTES`].
const SLICES: u64 = 64;
const SLICE_BYTES: u64 = 128 << 20;

/// The smallest part of a file in bytes, because row groups are seldom smaller.
const PART_BYTES: u64 = 32 << 20;

/// Rows and sums are dealt into one lot per this many bytes of input, within limits.
const LOT_BYTES: u64 = 128 << 20;
const LOTS: RangeInclusive<u64> = 16..=1024;

/// The tasks that read the files of a plan, and the rounds that count them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Width {
    /// Number of tasks that read files.
    pub slices: u64,
    /// Number of lots into which tasks deal rows and sums.
    pub lots: u64,
    /// The rounds in order, without `add` if one task has all sums.
    pub rounds: Vec<&'static str>,
}

impl Width {
    /// The width of a job whose query has this frame.
    ///
    /// # Errors
    /// Why one task reads all files.
    pub(crate) fn of(
        job: &PlannedJob,
        frame: &DataFrame,
        rounds: Vec<&'static str>,
    ) -> Result<Width, String> {
        let slices = slices(&job.tables, frame)?;
        Ok(Width {
            slices: slices.len() as u64,
            lots: lots(&job.tables, &slices) as u64,
            rounds,
        })
    }
}

/// How the work of a run is spread over machines.
#[derive(Debug)]
pub struct Spread {
    /// The tasks that read files. Otherwise the reason why one task reads all of them.
    pub width: Result<Width, String>,
    /// When models are split into passes.
    pub split: Option<Split>,
}

/// When a model is split into passes.
#[derive(Debug, Serialize)]
pub struct Split {
    /// Models with more non-zeros are split into passes,
    pub split: u64,
    /// unless there is a reason against it.
    pub not_split: Option<String>,
}

/// The plan of a run and its rows in the store of the output.
pub(crate) struct Dealt {
    pub(crate) site: PlanSite,
    /// The pieces of each lot of whole trajectories.
    pub(crate) lots: Vec<Vec<Piece>>,
}

/// Cuts the files of the only table that a query reads.
///
/// # Errors
/// Why the query over some files gives other rows.
pub(crate) fn slices(tables: &[LakeTable], frame: &DataFrame) -> Result<Vec<Slice>, String> {
    let name = subset::one_table(frame)?;
    let table = tables.iter().position(|table| table.name == name);
    let table = table.ok_or("the SQL reads no table of the pipeline")?;
    let can_be_cut = tables[table].format == "parquet";
    let sizes = tables[table].files.iter().map(|file| file.size_bytes);
    let slices = cut(&sizes.collect::<Vec<_>>(), can_be_cut).into_iter();
    let slice = |(files, part)| Slice { table, files, part };
    Ok(slices.map(slice).collect())
}

/// Number of lots into which the rows and the sums of slices are dealt.
pub(crate) fn lots(tables: &[LakeTable], slices: &[Slice]) -> usize {
    let table = slices.first().map(|slice| &tables[slice.table]);
    let files = table.into_iter().flat_map(|table| &table.files);
    let bytes: u64 = files.map(|file| file.size_bytes).sum();
    bytes.div_ceil(LOT_BYTES).clamp(*LOTS.start(), *LOTS.end()) as usize
}

/// The pieces of each lot, in the order of the tasks. Empty lots are left out, unless all are
/// empty.
pub(crate) fn by_lot(of_tasks: Vec<Vec<Piece>>) -> Vec<Vec<Piece>> {
    let n = of_tasks.iter().map(Vec::len).max().unwrap_or(0);
    let mut lots = vec![Vec::new(); n.max(1)];
    for pieces in of_tasks {
        for (lot, piece) in lots.iter_mut().zip(pieces) {
            lot.extend((!piece.is_empty()).then_some(piece));
        }
    }
    if lots.iter().all(Vec::is_empty) {
        lots.truncate(1);
    } else {
        lots.retain(|lot| !lot.is_empty());
    }
    lots
}

/// Slices of files of these sizes: neighbouring small files together, a large file alone, and in
/// parts if it can be cut.
fn cut(sizes: &[u64], can_be_cut: bool) -> Vec<(Range<usize>, FilePart)> {
    let most = sizes.iter().sum::<u64>().div_ceil(SLICES).min(SLICE_BYTES);
    let slices = packed(sizes.iter().copied(), most).into_iter();
    let in_parts = |files: Range<usize>| {
        let is_cut = can_be_cut && files.len() == 1;
        let of = if is_cut {
            sizes[files.start].div_ceil(most.max(PART_BYTES)).max(1)
        } else {
            1
        };
        (0..of).map(move |at| (files.clone(), FilePart { at, of }))
    };
    slices.flat_map(in_parts).collect()
}

/// Bins of neighbours with a total size of at most `most`. A larger one is alone.
pub(crate) fn packed(sizes: impl Iterator<Item = u64>, most: u64) -> Vec<Range<usize>> {
    let mut bins: Vec<Range<usize>> = Vec::new();
    let mut room = 0;
    for (at, size) in sizes.enumerate() {
        match bins.last_mut().filter(|_| size <= room) {
            Some(bin) => bin.end = at + 1,
            None => {
                bins.push(at..at + 1);
                room = most;
            }
        }
        room = room.saturating_sub(size);
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[u64], most: u64, bins: &[Range<usize>]) {
        assert_eq!(packed(sizes.iter().copied(), most), bins);
    }

    #[test]
    fn neighbours_are_packed_up_to_a_size() {
        check(&[], 5, &[]);
        check(&[1, 2, 2, 1, 9, 1, 0, 0], 5, &[0..3, 3..4, 4..5, 5..8]);
        check(&[3, 3, 3], 1, &[0..1, 1..2, 2..3]);
        check(&[0, 0, 1], 0, &[0..2, 2..3]);
    }

    #[test]
    fn large_files_are_cut_if_possible() {
        let whole = |files| (files, FilePart::WHOLE);
        let parts = |at: usize, of: u64| (0..of).map(move |k| (at..at + 1, FilePart { at: k, of }));
        assert_eq!(cut(&[3, 2], true), [whole(0..1), whole(1..2)]);
        let large = 200 << 20;
        let sizes = [large, 1, 1, 10 << 30];
        let cut_up = parts(0, 2).chain([whole(1..3)]).chain(parts(3, 80));
        assert_eq!(cut(&sizes, true), cut_up.collect::<Vec<_>>());
        let left = [whole(0..1), whole(1..3), whole(3..4)];
        assert_eq!(cut(&sizes, false), left);
        let several = parts(0, 7).collect::<Vec<_>>();
        assert_eq!(cut(&[large], true), several);
    }
}
