//! What a job takes: rows, non-zeros, states and models → seconds of its stages on one machine, and of its rounds on a cluster.
//!
//! Every rate is seconds of one core, as `python benches/peers/cluster.py` has measured it in the job that is named beside it, on two cores
//! of an AMD EPYC (Zen 5) and in a folder. Work is shared out evenly, a round begins when the one before it has ended, and what is not known
//! before rows are read is taken for the most that it can be. So an estimate says which of two ways is faster, and how large a job is, and
//! may be off by a factor of two.

use crate::plan::Plan;
use crate::plan::cost::machines::{Job, Width};
use crate::plan::fits::{PlannedFit, PlannedMethod, Ranks};
use crate::read::lake::statistics::Bounds;
use crate::read::rows::layout::Evidence;

/// A byte of a factor that one process packs and hashes, or reads and unpacks: DBMR of 6 M non-zeros of 2 M states, by passes.
pub(crate) const FACTOR: f64 = 3e-9;

/// A non-zero in one restart of DBMR: so much, and so much for each latent state. One model of 10 M non-zeros, and ranks 2 to 32.
const RESTART: f64 = 10e-9;
const RESTART_OF_RANK: f64 = 3e-9;
/// Where both sides have sets, in restarts of DBMR: `pipelines/sets.toml`.
const BOTH_SIDES: f64 = 10.0;
/// A non-zero in one product with a vector, and how many of these a decomposition takes: one model of 10 M non-zeros, and ranks 2 to 8.
const PRODUCT: f64 = 1.8e-9;
const PRODUCTS: f64 = 80.0;
const PRODUCTS_OF_RANK: f64 = 4.0;
/// A resample takes such a share of the fits themselves: 50 of them.
const RESAMPLE: f64 = 0.6;
const OF_A_STATE: [u64; 2] = [30, 20];

impl Plan {
    /// The job of a plan, at most; nothing where nothing bounds its rows. Models with more non-zeros than `split` are split.
    pub fn job(&self, bounds: Bounds, width: Option<Width>, split: u64) -> Option<Job> {
        let rows = bounds.rows?;
        let is_dealt = matches!(self.layout.evidence, Evidence::Trajectories { .. });
        let lags = self.lags.len().max(1) as u64;
        let pairs = rows.saturating_mul(lags);
        let models = bounds.partitions.unwrap_or(1).saturating_mul(lags);
        let states = bounds.states.unwrap_or(u64::MAX).min(rows);
        let squares = states.saturating_mul(states).saturating_mul(models);
        let nonzeros = pairs.min(squares);
        let is_split = nonzeros.div_ceil(models.max(1)) > split && self.by_passes().is_ok();
        let resamples = RESAMPLE * self.resamples() as f64 + self.folds() as f64;
        let each = self.fits.iter().map(PlannedFit::seconds);
        let state_bytes = self.fits.iter().map(PlannedFit::state_bytes);
        let files = self.tables.iter().flat_map(|table| &table.files);
        Some(Job {
            bytes: files.map(|file| file.size_bytes).sum(),
            rows,
            pairs,
            nonzeros,
            states,
            models,
            is_dealt,
            is_whole: self.layout.partition.is_empty(),
            width,
            fits: self.fits.len() as u64,
            fit_seconds: each.sum::<f64>() * (1.0 + resamples),
            state_bytes: state_bytes.sum(),
            passes: match is_split {
                true => self.passes(states),
                false => Vec::new(),
            },
        })
    }
}

impl PlannedFit {
    /// At each of its ranks.
    pub(crate) fn methods(&self) -> Vec<PlannedMethod> {
        match &self.ranks {
            Ranks::Auto { candidates, .. } => {
                let of = |&rank: &usize| self.method.with_rank(rank);
                candidates.iter().map(of).collect()
            }
            _ => vec![self.method.clone()],
        }
    }

    /// Of one core, for each non-zero.
    fn seconds(&self) -> f64 {
        self.methods().iter().map(PlannedMethod::seconds).sum()
    }

    fn state_bytes(&self) -> u64 {
        OF_A_STATE[0] + OF_A_STATE[1] * self.rank().unwrap_or(1) as u64
    }
}

impl PlannedMethod {
    fn seconds(&self) -> f64 {
        let restart = |rank: usize| RESTART + RESTART_OF_RANK * rank as f64;
        match self {
            PlannedMethod::Dbmr(p) => p.restarts as f64 * restart(p.rank),
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => {
                BOTH_SIDES * p.restarts as f64 * restart(p.rank)
            }
            PlannedMethod::Svd(p) => products(p.rank) * PRODUCT,
            PlannedMethod::Gpcca(p) => products(p.rank) * PRODUCT,
            PlannedMethod::Given(_) => restart(1),
        }
    }
}

