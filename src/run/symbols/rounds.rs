//! Counts and decomposes windows on other machines, in rounds of tasks.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ sum ─ add ─ count ─▶ counts of partitions
//! counts of partitions ─ project ─▶ this process: models, filtering, tables
//! ```
//!
//! Counts are integers, and a decomposition depends on the counts and the seed alone, so all tables
//! have the bytes of a run on one machine.

use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack_result};
use crate::methods::hmm::project::Projection;
use crate::output::parts::Piece;
use crate::plan::symbols::SymbolsPlan;
use crate::run::Planned;
use crate::run::counting::increment::Counting;
use crate::run::counting::rounds::{self, CountRounds, groups};
use crate::run::kind::Running;
use crate::run::symbols::kind::SymbolsKind;
use crate::run::symbols::tasks::SymbolsWork;
use crate::run::workers::executor::TaskExecutor;
use crate::run::workers::nodes::Nodes;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::{Width, packed};
use crate::run::workers::task::{TaskPlace, Tasks};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most tasks that decompose the counts of partitions.
const TASKS: u64 = 64;

impl Tasks for SymbolsKind {
    type Work = SymbolsWork;

    fn name(work: &SymbolsWork) -> &'static str {
        match work {
            SymbolsWork::Counting(work) => work.name(),
            SymbolsWork::Project { .. } => "project",
        }
    }

    async fn perform(place: TaskPlace, work: SymbolsWork) -> Result<Vec<u8>> {
        match work {
            SymbolsWork::Counting(work) => place.executor()?.counting(work).await,
            SymbolsWork::Project { groups, rows } => {
                let executor: TaskExecutor<SymbolsPlan> = place.executor()?;
                pack(&executor.project(groups, rows).await?)
            }
        }
    }

    fn width(planned: &Planned<SymbolsKind>) -> Result<Width, String> {
        let mut width = rounds::width(&planned.plan.counting(), &planned.frame)?;
        width.rounds.push("project");
        Ok(width)
    }
}

/// Counts the windows of a run, and decomposes them. The decompositions, or why there is none, are
/// by partition, in the order of [`project_partition`](super::fit::project_partition).
///
/// # Errors
/// If a task fails.
pub(super) async fn count(
    run: &Running<'_, SymbolsKind>,
    nodes: &Arc<dyn Nodes>,
) -> Result<(Counting, BTreeMap<usize, Result<Vec<Projection>>>)> {
    let (plan, output) = (run.plan, run.output);
    let counting = plan.counting();
    let rounds = CountRounds::begin(run, counting, nodes, SymbolsWork::Counting).await?;
    let mut remote = rounds.count(run.frame).await?;
    let full: Vec<usize> = (0..remote.units.len())
        .filter(|&at| remote.units[at].matrix.nonzeros > 0)
        .collect();
    let sizes = full.iter().map(|&at| remote.units[at].matrix.nonzeros);
    let total: u64 = sizes.clone().sum();
    let bins = packed(sizes, total.div_ceil(TASKS));
    let rows = remote.counted.rows;
    let work = bins.iter().map(|bin| SymbolsWork::Project {
        groups: groups(&remote, &full[bin.clone()]),
        rows,
    });
    let requests = Requests::of(run, nodes).await?;
    let answers: Vec<Vec<Piece>> = requests.all("project", work.collect()).await?;
    let pieces = answers.concat();
    if pieces.len() != full.len() {
        return Err(Error::bug("tasks decomposed other counts than requested"));
    }
    let mut projections: BTreeMap<usize, Result<Vec<Projection>>> = BTreeMap::new();
    for (&at, piece) in full.iter().zip(&pieces) {
        let projected = unpack_result(&output.piece(&plan.job.hash, piece).await?)?;
        projections.insert(remote.units[at].partition, projected);
    }
    let record = remote.record.take();
    let counting = Counting {
        counted: rounds.whole(remote).await?,
        ledger: None,
        record,
    };
    Ok((counting, projections))
}
