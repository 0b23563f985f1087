//! Filters all rows and writes the tables `trajectories`, `estimates` and `posteriors`.
//!
//! Memory holds the models, a few batches and one encoded row group per table.

use crate::error::{Error, Kind, Result};
use crate::methods::filter::model::{Estimates, FilterModel};
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::row_writer::RowWriter;
use crate::output::tables::filters::{
    ESTIMATES, FilterColumns, FilterScores, POSTERIORS, TRAJECTORIES,
};
use crate::read::rows::split::Split;
use crate::read::rows::stop::{Stop, bug};
use crate::read::sequences::ordered::{Found, again};
use crate::read::state_space::{StateSpaceBatch, StateSpaceInput, StateSpaceRows};
use crate::run::filters::scoring::{RowFilter, Scored, Scoring};
use arrow::array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, RecordBatch, StringArray,
    UInt32Array, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Field, SchemaRef};
use rayon::prelude::*;
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
    /// The columns of the fits.
    pub(crate) fits: &'a [FilterColumns],
    /// By partition. None if a partition has no model.
    pub(crate) models: Vec<Option<Vec<RowFilter<'a>>>>,
    /// Whether training rows are left out.
    pub(crate) held_out: bool,
    /// The output.
    pub(crate) output: &'a Output,
    /// The run.
    pub(crate) begun: &'a Begun,
}

/// What filtering all rows found.
pub(crate) struct RowsWritten {
    /// Rows by table.
    pub(crate) tables: BTreeMap<&'static str, u64>,
    /// By partition and fit.
    pub(crate) of_fits: BTreeMap<(u32, usize), FitSums>,
    /// Filtered rows by partition.
    pub(crate) rows: BTreeMap<u32, PartitionRows>,
    /// What was found beside the rows.
    pub(crate) found: Found,
}

/// The filtered rows of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartitionRows {
    /// Filtered rows.
    pub(crate) rows: u64,
    /// Rows without an observation.
    pub(crate) missing: u64,
    /// Trajectories with a filtered row.
    pub(crate) trajectories: u64,
}

/// The filtered rows of a fit, by split in the order of [`SPLITS`].
#[derive(Debug, Clone, Default)]
pub(crate) struct FitSums {
    splits: [Sums; 3],
}

/// Sums over rows that a filter filtered.
#[derive(Debug, Clone, Copy, Default)]
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
        }
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
#[derive(Debug, Clone, Default)]
struct SplitSums {
    rows: u64,
    missing: u64,
    /// By fit.
    fits: Vec<Sums>,
}

/// The trajectory that the next rows may continue.
struct Open {
    /// Its row in the keys.
    key: u32,
    partition: u32,
    /// By split, in the order of [`SPLITS`].
    splits: [SplitSums; 3],
}

/// The values of a split in the order of the rows of a trajectory.
const SPLITS: [(Split, Option<&str>); 3] = [
    (Split::Train, Some("train")),
    (Split::Test, Some("test")),
    (Split::Neither, None),
];

fn place(split: Split) -> usize {
    match split {
        Split::Train => 0,
        Split::Test => 1,
        Split::Neither => 2,
    }
}

/// Adds up the scores of trajectories.
struct Totals<'a, 't> {
    tables: &'t RowTables<'a>,
    has_split: bool,
    open: Option<Open>,
    /// The keys of the open trajectory: one row per column.
    pending: Vec<ArrayRef>,
    of_fits: BTreeMap<(u32, usize), FitSums>,
    rows: BTreeMap<u32, PartitionRows>,
}

/// A finished row of the table `trajectories`.
struct TrajectoryRow {
    key: u32,
    split: Option<&'static str>,
    sums: SplitSums,
}

impl Totals<'_, '_> {
    /// Adds a batch. Returns the rows of the trajectories that ended.
    fn push(
        &mut self,
        batch: &StateSpaceBatch,
        scoring: &Scoring<'_>,
        scored: &[Scored],
    ) -> Result<Option<RecordBatch>> {
        // Row 0 of the keys is that of the open trajectory.
        let offset = u32::from(self.open.is_some());
        let keys = match &self.open {
            Some(_) => {
                let columns = self.pending.iter().zip(&batch.trajectory_keys);
                let columns = columns.map(|(a, b)| concat(&[a.as_ref(), b.as_ref()]));
                columns.collect::<Result<Vec<_>, _>>().map_err(bug)?
            }
            None => batch.trajectory_keys.clone(),
        };
        let mut ended = Vec::new();
        for task in scored {
            let mut at = 0;
            for place in task.trajectories.clone() {
                let part = &batch.trajectories[place];
                if !part.continues || self.open.is_none() {
                    self.close(&mut ended);
                    self.open = Some(Open {
                        key: offset + place as u32,
                        partition: part.partition,
                        splits: Default::default(),
                    });
                }
                for piece in scoring.pieces(batch, part) {
                    for row in piece.rows.clone() {
                        self.add(batch, task, piece.split, row, at);
                        at += 1;
                    }
                }
            }
        }
        let rows = self.trajectories(&keys, ended)?;
        if let Some(open) = &mut self.open {
            let key = open.key as usize;
            self.pending = keys.iter().map(|column| column.slice(key, 1)).collect();
            open.key = 0;
        }
        Ok(rows)
    }

