//! A table → the names, types and first values of its columns.

use crate::error::{Error, Kind, Result};
use crate::read::formats::column_type::ColumnType;
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fill_values::{FillValue, FillValues, held, without};
use crate::read::formats::format::Format;
use crate::read::lake::errors::failed;
use crate::read::lake::files::{TableSource, ident_reference};
use crate::read::lake::rounding::rounding;
use crate::read::lake::{self, Lake, Resources};
use crate::read::rows::keys::NONE;
use crate::read::rows::stop::bug;
use crate::run::init::clocks::{self, FoundTimes, TimeReading};
use crate::run::init::dialects::{dialect, format};
use crate::run::init::fills;
use crate::run::init::given::GivenRoles;
use crate::run::init::literals::sql;
use crate::run::init::names::is_time;
use crate::store::Stores;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The largest number of sampled rows.
const ROWS: usize = 100_000;

/// Bytes of memory for the pages of the files.
const MEMORY_BYTES: usize = 1 << 30;

/// Bytes of rows after which no more rows are sampled.
const ROW_BYTES: usize = 64 << 20;

/// Rows that are read at once, so that few long values are in memory beyond [`ROW_BYTES`].
const BATCH: usize = 256;

/// How deep objects in objects become columns.
const DEPTH: usize = 4;

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
    /// True or false.
    Boolean,
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
    /// The column in SQL, if it is none of the table but a part of one.
    pub expression: Option<String>,
    /// How the times are read, if the values are texts or numbers.
    pub times: Option<TimeReading>,
    /// What the values are, if they are times.
    pub note: Option<&'static str>,
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

    /// The column as SQL names or makes it.
    pub(crate) fn sql(&self) -> String {
        let column = self.expression.clone().unwrap_or_else(|| sql(&self.name));
        match &self.times {
            Some(TimeReading::Function(function)) => function.replace("{}", &column),
            Some(TimeReading::Type(_)) | None => column,
        }
    }

    /// The type that the pipeline gives the column, if it needs one.
    pub(crate) fn column_type(&self) -> Option<&ColumnType> {
        match &self.times {
            Some(TimeReading::Type(of)) => Some(of),
            Some(TimeReading::Function(_)) | None => None,
        }
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
    let (_, found) = described(opened.columns.clone(), &partitions, &given)?;
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
    let (unnamed, columns) = described(columns, &partitions, &given)?;
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

/// The names of the columns that a pipeline file cannot name, and the other columns. Values of
/// objects are columns, and times are recognised.
fn described(
    columns: Vec<(String, ArrayRef)>,
    partitions: &[String],
    given: &GivenRoles,
) -> Result<(Vec<String>, Vec<SurveyColumn>)> {
    let is_unnamed = |name: &str| name.contains("${");
    let (unnamed, named): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|(name, _)| is_unnamed(name));
    let own: HashSet<&String> = named.iter().map(|(name, _)| name).collect();
    let mut all = Vec::new();
    for (name, values) in &named {
        let of_table = ColumnPart {
            name: name.clone(),
            expression: None,
            values: Arc::clone(values),
        };
        of_table.flatten(DEPTH, &mut all);
    }
    let is_free = |of: &ColumnPart| {
        of.expression.is_none() || !own.contains(&of.name) && !is_unnamed(&of.name)
    };
    let mut found = Vec::new();
    for of in all.iter().filter(|of| is_free(of)).take(COLUMNS) {
        let mut column = column(of.name.clone(), &of.values)?;
        column.expression = of.expression.clone();
        if !partitions.contains(&column.name) {
            recognise_times(&mut column);
            let is_given = given.time.as_ref() == Some(&column.name);
            if column.kind == ValueKind::Float && (is_given || is_time(&column.name)) {
                recognise_float_times(&mut column);
            }
        }
        found.push(column);
    }
    let unnamed = unnamed.into_iter().map(|(name, _)| name);
    Ok((unnamed.collect(), found))
}

/// The values of a column, or of a part of its objects.
struct ColumnPart {
    name: String,
    /// The part in SQL.
    expression: Option<String>,
    values: ArrayRef,
}

