//! What the fits of one model take where its passes are rounds of tasks: fits, states and non-zeros → rounds, and their seconds.
//!
//! How often a fit goes over its matrix is not known before: here it is as often as in jobs that were run (`costs`), of matrices whose
//! singular values stand apart behind the rank. Others take many times that.

use crate::methods::dbmr::params::Init;
use crate::plan::Plan;
use crate::plan::cost::machines::{Job, Machines, Passes, Step, n_units};
use crate::plan::cost::stages::{FACTOR, products};
use crate::plan::fits::{PlannedFit, PlannedMethod, Ranks};

/// Iterations of DBMR until it stops where nothing is polished, for each latent state, and rounds of one: its two updates, and in every other
/// one what reserves have lost. One model of 10 M non-zeros, and ranks 3 to 16.
const ITERATIONS_OF_RANK: f64 = 2.5;
const ROUNDS_OF_ITERATION: f64 = 2.5;
/// Where it is polished: what brings the sample of all restarts here and the best of them to all sources, iterations there, and rounds of
/// one. The same model, rank 8.
const SAMPLE: usize = 4;
const ITERATIONS: usize = 2;
const SWEEPS: usize = 10;
/// Rounds of the metrics: the sums of the sets, and what either side misses.
const SCORES: u64 = 3;

impl Plan {
    /// The passes of all fits of one model, at most.
    pub(crate) fn passes(&self, states: u64) -> Vec<Passes> {
        let methods = self.fits.iter().flat_map(PlannedFit::methods);
        let mut passes: Vec<_> = methods.flat_map(|method| method.passes(states)).collect();
        // What compares ranks wants one singular value more than the largest.
        let swept = self.fits.iter().filter(|fit| fit.ranks != Ranks::One);
        let largest = swept.filter_map(PlannedFit::rank).max();
        passes.extend(largest.map(|rank| decomposition(rank + 1, states)));
        passes
    }
}

impl PlannedMethod {
    pub(crate) fn passes(&self, states: u64) -> Vec<Passes> {
        let (rank, mut passes) = match self {
            PlannedMethod::Dbmr(p) => {
                let begun = (p.init == Init::Svd).then(|| decomposition(p.rank, states));
                let most = p.max_iterations;
                let (rounds, at_once) = if p.polish {
                    (SAMPLE + SWEEPS * ITERATIONS.min(most), 1)
                } else {
                    let at_once = crate::methods::dbmr::alternate::side_by_side(
                        states as usize,
                        p,
                        usize::MAX,
                    );
                    let iterations = (ITERATIONS_OF_RANK * p.rank as f64).min(most as f64);
                    let of_one = 1 + (ROUNDS_OF_ITERATION * iterations).ceil() as usize;
                    (p.restarts.div_ceil(at_once) * of_one, at_once)
                };
                let restarts = Passes {
                    rounds: rounds as u64,
                    at_once: at_once as u64,
                    // Sums of the sets go one way only.
                    columns: p.rank.div_ceil(2) as u64 + 1,
                };
                (p.rank, begun.into_iter().chain([restarts]).collect())
            }
            PlannedMethod::Svd(p) => (p.rank, vec![decomposition(p.rank, states)]),
            PlannedMethod::Gpcca(p) => (p.rank, vec![decomposition(p.rank, states)]),
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => (p.rank, Vec::new()),
            PlannedMethod::Given(_) => (1, Vec::new()),
        };
        passes.push(Passes {
            rounds: SCORES,
            at_once: 1,
            columns: rank as u64,
        });
        passes
    }
}

fn decomposition(rank: usize, states: u64) -> Passes {
    let width = crate::methods::spectral::truncated_svd::width(states as usize);
    Passes {
        rounds: (products(rank) / width as f64).ceil() as u64,
        at_once: 1,
        columns: width as u64,
    }
}

impl Job {
    /// The fits of all models by passes, one model after the other. Whoever asks puts a factor there, all executors get it, each puts its rows
    /// of the result there, and whoever asks gets them all.
    pub fn passed(&self, machines: &Machines) -> Step {
        let units = n_units(self.nonzeros.div_ceil(self.models.max(1)), machines.slots);
        let executors = machines.executors.max(1);
        let mut all = Step {
            name: "pass",
            tasks: 0,
            seconds: self.fit_seconds * self.nonzeros as f64
                / units.min(machines.slots).max(1) as f64,
            bytes: 0,
        };
        for passes in &self.passes {
            let rounds = passes.rounds.saturating_mul(self.models);
            let tasks = passes.at_once * units;
            let factors = self
                .states
                .saturating_mul(8 * passes.columns * passes.at_once);
            let of_one = (3.0 + 1.0 / executors as f64) * factors as f64;
            let of_byte = FACTOR + machines.store.map_or(0.0, |store| 1.0 / store);
            let round = machines.round("pass", tasks, 1, 0.0, 0);
            all.tasks = all.tasks.saturating_add(rounds.saturating_mul(tasks));
            all.seconds += rounds as f64 * (round.seconds + of_one * of_byte);
            let bytes = factors.saturating_mul(3 + executors);
            all.bytes = all.bytes.saturating_add(rounds.saturating_mul(bytes));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cost::stages::tests::{check, job};

    fn passes(rounds: u64, at_once: u64, columns: u64) -> Passes {
        Passes {
            rounds,
            at_once,
            columns,
        }
    }

    // Rank 8: 20 iterations of 2.5 rounds, or 4 + 2 · 10 of the best restart, and 80 + 4 · 8 products. The λ of a restart takes 106 bytes a state, of 256 MiB.
    #[test]
    fn restarts_go_side_by_side_and_products_by_panels() {
        let plain = PlannedMethod::Dbmr(crate::methods::dbmr::params::Dbmr {
            restarts: 4,
            ..crate::methods::dbmr::params::Dbmr::plain(8)
        });
        let scores = passes(3, 1, 8);
        assert_eq!(plain.passes(200_000), [passes(51, 4, 5), scores]);
        assert_eq!(plain.passes(1_000_000), [passes(2 * 51, 2, 5), scores]);
        let polished = PlannedMethod::Dbmr(crate::methods::dbmr::params::Dbmr::new(8));
        assert_eq!(polished.passes(200_000), [passes(24, 1, 5), scores]);
        let svd = PlannedMethod::Svd(crate::methods::spectral::svd::Svd::new(8));
        assert_eq!(svd.passes(200_000), [passes(28, 1, 4), scores]);
        assert_eq!(svd.passes(1_000_000), [passes(56, 1, 2), scores]);
    }

    // 2²⁰ non-zeros are a unit a side for each of four slots: 8 tasks of two restarts take them two turns, and 10⁶ states have 8 bytes in three
    // columns of both. Whoever asks puts and gets these, an executor gets all and puts half.
    #[test]
    fn a_round_of_passes_takes_its_tasks_and_its_factors() {
        let split = Job {
            nonzeros: 1 << 20,
            passes: vec![passes(10, 2, 3)],
            ..job()
        };
        let machines = Machines {
            executors: 2,
            slots: 4,
            store: None,
        };
        let round = 0.08 + 2.0 * 0.015 + 3.5 * 48e6 * 3e-9;
        let cores = 100e-9 * (1 << 20) as f64 / 4.0;
        let expected = [("pass", 10.0 * round + cores, 10 * 5 * 48)];
        check(&[split.passed(&machines)], &expected);
        let names: Vec<_> = split
            .there(&machines, 4)
            .iter()
            .map(|step| step.name)
            .collect();
        assert_eq!(names[4..], ["count", "cut", "pass", "write"]);
    }
}
