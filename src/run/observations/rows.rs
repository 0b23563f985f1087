//! Filters all rows and writes the tables `trajectories`, `estimates` and `posteriors`.
//!
//! Memory holds the models, a few batches and one encoded row group per table.

use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack};
use crate::methods::filter::model::{Estimates, FilterModel};
use crate::output::row_writer::RowWriter;
use crate::output::tables::observations::{
    ESTIMATES, FilterColumns, FilterScores, POSTERIORS, StepErrors, TRAJECTORIES,
};
use crate::read::observations::layout::{ObservationKey, ObservationLayout};
use crate::read::observations::{ObservationBatch, ObservationInput, ObservationRows};
use crate::read::rows::layout::schema as rows_schema;
use crate::read::rows::ordered::{Found, again};
use crate::read::rows::split::Split;
use crate::read::rows::stop::{Stop, bug};
use crate::run::observations::missing::MissingRows;
use crate::run::observations::objectives::Objectives;
use crate::run::observations::scoring::{RowFilter, Scored, Scoring};
use crate::run::observations::seconds::FilterSeconds;
use crate::run::trajectories::{
    self, EndedRow, GapCounts, OfFilter, Open, Target, lists, place, typed,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, RecordBatch, StringArray,
    UInt32Array, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{take, take_arrays};
use arrow::datatypes::{DataType, Field, SchemaRef};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Weights of posteriors that are computed before they are written.
const WEIGHTS: usize = 1 << 20;

/// The tables that are written row by row.
pub(crate) struct RowTables<'a> {
    /// The schema of the table `trajectories`, if it is written.
    pub(crate) trajectories: Option<SchemaRef>,
    /// The schema of the table `estimates`, if it is written.
    pub(crate) estimates: Option<SchemaRef>,
    /// The schema of the table `posteriors`, and the columns of the ids of the training rows by
    /// partition, if it is written.
    pub(crate) posteriors: Option<(SchemaRef, Vec<Vec<ArrayRef>>)>,
    pub(crate) fits: Vec<FilterColumns>,
    /// Whether the errors of each step are wanted.
    pub(crate) errors: bool,
    /// By partition. None if a partition has no model.
    pub(crate) models: Vec<Option<Vec<RowFilter<'a>>>>,
    /// Whether training rows are left out.
    pub(crate) held_out: bool,
}

/// What filtering all rows found.
pub(crate) struct RowsWritten {
    /// Rows by table.
    pub(crate) tables: BTreeMap<&'static str, u64>,
    /// By partition and fit.
    pub(crate) of_fits: BTreeMap<(u32, usize), FitSums>,
    /// Filtered rows by partition.
    pub(crate) rows: BTreeMap<u32, PartitionRows>,
    /// The time of the filters.
    pub(crate) seconds: FilterSeconds,
    /// What was found beside the rows.
    pub(crate) found: Found,
}

/// The filtered rows of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartitionRows {
    /// Filtered rows.
    pub(crate) rows: u64,
    /// Rows of which a number of the observation is missing.
    pub(crate) missing: MissingRows,
    /// The gaps between them.
    pub(crate) gaps: GapCounts,
    /// Trajectories with a filtered row.
    pub(crate) trajectories: u64,
}

/// Adds up what the filters found, trajectory by trajectory.
#[derive(Default)]
pub(crate) struct Tally {
    /// By partition and fit.
    of_fits: BTreeMap<(u32, usize), FitSums>,
    /// By partition.
    rows: BTreeMap<u32, PartitionRows>,
    seconds: FilterSeconds,
}

impl Tally {
    /// Adds trajectories that ended, in their order.
    pub(crate) fn add(&mut self, ended: &[EndedRow<SplitSums>]) {
        for row in ended {
            let of_partition = self.rows.entry(row.partition).or_default();
            of_partition.trajectories += u64::from(row.begins);
            of_partition.rows += row.sums.rows;
            of_partition.missing.add(&row.sums.missing);
            of_partition.gaps.add(&row.sums.gaps);
            for (fit, own) in row.sums.fits.iter().enumerate() {
                let of_fit = self.of_fits.entry((row.partition, fit)).or_default();
                of_fit.splits[row.split].add(own);
            }
            // Trajectory by trajectory, in the order of their keys.
            for (fit, own) in row.sums.steps.iter().enumerate() {
                let of_fit = self.of_fits.entry((row.partition, fit)).or_default();
                let n = of_fit.steps.len().max(own.len());
                of_fit.steps.resize(n, StepErrors::default());
                of_fit.steps.iter_mut().zip(own).for_each(|(a, b)| a.add(b));
            }
        }
    }

