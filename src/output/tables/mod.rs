//! Models → record batches: the columns of every output table, a contract with readers (`gyre.schema = 1`).

pub mod assigned;
pub mod bootstrap;
pub mod certificates;
pub mod columns;
pub mod fits;
pub mod fitted_model;
pub mod latent;
pub mod markov;
pub mod ranks;
pub mod run_schema;
pub mod sets;
pub mod states;

use crate::error::Result;
use crate::methods::fit::Fit;
use crate::output::tables::columns::{amounts, batch, part, row_type, weights_type};
use crate::output::tables::fits::{METRICS, fits, restarts, spectrum};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::latent::{coarse, latent};
use crate::output::tables::run_schema::{RunSchema, Table};
use crate::output::tables::states::{sources, targets};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::ops::Range;
use std::sync::Arc;

/// The columns of a table, and those that order its rows.
pub fn schema(table: Table, names: &RunSchema) -> (SchemaRef, Vec<String>) {
    use DataType::{Boolean, Float64, Int32, UInt32, UInt64, Utf8};
    let mut fields = names.leading();
    let mut sorted: Vec<String> = fields.iter().map(|f| f.name().clone()).collect();
    let mut key = |fields: &mut Vec<Field>, name: &str, data_type: DataType| {
        sorted.push(name.to_string());
        fields.push(Field::new(name, data_type, false));
    };
    let mut keys = |fields: &mut Vec<Field>, more: Vec<Field>| {
        more.into_iter()
            .for_each(|f| key(fields, f.name(), f.data_type().clone()))
    };
    let value = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    match table {
        Table::Sources | Table::Targets => {
            let states = if table == Table::Sources {
                &names.sources
            } else {
                &names.targets
            };
            keys(&mut fields, states.fields());
            fields.push(value("count", names.count_type()));
            fields.push(value("probability", Float64));
            for fit in &names.fits {
                fields.push(Field::new(format!("{}_affiliation", fit.name), Int32, true));
                fields.push(Field::new(
                    format!("{}_embedding", fit.name),
                    row_type(fit.rank),
                    true,
                ));
                if fit.is_soft {
                    fields.push(Field::new(
                        format!("{}_membership", fit.name),
                        row_type(fit.rank),
                        true,
                    ));
                }
                if names.tables.contains(&Table::Bootstrap) {
                    fields.push(Field::new(format!("{}_stability", fit.name), Float64, true));
                }
            }
        }
        Table::Latent => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("latent", Int32)],
            );
            keys(&mut fields, names.targets.fields());
            fields.push(value("probability", Float64));
        }
        Table::Coarse => {
            keys(
                &mut fields,
                vec![
                    value("fit", Utf8),
                    value("latent", Int32),
                    value("target_set", Int32),
                ],
            );
            fields.push(value("count", names.count_type()));
            fields.push(value("probability", Float64));
        }
        Table::Fits => {
            keys(&mut fields, vec![value("fit", Utf8)]);
            fields.extend([
                value("method", Utf8),
                value("rank", UInt32),
                value("n_sources", UInt64),
                value("n_targets", UInt64),
                value("nonzeros", UInt64),
                value("transitions", names.count_type()),
                Field::new("dropped_states", UInt64, true),
                Field::new("dropped_transitions", names.count_type(), true),
                value("seed", UInt64),
                value("restarts", UInt32),
                value("best_restart", UInt32),
                value("iterations", UInt64),
                value("converged", Boolean),
                value("certified", Boolean),
                value("empty_states", UInt32),
            ]);
            fields.extend(METRICS.iter().map(|(name, _)| value(name, Float64)));
            fields.push(Field::new("coherence_p", Float64, true));
            fields.push(Field::new("crispness", Float64, true));
            fields.push(value("source_sizes", weights_type(UInt64)));
            fields.push(value("target_sizes", weights_type(UInt64)));
            fields.push(value("weights", weights_type(Float64)));
        }
        Table::Certificates => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("certificate", Utf8)],
            );
            fields.extend(crate::output::tables::certificates::fields());
        }
        Table::Restarts => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("restart", UInt32)],
            );
            fields.extend([
                value("seed", UInt64),
                Field::new("init", Utf8, true),
                value("sources", UInt64),
                value("iterations", UInt64),
                Field::new("evaluations", UInt64, true),
                value("objective", Float64),
                value("empty_states", UInt32),
                value("converged", Boolean),
                value("is_best", Boolean),
            ]);
        }
        Table::Spectrum => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("index", UInt32)],
            );
            fields.push(value("singular_value", Float64));
            fields.extend(
                ["residual", "eigenvalue", "eigenvalue_imaginary"]
                    .map(|name| Field::new(name, Float64, true)),
            );
        }
        Table::Bootstrap => {
            keys(&mut fields, vec![value("fit", Utf8), value("metric", Utf8)]);
            fields.extend(crate::output::tables::bootstrap::fields());
        }
        Table::Ranks => {
            keys(&mut fields, vec![value("fit", Utf8), value("rank", UInt32)]);
            fields.extend(crate::output::tables::ranks::fields());
        }
        Table::Sets => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("set_id", UInt32)],
            );
            fields.extend(crate::output::tables::sets::set_fields(names.count_type()));
        }
        Table::Changes => {
            keys(&mut fields, vec![value("fit", Utf8)]);
            fields.extend(crate::output::tables::sets::change_fields());
        }
        Table::Timescales => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("index", UInt32)],
            );
            fields.extend(crate::output::tables::markov::timescale_fields());
        }
        Table::ChapmanKolmogorov => {
            keys(
                &mut fields,
                vec![
                    value("fit", Utf8),
                    value("steps", UInt64),
                    value("from_set", Int32),
                    value("to_set", Int32),
                ],
            );
            fields.extend(crate::output::tables::markov::comparison_fields());
        }
        Table::Counts => {
            let (sources, targets) = names.pair_fields();
            keys(&mut fields, sources);
            keys(&mut fields, targets);
            fields.push(value("count", names.count_type()));
        }
    }
    (Arc::new(Schema::new(fields)), sorted)
}

