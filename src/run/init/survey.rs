//! A table → the names, types and first values of its columns.

use crate::error::{Error, Kind, Result};
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fill_values::{FillValue, FillValues, held, without};
use crate::read::formats::format::Format;
use crate::read::lake::errors::failed;
use crate::read::lake::files::{TableSource, ident_reference};
use crate::read::lake::rounding::rounding;
use crate::read::lake::{self, Lake, Resources};
use crate::read::rows::stop::bug;
use crate::run::init::columns::{COLUMNS, SurveyColumn, ValueKind, column, described};
use crate::run::init::dialects::{dialect, format};
use crate::run::init::fills;
use crate::run::init::given::GivenRoles;
use crate::store::Stores;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use futures::StreamExt;
use std::collections::BTreeMap;

/// The largest number of sampled rows.
const ROWS: usize = 100_000;

/// Bytes of memory for the pages of the files.
const MEMORY_BYTES: usize = 1 << 30;

/// Bytes of rows after which no more rows are sampled.
const ROW_BYTES: usize = 64 << 20;

/// Rows that are read at once, so that few long values are in memory beyond [`ROW_BYTES`].
const BATCH: usize = 256;

/// The column with the file of each row.
pub(crate) const FILENAME: &str = "filename";

/// Its name while the table is read. A pipeline file cannot name such a column, so that hardly a
/// table has one.
const FILE: &str = "${file of the row}";

/// The columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    /// A name for the table and the job.
    pub name: String,
    /// The format, if the path does not say it.
    pub format: Option<&'static str>,
    /// How the files are written, as far as their name does not say it.
    pub dialect: Dialect,
    /// What a person says of the table.
    pub given: GivenRoles,
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
/// If the table cannot be read, has no rows, or does not have the columns of `given`.
pub(crate) async fn survey(data: &str, given: GivenRoles) -> Result<Survey> {
    let (format, needs_format) = format(data, &given);
    let dialect = dialect(data, format, &given).await;
    let source = SurveySource {
        data,
        format,
        dialect: &dialect,
    };
    let mut opened = Opened::of(&source, BTreeMap::new()).await?;
    if opened
        .columns
        .first()
        .is_none_or(|(_, rows)| rows.is_empty())
    {
        return Err(Error::input(format!(
            "the table at {data} has no rows; a pipeline is proposed from rows"
        )));
    }
    let partitions = opened.partitions();
    let (_, found) = described(opened.columns.clone(), &partitions, given.time.as_deref())?;
    let fills = fill_values(&found, format.is_text());
    let is_text = |value: &FillValue| matches!(value, FillValue::Text(_));
    if fills.values().flatten().any(is_text) {
        // The reader infers other types without these texts.
        opened = Opened::of(&source, fills.clone()).await?;
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
    let (unnamed, columns) = described(columns, &partitions, given.time.as_deref())?;
    let survey = Survey {
        name: table_name(data),
        format: needs_format.then_some(format.name()),
        dialect,
        given,
        columns,
        rows,
        is_whole,
        all_rows,
        partitions,
        unnamed,
        fills,
        filename: filename.transpose()?,
    };
    let names = survey.columns.iter().chain(&survey.filename);
    let names: Vec<&str> = names.map(|column| column.name.as_str()).collect();
    survey.given.check_columns(&names)?;
    Ok(survey)
}

/// The place of a table, and how its files are written.
struct SurveySource<'a> {
    data: &'a str,
    format: Format,
    dialect: &'a Dialect,
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
    async fn of(of: &SurveySource<'_>, fills: BTreeMap<String, Vec<FillValue>>) -> Result<Opened> {
        let paths = [of.data.to_string()];
        let source = [TableSource {
            format: of.format,
            dialect: Dialect {
                null: FillValues {
                    by_column: fills,
                    ..FillValues::default()
                },
                ..of.dialect.clone()
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

    /// The columns that are names of folders.
    fn partitions(&self) -> Vec<String> {
        let columns = self.lake.tables[0].partition_columns.iter();
        columns.filter(|name| *name != FILE).cloned().collect()
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
/// inferred. The key names columns of the table alone.
fn fill_values(columns: &[SurveyColumn], has_texts: bool) -> BTreeMap<String, Vec<FillValue>> {
    let columns = columns.iter().filter(|column| column.expression.is_none());
    let found = columns.map(|column| {
        let found = match column.kind {
            ValueKind::Integer | ValueKind::Float => fills::numbers(&column.sorted()),
            ValueKind::Text if has_texts => fills::texts(&column.values),
            _ => Vec::new(),
        };
        (column.name.clone(), found)
    });
    found.filter(|(_, found)| !found.is_empty()).collect()
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

#[cfg(test)]
pub(crate) mod tests {
    use crate::read::formats::dialect::Dialect;
    use crate::run::init::columns::{SurveyColumn, ValueKind};
    use crate::run::init::given::GivenRoles;
    use crate::run::init::survey::{Survey, table_name};
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
            expression: None,
            times: None,
            note: None,
        }
    }

    pub(crate) fn survey(columns: Vec<SurveyColumn>) -> Survey {
        Survey {
            name: "rows".into(),
            format: None,
            dialect: Dialect::default(),
            given: GivenRoles::default(),
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
