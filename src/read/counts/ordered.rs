//! Follows the trajectories of one ordered stream and counts their pairs.

use crate::error::{Error, Result};
use crate::read::counts::lagged::{Disorder, Walker};
use crate::read::counts::tallies::Tallies;
use crate::read::counts::tally::Tally;
use crate::read::counts::weighted::Point;
use crate::read::rows::keys::{converter, integers};
use crate::read::rows::ranges::{first_rows, ranges};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Order, Stop, bug};
use crate::read::rows::time;
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use arrow::row::{RowConverter, Rows};
use std::ops::Range;

/// Follows the trajectories of one stream, partition after partition.
pub(crate) struct OrderedTrajectories<P> {
    pub converter: RowConverter,
    /// The trajectory of the last row, its partition, and the number of partitions so far.
    pub current: Option<TrajectoryKey>,
    pub partition: u32,
    n_partitions: u32,
    pub walker: Walker<P>,
    /// The stream is still in its first group, and none of its pairs are counted yet.
    pub in_head: bool,
    pub head: Head<P>,
}

/// A trajectory. Within a partition, trajectories compare as their columns do.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(crate) enum TrajectoryKey {
    /// One integer column.
    Integer(i64),
    /// Any columns in row format.
    Row(Box<[u8]>),
}

/// The first rows of the first group, whose trajectory may have started in the previous stream.
/// There are enough rows that no pair joins a row before them with a row after them, or all rows of
/// the group.
#[derive(Default)]
pub(crate) struct Head<P> {
    pub group: Option<TrajectoryKey>,
    pub partition: u32,
    pub times: Vec<i64>,
    pub points: Vec<P>,
    /// Whether the pairs among these rows are counted, and the walker of the stream has continued
    /// from there.
    pub is_counted: bool,
}

/// Rows of a batch of an ordered stream.
pub(crate) struct OrderedRows<'a, P> {
    /// The partition columns, then the trajectory columns.
    pub columns: &'a [ArrayRef],
    pub n_partition: usize,
    /// The column of times.
    pub time: &'a Field,
    /// The times of the rows in ticks.
    pub ticks: &'a [i64],
    pub points: &'a [P],
    /// The rows of each partition, one partition after the other.
    pub key_ranges: &'a [Range<usize>],
    /// The partition of each of these ranges.
    pub partitions: &'a [u32],
}

/// Rows of a batch that are followed in one step.
enum Run {
    /// Rows of one trajectory.
    One(Range<usize>),
    /// Trajectories that start and end in the batch, in ascending order.
    Whole(Range<usize>),
    /// This row and the next are out of order.
    Disordered(usize),
}

