//! Counts → a partition of the sources into latent states: direct Bayesian model reduction (coherence, Algorithm 2).
//!
//! In: N, m targets × n sources, and a rank r. Out: the affiliation γ(j) in 0..r of every source that has the largest relaxed likelihood
//! (14), ℓ̂ = Σ_ij N_ij log λ_{i γ(j)}, among all restarts. A restart begins with independent uniform affiliations and alternates
//! λ_ik = C_ik / C_·k with C_ik = Σ_{γ(j)=k} N_ij (15) and γ(j) = argmax_k Σ_i N_ij log λ_ik, the lowest k on ties (16), until nothing changes.
//! In terms of the cluster sums, ℓ̂ = Σ_ik C_ik log C_ik − Σ_k C_·k log C_·k, and it never decreases.
//!
//! Restarts run side by side, and each pass of a restart in parallel over the shards where threads are left. The result depends on
//! neither: sums of integer counts are exact in any order, sums of weights are added in ascending order, and (16) is decided by exact
//! scores (`math::kl`).

use crate::math::csr::{Csr, Values};
use crate::math::kl::{self, Column, Lambda, Logarithm};
use crate::runner::Runner;
use crate::shard::Shards;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that the λ of restarts side by side may take, in bytes.
const LAMBDA_BYTES: usize = 256 << 20;

/// It pays to follow what a change of λ does to the reserves of the columns while it reaches fewer than one in so many non-zeros.
const FEW: usize = 2;

#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Latent states r.
    pub rank: usize,
    /// Independent random beginnings; the best is kept.
    pub restarts: usize,
    pub max_iterations: usize,
    /// A restart stops when ℓ̂ grows by no more than this fraction of |ℓ̂|; 0: when it stops growing.
    pub tolerance: f64,
}

/// How one restart went.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// `fit` with this seed and a single restart repeats it.
    pub seed: u64,
    /// Updates of γ, with the last that changed nothing.
    pub iterations: usize,
    /// ℓ̂ at the end, in nats.
    pub log_likelihood: f64,
    /// Latent states without sources at the end.
    pub empty_states: usize,
    /// Whether it stopped by itself, before `max_iterations`.
    pub converged: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// γ(j) of the best restart, n values.
    pub affiliation: Vec<u32>,
    pub restarts: Vec<Restart>,
    /// The restart with the largest ℓ̂, the first such on ties.
    pub best: usize,
    /// ℓ̂ of the best restart after each of its iterations.
    pub trace: Vec<f64>,
}

/// Fits `params.restarts` affiliations and keeps the best.
pub fn fit<R: Runner>(runner: &R, shards: &Shards, params: &Params, seed: u64) -> Partition {
    assert!(params.rank > 0, "a partition needs a latent state");
    assert!(params.restarts > 0, "a fit needs a restart");
    let problem = Problem {
        runner,
        shards,
        params,
        seed,
        log: Logarithm::new(&shards.target_total, smallest(shards), shards.is_integral()),
        nnz: shards.nnz(),
        next: AtomicUsize::new(0),
    };

    let side_by_side = (LAMBDA_BYTES / Lambda::bytes(shards.n_targets, params.rank))
        .min(rayon::current_num_threads())
        .clamp(1, params.restarts);
    let ended: Vec<Vec<Ended>> = (0..side_by_side)
        .into_par_iter()
        .map(|_| problem.run())
        .collect();

    let mut ended: Vec<Ended> = ended.into_iter().flatten().collect();
    ended.sort_by_key(|e| e.index);
    let mut best = 0;
    for (t, e) in ended.iter().enumerate() {
        if e.restart.log_likelihood > ended[best].restart.log_likelihood {
            best = t;
        }
    }
    Partition {
        affiliation: std::mem::take(&mut ended[best].affiliation),
        trace: std::mem::take(&mut ended[best].trace),
        restarts: ended.into_iter().map(|e| e.restart).collect(),
        best,
    }
}

/// What all restarts of a fit share.
struct Problem<'a, R> {
    runner: &'a R,
    shards: &'a Shards,
    params: &'a Params,
    seed: u64,
    log: Logarithm,
    nnz: usize,
    /// The restart to begin next.
    next: AtomicUsize,
}

/// A bound that no count is below.
fn smallest(shards: &Shards) -> f64 {
    let of_shard = |csr: &Csr| match &csr.values {
        Values::Real(values) => values.iter().fold(f64::INFINITY, |a, &b| a.min(b)),
        _ => 1.0,
    };
    let all = shards.by_source.iter().map(of_shard);
    all.fold(f64::INFINITY, f64::min)
}

