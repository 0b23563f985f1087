//! Points of one trajectory in time order → lagged pairs (coherence §3.1), or windows of rows that
//! follow each other. Pure: slices in, pairs or windows out.

use crate::evidence::lag::Step;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::time_rules::{OpenPairs, TimeRules};

/// Receives pairs or windows.
pub(crate) trait Emit<P> {
    /// Receives a pair of points at a lag. Points may have no state.
    fn pair(&mut self, lag: usize, source: P, target: P);

    /// Receives a pair whose target is near the time that the lag asks for, and not at it.
    fn near_pair(&mut self, lag: usize, source: P, target: P) {
        self.pair(lag, source, target);
    }

    /// Receives the points of a window. Points may have no state.
    fn window(&mut self, rows: &[P]);

    /// Notes a gap that ends a trajectory.
    fn gap(&mut self) {}
}

/// A closure receives pairs.
impl<P, F: FnMut(usize, P, P)> Emit<P> for F {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: P, target: P) {
        self(lag, source, target);
    }

    fn window(&mut self, _: &[P]) {}
}

/// A receiver that is borrowed.
struct ByReference<'a, E>(&'a mut E);

impl<P, E: Emit<P>> Emit<P> for ByReference<'_, E> {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: P, target: P) {
        self.0.pair(lag, source, target);
    }

    #[inline(always)]
    fn near_pair(&mut self, lag: usize, source: P, target: P) {
        self.0.near_pair(lag, source, target);
    }

    #[inline(always)]
    fn window(&mut self, rows: &[P]) {
        self.0.window(rows);
    }

    fn gap(&mut self) {
        self.0.gap();
    }
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
    /// Gaps that end the trajectory, and whether several rows may have one time.
    rules: TimeRules,
    /// Rows of earlier pieces that can still start a pair; the first of them is row `base` of the
    /// trajectory.
    times: Vec<i64>,
    points: Vec<P>,
    base: usize,
    start: i64,
}

/// A lag whose targets may be near the time that it asks for.
#[derive(Clone, Copy)]
struct NearLag {
    lag: usize,
    ticks: u64,
    tolerance: u64,
}

/// Which of the two rows around a time is the nearest.
enum Nearest {
    Before,
    At,
    After,
}

