//! Several rows of a trajectory at one time → the rows that count, by a second column.
//!
//! In: batches with the columns of a layout whose last column orders the rows at one time. The
//! batches of a [`Resolver`] are ordered by partition, trajectory, time and that column. Out: the
//! same batches without the rows that do not count. Which rows these are depends on the rows alone,
//! so neither their order in files nor the number of streams changes a result.

use crate::error::{Error, Result};
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::numbered::schema;
use crate::read::rows::ranges::{drop_null_rows, ranges};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::time_rules::{Ties, TimeRules};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, make_comparator};
use arrow::compute::{SortOptions, filter};
use arrow::datatypes::Field;
use std::cmp::Ordering;

/// The reason of rows that are left out because another row of their time counts.
pub(crate) const SAME_TIME: &str = "same time as another row";

/// The reason of rows that are equal to another one in all columns.
pub(crate) const EQUAL_ROW: &str = "equal to another row";

/// Leaves out the rows of one stream that do not count.
pub(crate) struct Resolver {
    /// The columns of the layout. The last one orders the rows at one time.
    fields: Vec<Field>,
    n_partition: usize,
    /// The number of leading columns that order the rows: partition, trajectory and time.
    n_order: usize,
    ties: Ties,
    is_sorted: bool,
    /// The first row with a key.
    first: Option<Vec<ArrayRef>>,
    /// The last row with a key.
    last: Option<Vec<ArrayRef>>,
    /// Rows that were left out, by reason.
    pub(crate) left_out: Dropped,
}

/// Two rows that may be in two batches: columns and row of each.
struct TwoRows<'a> {
    before: (&'a [ArrayRef], usize),
    after: (&'a [ArrayRef], usize),
}

impl TwoRows<'_> {
    /// Compares the rows by the columns `of`.
    fn compare(&self, of: std::ops::Range<usize>) -> Result<Ordering> {
        let ((before, row), (after, next)) = (self.before, self.after);
        let options = SortOptions::default();
        for (a, b) in before[of.clone()].iter().zip(&after[of]) {
            let compare = make_comparator(&a.slice(row, 1), &b.slice(next, 1), options);
            let order = compare.map_err(bug)?(0, 0);
            if order != Ordering::Equal {
                return Ok(order);
            }
        }
        Ok(Ordering::Equal)
    }
}

/// What a later row at the time of an earlier one does.
enum Outcome {
    /// Both count.
    Both,
    /// One of the two is left out for this reason.
    One(&'static str),
}

impl Resolver {
    /// A resolver for rows with these columns. `is_sorted` says that the rows are sorted; otherwise
    /// they are believed to be in order. None if the rules have no second column.
    pub(crate) fn new(
        fields: Vec<Field>,
        n_partition: usize,
        n_order: usize,
        rules: &TimeRules,
        is_sorted: bool,
    ) -> Option<Resolver> {
        rules.order.as_ref()?;
        Some(Resolver {
            fields,
            n_partition,
            n_order,
            ties: rules.ties,
            is_sorted,
            first: None,
            last: None,
            left_out: Dropped::default(),
        })
    }

    /// The number of rows that were left out.
    pub(crate) fn n_left_out(&self) -> u64 {
        self.left_out.0.values().sum()
    }

    /// The place of the column that orders rows at one time.
    fn order(&self) -> usize {
        self.fields.len() - 1
    }

