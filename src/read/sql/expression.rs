//! SQL expressions over columns of numbers → expressions that filters evaluate and differentiate.
//!
//! The engine's planner resolves names and types and folds constants, so that `1 / 2` is 0, as
//! everywhere in SQL. What it leaves is translated one to one.

use crate::error::{Error, Result, hint};
use crate::methods::filter::expression::{Binary, Expression, Unary};
use crate::read::sql::{messages, statement};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// The functions of one number, by their names in SQL.
const UNARY: [(&str, Unary); 26] = [
    ("abs", Unary::Abs),
    ("signum", Unary::Signum),
    ("sqrt", Unary::Sqrt),
    ("cbrt", Unary::Cbrt),
    ("exp", Unary::Exp),
    ("ln", Unary::Ln),
    ("log", Unary::Log10),
    ("log2", Unary::Log2),
    ("log10", Unary::Log10),
    ("sin", Unary::Sin),
    ("cos", Unary::Cos),
    ("tan", Unary::Tan),
    ("asin", Unary::Asin),
    ("acos", Unary::Acos),
    ("atan", Unary::Atan),
    ("sinh", Unary::Sinh),
    ("cosh", Unary::Cosh),
    ("tanh", Unary::Tanh),
    ("asinh", Unary::Asinh),
    ("acosh", Unary::Acosh),
    ("atanh", Unary::Atanh),
    ("degrees", Unary::Degrees),
    ("radians", Unary::Radians),
    ("floor", Unary::Floor),
    ("ceil", Unary::Ceil),
    ("trunc", Unary::Trunc),
];

/// Reads an expression over columns of numbers. Coordinate i of the result is `names[i]`.
///
/// # Errors
/// If the text is not one expression, or has a column or an operation that there is not. The
/// message has the whole text and the culprit.
pub(crate) fn expression(text: &str, names: &[String]) -> Result<Expression> {
    read(text, names)
        .map_err(|why| Error::spec(format!("the expression `{text}` cannot be used: {why}")))
}

fn read(text: &str, names: &[String]) -> std::result::Result<Expression, String> {
    let state = SessionContext::new().state();
    // Refuses what the planner would ignore.
    statement::parse(&format!("SELECT {text}"), &state)?;
    let fields = names
        .iter()
        .map(|name| Field::new(name, DataType::Float64, false));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let wrong = |e: DataFusionError| messages::of_plan(&e, &state, &[]);
    let schema = DFSchema::try_from(schema).map_err(wrong)?;
    let planned = state.create_logical_expr(text, &schema).map_err(wrong)?;
    let planned = planned.unalias();
    only_scalar(&planned)?;
    let planned = simplified(planned, &schema, &state).map_err(wrong)?;
    let translator = Translator { schema, names };
    let kind = translator.kind(&planned)?;
    if kind == Kind::Condition {
        return Err("it is a condition, not a number; write CASE WHEN … THEN … ELSE … END".into());
    }
    translator.translate(&planned)
}

/// Refuses aggregates, windows and subqueries, which the planner accepts.
fn only_scalar(expr: &Expr) -> std::result::Result<(), String> {
    use datafusion::common::tree_node::TreeNode;
    let mut wrong = None;
    // The closure returns no error.
    let _ = expr.apply(|expr| {
        let what = match expr {
            Expr::AggregateFunction(_) => "an aggregate",
            Expr::WindowFunction(_) => "a window function",
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => "a subquery",
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        wrong = Some(format!("`{}` is {what}", shown(expr)));
        Ok(TreeNodeRecursion::Stop)
    });
    wrong.map_or(Ok(()), |wrong| {
        Err(format!(
            "{wrong}; the expression has the numbers of one row"
        ))
    })
}

fn simplified(
    expr: Expr,
    schema: &DFSchema,
    state: &SessionState,
) -> datafusion::common::Result<Expr> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(expr, schema)?;
    simplifier.simplify(coerced)
}

/// What an expression gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Float,
    Integer,
    Condition,
}

