//! Triples → observable operators of all ranks.
//!
//! *Plain* (Kulesza, Rao, Singh, (5)): P₂₁ = UΣVᵀ and W = VΣ⁻¹ = (UᵀP₂₁)⁺. *Scaled*: P̃ =
//! D_q^{-1/2} P₂₁ D_p^{-1/2} = ŨΣṼᵀ with U = D_q^{-1/2}Ũ and W = D_p^{-1/2}ṼΣ⁻¹, where p and q are
//! the probabilities of past and future. In both, b₁ = UᵀP₁, b_∞ᵀ = P₁ᵀW and B_x = UᵀP_3x1W.
//!
//! The first pair of P̃ is (√q, √p) with σ₁ = 1. Forced to be exactly that, b_∞ is the first unit
//! vector and Σ_x b_∞ᵀB_x = b_∞ᵀ at every rank. A word that is never the future of a pair has the
//! row e₁ of U, so that the first column of U is 1.
//!
//! The operators of a rank are the leading blocks of those of a larger rank, so one projection
//! serves all ranks.
//!
//! *Cost.* Triples are sorted by (middle, past). For each of the D₂ pairs, Σ_c count · u_c takes k
//! operations per triple and the product with w_a takes k² operations: k·D₃ + k²·D₂ in total. Each
//! operator is the sum of fixed ranges of pairs in order, so its bytes do not depend on threads.

use crate::error::{Error, Result};
use crate::evidence::pass::Passes;
use crate::evidence::symbols::triples::{TripleSize, Triples};
use crate::math::dense;
use crate::math::matrix::{dot, norm};
use crate::math::scale::times_power;
use crate::methods::estimator::Estimator;
use crate::methods::hmm::model::{HmmModel, Warning};
use crate::methods::hmm::moments::{Classes, NO_ROW, Pairs};
use crate::methods::hmm::params::{Refine, Scaling, SpectralHmm};
use crate::methods::spectral::truncated_svd;
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Singular values below this share of the largest one are zero.
const CUT: f64 = 1e-12;

/// The relative accuracy of the singular values.
const TOLERANCE: f64 = 1e-10;

/// Products of the decomposition after which it stops.
const MAX_PRODUCTS: usize = 20_000;

/// Singular values with at most this relative difference are equal.
const EQUAL: f64 = 1e-6;

/// Pairs of one class that are summed up one after another. The number is fixed because it
/// determines the rounding.
const EDGES: usize = 1 << 15;

/// Lanes of a padded row.
const LANES: usize = 4;

/// Pairs whose products are added to an operator at once.
const AT_ONCE: usize = 4;

/// Operators of the largest rank, from which those of all ranks are cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// The rank that was asked for.
    pub asked: usize,
    /// The largest rank with a model: the smaller of the rank that was asked for and the numerical
    /// rank.
    pub rank: usize,
    /// How the pairs were scaled.
    pub scaling: Scaling,
    /// σ₁, σ₂, … up to σ_{k+1}: one more than the rank that was asked for, if the matrix has it.
    pub spectrum: Vec<f64>,
    /// The residual of each singular value.
    pub residuals: Vec<f64>,
    /// Whether all residuals are small.
    pub converged: bool,
    /// The number of windows, or the sum of their weights, N.
    pub total: f64,
    /// The number of windows; (Σ w)² / Σ w² for windows with weights.
    pub effective: f64,
    /// ‖Pr(x₁) − Pr(x_T)‖₁ of the first and the last symbol of windows, in [0, 2]. It is large if
    /// windows are the first of their trajectories and the trajectories do not start from the
    /// stationary distribution.
    pub drift: f64,
    /// What the certificates compare.
    pub checked: Checked,
    /// U of the largest rank, classes × k, row-major. Empty for words of several symbols.
    left: Vec<f64>,
    /// The model of the largest rank.
    model: HmmModel,
}

/// Numbers that two different sums give.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// P₁ᵀW and 1ᵀP₂₁W, the two forms of b_∞, per component.
    pub last: Vec<[f64; 2]>,
    /// The sum of the counts of triples and that of pairs.
    pub totals: [f64; 2],
    /// Whether the counts are integers.
    pub is_integral: bool,
    /// The number of distinct triples, which bounds the terms of every sum.
    pub terms: usize,
    /// The length of the vector of ones by which the residual of a pair of vectors is multiplied in
    /// P₁ᵀW.
    pub ones: f64,
    /// The largest difference between Σ_x B_x v and UᵀP₃₁Wv for one vector v, and the largest
    /// magnitude of a sum that leads to them.
    pub sum: [f64; 2],
    /// ‖b_∞ᵀB_xUᵀP₂ − Pr(x₂ = x)‖₁. Zero with scaled operators.
    pub first_step: f64,
}