/// How many rows one model adds to a table.
pub fn len(table: Table, model: &FittedModel) -> usize {
    let over_fits = |rows: fn(&Fit) -> usize| model.fits.iter().map(rows).sum();
    match table {
        Table::Sources => model.counts.source_states.len(),
        Table::Targets => model.counts.target_states.len(),
        Table::Latent => over_fits(|f| f.latent.targets.len()),
        Table::Coarse => over_fits(|f| f.rank * f.rank),
        Table::Fits => over_fits(|_| 1),
        Table::Certificates => model.certificates.iter().map(Vec::len).sum(),
        Table::Restarts => over_fits(|f| f.restarts.len()),
        Table::Spectrum => over_fits(|f| f.spectrum.len()),
        Table::Bootstrap => model.bootstraps.iter().map(|b| b.numbers.len()).sum(),
        Table::Ranks => model.ranks.len(),
        Table::Sets => model.lineage.iter().map(|l| l.sets.len()).sum(),
        Table::Changes => model.lineage.len(),
        Table::Timescales => model.markov.iter().map(|m| m.timescales.len()).sum(),
        Table::ChapmanKolmogorov => {
            let comparisons = model.markov.iter().flat_map(|m| &m.comparisons);
            comparisons.map(|c| c.predicted.len()).sum()
        }
        Table::Counts => model.nonzeros,
    }
}

/// Some of the rows that one model adds to a table, in its order.
pub fn rows(
    table: Table,
    names: &RunSchema,
    model: &FittedModel,
    rows: Range<usize>,
) -> Result<RecordBatch> {
    let columns = match table {
        Table::Sources => sources(names, model, rows)?,
        Table::Targets => targets(names, model, rows)?,
        Table::Latent => latent(names, model, rows)?,
        Table::Counts => counts(names, model, rows)?,
        // These grow with the number of fits only.
        Table::Coarse => part(coarse(names, model), rows),
        Table::Fits => part(fits(names, model), rows),
        Table::Certificates => part(
            crate::output::tables::certificates::columns(names, model),
            rows,
        ),
        Table::Restarts => part(restarts(names, model), rows),
        Table::Spectrum => part(spectrum(names, model), rows),
        Table::Bootstrap => part(
            crate::output::tables::bootstrap::columns(names, model),
            rows,
        ),
        Table::Ranks => part(crate::output::tables::ranks::columns(model), rows),
        Table::Sets => part(crate::output::tables::sets::sets(names, model), rows),
        Table::Changes => part(crate::output::tables::sets::changes(names, model), rows),
        Table::Timescales => part(
            crate::output::tables::markov::timescales(names, model),
            rows,
        ),
        Table::ChapmanKolmogorov => part(
            crate::output::tables::markov::comparisons(names, model),
            rows,
        ),
    };
    with_leading(table, names, model, columns)
}

/// Puts the columns of partition and lag before the others.
fn with_leading(
    table: Table,
    names: &RunSchema,
    model: &FittedModel,
    rows: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let place = (model.counts.partition, model.counts.lag);
    batch(names, place, table.name(), schema(table, names).0, rows)
}

/// Rows `rows` of the counts of a model.
fn counts(names: &RunSchema, model: &FittedModel, rows: Range<usize>) -> Result<Vec<ArrayRef>> {
    let counts = &model.counts;
    let (mut sources, mut targets) = (
        Vec::with_capacity(rows.len()),
        Vec::with_capacity(rows.len()),
    );
    let mut values = Vec::with_capacity(rows.len());
    let mut first = 0;
    for shard in &counts.by_source {
        let own = rows.start.max(first) - first..rows.end.clamp(first, first + shard.nnz()) - first;
        first += shard.nnz();
        if own.is_empty() {
            continue;
        }
        crate::memory::look();
        // The row of the first entry, and those after it.
        let row = shard.offsets.partition_point(|&end| end <= own.start) - 1;
        for l in row..shard.n_rows() {
            let span = shard.span(l);
            let (start, end) = (span.start.max(own.start), span.end.min(own.end));
            if start >= end {
                break;
            }
            let source = counts.source_states[shard.first_row + l];
            sources.extend(std::iter::repeat_n(source, end - start));
        }
        let columns = shard.columns[own.clone()].iter();
        targets.extend(columns.map(|&i| counts.target_states[i as usize]));
        values.extend(own.map(|e| shard.values.get(e)));
    }
    let mut columns = names.sources.columns(&sources)?;
    columns.extend(names.targets.columns(&targets)?);
    columns.push(amounts(names, values.into_iter()));
    Ok(columns)
}
