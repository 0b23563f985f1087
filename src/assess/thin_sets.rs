//! Sets that hold so few transitions that high numbers of their fit say little.
//!
//! A set of a few states that no transition leaves keeps all of its transitions. Each such set adds
//! 1 to `coherence` and `objective`, and is of no use.

/// Sets with a smaller share of the transitions are thin.
pub(crate) const LEAST_SHARE: f64 = 0.001;

/// The sets that hold transitions, but fewer than [`LEAST_SHARE`] of them. `weights` are the shares
/// of the sets. Empty sets are left out: they add nothing.
pub(crate) fn thin_sets(weights: &[f64]) -> Vec<usize> {
    let sets = weights.iter().enumerate();
    let thin = sets.filter(|(_, share)| **share > 0.0 && **share < LEAST_SHARE);
    thin.map(|(set, _)| set).collect()
}

/// What is wrong with thin sets, in words.
pub(crate) fn warning(thin: &[usize]) -> Option<String> {
    let sets = match thin {
        [] => return None,
        [set] => format!("set {set} holds"),
        [first @ .., last] if first.len() < 8 => {
            let first = first.iter().map(usize::to_string).collect::<Vec<_>>();
            format!("sets {} and {last} hold", first.join(", "))
        }
        many => format!("{} sets hold", many.len()),
    };
    Some(format!(
        "{sets} under {} % of the transitions: high coherence and objective come from such sets, \
         and say little",
        100.0 * LEAST_SHARE
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_under_a_thousandth_are_thin() {
        assert_eq!(thin_sets(&[0.9985, 0.0009, 0.0006, 0.0]), [1, 2]);
        assert_eq!(thin_sets(&[0.999, 0.001]), [0; 0]);
    }

    #[test]
    fn warnings_name_the_sets() {
        assert_eq!(warning(&[]), None);
        let begins = |thin: &[usize], text: &str| {
            let found = warning(thin).unwrap_or_default();
            assert!(found.starts_with(text), "{found}");
        };
        begins(&[3], "set 3 holds under 0.1 % of the transitions");
        begins(
            &[1, 2, 4],
            "sets 1, 2 and 4 hold under 0.1 % of the transitions",
        );
        begins(&[0; 12], "12 sets hold under 0.1 % of the transitions");
    }
}
