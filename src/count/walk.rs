//! Rows of one trajectory in time order → lagged pairs (coherence §3.1). Pure: slices in, pairs out.

/// A lag in the terms of the time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The two times differ by exactly so many units of the time column.
    Ticks(i64),
    /// The two rows are so many rows apart in time order.
    Rows(usize),
}

/// Follows one trajectory through pieces of any size and emits each pair once.
#[derive(Debug, Clone)]
pub struct Walker {
    lags: Vec<Step>,
    /// Only the pairs that start at 0, τ, 2τ … after the first row.
    strided: bool,
    /// Rows that can still begin a pair; the first of them is row `base` of the trajectory.
    times: Vec<i64>,
    states: Vec<u32>,
    base: usize,
    start: i64,
    /// For each lag, the first row of the window that may still begin a pair.
    cursors: Vec<usize>,
}

/// Two rows that are not in strictly ascending time: the earlier row's time and the later row's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disorder {
    pub before: i64,
    pub after: i64,
}

impl Walker {
    pub fn new(lags: &[Step], strided: bool) -> Walker {
        let cursors = vec![0; lags.len()];
        Walker {
            lags: lags.to_vec(),
            strided,
            times: vec![],
            states: vec![],
            base: 0,
            start: 0,
            cursors,
        }
    }

    /// Forgets the trajectory; the next piece begins another one.
    pub fn restart(&mut self) {
        self.times.clear();
        self.states.clear();
        self.base = 0;
        self.cursors.fill(0);
    }

    /// The same walker with other numbers for the states.
    pub fn renumbered(mut self, number: impl Fn(u32) -> u32) -> Walker {
        self.states.iter_mut().for_each(|s| *s = number(*s));
        self
    }

    /// Appends the next rows of the trajectory and emits (lag, source, target) for every pair that they complete.
    /// States may be "none": the caller of `emit` leaves such pairs out.
    pub fn push(
        &mut self,
        times: &[i64],
        states: &[u32],
        mut emit: impl FnMut(usize, u32, u32),
    ) -> Result<(), Disorder> {
        debug_assert_eq!(times.len(), states.len());
        if self.base == 0 && self.times.is_empty() {
            self.start = times.first().copied().unwrap_or(0);
        }
        let mut before = self.times.last().copied();
        for &after in times {
            if let Some(before) = before.filter(|&b| b >= after) {
                return Err(Disorder { before, after });
            }
            before = Some(after);
        }
        let new = self.times.len();
        self.times.extend_from_slice(times);
        self.states.extend_from_slice(states);
        let (times, states) = (&self.times[..], &self.states[..]);
        for (lag, step) in self.lags.iter().enumerate() {
            let cursor = &mut self.cursors[lag];
            match *step {
                Step::Ticks(ticks) => {
                    let mut i = *cursor;
                    for j in new..times.len() {
                        // Times ascend, so the difference is positive; it overflows only for lags that no i64 can hold.
                        while times[j].wrapping_sub(times[i]) as u64 > ticks as u64 {
                            i += 1;
                        }
                        if times[j].wrapping_sub(times[i]) as u64 == ticks as u64 {
                            let since = times[i].wrapping_sub(self.start) as u64;
                            if !self.strided || since.is_multiple_of(ticks as u64) {
                                emit(lag, states[i], states[j]);
                            }
                            i += 1;
                        }
                    }
                    *cursor = i;
                }
                Step::Rows(rows) => {
                    for j in new.max(rows)..times.len() {
                        let i = j - rows;
                        if !self.strided || (self.base + i).is_multiple_of(rows) {
                            emit(lag, states[i], states[j]);
                        }
                    }
                    *cursor = times.len().saturating_sub(rows);
                }
            }
        }
        self.drop_spent_rows();
        Ok(())
    }

    /// Frees rows that no lag needs any more, keeping the last one to check the order of the next piece.
    fn drop_spent_rows(&mut self) {
        let spent = self
            .cursors
            .iter()
            .copied()
            .min()
            .unwrap_or(0)
            .min(self.times.len().saturating_sub(1));
        if spent > 4096 && spent * 2 > self.times.len() {
            self.times.drain(..spent);
            self.states.drain(..spent);
            self.cursors.iter_mut().for_each(|c| *c -= spent);
            self.base += spent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pairs of a trajectory given in one piece.
    fn pairs(
        lags: &[Step],
        strided: bool,
        times: &[i64],
        states: &[u32],
    ) -> Vec<(usize, u32, u32)> {
        let mut out = Vec::new();
        Walker::new(lags, strided)
            .push(times, states, |l, s, t| out.push((l, s, t)))
            .unwrap();
        out
    }

    #[test]
    fn a_gap_makes_no_pair() {
        // Times 0 1 3 4: at lag 1 the pairs are 0→1 and 3→4; at lag 3 they are 0→3 and 1→4.
        let got = pairs(
            &[Step::Ticks(1), Step::Ticks(3)],
            false,
            &[0, 1, 3, 4],
            &[10, 11, 13, 14],
        );
        assert_eq!(got, [(0, 10, 11), (0, 13, 14), (1, 10, 13), (1, 11, 14)]);
    }

    #[test]
    fn steps_count_rows_whatever_the_time() {
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
    fn disorder_names_both_times() {
        let mut w = Walker::new(&[Step::Ticks(1)], false);
        w.push(&[1, 2], &[0, 0], |_, _, _| ()).unwrap();
        assert_eq!(
            w.push(&[2], &[0], |_, _, _| ()),
            Err(Disorder {
                before: 2,
                after: 2
            })
        );
    }

    proptest! {
        #[test]
        fn pieces_make_the_pairs_of_the_whole(
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
                walker.push(&times[at..end], &states[at..end], |l, s, t| got.push((l, s, t))).unwrap();
                at = end;
                if at == times.len() { break; }
            }
            expected.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, expected);
        }
    }
}
