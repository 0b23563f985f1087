//! Counts per group of trajectories → the counts of any resample, without reading the rows again.
//!
//! The counts of a resample with weights w are N(w) = Σ_g w_g N_g.

use crate::evidence::counts::csr::{Csr, Value, Values};
use crate::evidence::counts::shards::Shards;
use crate::evidence::resample::Resample;
use crate::math::seed::restart_seed;
use crate::memory;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The counts of one partition and lag, per group of trajectories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// G, the number of groups that have counts.
    pub n_groups: usize,
    n_targets: usize,
    parts: Vec<GroupedRows>,
    /// Hashes of the rows that were counted, ascending, and the group of each.
    hashes: Vec<(u32, u16)>,
}

/// Some rows of the counts, with one entry per target and group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupedRows {
    /// The targets of a row ascend, with repeats.
    pub counts: Csr,
    /// The group of every entry, ascending among the entries of one target.
    pub group: Vec<u16>,
}

/// The counts of a resample, over the states that have counts in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resampled {
    /// The counts.
    pub shards: Shards,
    /// The index in the whole of every source, ascending.
    pub sources: Vec<u32>,
    /// The index in the whole of every target, ascending.
    pub targets: Vec<u32>,
}

impl Groups {
    /// Counts from the rows of all sources in order. The groups that occur are numbered 0, 1, … in
    /// ascending order.
    ///
    /// # Panics
    /// If a part has not one group per entry.
    pub(crate) fn new(n_targets: usize, mut parts: Vec<GroupedRows>) -> Groups {
        let mut number = vec![u16::MAX; 1 << 16];
        for part in &parts {
            memory::wait_for_room();
            for &group in &part.group {
                number[group as usize] = 0;
            }
        }
        let mut n_groups = 0;
        for number in number.iter_mut().filter(|number| **number == 0) {
            *number = n_groups;
            n_groups += 1;
        }
        parts.par_iter_mut().for_each(|part| {
            memory::wait_for_room();
            assert_eq!(part.group.len(), part.counts.nnz(), "one group per entry");
            part.group.iter_mut().for_each(|g| *g = number[*g as usize]);
        });
        Groups {
            n_groups: usize::from(n_groups),
            n_targets,
            parts,
            hashes: Vec::new(),
        }
    }

    /// The same groups with the hashes of their rows, ascending, and the group of each.
    pub(crate) fn with_hashes(mut self, hashes: Vec<(u32, u16)>) -> Groups {
        self.hashes = hashes;
        self
    }

    /// The group of the rows with a hash. None if no such row was counted.
    pub(crate) fn of_hash(&self, hash: u32) -> Option<usize> {
        let at = self.hashes.binary_search_by_key(&hash, |(own, _)| *own);
        at.ok().map(|at| usize::from(self.hashes[at].1))
    }