/// A restart under way. Its memory serves the restarts after it.
struct Slot {
    affiliation: Vec<u32>,
    columns: Vec<Column>,
    /// What the reserves of the columns of each state have lost per count since all columns were looked at, r values.
    drift: Vec<f64>,
    /// The sources that moved in the last sweep and whence they came.
    moved: Vec<(u32, u32)>,
    lambda: Lambda,
    log_likelihood: f64,
    trace: Vec<f64>,
}

/// A restart that ended. Only one that may be the best of all keeps its affiliation and trace.
struct Ended {
    index: usize,
    restart: Restart,
    affiliation: Vec<u32>,
    trace: Vec<f64>,
}

impl Slot {
    /// Makes the next sweep look at all columns.
    fn look_at_all(&mut self) {
        for column in &mut self.columns {
            column.reserve = f64::NEG_INFINITY;
        }
        self.drift.fill(0.0);
    }
}

impl<R: Runner> Problem<'_, R> {
    /// Runs one restart after another until none is left.
    fn run(&self) -> Vec<Ended> {
        let n = self.shards.n_sources;
        let unknown = Column {
            state: 0,
            reserve: f64::NEG_INFINITY,
        };
        let mut slot = Slot {
            affiliation: vec![0; n],
            columns: vec![unknown; n],
            drift: vec![0.0; self.params.rank],
            moved: Vec::new(),
            lambda: Lambda::new(self.shards.n_targets, self.params.rank),
            log_likelihood: 0.0,
            trace: Vec::new(),
        };
        let mut ended = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.params.restarts {
                return ended;
            }
            self.begin(&mut slot, index);
            let mut converged = false;
            while !converged && slot.trace.len() < self.params.max_iterations {
                converged = self.iterate(&mut slot);
            }
            self.end(&slot, index, converged, &mut ended);
        }
    }

    /// Draws the first affiliation and makes its λ.
    fn begin(&self, slot: &mut Slot, index: usize) {
        let mut rng = Pcg64::seed_from_u64(super::restart_seed(self.seed, index));
        for (k, column) in slot.affiliation.iter_mut().zip(&mut slot.columns) {
            *k = rng.random_range(0..self.params.rank as u32);
            column.state = *k;
        }
        slot.trace.clear();
        self.gather(slot);
        (slot.log_likelihood, _) = slot.lambda.refresh(&self.log);
        slot.look_at_all();
    }

    /// One update of γ (16) and of λ (15). Returns whether the restart has converged.
    fn iterate(&self, slot: &mut Slot) -> bool {
        let (lambda, drift) = (&slot.lambda, &slot.drift);
        self.runner.rows(
            &self.shards.by_source,
            1,
            &mut slot.columns,
            |csr, columns| kl::assign(csr, &self.shards.source_total, lambda, drift, columns),
        );
        slot.moved.clear();
        for (j, (k, column)) in slot.affiliation.iter_mut().zip(&slot.columns).enumerate() {
            if *k != column.state {
                slot.moved.push((j as u32, *k));
                *k = column.state;
            }
        }

        // A move touches two sums a non-zero, at random: beyond a share of the columns, adding up anew is quicker.
        if self.shards.is_integral() && slot.moved.len() < self.shards.n_sources / 8 {
            self.shift(slot);
        } else {
            self.gather(slot);
        }
        let before = slot.log_likelihood;
        let drift;
        (slot.log_likelihood, drift) = slot.lambda.refresh(&self.log);
        slot.trace.push(slot.log_likelihood);
        // Without a gain λ is the same, as (15) is the only maximiser, and so is every γ to come; what still moves is rounding.
        if slot.moved.is_empty()
            || slot.log_likelihood - before <= self.params.tolerance * before.abs()
        {
            return true;
        }

        let by_target = &self.shards.by_target;
        let reach = by_target.iter().map(|csr| kl::reach(csr, &slot.lambda));
        if self.shards.is_integral() && FEW * reach.sum::<usize>() < self.nnz {
            for csr in by_target {
                kl::spread(csr, &slot.lambda, &mut slot.columns);
            }
            for (all, drift) in slot.drift.iter_mut().zip(&drift) {
                *all += drift;
            }
        } else {
            slot.look_at_all();
        }
        false
    }

    /// Takes the moved columns (ascending) from one sum to the other.
    fn shift(&self, slot: &mut Slot) {
        let mut moved = slot.moved.iter().peekable();
        for csr in &self.shards.by_source {
            while let Some((j, from)) = moved.next_if(|(j, _)| (*j as usize) < csr.rows().end) {
                let to = slot.affiliation[*j as usize];
                let l = *j as usize - csr.first_row;
                slot.lambda.shift(csr, l, *from, to);
            }
        }
    }

    /// Adds up all of C anew, in ascending order of the sources.
    fn gather(&self, slot: &mut Slot) {
        let (affiliation, rank) = (&slot.affiliation, self.params.rank);
        self.runner.rows(
            &self.shards.by_target,
            rank,
            slot.lambda.renew(),
            |csr, sums| kl::gather(csr, affiliation, rank, sums),
        );
        slot.lambda
            .renew_totals(affiliation, &self.shards.source_total);
    }

    /// Records a restart that stopped. Of those recorded, the best alone keeps its affiliation.
    fn end(&self, slot: &Slot, index: usize, converged: bool, ended: &mut Vec<Ended>) {
        let totals = slot.lambda.totals();
        let mut new = Ended {
            index,
            restart: Restart {
                seed: super::restart_seed(self.seed, index),
                iterations: slot.trace.len(),
                log_likelihood: slot.log_likelihood,
                empty_states: totals.iter().filter(|&&c| c == 0.0).count(),
                converged,
            },
            affiliation: Vec::new(),
            trace: Vec::new(),
        };
        let best = ended.iter_mut().find(|e| !e.affiliation.is_empty());
        let is_better = best.as_ref().is_none_or(|best| {
            let (a, b) = (slot.log_likelihood, best.restart.log_likelihood);
            a > b || a == b && index < best.index
        });
        if is_better {
            (new.affiliation, new.trace) = match best {
                Some(old) => (
                    std::mem::take(&mut old.affiliation),
                    std::mem::take(&mut old.trace),
                ),
                None => Default::default(),
            };
            new.affiliation.clone_from(&slot.affiliation);
            new.trace.clone_from(&slot.trace);
        }
        ended.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Local;
    use proptest::prelude::*;

    fn params(rank: usize, restarts: usize) -> Params {
        Params {
            rank,
            restarts,
            max_iterations: 300,
            tolerance: 0.0,
        }
    }

    /// Shards of a dense matrix given by columns, `columns[j][i]` = N_ij.
    fn shards(columns: &[Vec<f64>], real: bool, shard_nnz: usize) -> Shards {
        let (mut sources, mut targets, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (j, column) in columns.iter().enumerate() {
            for (i, &v) in column.iter().enumerate().filter(|(_, v)| **v > 0.0) {
                sources.push(j as u32);
                targets.push(i as u32);
                values.push(v);
            }
        }
        let values = if real {
            Values::Real(values)
        } else {
            Values::Count(values.iter().map(|&v| v as u32).collect())
        };
        let (n, m) = (columns.len(), columns[0].len());
        Shards::new(n, m, &sources, &targets, values, shard_nnz)
    }

    /// Algorithm 2 as it is written: affiliation and ℓ̂ after every iteration.
    fn plain(columns: &[Vec<f64>], rank: usize, seed: u64) -> (Vec<u32>, Vec<f64>) {
        let (n, m) = (columns.len(), columns[0].len());
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut gamma: Vec<u32> = (0..n).map(|_| rng.random_range(0..rank as u32)).collect();
        let update = |gamma: &[u32]| {
            let mut c = vec![vec![0.0; rank]; m];
            let mut total = vec![0.0; rank];
            for (column, &k) in columns.iter().zip(gamma) {
                for i in 0..m {
                    c[i][k as usize] += column[i];
                }
                total[k as usize] += column.iter().sum::<f64>();
            }
            let x_log_x = |x: &f64| if *x > 0.0 { x * x.ln() } else { 0.0 };
            let rows: f64 = c.iter().map(|r| r.iter().map(x_log_x).sum::<f64>()).sum();
            let log_likelihood = rows - total.iter().map(x_log_x).sum::<f64>();
            (c, total, log_likelihood)
        };
        let (mut c, mut total, mut log_likelihood) = update(&gamma);
        let mut trace = Vec::new();
        loop {
            let best = |column: &Vec<f64>, present: u32| {
                let mut best = (present, f64::NEG_INFINITY);
                for k in 0..rank {
                    let score: f64 = (0..m)
                        .filter(|&i| column[i] > 0.0)
                        .map(|i| column[i] * (c[i][k] / total[k]).ln())
                        .sum();
                    if score > best.1 {
                        best = (k as u32, score);
                    }
                }
                best.0
            };
            let next: Vec<u32> = columns
                .iter()
                .zip(&gamma)
                .map(|(x, &k)| best(x, k))
                .collect();
            let before = (log_likelihood, std::mem::replace(&mut gamma, next));
            (c, total, log_likelihood) = update(&gamma);
            trace.push(log_likelihood);
            if before.1 == gamma || log_likelihood <= before.0 {
                return (gamma, trace);
            }
        }
    }

    fn check_against_plain(columns: &[Vec<f64>], rank: usize, seed: u64, real: bool) {
        let s = shards(columns, real, 20);
        let fit = fit(&Local, &s, &params(rank, 3), seed);
        for (t, restart) in fit.restarts.iter().enumerate() {
            let (gamma, trace) = plain(columns, rank, restart.seed);
            assert_eq!(restart.iterations, trace.len());
            assert_eq!(
                restart.log_likelihood.to_bits(),
                trace[trace.len() - 1].to_bits()
            );
            let used = (0..rank as u32).filter(|k| gamma.contains(k)).count();
            assert_eq!(restart.empty_states, rank - used);
            assert!(restart.converged);
            if t == fit.best {
                assert_eq!((&fit.affiliation, &fit.trace), (&gamma, &trace));
            }
        }
        // The two sums of ℓ̂ cancel: its rounding is that of S.
        for pair in fit.trace.windows(2) {
            assert!(pair[1] >= pair[0] - 1e-12 * s.total, "{:?}", fit.trace);
        }
    }

    /// Random sparse columns in which every target occurs.
    fn columns(real: bool) -> impl Strategy<Value = Vec<Vec<f64>>> {
        let value = if real {
            prop_oneof![0.1..9.0f64, (-40.0..40.0f64).prop_map(|e| 10f64.powf(e))].boxed()
        } else {
            prop_oneof![9 => 1..9u32, 1 => 1..=u32::MAX]
                .prop_map(f64::from)
                .boxed()
        };
        (1..14usize, 1..14usize).prop_flat_map(move |(n, m)| {
            let entry = prop_oneof![2 => Just(0.0), 1 => value.clone()];
            let dense = prop::collection::vec(prop::collection::vec(entry, m), n);
            dense.prop_map(move |mut columns| {
                for x in 0..n.max(m) {
                    let v = &mut columns[x % n][x % m];
                    *v = v.max(1.0);
                }
                columns
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_give_the_plain_algorithm(c in columns(false), rank in 1..12usize, seed: u64) {
            check_against_plain(&c, rank, seed, false);
        }

        #[test]
        fn weights_give_the_plain_algorithm(c in columns(true), rank in 1..12usize, seed: u64) {
            check_against_plain(&c, rank, seed, true);
        }
    }

    /// `n` columns of three kinds: of kind g are about `weight` counts of 1 to 4, most of them on the targets i ≡ g (mod 3).
    fn grouped(n: usize, m: usize, weight: usize) -> Vec<Vec<f64>> {
        let mut rng = Pcg64::seed_from_u64(7);
        let mut columns = vec![vec![0.0; m]; n];
        for x in 0..n * weight {
            let (j, i) = (x % n, rng.random_range(0..m));
            let i = if rng.random_range(0..4) == 0 {
                i
            } else {
                i / 3 * 3 + j % 3
            };
            columns[j][i % m] += f64::from(rng.random_range(1..5));
        }
        // Every target must occur.
        for i in 0..m {
            columns[i % n][i] += 1.0;
        }
        columns
    }

    fn scaled(columns: &[Vec<f64>], factor: f64) -> Vec<Vec<f64>> {
        let scale = |column: &Vec<f64>| column.iter().map(|v| v * factor).collect();
        columns.iter().map(scale).collect()
    }

    #[test]
    fn long_columns_and_many_ranks_give_the_plain_algorithm() {
        let columns = grouped(120, 600, 200);
        for rank in [2, 8, 9, 17, 25, 40] {
            check_against_plain(&columns, rank, 3, false);
            check_against_plain(&scaled(&columns, 0.3), rank, 3, true);
        }
    }

    #[test]
    fn reserves_hide_no_move() {
        // Enough columns that late sweeps, in which few of them move, look at some columns only; in sparse ones states come to targets anew.
        for (m, weight, rank) in [(60, 20, 5), (60, 20, 12), (200, 4, 12)] {
            let columns = grouped(1500, m, weight);
            for seed in 0..3 {
                check_against_plain(&columns, rank, seed, false);
            }
        }
    }

    #[test]
    fn threads_and_shards_change_no_bit() {
        for real in [false, true] {
            let columns = scaled(&grouped(60, 60, 20), if real { 0.3 } else { 1.0 });
            let run = |threads, shard_nnz| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                let s = shards(&columns, real, shard_nnz);
                pool.build()
                    .unwrap()
                    .install(|| fit(&Local, &s, &params(4, 13), 5))
            };
            let one = run(1, 1 << 20);
            for (threads, shard_nnz) in [(1, 30), (5, 1 << 20), (5, 30), (5, 300)] {
                assert_eq!(one, run(threads, shard_nnz));
            }
            let alone = fit(
                &Local,
                &shards(&columns, real, 100),
                &params(4, 1),
                one.restarts[one.best].seed,
            );
            assert_eq!(alone.affiliation, one.affiliation);
        }
    }

    #[test]
    fn polzin_example_20_without_perturbation() {
        // Blocks of 25, 25 and 50 states: 8 inside the first two, 2 between them, 5 inside the third (coherence §7).
        let block = |x: usize| if x < 50 { x / 25 } else { 2 };
        let count = [[8.0, 2.0, 0.0], [2.0, 8.0, 0.0], [0.0, 0.0, 5.0]];
        let columns: Vec<Vec<f64>> = (0..100)
            .map(|j| (0..100).map(|i| count[block(i)][block(j)]).collect())
            .collect();
        let s = shards(&columns, false, 1 << 20);
        let three = fit(&Local, &s, &params(3, 100), 0);
        let best = &three.restarts[three.best];
        assert!((best.log_likelihood + 95_391.27).abs() < 0.01);
        assert_eq!(best.empty_states, 0);
        for j in 0..100 {
            let same = (0..100).filter(|&l| three.affiliation[l] == three.affiliation[j]);
            assert!(same.eq((0..100).filter(|&l| block(l) == block(j))));
        }
        // Runs that leave a state empty are of rank 2 and end at its optimum at best.
        let empty: Vec<_> = three
            .restarts
            .iter()
            .filter(|r| r.empty_states == 1)
            .collect();
        assert!(!empty.is_empty() && empty.iter().all(|r| r.log_likelihood < -97_800.5));
        let two = fit(&Local, &s, &params(2, 20), 0);
        assert!((two.restarts[two.best].log_likelihood + 97_800.6).abs() < 0.1);
    }

    #[test]
    fn one_state_takes_all() {
        // N_i· = (3, 1): ℓ̂ = 3 log ¾ + log ¼.
        let s = shards(&[vec![1.0, 1.0], vec![2.0, 0.0]], false, 10);
        let f = fit(&Local, &s, &params(1, 2), 0);
        assert_eq!(f.affiliation, [0, 0]);
        assert_eq!((f.best, f.trace.len()), (0, 1));
        let by_hand = 3.0 * 0.75f64.ln() + 0.25f64.ln();
        assert!((f.restarts[0].log_likelihood - by_hand).abs() < 1e-12);
    }

    #[test]
    fn proportional_columns_meet_in_the_lowest_state() {
        // λ is (1, 2)/3 whatever the columns of a state: every score ties, and one state ends with all.
        let columns: Vec<Vec<f64>> = (1..30)
            .map(|s| vec![f64::from(s), f64::from(2 * s)])
            .collect();
        let f = fit(&Local, &shards(&columns, false, 10), &params(3, 4), 1);
        for r in &f.restarts {
            assert_eq!((r.empty_states, r.converged), (2, true));
        }
        assert_eq!(f.best, 0);
        assert!(f.affiliation.iter().all(|&k| k == f.affiliation[0]));
    }

    #[test]
    fn as_many_states_as_sources_and_identical_columns() {
        let columns = grouped(12, 12, 4);
        let doubled = [columns.clone(), columns].concat();
        let f = fit(&Local, &shards(&doubled, false, 20), &params(24, 5), 2);
        assert_eq!(f.affiliation[..12], f.affiliation[12..]);
        assert!(f.restarts[f.best].empty_states >= 12);
    }

    #[test]
    fn a_limit_of_iterations_and_a_tolerance_end_a_restart_early() {
        let s = shards(&grouped(60, 60, 20), false, 50);
        let full = fit(&Local, &s, &params(4, 1), 5);
        assert!(full.trace.len() > 3, "{:?}", full.trace);
        let limited = |max_iterations, tolerance| {
            let params = Params {
                max_iterations,
                tolerance,
                ..params(4, 1)
            };
            fit(&Local, &s, &params, 5)
        };
        let two = limited(2, 0.0);
        assert_eq!(two.trace, full.trace[..2]);
        assert!(!two.restarts[0].converged);
        let none = limited(0, 0.0);
        assert_eq!((none.trace.len(), none.restarts[0].converged), (0, false));
        let coarse = limited(300, 1.0);
        assert_eq!(
            (coarse.trace.len(), coarse.restarts[0].converged),
            (1, true)
        );
    }
}
