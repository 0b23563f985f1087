//! The record of a run over sequences, and the summary that `gyre run` prints.

use crate::error::counted;
use crate::output::number::grouped;
use crate::output::tables::symbols::{SymbolFit, SymbolsModel};
use crate::read::rows::layout::Layout;
use crate::read::symbols::bridges;
use crate::run::kind;
use crate::run::summary::{SHOWN, warnings};
use crate::run::symbols::rows::{LeastLikely, RowsWritten};
use crate::run::trajectories::GapCounts;
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// What the record says of the windows.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    /// The number of windows, or the sum of their weights.
    pub windows: f64,
}

impl kind::Facts for Facts {
    const COUNTED: &'static str = "window";

    fn sum(&self) -> f64 {
        self.windows
    }
}

/// The fits of one partition.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SymbolsModelRecord {
    /// The number of symbols.
    pub symbols: usize,
    /// The number of different windows.
    pub triples: usize,
    /// The number of windows, or the sum of their weights.
    pub windows: f64,
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
    pub fits: Vec<SymbolFitRecord>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct SymbolFitRecord {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: String,
    /// The dimension of the state.
    pub rank: usize,
    /// σ₁, …, σ_{k+1} of the matrix of pairs.
    pub singular_values: Vec<f64>,
    /// Singular values of this size are noise.
    pub noise: f64,
    /// The mean log-likelihood of a symbol of the rows of the fit, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_log_likelihood: Option<f64>,
    /// The mean log-likelihood of a held-out symbol, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<f64>,
    /// Its standard error over trajectories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_error: Option<f64>,
    /// The mean log-likelihood of a held-out symbol by the shares of the symbols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_unigram: Option<f64>,
    /// Held-out rows whose symbol is in no window of the fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_unseen: Option<u64>,
    /// What these rows take from the mean, in nats per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_unseen_cost: Option<f64>,
    /// Why the rank was chosen, with `rank = "auto"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_reason: Option<String>,
    /// The ranks that were compared, with their held-out scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<(usize, Option<f64>)>,
    /// Rows at which the filter was reset.
    pub resets: u64,
    /// The share of raw predictions that are negative.
    pub negative_share: Option<f64>,
    /// Iterations of the Baum–Welch algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<usize>,
    /// The trajectories with the least mean log-likelihood, ascending.
    pub least_likely: Vec<LeastLikely>,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

impl SymbolsModelRecord {
    /// The record of the fits of a partition.
    pub(crate) fn of(
        model: &SymbolsModel,
        layout: &Layout,
        written: Option<&RowsWritten>,
    ) -> SymbolsModelRecord {
        let partition = model.partition as u32;
        let rows = written.and_then(|written| written.rows.get(&partition));
        let rows = rows.copied().unwrap_or_default();
        let fits = model.fits.iter().enumerate().map(|(at, fit)| {
            let of_rows = written.and_then(|written| written.of_fits.get(&(partition, at)));
            let least = of_rows.map_or_else(Vec::new, |of| of.least.clone());
            SymbolFitRecord::of(fit, least)
        });
        SymbolsModelRecord {
            symbols: model.symbols.len(),
            triples: model.triples.len(),
            windows: model.n_windows(),
            rows: rows.rows,
            unseen: rows.unseen,
            gaps: bridges(layout).then_some(rows.gaps),
            trajectories: rows.trajectories,
            fits: fits.collect(),
        }
    }
}

impl SymbolFitRecord {
    fn of(fit: &SymbolFit, least_likely: Vec<LeastLikely>) -> SymbolFitRecord {
        let own = &fit.model;
        let rank = own.hmm.rank;
        let values = own.singular_values.iter().take(rank + 1).copied();
        let ranks = own.ranks.iter();
        let refined = own.refined.as_ref();
        SymbolFitRecord {
            name: fit.name.clone(),
            method: fit.method.clone(),
            rank,
            singular_values: values.collect(),
            noise: own.noise,
            mean_log_likelihood: own.train,
            held_out: own.held_out.map(|of| of.score.mean),
            held_out_error: own.held_out.map(|of| of.score.error),
            held_out_unigram: own.held_out.map(|of| of.unigram),
            held_out_unseen: own.held_out.map(|of| of.unseen),
            held_out_unseen_cost: own.held_out.map(|of| of.unseen_cost),
            rank_reason: ranks.clone().find_map(|of| of.reason.clone()),
            ranks: ranks
                .map(|of| (of.rank, of.held_out.map(|own| own.score.mean)))
                .collect(),
            resets: own.diagnostics.resets.unwrap_or(0),
            negative_share: own.diagnostics.negative_share,
            iterations: refined.map(|own| own.log_likelihood.len().saturating_sub(1)),
            least_likely,
            warnings: fit.warnings.clone(),
        }
    }
}

impl Display for SymbolsModelRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let symbols = counted(grouped(self.symbols as f64), "symbol");
        let triples = counted(grouped(self.triples as f64), "different window");
        write!(f, "{symbols}, {triples}; ")?;
        rows_line(f, self.rows, self.trajectories, self.unseen)?;
        if let Some(gaps) = &self.gaps {
            gaps.write(f)?;
        }
        self.fits.iter().try_for_each(|own| fit(f, own))
    }
}

/// Writes which rows were filtered.
pub(crate) fn rows_line(
    f: &mut Formatter<'_>,
    rows: u64,
    trajectories: u64,
    unseen: u64,
) -> Result {
    let rows = counted(grouped(rows as f64), "row");
    let trajectories = counted(grouped(trajectories as f64), "trajectory");
    write!(f, "{rows} of {trajectories}")?;
    if unseen > 0 {
        let unseen = counted(grouped(unseen as f64), "row");
        write!(f, "; {unseen} with an unseen symbol")?;
    }
    writeln!(f)
}

/// Writes the lines of one fit.
fn fit(f: &mut Formatter<'_>, fit: &SymbolFitRecord) -> Result {
    write!(f, "  {}  rank {}", fit.name, fit.rank)?;
    if let Some(mean) = fit.mean_log_likelihood {
        write!(f, ", {mean:.4} nats per symbol")?;
    }
    if let Some(mean) = fit.held_out {
        let error = fit.held_out_error.unwrap_or(0.0);
        write!(f, ", held out {mean:.4} ± {error:.4}")?;
        if let Some(unigram) = fit.held_out_unigram {
            write!(f, " (shares of symbols {unigram:.4})")?;
        }
        let cost = fit.held_out_unseen_cost.unwrap_or(0.0);
        if let Some(rows) = fit.held_out_unseen.filter(|rows| *rows > 0) {
            let rows = counted(grouped(rows as f64), "row");
            write!(f, "; {rows} with an unseen symbol cost {cost:.4} of it")?;
        }
    }
    writeln!(f)?;
    let values = fit.singular_values.iter().take(SHOWN);
    let values: Vec<String> = values.map(|value| format!("{value:.4}")).collect();
    // A given model has none.
    if !values.is_empty() {
        let (values, noise) = (values.join(" "), fit.noise);
        writeln!(f, "    singular values {values}; noise {noise:.4}")?;
    }
    if let Some(reason) = &fit.rank_reason {
        let ranks: Vec<String> = fit.ranks.iter().map(|(rank, _)| rank.to_string()).collect();
        writeln!(f, "    rank {} of {}: {reason}", fit.rank, ranks.join(", "))?;
    }
    if let Some(n) = fit.iterations {
        writeln!(f, "    {} of Baum–Welch", counted(n, "iteration"))?;
    }
    LeastLikely::write(f, fit.resets, &fit.least_likely)?;
    warnings(f, &fit.warnings)
}
