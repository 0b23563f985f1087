//! The choice of a rank: fits of one method at several ranks → criteria that compare them, and the
//! rank that a rule chooses.
//!
//! In: a fit with its counts, the singular values of P̃ beyond the largest rank, and, if asked for,
//! cross-validation and resamples of the fit. Out: one [`Criteria`] per rank. [`choose`] returns
//! the index of the chosen rank and the reason in words.
//!
//! *Parameters.* Λ = λΓ has r columns λ_k, each a distribution over the targets that it reaches. So
//! d = Σ_k (|supp λ_k| − 1), which is r(m − 1) if every set reaches every target. An entry that is
//! zero stays zero under small changes of the counts and is not counted: sets that reach few of a
//! million targets do not pay for all of them. The assignment γ is discrete and is not counted
//! either. AIC = 2d − 2ℓ̂ (Akaike, 1974) and BIC = d log S − 2ℓ̂ (Schwarz, 1978), where S is the
//! number of transitions.
//!
//! Both assume independent transitions. Transitions of sliding windows overlap, so S is too large
//! by a factor of up to the lag. Then the likelihood has too much weight against d, and both choose
//! too many sets. Strided windows do not overlap. AIC does not charge for the choice of γ and so
//! splits sets of sources with few transitions; for BIC this is rare. The held-out likelihood needs
//! neither assumption if whole trajectories are held out.

use crate::assess::crossval;
use crate::evidence::counts::shards::Shards;
use crate::math::matrix::first_largest;
use crate::methods::low_rank::model::LowRank;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule that chooses one of several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Rule {
    /// The largest gap between a singular value of P̃ and the next.
    Gap,
    /// The smallest Akaike information criterion.
    Aic,
    /// The smallest Bayesian information criterion.
    Bic,
    /// The smallest rank within one standard error of the best held-out likelihood. It needs the
    /// folds of `[validation]`.
    HeldOut,
    /// The smallest rank after which the next one raises the cross-validated VAMP-2 score by at
    /// most one standard error. It needs the folds of `[validation]`.
    Vamp2,
}

/// The criteria of one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Criteria {
    /// r.
    pub rank: usize,
    /// σ_r(P̃) and σ_{r+1}(P̃), 0 beyond the number of states; none if they were not computed.
    pub singular_value: Option<f64>,
    /// σ_{r+1}(P̃).
    pub next_singular_value: Option<f64>,
    /// ℓ̂(λ,Γ).
    pub log_likelihood: f64,
    /// d.
    pub parameters: usize,
    /// 2d − 2ℓ̂.
    pub aic: f64,
    /// d log S − 2ℓ̂.
    pub bic: f64,
    /// C_r(Λ).
    pub coherence: f64,
    /// A lower bound of C_r(Λ).
    pub coherence_lower_bound: f64,
    /// Objective (2) of the coherence paper.
    pub objective: f64,
    /// Sets without a source.
    pub empty_states: usize,
    /// Only of PCCA+.
    pub crispness: Option<f64>,
    /// The mean adjusted Rand index between resamples, if there are resamples.
    pub stability: Option<f64>,
    /// None unless the rank could be fitted to every fold.
    pub validation: Option<crossval::Validation>,
}

impl Criteria {
    /// The criteria of the model alone. `spectrum` has the leading singular values of P̃.
    pub(crate) fn new(model: &LowRank, spectrum: &[f64], shards: &Shards) -> Criteria {
        let least = shards.n_sources.min(shards.n_targets);
        let value = |at: usize| {
            let computed = spectrum.get(at).copied();
            computed.or((at >= least).then_some(0.0))
        };
        let (metrics, d) = (&model.metrics, parameters(model));
        let deviance = -2.0 * metrics.log_likelihood;
        Criteria {
            rank: model.rank,
            singular_value: value(model.rank - 1),
            next_singular_value: value(model.rank),
            log_likelihood: metrics.log_likelihood,
            parameters: d,
            aic: deviance + 2.0 * d as f64,
            bic: deviance + d as f64 * shards.total.ln(),
            coherence: metrics.coherence,
            coherence_lower_bound: metrics.coherence_lower_bound,
            objective: metrics.objective,
            empty_states: metrics.empty_states,
            crispness: metrics.crispness,
            ..Criteria::default()
        }
    }

    /// σ_r(P̃) − σ_{r+1}(P̃).
    pub(crate) fn gap(&self) -> Option<f64> {
        Some(self.singular_value? - self.next_singular_value?)
    }

    /// σ_{r+1}(P̃) / σ_r(P̃): near 0 if there are r sets, near 1 if r cuts a spectrum that
    /// continues.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (value, next) = (self.singular_value?, self.next_singular_value?);
        Some(if value > 0.0 { next / value } else { 1.0 })
    }
}

