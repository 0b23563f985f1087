//! The keys of a pipeline file, one to one. Comments here are the descriptions in the JSON Schema.

use crate::evidence::lag::Lag;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks::{CheckText, Limits, queries};
use crate::plan::pipeline::document::Node;
use crate::plan::pipeline::fits::{Fit, fits};
use crate::plan::pipeline::read::{Fault, read, required, section};
use crate::plan::pipeline::shape::{InOrder, OneOrMany, none_or_more, one_or_many};
use crate::read::formats::csv::Dialect;
use crate::read::formats::format::{Compression, Format};
use crate::read::lake::files::TableSource;
use crate::read::rows::bins::BinText;
use crate::store::parameter::Store;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Serialize, de};
use std::collections::{BTreeMap, BTreeSet};

/// A gyre pipeline: tables, the SQL that makes transitions of them, and the models fitted to the counts. Every string may hold
/// `${VAR}` or `${VAR:-default}`, except in SQL.
#[derive(Debug, JsonSchema)]
#[schemars(title = "gyre pipeline", deny_unknown_fields)]
pub struct File {
    pub job: Job,
    /// How clouds are reached.
    #[schemars(default)]
    pub store: Store,
    /// The input tables, by the names they have in the SQL.
    #[schemars(default)]
    pub tables: BTreeMap<String, Table>,
    pub transitions: TransitionsText,
    /// Whose names the sets keep.
    #[schemars(default)]
    pub names: Naming,
    /// The models to fit, in order.
    #[schemars(length(min = 1))]
    pub fit: Vec<Fit>,
    /// How far to trust the models: what is resampled, and how often.
    pub validation: Option<Validation>,
    /// Limits that a result must keep to be put in place.
    #[schemars(default)]
    pub checks: Limits,
    /// SQL that must give no rows before a result is put in place.
    #[schemars(default)]
    pub check: Vec<CheckText>,
}

const FILE_KEYS: [&str; 9] = [
    "job",
    "store",
    "tables",
    "transitions",
    "names",
    "fit",
    "validation",
    "checks",
    "check",
];

/// What this job is called and where its results go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Letters, digits, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]+$"), example = &"ocean")]
    pub name: String,
    /// The folder or URL (`file://`, `s3://`, `gs://`, `az://`) under which the output tables are written.
    #[schemars(length(min = 1), example = &"${OUT:-out}/ocean")]
    pub output: String,
    /// The seed of all random starts: the same seed gives the same bytes.
    #[serde(default)]
    pub seed: u64,
    /// Keep counts beside the tables, so that the next run reads only the files that are new and adds theirs.
    #[serde(default)]
    pub incremental: bool,
    /// How a run sees that an input file has changed: by its size, time and tag, or by all of its bytes, which are read once more for that.
    #[serde(default)]
    pub fingerprint: Fingerprint,
    /// How many earlier results to keep beside the one in place, for those who still read them. It changes no table.
    #[serde(default = "two")]
    #[schemars(range(max = 1000))]
    pub keep: u32,
}

/// What tells an input file from an earlier one of the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fingerprint {
    /// Size, time and, where the store has one, tag.
    #[default]
    Metadata,
    /// A hash of its bytes.
    Content,
}

fn two() -> u32 {
    2
}

/// One input table.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// A file, a folder or a glob pattern, or a list of these; or their URLs (`file://`, `s3://`, `gs://`, `az://`, and `https://` for single
    /// files). Hive partition folders (`basin=north/`) become columns.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>", example = &"lake/tracks/")]
    pub path: Vec<String>,
    /// The format of the files. Unless given, the extension decides, and folders hold Parquet.
    pub format: Option<Format>,
    /// The character between the values of a row of CSV. Unless given, a comma, and a tab in files whose names end in `.tsv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &";")]
    pub delimiter: Option<char>,
    /// Whether the first row of a CSV file names its columns. If not, they are `column_1`, `column_2` and so on. Unless given, it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The character around values of CSV that hold delimiters or line breaks. Unless given, `"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"'")]
    pub quote: Option<char>,
    /// The text or texts that stand for null in CSV. An empty value is null in any case.
    #[serde(
        default,
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "OneOrMany<String>", example = &"NA")]
    pub null: Vec<String>,
    /// How CSV and JSON files are compressed. Unless given, the ending of a name says so: `.gz` or `.zst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

