//! The record of a run: what it read, counted, fitted and wrote, and how long each stage took.

use crate::assess::bootstrap::Bootstrap;
use crate::assess::set_tracking::TrackedSets;
use crate::error::{Error, Kind};
use crate::memory;
use crate::output::result::ModelKey;
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::checks::On;
use crate::read::lake::files::{InputFile, Table};
use serde::{Deserialize, Serialize};
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

impl Head {
    /// Records and logs a partition that the model of an assignment does not have.
    pub(crate) fn lacks(&mut self, partition: String, model: &str) {
        let message = format!("the model at {model} does not have it");
        tracing::error!(partition, "{message}");
        self.failures.push(Failure { partition, message });
    }

    /// Begins the record of the run `id` over `inputs`; `plan` is the hash of the plan.
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

    /// Ends the record of a run without a result.
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

    /// Ends a stage, begins the next one and logs an event. `rows` is the number of rows read or
    /// written, of non-zeros counted or of checks made.
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

/// Makes a [`Record`] of a struct with the fields `head` and `table_bytes`.
macro_rules! record {
    ($Record:ident) => {
        impl $crate::run::record::Record for $Record {
            fn head(&self) -> &$crate::run::record::Head {
                &self.head
            }

            fn head_mut(&mut self) -> &mut $crate::run::record::Head {
                &mut self.head
            }

            fn table_bytes(&self) -> &std::collections::BTreeMap<&'static str, u64> {
                &self.table_bytes
            }

            fn to_json(&self) -> serde_json::Value {
                serde_json::to_value(self).unwrap_or_default()
            }

            fn boxed(&self) -> Box<dyn $crate::run::record::Record> {
                Box::new(self.clone())
            }
        }
    };
}

pub(crate) use record;

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

/// `runs/<id>.json` of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    /// What records of runs and of assignments share.
    #[serde(flatten)]
    pub head: Head,
    /// Hashes of the parts of the plan: `pipeline`, `sql` and `inputs`.
    pub hashes: BTreeMap<&'static str, String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// What this run counted, if the pipeline counts new files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementRecord>,
    /// The sum of all counts.
    pub transitions: f64,
    /// The labels of given partitions: label k is set k.
    pub labels: BTreeMap<String, Vec<String>>,
    /// One record per partition and lag.
    pub models: Vec<ModelRecord>,
    /// Models of the earlier result that this result does not have.
    pub gone: Vec<String>,
    /// Partitions and lags without a transition, which have no model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<EmptyRecord>,
    /// Checks, in the order of the pipeline file.
    pub checks: Vec<CheckRecord>,
    /// Bytes of each table.
    pub table_bytes: BTreeMap<&'static str, u64>,
    /// Work of earlier runs of the same plan that this run reused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumed>,
}

record!(RunRecord);

impl RunRecord {
    /// Begins the record of a run.
    pub fn new(plan: &CountsPlan, id: &str, threads: usize) -> RunRecord {
        RunRecord {
            head: Head::begin(
                id,
                &plan.job.name,
                &plan.job.hash,
                threads,
                &plan.job.tables,
            ),
            hashes: plan.job.hashes.clone(),
            seed: plan.job.seed,
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
}

/// Work that a run reused.
#[derive(Debug, Clone, Serialize)]
pub struct Resumed {
    /// Whether the counts were reused, so that nothing was read.
    pub counted: bool,
    /// Fits that were finished.
    pub fits: usize,
    /// All fits.
    pub of: usize,
    /// Pieces of work: counts, fits, restarts, resamples and folds.
    pub pieces: usize,
}

/// The models of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct ModelRecord {
    /// The value of each partition column.
    pub partition: BTreeMap<String, String>,
    /// The lag, unless the rows are pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// The number of sources.
    pub sources: usize,
    /// The number of targets.
    pub targets: usize,
    /// The number of pairs with a count.
    pub nonzeros: usize,
    /// The sum of the counts.
    pub transitions: f64,
    /// What was dropped, if only the largest strongly connected set was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedStates>,
    /// The time to cut the counts into shards.
    pub shard_seconds: f64,
    /// The time of the bootstrap of all fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_seconds: Option<f64>,
    /// The time to compare ranks, without the fits: singular values and folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_seconds: Option<f64>,
    /// Fits, in the order of the pipeline file.
    pub fits: Vec<FitRecord>,
    /// Embeddings of states, in the order of the pipeline file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub embeddings: Vec<EmbeddingRecord>,
}

/// An embedding of states.
#[derive(Debug, Clone, Serialize)]
pub struct EmbeddingRecord {
    /// The name of the fit.
    pub name: String,
    /// The method.
    pub method: &'static str,
    /// Whether all certificates hold.
    pub certified: bool,
    /// The leading eigenvalues of a diffusion map.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eigenvalues: Vec<f64>,
    /// Products of the kernel with one vector.
    pub products: usize,
    /// What makes the embedding doubtful.
    pub warnings: Vec<String>,
    /// Whether an earlier run had finished it. `seconds` is then the time to read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// The time of the embedding.
    pub seconds: f64,
    /// The time of each step: `decompose` or `sketch`.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
}

/// How a model was fitted, as far as the model does not hold it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Timings {
    /// The time to cut the counts into shards.
    pub shard_seconds: f64,
    /// The time of the bootstrap of all fits.
    pub bootstrap_seconds: Option<f64>,
    /// The time to compare ranks, without the fits.
    pub ranks_seconds: Option<f64>,
    /// One entry per fit of the model.
    pub fits: Vec<FitTimings>,
    /// One entry per embedding of the model.
    pub embeddings: Vec<FitTimings>,
}

