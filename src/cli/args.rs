//! The command line as clap types. Each doc comment of a field or command is help text.

// clap would also print doc comments of types.
#![allow(missing_docs)]

use crate::cluster::address::Address;
use crate::read::formats::format::Format;
use crate::run::compare::Pair;
use crate::run::init::given::{GivenRoles, RowKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use jiff::{SignedDuration, Span, SpanRelativeTo};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

const EXIT_CODES: &str = "\
Exit codes:
  0    done, or nothing to do
  1    the data cannot be used as the pipeline asks
  2    the command line or the pipeline file is wrong
  3    a check on the results failed; nothing was promoted
  75   try again later: another run was quicker, or the store or memory was not available
  130  cancelled";

const EXAMPLES: &str = "\
Examples:
  gyre plan pipelines/double_gyre.toml          see what would happen
  gyre run pipelines/double_gyre.toml           make it happen
  gyre run ocean.toml --set fit.dbmr.rank=4     change one value for one run";

const RUN_EXAMPLES: &str = "\
Examples:
  gyre run ocean.toml
  gyre run ocean.toml --set 'transitions.lag=[\"5d\", \"10d\"]' --threads 4 --memory 8GB";

const CHECK_EXAMPLE: &str = "\
Example:
  gyre check ocean.toml --set tables.tracks.path=sample/";

const PLAN_EXAMPLES: &str = "\
Examples:
  gyre plan ocean.toml --json > plan.json
  gyre plan ocean.toml --cluster df://host:50050";

const INIT_EXAMPLES: &str = "\
Examples:
  gyre init tracks.parquet -o ocean.toml
  gyre init tracks.parquet -o ocean.toml --run
  gyre init orders.csv --trajectory customer --time placed --state status
  gyre init s3://lake/clicks/ --kind sequences > clicks.toml";

const COMPARE_EXAMPLES: &str = "\
Examples:
  gyre compare out/ocean-2024 out/ocean-2025
  gyre compare out/ocean out/ocean --fit dbmr_r3=dbmr_r5 --json";

const EXPLAIN_EXAMPLE: &str = "\
Example:
  gyre explain ocean.toml";

const ASSIGN_EXAMPLES: &str = "\
Examples:
  gyre assign ocean.toml --model out/ocean --output out/ocean-2025 --set tables.tracks.path=lake/2025/
  gyre assign ocean-2025.toml --model out/ocean --smoothing 1";

const RESTORE_EXAMPLE: &str = "\
Example:
  gyre restore out/ocean 20260301T020000Z-5f0c1d9a-8e21b7f4";

const CLEAN_EXAMPLES: &str = "\
Examples:
  gyre clean ocean.toml --dry-run
  gyre clean ocean.toml --set job.keep=0 --older-than 12h";

#[cfg(feature = "report")]
const INSPECT_EXAMPLES: &str = "\
Examples:
  gyre inspect out/ocean
  gyre inspect out/ocean sources --where 'count > 100' --sort=-count --columns x,y,dbmr_affiliation
  gyre inspect out/ocean fits --format json
  gyre inspect out/ocean --sql 'SELECT fit, max(singular_value) FROM spectrum GROUP BY fit'";

#[cfg(feature = "report")]
const REPORT_EXAMPLES: &str = "\
Examples:
  gyre report out/ocean
  gyre report out/ocean --format svg -o pictures
  gyre report out/tracking --trajectory 21";

const MAN_EXAMPLES: &str = "\
Examples:
  gyre man run | man -l -
  gyre man --out ~/.local/share/man/man1";

#[cfg(feature = "cluster")]
const SCHEDULER_EXAMPLE: &str = "\
Example:
  gyre scheduler --listen 10.0.0.5:50050";

#[cfg(feature = "cluster")]
const EXECUTOR_EXAMPLE: &str = "\
Example:
  gyre executor --scheduler df://10.0.0.5:50050 --memory 12GB";

#[cfg(feature = "cluster")]
const UP_EXAMPLE: &str = "\
Example:
  gyre cluster up --executors 4 & gyre run ocean.toml --cluster df://127.0.0.1:50050";

/// The end of a long help text: examples and exit codes.
fn long(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

/// Low-rank Markov models from the trajectories and transition counts of a data lake.
#[derive(Debug, Parser)]
#[command(
    name = "gyre",
    version,
    after_help = EXAMPLES,
    after_long_help = long(EXAMPLES),
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub logging: Logging,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub struct Logging {
    /// Print errors and requested results only (plan, explain, compare, schema and the like).
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Log more: -v adds each stage, -vv adds each pass. JSON lines always include stages.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Write the log on stderr as text for people or as JSON lines for programs.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline: read, count, fit, check and write.
    ///
    /// A run does nothing if neither the pipeline nor its inputs have changed since the last one.
    /// Results become visible only after their checks have passed. A stopped run leaves the earlier
    /// results in place.
    #[command(after_help = RUN_EXAMPLES, after_long_help = long(RUN_EXAMPLES))]
    Run(Run),

    /// Assign new rows to the sets of a model that a run has written.
    ///
    /// The pipeline says where the new rows are and what their columns mean. States, bins, lags and
    /// partitions must be those of the model. Known states keep their sets and memberships. A new
    /// state gets the set under which its transitions are most likely. A trajectory gets the set of
    /// its state and a log-likelihood. Transitions to targets that the model does not know are
    /// counted separately. A point gets the embedding and the cluster that it would have had in the
    /// run; weights and the scale of the pipeline do not matter. A row of a sequence gets its
    /// log-likelihood, the most likely next symbol and the state. Results become visible as those
    /// of a run do, and a second assignment of the same rows does nothing.
    #[command(after_help = ASSIGN_EXAMPLES, after_long_help = long(ASSIGN_EXAMPLES))]
    Assign(Assign),

    /// Look at a table, and write a first pipeline file for it.
    ///
    /// Columns get roles by their names, then by their types, then by their values in the first
    /// 100,000 rows. The file says why in comments, passes gyre check, and runs as it is.
    #[command(after_help = INIT_EXAMPLES, after_long_help = long(INIT_EXAMPLES))]
    Init(Init),

    /// Check a pipeline file, its tables and the columns it names, without running it.
    #[command(after_help = CHECK_EXAMPLE, after_long_help = long(CHECK_EXAMPLE))]
    Check(PipelineArgs),

    /// Show what a run would read, compute and write, without running it.
    #[command(after_help = PLAN_EXAMPLES, after_long_help = long(PLAN_EXAMPLES))]
    Plan(Plan),

    /// Show how the SQL of a pipeline would be executed.
    #[command(after_help = EXPLAIN_EXAMPLE, after_long_help = long(EXPLAIN_EXAMPLE))]
    Explain(PipelineArgs),

    /// Show how the sets of two outputs correspond: kept, split, merged, born and died, and how
    /// many states changed set.
    ///
    /// Compares every partition and lag that both outputs have, over the source states that both
    /// have. For points, it compares clusters and embeddings of the rows with the same key: the
    /// correlations are cosines of the angles between the spans of the coordinates. For sequences,
    /// it compares symbols, singular values and the log-likelihoods of the same trajectories.
    /// Differences are not a failure: the exit code is 0 whenever the outputs can be compared.
    #[command(after_help = COMPARE_EXAMPLES, after_long_help = long(COMPARE_EXAMPLES))]
    Compare(Compare),

    /// Show the tables of a result in the terminal.
    ///
    /// Without TABLE, shows an overview: fits, tables with the meaning of their columns, and
    /// earlier versions.
    #[cfg(feature = "report")]
    #[command(after_help = INSPECT_EXAMPLES, after_long_help = long(INSPECT_EXAMPLES))]
    Inspect(Inspect),

    /// Draw the tables of a result: one HTML page, or pictures alone.
    ///
    /// The page has maps of the sets, embeddings, spectra, transition matrices, sizes, ranks,
    /// tests, intervals, changes since the earlier result, certificates, and what the run read. It
    /// needs no network and runs no scripts.
    #[cfg(feature = "report")]
    #[command(after_help = REPORT_EXAMPLES, after_long_help = long(REPORT_EXAMPLES))]
    Report(Report),

    /// Make an earlier result the current one again.
    ///
    /// A run keeps job.keep earlier results. The result that is replaced becomes the newest of
    /// them, so this can be undone. Readers see the one result or the other. The next run of a
    /// pipeline whose inputs are not those of the restored result makes a new one.
    #[command(after_help = RESTORE_EXAMPLE, after_long_help = long(RESTORE_EXAMPLE))]
    Restore(Restore),

    /// Remove earlier results beyond job.keep, and what dead runs have left.
    ///
    /// Every run does this after it has promoted its result. The result in place is never removed,
    /// nor is a version that a run is writing. In a folder, such a run holds a lock. In an object
    /// store, a version without a file younger than --older-than counts as dead. The same age
    /// applies to the checkpoints of unfinished runs, from which the next run could resume.
    #[command(after_help = CLEAN_EXAMPLES, after_long_help = long(CLEAN_EXAMPLES))]
    Clean(Clean),

    /// Distribute tasks to the executors of a cluster.
    ///
    /// The scheduler stores nothing: after a restart, executors and runs find it again and repeat
    /// their requests. It has no authentication and no encryption. Anyone who can connect to it can
    /// make the executors read and write with their credentials. Run it only inside a trusted
    /// network.
    #[cfg(feature = "cluster")]
    #[command(after_help = SCHEDULER_EXAMPLE)]
    Scheduler(Scheduler),

    /// Do tasks for runs with `--cluster`, until stopped.
    ///
    /// An executor asks the scheduler for tasks and does not listen on any port. It reads inputs
    /// and writes outputs itself, with the credentials of its own environment. A stopped executor
    /// has 20 seconds to finish its tasks; other executors repeat what it leaves unfinished.
    #[cfg(feature = "cluster")]
    #[command(after_help = EXECUTOR_EXAMPLE)]
    Executor(Executor),

    /// Start a whole cluster on this machine.
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(Cluster),

    /// Print the JSON Schema of pipeline files, for editors.
    #[command(after_help = "Example:\n  gyre schema > gyre.schema.json")]
    Schema,

    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  gyre completions bash > ~/.local/share/bash-completion/completions/gyre"
    )]
    Completions {
        /// The shell that will read the script.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },

    /// Print a manual page, or write all of them.
    #[command(after_help = MAN_EXAMPLES)]
    Man(Man),
}

#[derive(Debug, Args)]
pub struct Man {
    /// The command whose page to print, such as run; gyre itself by default.
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,

    /// Write the pages of all commands to this folder, instead of printing one.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
    pub out: Option<PathBuf>,
}

/// A pipeline file and the overrides of the command line.
#[derive(Debug, Args)]
pub struct PipelineArgs {
    /// The pipeline file (TOML).
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub path: PathBuf,

    /// Set one value of the pipeline file, such as fit.dbmr.rank=4; may be repeated.
    ///
    /// The key is a path into the file, in which a fit is given by its name or by its index from 0.
    /// The value is read as TOML if it is valid TOML, else as a string. Missing tables are created.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The number of threads; all cores by default. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// The memory limit of the process, such as 8GB or 512MiB.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// The seed of all random starts, instead of job.seed.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Init {
    /// A file, a folder or a URL with Parquet, CSV, JSON or Arrow files of one table.
    #[arg(value_name = "DATA")]
    pub data: String,

    /// Write the pipeline to this file, which must not exist, instead of printing it.
    #[arg(short = 'o', long = "to", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub to: Option<PathBuf>,

    /// Run the pipeline, too. With the feature `report`, the result is drawn.
    #[arg(long, requires = "to")]
    pub run: bool,

    /// What a row is; by default the columns determine it.
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Option<RowKind>,

    #[command(flatten)]
    pub roles: Roles,

    #[command(flatten)]
    pub form: TableForm,
}

/// Columns in place of those that gyre init finds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Columns")]
pub struct Roles {
    /// The column that orders the rows of a trajectory.
    #[arg(long, value_name = "COLUMN")]
    pub time: Option<String>,

    /// The column whose values are trajectories.
    #[arg(long, value_name = "COLUMN")]
    pub trajectory: Option<String>,

    /// The columns of the state; of filters, those of the known state.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub state: Vec<String>,

    /// The columns of coordinates: of boxes if rows have a time, else of points.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub coordinates: Vec<String>,

    /// The column of what a row shows of a hidden state.
    #[arg(long, value_name = "COLUMN")]
    pub symbol: Option<String>,

    /// The columns of what a row measures of a known state.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub observation: Vec<String>,

    /// The column of the source of a pair.
    #[arg(long, value_name = "COLUMN")]
    pub source: Option<String>,

    /// The column of the target of a pair.
    #[arg(long, value_name = "COLUMN")]
    pub target: Option<String>,

    /// The column of the number of transitions of a pair, or of its weight.
    #[arg(long, value_name = "COLUMN")]
    pub count: Option<String>,

    /// The column that identifies a point.
    #[arg(long, value_name = "COLUMN")]
    pub id: Option<String>,

    /// The lag, such as 1h, 10 or "1 step".
    #[arg(long, value_name = "LAG")]
    pub lag: Option<String>,
}

/// How the files of a table are written, in place of what gyre init finds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub struct TableForm {
    /// The character between the values of a CSV row: one character, or tab.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub delimiter: Option<char>,

    /// The format of the files: parquet, csv, json or arrow.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,

    /// Whether the first row of a CSV file names the columns.
    #[arg(long, value_name = "BOOL")]
    pub header: Option<bool>,
}

