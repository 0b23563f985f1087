//! Counts the rows of one stream of batches under local ids.

use crate::error::{Error, Result};
use crate::read::counts::lagged::{Disorder, Walker};
use crate::read::counts::ordered::{
    OrderedTrajectories, Run, TrajectoryKey, disordered, integer_runs,
};
use crate::read::counts::resample_groups::Tagger;
use crate::read::counts::tallies::Tallies;
use crate::read::counts::tally::pack;
use crate::read::counts::unordered::Gathered;
use crate::read::counts::weighted::Point;
use crate::read::counts::words::Words;
use crate::read::rows::amounts::{counts, weights};
use crate::read::rows::doubles::typed;
use crate::read::rows::keys::{Keys, NONE, integers};
use crate::read::rows::layout::{Layout, Measure, RowRoles, TrajectoryRows};
use crate::read::rows::ranges::{drop_null_rows, first_rows, ranges, spread};
use crate::read::rows::split::is_train;
use crate::read::rows::states::{States, describe};
use crate::read::rows::stop::{Dropped, Mode, Order, Stop, bug};
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field};
use hashbrown::HashMap;
use std::sync::Arc;

/// Counts the rows of one stream: points of trajectories, or pairs.
pub struct Worker<P> {
    pub(crate) layout: Arc<Layout>,
    pub(crate) mode: Mode,
    pub(crate) states: States,
    /// Target states of pairs; trajectories use `states` for both ends.
    pub(crate) targets: Option<States>,
    pub(crate) partitions: Option<Keys>,
    pub(crate) labels: Vec<Labels>,
    tagger: Option<Tagger>,
    pub(crate) tallies: Tallies,
    pub(crate) rows: u64,
    pub(crate) dropped: Dropped,
    pub(crate) pair_source: PairSource<P>,
}

/// How the rows of a stream become pairs.
pub(crate) enum PairSource<P> {
    /// Each row is a pair.
    Pairs,
    /// Rows are ordered: trajectories come one after another.
    Ordered(OrderedTrajectories<P>),
    /// Rows come in any order and are walked at the end.
    Gathered(Gathered<P>),
}

/// The sets that one column assigns to the source states.
pub(crate) struct Labels {
    pub keys: Keys,
    /// (partition, state) → label.
    pub of: HashMap<u64, u32>,
    /// A state with two labels, and these labels.
    pub conflict: Option<(u64, [u32; 2])>,
}

impl Labels {
    pub(crate) fn new(field: &Field) -> Result<Labels> {
        Ok(Labels {
            keys: Keys::new(&types(std::slice::from_ref(field)))?,
            of: HashMap::new(),
            conflict: None,
        })
    }

    pub(crate) fn assign(&mut self, partition: u32, state: u32, label: u32) {
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

impl<P: Point> Worker<P> {
    /// A worker for a stream; `first` says that it is the first stream.
    pub fn new(layout: &Arc<Layout>, mode: Mode, first: bool) -> Result<Worker<P>> {
        let (states, targets, pair_source) = match &layout.evidence {
            RowRoles::Pairs { source, target, .. } => (
                States::new(source, mode.direct)?,
                Some(States::new(target, mode.direct)?),
                PairSource::Pairs,
            ),
            roles => {
                let no_rows = || Error::bug("pairs have no trajectories");
                let rows = roles.trajectories().ok_or_else(no_rows)?;
                let walker = Walker::of(roles).ok_or_else(no_rows)?;
                let pair_source = match mode.order {
                    Order::Any { .. } => {
                        PairSource::Gathered(Gathered::new(layout, rows.trajectory)?)
                    }
                    _ => PairSource::Ordered(OrderedTrajectories::new(
                        rows.trajectory,
                        walker,
                        first,
                    )?),
                };
                (States::new(rows.state, mode.direct)?, None, pair_source)
            }
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
            tagger: Tagger::new(layout)?,
            tallies: Tallies::new(layout.tag(), Words::new(layout, mode.packed)),
            rows: 0,
            dropped: Dropped::default(),
            pair_source,
        })
    }

    /// Counts the next rows of the stream.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        self.rows += batch.num_rows() as u64;
        let layout = Arc::clone(&self.layout);
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (column, field) in batch.columns().iter().zip(layout.fields()) {
            columns.push(typed(column, &field).map_err(bug)?);
        }
        match (&layout.evidence, layout.evidence.trajectories()) {
            (
                RowRoles::Pairs {
                    source,
                    target,
                    measure,
                },
                _,
            ) => self.push_pairs(columns, source.len(), target.len(), measure),
            (_, Some(rows)) => self.push_trajectories(columns, &rows),
            (_, None) => Err(Error::bug("rows have no trajectories").into()),
        }
    }