    /// Adds the time of filters.
    pub(crate) fn add_seconds(&mut self, seconds: &FilterSeconds) {
        self.seconds.add_all(seconds);
    }

    /// What filtering all rows found.
    pub(crate) fn written(self, tables: BTreeMap<&'static str, u64>, found: Found) -> RowsWritten {
        RowsWritten {
            tables,
            of_fits: self.of_fits,
            rows: self.rows,
            seconds: self.seconds,
            found,
        }
    }
}

/// The filtered rows of a fit, by split in the order of [`SPLITS`](trajectories::SPLITS).
#[derive(Debug, Clone, Default)]
pub(crate) struct FitSums {
    splits: [Sums; 3],
    /// Of the test rows, if the errors of each step are wanted.
    steps: Vec<StepErrors>,
}

/// Sums over rows that a filter filtered.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Sums {
    rows: u64,
    /// Rows with an observation.
    observed: u64,
    /// Rows with an observation that did not change the estimate.
    not_updated: u64,
    log_score: f64,
    /// Rows with a log score.
    scored: u64,
    /// Squared errors of the means, and of the decoded states, with known states.
    squares: f64,
    squares_decoded: f64,
    known: u64,
    objectives: Objectives,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.rows += other.rows;
        self.observed += other.observed;
        self.not_updated += other.not_updated;
        self.log_score += other.log_score;
        self.scored += other.scored;
        self.squares += other.squares;
        self.squares_decoded += other.squares_decoded;
        self.known += other.known;
        self.objectives.add(&other.objectives);
    }

    fn mse(&self) -> Option<f64> {
        (self.known > 0).then(|| self.squares / self.known as f64)
    }

    fn mse_decoded(&self) -> Option<f64> {
        (self.known > 0).then(|| self.squares_decoded / self.known as f64)
    }

    fn mean_log_score(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.log_score / self.scored as f64)
    }
}

impl FitSums {
    fn all(&self) -> Sums {
        let mut all = Sums::default();
        self.splits.iter().for_each(|own| all.add(own));
        all
    }

    /// The scores of the fit.
    pub(crate) fn scores(&self, has_split: bool) -> FilterScores {
        let [train, test, _] = &self.splits;
        let scored = if has_split && test.scored > 0 {
            *test
        } else {
            self.all()
        };
        FilterScores {
            train_mse: train.mse(),
            train_mse_decoded: train.mse_decoded(),
            test_mse: test.mse(),
            test_mse_decoded: test.mse_decoded(),
            test_rows: test.rows,
            mean_log_score: scored.mean_log_score(),
            not_updated: self.all().not_updated,
            objective: scored.objectives.mean(),
            objective_excess: self.objective_excess(),
            supervision_distance: scored.objectives.mean_distance(),
        }
    }

    /// Errors by number of a test row in its trajectory. Empty if they are not wanted.
    pub(crate) fn errors(&self) -> &[StepErrors] {
        &self.steps
    }

    /// The largest share of an objective that is above its minimum.
    pub(crate) fn objective_excess(&self) -> Option<f64> {
        self.all().objectives.excess
    }

    /// The mean squared error of the means of all rows with a known state.
    pub(crate) fn mse(&self) -> Option<f64> {
        self.all().mse()
    }

    /// The mean log score of all rows with an observation.
    pub(crate) fn mean_log_score(&self) -> Option<f64> {
        self.all().mean_log_score()
    }

    /// The number of rows with an observation, if no observation changed an estimate.
    pub(crate) fn never_updated(&self) -> Option<u64> {
        let all = self.all();
        (all.observed > 0 && all.not_updated == all.observed).then_some(all.observed)
    }
}

