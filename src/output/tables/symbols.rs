//! The tables of a run over sequences. `predictions` and `trajectories` are written row by row.

use crate::assess::crossval::Score;
use crate::assess::fit_of_model::FitOfModel;
use crate::assess::hmm_distances::Distance;
use crate::error::{Error, Kind, Result};
use crate::evidence::symbols::triples::Triples;
use crate::math::scale::times_power;
use crate::memory::wait_for_room;
use crate::methods::hmm::model::HmmModel;
use crate::output::tables::columns::{Columns, Placed, TableColumns, of_fits, own_rows};
use crate::output::tables::run_schema::{
    LagColumn, RunSchema, item, nullable, optional, required, vector, with_prefix,
};
use crate::output::tables::{bootstrap, certificates};
use crate::read::rows::states::{StateColumns, StateTable};
use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The names of the tables of a run over sequences, in the order in which they are written.
/// `trajectories` and `predictions` follow them.
pub(crate) const TABLES: [&str; 11] = [
    SYMBOLS,
    OPERATORS,
    "vectors",
    "hidden_transitions",
    "triples",
    "spectrum",
    "ranks",
    DISTANCES,
    "bootstrap",
    "fits",
    "certificates",
];

/// The tables that no later command reads, so that a run may leave them out.
pub(crate) const OPTIONAL: [&str; 6] = [
    "hidden_transitions",
    "triples",
    "ranks",
    DISTANCES,
    "bootstrap",
    "certificates",
];

/// The table with one row per symbol.
pub(crate) const SYMBOLS: &str = "symbols";

/// The table with one row per entry of an operator.
pub(crate) const OPERATORS: &str = "operators";

/// The table with one row per reference, model and length of sequences.
pub(crate) const DISTANCES: &str = "distances";

/// The table with one row per row of the input.
pub(crate) const PREDICTIONS: &str = "predictions";

/// The table with one row per trajectory.
pub(crate) const TRAJECTORIES: &str = "trajectories";

/// The fits of one partition.
#[derive(Serialize, Deserialize)]
pub(crate) struct SymbolsModel {
    /// The index of the partition.
    pub partition: usize,
    /// The ids of its symbols in the table of all symbols. Symbol s of the models is `symbols[s]`.
    pub symbols: Vec<u32>,
    /// The windows that the fits were made from.
    pub triples: Triples,
    /// In the order of the plan.
    pub fits: Vec<SymbolFit>,
}

/// A hidden Markov model with what is known of it.
pub(crate) type SymbolFit = FitOfModel<FittedHmm>;

/// A hidden Markov model, and how it was fitted.
#[derive(Serialize, Deserialize)]
pub(crate) struct FittedHmm {
    /// The model.
    pub hmm: HmmModel,
    /// The share of the distribution of all symbols in every prediction.
    pub unigram: f64,
    /// The smallest predicted probability.
    pub floor: f64,
    /// U, words × rank, row-major. Empty for a model that is refined.
    pub left: Vec<f64>,
    /// The leading singular values of the matrix of pairs, beyond the rank too.
    pub singular_values: Vec<f64>,
    /// Singular values of this size are noise.
    pub noise: f64,
    /// The numbers that say how good a model of low rank is.
    pub diagnostics: Diagnostics,
    /// How the model was refined, if it was.
    pub refined: Option<Refinement>,
    /// The score of the rows that are held out, if there are some.
    pub held_out: Option<HeldOutScore>,
    /// The score of the rows that are fitted, if they were read as sequences.
    pub train: Option<f64>,
    /// The ranks that were compared, ascending; empty without `rank = "auto"`.
    pub ranks: Vec<RankScore>,
    /// The distances from given models, by reference, rank and length. Those of a given model from
    /// itself are of its models of low rank.
    pub distances: Vec<ReferenceDistance>,
}

impl FittedHmm {
    /// Puts the distances in the order of the table.
    pub(crate) fn sort_distances(&mut self) {
        let key = |own: &ReferenceDistance| (own.rank, own.distance.length);
        self.distances
            .sort_by(|a, b| a.reference.cmp(&b.reference).then(key(a).cmp(&key(b))));
    }
}

