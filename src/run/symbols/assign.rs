//! Filters new sequences with a written model.
//!
//! The fits are those of the model. Rows are read once. Memory holds the model, a few batches and
//! one encoded row group per table.

use crate::error::Result;
use crate::output::tables::symbols::{
    PREDICTIONS, TRAJECTORIES, predictions_schema, schema_of, trajectories_schema,
};
use crate::plan::job::check_names;
use crate::plan::symbols::{NewSymbols, WindowRows, check_distribution};
use crate::read::rows::states::StateTable;
use crate::read::symbols::{SymbolInput, bridges};
use crate::run::assign::kind::{
    AssignedRows, Assigning, Assigns, Model, by_partition, check_alike,
};
use crate::run::symbols::fit::dropped;
use crate::run::symbols::kind::SymbolsKind;
use crate::run::symbols::record::rows_line;
use crate::run::symbols::rows::{FitRows, LeastLikely, RowTables};
use crate::run::symbols::{known, rows};
use crate::run::trajectories::{GapCounts, Target};
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The new rows of one partition.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AssignedSymbols {
    /// Rows that were filtered.
    pub rows: u64,
    /// Rows whose symbol the models do not have.
    pub unseen: u64,
    /// How filters came over gaps, if they go on through them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapCounts>,
    /// Trajectories that were filtered.
    pub trajectories: u64,
    /// One entry per fit.
    pub fits: Vec<FilteredFitRecord>,
}

/// The new rows of one fit.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FilteredFitRecord {
    /// The name of the fit.
    pub name: String,
    /// The mean log-likelihood of a symbol, in nats.
    pub mean_log_likelihood: f64,
    /// Rows at which the filter was reset.
    pub resets: u64,
    /// The trajectories with the least mean log-likelihood, ascending.
    pub least_likely: Vec<LeastLikely>,
}

impl Assigns for SymbolsKind {
    type NewRows = NewSymbols;
    type Assigned = AssignedSymbols;

    const TABLES: &'static [&'static str] = &[TRAJECTORIES, PREDICTIONS];

    async fn check_columns(rows: &NewSymbols, model: &Model<'_>) -> Result<()> {
        let Model { written, at } = model;
        let (ours, theirs) = (&rows.layout.partition, &written.partition);
        check_alike("partition_by", ours, theirs, at)?;
        let symbol = WindowRows::of(&rows.layout).symbol.output_fields();
        check_alike("the symbol", &symbol, &written.sources, at)
    }

    async fn assign(run: &mut Assigning<'_, Self>) -> Result<AssignedRows<AssignedSymbols>> {
        let (planned, progress) = (run.planned, run.progress);
        let new = &planned.assignment.rows;
        let Model { written, at } = run.model;
        let columns = WindowRows::of(&new.layout);
        progress.stage("read model", None);
        let known = known::read(written, columns.symbol, new.distribution).await;
        let known = known.map_err(|e| e.at(format!("model {at}")))?;
        if new.distribution {
            let n = known.models.iter().map(|own| own.numbers.len());
            check_distribution(n.max().unwrap_or(0))?;
        }
        run.head.done("read model", 0, 0);
        let symbols = StateTable::empty(columns.symbol);
        let schema = schema_of(&new.layout.partition, Vec::new(), symbols, false);
        let trajectories = trajectories_schema(&schema, columns.columns(), &known.fits);
        let predictions = predictions_schema(&schema, columns.columns(), &known.fits);
        check_names(&[
            (TRAJECTORIES, Arc::clone(&trajectories)),
            (PREDICTIONS, Arc::clone(&predictions)),
        ])?;

        progress.stage("write", None);
        run.output.claim_version(run.begun).await?;
        let input = SymbolInput {
            lake: &planned.lake,
            frame: &planned.frame,
            layout: &new.layout,
            symbols: &known.symbols,
            sort: &AtomicBool::new(false),
        };
        let tables = RowTables {
            trajectories,
            predictions: Some(predictions),
            fits: &known.fits,
            models: known.models.into_iter().map(Some).collect(),
            target: Target {
                output: run.output,
                begun: run.begun,
            },
        };
        let found = rows::write(input, &tables, &|n| progress.advance(n)).await?;
        let partitions = (tables.models.len(), &found.found.partitions[..]);
        let (models, lacking) =
            by_partition(written, partitions, &found.rows, |partition, rows| {
                let fits = known.fits.iter().enumerate().filter_map(|(fit, columns)| {
                    let own = found.of_fits.get(&(partition, fit))?;
                    Some(FilteredFitRecord::of(&columns.name, own))
                });
                AssignedSymbols {
                    rows: rows.rows,
                    unseen: rows.unseen,
                    gaps: bridges(&new.layout).then_some(rows.gaps),
                    trajectories: rows.trajectories,
                    fits: fits.collect(),
                }
            });
        Ok(AssignedRows {
            rows: found.found.rows,
            dropped: dropped(&found.found.dropped),
            pairs: Some(vec![found.found.followers]),
            tables: found.tables,
            warnings: Vec::new(),
            models,
            lacking,
        })
    }
}

impl FilteredFitRecord {
    fn of(name: &str, rows: &FitRows) -> FilteredFitRecord {
        FilteredFitRecord {
            name: name.to_string(),
            mean_log_likelihood: rows.log_likelihood / rows.rows.max(1) as f64,
            resets: rows.resets,
            least_likely: rows.least.clone(),
        }
    }
}

impl Display for AssignedSymbols {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        rows_line(f, self.rows, self.trajectories, self.unseen)?;
        if let Some(gaps) = &self.gaps {
            gaps.write(f)?;
        }
        for fit in &self.fits {
            let (name, mean) = (&fit.name, fit.mean_log_likelihood);
            writeln!(f, "  {name}  {mean:.4} nats per symbol")?;
            LeastLikely::write(f, fit.resets, &fit.least_likely)?;
        }
        Ok(())
    }
}