/// What tells how far a low rank can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Diagnostics {
    /// σ_k.
    pub last_kept: f64,
    /// σ_{k+1}, the largest omitted singular value; 0 if there is none.
    pub omitted: f64,
    /// 1/√N for N windows, (Σ w)² / Σ w² with weights: singular values of independent symbols are
    /// about this large.
    pub noise: f64,
    /// ‖Σ_x b_∞ᵀB_x − b_∞ᵀ‖₂: how far the predicted probabilities are from a sum of 1, per unit of
    /// the state.
    pub normalisation_gap: f64,
    /// |b_∞ᵀb₁ − 1|.
    pub initial_gap: f64,
}

impl Estimator for SpectralHmm {
    type Evidence<'a> = Triples;
    type Size = TripleSize;
    type Model = HmmModel;

    /// Beside triples and sequences.
    fn bytes(&self, size: TripleSize, threads: u64) -> u64 {
        let k = (self.rank as u64).max(1);
        let padded = k.next_multiple_of(4);
        let operators = size.symbols * k * k * 8;
        // Left and right vectors with one more column, and a Krylov space of a few ranks.
        let vectors = 2 * size.words.max(size.symbols) * (padded + 4) * 8;
        let krylov = 4 * size.words.max(size.symbols) * (padded + 16) * 8;
        // The pairs by past and by future: an index and at most four bytes of count each.
        let pairs = 2 * size.edges * 8 + size.edges * 16;
        let decompose = vectors + krylov + pairs;
        let project = vectors + operators + threads * padded * padded * 8;
        // The parts of a fit at the largest rank are cut out of the projection.
        let cut = 2 * operators;
        let em = match self.refine {
            Refine::Em => operators + (threads + 2) * (size.symbols + 1) * padded * 8,
            Refine::None | Refine::Recover => 0,
        };
        decompose.max(project).max(cut).max(operators + em)
    }

    /// Without refinement, which needs the sequences.
    fn fit(&self, passes: &Passes<'_>, triples: &Triples, seed: u64) -> Result<HmmModel> {
        project(self, self.rank, triples, passes, seed)?.into_model(self.rank)
    }
}

/// Decomposes the matrix of pairs and projects the triples, for all ranks up to `largest_rank`.
///
/// # Errors
/// If there is no window.
pub fn project(
    params: &SpectralHmm,
    largest_rank: usize,
    triples: &Triples,
    passes: &Passes<'_>,
    seed: u64,
) -> Result<Projection> {
    if triples.is_empty() {
        return Err(Error::input("there is no window of symbols to fit"));
    }
    let classes = Classes::new(triples, params.min_count);
    let effective = triples.effective.unwrap_or_else(|| triples.total());
    let triples = &*classes.triples(triples);
    passes.step("pairs");
    let pairs = Pairs::new(triples)?;
    passes.step("decompose");
    let basis = Basis::new(params.scaling, largest_rank, &pairs, passes, seed);
    let (pair_total, words) = (pairs.shards.total, pairs.shards.n_sources);
    let words = words.max(pairs.shards.n_targets);
    let (rank, total) = (basis.rank, triples.total());
    let vectors = Vectors::new(&basis, &pairs, params.scaling, total);
    // The pairs are as large as the triples, and are not needed any more.
    drop(pairs);
    passes.step("project");
    let (operators, checked_sum) = operators(triples, classes.n, &vectors, rank);

    let mut left = Vec::new();
    if triples.block == 1 {
        let rows = vectors.future.chunks_exact(vectors_width(rank));
        left.extend(rows.flat_map(|row| &row[..rank]));
    }
    let past = past_shares(triples, total);
    let initial = mean_row(&past, &vectors.future, rank);
    let from_past = mean_row(&past, &vectors.past, rank);
    let from_past: Vec<f64> = from_past.iter().map(|x| x * total).collect();
    let last = match params.scaling {
        Scaling::None => from_past.clone(),
        Scaling::Cca => (0..rank).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect(),
    };
    let model = HmmModel {
        rank,
        n_symbols: classes.class_of.len(),
        operators,
        initial,
        last,
        unigram: classes.unigram,
        class_of: classes.class_of,
        share: classes.share,
        pool: classes.pool,
        hidden: None,
    };
    let (ones, first_step) = match params.scaling {
        Scaling::None => ((words as f64).sqrt(), 0.0),
        Scaling::Cca => (1.0, first_step_gap(&model, triples, total)),
    };
    let pairs_of_last = from_past.into_iter().zip(vectors.last_by_future);
    Ok(Projection {
        asked: largest_rank,
        rank,
        scaling: params.scaling,
        spectrum: basis.values,
        residuals: basis.residuals,
        converged: basis.converged,
        total,
        effective,
        drift: drift(triples, total),
        checked: Checked {
            last: pairs_of_last.map(|(a, b)| [a, b]).collect(),
            totals: [total, pair_total].map(|sum| times_power(sum, triples.exponent)),
            is_integral: triples.is_integral(),
            terms: triples.counts.len(),
            ones,
            sum: checked_sum,
            first_step,
        },
        left,
        model,
    })
}

