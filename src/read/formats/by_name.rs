//! Reads CSV, JSON and Arrow files by column name. DataFusion maps columns of these formats by
//! position; here each file is read with its own column names and mapped to the columns of the
//! table. Columns that a file lacks are null.

use crate::read::formats::arrow_ipc;
use crate::read::formats::csv;
use crate::read::formats::csv::CsvRows;
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fault::Fault;
use crate::read::formats::fill_values::FillValues;
use crate::read::formats::format;
use crate::read::formats::json;
use crate::read::formats::json::JsonRows;
use crate::read::formats::pieces;
use crate::read::formats::text;
use crate::read::formats::text::{TextRows, Wanted, batches};
use crate::read::lake::declared::in_own_types;
use crate::read::lake::frozen::ListedFiles;
use crate::store::location::location;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroupPartitioner, FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// DataFusion's reader of a format other than Parquet.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    format: format::Format,
    dialect: Dialect,
    listed: ListedFiles,
    /// The schema of each inspected file, and for Arrow files whether they have a footer.
    known: Arc<Mutex<HashMap<Path, (SchemaRef, bool)>>>,
    /// The columns that are used only as coordinates and weights, which may be rounded.
    may_round: Arc<BTreeSet<String>>,
    /// The columns of Arrow files that stay in the types of each file.
    by_file: Arc<BTreeSet<String>>,
    /// The columns of text files that are shown as they are written.
    shown: Arc<BTreeSet<String>>,
}

impl Named {
    /// A reader of `format`, which must not be Parquet.
    pub(crate) fn new(format: format::Format, dialect: Dialect, listed: &ListedFiles) -> Named {
        Named {
            format,
            dialect,
            listed: listed.clone(),
            known: Arc::default(),
            may_round: Arc::default(),
            by_file: Arc::default(),
            shown: Arc::default(),
        }
    }

    /// The same reader, which rounds numbers of some columns to doubles.
    pub(crate) fn rounding(&self, columns: BTreeSet<String>) -> Named {
        Named {
            may_round: Arc::new(columns),
            ..self.clone()
        }
    }

    /// The same reader, which leaves some columns of Arrow files in the types of each file.
    pub(crate) fn with_own_types(&self, columns: &Arc<BTreeSet<String>>) -> Named {
        Named {
            by_file: Arc::clone(columns),
            ..self.clone()
        }
    }

    /// The same reader, which makes nothing null and gives the values of some columns as they are
    /// written in the files: texts of JSON have their quotes.
    pub(crate) fn showing(&self, columns: &BTreeSet<String>) -> Named {
        Named {
            dialect: Dialect {
                null: FillValues::default(),
                types: BTreeMap::new(),
                ..self.dialect.clone()
            },
            shown: Arc::new(columns.clone()),
            ..self.clone()
        }
    }

    /// Whether numbers are parsed from text.
    pub(crate) fn is_text(&self) -> bool {
        self.format.is_text()
    }

    /// The schema of a file, cached.
    async fn columns(&self, store: &dyn ObjectStore, file: &Path) -> Result<(SchemaRef, bool)> {
        if let Some(known) = self.known().get(file).cloned() {
            return Ok(known);
        }
        let found = self.probe(store, file).await?;
        self.known().insert(file.clone(), found.clone());
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Path, (SchemaRef, bool)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn probe(&self, store: &dyn ObjectStore, file: &Path) -> Result<(SchemaRef, bool)> {
        if self.format == format::Format::Arrow {
            return arrow_ipc::columns(store, file).await;
        }
        let compression = self.dialect.compression(file.as_ref());
        let pieces = pieces::open(store, file, None, compression).await?;
        let columns = match self.format {
            format::Format::Json => json::columns(pieces, &self.dialect).await,
            _ => csv::columns(pieces, file.as_ref(), &self.dialect).await,
        };
        let columns = columns.map_err(|e| match e {
            DataFusionError::IoError(e) => Fault::new(text::unpacked(&e)).into(),
            e => e,
        })?;
        Ok((Arc::new(columns), false))
    }

    fn is_compressed(&self, file: &PartitionedFile) -> bool {
        let name = file.object_meta.location.as_ref();
        self.format != format::Format::Arrow
            && self.dialect.compression(name) != format::Compression::None
    }
}

#[async_trait]
impl FileFormat for Named {
    fn get_ext(&self) -> String {
        self.format.name().into()
    }

