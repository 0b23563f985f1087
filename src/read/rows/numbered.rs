//! Columns that are named by their position.

use arrow::datatypes::{Field, Schema};
use std::sync::Arc;

/// Columns named by position, because names may repeat.
pub(crate) fn schema<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Arc<Schema> {
    let numbered = fields
        .into_iter()
        .enumerate()
        .map(|(at, field)| Field::new(at.to_string(), field.data_type().clone(), true));
    Arc::new(Schema::new(numbered.collect::<Vec<_>>()))
}
