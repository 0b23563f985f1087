//! The schemas of the files of a table → the schema of the table, whose types hold the values of
//! all files.
//!
//! Dictionaries are read as their values. A column that no type holds exactly is refused, with two
//! exceptions that need the values: times of several units, and whole numbers or decimals beside
//! floating-point numbers. [`exact`](crate::read::lake::exact) checks those.

use crate::error::{Error, Result};
use crate::read::formats::text::value_kind;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use std::collections::HashMap;
use std::sync::Arc;

/// Most digits of a 128-bit and of a 256-bit decimal number.
const DIGITS: [i16; 2] = [38, 76];

/// Merges the schemas of files, given with file names: columns are matched by name, and a column
/// that a file lacks is nullable.
///
/// # Errors
/// Files with types for which there is no common one.
pub(crate) fn merge(schemas: &[(SchemaRef, &str)]) -> Result<Schema> {
    // Each column with the file that determined its type, and the number of files that have it.
    let mut columns: Vec<(Field, &str, usize)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (schema, file) in schemas {
        for new in schema.fields() {
            let new = new.as_ref().clone();
            let of_values = values(new.data_type());
            let new = new.with_data_type(of_values);
            let Some(place) = places.get(new.name()) else {
                places.insert(new.name().clone(), columns.len());
                columns.push((new, file, 1));
                continue;
            };
            let (old, of, n) = &mut columns[*place];
            *n += 1;
            let (a, b) = (old.data_type().clone(), new.data_type().clone());
            let nullable = old.is_nullable() || new.is_nullable();
            let wide = common(&a, &b).ok_or_else(|| {
                Error::input(format!(
                    "its files do not agree on the columns: `{}` holds {} in {of} and {} in {file}{}",
                    new.name(),
                    described(&a, &b),
                    described(&b, &a),
                    if is_zone_in_one(&a, &b) {
                        "; write all times with a time zone, or all without one"
                    } else {
                        ""
                    },
                ))
            })?;
            if wide != a && wide == b {
                *of = file;
            }
            *old = old.clone().with_data_type(wide).with_nullable(nullable);
        }
    }
    let fields = columns.into_iter().map(|(field, _, n)| {
        let nullable = field.is_nullable() || n < schemas.len();
        field.with_nullable(nullable)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// The place and the column of a name in the schema of a file. Files mostly have their columns in
/// the order of the table, so a column is at its place `likely` there.
pub(crate) fn column<'a>(
    schema: &'a Schema,
    name: &str,
    likely: usize,
) -> Option<(usize, &'a Field)> {
    match schema.fields().get(likely) {
        Some(field) if field.name() == name => Some((likely, field)),
        _ => schema.column_with_name(name),
    }
}

/// What a column of type `of` holds, in contrast to one of type `other`.
fn described(of: &DataType, other: &DataType) -> String {
    if is_zone_in_one(of, other) {
        return match of {
            DataType::Timestamp(_, Some(zone)) => format!("times in the time zone {zone}"),
            DataType::Timestamp(_, None) => "times without a time zone".into(),
            _ => value_kind(of).into(),
        };
    }
    match value_kind(of) {
        kind if kind == value_kind(other) => of.to_string(),
        kind => kind.into(),
    }
}

/// Whether one of two types is a time with a zone, and the other a date or a time without one.
fn is_zone_in_one(a: &DataType, b: &DataType) -> bool {
    use DataType::{Date32, Date64, Timestamp};
    let is_local = |t: &DataType| matches!(t, Timestamp(_, None) | Date32 | Date64);
    let is_zoned = |t: &DataType| matches!(t, Timestamp(_, Some(_)));
    is_local(a) && is_zoned(b) || is_zoned(a) && is_local(b)
}

/// A type without dictionaries: they become the type of their values.
pub(crate) fn values(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| {
        let of_values = values(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(of_values))
    };
    match data_type {
        DataType::Dictionary(_, value) => values(value),
        DataType::RunEndEncoded(_, value) => values(value.data_type()),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(inner(item), *n),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    }
}

/// A type for the values of two types; `None` if there is none.
fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{
        Date32, Date64, Duration, FixedSizeList, LargeList, List, Null, Struct, Timestamp,
    };
    match (a, b) {
        _ if a == b => Some(a.clone()),
        (Null, other) | (other, Null) => Some(other.clone()),
        _ if is_zone_in_one(a, b) => None,
        (Timestamp(one, zone), Timestamp(other, _)) => {
            Some(Timestamp(*one.max(other), zone.clone()))
        }
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => {
            Some(Timestamp(*unit, None))
        }
        (Date64, Timestamp(unit, None)) | (Timestamp(unit, None), Date64) => {
            Some(Timestamp(*unit.max(&TimeUnit::Millisecond), None))
        }
        (Duration(one), Duration(other)) => Some(Duration(*one.max(other))),
        (List(x), List(y)) => Some(List(common_field(x, y)?)),
        (FixedSizeList(x, n), FixedSizeList(y, m)) if n == m => {
            Some(FixedSizeList(common_field(x, y)?, *n))
        }
        (
            List(x) | LargeList(x) | FixedSizeList(x, _),
            List(y) | LargeList(y) | FixedSizeList(y, _),
        ) => Some(LargeList(common_field(x, y)?)),
        (Struct(x), Struct(y)) => {
            let have_same_names = x.len() == y.len()
                && x.iter()
                    .zip(y.iter())
                    .all(|(one, other)| one.name() == other.name());
            let fields = x.iter().zip(y.iter());
            let fields = fields.map(|(one, other)| common_field(one, other));
            have_same_names.then(|| fields.collect::<Option<_>>().map(Struct))?
        }
        _ if a.is_numeric() && b.is_numeric() => common_number(a, b),
        _ if a.is_numeric() || b.is_numeric() => None,
        _ => type_union_resolution(&[a.clone(), b.clone()]),
    }
}

fn common_field(a: &FieldRef, b: &FieldRef) -> Option<FieldRef> {
    let field = a.as_ref().clone();
    let field = field.with_data_type(common(a.data_type(), b.data_type())?);
    Some(Arc::new(
        field.with_nullable(a.is_nullable() || b.is_nullable()),
    ))
}

/// A type for two different types of numbers. Beside floating-point numbers of another kind it is
/// double precision, which does not hold every 64-bit integer and every decimal.
fn common_number(a: &DataType, b: &DataType) -> Option<DataType> {
    if a.is_integer() && b.is_integer() {
        return type_union_resolution(&[a.clone(), b.clone()]);
    }
    match (a.is_floating(), b.is_floating()) {
        (true, true) => {
            let wide = if a.primitive_width() > b.primitive_width() {
                a
            } else {
                b
            };
            return Some(wide.clone());
        }
        (true, false) | (false, true) => return Some(DataType::Float64),
        (false, false) => {}
    }
    let ((whole, scale), (other_whole, other_scale)) = (digits(a)?, digits(b)?);
    let scale = scale.max(other_scale);
    let precision = whole.max(other_whole) + scale;
    let (of_decimal, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    let [short, long] = DIGITS;
    match precision {
        1.. if precision <= short => Some(DataType::Decimal128(of_decimal, scale)),
        1.. if precision <= long => Some(DataType::Decimal256(of_decimal, scale)),
        _ => None,
    }
}

/// The digits before and after the decimal point of exact numbers.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    use DataType::{
        Decimal32, Decimal64, Decimal128, Decimal256, Int8, Int16, Int32, Int64, UInt8, UInt16,
        UInt32, UInt64,
    };
    match data_type {
        Int8 | UInt8 => Some((3, 0)),
        Int16 | UInt16 => Some((5, 0)),
        Int32 | UInt32 => Some((10, 0)),
        Int64 => Some((19, 0)),
        UInt64 => Some((20, 0)),
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s) => {
            Some((i16::from(*p) - i16::from(*s), i16::from(*s)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        let fields = fields.iter().map(|(n, t)| Field::new(*n, t.clone(), false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    #[test]
    fn schemas_merge_to_the_same_result_in_either_order() {
        let old = (schema(&[("a", DataType::Int32)]), "old");
        let new = (
            schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]),
            "new",
        );
        for files in [[old.clone(), new.clone()], [new, old.clone()]] {
            let merged = merge(&files).expect("one schema");
            assert_eq!(*merged.field(0), Field::new("a", DataType::Int64, false));
            assert_eq!(*merged.field(1), Field::new("b", DataType::Utf8, true));
        }
        let text = (schema(&[("a", DataType::Utf8)]), "text");
        // A column without values takes the type of the other file.
        let null = (schema(&[("a", DataType::Null)]), "null");
        for files in [[old.clone(), null.clone()], [null, old.clone()]] {
            let merged = merge(&files).expect("one schema");
            assert_eq!(*merged.field(0).data_type(), DataType::Int32);
        }
        let clash = merge(&[old, text]).expect_err("no number is a text");
        assert_eq!(
            clash.to_string(),
            "its files do not agree on the columns: `a` holds whole numbers in old and text in text"
        );
    }

    /// The type of a column of two files, or the message.
    fn of_two(a: &DataType, b: &DataType) -> Result<DataType, String> {
        let files = [
            (schema(&[("x", a.clone())]), "a"),
            (schema(&[("x", b.clone())]), "b"),
        ];
        let merged = merge(&files).map_err(|e| e.to_string())?;
        Ok(merged.field(0).data_type().clone())
    }

    #[test]
    fn a_column_gets_a_type_that_holds_the_values_of_all_files() {
        use DataType::*;
        let list = |item: DataType| List(Arc::new(Field::new("item", item, true)));
        let category =
            |code: DataType, value: DataType| Dictionary(Box::new(code), Box::new(value));
        let time = |unit, zone: Option<&str>| Timestamp(unit, zone.map(Into::into));
        let (us, ns) = (TimeUnit::Microsecond, TimeUnit::Nanosecond);
        let cases = [
            (Int64, UInt64, Some(Decimal128(20, 0))),
            (UInt8, UInt64, Some(UInt64)),
            (Int32, UInt32, Some(Int64)),
            // Single precision does not hold all integers of 32 bits.
            (Int32, Float32, Some(Float64)),
            (Float32, Float64, Some(Float64)),
            (Float16, Float32, Some(Float32)),
            (
                Decimal128(10, 1),
                Decimal128(12, 2),
                Some(Decimal128(12, 2)),
            ),
            (Decimal128(10, 2), Int64, Some(Decimal128(21, 2))),
            (
                Decimal128(38, 0),
                Decimal128(38, 10),
                Some(Decimal256(48, 10)),
            ),
            (Decimal256(76, 0), Decimal256(76, 10), None),
            (Decimal128(10, 2), Float64, Some(Float64)),
            (Int64, Utf8, None),
            (Utf8, LargeUtf8, Some(LargeUtf8)),
            (category(Int8, Utf8), category(Int8, Utf8), Some(Utf8)),
            (category(Int8, Utf8), Utf8, Some(Utf8)),
            (
                list(category(Int8, Utf8)),
                list(category(Int32, Utf8)),
                Some(list(Utf8)),
            ),
            (list(Int64), list(Float32), Some(list(Float64))),
            (time(us, None), time(ns, None), Some(time(ns, None))),
            (Date32, time(us, None), Some(time(us, None))),
            (
                time(us, Some("UTC")),
                time(us, Some("UTC")),
                Some(time(us, Some("UTC"))),
            ),
            (time(us, Some("UTC")), time(us, None), None),
            (time(us, Some("UTC")), Date32, None),
        ];
        for (a, b, right) in cases {
            assert_eq!(of_two(&a, &b).ok(), right, "{a} and {b}");
            assert_eq!(of_two(&b, &a).ok(), right, "{b} and {a}");
        }
        assert_eq!(
            of_two(&time(us, None), &time(us, Some("Europe/Berlin"))),
            Err("its files do not agree on the columns: `x` holds times without a time zone in a and times in the time zone Europe/Berlin in b; write all times with a time zone, or all without one".into())
        );
    }
}
