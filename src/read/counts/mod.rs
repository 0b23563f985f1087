//! Rows → integer transition counts, one sparse matrix per partition and lag (coherence §3.1).
//!
//! In: streams of batches with the columns of a `Layout` in its order. Out: [`Counted`]. Each
//! stream has a `Worker`. If one stream ends inside a trajectory and the next continues it,
//! `add_up` joins the two, so that each pair is counted once. Most files are ordered by (partition,
//! trajectory, time), so streams are first taken to be ordered. A row that breaks the order stops
//! the attempt with `Stop::Unsorted`; the next attempt gathers rows by trajectory in memory, or
//! sorts them.

pub(crate) mod carry;
pub mod counted;
pub(crate) mod emit;
pub mod follow;
pub(crate) mod lagged;
pub(crate) mod merge;
pub(crate) mod near_lag;
pub mod ordered;
pub(crate) mod renumber;
pub mod resample_groups;
pub(crate) mod stream;
pub(crate) mod sums;
pub(crate) mod tallies;
pub(crate) mod tally;
pub(crate) mod unordered;
pub(crate) mod weighted;
pub(crate) mod words;

use crate::error::{Error, Kind, Result};
use crate::read::counts::carry::Tails;
use crate::read::counts::counted::Counted;
use crate::read::counts::merge::{CountSums, add_up};
use crate::read::counts::stream::Worker;
use crate::read::counts::weighted::{Point, Weighed};
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::rows::layout::Layout;
use crate::read::rows::stop::{Mode, Order, Stop, bug};
use crate::read::rows::ties::{Resolver, without_order};
use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, lexsort_to_indices, take_record_batch};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{cast, ident};
use std::sync::Arc;

/// Receives the number of rows of each batch that was read.
pub(crate) type Advance = Arc<dyn Fn(usize) + Send + Sync>;

/// Counts the transitions in the rows of a query with the columns of `layout`.
///
/// # Errors
/// Rows that cannot be read or counted.
pub async fn count(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<Layout>,
    advance: Advance,
) -> Result<Counted> {
    let (sums, _) = sums(lake, frame, layout, None, advance).await?;
    let layout = Arc::clone(layout);
    let counted = tokio::task::spawn_blocking(move || sums.counted(&layout)).await;
    counted.map_err(|e| Error::with_source(Kind::Bug, "adding up the counts died", e))?
}

/// Counts the transitions in the rows of a query, to be added to the counts of other rows.
///
/// `carried` are earlier rows of the same trajectories, maybe none. Pairs among the carried rows
/// are not counted again. With `carried`, the last rows of all trajectories are returned, to be
/// carried to later rows.
///
/// # Errors
/// Rows that cannot be read or counted.
pub(crate) async fn sums(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<Layout>,
    carried: Option<&RecordBatch>,
    advance: Advance,
) -> Result<(CountSums, Option<Tails>)> {
    let has_rows = layout.evidence.trajectories().is_some();
    if layout.evidence.weight().is_some() && has_rows {
        return sums_of::<Weighed>(lake, frame, layout, carried, advance).await;
    }
    sums_of::<u32>(lake, frame, layout, carried, advance).await
}

async fn sums_of<P: Point>(
    lake: &Lake,
    mut frame: DataFrame,
    layout: &Arc<Layout>,
    carried: Option<&RecordBatch>,
    advance: Advance,
) -> Result<(CountSums, Option<Tails>)> {
    let mut mode = Mode::FIRST;
    // Ties are resolved in rows that are in order.
    let in_any_order = match layout.rules.order {
        Some(_) => Order::Sorted,
        None => Order::Any {
            bytes: lake.gathered_bytes,
        },
    };
    if let Some(rows) = carried.filter(|rows| rows.num_rows() > 0) {
        let failed = |e| failed("rows cannot be put to those of an earlier run", e);
        let fields = layout.fields();
        let typed = fields.iter().enumerate().map(|(at, field)| {
            let name = at.to_string();
            cast(ident(&name), field.data_type().clone()).alias(name)
        });
        let earlier = lake.context.read_batch(rows.clone()).map_err(failed)?;
        let typed = frame.select(typed.collect::<Vec<_>>()).map_err(failed)?;
        frame = typed.union(earlier).map_err(failed)?;
        mode.order = in_any_order;
    }
    loop {
        let counted = count_once::<P>(lake, frame.clone(), layout, mode, carried, &advance).await;
        match counted {
            Ok(counted) => return Ok(counted),
            Err(Stop::Failed(e)) => return Err(e),
            Err(Stop::Unsorted) if mode.order == Order::Assumed => {
                tracing::info!("rows are not ordered by trajectory and time: gathering them");
                mode.order = in_any_order;
            }
            Err(Stop::TooManyRows) if mode.order != Order::Sorted => {
                tracing::info!("there are more rows than memory may hold: sorting them");
                mode.order = Order::Sorted;
            }
            Err(stop) => mode = mode.wider(stop)?,
        }
    }
}

