//! Exact sums and means of floating numbers over frames whose first row moves.
//!
//! The engine subtracts values that leave a frame from a floating sum. A NaN or an infinity then
//! spoils all later rows, and digits that a large value took from the sum do not come back. These
//! functions sum without rounding. In: the window functions `sum` and `avg`. Out: functions of the
//! same names and types.

use crate::math::exact::ExactSum;
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ExprSchemable, Signature, Volatility,
    WindowFunctionDefinition,
};

/// The function that takes the place of that of a window. None if the engine's is exact.
pub(crate) fn exact(window: &WindowFunction, schema: &DFSchema) -> Option<AggregateUDF> {
    let WindowFunctionDefinition::AggregateUDF(function) = &window.fun else {
        return None;
    };
    let params = &window.params;
    let is_mean = match function.name() {
        "sum" => false,
        "avg" => true,
        _ => return None,
    };
    let of = params.args.first()?.get_type(schema).ok()?;
    let moves = !params.window_frame.start_bound.is_unbounded();
    (moves && of == DataType::Float64 && !params.distinct).then(|| {
        AggregateUDF::from(Moving {
            is_mean,
            signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
        })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Moving {
    is_mean: bool,
    signature: Signature,
}

impl AggregateUDFImpl for Moving {
    fn name(&self) -> &str {
        if self.is_mean { "avg" } else { "sum" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Frame {
            is_mean: self.is_mean,
            ..Frame::default()
        }))
    }
}

/// What the rows of a frame sum up to.
#[derive(Debug, Default)]
struct Frame {
    is_mean: bool,
    count: u64,
    finite: ExactSum,
    /// The numbers of NaN, of ∞ and of −∞.
    others: [u64; 3],
}

impl Frame {
    fn apply(&mut self, values: &[ArrayRef], enters: bool) -> Result<()> {
        let [values] = values else {
            return internal_err!("a moving sum has one argument");
        };
        let step = |count: &mut u64| {
            *count = if enters { *count + 1 } else { *count - 1 };
        };
        for value in values.as_primitive::<Float64Type>().iter().flatten() {
            step(&mut self.count);
            match value {
                v if v.is_nan() => step(&mut self.others[0]),
                f64::INFINITY => step(&mut self.others[1]),
                f64::NEG_INFINITY => step(&mut self.others[2]),
                v => self.finite.add(if enters { v } else { -v }),
            }
        }
        Ok(())
    }

    fn sum(&self) -> f64 {
        match self.others {
            [0, 0, 0] => self.finite.value(),
            [0, _, 0] => f64::INFINITY,
            [0, 0, _] => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.apply(values, true)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.apply(values, false)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let divisor = if self.is_mean { self.count as f64 } else { 1.0 };
        let result = (self.count > 0).then(|| self.sum() / divisor);
        Ok(ScalarValue::Float64(result))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.finite.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame is summed in one piece")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame is summed in one piece")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::sql::floats::OneFloat;
    use arrow::array::{Float64Array, Int64Array, RecordBatch};
    use datafusion::prelude::SessionContext;
    use std::sync::Arc;

    fn context(values: &[Option<f64>]) -> SessionContext {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(OneFloat));
        let at = Int64Array::from_iter_values(0..values.len() as i64);
        let values = Float64Array::from(values.to_vec());
        let columns: Vec<(&str, ArrayRef)> = vec![("t", Arc::new(at)), ("x", Arc::new(values))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        context.register_batch("x", batch).unwrap();
        context
    }

    async fn results(context: &SessionContext, frame: &str) -> [Vec<Option<f64>>; 2] {
        let sql =
            format!("SELECT sum(x) OVER w, avg(x) OVER w FROM x WINDOW w AS ({frame}) ORDER BY t");
        let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
        [0, 1].map(|column| {
            let of =
                |batch: &RecordBatch| batch.column(column).as_primitive::<Float64Type>().clone();
            let values = batches.iter().map(of);
            values
                .flat_map(|values| values.iter().collect::<Vec<_>>())
                .collect()
        })
    }

    /// The sum of multiples of 1/4, rounded once.
    fn sum(values: &[Option<f64>]) -> Option<f64> {
        let values = values.iter().flatten();
        let finite = values.clone().filter(|v| v.is_finite());
        let exact: i128 = finite.map(|v| (v * 4.0) as i128).sum();
        let others = values.clone().filter(|v| !v.is_finite()).sum::<f64>();
        (values.count() > 0).then_some(exact as f64 / 4.0 + others)
    }

    #[tokio::test]
    async fn a_value_that_leaves_a_frame_leaves_no_trace() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for odd in [nan, inf, -inf, 1e18, 3e16] {
            let mut values = [1.5, 2.0, odd, 0.25, 8.0, 4.0, 1.0].map(Some).to_vec();
            values.extend([None, None, None, Some(2.0), Some(inf), Some(-inf)]);
            let context = context(&values);
            let n = values.len();
            type Rows = fn(usize, usize) -> std::ops::Range<usize>;
            let frames: [(&str, Rows); 3] = [
                (
                    "ORDER BY t ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                    |i, _| i.saturating_sub(2)..i + 1,
                ),
                (
                    "ORDER BY t ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING",
                    |i, n| i..(i + 2).min(n),
                ),
                (
                    "ORDER BY t RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING",
                    |i, n| i.saturating_sub(1)..n,
                ),
            ];
            for (frame, rows) in frames {
                let [sums, means] = results(&context, frame).await;
                for i in 0..n {
                    let own = &values[rows(i, n)];
                    let (exact, count) = (sum(own), own.iter().flatten().count() as f64);
                    let bits =
                        |v: Option<f64>| v.map(|v| if v.is_nan() { nan } else { v }.to_bits());
                    assert_eq!(bits(sums[i]), bits(exact), "{odd} {frame} {i}");
                    assert_eq!(
                        bits(means[i]),
                        bits(exact.map(|v| v / count)),
                        "{odd} {frame} {i}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn other_windows_stay_as_they_are() {
        let context = context(&[Some(1.0), Some(2.0)]);
        for (sql, is_exact) in [
            ("sum(x) OVER (ORDER BY t ROWS 1 PRECEDING)", true),
            ("avg(t) OVER (ORDER BY t ROWS 1 PRECEDING)", true),
            ("sum(x) OVER (ORDER BY t)", false),
            ("sum(t) OVER (ORDER BY t ROWS 1 PRECEDING)", false),
            ("max(x) OVER (ORDER BY t ROWS 1 PRECEDING)", false),
        ] {
            let frame = context.sql(&format!("SELECT {sql} FROM x")).await.unwrap();
            let plan = context.state().optimize(frame.logical_plan()).unwrap();
            let shown = format!("{plan:?}");
            assert_eq!(shown.contains("Moving"), is_exact, "{sql}: {shown}");
        }
    }
}
