//! Memory needs of a run over sequences: an upper bound before a row is read, and the need of each
//! partition once its windows are counted.

use crate::assess::hmm_distances::drawn_bytes;
use crate::error::counted;
use crate::evidence::symbols::triples::TripleSize;
use crate::methods::estimator::Estimator;
use crate::methods::hmm::params::{Refine, SpectralHmm};
use crate::output::number::grouped;
use crate::plan::kind::Shown;
use crate::plan::memory::{Lack, Needs, RESIDENT, own_bytes};
use crate::plan::symbols::SymbolsPlan;
use crate::read::lake::statistics::Bounds;
use serde_json::json;

/// Bytes per different window of one symbol, one symbol and one symbol while windows are counted.
const WINDOW_BYTES: u64 = 24;

/// Additional bytes per window of longer words, which are numbered.
const WORD_BYTES: u64 = 8;

/// Bytes per different window of a fit: a word, a count and a pair of words.
const TRIPLE_BYTES: u64 = 28;

/// Bytes per row that is kept for the Baum–Welch algorithm: a symbol.
const SYMBOL_BYTES: u64 = 4;

impl SymbolsPlan {
    /// The upper bounds of a run. None if the number of rows is not known.
    pub(crate) fn needs(&self, bounds: Bounds, threads: usize) -> Option<Shown> {
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
        let own = own_bytes(threads);
        // The rows of a given model say how large it is; what it draws is known before.
        let given = self.fits.iter().filter_map(|fit| fit.method.given());
        let most = usize::try_from(symbols).unwrap_or(usize::MAX);
        let given = given.map(|own| drawn_bytes(own, most));
        let spectral = self.spectral();
        let spectral = spectral.map(|fit| needed(fit, size, threads as u64));
        let resident = own.saturating_add(spectral.chain(given).max().unwrap_or(0));
        let needs = Needs {
            count_bytes: own.saturating_add(held.saturating_mul(per_window)),
            fit_bytes: resident.saturating_add(triples.saturating_mul(TRIPLE_BYTES)),
            resident_bytes: resident,
        };
        let size = Shown {
            text: counted(grouped(triples as f64), "different window"),
            json: json!({"triples": triples}),
        };
        Some(needs.shown(bounds, "symbol", size))
    }

    /// What the fit that needs most for the windows of one partition lacks within a memory limit.
    pub(crate) fn lacking(
        &self,
        size: TripleSize,
        threads: usize,
        limit: Option<usize>,
    ) -> Option<Lack> {
        let fits = self.fits.iter().filter_map(|fit| {
            let method = fit.method.spectral()?;
            Some((&fit.name, method.rank, needed(method, size, threads as u64)))
        });
        let (fit, rank, bytes) = fits.max_by_key(|(_, _, bytes)| *bytes)?;
        let evidence = format!(
            "{RESIDENT} for {}, {}, rank {rank}",
            counted(size.symbols, "symbol"),
            counted(size.triples, "triple"),
        );
        let less = "lower the rank, or raise `min_count`";
        Lack::of(fit, bytes, &evidence, less, threads, limit)
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