impl ColumnPart {
    /// Adds the values, or those of the fields of objects, to `all`.
    fn flatten(self, depth: usize, all: &mut Vec<ColumnPart>) {
        let is_object = matches!(self.values.data_type(), DataType::Struct(_));
        if depth == 0 || !is_object {
            all.push(self);
            return;
        }
        let fields = self.values.as_struct();
        let object = self.expression.clone().unwrap_or_else(|| sql(&self.name));
        for (field, values) in fields.fields().iter().zip(fields.columns()) {
            let part = ColumnPart {
                name: format!("{}.{}", self.name, field.name()),
                expression: Some(format!("{object}['{}']", field.name().replace('\'', "''"))),
                values: Arc::clone(values),
            };
            part.flatten(depth - 1, all);
        }
    }
}

/// Makes times of texts and whole numbers that are some. The key `types` names columns of the table
/// alone; SQL reads texts of the common form in objects.
fn recognise_times(column: &mut SurveyColumn) {
    let found = match column.kind {
        ValueKind::Text => clocks::of_texts(&column.values),
        ValueKind::Integer => clocks::of_integers(&column.name, &column.values),
        _ => None,
    };
    let Some(FoundTimes {
        reading,
        note,
        is_clock,
        numbers,
    }) = found
    else {
        return;
    };
    let reading = match (reading, &column.expression) {
        (TimeReading::Type(ColumnType::Time { format, .. }), Some(_)) => {
            match clocks::function(&format) {
                Some(function) => TimeReading::Function(function),
                None => return,
            }
        }
        (reading, _) => reading,
    };
    let ids = column.ids.iter();
    let times = ids.map(|id| numbers.get(*id as usize).copied().unwrap_or(f64::NAN));
    column.numbers = times.collect();
    column.kind = if is_clock {
        ValueKind::Time
    } else {
        ValueKind::Integer
    };
    column.times = Some(reading);
    column.note = Some(note);
}

/// Makes timestamps or whole numbers of other numbers.
fn recognise_float_times(column: &mut SurveyColumn) {
    let Some(found) = clocks::of_floats(&column.numbers) else {
        return;
    };
    // Different numbers can be one time.
    let mut places: HashMap<u64, u32> = HashMap::new();
    column.values.clear();
    for (id, x) in column.ids.iter_mut().zip(&found.numbers) {
        if *id != NONE {
            *id = *places.entry(x.to_bits()).or_insert_with(|| {
                column.values.push(format!("{x}"));
                (column.values.len() - 1) as u32
            });
        }
    }
    column.numbers = found.numbers;
    (column.kind, column.note) = if found.is_clock {
        (ValueKind::Time, Some("seconds since 1970"))
    } else {
        (ValueKind::Integer, Some("in units of its last digit"))
    };
    column.times = Some(TimeReading::Function(found.function));
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
        DataType::Boolean => ValueKind::Boolean,
        _ => ValueKind::Other,
    };
    let mut column = SurveyColumn {
        data_type: value_type.to_string(),
        name: name.clone(),
        kind,
        ids: Vec::new(),
        values: Vec::new(),
        numbers: Vec::new(),
        expression: None,
        times: None,
        note: None,
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
        ValueKind::Text | ValueKind::Boolean | ValueKind::Other => Vec::new(),
    };
    Ok(column)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::read::formats::dialect::Dialect;
    use crate::run::init::given::GivenRoles;
    use crate::run::init::survey::{ColumnPart, Survey, SurveyColumn, ValueKind, table_name};
    use arrow::array::{Array, ArrayRef, Int64Array, StructArray};
    use arrow::datatypes::{DataType, Field};
    use std::collections::BTreeMap;
    use std::sync::Arc;

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

    #[test]
    fn values_in_objects_are_columns() {
        let field = |name: &str, of: DataType| Arc::new(Field::new(name, of, true));
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let inner = StructArray::from(vec![(field("it's", DataType::Int64), Arc::clone(&id))]);
        let of_inner = inner.data_type().clone();
        let inner: ArrayRef = Arc::new(inner);
        let fields = vec![
            (field("id", DataType::Int64), id),
            (field("m", of_inner), inner),
        ];
        let device = ColumnPart {
            name: "device".into(),
            expression: None,
            values: Arc::new(StructArray::from(fields)),
        };
        let mut all = Vec::new();
        device.flatten(4, &mut all);
        let found: Vec<(&str, Option<&str>)> = all
            .iter()
            .map(|of| (of.name.as_str(), of.expression.as_deref()))
            .collect();
        let expected = [
            ("device.id", Some("\"device\"['id']")),
            ("device.m.it's", Some("\"device\"['m']['it''s']")),
        ];
        assert_eq!(found, expected);
    }
}
