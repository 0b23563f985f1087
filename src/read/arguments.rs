//! The constant arguments of table functions.

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::Expr;

/// The arguments of one call. They are already simplified: arithmetic on constants is a literal.
pub(crate) struct Arguments<'a> {
    function: &'static str,
    names: &'static [&'static str],
    given: &'a [Expr],
}

impl<'a> Arguments<'a> {
    /// The arguments `given` to a function. Trailing arguments may be omitted.
    ///
    /// # Errors
    /// If there are more arguments than `names`.
    pub(crate) fn new(
        function: &'static str,
        names: &'static [&'static str],
        given: &'a [Expr],
    ) -> Result<Arguments<'a>> {
        if given.len() > names.len() {
            return plan_err!(
                "{function}: at most {} arguments are possible ({}), not {}",
                names.len(),
                names.join(", "),
                given.len()
            );
        }
        Ok(Arguments {
            function,
            names,
            given,
        })
    }

    /// Argument `at`, or `None` if it is omitted. A NULL or a text is an error that names what is
    /// `wanted`.
    fn number(&self, at: usize, wanted: &str) -> Result<Option<&'a ScalarValue>> {
        let (function, name) = (self.function, self.names[at]);
        match self.given.get(at) {
            None => Ok(None),
            Some(Expr::Literal(value, _)) if value.data_type().is_numeric() && !value.is_null() => {
                Ok(Some(value))
            }
            Some(Expr::Literal(value, _)) => {
                plan_err!("{function}: {name} must be {wanted}, not {value}")
            }
            Some(other) => plan_err!("{function}: {name} must be a constant, not {other}"),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// If the argument is something else.
    pub(crate) fn real(&self, at: usize, default: f64) -> Result<f64> {
        match self.number(at, "a number")? {
            None => Ok(default),
            Some(value) => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(Some(real)) => Ok(real),
                _ => {
                    let (function, name) = (self.function, self.names[at]);
                    plan_err!("{function}: {name} must be a number, not {value}")
                }
            },
        }
    }

    /// An integer of at least `least`, which is 0 or 1. Other types are accepted if the value is an
    /// integer: `40.0` is 40.
    ///
    /// # Errors
    /// If the argument is something else.
    pub(crate) fn whole(&self, at: usize, default: i64, least: i64) -> Result<i64> {
        let wanted = match least {
            0 => "an integer, 0 or more",
            _ => "a positive integer",
        };
        let Some(value) = self.number(at, wanted)? else {
            return Ok(default);
        };
        let integer = match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(integer)) => integer,
            _ => None,
        };
        integer
            .filter(|&i| i >= least && self.real(at, 0.0).is_ok_and(|r| r == i as f64))
            .ok_or_else(|| {
                let (function, name) = (self.function, self.names[at]);
                plan_datafusion_err!("{function}: {name} must be {wanted}, not {value}")
            })
    }
}
