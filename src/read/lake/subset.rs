//! Restricts a query to some files of its table.
//!
//! In: a planned query. Out: whether it maps the rows of one table one by one, so that the rows of
//! some files are a subset of all result rows; and the same query over some files or parts of
//! files, with unchanged columns and types.

use crate::error::{Error, Kind, Result};
use crate::read::lake::provider::TableOfFiles;
use crate::store::location::location;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The table that a query maps row by row.
///
/// # Errors
/// Why the query does not map one table row by row.
pub(crate) fn one_table(frame: &DataFrame) -> Result<String, String> {
    let mut tables = Vec::new();
    let mut reason = None;
    let walked = frame.logical_plan().apply(|node| {
        reason = match node {
            LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
                None
            }
            // The order of rows does not matter, but a limit does.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => None,
            LogicalPlan::TableScan(scan) => {
                tables.push(scan.table_name.table().to_string());
                let files =
                    source_as_provider(&scan.source).is_ok_and(|table| table.is::<TableOfFiles>());
                (!files).then(|| format!("`{}` is not a table of files", scan.table_name))
            }
            other => Some(format!("the SQL has {}", step(other))),
        };
        if reason.is_none() {
            node.apply_expressions(|e| {
                reason = depends(e);
                Ok(until(reason.is_some()))
            })?;
        }
        Ok(until(reason.is_some()))
    });
    match (walked, reason, &tables[..]) {
        (_, Some(reason), _) => Err(reason),
        (Err(e), ..) => Err(e.strip_backtrace()),
        (_, _, [one]) => Ok(one.clone()),
        (_, _, _) => Err("the SQL reads no table".into()),
    }
}

/// The next step of a walk that ends when something is found.
pub(crate) fn until(is_found: bool) -> TreeNodeRecursion {
    if is_found {
        return TreeNodeRecursion::Stop;
    }
    TreeNodeRecursion::Continue
}

/// Why an expression depends on more than its row; `None` if it does not.
fn depends(e: &Expr) -> Option<String> {
    let mut found = None;
    let walked = e.apply(|e| {
        found = match e {
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => {
                Some("the SQL has a subquery".to_string())
            }
            Expr::ScalarFunction(call)
                if call.func.signature().volatility != Volatility::Immutable =>
            {
                Some(format!("the SQL calls {}()", call.func.name()))
            }
            _ => None,
        };
        Ok(until(found.is_some()))
    });
    match walked {
        Ok(_) => found,
        Err(e) => Some(e.strip_backtrace()),
    }
}

/// The name of a step that combines rows.
fn step(node: &LogicalPlan) -> &'static str {
    match node {
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::Aggregate(_) => "an aggregate",
        LogicalPlan::Join(_) => "a join",
        LogicalPlan::Union(_) => "a union",
        LogicalPlan::Subquery(_) => "a subquery",
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => "a limit",
        LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => "rows of its own",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Unnest(_) => "an unnested column",
        LogicalPlan::RecursiveQuery(_) => "a recursive query",
        _ => "a step that may combine rows",
    }
}

/// Part `at` of `of` equal byte ranges of a file: the row groups that start in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// Index of the part, below `of`.
    pub at: u64,
    /// Number of parts.
    pub of: u64,
}

impl FilePart {
    /// The only part of an undivided file.
    pub const WHOLE: FilePart = FilePart { at: 0, of: 1 };

    /// Byte range of the part in a file of `size` bytes.
    fn bytes(self, size: u64) -> Range<i64> {
        let begin = |at: u64| (u128::from(size) * u128::from(at) / u128::from(self.of)) as i64;
        begin(self.at)..begin(self.at + 1)
    }
}

/// The query restricted to the files at `locations`, as in
/// [`InputFile::location`](crate::read::lake::files::InputFile::location).
///
/// # Errors
/// [`Kind::Bug`] if the query cannot be planned again.
pub(crate) fn over(frame: DataFrame, locations: HashSet<String>) -> Result<DataFrame> {
    narrowed(frame, Wanted::Files(locations))
}

/// The query restricted to one part of each file. The files must be Parquet.
///
/// # Errors
/// [`Kind::Bug`] if the query cannot be planned again.
pub(crate) fn over_part(frame: DataFrame, part: FilePart) -> Result<DataFrame> {
    narrowed(frame, Wanted::FilePart(part))
}

fn narrowed(frame: DataFrame, wanted: Wanted) -> Result<DataFrame> {
    let failed = |e: DataFusionError| {
        let what = "the query cannot be planned over some of its files";
        Error::with_source(Kind::Bug, what, e)
    };
    let (mut state, plan) = frame.into_parts();
    // Statistics would cover all files, and reading them opens each file.
    state
        .config_mut()
        .options_mut()
        .execution
        .collect_statistics = false;
    let plan = plan.transform_up(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        let table = source_as_provider(&scan.source)?;
        let wanted = wanted.clone();
        scan.source = provider_as_source(Arc::new(SomeFiles { table, wanted }));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    Ok(DataFrame::new(state, plan.map_err(failed)?.data))
}

/// A table of files that reads only the wanted ones.
#[derive(Debug)]
pub(crate) struct SomeFiles {
    table: Arc<dyn TableProvider>,
    wanted: Wanted,
}

impl SomeFiles {
    /// The whole table.
    pub(crate) fn whole(&self) -> Option<&TableOfFiles> {
        self.table.downcast_ref()
    }

    /// The same files of another form of the table.
    pub(crate) fn of(&self, table: TableOfFiles) -> SomeFiles {
        SomeFiles {
            table: Arc::new(table),
            wanted: self.wanted.clone(),
        }
    }
}

#[derive(Debug, Clone)]
enum Wanted {
    /// Files by location.
    Files(HashSet<String>),
    /// The same part of every file.
    FilePart(FilePart),
}

impl Wanted {
    /// The wanted part of a file, if any.
    fn of(&self, file: &PartitionedFile, store: &str) -> Option<PartitionedFile> {
        let meta = &file.object_meta;
        match self {
            Wanted::Files(locations) => locations
                .contains(&location(store, &meta.location))
                .then(|| file.clone()),
            Wanted::FilePart(part) => {
                let bytes = part.bytes(meta.size);
                Some(file.clone().with_range(bytes.start, bytes.end))
            }
        }
    }
}

#[async_trait]
impl TableProvider for SomeFiles {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let plan = self.table.scan(state, projection, filters, limit).await?;
        let Some(scan) = plan.downcast_ref::<DataSourceExec>() else {
            // No file passed the filters.
            return Ok(plan);
        };
        let Some(config) = scan.data_source().downcast_ref::<FileScanConfig>() else {
            let what = "a table of files is not read by a scan of files";
            return Err(DataFusionError::Internal(what.into()));
        };
        let store = config.object_store_url.as_str().to_string();
        let files: Vec<_> = config
            .file_groups
            .iter()
            .flat_map(|group| group.iter())
            .filter_map(|file| self.wanted.of(file, &store))
            .collect();
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(plan.schema())));
        }
        // Streams read files in order of name, so that trajectories continue from one file to the
        // next.
        let threads = state.config().target_partitions();
        let groups = FileGroup::new(files).split_files(threads);
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_groups(groups)
            .with_output_ordering(Vec::new())
            .with_output_partitioning(None)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        self.table.supports_filters_pushdown(filters)
    }
}
