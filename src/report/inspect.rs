//! Tables of a result as text: an overview of all, or the rows of one.

use crate::error::{Error, Kind, Result, escaped};
use crate::report::model::{column, columns_of};
use crate::report::style::{number, short};
use crate::report::tables::{Tables, failed};
use polars::prelude::{
    AnyValue, CsvWriter, DataFrame, DataType, Engine, JsonFormat, JsonWriter, LazyFrame,
    ParquetWriter, PolarsError, SerWriter, SortMultipleOptions,
};
use polars::sql::SQLContext;
use std::fmt::Write;

/// What to show of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    /// An SQL expression that the rows fulfil.
    pub condition: Option<String>,
    /// Names of columns to sort by, with `-` before those in falling order.
    pub sort: Vec<String>,
    /// Names of the columns, in their order; all if empty.
    pub columns: Vec<String>,
    /// At most this number of rows.
    pub limit: Option<u32>,
}

/// The longest text in a cell of a table for people.
const CELL: usize = 48;

/// The rows of a table that a query asks for.
///
/// # Errors
/// If the table or a column does not exist, or the expression is not valid.
pub(crate) fn rows(tables: &Tables, table: &str, query: &Query) -> Result<DataFrame> {
    let known = columns_of(tables, table)?;
    for name in query.columns.iter().chain(&query.sort) {
        check_column(tables, table, name.trim_start_matches('-'), &known)?;
    }
    let mut frame = tables.scan(table)?;
    if let Some(condition) = &query.condition {
        let mut context = SQLContext::new();
        context.register("rows", frame);
        let kept = context.execute(&format!("SELECT * FROM rows WHERE {condition}"));
        frame = kept.map_err(|e| {
            let what = format!("--where {condition:?} is not a condition on `{table}`");
            refused(&what, &e)
        })?;
    }
    if !query.sort.is_empty() {
        let descending = query.sort.iter().map(|name| name.starts_with('-'));
        let order = SortMultipleOptions::default()
            .with_order_descending_multi(descending.collect::<Vec<_>>())
            .with_nulls_last(true)
            .with_maintain_order(true);
        let by = query.sort.iter();
        let by = by.map(|name| column(name.trim_start_matches('-')));
        frame = frame.sort_by_exprs(by.collect::<Vec<_>>(), order);
    }
    if !query.columns.is_empty() {
        let kept = query.columns.iter().map(|name| column(name));
        frame = frame.select(kept.collect::<Vec<_>>());
    }
    if let Some(limit) = query.limit {
        frame = frame.limit(limit);
    }
    collect(tables, table, frame)
}

/// The rows of an SQL query over all tables, at most `limit`.
///
/// # Errors
/// If the query is not valid.
pub(crate) fn sql(tables: &Tables, query: &str, limit: Option<u32>) -> Result<DataFrame> {
    let mut context = SQLContext::new();
    for table in tables.names() {
        context.register(table, tables.scan(table)?);
    }
    let mut frame = context.execute(query).map_err(|e| {
        let names = tables.names().collect::<Vec<_>>().join(", ");
        let what = format!("the SQL cannot be run over the tables {names}");
        refused(&what, &e)
    })?;
    if let Some(limit) = limit {
        frame = frame.limit(limit);
    }
    collect(tables, "--sql", frame)
}

fn collect(tables: &Tables, table: &str, frame: LazyFrame) -> Result<DataFrame> {
    let rows = frame.collect_with_engine(Engine::Streaming);
    let rows = rows.map_err(|e| match e {
        e @ PolarsError::IO { .. } => failed(&tables.shown, table, e),
        e => refused(&format!("the query over `{table}` cannot be run"), &e),
    })?;
    Ok(rows.unwrap_single())
}

/// The error for a query that Polars does not run, with the first line of its reason.
fn refused(what: &str, e: &PolarsError) -> Error {
    let reason = e.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    let plain = reason.split_once("; valid columns");
    let reason = plain.map_or(reason, |(plain, _)| plain);
    Error::spec(format!("{what}: {}", escaped(reason)))
}

fn check_column(tables: &Tables, table: &str, name: &str, known: &[String]) -> Result<()> {
    if known.iter().any(|k| k == name) {
        return Ok(());
    }
    let near = known.iter().map(|k| (strsim::jaro_winkler(k, name), k));
    let hint = match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, near)) if likeness > 0.8 => format!("; did you mean `{near}`?"),
        _ => format!("; its columns are {}", known.join(", ")),
    };
    let what = format!("the table `{table}` of {}", tables.shown);
    Err(Error::spec(format!("{what} has no column `{name}`{hint}")))
}

