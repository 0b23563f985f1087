//! Certificates: theorems about the numbers of a fit, checked on the computed numbers.
//!
//! Polzin, Klebanov, Nüsken, Koltai, *Coherent set identification via direct low rank maximum
//! likelihood estimation*: (14), Theorem 10, Corollary 12, Proposition 13, Theorem 17, Corollary
//! 19. Each certificate compares two numbers that come from different sums, so it detects an error
//! in either of them, or in the matrices from which they are computed. There is no further pass
//! over the counts.
//!
//! Tolerances are the largest errors that rounding can make. The relative error of a sum of terms
//! of one sign is at most its depth (the additions that a term goes through) times ε = 2⁻⁵². Sums
//! over one column or row of N, then over blocks of columns, then over the blocks have the depth of
//! `unit` below. For terms of both signs, the bound is relative to the sum of their magnitudes.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::shards::Shards;
use crate::math::sum;
use crate::methods::low_rank::model::{LowRank, Singular};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One claim: `left` is equal to `right`, or at most `right`, up to `tolerance`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// The name of the theorem or definition.
    pub name: Cow<'static, str>,
    /// How `left` and `right` are compared.
    pub relation: Relation,
    /// The left side.
    pub left: f64,
    /// The right side.
    pub right: f64,
    /// The largest error by rounding and, for some claims, by an iteration that was stopped.
    pub tolerance: f64,
    /// None if an iteration ended before it reached the object of the claim, or a condition of the
    /// claim is not met.
    pub holds: Option<bool>,
}

/// The relation of the two sides of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// Left equals right.
    Equal,
    /// Left is at most right.
    AtMost,
}

impl Relation {
    /// `=` or `<=`.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "=",
            Relation::AtMost => "<=",
        }
    }
}

impl Certificate {
    /// The claim that two numbers are equal up to `tolerance`.
    pub(crate) fn equal(name: &'static str, left: f64, right: f64, tolerance: f64) -> Certificate {
        Certificate::new(name, left, Relation::Equal, right, tolerance)
    }

    /// The claim that `left` is at most `right` up to `tolerance`.
    pub(crate) fn at_most(
        name: &'static str,
        left: f64,
        right: f64,
        tolerance: f64,
    ) -> Certificate {
        Certificate::new(name, left, Relation::AtMost, right, tolerance)
    }

    fn new(
        name: &'static str,
        left: f64,
        relation: Relation,
        right: f64,
        tolerance: f64,
    ) -> Certificate {
        // NaN proves nothing, and every comparison with it is false.
        let off = match relation {
            Relation::Equal => (left - right).abs(),
            Relation::AtMost => left - right,
        };
        Certificate {
            name: name.into(),
            relation,
            left,
            right,
            tolerance,
            holds: Some(off <= tolerance),
        }
    }

    /// The same, and no claim unless it `is_made`.
    pub(crate) fn if_made(self, is_made: bool) -> Certificate {
        Certificate {
            holds: self.holds.filter(|_| is_made),
            ..self
        }
    }

    /// right − left: the slack of an inequality, or the residual of an equation.
    pub(crate) fn slack(&self) -> f64 {
        self.right - self.left
    }
}

/// The certificates of models of the same counts `shards`, each list ordered by name.
pub fn of(shards: &Shards, models: &[&LowRank]) -> Vec<Vec<Certificate>> {
    let unit = unit(shards);
    let sigma_p = models
        .iter()
        .filter(|model| model.metrics.coherence_p.is_some() && model.largest_residual.is_some())
        .map(|model| model.spectrum.as_slice())
        .max_by_key(|spectrum| spectrum.len());
    models
        .iter()
        .map(|model| of_model(shards, model, sigma_p, unit))
        .collect()
}

/// Whether every claim was made and holds.
pub fn certified(certificates: &[Certificate]) -> bool {
    certificates.iter().all(|c| c.holds == Some(true))
}