/// d = Σ_k (|supp λ_k| − 1) over the latent states that are not empty.
fn parameters(model: &LowRank) -> usize {
    let ends = model.latent.offsets.windows(2);
    ends.map(|ends| (ends[1] - ends[0]).saturating_sub(1)).sum()
}

impl Rule {
    /// The names of all rules in pipeline files.
    pub const NAMES: [&str; 5] = ["gap", "held-out", "vamp2", "bic", "aic"];

    /// Whether the rule needs the folds of a cross-validation.
    pub(crate) fn needs_folds(self) -> bool {
        matches!(self, Rule::HeldOut | Rule::Vamp2)
    }

    /// The name in pipeline files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Gap => "gap",
            Rule::Aic => "aic",
            Rule::Bic => "bic",
            Rule::HeldOut => "held-out",
            Rule::Vamp2 => "vamp2",
        }
    }
}

/// The index of the rank that the rule chooses among `ranks`, which ascend, and the reason. None if
/// no rank has the criterion of the rule. The smaller rank wins a tie.
pub(crate) fn choose(rule: Rule, ranks: &[Criteria]) -> Option<(usize, String)> {
    let validated = |score: fn(&crossval::Validation) -> crossval::Score| {
        let scored = |at: usize| Some((at, ranks[at].validation.as_ref().map(score)?));
        (0..ranks.len()).filter_map(scored).collect::<Vec<_>>()
    };
    let (at, why) = match rule {
        Rule::Gap => {
            let gap = |at: usize| Some((at, ranks[at].gap()?));
            let mut gaps: Vec<(usize, f64)> = (0..ranks.len()).filter_map(gap).collect();
            gaps.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let &(best, gap) = gaps.first()?;
            let after = gaps.get(1).map_or_else(String::new, |&(at, gap)| {
                format!("; that of rank {} is {gap:.4}", ranks[at].rank)
            });
            let r = &ranks[best];
            let (from, to) = (r.singular_value?, r.next_singular_value?);
            let why =
                format!("largest gap of singular values, {from:.4} − {to:.4} = {gap:.4}{after}");
            (best, why)
        }
        Rule::Aic => smallest(ranks, "AIC", |r| r.aic)?,
        Rule::Bic => smallest(ranks, "BIC", |r| r.bic)?,
        Rule::HeldOut => within_one_error(ranks, &validated(|v| v.log_likelihood))?,
        Rule::Vamp2 => {
            let numbers: Vec<usize> = ranks.iter().map(|r| r.rank).collect();
            before_the_rest(&numbers, &validated(|v| v.vamp_2))?
        }
    };
    Some(with_end(at, why, ranks.len()))
}

/// Adds to the reason that the chosen candidate is the largest of `n`.
fn with_end(at: usize, why: String, n: usize) -> (usize, String) {
    let end = "; no larger rank was tried";
    (
        at,
        if at > 0 && at + 1 == n {
            why + end
        } else {
            why
        },
    )
}

fn smallest(
    ranks: &[Criteria],
    name: &str,
    value: fn(&Criteria) -> f64,
) -> Option<(usize, String)> {
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by(|&a, &b| {
        value(&ranks[a])
            .total_cmp(&value(&ranks[b]))
            .then(a.cmp(&b))
    });
    let best = *order.first()?;
    let after = order.get(1).map_or_else(String::new, |&at| {
        let above = value(&ranks[at]) - value(&ranks[best]);
        format!("; that of rank {} is {above:.1} larger", ranks[at].rank)
    });
    let why = format!("smallest {name}, {:.1}{after}", value(&ranks[best]));
    Some((best, why))
}

/// The one-standard-error rule (Breiman, Friedman, Olshen and Stone, 1984, §3.4.3): among ranks
/// that the data cannot distinguish from the best, the smallest is chosen.
fn within_one_error(
    ranks: &[Criteria],
    scores: &[(usize, crossval::Score)],
) -> Option<(usize, String)> {
    let best = *scores.get(first_largest(scores.iter().map(|(_, s)| s.mean)))?;
    let (enough, error) = (best.1.mean - best.1.error, best.1.error);
    let &(at, score) = scores.iter().find(|(_, s)| s.mean >= enough)?;
    let name = "held-out log-likelihood";
    let why = if at == best.0 {
        format!(
            "best {name}, {:.4} ± {error:.4} nats per transition",
            best.1.mean
        )
    } else {
        format!(
            "{name} of {:.4} nats per transition, within one standard error of the best, {:.4} ± {error:.4} of rank {}",
            score.mean, best.1.mean, ranks[best.0].rank
        )
    };
    Some((at, why))
}