/// Sums over the rows of a trajectory with one split.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SplitSums {
    rows: u64,
    missing: MissingRows,
    gaps: GapCounts,
    /// By fit.
    fits: Vec<Sums>,
    /// Errors by fit and row, if they are wanted and the rows are test rows.
    steps: Vec<Vec<StepErrors>>,
}

/// Adds up the scores of trajectories.
type Totals = Open<SplitSums>;

pub(crate) type Ended = trajectories::Ended<SplitSums>;

impl Ended {
    /// The columns of [`to_rows`](Ended::to_rows): partition and trajectory columns, and the rest.
    pub(crate) fn schema(layout: &ObservationLayout) -> SchemaRef {
        let n_keys = match layout.key {
            ObservationKey::Trajectories { .. } => layout.n_order() - 1,
            ObservationKey::Rows { .. } => layout.n_order(),
        };
        let mut fields = layout.fields();
        fields.truncate(n_keys);
        fields.push(Field::new("", DataType::Binary, false));
        rows_schema(&fields)
    }

    /// The keys and sums of the trajectories as one record batch, to send to another process.
    ///
    /// # Errors
    /// If a row cannot be packed, which is a bug.
    pub(crate) fn to_rows(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let packed: Vec<Vec<u8>> = self.rows.iter().map(pack).collect::<Result<_>>()?;
        let mut columns = self.keys.clone();
        columns.push(Arc::new(BinaryArray::from_iter_values(packed)));
        typed(schema, columns)
    }

    /// The content of [`to_rows`](Ended::to_rows).
    ///
    /// # Errors
    /// If a row cannot be unpacked.
    pub(crate) fn of_rows(rows: &RecordBatch) -> Result<Ended> {
        let (packed, keys) = rows
            .columns()
            .split_last()
            .ok_or_else(|| Error::bug("rows have no columns"))?;
        let packed = packed.as_binary_opt::<i32>();
        let packed = packed.ok_or_else(|| Error::bug("rows are not packed"))?;
        let ended = packed.iter().flatten().map(unpack);
        Ok(Ended {
            keys: keys.to_vec(),
            rows: ended.collect::<Result<_>>()?,
        })
    }

    /// Rows of the table `trajectories`. `fits` is the number of fits.
    pub(crate) fn table(
        &self,
        schema: &SchemaRef,
        has_split: bool,
        fits: usize,
    ) -> Result<RecordBatch> {
        let mut columns = self.leading(has_split, [|sums| sums.rows, |sums| sums.missing.rows()]);
        for fit in 0..fits {
            let own = || self.rows.iter().map(|row| row.sums.fits.get(fit));
            let numbers = |value: fn(&Sums) -> Option<f64>| -> ArrayRef {
                let values = own().map(|sums| sums.and_then(value));
                Arc::new(values.collect::<Float64Array>())
            };
            columns.push(numbers(|sums| (sums.scored > 0).then_some(sums.log_score)));
            columns.push(numbers(Sums::mean_log_score));
            let not_updated = own().map(|sums| sums.map(|sums| sums.not_updated));
            columns.push(Arc::new(not_updated.collect::<UInt64Array>()));
            columns.push(numbers(Sums::mse));
            columns.push(numbers(Sums::mse_decoded));
        }
        typed(schema, columns)
    }
}

impl Totals {
    /// Adds a batch. Returns the trajectories that ended.
    fn push(
        &mut self,
        batch: &ObservationBatch,
        scoring: &Scoring<'_>,
        scored: &[Scored],
        errors: bool,
    ) -> Result<Ended> {
        let (keys, offset) = self.keys(&batch.trajectory_keys)?;
        let mut ended = Vec::new();
        for task in scored {
            let mut at = 0;
            for nth in task.trajectories.clone() {
                let part = &batch.trajectories[nth];
                if !part.continues || self.trajectory.is_none() {
                    self.close(|sums| sums.rows, &mut ended);
                    self.begin(offset + nth as u32, part.partition);
                }
                for piece in scoring.pieces(batch, part) {
                    if let Some(open) = &mut self.trajectory {
                        let sums = &mut open.splits[place(piece.split)];
                        sums.gaps.add_link(piece.link);
                    }
                    for row in piece.rows.clone() {
                        let of = scoring.takes(batch, part.partition, row);
                        self.add(batch, task, piece.split, [row, at], of);
                        if errors && piece.split == Split::Test {
                            self.add_errors(batch, task, row, at);
                        }
                        at += 1;
                    }
                }
            }
        }
        self.keep(&keys);
        Ended::new(&keys, ended)
    }

