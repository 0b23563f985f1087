//! Finds the damaged file and column that the error of a query over many files does not name.

use crate::read::formats::fault::plain;
use crate::read::lake::frozen::ListedFiles;
use crate::read::lake::panics::catch_panic;
use crate::store::location::location;
use crate::store::parquet::StoredFile;
use arrow::array::RecordBatch;
use datafusion::datasource::file_format::parquet::transform_schema_to_view;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelector};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use std::sync::Arc;

/// Decodes the most recently read Parquet files, latest first, and describes the first column that
/// cannot be decoded. `None` if there is none, or if a store fails.
pub(crate) async fn find(context: &SessionContext, listed: &ListedFiles) -> Option<String> {
    for (root, path) in listed.latest() {
        let url = ListingTableUrl::parse(&root).ok()?;
        let store = context.runtime_env().object_store(&url).ok()?;
        let file = || StoredFile::new(store.clone(), path.clone());
        let shown = location(&root, &path);
        // A file without a footer has another format.
        let Ok(footer) = file().get_metadata(None).await else {
            continue;
        };
        let schema = footer.file_metadata().schema_descr();
        let n_rows = footer.file_metadata().num_rows();
        let columns = schema.root_schema().get_fields().iter().enumerate();
        // A reader that skips rows trusts headers of pages that a reader of all rows ignores.
        let reads = columns.flat_map(|column| [(column, false), (column, true)]);
        for ((at, column), skips) in reads {
            let wanted = if skips { n_rows - n_rows / 2 } else { n_rows };
            let decoded = async {
                // The reader of views checks lengths that the reader of plain texts ignores, and
                // queries read views.
                let options = ArrowReaderOptions::new();
                let stored = ArrowReaderMetadata::try_new(footer.clone(), options.clone())?;
                let views = Arc::new(transform_schema_to_view(stored.schema()));
                let read =
                    ArrowReaderMetadata::try_new(footer.clone(), options.with_schema(views))?;
                let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(file(), read);
                let mask = ProjectionMask::roots(builder.parquet_schema(), [at]);
                let mut builder = builder.with_projection(mask);
                if skips {
                    let selectors = [
                        RowSelector::skip((n_rows - wanted) as usize),
                        RowSelector::select(wanted as usize),
                    ];
                    builder = builder.with_row_selection(selectors.to_vec().into());
                }
                let batches = builder.build()?;
                let add = |rows, batch: RecordBatch| async move { Ok(rows + batch.num_rows()) };
                batches.try_fold(0, add).await
            };
            // The reader panics on some footers.
            let why = match catch_panic(decoded).await {
                // A page may claim another number of rows than it has.
                Some(Ok(rows)) if rows as i64 != wanted => {
                    format!(" (it has {rows} rows, and the file says {wanted})")
                }
                // If the bytes cannot be fetched, the store's own error is reported.
                Some(Ok(_) | Err(ParquetError::External(_))) => continue,
                Some(Err(e)) => format!(" ({})", plain(&e.to_string())),
                None => String::new(),
            };
            let column = column.name();
            return Some(format!(
                "column `{column}` of {shown} cannot be decoded{why}; restore the file, or leave it out"
            ));
        }
    }
    None
}
