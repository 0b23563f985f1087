//! Memory needs of a run: upper bounds from file statistics before a row is read, and exact needs
//! of the fits once the rows are counted.

use crate::error::{Error, Result, counted};
use crate::evidence::counts::Size;
use crate::memory::{self, machine};
use crate::methods::estimator::Ranked;
use crate::output::number::grouped;
use crate::plan::counts::CountsPlan;
use crate::plan::fits::PlannedFit;
use crate::plan::kind::Shown;
use crate::read::lake::statistics::Bounds;
use serde::Serialize;
use serde_json::{Value, json};

/// Upper bounds, in bytes, of a run that counts rows before it fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Needs {
    /// Memory to count the rows.
    pub(crate) count_bytes: u64,
    /// Memory to fit the models.
    pub(crate) fit_bytes: u64,
    /// The part of `fit_bytes` that a fit accesses at random, so that it cannot be on disk.
    pub(crate) resident_bytes: u64,
}

impl Needs {
    /// The lines of a plan. `bounds` are on rows, partitions and what `noun` names; `size` is that
    /// of the counts.
    pub(crate) fn shown(&self, bounds: Bounds, noun: &str, size: Shown) -> Shown {
        let mut json = json!(bounds);
        for part in [size.json, json!(self)] {
            if let (Value::Object(json), Value::Object(part)) = (&mut json, part) {
                json.extend(part);
            }
        }
        let states = match bounds.states {
            Some(states) => counted(states, noun),
            None => format!("an unknown number of {noun}s"),
        };
        let text = format!(
            "  memory count at most {}, fit at most {}, of which {} must be in memory; for {} and {states}\n  size   at most {}",
            shown(self.count_bytes),
            shown(self.fit_bytes),
            shown(self.resident_bytes),
            counted(bounds.rows.unwrap_or(0), "row"),
            size.text
        );
        Shown { text, json }
    }
}

/// A number of bytes as text.
pub(crate) fn shown(bytes: u64) -> String {
    memory::shown(bytes as usize)
}

