//! Groups of rows that are resampled together. Each row's state carries its group while pairs are
//! counted; at the end the counts are split by group.
//!
//! The group of a row is a hash of its trajectory, or of the columns that the pipeline names, so
//! streams need no coordination. The low bits of the state id hold the group. Pairs with groups
//! sort and add up like any others: first by source, then by target, then by group.
//! There are at least 16 times as many hashes as groups, so that few trajectories share a hash; if
//! more hashes occur than groups are wanted, hashes are assigned to groups in turn.

use crate::error::Result;
use crate::evidence::counts::csr::{Csr, Values};
use crate::evidence::counts::groups::GroupedRows;
use crate::evidence::counts::matrix::MatrixRows;
use crate::math::seed::restart_seed;
use crate::memory;
use crate::read::counts::tally::{pack, unpack};
use crate::read::rows::keys::{NONE, converter};
use crate::read::rows::layout::Layout;
use crate::read::rows::ranges::{first_rows, ranges};
use crate::read::rows::stop::{Stop, bug};
use crate::read::rows::tag::{Tag, too_many_states};
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use arrow::row::RowConverter;
use rayon::prelude::*;

/// Tags the states of rows with their group.
pub(crate) struct Tagger {
    tag: Tag,
    converter: RowConverter,
}

impl Tagger {
    /// `None` if rows have no groups.
    pub(crate) fn new(layout: &Layout) -> Result<Option<Tagger>> {
        let Some(grouping) = layout.grouping.as_ref().filter(|g| !g.by.is_empty()) else {
            return Ok(None);
        };
        let types = grouping.by.iter().map(Field::data_type);
        let converter = converter(types, "a column that identifies groups")?;
        let tag = layout.tag();
        Ok(Some(Tagger { tag, converter }))
    }

    /// The hash that the rows with a key share, by which [`Groups`] know their group.
    ///
    /// [`Groups`]: crate::evidence::counts::groups::Groups
    fn hash_of(&self, key: &[u8]) -> u32 {
        self.tag.group((hash(key) >> 32) as u32)
    }

    /// The hash of each row. `by` are the columns that identify groups.
    pub(crate) fn hashes(&self, by: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let key_ranges = ranges(by, rows)?;
        let keys = self
            .converter
            .convert_columns(&first_rows(by, &key_ranges)?);
        let keys = keys.map_err(bug)?;
        let of_ranges = key_ranges.into_iter().zip(keys.iter());
        let hashes = of_ranges.flat_map(|(range, key)| {
            let hash = self.hash_of(key.data());
            std::iter::repeat_n(hash, range.len())
        });
        Ok(hashes.collect())
    }

    /// The states with the group of their rows. `by` are the columns that identify groups.
    pub(crate) fn tagged(
        &mut self,
        by: &[ArrayRef],
        states: &[u32],
        direct: bool,
    ) -> Result<Vec<u32>, Stop> {
        let key_ranges = ranges(by, states.len())?;
        let keys = self
            .converter
            .convert_columns(&first_rows(by, &key_ranges)?)
            .map_err(bug)?;
        let mut tagged = states.to_vec();
        for (key_range, key) in key_ranges.into_iter().zip(keys.iter()) {
            let group = self.hash_of(key.data());
            for state in tagged[key_range].iter_mut().filter(|state| **state != NONE) {
                if *state >= self.tag.room() {
                    // Large integer ids may still be few distinct states.
                    return Err(if direct {
                        Stop::WideStates
                    } else {
                        Stop::Failed(too_many_states(self.tag))
                    });
                }
                *state = self.tag.with(*state, group);
            }
        }
        Ok(tagged)
    }
}

/// A hash that is the same on every machine and in every run.
pub(crate) fn hash(key: &[u8]) -> u64 {
    key.chunks(8).fold(key.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        restart_seed(0, (hash ^ u64::from_le_bytes(word)) as usize).wrapping_add(hash << 1)
    })
}

