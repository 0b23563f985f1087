//! Casts of local times to times of a zone.
//!
//! Where such a cast is compared with a literal, the engine leaves it out as if local time were
//! UTC, and it names no column when a zone lacks a local time. These functions take the place of
//! such casts, with the same types. Casts to UTC stay, because they change no number.

use crate::read::sql::moments::rewritten;
use arrow::array::Array;
use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::util::display::array_value_to_string;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Replaces the casts, after type coercion.
#[derive(Debug)]
pub(crate) struct LocalTimes;

impl AnalyzerRule for LocalTimes {
    fn name(&self) -> &str {
        "local_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, replace)
    }
}

/// What an expression casts, and whether what cannot be cast becomes null.
fn cast_of(expr: &Expr) -> Option<(&Expr, bool)> {
    match expr {
        Expr::Cast(Cast { expr, .. }) => Some((expr, false)),
        Expr::TryCast(TryCast { expr, .. }) => Some((expr, true)),
        // The optimizer makes casts of them later.
        Expr::ScalarFunction(call) => {
            let is_safe = match call.name() {
                "arrow_cast" | "cast_to_type" => false,
                "arrow_try_cast" | "try_cast_to_type" => true,
                _ => return None,
            };
            Some((call.args.first()?, is_safe))
        }
        _ => None,
    }
}

/// Replaces a cast. Whether it did.
fn replace(expr: &mut Expr, schema: &DFSchema) -> bool {
    let Some((of, is_safe)) = cast_of(expr) else {
        return false;
    };
    let (Ok(from), Ok(to)) = (of.get_type(schema), expr.get_type(schema)) else {
        return false;
    };
    use DataType::Timestamp;
    let zone = match (&from, &to) {
        (Timestamp(_, None), Timestamp(_, Some(zone))) => zone,
        (text, Timestamp(_, Some(zone))) if text.is_string() => zone,
        _ => return false,
    };
    if ["UTC", "Z", "+00:00", "+00", "+0000"].contains(&zone.as_ref()) {
        return false;
    }
    let shown = match of {
        Expr::Column(column) => format!("column `{}`", column.name),
        Expr::Literal(..) => "the SQL".to_string(),
        other => format!("`{}`", other.human_display()),
    };
    let of = of.clone();
    let cast = ScalarUDF::from(LocalTime {
        of: shown,
        to,
        is_safe,
        signature: Signature::any(1, Volatility::Immutable),
    });
    *expr = cast.call(vec![of]);
    true
}

/// A cast of a time without a zone, or of a text, to a time of a zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LocalTime {
    /// What is cast, in words.
    of: String,
    to: DataType,
    /// Whether a time that cannot be cast becomes null.
    is_safe: bool,
    signature: Signature,
}

impl LocalTime {
    fn shown(&self, of: impl std::fmt::Display) -> String {
        let cast = if self.is_safe { "TRY_CAST" } else { "CAST" };
        format!("{cast}({of} AS {})", self.to)
    }

    /// The error for the first local time that its zone does not have exactly once. If there is
    /// none, the given error.
    fn skipped(&self, times: &dyn Array, e: DataFusionError) -> DataFusionError {
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let DataType::Timestamp(unit, Some(zone)) = &self.to else {
            return e;
        };
        let unit = match times.data_type() {
            // In another unit, a time may be out of range.
            DataType::Timestamp(own, _) => own,
            // A text may be no time at all.
            _ if e.to_string().contains("error computing timezone offset") => unit,
            _ => return e,
        };
        let same_unit = DataType::Timestamp(*unit, Some(Arc::clone(zone)));
        let Ok(cast) = arrow::compute::cast_with_options(times, &same_unit, &options) else {
            return e;
        };
        let Some(at) = (0..times.len()).find(|&at| times.is_valid(at) && cast.is_null(at)) else {
            return e;
        };
        let Ok(time) = array_value_to_string(times, at) else {
            return e;
        };
        DataFusionError::Execution(format!(
            "{} has the local time {time}, which clocks in {zone} skip or show twice; arrow_try_cast makes such times null",
            self.of
        ))
    }
}

impl ScalarUDFImpl for LocalTime {
    fn name(&self) -> &str {
        "local_time"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(|of| self.shown(of)).collect())
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names = args.iter().map(|of| self.shown(of.schema_name()));
        Ok(names.collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = self.is_safe || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.to.clone(),
            is_nullable,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = CastOptions {
            safe: self.is_safe,
            ..CastOptions::default()
        };
        let [times] = &args.args[..] else {
            return datafusion::common::internal_err!("a cast has one argument");
        };
        times
            .cast_to(&self.to, Some(&options))
            .map_err(|e| match times.to_array(1) {
                Ok(times) => self.skipped(&times, e),
                Err(_) => e,
            })
    }
}
