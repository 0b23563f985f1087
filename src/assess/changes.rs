//! Changes between two partitions A and B whose states partly differ.
//!
//! In: for each state of A and of B its set, an amount (the count of transitions from it) and an
//! embedding, and the states that A and B share. Out: the heirs and events of `match_sets`, and
//! numbers that measure the changes. The weight of a shared state is the sum of its two amounts, so
//! comparing A with B gives the same weights as comparing B with A.

use crate::assess::agreement::{Contingency, adjusted_rand, variation_of_information};
use crate::assess::match_sets::{SetMatches, match_sets};
use crate::math::angles::principal_angles;
use crate::math::scale::{exponent, times_power};

/// Squares of weights between 2^-FAR and 2^FAR are finite and not zero.
const FAR: i32 = 400;

/// A partition to compare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labelled<'a> {
    /// The number of sets, empty ones included.
    pub rank: usize,
    /// The set of every state, −1 for none.
    pub affiliation: &'a [i32],
    /// The amount of every state.
    pub amount: &'a [f64],
    /// The unit of weights is 2 to this, 0 for counts. Nothing but amounts may depend on the scale
    /// of the weights.
    pub unit: i32,
    /// One row of coordinates per state, or empty.
    pub embedding: &'a [f64],
}

/// The changes from A to B.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Changes {
    /// States that A and B share.
    pub shared_states: u64,
    /// States of B alone, and their share of the amount of B.
    pub new_states: u64,
    /// The share of the amount of B in new states, from 0 to 1.
    pub new_share: f64,
    /// States of A alone, and their share of the amount of A.
    pub gone_states: u64,
    /// The share of the amount of A in gone states, from 0 to 1.
    pub gone_share: f64,
    /// Shared states whose set in B is not the heir of their set in A, and their share of the
    /// amount of shared states.
    pub changed_states: u64,
    /// The share of the amount of shared states, from 0 to 1.
    pub changed_share: f64,
    /// Over the shared states. None if there are none.
    pub adjusted_rand: Option<f64>,
    /// Nats.
    pub variation_of_information: Option<f64>,
    /// Between the spaces that the embeddings span, radians, ascending.
    pub principal_angles: Vec<f64>,
}

/// The states and the amount of a set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Size {
    /// The number of states.
    pub states: u64,
    /// The sum of their amounts.
    pub amount: f64,
}

/// The comparison of A with B.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    /// Numbers that measure the changes.
    pub changes: Changes,
    /// Heirs and events.
    pub matches: SetMatches,
    /// The sets of A.
    pub earlier: Vec<Size>,
    /// The sets of B.
    pub later: Vec<Size>,
    /// For each heir among the sets of B, the amount that it shares with its set of A divided by
    /// the amount that either has.
    pub overlap: Vec<Option<f64>>,
}

