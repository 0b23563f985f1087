//! The split of rows: training, test, or neither.

use crate::error::{Error, Result};
use crate::read::rows::stop::bug;
use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

/// What a row is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// The models are fitted to the row.
    Train,
    /// The models are scored on the row.
    Test,
    /// The row is only filtered.
    Neither,
}

/// The split of each row: `'train'`, `'test'` or null.
///
/// # Errors
/// Another value.
pub(crate) fn splits(column: &ArrayRef, name: &str) -> Result<Vec<Split>> {
    let column = cast(column, &DataType::Utf8).map_err(bug)?;
    let values = column.as_string::<i32>().iter();
    let splits = values.map(|value| match value {
        Some("train") => Ok(Split::Train),
        Some("test") => Ok(Split::Test),
        None => Ok(Split::Neither),
        Some(other) => Err(Error::input(format!(
            "`{name}` = '{other}' is no split; write 'train' for rows that are fitted, 'test' for rows that are scored, and null for rows that are only filtered"
        ))),
    });
    splits.collect()
}

/// Whether the models are fitted to each row.
///
/// # Errors
/// See [`splits`].
pub(crate) fn is_train(column: &ArrayRef, name: &str) -> Result<Vec<bool>> {
    let splits = splits(column, name)?.into_iter();
    Ok(splits.map(|split| split == Split::Train).collect())
}
