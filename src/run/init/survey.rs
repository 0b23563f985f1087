//! A table → the names, types and first values of its columns.

use crate::error::{Error, Kind, Result};
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fill_values::{FillValue, FillValues, held, without};
use crate::read::formats::format::Format;
use crate::read::lake::errors::failed;
use crate::read::lake::files::{TableSource, ident_reference};
use crate::read::lake::rounding::rounding;
use crate::read::lake::{self, Lake, Resources};
use crate::read::rows::keys::NONE;
use crate::read::rows::stop::bug;
use crate::run::init::fills;
use crate::store::Stores;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The largest number of sampled rows.
const ROWS: usize = 100_000;

/// Bytes of memory for the pages of the files.
const MEMORY_BYTES: usize = 1 << 30;

/// Bytes of rows after which no more rows are sampled.
const ROW_BYTES: usize = 64 << 20;

/// Rows that are read at once, so that few long values are in memory beyond [`ROW_BYTES`].
const BATCH: usize = 256;

/// The largest number of columns of a survey.
const COLUMNS: usize = 500;

/// The column with the file of each row.
pub(crate) const FILENAME: &str = "filename";

/// Its name while the table is read. A pipeline file cannot name such a column, so that hardly a
/// table has one.
const FILE: &str = "${file of the row}";

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Whole numbers.
    Integer,
    /// Other numbers.
    Float,
    /// Dates or timestamps.
    Time,
    Text,
    /// Anything else.
    Other,
}

/// A column and its first values.
#[derive(Debug, Clone)]
pub(crate) struct SurveyColumn {
    /// The name in the table.
    pub name: String,
    /// The type as SQL shows it.
    pub data_type: String,
    /// What its values are.
    pub kind: ValueKind,
    /// For every row the number of its value, or `NONE` for null. Empty for `Other`.
    pub ids: Vec<u32>,
    /// The values as texts, by their numbers.
    pub values: Vec<String>,
    /// For every row the value as a number, microseconds for times. Empty without numbers.
    pub numbers: Vec<f64>,
}

impl SurveyColumn {
    /// The number of rows with null.
    pub(crate) fn nulls(&self) -> usize {
        self.ids.iter().filter(|id| **id == NONE).count()
    }

    /// The number of different values.
    pub(crate) fn distinct(&self) -> usize {
        self.values.len()
    }

