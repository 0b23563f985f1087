//! The rows of one partition and lag in the tables of a result.

use crate::error::Result;
use crate::report::tables::{Tables, failed};
use polars::prelude::{
    Column, DataFrame, DataType, Engine, Expr, LazyFrame, PlSmallStr, TimeUnit, UniqueKeepStrategy,
    col, lit,
};
use serde_json::Value;

/// One partition and lag of a result.
pub(crate) struct Model<'a> {
    tables: &'a Tables,
    /// Key columns with their values as text.
    pub keys: Vec<(String, Option<String>)>,
}

/// The partitions and lags of a result, in the order of the table `fits`.
///
/// # Errors
/// If `fits` cannot be read.
pub(crate) fn models(tables: &Tables) -> Result<Vec<Model<'_>>> {
    let names = key_columns(tables)?;
    if names.is_empty() {
        let keys = Vec::new();
        return Ok(vec![Model { tables, keys }]);
    }
    let keys = names.iter().map(|name| text_of(name)).collect::<Vec<_>>();
    let distinct = tables.scan("fits")?.select(keys);
    let distinct = distinct.unique_stable_generic(None, UniqueKeepStrategy::First);
    let rows = ResultRows::collect(tables, "fits", distinct)?;
    let columns = names.iter().map(|name| rows.texts(name));
    let columns = columns.collect::<Vec<_>>();
    let key = |at: usize| {
        let values = columns.iter().map(|column| column[at].clone());
        names.iter().cloned().zip(values).collect()
    };
    let keys = (0..rows.len()).map(key);
    Ok(keys.map(|keys| Model { tables, keys }).collect())
}

/// The partitions and lags of assigned rows, which have no fits of their own, from the record of
/// their run.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn assigned_models<'a>(tables: &'a Tables, record: &Value) -> Result<Vec<Model<'a>>> {
    let mut found = Vec::new();
    for entry in record["models"].as_array().into_iter().flatten() {
        let partition = entry["partition"].as_object().into_iter().flatten();
        let partition = partition.map(|(name, value)| (name.clone(), value));
        let lag = Some(&entry["lag"]).filter(|lag| lag.is_string());
        let keys = partition.chain(lag.map(|lag| ("lag".to_string(), lag)));
        let keys = keys.map(|(name, value)| (name, value.as_str().map(str::to_string)));
        found.push(keys.collect::<Vec<_>>());
    }
    let first = found.first().cloned().unwrap_or_default();
    let mut is_known = true;
    for table in tables.names() {
        let columns = columns_of(tables, table)?;
        is_known &= first.iter().all(|(name, _)| columns.contains(name));
    }
    if found.is_empty() || !is_known {
        found = vec![Vec::new()];
    }
    let models = found.into_iter().map(|keys| Model { tables, keys });
    Ok(models.collect())
}

/// The columns of the partition and the lag, which begin every table; none without `fits`.
///
/// # Errors
/// If `fits` cannot be read.
pub(crate) fn key_columns(tables: &Tables) -> Result<Vec<String>> {
    if !tables.has("fits") {
        // Assigned rows have no fits of their own.
        return Ok(Vec::new());
    }
    let names = columns_of(tables, "fits")?;
    let keys = names.into_iter().take_while(|name| name != "fit");
    Ok(keys.filter(|name| name != "lag_seconds").collect())
}

/// The names of the columns of a table.
///
/// # Errors
/// If there is no such table, or it cannot be read.
pub(crate) fn columns_of(tables: &Tables, table: &str) -> Result<Vec<String>> {
    let schema = tables.scan(table)?.collect_schema();
    let schema = schema.map_err(|e| failed(&tables.shown, table, e))?;
    Ok(schema.iter_names().map(PlSmallStr::to_string).collect())
}

fn text_of(name: &str) -> Expr {
    column(name).cast(DataType::String)
}

impl<'a> Model<'a> {
    /// The model in words, such as `airline = FR, lag = 5d`; empty if there is only one.
    pub(crate) fn name(&self) -> String {
        let key = |(name, value): &(String, Option<String>)| {
            format!("{name} = {}", value.as_deref().unwrap_or("null"))
        };
        self.keys.iter().map(key).collect::<Vec<_>>().join(", ")
    }

