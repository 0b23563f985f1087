//! Sums ↔ a table: the integer counts of some rows, in a form that can be added to the counts of
//! other rows.
//!
//! Columns, addressed by position because names may repeat: partition keys, index of the lag in the
//! layout, source state, target state, group (if the layout has groups), count, labels. Rows are
//! ordered by partition, lag, source and target. Rows without a target come first and have count 0:
//! some list every partition, others hold the labels of a source state.

use crate::error::{Error, Result};
use crate::read::counts::merge::{CountSums, Slot, add_up};
use crate::read::counts::stream::{Worker, assign_labels};
use crate::read::counts::tally::{pack, unpack};
use crate::read::rows::keys::NONE;
use crate::read::rows::layout::{Layout, RowRoles, schema};
use crate::read::rows::ranges::{partition_ids, ranges, spread};
use crate::read::rows::stop::{Dropped, Mode, Stop, bug};
use crate::read::rows::tag::{Tag, too_many_states};
use crate::read::rows::time_rules::TimeCounts;
use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array, new_null_array,
};
use arrow::compute::{concat, take, take_arrays};
use arrow::datatypes::{DataType, Field, SchemaRef, UInt32Type, UInt64Type};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The columns of a table of sums.
pub(crate) fn fields(layout: &Layout) -> Vec<Field> {
    let (source, target) = layout.evidence.states();
    let mut fields = layout.partition.clone();
    fields.push(Field::new("lag", DataType::UInt32, true));
    fields.extend(source.output_fields());
    fields.extend(target.output_fields());
    if layout.tag() != Tag::NONE {
        fields.push(Field::new("group", DataType::UInt32, true));
    }
    fields.push(Field::new("count", DataType::UInt64, true));
    fields.extend(layout.given.iter().cloned());
    fields
}

/// The columns by which tables of sums are sharded: the partition keys, or the source state without
/// partitions.
pub(crate) fn keys(layout: &Layout) -> Range<usize> {
    match layout.partition.len() {
        0 => 1..1 + layout.evidence.states().0.len(),
        n => 0..n,
    }
}

/// The Arrow schema of a table of sums.
pub(crate) fn sums_schema(layout: &Layout) -> SchemaRef {
    schema(&fields(layout))
}

impl CountSums {
    /// Writes these sums as a table. The counts must be integers.
    ///
    /// # Errors
    /// [`Kind::Bug`](crate::error::Kind::Bug) if the columns do not fit the layout.
    pub(crate) fn table(&self, layout: &Layout) -> Result<Vec<RecordBatch>> {
        let mut batches = vec![self.marks(layout)?];
        for (at, slot) in self.slots.iter().enumerate() {
            let (partition, lag) = (at / layout.n_lags(), at % layout.n_lags());
            batches.extend(self.slot(layout, slot, partition as u32, lag as u32)?);
        }
        Ok(batches)
    }

    fn slot(
        &self,
        layout: &Layout,
        slot: &Slot,
        partition: u32,
        lag: u32,
    ) -> Result<Vec<RecordBatch>> {
        let tag = layout.tag();
        let pieces = slot.pieces.iter().filter(|rows| !rows.columns.is_empty());
        pieces
            .map(|rows| {
                let n = rows.columns.len();
                let (mut sources, mut targets) = (Vec::with_capacity(n), Vec::with_capacity(n));
                let mut counts = Vec::with_capacity(n);
                for (source, target, count) in rows.entries() {
                    sources.push(source);
                    targets.push(tag.state(target));
                    counts.push(count);
                }
                let mut columns = take_rows(&self.partitions, &vec![partition; n])?;
                columns.push(Arc::new(UInt32Array::from(vec![lag; n])));
                columns.extend(self.sources.columns(&sources)?);
                columns.extend(self.targets.columns(&targets)?);
                if tag != Tag::NONE {
                    let groups = rows.columns.iter().map(|&target| tag.group(target));
                    columns.push(Arc::new(UInt32Array::from_iter_values(groups)));
                }
                columns.push(Arc::new(UInt64Array::from(counts)));
                for field in &layout.given {
                    columns.push(new_null_array(field.data_type(), n));
                }
                batch(layout, columns)
            })
            .collect()
    }

