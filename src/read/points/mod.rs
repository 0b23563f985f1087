//! Rows → points, in the order of their keys.
//!
//! In: the rows of a query with the columns of a [`PointLayout`]. Out: batches
//! of points for a [`Receiver`], ordered by partition and key. Rows in another order are sorted
//! first, so neither the order of rows nor that of files changes a result.
//!
//! - `layout` names the columns.
//! - `coordinates` reads the numbers of a batch.
//! - `survey` makes the first pass: how many rows there are, where they are, and a sample of them.
//! - `pairs` makes blocks of rows with the pairs at each lag.
//! - `sample` keeps some rows or pairs.

pub(crate) mod layout;
pub(crate) mod pairs;
pub mod sample;
pub(crate) mod survey;

use crate::error::Result;
use crate::math::seed;
use crate::read::lake::Lake;
use crate::read::lake::rounding::selected;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::rows::amounts::weights;
use crate::read::rows::coordinates::{Coordinates, FaultKind, LargeValue, coordinates, sound};
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::Keys;
use crate::read::rows::ordered::{repeated_id, repeated_time};
use crate::read::rows::ranges::{drop_null_rows, first_rows, partition_ids, ranges};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::ties::{Resolver, without_order};
use crate::read::rows::time;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The points of a batch of rows, without the rows that were dropped.
pub(crate) struct PointBatch {
    /// The partition columns.
    pub(crate) partition: Vec<ArrayRef>,
    /// The columns of the key.
    pub(crate) key: Vec<ArrayRef>,
    /// Runs of rows of one partition, with the number of the partition.
    pub(crate) partitions: Vec<(Range<usize>, u32)>,
    /// Runs of rows of one trajectory, or of one partition for rows without time.
    pub(crate) trajectories: Vec<Range<usize>>,
    /// Hashes of the keys of the rows, which depend on nothing else.
    pub(crate) hashes: Vec<u64>,
    /// Hashes of the trajectories of the rows.
    pub(crate) trajectory_hashes: Vec<u64>,
    /// The ticks of the rows; empty for rows without time.
    pub(crate) times: Vec<i64>,
    /// d.
    pub(crate) dimension: usize,
    /// n × d, row-major, in the units of the input.
    pub(crate) coordinates: Vec<f64>,
    /// n weights, if the rows have weights. A weight may be 0.
    pub(crate) weights: Option<Vec<f64>>,
    /// The known sets of the rows, by column of [`PointLayout::given`].
    pub(crate) given: Vec<ArrayRef>,
    /// Whether the first row continues the trajectory of the last row of the batch before.
    pub(crate) continues: bool,
}

impl PointBatch {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The number of the partition of a row.
    pub(crate) fn partition_of(&self, row: usize) -> u32 {
        let at = self.partitions.partition_point(|(rows, _)| rows.end <= row);
        self.partitions
            .get(at)
            .map_or(0, |(_, partition)| *partition)
    }
}

/// Receives the points of a query in the order of their keys.
pub(crate) trait Receiver: Send + 'static {
    /// Takes the next points.
    fn push(&mut self, layout: &PointLayout, batch: &PointBatch) -> Result<(), Stop>;
}

/// What reading found beside the points.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The rows of the query.
    pub(crate) rows: u64,
    /// Rows that are no points, by reason.
    pub(crate) dropped: Dropped,
    /// Gaps that end a trajectory.
    pub(crate) gaps: u64,
    /// The largest number that is too large.
    pub(crate) large: Option<LargeValue>,
    /// The partitions in their order: one array per partition column.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub(crate) partitions: Vec<ArrayRef>,
    /// d; none if there is no point.
    pub(crate) dimension: Option<usize>,
    /// Whether the rows had to be sorted.
    pub(crate) sorted: bool,
}

/// The rows of a batch that are points.
struct SoundRows {
    /// The columns that order the rows.
    order: Vec<ArrayRef>,
    /// The number of rows.
    n: usize,
    /// n × d, row-major.
    coordinates: Vec<f64>,
    weights: Option<Vec<f64>>,
    given: Vec<ArrayRef>,
}

impl SoundRows {
    /// Keeps some of the rows, with d coordinates each.
    fn keep(&mut self, kept: Vec<u32>, d: usize) -> Result<()> {
        self.n = kept.len();
        let rows = kept.iter().map(|&row| row as usize);
        let values = rows
            .clone()
            .flat_map(|row| &self.coordinates[row * d..][..d]);
        self.coordinates = values.copied().collect();
        if let Some(weights) = &mut self.weights {
            *weights = rows.map(|row| weights[row]).collect();
        }
        let kept = UInt32Array::from(kept);
        for column in self.order.iter_mut().chain(&mut self.given) {
            *column = take(column, &kept, None).map_err(bug)?;
        }
        Ok(())
    }
}