impl Table {
    /// The format of the files: what the pipeline says, else the ending of the first path; folders hold Parquet.
    pub fn kind(&self) -> Format {
        let by_name = || self.path.first().and_then(|path| Format::of_name(path));
        self.format.or_else(by_name).unwrap_or(Format::Parquet)
    }

    /// The table as the lake opens it, under its name in the SQL.
    pub fn source<'a>(&'a self, name: &'a str) -> TableSource<'a> {
        TableSource {
            name,
            paths: &self.path,
            format: self.kind(),
            dialect: Dialect {
                delimiter: self.delimiter,
                header: self.header,
                quote: self.quote,
                null: self.null.clone(),
                compression: self.compression,
            },
        }
    }
}

/// Which earlier result the sets of this one are matched to. A set that goes on keeps its number and its id. Ranks and lags of a fit share ids.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Naming {
    /// `previous`: the result that this run will replace, if there is one. `none`: no result; the sets of every fit are numbered by
    /// decreasing weight. Anything else: the folder or URL of another output, which must be there.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1), example = &"out/ocean-2024")]
    pub from: NamesFrom,
}

/// Where sets have their names from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(from = "String", rename_all = "lowercase")]
pub enum NamesFrom {
    #[default]
    Previous,
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

/// The SQL whose rows become transitions, and what its columns mean: either the points of trajectories (`time`, `lag`, and
/// `state` or `bins`) or ready-made pairs (`source`, `target`).
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Transitions",
    extend(
        "oneOf" = [{ "required": ["sql"] }, { "required": ["file"] }],
        "anyOf" = [
            { "required": ["time", "lag"], "anyOf": [{ "required": ["state"] }, { "required": ["bins"] }] },
            { "required": ["source", "target"] }
        ]
    )
)]
pub struct TransitionsText {
    /// A SELECT statement over the tables. Values bind as `$name` from `parameters`.
    #[schemars(example = &"SELECT drifter, time, lon, lat FROM tracks")]
    pub sql: Option<String>,
    /// A file with one SELECT statement, instead of `sql`.
    #[schemars(example = &"sql/tracks.sql")]
    pub file: Option<String>,
    /// Values that the SQL names as `$name`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Argument>,
    /// The column or columns whose every combination of values gets a model of its own.
    #[serde(default, deserialize_with = "none_or_more")]
    #[schemars(with = "OneOrMany<String>")]
    pub partition_by: Vec<String>,
    /// The column or columns that tell trajectories apart. Without it, each partition is one trajectory.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub trajectory: Vec<String>,
    /// The column that orders a trajectory: an integer, a date or a timestamp.
    pub time: Option<String>,
    /// The column or columns that are the state, of any type.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub state: Vec<String>,
    /// Coordinates to cut into boxes; the box numbers are part of the state.
    #[serde(default)]
    pub bins: InOrder<BinText>,
    /// The time between the two ends of a pair, or a list of times: each gets a model of its own.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Lag>")]
    pub lag: Vec<Lag>,
    /// Which points of a trajectory start a pair; every one unless given.
    pub window: Option<Window>,
    /// The time between the rows of a trajectory, for `window = "effective"` where the lag is a time: a whole number or a duration, as the lag is.
    pub interval: Option<Lag>,
    /// The column or columns that are the source state of a pair.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub source: Vec<String>,
    /// The column or columns that are the target state of a pair.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub target: Vec<String>,
    /// An integer column of a table of pairs: how many a row stands for. Without it and without `weight`, a row is one pair.
    pub count: Option<String>,
    /// A column of real weights: of pairs, instead of `count`; of trajectories, where a transition weighs what the row that it starts in weighs.
    pub weight: Option<String>,
    /// Take sources and targets for states of one kind, and keep the largest set in which every state can be reached from every other one.
    #[serde(default)]
    pub connected: bool,
    /// What becomes of a partition (at a lag) that has no transition, where others have some.
    #[serde(default)]
    pub empty: Empty,
}

