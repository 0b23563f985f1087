//! Counts the rows of one stream of batches, in local ids.

use super::keys::{Keys, NONE};
use super::states::States;
use super::tally::{Tally, pack};
use super::walk::{Disorder, Step, Walker};
use super::{Dropped, Evidence, Layout, Measure, Mode, Stop, describe, time};
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
    mode: Mode,
    pub(super) states: States,
    /// Target states of pairs; trajectories have one kind of states.
    pub(super) targets: Option<States>,
    pub(super) partitions: Option<Keys>,
    pub(super) labels: Vec<Labels>,
    pub(super) tallies: Tallies,
    /// Pairs with a given count, or the bits of a given weight, by partition.
    pub(super) measured: Vec<Vec<(u64, u64)>>,
    pub(super) rows: u64,
    pub(super) dropped: Dropped,
    pub(super) groups: Option<Groups>,
}

/// Pairs by `partition × n_lags + lag`, and how many were accepted.
#[derive(Default)]
pub(super) struct Tallies {
    pub by_slot: Vec<Tally>,
    pub accepted: u64,
}

impl Tallies {
    /// Room for the slots of a partition.
    pub fn reserve(&mut self, partition: u32, n_lags: usize) {
        let slots = (partition as usize + 1) * n_lags;
        if self.by_slot.len() < slots {
            self.by_slot.resize_with(slots, Tally::default);
        }
    }

    /// Follows a trajectory of a partition through its next rows.
    pub fn walk(
        &mut self,
        walker: &mut Walker,
        partition: u32,
        n_lags: usize,
        times: &[i64],
        states: &[u32],
    ) -> Result<(), Disorder> {
        self.reserve(partition, n_lags);
        let slots = &mut self.by_slot[partition as usize * n_lags..][..n_lags];
        let accepted = &mut self.accepted;
        walker.push(times, states, |lag, source, target| {
            if source != NONE && target != NONE {
                slots[lag].add(pack(source, target));
                *accepted += 1;
            }
        })
    }
}

/// Follows the groups (partition, trajectory) of one stream.
pub(super) struct Groups {
    converter: RowConverter,
    /// The group of the last row in row format.
    pub current: Option<Box<[u8]>>,
    pub partition: u32,
    pub walker: Walker,
    /// The rows of the first group are kept, because its trajectory may have begun in the stream before.
    pub in_head: bool,
    pub head: Head,
}

#[derive(Default)]
pub(super) struct Head {
    pub group: Box<[u8]>,
    pub partition: u32,
    pub times: Vec<i64>,
    pub states: Vec<u32>,
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
        let (states, targets, groups) = match &layout.evidence {
            Evidence::Trajectories {
                trajectory,
                state,
                lags,
                strided,
                ..
            } => {
                let groups = Groups::new(layout, trajectory, lags, *strided, first)?;
                (States::new(state, mode.direct)?, None, Some(groups))
            }
            Evidence::Pairs { source, target, .. } => (
                States::new(source, mode.direct)?,
                Some(States::new(target, mode.direct)?),
                None,
            ),
        };
        let labels = layout.given.iter().map(|f| {
            let keys = Keys::new(&types(std::slice::from_ref(f)))?;
            Ok(Labels {
                keys,
                of: HashMap::new(),
                conflict: None,
            })
        });
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
            measured: Vec::new(),
            rows: 0,
            dropped: Dropped::default(),
            groups,
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

