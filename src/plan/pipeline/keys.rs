//! The keys of a pipeline file. The doc comments are the descriptions in the JSON Schema.

use crate::evidence::lag::Lag;
use crate::methods::AnyMethod;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks::{CheckText, Limits, queries};
use crate::plan::pipeline::declared::{NullText, TypeText};
use crate::plan::pipeline::deserializer::{KeyError, KeyErrorKind, read, required, section};
use crate::plan::pipeline::document::Node;
use crate::plan::pipeline::fits::{FitEntry, fits};
use crate::plan::pipeline::scale::ScaleText;
use crate::plan::pipeline::shape::{InOrder, OneOrMany, inline_schema, none_or_more, one_or_many};
use crate::read::formats::dialect::Dialect;
use crate::read::formats::format::{Compression, Format};
use crate::read::lake::files::TableSource;
use crate::read::rows::bins::BinText;
use crate::store::parameter::Store;
use schemars::{JsonSchema, json_schema};
use serde::de::DeserializeOwned;
use serde::{Serialize, de};
use std::collections::{BTreeMap, BTreeSet};

/// A gyre pipeline: input tables, the SQL that selects transitions from them, and the models fitted
/// to the counts. Every string except SQL may contain `${VAR}` or `${VAR:-default}`.
#[derive(Debug, JsonSchema)]
#[schemars(title = "gyre pipeline", deny_unknown_fields)]
pub(crate) struct PipelineFile {
    pub job: Job,
    /// Access to cloud stores.
    #[schemars(default)]
    pub store: Store,
    /// The input tables by their names in the SQL.
    #[schemars(default)]
    pub tables: BTreeMap<String, InputTable>,
    /// The rows that become transitions. A file has one of the sections `[transitions]`, `[points]`
    /// and `[sequences]`.
    pub transitions: Option<TransitionsText>,
    /// Points without time.
    pub points: Option<PointsText>,
    /// Rows that show symbols, or have a state and an observation, one after the other.
    pub sequences: Option<SequencesText>,
    /// The result from which the sets take their names.
    #[schemars(default)]
    pub names: Naming,
    /// The models to fit. A run over `[transitions]` without fits counts only.
    #[schemars(default)]
    pub fit: Vec<FitEntry<AnyMethod>>,
    /// Resampling and tests that show how far to trust the models.
    pub validation: Option<Validation>,
    /// The tables of the output.
    #[schemars(default)]
    pub output: OutputTables,
    /// Pairs of points whose transition densities are computed.
    pub densities: Option<Densities>,
    /// Limits that a result must meet before it is put in place.
    #[schemars(default)]
    pub checks: Limits,
    /// SQL that must return no rows before a result is put in place.
    #[schemars(default)]
    pub check: Vec<CheckText>,
}

const FILE_KEYS: [&str; 13] = [
    "job",
    "store",
    "tables",
    "transitions",
    "points",
    "sequences",
    "names",
    "fit",
    "validation",
    "output",
    "densities",
    "checks",
    "check",
];

/// The name of the job and the place of its results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Letters, digits, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]+$"), example = &"ocean")]
    pub name: String,
    /// The folder or URL (`file://`, `s3://`, `gs://`, `az://`) under which the output tables are
    /// written.
    #[schemars(length(min = 1), example = &"${OUT:-out}/ocean")]
    pub output: String,
    /// The seed of all random starts. The same seed gives the same bytes.
    #[serde(default)]
    pub seed: u64,
    /// Store the counts beside the tables. The next run then reads only new files and adds their
    /// counts.
    #[serde(default)]
    pub incremental: bool,
    /// How a run detects a changed input file: by size, time and tag, or by a hash of its bytes,
    /// which reads every file once more.
    #[serde(default)]
    pub fingerprint: Fingerprint,
    /// The number of earlier results to keep for their readers. It changes no table.
    #[serde(default = "two")]
    #[schemars(range(max = 1000))]
    pub keep: u32,
}

/// What identifies the content of an input file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fingerprint {
    /// Size, time and, if the store has one, tag.
    #[default]
    Metadata,
    /// A hash of the bytes.
    Content,
}

fn two() -> u32 {
    2
}