/// Assigns each weight to a group of its own if no column identifies groups. The group depends on
/// the rank of the weight among all weights, not on their order.
pub(crate) fn tag_weights(entries: &mut [(u64, f64)], tag: Tag) -> Result<()> {
    entries.par_sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    if entries
        .iter()
        .any(|(pair, _)| unpack(*pair).1 >= tag.room())
    {
        return Err(too_many_states(tag));
    }
    entries
        .par_iter_mut()
        .enumerate()
        .for_each(|(rank, entry)| {
            let (source, target) = unpack(entry.0);
            let group = tag.group((restart_seed(0, rank + 1) >> 32) as u32);
            entry.0 = pack(source, tag.with(target, group));
        });
    Ok(())
}

/// Counts without groups, and their parts by group.
type SplitRows = (MatrixRows, Split);

/// Splits sorted counts with tagged targets into the counts without groups and, for each piece, its
/// parts by group. There are at most `most` groups. Also returns the group of each hash.
pub(crate) fn split_by_group(
    pieces: Vec<MatrixRows>,
    tag: Tag,
    most: usize,
) -> (Vec<SplitRows>, Vec<(u32, u16)>) {
    let mut number = vec![u16::MAX; 1 << tag.bits];
    for &tagged in pieces.iter().flat_map(|rows| &rows.columns) {
        number[tag.group(tagged) as usize] = 0;
    }
    let mut hashes = Vec::new();
    let occurring = (0..).zip(&mut number).filter(|(_, number)| **number == 0);
    for (at, (hash, number)) in occurring.enumerate() {
        *number = (at % most) as u16;
        hashes.push((hash, *number));
    }
    let parts = pieces
        .into_par_iter()
        .filter(|rows| !rows.sources.is_empty())
        .map(|rows| untagged(rows, tag, &number))
        .collect();
    (parts, hashes)
}

/// The entries of the pairs of some rows by group.
pub(crate) struct Split {
    /// Number of groups per pair.
    lengths: Vec<u16>,
    group: Vec<u16>,
    counts: Values,
}

impl Split {
    /// The groups as a part of the rows that were split.
    pub(crate) fn part(self, whole: &Csr) -> GroupedRows {
        let mut ends = Vec::with_capacity(whole.nnz() + 1);
        ends.push(0);
        let mut columns = Vec::with_capacity(self.group.len());
        for (&target, &n) in whole.columns.iter().zip(&self.lengths) {
            columns.extend(std::iter::repeat_n(target, usize::from(n)));
            ends.push(columns.len());
        }
        GroupedRows {
            counts: Csr {
                first_row: whole.first_row,
                offsets: whole.offsets.iter().map(|&at| ends[at]).collect(),
                columns,
                values: self.counts,
            },
            group: self.group,
        }
    }
}