/// The bytes that the process takes in any case.
pub(crate) fn own_bytes(threads: usize) -> u64 {
    memory::least(threads) as u64
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

/// Why a need cannot be met by the disk.
pub(crate) const RESIDENT: &str = "in memory (this part cannot be on disk)";

/// A need that exceeds the memory limit.
#[derive(Debug)]
pub(crate) struct Lack {
    /// The smallest limit in bytes that is enough.
    pub(crate) wanted: u64,
    /// Says so, and what else helps.
    pub(crate) error: Error,
}

impl Lack {
    /// What a fit lacks if it needs `bytes` beside those of the process. `evidence` says what for,
    /// and `less` what lowers the need. None if there is no limit or the limit is enough.
    pub(crate) fn of(
        fit: &str,
        bytes: u64,
        evidence: &str,
        less: &str,
        threads: usize,
        limit: Option<usize>,
    ) -> Option<Lack> {
        let (limit, wanted) = (limit? as u64, own_bytes(threads).saturating_add(bytes));
        let error = || {
            let (least, limit) = (shown(wanted), shown(limit));
            let threads = counted(threads, "thread");
            Error::spec(format!(
                "fit `{fit}` needs {least} {evidence} and {threads}; --memory is {limit}: give at least {least}, {less}"
            ))
        };
        (wanted > limit).then(|| Lack {
            wanted,
            error: error(),
        })
    }

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

/// The size of all stored matrices, within the memory of this machine if the system reports it.
fn size(nonzeros: u64, machine: Option<u64>) -> Shown {
    let bytes = nonzeros.saturating_mul(NONZERO_BYTES);
    let fits = match machine {
        None => String::new(),
        Some(all) if bytes <= all => format!(
            "; they fit into the {} of this machine: one process is enough",
            shown(all)
        ),
        Some(all) => format!(
            "; this machine has {}: use --memory or --cluster",
            shown(all)
        ),
    };
    Shown {
        text: format!(
            "{}, {} at {NONZERO_BYTES} bytes each{fits}",
            counted(grouped(nonzeros as f64), "non-zero"),
            shown(bytes)
        ),
        json: json!({"nonzeros": nonzeros, "nonzero_bytes": bytes, "machine_bytes": machine}),
    }
}

impl CountsPlan {
    /// An upper bound of the number of pairs of rows. None if the number of rows is unbounded.
    fn most_pairs(&self, bounds: Bounds) -> Option<u64> {
        Some(bounds.rows?.saturating_mul(self.lags.len().max(1) as u64))
    }

    /// An upper bound of the number of non-zeros of all models together. None if the number of rows
    /// is unbounded.
    pub(crate) fn most_nonzeros(&self, bounds: Bounds) -> Option<u64> {
        let pairs = self.most_pairs(bounds)?;
        let states = bounds.states.unwrap_or(u64::MAX).min(pairs);
        // Each partition and lag has its own matrix.
        let models = bounds.partitions.unwrap_or(u64::MAX);
        let models = models.saturating_mul(self.lags.len().max(1) as u64);
        Some(pairs.min(states.saturating_mul(states).saturating_mul(models)))
    }

    /// The upper bounds of a run. None if the number of rows is unbounded.
    pub(crate) fn needs(&self, bounds: Bounds, threads: usize) -> Option<Shown> {
        let (pairs, nonzeros) = (self.most_pairs(bounds)?, self.most_nonzeros(bounds)?);
        let states = bounds.states.unwrap_or(u64::MAX).min(pairs);
        // With resampling, each group has its own matrix, too.
        let (held, copies) = match self.layout.grouping {
            Some(_) => (pairs, 2 + threads as u64),
            None => (nonzeros, 1),
        };
        let counted = match self.layout.evidence.weight() {
            None => held * PAIR_BYTES,
            Some(_) => pairs * (PAIR_BYTES + WEIGHT_BYTES),
        };
        let of_model = Size {
            sources: states,
            targets: states,
            nonzeros: held,
        };
        let own = own_bytes(threads);
        let resident = own + self.resident(of_model, threads);
        let fitted = if self.has_fits() { held } else { 0 };
        let needs = Needs {
            count_bytes: own + counted,
            fit_bytes: resident + copies * fitted * FIT_NONZERO_BYTES,
            resident_bytes: resident,
        };
        Some(needs.shown(bounds, "state", size(nonzeros, machine::all())))
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
        let embeddings = self.embeddings.iter();
        let embeddings = embeddings.map(|fit| (&fit.name, None, fit.method.bytes(size)));
        let fits = self.fits.iter().map(|fit| {
            let bytes = fit.method.bytes(size, threads as u64);
            (&fit.name, fit.method.rank(), bytes)
        });
        let all = fits.chain(embeddings);
        let (name, rank, bytes) = all.max_by_key(|(_, _, bytes)| *bytes)?;
        let evidence = format!(
            "{RESIDENT} for {}, {}{}",
            counted(size.sources, "source"),
            counted(size.targets, "target"),
            rank.map_or(String::new(), |rank| format!(", rank {rank}")),
        );
        let less = "lower the rank, or use fewer --threads";
        Lack::of(name, bytes, &evidence, less, threads, bound)
    }

    /// Checks that the fits work within a memory limit.
    ///
    /// # Errors
    /// If the limit is too small: the fit, its sizes and the smallest limit that works.
    pub(crate) fn check_memory(
        &self,
        size: Size,
        threads: usize,
        bound: Option<usize>,
    ) -> Result<()> {
        Lack::none(self.lacking(size, threads, bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Method;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::spectral::svd::Svd;

    #[test]
    fn one_process_is_enough_while_the_nonzeros_fit_into_memory() {
        let bounds = Bounds {
            rows: Some(50_000_000),
            states: Some(100_000),
            partitions: Some(1),
        };
        let needs = Needs {
            count_bytes: 968_000_000,
            fit_bytes: 1_394_000_000,
            resident_bytes: 194_000_000,
        };
        let with = |machine| {
            let size = super::size(50_000_000, machine);
            needs.shown(bounds, "state", size).text
        };
        let page = include_str!("../guide/memory.md");
        let enough = with(Some(24_000_000_000));
        assert!(
            page.contains(&format!("```text\n{enough}\n```")),
            "{enough}"
        );
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
        let resident = |method: Method| method.bytes(size, 2);
        assert_eq!(resident(Method::Dbmr(Dbmr::new(5))), 176_000);
        assert_eq!(resident(Method::Svd(Svd::new(5))), 312_000);
        let one = Dbmr {
            restarts: 1,
            ..Dbmr::new(5)
        };
        assert_eq!(resident(Method::Dbmr(one)), 88_000);
    }
}
