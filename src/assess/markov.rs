//! Markov tests of sets: a partition used on both sides of square counts → the r × r transition
//! matrix of its sets, implied timescales and Chapman-Kolmogorov tests.
//!
//! With C_kl = Σ N_ij over sources j in set k and targets i in set l, T_kl = C_kl / Σ_l C_kl is the
//! transition matrix of the sets at lag τ (rows add up to one). If the sets were a Markov chain,
//! the timescales −τ / ln |μ| of the eigenvalues μ of T(τ) would not depend on τ, and T(kτ),
//! counted at the lag kτ, would be T(τ)ᵏ (Chapman-Kolmogorov). The deviations measure how much
//! memory the sets lose.

use crate::evidence::counts::csr::{Csr, Value};
use crate::evidence::counts::groups::Resampled;
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::Passes;
use crate::evidence::pass::kernel::{Conserved, Kernel, Sharded, each};
use crate::math::dense;
use crate::math::matrix::{identity, product};
use crate::with_values;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One eigenvalue μ of T.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timescale {
    /// The real part of μ.
    pub re: f64,
    /// The imaginary part of μ.
    pub im: f64,
    /// −lag / ln |μ| in the unit of the lag, 0 for μ = 0; none if |μ| = 1 up to rounding, which
    /// never decays.
    pub timescale: Option<f64>,
}

/// T(τ)ᵏ and the estimate from the counts at the lag kτ, both r × r row-major (from, to). A row is
/// none if its set has no counts.
#[derive(Debug, Clone, PartialEq)]
pub struct ChapmanKolmogorov {
    /// k ≥ 2.
    pub steps: u64,
    /// T(τ)ᵏ.
    pub predicted: Vec<Option<f64>>,
    /// T(kτ) of the counts.
    pub estimated: Vec<Option<f64>>,
}

impl ChapmanKolmogorov {
    /// From the coarse counts at the lags τ and kτ.
    pub(crate) fn new(steps: u64, own: &[f64], longer: &[f64], rank: usize) -> ChapmanKolmogorov {
        let t = transition_matrix(own, rank);
        let power = power(&t, rank, steps);
        let known = |of: &[f64], row: usize| of[row * rank..][..rank].iter().any(|&x| x > 0.0);
        let rows = |counts: &[f64], t: &[f64]| -> Vec<Option<f64>> {
            let entries = t.iter().enumerate();
            entries
                .map(|(at, &x)| known(counts, at / rank).then_some(x))
                .collect()
        };
        ChapmanKolmogorov {
            steps,
            predicted: rows(own, &power),
            estimated: rows(longer, &transition_matrix(longer, rank)),
        }
    }

    /// The largest |predicted − estimated|.
    pub(crate) fn deviation(&self) -> f64 {
        let pairs = self.predicted.iter().zip(&self.estimated);
        let known = pairs.filter_map(|(p, e)| Some((p.as_ref()? - e.as_ref()?).abs()));
        known.fold(0.0, f64::max)
    }
}

/// Sums of the counts of every source over the sets of targets. A target of set −1 is left out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfSets<'a> {
    target_sets: Cow<'a, [i32]>,
    rank: usize,
}

impl Kernel for OfSets<'_> {
    type Shard = Csr;
    type Cell = f64;

    const NAME: &'static str = "of sets";

    fn width(&self) -> usize {
        self.rank
    }

    fn apply(&self, shard: &Csr, rows: &mut [f64]) {
        rows.fill(0.0);
        with_values!(shard, values => {
            for (l, row) in rows.chunks_exact_mut(self.rank).enumerate() {
                let span = shard.span(l);
                for (&i, &n) in shard.columns[span.clone()].iter().zip(&values[span]) {
                    if let Ok(set) = usize::try_from(self.target_sets[i as usize]) {
                        row[set] += Value::f64(n);
                    }
                }
            }
        });
    }

    fn conserved(&self, totals: &Totals, rows: &[f64]) -> Conserved {
        if self.target_sets.iter().all(|&set| set >= 0) {
            totals.are_sums(rows, self.rank)
        } else {
            each(rows, |&sum| sum >= 0.0)
        }
    }
}

/// C, r × r row-major, from the sets of sources (rows of `by_source`) and of targets (its columns).
/// States of set −1 are left out.
pub(crate) fn coarse_counts(
    passes: &Passes<'_>,
    by_source: Sharded<'_, Csr>,
    source_sets: &[i32],
    target_sets: &[i32],
    rank: usize,
) -> Vec<f64> {
    let mut of_source = vec![0.0; source_sets.len() * rank];
    let target_sets = Cow::from(target_sets);
    let kernel = OfSets { target_sets, rank };
    passes.rows(by_source, &kernel, &mut of_source);
    // Sources are added in their order, for any shards.
    let mut coarse = vec![0.0; rank * rank];
    for (row, &set) in of_source.chunks_exact(rank).zip(source_sets) {
        if let Ok(k) = usize::try_from(set) {
            let sums = coarse[k * rank..][..rank].iter_mut();
            sums.zip(row).for_each(|(sum, n)| *sum += n);
        }
    }
    coarse
}