/// One input table.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Table")]
pub struct InputTable {
    /// A file, a folder or a glob pattern, or a list of these. URLs may begin with `file://`,
    /// `s3://`, `gs://` and `az://`, and with `https://` for single files. Hive partition folders
    /// (`basin=north/`) become columns.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &"lake/tracks/")]
    pub path: Vec<String>,
    /// The name of a column with the path of the file of each row, or its URL. Such a column can be
    /// the trajectory if each file is one. A folder that moves gives its trajectories other names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), example = &"simulation")]
    pub filename: Option<String>,
    /// The format of the files. By default, the extension decides; a folder contains Parquet.
    pub format: Option<Format>,
    /// The character between the values of a CSV row. By default a comma; a tab in `.tsv` files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &";")]
    pub delimiter: Option<char>,
    /// Whether the first row of a CSV file names the columns; true by default. Without names, the
    /// columns are `column_1`, `column_2` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The character around CSV values that contain delimiters or line breaks. By default `"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"'")]
    pub quote: Option<char>,
    /// The decimal point of CSV numbers, such as `,`. By default a point.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &",")]
    pub decimal: Option<char>,
    /// Values that mean null: numbers and texts for all columns that can hold them, such as
    /// `[-9999, "NA"]`, or values by column, such as `{ temp = [-9999] }`. A number is compared as
    /// a number and a text as a text, before `types`. An empty value of CSV is always null.
    #[serde(default, skip_serializing_if = "NullText::is_empty")]
    #[schemars(example = &"NA")]
    pub(crate) null: NullText,
    /// The types of columns: `"text"`, `"integer"`, `"number"`, or the format of times, such as
    /// `{ timestamp = "%d.%m.%Y %H:%M", zone = "Europe/Berlin" }`. Without `zone`, times are local.
    /// A value that does not fit is an error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) types: BTreeMap<String, TypeText>,
    /// The compression of CSV and JSON files. By default, the extension decides: `.gz` or `.zst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

impl InputTable {
    /// The format of the files: the key `format`, else the extension of the first path, else
    /// Parquet.
    pub(crate) fn kind(&self) -> Format {
        let by_name = || self.path.first().and_then(|path| Format::of_name(path));
        self.format.or_else(by_name).unwrap_or(Format::Parquet)
    }

    /// The table under its name in the SQL, as the lake opens it.
    pub(crate) fn source<'a>(&'a self, name: &'a str) -> TableSource<'a> {
        TableSource {
            name,
            paths: &self.path,
            format: self.kind(),
            dialect: Dialect {
                delimiter: self.delimiter,
                header: self.header,
                quote: self.quote,
                decimal: self.decimal,
                null: self.null.values(),
                types: self
                    .types
                    .iter()
                    .map(|(name, of)| (name.clone(), of.0.clone()))
                    .collect(),
                compression: self.compression,
            },
            filename: self.filename.as_deref(),
        }
    }
}

/// The earlier result to which the sets of this one are matched. A matched set keeps its number and
/// its id. All ranks and lags of a fit share ids.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Naming {
    /// `previous`: the result that this run replaces, if there is one. `none`: no result; the sets
    /// of every fit are numbered by decreasing weight. Any other text: the folder or URL of an
    /// existing output.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1), example = &"out/ocean-2024")]
    pub from: NamesFrom,
}

/// The value of `names.from`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(from = "String", rename_all = "lowercase")]
pub enum NamesFrom {
    /// The result that this run replaces, if there is one.
    #[default]
    Previous,
    /// No result: sets are numbered by decreasing weight.
    None,
    /// The folder or URL of an output.
    Output(String),
}

impl From<String> for NamesFrom {
    fn from(text: String) -> NamesFrom {
        match text.as_str() {
            "previous" => NamesFrom::Previous,
            "none" => NamesFrom::None,
            _ => NamesFrom::Output(text),
        }
    }
}

