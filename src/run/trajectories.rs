//! Trajectories whose rows come in batches, and their rows in tables.

use crate::error::{Error, Kind, Result, counted};
use crate::memory;
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::row_writer::RowWriter;
use crate::read::rows::ordered::{Link, TrajectoryPart};
use crate::read::rows::split::Split;
use crate::read::rows::stop::bug;
use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat, take_arrays};
use arrow::datatypes::{DataType, Field, SchemaRef};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Formatter};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The values of a split in the order of the rows of a trajectory.
pub(crate) const SPLITS: [(Split, Option<&str>); 3] = [
    (Split::Train, Some("train")),
    (Split::Test, Some("test")),
    (Split::Neither, None),
];

/// The index of a split in [`SPLITS`].
pub(crate) fn place(split: Split) -> usize {
    match split {
        Split::Train => 0,
        Split::Test => 1,
        Split::Neither => 2,
    }
}

/// A trajectory, with sums over its rows.
pub(crate) struct Trajectory<S> {
    /// Its row in the keys.
    pub(crate) key: u32,
    pub(crate) partition: u32,
    /// By split, in the order of [`SPLITS`].
    pub(crate) splits: [S; 3],
}

/// The trajectory that the next rows may continue.
#[derive(Default)]
pub(crate) struct Open<S> {
    /// The trajectory. None before the first row, and when it has ended.
    pub(crate) trajectory: Option<Trajectory<S>>,
    /// Its keys: one row per column.
    pending: Vec<ArrayRef>,
}

impl<S: Default> Open<S> {
    /// The keys of the open trajectory, if there is one, and those of a batch. The second value is
    /// the row of the first key of the batch.
    ///
    /// # Errors
    /// Keys of other types, which is a bug.
    pub(crate) fn keys(&self, of_batch: &[ArrayRef]) -> Result<(Vec<ArrayRef>, u32)> {
        if self.trajectory.is_none() {
            return Ok((of_batch.to_vec(), 0));
        }
        let columns = self.pending.iter().zip(of_batch);
        let columns = columns.map(|(a, b)| concat(&[a.as_ref(), b.as_ref()]));
        Ok((columns.collect::<Result<_, _>>().map_err(bug)?, 1))
    }

    /// Opens the trajectory with the keys in row `key`.
    pub(crate) fn begin(&mut self, key: u32, partition: u32) {
        self.trajectory = Some(Trajectory {
            key,
            partition,
            splits: Default::default(),
        });
    }

    /// Ends the open trajectory. `rows` gives the number of rows that sums are over.
    pub(crate) fn close(&mut self, rows: impl Fn(&S) -> u64, ended: &mut Vec<EndedRow<S>>) {
        let Some(open) = self.trajectory.take() else {
            return;
        };
        let mut begins = true;
        for (split, sums) in open.splits.into_iter().enumerate() {
            if rows(&sums) > 0 {
                ended.push(EndedRow {
                    key: open.key,
                    partition: open.partition,
                    begins: std::mem::take(&mut begins),
                    split,
                    sums,
                });
            }
        }
    }

    /// Keeps the keys of the open trajectory for the next batch.
    pub(crate) fn keep(&mut self, keys: &[ArrayRef]) {
        if let Some(own) = &mut self.trajectory {
            let key = std::mem::take(&mut own.key) as usize;
            self.pending = keys.iter().map(|column| column.slice(key, 1)).collect();
        }
    }

    /// The keys of the last trajectory, after all batches.
    pub(crate) fn last_keys(&mut self) -> Vec<ArrayRef> {
        std::mem::take(&mut self.pending)
    }
}

/// The rows of a trajectory that ended and have one split.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndedRow<S> {
    /// The row of its keys.
    pub(crate) key: u32,
    /// The partition of the trajectory.
    pub(crate) partition: u32,
    /// Whether it is the first one of its trajectory.
    pub(crate) begins: bool,
    /// In the order of [`SPLITS`].
    pub(crate) split: usize,
    /// Sums over the rows.
    pub(crate) sums: S,
}

