//! Reads Parquet files with DataFusion, and limits what their statistics may decide.
//!
//! Writers leave NaN out of minimum and maximum, so those of floating columns say nothing of such
//! rows. DataFusion takes a column whose minimum and maximum are equal for constant, answers `max`
//! from statistics, and skips files, row groups and pages by them. Here all of them only estimate,
//! and those of floating columns are dropped. [`floats::scanned`] keeps filters on floating columns
//! from the statistics of row groups. Page indexes and Bloom filters are not read: no checksum
//! covers them, and a damaged one would drop rows.

use crate::read::sql::floats;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::parquet::transform_schema_to_view;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_plan::ExecutionPlan;
use object_store::{ObjectMeta, ObjectStore};
use parquet::file::metadata::PageIndexPolicy;
use std::collections::HashMap;
use std::sync::Arc;

/// The reader of Parquet files.
#[derive(Debug)]
pub(crate) struct Parquet {
    reader: ParquetFormat,
}

impl Default for Parquet {
    fn default() -> Parquet {
        Parquet::new(TableParquetOptions::default())
    }
}

impl Parquet {
    /// A reader that skips nothing by statistics of row groups, for files whose columns do not
    /// pass [`floats::scanned`].
    pub(crate) fn without_pruning() -> Parquet {
        let mut options = TableParquetOptions::default();
        options.global.pruning = false;
        Parquet::new(options)
    }

    fn new(mut options: TableParquetOptions) -> Parquet {
        options.global.enable_page_index = false;
        options.global.bloom_filter_on_read = false;
        Parquet {
            reader: ParquetFormat::default().with_options(options),
        }
    }
}

/// The footer of a file, which the session caches without page indexes.
fn footer<'a>(
    state: &dyn Session,
    store: &'a dyn ObjectStore,
    file: &'a ObjectMeta,
) -> DFParquetMetadata<'a> {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    DFParquetMetadata::new(store, file)
        .with_file_metadata_cache(Some(cache))
        .with_page_index_policy(Some(PageIndexPolicy::Skip))
}

/// What statistics may say of a column. Only the number of rows is exact.
fn estimates(column: ColumnStatistics, of: &DataType) -> ColumnStatistics {
    if of.is_nested() {
        return ColumnStatistics {
            byte_size: column.byte_size.to_inexact(),
            ..ColumnStatistics::new_unknown()
        };
    }
    let mut column = column.to_inexact();
    if floats::has_floats(of) {
        (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
        column.distinct_count = Precision::Absent;
    }
    column
}

#[async_trait]
impl FileFormat for Parquet {
    fn get_ext(&self) -> String {
        self.reader.get_ext()
    }

    fn get_ext_with_compression(&self, packed: &FileCompressionType) -> Result<String> {
        self.reader.get_ext_with_compression(packed)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.reader.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        files: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let mut schemas = Vec::with_capacity(files.len());
        for file in files {
            let schema = footer(state, store.as_ref(), file).fetch_schema().await?;
            let fields = schema.fields().iter();
            let plain = fields.map(|f| f.as_ref().clone().with_metadata(HashMap::new()));
            schemas.push(Schema::new(plain.collect::<Vec<_>>()));
        }
        let schema = Schema::try_merge(schemas)?;
        Ok(Arc::new(transform_schema_to_view(&schema)))
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table: SchemaRef,
        file: &ObjectMeta,
    ) -> Result<Statistics> {
        let footer = footer(state, store.as_ref(), file);
        let mut known = footer.fetch_statistics(&table).await?;
        let columns = std::mem::take(&mut known.column_statistics).into_iter();
        let columns = columns
            .zip(table.fields())
            .map(|(column, field)| estimates(column, field.data_type()));
        known.column_statistics = columns.collect();
        Ok(known)
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.reader.create_physical_plan(state, config).await
    }

    fn file_source(&self, table: TableSchema) -> Arc<dyn FileSource> {
        self.reader.file_source(table)
    }
}
