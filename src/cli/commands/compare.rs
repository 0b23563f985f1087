//! `gyre compare`: how the models of two outputs correspond.

use crate::cli::args::Compare;
use crate::cli::terminal::{Done, Terminal, runtime_without_threads};
use crate::error::{Result, printable_json};
use crate::run::compare::kind_of_both;
use crate::run::planned::{kind_named, kinds};

/// Prints a report on two outputs.
///
/// # Errors
/// If an output cannot be read, or the outputs cannot be compared.
pub(super) fn compare(args: &Compare, terminal: &dyn Terminal) -> Result<Done> {
    let (a, b, fits, lag) = (&args.a, &args.b, &args.fit, args.lag.as_ref());
    let report = runtime_without_threads()?.block_on(async {
        let kind = kind_named(&kinds(), &kind_of_both(a, b).await?)?;
        kind.compare(a, b, fits, lag).await
    })?;
    let text = if args.json {
        printable_json(&format!("{:#}", report.json)).into_owned()
    } else {
        report.text
    };
    terminal.print(&text).map(|()| Done::Well)
}
