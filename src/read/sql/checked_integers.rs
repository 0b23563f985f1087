//! Checked integer arithmetic for SQL: an overflow is an error instead of a wrapped result.
//!
//! The engine's planner compiles `a + b` to wrapping arithmetic and has no option for checked
//! arithmetic. This analyzer rule runs after type coercion. It replaces integer operators by
//! functions that use arrow's checked kernels, and computes sums of integers in a wider type. It
//! also replaces casts of timestamps to times of day, because the engine would prune files by the
//! times of day of their first and last timestamps. Names and types of columns do not change.

use crate::read::sql::moments::read_columns;
use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, exec_err};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator,
    Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast,
    Volatility, Window, WindowFunctionDefinition, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;
use std::any::Any;
use std::sync::Arc;

/// How an overflow error begins. It is caused by the SQL, not by a file.
pub(crate) const OVERFLOW: &str = "an integer in the SQL is too large for its type";

/// Analyzer rule that replaces wrapping integer arithmetic.
#[derive(Debug)]
pub(crate) struct CheckedIntegers;

impl AnalyzerRule for CheckedIntegers {
    fn name(&self) -> &str {
        "exact_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let exact = plan.transform_up_with_subqueries(|plan| {
            let schema = read_columns(&plan)?;
            let names = NamePreserver::new(&plan);
            let plan = plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let exact = expr.transform_up(|expr| checked(expr, &schema))?;
                Ok(exact.update_data(|expr| name.restore(expr)))
            })?;
            plan.transform_data(|plan| wide_sums(plan, &schema))
        });
        Ok(exact?.data)
    }
}

/// The type of an expression; `None` if only the surrounding query knows it.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    expr.get_type(schema).ok()
}

fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let integer = |expr: &Expr| match expr {
        // Already replaced expressions are not visited again.
        Expr::ScalarFunction(function) if as_checked(function).is_some() => {
            as_checked(function).map(|checked| checked.returned.clone())
        }
        other => type_of(other, schema).filter(DataType::is_integer),
    };
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) => {
            let same = match (integer(&left), integer(&right)) {
                (Some(a), Some(b)) if a == b => a,
                _ => {
                    let unchanged = BinaryExpr { left, op, right };
                    return Ok(Transformed::no(Expr::BinaryExpr(unchanged)));
                }
            };
            // A chain of operators becomes one function, so that long chains do not nest deeply.
            let (mut ops, mut args) = match *left {
                Expr::ScalarFunction(mut function) => match as_checked(&function) {
                    Some(Checked {
                        op: Op::Chain(ops), ..
                    }) => (ops.clone(), std::mem::take(&mut function.args)),
                    _ => (Vec::new(), vec![Expr::ScalarFunction(function)]),
                },
                left => (Vec::new(), vec![left]),
            };
            ops.push(op);
            args.push(*right);
            Ok(Transformed::yes(call(Op::Chain(ops), same, args)))
        }
        Expr::Negative(negated) => match integer(&negated).filter(DataType::is_signed_integer) {
            Some(same) => Ok(Transformed::yes(call(Op::Negate, same, vec![*negated]))),
            None => Ok(Transformed::no(Expr::Negative(negated))),
        },
        // The engine prunes files by minimum and maximum, as if times of day grew with timestamps.
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
            if matches!(field.data_type(), DataType::Time32(_) | DataType::Time64(_))
                && matches!(type_of(&expr, schema), Some(DataType::Timestamp(..))) =>
        {
            let time = field.data_type().clone();
            Ok(Transformed::yes(call(Op::Cast, time, vec![*expr])))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The function, if it is one of these.
fn as_checked(function: &ScalarFunction) -> Option<&Checked> {
    let inner: &dyn Any = function.func.inner().as_ref();
    inner.downcast_ref()
}

fn call(op: Op, returned: DataType, args: Vec<Expr>) -> Expr {
    let function = Checked {
        op,
        returned,
        signature: Signature::variadic_any(Volatility::Immutable),
    };
    let function = Arc::new(ScalarUDF::from(function));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, args))
}

