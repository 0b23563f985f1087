//! Truncated singular value decomposition of P̃ = D_q^{-1/2} P D_p^{1/2}, P̃_ij = N_ij / √(N_i·
//! N_·j) (coherence (5)).
//!
//! In: the counts N (m targets × n sources) as shards, the rank r, a tolerance and a seed. Out: the
//! r leading triplets of P̃, values in descending order, left vectors (m × r) and right vectors (n
//! × r), and the residuals of these vectors. P̃ is never stored: a product scales, gathers rows of
//! N and scales again.
//!
//! Method: block Lanczos with thick restarts (`lanczos`) on the Gram operator G = P̃ᵀP̃, or P̃P̃ᵀ
//! if it is smaller. Its Krylov space is that of Golub–Kahan–Lanczos with half of the memory and of
//! the orthogonalisation. At the end, a Rayleigh–Ritz step with P̃ (P̃V = UR panel by panel, then
//! the dense SVD of R) recovers the digits of small values that σ² has lost. The iteration starts
//! from √p, the right vector of σ₁ = 1. If the smaller side has only one or two hundred states, a
//! dense method is used.
//!
//! *Stopping.* A Ritz pair (θ, v) of G has ρ = ‖Gv − θv‖. With σ = √θ and u = P̃v/σ it gives ‖P̃v −
//! σu‖ = 0 and ‖P̃ᵀu − σv‖ = ρ/σ. The error of the value is at most (ρ/σ)²/γ and that of the vector
//! at most an angle of (ρ/σ)/γ, where γ is the gap to the rest of the spectrum. The test is ρ ≤ 100
//! · tolerance · θ, so residuals of 1e-8 σ for a tolerance of 1e-10. Then vectors have errors of
//! 1e-7 at a gap of σ/10, and values of 1e-10 at any gap above 1e-6 σ. Closer values form a
//! cluster, for which the gap behind the cluster counts. ‖P̃ᵀu − σv‖ is measured again on the
//! result. The other residual is zero up to the rounding of P̃V = UR: R = LΣWᵀ gives P̃(VW) =
//! (UL)Σ.
//!
//! *Small values.* Below about 1e-7 the rounding of σ² limits the vectors, and a value that should
//! be zero can become as large as 1e-8 if there are values between. Exact zeros among large values
//! are zero to rounding.

use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::products::Multiply;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::evidence::pass::kernel::Sharded;
use crate::math::krylov::{entries_of, unpanel};
use crate::math::matrix::{flip, identity, signs};
use crate::math::{dense, lanczos, sum};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use rayon::prelude::*;
use std::borrow::Cow;

/// The parameters of a decomposition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// The number r of leading triplets, `1 ≤ r ≤ min(m, n)`.
    pub rank: usize,
    /// The relative accuracy of the singular values, usually 1e-10; see the head of this file.
    pub tolerance: f64,
    /// The number of products of P̃ or P̃ᵀ with one vector after which the iteration stops.
    pub max_products: usize,
    /// The seed of the random start vectors.
    pub seed: u64,
}

/// Leading singular triplets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Triplets {
    /// σ, r values, descending.
    pub values: Vec<f64>,
    /// m × r, row-major, orthonormal columns.
    pub left: Vec<f64>,
    /// n × r, row-major, orthonormal columns. In each column the first entry of largest magnitude
    /// is positive.
    pub right: Vec<f64>,
    /// max(‖P̃v − σu‖, ‖P̃ᵀu − σv‖) of each triplet. A product measures the second, or the first if
    /// m < n. The other is zero by construction, up to rounding.
    pub residuals: Vec<f64>,
    /// Products of P̃ or P̃ᵀ with one vector.
    pub products: usize,
    /// Restarts of the Lanczos iteration.
    pub restarts: usize,
    /// Whether every residual passed the test.
    pub converged: bool,
}

