//! Counts between states of one kind → the counts inside the largest strongly connected set.
//!
//! In a strongly connected set, counted transitions inside the set lead from every state to every
//! other one. The result is a closed chain, whose sources are its targets. The largest set has the
//! most states; ties go to the set with more transitions inside, then to that with the first state.

use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::matrix::{CountMatrix, LeftOut};
use crate::math::components;
use crate::memory;

/// The number of a state that has none.
const NONE: u32 = u32::MAX;

impl CountMatrix {
    /// Keeps the largest strongly connected set. IDs of sources and targets must be of one table.
    pub(crate) fn keep_connected(&mut self) {
        let states = union(&self.source_states, &self.target_states);
        // Within this function, the number of a state is its index in the union.
        let state_of_source = places(&states, &self.source_states);
        let state_of_target = places(&states, &self.target_states);
        let mut row_of = vec![NONE; states.len()];
        for (row, &state) in state_of_source.iter().enumerate() {
            row_of[state as usize] = row as u32;
        }
        for shard in &mut self.by_source {
            memory::wait_for_room();
            let columns = shard.columns.iter_mut();
            columns.for_each(|column| *column = state_of_target[*column as usize]);
        }
        let rows: Vec<(&Csr, usize)> = self
            .by_source
            .iter()
            .flat_map(|shard| (0..shard.n_rows()).map(move |l| (shard, l)))
            .collect();
        let component = components::strong(states.len(), |state| match row_of[state] {
            NONE => &[],
            row => {
                let (shard, l) = rows[row as usize];
                &shard.columns[shard.span(l)]
            }
        });

        let largest = Largest::of(&component, &rows, &state_of_source);
        // A single state without a transition to itself is no chain.
        let mut number = vec![NONE; states.len()];
        let mut kept = Vec::new();
        for (state, &id) in states.iter().enumerate() {
            if largest.inside > 0.0 && component[state] as usize == largest.component {
                number[state] = kept.len() as u32;
                kept.push(id);
            }
        }
        let (mut by_source, mut first_row) = (Vec::new(), 0);
        for shard in &self.by_source {
            let is_kept = |l: usize| number[state_of_source[shard.first_row + l] as usize] != NONE;
            let column = |state: u32| Some(number[state as usize]).filter(|&at| at != NONE);
            memory::wait_for_room();
            let (rows, _) = shard.part(first_row, is_kept, column);
            first_row += rows.n_rows();
            by_source.extend((rows.n_rows() > 0).then_some(rows));
        }
        if let Some(groups) = &mut self.groups {
            let is_kept = |source: usize| number[state_of_source[source] as usize] != NONE;
            let target = |target: u32| {
                let number = number[state_of_target[target as usize] as usize];
                Some(number).filter(|&at| at != NONE)
            };
            *groups = groups.restricted(kept.len(), is_kept, target);
        }
        // Weights have no exact total.
        let exact = largest.exact.min(self.total);
        self.left_out = Some(LeftOut {
            components: largest.n_components,
            states: states.len() - kept.len(),
            transitions: largest.transitions - largest.inside,
            total: self.total - exact,
        });
        self.total = exact;
        self.by_source = by_source;
        self.source_states.clone_from(&kept);
        self.target_states = kept;
    }
}

/// The largest component.
struct Largest {
    component: usize,
    n_components: usize,
    /// The transitions of all components and between them.
    transitions: f64,
    /// The transitions inside the component.
    inside: f64,
    /// `inside` as an integer. It is not used for weights.
    exact: u128,
}

