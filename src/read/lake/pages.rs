//! Refuses pages of Parquet files that would not fit into memory, before they are decompressed.
//!
//! A page is decompressed as a whole. Writers make pages of about 1 MB, but a page of a small file
//! can become gigabytes. The header in front of a page says how many bytes it becomes, so the bytes
//! that were read are searched for headers before the decoder gets them.

use crate::memory;
use crate::memory::shown;
use crate::store::location::location;
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page that is read under any limit.
const LEAST: usize = 28 << 20;

/// Pages that a thread holds at a time: that of a column as it is decompressed and as it is
/// decoded, and the same of another column.
const AT_A_TIME: usize = 4;

/// Limits the pages of all Parquet files that the plans of a session read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLimit {
    /// Bytes of a page.
    bytes: usize,
    threads: usize,
}

impl PageLimit {
    /// The limit for queries on `threads` threads that hold `bytes` bytes.
    pub(crate) fn new(bytes: usize, threads: usize) -> PageLimit {
        PageLimit {
            bytes: (bytes / (AT_A_TIME * threads.max(1))).max(LEAST),
            threads,
        }
    }

    /// The memory limit of a process that reads pages of `bytes` bytes.
    fn enough(&self, bytes: usize) -> usize {
        let own = memory::least(self.threads);
        own.saturating_add(bytes.saturating_mul(AT_A_TIME * self.threads))
    }
}

impl PhysicalOptimizerRule for PageLimit {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let limited = |node: Arc<dyn ExecutionPlan>| {
            let scan = node.downcast_ref::<DataSourceExec>();
            let scan = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>);
            let Some((config, source)) = scan else {
                return Ok(Transformed::no(node));
            };
            let Some(inner) = source.parquet_file_reader_factory() else {
                return Ok(Transformed::no(node));
            };
            let readers = Readers {
                inner: Arc::clone(inner),
                root: config.object_store_url.as_str().to_string(),
                limit: *self,
            };
            let source = source.clone();
            let source = source.with_parquet_file_reader_factory(Arc::new(readers));
            let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
            let scan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config.build());
            Ok(Transformed::yes(scan))
        };
        plan.transform_down(limited).data()
    }

    fn name(&self) -> &str {
        "page_limit"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A page that is too large, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TooLarge(pub(crate) String);

/// Makes readers that refuse pages.
#[derive(Debug)]
struct Readers {
    inner: Arc<dyn ParquetFileReaderFactory>,
    root: String,
    limit: PageLimit,
}

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let shown = location(&self.root, &file.object_meta.location);
        let inner = (self.inner).create_reader(partition, file, size_hint, metrics)?;
        Ok(Box::new(Reader {
            inner,
            shown,
            limit: self.limit,
            footer: None,
        }))
    }
}

/// Reads a file whose pages are limited.
struct Reader {
    inner: Box<dyn AsyncFileReader + Send>,
    /// The location of the file.
    shown: String,
    limit: PageLimit,
    footer: Option<Arc<ParquetMetaData>>,
}

impl Reader {
    /// Checks the pages in the bytes from `start` on.
    fn check(&self, start: u64, bytes: &[u8]) -> parquet::errors::Result<()> {
        let largest = Headers { bytes, at: 0 }.map(|page| page.becomes).max();
        let Some(largest) = largest.filter(|bytes| *bytes > self.limit.bytes as u64) else {
            return Ok(());
        };
        // Bytes outside of columns, such as a filter, have no pages.
        let Some(column) = self
            .footer
            .as_ref()
            .and_then(|footer| column(footer, start))
        else {
            return Ok(());
        };
        let largest = largest as usize;
        let (page, limit) = (shown(largest), shown(self.limit.bytes));
        let do_what = if memory::limit().is_some() {
            let enough = shown(self.limit.enough(largest));
            format!("; give at least {enough} with --memory, use fewer --threads, or write")
        } else {
            "; write".to_string()
        };
        let what = format!(
            "column `{column}` of {} has a page that becomes {page} when it is decompressed, and there is room for {limit}{do_what} the file with smaller pages",
            self.shown
        );
        Err(ParquetError::External(Box::new(TooLarge(what))))
    }
}

/// The name of the column at a place of a file.
fn column(footer: &ParquetMetaData, at: u64) -> Option<String> {
    let columns = footer.row_groups().iter().flat_map(|rows| rows.columns());
    let mut columns = columns.filter(|column| {
        let (start, length) = column.byte_range();
        (start..start.saturating_add(length)).contains(&at)
    });
    Some(columns.next()?.column_path().string())
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move {
            let bytes = self.inner.get_bytes(range.clone()).await?;
            self.check(range.start, &bytes)?;
            Ok(bytes)
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move {
            let all = self.inner.get_byte_ranges(ranges.clone()).await?;
            for (range, bytes) in ranges.iter().zip(&all) {
                self.check(range.start, bytes)?;
            }
            Ok(all)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            let footer = self.inner.get_metadata(options).await?;
            self.footer = Some(Arc::clone(&footer));
            Ok(footer)
        }
        .boxed()
    }
}

