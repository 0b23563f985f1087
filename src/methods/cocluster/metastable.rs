//! The metastable form of co-clustering: one partition of the states, used on both sides of square
//! counts, with the largest mutual information between the set of a state now and the set one lag
//! later. E_k and F_k are the same set.
//!
//! In: N, m targets × n sources, the target that every source is, and a rank r. A state that only
//! starts or only ends transitions is a state as well. Out: a set for every state, with a large S
//! I, where C_kl = Σ N_ij over sources in set k and targets in set l. Sets that are visited in turn
//! say as much about the future as sets that are seldom left, so both kinds are found. The
//! metastability Σ_k C_kk / C_k· distinguishes them.
//!
//! A state that moves takes its row and its column of C with it, and its own count N_xx twice: once
//! as a source, once as a target. The gain is exact, from the sums of its counts over the sets.
//! States are visited in turn and moved to the set with the largest gain (Hartigan), until none
//! moves. A visit costs the non-zeros of the state on both sides and O(r²). Restarts begin as in
//! co-clustering. If every target is a source, one restart begins with the labels of G-PCCA, the
//! only method that separates the sets of a cycle.

use crate::error::Result;
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::executor::each_shard;
use crate::methods::cocluster::joint::{Table, x_log_x};
use crate::methods::cocluster::{self, Climbed, Cocluster, Partitions, WHOLE_MATRIX};
use crate::methods::columns::StateColumn;
use crate::methods::estimator::{Estimator, Fault, Needs, Parameters, States, defaults, ranked};
use crate::methods::fit::Fit;
use crate::methods::low_rank::columns::SETS;
use crate::methods::low_rank::factors::Factors;
use crate::methods::low_rank::{check_rank, names, projection};
use crate::methods::spectral::{gpcca, pcca};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One partition of the states, as sources and as targets, with the largest mutual information
/// between the present set and the next one. Source and target states must be of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metastable {
    /// The number of sets, or a list of numbers to fit one by one.
    pub rank: usize,
    /// The number of independent starts, of which the best is kept. The first one begins with the
    /// sets of `dbmr`, the others with random sets.
    #[serde(default = "Metastable::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// The number of rounds over all states after which a start that has not converged is stopped.
    #[serde(default = "Metastable::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

impl Metastable {
    /// The search of co-clustering with the same parameters.
    fn search(&self) -> Cocluster {
        Cocluster {
            rank: self.rank,
            restarts: self.restarts,
            max_iterations: self.max_iterations,
        }
    }
}

defaults! { pub Metastable(rank: usize) {
    restarts: usize = 10,
    max_iterations: usize = 1000,
} }

impl Parameters for Metastable {
    const NAME: &'static str = "metastable";

    fn check(&self) -> std::result::Result<(), Fault> {
        self.search().check()
    }

    ranked!();

    fn describe(&self, rank: &str) -> String {
        format!(
            "one partition for both sides, {rank}, {} restarts",
            self.restarts
        )
    }
}

impl Estimator for Metastable {
    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn needs(&self) -> Needs<'_> {
        Needs {
            states: States::OneKind,
            whole_matrix: Some(WHOLE_MATRIX),
            ..Needs::default()
        }
    }

    fn columns(&self) -> &'static [StateColumn] {
        SETS
    }

    fn bytes(&self, size: Size, threads: u64) -> u64 {
        self.search().bytes(size, threads)
    }

    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        let shards = &*counts.shards;
        check_rank(self.rank, shards)?;
        passes.step("partition");
        let found = fit(
            passes,
            shards,
            &counts.target_of_source,
            &self.search(),
            seed,
        );
        let names = names(&found.sources, self.rank, shards);
        let name = |k: &u32| names[*k as usize];
        let affiliation = found.sources.iter().map(name).collect();
        let targets = |_: &Factors| found.targets.iter().map(|k| name(k) as i32).collect();
        let model = projection(passes, shards, affiliation, self.rank, targets);
        Ok(found.into_fit(model, seed))
    }
}