    /// The rows without a target: every partition, and the labels of source states.
    fn marks(&self, layout: &Layout) -> Result<RecordBatch> {
        // Maps (partition, state) to the index of its label in each given column.
        let mut labels: BTreeMap<u64, Vec<Option<u32>>> = BTreeMap::new();
        for (at, (of, _)) in self.given.iter().enumerate() {
            for (&state, &label) in of {
                let labels = labels.entry(state);
                labels.or_insert_with(|| vec![None; self.given.len()])[at] = Some(label);
            }
        }
        let n_bare = self.n_partitions;
        let partitions = (0..n_bare as u32).chain(labels.keys().map(|&state| unpack(state).0));
        let partitions: Vec<u32> = partitions.collect();
        let (n, (_, target)) = (partitions.len(), layout.evidence.states());
        let sources: Vec<u32> = labels.keys().map(|&state| unpack(state).1).collect();
        let mut columns = take_rows(&self.partitions, &partitions)?;
        columns.push(Arc::new(UInt32Array::from(vec![0; n])));
        for column in self.sources.columns(&sources)? {
            columns.push(after_nulls(n_bare, &column)?);
        }
        for field in target.output_fields() {
            columns.push(new_null_array(field.data_type(), n));
        }
        if layout.tag() != Tag::NONE {
            columns.push(Arc::new(UInt32Array::from(vec![0; n])));
        }
        columns.push(Arc::new(UInt64Array::from(vec![0; n])));
        for (at, (_, names)) in self.given.iter().enumerate() {
            let places = UInt32Array::from_iter(labels.values().map(|labels| labels[at]));
            let column = take(names, &places, None).map_err(bug)?;
            columns.push(after_nulls(n_bare, &column)?);
        }
        batch(layout, columns)
    }
}

fn batch(layout: &Layout, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(schema(&fields(layout)), columns).map_err(bug)
}

fn take_rows(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows.to_vec());
    take_arrays(columns, &rows, None).map_err(bug)
}

/// Prepends `n` nulls to a column.
fn after_nulls(n: usize, column: &ArrayRef) -> Result<ArrayRef> {
    let nulls = new_null_array(column.data_type(), n);
    concat(&[&nulls, column]).map_err(bug)
}

/// Adds up tables of sums. `rows` and `dropped` are the totals that all tables together stand for.
/// `direct`: integer states may be used as ids.
///
/// # Errors
/// A table whose columns do not match `layout`.
pub(crate) fn restore(
    layout: &Arc<Layout>,
    tables: &[Vec<RecordBatch>],
    direct: bool,
    rows: u64,
    (dropped, time): (Dropped, TimeCounts),
) -> Result<CountSums> {
    let once = |mode| {
        let mut workers = Vec::with_capacity(tables.len());
        for table in tables {
            let mut worker = Worker::<u32>::new(layout, mode, true)?;
            table.iter().try_for_each(|batch| worker.push_sums(batch))?;
            workers.push(worker);
        }
        add_up(layout, mode, workers, Vec::new())
    };
    let mut mode = Mode {
        direct,
        ..Mode::FIRST
    };
    let mut sums = loop {
        match once(mode) {
            Ok(sums) => break sums,
            Err(stop) => mode = mode.wider(stop)?,
        }
    };
    (sums.rows, sums.dropped, sums.time) = (rows, dropped, time);
    Ok(sums)
}

