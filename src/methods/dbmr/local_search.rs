//! A partition of the sources → one that no move of a single source betters.
//!
//! In: columns of N, m targets × n sources, some of them with a state below r. Out: a state for every column, such that ℓ̂ never fell and no
//! exact move (`math::moves`) gains more than rounding may. Every such partition is a fixed point of the alternating algorithm as well.
//!
//! A sweep looks at columns in ascending order and moves each at once. Where columns are many, blocks of them are looked at in parallel
//! with the sums as they were at the beginning of the block, and each move is made, in order, if it still gains. Blocks are cut by
//! the counts alone, so the outcome does not depend on threads or shards. Most columns settle soon: between two sweeps over all, only those
//! that had the least reserve are swept, until they are at rest.

use crate::methods::dbmr::moves::{Best, Clusters, Columns, NONE, ROUNDING};
use crate::methods::dbmr::seeding;
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// One in so many columns is looked at again between two sweeps over all.
pub const ACTIVE: usize = 8;

/// Sweeps over these columns before all are looked at.
const ACTIVE_SWEEPS: usize = 10;

/// Non-zeros in a block.
const BLOCK: usize = 1 << 17;

/// Blocks a sweep must have at least, as columns of one block do not see each other move.
const BLOCKS: usize = 32;

/// Columns in one unit of parallel work.
const UNIT: usize = 16;

/// Columns with states that can be moved one by one.
pub trait Sweeps {
    /// Looks at columns (ascending positions) once and moves those that gain. Returns how many did.
    fn sweep(&mut self, positions: &[u32]) -> usize;

    /// What each column would lose elsewhere, in nats a count, when it was last looked at. One number a column.
    fn reserves(&self) -> &[f64];

    /// ℓ̂ as the moves changed it.
    fn running_log_likelihood(&self) -> f64;

    /// Makes moves until none gains, or ℓ̂ grows by no more than `tolerance` |ℓ̂|, or `max_iterations` sweeps over all columns were made. Adds ℓ̂
    /// after each of them to `trace`. Returns whether it stopped by itself.
    fn settle(&mut self, max_iterations: usize, tolerance: f64, trace: &mut Vec<f64>) -> bool {
        let all: Vec<u32> = (0..self.reserves().len() as u32).collect();
        let mut before = self.running_log_likelihood();
        for _ in 0..max_iterations {
            let is_settled = self.sweep(&all) == 0;
            if !is_settled {
                let active = active(self.reserves());
                let mut sweeps = 0;
                while sweeps < ACTIVE_SWEEPS && self.sweep(&active) > 0 {
                    sweeps += 1;
                }
            }
            let now = self.running_log_likelihood();
            trace.push(now);
            if is_settled || now - before <= tolerance * before.abs() {
                return true;
            }
            before = now;
        }
        false
    }
}

/// The columns with the least reserves.
fn active(reserves: &[f64]) -> Vec<u32> {
    let mut least = reserves.to_vec();
    let at = least.len() / ACTIVE;
    let (_, &mut limit, _) = least.select_nth_unstable_by(at, f64::total_cmp);
    let positions = 0..reserves.len() as u32;
    positions
        .filter(|&p| reserves[p as usize] <= limit)
        .collect()
}

/// Some columns on their way to states.
#[derive(Debug)]
pub struct Search<'a> {
    pub columns: &'a Columns<'a>,
    /// The sources in the search, ascending.
    pub members: &'a [u32],
    /// The state of each member.
    pub states: Vec<u32>,
    pub clusters: Clusters,
    /// What each member would lose elsewhere, in nats a count, when it was last looked at.
    reserves: Vec<f64>,
    /// Scores of one state for one column that were added up.
    pub scores: u64,
    /// Columns in a block; 1 where each is moved at once.
    block: usize,
}

