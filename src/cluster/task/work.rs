//! The content of a task: where its plan is, and what to do.

use crate::cluster::nodes::Task;
use crate::cluster::task::counting::CountingWork;
use crate::cluster::task::filters::FiltersWork;
use crate::cluster::task::fitting::CountsGroup;
use crate::cluster::task::passing::UnitPass;
use crate::cluster::task::points::PointsWork;
use crate::cluster::task::sequences::SequencesWork;
use crate::error::{Error, Kind, Result};
use crate::evidence::pass::packed::pack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::store::Stores;
use crate::store::shared_options::SharedOptions;
use serde::{Deserialize, Serialize};

/// The first bytes of a task: the version of gyre, and of tasks within it.
pub(crate) const FORMAT: &[u8] =
    concat!("gyre task ", env!("CARGO_PKG_VERSION"), " 7\n").as_bytes();

/// Where a task finds its plan and its data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanSite {
    /// The location of the output.
    pub(crate) output: String,
    /// The options of the stores.
    pub(crate) options: SharedOptions,
    /// The hash of the plan.
    pub(crate) plan: String,
    /// The plan.
    pub(crate) bytes: Piece,
}

/// The work of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Work {
    /// Work that counts rows.
    Counting(CountingWork),
    /// Counts → models, each a [`StoredModel`](crate::cluster::task::fitting::StoredModel) or an
    /// error. `labels`: the number of sets of each given partition.
    Fit {
        groups: Vec<CountsGroup>,
        labels: Vec<usize>,
    },
    /// Counts → the same in units: [`Cut`](crate::cluster::task::passing::Cut).
    Cut {
        group: CountsGroup,
        /// Number of tasks that can run at once.
        slots: u64,
    },
    /// A unit of a pass → its output rows.
    Pass(UnitPass),
    /// Work of a run over points.
    Points(PointsWork),
    /// Work of a run over sequences.
    Sequences(SequencesWork),
    /// Work of a run of filters.
    Filters(FiltersWork),
}

impl Work {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Work::Counting(work) => work.name(),
            Work::Fit { .. } => "fit",
            Work::Cut { .. } => "cut",
            Work::Pass(_) => "pass",
            Work::Points(work) => work.name(),
            Work::Sequences(work) => work.name(),
            Work::Filters(work) => work.name(),
        }
    }
}

impl PlanSite {
    /// Stores a plan for the tasks of a run. `hash` names it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn of(
        hash: &str,
        stores: &Stores,
        plan: &impl Serialize,
        output: &Output,
    ) -> Result<PlanSite> {
        let bytes = output.put_part(hash, vec![pack(plan)?]).await?;
        let location = output.shown();
        let location = if location.contains("://") {
            location.to_string()
        } else {
            let path = std::path::absolute(location).map_err(|e| {
                let what = format!("{location} has no absolute path");
                Error::with_source(Kind::Spec, what, e)
            })?;
            path.to_string_lossy().into_owned()
        };
        Ok(PlanSite {
            output: location,
            options: stores.shared(),
            plan: hash.to_string(),
            bytes: bytes
                .into_iter()
                .next()
                .ok_or_else(|| Error::bug("a plan has no bytes"))?,
        })
    }

    /// A task of the run.
    ///
    /// # Errors
    /// If it cannot be packed, which is a bug.
    pub fn task(&self, work: &Work) -> Result<Task> {
        let mut bytes = FORMAT.to_vec();
        bytes.extend(pack(&(self, work))?);
        Ok(Task { bytes })
    }
}