/// The index of the rank that [`Rule::Vamp2`] chooses among `ranks`, which ascend, and the reason.
/// There is one score per rank.
pub(crate) fn by_vamp_2(ranks: &[usize], scores: &[crossval::Score]) -> Option<(usize, String)> {
    let scores: Vec<_> = scores.iter().copied().enumerate().collect();
    let (at, why) = before_the_rest(ranks, &scores)?;
    Some(with_end(at, why, ranks.len()))
}

/// For a score that noise alone can raise: the first rank after which the score gains at most one
/// standard error.
fn before_the_rest(
    ranks: &[usize],
    scores: &[(usize, crossval::Score)],
) -> Option<(usize, String)> {
    let &(last, score) = scores.last()?;
    let stop = scores
        .windows(2)
        .find(|pair| pair[1].1.mean - pair[0].1.mean <= pair[1].1.error);
    Some(match stop {
        Some([(at, score), (next, higher)]) => {
            let why = format!(
                "VAMP-2 score of {:.4}, which rank {} raises by {:.4} ± {:.4}",
                score.mean,
                ranks[*next],
                higher.mean - score.mean,
                higher.error
            );
            (*at, why)
        }
        _ => {
            let why = format!("VAMP-2 score of {:.4} ± {:.4}", score.mean, score.error);
            (last, why)
        }
    })
}

/// The criteria of one rank of a fit.
#[derive(Serialize, Deserialize)]
pub struct RankRow {
    /// The name in the pipeline file.
    pub fit: String,
    /// The criteria of the rank.
    pub criteria: Criteria,
    /// Why the rank was chosen. None for the other ranks.
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::crossval::{Score, Validation};
    use crate::assess::resampling::Folds;
    use crate::evidence::counts::Counts;
    use crate::evidence::counts::groups::Groups;
    use crate::evidence::counts::shards::{dense, of_rows};
    use crate::evidence::pass::Passes;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::given::fit_of;
    use crate::methods::spectral::svd::Svd;
    use crate::methods::spectral::truncated_svd::{self, Options};
    use crate::methods::{self, Method};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    // N (targets × sources) = [ 3 1 0 ]   γ = (0, 0, 1)   λ = [ 1/2 0 ]   ℓ̂ = 8 log ½, S = 10.
    //                         [ 1 3 2 ]                       [ 1/2 1 ]
    // λ₀ has one free parameter, λ₁ has none. B = D_q^{-1/2} λ D_w^{1/2} has σ = 1, 1/√6.
    #[test]
    fn criteria_by_hand() {
        let rows = [vec![3.0, 1.0, 0.0], vec![1.0, 3.0, 2.0]];
        let shards = of_rows(&rows, false, 9);
        let fit = fit_of(&shards, vec![0, 0, 1], 2);
        let c = Criteria::new(&fit.model, &[1.0, 0.75], &shards);
        let deviance = 16.0 * 2f64.ln();
        assert_eq!(c.parameters, 1);
        assert!((c.aic - (deviance + 2.0)).abs() < 1e-14);
        assert!((c.bic - (deviance + 10f64.ln())).abs() < 1e-14);
        assert_eq!((c.gap(), c.ratio()), (Some(0.75), Some(0.0)));
        assert!((c.coherence - 1.0 - (1.0f64 / 6.0).sqrt()).abs() < 1e-14);
    }

    /// `sets` sets of 15 states. Of the 150 transitions from every source, one in eight goes to any
    /// target and the others stay in the set, where each target has its own probability.
    fn planted(sets: usize, seed: u64) -> Shards {
        let mut random = Pcg64::seed_from_u64(seed);
        let n = 15 * sets;
        let weights: Vec<f64> = (0..n).map(|_| random.random_range(0.5..1.5)).collect();
        let mut draw = |from: usize, to: usize| {
            let mut at = random.random_range(0.0..weights[from..to].iter().sum::<f64>());
            for (i, weight) in weights.iter().enumerate().take(to).skip(from) {
                at -= weight;
                if at < 0.0 {
                    return (i, random.random_range(0..8));
                }
            }
            (to - 1, random.random_range(0..8))
        };
        let mut counts = vec![vec![0.0; n]; n];
        for (j, row) in counts.iter_mut().enumerate() {
            let mut away = 0;
            for _ in 0..150 {
                let first = j / 15 * 15;
                let (from, to) = if away == 0 {
                    (0, n)
                } else {
                    (first, first + 15)
                };
                let (i, next) = draw(from, to);
                row[i] += 1.0;
                away = next;
            }
        }
        // Every target is reached.
        (0..n).for_each(|i| counts[i][i] += 1.0);
        dense(&counts, false, 1000)
    }

