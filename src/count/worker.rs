//! Counts the rows of one stream of batches, in local ids.

use super::gather::Gathered;
use super::keys::{Keys, NONE, integers};
use super::states::States;
use super::tally::{Tally, pack};
use super::walk::{Disorder, Step, Walker};
use super::{Dropped, Evidence, LARGEST_TOTAL, Layout, Measure, Mode, Order, Stop, describe, time};
use crate::error::{Error, Kind, Result};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, filter, is_not_null, partition, take};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Counts the rows of one stream.
pub struct Worker {
    pub(super) layout: Arc<Layout>,
    pub(super) mode: Mode,
    pub(super) states: States,
    /// Target states of pairs; trajectories have one kind of states.
    pub(super) targets: Option<States>,
    pub(super) partitions: Option<Keys>,
    pub(super) labels: Vec<Labels>,
    pub(super) tallies: Tallies,
    /// Pairs with a given weight, by partition.
    pub(super) weighted: Vec<Vec<(u64, f64)>>,
    pub(super) rows: u64,
    pub(super) dropped: Dropped,
    pub(super) way: Way,
}

/// How the rows of a stream become pairs.
pub(super) enum Way {
    /// They are pairs.
    Pairs,
    /// Trajectories one after another.
    Ordered(Groups),
    /// Trajectories in any order, walked at the end.
    Gathered(Gathered),
}

/// Pairs by `partition × n_lags + lag`, and how many were accepted.
#[derive(Default)]
pub(super) struct Tallies {
    pub by_slot: Vec<Tally>,
    pub accepted: u128,
}

impl Tallies {
    /// Room for the slots of a partition.
    pub fn reserve(&mut self, partition: u32, n_lags: usize) {
        let slots = (partition as usize + 1) * n_lags;
        if self.by_slot.len() < slots {
            self.by_slot.resize_with(slots, Tally::default);
        }
    }

    /// The slots of a partition.
    pub fn of(&mut self, partition: u32, n_lags: usize) -> &mut [Tally] {
        self.reserve(partition, n_lags);
        &mut self.by_slot[partition as usize * n_lags..][..n_lags]
    }

    /// Follows a trajectory of a partition through its next rows.
    #[inline]
    pub fn walk(
        &mut self,
        walker: &mut Walker,
        partition: u32,
        n_lags: usize,
        (times, states): (&[i64], &[u32]),
        goes_on: bool,
    ) -> Result<(), Disorder> {
        let mut accepted = 0;
        let slots = self.of(partition, n_lags);
        walker.push(times, states, goes_on, |lag, source, target| {
            if source != NONE && target != NONE {
                slots[lag].add(pack(source, target));
                accepted += 1;
            }
        })?;
        self.accepted += accepted;
        Ok(())
    }

    /// The pairs of a row that `walker` has kept and one of the rows that follow.
    pub fn join(
        &mut self,
        walker: &Walker,
        partition: u32,
        n_lags: usize,
        (times, states): (&[i64], &[u32]),
    ) -> Result<(), Disorder> {
        let mut accepted = 0;
        let slots = self.of(partition, n_lags);
        walker.join(times, states, |lag, source, target| {
            if source != NONE && target != NONE {
                slots[lag].add(pack(source, target));
                accepted += 1;
            }
        })?;
        self.accepted += accepted;
        Ok(())
    }
}

/// Follows the trajectories of one stream, partition after partition.
pub(super) struct Groups {
    converter: RowConverter,
    /// The trajectory of the last row, its partition, and how many partitions there were.
    pub current: Option<Group>,
    pub partition: u32,
    n_partitions: u32,
    pub walker: Walker,
    /// The stream is still in its first group, and no pair of it is counted.
    pub in_head: bool,
    pub head: Head,
}

/// A trajectory; within a partition they compare as their columns do.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) enum Group {
    /// One integer column.
    Integer(i64),
    /// Any columns in row format.
    Row(Box<[u8]>),
}

/// The first rows of the first group, because its trajectory may have begun in the stream before: so many that no pair joins a row
/// before them with one after them, or all there are.
#[derive(Default)]
pub(super) struct Head {
    pub group: Option<Group>,
    pub partition: u32,
    pub times: Vec<i64>,
    pub states: Vec<u32>,
    /// Whether the pairs among these rows are counted; the stream's walker has gone on from there.
    pub is_counted: bool,
}