    /// The finite values in ascending order.
    pub(crate) fn sorted(&self) -> Vec<f64> {
        let finite = self.numbers.iter().copied().filter(|x| x.is_finite());
        let mut sorted: Vec<f64> = finite.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    /// A name for the table and the job.
    pub name: String,
    /// The format, if the path does not say it.
    pub format: Option<&'static str>,
    pub columns: Vec<SurveyColumn>,
    /// The number of sampled rows.
    pub rows: usize,
    /// Whether the sample has all rows.
    pub is_whole: bool,
    /// All rows, if the files say how many there are.
    pub all_rows: Option<u64>,
    /// The columns that are names of folders.
    pub partitions: Vec<String>,
    /// Columns that a pipeline file cannot name.
    pub unnamed: Vec<String>,
    /// Values that mean null, by column. The columns have null there.
    pub fills: BTreeMap<String, Vec<FillValue>>,
    /// The column with the file of each row, if there are several files.
    pub filename: Option<SurveyColumn>,
}

impl Survey {
    /// A column by its name, also that of the file of each row.
    pub(crate) fn column(&self, name: &str) -> Option<&SurveyColumn> {
        let mut all = self.columns.iter().chain(&self.filename);
        all.find(|column| column.name == name)
    }
}

/// Reads the columns and the first rows of the table at `data`.
///
/// # Errors
/// If the table cannot be read or has no rows.
pub(crate) async fn survey(data: &str) -> Result<Survey> {
    let (format, needs_format) = format(data);
    let mut opened = Opened::of(data, format, BTreeMap::new()).await?;
    if opened
        .columns
        .first()
        .is_none_or(|(_, rows)| rows.is_empty())
    {
        return Err(Error::input(format!(
            "the table at {data} has no rows; a pipeline is proposed from rows"
        )));
    }
    let (_, found) = described(opened.columns.clone())?;
    let fills = fill_values(&found, format.is_text());
    let is_text = |value: &FillValue| matches!(value, FillValue::Text(_));
    if fills.values().flatten().any(is_text) {
        // The reader infers other types without these texts.
        opened = Opened::of(data, format, fills.clone()).await?;
    } else {
        opened.make_null(&fills)?;
    }
    let Opened {
        lake,
        mut columns,
        is_whole,
    } = opened;
    let rows = columns.first().map_or(0, |(_, values)| values.len());
    let all_rows = lake.most_rows(first_columns(&lake, 1).await?).await?;
    let table = &lake.tables[0];
    let last = columns.pop_if(|column| column.0 == FILE);
    let has_name = table.schema.column_with_name(FILENAME).is_some();
    let last = last.filter(|_| table.files.len() > 1 && !has_name);
    let filename = last.map(|(_, files)| column(FILENAME.into(), &files));
    let (unnamed, columns) = described(columns)?;
    let mut partitions = table.partition_columns.clone();
    partitions.retain(|name| name != FILE);
    Ok(Survey {
        name: table_name(data),
        format: needs_format.then_some(format.name()),
        columns,
        rows,
        is_whole,
        all_rows,
        partitions,
        unnamed,
        fills,
        filename: filename.transpose()?,
    })
}

/// A table and its first rows by column; the last column is the file of each row.
struct Opened {
    lake: Lake,
    columns: Vec<(String, ArrayRef)>,
    /// Whether these are all rows.
    is_whole: bool,
}

impl Opened {
    /// The table at `data`, with null for some values.
    async fn of(
        data: &str,
        format: Format,
        fills: BTreeMap<String, Vec<FillValue>>,
    ) -> Result<Opened> {
        let paths = [data.to_string()];
        let source = [TableSource {
            format,
            dialect: Dialect {
                null: FillValues {
                    by_column: fills,
                    ..FillValues::default()
                },
                ..Dialect::default()
            },
            filename: Some(FILE),
            ..TableSource::of_parquet("data", &paths)
        }];
        let resources = Resources {
            memory_bytes: Some(MEMORY_BYTES),
            ..Resources::default()
        };
        let lake = lake::open(&source, &resources, &Stores::default()).await?;
        let (columns, is_whole) = read(&lake).await?;
        Ok(Opened {
            lake,
            columns,
            is_whole,
        })
    }

    /// Makes values null by column, as the scan of the table does.
    fn make_null(&mut self, fills: &BTreeMap<String, Vec<FillValue>>) -> Result<()> {
        for (name, values) in &mut self.columns {
            if let Some(fills) = fills.get(name) {
                *values = without(values, &held(fills, values.data_type())).map_err(bug)?;
            }
        }
        Ok(())
    }
}

/// The values that mean null, by column. `has_texts`: the files are texts, and their types are
/// inferred.
fn fill_values(columns: &[SurveyColumn], has_texts: bool) -> BTreeMap<String, Vec<FillValue>> {
    let found = columns.iter().map(|column| {
        let found = match column.kind {
            ValueKind::Integer | ValueKind::Float => fills::numbers(&column.sorted()),
            ValueKind::Text if has_texts => fills::texts(&column.values),
            _ => Vec::new(),
        };
        (column.name.clone(), found)
    });
    found.filter(|(_, found)| !found.is_empty()).collect()
}

/// The names of the columns that a pipeline file cannot name, and the other columns.
fn described(columns: Vec<(String, ArrayRef)>) -> Result<(Vec<String>, Vec<SurveyColumn>)> {
    let is_unnamed = |name: &str| name.contains("${");
    let (unnamed, named): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|(name, _)| is_unnamed(name));
    let columns = named.into_iter();
    let columns = columns.map(|(name, values)| column(name, &values));
    let unnamed = unnamed.into_iter().map(|(name, _)| name);
    Ok((unnamed.collect(), columns.collect::<Result<_>>()?))
}