/// The SQL whose rows become transitions, and the meaning of its columns. A row is either a point
/// of a trajectory (`time`, `lag`, and `state`, `bins` or `coordinates`) or a pair of states
/// (`source`, `target`).
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Transitions",
    extend(
        "oneOf" = [{ "required": ["sql"] }, { "required": ["file"] }],
        "anyOf" = [
            { "required": ["time", "lag"], "anyOf": [{ "required": ["state"] }, { "required": ["bins"] }, { "required": ["coordinates"] }] },
            { "required": ["source", "target"] }
        ]
    )
)]
pub(crate) struct TransitionsText {
    /// A SELECT statement over the tables. It refers to `parameters` as `$name`.
    #[schemars(example = &"SELECT drifter, time, lon, lat FROM tracks")]
    pub sql: Option<String>,
    /// A file with one SELECT statement, instead of `sql`.
    #[schemars(example = &"sql/tracks.sql")]
    pub file: Option<String>,
    /// Values to which the SQL refers as `$name`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Argument>,
    /// The partition column or columns. Every combination of their values gets its own model.
    #[serde(default, deserialize_with = "none_or_more")]
    #[schemars(with = "OneOrMany<String>")]
    pub partition_by: Vec<String>,
    /// The column or columns that identify a trajectory. Without them, each partition is one
    /// trajectory.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub trajectory: Vec<String>,
    /// The column that orders a trajectory: an integer, a date or a timestamp. A second column
    /// orders the rows of a trajectory at one time: `["t", "n"]`. Lags, intervals and gaps are
    /// measured in the first one.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &["t", "n"])]
    pub time: Vec<String>,
    /// What happens to several rows of a trajectory at one time.
    #[serde(default)]
    pub duplicates: Duplicates,
    /// The column or columns that make up the state, of any type.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub state: Vec<String>,
    /// Coordinates to cut into boxes. The box numbers are part of the state.
    #[serde(default)]
    pub bins: InOrder<BinText>,
    /// The columns of the coordinates of a row, in place of a state: several columns of numbers, or
    /// one column of lists that have the same length in all rows.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub coordinates: Vec<String>,
    /// What the coordinates are divided by: `none`, `standard` for their standard deviations, or
    /// numbers by column; that of a list column is for all its numbers.
    #[serde(default)]
    pub scale: ScaleText,
    /// The time between source and target of a pair, or a list of times. Each lag gets its own
    /// model.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Lag>")]
    pub lag: Vec<Lag>,
    /// Which points of a trajectory start a pair; all of them by default.
    pub window: Option<Window>,
    /// The time between rows of a trajectory, for `window = "effective"` with a lag that is a time.
    /// A whole number or a duration, like the lag.
    pub interval: Option<Lag>,
    /// The longest time between a row and the next one of its trajectory: a whole number or a
    /// duration, like the lag. A longer gap ends the trajectory.
    pub max_gap: Option<Lag>,
    /// How far from the time that the lag asks for a target may be: a whole number or a duration,
    /// less than half of the lag. The nearest row within it is the target, the earlier one of two.
    /// Without it, times must fit exactly.
    pub tolerance: Option<Lag>,
    /// The column or columns of the source state of a pair.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub source: Vec<String>,
    /// The column or columns of the target state of a pair.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub target: Vec<String>,
    /// The integer column with the number of pairs per row. Without `count` and `weight`, each row
    /// is one pair.
    pub count: Option<String>,
    /// A column of real weights. For pairs, it replaces `count`; for trajectories, a transition has
    /// the weight of its source row.
    pub weight: Option<String>,
    /// Treat sources and targets as states of one kind, and keep only the largest strongly
    /// connected set: every state of it can be reached from every other one.
    #[serde(default)]
    pub connected: bool,
    /// What happens to a partition without a transition at a lag, if other partitions have some.
    #[serde(default)]
    pub empty: Empty,
}

/// The SQL whose rows are points, and the meaning of its columns.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Points",
    extend("oneOf" = [{ "required": ["sql"] }, { "required": ["file"] }])
)]
pub(crate) struct PointsText {
    /// A SELECT statement over the tables. It refers to `parameters` as `$name`.
    #[schemars(example = &"SELECT station, day, temperatures FROM days")]
    pub sql: Option<String>,
    /// A file with one SELECT statement, instead of `sql`.
    #[schemars(example = &"sql/days.sql")]
    pub file: Option<String>,
    /// Values to which the SQL refers as `$name`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Argument>,
    /// The partition column or columns. Every combination of their values gets its own model.
    #[serde(default, deserialize_with = "none_or_more")]
    #[schemars(with = "OneOrMany<String>")]
    pub partition_by: Vec<String>,
    /// The column or columns that identify a row. They are written beside its embedding. Two rows
    /// of one id, in one partition, are an error.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub id: Vec<String>,
    /// The columns of the coordinates: several columns of numbers, or one column of lists that have
    /// the same length in all rows.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub coordinates: Vec<String>,
    /// What the coordinates are divided by: `none`, `standard` for their standard deviations, or
    /// numbers by column; that of a list column is for all its numbers.
    #[serde(default)]
    pub scale: ScaleText,
    /// A column of real weights.
    pub weight: Option<String>,
}

