//! One Parquet file in the object store, written by row groups and read back to be checked.

use crate::error::{Error, Kind, Result};
use crate::output::layout::SCHEMA_VERSION;
use crate::output::marks::FileMark;
use crate::output::pages::{CheckedChunk, ColumnPages, GroupPages};
use crate::output::place::Output;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;
use rayon::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt;

/// Rows per row group. The columns of a group are encoded in parallel, and an embedding is as large
/// as all others together, so a table of a million states needs several groups.
pub(crate) const ROW_GROUP: usize = 1 << 17;

/// Bytes at the end of a file that are read back: more than any footer but those of the widest
/// tables.
const TAIL: usize = 1 << 16;

/// Rows of a table that are built and encoded at a time. Their arrays fit the cache.
pub(crate) const PIECE: usize = 1 << 14;

/// Bytes of the dictionary of floats of a row group. Values after it is full are stored plain.
const DICTIONARY: usize = 1 << 16;

/// A Parquet file that is being written.
pub(crate) struct File<'a> {
    output: &'a Output,
    path: Path,
    schema: SchemaRef,
    writer: SerializedFileWriter<Buffer>,
    buffer: Buffer,
    target: BufWriter,
    rows: u64,
    sent: u64,
    /// The hash of the bytes sent.
    hasher: blake3::Hasher,
    /// The last bytes sent.
    tail: Vec<u8>,
}

