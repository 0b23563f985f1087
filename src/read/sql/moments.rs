//! Dates and times without a zone beside times of a zone.
//!
//! The engine takes a date or a time without a zone for UTC or for local time, depending on how
//! the expression is written. Here it is local time in the zone of what it is compared with, from
//! which it is subtracted, or beside which it is an argument. If a parameter is a part of a larger
//! expression, it must have a zone. Dates that a statement puts into one column with times of a
//! zone are refused.

use crate::read::sql::floats::is_comparison;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, InSubquery, Placeholder};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, WindowFunctionDefinition, cast,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values of `$name`s.
type Parameters = BTreeMap<String, ScalarValue>;

/// A plan whose parameters of time have the zones of what they are compared with, or the reason why
/// one of them must have a zone.
///
/// # Errors
/// If the plan cannot be rewritten.
pub(crate) fn with_zones(
    plan: LogicalPlan,
    parameters: &Parameters,
) -> Result<std::result::Result<LogicalPlan, String>> {
    let mut refused = None;
    let plan = rewritten(plan, |expr, schema| {
        let changed = Zones { schema, parameters }.apply(expr);
        changed.unwrap_or_else(|why| {
            refused.get_or_insert(why);
            false
        })
    })?;
    Ok(refused.map_or(Ok(plan), Err))
}

/// A plan in which dates and times without a zone are local times where they meet times of a zone,
/// or the reason why they cannot be. Parameters have their values.
///
/// # Errors
/// If the plan cannot be rewritten.
pub(crate) fn in_local_time(plan: LogicalPlan) -> Result<std::result::Result<LogicalPlan, String>> {
    let mut refused = None;
    let plan = rewritten(plan, |expr, schema| {
        make_local(expr, schema).unwrap_or_else(|why| {
            refused.get_or_insert(why);
            false
        })
    })?;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Union(union) = plan {
            for at in 0..union.schema.fields().len() {
                let inputs = union
                    .inputs
                    .iter()
                    .filter_map(|i| i.schema().fields().get(at));
                let types: Vec<&DataType> = inputs.map(|field| field.data_type()).collect();
                let zoned = types.iter().find(|of| is_zoned(of));
                if let (Some(zoned), true) = (zoned, types.iter().any(|of| is_date(of))) {
                    let name = union.schema.field(at).name();
                    refused.get_or_insert_with(|| {
                        date_beside(&format!("column `{name}` of a UNION"), zoned)
                    });
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(refused.map_or(Ok(plan), Err))
}

/// A plan whose expressions are changed by `change`, which says whether it has changed one. The
/// names of columns stay.
pub(crate) fn rewritten(
    plan: LogicalPlan,
    mut change: impl FnMut(&mut Expr, &DFSchema) -> bool,
) -> Result<LogicalPlan> {
    let mut is_changed = false;
    let plan = plan.transform_up_with_subqueries(|plan| {
        let schema = read_columns(&plan)?;
        let names = NamePreserver::new(&plan);
        let mut in_expr = |expr: Expr, schema: &DFSchema| -> Result<Transformed<Expr>> {
            let name = names.save(&expr);
            let changed = expr.transform_up(|mut expr| {
                Ok(if change(&mut expr, schema) {
                    is_changed = true;
                    Transformed::yes(expr)
                } else {
                    Transformed::no(expr)
                })
            })?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        };
        // The two keys of a join are compared, although they are no comparison.
        let plan = match plan {
            LogicalPlan::Join(mut join) => {
                for (left, right) in &mut join.on {
                    let keys = Expr::BinaryExpr(BinaryExpr::new(
                        Box::new(left.clone()),
                        Operator::Eq,
                        Box::new(right.clone()),
                    ));
                    if let Expr::BinaryExpr(keys) = in_expr(keys, &schema)?.data.unalias() {
                        (*left, *right) = (*keys.left, *keys.right);
                    }
                }
                LogicalPlan::Join(join)
            }
            plan => plan,
        };
        let plan = plan.map_expressions(|expr| in_expr(expr, &schema))?;
        // Types of what is computed from changed expressions may differ too.
        if is_changed {
            return plan.map_data(LogicalPlan::recompute_schema);
        }
        Ok(plan)
    })?;
    Ok(plan.data)
}

/// The columns that the expressions of a step may name.
pub(crate) fn read_columns(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let source = scan.source.schema();
        let own = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &source)?;
        schema.merge(&own);
    }
    Ok(schema)
}

/// Functions whose arguments are values of one kind.
const ALIKE: [&str; 7] = [
    "coalesce", "date_bin", "greatest", "ifnull", "least", "nullif", "nvl",
];

/// Makes dates and times without a zone local times where they meet times of a zone. Whether the
/// expression changed.
fn make_local(expr: &mut Expr, schema: &DFSchema) -> std::result::Result<bool, String> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_comparison(*op) || *op == Operator::Minus =>
        {
            all_local([left.as_mut(), right.as_mut()], schema)
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) => all_local([expr.as_mut(), low.as_mut(), high.as_mut()], schema),
        Expr::InList(InList { expr, list, .. }) => {
            all_local(std::iter::once(expr.as_mut()).chain(list), schema)
        }
        Expr::Case(case) => {
            let (whens, thens): (Vec<_>, Vec<_>) = case
                .when_then_expr
                .iter_mut()
                .map(|(when, then)| (when.as_mut(), then.as_mut()))
                .unzip();
            let of = case.expr.iter_mut().map(Box::as_mut);
            let others = case.else_expr.iter_mut().map(Box::as_mut);
            let is_changed = all_local(of.chain(whens), schema);
            all_local(others.chain(thens), schema) || is_changed
        }
        Expr::ScalarFunction(call) if ALIKE.contains(&call.name()) => {
            all_local(&mut call.args, schema)
        }
        Expr::WindowFunction(window) => {
            let WindowFunctionDefinition::WindowUDF(function) = &window.fun else {
                return Ok(false);
            };
            match (function.name(), &mut window.params.args[..]) {
                (name @ ("lag" | "lead"), [column, _, default]) => {
                    let Ok(of) = column.get_type(schema) else {
                        return Ok(false);
                    };
                    make_default_local(name, default, &of)?
                }
                _ => false,
            }
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
            let (of, inner) = (expr.get_type(schema), subquery.subquery.schema().fields());
            if let (Ok(of), [inner]) = (of, inner.as_ref()) {
                let inner = inner.data_type();
                if is_zoned(&of) && is_date(inner) {
                    return Err(date_beside("a subquery after IN", &of));
                }
                if is_date(&of) && is_zoned(inner) {
                    return Err(date_beside(&format!("`{expr}`"), inner));
                }
            }
            false
        }
        _ => false,
    })
}

