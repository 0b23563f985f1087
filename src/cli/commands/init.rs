//! `gyre init`: a first pipeline file for a table.

use crate::cli::args::{Cli, Command, Init};
use crate::cli::commands::{run, unwritten};
use crate::cli::terminal::{Done, Terminal, built, leave, start};
use crate::error::{Error, Kind, Result};
use crate::plan::pipeline::Pipeline;
use crate::read::lake;
use crate::run::init::pipeline;
use crate::run::init::text::Places;
use clap::Parser;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Builder;

/// Looks at a table, and prints or writes a pipeline file, which it may run.
///
/// # Errors
/// If the table cannot be read, its columns have no roles, or the file exists already. Else that of
/// the run.
pub(super) fn init(args: &Init, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let exists = |to: &Path| {
        let to = to.display();
        let what = format!("{to} exists already; choose another name with -o");
        Err(Error::spec(what))
    };
    if let Some(to) = args.to.as_deref().filter(|to| to.exists()) {
        return exists(to);
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let runtime = if args.run {
        // The run starts the threads that compute, which a process does once.
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads);
        built(builder.thread_stack_size(lake::STACK_BYTES))?
    } else {
        start(threads, None, &std::env::temp_dir())?
    };
    let places = places(&args.data, args.to.as_deref())?;
    let text = runtime.block_on(pipeline(&args.data, &places, args.given()))?;
    let Some(to) = &args.to else {
        return terminal.print(text.trim_end()).map(|()| Done::Well);
    };
    let created = std::fs::File::create_new(to).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    match created {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return exists(to),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let to = to.display();
            let what = format!("{to} cannot be written: its folder does not exist");
            return Err(Error::spec(what));
        }
        Err(e) => return Err(unwritten(to, e)),
    }
    let shown = to.display();
    if args.run {
        terminal.say(&format!("written: {shown}"));
        leave(runtime);
        return run_file(to, terminal);
    }
    let next = format!("gyre check {shown}, gyre run {shown}");
    terminal.say(&format!("written: {shown}; next: {next}"));
    Ok(Done::Well)
}

/// Runs a pipeline file, draws its result, and says where the drawing is.
fn run_file(file: &Path, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let mut words = vec![OsStr::new("gyre"), OsStr::new("run")];
    if cfg!(feature = "report") {
        words.push(OsStr::new("--report"));
    }
    words.extend([OsStr::new("--"), file.as_os_str()]);
    let parsed = Cli::try_parse_from(words)
        .map_err(|e| Error::bug(format!("the command of the run is wrong: {e}")))?;
    let Command::Run(args) = parsed.command else {
        return Err(Error::bug("the command of the run is another one"));
    };
    let done = run::run(args, terminal)?;
    let output = Pipeline::from_file_with(file, &[])?.job.output;
    let report = Path::new(&output).join("current").join("report.html");
    if report.exists() {
        terminal.say(&format!("report: {}", report.display()));
    }
    Ok(done)
}

/// How a pipeline file at `to` names the table at `data`: relative to the folder of the file.
/// Results are relative to the current folder. Those of a folder go beside it, because its files
/// are its rows.
fn places(data: &str, to: Option<&Path>) -> Result<Places> {
    let mut places = Places {
        shown: data.into(),
        table: data.into(),
        results: "out".into(),
    };
    if data.contains("://") {
        return Ok(places);
    }
    let whole = |path: &Path| {
        let whole = std::path::absolute(path).map(|path| normal(&path));
        whole.map_err(|e| {
            let what = format!("the place of {} cannot be found", path.display());
            Error::with_source(Kind::Resources, what, e)
        })
    };
    let file = whole(to.unwrap_or(Path::new("pipeline.toml")))?;
    let (current, table) = (whole(Path::new("."))?, whole(Path::new(data))?);
    if !Path::new(data).is_absolute() {
        places.table = relative(file.parent().unwrap_or(&current), &table);
    }
    if let Some(beside) = table.parent()
        && Path::new(data).is_dir()
        && current.join(&places.results).starts_with(&table)
    {
        places.results = relative(&current, &beside.join(&places.results));
    }
    Ok(places)
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// The path from a folder to a place.
fn relative(folder: &Path, to: &Path) -> String {
    let shared = folder.components().zip(to.components());
    let shared = shared.take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(shared);
    let up = up.map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(to.components().skip(shared)).collect();
    if path.as_os_str().is_empty() {
        return ".".into();
    }
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_in_the_folder_of_the_file() {
        let of = |folder: &str, to: &str| relative(Path::new(folder), Path::new(to));
        assert_eq!(of("/a/jobs", "/a/lake/x.csv"), "../lake/x.csv");
        assert_eq!(of("/a", "/a/lake"), "lake");
        assert_eq!(of("/a/lake", "/a/lake"), ".");
        assert_eq!(of("/a/lake/jobs", "/a/out"), "../../out");
        assert_eq!(normal(Path::new("/a/./b/../c")), Path::new("/a/c"));
    }
}
