//! Filters all rows and writes the tables `trajectories` and `predictions`.
//!
//! The models are known before the first row is filtered, so a run reads its input again. Memory
//! holds the models, a few batches and one encoded row group per table.

use crate::error::{Result, counted};
use crate::methods::hmm::filtering::Filter;
use crate::methods::hmm::model::{HmmModel, UNSEEN};
use crate::output::number::grouped;
use crate::output::row_writer::RowWriter;
use crate::output::tables::symbols::{PREDICTIONS, SymbolColumns, TRAJECTORIES};
use crate::read::rows::ordered::{Found, again};
use crate::read::rows::split::Split;
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Stop, bug};
use crate::read::symbols;
use crate::read::symbols::{SymbolBatch, SymbolInput, SymbolReader, window_rows};
use crate::run::symbols::held_out::HeldOutSums;
use crate::run::symbols::scoring::{PartitionScorers, Scored, Scoring, SymbolMap, TaskScores};
use crate::run::trajectories::{
    Ended, EndedRow, GapCounts, OfFilter, Open, SPLITS, Target, lists, place, typed,
};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, ListArray, RecordBatch, UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, Field, SchemaRef};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::sync::Arc;

/// Trajectories with the least mean log-likelihood that are kept for the summary of a fit.
const LEAST: usize = 3;

/// A fit that filters rows.
pub(crate) struct RowFit<'a> {
    pub(crate) model: Cow<'a, HmmModel>,
    /// The share of the distribution of all symbols in every prediction.
    pub(crate) unigram: f64,
    /// The smallest predicted probability.
    pub(crate) floor: f64,
}

/// The fits of one partition.
pub(crate) struct RowModel<'a> {
    /// The number of each symbol among the known ones.
    pub(crate) numbers: Cow<'a, [u32]>,
    /// In the order of their columns.
    pub(crate) fits: Vec<RowFit<'a>>,
}

/// The tables that are written row by row.
pub(crate) struct RowTables<'a> {
    /// The schema of the table `trajectories`.
    pub(crate) trajectories: SchemaRef,
    /// The schema of the table `predictions`, if it is written.
    pub(crate) predictions: Option<SchemaRef>,
    pub(crate) fits: &'a [SymbolColumns],
    /// By partition. None if a partition has no model.
    pub(crate) models: Vec<Option<RowModel<'a>>>,
    /// Where the tables are written.
    pub(crate) target: Target<'a>,
}

/// What filtering all rows found.
pub(crate) struct RowsWritten {
    /// Rows by table.
    pub(crate) tables: BTreeMap<&'static str, u64>,
    /// By partition and fit.
    pub(crate) of_fits: BTreeMap<(u32, usize), FitRows>,
    /// Rows with a symbol by partition.
    pub(crate) rows: BTreeMap<u32, PartitionRows>,
    /// What was found beside the sequences.
    pub(crate) found: Found,
}

/// The filtered rows of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartitionRows {
    /// Rows with a symbol.
    pub(crate) rows: u64,
    /// Rows whose symbol the model does not have.
    pub(crate) unseen: u64,
    /// The gaps between rows with a symbol.
    pub(crate) gaps: GapCounts,
    /// Trajectories with a symbol.
    pub(crate) trajectories: u64,
    /// Training rows of sequences that are shorter than a window.
    pub(crate) short: u64,
}

/// The filtered rows of a fit.
#[derive(Debug, Clone)]
pub(crate) struct FitRows {
    /// The sum of the log-likelihoods of all rows.
    pub(crate) log_likelihood: f64,
    /// Rows that were fitted: the sum of the log-likelihoods, and their number.
    pub(crate) train: (f64, u64),
    /// Rows that are held out.
    pub(crate) test: HeldOutSums,
    /// Rows at which the filter was reset.
    pub(crate) resets: u64,
    /// Negative raw predictions.
    pub(crate) negatives: u64,
    /// The sum of their magnitudes.
    pub(crate) negative_mass: f64,
    /// Rows that were filtered.
    pub(crate) rows: u64,
    /// The trajectories with the least mean log-likelihood, ascending.
    pub(crate) least: Vec<LeastLikely>,
}

/// A trajectory with a small mean log-likelihood.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LeastLikely {
    /// The trajectory as text; empty if the partition is one trajectory.
    pub trajectory: String,
    /// The number of its rows.
    pub rows: u64,
    /// Nats per symbol.
    pub mean_log_likelihood: f64,
}

