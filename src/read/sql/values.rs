//! Parameters in `VALUES`.
//!
//! The engine gives a column of `VALUES` its type before parameters have values: beside the integer
//! of `1 - $delta`, `$delta` would be cast to an integer. So numbers, texts and booleans are put
//! into `VALUES` before the statement is planned.

use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Value, ValueWithSpan, VisitMut, VisitorMut};
use std::collections::BTreeMap;
use std::ops::ControlFlow::{self, Continue};

/// Replaces the parameters in the `VALUES` of a statement. Others are replaced in its plan.
pub(crate) fn replace(statement: &mut Statement, parameters: &BTreeMap<String, ScalarValue>) {
    if let Statement::Statement(statement) = statement {
        let _: ControlFlow<()> = VisitMut::visit(statement.as_mut(), &mut Lists(parameters));
    }
}

/// Visits the lists of `VALUES`.
struct Lists<'a>(&'a BTreeMap<String, ScalarValue>);

impl VisitorMut for Lists<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.replace(&mut query.body);
        Continue(())
    }
}

impl Lists<'_> {
    fn replace(&self, body: &mut SetExpr) {
        match body {
            SetExpr::Values(values) => {
                let _: ControlFlow<()> = VisitMut::visit(values, &mut Cells(self.0));
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.replace(left);
                self.replace(right);
            }
            _ => {}
        }
    }
}

/// Visits the values of a list.
struct Cells<'a>(&'a BTreeMap<String, ScalarValue>);

impl VisitorMut for Cells<'_> {
    type Break = ();

    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::Placeholder(name) = &value.value {
            let parameter = name.strip_prefix('$').and_then(|name| self.0.get(name));
            if let Some(literal) = parameter.and_then(literal) {
                value.value = literal;
            }
        }
        Continue(())
    }
}

/// A value as it is written in SQL. None for one that has no literal.
fn literal(value: &ScalarValue) -> Option<Value> {
    match value {
        ScalarValue::Boolean(Some(x)) => Some(Value::Boolean(*x)),
        ScalarValue::Int64(Some(x)) => Some(Value::Number(x.to_string(), false)),
        // All digits, and a point or an exponent.
        ScalarValue::Float64(Some(x)) if x.is_finite() => {
            Some(Value::Number(format!("{x:?}"), false))
        }
        ScalarValue::Utf8(Some(text)) => Some(Value::SingleQuotedString(text.clone())),
        _ => None,
    }
}
