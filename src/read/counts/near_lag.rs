//! Pairs whose target is the row nearest to the time that a lag asks for.

use crate::read::counts::emit::Emit;

/// A lag whose targets may be near the time that it asks for.
#[derive(Clone, Copy)]
pub(crate) struct NearLag {
    /// The number of the lag.
    pub lag: usize,
    /// The lag in ticks.
    pub ticks: u64,
    /// The largest distance of the target from the time of the lag, in ticks.
    pub tolerance: u64,
}

/// Which of the two rows around a time is the nearest.
pub(crate) enum Nearest {
    /// The row before the time.
    Before,
    /// The row at the time.
    At,
    /// The row after the time.
    After,
}

impl NearLag {
    /// The nearest row to the time that is this lag after `source`. `before` is the last row before
    /// that time, and `after` the first row at it or later. The earlier row wins a tie. None if the
    /// nearest row is too far.
    ///
    /// The tolerance is less than half of the lag, so a source is never its own target.
    #[inline(always)]
    pub(crate) fn nearest(self, source: i64, before: i64, after: Option<i64>) -> Option<Nearest> {
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

/// Emits the pairs among rows of trajectories whose target at a lag is known. `ends` says that no
/// row follows the last one.
pub(crate) fn near_within<P: Copy, T: PartialEq>(
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