impl Init {
    /// The options that overrule what the columns say.
    pub(crate) fn given(&self) -> GivenRoles {
        let Roles {
            time,
            trajectory,
            state,
            coordinates,
            symbol,
            observation,
            source,
            target,
            count,
            id,
            lag,
        } = &self.roles;
        GivenRoles {
            kind: self.kind,
            time: time.clone(),
            trajectory: trajectory.clone(),
            state: state.clone(),
            coordinates: coordinates.clone(),
            symbol: symbol.clone(),
            observation: observation.clone(),
            source: source.clone(),
            target: target.clone(),
            count: count.clone(),
            id: id.clone(),
            lag: lag.clone(),
            delimiter: self.form.delimiter,
            format: self.form.format,
            header: self.form.header,
        }
    }
}

/// A character between values.
fn delimiter(text: &str) -> Result<char, String> {
    let mut characters = text.chars();
    match (text, characters.next(), characters.next()) {
        ("tab" | "\\t", ..) => Ok('\t'),
        (_, Some(character), None) if character.is_ascii() => Ok(character),
        _ => Err("must be one ASCII character, or tab".into()),
    }
}

/// A format of files.
fn format(text: &str) -> Result<Format, String> {
    let found = Format::ALL.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| "must be parquet, csv, json or arrow".into())
}

