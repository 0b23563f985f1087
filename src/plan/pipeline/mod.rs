//! Pipeline TOML → [`Pipeline`]: the content of the file, checked as far as possible without data.
//!
//! In: the text of the file, its name, the `--set` assignments and a lookup of environment
//! variables. Nothing here reads a disk or the environment. Out: a `Pipeline`, or all errors, each
//! with its line and, for a misspelt key, a suggestion.
//!
//! - [`document`] parses TOML into a tree of values with positions.
//! - [`deserializer`] reads typed values from the tree.
//! - [`keys`], [`fits`], [`checks`], [`argument`] and [`shape`] are these types.
//! - [`consistency`] checks the values against each other.

pub mod argument;
pub mod checks;
mod consistency;
mod deserializer;
mod document;
pub mod fits;
pub mod keys;
pub mod shape;

use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks::Checks;
use crate::plan::pipeline::document::{Document, Position};
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{
    Empty, InputTable, Job, Naming, PipelineFile, Validation, Window,
};
use crate::read::lake::files::Query;
use crate::read::rows::bins::Binning;
use crate::store::parameter::Store;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A pipeline with consistent keys. Columns, files and SQL are not checked yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pipeline {
    /// The file that it was read from. Relative paths are looked up beside this file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The section `[job]`.
    pub job: Job,
    /// Not serialized: its values may be secret, and no result depends on them.
    #[serde(skip)]
    pub store: Store,
    /// `[tables]`: the input tables by their names in the SQL.
    pub tables: BTreeMap<String, InputTable>,
    /// The section `[transitions]`.
    pub transitions: Transitions,
    /// The section `[names]`.
    pub names: Naming,
    /// At least one, in the order of the file.
    pub fits: Vec<FitEntry>,
    /// The section `[validation]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// `[checks]` and all `[[check]]`.
    #[serde(skip_serializing_if = "Checks::is_empty")]
    pub checks: Checks,
}

/// The query and the meaning of its columns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transitions {
    /// The SQL, or the file that contains it.
    pub query: Query,
    /// The values of the `$name`s in the query.
    pub parameters: BTreeMap<String, Argument>,
    /// The partition columns; may be empty.
    pub partition_by: Vec<String>,
    /// Keep only the largest strongly connected set of states.
    pub connected: bool,
    /// What happens to a model without transitions.
    #[serde(skip_serializing_if = "Empty::is_skip")]
    pub empty: Empty,
    /// The meaning of a row.
    pub input: Input,
}

/// The meaning of a row of the query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// A point of a trajectory. Its state is the `state` columns, then the boxes of the `bins`
    /// columns.
    Trajectories {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        /// The column that orders a trajectory.
        time: String,
        /// The state columns; may be empty if there are bins.
        state: Vec<String>,
        /// In the order of the file.
        bins: Vec<(String, Binning)>,
        /// The column of real weights; without it, each pair counts 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// At least one, all different; not both ticks and durations.
        lags: Vec<Lag>,
        /// Which points start a pair.
        window: Window,
        /// The time between rows, if counts are divided by the lag.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<Lag>,
    },
    /// A pair of states.
    Pairs {
        /// The columns of the source state.
        source: Vec<String>,
        /// The columns of the target state.
        target: Vec<String>,
        /// How much a row counts.
        measure: PairMeasure,
    },
}

/// How much a row counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PairMeasure {
    /// Each row counts 1.
    Ones,
    /// The integer column with the number of pairs.
    Count(String),
    /// The column of real weights.
    Weight(String),
}

impl Pipeline {
    /// Reads the text of a pipeline file.
    ///
    /// Messages call the file `origin`. `sets` are assignments such as `fit.dbmr.rank=4`, applied
    /// in order. `environment` returns the value of a variable, for `${VAR}`.
    ///
    /// # Errors
    /// All errors of the file, with their lines.
    pub fn parse(
        text: &str,
        origin: &str,
        sets: &[String],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Pipeline> {
        let document = Document::read(text, origin, sets, environment)?;
        let (file, key_errors, faulty) = PipelineFile::read(&document.root);
        let mut errors = Vec::new();
        errors.extend(
            key_errors
                .iter()
                .map(|e| document.error(e.position.unwrap_or(Position::File), &e.to_string())),
        );
        let pipeline = consistency::check(file, &document, &faulty, &mut errors);
        match (Error::all(errors), pipeline) {
            (Some(e), _) => Err(e),
            (None, Some(pipeline)) => Ok(pipeline),
            (None, None) => Err(Error::bug("a pipeline file has neither content nor errors")),
        }
    }

    /// Adds the name of the pipeline file to an error.
    pub(crate) fn at(&self, error: Error) -> Error {
        match &self.file {
            Some(file) => error.at(file.display()),
            None => error,
        }
    }
}

/// The JSON Schema (draft 2020-12) of pipeline files.
pub fn json_schema() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(simplify));
    let generator = settings.into_generator();
    generator.into_root_schema_for::<PipelineFile>().to_value()
}

/// Removes null and empty defaults, because in TOML an optional key is absent. Joins the lines of
/// descriptions.
fn simplify(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if schema
        .get("default")
        .is_some_and(|d| d.as_array().is_some_and(Vec::is_empty))
    {
        schema.remove("default");
    }
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|t| t != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(any) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        any.retain(|s| s["type"] != "null");
        if let [only] = &any[..] {
            let only = only.clone();
            schema.remove("anyOf");
            if let Value::Object(only) = only {
                schema.ensure_object().extend(only);
            }
        }
    }
}