/// The sets that one column gives to the source states.
pub(super) struct Labels {
    pub keys: Keys,
    /// (partition, state) → label.
    pub of: HashMap<u64, u32>,
    /// A state that was given two labels, and the labels.
    pub conflict: Option<(u64, [u32; 2])>,
}

impl Labels {
    pub fn new(field: &Field) -> Result<Labels> {
        Ok(Labels {
            keys: Keys::new(&types(std::slice::from_ref(field)))?,
            of: HashMap::new(),
            conflict: None,
        })
    }

    pub fn give(&mut self, partition: u32, state: u32, label: u32) {
        if state != NONE && label != NONE {
            let state = pack(partition, state);
            let first = *self.of.entry(state).or_insert(label);
            if first != label {
                self.conflict.get_or_insert((state, [first, label]));
            }
        }
    }
}

fn types(fields: &[Field]) -> Vec<DataType> {
    fields.iter().map(|f| f.data_type().clone()).collect()
}

impl Worker {
    /// A worker for a stream; `first` says that no stream comes before it.
    pub fn new(layout: &Arc<Layout>, mode: Mode, first: bool) -> Result<Worker> {
        let (states, targets, way) = match &layout.evidence {
            Evidence::Trajectories {
                trajectory,
                state,
                lags,
                strided,
                ..
            } => {
                let way = match mode.order {
                    Order::Any { .. } => Way::Gathered(Gathered::new(layout, trajectory)?),
                    _ => Way::Ordered(Groups::new(trajectory, lags, *strided, first)?),
                };
                (States::new(state, mode.direct)?, None, way)
            }
            Evidence::Pairs { source, target, .. } => (
                States::new(source, mode.direct)?,
                Some(States::new(target, mode.direct)?),
                Way::Pairs,
            ),
        };
        let labels = layout.given.iter().map(Labels::new);
        Ok(Worker {
            layout: Arc::clone(layout),
            mode,
            states,
            targets,
            partitions: if layout.partition.is_empty() {
                None
            } else {
                Some(Keys::new(&types(&layout.partition))?)
            },
            labels: labels.collect::<Result<_>>()?,
            tallies: Tallies::default(),
            weighted: Vec::new(),
            rows: 0,
            dropped: Dropped::default(),
            way,
        })
    }

