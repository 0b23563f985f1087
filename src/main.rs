//! The program: parses the command line, starts logging, runs one command, and maps its outcome to
//! an exit code.
//!
//! This file also owns the terminal: results on stdout, progress and errors on stderr, and the
//! signals that stop a run. All printed text goes through [`hide`] and [`printable`]. A failure to
//! write to stderr is ignored and the run goes on.

use clap::Parser;
use futures::future::BoxFuture;
use gyre::cli::args::{Cli, LogFormat, Logging};
use gyre::cli::commands::execute;
use gyre::cli::terminal::Terminal;
use gyre::error::{Error, Kind, Result, printable, printable_json};
use gyre::memory;
use gyre::memory::allocator::Bounded;
use gyre::run::progress::Progress;
use gyre::store::secrets;
use gyre::store::secrets::hide;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[global_allocator]
static MEMORY: Bounded = Bounded;

fn main() -> ExitCode {
    secrets::learn_environment();
    let Cli { logging, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    start_logging(&logging);
    set_panic_hook();
    if let Err(e) = handle_signals() {
        report(&e);
        return ExitCode::from(e.kind().exit_code());
    }
    let terminal: Arc<dyn Terminal> = Arc::new(Bars::new(logging.quiet));
    match execute(command, &terminal) {
        Ok(done) => ExitCode::from(done.exit_code()),
        Err(e) => {
            report(&e);
            ExitCode::from(e.kind().exit_code())
        }
    }
}

fn start_logging(logging: &Logging) {
    let level = match (logging.quiet, logging.verbose) {
        (true, _) => "error",
        // Programs get a log line per stage; people see its progress bar.
        (false, 0) if logging.log_format == LogFormat::Json => "gyre=info,warn",
        (false, 0) => "warn",
        (false, 1) => "gyre=info,warn",
        (false, 2) => "gyre=debug,info",
        // The trace level of these crates shows request headers and so signatures.
        (false, _) => "trace,h2=info,hyper=info,hyper_util=info,reqwest=info,rustls=info",
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(|| Log)
        // It would print to stderr that stderr cannot be written, which panics.
        .log_internal_errors(false)
        .with_target(false);
    IS_JSON.store(logging.log_format == LogFormat::Json, Ordering::Relaxed);
    match logging.log_format {
        // Colours of the log could not be told from escapes in its texts.
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// Whether errors are JSON lines.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether stderr is a terminal.
fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Writes entries of the log to stderr, without secrets and without characters that a terminal
/// obeys.
struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        if IS_JSON.load(Ordering::Relaxed) {
            say(&text);
        } else {
            say(&entry(&text));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An entry of the log. Only lines that are indented continue it: another line break is an escape.
fn entry(text: &str) -> String {
    let mut lines = text.trim_end_matches('\n').split('\n');
    let first = lines.next().unwrap_or_default().to_string();
    let joined = lines.fold(first, |text, line| {
        let is_continuation = line.starts_with("  ");
        text + if is_continuation { "\n" } else { "\\n" } + line
    });
    joined + "\n"
}

/// Writes a text, or a line of JSON, to stderr in one write. A failure to write is ignored.
fn say(text: &str) {
    let text = hide(text);
    let shown = if IS_JSON.load(Ordering::Relaxed) {
        printable_json(&text)
    } else {
        printable(&text)
    };
    std::io::stderr().write_all(shown.as_bytes()).ok();
}

/// Prints on stderr why the command failed: a sentence, or a JSON log line.
fn report(e: &Error) {
    if IS_JSON.load(Ordering::Relaxed) {
        let kind = e.kind();
        tracing::error!(?kind, exit_code = kind.exit_code(), "{}", e.full());
        return;
    }
    // One write: if the system refuses memory for it, only the line about that is printed.
    say(&format!("error: {}\n", e.full()));
}

/// Prints help, or the error of a command line.
fn usage(e: &clap::Error) -> ExitCode {
    let text = e.render();
    let plain = text.to_string();
    let shown = printable(&plain);
    let render = |is_terminal: bool| {
        let has_colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let knows_colours = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        // Colours are escapes too: a text with others is shown without them.
        if has_colours && knows_colours && matches!(shown, Cow::Borrowed(_)) {
            hide(&text.ansi().to_string()).into_owned()
        } else {
            hide(&shown).into_owned()
        }
    };
    if e.use_stderr() {
        let text = render(is_interactive());
        std::io::stderr().write_all(text.as_bytes()).ok();
    } else {
        let mut out = std::io::stdout();
        let text = render(out.is_terminal());
        out.write_all(text.as_bytes()).ok();
    }
    ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2))
}

/// Prints panics on stderr, because they are bugs. Panics of a reader on damaged bytes are only
/// logged: an error names the file.
fn set_panic_hook() {
    std::panic::set_hook(Box::new(move |panic| {
        if gyre::read::lake::panics::panics_are_caught() {
            tracing::info!("a reader {panic}");
            return;
        }
        let thread = std::thread::current();
        let mut text = format!("thread '{}' {panic}\n", thread.name().unwrap_or("?"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            writeln!(text, "{backtrace}").ok();
        }
        say(&text);
    }));
}

/// Number of stop signals so far.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Number of tasks that wait for a stop signal.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Wakes the waiting tasks.
static STATE_CHANGED: Notify = Notify::const_new();

/// How far the result of a run is: one of the three numbers below.
static RESULT: AtomicU8 = AtomicU8::new(OPEN);

/// The run may be stopped, and its result may be promoted.
const OPEN: u8 = 0;

/// The result is being promoted or has been.
const PROMOTED: u8 = 1;

/// The run was stopped.
const STOPPED: u8 = 2;

/// Decides whether the result is promoted, or the run stopped. The first decision holds.
fn decide(what: u8) -> bool {
    let decided = RESULT.compare_exchange(OPEN, what, Ordering::SeqCst, Ordering::SeqCst);
    decided.is_ok() || decided == Err(what)
}

fn is_promoting() -> bool {
    RESULT.load(Ordering::SeqCst) == PROMOTED
}

/// Handles Ctrl-C, SIGTERM and SIGHUP on a thread of its own, because all threads of the runtime
/// may be busy. The first signal stops a run in order. The second one ends the process, as does the
/// first if nothing waits for it. Writing a file that is too large becomes an error of the write.
#[cfg(unix)]
fn handle_signals() -> Result<()> {
    let cannot = |e| Error::with_source(Kind::Resources, "cannot handle signals", e);
    // SAFETY: the calls initialise the set. Threads that start later inherit the mask.
    let signals = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            // `nohup` ignores SIGHUP.
            if signal != libc::SIGHUP || now.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut signals, signal);
            }
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) {
            0 => signals,
            e => return Err(cannot(std::io::Error::from_raw_os_error(e))),
        }
    };
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            loop {
                let mut signal = 0;
                // SAFETY: the signals of the set are blocked in all threads.
                if unsafe { libc::sigwait(&signals, &mut signal) } == 0 {
                    on_signal();
                }
            }
        });
    thread.map_err(cannot)?;
    memory::when_refused(end_without_memory);
    Ok(())
}