/// The tables that a run writes, instead of those of the pipeline file.
#[derive(Debug, Args)]
pub struct TableChoice {
    /// Write these tables alone, beside those that later commands read: see output.tables.
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Do not write these tables, such as counts,restarts: see output.without.
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub without: Vec<String>,
}

impl TableChoice {
    /// The choice as values of keys of the pipeline file.
    pub(crate) fn set(&self) -> impl Iterator<Item = String> {
        let keys = [("tables", &self.only), ("without", &self.without)];
        let given = keys.into_iter().filter(|(_, names)| !names.is_empty());
        given.map(|(key, names)| format!("output.{key}={}", serde_json::json!(names)))
    }
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub pipeline: PipelineArgs,

    #[command(flatten)]
    pub tables: TableChoice,

    /// Run even if nothing has changed since the last run, and reuse no earlier work.
    #[arg(long)]
    pub force: bool,

    /// Count all rows again, where `job.incremental` would count only those of new files.
    #[arg(long)]
    pub full_refresh: bool,

    /// Count and fit on the executors of a cluster, such as df://host:50050. The tables are
    /// byte-identical to those of a local run.
    ///
    /// Every executor must have access to the inputs and the output: a folder must be the same one
    /// on all machines.
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<Address>,

    /// Spread the passes of a model with more than N non-zeros over all executors. One executor
    /// fits each smaller model. The default is 2²⁸.
    #[arg(long, value_name = "N", requires = "cluster")]
    pub split: Option<u64>,

