//! The record of a run: what was read, counted, fitted and written, how long it took, and from what it was made.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::set_tracking::TrackedSets;
use crate::error::{Error, Kind};
use crate::memory;
use crate::output::result::ModelKey;
use crate::plan::Plan;
use crate::plan::pipeline::checks::On;
use crate::read::lake::files::{InputFile, Table};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

/// What the record of a run and that of an assignment begin with. Times and memory stand here and nowhere else, so that the tables do not
/// depend on them.
#[derive(Debug, Clone, Serialize)]
pub struct Head {
    pub schema: u32,
    pub id: String,
    pub gyre: &'static str,
    /// Of the libraries that read and write.
    pub versions: BTreeMap<&'static str, &'static str>,
    pub pipeline: String,
    pub plan: String,
    pub threads: usize,
    pub started: String,
    /// When the last stage so far was done.
    pub finished: String,
    pub seconds: BTreeMap<&'static str, f64>,
    pub peak_memory_bytes: Option<u64>,
    /// Of the file that held what memory had no room for, where it is bounded.
    pub scratch_bytes: Option<u64>,
    /// Input files by table.
    pub inputs: BTreeMap<String, Vec<InputFile>>,
    /// Of all input files, whether or not the query needs all of their columns.
    pub input_bytes: u64,
    pub rows_read: u64,
    /// Rows that could not be an end of a transition, by reason.
    pub rows_dropped: BTreeMap<Cow<'static, str>, u64>,
    pub failures: Vec<Failure>,
    pub outcome: Ended,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// Rows of each table.
    pub tables: BTreeMap<&'static str, u64>,
    /// When the stage began.
    #[serde(skip)]
    clock: Instant,
}

impl Head {
    /// Of the work `id` on `inputs`, which begins now; `plan` is the hash of what it will do.
    pub fn begin(id: &str, pipeline: &str, plan: &str, threads: usize, inputs: &[Table]) -> Head {
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
            failures: Vec::new(),
            outcome: Ended::Running,
            error: None,
            tables: BTreeMap::new(),
            clock: Instant::now(),
        }
    }

    /// The work ends here, and what it has made is no result.
    pub fn failed(&mut self, e: &Error) {
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

    /// A stage is done, and the next one begins: one event in the log. `rows` are those that it read, counted (non-zeros) or wrote, or the
    /// checks it made.
    pub fn done(&mut self, stage: &'static str, rows: u64, bytes: u64) {
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

/// How a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It has not.
    Running,
    /// Its result is in place; some models may have failed.
    Done,
    Failed,
    Stopped,
}

/// The error that a run has ended with.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorRecord {
    pub kind: &'static str,
    pub exit_code: u8,
    pub message: String,
}

/// `runs/<id>.json` of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    #[serde(flatten)]
    pub head: Head,
    /// Of what the plan is made from: `pipeline`, `sql` and `inputs`.
    pub hashes: BTreeMap<&'static str, String>,
    pub seed: u64,
    /// What of the input this run counted itself, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementRecord>,
    pub transitions: f64,
    /// The labels of given partitions: label k is set k.
    pub labels: BTreeMap<String, Vec<String>>,
    pub models: Vec<ModelRecord>,
    /// Models of the earlier result that are no more.
    pub gone: Vec<String>,
    /// Partitions (and lags) without a transition, which have no model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<EmptyRecord>,
    /// In the order of the pipeline file.
    pub checks: Vec<CheckRecord>,
    /// Bytes of each table.
    pub table_bytes: BTreeMap<&'static str, u64>,
    /// What was taken from runs of the same plan that did not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumed>,
}

impl RunRecord {
    /// The record of a run that begins.
    pub fn new(plan: &Plan, id: &str, threads: usize) -> RunRecord {
        RunRecord {
            head: Head::begin(id, &plan.name, &plan.hash, threads, &plan.tables),
            hashes: plan.hashes.clone(),
            seed: plan.seed,
            increment: None,
            transitions: 0.0,
            labels: BTreeMap::new(),
            models: Vec::new(),
            gone: Vec::new(),
            empty: Vec::new(),
            checks: Vec::new(),
            table_bytes: BTreeMap::new(),
            resumed: None,
        }
    }

    /// Rows and bytes of all tables.
    pub fn written(&self) -> (u64, u64) {
        let (rows, bytes) = (self.head.tables.values(), self.table_bytes.values());
        (rows.sum(), bytes.sum())
    }
}

/// What a check has found.
#[derive(Debug, Clone, Serialize)]
pub struct CheckRecord {
    pub name: String,
    /// `min_rows`, `max_dropped`, `partitions`, `max_drift` or `sql`.
    pub kind: &'static str,
    pub on: On,
    pub passed: bool,
    /// Rows read, share of rows dropped, partitions missing, relative change, rows of the query; null where there was nothing to
    /// compare with.
    pub value: Option<f64>,
    pub limit: f64,
    /// The first rows of the query, or missing partitions, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
}

