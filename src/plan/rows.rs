//! The query of a pipeline, resolved: SQL, parameters and columns; and what plans are hashed by.

use crate::error::{Error, Kind, Result};
use crate::evidence::lag::Lag;
use crate::output::tables::run_schema::LagColumn;
use crate::plan::evidence::Columns;
use crate::plan::parameters::values;
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::keys::NamesFrom;
use crate::read::lake::Lake;
use crate::read::lake::files::{InputFile, LakeTable};
use crate::read::paths::places::canonical_location;
use arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The query of a pipeline, planned.
pub struct PlannedQuery {
    pub(crate) sql: String,
    pub(crate) parameters: BTreeMap<String, ScalarValue>,
    pub(crate) frame: DataFrame,
    pub(crate) columns: Columns,
    pub(crate) partition: Vec<Field>,
}

pub(crate) async fn query(pipeline: &Pipeline, sql: &str, lake: &Lake) -> Result<PlannedQuery> {
    let keys = &pipeline.transitions;
    let section = keys.input.section();
    let sql = sql.trim().trim_end_matches(';').to_string();
    let parameters = values(&keys.parameters, &format!("{section}.parameters"))?;
    let frame = lake.query_of(section, &sql, &parameters).await?;
    let columns = Columns::of(&frame, section)?;
    Ok(PlannedQuery {
        sql,
        parameters,
        frame,
        partition: columns.keys(&keys.partition_by, "partition_by")?,
        columns,
    })
}

pub(crate) fn unhashed(e: serde_json::Error) -> Error {
    Error::with_source(Kind::Bug, "a plan cannot be hashed", e)
}

/// The keys of a pipeline for its hash: without the place of the output and the number of earlier
/// results, which change no result, and with null for paths, whose files and SQL texts are hashed,
/// also those of checks.
pub(crate) fn hashed_keys(pipeline: &Pipeline) -> Result<Value> {
    let mut keys = serde_json::to_value(pipeline).map_err(unhashed)?;
    if let Some(job) = keys["job"].as_object_mut() {
        job.retain(|key, _| key != "keep" && key != "output");
    }
    for (_, table) in keys["tables"].as_object_mut().into_iter().flatten() {
        table["path"] = Value::Null;
    }
    keys["transitions"]["query"] = Value::Null;
    let checks = keys.pointer_mut("/checks/check");
    for check in checks.and_then(Value::as_array_mut).into_iter().flatten() {
        check["query"] = Value::Null;
    }
    if let NamesFrom::Output(location) = &pipeline.names.from {
        keys["names"]["from"] = canonical_location(location).into();
    }
    Ok(keys)
}

/// A hash of keys of the pipeline, the SQL, the input files and the version of gyre.
pub(crate) fn hash(keys: &impl Serialize, sql: &str, tables: &[LakeTable]) -> Result<String> {
    let files: Vec<_> = tables.iter().map(inputs).collect();
    let whole =
        serde_json::to_vec(&(env!("CARGO_PKG_VERSION"), keys, sql, files)).map_err(unhashed)?;
    Ok(blake3::hash(&whole).to_hex()[..32].to_string())
}

/// The parts of a table on which a result depends.
pub(crate) fn inputs(table: &LakeTable) -> impl Serialize {
    let files: Vec<_> = table.files.iter().map(InputFile::fingerprint).collect();
    let folders = (!table.partition_columns.is_empty()).then_some(&table.folders);
    (&table.name, files, &table.partition_columns, folders)
}

pub(crate) fn lag_column(lags: &[Lag]) -> LagColumn {
    let integer = |lag: &Lag| match lag {
        Lag::Ticks(n) => Some(*n),
        _ => None,
    };
    match lags.iter().map(integer).collect() {
        _ if lags.is_empty() => LagColumn::None,
        Some(integers) => LagColumn::Integers(integers),
        None => LagColumn::Texts(lags.to_vec()),
    }
}
