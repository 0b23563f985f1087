//! Passes over the sources for searches that move single columns (`moves`): the best states of many
//! columns, and copies of some columns. The matrix may be on other machines.

use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::kernel::{Conserved, Kernel};
use crate::methods::dbmr::entropy::Entropy;
use crate::methods::dbmr::matrix_columns::Column;
use crate::methods::dbmr::moves::{BestMove, Clusters, NONE};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Some of the sources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subset(Vec<u64>);

impl Subset {
    /// The given sources, of n.
    pub(crate) fn of(n: usize, sources: impl IntoIterator<Item = u32>) -> Subset {
        let mut bits = vec![0; n.div_ceil(64)];
        for j in sources {
            bits[j as usize / 64] |= 1 << (j % 64);
        }
        Subset(bits)
    }

    /// Whether source j is in the subset.
    #[inline(always)]
    pub(crate) fn has(&self, j: usize) -> bool {
        self.0[j / 64] >> (j % 64) & 1 == 1
    }
}

/// The result for one source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scanned {
    /// None for a source that was not scored.
    pub best: Option<BestMove>,
    /// The column of a source that is to move, as a matrix of one row, if the pass asks for it.
    column: Option<Box<Csr>>,
}

impl Scanned {
    /// The column, if the pass returned it.
    pub(crate) fn column(&self) -> Option<Column<'_>> {
        self.column.as_deref().map(|csr| Column::of(csr, 0))
    }
}

/// Compares all states for some of the sources.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scan<'a> {
    /// The sums C.
    pub clusters: Cow<'a, Clusters>,
    /// x log x of these sums.
    pub entropy: Entropy,
    /// The states of the sources, or [`NONE`], n values.
    pub states: Cow<'a, [u32]>,
    /// The sources to score.
    pub sources: Cow<'a, Subset>,
    /// Whether to return the columns of sources that are to move.
    pub with_columns: bool,
}

impl Kernel for Scan<'_> {
    type Shard = Csr;
    type Cell = Scanned;

    const NAME: &'static str = "scan";

    fn apply(&self, shard: &Csr, rows: &mut [Scanned]) {
        let mut scores = Vec::new();
        for (l, (j, found)) in shard.rows().zip(rows).enumerate() {
            *found = Scanned::default();
            if !self.sources.has(j) {
                continue;
            }
            let (own, column) = (self.states[j], Column::of(shard, l));
            let present = (own != NONE).then_some(own);
            let best = self
                .clusters
                .best(&self.entropy, column, present, &mut scores);
            if self.with_columns && best.state != own {
                found.column = Some(Box::new(shard.row(l)));
            }
            found.best = Some(best);
        }
    }

    fn conserved(&self, totals: &Totals, rows: &[Scanned]) -> Conserved {
        for (j, found) in rows.iter().enumerate() {
            let is_one =
                |best: BestMove| (best.state as usize) < self.clusters.rank() && best.margin >= 0.0;
            let moves = |best: BestMove| self.with_columns && best.state != self.states[j];
            let is_result = match found.best {
                Some(best) => is_one(best) && moves(best) == found.column.is_some(),
                None => found.column.is_none(),
            };
            if !is_result || found.best.is_some() != self.sources.has(j) {
                return Err(format!("cell {j} is not a valid result"));
            }
            if let Some(column) = &found.column {
                is_row(totals, j, column)?;
            }
        }
        Ok(())
    }
}

/// Copies the columns of some sources.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Pick<'a> {
    /// The sources to copy.
    pub sources: Cow<'a, Subset>,
}

impl Kernel for Pick<'_> {
    type Shard = Csr;
    /// The column as a matrix of one row.
    type Cell = Option<Box<Csr>>;

    const NAME: &'static str = "pick";

    fn apply(&self, shard: &Csr, rows: &mut [Option<Box<Csr>>]) {
        for (l, (j, row)) in shard.rows().zip(rows).enumerate() {
            *row = self.sources.has(j).then(|| Box::new(shard.row(l)));
        }
    }

    fn conserved(&self, totals: &Totals, rows: &[Option<Box<Csr>>]) -> Conserved {
        for (j, row) in rows.iter().enumerate() {
            match row {
                Some(row) if self.sources.has(j) => is_row(totals, j, row)?,
                None if !self.sources.has(j) => (),
                _ => return Err(format!("cell {j} is not a valid result")),
            }
        }
        Ok(())
    }
}