/// What a run counted of its input; the rest it had from earlier runs.
#[derive(Debug, Clone, Serialize)]
pub struct IncrementRecord {
    /// In words, and why.
    pub what: String,
    /// Files that were read, and the rows that the SQL gave of them.
    pub files: usize,
    pub rows: u64,
    /// Units of the ledger now.
    pub units: usize,
}

/// What a run did not have to do.
#[derive(Debug, Clone, Serialize)]
pub struct Resumed {
    /// Nothing was read or counted.
    pub counted: bool,
    /// Of the fits below so many were finished.
    pub fits: usize,
    pub of: usize,
    /// Pieces of work in all: the counts, fits, restarts of others, resamples, folds.
    pub pieces: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct ModelRecord {
    pub partition: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    pub sources: usize,
    pub targets: usize,
    pub nonzeros: usize,
    pub transitions: f64,
    /// What was dropped beside the largest strongly connected set, where it alone was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedStates>,
    /// What cutting the counts into shards took.
    pub shard_seconds: f64,
    /// What the bootstrap of all fits took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_seconds: Option<f64>,
    /// What comparing ranks took beside the fits: the singular values and the folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_seconds: Option<f64>,
    pub fits: Vec<FitRecord>,
}

/// What is told of how a model was fitted and is not in the model itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    pub shard_seconds: f64,
    pub bootstrap_seconds: Option<f64>,
    pub ranks_seconds: Option<f64>,
    /// Beside the fits of the model.
    pub fits: Vec<FitTold>,
}

/// The same of one fit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FitTold {
    pub resumed: bool,
    pub seconds: f64,
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    pub choice: Option<ChoiceRecord>,
}

#[derive(Debug, Clone, Serialize)]
pub struct DroppedStates {
    /// Strongly connected sets, that which was kept included.
    pub components: usize,
    pub states: usize,
    pub transitions: f64,
}

/// The Chapman-Kolmogorov test of a fit where prediction and estimate are furthest apart.
#[derive(Debug, Clone, Serialize)]
pub struct Deviation {
    pub steps: u64,
    pub largest: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct FitRecord {
    pub name: String,
    pub method: &'static str,
    pub rank: usize,
    pub seed: u64,
    pub converged: bool,
    /// Whether all certificates hold; false where one could not be stated.
    pub certified: bool,
    pub iterations: usize,
    pub restarts: usize,
    pub empty_states: usize,
    pub log_likelihood: f64,
    pub reference_log_likelihood: f64,
    pub coherence: f64,
    pub objective: f64,
    pub singular_values: Vec<f64>,
    pub source_sizes: Vec<usize>,
    /// Timescales of the sets, longest first, in the unit of the lag (seconds for durations), where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescales: Option<Vec<f64>>,
    /// The ends of their intervals, as far as resamples tell; null where one lies at infinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescale_intervals: Option<Vec<[Option<f64>; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chapman_kolmogorov: Option<Deviation>,
    /// Whether it was finished by an earlier run; then `seconds` is what reading it took.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    pub seconds: f64,
    /// Of which each step took: DBMR and co-clustering `partition`, singular and Schur vectors `decompose` and `cluster`, all `score`.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapRecord>,
    /// Where the rank was picked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceRecord>,
    /// The sets after those of the earlier result, or of another lag or rank, where this run made the comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lineage: Option<TrackedSets>,
}

/// What resamples say of a fit; intervals by metric.
#[derive(Debug, Clone, Serialize)]
pub struct BootstrapRecord {
    pub resamples: usize,
    pub groups: usize,
    pub confidence: f64,
    /// Mean adjusted Rand index against the fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted_rand: Option<f64>,
    pub intervals: BTreeMap<String, [f64; 2]>,
}

impl BootstrapRecord {
    pub fn new(bootstrap: &Bootstrap, confidence: f64) -> BootstrapRecord {
        let mut adjusted_rand = None;
        let mut intervals = BTreeMap::new();
        for number in &bootstrap.numbers {
            let Some(spread) = number.spread else {
                continue;
            };
            if number.metric == "adjusted_rand" {
                adjusted_rand = Some(spread.mean);
            }
            let index = number.index.map(|index| format!(" {index}"));
            let name = number.metric.to_string() + &index.unwrap_or_default();
            intervals.insert(name, [spread.low, spread.high]);
        }
        BootstrapRecord {
            resamples: bootstrap.resamples,
            groups: bootstrap.groups,
            confidence,
            adjusted_rand,
            intervals,
        }
    }
}

/// How the rank of a fit was picked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChoiceRecord {
    pub rule: Cow<'static, str>,
    /// The candidates that were fitted.
    pub ranks: Vec<usize>,
    pub reason: String,
}

/// A partition (and lag) that could not be fitted.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    pub partition: String,
    pub message: String,
}

/// A partition (and lag) without a transition.
#[derive(Debug, Clone, Serialize)]
pub struct EmptyRecord {
    pub partition: String,
    /// Whether the result that this run replaced has a model of it.
    pub had_model: bool,
    #[serde(skip)]
    pub key: ModelKey,
}

/// The largest resident set of this process so far, where the system tells.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