    /// Adds a row to the open trajectory. `at` is its place in the estimates, and `takes` says
    /// which filters take its observation.
    fn add(
        &mut self,
        batch: &ObservationBatch,
        task: &Scored,
        split: Split,
        [row, at]: [usize; 2],
        takes: impl Iterator<Item = bool>,
    ) {
        let Some(open) = &mut self.trajectory else {
            return;
        };
        let sums = &mut open.splits[place(split)];
        sums.rows += 1;
        sums.missing.add_row(batch.observations.numbers(row));
        sums.fits.resize(task.by_filter.len(), Sums::default());
        let state = batch.states.row(row);
        // One by one, so that the sums do not depend on the borders of batches.
        for ((sums, found), is_taken) in sums.fits.iter_mut().zip(&task.by_filter).zip(takes) {
            sums.rows += 1;
            if is_taken {
                sums.observed += 1;
                sums.not_updated += u64::from(!found.was_updated[at]);
            }
            sums.objectives.add_row(found, at);
            let score = found.log_score[at];
            if !score.is_nan() {
                sums.log_score += score;
                sums.scored += 1;
            }
            if let Some(state) = state {
                let own = at * found.width..(at + 1) * found.width;
                sums.squares += squared_distance(state, &found.mean[own.clone()]);
                sums.squares_decoded += squared_distance(state, &found.decoded[own]);
                sums.known += 1;
            }
        }
    }

    /// Adds the errors of a test row to the open trajectory. `at` is its place in the estimates.
    fn add_errors(&mut self, batch: &ObservationBatch, task: &Scored, row: usize, at: usize) {
        let Some(open) = &mut self.trajectory else {
            return;
        };
        let steps = &mut open.splits[place(Split::Test)].steps;
        steps.resize(task.by_filter.len(), Vec::new());
        for (steps, found) in steps.iter_mut().zip(&task.by_filter) {
            let own = at * found.width..(at + 1) * found.width;
            let errors = batch.states.row(row).map(|state| StepErrors {
                rows: 1,
                squares: squared_distance(state, &found.mean[own.clone()]),
                squares_decoded: squared_distance(state, &found.decoded[own]),
            });
            steps.push(errors.unwrap_or_default());
        }
    }

    /// Ends the last trajectory.
    fn finish(&mut self) -> Result<Ended> {
        let keys = self.last_keys();
        let mut ended = Vec::new();
        self.close(|sums| sums.rows, &mut ended);
        Ended::new(&keys, ended)
    }
}

/// The squared distance of two states.
fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The filtered rows of a batch.
fn kept(batch: &ObservationBatch, scoring: &Scoring<'_>) -> UInt32Array {
    let parts = batch.trajectories.iter();
    let pieces = parts.flat_map(|part| scoring.pieces(batch, part));
    let rows = pieces.flat_map(|piece| piece.rows.clone());
    UInt32Array::from_iter_values(rows.map(|row| row as u32))
}

/// Where the rows of a table go.
#[expect(clippy::large_enum_variant, reason = "there are at most three")]
enum Sink<'a> {
    /// To a staged table.
    Table(RowWriter<'a>),
    /// To memory.
    Memory(Vec<RecordBatch>),
}

impl Sink<'_> {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        match self {
            Sink::Table(writer) => writer.write(rows).await,
            Sink::Memory(all) => {
                all.push(rows);
                Ok(())
            }
        }
    }

    async fn abort(self) -> Result<()> {
        match self {
            Sink::Table(writer) => writer.abort().await,
            Sink::Memory(_) => Ok(()),
        }
    }
}

/// Makes the rows of the table `estimates`.
struct EstimateRows<'t> {
    fits: &'t [FilterColumns],
    schema: &'t SchemaRef,
    /// Numbers per state.
    width: usize,
    /// Whether states of rows can be known.
    has_state: bool,
}