/// Source j is target `target_of_source[j]`, if it is one. No two sources are one target.
pub(crate) fn fit(
    passes: &Passes<'_>,
    shards: &Shards,
    target_of_source: &[Option<u32>],
    params: &Cocluster,
    seed: u64,
) -> Partitions {
    assert_eq!(
        target_of_source.len(),
        shards.n_sources,
        "one target or none a source"
    );
    let problem = Problem::new(shards, target_of_source, params);
    let cycle = cycle(passes, shards, target_of_source, params, seed);
    cocluster::search(passes, shards, params, cycle, seed, |start| {
        problem.climb(passes, &start)
    })
}

/// The labels of G-PCCA, if it applies and there is a restart for it.
fn cycle(
    passes: &Passes<'_>,
    shards: &Shards,
    target_of_source: &[Option<u32>],
    params: &Cocluster,
    seed: u64,
) -> Option<Vec<u32>> {
    let mut source_of_target = vec![None; shards.n_targets];
    for (j, target) in (0..).zip(target_of_source) {
        if let Some(i) = target {
            source_of_target[*i as usize] = Some(j);
        }
    }
    let source_of_target: Vec<u32> = source_of_target.into_iter().collect::<Option<_>>()?;
    if params.restarts < 2 {
        return None;
    }
    let (weights, schur) = (&shards.source_total, gpcca::Gpcca::new(params.rank));
    let found = gpcca::leading(passes, shards, &source_of_target, weights, &schur, seed).ok()?;
    Some(pcca::fit(&found.embedding, params.rank, weights)?.affiliation)
}

/// The indices of a state on both sides.
#[derive(Debug, Clone, Copy)]
struct State {
    source: Option<usize>,
    target: Option<usize>,
}

/// The sets of sources and of targets.
struct Sides {
    sources: Vec<u32>,
    targets: Vec<u32>,
}

struct Problem<'a> {
    shards: &'a Shards,
    params: &'a Cocluster,
    /// The sources in order, then the targets that are no source, in order.
    states: Vec<State>,
}

/// The counts of one state, without those from the state to itself, over the sets of the other
/// ends.
struct OfState {
    /// To set l.
    out: Vec<f64>,
    /// From set k.
    into: Vec<f64>,
    own: f64,
}