/// Makes points of batches.
pub(crate) struct Reader {
    /// The columns of rows whose ties are resolved.
    layout: Arc<PointLayout>,
    /// Leaves out rows, if several rows may have one time.
    resolver: Option<Resolver>,
    /// Makes sortable bytes of the columns that order the rows.
    converter: RowConverter,
    partitions: Option<Keys>,
    last: Option<OwnedRow>,
    /// The hash of the last trajectory.
    last_trajectory: Option<u64>,
    /// The hash of the trajectory of the last row, and its time, if gaps are counted.
    last_time: Option<(u64, i64)>,
    found: Found,
    /// Whether the rows are sorted.
    sorted: bool,
}

impl Reader {
    /// A reader of rows that are `sorted`, or believed to be in order. `known` are the partitions
    /// of the whole run, one array per column; a later partition gets the next number.
    pub(crate) fn new(
        layout: &Arc<PointLayout>,
        sorted: bool,
        known: Option<&[ArrayRef]>,
    ) -> Result<Reader> {
        let resolver = layout.resolver(sorted);
        let layout = match resolver {
            Some(_) => Arc::new(layout.resolved()),
            None => Arc::clone(layout),
        };
        let fields = layout.fields();
        let order = fields[..layout.n_order()].iter();
        let order = order.map(|field| SortField::new(field.data_type().clone()));
        let partitions = Keys::of_fields(&layout.partition, known.unwrap_or_default())?;
        Ok(Reader {
            layout,
            resolver,
            converter: RowConverter::new(order.collect()).map_err(bug)?,
            partitions,
            last: None,
            last_trajectory: None,
            last_time: None,
            found: Found::default(),
            sorted,
        })
    }

    /// The points of the next rows, in one batch unless rows may be left out.
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row comes before an earlier one.
    pub(crate) fn read(&mut self, batch: &RecordBatch) -> Result<Vec<PointBatch>, Stop> {
        let Some(resolver) = &mut self.resolver else {
            return Ok(vec![self.read_resolved(batch)?]);
        };
        let batches = resolver.push(batch)?.into_iter();
        let points = batches.map(|rows| self.read_resolved(&without_order(&rows)?));
        points.collect()
    }

