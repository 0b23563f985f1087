//! Memory needs of a run: upper bounds from file statistics before a row is read, and exact needs
//! of the fits once the rows are counted.

use crate::error::counted;
use crate::error::{Error, Result};
use crate::evidence::counts::Size;
use crate::memory::machine;
use crate::methods::estimator::Ranked;
use crate::output::number::grouped;
use crate::plan::counts::CountsPlan;
use crate::plan::fits::PlannedFit;
use crate::read::lake::statistics::Bounds;
use crate::read::rows::layout::RowRoles;
use serde::Serialize;

/// Upper bounds. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Needs {
    /// The bounds on rows, states and partitions.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// The number of non-zeros of all models together.
    pub nonzeros: u64,
    /// The size of all stored matrices.
    pub nonzero_bytes: u64,
    /// The memory of this machine, if the system reports it.
    pub machine_bytes: Option<u64>,
    /// Memory to count the rows.
    pub count_bytes: u64,
    /// Memory to fit the models.
    pub fit_bytes: u64,
    /// The part of `fit_bytes` that a fit accesses at random, so that it cannot be on disk.
    pub resident_bytes: u64,
}

/// Bytes per pair while pairs are counted. Measured, with the spare room of growing lists: 15 bytes
/// at 36.7 million pairs.
const PAIR_BYTES: u64 = 16;
/// Additional bytes per pair with a weight.
const WEIGHT_BYTES: u64 = 16;

/// Bytes per non-zero of a stored matrix: an index of 4 bytes and a value of at most 8. If the
/// matrix fits into the memory of one machine, a cluster is not needed.
const NONZERO_BYTES: u64 = 12;

/// Bytes per non-zero while a model is fitted: the matrix by source and by target, each with an
/// index and a count, and the buffers of the transposition. Measured: 21 bytes.
const FIT_NONZERO_BYTES: u64 = 24;

/// A need that exceeds the memory limit.
#[derive(Debug)]
pub struct Lack {
    /// The smallest limit in bytes that is enough.
    pub(crate) wanted: u64,
    /// Says so, and what else helps.
    pub(crate) error: Error,
}

impl Lack {
    /// The same with the place of the need.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Lack {
        Lack {
            error: self.error.at(place),
            ..self
        }
    }

    /// Checks that there is no need that exceeds the limit.
    ///
    /// # Errors
    /// That of the largest need: a limit that is enough for it is enough for all.
    pub(crate) fn none(all: impl IntoIterator<Item = Lack>) -> Result<()> {
        let larger = |a: Lack, b: Lack| if b.wanted > a.wanted { b } else { a };
        all.into_iter()
            .reduce(larger)
            .map_or(Ok(()), |lack| Err(lack.error))
    }
}

impl CountsPlan {
    /// The upper bounds of a run; none if the number of rows is unbounded.
    pub fn needs(&self, bounds: Bounds, threads: usize) -> Option<Needs> {
        let rows = bounds.rows?;
        let lags = match &self.layout.evidence {
            RowRoles::Trajectories { .. } => self.lags.len() as u64,
            RowRoles::Windows { .. } | RowRoles::Pairs { .. } => 1,
        };
        let pairs = rows.saturating_mul(lags);
        let states = bounds.states.unwrap_or(u64::MAX).min(pairs);
        // Each partition and lag has its own matrix.
        let models = bounds.partitions.unwrap_or(u64::MAX).saturating_mul(lags);
        let nonzeros = pairs.min(states.saturating_mul(states).saturating_mul(models));
        // With resampling, each group has its own matrix, too.
        let held = match self.layout.grouping {
            Some(_) => pairs,
            None => nonzeros,
        };
        let counted = match self.layout.evidence.weight() {
            None => held * PAIR_BYTES,
            Some(_) => pairs * (PAIR_BYTES + WEIGHT_BYTES),
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
        let fitted = if self.has_fits() { held } else { 0 };
        Some(Needs {
            bounds,
            nonzeros,
            nonzero_bytes: nonzeros.saturating_mul(NONZERO_BYTES),
            machine_bytes: machine::all(),
            count_bytes: own + counted,
            fit_bytes: own + resident + copies * fitted * FIT_NONZERO_BYTES,
            resident_bytes: own + resident,
        })
    }

    /// The bytes that the fits of a model access at random.
    fn resident(&self, size: Size, threads: usize) -> u64 {
        let of = |fit: &PlannedFit| fit.method.bytes(size, threads as u64);
        let fits = self.fits.iter().map(of);
        let embeddings = self.embeddings.iter().map(|fit| fit.method.bytes(size));
        fits.chain(embeddings).max().unwrap_or(0)
    }

    /// What the fits lack within a memory limit. Without it, each access would read the disk.
    pub(crate) fn lacking(&self, size: Size, threads: usize, bound: Option<usize>) -> Option<Lack> {
        let bound = bound?;
        let own = crate::memory::least(threads) as u64;
        let embeddings = self.embeddings.iter();
        let embeddings = embeddings.map(|fit| (&fit.name, None, fit.method.bytes(size)));
        let fits = self.fits.iter().map(|fit| {
            let bytes = fit.method.bytes(size, threads as u64);
            (&fit.name, fit.method.rank(), bytes)
        });
        let all = fits.chain(embeddings);
        let (name, rank, bytes) = all.max_by_key(|(_, _, bytes)| *bytes)?;
        let wanted = own + bytes;
        if wanted <= bound as u64 {
            return None;
        }
        let error = Error::spec(format!(
            "fit `{}` needs {} that cannot be on disk, for {}, {}{} and {}; --memory is {}: give at least {}, lower the rank, or use fewer --threads",
            name,
            crate::memory::shown(wanted as usize),
            counted(size.sources, "source"),
            counted(size.targets, "target"),
            rank.map_or(String::new(), |rank| format!(", rank {rank}")),
            counted(threads, "thread"),
            crate::memory::shown(bound),
            crate::memory::shown(wanted as usize),
        ));
        Some(Lack { wanted, error })
    }

    /// Checks that the fits work within a memory limit.
    ///
    /// # Errors
    /// If the limit is too small: the fit, its sizes and the smallest limit that works.
    pub fn check_memory(&self, size: Size, threads: usize, bound: Option<usize>) -> Result<()> {
        Lack::none(self.lacking(size, threads, bound))
    }
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |bytes: u64| crate::memory::shown(bytes as usize);
        write!(
            f,
            "  memory count at most {}, fit at most {}, of which {} cannot be on disk; for {}",
            shown(self.count_bytes),
            shown(self.fit_bytes),
            shown(self.resident_bytes),
            counted(self.bounds.rows.unwrap_or(0), "row"),
        )?;
        match self.bounds.states {
            Some(states) => writeln!(f, " and {}", counted(states, "state"))?,
            None => writeln!(f, " and an unknown number of states")?,
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

    // 1,000 targets and 2,000 sources, rank 5 padded to 8: two restarts have
    // 2 · (1000 · 8 · 8 + 2000 · 12) bytes, and an SVD has panels of 3,000 · (8 + 5) numbers.
    #[test]
    fn factors_of_restarts_and_panels_cannot_wait() {
        let size = Size {
            sources: 2000,
            targets: 1000,
            nonzeros: 1 << 40,
        };
        let resident = |method: Method| {
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
