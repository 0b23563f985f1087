//! What a row of a trajectory contributes to pairs: its state, or its state and its weight.
//!
//! `Walker` is generic over this, so whole counts and weights share one code path and neither pays
//! for the other.

use crate::error::{Error, Result};
use crate::read::counts::emit::Emit;
use crate::read::counts::tallies::{Tallies, slots};
use crate::read::counts::tally::{Tally, pack};
use crate::read::counts::words::Words;
use crate::read::rows::keys::NONE;
use crate::read::rows::tag::Tag;
use crate::read::rows::time_rules::TimeCounts;
use std::borrow::Cow;

/// A row of a trajectory without its time. A pair of plain states counts 1.
pub(crate) trait Point: Copy + Default + Send + Sync + 'static {
    /// The points of rows, from their states and their weights, if any.
    fn of_rows(states: &[u32], weights: Option<Vec<f64>>) -> Result<Cow<'_, [Self]>>;

    /// The same point with another number for its state.
    fn renumbered(self, number: impl Fn(u32) -> u32) -> Self;

    /// Counts the pairs and the windows of a partition. It skips those with a row that has no
    /// state.
    fn counter(tallies: &mut Tallies, partition: u32, n_lags: usize) -> impl Emit<Self>;
}

impl Point for u32 {
    fn of_rows(states: &[u32], weights: Option<Vec<f64>>) -> Result<Cow<'_, [u32]>> {
        match weights {
            None => Ok(Cow::Borrowed(states)),
            Some(_) => Err(Error::bug("weights of rows would be ignored")),
        }
    }

    fn renumbered(self, number: impl Fn(u32) -> u32) -> u32 {
        number(self)
    }

    #[inline(always)]
    fn counter(tallies: &mut Tallies, partition: u32, n_lags: usize) -> impl Emit<u32> {
        Counter {
            slots: slots(&mut tallies.by_slot, partition, n_lags),
            accepted: &mut tallies.accepted,
            time: &mut tallies.time,
            words: tallies.words.as_mut(),
            tag: tallies.tag,
        }
    }
}

/// Counts pairs and windows of plain states.
struct Counter<'a> {
    slots: &'a mut [Tally],
    accepted: &'a mut u128,
    time: &'a mut TimeCounts,
    words: Option<&'a mut Words>,
    tag: Tag,
}

impl Emit<u32> for Counter<'_> {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: u32, target: u32) {
        if source != NONE && target != NONE {
            self.slots[lag].add(pack(self.tag.state(source), target));
            *self.accepted += 1;
        }
    }

    #[inline]
    fn near_pair(&mut self, lag: usize, source: u32, target: u32) {
        self.time.near_pairs += u64::from(source != NONE && target != NONE);
        self.pair(lag, source, target);
    }

    fn gap(&mut self) {
        self.time.gaps += 1;
    }

    #[inline]
    fn window(&mut self, rows: &[u32]) {
        let words = self.words.as_mut();
        if let Some(pair) = words.and_then(|words| words.pair(rows, self.tag, |row| *row)) {
            self.slots[0].add(pair);
            *self.accepted += 1;
        }
    }
}

/// A state and a finite weight ≥ 0. The weight of a pair is the weight of its source; a pair of
/// weight 0 is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Weighed {
    /// The id of the state, or `NONE`.
    pub state: u32,
    /// The weight of the row.
    pub weight: f64,
}

impl Weighed {
    /// Whether a pair from this row to `target` counts.
    pub(crate) fn goes_to(self, target: Weighed) -> bool {
        self.state != NONE && target.state != NONE && self.weight > 0.0
    }
}

impl Point for Weighed {
    fn of_rows(states: &[u32], weights: Option<Vec<f64>>) -> Result<Cow<'_, [Weighed]>> {
        let weights = weights.ok_or_else(|| Error::bug("rows have no weights"))?;
        let points = states.iter().zip(weights);
        Ok(points
            .map(|(&state, weight)| Weighed { state, weight })
            .collect())
    }

    fn renumbered(self, number: impl Fn(u32) -> u32) -> Weighed {
        Weighed {
            state: number(self.state),
            ..self
        }
    }

    fn counter(tallies: &mut Tallies, partition: u32, n_lags: usize) -> impl Emit<Weighed> {
        WeightCounter {
            slots: slots(&mut tallies.weights, partition, n_lags),
            time: &mut tallies.time,
            words: tallies.words.as_mut(),
            tag: tallies.tag,
        }
    }
}

/// Keeps the weights of pairs and windows.
struct WeightCounter<'a> {
    slots: &'a mut [Vec<(u64, f64)>],
    time: &'a mut TimeCounts,
    words: Option<&'a mut Words>,
    tag: Tag,
}

