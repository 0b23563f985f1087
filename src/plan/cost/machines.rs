//! The sizes and constants that the cost of a run is computed from.

use serde::Serialize;

/// Tasks that read the files of a plan, and the lots that they deal rows and sums in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Width {
    pub slices: u64,
    pub lots: u64,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Of the files.
    pub bytes: u64,
    pub rows: u64,
    /// Of rows, at all lags.
    pub pairs: u64,
    /// Of all models together.
    pub nonzeros: u64,
    /// Of one model.
    pub states: u64,
    pub models: u64,
    /// Whether rows are of trajectories, so that they are dealt before they are counted.
    pub is_dealt: bool,
    /// Whether there is one matrix a lag, which lots have parts of.
    pub is_whole: bool,
    /// Nothing where one task counts all rows.
    pub width: Option<Width>,
    pub fits: u64,
    /// What all fits take of a core for each non-zero.
    pub fit_seconds: f64,
    /// What they leave for each state.
    pub state_bytes: u64,
    /// Of the fits of each model, where these are split; else one executor fits a model.
    pub passes: Vec<Passes>,
}

/// A cluster and the store of its output.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Machines {
    pub executors: u64,
    /// Tasks that all of them do at once.
    pub slots: u64,
    /// Bytes that each machine gets from the store or gives to it in a second. Nothing for a folder, whose seconds are in the rates.
    pub store: Option<f64>,
}

/// A stage, or a round of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    pub name: &'static str,
    pub tasks: u64,
    pub seconds: f64,
    /// To the store and from it.
    pub bytes: u64,
}

/// What a run on a cluster takes before its first round, and each round, and each task of the slot that does it: 600 rows, and rounds of 64 to
/// 143 tasks.
pub(crate) const START: f64 = 0.45;

pub(crate) const ROUND: f64 = 0.08;

pub(crate) const TASK: f64 = 0.015;

/// A pair that is counted by one process: 50 M rows.
pub(crate) const COUNT: f64 = 28e-9;

/// A row that is dealt, and a pair that is summed: 50 M rows.
pub(crate) const DEAL: f64 = 35e-9;

pub(crate) const SUM: f64 = 55e-9;

/// A sum that is added to others, and a non-zero that is made of one: 50 M rows.
pub(crate) const ADD: f64 = 40e-9;

pub(crate) const FINISH: f64 = 70e-9;

/// A non-zero of a matrix that is cut into units: one model of 10 M non-zeros.
pub(crate) const CUT: f64 = 90e-9;

/// A fit of a model, however small that is: 1,000 partitions.
pub(crate) const FIT: f64 = 2e-3;

/// A non-zero that is written, and a model: one model of 10 M non-zeros, 1,000 partitions.
pub(crate) const WRITE: f64 = 110e-9;

pub(crate) const WRITE_MODEL: f64 = 0.4e-3;

/// Bytes in the store of a row that was dealt, a sum, a non-zero of a matrix, and a state of a fit, for each latent state more.
pub(crate) const OF_A_ROW: u64 = 24;

pub(crate) const OF_A_SUM: u64 = 20;

pub(crate) const OF_A_NONZERO: u64 = 5;

/// Tasks that fits are packed into, unless a model is larger than such a share of all non-zeros.
pub(crate) const FITS: u64 = 128;

impl Job {
    /// Stages on one machine of so many threads, where everything fits its memory.
    pub fn here(&self, threads: u64, store: Option<f64>) -> Vec<Step> {
        let (threads, out) = (threads as f64, self.nonzeros.saturating_mul(OF_A_NONZERO));
        let step = |name, seconds: f64, bytes: u64| Step {
            name,
            tasks: 1,
            seconds: seconds / threads + store.map_or(0.0, |store| bytes as f64 / store),
            bytes,
        };
        vec![
            step("count", COUNT * self.pairs as f64, self.bytes),
            step("fit", self.fit(), 0),
            step("write", self.write(), out),
        ]
    }

    pub(crate) fn fit(&self) -> f64 {
        let fits = self.fits.saturating_mul(self.models);
        self.fit_seconds * self.nonzeros as f64 + FIT * fits as f64
    }

    pub(crate) fn write(&self) -> f64 {
        WRITE * self.nonzeros as f64 + WRITE_MODEL * self.models as f64
    }