impl Worker<u32> {
    /// Adds rows of a table of sums.
    fn push_sums(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let layout = Arc::clone(&self.layout);
        let expected = fields(&layout);
        let types = batch.columns().iter().map(|column| column.data_type());
        if !types.eq(expected.iter().map(Field::data_type)) {
            let what = "a table of the ledger has different columns than it was written with";
            return Err(Error::input(what).into());
        }
        let rows = batch.num_rows();
        let (source, target) = layout.evidence.states();
        let (by_partition, rest) = batch.columns().split_at(layout.partition.len());
        let (lags, rest) = (rest[0].as_primitive::<UInt32Type>(), &rest[1..]);
        let (source_columns, rest) = rest.split_at(source.len());
        let (target_columns, rest) = rest.split_at(target.len());
        let tag = layout.tag();
        let (groups, rest) = rest.split_at(usize::from(tag != Tag::NONE));
        let counts = rest[0].as_primitive::<UInt64Type>();
        let given = &rest[1..];
        if rows == 0 {
            return Ok(());
        }

        let key_ranges = ranges(by_partition, rows)?;
        let partitions = partition_ids(&mut self.partitions, by_partition, &key_ranges)?;
        // Rows without a state were not dropped from the input: they are not counted as dropped.
        let dropped = &mut Dropped::default();
        let (mut sources, mut targets) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        if let RowRoles::Windows { block, .. } = layout.evidence {
            self.word_ids(source_columns, block + 1, &mut sources)?;
            self.word_ids(target_columns, block, &mut targets)?;
            self.tallies.check_words()?;
        } else {
            self.states.ids(source_columns, dropped, &mut sources)?;
            let of_targets = self.targets.as_mut().unwrap_or(&mut self.states);
            of_targets.ids(target_columns, dropped, &mut targets)?;
        }
        if let [groups] = groups {
            let groups = groups.as_primitive::<UInt32Type>().values();
            for (target, &group) in targets.iter_mut().zip(groups).filter(|(t, _)| **t != NONE) {
                if *target >= tag.room() {
                    return Err(if self.mode.direct {
                        Stop::WideStates
                    } else {
                        Stop::Failed(too_many_states(tag))
                    });
                }
                *target = tag.with(*target, group);
            }
        }
        if given.iter().any(|column| column.null_count() < rows) {
            let of_rows = spread(&key_ranges, &partitions);
            assign_labels(&mut self.labels, given, &of_rows, &sources)?;
        }
        for (key_range, &partition) in key_ranges.iter().zip(&partitions) {
            let (tallies, accepted) = self.tallies.of(partition, layout.n_lags());
            for at in key_range.clone().filter(|&at| targets[at] != NONE) {
                let tally = &mut tallies[lags.value(at) as usize];
                let pair = pack(sources[at], targets[at]);
                *accepted += u128::from(counts.value(at));
                tally.add_all(pair, counts.value(at));
            }
        }
        Ok(())
    }

    /// The ids of words of `length` symbols, whose columns are in the order of
    /// [`StateColumns::word`](crate::read::rows::states::StateColumns::word).
    fn word_ids(
        &mut self,
        columns: &[ArrayRef],
        length: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), Stop> {
        let symbol = self.states.columns();
        let (n_keys, n_bins) = (symbol.keys.len(), symbol.bins.len());
        let (keys, bins) = columns.split_at(n_keys * length);
        let mut symbols: Vec<Vec<u32>> = Vec::with_capacity(length);
        for at in 0..length {
            let of_symbol = keys[at * n_keys..][..n_keys].iter();
            let of_symbol = of_symbol.chain(&bins[at * n_bins..][..n_bins]);
            let of_symbol: Vec<ArrayRef> = of_symbol.cloned().collect();
            let mut of_rows = Vec::new();
            let dropped = &mut Dropped::default();
            self.states.ids(&of_symbol, dropped, &mut of_rows)?;
            symbols.push(of_rows);
        }
        let no_words = || Error::bug("a layout of windows has no words");
        let words = self.tallies.words.as_mut().ok_or_else(no_words)?;
        let mut word = Vec::with_capacity(length);
        ids.extend((0..columns[0].len()).map(|row| {
            word.clear();
            word.extend(symbols.iter().map(|symbols| symbols[row]));
            if word.contains(&NONE) {
                NONE
            } else {
                words.id(word.iter().copied())
            }
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::matrix::CountMatrix;
    use crate::evidence::lag::Step;
    use crate::read::counts::counted::Counted;
    use crate::read::rows::layout::tests::{field, grouped, trajectories};
    use crate::read::rows::stop::Order;
    use arrow::array::{Int64Array, StringArray};

    fn layout(named: bool) -> Arc<Layout> {
        let state = if named {
            DataType::Utf8
        } else {
            DataType::Int64
        };
        let lags = [Step::Ticks(1), Step::Rows(2)];
        Arc::new(Layout {
            given: vec![field("half", DataType::Utf8)],
            ..grouped(trajectories(DataType::Utf8, state, &lags), 5)
        })
    }

    /// Rows of a trajectory in group `g` at some times; group z has a single row.
    fn batch(layout: &Layout, g: &str, id: i64, times: std::ops::Range<i64>) -> RecordBatch {
        let n = times.clone().count();
        let state = |t: i64| t * t % 7;
        let texts = |of: &dyn Fn(i64) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(times.clone().map(of)))
        };
        let integers = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(times.clone().map(of)))
        };
        let RowRoles::Trajectories { state: s, .. } = &layout.evidence else {
            unreachable!("the layout is one of trajectories");
        };
        let states = match s.keys[0].data_type() {
            DataType::Utf8 => texts(&|t| format!("s{}", state(t))),
            _ => integers(&state),
        };
        let half = texts(&|t| ["even", "odd"][state(t) as usize % 2].to_string());
        let columns = vec![
            Arc::new(StringArray::from(vec![g; n])) as ArrayRef,
            integers(&|_| id),
            integers(&|t| t),
            states,
            half,
            integers(&|_| id),
        ];
        RecordBatch::try_new(layout.numbered(), columns).unwrap()
    }

