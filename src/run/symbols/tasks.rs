//! Tasks of a run over sequences: the counts of partitions → their decompositions. Rows are counted
//! by the tasks of `counting`.

use crate::error::{Error, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::Passes;
use crate::evidence::pass::packed::pack_result;
use crate::output::parts::Piece;
use crate::plan::symbols::SymbolsPlan;
use crate::read::counts::counted::Counted;
use crate::read::symbols::windows::windows;
use crate::run::counting::tasks::{CountingWork, CountsGroup, read_counts};
use crate::run::symbols::fit::{place_in, project_partition};
use crate::run::workers::executor::{TaskExecutor, blocking};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The work of a task of a run over symbols.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum SymbolsWork {
    /// Work that counts windows.
    Counting(CountingWork),
    /// The counts of some partitions → the decompositions of each or its error, one piece per
    /// partition.
    Project { groups: Vec<CountsGroup>, rows: u64 },
}

impl TaskExecutor<SymbolsPlan> {
    pub(crate) async fn project(&self, groups: Vec<CountsGroup>, rows: u64) -> Result<Vec<Piece>> {
        let mut units: Vec<(Arc<Counted>, CountMatrix)> = Vec::new();
        for group in groups {
            let head: Arc<Counted> = Arc::new(self.unpacked(&group.head).await?);
            for pieces in &group.counts {
                let pieces = self.pieces(pieces).await?;
                units.push((Arc::clone(&head), read_counts(&pieces[0], &pieces[1])?));
            }
        }
        let plan = Arc::clone(&self.plan);
        let projected = blocking(move || {
            let project = |(head, matrix): (Arc<Counted>, CountMatrix)| {
                let place = place_in(&plan, &head, matrix.partition)?;
                let triples = windows(&head, &matrix)?.triples;
                let passes = Passes::local();
                pack_result(project_partition(&plan, &place, &triples, rows, &passes))
            };
            let all = units.into_par_iter().map(project);
            all.collect::<Result<Vec<Vec<u8>>, Error>>()
        });
        self.put(projected.await?).await
    }
}
