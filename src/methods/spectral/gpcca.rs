//! G-PCCA: the leading real Schur vectors of the transition matrix of square counts, an embedding
//! that does not need detailed balance (Reuter et al., J. Chem. Theory Comput. 14, 2018). Its sets
//! are long-lived, or the process visits them in a cycle.
//!
//! In: N (m targets × n sources), the source that every target is, n positive weights η, and a rank
//! r. T_js is the probability that state s follows state j (rows sum to 1), and B = D^{1/2} T
//! D^{-1/2} with D = diag η, whose eigenvector for 1 is √η. Out: X = D^{-1/2} Q (n × r, row-major)
//! for the r leading Schur vectors Q of B, by eigenvalues of descending magnitude or real part. The
//! first column is 1. The columns are orthonormal in ⟨x, y⟩ = Σ η_j x_j y_j and span an invariant
//! subspace of T.
//!
//! A complex pair of eigenvalues spans one plane, so a rank that splits a pair is refused. T is
//! never stored.

use crate::error::{Error, Result};
use crate::evidence::counts::products::Multiply;
use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::math::schur::Which;
use crate::math::{arnoldi, sum};
use crate::methods::columns::StateColumn;
use crate::methods::estimator::{
    Estimator, Fault, Needs, Parameters, States, defaults, ranked, tolerance,
};
use crate::methods::fit::{Fit, How};
use crate::methods::low_rank::check_rank;
use crate::methods::low_rank::columns::SOFT_SETS;
use crate::methods::spectral::softened::{panels, softened};
use crate::methods::spectral::{soft, truncated_svd};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Imaginary parts up to this are the rounding of two equal real values, which may be split.
const EQUAL: f64 = 1e-8;

/// The largest number of products of T with a vector.
const MAX_PRODUCTS: usize = 100_000;

/// Sets with memberships from the leading Schur vectors of the transition matrix (G-PCCA):
/// long-lived sets, or sets that follow each other in a cycle. Source and target states must be of
/// one kind, and every target must be a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpcca {
    /// The number of sets, or a list of numbers to fit one by one. A number that splits a complex
    /// pair of eigenvalues is an error.
    pub rank: usize,
    /// The largest residual of the Schur vectors.
    #[serde(default = "Gpcca::tolerance")]
    #[schemars(range(min = 0))]
    pub tolerance: f64,
    /// The order of the eigenvalues, of which the leading ones are used.
    #[serde(default)]
    pub which: Which,
}

defaults! { pub Gpcca(rank: usize) {
    tolerance: f64 = 1e-9,
} which }

impl Parameters for Gpcca {
    const NAME: &'static str = "gpcca";

    fn check(&self) -> std::result::Result<(), Fault> {
        tolerance("tolerance", self.tolerance)
    }

    ranked!();

    fn describe(&self, rank: &str) -> String {
        format!("Schur vectors by {} and PCCA+, {rank}", self.which.name())
    }
}

impl Estimator for Gpcca {
    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn kernels() -> Vec<Entry> {
        vec![Entry::of::<Multiply<'static>>()]
    }

    fn needs(&self) -> Needs<'_> {
        Needs {
            states: States::Closed,
            ..Needs::default()
        }
    }

    fn columns(&self) -> &'static [StateColumn] {
        SOFT_SETS
    }

    fn bytes(&self, size: Size, _: u64) -> u64 {
        panels(size, self.rank)
    }

    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        check_rank(self.rank, &counts.shards)?;
        let source_of_target: Option<Vec<u32>> = counts.source_of_target.iter().copied().collect();
        let source_of_target = source_of_target.filter(|s| s.len() == counts.shards.n_targets);
        let open = || Error::input("a target state is no source state");
        cycles(
            passes,
            &counts.shards,
            self,
            &source_of_target.ok_or_else(open)?,
            seed,
        )
    }
}

