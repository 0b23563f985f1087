//! Ordered rows of trajectories → pairs one by one, each with its trajectory, and the last state of
//! every trajectory.
//!
//! In: batches with the columns of a `Layout` of trajectories. Each trajectory's rows are
//! contiguous and ordered by time; a row that breaks this stops with `Stop::Unsorted`. Out: every
//! lagged pair to a [`Sink`], in time order. Memory grows with the number of trajectories and
//! states, not with rows or pairs.

use crate::error::{Error, Result};
use crate::read::counts::lagged::Walker;
use crate::read::counts::ordered::disordered;
use crate::read::counts::weighted::{Point, Weighed};
use crate::read::lake::Lake;
use crate::read::rows::amounts;
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::ranges::{drop_null_rows, partition_ids};
use crate::read::rows::states::{StateColumns, StateTable, States, describe};
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::ties::{Resolver, without_order};
use crate::read::rows::time;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// Numbers for states that do not depend on where a state occurs: in tables that gyre wrote or in
/// new rows.
pub(crate) struct StateNumbers(States);

impl StateNumbers {
    /// An empty numbering for states with these columns.
    pub(crate) fn new(columns: &StateColumns) -> Result<StateNumbers> {
        States::new(columns, false).map(StateNumbers)
    }

    /// A copy with the same numbers.
    pub(crate) fn duplicate(&self) -> Result<StateNumbers> {
        let mut states = States::new(self.0.columns(), false)?;
        states.absorb(&self.0)?;
        Ok(StateNumbers(states))
    }

    /// The number of each row of some columns, in the order of `StateColumns`; a binned coordinate
    /// may be the centre of its box. `None` for rows without a state.
    pub(crate) fn of(&mut self, columns: &[ArrayRef]) -> Result<Vec<Option<u32>>> {
        let mut ids = Vec::new();
        let numbered = self.0.ids(columns, &mut Dropped::default(), &mut ids);
        numbered.map_err(|stop| stop.into_error("numbering states"))?;
        let known = |id| (id != NONE).then_some(id);
        Ok(ids.into_iter().map(known).collect())
    }
}

/// Receives the pairs of trajectories.
pub(crate) trait Sink: Send {
    /// Receives one pair. `trajectory` numbers trajectories by first appearance; `lag` is the index
    /// in the layout. Both states are valid. The weight of the source is the weight of the pair; it
    /// is 1 if rows have no weights.
    fn pair(&mut self, trajectory: usize, partition: u32, lag: usize, source: Weighed, target: u32);
}

/// Follows trajectories one after another.
pub(crate) struct Follower<S> {
    /// Receives the pairs.
    pub sink: S,
    /// The columns of rows whose ties are resolved.
    layout: Arc<Layout>,
    /// Leaves out rows, if several rows may have one time.
    resolver: Option<Resolver>,
    states: States,
    /// The partitions that were counted, in their order, then new ones.
    partitions: Option<Keys>,
    /// (partition, trajectory) keys; `None` if all rows are one trajectory.
    trajectories: Option<Keys>,
    current: Option<u32>,
    walker: Walker<Weighed>,
    ends: Vec<End>,
}

/// The end of a trajectory so far.
#[derive(Debug, Clone, Copy)]
struct End {
    partition: u32,
    /// Time and state of the last row with a state.
    last: Option<(i64, u32)>,
}

/// Every trajectory with a state, ascending by partition and trajectory.
pub(crate) struct Followed<S> {
    /// The sink with all pairs.
    pub sink: S,
    /// The trajectory columns of all trajectories.
    pub keys: Vec<ArrayRef>,
    /// One entry per trajectory, ascending by `key`.
    pub rows: Vec<FollowedRow>,
    /// All states, in ascending order.
    pub states: StateTable,
}

/// One trajectory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowedRow {
    /// Its row in `Followed::keys`.
    pub key: u32,
    /// Its number in the calls of the sink.
    pub trajectory: usize,
    /// Its partition.
    pub partition: u32,
    /// Ticks of the last row that has a state.
    pub time: i64,
    /// The last state, by its number in the calls of the sink.
    pub number: u32,
    /// The last state, by its index in `Followed::states`.
    pub state: u32,
}

