//! What memory the stages of a run want: at most, from what the statistics of files say before a row
//! is read, and for sure, once rows are counted.

use crate::error::counted;
use crate::error::{Error, Result};
use crate::evidence::counts::Size;
use crate::memory::machine;
use crate::output::number::grouped;
use crate::plan::Plan;
use crate::plan::fits::PlannedFit;
use crate::read::lake::statistics::Bounds;
use crate::read::rows::layout::RowRoles;
use serde::Serialize;

/// Upper bounds; sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Needs {
    /// What the bounds say.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// Of all models together.
    pub nonzeros: u64,
    pub nonzero_bytes: u64,
    /// The memory of this machine, where the system reports it.
    pub machine_bytes: Option<u64>,
    /// While rows are counted.
    pub count_bytes: u64,
    /// While models are fitted.
    pub fit_bytes: u64,
    /// What a fit uses all over at once, so that it cannot wait on disk.
    pub resident_bytes: u64,
}

/// A pair while it is counted, and what a weight takes beside it. Measured with room for how lists grow: 36.7 M pairs took 15 bytes each.
const OF_A_PAIR: u64 = 16;
const OF_A_WEIGHT: u64 = 16;

/// A non-zero of a matrix at rest: an index of 4 bytes, and a value of at most 8. While these fit into
/// the memory of one machine, a cluster is not needed.
const NONZERO_BYTES: u64 = 12;

/// A non-zero while it is fitted: the matrix by source and by target, in two indices and two counts, and what makes one from the other.
/// Measured: 21 bytes.
const OF_A_NONZERO: u64 = 24;

impl Plan {
    /// What a run will want at most; nothing where nothing bounds its rows.
    pub fn needs(&self, bounds: Bounds, threads: usize) -> Option<Needs> {
        let rows = bounds.rows?;
        let (of_a_row, of_a_weight) = match &self.layout.evidence {
            RowRoles::Trajectories { weight, .. } => {
                (self.lags.len() as u64, u64::from(weight.is_some()))
            }
            RowRoles::Pairs { .. } => (1, u64::from(self.layout.evidence.weight().is_some())),
        };
        let pairs = rows.saturating_mul(of_a_row);
        let states = bounds.states.unwrap_or(u64::MAX).min(pairs);
        // Partitions and lags have pairs of their own.
        let models = bounds.partitions.unwrap_or(u64::MAX);
        let models = models.saturating_mul(of_a_row);
        let nonzeros = pairs.min(states.saturating_mul(states).saturating_mul(models));
        // So have groups.
        let held = match self.layout.grouping {
            Some(_) => pairs,
            None => nonzeros,
        };
        let counted = match of_a_weight {
            0 => held * OF_A_PAIR,
            _ => pairs * (OF_A_PAIR + OF_A_WEIGHT),
        };
        let own = crate::memory::least(threads) as u64;
        let size = Size {
            sources: states,
            targets: states,
            nonzeros: held,
        };
        let resident = self.resident(size, threads);
        let copies = match self.layout.grouping {
            Some(_) => 2 + threads as u64,
            None => 1,
        };
        Some(Needs {
            bounds,
            nonzeros,
            nonzero_bytes: nonzeros.saturating_mul(NONZERO_BYTES),
            machine_bytes: machine::all(),
            count_bytes: own + counted,
            fit_bytes: own + resident + copies * held * OF_A_NONZERO,
            resident_bytes: own + resident,
        })
    }

    /// What the fits of a model use all over at once, in bytes, when they have so many threads.
    fn resident(&self, size: Size, threads: usize) -> u64 {
        let of = |fit: &PlannedFit| fit.method.bytes(size, threads as u64);
        self.fits.iter().map(of).max().unwrap_or(0)
    }

