//! Finds the damaged file and column that the error of a query over many files does not name.

use crate::read::formats::fault::plain;
use crate::read::lake::frozen::ListedFiles;
use crate::read::lake::panics::catch_panic;
use crate::store::location::location;
use crate::store::parquet::StoredFile;
use arrow::array::RecordBatch;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;

/// Decodes the most recently read Parquet files, latest first, and describes the first column that
/// cannot be decoded. `None` if there is none, or if a store fails.
pub async fn find(context: &SessionContext, listed: &ListedFiles) -> Option<String> {
    for (root, path) in listed.latest() {
        let url = ListingTableUrl::parse(&root).ok()?;
        let store = context.runtime_env().object_store(&url).ok()?;
        let file = || StoredFile {
            store: store.clone(),
            path: path.clone(),
        };
        let shown = location(&root, &path);
        // A file without a footer has another format.
        let Ok(footer) = file().get_metadata(None).await else {
            continue;
        };
        let schema = footer.file_metadata().schema_descr();
        for (at, column) in schema.root_schema().get_fields().iter().enumerate() {
            let decoded = async {
                let builder = ParquetRecordBatchStreamBuilder::new(file()).await?;
                let mask = ProjectionMask::roots(builder.parquet_schema(), [at]);
                let batches = builder.with_projection(mask).build()?;
                let add = |rows, batch: RecordBatch| async move { Ok(rows + batch.num_rows()) };
                batches.try_fold(0, add).await
            };
            // The reader panics on some footers.
            let why = match catch_panic(decoded).await {
                // A page may claim another number of rows than it has.
                Some(Ok(rows)) if rows as i64 != footer.file_metadata().num_rows() => {
                    format!(
                        " (it has {rows} rows, and the file says {})",
                        footer.file_metadata().num_rows()
                    )
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
