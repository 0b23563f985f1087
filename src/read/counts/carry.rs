//! The end of every trajectory: the rows that can still start a pair with rows of a later run.
//!
//! In: batches with the columns of a `Layout` of trajectories, in any order. Out: when each
//! trajectory starts and ends ([`Spans`]), and its unchanged last rows ([`Tails`]): the rows later
//! than its end minus the longest lag, as many rows as the longest lag in steps, and always the
//! very last row.

use crate::error::{Error, Result};
use crate::evidence::lag::Step;
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::rows::doubles::{typed, typed_columns};
use crate::read::rows::keys::Keys;
use crate::read::rows::layout::{Layout, RowRoles, schema};
use crate::read::rows::ranges::{drop_null_rows, first_rows, ranges};
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::time;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{cast, concat, filter, take_arrays};
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::ident;
use std::sync::Arc;

/// When every trajectory starts and ends.
pub(crate) struct Spans {
    fields: Vec<Field>,
    /// (partition, trajectory) keys; `None` if all rows are one trajectory.
    keys: Option<Keys>,
    /// Ticks of the first and the last row of each trajectory.
    of: Vec<(i64, i64)>,
}

impl Spans {
    /// The spans of the trajectories in the rows of a query with the columns of `layout`.
    ///
    /// # Errors
    /// Rows that cannot be read.
    pub(crate) async fn read(lake: &Lake, frame: DataFrame, layout: &Arc<Layout>) -> Result<Spans> {
        let columns: Vec<_> = (0..layout.n_order())
            .map(|at| ident(at.to_string()))
            .collect();
        let what = "the columns of trajectories cannot be selected";
        let frame = frame.select(columns).map_err(|e| failed(what, e))?;
        let of_streams = Arc::clone(layout);
        let each = lake.each_stream(frame, move |_| {
            let push = |batch: &RecordBatch, spans: &mut Spans| spans.push(batch);
            Ok((Spans::new(&of_streams)?, push))
        });
        let each = each
            .await
            .map_err(|stop| stop.into_error("reading times"))?;
        let mut all = Spans::new(layout)?;
        for spans in each {
            all.absorb(&spans)?;
        }
        Ok(all)
    }

    /// Spans for rows that have the leading columns of `layout`, by which rows are ordered.
    ///
    /// # Errors
    /// A key column of a type that cannot be compared.
    pub(crate) fn new(layout: &Layout) -> Result<Spans> {
        let mut fields = layout.fields();
        fields.truncate(layout.n_order());
        let n_key = fields.len().saturating_sub(1);
        let keys = Keys::of_fields(&fields[..n_key], &[])?;
        let of = Vec::new();
        Ok(Spans { fields, keys, of })
    }