    /// Adds a row to the open trajectory. `at` is its place in the estimates.
    fn add(&mut self, batch: &StateSpaceBatch, task: &Scored, split: Split, row: usize, at: usize) {
        let Some(open) = &mut self.open else { return };
        let is_missing = batch.observations.row(row).is_none();
        let sums = &mut open.splits[place(split)];
        sums.rows += 1;
        sums.missing += u64::from(is_missing);
        sums.fits.resize(task.estimates.len(), Sums::default());
        let state = batch.states.row(row);
        // One by one, so that the sums do not depend on the borders of batches.
        for (sums, found) in sums.fits.iter_mut().zip(&task.estimates) {
            sums.rows += 1;
            if !is_missing {
                sums.observed += 1;
                sums.not_updated += u64::from(!found.was_updated[at]);
            }
            let score = found.log_score[at];
            if !score.is_nan() {
                sums.log_score += score;
                sums.scored += 1;
            }
            if let Some(state) = state {
                let own = at * found.width..(at + 1) * found.width;
                sums.squares += mean_square(state, &found.mean[own.clone()]);
                sums.squares_decoded += mean_square(state, &found.decoded[own]);
                sums.known += 1;
            }
        }
    }

    /// Ends the open trajectory.
    fn close(&mut self, ended: &mut Vec<TrajectoryRow>) {
        let Some(open) = self.open.take() else { return };
        let of_partition = self.rows.entry(open.partition).or_default();
        let mut is_any = false;
        for (at, ((_, text), sums)) in SPLITS.into_iter().zip(open.splits).enumerate() {
            if sums.rows == 0 {
                continue;
            }
            is_any = true;
            of_partition.rows += sums.rows;
            of_partition.missing += sums.missing;
            for (fit, own) in sums.fits.iter().enumerate() {
                let of_fit = self.of_fits.entry((open.partition, fit)).or_default();
                of_fit.splits[at].add(own);
            }
            if self.tables.trajectories.is_some() {
                ended.push(TrajectoryRow {
                    key: open.key,
                    split: text,
                    sums,
                });
            }
        }
        of_partition.trajectories += u64::from(is_any);
    }

    /// Rows of the table `trajectories`.
    fn trajectories(
        &self,
        keys: &[ArrayRef],
        ended: Vec<TrajectoryRow>,
    ) -> Result<Option<RecordBatch>> {
        let Some(schema) = self
            .tables
            .trajectories
            .as_ref()
            .filter(|_| !ended.is_empty())
        else {
            return Ok(None);
        };
        let at = UInt32Array::from_iter_values(ended.iter().map(|row| row.key));
        let taken = keys.iter().map(|column| take(column, &at, None));
        let mut columns: Vec<ArrayRef> = taken.collect::<Result<_, _>>().map_err(bug)?;
        if self.has_split {
            columns.push(Arc::new(
                ended.iter().map(|row| row.split).collect::<StringArray>(),
            ));
        }
        let counts = |value: fn(&SplitSums) -> u64| -> ArrayRef {
            let values = ended.iter().map(|row| value(&row.sums));
            Arc::new(UInt64Array::from_iter_values(values))
        };
        columns.push(counts(|sums| sums.rows));
        columns.push(counts(|sums| sums.missing));
        for fit in 0..self.tables.fits.len() {
            let numbers = |value: fn(&Sums) -> Option<f64>| -> ArrayRef {
                let values = ended
                    .iter()
                    .map(|row| row.sums.fits.get(fit).and_then(value));
                Arc::new(values.collect::<Float64Array>())
            };
            columns.push(numbers(|sums| (sums.scored > 0).then_some(sums.log_score)));
            columns.push(numbers(Sums::mean_log_score));
            let not_updated = ended.iter().map(|row| row.sums.fits.get(fit));
            let not_updated = not_updated.map(|sums| sums.map(|sums| sums.not_updated));
            columns.push(Arc::new(not_updated.collect::<UInt64Array>()));
            columns.push(numbers(Sums::mse));
            columns.push(numbers(Sums::mse_decoded));
        }
        typed(schema, columns).map(Some)
    }