/// The fit of G-PCCA: memberships in the span of the Schur vectors. These are the embedding, equal
/// for a state on both sides.
fn cycles(
    passes: &Passes<'_>,
    shards: &Shards,
    params: &Gpcca,
    source_of_target: &[u32],
    seed: u64,
) -> Result<Fit> {
    let (rank, weights) = (params.rank, &shards.source_total);
    passes.step("decompose");
    let found = leading(passes, shards, source_of_target, weights, params, seed)?;
    passes.step("cluster");
    let sets = soft::square(&found.embedding, rank, weights, source_of_target)?;
    let of_target = source_of_target
        .iter()
        .flat_map(|&j| &found.embedding[j as usize * rank..][..rank])
        .copied()
        .collect();
    let e = found.embedding;
    let how = How {
        iterations: found.products,
        converged: sets.converged && found.converged,
        ..How::direct(seed)
    };
    let mut model = softened(passes, shards, rank, sets, e, of_target);
    let vectors = found.eigenvalues.iter().zip(&found.residuals);
    for (singular, (&eigenvalue, &residual)) in model.spectrum.iter_mut().zip(vectors) {
        singular.eigenvalue = Some(eigenvalue);
        singular.residual = Some(residual);
    }
    model.largest_residual = found.converged.then_some(params.tolerance);
    Ok(Fit { how, model })
}

/// Leading Schur vectors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dominant {
    /// X, n × r row-major.
    pub embedding: Vec<f64>,
    /// Real and imaginary parts of the r leading eigenvalues, and of the next one if there is one.
    /// The gap between them tells whether r is a natural number of sets.
    pub eigenvalues: Vec<[f64; 2]>,
    /// The distance of B q from the span of the vectors up to q, r values.
    pub residuals: Vec<f64>,
    /// Products of T with a vector.
    pub products: usize,
    /// Restarts of the Arnoldi iteration.
    pub restarts: usize,
    /// Whether the vectors met their tolerance.
    pub converged: bool,
}

/// The leading Schur vectors, if all targets are sources: target i is source `source_of_target[i]`.
pub(crate) fn leading(
    passes: &Passes<'_>,
    shards: &Shards,
    source_of_target: &[u32],
    weights: &[f64],
    params: &Gpcca,
    seed: u64,
) -> Result<Dominant> {
    let (n, rank) = (shards.n_sources, params.rank);
    assert_eq!(
        source_of_target.len(),
        shards.n_targets,
        "one source a target"
    );
    assert_eq!(weights.len(), n, "one weight a source");
    assert!(0 < rank && rank <= n, "the rank is between 1 and n");
    let width = truncated_svd::width(n);
    let total = sum::terms(n, |j| weights[j]);
    let roots: Vec<f64> = weights.iter().map(|w| (w / total).sqrt()).collect();
    // One eigenvalue more, to detect a pair that is split.
    let wanted = rank.min(n - 1);
    let totals = roots.iter().zip(&shards.source_total);
    let scale: Vec<f64> = totals.map(|(root, total)| root / total).collect();
    let mut scaled = vec![0.0; shards.n_targets * width];
    let apply = |x: &[f64], out: &mut [f64]| {
        scaled
            .par_chunks_mut(width)
            .zip(source_of_target)
            .for_each(|(row, &s)| {
                let s = s as usize;
                let x = &x[s * width..][..width];
                row.iter_mut()
                    .zip(x)
                    .for_each(|(row, x)| *row = x / roots[s]);
            });
        let kernel = Multiply {
            x: Cow::from(&scaled),
            width,
            scale: Cow::from(&scale),
        };
        passes.rows(shards.sources(), &kernel, out);
    };
    let options = arnoldi::Options {
        wanted,
        width,
        residual: params.tolerance,
        max_products: MAX_PRODUCTS,
        by: params.which,
    };
    let found = arnoldi::leading(apply, &roots, &options, &mut Pcg64::seed_from_u64(seed));

    let mut eigenvalues = vec![[1.0, 0.0]];
    eigenvalues.extend(&found.values);
    let [re, im] = eigenvalues[rank - 1];
    if im > EQUAL {
        let message = format!(
            "rank {rank} parts the complex pair of eigenvalues {re:.6} ± {im:.6}i: take {} or {}",
            rank - 1,
            rank + 1
        );
        return Err(Error::input(message));
    }
    eigenvalues.truncate(rank + 1);
    let mut residuals = vec![0.0];
    residuals.extend(&found.residuals[..rank - 1]);
    Ok(Dominant {
        embedding: unscaled(&found.vectors, wanted, rank, &roots),
        eigenvalues,
        residuals,
        products: found.products,
        restarts: found.restarts,
        converged: found.converged,
    })
}

