//! Columns of coordinates → rows of f64.

use crate::error::Error;
use crate::read::rows::doubles::{doubles, warn_if_rounded};
use crate::read::rows::stop::{Dropped, Stop, bug};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use std::sync::Arc;

/// The coordinates of the rows of a batch.
pub(crate) struct Coordinates {
    /// n × d, row-major. A row with a fault has any values.
    pub(crate) values: Vec<f64>,
    /// Why each row has no coordinates, if it has none.
    pub(crate) faults: Vec<Option<Fault>>,
}

/// Why a row has no coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What is wrong.
    pub(crate) kind: FaultKind,
    /// The place of the column.
    pub(crate) column: usize,
}

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Null,
    Nan,
    Infinite,
}

impl FaultKind {
    /// The adjective for a number with this fault.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FaultKind::Null => "null",
            FaultKind::Nan => "NaN",
            FaultKind::Infinite => "infinite",
        }
    }

    fn of(value: f64) -> Option<FaultKind> {
        match value {
            x if x.is_nan() => Some(FaultKind::Nan),
            x if x.is_infinite() => Some(FaultKind::Infinite),
            _ => None,
        }
    }
}

/// Reads coordinates of columns of numbers or of one column of lists. `dimension` is that of
/// earlier rows, if there are any; `place` describes a row for messages.
///
/// # Errors
/// Lists of different lengths.
pub(crate) fn coordinates(
    fields: &[Field],
    columns: &[ArrayRef],
    dimension: &mut Option<usize>,
    place: impl Fn(usize) -> String,
) -> Result<Coordinates, Stop> {
    if let [field] = fields
        && field.data_type().is_nested()
    {
        return lists(field, &columns[0], dimension, place);
    }
    let (n, d) = (columns[0].len(), columns.len());
    *dimension = Some(d);
    let mut values = vec![0.0; n * d];
    let mut faults = vec![None; n];
    for (k, column) in columns.iter().enumerate() {
        let column = doubles(column, fields[k].name()).map_err(bug)?;
        for (row, &value) in column.values().iter().enumerate() {
            values[row * d + k] = value;
            if let Some(kind) = FaultKind::of(value) {
                faults[row].get_or_insert(Fault { kind, column: k });
            }
        }
        if column.null_count() > 0 {
            for row in (0..n).filter(|&row| column.is_null(row)) {
                let kind = FaultKind::Null;
                faults[row] = Some(Fault { kind, column: k });
            }
        }
    }
    Ok(Coordinates { values, faults })
}

fn lists(
    field: &Field,
    column: &ArrayRef,
    dimension: &mut Option<usize>,
    place: impl Fn(usize) -> String,
) -> Result<Coordinates, Stop> {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let of_doubles = DataType::LargeList(item);
    warn_if_rounded(column, field.name(), &of_doubles).map_err(bug)?;
    let column = cast(column, &of_doubles).map_err(bug)?;
    let lists = column.as_list::<i64>();
    let numbers: &Float64Array = lists.values().as_primitive::<Float64Type>();
    let n = lists.len();
    let first = (0..n).find(|&row| lists.is_valid(row));
    if let Some(row) = first {
        dimension.get_or_insert(lists.value_length(row) as usize);
    }
    let d = dimension.unwrap_or(0);
    let (mut values, mut faults) = (vec![0.0; n * d], vec![None; n]);
    for row in 0..n {
        if lists.is_null(row) {
            let kind = FaultKind::Null;
            faults[row] = Some(Fault { kind, column: 0 });
            continue;
        }
        let start = lists.value_offsets()[row] as usize;
        let length = lists.value_length(row) as usize;
        if d != length {
            let name = field.name();
            return Err(Stop::Failed(Error::input(format!(
                "column `{name}` has lists of different lengths: {d} numbers in the first row and {length} for {}; all rows need lists of one length",
                place(row)
            ))));
        }
        let own = start..start + length;
        let has_null = numbers.null_count() > 0 && own.clone().any(|at| numbers.is_null(at));
        let own = &numbers.values()[own];
        let first = own.iter().find_map(|&x| FaultKind::of(x));
        let kind = if has_null {
            Some(FaultKind::Null)
        } else {
            first
        };
        faults[row] = kind.map(|kind| Fault { kind, column: 0 });
        values[row * d..][..d].copy_from_slice(own);
    }
    Ok(Coordinates { values, faults })
}

/// Removes the rows with a fault and counts them by reason. Returns the indices of the others.
pub(crate) fn sound(faults: &[Option<Fault>], dropped: &mut Dropped) -> Vec<u32> {
    let mut kept = Vec::with_capacity(faults.len());
    for (row, fault) in faults.iter().enumerate() {
        match fault {
            Some(fault) => dropped.add(
                match fault.kind {
                    FaultKind::Null => "null coordinate",
                    FaultKind::Nan => "NaN coordinate",
                    FaultKind::Infinite => "infinite coordinate",
                },
                1,
            ),
            None => kept.push(row as u32),
        }
    }
    kept
}
