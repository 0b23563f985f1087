//! Rows → states and observations, in the order of partition, trajectory and time.
//!
//! In: the rows of a query with the columns of a [`ObservationLayout`]. Out: batches of
//! [`ObservationBatch`], or the training rows of each partition as `Observations`.
//!
//! - `layout` names the columns.
//! - `training` collects the training rows.

pub mod layout;
pub(crate) mod training;

use crate::error::Result;
use crate::read::lake::Lake;
use crate::read::observations::layout::{ObservationKey, ObservationLayout};
use crate::read::rows::coordinates::{Coordinates, Fault, LARGEST, coordinates};
use crate::read::rows::ordered::{
    Found, OrderRoles, Ordered, OrderedBatches, Piece, TrajectoryPart, again, split_text,
};
use crate::read::rows::states::describe;
use crate::read::rows::stop::Stop;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows per batch, at most.
const BATCH: usize = 1 << 16;

/// Rows per batch, at least, so that the rows of a batch keep several threads busy.
const LEAST: usize = 1 << 8;

/// Bytes per batch, unless that is less than [`LEAST`] rows.
const BATCH_BYTES: usize = 32 << 20;

/// A batch of rows.
pub(crate) struct ObservationBatch {
    /// The partition columns.
    pub(crate) partition: Vec<ArrayRef>,
    /// The trajectory columns and the time, or the columns of the id.
    pub(crate) key: Vec<ArrayRef>,
    /// The column `split`, as text, if there is one.
    pub(crate) split: Option<ArrayRef>,
    /// The states.
    pub(crate) states: NumberRows,
    /// The observations.
    pub(crate) observations: NumberRows,
    /// The trajectories, in order.
    pub(crate) trajectories: Vec<TrajectoryPart>,
    /// Partition and trajectory columns, with one row per trajectory.
    pub(crate) trajectory_keys: Vec<ArrayRef>,
    /// The sequences, in order. Rows without a state or an observation have a place in them.
    pub(crate) pieces: Vec<Piece>,
}

impl ObservationBatch {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.observations.faults.len()
    }
}

/// The states or the observations of some rows.
pub(crate) struct NumberRows {
    /// Numbers per row. 0 if no row so far has a list, or there are no columns.
    pub(crate) width: usize,
    /// n × width, row-major. Numbers that are null, infinite or too large are NaN.
    pub(crate) values: Vec<f64>,
    /// The first number of each row that is wrong.
    pub(crate) faults: Vec<Option<Fault>>,
}

impl NumberRows {
    /// The numbers of a row. None if one of them is null, NaN, infinite or too large.
    pub(crate) fn row(&self, row: usize) -> Option<&[f64]> {
        let is_whole = self.width > 0 && self.faults[row].is_none();
        is_whole.then(|| &self.values[row * self.width..][..self.width])
    }

    /// The numbers of a row, NaN where there is none. Empty if no row so far has a list.
    pub(crate) fn numbers(&self, row: usize) -> &[f64] {
        &self.values[row * self.width..][..self.width]
    }

    /// Whether a row has a number.
    pub(crate) fn has_number(&self, row: usize) -> bool {
        self.numbers(row).iter().any(|x| x.is_finite())
    }
}

/// Numbers per state and per observation, if they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Widths {
    /// Numbers per state.
    pub(crate) state: Option<usize>,
    /// Numbers per observation.
    pub(crate) observation: Option<usize>,
}

/// The rows of a query.
#[derive(Clone, Copy)]
pub(crate) struct ObservationInput<'a> {
    /// The tables of the query.
    pub(crate) lake: &'a Lake,
    /// The query, with the columns of the layout.
    pub(crate) frame: &'a DataFrame,
    /// The roles of the columns.
    pub(crate) layout: &'a Arc<ObservationLayout>,
    /// The partitions with known numbers, one array per partition column.
    pub(crate) partitions: &'a [ArrayRef],
    /// The widths that an earlier pass or a model has found.
    pub(crate) widths: Widths,
    /// Set by the first pass that finds rows out of order; later passes then sort.
    pub(crate) sort: &'a AtomicBool,
}

/// Reads rows batch by batch.
pub(crate) struct ObservationRows<'a> {
    batches: OrderedBatches<'a>,
    reader: Reader,
}

