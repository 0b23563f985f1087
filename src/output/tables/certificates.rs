//! Certificates → the rows of the table `certificates`.

use crate::assess::certificates::Certificate;
use crate::output::tables::columns::{beside, text};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{ArrayRef, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

/// The columns after the keys `fit` and `certificate`.
pub(crate) fn fields() -> [Field; 6] {
    use DataType::{Boolean, Float64, Utf8};
    [
        Field::new("left_side", Float64, false),
        Field::new("relation", Utf8, false),
        Field::new("right_side", Float64, false),
        Field::new("slack", Float64, false),
        Field::new("tolerance", Float64, false),
        Field::new("holds", Boolean, true),
    ]
}

pub(crate) fn columns(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = beside(names, &model.certificates);
    let rows = || {
        fits.iter()
            .flat_map(|(columns, list)| list.iter().map(move |c| (*columns, c)))
    };
    let numbers = |get: &dyn Fn(&Certificate) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(rows().map(|(_, c)| get(c))))
    };
    vec![
        text(rows().map(|(columns, _)| columns.name.as_str())),
        text(rows().map(|(_, c)| c.name)),
        numbers(&|c| c.left),
        text(rows().map(|(_, c)| c.relation.sign())),
        numbers(&|c| c.right),
        numbers(&|c| c.slack()),
        numbers(&|c| c.tolerance),
        Arc::new(rows().map(|(_, c)| c.holds).collect::<BooleanArray>()),
    ]
}