/// The distance of a model from a given one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReferenceDistance {
    /// The name of the fit with the given model.
    pub reference: String,
    /// The rank of the model.
    pub rank: usize,
    pub distance: Distance,
    /// The bound of Theorem 1 for exact moments, if O has full rank.
    pub bound: Option<f64>,
}

/// Numbers that say how good a model of low rank is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Diagnostics {
    /// The L1 distance between the distributions of the first and of the last symbol of windows.
    pub stationarity_gap: f64,
    /// max |Σ_x b_∞ᵀB_x − b_∞ᵀ|.
    pub normalisation_gap: f64,
    /// The share of the symbols whose predicted probability is negative, over the windows.
    pub negative_share: Option<f64>,
    /// The mean sum of the negative probabilities of a prediction.
    pub negative_mass: Option<f64>,
    /// How often the filter was reset, over the rows that were filtered.
    pub resets: Option<u64>,
}

/// How Baum–Welch ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Refinement {
    /// The log-likelihood of the training sequences before each iteration, and at the end.
    pub log_likelihood: Vec<f64>,
    /// Whether the last iteration changed it by less than `tol`.
    pub converged: bool,
}

/// The mean log-likelihood per symbol of rows that are held out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldOutScore {
    /// The mean over rows, and its standard error over trajectories.
    pub score: Score,
    /// The rows that were scored.
    pub rows: u64,
    /// The rows whose symbol is in no window of the fit.
    pub unseen: u64,
    /// What these rows take from the mean: less their log-likelihoods, divided by all rows.
    pub unseen_cost: f64,
    /// The mean log-likelihood per symbol of the shares of the symbols in the training rows.
    pub unigram: f64,
}

/// The held-out score of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankScore {
    /// The rank.
    pub rank: usize,
    /// The held-out score. None if no model of this rank could be fitted.
    pub held_out: Option<HeldOutScore>,
    /// Why the rank was chosen. None for the other ranks.
    pub reason: Option<String>,
}

/// What the columns of a fit depend on.
#[derive(Debug, Clone)]
pub(crate) struct SymbolColumns {
    /// The name of the fit.
    pub name: String,
    /// The largest rank that a model may have. States of a smaller rank end with zeros.
    pub rank: usize,
    /// Whether rows have the distribution of the next symbol.
    pub has_distribution: bool,
    /// Whether models have transition and emission probabilities of hidden states.
    pub has_hidden: bool,
}

/// The columns of a row of the input in the tables of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowColumns<'a> {
    /// The columns that identify a trajectory.
    pub trajectory: &'a [Field],
    /// The time of a row.
    pub time: &'a Field,
    /// The symbol of a row.
    pub symbol: &'a StateColumns,
    /// The column with `train`, `test` or null.
    pub split: Option<&'a Field>,
}

/// What the tables of sequences share.
pub(crate) fn schema_of(
    partition: &[Field],
    partitions: Vec<ArrayRef>,
    symbols: StateTable,
    is_weighted: bool,
) -> RunSchema {
    RunSchema {
        sources: symbols.clone(),
        targets: symbols,
        is_weighted,
        ..RunSchema::of_models(partition, partitions, LagColumn::None)
    }
}