/// Encoded bytes that are not in the store yet.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> File<'a> {
    /// Starts a file. `sorted_by` names the columns that order the rows, ascending.
    pub(crate) fn create(
        output: &'a Output,
        path: Path,
        schema: SchemaRef,
        sorted_by: &[String],
    ) -> Result<File<'a>> {
        // An order by (a, b, c) is also one by (a, b), but not one by (a, c).
        let sorting = sorted_by.iter().map_while(|name| {
            let column_idx = leaf(&schema, name)?;
            Some(SortingColumn {
                column_idx,
                descending: false,
                nulls_first: true,
            })
        });
        let leaves = ArrowSchemaConverter::new().convert(&schema);
        let leaves = leaves.map_err(|e| unwritable(output, &path, e))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("gyre ", env!("CARGO_PKG_VERSION")).to_string())
            .set_key_value_metadata(Some(vec![KeyValue::new(
                "gyre.schema".to_string(),
                SCHEMA_VERSION.to_string(),
            )]))
            .set_sorting_columns(Some(sorting.collect()));
        let properties = encodings(properties, &leaves).build();
        let buffer = Buffer::default();
        let writer = ArrowWriter::try_new(buffer.clone(), Arc::clone(&schema), Some(properties));
        let (writer, _) = writer
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|e| unwritable(output, &path, e))?;
        let target = BufWriter::new(Arc::clone(&output.store), path.clone());
        Ok(File {
            output,
            path,
            schema,
            writer,
            buffer,
            target,
            rows: 0,
            sent: 0,
            hasher: blake3::Hasher::new(),
            tail: Vec::new(),
        })
    }

    /// Appends row groups, each in pieces of rows that `batch` builds. Groups are encoded in
    /// parallel, and so are the columns of a piece.
    pub(crate) async fn write<P: Send>(
        &mut self,
        groups: Vec<Vec<P>>,
        batch: impl Fn(P) -> Result<RecordBatch> + Sync,
    ) -> Result<()> {
        let first = self.writer.flushed_row_groups().len();
        let begun = groups.into_iter().enumerate();
        let begun = begun.map(|(at, pieces)| Ok((self.begin(first + at)?, pieces)));
        let begun: Vec<(RowGroup, Vec<P>)> = begun.collect::<Result<_>>()?;
        let (schema, output, path) = (&self.schema, self.output, &self.path);
        let broken = |e: ParquetError| unwritable(output, path, e);
        let encoded: Vec<(usize, Vec<CheckedChunk>)> = begun
            .into_par_iter()
            .map(|(mut group, pieces)| {
                for piece in pieces {
                    group.encode(schema, &batch(piece)?).map_err(broken)?;
                }
                group.close().map_err(broken)
            })
            .collect::<Result<_>>()?;
        for (rows, chunks) in encoded {
            self.append_chunks(rows, chunks).await?;
        }
        Ok(())
    }

    async fn append_chunks(&mut self, rows: usize, chunks: Vec<CheckedChunk>) -> Result<()> {
        let append = || {
            let mut group = self.writer.next_row_group()?;
            for chunk in chunks {
                group.append_column(&chunk.bytes, chunk.close)?;
            }
            group.close()
        };
        append().map_err(|e| unwritable(self.output, &self.path, e))?;
        self.rows += rows as u64;
        self.send().await
    }

    /// Starts the row group after those that are written, to be encoded piece by piece.
    pub(crate) fn row_group(&self) -> Result<RowGroup> {
        self.begin(self.writer.flushed_row_groups().len())
    }

    /// Starts row group `number`.
    fn begin(&self, number: usize) -> Result<RowGroup> {
        let pages = GroupPages::default();
        let writers = ArrowRowGroupWriterFactory::new(&self.writer, Arc::clone(&self.schema))
            .with_page_store_factory(Arc::new(pages.clone()))
            .create_column_writers(number);
        let writers = writers.map_err(|e| unwritable(self.output, &self.path, e))?;
        let mut columns: Vec<Vec<(ArrowColumnWriter, ColumnPages)>> = Vec::new();
        columns.resize_with(self.schema.fields().len(), Vec::new);
        // A nested column has several leaves.
        let leaves = self.writer.schema_descr();
        for (leaf, writer) in writers.into_iter().enumerate() {
            columns[leaves.get_column_root_idx(leaf)].push((writer, pages.of(leaf)));
        }
        Ok(RowGroup { columns, rows: 0 })
    }

    /// Encodes rows of a row group. The columns are encoded in parallel.
    pub(crate) fn encode(&self, group: &mut RowGroup, rows: &RecordBatch) -> Result<()> {
        let encoded = group.encode(&self.schema, rows);
        encoded.map_err(|e| unwritable(self.output, &self.path, e))
    }

    /// Appends an encoded row group.
    pub(crate) async fn append(&mut self, group: RowGroup) -> Result<()> {
        let closed = group.close();
        let (rows, chunks) = closed.map_err(|e| unwritable(self.output, &self.path, e))?;
        self.append_chunks(rows, chunks).await
    }

    /// Sends the encoded bytes to the store.
    async fn send(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut *self.buffer.bytes());
        self.sent += bytes.len() as u64;
        self.hasher.update(&bytes);
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        let more = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..more);
        self.target
            .put(bytes.into())
            .await
            .map_err(|e| unwritable(self.output, &self.path, e))
    }

    /// Gives the file up. The store keeps nothing of it.
    pub(crate) async fn abort(mut self) -> Result<()> {
        let aborted = self.target.abort().await;
        aborted.map_err(|e| unwritable(self.output, &self.path, e))
    }

    /// Closes the file, checks that the store returns what was written, and returns the number of
    /// rows.
    pub(crate) async fn finish(mut self) -> Result<u64> {
        self.writer
            .finish()
            .map_err(|e| unwritable(self.output, &self.path, e))?;
        self.send().await?;
        self.target
            .shutdown()
            .await
            .map_err(|e| unwritable(self.output, &self.path, e))?;
        check(self.output, &self.path, self.sent, &self.tail).await?;
        let mark = FileMark::new(self.sent, &self.hasher);
        self.output.mark(&self.path, mark);
        Ok(self.rows)
    }
}

/// A row group that is being encoded.
pub(crate) struct RowGroup {
    /// The writers of the leaves of each column, and their pages.
    columns: Vec<Vec<(ArrowColumnWriter, ColumnPages)>>,
    rows: usize,
}

