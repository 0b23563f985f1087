//! The tables `sets` and `changes`: how the sets of a fit continue those of an earlier fit.

use crate::assess::changes::Changes;
use crate::assess::set_tracking::TrackedSets;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

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
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.tracked_sets).into_iter();
        fits.flat_map(|(columns, tracked)| {
            let sets = tracked.sets.iter();
            sets.map(move |set| (columns, tracked, set))
        })
        .collect()
    };
    Columns::of(rows)
        .key("fit", |(columns, ..)| columns.name.as_str())
        // The same for the same set in all ranks and lags.
        .key("set_id", |(.., s)| s.id)
        // The number of the set. Null if it ended.
        .column("latent", |(.., s)| s.number.map(|n| n as i32))
        .column("n_sources", |(.., s)| s.states)
        // Transitions from its sources, and their share.
        .amount(run, "count", |(.., s)| s.count)
        .column("probability", |(.., s)| s.probability)
        .column("compared_with", |&(_, tracked, _)| compared_with(tracked))
        .column("event", |(.., s)| s.event.map(|e| e.name()))
        .column("previous_latent", |(.., s)| {
            s.previous.map(|p| p.number as i32)
        })
        .column("previous_n_sources", |(.., s)| s.previous.map(|p| p.states))
        .amount(run, "previous_count", |(.., s)| s.previous.map(|p| p.count))
        // Counts that both sets have, divided by the counts that either has.
        .column("overlap", |(.., s)| s.previous.and_then(|p| p.overlap))
        // Numbers of the earlier sets that it came from.
        .column("parents", |(.., s)| s.parents.clone())
        .finish()
}

/// The earlier fit: `earlier`, or another lag or rank of the run.
fn compared_with(tracked: &TrackedSets) -> Option<String> {
    tracked.compared_with.as_ref().map(ToString::to_string)
}

/// One row per fit.
pub(crate) fn changes<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    Columns::of(|model: &'a FittedModel| by_name(run, &model.tracked_sets))
        .key("fit", |(columns, _)| columns.name.as_str())
        // The id that the next new set will have.
        .column("next_id", |(_, tracked)| tracked.next_id)
        .column("compared_with", |&(_, tracked)| compared_with(tracked))
        .each(STATES, |states, (_, l)| l.changes.as_ref().map(states))
        .each(NUMBERS, |number, (_, l)| {
            l.changes.as_ref().and_then(number)
        })
        // Between the spaces of the embeddings, radians, ascending.
        .column("principal_angles", |(_, tracked)| {
            let changes = tracked.changes.as_ref();
            changes.map(|c| c.principal_angles.clone())
        })
        .finish()
}
