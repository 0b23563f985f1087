//! `gyre compare`: how the sets of two outputs correspond.

use crate::cli::args::Compare;
use crate::cli::terminal::{Done, Terminal, runtime_without_threads};
use crate::error::{Error, Kind, Result, printable_json};
use crate::run::compare::{compare as compare_states, row_kind};
use crate::run::filters::compare::compare as compare_filters;
use crate::run::points::compare::compare as compare_points;
use crate::run::sequences::compare::compare as compare_sequences;
use serde::Serialize;
use std::fmt::Display;

/// Prints a report on two outputs.
///
/// # Errors
/// If an output cannot be read, or the outputs cannot be compared.
pub(super) fn compare(args: &Compare, terminal: &dyn Terminal) -> Result<Done> {
    let (a, b, fits, lag) = (&args.a, &args.b, &args.fit, args.lag.as_ref());
    let text = runtime_without_threads()?.block_on(async {
        let json = args.json;
        match row_kind(a, b).await?.as_str() {
            "points" => report_text(&compare_points(a, b, fits, lag).await?, json),
            "symbols" => report_text(&compare_sequences(a, b, fits, lag).await?, json),
            "observations" => report_text(&compare_filters(a, b, fits, lag).await?, json),
            _ => report_text(&compare_states(a, b, fits, lag).await?, json),
        }
    });
    terminal.print(&text?).map(|()| Done::Well)
}

/// A report as text, or as JSON.
fn report_text(report: &(impl Serialize + Display), json: bool) -> Result<String> {
    if !json {
        return Ok(report.to_string());
    }
    match serde_json::to_string_pretty(report) {
        Ok(text) => Ok(printable_json(&text).into_owned()),
        Err(e) => {
            let what = "the report cannot be written as JSON";
            Err(Error::with_source(Kind::Bug, what, e))
        }
    }
}
