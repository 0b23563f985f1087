//! Files that have a column in several types → a type that holds the values of all files, where the
//! types alone do not say so.
//!
//! Integers of 64 bits and decimals are not all doubles, and times of a coarse unit may lie too far
//! for a fine one. Only such columns of Parquet and Arrow files are read here, and of Parquet files
//! only the row groups whose bounds leave it open. Readers of text check each value themselves.

use crate::error::{Error, Result};
use crate::read::formats::arrow_ipc;
use crate::read::formats::format::Format;
use crate::read::lake::errors::failed;
use crate::read::lake::merge::column;
use crate::read::lake::panics::catch_panic;
use crate::read::paths::places::FoundFile;
use crate::read::rows::doubles::{EXACT_INTEGER, first_changed, holds};
use crate::store::parquet::StoredFile;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::PartitionedFile;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use std::sync::Arc;

/// Files that are read concurrently.
const CONCURRENT_FILES: usize = 16;

/// The files of a table and their columns.
pub(crate) struct FileColumns<'a> {
    pub(crate) format: Format,
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) files: &'a [FoundFile],
    /// The columns of each file, and its name.
    pub(crate) schemas: &'a [(SchemaRef, &'a str)],
}

/// The first value of a column that the column of the table does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Rounded {
    /// The column.
    pub(crate) column: String,
    /// The file and the row, counted from 1.
    pub(crate) place: String,
    /// The value.
    pub(crate) value: String,
}

impl Rounded {
    /// The message if the column is more than coordinates and weights.
    pub(crate) fn refused(&self) -> String {
        not_exact(&self.column, &self.value, &format!(" in {}", self.place))
    }
}

/// The message for a number in a column of doubles that is no double, although the column is more
/// than coordinates and weights. `place` is empty, or begins with " in ".
pub(crate) fn not_exact(column: &str, value: &str, place: &str) -> String {
    format!("column `{column}` {}", holds_also(value, place))
}

/// The same message without the column.
pub(crate) fn holds_also(value: impl std::fmt::Display, place: &str) -> String {
    format!(
        "holds {value}{place} and floating-point numbers in other rows: no type holds both exactly, and only coordinates and weights are rounded; write the column with one type in all rows and files"
    )
}

/// Settles the types of the columns of a table that its files do not have in one type. Times get
/// the finest unit that holds all of them. Returns the columns of doubles with a value that is no
/// double.
///
/// # Errors
/// Times that no unit holds, and files that cannot be read.
pub(crate) async fn settle(of: &FileColumns<'_>, schema: &mut Schema) -> Result<Vec<Rounded>> {
    let mut rounded = Vec::new();
    if !matches!(of.format, Format::Parquet | Format::Arrow) {
        return Ok(rounded);
    }
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    for (at, field) in fields.iter_mut().enumerate() {
        let mut first = None;
        let mut settled = None;
        for data_type in candidates(of, (at, field.name()), field.data_type()) {
            match first_of_files(of, (at, field.name()), &data_type).await? {
                None => {
                    settled = Some(data_type);
                    break;
                }
                found => first = first.or(found),
            }
        }
        match (settled, first) {
            (Some(data_type), _) if data_type != *field.data_type() => {
                *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
            }
            (None, Some(found)) if is_of_doubles(field.data_type()) => rounded.push(found),
            (None, Some(found)) => {
                return Err(Error::input(format!(
                    "its files do not agree on the columns: `{}` holds times of several units, and no unit holds all of them: {} in {} does not fit {}; write all files with one unit",
                    found.column,
                    found.value,
                    found.place,
                    unit_name(field.data_type()),
                )));
            }
            _ => {}
        }
    }
    *schema = Schema::new(fields);
    Ok(rounded)
}

/// Whether values are converted to doubles, and nothing else can change.
fn is_of_doubles(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) | DataType::Duration(_) => false,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_of_doubles(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_of_doubles(field.data_type())),
        _ => true,
    }
}

fn unit_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) => match unit {
            TimeUnit::Second => "seconds",
            TimeUnit::Millisecond => "milliseconds",
            TimeUnit::Microsecond => "microseconds",
            TimeUnit::Nanosecond => "nanoseconds",
        },
        _ => "the unit of another file",
    }
}

/// The types that a column may get, the best one first.
fn candidates(of: &FileColumns<'_>, (at, name): (usize, &str), merged: &DataType) -> Vec<DataType> {
    let types = of
        .schemas
        .iter()
        .filter_map(|(schema, _)| Some(column(schema, name, at)?.1.data_type()));
    let mut units: Vec<TimeUnit> = types
        .filter_map(|data_type| match data_type {
            DataType::Timestamp(unit, _) | DataType::Duration(unit) => Some(*unit),
            _ => None,
        })
        .collect();
    units.sort_unstable_by(|a, b| b.cmp(a));
    units.dedup();
    match merged {
        DataType::Timestamp(best, zone) => {
            let units = units.into_iter().filter(|unit| unit < best);
            let with_best = std::iter::once(*best).chain(units);
            with_best
                .map(|unit| DataType::Timestamp(unit, zone.clone()))
                .collect()
        }
        DataType::Duration(_) => units.into_iter().map(DataType::Duration).collect(),
        other => vec![other.clone()],
    }
}