/// The SQL whose rows show symbols, or have a state and an observation, and the meaning of its
/// columns. Rows of a trajectory that follow each other form a sequence. A gap in time or a null
/// symbol ends it. Rows have either a `symbol` (hidden Markov models) or a `state` and an
/// `observation` (filters).
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Sequences",
    extend(
        "oneOf" = [{ "required": ["sql"] }, { "required": ["file"] }],
        "anyOf" = [
            { "required": ["time", "symbol"] },
            { "required": ["time", "bins"] },
            { "required": ["time", "observation"] },
            { "required": ["id", "observation"] }
        ]
    )
)]
pub(crate) struct SequencesText {
    /// A SELECT statement over the tables. It refers to `parameters` as `$name`.
    #[schemars(example = &"SELECT session, n, page FROM clicks")]
    pub sql: Option<String>,
    /// A file with one SELECT statement, instead of `sql`.
    #[schemars(example = &"sql/clicks.sql")]
    pub file: Option<String>,
    /// Values to which the SQL refers as `$name`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Argument>,
    /// The partition column or columns. Every combination of their values gets its own model.
    #[serde(default, deserialize_with = "none_or_more")]
    #[schemars(with = "OneOrMany<String>")]
    pub partition_by: Vec<String>,
    /// The column or columns that identify a trajectory. Without them, each partition is one
    /// trajectory.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub trajectory: Vec<String>,
    /// The column that orders a trajectory: an integer, a date or a timestamp. A second column
    /// orders the rows of a trajectory at one time: `["t", "n"]`. Lags, intervals and gaps are
    /// measured in the first one.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &["t", "n"])]
    pub time: Vec<String>,
    /// What happens to several rows of a trajectory at one time.
    #[serde(default)]
    pub duplicates: Duplicates,
    /// The time between rows that follow each other: a whole number or a duration. Rows that are
    /// further apart begin a new sequence, unless `max_gap` lets filters predict through the gap.
    /// Without it, a row follows the one before in time order.
    pub interval: Option<Lag>,
    /// The longest time between a row and the next one of its trajectory: a whole number or a
    /// duration. A longer gap ends the sequence and the trajectory. With `interval`, filters
    /// predict through gaps up to it that are a whole number of intervals.
    pub max_gap: Option<Lag>,
    /// How much the time between two rows may differ from `interval`: a whole number or a duration,
    /// less than half of the interval. Without it, times must fit exactly.
    pub tolerance: Option<Lag>,
    /// For rows without time, in place of `trajectory` and `time`: the column or columns that
    /// identify a row. The state of each row is estimated from its own observation alone. Only for
    /// filters.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub id: Vec<String>,
    /// The column or columns that make up the symbol of a row, of any type.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub symbol: Vec<String>,
    /// Coordinates to cut into boxes. The box numbers are part of the symbol.
    #[serde(default)]
    pub bins: InOrder<BinText>,
    /// For filters, the columns of the state that is known of training rows: several columns of
    /// numbers, or one column of lists that have the same length in all rows. `kalman`, `ekf` and
    /// `ukf` with all matrices given need no state, and neither does `gyre assign`.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &["x", "y"])]
    pub state: Vec<String>,
    /// For filters, the columns of the observation: several columns of numbers, or one column of
    /// lists. Kalman filters take the numbers that a row has, kernels whole observations. The state
    /// of a row without an observation is predicted from the rows before it.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &"image")]
    pub observation: Vec<String>,
    /// A column of real weights. A window of rows has the weight of its first row. With `refine =
    /// "em"`, all rows of a trajectory need one weight. Only for symbols.
    pub weight: Option<String>,
    /// A column of text that divides the rows: `train` to fit, `test` to score only. Rows with null
    /// are neither fitted nor scored, but filtered. Without it, all rows are fitted.
    pub split: Option<String>,
    /// What happens to a partition without a window of rows, or for filters without training rows,
    /// if other partitions have some.
    #[serde(default)]
    pub empty: Empty,
}