fn untagged(rows: MatrixRows, tag: Tag, number: &[u16]) -> (MatrixRows, Split) {
    memory::wait_for_room();
    let is_weighted = matches!(rows.values, Values::Real(_)) && rows.total == 0;
    let mut whole = MatrixRows {
        total: rows.total,
        ..MatrixRows::default()
    };
    let (mut sums, mut lengths) = (Vec::new(), Vec::new());
    let (mut group, mut counts) = (Vec::new(), Vec::new());
    let mut of_pair: Vec<(u16, f64)> = Vec::new();
    for (at, &source) in rows.sources.iter().enumerate() {
        let mut row = rows.offsets[at]..rows.offsets[at + 1];
        while let Some(&first) = rows.columns[row.clone()].first() {
            let target = tag.state(first);
            of_pair.clear();
            while let Some(&tagged) = rows.columns[row.clone()].first()
                && tag.state(tagged) == target
            {
                let group = number[tag.group(tagged) as usize];
                of_pair.push((group, rows.values.get(row.start)));
                row.start += 1;
            }
            of_pair.sort_by_key(|(group, _)| *group);
            let before = group.len();
            for own in of_pair.chunk_by(|a, b| a.0 == b.0) {
                group.push(own[0].0);
                counts.push(own.iter().map(|(_, count)| count).sum::<f64>());
            }
            whole.begin(source, target);
            sums.push(counts[before..].iter().sum::<f64>());
            lengths.push((group.len() - before) as u16);
        }
    }
    let values = |counts: Vec<f64>| {
        if is_weighted {
            Values::Real(counts)
        } else {
            Values::of_integers(counts)
        }
    };
    let split = Split {
        lengths,
        group,
        counts: values(counts),
    };
    (whole.with_values(values(sums)), split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::evidence::resample::Resample;
    use crate::read::counts::counted::Counted;
    use crate::read::counts::merge::tests::{cut, finish, workers};
    use crate::read::counts::stream::Worker;
    use crate::read::rows::layout::tests::{bare, field, grouped, states, trajectories};
    use crate::read::rows::layout::{Grouping, Layout, Measure, RowRoles};
    use crate::read::rows::stop::{Mode, Order, Stop};
    use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Trajectories of the column `id`, lags 1 and 3.
    fn layout(most: usize, is_named: bool) -> Layout {
        let state = if is_named {
            DataType::Utf8
        } else {
            DataType::Int64
        };
        let lags = [Step::Ticks(1), Step::Ticks(3)];
        grouped(trajectories(DataType::Int64, state, &lags), most)
    }

    type Row = (i64, i64, i64, i64);

    fn batch(layout: &Layout, rows: &[Row]) -> RecordBatch {
        let column = |of: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let state: ArrayRef = match layout.fields()[3].data_type() {
            DataType::Utf8 => Arc::new(
                rows.iter()
                    .map(|r| Some(format!("s{}", r.3)))
                    .collect::<StringArray>(),
            ),
            _ => column(|r| r.3),
        };
        let columns = vec![
            column(|r| r.0),
            column(|r| r.1),
            column(|r| r.2),
            state,
            column(|r| r.1),
        ];
        RecordBatch::try_new(layout.numbered(), columns).unwrap()
    }

    fn count(layout: &Layout, mode: Mode, streams: &[&[Row]], batch_rows: usize) -> Counted {
        let workers = workers::<u32, _>(layout, mode, streams, batch_rows, batch);
        finish(layout, mode, workers.unwrap()).unwrap()
    }

    const ASSUMED: Mode = Mode::FIRST;
    const GATHERED: Mode = Mode {
        order: Order::Any { bytes: 1 << 25 },
        ..Mode::FIRST
    };

    /// Transitions per trajectory and group. Trajectories share no states.
    fn transitions(counted: &Counted, lag: usize) -> Vec<BTreeMap<i64, u64>> {
        let counts = &counted.counts[lag];
        let groups = counts.groups.as_ref().unwrap();
        let of_group = |g| {
            let mut weights = vec![0; groups.n_groups];
            weights[g] = 1;
            let resampled = groups.resample(&weights, 7);
            let mut by_trajectory = BTreeMap::new();
            for (&j, total) in resampled.sources.iter().zip(resampled.shards.source_total) {
                let state: i64 = counted
                    .sources
                    .describe(counts.source_states[j as usize])
                    .trim_start_matches('s')
                    .parse()
                    .unwrap();
                *by_trajectory.entry(state / 10).or_default() += total as u64;
            }
            by_trajectory
        };
        (0..groups.n_groups).map(of_group).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn groups_hold_whole_trajectories_in_every_row_order(
            lengths in prop::collection::vec(1usize..30, 2..12),
            states in prop::collection::vec(0i64..6, 40),
            cuts: [usize; 3],
            batch_rows in 1usize..50,
            is_named: bool,
            most in 2usize..40,
        ) {
            let layout = layout(most, is_named);
            let mut rows: Vec<Row> = Vec::new();
            for (id, &n) in lengths.iter().enumerate() {
                let state = |t: usize| id as i64 * 10 + states[(id * 11 + t * t) % 40];
                rows.extend((0..n).map(|t| (0, id as i64, t as i64, state(t))));
            }
            let n = rows.len();
            let streams = cut(&rows, &cuts);
            let reversed: Vec<Row> = rows.iter().rev().copied().collect();
            let whole = count(&layout, ASSUMED, &[&rows], n);
            let others = [
                count(&layout, ASSUMED, &streams, batch_rows),
                count(&layout, GATHERED, &streams, batch_rows),
                count(&layout, GATHERED, &[&reversed], batch_rows),
            ];
            for (lag, ticks) in [1, 3].into_iter().enumerate() {
                let found = transitions(&whole, lag);
                prop_assert!(found.len() <= most);
                for other in &others {
                    prop_assert_eq!(&transitions(other, lag), &found);
                }
                for (id, &n) in lengths.iter().enumerate() {
                    let shares: Vec<u64> = found.iter().filter_map(|group| group.get(&(id as i64)).copied()).collect();
                    let all: Vec<u64> = Vec::from_iter((n > ticks).then(|| (n - ticks) as u64));
                    prop_assert_eq!(shares, all);
                }
            }
        }
    }

    // Two rows of weight ½ and one of 2 for 0 → 0, one of 4 for 3 → 1; and counts of 3 and 1 for
    // the same pairs.
    #[test]
    fn transitions_without_group_columns_are_grouped_one_by_one() {
        let pairs = |measure| Layout {
            grouping: Some(Grouping {
                most: 50,
                by: Vec::new(),
            }),
            ..bare(RowRoles::Pairs {
                source: states("a", DataType::Int64),
                target: states("b", DataType::Int64),
                measure,
            })
        };
        let integers =
            |values: [i64; 4]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
        let counted = |measure: Measure, amounts: ArrayRef, order: [usize; 4]| {
            let layout = Arc::new(pairs(measure));
            let pick = |values: [i64; 4]| integers(order.map(|at| values[at]));
            let order = arrow::array::UInt32Array::from_iter_values(order.map(|at| at as u32));
            let amounts = arrow::compute::take(&amounts, &order, None).unwrap();
            let columns = vec![
                ("0", pick([0, 0, 0, 3])),
                ("1", pick([0, 0, 0, 1])),
                ("2", amounts),
            ];
            let mut worker = Worker::<u32>::new(&layout, ASSUMED, true).unwrap();
            worker
                .push(&RecordBatch::try_from_iter(columns).unwrap())
                .unwrap();
            finish(&layout, ASSUMED, vec![worker])
                .unwrap()
                .counts
                .remove(0)
        };
        let weight = |order| {
            let amounts = Arc::new(Float64Array::from(vec![0.5, 0.5, 2.0, 4.0]));
            counted(
                Measure::Weight(field("w", DataType::Float64)),
                amounts,
                order,
            )
        };
        let (one, other) = (weight([0, 1, 2, 3]), weight([3, 2, 0, 1]));
        assert_eq!(one, other);
        let groups = one.groups.unwrap();
        let all = groups.resample(&vec![2; groups.n_groups], 9).shards;
        assert_eq!((groups.n_groups, all.source_total), (4, vec![6.0, 8.0]));

        let amounts = integers([1, 1, 1, 1]);
        let counts = counted(
            Measure::Count(field("n", DataType::Int64)),
            amounts,
            [0, 1, 2, 3],
        );
        let groups = counts.groups.unwrap();
        assert_eq!(groups.n_groups, 4);
        assert!(groups.add_up_to(&counts.by_source));
    }

    #[test]
    fn too_many_states_for_the_groups_are_refused() {
        // 4096 groups take 16 bits, which leaves 65535 states.
        let layout = layout(4096, false);
        let rows = [(0, 1, 1, 1 << 20)];
        let stop = |direct| {
            let mode = Mode { direct, ..ASSUMED };
            workers::<u32, _>(&layout, mode, &[&rows], 1, batch).err()
        };
        assert!(matches!(stop(true), Some(Stop::WideStates)));
        // Interned, the state has number 0.
        assert!(stop(false).is_none());
    }
}
