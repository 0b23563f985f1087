//! The alternating algorithm of direct Bayesian model reduction: counts → a partition of the
//! sources (coherence, Algorithm 2).
//!
//! In: N, m targets × n sources, and the affiliation γ with which each restart begins. The two
//! updates λ_ik = C_ik / C_·k with C_ik = Σ_{γ(j)=k} N_ij (15), and γ(j) = argmax_k Σ_i N_ij log
//! λ_ik, the lowest k on ties (16), alternate until nothing changes. Out: the best of the restarts.
//!
//! Restarts run in parallel. If there are more threads than restarts, the passes of a restart run
//! in parallel over the shards. The result does not depend on threads or shards: sums of integer
//! counts are exact in any order, sums of weights are added in ascending order, and exact scores
//! decide (16) (`nearest`).

use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::evidence::pass::executor::each_shard;
use crate::math::matrix::first_largest;
use crate::math::seed::restart_seed;
use crate::methods::dbmr::local_search::empty_search;
use crate::methods::dbmr::matrix_columns::Columns;
use crate::methods::dbmr::nearest::{self, Assign, Column, Lambda, Logarithm, Spread};
use crate::methods::dbmr::params::{Dbmr, Init, Partition};
use crate::methods::dbmr::seeding;
use crate::methods::fit::Restart;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the λ of all parallel restarts may take.
const LAMBDA_BYTES: usize = 256 << 20;

/// The margins are updated if a change of λ reaches fewer than one in `FEW` non-zeros. Otherwise
/// all columns are scored again.
const FEW: usize = 2;

/// The number of restarts that run in parallel, at most `most`.
pub(crate) fn concurrency(n_targets: usize, params: &Dbmr, most: usize) -> usize {
    (LAMBDA_BYTES / Lambda::bytes(n_targets, params.rank))
        .min(most)
        .clamp(1, params.restarts)
}

/// Runs `params.restarts` restarts, from `start` if there is one.
pub(crate) fn fit(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Dbmr,
    start: Option<&[u32]>,
    seed: u64,
) -> Partition {
    let problem = Problem {
        passes,
        shards,
        columns: (start.is_none() && params.init == Init::Kl).then(|| Columns::new(shards)),
        start,
        params,
        seed,
        log: Logarithm::new(&shards.target_total, shards.smallest, shards.is_integral()),
        nnz: shards.nnz(),
        next: AtomicUsize::new(0),
    };

    let concurrency = concurrency(shards.n_targets, params, passes.concurrency());
    let ended: Vec<Vec<Ended>> = passes.times(concurrency, || problem.run());

    let mut ended: Vec<Ended> = ended.into_iter().flatten().collect();
    ended.sort_by_key(|e| e.index);
    let best = first_largest(ended.iter().map(|e| e.restart.objective));
    Partition {
        affiliation: std::mem::take(&mut ended[best].affiliation),
        trace: std::mem::take(&mut ended[best].trace),
        restarts: ended.into_iter().map(|e| e.restart).collect(),
        best,
    }
}

/// The data that all restarts of a fit share.
struct Problem<'a> {
    passes: &'a Passes<'a>,
    shards: &'a Shards,
    /// Only if restarts are seeded from the columns.
    columns: Option<Columns<'a>>,
    start: Option<&'a [u32]>,
    params: &'a Dbmr,
    seed: u64,
    log: Logarithm,
    nnz: usize,
    /// The index of the next restart.
    next: AtomicUsize,
}

/// A restart that is running. The next restart reuses its memory.
struct Slot {
    affiliation: Vec<u32>,
    columns: Vec<Column>,
    /// The decrease of the margins of the columns of each state since all columns were scored, per
    /// count, r values.
    drift: Vec<f64>,
    /// The sources that moved in the last sweep, with their old states.
    moved: Vec<(u32, u32)>,
    lambda: Lambda,
    log_likelihood: f64,
    trace: Vec<f64>,
    evaluations: u64,
}

/// The result of a restart. Only one that may be the best keeps its affiliation and trace.
#[derive(Serialize, Deserialize)]
struct Ended {
    index: usize,
    restart: Restart,
    affiliation: Vec<u32>,
    trace: Vec<f64>,
}

impl Slot {
    /// Makes the next sweep score all columns.
    fn score_all(&mut self) {
        for column in &mut self.columns {
            column.margin = f64::NEG_INFINITY;
        }
        self.drift.fill(0.0);
    }
}

