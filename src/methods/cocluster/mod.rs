//! Information-theoretic co-clustering (Dhillon, Mallela & Modha, KDD 2003): counts → a partition
//! of the sources and a partition of the targets at once. This makes DBMR symmetric, the open
//! question of the coherence paper.
//!
//! In: N, m targets × n sources, and a rank r. Out: r sets E of the sources and r sets F of the
//! targets, with a large mutual information I of the coarse joint distribution C_kl / S, where
//! C_kl = Σ N_ij over E_k and F_l:
//!
//! S I = Σ_kl C_kl log C_kl − Σ_k C_k· log C_k· − Σ_l C_·l log C_·l + S log S.
//!
//! I(X; Y) − I is the Kullback–Leibler divergence between N / S and the model
//! C_kl / S · p_j / Pr(E_k) · q_i / Pr(F_l). Compared with DBMR, this model also says that the
//! targets of one set have fixed proportions.
//!
//! For fixed sets of the targets, sources are columns of DBMR with r sums each, A_jl = Σ_{i ∈ F_l}
//! N_ij. So a restart alternates. One pass over the counts gives A. The sources move to their most
//! likely sets until nothing changes, and then one after another to the set with the largest gain
//! (Hartigan), which fills empty sets if that helps. Then the targets do the same. I never falls.
//!
//! The first restart begins with the partition of DBMR, so the result has at least its I. A random
//! partition into r sets hardly differs from its average, so its result is random too. Therefore
//! every other restart begins with four times as many sets, improves them roughly, and merges the
//! pairs that lose the least information. Sometimes a random partition still ends higher, so the
//! remaining restarts begin with one.
//!
//! Sums of integer counts are exact, all other sums have a fixed order, and restarts are
//! independent: the result depends on neither threads nor shards.

pub mod joint;
pub mod metastable;

use crate::error::Result;
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::kernel::Sharded;
use crate::math::matrix::first_largest;
use crate::math::seed::restart_seed;
use crate::methods::cocluster::joint::{Table, merge, x_log_x};
use crate::methods::columns::StateColumn;
use crate::methods::dbmr::{self, params};
use crate::methods::estimator::{
    Estimator, Fault, Needs, Parameters, at_least_one, defaults, ranked,
};
use crate::methods::fit::{Fit, How, Restart};
use crate::methods::low_rank::columns::SETS;
use crate::methods::low_rank::factors::{Factors, of_partition};
use crate::methods::low_rank::model::LowRank;
use crate::methods::low_rank::{canonical, check_rank, projection};
use crate::methods::spectral::svd;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The number of sets of a random beginning, divided by r.
const MORE: usize = 4;

/// The effort of a restart.
struct Effort {
    /// Alternations between the two sides.
    alternations: usize,
    /// Rounds over the states of one side per alternation, of all states at once and of one state
    /// after another.
    rounds: usize,
}

/// Before sets are merged.
const ROUGH: Effort = Effort {
    alternations: 3,
    rounds: 2,
};

/// Co-clustering: the sets of sources and of targets with the largest mutual information.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cocluster {
    /// The number of sets on each side, or a list of numbers to fit one by one.
    pub rank: usize,
    /// The number of independent starts, of which the best is kept. The first one begins with the
    /// sets of `dbmr`, the others with random sets.
    #[serde(default = "Cocluster::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// The number of rounds over both sides after which a start that has not converged is stopped.
    #[serde(default = "Cocluster::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

defaults! { pub Cocluster(rank: usize) {
    restarts: usize = 10,
    max_iterations: usize = 1000,
} }

/// Why passes alone do not suffice.
pub(crate) const WHOLE_MATRIX: &str = "its method moves single states";

impl Parameters for Cocluster {
    const NAME: &'static str = "cocluster";

    fn check(&self) -> std::result::Result<(), Fault> {
        at_least_one(&[
            ("restarts", self.restarts),
            ("max_iterations", self.max_iterations),
        ])
    }

    ranked!();

    fn describe(&self, rank: &str) -> String {
        format!(
            "co-clustering of both sides, {rank}, {} restarts",
            self.restarts
        )
    }
}