/// X, n × rank row-major: ones, and the first of `wanted` Schur vectors divided by the roots of the
/// weights.
fn unscaled(vectors: &[f64], wanted: usize, rank: usize, roots: &[f64]) -> Vec<f64> {
    let mut embedding = vec![1.0; roots.len() * rank];
    let rows = embedding.par_chunks_mut(rank).enumerate();
    rows.for_each(|(j, row)| {
        let q = &vectors[j * wanted..][..rank - 1];
        row[1..]
            .iter_mut()
            .zip(q)
            .for_each(|(x, q)| *x = q / roots[j]);
    });
    embedding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::evidence::counts::shards::{dense, of_entries};
    use crate::evidence::pass::Passes;
    use crate::math::testing::{close, on_threads};
    use crate::methods::spectral::pcca;

    /// Three groups of `size` states that follow each other in a cycle with probability 0.9:
    /// eigenvalues 1, 0.85 e^{±2πi/3}, and 0.
    fn cycle(size: u32) -> Vec<(u32, u32, u32)> {
        let n = 3 * size;
        let group = |x: u32| x / size;
        let all = (0..n).flat_map(|j| (0..n).map(move |i| (j, i)));
        all.map(|(j, i)| {
            let goes_on = group(i) == (group(j) + 1) % 3;
            (j, i, if goes_on { 18 } else { 1 })
        })
        .collect()
    }

    /// The leading vectors if target i is source i.
    fn of_square(shards: &Shards, params: &Gpcca) -> Result<Dominant> {
        let map: Vec<u32> = (0..shards.n_sources as u32).collect();
        leading(
            &Passes::local(),
            shards,
            &map,
            &shards.source_total,
            params,
            1,
        )
    }

    #[test]
    fn a_pair_is_not_parted() {
        let shards = of_entries(12, 12, cycle(4), 50);
        let run = |rank| of_square(&shards, &Gpcca::new(rank));
        let error = run(2).expect_err("a parted pair");
        assert_eq!(error.kind(), Kind::Input);
        let expected =
            "rank 2 parts the complex pair of eigenvalues -0.425000 ± 0.736122i: take 1 or 3";
        assert_eq!(error.to_string(), expected);
        let three = run(3).expect("whole pairs");
        assert_eq!(three.eigenvalues.len(), 4);
        assert!(three.eigenvalues[3][0].abs() < 1e-9);
        // The three groups are the sets, exactly.
        let sets = pcca::fit(&three.embedding, 3, &shards.source_total).expect("three functions");
        assert!((sets.crispness - 1.0).abs() < 1e-10);
        assert!((0..12).all(|j| sets.affiliation[j] == sets.affiliation[j / 4 * 4]));
        assert!(run(1).is_ok_and(|one| one.embedding == [1.0; 12]));
    }

    /// Two copies of a cycle of three groups; a state changes the copy with probability 0.2. The
    /// eigenvalues are 1 and 0.6, each times 1 and 0.85 e^{±2πi/3}.
    #[test]
    fn real_parts_lead_where_they_are_asked_for() {
        let both = (0..4).flat_map(|at| {
            let (from, to) = (at / 2, at % 2);
            let stays = if from == to { 4 } else { 1 };
            let counts = cycle(4).into_iter();
            counts.map(move |(j, i, n)| (12 * from + j, 12 * to + i, stays * n))
        });
        let shards = of_entries(24, 24, both, 50);
        let run = |rank, which| {
            let params = Gpcca::new(rank);
            of_square(&shards, &Gpcca { which, ..params })
        };
        // By magnitude, the pair of 0.85 comes before 0.6.
        run(2, Which::Magnitude).expect_err("a parted pair");
        let three = run(3, Which::Magnitude).expect("whole pairs");
        let next = three.eigenvalues[3];
        assert!((next[0] - 0.6).abs() < 1e-9 && next[1] == 0.0, "{next:?}");
        let two = run(2, Which::Real).expect("no pair");
        let values: Vec<f64> = two.eigenvalues.iter().map(|v| v[0]).collect();
        close(&values[..2], &[1.0, 0.6], 1e-9);
        assert!(values[2].abs() < 1e-9, "the nulls of the groups are next");
        let sets = pcca::fit(&two.embedding, 2, &shards.source_total).expect("two functions");
        assert!((sets.crispness - 1.0).abs() < 1e-9);
        assert!((0..24).all(|j| sets.affiliation[j] == sets.affiliation[j / 12 * 12]));
    }

    /// Shards of dense counts given by rows of sources.
    fn of_sources<const N: usize>(rows: [[u32; N]; N]) -> Shards {
        dense(&rows.map(|row| row.map(f64::from).to_vec()), false, 100)
    }

    /// Crispness and memberships, with sets in the order of the given states.
    fn gpcca(shards: &Shards, weights: &[f64], of: &[usize]) -> (Dominant, f64, Vec<f64>) {
        let (n, r) = (shards.n_sources, of.len());
        let map: Vec<u32> = (0..n as u32).collect();
        let found = leading(&Passes::local(), shards, &map, weights, &Gpcca::new(r), 1)
            .expect("whole pairs");
        let sets = pcca::fit(&found.embedding, r, weights).expect("independent columns");
        assert!(found.converged && sets.converged);
        let order: Vec<usize> = of.iter().map(|&l| sets.affiliation[l] as usize).collect();
        let rows = sets.membership.chunks(r);
        let named = rows.flat_map(|row| order.iter().map(|&k| row[k]).collect::<Vec<_>>());
        (found, sets.crispness, named.collect())
    }

    /// The values of pyGPCCA 1.0.4 and deeptime 0.4.5. Both use a derivative-free search that stops
    /// slightly below the maximum.
    #[test]
    fn reversible_counts_as_pygpcca_and_deeptime() {
        let shards = of_sources([
            [40, 10, 6, 1, 0, 0, 0],
            [10, 30, 8, 0, 1, 0, 0],
            [6, 8, 20, 5, 4, 1, 0],
            [1, 0, 5, 30, 12, 2, 1],
            [0, 1, 4, 12, 25, 0, 3],
            [0, 0, 1, 2, 0, 50, 12],
            [0, 0, 0, 1, 3, 12, 40],
        ]);
        let (found, crispness, membership) = gpcca(&shards, &shards.source_total, &[3, 0, 5]);
        let values: Vec<f64> = found.eigenvalues.iter().map(|v| v[0]).collect();
        let expected = [1.0, 0.934877273110705, 0.799580743262878, 0.547597413053879];
        close(&values, &expected, 1e-12);
        assert!(crispness > 0.86703946 && crispness < 0.86703946 + 1e-4);
        #[rustfmt::skip]
        let theirs = [
            0.000000, 0.990409, 0.009591,
            0.076020, 0.923980, 0.000000,
            0.418772, 0.579417, 0.001811,
            0.989212, 0.010784, 0.000004,
            0.994550, 0.000000, 0.005450,
            0.000039, 0.049273, 0.950688,
            0.124851, 0.000010, 0.875139,
        ];
        close(&membership, &theirs, 1e-4);
    }

    /// Four groups of two states that follow each other, with uniform weights: the values of
    /// pyGPCCA 1.0.4.
    #[test]
    fn a_cycle_as_pygpcca() {
        let shards = of_sources([
            [9, 3, 20, 4, 0, 1, 1, 0],
            [2, 8, 14, 9, 1, 0, 0, 1],
            [0, 1, 7, 3, 16, 8, 0, 1],
            [1, 0, 2, 9, 11, 13, 1, 0],
            [2, 0, 0, 1, 8, 3, 12, 15],
            [0, 1, 1, 0, 2, 7, 18, 9],
            [13, 11, 1, 0, 0, 1, 6, 4],
            [15, 12, 0, 1, 1, 0, 3, 8],
        ]);
        let (found, crispness, membership) = gpcca(&shards, &[1.0; 8], &[4, 2, 0, 6]);
        let (pair, next) = ([0.249559213893, 0.636490215052], [0.216057792439, 0.0]);
        let conjugate = [pair[0], -pair[1]];
        let values = [[1.0, 0.0], pair, conjugate, [-0.380074655245, 0.0], next];
        let found = found.eigenvalues.as_flattened();
        close(found, values.as_flattened(), 1e-11);
        assert!(crispness > 0.94808457 && crispness < 0.94808457 + 1e-3);
        #[rustfmt::skip]
        let theirs = [
            0.000000, 0.002854, 0.948349, 0.048797,
            0.011058, 0.000013, 0.988923, 0.000007,
            0.006814, 0.990921, 0.000003, 0.002262,
            0.000000, 0.980506, 0.019494, 0.000000,
            0.905295, 0.057707, 0.000000, 0.036998,
            0.981386, 0.000000, 0.018226, 0.000388,
            0.004807, 0.007234, 0.000390, 0.987568,
            0.000013, 0.000037, 0.000004, 0.999946,
        ];
        close(&membership, &theirs, 1e-3);
    }

    #[test]
    fn one_state() {
        let shards = of_entries(1, 1, [(0, 0, 7)], 9);
        let one =
            leading(&Passes::local(), &shards, &[0], &[7.0], &Gpcca::new(1), 0).expect("rank 1");
        assert_eq!(
            (one.embedding, one.eigenvalues),
            (vec![1.0], vec![[1.0, 0.0]])
        );
    }

    #[test]
    fn vectors_are_invariant_and_orthonormal_under_any_names() {
        // 600 states in four groups that leak into the next one. Targets have another order than
        // sources. The counts are sparse, so the decomposition iterates.
        let n = 600u32;
        let name = |i: u32| (i * 7 + 11) % n;
        let mut counts = Vec::new();
        for j in 0..n {
            let (group, at) = (j / 150 * 150, j % 150);
            for step in [1, 17, 38, 101, 140] {
                counts.push((j, name(group + (at + step) % 150), 20));
            }
            counts.push((j, name((j + 150) % n), 1 + j % 3));
        }
        let mut map = vec![0; n as usize];
        (0..n).for_each(|s| map[name(s) as usize] = s);
        let run = |threads: usize, shard_nnz: usize, weights: &[f64]| {
            let shards = of_entries(n as usize, n as usize, counts.clone(), shard_nnz);
            let params = Gpcca::new(4);
            on_threads(threads, || {
                leading(&Passes::local(), &shards, &map, weights, &params, 5).expect("4 values")
            })
        };
        let weights: Vec<f64> = (0..n).map(|j| 1.0 + f64::from(j % 5)).collect();
        let found = run(1, usize::MAX, &weights);
        assert_eq!(found, run(5, 300, &weights));
        assert!(found.converged);
        let total: f64 = weights.iter().sum();
        let x = |j: usize, k: usize| found.embedding[j * 4 + k];
        let inner = |a: &dyn Fn(usize) -> f64, b: &dyn Fn(usize) -> f64| -> f64 {
            (0..n as usize)
                .map(|j| weights[j] / total * a(j) * b(j))
                .sum()
        };
        let mut next = [(); 4].map(|()| vec![0.0; n as usize]);
        for &(j, i, count) in &counts {
            let leak = f64::from(100 + 1 + j % 3);
            for (k, next) in next.iter_mut().enumerate() {
                next[j as usize] += f64::from(count) / leak * x(map[i as usize] as usize, k);
            }
        }
        for (k, next) in next.iter().enumerate() {
            for l in 0..4 {
                let product = inner(&|j| x(j, k), &|j| x(j, l));
                assert!((product - f64::from(k == l)).abs() < 1e-10);
            }
            let along: Vec<f64> = (0..4).map(|l| inner(&|j| next[j], &|j| x(j, l))).collect();
            let rest = |j: usize| next[j] - (0..4).map(|l| along[l] * x(j, l)).sum::<f64>();
            assert!(inner(&rest, &rest).sqrt() < 1e-8);
        }
        // Other weights, the same eigenvalues.
        let flat = run(1, usize::MAX, &[1.0; 600]);
        for (a, b) in found.eigenvalues.iter().zip(&flat.eigenvalues).take(4) {
            assert!((a[0] - b[0]).abs() < 1e-8 && (a[1] - b[1]).abs() < 1e-8);
        }
    }
}