    /// Distributes the single transitions of integer counts over `n_groups` groups at random, for
    /// rows without trajectories. A count of n is split by a draw from the multinomial distribution
    /// of n over the groups. The draw depends on the counts alone.
    pub(crate) fn scatter(n_targets: usize, by_source: &[Csr], n_groups: u16) -> Groups {
        let part = |whole: &Csr| {
            let mut offsets = vec![0];
            let (mut columns, mut group, mut counts) = (Vec::new(), Vec::new(), Vec::new());
            let mut shares = vec![0; usize::from(n_groups)];
            memory::wait_for_room();
            for l in 0..whole.n_rows() {
                let seed = restart_seed(0, whole.first_row + l);
                let mut random = Pcg64::seed_from_u64(seed);
                for e in whole.span(l) {
                    share(whole.values.get(e) as u64, &mut shares, &mut random);
                    for (g, count) in shares.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
                        columns.push(whole.columns[e]);
                        group.push(g as u16);
                        counts.push(std::mem::take(count) as f64);
                    }
                }
                offsets.push(columns.len());
            }
            let counts = Csr {
                first_row: whole.first_row,
                offsets,
                columns,
                values: Values::of_integers(counts),
            };
            GroupedRows { counts, group }
        };
        Groups::new(n_targets, by_source.par_iter().map(part).collect())
    }

    /// The counts of the sources that are kept and of the targets that have a new number. The
    /// numbers ascend as the old ones do.
    pub(crate) fn restricted(
        &self,
        n_targets: usize,
        is_kept: impl Fn(usize) -> bool,
        number: impl Fn(u32) -> Option<u32>,
    ) -> Groups {
        let (mut parts, mut first_row) = (Vec::with_capacity(self.parts.len()), 0);
        for GroupedRows { counts, group } in &self.parts {
            let is_kept = |l: usize| is_kept(counts.first_row + l);
            let (counts, entries) = counts.part(first_row, is_kept, &number);
            first_row += counts.n_rows();
            let group = entries.iter().map(|&e| group[e]).collect();
            parts.push(GroupedRows { counts, group });
        }
        Groups::new(n_targets, parts)
    }

    /// Divides every count. The counts become weights.
    pub(crate) fn divide(&mut self, by: f64) {
        for part in &mut self.parts {
            part.counts.values = part.counts.values.divided(by);
        }
    }

    /// Multiplies every weight by 2^`n`.
    pub(crate) fn scale(&mut self, n: i32) {
        for part in &mut self.parts {
            memory::wait_for_room();
            part.counts.values = part.counts.values.scaled(n);
        }
    }

    /// Whether Σ_g N_g is the whole: exactly for counts, up to rounding for weights. Both may be
    /// cut into different shards.
    pub(crate) fn add_up_to(&self, by_source: &[Csr]) -> bool {
        let ones = vec![1; self.n_groups];
        let sums: Vec<Csr> = self
            .parts
            .par_iter()
            .map(|part| crate::with_values!(part.counts, values => part.sum(values, &ones)))
            .collect();
        let same = |((a, j), (b, k)): ((&Csr, usize), (&Csr, usize))| {
            let (j, k) = (a.span(j), b.span(k));
            let is_near = |(a_at, b_at)| {
                let (x, y) = (a.values.get(a_at), b.values.get(b_at));
                match b.values {
                    Values::Real(_) => x == y || (x - y).abs() <= 1e-12 * y,
                    _ => x == y,
                }
            };
            a.columns[j.clone()] == b.columns[k.clone()] && j.zip(k).all(is_near)
        };
        rows(&sums).count() == rows(by_source).count() && rows(&sums).zip(rows(by_source)).all(same)
    }
}

impl Resample for Groups {
    type Sample = Resampled;

    fn n_groups(&self) -> usize {
        self.n_groups
    }

    /// Σ_g weights[g]·N_g, in shards by target of about `shard_nnz` non-zeros.
    fn resample(&self, weights: &[u32], shard_nnz: usize) -> Resampled {
        assert_eq!(weights.len(), self.n_groups, "one weight per group");
        let mut by_source: Vec<Csr> = self
            .parts
            .par_iter()
            .map(|part| crate::with_values!(part.counts, values => part.sum(values, weights)))
            .collect();

        let mut occurs = vec![false; self.n_targets];
        for rows in &by_source {
            memory::wait_for_room();
            for &target in &rows.columns {
                occurs[target as usize] = true;
            }
        }
        let mut place = vec![u32::MAX; self.n_targets];
        let mut targets = Vec::new();
        for (target, _) in occurs.iter().enumerate().filter(|(_, occurs)| **occurs) {
            place[target] = targets.len() as u32;
            targets.push(target as u32);
        }
        let mut sources = Vec::new();
        for rows in &mut by_source {
            let first = rows.first_row;
            rows.first_row = sources.len();
            sources.extend(rows_with_counts(rows).map(|l| (first + l) as u32));
            rows.offsets.dedup();
        }
        by_source.retain(|rows| rows.n_rows() > 0);
        by_source.par_iter_mut().for_each(|rows| {
            memory::wait_for_room();
            let columns = rows.columns.iter_mut();
            columns.for_each(|target| *target = place[*target as usize]);
        });
        Resampled {
            shards: Shards::from_sources(targets.len(), by_source, shard_nnz),
            sources,
            targets,
        }
    }
}