struct Translator<'a> {
    schema: DFSchema,
    names: &'a [String],
}

type Translated = std::result::Result<Expression, String>;

/// An expression as a person would write it.
fn shown(expr: &Expr) -> String {
    expr.human_display().to_string()
}

fn unsupported(expr: &Expr) -> String {
    format!("`{}` is not supported; {SUPPORTED}", shown(expr))
}

/// All that an expression may have.
const SUPPORTED: &str = "there are + - * / %, comparisons, AND, OR, NOT, CASE, greatest, least, power, atan2, \
    pi, round and functions of one number such as sqrt, exp, ln, sin, tanh and floor";

impl Translator<'_> {
    fn kind(&self, expr: &Expr) -> std::result::Result<Kind, String> {
        let kind = expr
            .get_type(&self.schema)
            .map_err(|e| messages::brief(&e))?;
        match kind {
            DataType::Float64 => Ok(Kind::Float),
            DataType::Boolean => Ok(Kind::Condition),
            kind if kind.is_integer() => Ok(Kind::Integer),
            DataType::Null => Err(format!("`{}` is null", shown(expr))),
            _ => Err(format!("`{}` is not a DOUBLE", shown(expr))),
        }
    }

    fn translate(&self, expr: &Expr) -> Translated {
        let kind = self.kind(expr)?;
        match expr {
            Expr::Alias(alias) => self.translate(&alias.expr),
            Expr::Column(column) => {
                let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
                let index = names.iter().position(|name| *name == column.name);
                index.map(Expression::coordinate).ok_or_else(|| {
                    let name = &column.name;
                    format!("there is no column `{name}`{}", hint(name, &names))
                })
            }
            Expr::Literal(value, _) => literal(value).ok_or_else(|| unsupported(expr)),
            Expr::Negative(of) => self.unary(Unary::Negate, of),
            Expr::Not(of) | Expr::IsFalse(of) | Expr::IsNotTrue(of) => self.unary(Unary::Not, of),
            Expr::IsTrue(of) | Expr::IsNotFalse(of) => self.translate(of),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let Some((function, is_reversed)) = binary(*op) else {
                    return Err(unsupported(expr));
                };
                let (mut a, mut b) = (self.translate(left)?, self.translate(right)?);
                if is_reversed {
                    std::mem::swap(&mut a, &mut b);
                }
                let all = Expression::binary(function, a, b);
                let is_truncated = function == Binary::Divide && kind == Kind::Integer;
                Ok(if is_truncated {
                    Expression::unary(Unary::Trunc, all)
                } else {
                    all
                })
            }
            Expr::Between(Between {
                expr: of,
                negated,
                low,
                high,
            }) => {
                let of = self.translate(of)?;
                let above = Expression::binary(Binary::AtMost, self.translate(low)?, of.clone());
                let below = Expression::binary(Binary::AtMost, of, self.translate(high)?);
                Ok(not_if(
                    *negated,
                    Expression::binary(Binary::And, above, below),
                ))
            }
            Expr::InList(InList {
                expr: of,
                list,
                negated,
            }) => {
                let of = self.translate(of)?;
                let mut any = Expression::number(0.0);
                for value in list {
                    let value = self.translate(value)?;
                    let same = Expression::binary(Binary::Equal, of.clone(), value);
                    any = Expression::binary(Binary::Or, any, same);
                }
                Ok(not_if(*negated, any))
            }
            Expr::Case(case) => self.case(case),
            Expr::Cast(Cast { expr: of, .. }) => {
                let of_kind = self.kind(of)?;
                let of = self.translate(of)?;
                match (of_kind, kind) {
                    (Kind::Float, Kind::Integer) => Ok(Expression::unary(Unary::Trunc, of)),
                    (Kind::Float | Kind::Integer, Kind::Condition) => {
                        let zero = Expression::number(0.0);
                        Ok(Expression::binary(Binary::NotEqual, of, zero))
                    }
                    _ => Ok(of),
                }
            }
            Expr::ScalarFunction(function) => self
                .function(function)
                .unwrap_or_else(|| Err(unsupported(expr))),
            _ => Err(unsupported(expr)),
        }
    }

    fn unary(&self, function: Unary, of: &Expr) -> Translated {
        Ok(Expression::unary(function, self.translate(of)?))
    }

    fn binary(&self, function: Binary, a: &Expr, b: &Expr) -> Translated {
        Ok(Expression::binary(
            function,
            self.translate(a)?,
            self.translate(b)?,
        ))
    }

    fn case(&self, case: &Case) -> Translated {
        let Some(other) = &case.else_expr else {
            return Err("a CASE has no ELSE".into());
        };
        let mut all = self.translate(other)?;
        for (when, then) in case.when_then_expr.iter().rev() {
            let condition = match &case.expr {
                Some(of) => self.binary(Binary::Equal, of, when)?,
                None => self.translate(when)?,
            };
            all = Expression::choose(condition, self.translate(then)?, all);
        }
        Ok(all)
    }

    /// f(… f(f(a, b), c) …). None without arguments.
    fn fold(&self, function: Binary, args: &[Expr]) -> Option<Translated> {
        let (first, rest) = args.split_first()?;
        let first = self.translate(first);
        Some(rest.iter().fold(first, |all, next| {
            Ok(Expression::binary(function, all?, self.translate(next)?))
        }))
    }

    /// None if there is no such function.
    fn function(&self, function: &ScalarFunction) -> Option<Translated> {
        let name = function.name();
        match (name, function.args.as_slice()) {
            ("greatest", _) => self.fold(Binary::Greatest, &function.args),
            ("least", _) => self.fold(Binary::Least, &function.args),
            ("power" | "pow", [a, b]) => Some(self.binary(Binary::Power, a, b)),
            ("atan2", [a, b]) => Some(self.binary(Binary::Atan2, a, b)),
            ("round", [of]) => Some(self.unary(Unary::Round, of)),
            (_, [of]) => {
                let (_, unary) = UNARY.iter().find(|(other, _)| *other == name)?;
                Some(self.unary(*unary, of))
            }
            _ => None,
        }
    }
}