/// Trajectories that ended.
pub(crate) struct Ended<S> {
    /// Partition and trajectory columns, with one row per element of `rows`.
    pub(crate) keys: Vec<ArrayRef>,
    /// Up to three rows per trajectory.
    pub(crate) rows: Vec<EndedRow<S>>,
}

impl<S> Ended<S> {
    /// The trajectories of some rows, given the keys of all trajectories.
    ///
    /// # Errors
    /// If a row has no key, which is a bug.
    pub(crate) fn new(keys: &[ArrayRef], rows: Vec<EndedRow<S>>) -> Result<Ended<S>> {
        let at = UInt32Array::from_iter_values(rows.iter().map(|row| row.key));
        let keys = take_arrays(keys, &at, None).map_err(bug)?;
        Ok(Ended { keys, rows })
    }

    /// The leading columns of the table `trajectories`: keys, the split if rows have one, and
    /// numbers of rows.
    pub(crate) fn leading(&self, has_split: bool, numbers: [fn(&S) -> u64; 2]) -> Vec<ArrayRef> {
        let mut columns = self.keys.clone();
        if has_split {
            let splits = self.rows.iter().map(|row| SPLITS[row.split].1);
            columns.push(Arc::new(splits.collect::<StringArray>()));
        }
        for number in numbers {
            let values = self.rows.iter().map(|row| number(&row.sums));
            columns.push(Arc::new(UInt64Array::from_iter_values(values)));
        }
        columns
    }
}

/// What filters found in some trajectories of a batch.
pub(crate) struct Scored<T> {
    /// The trajectories in the batch, all of one partition.
    pub(crate) trajectories: Range<usize>,
    /// By filter, in the order of the filtered rows. Empty without a model.
    pub(crate) by_filter: Vec<T>,
    /// The time of each filter.
    pub(crate) seconds: Vec<f64>,
}

/// What one filter found in the rows of a batch.
pub(crate) struct OfFilter<'a, T> {
    pub(crate) scored: &'a [Scored<T>],
    /// Filtered rows of each task.
    pub(crate) lengths: &'a [usize],
    pub(crate) filter: usize,
}

impl<T> OfFilter<'_, T> {
    /// The values of all rows, `fill` where a partition has no model.
    pub(crate) fn all<V: Clone>(&self, width: usize, fill: V, values: fn(&T) -> &Vec<V>) -> Vec<V> {
        let n: usize = self.lengths.iter().sum();
        let mut all = Vec::with_capacity(n * width);
        for (task, n) in self.scored.iter().zip(self.lengths) {
            match task.by_filter.get(self.filter) {
                Some(own) => all.extend_from_slice(values(own)),
                None => all.resize(all.len() + n * width, fill.clone()),
            }
        }
        all
    }

    /// The rows of partitions with a model.
    pub(crate) fn nulls(&self) -> NullBuffer {
        let tasks = self.scored.iter().zip(self.lengths);
        let valid = tasks.flat_map(|(task, &n)| {
            let has_model = task.by_filter.get(self.filter).is_some();
            std::iter::repeat_n(has_model, n)
        });
        NullBuffer::from(valid.collect::<Vec<bool>>())
    }
}

/// How filters came over the gaps of some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GapCounts {
    /// Steps without a row that were predicted.
    pub predicted_rows: u64,
    /// Sequences that began again within a trajectory, because a gap was too long or no whole
    /// number of steps.
    pub restarts: u64,
}

impl GapCounts {
    /// Counts what comes before the first row of a piece.
    pub(crate) fn add_link(&mut self, link: Link) {
        match link {
            Link::First => {}
            Link::Again => self.restarts += 1,
            Link::After(steps) => self.predicted_rows += steps,
        }
    }

