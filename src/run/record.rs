//! The record of a run: what it read, counted, fitted and wrote, and how long each stage took.

use crate::error::{Error, Kind};
use crate::memory;
use crate::output::checkpoint::Checkpoint;
use crate::output::result::ModelKey;
use crate::plan::pipeline::checks::On;
use crate::read::lake::files::{InputFile, LakeTable};
use crate::read::lake::nulled::Nulled;
use crate::read::rows::time_rules::{TimeCounts, TimeRules};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

/// The fields that records of runs and of assignments share. Only records hold times and memory, so
/// that tables do not depend on them.
#[derive(Debug, Clone, Serialize)]
pub struct Head {
    /// The version of the format of records.
    pub schema: u32,
    /// The id of the run.
    pub id: String,
    /// The version of gyre.
    pub gyre: &'static str,
    /// Versions of the libraries that read and write.
    pub versions: BTreeMap<&'static str, &'static str>,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The hash of the plan.
    pub plan: String,
    /// The threads of the process.
    pub threads: usize,
    /// When the run began.
    pub started: String,
    /// When the last finished stage ended.
    pub finished: String,
    /// The time of each stage.
    pub seconds: BTreeMap<&'static str, f64>,
    /// The largest resident set of the process, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// The size of the scratch file, if memory is bounded.
    pub scratch_bytes: Option<u64>,
    /// Input files by table.
    pub inputs: BTreeMap<String, Vec<InputFile>>,
    /// The size of all input files, with columns that the query does not read.
    pub input_bytes: u64,
    /// Rows of the query.
    pub rows_read: u64,
    /// Rows that could not be an end of a transition, by reason.
    pub rows_dropped: BTreeMap<Cow<'static, str>, u64>,
    /// What the keys of time changed.
    #[serde(flatten)]
    pub time: TimeRecord,
    /// Values of the files that the key `null` of their table made null, by table and column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values_nulled: BTreeMap<String, BTreeMap<String, u64>>,
    /// Partitions and lags that failed.
    pub failures: Vec<Failure>,
    /// How the run ended.
    pub outcome: Ended,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// Rows of each table.
    pub tables: BTreeMap<&'static str, u64>,
    /// When the current stage began.
    #[serde(skip)]
    clock: Instant,
}

/// What the keys of time changed, as far as the pipeline has these keys.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TimeRecord {
    /// Gaps that ended a trajectory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<u64>,
    /// Transitions whose target is near the time that the lag asks for, and not at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_pairs: Option<u64>,
}

impl TimeRecord {
    /// The record of what was counted under some rules.
    pub(crate) fn new(rules: &TimeRules, counts: TimeCounts) -> TimeRecord {
        TimeRecord {
            gaps: rules.max_gap.map(|_| counts.gaps),
            near_pairs: rules.tolerance.map(|_| counts.near_pairs),
        }
    }

    /// The record of gaps alone.
    pub(crate) fn of_gaps(rules: &TimeRules, gaps: u64) -> TimeRecord {
        TimeRecord {
            gaps: rules.max_gap.map(|_| gaps),
            near_pairs: None,
        }
    }
}

impl Head {
    /// Records and logs a partition that the model of an assignment does not have.
    pub(crate) fn lacks(&mut self, partition: String, model: &str) {
        let message = format!("the model at {model} does not have it");
        tracing::error!(partition, "{message}");
        self.failures.push(Failure { partition, message });
    }

    /// Begins the record of the run `id` over `inputs`; `plan` is the hash of the plan.
    pub(crate) fn begin(
        id: &str,
        pipeline: &str,
        plan: &str,
        threads: usize,
        inputs: &[LakeTable],
    ) -> Head {
        let files = inputs.iter().flat_map(|t| &t.files);
        let input_bytes = files.map(|file| file.size_bytes).sum();
        let inputs = inputs.iter().map(|t| (t.name.clone(), t.files.clone()));
        let now = jiff::Timestamp::now().to_string();
        Head {
            schema: 1,
            id: id.to_string(),
            gyre: env!("CARGO_PKG_VERSION"),
            versions: BTreeMap::from([
                ("arrow", arrow::ARROW_VERSION),
                ("datafusion", datafusion::DATAFUSION_VERSION),
            ]),
            pipeline: pipeline.to_string(),
            plan: plan.to_string(),
            threads,
            started: now.clone(),
            finished: now,
            seconds: BTreeMap::new(),
            peak_memory_bytes: peak_memory_bytes(),
            scratch_bytes: memory::scratch_bytes(),
            inputs: inputs.collect(),
            input_bytes,
            rows_read: 0,
            rows_dropped: BTreeMap::new(),
            time: TimeRecord::default(),
            values_nulled: BTreeMap::new(),
            failures: Vec::new(),
            outcome: Ended::Running,
            error: None,
            tables: BTreeMap::new(),
            clock: Instant::now(),
        }
    }

    /// Ends the record of a run without a result.
    pub(crate) fn failed(&mut self, e: &Error) {
        self.outcome = match e.kind() {
            Kind::Cancelled => Ended::Stopped,
            _ => Ended::Failed,
        };
        self.error = Some(ErrorRecord {
            kind: e.kind().name(),
            exit_code: e.kind().exit_code(),
            message: e.full(),
        });
        self.finished = jiff::Timestamp::now().to_string();
        self.peak_memory_bytes = peak_memory_bytes();
        self.scratch_bytes = memory::scratch_bytes();
    }