fn rows(shards: &[Csr]) -> impl Iterator<Item = (&Csr, usize)> {
    let rows = |shard| (0..Csr::n_rows(shard)).map(move |l| (shard, l));
    shards.iter().flat_map(rows)
}

impl GroupedRows {
    /// Σ_g weights[g]·N_g over these rows, without zeros. Groups are added in ascending order.
    fn sum<V: Value>(&self, values: &[V], weights: &[u32]) -> Csr {
        memory::wait_for_room();
        let counts = &self.counts;
        let mut offsets = Vec::with_capacity(counts.offsets.len());
        let (mut columns, mut sums) = (Vec::new(), Vec::new());
        offsets.push(0);
        for l in 0..counts.n_rows() {
            let start = columns.len();
            for e in counts.span(l) {
                let weight = weights[usize::from(self.group[e])];
                if weight == 0 {
                    continue;
                }
                let (target, count) = (counts.columns[e], f64::from(weight) * values[e].f64());
                match sums.last_mut() {
                    Some(sum) if columns.len() > start && columns.last() == Some(&target) => {
                        *sum += count;
                    }
                    _ => {
                        columns.push(target);
                        sums.push(count);
                    }
                }
            }
            offsets.push(columns.len());
        }
        Csr {
            first_row: counts.first_row,
            offsets,
            columns,
            values: match counts.values {
                Values::Real(_) => Values::Real(sums),
                _ => Values::of_integers(sums),
            },
        }
    }
}

fn rows_with_counts(rows: &Csr) -> impl Iterator<Item = usize> {
    (0..rows.n_rows()).filter(|&l| !rows.span(l).is_empty())
}

/// The transitions of a count up to this are drawn one by one. A larger count is first split
/// between the two halves of the groups, by the normal approximation of the binomial distribution.
const FEW: u64 = 64;

/// Adds a draw from the multinomial distribution of `count` over groups of equal probability.
fn share(count: u64, shares: &mut [u64], random: &mut Pcg64) {
    let n = shares.len() as u32;
    if count <= FEW || n == 1 {
        for _ in 0..if n == 1 { 0 } else { count } {
            shares[random.random_range(0..n) as usize] += 1;
        }
        if n == 1 {
            shares[0] += count;
        }
        return;
    }
    let (left, right) = shares.split_at_mut(n as usize / 2);
    let (p, total) = (left.len() as f64 / f64::from(n), count as f64);
    // Box–Muller transform; 1 − u is never 0.
    let (u, v): (f64, f64) = (random.random(), random.random());
    let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    let own = p * total + normal * (total * p * (1.0 - p)).sqrt();
    let own = own.round().clamp(0.0, total) as u64;
    share(own, left, random);
    share(count - own, right, random);
}

