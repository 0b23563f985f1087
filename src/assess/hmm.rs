//! Certificates of spectral hidden Markov models: identities of the operators, checked on the
//! computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::hmm::params::Scaling;
use crate::methods::hmm::project::Projection;

/// An upper bound of the relative rounding errors of sums over triples.
const ROUNDING: f64 = 1e-9;

/// The certificates of the model of a rank, ordered by name.
pub fn of_projection(projection: &Projection, rank: usize) -> Vec<Certificate> {
    let rank = rank.clamp(1, projection.rank);
    let checked = &projection.checked;
    let [triples, pairs] = checked.totals;
    let of_totals = if checked.is_integral {
        0.0
    } else {
        ROUNDING * triples
    };
    let [gap, magnitude] = checked.sum;
    let mut list = vec![
        // Σ_x P_3x1 = P₃₁, and both have the windows of P₂₁.
        Certificate::equal("windows", triples, pairs, of_totals),
        Certificate::at_most("sum_of_operators", gap, 0.0, ROUNDING * magnitude),
    ];
    list.extend(last_vector(projection, rank));
    let residuals = projection.residuals.iter().take(rank);
    let largest = residuals.copied().fold(0.0, f64::max);
    let residual = Certificate::at_most("residual", largest, projection.largest_residual(), 0.0);
    list.push(Certificate {
        holds: residual.holds.filter(|_| projection.converged),
        ..residual
    });
    if projection.scaling == Scaling::Cca {
        let gap = projection.diagnostics(rank).normalisation_gap;
        let tolerance = ROUNDING * (1.0 + magnitude);
        list.push(Certificate::at_most("normalisation", gap, 0.0, tolerance));
        let gap = checked.first_step;
        list.push(Certificate::at_most("first_step", gap, 0.0, ROUNDING));
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// b_∞ = Uᵀ1, for the component with the largest difference beyond rounding.
///
/// 1ᵀ(P₂₁V − UΣ)Σ⁻¹ is at most √n times the residual over σ.
fn last_vector(projection: &Projection, rank: usize) -> Option<Certificate> {
    let root = (projection.n_symbols() as f64).sqrt();
    let levels = projection.spectrum.iter().zip(&projection.residuals);
    let components = projection.checked.last.iter().take(rank).zip(levels);
    components
        .map(|([left, right], (value, residual))| {
            let tolerance = ROUNDING + root * (residual + f64::EPSILON) / value;
            Certificate::equal("last_vector", *left, *right, tolerance)
        })
        .max_by(|a, b| {
            let excess = |c: &Certificate| c.slack().abs() - c.tolerance;
            excess(a).total_cmp(&excess(b))
        })
}

/// The certificate that no iteration of the Baum–Welch algorithm lowers the log-likelihood. None
/// for fewer than two values.
pub fn of_trace(trace: &[f64]) -> Option<Certificate> {
    let falls = trace.windows(2).map(|pair| pair[0] - pair[1]);
    let largest = falls.max_by(f64::total_cmp)?;
    let magnitude = trace.iter().map(|l| l.abs()).fold(0.0, f64::max);
    let tolerance = ROUNDING * magnitude;
    Some(Certificate::at_most("climb", largest, 0.0, tolerance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::certificates::certified;
    use crate::evidence::pass::Passes;
    use crate::evidence::triples::Triples;
    use crate::methods::hmm::params::SpectralHmm;
    use crate::methods::hmm::project::project;

    // 0 1 2 0 1 1 0 2 1 0 1 2 2 1 0 …: any counts have these identities.
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
                let list = of_projection(&found, rank);
                assert!(certified(&list), "{list:?}");
                let n = if scaling == Scaling::Cca { 6 } else { 4 };
                assert_eq!(list.len(), n);
            }
            let mut wrong = found.clone();
            wrong.checked.totals[1] += 1.0;
            assert!(!certified(&of_projection(&wrong, 2)));
        }
    }

    #[test]
    fn a_fall_of_the_likelihood_is_found() {
        let holds = |trace: &[f64]| of_trace(trace).map(|c| c.holds);
        assert_eq!(holds(&[-9.0, -5.0, -4.0]), Some(Some(true)));
        assert_eq!(holds(&[-9.0, -5.0, -5.1]), Some(Some(false)));
        assert_eq!(holds(&[-9.0]), None);
    }
}