impl Estimator for Cocluster {
    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn needs(&self) -> Needs<'_> {
        Needs {
            whole_matrix: Some(WHOLE_MATRIX),
            ..Needs::default()
        }
    }

    fn columns(&self) -> &'static [StateColumn] {
        SETS
    }

    /// For every restart that runs in parallel, one factor of each side.
    fn bytes(&self, size: Size, threads: u64) -> u64 {
        let factors = (size.factor(size.targets, self.rank))
            .saturating_add(size.factor(size.sources, self.rank));
        threads.min(self.restarts as u64).saturating_mul(factors)
    }

    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        let shards = &*counts.shards;
        check_rank(self.rank, shards)?;
        passes.step("partition");
        let found = fit(passes, shards, self, seed);
        let affiliation = canonical(&found.sources, self.rank, shards);
        let targets = |factors: &Factors| svd::match_targets(factors, &found.targets);
        let model = projection(passes, shards, affiliation, self.rank, targets);
        Ok(found.into_fit(model, seed))
    }
}

impl Partitions {
    /// The fit with the model of these partitions.
    pub(crate) fn into_fit(self, model: LowRank, seed: u64) -> Fit {
        let best = &self.restarts[self.best];
        let how = How {
            seed,
            iterations: best.iterations,
            converged: best.converged,
            best_restart: self.best,
            trace: self.trace,
            restarts: self.restarts,
        };
        Fit { how, model }
    }
}

/// Sets of both sides, numbered independently.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Partitions {
    /// The set of every source, n values.
    pub sources: Vec<u32>,
    /// The set of every target, m values.
    pub targets: Vec<u32>,
    /// All restarts, in order.
    pub restarts: Vec<Restart>,
    /// The restart with the largest I, the first one on ties.
    pub best: usize,
    /// I of the best restart after each of its iterations, nats.
    pub trace: Vec<f64>,
}

/// Fits `params.restarts` pairs of partitions and keeps the best.
pub(crate) fn fit(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Cocluster,
    seed: u64,
) -> Partitions {
    search(passes, shards, params, None, seed, |sources| {
        climb(passes, shards, params, sources)
    })
}

/// The result of a restart.
#[derive(Serialize, Deserialize)]
pub(crate) struct Climbed {
    /// The set of every source, n values.
    pub sources: Vec<u32>,
    /// The set of every target, m values.
    pub targets: Vec<u32>,
    /// I after each iteration; there is at least one.
    pub trace: Vec<f64>,
    /// Whether no move is left.
    pub converged: bool,
}

/// The best of all restarts. `climb` continues from a partition of the sources. The second restart
/// begins with `cycle`, if there is one.
pub(crate) fn search(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Cocluster,
    cycle: Option<Vec<u32>>,
    seed: u64,
    climb: impl Fn(Vec<u32>) -> Climbed + Sync,
) -> Partitions {
    let rank = params.rank;
    assert!(rank > 0, "a partition needs a set");
    assert!(params.restarts > 0, "a fit needs a restart");
    let ended: Vec<(Restart, Climbed)> = (0..params.restarts)
        .into_par_iter()
        .map(|t| {
            passes.piece(&format!("restart-{t}"), |passes| {
                let seed = restart_seed(seed, t);
                let (init, start) = match (t, &cycle) {
                    (0, _) => {
                        let params = params::Dbmr::new(rank);
                        ("dbmr", dbmr::fit(passes, shards, &params, seed).affiliation)
                    }
                    (1, Some(cycle)) => ("gpcca", cycle.clone()),
                    _ => {
                        let sets = if t % 2 == 1 { MORE * rank } else { rank };
                        ("random", random_start(passes, shards, rank, sets, seed))
                    }
                };
                let end = climb(start);
                let mut is_empty = vec![true; rank];
                end.sources
                    .iter()
                    .for_each(|&k| is_empty[k as usize] = false);
                let restart = Restart {
                    seed,
                    init: Some(init.into()),
                    sources: shards.n_sources,
                    iterations: end.trace.len(),
                    evaluations: None,
                    objective: end.trace.last().copied().unwrap_or(0.0),
                    empty_states: is_empty.into_iter().filter(|empty| *empty).count(),
                    converged: end.converged,
                };
                (restart, end)
            })
        })
        .collect();
    let (restarts, mut ends): (Vec<Restart>, Vec<Climbed>) = ended.into_iter().unzip();
    let best = first_largest(restarts.iter().map(|restart| restart.objective));
    let Climbed {
        sources,
        targets,
        trace,
        ..
    } = ends.swap_remove(best);
    Partitions {
        sources,
        targets,
        restarts,
        best,
        trace,
    }
}

