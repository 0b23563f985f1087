//! Pairs and windows of small trajectories, and of random ones against a plain search.

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
        let emit =
            |lag: usize, source: (i32, f64), target: (i32, f64)| got.push((lag, source, target));
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