/// The schema of the table `predictions`: partition, trajectory, time, split, the columns of the
/// symbol as the input has them, and for each fit:
/// - `<fit>_log_likelihood`: the natural logarithm of the probability of the symbol, given the rows
///   before it. Null for a row without a symbol.
/// - `<fit>_next_<column>`: the columns of the most likely next symbol.
/// - `<fit>_next_probability`: its probability.
/// - `<fit>_embedding`: the state of the filter after the row, b / (b_∞ᵀb).
/// - `<fit>_was_reset`: whether the filter was reset at the row.
/// - `<fit>_next_distribution`: the probability of every symbol, in the order of the table
///   `symbols`.
pub(crate) fn predictions_schema(
    run: &RunSchema,
    rows: RowColumns<'_>,
    fits: &[SymbolColumns],
) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(rows.trajectory.iter().map(required));
    fields.push(required(rows.time));
    fields.extend(rows.split.map(nullable));
    let symbol = rows.symbol.input_fields().into_iter();
    fields.extend(symbol.map(|f| f.with_nullable(true)));
    fields.push(Field::new("is_unseen", DataType::Boolean, false));
    for fit in fits {
        let own = |what: &str, of| optional(format!("{}_{what}", fit.name), of);
        fields.push(own("log_likelihood", DataType::Float64));
        let next = rows.symbol.output_fields().into_iter();
        fields.extend(next.map(|f| own(&format!("next_{}", f.name()), f.data_type().clone())));
        fields.push(own("next_probability", DataType::Float64));
        fields.push(own("embedding", vector(fit.rank)));
        fields.push(own("was_reset", DataType::Boolean));
        if fit.has_distribution {
            let all = DataType::List(item(DataType::Float64));
            fields.push(own("next_distribution", all));
        }
    }
    Arc::new(Schema::new(fields))
}

/// The schema of the table `trajectories`: partition, trajectory, split, the numbers of rows with a
/// symbol and of rows with an unseen one, and for each fit the sum and the mean of the
/// log-likelihoods of its rows and the number of resets. A trajectory has one row per value of the
/// split.
pub(crate) fn trajectories_schema(
    run: &RunSchema,
    rows: RowColumns<'_>,
    fits: &[SymbolColumns],
) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(rows.trajectory.iter().map(required));
    fields.extend(rows.split.map(nullable));
    fields.push(Field::new("rows", DataType::UInt64, false));
    fields.push(Field::new("unseen", DataType::UInt64, false));
    for fit in fits {
        let own = |what: &str, of| optional(format!("{}_{what}", fit.name), of);
        fields.push(own("log_likelihood", DataType::Float64));
        fields.push(own("mean_log_likelihood", DataType::Float64));
        fields.push(own("resets", DataType::UInt64));
    }
    Arc::new(Schema::new(fields))
}

impl SymbolsModel {
    fn fits(&self) -> &[SymbolFit] {
        &self.fits
    }
}

impl Placed for SymbolsModel {
    fn place(&self) -> (usize, usize) {
        (self.partition, 0)
    }
}

/// What the columns of the tables of a run over sequences depend on.
pub(crate) struct SymbolTables<'a> {
    /// Partitions and symbols.
    pub run: &'a RunSchema,
    /// Symbols per past and per future of a window.
    pub block: usize,
    /// In the order of the plan.
    pub fits: &'a [SymbolColumns],
}

impl SymbolTables<'_> {
    /// The columns of a table.
    pub(crate) fn columns(&self, table: &str) -> TableColumns<'_, SymbolsModel> {
        match table {
            SYMBOLS => symbols(self.run, self.fits),
            OPERATORS => operators(self.run),
            "vectors" => vectors(),
            "hidden_transitions" => hidden_transitions(),
            "triples" => triples(self.run, self.block),
            "spectrum" => spectrum(),
            "ranks" => ranks(),
            DISTANCES => distances(),
            "bootstrap" => bootstrap::of_fits(SymbolsModel::fits),
            "fits" => fits(),
            _ => certificates::of_fits(SymbolsModel::fits),
        }
    }
}

/// A counted window: its past word, middle symbol and future word, and its count.
type WindowRow<'a> = (&'a SymbolsModel, [u32; 3], f64);

impl SymbolsModel {
    fn fit(&self, name: &str) -> Option<&FittedHmm> {
        let fit = self.fits.iter().find(|fit| fit.name == name)?;
        Some(&fit.model)
    }

    /// The count of the windows with a symbol in the middle.
    fn middle_count(&self, symbol: usize) -> f64 {
        let edges = &self.triples.edges;
        let symbol = symbol as u32;
        let start = edges.partition_point(|&(middle, _)| middle < symbol);
        let own = edges[start..]
            .iter()
            .take_while(|(middle, _)| *middle == symbol);
        let own = start..start + own.count();
        let sum = own.map(|edge| self.triples.edge_count(edge)).sum();
        times_power(sum, self.triples.exponent)
    }

