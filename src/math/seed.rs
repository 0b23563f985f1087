//! Seeds of the restarts of a fit, derived from the seed of the fit.

/// The seed of a restart: the seed of the fit for the first, mixed with the index for the others.
pub(crate) fn restart_seed(seed: u64, index: usize) -> u64 {
    seed ^ mixed(index as u64)
}

/// The bits of a number, mixed so that each depends on all (the finaliser of SplitMix64).
pub(crate) fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
