//! What a person sees: results on stdout, progress and errors on stderr, and the signals that stop a run.
//!
//! All that is printed goes through [`hide`]. Where stderr cannot be written there is no one to tell, and a run goes on.

use futures::future::BoxFuture;
use gyre::cli::args::LogFormat;
use gyre::cli::terminal::Terminal;
use gyre::error::{Error, Kind, Result};
use gyre::memory;
use gyre::run::progress::Progress;
use gyre::store::secrets::hide;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Whether errors are JSON lines.
static IS_JSON: AtomicBool = AtomicBool::new(false);

pub fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether a person watches stderr.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Writes to stderr what may be written there. A log that cannot be written fails nothing.
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        std::io::stderr().write_all(hide(&text).as_bytes()).ok();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Says on stderr why the command failed: a sentence for people, or one more log line for machines.
pub fn report(e: &Error) {
    if IS_JSON.load(Ordering::Relaxed) {
        let kind = e.kind();
        tracing::error!(?kind, exit_code = kind.exit_code(), "{}", e.full());
        return;
    }
    writeln!(Log, "error: {}", e.full()).ok();
}

/// Prints help, or what is wrong with a command line.
pub fn usage(e: &clap::Error) -> ExitCode {
    let text = e.render();
    let of = |is_terminal: bool| {
        let has_colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        if has_colours && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
            text.ansi().to_string()
        } else {
            text.to_string()
        }
    };
    if e.use_stderr() {
        write!(Log, "{}", of(is_interactive())).ok();
    } else {
        let mut out = std::io::stdout();
        let text = of(out.is_terminal());
        out.write_all(hide(&text).as_bytes()).ok();
    }
    ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2))
}

/// Leaves to the log what a reader says when it panics on damaged bytes: an error names the file. Any other panic is a bug to hear of.
pub fn tell_panics() {
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
        Log.write_all(text.as_bytes()).ok();
    }));
}

/// How many signals have asked to stop.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// How many wait for one.
static HEARING: AtomicU32 = AtomicU32::new(0);

static NEWS: Notify = Notify::const_new();

/// Whether the result is being put in place, or is.
static PROMOTING: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C, SIGTERM and SIGHUP stop the program, and a file that is too large be an error of who writes it. The first signal stops a
/// run in order; the second ends the process, and so does the first where no one waits for it. A thread of its own hears them, which
/// needs no part of the runtime: all threads of that may be busy with one call.
#[cfg(unix)]
pub fn hear_signals() -> Result<()> {
    let cannot = |e| Error::with_source(Kind::Resources, "signals cannot be heard", e);
    // SAFETY: the set is made by the calls that fill it, and threads that are started later have the mask of this one.
    let signals = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            // `nohup` has it ignored.
            if signal != libc::SIGHUP || now.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut signals, signal);
            }
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) {
            0 => signals,
            e => return Err(cannot(std::io::Error::from_raw_os_error(e))),
        }
    };
    let hearing = std::thread::Builder::new().name("signals".into());
    let heard = hearing.spawn(move || {
        loop {
            let mut signal = 0;
            // SAFETY: the set is one of signals that are blocked in all threads.
            if unsafe { libc::sigwait(&signals, &mut signal) } == 0 {
                asked_to_stop();
            }
        }
    });
    heard.map_err(cannot)?;
    memory::when_refused(end_without_memory);
    Ok(())
}

#[cfg(not(unix))]
pub fn hear_signals() -> Result<()> {
    let cannot = |e| Error::with_source(Kind::Resources, "signals cannot be heard", e);
    let hearing = std::thread::Builder::new().name("signals".into());
    let heard = hearing.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            asked_to_stop();
        }
    });
    heard.map_err(cannot).map(|_| ())
}

