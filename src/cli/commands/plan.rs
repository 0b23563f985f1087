//! `gyre plan`: what a run would read, compute and write.

use crate::cli::args::Plan;
use crate::cli::commands::opening::with_run;
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Result, printable_json};
use std::sync::Arc;

#[cfg(feature = "cluster")]
use crate::cluster::preview::preview;
#[cfg(feature = "cluster")]
use crate::run::workers::SPLIT;
#[cfg(feature = "cluster")]
use serde_json::json;

/// Prints what a run would read, compute and write.
///
/// # Errors
/// If the run cannot be planned, or its output would be among its inputs.
pub(super) fn plan(mut args: Plan, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    args.pipeline.set.extend(args.tables.set());
    with_run(&args.pipeline, terminal, async |run| {
        run.check_places(&run.output()?, false).await?;
        let needs = run.needs().await?;
        #[cfg(feature = "cluster")]
        let preview = match &args.cluster {
            Some(address) => {
                let split = args.split.unwrap_or(SPLIT);
                Some(preview(address, run.as_ref(), split).await?)
            }
            None => None,
        };
        let mut plan = run.plan();
        if args.json {
            plan.json["memory"] = needs.json;
            #[cfg(feature = "cluster")]
            if let Some(preview) = &preview {
                plan.json["cluster"] = json!(preview);
            }
            let text = format!("{:#}", plan.json);
            return terminal.print(&printable_json(&text)).map(|()| Done::Well);
        }
        terminal.print(&plan.text)?;
        terminal.print(&needs.text)?;
        #[cfg(feature = "cluster")]
        if let Some(preview) = preview {
            terminal.print(&preview.to_string())?;
        }
        Ok(Done::Well)
    })
}