/// The sizes of a page in bytes.
struct Page {
    becomes: u64,
    stored: u64,
}

/// The headers of the pages that follow one another, up to the first that is none. A header is a
/// structure of Thrift in its compact form: field 2 is the decompressed size, field 3 the stored
/// one.
struct Headers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Headers<'_> {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        let page = self.header()?;
        self.skip_bytes(page.stored)?;
        Some(page)
    }
}

/// Types of fields and elements in the compact form.
mod kind {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const I8: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

/// Structures within structures that a header may have.
const DEEPEST: usize = 8;

impl Headers<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn skip_bytes(&mut self, n: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(n).ok()?)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number that is not negative.
    fn size(&mut self) -> Option<u64> {
        let zigzag = self.varint()?;
        (zigzag % 2 == 0).then_some(zigzag / 2)
    }

    /// The type and the id of the next field after that of id `last`.
    fn field(&mut self, last: i64) -> Option<(u8, i64)> {
        let byte = self.byte()?;
        let kind = byte & 0x0f;
        let id = match byte >> 4 {
            _ if kind == kind::STOP => last,
            0 => i64::try_from(self.size()?).ok()?,
            delta => last + i64::from(delta),
        };
        Some((kind, id))
    }

    fn header(&mut self) -> Option<Page> {
        let (mut becomes, mut stored) = (None, None);
        let mut last = 0;
        loop {
            let (kind, id) = self.field(last)?;
            match (id, kind) {
                (_, kind::STOP) => break,
                (2, kind::I32) => becomes = Some(self.size()?),
                (3, kind::I32) => stored = Some(self.size()?),
                (2 | 3, _) => return None,
                (_, kind) => self.skip(kind, 0)?,
            }
            last = id;
        }
        Some(Page {
            becomes: becomes?,
            stored: stored?,
        })
    }

    /// Skips a value of a field, `depth` structures deep.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            kind::TRUE | kind::FALSE => Some(()),
            kind::I8 => self.skip_bytes(1),
            kind::I16 | kind::I32 | kind::I64 => self.varint().map(|_| ()),
            kind::DOUBLE => self.skip_bytes(8),
            kind::BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            kind::LIST | kind::SET => {
                let byte = self.byte()?;
                let length = match byte >> 4 {
                    15 => self.varint()?,
                    short => u64::from(short),
                };
                for _ in 0..length {
                    match byte & 0x0f {
                        // Elements have a byte, unlike fields.
                        kind::TRUE | kind::FALSE => self.skip_bytes(1)?,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
                Some(())
            }
            kind::STRUCT => {
                let mut last = 0;
                loop {
                    let (kind, id) = self.field(last)?;
                    if kind == kind::STOP {
                        return Some(());
                    }
                    self.skip(kind, depth + 1)?;
                    last = id;
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Compression;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
    use proptest::prelude::*;

    /// A file of numbers, lists and texts, in pages of a few rows.
    fn file(rows: usize, version: WriterVersion, dictionary: bool) -> Vec<u8> {
        let texts = (0..rows).map(|k| Some("text ".repeat(1 + 17 * k % 40)));
        let lists = (0..rows).map(|k| Some((0..k as i64 % 5).map(Some).collect::<Vec<_>>()));
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
            ("texts", Arc::new(StringArray::from_iter(texts))),
            (
                "lists",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("columns");
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(dictionary)
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_data_page_row_count_limit(37)
            .set_write_batch_size(16)
            .build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a writer");
        writer.write(&batch).expect("rows");
        writer.close().expect("a file");
        bytes
    }

    // The footer has the sum over the pages of a column, their headers included.
    #[test]
    fn all_pages_of_a_column_are_found() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let bytes = Bytes::from(file(500, version, dictionary));
                let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes);
                let footer = footer.expect("a footer");
                for column in footer.row_group(0).columns() {
                    let (start, length) = column.byte_range();
                    let own = &bytes[start as usize..(start + length) as usize];
                    let mut headers = Headers { bytes: own, at: 0 };
                    let pages: Vec<Page> = headers.by_ref().collect();
                    assert!(pages.len() > 10, "{}", pages.len());
                    let stored: u64 = pages.iter().map(|page| page.stored).sum();
                    let becomes: u64 = pages.iter().map(|page| page.becomes).sum();
                    let of_headers = length - stored;
                    assert_eq!(
                        becomes + of_headers,
                        column.uncompressed_size() as u64,
                        "{}",
                        column.column_path()
                    );
                    assert_eq!(
                        super::column(&footer, start),
                        Some(column.column_path().string())
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..1000,
        ) {
            Headers { bytes: &bytes, at: 0 }.count();
            let mut damaged = file(60, WriterVersion::PARQUET_2_0, true);
            let at = at % damaged.len();
            for (to, from) in damaged[at..].iter_mut().zip(&bytes) {
                *to = *from;
            }
            Headers { bytes: &damaged[4..], at: 0 }.count();
        }
    }
}