    /// How long to wait for another process that holds the lock of the output folder, such as 10s;
    /// then the exit code is 75.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub lock_timeout: Age,

    /// Draw the result, as gyre report does, in a file report.html beside the tables. If there is
    /// nothing to do, the result in place is drawn.
    #[cfg(feature = "report")]
    #[arg(long)]
    pub report: bool,

    /// The exit code if there is nothing to do, for schedulers that distinguish this from a run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_code: u8,

    /// Write how the run ended, and its numbers, to a file in Prometheus' text format. The file is
    /// replaced as a whole, also if the run fails. Devices and pipes such as /dev/stdout are
    /// written directly.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metrics: Option<PathBuf>,

    /// Append OpenLineage events to a file, a device or a pipe, one JSON object per line: START,
    /// and COMPLETE, FAIL or ABORT.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub lineage: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Assign {
    #[command(flatten)]
    pub pipeline: PipelineArgs,

    /// The output of the run whose models are used.
    #[arg(long, value_name = "OUTPUT")]
    pub model: String,

    /// Where the tables go, instead of job.output; it must not hold models.
    #[arg(long, value_name = "OUTPUT")]
    pub output: Option<String>,

    /// Add N transitions to every set, distributed over the targets like all transitions of the
    /// model.
    ///
    /// Without smoothing, a set without transitions to one of a new state's targets is excluded for
    /// that state. A state for which all sets are excluded gets none.
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = amount)]
    pub smoothing: f64,

    /// Assign even if nothing has changed since the last time.
    #[arg(long)]
    pub force: bool,

    /// How long to wait for another process that holds the lock of the output folder, such as 10s;
    /// then the exit code is 75.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub lock_timeout: Age,
}

