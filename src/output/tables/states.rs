//! The tables `sources` and `targets`: one row per state.

use crate::assess::bootstrap::Bootstrap;
use crate::methods::columns::{Axis, Values};
use crate::output::tables::columns::{Columns, TableColumns, set};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::read::rows::states::StateTable;

/// Access to the states of one side of a model.
struct SideOf {
    states: fn(&FittedModel) -> &[u32],
    totals: fn(&FittedModel) -> &[f64],
    axis: Axis,
    stability: fn(&Bootstrap) -> &[Option<f64>],
}

pub(crate) fn sources(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    let side = SideOf {
        states: |model| &model.counts.source_states,
        totals: |model| &model.source_total,
        axis: Axis::Sources,
        stability: |bootstrap| &bootstrap.source_stability,
    };
    states(run, &run.sources, side)
}

pub(crate) fn targets(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    let side = SideOf {
        states: |model| &model.counts.target_states,
        totals: |model| &model.target_total,
        axis: Axis::Targets,
        stability: |bootstrap| &bootstrap.target_stability,
    };
    states(run, &run.targets, side)
}

/// A row is the index of a state in a model.
fn states<'a>(
    run: &'a RunSchema,
    table: &'a StateTable,
    of: SideOf,
) -> TableColumns<'a, FittedModel> {
    let SideOf {
        states,
        totals,
        axis,
        stability,
    } = of;
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
                stability(&model.bootstraps[at])[j]
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
