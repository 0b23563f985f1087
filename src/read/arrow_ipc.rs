//! Arrow files, with a footer or as streams → their columns, and readers of those that are wanted.

use super::bytes;
use super::fault::{Fault, plain};
use super::text::Wanted;
use crate::spec::Compression;
use ::bytes::Buf;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use datafusion::common::DataFusionError;
use datafusion::datasource::physical_plan::{ArrowOpener, FileOpener};
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use std::sync::Arc;

/// How a file with a footer begins. A stream follows in it, eight bytes from its start.
const MAGIC: &[u8] = b"ARROW1";
const PADDED: usize = 8;

/// The columns of a file, and whether it has a footer.
pub async fn columns(
    store: &dyn ObjectStore,
    file: &Path,
) -> Result<(SchemaRef, bool), DataFusionError> {
    let mut pieces = bytes::open(store, file, None, Compression::None).await?;
    let mut head = Vec::new();
    while head.len() < PADDED
        && let Some(piece) = pieces.try_next().await?
    {
        head.extend_from_slice(&piece);
    }
    let has_footer = head.starts_with(MAGIC);
    let mut head = ::bytes::Bytes::from(head);
    if has_footer {
        head.advance(PADDED.min(head.len()));
    }
    let mut decoder = StreamDecoder::new();
    loop {
        let mut buffer = Buffer::from(head);
        // What follows the columns is not asked for here.
        let decoded = decoder.decode(&mut buffer);
        if let Some(schema) = decoder.schema() {
            return Ok((schema, has_footer));
        }
        decoded.map_err(|e| Fault::new(plain(&e.to_string())))?;
        let Some(piece) = pieces.try_next().await? else {
            let what = "it ends before it has said what its columns are";
            return Err(Fault::new(what).into());
        };
        head = piece;
    }
}

/// Reads columns of files that are in the store, by their positions.
pub fn opener(
    store: Arc<dyn ObjectStore>,
    has_footer: bool,
    positions: Vec<usize>,
) -> Arc<dyn FileOpener> {
    Arc::new(match has_footer {
        true => ArrowOpener::new_file_opener(store, Some(positions)),
        false => ArrowOpener::new_stream_file_opener(store, Some(positions)),
    })
}

/// The columns that are wanted, of rows as they were read.
pub fn typed(rows: &RecordBatch, wanted: &Wanted) -> Result<RecordBatch, Fault> {
    let options = CastOptions {
        safe: false,
        ..Default::default()
    };
    wanted.of(rows, |column, field| {
        cast_with_options(column, field.data_type(), &options).map_err(|e| {
            let what = plain(&e.to_string()).to_string();
            Fault::new(format!("column `{}`: {what}", field.name()))
        })
    })
}
