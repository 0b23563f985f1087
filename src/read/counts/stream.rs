//! Counts the rows of one stream of batches under local ids.

use crate::error::{Error, Result};
use crate::read::counts::lagged::Walker;
use crate::read::counts::ordered::{OrderedRows, OrderedTrajectories};
use crate::read::counts::resample_groups::Tagger;
use crate::read::counts::tallies::Tallies;
use crate::read::counts::tally::pack;
use crate::read::counts::unordered::Gathered;
use crate::read::counts::weighted::Point;
use crate::read::counts::words::Words;
use crate::read::rows::amounts::{counts, weights};
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::layout::{Layout, Measure, RowRoles, TrajectoryRows};
use crate::read::rows::ranges::{drop_null_rows, partition_ids, ranges, spread};
use crate::read::rows::split::is_train;
use crate::read::rows::states::{States, describe};
use crate::read::rows::stop::{Dropped, Mode, Order, Stop, bug};
use crate::read::rows::time;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::Field;
use hashbrown::HashMap;
use std::sync::Arc;

/// Counts the rows of one stream: points of trajectories, or pairs.
pub(crate) struct Worker<P> {
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
            keys: Keys::new(&[field.data_type().clone()])?,
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

impl<P: Point> Worker<P> {
    /// A worker for a stream; `first` says that it is the first stream.
    pub(crate) fn new(layout: &Arc<Layout>, mode: Mode, first: bool) -> Result<Worker<P>> {
        let (states, targets, pair_source) = match &layout.evidence {
            RowRoles::Pairs { source, target, .. } => (
                States::new(source, mode.direct)?,
                Some(States::new(target, mode.direct)?),
                PairSource::Pairs,
            ),
            roles => {
                let no_rows = || Error::bug("pairs have no trajectories");
                let rows = roles.trajectories().ok_or_else(no_rows)?;
                let walker = Walker::of(layout).ok_or_else(no_rows)?;
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
            partitions: Keys::of_fields(&layout.partition, &[])?,
            labels: labels.collect::<Result<_>>()?,
            tagger: Tagger::new(layout)?,
            tallies: Tallies::new(layout.tag(), Words::new(layout, mode.packed)),
            rows: 0,
            dropped: Dropped::default(),
            pair_source,
        })
    }

