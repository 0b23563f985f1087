//! Bytes of JSON, one object per row → rows. A value that does not have the type of its column is
//! an error with its line.
//!
//! Arrow's own reader truncates fractions to integers, and converts text to numbers. Values of a
//! column with a type of the pipeline are converted from their text in the file, so that no number
//! becomes another one before.

use crate::read::formats::column_type::{AS_TYPES, ColumnType};
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fault::Fault;
use crate::read::formats::fill_values::FillValues;
use crate::read::formats::pieces::Pieces;
use crate::read::formats::text::{
    BATCH_BYTES, BYTE_ORDER_MARK, MAX_ROW_BYTES, SAMPLE, SAMPLE_BYTES, TextRows, Wanted, lines_in,
    value_kind,
};
use crate::read::lake::exact::{holds_also, not_exact};
use crate::read::rows::doubles::{is_whole_double, warn_of_rounding};
use arrow::array::{
    ArrayRef, AsArray, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, ListArray,
    NullBufferBuilder, RecordBatch, RecordBatchOptions, StringBuilder, StructArray, UInt64Builder,
    new_null_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use arrow::json::reader::infer_json_schema_from_iterator;
use bytes::Bytes;
use datafusion::common::DataFusionError;
use futures::TryStreamExt;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// An integer of this many characters has at most 64 bits.
const LONG_DIGITS: usize = 18;

/// The type of integers with and without a sign.
const INTEGERS: DataType = DataType::Decimal128(20, 0);

/// The columns of a file, with types inferred from its first rows.
///
/// # Errors
/// A row that is not a JSON object, or a key with values of several types.
pub(crate) async fn columns(
    mut pieces: Pieces,
    dialect: &Dialect,
) -> Result<Schema, DataFusionError> {
    let mut values: Vec<Value> = Vec::new();
    let (mut objects, mut bytes) = (Objects::new(), 0);
    while let Some(piece) = pieces.try_next().await? {
        bytes += piece.len();
        objects.push(&piece, |object, line| {
            if values.len() < SAMPLE {
                let value = serde_json::from_slice(object);
                values.push(value.map_err(|e| Fault::at(line, not_an_object(&e)))?);
            }
            Ok(())
        })?;
        if values.len() >= SAMPLE || bytes >= SAMPLE_BYTES && !values.is_empty() {
            return Ok(inferred(values, dialect)?);
        }
    }
    objects.finish()?;
    Ok(inferred(values, dialect)?)
}

fn inferred(mut values: Vec<Value>, dialect: &Dialect) -> Result<Schema, Fault> {
    without_declared(&mut values, dialect);
    let inferred = infer_json_schema_from_iterator(values.iter().map(Ok::<_, ArrowError>));
    let inferred = inferred.map_err(|_| {
        let what = format!(
            "a key has values in the first {SAMPLE} rows of several types, such as a number in one and an object in another"
        );
        Fault::new(what)
    })?;
    let objects: Vec<&Value> = values.iter().collect();
    let fields = integer_fields(inferred.fields(), &objects);
    let fields = fields.iter().map(|field| {
        let declared = dialect.types.get(field.name());
        let of = declared.map_or_else(|| field.data_type().clone(), ColumnType::data_type);
        field.as_ref().clone().with_data_type(of)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// Makes null of values from which no type is inferred: those of columns with a type of the
/// pipeline, and texts that mean null.
fn without_declared(values: &mut [Value], dialect: &Dialect) {
    if !dialect.declares() {
        return;
    }
    let objects = values.iter_mut().filter_map(Value::as_object_mut);
    for (key, value) in objects.flatten() {
        let is_null = match value {
            Value::String(text) => dialect.null.texts(key).contains(&text.as_str()),
            _ => false,
        };
        if is_null || dialect.types.contains_key(key) {
            *value = Value::Null;
        }
    }
}

/// The columns with exact types for integers of 64 bits without a sign, which Arrow infers as
/// doubles.
fn integer_fields(fields: &Fields, objects: &[&Value]) -> Fields {
    let typed = fields.iter().map(|field| {
        let own: Vec<&Value> = objects.iter().filter_map(|o| o.get(field.name())).collect();
        let data_type = integer_type(field.data_type(), &own);
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    typed.collect()
}

fn integer_type(inferred: &DataType, values: &[&Value]) -> DataType {
    match inferred {
        DataType::Float64 => {
            let numbers = || values.iter().filter(|value| value.is_number());
            let are_integers = numbers().all(|n| n.is_i64() || n.is_u64());
            match numbers().next() {
                Some(_) if are_integers && numbers().all(|n| n.is_u64()) => DataType::UInt64,
                Some(_) if are_integers => INTEGERS,
                _ => DataType::Float64,
            }
        }
        DataType::List(item) => {
            let lists = values.iter().filter_map(|value| value.as_array());
            let own: Vec<&Value> = lists.flatten().collect();
            let data_type = integer_type(item.data_type(), &own);
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(data_type)))
        }
        DataType::Struct(fields) => DataType::Struct(integer_fields(fields, values)),
        other => other.clone(),
    }
}

fn not_an_object(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("the row is not a JSON object: {what}")
}

/// Splits bytes into objects, which may span pieces.
struct Objects {
    depth: u32,
    in_text: bool,
    is_escaped: bool,
    /// The line of the next byte, and the line in which the open object starts.
    line: u64,
    begin: u64,
    /// The bytes of the open object so far.
    part: Vec<u8>,
    is_start: bool,
}

impl Objects {
    fn new() -> Objects {
        Objects {
            depth: 0,
            in_text: false,
            is_escaped: false,
            line: 1,
            begin: 1,
            part: Vec::new(),
            is_start: true,
        }
    }

    fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8], u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.is_start {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
            self.is_start = false;
        }
        let mut start = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if self.in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_text = false,
                    _ => (),
                }
                continue;
            }
            match byte {
                b'{' | b'[' if self.depth > 0 => self.depth += 1,
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'}' | b']' if self.depth == 1 => {
                    self.depth = 0;
                    let object = &bytes[start..=at];
                    let begin = self.begin;
                    if self.part.is_empty() {
                        self.line += lines_in(object);
                        each(object, begin)?;
                    } else {
                        self.part.extend_from_slice(object);
                        self.line += lines_in(object);
                        each(&self.part, begin)?;
                        self.part.clear();
                    }
                }
                b'"' if self.depth > 0 => self.in_text = true,
                _ if self.depth > 0 => (),
                b'{' => {
                    (self.depth, start, self.begin) = (1, at, self.line);
                }
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => (),
                b'[' => {
                    let what = "the file is one JSON array; gyre reads one object per row, as `jq -c '.[]' FILE` writes them";
                    return Err(Fault::at(self.line, what));
                }
                _ => {
                    let what = "a JSON object must begin here";
                    return Err(Fault::at(self.line, what));
                }
            }
        }
        if self.depth > 0 {
            self.line += lines_in(&bytes[start..]);
            self.part.extend_from_slice(&bytes[start..]);
            if self.part.len() > MAX_ROW_BYTES {
                let what = format!("the object is longer than {} MiB", MAX_ROW_BYTES >> 20);
                return Err(Fault::at(self.begin, what));
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Fault> {
        if self.depth > 0 {
            let what = "the JSON object is not closed before the end of the file";
            return Err(Fault::at(self.begin, what));
        }
        Ok(())
    }
}

/// Turns the bytes of a file, from its start or the start of a row, into rows.
pub(crate) struct JsonRows {
    objects: Objects,
    rows: OpenRows,
    each: usize,
}

impl JsonRows {
    /// A reader that returns batches of `each` rows. Columns `shown` get the values as they are
    /// written.
    pub(crate) fn new(
        wanted: Wanted,
        each: usize,
        dialect: &Dialect,
        shown: &BTreeSet<String>,
    ) -> JsonRows {
        let fields = wanted.table.fields().clone();
        let rounds = |name: &str| wanted.may_round(name).then(|| name.to_string());
        let mut record = Record::new(&fields, &rounds);
        record.declare(dialect, shown);
        JsonRows {
            objects: Objects::new(),
            rows: OpenRows {
                record,
                wanted,
                lines: Vec::new(),
                bytes: 0,
            },
            each,
        }
    }
}

impl TextRows for JsonRows {
    fn push(&mut self, bytes: Bytes) -> Result<Vec<RecordBatch>, Fault> {
        let mut batches = Vec::new();
        let (rows, each) = (&mut self.rows, self.each);
        self.objects.push(&bytes, |object, line| {
            rows.push(object, line)?;
            if rows.lines.len() == each || rows.bytes >= BATCH_BYTES {
                batches.extend(rows.flush()?);
            }
            Ok(())
        })?;
        Ok(batches)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>, Fault> {
        self.objects.finish()?;
        Ok(self.rows.flush()?.into_iter().collect())
    }
}

/// Rows that have not been returned yet.
struct OpenRows {
    wanted: Wanted,
    record: Record,
    /// The line of each row.
    lines: Vec<u64>,
    /// Bytes of their text.
    bytes: usize,
}

impl OpenRows {
    fn push(&mut self, object: &[u8], line: u64) -> Result<(), Fault> {
        let seen = Seen::default();
        let mut json = serde_json::Deserializer::from_slice(object);
        let into = Filler {
            column: &mut self.record,
            seen: &seen,
            nulls: &[],
        };
        let read = into.deserialize(&mut json).and_then(|()| json.end());
        if let Err(e) = read {
            let what = seen
                .unlike
                .into_inner()
                .unwrap_or_else(|| not_an_object(&e));
            return Err(Fault::at(line, what));
        }
        if seen.is_long.get() {
            self.check_long(object)
                .map_err(|what| Fault::at(line, what))?;
        }
        self.lines.push(line);
        self.bytes += object.len();
        Ok(())
    }

    /// Refuses integers beyond 64 bits that are no doubles, unless their column may be rounded.
    fn check_long(&self, object: &[u8]) -> Result<(), String> {
        for (key, integer) in long_integers(object) {
            let column = self.record.by_name.get(&key);
            let column = column.map(|at| &self.record.columns[*at]);
            if column.is_none_or(Column::is_written) || is_whole_double(&integer) {
                continue;
            }
            if !self.wanted.may_round(&key) {
                return Err(not_exact(&key, &integer, ""));
            }
            warn_of_rounding(&key, &integer);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, Fault> {
        let n = self.lines.len();
        if n == 0 {
            return Ok(None);
        }
        let columns = self.record.finish(n)?;
        let columns = columns.into_iter().enumerate();
        let columns = columns.map(|(at, column)| match &self.record.columns[at] {
            Column::Declared(declared) => {
                let converted = declared.to.of_texts(column.as_string());
                converted.map_err(|misfit| {
                    let what = misfit.message(self.record.fields[at].name());
                    Fault::at(self.lines[misfit.row], what)
                })
            }
            _ => Ok(column),
        });
        let columns = columns.collect::<Result<Vec<_>, Fault>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(n));
        let schema = Arc::clone(&self.wanted.table);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        self.lines.clear();
        self.bytes = 0;
        Ok(Some(batch?))
    }
}

/// The integers of an object that may have more than 64 bits, each with its key or the key of the
/// list or object around it.
fn long_integers(object: &[u8]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut depth, mut key, mut at) = (0u32, String::new(), 0);
    while let Some(&byte) = object.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(&byte) = object.get(at).filter(|byte| **byte != b'"') {
                    at += if byte == b'\\' { 2 } else { 1 };
                }
                at = object.len().min(at + 1);
                let next = object[at..].iter().find(|b| !b.is_ascii_whitespace());
                if depth == 1 && next == Some(&b':') {
                    key = serde_json::from_slice(&object[start..at]).unwrap_or_default();
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                at += object[at..].iter().take_while(is_part).count();
                let is_integer = object[start + 1..at].iter().all(u8::is_ascii_digit);
                if is_integer && at - start > LONG_DIGITS {
                    let digits = String::from_utf8_lossy(&object[start..at]);
                    found.push((key.clone(), digits.into_owned()));
                }
            }
            _ => {}
        }
    }
    found
}

/// The fields of an object, and a column for each.
struct Record {
    by_name: HashMap<String, usize>,
    fields: Fields,
    columns: Vec<Column>,
    /// Whether each field has occurred in the current object.
    seen: Vec<bool>,
    /// The texts that mean null in each field; empty if there are none at all.
    nulls: Vec<Vec<String>>,
}

/// The values of a field.
enum Column {
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Unsigned(UInt64Builder),
    /// Integers of at most this number of digits.
    Decimal(Decimal128Builder, u8),
    /// Doubles. Integers become the nearest double in a column with this name; without a name, they
    /// must be doubles.
    Number(Float64Builder, Option<String>),
    Text(StringBuilder),
    /// Single values, which are converted to the type of the pipeline.
    Declared(Declared),
    /// Values as they are written.
    Shown(StringBuilder),
    List {
        values: Box<Column>,
        field: FieldRef,
        ends: Vec<i32>,
        n: usize,
        valid: NullBufferBuilder,
    },
    Object {
        record: Record,
        valid: NullBufferBuilder,
    },
    /// Nulls, or a type that is never inferred for JSON.
    Other(DataType, usize),
}

/// Values of a column with a type of the pipeline.
struct Declared {
    to: ColumnType,
    /// Texts without their quotes, and other values as they are written.
    texts: StringBuilder,
    /// Values that mean null.
    null: FillValues,
}

impl Declared {
    /// Appends a value as it is written.
    ///
    /// # Errors
    /// A list or an object.
    fn push(&mut self, name: &str, written: &str) -> Result<(), String> {
        let nested = match written.as_bytes().first() {
            Some(b'[') => "a list",
            Some(b'{') => "an object",
            Some(b'"') => {
                let text: Cow<'_, str> =
                    serde_json::from_str(written).map_err(|e| e.to_string())?;
                self.texts
                    .append_option((!self.null.is_json(name, written)).then_some(text));
                return Ok(());
            }
            _ => {
                let is_null = written == "null" || self.null.is_json(name, written);
                self.texts.append_option((!is_null).then_some(written));
                return Ok(());
            }
        };
        Err(format!(
            "column `{name}` holds {nested}, which is no single value{AS_TYPES}"
        ))
    }
}

impl Record {
    /// A column for each field. `rounds` gives the name of the column of the table for fields whose
    /// integers become the nearest double.
    fn new(fields: &Fields, rounds: &dyn Fn(&str) -> Option<String>) -> Record {
        let column = |field: &FieldRef| Column::new(field.data_type(), rounds(field.name()));
        let named = fields.iter().enumerate();
        Record {
            by_name: named.map(|(at, f)| (f.name().clone(), at)).collect(),
            fields: fields.clone(),
            columns: fields.iter().map(column).collect(),
            seen: vec![false; fields.len()],
            nulls: Vec::new(),
        }
    }

    /// Takes what the pipeline says of the columns of a table.
    fn declare(&mut self, dialect: &Dialect, shown: &BTreeSet<String>) {
        for (field, column) in self.fields.iter().zip(&mut self.columns) {
            if shown.contains(field.name()) {
                *column = Column::Shown(StringBuilder::new());
            } else if let Some(to) = dialect.types.get(field.name()) {
                *column = Column::Declared(Declared {
                    to: to.clone(),
                    texts: StringBuilder::new(),
                    null: dialect.null.clone(),
                });
            }
        }
        if !dialect.null.is_empty() {
            let texts = |field: &FieldRef| {
                let texts = dialect.null.texts(field.name());
                texts.into_iter().map(str::to_string).collect()
            };
            self.nulls = self.fields.iter().map(texts).collect();
        }
    }

    fn append_null(&mut self) {
        self.columns.iter_mut().for_each(Column::append_null);
    }

    fn finish(&mut self, n: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns
            .iter_mut()
            .map(|column| column.finish(n))
            .collect()
    }
}

impl Column {
    fn new(data_type: &DataType, rounds: Option<String>) -> Column {
        match data_type {
            DataType::Boolean => Column::Boolean(BooleanBuilder::new()),
            DataType::Int64 => Column::Integer(Int64Builder::new()),
            DataType::UInt64 => Column::Unsigned(UInt64Builder::new()),
            DataType::Decimal128(digits, 0) => {
                let values = Decimal128Builder::new().with_data_type(data_type.clone());
                Column::Decimal(values, *digits)
            }
            DataType::Float64 => Column::Number(Float64Builder::new(), rounds),
            DataType::Utf8 => Column::Text(StringBuilder::new()),
            DataType::List(field) => Column::List {
                values: Box::new(Column::new(field.data_type(), rounds)),
                field: Arc::clone(field),
                ends: vec![0],
                n: 0,
                valid: NullBufferBuilder::new(0),
            },
            DataType::Struct(fields) => Column::Object {
                record: Record::new(fields, &|_| rounds.clone()),
                valid: NullBufferBuilder::new(0),
            },
            other => Column::Other(other.clone(), 0),
        }
    }

    /// Whether its values are read as they are written.
    fn is_written(&self) -> bool {
        matches!(self, Column::Declared(_) | Column::Shown(_))
    }

    fn value_kind(&self) -> &'static str {
        value_kind(&match self {
            Column::Boolean(_) => DataType::Boolean,
            Column::Integer(_) | Column::Unsigned(_) | Column::Decimal(..) => DataType::Int64,
            Column::Number(..) => DataType::Float64,
            Column::Text(_) | Column::Shown(_) => DataType::Utf8,
            Column::Declared(declared) => declared.to.data_type(),
            Column::List { field, .. } => DataType::List(Arc::clone(field)),
            Column::Object { record, .. } => DataType::Struct(record.fields.clone()),
            Column::Other(other, _) => other.clone(),
        })
    }

    fn append_null(&mut self) {
        match self {
            Column::Other(_, n) => *n += 1,
            Column::Boolean(values) => values.append_null(),
            Column::Integer(values) => values.append_null(),
            Column::Unsigned(values) => values.append_null(),
            Column::Decimal(values, _) => values.append_null(),
            Column::Number(values, _) => values.append_null(),
            Column::Text(values) | Column::Shown(values) => values.append_null(),
            Column::Declared(declared) => declared.texts.append_null(),
            Column::List { ends, n, valid, .. } => {
                ends.push(*n as i32);
                valid.append_null();
            }
            Column::Object { record, valid } => {
                record.append_null();
                valid.append_null();
            }
        }
    }

    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Other(data_type, n) => new_null_array(data_type, std::mem::take(n)),
            Column::Boolean(values) => Arc::new(values.finish()),
            Column::Integer(values) => Arc::new(values.finish()),
            Column::Unsigned(values) => Arc::new(values.finish()),
            Column::Decimal(values, _) => Arc::new(values.finish()),
            Column::Number(values, _) => Arc::new(values.finish()),
            Column::Text(values) | Column::Shown(values) => Arc::new(values.finish()),
            Column::Declared(declared) => Arc::new(declared.texts.finish()),
            Column::List {
                values,
                field,
                ends,
                n,
                valid,
            } => {
                let ends = std::mem::replace(ends, vec![0]);
                let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
                let values = values.finish(std::mem::take(n))?;
                let list = ListArray::try_new(Arc::clone(field), offsets, values, valid.finish())?;
                Arc::new(list)
            }
            Column::Object { record, valid } => {
                let columns = record.finish(rows)?;
                let fields = record.fields.clone();
                let valid = valid.finish();
                let objects = StructArray::try_new_with_length(fields, columns, valid, rows)?;
                Arc::new(objects)
            }
        })
    }
}

