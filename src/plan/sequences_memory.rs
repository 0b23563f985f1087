//! Memory needs of a run over sequences: an upper bound before a row is read, and the need of each
//! partition once its windows are counted.

use crate::error::{Error, counted};
use crate::evidence::triples::TripleSize;
use crate::methods::estimator::Estimator;
use crate::methods::hmm::params::{Refine, SpectralHmm};
use crate::output::number::grouped;
use crate::plan::memory::Lack;
use crate::plan::sequences::SequencesPlan;
use crate::read::lake::statistics::Bounds;
use serde::Serialize;

/// Upper bounds of a run over sequences. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SequenceNeeds {
    /// The bounds on rows, symbols (`states`) and partitions.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// The number of different windows of all models together.
    pub triples: u64,
    /// Memory to count the windows.
    pub count_bytes: u64,
    /// Memory to fit the models.
    pub fit_bytes: u64,
    /// The part of `fit_bytes` that a fit accesses at random, so that it cannot be on disk.
    pub resident_bytes: u64,
}

/// Bytes per different window of one symbol, one symbol and one symbol while windows are counted.
const WINDOW_BYTES: u64 = 24;

/// Additional bytes per window of longer words, which are numbered.
const WORD_BYTES: u64 = 8;

/// Bytes per different window of a fit: a word, a count and a pair of words.
const TRIPLE_BYTES: u64 = 28;

/// Bytes per row that is kept for the Baum–Welch algorithm: a symbol.
const SYMBOL_BYTES: u64 = 4;

impl SequencesPlan {
    /// The upper bounds of a run. None if the number of rows is not known.
    pub fn needs(&self, bounds: Bounds, threads: usize) -> Option<SequenceNeeds> {
        let rows = bounds.rows?;
        let block = self.rows().block as u32;
        let symbols = bounds.states.unwrap_or(u64::MAX).min(rows);
        let words = symbols.saturating_pow(block).min(rows);
        let models = bounds.partitions.unwrap_or(u64::MAX);
        let edges = words
            .saturating_mul(symbols)
            .saturating_mul(models)
            .min(rows);
        let triples = words.saturating_mul(edges).min(rows);
        // With groups of trajectories, each group has its own counts.
        let held = match self.layout.grouping {
            Some(_) => rows,
            None => triples,
        };
        let per_window = WINDOW_BYTES + u64::from(block - 1) * 2 * WORD_BYTES;
        let size = TripleSize {
            symbols,
            words,
            edges,
            triples,
            rows,
        };
        let own = crate::memory::least(threads) as u64;
        let fits = self.fits.iter().map(|fit| fit.method.hmm());
        let resident = fits.map(|fit| needed(fit, size, threads as u64)).max();
        let resident = resident.unwrap_or(0);
        Some(SequenceNeeds {
            bounds,
            triples,
            count_bytes: own.saturating_add(held.saturating_mul(per_window)),
            fit_bytes: own
                .saturating_add(resident)
                .saturating_add(triples.saturating_mul(TRIPLE_BYTES)),
            resident_bytes: own.saturating_add(resident),
        })
    }

    /// What the fit that needs most for the windows of one partition lacks within a memory limit.
    pub(crate) fn lacking(
        &self,
        size: TripleSize,
        threads: usize,
        limit: Option<usize>,
    ) -> Option<Lack> {
        let limit = limit?;
        let fits = self.fits.iter().map(|fit| {
            let method = fit.method.hmm();
            (&fit.name, method.rank, needed(method, size, threads as u64))
        });
        let (fit, rank, bytes) = fits.max_by_key(|(_, _, bytes)| *bytes)?;
        let wanted = (crate::memory::least(threads) as u64).saturating_add(bytes);
        if wanted <= limit as u64 {
            return None;
        }
        let shown = crate::memory::shown(wanted as usize);
        let error = Error::spec(format!(
            "fit `{fit}` needs {shown} that cannot be on disk, for {}, {}, rank {rank} and {}; --memory is {}: give at least {shown}, lower the rank, or raise `min_count`",
            counted(size.symbols, "symbol"),
            counted(size.triples, "triple"),
            counted(threads, "thread"),
            crate::memory::shown(limit),
        ));
        Some(Lack { wanted, error })
    }
}

/// The bytes that a fit accesses at random, with the sequences that it reads.
fn needed(method: &SpectralHmm, size: TripleSize, threads: u64) -> u64 {
    let sequences = match method.refine {
        Refine::Em => size.rows.saturating_mul(SYMBOL_BYTES),
        Refine::None | Refine::Recover => 0,
    };
    method.bytes(size, threads).saturating_add(sequences)
}

impl std::fmt::Display for SequenceNeeds {
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
            Some(symbols) => writeln!(f, " and {}", counted(symbols, "symbol"))?,
            None => writeln!(f, " and an unknown number of symbols")?,
        }
        let triples = counted(grouped(self.triples as f64), "different window");
        write!(f, "  size   at most {triples}")
    }
}