impl NearLag {
    /// The nearest row to the time that is this lag after `source`. `before` is the last row before
    /// that time, and `after` the first row at it or later. The earlier row wins a tie. None if the
    /// nearest row is too far.
    ///
    /// The tolerance is less than half of the lag, so a source is never its own target.
    #[inline(always)]
    fn nearest(self, source: i64, before: i64, after: Option<i64>) -> Option<Nearest> {
        let elapsed = |time: i64| time.wrapping_sub(source) as u64;
        let to_before = self.ticks - elapsed(before);
        match after.map(|after| elapsed(after) - self.ticks) {
            Some(0) => Some(Nearest::At),
            Some(to_after) if to_after < to_before => {
                (to_after <= self.tolerance).then_some(Nearest::After)
            }
            _ => (to_before <= self.tolerance).then_some(Nearest::Before),
        }
    }
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

/// Emits the pairs among rows of trajectories whose target at a lag is known. `ends` says that no
/// row follows the last one.
fn near_within<P: Copy, T: PartialEq>(
    near: NearLag,
    trajectory: impl Fn(usize) -> T,
    (times, points): (&[i64], &[P]),
    ends: bool,
    emit: &mut impl Emit<P>,
) {
    let n = times.len();
    let mut after = 0;
    for row in 0..n {
        let is_same = |other: usize| other < n && trajectory(other) == trajectory(row);
        let elapsed = |other: usize| times[other].wrapping_sub(times[row]) as u64;
        after = after.max(row + 1);
        while is_same(after) && elapsed(after) < near.ticks {
            after += 1;
        }
        if after == n && !ends {
            break;
        }
        let later = is_same(after).then(|| times[after]);
        match near.nearest(times[row], times[after - 1], later) {
            Some(Nearest::Before) => emit.near_pair(near.lag, points[row], points[after - 1]),
            Some(Nearest::At) => emit.pair(near.lag, points[row], points[after]),
            Some(Nearest::After) => emit.near_pair(near.lag, points[row], points[after]),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::rows::time_rules::Ties;
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

    fn gaps(max_gap: u64) -> TimeRules {
        TimeRules {
            max_gap: Some(max_gap),
            ..TimeRules::default()
        }
    }

    #[test]
    fn a_longer_gap_ends_a_trajectory() {
        // Times 0 2 4 8 10: with gaps up to 3, the parts are 0 2 4 and 8 10. At lag 4, only 0 → 4
        // is left of 0 → 4 and 4 → 8.
        let mut walker = Walker::new(&[Step::Ticks(4), Step::Rows(1)], false).with(&gaps(3));
        let mut got = Vec::new();
        let (times, states) = ([0, 2, 4, 8, 10], [1, 2, 3, 4, 5]);
        let pushed = walker.push(&times, &states, true, into(&mut got));
        pushed.unwrap();
        got.sort_unstable();
        assert_eq!(got, [(0, 1, 3), (1, 1, 2), (1, 2, 3), (1, 4, 5)]);
        // The last kept row is at 10: a row at 13 follows it, and one at 14 would not.
        let mut other = walker.clone();
        let mut got = Vec::new();
        other.push(&[13], &[6], true, into(&mut got)).unwrap();
        assert_eq!(got, [(1, 5, 6)]);
        got.clear();
        walker.push(&[14], &[6], true, into(&mut got)).unwrap();
        assert_eq!(got, []);
        // A step back in time is no gap.
        let back = walker.push(&[3], &[7], true, into(&mut got));
        let disorder = Disorder {
            before: 14,
            after: 3,
        };
        assert_eq!(back, Err(disorder));
    }

    fn near(tolerance: u64) -> TimeRules {
        TimeRules {
            tolerance: Some(tolerance),
            ..TimeRules::default()
        }
    }

    #[test]
    fn the_nearest_row_is_the_target_and_the_earlier_one_of_two() {
        // Lag 10 ± 3. From 0: 8 and 12 are as near. From 3: 12 is at 13 − 1. From 8: 19 is at
        // 18 + 1. From 12: 19 is at 22 − 3, and no later row is nearer. From 19: nothing is near.
        let times = [0, 3, 8, 12, 19, 40];
        let states = [0, 1, 2, 3, 4, 5];
        let mut walker = Walker::new(&[Step::Ticks(10)], false).with(&near(3));
        let mut got = Vec::new();
        walker.push(&times, &states, false, into(&mut got)).unwrap();
        assert_eq!(got, [(0, 0, 2), (0, 1, 3), (0, 2, 4), (0, 3, 4)]);
        // The last row is the target of a row that no later row can be nearer to, once it is the
        // last one: 9 is at 10 − 1.
        let mut walker = Walker::new(&[Step::Ticks(10)], false).with(&near(3));
        let mut got = Vec::new();
        walker.push(&[0, 9], &[0, 1], true, into(&mut got)).unwrap();
        assert_eq!(got, []);
        let mut other = walker.clone();
        walker.emit_rest(&mut into(&mut got));
        assert_eq!(got, [(0, 0, 1)]);
        got.clear();
        other.push(&[10], &[2], true, into(&mut got)).unwrap();
        assert_eq!(got, [(0, 0, 2)]);
    }

    #[test]
    fn rows_of_one_time_follow_each_other_if_all_count() {
        let rules = TimeRules {
            ties: Ties::All,
            ..TimeRules::default()
        };
        let mut walker = Walker::new(&[Step::Rows(1)], false).with(&rules);
        let mut got = Vec::new();
        walker.push(&[4, 4], &[1, 2], true, into(&mut got)).unwrap();
        walker.push(&[4, 5], &[3, 4], true, into(&mut got)).unwrap();
        got.sort_unstable();
        assert_eq!(got, [(0, 1, 2), (0, 2, 3), (0, 3, 4)]);
        assert!(walker.push(&[4], &[5], true, into(&mut got)).is_err());
    }

    proptest! {
        /// A trajectory in pieces is the same as its parts between gaps as trajectories, whose
        /// numbers are a running sum over the rows: `sum(t - lag(t) > g) OVER (ORDER BY t)`.
        #[test]
        fn gaps_divide_a_trajectory_like_a_window_function(
            steps in prop::collection::vec(1i64..9, 1..200),
            cuts in prop::collection::vec(1usize..40, 1..20),
            max_gap in 1u64..9,
            strided: bool,
            lag in 1i64..12,
        ) {
            let times: Vec<i64> = steps.iter().scan(-50, |t, s| { *t += s; Some(*t) }).collect();
            let states: Vec<u32> = (0..times.len() as u32).collect();
            let parts: Vec<i64> = steps.iter().enumerate()
                .scan(0, |part, (at, &step)| {
                    *part += i64::from(at > 0 && step as u64 > max_gap);
                    Some(*part)
                })
                .collect();
            let lags = [Step::Ticks(lag), Step::Rows(lag as usize)];
            let mut expected = Vec::new();
            for own in 0..=parts[parts.len() - 1] {
                let rows: Vec<usize> = (0..times.len()).filter(|&at| parts[at] == own).collect();
                let own: Vec<i64> = rows.iter().map(|&at| times[at]).collect();
                let pairs = pairs(&lags, strided, &own, &rows.iter().map(|&at| at as u32).collect::<Vec<_>>());
                expected.extend(pairs);
            }
            expected.sort_unstable();
            // In pieces.
            let mut got = Vec::new();
            let mut walker = Walker::new(&lags, strided).with(&gaps(max_gap));
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(times.len());
                walker.push(&times[at..end], &states[at..end], true, into(&mut got)).unwrap();
                at = end;
                if at == times.len() { break; }
            }
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            // As one of several whole trajectories.
            let mut got = Vec::new();
            let mut walker = Walker::new(&lags, strided).with(&gaps(max_gap));
            walker.push_whole(&vec![7; times.len()], &times, &states, into(&mut got));
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            // A first part, and a second part that spans the lags or ends with the trajectory.
            let cut = cuts[0].min(times.len());
            let mut got = Vec::new();
            let mut first = Walker::new(&lags, strided).with(&gaps(max_gap));
            first.push(&times[..cut], &states[..cut], true, into(&mut got)).unwrap();
            if !strided {
                let (rest, of_rest) = (&times[cut..], &states[cut..]);
                let mut second = Walker::new(&lags, strided).with(&gaps(max_gap));
                first.join(rest, of_rest, into(&mut got)).unwrap();
                second.push(rest, of_rest, false, into(&mut got)).unwrap();
                got.sort_unstable();
                prop_assert_eq!(&got, &expected);
            }
        }

        /// Each row and the row that an as-of join finds for it: the nearest one to the time that
        /// is a lag later, in the same part of the trajectory.
        #[test]
        fn a_tolerance_finds_the_rows_of_an_as_of_join(
            steps in prop::collection::vec(1i64..9, 1..120),
            cuts in prop::collection::vec(1usize..30, 1..20),
            max_gap in prop::option::of(3u64..12),
            lag in 3i64..30,
            part in 0i64..100,
        ) {
            let tolerance = part * ((lag - 1) / 2) / 100;
            let times: Vec<i64> = steps.iter().scan(-50, |t, s| { *t += s; Some(*t) }).collect();
            let states: Vec<u32> = (0..times.len() as u32).collect();
            let mut own = 0;
            let mut parts = vec![0];
            for pair in times.windows(2) {
                own += i64::from(max_gap.is_some_and(|most| (pair[1] - pair[0]) as u64 > most));
                parts.push(own);
            }
            let mut expected = Vec::new();
            for (i, time) in times.iter().enumerate() {
                let same = (0..times.len()).filter(|&j| parts[j] == parts[i]);
                let far = |j: usize| (times[j] - time - lag).abs();
                let nearest = same.min_by_key(|&j| (far(j), times[j])).unwrap();
                if far(nearest) <= tolerance {
                    expected.push((0, i as u32, nearest as u32));
                }
                // A lag in steps needs no time.
                if i + 2 < times.len() && parts[i + 2] == parts[i] {
                    expected.push((1, i as u32, i as u32 + 2));
                }
            }
            expected.sort_unstable();
            let lags = [Step::Ticks(lag), Step::Rows(2)];
            let rules = TimeRules { max_gap, ..near(tolerance as u64) };
            let fresh = Walker::new(&lags, false).with(&rules);
            // In pieces.
            let (mut got, mut walker, mut at) = (Vec::new(), fresh.clone(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(times.len());
                walker.push(&times[at..end], &states[at..end], true, into(&mut got)).unwrap();
                at = end;
                if at == times.len() { break; }
            }
            walker.emit_rest(&mut into(&mut got));
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            // At once, and as a whole trajectory between two others.
            let mut got = Vec::new();
            fresh.clone().push(&times, &states, false, into(&mut got)).unwrap();
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            let mut got = Vec::new();
            fresh.clone().push_whole(&vec![7; times.len()], &times, &states, into(&mut got));
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            // Pairs that a later row may change, and the others.
            let of = |open_pairs| fresh.clone().with(&rules.with_open_pairs(open_pairs));
            let mut got = Vec::new();
            for open_pairs in [OpenPairs::LeftOut, OpenPairs::Alone] {
                let pushed = of(open_pairs).push(&times, &states, false, into(&mut got));
                pushed.unwrap();
            }
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            let mut got = Vec::new();
            for open_pairs in [OpenPairs::LeftOut, OpenPairs::Alone] {
                of(open_pairs).push_whole(&vec![7; times.len()], &times, &states, into(&mut got));
            }
            got.sort_unstable();
            prop_assert_eq!(&got, &expected);
            // Two streams, if the second one spans the lags.
            let cut = cuts[0].min(times.len());
            if fresh.is_spanned_by(&times[cut..]) {
                let (mut got, mut first, mut second) = (Vec::new(), fresh.clone(), fresh);
                first.push(&times[..cut], &states[..cut], true, into(&mut got)).unwrap();
                first.join(&times[cut..], &states[cut..], into(&mut got)).unwrap();
                second.push(&times[cut..], &states[cut..], false, into(&mut got)).unwrap();
                got.sort_unstable();
                prop_assert_eq!(&got, &expected);
            }
        }

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
