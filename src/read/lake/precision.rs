//! Columns of floating-point numbers that some files hold with less precision than the table.
//!
//! In: the schemas of the files and of the table. Out: the columns, each with two of its files.

use crate::error::Error;
use crate::read::lake::merge::column;
use crate::read::sql::floats::has_floats;
use arrow::datatypes::{DataType, Schema, SchemaRef};

/// A column of floating-point numbers that two files hold with different precision.
#[derive(Debug, Clone)]
pub(crate) struct Widened {
    column: String,
    /// A file with less precision than the table.
    narrow: (DataType, String),
    /// A file with another type.
    wide: (DataType, String),
}

impl Widened {
    /// Whether the column has this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.column == name
    }

    /// The error of a coordinate of boxes that depends on the column.
    pub(crate) fn refused(&self, bin: &str) -> Error {
        let ((narrow, in_narrow), (wide, in_wide)) = (&self.narrow, &self.wide);
        let column = &self.column;
        Error::input(format!(
            "`{bin}` is cut into boxes, and its files have different precision: `{column}` holds {narrow} in {in_narrow} and {wide} in {in_wide}. Values on borders would be counted in the box below; write all files with one type, or cast the column in the SQL: CAST({column} AS FLOAT) rounds all values and the borders, CAST({column} AS DOUBLE) keeps both as they are"
        ))
    }
}

/// The columns of a table that files hold with less precision. `schemas` are those of the files,
/// with file names.
pub(crate) fn widened(schemas: &[(SchemaRef, &str)], table: &Schema) -> Vec<Widened> {
    let in_files = |at: usize, name: &str| {
        let own = schemas.iter().filter_map(|(schema, file)| {
            let (_, field) = column(schema, name, at)?;
            Some((field.data_type().clone(), (*file).to_string()))
        });
        own.collect::<Vec<_>>()
    };
    let fields = table.fields().iter().enumerate();
    let floats = fields.filter(|(_, field)| has_floats(field.data_type()));
    let fields = floats.filter_map(|(at, field)| {
        let own = in_files(at, field.name());
        let is_narrow = |(of, _): &&(DataType, String)| is_widened(of, field.data_type());
        let narrow = own.iter().find(is_narrow)?.clone();
        let wide = own.iter().find(|own| !is_narrow(own) && !own.0.is_null())?;
        Some(Widened {
            column: field.name().clone(),
            narrow,
            wide: wide.clone(),
        })
    });
    fields.collect()
}

/// Whether floating-point numbers get more precision.
fn is_widened(own: &DataType, table: &DataType) -> bool {
    use DataType::{
        Dictionary, FixedSizeList, Float16, Float32, Float64, LargeList, List, RunEndEncoded,
        Struct,
    };
    match (own, table) {
        (Float16 | Float32, Float64) | (Float16, Float32) => true,
        (Dictionary(_, own), _) => is_widened(own, table),
        (RunEndEncoded(_, own), _) => is_widened(own.data_type(), table),
        (
            List(own) | LargeList(own) | FixedSizeList(own, _),
            List(item) | LargeList(item) | FixedSizeList(item, _),
        ) => is_widened(own.data_type(), item.data_type()),
        (Struct(own), Struct(fields)) => own
            .iter()
            .zip(fields)
            .any(|(own, field)| is_widened(own.data_type(), field.data_type())),
        _ => false,
    }
}
