//! Local search in passes: a partition of many sources that is nearly right → one in which no move
//! of a single source increases ℓ̂. The matrix may be on other machines.
//!
//! In: counts, m targets × n sources, and states of some or all sources. Out: a state below r for
//! every source. ℓ̂ never falls.
//!
//! A sweep splits the sources into [`BLOCKS`] blocks. Each block is scored in one pass, with the
//! sums from before the pass. Then its moves are made in order, each one only if it still increases
//! ℓ̂. Neighbouring sources are often alike and would move together without seeing each other, so
//! neighbouring groups of sources are in different blocks. This also gives every shard a share of
//! each pass. The numbers of the sources alone decide the blocks.

use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::columns::StateRows;
use crate::methods::dbmr::entropy::Entropy;
use crate::methods::dbmr::local_search::{ACTIVE, Sweeps};
use crate::methods::dbmr::matrix_columns::Columns;
use crate::methods::dbmr::moves::{Clusters, NONE, ROUNDING};
use crate::methods::dbmr::scan::{Scan, Scanned, Subset};
use std::borrow::Cow;

/// Blocks of a sweep over all sources; the active sources are about one block. Each block is one
/// pass. With fewer blocks, more of the moves no longer increase ℓ̂ when they are made.
const BLOCKS: usize = ACTIVE;

/// Sources per group; a group is in one block.
const NEIGHBOURS: usize = 64;

/// A local search over all sources of a matrix.
#[derive(Debug)]
pub(crate) struct BlockSearch<'a> {
    passes: &'a Passes<'a>,
    columns: Columns<'a>,
    /// The sums C.
    pub clusters: Clusters,
    /// The state of each source.
    pub states: Vec<u32>,
    /// The margin of each source, in nats per count, when it was last scored.
    margins: Vec<f64>,
    /// Scores of one state for one source that were computed.
    pub scores: u64,
    /// The result of the last pass.
    scanned: Vec<Scanned>,
}

impl<'a> BlockSearch<'a> {
    /// `states` has n values below r, or [`NONE`] for a source that joins its best state among
    /// those of the other sources.
    pub(crate) fn new(
        passes: &'a Passes<'a>,
        shards: &'a Shards,
        rank: usize,
        states: Vec<u32>,
    ) -> Self {
        let n = shards.n_sources;
        assert_eq!(states.len(), n, "one state a source");
        let columns = Columns::new(shards);
        let entropy = columns.entropy;
        let mut search = BlockSearch {
            passes,
            columns,
            clusters: sums(passes, shards, &entropy, rank, &states),
            states,
            margins: vec![0.0; n],
            scores: 0,
            scanned: vec![Scanned::default(); n],
        };
        let without = |j: &u32| search.states[*j as usize] == NONE;
        let without: Vec<u32> = (0..n as u32).filter(without).collect();
        if !without.is_empty() {
            search.scan(&without, false);
            for (j, scanned) in search.scanned.iter().enumerate() {
                if let Some(best) = scanned.best {
                    search.states[j] = best.state;
                }
            }
            search.clusters = sums(passes, shards, &entropy, rank, &search.states);
        }
        search
    }

    /// ℓ̂, summed from C.
    pub(crate) fn log_likelihood(&self) -> f64 {
        self.clusters.log_likelihood(&self.columns.entropy)
    }

    /// Scores some sources in one pass.
    fn scan(&mut self, sources: &[u32], with_columns: bool) {
        let subset = Subset::of(self.states.len(), sources.iter().copied());
        let scan = Scan {
            clusters: Cow::Borrowed(&self.clusters),
            entropy: self.columns.entropy,
            states: Cow::Borrowed(&self.states),
            sources: Cow::Owned(subset),
            with_columns,
        };
        self.passes
            .rows(self.columns.shards.sources(), &scan, &mut self.scanned);
        self.scores += (sources.len() * self.clusters.rank()) as u64;
    }
}

/// The sums C of the sources that have a state. The sources without a state are one more state,
/// which is left out.
fn sums(
    passes: &Passes<'_>,
    shards: &Shards,
    entropy: &Entropy,
    rank: usize,
    states: &[u32],
) -> Clusters {
    let width = rank + usize::from(states.contains(&NONE));
    let affiliation = states.iter().map(|&k| k.min(rank as u32)).collect();
    let gather = Gather {
        affiliation: Cow::Owned(affiliation),
        rank: width,
    };
    let mut sums = vec![0.0; shards.n_targets * width];
    passes.rows(shards.targets(), &gather, &mut sums);
    let sums = StateRows {
        values: &sums,
        width,
    };
    Clusters::of_sums(entropy, rank, sums, states, &shards.source_total)
}

