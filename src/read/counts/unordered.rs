//! Unordered rows of trajectories → pairs: the rows of a stream are kept, grouped by trajectory,
//! and walked in time order.

use crate::error::Result;
use crate::read::counts::lagged::{Disorder, Walker};
use crate::read::counts::tallies::Tallies;
use crate::read::counts::weighted::Point;
use crate::read::rows::keys::Keys;
use crate::read::rows::layout::Layout;
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Stop, bug};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::Field;
use rayon::prelude::*;
use std::ops::Range;

/// The rows of one stream.
pub(crate) struct Gathered<P> {
    /// (partition, trajectory) keys.
    pub groups: Keys,
    n_partition: usize,
    /// The partition of each group.
    pub partitions: Vec<u32>,
    of_rows: Vec<u32>,
    times: Vec<i64>,
    points: Vec<P>,
}

impl<P: Point> Gathered<P> {
    /// Bytes per row: once as it came, and once while rows are grouped.
    const ROW: usize = size_of::<u32>() + size_of::<i64>() + size_of::<P>() + size_of::<(i64, P)>();

    pub(crate) fn new(layout: &Layout, trajectory: &[Field]) -> Result<Gathered<P>> {
        let fields = layout.partition.iter().chain(trajectory);
        let types: Vec<_> = fields.map(|f| f.data_type().clone()).collect();
        Ok(Gathered {
            groups: Keys::new(&types)?,
            n_partition: layout.partition.len(),
            partitions: Vec::new(),
            of_rows: Vec::new(),
            times: Vec::new(),
            points: Vec::new(),
        })
    }

    /// Keeps the rows of a batch and returns the partition of each. All kept rows together take at
    /// most `room` bytes.
    pub(crate) fn push(
        &mut self,
        columns: &[ArrayRef],
        partitions: &mut Option<Keys>,
        times: &[i64],
        points: &[P],
        room: usize,
    ) -> Result<Vec<u32>, Stop> {
        let before = self.of_rows.len();
        if before + times.len() > room / Self::ROW {
            return Err(Stop::TooManyRows);
        }
        if columns.is_empty() {
            // All rows are one trajectory.
            self.of_rows.resize(before + times.len(), 0);
            self.partitions.resize(1, 0);
        } else {
            self.groups.intern(columns, &mut self.of_rows)?;
        }
        self.times.extend_from_slice(times);
        self.points.extend_from_slice(points);
        let of_rows = &self.of_rows[before..];

        // The first row of a new group determines its partition.
        let mut firsts = Vec::new();
        for (at, &group) in of_rows.iter().enumerate() {
            if group as usize == self.partitions.len() + firsts.len() {
                firsts.push(at as u32);
            }
        }
        match partitions {
            Some(keys) => {
                let firsts = UInt32Array::from(firsts);
                let columns = take_arrays(&columns[..self.n_partition], &firsts, None);
                keys.intern(&columns.map_err(bug)?, &mut self.partitions)?;
            }
            None => self
                .partitions
                .resize(self.partitions.len() + firsts.len(), 0),
        }
        Ok(of_rows
            .iter()
            .map(|&g| self.partitions[g as usize])
            .collect())
    }

    /// Groups the rows; the order within a group does not change. `group` maps old to new group
    /// numbers, of which there are `n`; `state` maps state numbers.
    pub(crate) fn sorted(self, n: usize, group: &[u32], state: impl Fn(u32) -> u32) -> Sorted<P> {
        let group = |of: u32| group.get(of as usize).map_or(0, |&g| g as usize);
        let mut next = vec![0usize; n + 1];
        for &of in &self.of_rows {
            next[group(of) + 1] += 1;
        }
        for at in 0..n {
            next[at + 1] += next[at];
        }
        let offsets = next.clone();
        let mut rows = vec![(0, P::default()); self.of_rows.len()];
        for ((&of, &time), &point) in self.of_rows.iter().zip(&self.times).zip(&self.points) {
            let at = &mut next[group(of)];
            rows[*at] = (time, point.renumbered(&state));
            *at += 1;
        }
        Sorted { offsets, rows }
    }
}

/// The rows (time, point) of one stream by group: group g has `offsets[g]..offsets[g + 1]`.
pub(crate) struct Sorted<P> {
    offsets: Vec<usize>,
    rows: Vec<(i64, P)>,
}

/// Walks every group through its rows of all streams. `partition` holds the partition of each
/// group; `tallies` makes the tallies of a task.
pub(crate) fn walk<P: Point>(
    streams: &[Sorted<P>],
    walker: &Walker<P>,
    partition: &[u32],
    tallies: impl Fn() -> Tallies + Sync,
) -> Result<Vec<Tallies>, (usize, Disorder)> {
    let chunk = partition
        .len()
        .div_ceil(2 * rayon::current_num_threads())
        .max(1);
    let n_lags = walker.n_lags();
    let of = |range: Range<usize>| {
        let mut tallies = tallies();
        let mut walker = walker.clone();
        let mut rows: Vec<(i64, P)> = Vec::new();
        let (mut times, mut points) = (Vec::new(), Vec::new());
        for group in range {
            rows.clear();
            for stream in streams {
                let own = stream.offsets[group]..stream.offsets[group + 1];
                rows.extend_from_slice(&stream.rows[own]);
            }
            if !rows.is_sorted_by_key(|(time, _)| *time) {
                rows.sort_unstable_by_key(|(time, _)| *time);
            }
            times.clear();
            points.clear();
            times.extend(rows.iter().map(|(time, _)| *time));
            points.extend(rows.iter().map(|(_, point)| *point));
            walker.restart();
            let count = P::counter(&mut tallies, partition[group], n_lags);
            walker
                .push(&times, &points, false, count)
                .map_err(|disorder| (group, disorder))?;
        }
        Ok(tallies)
    };
    (0..partition.len())
        .into_par_iter()
        .step_by(chunk)
        .map(|first| of(first..(first + chunk).min(partition.len())))
        // Waits for all groups, so that the reported failure is always the same one.
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// A group as messages show it.
pub(crate) fn name(groups: &Keys, group: usize) -> String {
    match groups.columns(&[group as u32]) {
        Ok(columns) => describe(&columns, 0),
        Err(e) => e.to_string(),
    }
}
