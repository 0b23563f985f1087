//! Lets a query round the columns that it uses only as coordinates and weights.
//!
//! Files may have numbers that are no doubles in a column of doubles. Scans refuse them, because a
//! key or a time would become another one. In: a planned query, and which of its columns are
//! coordinates and weights. Out: the same query, whose scans round the columns of tables on which
//! nothing else depends.

use crate::error::Result;
use crate::read::lake::errors::failed;
use crate::read::lake::provider::TableOfFiles;
use crate::read::lake::subset::SomeFiles;
use arrow::datatypes::Field;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::logical_plan::TableScan;
use datafusion::logical_expr::{Expr, LogicalPlan, ident, lit};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Columns by table.
type Columns = BTreeMap<String, BTreeSet<String>>;

/// Selects the columns of a layout of `what`, in its order. Column `i` is named `i`. Those at
/// `numbers` are coordinates and weights.
///
/// # Errors
/// If the query lacks a column.
pub(crate) fn selected(
    frame: DataFrame,
    fields: &[Field],
    numbers: Range<usize>,
    what: &str,
) -> Result<DataFrame> {
    let names = fields.iter().map(|field| field.name().as_str());
    rounding(numbered(frame, names, what)?, &numbers.collect::<Vec<_>>())
}

/// Selects columns of `what`, which may repeat. Column `i` is named `i`.
///
/// # Errors
/// If the query lacks a column.
pub(crate) fn numbered<'a>(
    frame: DataFrame,
    names: impl IntoIterator<Item = &'a str>,
    what: &str,
) -> Result<DataFrame> {
    let columns = names.into_iter().enumerate();
    let columns = columns.map(|(at, name)| ident(name).alias(at.to_string()));
    frame
        .select(columns.collect::<Vec<_>>())
        .map_err(|e| failed(&format!("the columns of {what} cannot be selected"), e))
}

/// The query with scans that round what only the columns at `numbers` depend on: coordinates and
/// weights.
///
/// # Errors
/// A query that cannot be planned.
pub(crate) fn rounding(frame: DataFrame, numbers: &[usize]) -> Result<DataFrame> {
    if numbers.is_empty() || !has_rounded(frame.logical_plan()) {
        return Ok(frame);
    }
    let rounded = exact_columns(&frame, numbers).and_then(|exact| {
        let (state, plan) = frame.into_parts();
        let plan = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(mut scan) = node else {
                return Ok(Transformed::no(node));
            };
            let Some(table) = rounding_scan(&scan, &exact)? else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            scan.source = provider_as_source(table);
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        });
        Ok(DataFrame::new(state, plan?.data))
    });
    rounded.map_err(|e| failed("the columns of numbers cannot be found", e))
}

/// Whether a table of the query may have numbers that are no doubles.
fn has_rounded(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let table = source_as_provider(&scan.source)?;
            found |= files(table.as_ref()).is_some_and(TableOfFiles::may_have_rounded);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found || walked.is_err()
}

/// The files of a table, if it has files.
pub(crate) fn files<'a>(table: &'a (dyn TableProvider + 'static)) -> Option<&'a TableOfFiles> {
    let some = table.downcast_ref().and_then(SomeFiles::whole);
    table.downcast_ref().or(some)
}

/// The columns of tables that are needed for more than the columns at `numbers`: those that the
/// optimizer keeps if the query selects only the others.
fn exact_columns(frame: &DataFrame, numbers: &[usize]) -> Result<Columns, DataFusionError> {
    let columns = frame.schema().iter().enumerate();
    let mut others: Vec<Expr> = columns
        .filter(|(at, _)| !numbers.contains(at))
        .map(|(_, field)| Expr::Column(Column::from(field)))
        .collect();
    if others.is_empty() {
        others.push(lit(1));
    }
    let plan = frame.clone().select(others)?.into_optimized_plan()?;
    let mut exact = Columns::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let own = exact.entry(scan.table_name.to_string()).or_default();
            let read = scan.projected_schema.fields().iter();
            own.extend(read.map(|field| field.name().clone()));
            let filters = scan.filters.iter().flat_map(Expr::column_refs);
            own.extend(filters.map(|column| column.name.clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(exact)
}

/// The table of a scan, rounding the columns that need not be exact.
fn rounding_scan(
    scan: &TableScan,
    exact: &Columns,
) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
    let provider = source_as_provider(&scan.source)?;
    let Some(table) = files(provider.as_ref()) else {
        return Ok(None);
    };
    let exact = exact.get(&scan.table_name.to_string());
    let schema = table.schema();
    let names = schema.fields().iter().map(|field| field.name());
    let columns = names.filter(|name| !exact.is_some_and(|exact| exact.contains(*name)));
    let rounding = table.rounding(columns.cloned().collect());
    Ok(Some(match provider.downcast_ref::<SomeFiles>() {
        Some(some) => Arc::new(some.of(rounding)),
        None => Arc::new(rounding),
    }))
}
