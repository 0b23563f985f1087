//! Defaults of `lag` and `lead`.
//!
//! The engine casts the value for rows without another row to the type of the column: 0.5 becomes 0
//! in a column of integers. In: a plan after type coercion. Out: the first default that such a cast
//! would change, in words.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition};

/// The first default that is another value in the type of its column.
///
/// # Errors
/// A plan that cannot be traversed.
pub(crate) fn changed_default(plan: &LogicalPlan) -> Result<Option<String>> {
    let mut found = None;
    plan.apply_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::WindowFunction(window) = expr {
                    found = found.take().or_else(|| changed(window, &schema));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

fn changed(window: &WindowFunction, schema: &DFSchema) -> Option<String> {
    let WindowFunctionDefinition::WindowUDF(function) = &window.fun else {
        return None;
    };
    let ("lag" | "lead", [column, _, default]) = (function.name(), &window.params.args[..]) else {
        return None;
    };
    let of_column = column.get_type(schema).ok()?;
    let of_default = default.get_type(schema).ok()?;
    if of_column == of_default || of_default.is_null() {
        return None;
    }
    if let Expr::Literal(value, _) = default {
        let back = |cast: ScalarValue| cast.cast_to(&of_default);
        let cast = value.cast_to(&of_column).and_then(back);
        if cast.is_ok_and(|back| back == *value) {
            return None;
        }
    }
    let name = function.name();
    Some(format!(
        "the default {default} of {name} is no {of_column}, which its column is: CAST one of them"
    ))
}
