//! Certificates of spectral hidden Markov models: facts about moments and operators (Kulesza, Rao,
//! Singh, *Low-rank spectral learning*, (5) and Lemma 1), checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::hmm::params::Scaling;
use crate::methods::hmm::project::Projection;

/// The largest relative error by rounding of a short sum.
const ROUNDING: f64 = 1e-10;

/// The largest relative error by rounding of a sum of `terms` terms.
fn rounding(terms: usize) -> f64 {
    ROUNDING.max(terms as f64 * f64::EPSILON)
}

/// The certificates of the model of a rank, ordered by name.
pub(crate) fn certificates(projection: &Projection, rank: usize) -> Vec<Certificate> {
    let checked = &projection.checked;
    let found = projection.diagnostics(rank);
    let rounding = rounding(checked.terms);
    let residuals = projection.residuals.iter().take(rank);
    let largest = residuals.copied().fold(0.0, f64::max);
    // A row of W is as large as 1/σ_k, and has the error of the vectors.
    let amplified = rounding / found.last_kept.min(1.0);
    let of_vectors = checked.ones * largest / found.last_kept;
    let [triples, pairs] = checked.totals;
    let rounded = if checked.is_integral {
        0.0
    } else {
        rounding * triples
    };
    let gap = checked.last[..rank.min(checked.last.len())].iter();
    let gap = gap.map(|[a, b]| (a - b).abs()).fold(0.0, f64::max);
    let [sum, magnitude] = checked.sum;
    let mut list = vec![
        Certificate::equal("counts", triples, pairs, rounded),
        Certificate::at_most("final_vector", gap, 0.0, amplified + of_vectors),
        Certificate::at_most("sum_of_operators", sum, 0.0, rounding * magnitude),
    ];
    if projection.scaling == Scaling::Cca {
        let (first_step, normalisation) = (checked.first_step, found.normalisation_gap);
        list.extend([
            Certificate::at_most("first_step", first_step, 0.0, rounding),
            Certificate::at_most("normalisation", normalisation, 0.0, amplified),
        ]);
    }
    let residual = Certificate::at_most("residual", largest, projection.largest_residual(), 0.0);
    list.push(residual.if_made(projection.converged));
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The certificate that no iteration of the Baum–Welch algorithm lowers the log-likelihood of
/// `symbols` symbols. None for fewer than two values.
pub(crate) fn of_trace(trace: &[f64], symbols: usize) -> Option<Certificate> {
    let falls = trace.windows(2).map(|pair| pair[0] - pair[1]);
    let largest = falls.max_by(f64::total_cmp)?;
    let magnitude = trace.iter().map(|l| l.abs()).fold(0.0, f64::max);
    // The logarithm of a number near 1 has an error of its own size.
    let tolerance = rounding(symbols) * (magnitude + symbols as f64);
    Some(Certificate::at_most("climb", largest, 0.0, tolerance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::certificates::certified;
    use crate::evidence::pass::Passes;
    use crate::evidence::symbols::triples::Triples;
    use crate::methods::hmm::params::SpectralHmm;
    use crate::methods::hmm::project::project;

    // Any counts have these identities.
    #[test]
    fn counts_are_certified_at_every_rank() {
        let symbols: Vec<u32> = (0..200_u32).map(|t| (t * t / 3 + t / 7) % 5).collect();
        let list = symbols.windows(3).map(|w| (w[0], w[1], w[2], 1.0));
        let triples = Triples::new(1, 5, Triples::symbols_as_words(5), list.collect());
        for scaling in [Scaling::Cca, Scaling::None] {
            let params = SpectralHmm {
                scaling,
                ..SpectralHmm::new(3)
            };
            let found = project(&params, 3, &triples, &Passes::local(), 1).expect("operators");
            for rank in 1..=3 {
                let list = certificates(&found, rank);
                assert!(certified(&list), "{list:?}");
                let n = if scaling == Scaling::Cca { 6 } else { 4 };
                assert_eq!(list.len(), n);
            }
            let mut wrong = found.clone();
            wrong.checked.totals[1] += 1.0;
            assert!(!certified(&certificates(&wrong, 2)));
        }
    }

    #[test]
    fn a_fall_of_the_likelihood_is_found() {
        let holds = |trace: &[f64]| of_trace(trace, 3).map(|c| c.holds);
        assert_eq!(holds(&[-9.0, -5.0, -4.0]), Some(Some(true)));
        assert_eq!(holds(&[-9.0, -5.0, -5.1]), Some(Some(false)));
        assert_eq!(holds(&[-9.0]), None);
        // Symbols that follow from each other have a log-likelihood of 0.
        assert_eq!(holds(&[-2e-16, -6e-16]), Some(Some(true)));
    }
}
