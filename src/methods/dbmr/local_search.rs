//! Local search: a partition of the sources → one in which no move of a single source increases ℓ̂.
//!
//! In: columns of N, m targets × n sources; some of them have a state below r. Out: a state for
//! every column. ℓ̂ never falls, and no exact move (`moves`) increases it by more than rounding.
//! Every such partition is a fixed point of the alternating algorithm as well.
//!
//! A sweep scores the columns in ascending order and moves each one at once. If there are many
//! columns, a block of them is scored in parallel with the sums from before the block. Then its
//! moves are made in order, each one only if it still increases ℓ̂. The counts alone decide the
//! blocks, so the result does not depend on threads or shards. Most columns find their state early.
//! Between two sweeps over all columns, only those with the smallest margins are swept, until none
//! of them moves.

use crate::methods::dbmr::matrix_columns::Columns;
use crate::methods::dbmr::moves::{BestMove, Clusters, NONE, ROUNDING};
use crate::methods::dbmr::seeding;
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// Between two sweeps over all columns, one in `ACTIVE` columns is scored again.
pub(crate) const ACTIVE: usize = 8;

/// An upper bound of the sweeps over active columns between two sweeps over all.
const ACTIVE_SWEEPS: usize = 10;

/// Non-zeros per block.
const BLOCK: usize = 1 << 17;

/// The least number of blocks in a sweep. The columns of a block do not see each other move.
const BLOCKS: usize = 32;

/// Columns per unit of parallel work.
const UNIT: usize = 16;

/// Columns whose states change by single moves.
pub(crate) trait Sweeps {
    /// Scores the columns at `positions` (ascending) and makes the moves that increase ℓ̂. Returns
    /// the number of moves.
    fn sweep(&mut self, positions: &[u32]) -> usize;

    /// For each column, what its move to the second-best state would lose, in nats per count, when
    /// the column was last scored.
    fn margins(&self) -> &[f64];

    /// ℓ̂, updated by each move.
    fn running_log_likelihood(&self) -> f64;

    /// Makes moves until none increases ℓ̂, until a sweep increases ℓ̂ by at most `tolerance` |ℓ̂|,
    /// or until `max_iterations` sweeps over all columns. Adds ℓ̂ after each of these sweeps to
    /// `trace`. Returns whether the search converged.
    fn run(&mut self, max_iterations: usize, tolerance: f64, trace: &mut Vec<f64>) -> bool {
        let all: Vec<u32> = (0..self.margins().len() as u32).collect();
        let mut before = self.running_log_likelihood();
        for _ in 0..max_iterations {
            let is_optimum = self.sweep(&all) == 0;
            if !is_optimum {
                let active = active(self.margins());
                let mut sweeps = 0;
                while sweeps < ACTIVE_SWEEPS && self.sweep(&active) > 0 {
                    sweeps += 1;
                }
            }
            let now = self.running_log_likelihood();
            trace.push(now);
            if is_optimum || now - before <= tolerance * before.abs() {
                return true;
            }
            before = now;
        }
        false
    }
}

/// The columns with the smallest margins.
fn active(margins: &[f64]) -> Vec<u32> {
    let mut least = margins.to_vec();
    let at = least.len() / ACTIVE;
    let (_, &mut limit, _) = least.select_nth_unstable_by(at, f64::total_cmp);
    let positions = 0..margins.len() as u32;
    positions
        .filter(|&p| margins[p as usize] <= limit)
        .collect()
}

/// A local search over some columns.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    /// The columns of all sources.
    pub columns: &'a Columns<'a>,
    /// The sources in the search, ascending.
    pub members: &'a [u32],
    /// The state of each member.
    pub states: Vec<u32>,
    /// The sums C of the members.
    pub clusters: Clusters,
    /// The margin of each member, in nats per count, when it was last scored.
    margins: Vec<f64>,
    /// Scores of one state for one column that were computed.
    pub scores: u64,
    /// Columns per block. If 1, each column is moved at once.
    block: usize,
}