        let ranges = if n_group == 0 {
            std::iter::once(0..rows).collect()
        } else {
            partition(&columns[..n_group]).map_err(bug)?.ranges()
        };
        let starts = first_rows(&columns[..n_group], &ranges)?;
        let partitions = self.partition_ids(&starts[..n_partition], ranges.len())?;
        self.give_labels(
            &columns[n_group + 1 + n_state..],
            &ranges,
            &partitions,
            &states,
        )?;
        let Some(groups) = &mut self.groups else {
            return Ok(());
        };
        let keys = groups.converter.convert_columns(&starts).map_err(bug)?;
        let n_lags = self.layout.n_lags();
        for (at, range) in ranges.into_iter().enumerate() {
            // Without group columns all rows are one trajectory.
            let key = if n_group == 0 {
                &[][..]
            } else {
                keys.row(at).data()
            };
            if groups.current.as_deref() != Some(key) {
                groups.begin(key, partitions[at], self.mode.sorted)?;
            }
            let (times, states) = (&times[range.clone()], &states[range.clone()]);
            if groups.in_head {
                groups.head.times.extend_from_slice(times);
                groups.head.states.extend_from_slice(states);
            } else {
                self.tallies
                    .walk(&mut groups.walker, partitions[at], n_lags, times, states)
                    .map_err(|disorder| {
                        disordered(
                            disorder,
                            || describe(&columns[..n_group], range.start),
                            time,
                        )
                    })?;
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
        let ranges = if n_partition == 0 {
            std::iter::once(0..rows).collect()
        } else {
            partition(&columns[..n_partition]).map_err(bug)?.ranges()
        };
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
        let weights = match measure {
            Measure::One => None,
            Measure::Count(field) => {
                Some(counts(&weights[0], field.name(), place, &mut self.dropped)?)
            }
            Measure::Weight(field) => Some(weight_bits(
                &weights[0],
                field.name(),
                place,
                &mut self.dropped,
            )?),
        };
        self.give_labels(given, &ranges, &partitions, &sources)?;
        for (range, &partition) in ranges.iter().zip(&partitions) {
            self.tallies.reserve(partition, 1);
            if self.measured.len() <= partition as usize {
                self.measured.resize_with(partition as usize + 1, Vec::new);
            }
            for at in range.clone() {
                let (source, target) = (sources[at], targets[at]);
                if source == NONE || target == NONE {
                    continue;
                }
                match &weights {
                    None => {
                        self.tallies.by_slot[partition as usize].add(pack(source, target));
                        self.tallies.accepted += 1;
                    }
                    Some(weights) if weights[at] > 0 => {
                        self.measured[partition as usize].push((pack(source, target), weights[at]))
                    }
                    Some(_) => (),
                }
            }
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
        ranges: &[Range<usize>],
        partitions: &[u32],
        states: &[u32],
    ) -> Result<()> {
        for (labels, column) in self.labels.iter_mut().zip(columns) {
            let mut ids = Vec::with_capacity(states.len());
            labels.keys.intern(std::slice::from_ref(column), &mut ids)?;
            for (range, &partition) in ranges.iter().zip(partitions) {
                range
                    .clone()
                    .for_each(|at| labels.give(partition, states[at], ids[at]));
            }
        }
        Ok(())
    }
}

impl Groups {
    fn new(
        layout: &Layout,
        trajectory: &[Field],
        lags: &[Step],
        strided: bool,
        first: bool,
    ) -> Result<Groups> {
        let fields = layout
            .partition
            .iter()
            .chain(trajectory)
            .map(|f| SortField::new(f.data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields).map_err(|e| {
            Error::with_source(
                Kind::Input,
                "a trajectory or partition column has a type that cannot be a key",
                e,
            )
        })?;
        let walker = Walker::new(lags, strided);
        Ok(Groups {
            converter,
            current: None,
            partition: 0,
            walker,
            in_head: !first,
            head: Head::default(),
        })
    }

    /// A row of another group than the row before.
    fn begin(&mut self, key: &[u8], partition: u32, sorted: bool) -> Result<(), Stop> {
        match &self.current {
            Some(current) if !sorted && **current > *key => return Err(Stop::Unsorted),
            Some(_) => self.in_head = false,
            None => (self.head.group, self.head.partition) = (key.into(), partition),
        }
        self.walker.restart();
        self.partition = partition;
        self.current = Some(key.into());
        Ok(())
    }

    /// A group in words.
    pub fn describe(&self, group: &[u8]) -> String {
        let columns = self
            .converter
            .convert_rows([self.converter.parser().parse(group)]);
        columns.map_or_else(|e| e.to_string(), |columns| describe(&columns, 0))
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
    let counts: Vec<u64> = counts.iter().map(|n| n.unwrap_or(0)).collect();
    dropped.add(
        "count of zero",
        counts.iter().filter(|&&n| n == 0).count() as u64 - column.null_count() as u64,
    );
    Ok(counts)
}

/// Given weights as bits; 0 where the row weighs nothing.
fn weight_bits(
    column: &ArrayRef,
    name: &str,
    place: impl Fn(usize) -> String,
    dropped: &mut Dropped,
) -> Result<Vec<u64>, Stop> {
    let weights = cast(column, &DataType::Float64).map_err(bug)?;
    let weights = weights.as_primitive::<Float64Type>();
    let mut bits = Vec::with_capacity(weights.len());
    for (at, weight) in weights.iter().enumerate() {
        bits.push(match weight {
            None => {
                dropped.add("null weight", 1);
                0
            }
            Some(w) if w.is_nan() => {
                dropped.add("NaN weight", 1);
                0
            }
            Some(w) if w < 0.0 || w.is_infinite() => {
                return Err(Stop::Failed(Error::input(format!(
                    "`{name}` = {w} for {} is no weight; weights are finite and 0 or more",
                    place(at)
                ))));
            }
            Some(0.0) => {
                dropped.add("weight of zero", 1);
                0
            }
            Some(w) => w.to_bits(),
        });
    }
    Ok(bits)
}

fn bug(e: arrow::error::ArrowError) -> Stop {
    Stop::Failed(Error::with_source(
        Kind::Bug,
        "a column cannot be read as its type",
        e,
    ))
}