    /// Rounds on a cluster, and the tables, which this machine writes with so many threads.
    pub fn there(&self, machines: &Machines, threads: u64) -> Vec<Step> {
        let vcores = (machines.slots / machines.executors.max(1)).max(1);
        let (rows, pairs, nonzeros) = (self.rows as f64, self.pairs as f64, self.nonzeros);
        let dealt = self.rows.saturating_mul(OF_A_ROW);
        let of_sums = |sums: u64| sums.saturating_mul(OF_A_SUM);
        let matrices = nonzeros.saturating_mul(OF_A_NONZERO);
        let of_states = self.states.saturating_mul(self.state_bytes);
        let models = self.models.saturating_mul(of_states);
        let mut steps = vec![Step {
            name: "start",
            tasks: 0,
            seconds: START,
            bytes: 0,
        }];
        let mut round = |name, tasks, cores_of_a_task, seconds, bytes: &[u64]| {
            let bytes = bytes
                .iter()
                .fold(0, |all: u64, &some| all.saturating_add(some));
            steps.push(machines.round(name, tasks, cores_of_a_task, seconds, bytes));
        };
        match self.width {
            None => round("count", 1, vcores, COUNT * pairs, &[self.bytes, matrices]),
            Some(Width { slices, lots }) => {
                let (readers, read) = match self.is_dealt {
                    true => {
                        round("deal", slices, 1, DEAL * rows, &[self.bytes, dealt]);
                        (lots, dealt)
                    }
                    false => (slices, self.bytes),
                };
                // At worst each of those who sum has all pairs.
                let sums = self.pairs.min(nonzeros.saturating_mul(readers));
                round("sum", readers, 1, SUM * pairs, &[read, of_sums(sums)]);
                let (add, finish) = (ADD * sums as f64, FINISH * nonzeros as f64);
                match self.is_whole {
                    true => {
                        let both = [of_sums(sums), of_sums(nonzeros)];
                        if readers > 1 {
                            round("add", lots, 1, add, &both);
                        }
                        round("count", 1, 1, finish, &[both[1], matrices]);
                    }
                    false => {
                        round("count", lots, 1, add + finish, &[of_sums(sums), matrices]);
                    }
                }
            }
        }
        if self.passes.is_empty() {
            let tasks = self.models.min(FITS);
            round("fit", tasks, vcores, self.fit(), &[matrices, models]);
        } else {
            // By source and by target.
            let cut = CUT * nonzeros as f64;
            round("cut", self.models, 1, cut, &[matrices, matrices, matrices]);
            steps.push(self.passed(machines));
        }
        let bytes = matrices.saturating_add(models).saturating_add(matrices);
        let store = machines.store.map_or(0.0, |store| bytes as f64 / store);
        steps.push(Step {
            name: "write",
            tasks: 1,
            seconds: self.write() / threads as f64 + store,
            bytes,
        });
        steps
    }
}

impl Machines {
    /// So many tasks that take so many seconds of a core together, each of which can use so many.
    pub(crate) fn round(
        &self,
        name: &'static str,
        tasks: u64,
        cores_of_a_task: u64,
        seconds: f64,
        bytes: u64,
    ) -> Step {
        let cores = tasks.saturating_mul(cores_of_a_task);
        let cores = cores.min(self.slots).max(1) as f64;
        let at_once = tasks.min(self.executors).max(1) as f64;
        let store = self
            .store
            .map_or(0.0, |store| bytes as f64 / store / at_once);
        let turns = tasks.div_ceil(self.slots.max(1)) as f64;
        Step {
            name,
            tasks,
            seconds: ROUND + turns * TASK + seconds / cores + store,
            bytes,
        }
    }
}

/// Rounds that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Passes {
    pub rounds: u64,
    /// Passes in a round: of restarts that go on side by side.
    pub at_once: u64,
    /// Numbers that a pass sends for each state, and as many come back.
    pub columns: u64,
}

/// Non-zeros of a unit: not too few to be worth a task, and not too many for one.
pub(crate) const SMALLEST: u64 = 1 << 16;

pub(crate) const LARGEST: u64 = 1 << 24;

/// Units of each side of a matrix: one for each task that there can be at once, unless they were too small or too large.
pub fn n_units(nonzeros: u64, slots: u64) -> u64 {
    let worth = slots.min(nonzeros.div_ceil(SMALLEST));
    worth.max(nonzeros.div_ceil(LARGEST)).max(1)
}
