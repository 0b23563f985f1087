//! Checks of a pipeline file → checks with planned SQL, and with partitions of the types of their
//! columns.

use crate::error::{Error, Kind, Result, counted};
use crate::output::number::grouped;
use crate::plan::parameters::{scalar, values};
use crate::plan::pipeline::checks::{Limit, On, PartitionKey};
use crate::plan::pipeline::{Pipeline, table_names};
use crate::read::lake;
use crate::read::lake::files::{Query, ident_reference};
use crate::read::lake::{Lake, query_text};
use crate::read::rows::states::key_text;
use crate::store::parameter::Parameter;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::catalog::empty::EmptyTable;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::TableProvider;
use datafusion::prelude::SessionContext;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A condition that must hold before a result is put in place.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCheck {
    /// The name of the `[[check]]`, or the key in `[checks]`.
    pub name: String,
    /// What happens if the check fails.
    pub on: On,
    /// The condition.
    pub rule: CheckRule,
}

/// The condition of a check.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckRule {
    /// The minimum number of rows.
    MinRows(u64),
    /// The maximum share of dropped rows.
    MaxDropped(f64),
    /// The partitions that must exist at every lag, as text in the run record.
    Partitions(Vec<BTreeMap<String, String>>),
    /// The maximum relative change of the number of transitions.
    MaxDrift(f64),
    /// A query that must return no rows.
    Sql {
        /// The SQL, without a final semicolon.
        sql: String,
        /// The values of the `$name`s in the SQL.
        parameters: BTreeMap<String, ScalarValue>,
    },
}

impl CheckRule {
    /// The name of the condition in run records.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            CheckRule::MinRows(_) => "min_rows",
            CheckRule::MaxDropped(_) => "max_dropped",
            CheckRule::Partitions(_) => "partitions",
            CheckRule::MaxDrift(_) => "max_drift",
            CheckRule::Sql { .. } => "sql",
        }
    }

    /// The bound of the measured value: the limit, or 0 missing partitions or returned rows.
    pub(crate) fn limit(&self) -> f64 {
        match self {
            CheckRule::MinRows(rows) => *rows as f64,
            CheckRule::MaxDropped(limit) | CheckRule::MaxDrift(limit) => *limit,
            CheckRule::Partitions(_) | CheckRule::Sql { .. } => 0.0,
        }
    }
}

impl fmt::Display for PlannedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            CheckRule::MinRows(rows) => write!(f, "at least {}", counted(rows, "row"))?,
            CheckRule::MaxDropped(share) => {
                write!(f, "at most {} of the rows dropped", percent(*share))?
            }
            CheckRule::Partitions(keys) => {
                write!(f, "{} expected", counted(keys.len(), "partition"))?
            }
            CheckRule::MaxDrift(drift) => write!(
                f,
                "transitions within {} of the result in place",
                percent(*drift)
            )?,
            CheckRule::Sql { .. } => write!(f, "no rows of `{}`", self.name)?,
        }
        match self.on {
            On::Fail => Ok(()),
            On::Warn => write!(f, " (warns)"),
        }
    }
}

