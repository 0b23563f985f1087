//! The table `rows`: the rows of the input, each with the sets of its states.
//!
//! Rows come from the input, not from models. Each row is written once per lag.

use crate::error::Result;
use crate::methods::columns::{Axis, Values};
use crate::output::tables::columns::{Columns, TableColumns, set, taken};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};

/// Some rows of the input.
pub(crate) struct InputRows<'a> {
    /// The partition columns.
    pub partition: Vec<ArrayRef>,
    /// The columns of `RunSchema::rows`.
    pub columns: Vec<ArrayRef>,
    /// Rows × lags, row-major.
    pub places: Vec<Place<'a>>,
}

/// The places of the states of a row in a model. A row of a trajectory has a source only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    /// The model of the partition and lag, if there is one.
    pub model: Option<&'a FittedModel>,
    /// The index of the source among those of the model.
    pub source: Option<u32>,
    /// The index of the target among those of the model.
    pub target: Option<u32>,
}

impl<'a> Place<'a> {
    fn state(&self, axis: Axis) -> Option<(&'a FittedModel, usize)> {
        let state = match axis {
            Axis::Sources => self.source,
            Axis::Targets => self.target,
        };
        Some((self.model?, state? as usize))
    }
}

/// A row at a lag.
struct RowAt<'a> {
    rows: &'a InputRows<'a>,
    row: u32,
    lag: u32,
    place: Place<'a>,
}

/// The columns of the table.
pub(crate) fn schema(run: &RunSchema) -> SchemaRef {
    columns(run).own_schema()
}

/// Rows of the table, once per lag.
///
/// # Errors
/// If the rows do not have the columns of the run.
pub(crate) fn batch(run: &RunSchema, rows: &InputRows<'_>) -> Result<RecordBatch> {
    columns(run).own_batch(Table::Rows.name(), rows)
}

fn columns<'a>(run: &'a RunSchema) -> TableColumns<'a, InputRows<'a>> {
    let n_lags = run.lag.n_lags();
    let partition = run.partition.iter();
    // Also rows that were dropped have a row here, so all columns of the input may have nulls.
    let partition = partition.map(|f| Field::new(f.name(), f.data_type().clone(), true));
    let partition: Vec<Field> = partition.collect();
    let mut columns = Columns::in_pieces(
        |rows: &'a InputRows<'a>| rows.places.len(),
        move |rows, piece| {
            let row = |at: usize| RowAt {
                rows,
                row: (at / n_lags) as u32,
                lag: (at % n_lags) as u32,
                place: rows.places[at],
            };
            piece.map(row).collect()
        },
    )
    .given(&partition, |rows: &[RowAt<'a>]| {
        of_input(rows, |input| &input.partition)
    })
    .given(&run.lag.fields(), |rows| {
        let lags = rows.iter().map(|row| row.lag);
        taken(&run.lag.table(), lags)
    })
    .given(&run.rows, |rows| of_input(rows, |input| &input.columns));
    let sides: &[(&str, Axis)] = if run.is_of_pairs() {
        &[("source_", Axis::Sources), ("target_", Axis::Targets)]
    } else {
        &[("", Axis::Sources)]
    };
    for (at, fit) in run.fits.iter().enumerate() {
        for &(side, axis) in sides {
            for column in fit.columns {
                let name = format!("{}_{side}{}", fit.name, column.name);
                columns = match column.values {
                    Values::Sets(sets) => columns.column(name, move |row| {
                        let (model, state) = row.place.state(axis)?;
                        sets(&model.fits[at].model, axis).and_then(|sets| set(sets[state]))
                    }),
                    Values::Rows(rows) => columns.vector(name, fit.rank, move |row| {
                        let (model, state) = row.place.state(axis)?;
                        rows(&model.fits[at].model, axis).map(|rows| rows.row(state))
                    }),
                };
            }
        }
    }
    for (at, embedding) in run.embeddings.iter().enumerate() {
        for &(side, axis) in sides {
            for part in 0..embedding.parts.len() {
                let (name, width) = (embedding.column(part, side), embedding.dimension);
                columns = columns.vector(name, width, move |row| {
                    let (model, state) = row.place.state(axis)?;
                    model.embeddings[at].row(axis, part, state)
                });
            }
        }
    }
    columns.finish()
}

/// The values of rows in columns of the input.
fn of_input<'a>(
    rows: &[RowAt<'a>],
    columns: impl Fn(&'a InputRows<'a>) -> &'a Vec<ArrayRef>,
) -> Result<Vec<ArrayRef>> {
    match rows.first() {
        Some(first) => taken(columns(first.rows), rows.iter().map(|row| row.row)),
        None => Ok(Vec::new()),
    }
}
