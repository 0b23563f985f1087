//! The distances of fits from a given model, and of the given model's own models of low rank, whose
//! moments are exact.

use crate::assess::certificates::check;
use crate::assess::hmm_bound::{ExactMoments, MomentDistance};
use crate::assess::hmm_distances::{Distance, DistanceLengths, distances, exact_length};
use crate::error::{Error, Result};
use crate::methods::hmm::given::GivenProbabilities;
use crate::methods::hmm::params::{Refine, Scaling, SpectralHmm};
use crate::output::tables::symbols::{ReferenceDistance, SymbolFit};
use crate::plan::symbols::SymbolsPlan;

/// The largest numbers of states and of symbols of a model whose own models of low rank are
/// compared with it.
const STATES: usize = 32;
const SYMBOLS: usize = 1000;

/// Adds the distances from the given model of the fit `at` to all fits of a partition, and to this
/// fit the certificates of Theorem 1.
///
/// # Errors
/// If a certificate does not hold.
pub(super) fn add(
    plan: &SymbolsPlan,
    at: usize,
    given: &GivenProbabilities,
    seed: u64,
    fits: &mut [SymbolFit],
) -> Result<()> {
    let name = &plan.fits[at].name;
    let keys = plan.fits[at].method.given();
    let keys = keys.ok_or_else(|| Error::bug("the reference is no given model"))?;
    let lengths = DistanceLengths {
        longest: keys.length,
        samples: keys.samples,
        seed,
    };
    let moments = ExactMoments::new(given);
    let row = |rank, bound, distance: Distance| ReferenceDistance {
        reference: name.clone(),
        rank,
        distance,
        bound,
    };
    for (fit, planned) in fits.iter_mut().zip(&plan.fits) {
        let Some(method) = planned.method.spectral() else {
            continue;
        };
        let hmm = &fit.model.hmm;
        let found = distances(hmm, given, lengths).into_iter().map(|own| {
            let bound = moments.bound(hmm.rank, own.length);
            row(hmm.rank, bound.filter(|_| is_plain(method)), own)
        });
        let found: Vec<ReferenceDistance> = found.collect();
        fit.model.distances.extend(found);
    }
    let own = of_moments(&moments, lengths);
    let rows = own.iter().map(|own| {
        let distance = Distance {
            length: own.length,
            distance: own.distance,
            error: None,
            samples: 0,
        };
        row(own.rank, moments.bound(own.rank, own.length), distance)
    });
    fits[at].model.distances.extend(rows);
    fits[at].certificates = moments.certificates(&own);
    check(name, &fits[at].certificates)
}

/// Whether a model is that of the paper, of which the bound speaks.
fn is_plain(method: &SpectralHmm) -> bool {
    method.scaling == Scaling::None && method.refine != Refine::Em && method.block == 1
}

/// The distances of the models of all ranks of exact moments, as far as they are sums over all
/// sequences.
fn of_moments(moments: &ExactMoments, lengths: DistanceLengths) -> Vec<MomentDistance> {
    let reference = moments.reference();
    let (states, symbols) = (reference.hidden.states(), reference.hidden.symbols());
    if states > STATES || symbols > SYMBOLS {
        return Vec::new();
    }
    let longest = exact_length(symbols, lengths.longest);
    let of_rank = |rank: usize| {
        let found = distances(
            &moments.model(rank),
            reference,
            DistanceLengths { longest, ..lengths },
        );
        found.into_iter().map(move |own| MomentDistance {
            rank,
            length: own.length,
            distance: own.distance,
        })
    };
    (1..=moments.rank()).flat_map(of_rank).collect()
}
