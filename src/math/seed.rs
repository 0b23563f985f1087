//! Seeds of the restarts of a fit, derived from the seed of the fit.

/// The seed of a restart: the seed of the fit for the first, mixed with the index (the finaliser of
/// SplitMix64) for the others.
pub(crate) fn restart_seed(seed: u64, index: usize) -> u64 {
    let mut x = index as u64;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ x ^ (x >> 31)
}