impl LeastLikely {
    /// Writes how often a filter was reset, and the least likely of several trajectories.
    pub(crate) fn write(f: &mut Formatter<'_>, resets: u64, least: &[LeastLikely]) -> fmt::Result {
        if resets > 0 {
            let resets = counted(grouped(resets as f64), "row");
            writeln!(f, "    the filter was reset at {resets}")?;
        }
        let least: Vec<String> = least
            .iter()
            .filter(|of| !of.trajectory.is_empty())
            .map(|of| format!("{} ({:.3})", of.trajectory, of.mean_log_likelihood))
            .collect();
        if least.len() > 1 {
            writeln!(f, "    least likely trajectories {}", least.join(", "))?;
        }
        Ok(())
    }
}

impl Default for FitRows {
    fn default() -> FitRows {
        FitRows {
            log_likelihood: 0.0,
            train: (0.0, 0),
            test: HeldOutSums::new(1),
            resets: 0,
            negatives: 0,
            negative_mass: 0.0,
            rows: 0,
            least: Vec::new(),
        }
    }
}

impl FitRows {
    fn keep(&mut self, found: LeastLikely) {
        let mean = |one: &LeastLikely| one.mean_log_likelihood;
        let at = self
            .least
            .partition_point(|other| mean(other) <= mean(&found));
        if at < LEAST {
            self.least.insert(at, found);
            self.least.truncate(LEAST);
        }
    }
}

/// Sums over the rows of a trajectory with one split.
#[derive(Debug, Clone, Default)]
struct SplitSums {
    rows: u64,
    unseen: u64,
    /// By fit.
    fits: Vec<FitSums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct FitSums {
    log_likelihood: f64,
    /// The part of the log-likelihood that is of rows with an unseen symbol.
    of_unseen: f64,
    unigram: f64,
    resets: u64,
}

/// The training rows of the sequence that the next rows may continue.
struct Short {
    rows: u64,
    /// Rows per window.
    window: u64,
}

impl Short {
    /// Ends the sequence, and adds its rows if it is shorter than a window.
    fn end(&mut self, of_partition: &mut PartitionRows) {
        let rows = std::mem::take(&mut self.rows);
        if rows < self.window {
            of_partition.short += rows;
        }
    }
}

/// Adds up the scores of trajectories.
struct Totals<'a, 't> {
    tables: &'t RowTables<'a>,
    has_split: bool,
    n_partition: usize,
    open: Open<SplitSums>,
    short: Short,
    of_fits: BTreeMap<(u32, usize), FitRows>,
    rows: BTreeMap<u32, PartitionRows>,
}

impl Totals<'_, '_> {
    fn model(&self, partition: u32) -> Option<&RowModel<'_>> {
        self.tables.models.get(partition as usize)?.as_ref()
    }

    /// Adds a batch. Returns the rows of the trajectories that ended.
    fn push(
        &mut self,
        batch: &SymbolBatch,
        symbols: &[u32],
        scored: &[Scored],
    ) -> Result<Option<RecordBatch>> {
        let (keys, offset) = self.open.keys(&batch.trajectory_keys)?;
        let mut ended = Vec::new();
        for task in scored {
            let first = batch.trajectories[task.trajectories.start].rows.start;
            for at in task.trajectories.clone() {
                let part = &batch.trajectories[at];
                if !part.continues || self.open.trajectory.is_none() {
                    self.close(&keys, &mut ended);
                    self.open.begin(offset + at as u32, part.partition);
                }
                self.add(batch, symbols, task, at, first);
            }
            let start = &batch.trajectories[task.trajectories.start];
            for (at, scores) in task.by_filter.iter().enumerate() {
                let of_fit = self.of_fits.entry((start.partition, at)).or_default();
                of_fit.negatives += scores.of_rows.negatives;
                of_fit.negative_mass += scores.of_rows.negative_mass;
                of_fit.rows += scores.of_rows.log_likelihood.len() as u64;
            }
        }
        self.open.keep(&keys);
        self.trajectories(&keys, ended)
    }