    /// Counts the next rows of the stream.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        self.rows += batch.num_rows() as u64;
        let layout = Arc::clone(&self.layout);
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (column, field) in batch.columns().iter().zip(layout.fields()) {
            let same = column.data_type() == field.data_type();
            columns.push(if same {
                Arc::clone(column)
            } else {
                cast(column, field.data_type()).map_err(bug)?
            });
        }
        match &layout.evidence {
            Evidence::Trajectories {
                trajectory,
                time,
                state,
                ..
            } => self.push_trajectories(columns, trajectory.len(), time, state.len()),
            Evidence::Pairs {
                source,
                target,
                measure,
            } => self.push_pairs(columns, source.len(), target.len(), measure),
        }
    }

    fn push_trajectories(
        &mut self,
        mut columns: Vec<ArrayRef>,
        n_trajectory: usize,
        time: &Field,
        n_state: usize,
    ) -> Result<(), Stop> {
        let n_partition = self.layout.partition.len();
        let n_group = n_partition + n_trajectory;
        columns[n_group] = time::without_nan(&columns[n_group], &mut self.dropped)?;
        let reason = |at| match at {
            at if at < n_partition => "null partition",
            at if at < n_group => "null trajectory",
            _ => "null time",
        };
        drop_null_rows(&mut columns, n_group + 1, reason, &mut self.dropped)?;
        let rows = columns[n_group].len();
        if rows == 0 {
            return Ok(());
        }
        let times = time::ticks(&columns[n_group])?;
        let state_columns = &columns[n_group + 1..][..n_state];
        let mut states = Vec::with_capacity(rows);
        self.states
            .ids(state_columns, &mut self.dropped, &mut states)?;

        let given = &columns[n_group + 1 + n_state..];
        let group_columns = &columns[..n_group];
        match &mut self.way {
            Way::Pairs => return Err(Error::bug("a table of pairs has no trajectories").into()),
            Way::Gathered(gathered) => {
                let Order::Any { rows: room } = self.mode.order else {
                    return Err(Error::bug("rows are gathered that are ordered").into());
                };
                let partitions = &mut self.partitions;
                let of_rows = gathered.push(group_columns, partitions, &times, &states, room)?;
                self.give_labels(given, |at| of_rows[at], &states)?;
            }
            Way::Ordered(_) => {
                let (by_partition, by_trajectory) = group_columns.split_at(n_partition);
                let spells = ranges(by_partition, rows)?;
                let starts = first_rows(by_partition, &spells)?;
                let partitions = self.partition_ids(&starts, spells.len())?;
                if !given.is_empty() {
                    let of_rows = spread(&spells, &partitions);
                    self.give_labels(given, |at| of_rows[at], &states)?;
                }
                let Way::Ordered(groups) = &mut self.way else {
                    return Ok(());
                };
                let one_integer = match by_trajectory {
                    [one] => integers(one),
                    _ => None,
                };
                let one_integer = one_integer.as_ref().map(|values| &values.values()[..]);
                let (runs, keys) = match one_integer {
                    Some(values) => (integer_runs(values, &times, &spells), None),
                    None if n_trajectory == 0 => {
                        (spells.iter().cloned().map(Run::One).collect(), None)
                    }
                    None => {
                        let runs = ranges(group_columns, rows)?;
                        let starts = first_rows(by_trajectory, &runs)?;
                        let keys = groups.converter.convert_columns(&starts).map_err(bug)?;
                        (runs.into_iter().map(Run::One).collect(), Some(keys))
                    }
                };
                let n_lags = self.layout.n_lags();
                let mut spell = 0;
                for (at, run) in runs.into_iter().enumerate() {
                    let disordered =
                        |disorder, at| disordered(disorder, || describe(group_columns, at), time);
                    let run = match run {
                        Run::One(run) => run,
                        Run::Whole(run) => {
                            let trajectories = &one_integer.unwrap_or_default()[run.clone()];
                            let piece = (&times[run.clone()], &states[run]);
                            groups.pass(&mut self.tallies, n_lags, trajectories, piece);
                            continue;
                        }
                        Run::Disordered(at) => {
                            let trajectories = one_integer.unwrap_or_default();
                            if trajectories[at] != trajectories[at + 1] {
                                return Err(Stop::Unsorted);
                            }
                            let (before, after) = (times[at], times[at + 1]);
                            return Err(disordered(Disorder { before, after }, at));
                        }
                    };
                    let group = match (one_integer, &keys) {
                        (Some(values), _) => Group::Integer(values[run.start]),
                        (None, Some(keys)) => Group::Row(keys.row(at).data().into()),
                        // Without trajectory columns all rows of a partition are one trajectory.
                        (None, None) => Group::Row(Box::default()),
                    };
                    while spells[spell].end <= run.start {
                        spell += 1;
                    }
                    groups.begin(group, partitions[spell], self.mode.order, &mut self.tallies)?;
                    let goes_on = run.end == rows;
                    let piece = (&times[run.clone()], &states[run.clone()]);
                    groups
                        .follow(&mut self.tallies, n_lags, piece, goes_on)
                        .map_err(|disorder| disordered(disorder, run.start))?;
                }
            }
        }
        Ok(())
    }

    fn push_pairs(
        &mut self,
        mut columns: Vec<ArrayRef>,
        n_source: usize,
        n_target: usize,
        measure: &Measure,
    ) -> Result<(), Stop> {
        let n_partition = self.layout.partition.len();
        drop_null_rows(
            &mut columns,
            n_partition,
            |_| "null partition",
            &mut self.dropped,
        )?;
        let rows = columns[0].len();
        if rows == 0 {
            return Ok(());
        }
        let ranges = ranges(&columns[..n_partition], rows)?;
        let partitions =
            self.partition_ids(&first_rows(&columns[..n_partition], &ranges)?, ranges.len())?;
        let (source_columns, rest) = columns[n_partition..].split_at(n_source);
        let (target_columns, rest) = rest.split_at(n_target);
        let (mut sources, mut targets) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        self.states
            .ids(source_columns, &mut self.dropped, &mut sources)?;
        if let Some(states) = &mut self.targets {
            states.ids(target_columns, &mut self.dropped, &mut targets)?;
        }
        let (weights, given) = rest.split_at(usize::from(*measure != Measure::One));
        let place = |at: usize| {
            format!(
                "{} → {}",
                describe(source_columns, at),
                describe(target_columns, at)
            )
        };
        let amounts = match measure {
            Measure::One => Amounts::Ones,
            Measure::Count(field) => {
                let name = field.name();
                Amounts::Counts(counts(&weights[0], name, place, &mut self.dropped)?)
            }
            Measure::Weight(field) => {
                let name = field.name();
                Amounts::Weights(self::weights(&weights[0], name, place, &mut self.dropped)?)
            }
        };
        if !given.is_empty() {
            let of_rows = spread(&ranges, &partitions);
            self.give_labels(given, |at| of_rows[at], &sources)?;
        }
        for (range, &partition) in ranges.iter().zip(&partitions) {
            if self.weighted.len() <= partition as usize {
                self.weighted.resize_with(partition as usize + 1, Vec::new);
            }
            let mut accepted = 0;
            let tally = &mut self.tallies.of(partition, 1)[0];
            let pairs = range
                .clone()
                .map(|at| (at, sources[at], targets[at]))
                .filter(|(_, source, target)| *source != NONE && *target != NONE)
                .map(|(at, source, target)| (at, pack(source, target)));
            match &amounts {
                Amounts::Ones => pairs.for_each(|(_, pair)| {
                    tally.add(pair);
                    accepted += 1;
                }),
                Amounts::Counts(counts) => pairs.for_each(|(at, pair)| {
                    accepted += u128::from(counts[at]);
                    let mut rest = counts[at];
                    while rest > 0 {
                        let part = rest.min(u64::from(u32::MAX));
                        tally.add_count(pair, part as u32);
                        rest -= part;
                    }
                }),
                Amounts::Weights(weights) => self.weighted[partition as usize].extend(
                    pairs
                        .map(|(at, pair)| (pair, weights[at]))
                        .filter(|(_, weight)| *weight > 0.0),
                ),
            }
            self.tallies.accepted += accepted;
        }
        Ok(())
    }

    /// The partition of each range from the partition keys of its first row.
    fn partition_ids(&mut self, starts: &[ArrayRef], n: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(n);
        match &mut self.partitions {
            Some(keys) => keys.intern(starts, &mut ids)?,
            None => ids.resize(n, 0),
        }
        Ok(ids)
    }

    fn give_labels(
        &mut self,
        columns: &[ArrayRef],
        partition: impl Fn(usize) -> u32,
        states: &[u32],
    ) -> Result<()> {
        for (labels, column) in self.labels.iter_mut().zip(columns) {
            let mut ids = Vec::with_capacity(states.len());
            labels.keys.intern(std::slice::from_ref(column), &mut ids)?;
            for (at, (&state, id)) in states.iter().zip(ids).enumerate() {
                labels.give(partition(at), state, id);
            }
        }
        Ok(())
    }
}