/// Makes the default of `lag` or `lead` a local time, if its column has times of a zone. Whether it
/// changed.
fn make_default_local(
    name: &str,
    default: &mut Expr,
    of: &DataType,
) -> std::result::Result<bool, String> {
    if !is_zoned(of) {
        return Ok(false);
    }
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let Ok(Expr::Literal(value, _)) = simplifier.simplify(default.clone()) else {
        return Ok(false);
    };
    if value.is_null() || !is_naive(&value.data_type()) && !value.data_type().is_string() {
        return Ok(false);
    }
    let Some(local) = local(&value, of) else {
        return Err(format!(
            "the default {value} of {name} is no time of type {of}, which its column has"
        ));
    };
    *default = Expr::Literal(local, None);
    Ok(true)
}

/// Makes dates and times without a zone local times of the first zone. Whether there is one.
fn all_local<'e>(exprs: impl IntoIterator<Item = &'e mut Expr>, schema: &DFSchema) -> bool {
    let with_types = exprs
        .into_iter()
        .filter_map(|expr| expr.get_type(schema).ok().map(|of| (expr, of)));
    let mut all: Vec<(&mut Expr, DataType)> = with_types.collect();
    let zones = all.iter().map(|(_, of)| of);
    let mut zones = zones.filter_map(|of| match of {
        DataType::Timestamp(_, Some(zone)) => Some(Arc::clone(zone)),
        _ => None,
    });
    let Some(zone) = zones.next() else {
        return false;
    };
    let mut is_changed = false;
    for (expr, of) in &mut all {
        let unit = match of {
            DataType::Timestamp(_, Some(own)) if *own == zone => continue,
            DataType::Timestamp(unit, _) => *unit,
            DataType::Date32 => TimeUnit::Second,
            DataType::Date64 => TimeUnit::Millisecond,
            _ => continue,
        };
        let mut time = std::mem::take(*expr);
        // Only the step from a time without a zone to one with a zone reads local time.
        if is_date(of) {
            time = cast(time, DataType::Timestamp(unit, None));
        }
        // Times of another zone stay the same moments, and the engine subtracts those of one zone.
        **expr = cast(time, DataType::Timestamp(unit, Some(Arc::clone(&zone))));
        is_changed = true;
    }
    is_changed
}

