//! `gyre assign`: the rows of a pipeline and a model that a run has written.

use crate::cli::args::Assign;
use crate::cli::commands::opening::with_inputs;
use crate::cli::commands::stopping::{finish, stoppable, until_stopped};
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Error, Result};
use crate::output::place::Output;
use crate::plan::pipeline::Pipeline;
use crate::run::assign::kind::AssignOptions;
use crate::run::planned::without_transitions;
use crate::run::progress::Progress;
use std::sync::Arc;

/// Assigns the rows of a pipeline to a written model.
///
/// # Errors
/// That of the assignment.
pub(super) fn assign(args: &Assign, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let mut pipeline = Pipeline::from_file_with(&args.pipeline.path, &args.pipeline.set)?;
    if let Some(rows) = without_transitions(&pipeline).filter(|_| args.smoothing > 0.0) {
        return Err(Error::spec(format!(
            "--smoothing adds transitions between states, and {rows} have none; leave it out"
        )));
    }
    if let Some(output) = &args.output {
        pipeline.job.output.clone_from(output);
    }
    with_inputs(pipeline, &args.pipeline, terminal, async |inputs| {
        let planning = inputs.plan_any_assignment();
        let planned = stoppable(planning, terminal.as_ref()).await?;
        let (stores, place) = (&planned.lake().stores, planned.place());
        let model = Output::open(&args.model, stores)?;
        let mut output = Output::open(place, stores)?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        let options = AssignOptions {
            force: args.force,
            smoothing: args.smoothing,
        };
        let progress = Arc::clone(terminal) as Arc<dyn Progress>;
        let output = Arc::new(output);
        let to = Arc::clone(&output);
        let assign = move || async move { planned.assign(&model, &to, &options, progress).await };
        match until_stopped(assign, terminal.as_ref(), &output).await? {
            None => {
                terminal.say("Nothing to do.");
                Ok(Done::Well)
            }
            Some(finished) => Ok(finish(&finished, terminal.as_ref())),
        }
    })
}
