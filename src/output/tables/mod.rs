//! Models → record batches: every output table is one list of columns.
//!
//! The columns are a contract with readers (`gyre.schema = 1`).

// Lists of names and functions read better than named types of them.
#![allow(clippy::type_complexity)]

pub(crate) mod assigned;
mod bootstrap;
mod certificates;
pub(crate) mod columns;
mod counts;
mod embeddings;
mod fits;
pub mod fitted_model;
mod latent;
mod markov;
pub(crate) mod observations;
pub(crate) mod points;
mod ranks;
pub(crate) mod rows;
pub mod run_schema;
mod sets;
mod states;
pub(crate) mod symbols;
pub mod table;

use crate::output::tables::columns::{Columns, TableColumns};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use arrow::datatypes::SchemaRef;

/// The columns of a table.
pub fn columns(table: Table, run: &RunSchema) -> TableColumns<'_, FittedModel> {
    match table {
        Table::Sources => states::sources(run),
        Table::Targets => states::targets(run),
        Table::Latent => latent::latent(run),
        Table::Coarse => latent::coarse(run),
        Table::Fits => fits::fits(run),
        Table::Certificates => certificates::certificates(run),
        Table::Restarts => fits::restarts(run),
        Table::Spectrum => fits::spectrum(run),
        Table::Embeddings => embeddings::embeddings(run),
        Table::Bootstrap => bootstrap::bootstrap(run),
        Table::Ranks => ranks::ranks(run),
        Table::Sets => sets::sets(run),
        Table::Changes => sets::changes(run),
        Table::Timescales => markov::timescales(run),
        Table::ChapmanKolmogorov => markov::chapman_kolmogorov(run),
        Table::Counts => counts::counts(run),
        // Models add no rows to it.
        Table::Rows => Columns::of(|_| Vec::<()>::new()).finish(),
    }
}

/// The columns of a table, and the names of those that order its rows.
pub(crate) fn schema(table: Table, run: &RunSchema) -> (SchemaRef, Vec<String>) {
    if table == Table::Rows {
        return (rows::schema(run), Vec::new());
    }
    columns(table, run).schema(run)
}
