//! `gyre clean`: deletes what earlier runs left.

use crate::cli::args::Clean;
use crate::cli::terminal::{Done, Terminal, runtime_of_one_thread};
use crate::error::Result;
use crate::output::place::Output;
use crate::output::retention::Cleaning;
use crate::plan::pipeline::Pipeline;
use crate::read::lake::spill;
use crate::store::Stores;

/// Deletes the remains of earlier runs of a pipeline, or prints what would be deleted.
///
/// # Errors
/// If the pipeline is not valid, or its output cannot be read or written.
pub(super) fn clean(args: &Clean, terminal: &dyn Terminal) -> Result<Done> {
    let pipeline = Pipeline::from_file_with(&args.path, &args.set)?;
    let stores = Stores::from(&pipeline.store);
    let mut output = Output::open(&pipeline.job.output, &stores)?;
    output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
    let cleaning = Cleaning {
        keep: pipeline.job.keep as usize,
        older_than: args.older_than.0,
        dry_run: args.dry_run,
    };
    let mut cleaned = runtime_of_one_thread()?.block_on(output.clean(&cleaning))?;
    cleaned.spilled = spill::sweep(&std::env::temp_dir(), args.dry_run);
    if args.dry_run {
        terminal.print(&cleaned.to_string())?;
    } else {
        terminal.say(&cleaned.to_string());
    }
    Ok(Done::Well)
}
