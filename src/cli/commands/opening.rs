//! From a pipeline file to the tables and the plan of a run.

use crate::cli::args::PipelineArgs;
use crate::cli::commands::stopping::stoppable;
use crate::cli::terminal::{Done, Terminal, leave, start};
use crate::error::Result;
use crate::memory;
use crate::plan::pipeline::Pipeline;
use crate::read::lake::Resources;
use crate::run::inputs::Inputs;
use crate::run::planned::AnyRun;
use crate::store::Stores;
use std::sync::Arc;

/// Reads a pipeline file, plans its run and passes it to `then`.
pub(super) fn with_run(
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(Box<dyn AnyRun>) -> Result<Done>,
) -> Result<Done> {
    let pipeline = Pipeline::from_file_with(&args.path, &args.set)?;
    with_inputs(pipeline, args, terminal, async |inputs| {
        then(stoppable(inputs.plan_any(args.seed), terminal.as_ref()).await?).await
    })
}

/// Starts the threads, opens the tables of a pipeline and passes them to `then`.
pub(super) fn with_inputs(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(Inputs) -> Result<Done>,
) -> Result<Done> {
    let threads = match args.threads {
        Some(n) => n.get(),
        None => Resources::default().threads,
    };
    let bound = args.memory.map(|m| m.0 as usize);
    let runtime = start(threads, bound, &std::env::temp_dir())?;
    let done = runtime.block_on(async {
        let resources = Resources {
            threads,
            // The program takes the rest of the bound.
            memory_bytes: bound.map(|bytes| bytes - memory::least(threads)),
        };
        let stores = Stores::from(&pipeline.store);
        let opening = pipeline.open_with(&resources, &stores);
        let inputs = stoppable(opening, terminal.as_ref()).await?;
        then(inputs).await
    });
    leave(runtime);
    done
}