/// A query of the first `n` columns of the table, and of the file of each row. SQL would compare
/// the names of all columns with each other.
async fn first_columns(lake: &Lake, n: usize) -> Result<DataFrame> {
    let unread = |e| failed("the columns cannot be read", e);
    let table = lake
        .context
        .table(ident_reference("data"))
        .await
        .map_err(unread)?;
    let columns = table.schema().iter().enumerate();
    let columns = columns.filter(|(at, (_, field))| *at < n || field.name() == FILE);
    let columns = columns.map(|(_, column)| Expr::Column(Column::from(column)));
    let columns: Vec<Expr> = columns.collect();
    let numbers: Vec<usize> = (0..columns.len()).collect();
    rounding(table.select(columns).map_err(unread)?, &numbers)
}

/// The first rows by column, and whether they are all rows.
async fn read(lake: &Lake) -> Result<(Vec<(String, ArrayRef)>, bool)> {
    let unread = |e| failed("the rows cannot be read", e);
    let frame = first_columns(lake, COLUMNS).await?;
    let frame = frame.limit(0, Some(ROWS)).map_err(unread)?;
    let fields = frame.schema().fields().clone();
    let (mut state, plan) = frame.into_parts();
    *state.config_mut() = state.config().clone().with_batch_size(BATCH);
    let rows = DataFrame::new(state, plan).execute_stream().await;
    let mut rows = rows.map_err(unread)?;
    let (mut batches, mut n, mut bytes) = (Vec::new(), 0, 0);
    while bytes < ROW_BYTES
        && let Some(batch) = rows.next().await
    {
        let batch = batch.map_err(unread)?;
        n += batch.num_rows();
        for (field, column) in fields.iter().zip(batch.columns()) {
            if field.name() != FILE {
                bytes += size(column).map_err(bug)?;
            }
        }
        batches.push(batch);
    }
    let is_whole = n < ROWS && bytes < ROW_BYTES;
    let columns = fields.iter().enumerate().map(|(at, field)| {
        let parts: Vec<&dyn Array> = batches.iter().map(|b| b.column(at).as_ref()).collect();
        let values = if parts.is_empty() {
            Ok(arrow::array::new_empty_array(field.data_type()))
        } else {
            concat(&parts)
        };
        let values = values.map_err(|e| {
            Error::with_source(Kind::Bug, "the rows of a table do not fit together", e)
        })?;
        Ok((field.name().clone(), values))
    });
    Ok((columns.collect::<Result<_>>()?, is_whole))
}

/// The bytes of the values of a column. Slices of one buffer are not counted several times.
fn size(column: &ArrayRef) -> Result<usize, ArrowError> {
    let texts = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        _ => 0,
    };
    Ok(column.to_data().get_slice_memory_size()? + texts)
}

/// The format of the files, and whether a pipeline file must say it.
fn format(data: &str) -> (Format, bool) {
    if let Some(format) = Format::of_name(data) {
        return (format, false);
    }
    match first_format(Path::new(data), 6) {
        Some(format) => (format, format != Format::Parquet),
        None => (Format::Parquet, false),
    }
}

/// The format of the first file in a folder whose name tells one.
fn first_format(folder: &Path, depth: usize) -> Option<Format> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    entries.iter().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return (depth > 0)
                .then(|| first_format(&path, depth - 1))
                .flatten();
        }
        Format::of_name(&entry.file_name().to_string_lossy())
    })
}

/// A name for the table: the last part of its place, without endings, in letters that SQL and jobs
/// take.
fn table_name(data: &str) -> String {
    let place = data.split(['?', '*']).next().unwrap_or(data);
    let last = place.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    let stem = last.split('.').find(|part| !part.is_empty()).unwrap_or("");
    let letters = stem.chars().map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    });
    let name: String = letters.collect();
    match name.trim_matches('_') {
        "" => "rows".into(),
        name if name.starts_with(|c: char| c.is_ascii_digit()) => format!("t{name}"),
        name => name.into(),
    }
}

