//! Pipeline TOML → [`Pipeline`]: what the user wrote, read and checked as far as that needs no data.
//!
//! In: the text of the file, its name, the `--set` assignments and a lookup of environment variables; nothing here touches a
//! disk or the environment. Out: a `Pipeline`, or all errors, each with its line and, for a misspelt key, a suggestion.
//! `document` knows places, `read` turns them into types, `written`, `fit` and `checks` list the keys, `check` says what goes with what.

pub mod argument;
pub mod check;
pub mod checks;
pub mod document;
pub mod fits;
pub mod keys;
pub mod read;
pub mod shape;

use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks::Checks;
use crate::plan::pipeline::document::{Document, Place};
use crate::plan::pipeline::fits::Fit;
use crate::plan::pipeline::keys::{Empty, Job, Naming, Table, Validation, Window};
use crate::plan::pipeline::read::Fault;
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

/// A pipeline whose keys fit together; columns, files and SQL are not looked at yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pipeline {
    /// The file that it was read from. Relative paths are looked up beside this file.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    pub job: Job,
    /// Not written out with the rest: its values may be secret, and no result depends on them.
    #[serde(skip)]
    pub store: Store,
    pub tables: BTreeMap<String, Table>,
    pub transitions: Transitions,
    pub names: Naming,
    /// At least one, in the order of the file.
    pub fits: Vec<Fit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    #[serde(skip_serializing_if = "Checks::is_empty")]
    pub checks: Checks,
}

/// The query and what its columns mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transitions {
    pub query: Query,
    /// Values for the `$name`s of the query.
    pub parameters: BTreeMap<String, Argument>,
    /// Columns whose every combination of values gets a model of its own; may be empty.
    pub partition_by: Vec<String>,
    /// Keep the largest strongly connected set of states alone.
    pub connected: bool,
    /// What becomes of a model without a transition.
    #[serde(skip_serializing_if = "Empty::is_skip")]
    pub empty: Empty,
    pub input: Input,
}

/// What a row of the query is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// A point of a trajectory; its state is the `state` columns and then the boxes of the `bins` columns.
    Trajectories {
        /// Empty: one trajectory per partition.
        trajectory: Vec<String>,
        time: String,
        state: Vec<String>,
        /// In the order of the file.
        bins: Vec<(String, Binning)>,
        /// The column of real weights, where pairs do not count one each.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// At least one, all different; never ticks beside durations.
        lags: Vec<Lag>,
        window: Window,
        /// The time between rows, where counts are divided by the lag.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<Lag>,
    },
    /// A pair of states.
    Pairs {
        source: Vec<String>,
        target: Vec<String>,
        measure: Measure,
    },
}

/// How much a pair counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// A row is one pair.
    Ones,
    /// The integer column that says how many.
    Count(String),
    /// The column of real weights.
    Weight(String),
}

impl Pipeline {
    /// Reads the text of a pipeline file. `origin` names it in messages; `sets` are assignments such as `fit.dbmr.rank=4`, made
    /// in order; `environment` gives the value of a variable, for `${VAR}`.
    pub fn parse(
        text: &str,
        origin: &str,
        sets: &[String],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Pipeline> {
        let document = Document::read(text, origin, sets, environment)?;
        let (file, faults, faulty) = crate::plan::pipeline::keys::File::read(&document.root);
        let told =
            |fault: &Fault| document.error(fault.place.unwrap_or(Place::File), &fault.to_string());
        let mut errors: Vec<Error> = faults.iter().map(told).collect();
        let pipeline =
            crate::plan::pipeline::check::pipeline(file, &document, &faulty, &mut errors);
        match (Error::all(errors), pipeline) {
            (Some(e), _) => Err(e),
            (None, Some(pipeline)) => Ok(pipeline),
            (None, None) => Err(Error::bug("a pipeline file was not understood")),
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
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(without_null));
    let generator = settings.into_generator();
    generator
        .into_root_schema_for::<crate::plan::pipeline::keys::File>()
        .to_value()
}

/// TOML has no null: a key that may be missing is one that is not required. An empty list cannot be written either.
fn without_null(schema: &mut Schema) {
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
