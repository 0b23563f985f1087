//! Counts and decomposes windows on other machines, in rounds of tasks.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ sum ─ add ─ count ─▶ counts of partitions
//! counts of partitions ─ project ─▶ this process: models, filtering, tables
//! ```
//!
//! Counts are integers, and a decomposition depends on the counts and the seed alone, so all tables
//! have the bytes of a run on one machine.

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::counting;
use crate::cluster::rounds::counting::CountRounds;
use crate::cluster::rounds::requests::Requests;
use crate::cluster::rounds::slices::{Width, packed};
use crate::cluster::task::sequences::SequencesWork;
use crate::cluster::task::work::{PlanSite, Work};
use crate::error::{Error, Result};
use crate::evidence::pass::packed::unpack_result;
use crate::methods::hmm::project::Projection;
use crate::output::parts::Piece;
use crate::plan::sequences::SequencesPlan;
use crate::run::increment::Counting;
use crate::run::sequences::site::{SequenceCounts, SequenceJob, SequenceSite};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most tasks that decompose the counts of partitions.
const TASKS: u64 = 64;

/// The width of a plan.
///
/// # Errors
/// Why one task reads all files.
pub fn width(plan: &SequencesPlan, frame: &DataFrame) -> Result<Width, String> {
    let mut width = counting::width(&plan.counting(), frame)?;
    width.rounds.push("project");
    Ok(width)
}

/// Counts the windows of one run on other machines.
pub struct RemoteSequences {
    nodes: Arc<dyn Nodes>,
}

impl RemoteSequences {
    /// A site for one run.
    pub fn new(nodes: Arc<dyn Nodes>) -> RemoteSequences {
        RemoteSequences { nodes }
    }

    async fn counted(&self, job: &SequenceJob<'_>) -> Result<SequenceCounts> {
        let (plan, output) = (job.plan, job.output);
        let nodes = Arc::clone(&self.nodes);
        let progress = job.progress.as_ref();
        let rounds = CountRounds::begin(plan.counting(), output, nodes, progress).await?;
        let mut remote = rounds.count(job.frame).await?;
        let full: Vec<usize> = (0..remote.units.len())
            .filter(|&at| remote.units[at].matrix.nonzeros > 0)
            .collect();
        let sizes = full.iter().map(|&at| remote.units[at].matrix.nonzeros);
        let total: u64 = sizes.clone().sum();
        let bins = packed(sizes, total.div_ceil(TASKS));
        let rows = remote.counted.rows;
        let work = bins.iter().map(|bin| {
            Work::Sequences(SequencesWork::Project {
                groups: counting::groups(&remote, &full[bin.clone()]),
                rows,
            })
        });
        let requests = Requests {
            site: PlanSite::of(&plan.job.hash, &plan.job.stores, plan.as_ref(), output).await?,
            nodes: Arc::clone(&self.nodes),
            progress,
        };
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
        Ok(SequenceCounts {
            counting: Counting {
                counted: rounds.whole(remote).await?,
                ledger: None,
                record,
            },
            projections,
        })
    }
}

impl SequenceSite for RemoteSequences {
    fn count<'a>(&'a self, job: &'a SequenceJob<'_>) -> BoxFuture<'a, Result<SequenceCounts>> {
        Box::pin(self.counted(job))
    }
}
