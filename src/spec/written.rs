//! The keys of a pipeline file, one to one. Comments here are the descriptions in the JSON Schema.

use super::bins::BinText;
use super::checks::{CheckText, Limits, queries};
use super::document::Node;
use super::fit::{Fit, fits};
use super::lag::Lag;
use super::read::{Fault, MOMENT, read, required, section};
use super::shape::{InOrder, OneOrMany, none_or_more, one_or_many};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

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

/// How the stores of URLs are reached, beside the environment variables of their clouds.
#[derive(Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Environment variables of the clouds in lower case, such as `aws_region`, `google_service_account` and
    /// `azure_storage_account_name`, which go before those variables; `allow_http`, `timeout`, `connect_timeout` and `proxy_url` are for
    /// all connections.
    #[serde(default)]
    #[schemars(example = &serde_json::json!({ "aws_region": "eu-central-1", "aws_endpoint_url": "https://minio.example.org" }))]
    pub options: BTreeMap<String, Parameter>,
}

/// The values may be secret.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.options.keys()).finish()
    }
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Parquet,
    Csv,
    Json,
    Arrow,
}

impl Format {
    pub const ALL: [Format; 4] = [Format::Parquet, Format::Csv, Format::Json, Format::Arrow];

    /// As a pipeline writes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Arrow => "arrow",
        }
    }

    /// What the ending of a name says, before that of a compression.
    fn of_name(name: &str) -> Option<Format> {
        let name = name.rsplit('/').next()?;
        let (name, _) = Compression::of_name(name);
        match name.rsplit_once('.')?.1 {
            "parquet" => Some(Format::Parquet),
            "csv" | "tsv" => Some(Format::Csv),
            "json" | "ndjson" | "jsonl" => Some(Format::Json),
            "arrow" | "feather" | "ipc" => Some(Format::Arrow),
            _ => None,
        }
    }
}

/// How a file is compressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// A name without the ending of its compression, and what that says.
    pub fn of_name(name: &str) -> (&str, Compression) {
        let packed = [(".gz", Compression::Gzip), (".zst", Compression::Zstd)];
        let by_ending = |(ending, how): (&str, _)| Some((name.strip_suffix(ending)?, how));
        let found = packed.into_iter().find_map(by_ending);
        found.unwrap_or((name, Compression::None))
    }

    /// What the name of a file that is compressed so ends in.
    pub fn ending(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
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
    pub(super) fn is_skip(&self) -> bool {
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

/// What a `$name` in SQL stands for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Argument {
    One(Parameter),
    /// A date, a time or both, as TOML writes it.
    Moment {
        moment: String,
    },
    /// Values of one type.
    List(Vec<Argument>),
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentVisitor;
        impl<'de> Visitor<'de> for ArgumentVisitor {
            type Value = Argument;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true or false, a date or time, or a list of these")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Argument, E> {
                Ok(Argument::One(Parameter::Boolean(value)))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Argument, E> {
                Ok(Argument::One(Parameter::Integer(value)))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Argument, E> {
                Ok(Argument::One(Parameter::Float(value)))
            }
            fn visit_str<E>(self, value: &str) -> Result<Argument, E> {
                Ok(Argument::One(Parameter::String(value.to_string())))
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                moment: D,
            ) -> Result<Argument, D::Error> {
                let moment = String::deserialize(moment)?;
                Ok(Argument::Moment { moment })
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Argument, A::Error> {
                let mut all = Vec::new();
                while let Some(next) = list.next_element()? {
                    all.push(next);
                }
                if all.is_empty() || all.iter().any(|a| matches!(a, Argument::List(_))) {
                    let message = "must be a list of at least one value, and of no other lists";
                    return Err(de::Error::custom(message));
                }
                Ok(Argument::List(all))
            }
        }
        deserializer.deserialize_newtype_struct(MOMENT, ArgumentVisitor)
    }
}

impl JsonSchema for Argument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Argument".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = json_schema!({ "type": ["string", "integer", "number", "boolean"] });
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

/// A plain value.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    String(String),
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
                faults.push(fault.at(entry.key_place));
            }
        }
        fn optional<T: DeserializeOwned + Default>(
            root: &Node,
            key: &'static str,
        ) -> Result<T, Fault> {
            let node = root.get(key);
            node.map_or_else(
                || Ok(T::default()),
                |node| read(node).map_err(|e| e.under(key)),
            )
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
                .map_err(Fault::unseen)),
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

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParameterVisitor;
        impl Visitor<'_> for ParameterVisitor {
            type Value = Parameter;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or true or false")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter::Boolean(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter::Integer(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
                Ok(Parameter::String(value.to_string()))
            }
        }
        // Text into which variables were put stays text.
        deserializer.deserialize_string(ParameterVisitor)
    }
}

impl Serialize for Parameter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Parameter::Boolean(value) => value.serialize(serializer),
            Parameter::Integer(value) => value.serialize(serializer),
            Parameter::Float(value) => value.serialize(serializer),
            Parameter::String(value) => value.serialize(serializer),
        }
    }
}

impl JsonSchema for Parameter {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Parameter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer", "number", "boolean"] })
    }
}
