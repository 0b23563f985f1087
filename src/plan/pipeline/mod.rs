//! Pipeline TOML → [`Pipeline`]: the content of the file, checked as far as possible without data.
//!
//! In: the text of the file, its name, the `--set` assignments and a lookup of environment
//! variables. Nothing here reads a disk or the environment. Out: a `Pipeline`, or all errors, each
//! with its line and, for a misspelt key, a suggestion.
//!
//! - [`document`] parses TOML into a tree of values with positions.
//! - [`deserializer`] reads typed values from the tree.
//! - [`keys`], [`fits`], [`checks`], [`argument`], `scale` and [`shape`] are these types.
//! - [`consistency`] checks the values against each other.
//! - [`content`] has what results, a [`Pipeline`].

pub mod argument;
pub mod checks;
mod consistency;
pub mod content;
mod declared;
mod deserializer;
mod document;
pub mod fits;
pub mod keys;
mod scale;
pub(crate) mod shape;

pub use crate::plan::pipeline::consistency::is_output_column;
pub(crate) use crate::plan::pipeline::consistency::table_names;
pub use crate::plan::pipeline::content::{Input, PairMeasure, Pipeline, TimeKeys, Transitions};

use crate::error::{Error, Result};
use crate::methods::AnyMethod;
use crate::plan::pipeline::document::{Document, Position};
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::PipelineFile;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

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
        Pipeline::of_document(&document, None, Vec::new())
    }

    /// A pipeline without a file: values under keys such as `transitions.time`, and fits. Rows
    /// without SQL are those of `sql`.
    ///
    /// # Errors
    /// All errors of the keys and fits.
    pub(crate) fn of_values(
        values: &[(String, Value)],
        sql: &str,
        fits: Vec<FitEntry<AnyMethod>>,
    ) -> Result<Pipeline> {
        Pipeline::of_document(&Document::of_values(values)?, Some(sql), fits)
    }

    fn of_document(
        document: &Document<'_>,
        sql: Option<&str>,
        fits: Vec<FitEntry<AnyMethod>>,
    ) -> Result<Pipeline> {
        let (mut file, key_errors, faulty) = PipelineFile::read(&document.root);
        file.fit.extend(fits);
        if let Some(sql) = sql {
            file.default_sql(sql);
        }
        let mut errors = Vec::new();
        errors.extend(
            key_errors
                .iter()
                .map(|e| document.error(e.position.unwrap_or(Position::File), &e.to_string())),
        );
        let pipeline = consistency::check(file, document, &faulty, &mut errors);
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