/// Whether a dense method is as fast: with so few states per wanted vector, a Krylov space would
/// soon be the whole space.
fn is_whole(dimensions: usize, rank: usize, width: usize) -> bool {
    dimensions <= (100 + 8 * rank).max(lanczos::smallest_dimension(rank, width))
}

/// If P̃ has at most this many entries, it is decomposed without G.
const TINY: usize = 1 << 18;

/// States of the larger side up to which a panel has four columns; above it has two ([`width`]). A
/// product with four vectors costs about 1.5 times as much as with one, and wider panels lose more
/// by their Krylov spaces than they gain. Panels beyond the cache are slower: half a million rows
/// of four are 16 MB, about the shared cache of the cores.
const NARROW: usize = 1 << 19;

/// Columns of a panel, by the states of the larger side.
pub(crate) fn width(states: usize) -> usize {
    if states <= NARROW { 4 } else { 2 }
}

/// Numbers in the basis of the Krylov space, about 340 MB: 85 vectors of half a million states, 40
/// of a million.
const ROOM: usize = 85 << 19;

/// The residual ‖P̃ᵀu − σv‖ relative to σ, for a tolerance of one on the values.
const RESIDUAL: f64 = 100.0;

/// An upper bound of the measured residuals of a decomposition that converged. σ₁ = 1, so this is
/// twice the test on the largest values: the measured residual is not the predicted one.
pub(crate) fn largest_residual(tolerance: f64) -> f64 {
    2.0 * (RESIDUAL * tolerance).max(dense::NEGLIGIBLE)
}

/// The r leading singular triplets of P̃.
pub(crate) fn leading(passes: &Passes<'_>, shards: &Shards, options: &Options) -> Triplets {
    let inverse_roots = |totals: &[f64]| totals.iter().map(|t| 1.0 / t.sqrt()).collect();
    let source_scale = inverse_roots(&shards.source_total);
    let target_scale = inverse_roots(&shards.target_total);
    scaled_leading(passes, shards, options, source_scale, target_scale)
}

/// The r leading singular triplets of N / S, the matrix of joint probabilities.
pub(crate) fn leading_of_joint(
    passes: &Passes<'_>,
    shards: &Shards,
    options: &Options,
) -> Triplets {
    let root = 1.0 / shards.total.sqrt();
    let scale = |n: usize| vec![root; n];
    let (source_scale, target_scale) = (scale(shards.n_sources), scale(shards.n_targets));
    scaled_leading(passes, shards, options, source_scale, target_scale)
}

/// The r leading singular triplets of diag(`target_scale`) N diag(`source_scale`).
fn scaled_leading(
    passes: &Passes<'_>,
    shards: &Shards,
    options: &Options,
    source_scale: Vec<f64>,
    target_scale: Vec<f64>,
) -> Triplets {
    let (m, n) = (shards.n_targets, shards.n_sources);
    let rank = options.rank;
    assert!(
        1 <= rank && rank <= m.min(n),
        "the rank is between 1 and min(m, n)"
    );
    // The Gram operator acts on the smaller side. `transposed` swaps the sides at the end.
    let transposed = m < n;
    let sources = (shards.sources(), source_scale, &shards.source_total);
    let targets = (shards.targets(), target_scale, &shards.target_total);
    let (domain, image) = if transposed {
        (targets, sources)
    } else {
        (sources, targets)
    };
    let (backward, domain_scale, domain_total) = domain;
    let (forward, image_scale, _) = image;
    let mut operator = Operator {
        passes,
        forward,
        backward,
        domain_scale,
        image_squares: image_scale.iter().map(|s| s * s).collect(),
        image_scale,
        scaled: Buffer::default(),
        middle: Buffer::default(),
        products: 0,
    };
    let mut random = Pcg64::seed_from_u64(options.seed);
    let dimensions = operator.domain_scale.len();
    let width = width(m.max(n));
    let space = if is_whole(dimensions, rank, width) {
        whole_space(&mut operator, rank)
    } else {
        let start: Vec<f64> = domain_total
            .iter()
            .map(|t| (t / shards.total).sqrt())
            .collect();
        let wanted = lanczos::Options {
            wanted: rank,
            width,
            residual: RESIDUAL * options.tolerance,
            max_products: options.max_products / 2,
            room: ROOM,
        };
        let apply = |x: &[f64], out: &mut [f64]| operator.gram(x, width, out);
        let ritz = lanczos::leading(apply, &start, &wanted, &mut random);
        Space {
            panels: ritz.panels,
            width,
            restarts: ritz.restarts,
            converged: ritz.converged,
        }
    };
    finish(operator, space, options, transposed, &mut random)
}