    /// The rows of a batch that count, as far as is known, in the order of the layout. A last row
    /// that the next batch may replace comes with that batch, or with [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`Stop::Unsorted`] if a row of a time comes before an earlier one; two rows that the second
    /// column does not order.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, Stop> {
        let mut columns = typed_columns(batch, &self.fields).map_err(bug)?;
        self.drop_rows_without_key(&mut columns)?;
        let n = columns[0].len();
        if n == 0 {
            return Ok(Vec::new());
        }
        let groups = ranges(&columns[..self.n_order], n)?;
        let continues = match &self.last {
            Some(last) => self.is_same_time(last, &columns)?,
            None => false,
        };
        // By row: whether it counts. The first element is the last row before the batch.
        let mut counts = vec![true; n + 1];
        for group in groups {
            let is_continued = group.start == 0 && continues;
            if group.len() == 1 && !is_continued {
                continue;
            }
            for row in group.start + usize::from(!is_continued)..group.end {
                match (self.outcome(&columns, row)?, self.ties) {
                    (Outcome::Both, _) => {}
                    (Outcome::One(reason), Ties::Last) => {
                        counts[row] = false;
                        self.left_out.add(reason, 1);
                    }
                    (Outcome::One(reason), _) => {
                        counts[row + 1] = false;
                        self.left_out.add(reason, 1);
                    }
                }
            }
        }
        let row = |row: usize| columns.iter().map(|c| c.slice(row, 1)).collect::<Vec<_>>();
        if self.first.is_none() {
            self.first = Some(row(0));
        }
        let mut resolved = Vec::new();
        let before = self.last.replace(row(n - 1));
        if self.ties == Ties::Last {
            resolved.extend(before.filter(|_| counts[0]));
            columns.iter_mut().for_each(|c| *c = c.slice(0, n - 1));
            counts.truncate(n);
        }
        let counts = &counts[1..];
        if counts.contains(&false) {
            let counts = BooleanArray::from(counts.to_vec());
            for column in &mut columns {
                *column = filter(column, &counts).map_err(bug)?;
            }
        }
        if !columns[0].is_empty() {
            resolved.push(columns);
        }
        let rows = resolved.into_iter().map(|columns| self.batch(columns));
        Ok(rows.collect::<Result<_>>()?)
    }

