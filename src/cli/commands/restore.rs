//! `gyre restore`: an earlier result becomes the result again.

use crate::cli::args::Restore;
use crate::cli::terminal::{Done, Terminal, runtime_without_threads};
use crate::error::Result;
use crate::output::place::Output;
use crate::store::Stores;

/// Puts an earlier result back in place, or prints the names of the earlier results.
///
/// # Errors
/// If there is no such result, or the output cannot be read or written.
pub(super) fn restore(args: &Restore, terminal: &dyn Terminal) -> Result<Done> {
    let mut output = Output::open(&args.output, &Stores::default())?;
    output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
    runtime_without_threads()?.block_on(async {
        let Some(run) = &args.run else {
            // Also if the current result is damaged.
            let seen = output.pointer().await?;
            let earlier = seen.map(|seen| seen.current.earlier).unwrap_or_default();
            return terminal.print(&earlier.join("\n")).map(|()| Done::Well);
        };
        let text = if output.restore(run).await? {
            format!("{run} is the result of {} again", output.shown())
        } else {
            "Nothing to do.".to_string()
        };
        terminal.say(&text);
        Ok(Done::Well)
    })
}
