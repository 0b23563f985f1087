//! The table `counts`: one row per pair of states with a transition.

use crate::evidence::counts::csr::Value;
use crate::memory::wait_for_room;
use crate::output::tables::columns::{Columns, TableColumns};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use std::ops::Range;

pub(crate) fn counts<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let (sources, targets) = run.pair_fields();
    Columns::in_pieces(|model: &'a FittedModel| model.nonzeros, entries)
        .state(&run.sources, &sources, |&(source, ..)| source)
        .state(&run.targets, &targets, |&(_, target, _)| target)
        .into_keys()
        // N_ij, transitions.
        .amount(run, "count", |&(.., n)| n)
        .finish()
}

/// The non-zeros `rows` of the counts of a model: source, target and count.
fn entries(model: &FittedModel, rows: Range<usize>) -> Vec<(u32, u32, f64)> {
    let counts = &model.counts;
    let mut entries = Vec::with_capacity(rows.len());
    let mut first = 0;
    for shard in &counts.by_source {
        let own = rows.start.max(first) - first..rows.end.clamp(first, first + shard.nnz()) - first;
        first += shard.nnz();
        if own.is_empty() {
            continue;
        }
        wait_for_room();
        // The row of the first entry, and those after it.
        let row = shard.offsets.partition_point(|&end| end <= own.start) - 1;
        for l in row..shard.n_rows() {
            let span = shard.span(l);
            let span = span.start.max(own.start)..span.end.min(own.end);
            if span.is_empty() {
                break;
            }
            let source = counts.source_states[shard.first_row + l];
            crate::with_values!(shard, values => {
                let columns = shard.columns[span.clone()].iter().zip(&values[span]);
                entries.extend(columns.map(|(&column, value)| {
                    (source, counts.target_states[column as usize], value.f64())
                }));
            });
        }
    }
    entries
}
