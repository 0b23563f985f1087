//! What the keys of time say about the rows of a trajectory: which of several rows at one time
//! count, which gap ends a trajectory, and how exactly times must fit a lag.

use crate::evidence::lag::Step;
use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};

/// The rules of the times of a layout. By default, two rows at one time are an error, no gap ends
/// a trajectory, and times fit exactly.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimeRules {
    /// What is done with several rows of a trajectory at one time.
    pub ties: Ties,
    /// The column that orders these rows, which is the last column of the layout. None if rows at
    /// one time are an error, and for rows that are ordered already.
    #[serde(with = "crate::read::rows::ipc::maybe_field")]
    pub order: Option<Field>,
    /// A trajectory ends where the next row is more than this many units of the time column later.
    pub max_gap: Option<u64>,
    /// How many units of the time column a row may be from the time that a lag or an interval asks
    /// for. None if times must fit exactly.
    pub tolerance: Option<u64>,
    /// What is done with pairs that a later row may change.
    pub open_pairs: OpenPairs,
}

/// The times after which a row makes a pair with another one, or may be followed by one.
pub struct TimeSteps<'a> {
    /// The leading columns of the rows: partition keys, trajectory keys and the time.
    pub(crate) fields: Vec<Field>,
    /// The lags, or the step from a row to the row that follows it.
    pub(crate) steps: &'a [Step],
    /// Whether only the next row of the trajectory counts.
    pub(crate) only_next: bool,
    /// Whether a tolerance may be given.
    pub(crate) may_be_near: bool,
    /// How the times are read.
    pub(crate) rules: &'a TimeRules,
}

/// What is done with the pairs of a row if no row of its trajectory is at the time that the lag
/// asks for or later. With a tolerance, the last row may be near that time, but a later row may be
/// nearer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OpenPairs {
    /// They count: no row follows.
    #[default]
    Counted,
    /// They do not count: rows may follow.
    LeftOut,
    /// No other pairs count.
    Alone,
}

/// What is done with several rows of a trajectory at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ties {
    /// They are an error.
    #[default]
    Refused,
    /// All of them count, in the order of a second column.
    All,
    /// The first one counts.
    First,
    /// The last one counts.
    Last,
}

/// What the keys of time changed in the rows that count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeCounts {
    /// Gaps that ended a trajectory.
    pub gaps: u64,
    /// Pairs whose target is near the time that the lag asks for, and not at it.
    pub near_pairs: u64,
}

impl TimeCounts {
    /// Adds those of other rows.
    pub(crate) fn merge(&mut self, other: TimeCounts) {
        self.gaps += other.gaps;
        self.near_pairs += other.near_pairs;
    }

    /// Removes those of some of the rows.
    pub(crate) fn subtract(&mut self, other: TimeCounts) {
        self.gaps -= other.gaps;
        self.near_pairs -= other.near_pairs;
    }

    /// Whether nothing was changed.
    pub(crate) fn is_none(&self) -> bool {
        *self == TimeCounts::default()
    }
}

impl TimeRules {
    /// Whether several rows of a trajectory may have one time.
    pub(crate) fn keeps_ties(&self) -> bool {
        self.ties == Ties::All
    }

    /// Whether a trajectory ends between rows at these times.
    #[inline(always)]
    pub(crate) fn ends_between(&self, before: i64, after: i64) -> bool {
        let gap = after.wrapping_sub(before) as u64;
        self.max_gap.is_some_and(|most| gap > most)
    }

    /// Whether a row at time `after` follows the row before it, which is at time `before`.
    #[inline(always)]
    pub(crate) fn leads(&self, step: Step, before: i64, after: i64) -> bool {
        let elapsed = after.wrapping_sub(before) as u64;
        let fits = match (step, self.tolerance) {
            (Step::Rows(_), _) => true,
            (Step::Ticks(ticks), None) => elapsed == ticks as u64,
            (Step::Ticks(ticks), Some(within)) => elapsed.abs_diff(ticks as u64) <= within,
        };
        fits && !self.ends_between(before, after)
    }

