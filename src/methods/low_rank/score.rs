//! Scores a low-rank matrix: counts and Λ = λΓ → the metrics and bounds that compare Λ with P, from
//! the non-zeros alone.
//!
//! Polzin, Klebanov, Nüsken, Koltai, *Coherent set identification via direct low rank maximum
//! likelihood estimation*: objective (2), likelihood (14), Definitions 2 and 15, Corollaries 12 and
//! 19, Theorem 17. P, P̃, Λ̃ are m targets × n sources and never formed. One pass by target sums
//! the part of λ outside the support of P, and one pass by source visits the columns.

use crate::evidence::counts::csr::{Csr, Value};
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::Passes;
use crate::evidence::pass::kernel::{Conserved, Kernel, each};
use crate::math::portable;
use crate::math::sum::terms;
use crate::methods::cocluster::joint;
use crate::methods::cocluster::joint::x_log_x;
use crate::methods::low_rank::factors::Factors;
use crate::methods::low_rank::metrics::Metrics;
use crate::with_values;
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Scores the factors. `singular_values` are σ(Λ̃). `coarse_counts` are those of N over E_k and
/// F_l, r × r row-major (k, l).
pub(crate) fn score(
    passes: &Passes<'_>,
    shards: &Shards,
    factors: &Factors,
    target_sets: &[i32],
    coarse_counts: &[f64],
    singular_values: &[f64],
) -> Metrics {
    let rank = factors.rank;
    let columns = columns(passes, shards, factors);
    let sum = |part: fn(&Column) -> f64| terms(columns.len(), |j| part(&columns[j]));
    let min = |part: fn(&Column) -> f64| columns.iter().map(part).fold(f64::INFINITY, f64::min);

    let mut missed = vec![0.0; shards.n_targets];
    let kernel = Missed {
        factors: Cow::Borrowed(factors),
        source_total: Cow::from(&shards.source_total),
        target_total: Cow::from(&shards.target_total),
        allowance: allowance(shards),
    };
    passes.rows(shards.targets(), &kernel, &mut missed);
    // The positive C_ik of target i, each with C_·k.
    let row = |i: usize| {
        let row = &factors.counts[i * rank..][..rank];
        row.iter().zip(&factors.totals).filter(|(c, _)| **c > 0.0)
    };
    let frobenius_lambda = terms(shards.n_targets, |i| {
        // λ_ik² w_k / q_i = C_ik² / (C_·k N_i·).
        row(i).map(|(c, total)| c / total * c).sum::<f64>() / shards.target_total[i]
    });
    let latent_log_likelihood = terms(shards.n_targets, |i| {
        row(i).map(|(c, total)| c * (c / total).ln()).sum()
    });

    let kullback_leibler = sum(|c| c.kullback_leibler) / shards.total;
    let frobenius_p = sum(|c| c.frobenius_p);
    let kappa_1 = 0.5 * min(|c| c.balance_of_difference);
    let kappa_2 = 0.5 * min(|c| c.balance);
    let kappa = kappa_1.max(kappa_2);
    let bound = kullback_leibler / kappa;
    let reference = sum(|c| c.reference);
    // Σ_ij N_ij log (P_ij / q_i).
    let targets = terms(shards.n_targets, |i| x_log_x(shards.target_total[i]));
    let information = reference - targets + x_log_x(shards.total);
    let coarse = factors.coarse(coarse_counts);
    Metrics {
        log_likelihood: sum(|c| c.log_likelihood),
        reference_log_likelihood: reference,
        kullback_leibler,
        frobenius_p,
        frobenius_lambda,
        frobenius_error: sum(|c| c.error) + terms(missed.len(), |i| missed[i]),
        kappa_1,
        kappa_2,
        kappa,
        bound,
        latent_log_likelihood,
        singular_values: singular_values.to_vec(),
        coherence: singular_values.iter().sum(),
        coherence_lower_bound: frobenius_p - bound,
        coherence_p: None,
        objective: (0..rank).map(|k| coarse[k * rank + k]).sum(),
        mutual_information: joint::information(coarse_counts, rank),
        reference_information: (information / shards.total).max(0.0),
        crispness: None,
        lambda_p_residual: image_residual(shards, factors),
        empty_states: factors.totals.iter().filter(|&&t| t == 0.0).count(),
        source_sizes: sizes(rank, factors.affiliation.iter().map(|&k| k as usize)),
        target_sizes: sizes(
            rank,
            target_sets.iter().filter_map(|&k| usize::try_from(k).ok()),
        ),
        weights: factors.totals.iter().map(|t| t / shards.total).collect(),
    }
}