    /// Ends a stage, begins the next one and logs an event. `rows` is the number of rows read or
    /// written, of non-zeros counted or of checks made.
    pub(crate) fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
        let seconds = self.clock.elapsed().as_secs_f64();
        self.seconds.insert(stage, seconds);
        self.peak_memory_bytes = peak_memory_bytes();
        self.scratch_bytes = memory::scratch_bytes();
        self.finished = jiff::Timestamp::now().to_string();
        tracing::info!(
            run = self.id,
            stage,
            seconds,
            rows,
            bytes,
            peak_memory_bytes = self.peak_memory_bytes,
            "stage done"
        );
        self.clock = Instant::now();
    }
}

/// The record of a run over any kind of rows.
pub trait Record: Send {
    /// What all records have.
    fn head(&self) -> &Head;
    /// What all records have.
    fn head_mut(&mut self) -> &mut Head;
    /// Bytes per output table.
    fn table_bytes(&self) -> &BTreeMap<&'static str, u64>;
    /// The content of `runs/<id>.json`. Null if the record cannot be written as JSON.
    fn to_json(&self) -> serde_json::Value;
    /// A copy.
    fn boxed(&self) -> Box<dyn Record>;
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It has not ended.
    Running,
    /// Its result is in place. Some models may have failed.
    Done,
    /// An error ended it.
    Failed,
    /// A signal stopped it.
    Stopped,
}

/// The error that ended a run.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorRecord {
    /// The name of the kind of the error.
    pub kind: &'static str,
    /// The exit code of the program.
    pub exit_code: u8,
    /// The message, with its causes.
    pub message: String,
}

/// The model of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct ModelEntry<M> {
    /// The value of each partition column.
    pub partition: BTreeMap<String, String>,
    /// The lag, unless the rows have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// What the kind says of it.
    #[serde(flatten)]
    pub model: M,
}

/// The result of a check.
#[derive(Debug, Clone, Serialize)]
pub struct CheckRecord {
    /// The name of the check.
    pub name: String,
    /// `min_rows`, `max_dropped`, `partitions`, `max_drift` or `sql`.
    pub kind: &'static str,
    /// Whether a failed check is an error or a warning.
    pub on: On,
    /// Whether the check passed.
    pub passed: bool,
    /// Rows read, share of rows dropped, partitions missing, relative change or rows of the query.
    /// Null if there was nothing to compare with.
    pub value: Option<f64>,
    /// The limit of `value`.
    pub limit: f64,
    /// The first rows of the query, or the missing partitions, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
}

/// What a run counted of its input. It has the other counts from earlier runs.
#[derive(Debug, Clone, Serialize)]
pub struct IncrementRecord {
    /// What was counted and why, as text.
    pub what: String,
    /// Files that were read.
    pub files: usize,
    /// Rows that the SQL gave of these files.
    pub rows: u64,
    /// Units of the ledger after the run.
    pub units: usize,
    /// Values of the counted files that became null, if the ledger has their numbers.
    #[serde(skip)]
    pub(crate) nulled: Option<Nulled>,
}

impl IncrementRecord {
    /// The record of a run that counted all files of some tables.
    pub(crate) fn of_all(what: String, tables: &[LakeTable], rows: u64) -> IncrementRecord {
        IncrementRecord {
            what,
            files: tables.iter().map(|table| table.files.len()).sum(),
            rows,
            units: 0,
            nulled: None,
        }
    }
}

/// Work that a run reused.
#[derive(Debug, Clone, Serialize)]
pub struct Resumed {
    /// Whether the counts were reused, so that nothing was read.
    pub counted: bool,
    /// Fits that were finished, of all fits, if single fits are kept.
    #[serde(flatten)]
    pub fits: Option<ResumedFits>,
    /// Pieces of work: counts, sums, fits, restarts, resamples and folds.
    pub pieces: usize,
}

/// Fits that a run reused.
#[derive(Debug, Clone, Serialize)]
pub struct ResumedFits {
    /// Fits that were finished.
    pub fits: usize,
    /// All fits.
    pub of: usize,
}

impl Resumed {
    /// The pieces of work that a run has taken from earlier ones. None if there are none.
    pub(crate) fn pieces(work: &Checkpoint, counted: bool) -> Option<Resumed> {
        let pieces = work.taken();
        (pieces > 0).then_some(Resumed {
            counted,
            fits: None,
            pieces,
        })
    }
}

/// A partition and lag that could not be fitted.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The partition and lag, as text.
    pub partition: String,
    /// The error.
    pub message: String,
}

/// A partition and lag without a transition.
#[derive(Debug, Clone, Serialize)]
pub struct EmptyRecord {
    /// The partition and lag, as text.
    pub partition: String,
    /// Whether the result that this run replaced has a model of it.
    pub had_model: bool,
    /// The key of the model.
    #[serde(skip)]
    pub key: ModelKey,
}

/// The largest resident set of this process so far, if the system reports it.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