impl EstimateRows<'_> {
    /// The rows of a batch. `kept` are those that were filtered.
    fn rows(
        &self,
        batch: &ObservationBatch,
        kept: &UInt32Array,
        scoring: &Scoring<'_>,
        scored: &[Scored],
    ) -> Result<RecordBatch> {
        let leading = batch.partition.iter().chain(&batch.key).chain(&batch.split);
        let mut columns = Vec::new();
        for column in leading {
            columns.push(if kept.len() == batch.len() {
                Arc::clone(column)
            } else {
                take(column, kept, None).map_err(bug)?
            });
        }
        if self.has_state {
            columns.push(self.known_states(batch, kept));
        }
        // Filtered rows of each task.
        let lengths: Vec<usize> = scored
            .iter()
            .map(|task| {
                let parts = batch.trajectories[task.trajectories.clone()].iter();
                let pieces = parts.flat_map(|part| scoring.pieces(batch, part));
                pieces.map(|piece| piece.rows.len()).sum()
            })
            .collect();
        for (at, fit) in self.fits.iter().enumerate() {
            let of = OfFilter {
                scored,
                lengths: &lengths,
                filter: at,
            };
            let nulls = of.nulls();
            for values in [
                (|own| &own.mean) as fn(&Estimates) -> &Vec<f64>,
                |own| &own.variance,
                |own| &own.decoded,
            ] {
                let width = fit.width(self.width);
                let values = of.all(width, 0.0, values);
                columns.push(lists(values, width, nulls.clone()));
            }
            columns.push(numbers(of.all(1, f64::NAN, |own| &own.log_score)));
            if fit.has_weights {
                columns.push(numbers(of.all(1, f64::NAN, |own| &own.weight_sum)));
                columns.push(numbers(of.all(1, f64::NAN, |own| &own.positive_share)));
            }
            let objectives: [fn(&Estimates) -> &Vec<f64>; 3] = [
                |own| &own.objective,
                |own| &own.objective_excess,
                |own| &own.supervision_distance,
            ];
            for values in &objectives[..fit.objectives.len()] {
                columns.push(numbers(of.all(1, f64::NAN, *values)));
            }
            let updated = of.all(1, false, |own| &own.was_updated);
            columns.push(Arc::new(BooleanArray::new(updated.into(), Some(nulls))));
        }
        typed(self.schema, columns)
    }

    /// The known states of the rows in `kept`, null where a state is not whole.
    fn known_states(&self, batch: &ObservationBatch, kept: &UInt32Array) -> ArrayRef {
        let states = || {
            kept.values()
                .iter()
                .map(|&row| batch.states.row(row as usize))
        };
        let mut values = Vec::with_capacity(kept.len() * self.width);
        for state in states() {
            match state {
                Some(state) => values.extend_from_slice(state),
                None => values.resize(values.len() + self.width, 0.0),
            }
        }
        let is_known = states().map(|state| state.is_some()).collect::<Vec<bool>>();
        lists(values, self.width, NullBuffer::from(is_known))
    }
}

/// Numbers, null where they are NaN.
fn numbers(values: Vec<f64>) -> ArrayRef {
    let known: Vec<bool> = values.iter().map(|value| !value.is_nan()).collect();
    Arc::new(Float64Array::new(
        values.into(),
        Some(NullBuffer::from(known)),
    ))
}

/// Makes the rows of the table `posteriors`.
struct PosteriorRows<'t> {
    tables: &'t RowTables<'t>,
    schema: &'t SchemaRef,
    /// The columns of the ids of the training rows, by partition.
    ids: &'t [Vec<ArrayRef>],
}