    /// Whether filters go on through gaps between rows that should be a step apart: the largest gap
    /// has room for a missing row.
    pub(crate) fn bridges(&self, step: Step) -> bool {
        let (Step::Ticks(ticks), Some(most)) = (step, self.max_gap) else {
            return false;
        };
        most / 2 >= ticks as u64
    }

    /// The whole number of steps between rows at these times, if filters go on from the one to the
    /// other.
    pub(crate) fn steps_between(&self, step: Step, before: i64, after: i64) -> Option<u64> {
        let Step::Ticks(ticks) = step else {
            return None;
        };
        if !self.bridges(step) || self.ends_between(before, after) {
            return None;
        }
        let (elapsed, ticks) = (after.wrapping_sub(before) as u64, ticks as u64);
        let (whole, rest) = (elapsed / ticks, elapsed % ticks);
        let (steps, off) = if rest < ticks - rest {
            (whole, rest)
        } else {
            (whole + 1, ticks - rest)
        };
        let fits = rest == 0 || self.tolerance.is_some_and(|within| off <= within);
        (fits && steps > 0).then_some(steps)
    }

    /// The rules for rows whose ties are resolved: the column that orders them is gone.
    pub(crate) fn resolved(&self) -> TimeRules {
        TimeRules {
            order: None,
            ..self.clone()
        }
    }

    /// The places of the columns that order the rows of a layout with this number of columns. The
    /// first `n_order` are those of partition, trajectory and time.
    pub(crate) fn order_columns(&self, n_order: usize, columns: usize) -> Vec<usize> {
        let last = self.order.iter().map(|_| columns - 1);
        (0..n_order).chain(last).collect()
    }

    /// The same rules for other pairs.
    pub(crate) fn with_open_pairs(&self, open_pairs: OpenPairs) -> TimeRules {
        TimeRules {
            open_pairs,
            ..self.clone()
        }
    }

    /// Whether these are the default rules.
    pub(crate) fn is_default(&self) -> bool {
        *self == TimeRules::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(max_gap: u64, tolerance: Option<u64>, gaps: &[i64]) -> Vec<Option<u64>> {
        let rules = TimeRules {
            max_gap: Some(max_gap),
            tolerance,
            ..TimeRules::default()
        };
        let between = |gap: &i64| rules.steps_between(Step::Ticks(10), -5, gap - 5);
        gaps.iter().map(between).collect()
    }

    #[test]
    fn gaps_of_whole_steps_are_bridged_up_to_the_largest() {
        let gaps = [10, 20, 21, 29, 30, 31, 40];
        let whole = [Some(1), Some(2), None, None, Some(3), None, None];
        assert_eq!(steps(35, None, &gaps), whole);
        let near = [Some(1), Some(2), Some(2), Some(3), Some(3), Some(3), None];
        assert_eq!(steps(35, Some(2), &gaps), near);
        // A gap below half of a step is no step.
        assert_eq!(steps(35, Some(2), &[1, 2, 8]), [None, None, Some(1)]);
    }

    #[test]
    fn a_largest_gap_below_two_steps_bridges_nothing() {
        assert_eq!(steps(19, Some(2), &[10, 18, 19, 20]), [None; 4]);
        assert_eq!(steps(20, None, &[20, 30]), [Some(2), None]);
        let rules = TimeRules::default();
        assert!(!rules.bridges(Step::Ticks(10)) && !rules.bridges(Step::Rows(1)));
        let all = TimeRules {
            max_gap: Some(u64::MAX),
            ..rules
        };
        assert!(all.bridges(Step::Ticks(i64::MAX)) && !all.bridges(Step::Rows(1)));
        let most = all.steps_between(Step::Ticks(1), i64::MIN, i64::MAX);
        assert_eq!(most, Some(u64::MAX));
    }
}