impl<'a> Problem<'a> {
    fn new(
        shards: &'a Shards,
        target_of_source: &[Option<u32>],
        params: &'a Cocluster,
    ) -> Problem<'a> {
        let mut is_source = vec![false; shards.n_targets];
        let mut states: Vec<State> = target_of_source
            .iter()
            .enumerate()
            .map(|(j, target)| {
                let target = target.map(|i| i as usize);
                if let Some(i) = target {
                    assert!(!is_source[i], "target {i} is one source only");
                    is_source[i] = true;
                }
                State {
                    source: Some(j),
                    target,
                }
            })
            .collect();
        let targets = is_source.iter().enumerate();
        states.extend(targets.filter(|(_, is)| !**is).map(|(i, _)| State {
            source: None,
            target: Some(i),
        }));
        Problem {
            shards,
            params,
            states,
        }
    }

    fn sides(&self, sets: &[u32]) -> Sides {
        let mut sides = Sides {
            sources: vec![0; self.shards.n_sources],
            targets: vec![0; self.shards.n_targets],
        };
        for (state, &set) in self.states.iter().zip(sets) {
            if let Some(j) = state.source {
                sides.sources[j] = set;
            }
            if let Some(i) = state.target {
                sides.targets[i] = set;
            }
        }
        sides
    }

    fn table(&self, sides: &Sides) -> Table {
        let rank = self.params.rank;
        let mut counts = vec![0.0; rank * rank];
        for shard in each_shard(&self.shards.by_source) {
            for (l, j) in shard.rows().enumerate() {
                let k = sides.sources[j] as usize;
                for e in shard.span(l) {
                    let set = sides.targets[shard.columns[e] as usize] as usize;
                    counts[k * rank + set] += shard.values.get(e);
                }
            }
        }
        Table::of(counts, rank)
    }

    /// From a partition of the sources. A state that is no source begins in its most probable set.
    fn climb(&self, passes: &Passes<'_>, start: &[u32]) -> Climbed {
        let targets = cocluster::first_targets(passes, self.shards, start, self.params.rank);
        let of_state = |x: &State| match (x.source, x.target) {
            (Some(j), _) => start[j],
            (None, Some(i)) => targets[i],
            (None, None) => 0,
        };
        let mut sets: Vec<u32> = self.states.iter().map(of_state).collect();
        let mut sides = self.sides(&sets);
        let mut trace = Vec::new();
        let mut converged = false;
        while !converged && trace.len() < self.params.max_iterations {
            converged = !self.sweep(&mut sets, &mut sides);
            trace.push(self.table(&sides).information());
        }
        Climbed {
            sources: sides.sources,
            targets: sides.targets,
            trace,
            converged,
        }
    }

    /// Moves every state, in order, to the set with the largest gain of S I. Returns whether any
    /// state moved.
    fn sweep(&self, sets: &mut [u32], sides: &mut Sides) -> bool {
        let rank = self.params.rank;
        // Sums of weights that change by moves collect rounding errors, so each sweep begins with
        // new sums.
        let mut table = self.table(sides);
        let least = table.no_gain();
        let mut terms: Vec<f64> = table.counts.iter().map(|&c| x_log_x(c)).collect();
        let mut counts = OfState {
            out: vec![0.0; rank],
            into: vec![0.0; rank],
            own: 0.0,
        };
        let mut any = false;
        for (state, set) in self.states.iter().zip(sets) {
            self.count(*state, sides, &mut counts);
            let own = *set as usize;
            shift(&mut table, &mut terms, &counts, own, -1.0);
            let present = gain(&table, &terms, &counts, own);
            let mut best = (own, present + least);
            for k in (0..rank).filter(|&k| k != own) {
                let gain = gain(&table, &terms, &counts, k);
                if gain > best.1 {
                    best = (k, gain);
                }
            }
            shift(&mut table, &mut terms, &counts, best.0, 1.0);
            if best.0 != own {
                any = true;
                *set = best.0 as u32;
                if let Some(j) = state.source {
                    sides.sources[j] = *set;
                }
                if let Some(i) = state.target {
                    sides.targets[i] = *set;
                }
            }
        }
        any
    }

    fn count(&self, state: State, sides: &Sides, counts: &mut OfState) {
        counts.out.fill(0.0);
        counts.into.fill(0.0);
        counts.own = 0.0;
        if let Some(j) = state.source {
            for (i, count) in row(&self.shards.by_source, j) {
                if state.target == Some(i) {
                    counts.own = count;
                } else {
                    counts.out[sides.targets[i] as usize] += count;
                }
            }
        }
        if let Some(i) = state.target {
            for (j, count) in row(&self.shards.by_target, i) {
                if state.source != Some(j) {
                    counts.into[sides.sources[j] as usize] += count;
                }
            }
        }
    }
}

/// The non-zeros of a row: column and value.
fn row(shards: &[Csr], row: usize) -> impl Iterator<Item = (usize, f64)> {
    let at = shards.partition_point(|shard| shard.rows().end <= row);
    let shard = &shards[at];
    let span = shard.span(row - shard.first_row);
    span.map(|e| (shard.columns[e] as usize, shard.values.get(e)))
}

/// The gain of entry (k, l) of C if a state joins set b.
#[inline(always)]
fn entry(counts: &OfState, b: usize, k: usize, l: usize) -> f64 {
    let mut gain = 0.0;
    if k == b {
        gain += counts.out[l];
    }
    if l == b {
        gain += counts.into[k];
    }
    if k == b && l == b {
        gain + counts.own
    } else {
        gain
    }
}