fn asked_to_stop() {
    let is_first = ASKED.fetch_add(1, Ordering::SeqCst) == 0;
    let is_promoting = PROMOTING.load(Ordering::SeqCst);
    if is_first && (is_promoting || HEARING.load(Ordering::SeqCst) > 0) {
        if is_interactive() && !is_promoting {
            writeln!(Log, "stopping; a second signal ends the program at once").ok();
        }
        NEWS.notify_waiters();
        return;
    }
    let what = match (is_first, is_promoting) {
        (true, _) => "stopped",
        (false, false) => "stopped at once; the output is as it was before",
        (false, true) => {
            "stopped at once while the result was put in place; the next run says whether it is"
        }
    };
    let e = Error::new(Kind::Cancelled, what);
    let code = e.kind().exit_code();
    // Who reads stderr may have stopped to.
    let told = std::thread::spawn(move || report(&e));
    let begun = Instant::now();
    while !told.is_finished() && begun.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(code.into())
}

/// Ends the process where there is no memory to do so in order: without taking any.
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
    let output = if PROMOTING.load(Ordering::SeqCst) {
        ""
    } else {
        "; the output is as it was before"
    };
    let written = writeln!(
        rest,
        "{begin}the system refuses {megabytes}MB of memory more{output}{end}"
    );
    let left = rest.len();
    let len = line.len() - left;
    // SAFETY: so many bytes were written to the line; the process ends without any of its code.
    unsafe {
        if written.is_ok() {
            libc::write(2, line.as_ptr().cast(), len);
        }
        libc::_exit(Kind::Resources.exit_code().into())
    }
}

/// Counts for as long as it lives as one that waits for a signal.
struct Hearing(());

impl Hearing {
    fn new() -> Hearing {
        HEARING.fetch_add(1, Ordering::SeqCst);
        Hearing(())
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        HEARING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for the first signal. Once the result is being put in place the run is let finish.
async fn stop_signal() {
    let _hearing = Hearing::new();
    loop {
        let mut news = std::pin::pin!(NEWS.notified());
        news.as_mut().enable();
        if ASKED.load(Ordering::SeqCst) > 0 && !PROMOTING.load(Ordering::SeqCst) {
            return;
        }
        news.await;
    }
}

/// Progress bars on a terminal, nothing elsewhere.
pub struct Bars {
    is_quiet: bool,
    shown: bool,
    bar: Mutex<ProgressBar>,
}

impl Bars {
    pub fn new(is_quiet: bool) -> Bars {
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

impl Terminal for Bars {
    /// A reader that has seen enough, such as `head`, is no error.
    fn print(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{}", hide(text)).and_then(|()| out.flush()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::with_source(
                Kind::Resources,
                "stdout cannot be written",
                e,
            )),
            _ => Ok(()),
        }
    }

    fn say(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        if let Err(e) = self.print(text) {
            tracing::warn!("all is done, but {}", e.full());
        }
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(stop_signal())
    }

    fn finish(&self) {
        self.bar().finish_and_clear();
    }
}

/// How a stage is shown, with or without a total.
fn template(name: &str, has_total: bool) -> &'static str {
    match (has_total, name) {
        (true, _) => "{prefix:>6} {bar:30} {human_pos}/{human_len} fits {elapsed}, {eta} left",
        (false, "count") => "{prefix:>6} {spinner} {human_pos} rows {rate} {elapsed}",
        (false, _) => "{prefix:>6} {spinner} {elapsed}",
    }
}

/// A rate without decimals.
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
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let bar = bar.with_style(style(name, total.is_some()));
        let bar = bar.with_prefix(name);
        bar.enable_steady_tick(Duration::from_millis(100));
        let old = std::mem::replace(&mut *self.bar(), bar);
        old.finish_and_clear();
    }

    fn advance(&self, units: u64) {
        if self.shown {
            self.bar().inc(units);
        }
    }

    fn promoting(&self) {
        PROMOTING.store(true, Ordering::SeqCst);
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
            // It has decimals.
            assert!(!template.contains("{per_sec}"), "{template}");
        }
    }
}