/// What the rows of a batch of pairs weigh.
enum Amounts {
    Ones,
    Counts(Vec<u64>),
    Weights(Vec<f64>),
}

/// Ranges of rows that are equal in all of some columns.
fn ranges(columns: &[ArrayRef], rows: usize) -> Result<Vec<Range<usize>>, Stop> {
    if columns.is_empty() {
        return Ok(std::iter::once(0..rows).collect());
    }
    Ok(partition(columns).map_err(bug)?.ranges())
}

/// Rows of a batch that are followed in one step.
enum Run {
    /// Rows of one trajectory.
    One(Range<usize>),
    /// Trajectories that begin and end here, in ascending order.
    Whole(Range<usize>),
    /// This row and the next are in no order.
    Disordered(usize),
}

/// Cuts each range into its first trajectory, its last one, and those between.
fn integer_runs(trajectories: &[i64], times: &[i64], within: &[Range<usize>]) -> Vec<Run> {
    let mut runs = Vec::new();
    for range in within {
        let own = &trajectories[range.clone()];
        let first = own.iter().take_while(|&&t| t == own[0]).count();
        if first == own.len() {
            runs.push(Run::One(range.clone()));
            continue;
        }
        let last = own
            .iter()
            .rev()
            .take_while(|&&t| t == own[own.len() - 1])
            .count();
        let (first, last) = (range.start + first, range.end - last);
        let ascends = |at: usize| {
            let (a, b) = (trajectories[at], trajectories[at + 1]);
            (a < b) | ((a == b) & (times[at] < times[at + 1]))
        };
        let inner = first - 1..last;
        // Without an early exit the comparison of neighbours is vectorised.
        if !inner.clone().fold(true, |all, at| all & ascends(at)) {
            let mut inner = inner;
            runs.extend(inner.find(|&at| !ascends(at)).map(Run::Disordered));
            return runs;
        }
        runs.push(Run::One(range.start..first));
        if first < last {
            runs.push(Run::Whole(first..last));
        }
        runs.push(Run::One(last..range.end));
    }
    runs
}