/// A sanity limit, above the cores of any machine.
const MAX_THREADS: usize = 1024;

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok();
    let number = number.filter(|n: &NonZeroUsize| n.get() <= MAX_THREADS);
    number.ok_or_else(|| format!("write a whole number from 1 to {MAX_THREADS}"))
}

/// A finite number, 0 or more.
fn amount(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|n: &f64| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| "write a number that is 0 or more".into())
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub pipeline: PipelineArgs,

    #[command(flatten)]
    pub tables: TableChoice,

    /// Print the plan as JSON.
    #[arg(long)]
    pub json: bool,

    /// Ask a cluster, such as df://host:50050, for its executors, and count the tasks and rounds of
    /// the run there.
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<Address>,

    /// As `gyre run --split`: spread the passes of a model with more than N non-zeros over all
    /// executors. The default is 2²⁸.
    #[arg(long, value_name = "N", requires = "cluster")]
    pub split: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Compare {
    /// The folder or URL of the earlier output.
    #[arg(value_name = "A", value_hint = ValueHint::DirPath)]
    pub a: String,

    /// The folder or URL of the later output; may be the same.
    #[arg(value_name = "B", value_hint = ValueHint::DirPath)]
    pub b: String,

    /// Compare this fit, or a fit of A with another of B as dbmr_r3=dbmr_r5; may be repeated. By
    /// default, compares all fits that both have.
    #[arg(long, value_name = "NAME[=NAME]")]
    pub fit: Vec<Pair>,

    /// Compare the models of one lag with those of another, as 5d=10d. By default, compares equal
    /// lags.
    #[arg(long, value_name = "LAG[=LAG]")]
    pub lag: Option<Pair>,

    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What the rows of a table are printed as.
#[cfg(feature = "report")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Columns for people; long texts are shortened.
    Table,
    /// Comma-separated values, in which lists are JSON.
    Csv,
    /// One JSON object per line.
    Json,
    /// A Parquet file; needs -o.
    Parquet,
}