/// Compares A with B. `shared` has the indices of the shared states in A and in B.
pub(crate) fn compare(a: Labelled<'_>, b: Labelled<'_>, shared: &[(u32, u32)]) -> Comparison {
    let (of_a, of_b, weights) = shared_labels(a, b, shared);
    let table = Contingency::new(&of_a, &of_b, &weights, a.rank, b.rank);
    let matches = match_sets(&table);
    let (mut changed_states, mut changed) = (0, 0.0);
    for ((&k, &l), w) in of_a.iter().zip(&of_b).zip(&weights) {
        let heir_of = usize::try_from(l).map(|l| matches.heir_of[l]);
        let stayed = match (usize::try_from(k), heir_of) {
            (Ok(k), Ok(heir_of)) => heir_of == Some(k),
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if !stayed {
            changed_states += 1;
            changed += w;
        }
    }
    let (rows, columns) = (table.row_sums(), table.column_sums());
    let overlap = |(l, heir): (usize, &Option<usize>)| {
        heir.map(|k| {
            let n = table.at(k, l);
            n / (rows[k] + columns[l] - n)
        })
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let shared_of_a: f64 = shared.iter().map(|s| a.amount[s.0 as usize]).sum();
    let shared_of_b: f64 = shared.iter().map(|s| b.amount[s.1 as usize]).sum();
    let (all_a, all_b): (f64, f64) = (a.amount.iter().sum(), b.amount.iter().sum());
    let n = shared.len();
    let some = |value: fn(&Contingency) -> f64| (n > 0).then(|| value(&table));
    Comparison {
        changes: Changes {
            shared_states: n as u64,
            new_states: (b.affiliation.len() - n) as u64,
            new_share: share(all_b - shared_of_b, all_b),
            gone_states: (a.affiliation.len() - n) as u64,
            gone_share: share(all_a - shared_of_a, all_a),
            changed_states,
            changed_share: share(changed, weights.iter().sum()),
            adjusted_rand: some(adjusted_rand),
            variation_of_information: some(variation_of_information),
            principal_angles: angles(a, b, shared, &weights),
        },
        overlap: matches.heir_of.iter().enumerate().map(overlap).collect(),
        earlier: sizes(a),
        later: sizes(b),
        matches,
    }
}

/// The contingency table of the shared states.
pub(crate) fn overlap(a: Labelled<'_>, b: Labelled<'_>, shared: &[(u32, u32)]) -> Contingency {
    let (of_a, of_b, weights) = shared_labels(a, b, shared);
    Contingency::new(&of_a, &of_b, &weights, a.rank, b.rank)
}

/// The two sets of every shared state, and its weight in the unit of B. Squares and roots of
/// weights are rounded equally in one unit only.
fn shared_labels(
    a: Labelled<'_>,
    b: Labelled<'_>,
    shared: &[(u32, u32)],
) -> (Vec<i32>, Vec<i32>, Vec<f64>) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    let amounts = shared
        .iter()
        .map(|&(i, j)| a.amount[i as usize] + b.amount[j as usize]);
    // In units of B, amounts of A may be infinite.
    let largest = amounts.clone().fold(0.0, f64::max);
    let is_far = largest > 0.0 && exponent(largest) - b.unit > FAR;
    let unit = if is_far { exponent(largest) } else { b.unit };
    let mut weights: Vec<f64> = amounts.map(|amount| times_power(amount, -unit)).collect();
    for &(i, j) in shared {
        of_a.push(a.affiliation[i as usize]);
        of_b.push(b.affiliation[j as usize]);
    }
    // The weights of A may have another order of magnitude.
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 && exponent(sum).abs() > FAR {
        let scale = |w: &mut f64| *w = times_power(*w, -exponent(sum));
        weights.iter_mut().for_each(scale);
    }
    (of_a, of_b, weights)
}

/// The states and the amount of every set.
pub(crate) fn sizes(labelled: Labelled<'_>) -> Vec<Size> {
    let mut sizes = vec![Size::default(); labelled.rank];
    for (&k, amount) in labelled.affiliation.iter().zip(labelled.amount) {
        if let Ok(k) = usize::try_from(k) {
            sizes[k].states += 1;
            sizes[k].amount += amount;
        }
    }
    sizes
}

/// The principal angles between the spaces that the embeddings of the shared states span.
fn angles(a: Labelled<'_>, b: Labelled<'_>, shared: &[(u32, u32)], weights: &[f64]) -> Vec<f64> {
    if a.embedding.is_empty() || b.embedding.is_empty() {
        return Vec::new();
    }
    let rows = |labelled: Labelled<'_>, at: &dyn Fn(&(u32, u32)) -> u32| -> (usize, Vec<f64>) {
        let states = labelled.affiliation.len();
        let width = labelled.embedding.len() / states;
        let row = |s| &labelled.embedding[at(s) as usize * width..][..width];
        (width, shared.iter().flat_map(row).copied().collect())
    };
    let (width_a, rows_a) = rows(a, &|s| s.0);
    let (width_b, rows_b) = rows(b, &|s| s.1);
    principal_angles(rows_a, width_a, rows_b, width_b, weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::match_sets::Event;

    #[test]
    fn partitions_agree_whatever_the_size_of_their_weights() {
        for (one, other, unit) in [
            (1e-200, 1e155, 0),
            (1e155, 1.0, 0),
            (1.0, 1e300, 0),
            (1e-300, 1e-300, 0),
            // A new result whose unit is near its weights, after one with far larger weights.
            (1e302, 1e-300, -997),
            (1e-300, 1e302, 1003),
        ] {
            let (amounts, others) = ([one; 4], [other; 4]);
            let labelled = |amount, unit| Labelled {
                rank: 2,
                affiliation: &[0, 0, 1, 1],
                amount,
                unit,
                embedding: &[1.0, 1.0, -1.0, -1.0],
            };
            let shared: Vec<(u32, u32)> = (0..4).map(|s| (s, s)).collect();
            let found = compare(labelled(&amounts, 0), labelled(&others, unit), &shared).changes;
            assert_eq!(found.adjusted_rand, Some(1.0), "{one} {other}");
            assert!(found.principal_angles[0] < 1e-7, "{one} {other}");
            assert_eq!((found.changed_states, found.changed_share), (0, 0.0));
        }
    }

    // States 0..5 of A are in sets 0 0 0 1 1, and the last one is not in B. B has states 0 1 2 3
    // and a new one, in sets 1 1 0 0 0. A shared state weighs 3 + 1. n = [[4, 8], [4, 0]]: 8 > ½ ·
    // 8 makes set 1 the heir of set 0, and 4 > ½ · 4 makes set 0 the heir of set 1.
    #[test]
    fn five_states_against_five_others() {
        let a = Labelled {
            rank: 2,
            affiliation: &[0, 0, 0, 1, 1],
            amount: &[3.0; 5],
            unit: 0,
            embedding: &[1.0, 1.0, 1.0, -1.0, -1.0],
        };
        let b = Labelled {
            rank: 3,
            affiliation: &[1, 1, 0, 0, 0],
            amount: &[1.0; 5],
            unit: 0,
            embedding: &[1.0, 1.0, 1.0, -1.0, 7.0],
        };
        let shared: Vec<(u32, u32)> = (0..4).map(|s| (s, s)).collect();
        let found = compare(a, b, &shared);
        assert_eq!(found.matches.heir_of, [Some(1), Some(0), None]);
        assert_eq!(found.overlap, [Some(0.5), Some(8.0 / 12.0), None]);
        assert_eq!(found.matches.events[..2], [Event::Kept, Event::Kept]);
        let size = |states, amount| Size { states, amount };
        assert_eq!(found.earlier, [size(3, 9.0), size(2, 6.0)]);
        assert_eq!(found.later, [size(3, 3.0), size(2, 2.0), size(0, 0.0)]);
        let changes = found.changes;
        let counts = (
            changes.shared_states,
            changes.new_states,
            changes.gone_states,
        );
        assert_eq!(counts, (4, 1, 1));
        assert_eq!((changes.new_share, changes.gone_share), (0.2, 0.2));
        assert_eq!((changes.changed_states, changes.changed_share), (1, 0.25));
        // The embeddings of the shared states are equal.
        assert!(changes.principal_angles[0] < 1e-15);
        let nothing = compare(a, b, &[]).changes;
        assert_eq!((nothing.adjusted_rand, nothing.new_share), (None, 1.0));
        assert!(nothing.principal_angles.is_empty());
    }
}