/// Computes sums of integers as decimals, which can hold the sum of any number of them, and adds a
/// projection that casts the results back to the original types.
fn wide_sums(plan: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let widen = |exprs: &[Expr]| -> Result<Option<Vec<Expr>>> {
        let mut any = false;
        let wide = exprs
            .iter()
            .map(|expr| {
                let name = expr.schema_name().to_string();
                let wide = expr.clone().transform_up(|expr| wide_sum(expr, schema))?;
                any |= wide.transformed;
                Ok(if wide.transformed {
                    wide.data.unalias().alias(name)
                } else {
                    wide.data
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(any.then_some(wide))
    };
    let (before, wide) = match &plan {
        LogicalPlan::Aggregate(aggregate) => match widen(&aggregate.aggr_expr)? {
            Some(wide) => {
                let (input, by) = (Arc::clone(&aggregate.input), aggregate.group_expr.clone());
                let wide = LogicalPlan::Aggregate(Aggregate::try_new(input, by, wide)?);
                (Arc::clone(&aggregate.schema), wide)
            }
            None => return Ok(Transformed::no(plan)),
        },
        LogicalPlan::Window(window) => match widen(&window.window_expr)? {
            Some(wide) => {
                let wide = Window::try_new(wide, Arc::clone(&window.input))?;
                (Arc::clone(&window.schema), LogicalPlan::Window(wide))
            }
            None => return Ok(Transformed::no(plan)),
        },
        _ => return Ok(Transformed::no(plan)),
    };
    let columns = before
        .iter()
        .zip(wide.schema().iter())
        .map(|((qualifier, field), (own, wide))| {
            let column = Expr::Column(Column::from((own, wide)));
            if field.data_type() == wide.data_type() {
                column
            } else {
                call(Op::Cast, field.data_type().clone(), vec![column])
                    .alias_qualified(qualifier.cloned(), field.name())
            }
        })
        .collect();
    let projection = Projection::try_new(columns, Arc::new(wide))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// A type that can hold the sum of any number of 64-bit integers.
const WIDE: DataType = DataType::Decimal128(38, 0);

fn wide_sum(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_wrapping = |name: &str, args: &[Expr]| {
        let of_integers = |arg: &Expr| {
            let of = type_of(arg, schema);
            matches!(of, Some(DataType::Int64 | DataType::UInt64))
        };
        name == "sum" && matches!(args, [one] if of_integers(one))
    };
    let widened = |args: &mut Vec<Expr>| {
        let all = args.drain(..).map(|arg| cast(arg, WIDE));
        *args = all.collect();
    };
    Ok(match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params })
            if is_wrapping(func.name(), &params.args) =>
        {
            widened(&mut params.args);
            Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        Expr::WindowFunction(mut window) => {
            let is_sum = matches!(&window.fun, WindowFunctionDefinition::AggregateUDF(f)
                if is_wrapping(f.name(), &window.params.args));
            // Sliding sums of distinct values exist for integers only.
            if is_sum && !window.params.distinct {
                widened(&mut window.params.args);
                Transformed::yes(Expr::WindowFunction(window))
            } else {
                Transformed::no(Expr::WindowFunction(window))
            }
        }
        other => Transformed::no(other),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Op {
    /// `a + b * c`, evaluated from left to right.
    Chain(Vec<Operator>),
    Negate,
    /// Casts a wide sum to an integer, or a timestamp to a time of day.
    Cast,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    op: Op,
    returned: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.op {
            Op::Chain(_) => "checked",
            Op::Negate => "checked_negative",
            Op::Cast => "checked_cast",
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(self.shown(args.iter().map(ToString::to_string)))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(self.shown(args.iter().map(|arg| arg.schema_name().to_string())))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returned.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), self.returned.clone(), is_nullable);
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (&self.op, &args.args[..]) {
            (Op::Chain(ops), [first, rest @ ..]) => {
                let mut rest = ops.iter().zip(rest);
                rest.try_fold(first.clone(), |so_far, (op, next)| match op {
                    Operator::Plus => apply(&so_far, next, add),
                    Operator::Minus => apply(&so_far, next, sub),
                    _ => apply(&so_far, next, mul),
                })
            }
            // The second argument is ignored.
            (Op::Negate, [a]) => apply(a, a, |a, _| neg(a.get().0)),
            (Op::Cast, [a]) => a.cast_to(&self.returned, None),
            _ => exec_err!("{} has the wrong number of arguments", self.name()),
        };
        result.map_err(|e| self.overflow_error(e))
    }
}

impl Checked {
    /// The call as it was written. Two calls with different operators must have different names.
    fn shown(&self, args: impl Iterator<Item = String>) -> String {
        let args: Vec<String> = args.collect();
        match (&self.op, &args[..]) {
            (Op::Chain(ops), [first, rest @ ..]) => {
                let rest: String = ops
                    .iter()
                    .zip(rest)
                    .map(|(op, arg)| format!(" {op} {arg}"))
                    .collect();
                format!("({first}{rest})")
            }
            _ => format!("{}({})", self.name(), args.join(", ")),
        }
    }

    /// Rewrites an overflow error into a message; other errors stay as they are.
    fn overflow_error(&self, e: DataFusionError) -> DataFusionError {
        let how = match e.find_root() {
            DataFusionError::ArrowError(of_arrow, _) => match of_arrow.as_ref() {
                ArrowError::ArithmeticOverflow(text) => text
                    .trim_start_matches("Overflow happened on: ")
                    .to_string(),
                ArrowError::CastError(_) => "a sum".to_string(),
                _ => return e,
            },
            _ => return e,
        };
        let name = sql_name(&self.returned);
        DataFusionError::Execution(format!(
            "{OVERFLOW}: {how} does not fit {name}; CAST its operands to a wider type, such as BIGINT or DOUBLE"
        ))
    }
}

/// The SQL name of an integer type.
fn sql_name(of: &DataType) -> String {
    match of {
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        other => return other.to_string(),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::cases;
    use arrow::array::{Int8Array, Int64Array, RecordBatch};
    use datafusion::prelude::SessionContext;

    fn session() -> SessionContext {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(CheckedIntegers));
        let s = Arc::new(Int8Array::from(vec![Some(1), Some(2), None, Some(-128)]));
        let n = Arc::new(Int64Array::from(vec![i64::MAX, 1, i64::MIN, -1]));
        let batch = RecordBatch::try_from_iter([("s", s as _), ("n", n as _)]).unwrap();
        context.register_batch("t", batch).unwrap();
        context
    }

    async fn result(sql: &str) -> Result<String> {
        let batches = session().sql(sql).await?.collect().await?;
        let table = arrow::util::pretty::pretty_format_batches(&batches)?.to_string();
        let rows = table.lines().filter(|line| line.starts_with('|'));
        Ok(rows.map(str::trim).collect::<Vec<_>>().join("\n"))
    }

    #[tokio::test]
    async fn overflow_is_an_error() {
        let overflows = "
            SELECT s * CAST(100 AS TINYINT) FROM t WHERE s = 2 => 2 * 100 does not fit TINYINT
            SELECT s + s FROM t WHERE s < 0 => -128 + -128 does not fit TINYINT
            SELECT s - CAST(1 AS TINYINT) FROM t => -128 - 1
            SELECT -s FROM t => does not fit TINYINT
            SELECT n + 1 FROM t => does not fit BIGINT
            SELECT s FROM t WHERE n * 2 > 0 => does not fit BIGINT
            SELECT sum(n) FROM t WHERE n > 0 => a sum does not fit BIGINT
            SELECT s, sum(n) FROM t WHERE n > 0 GROUP BY ROLLUP (s) => a sum does not fit BIGINT
            SELECT sum(n) OVER (ORDER BY s NULLS LAST) FROM t WHERE n > 0 => a sum does not fit BIGINT
            SELECT 1 WHERE EXISTS (SELECT n - 2 AS m FROM t WHERE n - 2 > 0) => does not fit BIGINT
            SELECT a.s FROM t a JOIN t b ON a.n + 1 = b.n => does not fit BIGINT
            SELECT 1 + s + n - 2 FROM t WHERE s = 1 => does not fit BIGINT
            SELECT CAST(100 AS TINYINT) * CAST(2 AS TINYINT) => 100 * 2
        ";
        for (sql, how) in cases(overflows) {
            let e = result(sql).await.expect_err(sql).strip_backtrace();
            assert!(e.contains(OVERFLOW) && e.contains(how), "{sql}: {e}");
        }
    }

    #[tokio::test]
    async fn results_that_fit_are_unchanged() {
        for sql in [
            "SELECT s + 1, s * 2 AS d, -CAST(s AS BIGINT) FROM t",
            "SELECT 7 - s * 2 + 3 - (s - 1) * 5 - CAST(s AS INT) * CAST(s AS SMALLINT) FROM t",
            "SELECT s, sum(s), sum(n) FROM t WHERE s > 0 OR s IS NULL GROUP BY s ORDER BY s",
            "SELECT sum(n), sum(DISTINCT s), count(*), sum(s) + 1, avg(n) FROM t",
            "SELECT sum(s) OVER (ORDER BY n) AS w, sum(n) OVER (PARTITION BY s) FROM t ORDER BY n",
            "SELECT sum(n) FROM t WHERE s > 100",
            "SELECT s FROM t GROUP BY s HAVING sum(n) > 0 ORDER BY sum(n)",
            "SELECT s + 0.5, date '2024-01-01' + interval '1 day', s % 2, n / 2 FROM t",
        ] {
            let plain = SessionContext::new();
            let table = session().table_provider("t").await.unwrap();
            plain.register_table("t", table).unwrap();
            let batches = plain.sql(sql).await.unwrap().collect().await.unwrap();
            let exact = session().sql(sql).await.unwrap().collect().await.unwrap();
            let types = |batches: &[RecordBatch]| {
                let fields = batches[0].schema();
                let each = fields.fields().iter();
                each.map(|f| (f.name().clone(), f.data_type().clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(types(&exact), types(&batches), "{sql}");
            let shown = |batches: &[RecordBatch]| {
                arrow::util::pretty::pretty_format_batches(batches)
                    .unwrap()
                    .to_string()
            };
            assert_eq!(shown(&exact), shown(&batches), "{sql}");
        }
    }
}
