//! DBMR as a method.

use crate::error::Result;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::methods::columns::StateColumn;
use crate::methods::dbmr;
use crate::methods::dbmr::nearest::{Assign, Spread};
use crate::methods::dbmr::params::{Dbmr, Init, Partition};
use crate::methods::dbmr::scan::{Pick, Scan};
use crate::methods::estimator::{Estimator, Fault, Needs, Parameters, at_least_one, tolerance};
use crate::methods::fit::{Fit, How};
use crate::methods::low_rank::columns::SETS;
use crate::methods::low_rank::{canonical, check_rank, most_probable, projection};

/// Fresh restarts in a refit, beside the one from the partition of the whole. Without `polish`,
/// where restarts rarely reach the same optimum, a refit has all its restarts but one.
const FRESH: usize = 3;

impl Parameters for Dbmr {
    const NAME: &'static str = "dbmr";

    fn check(&self) -> std::result::Result<(), Fault> {
        at_least_one(&[
            ("restarts", self.restarts),
            ("max_iterations", self.max_iterations),
        ])?;
        tolerance("tolerance", self.tolerance())
    }

    fn rank(&self) -> Option<usize> {
        Some(self.rank)
    }

    fn at(&self, rank: usize) -> Self {
        Dbmr {
            rank,
            tolerance: Some(self.tolerance()),
            ..self.clone()
        }
    }

    fn describe(&self, rank: &str) -> String {
        let polished = if self.polish { ", polished" } else { "" };
        let (restarts, init) = (self.restarts, self.init.name());
        format!("DBMR, {rank}, {restarts} restarts from `{init}`{polished}")
    }
}

impl Estimator for Dbmr {
    const OBJECTIVE_SCALES: bool = true;

    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn kernels() -> Vec<Entry> {
        vec![
            Entry::of::<Assign<'static>>(),
            Entry::of::<Spread>(),
            Entry::of::<Scan<'static>>(),
            Entry::of::<Pick<'static>>(),
        ]
    }

    fn needs(&self) -> Needs<'_> {
        let compares_all = self.init == Init::Kl && !self.polish;
        Needs {
            whole_matrix: compares_all
                .then_some("`init = \"kl\"` without `polish` compares all of its states"),
            ..Needs::default()
        }
    }

    fn columns(&self) -> &'static [StateColumn] {
        SETS
    }

    /// For every restart that runs in parallel, one factor of the targets and 12 bytes per source.
    fn bytes(&self, size: Size, threads: u64) -> u64 {
        let restarts = threads.min(self.restarts as u64);
        restarts.saturating_mul(
            size.factor(size.targets, self.rank)
                .saturating_add(12 * size.sources),
        )
    }

    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        let shards = &*counts.shards;
        check_rank(self.rank, shards)?;
        passes.step("partition");
        let partition = dbmr::fit(passes, shards, self, seed);
        let affiliation = canonical(&partition.affiliation, self.rank, shards);
        let best = &partition.restarts[partition.best];
        let how = How {
            seed,
            iterations: best.iterations,
            converged: best.converged,
            best_restart: partition.best,
            trace: partition.trace,
            restarts: partition.restarts,
        };
        let model = projection(passes, shards, affiliation, self.rank, most_probable);
        Ok(Fit { how, model })
    }

    /// The best of a few fresh restarts and of a local search from the sets of the fit to all
    /// counts.
    fn refit(
        &self,
        passes: &Passes<'_>,
        counts: &Counts<'_>,
        before: &[i32],
        seed: u64,
    ) -> Result<Fit> {
        let shards = &*counts.shards;
        check_rank(self.rank, shards)?;
        let start: Vec<u32> = before.iter().map(|&k| k.max(0) as u32).collect();
        let fresh = Dbmr {
            restarts: match (self.restarts - 1).max(1) {
                restarts if self.polish => restarts.min(FRESH),
                restarts => restarts,
            },
            ..self.clone()
        };
        let best = |partition: &Partition| partition.restarts[partition.best].objective;
        let mut partition = dbmr::fit(passes, shards, &fresh, seed);
        let from_whole = passes.piece("local-search", |passes| {
            dbmr::fit_near(passes, shards, self, &start, seed)
        });
        if best(&from_whole) >= best(&partition) {
            partition = from_whole;
        }
        let affiliation = canonical(&partition.affiliation, self.rank, shards);
        Ok(Fit {
            how: How::direct(seed),
            model: projection(passes, shards, affiliation, self.rank, most_probable),
        })
    }
}