/// How one fit was made, as far as the fit does not hold it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FitTimings {
    /// Whether an earlier run had finished the fit.
    pub resumed: bool,
    /// The time of the fit.
    pub seconds: f64,
    /// The time of each step of the fit.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    /// How its rank was chosen, if it was not given.
    pub choice: Option<ChoiceRecord>,
}

/// States outside the largest strongly connected set.
#[derive(Debug, Clone, Serialize)]
pub struct DroppedStates {
    /// Strongly connected sets, with the one that was kept.
    pub components: usize,
    /// States that were dropped.
    pub states: usize,
    /// Transitions that were dropped.
    pub transitions: f64,
}

/// The largest deviation in the Chapman–Kolmogorov test of a fit.
#[derive(Debug, Clone, Serialize)]
pub struct Deviation {
    /// The number of steps of the prediction.
    pub steps: u64,
    /// The largest difference of prediction and estimate.
    pub largest: f64,
}

/// A fit.
#[derive(Debug, Clone, Serialize)]
pub struct FitRecord {
    /// The name of the fit.
    pub name: String,
    /// The method.
    pub method: &'static str,
    /// The rank r.
    pub rank: usize,
    /// The seed of the fit.
    pub seed: u64,
    /// Whether it met its tolerance.
    pub converged: bool,
    /// Whether all certificates hold. False if one could not be computed.
    pub certified: bool,
    /// Iterations of the best restart.
    pub iterations: usize,
    /// The number of restarts.
    pub restarts: usize,
    /// Latent states without a source.
    pub empty_states: usize,
    /// The log-likelihood of the model, in nats.
    pub log_likelihood: f64,
    /// The log-likelihood of the full transition matrix, in nats.
    pub reference_log_likelihood: f64,
    /// The sum of the singular values of the model.
    pub coherence: f64,
    /// The probability to stay in a set, summed over sets.
    pub objective: f64,
    /// Singular values of the model, r values in descending order.
    pub singular_values: Vec<f64>,
    /// The number of sources per set.
    pub source_sizes: Vec<usize>,
    /// Timescales of the sets, longest first, in the unit of the lag (seconds for durations), with
    /// `validation.markov`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescales: Option<Vec<f64>>,
    /// The ends of their intervals, with a bootstrap. Null is infinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescale_intervals: Option<Vec<[Option<f64>; 2]>>,
    /// The Chapman–Kolmogorov test, with `validation.markov`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chapman_kolmogorov: Option<Deviation>,
    /// Whether an earlier run had finished it. `seconds` is then the time to read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// The time of the fit.
    pub seconds: f64,
    /// The time of each step: `partition` of DBMR and co-clustering, `decompose` and `cluster` of
    /// singular and Schur vectors, and `score` of all methods.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    /// Intervals, with a bootstrap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapRecord>,
    /// How the rank was chosen, if it was not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceRecord>,
    /// How the sets continue those of the earlier result, or of another lag or rank, if this run
    /// compared them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lineage: Option<TrackedSets>,
}

/// The bootstrap of a fit.
#[derive(Debug, Clone, Serialize)]
pub struct BootstrapRecord {
    /// The number of resamples.
    pub resamples: usize,
    /// The number of groups that were drawn from.
    pub groups: usize,
    /// The confidence level of the intervals.
    pub confidence: f64,
    /// Mean adjusted Rand index against the fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted_rand: Option<f64>,
    /// The interval of each metric.
    pub intervals: BTreeMap<String, [f64; 2]>,
}

impl BootstrapRecord {
    /// The record of a bootstrap.
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

/// How the rank of a fit was chosen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// The name of the rule.
    pub rule: Cow<'static, str>,
    /// The candidates that were fitted.
    pub ranks: Vec<usize>,
    /// Why the rule chose this rank, as text.
    pub reason: String,
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