fn column(name: String, values: &ArrayRef) -> Result<SurveyColumn> {
    let bug = |e| Error::with_source(Kind::Bug, format!("column `{name}` cannot be read"), e);
    let value_type = match values.data_type() {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    };
    let kind = match &value_type {
        t if t.is_integer() => ValueKind::Integer,
        t if t.is_floating() => ValueKind::Float,
        DataType::Decimal128(..) | DataType::Decimal256(..) => ValueKind::Float,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => ValueKind::Time,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ValueKind::Text,
        _ => ValueKind::Other,
    };
    let mut column = SurveyColumn {
        data_type: value_type.to_string(),
        name: name.clone(),
        kind,
        ids: Vec::new(),
        values: Vec::new(),
        numbers: Vec::new(),
    };
    if kind == ValueKind::Other {
        return Ok(column);
    }
    let texts = cast(values, &DataType::Utf8).map_err(bug)?;
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for text in texts.as_string::<i32>() {
        let id = text.map_or(NONE, |text| {
            let next = seen.len() as u32;
            *seen.entry(text).or_insert(next)
        });
        column.ids.push(id);
    }
    column.values = vec![String::new(); seen.len()];
    for (text, id) in seen {
        column.values[id as usize] = text.to_string();
    }
    column.numbers = match kind {
        ValueKind::Time => {
            let zone = match &value_type {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let times = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone));
            let times = cast(&times.map_err(bug)?, &DataType::Int64).map_err(bug)?;
            let times = times.as_primitive::<Int64Type>().iter();
            times.map(|t| t.map_or(f64::NAN, |t| t as f64)).collect()
        }
        ValueKind::Integer | ValueKind::Float => {
            let numbers = cast(values, &DataType::Float64).map_err(bug)?;
            let numbers = numbers.as_primitive::<Float64Type>().iter();
            numbers.map(|x| x.unwrap_or(f64::NAN)).collect()
        }
        ValueKind::Text | ValueKind::Other => Vec::new(),
    };
    Ok(column)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::run::init::survey::{Survey, SurveyColumn, ValueKind, table_name};
    use std::collections::BTreeMap;

    pub(crate) fn column(name: &str, kind: ValueKind, rows: &[f64]) -> SurveyColumn {
        let mut values: Vec<String> = Vec::new();
        let ids = rows.iter().map(|x| {
            let text = x.to_string();
            let at = values.iter().position(|v| *v == text).unwrap_or_else(|| {
                values.push(text.clone());
                values.len() - 1
            });
            at as u32
        });
        SurveyColumn {
            name: name.into(),
            data_type: format!("{kind:?}"),
            kind,
            ids: ids.collect(),
            values,
            numbers: rows.to_vec(),
        }
    }

    pub(crate) fn survey(columns: Vec<SurveyColumn>) -> Survey {
        Survey {
            name: "rows".into(),
            format: None,
            rows: columns[0].ids.len(),
            is_whole: true,
            all_rows: Some(columns[0].ids.len() as u64),
            columns,
            partitions: Vec::new(),
            unnamed: Vec::new(),
            fills: BTreeMap::new(),
            filename: None,
        }
    }

    /// Two trajectories of four rows, with steps of 2, 2, 2 and 2, 2, 5.
    pub(crate) fn walks() -> Vec<SurveyColumn> {
        vec![
            column("who", ValueKind::Integer, &[7., 7., 7., 7., 8., 8., 8., 8.]),
            column("t", ValueKind::Integer, &[0., 2., 4., 6., 0., 2., 4., 9.]),
            column(
                "v",
                ValueKind::Float,
                &[0.1, 0.2, 0.9, 0.4, 0.5, 0.6, 0.7, 0.8],
            ),
        ]
    }

    #[test]
    fn tables_are_named_after_their_files() {
        assert_eq!(table_name("lake/My Tracks.parquet"), "my_tracks");
        assert_eq!(table_name("s3://bucket/lake/tracks/"), "tracks");
        assert_eq!(table_name("a/2024*.csv"), "t2024");
        assert_eq!(table_name("/"), "rows");
        assert_eq!(table_name("поезда.csv"), "rows");
    }
}