    fn push_trajectories(
        &mut self,
        mut columns: Vec<ArrayRef>,
        roles: &TrajectoryRows<'_>,
    ) -> Result<(), Stop> {
        let (time, weight, n_state) = (roles.time, roles.weight, roles.state.len());
        let n_trajectory = roles.trajectory.len();
        let n_partition = self.layout.partition.len();
        let n_group = n_partition + n_trajectory;
        columns[n_group] =
            crate::read::rows::time::without_nan(&columns[n_group], &mut self.dropped)?;
        let kind = |at| match at {
            at if at < n_partition => "partition",
            at if at < n_group => "trajectory",
            _ => "time",
        };
        drop_null_rows(&mut columns, n_group + 1, kind, &mut self.dropped)?;
        let rows = columns[n_group].len();
        if rows == 0 {
            return Ok(());
        }
        let times = crate::read::rows::time::ticks(&columns[n_group], time.name())?;
        let (state_columns, rest) = columns[n_group + 1..].split_at(n_state);
        let mut states = Vec::with_capacity(rows);
        self.states
            .ids(state_columns, &mut self.dropped, &mut states)?;

        let (weighed, rest) = rest.split_at(usize::from(weight.is_some()));
        let weights = weight.zip(weighed.first()).map(|(field, column)| {
            let place = |at: usize| format!("state {}", describe(state_columns, at));
            weights(column, field.name(), place, &mut self.dropped)
        });
        let (splits, rest) = rest.split_at(usize::from(roles.split.is_some()));
        if let Some((field, column)) = roles.split.zip(splits.first()) {
            let is_trained = is_train(column, field.name())?;
            for (state, is_trained) in states.iter_mut().zip(is_trained) {
                if !is_trained {
                    *state = NONE;
                }
            }
        }
        let (given, by) = rest.split_at(self.layout.given.len());
        let group_columns = &columns[..n_group];
        // Labels belong to plain states; pairs consist of states that carry their group.
        let tagged = match &mut self.tagger {
            Some(tagger) => Some(tagger.tagged(by, &states, self.mode.direct)?),
            None => None,
        };
        let walked = P::of_rows(tagged.as_ref().unwrap_or(&states), weights.transpose()?)?;
        match &mut self.pair_source {
            PairSource::Pairs => {
                return Err(Error::bug("a table of pairs has no trajectories").into());
            }
            PairSource::Gathered(gathered) => {
                let Order::Any { bytes: room } = self.mode.order else {
                    return Err(Error::bug("ordered rows are gathered").into());
                };
                let partitions = &mut self.partitions;
                let of_rows = gathered.push(group_columns, partitions, &times, &walked, room)?;
                self.assign_labels(given, |at| of_rows[at], &states)?;
            }
            PairSource::Ordered(_) => {
                let (by_partition, by_trajectory) = group_columns.split_at(n_partition);
                let key_ranges = ranges(by_partition, rows)?;
                let starts = first_rows(by_partition, &key_ranges)?;
                let partitions = self.partition_ids(&starts, key_ranges.len())?;
                if !given.is_empty() {
                    let of_rows = spread(&key_ranges, &partitions);
                    self.assign_labels(given, |at| of_rows[at], &states)?;
                }
                let PairSource::Ordered(groups) = &mut self.pair_source else {
                    return Ok(());
                };
                let one_integer = match by_trajectory {
                    [one] => integers(one),
                    _ => None,
                };
                let one_integer = one_integer.as_ref().map(|values| &values.values()[..]);
                let (runs, keys) = match one_integer {
                    Some(values) => (integer_runs(values, &times, &key_ranges), None),
                    None if n_trajectory == 0 => {
                        (key_ranges.iter().cloned().map(Run::One).collect(), None)
                    }
                    None => {
                        let runs = ranges(group_columns, rows)?;
                        let starts = first_rows(by_trajectory, &runs)?;
                        let keys = groups.converter.convert_columns(&starts).map_err(bug)?;
                        (runs.into_iter().map(Run::One).collect(), Some(keys))
                    }
                };
                let n_lags = self.layout.n_lags();
                let mut current = 0;
                for (at, run) in runs.into_iter().enumerate() {
                    let disordered =
                        |disorder, at| disordered(disorder, || describe(group_columns, at), time);
                    let run = match run {
                        Run::One(run) => run,
                        Run::Whole(run) => {
                            let trajectories = &one_integer.unwrap_or_default()[run.clone()];
                            let piece = (&times[run.clone()], &walked[run]);
                            groups.follow_whole(&mut self.tallies, n_lags, trajectories, piece);
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
                        (Some(values), _) => TrajectoryKey::Integer(values[run.start]),
                        (None, Some(keys)) => TrajectoryKey::Row(keys.row(at).data().into()),
                        // Without trajectory columns all rows of a partition are one trajectory.
                        (None, None) => TrajectoryKey::Row(Box::default()),
                    };
                    while key_ranges[current].end <= run.start {
                        current += 1;
                    }
                    groups.begin(
                        group,
                        partitions[current],
                        self.mode.order,
                        &mut self.tallies,
                    )?;
                    let goes_on = run.end == rows;
                    let piece = (&times[run.clone()], &walked[run.clone()]);
                    groups
                        .follow(&mut self.tallies, n_lags, piece, goes_on)
                        .map_err(|disorder| disordered(disorder, run.start))?;
                }
            }
        }
        self.tallies.check_words()
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
            |_| "partition",
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
        let (measured, rest) = rest.split_at(usize::from(*measure != Measure::One));
        let (given, by) = rest.split_at(self.layout.given.len());
        if let Some(tagger) = &mut self.tagger {
            targets = tagger.tagged(by, &targets, self.mode.direct)?;
        }
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
                Amounts::Counts(counts(&measured[0], name, place, &mut self.dropped)?)
            }
            Measure::Weight(field) => {
                let name = field.name();
                Amounts::Weights(weights(&measured[0], name, place, &mut self.dropped)?)
            }
        };
        if !given.is_empty() {
            let of_rows = spread(&ranges, &partitions);
            self.assign_labels(given, |at| of_rows[at], &sources)?;
        }
        for (range, &partition) in ranges.iter().zip(&partitions) {
            let pairs = range
                .clone()
                .map(|at| (at, sources[at], targets[at]))
                .filter(|(_, source, target)| *source != NONE && *target != NONE)
                .map(|(at, source, target)| (at, pack(source, target)));
            match &amounts {
                Amounts::Ones => {
                    let (tallies, accepted) = self.tallies.of(partition, 1);
                    pairs.for_each(|(_, pair)| {
                        tallies[0].add(pair);
                        *accepted += 1;
                    });
                }
                Amounts::Counts(counts) => {
                    let (tallies, accepted) = self.tallies.of(partition, 1);
                    pairs.for_each(|(at, pair)| {
                        *accepted += u128::from(counts[at]);
                        let mut rest = counts[at];
                        while rest > 0 {
                            let part = rest.min(u64::from(u32::MAX));
                            tallies[0].add_count(pair, part as u32);
                            rest -= part;
                        }
                    });
                }
                Amounts::Weights(weights) => self.tallies.weights_of(partition, 1)[0].extend(
                    pairs
                        .map(|(at, pair)| (pair, weights[at]))
                        .filter(|(_, weight)| *weight > 0.0),
                ),
            }
        }
        Ok(())
    }

    /// The partition of each range, from the partition keys of its first row.
    pub(crate) fn partition_ids(&mut self, starts: &[ArrayRef], n: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(n);
        match &mut self.partitions {
            Some(keys) => keys.intern(starts, &mut ids)?,
            None => ids.resize(n, 0),
        }
        Ok(ids)
    }

    pub(crate) fn assign_labels(
        &mut self,
        columns: &[ArrayRef],
        partition: impl Fn(usize) -> u32,
        states: &[u32],
    ) -> Result<()> {
        for (labels, column) in self.labels.iter_mut().zip(columns) {
            let mut ids = Vec::with_capacity(states.len());
            labels.keys.intern(std::slice::from_ref(column), &mut ids)?;
            for (at, (&state, id)) in states.iter().zip(ids).enumerate() {
                labels.assign(partition(at), state, id);
            }
        }
        Ok(())
    }
}

/// The amounts of the rows of a batch of pairs.
enum Amounts {
    Ones,
    Counts(Vec<u64>),
    Weights(Vec<f64>),
}