    /// The points of rows that were held back, after the last batch.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn rest(&mut self) -> Result<Option<PointBatch>, Stop> {
        let Some(mut resolver) = self.resolver.take() else {
            return Ok(None);
        };
        self.found.rows += resolver.n_left_out();
        self.found.dropped.merge(&resolver.left_out);
        let rest = resolver.finish()?;
        let points = rest.map(|rows| self.read_resolved(&without_order(&rows)?));
        points.transpose()
    }

    fn read_resolved(&mut self, batch: &RecordBatch) -> Result<PointBatch, Stop> {
        let layout = Arc::clone(&self.layout);
        self.found.rows += batch.num_rows() as u64;
        let columns = typed_columns(batch, &layout.fields()).map_err(bug)?;
        let SoundRows {
            order: mut columns,
            n,
            coordinates,
            weights,
            given,
        } = self.sound_rows(columns)?;
        let (n_partition, n_order) = (layout.partition.len(), layout.n_order());
        let is_pairs = matches!(layout.roles, PointRoles::Pairs { .. });
        let (hashes, trajectory_hashes) = self.order(&columns, n)?;
        let by_partition = &columns[..n_partition];
        let runs = ranges(by_partition, n)?;
        let numbers = partition_ids(&mut self.partitions, by_partition, &runs)?;
        let by_trajectory = if is_pairs { n_order - 1 } else { n_partition };
        let times = if is_pairs && n > 0 {
            let name = layout.key.last().map_or("time", |field| field.name());
            time::ticks(&columns[n_order - 1], name)?.to_vec()
        } else {
            Vec::new()
        };
        self.count_gaps(&trajectory_hashes, &times);
        let continues = n > 0 && self.last_trajectory == trajectory_hashes.first().copied();
        self.last_trajectory = trajectory_hashes.last().copied().or(self.last_trajectory);
        Ok(PointBatch {
            partitions: runs
                .into_iter()
                .zip(numbers)
                .filter(|(run, _)| !run.is_empty())
                .collect(),
            trajectories: match n {
                0 => Vec::new(),
                n => ranges(&columns[..by_trajectory], n)?,
            },
            key: columns.split_off(n_partition),
            partition: columns,
            hashes,
            trajectory_hashes,
            times,
            dimension: self.found.dimension.unwrap_or(0),
            coordinates,
            weights,
            given,
            continues,
        })
    }

    /// Counts the gaps before rows that are in order.
    fn count_gaps(&mut self, trajectories: &[u64], times: &[i64]) {
        let Some(rules) = self.layout.rules().filter(|rules| rules.max_gap.is_some()) else {
            return;
        };
        let rows = trajectories.iter().copied().zip(times.iter().copied());
        for (trajectory, time) in rows {
            let before = self.last_time.replace((trajectory, time));
            let before = before.filter(|(of, _)| *of == trajectory);
            let is_gap = before.is_some_and(|(_, before)| rules.ends_between(before, time));
            self.found.gaps += u64::from(is_gap);
        }
    }

    /// The rows that are points. Notes the others, and the largest number that is too large.
    fn sound_rows(&mut self, mut columns: Vec<ArrayRef>) -> Result<SoundRows, Stop> {
        let layout = &self.layout;
        let (n_partition, n_order) = (layout.partition.len(), layout.n_order());
        let is_pairs = matches!(layout.roles, PointRoles::Pairs { .. });
        let kind = |at: usize| match at {
            at if at < n_partition => "partition",
            _ if !is_pairs => "id",
            at if at + 1 == n_order => "time",
            _ => "trajectory",
        };
        let dropped = &mut self.found.dropped;
        drop_null_rows(&mut columns, n_order, kind, dropped)?;
        let weight_at = n_order + layout.coordinates.len();
        let place = |at: usize| describe(&columns[n_partition..n_order], at);
        let Coordinates { values, faults } = coordinates(
            &layout.coordinates,
            &columns[n_order..weight_at],
            &mut self.found.dimension,
            |column| layout.limit(column),
            place,
        )?;
        for (row, fault) in faults.iter().enumerate() {
            if let Some(fault) = fault.filter(|fault| fault.kind == FaultKind::Large) {
                let large = LargeValue {
                    value: fault.value,
                    column: layout.coordinates[fault.column].name().clone(),
                    key: place(row),
                };
                LargeValue::keep(&mut self.found.large, large);
            }
        }
        let weights = match &layout.weight {
            Some(field) => Some(weights(&columns[weight_at], field.name(), place, dropped)?),
            None => None,
        };
        let first_given = weight_at + usize::from(layout.weight.is_some());
        let mut rows = SoundRows {
            given: columns.split_off(first_given),
            n: faults.len(),
            coordinates: values,
            weights,
            order: columns,
        };
        rows.order.truncate(n_order);
        let kept = sound(&faults, dropped);
        if kept.len() < faults.len() {
            rows.keep(kept, self.found.dimension.unwrap_or(0))?;
        }
        Ok(rows)
    }

    /// Checks the order of the rows. Returns a hash of each key and one of each trajectory.
    fn order(&mut self, columns: &[ArrayRef], n: usize) -> Result<(Vec<u64>, Vec<u64>), Stop> {
        if n == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let rows = self.converter.convert_columns(columns).map_err(bug)?;
        let is_pairs = matches!(self.layout.roles, PointRoles::Pairs { .. });
        let n_partition = self.layout.partition.len();
        let repeated = |row: usize| {
            if !is_pairs {
                let names: Vec<&str> = self.layout.key.iter().map(|f| f.name().as_str()).collect();
                return repeated_id(&describe(&columns[n_partition..], row), &names.join(", "));
            }
            let (time, trajectory) = (columns.len() - 1, &columns[n_partition..columns.len() - 1]);
            let name = self.layout.key[self.layout.key.len() - 1].name();
            repeated_time(&describe(trajectory, row), &columns[time], name, row)
        };
        let last = self.last.as_ref().map(OwnedRow::row);
        for at in 0..n {
            let before = if at == 0 {
                last
            } else {
                Some(rows.row(at - 1))
            };
            let Some(before) = before else { continue };
            match before.cmp(&rows.row(at)) {
                Ordering::Less => {}
                Ordering::Equal => return Err(repeated(at)),
                Ordering::Greater if !self.sorted => return Err(Stop::Unsorted),
                Ordering::Greater => {}
            }
        }
        let hashes = (0..n).map(|at| hash(rows.row(at).data())).collect();
        self.last = Some(rows.row(n - 1).owned());
        let trajectory_hashes = if is_pairs {
            self.trajectories(columns, n)?
        } else {
            vec![0; n]
        };
        Ok((hashes, trajectory_hashes))
    }

    /// A hash of the partition and the trajectory of each row.
    fn trajectories(&self, columns: &[ArrayRef], n: usize) -> Result<Vec<u64>, Stop> {
        let own = &columns[..columns.len() - 1];
        if own.is_empty() {
            return Ok(vec![1; n]);
        }
        let fields = own.iter().map(|c| SortField::new(c.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(bug)?;
        let runs = ranges(own, n)?;
        let starts = first_rows(own, &runs)?;
        let rows = converter.convert_columns(&starts).map_err(bug)?;
        let of_runs = runs.iter().zip(rows.iter());
        let hashes = of_runs.flat_map(|(run, row)| {
            let hash = hash(row.data());
            std::iter::repeat_n(hash, run.len())
        });
        Ok(hashes.collect())
    }

    /// What was found beside the points, after the last row.
    pub(crate) fn finish(mut self) -> Result<Found> {
        self.found.sorted = self.sorted;
        if let Some(keys) = self.partitions.take() {
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            self.found.partitions = keys.columns(&all)?;
        }
        Ok(self.found)
    }
}

/// FNV-1a with a finaliser, which is the same on all machines.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    seed::mixed(hash)
}

