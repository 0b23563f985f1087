//! `gyre explain`: how the SQL of a pipeline would be executed.

use crate::cli::args::PipelineArgs;
use crate::cli::commands::opening::with_run;
use crate::cli::terminal::{Done, Terminal};
use crate::error::Result;
use std::sync::Arc;

/// Prints the SQL of a pipeline, its parameters and its plan.
///
/// # Errors
/// If the run cannot be planned.
pub(super) fn explain(args: &PipelineArgs, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    with_run(args, terminal, async |run| {
        let job = run.job();
        terminal.print(&format!("SQL\n{}\n", job.sql))?;
        for (name, value) in &job.parameters {
            terminal.print(&format!("${name} = {value}"))?;
        }
        terminal.print(&run.lake().explain(run.frame().clone()).await?)?;
        if let Some(text) = run.rows_text() {
            terminal.print(&format!("\nRows\n{text}"))?;
        }
        Ok(Done::Well)
    })
}
