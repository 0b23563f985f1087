//! Reports a run to other programs: progress, metrics for Prometheus and events for OpenLineage.

use crate::cli::args;
use crate::cli::openlineage::{Event, EventType, Planned};
use crate::cli::prometheus;
use crate::cli::prometheus::Ended;
use crate::cli::sink::Sink;
use crate::cli::terminal::{Done, Terminal};
use crate::error::{Error, Kind, Result, printable_json};
use crate::run::progress::Progress;
use crate::run::record::Record;
use crate::store::secrets::hide;
use jiff::Timestamp;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Follows one run from the command line to its end.
pub(crate) struct Watch {
    /// Shows the progress of the run.
    pub terminal: Arc<dyn Terminal>,
    metrics: Option<Sink>,
    lineage: Option<Sink>,
    began: Instant,
    known: Mutex<Known>,
}

/// What is known of the run so far.
#[derive(Default)]
struct Known {
    pipeline: String,
    plan: Option<Planned>,
    record: Option<Box<dyn Record>>,
    /// The record of the result in place, if there is nothing to do.
    in_place: Option<Value>,
    had_nothing_to_do: bool,
    /// Why an event could not be written.
    unwritten_event: Option<Error>,
}

impl Watch {
    /// Opens the files of the run's reports.
    ///
    /// # Errors
    /// If a file cannot be written, as far as that is known before the run.
    pub(crate) fn new(args: &args::Run, terminal: Arc<dyn Terminal>) -> Result<Watch> {
        let open = |option: &str, path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| Sink::open(option, path)).transpose()
        };
        // Until the file is parsed, its stem is the name of the pipeline.
        let stem = args.pipeline.path.file_stem().unwrap_or_default();
        let known = Known {
            pipeline: stem.to_string_lossy().into_owned(),
            ..Known::default()
        };
        Ok(Watch {
            terminal,
            metrics: open("--metrics", &args.metrics)?,
            lineage: open("--lineage", &args.lineage)?,
            began: Instant::now(),
            known: Mutex::new(known),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the name of the pipeline.
    pub(crate) fn set_pipeline(&self, pipeline: &str) {
        self.known().pipeline = pipeline.to_string();
    }

    /// The record of the run as far as it has come, if the run has begun.
    pub(crate) fn record(&self) -> Option<Box<dyn Record>> {
        self.known().record.as_ref().map(|record| record.boxed())
    }

    /// Sets the plan of the run.
    pub(crate) fn set_plan(&self, plan: Planned) {
        self.known().plan = Some(plan);
    }

    /// Sets the record. The first one is the start of the run.
    fn set_record(&self, record: Box<dyn Record>) {
        let mut known = self.known();
        let begins = known.record.is_none();
        known.record = Some(record);
        if let Some(sink) = self.lineage.as_ref().filter(|_| begins) {
            let event = known.event(EventType::Start, Timestamp::now(), None);
            known.unwritten_event = append(sink, &event).err();
        }
    }

    /// Notes that there is nothing to do; `in_place` is the record of the result.
    pub(crate) fn set_nothing_to_do(&self, in_place: Option<Value>) {
        let mut known = self.known();
        (known.had_nothing_to_do, known.in_place) = (true, in_place);
    }

    /// Reports how the run ended.
    ///
    /// # Errors
    /// That of the run, or else the failure to write the reports.
    pub(crate) fn end(&self, ran: Result<Done>) -> Result<Done> {
        let (exit_code, error) = match &ran {
            Ok(done) => (done.exit_code(), None),
            Err(e) => (e.kind().exit_code(), Some(e.full())),
        };
        let reported = self.report(exit_code, error.as_deref());
        match (ran, reported) {
            (Ok(_), Err(e)) => Err(e),
            (ran, Err(e)) => {
                tracing::error!("{}", e.full());
                ran
            }
            (ran, Ok(())) => ran,
        }
    }

    fn report(&self, exit_code: u8, error: Option<&str>) -> Result<()> {
        let mut known = self.known();
        let now = Timestamp::now();
        if error.is_none() {
            let run = known.record.as_deref().map(|own| own.head().id.as_str());
            tracing::info!(
                run,
                pipeline = known.pipeline,
                exit_code,
                seconds = self.began.elapsed().as_secs_f64(),
                nothing_to_do = known.had_nothing_to_do,
                "run ends"
            );
        }
        let lineage = match (&self.lineage, known.unwritten_event.take()) {
            (_, Some(e)) => Err(e),
            (Some(sink), None) if !known.had_nothing_to_do => {
                let event = match (error, exit_code) {
                    (None, _) => EventType::Complete,
                    (Some(_), 130) => EventType::Abort,
                    (Some(_), _) => EventType::Fail,
                };
                // Every run has a START event, even one that failed before it.
                let start = known.record.is_none().then_some(EventType::Start);
                let events = start.into_iter().map(|start| (start, None));
                events
                    .chain([(event, error)])
                    .try_for_each(|(event, error)| append(sink, &known.event(event, now, error)))
            }
            _ => Ok(()),
        };
        if let Some(sink) = &self.metrics {
            let ended = Ended {
                pipeline: &known.pipeline,
                exit_code,
                had_nothing_to_do: known.had_nothing_to_do,
                finished_seconds: now.as_millisecond() as f64 / 1e3,
                duration_seconds: self.began.elapsed().as_secs_f64(),
            };
            let record = known.record.as_ref().map(|record| record.to_json());
            let record = record.or(known.in_place.clone());
            let page = prometheus::text(&ended, record.as_ref());
            sink.replace(&page).map_err(|e| unwritten("metrics", e))?;
        }
        lineage
    }
}

/// Appends an event as a line.
fn append(sink: &Sink, event: &Value) -> Result<()> {
    let event = event.to_string();
    let line = format!("{}\n", printable_json(&hide(&event)));
    sink.append(&line).map_err(|e| unwritten("lineage", e))
}

fn unwritten(what: &str, e: std::io::Error) -> Error {
    let message = format!("the file of --{what} cannot be written");
    Error::with_source(Kind::Resources, message, e)
}

impl Known {
    fn event(&self, event: EventType, time: Timestamp, error: Option<&str>) -> Value {
        Event {
            event,
            time,
            pipeline: &self.pipeline,
            plan: self.plan.as_ref(),
            record: self.record.as_deref(),
            error,
        }
        .to_json()
    }
}

impl Progress for Watch {
    fn stage(&self, name: &'static str, total: Option<u64>) {
        self.terminal.stage(name, total);
    }

    fn advance(&self, units: u64) {
        self.terminal.advance(units);
    }

    fn recorded(&self, record: &dyn Record) {
        self.set_record(record.boxed());
    }

    fn promoting(&self) -> Result<()> {
        self.terminal.promoting()
    }
}