/// A random beginning. Random partitions of both sides into `sets` sets are improved a little.
/// While there are too many sets, the pair that loses the least information is merged, on one side
/// and the other in turn.
fn random_start(
    passes: &Passes<'_>,
    shards: &Shards,
    rank: usize,
    sets: usize,
    seed: u64,
) -> Vec<u32> {
    let fine = sets.min(shards.n_sources).min(shards.n_targets).max(rank);
    let mut random = Pcg64::seed_from_u64(seed);
    let mut sources: Vec<u32> = (0..shards.n_sources)
        .map(|_| random.random_range(0..fine as u32))
        .collect();
    let mut targets = first_targets(passes, shards, &sources, fine);
    alternate(passes, shards, fine, &ROUGH, &mut sources, &mut targets);
    let rows = gather(passes, shards.sources(), &targets, fine, shards.n_sources);
    let merged = merge(Table::new(&rows, &sources, fine).counts, fine, rank);
    sources.iter_mut().for_each(|k| *k = merged[*k as usize]);
    sources
}

fn climb(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Cocluster,
    mut sources: Vec<u32>,
) -> Climbed {
    let mut targets = first_targets(passes, shards, &sources, params.rank);
    let effort = Effort {
        alternations: params.max_iterations,
        rounds: params.max_iterations,
    };
    let (trace, converged) = alternate(
        passes,
        shards,
        params.rank,
        &effort,
        &mut sources,
        &mut targets,
    );
    Climbed {
        sources,
        targets,
        trace,
        converged,
    }
}

/// Improves the two sides in turn until neither changes. Returns I after each turn, and whether the
/// restart converged.
fn alternate(
    passes: &Passes<'_>,
    shards: &Shards,
    rank: usize,
    effort: &Effort,
    sources: &mut [u32],
    targets: &mut [u32],
) -> (Vec<f64>, bool) {
    let mut trace = Vec::new();
    for _ in 0..effort.alternations {
        let rows = gather(passes, shards.sources(), targets, rank, shards.n_sources);
        let (sources_moved, _) = improve(&rows, sources, rank, effort.rounds);
        let rows = gather(passes, shards.targets(), sources, rank, shards.n_targets);
        let (targets_moved, table) = improve(&rows, targets, rank, effort.rounds);
        trace.push(table.information());
        if !(targets_moved || sources_moved) {
            return (trace, true);
        }
    }
    (trace, false)
}

/// The set with the largest probability of each target (coherence (11)).
pub(crate) fn first_targets(
    passes: &Passes<'_>,
    shards: &Shards,
    sources: &[u32],
    rank: usize,
) -> Vec<u32> {
    of_partition(passes, shards, sources.to_vec(), rank).target_sets()
}

/// Sums of the counts of every row over the sets of the other side, rows × r.
pub(crate) fn gather(
    passes: &Passes<'_>,
    over: Sharded<'_, Csr>,
    labels: &[u32],
    rank: usize,
    n_rows: usize,
) -> Vec<f64> {
    let mut rows = vec![0.0; n_rows * rank];
    let affiliation = Cow::from(labels);
    passes.rows(over, &Gather { affiliation, rank }, &mut rows);
    rows
}

/// Moves rows (n × r sums over the sets of columns) between sets until no single move increases I.
/// Returns whether any row moved, and the table.
fn improve(rows: &[f64], labels: &mut [u32], rank: usize, rounds: usize) -> (bool, Table) {
    let mut table = Table::new(rows, labels, rank);
    let least = table.no_gain();
    let mut any = false;
    // All rows at once, to their most likely sets, while I increases.
    for _ in 0..rounds {
        let next = likeliest(rows, labels, &table);
        let moved = Table::new(rows, &next, rank);
        if moved.score() <= table.score() + least {
            break;
        }
        labels.copy_from_slice(&next);
        (table, any) = (moved, true);
    }
    // One row after another. Losses and gains are exact, so a set has its value after the move.
    for _ in 0..rounds {
        if !sweep(rows, labels, &mut table, least) {
            break;
        }
        any = true;
    }
    // Sums of weights that change by moves collect rounding errors.
    (any, Table::new(rows, labels, rank))
}