/// Follows the trajectories in the rows of a query with the columns of `layout`. Rows that are not
/// in order are sorted in a second attempt. `start` makes the follower of an attempt.
///
/// # Errors
/// Rows that cannot be read.
pub(crate) async fn follow<S: Sink + 'static>(
    lake: &Lake,
    frame: DataFrame,
    layout: &Layout,
    start: impl Fn() -> Result<Follower<S>>,
) -> Result<Followed<S>> {
    let follow = |frame| lake.one_stream(frame, &start, Follower::push, Follower::finish);
    let followed = match follow(frame.clone()).await {
        Err(Stop::Unsorted) => {
            tracing::info!("rows are not ordered by trajectory and time: sorting them");
            follow(Lake::sorted(frame, layout.order_columns())?).await
        }
        followed => followed,
    };
    followed.map_err(|stop| stop.into_error("following rows"))
}

impl<S: Sink> Follower<S> {
    /// A follower that passes pairs to `sink`. `partitions` are the keys of partition 0, 1, …;
    /// `numbers` number the states.
    ///
    /// # Errors
    /// A layout of pairs, or keys of a type that cannot be compared.
    pub(crate) fn new(
        layout: &Arc<Layout>,
        numbers: StateNumbers,
        partitions: &[ArrayRef],
        sink: S,
    ) -> Result<Follower<S>> {
        let RowRoles::Trajectories {
            trajectory,
            lags,
            strided,
            ..
        } = &layout.evidence
        else {
            return Err(Error::bug("a table of pairs has no trajectories"));
        };
        let by_trajectory = layout.partition.iter().chain(trajectory);
        Ok(Follower {
            sink,
            layout: Arc::new(layout.resolved()),
            resolver: layout.resolver(false),
            states: numbers.0,
            partitions: Keys::of_fields(&layout.partition, partitions)?,
            trajectories: Keys::of_fields(by_trajectory, &[])?,
            current: None,
            walker: Walker::new(lags, *strided).with(&layout.rules),
            ends: Vec::new(),
        })
    }

    /// Follows the next rows.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let Some(resolver) = &mut self.resolver else {
            return self.push_resolved(batch);
        };
        for rows in resolver.push(batch)? {
            self.push_resolved(&without_order(&rows)?)?;
        }
        Ok(())
    }

    fn push_resolved(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let layout = Arc::clone(&self.layout);
        let roles = layout.evidence.trajectories();
        let roles = roles.ok_or_else(|| Error::bug("a table of pairs has no trajectories"))?;
        let time = roles.time;
        // Counting has already reported the rows that are dropped here.
        let dropped = &mut Dropped::default();
        let n_partition = layout.partition.len();
        let n_group = n_partition + roles.trajectory.len();
        let mut columns = typed_columns(batch, &layout.fields()).map_err(bug)?;
        columns[n_group] = time::without_nan(&columns[n_group], dropped)?;
        drop_null_rows(&mut columns, n_group + 1, |_| "key", dropped)?;
        let rows = columns[n_group].len();
        let times = time::ticks(&columns[n_group], time.name())?;
        let (group_columns, rest) = (&columns[..n_group], &columns[n_group + 1..]);
        let (state_columns, rest) = rest.split_at(roles.state.len());
        let mut states = Vec::with_capacity(rows);
        self.states.ids(state_columns, dropped, &mut states)?;
        let weights = match roles.weight {
            Some(field) => {
                let place = |at: usize| format!("state {}", describe(state_columns, at));
                amounts::weights(&rest[0], field.name(), place, dropped)?
            }
            None => vec![1.0; rows],
        };
        let points = Weighed::of_rows(&states, Some(weights))?;
        let mut of_rows = Vec::with_capacity(rows);
        match &mut self.trajectories {
            Some(keys) => keys.intern(group_columns, &mut of_rows)?,
            None => of_rows.resize(rows, 0),
        }

        let mut first = 0;
        while first < rows {
            let trajectory = of_rows[first];
            let same = of_rows[first..].iter().take_while(|&&t| t == trajectory);
            let end = first + same.count();
            if self.current != Some(trajectory) {
                self.begin(trajectory, &group_columns[..n_partition], first)?;
            }
            let (at, sink) = (&mut self.ends[trajectory as usize], &mut self.sink);
            let (times, points) = (&times[first..end], &points[first..end]);
            let partition = at.partition;
            self.walker
                .push(
                    times,
                    points,
                    true,
                    |lag: usize, source: Weighed, target: Weighed| {
                        if source.goes_to(target) {
                            sink.pair(trajectory as usize, partition, lag, source, target.state);
                        }
                    },
                )
                .map_err(|disorder| {
                    disordered(disorder, || describe(group_columns, first), time)
                })?;
            if let Some(last) = points.iter().rposition(|point| point.state != NONE) {
                at.last = Some((times[last], points[last].state));
            }
            first = end;
        }
        Ok(())
    }

    /// Passes on the pairs that are known only when the current trajectory ends.
    fn end(&mut self) {
        let Some(trajectory) = self.current.map(|current| current as usize) else {
            return;
        };
        let (partition, sink) = (self.ends[trajectory].partition, &mut self.sink);
        self.walker
            .emit_rest(&mut |lag: usize, source: Weighed, target: Weighed| {
                if source.goes_to(target) {
                    sink.pair(trajectory, partition, lag, source, target.state);
                }
            });
    }

    /// Begins a new trajectory, of which this row is the first.
    fn begin(
        &mut self,
        trajectory: u32,
        by_partition: &[ArrayRef],
        row: usize,
    ) -> Result<(), Stop> {
        if (trajectory as usize) < self.ends.len() {
            return Err(Stop::Unsorted);
        }
        self.end();
        self.walker.restart();
        self.current = Some(trajectory);
        let row = row..row + 1;
        let ids = partition_ids(
            &mut self.partitions,
            by_partition,
            std::slice::from_ref(&row),
        )?;
        let partition = ids[0];
        self.ends.push(End {
            partition,
            last: None,
        });
        Ok(())
    }

    /// The trajectories, their last states, and the sink.
    pub(crate) fn finish(mut self) -> Result<Followed<S>> {
        if let Some(mut resolver) = self.resolver.take()
            && let Some(rows) = resolver.finish()?
        {
            let pushed = self.push_resolved(&without_order(&rows)?);
            pushed.map_err(|stop| stop.into_error("following rows"))?;
        }
        self.end();
        let (mut keys, place) = match self.trajectories {
            Some(keys) => keys.sorted()?,
            None => (Vec::new(), vec![0; self.ends.len()]),
        };
        let (states, rank) = self.states.finish()?;
        let mut rows: Vec<FollowedRow> = self
            .ends
            .iter()
            .zip(&place)
            .enumerate()
            .filter_map(|(trajectory, (end, &key))| {
                let (time, number) = end.last?;
                Some(FollowedRow {
                    key,
                    trajectory,
                    partition: end.partition,
                    time,
                    number,
                    state: rank.as_ref().map_or(number, |rank| rank[number as usize]),
                })
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.key);
        Ok(Followed {
            sink: self.sink,
            keys: keys.split_off(self.layout.partition.len().min(keys.len())),
            rows,
            states,
        })
    }
}