#[cfg(not(unix))]
fn handle_signals() -> Result<()> {
    let cannot = |e| Error::with_source(Kind::Resources, "cannot handle signals", e);
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                on_signal();
            }
        });
    thread.map_err(cannot).map(|_| ())
}

fn on_signal() {
    let is_first = SIGNALS.fetch_add(1, Ordering::SeqCst) == 0;
    let is_promoting = is_promoting();
    if is_first && (is_promoting || WAITING.load(Ordering::SeqCst) > 0) {
        if is_interactive() && !is_promoting {
            writeln!(Log, "stopping; a second signal ends the program at once").ok();
        }
        STATE_CHANGED.notify_waiters();
        return;
    }
    let what = match (is_first, is_promoting) {
        (true, _) => "stopped",
        (false, false) => "stopped at once; the output is as it was before",
        (false, true) => {
            "stopped at once during promotion; the next run shows whether the result is in place"
        }
    };
    let e = Error::new(Kind::Cancelled, what);
    let code = e.kind().exit_code();
    // The reader of stderr may hang: wait one second for it at most.
    let reported = std::thread::spawn(move || report(&e));
    let start = Instant::now();
    while !reported.is_finished() && start.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(code.into())
}

/// Ends the process without allocating, because the system refused `bytes` bytes of memory.
#[cfg(unix)]
fn end_without_memory(bytes: usize) -> ! {
    let mut line = [0; 320];
    let mut rest = &mut line[..];
    let (begin, end) = if IS_JSON.load(Ordering::Relaxed) {
        (
            r#"{"level":"ERROR","message":""#,
            r#"","kind":"Resources","exit_code":75}"#,
        )
    } else {
        ("error: ", "")
    };
    let megabytes = bytes.div_ceil(1_000_000);
    let output = if is_promoting() {
        ""
    } else {
        "; the output is as it was before"
    };
    let written = writeln!(
        rest,
        "{begin}the system refuses {megabytes}MB more memory{output}{end}"
    );
    let left = rest.len();
    let len = line.len() - left;
    // SAFETY: `len` bytes of the line were written; `_exit` runs no further code.
    unsafe {
        if written.is_ok() {
            libc::write(2, line.as_ptr().cast(), len);
        }
        libc::_exit(Kind::Resources.exit_code().into())
    }
}

