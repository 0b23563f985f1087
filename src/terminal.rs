//! What a person sees: results on stdout, progress and errors on stderr, and the signals that stop a run.

use futures::future::BoxFuture;
use gyre::cli::LogFormat;
use gyre::commands::Terminal;
use gyre::error::{Error, Kind, Result};
use gyre::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether a person watches stderr.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Says on stderr why the command failed: a sentence for people, or one more log line for machines.
pub fn report(e: &Error, format: LogFormat) {
    match format {
        // Where stderr is gone there is nobody to tell.
        LogFormat::Text => writeln!(std::io::stderr(), "error: {}", e.full()).unwrap_or_default(),
        LogFormat::Json => {
            let kind = e.kind();
            tracing::error!(?kind, exit_code = kind.exit_code(), "{}", e.full())
        }
    }
}

/// Leaves to the log what a reader says when it panics on damaged bytes: an error names the file. Any other panic is a bug to hear of.
pub fn tell_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match gyre::read::panics_are_caught() {
            true => tracing::info!("a reader {panic}"),
            false => tell(panic),
        }
    }));
}

/// Progress bars on a terminal, nothing elsewhere.
pub struct Bars {
    shown: bool,
    bar: Mutex<ProgressBar>,
    promoting: AtomicBool,
}

impl Bars {
    pub fn new(wanted: bool) -> Bars {
        Bars {
            shown: wanted && is_interactive(),
            bar: Mutex::new(ProgressBar::hidden()),
            promoting: AtomicBool::new(false),
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
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::with_source(
                Kind::Resources,
                "stdout cannot be written",
                e,
            )),
            _ => Ok(()),
        }
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(stop_signal(self))
    }

    fn finish(&self) {
        self.bar().finish_and_clear();
    }
}

impl Progress for Bars {
    fn stage(&self, name: &'static str, total: Option<u64>) {
        if !self.shown {
            return;
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{prefix:>6} {bar:30} {human_pos}/{human_len} fits {elapsed}",
            ),
            None if name == "count" => (
                ProgressBar::new_spinner(),
                "{prefix:>6} {spinner} {human_pos} rows {per_sec} {elapsed}",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{prefix:>6} {spinner} {elapsed}",
            ),
        };
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_prefix(name);
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
        self.promoting.store(true, Ordering::SeqCst);
    }
}

/// Waits for Ctrl-C or SIGTERM. Once results are being put in place the run is let finish.
async fn stop_signal(bars: &Bars) {
    loop {
        let interrupt = tokio::signal::ctrl_c();
        #[cfg(unix)]
        {
            let Ok(mut terminate) =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            else {
                return std::future::pending().await;
            };
            tokio::select! {
                _ = interrupt => (),
                _ = terminate.recv() => (),
            }
        }
        #[cfg(not(unix))]
        interrupt.await.ok();
        if !bars.promoting.load(Ordering::SeqCst) {
            return;
        }
    }
}