    /// Ends the last trajectory.
    fn finish(&mut self) -> Result<Option<RecordBatch>> {
        let keys = std::mem::take(&mut self.pending);
        let mut ended = Vec::new();
        self.close(&mut ended);
        self.trajectories(&keys, ended)
    }
}

/// The mean of the squared differences of the numbers of two states.
fn mean_square(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>() / a.len().max(1) as f64
}

/// A batch with the types of a schema.
fn typed(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let fields = schema.fields().iter();
    let typed = columns.into_iter().zip(fields).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(column);
        }
        cast(&column, field.data_type()).map_err(bug)
    });
    let columns = typed.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|e| Error::with_source(Kind::Bug, "rows do not fit the columns of their table", e))
}

/// The filtered rows of a batch.
fn kept(batch: &StateSpaceBatch, scoring: &Scoring<'_>) -> UInt32Array {
    let parts = batch.trajectories.iter();
    let pieces = parts.flat_map(|part| scoring.pieces(batch, part));
    let rows = pieces.flat_map(|piece| piece.rows.clone());
    UInt32Array::from_iter_values(rows.map(|row| row as u32))
}

/// Makes the rows of the table `estimates`.
struct EstimateRows<'a, 't> {
    tables: &'t RowTables<'a>,
    schema: SchemaRef,
    /// Numbers per state.
    width: usize,
}

impl EstimateRows<'_, '_> {
    /// The rows of a batch. `kept` are those that were filtered.
    fn rows(
        &self,
        batch: &StateSpaceBatch,
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
        // Filtered rows of each task.
        let lengths: Vec<usize> = scored
            .iter()
            .map(|task| {
                let parts = batch.trajectories[task.trajectories.clone()].iter();
                let pieces = parts.flat_map(|part| scoring.pieces(batch, part));
                pieces.map(|piece| piece.rows.len()).sum()
            })
            .collect();
        for (at, fit) in self.tables.fits.iter().enumerate() {
            let of = Of {
                scored,
                lengths: &lengths,
                fit: at,
            };
            let nulls = of.nulls();
            for values in [
                (|own| &own.mean) as fn(&Estimates) -> &Vec<f64>,
                |own| &own.variance,
                |own| &own.decoded,
            ] {
                let values = of.all(self.width, 0.0, values);
                let item = Arc::new(Field::new("item", DataType::Float64, false));
                let values = Arc::new(Float64Array::from(values));
                columns.push(Arc::new(FixedSizeListArray::new(
                    item,
                    self.width as i32,
                    values,
                    Some(nulls.clone()),
                )));
            }
            columns.push(numbers(of.all(1, f64::NAN, |own| &own.log_score)));
            if fit.has_weights {
                columns.push(numbers(of.all(1, f64::NAN, |own| &own.weight_sum)));
                columns.push(numbers(of.all(1, f64::NAN, |own| &own.positive_share)));
            }
            let updated = of.all(1, false, |own| &own.was_updated);
            columns.push(Arc::new(BooleanArray::new(updated.into(), Some(nulls))));
        }
        typed(&self.schema, columns)
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

/// The estimates of a batch by one fit.
struct Of<'a> {
    scored: &'a [Scored],
    lengths: &'a [usize],
    fit: usize,
}

impl Of<'_> {
    /// The values of all rows, `fill` where a partition has no model.
    fn all<T: Clone>(&self, width: usize, fill: T, values: fn(&Estimates) -> &Vec<T>) -> Vec<T> {
        let n: usize = self.lengths.iter().sum();
        let mut all = Vec::with_capacity(n * width);
        for (task, n) in self.scored.iter().zip(self.lengths) {
            match task.estimates.get(self.fit) {
                Some(own) => all.extend_from_slice(values(own)),
                None => all.resize(all.len() + n * width, fill.clone()),
            }
        }
        all
    }

    fn nulls(&self) -> NullBuffer {
        let tasks = self.scored.iter().zip(self.lengths);
        let valid = tasks.flat_map(|(task, &n)| {
            let has_model = task.estimates.get(self.fit).is_some();
            std::iter::repeat_n(has_model, n)
        });
        NullBuffer::from(valid.collect::<Vec<bool>>())
    }
}

/// Writes the rows of the table `posteriors`.
struct PosteriorRows<'a, 't> {
    tables: &'t RowTables<'a>,
    schema: SchemaRef,
    /// The columns of the ids of the training rows, by partition.
    ids: &'t [Vec<ArrayRef>],
    writer: RowWriter<'t>,
}

