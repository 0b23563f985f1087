//! The tables `sets` and `changes`: how the sets of a fit continue those of an earlier fit.

use crate::assess::changes::Changes;
use crate::assess::set_tracking::TrackedSets;
use crate::output::tables::columns::{Columns, TableColumns, by_name, of_run_fits};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::{FitColumns, RunSchema};

/// Null without an earlier fit.
const STATES: [(&str, fn(&Changes) -> u64); 4] = [
    ("shared_states", |c| c.shared_states),
    ("new_states", |c| c.new_states),
    ("gone_states", |c| c.gone_states),
    // Shared states whose set is not the successor of their earlier set.
    ("changed_states", |c| c.changed_states),
];

/// Null without an earlier fit.
const NUMBERS: [(&str, fn(&Changes) -> Option<f64>); 5] = [
    // Shares of the counts, from 0 to 1.
    ("new_share", |c| Some(c.new_share)),
    ("gone_share", |c| Some(c.gone_share)),
    ("changed_share", |c| Some(c.changed_share)),
    ("adjusted_rand", |c| c.adjusted_rand),
    // Nats.
    ("variation_of_information", |c| c.variation_of_information),
];

/// One row per set of a fit, also of sets that ended.
pub(crate) fn sets<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let sets = |tracked: &'a TrackedSets| tracked.sets.iter().map(move |set| (tracked, set));
    of_run_fits(run, |model: &FittedModel| &model.tracked_sets, sets)
        // The same for the same set in all ranks and lags.
        .key("set_id", |(_, (_, s))| s.id)
        // The number of the set. Null if it ended.
        .part("latent", |(_, (_, s))| s.number, |n| n as i32)
        .column("n_sources", |(_, (_, s))| s.states)
        // Transitions from its sources, and their share.
        .amount(run, "count", |(_, (_, s))| s.count)
        .column("probability", |(_, (_, s))| s.probability)
        .column("compared_with", |&(_, (tracked, _))| compared_with(tracked))
        .part("event", |(_, (_, s))| s.event, |event| event.name())
        .part(
            "previous_latent",
            |(_, (_, s))| s.previous,
            |p| p.number as i32,
        )
        .part("previous_n_sources", |(_, (_, s))| s.previous, |p| p.states)
        .amount(run, "previous_count", |(_, (_, s))| {
            s.previous.map(|p| p.count)
        })
        // Counts that both sets have, divided by the counts that either has.
        .column("overlap", |(_, (_, s))| s.previous.and_then(|p| p.overlap))
        // Numbers of the earlier sets that it came from.
        .column("parents", |(_, (_, s))| s.parents.clone())
        .finish()
}

/// The earlier fit: `earlier`, or another lag or rank of the run.
fn compared_with(tracked: &TrackedSets) -> Option<String> {
    tracked.compared_with.as_ref().map(ToString::to_string)
}

/// One row per fit.
pub(crate) fn changes<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let changes = |row: &(&'a FitColumns, &'a TrackedSets)| row.1.changes.as_ref();
    Columns::of(|model: &'a FittedModel| by_name(run, &model.tracked_sets))
        .key("fit", |(columns, _)| columns.name.as_str())
        // The id that the next new set will have.
        .column("next_id", |(_, tracked)| tracked.next_id)
        .column("compared_with", |&(_, tracked)| compared_with(tracked))
        .each(STATES, move |states, row| changes(row).map(states))
        .each(NUMBERS, move |number, row| changes(row).and_then(number))
        // Between the spaces of the embeddings, radians, ascending.
        .part("principal_angles", changes, |c| c.principal_angles.clone())
        .finish()
}