/// The entries of C in row or column b.
fn cross(b: usize, rank: usize) -> impl Iterator<Item = (usize, usize)> {
    let row = (0..rank).map(move |l| (b, l));
    row.chain((0..rank).filter(move |&k| k != b).map(move |k| (k, b)))
}

/// Adds the state to set b (`sign` 1) or removes it (−1).
fn shift(table: &mut Table, terms: &mut [f64], counts: &OfState, b: usize, sign: f64) {
    let rank = table.rank;
    for (k, l) in cross(b, rank) {
        let change = entry(counts, b, k, l);
        if change > 0.0 {
            let at = k * rank + l;
            table.counts[at] = (table.counts[at] + sign * change).max(0.0);
            terms[at] = x_log_x(table.counts[at]);
        }
    }
    let (out, into) = weights(counts);
    table.row_totals[b] = (table.row_totals[b] + sign * out).max(0.0);
    table.column_totals[b] = (table.column_totals[b] + sign * into).max(0.0);
}

/// The total of a state as a source, and as a target.
fn weights(counts: &OfState) -> (f64, f64) {
    let sum = |x: &[f64]| x.iter().sum::<f64>();
    (
        sum(&counts.out) + counts.own,
        sum(&counts.into) + counts.own,
    )
}

/// The gain of S I if a state without a set joins set b. The totals of rows count the transitions
/// of their sources, whether or not the state has a set as a target, and those of columns likewise.
fn gain(table: &Table, terms: &[f64], counts: &OfState, b: usize) -> f64 {
    let rank = table.rank;
    let mut gain = 0.0;
    for (k, l) in cross(b, rank) {
        let change = entry(counts, b, k, l);
        if change > 0.0 {
            let at = k * rank + l;
            gain += x_log_x(table.counts[at] + change) - terms[at];
        }
    }
    let (out, into) = weights(counts);
    let margin = |total: f64, change: f64| x_log_x(total + change) - x_log_x(total);
    gain - margin(table.row_totals[b], out) - margin(table.column_totals[b], into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense;
    use crate::evidence::pass::Passes;
    use crate::math::testing::on_threads;
    use proptest::prelude::*;

    /// Shards of dense counts `rows[j][i]` from source j to target i.
    fn shards(rows: &[Vec<u32>], shard_nnz: usize) -> Shards {
        let rows = rows
            .iter()
            .map(|row| row.iter().map(|&v| f64::from(v)).collect());
        dense(&rows.collect::<Vec<_>>(), false, shard_nnz)
    }

    fn params(rank: usize, restarts: usize) -> Cocluster {
        Cocluster {
            restarts,
            ..Cocluster::new(rank)
        }
    }

    fn square(n: usize) -> Vec<Option<u32>> {
        (0..n as u32).map(Some).collect()
    }

    fn local(rows: &[Vec<u32>], map: &[Option<u32>], rank: usize, seed: u64) -> Partitions {
        fit(
            &Passes::local(),
            &shards(rows, 4),
            map,
            &params(rank, 10),
            seed,
        )
    }

    // States {0, 1} and {2, 3}: 4 counts each way inside and from a state to itself, one count from
    // 1 to 2 and one back. C = [[16, 1], [1, 16]]: I = 32/34 log (16 · 34 / 17²) + 2/34 log (34 /
    // 17²).
    #[test]
    fn two_pairs_by_hand() {
        let rows = [[4, 4, 0, 0], [4, 4, 1, 0], [0, 1, 4, 4], [0, 0, 4, 4]];
        let rows: Vec<Vec<u32>> = rows.iter().map(|r| r.to_vec()).collect();
        let found = local(&rows, &square(4), 2, 1);
        let e = &found.sources;
        assert!(e[0] == e[1] && e[2] == e[3] && e[0] != e[2]);
        assert_eq!(found.targets, found.sources);
        let by_hand = 32.0 / 34.0 * (16.0 * 34.0 / 289f64).ln() + 2.0 / 34.0 * (34.0 / 289f64).ln();
        assert!((found.restarts[found.best].objective - by_hand).abs() < 1e-14);
    }

    #[test]
    fn a_state_on_one_side_only() {
        // Source 0 is no target, and target 0 is no source. The other sources are targets by a map
        // that is not the identity: sources 1, 2 stay among targets 1, 2; sources 3, 4 among
        // targets 3, 4. Source 0 goes to 1, 2, and 3, 4 go to target 0.
        let rows = vec![
            vec![0, 5, 5, 0, 0],
            vec![0, 6, 5, 0, 0],
            vec![0, 5, 6, 0, 0],
            vec![3, 0, 0, 6, 5],
            vec![3, 0, 0, 5, 6],
        ];
        let map = [None, Some(1), Some(2), Some(3), Some(4)];
        let found = local(&rows, &map, 2, 2);
        let (one, two) = (found.sources[0], found.sources[3]);
        assert_ne!(one, two);
        assert_eq!(found.sources, [one, one, one, two, two]);
        assert_eq!(found.targets, [two, one, one, two, two]);
    }

    #[test]
    fn a_cycle_is_found_and_is_not_metastable() {
        // Three groups of five that follow each other.
        let rows: Vec<Vec<u32>> = (0..15)
            .map(|j| {
                (0..15)
                    .map(|i| if i / 5 == (j / 5 + 1) % 3 { 3 } else { 0 })
                    .collect()
            })
            .collect();
        let found = local(&rows, &square(15), 3, 1);
        assert!((found.restarts[found.best].objective - 3f64.ln()).abs() < 1e-14);
        assert!((0..15).all(|j| found.sources[j] != found.targets[(j + 5) % 15]));
    }

    /// I of one partition on both sides, by its definition.
    fn information(rows: &[Vec<u32>], sources: &[u32], targets: &[u32], rank: usize) -> f64 {
        let mut counts = vec![0.0; rank * rank];
        for (row, &k) in rows.iter().zip(sources) {
            for (&v, &l) in row.iter().zip(targets) {
                counts[k as usize * rank + l as usize] += f64::from(v);
            }
        }
        Table::of(counts, rank).information()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_move_and_no_step_back(
            (rows, alone) in (2usize..10).prop_flat_map(|n| {
                let entry = prop_oneof![2 => Just(0u32), 2 => 1..9u32];
                let dense = prop::collection::vec(prop::collection::vec(entry, n), n);
                (dense, 0..n).prop_map(|(mut rows, alone)| {
                    for (j, row) in rows.iter_mut().enumerate() {
                        row[j] += 1;
                    }
                    (rows, alone)
                })
            }),
            rank in 1usize..4,
            seed: u64,
        ) {
            let n = rows.len();
            let rank = rank.min(n);
            // All states but one are on both sides, and that one is two states.
            let map: Vec<Option<u32>> = (0..n).map(|j| (j != alone).then_some(j as u32)).collect();
            let run = |threads, shard_nnz| {
                let s = shards(&rows, shard_nnz);
                on_threads(threads, || fit(&Passes::local(), &s, &map, &params(rank, 3), seed))
            };
            let found = run(1, usize::MAX);
            prop_assert_eq!(&found, &run(3, 4));
            let reached = information(&rows, &found.sources, &found.targets, rank);
            prop_assert!((reached - found.restarts[found.best].objective).abs() < 1e-13);
            prop_assert!(found.restarts.iter().all(|r| r.converged));
            for pair in found.trace.windows(2) {
                prop_assert!(pair[1] >= pair[0] - 1e-13, "{:?}", found.trace);
            }
            for x in 0..n {
                prop_assert!(x == alone || found.sources[x] == found.targets[x]);
                for k in 0..rank as u32 {
                    let (mut a, mut b) = (found.sources.clone(), found.targets.clone());
                    a[x] = k;
                    if x != alone {
                        b[x] = k;
                    }
                    prop_assert!(information(&rows, &a, &b, rank) <= reached + 1e-12);
                }
            }
        }
    }
}
