//! What another machine does for a run, alone: a task's bytes → the bytes of its answer.
//!
//! A task names its output, where the plan and what other tasks of it left lie as parts; what it makes itself and is large, it leaves
//! there too, and answers where that is. The options of the pipeline say how to ask stores; where they are, and who asks, the environment of
//! the process that does the task. A task depends on the plan and on what it names, never on the clock, on threads or on who asks: done again, it
//! comes to the same bytes but for the times that records tell.
//!
//! `counting`, `fitting` and `passing` do the work; `rounds` says which tasks there are.

mod cache;
mod counting;
mod fitting;
mod passing;

pub use counting::{Matrices, Matrix, Rows, Slice, Summed};
pub use fitting::{Fitted, Group};
pub use passing::{Cut, Pass, Unit, n_units, outline};

use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::nodes::Task;
use crate::plan::Plan;
use crate::read::Resources;
use crate::stores::{Stores, Told};
use crate::write::{Output, Piece};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// What the bytes of a task begin with: the version that wrote the rest.
const FORMAT: &[u8] = concat!("gyre task ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Where a task finds what it works on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Site {
    /// The location of the output.
    output: String,
    options: Told,
    /// The hash of the plan, and its bytes.
    plan: String,
    bytes: Piece,
}

/// What there is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Work {
    /// Rows of some files → so many lots of whole trajectories: a piece each.
    Deal { files: Slice, lots: usize },
    /// Rows → their sums, in so many lots of partitions (or of sources, where there are none): [`Summed`].
    Sum { rows: Rows, lots: usize },
    /// Sums → the sum of them: a piece. `direct`: integer states are their own ids in all of them.
    Add { sums: Vec<Piece>, direct: bool },
    /// Sums → the counts of their partitions: [`Matrices`].
    Count { sums: Vec<Piece>, direct: bool },
    /// All rows → the counts of all partitions: [`Matrices`].
    CountAll,
    /// Counts → models: of each its [`Fitted`], or why there is none. `labels`: how many sets each given partition has.
    Fit {
        groups: Vec<Group>,
        labels: Vec<usize>,
    },
    /// Counts → the same in units: [`Cut`].
    Cut {
        group: Group,
        /// Tasks that there can be at once.
        slots: u64,
    },
    /// One unit of a pass → its rows.
    Pass(Pass),
}

impl Work {
    fn name(&self) -> &'static str {
        match self {
            Work::Deal { .. } => "deal",
            Work::Sum { .. } => "sum",
            Work::Add { .. } => "add",
            Work::Count { .. } | Work::CountAll => "count",
            Work::Fit { .. } => "fit",
            Work::Cut { .. } => "cut",
            Work::Pass(_) => "pass",
        }
    }
}

impl Site {
    /// That of a run: its plan becomes a part of its work.
    pub async fn of(plan: &Plan, output: &Output) -> Result<Site> {
        let bytes = output.put_part(&plan.hash, vec![pack(plan)?]).await?;
        let location = output.shown();
        let location = match location.contains("://") {
            true => location.to_string(),
            false => {
                let path = std::path::absolute(location).map_err(|e| {
                    let what = format!("{location} has no absolute path");
                    Error::with_source(Kind::Spec, what, e)
                })?;
                path.to_string_lossy().into_owned()
            }
        };
        Ok(Site {
            output: location,
            options: plan.stores.told(),
            plan: plan.hash.clone(),
            bytes: bytes
                .into_iter()
                .next()
                .ok_or_else(|| Error::bug("a plan has no bytes"))?,
        })
    }

    /// A task of the run.
    pub fn task(&self, work: &Work) -> Result<Task> {
        let mut bytes = FORMAT.to_vec();
        bytes.extend(pack(&(self, work))?);
        Ok(Task { bytes })
    }
}

/// Does a task with what this process may use.
pub fn perform(task: &[u8], resources: &Resources) -> BoxFuture<'static, Result<Vec<u8>>> {
    let told = read(task);
    let resources = *resources;
    Box::pin(async move {
        let (site, work) = told?;
        let stores = site.options.stores()?;
        let output = Output::open(&site.output, &stores)?;
        let plan: Plan = unpack(&output.piece(&site.plan, &site.bytes).await?)?;
        let bench = Bench {
            plan: Arc::new(plan),
            output,
            stores,
            resources,
        };
        let (start, name) = (Instant::now(), work.name());
        let answer = match work {
            Work::Deal { files, lots } => pack(&bench.deal(files, lots).await?),
            Work::Sum { rows, lots } => pack(&bench.sum(rows, lots).await?),
            Work::Add { sums, direct } => pack(&bench.add(&sums, direct).await?),
            Work::Count { sums, direct } => pack(&bench.count(&sums, direct).await?),
            Work::CountAll => pack(&bench.count_all().await?),
            Work::Fit { groups, labels } => pack(&bench.fit(groups, labels).await?),
            Work::Cut { group, slots } => pack(&bench.cut(group, slots).await?),
            Work::Pass(pass) => bench.pass(pass).await,
        };
        // A pass takes little, and comes again at once.
        if name != "pass" {
            memory::give_back();
        }
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(work = name, plan = bench.plan.hash, seconds, "task done");
        answer
    })
}

fn read(task: &[u8]) -> Result<(Site, Work)> {
    let Some(rest) = task.strip_prefix(FORMAT) else {
        let own = env!("CARGO_PKG_VERSION");
        let what = format!("a task is not one of gyre {own}; run one version on all machines");
        return Err(Error::spec(what));
    };
    unpack(rest)
}

/// Whoever does a task, and what it does it with.
struct Bench {
    plan: Arc<Plan>,
    output: Output,
    stores: Stores,
    resources: Resources,
}

impl Bench {
    /// The bytes of some pieces, in their order.
    async fn pieces(&self, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        self.output.pieces(&self.plan.hash, pieces).await
    }

    async fn put(&self, pieces: Vec<Vec<u8>>) -> Result<Vec<Piece>> {
        self.output.put_part(&self.plan.hash, pieces).await
    }
}

/// Does what takes a processor for a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, "a task died", e))?
}

/// Anything as bytes.
pub fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(value);
    bytes.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be written", e))
}

/// What [`pack`] has written.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let value = postcard::from_bytes(bytes);
    value.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be understood", e))
}