/// The partition of every row, from that of each range.
fn spread(ranges: &[Range<usize>], partitions: &[u32]) -> Vec<u32> {
    let rows = ranges.iter().zip(partitions);
    rows.flat_map(|(range, &partition)| std::iter::repeat_n(partition, range.len()))
        .collect()
}

impl Groups {
    fn new(trajectory: &[Field], lags: &[Step], strided: bool, first: bool) -> Result<Groups> {
        let fields = trajectory
            .iter()
            .map(|f| SortField::new(f.data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields).map_err(|e| {
            let what = "a trajectory column has a type that cannot be a key";
            Error::with_source(Kind::Input, what, e)
        })?;
        let walker = Walker::new(lags, strided);
        Ok(Groups {
            converter,
            current: None,
            partition: 0,
            n_partitions: 0,
            walker,
            in_head: !first,
            head: Head::default(),
        })
    }

    /// The trajectory of the next rows, which may be that of the rows before.
    fn begin(
        &mut self,
        group: Group,
        partition: u32,
        order: Order,
        tallies: &mut Tallies,
    ) -> Result<(), Stop> {
        let is_same_partition = self.n_partitions > 0 && partition == self.partition;
        match &self.current {
            Some(current) if is_same_partition => {
                if *current == group {
                    return Ok(());
                }
                if order != Order::Sorted && *current > group {
                    return Err(Stop::Unsorted);
                }
            }
            // Partitions are numbered as they appear: one that comes again has an old number.
            Some(_) if order != Order::Sorted && partition != self.n_partitions => {
                return Err(Stop::Unsorted);
            }
            _ => (),
        }
        match self.current {
            Some(_) => self.in_head = false,
            None => (self.head.group, self.head.partition) = (Some(group.clone()), partition),
        }
        if !is_same_partition {
            self.n_partitions += 1;
            // No more rows of the last partition are to come.
            let n_lags = self.walker.n_lags();
            let ended = tallies.of(self.partition, n_lags).iter_mut();
            ended.for_each(Tally::settle);
        }
        self.walker.restart();
        self.partition = partition;
        self.current = Some(group);
        Ok(())
    }

    /// The next rows of the present trajectory.
    #[inline]
    fn follow(
        &mut self,
        tallies: &mut Tallies,
        n_lags: usize,
        piece: (&[i64], &[u32]),
        goes_on: bool,
    ) -> Result<(), Disorder> {
        if !self.in_head {
            return tallies.walk(&mut self.walker, self.partition, n_lags, piece, goes_on);
        }
        let head = &mut self.head;
        head.times.extend_from_slice(piece.0);
        head.states.extend_from_slice(piece.1);
        if self.walker.is_spanned_by(&head.times) {
            head.is_counted = true;
            self.in_head = false;
            let head = (&head.times[..], &head.states[..]);
            tallies.walk(&mut self.walker, self.partition, n_lags, head, goes_on)?;
        }
        Ok(())
    }

    /// Counts trajectories that begin and end in one batch, between two others.
    fn pass(
        &mut self,
        tallies: &mut Tallies,
        n_lags: usize,
        trajectories: &[i64],
        (times, states): (&[i64], &[u32]),
    ) {
        let mut accepted = 0;
        let slots = tallies.of(self.partition, n_lags);
        self.walker
            .whole(trajectories, times, states, |lag, source, target| {
                if source != NONE && target != NONE {
                    slots[lag].add(pack(source, target));
                    accepted += 1;
                }
            });
        tallies.accepted += accepted;
    }

    /// A trajectory in words.
    pub fn describe(&self, group: &Group) -> String {
        match group {
            Group::Integer(value) => value.to_string(),
            Group::Row(bytes) => {
                let parser = self.converter.parser();
                let columns = self.converter.convert_rows([parser.parse(bytes)]);
                columns.map_or_else(|e| e.to_string(), |columns| describe(&columns, 0))
            }
        }
    }
}

/// Two rows of a trajectory at one time are an error; a step back in time only asks for sorting.
pub(super) fn disordered(
    disorder: Disorder,
    trajectory: impl Fn() -> String,
    time: &Field,
) -> Stop {
    if disorder.before != disorder.after {
        return Stop::Unsorted;
    }
    let at = time::show(disorder.after, time.data_type());
    Stop::Failed(Error::input(format!(
        "trajectory {} has two rows at {} = {at}; keep one row for each trajectory and time",
        trajectory(),
        time.name()
    )))
}

/// Removes the rows in which one of the first `n` columns is null.
fn drop_null_rows(
    columns: &mut [ArrayRef],
    n: usize,
    reason: impl Fn(usize) -> &'static str,
    dropped: &mut Dropped,
) -> Result<(), Stop> {
    for at in 0..n {
        let nulls = columns[at].null_count();
        if nulls > 0 {
            dropped.add(reason(at), nulls as u64);
            let keep: BooleanArray = is_not_null(&columns[at]).map_err(bug)?;
            for column in columns.iter_mut() {
                *column = filter(column, &keep).map_err(bug)?;
            }
        }
    }
    Ok(())
}

fn first_rows(columns: &[ArrayRef], ranges: &[Range<usize>]) -> Result<Vec<ArrayRef>, Stop> {
    let starts = UInt32Array::from_iter_values(ranges.iter().map(|r| r.start as u32));
    columns
        .iter()
        .map(|c| take(c, &starts, None))
        .collect::<Result<_, _>>()
        .map_err(bug)
}

/// Given counts; 0 where the row counts for nothing.
fn counts(
    column: &ArrayRef,
    name: &str,
    place: impl Fn(usize) -> String,
    dropped: &mut Dropped,
) -> Result<Vec<u64>, Stop> {
    if let Ok(signed) = cast(column, &DataType::Int64)
        && let Some(at) = (0..column.len())
            .find(|&at| signed.is_valid(at) && signed.as_primitive::<Int64Type>().value(at) < 0)
    {
        let n = signed.as_primitive::<Int64Type>().value(at);
        return Err(Stop::Failed(Error::input(format!(
            "`{name}` = {n} for {} is negative; counts are 0 or more",
            place(at)
        ))));
    }
    let counts = cast(column, &DataType::UInt64).map_err(bug)?;
    let counts = counts.as_primitive::<UInt64Type>();
    dropped.add("null count", counts.null_count() as u64);
    // Totals beyond what f64 holds are refused for the partition; how far beyond does not matter.
    let counts: Vec<u64> = counts
        .iter()
        .map(|n| n.unwrap_or(0).min(LARGEST_TOTAL + 1))
        .collect();
    dropped.add(
        "count of zero",
        counts.iter().filter(|&&n| n == 0).count() as u64 - column.null_count() as u64,
    );
    Ok(counts)
}

/// Given weights; 0 where the row weighs nothing.
fn weights(
    column: &ArrayRef,
    name: &str,
    place: impl Fn(usize) -> String,
    dropped: &mut Dropped,
) -> Result<Vec<f64>, Stop> {
    let given = cast(column, &DataType::Float64).map_err(bug)?;
    let given = given.as_primitive::<Float64Type>();
    let mut weights = Vec::with_capacity(given.len());
    for (at, weight) in given.iter().enumerate() {
        let (weight, reason) = match weight {
            None => (0.0, Some("null weight")),
            Some(w) if w.is_nan() => (0.0, Some("NaN weight")),
            Some(w) if w < 0.0 || w.is_infinite() => {
                return Err(Stop::Failed(Error::input(format!(
                    "`{name}` = {w} for {} is no weight; weights are finite and 0 or more",
                    place(at)
                ))));
            }
            Some(0.0) => (0.0, Some("weight of zero")),
            Some(w) => (w, None),
        };
        if let Some(reason) = reason {
            dropped.add(reason, 1);
        }
        weights.push(weight);
    }
    Ok(weights)
}

pub(super) fn bug(e: arrow::error::ArrowError) -> Stop {
    Stop::Failed(Error::with_source(
        Kind::Bug,
        "a column cannot be read as its type",
        e,
    ))
}