    /// Adds the rows of a trajectory to the open one. `first` is the first row of the task.
    fn add(
        &mut self,
        batch: &SymbolBatch,
        symbols: &[u32],
        task: &Scored,
        at: usize,
        first: usize,
    ) {
        let part = &batch.trajectories[at];
        let models = self.tables.models.get(part.partition as usize);
        let model = models.and_then(|model| model.as_ref());
        let Some(open) = &mut self.open.trajectory else {
            return;
        };
        let of_partition = self.rows.entry(part.partition).or_default();
        for piece in &batch.pieces[part.pieces.clone()] {
            let sums = &mut open.splits[place(piece.split)];
            sums.rows += piece.rows.len() as u64;
            let own = &symbols[piece.rows.clone()];
            let unseen = own.iter().filter(|symbol| **symbol == UNSEEN).count() as u64;
            sums.unseen += unseen;
            of_partition.rows += piece.rows.len() as u64;
            of_partition.unseen += unseen;
            of_partition.gaps.add_link(piece.link);
            if piece.begins {
                self.short.end(of_partition);
            }
            if piece.split == Split::Train {
                self.short.rows += piece.rows.len() as u64;
            }
            sums.fits.resize(task.by_filter.len(), FitSums::default());
            let Some(model) = model else { continue };
            for ((sums, scores), fit) in sums.fits.iter_mut().zip(&task.by_filter).zip(&model.fits)
            {
                for row in piece.rows.clone() {
                    // One by one, so that the sum does not depend on the borders of batches.
                    let log_likelihood = scores.of_rows.log_likelihood[row - first];
                    sums.log_likelihood += log_likelihood;
                    if symbols[row] == UNSEEN {
                        sums.of_unseen += log_likelihood;
                    }
                    sums.resets += u64::from(scores.of_rows.was_reset[row - first]);
                }
                if piece.split == Split::Test {
                    for &symbol in own {
                        let share = fit.model.share_of(symbol).unwrap_or(0.0);
                        sums.unigram += share.max(fit.floor).ln();
                    }
                }
            }
        }
    }

    /// Ends the open trajectory.
    fn close(&mut self, keys: &[ArrayRef], ended: &mut Vec<EndedRow<SplitSums>>) {
        let Some(partition) = self.open.trajectory.as_ref().map(|open| open.partition) else {
            return;
        };
        let first = ended.len();
        self.open.close(|sums| sums.rows, ended);
        for row in &ended[first..] {
            let sums = &row.sums;
            for (at, fit) in sums.fits.iter().enumerate() {
                let of_fit = self.of_fits.entry((partition, at)).or_default();
                of_fit.resets += fit.resets;
                of_fit.log_likelihood += fit.log_likelihood;
                match SPLITS[row.split].0 {
                    Split::Train => {
                        of_fit.train.0 += fit.log_likelihood;
                        of_fit.train.1 += sums.rows;
                    }
                    Split::Test => {
                        of_fit.test.add(&[fit.log_likelihood, sums.rows as f64]);
                        of_fit.test.unseen += sums.unseen;
                        of_fit.test.of_unseen[0] += fit.of_unseen;
                        of_fit.test.unigram += fit.unigram;
                    }
                    Split::Neither => {}
                }
                let mean = fit.log_likelihood / sums.rows as f64;
                let largest = of_fit.least.last().map(|found| found.mean_log_likelihood);
                if of_fit.least.len() < LEAST || largest.is_some_and(|largest| mean < largest) {
                    let columns: Vec<ArrayRef> = keys[self.n_partition.min(keys.len())..].to_vec();
                    let trajectory = if columns.is_empty() {
                        String::new()
                    } else {
                        describe(&columns, row.key as usize)
                    };
                    of_fit.keep(LeastLikely {
                        trajectory,
                        rows: sums.rows,
                        mean_log_likelihood: mean,
                    });
                }
            }
        }
        let of_partition = self.rows.entry(partition).or_default();
        of_partition.trajectories += u64::from(ended.len() > first);
        self.short.end(of_partition);
    }

    /// Rows of the table `trajectories`.
    fn trajectories(
        &self,
        keys: &[ArrayRef],
        ended: Vec<EndedRow<SplitSums>>,
    ) -> Result<Option<RecordBatch>> {
        if ended.is_empty() {
            return Ok(None);
        }
        let ended = Ended::new(keys, ended)?;
        let mut columns = ended.leading(self.has_split, [|sums| sums.rows, |sums| sums.unseen]);
        for fit in 0..self.tables.fits.len() {
            let of = |row: &EndedRow<SplitSums>| {
                self.model(row.partition)?;
                let own = row.sums.fits.get(fit)?;
                Some((own.log_likelihood, row.sums.rows, own.resets))
            };
            let sums = ended.rows.iter().map(|row| of(row).map(|(sum, ..)| sum));
            columns.push(Arc::new(sums.collect::<Float64Array>()));
            let means = ended
                .rows
                .iter()
                .map(|row| of(row).map(|(sum, n, _)| sum / n as f64));
            columns.push(Arc::new(means.collect::<Float64Array>()));
            let resets = ended
                .rows
                .iter()
                .map(|row| of(row).map(|(.., resets)| resets));
            columns.push(Arc::new(resets.collect::<UInt64Array>()));
        }
        typed(&self.tables.trajectories, columns).map(Some)
    }