    fn sweep(
        shards: &Shards,
        ranks: std::ops::Range<usize>,
        of: fn(usize) -> Method,
    ) -> Vec<Criteria> {
        let options = Options {
            rank: ranks.end,
            tolerance: 1e-8,
            max_products: 100_000,
            seed: 0,
        };
        let spectrum = truncated_svd::leading(&Passes::local(), shards, &options).values;
        let groups = Groups::scatter(shards.n_targets, &shards.by_source, 40);
        let methods: Vec<Method> = ranks.map(of).collect();
        let candidates: Vec<(&Method, u64)> = methods.iter().map(|m| (m, 0)).collect();
        let (passes, counts) = (Passes::local(), Counts::of(shards));
        let folds = Folds {
            n: 5,
            entries: 1000,
            seed: 3,
        };
        let validations = crossval::validate(&passes, &counts, &groups, folds, &candidates);
        let scored = methods.iter().zip(validations.expect("five folds"));
        scored
            .map(|(method, validation)| {
                let fit = methods::fit(&passes, method, &counts, 0).expect("a fit");
                Criteria {
                    validation,
                    ..Criteria::new(&fit.model, &spectrum, shards)
                }
            })
            .collect()
    }

    #[test]
    fn rules_find_planted_sets() {
        let methods: [fn(usize) -> Method; 2] =
            [|r| Method::Dbmr(Dbmr::new(r)), |r| Method::Svd(Svd::new(r))];
        for (sets, of) in [3, 5].into_iter().flat_map(|n| methods.map(|of| (n, of))) {
            let ranks = sweep(&planted(sets, sets as u64), 2..9, of);
            let chosen = |rule| {
                let (at, reason) = choose(rule, &ranks).expect("every rank has every criterion");
                (ranks[at].rank, reason)
            };
            for rule in [Rule::Gap, Rule::Bic, Rule::HeldOut, Rule::Vamp2] {
                assert_eq!(chosen(rule).0, sets, "{}: {}", rule.name(), chosen(rule).1);
            }
            // AIC does not charge for the choice of the assignment.
            assert!(chosen(Rule::Aic).0 >= sets);
            // The held-out likelihood has its maximum at the planted rank, while that of the
            // training counts always rises.
            let held_out = |c: &Criteria| c.validation.expect("five folds").log_likelihood.mean;
            for pair in ranks.windows(2) {
                let rises = held_out(&pair[1]) > held_out(&pair[0]);
                assert_eq!(rises, pair[1].rank <= sets, "rank {}", pair[1].rank);
            }
        }
    }

    fn with_scores(scores: &[(f64, f64)]) -> Vec<Criteria> {
        let criteria = |(at, &(mean, error)): (usize, &(f64, f64))| {
            let score = Score { mean, error };
            Criteria {
                rank: at + 2,
                singular_value: Some(0.5),
                next_singular_value: Some(0.25),
                aic: 9.0,
                bic: 9.0,
                validation: Some(Validation {
                    folds: 2,
                    log_likelihood: score,
                    vamp_2: score,
                    unseen: 0.0,
                }),
                ..Criteria::default()
            }
        };
        scores.iter().enumerate().map(criteria).collect()
    }

    #[test]
    fn rules_give_their_reasons() {
        let ranks = with_scores(&[(-4.0, 0.1), (-3.05, 0.1), (-3.0, 0.1), (-3.2, 0.1)]);
        let reason = |rule| choose(rule, &ranks);
        let expected = "held-out log-likelihood of -3.0500 nats per transition, within one standard error of the best, -3.0000 ± 0.1000 of rank 4";
        assert_eq!(reason(Rule::HeldOut), Some((1, expected.into())));
        let expected = "VAMP-2 score of -3.0500, which rank 4 raises by 0.0500 ± 0.1000";
        assert_eq!(reason(Rule::Vamp2), Some((1, expected.into())));
        // The smaller rank wins a tie.
        let expected = "smallest BIC, 9.0; that of rank 3 is 0.0 larger";
        assert_eq!(reason(Rule::Bic), Some((0, expected.into())));
        let expected =
            "largest gap of singular values, 0.5000 − 0.2500 = 0.2500; that of rank 3 is 0.2500";
        assert_eq!(reason(Rule::Gap), Some((0, expected.into())));

        let rising = with_scores(&[(1.0, 0.1), (2.0, 0.1)]);
        let expected = "VAMP-2 score of 2.0000 ± 0.1000; no larger rank was tried";
        assert_eq!(choose(Rule::Vamp2, &rising), Some((1, expected.into())));
        let mut bare = rising;
        bare.iter_mut().for_each(|c| c.validation = None);
        assert_eq!(choose(Rule::HeldOut, &bare), None);
    }
}