/// ‖b_∞ᵀB_xe₁ − Pr(x₂ = x)‖₁ of scaled operators, with b_∞ = e₁.
fn first_step_gap(model: &HmmModel, triples: &Triples, total: f64) -> f64 {
    let mut shares = vec![0.0; model.n_classes()];
    for (e, &(middle, _)) in triples.edges.iter().enumerate() {
        shares[middle as usize] += triples.edge_count(e);
    }
    let size = model.rank * model.rank;
    let predicted = model.operators.chunks_exact(size).map(|b| b[0]);
    let gaps = predicted
        .zip(shares)
        .map(|(b, share)| (b - share / total).abs());
    gaps.sum()
}

/// ‖Pr(x₁) − Pr(x_T)‖₁ of the first and the last symbol of windows.
pub(crate) fn drift(triples: &Triples, total: f64) -> f64 {
    let mut difference = vec![0.0; triples.n_symbols];
    for (first, _, last, count) in triples.iter() {
        difference[triples.word(first)[0] as usize] += count;
        difference[triples.word(last)[triples.block - 1] as usize] -= count;
    }
    difference.iter().map(|d: &f64| d.abs()).sum::<f64>() / total
}

/// The mean of padded rows of words with these probabilities.
fn mean_row(shares: &[f64], rows: &[f64], rank: usize) -> Vec<f64> {
    let mut mean = vec![0.0; rank];
    for (share, row) in shares.iter().zip(rows.chunks_exact(vectors_width(rank))) {
        let sums = mean.iter_mut().zip(row);
        sums.for_each(|(sum, x)| *sum += share * x);
    }
    mean
}

/// The probability of every past word.
fn past_shares(triples: &Triples, total: f64) -> Vec<f64> {
    let mut shares = vec![0.0; triples.n_words()];
    for (e, &(_, first)) in triples.edges.iter().enumerate() {
        shares[first as usize] += triples.edge_count(e);
    }
    shares.iter_mut().for_each(|share| *share /= total);
    shares
}

/// The decomposition of the scaled matrix of pairs.
struct Basis {
    /// The largest rank with a model.
    rank: usize,
    /// Left vectors, by future word: futures × `width`, row-major.
    left: Vec<f64>,
    /// Right vectors, by past word: pasts × `width`, row-major.
    right: Vec<f64>,
    /// Columns of the vectors.
    width: usize,
    values: Vec<f64>,
    residuals: Vec<f64>,
    converged: bool,
}

impl Basis {
    fn new(
        scaling: Scaling,
        largest_rank: usize,
        pairs: &Pairs,
        passes: &Passes<'_>,
        seed: u64,
    ) -> Basis {
        let shards = &pairs.shards;
        let most = shards.n_sources.min(shards.n_targets);
        let width = (largest_rank + 1).min(most);
        let options = truncated_svd::Options {
            rank: width,
            tolerance: TOLERANCE,
            max_products: MAX_PRODUCTS,
            seed,
        };
        let triplets = match scaling {
            Scaling::Cca => truncated_svd::leading(passes, shards, &options),
            Scaling::None => truncated_svd::leading_of_joint(passes, shards, &options),
        };
        // Sources are future words, so the right vectors of the shards are the left ones of P₂₁.
        let mut basis = Basis {
            rank: 0,
            left: triplets.right,
            right: triplets.left,
            width,
            values: triplets.values,
            residuals: triplets.residuals,
            converged: triplets.converged,
        };
        if scaling == Scaling::Cca {
            basis.force_first(&shards.source_total, &shards.target_total, shards.total);
        }
        // A value that is not larger than its residual is a rounding error.
        let largest = basis.values[0];
        let levels = basis.values.iter().zip(&basis.residuals);
        let numerical = levels
            .take_while(|(value, residual)| **value > CUT * largest && **value > 4.0 * **residual);
        basis.rank = numerical.count().min(largest_rank).max(1);
        basis
    }