    /// Counts the next rows of the stream.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        self.rows += batch.num_rows() as u64;
        let layout = Arc::clone(&self.layout);
        let columns = typed_columns(batch, &layout.fields()).map_err(bug)?;
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
        columns[n_group] = time::without_nan(&columns[n_group], &mut self.dropped)?;
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
        let ticks = time::ticks(&columns[n_group], time.name())?;
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
            keep_trained(&mut states, column, field.name())?;
        }
        let (given, by) = rest.split_at(self.layout.given.len());
        let group_columns = &columns[..n_group];
        // Labels belong to plain states; pairs consist of states that carry their group.
        let tagged = match &mut self.tagger {
            Some(tagger) => Some(tagger.tagged(by, &states, self.mode.direct)?),
            None => None,
        };
        let tagged = tagged.as_ref().unwrap_or(&states);
        let points = P::of_rows(tagged, weights.transpose()?)?;
        match &mut self.pair_source {
            PairSource::Pairs => {
                return Err(Error::bug("a table of pairs has no trajectories").into());
            }
            PairSource::Gathered(gathered) => {
                let Order::Any { bytes: room } = self.mode.order else {
                    return Err(Error::bug("ordered rows are gathered").into());
                };
                let partitions = &mut self.partitions;
                let of_rows = gathered.push(group_columns, partitions, &ticks, &points, room)?;
                assign_labels(&mut self.labels, given, &of_rows, &states)?;
            }
            PairSource::Ordered(trajectories) => {
                let by_partition = &group_columns[..n_partition];
                let key_ranges = ranges(by_partition, rows)?;
                let partitions = partition_ids(&mut self.partitions, by_partition, &key_ranges)?;
                if !given.is_empty() {
                    let of_rows = spread(&key_ranges, &partitions);
                    assign_labels(&mut self.labels, given, &of_rows, &states)?;
                }
                let rows = OrderedRows {
                    columns: group_columns,
                    n_partition,
                    time,
                    ticks: &ticks,
                    points: &points,
                    key_ranges: &key_ranges,
                    partitions: &partitions,
                };
                trajectories.push(&rows, self.mode.order, &mut self.tallies)?;
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
        let by_partition = &columns[..n_partition];
        let partitions = partition_ids(&mut self.partitions, by_partition, &ranges)?;
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
        let amounts = Amounts::new(measure, measured, place, &mut self.dropped)?;
        if !given.is_empty() {
            let of_rows = spread(&ranges, &partitions);
            assign_labels(&mut self.labels, given, &of_rows, &sources)?;
        }
        for (range, &partition) in ranges.iter().zip(&partitions) {
            let pairs = range
                .clone()
                .map(|at| (at, sources[at], targets[at]))
                .filter(|(_, source, target)| *source != NONE && *target != NONE)
                .map(|(at, source, target)| (at, pack(source, target)));
            amounts.count(pairs, partition, &mut self.tallies);
        }
        Ok(())
    }
}

/// Takes the states from rows that are not those of training.
fn keep_trained(states: &mut [u32], split: &ArrayRef, name: &str) -> Result<()> {
    for (state, is_trained) in states.iter_mut().zip(is_train(split, name)?) {
        if !is_trained {
            *state = NONE;
        }
    }
    Ok(())
}

/// Assigns the sets of `columns`, one per label, to the states of rows in these partitions.
pub(crate) fn assign_labels(
    labels: &mut [Labels],
    columns: &[ArrayRef],
    partitions: &[u32],
    states: &[u32],
) -> Result<()> {
    for (labels, column) in labels.iter_mut().zip(columns) {
        let mut ids = Vec::with_capacity(states.len());
        labels.keys.intern(std::slice::from_ref(column), &mut ids)?;
        for ((&state, id), &partition) in states.iter().zip(ids).zip(partitions) {
            labels.assign(partition, state, id);
        }
    }
    Ok(())
}

/// The amounts of the rows of a batch of pairs.
enum Amounts {
    Ones,
    Counts(Vec<u64>),
    Weights(Vec<f64>),
}

impl Amounts {
    /// The amounts in the column `measured`, if there is one. `place` describes a row.
    fn new(
        measure: &Measure,
        measured: &[ArrayRef],
        place: impl Fn(usize) -> String,
        dropped: &mut Dropped,
    ) -> Result<Amounts, Stop> {
        Ok(match measure {
            Measure::One => Amounts::Ones,
            Measure::Count(field) => {
                Amounts::Counts(counts(&measured[0], field.name(), place, dropped)?)
            }
            Measure::Weight(field) => {
                Amounts::Weights(weights(&measured[0], field.name(), place, dropped)?)
            }
        })
    }

    /// Counts pairs of one partition, each with the number of its row.
    fn count(
        &self,
        pairs: impl Iterator<Item = (usize, u64)>,
        partition: u32,
        tallies: &mut Tallies,
    ) {
        match self {
            Amounts::Ones => {
                let (tallies, accepted) = tallies.of(partition, 1);
                pairs.for_each(|(_, pair)| {
                    tallies[0].add(pair);
                    *accepted += 1;
                });
            }
            Amounts::Counts(counts) => {
                let (tallies, accepted) = tallies.of(partition, 1);
                pairs.for_each(|(at, pair)| {
                    *accepted += u128::from(counts[at]);
                    tallies[0].add_all(pair, counts[at]);
                });
            }
            Amounts::Weights(weights) => tallies.weights_of(partition, 1)[0].extend(
                pairs
                    .map(|(at, pair)| (pair, weights[at]))
                    .filter(|(_, weight)| *weight > 0.0),
            ),
        }
    }
}