/// What a key of `[transitions]` or of another program is called in `[sequences]`.
fn of_sequences(key: &str) -> Option<&'static str> {
    Some(match key {
        "lag" | "lagtime" => {
            "cannot be used here: sequences are of rows that follow each other; the time between them is `interval`"
        }
        "window" => "cannot be used here: `windows` of a fit says which rows are counted",
        "connected" => {
            "cannot be used here: a hidden Markov model keeps all symbols; `min_count` of a fit pools rare ones"
        }
        "coordinates" | "scale" => {
            "cannot be used here: sequences are of symbols, or of states and observations; cut coordinates into boxes with `sequences.bins`, or name them as `state` and `observation`"
        }
        "source" | "target" | "count" => {
            "cannot be used here: sequences are of three rows and more, which pairs do not have"
        }
        "lengths" => "cannot be used here: the column of a trajectory is `trajectory`",
        "measurement" | "z" => {
            "cannot be used here: what is measured in a row is its `observation`"
        }
        "states" => {
            "cannot be used here: the column of a known state is `state`; the states of a hidden Markov model are hidden"
        }
        _ => return None,
    })
}

/// Reads the section `[sequences]`.
fn sequences(root: &Node) -> Result<Option<SequencesText>, KeyError> {
    let Some(node) = root.get("sequences") else {
        return Ok(None);
    };
    read(node).map(Some).map_err(|mut error: KeyError| {
        if let KeyErrorKind::UnknownKey { key, .. } = &error.kind
            && let Some(message) = of_sequences(key)
        {
            error.path.push(key.clone());
            error.kind = KeyErrorKind::Wrong(message.into());
        }
        error
    })
}

/// What happens to a model without transitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Empty {
    /// The model is left out. The summary and the run record report it.
    #[default]
    Skip,
    /// The model fails: the other models are put in place, and the exit code is 1.
    Fail,
}

impl Empty {
    pub(crate) fn is_skip(&self) -> bool {
        *self == Empty::Skip
    }
}

/// What happens to several rows of a trajectory at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Duplicates {
    /// The run fails, unless rows follow each other in the order of the second column of `time`:
    /// with a lag in steps, and without an interval.
    #[default]
    Error,
    /// The first row in the order of the second column of `time` counts. Rows that are equal in all
    /// columns count as one.
    First,
    /// The last row in this order counts.
    Last,
}

impl Duplicates {
    pub(crate) fn is_error(&self) -> bool {
        *self == Duplicates::Error
    }
}

/// The points of a trajectory that start a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// Every point of a trajectory starts a pair.
    #[default]
    Sliding,
    /// The points at times 0, lag, 2 lag … of a trajectory start pairs, so that pairs do not
    /// overlap.
    Strided,
    /// Every point starts a pair, and counts are divided by the number of steps per lag. The sum of
    /// the counts is then about the number of pairs that do not overlap.
    Effective,
}

/// Fits to resamples of the trajectories, and tests, which show how far the fits can be trusted.
/// The rows are read once.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// The number of bootstrap resamples of the trajectories; 0 for none. Each is fitted like the
    /// whole. They give the table `bootstrap`, the columns `<fit>_stability` and, with `markov`,
    /// intervals of timescales.
    #[serde(default)]
    #[schemars(range(max = 10000))]
    pub bootstrap: usize,
    /// The number of folds of a cross-validation; 0 for none. Each fold is held out once.
    #[serde(default)]
    #[schemars(range(max = 1000))]
    pub folds: usize,
    /// The confidence level of the intervals.
    #[serde(default = "Validation::confidence")]
    #[schemars(range(min = 0.5, max = 0.9999))]
    pub confidence: f64,
    /// The maximum number of groups from which resamples are drawn. With fewer trajectories than
    /// groups, each trajectory is one group.
    #[serde(default = "Validation::groups")]
    #[schemars(range(min = 2, max = 4096))]
    pub groups: usize,
    /// The column or columns of the unit of resampling, such as a year or a ship, instead of the
    /// trajectory. A pair belongs to the group of its target row. Without it, the transitions of a
    /// table of pairs are resampled one by one.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub group: Vec<String>,
    /// Test whether the sets of each fit form a Markov chain, for the tables `timescales` and
    /// `chapman_kolmogorov`. Sources and targets must be states of one kind.
    #[serde(default)]
    pub markov: bool,
}

