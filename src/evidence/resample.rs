//! Resamples of evidence: whole groups of trajectories are drawn, or held out, together.
//!
//! A resample weighs group g with a multiplicity w_g. The bootstrap draws as many groups as there
//! are, with replacement (Efron and Tibshirani 1993, ch. 6 and 8). Cross-validation leaves the
//! groups of one fold out. Groups are drawn and not rows, because the rows of one trajectory depend
//! on each other.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Evidence that is kept per group.
pub(crate) trait Resample: Sync {
    /// The evidence of a resample.
    type Sample;

    /// The number of groups, G.
    fn n_groups(&self) -> usize;

    /// The evidence with every group g taken `weights[g]` times, in shards of about `entries`
    /// entries. There is one weight per group.
    fn resample(&self, weights: &[u32], entries: usize) -> Self::Sample;
}

/// Draws a bootstrap resample: how often each group is in `n_groups` draws with replacement.
pub(crate) fn draw(n_groups: usize, seed: u64) -> Vec<u32> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut times = vec![0; n_groups];
    for _ in 0..n_groups {
        times[random.random_range(0..n_groups as u32) as usize] += 1;
    }
    times
}

/// The fold of every group. The sizes of two folds differ by at most one group.
pub(crate) fn folds(n_groups: usize, n_folds: usize, seed: u64) -> Vec<u32> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut fold: Vec<u32> = (0..n_groups).map(|g| (g % n_folds) as u32).collect();
    for last in (1..n_groups).rev() {
        fold.swap(last, random.random_range(0..=last as u32) as usize);
    }
    fold
}

/// The weights of the groups for training without a fold, and for testing with it.
pub(crate) fn train_and_test(folds: &[u32], fold: u32) -> (Vec<u32>, Vec<u32>) {
    let test: Vec<u32> = folds.iter().map(|&f| u32::from(f == fold)).collect();
    (test.iter().map(|w| 1 - w).collect(), test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_and_folds_use_every_group() {
        let times = draw(1000, 7);
        assert_eq!(times.iter().sum::<u32>(), 1000);
        // A group stays out with probability (1 − 1/1000)¹⁰⁰⁰ = 0.368.
        let out = times.iter().filter(|&&t| t == 0).count();
        assert!((330..400).contains(&out), "{out}");
        let fold = folds(11, 3, 7);
        let test_groups = |k| train_and_test(&fold, k).1.iter().sum();
        let sizes: Vec<u32> = (0..3).map(test_groups).collect();
        assert_eq!(sizes, [4, 4, 3]);
        assert_ne!(fold, folds(11, 3, 8));
        let (train, test) = train_and_test(&fold, 2);
        assert!(train.iter().zip(&test).all(|(a, b)| a + b == 1));
    }
}