/// T from C. The row of a set without counts is zero.
pub(crate) fn transition_matrix(coarse_counts: &[f64], rank: usize) -> Vec<f64> {
    let mut t = coarse_counts.to_vec();
    for row in t.chunks_exact_mut(rank) {
        let total: f64 = row.iter().sum();
        if total > 0.0 {
            row.iter_mut().for_each(|x| *x /= total);
        }
    }
    t
}

/// The eigenvalues of T by descending magnitude and their timescales. There are at most r, because
/// sets without counts are no part of the chain. It is cheap enough for every resample of the
/// counts.
pub(crate) fn timescales(coarse_counts: &[f64], rank: usize, lag: f64) -> Vec<Timescale> {
    let t = transition_matrix(coarse_counts, rank);
    let sets: Vec<usize> = (0..rank)
        .filter(|k| t[k * rank..][..rank].iter().any(|&x| x > 0.0))
        .collect();
    let n = sets.len();
    let inner: Vec<f64> = (0..n * n)
        .map(|at| t[sets[at / n] * rank + sets[at % n]])
        .collect();
    // An eigenvalue of a matrix whose rows add up to one has an error of some ε for each of its n
    // rows.
    let one = 1.0 - 64.0 * n as f64 * f64::EPSILON;
    let mut values: Vec<Timescale> = dense::eigenvalues(&inner, n)
        .into_iter()
        .map(|[re, im]| {
            let size = re.hypot(im);
            let timescale = (size < one).then(|| -lag / size.ln());
            Timescale { re, im, timescale }
        })
        .collect();
    let size = |t: &Timescale| t.re.hypot(t.im);
    values.sort_by(|a, b| {
        let order = size(b).total_cmp(&size(a));
        order
            .then(b.re.total_cmp(&a.re))
            .then(b.im.total_cmp(&a.im))
    });
    values
}

/// What the timescales of a resample need. Sources and targets are states of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain<'a> {
    /// The source that every target of the whole is, if it is one.
    pub source_of_target: &'a [Option<u32>],
    /// The lag of the counts.
    pub lag: f64,
}

impl Chain<'_> {
    /// The timescales of the sets of the sources of a resample, on its own counts; infinite for a
    /// set that never decays. A target that is no source of the resample has no set.
    pub(crate) fn timescales(
        &self,
        passes: &Passes<'_>,
        resampled: &Resampled,
        sets: &[i32],
        rank: usize,
    ) -> Vec<f64> {
        let set = |&target: &u32| {
            let source = self.source_of_target[target as usize]?;
            let place = resampled.sources.binary_search(&source).ok()?;
            Some(sets[place])
        };
        let targets = resampled.targets.iter();
        let target_sets: Vec<i32> = targets.map(|target| set(target).unwrap_or(-1)).collect();
        let by_source = resampled.shards.sources();
        let coarse = coarse_counts(passes, by_source, sets, &target_sets, rank);
        let all = timescales(&coarse, rank, self.lag).into_iter();
        all.map(|t| t.timescale.unwrap_or(f64::INFINITY)).collect()
    }
}

/// Tᵏ by repeated squaring.
pub(crate) fn power(t: &[f64], rank: usize, mut k: u64) -> Vec<f64> {
    let (mut result, mut square) = (identity(rank), t.to_vec());
    while k > 0 {
        if k % 2 == 1 {
            result = product(&result, &square, rank);
        }
        k /= 2;
        if k > 0 {
            square = product(&square, &square, rank);
        }
    }
    result
}

/// The Markov tests of one fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Markov {
    /// By descending |μ|.
    pub timescales: Vec<Timescale>,
    /// The ends of the intervals of the timescales. None if resamples do not give them.
    pub intervals: Vec<[Option<f64>; 2]>,
    /// Ordered by steps.
    pub comparisons: Vec<ChapmanKolmogorov>,
}