fn is_zoned(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, Some(_)))
}

fn is_date(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Date64)
}

fn date_beside(what: &str, zoned: &DataType) -> String {
    format!(
        "{what} holds dates beside times of type {zoned}; write the dates as times of that zone, as in arrow_cast(CAST(d AS TIMESTAMP), '{zoned}')"
    )
}

/// What a comparison is made of.
struct Zones<'a> {
    schema: &'a DFSchema,
    parameters: &'a Parameters,
}

impl Zones<'_> {
    /// Gives the parameters of a comparison their zones. Whether it changed.
    fn apply(&self, expr: &mut Expr) -> std::result::Result<bool, String> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                let (a, b) = (self.zone(left), self.zone(right));
                let changed = a.map_or(Ok(false), |zone| self.bind(right, &zone))?;
                Ok(b.map_or(Ok(false), |zone| self.bind(left, &zone))? || changed)
            }
            Expr::Between(Between {
                expr, low, high, ..
            }) => self.bind_all(expr, [low.as_mut(), high.as_mut()]),
            Expr::InList(InList { expr, list, .. }) => self.bind_all(expr, list),
            _ => Ok(false),
        }
    }

    fn bind_all<'e>(
        &self,
        with: &Expr,
        others: impl IntoIterator<Item = &'e mut Expr>,
    ) -> std::result::Result<bool, String> {
        let Some(zone) = self.zone(with) else {
            return Ok(false);
        };
        let mut changed = false;
        for other in others {
            changed |= self.bind(other, &zone)?;
        }
        Ok(changed)
    }

    /// The type of an expression, if it is a time of a zone.
    fn zone(&self, expr: &Expr) -> Option<DataType> {
        let of = expr.get_type(self.schema).ok()?;
        is_zoned(&of).then_some(of)
    }

    /// Gives a parameter the zone of a type. Whether it changed.
    fn bind(&self, expr: &mut Expr, zoned: &DataType) -> std::result::Result<bool, String> {
        if let Expr::Placeholder(Placeholder { id, .. }) = expr {
            let value = self.parameters.get(&id[1..]);
            let local = value.and_then(|value| local(value, zoned));
            let is_bound = local.is_some();
            if let Some(local) = local {
                *expr = Expr::Literal(local, None);
            }
            return Ok(is_bound);
        }
        let mut own = None;
        let filled = expr.clone().transform_up(|expr| {
            Ok(match &expr {
                Expr::Placeholder(Placeholder { id, .. }) => match self.parameters.get(&id[1..]) {
                    Some(value) => {
                        own.get_or_insert_with(|| id.clone());
                        Transformed::yes(Expr::Literal(value.clone(), None))
                    }
                    None => Transformed::no(expr),
                },
                _ => Transformed::no(expr),
            })
        });
        let of = filled.and_then(|filled| filled.data.get_type(self.schema));
        let (Some(id), Ok(of)) = (own, of) else {
            return Ok(false);
        };
        if is_naive(&of) {
            return Err(format!(
                "`{expr}` has no time zone, and is compared with times of type {zoned}; give the parameter `{id}` a zone, as in 2020-01-01T00:00:00Z"
            ));
        }
        Ok(false)
    }
}

/// Whether values of a type are dates, or times without a zone.
fn is_naive(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None)
    )
}

/// A date, a time without a zone or a text as a time of a zone, in the unit of the type if that is
/// exact. None for other values, and for a text that is no time.
fn local(value: &ScalarValue, zoned: &DataType) -> Option<ScalarValue> {
    let of = value.data_type();
    if !is_naive(&of) && !of.is_string() {
        return None;
    }
    let DataType::Timestamp(_, zone) = zoned else {
        return None;
    };
    let exact = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
    let Ok(nanoseconds) = value.cast_to(&exact) else {
        return value.cast_to(zoned).ok();
    };
    let own = nanoseconds.cast_to(zoned).ok()?;
    let is_same = own.cast_to(&exact).is_ok_and(|back| back == nanoseconds);
    Some(if is_same { own } else { nanoseconds })
}