    /// Reads the next rows.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let mut columns = batch.columns().to_vec();
        self.take_in(&mut columns).map(|_| ())
    }

    /// Reads the next rows and drops those from `columns` that belong to no trajectory. Returns the
    /// number of the trajectory and the time of each remaining row.
    fn take_in(&mut self, columns: &mut [ArrayRef]) -> Result<(Vec<u32>, ScalarBuffer<i64>), Stop> {
        // Counting reports the rows that are dropped here.
        let dropped = &mut Dropped::default();
        let n_key = self.fields.len() - 1;
        for (column, field) in columns.iter_mut().zip(&self.fields) {
            *column = typed(column, field).map_err(bug)?;
        }
        columns[n_key] = time::without_nan(&columns[n_key], dropped)?;
        drop_null_rows(columns, n_key + 1, |_| "key", dropped)?;
        let times = time::ticks(&columns[n_key], self.fields[n_key].name())?;
        let mut of_rows = vec![0; times.len()];
        if let Some(keys) = &mut self.keys {
            let key_ranges = ranges(&columns[..n_key], times.len())?;
            let mut ids = Vec::with_capacity(key_ranges.len());
            keys.intern(&first_rows(&columns[..n_key], &key_ranges)?, &mut ids)?;
            for (key_range, id) in key_ranges.into_iter().zip(ids) {
                of_rows[key_range].fill(id);
            }
        }
        for (&of, &time) in of_rows.iter().zip(&times) {
            match self.of.get_mut(of as usize) {
                Some((first, last)) => (*first, *last) = (time.min(*first), time.max(*last)),
                None => self.of.push((time, time)),
            }
        }
        Ok((of_rows, times))
    }

    /// Adds the trajectories of `other`; returns their numbers in `self`.
    pub(crate) fn absorb(&mut self, other: &Spans) -> Result<Vec<u32>> {
        let ids = match (&mut self.keys, &other.keys) {
            (Some(own), Some(others)) => own.absorb(others)?,
            _ => vec![0; other.of.len()],
        };
        for (&id, &(first, last)) in ids.iter().zip(&other.of) {
            match self.of.get_mut(id as usize) {
                Some(own) => *own = (first.min(own.0), last.max(own.1)),
                None => self.of.push((first, last)),
            }
        }
        Ok(ids)
    }

    /// Whether every trajectory starts after it ended in `earlier`.
    pub(crate) fn are_after(&self, earlier: &Spans) -> Result<bool> {
        let mut all = Spans {
            fields: self.fields.clone(),
            keys: self.keys.as_ref().map(Keys::empty).transpose()?,
            of: Vec::new(),
        };
        // Known keys get the numbers that they have in `earlier`.
        all.absorb(earlier)?;
        let ids = all.absorb(self)?;
        let after = |(&id, own): (&u32, &(i64, i64))| {
            earlier
                .of
                .get(id as usize)
                .is_none_or(|span| span.1 < own.0)
        };
        Ok(ids.iter().zip(&self.of).all(after))
    }

    /// Ticks of the first and the last row of all trajectories; `None` without rows.
    pub(crate) fn whole(&self) -> Option<(i64, i64)> {
        let first = self.of.iter().map(|span| span.0).min()?;
        Some((first, self.of.iter().map(|span| span.1).max()?))
    }
}

/// The last rows of every trajectory.
pub(crate) struct Tails {
    fields: Vec<Field>,
    /// When every trajectory starts and ends.
    pub spans: Spans,
    /// How long before the end of its trajectory a row can start a pair, in ticks and in rows.
    ticks: u64,
    steps: usize,
    /// Whether several rows may have one time. They are kept together.
    has_ties: bool,
    kept: Vec<TailRows>,
    n_kept: usize,
    /// Rows to gather before unneeded rows are removed.
    room: usize,
}

/// Some rows, each with the number of its trajectory and its time.
struct TailRows {
    columns: Vec<ArrayRef>,
    of_rows: Vec<u32>,
    times: Vec<i64>,
}

/// The values to keep.
fn kept<T: Copy>(values: &[T], keep: &[bool]) -> Vec<T> {
    let values = values.iter().zip(keep);
    values
        .filter(|(_, keep)| **keep)
        .map(|(value, _)| *value)
        .collect()
}

/// Rows to gather between two removals.
const ROOM: usize = 1 << 18;

impl Tails {
    /// Tails of trajectories with the lags of `layout`.
    ///
    /// # Errors
    /// A layout of pairs.
    pub(crate) fn new(layout: &Layout) -> Result<Tails> {
        let (mut ticks, mut steps) = (0, 1);
        match &layout.evidence {
            RowRoles::Trajectories { lags, .. } => {
                for lag in lags {
                    match *lag {
                        Step::Ticks(n) => ticks = ticks.max(n as u64),
                        Step::Rows(n) => steps = steps.max(n),
                    }
                }
            }
            RowRoles::Windows { block, .. } => steps = 2 * block,
            RowRoles::Pairs { .. } => {
                return Err(Error::bug("a table of pairs has no trajectories"));
            }
        }
        Ok(Tails {
            fields: layout.fields(),
            spans: Spans::new(layout)?,
            ticks,
            steps,
            has_ties: layout.rules.keeps_ties(),
            kept: Vec::new(),
            n_kept: 0,
            room: ROOM,
        })
    }

