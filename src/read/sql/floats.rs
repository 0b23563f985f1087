//! One form of every floating value: 0.0 for −0.0, and one NaN for every NaN.
//!
//! −0.0 equals 0.0, and SQL has one NaN, but both have several bit patterns, and the engine
//! compares bits: 0/0 is less than all numbers on some machines. So tables of files give one form
//! only, and what a query computes gets it where values are compared, grouped or sorted, or leave
//! the query. In: any array. Out: the same array if it has one form already, which costs one pass
//! over its values.

use crate::read::sql::extremes::ordered;
use crate::read::sql::moving_sums::exact;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, MapArray, OffsetSizeTrait, PrimitiveArray, StructArray,
};
use arrow::datatypes::{DataType, FieldRef, Float16Type, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::collections::HashSet;
use std::sync::Arc;

/// Whether values of a type are or contain floating numbers.
pub(crate) fn has_floats(of: &DataType) -> bool {
    use DataType as T;
    match of {
        T::Float16 | T::Float32 | T::Float64 => true,
        T::List(item)
        | T::LargeList(item)
        | T::ListView(item)
        | T::LargeListView(item)
        | T::FixedSizeList(item, _)
        | T::Map(item, _) => has_floats(item.data_type()),
        T::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        T::Dictionary(_, value) => has_floats(value),
        _ => false,
    }
}

/// The array with one form of every floating value.
///
/// # Errors
/// An array whose parts do not fit together.
pub(crate) fn one_form(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    if !has_floats(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        T::Float64 => {
            let one = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
            Ok(primitive::<Float64Type>(array, one, f64::to_bits))
        }
        T::Float32 => {
            let one = |v: f32| if v.is_nan() { f32::NAN } else { v + 0.0 };
            Ok(primitive::<Float32Type>(array, one, |v| v.to_bits().into()))
        }
        T::Float16 => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            let one = |v: Half| match v {
                v if v.is_nan() => Half::NAN,
                v if v == Half::ZERO => Half::ZERO,
                v => v,
            };
            Ok(primitive::<Float16Type>(array, one, |v| v.to_bits().into()))
        }
        T::List(item) => list::<i32>(array, item),
        T::LargeList(item) => list::<i64>(array, item),
        T::ListView(item) => list_view::<i32>(array, item),
        T::LargeListView(item) => list_view::<i64>(array, item),
        T::FixedSizeList(item, size) => {
            let lists = array.as_fixed_size_list();
            let Some(values) = changed(lists.values())? else {
                return Ok(Arc::clone(array));
            };
            let nulls = lists.nulls().cloned();
            let lists = FixedSizeListArray::try_new(Arc::clone(item), *size, values, nulls)?;
            Ok(Arc::new(lists))
        }
        T::Struct(fields) => {
            let columns = array.as_struct().columns();
            let one = columns
                .iter()
                .map(one_form)
                .collect::<Result<Vec<_>, _>>()?;
            if one.iter().zip(columns).all(|(a, b)| Arc::ptr_eq(a, b)) {
                return Ok(Arc::clone(array));
            }
            let nulls = array.nulls().cloned();
            let structs = StructArray::try_new_with_length(fields.clone(), one, nulls, array.len());
            Ok(Arc::new(structs?))
        }
        T::Map(item, is_sorted) => {
            let maps = array.as_map();
            let entries: ArrayRef = Arc::new(maps.entries().clone());
            let Some(entries) = changed(&entries)? else {
                return Ok(Arc::clone(array));
            };
            let (item, offsets) = (Arc::clone(item), maps.offsets().clone());
            let (entries, nulls) = (entries.as_struct().clone(), maps.nulls().cloned());
            let maps = MapArray::try_new(item, offsets, entries, nulls, *is_sorted)?;
            Ok(Arc::new(maps))
        }
        T::Dictionary(..) => {
            let values = array.as_any_dictionary();
            Ok(match changed(values.values())? {
                Some(one) => values.with_values(one),
                None => Arc::clone(array),
            })
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// The array with one form; `None` if it has one already.
fn changed(array: &ArrayRef) -> Result<Option<ArrayRef>, ArrowError> {
    let one = one_form(array)?;
    Ok((!Arc::ptr_eq(&one, array)).then_some(one))
}

fn primitive<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    one: impl Fn(T::Native) -> T::Native,
    bits: impl Fn(T::Native) -> u64,
) -> ArrayRef {
    let values: &PrimitiveArray<T> = array.as_primitive();
    // Without a branch, so that the loop is vectorised.
    let differs = |so_far, &v: &T::Native| so_far | (bits(v) ^ bits(one(v)));
    if values.values().iter().fold(0, differs) == 0 {
        return Arc::clone(array);
    }
    // Types with a zone or a precision are not floating, so the type stays.
    Arc::new(values.unary::<_, T>(one))
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let lists = array.as_list::<O>();
    let Some(values) = changed(lists.values())? else {
        return Ok(Arc::clone(array));
    };
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    let lists = GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)?;
    Ok(Arc::new(lists))
}

fn list_view<O: OffsetSizeTrait>(
    array: &ArrayRef,
    item: &FieldRef,
) -> Result<ArrayRef, ArrowError> {
    let lists = array.as_list_view::<O>();
    let Some(values) = changed(lists.values())? else {
        return Ok(Arc::clone(array));
    };
    let (offsets, sizes) = (lists.offsets().clone(), lists.sizes().clone());
    let (item, nulls) = (Arc::clone(item), lists.nulls().cloned());
    let lists = GenericListViewArray::try_new(item, offsets, sizes, values, nulls)?;
    Ok(Arc::new(lists))
}

/// Columns `at` of a table as its scan gives them. `declared` makes the column of the table of that
/// of the files.
pub(crate) fn scanned(
    schema: &Schema,
    at: impl Iterator<Item = usize>,
    declared: impl Fn(usize, Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr>,
) -> ProjectionExprs {
    let (function, options) = (function(), Arc::new(ConfigOptions::default()));
    let columns = at.map(|at| {
        let field = Arc::clone(&schema.fields()[at]);
        let name = field.name().clone();
        let column = declared(at, Arc::new(Column::new(&name, at)));
        if !has_floats(field.data_type()) {
            return ProjectionExpr::new(column, name);
        }
        let (function, options) = (Arc::clone(&function), Arc::clone(&options));
        let one = ScalarFunctionExpr::new(NAME, function, vec![column], field, options);
        ProjectionExpr::new(Arc::new(one), name)
    });
    ProjectionExprs::new(columns.collect::<Vec<_>>())
}

/// Analyzer rule that gives one form to the floating values that a query computes, and replaces
/// aggregates of the engine that treat them otherwise. Columns of files have one form already.
#[derive(Debug)]
pub(crate) struct OneFloat;

impl AnalyzerRule for OneFloat {
    fn name(&self) -> &str {
        "one_float"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let function = function();
        let one = plan.transform_up_with_subqueries(|plan| {
            let node = Node {
                schema: merge_schema(&plan.inputs()),
                step: Step::of(&plan),
                function: &function,
            };
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let mut lists = HashSet::new();
                let inner = expr.transform_up(|expr| node.operands(expr, &mut lists))?;
                let outer = inner.transform_data(|expr| Ok(node.result(expr)))?;
                Ok(outer.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(one?.data)
    }
}

/// A node of a plan, whose expressions get one form.
struct Node<'a> {
    /// The columns of its inputs.
    schema: DFSchema,
    step: Step,
    /// [`one_form`] as a function of the engine.
    function: &'a ScalarUDF,
}

impl Node<'_> {
    fn is_float(&self, expr: &Expr) -> bool {
        expr.get_type(&self.schema).is_ok_and(|of| has_floats(&of))
    }

    fn is_computed(&self, expr: &Expr) -> bool {
        !is_column(expr) && self.is_float(expr)
    }

    fn one(&self, expr: Expr) -> Expr {
        self.function.call(vec![expr])
    }

    fn one_if_computed(&self, expr: Expr) -> Expr {
        let one = |expr| literal(expr).unwrap_or_else(|expr| self.one(expr));
        match expr {
            Expr::Alias(mut alias) if self.is_computed(&alias.expr) => {
                *alias.expr = one(*alias.expr);
                Expr::Alias(alias)
            }
            expr if self.is_computed(&expr) => one(expr),
            expr => expr,
        }
    }

    /// Gives one form to each of these expressions that is computed.
    fn each<'e>(&self, exprs: impl IntoIterator<Item = &'e mut Expr>) {
        for expr in exprs {
            *expr = self.one_if_computed(std::mem::take(expr));
        }
    }

    /// Gives one form to the operands of an expression that compares, orders or passes them on.
    /// `lists` holds the expressions that are tested for being in a list.
    fn operands(&self, mut expr: Expr, lists: &mut HashSet<Expr>) -> Result<Transformed<Expr>> {
        match &mut expr {
            Expr::InList(list) => {
                self.each(&mut list.list);
                let of = std::mem::take(&mut *list.expr);
                // The engine joins lists of one expression, and loses null.
                let is_first = lists.insert(of.clone());
                *list.expr = if is_first {
                    self.one_if_computed(of)
                } else {
                    self.one(of)
                };
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                self.each([&mut **left, &mut **right]);
            }
            Expr::Between(between) => {
                let (low, high) = (&mut *between.low, &mut *between.high);
                self.each([&mut *between.expr, low, high]);
            }
            Expr::ScalarFunction(call) => self.each(&mut call.args),
            Expr::InSubquery(within) => self.each([&mut *within.expr]),
            Expr::Case(case) if case.expr.is_some() => {
                let compared = case.when_then_expr.iter_mut().map(|(when, _)| when);
                self.each(case.expr.iter_mut().chain(compared).map(|expr| &mut **expr));
            }
            Expr::AggregateFunction(call) => {
                if let Some(function) = ordered(call, &self.schema) {
                    call.func = Arc::new(function);
                }
                self.each(&mut call.params.args);
                self.each(call.params.order_by.iter_mut().map(|by| &mut by.expr));
            }
            Expr::WindowFunction(window) => {
                if let Some(function) = exact(window, &self.schema) {
                    let function = Arc::new(function);
                    window.fun = WindowFunctionDefinition::AggregateUDF(function);
                }
                let params = &mut window.params;
                self.each(&mut params.args);
                self.each(&mut params.partition_by);
                self.each(params.order_by.iter_mut().map(|by| &mut by.expr));
            }
            _ => return Ok(Transformed::no(expr)),
        }
        Ok(Transformed::yes(expr))
    }

    /// Gives one form to an expression of the node itself, where the step asks for it.
    fn result(&self, expr: Expr) -> Transformed<Expr> {
        let wanted = match self.step {
            Step::Projection { of_files: true } => self.is_computed(&expr),
            Step::Projection { of_files: false } => self.is_float(&expr),
            Step::Keys => self.is_computed(&expr) && !is_aggregate(&expr),
            Step::Other => false,
        };
        match expr {
            expr if !wanted => Transformed::no(expr),
            Expr::Alias(mut alias) => {
                *alias.expr = self.one(*alias.expr);
                Transformed::yes(Expr::Alias(alias))
            }
            expr => Transformed::yes(self.one(expr)),
        }
    }
}

/// A literal with one form, or the expression that is none.
fn literal(expr: Expr) -> std::result::Result<Expr, Expr> {
    match expr {
        Expr::Literal(value, metadata) => {
            let one = value.to_array().and_then(|array| Ok(one_form(&array)?));
            let one = one.and_then(|one| ScalarValue::try_from_array(&one, 0));
            Ok(Expr::Literal(one.unwrap_or(value), metadata))
        }
        expr => Err(expr),
    }
}

/// Whether an operator compares.
pub(crate) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// What a step of a plan does with floating expressions.
#[derive(Clone, Copy)]
enum Step {
    /// Their values are results. With `of_files`, columns of the input have one form already.
    Projection {
        of_files: bool,
    },
    /// They are keys of groups, of an order or of a join, or aggregates.
    Keys,
    Other,
}

impl Step {
    fn of(plan: &LogicalPlan) -> Step {
        match plan {
            LogicalPlan::Projection(projection) => Step::Projection {
                of_files: keeps_values(&projection.input),
            },
            LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_) => Step::Keys,
            _ => Step::Other,
        }
    }
}

/// Whether the columns of a step have one form if the columns of files and projections have it.
fn keeps_values(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::TableScan(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Distinct(_)
    )
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) => true,
        Expr::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}

