//! The values that the key `null` makes null, counted by table and column.
//!
//! Scans may read a column several times, or skip some of its rows, so they do not count. In: a
//! query. Out: the numbers for the columns that it reads, over the files that it reads, before the
//! SQL filters rows. One pass over these columns alone counts them.

use crate::error::{Error, Kind, Result};
use crate::read::formats::fill_values::is_fill;
use crate::read::formats::format::Format;
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::lake::files::{LakeTable, ident_reference};
use crate::read::lake::provider::TableOfFiles;
use crate::read::lake::rounding::{files, numbered};
use crate::read::lake::subset::over;
use crate::read::rows::stop::Stop;
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, ident, lit};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Values that became null, by table and column.
pub(crate) type Nulled = BTreeMap<String, BTreeMap<String, u64>>;

/// The most values that a filter compares.
const MOST_COMPARED: usize = 32;

/// What a query reads of a table.
#[derive(Default)]
struct Reads {
    columns: BTreeSet<String>,
    /// Filters on folders of each scan; `None` if a scan reads all files.
    filters: Option<Vec<Expr>>,
    is_begun: bool,
}

/// How the values of a column are counted.
#[derive(Clone)]
enum Counted {
    /// Values of its type.
    Values(Vec<ScalarValue>),
    /// Texts of a column of this name and type, as CSV has them.
    Texts(String, DataType),
    /// Values of a column of this name, as JSON has them.
    Json(String),
}

impl Lake {
    /// Whether a table has values that mean null.
    pub(crate) fn makes_nulls(&self) -> bool {
        self.tables.iter().any(makes_nulls)
    }

    /// Counts the values that the key `null` makes null in the columns that queries read. With
    /// `only`, these files of their table are counted alone.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub(crate) async fn nulled(
        &self,
        frames: &[DataFrame],
        only: Option<&[String]>,
    ) -> Result<Nulled> {
        let mut nulled = Nulled::new();
        if !self.makes_nulls() || only.is_some_and(<[_]>::is_empty) {
            return Ok(nulled);
        }
        let mut reads = BTreeMap::new();
        for frame in frames {
            add_reads(frame, &mut reads)
                .map_err(|e| failed("the columns of the query cannot be found", e))?;
        }
        for table in self.tables.iter().filter(|table| makes_nulls(table)) {
            if let Some(reads) = reads.get(&table.name) {
                let counts = self.nulled_in(table, reads, only).await?;
                nulled.insert(table.name.clone(), counts);
            }
        }
        Ok(nulled)
    }

    async fn nulled_in(
        &self,
        table: &LakeTable,
        reads: &Reads,
        only: Option<&[String]>,
    ) -> Result<BTreeMap<String, u64>> {
        let unread = |e| failed("the values of `null` cannot be counted", e);
        let name = ident_reference(&table.name);
        let provider = self.context.table_provider(name).await.map_err(unread)?;
        let Some(of_files) = files(provider.as_ref()) else {
            return Err(Error::bug("a table of a pipeline has no files"));
        };
        let mut nulled = BTreeMap::new();
        let session = self.context.state();
        let parts = of_files.by_types(&session).await;
        for part in parts.map_err(unread)? {
            let columns = counted_columns(table, &part, &reads.columns);
            if columns.is_empty() {
                continue;
            }
            let is_text = |counted: &Counted| !matches!(counted, Counted::Values(_));
            let texts = columns.iter().filter(|(_, counted)| is_text(counted));
            let texts = texts.map(|(name, _)| name.clone()).collect();
            let stored = Arc::new(part.without_rules(&texts));
            let mut frame = self.context.read_table(stored).map_err(unread)?;
            if let Some(filter) = reads.filters.clone().and_then(disjunction) {
                frame = frame.filter(filter).map_err(unread)?;
            }
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            frame = numbered(frame, names.iter().copied(), &table.name)?;
            if let Some(filter) = has_fill(&columns) {
                frame = frame.filter(filter).map_err(unread)?;
            }
            if let Some(only) = only {
                frame = over(frame, only.iter().cloned().collect::<HashSet<_>>())?;
            }
            let counts = self.counts(frame, table, &columns).await?;
            for ((name, _), count) in columns.into_iter().zip(counts) {
                *nulled.entry(name).or_default() += count;
            }
        }
        Ok(nulled)
    }

    /// The number of values per column of a query.
    async fn counts(
        &self,
        frame: DataFrame,
        table: &LakeTable,
        columns: &[(String, Counted)],
    ) -> Result<Vec<u64>> {
        let how: Arc<Vec<Counted>> = Arc::new(columns.iter().map(|(_, how)| how.clone()).collect());
        let dialect = Arc::new(table.dialect.clone());
        let n = how.len();
        let streams = self.each_stream(frame, move |_| {
            let (how, dialect) = (Arc::clone(&how), Arc::clone(&dialect));
            let push = move |batch: &RecordBatch, counts: &mut Vec<u64>| {
                for ((column, how), count) in batch.columns().iter().zip(&*how).zip(counts) {
                    *count += match how {
                        Counted::Values(values) => {
                            let fills = is_fill(column, values).map_err(|e| {
                                let what = "values cannot be compared";
                                Stop::Failed(Error::with_source(Kind::Bug, what, e))
                            })?;
                            fills.true_count() as u64
                        }
                        Counted::Texts(name, of) => {
                            let decimal = dialect.decimal.unwrap_or('.');
                            let null = &dialect.null;
                            count_texts(column, |text| null.is_shown(name, of, text, decimal))
                        }
                        Counted::Json(name) => {
                            count_texts(column, |written| dialect.null.is_json(name, written))
                        }
                    };
                }
                Ok(())
            };
            Ok((vec![0; n], push))
        });
        let streams = streams
            .await
            .map_err(|stop| stop.into_error("counting values of `null`"))?;
        let sum = |at: usize| {
            streams
                .iter()
                .map(|counts: &Vec<u64>| counts[at])
                .sum::<u64>()
        };
        Ok((0..n).map(sum).collect())
    }
}

