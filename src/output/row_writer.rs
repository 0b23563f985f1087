//! Batches of any sizes → one Parquet file, written as the rows arrive.
//!
//! Memory holds one row group in its encoded form. The bytes of the file depend on the rows and the
//! schema alone: rows are encoded in pieces of a fixed size, and the number of rows per row group
//! follows from the types of the columns.

use crate::error::{Error, Kind, Result};
use crate::output::parquet::{File, PIECE, ROW_GROUP, RowGroup};
use crate::output::place::Output;
use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use object_store::path::Path;

/// Bytes of the rows of a row group before they are encoded, by the widths of their types.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// Assumed bytes of a value without a fixed width, such as a text.
const TEXT_BYTES: usize = 16;

/// Writes a table batch by batch.
pub(crate) struct RowWriter<'a> {
    file: File<'a>,
    pieces: BatchCoalescer,
    group: RowGroup,
    group_rows: usize,
}

impl<'a> RowWriter<'a> {
    /// Starts a file for rows with this schema. Rows keep the order in which they are written.
    ///
    /// # Errors
    /// If Parquet does not have the type of a column.
    pub(crate) fn create(
        output: &'a Output,
        path: Path,
        schema: SchemaRef,
    ) -> Result<RowWriter<'a>> {
        let group_rows = rows_per_group(&schema);
        let pieces = BatchCoalescer::new(schema.clone(), PIECE);
        let file = File::create(output, path, schema, &[])?;
        Ok(RowWriter {
            group: file.row_group()?,
            file,
            pieces,
            group_rows,
        })
    }

    /// Appends rows. The columns are encoded in parallel.
    ///
    /// # Errors
    /// If the batch has another schema, or the store fails.
    pub(crate) async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.pieces.push_batch(batch).map_err(broken)?;
        self.write_pieces().await
    }

    async fn write_pieces(&mut self) -> Result<()> {
        while let Some(piece) = self.pieces.next_completed_batch() {
            self.file.encode(&mut self.group, &piece)?;
            if self.group.rows() >= self.group_rows {
                let next = self.file.row_group()?;
                let group = std::mem::replace(&mut self.group, next);
                self.file.append(group).await?;
                self.group = self.file.row_group()?;
            }
        }
        Ok(())
    }

    /// Writes the remaining rows, closes the file, checks that the store returns what was written,
    /// and returns the number of rows.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn finish(mut self) -> Result<u64> {
        self.pieces.finish_buffered_batch().map_err(broken)?;
        self.write_pieces().await?;
        if self.group.rows() > 0 {
            self.file.append(self.group).await?;
        }
        self.file.finish().await
    }

    /// Gives the file up. The store keeps none of its rows.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn abort(self) -> Result<()> {
        self.file.abort().await
    }
}

/// The number of rows per row group: a multiple of [`PIECE`], at most [`ROW_GROUP`].
fn rows_per_group(schema: &Schema) -> usize {
    let widths = schema.fields().iter().map(|f| bytes(f.data_type()));
    let row = widths.sum::<usize>().max(1);
    (ROW_GROUP_BYTES / row / PIECE * PIECE).clamp(PIECE, ROW_GROUP)
}

/// The assumed bytes of a value.
fn bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(item, width) => bytes(item.data_type()) * *width as usize,
        DataType::FixedSizeBinary(width) => *width as usize,
        DataType::Struct(fields) => fields.iter().map(|f| bytes(f.data_type())).sum(),
        other => other.primitive_width().unwrap_or(TEXT_BYTES),
    }
}

fn broken(e: ArrowError) -> Error {
    Error::with_source(Kind::Bug, "rows do not fit the columns of their table", e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, StructArray};
    use arrow::datatypes::Field;
    use bytes::Bytes;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::sync::Arc;

    fn rows(first: i64, n: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + n));
        let texts = (first..first + n).map(|k| (k % 3 > 0).then(|| format!("text {}", k % 100)));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let point = (first..first + n).map(|k| k as f64 / 7.0);
        let point: ArrayRef = Arc::new(Float64Array::from_iter_values(point));
        let fields = vec![
            Field::new("n", DataType::Int64, false),
            Field::new("x", DataType::Float64, false),
        ];
        let nested = StructArray::new(fields.into(), vec![Arc::clone(&numbers), point], None);
        let nested: ArrayRef = Arc::new(nested);
        RecordBatch::try_from_iter_with_nullable([
            ("number", numbers, false),
            ("text", texts, true),
            ("nested", nested, false),
        ])
        .expect("rows")
    }

    /// The bytes of a file whose rows come in batches of these sizes.
    async fn written(sizes: &[i64]) -> Vec<u8> {
        let store = Arc::new(InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let path = Path::from("out/table");
        let schema = rows(0, 1).schema();
        let writer = RowWriter::create(&output, path.clone(), schema);
        let mut writer = writer.expect("a writer");
        writer.group_rows = 2 * PIECE;
        let mut first = 0;
        for &n in sizes {
            writer.write(rows(first, n)).await.expect("a store");
            first += n;
        }
        assert_eq!(writer.finish().await.expect("a store"), first as u64);
        let file = store.get(&path).await.expect("a file");
        file.bytes().await.expect("bytes").to_vec()
    }

    #[tokio::test]
    async fn the_bytes_do_not_depend_on_the_batches() {
        let whole = written(&[100_000]).await;
        assert!(whole == written(&[1, 39_999, 0, 20_000, 40_000]).await);
        assert!(whole == written(&[1000; 100]).await);
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(whole));
        let reader = reader.expect("a file");
        let groups = reader.metadata().row_groups().iter().map(|g| g.num_rows());
        assert_eq!(groups.collect::<Vec<_>>(), [32_768, 32_768, 32_768, 1696]);
        let reader = reader.with_batch_size(200_000).build().expect("a reader");
        let read: Vec<_> = reader.collect::<Result<_, _>>().expect("rows");
        let all = arrow::compute::concat_batches(&rows(0, 1).schema(), &read).expect("rows");
        assert_eq!(all, rows(0, 100_000));
    }

    #[tokio::test]
    async fn a_file_that_is_given_up_leaves_nothing() {
        let store = Arc::new(InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let path = Path::from("out/table");
        let writer = RowWriter::create(&output, path.clone(), rows(0, 1).schema());
        let mut writer = writer.expect("a writer");
        writer.group_rows = PIECE;
        writer.write(rows(0, 40_000)).await.expect("a store");
        writer.abort().await.expect("a store");
        let found = store.head(&path).await;
        assert!(matches!(found, Err(object_store::Error::NotFound { .. })));
    }

    #[test]
    fn wide_rows_have_small_row_groups() {
        let of = |t: DataType| rows_per_group(&Schema::new(vec![Field::new("a", t, true)]));
        assert_eq!(of(DataType::Int64), ROW_GROUP);
        let item = Arc::new(Field::new("item", DataType::Float64, false));
        assert_eq!(of(DataType::FixedSizeList(item.clone(), 64)), 1 << 15);
        assert_eq!(of(DataType::FixedSizeList(item, 1 << 20)), PIECE);
    }
}