/// Rows as columns of text.
pub(crate) fn text(rows: &DataFrame) -> String {
    let columns = rows.columns().iter().map(|column| {
        let is_number = column.dtype().is_primitive_numeric();
        let name = escaped(column.name());
        let cells = (0..rows.height()).map(|at| match column.get(at) {
            Ok(value) => short(&cell(&value), CELL),
            Err(_) => String::new(),
        });
        let cells = std::iter::once(short(&name, CELL)).chain(cells);
        (is_number, cells.collect::<Vec<_>>())
    });
    let columns = columns.collect::<Vec<_>>();
    let widths = columns.iter().map(|(_, cells)| {
        let widths = cells.iter().map(|cell| cell.chars().count());
        widths.max().unwrap_or_default()
    });
    let widths = widths.collect::<Vec<_>>();
    let mut out = String::new();
    for at in 0..=rows.height() {
        let mut line = String::new();
        for ((is_number, cells), width) in columns.iter().zip(&widths) {
            let cell = &cells[at];
            let space = " ".repeat(width - cell.chars().count());
            // Writing to a string cannot fail.
            let _ = if *is_number {
                write!(line, "{space}{cell}  ")
            } else {
                write!(line, "{cell}{space}  ")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn cell(value: &AnyValue<'_>) -> String {
    match value {
        AnyValue::Null => "null".to_string(),
        AnyValue::Float64(x) => number(*x),
        AnyValue::Float32(x) => number(f64::from(*x)),
        AnyValue::List(list) | AnyValue::Array(list, _) => brackets(list),
        AnyValue::String(text) => (*text).to_string(),
        AnyValue::StringOwned(text) => text.to_string(),
        other => other.to_string(),
    }
}

fn brackets(list: &polars::prelude::Series) -> String {
    let cells = list.iter().take(12).map(|value| cell(&value));
    let more = if list.len() > 12 { " …" } else { "" };
    format!("[{}{more}]", cells.collect::<Vec<_>>().join(" "))
}

/// Rows as CSV, in which lists are JSON.
///
/// # Errors
/// If a value cannot be written.
pub(crate) fn csv(rows: &DataFrame) -> Result<Vec<u8>> {
    let mut rows = rows.clone();
    let names = rows.get_column_names_owned();
    for name in names {
        let column = rows.column(&name).map_err(unwritten)?;
        if !column.dtype().is_nested() {
            continue;
        }
        let texts = (0..rows.height()).map(|at| match column.get(at) {
            Ok(AnyValue::Null) | Err(_) => None,
            Ok(value) => Some(list_json(&value)),
        });
        let texts = texts.collect::<polars::prelude::StringChunked>();
        let texts = polars::prelude::IntoColumn::into_column(texts.with_name(name.clone()));
        rows.with_column(texts).map_err(unwritten)?;
    }
    let mut out = Vec::new();
    let written = CsvWriter::new(&mut out).finish(&mut rows);
    written.map(|()| out).map_err(unwritten)
}

fn list_json(value: &AnyValue<'_>) -> String {
    let of = |list: &polars::prelude::Series| {
        let items = list.iter().map(|item| list_json(&item));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    };
    match value {
        AnyValue::List(list) | AnyValue::Array(list, _) => of(list),
        AnyValue::Null => "null".to_string(),
        AnyValue::String(text) => serde_json::Value::from(*text).to_string(),
        AnyValue::Float64(x) if !x.is_finite() => "null".to_string(),
        AnyValue::Float64(x) => serde_json::Value::from(*x).to_string(),
        other => other.to_string(),
    }
}

/// Rows as JSON, one object per line.
///
/// # Errors
/// If a value cannot be written.
pub(crate) fn json(rows: &DataFrame) -> Result<Vec<u8>> {
    let mut rows = lists(rows)?;
    let mut out = Vec::new();
    let mut writer = JsonWriter::new(&mut out).with_json_format(JsonFormat::JsonLines);
    writer.finish(&mut rows).map_err(unwritten)?;
    Ok(out)
}

/// Rows with lists of any length in place of lists of fixed length, which JSON does not tell apart.
fn lists(rows: &DataFrame) -> Result<DataFrame> {
    let mut rows = rows.clone();
    for name in rows.get_column_names_owned() {
        let column = rows.column(&name).map_err(unwritten)?;
        if let DataType::Array(inner, _) = column.dtype() {
            let list = column.cast(&DataType::List(inner.clone()));
            rows.with_column(list.map_err(unwritten)?)
                .map_err(unwritten)?;
        }
    }
    Ok(rows)
}

/// Rows as a Parquet file.
///
/// # Errors
/// If a value cannot be written.
pub(crate) fn parquet(rows: &DataFrame) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let written = ParquetWriter::new(&mut out).finish(&mut rows.clone());
    written.map(|_| out).map_err(unwritten)
}

fn unwritten(e: polars::prelude::PolarsError) -> Error {
    Error::with_source(Kind::Input, "the rows cannot be written in this format", e)
}