    /// Makes (√q, √p) the first pair, and the others the singular pairs of the rest in the span of
    /// the vectors.
    fn force_first(&mut self, future_total: &[f64], past_total: &[f64], total: f64) {
        let width = self.width;
        let first =
            |totals: &[f64]| -> Vec<f64> { totals.iter().map(|t| (t / total).sqrt()).collect() };
        let (sqrt_q, sqrt_p) = (first(future_total), first(past_total));
        // c = Ṽᵀ√p. The Householder reflection that takes e₁ to c has an orthonormal complement of
        // c in its other columns.
        let mut c = vec![0.0; width];
        for (row, root) in self.right.chunks_exact(width).zip(&sqrt_p) {
            c.iter_mut().zip(row).for_each(|(c, v)| *c += v * root);
        }
        let complement = complement(&c);
        // P̃(ṼC) = ŨΣC, whose small decomposition gives the pairs of the rest.
        let rest = width - 1;
        let mut scaled = vec![0.0; width * width];
        for i in 0..width {
            for j in 0..rest {
                scaled[i * width + j] = self.values[i] * complement[i * width + j + 1];
            }
        }
        let (values, left, right) = dense::square_svd(&scaled, width);
        // The right vectors have the coefficients C · right.
        let mut turned = vec![0.0; width * width];
        for i in 0..width {
            for j in 0..rest {
                let along = (0..rest).map(|l| complement[i * width + l + 1] * right[l * width + j]);
                turned[i * width + j] = along.sum();
            }
        }
        turn(&mut self.left, width, &left, &sqrt_q);
        turn(&mut self.right, width, &turned, &sqrt_p);
        self.values[0] = 1.0;
        self.values[1..].copy_from_slice(&values[..rest]);
    }
}

/// An orthogonal matrix (row-major) whose first column is c up to its length and sign.
fn complement(c: &[f64]) -> Vec<f64> {
    let n = c.len();
    let length = norm(c);
    let mut v: Vec<f64> = c.iter().map(|x| x / length).collect();
    let sign = if v[0] < 0.0 { -1.0 } else { 1.0 };
    v[0] += sign;
    let square = dot(&v, &v);
    let mut reflection = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            let unit = if i == j { 1.0 } else { 0.0 };
            reflection[i * n + j] = unit - 2.0 * v[i] * v[j] / square;
        }
    }
    reflection
}

/// Replaces the rows by (first, row · coefficients without its part along `first`).
fn turn(rows: &mut [f64], width: usize, coefficients: &[f64], first: &[f64]) {
    let rest = width - 1;
    let mut out = vec![0.0; width];
    for (row, first) in rows.chunks_exact_mut(width).zip(first) {
        out[0] = *first;
        for j in 0..rest {
            let sum = (0..width).map(|i| row[i] * coefficients[i * width + j]);
            out[j + 1] = sum.sum();
        }
        row.copy_from_slice(&out);
    }
    // Two passes remove what rounding has left along the first vector.
    for _ in 0..2 {
        let mut along = vec![0.0; width];
        for row in rows.chunks_exact(width) {
            along
                .iter_mut()
                .zip(row)
                .for_each(|(a, x)| *a += row[0] * x);
        }
        let square = along[0];
        for row in rows.chunks_exact_mut(width) {
            let first = row[0] / square;
            for (x, along) in row[1..].iter_mut().zip(&along[1..]) {
                *x -= first * along;
            }
        }
    }
}

/// Numbers of a padded row.
fn vectors_width(rank: usize) -> usize {
    rank.next_multiple_of(LANES)
}

/// U and W/N with a padded row per word. A word that has none has zeros.
struct Vectors {
    /// U: words × padded rank.
    future: Vec<f64>,
    /// W/N: words × padded rank.
    past: Vec<f64>,
    /// 1ᵀP₂₁W.
    last_by_future: Vec<f64>,
}