fn not_if(is_negated: bool, of: Expression) -> Expression {
    if is_negated {
        Expression::unary(Unary::Not, of)
    } else {
        of
    }
}

/// The function of an operator, and whether its arguments change places.
fn binary(operator: Operator) -> Option<(Binary, bool)> {
    Some(match operator {
        Operator::Plus => (Binary::Add, false),
        Operator::Minus => (Binary::Subtract, false),
        Operator::Multiply => (Binary::Multiply, false),
        Operator::Divide => (Binary::Divide, false),
        Operator::Modulo => (Binary::Remainder, false),
        Operator::Eq | Operator::IsNotDistinctFrom => (Binary::Equal, false),
        Operator::NotEq | Operator::IsDistinctFrom => (Binary::NotEqual, false),
        Operator::Lt => (Binary::Less, false),
        Operator::LtEq => (Binary::AtMost, false),
        Operator::Gt => (Binary::Less, true),
        Operator::GtEq => (Binary::AtMost, true),
        Operator::And => (Binary::And, false),
        Operator::Or => (Binary::Or, false),
        _ => return None,
    })
}

fn literal(value: &ScalarValue) -> Option<Expression> {
    let value = match value {
        ScalarValue::Boolean(value) => f64::from((*value)?),
        ScalarValue::Float64(value) => (*value)?,
        _ => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(value)) => value?,
            _ => return None,
        },
    };
    Some(Expression::number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["theta".into(), "r".into(), "Big".into()]
    }

    fn value(text: &str, state: [f64; 3]) -> f64 {
        expression(text, &names()).unwrap().eval(&state)
    }

    fn why(text: &str) -> String {
        expression(text, &names()).unwrap_err().to_string()
    }

    #[test]
    fn expressions_are_those_of_sql() {
        let state = [0.7, 2.0, 3.0];
        let observed = value("(1 + sin(8 * theta)) * cos(theta)", state);
        assert_eq!(observed, (1.0 + 5.6f64.sin()) * 0.7f64.cos());
        assert_eq!(value("theta + 0.4", state), 0.7 + 0.4);
        assert_eq!(value("-r * \"Big\" - 1", state), -7.0);
        assert_eq!(value("r / 4", state), 0.5);
        assert_eq!(value("1 / 2 + r", state), 2.0);
        assert_eq!(value("-7 % 3 + 0 * r", state), -1.0);
        assert_eq!(value("power(r, 3) + pow(r, 2)", state), 12.0);
        assert_eq!(value("pi()", state), std::f64::consts::PI);
        assert_eq!(value("atan2(r, theta)", state), 2f64.atan2(0.7));
        assert_eq!(value("greatest(theta, r, 1)", state), 2.0);
        assert_eq!(value("least(theta, r, 1)", state), 0.7);
        assert_eq!(value("round(-2.5 * r / 2)", state), -3.0);
        assert_eq!(value("log(100 * r / 2)", state), 2.0);
        assert_eq!(
            value("floor(r + 0.5) + ceil(theta) + signum(r)", state),
            4.0
        );
        assert_eq!(value("CAST(theta * 10 AS BIGINT) / 2", state), 3.0);
        assert_eq!(value("theta AS angle", state), 0.7);
        assert_eq!(value("5", state), 5.0);
    }

    #[test]
    fn conditions_choose_between_numbers() {
        let clamp = "CASE WHEN theta < 0 THEN 0 WHEN theta >= 1 THEN 1 ELSE theta END";
        for (theta, expected) in [(-1.0, 0.0), (0.5, 0.5), (1.0, 1.0), (3.0, 1.0)] {
            assert_eq!(value(clamp, [theta, 0.0, 0.0]), expected);
        }
        let between = "CASE WHEN theta BETWEEN 1 AND 2 AND NOT r = 3 THEN 1.5 ELSE 0 END";
        assert_eq!(value(between, [1.0, 0.0, 0.0]), 1.5);
        assert_eq!(value(between, [1.0, 3.0, 0.0]), 0.0);
        assert_eq!(value(between, [2.5, 0.0, 0.0]), 0.0);
        let one_of = "CASE WHEN r IN (1, 2, 5) OR theta <> 0 THEN 1 ELSE 2 END";
        assert_eq!(value(one_of, [0.0, 5.0, 0.0]), 1.0);
        assert_eq!(value(one_of, [0.0, 3.0, 0.0]), 2.0);
        let case = "CASE r WHEN 1 THEN 10 WHEN 2 THEN 20 ELSE 0 END";
        assert_eq!(value(case, [0.0, 2.0, 0.0]), 20.0);
    }

    #[test]
    fn what_an_expression_cannot_have_is_named() {
        let start = "the expression `cos(thet)` cannot be used: ";
        assert_eq!(
            why("cos(thet)"),
            format!("{start}there is no column `thet`; did you mean `theta`?")
        );
        assert!(why("Big + 1").contains("there is no column `big`, but there is `Big`"));
        assert!(why("kosinus(theta)").contains("there is no function `kosinus`"));
        assert!(why("random() * theta").contains("`random()` is not supported; there are +"));
        assert!(
            why("avg(theta)").contains("is an aggregate"),
            "{}",
            why("avg(theta)")
        );
        assert!(why("theta > 1").contains("it is a condition, not a number"));
        assert!(why("CASE WHEN theta > 1 THEN 1 END").contains("no ELSE"));
        assert!(why("'a'").contains("is not a DOUBLE"), "{}", why("'a'"));
        assert!(why("NULL").contains("is null"), "{}", why("NULL"));
        for text in [
            "",
            "theta +",
            "theta, r",
            "theta; r",
            "theta FROM x",
            "(SELECT 1)",
        ] {
            assert!(
                why(text).contains("cannot be used: "),
                "{text}: {}",
                why(text)
            );
        }
    }
}