/// Fails with both sides of the first certificate that does not hold.
pub(crate) fn check(fit: &str, certificates: &[Certificate]) -> Result<()> {
    let Some(broken) = certificates.iter().find(|c| c.holds == Some(false)) else {
        return Ok(());
    };
    let Certificate {
        name,
        left,
        right,
        tolerance,
        ..
    } = broken;
    let sign = broken.relation.sign();
    Err(Error::new(
        Kind::Check,
        format!(
            "fit `{fit}`: the certificate `{name}` does not hold: {left:?} {sign} {right:?} is wrong by {:?}, and rounding by {tolerance:?} at most; nothing was written",
            (left - right).abs()
        ),
    ))
}

/// The largest relative error of a sum of terms of one sign over the counts: ε times the sum of the
/// terms of the longest column or row, the terms of a block, the blocks, and 256 for the errors of
/// the terms and of differences of weights.
fn unit(shards: &Shards) -> f64 {
    let rows = shards.by_source.iter().chain(&shards.by_target);
    let longest = rows
        .flat_map(|shard| shard.offsets.windows(2))
        .map(|ends| ends[1] - ends[0])
        .max()
        .unwrap_or(0);
    let blocks = shards.n_sources.max(shards.n_targets).div_ceil(sum::BLOCK);
    (longest + sum::BLOCK + blocks + 256) as f64 * f64::EPSILON
}

fn of_model(
    shards: &Shards,
    model: &LowRank,
    sigma_p: Option<&[Singular]>,
    unit: f64,
) -> Vec<Certificate> {
    use Relation::{AtMost, Equal};
    let m = &model.metrics;
    let rank = model.rank as f64;
    // QR and SVD of an m × r matrix of norm one change a singular value of Λ̃ by at most this: r
    // reflections of the depth of a block.
    let of_values = rank * unit;
    // Σ_ij N_ij (|log P_ij| + |log Λ_ij|), the magnitudes of the terms of both likelihoods and of
    // their difference, and S for the rounding of the quotients inside the logarithms.
    let magnitude = m.reference_log_likelihood.abs() + m.log_likelihood.abs() + shards.total;
    let of_bound = unit * m.bound + unit * magnitude / shards.total / m.kappa;
    // Sums of integers are exact, so only the r products of λ w and the quotients are rounded; q is
    // at most 1.
    let of_image = if shards.is_integral() {
        (rank + 4.0) * f64::EPSILON
    } else {
        unit
    };
    let squares: f64 = m.singular_values.iter().map(|s| s * s).sum();
    let first = m.singular_values.first().copied().unwrap_or(f64::NAN);
    let mut certificates = vec![
        Certificate::new(
            "reference",
            m.log_likelihood,
            AtMost,
            m.reference_log_likelihood,
            unit * magnitude,
        ),
        Certificate::new(
            "likelihood",
            m.latent_log_likelihood,
            Equal,
            m.log_likelihood,
            unit * magnitude,
        ),
        Certificate::new("image_of_p", m.lambda_p_residual, Equal, 0.0, of_image),
        Certificate::new(
            "pythagoras",
            m.frobenius_lambda + m.frobenius_error,
            Equal,
            m.frobenius_p,
            unit * (m.frobenius_lambda + m.frobenius_error + m.frobenius_p),
        ),
        Certificate::new(
            "frobenius_bound",
            m.frobenius_error,
            AtMost,
            m.bound,
            unit * m.frobenius_error + of_bound,
        ),
        Certificate::new(
            "coherence_bound",
            m.coherence_lower_bound,
            AtMost,
            m.coherence,
            unit * m.frobenius_p + of_bound + rank * of_values,
        ),
        Certificate::new(
            "spectrum",
            squares,
            Equal,
            m.frobenius_lambda,
            of_values * (squares + m.frobenius_lambda),
        ),
        Certificate::new("leading_value", first, Equal, 1.0, of_values),
    ];
    certificates.extend(sigma_p.and_then(|p| contraction(&m.singular_values, p, of_values)));
    certificates.extend(residual(model));
    certificates.sort_by(|a, b| a.name.cmp(&b.name));
    certificates
}

