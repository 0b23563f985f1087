//! Refuses coordinates of boxes that some files hold with less precision than the table.
//!
//! A value is compared with borders that are rounded like it: 0.7 of a Float32 column is on the
//! border 0.7. Beside a Float64 file, the column is one of doubles, and the value is below that
//! border. In: a planned query, and which of its columns are cut into boxes. Values that a cast of
//! the SQL gives another type have the precision of that type.

use crate::error::{Error, Result};
use crate::read::lake::precision::Widened;
use crate::read::lake::rounding::files;
use crate::read::lake::subset::until;
use crate::read::sql::floats::has_floats;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

/// Checks that no column at `bins`, with its name, depends on a widened one.
///
/// # Errors
/// The first column that does.
pub(crate) fn check(plan: &LogicalPlan, bins: &[(usize, &str)]) -> Result<()> {
    for (at, name) in bins {
        let found = in_column(plan, *at);
        let found = found.map_err(|e| Error::bug(format!("the origin of `{name}`: {e}")))?;
        if let Some(widened) = found {
            return Err(widened.refused(name));
        }
    }
    Ok(())
}

/// The widened column on which a column of a plan depends.
fn in_column(plan: &LogicalPlan, at: usize) -> Result<Option<Widened>, DataFusionError> {
    let first = |inputs: Vec<(&LogicalPlan, usize)>| {
        let mut found = inputs.into_iter().map(|(plan, at)| in_column(plan, at));
        found.find_map(Result::transpose).transpose()
    };
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let name = scan.projected_schema.field(at).name();
            Ok(files(provider.as_ref()).and_then(|table| table.widened(name).cloned()))
        }
        LogicalPlan::Projection(projection) => in_expr(&projection.expr[at], &projection.input),
        LogicalPlan::Aggregate(aggregate) => {
            let mut exprs: Vec<Option<&Expr>> = Vec::new();
            exprs.extend(
                grouping_set_to_exprlist(&aggregate.group_expr)?
                    .into_iter()
                    .map(Some),
            );
            // Grouping sets have a column that numbers them.
            let own = aggregate.aggr_expr.iter().map(Some);
            let n_aggregates = own.len();
            exprs.resize(plan.schema().fields().len() - n_aggregates, None);
            exprs.extend(own);
            exprs[at].map_or(Ok(None), |expr| in_expr(expr, &aggregate.input))
        }
        LogicalPlan::Window(window) => match at.checked_sub(window.input.schema().fields().len()) {
            Some(own) => in_expr(&window.window_expr[own], &window.input),
            None => in_column(&window.input, at),
        },
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Union(_) | LogicalPlan::RecursiveQuery(_) => {
            first(plan.inputs().into_iter().map(|plan| (plan, at)).collect())
        }
        // All others pass on columns of their inputs.
        _ => {
            let column = Column::from(plan.schema().qualified_field(at));
            let inputs = plan.inputs().into_iter().filter_map(|plan| {
                let at = plan.schema().maybe_index_of_column(&column)?;
                Some((plan, at))
            });
            first(inputs.collect())
        }
    }
}

/// The widened column on which the floating-point numbers of an expression depend.
fn in_expr(expr: &Expr, input: &LogicalPlan) -> Result<Option<Widened>, DataFusionError> {
    match expr {
        Expr::Cast(_) | Expr::TryCast(_) => return Ok(None),
        Expr::Column(column) => {
            let at = input.schema().maybe_index_of_column(column);
            return at.map_or(Ok(None), |at| in_column(input, at));
        }
        Expr::ScalarSubquery(subquery) => return in_column(&subquery.subquery, 0),
        // Conditions and texts.
        _ if (expr.get_type(input.schema())).is_ok_and(|of| !has_floats(&of)) => return Ok(None),
        _ => {}
    }
    let mut found = None;
    expr.apply_children(|part| {
        found = in_expr(part, input)?;
        Ok(until(found.is_some()))
    })?;
    Ok(found)
}
