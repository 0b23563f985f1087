//! Small Markov worlds with known answers, as counts sorted by (source, target).

use gyre::evidence::counts::Counts;
use gyre::evidence::counts::csr::Values;
use gyre::evidence::counts::shards::Shards;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

#[track_caller]
pub fn assert_close(x: f64, expected: f64, tolerance: f64) {
    let off = (x - expected).abs();
    assert!(off <= tolerance, "{x} is not {expected} ± {tolerance}");
}

/// Counts N and the partition of the sources from which the world was built.
pub struct World {
    pub n_sources: usize,
    pub n_targets: usize,
    /// Sorted by (source, target), without duplicates.
    pub counts: Vec<(u32, u32, u32)>,
    pub partition: Vec<u32>,
    /// Number of sets in the partition.
    pub rank: usize,
}

impl World {
    fn new(n: usize, partition: Vec<u32>, counts: BTreeMap<(u32, u32), u32>) -> World {
        World {
            n_sources: n,
            n_targets: n,
            counts: counts.into_iter().map(|((j, i), n)| (j, i, n)).collect(),
            rank: partition.iter().max().map_or(0, |&k| k as usize + 1),
            partition,
        }
    }

    /// The counts in shards. The partition is the given one, and source j is target j.
    pub fn counts<'a>(&self, shards: &'a Shards) -> Counts<'a> {
        let n_targets = self.n_targets as u32;
        let targets = (0..self.n_sources as u32).map(|j| (j < n_targets).then_some(j));
        Counts::of(shards)
            .with_targets(targets.collect())
            .with_given("sets", self.partition.clone(), self.rank)
    }

    /// The counts in shards of about `shard_nnz` non-zeros.
    pub fn shards(&self, shard_nnz: usize) -> Shards {
        let sources: Vec<u32> = self.counts.iter().map(|c| c.0).collect();
        let targets: Vec<u32> = self.counts.iter().map(|c| c.1).collect();
        let values = Values::Count(self.counts.iter().map(|c| c.2).collect());
        Shards::new(
            self.n_sources,
            self.n_targets,
            &sources,
            &targets,
            values,
            shard_nnz,
        )
    }

    /// The same world with source j renamed `(a j + b) mod n`, for `a` coprime to n.
    pub fn relabelled(&self, a: usize, b: usize) -> World {
        let name = |j: usize| (a * j + b) % self.n_sources;
        let mut partition = vec![0; self.n_sources];
        for (j, &k) in self.partition.iter().enumerate() {
            partition[name(j)] = k;
        }
        let mut counts: Vec<(u32, u32, u32)> = self
            .counts
            .iter()
            .map(|&(j, i, n)| (name(j as usize) as u32, i, n))
            .collect();
        counts.sort_unstable();
        World {
            counts,
            partition,
            ..*self
        }
    }
}

/// Polzin et al., Example 20. The first half of 100 states has two sets that mix a little; the
/// second half is one set. 25,000 pairs.
pub fn example20(epsilon: u32, seed: u64) -> World {
    let partition: Vec<u32> = (0..100).map(|j| [0, 1, 2, 2][j / 25]).collect();
    let mut counts = BTreeMap::new();
    for j in 0..100 {
        for i in 0..100 {
            let n = match (partition[j as usize], partition[i as usize]) {
                (2, 2) => 5,
                (2, _) | (_, 2) => continue,
                (a, b) if a == b => 8,
                _ => 2,
            };
            counts.insert((j, i), n);
        }
    }
    World::new(100, partition, perturbed(counts, 100, epsilon, seed))
}

/// Polzin et al., Example 21. A map permutes three thirds of 90 states cyclically. Within a third,
/// a zigzag with slopes 3, −3, 3 pairs every source with three targets. 8,100 pairs.
pub fn example21(epsilon: u32, seed: u64) -> World {
    let partition: Vec<u32> = (0..90).map(|j| j / 30).collect();
    let mut counts = BTreeMap::new();
    for j in 0..90u32 {
        let within = match j % 30 {
            up @ 0..10 => up,
            down @ 10..20 => 19 - down,
            up => up - 20,
        };
        let first = (j / 30 + 1) % 3 * 30 + 3 * within;
        for i in first..first + 3 {
            counts.insert((j, i), 30);
        }
    }
    World::new(90, partition, perturbed(counts, 90, epsilon, seed))
}

/// Equation (35): replaces every data point (x, y) by a uniform random point of
/// ((x + {−ε..ε}) mod n) × ((y + {−ε..ε}) mod n).
fn perturbed(
    counts: BTreeMap<(u32, u32), u32>,
    n: u32,
    epsilon: u32,
    seed: u64,
) -> BTreeMap<(u32, u32), u32> {
    if epsilon == 0 {
        return counts;
    }
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut moved = |x: u32| (x + n - epsilon + rng.random_range(0..=2 * epsilon)) % n;
    let mut out = BTreeMap::new();
    for ((j, i), count) in counts {
        for _ in 0..count {
            *out.entry((moved(j), moved(i))).or_insert(0) += 1;
        }
    }
    out
}

/// One set per entry of `sizes`, with that number of states. Every source has `inside` counts to
/// each target of its own set and `outside` counts to each other target.
pub fn planted_blocks(sizes: &[usize], inside: u32, outside: u32) -> World {
    let sets = sizes.iter().enumerate();
    let partition: Vec<u32> = sets.flat_map(|(k, &size)| vec![k as u32; size]).collect();
    let n = partition.len();
    let mut counts = BTreeMap::new();
    for j in 0..n {
        for i in 0..n {
            let own = partition[j] == partition[i];
            let count = if own { inside } else { outside };
            if count > 0 {
                counts.insert((j as u32, i as u32), count);
            }
        }
    }
    World::new(n, partition, counts)
}

/// A lazy walk on a ring of n states: counts 1, 2, 1 to the left neighbour, the state itself and
/// the right neighbour. The singular values of P̃ are cos²(πk/n), k = 0..n.
pub fn ring_walk(n: usize) -> World {
    let mut counts = BTreeMap::new();
    for j in 0..n {
        for (step, count) in [(n - 1, 1), (0, 2), (1, 1)] {
            counts.insert((j as u32, ((j + step) % n) as u32), count);
        }
    }
    World::new(n, vec![0; n], counts)
}

/// A reversible walk on n (even) states of [−1.5, 1.5] in the potential 3 (x² − 1)². The metastable
/// sets are the two halves.
pub fn double_well(n: usize) -> World {
    let density = |j: usize| {
        let x = 3.0 * (j as f64 + 0.5) / n as f64 - 1.5;
        (-3.0 * (x * x - 1.0) * (x * x - 1.0)).exp()
    };
    let mut counts = BTreeMap::new();
    for j in 0..n {
        let mut stay = 1000.0 * density(j);
        let neighbours = [j.checked_sub(1), Some(j + 1).filter(|&i| i < n)];
        for i in neighbours.into_iter().flatten() {
            let count = (400.0 * density(j).min(density(i))).ceil();
            counts.insert((j as u32, i as u32), count as u32);
            stay -= count;
        }
        counts.insert((j as u32, j as u32), (stay.ceil() as u32).max(1));
    }
    World::new(n, (0..n).map(|j| u32::from(j >= n / 2)).collect(), counts)
}