/// Whether a row has a value to count. Scans skip parts of files whose statistics exclude them.
/// None for values that statistics may not tell, and if there are many.
fn has_fill(columns: &[(String, Counted)]) -> Option<Expr> {
    let mut all = Vec::new();
    for (at, (_, counted)) in columns.iter().enumerate() {
        let Counted::Values(values) = counted else {
            return None;
        };
        for value in values {
            let x = value.cast_to(&DataType::Float64).ok();
            let is_told = value.data_type().is_numeric()
                && matches!(x, Some(ScalarValue::Float64(Some(x))) if !x.is_nan() && x != 0.0);
            if !is_told || all.len() == MOST_COMPARED {
                return None;
            }
            all.push(ident(at.to_string()).eq(lit(value.clone())));
        }
    }
    disjunction(all)
}

/// The number of texts for which a condition holds.
fn count_texts(column: &ArrayRef, is_fill: impl Fn(&str) -> bool) -> u64 {
    let texts = column.as_string::<i32>().iter().flatten();
    texts.filter(|text| is_fill(text)).count() as u64
}

/// The columns of a table in which values may be null, of those that are read.
fn counted_columns(
    table: &LakeTable,
    of_files: &TableOfFiles,
    read: &BTreeSet<String>,
) -> Vec<(String, Counted)> {
    let null = &table.dialect.null;
    let is_json = table.format == Format::Json.name();
    let fields = of_files.stored().fields().iter().enumerate();
    let fields = fields.filter(|(_, field)| {
        read.contains(field.name()) && !table.partition_columns.contains(field.name())
    });
    let counted = fields.filter_map(|(at, field)| {
        let (name, of) = (field.name().clone(), field.data_type().clone());
        let rule = of_files.rule(at);
        let values = rule.map_or_else(Vec::new, |rule| rule.fills(&of));
        let has_texts = !null.texts(&name).is_empty() && !of.is_nested();
        // The reader of JSON makes null of numbers if it converts the column.
        let is_converted = is_json
            && table.dialect.types.contains_key(&name)
            && !null.of_column(&name, false).is_empty();
        if !of_files.is_text() {
            return (!values.is_empty()).then_some((name, Counted::Values(values)));
        }
        (has_texts || is_converted || !values.is_empty()).then(|| {
            let how = if is_json {
                Counted::Json(name.clone())
            } else {
                Counted::Texts(name.clone(), of)
            };
            (name, how)
        })
    });
    counted.collect()
}

fn makes_nulls(table: &LakeTable) -> bool {
    !table.dialect.null.is_empty()
}

/// Adds what a query reads of each table of files.
fn add_reads(
    frame: &DataFrame,
    tables: &mut BTreeMap<String, Reads>,
) -> Result<(), DataFusionError> {
    let plan = frame.clone().into_optimized_plan()?;
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(of_files) = files(provider.as_ref()) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let reads = tables
            .entry(scan.table_name.table().to_string())
            .or_default();
        let columns = scan.projected_schema.fields().iter();
        reads
            .columns
            .extend(columns.map(|field| field.name().clone()));
        let filters = scan.filters.iter().flat_map(Expr::column_refs);
        reads
            .columns
            .extend(filters.map(|column| column.name.clone()));
        let own = of_files.filters_on_folders(&scan.filters).into_iter();
        let own = own.map(unqualified).collect::<Result<Vec<_>, _>>()?;
        match (conjunction(own), reads.is_begun) {
            (Some(filter), false) => reads.filters = Some(vec![filter]),
            (Some(filter), true) => reads
                .filters
                .iter_mut()
                .for_each(|f| f.push(filter.clone())),
            (None, _) => reads.filters = None,
        }
        reads.is_begun = true;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// A filter whose columns name no table.
fn unqualified(filter: Expr) -> Result<Expr, DataFusionError> {
    let plain = filter.transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::from_name(column.name))),
            other => Transformed::no(other),
        })
    });
    Ok(plain?.data)
}