#[cfg(feature = "report")]
#[derive(Debug, Args)]
pub struct Inspect {
    /// The folder or URL of the output.
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::DirPath)]
    pub output: String,

    /// The table, such as sources.
    #[arg(value_name = "TABLE")]
    pub table: Option<String>,

    /// Show only rows that fulfil this SQL condition (of Polars), such as 'count > 100'.
    #[arg(long = "where", value_name = "SQL", requires = "table")]
    pub condition: Option<String>,

    /// Sort by these columns; --sort=-count puts the largest first.
    #[arg(
        long,
        value_name = "COLUMNS",
        value_delimiter = ',',
        requires = "table"
    )]
    pub sort: Vec<String>,

    /// Show only these columns, in this order.
    #[arg(
        long,
        value_name = "COLUMNS",
        value_delimiter = ',',
        requires = "table"
    )]
    pub columns: Vec<String>,

    /// Show at most N rows; 0 for all. The default is 20 for tables, and all for other formats.
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,

    /// Run a query over all tables instead, in the SQL of Polars.
    #[arg(long, value_name = "SQL", conflicts_with = "table")]
    pub sql: Option<String>,

    /// How the rows are written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = TableFormat::Table)]
    pub format: TableFormat,

    /// Write the rows to a file.
    #[arg(short = 'o', long = "to", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub to: Option<PathBuf>,

    /// The id of an earlier run, whose version is shown instead of the current result.
    #[arg(long, value_name = "RUN")]
    pub version: Option<String>,
}

/// What a report is written as.
#[cfg(feature = "report")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One page.
    Html,
    /// A folder of pictures.
    Svg,
}

#[cfg(feature = "report")]
#[derive(Debug, Args)]
pub struct Report {
    /// The folder or URL of the output.
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::DirPath)]
    pub output: String,

    /// Write to this file, or to this folder with --format svg; report.html or report by default.
    #[arg(short = 'o', long = "to", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub to: Option<PathBuf>,

    /// One HTML page, or a folder of SVG pictures.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportFormat::Html)]
    pub format: ReportFormat,

    /// The id of an earlier run, whose version is drawn instead of the current result.
    #[arg(long, value_name = "RUN")]
    pub version: Option<String>,

    /// Draw only models with this value of a column of the partition, or of the lag; may be
    /// repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub partition: Vec<(String, String)>,

    /// Draw the estimates of this trajectory instead of those of the first one. If several columns
    /// identify it, write their values with commas between them.
    #[arg(long, value_name = "KEY")]
    pub trajectory: Option<String>,
}

#[cfg(feature = "report")]
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_string(), value.to_string()))
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The folder or URL of the output.
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::DirPath)]
    pub output: String,

    /// The id of the run that made the result. Without it, the ids of the earlier results are
    /// printed.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// How long to wait for another process that holds the lock of the output folder, such as 10s;
    /// then the exit code is 75.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub lock_timeout: Age,
}

#[derive(Debug, Args)]
pub struct Clean {
    /// The pipeline file (TOML): its job.output is cleaned, and job.keep earlier results are kept.
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub path: PathBuf,

    /// Set one value of the pipeline file, such as job.keep=0; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The minimum age of what is removed, such as 1d or 12h, where no lock shows whether its run
    /// is alive.
    #[arg(long, value_name = "AGE", default_value = "1d")]
    pub older_than: Age,

