//! The tables `sources` and `targets`: one row per state.

use crate::assess::bootstrap::Bootstrap;
use crate::methods::columns::{Axis, Values};
use crate::output::tables::columns::{Columns, TableColumns, set};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::read::rows::states::StateTable;

pub(crate) fn sources(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    states(run, &run.sources, Axis::Sources)
}

pub(crate) fn targets(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    states(run, &run.targets, Axis::Targets)
}

/// The states of one side of a model, and the transitions of each of them.
fn side(model: &FittedModel, axis: Axis) -> (&[u32], &[f64]) {
    match axis {
        Axis::Sources => (&model.counts.source_states, &model.source_total),
        Axis::Targets => (&model.counts.target_states, &model.target_total),
    }
}

fn stability(of: &Bootstrap, axis: Axis) -> &[Option<f64>] {
    match axis {
        Axis::Sources => &of.source_stability,
        Axis::Targets => &of.target_stability,
    }
}

/// A row is the index of a state in a model.
fn states<'a>(
    run: &'a RunSchema,
    table: &'a StateTable,
    axis: Axis,
) -> TableColumns<'a, FittedModel> {
    let states = move |model: &'a FittedModel| side(model, axis).0;
    let totals = move |model: &'a FittedModel| side(model, axis).1;
    let mut columns = Columns::in_pieces(
        move |model: &'a FittedModel| states(model).len(),
        |model, rows| rows.map(|j| (model, j)).collect(),
    )
    .state(table, &table.fields(), move |&(model, j)| states(model)[j])
    .into_keys()
    // The transitions from a source or to a target.
    .amount(run, "count", move |&(model, j)| totals(model)[j])
    // p_j of a source, q_i of a target.
    .column("probability", move |&(model, j)| {
        totals(model)[j] / model.total
    })
    .boxes(table, move |&(model, j)| states(model)[j]);
    for (at, fit) in run.fits.iter().enumerate() {
        let named = |name: &str| format!("{}_{name}", fit.name);
        for column in fit.columns {
            let name = named(column.name);
            columns = match column.values {
                Values::Sets(sets) => columns.column(name, move |&(model, j)| {
                    sets(&model.fits[at].model, axis).and_then(|sets| set(sets[j]))
                }),
                Values::Rows(rows) => columns.vector(name, fit.rank, move |&(model, j)| {
                    rows(&model.fits[at].model, axis).map(|rows| rows.row(j))
                }),
            };
        }
        if run.has_stability {
            // The share of the resamples in which the state keeps its set, from 0 to 1.
            columns = columns.column(named("stability"), move |&(model, j)| {
                stability(&model.bootstraps[at], axis)[j]
            });
        }
    }
    for (at, embedding) in run.embeddings.iter().enumerate() {
        for part in 0..embedding.parts.len() {
            let (name, width) = (embedding.column(part, ""), embedding.dimension);
            columns = columns.vector(name, width, move |&(model, j)| {
                model.embeddings[at].row(axis, part, j)
            });
        }
    }
    columns.finish()
}
