//! `gyre check`: whether a pipeline file, its tables and its columns are valid.

use crate::cli::args::PipelineArgs;
use crate::cli::commands::opening::with_run;
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Result, counted};
use std::sync::Arc;

/// Plans a run, and prints the numbers of its tables, fits and checks.
///
/// # Errors
/// If the run cannot be planned, or its output would be among its inputs.
pub(super) fn check(args: &PipelineArgs, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    with_run(args, terminal, async |run| {
        run.check_places(&run.output()?, false).await?;
        let job = run.job();
        let checks = match job.checks.len() {
            0 => String::new(),
            n => format!(", {}", counted(n, "check")),
        };
        let tables = counted(job.tables.len(), "table");
        let fits = counted(run.n_fits(), "fit");
        let path = args.path.display();
        let what = format!("{tables}, {fits} per model{checks}");
        terminal.say(&format!("{path} is valid: {what}"));
        Ok(Done::Well)
    })
}