    /// The number of windows, or the sum of their weights.
    pub(crate) fn n_windows(&self) -> f64 {
        times_power(self.triples.total(), self.triples.exponent)
    }

    /// The share of a symbol in all symbols of all windows, which every fit has.
    fn probability(&self, symbol: usize) -> Option<f64> {
        self.fits.first().map(|fit| fit.model.hmm.unigram[symbol])
    }

    /// Some of the counted windows: past word, middle symbol, future word, and the count.
    fn windows(&self, rows: Range<usize>) -> Vec<WindowRow<'_>> {
        let triples = &self.triples;
        let mut windows = Vec::with_capacity(rows.len());
        let mut edge = triples.offsets.partition_point(|&end| end <= rows.start);
        for at in rows {
            while triples.offsets[edge] <= at {
                edge += 1;
            }
            let (middle, first) = triples.edges[edge - 1];
            let words = [first, middle, triples.last[at]];
            let count = times_power(triples.counts[at], triples.exponent);
            windows.push((self, words, count));
        }
        windows
    }
}

/// One row per symbol.
fn symbols<'a>(run: &'a RunSchema, fits: &'a [SymbolColumns]) -> TableColumns<'a, SymbolsModel> {
    type Row<'a> = (&'a SymbolsModel, usize);
    let len = |model: &'a SymbolsModel| model.symbols.len();
    let rows = |model: &'a SymbolsModel, rows: Range<usize>| -> Vec<Row<'a>> {
        rows.map(|at| (model, at)).collect()
    };
    let mut columns = Columns::in_pieces(len, rows)
        .state(&run.sources, &run.sources.fields(), |&(model, at)| {
            model.symbols[at]
        })
        .into_keys()
        .boxes(&run.sources, |&(model, at)| model.symbols[at])
        // Windows with the symbol in the middle, or their weight.
        .amount(run, "count", |&(model, at)| model.middle_count(at))
        // Its share of all symbols of all windows.
        .column("probability", |&(model, at)| model.probability(at))
        // Whether it shares its operator with other symbols in a fit.
        .column("is_pooled", |&(model, at)| {
            model
                .fits
                .iter()
                .any(|fit| fit.model.hmm.is_pooled(at as u32))
        });
    for fit in fits {
        let name = fit.name.as_str();
        // The row of U: left vectors of the symbol as a future of one symbol.
        columns = columns
            .column(format!("{name}_left"), move |&(model, at)| {
                let own = model.fit(name)?;
                let k = own.hmm.rank;
                Some(own.left.get(at * k..(at + 1) * k)?.to_vec())
            })
            // b_∞ᵀB of the symbol: its probability given a state b is the product with b.
            .column(format!("{name}_likelihood"), move |&(model, at)| {
                Some(likelihood(&model.fit(name)?.hmm, at))
            });
        if fit.has_hidden {
            // The probability of the symbol for each hidden state.
            columns = columns.column(format!("{name}_emission"), move |&(model, at)| {
                let hidden = model.fit(name)?.hmm.hidden.as_ref()?;
                let m = hidden.states();
                Some(hidden.emission[at * m..][..m].to_vec())
            });
        }
    }
    columns.finish()
}

/// b_∞ᵀB_x times the share of the symbol in its class.
fn likelihood(model: &HmmModel, symbol: usize) -> Vec<f64> {
    let k = model.rank;
    let operator = model.operator(model.class_of[symbol]);
    let entry = |j: usize| {
        (0..k)
            .map(|i| model.last[i] * operator[i * k + j])
            .sum::<f64>()
    };
    (0..k).map(|j| model.share[symbol] * entry(j)).collect()
}

/// An entry of an operator. The operator of the pooled symbols has no symbol.
struct Entry<'a> {
    fit: &'a str,
    symbol: Option<u32>,
    i: usize,
    j: usize,
    value: f64,
}

