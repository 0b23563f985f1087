//! Models → record batches: every output table is one list of columns.
//!
//! The columns are a contract with readers (`gyre.schema = 1`).

// Lists of names and functions read better than named types of them.
#![allow(clippy::type_complexity)]

pub mod assigned;
mod bootstrap;
mod certificates;
pub(crate) mod columns;
mod counts;
mod fits;
pub mod fitted_model;
mod latent;
mod markov;
mod ranks;
pub mod run_schema;
mod sets;
mod states;

use crate::error::Result;
use crate::output::tables::columns::TableColumns;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::ops::Range;

macro_rules! tables {
    ($($table:ident $name:literal $columns:path;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Table {
            $($table,)*
        }

        impl Table {
            pub const ALL: [Table; [$($name),*].len()] = [$(Table::$table),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Table::$table => $name,)*
                }
            }

            fn columns<'a>(self, run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
                match self {
                    $(Table::$table => $columns(run),)*
                }
            }
        }
    };
}

tables! {
    Sources "sources" states::sources;
    Targets "targets" states::targets;
    Latent "latent" latent::latent;
    Coarse "coarse" latent::coarse;
    Fits "fits" fits::fits;
    Certificates "certificates" certificates::certificates;
    Restarts "restarts" fits::restarts;
    Spectrum "spectrum" fits::spectrum;
    Bootstrap "bootstrap" bootstrap::bootstrap;
    Ranks "ranks" ranks::ranks;
    Sets "sets" sets::sets;
    Changes "changes" sets::changes;
    Timescales "timescales" markov::timescales;
    ChapmanKolmogorov "chapman_kolmogorov" markov::chapman_kolmogorov;
    Counts "counts" counts::counts;
}

/// The columns of a table, and the names of those that order its rows.
pub fn schema(table: Table, run: &RunSchema) -> (SchemaRef, Vec<String>) {
    table.columns(run).schema(run)
}

/// How many rows a model adds to a table.
pub fn len(table: Table, run: &RunSchema, model: &FittedModel) -> usize {
    table.columns(run).len(model)
}

/// Some of the rows that a model adds to a table, in its order.
pub fn rows(
    table: Table,
    run: &RunSchema,
    model: &FittedModel,
    rows: Range<usize>,
) -> Result<RecordBatch> {
    let place = (model.counts.partition, model.counts.lag);
    table
        .columns(run)
        .batch(run, table.name(), place, model, rows)
}
