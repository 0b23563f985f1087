//! Checksums of Parquet pages, which the writer of the library leaves out. Readers verify them.
//!
//! In: the pages of a column chunk, as header and data. Out: the same chunk, with a CRC-32 of its
//! data in each header, and with the sizes and offsets that follow from the longer headers.

use bytes::Bytes;
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::column::page_store::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pages of the columns of a row group, by the number of the leaf.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupPages(Arc<Mutex<Vec<ColumnPages>>>);

/// The headers and data of the pages of a column chunk, in turn, in the order of writing.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnPages(Arc<Mutex<Vec<Bytes>>>);

fn held<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GroupPages {
    /// The pages of a leaf.
    pub(crate) fn of(&self, leaf: usize) -> ColumnPages {
        let mut columns = held(&self.0);
        if columns.len() <= leaf {
            columns.resize_with(leaf + 1, ColumnPages::default);
        }
        columns[leaf].clone()
    }
}

impl PageStoreFactory for GroupPages {
    fn create(&self, args: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        Ok(Box::new(self.of(args.column_index())))
    }
}

impl PageStore for ColumnPages {
    fn put(&mut self, value: Bytes) -> Result<PageKey> {
        let mut pages = held(&self.0);
        pages.push(value);
        Ok(PageKey::new(pages.len() as u64 - 1))
    }

    fn take(&mut self, key: PageKey) -> Result<Bytes> {
        let mut pages = held(&self.0);
        let page = pages.get_mut(key.get() as usize).map(std::mem::take);
        page.ok_or_else(|| ParquetError::General(format!("there is no page {}", key.get())))
    }

    fn memory_size(&self) -> usize {
        held(&self.0).iter().map(Bytes::len).sum()
    }
}

/// A column chunk whose pages have checksums.
pub(crate) struct CheckedChunk {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

impl CheckedChunk {
    /// Adds checksums to the pages of a chunk.
    pub(crate) fn new(chunk: &ArrowColumnChunk, pages: &ColumnPages) -> Result<CheckedChunk> {
        let close = chunk.close();
        let (mut dictionary, mut data, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let mut more = 0;
        let pages = std::mem::take(&mut *held(&pages.0));
        for page in pages.chunks(2) {
            let [header, content] = page else {
                return Err(unknown());
            };
            let checked = with_checksum(header, crc32fast::hash(content))?;
            more += checked.len() - header.len();
            let is_dictionary = checked[1] == DICTIONARY;
            let to = if is_dictionary {
                &mut dictionary
            } else {
                &mut data
            };
            to.extend_from_slice(&checked);
            to.extend_from_slice(content);
            if !is_dictionary {
                sizes.push(checked.len() + content.len());
            }
        }
        let metadata = &close.metadata;
        let (compressed, whole) = (metadata.compressed_size(), metadata.uncompressed_size());
        let metadata = metadata.clone().into_builder();
        let metadata = metadata
            .set_total_compressed_size(compressed + more as i64)
            .set_total_uncompressed_size(whole + more as i64);
        let mut offset_index = close.offset_index.clone();
        if let Some(index) = &mut offset_index {
            let mut offset = 0;
            for (page, size) in index.page_locations.iter_mut().zip(&sizes) {
                (page.offset, page.compressed_page_size) = (offset, *size as i32);
                offset += *size as i64;
            }
        }
        let close = ColumnCloseResult {
            bytes_written: close.bytes_written + more as u64,
            rows_written: close.rows_written,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: close.column_index.clone(),
            offset_index,
        };
        // The dictionary comes last from the writer, and first in the file.
        let close = close.update_dictionary_location(dictionary.len())?;
        dictionary.append(&mut data);
        let bytes = dictionary.into();
        Ok(CheckedChunk { bytes, close })
    }
}

/// The first byte of a field of type `i32` whose number is one more than that of the field before.
const NEXT_I32: u8 = 0x15;

/// The type of a dictionary page, as a zigzag varint.
const DICTIONARY: u8 = 4;

/// Inserts the field 4, `crc`, behind the first three fields of a page header in Thrift's compact
/// protocol: the type and two sizes.
fn with_checksum(header: &[u8], checksum: u32) -> Result<Vec<u8>> {
    let mut at = 0;
    for _ in 0..3 {
        if header.get(at) != Some(&NEXT_I32) {
            return Err(unknown());
        }
        let number = &header[at + 1..];
        let end = number.iter().position(|byte| byte & 0x80 == 0);
        at += 2 + end.ok_or_else(unknown)?;
    }
    // The next field is that of the kind of page: its number minus 3, and its type.
    let next = match header.get(at) {
        Some(next) if next >> 4 >= 2 => next - 0x10,
        _ => return Err(unknown()),
    };
    let mut checked = Vec::with_capacity(header.len() + 6);
    checked.extend_from_slice(&header[..at]);
    checked.push(NEXT_I32);
    let signed = checksum as i32;
    let mut zigzag = ((signed << 1) ^ (signed >> 31)) as u32;
    while zigzag >= 0x80 {
        checked.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    checked.extend([zigzag as u8, next]);
    checked.extend_from_slice(&header[at + 1..]);
    Ok(checked)
}

fn unknown() -> ParquetError {
    ParquetError::General("a page header has another form than the one known".into())
}

#[cfg(test)]
mod tests {
    use crate::output::place::Output;
    use crate::output::row_writer::RowWriter;
    use arrow::array::{
        ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    };
    use arrow::datatypes::Float64Type;
    use bytes::Bytes;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
    use parquet::errors::Result;
    use parquet::file::metadata::PageIndexPolicy;
    use std::sync::Arc;

    /// Columns with and without dictionaries, with nulls, nested, and with several pages.
    fn rows() -> RecordBatch {
        let n = 40_000_i64;
        let lists = (0..n).map(|k| (k % 5 > 0).then(|| vec![Some(k as f64); (k % 3) as usize]));
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(lists);
        let numbers = Int64Array::from_iter_values((0..n).map(|k| k * k));
        let floats = |of: fn(i64) -> f64| Float64Array::from_iter_values((0..n).map(of));
        let texts = (0..n).map(|k| (k % 3 > 0).then(|| format!("t{}", k % 90)));
        let flags = (0..n).map(|k| Some(k % 2 == 0));
        let columns: [(&str, ArrayRef); 6] = [
            ("number", Arc::new(numbers)),
            ("few", Arc::new(floats(|k| (k % 7) as f64))),
            ("many", Arc::new(floats(|k| (k as f64).sin()))),
            ("text", Arc::new(texts.collect::<StringArray>())),
            ("flag", Arc::new(flags.collect::<BooleanArray>())),
            ("lists", Arc::new(lists)),
        ];
        let columns = columns.into_iter();
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, c)| (name, c, true)))
            .expect("rows")
    }

