//! The assignment problem: a square matrix of gains → the permutation with the largest total gain.
//!
//! The Hungarian method by shortest augmenting paths with dual potentials (Jonker and Volgenant):
//! O(n³) time, and O(n) memory besides the matrix. It has no randomness and breaks ties towards the
//! lowest column, so equal gains always give the same matching.

/// The column matched to every row of `gain` (`n × n`, row-major, finite): a permutation with the
/// largest Σ gain[row, column].
///
/// # Panics
/// If `gain` is not `n × n` or not finite.
pub(crate) fn maximise(gain: &[f64], n: usize) -> Vec<usize> {
    assert_eq!(gain.len(), n * n, "the gains must be a square matrix");
    const FREE: usize = usize::MAX;
    // Costs are −gain. The potentials keep every reduced cost `cost − row[i] − column[j]` at or
    // above 0, and at 0 on matched pairs.
    let (mut row, mut column) = (vec![0.0; n], vec![0.0; n]);
    // Column `n` is virtual: it holds the row that enters the matching.
    let mut owner = vec![FREE; n + 1];
    let (mut distance, mut previous, mut seen) = (vec![0.0; n], vec![n; n], vec![false; n]);

    for entering in 0..n {
        owner[n] = entering;
        distance.fill(f64::INFINITY);
        seen.fill(false);
        let mut reached = n;
        // Dijkstra over reduced costs from the entering row until a free column is reached.
        while owner[reached] != FREE {
            let i = owner[reached];
            let (mut nearest, mut step) = (n, f64::INFINITY);
            for j in (0..n).filter(|&j| !seen[j]) {
                let reduced = -gain[i * n + j] - row[i] - column[j];
                if reduced < distance[j] {
                    (distance[j], previous[j]) = (reduced, reached);
                }
                if distance[j] < step {
                    (nearest, step) = (j, distance[j]);
                }
            }
            assert!(nearest < n, "gains must be finite");
            row[entering] += step;
            for j in 0..n {
                if seen[j] {
                    row[owner[j]] += step;
                    column[j] -= step;
                } else {
                    distance[j] -= step;
                }
            }
            seen[nearest] = true;
            reached = nearest;
        }
        // Shifting the pairs along the path matches one more row.
        while reached != n {
            owner[reached] = owner[previous[reached]];
            reached = previous[reached];
        }
    }

    let mut matched = vec![0; n];
    for j in 0..n {
        matched[owner[j]] = j;
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(gain: &[f64], n: usize, matched: &[usize]) -> f64 {
        (0..n).map(|i| gain[i * n + matched[i]]).sum()
    }

    /// The best of all n! permutations, by swapping prefixes.
    fn brute_force(gain: &[f64], n: usize, matched: &mut Vec<usize>, fixed: usize) -> f64 {
        if fixed == n {
            return total(gain, n, matched);
        }
        let mut best = f64::NEG_INFINITY;
        for other in fixed..n {
            matched.swap(fixed, other);
            best = best.max(brute_force(gain, n, matched, fixed + 1));
            matched.swap(fixed, other);
        }
        best
    }

    #[test]
    fn the_greedy_choice_is_not_the_best() {
        // Row 0 prefers column 0, but 8 + 7 + 3 along 1, 0, 2 beats 9 + 1 + 3.
        let gain = [9.0, 8.0, 0.0, 7.0, 1.0, 0.0, 0.0, 0.0, 3.0];
        assert_eq!(maximise(&gain, 3), [1, 0, 2]);
    }

    #[test]
    fn equal_gains_keep_the_order() {
        assert_eq!(maximise(&[0.0; 16], 4), [0, 1, 2, 3]);
        assert!(maximise(&[], 0).is_empty());
    }

    proptest! {
        #[test]
        fn no_permutation_does_better(
            (n, gain) in (1usize..7).prop_flat_map(|n| (Just(n), prop::collection::vec(-5i8..6, n * n)))
        ) {
            let gain: Vec<f64> = gain.into_iter().map(f64::from).collect();
            let matched = maximise(&gain, n);
            let mut sorted = matched.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..n));
            let best = brute_force(&gain, n, &mut (0..n).collect(), 0);
            prop_assert!((total(&gain, n, &matched) - best).abs() < 1e-9);
        }
    }
}
