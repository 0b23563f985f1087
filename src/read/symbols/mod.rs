//! Rows → sequences of symbols, in the order of partition, trajectory and time.
//!
//! In: the rows of a query with the columns of a [`Layout`] of windows, and the symbols of a model.
//! Out: batches of [`SymbolBatch`], in which each row has the number of its symbol. Rows in
//! another order are sorted first, so neither the order of rows nor that of files changes a result.
//! All batches but the last have the same number of rows, so the borders of batches depend on the
//! rows alone.

pub(crate) mod windows;

use crate::error::{Error, Result};
use crate::read::counts::resample_groups::Tagger;
use crate::read::lake::Lake;
use crate::read::rows::keys::NONE;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::ordered::{
    Found, OrderRoles, Ordered, OrderedBatches, Piece, Placed, TrajectoryPart, again, split_text,
};
use crate::read::rows::ranges::first_rows;
use crate::read::rows::states::{StateColumns, States};
use crate::read::rows::stop::{Dropped, Stop, bug};
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::dataframe::DataFrame;
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows per batch.
const BATCH: usize = 1 << 16;

/// A batch of rows, without those that have no symbol.
pub(crate) struct SymbolBatch {
    /// The partition columns.
    pub(crate) partition: Vec<ArrayRef>,
    /// The trajectory columns and the time.
    pub(crate) key: Vec<ArrayRef>,
    /// The symbol columns of the input.
    pub(crate) symbols: Vec<ArrayRef>,
    /// The number of the symbol of each row; [`NONE`] for a symbol that the reader does not know.
    pub(crate) numbers: Vec<u32>,
    /// The column of weights, if there is one.
    pub(crate) weights: Option<ArrayRef>,
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

impl SymbolBatch {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

/// The symbols and partitions that a reader knows.
#[derive(Clone, Default)]
pub(crate) struct KnownSymbols {
    /// The columns of each symbol, as in [`StateColumns::output_fields`]. Symbol i has number i.
    pub(crate) columns: Vec<ArrayRef>,
    /// One array per partition column. Partition i has number i.
    pub(crate) partitions: Vec<ArrayRef>,
}

impl KnownSymbols {
    /// The number of symbols.
    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.len())
    }
}

/// The rows of a query.
#[derive(Clone, Copy)]
pub(crate) struct SymbolInput<'a> {
    /// The tables of the query.
    pub(crate) lake: &'a Lake,
    /// The query, with the columns of the layout.
    pub(crate) frame: &'a DataFrame,
    /// The roles of the columns.
    pub(crate) layout: &'a Arc<Layout>,
    /// The symbols and partitions with known numbers.
    pub(crate) symbols: &'a KnownSymbols,
    /// Set by the first pass that finds rows out of order; later passes then sort.
    pub(crate) sort: &'a AtomicBool,
}

/// Reads sequences batch by batch.
pub(crate) struct SymbolReader<'a> {
    batches: OrderedBatches<'a>,
    reader: Reader,
}

impl<'a> SymbolReader<'a> {
    /// Starts to read rows that are in order, or that are sorted first.
    ///
    /// # Errors
    /// If the query cannot start, or a column has a type that cannot be a key.
    pub(crate) async fn start(input: SymbolInput<'a>) -> Result<SymbolReader<'a>> {
        let SymbolInput { lake, frame, .. } = input;
        let sort = input.sort.load(Ordering::Relaxed);
        let by = sort.then(|| input.layout.order_columns());
        let (frame, resolver) = (frame.clone(), input.layout.resolver(sort));
        let layout = Arc::new(input.layout.resolved());
        Ok(SymbolReader {
            reader: Reader::new(&layout, sort, input.symbols)?,
            batches: OrderedBatches::start(lake, frame, by, resolver, |_| BATCH).await?,
        })
    }

    /// The next sequences. None after the last row.
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row comes before an earlier one. If
    /// [`must_read_again`](Self::must_read_again) after another error, the caller starts again.
    pub(crate) async fn next(&mut self) -> Result<Option<SymbolBatch>, Stop> {
        let rows = self.batches.next().await?;
        rows.map(|rows| self.reader.read(&rows)).transpose()
    }

    /// Whether reading failed because a row continues past the end of a part of its file.
    pub(crate) fn must_read_again(&self) -> bool {
        self.batches.must_read_again()
    }

    /// What was found beside the sequences, after the last row.
    pub(crate) fn finish(self) -> Result<Found> {
        let mut found = self.reader.finish()?;
        self.batches.add_left_out(&mut found);
        Ok(found)
    }
}

/// Reads all rows into a receiver. `start` makes a new receiver for each attempt: rows that are
/// not in order are sorted and read again.
///
/// # Errors
/// Rows that cannot be read, or an error of `push`.
pub(crate) async fn read<R>(
    input: SymbolInput<'_>,
    start: impl Fn() -> Result<R>,
    push: impl Fn(&mut R, SymbolBatch) -> Result<()>,
) -> Result<(R, Found)> {
    loop {
        let mut rows = SymbolReader::start(input).await?;
        let mut receiver = start()?;
        let all = async {
            while let Some(batch) = rows.next().await? {
                push(&mut receiver, batch)?;
            }
            Ok::<_, Stop>(())
        };
        match all.await {
            Ok(()) => return Ok((receiver, rows.finish()?)),
            Err(stop) => again(stop, rows.must_read_again(), input.sort)?,
        }
    }
}

/// The columns of a layout of windows.
struct Roles {
    order: OrderRoles,
    symbol: StateColumns,
    /// The place of the weight.
    weight: Option<usize>,
    /// The places of the columns that identify groups.
    groups: Range<usize>,
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
        let after_symbol = first_symbol + symbol.len();
        let after = after_symbol + usize::from(weight.is_some());
        let n = layout.fields().len();
        let n_groups = layout.grouping.as_ref().map_or(0, |g| g.by.len());
        Ok(Roles {
            order: OrderRoles {
                n_partition: layout.partition.len(),
                n_trajectory: first_symbol - 1,
                step: Some(*step),
                rules: layout.rules.clone(),
                split: split.as_ref().map(|_| after),
            },
            symbol: symbol.clone(),
            weight: weight.as_ref().map(|_| after_symbol),
            groups: n - n_groups..n,
        })
    }
}