/// One row per entry of an operator. Operators are ordered by symbol, that of the pooled symbols
/// last.
fn operators(run: &RunSchema) -> TableColumns<'_, SymbolsModel> {
    let len = |model: &SymbolsModel| {
        let fits = model.fits.iter();
        fits.map(|fit| fit.model.hmm.operators.len()).sum()
    };
    fn entries(model: &SymbolsModel, rows: Range<usize>) -> Vec<Entry<'_>> {
        let mut entries = Vec::with_capacity(rows.len());
        let mut first = 0;
        for fit in SymbolFit::by_name(&model.fits) {
            let n = fit.model.hmm.operators.len();
            let own = own_rows(&rows, first, n);
            first += n;
            if own.is_empty() {
                continue;
            }
            let (k, classes) = (fit.model.hmm.rank, classes(model, &fit.model.hmm));
            entries.extend(own.map(|at| {
                let (class, symbol) = classes[at / (k * k)];
                let place = at % (k * k);
                Entry {
                    fit: &fit.name,
                    symbol,
                    i: place / k,
                    j: place % k,
                    value: fit.model.hmm.operator(class)[place],
                }
            }));
        }
        entries
    }
    let symbol = run.sources.fields().into_iter();
    let symbol: Vec<Field> = symbol.map(|f| f.clone().with_nullable(true)).collect();
    Columns::in_pieces(len, entries)
        .key("fit", |entry: &Entry<'_>| entry.fit)
        .given(&symbol, |rows| {
            let ids = rows.iter().map(|row| row.symbol.unwrap_or_default());
            let is_pool: BooleanArray = rows.iter().map(|row| Some(row.symbol.is_none())).collect();
            without(run.sources.columns(&ids.collect::<Vec<u32>>())?, &is_pool)
        })
        .key("i", |entry| entry.i as u32)
        .key("j", |entry| entry.j as u32)
        .column("value", |entry| entry.value)
        .finish()
}

/// The columns with null where `is_null`.
fn without(columns: Vec<ArrayRef>, is_null: &BooleanArray) -> Result<Vec<ArrayRef>> {
    let columns = columns.iter().map(|column| nullif(column, is_null));
    let columns = columns.collect::<std::result::Result<_, _>>();
    columns.map_err(|e| Error::with_source(Kind::Bug, "symbols cannot be left out", e))
}

/// The classes of a model by symbol, each with the symbol in the table of all symbols. The class of
/// the pooled symbols is last and has none.
fn classes(model: &SymbolsModel, of: &HmmModel) -> Vec<(u32, Option<u32>)> {
    let own = model.symbols.iter().zip(&of.class_of);
    let own = own.filter(|(_, class)| of.pool != Some(**class));
    let own = own.map(|(&symbol, &class)| (class, Some(symbol)));
    own.chain(of.pool.map(|pool| (pool, None))).collect()
}

/// One row per number of the two vectors of a fit: `initial` is b₁, `final` is b_∞.
fn vectors<'a>() -> TableColumns<'a, SymbolsModel> {
    let numbers = |fit: &'a SymbolFit| {
        let hmm = &fit.model.hmm;
        let vectors = [("final", &hmm.last), ("initial", &hmm.initial)].into_iter();
        vectors.flat_map(|(name, of)| of.iter().enumerate().map(move |(i, &x)| (name, i, x)))
    };
    of_fits(SymbolsModel::fits, numbers)
        .key("vector", |&(_, (name, ..))| name)
        .key("i", |&(_, (_, i, _))| i as u32)
        .column("value", |&(_, (.., value))| value)
        .finish()
}

/// One row per pair of hidden states of a fit that has them: the probability that the second state
/// follows the first. By rows this is hmmlearn's `transmat_`, the transpose of T.
fn hidden_transitions<'a>() -> TableColumns<'a, SymbolsModel> {
    let entries = |fit: &'a SymbolFit| {
        let hidden = fit.model.hmm.hidden.iter();
        hidden.flat_map(|hidden| {
            let m = hidden.states();
            let pairs = (0..m).flat_map(move |from| (0..m).map(move |to| (from, to)));
            pairs.map(move |(from, to)| (from, to, hidden.transition[to * m + from]))
        })
    };
    of_fits(SymbolsModel::fits, entries)
        .key("from_state", |&(_, (from, ..))| from as u32)
        .key("to_state", |&(_, (_, to, _))| to as u32)
        .column("probability", |&(_, (.., p))| p)
        .finish()
}

