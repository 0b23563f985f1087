//! One Parquet file in the object store, written batch by batch and read back to be checked.

use super::Output;
use crate::error::{Error, Kind, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::arrow::AsyncArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader, SortingColumn};
use parquet::file::properties::WriterProperties;
use std::sync::Arc;

/// Version of the tables' names and columns, in the metadata of every file.
pub const SCHEMA_VERSION: &str = "1";

/// Rows of a row group.
const ROW_GROUP: usize = 1 << 20;

pub struct File<'a> {
    output: &'a Output,
    path: Path,
    writer: AsyncArrowWriter<BufWriter>,
    rows: u64,
}

impl<'a> File<'a> {
    /// `sorted_by` names the columns that order the rows, ascending.
    pub fn create(
        output: &'a Output,
        path: Path,
        schema: SchemaRef,
        sorted_by: &[String],
    ) -> Result<File<'a>> {
        // An order by (a, b, c) is one by (a, b), but not one by (a, c).
        let sorting = sorted_by.iter().map_while(|name| {
            let column_idx = leaf(&schema, name)?;
            Some(SortingColumn {
                column_idx,
                descending: false,
                nulls_first: true,
            })
        });
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_created_by(concat!("gyre ", env!("CARGO_PKG_VERSION")).to_string())
            .set_key_value_metadata(Some(vec![KeyValue::new(
                "gyre.schema".to_string(),
                SCHEMA_VERSION.to_string(),
            )]))
            .set_sorting_columns(Some(sorting.collect()))
            .build();
        let target = BufWriter::new(Arc::clone(&output.store), path.clone());
        let writer = AsyncArrowWriter::try_new(target, schema, Some(properties))
            .map_err(|e| unwritable(output, &path, e))?;
        Ok(File {
            output,
            path,
            writer,
            rows: 0,
        })
    }

    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer
            .write(batch)
            .await
            .map_err(|e| unwritable(self.output, &self.path, e))
    }

    /// Closes the file and checks that the store gives back what was written.
    pub async fn finish(self) -> Result<u64> {
        let File {
            output,
            path,
            writer,
            rows,
        } = self;
        writer
            .close()
            .await
            .map_err(|e| unwritable(output, &path, e))?;
        let found = stored_rows(output, &path).await?;
        if found != rows {
            let what = format!(
                "{} holds {found} rows where {rows} were written",
                output.show(&path)
            );
            return Err(Error::new(Kind::Check, what));
        }
        Ok(rows)
    }
}

/// Rows of a file as its footer in the store says.
async fn stored_rows(output: &Output, path: &Path) -> Result<u64> {
    let unreadable = |e: ParquetError| {
        Error::with_source(
            Kind::Check,
            format!("{} cannot be read back", output.show(path)),
            e,
        )
    };
    let size = output
        .store
        .head(path)
        .await
        .map_err(|e| unreadable(e.into()))?
        .size;
    let mut tail = size.min(1 << 16);
    loop {
        let bytes = output
            .store
            .get_range(path, size - tail..size)
            .await
            .map_err(|e| unreadable(e.into()))?;
        let mut reader = ParquetMetaDataReader::new();
        match reader.try_parse_sized(&bytes, size) {
            Err(ParquetError::NeedMoreData(needed)) if needed as u64 > tail => {
                tail = (needed as u64).min(size)
            }
            Err(e) => return Err(unreadable(e)),
            Ok(()) => {
                return Ok(reader
                    .finish()
                    .map_err(unreadable)?
                    .file_metadata()
                    .num_rows() as u64);
            }
        }
    }
}

/// The place of a top-level column among the leaves of a Parquet schema, if it is a leaf and only leaves stand before it.
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
    Error::with_source(
        Kind::Store,
        format!("{} cannot be written", output.show(path)),
        e,
    )
}
