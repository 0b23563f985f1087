//! Rows of the tables `sources` and `targets`.

use crate::assess::bootstrap::Bootstrap;
use crate::error::Result;
use crate::methods::fit::{Fit, Side};
use crate::output::tables::columns::{amounts, filled_up};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{ArrayRef, FixedSizeListArray, Float64Array, Int32Array};
use arrow::datatypes::{DataType, Field};
use std::ops::Range;
use std::sync::Arc;

pub(crate) fn sources(
    names: &RunSchema,
    model: &FittedModel,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let keys = &model.counts.source_states[rows.clone()];
    let keys = names.sources.columns(keys)?;
    let totals = &model.source_total[rows.clone()];
    let stability = |b: &Bootstrap| b.source_stability[rows.clone()].iter().copied().collect();
    Ok(states(
        names,
        model,
        keys,
        totals,
        rows.clone(),
        |fit| &fit.sources,
        stability,
    ))
}

pub(crate) fn targets(
    names: &RunSchema,
    model: &FittedModel,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let keys = &model.counts.target_states[rows.clone()];
    let keys = names.targets.columns(keys)?;
    let totals = &model.target_total[rows.clone()];
    let stability = |b: &Bootstrap| b.target_stability[rows.clone()].iter().copied().collect();
    Ok(states(
        names,
        model,
        keys,
        totals,
        rows.clone(),
        |fit| &fit.targets,
        stability,
    ))
}

pub(crate) fn states(
    names: &RunSchema,
    model: &FittedModel,
    keys: Vec<ArrayRef>,
    totals: &[f64],
    rows: Range<usize>,
    side: impl Fn(&Fit) -> &Side,
    stability: impl Fn(&Bootstrap) -> Float64Array,
) -> Vec<ArrayRef> {
    let mut columns = keys;
    columns.push(amounts(names, totals.iter().copied()));
    columns.push(Arc::new(Float64Array::from_iter_values(
        totals.iter().map(|t| t / model.total),
    )));
    for (at, (shape, fit)) in names.fits.iter().zip(&model.fits).enumerate() {
        let side = side(fit);
        columns.push(Arc::new(
            side.affiliation[rows.clone()]
                .iter()
                .map(|&a| (a >= 0).then_some(a))
                .collect::<Int32Array>(),
        ));
        for values in std::iter::once(&side.embedding).chain(&side.membership) {
            let values = &values[rows.start * fit.rank..rows.end * fit.rank];
            let values: ArrayRef =
                Arc::new(Float64Array::from(filled_up(values, fit.rank, shape.rank)));
            let item = Arc::new(Field::new("item", DataType::Float64, false));
            columns.push(Arc::new(FixedSizeListArray::new(
                item,
                shape.rank as i32,
                values,
                None,
            )));
        }
        if let Some(bootstrap) = model.bootstraps.get(at) {
            columns.push(Arc::new(stability(bootstrap)));
        }
    }
    columns
}