/// What becomes of a model that would be fitted to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Empty {
    /// It is left out; the summary and the run record say so.
    #[default]
    Skip,
    /// It is a model that failed: the others are put in place, and the exit code is 1.
    Fail,
}

impl Empty {
    pub(crate) fn is_skip(&self) -> bool {
        *self == Empty::Skip
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// Every point starts a pair.
    #[default]
    Sliding,
    /// Points at times 0, lag, 2 lag … of a trajectory start pairs, so that pairs do not overlap.
    Strided,
    /// Every point starts a pair, and counts are divided by the number of steps in the lag, so that they add up to about the number of pairs that do not overlap.
    Effective,
}

/// How far the fits can be trusted: fits to resamples of the trajectories, and tests. The rows are read once for all.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// Bootstrap resamples of the trajectories, each fitted like the whole, for the table `bootstrap`, the columns `<fit>_stability` and, with `markov`, intervals of timescales; 0 for none.
    #[serde(default)]
    #[schemars(range(max = 10000))]
    pub bootstrap: usize,
    /// Folds of a cross-validation, each held out once; 0 for none.
    #[serde(default)]
    #[schemars(range(max = 1000))]
    pub folds: usize,
    /// The probability that an interval is meant to hold.
    #[serde(default = "Validation::confidence")]
    #[schemars(range(min = 0.5, max = 0.9999))]
    pub confidence: f64,
    /// The most groups of trajectories that resamples are drawn from. Where there are no more trajectories, each is a group of its own.
    #[serde(default = "Validation::groups")]
    #[schemars(range(min = 2, max = 4096))]
    pub groups: usize,
    /// The column or columns whose every combination of values is drawn as one, in place of a trajectory: a year, a ship. A pair belongs to the group of its target row. Without it, single transitions of pairs are drawn.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<String>")]
    pub group: Vec<String>,
    /// Test whether the sets of each fit are a Markov chain of their own, for the tables `timescales` and `chapman_kolmogorov`. Sources and targets must be states of one kind.
    #[serde(default)]
    pub markov: bool,
}

impl Validation {
    fn confidence() -> f64 {
        0.95
    }

    fn groups() -> usize {
        100
    }
}

impl File {
    /// Reads the whole document, key by key in the order above. Beside the file, of which a faulty section has
    /// what could be read, is everything that is wrong, and
    /// the sections and their parts (`job.name`, `fit.dbmr`) of which some values are not those of the document.
    pub fn read(root: &Node) -> (File, Vec<Fault>, BTreeSet<String>) {
        let (mut faults, mut faulty) = (Vec::new(), BTreeSet::new());
        for entry in root.entries() {
            if !FILE_KEYS.contains(&entry.key.as_str()) {
                let fault: Fault = de::Error::unknown_field(&entry.key, &FILE_KEYS);
                faults.push(fault.at(root));
            }
        }
        fn optional<T: DeserializeOwned + Default>(
            root: &Node,
            key: &'static str,
        ) -> Result<T, Fault> {
            root.get(key).map_or_else(|| Ok(T::default()), read)
        }
        macro_rules! section {
            ($key:literal, $read:expr) => {{
                let (value, found) = section(root, $read);
                faulty.extend(found.iter().map(Fault::within));
                faulty.extend(value.is_none().then(|| $key.to_string()));
                faults.extend(found);
                value.unwrap_or_default()
            }};
        }
        let file = File {
            job: section!("job", |root| required(root, "job")),
            store: section!("store", |root| optional(root, "store")
                .map_err(Fault::without_value)),
            tables: section!("tables", |root| optional(root, "tables")),
            transitions: section!("transitions", |root| required(root, "transitions")),
            names: section!("names", |root| optional(root, "names")),
            fit: section!("fit", fits),
            validation: section!("validation", |root| optional(root, "validation")),
            checks: section!("checks", |root| optional(root, "checks")),
            check: section!("check", queries),
        };
        (file, faults, faulty)
    }
}
