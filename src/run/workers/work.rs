//! The content of a task: where its plan is, and what to do.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::packed::pack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::store::Stores;
use crate::store::shared_options::SharedOptions;
use serde::{Deserialize, Serialize};

/// The first bytes of a task: the version of gyre, and of tasks within it.
pub(crate) const FORMAT: &[u8] =
    concat!("gyre task ", env!("CARGO_PKG_VERSION"), " 8\n").as_bytes();

/// Where a task finds its plan and its data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PlanSite {
    /// The location of the output.
    pub(crate) output: String,
    /// The options of the stores.
    pub(crate) options: SharedOptions,
    /// The hash of the plan.
    pub(crate) plan: String,
    /// The plan.
    pub(crate) bytes: Piece,
}

impl PlanSite {
    /// Stores a plan for the tasks of a run. `hash` names it.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn of(
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
}
