//! Bytes of CSV → rows. Columns are matched by the names in the header of each file.
//!
//! Arrow's reader splits rows and parses values. What it would accept silently is an error here: an
//! unclosed quote, text after a closing quote, a value that does not fit the type inferred from the
//! first rows.

use crate::read::formats::column_type::{ColumnType, Misfit};
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fault;
use crate::read::formats::fault::Fault;
use crate::read::formats::fill_values::without_texts;
use crate::read::formats::format::Compression;
use crate::read::formats::pieces::Pieces;
use crate::read::formats::quotes::Quotes;
use crate::read::formats::text::{
    BATCH_BYTES, MAX_ROW_BYTES, SAMPLE, SAMPLE_BYTES, TextRows, Wanted, lines_in, value_kind,
};
use crate::read::lake::exact::not_exact;
use crate::read::rows::doubles::{EXACT_INTEGER, is_whole_double, warn_of_rounding};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::{Decoder, Format};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use bytes::Bytes;
use datafusion::common::DataFusionError;
use futures::TryStreamExt;
use memchr::memchr;
use regex::Regex;
use std::collections::HashSet;
use std::sync::Arc;

/// Values for which a decoder has room at once.
const MOST_VALUES: usize = 16 << 20;

/// How CSV files are written.
impl Dialect {
    fn has_header(&self) -> bool {
        self.header.unwrap_or(true)
    }

    fn quote(&self) -> u8 {
        self.quote.map_or(b'"', |c| c as u8)
    }

    fn delimiter(&self, name: &str) -> u8 {
        let is_tabs = Compression::of_name(name).0.ends_with(".tsv");
        let by_name = if is_tabs { b'\t' } else { b',' };
        self.delimiter.map_or(by_name, |c| c as u8)
    }

    fn quotes(&self, name: &str) -> Quotes {
        Quotes::new(self.quote(), self.delimiter(name))
    }

    /// Matches texts for null, if there are others than the empty text.
    fn null_regex(&self, texts: &[&str]) -> Result<Option<Regex>, Fault> {
        if texts.is_empty() {
            return Ok(None);
        }
        let texts: Vec<String> = texts.iter().map(|text| regex::escape(text)).collect();
        Regex::new(&format!("^(?:{})?$", texts.join("|")))
            .map(Some)
            .map_err(|e| Fault::new(format!("the texts of `null` cannot be matched: {e}")))
    }

    /// How a file is written; these texts mean null.
    fn format(&self, name: &str, null: &[&str]) -> Result<Format, Fault> {
        let mut format = Format::default()
            .with_header(self.has_header())
            .with_quote(self.quote())
            .with_delimiter(self.delimiter(name));
        if let Some(null) = self.null_regex(null)? {
            format = format.with_null_regex(null);
        }
        Ok(format)
    }
}

/// The columns of a file, with types inferred from its first rows.
///
/// # Errors
/// A row that does not fit, or two columns of one name.
pub(crate) async fn columns(
    mut pieces: Pieces,
    name: &str,
    dialect: &Dialect,
) -> Result<Schema, DataFusionError> {
    let head = head(&mut pieces, dialect.quotes(name)).await?;
    if head.is_empty() {
        return Ok(Schema::empty());
    }
    let format = dialect.format(name, &dialect.null.shared_texts())?;
    let inferred = match format.infer_schema(&head[..], Some(SAMPLE)) {
        Ok((schema, _)) => schema,
        Err(e) => {
            let named = format.infer_schema(&head[..], Some(0));
            let (names, _) = named.map_err(|e| Fault::at(1, describe_error(&e)))?;
            let wanted = Wanted::none(Arc::new(names));
            let layout = Layout::new(wanted, name, dialect)?;
            let fault = layout.locate(&head, 1, dialect.has_header());
            return Err(fault
                .unwrap_or_else(|| Fault::new(describe_error(&e)))
                .into());
        }
    };
    let named = inferred.fields().iter().enumerate();
    let named = named.map(|(at, field)| match field.name().trim() {
        "" => field
            .as_ref()
            .clone()
            .with_name(format!("column_{}", at + 1)),
        _ => field.as_ref().clone(),
    });
    let mut inferred: Vec<Field> = named.collect();
    own_nulls(&mut inferred, &head, name, dialect)?;
    let types = types(&head, &Schema::new(inferred.clone()), name, dialect)?;
    let typed = inferred.into_iter().zip(types);
    let fields: Vec<Field> = typed.map(|(field, of)| field.with_data_type(of)).collect();
    let mut seen = HashSet::new();
    if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name())) {
        let what = format!("two columns are named `{}`", twice.name());
        return Err(Fault::at(1, what).into());
    }
    Ok(Schema::new(fields))
}