/// Fails if `csr` cannot be row `row` of the matrix.
fn is_row(totals: &Totals, row: usize, csr: &Csr) -> Conserved {
    let are_columns = csr
        .columns
        .iter()
        .all(|&i| (i as usize) < totals.columns.len());
    let is_whole = csr.offsets == [0, csr.columns.len()] && csr.values.len() == csr.nnz();
    if !are_columns || !is_whole {
        return Err(format!("cell {row} is no row"));
    }
    let (found, total) = (Column::of(csr, 0).total, totals.rows[row]);
    let slack = if totals.are_exact { 0.0 } else { total };
    totals.agree(found, total, slack, format_args!("the sum of row {row}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::csr::Values;
    use crate::evidence::counts::shards::{Shards, of_rows};
    use crate::evidence::pass::Passes;
    use crate::methods::dbmr::matrix_columns::Columns;

    // N (targets × sources) = [ 9 8 0 1 ]
    //                         [ 1 0 7 9 ]
    fn small() -> Shards {
        of_rows(
            &[vec![9.0, 8.0, 0.0, 1.0], vec![1.0, 0.0, 7.0, 9.0]],
            false,
            3,
        )
    }

    fn totals(shards: &Shards) -> Totals<'_> {
        Totals {
            rows: &shards.source_total,
            columns: &shards.target_total,
            are_exact: true,
        }
    }

    #[test]
    fn only_the_subset_is_scored_and_only_moves_return_columns() {
        let shards = small();
        let columns = Columns::new(&shards);
        let mut clusters = Clusters::new(2, 2, &columns.entropy);
        let states = [0, 0, 1, 0];
        let with = (0..4).map(|j| (columns.get(j), states[j]));
        clusters.fill(&columns.entropy, with);
        let mut scan = Scan {
            clusters: Cow::Borrowed(&clusters),
            entropy: columns.entropy,
            states: Cow::from(&states[..]),
            sources: Cow::Owned(Subset::of(4, [1, 3])),
            with_columns: true,
        };
        let mut rows = vec![Scanned::default(); 4];
        Passes::local().rows(shards.sources(), &scan, &mut rows);
        let found: Vec<Option<u32>> = rows.iter().map(|r| Some(r.best?.state)).collect();
        assert_eq!(found, [None, Some(0), None, Some(1)]);
        let sent: Vec<bool> = rows.iter().map(|r| r.column().is_some()).collect();
        assert_eq!(sent, [false, false, false, true]);
        let column = rows[3].column().expect("it moves");
        assert_eq!(column.total, 10.0);
        assert_eq!(column.entries().collect::<Vec<_>>(), [(0, 1.0), (1, 9.0)]);
        assert_eq!(scan.conserved(&totals(&shards), &rows), Ok(()));

        // A result for other sources, and a column that lost a count.
        scan.sources = Cow::Owned(Subset::of(4, [1]));
        assert!(scan.conserved(&totals(&shards), &rows).is_err());
        scan.sources = Cow::Owned(Subset::of(4, [1, 3]));
        let row = rows[3].column.as_mut().expect("it moves");
        row.values = Values::Count(vec![1, 8]);
        let error = scan.conserved(&totals(&shards), &rows);
        assert_eq!(
            error,
            Err("the sum of row 3 is 9.0 in place of 10.0".into())
        );
    }

    #[test]
    fn picked_columns_are_rows_of_their_own() {
        let shards = small();
        let pick = Pick {
            sources: Cow::Owned(Subset::of(4, [0, 2])),
        };
        let mut rows = vec![None; 4];
        Passes::local().rows(shards.sources(), &pick, &mut rows);
        let of = |j: usize| rows[j].as_deref().map(|row: &Csr| row.columns.clone());
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [Some(vec![0, 1]), None, Some(vec![1]), None]
        );
        assert_eq!(pick.conserved(&totals(&shards), &rows), Ok(()));
        rows[1] = rows[0].clone();
        assert!(pick.conserved(&totals(&shards), &rows).is_err());
    }
}