    /// Show what would be removed, and remove nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// How long to wait for another process that holds the lock of the output folder, such as 10s;
    /// then the exit code is 75.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub lock_timeout: Age,
}

#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub struct Scheduler {
    /// The address to listen on; port 0 means any free port. With 0.0.0.0:50050, anyone who can
    /// reach this machine can connect.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub listen: String,

    /// Exit when standard input is closed, that is when the parent process has ended.
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub struct Executor {
    /// The scheduler that hands out tasks.
    #[arg(long, value_name = "df://HOST:PORT")]
    pub scheduler: Address,

    /// How many tasks to do concurrently, and how many threads each may use; all cores by default.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub vcores: Option<NonZeroUsize>,

    /// The memory limit of the process, such as 8GB or 512MiB.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// The folder for temporary files, which are removed with the executor; TMPDIR by default.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub work_dir: Option<PathBuf>,

    /// Exit when standard input is closed, that is when the parent process has ended.
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[cfg(feature = "cluster")]
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Start a scheduler and executors on this machine, and stop them on exit.
    ///
    /// Prints the address for `gyre run --cluster` when all of them are ready.
    #[command(after_help = UP_EXAMPLE)]
    Up(Up),
}

#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub struct Up {
    /// How many executors to start.
    #[arg(long, value_name = "N", default_value = "2", value_parser = threads)]
    pub executors: NonZeroUsize,

    /// The port of the scheduler on 127.0.0.1; port 0 means any free port.
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    pub port: u16,

    /// How many tasks each executor does concurrently; by default, the cores are divided among the
    /// executors.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub vcores: Option<NonZeroUsize>,

    /// The memory limit of each executor, such as 8GB or 512MiB.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
}

/// A duration of zero or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age(pub SignedDuration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        let span: Option<Span> = text.parse().ok();
        let age = span.and_then(|s| s.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        let age = age.filter(|age| !age.is_negative());
        age.map(Age)
            .ok_or_else(|| "write a duration such as 1d or 12h".into())
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let (a, b) = text.split_once('=').unwrap_or((text, text));
        if a.is_empty() || b.is_empty() {
            return Err("write one name, or two as A=B".into());
        }
        Ok(Pair {
            a: a.to_string(),
            b: b.to_string(),
        })
    }
}

/// A size in bytes, above zero. Either a plain number of at least one million, or a number with B,
/// kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let text = text.trim();
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1000,
            "mb" => 1000 * 1000,
            "gb" => 1000 * 1000 * 1000,
            "tb" => 1000 * 1000 * 1000 * 1000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            "k" | "m" | "g" | "t" => {
                let unit = unit.trim().to_uppercase();
                return Err(format!("write {number}{unit}B or {number}{unit}iB"));
            }
            _ => return Err("write a size such as 8GB or 512MiB".into()),
        };
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(factor),
            Err(_) => {
                let bytes = number.parse().ok().map(|x: f64| x * factor as f64);
                let bytes = bytes.filter(|x| (0.0..u64::MAX as f64).contains(x));
                bytes.map(|x| x as u64)
            }
        };
        match bytes {
            Some(0) => Err("the size must be above zero".into()),
            // A small number without a unit is meant as megabytes: gyre cannot run in so few bytes.
            Some(bytes) if unit.is_empty() && bytes < 1_000_000 => Err(format!(
                "{bytes} bytes is too small; add a unit, as in {bytes}MB"
            )),
            Some(bytes) => Ok(Bytes(bytes)),
            None => Err("write a size such as 8GB or 512MiB".into()),
        }
    }
}

