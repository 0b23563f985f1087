//! Matches the sets of two labelings of the same states: which set of B continues which set of A?
//!
//! In: the contingency table n of the states with both labels (sets of A × sets of B, see
//! `agreement`), with sums a_k and b_l. Out: heirs, events and numbers.
//!
//! - l can be the *heir* of k if most of one is in the other: n_kl > ½ min(a_k, b_l). Among these
//!   pairs the assignment with the largest Σ n_kl decides, so that a set has at most one heir and
//!   is the heir of at most one set.
//! - l is a *piece* of k if most of l came from k and l has at least a fifth of k: n_kl > ½ b_l and
//!   n_kl ≥ a_k / 5. k was *split* if its pieces and its heir are at least two sets. These are
//!   split, and all of them but the heir get new names.
//! - k is a *part* of l if most of k went to l and k is at least a fifth of l: n_kl > ½ a_k and
//!   n_kl ≥ b_l / 5. l was *merged* if its parts and the set of which it is the heir are at least
//!   two sets. A set that was both split and merged is merged.
//! - Otherwise an heir was *kept*, a set that is no heir was *born*, and a set of A without an heir
//!   *died*.

use crate::assess::agreement::Contingency;
use crate::math::matching;

/// The least share of a piece in its set of A, and of a part in its set of B.
pub(crate) const SHARE: f64 = 0.2;

/// The event by which a set of B came to be, or a set of A ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The set is the heir of an earlier set.
    Kept,
    /// The set is one of several pieces of an earlier set.
    Split,
    /// The set has several earlier sets as parts.
    Merged,
    /// The set continues no earlier set.
    Born,
    /// No later set continues the set.
    Died,
}

impl Event {
    /// The name in tables and records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Event::Kept => "kept",
            Event::Split => "split",
            Event::Merged => "merged",
            Event::Born => "born",
            Event::Died => "died",
        }
    }
}

/// How the sets of B continue those of A.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SetMatches {
    /// The set of A of which each set of B is the heir.
    pub heir_of: Vec<Option<usize>>,
    /// The event of each set of B. A set that shares no state with A was born.
    pub events: Vec<Event>,
    /// The sets of A from which each set of B came, ascending.
    pub parents: Vec<Vec<usize>>,
    /// The event of each set of A without an heir: merged, split or died.
    pub ended: Vec<Option<Event>>,
}