    /// Ends the last trajectory.
    fn finish(&mut self) -> Result<Option<RecordBatch>> {
        let keys = self.open.last_keys();
        let mut ended = Vec::new();
        self.close(&keys, &mut ended);
        self.trajectories(&keys, ended)
    }
}

type OfFit<'a> = OfFilter<'a, TaskScores>;

/// Makes the rows of the table `predictions`.
struct Predictions<'a, 't> {
    tables: &'t RowTables<'a>,
    schema: SchemaRef,
    /// The columns of the known symbols.
    symbols: &'t [ArrayRef],
}

impl<'a> Predictions<'a, '_> {
    /// The rows of a batch.
    fn rows(&self, batch: &SymbolBatch, symbols: &[u32], scored: &[Scored]) -> Result<RecordBatch> {
        let mut columns = batch.partition.clone();
        columns.extend(batch.key.iter().cloned());
        columns.extend(batch.split.clone());
        columns.extend(batch.symbols.iter().cloned());
        let unseen = symbols.iter().map(|symbol| Some(*symbol == UNSEEN));
        columns.push(Arc::new(unseen.collect::<BooleanArray>()));
        let lengths = scored.iter().map(|task| {
            let parts = batch.trajectories[task.trajectories.clone()].iter();
            parts.map(|part| part.rows.len()).sum()
        });
        let lengths: Vec<usize> = lengths.collect();
        for (at, fit) in self.tables.fits.iter().enumerate() {
            let of = OfFit {
                scored,
                lengths: &lengths,
                filter: at,
            };
            let nulls = of.nulls();
            let numbers = |values: Vec<f64>| -> ArrayRef {
                Arc::new(Float64Array::new(values.into(), Some(nulls.clone())))
            };
            columns.push(numbers(of.all(1, 0.0, |own| &own.of_rows.log_likelihood)));
            columns.extend(self.next(batch, &of)?);
            columns.push(numbers(of.all(1, 0.0, |own| &own.of_rows.next_probability)));
            columns.push(self.states(batch, &of, fit.rank));
            let was_reset = of.all(1, false, |own| &own.of_rows.was_reset).into();
            columns.push(Arc::new(BooleanArray::new(was_reset, Some(nulls.clone()))));
            if fit.has_distribution {
                columns.push(self.distributions(batch, &of));
            }
        }
        typed(&self.schema, columns)
    }

    /// By task, the number of rows, the model and its scores.
    fn tasks<'s>(
        &'s self,
        batch: &'s SymbolBatch,
        of: &'s OfFit<'s>,
    ) -> impl Iterator<Item = (usize, Option<(&'s RowModel<'a>, &'s TaskScores)>)> {
        of.scored.iter().zip(of.lengths).map(|(task, &n)| {
            let partition = batch.trajectories[task.trajectories.start].partition;
            let model = self.tables.models.get(partition as usize);
            let model = model.and_then(Option::as_ref);
            (n, model.zip(task.by_filter.get(of.filter)))
        })
    }

    /// The columns of the most likely next symbols.
    fn next(&self, batch: &SymbolBatch, of: &OfFit<'_>) -> Result<Vec<ArrayRef>> {
        let mut next: Vec<Option<u32>> = Vec::with_capacity(batch.len());
        for (n, own) in self.tasks(batch, of) {
            match own {
                Some((model, scores)) => {
                    let symbols = scores.of_rows.next.iter();
                    next.extend(symbols.map(|&s| model.numbers.get(s as usize).copied()));
                }
                None => next.resize(next.len() + n, None),
            }
        }
        take_arrays(self.symbols, &UInt32Array::from(next), None).map_err(bug)
    }

    /// The states after the rows. A model of a smaller rank has zeros at the end.
    fn states(&self, batch: &SymbolBatch, of: &OfFit<'_>, width: usize) -> ArrayRef {
        let mut values = Vec::with_capacity(batch.len() * width);
        for (n, own) in self.tasks(batch, of) {
            match own {
                Some((model, scores)) => {
                    let rank = model.fits[of.filter].model.rank;
                    for state in scores.of_rows.states.chunks_exact(rank) {
                        values.extend_from_slice(state);
                        values.extend(std::iter::repeat_n(0.0, width - rank));
                    }
                }
                None => values.resize(values.len() + n * width, 0.0),
            }
        }
        lists(values, width, of.nulls())
    }

    /// The whole distributions of the next symbol.
    fn distributions(&self, batch: &SymbolBatch, of: &OfFit<'_>) -> ArrayRef {
        let (mut values, mut lengths) = (Vec::new(), Vec::with_capacity(batch.len()));
        for (n, own) in self.tasks(batch, of) {
            match own {
                Some((model, scores)) => {
                    values.extend_from_slice(&scores.distributions);
                    lengths.resize(lengths.len() + n, model.fits[of.filter].model.n_symbols);
                }
                None => lengths.resize(lengths.len() + n, 0),
            }
        }
        let item = Arc::new(Field::new("item", DataType::Float64, false));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = Arc::new(Float64Array::from(values));
        Arc::new(ListArray::new(item, offsets, values, Some(of.nulls())))
    }
}