impl PosteriorRows<'_> {
    async fn push(
        &self,
        batch: &ObservationBatch,
        scoring: &Scoring<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut rows: Vec<(usize, u32)> = Vec::new();
        for part in &batch.trajectories {
            let pieces = scoring.pieces(batch, part);
            // Without a split, all rows are training rows and rows to filter.
            let own = pieces.filter(|piece| batch.split.is_none() || piece.split != Split::Train);
            let own = own.flat_map(|piece| piece.rows.clone());
            rows.extend(own.map(|row| (row, part.partition)));
        }
        let longest = self
            .ids
            .iter()
            .filter_map(|own| own.first())
            .map(|c| c.len());
        let at_once = (WEIGHTS / longest.max().unwrap_or(1).max(1)).max(1);
        for rows in rows.chunks(at_once) {
            let weights: Vec<Vec<(usize, Vec<f64>)>> = rows
                .par_iter()
                .map(|&(row, partition)| self.weights(batch, row, partition))
                .collect();
            for (&(row, partition), own) in rows.iter().zip(weights) {
                for (fit, weights) in own {
                    let rows = self.rows(batch, row, partition, fit, &weights)?;
                    sink.write(rows).await?;
                }
            }
        }
        Ok(())
    }

    /// The weights of a row by each fit that has weights.
    fn weights(
        &self,
        batch: &ObservationBatch,
        row: usize,
        partition: u32,
    ) -> Vec<(usize, Vec<f64>)> {
        let models = self.tables.models.get(partition as usize);
        let Some(models) = models.and_then(Option::as_ref) else {
            return Vec::new();
        };
        let d = batch.observations.width;
        let observation = &batch.observations.values[row * d..][..d];
        let kernels = models
            .iter()
            .enumerate()
            .filter(|(_, own)| matches!(own.model, FilterModel::KernelBayes(_)));
        let weights = kernels.map(|(at, own)| (at, own.model.posterior_weights(observation)));
        weights.collect()
    }

    /// The rows of one row of the input and one fit.
    fn rows(
        &self,
        batch: &ObservationBatch,
        row: usize,
        partition: u32,
        fit: usize,
        weights: &[f64],
    ) -> Result<RecordBatch> {
        let known = weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight != 0.0);
        let (at, values): (Vec<u32>, Vec<f64>) =
            known.map(|(at, weight)| (at as u32, *weight)).unzip();
        let own = UInt32Array::from(vec![row as u32; at.len()]);
        let mut columns = take_arrays(&batch.partition, &own, None).map_err(bug)?;
        columns.extend(take_arrays(&batch.key, &own, None).map_err(bug)?);
        let name = self.tables.fits[fit].name.as_str();
        columns.push(Arc::new(StringArray::from(vec![name; at.len()])));
        let at = UInt32Array::from(at);
        columns.extend(take_arrays(&self.ids[partition as usize], &at, None).map_err(bug)?);
        columns.push(Arc::new(Float64Array::from(values)));
        typed(self.schema, columns)
    }
}

/// Filters all rows and writes their tables.
///
/// # Errors
/// If the rows cannot be read, or the store fails.
pub(crate) async fn write(
    input: ObservationInput<'_>,
    tables: &RowTables<'_>,
    target: Target<'_>,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<RowsWritten> {
    let (writing, found) = filter(input, tables, Some(target), advance).await?;
    let tally = writing.tally;
    let mut written = BTreeMap::new();
    for (name, sink) in writing.sinks.into_iter() {
        if let Sink::Table(writer) = sink {
            written.insert(name, writer.finish().await?);
        }
    }
    Ok(tally.written(written, found))
}

/// The filtered rows of some trajectories.
pub(crate) struct Collected {
    /// Rows of the tables `estimates` and `posteriors`, in the order of their keys.
    pub(crate) tables: BTreeMap<&'static str, Vec<RecordBatch>>,
    /// The trajectories, in order.
    pub(crate) ended: Vec<Ended>,
    /// The time of the filters.
    pub(crate) seconds: FilterSeconds,
    /// What was found beside the rows.
    pub(crate) found: Found,
}

/// Filters all rows and keeps their tables in memory.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn collect(
    input: ObservationInput<'_>,
    tables: &RowTables<'_>,
) -> Result<Collected> {
    let (writing, found) = filter(input, tables, None, &|_| ()).await?;
    let sinks = writing.sinks.into_iter();
    let rows = sinks.filter_map(|(name, sink)| match sink {
        Sink::Memory(rows) => Some((name, rows)),
        Sink::Table(_) => None,
    });
    Ok(Collected {
        tables: rows.collect(),
        ended: writing.ended,
        seconds: writing.tally.seconds,
        found,
    })
}