/// The largest component of |Λp − q|.
fn image_residual(shards: &Shards, factors: &Factors) -> f64 {
    (0..shards.n_targets)
        .into_par_iter()
        .map(|i| {
            let image: f64 = (0..factors.rank)
                .map(|k| factors.probability(i, k) * (factors.totals[k] / shards.total))
                .sum();
            (image - shards.target_total[i] / shards.total).abs()
        })
        .reduce(|| 0.0, f64::max)
}

fn sizes(rank: usize, sets: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sizes = vec![0; rank];
    for k in sets {
        sizes[k] += 1;
    }
    sizes
}

/// Differences up to this fraction of the larger number count as 0. Correctly rounded quotients of
/// equal fractions of integers are equal, so integer counts need no allowance. Sums of weights have
/// rounding errors.
fn allowance(shards: &Shards) -> f64 {
    if shards.is_integral() {
        0.0
    } else {
        256.0 * f64::EPSILON
    }
}

/// The share of ‖P̃ − Λ̃‖²_F with N_ij = 0, for every target: Σ_k λ_ik²/q_i · Pr[X ∈ E_k, N_iX =
/// 0]. The probability is a difference of sums of counts, exact for integers, so it is exactly 0 if
/// every source of a latent state has the target.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Missed<'a> {
    factors: Cow<'a, Factors>,
    source_total: Cow<'a, [f64]>,
    target_total: Cow<'a, [f64]>,
    allowance: f64,
}

impl Kernel for Missed<'_> {
    type Shard = Csr;
    type Cell = f64;

    const NAME: &'static str = "missed";

    fn apply(&self, shard: &Csr, rows: &mut [f64]) {
        let factors = self.factors.as_ref();
        let mut missing = vec![0.0; factors.rank];
        for (l, row) in rows.iter_mut().enumerate() {
            let i = shard.first_row + l;
            missing.copy_from_slice(&factors.totals);
            for e in shard.span(l) {
                let j = shard.columns[e] as usize;
                missing[factors.affiliation[j] as usize] -= self.source_total[j];
            }
            let mut error = 0.0;
            for (k, &missing) in missing.iter().enumerate() {
                if missing > self.allowance * factors.totals[k] {
                    let probability = factors.probability(i, k);
                    error += probability * probability * missing;
                }
            }
            *row = error / self.target_total[i];
        }
    }

    fn conserved(&self, _: &Totals, rows: &[f64]) -> Conserved {
        each(rows, |&error| error >= 0.0)
    }
}

/// The terms of one column j in the metrics.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Column {
    /// Σ_i N_ij log Λ_ij.
    log_likelihood: f64,
    /// Σ_i N_ij log P_ij.
    reference: f64,
    /// N_·j KL(P_j‖Λ_j).
    kullback_leibler: f64,
    /// Σ_i P̃_ij².
    frobenius_p: f64,
    /// Σ (P̃_ij − Λ̃_ij)² over N_ij > 0.
    error: f64,
    /// B_q(P_j − Λ_j).
    balance_of_difference: f64,
    /// B_q(P_j) (1 − α_j).
    balance: f64,
}

/// The data with which the columns are scored.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scoring<'a> {
    affiliation: Cow<'a, [u32]>,
    /// C_ik by latent state, r × m: a column needs those of one latent state.
    counts: Vec<f64>,
    /// C_·k, r values.
    totals: Cow<'a, [f64]>,
    source_total: Cow<'a, [f64]>,
    /// 1 / N_i·, m values.
    per_target: Vec<f64>,
    /// S.
    total: f64,
    ranked: Vec<Vec<u32>>,
    allowance: f64,
}

fn columns(passes: &Passes<'_>, shards: &Shards, factors: &Factors) -> Vec<Column> {
    let mut counts = vec![0.0; factors.counts.len()];
    let of_state = counts.par_chunks_mut(shards.n_targets).enumerate();
    of_state.for_each(|(k, counts)| {
        let column = factors.counts.iter().skip(k).step_by(factors.rank);
        counts
            .iter_mut()
            .zip(column)
            .for_each(|(c, &count)| *c = count);
    });
    let scoring = Scoring {
        affiliation: Cow::from(&factors.affiliation),
        ranked: ranked(shards, &counts, &factors.totals),
        counts,
        totals: Cow::from(&factors.totals),
        source_total: Cow::from(&shards.source_total),
        per_target: shards.target_total.iter().map(|t| 1.0 / t).collect(),
        total: shards.total,
        allowance: allowance(shards),
    };
    let mut columns = vec![Column::default(); shards.n_sources];
    passes.rows(shards.sources(), &scoring, &mut columns);
    columns
}