impl<'a> Search<'a> {
    /// All members without a state; `clusters` must be empty.
    pub fn new(columns: &'a Columns<'a>, members: &'a [u32], clusters: Clusters) -> Search<'a> {
        let shards = columns.shards;
        let column_nnz = shards.nnz().div_ceil(shards.n_sources);
        let block = BLOCK.div_ceil(column_nnz);
        Search {
            columns,
            members,
            states: vec![NONE; members.len()],
            clusters,
            reserves: vec![0.0; members.len()],
            scores: 0,
            block: if members.len() / block < BLOCKS {
                1
            } else {
                block
            },
        }
    }

    /// Puts in all members that have a state.
    pub fn fill(&mut self, states: Vec<u32>) {
        self.states = states;
        let with = self.members.iter().zip(&self.states);
        let with = with.filter(|(_, k)| **k != NONE);
        let columns = with.map(|(&j, &k)| (self.columns.get(j as usize), k));
        self.clusters.fill(&self.columns.entropy, columns);
    }

    /// Gives all members other states. Returns those they had.
    pub fn replace(&mut self, states: Vec<u32>) -> Vec<u32> {
        let members = self.members.iter();
        self.clusters
            .clear(members.map(|&j| self.columns.get(j as usize)));
        let old = std::mem::take(&mut self.states);
        self.fill(states);
        old
    }

    /// Begins with one state around each of the seeds, positions of members without a state, and gives every other member the one that it fits
    /// best.
    pub fn grow(&mut self, seeds: &[usize]) {
        for (k, &p) in seeds.iter().enumerate() {
            let column = self.columns.get(self.members[p] as usize);
            self.clusters.add(&self.columns.entropy, column, k as u32);
            self.states[p] = k as u32;
        }
        self.insert();
    }

    /// The same around seeds that are far apart.
    pub fn grow_apart(&mut self, rng: &mut Pcg64) {
        let seeds = seeding::kl(self.columns, self.members, self.clusters.rank(), rng);
        self.scores += (seeds.len() * self.members.len()) as u64;
        self.grow(&seeds);
    }

    /// Gives every member without a state the one that it fits best.
    pub fn insert(&mut self) {
        let without = |p: &u32| self.states[*p as usize] == NONE;
        let positions: Vec<u32> = (0..self.members.len() as u32).filter(without).collect();
        self.sweep(&positions);
    }

    /// ℓ̂, added up anew.
    pub fn log_likelihood(&self) -> f64 {
        self.clusters.log_likelihood(&self.columns.entropy)
    }

    fn look(&self, p: usize, scores: &mut Vec<f64>) -> Best {
        let column = self.columns.get(self.members[p] as usize);
        let own = (self.states[p] != NONE).then_some(self.states[p]);
        self.clusters
            .best(&self.columns.entropy, column, own, scores)
    }

    /// Takes a member to the state that was found best. Returns whether that is a move.
    fn place(&mut self, p: usize, best: Best) -> bool {
        let entropy = &self.columns.entropy;
        let column = self.columns.get(self.members[p] as usize);
        let own = std::mem::replace(&mut self.states[p], best.state);
        self.reserves[p] = best.reserve / column.total;
        if own == best.state {
            return false;
        }
        if own == NONE {
            self.clusters.add(entropy, column, best.state);
        } else {
            self.clusters.shift(entropy, column, own, best.state);
        }
        true
    }
}

impl Sweeps for Search<'_> {
    fn sweep(&mut self, positions: &[u32]) -> usize {
        self.scores += (positions.len() * self.clusters.rank()) as u64;
        let mut moves = 0;
        if self.block == 1 {
            let mut scores = Vec::new();
            for &p in positions {
                let best = self.look(p as usize, &mut scores);
                moves += usize::from(self.place(p as usize, best));
            }
            return moves;
        }
        let mut found = Vec::new();
        for block in positions.chunks(self.block) {
            block
                .par_iter()
                .with_min_len(UNIT)
                .map_init(Vec::new, |scores, &p| self.look(p as usize, scores))
                .collect_into_vec(&mut found);
            for (&p, &best) in block.iter().zip(&found) {
                let p = p as usize;
                let (own, column) = (self.states[p], self.columns.get(self.members[p] as usize));
                let is_stale = own != NONE && best.state != own && {
                    let entropy = &self.columns.entropy;
                    let gain = self.clusters.gain(entropy, column, own, best.state);
                    gain <= ROUNDING * column.total
                };
                if is_stale {
                    self.reserves[p] = 0.0;
                } else {
                    moves += usize::from(self.place(p, best));
                }
            }
        }
        moves
    }