/// P̃ (or P̃ᵀ) as an operator on panels, with the buffers of its products.
struct Operator<'a> {
    passes: &'a Passes<'a>,
    /// Rows are the image, columns the domain.
    forward: Sharded<'a, Csr>,
    /// Rows are the domain, columns the image.
    backward: Sharded<'a, Csr>,
    /// 1/√ of the totals of the domain.
    domain_scale: Vec<f64>,
    /// 1/√ of the totals of the image.
    image_scale: Vec<f64>,
    /// Their squares.
    image_squares: Vec<f64>,
    scaled: Buffer,
    middle: Buffer,
    products: usize,
}

impl Operator<'_> {
    /// P̃, row-major: N times the identity, scaled.
    fn entries(&self) -> Vec<f64> {
        let n = self.domain_scale.len();
        let mut entries = vec![0.0; self.image_scale.len() * n];
        gather(
            self.passes,
            self.forward,
            &identity(n),
            n,
            &mut entries,
            &[],
        );
        for (row, scale) in entries.chunks_exact_mut(n).zip(&self.image_scale) {
            for (x, domain_scale) in row.iter_mut().zip(&self.domain_scale) {
                *x = *x * scale * domain_scale;
            }
        }
        entries
    }

    /// P̃x, for x with `width` columns.
    fn forward(&mut self, x: &[f64], width: usize) -> Vec<f64> {
        self.product(x, width, true)
    }

    /// P̃ᵀy, for y with `width` columns.
    fn backward(&mut self, y: &[f64], width: usize) -> Vec<f64> {
        self.product(y, width, false)
    }

    fn product(&mut self, x: &[f64], width: usize, is_forward: bool) -> Vec<f64> {
        let (over, from, to) = if is_forward {
            (self.forward, &self.domain_scale, &self.image_scale)
        } else {
            (self.backward, &self.image_scale, &self.domain_scale)
        };
        let mut out = vec![0.0; to.len() * width];
        let scaled = self.scaled.of(x.len());
        scale(x, from, width, scaled);
        gather(self.passes, over, scaled, width, &mut out, to);
        self.products += width;
        out
    }

    /// out = P̃ᵀP̃x.
    fn gram(&mut self, x: &[f64], width: usize, out: &mut [f64]) {
        let scaled = self.scaled.of(x.len());
        let middle = self.middle.of(self.image_scale.len() * width);
        scale(x, &self.domain_scale, width, scaled);
        let (squares, roots) = (&self.image_squares, &self.domain_scale);
        gather(self.passes, self.forward, scaled, width, middle, squares);
        gather(self.passes, self.backward, middle, width, out, roots);
        self.products += 2 * width;
    }
}

/// Numbers that start on a cache line. Rows of four or eight of them never cross a cache line,
/// which makes gathers a tenth to a third faster.
#[derive(Default)]
struct Buffer(Vec<f64>);

impl Buffer {
    const LINE: usize = 64;

    fn of(&mut self, len: usize) -> &mut [f64] {
        let room = len + Self::LINE / size_of::<f64>();
        if self.0.len() < room {
            self.0 = Vec::new();
            self.0 = vec![0.0; room];
        }
        let skip = self.0.as_ptr().align_offset(Self::LINE);
        &mut self.0[skip..skip + len]
    }
}