impl Markov {
    /// The steps with the largest difference of prediction and estimate, and the difference.
    pub(crate) fn deviation(&self) -> Option<(u64, f64)> {
        let all = self.comparisons.iter().map(|c| (c.steps, c.deviation()));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::csr::Values;
    use crate::evidence::pass::Passes;
    use crate::math::testing::close;

    // T = [ 0.9 0.1 ]   μ = 1, 0.7 (the trace is 1.7). At lag 5 the timescale is
    //     [ 0.2 0.8 ]   −5 / ln 0.7 = 14.018…
    #[test]
    fn two_states_by_hand() {
        let t = timescales(&[90.0, 10.0, 40.0, 160.0], 2, 5.0);
        close(
            &[t[0].re, t[0].im, t[1].re, t[1].im],
            &[1.0, 0.0, 0.7, 0.0],
            1e-12,
        );
        assert_eq!(t[0].timescale, None);
        close(&[t[1].timescale.unwrap()], &[-5.0 / 0.7f64.ln()], 1e-12);
        let t = transition_matrix(&[90.0, 10.0, 40.0, 160.0], 2);
        // T² = [ 0.83 0.17 ; 0.34 0.66 ], and T⁰ is the identity.
        close(&power(&t, 2, 2), &[0.83, 0.17, 0.34, 0.66], 1e-12);
        close(&power(&t, 2, 0), &[1.0, 0.0, 0.0, 1.0], 1e-12);
        let fifth = power(&power(&t, 2, 2), 2, 2);
        let fifth = power(&fifth, 2, 1);
        close(&power(&t, 2, 4), &fifth, 1e-12);
    }

    #[test]
    fn powers_of_a_chain_predict_it() {
        let own = [90.0, 10.0, 40.0, 160.0];
        let exact = ChapmanKolmogorov::new(2, &own, &[83.0, 17.0, 34.0, 66.0], 2);
        assert!(exact.deviation() < 1e-15);
        let off = ChapmanKolmogorov::new(2, &own, &[93.0, 7.0, 34.0, 66.0], 2);
        close(&[off.deviation()], &[0.1], 1e-12);
        // The estimate of a set without counts at the longer lag is unknown.
        let half = ChapmanKolmogorov::new(2, &own, &[0.0, 0.0, 34.0, 66.0], 2);
        assert_eq!(
            (half.estimated[1], half.predicted[1].is_some()),
            (None, true)
        );
        assert!(half.deviation() < 1e-15);
    }

    // A cycle of three with a chance of staying: T = ½ I + ½ (shift), μ = 1 and ½ + ½ exp(±2πi/3) =
    // ¼ ± (√3/4) i, of magnitude ½.
    #[test]
    fn cycles_have_complex_eigenvalues() {
        let t = timescales(&[1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0], 3, 1.0);
        let root = 3f64.sqrt() / 4.0;
        close(
            &[t[1].re, t[1].im, t[2].re, t[2].im],
            &[0.25, root, 0.25, -root],
            1e-12,
        );
        close(&[t[2].timescale.unwrap()], &[1.0 / 2f64.ln()], 1e-12);
    }

    #[test]
    fn sets_without_counts_are_no_part_of_the_chain() {
        // The second of three sets is empty; the others never meet, so both eigenvalues are one.
        let t = timescales(&[3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0], 3, 1.0);
        assert_eq!(t.len(), 2);
        assert!(t.iter().all(|t| t.timescale.is_none()));
        // What forgets at once has timescale 0.
        let t = timescales(&[1.0, 1.0, 1.0, 1.0], 2, 1.0);
        assert!(t[1].timescale.unwrap() < 0.05);
    }

    // Sources 0, 1, 2 in sets 0, 1, 1; targets 0..3 in sets 0, 1, 1 and none.
    #[test]
    fn counts_of_sets_by_hand() {
        let shards = |cut: usize| -> Vec<Csr> {
            let all = [
                (vec![0u32, 1], vec![4u32, 1]),
                (vec![0, 2, 3], vec![2, 3, 9]),
                (vec![1], vec![5]),
            ];
            let rows = all.chunks(cut).scan(0, |first, rows| {
                let mut offsets = vec![0];
                rows.iter()
                    .for_each(|r| offsets.push(offsets.last().unwrap() + r.0.len()));
                let shard = Csr {
                    first_row: *first,
                    offsets,
                    columns: rows.iter().flat_map(|r| r.0.clone()).collect(),
                    values: Values::Count(rows.iter().flat_map(|r| r.1.clone()).collect()),
                };
                *first += rows.len();
                Some(shard)
            });
            rows.collect()
        };
        for cut in [1, 3] {
            let c = coarse_counts(
                &Passes::local(),
                Sharded {
                    shards: &shards(cut),
                    totals: Totals::UNKNOWN,
                },
                &[0, 1, 1],
                &[0, 1, 1, -1],
                2,
            );
            assert_eq!(c, [4.0, 1.0, 2.0, 8.0]);
        }
    }
}
