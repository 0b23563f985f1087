//! All rows of a query at once, for the few rows that a fit reads by a query of its own.

use crate::error::{Error, Result};
use crate::read::lake::Lake;
use crate::read::lake::rounding::selected;
use crate::read::rows::stop::bug;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Field;
use std::collections::BTreeMap;
use std::ops::Range;

impl Lake {
    /// Reads all rows of the query of a section. Column `i` is `fields[i]`. Those at `numbers` are
    /// coordinates, weights and other numbers.
    ///
    /// # Errors
    /// If the query lacks a column, gives no rows, or cannot be read.
    pub(crate) async fn all_rows(
        &self,
        section: &str,
        sql: &str,
        fields: &[Field],
        numbers: Range<usize>,
    ) -> Result<RecordBatch> {
        let frame = self.query_of(section, sql, &BTreeMap::new()).await?;
        let frame = selected(frame, fields, numbers, &format!("[{section}]"))?;
        let batches = loop {
            let mut batches = self.batches(frame.clone()).await?;
            let mut all = Vec::new();
            let read = async {
                while let Some(batch) = batches.next().await? {
                    all.push(batch);
                }
                Ok::<_, Error>(())
            };
            match read.await {
                Ok(()) => break all,
                Err(_) if batches.must_read_again() => {}
                Err(e) => return Err(e),
            }
        };
        let no_rows = || Error::input("the SQL gives no rows");
        let first = batches.first().ok_or_else(no_rows)?;
        let batch = concat_batches(&first.schema(), &batches).map_err(bug)?;
        if batch.num_rows() == 0 {
            return Err(no_rows());
        }
        Ok(batch)
    }
}