/// What was seen in an object.
#[derive(Default)]
struct Seen {
    /// Describes a value that does not fit.
    unlike: RefCell<Option<String>>,
    /// Whether a double may be the rounded form of an integer of more than 64 bits.
    is_long: Cell<bool>,
}

/// A JSON value that goes into a column, or an object that goes into all columns of a record.
struct Filler<'a, C> {
    column: &'a mut C,
    seen: &'a Seen,
    /// Texts that mean null.
    nulls: &'a [String],
}

impl<'de> DeserializeSeed<'de> for Filler<'_, Record> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Filler<'_, Record> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let record = self.column;
        record.seen.fill(false);
        while let Some(at) = map.next_key_seed(Key(&record.by_name))? {
            let Some(at) = at else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let name = record.fields[at].name();
            if std::mem::replace(&mut record.seen[at], true) {
                let twice = format!("the object has the key `{name}` twice");
                return Err(A::Error::custom(unlike(self.seen, twice)));
            }
            let column = &mut record.columns[at];
            if column.is_written() {
                let written: &RawValue = map.next_value()?;
                push_written(column, name, written.get())
                    .map_err(|what| A::Error::custom(unlike(self.seen, what)))?;
                continue;
            }
            let into = Filler {
                column,
                seen: self.seen,
                nulls: record.nulls.get(at).map_or(&[], Vec::as_slice),
            };
            map.next_value_seed(into).inspect_err(|_| {
                let mut found = self.seen.unlike.borrow_mut();
                if let Some(found) = found.as_mut().filter(|text| text.starts_with("holds ")) {
                    *found = format!("column `{name}` {found}");
                }
            })?;
        }
        for (column, seen) in record.columns.iter_mut().zip(&record.seen) {
            if !seen {
                column.append_null();
            }
        }
        Ok(())
    }
}