    fn reserves(&self) -> &[f64] {
        &self.reserves
    }

    fn running_log_likelihood(&self) -> f64 {
        let clusters = &self.clusters;
        clusters.running_log_likelihood(&self.columns.entropy)
    }
}

pub(crate) fn empty_search<'a>(
    columns: &'a Columns,
    members: &'a [u32],
    rank: usize,
) -> Search<'a> {
    let clusters = Clusters::new(columns.shards.n_targets, rank, &columns.entropy);
    Search::new(columns, members, clusters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense as shards;
    use proptest::prelude::*;

    /// ℓ̂ of dense columns from its definition.
    fn plain(columns: &[Vec<f64>], states: &[u32], rank: usize) -> f64 {
        let m = columns[0].len();
        let f = |x: f64| if x > 0.0 { x * x.ln() } else { 0.0 };
        let mut value = 0.0;
        for k in 0..rank as u32 {
            let own = || columns.iter().zip(states).filter(|(_, s)| **s == k);
            let sums = (0..m).map(|i| own().map(|(c, _)| c[i]).sum::<f64>());
            value += sums.clone().map(f).sum::<f64>() - f(sums.sum::<f64>());
        }
        value
    }

    fn columns() -> impl Strategy<Value = (Vec<Vec<f64>>, f64)> {
        let value = prop_oneof![3 => Just(0u32), 2 => Just(1), 2 => 2..9u32, 1 => 1..100_000u32];
        let dense = (2..12usize, 2..12usize).prop_flat_map(move |(n, m)| {
            prop::collection::vec(prop::collection::vec(value.clone(), m), n)
        });
        (dense, prop_oneof![Just(1.0), Just(0.3)]).prop_map(|(dense, scale)| {
            let (n, m) = (dense.len(), dense[0].len());
            let mut columns: Vec<Vec<f64>> = dense
                .iter()
                .map(|c| c.iter().map(|&v| scale * f64::from(v)).collect())
                .collect();
            for x in 0..n.max(m) {
                let v = &mut columns[x % n][x % m];
                *v = v.max(scale);
            }
            (columns, scale)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_likelihood_never_falls_and_no_move_is_left(
            (c, scale) in columns(),
            rank in 1..6usize,
            draws: [u32; 12],
            block in 1..5usize,
        ) {
            let s = shards(&c, scale != 1.0, 20);
            let all = Columns::new(&s);
            let members: Vec<u32> = (0..c.len() as u32).collect();
            let mut search = Search::new(&all, &members, Clusters::new(s.n_targets, rank, &all.entropy));
            search.block = block;
            let start: Vec<u32> = (0..c.len()).map(|j| draws[j] % rank as u32).collect();
            let before = plain(&c, &start, rank);
            search.fill(start);
            let mut trace = Vec::new();
            prop_assert!(search.settle(300, 0.0, &mut trace));
            // A move that is made gains more than rounding, and one that is left gains no more than 10⁻⁹ nats a count.
            let unit = 1e-8 * s.total;
            trace.insert(0, before);
            prop_assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - unit), "{:?}", trace);
            let end = plain(&c, &search.states, rank);
            prop_assert!((end - search.log_likelihood()).abs() < unit);
            prop_assert!((end - trace[trace.len() - 1]).abs() < unit);
            for j in 0..c.len() {
                for k in 0..rank as u32 {
                    let mut moved = search.states.clone();
                    moved[j] = k;
                    prop_assert!(plain(&c, &moved, rank) <= end + unit);
                }
            }
        }
    }
}
