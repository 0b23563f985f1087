//! Rows in the order of partition, trajectory and time, and the sequences that they form.
//!
//! In: the rows of a query whose leading columns are partition, trajectory and time, or partition
//! and key for independent rows. Out: batches of rows, and for each batch its trajectories and
//! sequences. Rows in another order are sorted first, so neither the order of rows nor that of
//! files changes a result.

use crate::error::{Error, Result};
use crate::evidence::lag::Step;
use crate::read::lake::Lake;
use crate::read::lake::in_order::Batches;
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::Keys;
use crate::read::rows::ranges::{drop_null_rows, first_rows, ranges};
use crate::read::rows::split::{Split, splits};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::ties::{Resolver, without_order};
use crate::read::rows::time;
use crate::read::rows::time_rules::TimeRules;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{BatchCoalescer, cast};
use arrow::datatypes::{DataType, Field};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::dataframe::DataFrame;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::atomic;
use std::sync::atomic::AtomicBool;

/// Rows of one trajectory.
#[derive(Debug, Clone)]
pub(crate) struct TrajectoryPart {
    /// The rows of the batch. A trajectory whose rows have no place in a sequence has none.
    pub(crate) rows: Range<usize>,
    /// The parts of these rows, in order.
    pub(crate) pieces: Range<usize>,
    /// The number of the partition.
    pub(crate) partition: u32,
    /// Whether earlier batches have rows of the trajectory. Only the first part may continue one.
    pub(crate) continues: bool,
}

/// Rows of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    /// The rows of the batch.
    pub(crate) rows: Range<usize>,
    /// Whether the first row begins a sequence. Otherwise it follows the last row of the batch
    /// before.
    pub(crate) begins: bool,
    /// How a filter comes to the first row.
    pub(crate) link: Link,
    /// What the rows are used for.
    pub(crate) split: Split,
}

/// How a filter comes to a row from the row before it that has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// It starts: the row is the first one of its trajectory, or the row before has another split.
    First,
    /// It starts again, because the gap is too long or no whole number of steps.
    Again,
    /// It goes on after this number of steps without a row.
    After(u64),
}

/// What reading found beside the sequences.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The rows of the query.
    pub(crate) rows: u64,
    /// Rows without a place in a sequence, by reason.
    pub(crate) dropped: Dropped,
    /// Gaps that end a trajectory.
    pub(crate) gaps: u64,
    /// The partitions: the known ones, then new ones. One array per partition column.
    pub(crate) partitions: Vec<ArrayRef>,
    /// The rows that follow another row of their sequence.
    pub(crate) followers: u64,
}

/// Batches of a query, in order.
pub(crate) struct OrderedBatches<'a> {
    batches: Batches<'a>,
    coalescer: Option<BatchCoalescer>,
    /// Leaves out rows, if several rows may have one time.
    resolver: Option<Resolver>,
    is_at_end: bool,
    rows: fn(&RecordBatch) -> usize,
}

