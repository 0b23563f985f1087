//! Rows → sequences of symbols, in the order of partition, trajectory and time.
//!
//! In: the rows of a query with the columns of a [`Layout`] of windows, and the symbols of a model.
//! Out: batches of [`SequenceBatch`], in which each row has the number of its symbol. Rows in
//! another order are sorted first, so neither the order of rows nor that of files changes a result.
//! All batches but the last have the same number of rows, so the borders of batches depend on the
//! rows alone.

use crate::error::{Error, Result};
use crate::evidence::lag::Step;
use crate::read::counts::resample_groups::Tagger;
use crate::read::lake::Lake;
use crate::read::lake::in_order::Batches;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::ranges::{drop_null_rows, first_rows, ranges};
use crate::read::rows::split::{Split, splits};
use crate::read::rows::states::{StateColumns, States, describe};
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::time;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{BatchCoalescer, cast, take};
use arrow::datatypes::{DataType, Field};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::dataframe::DataFrame;
use hashbrown::HashMap;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic;
use std::sync::atomic::AtomicBool;

/// Rows per batch.
const BATCH: usize = 1 << 16;

/// Rows of one trajectory.
#[derive(Debug, Clone)]
pub(crate) struct TrajectoryPart {
    /// The rows of the batch. A trajectory whose rows have no symbol has none.
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
    /// What the rows are used for.
    pub(crate) split: Split,
}

/// A batch of rows, without those that have no symbol.
pub(crate) struct SequenceBatch {
    /// The partition columns.
    pub(crate) partition: Vec<ArrayRef>,
    /// The trajectory columns and the time.
    pub(crate) key: Vec<ArrayRef>,
    /// The symbol columns of the input.
    pub(crate) symbols: Vec<ArrayRef>,
    /// The number of the symbol of each row; [`NONE`] for a symbol that the reader does not know.
    pub(crate) numbers: Vec<u32>,
    /// The column `split`, as text, if there is one.
    pub(crate) split: Option<ArrayRef>,
    /// The trajectories, in order.
    pub(crate) trajectories: Vec<TrajectoryPart>,
    /// Partition and trajectory columns, with one row per trajectory.
    pub(crate) trajectory_keys: Vec<ArrayRef>,
    /// The hash of the group of each trajectory; empty if rows have no groups.
    pub(crate) groups: Vec<u32>,
    /// The sequences, in order.
    pub(crate) pieces: Vec<Piece>,
}

impl SequenceBatch {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

/// What reading found beside the sequences.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The rows of the query.
    pub(crate) rows: u64,
    /// Rows without a place in a sequence, by reason.
    pub(crate) dropped: Dropped,
    /// The partitions: the known ones, then new ones. One array per partition column.
    pub(crate) partitions: Vec<ArrayRef>,
}

/// The symbols and partitions that a reader knows.
#[derive(Clone, Default)]
pub(crate) struct Symbols {
    /// The columns of each symbol, as in [`StateColumns::output_fields`]. Symbol i has number i.
    pub(crate) columns: Vec<ArrayRef>,
    /// One array per partition column. Partition i has number i.
    pub(crate) partitions: Vec<ArrayRef>,
}

impl Symbols {
    /// The number of symbols.
    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.len())
    }
}

/// The rows of a query.
#[derive(Clone, Copy)]
pub(crate) struct SequenceInput<'a> {
    /// The tables of the query.
    pub(crate) lake: &'a Lake,
    /// The query, with the columns of the layout.
    pub(crate) frame: &'a DataFrame,
    /// The roles of the columns.
    pub(crate) layout: &'a Arc<Layout>,
    /// The symbols and partitions with known numbers.
    pub(crate) symbols: &'a Symbols,
    /// Whether the rows must be sorted, as far as earlier passes know.
    pub(crate) sort: &'a AtomicBool,
}

/// Reads sequences batch by batch.
pub(crate) struct Sequences<'a> {
    batches: Batches<'a>,
    coalescer: Option<BatchCoalescer>,
    is_at_end: bool,
    reader: Reader,
}

