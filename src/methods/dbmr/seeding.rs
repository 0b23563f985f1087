//! The start of a search for a partition of the sources.
//!
//! In: columns of N and a rank r. Out: r columns from which states grow, or a sample of the
//! sources.
//!
//! k-means++ under Kullback–Leibler divergence draws the next seed with probability ∝ N_·j KL(P_j ‖
//! nearest seed), which is mostly infinite for sparse columns. Instead, this draws by the decrease
//! of ℓ̂ if column j and seed c share one state. It is finite, it is the divergence of both from
//! their mixture, and it is the cost in the partition: Σ_i [f(N_ij) + f(N_ic) − f(N_ij + N_ic)] +
//! f(N_·j + N_·c) − f(N_·j) − f(N_·c) with f(x) = x log x.

use crate::evidence::counts::csr::{Csr, Values};
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::math::seed::restart_seed;
use crate::methods::dbmr::entropy::Sum;
use crate::methods::dbmr::matrix_columns::{Column, Columns};
use crate::methods::dbmr::scan::{Pick, Subset};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::borrow::Cow;

/// The least size of a sample: columns per state, and columns in all.
const COLUMNS_PER_STATE: usize = 16;
const COLUMNS: usize = 128;

/// Independent uniform states of n sources.
pub(crate) fn random(n: usize, rank: usize, rng: &mut Pcg64) -> Vec<u32> {
    (0..n).map(|_| rng.random_range(0..rank as u32)).collect()
}

/// Up to `count` different positions out of n, independent and uniform.
pub(crate) fn uniform(n: usize, count: usize, rng: &mut Pcg64) -> Vec<usize> {
    let mut seeds = Vec::with_capacity(count);
    for _ in 0..count {
        let p = rng.random_range(0..n);
        if !seeds.contains(&p) {
            seeds.push(p);
        }
    }
    seeds
}

/// Draws up to `rank` of the `members` (sources) by the cost of merging them with the nearest seed.
/// There are fewer if all other members are proportional to a seed. Returns positions in `members`.
pub(crate) fn kl(columns: &Columns, members: &[u32], rank: usize, rng: &mut Pcg64) -> Vec<usize> {
    if columns.entropy.fits_f32 {
        far_apart::<u32>(columns, members, rank, rng)
    } else {
        far_apart::<f64>(columns, members, rank, rng)
    }
}

fn far_apart<S: Sum>(
    columns: &Columns,
    members: &[u32],
    rank: usize,
    rng: &mut Pcg64,
) -> Vec<usize> {
    let entropy = &columns.entropy;
    let total = |p: usize| columns.get(members[p] as usize).total;
    let mut cost: Vec<f64> = (0..members.len()).map(total).collect();
    let mut nearest = vec![f64::INFINITY; members.len()];
    let mut seed_counts = vec![S::default(); columns.shards.n_targets];
    let mut seeds = Vec::with_capacity(rank);
    while seeds.len() < rank {
        let all: f64 = cost.iter().sum();
        if all <= 0.0 {
            break;
        }
        let seed = draw(&cost, rng.random::<f64>() * all);
        seeds.push(seed);
        let center = columns.get(members[seed] as usize);
        crate::with_values!(center.csr, values => {
            for (&i, &v) in center.targets().iter().zip(&values[center.span()]) {
                seed_counts[i as usize] = S::of(v);
            }
        });
        for (p, &j) in members.iter().enumerate() {
            let column = columns.get(j as usize);
            let mut loss = entropy.rise(center.total, column.total) - entropy.of(column.total);
            crate::with_values!(column.csr, values => {
                for (&i, &v) in column.targets().iter().zip(&values[column.span()]) {
                    loss -= seed_counts[i as usize].joined(S::of(v), entropy);
                }
            });
            // Columns that differ by rounding only are equal.
            let is_equal = p == seed || loss <= 1e-9 * column.total;
            nearest[p] = loss.min(nearest[p]);
            if is_equal {
                nearest[p] = 0.0;
            }
            cost[p] = nearest[p];
        }
        for (i, _) in center.entries() {
            seed_counts[i] = S::default();
        }
    }
    seeds
}

/// The position at which the running sum of `cost` passes `level`. Its cost is not 0.
fn draw(cost: &[f64], level: f64) -> usize {
    let (mut sum, mut last) = (0.0, 0);
    for (p, &cost) in cost.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        sum += cost;
        last = p;
        if sum > level {
            break;
        }
    }
    last
}