/// Infers the types of columns that have texts for null of their own.
fn own_nulls(
    inferred: &mut [Field],
    head: &[u8],
    name: &str,
    dialect: &Dialect,
) -> Result<(), Fault> {
    for column in dialect.null.by_column.keys() {
        let at = inferred.iter().position(|field| field.name() == column);
        let texts = dialect.null.texts(column);
        if let Some(at) = at.filter(|_| !texts.is_empty()) {
            let format = dialect.format(name, &texts)?;
            if let Ok((schema, _)) = format.infer_schema(head, Some(SAMPLE)) {
                let of = schema.field(at).data_type().clone();
                inferred[at] = inferred[at].clone().with_data_type(of);
            }
        }
    }
    Ok(())
}

/// The types of all columns, by the pipeline and by the texts of the first rows.
///
/// # Errors
/// A column of times of which only some have a time zone.
fn types(
    head: &[u8],
    inferred: &Schema,
    name: &str,
    dialect: &Dialect,
) -> Result<Vec<DataType>, Fault> {
    let fields = inferred.fields().iter().enumerate();
    let may_differ = fields.filter(|(_, field)| {
        let data_type = field.data_type();
        let is_time = matches!(data_type, DataType::Timestamp(..));
        let is_open = data_type.is_numeric() || is_time || *data_type == DataType::Utf8;
        is_open && !dialect.types.contains_key(field.name())
    });
    let positions: Vec<usize> = may_differ.map(|(at, _)| at).collect();
    let types = inferred
        .fields()
        .iter()
        .map(|field| match dialect.types.get(field.name()) {
            Some(declared) => declared.data_type(),
            None => field.data_type().clone(),
        });
    let mut types: Vec<DataType> = types.collect();
    if positions.is_empty() {
        return Ok(types);
    }
    let wanted = Wanted::none(Arc::new(inferred.clone()));
    let layout = Layout::new(wanted, name, dialect)?;
    // The decoder has room for all of these rows.
    let rows = SAMPLE.min(lines_in(head) as usize + 1);
    let reader = layout
        .decoder(&layout.read_as, &positions, rows)
        .with_header(dialect.has_header())
        .build(head);
    let rows = reader.and_then(|mut rows| rows.next().transpose());
    let Some(rows) = rows.map_err(|e| Fault::new(describe_error(&e)))? else {
        return Ok(types);
    };
    for (&at, column) in positions.iter().zip(rows.columns()) {
        let name_of = inferred.field(at).name();
        let own: Vec<&str> = dialect.null.texts(name_of);
        let texts = without_texts(column.as_string(), &own);
        types[at] = type_of(&texts, &types[at], dialect.decimal_point());
        let field = Field::new(name_of, types[at].clone(), true);
        check_zones(&texts, &field).map_err(|fault| {
            let table = Arc::new(Schema::new(vec![field]));
            let wanted = Wanted::new(Arc::new(inferred.clone()), table);
            let layout = Layout::new(wanted, name, dialect);
            let located = layout.map(|l| l.locate(head, 1, dialect.has_header()));
            located.ok().flatten().unwrap_or(fault)
        })?;
    }
    Ok(types)
}

/// The type of a column by its texts, of which Arrow infers another type from their form.
fn type_of(texts: &StringArray, inferred: &DataType, decimal: Option<char>) -> DataType {
    let mut values = texts.iter().flatten();
    match (inferred, decimal) {
        (DataType::Utf8, Some(decimal)) => {
            let is_number =
                |text: &str| !text.contains('.') && is_number(&text.replace(decimal, "."));
            return if values.all(is_number) {
                DataType::Float64
            } else {
                DataType::Utf8
            };
        }
        // A point is no decimal point then.
        (DataType::Float64, Some(_)) if values.clone().any(|text| text.contains('.')) => {
            return DataType::Utf8;
        }
        _ => {}
    }
    match inferred {
        DataType::Utf8 if values.all(is_number) => DataType::Float64,
        DataType::Int64 | DataType::Float64 if values.any(is_code) => DataType::Utf8,
        // Each value has its own offset, so the column has the zone in which they are counted.
        DataType::Timestamp(unit, _) if values.next().is_some_and(has_zone) => {
            DataType::Timestamp(*unit, Some("UTC".into()))
        }
        other => other.clone(),
    }
}