impl<'a> OrderedBatches<'a> {
    /// Starts to read batches. `rows` is their number of rows, given the first one of the query.
    /// Rows are sorted if `by` says by which columns. `resolver` leaves out rows, and the column
    /// that orders rows at one time.
    ///
    /// # Errors
    /// If the query cannot start.
    pub(crate) async fn start(
        lake: &'a Lake,
        mut frame: DataFrame,
        by: Option<Vec<usize>>,
        resolver: Option<Resolver>,
        rows: fn(&RecordBatch) -> usize,
    ) -> Result<OrderedBatches<'a>> {
        if let Some(columns) = by {
            frame = Lake::sorted(frame, columns)?;
        }
        Ok(OrderedBatches {
            batches: lake.batches(frame).await?,
            resolver,
            coalescer: None,
            is_at_end: false,
            rows,
        })
    }

    /// The next rows. None after the last row.
    ///
    /// # Errors
    /// If the rows cannot be read, or their ties cannot be resolved. If
    /// [`must_read_again`](Self::must_read_again) then, the caller starts again.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>, Stop> {
        loop {
            if let Some(coalescer) = &mut self.coalescer
                && let Some(rows) = coalescer.next_completed_batch()
            {
                return Ok(Some(rows));
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.batches.next().await? {
                Some(batch) => match &mut self.resolver {
                    None => self.push(batch)?,
                    Some(resolver) => {
                        for rows in resolver.push(&batch)? {
                            self.push(without_order(&rows)?)?;
                        }
                    }
                },
                None => {
                    self.is_at_end = true;
                    if let Some(resolver) = &mut self.resolver
                        && let Some(rows) = resolver.finish()?
                    {
                        self.push(without_order(&rows)?)?;
                    }
                    if let Some(coalescer) = &mut self.coalescer {
                        coalescer.finish_buffered_batch().map_err(bug)?;
                    }
                }
            }
        }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = self.rows;
        let coalescer = self
            .coalescer
            .get_or_insert_with(|| BatchCoalescer::new(batch.schema(), rows(&batch)));
        coalescer.push_batch(batch).map_err(bug)
    }

    /// Adds the rows that were left out to what was found, after the last row.
    pub(crate) fn add_left_out(&self, found: &mut Found) {
        if let Some(resolver) = &self.resolver {
            found.rows += resolver.n_left_out();
            found.dropped.merge(&resolver.left_out);
        }
    }

    /// Whether reading failed because a row continues past the end of a part of its file.
    pub(crate) fn must_read_again(&self) -> bool {
        self.batches.must_read_again()
    }
}

/// Prepares another attempt after a stop. `sort` says whether the rows must be sorted.
///
/// # Errors
/// If no other attempt helps.
pub(crate) fn again(stop: Stop, must_read_again: bool, sort: &AtomicBool) -> Result<()> {
    match stop {
        Stop::Unsorted if !sort.swap(true, atomic::Ordering::Relaxed) => {
            tracing::info!("rows are not ordered by trajectory and time: sorting them");
            Ok(())
        }
        Stop::Failed(_) if must_read_again => Ok(()),
        stop => Err(stop.into_error("reading sequences")),
    }
}

/// The places of the columns that order rows and divide them into sequences.
#[derive(Debug, Clone)]
pub(crate) struct OrderRoles {
    /// The number of partition columns, which come first.
    pub(crate) n_partition: usize,
    /// The number of leading columns that identify a trajectory: those of the partition and of the
    /// key. A trajectory of independent rows has one row.
    pub(crate) n_trajectory: usize,
    /// The step from a row to the row that follows it. The column after those of the trajectory is
    /// the time. None for independent rows.
    pub(crate) step: Option<Step>,
    /// How the times are read.
    pub(crate) rules: TimeRules,
    /// The place of the split.
    pub(crate) split: Option<usize>,
}

impl OrderRoles {
    /// The number of leading columns that order the rows.
    pub(crate) fn n_order(&self) -> usize {
        self.n_trajectory + usize::from(self.step.is_some())
    }
}

/// The last row of the batches so far.
struct Last {
    /// Partition and trajectory in row format.
    trajectory: Option<OwnedRow>,
    tick: i64,
    split: Split,
    has_place: bool,
    /// The time and the split of the last row of the trajectory that has a place.
    placed: Option<(i64, Split)>,
}

impl Last {
    const NONE: Last = Last {
        trajectory: None,
        tick: 0,
        split: Split::Neither,
        has_place: false,
        placed: None,
    };
}

/// Rows with a key, in order.
pub(crate) struct OrderedRows {
    /// All columns, without the rows that have no key.
    pub(crate) columns: Vec<ArrayRef>,
    /// Runs of rows of one trajectory.
    pub(crate) runs: Vec<Range<usize>>,
    /// Partition and trajectory columns, with one row per trajectory.
    pub(crate) trajectory_keys: Vec<ArrayRef>,
    /// The number of the partition of each trajectory.
    partitions: Vec<u32>,
    /// Whether the first trajectory continues that of the last batch.
    continues: bool,
    /// Empty for independent rows.
    ticks: ScalarBuffer<i64>,
    splits: Vec<Split>,
}

impl OrderedRows {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.splits.len()
    }
}