impl RowGroup {
    /// The number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Encodes rows, [`PIECE`] at a time: a writer first lists all rows that are not null.
    fn encode(&mut self, schema: &Schema, rows: &RecordBatch) -> Result<(), ParquetError> {
        let columns = self.columns.par_iter_mut().enumerate();
        let encoded = columns.map(|(at, writers)| {
            let column = rows.column(at);
            for first in (0..column.len()).step_by(PIECE) {
                let piece = column.slice(first, PIECE.min(column.len() - first));
                let leaves = compute_leaves(&schema.fields()[at], &piece)?;
                for ((writer, _), leaf) in writers.iter_mut().zip(&leaves) {
                    writer.write(leaf)?;
                }
            }
            Ok(())
        });
        encoded.collect::<Result<(), ParquetError>>()?;
        self.rows += rows.num_rows();
        Ok(())
    }

    /// The number of rows, and the encoded leaves of the columns.
    fn close(self) -> Result<(usize, Vec<CheckedChunk>), ParquetError> {
        let writers: Vec<_> = self.columns.into_iter().flatten().collect();
        let chunks = writers.into_par_iter();
        let chunks = chunks.map(|(writer, pages)| CheckedChunk::new(&writer.close()?, &pages));
        Ok((self.rows, chunks.collect::<Result<_, _>>()?))
    }
}

/// Copies a file inside the store and checks the copy. `mark` says what the file was written as.
pub(crate) async fn copy(output: &Output, from: &Path, to: &Path, mark: &FileMark) -> Result<()> {
    output
        .store
        .copy(from, to)
        .await
        .map_err(|e| unwritable(output, to, e))?;
    let (found, _) = output.verified(to, mark).await?;
    output.mark(to, found);
    Ok(())
}

/// Checks that the store has a file of this size and with these last bytes, which include the
/// footer.
async fn check(output: &Output, path: &Path, size: u64, tail: &[u8]) -> Result<()> {
    if end(output, path).await? != (size, tail.to_vec()) {
        let what = format!("{} differs from what was written", output.show(path));
        return Err(Error::new(Kind::Store, what));
    }
    Ok(())
}

/// The size of a file and its last bytes.
async fn end(output: &Output, path: &Path) -> Result<(u64, Vec<u8>)> {
    let end = async {
        let size = output.store.head(path).await?.size;
        let tail = size.saturating_sub(TAIL as u64)..size;
        let tail = output.store.get_range(path, tail).await?;
        Ok((size, tail.to_vec()))
    };
    let end: object_store::Result<_> = end.await;
    end.map_err(|e| output.failed(path, "read back", e))
}

/// Chooses the encodings of numbers. Integers are ordered or small, so their differences are short.
/// Other numbers are repeated, such as the centres of boxes, or all different, so that a large
/// dictionary would cost more time and more bytes than it saves.
fn encodings(
    properties: WriterPropertiesBuilder,
    leaves: &SchemaDescriptor,
) -> WriterPropertiesBuilder {
    let leaves = leaves.columns().iter();
    leaves.fold(properties, |properties, leaf| {
        let path = leaf.path().clone();
        match leaf.physical_type() {
            Type::INT32 | Type::INT64 => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Type::FLOAT | Type::DOUBLE => {
                properties.set_column_dictionary_page_size_limit(path, DICTIONARY)
            }
            _ => properties,
        }
    })
}

/// The index of a top-level column among the leaves of a Parquet schema, or `None` if it or a
/// column before it is nested.
fn leaf(schema: &SchemaRef, name: &str) -> Option<i32> {
    let at = schema.fields().iter().position(|f| f.name() == name)?;
    let flat = schema.fields()[..=at]
        .iter()
        .all(|f| !f.data_type().is_nested());
    flat.then_some(at as i32)
}

fn unwritable(
    output: &Output,
    path: &Path,
    e: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::store(format!("{} cannot be written", output.show(path)), e)
}