/// A sample of the sources, ascending: about one non-zero per target, and enough for the rank. It
/// has the sources with the smallest hashes of their numbers, so that no order of the sources
/// matters. None if it would be most of the sources.
pub(crate) fn sample(shards: &Shards, rank: usize) -> Option<Vec<u32>> {
    let n = shards.n_sources;
    let of_targets = (n as f64 * shards.n_targets as f64 / shards.nnz() as f64).ceil() as usize;
    let wanted = of_targets.max(COLUMNS_PER_STATE * rank).max(COLUMNS);
    if wanted > n / 2 {
        return None;
    }
    let mut hashes: Vec<(u64, u32)> = (0..n).map(|j| (restart_seed(0, j + 1), j as u32)).collect();
    hashes.select_nth_unstable(wanted);
    let mut sources: Vec<u32> = hashes[..wanted].iter().map(|h| h.1).collect();
    sources.sort_unstable();
    Some(sources)
}

/// The counts of some sources (ascending), without targets that they do not reach. Sources and
/// targets are renumbered in their order.
pub(crate) fn restrict(passes: &Passes<'_>, shards: &Shards, sources: &[u32]) -> Shards {
    let subset = Subset::of(shards.n_sources, sources.iter().copied());
    let pick = Pick {
        sources: Cow::Owned(subset),
    };
    let mut rows = vec![None; shards.n_sources];
    passes.rows(shards.sources(), &pick, &mut rows);
    let rows: Vec<Box<Csr>> = rows.into_iter().flatten().collect();

    const NONE: u32 = u32::MAX;
    let mut name = vec![NONE; shards.n_targets];
    for &i in rows.iter().flat_map(|row| &row.columns) {
        name[i as usize] = 0;
    }
    let mut n_targets = 0;
    for name in name.iter_mut().filter(|name| **name != NONE) {
        *name = n_targets;
        n_targets += 1;
    }
    let (mut owners, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (own, row) in rows.iter().enumerate() {
        for (i, v) in Column::of(row, 0).entries() {
            owners.push(own as u32);
            targets.push(name[i]);
            counts.push(v);
        }
    }
    let values = if shards.is_integral() {
        Values::Count(counts.into_iter().map(|v| v as u32).collect())
    } else {
        Values::Real(counts)
    };
    Shards::new(
        sources.len(),
        n_targets as usize,
        &owners,
        &targets,
        values,
        usize::MAX,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::{dense, of_rows};
    use crate::evidence::pass::Passes;
    use rand::SeedableRng;

    // N (targets × sources) = [ 1 2 0 0 5 ]
    //                         [ 1 2 0 0 5 ]
    //                         [ 0 0 3 4 0 ]
    fn small() -> Shards {
        let rows = [
            [1.0, 2.0, 0.0, 0.0, 5.0],
            [1.0, 2.0, 0.0, 0.0, 5.0],
            [0.0, 0.0, 3.0, 4.0, 0.0],
        ];
        of_rows(&rows.map(|row| row.to_vec()), false, 3)
    }

    #[test]
    fn proportional_columns_are_no_seeds_together() {
        let shards = small();
        let columns = Columns::new(&shards);
        for seed in 0..20 {
            let mut rng = Pcg64::seed_from_u64(seed);
            let seeds = kl(&columns, &[0, 1, 2, 3, 4], 4, &mut rng);
            let kinds: Vec<bool> = seeds.iter().map(|p| [2, 3].contains(p)).collect();
            assert!(kinds.len() == 2 && kinds[0] != kinds[1], "{seeds:?}");
        }
    }

    #[test]
    fn a_restriction_renumbers() {
        let shards = small();
        let part = restrict(&Passes::local(), &shards, &[1, 4]);
        assert_eq!((part.n_sources, part.n_targets, part.total), (2, 2, 14.0));
        assert_eq!(part.by_source[0].columns, [0, 1, 0, 1]);
        let part = restrict(&Passes::local(), &shards, &[0, 3]);
        assert_eq!(part.by_source[0].columns, [0, 1, 2]);
        assert_eq!(part.source_total, [2.0, 4.0]);
    }

    #[test]
    fn few_sources_are_their_own_sample() {
        assert_eq!(sample(&small(), 2), None);
        let diagonal = |n: usize| dense(&vec![vec![1.0; 2]; n], false, 99);
        assert_eq!(sample(&diagonal(255), 2), None);
        let sources = sample(&diagonal(256), 2).expect("a sample of half of the sources");
        assert_eq!(sources.len(), 128);
        assert!(sources.windows(2).all(|w| w[0] < w[1]) && sources[127] < 256);
        let sources = sample(&diagonal(1000), 20).expect("more for the rank");
        assert_eq!(sources.len(), 320);
    }
}