/// The columns of the symbols of a window: `first_<column>`, `middle_<column>`, `last_<column>`.
/// With longer words, `first_1_<column>` is the first symbol of the past.
fn window_fields(symbols: &StateTable, block: usize) -> Vec<Vec<Field>> {
    let fields = symbols.fields();
    let word = |word: &str, at: usize| match block {
        1 => with_prefix(&fields, word),
        _ => with_prefix(&fields, &format!("{word}_{}", at + 1)),
    };
    let first = (0..block).map(|at| word("first", at));
    let last = (0..block).map(|at| word("last", at));
    let middle = with_prefix(&fields, "middle");
    first.chain([middle]).chain(last).collect()
}

/// One row per counted window.
fn triples(run: &RunSchema, block: usize) -> TableColumns<'_, SymbolsModel> {
    let len = |model: &SymbolsModel| model.triples.len();
    fn entries(model: &SymbolsModel, rows: Range<usize>) -> Vec<WindowRow<'_>> {
        wait_for_room();
        model.windows(rows)
    }
    let mut columns = Columns::in_pieces(len, entries);
    for (at, fields) in window_fields(&run.sources, block).into_iter().enumerate() {
        columns = columns.state(
            &run.sources,
            &fields,
            move |(model, words, _): &WindowRow<'_>| {
                let word = |word: u32, at: usize| model.triples.word(word)[at];
                let symbol = match at {
                    at if at < block => word(words[0], at),
                    at if at == block => words[1],
                    at => word(words[2], at - block - 1),
                };
                model.symbols[symbol as usize]
            },
        );
    }
    columns
        // Windows, or their weight.
        .amount(run, "count", |&(.., count)| count)
        .finish()
}

/// One row per singular value.
fn spectrum<'a>() -> TableColumns<'a, SymbolsModel> {
    let values = |fit: &'a SymbolFit| fit.model.singular_values.iter().enumerate();
    of_fits(SymbolsModel::fits, values)
        .key("index", |&(_, (at, _))| at as u32)
        .column("value", |&(_, (_, &value))| value)
        // The difference to the next one.
        .column("gap", |&(fit, (at, own))| {
            value(fit, at + 1).map(|next| own - next)
        })
        // 1/√N for N windows, (Σ w)² / Σ w² with weights: singular values of this size are noise.
        .column("noise", |(fit, _)| fit.model.noise)
        // Whether the model has a dimension for it.
        .column("is_kept", |&(fit, (at, _))| at < fit.model.hmm.rank)
        .finish()
}

/// One row per rank of a fit with `rank = "auto"`.
fn ranks<'a>() -> TableColumns<'a, SymbolsModel> {
    let held_out = |row: &(&'a SymbolFit, &'a RankScore)| row.1.held_out;
    of_fits(SymbolsModel::fits, |fit| &fit.model.ranks)
        .key("rank", |(_, of)| of.rank as u32)
        // The mean log-likelihood of a held-out symbol, in nats, and its standard error.
        .part("held_out", held_out, |own| own.score.mean)
        .part("held_out_error", held_out, |own| own.score.error)
        .part("held_out_rows", held_out, |own| own.rows)
        .column("is_chosen", |(_, of)| of.reason.is_some())
        // Why the rank was chosen.
        .column("reason", |(_, of)| of.reason.as_deref())
        .finish()
}