/// Rows with one group per count.
#[cfg(test)]
pub(crate) fn part(
    first_row: usize,
    offsets: Vec<usize>,
    columns: Vec<u32>,
    counts: Vec<u32>,
    group: Vec<u16>,
) -> GroupedRows {
    GroupedRows {
        counts: Csr {
            first_row,
            offsets,
            columns,
            values: Values::Count(counts),
        },
        group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense;
    use proptest::prelude::*;

    /// Targets × sources in two parts: group 0 has N₀ = [2 0; 1 0; 0 0], and group 4, which becomes
    /// group 1, has N₄ = [0 0; 3 0; 0 5].
    fn small() -> Groups {
        let parts = vec![
            part(0, vec![0, 3], vec![0, 1, 1], vec![2, 1, 3], vec![0, 0, 4]),
            part(1, vec![0, 1], vec![2], vec![5], vec![4]),
        ];
        Groups::new(3, parts)
    }

    #[test]
    fn a_resample_is_the_weighted_sum_over_its_own_states() {
        let groups = small();
        assert_eq!(groups.n_groups, 2);
        let both = groups.resample(&[1, 100], 9);
        assert_eq!(both.sources, [0, 1]);
        assert_eq!(both.targets, [0, 1, 2]);
        assert_eq!(both.shards.source_total, [303.0, 500.0]);
        assert_eq!(both.shards.target_total, [2.0, 301.0, 500.0]);
        assert_eq!(both.shards.by_source[0].values, Values::Count(vec![2, 301]));

        let second = groups.resample(&[0, 2], 9);
        assert_eq!(second.sources, [0, 1]);
        assert_eq!(second.targets, [1, 2]);
        assert_eq!(second.shards.by_source[1].columns, [1]);
        assert_eq!(second.shards.total, 16.0);

        let first = groups.resample(&[3, 0], 9);
        assert_eq!(first.sources, [0]);
        assert_eq!(first.targets, [0, 1]);
        let s = &first.shards;
        assert_eq!((s.n_sources, s.by_source.len()), (1, 1));
        assert_eq!(groups.resample(&[0, 0], 9).shards.total, 0.0);
    }

    #[test]
    fn lost_counts_are_found() {
        let groups = small();
        let mut whole = groups.resample(&[1, 1], 9).shards.by_source;
        assert!(groups.add_up_to(&whole));
        whole[0].values = Values::Small(vec![2, 5]);
        assert!(!groups.add_up_to(&whole));
        assert!(!groups.add_up_to(&whole[..1]));
    }

    #[test]
    fn shares_of_large_counts_have_the_variance_of_a_multinomial() {
        // 200 counts of n = 10⁶ over 100 groups. Shares have mean 10⁴ and standard deviation
        // √(n·0.01·0.99) = 99.5.
        let mut random = Pcg64::seed_from_u64(1);
        let mut squares = 0.0;
        for _ in 0..200 {
            let mut shares = vec![0; 100];
            share(1_000_000, &mut shares, &mut random);
            assert_eq!(shares.iter().sum::<u64>(), 1_000_000);
            let off = shares.iter().map(|&n| n as f64 - 1e4);
            squares += off.map(|off| off.powi(2)).sum::<f64>();
        }
        let deviation = (squares / 20_000.0f64).sqrt();
        assert!((deviation - 99.5).abs() < 1.5, "{deviation}");
    }

    proptest! {
        #[test]
        fn scattered_counts_add_up(
            counts in prop::collection::vec(0u32..300, 12),
            n_groups in 1u16..20,
        ) {
            let mut counts = counts;
            // Every source and target of the 3 × 4 table occurs.
            [0, 5, 10, 3].into_iter().for_each(|at| counts[at] += 1);
            let columns: Vec<Vec<f64>> = counts.chunks(4).map(|c| c.iter().map(|&n| n.into()).collect()).collect();
            let shards = |nnz| dense(&columns, false, nnz);
            let whole = shards(4);
            let groups = Groups::scatter(4, &whole.by_source, n_groups);
            prop_assert!(groups.add_up_to(&whole.by_source));
            let all = groups.resample(&vec![1; groups.n_groups], 5);
            prop_assert_eq!(&all.shards.source_total, &whole.source_total);
            prop_assert_eq!(&all.shards.target_total, &whole.target_total);
            // The groups do not depend on the shards.
            let uncut = Groups::scatter(4, &shards(100).by_source, n_groups);
            let weights: Vec<u32> = (0..uncut.n_groups as u32).map(|g| g % 3).collect();
            let (one, other) = (uncut.resample(&weights, 100), groups.resample(&weights, 3));
            prop_assert_eq!(one.sources, other.sources);
            prop_assert_eq!(one.shards.source_total, other.shards.source_total);
            prop_assert_eq!(one.shards.target_total, other.shards.target_total);
        }
    }
}
