//! Points of one trajectory in time order → lagged pairs (coherence §3.1), or windows of rows that
//! follow each other. Pure: slices in, pairs or windows out.

use crate::evidence::lag::Step;
use crate::read::rows::layout::RowRoles;

/// Receives pairs or windows.
pub(crate) trait Emit<P> {
    /// Receives a pair of points at a lag. Points may have no state.
    fn pair(&mut self, lag: usize, source: P, target: P);

    /// Receives the points of a window. Points may have no state.
    fn window(&mut self, rows: &[P]);
}

/// A closure receives pairs.
impl<P, F: FnMut(usize, P, P)> Emit<P> for F {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: P, target: P) {
        self(lag, source, target);
    }

    fn window(&mut self, _: &[P]) {}
}

/// Follows one trajectory through pieces of any size and emits each pair of points once.
#[derive(Debug, Clone)]
pub(crate) struct Walker<P> {
    lags: Vec<Step>,
    /// Emit only the pairs that start at 0, τ, 2τ, … after the first row, or only the window that
    /// starts with it.
    strided: bool,
    /// For windows: the step from a row to the next, and the number of steps. Then the only lag is
    /// the number of steps in rows.
    window: Option<(Step, usize)>,
    /// Rows of earlier pieces that can still start a pair; the first of them is row `base` of the
    /// trajectory.
    times: Vec<i64>,
    points: Vec<P>,
    base: usize,
    start: i64,
}

/// Two rows that are not in strictly ascending time order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disorder {
    /// Ticks of the earlier row.
    pub before: i64,
    /// Ticks of the later row.
    pub after: i64,
}

/// The first row of a trajectory.
#[derive(Clone, Copy)]
struct FirstRow {
    time: i64,
    /// Its index in the trajectory.
    row: usize,
    /// Its index among the rows that are walked.
    at: usize,
}

impl<P: Copy> Walker<P> {
    /// A walker at the start of a trajectory. `strided`: emit only the pairs that start at
    /// multiples of each lag.
    pub(crate) fn new(lags: &[Step], strided: bool) -> Walker<P> {
        Walker {
            lags: lags.to_vec(),
            strided,
            window: None,
            times: vec![],
            points: vec![],
            base: 0,
            start: 0,
        }
    }

    /// A walker for the rows of a layout. None for pairs that are given.
    pub(crate) fn of(roles: &RowRoles) -> Option<Walker<P>> {
        match roles {
            RowRoles::Trajectories { lags, strided, .. } => Some(Walker::new(lags, *strided)),
            RowRoles::Windows {
                step, block, first, ..
            } => Some(Walker {
                window: Some((*step, 2 * block)),
                ..Walker::new(&[Step::Rows(2 * block)], *first)
            }),
            RowRoles::Pairs { .. } => None,
        }
    }

    /// Number of lags.
    pub(crate) fn n_lags(&self) -> usize {
        self.lags.len()
    }

    /// Forgets the trajectory; the next piece starts another one.
    pub(crate) fn restart(&mut self) {
        self.times.clear();
        self.points.clear();
        self.base = 0;
    }

    /// The same walker with its kept points replaced by `other` of them.
    pub(crate) fn map(mut self, other: impl Fn(P) -> P) -> Walker<P> {
        self.points
            .iter_mut()
            .for_each(|point| *point = other(*point));
        self
    }

    /// The points that can still start a pair.
    pub(crate) fn points(&self) -> &[P] {
        &self.points
    }