/// Counts as a waiting task while it lives.
struct Waiting(());

impl Waiting {
    fn new() -> Waiting {
        WAITING.fetch_add(1, Ordering::SeqCst);
        Waiting(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for the first signal. A run that promotes its result cannot be stopped any more.
async fn stop_signal() {
    let _waiting = Waiting::new();
    loop {
        let mut changed = std::pin::pin!(STATE_CHANGED.notified());
        changed.as_mut().enable();
        if SIGNALS.load(Ordering::SeqCst) > 0 && !is_promoting() {
            return;
        }
        changed.await;
    }
}

/// Shows progress bars if stderr is a terminal.
struct Bars {
    is_quiet: bool,
    shown: bool,
    bar: Mutex<ProgressBar>,
}

impl Bars {
    fn new(is_quiet: bool) -> Bars {
        Bars {
            is_quiet,
            shown: !is_quiet && is_interactive(),
            bar: Mutex::new(ProgressBar::hidden()),
        }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Writes a line to stdout. A closed pipe, as by `head`, is not an error.
fn write_out(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::with_source(
            Kind::Resources,
            "stdout cannot be written",
            e,
        )),
        _ => Ok(()),
    }
}

impl Terminal for Bars {
    fn print(&self, text: &str) -> Result<()> {
        write_out(&printable(&hide(text)))
    }

    fn print_rows(&self, rows: &str) -> Result<()> {
        if std::io::stdout().is_terminal() {
            self.print(rows)
        } else {
            write_out(&hide(rows))
        }
    }

    fn say(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        if let Err(e) = self.print(text) {
            tracing::warn!("the command succeeded, but {}", e.full());
        }
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(stop_signal())
    }

    fn stop(&self) -> bool {
        decide(STOPPED)
    }

    fn finish(&self) {
        self.bar().finish_and_clear();
    }
}

/// The template of a stage's progress bar.
fn template(name: &str, has_total: bool) -> &'static str {
    match (has_total, name) {
        (true, _) => "{prefix:>6} {bar:30} {human_pos}/{human_len} fits {elapsed}, {eta} left",
        (false, "count" | "rows") => "{prefix:>6} {spinner} {human_pos} rows {rate} {elapsed}",
        (false, _) => "{prefix:>6} {spinner} {elapsed}",
    }
}

/// Formats a rate without decimals.
fn rate(per_second: f64) -> String {
    format!("{}/s", HumanCount(per_second as u64))
}

fn style(name: &str, has_total: bool) -> ProgressStyle {
    let style = ProgressStyle::with_template(template(name, has_total))
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key(
        "rate",
        |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            to.write_str(&rate(state.per_sec())).ok();
        },
    )
}

impl Progress for Bars {
    fn stage(&self, name: &'static str, total: Option<u64>) {
        if !self.shown {
            return;
        }
        let bar = total
            .map_or_else(ProgressBar::new_spinner, ProgressBar::new)
            .with_style(style(name, total.is_some()))
            .with_prefix(name);
        bar.enable_steady_tick(Duration::from_millis(100));
        let old = std::mem::replace(&mut *self.bar(), bar);
        old.finish_and_clear();
    }

    fn advance(&self, units: u64) {
        if self.shown {
            self.bar().inc(units);
        }
    }

    fn promoting(&self) -> Result<()> {
        if decide(PROMOTED) {
            Ok(())
        } else {
            Err(Error::new(Kind::Cancelled, "stopped"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_whole_rates_and_the_time_left() {
        assert_eq!(rate(1_234.567), "1,234/s");
        assert_eq!(rate(0.4), "0/s");
        assert!(template("count", false).contains("{rate}"));
        assert!(template("fit", true).contains("{eta} left"));
        for (name, has_total) in [("count", false), ("fit", true), ("write", false)] {
            let template = template(name, has_total);
            ProgressStyle::with_template(template).expect("a template");
            // `per_sec` shows decimals.
            assert!(!template.contains("{per_sec}"), "{template}");
        }
    }
}