/// The set of A of which each set of B is the heir, among the pairs (k, l) for which `is_free` is
/// true.
pub(crate) fn heirs(
    table: &Contingency,
    is_free: impl Fn(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let (rows, columns) = (table.rows, table.columns);
    let (a, b) = (table.row_sums(), table.column_sums());
    let size = rows.max(columns);
    let mut gain = vec![0.0; size * size];
    for k in 0..rows {
        for l in (0..columns).filter(|&l| is_free(k, l)) {
            let n = table.at(k, l);
            if n > 0.5 * a[k].min(b[l]) {
                gain[k * size + l] = n;
            }
        }
    }
    let mut heir_of = vec![None; columns];
    for (k, &l) in matching::maximise(&gain, size).iter().enumerate() {
        if gain[k * size + l] > 0.0 {
            heir_of[l] = Some(k);
        }
    }
    heir_of
}

/// Matches the sets of B to those of A.
pub(crate) fn match_sets(table: &Contingency) -> SetMatches {
    let (rows, columns) = (table.rows, table.columns);
    let (a, b) = (table.row_sums(), table.column_sums());
    let heir_of = heirs(table, |_, _| true);

    let is_piece = |k: usize, l: usize| {
        let n = table.at(k, l);
        n > 0.5 * b[l] && n >= SHARE * a[k]
    };
    let is_part = |k: usize, l: usize| {
        let n = table.at(k, l);
        n > 0.5 * a[k] && n >= SHARE * b[l]
    };
    let successors = |k: usize| {
        let own = |&l: &usize| is_piece(k, l) || heir_of[l] == Some(k);
        (0..columns).filter(own).count()
    };
    let split: Vec<bool> = (0..rows).map(|k| successors(k) > 1).collect();
    let (mut events, mut parents) = (Vec::new(), Vec::new());
    let mut merged = vec![false; rows];
    for (l, &heir) in heir_of.iter().enumerate() {
        let parts: Vec<usize> = (0..rows)
            .filter(|&k| is_part(k, l) || heir == Some(k))
            .collect();
        let from: Vec<usize> = (0..rows)
            .filter(|&k| is_piece(k, l) || heir == Some(k))
            .collect();
        if parts.len() > 1 {
            parts.iter().for_each(|&k| merged[k] = true);
            events.push(Event::Merged);
            parents.push(parts);
        } else {
            events.push(match heir {
                _ if from.iter().any(|&k| split[k]) => Event::Split,
                Some(_) => Event::Kept,
                None => Event::Born,
            });
            parents.push(from);
        }
    }
    let ended = (0..rows).map(|k| match () {
        () if heir_of.contains(&Some(k)) => None,
        () if merged[k] => Some(Event::Merged),
        () if split[k] => Some(Event::Split),
        () => Some(Event::Died),
    });
    SetMatches {
        ended: ended.collect(),
        heir_of,
        events,
        parents,
    }
}

/// The number of every set of B. An heir has the number of its set in A, if it is below the number
/// of sets of B. The other sets take the remaining numbers in their order.
pub(crate) fn numbers(heir_of: &[Option<usize>]) -> Vec<u32> {
    let rank = heir_of.len();
    let mut taken = vec![false; rank];
    let own: Vec<Option<u32>> = heir_of
        .iter()
        .map(|heir| {
            let number = (*heir)?;
            *taken.get_mut(number)? = true;
            Some(number as u32)
        })
        .collect();
    let mut free = (0..rank as u32).filter(|&number| !taken[number as usize]);
    own.into_iter()
        .map(|number| number.or_else(|| free.next()))
        .map(|number| number.expect("there are as many numbers as sets"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::match_sets::Event::{Born, Died, Kept, Merged, Split};
    use proptest::prelude::*;

    /// The result for a table of integer cells.
    fn of(rows: usize, columns: usize, cells: &[u32]) -> SetMatches {
        let (mut a, mut b, mut w) = (vec![], vec![], vec![]);
        for (at, &n) in cells.iter().enumerate().filter(|(_, n)| **n > 0) {
            a.push((at / columns) as i32);
            b.push((at % columns) as i32);
            w.push(f64::from(n));
        }
        match_sets(&Contingency::new(&a, &b, &w, rows, columns))
    }

    #[test]
    fn a_set_that_splits_gives_its_name_to_the_larger_piece() {
        let s = of(2, 3, &[60, 0, 40, 0, 100, 0]);
        assert_eq!(s.heir_of, [Some(0), Some(1), None]);
        assert_eq!(s.events, [Split, Kept, Split]);
        assert_eq!(s.parents, [vec![0], vec![1], vec![0]]);
        assert_eq!(s.ended, [None, None]);
    }

    #[test]
    fn sets_that_merge_keep_the_name_of_the_larger() {
        let s = of(3, 2, &[100, 0, 40, 0, 0, 70]);
        assert_eq!(s.heir_of, [Some(0), Some(2)]);
        assert_eq!(s.events, [Merged, Kept]);
        assert_eq!(s.parents, [vec![0, 1], vec![2]]);
        assert_eq!(s.ended, [None, Some(Merged), None]);
    }

    #[test]
    fn a_set_without_common_states_is_born_and_one_that_is_scattered_has_died() {
        // Set 2 of A goes in equal parts to three sets that are mostly parts of other sets. Set 3
        // of B shares nothing.
        let s = of(4, 4, &[50, 0, 0, 0, 0, 50, 0, 0, 4, 4, 4, 0, 0, 0, 50, 0]);
        assert_eq!(s.heir_of, [Some(0), Some(1), Some(3), None]);
        assert_eq!(s.events, [Kept, Kept, Kept, Born]);
        assert_eq!(s.ended, [None, None, Some(Died), None]);
        // A few states that changed their set are no event.
        let s = of(2, 2, &[80, 20, 10, 90]);
        assert_eq!(s.events, [Kept, Kept]);
    }

    #[test]
    fn four_equal_pieces_and_a_name() {
        let s = of(1, 4, &[10, 10, 10, 10]);
        assert_eq!(s.heir_of, [Some(0), None, None, None]);
        assert_eq!(s.events, [Split; 4]);
        let s = of(4, 1, &[10, 10, 10, 10]);
        assert_eq!((s.events, s.ended[3]), (vec![Merged], Some(Merged)));
    }

    #[test]
    fn a_taken_name_is_given_to_no_other_set() {
        let (a, b) = ([0, 0, 0, 1], [0, 0, 1, 1]);
        let table = Contingency::new(&a, &b, &[1.0; 4], 2, 2);
        assert_eq!(heirs(&table, |_, _| true), [Some(0), Some(1)]);
        assert_eq!(heirs(&table, |k, _| k != 0), [None, Some(1)]);
        // All of set 1 of A is in the other set.
        assert_eq!(heirs(&table, |k, l| (k, l) != (1, 1)), [Some(0), None]);
    }

    #[test]
    fn heirs_keep_their_numbers_and_the_others_take_the_remaining_ones() {
        assert_eq!(numbers(&[Some(2), None, Some(0)]), [2, 1, 0]);
        // The rank decreased from five to two, so number 4 does not exist.
        assert_eq!(numbers(&[Some(4), Some(1)]), [0, 1]);
        assert_eq!(numbers(&[None, None]), [0, 1]);
    }

    proptest! {
        #[test]
        fn new_labels_of_the_same_sets_are_matched_to_the_old_ones(
            (order, states) in (1usize..7).prop_flat_map(|r| (
                Just((0..r).collect::<Vec<_>>()).prop_shuffle(),
                prop::collection::vec((0..r, 1u32..50), 0..60),
            ))
        ) {
            // Every set has at least one state.
            let rank = order.len();
            let states: Vec<(usize, u32)> = (0..rank).map(|k| (k, 1)).chain(states).collect();
            let a: Vec<i32> = states.iter().map(|s| s.0 as i32).collect();
            let b: Vec<i32> = states.iter().map(|s| order[s.0] as i32).collect();
            let w: Vec<f64> = states.iter().map(|s| f64::from(s.1)).collect();
            let s = match_sets(&Contingency::new(&a, &b, &w, rank, rank));
            let expected: Vec<Option<usize>> = (0..rank)
                .map(|l| order.iter().position(|&o| o == l))
                .collect();
            prop_assert_eq!(&s.heir_of, &expected);
            prop_assert!(s.events.iter().all(|&e| e == Kept));
            let named = numbers(&s.heir_of);
            prop_assert!(b.iter().zip(&a).all(|(&l, &k)| named[l as usize] == k as u32));
        }

        #[test]
        fn every_set_ends_once_and_has_at_most_one_heir(
            cells in prop::collection::vec(0u32..20, 12)
        ) {
            let s = of(3, 4, &cells);
            let heirs: Vec<usize> = s.heir_of.iter().flatten().copied().collect();
            let mut distinct = heirs.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(heirs.len(), distinct.len());
            for (k, ended) in s.ended.iter().enumerate() {
                prop_assert_eq!(ended.is_none(), heirs.contains(&k));
            }
            for l in 0..4 {
                prop_assert_eq!(s.events[l] == Born, s.parents[l].is_empty());
            }
        }
    }
}