/// The sequences of a batch.
pub(crate) struct Placed {
    /// The rows with a place in a sequence. The ranges of trajectories and pieces count these rows.
    pub(crate) kept: Vec<u32>,
    /// The trajectories, in order.
    pub(crate) trajectories: Vec<TrajectoryPart>,
    /// The sequences, in order.
    pub(crate) pieces: Vec<Piece>,
}

/// Finds the trajectories and sequences of batches.
pub(crate) struct Ordered {
    fields: Vec<Field>,
    roles: OrderRoles,
    /// Makes sortable bytes of partition and trajectory. None without such columns.
    converter: Option<RowConverter>,
    partitions: Option<Keys>,
    last: Option<Last>,
    is_sorted: bool,
    /// The rows so far that follow another row of their sequence.
    followers: u64,
}

/// A converter for some fields. None without fields.
fn converter(fields: &[Field]) -> Result<Option<RowConverter>> {
    if fields.is_empty() {
        return Ok(None);
    }
    let fields = fields.iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    Ok(Some(RowConverter::new(fields.collect()).map_err(bug)?))
}

impl Ordered {
    /// A reader of rows with these columns, which are sorted or believed to be in order. `known`
    /// are the partitions with known numbers, one array per partition column.
    ///
    /// # Errors
    /// If a column has a type that cannot be a key.
    pub(crate) fn new(
        fields: Vec<Field>,
        roles: OrderRoles,
        is_sorted: bool,
        known: &[ArrayRef],
    ) -> Result<Ordered> {
        let partitions = Keys::of_fields(&fields[..roles.n_partition], known)?;
        Ok(Ordered {
            converter: converter(&fields[..roles.n_trajectory])?,
            fields,
            roles,
            partitions,
            last: None,
            is_sorted,
            followers: 0,
        })
    }

    /// The rows of a batch that have a key.
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row comes before an earlier one; two rows of one key.
    pub(crate) fn read(
        &mut self,
        batch: &RecordBatch,
        found: &mut Found,
    ) -> Result<OrderedRows, Stop> {
        let mut columns = typed_columns(batch, &self.fields).map_err(bug)?;
        let OrderRoles {
            n_partition,
            n_trajectory,
            step,
            split,
            ..
        } = self.roles;
        let kind = |at: usize| match at {
            at if at < n_partition => "partition",
            at if at == n_trajectory => "time",
            _ if step.is_none() => "id",
            _ => "trajectory",
        };
        let mut n = batch.num_rows();
        let n_order = self.roles.n_order();
        if n_order > 0 {
            drop_null_rows(&mut columns, n_order, kind, &mut found.dropped)?;
            n = columns[0].len();
        }
        let splits = match split {
            Some(at) => splits(&columns[at], self.fields[at].name())?,
            None => vec![Split::Train; n],
        };
        let ticks = match step {
            Some(_) => time::ticks(&columns[n_trajectory], self.fields[n_trajectory].name())?,
            None => Vec::new().into(),
        };
        let (runs, continues) = self.runs(&columns, &ticks, n)?;
        found.gaps += self.gaps(&runs, &ticks, continues);
        let starts = first_rows(&columns[..n_trajectory], &runs)?;
        let partitions = match &mut self.partitions {
            Some(keys) if n > 0 => {
                let mut ids = Vec::new();
                keys.intern(&starts[..n_partition], &mut ids)?;
                ids
            }
            _ => vec![0; runs.len()],
        };
        Ok(OrderedRows {
            columns,
            runs,
            trajectory_keys: starts,
            partitions,
            continues,
            ticks,
            splits,
        })
    }

    /// The number of gaps that end a trajectory before some row.
    fn gaps(&self, runs: &[Range<usize>], ticks: &[i64], continues: bool) -> u64 {
        let rules = &self.roles.rules;
        if rules.max_gap.is_none() || ticks.is_empty() {
            return 0;
        }
        let within = |run: &Range<usize>| {
            let pairs = ticks[run.clone()].windows(2);
            pairs.filter(|w| rules.ends_between(w[0], w[1])).count() as u64
        };
        let last = self.last.as_ref().filter(|_| continues);
        let across = last.is_some_and(|last| rules.ends_between(last.tick, ticks[0]));
        u64::from(across) + runs.iter().map(within).sum::<u64>()
    }