impl Problem<'_> {
    /// Runs restarts until none is left.
    fn run(&self) -> Vec<Ended> {
        let n = self.shards.n_sources;
        let unknown = Column {
            state: 0,
            is_scored: false,
            margin: f64::NEG_INFINITY,
        };
        let mut slot = Slot {
            affiliation: vec![0; n],
            columns: vec![unknown; n],
            drift: vec![0.0; self.params.rank],
            moved: Vec::new(),
            lambda: Lambda::new(self.shards.n_targets, self.params.rank),
            log_likelihood: 0.0,
            trace: Vec::new(),
            evaluations: 0,
        };
        let mut ended = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.params.restarts {
                return ended;
            }
            let end = self.passes.piece(&format!("restart-{index}"), |_| {
                self.begin(&mut slot, index);
                let mut converged = false;
                while !converged && slot.trace.len() < self.params.max_iterations {
                    converged = self.iterate(&mut slot);
                }
                self.end(&slot, index, converged)
            });
            add(&mut ended, end);
        }
    }

    /// Sets the first affiliation and its λ.
    fn begin(&self, slot: &mut Slot, index: usize) {
        let mut rng = Pcg64::seed_from_u64(restart_seed(self.seed, index));
        let mut scores = 0;
        slot.affiliation = match (&self.columns, self.start) {
            (_, Some(start)) => start.to_vec(),
            (Some(columns), None) => {
                let members: Vec<u32> = (0..self.shards.n_sources as u32).collect();
                let mut search = empty_search(columns, &members, self.params.rank);
                search.grow_apart(&mut rng);
                scores = search.scores;
                search.states
            }
            (None, None) => seeding::random(self.shards.n_sources, self.params.rank, &mut rng),
        };
        slot.evaluations = scores.div_ceil(self.params.rank as u64);
        for (&k, column) in slot.affiliation.iter().zip(&mut slot.columns) {
            column.state = k;
        }
        slot.trace.clear();
        self.gather(slot);
        (slot.log_likelihood, _) = slot.lambda.refresh(&self.log);
        slot.score_all();
    }

    /// One update of γ (16) and of λ (15). Returns whether the restart has converged.
    fn iterate(&self, slot: &mut Slot) -> bool {
        // With one state there is nothing to choose.
        if self.params.rank > 1 {
            let kernel = Assign {
                source_total: Cow::from(&self.shards.source_total),
                lambda: Cow::Borrowed(&slot.lambda),
                drift: Cow::from(&slot.drift),
            };
            self.passes
                .rows(self.shards.sources(), &kernel, &mut slot.columns);
        }
        slot.moved.clear();
        for (j, (k, column)) in slot.affiliation.iter_mut().zip(&slot.columns).enumerate() {
            slot.evaluations += u64::from(column.is_scored);
            if *k != column.state {
                slot.moved.push((j as u32, *k));
                *k = column.state;
            }
        }

        // A move changes two sums per non-zero, at random addresses. If many columns moved, summing
        // again is faster.
        let are_few = slot.moved.len() < self.shards.n_sources / 8;
        if self.shards.is_integral() && are_few && !self.shards.is_outline() {
            self.shift(slot);
        } else {
            self.gather(slot);
        }
        let before = slot.log_likelihood;
        let drift;
        (slot.log_likelihood, drift) = slot.lambda.refresh(&self.log);
        slot.trace.push(slot.log_likelihood);
        // Without a gain λ is the same, because (15) is the only maximiser, and so are all later γ.
        // Remaining moves are rounding.
        if slot.moved.is_empty()
            || slot.log_likelihood - before <= self.params.tolerance() * before.abs()
        {
            return true;
        }

        let by_target = &self.shards.by_target;
        let reach = by_target
            .iter()
            .map(|csr| nearest::reach(csr, &slot.lambda));
        if self.shards.is_integral() && FEW * reach.sum::<usize>() < self.nnz {
            if self.shards.is_outline() {
                let kernel = Spread::new(&slot.lambda);
                self.passes
                    .rows(self.shards.sources(), &kernel, &mut slot.columns);
            } else {
                for csr in each_shard(by_target) {
                    nearest::spread(csr, &slot.lambda, &mut slot.columns);
                }
            }
            for (all, drift) in slot.drift.iter_mut().zip(&drift) {
                *all += drift;
            }
        } else {
            slot.score_all();
        }
        false
    }

    /// Moves the columns (ascending) from one sum to the other.
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

    /// Sums C in ascending order of the sources.
    fn gather(&self, slot: &mut Slot) {
        let (affiliation, rank) = (&slot.affiliation, self.params.rank);
        let kernel = Gather {
            affiliation: Cow::from(affiliation),
            rank,
        };
        self.passes
            .rows(self.shards.targets(), &kernel, slot.lambda.renew());
        slot.lambda
            .renew_totals(affiliation, &self.shards.source_total);
    }

    /// The result of a restart that stopped.
    fn end(&self, slot: &Slot, index: usize, converged: bool) -> Ended {
        let totals = slot.lambda.totals();
        Ended {
            index,
            restart: Restart {
                seed: restart_seed(self.seed, index),
                init: Some(self.params.init.name().into()),
                sources: slot.affiliation.len(),
                iterations: slot.trace.len(),
                evaluations: Some(slot.evaluations),
                objective: slot.log_likelihood,
                empty_states: totals.iter().filter(|&&c| c == 0.0).count(),
                converged,
            },
            affiliation: slot.affiliation.clone(),
            trace: slot.trace.clone(),
        }
    }
}

/// Adds a result. Only the best of the results keeps its affiliation.
fn add(ended: &mut Vec<Ended>, mut new: Ended) {
    let forget = |end: &mut Ended| (end.affiliation, end.trace) = Default::default();
    match ended.iter_mut().find(|e| !e.affiliation.is_empty()) {
        None => (),
        Some(best) => {
            let (a, b) = (new.restart.objective, best.restart.objective);
            let is_better = a > b || a == b && new.index < best.index;
            forget(if is_better { best } else { &mut new });
        }
    }
    ended.push(new);
}