    /// Refuses fits that cannot work within the bound on memory: what they use all over would come from the disk again and again.
    ///
    /// # Errors
    /// Names the fit, its numbers and the least bound.
    pub fn check_memory(&self, size: Size, threads: usize, bound: Option<usize>) -> Result<()> {
        let Some(bound) = bound else {
            return Ok(());
        };
        let own = crate::memory::least(threads) as u64;
        for fit in &self.fits {
            let wanted = own + fit.method.bytes(size, threads as u64);
            if wanted > bound as u64 {
                return Err(Error::spec(format!(
                    "fit `{}` uses {} all over at once, for {}, {}{} and {}; --memory is {}: give at least {}, lower the rank, or take fewer --threads",
                    fit.name,
                    crate::memory::shown(wanted as usize),
                    counted(size.sources, "source"),
                    counted(size.targets, "target"),
                    fit.method
                        .rank()
                        .map_or(String::new(), |rank| format!(", rank {rank}")),
                    counted(threads, "thread"),
                    crate::memory::shown(bound),
                    crate::memory::shown(wanted as usize),
                )));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |bytes: u64| crate::memory::shown(bytes as usize);
        write!(
            f,
            "  memory count at most {}, fit at most {}, {} of it all over at once; for {}",
            shown(self.count_bytes),
            shown(self.fit_bytes),
            shown(self.resident_bytes),
            counted(self.bounds.rows.unwrap_or(0), "row"),
        )?;
        match self.bounds.states {
            Some(states) => writeln!(f, " and {}", counted(states, "state"))?,
            None => writeln!(f, " of as many states")?,
        }
        let nonzeros = counted(grouped(self.nonzeros as f64), "non-zero");
        let bytes = shown(self.nonzero_bytes);
        write!(
            f,
            "  size   at most {nonzeros}, {bytes} at {NONZERO_BYTES} bytes each"
        )?;
        match self.machine_bytes {
            None => Ok(()),
            Some(all) if self.nonzero_bytes <= all => {
                let all = shown(all);
                write!(
                    f,
                    "; they fit into the {all} of this machine: one process is enough"
                )
            }
            Some(all) => {
                let all = shown(all);
                write!(f, "; this machine has {all}: use --memory or --cluster")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Method;
    use crate::plan::fits::Ranks;

    #[test]
    fn one_process_is_enough_while_the_nonzeros_fit_into_memory() {
        let needs = Needs {
            bounds: Bounds {
                rows: Some(50_000_000),
                states: Some(100_000),
                partitions: Some(1),
            },
            nonzeros: 50_000_000,
            nonzero_bytes: 600_000_000,
            machine_bytes: Some(24_000_000_000),
            count_bytes: 968_000_000,
            fit_bytes: 1_394_000_000,
            resident_bytes: 194_000_000,
        };
        let page = include_str!("../guide/memory.md");
        assert!(page.contains(&format!("```text\n{needs}\n```")), "{needs}");
        let with = |machine_bytes| {
            let needs = Needs {
                machine_bytes,
                ..needs
            };
            needs.to_string()
        };
        let more = with(Some(599_000_000));
        assert!(more.ends_with("; this machine has 599MB: use --memory or --cluster"));
        assert!(with(None).ends_with(" 600MB at 12 bytes each"));
    }

    // 1,000 targets and 2,000 sources, rank 5 padded to 8: two restarts have 2 · (1000 · 8 · 8 + 2000 · 12) bytes, and an SVD panels of
    // 3,000 · (8 + 5) numbers.
    #[test]
    fn factors_of_restarts_and_panels_cannot_wait() {
        let size = Size {
            sources: 2000,
            targets: 1000,
            nonzeros: 1 << 40,
        };
        let resident = |method| {
            let fit = PlannedFit {
                name: "fit".into(),
                method,
                ranks: Ranks::One,
            };
            fit.method.bytes(size, 2)
        };
        assert_eq!(
            resident(Method::Dbmr(crate::methods::dbmr::params::Dbmr::new(5))),
            176_000
        );
        assert_eq!(
            resident(Method::Svd(crate::methods::spectral::svd::Svd::new(5))),
            312_000
        );
        let one = crate::methods::dbmr::params::Dbmr {
            restarts: 1,
            ..crate::methods::dbmr::params::Dbmr::new(5)
        };
        assert_eq!(resident(Method::Dbmr(one)), 88_000);
    }
}
