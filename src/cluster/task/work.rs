//! What a task does: its site and its work.

use crate::cluster::nodes::Task;
use crate::cluster::task::counting::{Rows, Slice};
use crate::cluster::task::fitting::Group;
use crate::cluster::task::passing::UnitPass;
use crate::error::{Error, Kind, Result};
use crate::evidence::pass::packed::pack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::plan::Plan;
use crate::store::shared_options::SharedOptions;
use serde::{Deserialize, Serialize};

/// The first bytes of a task: the version of gyre, and of tasks within it.
pub(crate) const FORMAT: &[u8] =
    concat!("gyre task ", env!("CARGO_PKG_VERSION"), " 3\n").as_bytes();

/// Where a task finds what it works on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Site {
    /// The location of the output.
    pub(crate) output: String,
    pub(crate) options: SharedOptions,
    /// The hash of the plan, and its bytes.
    pub(crate) plan: String,
    pub(crate) bytes: Piece,
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
    Pass(UnitPass),
}

impl Work {
    pub(crate) fn name(&self) -> &'static str {
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
            options: plan.stores.shared(),
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