/// The command line as clap's description, for completions and manual pages.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(arguments.split(' '))
    }

    fn check_error(arguments: &str, expected: &str) {
        let error = parse(arguments).expect_err("a usage error");
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn the_description_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_run_takes_all_its_options() {
        let cli = parse(
            "gyre run a.toml --set a.b=1 --set c=d=e --threads 2 --memory 8GB --seed 7 --force -vv --log-format json",
        )
        .expect("a valid command line");
        assert_eq!(cli.logging.verbose, 2);
        assert_eq!(cli.logging.log_format, LogFormat::Json);
        let Command::Run(run) = cli.command else {
            panic!("run was asked for");
        };
        assert!(run.force);
        assert_eq!(run.pipeline.path, PathBuf::from("a.toml"));
        assert_eq!(run.pipeline.set, ["a.b=1", "c=d=e"]);
        assert_eq!(run.pipeline.threads, NonZeroUsize::new(2));
        assert_eq!(run.pipeline.memory, Some(Bytes(8_000_000_000)));
        assert_eq!(run.pipeline.seed, Some(7));
    }

    #[test]
    fn global_options_may_precede_or_follow_the_command() {
        assert!(parse("gyre -q plan a.toml").expect("valid").logging.quiet);
        let command = parse("gyre plan a.toml --json -q").expect("valid").command;
        assert!(matches!(command, Command::Plan(Plan { json: true, .. })));
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        check_error("gyre", "Usage");
        check_error("gyre rum a.toml", "run");
        check_error("gyre run", "PIPELINE");
        check_error("gyre run a.toml --threads 0", "--threads");
        check_error("gyre run a.toml --memory 8G", "8GB or 8GiB");
        check_error("gyre run a.toml --memory 200", "add a unit, as in 200MB");
        check_error("gyre run a.toml --threads 1025", "from 1 to 1024");
        check_error("gyre run a.toml --threads 100000", "--threads");
        check_error("gyre run a.toml --lock-timeout soon", "such as 1d");
        check_error("gyre man run --out x", "cannot be used with");
        check_error("gyre check a.toml --force", "--force");
        check_error("gyre run a.toml -q -v", "cannot be used with");
        check_error("gyre compare a", "<B>");
        check_error("gyre compare a b --fit =svd", "two as A=B");
        check_error("gyre assign a.toml", "--model");
        check_error("gyre clean a.toml --older-than soon", "such as 1d");
        check_error("gyre assign a.toml --model m --smoothing=-1", "0 or more");
    }

    #[test]
    fn a_scheduler_has_a_host_and_a_port() {
        let read = |text: &str| text.parse::<Address>().map(|a| (a.host, a.port));
        if cfg!(not(feature = "cluster")) {
            let error = read("df://host:50050").expect_err("no clusters");
            assert!(error.contains("--features cluster"), "{error}");
            return;
        }
        assert_eq!(read("df://host:50050"), Ok(("host".into(), 50050)));
        assert_eq!(read("df://[::1]:1"), Ok(("[::1]".into(), 1)));
        for wrong in [
            "",
            "host:1",
            "df://host",
            "df://:1",
            "df://host:x",
            "df://me:secret@host:1",
            "df://host/a:1",
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains("df://host:50050") && !error.contains("secret"));
        }
    }

    #[test]
    fn sizes_may_have_units() {
        let bytes = |t: &str| t.parse::<Bytes>().map(|b| b.0);
        assert_eq!(bytes("1000000"), Ok(1_000_000));
        assert_eq!(bytes("200 B"), Ok(200));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("1.5 kb"), Ok(1500));
        assert_eq!(bytes("2tib"), Ok(2 << 40));
        for wrong in [
            "",
            "GB",
            "-1GB",
            "1.2.3GB",
            "8 apples",
            "0",
            "0.1B",
            "99999999TB",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_must_not_be_negative() {
        let seconds = |t: &str| t.parse::<Age>().map(|age| age.0.as_secs());
        assert_eq!(seconds("1d"), Ok(86_400));
        assert_eq!(seconds("1h30m"), Ok(5_400));
        assert_eq!(seconds("0s"), Ok(0));
        for wrong in ["", "-1d", "1 month", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
