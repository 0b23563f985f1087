//! Builders of columns that several tables share.

use crate::error::{Error, Kind, Result};
use crate::methods::fit::Fit;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::{FitColumns, RunSchema};
use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, SchemaRef};
use std::ops::Range;
use std::sync::Arc;

/// Coordinates or memberships of a state.
pub(crate) fn row_type(rank: usize) -> DataType {
    DataType::FixedSizeList(
        Arc::new(Field::new("item", DataType::Float64, false)),
        rank as i32,
    )
}

pub(crate) fn weights_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, false)))
}

pub(crate) fn part(columns: Vec<ArrayRef>, rows: Range<usize>) -> Vec<ArrayRef> {
    let slice = |column: ArrayRef| column.slice(rows.start, rows.len());
    columns.into_iter().map(slice).collect()
}

/// Rows of a table that are all of one partition and lag.
pub(crate) fn batch(
    names: &RunSchema,
    (partition, lag): (usize, usize),
    table: &str,
    schema: SchemaRef,
    rows: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let n = rows.first().map_or(0, |c| c.len());
    let mut columns: Vec<ArrayRef> = Vec::new();
    let broken = |e| {
        let what = format!("the rows of `{table}` do not fit its columns");
        Error::with_source(Kind::Bug, what, e)
    };
    let at = UInt32Array::from(vec![partition as u32; n]);
    for keys in &names.partitions {
        columns.push(take(keys, &at, None).map_err(broken)?);
    }
    columns.extend(names.lag.columns(lag, n));
    columns.extend(rows);
    RecordBatch::try_new(schema, columns).map_err(broken)
}

/// Counts or weights as a column of the count type.
pub(crate) fn amounts(
    names: &RunSchema,
    values: impl Iterator<Item = impl Into<Option<f64>>>,
) -> ArrayRef {
    let values = values.map(Into::into);
    if names.is_weighted {
        Arc::new(Float64Array::from_iter(values))
    } else {
        // Sums of counts in f64 are exact below 2⁵³, and a model with more is refused before it is fitted.
        Arc::new(UInt64Array::from_iter(values.map(|v| v.map(|v| v as u64))))
    }
}

pub(crate) fn text<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from(values.collect::<Vec<_>>()))
}

/// Rows of `width` numbers, each followed by zeros up to a length of `wanted`.
pub(crate) fn filled_up(rows: &[f64], width: usize, wanted: usize) -> Vec<f64> {
    if width == wanted {
        return rows.to_vec();
    }
    let mut filled = vec![0.0; rows.len() / width * wanted];
    let pairs = filled
        .chunks_exact_mut(wanted)
        .zip(rows.chunks_exact(width));
    pairs.for_each(|(filled, row)| filled[..width].copy_from_slice(row));
    filled
}

/// The fits of a model in the order of their names.
pub(crate) fn by_name<'a>(
    names: &'a RunSchema,
    model: &'a FittedModel,
) -> Vec<(&'a FitColumns, &'a Fit)> {
    beside(names, &model.fits)
}

/// What stands beside the fits of a model, in the order of their names.
pub(crate) fn beside<'a, T>(
    names: &'a RunSchema,
    of_fits: &'a [T],
) -> Vec<(&'a FitColumns, &'a T)> {
    let mut fits: Vec<_> = names.fits.iter().zip(of_fits).collect();
    fits.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    fits
}