/// out = diag(scales) · x.
pub(crate) fn scale(x: &[f64], scales: &[f64], width: usize, out: &mut [f64]) {
    let rows = 4096;
    out.par_chunks_mut(rows * width)
        .zip(x.par_chunks(rows * width))
        .zip(scales.par_chunks(rows))
        .for_each(|((out, x), scales)| {
            let rows = out.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((out, x), scale) in rows.zip(scales) {
                for (out, x) in out.iter_mut().zip(x) {
                    *out = x * scale;
                }
            }
        });
}

/// out = diag(scale) · N · x for the rows of `shards`.
pub(crate) fn gather(
    passes: &Passes<'_>,
    over: Sharded<'_, Csr>,
    x: &[f64],
    width: usize,
    out: &mut [f64],
    scale: &[f64],
) {
    let kernel = Multiply {
        x: Cow::from(x),
        width,
        scale: Cow::from(scale),
    };
    passes.rows(over, &kernel, out);
}

/// Orthonormal panels of the domain whose leading columns span the wanted right vectors, and the
/// counters of the iteration.
struct Space {
    panels: Vec<Vec<f64>>,
    width: usize,
    restarts: usize,
    converged: bool,
}

/// The leading right vectors without a Krylov space, if the domain is small: of P̃ if it has few
/// entries, so that nothing is lost by squaring, of G otherwise.
fn whole_space(operator: &mut Operator<'_>, rank: usize) -> Space {
    let n = operator.domain_scale.len();
    let (width, kept) = [8, 4, 2, 1]
        .into_iter()
        .map(|w| (w, rank.next_multiple_of(w)))
        .find(|(_, kept)| *kept <= n)
        .expect("a width of one divides everything");
    let vectors = if n * operator.image_scale.len() <= TINY {
        dense::leading_right(&operator.entries(), n, kept)
    } else {
        let gram = entries_of(n, width, |x, out| operator.gram(x, width, out));
        dense::leading_eigen(&gram, n, kept).1
    };
    let panels = (0..kept / width)
        .map(|p| {
            let rows = vectors.chunks_exact(kept);
            rows.flat_map(|row| &row[p * width..][..width])
                .copied()
                .collect()
        })
        .collect();
    Space {
        panels,
        width,
        restarts: 0,
        converged: true,
    }
}

/// Rayleigh–Ritz with P̃ on the span of the panels, then the residuals of the result on the
/// backward side. The forward side is exact by construction.
fn finish(
    mut operator: Operator<'_>,
    space: Space,
    options: &Options,
    transposed: bool,
    random: &mut Pcg64,
) -> Triplets {
    let (rank, width) = (options.rank, space.width);
    let mut domain = space.panels;
    let k = domain.len() * width;

    // P̃V = UR. The columns of P̃V have descending lengths, so zero columns come last. The random
    // vectors that replace them are orthogonal to the range of P̃: left vectors of zero.
    let mut image: Vec<Vec<f64>> = Vec::with_capacity(domain.len());
    let mut r = vec![0.0; k * k];
    for (p, v) in domain.iter().enumerate() {
        let mut u = operator.forward(v, width);
        let split = dense::orthonormalise(&image, 0..p, width, &mut u, random);
        let rows = split.along.chunks(width).chain(split.rest.chunks(width));
        for (r, row) in r.chunks_exact_mut(k).zip(rows) {
            r[p * width..][..width].copy_from_slice(row);
        }
        image.push(u);
    }
    let (values, left, right) = dense::square_svd(&r, k);
    dense::rotate(&mut image, width, &left, k);
    dense::rotate(&mut domain, width, &right, k);
    let wanted = rank.div_ceil(width);
    image.truncate(wanted);
    domain.truncate(wanted);

    let mut residuals = Vec::with_capacity(wanted * width);
    for (p, (u, v)) in image.iter_mut().zip(&mut domain).enumerate() {
        let right = if transposed { &*u } else { &*v };
        let signs = signs(right.len() / width, width, |i, k| right[i * width + k]);
        flip(u, &signs);
        flip(v, &signs);
        let sigma = &values[p * width..][..width];
        residuals.extend(distances(&operator.backward(u, width), v, sigma));
    }
    residuals.truncate(rank);
    let largest = largest_residual(options.tolerance);
    let converged = space.converged && residuals.iter().all(|r| *r <= largest);

    let (image, domain) = (unpanel(&image, width, rank), unpanel(&domain, width, rank));
    let (left, right) = if transposed {
        (domain, image)
    } else {
        (image, domain)
    };
    Triplets {
        values: values[..rank].to_vec(),
        left,
        right,
        residuals,
        products: operator.products,
        restarts: space.restarts,
        converged,
    }
}

