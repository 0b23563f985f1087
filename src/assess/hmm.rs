//! Certificates of spectral hidden Markov models: facts about moments and operators (Kulesza, Rao,
//! Singh, *Low-rank spectral learning*, (5) and Lemma 1), checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::hmm::params::Scaling;
use crate::methods::hmm::project::Projection;

/// The largest relative error by rounding of a sum over triples.
const ROUNDING: f64 = 1e-10;

/// The certificates of the model of a rank, ordered by name.
pub fn certificates(projection: &Projection, rank: usize) -> Vec<Certificate> {
    let checked = &projection.checked;
    let found = projection.diagnostics(rank);
    // A row of W is as large as 1/σ_k.
    let amplified = ROUNDING / found.last_kept.min(1.0);
    let [triples, pairs] = checked.totals;
    let rounded = if checked.is_integral {
        0.0
    } else {
        ROUNDING * triples
    };
    let gap = checked.last[..rank.min(checked.last.len())].iter();
    let gap = gap.map(|[a, b]| (a - b).abs()).fold(0.0, f64::max);
    let [sum, magnitude] = checked.sum;
    let mut list = vec![
        Certificate::equal("counts", triples, pairs, rounded),
        Certificate::at_most("final_vector", gap, 0.0, amplified),
        Certificate::at_most("sum_of_operators", sum, 0.0, ROUNDING * magnitude),
    ];
    if projection.scaling == Scaling::Cca {
        let normalisation = found.normalisation_gap;
        list.push(Certificate::at_most(
            "first_step",
            checked.first_step,
            0.0,
            ROUNDING,
        ));
        list.push(Certificate::at_most(
            "normalisation",
            normalisation,
            0.0,
            amplified,
        ));
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}