impl<'a> ObservationRows<'a> {
    /// Starts to read rows that are in order, or that are sorted first.
    ///
    /// # Errors
    /// If the query cannot start, or a column has a type that cannot be a key.
    pub(crate) async fn start(input: ObservationInput<'a>) -> Result<ObservationRows<'a>> {
        let ObservationInput { lake, frame, .. } = input;
        let sort = input.sort.load(Ordering::Relaxed);
        let by = sort.then(|| input.layout.order_columns());
        let (frame, resolver) = (frame.clone(), input.layout.resolver(sort));
        Ok(ObservationRows {
            reader: Reader::new(input, sort)?,
            batches: OrderedBatches::start(lake, frame, by, resolver, batch_rows).await?,
        })
    }

    /// The next rows. None after the last row.
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row comes before an earlier one. If
    /// [`must_read_again`](Self::must_read_again) after another error, the caller starts again.
    pub(crate) async fn next(&mut self) -> Result<Option<ObservationBatch>, Stop> {
        let rows = self.batches.next().await?;
        rows.map(|rows| self.reader.read(&rows)).transpose()
    }

    /// Whether reading failed because a row continues past the end of a part of its file.
    pub(crate) fn must_read_again(&self) -> bool {
        self.batches.must_read_again()
    }

    /// What was found beside the rows, after the last row, and the widths.
    ///
    /// # Errors
    /// If the partitions cannot be made columns.
    pub(crate) fn finish(self) -> Result<(Found, Widths)> {
        let mut found = self.reader.found;
        self.batches.add_left_out(&mut found);
        self.reader.ordered.finish(&mut found)?;
        Ok((found, self.reader.widths))
    }
}

/// Rows per batch, by the size of the first batch. Borders of batches change no result.
fn batch_rows(first: &RecordBatch) -> usize {
    let columns = first.columns().iter();
    let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    let row = bytes.sum::<usize>() / first.num_rows().max(1);
    (BATCH_BYTES / row.max(1)).clamp(LEAST, BATCH)
}

/// Reads all rows into a receiver. `start` makes a new receiver for each attempt: rows that are
/// not in order are sorted and read again.
///
/// # Errors
/// Rows that cannot be read, or an error of `push`.
pub(crate) async fn read<R>(
    input: ObservationInput<'_>,
    start: impl Fn() -> Result<R>,
    push: impl Fn(&mut R, ObservationBatch) -> Result<()>,
) -> Result<(R, Found, Widths)> {
    loop {
        let mut rows = ObservationRows::start(input).await?;
        let mut receiver = start()?;
        let all = async {
            while let Some(batch) = rows.next().await? {
                push(&mut receiver, batch)?;
            }
            Ok::<_, Stop>(())
        };
        match all.await {
            Ok(()) => {
                let (found, widths) = rows.finish()?;
                return Ok((receiver, found, widths));
            }
            Err(stop) => again(stop, rows.must_read_again(), input.sort)?,
        }
    }
}

/// Makes states and observations of batches.
struct Reader {
    layout: Arc<ObservationLayout>,
    roles: OrderRoles,
    ordered: Ordered,
    widths: Widths,
    found: Found,
}

impl Reader {
    fn new(input: ObservationInput<'_>, is_sorted: bool) -> Result<Reader> {
        let layout = Arc::new(input.layout.resolved());
        let (n_order, fields) = (layout.n_order(), layout.fields());
        let step = match &layout.key {
            ObservationKey::Trajectories { step, .. } => Some(*step),
            ObservationKey::Rows { .. } => None,
        };
        let roles = OrderRoles {
            n_partition: layout.partition.len(),
            n_trajectory: n_order - usize::from(step.is_some()),
            step,
            rules: layout.rules().cloned().unwrap_or_default(),
            split: layout.split.as_ref().map(|_| fields.len() - 1),
        };
        Ok(Reader {
            ordered: Ordered::new(fields, roles.clone(), is_sorted, input.partitions)?,
            layout,
            roles,
            widths: input.widths,
            found: Found::default(),
        })
    }

    /// The states and observations of the next rows.
    fn read(&mut self, batch: &RecordBatch) -> Result<ObservationBatch, Stop> {
        self.found.rows += batch.num_rows() as u64;
        let mut rows = self.ordered.read(batch, &mut self.found)?;
        let (n_partition, n_order) = (self.roles.n_partition, self.roles.n_order());
        let first = n_order + self.layout.state.len();
        let columns = &rows.columns;
        let place = |row: usize| format!("row {}", describe(&columns[n_partition..n_order], row));
        let of = |fields: &[Field], own: &[ArrayRef], width: &mut Option<usize>| {
            numbers(fields, own, width, rows.len(), place)
        };
        let state = &self.layout.state;
        let states = of(state, &columns[n_order..first], &mut self.widths.state)?;
        let observation = &self.layout.observation;
        let own = &columns[first..first + observation.len()];
        let observations = of(observation, own, &mut self.widths.observation)?;
        let placed = self.ordered.placed(&rows, |_| true);
        let split = split_text(&rows.columns, self.roles.split)?;
        let mut columns = std::mem::take(&mut rows.columns);
        columns.truncate(n_order);
        Ok(ObservationBatch {
            key: columns.split_off(n_partition),
            partition: columns,
            split,
            states,
            observations,
            trajectories: placed.trajectories,
            trajectory_keys: rows.trajectory_keys,
            pieces: placed.pieces,
        })
    }
}

/// The numbers of `n` rows. Numbers with a fault become NaN.
fn numbers(
    fields: &[Field],
    columns: &[ArrayRef],
    width: &mut Option<usize>,
    n: usize,
    place: impl Fn(usize) -> String,
) -> Result<NumberRows, Stop> {
    if fields.is_empty() {
        return Ok(NumberRows {
            width: 0,
            values: Vec::new(),
            faults: vec![None; n],
        });
    }
    let Coordinates { mut values, faults } =
        coordinates(fields, columns, width, |_| LARGEST, place)?;
    let width = width.unwrap_or(0);
    for (row, _) in faults.iter().enumerate().filter(|(_, f)| f.is_some()) {
        for value in &mut values[row * width..][..width] {
            if value.abs() > LARGEST {
                *value = f64::NAN;
            }
        }
    }
    Ok(NumberRows {
        width,
        values,
        faults,
    })
}