/// The first value of a column, in the order of the files, that a type does not hold.
async fn first_of_files(
    of: &FileColumns<'_>,
    (likely, name): (usize, &str),
    data_type: &DataType,
) -> Result<Option<Rounded>> {
    let open = of.files.iter().zip(of.schemas).filter_map(|(file, own)| {
        let (at, field) = column(&own.0, name, likely)?;
        (!holds(data_type, field.data_type())).then_some((file, at))
    });
    let found = stream::iter(open).map(|(file, at)| async move {
        let search = search(of.format, of.store, &file.meta, at, data_type);
        let shown = &file.shown;
        let found = catch_panic(search)
            .await
            .ok_or_else(|| Error::input(format!("column `{name}` of {shown} cannot be decoded")))?;
        let found =
            found.map_err(|e| failed(&format!("column `{name}` of {shown} cannot be read"), e))?;
        Ok::<_, Error>(found.map(|(row, value)| Rounded {
            column: name.to_string(),
            place: format!("{shown}, row {row}"),
            value,
        }))
    });
    let found = found.buffered(CONCURRENT_FILES);
    let found = found.try_filter_map(|found| async move { Ok(found) });
    let mut found = std::pin::pin!(found);
    found.try_next().await
}

/// The row, counted from 1, and the value of the first value of a column of a file that a type does
/// not hold.
async fn search(
    format: Format,
    store: &Arc<dyn ObjectStore>,
    file: &ObjectMeta,
    at: usize,
    data_type: &DataType,
) -> Result<Option<(u64, String)>, DataFusionError> {
    let positions = vec![at];
    if format == Format::Arrow {
        let (_, has_footer) = arrow_ipc::columns(store.as_ref(), &file.location).await?;
        let opener = arrow_ipc::opener(Arc::clone(store), has_footer, positions);
        let batches = opener.open(PartitionedFile::from(file.clone()))?.await?;
        return in_batches(batches, data_type, 0).await;
    }
    let open = || StoredFile::new(Arc::clone(store), file.location.clone());
    let footer = open().get_metadata(None).await?;
    let footer = ArrowReaderMetadata::try_new(footer, ArrowReaderOptions::new())?;
    let groups = footer.metadata().row_groups();
    let is_open = open_groups(&footer, at, data_type);
    let mut before = 0;
    for (group, is_open) in is_open.into_iter().enumerate() {
        let n_rows = groups[group].num_rows() as u64;
        if is_open {
            let builder =
                ParquetRecordBatchStreamBuilder::new_with_metadata(open(), footer.clone());
            let mask = ProjectionMask::roots(builder.parquet_schema(), positions.clone());
            let builder = builder.with_projection(mask).with_row_groups(vec![group]);
            let batches = builder.build()?.map_err(DataFusionError::from);
            if let Some(found) = in_batches(batches, data_type, before).await? {
                return Ok(Some(found));
            }
        }
        before += n_rows;
    }
    Ok(None)
}

/// As [`search`], in the first column of batches after `before` rows.
async fn in_batches(
    mut batches: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Unpin,
    data_type: &DataType,
    mut before: u64,
) -> Result<Option<(u64, String)>, DataFusionError> {
    while let Some(batch) = batches.try_next().await? {
        let column = batch.column(0);
        if let Some(row) = first_changed(column, data_type)? {
            let value = array_value_to_string(column, row)?;
            return Ok(Some((before + row as u64 + 1, value)));
        }
        before += batch.num_rows() as u64;
    }
    Ok(None)
}

/// Whether each row group may have a value that a type does not hold, by the bounds of the column.
fn open_groups(footer: &ArrowReaderMetadata, at: usize, data_type: &DataType) -> Vec<bool> {
    let groups = footer.metadata().row_groups();
    let all = vec![true; groups.len()];
    let field = footer.schema().field(at);
    let schema = footer.parquet_schema();
    if field.data_type().is_nested() {
        return all;
    }
    let Ok(converter) = StatisticsConverter::try_new(field.name(), footer.schema(), schema) else {
        return all;
    };
    let bounds = (
        converter.row_group_mins(groups),
        converter.row_group_maxes(groups),
    );
    let (Ok(low), Ok(high)) = bounds else {
        return all;
    };
    let is_inside = |bound: &ArrayRef, group: usize| {
        bound.is_valid(group) && bounds_all(&bound.slice(group, 1), data_type).unwrap_or(false)
    };
    let is_open = |group: usize| !(is_inside(&low, group) && is_inside(&high, group));
    (0..groups.len()).map(is_open).collect()
}

/// Whether a type holds every value up to a bound of a column.
fn bounds_all(bound: &ArrayRef, data_type: &DataType) -> Result<bool, ArrowError> {
    match (bound.data_type(), data_type) {
        (own, DataType::Float64) if own.is_integer() => {
            let integer = cast(bound, &DataType::Decimal128(20, 0))?;
            let integer = integer.as_primitive::<Decimal128Type>().value(0);
            Ok(integer.unsigned_abs() <= u128::from(EXACT_INTEGER))
        }
        // Values between two times that fit a finer unit fit it too.
        (DataType::Timestamp(own, _), DataType::Timestamp(other, _)) if own >= other => Ok(false),
        (DataType::Timestamp(..) | DataType::Date32, DataType::Timestamp(..)) => {
            Ok(first_changed(bound, data_type)?.is_none())
        }
        _ => Ok(false),
    }
}