    /// Divides rows into sequences. A row without a place ends a sequence and is left out.
    pub(crate) fn placed(
        &mut self,
        rows: &OrderedRows,
        has_place: impl Fn(usize) -> bool,
    ) -> Placed {
        let n = rows.len();
        let OrderedRows { ticks, splits, .. } = rows;
        let tick = |row: usize| ticks.get(row).copied().unwrap_or(0);
        let mut kept: Vec<u32> = Vec::with_capacity(n);
        let mut trajectories = Vec::with_capacity(rows.runs.len());
        let mut pieces: Vec<Piece> = Vec::new();
        let mut continues = rows.continues;
        let mut placed = None;
        for (run, &partition) in rows.runs.iter().zip(&rows.partitions) {
            let (first_row, first_piece) = (kept.len(), pieces.len());
            let last = self.last.as_ref().filter(|_| continues);
            placed = last.and_then(|last| last.placed);
            for row in run.clone() {
                let before = if row > run.start {
                    Some((tick(row - 1), splits[row - 1], has_place(row - 1)))
                } else {
                    let last = self.last.as_ref().filter(|_| continues);
                    last.map(|last| (last.tick, last.split, last.has_place))
                };
                if !has_place(row) {
                    continue;
                }
                let leads = |before: i64| {
                    let OrderRoles { step, rules, .. } = &self.roles;
                    step.is_some_and(|step| rules.leads(step, before, tick(row)))
                };
                let follows = before.is_some_and(|(tick, split, had_place)| {
                    had_place && split == splits[row] && leads(tick)
                });
                self.followers += u64::from(follows);
                let at = kept.len();
                kept.push(row as u32);
                match pieces[first_piece..].last_mut() {
                    Some(Piece { rows, .. }) if follows => rows.end = at + 1,
                    // The first row of a batch may follow the last one of the batch before.
                    _ => pieces.push(Piece {
                        rows: at..at + 1,
                        begins: !follows,
                        link: if follows {
                            Link::After(0)
                        } else {
                            self.link(placed, tick(row), splits[row])
                        },
                        split: splits[row],
                    }),
                }
                placed = Some((tick(row), splits[row]));
            }
            trajectories.push(TrajectoryPart {
                rows: first_row..kept.len(),
                pieces: first_piece..pieces.len(),
                partition,
                continues,
            });
            continues = false;
        }
        if n > 0 {
            let last = self.last.get_or_insert(Last::NONE);
            (last.tick, last.split) = (tick(n - 1), splits[n - 1]);
            last.has_place = has_place(n - 1);
            last.placed = placed;
        }
        Placed {
            kept,
            trajectories,
            pieces,
        }
    }

    /// How a filter comes to a row that begins a sequence. `placed` is the last row of its
    /// trajectory that has a place: rows without one are missing.
    fn link(&self, placed: Option<(i64, Split)>, tick: i64, split: Split) -> Link {
        let Some((before, _)) = placed.filter(|(_, own)| *own == split) else {
            return Link::First;
        };
        let OrderRoles { step, rules, .. } = &self.roles;
        let steps = step.and_then(|step| rules.steps_between(step, before, tick));
        steps.map_or(Link::Again, |steps| Link::After(steps - 1))
    }