impl Emit<Weighed> for WeightCounter<'_> {
    fn pair(&mut self, lag: usize, source: Weighed, target: Weighed) {
        if source.goes_to(target) {
            let pair = pack(self.tag.state(source.state), target.state);
            self.slots[lag].push((pair, source.weight));
        }
    }

    fn near_pair(&mut self, lag: usize, source: Weighed, target: Weighed) {
        self.time.near_pairs += u64::from(source.goes_to(target));
        self.pair(lag, source, target);
    }

    fn gap(&mut self) {
        self.time.gaps += 1;
    }

    fn window(&mut self, rows: &[Weighed]) {
        let Some(words) = self.words.as_mut().filter(|_| rows[0].weight > 0.0) else {
            return;
        };
        if let Some(pair) = words.pair(rows, self.tag, |row| row.state) {
            self.slots[0].push((pair, rows[0].weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::csr::Values;
    use crate::evidence::lag::Step;
    use crate::evidence::resample::Resample;
    use crate::read::counts::counted::Counted;
    use crate::read::counts::merge::tests::{cut, finish, workers};
    use crate::read::rows::layout::tests::{field, grouped, trajectories};
    use crate::read::rows::layout::{Layout, RowRoles};
    use crate::read::rows::stop::{Mode, Order, Stop};
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Partition, trajectory, time, state and weight.
    type Row = (i64, i64, i64, Option<i64>, Option<f64>);

    fn layout(lags: &[Step], is_weighed: bool) -> Layout {
        let mut layout = trajectories(DataType::Int64, DataType::Int64, lags);
        if let RowRoles::Trajectories { weight, .. } = &mut layout.evidence {
            *weight = is_weighed.then(|| field("w", DataType::Float64));
        }
        layout
    }

    fn strided(mut of: Layout) -> Layout {
        if let RowRoles::Trajectories { strided, .. } = &mut of.evidence {
            *strided = true;
        }
        of
    }

    fn batch(layout: &Layout, rows: &[Row]) -> RecordBatch {
        let column = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let id = column(|r| Some(r.1));
        let mut columns = vec![
            column(|r| Some(r.0)),
            Arc::clone(&id),
            column(|r| Some(r.2)),
            column(|r| r.3),
        ];
        if layout.evidence.weight().is_some() {
            columns.push(Arc::new(rows.iter().map(|r| r.4).collect::<Float64Array>()));
        }
        columns.extend(layout.grouping.is_some().then_some(id));
        RecordBatch::try_new(layout.numbered(), columns).unwrap()
    }

    const ASSUMED: Mode = Mode::FIRST;
    const GATHERED: Mode = Mode {
        order: Order::Any { bytes: 1 << 20 },
        ..Mode::FIRST
    };
    const SORTED: Mode = Mode {
        order: Order::Sorted,
        ..Mode::FIRST
    };

    fn count<P: Point>(
        layout: &Layout,
        mode: Mode,
        streams: &[&[Row]],
        batch_rows: usize,
    ) -> Result<Counted, Stop> {
        let workers = workers::<P, _>(layout, mode, streams, batch_rows, batch)?;
        finish(layout, mode, workers)
    }

    /// (partition, lag, source, target) and the count or weight.
    type Entry = ((usize, usize, String, String), f64);

    fn listed(counted: &Counted) -> Vec<Entry> {
        let mut all = Vec::new();
        for counts in &counted.counts {
            let state = |states: &[u32], at: usize| counted.sources.describe(states[at]);
            for shard in &counts.by_source {
                for l in 0..shard.n_rows() {
                    let source = state(&counts.source_states, shard.first_row + l);
                    all.extend(shard.span(l).map(|e| {
                        let target = state(&counts.target_states, shard.columns[e] as usize);
                        let place = (counts.partition, counts.lag, source.clone(), target);
                        (place, shard.values.get(e))
                    }));
                }
            }
        }
        all
    }

    // Trajectory 1: a b a b a with weights ½, 2, null, 1 and 4 at times 0 to 4. Trajectory 2: a b b
    // at times 0, 1 and 3 with weights ¼, NaN and 0.
    const ROWS: [Row; 8] = [
        (0, 1, 0, Some(0), Some(0.5)),
        (0, 1, 1, Some(1), Some(2.0)),
        (0, 1, 2, Some(0), None),
        (0, 1, 3, Some(1), Some(1.0)),
        (0, 1, 4, Some(0), Some(4.0)),
        (0, 2, 0, Some(0), Some(0.25)),
        (0, 2, 1, Some(1), Some(f64::NAN)),
        (0, 2, 3, Some(1), Some(0.0)),
    ];
    const LAGS: [Step; 2] = [Step::Ticks(1), Step::Rows(2)];

    fn weights_of(layout: &Layout) -> Vec<(usize, u32, u32, f64)> {
        let counted = count::<Weighed>(layout, ASSUMED, &[&ROWS], 3).unwrap();
        let reasons =
            ["NaN weight", "null weight", "weight of zero"].map(|reason| (reason.into(), 1));
        assert_eq!(counted.dropped.0, reasons.into());
        listed(&counted)
            .into_iter()
            .map(|((_, lag, s, t), n)| (lag, s.parse().unwrap(), t.parse().unwrap(), n))
            .collect()
    }

    #[test]
    fn a_pair_has_the_weight_of_its_source() {
        // Lag 1: a→b ½ + ¼, b→a 2 + 1; rows without a weight still end pairs. Two steps: a→a ½, a→b
        // ¼, b→b 2.
        let layout = layout(&LAGS, true);
        let one = [(0, 0, 1, 0.75), (0, 1, 0, 3.0)];
        let two = [(1, 0, 0, 0.5), (1, 0, 1, 0.25), (1, 1, 1, 2.0)];
        assert_eq!(weights_of(&layout), [&one[..], &two].concat());
        // Strided pairs of two steps start at the first and third row of a trajectory, and the
        // third row has no weight.
        let two = [(1, 0, 0, 0.5), (1, 0, 1, 0.25)];
        assert_eq!(weights_of(&strided(layout)), [&one[..], &two].concat());
    }

    #[test]
    fn effective_weights_are_divided_by_the_lag() {
        let mut layout = layout(&LAGS, true);
        if let RowRoles::Trajectories { overlap, .. } = &mut layout.evidence {
            *overlap = vec![1, 2];
        }
        let one = [(0, 0, 1, 0.75), (0, 1, 0, 3.0)];
        let two = [(1, 0, 0, 0.25), (1, 0, 1, 0.125), (1, 1, 1, 1.0)];
        assert_eq!(weights_of(&layout), [&one[..], &two].concat());
    }

    #[test]
    fn an_invalid_weight_names_the_state_and_the_column() {
        let layout = layout(&LAGS, true);
        for (weight, shown) in [(-1.5, "-1.5"), (f64::INFINITY, "inf")] {
            for mode in [ASSUMED, GATHERED] {
                let rows = [
                    (0, 1, 0, Some(7), Some(1.0)),
                    (0, 1, 1, Some(8), Some(weight)),
                ];
                let Err(Stop::Failed(e)) = count::<Weighed>(&layout, mode, &[&rows], 9) else {
                    panic!("{weight} is not a weight");
                };
                let said = format!("`w` = {shown} for state 8 is not a weight");
                assert!(e.to_string().contains(&said), "{e}");
            }
        }
    }

    #[test]
    fn weights_of_one_are_counts() {
        let rows: Vec<Row> = (0..400)
            .map(|k| (0, k / 40, k % 40, Some(k * k % 7), Some(1.0)))
            .collect();
        let plain = grouped(layout(&LAGS, false), 5);
        let weighed = grouped(layout(&LAGS, true), 5);
        let plain = count::<u32>(&plain, ASSUMED, &[&rows], 64).unwrap();
        let weighed = count::<Weighed>(&weighed, ASSUMED, &[&rows], 64).unwrap();
        assert_eq!(listed(&weighed), listed(&plain));
        for (weighed, plain) in weighed.counts.iter().zip(&plain.counts) {
            assert!(matches!(weighed.by_source[0].values, Values::Real(_)));
            let (weighed, plain) = (&weighed.groups, &plain.groups);
            let (weighed, plain) = (weighed.as_ref().unwrap(), plain.as_ref().unwrap());
            assert_eq!((weighed.n_groups, plain.n_groups), (5, 5));
            let twice = [2, 0, 1, 0, 3];
            let (weighed, plain) = (weighed.resample(&twice, 9), plain.resample(&twice, 9));
            assert_eq!(weighed.sources, plain.sources);
            assert_eq!(weighed.shards.source_total, plain.shards.source_total);
            assert_eq!(weighed.shards.target_total, plain.shards.target_total);
        }
    }

    /// The partition of a trajectory, and its states with the gaps before them.
    type Path = (i64, Vec<(i64, Option<i64>)>);

    fn paths() -> impl Strategy<Value = Vec<Path>> {
        let row = (1i64..4, prop::option::weighted(0.9, 0i64..6));
        prop::collection::vec((0i64..2, prop::collection::vec(row, 1..30)), 1..8)
    }

    /// Their rows in order. `weight` takes a trajectory and one of its rows.
    fn rows(of: &[Path], weight: impl Fn(usize, usize) -> f64) -> Vec<Row> {
        let mut all = Vec::new();
        for (id, (partition, points)) in of.iter().enumerate() {
            let mut time = 0;
            for (at, &(gap, state)) in points.iter().enumerate() {
                time += gap;
                all.push((*partition, id as i64, time, state, Some(weight(id, at))));
            }
        }
        all.sort_by_key(|row| (row.0, row.1, row.2));
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn an_integer_weight_counts_a_trajectory_that_many_times(
            trajectories in paths(),
            often in prop::collection::vec(0usize..4, 8),
            cuts: [usize; 3],
            batch_rows in 1usize..50,
            lag in 1usize..5,
            is_strided: bool,
        ) {
            let lags = [Step::Ticks(lag as i64), Step::Rows(lag)];
            let of = |is_weighed| match (is_strided, layout(&lags, is_weighed)) {
                (true, layout) => strided(layout),
                (false, layout) => layout,
            };
            let weighed = rows(&trajectories, |id, _| often[id] as f64);
            let again = trajectories.iter().zip(&often);
            let again: Vec<_> = again.flat_map(|(t, &k)| std::iter::repeat_n(t.clone(), k)).collect();
            let again = rows(&again, |_, _| 1.0);
            let expected = count::<u32>(&of(false), ASSUMED, &[&again], 1000).unwrap();
            // Partitions are numbered in order; a partition without rows has no number.
            let mut found_in: Vec<i64> = again.iter().map(|row| row.0).collect();
            found_in.dedup();
            let mut all: Vec<i64> = weighed.iter().map(|row| row.0).collect();
            all.dedup();
            let place = |p: usize| all.iter().position(|&own| own == found_in[p]).unwrap();
            let expected: Vec<Entry> = listed(&expected).into_iter()
                .map(|((p, lag, s, t), n)| ((place(p), lag, s, t), n)).collect();
            for mode in [ASSUMED, GATHERED, SORTED] {
                let found = count::<Weighed>(&of(true), mode, &cut(&weighed, &cuts), batch_rows).unwrap();
                prop_assert_eq!(listed(&found), expected.clone());
            }
        }

        /// Rows whose states are unique show which pairs exist, and so the sums that the weights of
        /// other rows must have.
        #[test]
        fn weights_do_not_depend_on_the_order_of_rows(
            trajectories in paths(),
            weights in prop::collection::vec(0.0f64..1e3, 40),
            cuts: [usize; 3],
            batch_rows in 1usize..50,
            lag in 1usize..5,
        ) {
            let layout = grouped(layout(&[Step::Ticks(lag as i64), Step::Rows(lag)], true), 5);
            let rows = rows(&trajectories, |id, at| weights[(7 * id + at) % 40]);
            let whole = count::<Weighed>(&layout, ASSUMED, &[&rows], 1000).unwrap();
            let reversed: Vec<Row> = rows.iter().rev().copied().collect();
            let streams = cut(&rows, &cuts);
            for (mode, streams) in [
                (ASSUMED, &streams[..]),
                (SORTED, &streams[..]),
                (GATHERED, &streams[..]),
                (GATHERED, &cut(&reversed, &cuts)[..]),
            ] {
                let other = count::<Weighed>(&layout, mode, streams, batch_rows).unwrap();
                prop_assert!(other.counts == whole.counts);
            }

            let mut own = rows.clone();
            for (at, row) in own.iter_mut().enumerate() {
                row.3 = row.3.map(|_| at as i64);
            }
            let plain = Layout { grouping: None, ..layout };
            let pairs = count::<Weighed>(&plain, ASSUMED, &[&own], 1000).unwrap();
            let mut expected: std::collections::BTreeMap<_, f64> = Default::default();
            for ((p, lag, source, target), n) in listed(&pairs) {
                let row = |of: String| rows[of.parse::<usize>().unwrap()];
                let (source, target) = (row(source), row(target));
                prop_assert_eq!(Some(n), source.4);
                let state = |row: Row| row.3.unwrap().to_string();
                *expected.entry((p, lag, state(source), state(target))).or_default() += n;
            }
            let found = listed(&whole);
            prop_assert_eq!(found.len(), expected.len());
            for ((place, n), (expected_place, expected)) in found.iter().zip(expected) {
                prop_assert_eq!(place, &expected_place);
                prop_assert!((n - expected).abs() <= 1e-12 * expected);
            }
        }
    }
}