impl Sweeps for BlockSearch<'_> {
    fn sweep(&mut self, sources: &[u32]) -> usize {
        let shards = self.columns.shards;
        let groups = sources.len().div_ceil(NEIGHBOURS);
        let blocks = (BLOCKS * sources.len()).div_ceil(self.states.len());
        let blocks = blocks.min(groups);
        let mut moves = 0;
        for block in 0..blocks {
            let own = sources.chunks(NEIGHBOURS).skip(block).step_by(blocks);
            let own: Vec<u32> = own.flatten().copied().collect();
            self.scan(&own, shards.is_outline());
            for &j in &own {
                let (j, scanned) = (j as usize, &self.scanned[j as usize]);
                let Some(best) = scanned.best else { continue };
                let state = &mut self.states[j];
                let total = shards.source_total[j];
                self.margins[j] = best.margin / total;
                if *state == best.state {
                    continue;
                }
                let column = scanned.column().unwrap_or_else(|| self.columns.get(j));
                let (entropy, to) = (&self.columns.entropy, best.state);
                if self.clusters.gain(entropy, column, *state, to) > ROUNDING * total {
                    self.clusters.shift(entropy, column, *state, to);
                    *state = to;
                    moves += 1;
                } else {
                    self.margins[j] = 0.0;
                }
            }
        }
        moves
    }

    fn margins(&self) -> &[f64] {
        &self.margins
    }

    fn running_log_likelihood(&self) -> f64 {
        self.clusters.running_log_likelihood(&self.columns.entropy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense;
    use crate::evidence::kind::EvidenceKind;
    use crate::evidence::pass::Passes;
    use crate::evidence::pass::executor::{Executor, Pass};

    /// Columns of three overlapping sets of targets, in turn.
    fn overlapping(n: u32, scale: f64) -> Shards {
        let count = |j: u32, i: u32| {
            let hash = (j * 30 + i).wrapping_mul(2_654_435_761) >> 16;
            let is_own = i / 10 == j % 3;
            let is_counted = hash % 100 < if is_own { 50 } else { 20 } || i == j % 30;
            scale * f64::from(if is_counted { 1 + hash % 3 } else { 0 })
        };
        let column = |j| (0..30).map(|i| count(j, i)).collect();
        let columns: Vec<_> = (0..n).map(column).collect();
        dense(&columns, scale.fract() != 0.0, 500)
    }

    /// Runs passes over an outline on the whole matrix.
    struct OnWhole<'a>(&'a Shards, &'a Shards);

    impl Executor for OnWhole<'_> {
        fn run(&self, pass: &mut dyn Pass) {
            let OnWhole(outline, whole) = self;
            assert!(!whole.is_outline());
            let side = if pass.shards() == outline.by_source.as_ptr().cast() {
                &whole.by_source
            } else {
                &whole.by_target
            };
            pass.apply_to(side);
        }
    }

    fn optimum(passes: &Passes<'_>, shards: &Shards) -> (Vec<u32>, Vec<f64>, f64) {
        let n = shards.n_sources as u32;
        // Every fourth source has a state, which is mostly wrong.
        let states = (0..n).map(|j| match j % 4 {
            0 => j / 4 % 3,
            _ => NONE,
        });
        let mut search = BlockSearch::new(passes, shards, 3, states.collect());
        let mut trace = vec![search.running_log_likelihood()];
        assert!(search.run(100, 0.0, &mut trace));
        let log_likelihood = search.log_likelihood();
        (search.states, trace, log_likelihood)
    }

    #[test]
    fn no_move_is_left_wherever_the_matrix_is() {
        for (n, scale) in [(1500, 1.0), (700, 0.3), (50, 1.0)] {
            let shards = overlapping(n, scale);
            let (states, trace, log_likelihood) = optimum(&Passes::local(), &shards);
            let unit = 1e-9 * shards.total;
            assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - unit));
            let last = trace[trace.len() - 1];
            assert!((last - log_likelihood).abs() < unit && last > trace[0] + 1.0);
            let columns = Columns::new(&shards);
            let mut clusters = Clusters::new(30, 3, &columns.entropy);
            let all = (0..n as usize).map(|j| (columns.get(j), states[j]));
            clusters.fill(&columns.entropy, all);
            assert!((clusters.log_likelihood(&columns.entropy) - log_likelihood).abs() < unit);
            for (j, &own) in states.iter().enumerate() {
                let (entropy, column) = (&columns.entropy, columns.get(j));
                for to in (0..3).filter(|&k| k != own) {
                    assert!(clusters.gain(entropy, column, own, to) <= 1e-8 * column.total);
                }
            }

            let outline = shards.outline();
            let remote = OnWhole(&outline, &shards);
            let (others, other_trace, other) = optimum(&Passes::at(&remote), &outline);
            assert_eq!((others, other_trace), (states, trace));
            assert_eq!(other.to_bits(), log_likelihood.to_bits());
        }
    }
}