impl<'a> Search<'a> {
    /// No member has a state. `clusters` must be empty.
    pub(crate) fn new(
        columns: &'a Columns<'a>,
        members: &'a [u32],
        clusters: Clusters,
    ) -> Search<'a> {
        let shards = columns.shards;
        let column_nnz = shards.nnz().div_ceil(shards.n_sources);
        let block = BLOCK.div_ceil(column_nnz);
        Search {
            columns,
            members,
            states: vec![NONE; members.len()],
            clusters,
            margins: vec![0.0; members.len()],
            scores: 0,
            block: if members.len() / block < BLOCKS {
                1
            } else {
                block
            },
        }
    }

    /// Sets the states of all members, of which some may be [`NONE`].
    pub(crate) fn fill(&mut self, states: Vec<u32>) {
        self.states = states;
        let with = self.members.iter().zip(&self.states);
        let with = with.filter(|(_, k)| **k != NONE);
        let columns = with.map(|(&j, &k)| (self.columns.get(j as usize), k));
        self.clusters.fill(&self.columns.entropy, columns);
    }

    /// Replaces the states of all members, and returns the old ones.
    pub(crate) fn replace(&mut self, states: Vec<u32>) -> Vec<u32> {
        let members = self.members.iter();
        self.clusters
            .clear(members.map(|&j| self.columns.get(j as usize)));
        let old = std::mem::take(&mut self.states);
        self.fill(states);
        old
    }

    /// Starts one state from each seed, which is the position of a member without a state. Every
    /// other member joins its best state.
    pub(crate) fn grow(&mut self, seeds: &[usize]) {
        for (k, &p) in seeds.iter().enumerate() {
            let column = self.columns.get(self.members[p] as usize);
            self.clusters.add(&self.columns.entropy, column, k as u32);
            self.states[p] = k as u32;
        }
        self.insert();
    }

    /// [`Search::grow`] from seeds that are far apart.
    pub(crate) fn grow_apart(&mut self, rng: &mut Pcg64) {
        let seeds = seeding::kl(self.columns, self.members, self.clusters.rank(), rng);
        self.scores += (seeds.len() * self.members.len()) as u64;
        self.grow(&seeds);
    }

    /// Gives every member without a state its best state.
    pub(crate) fn insert(&mut self) {
        let without = |p: &u32| self.states[*p as usize] == NONE;
        let positions: Vec<u32> = (0..self.members.len() as u32).filter(without).collect();
        self.sweep(&positions);
    }

    /// ℓ̂, summed from C.
    pub(crate) fn log_likelihood(&self) -> f64 {
        self.clusters.log_likelihood(&self.columns.entropy)
    }

    fn score(&self, p: usize, scores: &mut Vec<f64>) -> BestMove {
        let column = self.columns.get(self.members[p] as usize);
        let own = (self.states[p] != NONE).then_some(self.states[p]);
        self.clusters
            .best(&self.columns.entropy, column, own, scores)
    }

    /// Gives a member its best state. Returns whether it moved.
    fn place(&mut self, p: usize, best: BestMove) -> bool {
        let entropy = &self.columns.entropy;
        let column = self.columns.get(self.members[p] as usize);
        let own = std::mem::replace(&mut self.states[p], best.state);
        self.margins[p] = best.margin / column.total;
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
                let best = self.score(p as usize, &mut scores);
                moves += usize::from(self.place(p as usize, best));
            }
            return moves;
        }
        let mut found = Vec::new();
        for block in positions.chunks(self.block) {
            block
                .par_iter()
                .with_min_len(UNIT)
                .map_init(Vec::new, |scores, &p| self.score(p as usize, scores))
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
                    self.margins[p] = 0.0;
                } else {
                    moves += usize::from(self.place(p, best));
                }
            }
        }
        moves
    }

    fn margins(&self) -> &[f64] {
        &self.margins
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

    /// ℓ̂ of dense columns by its definition.
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
            prop_assert!(search.run(300, 0.0, &mut trace));
            // A move that is made gains more than rounding. A move that remains gains at most 10⁻⁹
            // nats per count.
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
