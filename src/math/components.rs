//! Strongly connected components of a directed graph, by Tarjan's algorithm with an explicit stack,
//! so that paths may be as long as there are nodes. Every node and edge is visited once.

/// Marks a node that has not been visited yet.
const NEW: u32 = u32::MAX;

/// The component of every node `0..n`. Two nodes are in the same component if each can be reached
/// from the other. `edges(v)` are the successors of v; successors that are not below `n` are
/// ignored. Components are numbered in the order in which they are found.
pub(crate) fn strong<'a>(n: usize, edges: impl Fn(usize) -> &'a [u32]) -> Vec<u32> {
    let mut component = vec![NEW; n];
    // When a node was visited, and the earliest visit on the path that can be reached from it.
    let (mut visit, mut back) = (vec![NEW; n], vec![NEW; n]);
    let (mut visits, mut components) = (0, 0);
    // The nodes of the path, each with the index of its next edge, and the nodes without a
    // component.
    let (mut path, mut open): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
    for root in 0..n {
        if visit[root] == NEW {
            path.push((root, 0));
        }
        while let Some(&mut (v, ref mut next)) = path.last_mut() {
            if *next == 0 && visit[v] == NEW {
                (visit[v], back[v]) = (visits, visits);
                visits += 1;
                open.push(v);
            }
            if let Some(&w) = edges(v).get(*next) {
                *next += 1;
                let w = w as usize;
                if w < n && visit[w] == NEW {
                    path.push((w, 0));
                } else if w < n && component[w] == NEW {
                    back[v] = back[v].min(visit[w]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                back[parent] = back[parent].min(back[v]);
            }
            if back[v] == visit[v] {
                while let Some(w) = open.pop() {
                    component[w] = components;
                    if w == v {
                        break;
                    }
                }
                components += 1;
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 0 → 1 → 2 → 0 is a cycle. 3 leads into it without a way back. 4 ⇄ 5 are separate. 6 has a
    // loop. 7 has no valid successor.
    #[test]
    fn components_by_hand() {
        let edges: [&[u32]; 8] = [&[1], &[2], &[0], &[3, 0], &[5], &[4], &[6], &[9]];
        let c = strong(8, |v| edges[v]);
        assert!(c[0] == c[1] && c[1] == c[2] && c[4] == c[5]);
        let mut distinct = c.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_long_cycle_is_one_component() {
        let n = 1_000_000;
        let next: Vec<u32> = (0..n as u32).map(|v| (v + 1) % n as u32).collect();
        let components = strong(n, |v| &next[v..v + 1]);
        assert!(components.iter().all(|&c| c == 0));
        assert!(strong(0, |_| &next[..]).is_empty());
    }

    proptest! {
        #[test]
        fn components_are_mutual_reachability(
            n in 1usize..12,
            edges in prop::collection::vec((0usize..12, 0u32..12), 0..40),
        ) {
            let mut out = vec![Vec::new(); n];
            for (v, w) in edges {
                out[v % n].push(w % n as u32);
            }
            let mut reaches = vec![vec![false; n]; n];
            for (v, reached) in reaches.iter_mut().enumerate() {
                let mut stack = vec![v];
                while let Some(u) = stack.pop() {
                    if !std::mem::replace(&mut reached[u], true) {
                        stack.extend(out[u].iter().map(|&w| w as usize));
                    }
                }
            }
            let components = strong(n, |v| &out[v]);
            for (v, w) in (0..n).flat_map(|v| (0..n).map(move |w| (v, w))) {
                prop_assert_eq!(components[v] == components[w], reaches[v][w] && reaches[w][v]);
            }
        }
    }
}