    fn get_ext_with_compression(&self, packed: &FileCompressionType) -> Result<String> {
        use datafusion::common::GetExt;
        Ok(format!("{}{}", self.format.name(), packed.get_ext()))
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        _: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        files: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        // Merging compares all names.
        if let [file] = files {
            return Ok(self.columns(store.as_ref(), &file.location).await?.0);
        }
        let mut schemas = Vec::with_capacity(files.len());
        for file in files {
            let (schema, _) = self.columns(store.as_ref(), &file.location).await?;
            schemas.push(schema.as_ref().clone());
        }
        Ok(Arc::new(Schema::try_merge(schemas)?))
    }

    async fn infer_stats(
        &self,
        _: &dyn Session,
        _: &Arc<dyn ObjectStore>,
        table: SchemaRef,
        _: &ObjectMeta,
    ) -> Result<Statistics> {
        Ok(Statistics::new_unknown(&table))
    }

    async fn create_physical_plan(
        &self,
        _: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(DataSourceExec::from_data_source(config))
    }

    fn file_source(&self, table: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(NamedSource {
            named: self.clone(),
            projection: SplitProjection::unprojected(&table),
            table,
            rows: 8192,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

/// The columns of the files of a table.
#[derive(Clone)]
struct NamedSource {
    named: Named,
    table: TableSchema,
    projection: SplitProjection,
    /// Rows per batch.
    rows: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl FileSource for NamedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let columns = self.table.file_schema();
        let wanted = columns.project(&self.projection.file_indices)?;
        let opener = Arc::new(NamedOpener {
            named: self.named.clone(),
            root: config.object_store_url.as_str().to_string(),
            store,
            wanted: Arc::new(wanted),
            rows: self.rows,
        });
        ProjectionOpener::try_new(self.projection.clone(), opener, columns)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table
    }

    fn with_batch_size(&self, rows: usize) -> Arc<dyn FileSource> {
        Arc::new(NamedSource {
            rows,
            ..self.clone()
        })
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let projection = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table.file_schema(), &projection);
        Ok(Some(Arc::new(NamedSource {
            projection,
            ..self.clone()
        })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.named.format.name()
    }

    fn repartitioned(
        &self,
        partitions: usize,
        min_bytes: usize,
        ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        let is_whole = |file: &PartitionedFile| {
            self.named.is_compressed(file) || self.named.listed.is_whole(&file.object_meta.location)
        };
        let mut files = config.file_groups.iter().flat_map(|group| group.iter());
        if files.any(is_whole) {
            return Ok(None);
        }
        let groups = FileGroupPartitioner::new()
            .with_target_partitions(partitions)
            .with_repartition_file_min_size(min_bytes)
            .with_preserve_order_within_groups(ordering.is_some())
            .repartition_file_groups(&config.file_groups);
        Ok(groups.map(|groups| {
            let mut config = config.clone();
            config.file_groups = groups;
            config
        }))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        datafusion::physical_plan::apply_expression_roots(self.projection.source.iter(), f)
    }
}

/// Opens files or parts of them.
#[derive(Clone)]
struct NamedOpener {
    named: Named,
    store: Arc<dyn ObjectStore>,
    /// The URL of the store.
    root: String,
    /// The wanted columns of the table.
    wanted: SchemaRef,
    rows: usize,
}

impl FileOpener for NamedOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let opener = self.clone();
        Ok(Box::pin(async move {
            let path = file.object_meta.location.clone();
            let shown = location(&opener.root, &path);
            let size = file.object_meta.size;
            let range = file.range.as_ref();
            let range = range.map(|range| range.start.max(0) as u64..range.end.max(0) as u64);
            let range = range.filter(|range| range.start > 0 || range.end < size);
            let named = |e: DataFusionError| in_file(e, &shown);
            let store = opener.store.as_ref();
            let (columns, has_footer) =
                (opener.named.columns(store, &path).await).map_err(named)?;
            let may_round = Arc::clone(&opener.named.may_round);
            let by_file = &opener.named.by_file;
            let of_table = if by_file.is_empty() {
                Arc::clone(&opener.wanted)
            } else {
                in_own_types(&opener.wanted, &columns, by_file)
            };
            let wanted = Wanted::new(columns, of_table).rounding(may_round);
            if opener.named.format == format::Format::Arrow {
                let is_first = range.as_ref().is_none_or(|range| range.start == 0);
                return opener
                    .arrow(file, wanted, has_footer, is_first, shown)
                    .await;
            }
            opener.text(&path, wanted, range, shown).await
        }))
    }
}

type Batches = futures::stream::BoxStream<'static, Result<arrow::array::RecordBatch>>;

impl NamedOpener {
    async fn arrow(
        &self,
        mut file: PartitionedFile,
        wanted: Wanted,
        has_footer: bool,
        is_first: bool,
        shown: String,
    ) -> Result<Batches> {
        if !has_footer {
            // A stream does not say where its batches start, so its first part reads all of it.
            if !is_first {
                return Ok(futures::stream::empty().boxed());
            }
            file.range = None;
        }
        let store = Arc::clone(&self.store);
        let opener = arrow_ipc::opener(store, has_footer, wanted.positions());
        let opened = opener.open(file)?.await;
        let read = opened.map_err(|e| in_file(e, &shown))?;
        let typed = read.map(move |rows| {
            let rows = rows.map_err(|e| in_file(e, &shown))?;
            arrow_ipc::typed(&rows, &wanted)
                .map_err(|fault| DataFusionError::from(fault.of(&shown)))
        });
        Ok(typed.boxed())
    }

    async fn text(
        &self,
        path: &Path,
        wanted: Wanted,
        range: Option<Range<u64>>,
        shown: String,
    ) -> Result<Batches> {
        let name = path.as_ref();
        let is_start = range.as_ref().is_none_or(|range| range.start == 0);
        let dialect = &self.named.dialect;
        let rows: Box<dyn TextRows> = match self.named.format {
            format::Format::Json => {
                let shown = &self.named.shown;
                Box::new(JsonRows::new(wanted, self.rows, dialect, shown))
            }
            _ => {
                let rows = CsvRows::new(wanted, name, dialect, is_start, self.rows);
                Box::new(rows.map_err(|fault| fault.of(&shown))?)
            }
        };
        let compression = dialect.compression(name);
        let is_part = range.is_some();
        let pieces = pieces::open(self.store.as_ref(), path, range, compression).await?;
        let (listed, path) = (self.named.listed.clone(), path.clone());
        let wrong = move |mut fault: Fault| {
            // The fault may come from a row that continues past the end of the part: a retry reads
            // the file in one part.
            if is_part {
                listed.read_whole(&path);
                fault.line = None;
            }
            fault.of(&shown)
        };
        Ok(batches(pieces, rows, wrong))
    }
}

/// Adds the file to an error of the engine. Errors of the store stay as they are.
fn in_file(e: DataFusionError, shown: &str) -> DataFusionError {
    match e {
        DataFusionError::External(e) => match e.downcast::<Fault>() {
            Ok(fault) => fault.of(shown).into(),
            Err(e) => DataFusionError::External(e),
        },
        DataFusionError::ArrowError(e, _) => Fault::from(*e).of(shown).into(),
        e => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pipeline::Pipeline;
    use crate::read::lake;
    use crate::read::lake::reopen;
    use crate::read::lake::{Lake, Resources};
    use crate::store::Stores;
    use arrow::array::{AsArray, RecordBatch};
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::collections::BTreeMap;

    /// A lake with one text file, which is split into parts wherever possible.
    async fn opened(
        folder: &std::path::Path,
        name: &str,
        text: &str,
    ) -> crate::error::Result<Lake> {
        std::fs::write(folder.join(name), text).unwrap();
        let toml = format!(
            "[job]\nname='j'\noutput='o'\n[tables.t]\npath='{}/{name}'\n[transitions]\nsql='s'\nsource='a'\ntarget='b'\n[[fit]]\nname='f'\nmethod='dbmr'\nrank=1\n",
            folder.display()
        );
        let spec = Pipeline::parse(&toml, "p", &[], &|_| None).unwrap();
        let source = spec.tables["t"].source("t");
        let lake = lake::open(&[source], &RESOURCES, &Stores::default()).await?;
        Ok(in_parts(lake).await)
    }

    const RESOURCES: Resources = Resources {
        threads: 4,
        memory_bytes: None,
    };

    async fn in_parts(lake: Lake) -> Lake {
        let least = "SET datafusion.optimizer.repartition_file_min_size = 1";
        lake.context.sql(least).await.unwrap();
        lake
    }

    /// The same tables as another process opens them.
    async fn reopened(lake: &Lake) -> Lake {
        let tables = postcard::to_stdvec(&lake.tables).unwrap();
        let tables = postcard::from_bytes(&tables).unwrap();
        in_parts(reopen::reopen(tables, &RESOURCES, &Stores::default()).unwrap()).await
    }

    /// The columns `k` and `s` of a file of text.
    fn text_rows(name: &str) -> Box<dyn TextRows> {
        let field = |name, of_type| arrow::datatypes::Field::new(name, of_type, true);
        let columns = vec![
            field("k", arrow::datatypes::DataType::Int64),
            field("s", arrow::datatypes::DataType::Utf8),
        ];
        let columns = Arc::new(Schema::new(columns));
        let wanted = Wanted::new(Arc::clone(&columns), columns);
        match name {
            "x.json" => {
                let none = BTreeSet::new();
                Box::new(JsonRows::new(wanted, 16_384, &Dialect::default(), &none))
            }
            _ => Box::new(CsvRows::new(wanted, name, &Dialect::default(), true, 16_384).unwrap()),
        }
    }

    #[test]
    fn rows_without_end_are_refused() {
        let piece = vec![b'y'; 1 << 20];
        let quotes = vec![b'"'; 1 << 20];
        for (name, start, piece, line) in [
            ("x.csv", "k,s\n1,a\n2,", &piece, 3),
            ("x.csv", "k,s\n1,a\n2,\"b\nc", &piece, 3),
            ("x.csv", "k,s\n1,a\n2,\"", &quotes, 3),
            (
                "x.json",
                "{\"k\": 1, \"s\": \"a\"}\n{\"k\": 1, \"s\": \"",
                &piece,
                2,
            ),
        ] {
            let mut rows = text_rows(name);
            rows.push(start.as_bytes().to_vec().into()).unwrap();
            let mut pushed = 0;
            let fault = loop {
                pushed += 1;
                if let Err(fault) = rows.push(piece.clone().into()) {
                    break fault;
                }
            };
            assert_eq!((pushed, fault.line), (64, Some(line)), "{start}");
            assert!(fault.what.contains("longer than 64 MiB"), "{}", fault.what);
        }
    }

    #[test]
    fn batches_of_long_rows_are_small() {
        let long = "y\n".repeat(50_000);
        for name in ["x.csv", "x.json"] {
            let mut rows = text_rows(name);
            let mut batches = Vec::new();
            let row = |k: i64| match name {
                "x.csv" => format!("{k},\"{long}\"\r\n"),
                _ => format!("{}\n", serde_json::json!({ "k": k, "s": long })),
            };
            let text = (0..300).map(row).collect::<String>();
            let text = if name == "x.csv" {
                format!("k,s\r\n{text}")
            } else {
                text
            };
            for piece in text.as_bytes().chunks(256 << 10) {
                batches.extend(rows.push(piece.to_vec().into()).unwrap());
            }
            batches.extend(rows.finish().unwrap());
            let most = batches.iter().map(RecordBatch::num_rows).max();
            assert!(most.is_some_and(|most| most < 100), "{name}: {most:?}");
            let keys = batches.iter().flat_map(|batch| {
                let keys = batch.column(0).as_primitive::<Int64Type>();
                keys.values().to_vec()
            });
            assert!(keys.eq(0..300), "{name}");
        }
    }

    type Values = Vec<(i64, String)>;

    /// The rows of each stream.
    async fn rows(lake: &Lake) -> Result<Vec<Values>, String> {
        let none = BTreeMap::new();
        let frame = lake
            .query("SELECT k, s FROM t WHERE k >= 0", &none)
            .await
            .map_err(|e| e.to_string())?;
        lake.each_stream(frame, |_| {
            let push = |batch: &RecordBatch, all: &mut Values| {
                let keys = batch.column(0).as_primitive::<Int64Type>();
                let texts = batch.column(1).as_string::<i32>();
                all.extend((0..batch.num_rows()).map(|at| {
                    let text = texts.value(at).to_string();
                    (keys.value(at), text)
                }));
                Ok(())
            };
            Ok((Values::new(), push))
        })
        .await
        .map_err(|stop| format!("{stop:?}"))
    }

    fn csv(values: &Values, delimiter: char) -> String {
        let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
        let line = |(k, text): &(i64, String)| format!("{k}{delimiter}{}\n", quoted(text));
        format!("k{delimiter}s\n") + &values.iter().map(line).collect::<String>()
    }

    fn json(values: &Values) -> String {
        let row = |(k, text): &(i64, String)| {
            let row = serde_json::json!({ "s": text, "k": k });
            serde_json::to_string_pretty(&row).unwrap() + "\n"
        };
        values.iter().map(row).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Rows that continue past the end of a part are read once and in order, wherever the file
        /// is split.
        #[test]
        fn rows_may_have_line_breaks(
            texts in prop::collection::vec(
                select(vec!["a", "a\nb", "\n", "1,x\n2,y\n3,z", "\"", "a\"\n,\"b", "5\"\n"]),
                1..60,
            ),
            name in select(vec!["t.csv", "t.tsv", "t.json"]),
        ) {
            let texts = texts.into_iter().map(str::to_string);
            let values: Values = (0..).zip(texts).collect();
            let text = match name {
                "t.csv" => csv(&values, ','),
                "t.tsv" => csv(&values, '\t'),
                _ => json(&values),
            };
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let (found, again) = runtime.block_on(async {
                let folder = tempfile::tempdir().unwrap();
                let lake = opened(folder.path(), name, &text).await.unwrap();
                (rows(&lake).await, rows(&reopened(&lake).await).await)
            });
            prop_assert_eq!(found.map(|streams| streams.concat()), Ok(values.clone()));
            prop_assert_eq!(again.map(|streams| streams.concat()), Ok(values));
        }
    }

    #[tokio::test]
    async fn large_files_are_read_in_parts_and_faults_have_the_lines_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let values: Values = (0..5000).map(|k| (k, format!("s{}", k % 7))).collect();
        let lines = |values: &Values| -> String {
            let row = |(k, text): &(i64, String)| format!("{{\"s\": \"{text}\", \"k\": {k}}}\n");
            values.iter().map(row).collect()
        };
        for (name, text) in [("t.csv", csv(&values, ',')), ("t.json", lines(&values))] {
            let lake = opened(folder.path(), name, &text).await.unwrap();
            let streams = rows(&lake).await.unwrap();
            let with_rows = streams.iter().filter(|rows| !rows.is_empty()).count();
            assert_eq!(with_rows, 4, "{name}");
            assert_eq!(streams.concat(), values, "{name}");
        }
        let bad = csv(&values, ',').replace("\n4000,", "\nx,");
        let lake = opened(folder.path(), "t.csv", &bad).await.unwrap();
        let error = rows(&lake).await.unwrap_err();
        assert!(error.contains("t.csv, line 4002: column `k`"), "{error}");
        let bad = lines(&values).replace(": 4000}", ": 4000.5}");
        let lake = opened(folder.path(), "t.json", &bad).await.unwrap();
        let error = rows(&lake).await.unwrap_err();
        assert!(error.contains("t.json, line 4001: column `k`"), "{error}");
    }
}
