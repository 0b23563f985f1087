//! The program: parses the command line, starts logging, runs one command, and maps its outcome to an exit code.

mod terminal;

use clap::Parser;
use gyre::cli::args::{Cli, LogFormat, Logging};
use gyre::cli::commands::execute;
use gyre::cli::terminal::Terminal;
use gyre::memory::allocator::Bounded;
use gyre::store::secrets;
use std::process::ExitCode;
use std::sync::Arc;
use terminal::Bars;

#[global_allocator]
static MEMORY: Bounded = Bounded;

fn main() -> ExitCode {
    secrets::learn_environment();
    let Cli { logging, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return terminal::usage(&e),
    };
    start_logging(&logging);
    terminal::tell_panics();
    if let Err(e) = terminal::hear_signals() {
        terminal::report(&e);
        return ExitCode::from(e.kind().exit_code());
    }
    let terminal: Arc<dyn Terminal> = Arc::new(Bars::new(logging.quiet));
    match execute(command, &terminal) {
        Ok(done) => ExitCode::from(done.exit_code()),
        Err(e) => {
            terminal::report(&e);
            ExitCode::from(e.kind().exit_code())
        }
    }
}

fn start_logging(logging: &Logging) {
    let level = match (logging.quiet, logging.verbose) {
        (true, _) => "error",
        // Machines hear of every stage; people see its bar.
        (false, 0) if logging.log_format == LogFormat::Json => "gyre=info,warn",
        (false, 0) => "warn",
        (false, 1) => "gyre=info,warn",
        (false, 2) => "gyre=debug,info",
        // What these trace holds the headers of requests, and so what signs them.
        (false, _) => "trace,h2=info,hyper=info,hyper_util=info,reqwest=info,rustls=info",
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(|| terminal::Log)
        // It would tell on stderr that stderr cannot be written, which panics.
        .log_internal_errors(false)
        .with_target(false);
    terminal::set_format(logging.log_format);
    match logging.log_format {
        LogFormat::Text => builder.with_ansi(terminal::is_interactive()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