/// Plans the checks of a pipeline. `tables` are those of its result.
pub(crate) async fn planned(
    pipeline: &Pipeline,
    partition: &[Field],
    lake: &Lake,
    tables: &[(&'static str, SchemaRef)],
) -> Result<Vec<PlannedCheck>> {
    let limits = &pipeline.checks.limits;
    let mut planned = Vec::new();
    let mut add = |on: On, rule: CheckRule| {
        planned.push(PlannedCheck {
            name: rule.kind().to_string(),
            on,
            rule,
        })
    };
    if let Some(Limit { value, on }) = limits.min_rows {
        add(on, CheckRule::MinRows(value));
    }
    if let Some(Limit { value, on }) = limits.max_dropped {
        add(on, CheckRule::MaxDropped(value));
    }
    if let Some(Limit { value, on }) = &limits.partitions {
        let keys = value.iter().map(|key| partition_key(key, partition));
        add(*on, CheckRule::Partitions(keys.collect::<Result<_>>()?));
    }
    if let Some(Limit { value, on }) = limits.max_drift {
        add(on, CheckRule::MaxDrift(value));
    }
    if pipeline.checks.queries.is_empty() {
        return Ok(planned);
    }
    let mut names = lake.tables.iter().map(|table| table.name.as_str());
    if let Some(name) = names.find(|name| tables.iter().any(|table| table.0 == *name)) {
        return Err(Error::spec(format!(
            "the input table `{name}` has the name of an output table, and the SQL of a check could mean both; rename `tables.{name}`"
        )));
    }
    let session = self::planning(lake, tables).await?;
    for check in &pipeline.checks.queries {
        let sql = sql(&check.query)?;
        let parameters = values(
            &check.parameters,
            &format!("check.{}.parameters", check.name),
        )?;
        let query = self::query(&session, &check.name, &sql, &parameters).await;
        let is_written = |name: &str| tables.iter().any(|(table, _)| *table == name);
        let optional = table_names(&pipeline.transitions.input).optional.iter();
        let mut absent = optional.filter(|name| !is_written(name) && sql.contains(**name));
        query.map_err(|e| match absent.next() {
            Some(name) => Error::new(
                e.kind(),
                format!("{e}; the run does not write the table `{name}`: see `output.tables` and `output.without`"),
            ),
            None => e,
        })?;
        planned.push(PlannedCheck {
            name: check.name.clone(),
            on: check.on,
            rule: CheckRule::Sql { sql, parameters },
        });
    }
    Ok(planned)
}

fn sql(query: &Query) -> Result<String> {
    Ok(query_text(query)?.trim().trim_end_matches(';').to_string())
}

/// A partition key as text in the run record. Its values have the types of the partition columns.
fn partition_key(key: &PartitionKey, partition: &[Field]) -> Result<BTreeMap<String, String>> {
    let columns = partition.iter().map(|field| {
        let value = match key {
            PartitionKey::One(value) => Some(value),
            PartitionKey::Columns(columns) => columns.get(field.name()),
        };
        // The check of the pipeline file has made sure that every column is there.
        let value = value.ok_or_else(|| Error::bug("a partition key lacks a column"))?;
        Ok((field.name().clone(), typed(value, field)?))
    });
    columns.collect()
}

fn typed(value: &Parameter, field: &Field) -> Result<String> {
    let data_type = field.data_type();
    let is_cut = matches!(value, Parameter::Float(x) if x.fract() != 0.0) && data_type.is_integer();
    let array = scalar(value).cast_to(data_type).and_then(|v| v.to_array());
    match array {
        Ok(array) if !is_cut => Ok(key_text(&[array], 0)),
        _ => Err(Error::spec(format!(
            "`checks.partitions` has {} for the column `{}`, which is {data_type}",
            serde_json::to_string(value).unwrap_or_default(),
            field.name()
        ))),
    }
}

/// The URL of the staged tables in DataFusion.
pub(crate) const STAGED: &str = "gyre-staged://output/";

/// A session with the input tables and with empty tables in place of the result.
pub(crate) async fn planning(
    lake: &Lake,
    tables: &[(&'static str, SchemaRef)],
) -> Result<SessionContext> {
    let session = lake.fork().await?;
    for (name, schema) in tables {
        add(
            &session,
            name,
            Arc::new(EmptyTable::new(Arc::clone(schema))),
        )?;
    }
    Ok(session)
}

pub(crate) fn add(
    session: &SessionContext,
    name: &str,
    table: Arc<dyn TableProvider>,
) -> Result<()> {
    let added = session.register_table(ident_reference(name), table);
    added
        .map(|_| ())
        .map_err(|e| bug("a table cannot be named", e))
}

pub(crate) fn bug(what: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::with_source(Kind::Bug, what, e)
}

/// Plans the SQL of a check.
pub(crate) async fn query(
    session: &SessionContext,
    check: &str,
    sql: &str,
    parameters: &BTreeMap<String, ScalarValue>,
) -> Result<DataFrame> {
    lake::sql(session, &format!("check `{check}`"), sql, parameters).await
}

/// A share in percent, with at most two decimals.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", grouped((1e4 * share).round() / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;

    #[test]
    fn partitions_have_the_types_of_their_columns() {
        let check = |value: Parameter, data_type: DataType, expected: Result<&str, &str>| {
            let found = typed(&value, &Field::new("part", data_type, true));
            let found = found.map_err(|e| e.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let text = |text: &str| Parameter::String(text.into());
        check(text("AA"), DataType::Utf8, Ok("AA"));
        check(text("a\nb"), DataType::Utf8, Ok("a\nb"));
        check(Parameter::Integer(7), DataType::Int32, Ok("7"));
        check(Parameter::Integer(7), DataType::Utf8, Ok("7"));
        check(text("2024-02-29"), DataType::Date32, Ok("2024-02-29"));
        check(Parameter::Boolean(true), DataType::Boolean, Ok("true"));
        let message = "`checks.partitions` has \"AA\" for the column `part`, which is Int64";
        check(text("AA"), DataType::Int64, Err(message));
        let message = "`checks.partitions` has 1.5 for the column `part`, which is Int64";
        check(Parameter::Float(1.5), DataType::Int64, Err(message));
        let message = "`checks.partitions` has 300 for the column `part`, which is UInt8";
        check(Parameter::Integer(300), DataType::UInt8, Err(message));
    }
}
