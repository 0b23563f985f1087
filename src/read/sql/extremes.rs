//! Largest and smallest floating numbers of groups.
//!
//! The engine compares numbers of a group as `partial_cmp` does, so a NaN hides the numbers before
//! it, and a group of −∞ has the largest finite number below it. These functions compare as the
//! rest of SQL does: NaN is the largest. In: the aggregates `max` and `min` of floating numbers, of
//! which −0.0 and NaN have one form. Out: functions of the same names and types.

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, ExprSchemable, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature,
};
use std::cmp::Ordering;
use std::sync::Arc;

/// The function that takes the place of that of an aggregate. None if the engine's is right.
pub(crate) fn ordered(aggregate: &AggregateFunction, schema: &DFSchema) -> Option<AggregateUDF> {
    let is_max = match aggregate.func.name() {
        "max" => true,
        "min" => false,
        _ => return None,
    };
    let of = aggregate.params.args.first()?.get_type(schema).ok()?;
    of.is_floating().then(|| {
        AggregateUDF::from(Extreme {
            inner: Arc::clone(&aggregate.func),
            is_max,
        })
    })
}

/// `max` or `min` of the engine with other accumulators of groups.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
    is_max: bool,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, of: &[DataType]) -> Result<DataType> {
        self.inner.return_type(of)
    }

    fn coerce_types(&self, of: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(of)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        args.return_field.data_type().is_floating()
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let wins = if self.is_max {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        Ok(match args.return_field.data_type() {
            DataType::Float16 => Box::new(Groups::<Float16Type>::new(wins)),
            DataType::Float32 => Box::new(Groups::<Float32Type>::new(wins)),
            DataType::Float64 => Box::new(Groups::<Float64Type>::new(wins)),
            other => return internal_err!("{other} is no floating type"),
        })
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn set_monotonicity(&self, of: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(of)
    }
}

/// The largest or the smallest number of each group.
struct Groups<T: ArrowPrimitiveType> {
    /// How a number compares with a worse one.
    wins: Ordering,
    /// By group. None without a number.
    best: Vec<Option<T::Native>>,
}

impl<T: ArrowPrimitiveType> Groups<T> {
    fn new(wins: Ordering) -> Groups<T> {
        let best = Vec::new();
        Groups { wins, best }
    }
}

/// The numbers of the rows that a filter keeps.
fn kept<'a, T: ArrowPrimitiveType>(
    values: &'a [ArrayRef],
    filter: Option<&'a BooleanArray>,
) -> Result<impl Iterator<Item = Option<T::Native>> + 'a> {
    let [values] = values else {
        return internal_err!("an extreme has one argument");
    };
    let values: &PrimitiveArray<T> = values.as_primitive();
    let keeps = move |row: usize| filter.is_none_or(|f| f.is_valid(row) && f.value(row));
    let rows = values.iter().enumerate();
    Ok(rows.map(move |(row, value)| value.filter(|_| keeps(row))))
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        n_groups: usize,
    ) -> Result<()> {
        self.best.resize(n_groups, None);
        for (value, group) in kept::<T>(values, filter)?.zip(groups) {
            let Some(value) = value else { continue };
            let best = &mut self.best[*group];
            if best.is_none_or(|best| value.compare(best) == self.wins) {
                *best = Some(value);
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values: PrimitiveArray<T> = kept::<T>(values, filter)?.collect();
        Ok(vec![Arc::new(values)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], n: usize) -> Result<()> {
        self.update_batch(values, groups, None, n)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let best = emit_to.take_needed(&mut self.best);
        Ok(Arc::new(best.into_iter().collect::<PrimitiveArray<T>>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn size(&self) -> usize {
        self.best.capacity() * size_of::<Option<T::Native>>()
    }
}