impl Validation {
    fn confidence() -> f64 {
        0.95
    }

    pub(crate) fn groups() -> usize {
        100
    }
}

/// The tables of the output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Output")]
pub struct OutputTables {
    /// For rows with states, columns of the SQL of `[transitions]` to write into the table `rows`,
    /// which has every input row with the sets of its states. The input is then read a second time.
    /// Without columns, there is no such table. For rows with coordinates, the rows of the table
    /// `points`: `"all"`, the number of points of a sample, or `"none"`; all of them by default.
    /// For sequences of symbols, `"all"` asks for the table `predictions`, which has every row. For
    /// filters, the rows of the table `estimates`: `"held-out"` for those whose split is not
    /// `train`, which is the default with `sequences.split`, `"all"`, or `"none"`.
    #[serde(default)]
    #[schemars(example = &["id", "time"])]
    pub rows: OutputRows,
    /// Write the distribution of the next symbol into the table `predictions`, as a list per row.
    /// Only for sequences with at most 1,000 symbols.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distribution: bool,
    /// Write the table `posteriors`, which has the weights of the training rows for every row that
    /// is not one of them. Only for filters of rows without time (`sequences.id`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub posteriors: bool,
    /// Write the table `errors`, which has the mean squared error of each filter by the number of a
    /// row in its trajectory, over rows with `split = 'test'` and a known state. Only for filters
    /// of rows with time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub errors: bool,
    /// The tables to write, beside those that later commands read and those of `output.rows`. By
    /// default a run writes all tables, but `counts` only if the input has no column of counts or
    /// weights, or if there is no fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &["coarse", "certificates"])]
    pub tables: Option<Vec<String>>,
    /// Tables to leave out. Later commands must not need them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = &["counts", "restarts"])]
    pub without: Vec<String>,
}

/// Pairs of points (x, y) for the table `densities`: how likely is it to be at y one lag after x?
/// Only with the method `state_embedding`. Every model scores every pair.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Densities {
    /// A SELECT statement over the tables, whose rows are pairs of points.
    #[schemars(example = &"SELECT x0, y0, x1, y1 FROM pairs")]
    pub sql: String,
    /// The columns of x, in the order of `transitions.coordinates` and in their units.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &["x0", "y0"])]
    pub from: Vec<String>,
    /// The columns of y.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &["x1", "y1"])]
    pub to: Vec<String>,
}

impl OutputTables {
    pub(crate) fn is_empty(&self) -> bool {
        *self == OutputTables::default()
    }
}

/// The value of `output.rows`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OutputRows {
    /// Columns, or one of the words for points.
    Names(Vec<String>),
    /// The number of points of a sample.
    Number(u64),
}

impl Default for OutputRows {
    fn default() -> OutputRows {
        OutputRows::Names(Vec::new())
    }
}

/// Which points are rows of the table `points`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) enum PointRows {
    /// All of them.
    #[default]
    All,
    /// This number of points: those whose keys have the smallest hashes.
    Sample(u64),
    /// There is no such table.
    None,
}

/// Which rows a run filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilteredRows {
    /// The rows whose split is not `train`.
    HeldOut,
    /// All rows.
    All,
    /// No rows: there is no table `estimates`. Rows are filtered for their scores alone.
    None,
}

impl OutputRows {
    /// The rows of the table `estimates`. None if the key is for other rows.
    pub fn filtered(&self, has_split: bool) -> Option<FilteredRows> {
        let OutputRows::Names(names) = self else {
            return None;
        };
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        match words[..] {
            [] if has_split => Some(FilteredRows::HeldOut),
            [] | ["all"] => Some(FilteredRows::All),
            ["held-out"] => Some(FilteredRows::HeldOut),
            ["none"] => Some(FilteredRows::None),
            _ => None,
        }
    }

    /// The columns of the table `rows`. None for a number of points.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        match self {
            OutputRows::Names(names) => Some(names),
            OutputRows::Number(_) => None,
        }
    }

    /// Whether there is a table `predictions`. None if the key is for other rows.
    pub fn predictions(&self) -> Option<bool> {
        match self.points()? {
            PointRows::All => Some(*self != OutputRows::default()),
            PointRows::None => Some(false),
            PointRows::Sample(_) => None,
        }
    }

    /// The rows of the table `points`. None if they are columns.
    pub(crate) fn points(&self) -> Option<PointRows> {
        match self {
            OutputRows::Number(n) => Some(PointRows::Sample(*n)),
            OutputRows::Names(names) => match &names[..] {
                [] => Some(PointRows::All),
                [word] if word == "all" => Some(PointRows::All),
                [word] if word == "none" => Some(PointRows::None),
                _ => None,
            },
        }
    }
}