    async fn written(rows: &RecordBatch) -> Bytes {
        let output = Output::in_store(Arc::new(InMemory::new()), "out".into());
        let path = Path::from("out/table");
        let mut writer = RowWriter::create(&output, path.clone(), rows.schema()).expect("a file");
        writer.write(rows.clone()).await.expect("a store");
        writer.finish().await.expect("a store");
        let file = output.store.get(&path).await.expect("a file");
        file.bytes().await.expect("bytes")
    }

    fn read(bytes: Bytes) -> Result<Vec<RecordBatch>> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()?;
        Ok(reader.collect::<std::result::Result<_, _>>()?)
    }

    /// A flipped bit in any page is an error, and the offsets of the index are those of pages.
    #[tokio::test]
    async fn every_page_has_a_checksum() {
        let rows = rows();
        let whole = written(&rows).await;
        let back = read(whole.clone()).expect("rows");
        let back = arrow::compute::concat_batches(&rows.schema(), &back).expect("rows");
        assert_eq!(back, rows);

        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(whole.clone(), options);
        let metadata = Arc::clone(builder.expect("an index").metadata());
        let index = metadata.offset_index().expect("an index");
        let (mut pages, mut dictionaries) = (Vec::new(), 0);
        for (group, offsets) in metadata.row_groups().iter().zip(index) {
            for (column, offsets) in group.columns().iter().zip(offsets) {
                let (start, len) = column.byte_range();
                let first = offsets.page_locations()[0].offset as u64;
                assert_eq!(first, column.data_page_offset() as u64);
                if let Some(dictionary) = column.dictionary_page_offset() {
                    assert_eq!(dictionary as u64, start);
                    pages.push((start, first - start));
                    dictionaries += 1;
                }
                let mut end = first;
                for page in offsets.page_locations() {
                    assert_eq!(page.offset as u64, end);
                    pages.push((end, page.compressed_page_size as u64));
                    end += page.compressed_page_size as u64;
                }
                assert_eq!(end, start + len);
            }
        }
        let n = pages.len();
        assert!(n > 12 && dictionaries > 2, "{n} pages");
        for (start, len) in pages {
            // The last bytes of a page are its data.
            for back in [1, len / 2] {
                let mut flipped = whole.to_vec();
                flipped[(start + len - back.max(1)) as usize] ^= 0x10;
                let e = read(flipped.into()).expect_err("a flipped bit");
                let e = e.to_string();
                assert!(back > 1 || e.contains("CRC"), "{e}");
            }
        }
    }
}