    pub(crate) fn add(&mut self, other: &GapCounts) {
        self.predicted_rows += other.predicted_rows;
        self.restarts += other.restarts;
    }

    /// Writes the line of the summary.
    pub(crate) fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let steps = counted(grouped(self.predicted_rows as f64), "step");
        let restarts = counted(grouped(self.restarts as f64), "time");
        writeln!(
            f,
            "  predicted through {steps} without a row; began again {restarts} within trajectories"
        )
    }
}

/// Neighbouring trajectories of one partition together. A task has at most `most` rows, unless a
/// trajectory has more.
pub(crate) fn tasks(trajectories: &[TrajectoryPart], most: usize) -> Vec<Range<usize>> {
    let mut tasks: Vec<Range<usize>> = Vec::new();
    let mut rows = 0;
    for (at, part) in trajectories.iter().enumerate() {
        let n = part.rows.len();
        match tasks.last_mut() {
            Some(task)
                if trajectories[task.start].partition == part.partition && rows + n <= most =>
            {
                task.end = at + 1;
                rows += n;
            }
            _ => {
                tasks.push(at..at + 1);
                rows = n;
            }
        }
    }
    tasks
}

/// Filters the trajectories of tasks with each of their filters, in parallel. `filters` is the
/// number of filters of a task. `filtered` gives what one of them finds, and its state after the
/// last row. Also returns the states at the end of the last task, if there is one.
pub(crate) fn score_tasks<T: Send, S: Send>(
    tasks: Vec<Range<usize>>,
    filters: impl Fn(&Range<usize>) -> usize,
    filtered: impl Fn(&Range<usize>, usize) -> (T, Option<S>) + Sync,
) -> (Vec<Scored<T>>, Option<Vec<Option<S>>>) {
    let numbers: Vec<usize> = tasks.iter().map(filters).collect();
    let units = tasks.iter().zip(&numbers);
    let units = units.flat_map(|(task, &n)| (0..n).map(move |filter| (task, filter)));
    let units: Vec<(&Range<usize>, usize)> = units.collect();
    let found: Vec<((T, Option<S>), f64)> = units
        .into_par_iter()
        .map(|(task, filter)| {
            memory::wait_for_room();
            let start = Instant::now();
            let found = filtered(task, filter);
            (found, start.elapsed().as_secs_f64())
        })
        .collect();
    let mut found = found.into_iter();
    let (mut all, mut carried) = (Vec::with_capacity(tasks.len()), None);
    for (trajectories, n) in tasks.into_iter().zip(numbers) {
        let (of_filters, seconds): (Vec<(T, Option<S>)>, Vec<f64>) = found.by_ref().take(n).unzip();
        let (by_filter, states): (Vec<T>, Vec<Option<S>>) = of_filters.into_iter().unzip();
        carried = Some(states);
        all.push(Scored {
            trajectories,
            by_filter,
            seconds,
        });
    }
    (all, carried)
}

/// The run whose tables are written.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) output: &'a Output,
    /// The run.
    pub(crate) begun: &'a Begun,
}

impl<'a> Target<'a> {
    /// Starts to write a table.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn table(&self, name: &str, schema: &SchemaRef) -> Result<RowWriter<'a>> {
        let path = self.output.staged(&self.begun.run, name);
        RowWriter::create(self.output, path, Arc::clone(schema))
    }
}

/// A batch with the types of a schema.
///
/// # Errors
/// Columns that are not those of the schema, which is a bug.
pub(crate) fn typed(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let fields = schema.fields();
    if columns.len() != fields.len() {
        let what = format!("{} columns for {} fields", columns.len(), fields.len());
        return Err(Error::bug(what));
    }
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

/// A list of `width` numbers per row.
pub(crate) fn lists(values: Vec<f64>, width: usize, nulls: NullBuffer) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let (width, values) = (width as i32, Arc::new(Float64Array::from(values)));
    Arc::new(FixedSizeListArray::new(item, width, values, Some(nulls)))
}