    /// The last row, if it is not given away yet.
    pub(crate) fn finish(&mut self) -> Result<Option<RecordBatch>> {
        match &self.last {
            Some(last) if self.ties == Ties::Last => self.batch(last.clone()).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the first row of `later`, the next stream, has the trajectory and time of the last
    /// row. Then neither stream alone knows which rows count.
    pub(crate) fn is_continued_by(&self, later: &Resolver) -> Result<bool> {
        match (&self.last, &later.first) {
            (Some(last), Some(first)) => self.is_same_time(last, first),
            _ => Ok(false),
        }
    }

    /// Whether there was a row with a key.
    pub(crate) fn has_rows(&self) -> bool {
        self.first.is_some()
    }

    fn is_same_time(&self, last: &[ArrayRef], columns: &[ArrayRef]) -> Result<bool> {
        let rows = TwoRows {
            before: (last, 0),
            after: (columns, 0),
        };
        Ok(rows.compare(0..self.n_order)? == Ordering::Equal)
    }

    /// Drops the rows without partition, trajectory, time or second column.
    fn drop_rows_without_key(&mut self, columns: &mut Vec<ArrayRef>) -> Result<(), Stop> {
        let (n_partition, n_order) = (self.n_partition, self.n_order);
        let kind = |at| match at {
            at if at < n_partition => "partition",
            at if at + 1 < n_order => "trajectory",
            _ => "time",
        };
        let order = columns.remove(self.order());
        columns.insert(n_order, order);
        drop_null_rows(columns, n_order + 1, kind, &mut self.left_out)?;
        let order = columns.remove(n_order);
        columns.push(order);
        Ok(())
    }

    /// Compares a row with the one before it, which has the same time.
    fn outcome(&self, columns: &[ArrayRef], row: usize) -> Result<Outcome, Stop> {
        let last = || Error::bug("the first row of all follows another one");
        let before = match row.checked_sub(1) {
            Some(before) => (columns, before),
            None => (&self.last.as_ref().ok_or_else(last)?[..], 0),
        };
        let rows = TwoRows {
            before,
            after: (columns, row),
        };
        let (order, all) = (self.order(), self.fields.len());
        match (rows.compare(order..all)?, self.ties) {
            (Ordering::Greater, _) if self.is_sorted => {
                Err(Error::bug("sorted rows are not in order").into())
            }
            (Ordering::Greater, _) => Err(Stop::Unsorted),
            (Ordering::Less, Ties::All) => Ok(Outcome::Both),
            (Ordering::Less, _) => Ok(Outcome::One(SAME_TIME)),
            (Ordering::Equal, Ties::First | Ties::Last)
                if rows.compare(0..all)? == Ordering::Equal =>
            {
                Ok(Outcome::One(EQUAL_ROW))
            }
            (Ordering::Equal, _) => Err(self.unordered(columns, row)),
        }
    }

    /// The error of two rows at one time that the second column does not order.
    fn unordered(&self, columns: &[ArrayRef], row: usize) -> Stop {
        let of = match describe(&columns[..self.n_order - 1], row).as_str() {
            // No columns identify trajectories.
            "()" => "all rows are one trajectory, which has".to_string(),
            of => format!("trajectory {of} has"),
        };
        let shown = |at: usize| {
            let value = describe(std::slice::from_ref(&columns[at]), row);
            format!("{} = {value}", self.fields[at].name())
        };
        let (time, order) = (shown(self.n_order - 1), shown(self.order()));
        let advice = match self.ties {
            Ties::First | Ties::Last => {
                "rows of one time and order must be equal in all columns that are used"
            }
            Ties::Refused | Ties::All => {
                "keep one row for each, or take the first or last row of a time with `duplicates`"
            }
        };
        Stop::Failed(Error::input(format!(
            "{of} two rows at {time} and {order}, so that `time` does not order them; {advice}"
        )))
    }

    fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        RecordBatch::try_new(schema(&self.fields), columns).map_err(bug)
    }
}

/// A batch without its last column, which ordered rows that are resolved now.
pub(crate) fn without_order(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns: Vec<usize> = (0..batch.num_columns() - 1).collect();
    batch.project(&columns).map_err(bug)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::read::rows::layout::Layout;
    use crate::read::rows::layout::tests::{field, trajectories};
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Partition, trajectory, time, state and the column that orders rows at one time.
    type Row = (i64, i64, Option<i64>, i64, Option<i64>);

    fn layout(ties: Ties) -> Layout {
        let mut layout = trajectories(DataType::Int64, DataType::Int64, &[Step::Rows(1)]);
        layout.rules = TimeRules {
            ties,
            order: Some(field("n", DataType::Int64)),
            ..TimeRules::default()
        };
        layout
    }

    fn batch(rows: &[Row]) -> RecordBatch {
        let column = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let columns = vec![
            column(|r| Some(r.0)),
            column(|r| Some(r.1)),
            column(|r| r.2),
            column(|r| Some(r.3)),
            column(|r| r.4),
        ];
        RecordBatch::try_new(layout(Ties::All).numbered(), columns).unwrap()
    }

    fn rows_of(batch: &RecordBatch) -> Vec<Row> {
        let value = |at: usize, row: usize| {
            let column = batch.column(at).as_primitive::<Int64Type>();
            column.is_valid(row).then(|| column.value(row))
        };
        let row = |row: usize| {
            let own = |at: usize| value(at, row).unwrap();
            (own(0), own(1), value(2, row), own(3), value(4, row))
        };
        (0..batch.num_rows()).map(row).collect()
    }

    /// The rows that count, and those that were left out.
    fn resolved(ties: Ties, rows: &[Row], batch_rows: usize) -> Result<(Vec<Row>, Dropped), Stop> {
        let mut resolver = layout(ties).resolver(false).unwrap();
        let mut kept = Vec::new();
        for rows in rows.chunks(batch_rows) {
            for batch in resolver.push(&batch(rows))? {
                kept.extend(rows_of(&batch));
            }
        }
        if let Some(batch) = resolver.finish()? {
            kept.extend(rows_of(&batch));
        }
        assert_eq!(rows.len() as u64, kept.len() as u64 + resolver.n_left_out());
        Ok((kept, resolver.left_out))
    }

    const ROWS: [Row; 8] = [
        (0, 1, Some(4), 10, Some(1)),
        (0, 1, Some(5), 11, Some(1)),
        (0, 1, Some(5), 12, Some(3)),
        (0, 1, Some(5), 12, Some(3)),
        (0, 1, Some(5), 13, None),
        (0, 1, None, 14, Some(0)),
        (0, 1, Some(6), 15, Some(0)),
        (0, 2, Some(6), 16, Some(0)),
    ];

    #[test]
    fn the_first_or_the_last_row_of_a_time_counts() {
        let dropped = [("null time", 2), (EQUAL_ROW, 1), (SAME_TIME, 1)];
        let dropped: BTreeMap<_, u64> = dropped.map(|(why, n)| (why.into(), n)).into();
        for batch_rows in 1..=ROWS.len() {
            for (ties, state) in [(Ties::First, 11), (Ties::Last, 12)] {
                let (kept, left_out) = resolved(ties, &ROWS, batch_rows).unwrap();
                let states: Vec<i64> = kept.iter().map(|row| row.3).collect();
                assert_eq!(states, [10, state, 15, 16]);
                assert_eq!(left_out.0, dropped);
            }
        }
    }

    #[test]
    fn rows_that_the_second_column_does_not_order_are_an_error() {
        let mut rows = ROWS;
        rows[3].3 = 13;
        for ties in [Ties::First, Ties::Last, Ties::All] {
            for batch_rows in [1, 3, 9] {
                let Err(Stop::Failed(e)) = resolved(ties, &rows, batch_rows) else {
                    panic!("rows of one time and order");
                };
                let said = "trajectory (0, 1) has two rows at t = 5 and n = 3";
                assert!(e.to_string().contains(said), "{e}");
            }
        }
        // Where all rows count, equal ones cannot be told apart either.
        assert!(matches!(
            resolved(Ties::All, &ROWS, 9),
            Err(Stop::Failed(_))
        ));
        rows.swap(1, 2);
        let stopped = resolved(Ties::First, &rows, 9);
        assert!(matches!(stopped, Err(Stop::Unsorted)));
    }

    #[test]
    fn a_time_in_two_streams_is_found() {
        let resolver = |rows: &[Row]| {
            let mut resolver = layout(Ties::Last).resolver(false).unwrap();
            resolver.push(&batch(rows)).unwrap();
            resolver
        };
        let whole = [0..2, 2..3, 6..7, 7..8].map(|rows| resolver(&ROWS[rows]));
        assert!(whole[0].is_continued_by(&whole[1]).unwrap());
        assert!(!whole[1].is_continued_by(&whole[2]).unwrap());
        // Another trajectory at the same time.
        assert!(!whole[2].is_continued_by(&whole[3]).unwrap());
    }

    proptest! {
        #[test]
        fn ties_are_resolved_like_a_sort(
            mut rows in prop::collection::vec(
                (0i64..2, 0i64..2, (0i64..6).prop_map(Some), 0i64..2, (0i64..3).prop_map(Some)),
                1..60,
            ),
            batch_rows in 1usize..20,
            is_first: bool,
        ) {
            let ties = if is_first { Ties::First } else { Ties::Last };
            rows.sort_by_key(|row| (row.0, row.1, row.2, row.4));
            // Per time and order, the states; per time, the row that counts.
            let mut states: BTreeMap<_, Vec<i64>> = BTreeMap::new();
            let mut of_time: BTreeMap<_, Row> = BTreeMap::new();
            for &row in &rows {
                states.entry((row.0, row.1, row.2, row.4)).or_default().push(row.3);
                let own = of_time.entry((row.0, row.1, row.2)).or_insert(row);
                if !is_first { *own = row; }
            }
            let is_ordered = states.values().all(|own| own.iter().all(|s| *s == own[0]));
            match resolved(ties, &rows, batch_rows) {
                Ok((kept, left_out)) => {
                    prop_assert!(is_ordered);
                    prop_assert_eq!(kept, of_time.into_values().collect::<Vec<_>>());
                    let equal = states.values().map(|own| own.len() as u64 - 1).sum::<u64>();
                    prop_assert_eq!(left_out.0.get(EQUAL_ROW).copied().unwrap_or(0), equal);
                }
                Err(Stop::Failed(_)) => prop_assert!(!is_ordered),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }
}
