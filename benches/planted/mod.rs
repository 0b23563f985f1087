//! Counts with planted blocks of states. All states are sources and targets.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// `per_source` random targets for each source, mostly in its block. The states of a block are
/// scattered over the ids. The counts are sorted by (source, target).
pub fn counts(states: usize, per_source: usize, blocks: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut random = Pcg64::seed_from_u64(3);
    let (mut sources, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for source in 0..states {
        let mut drawn: Vec<usize> = (0..per_source)
            .map(|_| {
                // Block k is left with a probability of up to one half, so that the singular values
                // differ.
                let block = source % blocks;
                let leaks = random.random::<f64>() < 0.02 + 0.48 * block as f64 / blocks as f64;
                let block = if leaks {
                    random.random_range(0..blocks)
                } else {
                    block
                };
                block
                    + blocks
                        * ((states / blocks) as f64 * random.random::<f64>().powf(1.5)) as usize
            })
            // Every state is a target at least once.
            .chain([source])
            .collect();
        drawn.sort_unstable();
        for same in drawn.chunk_by(|a, b| a == b) {
            sources.push(source as u32);
            targets.push(same[0] as u32);
            counts.push(same.len() as u32);
        }
    }
    (sources, targets, counts)
}