async fn count_once<P: Point>(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<Layout>,
    mode: Mode,
    carried: Option<&RecordBatch>,
    advance: &Advance,
) -> Result<(CountSums, Option<Tails>), Stop> {
    let frame = match mode.order {
        Order::Sorted => Lake::sorted(frame, layout.order_columns())?,
        _ => frame,
    };
    let (of_streams, advance) = (Arc::clone(layout), Arc::clone(advance));
    let has_tails = carried.is_some();
    let counted = lake.each_stream(frame, move |at| {
        let stream = CountedStream::<P>::new(&of_streams, mode, at == 0, has_tails)?;
        let advance = Arc::clone(&advance);
        let push = move |batch: &RecordBatch, stream: &mut CountedStream<P>| {
            stream.push(batch)?;
            advance(batch.num_rows());
            Ok(())
        };
        Ok((stream, push))
    });
    let mut streams = counted.await?;
    if mode.order != Order::Sorted {
        check_borders(&streams)?;
    }
    let mut minus = Vec::new();
    if let Some(rows) = carried.filter(|rows| rows.num_rows() > 0) {
        let (rows, order) = match layout.rules.order {
            Some(_) => (sorted_rows(rows, layout)?, Order::Sorted),
            None => (rows.clone(), Order::Any { bytes: usize::MAX }),
        };
        let mut stream = CountedStream::<P>::new(layout, Mode { order, ..mode }, true, false)?;
        stream.push(&rows)?;
        stream.finish()?;
        minus.push(stream.worker);
    }
    streams.iter_mut().try_for_each(CountedStream::finish)?;
    let streams = streams.into_iter();
    let (workers, tails): (Vec<_>, Vec<_>) = streams.map(|own| (own.worker, own.tails)).unzip();
    let (layout, resolved) = (Arc::clone(layout), layout.resolved());
    let finished = tokio::task::spawn_blocking(move || {
        let mut all: Option<Tails> = has_tails.then(|| Tails::new(&layout)).transpose()?;
        if let Some(all) = &mut all {
            let mut tails = tails.into_iter().flatten();
            tails.try_for_each(|tails| all.absorb(tails))?;
        }
        Ok((add_up(&resolved, mode, workers, minus)?, all))
    });
    let finished = finished.await;
    finished.map_err(|e| Error::with_source(Kind::Bug, "adding up the counts died", e))?
}

/// The rows of one stream: their counts, and the last rows of their trajectories.
struct CountedStream<P> {
    worker: Worker<P>,
    tails: Option<Tails>,
    /// Leaves out rows, if several rows may have one time.
    resolver: Option<Resolver>,
}

impl<P: Point> CountedStream<P> {
    fn new(
        layout: &Arc<Layout>,
        mode: Mode,
        is_first: bool,
        has_tails: bool,
    ) -> Result<CountedStream<P>> {
        let resolver = layout.resolver(mode.order == Order::Sorted);
        let tails = has_tails.then(|| Tails::new(layout)).transpose()?;
        let worker = match resolver {
            Some(_) => Worker::new(&Arc::new(layout.resolved()), mode, is_first)?,
            None => Worker::new(layout, mode, is_first)?,
        };
        Ok(CountedStream {
            worker,
            tails,
            resolver,
        })
    }

    /// Counts the next rows.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let Some(resolver) = &mut self.resolver else {
            self.worker.push(batch)?;
            return self.tails.as_mut().map_or(Ok(()), |own| own.push(batch));
        };
        for rows in resolver.push(batch)? {
            self.push_resolved(&rows)?;
        }
        Ok(())
    }

    fn push_resolved(&mut self, rows: &RecordBatch) -> Result<(), Stop> {
        self.worker.push(&without_order(rows)?)?;
        self.tails.as_mut().map_or(Ok(()), |own| own.push(rows))
    }

    /// Counts the last row, and the rows that were left out.
    fn finish(&mut self) -> Result<(), Stop> {
        let Some(mut resolver) = self.resolver.take() else {
            return Ok(());
        };
        if let Some(rows) = resolver.finish()? {
            self.push_resolved(&rows)?;
        }
        self.worker.rows += resolver.n_left_out();
        self.worker.dropped.merge(&resolver.left_out);
        Ok(())
    }
}

/// Checks that no trajectory and time is in two streams: its rows must be in one to be resolved.
fn check_borders<P>(streams: &[CountedStream<P>]) -> Result<(), Stop> {
    let resolvers = streams.iter().filter_map(|own| own.resolver.as_ref());
    let resolvers: Vec<&Resolver> = resolvers.filter(|own| own.has_rows()).collect();
    for pair in resolvers.windows(2) {
        if pair[0].is_continued_by(pair[1])? {
            return Err(Stop::Unsorted);
        }
    }
    Ok(())
}

/// The rows in the order of partition, trajectory, time and the second column of time.
fn sorted_rows(rows: &RecordBatch, layout: &Layout) -> Result<RecordBatch> {
    let columns = layout.order_columns().into_iter().map(|at| SortColumn {
        values: Arc::clone(rows.column(at)),
        options: None,
    });
    let order = lexsort_to_indices(&columns.collect::<Vec<_>>(), None).map_err(bug)?;
    take_record_batch(rows, &order).map_err(bug)
}