/// Whether a text is a number, NaN or infinite, as Arrow infers it from some spellings of these.
fn is_number(text: &str) -> bool {
    let is_long = || is_integer(text) && text.parse::<i64>().is_err();
    !is_code(text) && text.parse::<f64>().is_ok() && !is_long()
}

/// Whether the text of a time has a time zone, or an offset.
fn has_zone(time: &str) -> bool {
    let after_date = time.trim_ascii().get(11..).unwrap_or_default();
    !after_date
        .trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ':' | '.'))
        .is_empty()
}

/// Whether a text that parses as a number is a code: numbers have no zeros in front and no plus.
fn is_code(text: &str) -> bool {
    match text.trim_ascii_start().as_bytes() {
        [b'0', next, ..] => next.is_ascii_digit(),
        [b'+', ..] => true,
        _ => false,
    }
}

/// Whole rows from the start of a file: enough to infer types, or all.
async fn head(pieces: &mut Pieces, mut quotes: Quotes) -> Result<Vec<u8>, DataFusionError> {
    let mut head: Vec<u8> = Vec::new();
    let (mut scanned, mut end, mut rows) = (0, 0, 0);
    while let Some(piece) = pieces.try_next().await? {
        head.extend_from_slice(&piece);
        while let Some(n) = memchr(b'\n', &head[scanned..]) {
            quotes.push(&head[scanned..=scanned + n])?;
            scanned += n + 1;
            if quotes.is_open() {
                continue;
            }
            (end, rows) = (scanned, rows + 1);
            if rows > SAMPLE {
                head.truncate(end);
                return Ok(head);
            }
        }
        if head.len() >= SAMPLE_BYTES && rows > 1 {
            head.truncate(end);
            return Ok(head);
        }
        if head.len() - end > MAX_ROW_BYTES {
            return Err(quotes.too_long().into());
        }
    }
    quotes.push(&head[scanned..])?;
    quotes.finish()?;
    Ok(head)
}

/// Which columns of a file are read, and as which types.
struct Layout {
    wanted: Wanted,
    name: String,
    dialect: Dialect,
    null: Option<Regex>,
    /// The other texts for null of each wanted column; empty if there are none at all.
    own_nulls: Vec<Vec<String>>,
    /// All columns of the file, with the types that Arrow reads them as.
    read_as: SchemaRef,
    /// Positions of the wanted columns.
    positions: Vec<usize>,
}

