//! The common part of CSV and JSON: bytes that become rows, with the wanted columns of a file.

use crate::read::formats::fault::Fault;
use crate::read::formats::pieces::Pieces;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use datafusion::common::DataFusionError;
use futures::stream;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use memchr::memchr_iter;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Number of rows from which types of columns are inferred.
pub(crate) const SAMPLE: usize = 1000;
/// Most bytes from which types of columns are inferred.
pub(crate) const SAMPLE_BYTES: usize = 4 << 20;

/// Longest row in bytes. A longer one is taken for a missing end of a value or of the row.
pub(crate) const MAX_ROW_BYTES: usize = 64 << 20;
/// Bytes of text from which on the rows so far are a batch.
pub(crate) const BATCH_BYTES: usize = 8 << 20;

/// What may stand in front of a text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The number of line ends.
pub(crate) fn lines_in(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// Turns the bytes of a file, piece by piece, into rows.
pub(crate) trait TextRows: Send {
    /// The rows that are complete after the next bytes.
    fn push(&mut self, bytes: Bytes) -> Result<Vec<RecordBatch>, Fault>;

    /// The remaining rows, after the last piece.
    fn finish(&mut self) -> Result<Vec<RecordBatch>, Fault>;
}

/// The rows of a file; `wrong` adds the file to a fault.
pub(crate) fn batches(
    pieces: Pieces,
    rows: Box<dyn TextRows>,
    wrong: impl Fn(Fault) -> Fault + Send + 'static,
) -> BoxStream<'static, Result<RecordBatch, DataFusionError>> {
    struct Reading<W> {
        pieces: Pieces,
        rows: Box<dyn TextRows>,
        ready: VecDeque<RecordBatch>,
        is_done: bool,
        wrong: W,
    }
    let reading = Reading {
        pieces,
        rows,
        ready: VecDeque::new(),
        is_done: false,
        wrong,
    };
    stream::try_unfold(reading, |mut reading| async move {
        loop {
            if let Some(batch) = reading.ready.pop_front() {
                return Ok(Some((batch, reading)));
            }
            if reading.is_done {
                return Ok(None);
            }
            let batches = match reading.pieces.try_next().await {
                Ok(Some(bytes)) => reading.rows.push(bytes),
                Ok(None) => {
                    reading.is_done = true;
                    reading.rows.finish()
                }
                Err(DataFusionError::IoError(e)) => Err(Fault::new(unpacked(&e))),
                Err(e) => return Err(e),
            };
            reading.ready.extend(batches.map_err(&reading.wrong)?);
        }
    })
    .boxed()
}

/// The message for bytes that cannot be decompressed.
pub(crate) fn unpacked(e: &std::io::Error) -> String {
    format!("it cannot be read to its end ({e})")
}

/// The wanted columns of a table, matched to a file by name. Columns that the file lacks are null.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// All columns of the file.
    pub file: SchemaRef,
    /// The wanted columns of the table.
    pub table: SchemaRef,
    /// The position of each wanted column in the file.
    at: Vec<Option<usize>>,
    /// The wanted column at each of these positions.
    by_position: Arc<HashMap<usize, usize>>,
    /// The columns whose numbers are rounded to doubles. Those of other columns are refused if they
    /// are no doubles.
    may_round: Arc<BTreeSet<String>>,
}

impl Wanted {
    /// The columns of `table`, wanted of a file with the columns of `file`.
    pub(crate) fn new(file: SchemaRef, table: SchemaRef) -> Wanted {
        // The first column of a name comes last into the map.
        let names = file.fields().iter().enumerate().rev();
        let names: HashMap<&str, usize> = names.map(|(at, f)| (f.name().as_str(), at)).collect();
        let at = |field: &Arc<Field>| names.get(field.name().as_str()).copied();
        let at: Vec<Option<usize>> = table.fields().iter().map(at).collect();
        let positions = at.iter().enumerate().rev();
        let positions = positions.filter_map(|(column, at)| Some(((*at)?, column)));
        Wanted {
            by_position: Arc::new(positions.collect()),
            at,
            may_round: Arc::default(),
            table,
            file,
        }
    }

    /// The same columns, of which some may be rounded to doubles.
    pub(crate) fn rounding(self, may_round: Arc<BTreeSet<String>>) -> Wanted {
        Wanted { may_round, ..self }
    }

    /// Whether the numbers of a column may be rounded to doubles.
    pub(crate) fn may_round(&self, column: &str) -> bool {
        self.may_round.contains(column)
    }

    /// No column of a file.
    pub(crate) fn none(file: SchemaRef) -> Wanted {
        Wanted::new(file, Arc::new(Schema::empty()))
    }

    /// The positions of the wanted columns that the file has.
    pub(crate) fn positions(&self) -> Vec<usize> {
        self.at.iter().flatten().copied().collect()
    }

    /// The wanted column at a position of the file.
    pub(crate) fn field_at(&self, position: usize) -> Option<&Field> {
        let at = self.by_position.get(&position)?;
        Some(self.table.field(*at))
    }

    /// The wanted columns of rows whose columns are those at `positions`, in that order. `convert`
    /// converts to the types of the table.
    pub(crate) fn of(
        &self,
        rows: &RecordBatch,
        convert: impl Fn(&ArrayRef, &Field) -> Result<ArrayRef, Fault>,
    ) -> Result<RecordBatch, Fault> {
        let mut found = rows.columns().iter();
        let columns = self.table.fields().iter().zip(&self.at).map(|(field, at)| {
            match at.and_then(|_| found.next()) {
                Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
                Some(column) => convert(column, field),
                None => Ok(new_null_array(field.data_type(), rows.num_rows())),
            }
        });
        let columns = columns.collect::<Result<Vec<_>, Fault>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let table = Arc::clone(&self.table);
        Ok(RecordBatch::try_new_with_options(table, columns, &options)?)
    }
}

/// A description of the values of a type, for messages.
pub(crate) fn value_kind(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null => "no value",
        DataType::Boolean => "true or false",
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "numbers",
        DataType::Date32 | DataType::Date64 => "dates",
        DataType::Timestamp(TimeUnit::Second, _) => "times in whole seconds",
        DataType::Timestamp(TimeUnit::Millisecond, _) => "times in milliseconds",
        DataType::Timestamp(TimeUnit::Microsecond, _) => "times in microseconds",
        DataType::Timestamp(TimeUnit::Nanosecond, _) => "times",
        DataType::List(_) | DataType::LargeList(_) => "lists",
        DataType::Struct(_) => "objects",
        whole if whole.is_integer() => "whole numbers",
        number if number.is_numeric() => "decimal numbers",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytes",
        DataType::Time32(_) | DataType::Time64(_) => "times of day",
        DataType::Duration(_) | DataType::Interval(_) => "lengths of time",
        DataType::Dictionary(_, values) => value_kind(values),
        _ => "text",
    }
}