    /// Runs of rows of one trajectory, and whether the first one continues that of the last batch.
    fn runs(
        &mut self,
        columns: &[ArrayRef],
        ticks: &[i64],
        n: usize,
    ) -> Result<(Vec<Range<usize>>, bool), Stop> {
        if n == 0 {
            return Ok((Vec::new(), false));
        }
        let own = &columns[..self.roles.n_trajectory];
        let runs = ranges(own, n)?;
        let mut continues = self.last.is_some();
        if let Some(converter) = &mut self.converter {
            let starts = first_rows(own, &runs)?;
            let rows = converter.convert_columns(&starts).map_err(bug)?;
            let last = self.last.as_ref().and_then(|last| last.trajectory.as_ref());
            continues = false;
            if let Some(last) = last {
                match last.row().cmp(&rows.row(0)) {
                    Ordering::Less => {}
                    Ordering::Equal => continues = true,
                    Ordering::Greater => return Err(self.disordered()),
                }
            }
            for at in 1..rows.num_rows() {
                if rows.row(at - 1) >= rows.row(at) {
                    return Err(self.disordered());
                }
            }
            let last = rows.row(rows.num_rows() - 1).owned();
            self.last.get_or_insert(Last::NONE).trajectory = Some(last);
        }
        if self.roles.step.is_none() {
            let longer = runs.iter().find(|run| run.len() > 1);
            return match longer {
                _ if continues => Err(self.repeated(columns, 0)),
                Some(run) => Err(self.repeated(columns, run.start)),
                None => Ok((runs, false)),
            };
        }
        let has_ties = self.roles.rules.keeps_ties();
        let mut before = self
            .last
            .as_ref()
            .filter(|_| continues)
            .map(|last| last.tick);
        for run in &runs {
            for row in run.clone() {
                match before {
                    Some(tick) if tick == ticks[row] && !has_ties => {
                        return Err(self.repeated(columns, row));
                    }
                    Some(tick) if tick > ticks[row] => return Err(self.disordered()),
                    _ => before = Some(ticks[row]),
                }
            }
            before = None;
        }
        Ok((runs, continues))
    }

    fn disordered(&self) -> Stop {
        if self.is_sorted {
            return Stop::Failed(Error::bug("sorted rows are not in order"));
        }
        Stop::Unsorted
    }

    /// The error of two rows of one key.
    fn repeated(&self, columns: &[ArrayRef], row: usize) -> Stop {
        let OrderRoles {
            n_partition,
            n_trajectory,
            step,
            ..
        } = self.roles;
        let of = describe(&columns[n_partition..n_trajectory], row);
        if step.is_none() {
            let names = self.fields[n_partition..n_trajectory].iter();
            let names: Vec<&str> = names.map(|field| field.name().as_str()).collect();
            return Stop::Failed(Error::input(format!(
                "two rows have the id ({}) = {of}; keep one row for each id",
                names.join(", ")
            )));
        }
        let name = self.fields[n_trajectory].name();
        repeated_time(&of, &columns[n_trajectory], name, row)
    }

    /// Adds the partitions, by number, and the number of followers, after the last row.
    ///
    /// # Errors
    /// If the keys cannot be made columns.
    pub(crate) fn finish(self, found: &mut Found) -> Result<()> {
        found.followers = self.followers;
        if let Some(keys) = self.partitions {
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            found.partitions = keys.columns(&all)?;
        }
        Ok(())
    }
}

/// The error of two rows of a trajectory at one time, which is the column `name`.
pub(crate) fn repeated_time(trajectory: &str, time: &ArrayRef, name: &str, row: usize) -> Stop {
    let at = describe(std::slice::from_ref(time), row);
    let of = match trajectory {
        // No columns identify trajectories.
        "()" => "all rows are one trajectory, which has".to_string(),
        of => format!("trajectory {of} has"),
    };
    Stop::Failed(Error::input(format!(
        "{of} two rows at {name} = {at}; keep one row for each trajectory and time, or choose one by a second column of `time` with `duplicates`"
    )))
}

/// The error of two rows of one id, which is in the column or columns `name`.
pub(crate) fn repeated_id(id: &str, name: &str) -> Stop {
    Stop::Failed(Error::input(format!(
        "two rows have {name} = {id}; keep one row for each `id`, or number the rows in the SQL"
    )))
}

/// The column `split` of some rows as text, if there is one.
///
/// # Errors
/// If the column is no text.
pub(crate) fn split_text(columns: &[ArrayRef], split: Option<usize>) -> Result<Option<ArrayRef>> {
    split
        .map(|at| cast(&columns[at], &DataType::Utf8))
        .transpose()
        .map_err(bug)
}