    /// Reads the next rows.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let mut columns = typed_columns(batch, &self.fields).map_err(bug)?;
        let (of_rows, times) = self.spans.take_in(&mut columns)?;
        let time = self.spans.fields.len() - 1;
        columns[time] = cast(&columns[time], self.fields[time].data_type()).map_err(bug)?;
        let times = times.to_vec();
        let kept = TailRows {
            columns,
            of_rows,
            times,
        };
        let kept = self.needed(kept)?;
        self.n_kept += kept.times.len();
        self.kept.push(kept);
        if self.n_kept > self.room {
            self.compact()?;
            self.room = ROOM + 2 * self.n_kept;
        }
        Ok(())
    }

    /// The rows that may be among the last ones, as far as is known.
    fn needed(&self, rows: TailRows) -> Result<TailRows, Stop> {
        let mut order: Vec<u32> = (0..rows.times.len() as u32).collect();
        order.sort_by_key(|&at| (rows.of_rows[at as usize], rows.times[at as usize]));
        let mut keep = vec![false; order.len()];
        let (mut trajectory, mut after) = (None, 0);
        let mut earliest_kept = None;
        for &at in order.iter().rev() {
            let at = at as usize;
            let of = rows.of_rows[at];
            after = if trajectory == Some(of) { after + 1 } else { 0 };
            trajectory = Some(of);
            let last = self.spans.of[of as usize].1;
            let before = last.wrapping_sub(rows.times[at]) as u64;
            let is_tied = self.has_ties && earliest_kept == Some((of, rows.times[at]));
            keep[at] = after < self.steps || before < self.ticks || is_tied;
            if keep[at] {
                earliest_kept = Some((of, rows.times[at]));
            }
        }
        let of_rows = kept(&rows.of_rows, &keep);
        let times = kept(&rows.times, &keep);
        let keep = BooleanArray::from(keep);
        let columns = rows.columns.iter().map(|column| filter(column, &keep));
        Ok(TailRows {
            columns: columns.collect::<Result<_, _>>().map_err(bug)?,
            of_rows,
            times,
        })
    }

    /// Concatenates all rows and keeps those that are among the last ones.
    fn compact(&mut self) -> Result<(), Stop> {
        let kept = std::mem::take(&mut self.kept);
        let column = |at: usize| {
            let pieces: Vec<_> = kept.iter().map(|kept| kept.columns[at].as_ref()).collect();
            if pieces.is_empty() {
                Ok(arrow::array::new_empty_array(self.fields[at].data_type()))
            } else {
                concat(&pieces)
            }
        };
        let columns = (0..self.fields.len()).map(column);
        let all = TailRows {
            columns: columns.collect::<Result<_, _>>().map_err(bug)?,
            of_rows: kept
                .iter()
                .flat_map(|kept| &kept.of_rows)
                .copied()
                .collect(),
            times: kept.iter().flat_map(|kept| &kept.times).copied().collect(),
        };
        let all = self.needed(all)?;
        self.n_kept = all.times.len();
        self.kept = vec![all];
        Ok(())
    }

    /// Adds the rows of `other`.
    pub(crate) fn absorb(&mut self, other: Tails) -> Result<()> {
        let ids = self.spans.absorb(&other.spans)?;
        self.n_kept += other.n_kept;
        self.kept.extend(other.kept.into_iter().map(|mut kept| {
            kept.of_rows
                .iter_mut()
                .for_each(|of| *of = ids[*of as usize]);
            kept
        }));
        Ok(())
    }

    /// The rows ordered by partition, trajectory and time, and the spans.
    pub(crate) fn finish(mut self) -> Result<(RecordBatch, Spans)> {
        self.compact()
            .map_err(|stop| stop.into_error("carrying rows"))?;
        let kept = self.kept.swap_remove(0);
        let rank = match &self.spans.keys {
            Some(keys) => keys.ranks(),
            None => vec![0; self.spans.of.len()],
        };
        let mut order: Vec<u32> = (0..kept.times.len() as u32).collect();
        let place = |at: &u32| {
            let at = *at as usize;
            (rank[kept.of_rows[at] as usize], kept.times[at])
        };
        order.sort_by_key(place);
        let order = UInt32Array::from(order);
        let columns = take_arrays(&kept.columns, &order, None);
        let batch = columns.and_then(|columns| RecordBatch::try_new(schema(&self.fields), columns));
        Ok((batch.map_err(bug)?, self.spans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::rows::layout::tests::trajectories;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use std::sync::Arc;

    fn layout(lags: &[Step]) -> Layout {
        trajectories(DataType::Int64, DataType::Int64, lags)
    }

    /// Group, trajectory and time; the state is ten times the time.
    type Row = (Option<i64>, i64, Option<i64>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|r| Some(r.1)).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|r| r.2).collect::<Int64Array>()),
            Arc::new(
                rows.iter()
                    .map(|r| r.2.map(|t| 10 * t))
                    .collect::<Int64Array>(),
            ),
        ];
        RecordBatch::try_new(layout(&[]).numbered(), columns).unwrap()
    }

    /// The rows carried over from two streams, as (group, trajectory, time).
    fn carried(lags: &[Step]) -> Vec<(i64, i64, i64)> {
        let rows = [
            (Some(1), 5, Some(7)),
            (Some(0), 9, Some(1)),
            (Some(0), 9, Some(4)),
            (Some(0), 9, None),
            (None, 9, Some(99)),
        ];
        let more = [
            (Some(0), 9, Some(6)),
            (Some(1), 5, Some(2)),
            (Some(0), 9, Some(3)),
            (Some(0), 2, Some(1)),
        ];
        let layout = layout(lags);
        let tails = |rows: &[Row]| {
            let mut tails = Tails::new(&layout).unwrap();
            for row in rows {
                tails.push(&batch(std::slice::from_ref(row))).unwrap();
            }
            tails
        };
        let (mut one, other) = (tails(&rows), tails(&more));
        one.absorb(other).unwrap();
        let (batch, spans) = one.finish().unwrap();
        assert_eq!(spans.whole(), Some((1, 7)));
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        let row = |at: usize| {
            assert_eq!(column(3)[at], 10 * column(2)[at]);
            (column(0)[at], column(1)[at], column(2)[at])
        };
        (0..batch.num_rows()).map(row).collect()
    }

    #[test]
    fn rows_that_can_start_a_pair_are_carried_over() {
        // Trajectory 9 of group 0 has the times 1 3 4 6: those after 6 − 3 can start a pair of lag
        // 3.
        assert_eq!(
            carried(&[Step::Ticks(3), Step::Ticks(1)]),
            [(0, 2, 1), (0, 9, 4), (0, 9, 6), (1, 5, 7)]
        );
        assert_eq!(
            carried(&[Step::Rows(3)]),
            [
                (0, 2, 1),
                (0, 9, 3),
                (0, 9, 4),
                (0, 9, 6),
                (1, 5, 2),
                (1, 5, 7)
            ]
        );
        // The last row is carried over even if no lag reaches beyond it.
        assert_eq!(
            carried(&[Step::Ticks(1)]),
            [(0, 2, 1), (0, 9, 6), (1, 5, 7)]
        );
    }

    #[test]
    fn rows_are_late_if_they_are_not_after_their_trajectory() {
        let spans = |rows: &[Row]| {
            let mut spans = Spans::new(&layout(&[])).unwrap();
            spans.push(&batch(rows)).unwrap();
            spans
        };
        let earlier = spans(&[
            (Some(0), 1, Some(3)),
            (Some(0), 1, Some(5)),
            (Some(1), 1, Some(9)),
        ]);
        let is_after = |rows: &[Row]| spans(rows).are_after(&earlier).unwrap();
        assert!(is_after(&[(Some(0), 1, Some(6)), (Some(1), 1, Some(10))]));
        assert!(!is_after(&[(Some(0), 1, Some(6)), (Some(1), 1, Some(9))]));
        assert!(!is_after(&[(Some(0), 1, Some(7)), (Some(0), 1, Some(2))]));
        // Another trajectory may start at any time.
        assert!(is_after(&[(Some(0), 2, Some(1)), (None, 1, Some(1))]));
        assert!(is_after(&[]));
    }
}