/// Selects the columns of a layout, in its order. Column `i` is named `i`.
///
/// # Errors
/// If the query lacks a column.
pub(crate) fn select(frame: DataFrame, layout: &PointLayout) -> Result<DataFrame> {
    let start = layout.n_order();
    let n_weights = usize::from(layout.weight.is_some());
    let numbers = start..start + layout.coordinates.len() + n_weights;
    selected(frame, &layout.fields(), numbers, "the points")
}

/// Reads all points of a query into receivers. `start` makes a new receiver for each attempt:
/// rows that are not in order are sorted and read again. `known` are the partitions of the whole
/// run, if an earlier pass has found them.
///
/// # Errors
/// Rows that cannot be read.
pub(crate) async fn read<R: Receiver>(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<PointLayout>,
    known: Option<&[ArrayRef]>,
    start: impl Fn() -> Result<R>,
) -> Result<(R, Found)> {
    match read_once(lake, frame.clone(), layout, known, false, &start).await {
        Ok(done) => Ok(done),
        Err(Stop::Unsorted) => {
            tracing::info!("rows are not in the order of their keys: sorting them");
            let sorted = sorted(frame, layout)?;
            let done = read_once(lake, sorted, layout, known, true, &start).await;
            done.map_err(|stop| stop.into_error("reading points"))
        }
        Err(stop) => Err(stop.into_error("reading points")),
    }
}

/// The rows in the order of partition and key. Rows of one key, of which at most one is a point,
/// are in the order of their content.
pub(crate) fn sorted(frame: DataFrame, layout: &PointLayout) -> Result<DataFrame> {
    let n = layout.fields().len();
    match &layout.roles {
        PointRoles::Pairs { rules, .. } => {
            Lake::sorted(frame, rules.order_columns(layout.n_order(), n))
        }
        PointRoles::Rows => Lake::sorted(frame, 0..n),
    }
}

async fn read_once<R: Receiver>(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<PointLayout>,
    known: Option<&[ArrayRef]>,
    sorted: bool,
    start: &impl Fn() -> Result<R>,
) -> Result<(R, Found), Stop> {
    let start = || Ok((Reader::new(layout, sorted, known)?, start()?));
    let push = |(reader, receiver): &mut (Reader, R), batch: &RecordBatch| {
        for points in reader.read(batch)? {
            give(reader, receiver, &points)?;
        }
        Ok(())
    };
    let finish = |(mut reader, mut receiver): (Reader, R)| {
        let stopped = |stop: Stop| stop.into_error("reading points");
        if let Some(points) = reader.rest().map_err(stopped)? {
            give(&reader, &mut receiver, &points).map_err(stopped)?;
        }
        Ok((receiver, reader.finish()?))
    };
    lake.one_stream(frame, start, push, finish).await
}

fn give<R: Receiver>(reader: &Reader, receiver: &mut R, points: &PointBatch) -> Result<(), Stop> {
    match points.len() {
        0 => Ok(()),
        _ => receiver.push(&reader.layout, points),
    }
}