    /// The keys of the partition, without the lag.
    pub(crate) fn partition(&self) -> Vec<&(String, Option<String>)> {
        let keys = self.keys.iter();
        keys.filter(|(name, _)| name != "lag").collect()
    }

    /// The partition of the model with all of its lags, if this is the first of several.
    ///
    /// # Errors
    /// If `fits` cannot be read.
    pub(crate) fn with_all_lags(&self) -> Result<Option<Model<'a>>> {
        let is_lag = |(name, _): &&(String, Option<String>)| name == "lag";
        let Some((_, own)) = self.keys.iter().find(is_lag) else {
            return Ok(None);
        };
        let keys = self.keys.iter().filter(|key| !is_lag(key)).cloned();
        let all = Model {
            tables: self.tables,
            keys: keys.collect(),
        };
        let lags = all.rows("fits", &["lag"])?.texts("lag");
        let is_first = lags.first() == Some(own) && lags.iter().any(|lag| lag != own);
        Ok(is_first.then_some(all))
    }

    /// Whether the result has a table.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.has(table)
    }

    /// The names of the columns of a table; none if the result lacks it.
    pub(crate) fn columns(&self, table: &str) -> Result<Vec<String>> {
        if self.has(table) {
            columns_of(self.tables, table)
        } else {
            Ok(Vec::new())
        }
    }

    /// The rows of the model in a table.
    pub(crate) fn scan(&self, table: &str) -> Result<LazyFrame> {
        let mut rows = self.tables.scan(table)?;
        for (name, value) in &self.keys {
            let is_own = match value {
                Some(value) => text_of(name).eq(lit(value.as_str())),
                None => text_of(name).is_null(),
            };
            rows = rows.filter(is_own);
        }
        Ok(rows)
    }

    /// The rows of a query over a table.
    pub(crate) fn collect(&self, table: &str, query: LazyFrame) -> Result<ResultRows> {
        ResultRows::collect(self.tables, table, query)
    }

    /// Some columns of the rows of the model in a table; those that the table lacks are left out.
    /// No rows if the result lacks the table.
    pub(crate) fn rows(&self, table: &str, columns: &[&str]) -> Result<ResultRows> {
        if !self.has(table) {
            return Ok(ResultRows(DataFrame::empty()));
        }
        let known = self.columns(table)?;
        let is_known = |name: &&&str| known.iter().any(|k| k == **name);
        let kept = columns.iter().filter(is_known).map(|name| column(name));
        let kept = kept.collect::<Vec<_>>();
        self.collect(table, self.scan(table)?.select(kept))
    }

    /// At most `most` rows of a query, at equal distances.
    pub(crate) fn sample(&self, table: &str, query: LazyFrame, most: usize) -> Result<ResultRows> {
        let number = query.clone().select([polars::prelude::len().alias("n")]);
        let rows = self.collect(table, number)?;
        let n = rows.floats("n").first().copied().unwrap_or_default() as usize;
        let step = n.div_ceil(most).max(1) as i64;
        let index = "__index";
        let query = query.with_row_index(index, None);
        let query = query.filter((col(index) % lit(step)).eq(lit(0)));
        self.collect(table, query)
    }
}

/// A column by its name, in which `*` and `^` have no meaning.
pub(crate) fn column(name: &str) -> Expr {
    Expr::Column(PlSmallStr::from_str(name))
}

/// Rows in memory.
#[derive(Clone)]
pub struct ResultRows(DataFrame);

impl ResultRows {
    fn collect(tables: &Tables, table: &str, query: LazyFrame) -> Result<ResultRows> {
        let rows = query.collect_with_engine(Engine::Streaming);
        let rows = rows.map_err(|e| failed(&tables.shown, table, e))?;
        Ok(ResultRows(rows.unwrap_single()))
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.0.height()
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the rows have a column.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.column(name).is_ok()
    }

    /// Whether a column holds numbers.
    pub(crate) fn is_number(&self, name: &str) -> bool {
        let column = self.column(name);
        column.is_some_and(|c| c.dtype().is_primitive_numeric())
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.0.column(name).ok()
    }