/// ‖a_k − σ_k b_k‖ for every column k.
pub(crate) fn distances(a: &[f64], b: &[f64], sigma: &[f64]) -> Vec<f64> {
    let width = sigma.len();
    (0..width)
        .map(|k| {
            sum::terms(a.len() / width, |i| {
                let d = a[i * width + k] - sigma[k] * b[i * width + k];
                d * d
            })
            .sqrt()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::{dense, of_entries};
    use crate::evidence::pass::Passes;
    use crate::math::dense::square_svd;
    use crate::math::testing::{close, on_threads};
    use rand::RngExt;

    /// Shards of the positive counts `count(target, source)`.
    fn shards(m: usize, n: usize, shard_nnz: usize, count: impl Fn(usize, usize) -> u32) -> Shards {
        let column = |j| (0..m).map(|i| f64::from(count(i, j))).collect();
        let columns: Vec<Vec<f64>> = (0..n).map(column).collect();
        dense(&columns, false, shard_nnz)
    }

    fn options(rank: usize) -> Options {
        Options {
            rank,
            tolerance: 1e-10,
            max_products: 100_000,
            seed: 1,
        }
    }

    /// A chain on a ring that stays with probability 1/2 and steps to either side with 1/4. P̃ = P
    /// is circulant with σ = 1/2 + 1/2 cos(2πk/n): 1, then pairs.
    fn ring(n: usize, shard_nnz: usize) -> Shards {
        let (size, n) = (n, n as u32);
        let column = |j| [(j, (j + n - 1) % n, 1), (j, j, 2), (j, (j + 1) % n, 1)];
        of_entries(size, size, (0..n).flat_map(column), shard_nnz)
    }

    /// ⌊random⌋ counts with about `percent` % non-zeros and a positive diagonal, m × n.
    fn random(m: usize, n: usize, percent: u32, seed: u64) -> Shards {
        let mut random = Pcg64::seed_from_u64(seed);
        let counts: Vec<u32> = (0..m * n)
            .map(|at| {
                let on_diagonal = at / n % n == at % n || at % n % m == at / n;
                if random.random_range(0..100) < percent || on_diagonal {
                    random.random_range(1..20)
                } else {
                    0
                }
            })
            .collect();
        shards(m, n, 1000, |i, j| counts[i * n + j])
    }

    /// All singular values of P̃ from the dense matrix, padded to a square.
    fn dense_values(s: &Shards) -> Vec<f64> {
        let n = s.n_targets.max(s.n_sources);
        let mut a = vec![0.0; n * n];
        for shard in &s.by_target {
            for (l, i) in shard.rows().enumerate() {
                for e in shard.span(l) {
                    let j = shard.columns[e] as usize;
                    let scale = (s.target_total[i] * s.source_total[j]).sqrt();
                    a[i * n + j] = shard.values.get(e) / scale;
                }
            }
        }
        square_svd(&a, n).0
    }

    /// ‖D_b^{-1/2} N D_a^{-1/2} a − σb‖, with N from the shards of its rows.
    fn residual(
        rows: &[Csr],
        a: &[f64],
        a_total: &[f64],
        b: &[f64],
        b_total: &[f64],
        sigma: f64,
    ) -> f64 {
        let mut sum = 0.0;
        for shard in rows {
            for (l, i) in shard.rows().enumerate() {
                let terms = shard.span(l).map(|e| {
                    let j = shard.columns[e] as usize;
                    shard.values.get(e) * a[j] / a_total[j].sqrt()
                });
                sum += (terms.sum::<f64>() / b_total[i].sqrt() - sigma * b[i]).powi(2);
            }
        }
        sum.sqrt()
    }

    /// Vectors are orthonormal, residuals are small where they are not zero by construction, and
    /// signs are canonical.
    fn assert_sound(s: &Shards, found: &Triplets) {
        let r = found.values.len();
        assert!(found.converged, "{found:?}");
        assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        for (vectors, n) in [(&found.left, s.n_targets), (&found.right, s.n_sources)] {
            assert_eq!(vectors.len(), n * r);
            for a in 0..r {
                for b in 0..=a {
                    let dot: f64 = vectors.chunks_exact(r).map(|v| v[a] * v[b]).sum();
                    let expected = if a == b { 1.0 } else { 0.0 };
                    assert!((dot - expected).abs() < 1e-12, "{a} {b}: {dot}");
                }
            }
        }
        assert!(found.residuals.iter().all(|r| *r <= 2e-8));
        for k in 0..r {
            // Both sides, with shards of either orientation.
            let column = |v: &[f64]| v.iter().skip(k).step_by(r).copied().collect::<Vec<_>>();
            let (u, v) = (column(&found.left), column(&found.right));
            let forward = residual(
                &s.by_target,
                &v,
                &s.source_total,
                &u,
                &s.target_total,
                found.values[k],
            );
            let backward = residual(
                &s.by_source,
                &u,
                &s.target_total,
                &v,
                &s.source_total,
                found.values[k],
            );
            let (exact, measured) = if s.n_targets < s.n_sources {
                (backward, forward)
            } else {
                (forward, backward)
            };
            assert!(exact <= 1e-13 && (measured - found.residuals[k]).abs() <= 1e-14);
        }
        for k in 0..r {
            let column = || found.right.chunks_exact(r).map(|v| v[k]);
            let largest = column().fold(0.0, |a: f64, x| a.max(x.abs()));
            assert!(column().find(|x| x.abs() >= (1.0 - 1e-6) * largest) > Some(0.0));
        }
    }

    fn check(s: &Shards, rank: usize, expected: &[f64], tolerance: f64) {
        let found = leading(&Passes::local(), s, &options(rank));
        close(&found.values, &expected[..rank], tolerance);
        assert_sound(s, &found);
    }

    #[test]
    fn small_random_matrices_agree_with_the_dense_decomposition() {
        for (m, n) in [(1, 1), (2, 2), (1, 7), (7, 1), (30, 20), (20, 30), (61, 61)] {
            let s = random(m, n, 30, (m * 100 + n) as u64);
            let expected = dense_values(&s);
            for rank in [1, (m.min(n) / 2).max(1), m.min(n)] {
                check(&s, rank, &expected, 1e-12);
            }
        }
    }

    #[test]
    fn larger_random_matrices_agree_with_the_dense_decomposition() {
        // The first matrix is decomposed by G, the others by the Krylov space.
        for (m, n) in [(900, 295), (420, 400), (400, 420)] {
            let s = random(m, n, 2, 7);
            let expected = dense_values(&s);
            check(&s, 1, &expected, 1e-12);
            check(&s, 9, &expected, 1e-12);
            check(&s, 40, &expected, 1e-12);
        }
    }

    #[test]
    fn a_ring_walk_has_its_closed_form() {
        let n = 2000;
        let expected: Vec<f64> = (0..12)
            .map(|k: usize| {
                0.5 + 0.5 * (2.0 * std::f64::consts::PI * k.div_ceil(2) as f64 / n as f64).cos()
            })
            .collect();
        check(&ring(n, 1000), 12, &expected, 1e-10);
    }

    #[test]
    fn degenerate_matrices_have_their_values_at_both_sizes() {
        for n in [12, 500] {
            let half = n / 2;
            let one_then_zero = [1.0, 0.0, 0.0, 0.0, 0.0];
            let uniform = shards(n, n, 1000, |_, _| 3);
            check(&uniform, 5, &one_then_zero, 1e-12);
            let two_blocks = shards(n, n, 1000, |i, j| u32::from((i < half) == (j < half)));
            check(&two_blocks, 5, &[1.0, 1.0, 0.0, 0.0, 0.0], 1e-12);
            let permutation = shards(n, n, 1000, |i, j| u32::from((i * 7 + 3) % n == j));
            if n % 7 != 0 {
                check(&permutation, 5, &[1.0; 5], 1e-12);
            }
            let identical_rows = shards(n, n, 1000, |_, j| 1 + (j % 5) as u32);
            check(&identical_rows, 5, &one_then_zero, 1e-12);
            let wide = shards(half, n, 1000, |i, j| u32::from(i == j % half));
            check(&wide, 5, &[1.0; 5], 1e-12);
        }
        check(&shards(1, 1, 10, |_, _| 4), 1, &[1.0], 1e-15);
    }

    #[test]
    fn thirty_closed_groups_give_thirty_ones_then_zeros() {
        // Groups of 20 sources and 18 targets, each of rank one, and the same at the size of
        // coherence Example 21, ε = 0.
        for (targets, sources) in [(18, 20), (3, 3)] {
            let (m, n) = (30 * targets, 30 * sources);
            let s = shards(m, n, 1000, |i, j| {
                30 * u32::from(i / targets == j / sources)
            });
            let mut expected = vec![1.0; 30];
            expected.extend([0.0; 4]);
            check(&s, 3, &expected, 1e-12);
            check(&s, 34, &expected, 1e-12);
        }
    }

    #[test]
    fn copies_of_one_chain_give_copies_of_its_values() {
        // Eleven rings of 60 states: 1 eleven times, then 1/2 + 1/2 cos(2π/60) 22 times.
        let (copies, size) = (11, 60);
        let s = shards(copies * size, copies * size, 1000, |i, j| {
            let d = (i % size + size - j % size) % size;
            match d {
                _ if i / size != j / size => 0,
                0 => 2,
                1 => 1,
                _ => u32::from(d == size - 1),
            }
        });
        let value = |k: f64| 0.5 + 0.5 * (2.0 * std::f64::consts::PI * k / size as f64).cos();
        let mut expected = vec![1.0; 11];
        expected.extend([value(1.0); 22]);
        expected.extend([value(2.0); 3]);
        check(&s, 36, &expected, 1e-10);
    }

    #[test]
    fn the_first_vectors_are_the_roots_of_the_probabilities() {
        let s = random(400, 350, 2, 3);
        let found = leading(&Passes::local(), &s, &options(2));
        for (j, v) in found.right.chunks_exact(2).enumerate() {
            assert!((v[0] - (s.source_total[j] / s.total).sqrt()).abs() < 1e-10);
        }
        for (i, u) in found.left.chunks_exact(2).enumerate() {
            assert!((u[0] - (s.target_total[i] / s.total).sqrt()).abs() < 1e-10);
        }
    }

    #[test]
    fn threads_and_shards_do_not_change_a_bit() {
        let run = |threads, shard_nnz| {
            let s = ring(5000, shard_nnz);
            let options = Options {
                tolerance: 1e-8,
                ..options(3)
            };
            on_threads(threads, || leading(&Passes::local(), &s, &options))
        };
        let one = run(1, usize::MAX);
        assert!(one.restarts > 0);
        assert!(one == run(5, 2200));
        assert!(one == run(2, 100));
    }

    #[test]
    fn too_few_products_are_reported() {
        let found = leading(
            &Passes::local(),
            &ring(3000, 1000),
            &Options {
                max_products: 100,
                ..options(5)
            },
        );
        assert!(!found.converged);
        let is_sound = |v: &f64| *v <= 1.0 + 1e-12 && v.is_finite();
        assert!(found.values.iter().all(is_sound));
    }
}