/// Splits each range into its first trajectory, its last one, and those between.
/// `TIES`: rows of a trajectory may have one time.
fn integer_runs<const TIES: bool>(
    trajectories: &[i64],
    times: &[i64],
    within: &[Range<usize>],
) -> Vec<Run> {
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
            let is_later = if TIES {
                times[at] <= times[at + 1]
            } else {
                times[at] < times[at + 1]
            };
            (a < b) | ((a == b) & is_later)
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

impl<P: Point> OrderedTrajectories<P> {
    pub(crate) fn new(
        trajectory: &[Field],
        walker: Walker<P>,
        first: bool,
    ) -> Result<OrderedTrajectories<P>> {
        let types = trajectory.iter().map(Field::data_type);
        Ok(OrderedTrajectories {
            converter: converter(types, "a trajectory column")?,
            current: None,
            partition: 0,
            n_partitions: 0,
            walker,
            in_head: !first,
            head: Head::default(),
        })
    }

    /// Follows the rows of a batch.
    pub(crate) fn push(
        &mut self,
        rows: &OrderedRows<'_, P>,
        order: Order,
        tallies: &mut Tallies,
    ) -> Result<(), Stop> {
        let (ticks, points, key_ranges) = (rows.ticks, rows.points, rows.key_ranges);
        let disordered =
            |disorder, at| disordered(disorder, || describe(rows.columns, at), rows.time);
        let one_integer = match &rows.columns[rows.n_partition..] {
            [one] => integers(one),
            _ => None,
        };
        let one_integer = one_integer.as_ref().map(|values| &values.values()[..]);
        let (runs, keys) = match one_integer {
            Some(values) if self.walker.has_ties() => {
                (integer_runs::<true>(values, ticks, key_ranges), None)
            }
            Some(values) => (integer_runs::<false>(values, ticks, key_ranges), None),
            None => self.runs_by_keys(rows)?,
        };
        let mut current = 0;
        for (at, run) in runs.into_iter().enumerate() {
            let run = match run {
                Run::One(run) => run,
                Run::Whole(run) => {
                    let trajectories = &one_integer.unwrap_or_default()[run.clone()];
                    let piece = (&ticks[run.clone()], &points[run]);
                    self.follow_whole(tallies, trajectories, piece);
                    continue;
                }
                Run::Disordered(at) => {
                    let trajectories = one_integer.unwrap_or_default();
                    if trajectories[at] != trajectories[at + 1] {
                        return Err(Stop::Unsorted);
                    }
                    let (before, after) = (ticks[at], ticks[at + 1]);
                    return Err(disordered(Disorder { before, after }, at));
                }
            };
            let group = match (one_integer, &keys) {
                (Some(values), _) => TrajectoryKey::Integer(values[run.start]),
                (None, Some(keys)) => TrajectoryKey::Row(keys.row(at).data().into()),
                // Without trajectory columns all rows of a partition are one trajectory.
                (None, None) => TrajectoryKey::Row(Box::default()),
            };
            while key_ranges[current].end <= run.start {
                current += 1;
            }
            self.begin(group, rows.partitions[current], order, tallies)?;
            let goes_on = run.end == ticks.len();
            let piece = (&ticks[run.clone()], &points[run.clone()]);
            self.follow(tallies, piece, goes_on)
                .map_err(|disorder| disordered(disorder, run.start))?;
        }
        Ok(())
    }

    /// The trajectories of a batch, and the key of each if there are trajectory columns.
    fn runs_by_keys(&self, rows: &OrderedRows<'_, P>) -> Result<(Vec<Run>, Option<Rows>), Stop> {
        let by_trajectory = &rows.columns[rows.n_partition..];
        if by_trajectory.is_empty() {
            let runs = rows.key_ranges.iter().cloned().map(Run::One);
            return Ok((runs.collect(), None));
        }
        let runs = ranges(rows.columns, rows.ticks.len())?;
        let starts = first_rows(by_trajectory, &runs)?;
        let keys = self.converter.convert_columns(&starts).map_err(bug)?;
        Ok((runs.into_iter().map(Run::One).collect(), Some(keys)))
    }

    /// Sets the trajectory of the next rows, which may be that of the previous rows.
    fn begin(
        &mut self,
        group: TrajectoryKey,
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
            // Partitions are numbered by first appearance, so a returning partition has an old
            // number.
            Some(_) if order != Order::Sorted && partition != self.n_partitions => {
                return Err(Stop::Unsorted);
            }
            _ => (),
        }
        match self.current {
            Some(_) => self.in_head = false,
            None => (self.head.group, self.head.partition) = (Some(group.clone()), partition),
        }
        if self.walker.has_rest() {
            let count = &mut P::counter(tallies, self.partition, self.walker.n_lags());
            self.walker.emit_rest(count);
        }
        if !is_same_partition {
            self.n_partitions += 1;
            // The last partition gets no more rows.
            let n_lags = self.walker.n_lags();
            let ended = tallies.of(self.partition, n_lags).0.iter_mut();
            ended.for_each(Tally::aggregate);
        }
        self.walker.restart();
        self.partition = partition;
        self.current = Some(group);
        Ok(())
    }

    /// Follows the next rows of the current trajectory.
    #[inline]
    fn follow(
        &mut self,
        tallies: &mut Tallies,
        piece: (&[i64], &[P]),
        goes_on: bool,
    ) -> Result<(), Disorder> {
        let n_lags = self.walker.n_lags();
        if !self.in_head {
            let count = P::counter(tallies, self.partition, n_lags);
            return self.walker.push(piece.0, piece.1, goes_on, count);
        }
        let head = &mut self.head;
        head.times.extend_from_slice(piece.0);
        head.points.extend_from_slice(piece.1);
        if self.walker.is_spanned_by(&head.times) {
            head.is_counted = true;
            self.in_head = false;
            let count = P::counter(tallies, self.partition, n_lags);
            self.walker
                .push(&head.times, &head.points, goes_on, count)?;
        }
        Ok(())
    }

    /// Counts trajectories that start and end in one batch, between two others.
    fn follow_whole(
        &mut self,
        tallies: &mut Tallies,
        trajectories: &[i64],
        (times, points): (&[i64], &[P]),
    ) {
        let count = P::counter(tallies, self.partition, self.walker.n_lags());
        self.walker.push_whole(trajectories, times, points, count);
    }

    /// A trajectory as messages show it.
    pub(crate) fn describe(&self, group: &TrajectoryKey) -> String {
        match group {
            TrajectoryKey::Integer(value) => value.to_string(),
            TrajectoryKey::Row(bytes) => {
                let parser = self.converter.parser();
                let columns = self.converter.convert_rows([parser.parse(bytes)]);
                columns.map_or_else(|e| e.to_string(), |columns| describe(&columns, 0))
            }
        }
    }
}

/// Two rows of a trajectory at one time are an error; a step back in time only asks for sorting.
pub(crate) fn disordered(
    disorder: Disorder,
    trajectory: impl Fn() -> String,
    time: &Field,
) -> Stop {
    if disorder.before != disorder.after {
        return Stop::Unsorted;
    }
    let (name, at) = (time.name(), time::show(disorder.after, time.data_type()));
    Stop::Failed(Error::input(match trajectory().as_str() {
        // No columns identify trajectories.
        "()" => format!(
            "all rows are one trajectory, which has two rows at {name} = {at}; keep one row for each time, or name the columns \
             that identify trajectories as `trajectory`"
        ),
        of => format!(
            "trajectory {of} has two rows at {name} = {at}; keep one row for each trajectory and time, or choose one by a second column of `time` with `duplicates`"
        ),
    }))
}