/// Makes sequences of batches.
struct Reader {
    roles: Roles,
    ordered: Ordered,
    tagger: Option<Tagger>,
    states: States,
    known: Known,
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

impl Reader {
    fn new(layout: &Arc<Layout>, sorted: bool, symbols: &KnownSymbols) -> Result<Reader> {
        let roles = Roles::of(layout)?;
        let mut states = States::new(&roles.symbol, false)?;
        let mut ids = Vec::new();
        if symbols.len() > 0 {
            let numbered = states.ids(&symbols.columns, &mut Dropped::default(), &mut ids);
            numbered.map_err(|stop| stop.into_error("numbering symbols"))?;
        }
        let order = roles.order.clone();
        Ok(Reader {
            ordered: Ordered::new(layout.fields(), order, sorted, &symbols.partitions)?,
            tagger: Tagger::new(layout)?,
            roles,
            states,
            known: Known::new(&ids)?,
            found: Found::default(),
        })
    }

    /// The sequences of the next rows.
    fn read(&mut self, batch: &RecordBatch) -> Result<SymbolBatch, Stop> {
        self.found.rows += batch.num_rows() as u64;
        let mut rows = self.ordered.read(batch, &mut self.found)?;
        let n = rows.len();
        let first_symbol = self.roles.order.n_order();
        let symbols = &rows.columns[first_symbol..first_symbol + self.roles.symbol.len()];
        let mut ids = Vec::with_capacity(n);
        if n > 0 {
            let dropped = &mut self.found.dropped;
            self.states.ids(symbols, dropped, &mut ids)?;
        }
        let mut shown = symbols.to_vec();
        let mut hashes = Vec::new();
        if let Some(tagger) = self.tagger.as_ref().filter(|_| n > 0) {
            let groups = &rows.columns[self.roles.groups.clone()];
            hashes = tagger.hashes(&first_rows(groups, &rows.runs)?, rows.runs.len())?;
        }
        // Rows without a symbol end a sequence and have no place in it.
        let Placed {
            kept,
            trajectories,
            pieces,
        } = self.ordered.placed(&rows, |row| ids[row] != NONE);
        let numbers = kept.iter().map(|&row| self.known.number(ids[row as usize]));
        let numbers = numbers.collect();
        let mut split = split_text(&rows.columns, self.roles.order.split)?;
        let mut weights = self.roles.weight.map(|at| Arc::clone(&rows.columns[at]));
        let mut columns = std::mem::take(&mut rows.columns);
        columns.truncate(first_symbol);
        if kept.len() < n {
            let kept = UInt32Array::from(kept);
            let rest = split.iter_mut().chain(&mut weights);
            for column in columns.iter_mut().chain(&mut shown).chain(rest) {
                *column = take(column, &kept, None).map_err(bug)?;
            }
        }
        Ok(SymbolBatch {
            key: columns.split_off(self.roles.order.n_partition),
            partition: columns,
            symbols: shown,
            numbers,
            weights,
            split,
            trajectories,
            trajectory_keys: rows.trajectory_keys,
            groups: hashes,
            pieces,
        })
    }

    /// What was found beside the sequences, after the last row.
    fn finish(mut self) -> Result<Found> {
        self.ordered.finish(&mut self.found)?;
        Ok(self.found)
    }
}

/// Whether a column divides the rows into training rows and others.
pub(crate) fn has_split(layout: &Layout) -> bool {
    let rows = layout.evidence.trajectories();
    rows.is_some_and(|rows| rows.split.is_some())
}

/// Whether filters go on through gaps between rows.
pub(crate) fn bridges(layout: &Layout) -> bool {
    match layout.evidence {
        RowRoles::Windows { step, .. } => layout.rules.bridges(step),
        _ => false,
    }
}

/// The rows of a window.
pub(crate) fn window_rows(layout: &Layout) -> u64 {
    match layout.evidence {
        RowRoles::Windows { block, .. } => 2 * block as u64 + 1,
        _ => 0,
    }
}
