//! Dates and times of parameters that are compared with times of a zone.
//!
//! The engine takes a date or a time without a zone for UTC or for local time, depending on how
//! the comparison is written. Here it is local time in the zone of what it is compared with. If the
//! parameter is a part of a larger expression, it must have a zone.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, Placeholder};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use std::collections::BTreeMap;

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
    let plan = plan.transform_up_with_subqueries(|plan| {
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            let source = scan.source.schema();
            let own = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &source)?;
            schema.merge(&own);
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let zoned = expr.transform_up(|mut expr| {
                let zones = Zones {
                    schema: &schema,
                    parameters,
                };
                match zones.apply(&mut expr) {
                    Ok(true) => Ok(Transformed::yes(expr)),
                    Ok(false) => Ok(Transformed::no(expr)),
                    Err(why) => {
                        refused.get_or_insert(why);
                        Ok(Transformed::no(expr))
                    }
                }
            })?;
            Ok(zoned.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(refused.map_or(Ok(plan.data), Err))
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
        matches!(of, DataType::Timestamp(_, Some(_))).then_some(of)
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

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
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