impl Layout {
    fn new(wanted: Wanted, name: &str, dialect: &Dialect) -> Result<Layout, Fault> {
        let fields = wanted.file.fields().iter().enumerate().map(|(at, field)| {
            let data_type = wanted.field_at(at).map(Field::data_type);
            let is_plain = dialect.null.own(field.name()).is_empty();
            let read_as = data_type.filter(|data_type| is_plain && is_direct(data_type));
            Field::new(
                field.name(),
                read_as.unwrap_or(&DataType::Utf8).clone(),
                true,
            )
        });
        let read_as = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Layout {
            name: name.to_string(),
            null: dialect.null_regex(&dialect.null.shared_texts())?,
            own_nulls: own_texts(dialect, &wanted),
            dialect: dialect.clone(),
            read_as,
            positions: wanted.positions(),
            wanted,
        })
    }

    fn decoder(&self, schema: &SchemaRef, positions: &[usize], rows: usize) -> ReaderBuilder {
        let mut builder = ReaderBuilder::new(Arc::clone(schema))
            .with_delimiter(self.dialect.delimiter(&self.name))
            .with_quote(self.dialect.quote())
            .with_batch_size(rows)
            .with_projection(positions.to_vec());
        if let Some(null) = &self.null {
            builder = builder.with_null_regex(null.clone());
        }
        builder
    }

    fn rows_decoder(&self, rows: usize, has_header: bool) -> Decoder {
        // The decoder has room for all values of these rows.
        let most = MOST_VALUES / self.read_as.fields().len().max(1);
        let rows = rows.min(most.max(1));
        self.decoder(&self.read_as, &self.positions, rows)
            .with_header(has_header)
            .build_decoder()
    }

    /// The wanted columns of rows as they were read.
    fn typed(&self, rows: &RecordBatch) -> Result<RecordBatch, Fault> {
        let rows = self.without_own_nulls(rows)?;
        let decimal = self.dialect.decimal_point();
        self.wanted.of(&rows, |text, field| {
            let (texts, name) = (text.as_string(), field.name());
            match self.dialect.types.get(name) {
                Some(declared) => declared_as(declared, texts, name, decimal),
                None => typed(texts, field, self.wanted.may_round(name), decimal),
            }
        })
    }

    /// The rows with null in the place of the texts that mean it in single columns.
    fn without_own_nulls(&self, rows: &RecordBatch) -> Result<RecordBatch, Fault> {
        if self.own_nulls.is_empty() {
            return Ok(rows.clone());
        }
        let columns = rows.columns().iter().zip(&self.own_nulls);
        let columns = columns.map(|(column, own)| {
            if own.is_empty() {
                return Arc::clone(column);
            }
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            Arc::new(without_texts(column.as_string(), &own))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            rows.schema(),
            columns.collect(),
            &options,
        )?)
    }

    /// The fault of the first bad row of some bytes; `line` is the number of their first line.
    fn locate(&self, bytes: &[u8], mut line: u64, has_header: bool) -> Option<Fault> {
        let mut decoder = self.rows_decoder(1, has_header);
        let (mut at, mut is_header) = (0, has_header);
        loop {
            let blank = bytes[at..]
                .iter()
                .take_while(|b| matches!(b, b'\r' | b'\n'));
            let begin = at + blank.count();
            line += lines_in(&bytes[at..begin]);
            let rest = bytes.get(begin..).filter(|rest| !rest.is_empty())?;
            let decoded = decoder.decode(rest);
            let fault = |e: &ArrowError| Fault::at(line, describe_error(e));
            let length = match decoded {
                Ok(length) => length,
                Err(e) => return Some(fault(&e)),
            };
            at = begin + length;
            let row = &bytes[begin..at];
            if at == bytes.len()
                && let Err(e) = decoder.decode(&[])
            {
                return Some(fault(&e));
            }
            if is_header {
                is_header = false;
            } else {
                match decoder.flush() {
                    Ok(Some(rows)) => {
                        if let Err(fault) = self.typed(&rows) {
                            return Some(Fault::at(line, fault.what));
                        }
                    }
                    Ok(None) => (),
                    Err(e) => return Some(Fault::at(line, self.bad_value(row, &e))),
                }
            }
            line += lines_in(row);
        }
    }

    /// Describes the value of a row that does not have the type of its column.
    fn bad_value(&self, row: &[u8], e: &ArrowError) -> String {
        if std::str::from_utf8(row).is_err() {
            return "the text is not UTF-8".into();
        }
        let value = |schema: &SchemaRef, position: usize| -> Result<ArrayRef, ArrowError> {
            let mut decoder = self.decoder(schema, &[position], 1).build_decoder();
            decoder.decode(row)?;
            decoder.decode(&[])?;
            let rows = decoder.flush()?;
            let none = || ArrowError::CsvError("the row is empty".into());
            Ok(Arc::clone(rows.ok_or_else(none)?.column(0)))
        };
        let fields = self.read_as.fields().iter();
        let texts = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<_>>()));
        for &position in &self.positions {
            if value(&self.read_as, position).is_err()
                && let Some(field) = self.wanted.field_at(position)
                && let Ok(text) = value(&texts, position)
            {
                return unlike(field, &format!("`{}`", text.as_string::<i32>().value(0)));
            }
        }
        describe_error(e)
    }
}

/// The texts for null of each wanted column of a file, beside those of all columns.
fn own_texts(dialect: &Dialect, wanted: &Wanted) -> Vec<Vec<String>> {
    if dialect.null.by_column.is_empty() {
        return Vec::new();
    }
    let own = |position: &usize| -> Vec<String> {
        let column = wanted.file.field(*position).name();
        if dialect.null.own(column).is_empty() {
            return Vec::new();
        }
        let texts = dialect.null.texts(column).into_iter();
        texts.map(str::to_string).collect()
    };
    wanted.positions().iter().map(own).collect()
}

/// The message for a value that does not have the type of its column.
fn unlike(field: &Field, value: &str) -> String {
    let kind = value_kind(field.data_type());
    format!(
        "column `{}` holds {kind} in the first {SAMPLE} rows of the files, and here {value}; convert the files to Parquet, with one type for the column",
        field.name()
    )
}

