//! `gyre report`: pictures of a result, as one page or as files.

use crate::cli::args::{Report, ReportFormat};
use crate::cli::commands::unwritten;
use crate::cli::terminal::{Done, Terminal, runtime_of_one_thread};
use crate::error::Result;
use crate::output::place::{Companion, Output};
use crate::read::paths::current::Current;
use crate::report::{Choice, page, write_beside};
use crate::store::Stores;
use async_trait::async_trait;
use std::path::{Path, PathBuf};

/// Draws a result.
///
/// # Errors
/// If there is no result, or nothing can be written.
pub(super) fn report(args: &Report, terminal: &dyn Terminal) -> Result<Done> {
    // Polars blocks, which it may only in a runtime with threads.
    let runtime = runtime_of_one_thread()?;
    let output = Output::open(&args.output, &Stores::default())?;
    let run = args.version.as_deref();
    let choice = Choice {
        partition: &args.partition,
        trajectory: args.trajectory.as_deref(),
    };
    let page = runtime.block_on(page(&output, run, &choice))?;
    match args.format {
        ReportFormat::Html => {
            let to = or(&args.to, "report.html");
            write(&to, &page.html())?;
            terminal.say(&format!("written: {}", to.display()));
        }
        ReportFormat::Svg => {
            let folder = or(&args.to, "report");
            std::fs::create_dir_all(&folder).map_err(|e| unwritten(&folder, e))?;
            let mut n = 0;
            for (at, section) in page.sections.iter().enumerate() {
                let several = (page.sections.len() > 1).then(|| format!("{at}-"));
                let model = several.unwrap_or_default();
                for figure in &section.figures {
                    let file = format!("{model}{}.svg", figure.name);
                    write(&folder.join(file), &figure.standalone())?;
                    n += 1;
                }
            }
            terminal.say(&format!("written: {n} pictures in {}", folder.display()));
        }
    }
    Ok(Done::Well)
}

fn or(to: &Option<PathBuf>, default: &str) -> PathBuf {
    to.clone().unwrap_or_else(|| PathBuf::from(default))
}

fn write(to: &Path, text: &str) -> Result<()> {
    std::fs::write(to, text).map_err(|e| unwritten(to, e))
}

/// Writes the page of a run beside its tables.
pub(super) struct Beside;

#[async_trait]
impl Companion for Beside {
    async fn write(&self, output: &Output, staged: &Current, before: Option<&str>) -> Result<()> {
        write_beside(output, staged, before).await
    }
}
