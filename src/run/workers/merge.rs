//! Merges lots of rows, each in the order of its keys, into one order.

use crate::error::{Error, Kind, Result};
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::run::workers::reading::read_rows;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rows per batch of the result.
const BATCH_ROWS: usize = 1 << 13;

/// Reads the pieces of each lot one after another. Memory holds one piece per lot.
pub(crate) struct Merge {
    keys: Vec<usize>,
    converter: RowConverter,
    lots: Vec<Lot>,
    /// The key of the next row of each lot.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    has_begun: bool,
}

/// A lot, whose rows before `at` are in the result.
struct Lot {
    pieces: std::vec::IntoIter<Piece>,
    rows: RecordBatch,
    keys: Option<Rows>,
    at: usize,
}

fn broken(e: ArrowError) -> Error {
    Error::with_source(Kind::Bug, "rows do not fit their table", e)
}

impl Merge {
    /// Lots of rows with these columns, in the order of the columns `keys`. No key is in two lots.
    pub(crate) fn new(schema: &SchemaRef, keys: &[usize], lots: Vec<Vec<Piece>>) -> Result<Merge> {
        let fields = keys.iter().map(|&at| schema.field(at).data_type().clone());
        let lot = |pieces: Vec<Piece>| Lot {
            pieces: pieces.into_iter(),
            rows: RecordBatch::new_empty(SchemaRef::clone(schema)),
            keys: None,
            at: 0,
        };
        Ok(Merge {
            keys: keys.to_vec(),
            converter: RowConverter::new(fields.map(SortField::new).collect()).map_err(broken)?,
            lots: lots.into_iter().map(lot).collect(),
            next: BinaryHeap::new(),
            has_begun: false,
        })
    }

    /// The next rows. None after the last one.
    pub(crate) async fn next(
        &mut self,
        output: &Output,
        plan: &str,
    ) -> Result<Option<RecordBatch>> {
        if !self.has_begun {
            self.has_begun = true;
            for lot in 0..self.lots.len() {
                self.read(lot, output, plan).await?;
            }
        }
        let mut rows = Vec::new();
        while let Some(Reverse((_, at))) = self.next.pop() {
            let lot = &mut self.lots[at];
            rows.push((at, lot.at));
            lot.at += 1;
            if let Some(key) = lot.key() {
                self.next.push(Reverse((key, at)));
            } else {
                // The rows of the piece are needed before the next one takes its place.
                let batch = self.taken(&rows)?;
                self.read(at, output, plan).await?;
                return Ok(Some(batch));
            }
            if rows.len() == BATCH_ROWS {
                break;
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        self.taken(&rows).map(Some)
    }

    fn taken(&self, rows: &[(usize, usize)]) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.lots.iter().map(|lot| &lot.rows).collect();
        interleave_record_batch(&batches, rows).map_err(broken)
    }

    /// Reads the next piece of a lot.
    async fn read(&mut self, at: usize, output: &Output, plan: &str) -> Result<()> {
        while let Some(piece) = self.lots[at].pieces.next() {
            let bytes = output.piece(plan, &piece).await?;
            let Some(rows) = read_rows(&[bytes])?.concat().into_iter().next() else {
                continue;
            };
            let columns: Vec<ArrayRef> =
                self.keys.iter().map(|&k| rows.column(k).clone()).collect();
            let keys = self.converter.convert_columns(&columns).map_err(broken)?;
            let lot = &mut self.lots[at];
            (lot.rows, lot.keys, lot.at) = (rows, Some(keys), 0);
            if let Some(key) = lot.key() {
                self.next.push(Reverse((key, at)));
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Lot {
    fn key(&self) -> Option<Vec<u8>> {
        let keys = self.keys.as_ref()?;
        (self.at < keys.num_rows()).then(|| keys.row(self.at).data().to_vec())
    }
}