/// Errors of Arrow's reader about the form of a row, rephrased.
fn describe_error(e: &ArrowError) -> String {
    let text = e.to_string();
    let n_columns = text.split_once("expected ").and_then(|(_, rest)| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse::<usize>()
            .ok()
    });
    match n_columns {
        Some(n) if text.contains("got more than") => {
            format!("the row has more values than the {n} columns of the file")
        }
        Some(n) if text.contains("incorrect number of fields") => {
            format!("the row has fewer values than the {n} columns of the file")
        }
        _ if text.contains("UTF-8") => "the text is not UTF-8".into(),
        _ => fault::plain(&text).to_string(),
    }
}

/// Types that Arrow's reader parses exactly. It truncates times to days and seconds, parses nulls
/// over values, drops zeros in front of numbers and rounds integers to doubles.
fn is_direct(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Boolean | DataType::Utf8)
}

/// Texts converted to the type that the pipeline gives their column.
///
/// # Errors
/// The first text that does not convert.
fn declared_as(
    declared: &ColumnType,
    texts: &StringArray,
    column: &str,
    decimal: Option<char>,
) -> Result<ArrayRef, Fault> {
    let converted = match (declared, decimal) {
        (ColumnType::Integer | ColumnType::Number, Some(decimal)) => {
            match with_point(texts, decimal) {
                Ok(pointed) => declared.of_texts(&pointed),
                Err(row) => Err(declared.misfit(texts, row)),
            }
        }
        _ => declared.of_texts(texts),
    };
    converted.map_err(|misfit| {
        let value = texts.value(misfit.row).to_string();
        Fault::new(Misfit { value, ..misfit }.message(column))
    })
}

/// Numbers with a point in the place of another decimal point.
///
/// # Errors
/// The row of a text that has a point already.
fn with_point(texts: &StringArray, decimal: char) -> Result<StringArray, usize> {
    let has_point = |row: &usize| texts.is_valid(*row) && texts.value(*row).contains('.');
    match (0..texts.len()).find(has_point) {
        Some(row) => Err(row),
        None => {
            let pointed = texts
                .iter()
                .map(|text| text.map(|text| text.replace(decimal, ".")));
            Ok(pointed.collect())
        }
    }
}

/// Texts converted to the type of a column. `may_round`: integers may become the nearest double.
///
/// # Errors
/// The first text that does not convert.
fn typed(
    texts: &StringArray,
    field: &Field,
    may_round: bool,
    decimal: Option<char>,
) -> Result<ArrayRef, Fault> {
    check_zones(texts, field)?;
    let pointed;
    let texts = match decimal.filter(|_| *field.data_type() == DataType::Float64) {
        Some(decimal) => {
            let wrong = |row: usize| unlike(field, &format!("`{}`", texts.value(row)));
            pointed = with_point(texts, decimal).map_err(|row| Fault::new(wrong(row)))?;
            &pointed
        }
        None => texts,
    };
    let numbers = converted(texts, field.data_type())
        .map_err(|value| Fault::new(unlike(field, &format!("`{value}`"))))?;
    if let Some(doubles) = numbers.as_primitive_opt::<Float64Type>() {
        let is_long = |x: &f64| x.abs() >= EXACT_INTEGER as f64;
        let values = doubles.values().iter().enumerate();
        let long = values.filter(|(at, x)| is_long(x) && doubles.is_valid(*at));
        let mut integers = long.map(|(at, _)| texts.value(at).trim_ascii());
        let is_between = |text: &&str| is_integer(text) && !is_whole_double(text);
        match integers.find(is_between) {
            Some(text) if may_round => warn_of_rounding(field.name(), text),
            Some(text) => return Err(Fault::new(not_exact(field.name(), text, ""))),
            None => {}
        }
    }
    Ok(numbers)
}

