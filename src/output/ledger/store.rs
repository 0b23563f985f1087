//! Stores the ledger next to the tables of a version, and its objects in `<output>/ledger/`.
//!
//! An object is named after its checksum and never changed. The ledgers of several versions
//! therefore share objects, and a run that dies leaves all of them valid.

use crate::error::{Error, Kind, Result};
use crate::output::layout::LEDGER;
use crate::output::ledger::{Ledger, Object};
use crate::output::place::{LARGEST_RECORD, Output};
use crate::output::retention::Cleaning;
use crate::read::paths::current::Current;
use crate::read::sql::floats;
use crate::store::seal::{sealed, unsealed};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use jiff::Timestamp;
use object_store::ObjectMeta;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::collections::BTreeSet;

const FILE: &str = "ledger.json";

/// Rows that are decoded at a time.
const BATCH: usize = 1 << 16;

impl Output {
    /// The ledger of a result, or `None` if it is missing or unreadable.
    pub(crate) async fn ledger(&self, result: &Current) -> Result<Option<Ledger>> {
        let path = self.version_file(&result.run, FILE);
        let bytes = self.bytes(&path, LARGEST_RECORD).await?;
        Ok(bytes.and_then(|bytes| unsealed(&bytes).ok()))
    }

    /// Writes the ledger of a run next to its tables.
    pub(crate) async fn put_ledger(&self, run: &str, ledger: &Ledger) -> Result<()> {
        self.put(&self.version_file(run, FILE), sealed(ledger)?)
            .await
    }

    /// Stores rows as an object.
    pub(crate) async fn put_object(
        &self,
        kind: &'static str,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<Object> {
        let encoded = on_thread(move || {
            let bytes = encode(schema, &batches)?;
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            Ok::<_, ParquetError>((Object::new(kind, &bytes, rows), bytes))
        });
        let (object, bytes) = encoded.await?.map_err(|e| {
            let what = "counts cannot be kept for the next run; set `job.incremental = false`";
            Error::with_source(Kind::Input, what, e)
        })?;
        self.put(&self.object_path(&object), bytes).await?;
        Ok(object)
    }

    /// The rows of an object, or `None` if it is missing or damaged.
    pub(crate) async fn object(&self, object: &Object) -> Result<Option<Vec<RecordBatch>>> {
        let path = self.object_path(object);
        // A larger file is another one, and is not read.
        let bytes = match self.bytes(&path, object.bytes).await {
            Err(e) if e.kind() == Kind::Input => None,
            bytes => bytes?,
        };
        let Some(bytes) = bytes.filter(|bytes| object.is(bytes)) else {
            return Ok(None);
        };
        Ok(on_thread(move || decode(bytes)).await?.ok())
    }

    /// Removes objects that the ledger of no current or earlier result names, unless they are young
    /// enough to belong to a running run. If an object is removed too early, the next run counts
    /// its files again. Returns what was removed, and its bytes. `dropped` names the results that
    /// are removed as well.
    pub(crate) async fn clean_objects(
        &self,
        asked: &Cleaning,
        dropped: &[String],
    ) -> Result<Vec<(String, u64)>> {
        let mut removed = Vec::new();
        let folder = self.at(&[LEDGER]);
        let mut found = self.list(&folder).await?;
        if found.is_empty() {
            return Ok(removed);
        }
        let mut named = BTreeSet::new();
        let mut results = Vec::new();
        if let Some(seen) = self.pointer().await? {
            results = seen.current.earlier;
            results.push(seen.current.run);
        }
        results.retain(|run| !dropped.contains(run));
        for run in results {
            let path = self.version_file(&run, FILE);
            let bytes = match self.bytes(&path, LARGEST_RECORD).await {
                // As a damaged one.
                Err(e) if e.kind() == Kind::Input => return Ok(removed),
                bytes => bytes?,
            };
            let Some(bytes) = bytes else { continue };
            // A damaged ledger does not tell which objects it needs.
            let Ok(ledger) = unsealed::<Ledger>(&bytes) else {
                return Ok(removed);
            };
            named.extend(ledger.objects().map(str::to_string));
        }
        let is_named = |meta: &ObjectMeta| {
            let name = meta.location.filename();
            name.is_some_and(|name| named.contains(name))
        };
        // Other files were not made by gyre.
        let is_ours = |meta: &ObjectMeta| {
            let folder = meta.location.prefix_match(&folder);
            let depth = folder.map_or(0, |parts| parts.count());
            depth == 1 && meta.location.filename().is_some_and(Object::is_name)
        };
        found.retain(|meta| is_ours(meta) && !is_named(meta));
        if found.is_empty() {
            return Ok(removed);
        }
        let now = self.now().await?;
        for meta in found {
            let written = Timestamp::from_second(meta.last_modified.timestamp());
            if !written.is_ok_and(|at| now.duration_since(at) >= asked.older_than) {
                continue;
            }
            let name = meta.location.filename().unwrap_or_default();
            removed.push((format!("{LEDGER}/{name}"), meta.size));
            if asked.dry_run {
                continue;
            }
            self.delete(&meta.location, "removed").await?;
        }
        Ok(removed)
    }

    fn object_path(&self, object: &Object) -> Path {
        self.at(&[LEDGER, &object.name])
    }
}

async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, "the ledger task panicked", e))
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
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?
        .with_batch_size(BATCH)
        .build()?;
    // Ledgers of earlier versions of gyre may hold keys with both zeros.
    let one_form = |batch: RecordBatch| {
        let columns = batch.columns().iter().map(floats::one_form);
        RecordBatch::try_new(batch.schema(), columns.collect::<Result<_, _>>()?)
    };
    Ok(reader
        .map(|batch| batch.and_then(one_form))
        .collect::<Result<_, _>>()?)
}