impl Vectors {
    fn new(basis: &Basis, pairs: &Pairs, scaling: Scaling, total: f64) -> Vectors {
        let rank = basis.rank;
        let width = vectors_width(rank);
        let shards = &pairs.shards;
        let mut future = vec![0.0; pairs.future_of.len() * width];
        let mut past = vec![0.0; pairs.past_of.len() * width];
        let weight = |totals: &[f64], row: usize| match scaling {
            Scaling::None => 1.0,
            Scaling::Cca => (total / totals[row]).sqrt(),
        };
        future
            .par_chunks_mut(width)
            .zip(&pairs.future_of)
            .for_each(|(out, &row)| {
                if row == NO_ROW {
                    if scaling == Scaling::Cca {
                        out[0] = 1.0;
                    }
                    return;
                }
                let row = row as usize;
                let scale = weight(&shards.source_total, row);
                let left = &basis.left[row * basis.width..][..rank];
                out.iter_mut().zip(left).for_each(|(x, u)| *x = u * scale);
                if scaling == Scaling::Cca {
                    out[0] = 1.0;
                }
            });
        past.par_chunks_mut(width)
            .zip(&pairs.past_of)
            .for_each(|(out, &row)| {
                if row == NO_ROW {
                    return;
                }
                let row = row as usize;
                let scale = weight(&shards.target_total, row) / total;
                let right = &basis.right[row * basis.width..][..rank];
                let values = right.iter().zip(&basis.values);
                out.iter_mut()
                    .zip(values)
                    .for_each(|(x, (v, sigma))| *x = v / sigma * scale);
                if scaling == Scaling::Cca {
                    out[0] = 1.0 / total;
                }
            });
        // P₂₁W = U with plain operators, and D_q^{1/2}Ũ with scaled ones.
        let mut last_by_future = vec![0.0; rank];
        let rows = basis.left.chunks_exact(basis.width);
        for (row, count) in rows.zip(&shards.source_total) {
            let scale = match scaling {
                Scaling::None => 1.0,
                Scaling::Cca => (count / total).sqrt(),
            };
            let sums = last_by_future.iter_mut().zip(row);
            sums.for_each(|(sum, u)| *sum += u * scale);
        }
        Vectors {
            future,
            past,
            last_by_future,
        }
    }
}

/// Some classes whose operators are computed by one thread.
struct Task<'a> {
    /// Their pairs.
    edges: std::ops::Range<usize>,
    /// The first class.
    class: usize,
    /// Their operators.
    out: &'a mut [f64],
}

/// B_x of all classes, and [`Checked::sum`].
fn operators(
    triples: &Triples,
    n_classes: usize,
    vectors: &Vectors,
    rank: usize,
) -> (Vec<f64>, [f64; 2]) {
    let size = rank * rank;
    let mut operators = vec![0.0; n_classes * size];
    let mut tasks = Vec::new();
    let (mut rest, mut class, mut edge) = (&mut operators[..], 0, 0);
    while class < n_classes {
        let (mut next, mut end) = (class, edge);
        while next < n_classes && end - edge < EDGES {
            let edges = &triples.edges[end..];
            end += edges.partition_point(|&(middle, _)| middle as usize <= next);
            next += 1;
        }
        let (out, others) = rest.split_at_mut((next - class) * size);
        tasks.push(Task {
            edges: edge..end,
            class,
            out,
        });
        (rest, class, edge) = (others, next, end);
    }
    tasks.into_par_iter().for_each(|task| {
        let mut edge = task.edges.start;
        for (class, out) in (task.class..).zip(task.out.chunks_exact_mut(size)) {
            let edges = &triples.edges[edge..task.edges.end];
            let end = edge + edges.partition_point(|&(middle, _)| middle as usize <= class);
            let parts = (edge..end).step_by(EDGES).collect::<Vec<_>>();
            let parts: Vec<Vec<f64>> = parts
                .into_par_iter()
                .map(|from| part(triples, from..end.min(from + EDGES), vectors, rank))
                .collect();
            for part in parts {
                let rows = part.chunks_exact(vectors_width(rank));
                for (out, row) in out.chunks_exact_mut(rank).zip(rows) {
                    out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
                }
            }
            edge = end;
        }
    });
    let sum = check_sum(triples, vectors, &operators, rank);
    (operators, sum)
}