impl Kernel for Scoring<'_> {
    type Shard = Csr;
    type Cell = Column;

    const NAME: &'static str = "score";

    fn apply(&self, shard: &Csr, rows: &mut [Column]) {
        with_values!(shard, values => {
            let mut near = Near::default();
            for (l, row) in rows.iter_mut().enumerate() {
                *row = self.column(shard, values, l, &mut near);
            }
        });
    }

    fn conserved(&self, _: &Totals, rows: &[Column]) -> Conserved {
        each(rows, |c| c.kullback_leibler >= 0.0 && c.frobenius_p > 0.0)
    }
}

/// For every latent state its targets by descending λ_ik/q_i. The first one that column j does not
/// have gives the largest λ_ik/q_i outside its support. A column visits at most one more target
/// than it has non-zeros, so the lists are cut there. `counts` are C_ik by latent state.
fn ranked(shards: &Shards, counts: &[f64], totals: &[f64]) -> Vec<Vec<u32>> {
    let spans = shards.by_source.iter().flat_map(|s| s.offsets.windows(2));
    let longest = spans.map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
    counts
        .par_chunks(shards.n_targets)
        .zip(totals)
        .map(|(counts, total)| {
            let probabilities = counts.iter().zip(&shards.target_total).zip(0..);
            let mut targets: Vec<(f64, u32)> = probabilities
                .filter(|((count, _), _)| **count > 0.0)
                .map(|((count, target_total), i)| (count / total / target_total, i))
                .collect();
            let order = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            if targets.len() > longest + 1 {
                targets.select_nth_unstable_by(longest, order);
                targets.truncate(longest + 1);
            }
            targets.sort_unstable_by(order);
            targets.into_iter().map(|(_, i)| i).collect()
        })
        .collect()
}

/// The larger of two numbers that are not NaN, in one instruction.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// Non-zeros that are compared at a time. Their C_ik and N_i· have random addresses, so they are
/// fetched before, and the cache misses overlap.
const NEAR: usize = 64;

/// Partial sums of [`compare`]. It is independent of the machine, because it decides the
/// rounding.
const LANES: usize = 8;

/// Non-zeros of a column, and what is computed from each.
struct Near {
    /// N_ij.
    n: [f64; NEAR],
    /// C_ik of the latent state k of the column.
    count: [f64; NEAR],
    /// 1 / N_i·.
    per_target: [f64; NEAR],
    /// The terms of [`compare`].
    terms: [[f64; NEAR]; 8],
}

impl Default for Near {
    fn default() -> Near {
        Near {
            n: [0.0; NEAR],
            count: [0.0; NEAR],
            per_target: [0.0; NEAR],
            terms: [[0.0; NEAR]; 8],
        }
    }
}

/// Sums and maxima over the support of a column.
#[derive(Debug, Default)]
struct Support {
    /// Σ N_ij log P_ij.
    reference: f64,
    /// Σ N_ij log (P_ij / Λ_ij).
    divergence: f64,
    /// Σ P_ij N_ij / N_i·.
    square: f64,
    /// Σ (P_ij − Λ_ij)² / N_i·.
    error: f64,
    /// Σ C_ik.
    covered: f64,
    /// Σ |P_ij − Λ_ij|.
    distance: f64,
    /// max |P_ij − Λ_ij| / N_i·.
    steepest: f64,
    /// max P_ij / N_i·.
    densest: f64,
    /// max |P_ij − Λ_ij| / P_ij.
    relative: f64,
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn compare(near: &mut Near, len: usize, totals: (f64, f64), allowance: f64, sums: &mut Support) {
    let (total, latent_total) = totals;
    // The places up to the next multiple are 0 and add nothing.
    let len = len.next_multiple_of(LANES);
    let (n, count, per_target) = (&near.n[..len], &near.count[..len], &near.per_target[..len]);
    let [
        reference,
        divergence,
        square,
        error,
        distance,
        steepest,
        densest,
        relative,
    ] = near.terms.each_mut().map(|terms| &mut terms[..len]);
    for e in 0..len {
        let (n, per_target) = (n[e], per_target[e]);
        // Equal fractions of integers have equal quotients.
        let (p, lambda) = (n / total, count[e] / latent_total);
        let gap = (p - lambda).abs();
        let differ = gap > allowance * larger(p, lambda);
        let gap = if differ { gap } else { 0.0 };
        let log_p = portable::ln(p);
        // The logarithm of the quotient loses no digits if the two are close.
        let log_quotient = portable::ln(p / lambda);
        let off = gap / p;
        reference[e] = if n > 0.0 { n * log_p } else { 0.0 };
        divergence[e] = if differ { n * log_quotient } else { 0.0 };
        square[e] = p * n * per_target;
        error[e] = gap * gap * per_target;
        distance[e] = gap;
        steepest[e] = gap * per_target;
        densest[e] = p * per_target;
        relative[e] = if differ { off } else { 0.0 };
    }
    sums.reference += sum(reference);
    sums.divergence += sum(divergence);
    sums.square += sum(square);
    sums.error += sum(error);
    sums.covered += sum(count);
    sums.distance += sum(distance);
    sums.steepest = larger(sums.steepest, max(steepest));
    sums.densest = larger(sums.densest, max(densest));
    sums.relative = larger(sums.relative, max(relative));
}

#[inline(always)]
fn lanes(terms: &[f64], join: impl Fn(f64, f64) -> f64) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    for terms in terms.as_chunks::<LANES>().0 {
        for (lane, &term) in lanes.iter_mut().zip(terms) {
            *lane = join(*lane, term);
        }
    }
    lanes
}