impl PosteriorRows<'_, '_> {
    async fn push(&mut self, batch: &StateSpaceBatch, scoring: &Scoring<'_>) -> Result<()> {
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
                    self.writer.write(rows).await?;
                }
            }
        }
        Ok(())
    }

    /// The weights of a row by each fit that has weights.
    fn weights(
        &self,
        batch: &StateSpaceBatch,
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
        batch: &StateSpaceBatch,
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
        let of_row = batch.partition.iter().chain(&batch.key);
        let mut columns = of_row
            .map(|column| take(column, &own, None))
            .collect::<Result<Vec<ArrayRef>, _>>()
            .map_err(bug)?;
        let name = self.tables.fits[fit].name.as_str();
        columns.push(Arc::new(StringArray::from(vec![name; at.len()])));
        let at = UInt32Array::from(at);
        for column in &self.ids[partition as usize] {
            columns.push(take(column, &at, None).map_err(bug)?);
        }
        columns.push(Arc::new(Float64Array::from(values)));
        typed(&self.schema, columns)
    }
}

/// Filters all rows and writes their tables.
///
/// # Errors
/// If the rows cannot be read, or the store fails.
pub(crate) async fn write(
    input: StateSpaceInput<'_>,
    tables: &RowTables<'_>,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<RowsWritten> {
    loop {
        let mut rows = StateSpaceRows::start(input).await?;
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
            Ok(()) => return writing.finish(rows.finish()?.0).await,
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
    trajectories: Option<RowWriter<'t>>,
    estimates: Option<(EstimateRows<'a, 't>, RowWriter<'t>)>,
    posteriors: Option<PosteriorRows<'a, 't>>,
}

impl<'a, 't> Writing<'a, 't> {
    fn start(input: StateSpaceInput<'t>, tables: &'t RowTables<'a>) -> Result<Writing<'a, 't>> {
        let writer = |table: &str, schema: &SchemaRef| {
            let path = tables.output.staged(&tables.begun.run, table);
            RowWriter::create(tables.output, path, Arc::clone(schema))
        };
        let trajectories = tables.trajectories.as_ref();
        let trajectories = trajectories.map(|schema| writer(TRAJECTORIES, schema));
        let estimates = tables.estimates.as_ref().map(|schema| {
            let rows = EstimateRows {
                tables,
                schema: Arc::clone(schema),
                width: input.widths.state.unwrap_or(0),
            };
            writer(ESTIMATES, schema).map(|writer| (rows, writer))
        });
        let posteriors = tables.posteriors.as_ref().map(|(schema, ids)| {
            Ok::<_, Error>(PosteriorRows {
                tables,
                schema: Arc::clone(schema),
                ids,
                writer: writer(POSTERIORS, schema)?,
            })
        });
        Ok(Writing {
            scoring: Scoring::new(&tables.models, tables.held_out),
            totals: Totals {
                tables,
                has_split: input.layout.split.is_some(),
                open: None,
                pending: Vec::new(),
                of_fits: BTreeMap::new(),
                rows: BTreeMap::new(),
            },
            trajectories: trajectories.transpose()?,
            estimates: estimates.transpose()?,
            posteriors: posteriors.transpose()?,
        })
    }

    async fn push(&mut self, batch: StateSpaceBatch) -> Result<()> {
        let scored = self.scoring.score(&batch)?;
        let ended = self.totals.push(&batch, &self.scoring, &scored)?;
        if let (Some(rows), Some(writer)) = (ended, &mut self.trajectories) {
            writer.write(rows).await?;
        }
        let kept = kept(&batch, &self.scoring);
        if kept.is_empty() {
            return Ok(());
        }
        if let Some((rows, writer)) = &mut self.estimates {
            let rows = rows.rows(&batch, &kept, &self.scoring, &scored)?;
            writer.write(rows).await?;
        }
        if let Some(posteriors) = &mut self.posteriors {
            posteriors.push(&batch, &self.scoring).await?;
        }
        Ok(())
    }

    async fn finish(mut self, found: Found) -> Result<RowsWritten> {
        let mut tables = BTreeMap::new();
        let ended = self.totals.finish()?;
        if let Some(mut writer) = self.trajectories {
            if let Some(rows) = ended {
                writer.write(rows).await?;
            }
            tables.insert(TRAJECTORIES, writer.finish().await?);
        }
        if let Some((_, writer)) = self.estimates {
            tables.insert(ESTIMATES, writer.finish().await?);
        }
        if let Some(posteriors) = self.posteriors {
            tables.insert(POSTERIORS, posteriors.writer.finish().await?);
        }
        Ok(RowsWritten {
            tables,
            of_fits: self.totals.of_fits,
            rows: self.totals.rows,
            found,
        })
    }

    async fn abort(self) -> Result<()> {
        if let Some(writer) = self.trajectories {
            writer.abort().await?;
        }
        if let Some((_, writer)) = self.estimates {
            writer.abort().await?;
        }
        match self.posteriors {
            Some(posteriors) => posteriors.writer.abort().await,
            None => Ok(()),
        }
    }
}