/// Σ over some pairs (a, x) of Σ_c count · u_c w_aᵀ: k × padded k, row-major.
fn part(
    triples: &Triples,
    edges: std::ops::Range<usize>,
    vectors: &Vectors,
    rank: usize,
) -> Vec<f64> {
    let width = vectors_width(rank);
    let mut sum = vec![0.0; rank * width];
    add_up(triples, edges, vectors, width, &mut sum);
    sum
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn add_up(
    triples: &Triples,
    edges: std::ops::Range<usize>,
    vectors: &Vectors,
    width: usize,
    sum: &mut [f64],
) {
    let (future, past) = (&vectors.future[..], &vectors.past[..]);
    let mut futures = vec![0.0; AT_ONCE * width];
    let mut pasts = vec![0.0; AT_ONCE * width];
    let mut edge = edges.start;
    while edge < edges.end {
        let at_once = AT_ONCE.min(edges.end - edge);
        for (l, e) in (edge..edge + at_once).enumerate() {
            let row = &past[triples.edges[e].1 as usize * width..][..width];
            pasts[l * width..][..width].copy_from_slice(row);
            let f = &mut futures[l * width..][..width];
            f.fill(0.0);
            let span = triples.offsets[e]..triples.offsets[e + 1];
            let list = triples.last[span.clone()].iter().zip(&triples.counts[span]);
            for (&last, &count) in list {
                let row = &future[last as usize * width..][..width];
                let chunks = f.as_chunks_mut::<LANES>().0.iter_mut();
                for (f, u) in chunks.zip(row.as_chunks::<LANES>().0) {
                    for (f, u) in f.iter_mut().zip(u) {
                        *f = u.mul_add(count, *f);
                    }
                }
            }
        }
        futures[at_once * width..].fill(0.0);
        pasts[at_once * width..].fill(0.0);
        let (f0, f) = futures.split_at(width);
        let (f1, f) = f.split_at(width);
        let (f2, f3) = f.split_at(width);
        let (w0, w) = pasts.split_at(width);
        let (w1, w) = w.split_at(width);
        let (w2, w3) = w.split_at(width);
        for (i, row) in sum.chunks_exact_mut(width).enumerate() {
            let a = [f0[i], f1[i], f2[i], f3[i]];
            let chunks = row.as_chunks_mut::<LANES>().0.iter_mut();
            let w = w0
                .as_chunks::<LANES>()
                .0
                .iter()
                .zip(w1.as_chunks::<LANES>().0);
            let v = w2
                .as_chunks::<LANES>()
                .0
                .iter()
                .zip(w3.as_chunks::<LANES>().0);
            for (row, ((w0, w1), (w2, w3))) in chunks.zip(w.zip(v)) {
                for l in 0..LANES {
                    let x = w0[l].mul_add(a[0], row[l]);
                    let x = w1[l].mul_add(a[1], x);
                    let x = w2[l].mul_add(a[2], x);
                    row[l] = w3[l].mul_add(a[3], x);
                }
            }
        }
        edge += at_once;
    }
}

/// Σ_x B_x v and UᵀP₃₁Wv for v = (1, …, 1), as one sum over operators and one over triples.
fn check_sum(triples: &Triples, vectors: &Vectors, operators: &[f64], rank: usize) -> [f64; 2] {
    let width = vectors_width(rank);
    let dots = vectors.past.par_chunks(width);
    let dots: Vec<f64> = dots.map(|row| row[..rank].iter().sum()).collect();
    // The weight of each future word: Σ count · wᵀv over its triples.
    let mut weights = vec![[0.0; 2]; triples.n_words()];
    for (first, _, last, count) in triples.iter() {
        let term = count * dots[first as usize];
        weights[last as usize][0] += term;
        weights[last as usize][1] += term.abs();
    }
    let mut sums = vec![[0.0; 2]; rank];
    for (row, [weight, magnitude]) in vectors.future.chunks_exact(width).zip(weights) {
        for (sum, u) in sums.iter_mut().zip(row) {
            sum[0] += u * weight;
            sum[1] += u.abs() * magnitude;
        }
    }
    let mut total = vec![0.0; rank * rank];
    for operator in operators.chunks_exact(rank * rank) {
        total.iter_mut().zip(operator).for_each(|(t, b)| *t += b);
    }
    let mut worst = [0.0, 0.0];
    for (row, [sum, magnitude]) in total.chunks_exact(rank).zip(sums) {
        let gap = (row.iter().sum::<f64>() - sum).abs();
        worst = [f64::max(worst[0], gap), f64::max(worst[1], magnitude)];
    }
    worst
}

impl Projection {
    /// An upper bound of the residuals of a decomposition that converged.
    pub(crate) fn largest_residual(&self) -> f64 {
        truncated_svd::largest_residual(TOLERANCE)
    }

    /// The model of a rank.
    ///
    /// # Errors
    /// If the rank is above the numerical rank of the matrix of pairs.
    pub(crate) fn model(&self, rank: usize) -> Result<HmmModel> {
        let rank = self.checked_rank(rank)?;
        if rank == self.rank {
            return Ok(self.model.clone());
        }
        let k = self.rank;
        let size = rank * rank;
        let mut operators = vec![0.0; self.model.n_classes() * size];
        operators
            .par_chunks_mut(size)
            .zip(self.model.operators.par_chunks(k * k))
            .for_each(|(out, whole)| {
                for (out, row) in out.chunks_exact_mut(rank).zip(whole.chunks_exact(k)) {
                    out.copy_from_slice(&row[..rank]);
                }
            });
        Ok(HmmModel {
            rank,
            n_symbols: self.model.n_symbols,
            operators,
            initial: self.model.initial[..rank].to_vec(),
            last: self.model.last[..rank].to_vec(),
            unigram: self.model.unigram.clone(),
            class_of: self.model.class_of.clone(),
            share: self.model.share.clone(),
            pool: self.model.pool,
            hidden: None,
        })
    }

    /// The model of a rank, without a copy if it is the largest one.
    ///
    /// # Errors
    /// Those of [`Projection::model`].
    pub fn into_model(self, rank: usize) -> Result<HmmModel> {
        if self.checked_rank(rank)? == self.rank {
            return Ok(self.model);
        }
        self.model(rank)
    }

    /// U at a rank: symbols × k, row-major. Pooled symbols have the same row. Empty for words of
    /// several symbols.
    pub(crate) fn left(&self, rank: usize) -> Vec<f64> {
        if self.left.is_empty() {
            return Vec::new();
        }
        let classes = self.model.class_of.iter();
        let rows = classes.flat_map(|&class| &self.left[class as usize * self.rank..][..rank]);
        rows.copied().collect()
    }

    /// The rank of the model for a rank that was asked for: 1 if there is only one symbol.
    pub(crate) fn checked_rank(&self, rank: usize) -> Result<usize> {
        if self.is_one_symbol() {
            return Ok(1);
        }
        if rank <= self.rank && rank > 0 {
            return Ok(rank);
        }
        Err(Error::input(format!(
            "rank {rank} is above the numerical rank {} of the matrix of pairs; decrease `rank`",
            self.rank
        )))
    }

    fn is_one_symbol(&self) -> bool {
        self.model.n_classes() == 1
    }

    /// What makes the model of a rank doubtful.
    pub(crate) fn warnings(&self, rank: usize) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.is_one_symbol() && rank > 1 {
            warnings.push(Warning::OneSymbol { rank });
            return warnings;
        }
        if let (Some(&last), Some(&next)) = (self.spectrum.get(rank - 1), self.spectrum.get(rank))
            && last - next <= EQUAL * last
        {
            warnings.push(Warning::EqualValues { rank, last, next });
        }
        if !self.converged {
            let residual = self.residuals.iter().copied().fold(0.0, f64::max);
            warnings.push(Warning::NotConverged { residual });
        }
        warnings
    }

    /// How far a rank can be trusted.
    pub(crate) fn diagnostics(&self, rank: usize) -> Diagnostics {
        let rank = rank.clamp(1, self.rank);
        let k = self.rank;
        let mut sums = vec![0.0; rank];
        for operator in self.model.operators.chunks_exact(k * k) {
            for (row, last) in operator.chunks_exact(k).zip(&self.model.last[..rank]) {
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, b)| *sum += last * b);
            }
        }
        let gaps = sums.iter().zip(&self.model.last);
        let gap: f64 = gaps.map(|(sum, last)| (sum - last).powi(2)).sum();
        let one = dot(&self.model.last[..rank], &self.model.initial[..rank]);
        Diagnostics {
            last_kept: self.spectrum[rank - 1],
            omitted: self.spectrum.get(rank).copied().unwrap_or(0.0),
            noise: 1.0 / self.effective.sqrt(),
            normalisation_gap: gap.sqrt(),
            initial_gap: (one - 1.0).abs(),
        }
    }
}