    fn cast(&self, name: &str, to: &DataType) -> Option<Column> {
        self.column(name)?.cast(to).ok()
    }

    /// A column of numbers; NaN for null, for text and for a column that is not there.
    pub(crate) fn floats(&self, name: &str) -> Vec<f64> {
        let numbers = self.cast(name, &DataType::Float64);
        match numbers.as_ref().and_then(|c| c.f64().ok()) {
            Some(numbers) => numbers.iter().map(|x| x.unwrap_or(f64::NAN)).collect(),
            None => vec![f64::NAN; self.len()],
        }
    }

    /// A column of timestamps or dates in seconds since 1970; nothing for other columns.
    pub(crate) fn seconds(&self, name: &str) -> Option<Vec<f64>> {
        let column = self.column(name)?;
        let per_second = match column.dtype() {
            DataType::Datetime(TimeUnit::Nanoseconds, _) => 1e9,
            DataType::Datetime(TimeUnit::Microseconds, _) => 1e6,
            DataType::Datetime(TimeUnit::Milliseconds, _) => 1e3,
            DataType::Date => 1.0 / 86_400.0,
            _ => return None,
        };
        let numbers = column.cast(&DataType::Int64).ok()?;
        let numbers = numbers.i64().ok()?.iter();
        Some(
            numbers
                .map(|x| x.map_or(f64::NAN, |x| x as f64 / per_second))
                .collect(),
        )
    }

    /// A column as text; nothing for null and for a column that is not there.
    pub(crate) fn texts(&self, name: &str) -> Vec<Option<String>> {
        let texts = self.cast(name, &DataType::String);
        match texts.as_ref().and_then(|c| c.str().ok()) {
            Some(texts) => texts.iter().map(|text| text.map(str::to_string)).collect(),
            None => vec![None; self.len()],
        }
    }

    /// A column of set numbers; −1 for null.
    pub(crate) fn sets(&self, name: &str) -> Vec<i64> {
        let set = |x: f64| if x.is_nan() { -1 } else { x as i64 };
        self.floats(name).into_iter().map(set).collect()
    }

    /// A column of lists of numbers.
    pub(crate) fn lists(&self, name: &str) -> Vec<Vec<f64>> {
        let list = |value: &polars::prelude::Series| {
            let numbers = value.cast(&DataType::Float64).ok();
            let numbers = numbers.as_ref().and_then(|n| n.f64().ok().cloned());
            numbers.map_or_else(Vec::new, |n| {
                n.iter().map(|x| x.unwrap_or(f64::NAN)).collect()
            })
        };
        let column = self.cast(name, &DataType::List(Box::new(DataType::Float64)));
        match column.as_ref().and_then(|c| c.list().ok()) {
            Some(lists) => {
                let all = lists.series_iter();
                all.map(|value| value.as_ref().map_or_else(Vec::new, list))
                    .collect()
            }
            None => vec![Vec::new(); self.len()],
        }
    }

    /// A column of lists of texts.
    pub(crate) fn text_lists(&self, name: &str) -> Vec<Vec<String>> {
        let list = |value: &polars::prelude::Series| {
            let texts = value.cast(&DataType::String).ok();
            let texts = texts.as_ref().and_then(|t| t.str().ok().cloned());
            texts.map_or_else(Vec::new, |t| {
                t.iter().flatten().map(str::to_string).collect::<Vec<_>>()
            })
        };
        let column = self.column(name);
        match column.and_then(|c| c.list().ok()) {
            Some(lists) => {
                let all = lists.series_iter();
                all.map(|value| value.as_ref().map_or_else(Vec::new, list))
                    .collect()
            }
            None => vec![Vec::new(); self.len()],
        }
    }

    /// The rows in which a column of text has a value.
    pub(crate) fn having(&self, name: &str, value: &str) -> ResultRows {
        let texts = self.texts(name);
        let kept = texts.iter().map(|text| text.as_deref() == Some(value));
        let mask = kept.collect::<polars::prelude::BooleanChunked>();
        ResultRows(self.0.filter(&mask).unwrap_or_default())
    }
}
