//! The ledger beside the tables: `<output>/ledger.json` and the objects that it names, in `<output>/ledger/`.
//!
//! An object is named after its checksum and never changed, so that a run which dies leaves every ledger as good as it was.

use super::Output;
use super::commit::json;
use crate::error::{Error, Kind, Result};
use crate::ledger::{Ledger, Object};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

const FOLDER: &str = "ledger";
const LEDGER: &str = "ledger.json";

/// Rows that are decoded at a time.
const BATCH: usize = 1 << 16;

impl Output {
    /// The ledger, if there is one that can be read.
    pub async fn ledger(&self) -> Result<Option<Ledger>> {
        let bytes = self.bytes(&self.at(&[LEDGER])).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub async fn put_ledger(&self, ledger: &Ledger) -> Result<()> {
        self.put(&self.at(&[LEDGER]), json(ledger)?).await
    }

    /// Stores rows as an object.
    pub async fn put_object(
        &self,
        kind: &'static str,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<Object> {
        let encoded = tokio::task::spawn_blocking(move || {
            let bytes = encode(schema, &batches)?;
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            Ok::<_, ParquetError>((Object::new(kind, &bytes, rows), bytes))
        });
        let encoded = encoded.await;
        let encoded = encoded.map_err(|e| Error::with_source(Kind::Bug, "a ledger died", e))?;
        let (object, bytes) = encoded.map_err(|e| {
            let what = "counts cannot be kept for the next run; set `job.incremental = false`";
            Error::with_source(Kind::Input, what, e)
        })?;
        self.put(&self.object_path(&object), bytes).await?;
        Ok(object)
    }

    /// The rows of an object; none where it is gone or is not what was stored.
    pub async fn object(&self, object: &Object) -> Result<Option<Vec<RecordBatch>>> {
        let bytes = self.bytes(&self.object_path(object)).await?;
        let Some(bytes) = bytes.filter(|bytes| object.is(bytes)) else {
            return Ok(None);
        };
        let decoded = tokio::task::spawn_blocking(move || decode(bytes)).await;
        let decoded = decoded.map_err(|e| Error::with_source(Kind::Bug, "a ledger died", e))?;
        Ok(decoded.ok())
    }

    fn object_path(&self, object: &Object) -> Path {
        self.at(&[FOLDER, &object.name])
    }
}

fn encode(schema: SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("gyre ", env!("CARGO_PKG_VERSION")).to_string())
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

fn decode(bytes: Bytes) -> Result<Vec<RecordBatch>, ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let reader = reader.with_batch_size(BATCH).build()?;
    Ok(reader.collect::<Result<_, _>>()?)
}
