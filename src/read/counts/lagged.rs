//! Points of one trajectory in time order → lagged pairs (coherence §3.1), or windows of rows that
//! follow each other. Pure: slices in, pairs or windows out.

use crate::evidence::lag::Step;
use crate::read::counts::emit::{ByReference, Emit};
use crate::read::counts::near_lag::{NearLag, Nearest, near_within};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::time_rules::{OpenPairs, TimeRules};

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
    /// Gaps that end the trajectory, and whether several rows may have one time.
    rules: TimeRules,
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
            rules: TimeRules::default(),
            times: vec![],
            points: vec![],
            base: 0,
            start: 0,
        }
    }

    /// The same walker with these rules of time.
    pub(crate) fn with(mut self, rules: &TimeRules) -> Walker<P> {
        self.rules = rules.clone();
        self
    }

    /// A walker for the rows of a layout. None for pairs that are given.
    pub(crate) fn of(layout: &Layout) -> Option<Walker<P>> {
        let walker = match &layout.evidence {
            RowRoles::Trajectories { lags, strided, .. } => Walker::new(lags, *strided),
            RowRoles::Windows {
                step, block, first, ..
            } => Walker {
                window: Some((*step, 2 * block)),
                ..Walker::new(&[Step::Rows(2 * block)], *first)
            },
            RowRoles::Pairs { .. } => return None,
        };
        Some(walker.with(&layout.rules))
    }

    /// Whether several rows may have one time.
    pub(crate) fn has_ties(&self) -> bool {
        self.rules.keeps_ties()
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
        // A step back in time would look like a gap.
        self.check_order(times)?;
        if self.rules.max_gap.is_some() || self.rules.tolerance.is_some() {
            self.push_parts(times, points, goes_on, &mut emit);
            return Ok(());
        }
        self.begin_piece(times, points, &mut emit);
        self.pairs_within(|_| (), times, points, false, emit);
        if goes_on {
            self.keep(times, points);
        }
        Ok(())
    }

    /// Appends rows in order, which gaps may divide into parts.
    fn push_parts(&mut self, times: &[i64], points: &[P], goes_on: bool, emit: &mut impl Emit<P>) {
        let mut first = 0;
        if self.rules.max_gap.is_some() {
            if let (Some(&before), Some(&after)) = (self.times.last(), times.first())
                && self.rules.ends_between(before, after)
            {
                self.emit_before_gap(emit);
                self.note_gap(emit);
                self.restart();
            }
            while let Some(end) = self.first_gap(&times[first..]) {
                let piece = first..first + end;
                self.push_piece(&times[piece.clone()], &points[piece.clone()], emit);
                if self.rules.tolerance.is_some() {
                    self.keep(&times[piece.clone()], &points[piece]);
                    self.emit_before_gap(emit);
                }
                self.note_gap(emit);
                self.restart();
                first += end;
            }
        }
        let (times, points) = (&times[first..], &points[first..]);
        self.push_piece(times, points, emit);
        if goes_on {
            self.keep(times, points);
        } else if self.rules.tolerance.is_some() {
            self.keep(times, points);
            self.emit_rest(emit);
            self.restart();
        }
    }

    /// Emits the pairs that rows in order complete, without a gap between them.
    fn push_piece(&mut self, times: &[i64], points: &[P], emit: &mut impl Emit<P>) {
        self.begin_piece(times, points, emit);
        self.pairs_within(|_| (), times, points, false, ByReference(emit));
    }

    /// Emits the pairs of kept rows and these.
    #[inline(always)]
    fn begin_piece(&mut self, times: &[i64], points: &[P], emit: &mut impl Emit<P>) {
        if self.base == 0 && self.times.is_empty() {
            self.start = times.first().copied().unwrap_or(0);
        } else {
            self.join_with(times, points, false, emit);
        }
    }

    /// Emits the pairs whose target is known only when the trajectory ends: no row is at the time
    /// that the lag asks for or later, and the last row is near it.
    pub(crate) fn emit_rest(&self, emit: &mut impl Emit<P>) {
        if self.rules.open_pairs != OpenPairs::LeftOut {
            self.emit_open(emit);
        }
    }

    /// As [`emit_rest`](Self::emit_rest), of a trajectory that a gap ends: no later row can change
    /// these pairs.
    fn emit_before_gap(&self, emit: &mut impl Emit<P>) {
        if self.rules.open_pairs != OpenPairs::Alone {
            self.emit_open(emit);
        }
    }

    /// Notes a gap, unless other counts have it.
    fn note_gap(&self, emit: &mut impl Emit<P>) {
        if self.rules.open_pairs != OpenPairs::Alone {
            emit.gap();
        }
    }

    fn emit_open(&self, emit: &mut impl Emit<P>) {
        let (Some(&last), Some(&target)) = (self.times.last(), self.points.last()) else {
            return;
        };
        for near in self.near_lags() {
            for (&time, &source) in self
                .times
                .iter()
                .zip(&self.points)
                .skip(self.open_from(near))
            {
                if let Some(Nearest::Before) = near.nearest(time, last, None) {
                    emit.near_pair(near.lag, source, target);
                }
            }
        }
    }

    /// Whether pairs may be known only when the trajectory ends.
    pub(crate) fn has_rest(&self) -> bool {
        let is_counted = self.rules.open_pairs != OpenPairs::LeftOut;
        is_counted && self.rules.tolerance.is_some() && !self.times.is_empty()
    }

    /// The lags that are times, if there is a tolerance.
    fn near_lags(&self) -> impl Iterator<Item = NearLag> {
        let tolerance = self.rules.tolerance;
        let lags = self.lags.iter().enumerate();
        lags.filter_map(move |(lag, step)| match *step {
            Step::Ticks(ticks) => Some(NearLag {
                lag,
                ticks: ticks as u64,
                tolerance: tolerance?,
            }),
            Step::Rows(_) => None,
        })
    }

    /// The first kept row whose target at a lag is not known yet.
    fn open_from(&self, near: NearLag) -> usize {
        let last = self.times.last().copied().unwrap_or(0);
        let is_done = |time: &i64| last.wrapping_sub(*time) as u64 >= near.ticks;
        self.times.partition_point(is_done)
    }

    /// Checks that the next rows are in order, and later than the kept ones.
    fn check_order(&self, times: &[i64]) -> Result<(), Disorder> {
        let has_ties = self.rules.keeps_ties();
        let is_wrong = |before: i64, after: i64| before > after || (before == after && !has_ties);
        if let (Some(&before), Some(&after)) = (self.times.last(), times.first())
            && is_wrong(before, after)
        {
            return Err(Disorder { before, after });
        }
        // Without an early exit the comparison of neighbours is vectorised.
        let pairs = times.windows(2);
        let is_ordered = if has_ties {
            pairs.fold(true, |all, w| all & (w[0] <= w[1]))
        } else {
            pairs.fold(true, |all, w| all & (w[0] < w[1]))
        };
        if is_ordered {
            return Ok(());
        }
        let mut pairs = times.windows(2);
        let at = pairs.position(|w| is_wrong(w[0], w[1])).unwrap_or(0);
        Err(Disorder {
            before: times[at],
            after: times[at + 1],
        })
    }

    /// The number of rows before the first gap that ends the trajectory. None without such a gap.
    fn first_gap(&self, times: &[i64]) -> Option<usize> {
        self.rules.max_gap?;
        let mut pairs = times.windows(2);
        let at = pairs.position(|w| self.rules.ends_between(w[0], w[1]))?;
        Some(at + 1)
    }

    /// Emits the pairs of whole trajectories one after another; times ascend strictly in each.
    /// Equivalent to a restart and a push per trajectory, but faster for short trajectories.
    pub(crate) fn push_whole(
        &mut self,
        trajectories: &[i64],
        times: &[i64],
        points: &[P],
        mut emit: impl Emit<P>,
    ) {
        if self.rules.open_pairs != OpenPairs::Counted {
            // The order was checked.
            let mut first = 0;
            for rows in trajectories.chunk_by(|a, b| a == b) {
                let rows = first..first + rows.len();
                first = rows.end;
                self.restart();
                self.push_parts(&times[rows.clone()], &points[rows], false, &mut emit);
            }
            return;
        }
        self.restart();
        self.start = times.first().copied().unwrap_or(0);
        if self.rules.max_gap.is_none() {
            self.pairs_within(|row| trajectories[row], times, points, true, emit);
            return;
        }
        let mut part = 0u32;
        let mut parts = Vec::with_capacity(times.len());
        for at in 0..times.len() {
            let follows = at > 0 && trajectories[at - 1] == trajectories[at];
            let is_gap = follows && self.rules.ends_between(times[at - 1], times[at]);
            if is_gap {
                emit.gap();
            }
            part += u32::from(at > 0 && (!follows || is_gap));
            parts.push(part);
        }
        self.pairs_within(|row| parts[row], times, points, true, emit);
    }

    /// Emits the pairs among the given rows, the first of which continue the trajectory of this
    /// walker. `ends` says that no row follows the last one.
    #[inline(always)]
    fn pairs_within<T: PartialEq>(
        &self,
        trajectory: impl Fn(usize) -> T,
        times: &[i64],
        points: &[P],
        ends: bool,
        mut emit: impl Emit<P>,
    ) {
        if self.rules.open_pairs == OpenPairs::Alone {
            return;
        }
        if let Some((step, n)) = self.window {
            // The first row of the trajectory, if it is among these rows.
            let mut start = (self.base + self.times.len() == 0).then_some(0);
            let mut in_a_row = 0;
            for j in 0..points.len() {
                let is_same = j > 0 && trajectory(j) == trajectory(j - 1);
                if j > 0 && !is_same {
                    start = Some(j);
                }
                let follows = is_same && self.rules.leads(step, times[j - 1], times[j]);
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
        for near in self.near_lags() {
            near_within(near, &trajectory, (times, points), ends, &mut emit);
        }
        for (lag, step) in self.lags.iter().enumerate() {
            let mut of = begin;
            match *step {
                Step::Ticks(_) if self.rules.tolerance.is_some() => {}
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
        let (Some(&before), Some(&after)) = (self.times.last(), times.first()) else {
            return Ok(());
        };
        self.check_order(&times[..1])?;
        if self.rules.ends_between(before, after) {
            self.emit_before_gap(&mut emit);
            self.note_gap(&mut emit);
            return Ok(());
        }
        let end = self.first_gap(times).unwrap_or(times.len());
        let ends = end < times.len();
        self.join_with(&times[..end], &points[..end], ends, &mut emit);
        Ok(())
    }

    /// Emits the pairs of a kept row and a later row, without a gap between them. `ends` says that
    /// no row follows the last one.
    fn join_with(&self, times: &[i64], points: &[P], ends: bool, emit: &mut impl Emit<P>) {
        let Some(&after) = times.first().filter(|_| !self.times.is_empty()) else {
            return;
        };
        if self.rules.open_pairs == OpenPairs::Alone {
            return;
        }
        if let Some((step, n)) = self.window {
            let kept = self.times.len().saturating_sub(n)..self.times.len();
            let more = times.len().min(n);
            let (first, n_kept) = (self.base + kept.start, kept.len());
            let times = [&self.times[kept.clone()], &times[..more]].concat();
            let points = [&self.points[kept], &points[..more]].concat();
            let mut in_a_row = 0;
            for j in 1..times.len() {
                let follows = self.rules.leads(step, times[j - 1], times[j]);
                in_a_row = if follows { in_a_row + 1 } else { 0 };
                let is_across = j >= n_kept && in_a_row >= n && j - n < n_kept;
                if is_across && (!self.strided || first + j - n == 0) {
                    emit.window(&points[j - n..=j]);
                }
            }
            return;
        }
        for near in self.near_lags() {
            self.join_near(near, (times, points), ends, emit);
        }
        for (lag, step) in self.lags.iter().enumerate() {
            match *step {
                Step::Ticks(_) if self.rules.tolerance.is_some() => {}
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
    }

    /// Emits the pairs of kept rows whose target is known now.
    fn join_near(
        &self,
        near: NearLag,
        (times, points): (&[i64], &[P]),
        ends: bool,
        emit: &mut impl Emit<P>,
    ) {
        let kept = self.times.iter().zip(&self.points);
        let mut after = 0;
        for (&time, &source) in kept.skip(self.open_from(near)) {
            let elapsed = |later: i64| later.wrapping_sub(time) as u64;
            while after < times.len() && elapsed(times[after]) < near.ticks {
                after += 1;
            }
            if after == times.len() && !ends {
                break;
            }
            // There are kept rows, and the last one is before the first of these rows.
            let last = self.times.len() - 1;
            let before = match after.checked_sub(1) {
                Some(row) => (times[row], points[row]),
                None => (self.times[last], self.points[last]),
            };
            match near.nearest(time, before.0, times.get(after).copied()) {
                Some(Nearest::Before) => emit.near_pair(near.lag, source, before.1),
                Some(Nearest::At) => emit.pair(near.lag, source, points[after]),
                Some(Nearest::After) => emit.near_pair(near.lag, source, points[after]),
                None => {}
            }
        }
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
mod tests;