/// Refuses times with a time zone in a column of times without one, and the other way round.
fn check_zones(texts: &StringArray, field: &Field) -> Result<(), Fault> {
    let DataType::Timestamp(_, zone) = field.data_type() else {
        return Ok(());
    };
    let is_other = |text: &&str| has_zone(text) != zone.is_some();
    let Some(other) = texts.iter().flatten().find(is_other) else {
        return Ok(());
    };
    let [others, here] = match zone {
        Some(_) => ["with", "without"],
        None => ["without", "with"],
    };
    Err(Fault::new(format!(
        "column `{}` holds times {others} a time zone in other rows, and here `{other}` {here} one; write all times with a time zone, or all without one",
        field.name()
    )))
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// Texts converted to another type.
///
/// # Errors
/// The first text that does not convert.
fn converted(texts: &StringArray, data_type: &DataType) -> Result<ArrayRef, String> {
    let is_exact = |text: &str| match data_type {
        DataType::Null => false,
        DataType::Int64 | DataType::Float64 => !is_code(text),
        DataType::Date32 => text.len() == 10,
        DataType::Timestamp(unit, _) => decimals(text) <= digits(*unit),
        _ => true,
    };
    if let Some(bad) = texts.iter().flatten().find(|text| !is_exact(text)) {
        return Err(bad.to_string());
    }
    if let DataType::Null = data_type {
        return Ok(arrow::array::new_null_array(data_type, texts.len()));
    }
    let options = CastOptions {
        safe: true,
        ..Default::default()
    };
    let first = || texts.iter().flatten().next().unwrap_or_default();
    let cast = cast_with_options(texts, data_type, &options).map_err(|_| first().to_string())?;
    // Asking each row takes longer than the conversion.
    if cast.null_count() == texts.null_count() {
        return Ok(cast);
    }
    let is_lost = |at: &usize| texts.is_valid(*at) && cast.is_null(*at);
    match (0..texts.len()).find(is_lost) {
        Some(at) => Err(texts.value(at).to_string()),
        None => Ok(cast),
    }
}

/// Significant digits after the decimal point of a time.
fn decimals(time: &str) -> usize {
    let Some((_, rest)) = time.split_once('.') else {
        return 0;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].trim_end_matches('0').len()
}

fn digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Turns the bytes of a file, from its start or the start of a row, into rows.
pub(crate) struct CsvRows {
    layout: Layout,
    decoder: Decoder,
    quotes: Quotes,
    /// The bytes of the rows in the decoder, including a header.
    held: Vec<Bytes>,
    holds_header: bool,
    /// The line in which these bytes start.
    line: u64,
}

impl CsvRows {
    /// A reader of the file `name`. `is_start`: the bytes start at the start of the file. Returns
    /// batches of `rows` rows.
    pub(crate) fn new(
        wanted: Wanted,
        name: &str,
        dialect: &Dialect,
        is_start: bool,
        rows: usize,
    ) -> Result<CsvRows, Fault> {
        let has_header = is_start && dialect.has_header();
        let layout = Layout::new(wanted, name, dialect)?;
        Ok(CsvRows {
            decoder: layout.rows_decoder(rows, has_header),
            quotes: dialect.quotes(name),
            layout,
            held: Vec::new(),
            holds_header: has_header,
            line: 1,
        })
    }

    /// The fault in the held rows and the bytes after them.
    fn fault(&self, rest: &[u8], e: &str) -> Fault {
        let mut bytes = self.held.concat();
        bytes.extend_from_slice(rest);
        self.layout
            .locate(&bytes, self.line, self.holds_header)
            .unwrap_or_else(|| Fault::at(self.line, e))
    }

    /// Adds bytes to the rows in the decoder, and appends each full batch.
    fn decode(&mut self, mut bytes: Bytes, batches: &mut Vec<RecordBatch>) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let decoded = self.decoder.decode(&bytes);
            let n = decoded.map_err(|e| self.fault(&bytes, &describe_error(&e)))?;
            self.held.push(bytes.split_to(n));
            if self.decoder.capacity() == 0 {
                batches.extend(self.flush()?);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, Fault> {
        let flushed = self.decoder.flush();
        let Some(rows) = flushed.map_err(|e| self.fault(&[], &describe_error(&e)))? else {
            return Ok(None);
        };
        let typed = self
            .layout
            .typed(&rows)
            .map_err(|fault| self.fault(&[], &fault.what))?;
        self.line += self.held.iter().map(|bytes| lines_in(bytes)).sum::<u64>();
        self.held.clear();
        self.holds_header = false;
        Ok(Some(typed))
    }
}

impl TextRows for CsvRows {
    fn push(&mut self, mut bytes: Bytes) -> Result<Vec<RecordBatch>, Fault> {
        let rows = self.quotes.push(&bytes)?;
        let mut batches = Vec::new();
        let rest = bytes.split_off(rows);
        self.decode(bytes, &mut batches)?;
        let held: usize = self.held.iter().map(Bytes::len).sum();
        if held >= BATCH_BYTES && rows > 0 {
            batches.extend(self.flush()?);
        }
        self.decode(rest, &mut batches)?;
        Ok(batches)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>, Fault> {
        self.quotes.finish()?;
        let decoded = self.decoder.decode(&[]);
        decoded.map_err(|e| self.fault(&[], &describe_error(&e)))?;
        Ok(self.flush()?.into_iter().collect())
    }
}
