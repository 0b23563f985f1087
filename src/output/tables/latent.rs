//! Rows of the tables `latent` and `coarse`.

use crate::error::Result;
use crate::output::tables::columns::{amounts, by_name, text};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{ArrayRef, Float64Array, Int32Array, StringBuilder};
use std::ops::Range;
use std::sync::Arc;

pub(crate) fn latent(
    names: &RunSchema,
    model: &FittedModel,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let mut fit_names = StringBuilder::new();
    let (mut latents, mut states, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = 0;
    for (columns, fit) in by_name(names, model) {
        for (k, ends) in fit.latent.offsets.windows(2).enumerate() {
            let own = first + ends[0]..first + ends[1];
            let own = own.start.max(rows.start)..own.end.min(rows.end);
            if own.is_empty() {
                continue;
            }
            let own = own.start - first..own.end - first;
            fit_names.append_value_n(&columns.name, own.len());
            latents.extend(std::iter::repeat_n(k as i32, own.len()));
            let targets = fit.latent.targets[own.clone()].iter();
            states.extend(targets.map(|&i| model.counts.target_states[i as usize]));
            probabilities.extend_from_slice(&fit.latent.probability[own]);
        }
        first += fit.latent.targets.len();
    }
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(fit_names.finish()),
        Arc::new(Int32Array::from(latents)),
    ];
    columns.extend(names.targets.columns(&states)?);
    columns.push(Arc::new(Float64Array::from(probabilities)));
    Ok(columns)
}

pub(crate) fn coarse(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let cells = || {
        fits.iter()
            .flat_map(|(columns, fit)| (0..fit.rank * fit.rank).map(move |at| (*columns, *fit, at)))
    };
    vec![
        text(cells().map(|(c, _, _)| c.name.as_str())),
        Arc::new(Int32Array::from_iter_values(
            cells().map(|(_, f, at)| (at / f.rank) as i32),
        )),
        Arc::new(Int32Array::from_iter_values(
            cells().map(|(_, f, at)| (at % f.rank) as i32),
        )),
        amounts(names, cells().map(|(_, f, at)| f.coarse_counts[at])),
        Arc::new(Float64Array::from_iter_values(
            cells().map(|(_, f, at)| f.coarse[at]),
        )),
    ]
}