#[inline(always)]
fn sum(terms: &[f64]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes(terms, |sum, term| sum + term);
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn max(terms: &[f64]) -> f64 {
    lanes(terms, larger).into_iter().fold(0.0, larger)
}

impl Scoring<'_> {
    fn column<V: Value>(&self, shard: &Csr, values: &[V], l: usize, near: &mut Near) -> Column {
        let j = shard.first_row + l;
        let k = self.affiliation[j] as usize;
        let (total, latent_total) = (self.source_total[j], self.totals[k]);
        let n_targets = self.per_target.len();
        let latent = &self.counts[k * n_targets..][..n_targets];
        let support = &shard.columns[shard.span(l)];
        let mut sums = Support::default();
        for (targets, counts) in support.chunks(NEAR).zip(values[shard.span(l)].chunks(NEAR)) {
            for (e, (&i, &n)) in targets.iter().zip(counts).enumerate() {
                near.n[e] = n.f64();
                near.count[e] = latent[i as usize];
                near.per_target[e] = self.per_target[i as usize];
            }
            let unused = targets.len()..targets.len().next_multiple_of(LANES);
            for place in [&mut near.n, &mut near.count, &mut near.per_target] {
                place[unused.clone()].fill(0.0);
            }
            let totals = (total, latent_total);
            compare(near, targets.len(), totals, self.allowance, &mut sums);
        }

        // At most the support of P_j is visited, because the search ends at the first target
        // outside.
        let missed = self.ranked[k]
            .iter()
            .find(|i| support.binary_search(i).is_err());
        if let Some(&i) = missed {
            let count = latent[i as usize];
            sums.distance += (latent_total - sums.covered).max(count) / latent_total;
            let steepest = count / latent_total * self.per_target[i as usize];
            sums.steepest = larger(sums.steepest, steepest);
            // |P_ij − Λ_ij| / P_ij with P_ij = 0 < Λ_ij.
            sums.relative = f64::INFINITY;
        }
        Column {
            log_likelihood: sums.reference - sums.divergence,
            reference: sums.reference,
            // Rounding must not make a divergence negative.
            kullback_leibler: sums.divergence.max(0.0),
            frobenius_p: sums.square,
            // p_j / q_i = N_·j / N_i·.
            error: sums.error * total,
            // B_q(x) = ‖x‖₁ / max_i(|x_i|/q_i) with 1/q_i = S/N_i·, and B_q(0) = 1 (Definition 15);
            // ‖P_j‖₁ = 1.
            balance_of_difference: if sums.steepest > 0.0 {
                sums.distance / (sums.steepest * self.total)
            } else {
                1.0
            },
            balance: (1.0 - 2.0 / 3.0 * sums.relative) / (sums.densest * self.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::of_rows;
    use crate::evidence::pass::Passes;
    use crate::methods::low_rank::factors::of_partition;
    use proptest::prelude::*;

    /// The metrics of a partition, for a dense matrix of counts, targets × sources.
    fn score_dense(n: &[Vec<f64>], affiliation: &[u32], rank: usize, integral: bool) -> Metrics {
        let shards = of_rows(n, !integral, 3);
        let factors = of_partition(&Passes::local(), &shards, affiliation.to_vec(), rank);
        let sets: Vec<i32> = factors.target_sets().iter().map(|&l| l as i32).collect();
        let coarse = factors.coarse_counts(&sets);
        let values = factors.spectrum(&shards).values;
        score(&Passes::local(), &shards, &factors, &sets, &coarse, &values)
    }

    fn counts(n: &[&[u32]]) -> Vec<Vec<f64>> {
        let row = |row: &&[u32]| row.iter().map(|&n| f64::from(n)).collect();
        n.iter().map(row).collect()
    }

    #[track_caller]
    fn close(x: f64, expected: f64) {
        let off = (x - expected).abs();
        assert!(
            off <= 1e-12 * expected.abs().max(1.0),
            "{x} is not {expected}"
        );
    }

    // N (targets × sources) = [ 3 1 0 ]   γ = (0, 0, 1), S = 10, p = (.4, .4, .2), q = (.4, .4, .2)
    //                         [ 1 3 0 ]   λ = [ 1/2 0 ]   P − Λ = [  1/4 −1/4 0 ]
    //                         [ 0 0 2 ]       [ 1/2 0 ]           [ −1/4  1/4 0 ]
    //                                         [ 0   1 ]           [  0    0   0 ]
    #[test]
    fn three_states_by_hand() {
        let m = score_dense(
            &counts(&[&[3, 1, 0], &[1, 3, 0], &[0, 0, 2]]),
            &[0, 0, 1],
            2,
            true,
        );
        close(m.log_likelihood, 8.0 * 0.5f64.ln());
        close(
            m.reference_log_likelihood,
            6.0 * 0.75f64.ln() + 2.0 * 0.25f64.ln(),
        );
        close(
            m.kullback_leibler,
            (m.reference_log_likelihood - m.log_likelihood) / 10.0,
        );
        // P̃ = P in this example, except for the last column: p = q.
        close(m.frobenius_p, 2.0 * (9.0 + 1.0) / 16.0 + 1.0);
        // σ(Λ̃) = 1, 1.
        close(m.frobenius_lambda, 2.0);
        close(m.frobenius_error, 4.0 / 16.0);
        close(m.coherence, 2.0);
        // B_q of (¼, −¼, 0) is ½ / (¼ / .4); of 0 it is 1.
        close(m.kappa_1, 0.4);
        // α = ⅔ · ¼ / ¼, B_q(P_1) = 1 / (¾ / .4) and B_q(P_3) = .2.
        close(m.kappa_2, 0.5 * (0.4 / 0.75) * (1.0 / 3.0));
        close(m.kappa, 0.4);
        close(m.bound, m.kullback_leibler / 0.4);
        close(m.coherence_lower_bound, m.frobenius_p - m.bound);
        // F₁ = {1, 2}, F₂ = {3}, and nothing crosses.
        close(m.objective, 2.0);
        assert!(m.lambda_p_residual < 1e-16 && m.coherence_p.is_none());
        assert_eq!((m.source_sizes, m.target_sizes), (vec![2, 1], vec![2, 1]));
        assert_eq!((m.weights, m.empty_states), (vec![0.8, 0.2], 0));
    }

    // N = [ 1 0 ]   One latent state: λ = (½, ½), and each column has one target only:
    //     [ 0 1 ]   P − Λ = (½, −½), B_q = 1 / (½ / ½) = 1.
    #[test]
    fn mass_outside_the_support() {
        let m = score_dense(&counts(&[&[1, 0], &[0, 1]]), &[0, 0], 1, true);
        close(m.frobenius_error, 1.0);
        close(m.kappa_1, 0.5);
        // |P − Λ| / P = ½ / 0.
        assert_eq!(m.kappa_2, f64::NEG_INFINITY);
        close(m.kullback_leibler, 2f64.ln());
    }

    #[test]
    fn an_exact_model_leaves_no_error() {
        // Columns that are multiples of one another, as counts and as weights with rounding.
        for (scale, integral) in [(1.0, true), (0.1, false)] {
            let n: Vec<Vec<f64>> = [1.0, 2.0, 7.0]
                .map(|t| [1.0, 3.0, 9.0, 11.0].map(|s| s * t * scale).to_vec())
                .to_vec();
            let m = score_dense(&n, &[0, 0, 0, 0], 2, integral);
            assert_eq!(
                (m.kullback_leibler, m.frobenius_error, m.bound),
                (0.0, 0.0, 0.0)
            );
            assert_eq!((m.kappa_1, m.empty_states), (0.5, 1));
            assert_eq!((m.source_sizes, m.target_sizes), (vec![4, 0], vec![3, 0]));
        }
    }

    /// N without empty rows and columns, and a partition.
    fn worlds() -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<u32>, usize)> {
        (1usize..7, 1usize..9, 1usize..4).prop_flat_map(|(m, n, rank)| {
            let entry = prop_oneof![3 => Just(0u32), 2 => 1u32..9];
            let rows = prop::collection::vec(prop::collection::vec(entry, n), m);
            let partition = prop::collection::vec(0..rank as u32, n);
            (rows, partition, Just(rank.min(m).min(n))).prop_map(|(mut rows, partition, rank)| {
                let (m, n) = (rows.len(), rows[0].len());
                for at in 0..m.max(n) {
                    rows[at % m][at % n] += 1;
                }
                let row = |row: &Vec<u32>| row.iter().map(|&n| f64::from(n)).collect();
                let partition = partition.iter().map(|k| k % rank as u32).collect();
                (rows.iter().map(row).collect(), partition, rank)
            })
        })
    }

    /// κ⁽¹⁾, κ⁽²⁾, ‖P̃ − Λ̃‖²_F and Σ p_j KL from dense matrices, as the paper writes them.
    fn dense(n: &[Vec<f64>], affiliation: &[u32]) -> [f64; 4] {
        let (rows, columns) = (n.len(), n[0].len());
        let total: f64 = n.iter().flatten().sum();
        let q: Vec<f64> = n.iter().map(|r| r.iter().sum::<f64>() / total).collect();
        let (mut kappa, mut error, mut divergence) = ([f64::INFINITY; 2], 0.0, 0.0);
        for j in 0..columns {
            let mates: Vec<usize> = (0..columns)
                .filter(|&l| affiliation[l] == affiliation[j])
                .collect();
            let mass = |i: usize, set: &[usize]| set.iter().map(|&l| n[i][l]).sum::<f64>();
            let of = |set: &[usize]| -> Vec<f64> {
                let whole: f64 = (0..rows).map(|i| mass(i, set)).sum();
                (0..rows).map(|i| mass(i, set) / whole).collect()
            };
            let (p, lambda) = (of(&[j]), of(&mates));
            let weight = (0..rows).map(|i| n[i][j]).sum::<f64>() / total;
            let x: Vec<f64> = p.iter().zip(&lambda).map(|(p, l)| (p - l).abs()).collect();
            let balance = |x: &[f64]| {
                let steepest = x.iter().zip(&q).map(|(x, q)| x / q).fold(0.0, f64::max);
                if steepest > 0.0 {
                    x.iter().sum::<f64>() / steepest
                } else {
                    1.0
                }
            };
            let ratio = |(x, p): (&f64, &f64)| if *x == 0.0 { 0.0 } else { x / p };
            let alpha = 2.0 / 3.0 * x.iter().zip(&p).map(ratio).fold(0.0, f64::max);
            kappa[0] = kappa[0].min(0.5 * balance(&x));
            kappa[1] = kappa[1].min(0.5 * balance(&p) * (1.0 - alpha));
            error += x
                .iter()
                .zip(&q)
                .map(|(x, q)| x * x * weight / q)
                .sum::<f64>();
            let terms = p.iter().zip(&lambda).filter(|(p, _)| **p > 0.0);
            divergence += weight * terms.map(|(p, l)| p * (p / l).ln()).sum::<f64>();
        }
        [kappa[0], kappa[1], error, divergence]
    }

    proptest! {
        #[test]
        fn sparse_sums_agree_with_dense_ones((n, affiliation, rank) in worlds(), integral: bool) {
            let m = score_dense(&n, &affiliation, rank, integral);
            let expected = dense(&n, &affiliation);
            let found = [m.kappa_1, m.kappa_2, m.frobenius_error, m.kullback_leibler];
            for (x, expected) in found.iter().zip(expected) {
                prop_assert!(*x == expected || (x - expected).abs() < 1e-12, "{found:?} {expected}");
            }
            // Corollary 12, Theorem 17, Corollary 19 and Theorem 10.
            prop_assert!((m.frobenius_p - m.frobenius_lambda - m.frobenius_error).abs() < 1e-12);
            prop_assert!(m.frobenius_error <= m.bound + 1e-13);
            prop_assert!(m.coherence >= m.coherence_lower_bound - 1e-12);
            prop_assert!(m.lambda_p_residual < 1e-15);
        }
    }
}