/// Filters all rows into tables of a run, or into memory.
async fn filter<'t>(
    input: ObservationInput<'t>,
    tables: &'t RowTables<'t>,
    target: Option<Target<'t>>,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<(Writing<'t>, Found)> {
    loop {
        let mut rows = ObservationRows::start(input).await?;
        let mut writing = Writing::start(input, tables, target)?;
        let written = async {
            while let Some(batch) = rows.next().await? {
                let n = batch.len();
                writing.push(batch).await?;
                advance(n as u64);
            }
            let ended = writing.totals.finish()?;
            writing.end(ended).await?;
            Ok::<_, Stop>(())
        };
        match written.await {
            Ok(()) => return Ok((writing, rows.finish()?.0)),
            Err(stop) => {
                for sink in writing.sinks.into_values() {
                    sink.abort().await?;
                }
                again(stop, rows.must_read_again(), input.sort)?;
            }
        }
    }
}

/// One attempt to filter all rows.
struct Writing<'t> {
    tables: &'t RowTables<'t>,
    scoring: Scoring<'t>,
    totals: Totals,
    tally: Tally,
    has_split: bool,
    estimates: Option<EstimateRows<'t>>,
    /// By table.
    sinks: BTreeMap<&'static str, Sink<'t>>,
    /// The trajectories of rows that stay in memory.
    ended: Vec<Ended>,
    in_memory: bool,
}

impl<'t> Writing<'t> {
    fn start(
        input: ObservationInput<'t>,
        tables: &'t RowTables<'t>,
        target: Option<Target<'t>>,
    ) -> Result<Writing<'t>> {
        let posteriors = tables.posteriors.as_ref().map(|(schema, _)| schema);
        let mut sinks = BTreeMap::new();
        for (name, schema) in [
            (TRAJECTORIES, tables.trajectories.as_ref()),
            (ESTIMATES, tables.estimates.as_ref()),
            (POSTERIORS, posteriors),
        ] {
            let Some(schema) = schema else { continue };
            let sink = match target {
                Some(target) => Sink::Table(target.table(name, schema)?),
                // Trajectories that ended hold more than their table.
                None if name == TRAJECTORIES => continue,
                None => Sink::Memory(Vec::new()),
            };
            sinks.insert(name, sink);
        }
        let estimates = tables.estimates.as_ref().map(|schema| EstimateRows {
            fits: &tables.fits,
            schema,
            width: input.widths.state.unwrap_or(0),
            has_state: !input.layout.state.is_empty(),
        });
        Ok(Writing {
            tables,
            scoring: Scoring::new(&tables.models, tables.held_out),
            totals: Totals::default(),
            tally: Tally::default(),
            has_split: input.layout.split.is_some(),
            estimates,
            sinks,
            ended: Vec::new(),
            in_memory: target.is_none(),
        })
    }

    async fn push(&mut self, batch: ObservationBatch) -> Result<()> {
        let scored = self.scoring.score(&batch)?;
        let errors = self.tables.errors;
        self.tally.seconds.add(&batch, &scored);
        let ended = self.totals.push(&batch, &self.scoring, &scored, errors)?;
        self.end(ended).await?;
        let kept = kept(&batch, &self.scoring);
        if kept.is_empty() {
            return Ok(());
        }
        if let (Some(own), Some(sink)) = (&self.estimates, self.sinks.get_mut(ESTIMATES)) {
            let rows = own.rows(&batch, &kept, &self.scoring, &scored)?;
            sink.write(rows).await?;
        }
        if let (Some((schema, ids)), Some(sink)) =
            (&self.tables.posteriors, self.sinks.get_mut(POSTERIORS))
        {
            let tables = self.tables;
            let rows = PosteriorRows {
                tables,
                schema,
                ids,
            };
            rows.push(&batch, &self.scoring, sink).await?;
        }
        Ok(())
    }

    /// Takes trajectories that ended.
    async fn end(&mut self, ended: Ended) -> Result<()> {
        if ended.rows.is_empty() {
            return Ok(());
        }
        if self.in_memory {
            self.ended.push(ended);
            return Ok(());
        }
        self.tally.add(&ended.rows);
        if let (Some(schema), Some(sink)) =
            (&self.tables.trajectories, self.sinks.get_mut(TRAJECTORIES))
        {
            let rows = ended.table(schema, self.has_split, self.tables.fits.len())?;
            sink.write(rows).await?;
        }
        Ok(())
    }
}