fn is_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(_) | Expr::GroupingSet(_) => true,
        Expr::Alias(alias) => is_aggregate(&alias.expr),
        _ => false,
    }
}

const NAME: &str = "one_form";

fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(OneForm {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

/// [`one_form`] as a function of the engine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneForm {
    signature: Signature,
}

impl ScalarUDFImpl for OneForm {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, of: &[DataType]) -> Result<DataType> {
        match of {
            [one] => Ok(one.clone()),
            _ => internal_err!("{NAME} has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [one] => Ok(Arc::clone(one)),
            _ => internal_err!("{NAME} has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[..] {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(one_form(array)?)),
            [ColumnarValue::Scalar(value)] => {
                let one = one_form(&value.to_array()?)?;
                let value = ScalarValue::try_from_array(&one, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => internal_err!("{NAME} has one argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DictionaryArray, Float16Array, Float32Array, Float64Array, Int8Array, ListArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int8Type};

    /// −0.0, NaNs of three forms, other values and a null.
    fn doubles() -> Float64Array {
        let nans = [
            0x7ff8_0000_0000_0000,
            0xfff8_0000_0000_0000,
            0x7ff0_0000_0000_0001,
        ];
        let values = [-0.0, 0.0, -1.5, f64::INFINITY, 5e-324];
        let values = nans.map(f64::from_bits).into_iter().chain(values);
        values.map(Some).chain([None]).collect()
    }

    /// The bits of all values, of lists and dictionaries too.
    fn bits(array: &ArrayRef) -> Vec<Option<u64>> {
        let values = match array.data_type() {
            DataType::List(_) => Arc::clone(array.as_list::<i32>().values()),
            DataType::FixedSizeList(..) => Arc::clone(array.as_fixed_size_list().values()),
            DataType::Struct(_) => Arc::clone(array.as_struct().column(0)),
            DataType::Dictionary(..) => Arc::clone(array.as_any_dictionary().values()),
            _ => Arc::clone(array),
        };
        let wide = arrow::compute::cast(&values, &DataType::Float64).unwrap();
        let wide = wide.as_primitive::<Float64Type>();
        wide.iter().map(|v| v.map(f64::to_bits)).collect()
    }

    #[test]
    fn every_type_has_one_form() {
        let values = doubles();
        let one: Vec<_> = values
            .iter()
            .map(|v| v.map(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }))
            .map(|v| v.map(f64::to_bits))
            .collect();
        let item = Arc::new(Field::new_list_field(DataType::Float64, true));
        let values: ArrayRef = Arc::new(values);
        let offsets = OffsetBuffer::from_lengths([4, 0, 5]);
        let codes = Int8Array::from(vec![0, 3, 3, 8]);
        let arrays: Vec<ArrayRef> = vec![
            Arc::clone(&values),
            Arc::new(ListArray::new(
                Arc::clone(&item),
                offsets,
                Arc::clone(&values),
                None,
            )),
            Arc::new(FixedSizeListArray::new(item, 3, Arc::clone(&values), None)),
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("x", DataType::Float64, true)),
                Arc::clone(&values),
            )])),
            Arc::new(DictionaryArray::<Int8Type>::new(codes, Arc::clone(&values))),
        ];
        for array in arrays {
            let got = one_form(&array).unwrap();
            assert_eq!(got.data_type(), array.data_type());
            assert_eq!(bits(&got), one, "{}", array.data_type());
            let again = one_form(&got).unwrap();
            assert!(Arc::ptr_eq(&again, &got), "{}", array.data_type());
        }
    }

    #[test]
    fn short_floats_have_one_form() {
        let singles: ArrayRef = Arc::new(Float32Array::from(vec![-0.0, f32::from_bits(!0), 2.5]));
        let one = one_form(&singles).unwrap();
        let one = one.as_primitive::<Float32Type>().values().to_vec();
        assert_eq!(
            one.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [0, f32::NAN.to_bits(), 2.5f32.to_bits()]
        );
        type Half = <Float16Type as ArrowPrimitiveType>::Native;
        let halves = [0x8000, 0xfe01, 0x7e00, 0x3c00].map(Half::from_bits);
        let halves: ArrayRef = Arc::new(Float16Array::from_iter_values(halves));
        let one = one_form(&halves).unwrap();
        let one = one.as_primitive::<Float16Type>().values().to_vec();
        let one: Vec<u16> = one.iter().map(|v| v.to_bits()).collect();
        assert_eq!(one, [0, 0x7e00, 0x7e00, 0x3c00]);
    }
}
