//! Lets the Parquet reader read a file of a store.

use crate::error::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use std::ops::Range;
use std::sync::Arc;

/// A file in a store, read by byte ranges.
pub(crate) struct StoredFile {
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
    /// All bytes of the file, if they have been read already.
    pub held: Option<Bytes>,
}

impl StoredFile {
    /// A file that has not been read yet.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, path: Path) -> StoredFile {
        let held = None;
        StoredFile { store, path, held }
    }

    /// A range of the bytes in memory, if all are.
    fn in_memory(&self, range: &Range<u64>) -> Option<Result<Bytes, ParquetError>> {
        let held = self.held.as_ref()?;
        let (start, end, len) = (range.start as usize, range.end as usize, held.len());
        Some(if start <= end && end <= len {
            Ok(held.slice(start..end))
        } else {
            let what = format!("bytes {start} to {end} of a file of {len} bytes do not exist");
            Err(ParquetError::EOF(what))
        })
    }
}

impl AsyncFileReader for StoredFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        if let Some(bytes) = self.in_memory(&range) {
            return std::future::ready(bytes).boxed();
        }
        self.store
            .get_range(&self.path, range)
            .map_err(external)
            .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move {
            let held = ranges.iter().map(|range| self.in_memory(range));
            if let Some(bytes) = held.collect::<Option<Result<_, _>>>() {
                return bytes;
            }
            self.store
                .get_ranges(&self.path, &ranges)
                .await
                .map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let size = match &self.held {
                Some(held) => held.len() as u64,
                None => self.store.head(&self.path).await.map_err(external)?.size,
            };
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}

pub(crate) fn external(e: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(e))
}
