//! A table of files as the engine reads it: exactly the listed files, each with the values of its
//! Hive folders.
//!
//! The engine lists nothing itself, so a file that appears during a run is not read. DataFusion's
//! own listing table is not used: it does not know null values in folder names, and reads files for
//! which a filter on such a column evaluates to null.

use crate::read::formats::by_name::Named;
use crate::read::formats::fault::Fault;
use crate::read::lake::declared::{ColumnRule, OwnTypes, in_own_types};
use crate::read::lake::exact::Rounded;
use crate::read::lake::files;
use crate::read::lake::merge::values;
use crate::read::lake::precision::Widened;
use crate::read::rows::doubles::warn_of_rounding;
use crate::read::sql::floats;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{
    ColumnStatistics, DFSchema, DataFusionError, Result, ScalarValue, Statistics, internal_err,
    project_schema,
};
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::listing::helpers::expr_applicable_for_cols;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr_adapter::PhysicalExprAdapterFactory;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A table of the listed files.
#[derive(Debug, Clone)]
pub(crate) struct TableOfFiles {
    root: ObjectStoreUrl,
    format: Arc<dyn FileFormat>,
    /// The columns of the files, without those of folders.
    of_files: SchemaRef,
    of_folders: Vec<FieldRef>,
    /// What the pipeline makes of the columns of the files; empty if nothing.
    rules: Vec<Option<Arc<ColumnRule>>>,
    /// The columns that files hold in several types, to which rules apply in the type of each file.
    by_file: Arc<BTreeSet<String>>,
    /// All columns as the files and folders have them.
    stored: SchemaRef,
    /// All columns.
    schema: SchemaRef,
    /// Ordered by name.
    files: Vec<PartitionedFile>,
    /// The statistics of each file, once they were read.
    known: Vec<OnceCell<Arc<Statistics>>>,
    /// The columns of doubles with a number that is no double.
    rounded: Vec<Rounded>,
    /// The columns that some files hold with less precision.
    widened: Vec<Widened>,
    /// The columns that are used only as coordinates and weights, which may be rounded.
    may_round: BTreeSet<String>,
    /// Whether scans leave NaN and zeros in the forms that they have in the files. Filters on
    /// floating columns then reach the files.
    keeps_forms: bool,
}

impl TableOfFiles {
    /// A table named `table`. Each file comes with its values of `of_folders`, the columns of Hive
    /// folders.
    ///
    /// # Errors
    /// A folder value that does not have the type of its column.
    pub(crate) fn new(
        table: &str,
        root: ObjectStoreUrl,
        format: Arc<dyn FileFormat>,
        of_files: Schema,
        of_folders: &[(String, DataType)],
        files: Vec<(ObjectMeta, &[Option<String>])>,
    ) -> Result<TableOfFiles> {
        let is_null = |at: usize| files.iter().any(|(_, values)| values[at].is_none());
        let columns = of_folders.iter().enumerate();
        let of_folders: Vec<FieldRef> = columns
            .map(|(at, (name, of_type))| Arc::new(Field::new(name, of_type.clone(), is_null(at))))
            .collect();
        let all = of_files.fields().iter().chain(&of_folders).cloned();
        let schema = Arc::new(Schema::new(all.collect::<Vec<_>>()));
        let value = |(field, value): (&FieldRef, &Option<String>)| match value {
            Some(value) => ScalarValue::try_from_string(value.clone(), field.data_type()),
            None => ScalarValue::try_from(field.data_type()),
        };
        let named = files.into_iter().map(|(meta, values)| {
            let mut file = PartitionedFile::from(meta);
            let values = of_folders.iter().zip(values).map(value);
            file.partition_values = values.collect::<Result<_>>()?;
            file.table_reference = Some(files::ident_reference(table));
            Ok(file)
        });
        let files = named.collect::<Result<Vec<_>>>()?;
        Ok(TableOfFiles {
            root,
            format,
            of_files: Arc::new(of_files),
            of_folders,
            rules: Vec::new(),
            by_file: Arc::default(),
            stored: Arc::clone(&schema),
            schema,
            known: files.iter().map(|_| OnceCell::new()).collect(),
            files,
            rounded: Vec::new(),
            widened: Vec::new(),
            may_round: BTreeSet::new(),
            keeps_forms: false,
        })
    }