impl<'a> Sequences<'a> {
    /// Starts to read rows that are in order, or that are sorted first.
    ///
    /// # Errors
    /// If the query cannot start, or a column has a type that cannot be a key.
    pub(crate) async fn start(input: SequenceInput<'a>) -> Result<Sequences<'a>> {
        let sort = input.sort.load(atomic::Ordering::Relaxed);
        let mut frame = input.frame.clone();
        if sort {
            frame = input.lake.sorted(frame, input.layout)?;
        }
        Ok(Sequences {
            reader: Reader::new(input.layout, sort, input.symbols)?,
            batches: input.lake.batches(frame).await?,
            coalescer: None,
            is_at_end: false,
        })
    }

    /// The next sequences. None after the last row.
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row comes before an earlier one. If
    /// [`must_read_again`](Self::must_read_again) after another error, the caller starts again.
    pub(crate) async fn next(&mut self) -> Result<Option<SequenceBatch>, Stop> {
        loop {
            if let Some(coalescer) = &mut self.coalescer
                && let Some(rows) = coalescer.next_completed_batch()
            {
                return Ok(Some(self.reader.read(&rows)?));
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.batches.next().await? {
                Some(batch) => {
                    let coalescer = self
                        .coalescer
                        .get_or_insert_with(|| BatchCoalescer::new(batch.schema(), BATCH));
                    coalescer.push_batch(batch).map_err(bug)?;
                }
                None => {
                    self.is_at_end = true;
                    if let Some(coalescer) = &mut self.coalescer {
                        coalescer.finish_buffered_batch().map_err(bug)?;
                    }
                }
            }
        }
    }

    /// Whether reading failed because a row continues past the end of a part of its file.
    pub(crate) fn must_read_again(&self) -> bool {
        self.batches.must_read_again()
    }

    /// What was found beside the sequences, after the last row.
    pub(crate) fn finish(self) -> Result<Found> {
        self.reader.finish()
    }
}

/// Reads all rows into a receiver. `start` makes a new receiver for each attempt: rows that are
/// not in order are sorted and read again.
///
/// # Errors
/// Rows that cannot be read, or an error of `push`.
pub(crate) async fn read<R>(
    input: SequenceInput<'_>,
    start: impl Fn() -> Result<R>,
    push: impl Fn(&mut R, SequenceBatch) -> Result<()>,
) -> Result<(R, Found)> {
    loop {
        let mut rows = Sequences::start(input).await?;
        let mut receiver = start()?;
        let all = async {
            while let Some(batch) = rows.next().await? {
                push(&mut receiver, batch)?;
            }
            Ok::<_, Stop>(())
        };
        match all.await {
            Ok(()) => return Ok((receiver, rows.finish()?)),
            Err(stop) => again(stop, &rows, input)?,
        }
    }
}

/// Prepares another attempt after a stop.
///
/// # Errors
/// If no other attempt helps.
pub(crate) fn again(stop: Stop, rows: &Sequences<'_>, input: SequenceInput<'_>) -> Result<()> {
    match stop {
        Stop::Unsorted if !input.sort.swap(true, atomic::Ordering::Relaxed) => {
            tracing::info!("rows are not ordered by trajectory and time: sorting them");
            Ok(())
        }
        Stop::Failed(_) if rows.must_read_again() => Ok(()),
        stop => Err(stop.into_error("reading sequences")),
    }
}

/// The columns of a layout of windows.
#[derive(Clone)]
struct Roles {
    n_partition: usize,
    /// The place of the time.
    time: usize,
    symbol: StateColumns,
    /// The place of the first symbol column.
    first_symbol: usize,
    split: Option<usize>,
    /// The places of the columns that identify groups.
    groups: Range<usize>,
    step: Step,
}

impl Roles {
    fn of(layout: &Layout) -> Result<Roles> {
        let RowRoles::Windows {
            symbol,
            weight,
            split,
            step,
            ..
        } = &layout.evidence
        else {
            return Err(Error::bug("the rows have no symbols"));
        };
        let first_symbol = layout.n_order();
        let after = first_symbol + symbol.len() + usize::from(weight.is_some());
        let n = layout.fields().len();
        let n_groups = layout.grouping.as_ref().map_or(0, |g| g.by.len());
        Ok(Roles {
            n_partition: layout.partition.len(),
            time: first_symbol - 1,
            symbol: symbol.clone(),
            first_symbol,
            split: split.as_ref().map(|_| after),
            groups: n - n_groups..n,
            step: *step,
        })
    }
}

/// The last row of the batches so far.
struct Last {
    /// Partition and trajectory in row format.
    trajectory: Option<OwnedRow>,
    tick: i64,
    split: Split,
    has_symbol: bool,
}

/// Makes sequences of batches.
struct Reader {
    fields: Vec<Field>,
    roles: Roles,
    /// Makes sortable bytes of partition and trajectory. None without such columns.
    converter: Option<RowConverter>,
    tagger: Option<Tagger>,
    partitions: Option<Keys>,
    states: States,
    known: Known,
    last: Option<Last>,
    is_sorted: bool,
    found: Found,
}

/// Maps the ids of states to the numbers of known symbols.
enum Known {
    /// Ids below the number of symbols are the numbers.
    Same(u32),
    /// Any ids.
    Map(HashMap<u32, u32>),
}

impl Known {
    /// The id of each known symbol.
    fn new(ids: &[u32]) -> Result<Known> {
        if ids.iter().zip(0..).all(|(id, at)| *id == at) {
            return Ok(Known::Same(ids.len() as u32));
        }
        let map: HashMap<u32, u32> = ids.iter().copied().zip(0..).collect();
        if map.len() < ids.len() || map.contains_key(&NONE) {
            return Err(Error::input(
                "two symbols of the model are in one box of the bins, or a symbol is in no box; \
                 use the bins of the model",
            ));
        }
        Ok(Known::Map(map))
    }

    /// The number of a state; [`NONE`] if it is not known.
    #[inline]
    fn number(&self, id: u32) -> u32 {
        match self {
            Known::Same(n) if id < *n => id,
            Known::Same(_) => NONE,
            Known::Map(map) => map.get(&id).copied().unwrap_or(NONE),
        }
    }
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

impl Reader {
    fn new(layout: &Arc<Layout>, sorted: bool, symbols: &Symbols) -> Result<Reader> {
        let roles = Roles::of(layout)?;
        let fields = layout.fields();
        let mut states = States::new(&roles.symbol, false)?;
        let mut ids = Vec::new();
        if symbols.len() > 0 {
            let numbered = states.ids(&symbols.columns, &mut Dropped::default(), &mut ids);
            numbered.map_err(|stop| stop.into_error("numbering symbols"))?;
        }
        let mut partitions = None;
        if roles.n_partition > 0 {
            let types = layout.partition.iter().map(|f| f.data_type().clone());
            let mut keys = Keys::new(&types.collect::<Vec<_>>())?;
            if !symbols.partitions.is_empty() {
                keys.intern(&symbols.partitions, &mut Vec::new())?;
            }
            partitions = Some(keys);
        }
        Ok(Reader {
            converter: converter(&fields[..roles.time])?,
            tagger: Tagger::new(layout)?,
            fields,
            roles,
            partitions,
            states,
            known: Known::new(&ids)?,
            last: None,
            is_sorted: sorted,
            found: Found::default(),
        })
    }

    /// The sequences of the next rows.
    fn read(&mut self, batch: &RecordBatch) -> Result<SequenceBatch, Stop> {
        self.found.rows += batch.num_rows() as u64;
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (column, field) in batch.columns().iter().zip(&self.fields) {
            columns.push(if column.data_type() == field.data_type() {
                Arc::clone(column)
            } else {
                cast(column, field.data_type()).map_err(bug)?
            });
        }
        let Roles {
            n_partition,
            time,
            first_symbol,
            split,
            groups,
            ..
        } = self.roles.clone();
        let kind = |at: usize| match at {
            at if at < n_partition => "partition",
            at if at == time => "time",
            _ => "trajectory",
        };
        drop_null_rows(&mut columns, time + 1, kind, &mut self.found.dropped)?;
        let n = columns[time].len();
        let mut ids = Vec::with_capacity(n);
        let symbols = &columns[first_symbol..first_symbol + self.roles.symbol.len()];
        if n > 0 {
            let dropped = &mut self.found.dropped;
            self.states.ids(symbols, dropped, &mut ids)?;
        }
        let mut shown = symbols.to_vec();
        let splits = match split {
            Some(at) => splits(&columns[at], self.fields[at].name())?,
            None => vec![Split::Train; n],
        };
        let ticks = time::ticks(&columns[time])?;
        let (runs, mut continues) = self.runs(&columns, &ticks, n)?;
        let starts = first_rows(&columns[..time], &runs)?;
        let partitions = match &mut self.partitions {
            Some(keys) if n > 0 => {
                let mut ids = Vec::new();
                keys.intern(&starts[..n_partition], &mut ids)?;
                ids
            }
            _ => vec![0; runs.len()],
        };
        let mut hashes = Vec::new();
        if let Some(tagger) = self.tagger.as_ref().filter(|_| n > 0) {
            hashes = tagger.hashes(&first_rows(&columns[groups], &runs)?, runs.len())?;
        }
        // Rows without a symbol end a sequence and have no place in it.
        let mut kept: Vec<u32> = Vec::with_capacity(n);
        let mut trajectories = Vec::with_capacity(runs.len());
        let mut pieces: Vec<Piece> = Vec::new();
        for (run, partition) in runs.iter().zip(partitions) {
            let (first_row, first_piece) = (kept.len(), pieces.len());
            for row in run.clone() {
                let has_symbol = ids[row] != NONE;
                let before = if row > run.start {
                    Some((ticks[row - 1], splits[row - 1], ids[row - 1] != NONE))
                } else {
                    let last = self.last.as_ref().filter(|_| continues);
                    last.map(|last| (last.tick, last.split, last.has_symbol))
                };
                if !has_symbol {
                    continue;
                }
                let follows = before.is_some_and(|(tick, split, had_symbol)| {
                    had_symbol && split == splits[row] && self.roles.step.leads(tick, ticks[row])
                });
                let at = kept.len();
                kept.push(row as u32);
                match pieces[first_piece..].last_mut() {
                    Some(Piece { rows, .. }) if follows => rows.end = at + 1,
                    // The first row of a batch may follow the last one of the batch before.
                    _ => pieces.push(Piece {
                        rows: at..at + 1,
                        begins: !follows,
                        split: splits[row],
                    }),
                }
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
            let last = self.last.get_or_insert(Last {
                trajectory: None,
                tick: 0,
                split: Split::Neither,
                has_symbol: false,
            });
            (last.tick, last.split) = (ticks[n - 1], splits[n - 1]);
            last.has_symbol = ids[n - 1] != NONE;
        }
        let numbers = kept.iter().map(|&row| self.known.number(ids[row as usize]));
        let numbers = numbers.collect();
        let mut split = split
            .map(|at| cast(&columns[at], &DataType::Utf8))
            .transpose()
            .map_err(bug)?;
        columns.truncate(time + 1);
        if kept.len() < n {
            let kept = UInt32Array::from(kept);
            let all = columns.iter_mut().chain(&mut shown).chain(&mut split);
            for column in all {
                *column = take(column, &kept, None).map_err(bug)?;
            }
        }
        Ok(SequenceBatch {
            key: columns.split_off(n_partition),
            partition: columns,
            symbols: shown,
            numbers,
            split,
            trajectories,
            trajectory_keys: starts,
            groups: hashes,
            pieces,
        })
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
        let time = self.roles.time;
        let runs = ranges(&columns[..time], n)?;
        let mut continues = self.last.is_some();
        if let Some(converter) = &mut self.converter {
            let starts = first_rows(&columns[..time], &runs)?;
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
            let tick = self.last.as_ref().map_or(0, |last| last.tick);
            self.last = Some(Last {
                trajectory: Some(last),
                tick,
                split: self.last.as_ref().map_or(Split::Neither, |last| last.split),
                has_symbol: self.last.as_ref().is_some_and(|last| last.has_symbol),
            });
        }
        let mut before = self
            .last
            .as_ref()
            .filter(|_| continues)
            .map(|last| last.tick);
        for run in &runs {
            for row in run.clone() {
                match before {
                    Some(tick) if tick == ticks[row] => {
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

    /// The error of two rows of one trajectory and time.
    fn repeated(&self, columns: &[ArrayRef], row: usize) -> Stop {
        let Roles {
            n_partition, time, ..
        } = self.roles;
        let name = self.fields[time].name();
        let at = describe(std::slice::from_ref(&columns[time]), row);
        let of = match describe(&columns[n_partition..time], row).as_str() {
            // No columns identify trajectories.
            "()" => "all rows are one trajectory, which has".to_string(),
            of => format!("trajectory {of} has"),
        };
        Stop::Failed(Error::input(format!(
            "{of} two rows at {name} = {at}; keep one row for each trajectory and time"
        )))
    }

    /// What was found beside the sequences, after the last row.
    fn finish(mut self) -> Result<Found> {
        if let Some(keys) = self.partitions.take() {
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            self.found.partitions = keys.columns(&all)?;
        }
        Ok(self.found)
    }
}

/// Whether a column divides the rows into training rows and others.
pub(crate) fn has_split(layout: &Layout) -> bool {
    let rows = layout.evidence.trajectories();
    rows.is_some_and(|rows| rows.split.is_some())
}

/// The rows of a window.
pub(crate) fn window_rows(layout: &Layout) -> u64 {
    match layout.evidence {
        RowRoles::Windows { block, .. } => 2 * block as u64 + 1,
        _ => 0,
    }
}