impl<'de> serde::Deserialize<'de> for OutputRows {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowsVisitor;
        impl<'de> de::Visitor<'de> for RowsVisitor {
            type Value = OutputRows;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of columns, a number of points, \"all\" or \"none\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<OutputRows, E> {
                let unexpected = de::Unexpected::Signed(number);
                let number = u64::try_from(number).ok().filter(|n| *n > 0);
                let number = number.ok_or_else(|| E::invalid_value(unexpected, &self))?;
                Ok(OutputRows::Number(number))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<OutputRows, E> {
                Ok(OutputRows::Names(vec![name.to_string()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<OutputRows, A::Error> {
                let list = de::value::SeqAccessDeserializer::new(list);
                serde::Deserialize::deserialize(list).map(OutputRows::Names)
            }
        }
        deserializer.deserialize_any(RowsVisitor)
    }
}

inline_schema!(OutputRows, |_| json_schema!({
    "anyOf": [
        { "type": "string" },
        { "type": "array", "items": { "type": "string" } },
        { "type": "integer", "minimum": 1 }
    ]
}));

impl PipelineFile {
    /// Gives the rows this SQL if they have none.
    pub(crate) fn default_sql(&mut self, default: &str) {
        let transitions = self.transitions.as_mut().map(|t| (&mut t.sql, &t.file));
        let points = self.points.as_mut().map(|t| (&mut t.sql, &t.file));
        let sequences = self.sequences.as_mut().map(|t| (&mut t.sql, &t.file));
        for (sql, file) in [transitions, points, sequences].into_iter().flatten() {
            if file.is_none() {
                sql.get_or_insert_with(|| default.to_string());
            }
        }
    }

    /// Reads the sections of a document in the order above.
    ///
    /// Returns the file, all errors, and the names of the sections (`job`) and parts (`job.name`,
    /// `fit.dbmr`) with errors. These differ from the document: the values with errors are missing.
    pub(crate) fn read(root: &Node) -> (PipelineFile, Vec<KeyError>, BTreeSet<String>) {
        let (mut errors, mut faulty) = (Vec::new(), BTreeSet::new());
        for entry in root.entries() {
            if !FILE_KEYS.contains(&entry.key.as_str()) {
                let error: KeyError = de::Error::unknown_field(&entry.key, &FILE_KEYS);
                errors.push(error.at(root));
            }
        }
        fn optional<T: DeserializeOwned + Default>(
            root: &Node,
            key: &'static str,
        ) -> Result<T, KeyError> {
            root.get(key).map_or_else(|| Ok(T::default()), read)
        }
        macro_rules! section {
            ($key:literal, $read:expr) => {{
                let (value, found) = section(root, $read);
                faulty.extend(found.iter().map(KeyError::within));
                faulty.extend(value.is_none().then(|| $key.to_string()));
                errors.extend(found);
                value.unwrap_or_default()
            }};
        }
        let file = PipelineFile {
            job: section!("job", |root| required(root, "job")),
            store: section!("store", |root| optional(root, "store")
                .map_err(KeyError::without_value)),
            tables: section!("tables", |root| optional(root, "tables")),
            transitions: match ["transitions", "points", "sequences"].map(|key| root.get(key)) {
                [None, Some(_), _] | [None, _, Some(_)] => None,
                _ => Some(section!("transitions", |root| required(
                    root,
                    "transitions"
                ))),
            },
            points: section!("points", |root| optional(root, "points")),
            sequences: section!("sequences", sequences),
            names: section!("names", |root| optional(root, "names")),
            fit: section!("fit", fits),
            validation: section!("validation", |root| optional(root, "validation")),
            output: section!("output", |root| optional(root, "output")),
            densities: section!("densities", |root| optional(root, "densities")),
            checks: section!("checks", |root| optional(root, "checks")),
            check: section!("check", queries),
        };
        (file, errors, faulty)
    }
}