    /// The same table, with a rule for some columns of the files. An empty list has none.
    pub(crate) fn with_rules(self, rules: Vec<Option<Arc<ColumnRule>>>) -> TableOfFiles {
        let fields = self.stored.fields().iter().enumerate();
        let fields = fields.map(|(at, field)| match rules.get(at).and_then(Option::as_ref) {
            Some(rule) => Arc::new(rule.field(field)),
            None => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        TableOfFiles {
            rules,
            schema,
            ..self
        }
    }

    /// The columns of the files, if the pipeline changes some of them.
    pub(crate) fn stored_files(&self) -> Option<&SchemaRef> {
        (!self.rules.is_empty()).then_some(&self.of_files)
    }

    /// The rule of the column at an index.
    pub(crate) fn rule(&self, at: usize) -> Option<&Arc<ColumnRule>> {
        self.rules.get(at)?.as_ref()
    }

    /// The same table, with columns that stay in the types of each file until their rules apply.
    pub(crate) fn with_own_types(self, columns: &BTreeSet<String>) -> TableOfFiles {
        let by_file = Arc::new(columns.clone());
        let format: Arc<dyn FileFormat> = match self.format.downcast_ref::<Named>() {
            Some(named) => Arc::new(named.with_own_types(&by_file)),
            None => Arc::clone(&self.format),
        };
        TableOfFiles {
            format,
            by_file,
            ..self
        }
    }

    /// The table in parts, in each of which all files hold a column in one type: that of `stored`.
    ///
    /// # Errors
    /// A file whose columns cannot be read.
    pub(crate) async fn by_types(&self, state: &dyn Session) -> Result<Vec<TableOfFiles>> {
        if self.by_file.is_empty() {
            return Ok(vec![self.clone()]);
        }
        let concurrency = state.config_options().execution.meta_fetch_concurrency;
        let own: Vec<SchemaRef> = stream::iter(0..self.files.len())
            .map(|at| self.own_columns(state, at))
            .buffered(concurrency.get())
            .try_collect()
            .await?;
        let mut parts: Vec<(SchemaRef, Vec<PartitionedFile>)> = Vec::new();
        for (file, own) in self.files.iter().zip(own) {
            let columns = in_own_types(&self.of_files, &own, &self.by_file);
            let columns = columns.fields().iter().map(|field| {
                let of = values(field.data_type());
                field
                    .as_ref()
                    .clone()
                    .with_data_type(of)
                    .with_nullable(true)
            });
            let columns = Arc::new(Schema::new(columns.collect::<Vec<_>>()));
            match parts.iter_mut().find(|(of, _)| *of == columns) {
                Some((_, files)) => files.push(file.clone()),
                None => parts.push((columns, vec![file.clone()])),
            }
        }
        let parts = parts.into_iter().map(|(of_files, files)| {
            let all = of_files.fields().iter().chain(&self.of_folders).cloned();
            let part = TableOfFiles {
                stored: Arc::new(Schema::new(all.collect::<Vec<_>>())),
                of_files,
                known: files.iter().map(|_| OnceCell::new()).collect(),
                files,
                ..self.clone()
            };
            part.with_own_types(&BTreeSet::new())
                .with_rules(self.rules.clone())
        });
        Ok(parts.collect())
    }

    /// The columns of a file, in its types.
    async fn own_columns(&self, state: &dyn Session, at: usize) -> Result<SchemaRef> {
        let store = state.runtime_env().object_store(&self.root)?;
        let file = std::slice::from_ref(&self.files[at].object_meta);
        self.format.infer_schema(state, &store, file).await
    }

    /// All columns as the files and folders have them.
    pub(crate) fn stored(&self) -> &SchemaRef {
        &self.stored
    }

    /// The same files without rules. Columns `texts` of text files are the texts in the files, and
    /// floating values have the forms of the files.
    pub(crate) fn without_rules(&self, texts: &BTreeSet<String>) -> TableOfFiles {
        let mut table = self.clone();
        if let Some(named) = self
            .format
            .downcast_ref::<Named>()
            .filter(|named| named.is_text())
        {
            table.format = Arc::new(named.showing(texts));
            let fields = self.stored.fields().iter().map(|field| {
                if !texts.contains(field.name()) {
                    return Arc::clone(field);
                }
                let field = field.as_ref().clone().with_data_type(DataType::Utf8);
                Arc::new(field.with_nullable(true))
            });
            let fields: Vec<FieldRef> = fields.collect();
            table.of_files = Arc::new(Schema::new(fields[..self.of_files.fields().len()].to_vec()));
            table.stored = Arc::new(Schema::new(fields));
        }
        table.known = table.files.iter().map(|_| OnceCell::new()).collect();
        table.rounded = Vec::new();
        table.keeps_forms = true;
        table.with_rules(Vec::new())
    }

    /// Whether the values of columns are parsed from text.
    pub(crate) fn is_text(&self) -> bool {
        let named = self.format.downcast_ref::<Named>();
        named.is_some_and(Named::is_text)
    }

    /// The filters that use only folder columns.
    pub(crate) fn filters_on_folders(&self, filters: &[Expr]) -> Vec<Expr> {
        let own = filters.iter().filter(|filter| self.is_of_folders(filter));
        own.cloned().collect()
    }

    /// The same table, with columns of doubles that have a number that is no double.
    pub(crate) fn with_rounded(self, rounded: Vec<Rounded>) -> TableOfFiles {
        TableOfFiles { rounded, ..self }
    }

    /// The same table, with columns that some files hold with less precision.
    pub(crate) fn with_widened(self, widened: Vec<Widened>) -> TableOfFiles {
        TableOfFiles { widened, ..self }
    }

    /// The column with a name, if some files hold it with less precision.
    pub(crate) fn widened(&self, name: &str) -> Option<&Widened> {
        self.widened.iter().find(|widened| widened.is(name))
    }

    /// Whether a number of the files may be no double although its column is one of doubles.
    pub(crate) fn may_have_rounded(&self) -> bool {
        !self.rounded.is_empty() || self.is_text()
    }

    /// The same table, in which some columns may be rounded to doubles.
    pub(crate) fn rounding(&self, columns: BTreeSet<String>) -> TableOfFiles {
        let mut table = self.clone();
        if let Some(named) = self.format.downcast_ref::<Named>() {
            table.format = Arc::new(named.rounding(columns.clone()));
        }
        table.may_round = columns;
        table
    }

    /// Refuses numbers that are no doubles in columns that are read, unless they may be rounded.
    fn check_rounded(&self, projection: Option<&Vec<usize>>) -> Result<()> {
        for rounded in &self.rounded {
            let name = &rounded.column;
            let at = self.schema.index_of(name)?;
            if projection.is_some_and(|read| !read.contains(&at)) {
                continue;
            }
            if !self.may_round.contains(name) {
                return Err(Fault::new(rounded.refused()).into());
            }
            warn_of_rounding(name, &rounded.value);
        }
        Ok(())
    }

    /// Whether a filter uses only folder columns.
    fn is_of_folders(&self, filter: &Expr) -> bool {
        let names: Vec<&str> = self.of_folders.iter().map(|f| f.name().as_str()).collect();
        !names.is_empty() && expr_applicable_for_cols(&names, filter)
    }

    /// Indices of the files that pass filters on folder columns. A file for which the filter is
    /// null does not pass.
    fn passing(&self, state: &dyn Session, filters: Vec<Expr>) -> Result<Vec<usize>> {
        let all = 0..self.files.len();
        let Some(filter) = conjunction(filters).filter(|_| !self.files.is_empty()) else {
            return Ok(all.collect());
        };
        let column = |at: usize| {
            let values = self
                .files
                .iter()
                .map(|file| file.partition_values[at].clone());
            ScalarValue::iter_to_array(values)
        };
        let columns = (0..self.of_folders.len())
            .map(column)
            .collect::<Result<_>>()?;
        let schema = Arc::new(Schema::new(self.of_folders.clone()));
        let values = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let filter = state.create_physical_expr(filter, &DFSchema::try_from(schema)?)?;
        let passes = filter.evaluate(&values)?.into_array(self.files.len())?;
        let passes = passes.as_boolean();
        let is_in = |at: &usize| passes.is_valid(*at) && passes.value(*at);
        Ok(all.filter(is_in).collect())
    }

    /// A file with the statistics of its columns, including folder columns.
    async fn with_statistics(&self, state: &dyn Session, at: usize) -> Result<PartitionedFile> {
        let mut file = self.files[at].clone();
        if !state.config().collect_statistics() {
            file.statistics = Some(Arc::new(Statistics::new_unknown(&self.stored)));
            return Ok(file);
        }
        let known = self.known[at].get_or_try_init(|| async {
            let store = state.runtime_env().object_store(&self.root)?;
            let (columns, meta) = (Arc::clone(&self.of_files), &file.object_meta);
            let mut known = self
                .format
                .infer_stats(state, &store, columns, meta)
                .await?;
            // Bounds of several types cannot be compared.
            let fields = self.of_files.fields().iter();
            for (column, field) in known.column_statistics.iter_mut().zip(fields) {
                if self.by_file.contains(field.name()) {
                    *column = ColumnStatistics::new_unknown();
                }
            }
            for value in &file.partition_values {
                known
                    .column_statistics
                    .push(of_folder(value, &known.num_rows));
            }
            Ok::<_, DataFusionError>(Arc::new(known))
        });
        file.statistics = Some(Arc::clone(known.await?));
        Ok(file)
    }
}

/// The statistics of a column that has one value per file.
fn of_folder(value: &ScalarValue, rows: &Precision<usize>) -> ColumnStatistics {
    if value.is_null() {
        return ColumnStatistics {
            null_count: *rows,
            ..ColumnStatistics::new_unknown()
        };
    }
    ColumnStatistics {
        null_count: Precision::Exact(0),
        max_value: Precision::Exact(value.clone()),
        min_value: Precision::Exact(value.clone()),
        distinct_count: Precision::Exact(1),
        ..ColumnStatistics::new_unknown()
    }
}

#[async_trait]
impl TableProvider for TableOfFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.check_rounded(projection)?;
        let passing = self.passing(state, self.filters_on_folders(filters))?;
        if passing.is_empty() {
            let columns = project_schema(&self.schema, projection)?;
            return Ok(Arc::new(EmptyExec::new(columns)));
        }
        let concurrency = state.config_options().execution.meta_fetch_concurrency;
        let files: Vec<_> = stream::iter(passing)
            .map(|at| self.with_statistics(state, at))
            .buffered(concurrency.get())
            .try_collect()
            .await?;
        let known = files.iter().filter_map(|file| file.statistics.as_deref());
        let known = Statistics::try_merge_iter(known, &self.stored)?;
        // Streams read files in order of name, so that trajectories continue from one file to the
        // next. Declared sort orders of files are ignored.
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let columns = TableSchema::builder(Arc::clone(&self.of_files))
            .with_table_partition_cols(self.of_folders.clone())
            .build();
        let all = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        let declared = |at: usize, column| match self.rule(at) {
            Some(rule) => rule.over(column, &self.schema.fields()[at]),
            None => column,
        };
        let projection = if self.keeps_forms {
            ProjectionExprs::from_indices(&projection, &self.schema)
        } else {
            floats::scanned(&self.schema, projection.into_iter(), declared)
        };
        let source = self.format.file_source(columns);
        let Some(source) = source.try_pushdown_projection(&projection)? else {
            return internal_err!("{} cannot select columns", source.file_type());
        };
        let own_types = (!self.by_file.is_empty()).then(|| {
            let columns = Arc::clone(&self.by_file);
            Arc::new(OwnTypes(columns)) as Arc<dyn PhysicalExprAdapterFactory>
        });
        let scan = FileScanConfigBuilder::new(self.root.clone(), source)
            .with_expr_adapter(own_types)
            .with_file_groups(groups)
            .with_statistics(known)
            .with_limit(limit)
            .build();
        self.format.create_physical_plan(state, scan).await
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let pushed = filters.iter().map(|filter| {
            if self.is_of_folders(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Inexact
            }
        });
        Ok(pushed.collect())
    }
}