/// One row per reference, model and length.
fn distances<'a>() -> TableColumns<'a, SymbolsModel> {
    of_fits(SymbolsModel::fits, |fit| &fit.model.distances)
        .key("reference", |(_, own)| own.reference.as_str())
        .key("rank", |(_, own)| own.rank as u32)
        // The number of symbols of a sequence, t.
        .key("length", |(_, own)| own.distance.length as u32)
        // Σ |P̂r(x₁, …, x_t) − Pr(x₁, …, x_t)|.
        .column("distance", |(_, own)| own.distance.distance)
        // Its standard error, if sequences were drawn.
        .column("error", |(_, own)| own.distance.error)
        // Sequences that were drawn. 0 for a sum over all sequences.
        .column("samples", |(_, own)| own.distance.samples)
        .column("bound", |(_, own)| own.bound)
        .finish()
}

/// One row per fit.
fn fits<'a>() -> TableColumns<'a, SymbolsModel> {
    type Row<'a> = (&'a SymbolsModel, &'a SymbolFit);
    let rows = |model: &'a SymbolsModel| -> Vec<Row<'a>> {
        SymbolFit::by_name(&model.fits)
            .into_iter()
            .map(|fit| (model, fit))
            .collect()
    };
    let held_out = |row: &Row<'a>| row.1.model.held_out;
    let refined = |row: &Row<'a>| row.1.model.refined.as_ref();
    let diagnostics = |row: &Row<'a>| row.1.model.diagnostics;
    Columns::of(rows)
        .key("fit", |(_, fit)| fit.name.as_str())
        .column("method", |(_, fit)| fit.method.as_str())
        // The dimension of the state.
        .column("rank", |(_, fit)| fit.model.hmm.rank as u32)
        .column("n_symbols", |(model, _)| model.symbols.len() as u64)
        // Symbols that share one operator.
        .column("pooled", |(model, fit)| {
            let all = 0..model.symbols.len() as u32;
            all.filter(|&symbol| fit.model.hmm.is_pooled(symbol))
                .count() as u64
        })
        // Symbols per past and per future of a window.
        .column("block", |(model, _)| model.triples.block as u32)
        // The share of the distribution of all symbols in every prediction, and the smallest one.
        .column("unigram", |(_, fit)| fit.model.unigram)
        .column("floor", |(_, fit)| fit.model.floor)
        // The number of windows, or their weight.
        .column("triples", |(model, _)| model.n_windows())
        // σ_k and σ_{k+1}.
        .column("singular_value", |(_, fit)| {
            value(fit, fit.model.hmm.rank.checked_sub(1)?)
        })
        .column("next_singular_value", |(_, fit)| {
            value(fit, fit.model.hmm.rank)
        })
        // 1/√N for N windows, (Σ w)² / Σ w² with weights: singular values of this size are noise.
        .column("noise", |(_, fit)| fit.model.noise)
        .column("stationarity_gap", move |r| diagnostics(r).stationarity_gap)
        .column("normalisation_gap", move |r| {
            diagnostics(r).normalisation_gap
        })
        .column("negative_share", move |r| diagnostics(r).negative_share)
        .column("negative_mass", move |r| diagnostics(r).negative_mass)
        // How often the filter was reset because no state explains the rows.
        .column("resets", move |r| diagnostics(r).resets)
        // The mean log-likelihood of a held-out symbol, in nats, and its standard error.
        .part("held_out", held_out, |own| own.score.mean)
        .part("held_out_error", held_out, |own| own.score.error)
        .part("held_out_rows", held_out, |own| own.rows)
        .part("held_out_unseen", held_out, |own| own.unseen)
        // What these rows take from the mean.
        .part("held_out_unseen_cost", held_out, |own| own.unseen_cost)
        // The same of the shares of the symbols in the rows of the fit.
        .part("held_out_unigram", held_out, |own| own.unigram)
        // The mean log-likelihood of a symbol of the rows of the fit.
        .column("log_likelihood", |(_, fit)| fit.model.train)
        .part("iterations", refined, |own| {
            own.log_likelihood.len().saturating_sub(1) as u32
        })
        .part("converged", refined, |own| own.converged)
        .column("warnings", |(_, fit)| fit.warnings.clone())
        .finish()
}

fn value(fit: &SymbolFit, at: usize) -> Option<f64> {
    fit.model.singular_values.get(at).copied()
}
