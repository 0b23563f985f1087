//! The tables `sources` and `targets`: one row per state.

use crate::assess::bootstrap::Bootstrap;
use crate::methods::fit::{Fit, Side};
use crate::output::tables::columns::{Columns, TableColumns, set};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::read::rows::states::StateTable;

/// Where a model has the states of one side.
struct SideOf {
    states: fn(&FittedModel) -> &[u32],
    totals: fn(&FittedModel) -> &[f64],
    side: fn(&Fit) -> &Side,
    stability: fn(&Bootstrap) -> &[Option<f64>],
}

pub(crate) fn sources(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    let side = SideOf {
        states: |model| &model.counts.source_states,
        totals: |model| &model.source_total,
        side: |fit| &fit.model.sources,
        stability: |bootstrap| &bootstrap.source_stability,
    };
    states(run, &run.sources, side)
}

pub(crate) fn targets(run: &RunSchema) -> TableColumns<'_, FittedModel> {
    let side = SideOf {
        states: |model| &model.counts.target_states,
        totals: |model| &model.target_total,
        side: |fit| &fit.model.targets,
        stability: |bootstrap| &bootstrap.target_stability,
    };
    states(run, &run.targets, side)
}

/// A row is the place of a state in a model.
fn states<'a>(
    run: &'a RunSchema,
    table: &'a StateTable,
    of: SideOf,
) -> TableColumns<'a, FittedModel> {
    let SideOf {
        states,
        totals,
        side,
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
    });
    for (at, fit) in run.fits.iter().enumerate() {
        let side = move |model: &'a FittedModel| side(&model.fits[at]);
        let row = move |values: &'a [f64], model: &FittedModel, j: usize| {
            let rank = model.fits[at].model.rank;
            &values[j * rank..][..rank]
        };
        let named = |name: &str| format!("{}_{name}", fit.name);
        columns = columns
            // The set, from 0.
            .column(named("affiliation"), move |&(model, j)| {
                set(side(model).affiliation[j])
            })
            // r coordinates.
            .vector(named("embedding"), fit.rank, move |&(model, j)| {
                Some(row(&side(model).embedding, model, j))
            });
        if fit.is_soft {
            // r memberships from 0 to 1.
            columns = columns.vector(named("membership"), fit.rank, move |&(model, j)| {
                let values = side(model).membership.as_ref()?;
                Some(row(values, model, j))
            });
        }
        if run.tables.contains(&Table::Bootstrap) {
            // The share of the resamples in which the state keeps its set, from 0 to 1.
            columns = columns.column(named("stability"), move |&(model, j)| {
                stability(&model.bootstraps[at])[j]
            });
        }
    }
    columns.finish()
}