/// Ticks as a column of the time type of `field`.
pub(crate) fn times(ticks: &[i64], field: &Field) -> Result<ArrayRef> {
    time::column(ticks, field.data_type()).map_err(bug)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::read::rows::layout::tests::trajectories;
    use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int64Type, Schema};

    type Pair = (usize, u32, usize, u32, u32);

    struct Pairs(Vec<Pair>);

    impl Sink for Pairs {
        fn pair(
            &mut self,
            trajectory: usize,
            partition: u32,
            lag: usize,
            source: Weighed,
            target: u32,
        ) {
            assert_eq!(source.weight, 1.0);
            self.0
                .push((trajectory, partition, lag, source.state, target));
        }
    }

    fn layout() -> Arc<Layout> {
        let lags = [Step::Ticks(1), Step::Rows(2)];
        Arc::new(trajectories(DataType::Utf8, DataType::Utf8, &lags))
    }

    /// Partition, trajectory, time and state.
    type Row = (&'static str, i64, i64, Option<&'static str>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let integers = |of: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0))),
            integers(|r| r.1),
            integers(|r| r.2),
            Arc::new(rows.iter().map(|r| r.3).collect::<StringArray>()),
        ];
        RecordBatch::try_new(Arc::new(Schema::new(layout().fields())), columns).unwrap()
    }

    fn follower() -> Follower<Pairs> {
        let layout = layout();
        let RowRoles::Trajectories { state, .. } = &layout.evidence else {
            unreachable!("the layout is one of trajectories");
        };
        let mut numbers = StateNumbers::new(state).unwrap();
        // The model knows state z, which gets number 0.
        let written: ArrayRef = Arc::new(StringArray::from(vec!["z"]));
        assert_eq!(numbers.of(&[written]).unwrap(), [Some(0)]);
        let partitions: ArrayRef = Arc::new(StringArray::from(vec!["A", "B"]));
        Follower::new(&layout, numbers, &[partitions], Pairs(Vec::new())).unwrap()
    }

    // B: trajectory 7 = z y - y (times 0 1 2 3, no state at 2), then trajectory 3 = x alone. A:
    // trajectory 7 = y z, split between batches.
    #[test]
    fn trajectories_continue_across_batches() {
        let mut follower = follower();
        let rows = [
            ("B", 7, 0, Some("z")),
            ("B", 7, 1, Some("y")),
            ("B", 7, 2, None),
            ("B", 7, 3, Some("y")),
            ("B", 3, 5, Some("x")),
            ("A", 7, 0, Some("y")),
            ("A", 7, 1, Some("z")),
            ("A", 7, 2, None),
        ];
        for piece in [&rows[..1], &rows[1..6], &rows[6..]] {
            follower.push(&batch(piece)).unwrap();
        }
        assert!(matches!(
            follower.push(&batch(&[("B", 7, 9, Some("z"))])),
            Err(Stop::Unsorted)
        ));
        let followed = follower.finish().unwrap();
        // By number: z 0, y 1, x 2. Two steps after z (time 0) there is no state, and two steps
        // after y (time 1) there is y.
        assert_eq!(
            followed.sink.0,
            [(0, 1, 0, 0, 1), (0, 1, 1, 1, 1), (2, 0, 0, 1, 0)]
        );
        let of = |row: &FollowedRow| {
            let id = followed.keys[0]
                .as_primitive::<Int64Type>()
                .value(row.key as usize);
            (
                row.partition,
                id,
                row.time,
                followed.states.describe(row.state),
            )
        };
        let ends: Vec<_> = followed.rows.iter().map(of).collect();
        let end = |p, id, time, state: &str| (p, id, time, state.to_string());
        assert_eq!(
            ends,
            [end(0, 7, 1, "z"), end(1, 3, 5, "x"), end(1, 7, 3, "y")]
        );
    }

    /// Sums the weights of a trajectory at each lag.
    #[derive(Default)]
    struct Sums([f64; 2]);

    impl Sink for Sums {
        fn pair(&mut self, _: usize, _: u32, lag: usize, source: Weighed, _: u32) {
            self.0[lag] += source.weight;
        }
    }

    // y x - y at times 0 to 3 with weights ½, 2, 4 and 8: lag 1 has y → x, two steps has x → y. The
    // pairs of x y with weights 0 and ¼ have weight 0.
    #[test]
    fn pairs_have_the_weights_of_their_sources() {
        let mut layout = (*layout()).clone();
        let RowRoles::Trajectories { weight, state, .. } = &mut layout.evidence else {
            unreachable!("the layout is one of trajectories");
        };
        *weight = Some(Field::new("w", DataType::Float64, true));
        let numbers = StateNumbers::new(state).unwrap();
        let rows = batch(&[
            ("A", 1, 0, Some("y")),
            ("A", 1, 1, Some("x")),
            ("A", 1, 2, None),
            ("A", 1, 3, Some("y")),
            ("A", 2, 0, Some("x")),
            ("A", 2, 1, Some("y")),
        ]);
        let mut columns = rows.columns().to_vec();
        let weights = [0.5, 2.0, 4.0, 8.0, 0.0, 0.25];
        columns.push(Arc::new(Float64Array::from_iter_values(weights)));
        let schema = Arc::new(Schema::new(layout.fields()));
        let rows = RecordBatch::try_new(schema, columns).unwrap();
        let partitions: ArrayRef = Arc::new(StringArray::from(vec!["A"]));
        let layout = Arc::new(layout);
        let mut follower = Follower::new(&layout, numbers, &[partitions], Sums::default()).unwrap();
        follower.push(&rows).unwrap();
        let followed = follower.finish().unwrap();
        assert_eq!(followed.sink.0, [0.5, 2.0]);
        // A row with weight 0 still sets the last state of its trajectory.
        assert_eq!(
            followed.rows.iter().map(|r| r.time).collect::<Vec<_>>(),
            [3, 1]
        );
    }

    #[test]
    fn unordered_rows_ask_for_sorting_and_equal_times_fail() {
        let back = batch(&[("A", 1, 4, Some("x")), ("A", 1, 3, Some("x"))]);
        assert!(matches!(follower().push(&back), Err(Stop::Unsorted)));
        let twice = batch(&[("A", 1, 4, Some("x")), ("A", 1, 4, Some("y"))]);
        let Err(Stop::Failed(e)) = follower().push(&twice) else {
            panic!("two rows at one time");
        };
        assert!(
            e.to_string()
                .contains("trajectory (A, 1) has two rows at t = 4"),
            "{e}"
        );
    }
}
