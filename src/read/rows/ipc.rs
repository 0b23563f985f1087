//! Columns, fields and rows ↔ Arrow IPC bytes, for serde. Each column is its own Arrow stream,
//! because columns may differ in length.

use crate::read::rows::pieces::{joined, pieces};
use arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

fn write(field: Field, array: ArrayRef) -> Result<Vec<u8>, ArrowError> {
    let schema = Arc::new(Schema::new(vec![field]));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    for piece in pieces(vec![array]) {
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), piece)?)?;
    }
    writer.into_inner()
}

fn read(bytes: &[u8]) -> Result<(Field, ArrayRef), ArrowError> {
    let mut pieces = Vec::new();
    let batches = StreamReader::try_new(bytes, None)?;
    let none = || ArrowError::IpcError("no column".to_string());
    let schema = batches.schema();
    let field = schema.fields().first().ok_or_else(none)?;
    for batch in batches {
        pieces.push(vec![Arc::clone(batch?.columns().first().ok_or_else(none)?)]);
    }
    let array = match pieces.as_slice() {
        [] => return Err(none()),
        pieces => joined(pieces)?.pop().ok_or_else(none)?,
    };
    Ok((field.as_ref().clone(), array))
}

/// Serializes a list of columns.
pub(crate) mod arrays {
    use super::*;

    /// Serializes each column as an Arrow stream.
    pub(crate) fn serialize<S: Serializer>(arrays: &[ArrayRef], to: S) -> Result<S::Ok, S::Error> {
        let column = |a: &ArrayRef| write(Field::new("", a.data_type().clone(), true), a.clone());
        let columns: Result<Vec<_>, _> = arrays.iter().map(column).collect();
        columns.map_err(S::Error::custom)?.serialize(to)
    }

    /// Reads what [`serialize`] wrote.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ArrayRef>, D::Error> {
        let columns = Vec::<Vec<u8>>::deserialize(from)?;
        let array = |bytes: &Vec<u8>| read(bytes).map(|(_, array)| array);
        let arrays: Result<Vec<_>, _> = columns.iter().map(array).collect();
        arrays.map_err(D::Error::custom)
    }
}

/// Serializes a list of column names and types.
pub(crate) mod fields {
    use super::*;

    /// Serializes each field as an empty Arrow stream.
    pub(crate) fn serialize<S: Serializer>(fields: &[Field], to: S) -> Result<S::Ok, S::Error> {
        let column = |f: &Field| write(f.clone(), new_empty_array(f.data_type()));
        let columns: Result<Vec<_>, _> = fields.iter().map(column).collect();
        columns.map_err(S::Error::custom)?.serialize(to)
    }

    /// Reads what [`serialize`] wrote.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Field>, D::Error> {
        let columns = Vec::<Vec<u8>>::deserialize(from)?;
        let field = |bytes: &Vec<u8>| read(bytes).map(|(field, _)| field);
        let fields: Result<Vec<_>, _> = columns.iter().map(field).collect();
        fields.map_err(D::Error::custom)
    }
}

/// Serializes the name and type of one column.
pub(crate) mod field {
    use super::*;

    /// Serializes the field as an empty Arrow stream.
    pub(crate) fn serialize<S: Serializer>(field: &Field, to: S) -> Result<S::Ok, S::Error> {
        fields::serialize(std::slice::from_ref(field), to)
    }

    /// Reads what [`serialize`] wrote.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Field, D::Error> {
        let none = || D::Error::custom("no column");
        maybe_field::deserialize(from)?.ok_or_else(none)
    }
}

/// Serializes the name and type of an optional column.
pub(crate) mod maybe_field {
    use super::*;

    /// Serializes the field, if any, as an empty Arrow stream.
    pub(crate) fn serialize<S: Serializer>(
        field: &Option<Field>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        fields::serialize(field.as_slice(), to)
    }

    /// Reads what [`serialize`] wrote.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Field>, D::Error> {
        Ok(fields::deserialize(from)?.pop())
    }
}

/// Rows with the columns of `schema` as one Arrow stream; empty bytes for no rows.
pub(crate) fn write_rows(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    if rows.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(Vec::new());
    }
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for batch in rows {
        writer.write(batch)?;
    }
    writer.into_inner()
}

/// Reads what [`write_rows`] wrote.
pub(crate) fn read_rows(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    match bytes {
        [] => Ok(Vec::new()),
        bytes => StreamReader::try_new(bytes, None)?.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Decimal128Array, DictionaryArray, Float64Array, StringArray, StringViewArray,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{DataType, Int8Type};

    #[derive(Serialize, Deserialize)]
    struct Columns {
        #[serde(with = "arrays")]
        arrays: Vec<ArrayRef>,
        #[serde(with = "fields")]
        fields: Vec<Field>,
    }

    #[test]
    fn columns_survive_a_round_trip() {
        let decimals = Decimal128Array::from(vec![1, -2, 3]).with_precision_and_scale(9, 2);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(StringViewArray::from(vec![
                "a text that is longer than a view",
            ])),
            Arc::new(DictionaryArray::<Int8Type>::from_iter(["x", "y", "x"])),
            Arc::new(decimals.expect("a type")),
            Arc::new(TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("Europe/Paris")),
            Arc::new(Float64Array::from(vec![
                -0.0,
                f64::from_bits(0x7ff8_0000_0000_beef),
            ])),
            new_empty_array(&DataType::Utf8),
            Arc::new(StringArray::from(vec!["b", "c", "d"]).slice(1, 2)),
        ];
        let fields = arrays.iter().enumerate();
        let fields =
            fields.map(|(at, a)| Field::new(format!("f{at}"), a.data_type().clone(), at % 2 == 0));
        let columns = Columns {
            fields: fields.collect(),
            arrays,
        };
        let bytes = postcard::to_stdvec(&columns).expect("bytes");
        let back: Columns = postcard::from_bytes(&bytes).expect("columns");
        assert_eq!(back.arrays, columns.arrays);
        assert_eq!(back.fields, columns.fields);
        let floats = back.arrays[5].to_data();
        assert_eq!(
            floats.buffers()[0],
            columns.arrays[5].to_data().buffers()[0]
        );
        assert!(postcard::from_bytes::<Columns>(&bytes[..bytes.len() - 1]).is_err());
    }
}