    /// The sums of some batches, minus those of rows among them.
    fn sums(layout: &Arc<Layout>, batches: &[RecordBatch], minus: &[RecordBatch]) -> CountSums {
        let order = Order::Any { bytes: 1 << 25 };
        let mode = Mode {
            order,
            ..Mode::FIRST
        };
        let worker = |batches: &[RecordBatch]| {
            let mut worker = Worker::<u32>::new(layout, mode, true).unwrap();
            batches.iter().for_each(|b| worker.push(b).unwrap());
            worker
        };
        let minus = Vec::from_iter((!minus.is_empty()).then(|| worker(minus)));
        add_up(layout, mode, vec![worker(batches)], minus).unwrap()
    }

    fn check_same(one: &Counted, other: &Counted) {
        assert_eq!(one.partitions, other.partitions);
        assert_eq!(one.labels, other.labels);
        assert_eq!((one.rows, &one.dropped), (other.rows, &other.dropped));
        assert_eq!(one.counts.len(), other.counts.len());
        for (a, b) in one.counts.iter().zip(&other.counts) {
            let states = |c: &Counted, ids: &[u32]| c.sources.columns(ids).unwrap();
            assert_eq!(
                states(one, &a.source_states),
                states(other, &b.source_states)
            );
            let values = |c: &CountMatrix| -> Vec<f64> {
                c.by_source
                    .iter()
                    .flat_map(|s| (0..s.nnz()).map(|at| s.values.get(at)))
                    .collect()
            };
            assert_eq!((a.total, values(a)), (b.total, values(b)));
            assert_eq!((&a.given, &a.groups), (&b.given, &b.groups));
        }
    }

    #[test]
    fn sums_of_parts_add_up_to_the_sums_of_the_whole() {
        for named in [true, false] {
            let layout = layout(named);
            let of = |g, id, times| batch(&layout, g, id, times);
            let all = [of("a", 1, 0..20), of("b", 1, 3..9), of("z", 4, 0..1)];
            let whole = sums(&layout, &all, &[]).counted(&layout).unwrap();
            let first = sums(&layout, &[of("a", 1, 0..12), of("z", 4, 0..1)], &[]);
            // Two rows are carried over: neither lag 1 nor two steps reaches further back.
            let carried = of("a", 1, 10..12);
            let more = [carried.clone(), of("a", 1, 12..20), of("b", 1, 3..9)];
            let second = sums(&layout, &more, &[carried]);
            assert_eq!((first.rows, second.rows), (13, 14));
            let tables = [&first, &second].map(|sums| sums.table(&layout).unwrap());
            let restored = restore(&layout, &tables, true, 27, Default::default()).unwrap();
            // Restoring a table and writing it again gives the same table.
            let again = restored.table(&layout).unwrap();
            let again = restore(&layout, &[again], true, 27, Default::default()).unwrap();
            check_same(&restored.counted(&layout).unwrap(), &whole);
            check_same(&again.counted(&layout).unwrap(), &whole);
        }
    }

    /// Small integers are their own ids until one occurs that is too large.
    #[test]
    fn a_later_table_may_have_large_integer_states() {
        let layout = layout(false);
        let all = batch(&layout, "a", 1, 0..20);
        let table = sums(&layout, &[all], &[]).table(&layout).unwrap();
        let negative = |column: &ArrayRef| -> ArrayRef {
            let column = column.as_primitive::<arrow::datatypes::Int64Type>();
            Arc::new(
                column
                    .iter()
                    .map(|s| s.map(|s| s - 9))
                    .collect::<Int64Array>(),
            )
        };
        let other: Vec<_> = table
            .iter()
            .map(|batch| {
                let mut columns = batch.columns().to_vec();
                (columns[2], columns[3]) = (negative(&columns[2]), negative(&columns[3]));
                RecordBatch::try_new(batch.schema(), columns).unwrap()
            })
            .collect();
        let both = restore(&layout, &[table, other], true, 40, Default::default()).unwrap();
        let counted = both.counted(&layout).unwrap();
        let alone = counted.counts[0].source_states.len();
        assert_eq!(alone % 2, 0);
        assert_eq!(counted.counts[0].total, 38);
    }
}
