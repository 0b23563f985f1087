//! The rows that a task reads: of files, or of pieces that other tasks have stored.

use crate::error::{Error, Kind, Result};
use crate::output::parts::Piece;
use crate::plan::job::PlannedJob;
use crate::read::lake::Lake;
use crate::read::lake::reopen::reopen;
use crate::read::lake::subset::{FilePart, over_part};
use crate::read::rows::ipc;
use crate::run::workers::executor::{TaskExecutor, blocking};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Some files of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Slice {
    /// Index of the table in the plan.
    pub table: usize,
    /// Indices of the files.
    pub files: Range<usize>,
    /// The part of each file.
    pub part: FilePart,
}

impl<P> TaskExecutor<P> {
    /// The query of a job over all files, or over some files of its only table. `select` picks its
    /// columns.
    pub(crate) async fn query(
        &self,
        job: &PlannedJob,
        slice: Option<Slice>,
        select: impl FnOnce(&Lake, DataFrame) -> Result<DataFrame>,
    ) -> Result<(Lake, DataFrame)> {
        let part = slice.as_ref().map_or(FilePart::WHOLE, |slice| slice.part);
        let tables = match slice {
            None => job.tables.clone(),
            Some(Slice { table, files, .. }) => {
                let table = job.tables.get(table);
                let table = table.and_then(|table| table.of_files(files));
                let none = || Error::bug("a task names files that its plan does not have");
                vec![table.ok_or_else(none)?]
            }
        };
        let lake = reopen(tables, &self.resources, &self.stores)?;
        let frame = lake.query(&job.sql, &job.parameters).await?;
        let mut frame = select(&lake, frame)?;
        if part != FilePart::WHOLE {
            frame = over_part(frame, part)?;
        }
        Ok((lake, frame))
    }

    /// The rows of some pieces, in their order, in about `streams` streams.
    pub(crate) async fn dealt(
        &self,
        schema: &SchemaRef,
        pieces: &[Piece],
        streams: usize,
    ) -> Result<(Lake, DataFrame)> {
        let lake = reopen(Vec::new(), &self.resources, &self.stores)?;
        let rows = read_rows(&self.pieces(pieces).await?)?.concat();
        let frame = lake.rows(schema, rows, streams)?;
        Ok((lake, frame))
    }

    /// Stores rows, one piece per lot.
    pub(crate) async fn put_rows(
        &self,
        schema: SchemaRef,
        lots: Vec<Vec<RecordBatch>>,
    ) -> Result<Vec<Piece>> {
        let pieces = blocking(move || {
            let lots = lots.iter().map(|rows| ipc::write_rows(&schema, rows));
            let unwritten = |e| Error::with_source(Kind::Bug, "rows cannot be written", e);
            lots.collect::<Result<_, _>>().map_err(unwritten)
        });
        self.put(pieces.await?).await
    }
}

/// The batches of each piece.
pub(crate) fn read_rows(pieces: &[Bytes]) -> Result<Vec<Vec<RecordBatch>>> {
    let rows = pieces.iter().map(|bytes| ipc::read_rows(bytes));
    let unread = |e| Error::with_source(Kind::Bug, "rows cannot be read", e);
    rows.collect::<Result<_, _>>().map_err(unread)
}