/// Filters all rows and writes their tables.
///
/// # Errors
/// If the rows cannot be read, or the store fails.
pub(crate) async fn write(
    input: SymbolInput<'_>,
    tables: &RowTables<'_>,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<RowsWritten> {
    loop {
        let mut rows = SymbolReader::start(input).await?;
        let mut writing = Writing::start(input, tables)?;
        let written = async {
            while let Some(batch) = rows.next().await? {
                let n = batch.len();
                writing.push(batch).await?;
                advance(n as u64);
            }
            Ok::<_, Stop>(())
        };
        match written.await {
            Ok(()) => return writing.finish(rows.finish()?).await,
            Err(stop) => {
                writing.abort().await?;
                again(stop, rows.must_read_again(), input.sort)?;
            }
        }
    }
}

/// One attempt to write the tables.
struct Writing<'a, 't> {
    scoring: Scoring<'t>,
    totals: Totals<'a, 't>,
    trajectories: RowWriter<'t>,
    predictions: Option<(Predictions<'a, 't>, RowWriter<'t>)>,
}

impl<'a, 't> Writing<'a, 't> {
    fn start(input: SymbolInput<'t>, tables: &'t RowTables<'a>) -> Result<Writing<'a, 't>> {
        let target = tables.target;
        let has_predictions = tables.predictions.is_some();
        let partitions = tables.models.iter().map(|model| {
            let model = model.as_ref()?;
            let scorer = |fit: &'t RowFit<'a>| {
                let mut filter = Filter::new(&fit.model, fit.unigram, fit.floor);
                if has_predictions {
                    filter = filter.with_next().with_states();
                }
                vec![filter]
            };
            Some(PartitionScorers {
                symbols: SymbolMap::new(&model.numbers),
                scorers: model.fits.iter().map(scorer).collect(),
                folds: None,
            })
        });
        let distributions = tables.fits.iter().any(|fit| fit.has_distribution);
        let predictions = tables.predictions.as_ref().map(|schema| {
            let predictions = Predictions {
                tables,
                schema: Arc::clone(schema),
                symbols: &input.symbols.columns,
            };
            target
                .table(PREDICTIONS, schema)
                .map(|writer| (predictions, writer))
        });
        Ok(Writing {
            scoring: Scoring::new(partitions.collect(), distributions && has_predictions, None),
            totals: Totals {
                tables,
                has_split: symbols::has_split(input.layout),
                n_partition: input.layout.partition.len(),
                open: Open::default(),
                short: Short {
                    rows: 0,
                    window: window_rows(input.layout),
                },
                of_fits: BTreeMap::new(),
                rows: BTreeMap::new(),
            },
            trajectories: target.table(TRAJECTORIES, &tables.trajectories)?,
            predictions: predictions.transpose()?,
        })
    }

    async fn push(&mut self, batch: SymbolBatch) -> Result<()> {
        let symbols = self.scoring.symbols(&batch);
        let scored = self.scoring.score(&batch, &symbols);
        if let Some(rows) = self.totals.push(&batch, &symbols, &scored)? {
            self.trajectories.write(rows).await?;
        }
        if let Some((predictions, writer)) = &mut self.predictions
            && batch.len() > 0
        {
            writer
                .write(predictions.rows(&batch, &symbols, &scored)?)
                .await?;
        }
        Ok(())
    }

    async fn finish(mut self, found: Found) -> Result<RowsWritten> {
        if let Some(rows) = self.totals.finish()? {
            self.trajectories.write(rows).await?;
        }
        let mut tables = BTreeMap::from([(TRAJECTORIES, self.trajectories.finish().await?)]);
        if let Some((_, writer)) = self.predictions {
            tables.insert(PREDICTIONS, writer.finish().await?);
        }
        Ok(RowsWritten {
            tables,
            of_fits: self.totals.of_fits,
            rows: self.totals.rows,
            found,
        })
    }

    async fn abort(self) -> Result<()> {
        self.trajectories.abort().await?;
        match self.predictions {
            Some((_, writer)) => writer.abort().await,
            None => Ok(()),
        }
    }
}
