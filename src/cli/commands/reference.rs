//! `gyre schema`, `gyre completions` and `gyre man`: texts about gyre itself.

use crate::cli::args::{Man, command};
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Error, Kind, Result};
use crate::plan::pipeline::json_schema;
use clap_complete::Shell;
use std::fs;

/// Prints the JSON Schema of pipeline files.
pub(super) fn schema(terminal: &dyn Terminal) -> Result<Done> {
    let text = serde_json::to_string_pretty(&json_schema());
    let text =
        text.map_err(|e| Error::with_source(Kind::Bug, "the schema cannot be written as JSON", e))?;
    terminal.print(&text).map(|()| Done::Well)
}

/// Prints the script that completes commands in a shell.
pub(super) fn completions(shell: Shell, terminal: &dyn Terminal) -> Result<Done> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "gyre", &mut script);
    let script = String::from_utf8_lossy(&script);
    terminal.print(script.trim_end()).map(|()| Done::Well)
}

/// Prints one manual page, or writes all of them to a folder, which is made if it is missing.
///
/// # Errors
/// If there is no such page, or the folder cannot be written.
pub(super) fn man(args: &Man, terminal: &dyn Terminal) -> Result<Done> {
    let Some(folder) = &args.out else {
        let page = manual(&args.command)?;
        return terminal.print(page.trim_end()).map(|()| Done::Well);
    };
    let written = fs::create_dir_all(folder);
    let written = written.and_then(|()| clap_mangen::generate_to(command(), folder));
    written.map_err(|e| {
        let what = format!("manual pages cannot be written to {}", folder.display());
        Error::with_source(Kind::Resources, what, e)
    })?;
    terminal.say(&format!("wrote the manual pages to {}", folder.display()));
    Ok(Done::Well)
}

/// The manual page of a command, given by its words.
fn manual(words: &[String]) -> Result<String> {
    let mut command = command().disable_help_subcommand(true);
    command.build();
    let mut of = &command;
    for word in words {
        let commands = || of.get_subcommands().filter(|c| !c.is_hide_set());
        let names: Vec<&str> = commands().map(|c| c.get_name()).collect();
        let known = names.join(", ");
        of = commands().find(|c| c.get_name() == word).ok_or_else(|| {
            let known = if known.is_empty() { "none" } else { &known };
            Error::spec(format!(
                "there is no manual page for `{word}`; there are pages for: {known}"
            ))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(of.clone())
        .render(&mut page)
        .map_err(|e| Error::with_source(Kind::Bug, "the manual page cannot be made", e))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
