//! Bytes of JSON, one object per row → rows. A value that does not have the type of its column is
//! an error with its line.
//!
//! Arrow's own reader truncates fractions to integers, and converts text to numbers.

use crate::read::formats::fault::Fault;
use crate::read::formats::pieces::Pieces;
use crate::read::formats::text::{Rows, SAMPLE, SAMPLE_BYTES, Wanted, value_kind};
use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListArray, NullBufferBuilder,
    RecordBatch, RecordBatchOptions, StringBuilder, StructArray, new_null_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use arrow::json::reader::infer_json_schema_from_iterator;
use bytes::Bytes;
use datafusion::common::DataFusionError;
use futures::TryStreamExt;
use memchr::memchr_iter;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Longest object in bytes. A longer one is treated as unclosed.
const MAX_OBJECT_BYTES: usize = 64 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The columns of a file, with types inferred from its first rows.
///
/// # Errors
/// A row that is not a JSON object, or a key with values of several types.
pub async fn columns(mut pieces: Pieces) -> Result<Schema, DataFusionError> {
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
            return Ok(inferred(&values)?);
        }
    }
    objects.finish()?;
    Ok(inferred(&values)?)
}

fn inferred(values: &[Value]) -> Result<Schema, Fault> {
    infer_json_schema_from_iterator(values.iter().map(Ok::<_, ArrowError>)).map_err(|_| {
        let what = format!(
            "a key has values in the first {SAMPLE} rows of several types, such as a number in one and an object in another"
        );
        Fault::new(what)
    })
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
            if self.part.len() > MAX_OBJECT_BYTES {
                let what = format!("the object is longer than {} MiB", MAX_OBJECT_BYTES >> 20);
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

fn lines_in(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// Turns the bytes of a file, from its start or the start of a row, into rows.
pub struct JsonRows {
    objects: Objects,
    rows: OpenRows,
    each: usize,
}

impl JsonRows {
    /// A reader that returns batches of `each` rows.
    pub fn new(wanted: Wanted, each: usize) -> JsonRows {
        let fields = wanted.table.fields().clone();
        JsonRows {
            objects: Objects::new(),
            rows: OpenRows {
                record: Record::new(&fields),
                wanted,
                n: 0,
            },
            each,
        }
    }
}

impl Rows for JsonRows {
    fn push(&mut self, bytes: Bytes) -> Result<Vec<RecordBatch>, Fault> {
        let mut batches = Vec::new();
        let (rows, each) = (&mut self.rows, self.each);
        self.objects.push(&bytes, |object, line| {
            rows.push(object, line)?;
            if rows.n == each {
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
    n: usize,
}

impl OpenRows {
    fn push(&mut self, object: &[u8], line: u64) -> Result<(), Fault> {
        let unlike = RefCell::new(None);
        let mut json = serde_json::Deserializer::from_slice(object);
        let into = Filler {
            column: &mut self.record,
            unlike: &unlike,
        };
        let read = into.deserialize(&mut json).and_then(|()| json.end());
        if let Err(e) = read {
            let what = unlike.into_inner().unwrap_or_else(|| not_an_object(&e));
            return Err(Fault::at(line, what));
        }
        self.n += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, Fault> {
        if self.n == 0 {
            return Ok(None);
        }
        let columns = self.record.finish(self.n).map_err(fault_of)?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.n));
        let schema = Arc::clone(&self.wanted.table);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        self.n = 0;
        Ok(Some(batch.map_err(fault_of)?))
    }
}

fn fault_of(e: ArrowError) -> Fault {
    Fault::new(crate::read::formats::fault::plain(&e.to_string()))
}

/// The fields of an object, and a column for each.
struct Record {
    by_name: HashMap<String, usize>,
    fields: Fields,
    columns: Vec<Column>,
    /// Whether each field has occurred in the current object.
    seen: Vec<bool>,
}

/// The values of a field.
enum Column {
    Null(usize),
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Number(Float64Builder),
    Text(StringBuilder),
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
    /// A type that is never inferred for JSON.
    Other(DataType, usize),
}

impl Record {
    fn new(fields: &Fields) -> Record {
        let named = fields.iter().enumerate();
        Record {
            by_name: named.map(|(at, f)| (f.name().clone(), at)).collect(),
            fields: fields.clone(),
            columns: fields.iter().map(|f| Column::new(f.data_type())).collect(),
            seen: vec![false; fields.len()],
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
    fn new(data_type: &DataType) -> Column {
        match data_type {
            DataType::Null => Column::Null(0),
            DataType::Boolean => Column::Boolean(BooleanBuilder::new()),
            DataType::Int64 => Column::Integer(Int64Builder::new()),
            DataType::Float64 => Column::Number(Float64Builder::new()),
            DataType::Utf8 => Column::Text(StringBuilder::new()),
            DataType::List(field) => Column::List {
                values: Box::new(Column::new(field.data_type())),
                field: Arc::clone(field),
                ends: vec![0],
                n: 0,
                valid: NullBufferBuilder::new(0),
            },
            DataType::Struct(fields) => Column::Object {
                record: Record::new(fields),
                valid: NullBufferBuilder::new(0),
            },
            other => Column::Other(other.clone(), 0),
        }
    }

    fn value_kind(&self) -> &'static str {
        value_kind(&match self {
            Column::Null(_) => DataType::Null,
            Column::Boolean(_) => DataType::Boolean,
            Column::Integer(_) => DataType::Int64,
            Column::Number(_) => DataType::Float64,
            Column::Text(_) => DataType::Utf8,
            Column::List { field, .. } => DataType::List(Arc::clone(field)),
            Column::Object { record, .. } => DataType::Struct(record.fields.clone()),
            Column::Other(other, _) => other.clone(),
        })
    }

    fn append_null(&mut self) {
        match self {
            Column::Null(n) | Column::Other(_, n) => *n += 1,
            Column::Boolean(values) => values.append_null(),
            Column::Integer(values) => values.append_null(),
            Column::Number(values) => values.append_null(),
            Column::Text(values) => values.append_null(),
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
            Column::Null(n) => new_null_array(&DataType::Null, std::mem::take(n)),
            Column::Other(data_type, n) => new_null_array(data_type, std::mem::take(n)),
            Column::Boolean(values) => Arc::new(values.finish()),
            Column::Integer(values) => Arc::new(values.finish()),
            Column::Number(values) => Arc::new(values.finish()),
            Column::Text(values) => Arc::new(values.finish()),
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

/// A JSON value that goes into a column, or an object that goes into all columns of a record.
/// `unlike` describes a value that does not fit.
struct Filler<'a, C> {
    column: &'a mut C,
    unlike: &'a RefCell<Option<String>>,
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
                return Err(A::Error::custom(unlike(self.unlike, twice)));
            }
            let into = Filler {
                column: &mut record.columns[at],
                unlike: self.unlike,
            };
            map.next_value_seed(into).inspect_err(|_| {
                let mut found = self.unlike.borrow_mut();
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

fn unlike(to: &RefCell<Option<String>>, what: String) -> &'static str {
    to.borrow_mut().get_or_insert(what);
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
        Err(E::custom(unlike(self.unlike, what)))
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
        match self.column {
            Column::Integer(values) => values.append_value(value),
            Column::Number(values) => values.append_value(value as f64),
            _ => return self.unlike(value),
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match (self.column, i64::try_from(value)) {
            (Column::Integer(values), Ok(value)) => values.append_value(value),
            (Column::Number(values), _) => values.append_value(value as f64),
            (column, _) => {
                let unlike = self.unlike;
                return Filler { column, unlike }.unlike(value);
            }
        }
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.column {
            Column::Number(values) => values.append_value(value),
            // Accepts `-0` as an integer.
            Column::Integer(values) if value == 0.0 && value.is_sign_negative() => {
                values.append_value(0);
            }
            _ => return self.unlike(format!("{value:?}")),
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
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
        let unlike = self.unlike;
        while let Some(()) = list.next_element_seed(Filler {
            column: values.as_mut(),
            unlike,
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
            unlike: self.unlike,
        };
        into.visit_map(map)?;
        valid.append_non_null();
        Ok(())
    }
}