/// σ_k(Λ̃) ≤ σ_k(P̃), for the k ≥ 2 with the smallest slack among those of which both are known. A
/// computed value of P̃ is a Ritz value, at most its residual below the true one.
fn contraction(of_lambda: &[f64], of_p: &[Singular], rounding: f64) -> Option<Certificate> {
    let pairs = of_lambda.iter().zip(of_p).skip(1);
    pairs
        .map(|(&lambda, p)| {
            let tolerance = rounding + p.residual.unwrap_or(0.0);
            Certificate::new("contraction", lambda, Relation::AtMost, p.value, tolerance)
        })
        .min_by(|a, b| (a.slack() + a.tolerance).total_cmp(&(b.slack() + b.tolerance)))
}

/// The largest residual of the triplets or vectors of a decomposition.
fn residual(model: &LowRank) -> Option<Certificate> {
    let residuals = model.spectrum.iter().filter_map(|s| s.residual);
    let largest = residuals.reduce(f64::max)?;
    let allowed = model.largest_residual;
    let claim = Certificate::at_most("residual", largest, allowed.unwrap_or(largest), 0.0);
    Some(claim.if_made(allowed.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::Counts;
    use crate::evidence::counts::shards::of_rows;
    use crate::evidence::pass::Passes;
    use crate::methods::cocluster::Cocluster;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::given::{Given, fit_of};
    use crate::methods::spectral::svd::Svd;
    use crate::methods::{Method, fit};
    use proptest::prelude::*;

    /// Shards of a dense matrix of counts, targets × sources.
    fn shards(n: &[Vec<u32>], weight: Option<f64>) -> Shards {
        let scaled = |&v: &u32| f64::from(v) * weight.unwrap_or(1.0);
        let rows = n.iter().map(|row| row.iter().map(scaled).collect());
        of_rows(&rows.collect::<Vec<_>>(), weight.is_some(), 7)
    }

    /// 9 × 8 counts, all of them positive.
    fn positive() -> Shards {
        let row = |i: u32| (0..8).map(|j| 1 + (i * j + 3 * i) % 7).collect();
        shards(&(0..9).map(row).collect::<Vec<_>>(), None)
    }

    fn models(shards: &Shards, rank: usize) -> Vec<LowRank> {
        let given = (0..shards.n_sources as u32).map(|j| j % rank as u32);
        let counts = Counts::of(shards).with_given("sets", given.collect(), rank);
        let methods = [
            Method::Dbmr(Dbmr::new(rank)),
            Method::Svd(Svd::new(rank)),
            Method::Cocluster(Cocluster::new(rank)),
            Method::Given(Given::column("sets")),
        ];
        methods
            .iter()
            .map(|method| {
                let fit = fit(&Passes::local(), method, &counts, 1);
                fit.expect("a fit").model
            })
            .collect()
    }

    fn certificates(shards: &Shards, models: &[LowRank]) -> Vec<Vec<Certificate>> {
        of(shards, &models.iter().collect::<Vec<_>>())
    }

    // N (targets × sources) = [ 3 1 0 ]   γ = (0, 0, 1). The tests of `low_rank::score` derive
    //                         [ 1 3 0 ]   ‖P̃‖² = 9/4, ‖Λ̃‖² = 2, ‖P̃ − Λ̃‖² = 1/4, κ = 0.4,
    //                         [ 0 0 2 ]   σ(Λ̃) = 1, 1 and ℓ̂ = 8 log ½.
    #[test]
    fn a_model_by_hand() {
        let shards = shards(&[vec![3, 1, 0], vec![1, 3, 0], vec![0, 0, 2]], None);
        let fit = fit_of(&shards, vec![0, 0, 1], 2);
        let certificates = &of(&shards, &[&fit.model])[0];
        let sides = |name: &str| {
            let found = certificates.iter().find(|c| c.name == name);
            found.map(|c| (c.left, c.right)).expect("a certificate")
        };
        let near = |(a, b): (f64, f64), (x, y): (f64, f64)| {
            assert!((a - x).abs() < 1e-13 && (b - y).abs() < 1e-13, "{a} {b}")
        };
        let half = 8.0 * 0.5f64.ln();
        let reference = 6.0 * 0.75f64.ln() + 2.0 * 0.25f64.ln();
        near(sides("reference"), (half, reference));
        near(sides("likelihood"), (half, half));
        near(sides("image_of_p"), (0.0, 0.0));
        near(sides("pythagoras"), (2.25, 2.25));
        let bound = (reference - half) / 10.0 / 0.4;
        near(sides("frobenius_bound"), (0.25, bound));
        near(sides("coherence_bound"), (2.25 - bound, 2.0));
        near(sides("spectrum"), (2.0, 2.0));
        near(sides("leading_value"), (1.0, 1.0));
        // σ(P̃) is unknown without an SVD fit.
        assert_eq!(certificates.len(), 8);
        assert!(certified(certificates));
    }

    /// Small errors in the numbers of a fit, and the certificates that must detect them.
    #[test]
    fn errors_break_certificates() {
        let shards = positive();
        let sound = models(&shards, 3);
        type Break = fn(&mut LowRank);
        let faults: [(&str, Break); 9] = [
            ("reference", |f| {
                f.metrics.log_likelihood = f.metrics.reference_log_likelihood + 1e-6
            }),
            ("likelihood", |f| f.metrics.log_likelihood -= 1e-6),
            ("image_of_p", |f| f.metrics.lambda_p_residual = 1e-12),
            ("pythagoras", |f| f.metrics.frobenius_error += 1e-9),
            ("pythagoras", |f| f.metrics.frobenius_lambda = f64::NAN),
            ("frobenius_bound", |f| {
                f.metrics.bound = f.metrics.frobenius_error - 1e-6
            }),
            ("coherence_bound", |f| {
                f.metrics.coherence_lower_bound = f.metrics.coherence + 1e-6
            }),
            ("spectrum", |f| f.metrics.singular_values[1] += 1e-6),
            ("leading_value", |f| f.metrics.singular_values[0] -= 1e-9),
        ];
        for (name, fault) in faults {
            let mut models = sound.clone();
            fault(&mut models[0]);
            let certificates = certificates(&shards, &models);
            let broken = certificates[0].iter().find(|c| c.name == name);
            assert_eq!(broken.expect("a certificate").holds, Some(false), "{name}");
            assert!(certified(&certificates[1]) && certified(&certificates[2]));
            let error = check("dbmr", &certificates[0]).unwrap_err();
            assert_eq!((error.kind(), error.kind().exit_code()), (Kind::Check, 3));
        }
        // A value of P̃ that is too small is detected in all fits of the model.
        let mut models = sound;
        models[1].spectrum[1].value = 1e-3;
        for certificates in certificates(&shards, &models) {
            let error = check("x", &certificates).unwrap_err().to_string();
            assert!(error.starts_with("fit `x`: the certificate `contraction` does not hold: "));
            assert!(error.contains(" <= 0.001 is wrong by "), "{error}");
        }
    }

    #[test]
    fn nothing_is_claimed_without_convergence() {
        let shards = positive();
        let mut models = models(&shards, 3);
        models[1].largest_residual = None;
        let certificates = certificates(&shards, &models);
        assert!(check("svd", &certificates[1]).is_ok() && !certified(&certificates[1]));
        assert!(certified(&certificates[0]));
        let mut all = certificates.iter().flatten();
        assert!(all.all(|c| c.name != "contraction"));
    }

    proptest! {
        #[test]
        fn certificates_hold_of_all_fits_of_all_matrices(
            (m, n) in (1usize..9, 1usize..9),
            entries in prop::collection::vec(prop_oneof![3 => Just(0u32), 2 => 1u32..9, 1 => 1000u32..1_000_000], 64),
            rank in 1usize..4,
            weight in prop::option::of(1e-6f64..10.0),
        ) {
            let mut counts: Vec<Vec<u32>> = (0..m).map(|i| entries[i * 8..][..n].to_vec()).collect();
            for at in 0..m.max(n) {
                counts[at % m][at % n] += 1;
            }
            let shards = shards(&counts, weight);
            let models = models(&shards, rank.min(m).min(n));
            for certificates in certificates(&shards, &models) {
                prop_assert!(certified(&certificates), "{certificates:?}");
            }
        }
    }
}
