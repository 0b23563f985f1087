//! Arrow files, with a footer or as streams → their schema, and readers of selected columns.

use crate::read::formats::fault::{Fault, plain};
use crate::read::formats::format::Compression;
use crate::read::formats::pieces;
use crate::read::formats::text::Wanted;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{StreamDecoder, read_footer_length};
use arrow::ipc::root_as_footer;
use datafusion::common::DataFusionError;
use datafusion::datasource::physical_plan::{ArrowOpener, FileOpener};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use std::sync::Arc;

/// First bytes of a file with a footer.
const MAGIC: &[u8] = b"ARROW1";
/// Bytes at the end of a file after the footer: the length of the footer, and the magic bytes.
const END: u64 = 10;

/// The schema of a file, and whether it has a footer.
///
/// # Errors
/// A damaged footer, or a stream that ends before its schema.
pub(crate) async fn columns(
    store: &dyn ObjectStore,
    file: &Path,
) -> Result<(SchemaRef, bool), DataFusionError> {
    let mut pieces = pieces::open(store, file, None, Compression::None).await?;
    let mut head = Vec::new();
    while head.len() < MAGIC.len()
        && let Some(piece) = pieces.try_next().await?
    {
        head.extend_from_slice(&piece);
    }
    if head.starts_with(MAGIC) {
        drop(pieces);
        return Ok((of_footer(store, file).await?, true));
    }
    let mut decoder = StreamDecoder::new();
    loop {
        let mut buffer = Buffer::from_vec(head);
        // Only the schema is needed, so an error after it is ignored.
        let decoded = decoder.decode(&mut buffer);
        if let Some(schema) = decoder.schema() {
            return Ok((schema, false));
        }
        decoded.map_err(Fault::from)?;
        let Some(piece) = pieces.try_next().await? else {
            let what = "it ends before its schema";
            return Err(Fault::new(what).into());
        };
        head = piece.to_vec();
    }
}

async fn of_footer(store: &dyn ObjectStore, file: &Path) -> Result<SchemaRef, DataFusionError> {
    let damaged = || Fault::new("its footer is damaged");
    let tail = async |length: u64| {
        let options = GetOptions {
            range: Some(GetRange::Suffix(length)),
            ..Default::default()
        };
        store.get_opts(file, options).await?.bytes().await
    };
    let end = tail(END)
        .await?
        .as_ref()
        .try_into()
        .map_err(|_| damaged())?;
    let length = read_footer_length(end).map_err(|_| damaged())?;
    let footer = tail(END + length as u64).await?;
    let footer = footer.get(..length).ok_or_else(damaged)?;
    let footer = root_as_footer(footer).map_err(|_| damaged())?;
    let schema = footer.schema().ok_or_else(damaged)?;
    Ok(Arc::new(fb_to_schema(schema)))
}

/// A reader of the columns at `positions` of files of a store.
pub(crate) fn opener(
    store: Arc<dyn ObjectStore>,
    has_footer: bool,
    positions: Vec<usize>,
) -> Arc<dyn FileOpener> {
    Arc::new(if has_footer {
        ArrowOpener::new_file_opener(store, Some(positions))
    } else {
        ArrowOpener::new_stream_file_opener(store, Some(positions))
    })
}

/// The wanted columns of rows as they were read.
///
/// # Errors
/// A value that does not fit the type of its column.
pub(crate) fn typed(rows: &RecordBatch, wanted: &Wanted) -> Result<RecordBatch, Fault> {
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