/// Products with one vector that a decomposition takes.
pub(crate) fn products(rank: usize) -> f64 {
    PRODUCTS + PRODUCTS_OF_RANK * rank as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::output::number::grouped;
    use crate::plan::cost::machines::*;

    /// 10⁹ rows of trajectories, and one model.
    pub fn job() -> Job {
        Job {
            bytes: 4_000_000_000,
            rows: 1_000_000_000,
            pairs: 1_000_000_000,
            nonzeros: 100_000_000,
            states: 1_000_000,
            models: 1,
            is_dealt: true,
            is_whole: true,
            width: Some(Width {
                slices: 40,
                lots: 20,
            }),
            fits: 1,
            fit_seconds: 100e-9,
            state_bytes: 50,
            passes: Vec::new(),
        }
    }

    /// Names, seconds and megabytes of steps.
    #[track_caller]
    pub fn check(steps: &[Step], expected: &[(&str, f64, u64)]) {
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        let wanted: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, wanted);
        for (step, (name, seconds, megabytes)) in steps.iter().zip(expected) {
            let off = (step.seconds - seconds).abs();
            assert!(off < 1e-6, "{name}: {}, not {seconds}", step.seconds);
            assert_eq!(step.bytes, megabytes * 1_000_000, "{name}");
        }
    }

    // Ten slots: 40 tasks that deal take four turns of 0.015 s, and 10⁹ rows of 35 ns a tenth of 35 s. 20 lots have at most all 10⁹ pairs as sums
    // of 20 bytes. One task makes 10⁸ non-zeros of 70 ns, and one executor with two vcores fits them in 10.002 s / 2.
    #[test]
    fn rounds_share_work_among_slots_and_one_model_has_one_executor() {
        let machines = |store| Machines {
            executors: 5,
            slots: 10,
            store,
        };
        let expected = [
            ("start", 0.45, 0),
            ("deal", 0.08 + 4.0 * 0.015 + 3.5, 4_000 + 24_000),
            ("sum", 0.08 + 2.0 * 0.015 + 5.5, 24_000 + 20_000),
            ("add", 0.08 + 2.0 * 0.015 + 4.0, 20_000 + 2_000),
            ("count", 0.08 + 0.015 + 7.0, 2_000 + 500),
            ("fit", 0.08 + 0.015 + 5.001, 500 + 50),
            ("write", 11.0004 / 4.0, 500 + 50 + 500),
        ];
        check(&job().there(&machines(None), 4), &expected);
        let through = job().there(&machines(Some(1e8)), 4);
        // Five executors deal, one counts, and this machine writes.
        let slower = [0.0, 56.0, 88.0, 44.0, 25.0, 5.5, 10.5];
        let expected = expected.iter().zip(slower);
        let expected: Vec<_> = expected
            .map(|(&(name, seconds, bytes), more)| (name, seconds + more, bytes))
            .collect();
        check(&through, &expected);
        let here = [
            ("count", 7.0 + 40.0, 4_000),
            ("fit", 10.002 / 4.0, 0),
            ("write", 11.0004 / 4.0 + 5.0, 500),
        ];
        check(&job().here(4, Some(1e8)), &here);
    }

    // 128 tasks have all slots busy: 1,000 models of 2 ms and 10⁸ non-zeros of 100 ns. 40 tasks sum what they read, and 20 lots of partitions add that
    // up and make non-zeros of it.
    #[test]
    fn many_models_have_all_executors_and_pairs_are_not_dealt() {
        let machines = Machines {
            executors: 5,
            slots: 10,
            store: None,
        };
        let many = Job {
            is_dealt: false,
            is_whole: false,
            models: 1000,
            states: 1000,
            ..job()
        };
        let expected = [
            ("start", 0.45, 0),
            ("sum", 0.08 + 4.0 * 0.015 + 5.5, 4_000 + 20_000),
            ("count", 0.08 + 2.0 * 0.015 + 4.7, 20_000 + 500),
            ("fit", 0.08 + 13.0 * 0.015 + 1.2, 500 + 50),
            ("write", 11.4 / 4.0, 500 + 50 + 500),
        ];
        check(&many.there(&machines, 4), &expected);
        let alone = Job {
            width: None,
            ..job()
        };
        let steps = alone.there(&machines, 4);
        check(&steps[1..2], &[("count", 0.08 + 0.015 + 14.0, 4_500)]);
    }

    #[test]
    fn fits_take_restarts_and_products() {
        let of = |method: PlannedMethod, nanoseconds: f64| {
            let off = method.seconds() * 1e9 - nanoseconds;
            assert!(off.abs() < 1e-6, "{method:?}: {off}");
        };
        let restarts = |restarts| crate::methods::dbmr::params::Dbmr {
            restarts,
            ..crate::methods::dbmr::params::Dbmr::new(8)
        };
        of(PlannedMethod::Dbmr(restarts(10)), 10.0 * (10.0 + 3.0 * 8.0));
        of(PlannedMethod::Dbmr(restarts(1)), 34.0);
        // 80 + 4 · 8 products.
        of(
            PlannedMethod::Svd(crate::methods::spectral::svd::Svd::new(8)),
            112.0 * 1.8,
        );
        let one_of = PlannedFit {
            name: "svd".into(),
            method: PlannedMethod::Svd(crate::methods::spectral::svd::Svd::new(3)),
            ranks: Ranks::Auto {
                rule: crate::assess::ranks::Rule::Bic,
                candidates: vec![2, 3],
            },
        };
        let seconds = one_of.seconds() * 1e9;
        assert!((seconds - (88.0 + 92.0) * 1.8).abs() < 1e-6, "{seconds}");
        assert_eq!(one_of.state_bytes(), 90);
    }

    /// The job and the cluster of benches/README.md, and of a model that is spread over it a product with eight vectors.
    #[test]
    fn the_page_of_performance_shows_the_estimate_of_a_large_job() {
        let machines = Machines {
            executors: 100,
            slots: 400,
            store: Some(100e6),
        };
        let one = Job {
            bytes: 37_000_000_000,
            rows: 10_000_000_000,
            pairs: 10_000_000_000,
            nonzeros: 1_000_000_000,
            states: 100_000_000,
            width: Some(Width {
                slices: 276,
                lots: 276,
            }),
            fits: 2,
            fit_seconds: PlannedMethod::Dbmr(crate::methods::dbmr::params::Dbmr::new(8)).seconds()
                + PlannedMethod::Svd(crate::methods::spectral::svd::Svd::new(8)).seconds(),
            state_bytes: 2 * (OF_A_STATE[0] + OF_A_STATE[1] * 8),
            ..job()
        };
        let many = Job {
            models: 1000,
            states: one.states / 1000,
            is_whole: false,
            ..one.clone()
        };
        let seconds = |steps: &[Step]| steps.iter().map(|step| step.seconds).sum::<f64>();
        let nano = |seconds: f64| (seconds * 1e9).round();
        let work = |step: &Step| match step.name {
            "deal" => format!("10¹⁰ rows × {} ns", nano(DEAL)),
            "sum" => format!("10¹⁰ pairs × {} ns", nano(SUM)),
            "add" => format!("10¹⁰ sums × {} ns", nano(ADD)),
            "count" => format!("10⁹ non-zeros × {} ns", nano(FINISH)),
            "fit" => format!("10⁹ non-zeros × {} ns", nano(one.fit_seconds)),
            "write" => format!("10⁹ non-zeros × {} ns", nano(WRITE)),
            _ => String::new(),
        };
        let (of_one, of_many) = (one.there(&machines, 4), many.there(&machines, 4));
        let line = |step: &Step| {
            let same = of_many.iter().find(|other| other.name == step.name);
            let same = same.map_or(String::new(), |same| grouped(same.seconds.round()));
            format!(
                "| {} | {} | {} | {} | {} | {} |",
                step.name,
                work(step),
                step.tasks,
                grouped((step.bytes as f64 / 1e9).round()),
                grouped(step.seconds.round()),
                same
            )
        };
        let mut lines: Vec<String> = of_one.iter().map(line).collect();
        lines.push(format!(
            "| all | | | {} | {} | {} |",
            grouped((of_one.iter().map(|step| step.bytes).sum::<u64>() as f64 / 1e9).round()),
            grouped(seconds(&of_one).round()),
            grouped(seconds(&of_many).round())
        ));
        let here = one.here(4, machines.store);
        let [count, fit, write] = [0, 1, 2].map(|at: usize| grouped(here[at].seconds.round()));
        lines.push(format!(
            "count {count} s, fit {fit} s, write {write} s, {} s in all",
            grouped(seconds(&here).round())
        ));
        let product = Job {
            fit_seconds: 8.0 * PRODUCT,
            passes: vec![Passes {
                rounds: 1,
                at_once: 1,
                columns: 8,
            }],
            ..one.clone()
        };
        let (pass, products) = (product.passed(&machines), 8.0 * PRODUCT * 1e9);
        lines.push(format!(
            "{} s + {products:.1} s / {} + 3.01 × 6.4 GB × ({} + 10) ns = {:.0} s",
            ROUND + TASK,
            pass.tasks,
            nano(FACTOR),
            pass.seconds
        ));
        let quick = Machines {
            store: Some(1e9),
            ..machines
        };
        lines.push(format!(
            "{products:.1} s / 4 = {:.1} s on one executor; with 1 GB/s it is {:.0} s",
            products / 4.0,
            product.passed(&quick).seconds
        ));
        let dbmr = PlannedMethod::Dbmr(crate::methods::dbmr::params::Dbmr::new(8));
        let svd = PlannedMethod::Svd(crate::methods::spectral::svd::Svd::new(8));
        let by_passes = Job {
            passes: [dbmr, svd]
                .iter()
                .flat_map(|fit| fit.passes(one.states))
                .collect(),
            ..one.clone()
        };
        let rounds: u64 = by_passes.passes.iter().map(|passes| passes.rounds).sum();
        lines.push(format!(
            "{rounds} rounds and {} s, or {} s with 1 GB/s",
            grouped(by_passes.passed(&machines).seconds.round()),
            grouped(by_passes.passed(&quick).seconds.round())
        ));
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/README.md"));
        let missing: Vec<_> = lines.iter().filter(|line| !page.contains(*line)).collect();
        assert!(missing.is_empty(), "benches/README.md lacks:\n{missing:#?}");
    }
}