    /// Whether rows at `times` span so much that no pair joins a row before them with a row after
    /// them, and no window has both. Always false for strided pairs and first windows: the first
    /// row of a trajectory decides which of these exist.
    pub(crate) fn is_spanned_by(&self, times: &[i64]) -> bool {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return false;
        };
        !self.strided
            && self.lags.iter().all(|step| match *step {
                Step::Ticks(ticks) => last.wrapping_sub(*first) as u64 >= ticks as u64,
                Step::Rows(rows) => times.len() > rows,
            })
    }

    /// Appends the next rows of the trajectory and emits every pair or window that they complete.
    /// Points may have no state: `emit` must skip what has such points. Without `goes_on` no rows
    /// are kept.
    ///
    /// # Errors
    /// The first two rows that are not in ascending time order.
    pub(crate) fn push(
        &mut self,
        times: &[i64],
        points: &[P],
        goes_on: bool,
        mut emit: impl Emit<P>,
    ) -> Result<(), Disorder> {
        assert_eq!(times.len(), points.len(), "one point per time");
        if self.base == 0 && self.times.is_empty() {
            self.start = times.first().copied().unwrap_or(0);
        } else {
            self.join_with(times, points, &mut emit)?;
        }
        // Without an early exit the comparison of neighbours is vectorised.
        if !times.windows(2).fold(true, |all, w| all & (w[0] < w[1])) {
            let at = times.windows(2).position(|w| w[0] >= w[1]).unwrap_or(0);
            return Err(Disorder {
                before: times[at],
                after: times[at + 1],
            });
        }
        self.pairs_within(|_| (), times, points, emit);
        if goes_on {
            self.keep(times, points);
        }
        Ok(())
    }

    /// Emits the pairs of whole trajectories one after another; times ascend strictly in each.
    /// Equivalent to a restart and a push per trajectory, but faster for short trajectories.
    pub(crate) fn push_whole(
        &mut self,
        trajectories: &[i64],
        times: &[i64],
        points: &[P],
        emit: impl Emit<P>,
    ) {
        self.restart();
        self.start = times.first().copied().unwrap_or(0);
        self.pairs_within(|row| trajectories[row], times, points, emit);
    }

    /// Emits the pairs among the given rows, the first of which continue the trajectory of this
    /// walker.
    #[inline(always)]
    fn pairs_within<T: PartialEq>(
        &self,
        trajectory: impl Fn(usize) -> T,
        times: &[i64],
        points: &[P],
        mut emit: impl Emit<P>,
    ) {
        if let Some((step, n)) = self.window {
            // The first row of the trajectory, if it is among these rows.
            let mut start = (self.base + self.times.len() == 0).then_some(0);
            let mut in_a_row = 0;
            for j in 0..points.len() {
                let is_same = j > 0 && trajectory(j) == trajectory(j - 1);
                if j > 0 && !is_same {
                    start = Some(j);
                }
                let follows = is_same && step.leads(times[j - 1], times[j]);
                in_a_row = if follows { in_a_row + 1 } else { 0 };
                if in_a_row >= n && (!self.strided || start == Some(j - n)) {
                    emit.window(&points[j - n..=j]);
                }
            }
            return;
        }
        let begin = FirstRow {
            time: self.start,
            row: self.base + self.times.len(),
            at: 0,
        };
        let first = |before: FirstRow, j: usize| {
            let is_new = self.strided && j > 0 && trajectory(j) != trajectory(j - 1);
            if !is_new {
                return before;
            }
            FirstRow {
                time: times[j],
                row: 0,
                at: j,
            }
        };
        for (lag, step) in self.lags.iter().enumerate() {
            let mut of = begin;
            match *step {
                Step::Ticks(ticks) => {
                    let mut i = 0;
                    for (j, (&time, &target)) in times.iter().zip(points).enumerate() {
                        of = first(of, j);
                        // Times ascend, so the difference is positive; it overflows only for lags
                        // that no i64 can hold.
                        let elapsed = |i: usize| time.wrapping_sub(times[i]) as u64;
                        while trajectory(i) != trajectory(j) || elapsed(i) > ticks as u64 {
                            i += 1;
                        }
                        if elapsed(i) == ticks as u64 {
                            let since = times[i].wrapping_sub(of.time) as u64;
                            if !self.strided || since.is_multiple_of(ticks as u64) {
                                emit.pair(lag, points[i], target);
                            }
                            i += 1;
                        }
                    }
                }
                Step::Rows(rows) => {
                    for (j, &target) in points.iter().enumerate() {
                        of = first(of, j);
                        let Some(i) = j.checked_sub(rows) else {
                            continue;
                        };
                        if trajectory(i) != trajectory(j) {
                            continue;
                        }
                        if !self.strided || (of.row + i - of.at).is_multiple_of(rows) {
                            emit.pair(lag, points[i], target);
                        }
                    }
                }
            }
        }
    }

    /// Emits the pairs of a kept row and a row of the next piece.
    ///
    /// # Errors
    /// The next piece does not start later than the kept rows end.
    pub(crate) fn join(
        &self,
        times: &[i64],
        points: &[P],
        mut emit: impl Emit<P>,
    ) -> Result<(), Disorder> {
        self.join_with(times, points, &mut emit)
    }

    fn join_with(
        &self,
        times: &[i64],
        points: &[P],
        emit: &mut impl Emit<P>,
    ) -> Result<(), Disorder> {
        let (Some(&before), Some(&after)) = (self.times.last(), times.first()) else {
            return Ok(());
        };
        if before >= after {
            return Err(Disorder { before, after });
        }
        if let Some((step, n)) = self.window {
            let kept = self.times.len().saturating_sub(n)..self.times.len();
            let more = times.len().min(n);
            let (first, n_kept) = (self.base + kept.start, kept.len());
            let times = [&self.times[kept.clone()], &times[..more]].concat();
            let points = [&self.points[kept], &points[..more]].concat();
            let mut in_a_row = 0;
            for j in 1..times.len() {
                let follows = step.leads(times[j - 1], times[j]);
                in_a_row = if follows { in_a_row + 1 } else { 0 };
                let is_across = j >= n_kept && in_a_row >= n && j - n < n_kept;
                if is_across && (!self.strided || first + j - n == 0) {
                    emit.window(&points[j - n..=j]);
                }
            }
            return Ok(());
        }
        for (lag, step) in self.lags.iter().enumerate() {
            match *step {
                Step::Ticks(ticks) => {
                    let reach = |t: &i64| after.wrapping_sub(*t) as u64 > ticks as u64;
                    let mut i = self.times.partition_point(reach);
                    for (&time, &target) in times.iter().zip(points) {
                        let elapsed = |i: usize| time.wrapping_sub(self.times[i]) as u64;
                        while i < self.times.len() && elapsed(i) > ticks as u64 {
                            i += 1;
                        }
                        if i == self.times.len() {
                            break;
                        }
                        let since = self.times[i].wrapping_sub(self.start) as u64;
                        let strides = !self.strided || since.is_multiple_of(ticks as u64);
                        if elapsed(i) == ticks as u64 && strides {
                            emit.pair(lag, self.points[i], target);
                        }
                    }
                }
                Step::Rows(rows) => {
                    // Kept row i is paired with row i + rows of the kept and new rows.
                    let kept = self.times.len();
                    let sources = kept.saturating_sub(rows)..kept;
                    for i in sources {
                        let strides = !self.strided || (self.base + i).is_multiple_of(rows);
                        if let Some(&target) = points.get(i + rows - kept).filter(|_| strides) {
                            emit.pair(lag, self.points[i], target);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps the rows that can still start a pair, and the last row to check the order of the next
    /// piece.
    fn keep(&mut self, times: &[i64], points: &[P]) {
        let Some(&last) = times.last() else { return };
        let spent = |times: &[i64], after: usize| {
            self.lags
                .iter()
                .map(|step| match *step {
                    Step::Ticks(ticks) => {
                        times.partition_point(|t| last.wrapping_sub(*t) as u64 >= ticks as u64)
                    }
                    Step::Rows(rows) => (times.len() + after).saturating_sub(rows),
                })
                .min()
                .unwrap_or(0)
                .min(times.len())
        };
        let new = spent(times, 0);
        let old = if new > 0 {
            self.times.len()
        } else {
            spent(&self.times, times.len())
        };
        // Frees rows in bulk, so that each row is moved only a few times.
        if new > 0 || (old > 4096 && 2 * old > self.times.len()) {
            self.times.drain(..old);
            self.points.drain(..old);
            self.base += old + new;
        }
        self.times.extend_from_slice(&times[new..]);
        self.points.extend_from_slice(&points[new..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(usize, u32, u32)>;

    fn into(all: &mut Pairs) -> impl FnMut(usize, u32, u32) {
        move |lag, source, target| all.push((lag, source, target))
    }

    /// Pairs of a trajectory given in one piece.
    fn pairs(lags: &[Step], strided: bool, times: &[i64], states: &[u32]) -> Pairs {
        let mut out = Vec::new();
        let mut walker = Walker::new(lags, strided);
        let pushed = walker.push(times, states, false, into(&mut out));
        pushed.unwrap();
        out
    }

    #[test]
    fn no_pair_spans_a_gap() {
        // Times 0 1 3 4: the pairs are 0→1 and 3→4 at lag 1, and 0→3 and 1→4 at lag 3.
        let got = pairs(
            &[Step::Ticks(1), Step::Ticks(3)],
            false,
            &[0, 1, 3, 4],
            &[10, 11, 13, 14],
        );
        assert_eq!(got, [(0, 10, 11), (0, 13, 14), (1, 10, 13), (1, 11, 14)]);
    }

    #[test]
    fn steps_count_rows_and_ignore_times() {
        assert_eq!(
            pairs(&[Step::Rows(2)], false, &[0, 5, 6, 100], &[1, 2, 3, 4]),
            [(0, 1, 3), (0, 2, 4)]
        );
    }

    #[test]
    fn strided_pairs_start_at_multiples_of_the_lag() {
        let (times, states): (Vec<i64>, Vec<u32>) = ((7..14).collect(), (0..7).collect());
        // First time 7, lag 2: the pairs start at 7, 9 and 11.
        assert_eq!(
            pairs(&[Step::Ticks(2)], true, &times, &states),
            [(0, 0, 2), (0, 2, 4), (0, 4, 6)]
        );
        assert_eq!(
            pairs(&[Step::Rows(3)], true, &times, &states),
            [(0, 0, 3), (0, 3, 6)]
        );
    }

    #[test]
    fn points_keep_their_weights() {
        // States 1 2 3 4 with weights ½ 1 2 4 at times 0 1 2 4, split after two rows.
        let points = [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)];
        let times = [0, 1, 2, 4];
        let mut walker = Walker::new(&[Step::Ticks(2), Step::Rows(1)], false);
        let mut got = Vec::new();
        for (piece, goes_on) in [(0..2, true), (2..4, false)] {
            let (times, points) = (&times[piece.clone()], &points[piece]);
            let emit = |lag: usize, source: (i32, f64), target: (i32, f64)| {
                got.push((lag, source, target))
            };
            walker.push(times, points, goes_on, emit).unwrap();
        }
        got.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let pair = |lag, i: usize, j: usize| (lag, points[i], points[j]);
        let expected = [
            pair(0, 0, 2),
            pair(0, 2, 3),
            pair(1, 0, 1),
            pair(1, 1, 2),
            pair(1, 2, 3),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn disorder_names_both_times() {
        let mut w = Walker::new(&[Step::Ticks(1)], false);
        w.push(&[1, 2], &[0, 0], true, |_: usize, _: i32, _: i32| ())
            .unwrap();
        assert_eq!(
            w.push(&[2], &[0], true, |_: usize, _: i32, _: i32| ()),
            Err(Disorder {
                before: 2,
                after: 2
            })
        );
    }

    #[test]
    fn a_spanning_piece_separates_the_pairs_before_and_after_it() {
        let (times, states): (Vec<i64>, Vec<u32>) = ((0..20).collect(), (0..20).collect());
        let lags = [Step::Ticks(3), Step::Rows(2)];
        let mut first = Walker::new(&lags, false);
        let mut got = Vec::new();
        let pushed = first.push(&times[..5], &states[..5], true, into(&mut got));
        pushed.unwrap();
        assert!(!first.is_spanned_by(&times[5..7]));
        assert!(first.is_spanned_by(&times[5..9]));
        // The first walker gets only the first rows of the second piece.
        let joined = first.join(&times[5..9], &states[5..9], into(&mut got));
        joined.unwrap();
        let mut second = Walker::new(&lags, false);
        let pushed = second.push(&times[5..], &states[5..], false, into(&mut got));
        pushed.unwrap();
        got.sort_unstable();
        let mut expected = pairs(&lags, false, &times, &states);
        expected.sort_unstable();
        assert_eq!(got, expected);
    }

    proptest! {
        #[test]
        fn whole_trajectories_give_the_same_pairs_as_single_pushes(
            lengths in prop::collection::vec(1usize..9, 1..30),
            gaps in prop::collection::vec(1i64..4, 1..300),
            strided: bool,
            lag in 1i64..5,
        ) {
            let lags = [Step::Ticks(lag), Step::Rows(lag as usize)];
            let (mut trajectories, mut times) = (Vec::new(), Vec::new());
            let mut gaps = gaps.iter().cycle();
            let mut time = 0;
            for (trajectory, &length) in lengths.iter().enumerate() {
                for _ in 0..length {
                    time += gaps.next().unwrap();
                    trajectories.push(trajectory as i64);
                    times.push(time);
                }
            }
            let states: Vec<u32> = (0..times.len() as u32).collect();
            let mut got = Vec::new();
            let mut walker = Walker::new(&lags, strided);
            walker.push_whole(&trajectories, &times, &states, into(&mut got));
            let mut expected = Vec::new();
            let mut at = 0;
            for &length in &lengths {
                expected.extend(pairs(&lags, strided, &times[at..at + length], &states[at..at + length]));
                at += length;
            }
            got.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn pieces_give_the_same_pairs_as_the_whole(
            gaps in prop::collection::vec(1i64..4, 1..300),
            cuts in prop::collection::vec(1usize..40, 1..40),
            strided: bool,
            lag in 1i64..9,
        ) {
            let times: Vec<i64> = gaps.iter().scan(-50, |t, g| { *t += g; Some(*t) }).collect();
            let states: Vec<u32> = (0..times.len() as u32).collect();
            let lags = [Step::Ticks(lag), Step::Rows(lag as usize)];
            let mut expected = Vec::new();
            for j in 0..times.len() {
                for i in 0..j {
                    if times[j] - times[i] == lag && (!strided || (times[i] - times[0]) % lag == 0) {
                        expected.push((0, i as u32, j as u32));
                    }
                    if (j - i) as i64 == lag && (!strided || i as i64 % lag == 0) {
                        expected.push((1, i as u32, j as u32));
                    }
                }
            }
            let mut got = Vec::new();
            let mut walker = Walker::new(&lags, strided);
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(times.len());
                walker.push(&times[at..end], &states[at..end], true, into(&mut got)).unwrap();
                at = end;
                if at == times.len() { break; }
            }
            expected.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, expected);
        }
    }
}