/// argmax_k Σ_l A_jl log (C_kl / C_k·), the present set on ties, otherwise the lowest.
fn likeliest(rows: &[f64], labels: &[u32], table: &Table) -> Vec<u32> {
    let rank = table.rank;
    let logs: Vec<f64> = table.conditional().iter().map(|p| p.ln()).collect();
    rows.par_chunks(rank)
        .zip(labels)
        .map(|(row, &label)| {
            let score = |k: usize| -> f64 {
                let terms = row.iter().zip(&logs[k * rank..]);
                let terms = terms.filter(|(x, _)| **x > 0.0);
                terms.map(|(x, log)| x * log).sum()
            };
            let mut best = (label, score(label as usize));
            for k in (0..rank).filter(|&k| table.row_totals[k] > 0.0) {
                let score = score(k);
                if score > best.1 {
                    best = (k as u32, score);
                }
            }
            best.0
        })
        .collect()
}

/// Moves every row, in order, to the set with the largest gain of S I. Returns whether any row
/// moved.
fn sweep(rows: &[f64], labels: &mut [u32], table: &mut Table, least: f64) -> bool {
    let rank = table.rank;
    // x log x of every entry of C and its row totals.
    let mut terms: Vec<f64> = table.counts.iter().map(|&c| x_log_x(c)).collect();
    let mut total_terms: Vec<f64> = table.row_totals.iter().map(|&c| x_log_x(c)).collect();
    let mut any = false;
    for (row, label) in rows.chunks_exact(rank).zip(labels) {
        let own = *label as usize;
        let weight: f64 = row.iter().sum();
        // The change of the value of set k if it gets `sign` times the row.
        let change = |k: usize, sign: f64| {
            let with = |c: f64, x: f64| x_log_x((c + sign * x).max(0.0));
            let mut change = total_terms[k] - with(table.row_totals[k], weight);
            let entries = table.counts[k * rank..].iter().zip(&terms[k * rank..]);
            for ((&c, term), &x) in entries.zip(row).filter(|(_, x)| **x > 0.0) {
                change += with(c, x) - term;
            }
            change
        };
        let loss = change(own, -1.0);
        let mut best = (own, least);
        for k in (0..rank).filter(|&k| k != own) {
            let gain = change(k, 1.0) + loss;
            if gain > best.1 {
                best = (k, gain);
            }
        }
        if best.0 == own {
            continue;
        }
        any = true;
        *label = best.0 as u32;
        for (k, sign) in [(own, -1.0), (best.0, 1.0)] {
            let count = |c: &mut f64, x: f64| *c = (*c + sign * x).max(0.0);
            count(&mut table.row_totals[k], weight);
            total_terms[k] = x_log_x(table.row_totals[k]);
            for (l, &x) in row.iter().enumerate().filter(|(_, x)| **x > 0.0) {
                let at = k * rank + l;
                count(&mut table.counts[at], x);
                terms[at] = x_log_x(table.counts[at]);
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::dense as shards;
    use crate::evidence::pass::Passes;
    use crate::math::testing::on_threads;
    use proptest::prelude::*;

    fn params(rank: usize, restarts: usize) -> Cocluster {
        Cocluster {
            restarts,
            ..Cocluster::new(rank)
        }
    }

    /// I of two partitions, by its definition.
    fn information(columns: &[Vec<f64>], sources: &[u32], targets: &[u32], rank: usize) -> f64 {
        let mut counts = vec![0.0; rank * rank];
        for (column, &k) in columns.iter().zip(sources) {
            for (v, &l) in column.iter().zip(targets) {
                counts[k as usize * rank + l as usize] += v;
            }
        }
        let total: f64 = counts.iter().sum();
        let row = |k: usize| counts[k * rank..][..rank].iter().sum::<f64>();
        let column = |l: usize| counts.iter().skip(l).step_by(rank).sum::<f64>();
        (0..rank * rank)
            .filter(|&at| counts[at] > 0.0)
            .map(|at| {
                let expected = row(at / rank) * column(at % rank) / total;
                counts[at] / total * (counts[at] / expected).ln()
            })
            .sum()
    }

    // Sources 0 and 2 go to targets 1 and 2, three times each except for one 1. Sources 1 and 3 go
    // to targets 0 and 3. C = [[10, 0], [0, 12]] up to names: I = H(10/22).
    #[test]
    fn two_by_two_by_hand() {
        let n: [[f64; 4]; 4] = [
            [0.0, 3.0, 3.0, 0.0],
            [3.0, 0.0, 0.0, 3.0],
            [0.0, 1.0, 3.0, 0.0],
            [3.0, 0.0, 0.0, 3.0],
        ];
        let columns: Vec<Vec<f64>> = n.iter().map(|c| c.to_vec()).collect();
        let fit = fit(
            &Passes::local(),
            &shards(&columns, false, 3),
            &params(2, 5),
            1,
        );
        let (e, f) = (&fit.sources, &fit.targets);
        assert!(e[0] == e[2] && e[1] == e[3] && e[0] != e[1], "{e:?}");
        assert!(f[1] == f[2] && f[0] == f[3] && f[0] != f[1], "{f:?}");
        let (a, b) = (10.0 / 22.0f64, 12.0 / 22.0f64);
        let entropy = -a * a.ln() - b * b.ln();
        assert!((fit.restarts[fit.best].objective - entropy).abs() < 1e-14);
    }

    #[test]
    fn a_set_too_many() {
        // A third set of two kinds of sources cannot increase I.
        let columns: Vec<Vec<f64>> = (0..6)
            .map(|j| {
                (0..4)
                    .map(|i| f64::from(1 + 8 * u32::from(i % 2 == j % 2)))
                    .collect()
            })
            .collect();
        let s = shards(&columns, false, 9);
        let three = fit(&Passes::local(), &s, &params(3, 3), 1);
        let best = &three.restarts[three.best];
        let two = fit(&Passes::local(), &s, &params(2, 3), 1);
        let most = two.restarts[two.best].objective;
        assert!((best.objective - most).abs() < 1e-14);
        let inits = three.restarts.iter().filter_map(|r| r.init.as_deref());
        let inits: Vec<&str> = inits.collect();
        assert!(best.converged && inits == ["dbmr", "random", "random"]);
        let one = fit(&Passes::local(), &s, &params(1, 1), 1);
        assert_eq!(one.restarts[0].objective, 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_move_and_no_step_back(
            (columns, rank, real) in (2usize..12, 2usize..12, 1usize..5, any::<bool>()).prop_flat_map(|(n, m, rank, real)| {
                let entry = prop_oneof![1 => Just(0.0), 2 => (1..9u32).prop_map(f64::from)];
                let dense = prop::collection::vec(prop::collection::vec(entry, m), n);
                dense.prop_map(move |mut columns| {
                    for x in 0..n.max(m) {
                        let v = &mut columns[x % n][x % m];
                        *v = v.max(1.0);
                    }
                    if real {
                        columns.iter_mut().flatten().for_each(|v| *v *= 1e-3);
                    }
                    (columns, rank, real)
                })
            }),
            seed: u64,
        ) {
            let s = shards(&columns, real, 7);
            let rank = rank.min(columns.len());
            let fit = fit(&Passes::local(), &s, &params(rank, 3), seed);
            let found = information(&columns, &fit.sources, &fit.targets, rank);
            prop_assert!((found - fit.restarts[fit.best].objective).abs() < 1e-12);
            for pair in fit.trace.windows(2) {
                prop_assert!(pair[1] >= pair[0] - 1e-13, "{:?}", fit.trace);
            }
            prop_assert!(fit.restarts.iter().all(|r| r.converged));
            for side in [0, 1] {
                for at in 0..[columns.len(), columns[0].len()][side] {
                    for k in 0..rank as u32 {
                        let mut labels = [fit.sources.clone(), fit.targets.clone()];
                        labels[side][at] = k;
                        let moved = information(&columns, &labels[0], &labels[1], rank);
                        prop_assert!(moved <= found + 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn threads_and_shards_change_no_bit() {
        for real in [false, true] {
            let value = |j: usize, i: usize| {
                let hash = restart_seed(9, j * 80 + i) >> 32;
                let near = (j / 20).abs_diff(i / 20) == 1;
                let count = if near { 1 + hash % 9 } else { hash % 8 / 7 };
                let corner = u64::from(j % 80 == i);
                (count + corner) as f64 * if real { 0.3 } else { 1.0 }
            };
            let columns: Vec<Vec<f64>> = (0..100)
                .map(|j| (0..80).map(|i| value(j, i)).collect())
                .collect();
            let run = |threads, shard_nnz| {
                let s = shards(&columns, real, shard_nnz);
                on_threads(threads, || fit(&Passes::local(), &s, &params(4, 6), 3))
            };
            let one = run(1, usize::MAX);
            assert_eq!(one, run(5, 200));
            assert_eq!(one, run(5, usize::MAX));
        }
    }
}
