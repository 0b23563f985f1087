//! Runs the commands: parsed arguments → threads, lake, plan and the stage that does the work →
//! printed text.
//!
//! [`execute`] belongs to the library and is neither generic nor async. A future is compiled where
//! it is polled, with everything that it awaits, so polling one in the program would compile most
//! of the library again.
//!
//! - `stopping`: work that a signal can stop, and how it ends.
//! - `opening`: from a pipeline file to the tables and the plan of a run.
//! - `reference`: the commands `schema`, `completions` and `man`.
//! - The other files contain a command each, and `cluster` the commands of clusters.

mod assign;
mod check;
mod clean;
#[cfg(feature = "cluster")]
mod cluster;
mod compare;
mod explain;
mod init;
#[cfg(feature = "report")]
mod inspect;
mod opening;
mod plan;
mod reference;
#[cfg(feature = "report")]
mod report;
mod restore;
mod run;
mod stopping;

use crate::cli::args::Command;
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Error, Kind, Result};
use std::path::Path;
use std::sync::Arc;

/// Runs one command to its end.
///
/// # Errors
/// The error of the command; its kind determines the exit code.
pub fn execute(command: Command, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    if !matches!(
        command,
        Command::Schema | Command::Completions { .. } | Command::Man(_)
    ) {
        check_file_limit()?;
    }
    match command {
        Command::Schema => reference::schema(terminal.as_ref()),
        Command::Completions { shell } => reference::completions(shell, terminal.as_ref()),
        Command::Man(args) => reference::man(&args, terminal.as_ref()),
        Command::Compare(args) => compare::compare(&args, terminal.as_ref()),
        Command::Init(args) => init::init(&args, terminal),
        Command::Restore(args) => restore::restore(&args, terminal.as_ref()),
        #[cfg(feature = "report")]
        Command::Inspect(args) => inspect::inspect(&args, terminal.as_ref()),
        #[cfg(feature = "report")]
        Command::Report(args) => report::report(&args, terminal.as_ref()),
        Command::Clean(args) => clean::clean(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Scheduler(args) => cluster::scheduler(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Executor(args) => cluster::executor(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Cluster(crate::cli::args::Cluster::Up(args)) => {
            cluster::up(&args, terminal.as_ref())
        }
        Command::Check(args) => check::check(&args, terminal),
        Command::Plan(args) => plan::plan(args, terminal),
        Command::Explain(args) => explain::explain(&args, terminal),
        Command::Assign(args) => assign::assign(&args, terminal),
        Command::Run(args) => run::run(args, terminal),
    }
}

/// The error of a file that a command cannot write.
fn unwritten(to: &Path, e: std::io::Error) -> Error {
    let what = format!("{} cannot be written", to.display());
    Error::with_source(Kind::Resources, what, e)
}

/// The minimum number of files that a command needs to open.
const MIN_FILES: u64 = 64;

/// Fails if the limit of open files is so low that the runtime would panic.
fn check_file_limit() -> Result<()> {
    #[cfg(unix)]
    {
        let mut files = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call fills the structure, which holds only numbers.
        let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) } == 0;
        if is_known && files.rlim_cur < MIN_FILES {
            let what = format!(
                "the limit of open files is {}, and gyre needs {MIN_FILES}; raise the limit (`ulimit -n {MIN_FILES}`)",
                files.rlim_cur
            );
            return Err(Error::new(Kind::Resources, what));
        }
    }
    Ok(())
}