/// Appends a value as it is written to a column that takes it so.
fn push_written(column: &mut Column, name: &str, written: &str) -> Result<(), String> {
    match column {
        Column::Declared(declared) => declared.push(name, written)?,
        Column::Shown(values) if written == "null" => values.append_null(),
        Column::Shown(values) => values.append_value(written),
        _ => {}
    }
    Ok(())
}

fn unlike(to: &Seen, what: String) -> &'static str {
    to.unlike.borrow_mut().get_or_insert(what);
    "a value of another type"
}

/// Resolves a key to the index of its field, if there is one.
struct Key<'a>(&'a HashMap<String, usize>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.get(key).copied())
    }
}

impl<'de> DeserializeSeed<'de> for Filler<'_, Column> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Filler<'_, Column> {
    fn unlike<E: serde::de::Error>(self, value: impl fmt::Display) -> Result<(), E> {
        let what = format!(
            "holds {} in the first {SAMPLE} rows of the files, and here {value}; convert the files to Parquet, with one type for the column",
            self.column.value_kind()
        );
        Err(E::custom(unlike(self.seen, what)))
    }

    fn integer<E: serde::de::Error>(self, value: i128) -> Result<(), E> {
        let fits = match &mut *self.column {
            Column::Integer(values) => {
                let value = i64::try_from(value);
                value.map(|value| values.append_value(value)).is_ok()
            }
            Column::Unsigned(values) => {
                let value = u64::try_from(value);
                value.map(|value| values.append_value(value)).is_ok()
            }
            Column::Decimal(values, digits) => {
                let fits = value.unsigned_abs() < 10u128.pow(u32::from(*digits));
                if fits {
                    values.append_value(value);
                }
                fits
            }
            Column::Number(values, rounds) => {
                let nearest = value as f64;
                if nearest as i128 != value {
                    let Some(column) = rounds else {
                        let what = holds_also(value, "");
                        return Err(E::custom(unlike(self.seen, what)));
                    };
                    warn_of_rounding(column, &value.to_string());
                }
                values.append_value(nearest);
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { self.unlike(value) }
    }
}

impl<'de> Visitor<'de> for Filler<'_, Column> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.column.append_null();
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.column {
            Column::Boolean(values) => values.append_value(value),
            _ => return self.unlike(value),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.column {
            Column::Number(values, _) => {
                if value.abs() >= i64::MAX as f64 {
                    self.seen.is_long.set(true);
                }
                values.append_value(value);
                Ok(())
            }
            // `-0` is an integer.
            _ if value == 0.0 && value.is_sign_negative() => self.integer(0),
            _ => self.unlike(format!("{value:?}")),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        if self.nulls.iter().any(|null| null == value) {
            self.column.append_null();
            return Ok(());
        }
        match self.column {
            Column::Text(values) => values.append_value(value),
            _ => return self.unlike(format!("{value:?}")),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Column::List {
            values,
            ends,
            n,
            valid,
            ..
        } = self.column
        else {
            return self.unlike("a list");
        };
        let seen = self.seen;
        while let Some(()) = list.next_element_seed(Filler {
            column: values.as_mut(),
            seen,
            nulls: &[],
        })? {
            *n += 1;
        }
        ends.push(*n as i32);
        valid.append_non_null();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Column::Object { record, valid } = self.column else {
            return self.unlike("an object");
        };
        let into = Filler {
            column: record,
            seen: self.seen,
            nulls: &[],
        };
        into.visit_map(map)?;
        valid.append_non_null();
        Ok(())
    }
}