impl Largest {
    /// `component` holds the component of each state; row i belongs to `state_of_source[i]`.
    fn of(component: &[u32], rows: &[(&Csr, usize)], state_of_source: &[u32]) -> Largest {
        // The number of states of each component, and the transitions inside.
        let n_components = component.iter().max().map_or(0, |&c| c as usize + 1);
        let mut size = vec![(0usize, 0.0); n_components];
        let mut exact = vec![0u128; n_components];
        component.iter().for_each(|&c| size[c as usize].0 += 1);
        let mut transitions = 0.0;
        for (&(shard, l), &state) in rows.iter().zip(state_of_source) {
            let own = component[state as usize] as usize;
            for e in shard.span(l) {
                let value = shard.values.get(e);
                transitions += value;
                if component[shard.columns[e] as usize] as usize == own {
                    size[own].1 += value;
                    // The integer sum of weights is not used and may overflow.
                    exact[own] = exact[own].saturating_add(value as u128);
                }
            }
        }
        // States ascend, so ties go to the component with the first state.
        let mut largest = component.first().map_or(0, |&c| c as usize);
        for &c in component {
            if size[c as usize] > size[largest] {
                largest = c as usize;
            }
        }
        Largest {
            component: largest,
            n_components,
            transitions,
            inside: size.get(largest).map_or(0.0, |size| size.1),
            exact: exact.get(largest).copied().unwrap_or(0),
        }
    }
}

/// The ids of two ascending lists, ascending.
fn union(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The indices of an ascending part among all states, ascending.
fn places(states: &[u32], part: &[u32]) -> Vec<u32> {
    let mut all = states.iter().zip(0..);
    part.iter()
        .filter_map(|own| all.find(|(state, _)| *state == own).map(|(_, at)| at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::counts::tally::{Tally, pack};

    fn counts(pairs: &[(u32, u32, u32)]) -> CountMatrix {
        let mut tally = Tally::default();
        for &(source, target, n) in pairs {
            tally.add_count(pack(source, target), n);
        }
        CountMatrix::new(0, 0, Tally::finish(vec![tally]))
    }

    fn entries(counts: &CountMatrix) -> Vec<(u32, u32, f64)> {
        let mut all = Vec::new();
        for shard in &counts.by_source {
            for l in 0..shard.n_rows() {
                let source = counts.source_states[shard.first_row + l];
                all.extend(shard.span(l).map(|e| {
                    let target = counts.target_states[shard.columns[e] as usize];
                    (source, target, shard.values.get(e))
                }));
            }
        }
        all
    }

    // 3 → 5 ⇄ 7 → 9, with loops: 3 is transient, 9 is absorbing and no source.
    #[test]
    fn transient_and_absorbing_states_are_removed() {
        let mut c = counts(&[
            (3, 3, 4),
            (3, 5, 1),
            (5, 7, 2),
            (7, 5, 3),
            (7, 7, 1),
            (7, 9, 1),
        ]);
        c.keep_connected();
        assert_eq!(c.source_states, [5, 7]);
        assert_eq!(c.target_states, [5, 7]);
        assert_eq!(entries(&c), [(5, 7, 2.0), (7, 5, 3.0), (7, 7, 1.0)]);
        let left_out = LeftOut {
            components: 3,
            states: 2,
            transitions: 6.0,
            total: 6,
        };
        assert_eq!((c.total, c.left_out), (6, Some(left_out)));
    }

    // {1, 2} and {3, 4} have two states each; the second has more transitions.
    #[test]
    fn of_two_sets_of_equal_size_the_one_with_more_transitions_stays() {
        let mut c = counts(&[(1, 2, 5), (2, 1, 5), (3, 4, 6), (4, 3, 5)]);
        c.keep_connected();
        assert_eq!(c.source_states, [3, 4]);
        let mut c = counts(&[(1, 2, 5), (2, 1, 6), (3, 4, 6), (4, 3, 5)]);
        c.keep_connected();
        assert_eq!(c.source_states, [1, 2]);
    }

    #[test]
    fn a_path_without_return_leaves_nothing() {
        let mut c = counts(&[(1, 2, 5), (2, 3, 5)]);
        c.keep_connected();
        assert!(c.source_states.is_empty() && c.nnz() == 0);
        assert_eq!(c.left_out.map(|l| (l.states, l.total)), Some((3, 10)));
    }
}
